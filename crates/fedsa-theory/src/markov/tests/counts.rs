//! FedLSA with classes of exchangeable two-state agents under Markov samples: exact for hundreds of agents.
//!
//! The state is the number of agents of each class in state 1, so there are `prod (n_g + 1)` cells. A round is
//!
//! ```text
//! X' = sum_{c != e} p_c p_e F_c X F_e^T + sum_c p_c^2 K_c X
//! ```
//!
//! with `F_c[a, a'] = E[Pi_c 1{s_H = a'} | s_0 = a]`, `K_c` the same of `Pi_c (x) Pi_c`, and Pi_c the agent's local steps as a random
//! matrix on (u, 1). Each term singles out the one or two agents that act: given the counts, an agent of class g is in state 1 with
//! probability `k_g / n_g`. The counts of the other agents change by sums of two binomials.

use faer::Scale;

use crate::RoundSetting;
use crate::markov::one_agent::step;
use crate::markov::registers::RoundMap;
use crate::markov::stationary::CellMap;
use crate::markov::{AgentClass, MarkovAgent, MarkovFloor, check, check_samples};
use crate::phase::power_and_sum;
use crate::symmetric::{congruence, packed_len};
use fedsa::error::{Error, Result, require};
use fedsa::linalg::Mat;

/// The most unknowns.
const MAX_UNKNOWNS: usize = 1 << 20;

/// The exact mean and second moment of FedLSA's error, from counts of states.
#[derive(Debug, Clone)]
pub struct Counts {
    dim: usize,
    classes: Vec<Class>,
    law: Vec<f64>,
    /// The terms of the maps of means and of second moments.
    means: Vec<Term>,
    seconds: Vec<Term>,
}

#[derive(Debug, Clone)]
struct Class {
    weight: f64,
    agents: usize,
    /// `F[a][a']`, (d+1) x (d+1).
    mean: Kernels,
    /// `K[a][a']` on packed matrices.
    second: Kernels,
    /// The moves of the counts of n, n - 1 and n - 2 agents in a round: entry (k', k).
    others: [Mat<f64>; 3],
    law: Vec<f64>,
}

/// A matrix for each state before and after a round.
type Kernels = [[Mat<f64>; 2]; 2];

/// A term of a map, in which one or two agents act.
#[derive(Debug, Clone)]
struct Term {
    /// The sides of the grid of the other agents' counts.
    rest: Vec<usize>,
    /// The number of acting agents of each class.
    acting: Vec<usize>,
    /// For each combination of the acting agents' states and each cell of the rest: the cell of all counts, and the probability of
    /// the combination in it.
    cells: Vec<Vec<(usize, f64)>>,
    /// The agents' effect on the numbers of a cell, from each combination of states to each.
    actions: Vec<Vec<Mat<f64>>>,
}

/// The number of unknowns of the floor's second moments, `prod (n_g + 1)` packed matrices of d coordinates. `None` if an agent does
/// not have two states.
pub fn unknowns(classes: &[AgentClass]) -> Option<usize> {
    let d = classes.first()?.agent.dim;
    let cells = |cells: usize, class: &AgentClass| (class.agent.states == 2).then(|| cells.saturating_mul(class.count + 1));
    Some(classes.iter().try_fold(1, cells)?.saturating_mul(packed_len(d)))
}

/// Whether the floor has at most `most` unknowns.
pub fn reaches(classes: &[AgentClass], most: usize) -> bool {
    unknowns(classes).is_some_and(|n| n <= most)
}

impl Counts {
    /// The recursion of FedLSA; each local step takes the mean of `batch` consecutive samples.
    ///
    /// # Errors
    /// When an agent does not have two states, there are more than 2^20 unknowns, or as [`Joint::new`](crate::markov::joint::Joint::new).
    pub fn new(classes: &[AgentClass], setting: &RoundSetting, batch: u64) -> Result<Self> {
        check(classes, setting)?;
        check_samples(setting.local_steps, batch)?;
        if !reaches(classes, MAX_UNKNOWNS) {
            let what = unknowns(classes).map_or("a chain without exactly two states".to_string(), |n| format!("counts with {n} unknowns"));
            return Err(Error::not_known("", what, format!("classes of agents with two states, and at most {MAX_UNKNOWNS} unknowns")));
        }
        let classes: Vec<Class> = classes.iter().filter(|c| c.count > 0).map(|c| Class::new(c, setting, batch)).collect::<Result<_>>()?;
        let law = classes.iter().fold(vec![1.0], |law, c| law.iter().flat_map(|p| c.law.iter().map(move |q| p * q)).collect());
        let (mut means, mut seconds) = (Vec::new(), Vec::new());
        for (g, class) in classes.iter().enumerate() {
            let n = class.agents as f64;
            let each = |factor: f64, kernels: &Kernels| -> Vec<Vec<Mat<f64>>> {
                kernels.iter().map(|row| row.iter().map(|k| Scale(factor) * k).collect()).collect()
            };
            means.push(Term::new(&classes, &[g], each(n * class.weight, &class.mean)));
            seconds.push(Term::new(&classes, &[g], each(n * class.weight * class.weight, &class.second)));
            for (h, other) in classes.iter().enumerate().skip(g) {
                // Ordered pairs of different agents. Pairs of different classes count in both orders, which are transposes.
                let pairs = if g == h { n * (n - 1.0) } else { 2.0 * n * other.agents as f64 };
                if pairs > 0.0 {
                    let factor = pairs * class.weight * other.weight;
                    let action = |from: usize, to: usize| {
                        let (f, e) = (&class.mean[from & 1][to & 1], &other.mean[from >> 1][to >> 1]);
                        Scale(factor) * symmetric_product(f, e)
                    };
                    let actions = (0..4).map(|from| (0..4).map(|to| action(from, to)).collect()).collect();
                    seconds.push(Term::new(&classes, &[g, h], actions));
                }
            }
        }
        Ok(Self { dim: classes[0].mean[0][0].nrows() - 1, classes, law, means, seconds })
    }

    fn map(&self) -> &dyn CellMap {
        self
    }

    /// The floor of chains that start from their stationary laws.
    ///
    /// # Errors
    /// When the mean-square error diverges, or a linear solve does not converge.
    pub fn floor(&self) -> Result<MarkovFloor> {
        self.map().floor()
    }

    /// The spectral radius of the second moment's map of a round. The floor exists if it is below 1.
    ///
    /// # Errors
    /// When the leading eigenvalue does not converge.
    pub fn r2(&self) -> Result<f64> {
        self.map().second_radius()
    }

    /// The error at the start of each of `rounds` (ascending), from `offset = theta_0 - theta*` (d) and chains in their stationary
    /// laws.
    ///
    /// # Errors
    /// When rounds are not in ascending order or shapes differ.
    pub fn curve(&self, offset: &[f64], rounds: &[u64]) -> Result<Vec<MarkovFloor>> {
        require(offset.len() == self.dim, "theta_0", offset.len(), &format!("{} numbers", self.dim))?;
        self.map().curve(self.map().start(offset, &self.law), rounds)
    }

    /// The sum of all terms of a map of `width` numbers per cell.
    fn sum(&self, terms: &[Term], width: usize, x: &[f64], out: &mut [f64]) {
        out.fill(0.0);
        terms.iter().for_each(|term| term.add(&self.classes, width, x, out));
    }
}

impl CellMap for Counts {
    fn dim(&self) -> usize {
        self.dim
    }

    fn lasting(&self) -> usize {
        self.dim
    }

    fn law(&self) -> &[f64] {
        &self.law
    }

    fn mean(&self, x: &[f64], out: &mut [f64]) {
        self.sum(&self.means, self.dim + 1, x, out);
    }

    fn second_work(&self) -> f64 {
        let width = packed_len(self.dim + 1) as f64;
        let of = |term: &Term| {
            let (number, states) = (term.rest.iter().product::<usize>() as f64, term.cells.len() as f64);
            // The effect of the acting agents, and the moves of the others along each class.
            let moves: f64 = term.rest.iter().map(|side| *side as f64).sum();
            states * number * width * (states * width + moves)
        };
        self.seconds.iter().map(of).sum()
    }

    fn second(&self, x: &[f64], out: &mut [f64]) {
        self.sum(&self.seconds, packed_len(self.dim + 1), x, out);
    }
}

impl Term {
    /// The term in which agents of the classes `tags` act. The first one's state is the lowest bit of a combination.
    fn new(classes: &[Class], tags: &[usize], actions: Vec<Vec<Mat<f64>>>) -> Self {
        let all: Vec<usize> = classes.iter().map(|c| c.agents + 1).collect();
        let acting: Vec<usize> = (0..classes.len()).map(|g| tags.iter().filter(|t| **t == g).count()).collect();
        let rest: Vec<usize> = all.iter().zip(&acting).map(|(side, n)| side - n).collect();
        let number: usize = rest.iter().product();
        let cells = (0..1usize << tags.len()).map(|states| {
            let place = |cell: usize| {
                let mut counts = coordinates(cell, &rest);
                tags.iter().enumerate().for_each(|(t, g)| counts[*g] += states >> t & 1);
                (index(&counts, &all), probability(classes, tags, states, &counts))
            };
            (0..number).map(place).collect()
        });
        Self { cells: cells.collect(), rest, acting, actions }
    }

    /// Adds the term's contribution to the next round.
    fn add(&self, classes: &[Class], width: usize, x: &[f64], out: &mut [f64]) {
        let number: usize = self.rest.iter().product();
        for (to, targets) in self.cells.iter().enumerate() {
            // One grid after another for the numbers of a cell.
            let mut grid = vec![0.0; width * number];
            for (sources, actions) in self.cells.iter().zip(&self.actions) {
                let action = &actions[to];
                for (cell, (from, q)) in sources.iter().enumerate() {
                    for (j, x) in x[from * width..][..width].iter().enumerate() {
                        let x = q * x;
                        action.col_as_slice(j).iter().enumerate().for_each(|(i, a)| grid[i * number + cell] += a * x);
                    }
                }
            }
            for (g, class) in classes.iter().enumerate() {
                grid = along(&class.others[self.acting[g]], &grid, self.rest[g + 1..].iter().product());
            }
            for (cell, (at, _)) in targets.iter().enumerate() {
                out[at * width..][..width].iter_mut().enumerate().for_each(|(i, out)| *out += grid[i * number + cell]);
            }
        }
    }
}

/// The probability that the agents of classes `tags`, drawn one after the other, are in the given states, given the counts.
fn probability(classes: &[Class], tags: &[usize], states: usize, counts: &[usize]) -> f64 {
    let mut left: Vec<[usize; 2]> = classes.iter().zip(counts).map(|(c, k)| [c.agents - k, *k]).collect();
    let mut q = 1.0;
    for (t, g) in tags.iter().enumerate() {
        let agents = left[*g][0] + left[*g][1];
        let of_state = &mut left[*g][states >> t & 1];
        q *= *of_state as f64 / agents as f64;
        *of_state -= 1;
    }
    q
}

/// `X -> (F X E^T + E X F^T) / 2` on packed matrices.
fn symmetric_product(f: &Mat<f64>, e: &Mat<f64>) -> Mat<f64> {
    // By polarisation: (F + E) X (F + E)^T - (F - E) X (F - E)^T = 2 (F X E^T + E X F^T).
    Scale(0.25) * (congruence(&(f + e)) - congruence(&(f - e)))
}

impl Class {
    fn new(class: &AgentClass, setting: &RoundSetting, batch: u64) -> Result<Self> {
        let AgentClass { agent, count } = class;
        let (mean, second) = kernels(agent, setting, batch);
        let moves = setting.local_steps.saturating_mul(batch);
        let p = power_and_sum(&agent.transition_matrix()?, moves).0;
        let others = [0, 1, 2].map(|fewer| count_moves(&p, count.saturating_sub(fewer)));
        Ok(Self { weight: agent.weight, agents: *count, mean, second, others, law: binomial(*count, agent.stationary[1]) })
    }
}

/// `F[a][a']` on (u, 1), and `K[a][a']` on its packed second moments: the images of all units in state a.
fn kernels(agent: &MarkovAgent, setting: &RoundSetting, batch: u64) -> (Kernels, Kernels) {
    let (steps, registers) = step(0, 0, 1, setting.step_size, batch);
    let round = (0..setting.local_steps).flat_map(|_| steps.iter().cloned()).collect();
    let map = RoundMap::new(&[agent], 1, registers.max(1), round, false);
    let of = |n: usize, apply: &dyn Fn(&[f64], &mut [f64])| {
        let mut kernels: Kernels = std::array::from_fn(|_| std::array::from_fn(|_| Mat::zeros(n, n)));
        for (a, row) in kernels.iter_mut().enumerate() {
            for j in 0..n {
                let (mut unit, mut image) = (vec![0.0; 2 * n], vec![0.0; 2 * n]);
                unit[a * n + j] = 1.0;
                apply(&unit, &mut image);
                for (kernel, image) in row.iter_mut().zip(image.chunks_exact(n)) {
                    kernel.col_as_slice_mut(j).copy_from_slice(image);
                }
            }
        }
        kernels
    };
    let m = agent.dim + 1;
    (of(m, &|x, out| map.mean(x, out)), of(packed_len(m), &|x, out| map.second(x, out)))
}

/// The law of the number of successes in n trials.
fn binomial(n: usize, p: f64) -> Vec<f64> {
    // By adding trials: every term is positive, so that each probability is accurate to rounding.
    let mut law = vec![1.0];
    for _ in 0..n {
        law = (0..=law.len()).map(|k| law.get(k).map_or(0.0, |x| x * (1.0 - p)) + if k > 0 { law[k - 1] * p } else { 0.0 }).collect();
    }
    law
}

/// The probability that k of n agents in state 1 become k', entry (k', k), for the two-state transition probabilities p.
fn count_moves(p: &Mat<f64>, n: usize) -> Mat<f64> {
    let mut moves = Mat::zeros(n + 1, n + 1);
    for k in 0..=n {
        let (stay, come) = (binomial(k, p[(1, 1)]), binomial(n - k, p[(0, 1)]));
        for (i, stay) in stay.iter().enumerate() {
            come.iter().enumerate().for_each(|(j, come)| moves[(i + j, k)] += stay * come);
        }
    }
    moves
}

/// Applies a square matrix along an axis of a grid whose later axes have `inner` cells.
fn along(m: &Mat<f64>, grid: &[f64], inner: usize) -> Vec<f64> {
    let n = m.nrows();
    let mut out = vec![0.0; grid.len()];
    for (out, grid) in out.chunks_exact_mut(n * inner).zip(grid.chunks_exact(n * inner)) {
        for (k, source) in grid.chunks_exact(inner).enumerate() {
            let column = m.col_as_slice(k);
            if let [x] = source {
                out.iter_mut().zip(column).for_each(|(out, m)| *out += m * x);
                continue;
            }
            for (out, m) in out.chunks_exact_mut(inner).zip(column) {
                out.iter_mut().zip(source).for_each(|(out, x)| *out += m * x);
            }
        }
    }
    out
}

/// The counts of a cell; the last class changes fastest.
fn coordinates(mut cell: usize, sides: &[usize]) -> Vec<usize> {
    let mut counts = vec![0; sides.len()];
    for (count, side) in counts.iter_mut().zip(sides).rev() {
        *count = cell % side;
        cell /= side;
    }
    counts
}

/// The cell of counts.
fn index(counts: &[usize], sides: &[usize]) -> usize {
    counts.iter().zip(sides).fold(0, |cell, (k, side)| cell * side + k)
}
