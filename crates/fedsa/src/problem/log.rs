//! One agent's logged transitions `(s, r, s', done)`.

use crate::error::{BadInput, Result, quoted};

/// One agent's transitions, in the order in which they happened.
///
/// `n` transitions of `k` state columns; rows count from 0 in messages.
#[derive(Debug, Clone, PartialEq)]
pub struct Log {
    /// Who logged it: the agent's name in messages and tables.
    pub name: String,
    /// The names of the state columns, k.
    pub columns: Vec<String>,
    /// The states, n x k in row-major order.
    pub states: Vec<f64>,
    /// The rewards, n.
    pub rewards: Vec<f64>,
    /// The states that followed, n x k in row-major order. Where `done`, any
    /// finite numbers: nothing follows, the features of the next state are zero.
    pub next: Vec<f64>,
    /// Whether the episode terminated with this transition (not merely was cut short), n.
    pub done: Vec<bool>,
    /// The episode of each transition, n, if it was logged.
    pub episode: Option<Vec<i64>>,
}

impl Log {
    /// The number of transitions n.
    pub fn len(&self) -> usize {
        self.rewards.len()
    }

    /// Whether there is no transition.
    pub fn is_empty(&self) -> bool {
        self.rewards.is_empty()
    }

    /// The state of transition `i`, k numbers.
    pub fn state(&self, i: usize) -> &[f64] {
        let k = self.columns.len();
        &self.states[i * k..(i + 1) * k]
    }

    /// The state that followed transition `i`, k numbers.
    pub fn next_state(&self, i: usize) -> &[f64] {
        let k = self.columns.len();
        &self.next[i * k..(i + 1) * k]
    }

    /// The transitions of the rows that `keep` accepts, in their order.
    #[must_use]
    pub fn filtered(&self, keep: impl Fn(usize) -> bool) -> Self {
        let k = self.columns.len();
        let rows: Vec<usize> = (0..self.len()).filter(|row| keep(*row)).collect();
        let states = |all: &[f64]| rows.iter().flat_map(|row| all[row * k..(row + 1) * k].iter().copied()).collect();
        Self {
            name: self.name.clone(),
            columns: self.columns.clone(),
            states: states(&self.states),
            rewards: rows.iter().map(|row| self.rewards[*row]).collect(),
            next: states(&self.next),
            done: rows.iter().map(|row| self.done[*row]).collect(),
            episode: self.episode.as_ref().map(|all| rows.iter().map(|row| all[*row]).collect()),
        }
    }

    /// Checks what everything that takes a log relies on.
    ///
    /// # Errors
    /// When there is no transition or no state column, two state columns share
    /// a name, the lengths disagree, or a number is not finite.
    pub fn check(&self) -> Result<()> {
        let (n, k) = (self.len(), self.columns.len());
        if n == 0 {
            return Err(BadInput::new(&self.name, "a log without transitions", "an agent needs at least one transition"));
        }
        if k == 0 {
            return Err(BadInput::new(&self.name, "a log without state columns", "a state needs at least one column"));
        }
        if let Some(twice) = (1..k).find(|&j| self.columns[..j].contains(&self.columns[j])) {
            let what = format!("two state columns are called `{}`", quoted(&self.columns[twice]));
            return Err(BadInput::new(&self.name, what, "the names of the columns must differ"));
        }
        let lengths = [
            ("states", self.states.len(), n.checked_mul(k)),
            ("next", self.next.len(), n.checked_mul(k)),
            ("done", self.done.len(), Some(n)),
            ("episode", self.episode.as_ref().map_or(n, Vec::len), Some(n)),
        ];
        for (field, found, wanted) in lengths {
            if Some(found) != wanted {
                let what = format!("`{field}` has {found} entries for {n} rewards and {k} state columns");
                return Err(BadInput::new(&self.name, what, "states and next must be n x k, all else n long"));
            }
        }
        let bad = |values: &[f64]| values.iter().position(|v| !v.is_finite());
        let place = bad(&self.states)
            .map(|i| (self.states[i], format!("row {}, `{}`", i / k, quoted(&self.columns[i % k]))))
            .or_else(|| {
                bad(&self.next).map(|i| (self.next[i], format!("row {}, the state after `{}`", i / k, quoted(&self.columns[i % k]))))
            })
            .or_else(|| bad(&self.rewards).map(|i| (self.rewards[i], format!("row {i}, `reward`"))));
        if let Some((value, place)) = place {
            let what = format!("{place}: {value} is not a finite number");
            return Err(BadInput::new(&self.name, what, "all states and rewards must be finite; leave such transitions out"));
        }
        Ok(())
    }
}

/// Checks every agent's log and that all have the same state columns.
///
/// # Errors
/// As [`Log::check`]; when there is no agent; when two agents' columns differ,
/// naming both.
pub fn check_all(logs: &[Log]) -> Result<()> {
    let Some(first) = logs.first() else {
        return Err(BadInput::new("", "no logs", "evaluation needs the transitions of at least one agent"));
    };
    for log in logs {
        log.check()?;
        if log.columns != first.columns {
            let what = format!(
                "its state columns are {}, but those of {} are {}",
                quoted(log.columns.join(", ")),
                first.name,
                quoted(first.columns.join(", "))
            );
            return Err(BadInput::new(&log.name, what, "all agents must log the same state columns"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log() -> Log {
        Log {
            name: "agent_0".into(),
            columns: vec!["s_x".into(), "s_v".into()],
            states: vec![0.0, 1.0, 2.0, 3.0],
            rewards: vec![-1.0, -1.0],
            next: vec![2.0, 3.0, 4.0, 5.0],
            done: vec![false, true],
            episode: Some(vec![0, 0]),
        }
    }

    fn refused(change: impl Fn(&mut Log)) -> String {
        let mut log = log();
        change(&mut log);
        log.check().unwrap_err().to_string()
    }

    #[test]
    fn rows_are_those_of_the_log() {
        let log = log();
        log.check().unwrap();
        assert_eq!((log.len(), log.state(1), log.next_state(1)), (2, &[2.0, 3.0][..], &[4.0, 5.0][..]));
    }

    #[test]
    fn bad_logs_are_refused_with_the_place() {
        assert_eq!(refused(|l| l.states[3] = f64::NAN), "agent_0: row 1, `s_v`: NaN is not a finite number");
        assert_eq!(refused(|l| l.next[0] = f64::INFINITY), "agent_0: row 0, the state after `s_x`: inf is not a finite number");
        assert_eq!(refused(|l| l.rewards[1] = f64::NAN), "agent_0: row 1, `reward`: NaN is not a finite number");
        assert_eq!(refused(|l| l.done.truncate(1)), "agent_0: `done` has 1 entries for 2 rewards and 2 state columns");
        assert_eq!(refused(|l| l.columns[1] = "s_x".into()), "agent_0: two state columns are called `s_x`");
        assert_eq!(refused(|l| l.rewards.clear()), "agent_0: a log without transitions");
        assert_eq!(refused(|l| l.columns.clear()), "agent_0: a log without state columns");
    }

    #[test]
    fn agents_must_agree_on_the_columns() {
        let mut other = log();
        other.name = "agent_1".into();
        check_all(&[log(), other.clone()]).unwrap();
        other.columns[1] = "s_w".into();
        let e = check_all(&[log(), other]).unwrap_err().to_string();
        assert_eq!(e, "agent_1: its state columns are s_x, s_w, but those of agent_0 are s_x, s_v");
        assert!(check_all(&[]).is_err());
    }
}
