//! What theory predicts of a method on a problem: limits, radii, floors, exact mean-square errors, and
//! whether a step size is stable.
//!
//! [`super`] has the closed forms one by one; here a [`Forecast`] finds out which of them applies to the
//! shape of a method, says why where none does, and turns radii into judgements ([`Outlook`]). Sizes are
//! bounded: a map that takes too long to form is unknown, not slow.
//!
//! ```
//! use fedsa::kernel::Isa;
//! use fedsa::methods::{Settings as _, fedlsa::FedLsa};
//! use fedsa::problem::garnet::Garnet;
//! use fedsa::problem::{NoFiles, Settings as _};
//! use fedsa::sampling::Sampling;
//! use fedsa::theory::predict::{Forecast, Regime};
//! use fedsa::uplink::Uplink;
//!
//! # fn main() -> fedsa::error::Result<()> {
//! let garnet = Garnet { agents: 4, states: 10, features: 3, seed: 1, ..Garnet::default() };
//! let field = garnet.field(&NoFiles, Sampling::default(), Isa::best())?;
//! let forecast = Forecast::over(&*field, &FedLsa::new(0.1, 10), &Uplink::default());
//! assert!(forecast.floor()?.mse() > forecast.bias_sq()?);
//! assert_eq!(forecast.outlook().regime(), Regime::Stable);
//! assert!(forecast.largest_stable_step()?.step > 0.1);
//! # Ok(())
//! # }
//! ```

use rayon::prelude::*;

use super::Setting;
use super::exact_mse::{Controls, FedLsaMse, MeanSquare, ScafflsaMse};
use super::fedlsa::FedLsa;
use super::stability::{self, Stability};
use crate::error::{BadInput, Result, quoted};
use crate::linalg;
use crate::methods::{self, Drift, Shape};
use crate::problem::Field;
use crate::problem::systems::{Moments, Systems};
use crate::record::OutputRule;
use crate::sampling::Law;
use crate::schedule::StepSize;
use crate::uplink::Uplink;

/// The largest size, agents' kinds times d, for which radii of control variates are computed.
const RADIUS_SIZE: usize = 4000;
/// The largest d for which exact mean-square errors are computed.
pub const EXACT_DIM: usize = 24;
/// The largest work for which mean-square radii are computed: multiplications of a step's
/// map, and rows of the state of control variates (their second moments are its square).
const MEAN_SQUARE_WORK: usize = 20_000_000;
const MEAN_SQUARE_STATE: usize = 120;

/// A quantity that theory predicts of a method.
pub struct Quantity {
    /// Its name.
    pub name: &'static str,
    /// What it is.
    pub about: &'static str,
    known: fn(&Forecast<'_>) -> Result<()>,
    value: fn(&Forecast<'_>) -> Result<f64>,
}

/// The quantities by name, an entry each.
pub const QUANTITIES: &[Quantity] = &[
    Quantity { name: "bias2", about: "squared distance of the limit from theta*", known: |of| of.knows_rounds(), value: |of| of.bias_sq() },
    Quantity {
        name: "noise",
        about: "exact mean-square error of the floor around its mean",
        known: |of| of.knows_floor(),
        value: |of| Ok(of.floor()?.noise),
    },
    Quantity {
        name: "floor",
        about: "exact mean-square error in the end: bias2 and noise",
        known: |of| of.knows_floor(),
        value: |of| Ok(of.floor()?.mse()),
    },
    Quantity {
        name: "limit_distance",
        about: "distance of the limit from theta*",
        known: |of| of.knows_rounds(),
        value: |of| Ok(of.bias_sq()?.sqrt()),
    },
    Quantity {
        name: "radius",
        about: "spectral radius of a noiseless round",
        known: |of| of.radius_known().map(|_| ()),
        value: |of| of.radius(),
    },
    Quantity {
        name: "mean_square_radius",
        about: "spectral radius of the map of second moments",
        known: |of| MeanSquareRadius::new(of).map(|_| ()),
        value: |of| MeanSquareRadius::new(of)?.at(of),
    },
];

/// The quantity of this name.
///
/// # Errors
/// When there is none.
pub fn quantity(name: &str) -> Result<&'static Quantity> {
    QUANTITIES.iter().find(|quantity| quantity.name == name).ok_or_else(|| {
        let names: Vec<&str> = QUANTITIES.iter().map(|quantity| quantity.name).collect();
        BadInput::new("", format!("there is no predicted quantity `{}`", quoted(name)), names.join(", "))
    })
}

impl Quantity {
    /// Whether it has a closed form; says nothing of numbers that do not come out.
    ///
    /// # Errors
    /// When it has none, with the reason.
    pub fn known(&self, of: &Forecast<'_>) -> Result<()> {
        (self.known)(of)
    }

    /// Its value.
    ///
    /// # Errors
    /// When it is not known, with the reason.
    pub fn value(&self, of: &Forecast<'_>) -> Result<f64> {
        (self.value)(of)
    }
}

/// A method on a problem, as theory sees it: nothing is computed before it is asked for.
#[derive(Clone, Copy)]
pub struct Forecast<'f> {
    field: &'f dyn Field,
    shape: Shape,
    output: OutputRule,
}

/// The shape of a method over a link: closed forms are those of clear links, so that over any other
/// link no round counts as linear.
pub fn shape_over(method: &dyn methods::Settings, link: &Uplink) -> Shape {
    let shape = method.shape();
    Shape { is_linear: shape.is_linear && link.is_clear(), ..shape }
}

/// The error of a quantity that theory does not know.
pub fn unknown(why: &str) -> BadInput {
    BadInput::new("", format!("not known in closed form: {why}"), "a linear problem, a constant step size and full participation")
}

fn no_steps() -> BadInput {
    unknown("the method makes no local steps")
}

fn no_moments() -> BadInput {
    unknown("second moments of the samples")
}

impl<'f> Forecast<'f> {
    /// Of a method of this shape that gives out its last iterate.
    pub fn new(field: &'f dyn Field, shape: Shape) -> Self {
        Self { field, shape, output: OutputRule::Last }
    }

    /// Of a method over a link.
    pub fn over(field: &'f dyn Field, method: &dyn methods::Settings, link: &Uplink) -> Self {
        Self::new(field, shape_over(method, link))
    }

    /// The same of another output.
    #[must_use]
    pub fn of_output(self, output: OutputRule) -> Self {
        Self { output, ..self }
    }

    /// The same with another step size.
    #[must_use]
    pub fn with_step(self, eta: f64) -> Self {
        Self { shape: Shape { step_size: StepSize::Constant(eta), ..self.shape }, ..self }
    }

    /// Refuses an output other than the last iterate: averaging changes its noise.
    fn of_last(&self) -> Result<()> {
        if self.output == OutputRule::Last { Ok(()) } else { Err(unknown("the output is not the last iterate")) }
    }

    /// The linear systems and the setting of a method whose rounds theory knows.
    fn linear(&self) -> Result<(&'f Systems, Setting)> {
        let Self { field, shape, .. } = *self;
        let systems = field.systems().ok_or_else(|| unknown("the operators are not linear"))?;
        if !shape.is_linear {
            return Err(unknown("a round is not a linear map, or the link alters it"));
        }
        if shape.participants.is_some_and(|m| m < field.agents()) {
            return Err(unknown("participation is partial"));
        }
        let StepSize::Constant(eta) = shape.step_size else { return Err(unknown("the step size varies")) };
        Ok((systems, Setting::new(eta, (shape.local_steps.round() as u64).max(1))?.with_server_step(shape.alpha_g)?))
    }

    /// Whether a noiseless round is a linear map that theory knows.
    ///
    /// # Errors
    /// When it is none, with the reason.
    pub fn knows_rounds(&self) -> Result<()> {
        self.linear().map(|_| ())
    }

    /// Where the mean iterate of FedLSA with these settings ends.
    ///
    /// # Errors
    /// When it is not known.
    pub fn limit(&self) -> Result<Vec<f64>> {
        let (systems, setting) = self.linear()?;
        FedLsa::new(systems, &setting)?.limit()
    }

    /// The squared distance of the method's limit from theta*: 0 but for local steps without a drift.
    ///
    /// # Errors
    /// When it is not known.
    pub fn bias_sq(&self) -> Result<f64> {
        let (systems, setting) = self.linear()?;
        match self.shape.drift {
            Drift::Zero => FedLsa::new(systems, &setting)?.bias_sq(),
            Drift::ControlVariate { .. } | Drift::GlobalMemory => Ok(0.0),
            Drift::NoSteps => Err(no_steps()),
        }
    }

    /// The systems and the setting of a round whose radius can be computed.
    fn radius_known(&self) -> Result<(&'f Systems, Setting)> {
        let (systems, setting) = self.linear()?;
        if matches!(self.shape.drift, Drift::ControlVariate { .. }) && systems.kinds.len() * systems.dim() > RADIUS_SIZE {
            return Err(unknown(&format!("the round of {} distinct agents is too large a map", systems.kinds.len())));
        }
        Ok((systems, setting))
    }

    /// The spectral radius of a noiseless round.
    ///
    /// # Errors
    /// When a round is not a linear map, or too large a one.
    pub fn radius(&self) -> Result<f64> {
        let (systems, setting) = self.radius_known()?;
        match self.shape.drift {
            Drift::Zero => stability::plain_radius(systems, &setting),
            Drift::GlobalMemory => stability::global_memory_radius(systems, &setting),
            Drift::NoSteps => Err(no_steps()),
            Drift::ControlVariate { talk: None } => stability::control_variates_radius(systems, &setting),
            Drift::ControlVariate { talk: Some(p) } => stability::random_talk_radius(systems, setting.step_size, p, setting.server_step),
        }
    }

    /// Whether second moments of samples are known.
    fn moments_known(&self) -> Result<()> {
        if self.field.sampling().kind != Law::Iid {
            return Err(unknown("samples are not i.i.d."));
        }
        if self.field.dim() > EXACT_DIM {
            return Err(unknown(&format!("more than {EXACT_DIM} features")));
        }
        self.field.moments(0).map(|_| ()).ok_or_else(no_moments)
    }

    /// All kinds' second moments.
    fn moments(&self, systems: &Systems) -> Result<Vec<Moments>> {
        self.moments_known()?;
        let all = (0..systems.kinds.len()).into_par_iter().map(|k| self.field.moments(k));
        all.collect::<Option<_>>().ok_or_else(no_moments)
    }

    fn batch(&self) -> u64 {
        self.field.sampling().batch as u64
    }

    /// The systems and the setting of a round whose floor has a closed form.
    fn floor_known(&self) -> Result<(&'f Systems, Setting)> {
        self.of_last()?;
        let linear = self.linear()?;
        match self.shape.drift {
            // Without noise every floor is the bias.
            _ if self.field.sampling().kind == Law::Mean => {}
            Drift::ControlVariate { talk: Some(_) } => return Err(unknown("talks are random")),
            Drift::GlobalMemory => return Err(unknown("the mean-square error of FedHSA")),
            Drift::NoSteps => return Err(no_steps()),
            Drift::Zero | Drift::ControlVariate { talk: None } => self.moments_known()?,
        }
        Ok(linear)
    }

    /// Whether the floor has a closed form.
    ///
    /// # Errors
    /// When it has none, with the reason.
    pub fn knows_floor(&self) -> Result<()> {
        self.floor_known().map(|_| ())
    }

    /// The law of the iterate in the end, up to second order.
    ///
    /// # Errors
    /// When it is not known, or does not exist.
    pub fn floor(&self) -> Result<MeanSquare> {
        let (systems, setting) = self.floor_known()?;
        if self.field.sampling().kind == Law::Mean {
            let bias = match self.shape.drift {
                Drift::Zero => FedLsa::new(systems, &setting)?.bias()?,
                _ => vec![0.0; systems.dim()],
            };
            return Ok(MeanSquare { bias, noise: 0.0 });
        }
        let moments = self.moments(systems)?;
        match self.shape.drift {
            Drift::Zero => FedLsaMse::new(systems, &moments, &setting, self.batch())?.floor(),
            _ => ScafflsaMse::new(systems, &moments, &setting, self.batch(), &Controls::Zero)?.floor(),
        }
    }

    /// Whether the exact mean-square error along the rounds has a closed form.
    ///
    /// # Errors
    /// When it has none, with the reason.
    pub fn knows_curve(&self) -> Result<()> {
        self.linear()?;
        self.of_last()?;
        if !matches!(self.shape.drift, Drift::Zero | Drift::ControlVariate { talk: None }) {
            return Err(unknown("only of FedLSA and SCAFFLSA with a fixed period"));
        }
        self.moments_known()
    }

    /// The law of the iterate at each of `rounds`, up to second order, from the start `theta_0` (d
    /// components) and with controls that start as said.
    ///
    /// # Errors
    /// When it is not known.
    pub fn curve(&self, theta_0: &[f64], controls: &Controls, rounds: &[u64]) -> Result<Vec<MeanSquare>> {
        self.knows_curve()?;
        let (systems, setting) = self.linear()?;
        let moments = self.moments(systems)?;
        match self.shape.drift {
            Drift::Zero => FedLsaMse::new(systems, &moments, &setting, self.batch())?.curve(theta_0, rounds),
            _ => ScafflsaMse::new(systems, &moments, &setting, self.batch(), controls)?.curve(theta_0, rounds),
        }
    }

    /// Whether the method is stable, as far as that is known.
    pub fn outlook(&self) -> Outlook {
        let radius = self.radius();
        let noisy = self.field.sampling().kind != Law::Mean;
        let converges = radius.as_ref().is_ok_and(|rho| Stability::of(*rho) == Stability::Stable);
        let mean_square = (noisy && converges).then(|| MeanSquareRadius::new(self).and_then(|of| of.at(self)));
        Outlook { radius, mean_square }
    }

    /// The largest step below the first instability of the mean, all else equal; where noise makes
    /// the mean square diverge before, a step with which it does not. Below the method's own step
    /// where that is unstable; else it does not depend on that.
    ///
    /// # Errors
    /// As [`Forecast::radius`].
    pub fn largest_stable_step(&self) -> Result<StableStep> {
        let (systems, setting) = self.linear()?;
        let mean_radius = |eta: f64| self.with_step(eta).radius();
        let size = systems.kinds.iter().map(|kind| linalg::norm2(&kind.a)).fold(0.0, f64::max);
        let mut in_mean = stability::largest_stable_step(mean_radius, 2.0 / size, self.shape.local_steps.max(1.0))?;
        let own = setting.step_size;
        // An unstable step below the edge lies in a window that the scan has missed.
        let missed = |edge: f64, radius: &dyn Fn(f64) -> Result<f64>| {
            edge >= own && radius(own).is_ok_and(|rho| Stability::of(rho) == Stability::Unstable)
        };
        if missed(in_mean, &mean_radius) {
            in_mean = stability::edge_below(mean_radius, own)?;
        }
        if self.field.sampling().kind == Law::Mean {
            return Ok(StableStep { step: in_mean, in_mean_square: true });
        }
        let found = MeanSquareRadius::new(self).and_then(|of| {
            let square = |eta: f64| of.at(&self.with_step(eta));
            let step = stability::stable_step_below(square, in_mean)?;
            if missed(step, &square) { stability::edge_below(square, own) } else { Ok(step) }
        });
        Ok(found.map_or(StableStep { step: in_mean, in_mean_square: false }, |step| StableStep { step, in_mean_square: true }))
    }
}

/// What is known of whether a method can work.
#[derive(Debug, Clone)]
pub struct Outlook {
    /// The radius of a noiseless round.
    pub radius: Result<f64>,
    /// That of the second moments; absent where there is no noise, or where the mean does not converge.
    pub mean_square: Option<Result<f64>>,
}

/// Whether a method is stable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Regime {
    /// In the mean, and in the mean square where there is noise.
    Stable,
    /// In the mean; whether in the mean square is not known.
    InMean,
    /// It moves too slowly for rounding to tell.
    TooSlow,
    /// The mean diverges.
    MeanDiverges,
    /// The mean converges, and noise makes the mean square diverge.
    MeanSquareDiverges,
    /// There is no closed form.
    Unknown,
}

impl Outlook {
    /// What it comes to.
    pub fn regime(&self) -> Regime {
        let Ok(radius) = &self.radius else { return Regime::Unknown };
        match (Stability::of(*radius), &self.mean_square) {
            (Stability::Unstable, _) => Regime::MeanDiverges,
            (Stability::TooSlow, _) => Regime::TooSlow,
            (Stability::Stable, None) => Regime::Stable,
            (Stability::Stable, Some(Err(_))) => Regime::InMean,
            (Stability::Stable, Some(Ok(square))) => match Stability::of(*square) {
                Stability::Stable => Regime::Stable,
                Stability::TooSlow => Regime::InMean,
                Stability::Unstable => Regime::MeanSquareDiverges,
            },
        }
    }

    /// Whether it is known to diverge.
    pub fn is_unstable(&self) -> bool {
        matches!(self.regime(), Regime::MeanDiverges | Regime::MeanSquareDiverges)
    }

    /// Whether it is stable, for programs: true or false, or why that is not known.
    pub fn stable(&self) -> std::result::Result<bool, String> {
        match (self.regime(), &self.radius) {
            (Regime::Stable | Regime::InMean, _) => Ok(true),
            (Regime::MeanDiverges | Regime::MeanSquareDiverges, _) => Ok(false),
            (Regime::TooSlow, _) => Err(TOO_SLOW.to_string()),
            (Regime::Unknown, Err(e)) => Err(e.what.clone()),
            (Regime::Unknown, Ok(_)) => unreachable!("a radius has a verdict"),
        }
    }
}

/// Said of a round whose radius cannot be told from 1.
pub const TOO_SLOW: &str = "it moves too slowly to tell: the radius of a noiseless round is 1 to rounding";

/// A step size that is stable.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StableStep {
    /// The step size.
    pub step: f64,
    /// Whether the mean square is known to converge with it, not only the mean.
    pub in_mean_square: bool,
}

/// The spectral radius of the second-moment map of a method's round, at any step size.
pub struct MeanSquareRadius<'f> {
    systems: &'f Systems,
    moments: Vec<Moments>,
    batch: u64,
}

impl<'f> MeanSquareRadius<'f> {
    /// For the method of a forecast.
    ///
    /// # Errors
    /// When it is not known, or too large a map.
    pub fn new(of: &Forecast<'f>) -> Result<Self> {
        let systems = Self::systems(of)?;
        Ok(Self { systems, moments: of.moments(systems)?, batch: of.batch() })
    }

    /// Whether it is known, and small enough a map.
    pub fn is_small(of: &Forecast<'f>) -> bool {
        of.field.sampling().kind == Law::Iid && Self::systems(of).is_ok()
    }

    /// The systems, if the map is small enough.
    fn systems(of: &Forecast<'f>) -> Result<&'f Systems> {
        let (systems, _) = of.linear()?;
        let (kinds, d) = (systems.kinds.len(), systems.dim());
        let packed = |n: usize| n.saturating_mul(n + 1) / 2;
        let (work, state) = match of.shape.drift {
            Drift::Zero => (kinds.saturating_mul(packed(d).saturating_pow(3)), 0),
            Drift::ControlVariate { talk: None } => {
                (kinds.saturating_mul(packed(d)).saturating_mul(packed(2 * d + 1).saturating_pow(2)), d * (kinds + 1) + 1)
            }
            Drift::ControlVariate { talk: Some(_) } => return Err(unknown("talks are random")),
            Drift::GlobalMemory => return Err(unknown("the mean-square error of FedHSA")),
            Drift::NoSteps => return Err(no_steps()),
        };
        if d > EXACT_DIM || work > MEAN_SQUARE_WORK || state > MEAN_SQUARE_STATE {
            return Err(unknown(&format!("the second moments of {kinds} distinct agents with {d} features are too large a map")));
        }
        Ok(systems)
    }

    /// With the step size of this forecast, which is of the same method on the same problem.
    ///
    /// # Errors
    /// When the eigenvalues cannot be computed.
    pub fn at(&self, of: &Forecast<'_>) -> Result<f64> {
        let (_, setting) = of.linear()?;
        match of.shape.drift {
            Drift::Zero => FedLsaMse::new(self.systems, &self.moments, &setting, self.batch)?.radius(),
            _ => ScafflsaMse::new(self.systems, &self.moments, &setting, self.batch, &Controls::Zero)?.radius(),
        }
    }
}
