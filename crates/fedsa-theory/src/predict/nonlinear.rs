//! Predictions for nonlinear operators, near a root of their mean.

use std::sync::Arc;

use super::noise::rule_of;
use super::round::Round;
use super::{Forecast, no_steps, unknown};
use crate::exact_mse::MeanSquare;
use crate::nonlinear::Near;
use crate::nonlinear::leading_order::NonlinearOrder;
use fedsa::error::Result;
use fedsa::linalg;
use fedsa::method::Drift;
use fedsa::problem::copies::CopyRule;
use fedsa::sampling::Law;

impl Forecast {
    /// Whether the operators are known and not linear.
    pub(super) fn is_nonlinear(&self) -> bool {
        self.others.is_none() && self.field.systems().is_none() && self.field.facts().linear_operators().is_none() && self.field.has_mean()
    }

    /// The forecast for the linear systems that agree with nonlinear operators at the root.
    ///
    /// # Errors
    /// When the root or the Jacobians are not known.
    pub(super) fn linearised(&self) -> Result<Self> {
        Ok(Self { others: Some(Arc::new(Near::new(&*self.field)?.linearised())), ..self.clone() })
    }

    /// Rejects the radius where agents keep the policy of the round's model, so that a round has no such linear map.
    pub(super) fn linearised_rounds(&self) -> Result<Self> {
        if self.field.facts().keeps_law_in_rounds() {
            return Err(unknown("the radius where agents keep the policy of a round's model"));
        }
        self.linearised()
    }

    /// Checks that the limit of rounds without noise is known.
    pub(super) fn knows_nonlinear_limit(&self) -> Result<()> {
        Self::is_undisturbed(&self.linearised()?.linear()?)
    }

    /// Checks that nothing but noise of samples changes a round: all agents, a clear link, the server's step 1.
    fn is_undisturbed(round: &Round<'_>) -> Result<()> {
        if round.few.is_some() || !round.link.is_clear() || round.link.delay.is_some() || round.setting.server_step != 1.0 {
            return Err(unknown("operators are not linear, and not all agents take part over a clear link with the server's step 1"));
        }
        Ok(())
    }

    /// The limit of rounds without noise, minus theta* (d).
    pub(super) fn nonlinear_bias(&self) -> Result<Vec<f64>> {
        let of = self.linearised()?;
        let round = of.linear()?;
        Self::is_undisturbed(&round)?;
        match self.shape.drift {
            Drift::Zero => {
                let near = Near::new(&*self.field)?;
                Ok(linalg::minus(&near.limit(&round.setting)?, self.field.root().unwrap_or(&[])))
            }
            Drift::GlobalMemory { .. } | Drift::ControlVariate { .. } => Ok(vec![0.0; self.field.dim()]),
            Drift::NoSteps => Err(no_steps()),
        }
    }

    /// The leading order of the floor, with the step size.
    pub(super) fn nonlinear_order(&self) -> Result<(NonlinearOrder, f64)> {
        if self.copies != Some(CopyRule::LinearTwin) {
            self.of_last()?;
        }
        let of = self.linearised()?;
        let round = of.linear()?;
        Self::is_undisturbed(&round)?;
        let drift = if self.sampling.kind == Law::Mean { self.shape.drift } else { of.drift_of_theta(&round) };
        // Along a trajectory samples depend on each other: the formulas hold if the correction has the sample of the first step.
        if self.sampling.kind == Law::Markov || !matches!(drift, Drift::GlobalMemory { .. }) {
            rule_of(drift)?;
        }
        let order = Near::new(&*self.field)?.leading_order(self.sampling, &round.setting, drift)?;
        Ok((order, round.setting.step_size))
    }

    /// The floor to leading order.
    pub(super) fn nonlinear_leading_order(&self) -> Result<MeanSquare> {
        let (order, eta) = self.nonlinear_order()?;
        let drift = order.drift.iter().map(|x| eta * x).collect();
        Ok(self.mean_square(&order, eta, drift, &order.spread[0]))
    }

    /// The floor with the exact limit without noise; of noise the leading order, and within a round what `local_noise` says.
    pub(super) fn nonlinear_floor(&self) -> Result<MeanSquare> {
        let (order, eta) = self.nonlinear_order()?;
        Ok(self.mean_square(&order, eta, self.nonlinear_bias()?, &order.spread[1]))
    }

    fn mean_square(&self, order: &NonlinearOrder, eta: f64, mut bias: Vec<f64>, spread: &[f64]) -> MeanSquare {
        linalg::add_scaled(&mut bias, eta, &order.noise);
        linalg::add_scaled(&mut bias, 1.0, spread);
        let trace: f64 = (0..bias.len()).map(|i| order.v1[(i, i)]).sum();
        // The noise of a difference from the linear twin is of higher order.
        MeanSquare { bias, noise: if self.copies.is_some() { 0.0 } else { eta * trace } }
    }
}

#[cfg(test)]
#[path = "nonlinear_tests.rs"]
mod tests;
