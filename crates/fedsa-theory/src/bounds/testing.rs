//! Random small problems on which bounds are compared with exact errors.

use faer::Scale;

use super::{Bound, BoundShape, CorollaryChoice, Period};
use crate::RoundSetting;
use crate::markov::{MarkovAgent, Move};
use crate::testing::{Draw, Finite, federation};
use fedsa::error::{Result, require};
use fedsa::linalg::{self, Mat};
use fedsa::problem::systems::{Moments, System, Systems};

/// A problem, and where a run starts.
pub struct Case {
    pub kinds: Vec<Finite>,
    pub systems: Systems,
    pub moments: Vec<Moments>,
    pub start: Vec<f64>,
    /// Numbers for settings, uniform on [0, 1).
    pub share: [f64; 4],
}

/// The number of problems in the test of a bound.
pub const CASES: u64 = 200;

/// An agent with m samples around a mean matrix `Q diag Q^T + skew` whose symmetric part has the eigenvalues `lowest` and up to 1.
fn agent(draw: &mut Draw, d: usize, m: usize, lowest: f64, (noise, size): (f64, f64)) -> Finite {
    let angle = 3.0 * draw.number();
    let (cos, sin, skew) = (angle.cos(), angle.sin(), 0.5 * draw.number());
    let other = 0.55 + 0.45 * draw.number();
    let mean = match d {
        1 => Mat::full(1, 1, lowest),
        _ => {
            let (p, q, r) = (lowest * cos * cos + other * sin * sin, lowest * sin * sin + other * cos * cos, (lowest - other) * cos * sin);
            Mat::from_fn(2, 2, |i, j| [[p, r + skew], [r - skew, q]][i][j])
        }
    };
    let raw: Vec<(Mat<f64>, Vec<f64>)> = (0..m).map(|_| (draw.matrix(d), draw.vector(d))).collect();
    let mut middle = Mat::<f64>::zeros(d, d);
    raw.iter().for_each(|(a, _)| middle += Scale(1.0 / m as f64) * a);
    let shift: Vec<f64> = draw.vector(d);
    let sample =
        |(a, b): (Mat<f64>, Vec<f64>)| (&mean + Scale(noise) * (a - &middle), b.iter().zip(&shift).map(|(b, s)| size * b + s).collect());
    Finite { samples: raw.into_iter().map(sample).collect() }
}

/// The first `count` of the random problems: one to three kinds of agents in one or two dimensions. Noise in A ranges from none to the
/// size of A, noise in b from small to large. In every fourth problem an agent is nearly singular.
pub fn cases(count: u64) -> Vec<Case> {
    (0..count).map(case).collect()
}

fn case(seed: u64) -> Case {
    let mut draw = Draw::new(1_000 + seed);
    let (d, n) = (1 + draw.index(2), 1 + draw.index(3));
    let noise = if seed.is_multiple_of(5) { 0.0 } else { 10f64.powf(-1.0 + draw.number()) };
    let size = 10f64.powf(-0.5 + draw.number());
    let kinds: Vec<Finite> = (0..n)
        .map(|k| {
            let lowest = if seed.is_multiple_of(4) && k == 0 { 10f64.powf(-2.5 + draw.number()) } else { 0.3 + 0.2 * draw.number() };
            let m = 2 + draw.index(3);
            agent(&mut draw, d, m, lowest, (noise, size))
        })
        .collect();
    let copies: Vec<usize> = (0..n).map(|_| 1 + draw.index(3)).collect();
    let (mut systems, moments) = federation(&kinds, &copies);
    if seed.is_multiple_of(3) {
        // Weights that differ.
        let raw: Vec<f64> = systems.weights.iter().map(|_| 1.5 + draw.number()).collect();
        let sum: f64 = raw.iter().sum();
        systems.weights = raw.iter().map(|w| w / sum).collect();
    }
    let start = draw.vector(d).iter().map(|x| 3.0 * x).collect();
    let share = std::array::from_fn(|_| 0.5 + 0.5 * draw.number());
    Case { kinds, systems, moments, start, share }
}

/// One random agent in two dimensions, nearly singular in every fourth problem.
pub fn one_agent(draw: &mut Draw, seed: u64) -> Finite {
    let lowest = if seed.is_multiple_of(4) { 1e-3 } else { 0.3 + 0.2 * draw.number() };
    let noise = 10f64.powf(-1.0 + draw.number());
    agent(draw, 2, 3, lowest, (noise, 0.5))
}

/// The features of three states: of norm at most 1, in the plane, nearly parallel or not.
pub fn features(draw: &mut Draw, parallel: bool) -> Vec<[f64; 2]> {
    let (base, spread) = (3.0 * draw.number(), if parallel { 0.1 } else { 1.5 });
    (0..3)
        .map(|_| {
            let (angle, size) = (base + spread * draw.number(), 0.8 + 0.2 * draw.number());
            [size * angle.cos(), size * angle.sin()]
        })
        .collect()
}

/// A random Markov reward process of three states, with rewards in [0, 1], as TD(0) sees it.
pub struct Process {
    pub gamma: f64,
    /// The smallest eigenvalue of the feature covariance.
    pub nu: f64,
    pub system: System,
    pub moments: Moments,
    kernel: Vec<Vec<f64>>,
    phi: Vec<[f64; 2]>,
    rewards: Vec<f64>,
}

impl Process {
    pub fn new(draw: &mut Draw, parallel: bool) -> Self {
        let phi = features(draw, parallel);
        let gamma = 0.5 + 0.45 * draw.number();
        Self::with_features(draw, phi, gamma)
    }

    pub fn with_features(draw: &mut Draw, phi: Vec<[f64; 2]>, gamma: f64) -> Self {
        let d = 2;
        let rows: Vec<Vec<f64>> = (0..3).map(|_| (0..3).map(|_| 1.05 + draw.number()).collect()).collect();
        let kernel: Vec<Vec<f64>> = rows.iter().map(|row| row.iter().map(|x| x / row.iter().sum::<f64>()).collect()).collect();
        let rewards: Vec<f64> = (0..3).map(|_| 0.5 + 0.5 * draw.number()).collect();
        let mut law = [1.0 / 3.0; 3];
        for _ in 0..2000 {
            law = std::array::from_fn(|t| (0..3).map(|s| law[s] * kernel[s][t]).sum());
        }
        let mut process = Self {
            gamma,
            nu: 0.0,
            system: System { a: Mat::zeros(d, d), b: vec![0.0; d] },
            moments: Moments { aa: Mat::zeros(d * d, d * d), ab: Mat::zeros(d * d, d), bb: Mat::zeros(d, d) },
            kernel,
            phi,
            rewards,
        };
        let mut covariance = Mat::<f64>::zeros(d, d);
        for (s, mass) in law.into_iter().enumerate() {
            covariance += Mat::from_fn(d, d, |i, j| mass * process.phi[s][i] * process.phi[s][j]);
            for t in 0..3 {
                let (p, (z, r)) = (mass * process.kernel[s][t], process.sample(s, t));
                process.system.a += Scale(p) * &z;
                process.system.b.iter_mut().zip(&r).for_each(|(b, r)| *b += p * r);
                process.moments.aa += Mat::from_fn(d * d, d * d, |i, j| p * z[(i / d, j / d)] * z[(i % d, j % d)]);
                process.moments.ab += Mat::from_fn(d * d, d, |i, j| p * z[(i / d, j)] * r[i % d]);
                process.moments.bb += Mat::from_fn(d, d, |i, j| p * r[i] * r[j]);
            }
        }
        process.nu = linalg::eigenvalues(&covariance).unwrap().iter().map(|(re, _)| *re).fold(f64::INFINITY, f64::min);
        process
    }

    /// A and b of the move from s to t.
    fn sample(&self, s: usize, t: usize) -> (Mat<f64>, Vec<f64>) {
        let (now, next) = (self.phi[s], self.phi[t]);
        (Mat::from_fn(2, 2, |i, j| now[i] * (now[j] - self.gamma * next[j])), now.iter().map(|x| x * self.rewards[s]).collect())
    }

    /// n agents on this process.
    pub fn federation(&self, n: usize) -> (Systems, Vec<Moments>) {
        let systems = Systems::new(vec![self.system.clone()], vec![0; n], vec![1.0 / n as f64; n]);
        (systems, vec![self.moments.clone()])
    }

    /// One agent along the chain, around `root`.
    pub fn markov(&self, root: &[f64]) -> MarkovAgent {
        let pairs = (0..3).flat_map(|s| (0..3).map(move |t| (s, t)));
        let moves = pairs.map(|(s, t)| {
            let (a, b) = self.sample(s, t);
            let w = linalg::mat_vec(&a, root).iter().zip(&b).map(|(x, b)| x - b).collect();
            Move { from: s as u32, to: t as u32, p: self.kernel[s][t], a, w }
        });
        MarkovAgent::from_moves(1.0, 2, 3, moves.collect()).unwrap()
    }

    /// A time from which on `||E[g(theta, o_k) | o_0] - gbar(theta)|| <= eps (||theta|| + 1)` (\[T\] Definition 4.2.1), from the distance
    /// of the law of `s_k` to the stationary one.
    pub fn mixing_time(&self, eps: f64) -> u64 {
        let largest = |s: usize| {
            let (mut a, mut b) = (Mat::<f64>::zeros(2, 2), vec![0.0; 2]);
            for t in 0..3 {
                let (z, r) = self.sample(s, t);
                a += Scale(self.kernel[s][t]) * z;
                b.iter_mut().zip(r).for_each(|(b, r)| *b += self.kernel[s][t] * r);
            }
            linalg::norm2(&a).max(linalg::norm_sq(&b).sqrt())
        };
        let most = (0..3).map(largest).fold(0.0, f64::max);
        // o_0 is a move to s_1, and a move shrinks the distance of two laws by the largest distance of two rows.
        let distance = |s: usize, t: usize| (0..3).map(|r| (self.kernel[s][r] - self.kernel[t][r]).abs()).sum::<f64>();
        let shrink = 0.5 * (0..9).map(|k| distance(k / 3, k % 3)).fold(0.0, f64::max);
        1 + (0.5 * eps / most).log(shrink).ceil().max(0.0) as u64
    }
}

/// Counts violations and collects ratios of bound over measured value.
#[derive(Default)]
pub struct Looseness {
    ratios: Vec<f64>,
}

impl Looseness {
    /// Records a bound and the exact value; `what` names them in a failure.
    ///
    /// # Panics
    /// When the value is above the bound.
    pub fn see(&mut self, measured: f64, bound: f64, what: &str) {
        assert!(measured <= bound * (1.0 + 1e-9) + 1e-14, "{what}: {measured:e} is above the bound {bound:e}");
        if measured > 1e-13 {
            self.ratios.push(bound / measured);
        }
    }

    /// The median, smallest and largest ratio as text.
    ///
    /// # Panics
    /// When the median is not the documented one.
    pub fn about(mut self, name: &str, documented: f64) -> String {
        self.ratios.sort_by(f64::total_cmp);
        let n = self.ratios.len();
        let (median, least, most) = (self.ratios[n / 2], self.ratios[0], self.ratios[n - 1]);
        let text = format!("{name}: bound over measured {median:.3e} in the median, {least:.3e} to {most:.3e}, {n} values");
        assert!((median / documented - 1.0).abs() < 0.05, "{text}, documented {documented:e}");
        text
    }
}

impl BoundShape {
    /// The leading part of the floor.
    pub fn leading(&self) -> f64 {
        self.floor.first().map_or(0.0, |term| term.value)
    }
}

/// `measured = constant shape^slope`, fitted to points by least squares of logarithms. A correct shape has the slope 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ShapeFit {
    /// The slope of the logarithms.
    pub slope: f64,
    /// The factor.
    pub constant: f64,
    /// The largest `|measured / fitted - 1|`.
    pub residual: f64,
}

impl ShapeFit {
    /// The fit to pairs (shape, measured).
    ///
    /// # Errors
    /// When there are fewer than two points, a number is not positive, or all shapes are equal.
    pub fn new(points: &[(f64, f64)]) -> Result<Self> {
        require(points.len() >= 2, "points", points.len(), "at least 2")?;
        for (x, y) in points {
            let are_positive = *x > 0.0 && *y > 0.0 && x.is_finite() && y.is_finite();
            require(are_positive, "points", format!("({x}, {y})"), "positive numbers")?;
        }
        let n = points.len() as f64;
        let (mx, my) = points.iter().fold((0.0, 0.0), |(mx, my), (x, y)| (mx + x.ln() / n, my + y.ln() / n));
        let (mut sxx, mut sxy) = (0.0, 0.0);
        for (x, y) in points {
            sxx += (x.ln() - mx).powi(2);
            sxy += (x.ln() - mx) * (y.ln() - my);
        }
        require(sxx > 0.0, "points", "one shape", "shapes that differ")?;
        let slope = sxy / sxx;
        let constant = (my - slope * mx).exp();
        let residual = points.iter().map(|(x, y)| (y / (constant * x.powf(slope)) - 1.0).abs()).fold(0.0, f64::max);
        Ok(Self { slope, constant, residual })
    }

    /// The fitted value at a shape.
    pub fn at(&self, shape: f64) -> f64 {
        self.constant * shape.powf(self.slope)
    }
}

#[test]
fn a_power_law_is_found() {
    let law = |x: f64| 3.0 * x.powf(-0.7);
    let points: Vec<(f64, f64)> = [0.1, 0.5, 2.0, 30.0].map(|x| (x, law(x))).to_vec();
    let fit = ShapeFit::new(&points).unwrap();
    assert!((fit.slope + 0.7).abs() < 1e-12 && (fit.constant - 3.0).abs() < 1e-12 && fit.residual < 1e-12);
    assert!((fit.at(7.0) - law(7.0)).abs() < 1e-12);
    for bad in [&points[..1], &[(1.0, 1.0), (1.0, 2.0)], &[(1.0, 0.0), (2.0, 1.0)], &[(1.0, f64::NAN), (2.0, 1.0)]] {
        assert_eq!(ShapeFit::new(bad).unwrap_err().key, "points");
    }
}

impl Bound {
    /// Whether all assumptions hold.
    pub fn holds(&self) -> bool {
        self.assumptions.iter().all(|a| a.holds)
    }
}

impl CorollaryChoice {
    /// The number of rounds, up to the next integer.
    pub fn rounds(&self) -> u64 {
        self.rounds.ceil() as u64
    }

    /// The settings of a round with a fixed period, else `None`.
    pub fn round_setting(&self) -> Option<RoundSetting> {
        match self.period {
            Period::Fixed(h) => RoundSetting::new(self.step_size, h).ok(),
            Period::Random(_) => None,
        }
    }

    /// Whether all assumptions hold.
    pub fn holds(&self) -> bool {
        self.assumptions.iter().all(|a| a.holds)
    }
}
