//! Anderson acceleration of another method's rounds (type II), with a safeguard.
//!
//! ```text
//! round t:   g_t         = G(theta_t)                      (a round of the base method)
//!            f_t         = g_t - theta_t                   (its residual)
//!            gamma       = argmin || f_t - F gamma ||^2 + r^2 sum_j ||F_j||^2 gamma_j^2
//!            theta_{t+1} = g_t - (X + F) gamma
//! ```
//! The columns of X and F are the differences of successive iterates and residuals of the last rounds, at most m of them. Source: Walker
//! and Ni (2011), eq. 2.1 and section 2. On a linear map with m >= d it equals GMRES: `theta_{t+1} = G(x_t)`, where x_t has the least
//! residual over the Krylov space of t products. The ridge r bounds the coefficients if columns are nearly dependent.
//!
//! **Safeguard.** If `||f_t||` exceeds `safeguard` times the smallest residual in the history, the history is dropped. An accelerated
//! `theta_t` is discarded, and `theta_{t+1} = G(theta_i)` for the iterate i of the smallest residual; otherwise `theta_{t+1} = g_t`. A
//! round with a lost message is not a round of the map: `theta_{t+1} = g_t`, and the history does not change.
//!
//! **Only theta is accelerated.** The agents' half and the links are the base's. A fixed point of G has `f_t = 0` and is a fixed point of
//! the accelerated method, so the limit does not change: FedLSA keeps its bias. SCAFFLSA's map also moves the control variates, which the
//! differences do not contain. Its agents cannot compute v from the next model, which is not `theta_t + alpha_g E v`. The server sends them
//! v at the end of each round, in one more exchange.
//!
//! **Benefits and costs** (measured by `tests/anderson.rs`).
//!
//! - Without noise it reduces thousands of rounds to tens. On a Garnet problem with 16 features, FedHSA with H = 5 takes 116 (m = 5) or 31
//!   (m = 20) rounds instead of 11450, and FedTD 105 or 49 instead of 57248. With SCAFFLSA it gains less: 143 or 149 rounds instead of
//!   11450.
//! - With noise the differences are noisy too. The floor of the squared error is 1.06 (standard error 0.04) to 2.07 (0.12) times the
//!   base's, over i.i.d. samples with and without 20% of the messages lost. A smaller `step_size` makes the base average more, and
//!   acceleration cost more. With `safeguard = 2` the floor is 1.3 to 27 times the base's, because of rare distant iterates; a ridge below
//!   1 changes little.
//! - With the mean operator and 20% of the messages lost, the floors are below the base's: 0.28 times for FedHSA, below 0.01 for FedTD and
//!   SCAFFLSA. Only rounds in which all messages arrive are accelerated. With many agents these are rare, and the method equals its base.
//! - With m of N agents each round has another map. With the mean operator and 2 or 3 of 4 agents, the floor of FedTD, FedLSA and FedHSA is
//!   47 (standard error 5) to 79 (5) times the base's, and in some runs thousands of times, because of rare distant iterates. Over i.i.d.
//!   samples it is 1.2 (0.04) to 6.0 (1.4) times. The noise of participation vanishes at the root with SCAFFLSA. Acceleration then reaches
//!   the root under the mean operator, in fewer rounds than the base; over i.i.d. samples the floor is 1.3 (0.06) to 1.4 (0.2) times the
//!   base's.
//! - A ridge of 1e-2 or more makes noiseless runs several times slower.
//! - The least-squares problem loses digits if the map is ill-conditioned. The final accuracy is the base's, but d + 1 rounds are then not
//!   enough.
//!
//! **Refused bases** have rounds that are not one map of theta: random or varying steps, answers to old models, methods that solve or
//! accelerate by themselves. Links that deliver old answers are refused too.

use fedsa::error::{Error, Result, require};
use fedsa::kernel::dot;
use fedsa::linalg::{along, minus, norm_sq};
use fedsa::local::Client;
use fedsa::message::{Body, Part};
use fedsa::method::{MethodSettings, MethodShape, MissingUpdate, Setting};
use fedsa::protocol::Protocol;
use fedsa::saved::{packed, unpacked};
use fedsa::server::{Broadcast, Next, Received, Server};
use fedsa::uplink::LinkFacts;
use serde::{Deserialize, Serialize};

use super::delayed_sa::{Dasa, DelayAdaptiveSa, DelayedSa};
use super::fedhsa::FedHsa;
use super::fedlin::FedLin;
use super::fedlsa::FedLsa;
use super::fedtd::FedTd;
use super::gmres::Gmres;
use super::lstd::Lstd;
use super::newton::Newton;
use super::one_shot::OneShot;
use super::projected_td::ProjectedTd;
use super::scafflsa::Scafflsa;
use super::scafflsa_random::ScafflsaRandom;
use super::scaffold::Scaffold;
use crate::one;
use crate::server::history::{History, StepPair};

/// The settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Anderson {
    /// Accelerated method, with a constant step size.
    #[serde(deserialize_with = "fedsa::registry::table")]
    #[cfg_attr(feature = "schema", schemars(extend("examples" = [{ "kind": "fedtd", "step_size": 1 }])))]
    pub base: Base,
    /// Iterate differences to combine.
    #[serde(default = "five")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = MAX_MEMORY)))]
    pub memory: usize,
    /// Restart above this multiple of the history's smallest residual.
    #[serde(default = "one")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub safeguard: f64,
    /// Relative ridge of the least-squares problem.
    #[serde(default = "ridge")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1e-14)))]
    pub ridge: f64,
}

fedsa::settings::setters! { Anderson {
    with_base(base: Base) = base;
    with_memory(memory: usize) = memory;
    with_safeguard(safeguard: f64) = safeguard;
    with_ridge(ridge: f64) = ridge;
} }

/// The largest accepted memory.
pub const MAX_MEMORY: usize = 10_000;

fn five() -> usize {
    5
}

fn ridge() -> f64 {
    1e-10
}

/// The base method. All kinds are readable, so that a refusal can state the reason.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the variants are the kinds")]
pub enum Base {
    #[serde(rename = "fedlsa", alias = "fedavg")]
    FedLsa(FedLsa),
    Scafflsa(Scafflsa),
    #[serde(rename = "fedhsa")]
    FedHsa(FedHsa),
    #[serde(rename = "fedtd")]
    FedTd(FedTd),
    ProjectedTd(ProjectedTd),
    #[cfg_attr(feature = "schema", schemars(skip))]
    Scaffold(Scaffold),
    #[cfg_attr(feature = "schema", schemars(skip))]
    #[serde(rename = "fedlin")]
    FedLin(FedLin),
    #[cfg_attr(feature = "schema", schemars(skip))]
    OneShot(OneShot),
    #[cfg_attr(feature = "schema", schemars(skip))]
    ScafflsaRandom(ScafflsaRandom),
    #[cfg_attr(feature = "schema", schemars(skip))]
    DelayedSa(DelayedSa),
    #[cfg_attr(feature = "schema", schemars(skip))]
    DelayAdaptiveSa(DelayAdaptiveSa),
    #[cfg_attr(feature = "schema", schemars(skip))]
    Dasa(Dasa),
    #[cfg_attr(feature = "schema", schemars(skip))]
    Lstd(Lstd),
    #[cfg_attr(feature = "schema", schemars(skip))]
    Gmres(Gmres),
    #[cfg_attr(feature = "schema", schemars(skip))]
    Newton(Newton),
    #[cfg_attr(feature = "schema", schemars(skip))]
    Anderson(Box<Anderson>),
}

impl Base {
    /// The base's settings.
    pub fn settings(&self) -> &dyn MethodSettings {
        match self {
            Self::FedLsa(base) => base,
            Self::Scafflsa(base) => base,
            Self::FedHsa(base) => base,
            Self::FedTd(base) => base,
            Self::ProjectedTd(base) => base,
            Self::Scaffold(base) => base,
            Self::FedLin(base) => base,
            Self::OneShot(base) => base,
            Self::ScafflsaRandom(base) => base,
            Self::DelayedSa(base) => base,
            Self::DelayAdaptiveSa(base) => base,
            Self::Dasa(base) => base,
            Self::Lstd(base) => base,
            Self::Gmres(base) => base,
            Self::Newton(base) => base,
            Self::Anderson(base) => &**base,
        }
    }

    /// The reason why rounds of this kind cannot be accelerated.
    fn refusal(&self) -> Option<&'static str> {
        match self {
            Self::FedLsa(_) | Self::Scafflsa(_) | Self::FedHsa(_) | Self::FedTd(_) | Self::ProjectedTd(_) => None,
            Self::Scaffold(_) => Some("with all agents its rounds are those of scafflsa, which can be accelerated"),
            Self::FedLin(_) => Some("without noise its rounds are those of fedhsa, which can be accelerated"),
            Self::OneShot(_) => Some("its agents do not use the server's model, so that a round is no map of theta"),
            Self::ScafflsaRandom(_) => Some("the number of local steps is random, so that every round is another map of theta"),
            Self::DelayedSa(_) => Some("a round of delayed directions is no map of theta; without delays it is fedlsa"),
            Self::DelayAdaptiveSa(_) | Self::Dasa(_) => {
                Some("the server compares theta with the models of past rounds, from which acceleration moves it away")
            }
            Self::Lstd(_) | Self::Gmres(_) => Some("the method solves the mean system itself"),
            Self::Newton(_) => Some("the method takes second-order steps with a line search of its own"),
            Self::Anderson(_) => Some("its rounds are accelerated already, and depend on the history"),
        }
    }
}

impl Anderson {
    /// With the default memory and safeguard.
    pub fn new(base: Base) -> Self {
        Self { base, memory: five(), safeguard: one(), ridge: ridge() }
    }

    /// The setting for which the base is built.
    fn base_setting<'a>(setting: &Setting<'a>) -> Setting<'a> {
        Setting { is_accelerated: true, ..setting.clone() }
    }
}

impl MethodSettings for Anderson {
    fn check(&self, agents: usize) -> Result<()> {
        require((1..=MAX_MEMORY).contains(&self.memory), "memory", self.memory, &format!("between 1 and {MAX_MEMORY}"))?;
        require(self.safeguard >= 1.0 && self.safeguard.is_finite(), "safeguard", self.safeguard, "a factor of 1 or more")?;
        require(self.ridge >= 1e-14 && self.ridge.is_finite(), "ridge", self.ridge, "1e-14 or more")?;
        if let Some(why) = self.base.refusal() {
            return Err(Error::new("base", why, "fedlsa, scafflsa, fedhsa, fedtd or projected-td"));
        }
        self.base.settings().check(agents).map_err(|e| e.inside("base"))?;
        if self.base.settings().shape().step_size.constant().is_none() {
            let what = "a step size that varies from round to round, so that every round is another map of theta";
            return Err(Error::new("base.step_size", what, "a number"));
        }
        Ok(())
    }

    fn check_link(&self, link: &LinkFacts) -> Result<()> {
        if link.stale.is_some() || link.late.is_some() {
            let what = "a round's residual must belong to its model, and over this link answers are to older models";
            return Err(Error::new("uplink", what, "a link without delay and late, or the base method alone"));
        }
        self.base.settings().check_link(link)
    }

    /// The history, and the base's memory.
    fn memory(&self, agents: usize, d: usize) -> f64 {
        8.0 * 4.0 * (self.memory + 1) as f64 * d as f64 + self.base.settings().memory(agents, d)
    }

    fn work(&self, agents: usize, d: usize) -> f64 {
        self.base.settings().work(agents, d)
    }

    fn protocol(&self, setting: &Setting<'_>) -> Protocol {
        self.base.settings().protocol(&Self::base_setting(setting))
    }

    fn client(&self, setting: &Setting<'_>) -> Box<dyn Client> {
        self.base.settings().client(&Self::base_setting(setting))
    }

    fn server(&self, setting: &Setting<'_>) -> Box<dyn Server> {
        let base = self.base.settings().server(&Self::base_setting(setting));
        Box::new(AndersonServer::new(base, self.memory, self.safeguard, self.ridge))
    }

    fn lost(&self, agents: usize, link: &LinkFacts) -> MissingUpdate {
        self.base.settings().lost(agents, link)
    }

    /// The base's shape, but without predictions, because a round depends on the history.
    fn shape(&self) -> MethodShape {
        MethodShape { is_linear: false, ..self.base.settings().shape() }
    }
}

/// The base's server, and the iterates and residuals of its last rounds.
pub struct AndersonServer {
    /// The rule whose rounds are the map G.
    base: Box<dyn Server>,
    /// m: the largest number of differences.
    memory: usize,
    /// The largest accepted residual, in multiples of the smallest.
    safeguard: f64,
    /// r.
    ridge: f64,
    /// The combined rounds, at most m + 1: `theta_i`, and the residual `f_i = G(theta_i) - theta_i`.
    history: History,
    /// Whether theta was moved and its residual is not yet known.
    is_moved: bool,
    /// Whether all answers of the current round have arrived so far.
    is_whole: bool,
}

/// `||f_i||`.
fn size((_, residual): &StepPair) -> f64 {
    norm_sq(residual).sqrt()
}

/// `G(theta_i)`.
fn image((theta, residual): &StepPair) -> Vec<f64> {
    along(theta, 1.0, residual)
}

impl AndersonServer {
    /// Accelerates the rounds of `base`, which must accept [`Server::move_to`].
    pub fn new(base: Box<dyn Server>, memory: usize, safeguard: f64, ridge: f64) -> Self {
        Self { base, memory, safeguard, ridge, history: History::default(), is_moved: false, is_whole: true }
    }

    /// `theta_{t+1}`, if it is not `G(theta_t)`.
    fn next(&mut self, now: StepPair) -> Option<Vec<f64>> {
        let length = size(&now);
        if !length.is_finite() {
            return None;
        }
        let was_moved = std::mem::take(&mut self.is_moved);
        let most = self.memory + 1;
        let best = self.history.pairs.iter().min_by(|a, b| size(a).total_cmp(&size(b))).cloned();
        if let Some(best) = best.filter(|best| length > self.safeguard * size(best)) {
            self.history = History::default();
            let image = was_moved.then(|| image(&best));
            self.history.push(if was_moved { best } else { now }, most);
            return image;
        }
        self.history.push(now, most);
        let next = self.combined()?;
        self.is_moved = next.iter().all(|x| x.is_finite());
        self.is_moved.then_some(next)
    }

    /// `g_t - (X + F) gamma`; `None` without usable differences.
    fn combined(&self) -> Option<Vec<f64>> {
        let points = &self.history.pairs;
        let now = points.back()?;
        let (d, k) = (now.0.len(), points.len() - 1);
        // Orthonormal columns of [F; r I], each column of F with norm 1, newest first; R; and each column's move of theta.
        let mut basis: Vec<Vec<f64>> = Vec::new();
        let (mut upper, mut moves) = (Vec::new(), Vec::new());
        for j in (0..k).rev() {
            let (before, after) = (&points[j], &points[j + 1]);
            let mut column = minus(&after.1, &before.1);
            let length = norm_sq(&column).sqrt();
            if length == 0.0 {
                continue;
            }
            let mut change = minus(&after.0, &before.0);
            change.iter_mut().zip(&column).for_each(|(x, f)| *x = (*x + f) / length);
            column.iter_mut().for_each(|f| *f /= length);
            column.resize(d + k, 0.0);
            column[d + j] = self.ridge;
            let mut above = vec![0.0; basis.len()];
            // Twice, because one pass leaves errors of the size of the condition number.
            for _ in 0..2 {
                for (q, above) in basis.iter().zip(&mut above) {
                    let part = dot(q, &column);
                    *above += part;
                    column.iter_mut().zip(q).for_each(|(f, q)| *f -= part * q);
                }
            }
            let rest = norm_sq(&column).sqrt();
            if rest <= f64::EPSILON {
                continue;
            }
            above.push(rest);
            basis.push(column.iter().map(|f| f / rest).collect());
            upper.push(above);
            moves.push(change);
        }
        if basis.is_empty() {
            return None;
        }
        let mut gamma: Vec<f64> = basis.iter().map(|q| dot(&q[..d], &now.1)).collect();
        for j in (0..gamma.len()).rev() {
            gamma[j] /= upper[j][j];
            let x = gamma[j];
            gamma[..j].iter_mut().zip(&upper[j]).for_each(|(y, r)| *y -= r * x);
        }
        let mut next = image(now);
        for (gamma, change) in gamma.iter().zip(&moves) {
            next.iter_mut().zip(change).for_each(|(x, change)| *x -= gamma * change);
        }
        Some(next)
    }
}

impl Server for AndersonServer {
    fn open(&mut self, t: u64) -> Broadcast {
        self.is_whole = true;
        self.base.open(t)
    }

    fn receive(&mut self, got: &Received<'_>) -> Next {
        self.is_whole &= got.arrived.iter().all(|arrived| *arrived);
        let theta = self.base.theta().to_vec();
        let next = self.base.receive(got);
        // With lost answers the round belongs to another map, so the base's step is taken. The server still remembers that the last iterate
        // was accelerated: harm may show only in the next whole round. Forgetting it makes floors over lossy links larger.
        if self.is_whole && matches!(next, Next::Done { .. }) {
            let residual = minus(self.base.theta(), &theta);
            if let Some(theta) = self.next((theta, residual)) {
                self.base.move_to(theta);
            }
        }
        next
    }

    fn accepts(&self, exchange: u8, parts: &[(Part, Body)]) -> Result<()> {
        self.base.accepts(exchange, parts)
    }

    fn theta(&self) -> &[f64] {
        self.base.theta()
    }

    fn state(&self) -> Vec<u8> {
        packed(&(&self.history, self.is_moved, self.is_whole, self.base.state()))
    }

    fn restore(&mut self, state: &[u8]) -> Result<()> {
        let (history, is_moved, is_whole, base): (_, _, _, Vec<u8>) = unpacked(state)?;
        self.base.restore(&base)?;
        (self.history, self.is_moved, self.is_whole) = (history, is_moved, is_whole);
        Ok(())
    }
}
