//! One agent's logged transitions `(s, r, s', done)`.

use std::collections::HashSet;
use std::ops::Range;

use fedsa::error::{Error, Result, quoted};

/// The relation of a transition to the previous one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Break {
    /// They were logged one after the other.
    #[default]
    None,
    /// Another stream of transitions begins, such as another environment of the same agent. Its first transition counts as the first of an
    /// episode, as at the start of a log.
    Stream,
    /// Rows were left out. Whether the transition is the first of an episode is unknown.
    LeftOut,
}

/// How the transitions of an episode end in a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EpisodeEnd {
    /// The episode reached a terminal state.
    Terminated,
    /// It was truncated: by `truncated`, or because another episode number follows.
    Truncated,
    /// The log ends, rows were left out, or the next row begins in another state.
    Cut,
}

/// The action taken in each state, one of K, with the probabilities of an evaluated policy or of the policy that acted.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LoggedActions {
    /// The number of actions K.
    pub count: usize,
    /// The action of each transition, below K, n.
    pub taken: Vec<u32>,
    /// `pi(k | s)`, the probability of each action in the state, n x K in row-major order; empty without an evaluated policy.
    pub here: Vec<f64>,
    /// `pi(k | s')`, n x K in row-major order; arbitrary finite numbers if `done`; empty without an evaluated policy.
    pub next: Vec<f64>,
    /// The probability of the action taken under the policy that acted, n; empty if it was not logged, or is part of an importance ratio.
    pub behaviour: Vec<f64>,
}

impl LoggedActions {
    /// No transitions, of `count` actions.
    pub fn none(count: usize) -> Self {
        Self { count, ..Self::default() }
    }

    /// Drops the transitions from `n` on.
    pub fn truncate(&mut self, n: usize) {
        self.taken.truncate(n);
        self.behaviour.truncate(n);
        [&mut self.here, &mut self.next].into_iter().for_each(|all| all.truncate(n * self.count));
    }

    /// Whether there are the probabilities of an evaluated policy.
    pub fn has_policy(&self) -> bool {
        !self.here.is_empty()
    }

    /// The transitions of these rows, in this order.
    fn filtered(&self, rows: &[usize]) -> Self {
        let some = |all: &[f64], k: usize| -> Vec<f64> {
            let is_there = !all.is_empty();
            rows.iter().filter(|_| is_there).flat_map(|row| all[row * k..(row + 1) * k].iter().copied()).collect()
        };
        Self {
            count: self.count,
            taken: rows.iter().map(|row| self.taken[*row]).collect(),
            here: some(&self.here, self.count),
            next: some(&self.next, self.count),
            behaviour: some(&self.behaviour, 1),
        }
    }

    fn part(&self, rows: Range<usize>) -> Self {
        let some = |all: &[f64], k: usize| if all.is_empty() { Vec::new() } else { all[rows.start * k..rows.end * k].to_vec() };
        let [here, next] = [&self.here, &self.next].map(|all| some(all, self.count));
        Self { count: self.count, here, next, behaviour: some(&self.behaviour, 1), taken: self.taken[rows].to_vec() }
    }

    fn append(&mut self, more: &Self) {
        self.taken.extend_from_slice(&more.taken);
        self.here.extend_from_slice(&more.here);
        self.next.extend_from_slice(&more.next);
        self.behaviour.extend_from_slice(&more.behaviour);
    }

    /// The first invalid row of `n` actions, and the reason.
    fn fault(&self, done: &[bool]) -> Option<(usize, String)> {
        /// How far the sum of probabilities may be from 1.
        const ROUNDING: f64 = 1e-6;
        let k = self.count;
        let law = |name: &str, p: &[f64]| {
            let sum: f64 = p.iter().sum();
            if let Some(j) = p.iter().position(|p| !(*p >= 0.0 && p.is_finite())) {
                return Some(format!("`{name}_{j}`: {} is not a probability", p[j]));
            }
            let is_far = (sum - 1.0).abs() > ROUNDING;
            is_far.then(|| format!("the probabilities `{name}_*` sum to {sum}, and not to 1"))
        };
        self.taken.iter().zip(done).enumerate().find_map(|(i, (taken, done))| {
            let row = i * k..(i + 1) * k;
            let is_none = *taken as usize >= k;
            let action = is_none.then(|| format!("`action`: {taken} is none of the {k} actions, 0 to {}", k - 1));
            let here = || self.has_policy().then(|| law("target", &self.here[row.clone()])).flatten();
            let next = || (self.has_policy() && !done).then(|| law("target_next", &self.next[row.clone()])).flatten();
            let acted = || {
                let p = *self.behaviour.get(i)?;
                (!(p > 0.0 && p <= 1.0 + ROUNDING)).then(|| format!("`behaviour`: {p} is not the probability of an action that was taken"))
            };
            action.or_else(here).or_else(next).or_else(acted).map(|what| (i, what))
        })
    }
}

/// One agent's transitions, in the order of time: `n` transitions of `k` state columns. Messages count rows from 0.
#[derive(Debug, Clone, PartialEq)]
pub struct Log {
    /// The agent's name in messages and tables.
    pub name: String,
    /// The names of the state columns, k.
    pub columns: Vec<String>,
    /// The states, n x k in row-major order.
    pub states: Vec<f64>,
    /// The rewards, n.
    pub rewards: Vec<f64>,
    /// The next states, n x k in row-major order. If `done`, arbitrary finite numbers: the features of the next state are zero.
    pub next: Vec<f64>,
    /// Whether the episode reached a terminal state with this transition, n; false for truncation.
    pub done: Vec<bool>,
    /// Whether the episode was truncated with this transition, such as by a time limit, n, if logged. The value of the next state still
    /// counts. With `done` as well, the episode has terminated.
    pub truncated: Option<Vec<bool>>,
    /// The relation of each transition to the previous one, n; `None` if all were logged one after the other.
    pub breaks: Option<Vec<Break>>,
    /// The episode of each transition, n, if logged; the transitions of an episode are consecutive.
    pub episode: Option<Vec<i64>>,
    /// The importance ratio of each transition, n, if logged: the probability of its action under the evaluated policy, divided by its
    /// probability under the acting policy.
    pub ratio: Option<Vec<f64>>,
    /// The actions, if logged with the evaluated policy's probabilities, or if they were asked for
    /// ([`LogForm::actions`](crate::logs::log_form::LogForm::actions)).
    pub actions: Option<LoggedActions>,
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

    /// The next state of transition `i`, k numbers.
    pub fn next_state(&self, i: usize) -> &[f64] {
        let k = self.columns.len();
        &self.next[i * k..(i + 1) * k]
    }

    /// Whether a trace starts at transition `i`: it is the first of the log, follows `done`, `truncated` or a break, or belongs to another
    /// episode than the previous transition. Without episodes: whether it is cut off ([`Log::is_cut_off`]).
    pub fn begins(&self, i: usize) -> bool {
        i == 0 || self.end_before(i).is_some()
    }

    /// Whether transition `i` is known to be the first of an episode: it [`Log::begins`], and does not follow left-out rows.
    pub fn starts(&self, i: usize) -> bool {
        self.begins(i) && self.break_before(i) != Break::LeftOut
    }

    /// The relation of transition `i` to the previous one.
    pub fn break_before(&self, i: usize) -> Break {
        self.breaks.as_ref().map_or(Break::None, |breaks| breaks[i])
    }

    /// How the transitions before transition `i` > 0 ended; `None` if transition `i` continues the previous one.
    pub fn end_before(&self, i: usize) -> Option<EpisodeEnd> {
        let last = LastTransition::of(self, i - 1);
        last.end_before(self, i)
    }

    /// In a log without episodes: whether the state of transition `i` differs from the previous next state, although the previous
    /// transition does not end its episode.
    pub fn is_cut_off(&self, i: usize) -> bool {
        i > 0 && LastTransition::of(self, i - 1).cuts_off(self, i)
    }

    /// How the episode ended with transition `i`, if marked there.
    pub(crate) fn marked_end(&self, i: usize) -> Option<EpisodeEnd> {
        if self.done[i] {
            Some(EpisodeEnd::Terminated)
        } else {
            self.truncated.as_ref().filter(|truncated| truncated[i]).map(|_| EpisodeEnd::Truncated)
        }
    }

    /// The effective sample size under the importance ratios, `(sum rho)^2 / sum rho^2`, from 0 to n; `None` without ratios.
    pub fn effective_size(&self) -> Option<f64> {
        let mut size = EffectiveSize::default();
        size.see(self.ratio.as_ref()?);
        Some(size.value())
    }

    /// The transitions of the rows that `keep` accepts, in their order.
    #[must_use]
    pub fn filtered(&self, keep: impl Fn(usize) -> bool) -> Self {
        let rows: Vec<usize> = (0..self.len()).filter(|row| keep(*row)).collect();
        self.rows(&rows)
    }

    /// A range of transitions.
    ///
    /// # Panics
    /// When the range exceeds the log.
    #[must_use]
    pub fn part(&self, rows: Range<usize>) -> Self {
        let k = self.columns.len();
        let states = rows.start * k..rows.end * k;
        Self {
            name: self.name.clone(),
            columns: self.columns.clone(),
            states: self.states[states.clone()].to_vec(),
            rewards: self.rewards[rows.clone()].to_vec(),
            next: self.next[states].to_vec(),
            done: self.done[rows.clone()].to_vec(),
            truncated: self.truncated.as_ref().map(|all| all[rows.clone()].to_vec()),
            breaks: self.breaks.as_ref().map(|all| all[rows.clone()].to_vec()),
            episode: self.episode.as_ref().map(|all| all[rows.clone()].to_vec()),
            ratio: self.ratio.as_ref().map(|all| all[rows.clone()].to_vec()),
            actions: self.actions.as_ref().map(|all| all.part(rows)),
        }
    }

    /// The transitions of these rows, in this order.
    #[must_use]
    pub fn rows(&self, rows: &[usize]) -> Self {
        let k = self.columns.len();
        let states = |all: &[f64]| rows.iter().flat_map(|row| all[row * k..(row + 1) * k].iter().copied()).collect();
        Self {
            name: self.name.clone(),
            columns: self.columns.clone(),
            states: states(&self.states),
            rewards: rows.iter().map(|row| self.rewards[*row]).collect(),
            next: states(&self.next),
            done: rows.iter().map(|row| self.done[*row]).collect(),
            truncated: self.truncated.as_ref().map(|all| rows.iter().map(|row| all[*row]).collect()),
            breaks: self.breaks.as_ref().map(|all| rows.iter().map(|row| all[*row]).collect()),
            episode: self.episode.as_ref().map(|all| rows.iter().map(|row| all[*row]).collect()),
            ratio: self.ratio.as_ref().map(|all| rows.iter().map(|row| all[*row]).collect()),
            actions: self.actions.as_ref().map(|all| all.filtered(rows)),
        }
    }

    /// Checks the assumptions that all users of a log make.
    ///
    /// # Errors
    /// When there is no transition or no state column, two state columns share a name, the lengths disagree, a number is not finite, a
    /// ratio is negative, or an episode resumes after another one.
    pub fn check(&self) -> Result<()> {
        if self.is_empty() {
            return Err(Self::no_transitions(&self.name));
        }
        self.check_rows(0)?;
        self.episode.as_ref().map_or(Ok(()), |numbers| Episodes::default().see(&self.name, numbers, 0))
    }

    /// The error about a log without transitions.
    pub(crate) fn no_transitions(name: &str) -> Error {
        Error::data(name, "a log without transitions", "an agent needs at least one transition")
    }

    /// [`Log::check`] without the episodes. The first transition is row `first` of a longer log.
    pub(crate) fn check_rows(&self, first: usize) -> Result<()> {
        let (n, k) = (self.len(), self.columns.len());
        if k == 0 {
            return Err(Error::data(&self.name, "a log without state columns", "a state needs at least one column"));
        }
        let mut seen = HashSet::with_capacity(k);
        if let Some(twice) = (0..k).find(|&j| !seen.insert(&self.columns[j])) {
            let what = format!("two state columns are called `{}`", quoted(&self.columns[twice]));
            return Err(Error::data(&self.name, what, "the names of the columns must differ"));
        }
        let lengths = [
            ("states", self.states.len(), n.checked_mul(k)),
            ("next", self.next.len(), n.checked_mul(k)),
            ("done", self.done.len(), Some(n)),
            ("truncated", self.truncated.as_ref().map_or(n, Vec::len), Some(n)),
            ("breaks", self.breaks.as_ref().map_or(n, Vec::len), Some(n)),
            ("episode", self.episode.as_ref().map_or(n, Vec::len), Some(n)),
            ("ratio", self.ratio.as_ref().map_or(n, Vec::len), Some(n)),
            ("actions", self.actions.as_ref().map_or(n, |all| all.taken.len()), Some(n)),
        ];
        for (field, found, wanted) in lengths {
            if Some(found) != wanted {
                let what = format!("`{field}` has {found} entries for {n} rewards and {k} state columns");
                return Err(Error::data(&self.name, what, "states and next must be n x k, all else n long"));
            }
        }
        let bad = |values: &[f64]| values.iter().position(|v| !v.is_finite());
        let place = bad(&self.states)
            .map(|i| (self.states[i], format!("row {}, `{}`", first + i / k, quoted(&self.columns[i % k]))))
            .or_else(|| {
                bad(&self.next)
                    .map(|i| (self.next[i], format!("row {}, the state after `{}`", first + i / k, quoted(&self.columns[i % k]))))
            })
            .or_else(|| bad(&self.rewards).map(|i| (self.rewards[i], format!("row {}, `reward`", first + i))));
        if let Some((value, place)) = place {
            let what = format!("{place}: {value} is not a finite number");
            return Err(Error::data(&self.name, what, "all states and rewards must be finite; leave such transitions out"));
        }
        let ratios = self.ratio.iter().flatten().enumerate();
        if let Some((i, rho)) = ratios.clone().find(|(_, rho)| !(rho.is_finite() && **rho >= 0.0)) {
            let what = format!("row {}, `ratio`: {rho} is not an importance ratio", first + i);
            return Err(Error::data(&self.name, what, "finite numbers, at least 0"));
        }
        self.check_actions(first)
    }

    /// The checks of the actions.
    fn check_actions(&self, first: usize) -> Result<()> {
        let Some(actions) = &self.actions else { return Ok(()) };
        let LoggedActions { count, here, next, behaviour, .. } = actions;
        let (n, wanted) = (self.len(), self.len().checked_mul(*count));
        let is_none = here.is_empty() && next.is_empty();
        if *count == 0 || !is_none && (Some(here.len()) != wanted || Some(next.len()) != wanted) {
            let what = format!("the probabilities of {count} actions have {} and {} entries", here.len(), next.len());
            return Err(Error::data(&self.name, what, "at least one action, and n x K probabilities here and next"));
        }
        if ![0, n].contains(&behaviour.len()) {
            let what = format!("`behaviour` has {} entries for {n} rewards", behaviour.len());
            return Err(Error::data(&self.name, what, "a probability for each action that was taken, or none"));
        }
        let Some((i, what)) = actions.fault(&self.done) else { return Ok(()) };
        let help = if actions.has_policy() {
            "actions that are numbered from 0, and for each the probability under the policy that is evaluated"
        } else {
            "actions that are numbered from 0"
        };
        Err(Error::data(&self.name, format!("row {}, {what}", first + i), help))
    }

    /// Appends another part of the same log, with the same optional columns.
    pub fn append(&mut self, more: &Self) {
        self.states.extend_from_slice(&more.states);
        self.rewards.extend_from_slice(&more.rewards);
        self.next.extend_from_slice(&more.next);
        self.done.extend_from_slice(&more.done);
        for (all, more) in self.truncated.iter_mut().zip(&more.truncated) {
            all.extend_from_slice(more);
        }
        for (all, more) in self.breaks.iter_mut().zip(&more.breaks) {
            all.extend_from_slice(more);
        }
        for (all, more) in self.episode.iter_mut().zip(&more.episode) {
            all.extend_from_slice(more);
        }
        for (all, more) in self.ratio.iter_mut().zip(&more.ratio) {
            all.extend_from_slice(more);
        }
        for (all, more) in self.actions.iter_mut().zip(&more.actions) {
            all.append(more);
        }
    }
}

/// The last transition, for decisions about the next one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LastTransition<'a> {
    /// How its episode ended with it, if marked.
    pub end: Option<EpisodeEnd>,
    pub episode: Option<i64>,
    pub next: &'a [f64],
}

impl<'a> LastTransition<'a> {
    /// Transition `i` of a log.
    pub fn of(log: &'a Log, i: usize) -> Self {
        Self { end: log.marked_end(i), episode: log.episode.as_ref().map(|all| all[i]), next: log.next_state(i) }
    }

    /// Whether transition `i` of `log`, the next one, is cut off from it ([`Log::is_cut_off`]).
    pub fn cuts_off(&self, log: &Log, i: usize) -> bool {
        let is_marked = self.end.is_some() || log.break_before(i) != Break::None;
        log.episode.is_none() && !is_marked && log.state(i) != self.next
    }

    /// How the transitions up to this one ended; `None` if transition `i` of `log`, the next one, continues it.
    pub fn end_before(&self, log: &Log, i: usize) -> Option<EpisodeEnd> {
        let changes = log.episode.as_ref().map(|all| all[i]) != self.episode;
        match log.break_before(i) {
            _ if self.end.is_some() => self.end,
            Break::None if changes => Some(EpisodeEnd::Truncated),
            Break::None => self.cuts_off(log, i).then_some(EpisodeEnd::Cut),
            Break::Stream | Break::LeftOut => Some(EpisodeEnd::Cut),
        }
    }
}

/// The effective sample size under importance ratios, `(sum rho)^2 / sum rho^2`.
#[derive(Debug, Clone, Copy, Default)]
pub struct EffectiveSize {
    /// A power of two of at least the largest ratio. Sums are divided by it, so that squares neither overflow nor vanish; this changes no
    /// digits, for any batches.
    most: f64,
    sum: f64,
    squares: f64,
    /// The number of ratios.
    count: f64,
}

impl EffectiveSize {
    /// Adds further ratios.
    pub fn see(&mut self, ratios: &[f64]) {
        self.count += ratios.len() as f64;
        let most = ratios.iter().fold(0.0f64, |most, rho| most.max(*rho));
        if most == 0.0 {
            return;
        }
        let most = most.log2().ceil().clamp(-1022.0, 1023.0).exp2().max(self.most);
        let scale = self.most / most;
        (self.most, self.sum, self.squares) = (most, self.sum * scale, self.squares * scale * scale);
        for x in ratios.iter().map(|rho| rho / most) {
            self.sum += x;
            self.squares += x * x;
        }
    }

    /// The mean ratio; right ratios have the mean 1 up to chance. NaN without ratios.
    pub fn mean(&self) -> f64 {
        self.most * (self.sum / self.count)
    }

    /// The effective size, from 0 to the number of ratios.
    pub fn value(&self) -> f64 {
        if self.most > 0.0 { self.sum * self.sum / self.squares } else { 0.0 }
    }
}

/// Refuses an episode that resumes after another one, over several batches.
#[derive(Debug, Default)]
pub(crate) struct Episodes {
    /// The last episode.
    last: Option<i64>,
    /// All episodes so far, once a number decreased. In most logs numbers increase, and no episode can return.
    seen: Option<HashSet<i64>>,
    /// The episodes so far, while numbers increase, as ranges of consecutive numbers.
    ranges: Vec<Range<i64>>,
}

impl Episodes {
    /// Adds the episodes of further rows; `first` is the first row.
    pub(crate) fn see(&mut self, name: &str, numbers: &[i64], first: usize) -> Result<()> {
        for (i, &number) in numbers.iter().enumerate().filter(|(i, number)| *i == 0 || numbers[i - 1] != **number) {
            let Some(last) = self.last.replace(number) else {
                self.ranges.push(number..number.saturating_add(1));
                continue;
            };
            // The first of a batch may continue the previous batch's last one.
            if number == last {
                continue;
            }
            let is_new = match &mut self.seen {
                None if number > last => {
                    match self.ranges.last_mut() {
                        Some(range) if range.end == number => range.end = number.saturating_add(1),
                        _ => self.ranges.push(number..number.saturating_add(1)),
                    }
                    true
                }
                None => {
                    let seen = self.seen.insert(self.ranges.drain(..).flatten().collect());
                    seen.insert(number)
                }
                Some(seen) => seen.insert(number),
            };
            if !is_new {
                let what = format!("row {}, `episode`: episode {number} goes on after episode {last}", first + i);
                return Err(Error::data(
                    quoted(name),
                    what,
                    "the transitions of an episode one after the other, and another number for each",
                ));
            }
        }
        Ok(())
    }
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
            truncated: None,
            breaks: None,
            actions: None,
            episode: Some(vec![0, 0]),
            ratio: Some(vec![0.5, 2.0]),
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
        assert_eq!(refused(|l| l.ratio = Some(vec![1.0, f64::NAN])), "agent_0: row 1, `ratio`: NaN is not an importance ratio");
        assert_eq!(refused(|l| l.ratio = Some(vec![-0.5, 1.0])), "agent_0: row 0, `ratio`: -0.5 is not an importance ratio");
        assert_eq!(refused(|l| l.ratio = Some(vec![1.0])), "agent_0: `ratio` has 1 entries for 2 rewards and 2 state columns");
        assert_eq!(refused(|l| l.done.truncate(1)), "agent_0: `done` has 1 entries for 2 rewards and 2 state columns");
        assert_eq!(refused(|l| l.columns[1] = "s_x".into()), "agent_0: two state columns are called `s_x`");
        assert_eq!(refused(|l| l.rewards.clear()), "agent_0: a log without transitions");
        assert_eq!(refused(|l| l.columns.clear()), "agent_0: a log without state columns");
    }

    /// Seven transitions; the third is the last of its episode, the fifth is the last before a truncation.
    fn episodes(episode: Option<Vec<i64>>) -> Log {
        let done = vec![false, false, true, false, false, false, false];
        Log { states: vec![0.0; 14], rewards: vec![0.0; 7], next: vec![0.0; 14], done, episode, ratio: None, ..log() }
    }

    #[test]
    fn episodes_begin_after_done_and_where_their_number_changes() {
        let begin = |log: Log| (0..7).filter(|i| log.begins(*i)).collect::<Vec<_>>();
        assert_eq!(begin(episodes(Some(vec![4, 4, 4, 7, 7, 1, 1]))), [0, 3, 5]);
        assert_eq!(begin(episodes(None)), [0, 3], "without a column only done ends an episode");
    }

    #[test]
    fn an_episode_that_goes_on_after_another_one_is_refused() {
        for good in [vec![0, 0, 0, 1, 1, 2, 2], vec![9, 9, 9, -3, -3, 5, 5], vec![0; 7]] {
            episodes(Some(good)).check().unwrap();
        }
        let e = episodes(Some(vec![0, 0, 0, 1, 1, 0, 0])).check().unwrap_err();
        assert_eq!(e.to_string(), "agent_0: row 5, `episode`: episode 0 goes on after episode 1");
    }

    #[test]
    fn the_effective_size_counts_what_weighs() {
        let size = |ratio: Vec<f64>| Log { ratio: Some(ratio), ..log() }.effective_size().unwrap();
        assert_eq!(size(vec![1.0; 4]), 4.0);
        assert_eq!(size(vec![1e300, 0.0, 1e300]), 2.0);
        assert_eq!(size(vec![0.0; 3]), 0.0);
        assert!((size(vec![1.0, 3.0]) - 1.6).abs() < 1e-15);
        assert_eq!(episodes(None).effective_size(), None);
    }
}
