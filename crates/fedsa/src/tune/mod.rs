//! The settings of methods that reach a mean-square error at the least cost.
//!
//! A [`Family`] is a method with its link, whose step size eta, local steps H and server's step alpha_g are free. A
//! [`Choice`] sets them. For a choice whose mean-square error is known along the rounds ([`Forecast`]), [`course()`] computes
//! the rounds until it is at most the target, and its floor; [`Price`] turns rounds into bits and samples. [`search()`] looks for
//! the choice of the least cost.
//!
//! A choice *reaches* the target after T rounds if the mean-square error of the iterate is at most the target after T rounds,
//! above it after T - 1, and if the floor is at most the target too: the error then stays there.
//!
//! ```
//! use std::sync::Arc;
//! use fedsa::kernel::Isa;
//! use fedsa::methods::fedhsa::FedHsa;
//! use fedsa::methods::fedlsa::FedLsa;
//! use fedsa::problem::garnet::Garnet;
//! use fedsa::problem::{NoFiles, ProblemSettings as _};
//! use fedsa::sampling::Sampling;
//! use fedsa::tune::{Family, Goal, Start, Target, search};
//! use fedsa::uplink::Uplink;
//!
//! # fn main() -> fedsa::error::Result<()> {
//! let garnet = Garnet { agents: 3, states: 8, features: 2, seed: 1, ..Garnet::default() };
//! let field = garnet.field(&NoFiles, Sampling::default(), Isa::best())?;
//! let link = Arc::new(Uplink::default());
//! let families = [
//!     Family::new("fedlsa", |eta, h, alpha| Ok(Arc::new(FedLsa { global_step_size: alpha, ..FedLsa::new(eta, h) })), &link),
//!     Family::new("fedhsa", |eta, h, alpha| Ok(Arc::new(FedHsa { global_step_size: alpha, ..FedHsa::new(eta, h) })), &link),
//! ];
//! let target = Target { mse: 0.01, goal: Goal::Bits, ..Target::default() };
//! let found = search(&*field, &families, &Start::zero(field.dim()), &target)?;
//! let best = found.best().expect("two methods that reach every error");
//! assert!(best.reached().is_some_and(|reach| reach.mse <= 0.01));
//! # Ok(())
//! # }
//! ```
//!
//! [`Forecast`]: crate::theory::predict::Forecast

mod course;
mod price;
mod search;
#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use course::{Course, Miss, Reach, course, course_of};
pub use price::{Cost, Price};
pub use search::{Found, Tried, cheaper, coarse_steps, largest_step, search, server_steps};

use crate::error::{BadInput, Result, require};
use crate::linalg;
use crate::methods::MethodSettings;
use crate::problem::Field;
use crate::record::OutputRule;
use crate::theory::exact_mse::InitialControls;
use crate::theory::predict::Forecast;
use crate::uplink::Uplink;

/// What is minimised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Goal {
    /// Rounds.
    Rounds,
    /// Bits of all messages, up and down.
    #[default]
    Bits,
    /// Samples of all agents.
    Samples,
}

impl Goal {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Goal::Rounds => "rounds",
            Goal::Bits => "bits",
            Goal::Samples => "samples",
        }
    }
}

/// What is to be reached, and what may be chosen.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    /// The mean-square error `E ||theta - theta*||^2`.
    pub mse: f64,
    /// What is minimised.
    pub goal: Goal,
    /// The most rounds.
    pub most_rounds: u64,
    /// The most local steps.
    pub most_local_steps: u64,
    /// H, if it is given.
    pub local_steps: Option<Vec<u64>>,
}

impl Default for Target {
    fn default() -> Self {
        Self { mse: 0.0, goal: Goal::Bits, most_rounds: MOST_ROUNDS, most_local_steps: MOST_LOCAL_STEPS, local_steps: None }
    }
}

/// The default of [`Target::most_rounds`].
pub const MOST_ROUNDS: u64 = 100_000;
/// The default of [`Target::most_local_steps`].
pub const MOST_LOCAL_STEPS: u64 = 1000;

impl Target {
    /// Checks the target for a problem and a start.
    ///
    /// # Errors
    /// When the error is not positive, smaller than what rounding leaves of the root, or already that of the start; when theta* is
    /// not known; when H or the number of rounds is 0; and when samples are to be minimised that are not drawn.
    pub fn check(&self, field: &dyn Field, start: &Start) -> Result<()> {
        /// Roundings that add up.
        const MANY: f64 = 64.0;
        require(self.mse > 0.0 && self.mse.is_finite(), "target", self.mse, "a positive number: the mean-square error to reach")?;
        require(self.most_rounds >= 1, "most_rounds", self.most_rounds, "at least 1")?;
        require(self.most_local_steps >= 1, "most_local_steps", self.most_local_steps, "at least 1")?;
        if let Some(bad) = self.local_steps.iter().flatten().find(|h| !(1..=crate::methods::MAX_LOCAL_STEPS as u64).contains(*h)) {
            return Err(BadInput::new("local_steps", bad.to_string(), format!("between 1 and {}", crate::methods::MAX_LOCAL_STEPS)));
        }
        let root = field.solution().map_err(|why| {
            let what = format!("theta* is not known for this problem, and therefore no mean-square error: {why}");
            BadInput::new("target", what, "a problem with a known root")
        })?;
        let rounding = (MANY * f64::EPSILON).powi(2) * linalg::norm_sq(&root.theta);
        if self.mse <= rounding {
            let what = format!("{:e} is below what rounding leaves of theta*, {rounding:.1e}", self.mse);
            return Err(BadInput::new("target", what, format!("more than {rounding:.1e}")));
        }
        if let Some(theta) = &start.theta {
            let at_start = linalg::distance_sq(theta, &root.theta);
            if at_start <= self.mse {
                let what = format!("the start has the error {at_start:.3e} already: no round is needed");
                return Err(BadInput::new("target", what, format!("less than {at_start:.3e}, or another start")));
            }
        }
        if self.goal == Goal::Samples && field.sampling().samples_per_step() == 0 {
            return Err(BadInput::new("minimise", "no samples are drawn under the mean operator", "rounds or bits, or another sampling"));
        }
        Ok(())
    }

    /// The numbers of local steps of the coarse search, ascending.
    pub fn coarse_local_steps(&self) -> Vec<u64> {
        if let Some(given) = &self.local_steps {
            let mut given = given.clone();
            given.sort_unstable();
            given.dedup();
            return given;
        }
        // 1, 2, 5, 10, 20, 50, ..
        let decades = (0..9).flat_map(|decade| [1, 2, 5].map(|digit| digit * 10u64.pow(decade)));
        let mut all: Vec<u64> = decades.take_while(|h| *h < self.most_local_steps).collect();
        all.push(self.most_local_steps);
        all
    }
}

/// Where runs start.
#[derive(Debug, Clone, PartialEq)]
pub struct Start {
    /// `theta_0` (d); `None` if it is drawn anew for each seed, which theory does not know.
    pub theta: Option<Vec<f64>>,
    /// The control variates.
    pub controls: InitialControls,
    /// The output.
    pub output: OutputRule,
}

impl Start {
    /// From zero, with controls of zero, and with the last iterate as the output.
    pub fn zero(d: usize) -> Self {
        Self { theta: Some(vec![0.0; d]), controls: InitialControls::Zero, output: OutputRule::Last }
    }
}

/// Makes the settings of a method from eta, H and alpha_g.
pub type Make<'m> = dyn Fn(f64, usize, f64) -> Result<Arc<dyn MethodSettings>> + Send + Sync + 'm;

/// A method with its link, whose step size, local steps and server's step are free.
pub struct Family<'m> {
    /// Its name, for messages: the method, and the codec where there are several.
    pub name: String,
    /// Makes its settings.
    pub make: Box<Make<'m>>,
    /// Its link.
    pub link: Arc<Uplink>,
    /// Whether it has local steps; otherwise H is 1.
    pub has_local_steps: bool,
    /// Whether it has a server's step; otherwise it is 1.
    pub has_server_step: bool,
}

impl<'m> Family<'m> {
    /// A method with local steps and a server's step.
    pub fn new(
        name: &str,
        make: impl Fn(f64, usize, f64) -> Result<Arc<dyn MethodSettings>> + Send + Sync + 'm,
        link: &Arc<Uplink>,
    ) -> Self {
        Self { name: name.into(), make: Box::new(make), link: Arc::clone(link), has_local_steps: true, has_server_step: true }
    }

    /// The method with these settings.
    ///
    /// # Errors
    /// When the method does not accept them.
    pub fn settings(&self, choice: &Choice, agents: usize) -> Result<Arc<dyn MethodSettings>> {
        let settings = (self.make)(choice.step_size, choice.local_steps as usize, choice.server_step)?;
        settings.check(agents)?;
        Ok(settings)
    }

    /// The forecast for the method with these settings.
    ///
    /// # Errors
    /// When the method does not accept them.
    pub fn forecast<'f>(&self, field: &'f dyn Field, choice: &Choice, start: &Start) -> Result<Forecast<'f>> {
        let settings = self.settings(choice, field.agents())?;
        Ok(Forecast::over(field, &*settings, &self.link).of_output(start.output))
    }
}

/// Settings of a family.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Choice {
    /// The index of the family.
    pub family: usize,
    /// eta.
    pub step_size: f64,
    /// H.
    pub local_steps: u64,
    /// alpha_g.
    pub server_step: f64,
}

/// A number with four significant digits, so that files can hold what was computed.
pub fn rounded(x: f64) -> f64 {
    format!("{x:.3e}").parse().unwrap_or(x)
}
