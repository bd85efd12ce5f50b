//! Held-out rows: a random share of each agent's rows.
//!
//! If agents are files, the draw is keyed by the seed and the file's numbers, not by the agent's number: an agent that keeps its file
//! draws the same rows alone, whatever its number in a federation is. Otherwise it is keyed by the seed and the agent's number.

use fedsa::error::{Error, Result, quoted};
use fedsa::random::{Purpose, stream};

use super::columns::numbers;
use super::partition::{self, Partition};
use super::{Preparation, RowsOfAgents};
use crate::rows::dataset::{Dataset, row_in};

/// A number that mixes the places and values of all numbers other than 0, row by row (FNV-1a on words).
fn key_of<'a>(sets: impl IntoIterator<Item = &'a Dataset>) -> u64 {
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let mut key = 0xcbf2_9ce4_8422_2325_u64;
    let mut see = |word: u64| key = (key ^ word).wrapping_mul(PRIME).rotate_left(29);
    for set in sets {
        for j in 0..set.rows.len() {
            see(u64::MAX);
            set.rows.row(j).filter(|(_, x)| *x != 0.0).for_each(|(i, x)| {
                see(i as u64);
                see(x.to_bits());
            });
        }
    }
    key
}

impl Preparation {
    /// The rows of one agent of a federation, from its own files.
    #[must_use]
    pub fn of_one(self) -> Self {
        Self { is_one: true, ..self }
    }

    /// The keys of the draws of agents that are files; empty if draws are keyed by the agents' numbers.
    pub(super) fn holdout_keys(&self, sets: &[Dataset]) -> Vec<u64> {
        match (self.holdout > 0.0, self.is_one, self.partition) {
            (true, true, _) => vec![key_of(sets)],
            (true, false, Partition::Files) if !self.reshuffle => sets.iter().map(|set| key_of([set])).collect(),
            _ => Vec::new(),
        }
    }

    /// Which of an agent's n rows are held out: `holdout n` of them, rounded to a whole number from 1 to n - 1.
    fn held_out(&self, n: usize, agent: usize, keys: &[u64]) -> Vec<bool> {
        let out = ((self.holdout * n as f64).round() as usize).clamp(1, n.saturating_sub(1).max(1));
        let mut order: Vec<usize> = (0..n).collect();
        let (key, agent) = keys.get(agent).map_or((0, agent), |key| (*key, 0));
        partition::shuffle(&mut order, &mut stream(self.seed, Purpose::Holdout, key, agent));
        let mut is_out = vec![false; n];
        order.iter().take(out).for_each(|i| is_out[*i] = true);
        is_out
    }

    /// Each agent's rows for the fit, and its held-out rows.
    pub(super) fn hold_out(&self, agents: RowsOfAgents, names: &[String], keys: &[u64]) -> Result<(RowsOfAgents, RowsOfAgents)> {
        if self.holdout == 0.0 {
            let none = vec![Vec::new(); agents.len()];
            return Ok((agents, none));
        }
        let split = |(c, rows): (usize, Vec<usize>)| {
            if rows.len() < 2 {
                return Err(one_row(partition::called(names, c)));
            }
            let is_out = self.held_out(rows.len(), c, keys);
            let pick = |wanted: bool| rows.iter().zip(&is_out).filter(|(_, out)| **out == wanted).map(|(row, _)| *row).collect();
            Ok((pick(false), pick(true)))
        };
        Ok(agents.into_iter().enumerate().map(split).collect::<Result<Vec<_>>>()?.into_iter().unzip())
    }

    /// The rows for the fit of one agent, whose rows are those of `sets`, in their order.
    ///
    /// # Errors
    /// When there are too few.
    pub fn fitted_rows(&self, sets: &[Dataset]) -> Result<Vec<usize>> {
        let n: usize = sets.iter().map(|set| set.rows.len()).sum();
        if self.holdout == 0.0 {
            return Ok((0..n).collect());
        }
        if n < 2 {
            return Err(one_row("this agent"));
        }
        let is_out = self.held_out(n, 0, &[key_of(sets)]);
        Ok((0..n).filter(|row| !is_out[*row]).collect())
    }

    /// The weights of these rows of one agent; empty if rows have no weights.
    ///
    /// # Errors
    /// When a weight is missing or negative, or all are 0.
    pub fn weights_of(&self, sets: &[Dataset], fitted: &[usize]) -> Result<Vec<f64>> {
        let Some(name) = &self.special.row_weights else { return Ok(Vec::new()) };
        let all = sets.iter().map(|set| numbers("row_weights", set, name)).collect::<Result<Vec<_>>>()?.concat();
        if let Some(row) = all.iter().position(|x| *x < 0.0) {
            let what = format!("{} has the weight {}", row_in(sets, row), all[row]);
            return Err(Error::data("row_weights", what, "numbers of at least 0"));
        }
        let weights: Vec<f64> = fitted.iter().map(|row| all[*row]).collect();
        if weights.iter().all(|x| *x == 0.0) {
            let what = format!("all rows of the column `{}` have the weight 0", quoted(name));
            return Err(Error::data("row_weights", what, "agents with a row that counts"));
        }
        Ok(weights)
    }
}

/// The error about an agent with one row.
fn one_row(agent: impl std::fmt::Display) -> Error {
    let what = format!("{agent} has one row, of which none can be held out");
    Error::new("holdout", what, "agents with at least two rows, or no `holdout`")
}
