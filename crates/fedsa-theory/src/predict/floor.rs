//! The mean-square error in the limit of many rounds.

use super::noise::NoiseSource;
use super::round::{Round, phases_of_moments};
use super::{Forecast, unknown};
use crate::exact_mse::{DelayedMse, InitialControls, MeanSquare};
use crate::gauss_markov::GaussMarkov;
use crate::{Accuracy, work};
use fedsa::error::Result;
use fedsa::method::Drift;

/// The largest linear system that is solved for the floor of a delayed method.
const DELAYED_FLOOR: usize = 2600;

/// The mean and the second moment of the iterate's error in the limit of many rounds, and their accuracy.
#[derive(Debug, Clone, PartialEq)]
pub struct PredictedFloor {
    /// The bias and the noise.
    pub value: MeanSquare,
    /// Their accuracy.
    pub accuracy: Accuracy,
}

impl Forecast {
    /// The method's round, if its floor has a closed form.
    pub(super) fn floor_known(&self) -> Result<(Round<'_>, NoiseSource)> {
        self.of_last()?;
        let round = self.linear()?;
        let source = self.noise_source(&round)?;
        match &source {
            NoiseSource::Independent => {
                if let Some((delay, _)) = round.delay()
                    && DelayedMse::floor_size(round.systems.dim(), delay) > DELAYED_FLOOR
                {
                    let d = round.systems.dim();
                    return Err(unknown(&format!(
                        "the map of second moments with {d} features and a delay of {delay} rounds is too large"
                    )));
                }
            }
            NoiseSource::Chains(rule) => self.chains_floor_way(&round, *rule)?,
            NoiseSource::Nothing | NoiseSource::Additive(..) => {}
        }
        Ok((round, source))
    }

    /// Checks that the floor has a closed form.
    ///
    /// # Errors
    /// When it has none; gives the reason.
    pub fn knows_floor(&self) -> Result<()> {
        self.stoppable(|| if self.is_nonlinear() { self.nonlinear_order().map(|_| ()) } else { self.floor_known().map(|_| ()) })
    }

    /// The mean and the second moment of the iterate's error in the limit of many rounds.
    ///
    /// # Errors
    /// When it is not known, or does not exist.
    pub fn floor(&self) -> Result<MeanSquare> {
        self.predicted_floor().map(|floor| floor.value)
    }

    /// [`Forecast::floor`] and its accuracy.
    ///
    /// # Errors
    /// As [`Forecast::floor`].
    pub fn predicted_floor(&self) -> Result<PredictedFloor> {
        self.stoppable(|| self.computed_floor())
    }

    pub(super) fn computed_floor(&self) -> Result<PredictedFloor> {
        if self.is_nonlinear() {
            return Ok(PredictedFloor { value: self.nonlinear_floor()?, accuracy: Accuracy::LeadingOrder });
        }
        let (round, source) = self.floor_known()?;
        match &source {
            // The iteration counts its own work.
            NoiseSource::Chains(_) => {}
            NoiseSource::Independent if matches!(self.shape.drift, Drift::ControlVariate { .. }) => {
                work::charge(phases_of_moments(&round, self.shape.drift))?;
            }
            _ => work::charge(self.floor_work()?)?,
        }
        let (systems, setting) = (round.systems, &round.setting);
        let exact = |value| PredictedFloor { value, accuracy: Accuracy::Exact };
        match source {
            NoiseSource::Nothing => Ok(exact(MeanSquare { bias: self.bias(&round)?, noise: 0.0 })),
            NoiseSource::Additive(laws) => GaussMarkov::new(systems, &laws, self.sampling, setting, self.shape.drift)?.floor().map(exact),
            NoiseSource::Chains(rule) => self.chains_floor(&round, rule),
            NoiseSource::Independent => self.own_exact(&round, &InitialControls::Zero)?.floor().map(exact),
        }
    }

    /// The accuracy of the floor, which is not computed and may not exist.
    ///
    /// # Errors
    /// As [`Forecast::knows_floor`].
    pub fn floor_accuracy(&self) -> Result<Accuracy> {
        if self.is_nonlinear() {
            return self.knows_floor().map(|()| Accuracy::LeadingOrder);
        }
        self.stoppable(|| match self.floor_known()? {
            (round, NoiseSource::Chains(rule)) => self.chains_floor_accuracy(&round, rule),
            _ => Ok(Accuracy::Exact),
        })
    }
}
