//! Converts the columns of a table, from a file of any format or from memory, into the transitions of a log.

use std::mem;

use arrow_array::Array as _;
use arrow_schema::DataType;
use fedsa::error::{Error, Result, quoted};
use fedsa_problems::logs::log_form::RowPlace;

use super::first_pass::{FirstPass, Rows};
use super::layout::{ACTION, FLAGS, Layout, WHOLE, action_number, flag};
use super::ratios::{BEHAVIOUR, OF_TAKEN, RATIO, RatioColumns, contradicts, quotient, ratio, taken_probability};
use crate::batch::{As, Batch, Batches, RowPlaces};
use crate::cells::{self, CellKind};
use crate::field::{self, whole_number};

const FINITE: &str = "a finite number";

/// The accepted fields of the columns of agents and environments, in words.
const KEYS: [&str; 2] = ["the name of an agent", "the name of an environment"];

/// The columns of a log. `wanted` lists the columns of the table to read; `layout` has positions in this list.
pub(super) struct LogColumns {
    pub wanted: Vec<(usize, As)>,
    pub layout: Layout,
    names: Vec<String>,
}

impl LogColumns {
    /// The columns of a log in a table with these names. `layout` has positions in the table.
    pub fn new(names: &[String], layout: Layout) -> Self {
        let mut wanted: Vec<(usize, As)> = Vec::new();
        let mut place = |column: &mut usize, of: As| {
            wanted.push((*column, of));
            *column = wanted.len() - 1;
        };
        let mut layout = layout;
        let Layout { states, next, reward, done, truncated, episode, ratio, actions, keys, .. } = &mut layout;
        states.iter_mut().chain(next).chain([reward, done]).chain(truncated).for_each(|column| place(column, As::Numbers));
        episode.iter_mut().for_each(|column| place(column, As::Whole));
        match ratio {
            Some(RatioColumns::Ratio(column)) => place(column, As::Numbers),
            Some(RatioColumns::Probabilities { target, behaviour }) => [target, behaviour].into_iter().for_each(|c| place(c, As::Numbers)),
            None => (),
        }
        if let Some(actions) = actions {
            let all = [&mut actions.taken].into_iter().chain(&mut actions.here).chain(&mut actions.next).chain(&mut actions.behaviour);
            all.for_each(|column| place(column, As::Numbers));
        }
        keys.iter_mut().flatten().for_each(|column| place(column, As::Texts));
        let names = wanted.iter().map(|(column, _)| names[*column].clone()).collect();
        Self { wanted, layout, names }
    }

    /// Rejects columns with types that a log cannot use. `of` gives the type of a column of the table.
    ///
    /// # Errors
    /// When there is such a column.
    pub fn check_types<'a>(&self, of: impl Fn(usize) -> &'a DataType) -> Result<()> {
        for ((column, needed), name) in self.wanted.iter().zip(&self.names) {
            let found = of(*column);
            let is_good = match (cells::kind(found), needed) {
                (CellKind::Other, _) => false,
                (CellKind::Texts, needed) => *needed == As::Texts,
                (CellKind::Numbers | CellKind::Whole, _) => true,
            };
            if !is_good {
                let wanted = if *needed == As::Texts { "names: texts or whole numbers" } else { "numbers or flags" };
                return Err(cells::in_column(name, cells::wrong_type(found, wanted)));
            }
        }
        Ok(())
    }

    /// Passes all rows of a table to `hand_on`, until it returns false because the receiver has stopped. `batch` provides rows whose
    /// memory is reused.
    ///
    /// # Errors
    /// When the table cannot be read, or a field is invalid for its column.
    pub fn read(
        &self,
        table: &mut dyn Batches,
        batch: &mut dyn FnMut() -> Rows,
        hand_on: &mut dyn FnMut(Rows) -> bool,
    ) -> Result<FirstPass> {
        let mut told = FirstPass::default();
        let mut scratch = Vec::new();
        while let Some(found) = table.next()? {
            if found.len() == 0 {
                found.unread.iter().for_each(|(_, reason, line)| told.leave_out((*reason).into(), RowPlace::Line(*line), None));
                continue;
            }
            let mut rows = batch();
            let mut fill = Fill { columns: self, batch: &found, bad: Bad::default(), scratch: mem::take(&mut scratch) };
            fill.rows(&mut rows, &mut told)?;
            let Fill { bad, scratch: used, .. } = fill;
            scratch = used;
            if self.layout.skips {
                leave_out(&mut rows, &found, bad, &mut told);
            } else if let Some((_, e)) = bad.first {
                return Err(e);
            }
            if !rows.log.is_empty() && !hand_on(rows) {
                break;
            }
        }
        Ok(told)
    }
}

/// A number in messages.
fn shown(value: f64) -> String {
    const LONGEST: usize = 20;
    Some(value.to_string()).filter(|text| text.len() <= LONGEST).unwrap_or_else(|| format!("{value:e}"))
}

/// The rows of a batch that cannot be read.
#[derive(Default)]
struct Bad {
    /// The first such row with its error, if such rows are rejected.
    first: Option<(usize, Error)>,
    /// For each row of the batch, the reason if it is omitted.
    reasons: Vec<Option<String>>,
    /// Rows with an unknown agent or environment.
    nameless: Vec<usize>,
}

/// The conversion of a batch.
struct Fill<'a> {
    columns: &'a LogColumns,
    batch: &'a Batch,
    bad: Bad,
    scratch: Vec<f64>,
}

impl Fill<'_> {
    /// Records that row `row` of a column is not as `wanted`; `value` is its number.
    fn refuse(&mut self, row: usize, column: usize, value: f64, wanted: &str) {
        let name = &self.columns.names[column];
        if self.columns.layout.skips {
            self.bad.reasons.resize(self.batch.len(), None);
            self.bad.reasons[row].get_or_insert_with(|| format!("column `{}`: not {wanted}", quoted(name)));
        } else if self.bad.first.as_ref().is_none_or(|(first, _)| row < *first) {
            self.bad.first = Some((row, self.error(row, column, value, wanted)));
        }
    }

    fn error(&self, row: usize, column: usize, value: f64, wanted: &str) -> Error {
        let name = quoted(&self.columns.names[column]);
        let array = &self.batch.columns[column];
        match &self.batch.places {
            RowPlaces::Lines(lines) => {
                let odd = self.batch.odd.get(&(row, column)).cloned();
                if let Some(e) = odd.as_deref().and_then(|text| field::check_exact(text).err()) {
                    return e.prefixed(format!("line {}, column `{name}`", lines[row]));
                }
                let found = odd.or_else(|| cells::name(array, row)).unwrap_or_else(|| shown(value));
                let what = format!("line {}, column `{name}`: {} is not {wanted}", lines[row], field::in_words(&found));
                Error::data("", what, format!("{wanted} on every line"))
            }
            RowPlaces::Rows(first) => {
                let in_column = |e: Error| e.prefixed(format!("column `{name}`"));
                let text = cells::name(array, row);
                match () {
                    () if array.is_null(row) => in_column(cells::null_row(first + row)),
                    () if value.is_nan() && text.is_some() => in_column(cells::inexact_row(first + row, &text.unwrap_or_default())),
                    () => in_column(Error::data("", format!("row {} is {}", first + row, text.unwrap_or(value.to_string())), wanted)),
                }
            }
        }
    }

    /// Writes the numbers of a column to `out`, unchecked.
    fn numbers(&self, column: usize, out: &mut [f64]) -> Result<()> {
        let read = cells::numbers(&self.batch.columns[column], out);
        read.map(drop).map_err(|e| e.prefixed(format!("column `{}`", quoted(&self.columns.names[column]))))
    }

    /// Rejects rows of a column without finite numbers. Unless bad rows are omitted, NaN and infinities of a table with types are
    /// accepted here: the check of the whole log rejects them.
    fn check(&mut self, column: usize, numbers: &[f64]) {
        for (row, number) in numbers.iter().enumerate().filter(|(_, number)| !number.is_finite()) {
            if self.columns.layout.skips || self.batch.is_no_number(row, column) {
                self.refuse(row, column, *number, FINITE);
            }
        }
    }

    /// Writes columns to `out` in row-major order.
    fn side_by_side(&mut self, columns: &[usize], is_checked: bool, out: &mut Vec<f64>) -> Result<()> {
        let (n, k) = (self.batch.len(), columns.len());
        out.resize(n * k, 0.0);
        let mut scratch = mem::take(&mut self.scratch);
        scratch.resize(n, 0.0);
        for (j, column) in columns.iter().enumerate() {
            self.numbers(*column, &mut scratch)?;
            if is_checked {
                self.check(*column, &scratch);
            }
            out[j..].iter_mut().step_by(k).zip(&scratch).for_each(|(out, value)| *out = *value);
        }
        self.scratch = scratch;
        Ok(())
    }

    /// Converts each number of a column by `of`, and rejects those for which `of` gives `None`.
    fn convert<T: Default>(&mut self, column: usize, out: &mut Vec<T>, of: impl Fn(f64) -> Option<T>, wanted: &str) -> Result<()> {
        let mut scratch = mem::take(&mut self.scratch);
        scratch.resize(self.batch.len(), 0.0);
        self.numbers(column, &mut scratch)?;
        out.clear();
        for (row, number) in scratch.iter().enumerate() {
            let converted = of(*number);
            if converted.is_none() {
                self.refuse(row, column, *number, wanted);
            }
            out.push(converted.unwrap_or_default());
        }
        self.scratch = scratch;
        Ok(())
    }

    /// Reads a column of whole numbers with all their digits.
    fn whole(&mut self, column: usize, out: &mut Vec<i64>) -> Result<()> {
        let batch = self.batch;
        let array = &batch.columns[column];
        if cells::kind(array.data_type()) != CellKind::Whole {
            return self.convert(column, out, whole_number, WHOLE);
        }
        out.clear();
        cells::each_whole(array, |value| {
            let number = value.and_then(|value| i64::try_from(value).ok());
            if number.is_none() {
                self.refuse(out.len(), column, value.map_or(f64::NAN, |value| value as f64), WHOLE);
            }
            out.push(number.unwrap_or_default());
            Ok(())
        })
    }

    /// Fills in missing next states of terminal rows, which do not need one and often have none. Rejects other rows without a next
    /// state.
    fn complete(&mut self, states: &[f64], done: &[bool], next: &mut [f64]) {
        let columns = self.columns;
        let (k, layout) = (columns.layout.next.len(), &columns.layout);
        for (at, next) in next.iter_mut().enumerate().filter(|(_, next)| !next.is_finite()) {
            let (row, column) = (at / k, layout.next[at % k]);
            if done[row] && (self.batch.is_missing(row, column) || !self.batch.is_no_number(row, column)) {
                *next = states[at];
            } else if layout.skips || next.is_nan() {
                self.refuse(row, column, *next, FINITE);
            }
        }
    }

    /// Reads the ratios, or divides the probabilities. The probability under the evaluated policy must agree with the probabilities of
    /// all actions.
    fn ratios(&mut self, rows: &mut Rows) -> Result<()> {
        let (Some(columns), Some(out)) = (self.columns.layout.ratio, &mut rows.log.ratio) else { return Ok(()) };
        out.resize(self.batch.len(), 0.0);
        let (target, behaviour) = match columns {
            RatioColumns::Ratio(column) => {
                self.numbers(column, out)?;
                let has_types = matches!(self.batch.places, RowPlaces::Rows(_));
                for (row, rho) in out.iter().enumerate().filter(|(_, rho)| ratio(**rho).is_none()) {
                    // The same rule as in `check`.
                    if self.columns.layout.skips || !has_types || self.batch.is_no_number(row, column) {
                        self.refuse(row, column, *rho, RATIO);
                    }
                }
                return Ok(());
            }
            RatioColumns::Probabilities { target, behaviour } => (target, behaviour),
        };
        self.numbers(target, out)?;
        if let Some(actions) = &rows.log.actions {
            for (row, (p, law)) in out.iter().zip(actions.here.chunks_exact(actions.count)).enumerate() {
                if contradicts(*p, law, actions.taken[row]) {
                    self.refuse(row, target, *p, OF_TAKEN);
                }
            }
        }
        let mut acted = mem::take(&mut self.scratch);
        acted.resize(out.len(), 0.0);
        self.numbers(behaviour, &mut acted)?;
        for (row, (rho, acted)) in out.iter_mut().zip(&acted).enumerate() {
            match quotient(*rho, *acted) {
                Ok(quotient) => *rho = quotient,
                Err((0, wanted)) => self.refuse(row, target, *rho, wanted),
                Err((_, wanted)) => self.refuse(row, behaviour, *acted, wanted),
            }
        }
        self.scratch = acted;
        Ok(())
    }

    /// Reads the agents (`i` = 0) or the environments (`i` = 1) of the rows.
    fn keys(&mut self, i: usize, rows: &mut Rows, told: &mut FirstPass) -> Result<()> {
        rows.keys[i].clear();
        let Some(column) = self.columns.layout.keys[i] else { return Ok(()) };
        let (batch, names) = (self.batch, &mut told.names[i]);
        let array = &batch.columns[column];
        let mut nameless = Vec::new();
        let mut add = |name: Option<&str>| {
            let name = name.map(str::trim).filter(|name| !name.is_empty());
            if name.is_none() {
                nameless.push(rows.keys[i].len());
            }
            rows.keys[i].push(name.map_or(0, |name| names.number(name)));
            Ok(())
        };
        let in_column = |e: Error| cells::in_column(&self.columns.names[column], e);
        let first = batch.first_row();
        match cells::kind(array.data_type()) {
            CellKind::Texts => cells::each_text(array, first, |_, text| add(text)),
            CellKind::Whole => cells::each_whole(array, |number| add(number.map(|number| number.to_string()).as_deref())),
            _ => {
                let mut numbers = vec![0.0; batch.len()];
                self.numbers(column, &mut numbers)?;
                numbers.iter().try_for_each(|x| add(whole_number(*x).map(|whole| whole.to_string()).as_deref()))
            }
        }
        .map_err(in_column)?;
        for row in nameless {
            self.refuse(row, column, f64::NAN, KEYS[i]);
            self.bad.nameless.push(row);
        }
        Ok(())
    }

    /// Replaces the contents of `rows` by the batch.
    fn rows(&mut self, rows: &mut Rows, told: &mut FirstPass) -> Result<()> {
        let columns = self.columns;
        let layout = &columns.layout;
        let log = &mut rows.log;
        log.breaks = None;
        self.side_by_side(&layout.states, true, &mut log.states)?;
        self.side_by_side(&[layout.reward], true, &mut log.rewards)?;
        self.convert(layout.done, &mut log.done, flag, FLAGS)?;
        self.side_by_side(&layout.next, false, &mut log.next)?;
        self.complete(&log.states, &log.done, &mut log.next);
        if let (Some(column), Some(out)) = (layout.truncated, &mut log.truncated) {
            self.convert(column, out, flag, FLAGS)?;
        }
        if let (Some(column), Some(out)) = (layout.episode, &mut log.episode) {
            self.whole(column, out)?;
        }
        if let (Some(columns), Some(out)) = (&layout.actions, &mut log.actions) {
            self.convert(columns.taken, &mut out.taken, action_number, ACTION)?;
            self.side_by_side(&columns.here, true, &mut out.here)?;
            self.side_by_side(&columns.next, true, &mut out.next)?;
            if let Some(behaviour) = columns.behaviour {
                self.convert(behaviour, &mut out.behaviour, taken_probability, BEHAVIOUR)?;
            }
        }
        self.ratios(rows)?;
        (0..2).try_for_each(|i| self.keys(i, rows, told))
    }
}

/// Removes rows that cannot be read, and marks breaks before the rows after them. Counts the removed rows, and the lines that are not
/// rows.
fn leave_out(rows: &mut Rows, batch: &Batch, bad: Bad, told: &mut FirstPass) {
    let n = batch.len();
    let Bad { mut reasons, nameless, .. } = bad;
    reasons.resize(n, None);
    let mut breaks = Vec::with_capacity(n);
    let mut unread = batch.unread.iter().peekable();
    for i in 0..=n {
        while let Some((_, reason, line)) = unread.next_if(|(before, ..)| *before <= i) {
            told.leave_out((*reason).into(), RowPlace::Line(*line), None);
        }
        let Some(reason) = reasons.get_mut(i) else { break };
        let place = match &batch.places {
            RowPlaces::Rows(first) => RowPlace::Row((first + i) as u64),
            RowPlaces::Lines(lines) => RowPlace::Line(lines[i]),
        };
        let key = rows.key(i);
        match reason {
            Some(reason) => told.leave_out(mem::take(reason), place, (!nameless.contains(&i)).then_some(key)),
            None => breaks.push(told.break_before(key)),
        }
    }
    if breaks.len() < n {
        rows.log = rows.log.filtered(|i| reasons[i].is_none());
        for keys in rows.keys.iter_mut().filter(|keys| !keys.is_empty()) {
            *keys = keys.iter().zip(&reasons).filter(|(_, bad)| bad.is_none()).map(|(key, _)| *key).collect();
        }
    }
    rows.log.breaks = Some(breaks);
}

/// Calls `see` with the whole numbers of the only column of a table. Skips rows without one.
///
/// # Errors
/// When the table cannot be read.
pub(super) fn each_whole(table: &mut dyn Batches, see: &mut dyn FnMut(i64)) -> Result<()> {
    while let Some(batch) = table.next()? {
        let array = &batch.columns[0];
        if cells::kind(array.data_type()) == CellKind::Whole {
            cells::each_whole(array, |value| {
                value.and_then(|value| i64::try_from(value).ok()).into_iter().for_each(&mut *see);
                Ok(())
            })?;
            continue;
        }
        let mut numbers = vec![0.0; array.len()];
        cells::numbers(array, &mut numbers)?;
        numbers.iter().filter_map(|value| whole_number(*value)).for_each(&mut *see);
    }
    Ok(())
}
