//! The privacy of a method's sums before it runs: what is spent, the error that its noise leaves, and how many agents make it useful.

use fedsa::error::{Error, Result};
use fedsa::federation::Federation;
use fedsa::linalg;
use fedsa::method::Drift;
use fedsa::privacy::unit::PrivacyUnit;
use fedsa::problem::systems::System;
use fedsa::uplink::stage::secure_sum::Privacy;
use fedsa_theory::exact_mse::InitialControls;
use fedsa_theory::privacy::{AgentPlan, AgentsNeeded, MatrixNoise, OneRelease, PlanRange, USEFUL};
use serde_json::{Value as Json, json};

use super::Allowance;
use super::reason::KnownOrReason;
use crate::plan::ResolvedStart;
use crate::{Plan, Predictor};

/// The mean of LSTD's sums over all rounds with its noise.
fn one_release(plan: &Plan, cell: usize, rounds: u64) -> Result<OneRelease> {
    let (field, of) = (plan.field(cell), &plan.cells[cell]);
    let none = || Error::not_known("", "linear systems are not known here", "a problem with few components");
    let System { a, b } = field.systems().ok_or_else(none)?.mean();
    let start = vec![0.0; field.dim()];
    let grid = Federation::new(&*of.method.settings, &of.uplink, field.weights(), 0, start)?.grid().ok_or_else(none)?;
    let noise = (grid.noise_variance(field.agents()) / rounds as f64).sqrt();
    Ok(OneRelease { a, b, kind: MatrixNoise::Independent, matrix_noise: noise, vector_noise: noise })
}

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
    /// The data that make the error useful, if it is above a tenth of the error of zero weights.
    pub needed: Option<KnownOrReason<Needed>>,
}

/// How much data makes an error useful.
#[derive(Debug, Clone, Copy)]
pub struct Needed {
    /// The number of agents, with the best local steps and rounds; or of rows of all agents, for the units row and episode.
    pub count: u64,
    /// The error then.
    pub mse: f64,
}

impl PrivacyTheory {
    /// The privacy of a cell; `None` if its sums have none.
    pub(super) fn of(predictor: &Predictor, cell: usize, allowance: &mut Allowance) -> Option<Self> {
        let (plan, forecast) = (predictor.plan(), predictor.forecast(cell));
        let planned = plan.cells[cell].uplink.privacy()?;
        let of_zero = plan.field(cell).solution().ok().map(|root| linalg::norm_sq(&root.theta));
        let zero = vec![0.0; plan.field(cell).dim()];
        let start = match &plan.cells[cell].start {
            ResolvedStart::Fixed(theta) => &theta[..],
            ResolvedStart::Normal => &zero,
        };
        let mse = allowance.compute("the error of private rounds", 0.5, || match forecast.shape().drift {
            Drift::NoSteps => Ok(one_release(plan, cell, planned.rounds)?.error(0.0)?.mse()),
            _ => Ok(forecast.curve(start, &InitialControls::Zero, &[planned.rounds])?.first().map_or(f64::NAN, |point| point.mse())),
        });
        let wanted = USEFUL * of_zero.unwrap_or(f64::INFINITY);
        let is_useless = mse.as_ref().is_ok_and(|mse| *mse > wanted);
        let needed = is_useless.then(|| {
            allowance.compute("the data of a useful error", 0.7, || -> Result<Needed> {
                if let (Some(rows), Ok(mse)) = (planned.rows, &mse) {
                    // The variance of the noise falls with the square of the number of rows.
                    let count = (rows as f64 * (mse / wanted).sqrt()).ceil() as u64;
                    return Ok(Needed { count, mse: wanted });
                }
                let (step, h) = (forecast.step_size()?, forecast.local_steps().max(1.0) as u64);
                let mut local_steps = LOCAL_STEPS.to_vec();
                local_steps.push(h);
                let range = PlanRange { step_sizes: vec![step], local_steps, max_rounds: MAX_ROUNDS, refine: false };
                let AgentsNeeded { agents, choice } = AgentPlan::over(&forecast, planned.rounds, start)?.agents_needed(wanted, &range)?;
                Ok(Needed { count: agents, mse: choice.mse })
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
            "unit": self.planned.protected(),
            "mse": self.mse.as_ref().ok(),
            "mse_of_zero": self.of_zero,
            "needed": self.needed.as_ref().and_then(|needed| Some(needed.as_ref().ok()?.count)),
        })
    }

    /// The units that are counted for a useful error.
    pub fn counted(&self) -> &'static str {
        if self.planned.unit == PrivacyUnit::Agent { "agents" } else { "rows" }
    }
}
