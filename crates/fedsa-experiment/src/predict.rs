//! What theory predicts of a cell, computed when asked for.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use fedsa::error::{BadInput, Result, quoted};
use fedsa::methods::{Drift, Shape};
use fedsa::problem::Field;
use fedsa::problem::systems::{Moments, Systems};
use fedsa::sampling::Law;
use fedsa::schedule::StepSize;
use fedsa::theory::Setting;
use fedsa::theory::exact_mse::{Controls as Start, FedLsaMse, MeanSquare, ScafflsaMse};
use fedsa::theory::fedlsa::FedLsa;
use fedsa::theory::stability::{self, Stability};

use super::plan::{Cell, Plan, ResolvedStart};
use super::results::in_tail;
use crate::config::schema::Controls;

/// The largest size, agents' kinds times d, for which radii of control variates are computed unasked.
const RADIUS_SIZE: usize = 4000;
/// The largest d for which exact mean-square errors are computed.
pub const EXACT_DIM: usize = 24;
/// The largest work for which mean-square radii are computed: multiplications of a step's
/// map, and rows of the state of control variates (their second moments are its square).
const MEAN_SQUARE_WORK: usize = 20_000_000;
const MEAN_SQUARE_STATE: usize = 120;

/// Names of predicted quantities, for messages.
pub const QUANTITIES: &[&str] = &["bias2", "noise", "floor", "finite_floor", "limit_distance", "radius", "mean_square_radius"];

/// Predictions of a plan's cells, each computed once.
pub struct Predictor<'a> {
    plan: &'a Plan,
    numbers: Mutex<HashMap<(usize, String), Result<f64>>>,
    curves: Mutex<HashMap<usize, Result<Arc<Vec<MeanSquare>>>>>,
}

impl<'a> Predictor<'a> {
    /// Computes nothing yet.
    pub fn new(plan: &'a Plan) -> Self {
        Self { plan, numbers: Mutex::default(), curves: Mutex::default() }
    }

    /// A quantity of a cell: `bias2` (squared distance of the limit from theta*),
    /// `noise` (exact mean-square error of the floor around its mean), `floor`
    /// (their sum), `finite_floor` (the exact error over the last fifth of the rounds
    /// that are run, reached or not), `limit_distance`, `radius`, `mean_square_radius`.
    ///
    /// # Errors
    /// When it is not known, with the reason.
    pub fn number(&self, cell: usize, quantity: &str) -> Result<f64> {
        let key = (cell, quantity.to_string());
        if let Some(known) = self.numbers.lock().expect("no panics under the lock").get(&key) {
            return known.clone();
        }
        let (field, shape) = (self.plan.field(cell), self.plan.cells[cell].shape());
        let value = match quantity {
            "bias2" => bias_sq(field, &shape),
            "limit_distance" => bias_sq(field, &shape).map(f64::sqrt),
            "radius" => radius(field, &shape),
            "mean_square_radius" => MeanSquareRadius::new(field, &shape).and_then(|radius| radius.at(&shape)),
            "finite_floor" => self.finite_floor(cell),
            "noise" | "floor" => {
                let floor = of_last(&self.plan.cells[cell]).and_then(|()| floor(field, &shape));
                floor.map(|floor| if quantity == "noise" { floor.noise } else { floor.mse() })
            }
            other => Err(BadInput::new("", format!("there is no predicted quantity `{}`", quoted(other)), QUANTITIES.join(", "))),
        };
        self.numbers.lock().expect("no panics under the lock").insert(key, value.clone());
        value
    }

    /// The exact mean-square error over the last fifth of the rounds that are run.
    fn finite_floor(&self, cell: usize) -> Result<f64> {
        let curve = self.curve(cell)?;
        let last = self.plan.cells[cell].run.rounds;
        let tail = self.plan.cells[cell].grid.iter().zip(self.mse(cell, &curve, "error")).filter(|(t, _)| in_tail(**t, last));
        let values: Vec<f64> = tail.map(|(_, x)| x).collect();
        Ok(values.iter().sum::<f64>() / values.len() as f64)
    }

    /// Whether a quantity of a cell has a closed form; says nothing of numbers that do not come out.
    ///
    /// # Errors
    /// When it has none, with the reason.
    pub fn knows(&self, cell: usize, quantity: &str) -> Result<()> {
        let (field, planned) = (self.plan.field(cell), &self.plan.cells[cell]);
        let shape = planned.shape();
        match quantity {
            "radius" => radius_known(field, &shape).map(|_| ()),
            "mean_square_radius" => MeanSquareRadius::new(field, &shape).map(|_| ()),
            "finite_floor" => self.knows_curve(cell),
            "noise" | "floor" => of_last(planned).and_then(|()| floor_known(field, &shape)).map(|_| ()),
            _ => linear(field, &shape).map(|_| ()),
        }
    }

    /// Whether the exact mean-square error of a cell has a closed form.
    ///
    /// # Errors
    /// When it has none, with the reason.
    pub fn knows_curve(&self, cell: usize) -> Result<()> {
        curve_known(self.plan.field(cell), &self.plan.cells[cell]).map(|_| ())
    }

    /// A quantity of a cell if it has been computed.
    pub fn known(&self, cell: usize, quantity: &str) -> Option<f64> {
        let numbers = self.numbers.lock().expect("no panics under the lock");
        numbers.get(&(cell, quantity.to_string()))?.as_ref().ok().copied()
    }

    /// The exact mean and mean-square error at the recorded rounds of a cell.
    ///
    /// # Errors
    /// When it is not known, with the reason.
    pub fn curve(&self, cell: usize) -> Result<Arc<Vec<MeanSquare>>> {
        if let Some(known) = self.curves.lock().expect("no panics under the lock").get(&cell) {
            return known.clone();
        }
        let value = curve(self.plan.field(cell), &self.plan.cells[cell]).map(Arc::new);
        self.curves.lock().expect("no panics under the lock").insert(cell, value.clone());
        value
    }

    /// `||E theta_t - theta*||^2 + noise` of `points`, measured from a cell's centre.
    pub fn mse(&self, cell: usize, points: &[MeanSquare], metric: &str) -> Vec<f64> {
        let (field, cell) = (self.plan.field(cell), &self.plan.cells[cell]);
        let offset: Option<Vec<f64>> = match (&cell.centre, field.root(), metric) {
            (Some(centre), Some(root), "error") => Some(centre.iter().zip(root).map(|(c, r)| c - r).collect()),
            _ => None,
        };
        points.iter().map(|p| offset.as_ref().map_or_else(|| p.mse(), |offset| p.mse_around(offset))).collect()
    }
}

fn unknown(why: &str) -> BadInput {
    BadInput::new("", format!("not known in closed form: {why}"), "a linear problem, a constant step size and full participation")
}

/// Refuses an output other than the last iterate: averaging changes its noise.
fn of_last(cell: &Cell) -> Result<()> {
    if cell.output == fedsa::record::OutputRule::Last { Ok(()) } else { Err(unknown("the output is not the last iterate")) }
}

/// The linear systems and the setting of a method whose rounds theory knows.
fn linear<'f>(field: &'f dyn Field, shape: &Shape) -> Result<(&'f Systems, Setting)> {
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

/// FedLSA's limit with a method's settings.
///
/// # Errors
/// When it is not known.
pub fn limit(field: &dyn Field, shape: &Shape) -> Result<Vec<f64>> {
    let (systems, setting) = linear(field, shape)?;
    FedLsa::new(systems, &setting)?.limit()
}

fn bias_sq(field: &dyn Field, shape: &Shape) -> Result<f64> {
    let (systems, setting) = linear(field, shape)?;
    match shape.drift {
        Drift::Zero => FedLsa::new(systems, &setting)?.bias_sq(),
        Drift::ControlVariate { .. } | Drift::GlobalMemory => Ok(0.0),
    }
}

/// The systems and the setting of a round whose radius can be computed.
fn radius_known<'f>(field: &'f dyn Field, shape: &Shape) -> Result<(&'f Systems, Setting)> {
    let (systems, setting) = linear(field, shape)?;
    if matches!(shape.drift, Drift::ControlVariate { .. }) && systems.kinds.len() * systems.dim() > RADIUS_SIZE {
        return Err(unknown(&format!("the round of {} distinct agents is too large a map", systems.kinds.len())));
    }
    Ok((systems, setting))
}

/// The spectral radius of a method's noiseless round.
///
/// # Errors
/// When a round is not a linear map, or too large a one.
pub fn radius(field: &dyn Field, shape: &Shape) -> Result<f64> {
    let (systems, setting) = radius_known(field, shape)?;
    match shape.drift {
        Drift::Zero => stability::plain_radius(systems, &setting),
        Drift::GlobalMemory => stability::global_memory_radius(systems, &setting),
        Drift::ControlVariate { talk: None } => stability::control_variates_radius(systems, &setting),
        Drift::ControlVariate { talk: Some(p) } => stability::random_talk_radius(systems, setting.step_size, p, setting.server_step),
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
    /// Of a method of this shape.
    pub fn of(field: &dyn Field, shape: &Shape) -> Self {
        let radius = radius(field, shape);
        let noisy = field.sampling().kind != Law::Mean;
        let converges = radius.as_ref().is_ok_and(|rho| Stability::of(*rho) == Stability::Stable);
        let mean_square = (noisy && converges).then(|| MeanSquareRadius::new(field, shape).and_then(|of| of.at(shape)));
        Self { radius, mean_square }
    }

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

/// The largest step below the first instability of the mean, all else as in `shape`; where
/// noise makes the mean square diverge before, a step with which it does not. Below the step
/// of `shape` itself where that is unstable; else it does not depend on that.
///
/// # Errors
/// As [`radius`].
pub fn largest_stable_step(field: &dyn Field, shape: &Shape) -> Result<StableStep> {
    let (systems, setting) = linear(field, shape)?;
    let with = |eta: f64| Shape { step_size: StepSize::Constant(eta), ..*shape };
    let mean_radius = |eta: f64| radius(field, &with(eta));
    let size = systems.kinds.iter().map(|kind| fedsa::linalg::norm2(&kind.a)).fold(0.0, f64::max);
    let mut in_mean = stability::largest_stable_step(mean_radius, 2.0 / size, shape.local_steps.max(1.0))?;
    let own = setting.step_size;
    // An unstable step below the edge lies in a window that the scan has missed.
    let missed = |edge: f64, radius: &dyn Fn(f64) -> Result<f64>| {
        edge >= own && radius(own).is_ok_and(|rho| Stability::of(rho) == Stability::Unstable)
    };
    if missed(in_mean, &mean_radius) {
        in_mean = stability::edge_below(mean_radius, own)?;
    }
    if field.sampling().kind == Law::Mean {
        return Ok(StableStep { step: in_mean, in_mean_square: true });
    }
    let found = MeanSquareRadius::new(field, shape).and_then(|of| {
        let square = |eta: f64| of.at(&with(eta));
        let step = stability::stable_step_below(square, in_mean)?;
        if missed(step, &square) { stability::edge_below(square, own) } else { Ok(step) }
    });
    Ok(found.map_or(StableStep { step: in_mean, in_mean_square: false }, |step| StableStep { step, in_mean_square: true }))
}

/// The spectral radius of the second-moment map of a method's round, at any step size.
pub struct MeanSquareRadius<'f> {
    systems: &'f Systems,
    moments: Vec<Moments>,
    batch: u64,
    field: &'f dyn Field,
}

impl<'f> MeanSquareRadius<'f> {
    /// For a method of this shape.
    ///
    /// # Errors
    /// When it is not known, or too large a map.
    pub fn new(field: &'f dyn Field, shape: &Shape) -> Result<Self> {
        let systems = Self::systems(field, shape)?;
        Ok(Self { systems, moments: moments(field, systems)?, batch: field.sampling().batch as u64, field })
    }

    /// Whether it is known, and small enough a map.
    pub fn is_small(field: &'f dyn Field, shape: &Shape) -> bool {
        field.sampling().kind == Law::Iid && Self::systems(field, shape).is_ok()
    }

    /// The systems, if the map is small enough.
    fn systems(field: &'f dyn Field, shape: &Shape) -> Result<&'f Systems> {
        let (systems, _) = linear(field, shape)?;
        let (kinds, d) = (systems.kinds.len(), systems.dim());
        let packed = |n: usize| n.saturating_mul(n + 1) / 2;
        let (work, state) = match shape.drift {
            Drift::Zero => (kinds.saturating_mul(packed(d).saturating_pow(3)), 0),
            Drift::ControlVariate { talk: None } => {
                (kinds.saturating_mul(packed(d)).saturating_mul(packed(2 * d + 1).saturating_pow(2)), d * (kinds + 1) + 1)
            }
            Drift::ControlVariate { talk: Some(_) } => return Err(unknown("talks are random")),
            Drift::GlobalMemory => return Err(unknown("the mean-square error of FedHSA")),
        };
        if d > EXACT_DIM || work > MEAN_SQUARE_WORK || state > MEAN_SQUARE_STATE {
            return Err(unknown(&format!("the second moments of {kinds} distinct agents with {d} features are too large a map")));
        }
        Ok(systems)
    }

    /// With the step size of this shape.
    ///
    /// # Errors
    /// When the eigenvalues cannot be computed.
    pub fn at(&self, shape: &Shape) -> Result<f64> {
        let (_, setting) = linear(self.field, shape)?;
        match shape.drift {
            Drift::Zero => FedLsaMse::new(self.systems, &self.moments, &setting, self.batch)?.radius(),
            _ => ScafflsaMse::new(self.systems, &self.moments, &setting, self.batch, &Start::Zero)?.radius(),
        }
    }
}

/// Whether second moments of samples are known.
fn moments_known(field: &dyn Field) -> Result<()> {
    if field.sampling().kind != Law::Iid {
        return Err(unknown("samples are not i.i.d."));
    }
    if field.dim() > EXACT_DIM {
        return Err(unknown(&format!("more than {EXACT_DIM} features")));
    }
    field.moments(0).map(|_| ()).ok_or_else(no_moments)
}

fn no_moments() -> BadInput {
    unknown("second moments of the samples")
}

/// All kinds' second moments.
fn moments(field: &dyn Field, systems: &Systems) -> Result<Vec<Moments>> {
    use rayon::prelude::*;
    moments_known(field)?;
    let all = (0..systems.kinds.len()).into_par_iter().map(|k| field.moments(k));
    all.collect::<Option<_>>().ok_or_else(no_moments)
}

/// The systems and the setting of a round whose floor has a closed form.
fn floor_known<'f>(field: &'f dyn Field, shape: &Shape) -> Result<(&'f Systems, Setting)> {
    let linear = linear(field, shape)?;
    match shape.drift {
        // Without noise every floor is the bias.
        _ if field.sampling().kind == Law::Mean => {}
        Drift::ControlVariate { talk: Some(_) } => return Err(unknown("talks are random")),
        Drift::GlobalMemory => return Err(unknown("the mean-square error of FedHSA")),
        Drift::Zero | Drift::ControlVariate { talk: None } => moments_known(field)?,
    }
    Ok(linear)
}

fn floor(field: &dyn Field, shape: &Shape) -> Result<MeanSquare> {
    let (systems, setting) = floor_known(field, shape)?;
    if field.sampling().kind == Law::Mean {
        let bias = match shape.drift {
            Drift::Zero => FedLsa::new(systems, &setting)?.bias()?,
            _ => vec![0.0; systems.dim()],
        };
        return Ok(MeanSquare { bias, noise: 0.0 });
    }
    let (moments, batch) = (moments(field, systems)?, field.sampling().batch as u64);
    match shape.drift {
        Drift::Zero => FedLsaMse::new(systems, &moments, &setting, batch)?.floor(),
        _ => ScafflsaMse::new(systems, &moments, &setting, batch, &Start::Zero)?.floor(),
    }
}

/// What a cell's exact mean-square error is computed from.
fn curve_known<'p>(field: &'p dyn Field, cell: &'p Cell) -> Result<(&'p Systems, Setting, &'p [f64])> {
    let shape = cell.shape();
    let (systems, setting) = linear(field, &shape)?;
    let ResolvedStart::Fixed(theta_0) = &cell.start else { return Err(unknown("the start is random")) };
    of_last(cell)?;
    if !matches!(shape.drift, Drift::Zero | Drift::ControlVariate { talk: None }) {
        return Err(unknown("only of FedLSA and SCAFFLSA with a fixed period"));
    }
    moments_known(field)?;
    Ok((systems, setting, theta_0))
}

fn curve(field: &dyn Field, cell: &Cell) -> Result<Vec<MeanSquare>> {
    let (systems, setting, theta_0) = curve_known(field, cell)?;
    let moments = moments(field, systems)?;
    let batch = field.sampling().batch as u64;
    match cell.shape().drift {
        Drift::Zero => FedLsaMse::new(systems, &moments, &setting, batch)?.curve(theta_0, &cell.grid),
        _ => {
            let controls = if cell.method.controls == Controls::Ideal { Start::Root } else { Start::Zero };
            ScafflsaMse::new(systems, &moments, &setting, batch, &controls)?.curve(theta_0, &cell.grid)
        }
    }
}
