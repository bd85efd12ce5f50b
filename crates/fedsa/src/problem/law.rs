//! The finite law of a sample, with its means, second moments and mixing times.

use faer::Mat;

use crate::error::{Error, Result, require};
use crate::linalg;
use crate::problem::systems::Moments;

/// Rows of a transition matrix must sum to 1 within this.
pub const ROW_SUM_TOLERANCE: f64 = 1e-8;

/// Writes `g(theta, z)`, d numbers; the arguments are z, theta (d numbers) and the output.
type Operator<'a> = Box<dyn Fn(usize, &[f64], &mut [f64]) + Send + Sync + 'a>;
/// Writes `A(z)`, d x d in row-major order, and `b(z)`, d numbers; the arguments are z and the two outputs.
type Parts<'a> = Box<dyn Fn(usize, &mut [f64], &mut [f64]) + Send + Sync + 'a>;

enum Values<'a> {
    Linear(Parts<'a>),
    Any(Operator<'a>),
}

/// The law of one sample z of one agent: values `0..n`, their probabilities, the operator at each value, and the Markov chain of
/// trajectories.
pub struct FiniteLaw<'a> {
    d: usize,
    /// The stationary probability of each z, n of them, summing to 1.
    mass: Vec<f64>,
    values: Values<'a>,
    chain: Option<Chain>,
}

/// A finite Markov chain whose moves are the samples: sample z leaves state `from[z]` with
/// probability `p[z]` and enters state `to[z]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Chain {
    /// The state that each sample leaves, n numbers below S.
    pub from: Vec<u32>,
    /// The state that each sample enters, n numbers below S.
    pub to: Vec<u32>,
    /// The probability of each sample given its state, n numbers that sum to 1 for each state.
    pub p: Vec<f64>,
    /// The stationary law of the states, S numbers summing to 1.
    pub law: Vec<f64>,
}

/// The largest number of states S for a dense matrix, whose products take S^3 operations.
const MAX_STATES: usize = 4000;
/// Chains with a second eigenvalue of this modulus or more count as periodic or reducible.
const PERIODIC: f64 = 1.0 - 1e-12;

impl<'a> FiniteLaw<'a> {
    /// A law of linear operators `g(theta, z) = b(z) - A(z) theta` in R^d: `parts` writes `A(z)`, d x d in
    /// row-major order, and `b(z)`.
    pub fn linear(d: usize, mass: Vec<f64>, parts: impl Fn(usize, &mut [f64], &mut [f64]) + Send + Sync + 'a) -> Self {
        Self { d, mass, values: Values::Linear(Box::new(parts)), chain: None }
    }

    /// A law of operators in R^d: `operator` writes `g(theta, z)`.
    pub fn new(d: usize, mass: Vec<f64>, operator: impl Fn(usize, &[f64], &mut [f64]) + Send + Sync + 'a) -> Self {
        Self { d, mass, values: Values::Any(Box::new(operator)), chain: None }
    }

    /// The same law with the chain that trajectories follow.
    pub fn with_chain(self, chain: Chain) -> Self {
        Self { chain: Some(chain), ..self }
    }

    /// The law of linear operators with `ridge I` added to every `A(z)`; the same law if operators are not linear.
    #[must_use]
    pub fn with_ridge(self, ridge: f64) -> Self {
        let d = self.d;
        let values = match self.values {
            Values::Linear(parts) => Values::Linear(Box::new(move |z, a: &mut [f64], b: &mut [f64]| {
                parts(z, a, b);
                (0..d).for_each(|i| a[i * d + i] += ridge);
            })),
            any @ Values::Any(_) => any,
        };
        Self { values, ..self }
    }

    /// The dimension d.
    pub fn dim(&self) -> usize {
        self.d
    }

    /// The stationary probability of each z, n numbers.
    pub fn mass(&self) -> &[f64] {
        &self.mass
    }

    /// The chain that trajectories follow, if samples are not independent.
    pub fn chain(&self) -> Option<&Chain> {
        self.chain.as_ref()
    }

    /// Writes `g(theta, z)` into `out`; theta and out have d components.
    pub fn operator(&self, z: usize, theta: &[f64], out: &mut [f64]) {
        match &self.values {
            Values::Any(operator) => operator(z, theta, out),
            Values::Linear(parts) => {
                let mut a = vec![0.0; self.d * self.d];
                parts(z, &mut a, out);
                for (out, row) in out.iter_mut().zip(a.chunks(self.d)) {
                    *out -= row.iter().zip(theta).map(|(a, x)| a * x).sum::<f64>();
                }
            }
        }
    }

    /// Writes `A(z)`, d x d in row-major order, and `b(z)`, d numbers. Returns false, and writes nothing, if operators are not
    /// linear.
    pub fn parts(&self, z: usize, a: &mut [f64], b: &mut [f64]) -> bool {
        let Values::Linear(parts) = &self.values else { return false };
        parts(z, a, b);
        true
    }

    /// `E g(theta, z)`, d numbers.
    pub fn mean(&self, theta: &[f64]) -> Vec<f64> {
        let (mut mean, mut g) = (vec![0.0; self.d], vec![0.0; self.d]);
        for (z, w) in self.charged() {
            self.operator(z, theta, &mut g);
            mean.iter_mut().zip(&g).for_each(|(mean, g)| *mean += w * g);
        }
        mean
    }

    /// The covariance of `g(theta, z)` under the stationary law, d x d.
    pub fn covariance(&self, theta: &[f64]) -> Mat<f64> {
        let mean = self.mean(theta);
        let (mut g, mut sum) = (vec![0.0; self.d], Mat::zeros(self.d, self.d));
        for (z, w) in self.charged() {
            self.operator(z, theta, &mut g);
            g.iter_mut().zip(&mean).for_each(|(g, mean)| *g -= mean);
            let away = linalg::column(&g);
            linalg::add_outer(&mut sum, (faer::Scale(w) * &away).as_ref(), away.as_ref());
        }
        sum
    }

    /// The values with a positive probability, each with its probability.
    fn charged(&self) -> impl Iterator<Item = (usize, f64)> + '_ {
        self.mass.iter().copied().enumerate().filter(|(_, w)| *w != 0.0)
    }

    /// The second moments of `(A(z), b(z))`; `None` if operators are not linear.
    ///
    /// With `v = (A, b)` as d^2 + d numbers, `E v v^T` contains every entry of the moments. It is a sum of matrix products, `n (d^2 + d)^2`
    /// operations for n values.
    pub fn moments(&self) -> Option<Moments> {
        /// The number of values in a matrix product.
        const BLOCK: usize = 128;
        let Values::Linear(parts) = &self.values else { return None };
        let (d, size) = (self.d, self.d * self.d + self.d);
        let mut second = Mat::<f64>::zeros(size, size);
        let (mut v, mut weighted) = (Mat::<f64>::zeros(size, BLOCK), Mat::<f64>::zeros(size, BLOCK));
        let mut filled = 0;
        let mut add = |v: &Mat<f64>, weighted: &Mat<f64>, filled: usize| {
            linalg::add_outer(&mut second, v.subcols(0, filled), weighted.subcols(0, filled));
        };
        for (z, w) in self.charged() {
            let (a, b) = v.col_as_slice_mut(filled).split_at_mut(d * d);
            parts(z, a, b);
            let column = v.col_as_slice(filled);
            weighted.col_as_slice_mut(filled).iter_mut().zip(column).for_each(|(out, x)| *out = w * x);
            filled += 1;
            if filled == BLOCK {
                add(&v, &weighted, filled);
                filled = 0;
            }
        }
        add(&v, &weighted, filled);
        Some(Moments {
            aa: Mat::from_fn(d * d, d * d, |row, col| second[((row / d) * d + col / d, (row % d) * d + col % d)]),
            ab: Mat::from_fn(d * d, d, |row, j| second[((row / d) * d + j, d * d + row % d)]),
            bb: Mat::from_fn(d, d, |i, k| second[(d * d + i, d * d + k)]),
        })
    }

    /// The mixing time of the operator (\[T\] Def. 4.2.1), in samples: the smallest tau with
    /// `||E[g(theta, z_k) | z_(k-tau)] - gbar(theta)|| <= eps (||theta|| + 1)` for every theta and every
    /// `z_(k-tau)` of the chain, transient ones included. `None` if no tau suffices, as for a periodic chain whose
    /// phase changes the operator.
    ///
    /// With `E[g] - gbar = db - dA theta`, the supremum over theta of the left side divided by `||theta|| + 1` is
    /// `max(||db||, ||dA||)` (2-norm), attained at theta = 0 or in the limit of large theta.
    ///
    /// # Errors
    /// When operators are not linear, samples follow no chain, the chain has too many states, or eps is not positive.
    pub fn operator_mixing_time(&self, eps: f64) -> Result<Option<u64>> {
        require(eps > 0.0, "eps", eps, "a positive number")?;
        let other = |what: &str| Error::new("", what, "a finite chain of linear operators");
        let Values::Linear(parts) = &self.values else { return Err(other("the operators are not linear")) };
        let chain = self.chain.as_ref().ok_or_else(|| other("samples follow no chain"))?;
        let (d, size, states) = (self.d, self.d * self.d + self.d, chain.law.len());
        let p = chain.matrix()?;
        let mut v = vec![0.0; size];
        let see = |z: usize, v: &mut [f64]| {
            let (a, b) = v.split_at_mut(d * d);
            parts(z, a, b);
        };
        let mut mean = vec![0.0; size];
        for (z, w) in self.charged() {
            see(z, &mut v);
            mean.iter_mut().zip(&v).for_each(|(mean, v)| *mean += w * v);
        }
        // Whether the larger norm of A and b exceeds eps. The Frobenius norm of A, at most sqrt(d) times its 2-norm, decides most cases
        // without singular values.
        let exceeds = |away: &[f64]| {
            let (a, b) = away.split_at(d * d);
            let frobenius = linalg::norm_sq(a).sqrt();
            linalg::norm_sq(b).sqrt() > eps
                || frobenius > eps * (d as f64).sqrt()
                || (frobenius > eps && linalg::norm2(&linalg::from_rows(d, d, a)) > eps)
        };
        let (mut seen, mut at_once, mut entered) = (Mat::<f64>::zeros(states, size), true, vec![false; states]);
        for z in (0..self.mass.len()).filter(|z| chain.p[*z] > 0.0) {
            see(z, &mut v);
            v.iter_mut().zip(&mean).for_each(|(v, mean)| *v -= mean);
            at_once = at_once && !exceeds(&v);
            entered[chain.to[z] as usize] = true;
            (0..size).for_each(|i| seen[(chain.from[z] as usize, i)] += chain.p[z] * v[i]);
        }
        if at_once {
            return Ok(Some(0));
        }
        // At the lag tau >= 1 the chain has made tau - 1 moves from the state that the sample entered.
        let is_near = |power: &Mat<f64>| {
            let now = power * &seen;
            let is_far = |s: usize| exceeds(&(0..size).map(|i| now[(s, i)]).collect::<Vec<_>>());
            !(0..states).filter(|s| entered[*s]).any(is_far)
        };
        Ok(first_power(&p, is_near).map(|moves| moves + 1))
    }
}

impl Chain {
    /// The transition probabilities of the states, S x S.
    ///
    /// # Errors
    /// When there are too many states for a dense matrix.
    pub fn matrix(&self) -> Result<Mat<f64>> {
        let states = self.law.len();
        require(states <= MAX_STATES, "", format!("a chain of {states} states"), &format!("at most {MAX_STATES}"))?;
        let mut p = Mat::zeros(states, states);
        for ((from, to), q) in self.from.iter().zip(&self.to).zip(&self.p) {
            p[(*from as usize, *to as usize)] += q;
        }
        Ok(p)
    }

    /// The second largest modulus of the eigenvalues of the transition matrix, counted with multiplicity: 1 for periodic chains,
    /// 0 for a single state.
    ///
    /// # Errors
    /// As [`Chain::matrix`], or when the iteration for eigenvalues does not converge.
    pub fn second_eigenvalue(&self) -> Result<f64> {
        second_modulus(&self.matrix()?)
    }

    /// The mixing time in total variation, in moves: the smallest t with
    /// `max_s (1/2) sum_u |P^t(s, u) - pi(u)| <= eps`. `None` if no t suffices, as for periodic chains.
    ///
    /// # Errors
    /// As [`Chain::second_eigenvalue`], or when eps is not positive.
    pub fn mixing_time(&self, eps: f64) -> Result<Option<u64>> {
        require(eps > 0.0, "eps", eps, "a positive number")?;
        let states = self.law.len();
        let far = |power: &Mat<f64>| {
            let from = |s: usize| 0.5 * (0..states).map(|u| (power[(s, u)] - self.law[u]).abs()).sum::<f64>();
            (0..states).map(from).fold(0.0, f64::max)
        };
        let p = self.matrix()?;
        // Such a chain stays at least 1/2 away from its stationary law, so high powers are not needed.
        if eps < 0.5 && second_modulus(&p)? >= PERIODIC {
            return Ok(None);
        }
        Ok(first_power(&p, |power| far(power) <= eps))
    }
}

fn second_modulus(p: &Mat<f64>) -> Result<f64> {
    let mut moduli: Vec<f64> = linalg::eigenvalues(p)?.iter().map(|(re, im)| re.hypot(*im)).collect();
    moduli.sort_by(|a, b| b.total_cmp(a));
    Ok(moduli.get(1).copied().unwrap_or(0.0))
}

/// The smallest t with `holds(P^t)`, for a statement that stays true for larger t: doubles t until it holds, then bisects. `None` if it
/// does not hold for `2^62`.
fn first_power(p: &Mat<f64>, holds: impl Fn(&Mat<f64>) -> bool) -> Option<u64> {
    let one = Mat::<f64>::identity(p.nrows(), p.nrows());
    if holds(&one) {
        return Some(0);
    }
    let mut powers = vec![p.clone()];
    while !holds(&powers[powers.len() - 1]) {
        // A statement that is false for the limit of the powers is false for all of them.
        if powers.len() == 63 {
            return None;
        }
        let last = &powers[powers.len() - 1];
        let mut next = last * last;
        // Rows are scaled to sum to 1, so that rounding errors do not grow with the power.
        for s in 0..next.nrows() {
            let sum: f64 = (0..next.ncols()).map(|u| next[(s, u)]).sum();
            (0..next.ncols()).for_each(|u| next[(s, u)] /= sum);
        }
        powers.push(next);
    }
    // The largest power for which it does not hold, bit by bit.
    let (mut below, mut power) = (0, one);
    for (k, step) in powers.iter().enumerate().rev().skip(1) {
        let next = &power * step;
        if !holds(&next) {
            (below, power) = (below + (1 << k), next);
        }
    }
    Some(below + 1)
}

/// The law of the noise x of one agent: `x <- M x + w`, `w ~ N(0, std^2 I)`, independent per agent.
#[derive(Debug, Clone)]
pub struct NoiseLaw {
    /// M, d x d, Schur-stable; zero for white noise.
    pub memory: Mat<f64>,
    /// The standard deviation of each component of w.
    pub std: f64,
    /// `E x x^T` in the stationary law, `Sigma = M Sigma M^T + std^2 I`, d x d.
    pub covariance: Mat<f64>,
    /// `E x_0 x_0^T` of the zero-mean noise before the first sample, d x d.
    pub start: Mat<f64>,
}
