//! One agent's chain and its samples, seen from the global root.

use faer::prelude::*;

use crate::map::EIGENVALUES;
use crate::work;
use fedsa::error::{Error, Result, require};
use fedsa::linalg::{self, Mat};
use fedsa::problem::law::FiniteLaw;

/// The most numbers that the moves of one agent may take.
const MAX_NUMBERS: usize = 1 << 26;
/// The most states for which dense K x K matrices are formed.
const MAX_STATES: usize = 4000;

/// A chain of K states whose moves are the samples of one agent. Several samples of one move from i to j count as several moves,
/// because only sums over moves matter.
#[derive(Debug, Clone)]
pub struct MarkovAgent {
    /// The weight p_c of the agent in the server's mean.
    pub weight: f64,
    /// The dimension d.
    pub dim: usize,
    /// The number of states K, all of one closed class.
    pub states: usize,
    /// The stationary law (K numbers, all positive).
    pub stationary: Vec<f64>,
    /// The moves, sorted by the state that they leave.
    pub moves: Vec<Move>,
    /// The number of each state in the problem (K). Transient states are left out.
    pub labels: Vec<u32>,
}

/// A move of a chain and its sample.
#[derive(Debug, Clone)]
pub struct Move {
    /// The state before the move.
    pub from: u32,
    /// The state after the move.
    pub to: u32,
    /// The probability of the move in the state `from`. The moves from one state have the sum 1.
    pub p: f64,
    /// `A` (d x d).
    pub a: Mat<f64>,
    /// `w = A theta* - b` (d).
    pub w: Vec<f64>,
}

/// `count` agents with the same chain, samples and weight, whose chains are independent.
#[derive(Debug, Clone)]
pub struct AgentClass {
    /// One of the agents, with the weight of a single agent.
    pub agent: MarkovAgent,
    /// The number of agents.
    pub count: usize,
}

impl MarkovAgent {
    /// The chain of one agent's sample law; `root` is the global root theta* (d).
    ///
    /// # Errors
    /// When the law has no chain or is not linear, the chain has several closed classes (names a state), or the moves take too
    /// much memory.
    pub fn new(law: &FiniteLaw<'_>, weight: f64, root: &[f64]) -> Result<Self> {
        let other = |what: &str| Error::not_known("", what, "a finite chain of linear operators");
        let chain = law.chain().ok_or_else(|| other("samples follow no chain"))?;
        let (d, n) = (law.dim(), chain.from.len());
        require(root.len() == d, "root", root.len(), &format!("{d} numbers"))?;
        let most = MAX_NUMBERS / (d * d + d);
        require(n <= most, "", format!("a chain with {n} moves in dimension {d}"), &format!("at most {most} moves"))?;
        let (mut a, mut b) = (vec![0.0; d * d], vec![0.0; d]);
        let mut moves = Vec::with_capacity(n);
        for z in (0..n).filter(|z| chain.p[*z] > 0.0) {
            if !law.parts(z, &mut a, &mut b) {
                return Err(other("the operators are not linear"));
            }
            let a = linalg::from_rows(d, d, &a);
            let w = linalg::mat_vec(&a, root).iter().zip(&b).map(|(x, b)| x - b).collect();
            moves.push(Move { from: chain.from[z], to: chain.to[z], p: chain.p[z], a, w });
        }
        let start = (0..chain.law.len()).max_by(|i, j| chain.law[*i].total_cmp(&chain.law[*j])).unwrap_or(0);
        let (class, _) = closed_class(chain.law.len(), &moves, start);
        if let Some(apart) = (0..class.len()).find(|s| !class[*s] && chain.law[*s] > 0.0) {
            return Err(reducible(apart, start));
        }
        Ok(Self::restricted(weight, d, &class, moves, |s| chain.law[s]))
    }

    /// The chain on the states of a closed class.
    fn restricted(weight: f64, dim: usize, class: &[bool], mut moves: Vec<Move>, law: impl Fn(usize) -> f64) -> Self {
        let labels: Vec<u32> = (0..class.len() as u32).filter(|s| class[*s as usize]).collect();
        let mut number = vec![0u32; class.len()];
        labels.iter().zip(0..).for_each(|(label, i)| number[*label as usize] = i);
        moves.retain(|m| class[m.from as usize]);
        moves.iter_mut().for_each(|m| (m.from, m.to) = (number[m.from as usize], number[m.to as usize]));
        moves.sort_by_key(|m| m.from);
        let stationary: Vec<f64> = labels.iter().map(|s| law(*s as usize)).collect();
        Self { weight, dim, states: labels.len(), stationary, moves, labels }
    }

    /// The moves, each with its stationary probability `pi_i P_ij`.
    pub fn charged(&self) -> impl Iterator<Item = (f64, &Move)> {
        self.moves.iter().map(|m| (self.stationary[m.from as usize] * m.p, m))
    }

    /// `Abar_c` (d x d).
    pub fn mean_a(&self) -> Mat<f64> {
        let mut mean = Mat::zeros(self.dim, self.dim);
        self.charged().for_each(|(q, m)| mean += Scale(q) * &m.a);
        mean
    }

    /// `wbar_c` (d).
    pub fn mean_w(&self) -> Vec<f64> {
        let mut mean = vec![0.0; self.dim];
        self.charged().for_each(|(q, m)| mean.iter_mut().zip(&m.w).for_each(|(mean, w)| *mean += q * w));
        mean
    }

    /// `sigma_A^2 = ||E A~^T A~||` with `A~ = A - Abar_c` (2-norm).
    pub fn noise_of_a(&self) -> f64 {
        let mean = self.mean_a();
        let mut sum = Mat::<f64>::zeros(self.dim, self.dim);
        for (q, m) in self.charged() {
            let away = &m.a - &mean;
            sum += Scale(q) * (away.transpose() * &away);
        }
        linalg::norm2(&sum)
    }

    /// Whether every state has a single move: a cycle of K samples, such as a replayed log, or for K = 1 no noise at all.
    pub fn is_deterministic(&self) -> bool {
        self.moves.len() == self.states
    }

    /// The transition probabilities P (K x K).
    ///
    /// # Errors
    /// When K is above 4000.
    pub fn transition_matrix(&self) -> Result<Mat<f64>> {
        let k = self.states;
        require(k <= MAX_STATES, "", format!("a chain of {k} states"), &format!("at most {MAX_STATES}"))?;
        let mut p = Mat::zeros(k, k);
        self.moves.iter().for_each(|m| p[(m.from as usize, m.to as usize)] += m.p);
        Ok(p)
    }

    /// The period: the greatest common divisor of the lengths of the chain's cycles, from the distances of a breadth-first search.
    pub fn period(&self) -> u64 {
        let mut after = vec![Vec::new(); self.states];
        self.moves.iter().for_each(|m| after[m.from as usize].push(m.to as usize));
        let mut distance: Vec<Option<u64>> = vec![None; self.states];
        let (mut queue, mut next, mut divisor) = (vec![0], 0, 0);
        distance[0] = Some(0);
        while next < queue.len() {
            let from = queue[next];
            next += 1;
            let there = distance[from].unwrap_or(0) + 1;
            for &to in &after[from] {
                match distance[to] {
                    None => {
                        distance[to] = Some(there);
                        queue.push(to);
                    }
                    Some(known) => divisor = gcd(divisor, known.abs_diff(there)),
                }
            }
        }
        divisor
    }

    /// The second largest modulus lambda of P's eigenvalues, counted with multiplicity: 1 if the chain is periodic, 0 if it has one
    /// state.
    ///
    /// # Errors
    /// As [`MarkovAgent::transition_matrix`], or when the eigenvalues do not converge.
    pub fn second_modulus(&self) -> Result<f64> {
        let mut moduli: Vec<f64> = {
            let p = self.transition_matrix()?;
            let found = work::dense(EIGENVALUES * (p.nrows() as f64).powi(3), move || linalg::eigenvalues(&p))??;
            found.iter().map(|(re, im)| re.hypot(*im)).collect()
        };
        moduli.sort_by(|a, b| b.total_cmp(a));
        Ok(moduli.get(1).copied().unwrap_or(0.0))
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn reducible(apart: usize, inside: usize) -> Error {
    Error::not_known(
        "",
        format!("the chain is reducible: state {inside} is not reached from state {apart}"),
        "a chain with one closed class",
    )
}

/// A closed class that is reached from `start`, and the states from which it is reached.
fn closed_class(states: usize, moves: &[Move], start: usize) -> (Vec<bool>, Vec<bool>) {
    let edges = |ends: &dyn Fn(&Move) -> (u32, u32)| {
        let mut edges = vec![Vec::new(); states];
        moves.iter().map(ends).for_each(|(from, to)| edges[from as usize].push(to as usize));
        edges
    };
    let (forward, backward) = (edges(&|m| (m.from, m.to)), edges(&|m| (m.to, m.from)));
    let reach = |edges: &[Vec<usize>], from: usize| {
        let (mut seen, mut open) = (vec![false; states], vec![from]);
        seen[from] = true;
        while let Some(s) = open.pop() {
            for t in &edges[s] {
                if !std::mem::replace(&mut seen[*t], true) {
                    open.push(*t);
                }
            }
        }
        seen
    };
    let mut state = start;
    loop {
        let (after, before) = (reach(&forward, state), reach(&backward, state));
        // From a transient state the search continues in a state without a way back, from which fewer states are reached.
        match (0..states).find(|s| after[*s] && !before[*s]) {
            Some(s) => state = s,
            None => return (after, before),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl MarkovAgent {
        /// A chain of states `0..states` with the given moves. The stationary law is computed.
        ///
        /// # Errors
        /// When the probabilities of a state's moves do not sum to 1, shapes do not fit, the chain has several closed classes (names
        /// a state), or more than 4000 states.
        pub(crate) fn from_moves(weight: f64, dim: usize, states: usize, moves: Vec<Move>) -> Result<Self> {
            let mut sums = vec![0.0; states];
            for m in &moves {
                let fits = (m.from.max(m.to) as usize) < states && m.w.len() == dim && (m.a.nrows(), m.a.ncols()) == (dim, dim);
                require(fits && m.p >= 0.0, "moves", format!("a move from {} to {}", m.from, m.to), "states, shapes and p >= 0 that fit")?;
                sums[m.from as usize] += m.p;
            }
            for (s, sum) in sums.iter().enumerate() {
                require((sum - 1.0).abs() < 1e-9, "moves", format!("a sum {sum} of probabilities in state {s}"), "a sum of 1")?;
            }
            let moves: Vec<Move> = moves.into_iter().filter(|m| m.p > 0.0).collect();
            let (class, reaches) = closed_class(states, &moves, 0);
            if let Some(apart) = reaches.iter().position(|reaches| !reaches) {
                let inside = class.iter().position(|inside| *inside).unwrap_or(0);
                return Err(reducible(apart, inside));
            }
            let mut agent = Self::restricted(weight, dim, &class, moves, |_| 0.0);
            // pi (P - I + 1 1^T) = 1^T.
            let p = agent.transition_matrix()?;
            let k = agent.states;
            let balance = Mat::from_fn(k, k, |j, i| p[(i, j)] + 1.0 - f64::from(u8::from(i == j)));
            agent.stationary = linalg::solve(&balance, &vec![1.0; k])?;
            Ok(agent)
        }
    }

    /// A move with `A = a` and `w = 0` in dimension 1.
    fn edge(from: u32, to: u32, p: f64, a: f64) -> Move {
        Move { from, to, p, a: linalg::from_rows(1, 1, &[a]), w: vec![0.0] }
    }

    #[test]
    fn means_are_those_of_the_stationary_law() {
        let moves = vec![edge(1, 0, 0.2, 2.0), edge(0, 0, 0.9, 1.0), edge(0, 1, 0.1, 3.0), edge(1, 1, 0.5, 2.0), edge(1, 1, 0.3, 0.0)];
        let agent = MarkovAgent::from_moves(1.0, 1, 2, moves).unwrap();
        assert!((agent.stationary[0] - 2.0 / 3.0).abs() < 1e-15);
        let mean = (2.0 * (0.9 + 0.3) + 0.4 + 1.0) / 3.0;
        assert!((agent.mean_a()[(0, 0)] - mean).abs() < 1e-15);
        assert!((agent.noise_of_a() - ((2.0 * (0.9 + 0.9) + 0.8 + 2.0) / 3.0 - mean * mean)).abs() < 1e-15);
        assert!((agent.second_modulus().unwrap() - 0.7).abs() < 1e-15);
    }

    #[test]
    fn transient_states_are_left_out_and_two_classes_refused() {
        // 0 is transient, 1 and 3 form the class.
        let moves = vec![edge(0, 2, 0.5, 0.0), edge(0, 0, 0.5, 0.0), edge(2, 3, 1.0, 1.0), edge(3, 2, 0.5, 1.0), edge(3, 3, 0.5, 1.0)];
        let mut moves: Vec<Move> = moves;
        moves.push(edge(1, 0, 1.0, 0.0));
        let agent = MarkovAgent::from_moves(1.0, 1, 4, moves).unwrap();
        assert_eq!((agent.states, &agent.labels[..], agent.moves.len()), (2, &[2, 3][..], 3));
        assert!((agent.stationary[1] - 2.0 / 3.0).abs() < 1e-15);
        let apart = vec![edge(0, 0, 1.0, 0.0), edge(1, 1, 1.0, 0.0)];
        let error = MarkovAgent::from_moves(1.0, 1, 2, apart.clone()).unwrap_err();
        assert!(error.what.contains("state 1"), "{error}");
        let law = FiniteLaw::linear(1, vec![0.5; 2], |_, a, b| (a[0], b[0]) = (1.0, 0.0));
        assert!(MarkovAgent::new(&law, 1.0, &[0.0]).unwrap_err().what.contains("no chain"));
        let chain = fedsa::problem::law::Chain { from: vec![0, 1], to: vec![0, 1], p: vec![1.0; 2], law: vec![0.5; 2] };
        assert!(MarkovAgent::new(&law.with_chain(chain), 1.0, &[0.0]).unwrap_err().what.contains("reducible"));
    }

    #[test]
    fn periods_are_those_of_the_cycles() {
        let chain = |states: usize, moves: &[(u32, u32, f64)]| {
            let one = |(from, to, p): &(u32, u32, f64)| edge(*from, *to, *p, 0.0);
            MarkovAgent::from_moves(1.0, 1, states, moves.iter().map(one).collect()).unwrap().period()
        };
        assert_eq!(chain(1, &[(0, 0, 1.0)]), 1);
        assert_eq!(chain(3, &[(0, 1, 1.0), (1, 2, 1.0), (2, 0, 1.0)]), 3);
        // Cycles of 2 and 4 states, and of 2 and 3.
        assert_eq!(chain(4, &[(0, 1, 1.0), (1, 0, 0.5), (1, 2, 0.5), (2, 3, 1.0), (3, 0, 1.0)]), 2);
        assert_eq!(chain(3, &[(0, 1, 1.0), (1, 0, 0.5), (1, 2, 0.5), (2, 0, 1.0)]), 1);
    }
}
