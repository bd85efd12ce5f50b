//! The cost of a target: rounds, samples and bits until the mean-square error is at a level, or the obstacle.

use fedsa::error::Result;
use fedsa_theory::cost::RoundCost;
use fedsa_theory::exact_mse::InitialControls;
use fedsa_theory::predict::{Obstacle, Reach};
use serde_json::{Value as Json, json};

use super::Allowance;
use super::reason::{KnownOrReason, Reason};
use crate::config::schema::ControlsStart;
use crate::plan::ResolvedStart;
use crate::{Plan, Predictor};

/// A target of a method.
#[derive(Debug, Clone)]
pub struct MethodTarget {
    /// The requested mean-square error.
    pub mse: f64,
    /// Whether and when it is reached.
    pub reach: KnownOrReason<Reach>,
    /// The cost of a round.
    pub cost: KnownOrReason<RoundCost>,
    /// Whether the start is random.
    pub is_random: bool,
}

/// The cost of a round of a cell.
///
/// # Errors
/// When it differs from round to round, with the reason.
pub(super) fn cost(plan: &Plan, cell: usize) -> Result<RoundCost> {
    let planned = &plan.cells[cell];
    RoundCost::new(plan.field(cell), &*planned.method.settings, &planned.uplink)
}

impl MethodTarget {
    pub(super) fn of(predictor: &Predictor, cell: usize, mse: f64, is_full: bool, allowance: &mut Allowance) -> Self {
        let plan = predictor.plan();
        let planned = &plan.cells[cell];
        let controls = if planned.method.controls == ControlsStart::Ideal { InitialControls::Root } else { InitialControls::Zero };
        let start = match &planned.start {
            ResolvedStart::Fixed(theta) => Some(&theta[..]),
            ResolvedStart::Normal => None,
        };
        let cache = predictor.floors_of(cell);
        let reach = || predictor.forecast(cell).reach(mse, start, &controls, &cache);
        let share = if is_full { 1.0 } else { 0.5 };
        let reach = allowance.compute("what the target takes", share, reach);
        Self { mse, reach, cost: cost(plan, cell).map_err(|e| Reason::from(&e)), is_random: start.is_none() }
    }

    /// As JSON.
    pub(super) fn json(&self) -> Json {
        let mut out = json!({ "mse": self.mse });
        match &self.reach {
            Err(reason) => {
                out["reached"] = Json::Null;
                out["unknown"] = json!({ "reached": reason });
            }
            Ok(Reach::AtStart(error)) => {
                out["reached"] = json!(true);
                out["rounds"] = json!(0.0);
                out["at_start"] = json!(error);
            }
            Ok(Reach::Never(obstacle)) => {
                out["reached"] = json!(false);
                let (name, value) = match obstacle {
                    Obstacle::Bias(bias) => ("bias", Some(*bias)),
                    Obstacle::Noise(floor, _) => ("noise", Some(*floor)),
                    Obstacle::Diverges => ("diverges", None),
                };
                out["obstacle"] = json!({ "kind": name, "level": value });
            }
            Ok(Reach::After(after)) => {
                out["reached"] = json!(true);
                out["rounds"] = json!(after.rounds);
                out["accuracy"] = after.curve.map_or(json!({ "status": "radius" }), |accuracy| json!(accuracy));
                if let Ok(cost) = &self.cost {
                    out["exchanges"] = json!(after.rounds * cost.exchanges);
                    out["samples"] = json!(after.rounds * cost.samples);
                    out["bits_up"] = json!(after.rounds * cost.bits_up);
                    out["bits_down"] = json!(after.rounds * cost.bits_down);
                }
            }
        }
        out
    }
}
