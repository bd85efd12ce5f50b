//! Logs in Parquet: columns that are read side by side.

use std::sync::mpsc;

use fedsa::error::{Error, Result, quoted};
use fedsa::problem::log::Log;
use fedsa::problem::source::Inputs;

use super::layout::{FLAGS, Layout, WHOLE, flag, row_bytes, whole_number};
use super::ratios::{RatioColumns, quotient};
use crate::parquet::{Columns, Numbers, contained_while};
use crate::store::Store;

/// A column of a Parquet file.
struct LogColumn<'a> {
    numbers: Numbers<'a>,
    name: String,
}

impl LogColumn<'_> {
    fn error(&self, e: Error) -> Error {
        e.about("").prefixed(format!("column `{}`", quoted(&self.name)))
    }

    fn fill(&mut self, out: &mut [f64]) -> Result<()> {
        self.numbers.fill(out).map_err(|e| self.error(e))
    }

    /// Adds the next `n` rows, the first of which is row `first`, to `out`.
    fn convert<T>(
        &mut self,
        (first, n): (usize, usize),
        scratch: &mut Vec<f64>,
        out: &mut Vec<T>,
        convert: impl Fn(f64) -> Option<T>,
        wanted: &str,
    ) -> Result<()> {
        scratch.resize(n, 0.0);
        self.fill(scratch)?;
        out.clear();
        for (i, value) in scratch.iter().enumerate() {
            let not = || self.error(Error::data("", format!("row {} is {value}", first + i), wanted));
            out.push(convert(*value).ok_or_else(not)?);
        }
        Ok(())
    }
}

/// The columns of a log in a Parquet file, read side by side.
pub(super) struct LogColumns<'a> {
    pub(super) layout: Layout,
    states: Vec<LogColumn<'a>>,
    next: Vec<LogColumn<'a>>,
    reward: LogColumn<'a>,
    done: LogColumn<'a>,
    episode: Option<LogColumn<'a>>,
    ratio: Option<LogColumn<'a>>,
    /// The probability under the policy that acted, where `ratio` is the one of the evaluated policy.
    behaviour: Option<LogColumn<'a>>,
    scratch: Vec<f64>,
}

impl<'a> LogColumns<'a> {
    pub(super) fn new(file: &'a Columns, inputs: Inputs) -> Result<Self> {
        let names = file.names();
        let layout = Layout::new(&names, inputs)?;
        file.plausible(row_bytes(layout.columns.len()))?;
        file.side_by_side(2 * layout.columns.len() + 5)?;
        let column = |i: &usize| -> Result<LogColumn<'a>> {
            let name = names[*i].clone();
            let in_column = |e: Error| e.about("").prefixed(format!("column `{}`", quoted(&name)));
            Ok(LogColumn { numbers: Numbers::new(file, *i).map_err(in_column)?, name })
        };
        let (ratio, behaviour) = match layout.ratio {
            None => (None, None),
            Some(RatioColumns::Ratio(i)) => (Some(i), None),
            Some(RatioColumns::Probabilities { target, behaviour }) => (Some(target), Some(behaviour)),
        };
        Ok(Self {
            states: layout.states.iter().map(column).collect::<Result<_>>()?,
            next: layout.next.iter().map(column).collect::<Result<_>>()?,
            reward: column(&layout.reward)?,
            done: column(&layout.done)?,
            episode: layout.episode.as_ref().map(column).transpose()?,
            ratio: ratio.as_ref().map(column).transpose()?,
            behaviour: behaviour.as_ref().map(column).transpose()?,
            layout,
            scratch: Vec::new(),
        })
    }

    /// Reads the next `n` rows, the first of which is row `first`, in place of those of `log`.
    fn fill(&mut self, log: &mut Log, first: usize, n: usize) -> Result<()> {
        let (k, scratch) = (self.layout.columns.len(), &mut self.scratch);
        scratch.resize(n, 0.0);
        for (columns, out) in [(&mut self.states, &mut log.states), (&mut self.next, &mut log.next)] {
            out.resize(n * k, 0.0);
            for (j, column) in columns.iter_mut().enumerate() {
                column.fill(scratch)?;
                out[j..].iter_mut().step_by(k).zip(&*scratch).for_each(|(out, value)| *out = *value);
            }
        }
        log.rewards.resize(n, 0.0);
        self.reward.fill(&mut log.rewards)?;
        self.done.convert((first, n), scratch, &mut log.done, flag, FLAGS)?;
        if let (Some(column), Some(out)) = (&mut self.episode, &mut log.episode) {
            column.convert((first, n), scratch, out, whole_number, WHOLE)?;
        }
        if let (Some(column), Some(out)) = (&mut self.ratio, &mut log.ratio) {
            out.resize(n, 0.0);
            column.fill(out)?;
            if let Some(behaviour) = &mut self.behaviour {
                behaviour.fill(scratch)?;
                for (i, (rho, acted)) in out.iter_mut().zip(&*scratch).enumerate() {
                    *rho = quotient(*rho, *acted).map_err(|(place, wanted)| {
                        let (of, value) = if place == 0 { (&*column, *rho) } else { (&*behaviour, *acted) };
                        of.error(Error::data("", format!("row {} is {value}", first + i), wanted))
                    })?;
                }
            }
        }
        Ok(())
    }
}

/// Reads a log in Parquet. The file is unpacked on a thread of its own while the caller's thread sees the batch before.
pub(super) fn read_parquet(file: Store, inputs: Inputs, name: &str, most: usize, see: &mut dyn FnMut(&Log) -> Result<()>) -> Result<()> {
    let (send, sent) = mpsc::sync_channel::<Log>(1);
    // Batches that were seen go back to be filled again.
    let (give_back, returned) = mpsc::channel::<Log>();
    let read = move |file: &Columns| {
        let mut columns = LogColumns::new(file, inputs)?;
        let most = columns.layout.batch(most);
        for first in (0..file.rows()).step_by(most) {
            let mut log = returned.try_recv().unwrap_or_else(|_| columns.layout.empty(name));
            columns.fill(&mut log, first, most.min(file.rows() - first))?;
            if send.send(log).is_err() {
                // `see` has returned an error.
                break;
            }
        }
        Ok(())
    };
    let (read, seen) = contained_while(file, read, move || {
        for log in sent {
            see(&log)?;
            // Nobody takes it back after the last batch.
            let _ = give_back.send(log);
        }
        Ok(())
    });
    seen.and(read)
}
