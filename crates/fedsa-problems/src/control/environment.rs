//! Finite Markov decision processes. A pair i = s A + a is a state s with an action a.

use crate::td::mrp::{Mrp, Successor};
use faer::Mat;
use fedsa::error::Result;
use fedsa::random::Stream;

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
    /// The states that return for ever, if every action is possible. All policies with positive probabilities have this class.
    closed: Vec<usize>,
}

/// Working memory of [`Environment::stationary`].
#[derive(Debug, Default)]
pub(crate) struct Workspace {
    matrix: Vec<f64>,
}

impl Environment {
    /// The process with these moves of each pair, (next state, probability), and the pairs' rewards.
    ///
    /// # Errors
    /// When the chain of all actions has several closed classes.
    pub fn new(actions: usize, moves: &[Vec<(u32, f64)>], rewards: Vec<f64>) -> Result<Self> {
        let row =
            |moves: &[Vec<(u32, f64)>]| moves.iter().flatten().map(|(next, p)| Successor { next: *next, p: *p, reward: 0.0 }).collect();
        let any = Mrp { states: moves.chunks(actions).map(row).collect(), gamma: 0.0 };
        let closed = any.closed_class()?;
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
        Ok(Self { states: moves.len() / actions, actions, starts, next, p, sums, rewards, closed })
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
        Environment::new(2, &moves, vec![0.0; 8]).unwrap()
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
