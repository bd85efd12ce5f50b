//! Features of consecutive transitions of a log, one block at a time.
//!
//! In most logs a state is the next state of the previous transition, so its features are computed once. Threads without an agent share the
//! states of a block if there are many features. Features depend on a state alone, so neither changes their bits.

use std::ops::Range;

use crate::features::FeatureMap;
use crate::logs::log::Log;
use fedsa::kernel::Isa;
use fedsa::parallel;

/// The most transitions of a block.
const MOST: usize = 1024;
/// The fewest transitions of a block.
const FEWEST: usize = 16;
/// The numbers of a block, unless there are too many features.
const NUMBERS: usize = 1 << 17;
/// The fewest features for which threads share a block. With fewer, waking another thread takes more than half the time of computing a
/// block with vector instructions.
const WORTH_SHARING: usize = 64;
/// States that a thread takes at a time.
const PIECE: usize = 32;

/// The features of a block of transitions.
pub struct BlockFeatures<'a> {
    map: &'a FeatureMap,
    is_shared: bool,
    /// The first row of the block.
    first: usize,
    /// The states with computed features: the row, and whether it is this row's next state.
    states: Vec<(usize, bool)>,
    /// Their features, d numbers for each.
    all: Vec<f64>,
    /// The indices in `states` of each transition's state and next state; the latter is meaningless if `done`.
    places: Vec<[usize; 2]>,
}

impl<'a> BlockFeatures<'a> {
    /// `agents` is the number of agents whose logs are read at the same time.
    pub fn new(map: &'a FeatureMap, agents: usize) -> Self {
        let is_shared = agents < parallel::threads() && (map.len() >= WORTH_SHARING || Isa::best() == Isa::Portable);
        Self { map, is_shared, first: 0, states: Vec::new(), all: Vec::new(), places: Vec::new() }
    }

    /// The features of the state of row `i` of a batch and of its next state, which are meaningless if `done`. Callers ask for the rows of
    /// a batch in order, each once. A block is computed with its first row, and each batch starts a new one.
    pub fn of(&mut self, log: &Log, i: usize) -> [&[f64]; 2] {
        let d = self.map.len();
        if i == 0 || i >= self.first + self.places.len() {
            let most = (NUMBERS / d).clamp(FEWEST, MOST);
            self.compute(log, i..log.len().min(i + most));
        }
        self.places[i - self.first].map(|place| &self.all[place * d..(place + 1) * d])
    }

    /// Computes the features of these transitions.
    fn compute(&mut self, log: &Log, rows: Range<usize>) {
        self.first = rows.start;
        self.states.clear();
        self.places.clear();
        for i in rows.clone() {
            let follows = i > rows.start && !log.done[i - 1] && log.state(i) == log.next_state(i - 1);
            if !follows {
                self.states.push((i, false));
            }
            let here = self.states.len() - 1;
            if !log.done[i] {
                self.states.push((i, true));
            }
            self.places.push([here, self.states.len() - 1]);
        }
        let (d, map, states) = (self.map.len(), self.map, &self.states);
        self.all.resize(states.len() * d, 0.0);
        let fill = |k: usize, out: &mut [f64]| {
            for (out, (i, is_next)) in out.chunks_exact_mut(d).zip(&states[k * PIECE..]) {
                map.eval(if *is_next { log.next_state(*i) } else { log.state(*i) }, out);
            }
        };
        if self.is_shared {
            parallel::each_chunk(&mut self.all, PIECE * d, &fill);
        } else {
            fill(0, &mut self.all);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::features::{FeatureSpec, Ranges};

    #[test]
    fn features_are_those_of_each_state() {
        let n = 3000;
        let state = |i: usize| [(i as f64 * 0.37).sin(), (i as f64 * 0.11).cos()];
        let log = Log {
            name: "agent".into(),
            columns: vec!["s_0".into(), "s_1".into()],
            states: (0..n).flat_map(state).collect(),
            rewards: vec![0.0; n],
            // Each 13th row is followed by another state, some of these at an end.
            next: (0..n).flat_map(|i| if i % 13 == 12 { [0.5, -0.5] } else { state(i + 1) }).collect(),
            done: (0..n).map(|i| i % 26 == 12).collect(),
            truncated: None,
            breaks: None,
            episode: None,
            ratio: None,
            actions: None,
        };
        let ranges: Ranges = log.columns.iter().map(|column| (column.clone(), (-1.0, 1.0))).collect();
        let map = FeatureMap::new(&FeatureSpec::Fourier { order: 7, scaled: false }, &log.columns, &ranges).unwrap();
        let mut expected = vec![0.0; map.len()];
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        for agents in [1, usize::MAX] {
            let mut features = pool.install(|| BlockFeatures::new(&map, agents));
            assert_eq!(features.is_shared, agents == 1);
            let mut computed = 0;
            for batch in [log.part(0..2500), log.part(2500..n)] {
                for i in 0..batch.len() {
                    let [here, next] = pool.install(|| features.of(&batch, i).map(<[f64]>::to_vec));
                    map.eval(batch.state(i), &mut expected);
                    assert_eq!(here, expected);
                    if !batch.done[i] {
                        map.eval(batch.next_state(i), &mut expected);
                        assert_eq!(next, expected);
                    }
                    computed += if i == features.first { features.states.len() } else { 0 };
                }
            }
            // One per transition, and one more for each 26th and for each block, which start from another state.
            assert!(computed >= n && computed <= n + n / 26 + 5, "{computed}");
        }
    }
}
