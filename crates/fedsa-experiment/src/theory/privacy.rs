//! The privacy of a method's sums before it runs: what is spent, the error that its noise leaves, and how many agents make it useful.

use fedsa::error::Result;
use fedsa::linalg;
use fedsa::uplink::stage::secure_sum::Privacy;
use fedsa_theory::exact_mse::InitialControls;
use fedsa_theory::privacy::{AgentPlan, AgentsNeeded, PlanRange};
use serde_json::{Value as Json, json};

use super::Allowance;
use super::reason::KnownOrReason;
use crate::Predictor;
use crate::plan::ResolvedStart;
use crate::tune::USEFUL;

/// The most rounds with which agents are counted.
const MAX_ROUNDS: u64 = 100;
const LOCAL_STEPS: [u64; 7] = [1, 2, 5, 10, 20, 50, 100];

/// The privacy of a method.
#[derive(Debug, Clone)]
pub struct PrivacyTheory {
    /// epsilon and delta of all rounds together, and the rounds.
    pub planned: Privacy,
    /// The mean-square error after these rounds.
    pub mse: KnownOrReason<f64>,
    /// `||theta*||^2`, the error of weights of zero.
    pub of_zero: Option<f64>,
    /// If the error is above a tenth of that of zero weights: the number of agents with which the best local steps and rounds are there.
    pub needed: Option<KnownOrReason<AgentsNeeded>>,
}

impl PrivacyTheory {
    /// The privacy of a cell; `None` if its sums have none.
    pub(super) fn of(predictor: &Predictor, cell: usize, allowance: &mut Allowance) -> Option<Self> {
        let (plan, forecast) = (predictor.plan(), predictor.forecast(cell));
        let planned = plan.cells[cell].uplink.secure_sum()?.privacy?;
        let of_zero = plan.field(cell).solution().ok().map(|root| linalg::norm_sq(&root.theta));
        let zero = vec![0.0; plan.field(cell).dim()];
        let start = match &plan.cells[cell].start {
            ResolvedStart::Fixed(theta) => &theta[..],
            ResolvedStart::Normal => &zero,
        };
        let mse = allowance.compute("the error of private rounds", 0.5, || {
            Ok(forecast.curve(start, &InitialControls::Zero, &[planned.rounds])?.first().map_or(f64::NAN, |point| point.mse()))
        });
        let wanted = USEFUL * of_zero.unwrap_or(f64::INFINITY);
        let is_useless = mse.as_ref().is_ok_and(|mse| *mse > wanted);
        let needed = is_useless.then(|| {
            allowance.compute("the agents of a useful error", 0.7, || -> Result<AgentsNeeded> {
                let (step, h) = (forecast.step_size()?, forecast.local_steps().max(1.0) as u64);
                let mut local_steps = LOCAL_STEPS.to_vec();
                local_steps.push(h);
                let range = PlanRange { step_sizes: vec![step], local_steps, max_rounds: MAX_ROUNDS, refine: false };
                AgentPlan::over(&forecast, planned.rounds, start)?.agents_needed(wanted, &range)
            })
        });
        Some(Self { planned, mse, of_zero, needed })
    }

    /// As JSON.
    pub(super) fn json(&self) -> Json {
        json!({
            "epsilon": self.planned.epsilon,
            "delta": self.planned.delta,
            "rounds": self.planned.rounds,
            "unit": self.planned.unit(),
            "mse": self.mse.as_ref().ok(),
            "mse_of_zero": self.of_zero,
            "agents": self.needed.as_ref().and_then(|needed| Some(needed.as_ref().ok()?.agents)),
        })
    }
}
