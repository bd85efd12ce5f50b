//! Rows that automatic resets of environments wrote into logs.
//!
//! A vector environment resets itself when an episode ends. Loops that record its steps often write one of two forms:
//!
//! - **The next state of the next episode**: the row that ends an episode has the first state of the next episode as its next state. A
//!   truncated row would then bootstrap from another episode. Its own next state is not logged, so the row is left out, and the row before
//!   it becomes the last row of a truncated episode. A terminated row needs no next state and stays.
//! - **A row that only resets** (Gymnasium's `NEXT_STEP`): the row after an end begins in the last state of the episode, its action is
//!   ignored, its reward is 0, and it leads to the first state of the next episode. This row is left out.
//!
//! In both forms, the next state of every row that ends an episode is the state of the following row. In other logs, the two states are
//! equal only by chance, if there are few states. A log is therefore recognised if
//! - nine tenths of these pairs are equal (`MOST`), and
//! - so many equal pairs have a probability below `CHANCE`. The probability of one equal pair is estimated by the share of rows inside
//!   episodes whose next state is the first state of their episode.
//!
//! In a log with a single state this share is 1: the log is not recognised, and needs no repair. A long trajectory that is cut into
//! episodes without resets looks like the first form. It loses one row per episode; `keep_autoreset_rows` keeps these rows.
//!
//! A recognised log has the second form if all rows after an end have reward 0, and lead to the first state of the log about as often as
//! they begin there, or more often. In addition, there must be more zeros than chance explains, or these rows must move farther than the
//! rows that lead to them, as a reset does.

use std::sync::OnceLock;

use crate::logs::left_out::{LeftOutRows, ResetRows, RowPlace};
use crate::logs::log::{Break, EpisodeEnd, LastTransition, Log};
use crate::logs::source::{KnownOfLog, LogBatch, LogSource, read_checked};
use fedsa::error::{Error, Result};
use fedsa::note::NoteCode;

/// A log is recognised only if at least this share of its pairs is equal.
const MOST: f64 = 0.9;

/// A log is recognised only if the probability of as many equal pairs by chance is below this.
const CHANCE: f64 = 1e-3;

/// The most rows that are read to find the first end of an episode.
const MAX_ROWS_WITHOUT_END: usize = 1 << 20;

impl ResetRows {
    /// Finds the rows. It stops early at a log without such rows, as soon as this is clear.
    fn of(source: &dyn LogSource) -> Result<Self> {
        let mut found = Pairs::default();
        let mut is_settled = false;
        let read = read_checked(source, &mut |batch| {
            for i in 0..batch.log.len() {
                found.see(&batch, i);
            }
            found.last = Some(batch.log.part(batch.log.len() - 1..batch.log.len()));
            is_settled = found.is_settled();
            if is_settled { Err(Error::new("", "enough was read", "")) } else { Ok(()) }
        });
        if is_settled {
            return Ok(Self::default());
        }
        read?;
        Ok(found.verdict())
    }

    /// The entries of `rows` in a part of the log: `n` rows from row `first` on.
    fn within(rows: &[usize], first: usize, n: usize) -> &[usize] {
        let at = |row: usize| rows.partition_point(|other| *other < row);
        &rows[at(first)..at(first + n)]
    }

    fn left_out(&self, name: &str) -> Option<LeftOutRows> {
        const NEXT: &str = "its next state is the first state of the next episode, as automatic resets of environments write it: the last row of \
                            an episode that was truncated (`keep_autoreset_rows` keeps it, where episodes are parts of one trajectory)";
        const RESET: &str = "it only resets the environment: the row after an end, with reward 0 (Gymnasium's NEXT_STEP; \
                             `keep_autoreset_rows` keeps it)";
        let (code, reason) = if self.only_reset { (NoteCode::RowsOfResets, RESET) } else { (NoteCode::NextStatesOfNextEpisode, NEXT) };
        let first = RowPlace::Row(*self.out.first()? as u64);
        Some(LeftOutRows { file: name.into(), reason: reason.into(), rows: self.out.len(), first, code })
    }
}

/// Counts of rows at the ends of episodes, and of rows inside episodes.
#[derive(Default)]
struct Pairs {
    /// The previous row.
    last: Option<Log>,
    rows: usize,
    /// Whether the previous row is the first of its episode, and the first state of this episode.
    began: bool,
    first: Vec<f64>,
    /// The first state of the log.
    start: Vec<f64>,
    /// Of the rows that end an episode, have a next state and precede another row: how many lead to the state of that row, and how many do
    /// not.
    equal: usize,
    unequal: usize,
    /// The rows inside episodes: their number, how many lead to the first state of their episode, how many have reward 0.
    inside: usize,
    back: usize,
    zeros: usize,
    /// The rows after ends. Of these: how many have reward 0 and end no episode; how many more columns change more than in the previous row
    /// than change less; how many begin in the log's first state, and how many lead to it.
    after: Vec<usize>,
    idle: usize,
    farther: i64,
    as_start: usize,
    to_start: usize,
    /// The truncated rows, and the rows before them in the same episode.
    truncated: Vec<usize>,
    cut: Vec<usize>,
    /// Whether truncations show only in the episode numbers.
    only_numbers: bool,
}

impl Pairs {
    /// Takes row `i` of a batch.
    fn see(&mut self, batch: &LogBatch<'_>, i: usize) {
        let log = batch.log;
        let before = if i > 0 { Some((log, i - 1)) } else { None };
        let last = self.last.take();
        match before.or(last.as_ref().map(|last| (last, 0))) {
            None => self.start = log.state(i).to_vec(),
            Some((other, j)) => self.see_pair((other, j), (log, i)),
        }
        self.began = batch.begins(i);
        if self.began {
            self.first.clear();
            self.first.extend_from_slice(log.state(i));
        }
        self.only_numbers = log.truncated.is_none() && log.episode.is_some();
        self.rows += 1;
    }

    /// Takes two consecutive rows.
    fn see_pair(&mut self, (last, j): (&Log, usize), (log, i): (&Log, usize)) {
        let (end, link) = (LastTransition::of(last, j).end_before(log, i), log.break_before(i));
        let is_stream = link == Break::Stream && self.only_numbers && !last.done[j];
        if end == Some(EpisodeEnd::Truncated) || is_stream {
            self.leave_out();
        }
        let (here, next) = (last.state(j), last.next_state(j));
        if link != Break::None || end == Some(EpisodeEnd::Cut) {
            return;
        }
        let is_zero = log.rewards[i] == 0.0;
        let Some(end) = end else {
            self.inside += 1;
            self.back += usize::from(next == self.first);
            self.zeros += usize::from(is_zero);
            return;
        };
        self.after.push(self.rows);
        self.idle += usize::from(is_zero && log.marked_end(i).is_none());
        // A terminated row has no next state; logs repeat the state or write zeros there.
        let is_filler = end == EpisodeEnd::Terminated && (next == here || next.iter().all(|x| *x == 0.0));
        let is_equal = next == log.state(i);
        if is_equal {
            self.equal += 1;
            let change = |from: &[f64], to: &[f64]| from.iter().zip(to).map(|(x, y)| (y - x).abs()).collect::<Vec<f64>>();
            let (into, out) = (change(here, next), change(log.state(i), log.next_state(i)));
            self.farther += out.iter().zip(&into).map(|(out, into)| i64::from(out > into) - i64::from(out < into)).sum::<i64>();
            self.as_start += usize::from(log.state(i) == self.start);
            self.to_start += usize::from(log.next_state(i) == self.start);
        } else if !is_filler {
            self.unequal += 1;
        }
    }

    /// Leaves out the previous, truncated row.
    fn leave_out(&mut self) {
        let row = self.rows - 1;
        if !self.began {
            self.cut.push(row - 1);
        }
        self.truncated.push(row);
    }

    /// Whether the log has no such rows, for any further rows.
    fn is_settled(&self) -> bool {
        let is_endless = self.equal == 0 && self.rows >= MAX_ROWS_WITHOUT_END;
        self.unequal > self.equal || is_endless
    }

    /// Whether `count` equal pairs, or zeros after ends, have a probability below [`CHANCE`], if each has the frequency `some / all` of
    /// rows inside episodes.
    fn is_no_chance(count: usize, some: usize, all: usize) -> bool {
        let share = (some as f64 + 1.0) / (all as f64 + 2.0);
        count as f64 * share.ln() < CHANCE.ln()
    }

    /// Whether more rows after ends begin in the log's first state than lead to it, by two standard errors of the difference. A row that
    /// resets begins where an episode ended, and leads to the start of the next one. With few states, both counts are chance.
    fn begins_at_start(&self) -> bool {
        let (begin, lead) = (self.as_start as f64, self.to_start as f64);
        begin - lead > 2.0 * (begin + lead).sqrt()
    }

    /// The reset rows of the log, after all rows.
    fn verdict(mut self) -> ResetRows {
        let share = self.equal as f64 / (self.equal + self.unequal) as f64;
        if share.is_nan() || share < MOST || !Self::is_no_chance(self.equal, self.back, self.inside) {
            return ResetRows::default();
        }
        let goes_back = self.farther > 0 || (self.farther == 0 && self.as_start == 0);
        let is_idle = self.idle == self.after.len() && self.unequal == 0 && !self.begins_at_start();
        if is_idle && (goes_back || Self::is_no_chance(self.idle, self.zeros, self.inside)) {
            return ResetRows { out: self.after, cut: Vec::new(), only_reset: true };
        }
        let last = self.last.take().expect("a pair has rows");
        let is_truncated = last.marked_end(0) == Some(EpisodeEnd::Truncated);
        if is_truncated || (self.only_numbers && !last.done[0]) {
            self.leave_out();
        }
        ResetRows { out: self.truncated, cut: self.cut, only_reset: false }
    }
}

/// A log without the rows that automatic resets wrote.
struct WithoutResets {
    source: Box<dyn LogSource>,
    /// The rows, unless the source stores them.
    found: OnceLock<ResetRows>,
}

/// The logs without the rows that automatic resets wrote; unchanged if `keep`.
pub fn without_resets(sources: Vec<Box<dyn LogSource>>, keep: bool) -> Vec<Box<dyn LogSource>> {
    if keep {
        return sources;
    }
    sources.into_iter().map(|source| Box::new(WithoutResets { source, found: OnceLock::new() }) as Box<dyn LogSource>).collect()
}

impl WithoutResets {
    fn kept(&self) -> &OnceLock<ResetRows> {
        self.source.known().map_or(&self.found, |known| &known.resets)
    }

    fn found(&self) -> Result<&ResetRows> {
        if let Some(found) = self.kept().get() {
            return Ok(found);
        }
        let found = ResetRows::of(&*self.source)?;
        Ok(self.kept().get_or_init(|| found))
    }
}

impl LogSource for WithoutResets {
    fn name(&self) -> &str {
        self.source.name()
    }
    fn columns(&self) -> &[String] {
        self.source.columns()
    }
    fn read(&self, see: &mut dyn FnMut(&Log) -> Result<()>) -> Result<()> {
        let found = self.found()?;
        if found.out.is_empty() {
            return self.source.read(see);
        }
        let mut first = 0;
        self.source.read(&mut |log| {
            let [out, cut] = [&found.out, &found.cut].map(|rows| ResetRows::within(rows, first, log.len()));
            let begins = first;
            first += log.len();
            if out.is_empty() && cut.is_empty() {
                return see(log);
            }
            let mut log = log.clone();
            if let Some(truncated) = &mut log.truncated {
                cut.iter().for_each(|row| truncated[row - begins] = true);
            }
            let kept = log.filtered(|row| out.binary_search(&(begins + row)).is_err());
            if kept.is_empty() { Ok(()) } else { see(&kept) }
        })
    }
    fn known(&self) -> Option<&KnownOfLog> {
        self.source.known()
    }
    fn left_out(&self) -> Vec<LeftOutRows> {
        let mut all = self.source.left_out();
        all.extend(self.kept().get().and_then(|found| found.left_out(self.source.name())));
        all
    }
    fn next_follows(&self) -> bool {
        self.source.next_follows()
    }
    fn located(&self, e: Error) -> Error {
        self.source.located(e)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logs::source::tests::InBatches;
    use crate::logs::source::{in_memory, whole};
    use fedsa::random::{Purpose, stream};

    /// How a log represents the next state of a row that ends an episode.
    #[derive(Clone, Copy, PartialEq)]
    enum Form {
        Honest,
        /// As the first state of the next episode.
        OfNext,
        /// With an additional row that only resets.
        NextStep,
    }

    /// First rows of episodes with reward 0 are not taken for resets.
    #[test]
    fn first_rows_without_reward_are_no_resets() {
        let n = 400;
        let of = |i: usize, at: usize| if at.is_multiple_of(10) { 0.0 } else { (i % 10) as f64 };
        let log = Log {
            states: (0..n).map(|i| of(i, i)).collect(),
            next: (0..n).map(|i| of(i + 1, i + 1)).collect(),
            rewards: (0..n).map(|i| -((i % 10) as f64)).collect(),
            done: vec![false; n],
            truncated: Some((0..n).map(|i| i % 10 == 9).collect()),
            ..walk(Form::OfNext, 1, 2, 0.0, 0.0)
        };
        let found = ResetRows::of(&log).unwrap();
        assert_eq!((found.out.len(), found.only_reset), (40, false));
    }

    /// Episodes of a random walk of `length` steps. Every third one terminates. States are rounded to multiples of `width`, if it is not 0.
    fn walk(form: Form, episodes: usize, length: usize, width: f64, reward: f64) -> Log {
        let mut rng = stream(7, Purpose::Sample, 0, 0);
        let mut number = move || rng.uniform();
        let round = |x: f64| if width > 0.0 { (x / width).round() * width } else { x };
        let mut log = Log {
            name: "agent".into(),
            columns: vec!["s_x".into()],
            states: vec![],
            rewards: vec![],
            next: vec![],
            done: vec![],
            truncated: Some(vec![]),
            breaks: None,
            episode: None,
            ratio: None,
            actions: None,
        };
        let mut x = round(number());
        for episode in 0..episodes {
            for t in 1..=length {
                let (next, ends) = (round(x + number() + 0.1), t == length);
                let start = round(number());
                log.states.push(x);
                log.next.push(if ends && form == Form::OfNext { start } else { next });
                log.rewards.push(reward);
                log.done.push(ends && episode % 3 == 0);
                log.truncated.as_mut().unwrap().push(ends && episode % 3 != 0);
                if ends && form == Form::NextStep {
                    log.states.push(next);
                    log.next.push(start);
                    log.rewards.push(0.0);
                    log.done.push(false);
                    log.truncated.as_mut().unwrap().push(false);
                }
                x = if ends { start } else { next };
            }
        }
        log
    }

    fn mended(log: &Log, batch: usize) -> (Log, Vec<LeftOutRows>) {
        let source: Box<dyn LogSource> = Box::new(InBatches(log.clone(), batch));
        let source = without_resets(vec![source], false).remove(0);
        (whole(&*source).unwrap(), source.left_out())
    }

    #[test]
    fn truncated_rows_with_a_state_of_the_next_episode_are_left_out() {
        let (log, honest) = (walk(Form::OfNext, 30, 5, 0.0, 1.0), walk(Form::Honest, 30, 5, 0.0, 1.0));
        for batch in [1, 7, 150] {
            let (rest, left_out) = mended(&log, batch);
            assert_eq!((rest.len(), left_out[0].rows, left_out[0].first), (130, 20, RowPlace::Row(9)), "{batch}");
            assert_eq!(left_out[0].code, NoteCode::NextStatesOfNextEpisode);
            // The row before a left-out row ends the episode, and terminated rows stay.
            let ends: Vec<usize> = (0..rest.len()).filter(|row| rest.marked_end(*row).is_some()).take(4).collect();
            assert_eq!((ends, rest.done.iter().filter(|done| **done).count()), (vec![4, 8, 12, 17], 10));
            assert_eq!(rest.states[..9], honest.states[..9]);
            assert_eq!(mended(&honest, batch), (honest.clone(), vec![]));
        }
        let kept = without_resets(in_memory(vec![log.clone()]), true).remove(0);
        assert_eq!(whole(&*kept).unwrap(), log);
    }

    /// Episode numbers show the ends. The last row of the log has no next state either.
    #[test]
    fn episodes_may_be_told_by_their_numbers() {
        let mut log = Log { truncated: None, ..walk(Form::OfNext, 30, 5, 0.0, 1.0) };
        log.episode = Some((0..150).map(|row| row / 5).collect());
        let (rest, left_out) = mended(&log, 8);
        assert_eq!((rest.len(), left_out[0].rows), (130, 20));
        // Another environment follows; its first row forms no pair.
        log.breaks = Some((0..150).map(|row| if row == 75 { Break::Stream } else { Break::None }).collect());
        assert_eq!(mended(&log, 8).1[0].rows, 20);
    }

    #[test]
    fn rows_that_only_reset_are_left_out() {
        for reward in [1.0, 0.0] {
            let (log, honest) = (walk(Form::NextStep, 30, 5, 0.0, reward), walk(Form::Honest, 30, 5, 0.0, reward));
            let (rest, left_out) = mended(&log, 11);
            assert_eq!(rest, honest, "{reward}");
            assert_eq!((left_out[0].rows, left_out[0].code), (30, NoteCode::RowsOfResets));
            // A first step without a reward is not taken for a reset.
            let of_next = mended(&walk(Form::OfNext, 30, 5, 0.0, reward), 11).1;
            assert_eq!((of_next[0].rows, of_next[0].code), (20, NoteCode::NextStatesOfNextEpisode));
        }
    }

    /// On a ring of ten states, episodes begin anywhere. How often they end or begin in the log's first state is chance.
    #[test]
    fn rows_that_only_reset_are_told_from_others_where_states_are_few() {
        let log = |seed: u64| {
            let mut rng = stream(seed, Purpose::Sample, 0, 0);
            let mut log = Log { truncated: Some(vec![]), ..walk(Form::NextStep, 0, 1, 0.0, 1.0) };
            let mut place = move || (10.0 * rng.uniform()).floor();
            for _ in 0..136 {
                let mut x = place();
                for t in 1..=8 {
                    let next = (x + if place() < 5.0 { 1.0 } else { 9.0 }) % 10.0;
                    push(&mut log, x, next, 1.0, t == 8);
                    x = next;
                }
                push(&mut log, x, place(), 0.0, false);
            }
            log
        };
        // Each row that resets leads to the state where the next episode begins.
        let joined = |mut log: Log| {
            (9..log.len()).step_by(9).for_each(|t| log.next[t - 1] = log.states[t]);
            log
        };
        let told = (0..40).filter(|seed| ResetRows::of(&joined(log(*seed))).unwrap().only_reset).count();
        // By chance, 2.3% of logs exceed two standard errors.
        assert!(told >= 37, "{told}");
    }

    fn push(log: &mut Log, state: f64, next: f64, reward: f64, is_cut: bool) {
        log.states.push(state);
        log.next.push(next);
        log.rewards.push(reward);
        log.done.push(false);
        log.truncated.as_mut().expect("a column").push(is_cut);
    }

    /// With few states, pairs are equal by chance as often as rows lead back to the first state of their episode.
    #[test]
    fn equal_states_by_chance_are_no_resets() {
        for (width, episodes) in [(1e3, 60), (0.5, 4)] {
            let log = walk(Form::Honest, episodes, 5, width, 1.0);
            assert_eq!(mended(&log, 40), (log, vec![]), "{width}");
        }
        // With two states at random, a few pairs may all be equal, but not many pairs.
        let log = |n: usize| {
            let mut rng = stream(3, Purpose::Sample, 0, 0);
            let states: Vec<f64> = (0..=n).map(|_| f64::from(u8::from(rng.uniform() < 0.9))).collect();
            let ends: Vec<bool> = (0..n).map(|row| row % 4 == 3).collect();
            let log = walk(Form::Honest, 1, 1, 0.0, 1.0);
            let (states, next) = (states[..n].to_vec(), states[1..].to_vec());
            Log { states, next, rewards: vec![1.0; n], done: vec![false; n], truncated: Some(ends), ..log }
        };
        assert_eq!(mended(&log(40), 9).1, []);
    }

    /// A log without such rows is read twice only up to the first end.
    #[test]
    fn honest_logs_are_not_read_twice() {
        struct Counted(Log, std::sync::atomic::AtomicUsize);
        impl LogSource for Counted {
            fn name(&self) -> &str {
                &self.0.name
            }
            fn columns(&self) -> &[String] {
                &self.0.columns
            }
            fn read(&self, see: &mut dyn FnMut(&Log) -> Result<()>) -> Result<()> {
                InBatches(self.0.clone(), 10).read(&mut |log| {
                    self.1.fetch_add(log.len(), std::sync::atomic::Ordering::Relaxed);
                    see(log)
                })
            }
        }
        let source = std::sync::Arc::new(Counted(walk(Form::Honest, 100, 5, 0.0, 1.0), 0.into()));
        let log = without_resets(vec![Box::new(source.clone())], false).remove(0);
        whole(&*log).unwrap();
        whole(&*log).unwrap();
        assert_eq!(source.1.load(std::sync::atomic::Ordering::Relaxed), 2 * 500 + 10);
    }
}
