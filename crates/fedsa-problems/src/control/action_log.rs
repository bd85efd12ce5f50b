//! An agent's logged transitions with actions, as features of states, and their sums under a policy.

use faer::Mat;

use super::greedy::greedy;
use super::pessimism::{Caution, Coverage};
use crate::features::FeatureMap;
use crate::logs::block_features::BlockFeatures;
use crate::logs::source::{LogSource, read_checked};
use fedsa::error::{Error, Result, quoted};
use fedsa::linalg;
use fedsa::problem::systems::System;

/// The next state of a row that ended its episode.
const END: u32 = u32::MAX;
/// The action after a row whose next row is unknown, or which ended its episode.
const UNKNOWN: u32 = u32::MAX;
/// Rows in a product of matrices.
const BLOCK: usize = 256;

/// The logged rows `(s, a, r, s')` of one agent. With m features of a state and K actions, a pair of a state and an action has d = K m features
/// `psi(s, a)`: those of the state in the block of the action, and 0 elsewhere.
#[derive(Debug, Clone)]
pub struct ActionLog {
    m: usize,
    actions: usize,
    /// The features of the states, m numbers each. A next state from which the following row goes on is there once.
    phi: Vec<f64>,
    /// The state of each row.
    here: Vec<u32>,
    /// The next state of each row, or [`END`].
    next: Vec<u32>,
    /// The action of each row.
    taken: Vec<u32>,
    /// The action of the next row of the same episode, or [`UNKNOWN`].
    after: Vec<u32>,
    rewards: Vec<f64>,
    /// The first states of episodes.
    starts: Vec<u32>,
    /// What is subtracted from the values of the actions in each state before one is chosen, K numbers each; empty for nothing.
    less: Vec<f64>,
}

/// Checks that rows of the agents have each of these actions.
///
/// # Errors
/// When there is one that no row has: nothing is known of its values.
pub fn check_taken(agents: &[ActionLog], names: &[String]) -> Result<()> {
    let mut taken = vec![false; names.len()];
    agents.iter().flat_map(|agent| &agent.taken).for_each(|action| taken[*action as usize] = true);
    let Some(never) = taken.iter().position(|taken| !taken) else { return Ok(()) };
    let what = format!("{}: no row has this action, number {never}", quoted(&names[never]));
    Err(Error::data("actions", what, "the actions that the logs have, in the order of their numbers"))
}

impl ActionLog {
    /// Reads a log of `rows` rows, in which each of `actions` actions has a number. `agents` is the number of agents whose logs are read at
    /// the same time.
    ///
    /// # Errors
    /// When the log cannot be read, has no actions or another number of them, or has more than 2^31 states.
    pub fn read(source: &dyn LogSource, map: &FeatureMap, actions: usize, rows: usize, agents: usize) -> Result<Self> {
        let m = map.len();
        let index = || Vec::with_capacity(rows);
        let (here, next, taken, after) = (index(), index(), index(), index());
        let mut log = Self {
            m,
            actions,
            phi: Vec::with_capacity((rows + 1) * m),
            here,
            next,
            taken,
            after,
            rewards: Vec::with_capacity(rows),
            starts: Vec::new(),
            less: Vec::new(),
        };
        let mut features = BlockFeatures::new(map, agents);
        read_checked(source, &mut |batch| {
            let Some(of) = batch.log.actions.as_ref().filter(|of| of.count == actions) else {
                let what = format!("{}: a log without the numbers of {actions} actions", quoted(source.name()));
                return Err(Error::data("actions", what, "a column `action` with numbers from 0, and how many actions there are"));
            };
            for i in 0..batch.log.len() {
                let [phi, next] = features.of(batch.log, i);
                log.push(phi, (!batch.log.done[i]).then_some(next), of.taken[i], batch.log.rewards[i], batch.begins(i));
                if batch.starts(i) {
                    log.starts.extend(log.here.last());
                }
            }
            crate::memory::check_transitions("path", log.states() as f64)
        })?;
        log.phi.shrink_to_fit();
        Ok(log)
    }

    /// Adds a row; `next` is `None` if it ended its episode, and `begins` says whether it does not continue the row before.
    fn push(&mut self, phi: &[f64], next: Option<&[f64]>, action: u32, reward: f64, begins: bool) {
        let states = self.states() as u32;
        let last = self.next.last().copied().filter(|last| *last != END);
        if let Some(last) = self.next.len().checked_sub(1).filter(|_| last.is_some() && !begins) {
            self.after[last] = action;
        }
        let here = match last {
            Some(last) if last + 1 == states && self.phi(last) == phi => last,
            _ => self.add_state(phi),
        };
        let next = next.map_or(END, |next| self.add_state(next));
        self.here.push(here);
        self.next.push(next);
        self.taken.push(action);
        self.after.push(UNKNOWN);
        self.rewards.push(reward);
    }

    fn add_state(&mut self, phi: &[f64]) -> u32 {
        self.phi.extend_from_slice(phi);
        self.states() as u32 - 1
    }

    fn phi(&self, state: u32) -> &[f64] {
        &self.phi[state as usize * self.m..][..self.m]
    }

    /// The number of rows n.
    pub fn len(&self) -> usize {
        self.rewards.len()
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.rewards.is_empty()
    }

    /// The number of states whose features are kept.
    pub fn states(&self) -> usize {
        self.phi.len() / self.m
    }

    /// The number of features m of a state.
    pub fn features(&self) -> usize {
        self.m
    }

    /// The dimension d = K m.
    pub fn dim(&self) -> usize {
        self.actions * self.m
    }

    /// The largest absolute reward.
    pub fn largest_reward(&self) -> f64 {
        self.rewards.iter().fold(0.0, |most, r| most.max(r.abs()))
    }

    /// The number of rows with a next action: ends of episodes, and rows whose next row is of the same episode.
    pub fn rows_with_next_action(&self) -> usize {
        (0..self.len()).filter(|i| self.next_action(*i).is_some()).count()
    }

    /// The next action of a row, any if the row ended its episode; `None` if the next action is unknown.
    fn next_action(&self, i: usize) -> Option<u32> {
        match (self.next[i], self.after[i]) {
            (END, _) => Some(0),
            (_, UNKNOWN) => None,
            (_, action) => Some(action),
        }
    }

    /// The weights of an action's values, m numbers.
    fn weights_of<'a>(&self, theta: &'a [f64], action: u32) -> &'a [f64] {
        &theta[action as usize * self.m..][..self.m]
    }

    /// Writes the values `q(s, a) = psi(s, a)^T theta` of all actions in a state.
    fn values(&self, state: u32, theta: &[f64], q: &mut Vec<f64>) {
        q.clear();
        q.extend((0..self.actions as u32).map(|action| linalg::dot(self.phi(state), self.weights_of(theta, action))));
    }

    /// The action that the policy of theta takes in a state; `q` gets the values of all actions, lowered by the rule of
    /// [`set_caution`](Self::set_caution). This is the only place where it is chosen.
    fn choice(&self, state: u32, theta: &[f64], q: &mut Vec<f64>) -> u32 {
        self.values(state, theta, q);
        let less = self.less.chunks_exact(self.actions).nth(state as usize).unwrap_or_default();
        q.iter_mut().zip(less).for_each(|(q, less)| *q -= less);
        greedy(q) as u32
    }

    /// Lowers the values of rare actions, where actions are chosen and in targets.
    pub fn set_caution(&mut self, caution: Option<&Caution>) {
        self.less = vec![0.0; caution.map_or(0, |_| self.states() * self.actions)];
        for (state, less) in self.less.chunks_exact_mut(self.actions).enumerate() {
            caution.iter().for_each(|caution| caution.lower(&self.phi[state * self.m..][..self.m], less));
            less.iter_mut().for_each(|less| *less = -*less);
        }
    }

    /// Subtracts `gamma mean psi less(s', a')` with the choice a' of theta from d numbers: what caution changes in `mean psi r`.
    pub fn lower_targets(&self, gamma: f64, theta: &[f64], b: &mut [f64]) {
        if self.less.is_empty() {
            return;
        }
        for (i, action) in self.choices(theta).into_iter().enumerate() {
            let Some(action) = action else { continue };
            let less = self.less[self.next[i] as usize * self.actions + action as usize];
            let factor = -gamma * less / self.len() as f64;
            linalg::add_scaled(&mut b[self.taken[i] as usize * self.m..][..self.m], factor, self.phi(self.here[i]));
        }
    }

    /// The sum of squared temporal differences `r + gamma q(s', a') - q(s, a)` with the logged next actions, and their number.
    pub fn residuals(&self, gamma: f64, theta: &[f64]) -> (f64, usize) {
        let q = |state: u32, action: u32| linalg::dot(self.phi(state), self.weights_of(theta, action));
        let rows = (0..self.len()).filter_map(|i| Some((i, self.next_action(i)?)));
        let all = rows.map(|(i, after)| {
            let next = if self.next[i] == END { 0.0 } else { q(self.next[i], after) };
            self.rewards[i] + gamma * next - q(self.here[i], self.taken[i])
        });
        all.fold((0.0, 0), |(sum, n), error| (sum + error * error, n + 1))
    }

    /// The greedy action of theta in the next state of each row, n numbers; `None` for rows that ended their episodes.
    pub fn choices(&self, theta: &[f64]) -> Vec<Option<u32>> {
        let mut q = Vec::new();
        self.next.iter().map(|next| (*next != END).then(|| self.choice(*next, theta, &mut q))).collect()
    }

    /// The largest `|q(s, a)|` in all logged states.
    pub fn largest_value(&self, theta: &[f64]) -> f64 {
        let (mut q, mut most) = (Vec::new(), 0.0f64);
        for state in 0..self.states() as u32 {
            self.values(state, theta, &mut q);
            most = q.iter().fold(most, |most, q| most.max(q.abs()));
        }
        most
    }

    /// The share of the rows' states in which fewer than `least` rows are behind the choice of theta, `1 / (phi^T inverse_a phi)`.
    pub fn rare_share(&self, coverage: &Coverage, theta: &[f64], least: f64) -> f64 {
        let mut q = Vec::new();
        let mut is_rare = |state: u32| {
            let action = self.choice(state, theta, &mut q) as usize;
            coverage.h(self.phi(state), action) * least > 1.0
        };
        self.here.iter().filter(|state| is_rare(**state)).count() as f64 / self.len() as f64
    }

    /// The sum of `q(s, a)` over the first states of episodes with the choice a of theta, and the number of episodes.
    pub fn start_values(&self, theta: &[f64]) -> (f64, usize) {
        let mut q = Vec::new();
        let mut value = |state: u32| {
            let action = self.choice(state, theta, &mut q);
            linalg::dot(self.phi(state), self.weights_of(theta, action))
        };
        (self.starts.iter().map(|state| value(*state)).sum(), self.starts.len())
    }

    /// `out = mean psi (r + gamma q(s', a') - q(s, a)) - EPS theta`, with the choice a' of theta in the next state; d numbers.
    pub fn operator(&self, gamma: f64, ridge: f64, theta: &[f64], out: &mut [f64]) {
        out.fill(0.0);
        let (share, mut q) = (1.0 / self.len() as f64, Vec::new());
        for i in 0..self.len() {
            let after = match self.next[i] {
                END => 0.0,
                next => {
                    let action = self.choice(next, theta, &mut q);
                    q[action as usize]
                }
            };
            let (phi, action) = (self.phi(self.here[i]), self.taken[i]);
            let error = self.rewards[i] + gamma * after - linalg::dot(phi, self.weights_of(theta, action));
            linalg::add_scaled(&mut out[action as usize * self.m..][..self.m], share * error, phi);
        }
        linalg::add_scaled(out, -ridge, theta);
    }

    /// The sums that depend on no policy: `mean psi psi^T` and `mean psi r`.
    pub fn fit(&self) -> System {
        self.fit_of(|_| true)
    }

    /// The same over some rows, divided by n.
    fn fit_of(&self, is_used: impl Fn(usize) -> bool) -> System {
        let (d, share) = (self.dim(), 1.0 / self.len() as f64);
        let (mut a, mut b) = (Mat::zeros(d, d), vec![0.0; d]);
        self.add_outer(share, &mut a, |i| is_used(i).then_some((self.here[i], self.taken[i])));
        for i in (0..self.len()).filter(|i| is_used(*i)) {
            linalg::add_scaled(&mut b[self.taken[i] as usize * self.m..][..self.m], share * self.rewards[i], self.phi(self.here[i]));
        }
        System { a, b }
    }

    /// `C = mean psi psi(s', a')^T` over rows that did not end their episodes, with the choice a' of theta; times a factor, added to a d x d
    /// matrix.
    pub fn add_next(&self, factor: f64, theta: &[f64], to: &mut Mat<f64>) {
        let choices = self.choices(theta);
        self.add_outer(factor / self.len() as f64, to, |i| Some((self.next[i], choices[i]?)));
    }

    /// The system of the policy that acted, `mean psi (psi - gamma psi(s', a'))^T + EPS I` and `mean psi r`, with the logged next actions a'.
    /// It uses the rows whose next action is known, and is divided by n; the ridge is multiplied by their share, so that the weighted sum over
    /// agents has the solution of the mean over all these rows.
    pub fn behaviour(&self, gamma: f64, ridge: f64) -> System {
        let n = self.len() as f64;
        let mut system = self.fit_of(|i| self.next_action(i).is_some());
        self.add_outer(-gamma / n, &mut system.a, |i| {
            let next = Some(self.next[i]).filter(|next| *next != END)?;
            Some((next, self.next_action(i)?))
        });
        add_ridge(&mut system.a, ridge * self.rows_with_next_action() as f64 / n);
        system
    }

    /// Adds `factor sum psi(s_i, a_i) psi(x, a)^T` over the rows i for which `other` has the pair `(x, a)`.
    ///
    /// Rows are sorted by the actions `(a_i, a)`, so that each block of m x m numbers is a sum of products of matrices.
    fn add_outer(&self, factor: f64, to: &mut Mat<f64>, other: impl Fn(usize) -> Option<(u32, u32)>) {
        let (m, k) = (self.m, self.actions);
        let mut rows: Vec<(usize, u32, u32)> = Vec::with_capacity(self.len());
        rows.extend((0..self.len()).filter_map(|i| {
            let (state, action) = other(i)?;
            Some((self.taken[i] as usize * k + action as usize, self.here[i], state))
        }));
        // Sums keep the order of the rows.
        rows.sort_by_key(|(at, ..)| *at);
        let block = || Mat::<f64>::zeros(m, BLOCK);
        let (mut left, mut right, mut sum) = (block(), block(), Mat::<f64>::zeros(m, m));
        for rows in rows.chunk_by(|(at, ..), (other, ..)| at == other) {
            let at = rows[0].0;
            sum.fill(0.0);
            for rows in rows.chunks(BLOCK) {
                for (j, (_, x, y)) in rows.iter().enumerate() {
                    left.col_as_slice_mut(j).copy_from_slice(self.phi(*x));
                    right.col_as_slice_mut(j).copy_from_slice(self.phi(*y));
                }
                linalg::add_outer(&mut sum, left.subcols(0, rows.len()), right.subcols(0, rows.len()));
            }
            let mut block = to.as_mut().submatrix_mut(at / k * m, at % k * m, m, m);
            block += faer::Scale(factor) * &sum;
        }
    }
}

/// Adds `ridge I`.
pub(super) fn add_ridge(a: &mut Mat<f64>, ridge: f64) {
    (0..a.nrows()).for_each(|i| a[(i, i)] += ridge);
}
