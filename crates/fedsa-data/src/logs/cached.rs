//! Small logs kept in memory, and the checksum of a log.

use crc32fast::Hasher;
use fedsa_problems::logs::log::{Break, Log};

use super::layout::row_bytes;

/// The most bytes of a log kept in memory.
const KEPT: usize = 16 << 20;

/// The batches of a log that may stay in memory.
#[derive(Default)]
pub(super) struct CachedBatches {
    pub batches: Vec<Log>,
    pub bytes: usize,
}

impl CachedBatches {
    /// Adds a batch if all of them together are small enough.
    pub fn with(mut self, batch: &Log, room: usize) -> Option<Self> {
        self.bytes += batch.len() * row_bytes(batch.columns.len() + batch.actions.as_ref().map_or(0, |actions| actions.count));
        if self.bytes > KEPT.min(room) {
            return None;
        }
        self.batches.push(batch.clone());
        Some(self)
    }
}

/// The checksum of a log's contents. Each column, and all states together, have a separate checksum, so that the result does not depend
/// on the batches.
#[derive(Default)]
pub(super) struct Checksum {
    rows: u64,
    /// For states, next states, rewards, `done`, `episode`, `ratio`, and the actions and their probabilities.
    parts: [Hasher; 6],
    actions: Option<[Hasher; 3]>,
    /// For `truncated` and for breaks, if there are any.
    ends: [Option<Hasher>; 2],
    bytes: Vec<u8>,
}

impl Checksum {
    pub fn see(&mut self, log: &Log) {
        self.rows += log.len() as u64;
        for (i, numbers) in [(0, Some(&log.states)), (1, Some(&log.next)), (2, Some(&log.rewards)), (5, log.ratio.as_ref())] {
            self.update(i, numbers.map_or(&[], Vec::as_slice), |x| x.to_le_bytes());
        }
        self.update(3, &log.done, |done| [u8::from(done)]);
        self.update(4, log.episode.as_deref().unwrap_or_default(), i64::to_le_bytes);
        let code = |of: &Break| match of {
            Break::None => 0,
            Break::Stream => 1,
            Break::LeftOut => 2,
        };
        let truncated = log.truncated.as_ref().map(|all| all.iter().map(|of| u8::from(*of)).collect::<Vec<_>>());
        let breaks = log.breaks.as_ref().map(|all| all.iter().map(code).collect::<Vec<_>>());
        for (end, codes) in self.ends.iter_mut().zip([truncated, breaks]) {
            codes.into_iter().for_each(|codes| end.get_or_insert_default().update(&codes));
        }
        if let Some(actions) = &log.actions {
            let [taken, here, next] = self.actions.get_or_insert_default();
            actions.taken.iter().for_each(|action| taken.update(&action.to_le_bytes()));
            for (part, law) in [(here, &actions.here), (next, &actions.next)] {
                law.iter().for_each(|p| part.update(&p.to_le_bytes()));
            }
            // Either the probabilities of an evaluated policy were read, or these.
            actions.behaviour.iter().for_each(|p| next.update(&p.to_le_bytes()));
        }
    }

    fn update<T: Copy, const N: usize>(&mut self, part: usize, values: &[T], bytes: impl Fn(T) -> [u8; N]) {
        self.bytes.resize(values.len() * N, 0);
        self.bytes.chunks_exact_mut(N).zip(values).for_each(|(out, value)| out.copy_from_slice(&bytes(*value)));
        self.parts[part].update(&self.bytes);
    }

    pub fn finish(self, columns: &[String]) -> u32 {
        let mut all = Hasher::new();
        all.update(columns.join(",").as_bytes());
        all.update(&self.rows.to_le_bytes());
        let actions = self.actions.into_iter().flatten();
        all.update(&self.ends.each_ref().map(|end| u8::from(end.is_some())));
        self.parts
            .into_iter()
            .chain(self.ends.into_iter().flatten())
            .chain(actions)
            .for_each(|part| all.update(&part.finalize().to_le_bytes()));
        all.finalize()
    }
}
