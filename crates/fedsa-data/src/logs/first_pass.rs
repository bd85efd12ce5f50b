//! What a reader of a log tells besides its transitions: the agents and environments of rows, and rows that were left out.

use std::collections::HashMap;

use fedsa_problems::logs::log::{Break, Log};
use fedsa_problems::logs::log_form::RowPlace;

/// Transitions with the agent and the environment of each, by their places in [`FirstPass::names`]; without numbers where the log has no such
/// column.
pub(super) struct Rows {
    pub log: Log,
    pub keys: [Vec<u32>; 2],
}

impl Rows {
    pub fn new(log: Log) -> Self {
        Self { log, keys: [Vec::new(), Vec::new()] }
    }

    /// The agent and the environment of a row.
    pub fn key(&self, row: usize) -> [u32; 2] {
        [0, 1].map(|i| self.keys[i].get(row).copied().unwrap_or(0))
    }
}

/// Texts, each with a number.
#[derive(Default)]
pub(super) struct Names {
    pub all: Vec<String>,
    numbers: HashMap<String, u32>,
}

impl Names {
    pub fn number(&mut self, name: &str) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = self.all.len() as u32;
        self.all.push(name.to_string());
        self.numbers.insert(name.to_string(), number);
        number
    }
}

/// What a pass over a file tells.
#[derive(Default)]
pub(super) struct FirstPass {
    /// The agents and the environments.
    pub names: [Names; 2],
    /// Rows that were left out: the reason, how many, and where the first is.
    pub left_out: Vec<(String, usize, RowPlace)>,
    /// The rows that were left out of which neither the agent nor the environment is known.
    gaps: u64,
    /// Those of each agent and environment.
    gaps_of: HashMap<[u32; 2], u64>,
    /// How many rows had been left out before the last row of each.
    last: HashMap<[u32; 2], u64>,
}

impl FirstPass {
    /// A row was left out.
    pub fn leave_out(&mut self, reason: String, place: RowPlace, key: Option<[u32; 2]>) {
        match self.left_out.iter_mut().find(|(other, ..)| *other == reason) {
            Some((_, rows, _)) => *rows += 1,
            None => self.left_out.push((reason, 1, place)),
        }
        match key {
            None => self.gaps += 1,
            Some(key) => *self.gaps_of.entry(key).or_default() += 1,
        }
    }

    /// What is before the next row of an agent and environment.
    pub fn break_before(&mut self, key: [u32; 2]) -> Break {
        let gaps = self.gaps + self.gaps_of.get(&key).copied().unwrap_or(0);
        if self.last.insert(key, gaps).unwrap_or(0) == gaps { Break::None } else { Break::LeftOut }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_were_left_out_break_what_they_are_part_of() {
        let mut told = FirstPass::default();
        let [a, b] = [[0, 0], [0, 1]];
        assert_eq!([told.break_before(a), told.break_before(b)], [Break::None; 2]);
        told.leave_out("x".into(), RowPlace::Line(3), Some(a));
        assert_eq!([told.break_before(b), told.break_before(a), told.break_before(a)], [Break::None, Break::LeftOut, Break::None]);
        told.leave_out("x".into(), RowPlace::Line(6), None);
        told.leave_out("y".into(), RowPlace::Line(7), None);
        assert_eq!([told.break_before(a), told.break_before(b), told.break_before([5, 5])], [Break::LeftOut; 3]);
        assert_eq!(told.left_out, [("x".to_string(), 2, RowPlace::Line(3)), ("y".to_string(), 1, RowPlace::Line(7))]);
    }
}
