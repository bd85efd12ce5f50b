//! Information from a log's reader besides transitions: the agents and environments of rows, and omitted rows.

use std::collections::HashMap;

use fedsa_problems::logs::log::{Break, Log};
use fedsa_problems::logs::log_form::RowPlace;

/// Transitions with the agent and the environment of each, by their positions in [`FirstPass::names`]; empty if the log has no such
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

/// Information from a pass over a file.
#[derive(Default)]
pub(super) struct FirstPass {
    /// The agents and the environments.
    pub names: [Names; 2],
    /// Omitted rows: the reason, the number, and the position of the first.
    pub left_out: Vec<(String, usize, RowPlace)>,
    /// The number of omitted rows whose agent and environment are unknown.
    gaps: u64,
    /// The number of omitted rows of each agent and environment.
    gaps_of: HashMap<[u32; 2], u64>,
    /// The number of rows omitted before the last row of each.
    last: HashMap<[u32; 2], u64>,
}

impl FirstPass {
    /// Records an omitted row.
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

    /// The break before the next row of an agent and environment.
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
