//! Outcomes of runs: whether they reached their targets, and otherwise their final distance from them.

use fedsa::method::Drift;
use fedsa::problem::root::{Root, RootSource};
pub use fedsa::record::{Missed, Outcome};
use fedsa::sampling::Law;

use super::plan::Plan;
use super::predict::Predictor;
use super::results::{Results, SeedResult};
use crate::config::schema::Stop;
use crate::numbers::number;

impl SeedResult {
    /// How the run ended; `stop` has its targets.
    pub fn outcome(&self, stop: &Stop) -> Outcome {
        stop.until(self.rounds()).outcome(&self.rows, self.residual_at_start(), self.diverged, self.stopped)
    }

    /// The target residual: the larger one of `residual` and `relative_residual`; `None` without a target.
    pub fn residual_asked(&self, stop: &Stop) -> Option<f64> {
        stop.until(self.rounds()).residual_asked(self.residual_at_start())
    }

    /// Round 0 is always recorded.
    fn residual_at_start(&self) -> Option<f64> {
        self.rows.first()?.seen.residual
    }

    fn rounds(&self) -> u64 {
        self.rows.last().map_or(0, |row| row.round)
    }
}

impl Results {
    /// How a cell ended: the worst outcome of its seeds.
    pub fn outcome(&self, plan: &Plan, cell: usize) -> Option<Outcome> {
        let stop = &plan.cells[cell].run.stop;
        self.cells[cell].iter().map(|seed| seed.outcome(stop)).max_by_key(|outcome| outcome.rank())
    }

    /// The number of further rounds until a cell reaches its target, at the slower of two rates: of the last half of the rounds, and the
    /// asymptotic rate of theory.
    pub fn more_rounds(&self, plan: &Plan, predictor: &Predictor, cell: usize, missed: &Missed) -> Option<f64> {
        let is_noiseless = plan.forecast(cell).is_noiseless();
        let radius = predictor.number(cell, "radius").ok().filter(|radius| is_noiseless && (0.0..1.0).contains(radius));
        // A squared distance falls by the square of the radius.
        let power = fedsa::metrics::metric(missed.metric).map_or(1.0, |metric| f64::from(metric.degree));
        let in_the_end = radius.map(|radius| (missed.value / missed.target).ln().max(0.0) / (-power * radius.ln()));
        missed.more_rounds.into_iter().chain(in_the_end).filter(|rounds| rounds.is_finite()).max_by(f64::total_cmp)
    }

    /// The reason in words why a cell's features do not determine its solution, if so. Methods then stop at different weights.
    pub fn why_not_unique(&self, plan: &Plan, cell: usize) -> Option<String> {
        let field = plan.field(cell);
        let Ok(Root { source: RootSource::LeastNorm { rank }, .. }) = field.solution() else { return None };
        let d = field.dim();
        Some(format!("its features are collinear: {rank} of {d} directions are independent, and weights are not unique"))
    }

    /// The likely reason why a cell stalled above its target, in words.
    pub fn why_stalled(&self, plan: &Plan, predictor: &Predictor, cell: usize, missed: &Missed) -> String {
        let (field, planned) = (plan.field(cell), &plan.cells[cell]);
        let shape = planned.method.settings.shape();
        let at_start = self.cells[cell].iter().filter_map(|seed| seed.rows.first()?.metric(missed.metric)).fold(0.0, f64::max);
        if missed.value > at_start && at_start > 0.0 {
            return format!("it has grown from {}: the step size may be too large", number(at_start));
        }
        if !planned.delivers_all(field) {
            return "what the link alters or loses may keep it there".into();
        }
        if let Some(why) = self.why_not_unique(plan, cell).filter(|_| field.sampling().kind == Law::Mean) {
            return why;
        }
        let predicted = |quantity| predictor.number(cell, quantity).ok().filter(|x| missed.metric == "mse" && *x > missed.target);
        if let Some(bias) = predicted("bias2") {
            return format!("with local steps on different agents this method stops at its bias, whose square is {}", number(bias));
        }
        if let Some(floor) = predicted("floor") {
            return format!("with this step size the noise of the samples keeps it at {}, as theory predicts", number(floor));
        }
        match field.sampling().kind {
            Law::Mean if shape.drift == Drift::Zero && shape.local_steps > 1.0 => match predictor.number(cell, "limit_distance") {
                Ok(distance) => {
                    format!("with local steps on different agents this method stops at its bias, {} from the root", number(distance))
                }
                Err(_) => "with local steps on different agents this method stops at its bias".into(),
            },
            Law::Mean => "it converges too slowly, or has reached the rounding error".into(),
            Law::Iid | Law::Markov => "with a constant step size the noise of the samples may keep it there".into(),
        }
    }
}
