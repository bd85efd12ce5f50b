//! Outcomes of runs: whether they reached their targets, and if not, how far from them they ended.

use fedsa::methods::Drift;
use fedsa::record;
pub use fedsa::record::{Missed, Outcome};
use fedsa::sampling::Law;

use super::plan::Plan;
use super::predict::Predictor;
use super::results::{Results, SeedResult};
use crate::config::schema::Stop;
use crate::numbers::number;

impl SeedResult {
    /// How the run ended; `stop` says what it was to reach.
    pub fn outcome(&self, stop: &Stop) -> Outcome {
        let targets = [("mse", stop.mse), ("residual", self.residual_asked(stop))];
        let missed = targets.into_iter().filter_map(|(metric, target)| {
            let rounds: Vec<(u64, Option<f64>)> = self.rows.iter().map(|row| (row.round, row.metric(metric))).collect();
            Missed::of(metric, target?, &rounds)
        });
        Outcome::of(self.status, self.stopped, missed)
    }

    /// The residual at which the run was to end: the larger one of two that were asked for.
    pub fn residual_asked(&self, stop: &Stop) -> Option<f64> {
        stop.residuals(self.rows.first()?.seen.residual?).max_by(f64::total_cmp)
    }
}

impl Results {
    /// How a cell ended: as the seed that ended worst.
    pub fn outcome(&self, plan: &Plan, cell: usize) -> Option<Outcome> {
        let stop = &plan.cells[cell].run.stop;
        self.cells[cell].iter().map(|seed| seed.outcome(stop)).max_by_key(|outcome| outcome.rank())
    }

    /// How many rounds more a cell's target takes: at the rate of the last half of the rounds, or at the rate that
    /// theory gives for the end, whichever is slower.
    pub fn more_rounds(&self, plan: &Plan, predictor: &Predictor<'_>, cell: usize, missed: &Missed) -> Option<f64> {
        let is_noiseless = plan.forecast(cell).is_noiseless();
        let radius = predictor.number(cell, "radius").ok().filter(|radius| is_noiseless && (0.0..1.0).contains(radius));
        // A squared distance falls by the radius's square.
        let power = record::metric(missed.metric).map_or(1.0, |metric| f64::from(metric.degree));
        let in_the_end = radius.map(|radius| (missed.value / missed.target).ln().max(0.0) / (-power * radius.ln()));
        missed.more_rounds.into_iter().chain(in_the_end).filter(|rounds| rounds.is_finite()).max_by(f64::total_cmp)
    }

    /// Why a cell does not come nearer to its target, as far as that is known.
    pub fn why_stalled(&self, plan: &Plan, predictor: &Predictor<'_>, cell: usize, missed: &Missed) -> String {
        let (field, planned) = (plan.field(cell), &plan.cells[cell]);
        let shape = planned.method.settings.shape();
        if !planned.uplink.is_clear() {
            return "what the link alters or loses may keep it there".into();
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
