//! The theory of one method at one point.

use fedsa::error::{Error, Result};
use fedsa::method::Drift;
use fedsa_theory::Accuracy;
use fedsa_theory::cost::RoundCost;
use fedsa_theory::fedhsa_bounds::{CorollarySchedule, FedHsaConstants};
use fedsa_theory::predict::{Forecast, Limits, MarkovExplanation, NoBias, Outlook, PredictedFloor, Regime, Spot, StableSet, StableStep};
use fedsa_theory::tune::rounded;

use super::change::{self, SettingChange};
use super::curvature::HessianEigenvalues;
use super::privacy::PrivacyTheory;
use super::problem::ProblemTheory;
use super::reason::{KnownOrReason, Reason, ReasonCode};
use super::statements::{self, Theorems};
use super::target::{self, MethodTarget};
use super::{Allowance, TheorySettings};
use crate::Predictor;
use crate::names::QUANTITIES;
use crate::numbers::number;
use crate::plan::PlannedPoint;

/// The theory of a method at a point.
#[derive(Debug, Clone)]
pub struct MethodTheory {
    /// Its label, kind and point, and the number of its problem and of its cell in the plan.
    pub label: String,
    pub kind: &'static str,
    pub point: String,
    pub problem: usize,
    pub cell: usize,
    /// Why it is refused, if it is.
    pub refused: Option<String>,
    /// Whether a noiseless round is a known linear map.
    pub rounds: KnownOrReason<()>,
    /// The radii that decide its stability, and the judgement.
    pub outlook: Outlook,
    pub regime: Regime,
    /// The mean and the second moment of its final error.
    pub floor: KnownOrReason<PredictedFloor>,
    /// The parts of the floor.
    pub limits: KnownOrReason<Limits>,
    /// The squared distance of the limit without noise from theta*, its part within rounding, and why it is 0 exactly, if it is.
    pub bias: KnownOrReason<f64>,
    pub bias_rounding: f64,
    pub no_bias: Option<NoBias>,
    /// The share that the leading order explains under Markov samples.
    pub leading_order: Option<MarkovExplanation>,
    /// The floors with one setting changed.
    pub changes: Vec<SettingChange>,
    /// The cost of a round.
    pub cost: KnownOrReason<RoundCost>,
    /// The cost of the target, if requested.
    pub target: Option<MethodTarget>,
    /// The privacy of its sums.
    pub privacy: Option<PrivacyTheory>,
    /// The stable steps.
    pub stability: MethodStability,
    /// In a full report: every quantity by name, with its accuracy, or the reason why it is unknown.
    pub quantities: Vec<(&'static str, KnownOrReason<f64>)>,
    pub accuracies: Vec<(&'static str, Accuracy)>,
    /// In a full report: the limit of FedLSA's mean iterate (d), and its mean iterates from 0 after some rounds.
    pub limit: Option<KnownOrReason<Vec<f64>>>,
    pub mean_from_zero: Vec<(u64, Vec<f64>)>,
    /// In a full report: the schedule of Corollary 1 of FedHSA's source.
    pub schedule: Option<CorollarySchedule>,
    /// In a full report: statements of the sources' theorems.
    pub theorems: Option<Theorems>,
    /// In a full report, for methods without local steps: the eigenvalues of the agents' Hessians at theta*.
    pub curvature: Option<KnownOrReason<HessianEigenvalues>>,
}

/// The stable steps of a method.
#[derive(Debug, Clone, Default)]
pub struct MethodStability {
    /// The largest stable step below the first instability; `None` for methods without steps, and if not requested.
    pub largest: Option<KnownOrReason<StableStep>>,
    /// The failure just above it: the tested step, and the judgement.
    pub above: Option<(f64, Spot)>,
    /// In a full report: the stable steps for some numbers of local steps, and for the requested ones.
    pub sets: Option<KnownOrReason<Vec<StableSet>>>,
    pub asked: Vec<u64>,
}

impl MethodTheory {
    pub(super) fn new(predictor: &Predictor, label: &str, planned: &PlannedPoint, cell: usize) -> Self {
        let nothing = || Reason::text(ReasonCode::NotKnown, "not asked for");
        let (plan, of) = (predictor.plan(), predictor.forecast(cell));
        Self {
            label: label.to_string(),
            kind: plan.cells[cell].method.kind,
            point: planned.point.label.clone(),
            problem: planned.field,
            cell,
            refused: plan.cells[cell].refused.clone(),
            rounds: of.knows_rounds().map_err(|e| Reason::from(&e)),
            outlook: Outlook { radius: Err(Error::new("", "not asked for", "")), mean_square: None },
            regime: Regime::Unknown,
            floor: Err(nothing()),
            limits: Err(nothing()),
            bias: of.bias_sq().map_err(|e| Reason::from(&e)),
            bias_rounding: of.bias_rounding().unwrap_or(0.0),
            no_bias: of.no_bias().ok().flatten(),
            leading_order: None,
            changes: Vec::new(),
            cost: target::cost(plan, cell).map_err(|e| Reason::from(&e)),
            target: None,
            privacy: None,
            stability: MethodStability::default(),
            quantities: Vec::new(),
            accuracies: Vec::new(),
            limit: None,
            mean_from_zero: Vec::new(),
            schedule: None,
            theorems: None,
            curvature: None,
        }
    }

    /// The parts of the floor, if it exceeds the squared distance from theta* within rounding.
    pub fn above_rounding(&self) -> Option<&Limits> {
        self.limits.as_ref().ok().filter(|limits| limits.floor > self.bias_rounding)
    }

    /// The change of one setting that lowers the floor most, and its effect, in words.
    pub fn helps_most(&self) -> Option<String> {
        let limits = self.above_rounding()?;
        let (change, floor) = change::best(&self.changes, limits)?;
        Some(format!("{}: {} ({})", change.what, change::against(floor, limits.floor), number(floor)))
    }

    /// The final squared error, if known.
    pub fn floor_mse(&self) -> Option<f64> {
        self.floor.as_ref().ok().map(|floor| floor.value.mse())
    }

    /// Computes everything that is requested, the most important first.
    pub(super) fn compute(
        &mut self,
        predictor: &Predictor,
        settings: &TheorySettings,
        problem: Option<&ProblemTheory>,
        allowance: &mut Allowance,
    ) {
        let (field, of) = (predictor.plan().field(self.cell), predictor.forecast(self.cell));
        let is_full = settings.full;
        self.judge(predictor, &of, allowance);
        self.find_floor(predictor, &of, allowance);
        self.privacy = PrivacyTheory::of(predictor, self.cell, allowance);
        if self.rounds.is_ok() {
            self.stability.largest = Some(largest_stable_step(predictor, self.cell, allowance));
        }
        if let Some(mse) = settings.target_mse {
            self.target = Some(MethodTarget::of(predictor, self.cell, mse, is_full, allowance));
        }
        if is_full {
            self.quantities(predictor, problem, allowance);
            self.look_around(&of, allowance);
        } else if self.rounds.is_err() && of.shape().drift == Drift::NoSteps {
            self.curvature = Some(HessianEigenvalues::of(field, CURVATURE_WORK.min(allowance.left)));
        }
        if let Some(limits) = self.above_rounding() {
            self.changes = change::all(predictor, self.cell, limits, allowance);
        }
    }

    /// The radii.
    fn judge(&mut self, predictor: &Predictor, of: &Forecast, allowance: &mut Allowance) {
        let cache = predictor.floors_of(self.cell);
        let outlook = allowance.compute("the radii of a round", 0.3, || Ok(cache.outlook(of).clone()));
        if let Ok(outlook) = outlook {
            self.regime = outlook.regime();
            self.outlook = outlook;
        }
    }

    /// The floor and its parts.
    fn find_floor(&mut self, predictor: &Predictor, of: &Forecast, allowance: &mut Allowance) {
        let cache = predictor.floors_of(self.cell);
        if self.outlook.is_unstable() {
            let diverges = || Reason::text(ReasonCode::Diverges, "it diverges");
            (self.floor, self.limits) = (Err(diverges()), Err(diverges()));
            return;
        }
        self.floor = allowance.compute("the floor", 0.7, || cache.floor(of).cloned());
        self.limits = match &self.floor {
            Ok(_) => allowance.compute("the parts of the floor", 0.5, || of.limits(&cache)),
            Err(reason) => Err(reason.clone()),
        };
        self.leading_order = allowance.compute("leading order", 0.5, || Ok(of.markov_explanation().ok())).ok().flatten();
    }

    /// All quantities, and the other parts of a full report.
    fn quantities(&mut self, predictor: &Predictor, problem: Option<&ProblemTheory>, allowance: &mut Allowance) {
        let (cell, of) = (self.cell, predictor.forecast(self.cell));
        let field = predictor.plan().field(cell);
        for quantity in QUANTITIES.iter() {
            let is_of_floor = ["floor", "noise", "floor_bias2"].contains(quantity);
            let value = match &self.floor {
                Err(reason) if is_of_floor => Err(reason.clone()),
                _ => allowance.compute(quantity, 0.5, || predictor.number(cell, quantity)),
            };
            self.quantities.push((*quantity, value));
            self.accuracies.extend(predictor.accuracy(cell, quantity).map(|accuracy| (*quantity, accuracy)));
        }
        if of.shape().drift == Drift::Zero && self.rounds.is_ok() {
            self.limit = Some(of.limit().map_err(|e| Reason::from(&e)));
            let rounds = [1, 2, 5, 10, 100, 1000];
            let means = of.mean(&vec![0.0; field.dim()], &rounds).unwrap_or_default();
            self.mean_from_zero = rounds.into_iter().zip(means).collect();
        }
        if let Some(problem) = problem {
            if matches!(of.shape().drift, Drift::GlobalMemory { .. }) {
                self.schedule = corollary_schedule(problem, &of);
            }
            let target = self.target.as_ref().map(|target| target.mse);
            self.theorems = Some(statements::of_cell(predictor, cell, problem, target, allowance));
        }
        if self.rounds.is_err() && of.shape().drift == Drift::NoSteps {
            self.curvature = Some(HessianEigenvalues::of(field, CURVATURE_WORK));
        }
    }

    /// The failure above the largest stable step, and the stable steps for other numbers of local steps.
    fn look_around(&mut self, of: &Forecast, allowance: &mut Allowance) {
        let Some(found) = &self.stability.largest else { return };
        let known = found.as_ref().ok().copied();
        if let Some(step) = known.map(|found| found.step).filter(|step| step.is_finite()) {
            // Edges are known to 1e-6. The tested step is the printed one.
            let spot = |factor: f64| {
                let eta = rounded(factor * step);
                Some((eta, of.at_step(eta).ok().filter(|spot| spot.verdict != fedsa_theory::predict::StepVerdict::Stable)?))
            };
            let above = || Ok([1.002, 1.03].into_iter().find_map(spot));
            self.stability.above = allowance.compute("what fails above the largest stable step", 0.5, above).ok().flatten();
        }
        let own = of.local_steps().round().max(1.0) as u64;
        let mut asked = vec![1, own / 10, own, own.saturating_mul(10)];
        asked.retain(|h| *h >= 1);
        asked.sort_unstable();
        asked.dedup();
        let sets = allowance.compute("stable steps for other numbers of local steps", 1.0, || of.stable_sets(&asked, known));
        (self.stability.sets, self.stability.asked) = (Some(sets), asked);
    }
}

/// The largest number of multiplications for the eigenvalues of all Hessians.
const CURVATURE_WORK: f64 = 1e10;

/// The schedule of Corollary 1 of FedHSA's source, from the constants of the problem, with the mixing time of the slowest chain in total
/// variation at 1/4; `None` if one is unknown.
fn corollary_schedule(problem: &ProblemTheory, of: &Forecast) -> Option<CorollarySchedule> {
    let constants: FedHsaConstants = serde_json::from_value(problem.numbers["fedhsa"].clone()).ok()?;
    constants.schedule(&of.round_setting().ok()?, problem.mixing_time()?).ok()
}

/// The largest stable step, unless its search takes minutes, as with maps of hundreds of rounds.
fn largest_stable_step(predictor: &Predictor, cell: usize, allowance: &mut Allowance) -> KnownOrReason<StableStep> {
    const MAX_WORK: f64 = 1e7;
    let field = predictor.plan().field(cell);
    let kinds = field.systems().map_or(0, |systems| systems.kinds.len());
    let what = "the largest stable step";
    // Every map costs a sum over agents.
    if kinds as f64 * ((field.dim() as f64).powi(3) + 200.0) + 0.5 * field.agents() as f64 > MAX_WORK {
        let why = format!("not searched for: {} agents, {kinds} distinct, with d = {}", field.agents(), field.dim());
        allowance.cut.push((what.to_string(), why.clone()));
        return Err(Reason::text(ReasonCode::TakesTooLong, why));
    }
    allowance.compute(what, 0.7, || -> Result<StableStep> { predictor.forecast(cell).largest_stable_step() })
}
