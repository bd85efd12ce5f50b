//! Logs of columns that are in memory, such as those of data frames: by the same names and rules as those of files.

use fedsa::error::{Error, Result, quoted};
use fedsa::problem::log::Log;
use fedsa::problem::log_form::{BadRows, LeftOutRows, LogForm};
use fedsa::problem::source::{Inputs, LogSource};

use super::following;
use super::groups::{Interleaving, arranged};
use super::header::Header;
use super::layout::{ACTION, FLAGS, Layout, WHOLE, action_number, flag, whole_number};
use super::ratios::{OF_TAKEN, PROBABILITIES, RatioColumns, contradicts, quotient};
use super::told::Names;
use crate::find::natural_order;

/// The numbers of a column: those at every `stride`-th place of a slice.
#[derive(Debug, Clone, Copy)]
pub struct MemoryColumn<'a> {
    numbers: &'a [f64],
    stride: usize,
}

impl<'a> MemoryColumn<'a> {
    /// The column that begins with the first number and goes on every `stride` numbers.
    ///
    /// # Panics
    /// When `stride` is 0.
    pub fn new(numbers: &'a [f64], stride: usize) -> Self {
        assert!(stride > 0, "a column has a stride");
        Self { numbers, stride }
    }

    fn len(&self) -> usize {
        self.numbers.len().div_ceil(self.stride)
    }

    fn iter(&self) -> impl Iterator<Item = f64> + 'a {
        self.numbers.iter().step_by(self.stride).copied()
    }
}

/// A table of one agent, or of several that a column names.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct MemoryTable<'a> {
    /// What messages call it, and its agent where no column names agents.
    pub name: String,
    /// Its columns of numbers.
    pub columns: Vec<(String, MemoryColumn<'a>)>,
    /// Its columns of text: the name, and a text for each row. They can name agents and environments.
    pub texts: Vec<(String, Vec<String>)>,
}

impl MemoryTable<'_> {
    /// A table without columns.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    fn names(&self) -> Vec<String> {
        self.columns.iter().map(|(name, _)| name).chain(self.texts.iter().map(|(name, _)| name)).cloned().collect()
    }

    /// Whether it has columns `phi_*`, features that were logged.
    ///
    /// # Errors
    /// When two columns have one name.
    pub fn has_features(&self, form: &LogForm) -> Result<bool> {
        let (state, next) = Inputs::Features.prefixes();
        let header = Header::new(self.names(), &form.columns).map_err(|e| e.about(quoted(&self.name)))?;
        Ok(header.roles.iter().any(|name| name.starts_with(state) && !name.starts_with(next)))
    }

    /// The logs of its agents: one, or those that the column of agents names, in natural order of the names. Rows of environments and
    /// episodes side by side are put in order, as those of files are.
    ///
    /// # Errors
    /// When columns are missing, of different lengths, or have numbers that they cannot have; rows that cannot be read are not left out.
    pub fn logs(&self, form: &LogForm) -> Result<Vec<MemoryLog>> {
        self.read(form).map_err(|e| if e.key.is_empty() { e.about(quoted(&self.name)) } else { e })
    }

    fn read(&self, form: &LogForm) -> Result<Vec<MemoryLog>> {
        form.check()?;
        if form.bad_rows == BadRows::Skip {
            return Err(Error::new("bad_rows", "rows that are left out, of tables in memory", "tables without such rows, or files"));
        }
        let layout = Layout::new(&self.names(), form)?;
        let lengths = self.columns.iter().map(|(name, column)| (name, column.len()));
        let lengths: Vec<_> = lengths.chain(self.texts.iter().map(|(name, texts)| (name, texts.len()))).collect();
        let (first, n) = lengths[0];
        if let Some((name, other)) = lengths.iter().find(|(_, length)| *length != n) {
            let what = format!("{n} rows of `{}`, and {other} of `{}`", quoted(first), quoted(name));
            return Err(Error::data("", what, "columns of equal length"));
        }
        if n == 0 {
            return Err(Error::data("", "a log without transitions", "an agent needs at least one transition"));
        }
        let mut log = self.log(&layout, n)?;
        let next_follows = layout.follows();
        if next_follows {
            log.next.clone_from(&log.states);
        }
        let keys = layout.keys.map(|key| key.map(|i| self.key(i)).transpose());
        let [agents, envs] = keys;
        let (agents, envs) = (agents?, envs?);
        let mut interleaving = Interleaving::default();
        log.episode.iter().flatten().for_each(|episode| interleaving.see(*episode));
        if agents.is_none() && envs.is_none() && !next_follows && !interleaving.comes_back() {
            log.check()?;
            return Ok(vec![log.into()]);
        }
        let envs = envs.map_or_else(|| vec![0; n], |(_, codes)| codes);
        let Some((names, codes)) = agents else {
            let all: Vec<usize> = (0..n).collect();
            return Ok(vec![in_order(&log, (&all, &envs), next_follows, &self.name)?]);
        };
        let mut order: Vec<usize> = (0..names.len()).collect();
        order.sort_by(|a, b| natural_order(&names[*a], &names[*b]));
        let mut rows_of = vec![Vec::new(); names.len()];
        codes.iter().enumerate().for_each(|(row, agent)| rows_of[*agent as usize].push(row));
        let of_agent = |agent: usize| {
            let name = &names[agent];
            in_order(&log, (&rows_of[agent], &envs), next_follows, name).map_err(|e| e.prefixed(format!("agent `{}`", quoted(name))))
        };
        order.into_iter().map(of_agent).collect()
    }

    /// The transitions in the order of the rows.
    fn log(&self, layout: &Layout, n: usize) -> Result<Log> {
        let mut log = layout.empty(&self.name);
        log.states = self.side_by_side(&layout.states, n)?;
        log.next = self.side_by_side(&layout.next, n)?;
        log.rewards = self.numbers(layout.reward)?.iter().collect();
        log.done = self.converted(layout.done, flag, FLAGS)?;
        // After a terminal state there is none, and many logs have nothing there.
        let k = layout.next.len();
        for (at, next) in log.next.iter_mut().enumerate().filter(|(at, next)| next.is_nan() && log.done[at / k]) {
            *next = log.states[at];
        }
        log.truncated = layout.truncated.map(|i| self.converted(i, flag, FLAGS)).transpose()?;
        log.episode = layout.episode.map(|i| self.converted(i, whole_number, WHOLE)).transpose()?;
        log.ratio = match layout.ratio {
            None => None,
            Some(RatioColumns::Ratio(i)) => Some(self.numbers(i)?.iter().collect()),
            Some(RatioColumns::Probabilities { target, behaviour }) => Some(self.quotients(target, behaviour)?),
        };
        if let (Some(columns), Some(out)) = (&layout.actions, &mut log.actions) {
            out.taken = self.converted(columns.taken, action_number, ACTION)?;
            out.here = self.side_by_side(&columns.here, n)?;
            out.next = self.side_by_side(&columns.next, n)?;
            if let Some(RatioColumns::Probabilities { target, .. }) = layout.ratio {
                let laws = out.here.chunks_exact(out.count).zip(&out.taken);
                let mut rows = self.numbers(target)?.iter().zip(laws).enumerate();
                if let Some((row, (p, _))) = rows.find(|(_, (p, (law, taken)))| contradicts(*p, law, **taken)) {
                    return Err(Error::data("", format!("column `{}`: row {row} is {p}", PROBABILITIES[0]), OF_TAKEN));
                }
            }
        }
        Ok(log)
    }

    fn numbers(&self, i: usize) -> Result<MemoryColumn<'_>> {
        let Some((_, column)) = self.columns.get(i) else {
            let (name, _) = &self.texts[i - self.columns.len()];
            return Err(Error::data("", format!("the column `{}` is text", quoted(name)), "a column of numbers"));
        };
        Ok(*column)
    }

    fn converted<T>(&self, i: usize, convert: impl Fn(f64) -> Option<T>, wanted: &str) -> Result<Vec<T>> {
        let bad = |row: usize, x: f64| {
            let name = quoted(&self.columns[i].0);
            Error::data("", format!("column `{name}`: row {row} is {x}"), wanted)
        };
        self.numbers(i)?.iter().enumerate().map(|(row, x)| convert(x).ok_or_else(|| bad(row, x))).collect()
    }

    /// Columns as an array in row-major order.
    fn side_by_side(&self, all: &[usize], n: usize) -> Result<Vec<f64>> {
        let k = all.len();
        let mut out = vec![0.0; n * k];
        for (j, i) in all.iter().enumerate() {
            out[j..].iter_mut().step_by(k).zip(self.numbers(*i)?.iter()).for_each(|(out, x)| *out = x);
        }
        Ok(out)
    }

    fn quotients(&self, target: usize, behaviour: usize) -> Result<Vec<f64>> {
        let pairs = self.numbers(target)?.iter().zip(self.numbers(behaviour)?.iter()).enumerate();
        let ratio = |(row, (target, behaviour)): (usize, (f64, f64))| {
            quotient(target, behaviour).map_err(|(place, wanted)| {
                let value = [target, behaviour][place];
                Error::data("", format!("column `{}`: row {row} is {value}", PROBABILITIES[place]), wanted)
            })
        };
        pairs.map(ratio).collect()
    }

    /// The number of each row's agent or environment, and their names.
    fn key(&self, i: usize) -> Result<(Vec<String>, Vec<u32>)> {
        let mut names = Names::default();
        let codes = match self.columns.get(i) {
            Some((name, column)) => {
                let bad = |row: usize, x: f64| Error::data("", format!("column `{}`: row {row} is {x}", quoted(name)), WHOLE);
                let number = |(row, x): (usize, f64)| Ok(names.number(&whole_number(x).ok_or_else(|| bad(row, x))?.to_string()));
                column.iter().enumerate().map(number).collect::<Result<Vec<_>>>()?
            }
            None => self.texts[i - self.columns.len()].1.iter().map(|text| names.number(text.trim())).collect(),
        };
        Ok((names.all, codes))
    }
}

/// The log of some rows of a table, of these environments, which are put in order; checked.
fn in_order(log: &Log, (rows, envs): (&[usize], &[u32]), next_follows: bool, name: &str) -> Result<MemoryLog> {
    let envs: Vec<u32> = rows.iter().map(|row| envs[*row]).collect();
    let (mut log, lost) = arranged(&log.rows(rows), &envs, next_follows)?;
    log.name = name.into();
    log.check()?;
    let lost: Vec<usize> = lost.into_iter().map(|row| rows[row]).collect();
    let left_out = following::left_out(name.into(), &lost).into_iter().collect();
    Ok(MemoryLog { log, left_out, next_follows })
}

#[cfg(test)]
mod tests {
    use fedsa::problem::log_form::RowPlace;

    use super::*;
    use crate::logs::{from_csv, from_form};

    type Column = (&'static str, Vec<f64>);

    /// The same table as CSV.
    fn csv(columns: &[Column]) -> Vec<u8> {
        let head: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
        let line = |row: usize| columns.iter().map(|(_, x)| x[row].to_string()).collect::<Vec<_>>().join(",");
        let lines: Vec<String> = (0..columns[0].1.len()).map(line).collect();
        format!("{}\n{}\n", head.join(","), lines.join("\n")).into_bytes()
    }

    fn table(columns: &[Column]) -> MemoryTable<'_> {
        let columns = columns.iter().map(|(name, x)| ((*name).to_string(), MemoryColumn::new(x, 1))).collect();
        MemoryTable { columns, ..MemoryTable::new("") }
    }

    fn logs(columns: &[Column], form: &LogForm) -> Vec<Log> {
        table(columns).logs(form).unwrap().into_iter().map(|one| one.log).collect()
    }

    fn columns() -> Vec<Column> {
        vec![
            ("next_10", vec![1.0, 2.0, 0.5, 1.5]),
            ("s_10", vec![0.0, 1.0, 0.0, 0.5]),
            ("s_2", vec![5.0, 6.0, 7.0, 8.0]),
            ("next_2", vec![6.0, 7.0, 8.0, 9.0]),
            ("reward", vec![1.0, 0.0, -1.0, 2.0]),
            ("terminated", vec![0.0, 1.0, 0.0, 0.0]),
            ("truncated", vec![0.0, 0.0, 0.0, 1.0]),
            ("episode", vec![3.0, 3.0, 4.0, 4.0]),
            ("target", vec![0.5, 0.25, 1.0, 0.0]),
            ("behaviour", vec![0.5, 0.5, 0.5, 0.5]),
            ("agent", vec![10.0, 10.0, 2.0, 2.0]),
        ]
    }

    #[test]
    fn a_table_in_memory_is_the_log_of_its_file() {
        let columns = columns();
        let found = logs(&columns, &LogForm::default());
        assert_eq!(found, [from_csv(csv(&columns), Inputs::States).unwrap()]);
        assert_eq!(found[0].columns, ["s_2", "s_10"]);
        let form = LogForm::default().with_agent_column(Some("agent".into()));
        let found = logs(&columns, &form);
        assert_eq!(found, from_form(csv(&columns), &form).unwrap());
        assert_eq!(found.len(), 2);
        // Next states are those of the following rows.
        let mut without = columns.clone();
        without.retain(|(name, _)| !name.starts_with("next_"));
        assert_eq!(logs(&without, &LogForm::default()), from_form(csv(&without), &LogForm::default()).unwrap());
        let one = table(&without).logs(&LogForm::default()).unwrap().remove(0);
        assert_eq!((one.next_follows, one.left_out[0].rows, one.left_out[0].first), (true, 1, RowPlace::Row(3)));
        // Episodes and environments side by side.
        let mut mixed = columns.clone();
        mixed[7].1 = vec![3.0, 4.0, 3.0, 4.0];
        mixed[5].1 = vec![0.0; 4];
        mixed[6].1 = vec![0.0; 4];
        mixed.push(("env", vec![0.0, 1.0, 0.0, 1.0]));
        let form = LogForm::default();
        assert_eq!(logs(&mixed, &form), from_form(csv(&mixed), &form).unwrap());
    }

    #[test]
    fn columns_may_be_those_of_a_matrix() {
        let numbers = [1.0, 10.0, 2.0, 20.0, 3.0, 30.0];
        let column = |j: usize| MemoryColumn::new(&numbers[j..], 2);
        assert_eq!((column(0).len(), column(1).len()), (3, 3));
        assert_eq!([column(0).iter().collect::<Vec<_>>(), column(1).iter().collect()], [vec![1.0, 2.0, 3.0], vec![10.0, 20.0, 30.0]]);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        let refused = |change: &dyn Fn(&mut Vec<Column>)| {
            let mut columns = columns();
            change(&mut columns);
            table(&columns).logs(&LogForm::default()).unwrap_err().to_string()
        };
        assert_eq!(refused(&|all| all[5].1[2] = 2.0), "column `terminated`: row 2 is 2");
        assert_eq!(refused(&|all| all[7].1[1] = 0.5), "column `episode`: row 1 is 0.5");
        assert_eq!(refused(&|all| all[9].1[0] = 0.0), "column `behaviour`: row 0 is 0");
        assert_eq!(refused(&|all| all[4].1.truncate(3)), "4 rows of `next_10`, and 3 of `reward`");
        assert_eq!(refused(&|all| all.iter_mut().for_each(|(_, x)| x.clear())), "a log without transitions");
        assert!(refused(&|all| drop(all.remove(4))).contains("there is no column `reward`"));
        assert!(refused(&|all| all[1].1[0] = f64::NAN).contains("NaN is not a finite number"));
        let columns = columns();
        let mut text = table(&columns[..10]);
        text.texts.push(("agent".into(), ["b", "b", "a", "a"].map(String::from).to_vec()));
        let logs = text.logs(&LogForm::default().with_agent_column(Some("agent".into()))).unwrap();
        assert_eq!(logs.iter().map(|one| &*one.log.name).collect::<Vec<_>>(), ["a", "b"]);
    }
}
