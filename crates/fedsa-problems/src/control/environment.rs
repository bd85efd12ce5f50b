//! Finite Markov decision processes. A pair i = s A + a is a state s with an action a.

use crate::linear::file;
use crate::td::garnet::Garnet;
use crate::td::mrp::{Mrp, Successor};
use faer::Mat;
use fedsa::cancel::Cancel;
use fedsa::error::{Result, require};
use fedsa::parallel;
use fedsa::problem::arrays::Arrays;
use fedsa::random::{ALL, Purpose, Stream, stream};

/// The most states: values of policies take a linear solve of this size.
pub(super) const MAX_STATES: usize = 200;

/// The process of one kind of agents.
#[derive(Debug, Clone)]
pub(crate) struct Environment {
    pub states: usize,
    pub actions: usize,
    /// The moves of pair i are `starts[i]..starts[i + 1]`.
    starts: Vec<usize>,
    /// The next state of each move.
    next: Vec<u32>,
    /// The probability of each move, given its pair.
    p: Vec<f64>,
    /// The sums of these probabilities up to each move; the last one of a pair is infinite.
    sums: Vec<f64>,
    /// The reward of each pair.
    pub rewards: Vec<f64>,
    /// The states that return for ever, if every action is possible; empty unless [`Environment::with_one_class`] found them. All policies with
    /// positive probabilities have this class.
    closed: Vec<usize>,
}

/// The environments of agents that differ: those of a Garnet whose uniform policy takes every action.
pub(super) fn draw(garnet: &Garnet, cancel: &Cancel) -> Result<Vec<Environment>> {
    let plan = garnet.plan();
    let mut s = stream(garnet.seed, Purpose::Reward, 0, ALL);
    let rewards: Vec<f64> = (0..garnet.states * garnet.actions).map(|_| s.uniform()).collect();
    let shared = garnet.shared(&plan)?;
    parallel::try_map(garnet.kinds(&plan), |c| {
        cancel.check()?;
        let mrp = garnet.agent(&plan, &shared, &rewards, c)?;
        let each = || mrp.states.iter().flat_map(|row| row.chunks(garnet.branching));
        let moves: Vec<Vec<(u32, f64)>> =
            each().map(|row| row.iter().map(|to| (to.next, to.p * garnet.actions as f64)).collect()).collect();
        Ok(Environment::new(garnet.actions, &moves, each().map(|row| row[0].reward).collect()))
    })
}

/// The environments of a file, `P` (n, S, A, S) and `R` (n, S, A), with `gamma`.
///
/// # Errors
/// When an array is missing, or has a wrong shape or value; the error names the array.
pub(super) fn read(arrays: &Arrays) -> Result<(Vec<Environment>, f64)> {
    let (p, r) = (file::get(arrays, "P")?, file::get(arrays, "R")?);
    let &[kinds, states, actions, next] = p.shape() else { return Err(file::wrong_shape("P", p, "(n, S, A, S)")) };
    if kinds == 0 || actions == 0 || states != next || !(1..=MAX_STATES).contains(&states) {
        return Err(file::wrong_shape("P", p, &format!("(n, S, A, S) with at most {MAX_STATES} states")));
    }
    if r.shape() != [kinds, states, actions] {
        return Err(file::wrong_shape("R", r, &format!("({kinds}, {states}, {actions})")));
    }
    file::probabilities("P", p)?;
    let gamma = file::scalar(file::get(arrays, "gamma")?, "gamma")?;
    require((0.0..1.0).contains(&gamma), "gamma", gamma, "in [0, 1)")?;
    let pairs = states * actions;
    let environment = |c: usize| {
        let row = |p: &[f64]| p.iter().enumerate().filter(|(_, p)| **p > 0.0).map(|(t, p)| (t as u32, *p)).collect();
        let moves: Vec<Vec<(u32, f64)>> = p.data()[c * pairs * states..][..pairs * states].chunks(states).map(row).collect();
        Environment::new(actions, &moves, r.data()[c * pairs..][..pairs].to_vec())
    };
    Ok((parallel::map(kinds, environment), gamma))
}

/// Working memory of [`Environment::stationary`].
#[derive(Debug, Default)]
pub(crate) struct Workspace {
    matrix: Vec<f64>,
}

impl Environment {
    /// The process with these moves of each pair, (next state, probability), and the pairs' rewards.
    pub fn new(actions: usize, moves: &[Vec<(u32, f64)>], rewards: Vec<f64>) -> Self {
        let mut starts = vec![0];
        let (mut next, mut p, mut sums) = (Vec::new(), Vec::new(), Vec::new());
        for moves in moves {
            let mut sum = 0.0;
            for (k, (state, probability)) in moves.iter().enumerate() {
                sum += probability;
                next.push(*state);
                p.push(*probability);
                sums.push(if k + 1 == moves.len() { f64::INFINITY } else { sum });
            }
            starts.push(next.len());
        }
        Self { states: moves.len() / actions, actions, starts, next, p, sums, rewards, closed: Vec::new() }
    }

    /// The same process with its closed class, for [`Environment::stationary`].
    ///
    /// # Errors
    /// When the chain of all actions has several closed classes.
    pub fn with_one_class(mut self) -> Result<Self> {
        let moves = |state| self.pairs_of(state).flat_map(|pair| self.moves(pair));
        let row = |state| moves(state).map(|(next, p)| Successor { next: next as u32, p, reward: 0.0 }).collect();
        self.closed = Mrp { states: (0..self.states).map(row).collect(), gamma: 0.0 }.closed_class()?;
        Ok(self)
    }

    /// The number of pairs.
    pub fn pairs(&self) -> usize {
        self.rewards.len()
    }

    /// The number of moves of all pairs.
    pub fn moves_in_all(&self) -> usize {
        self.next.len()
    }

    /// The pairs of a state.
    #[inline(always)]
    pub fn pairs_of(&self, state: usize) -> std::ops::Range<usize> {
        state * self.actions..(state + 1) * self.actions
    }

    /// The moves of a pair: next states and probabilities.
    #[inline(always)]
    pub fn moves(&self, pair: usize) -> impl Iterator<Item = (usize, f64)> + '_ {
        let moves = self.starts[pair]..self.starts[pair + 1];
        self.next[moves.clone()].iter().zip(&self.p[moves]).map(|(next, p)| (*next as usize, *p))
    }

    /// Draws the next state of a pair.
    #[inline(always)]
    pub fn draw(&self, pair: usize, stream: &mut Stream) -> usize {
        let (first, last) = (self.starts[pair], self.starts[pair + 1]);
        let u = stream.uniform();
        self.next[first + self.sums[first..last].partition_point(|sum| *sum <= u)] as usize
    }

    /// The transition probabilities of the states under a policy, which has one probability for each pair.
    pub fn kernel(&self, policy: &[f64]) -> Mat<f64> {
        let mut kernel = Mat::zeros(self.states, self.states);
        for (pair, pi) in policy.iter().enumerate() {
            self.moves(pair).for_each(|(next, p)| kernel[(pair / self.actions, next)] += pi * p);
        }
        kernel
    }

    /// Writes the stationary law of the states under a policy with positive probabilities: elimination without subtractions, so that all
    /// digits are right (Grassmann, Taksar, Heyman 1985).
    pub fn stationary(&self, policy: &[f64], work: &mut Workspace, law: &mut Vec<f64>) {
        let n = self.closed.len();
        let place = |state: usize| self.closed.binary_search(&state).expect("moves stay in the closed class");
        let q = &mut work.matrix;
        q.clear();
        q.resize(n * n, 0.0);
        for (i, state) in self.closed.iter().enumerate() {
            for pair in self.pairs_of(*state) {
                self.moves(pair).for_each(|(next, p)| q[i * n + place(next)] += policy[pair] * p);
            }
        }
        for k in (1..n).rev() {
            let leaves: f64 = q[k * n..k * n + k].iter().sum();
            for i in 0..k {
                let share = q[i * n + k] / leaves;
                q[i * n + k] = share;
                (0..k).for_each(|j| q[i * n + j] += share * q[k * n + j]);
            }
        }
        law.clear();
        law.resize(self.states, 0.0);
        let mut sum = 0.0;
        for k in 0..n {
            let x = if k == 0 { 1.0 } else { (0..k).map(|i| law[self.closed[i]] * q[i * n + k]).sum() };
            law[self.closed[k]] = x;
            sum += x;
        }
        law.iter_mut().for_each(|x| *x /= sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three states that return, and one that is left.
    fn environment() -> Environment {
        let moves = [
            vec![(1, 0.5), (2, 0.5)],
            vec![(0, 1.0)],
            vec![(2, 1.0)],
            vec![(0, 0.25), (1, 0.75)],
            vec![(0, 0.3), (2, 0.7)],
            vec![(1, 1.0)],
            vec![(0, 1.0)],
            vec![(3, 0.5), (1, 0.5)],
        ];
        Environment::new(2, &moves, vec![0.0; 8]).with_one_class().unwrap()
    }

    #[test]
    fn the_stationary_law_does_not_change_in_a_move() {
        let environment = environment();
        let policy = [0.2, 0.8, 0.4, 0.6, 0.9, 0.1, 0.5, 0.5];
        let mut law = Vec::new();
        environment.stationary(&policy, &mut Workspace::default(), &mut law);
        let kernel = environment.kernel(&policy);
        let after: Vec<f64> = (0..4).map(|t| (0..4).map(|s| law[s] * kernel[(s, t)]).sum()).collect();
        assert!(after.iter().zip(&law).all(|(x, y)| (x - y).abs() < 1e-15), "{law:?} {after:?}");
        assert_eq!((law[3], law.iter().sum::<f64>()), (0.0, 1.0));
        assert!(law[..3].iter().all(|x| *x > 0.1));
    }

    #[test]
    fn moves_are_drawn_as_often_as_probable() {
        let environment = environment();
        let mut stream = fedsa::random::stream(1, fedsa::random::Purpose::Sample, 0, 0);
        let n = 40_000;
        let ones = (0..n).filter(|_| environment.draw(3, &mut stream) == 1).count() as f64 / f64::from(n);
        assert!((ones - 0.75).abs() < 4.0 * (0.75f64 * 0.25 / f64::from(n)).sqrt(), "{ones}");
        assert!((0..100).all(|_| environment.draw(1, &mut stream) == 0));
    }
}
