//! The exact mean-square error under additive Gauss-Markov noise (in no source).
//!
//! Samples are `gbar_c(theta) + x` with `x <- M x + w`, independent per agent ([`NoiseLaw`]), or with independent draws of x. Operators
//! are linear, all agents participate over a clear link, and steps are constant. The noise does not multiply the iterate. So
//! `u = theta - theta*` is its mean plus one independent part per agent: the response to the noise of this agent alone.
//!
//! Let y be the state of the method after a round (u, and for SCAFFLSA the mean controls of each kind of agents), L its mean round, and
//! x the agent's noise. The agent's local phase ends at `o = R x + e` away from its mean, and o enters y through a matrix B. The
//! agent's part follows
//!
//! ```text
//! y <- L y + p_c B (R x + e),    x <- Phi x + f
//! ```
//!
//! | method | y | B |
//! | --- | --- | --- |
//! | FedLSA | u | `alpha_g I` |
//! | FedHSA, FedLin | u | `alpha_g I`; o includes `(sum p_e S_e - S_c)` times the noise of the first sample, which the drift uses |
//! | SCAFFLSA | `u, xbar_1 .. xbar_K` | `alpha_g I` on u, `(1 - [j = k] / w_k) / E` on `xbar_j`, k the agent's kind of weight `w_k` |
//!
//! B, R and the law of (e, f) depend only on the agent's kind, and `p_c^2` is a factor of the covariance. So agents of one kind and one
//! law of noise are computed once. The floor solves one discrete Lyapunov equation for y. Its source contains `E y x^T`, which solves a
//! Sylvester equation for each of these classes. The curve sums responses: with `W_t = (G_t, Z_t)`, the effect of (y, x) on u after t
//! more rounds,
//!
//! ```text
//! G <- G L,    Z <- G B R + Z Phi,    noise_t = sum_{s<t} tr W_s cov(B e, f) W_s^T + tr Z_t E[x_0 x_0^T] Z_t^T
//! ```

mod phases;
#[cfg(test)]
mod tests;

use faer::prelude::*;

use phases::{BatchLaw, LegNoise};

use super::RoundSetting;
use super::exact_mse::{InitialControls, MeanSquare, unstable};
use super::fedlsa::FedLsaMean;
use super::map::{LinearMap, spectral_radius};
use super::stability::{ControlVariates, global_memory_map};
use crate::work;
use fedsa::error::{Error, Result};
use fedsa::linalg::{self, Mat};
use fedsa::method::Drift;
use fedsa::parallel;
use fedsa::problem::law::NoiseLaw;
use fedsa::problem::systems::Systems;
use fedsa::sampling::{Law, Sampling};

/// Up to this size of y, the floor solves a dense Lyapunov equation; beyond, it is the limit of the curve.
const DENSE_STATE: usize = 250;
/// The most multiplications of a curve: some seconds.
const MAX_WORK: f64 = 1e10;
/// A curve has settled after this many rounds in a row that each add less than `SETTLED` of the sum.
const SETTLED_ROUNDS: usize = 10;
const SETTLED: f64 = 1e-18;

/// The mean-square error of a method on linear systems with additive Gauss-Markov noise.
#[derive(Debug, Clone)]
pub struct GaussMarkov {
    round: MeanRound,
    dim: usize,
    root: Vec<f64>,
    /// One for each kind of agents, or for each agent if agents have different laws of noise.
    parts: Vec<Part>,
    /// Whether noise remains from round to round.
    has_memory: bool,
    /// `gbar_c(theta*)` of every kind, d numbers each.
    pushes: Vec<Vec<f64>>,
    kind_of: Vec<u32>,
    weights: Vec<f64>,
}

/// Agents of one kind and one law of noise.
#[derive(Debug, Clone)]
struct Part {
    kind: usize,
    /// `sum p_c^2`.
    factor: f64,
    noise: LegNoise,
    /// `E x x^T` at the start of the first round, and in the limit, d x d.
    start: Mat<f64>,
    stationary: Mat<f64>,
}

/// The mean round L, and the entry of local phases' ends into it.
#[derive(Debug, Clone)]
enum MeanRound {
    /// A map of u alone: FedLSA (whose mean is not linear but affine) and FedHSA.
    Plain { map: Mat<f64>, alpha: f64, bias: Option<FedLsaMean> },
    /// SCAFFLSA.
    Controls { map: ControlVariates, alpha: f64, span: f64 },
}

impl GaussMarkov {
    /// The error of the method with this drift, control variates with a fixed period, under this noise and sampling (`iid` or `markov`);
    /// `laws` is one law for all agents, or one for each.
    ///
    /// # Errors
    /// When the mean system has no unique root, sampling is noiseless, or the number of laws does not fit.
    pub fn new(systems: &Systems, laws: &[NoiseLaw], sampling: Sampling, setting: &RoundSetting, drift: Drift) -> Result<Self> {
        if sampling.kind == Law::Mean {
            return Err(Error::new("sampling.kind", "noiseless sampling, under which there is no noise", "iid or markov"));
        }
        let (eta, h, alpha) = (setting.step_size, setting.local_steps, setting.server_step);
        let root = systems.root()?;
        let kinds = || systems.kinds.iter().map(|kind| &kind.a).zip(systems.kind_weights());
        let fresh = drift == Drift::GlobalMemory { fresh: 1 };
        let drifts = matches!(drift, Drift::GlobalMemory { .. }).then(|| LegNoise::of_drifts(kinds(), eta, h));
        let shared = laws.len() == 1;
        if !shared && laws.len() != systems.weights.len() {
            return Err(Error::new("noise", format!("{} laws of noise", laws.len()), "one for all agents, or one for each"));
        }
        // The kind, the factor and the law of every part.
        let mut parts: Vec<(usize, f64, &NoiseLaw)> = (0..systems.kinds.len()).map(|k| (k, 0.0, &laws[0])).collect();
        for (kind, p) in systems.kind_of.iter().zip(&systems.weights) {
            parts[*kind as usize].1 += p * p;
        }
        if !shared {
            let agents = systems.kind_of.iter().zip(&systems.weights).zip(laws);
            parts = agents.map(|((kind, p), law)| (*kind as usize, p * p, law)).collect();
        }
        let batch = shared.then(|| BatchLaw::new(&laws[0], sampling));
        let part = |i: usize| {
            let (kind, factor, law) = parts[i];
            let own = if shared { None } else { Some(BatchLaw::new(law, sampling)) };
            let batch = own.as_ref().or(batch.as_ref()).expect("one of them");
            let noise = LegNoise::new(&systems.kinds[kind].a, eta, h, batch, drifts.as_ref().map(|drifts| &drifts[kind]), fresh);
            Part { kind, factor, noise, start: law.start.clone(), stationary: law.covariance.clone() }
        };
        let parts: Vec<Part> = work::map(parts.len(), part)?;
        let round = match drift {
            Drift::Zero => {
                let mean = FedLsaMean::new(systems, setting)?;
                MeanRound::Plain { map: mean.round_map(), alpha, bias: Some(mean) }
            }
            Drift::GlobalMemory { .. } => MeanRound::Plain { map: global_memory_map(systems, setting), alpha, bias: None },
            _ => MeanRound::Controls { map: ControlVariates::fixed_period(systems, setting), alpha, span: setting.span() },
        };
        Ok(Self {
            round,
            dim: systems.dim(),
            pushes: systems.kinds.iter().map(|kind| kind.mean(&root)).collect(),
            root,
            parts,
            has_memory: sampling.kind == Law::Markov && laws.iter().any(|law| law.memory.norm_max() > 0.0),
            kind_of: systems.kind_of.clone(),
            weights: systems.weights.clone(),
        })
    }

    /// Rejects sizes at which the local phases of `parts` distinct agents in d dimensions take too long.
    ///
    /// # Errors
    /// When they do.
    pub fn affordable(parts: usize, d: usize, setting: &RoundSetting, batch: u64) -> Result<()> {
        let doublings = (setting.local_steps as f64).log2() + (batch as f64).log2() + 2.0;
        // Three products of 2d x 2d matrices in each doubling, and as many for a step.
        let work = parts as f64 * doublings * 6.0 * (2.0 * d as f64).powi(3);
        if work <= MAX_WORK {
            return Ok(());
        }
        let what = format!("not computed: the noise of {parts} distinct agents with {d} components takes too long");
        Err(Error::not_known("", what, "fewer distinct agents or components"))
    }

    /// The spectral radius of the mean round. Additive noise does not change it: the map of second moments has its square.
    ///
    /// # Errors
    /// When the eigenvalues cannot be computed.
    pub fn radius(&self) -> Result<f64> {
        match &self.round {
            MeanRound::Plain { map, .. } => spectral_radius(map),
            MeanRound::Controls { map, .. } => map.radius(),
        }
    }

    /// The floor: the limit of [`GaussMarkov::curve`] for many rounds.
    ///
    /// # Errors
    /// When the mean diverges, or the state is too large and the limit too far away.
    pub fn floor(&self) -> Result<MeanSquare> {
        let radius = self.radius()?;
        if radius >= 1.0 || radius.is_nan() {
            return Err(unstable(radius * radius));
        }
        let bias = match &self.round {
            MeanRound::Plain { bias: Some(mean), .. } => mean.bias()?,
            _ => vec![0.0; self.dim],
        };
        let noise = match &self.round {
            MeanRound::Plain { map, .. } => self.stationary_noise(map)?,
            MeanRound::Controls { map, .. } if map.dim() <= DENSE_STATE => self.stationary_noise(&map.to_matrix())?,
            MeanRound::Controls { .. } => self.summed_noise(radius)?,
        };
        Ok(MeanSquare::floor(bias, noise))
    }

    /// The error at each of `rounds` (ascending), from `theta_0` (d) and these initial controls; the law gives the noise at the start.
    ///
    /// # Errors
    /// When rounds are not in ascending order or too many, or the given controls are not one vector of d numbers for each agent.
    pub fn curve(&self, theta_0: &[f64], controls: &InitialControls, rounds: &[u64]) -> Result<Vec<MeanSquare>> {
        if !rounds.is_sorted() {
            return Err(Error::new("rounds", "rounds that are not in ascending order", "ascending round numbers"));
        }
        let u: Vec<f64> = theta_0.iter().zip(&self.root).map(|(x, r)| x - r).collect();
        let start = std::iter::once(Ok(u)).chain(self.controls(controls)).collect::<Result<Vec<_>>>()?;
        let affine = match &self.round {
            MeanRound::Plain { bias: Some(mean), .. } => Some(mean.mean(theta_0, rounds)),
            _ => None,
        };
        let mut responses = Responses::new(self);
        let mut curve = Vec::with_capacity(rounds.len());
        for (i, round) in rounds.iter().enumerate() {
            while responses.round < *round {
                responses.advance()?;
            }
            let bias = match &affine {
                Some(means) => means[i].iter().zip(&self.root).map(|(x, r)| x - r).collect(),
                None => responses.of_state(&start),
            };
            curve.push(MeanSquare { bias, noise: responses.noise() });
        }
        Ok(curve)
    }

    /// `xbar_k = xi_k - xi*_k` at the start, for every kind; none for methods without controls.
    fn controls(&self, controls: &InitialControls) -> Vec<Result<Vec<f64>>> {
        if matches!(self.round, MeanRound::Plain { .. }) {
            return Vec::new();
        }
        let mut weights = vec![0.0; self.pushes.len()];
        self.kind_of.iter().zip(&self.weights).for_each(|(kind, p)| weights[*kind as usize] += p);
        let of_kind = |k: usize| -> Result<Vec<f64>> {
            match controls {
                InitialControls::Root => Ok(vec![0.0; self.dim]),
                // -xi*_k = gbar_k(theta*).
                InitialControls::Zero => Ok(self.pushes[k].clone()),
                InitialControls::Given(all) => {
                    if all.len() != self.kind_of.len() || all.iter().any(|xi| xi.len() != self.dim) {
                        return Err(Error::new("controls", "controls of another shape", "d numbers for each agent"));
                    }
                    let mut mean = self.pushes[k].clone();
                    for ((xi, _), p) in all.iter().zip(&self.kind_of).zip(&self.weights).filter(|((_, kind), _)| **kind as usize == k) {
                        mean.iter_mut().zip(xi).for_each(|(mean, xi)| *mean += p / weights[k] * xi);
                    }
                    Ok(mean)
                }
            }
        };
        (0..self.pushes.len()).map(of_kind).collect()
    }

    /// The trace of the stationary covariance of u, for the mean round as a matrix.
    ///
    /// # Errors
    /// When the computation is cancelled.
    fn stationary_noise(&self, map: &Mat<f64>) -> Result<f64> {
        let n = map.nrows();
        // Phi^(2^j) of every part and L^(2^j), until the powers of Phi have vanished.
        let memories: Vec<Vec<Mat<f64>>> = match self.has_memory {
            true => work::map(self.parts.len(), |k| doublings(&self.parts[k].noise.after, usize::MAX))?,
            false => vec![Vec::new(); self.parts.len()],
        };
        let powers = doublings(map, memories.iter().map(Vec::len).max().unwrap_or(0));
        let source = |k: usize| {
            let (Part { kind, factor, noise, stationary, .. }, memories) = (&self.parts[k], &memories[k]);
            let enters = self.round.enters(*kind, self.pushes.len(), self.dim);
            let mut source = &enters * &noise.own * enters.transpose();
            if self.has_memory {
                // E y x^T = L (E y x^T) Phi^T + B (R Sigma Phi^T + E e f^T).
                let carried = &noise.of_before * stationary;
                let response = &enters * &noise.of_before;
                let mut cross = &enters * (&carried * noise.after.transpose() + &noise.cross);
                powers.iter().zip(memories).for_each(|(map, after)| cross = &cross + map * &cross * after.transpose());
                let mixed = map * cross * response.transpose();
                source += &mixed + mixed.transpose() + &enters * carried * response.transpose();
            }
            Scale(*factor) * source
        };
        let sources: Vec<Mat<f64>> = work::map(self.parts.len(), source)?;
        let mut source = Mat::<f64>::zeros(n, n);
        sources.iter().for_each(|of_part| source += of_part);
        let covariance = linalg::discrete_lyapunov(map, &source);
        Ok((0..self.dim).map(|i| covariance[(i, i)]).sum())
    }

    /// The limit of the noise along the rounds.
    fn summed_noise(&self, radius: f64) -> Result<f64> {
        let memory = |part: &Part| if self.has_memory { spectral_radius(&part.noise.after) } else { Ok(0.0) };
        let slowest = self.parts.iter().map(memory).try_fold(radius, |most, memory| memory.map(|x| most.max(x)))?;
        // Terms fall as slowest^(2t): after these rounds they are below rounding, up to factors of maps that are not normal.
        let mut responses = Responses::new(self);
        responses.afford(20.0 / -slowest.ln())?;
        while !responses.has_settled() {
            responses.advance()?;
        }
        Ok(responses.noise())
    }
}

/// `M^(2^j)` for j = 0, 1, .. until they vanish, at most `most`.
fn doublings(m: &Mat<f64>, most: usize) -> Vec<Mat<f64>> {
    let (mut m, mut all) = (m.clone(), Vec::new());
    while all.len() < most && m.norm_l2() > 0.0 && m.is_all_finite() {
        let next = &m * &m;
        all.push(m);
        m = next;
    }
    all
}

impl MeanRound {
    /// B of a kind, as a matrix.
    fn enters(&self, k: usize, kinds: usize, d: usize) -> Mat<f64> {
        match self {
            Self::Plain { alpha, .. } => Scale(*alpha) * Mat::<f64>::identity(d, d),
            Self::Controls { map, alpha, span } => Mat::from_fn(d * (kinds + 1), d, |row, column| {
                let own = if row / d == k + 1 { 1.0 / map.groups[k].weight } else { 0.0 };
                let size = if row < d { *alpha } else { (1.0 - own) / span };
                f64::from(row % d == column) * size
            }),
        }
    }
}

/// The responses `W_t = (G_t, Z_t)` of u to a state t rounds earlier, and the noise that they sum to.
struct Responses<'a> {
    of: &'a GaussMarkov,
    round: u64,
    /// The blocks of `G_t`, d x d each: of u, and of the mean control of each kind.
    state: Vec<Mat<f64>>,
    /// `Z_t` of each part, d x d.
    noise: Vec<Mat<f64>>,
    /// `sum_{s<t} tr W_s cov(B e, f) W_s^T`, times the factors of the parts.
    sum: f64,
    /// The number of rounds in a row that have added nothing.
    silent: usize,
    work: f64,
}

impl<'a> Responses<'a> {
    fn new(of: &'a GaussMarkov) -> Self {
        let d = of.dim;
        let controls = if matches!(of.round, MeanRound::Plain { .. }) { 0 } else { of.pushes.len() };
        let mut state = vec![Mat::<f64>::zeros(d, d); controls + 1];
        state[0] = Mat::identity(d, d);
        Self { of, round: 0, state, noise: vec![Mat::zeros(d, d); of.parts.len()], sum: 0.0, silent: 0, work: 0.0 }
    }

    /// Rejects a number of rounds that takes too long.
    fn afford(&self, rounds: f64) -> Result<()> {
        if self.work + rounds * self.work_of_round() <= MAX_WORK {
            return Ok(());
        }
        let (kinds, d) = (self.of.parts.len(), self.of.dim);
        let what = format!("not computed: the noise of {kinds} distinct agents with {d} components over the rounds takes too long");
        Err(Error::not_known("", what, "fewer distinct agents, fewer rounds, or a step that converges in fewer"))
    }

    fn work_of_round(&self) -> f64 {
        let d3 = (self.of.dim as f64).powi(3);
        (if self.has_settled() { 0.0 } else { 5.0 * self.noise.len() as f64 } + 2.0 * self.state.len() as f64) * d3
    }

    fn has_settled(&self) -> bool {
        self.silent >= SETTLED_ROUNDS
    }

    /// `E ||theta_t - E theta_t||^2`.
    fn noise(&self) -> f64 {
        self.sum + self.left_of_start()
    }

    /// `tr Z_t E[x_0 x_0^T] Z_t^T`.
    fn left_of_start(&self) -> f64 {
        if !self.of.has_memory || self.has_settled() {
            return 0.0;
        }
        self.of.parts.iter().zip(&self.noise).map(|(part, z)| part.factor * inner(&(z * &part.start), z)).sum()
    }

    /// `G_t y`.
    fn of_state(&self, y: &[Vec<f64>]) -> Vec<f64> {
        let mut u = vec![0.0; self.of.dim];
        for (g, y) in self.state.iter().zip(y) {
            u.iter_mut().zip(linalg::mat_vec(g, y)).for_each(|(u, x)| *u += x);
        }
        u
    }

    fn advance(&mut self) -> Result<()> {
        work::check()?;
        self.afford(1.0)?;
        self.work += self.work_of_round();
        if !self.has_settled() {
            let all = self.state[1..].iter().fold(Mat::<f64>::zeros(self.of.dim, self.of.dim), |sum, g| sum + g);
            let (of, state) = (self.of, &self.state);
            let each = |k: usize, z: &mut Mat<f64>, out: &mut f64| {
                let Part { kind, factor, noise, .. } = &of.parts[k];
                let enters = match &of.round {
                    MeanRound::Plain { alpha, .. } => Scale(*alpha) * &state[0],
                    MeanRound::Controls { map, alpha, span } => {
                        let own = Scale(1.0 / map.groups[*kind].weight) * &state[kind + 1];
                        Scale(*alpha) * &state[0] + Scale(1.0 / span) * (&all - own)
                    }
                };
                let mut term = inner(&(&enters * &noise.own), &enters);
                if of.has_memory {
                    term += 2.0 * inner(&(&enters * &noise.cross), z) + inner(&(&*z * &noise.kept), z);
                    *z = &enters * &noise.of_before + &*z * &noise.after;
                }
                *out = factor * term;
            };
            let mut terms = vec![0.0; of.parts.len()];
            let mut both: Vec<_> = self.noise.iter_mut().zip(&mut terms).collect();
            parallel::each_mut(&mut both, |k, (z, out)| each(k, z, out));
            let added: f64 = terms.iter().sum();
            self.sum += added;
            let is_silent = added + self.left_of_start() <= SETTLED * self.sum;
            self.silent = if is_silent { self.silent + 1 } else { 0 };
        }
        self.state = match &self.of.round {
            MeanRound::Plain { map, .. } => vec![&self.state[0] * map],
            MeanRound::Controls { map, .. } => map.respond(&self.state),
        };
        self.round += 1;
        Ok(())
    }
}

/// `tr A B^T`.
fn inner(a: &Mat<f64>, b: &Mat<f64>) -> f64 {
    (0..a.ncols()).map(|j| a.col_as_slice(j).iter().zip(b.col_as_slice(j)).map(|(a, b)| a * b).sum::<f64>()).sum()
}
