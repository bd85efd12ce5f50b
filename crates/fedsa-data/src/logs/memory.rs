//! Logs of columns that are in memory, such as those of data frames: by the same names and rules as those of files.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, StringArray};
use arrow_schema::DataType;
use fedsa::error::{Error, Result, quoted};
use fedsa::problem::log::Log;
use fedsa::problem::log_form::{BadRows, LogForm};
use fedsa::problem::source::Inputs;

use super::columns::LogColumns;
use super::following;
use super::format::BATCH;
use super::groups::{Interleaving, arranged};
use super::header::Header;
use super::layout::Layout;
use super::told::{Names, Rows, Told};
use crate::batch::{Batch, Batches};
use crate::find::natural_order;
use crate::memory_log::MemoryLog;

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
        let next_follows = layout.follows();
        let is_known = layout.keys.map(|key| key.is_some());
        let (Rows { mut log, keys: [codes, envs] }, told) = self.rows(layout, n)?;
        if next_follows {
            log.next.clone_from(&log.states);
        }
        let [Names { all: names, .. }, _] = told.names;
        let mut interleaving = Interleaving::default();
        log.episode.iter().flatten().for_each(|episode| interleaving.see(*episode));
        if is_known == [false; 2] && !next_follows && !interleaving.comes_back() {
            log.check()?;
            return Ok(vec![log.into()]);
        }
        let envs = if is_known[1] { envs } else { vec![0; n] };
        if !is_known[0] {
            let all: Vec<usize> = (0..n).collect();
            return Ok(vec![in_order(&log, (&all, &envs), next_follows, &self.name)?]);
        }
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

    /// The transitions in the order of the rows, with the agent and the environment of each.
    fn rows(&self, layout: Layout, n: usize) -> Result<(Rows, Told)> {
        let empty = layout.empty(&self.name);
        let columns = LogColumns::new(&self.names(), layout);
        columns.check_types(|i| if i < self.columns.len() { &DataType::Float64 } else { &DataType::Utf8 })?;
        let mut all = Rows::new(empty.clone());
        let mut table = MemoryRows { table: self, wanted: columns.wanted.iter().map(|(i, _)| *i).collect(), row: 0, n };
        let told = columns.read(&mut table, &mut || Rows::new(empty.clone()), &mut |rows| {
            all.log.append(&rows.log);
            all.keys.iter_mut().zip(&rows.keys).for_each(|(all, keys)| all.extend_from_slice(keys));
            true
        })?;
        Ok((all, told))
    }

    /// Rows of a column.
    fn column(&self, i: usize, rows: Range<usize>) -> ArrayRef {
        match self.columns.get(i) {
            Some((_, column)) => Arc::new(Float64Array::from(column.iter().skip(rows.start).take(rows.len()).collect::<Vec<f64>>())),
            None => Arc::new(StringArray::from_iter_values(&self.texts[i - self.columns.len()].1[rows])),
        }
    }
}

/// The rows of a table, read from the first one on.
struct MemoryRows<'a> {
    table: &'a MemoryTable<'a>,
    wanted: Vec<usize>,
    row: usize,
    /// The number of all rows.
    n: usize,
}

impl Batches for MemoryRows<'_> {
    fn next(&mut self) -> Result<Option<Batch>> {
        let rows = self.row..self.n.min(self.row + BATCH);
        self.row = rows.end;
        let columns = self.wanted.iter().map(|i| self.table.column(*i, rows.clone())).collect();
        Ok((!rows.is_empty()).then(|| Batch::new(rows.start, columns)))
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
