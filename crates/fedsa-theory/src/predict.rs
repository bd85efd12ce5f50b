//! Predictions for a method on a problem: limits, radii, floors, exact mean-square errors, and whether a step size is stable.
//!
//! The closed forms are in the other modules of [`super`]. A [`Forecast`] selects the closed form that applies to a method over its
//! link, or gives the reason if none applies. It judges stability by the radii ([`Outlook`]). A prediction whose computation would take
//! too long counts as unknown.
//!
//! | link or participation | mean: limit, radius | mean square: floor, curve, radius |
//! | --- | --- | --- |
//! | clear | all methods whose round is a linear map | FedLSA, FedHSA, SCAFFLSA with a fixed period |
//! | unbiased codecs, up or down, without error feedback | as over a clear link | unknown: the error's variance depends on the vector |
//! | independent losses, over the air, fading bit budgets, noise of agents | with the mean gain | methods without memory |
//! | noise of agents or receivers alone | all methods whose round is a linear map | FedLSA, FedHSA, SCAFFLSA with `afresh` |
//! | m of N agents of equal weight | FedLSA as with all agents; other methods with their own factors | methods without memory |
//! | delays, the same law in every round | methods without memory | constant delays, methods without memory |
//!
//! The mean square over a clear link with all agents, by the noise of samples:
//!
//! | samples | FedLSA, FedHSA, SCAFFLSA with a fixed period |
//! | --- | --- |
//! | independent | exact |
//! | additive Gauss-Markov noise on linear systems | exact ([`super::gauss_markov`]) |
//! | a finite chain, one agent | exact, batches too |
//! | finite chains, a few agents | floors exact |
//! | finite chains, more agents | closure, where it is small enough; leading order |
//!
//! For nonlinear operators with known Jacobians, over a clear link with all agents: the radius at the root, the exact limit, and floors to
//! leading order ([`super::nonlinear`]).
//!
//! [`Accuracy`](super::Accuracy) names the kind of a number.
//!
//! ```
//! use fedsa::kernel::Isa;
//! use fedsa::method::MethodSettings as _;
//! use fedsa_methods::fedlsa::FedLsa;
//! use fedsa_problems::td::garnet::Garnet;
//! use fedsa_problems::{NoFiles, ProblemSettings as _};
//! use fedsa::sampling::Sampling;
//! use fedsa_theory::predict::{Forecast, Regime};
//! use fedsa::uplink::Uplink;
//!
//! # fn main() -> fedsa::error::Result<()> {
//! let garnet = Garnet::default().with_agents(4).with_states(10).with_features(3).with_seed(1);
//! let field = garnet.field(&NoFiles, Sampling::default(), Isa::best())?;
//! let forecast = Forecast::over(&field, &FedLsa::new(0.1, 10), &Uplink::default());
//! assert!(forecast.floor()?.mse() > forecast.bias_sq()?);
//! assert_eq!(forecast.outlook().regime(), Regime::Stable);
//! assert!(forecast.largest_stable_step()?.step > 0.1);
//! # Ok(())
//! # }
//! ```

mod bias;
mod curve;
mod evolution;
mod floor;
mod limits;
mod markov;
mod noise;
mod nonlinear;
mod outlook;
mod quantities;
mod radius;
mod reach;
mod region;
mod round;
mod statements;
mod td;
mod what_if;

pub use bias::NoBias;
pub use floor::PredictedFloor;
pub use limits::Limits;
pub use markov::{MarkovExplanation, PredictionCost};
pub use outlook::{MeanSquareRadius, Outlook, Regime, StableStep, TOO_SLOW};
pub use quantities::{FloorCache, QUANTITIES, Quantity, quantity};
pub use reach::{Obstacle, Reach, Rounds, check_target, error_at_start, rounding};
pub use region::{Region, Spot, StableSet, StepVerdict};
pub use statements::Statement;
pub use what_if::twins;

pub use super::unknown::unknown;

use std::sync::Arc;

use super::link::LinkLaw;
use super::work;
use fedsa::cancel::Cancel;
use fedsa::error::{Error, Result};
use fedsa::method::{MethodShape, MissingUpdate, Setting};
use fedsa::problem::Field;
use fedsa::problem::copies::CopyRule;
use fedsa::problem::systems::Systems;
use fedsa::record::OutputRule;
use fedsa::sampling::Sampling;
use fedsa::uplink::Uplink;
use fedsa::uplink::stage::secure_sum::Summed;

/// The largest d for which exact mean-square errors are computed.
pub const EXACT_DIM: usize = 24;
/// The most multiplications along the rounds of a delayed method, and the advice to reduce them.
const DELAYED_WORK: f64 = 5e9;
/// Multiplications of a round of the second moments of a delayed method.
fn delayed_work(d: usize, delay: usize) -> f64 {
    2.0 * (d as f64).powi(3) * (delay + 1) as f64
}
const LESS_DELAYED: &str = "fewer rounds, shorter delays or fewer features";

/// A method on a problem over a link. Predictions are computed on request.
#[derive(Clone)]
pub struct Forecast {
    field: Arc<dyn Field>,
    /// The sampling; the field's, unless the forecast is for another law.
    sampling: Sampling,
    /// Agents that replace the field's.
    others: Option<Arc<Systems>>,
    shape: MethodShape,
    output: OutputRule,
    /// The copies of theta whose combination is the output.
    copies: Option<CopyRule>,
    lost: MissingUpdate,
    link: Arc<Result<LinkLaw>>,
    cancel: Cancel,
}

/// The shape of a method over a link, for closed forms that hold over clear links only: over any other link no round counts as linear.
pub fn shape_over(method: &dyn fedsa::method::MethodSettings, link: &Uplink) -> MethodShape {
    let shape = method.shape();
    MethodShape { is_linear: shape.is_linear && link.is_clear(), ..shape }
}

/// The error for a closed form that takes too long, with advice.
fn takes_too_long(what: &str, help: &str) -> Error {
    work::refused(what, help)
}

fn no_steps() -> Error {
    unknown("the method makes no local steps")
}

fn no_moments() -> Error {
    unknown("second moments of the samples")
}

impl Forecast {
    /// The forecast for a method of this shape over a clear link; the output is the last iterate.
    pub fn new(field: &Arc<dyn Field>, shape: MethodShape) -> Self {
        let (output, lost, link) = (OutputRule::Last, MissingUpdate::Zero, Arc::new(Ok(LinkLaw::clear())));
        Self {
            field: Arc::clone(field),
            sampling: field.sampling(),
            others: None,
            shape,
            output,
            copies: None,
            lost,
            link,
            cancel: Cancel::never(),
        }
    }

    /// The forecast for a method over a link; the output is the last iterate.
    pub fn over(field: &Arc<dyn Field>, method: &dyn fedsa::method::MethodSettings, link: &Uplink) -> Self {
        let noise_of = |mut law: LinkLaw| {
            // Private sums have noise of all agents.
            let setting =
                Setting { seed: 0, weights: field.weights(), start: vec![0.0; field.dim()], link: link.facts(), is_accelerated: false };
            let exchanges = method.protocol(&setting).exchanges.len();
            let grid = link.grid(Summed { weights: field.weights(), numbers: field.dim(), exchanges })?;
            let agents = field.agents();
            law.receiver_noise = law.receiver_noise.hypot(agents as f64 * grid.map_or(0.0, |grid| grid.noise_variance(agents)).sqrt());
            Ok(law)
        };
        let law = LinkLaw::of(link, field.dim()).and_then(noise_of);
        let lost = method.lost(field.agents(), &link.facts());
        Self { lost, link: Arc::new(law), ..Self::new(field, method.shape()) }
    }

    /// The same forecast with another output.
    #[must_use]
    pub fn of_output(self, output: OutputRule) -> Self {
        Self { output, ..self }
    }

    /// The same forecast for a combination of copies of theta: its limit, and of nonlinear problems the bias of a difference from a linear
    /// twin. Stability is that of the largest step.
    #[must_use]
    pub fn of_copies(self, copies: Option<CopyRule>) -> Self {
        Self { copies, ..self }
    }

    /// The same forecast with computations that stop soon after the token is cancelled. They then return errors of the kind
    /// [`Cancelled`](fedsa::error::ErrorKind::Cancelled).
    #[must_use]
    pub fn with_cancel(self, cancel: &Cancel) -> Self {
        Self { cancel: cancel.clone(), ..self }
    }

    /// Computes with this forecast's token.
    fn stoppable<T>(&self, compute: impl FnOnce() -> Result<T>) -> Result<T> {
        work::until(&self.cancel, compute)
    }

    /// Rejects outputs other than the last iterate, because averaging changes the noise.
    fn of_last(&self) -> Result<()> {
        if self.output == OutputRule::Last && self.copies.is_none() { Ok(()) } else { Err(unknown("the output is not the last iterate")) }
    }

    /// The effect of the link on a round.
    ///
    /// # Errors
    /// When it is not known; gives the reason.
    pub fn link(&self) -> Result<&LinkLaw> {
        self.link.as_ref().as_ref().map_err(Clone::clone)
    }
}
