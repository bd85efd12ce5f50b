//! Directions from mean gradients: the gradient itself, Nesterov's, and those of quasi-Newton methods.

use std::collections::VecDeque;

use super::descent::Direction;
use crate::linalg::dot;
use crate::local::line_search::AcceptedStep;

/// `-scale g`: gradient descent by a fixed step, and the direction of methods whose agents give theirs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gradient {
    /// The factor of g; 1 where a step is a share of g.
    pub scale: f64,
}

impl Direction for Gradient {
    fn direction(&mut self, _: &[f64], g: &[f64], _: bool) -> Vec<f64> {
        g.iter().map(|g| -self.scale * g).collect()
    }
}

/// The least share of the longest step that a search may begin with.
const SHORTEST: f64 = 1e-90;

/// The first trial step after a search that ended at the share `last` of the step: the next one that it would have tried.
fn shorter(step: f64, last: f64) -> f64 {
    (0.5 * last * step).max(SHORTEST.min(step))
}

/// The share of the longest step along -g at which a search begins: 1, until even the smallest trial step was too long. Without it
/// a search that fails would fail for ever, because its point and direction stay.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Scale(f64);

impl Default for Scale {
    fn default() -> Self {
        Self(1.0)
    }
}

impl Scale {
    /// `-longest scale g`.
    fn direction(self, longest: f64, g: &[f64]) -> Vec<f64> {
        g.iter().map(|g| -longest * self.0 * g).collect()
    }

    /// After a step along -g: a search whose first trial step was good begins with a longer one next time.
    fn moved(&mut self, by: AcceptedStep) {
        if by.step == 1.0 && by.is_proven {
            self.0 = (2.0 * self.0).min(1.0);
        }
    }

    /// After a search along -g without a step. Gradients and losses of different agents say nothing of the length.
    fn failed(&mut self, last: f64, is_whole: bool) {
        if is_whole {
            self.0 = shorter(self.0, last);
        }
    }

    fn fits(self) -> bool {
        self.0 > 0.0 && self.0 <= 1.0
    }
}

/// `-longest g` with backtracking: gradient descent.
#[derive(Debug, Clone, PartialEq)]
pub struct Steepest {
    /// The longest step.
    longest: f64,
    scale: Scale,
    /// The last step that lowered the loss by more than rounding errors, as a share of the longest one. Near the optimum, where
    /// rounding errors allow every step, longer ones might be above 2 / L and bring the iterate away from it.
    proven: Option<f64>,
}

impl Steepest {
    /// The rule before its first round.
    pub fn new(longest: f64) -> Self {
        Self { longest, scale: Scale::default(), proven: None }
    }
}

impl Direction for Steepest {
    fn direction(&mut self, _: &[f64], g: &[f64], _: bool) -> Vec<f64> {
        self.scale.direction(self.longest, g)
    }

    fn longest_by_rounding(&self) -> f64 {
        self.proven.map_or(f64::INFINITY, |proven| proven / self.scale.0)
    }

    fn moved(&mut self, _: &[f64], _: &[f64], by: AcceptedStep) {
        if by.is_proven {
            self.proven = Some(self.scale.0 * by.step);
        }
        self.scale.moved(by);
    }

    fn failed(&mut self, _: &[f64], last: f64, is_whole: bool) {
        self.scale.failed(last, is_whole);
    }

    fn state(&self) -> Vec<Vec<f64>> {
        vec![std::iter::once(self.scale.0).chain(self.proven).collect()]
    }

    fn restore(&mut self, state: Vec<Vec<f64>>, _: usize) -> bool {
        let Ok([numbers]) = <[Vec<f64>; 1]>::try_from(state) else { return false };
        let [scale, proven @ ..] = &numbers[..] else { return false };
        let fits = Scale(*scale).fits() && proven.len() <= 1 && proven.iter().all(|x| *x >= 0.0);
        if fits {
            (self.scale, self.proven) = (Scale(*scale), proven.first().copied());
        }
        fits
    }
}

/// How Nesterov's method chooses its momentum beta.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Momentum {
    /// This number.
    Constant(f64),
    /// `(1 - sqrt(mu s)) / (1 + sqrt(mu s))` with the step s, for strongly convex objectives (Nesterov 2004, eq. 2.2.22).
    Convexity(f64),
    /// `(k_t - 1) / k_{t+1}`, `k_{t+1} = (1 + sqrt(1 + 4 k_t^2)) / 2`, and k = 1 again where the iterate moves against the
    /// gradient (O'Donoghue and Candes 2015, the gradient scheme).
    Restarted,
}

/// Accelerated gradients: `x_{t+1} = y_t - s grad f(y_t)`, `y_{t+1} = x_{t+1} + beta (x_{t+1} - x_t)`.
#[derive(Debug, Clone, PartialEq)]
pub struct AcceleratedDirection {
    /// How beta is chosen.
    pub momentum: Momentum,
    /// s; a line search shortens it for good. Therefore rounding errors never allow a step above one that lowered the loss.
    step: f64,
    /// k of [`Momentum::Restarted`].
    k: f64,
    /// `y_t`; empty before the first round, when it is `x_0`.
    y: Vec<f64>,
    /// The gradient of this round; empty before the first.
    gradient: Vec<f64>,
}

impl AcceleratedDirection {
    /// The rule before its first round, with the step s or the longest trial step.
    pub fn new(momentum: Momentum, step: f64) -> Self {
        Self { momentum, step, k: 1.0, y: Vec::new(), gradient: Vec::new() }
    }
}

impl Direction for AcceleratedDirection {
    fn point(&self, theta: &[f64]) -> Vec<f64> {
        if self.y.is_empty() { theta.to_vec() } else { self.y.clone() }
    }

    fn direction(&mut self, _: &[f64], g: &[f64], _: bool) -> Vec<f64> {
        self.gradient = g.to_vec();
        g.iter().map(|g| -self.step * g).collect()
    }

    /// The loss rises along the extrapolation: once more from the iterate itself. If it rises from there, every step was too long.
    fn failed(&mut self, theta: &[f64], last: f64, is_whole: bool) {
        if is_whole && (self.y.is_empty() || self.y == theta) {
            self.step = shorter(self.step, last);
        }
        (self.y, self.k) = (theta.to_vec(), 1.0);
    }

    fn moved(&mut self, from: &[f64], to: &[f64], by: AcceptedStep) {
        self.step *= by.step;
        let by: Vec<f64> = to.iter().zip(from).map(|(to, from)| to - from).collect();
        let beta = match self.momentum {
            Momentum::Constant(beta) => beta,
            Momentum::Convexity(mu) => {
                let root = (mu * self.step).min(1.0).sqrt();
                (1.0 - root) / (1.0 + root)
            }
            Momentum::Restarted if dot(&self.gradient, &by) > 0.0 => {
                self.k = 1.0;
                0.0
            }
            Momentum::Restarted => {
                let next = 0.5 * (1.0 + (4.0 * self.k * self.k + 1.0).sqrt());
                let beta = (self.k - 1.0) / next;
                self.k = next;
                beta
            }
        };
        self.y = to.iter().zip(&by).map(|(to, by)| beta.mul_add(*by, *to)).collect();
    }

    fn state(&self) -> Vec<Vec<f64>> {
        vec![vec![self.step, self.k], self.y.clone(), self.gradient.clone()]
    }

    fn restore(&mut self, state: Vec<Vec<f64>>, d: usize) -> bool {
        let Ok([numbers, y, gradient]) = <[Vec<f64>; 3]>::try_from(state) else { return false };
        let is_vector = |x: &[f64]| x.is_empty() || x.len() == d;
        let [step, k] = numbers[..] else { return false };
        let fits = step >= 0.0 && k >= 1.0 && is_vector(&y) && is_vector(&gradient);
        if fits {
            (self.step, self.k, self.y, self.gradient) = (step, k, y, gradient);
        }
        fits
    }
}

/// The last point with its gradient, from which curvature pairs `s = x_{t+1} - x_t`, `y = g_{t+1} - g_t` follow.
#[derive(Debug, Clone, Default, PartialEq)]
struct Last {
    x: Vec<f64>,
    g: Vec<f64>,
}

/// The least cosine of the angle between s and y of a pair that is used. Along an objective of condition number kappa it is
/// at least `2 sqrt(kappa) / (1 + kappa)`, so that pairs of all kappa up to 1e20 pass, and those that rounding made do not.
const LEAST_COSINE: f64 = 1e-10;

impl Last {
    /// The pair from the last point to this one, if the curvature along it is positive. Both gradients must include every
    /// agent: the difference of means over different agents is no curvature. Remembers the present point.
    fn pair(&mut self, x: &[f64], g: &[f64], is_whole: bool) -> Option<(Vec<f64>, Vec<f64>)> {
        if !is_whole {
            *self = Self::default();
            return None;
        }
        let last = std::mem::replace(self, Self { x: x.to_vec(), g: g.to_vec() });
        let minus = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a - b).collect::<Vec<f64>>();
        let (s, y) = (minus(x, &last.x), minus(g, &last.g));
        let is_curved = !s.is_empty() && dot(&s, &y) > LEAST_COSINE * (dot(&s, &s) * dot(&y, &y)).sqrt();
        is_curved.then_some((s, y))
    }

    fn state(&self) -> [Vec<f64>; 2] {
        [self.x.clone(), self.g.clone()]
    }

    fn fits(&self, d: usize) -> bool {
        self.x.len() == self.g.len() && (self.x.is_empty() || self.x.len() == d)
    }
}

/// The BFGS method with the inverse Hessian W as a d x d matrix (Nocedal and Wright 2006, eq. 6.17):
/// `W <- (I - r s y^T) W (I - r y s^T) + r s s^T`, `r = 1 / s^T y`, from `W = (s^T y / y^T y) I` before the first pair.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BfgsDirection {
    /// W, d^2 numbers; empty before the first pair.
    inverse: Vec<f64>,
    last: Last,
    /// Of searches along -g, before the first pair.
    scale: Scale,
}

/// `W <- (I - r s y^T) W (I - r y s^T) + r s s^T`, written out with `u = W y`:
/// `W - r (s u^T + u s^T) + (r^2 y^T u + r) s s^T`.
fn update_inverse(w: &mut [f64], s: &[f64], y: &[f64]) {
    let d = s.len();
    let u = times(w, y);
    let r = 1.0 / dot(s, y);
    let c = r * r * dot(y, &u) + r;
    for (j, row) in w.chunks_mut(d).enumerate() {
        for (i, w) in row.iter_mut().enumerate() {
            // Alike in (i, j) and (j, i), so that W stays symmetric to the last bit.
            *w += c * (s[i] * s[j]) - r * (s[i] * u[j] + u[i] * s[j]);
        }
    }
}

/// `W v` of a d x d matrix, row by row.
fn times(w: &[f64], v: &[f64]) -> Vec<f64> {
    w.chunks(v.len()).map(|row| dot(row, v)).collect()
}

impl Direction for BfgsDirection {
    fn direction(&mut self, x: &[f64], g: &[f64], is_whole: bool) -> Vec<f64> {
        let d = x.len();
        if let Some((s, y)) = self.last.pair(x, g, is_whole) {
            if self.inverse.is_empty() {
                let scale = dot(&s, &y) / dot(&y, &y);
                self.inverse = (0..d * d).map(|at| if at % (d + 1) == 0 { scale } else { 0.0 }).collect();
            }
            update_inverse(&mut self.inverse, &s, &y);
        }
        if self.inverse.is_empty() {
            return self.scale.direction(1.0, g);
        }
        let minus: Vec<f64> = g.iter().map(|g| -g).collect();
        times(&self.inverse, &minus)
    }

    fn moved(&mut self, _: &[f64], _: &[f64], by: AcceptedStep) {
        if self.inverse.is_empty() {
            self.scale.moved(by);
        }
    }

    /// Without a step the direction is no use: the matrix starts anew.
    fn failed(&mut self, _: &[f64], last: f64, is_whole: bool) {
        if self.inverse.is_empty() {
            self.scale.failed(last, is_whole);
        }
        *self = Self { scale: self.scale, ..Self::default() };
    }

    fn state(&self) -> Vec<Vec<f64>> {
        let [x, g] = self.last.state();
        vec![x, g, vec![self.scale.0], self.inverse.clone()]
    }

    fn restore(&mut self, state: Vec<Vec<f64>>, d: usize) -> bool {
        let Ok([x, g, scale, w]) = <[Vec<f64>; 4]>::try_from(state) else { return false };
        let [scale] = scale[..] else { return false };
        let (last, scale) = (Last { x, g }, Scale(scale));
        if !last.fits(d) || !scale.fits() || !(w.is_empty() || w.len() == d * d) {
            return false;
        }
        *self = Self { inverse: w, last, scale };
        true
    }
}

/// The L-BFGS method: the last m pairs, and the two loops of Liu and Nocedal (1989) from `(s^T y / y^T y) I` with the latest
/// pair.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LbfgsDirection {
    /// m.
    pub memory: usize,
    /// The pairs (s, y), older ones first.
    pairs: VecDeque<(Vec<f64>, Vec<f64>)>,
    last: Last,
    /// Of searches along -g, without pairs.
    scale: Scale,
}

impl LbfgsDirection {
    /// The rule before its first round, which keeps m pairs.
    pub fn new(memory: usize) -> Self {
        Self { memory, ..Self::default() }
    }
}

impl Direction for LbfgsDirection {
    fn direction(&mut self, x: &[f64], g: &[f64], is_whole: bool) -> Vec<f64> {
        if let Some(pair) = self.last.pair(x, g, is_whole) {
            if self.pairs.len() == self.memory {
                self.pairs.pop_front();
            }
            self.pairs.push_back(pair);
        }
        if self.pairs.is_empty() {
            return self.scale.direction(1.0, g);
        }
        let mut p: Vec<f64> = g.iter().map(|g| -g).collect();
        let add = |p: &mut [f64], a: f64, v: &[f64]| p.iter_mut().zip(v).for_each(|(p, v)| *p = a.mul_add(*v, *p));
        let mut shares = Vec::with_capacity(self.pairs.len());
        for (s, y) in self.pairs.iter().rev() {
            let a = dot(s, &p) / dot(s, y);
            add(&mut p, -a, y);
            shares.push(a);
        }
        if let Some((s, y)) = self.pairs.back() {
            let scale = dot(s, y) / dot(y, y);
            p.iter_mut().for_each(|p| *p *= scale);
        }
        for ((s, y), a) in self.pairs.iter().zip(shares.iter().rev()) {
            let b = dot(y, &p) / dot(s, y);
            add(&mut p, a - b, s);
        }
        p
    }

    fn moved(&mut self, _: &[f64], _: &[f64], by: AcceptedStep) {
        if self.pairs.is_empty() {
            self.scale.moved(by);
        }
    }

    /// Without a step the direction is no use: the pairs are dropped.
    fn failed(&mut self, _: &[f64], last: f64, is_whole: bool) {
        if self.pairs.is_empty() {
            self.scale.failed(last, is_whole);
        }
        *self = Self { scale: self.scale, ..Self::new(self.memory) };
    }

    fn state(&self) -> Vec<Vec<f64>> {
        let pairs = self.pairs.iter().flat_map(|(s, y)| [s.clone(), y.clone()]);
        self.last.state().into_iter().chain([vec![self.scale.0]]).chain(pairs).collect()
    }

    fn restore(&mut self, mut state: Vec<Vec<f64>>, d: usize) -> bool {
        if state.len() < 3 || state.len().is_multiple_of(2) || (state.len() - 3) / 2 > self.memory {
            return false;
        }
        let pairs = state.split_off(3);
        let scale = match state.pop().as_deref() {
            Some([scale]) => Scale(*scale),
            _ => return false,
        };
        let g = state.pop().unwrap_or_default();
        let last = Last { x: state.pop().unwrap_or_default(), g };
        if !last.fits(d) || !scale.fits() || pairs.iter().any(|x| x.len() != d) {
            return false;
        }
        (self.last, self.scale) = (last, scale);
        self.pairs = pairs.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
        true
    }
}

#[cfg(test)]
mod tests {
    use faer::Mat;
    use faer::linalg::solvers::DenseSolveCore;

    use super::*;
    use crate::linalg::{self, column};
    use crate::random::{Purpose, stream};

    /// Points along the Newton-like iterates of a random convex quadratic with gradients, d = 6.
    fn pairs(count: usize) -> Vec<(Vec<f64>, Vec<f64>)> {
        let (d, mut draw) = (6, stream(3, Purpose::System, 0, 0));
        let g = Mat::from_fn(d, d, |_, _| draw.normal());
        let a = &g * g.transpose() + Mat::<f64>::identity(d, d);
        (0..count)
            .map(|_| {
                let s: Vec<f64> = (0..d).map(|_| draw.normal()).collect();
                let y = linalg::mat_vec(&a, &s);
                (s, y)
            })
            .collect()
    }

    /// BFGS updates the Hessian B itself by `B - B s s^T B / s^T B s + y y^T / s^T y` (Nocedal and Wright, eq. 6.19), another
    /// formula than that of its inverse: both stay inverses of each other.
    fn by_hessian(start: f64, pairs: &[(Vec<f64>, Vec<f64>)]) -> Mat<f64> {
        let d = pairs[0].0.len();
        let mut b = Mat::<f64>::identity(d, d) * faer::Scale(1.0 / start);
        for (s, y) in pairs {
            let bs = linalg::mat_vec(&b, s);
            let (sbs, sy) = (dot(s, &bs), dot(s, y));
            b = &b - column(&bs) * column(&bs).transpose() * faer::Scale(1.0 / sbs)
                + column(y) * column(y).transpose() * faer::Scale(1.0 / sy);
        }
        b.partial_piv_lu().inverse()
    }

    fn apart(a: &[f64], b: &[f64]) -> f64 {
        linalg::distance_sq(a, b).sqrt() / linalg::norm_sq(b).sqrt()
    }

    #[test]
    fn the_update_of_the_inverse_is_the_inverse_of_the_update() {
        let pairs = pairs(9);
        let mut w: Vec<f64> = (0..36).map(|at| if at % 7 == 0 { 0.3 } else { 0.0 }).collect();
        pairs.iter().for_each(|(s, y)| update_inverse(&mut w, s, y));
        let expected = by_hessian(0.3, &pairs);
        assert!((linalg::from_rows(6, 6, &w) - &expected).norm_l2() < 1e-10 * expected.norm_l2());
        // The secant equation, and symmetry to the last bit.
        let (s, y) = pairs.last().unwrap();
        assert!(apart(&times(&w, y), s) < 1e-12);
        assert!((0..6).all(|i| (0..6).all(|j| w[6 * i + j] == w[6 * j + i])));
    }

    /// Both rules walk through the same points; L-BFGS uses the last m pairs and the scale of the latest one.
    #[test]
    fn directions_are_those_of_dense_updates() {
        let pairs = pairs(9);
        let (mut bfgs, mut lbfgs) = (BfgsDirection::default(), LbfgsDirection::new(4));
        let (mut x, mut g) = (vec![0.0; 6], vec![1.0, -1.0, 2.0, 0.5, 0.3, -2.0]);
        let minus = |m: &Mat<f64>, g: &[f64]| linalg::mat_vec(m, g).iter().map(|x| -x).collect::<Vec<f64>>();
        assert_eq!(bfgs.direction(&x, &g, true), g.iter().map(|g| -g).collect::<Vec<_>>());
        lbfgs.direction(&x, &g, true);
        for (k, (s, y)) in pairs.iter().enumerate() {
            x.iter_mut().zip(s).for_each(|(x, s)| *x += s);
            g.iter_mut().zip(y).for_each(|(g, y)| *g += y);
            let scale = |(s, y): &(Vec<f64>, Vec<f64>)| dot(s, y) / dot(y, y);
            let dense = minus(&by_hessian(scale(&pairs[0]), &pairs[..=k]), &g);
            assert!(apart(&bfgs.direction(&x, &g, true), &dense) < 1e-9, "pair {k}");
            let dense = minus(&by_hessian(scale(&pairs[k]), &pairs[(k + 1).saturating_sub(4)..=k]), &g);
            assert!(apart(&lbfgs.direction(&x, &g, true), &dense) < 1e-9, "pair {k}");
        }
    }

    /// The iterates and inverse Hessians of argmin 0.11.0 with whole steps on `x^T A x / 2 - b^T x`, from 0: L-BFGS with 3 pairs, and BFGS
    /// from `W = 0.8 I`.
    #[test]
    fn updates_are_those_of_argmin() {
        let a = [[0.9, 0.2, -0.1], [0.2, 0.5, 0.1], [-0.1, 0.1, 0.7]];
        let gradient = |x: &[f64]| -> Vec<f64> { a.iter().zip([1.0, -1.0, 0.5]).map(|(row, b)| dot(row, x) - b).collect() };
        let moved = |x: &[f64], p: &[f64]| -> Vec<f64> { x.iter().zip(p).map(|(x, p)| x + p).collect() };
        let (mut rule, mut x) = (LbfgsDirection::new(3), vec![0.0; 3]);
        for expected in [
            [1.0, -1.0, 0.5],
            [1.7336112163698374, -3.5070102311481626, 1.642667677150436],
            [2.162893808924218, -3.0730899794093327, 1.3985542267448507],
            [1.9526689740911454, -3.0701102551430903, 1.4289141811795867],
            [1.9515893533203088, -3.0672633008440617, 1.4305434441817988],
            [1.9516699385273644, -3.066862376281531, 1.4311790960242523],
        ] {
            let p = rule.direction(&x, &gradient(&x), true);
            x = moved(&x, &p);
            assert!(apart(&x, &expected) < 1e-13, "{x:?} {expected:?}");
        }
        let (mut w, mut x) = (vec![0.8, 0.0, 0.0, 0.0, 0.8, 0.0, 0.0, 0.0, 0.8], vec![0.0; 3]);
        // The iterate, then W by its lower triangle.
        for expected in [
            [
                0.8,
                -0.8,
                0.4,
                1.1860618014464173,
                -0.7142669296515454,
                1.8424720578566736,
                0.3366206443129522,
                -0.5007232084155164,
                1.040105193951348,
            ],
            [
                2.0686390532544383,
                -2.807100591715977,
                1.3573964497041424,
                1.0838182342500184,
                -0.7042539868563611,
                2.066705713805869,
                0.3191814482504453,
                -0.5876497593742185,
                1.0720132750668456,
            ],
            [
                2.0049248922602674,
                -3.0147133932979515,
                1.4306919471849902,
                1.200676185316402,
                -0.49515776687160695,
                2.1886077056560254,
                0.2630360556901567,
                -0.5730957968496013,
                1.0465435550948485,
            ],
            [
                1.953077910813688,
                -3.066377173865083,
                1.4368581925988786,
                1.2243875932344066,
                -0.48866493311921444,
                2.1780033525708666,
                0.3006092872859084,
                -0.5336174616382208,
                1.0372708731489462,
            ],
        ] {
            let g = gradient(&x);
            let s: Vec<f64> = times(&w, &g).iter().map(|p| -p).collect();
            let next = moved(&x, &s);
            let y: Vec<f64> = gradient(&next).iter().zip(&g).map(|(new, old)| new - old).collect();
            update_inverse(&mut w, &s, &y);
            x = next;
            let got: Vec<f64> = x.iter().copied().chain((0..3).flat_map(|i| (0..=i).map(move |j| 3 * i + j)).map(|at| w[at])).collect();
            assert!(apart(&got, &expected) < 1e-12, "{got:?} {expected:?}");
        }
    }

    /// A pair is used where both gradients are whole and the curvature is positive, and only there.
    #[test]
    fn pairs_without_curvature_or_of_other_agents_are_left_out() {
        let (zero, one) = (vec![0.0, 0.0], vec![1.0, 0.0]);
        let mut rule = LbfgsDirection::new(3);
        rule.direction(&zero, &[1.0, 1.0], true);
        rule.direction(&one, &[0.5, 1.0], true);
        assert!(rule.pairs.is_empty(), "negative curvature");
        rule.direction(&zero, &[0.0, 1.0], false);
        rule.direction(&one, &[1.0, 1.0], true);
        assert!(rule.pairs.is_empty(), "a gradient that is not whole");
        rule.direction(&zero, &[0.0, 1.0], true);
        assert_eq!(rule.pairs.len(), 1);
        let mut other = LbfgsDirection::new(3);
        assert!(other.restore(rule.state(), 2) && other == rule);
        assert!(!other.restore(rule.state(), 3) && !LbfgsDirection::new(0).restore(rule.state(), 2) && other == rule);
        rule.failed(&zero, 0.25, true);
        assert_eq!(rule, LbfgsDirection::new(3));
    }

    /// Without a step at a point that stays, the next search begins where this one ended, and later ones get longer again.
    #[test]
    fn searches_that_fail_begin_with_shorter_steps() {
        let (x, g) = ([0.0, 0.0], [1.0, -2.0]);
        let proven = |step| AcceptedStep { step, is_proven: true };
        let mut rules: [Box<dyn Direction>; 4] = [
            Box::new(Steepest::new(1.0)),
            Box::new(BfgsDirection::default()),
            Box::new(LbfgsDirection::new(2)),
            Box::new(AcceleratedDirection::new(Momentum::Restarted, 1.0)),
        ];
        for rule in &mut rules {
            assert_eq!(rule.direction(&x, &g, true), [-1.0, 2.0]);
            rule.failed(&x, 0.25, false);
            assert_eq!(rule.direction(&x, &g, true), [-1.0, 2.0]);
            rule.failed(&x, 0.25, true);
            assert_eq!(rule.direction(&x, &g, true), [-0.125, 0.25]);
            let state = rule.state();
            assert!(rule.restore(state, 2));
            assert_eq!(rule.direction(&x, &g, true), [-0.125, 0.25]);
        }
        let mut steepest = Steepest::new(1.0);
        steepest.failed(&x, 0.25, true);
        assert_eq!(steepest.longest_by_rounding(), f64::INFINITY);
        steepest.moved(&x, &x, proven(1.0));
        assert_eq!((steepest.scale.0, steepest.longest_by_rounding()), (0.25, 0.5));
        steepest.moved(&x, &x, AcceptedStep { step: 0.25, is_proven: false });
        let mut other = Steepest::new(1.0);
        assert!(other.restore(steepest.state(), 2) && other == steepest && !other.restore(vec![vec![0.0]], 2));
        steepest.moved(&x, &x, proven(0.5));
        assert_eq!((steepest.scale.0, steepest.longest_by_rounding()), (0.25, 0.5));
    }
}
