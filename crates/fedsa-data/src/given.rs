//! Data that a caller has in memory, in the place of files, and what identifies them.

use std::sync::{Arc, Mutex, PoisonError};

use fedsa::problem::dataset::{Columns, Dataset, Labels, Rows};
use fedsa::problem::log::Log;
use sha2::{Digest as _, Sha256};

use crate::memory_log::MemoryLog;

/// Data in memory.
#[derive(Debug, Default)]
pub(crate) struct Given {
    /// Logs, one an agent.
    pub logs: Vec<Arc<MemoryLog>>,
    /// Data sets, which are handed out once.
    sets: Mutex<Vec<Dataset>>,
    has_sets: bool,
    identity: Option<String>,
}

impl Given {
    pub fn of_logs(logs: Vec<MemoryLog>) -> Self {
        let mut identity = Identity::new("logs", logs.len());
        logs.iter().for_each(|one| identity.log(&one.log));
        Self { identity: Some(identity.finish()), logs: logs.into_iter().map(Arc::new).collect(), ..Self::default() }
    }

    pub fn of_sets(sets: Vec<Dataset>) -> Self {
        let mut identity = Identity::new("data sets", sets.len());
        sets.iter().for_each(|set| identity.set(set));
        Self { identity: Some(identity.finish()), sets: Mutex::new(sets), has_sets: true, ..Self::default() }
    }

    /// The data sets, if there were any.
    pub fn take_sets(&self) -> Option<Vec<Dataset>> {
        self.has_sets.then(|| std::mem::take(&mut *self.sets.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// A digest of all numbers and names that results depend on; none without data in memory.
    pub fn identity(&self) -> Option<&str> {
        self.identity.as_deref()
    }
}

/// The digest of a serialisation in which lengths precede what has one, so that different data have different bytes.
struct Identity(Sha256);

impl Identity {
    fn new(what: &str, n: usize) -> Self {
        let mut new = Self(Sha256::new());
        new.text(what);
        new.count(n);
        new
    }

    fn finish(self) -> String {
        self.0.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn count(&mut self, n: usize) {
        self.0.update((n as u64).to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.count(text.len());
        self.0.update(text);
    }

    fn texts(&mut self, all: &[String]) {
        self.count(all.len());
        all.iter().for_each(|text| self.text(text));
    }

    fn numbers<T: Copy, const N: usize>(&mut self, numbers: &[T], bytes: impl Fn(T) -> [u8; N]) {
        self.count(numbers.len());
        numbers.iter().for_each(|x| self.0.update(bytes(*x)));
    }

    fn log(&mut self, log: &Log) {
        let Log { name: _, columns, states, rewards, next, done, truncated, breaks, episode, ratio, actions } = log;
        self.texts(columns);
        [states, rewards, next].into_iter().for_each(|numbers| self.numbers(numbers, f64::to_le_bytes));
        self.numbers(done, |done| [u8::from(done)]);
        self.count(usize::from(episode.is_some()));
        episode.iter().for_each(|episode| self.numbers(episode, i64::to_le_bytes));
        self.count(usize::from(ratio.is_some()));
        ratio.iter().for_each(|ratio| self.numbers(ratio, f64::to_le_bytes));
        // Logs without these keep the digests that they had before logs could have them.
        if let Some(truncated) = truncated {
            self.text("truncated");
            self.numbers(truncated, |truncated| [u8::from(truncated)]);
        }
        if let Some(breaks) = breaks {
            self.text("breaks");
            self.numbers(breaks, |kind| [kind as u8]);
        }
        if let Some(actions) = actions {
            self.text("actions");
            self.count(actions.count);
            self.numbers(&actions.taken, u32::to_le_bytes);
            self.numbers(&actions.here, f64::to_le_bytes);
            self.numbers(&actions.next, f64::to_le_bytes);
        }
    }

    fn set(&mut self, set: &Dataset) {
        let Dataset { name: _, rows, columns, targets, groups, texts, notes: _ } = set;
        self.count(texts.len());
        for text in texts {
            self.text(&text.column);
            self.count(text.names.len());
            text.names.iter().for_each(|name| self.text(name));
        }
        match rows {
            Rows::Dense { d, values } => {
                self.text("dense");
                self.count(*d);
                self.numbers(values, f64::to_le_bytes);
            }
            Rows::Sparse { d, starts, index, value } => {
                self.text("sparse");
                self.count(*d);
                self.numbers(starts, |x| (x as u64).to_le_bytes());
                self.numbers(index, u32::to_le_bytes);
                self.numbers(value, f64::to_le_bytes);
            }
        }
        match columns {
            Columns::Named(names) => {
                self.text("named");
                self.texts(names);
            }
            Columns::Counted { width, left_out } => {
                self.text("counted");
                self.count(*width);
                self.numbers(left_out, |x| (x as u64).to_le_bytes());
            }
        }
        for labels in [targets, groups] {
            match labels {
                None => self.text("none"),
                Some(Labels::Numbers(numbers)) => {
                    self.text("numbers");
                    self.numbers(numbers, f64::to_le_bytes);
                }
                Some(Labels::Names { names, of }) => {
                    self.text("names");
                    self.texts(names);
                    self.numbers(of, u32::to_le_bytes);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use fedsa::problem::log::Break;

    use super::*;

    fn set(d: usize, names: &[&str], targets: Labels) -> Dataset {
        Dataset {
            name: "mine".into(),
            rows: Rows::Dense { d, values: vec![1.0, 2.0, 3.0, 4.0] },
            columns: Columns::Named(names.iter().map(ToString::to_string).collect()),
            targets: Some(targets),
            groups: None,
            texts: Vec::new(),
            notes: Vec::new(),
        }
    }

    #[test]
    fn data_sets_that_differ_in_anything_have_other_digests() {
        let classes = |names: &[&str], of: &[u32]| Labels::Names { names: names.iter().map(ToString::to_string).collect(), of: of.into() };
        let two = || Labels::Numbers(vec![0.0, 1.0]);
        let one = set(2, &["a", "b"], two());
        let with_groups = Dataset { targets: None, groups: one.targets.clone(), ..one.clone() };
        let all = [
            vec![one.clone()],
            vec![one.clone(), one.clone()],
            vec![set(4, &["a", "b"], two())],
            vec![set(1, &["a", "b"], two())],
            vec![set(2, &["a,b"], two())],
            vec![set(2, &["b", "a"], two())],
            vec![set(2, &["a", "b"], Labels::Numbers(vec![1.0, 0.0]))],
            vec![set(2, &["a", "b"], classes(&["x", "y"], &[0, 1]))],
            vec![set(2, &["a", "b"], classes(&["x\ny"], &[0, 0]))],
            vec![with_groups],
            vec![Dataset { rows: one.rows.to_sparse(), ..one.clone() }],
            vec![Dataset { columns: Columns::Counted { width: 2, left_out: Vec::new() }, ..one.clone() }],
            vec![Dataset { columns: Columns::Counted { width: 3, left_out: vec![2] }, ..one.clone() }],
        ];
        let digests: Vec<String> = all.into_iter().map(|sets| Given::of_sets(sets).identity().unwrap().to_string()).collect();
        for (i, digest) in digests.iter().enumerate() {
            assert!(!digests[..i].contains(digest), "{i}");
        }
        let renamed = Dataset { name: "yours".into(), ..one };
        assert_eq!(Given::of_sets(vec![renamed]).identity(), Some(&*digests[0]));
    }

    #[test]
    fn logs_that_differ_in_anything_have_other_digests() {
        let log = |rewards: [f64; 2], episode: Option<Vec<i64>>, ratio: Option<Vec<f64>>| Log {
            name: "mine".into(),
            columns: vec!["s_0".into()],
            states: vec![0.0, 1.0],
            rewards: rewards.into(),
            next: vec![1.0, 2.0],
            done: vec![false, true],
            truncated: None,
            breaks: None,
            actions: None,
            episode,
            ratio,
        };
        let plain = log([0.0, 1.0], None, None);
        let all = [
            log([0.0, -0.0], None, None),
            log([0.0, 1.0], Some(vec![0, 0]), None),
            log([0.0, 1.0], None, Some(vec![0.0, 0.0])),
            Log { columns: vec!["s_1".into()], ..plain.clone() },
            Log { states: vec![0.0, 2.0], ..plain.clone() },
            Log { next: vec![0.0, 2.0], ..plain.clone() },
            Log { done: vec![true, true], ..plain.clone() },
            Log { truncated: Some(vec![false, false]), ..plain.clone() },
            Log { truncated: Some(vec![false, true]), ..plain.clone() },
            Log { breaks: Some(vec![Break::None; 2]), ..plain.clone() },
            Log { breaks: Some(vec![Break::None, Break::Stream]), ..plain.clone() },
            Log { breaks: Some(vec![Break::None, Break::LeftOut]), ..plain.clone() },
            plain,
        ];
        let digests: Vec<String> = all.into_iter().map(|log| Given::of_logs(vec![log.into()]).identity().unwrap().to_string()).collect();
        for (i, digest) in digests.iter().enumerate() {
            assert!(!digests[..i].contains(digest), "{i}");
        }
    }
}
