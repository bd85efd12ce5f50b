//! Logs in Parquet: columns that are read side by side.

use ::parquet::basic::Type;
use ::parquet::data_type::ByteArrayType;
use fedsa::error::{Error, Result, quoted};
use fedsa::problem::log::Log;
use fedsa::problem::log_form::{LogForm, RowPlace};

use super::ahead;
use super::layout::{ACTION, FLAGS, Layout, WHOLE, action_number, flag, row_bytes, whole_number};
use super::ratios::{OF_TAKEN, RATIO, RatioColumns, contradicts, quotient, ratio};
use super::told::{Names, Rows, Told};
use crate::parquet::{Columns, Numbers, contained_while, present};
use crate::store::Store;

/// A column of a Parquet file.
struct LogColumn<'a> {
    numbers: Numbers<'a>,
    name: String,
}

/// Rows of a batch that cannot be read, with the reason; `None` where such rows are refused.
type Bad = Option<Vec<Option<String>>>;

const FINITE: &str = "a finite number";

impl LogColumn<'_> {
    fn error(&self, e: Error) -> Error {
        e.about("").prefixed(format!("column `{}`", quoted(&self.name)))
    }

    fn fill(&mut self, out: &mut [f64]) -> Result<()> {
        self.numbers.fill(out).map_err(|e| self.error(e))
    }

    /// Row `i` of a batch, row `row` of the file, is not what is wanted.
    fn refuse(&self, (i, row): (usize, usize), value: f64, wanted: &str, bad: &mut Bad) -> Result<()> {
        let Some(bad) = bad else {
            return Err(self.error(Error::data("", format!("row {row} is {value}"), wanted)));
        };
        bad[i].get_or_insert_with(|| format!("column `{}`: not {wanted}", quoted(&self.name)));
        Ok(())
    }

    /// Where rows that cannot be read are left out: those whose number is not finite.
    fn check_finite(&self, first: usize, values: &[f64], bad: &mut Bad) -> Result<()> {
        if bad.is_some() {
            let mut not = values.iter().enumerate().filter(|(_, value)| !value.is_finite());
            not.try_for_each(|(i, value)| self.refuse((i, first + i), *value, FINITE, bad))?;
        }
        Ok(())
    }

    /// Puts the next `n` rows, the first of which is row `first`, into `out`.
    fn convert<T: Default>(
        &mut self,
        (first, n): (usize, usize),
        scratch: &mut Vec<f64>,
        out: &mut Vec<T>,
        (convert, wanted): (impl Fn(f64) -> Option<T>, &str),
        bad: &mut Bad,
    ) -> Result<()> {
        scratch.resize(n, 0.0);
        self.fill(scratch)?;
        out.clear();
        for (i, value) in scratch.iter().enumerate() {
            let converted = convert(*value);
            if converted.is_none() {
                self.refuse((i, first + i), *value, wanted, bad)?;
            }
            out.push(converted.unwrap_or_default());
        }
        Ok(())
    }
}

/// The next rows of columns, the first of which is row `first`, as many as `scratch` has, in row-major order.
fn side_by_side(columns: &mut [LogColumn<'_>], first: usize, scratch: &mut [f64], out: &mut Vec<f64>, bad: &mut Bad) -> Result<()> {
    let k = columns.len();
    out.resize(scratch.len() * k, 0.0);
    for (j, column) in columns.iter_mut().enumerate() {
        column.fill(scratch)?;
        column.check_finite(first, scratch, bad)?;
        out[j..].iter_mut().step_by(k).zip(&*scratch).for_each(|(out, value)| *out = *value);
    }
    Ok(())
}

/// Puts something in place of next states that are missing: after a terminal state there is none, and many logs have nothing there.
fn complete(log: &mut Log, columns: &[LogColumn<'_>], first: usize, bad: &mut Bad) -> Result<()> {
    let k = columns.len();
    for (at, next) in log.next.iter_mut().enumerate().filter(|(_, next)| !next.is_finite()) {
        let (i, column) = (at / k, &columns[at % k]);
        match log.done[i] {
            true => *next = log.states[at],
            // It was read without telling the two apart.
            false if bad.is_none() && next.is_nan() => {
                return Err(column.error(Error::data("", format!("row {} is null or NaN", first + i), FINITE)));
            }
            false => column.refuse((i, first + i), *next, FINITE, bad)?,
        }
    }
    Ok(())
}

/// The columns of a log in a Parquet file, read side by side.
pub(super) struct LogColumns<'a> {
    pub(super) layout: Layout,
    states: Vec<LogColumn<'a>>,
    next: Vec<LogColumn<'a>>,
    reward: LogColumn<'a>,
    done: LogColumn<'a>,
    truncated: Option<LogColumn<'a>>,
    episode: Option<LogColumn<'a>>,
    ratio: Option<LogColumn<'a>>,
    /// The probability under the policy that acted, where `ratio` is the one of the evaluated policy.
    behaviour: Option<LogColumn<'a>>,
    /// The action that was taken, and the probabilities of all in the state and in the next one.
    actions: Option<(LogColumn<'a>, [Vec<LogColumn<'a>>; 2])>,
    scratch: Vec<f64>,
}

impl<'a> LogColumns<'a> {
    pub(super) fn new(file: &'a Columns, form: &LogForm) -> Result<Self> {
        let names = file.names();
        let layout = Layout::new(&names, form)?;
        let actions = layout.actions.as_ref().map_or(0, |actions| 2 * actions.here.len() + 1);
        file.plausible(row_bytes(layout.columns.len() + actions.div_ceil(2)))?;
        file.side_by_side(2 * layout.columns.len() + 6 + actions)?;
        let column = |i: &usize| -> Result<LogColumn<'a>> {
            let name = names[*i].clone();
            let in_column = |e: Error| e.about("").prefixed(format!("column `{}`", quoted(&name)));
            let numbers = Numbers::new(file, *i).map_err(in_column)?;
            let may_lack = layout.skips || layout.next.contains(i);
            Ok(LogColumn { numbers: if may_lack { numbers.with_nulls() } else { numbers }, name })
        };
        let columns = |all: &[usize]| all.iter().map(column).collect::<Result<Vec<_>>>();
        let actions = match &layout.actions {
            Some(actions) => Some((column(&actions.taken)?, [columns(&actions.here)?, columns(&actions.next)?])),
            None => None,
        };
        let (ratio, behaviour) = match layout.ratio {
            None => (None, None),
            Some(RatioColumns::Ratio(i)) => (Some(i), None),
            Some(RatioColumns::Probabilities { target, behaviour }) => (Some(target), Some(behaviour)),
        };
        Ok(Self {
            states: columns(&layout.states)?,
            next: columns(&layout.next)?,
            actions,
            reward: column(&layout.reward)?,
            done: column(&layout.done)?,
            truncated: layout.truncated.as_ref().map(column).transpose()?,
            episode: layout.episode.as_ref().map(column).transpose()?,
            ratio: ratio.as_ref().map(column).transpose()?,
            behaviour: behaviour.as_ref().map(column).transpose()?,
            layout,
            scratch: Vec::new(),
        })
    }

    /// Reads the next `n` rows, the first of which is row `first`, in place of those of `rows`. Rows that cannot be read are in `bad`.
    fn fill(&mut self, rows: &mut Rows, (first, n): (usize, usize), bad: &mut Bad) -> Result<()> {
        let (scratch, log) = (&mut self.scratch, &mut rows.log);
        scratch.resize(n, 0.0);
        side_by_side(&mut self.states, first, scratch, &mut log.states, bad)?;
        side_by_side(&mut self.next, first, scratch, &mut log.next, &mut None)?;
        if let (Some((taken, [here, next])), Some(out)) = (&mut self.actions, &mut log.actions) {
            side_by_side(here, first, scratch, &mut out.here, bad)?;
            side_by_side(next, first, scratch, &mut out.next, bad)?;
            taken.convert((first, n), scratch, &mut out.taken, (action_number, ACTION), bad)?;
        }
        log.rewards.resize(n, 0.0);
        self.reward.fill(&mut log.rewards)?;
        self.reward.check_finite(first, &log.rewards, bad)?;
        self.done.convert((first, n), scratch, &mut log.done, (flag, FLAGS), bad)?;
        complete(log, &self.next, first, bad)?;
        if let (Some(column), Some(out)) = (&mut self.truncated, &mut log.truncated) {
            column.convert((first, n), scratch, out, (flag, FLAGS), bad)?;
        }
        if let (Some(column), Some(out)) = (&mut self.episode, &mut log.episode) {
            column.convert((first, n), scratch, out, (whole_number, WHOLE), bad)?;
        }
        if let (Some(column), Some(out)) = (&mut self.ratio, &mut log.ratio) {
            out.resize(n, 0.0);
            column.fill(out)?;
            let Some(behaviour) = &mut self.behaviour else {
                if bad.is_some() {
                    let mut not = out.iter().enumerate().filter(|(_, rho)| ratio(**rho).is_none());
                    not.try_for_each(|(i, rho)| column.refuse((i, first + i), *rho, RATIO, bad))?;
                }
                return Ok(());
            };
            if let Some(actions) = &log.actions {
                for (i, (target, law)) in out.iter().zip(actions.here.chunks_exact(actions.count)).enumerate() {
                    if contradicts(*target, law, actions.taken[i]) {
                        column.refuse((i, first + i), *target, OF_TAKEN, bad)?;
                    }
                }
            }
            behaviour.fill(scratch)?;
            for (i, (rho, acted)) in out.iter_mut().zip(&*scratch).enumerate() {
                match quotient(*rho, *acted) {
                    Ok(quotient) => *rho = quotient,
                    Err((place, wanted)) => {
                        let (of, value) = if place == 0 { (&*column, *rho) } else { (&*behaviour, *acted) };
                        of.refuse((i, first + i), value, wanted, bad)?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// The number of the text, or of the whole number, in each row of a column.
fn codes(file: &Columns, column: usize, names: &mut Names) -> Result<Vec<u32>> {
    file.spend(file.rows().saturating_mul(size_of::<u32>()))?;
    let mut out = Vec::with_capacity(file.rows());
    if file.describe(column).physical_type() == Type::BYTE_ARRAY {
        file.each::<ByteArrayType>(column, |row, value| {
            let bytes = present(row, value)?.data();
            let text = std::str::from_utf8(bytes).map_err(|_| Error::data("", format!("row {row}: not UTF-8"), "text in UTF-8"))?;
            if text.trim().is_empty() {
                return Err(Error::data("", format!("row {row} is empty"), "a name in every row"));
            }
            out.push(names.number(text.trim()));
            Ok(())
        })?;
    } else {
        file.each_integer(column, |_, value| {
            out.push(names.number(&value.to_string()));
            Ok(())
        })?;
    }
    Ok(out)
}

/// Removes rows that cannot be read, says what is before those that follow them, and counts them.
fn leave_out(rows: &mut Rows, bad: &[Option<String>], first: usize, told: &mut Told) {
    let mut breaks = Vec::with_capacity(bad.len());
    for (i, reason) in bad.iter().enumerate() {
        let key = rows.key(i);
        match reason {
            Some(reason) => told.leave_out(reason.clone(), RowPlace::Row((first + i) as u64), Some(key)),
            None => breaks.push(told.break_before(key)),
        }
    }
    if breaks.len() < bad.len() {
        // Those of all rows come first, so that lengths agree.
        rows.log.breaks = None;
        rows.log = rows.log.filtered(|i| bad[i].is_none());
        for keys in rows.keys.iter_mut().filter(|keys| !keys.is_empty()) {
            *keys = keys.iter().zip(bad).filter(|(_, bad)| bad.is_none()).map(|(key, _)| *key).collect();
        }
    }
    rows.log.breaks = Some(breaks);
}

/// Reads a log in Parquet. The file is unpacked on a thread of its own while the caller's thread sees the batch before.
pub(super) fn read_parquet(file: Store, form: &LogForm, name: &str, most: usize, see: &mut dyn FnMut(&Rows) -> Result<()>) -> Result<Told> {
    let (ahead, behind) = ahead::both();
    let read = move |file: &Columns| {
        let mut columns = LogColumns::new(file, form)?;
        let most = columns.layout.batch(most);
        let mut told = Told::default();
        let mut keys: [Option<Vec<u32>>; 2] = [None, None];
        for (i, keys) in keys.iter_mut().enumerate() {
            let of = |column: usize| {
                let in_column = |e: Error| e.about("").prefixed(format!("column `{}`", quoted(&file.names()[column])));
                codes(file, column, &mut told.names[i]).map_err(in_column)
            };
            *keys = columns.layout.keys[i].map(of).transpose()?;
        }
        for first in (0..file.rows()).step_by(most) {
            let n = most.min(file.rows() - first);
            let mut rows = ahead.batch(|| Rows::new(columns.layout.empty(name)));
            let mut bad = columns.layout.skips.then(|| vec![None; n]);
            columns.fill(&mut rows, (first, n), &mut bad)?;
            for (of, all) in rows.keys.iter_mut().zip(&keys) {
                of.clear();
                of.extend_from_slice(all.as_ref().map_or(&[], |all| &all[first..first + n]));
            }
            if let Some(bad) = &bad {
                leave_out(&mut rows, bad, first, &mut told);
            }
            // An error is that of `see`.
            if !rows.log.is_empty() && !ahead.hand_on(rows) {
                break;
            }
        }
        Ok(told)
    };
    let (read, seen) = contained_while(file, read, move || behind.see(see));
    seen.and(read)
}

/// Calls `see` with the episodes of all rows.
pub(super) fn each_episode(file: &Columns, column: usize, see: &mut dyn FnMut(i64)) -> Result<()> {
    const BATCH: usize = 8192;
    let mut numbers = Numbers::new(file, column)?.with_nulls();
    let mut out = vec![0.0; BATCH.min(file.rows())];
    for first in (0..file.rows()).step_by(BATCH) {
        let out = &mut out[..BATCH.min(file.rows() - first)];
        numbers.fill(out)?;
        out.iter().filter_map(|value| whole_number(*value)).for_each(&mut *see);
    }
    Ok(())
}
