//! The mean-square error along the rounds.

use super::noise::NoiseSource;
use super::round::Round;
use super::{DELAYED_WORK, Forecast, LESS_DELAYED, delayed_work, takes_too_long};
use crate::exact_mse::{InitialControls, MeanSquare};
use crate::gauss_markov::GaussMarkov;
use crate::{Accuracy, work};
use fedsa::error::Result;

impl Forecast {
    /// Checks that the mean-square error along the rounds has a closed form.
    ///
    /// # Errors
    /// When it has none; gives the reason.
    pub fn knows_curve(&self) -> Result<()> {
        self.stoppable(|| self.curve_source().map(|_| ()))
    }

    pub(super) fn curve_source(&self) -> Result<(Round<'_>, NoiseSource)> {
        let round = self.linear()?;
        self.of_last()?;
        let source = match self.noise_source(&round)? {
            NoiseSource::Nothing => {
                self.moments_known()?;
                NoiseSource::Independent
            }
            source => source,
        };
        if let NoiseSource::Chains(rule) = source {
            self.chains_curve_known(&round, rule)?;
        }
        Ok((round, source))
    }

    /// Checks that the mean-square error up to this round is computed: it has a closed form ([`Forecast::knows_curve`]), and so many
    /// rounds do not take too long.
    ///
    /// # Errors
    /// When it is not; gives the reason.
    pub fn knows_curve_to(&self, last: u64) -> Result<()> {
        self.stoppable(|| self.curve_reaches(last))
    }

    pub(super) fn curve_reaches(&self, last: u64) -> Result<()> {
        let (round, source) = self.curve_source()?;
        if let NoiseSource::Chains(rule) = source {
            return self.chains_curve_affordable(&round, rule, last);
        }
        let Some((delay, _)) = round.delay() else { return Ok(()) };
        let d = round.systems.dim();
        if delayed_work(d, delay) * last as f64 > DELAYED_WORK {
            let what = format!("the second moments of {d} features over {last} rounds with a delay of {delay} rounds");
            return Err(takes_too_long(&what, LESS_DELAYED));
        }
        Ok(())
    }

    /// The accuracy of the curve.
    ///
    /// # Errors
    /// As [`Forecast::knows_curve`].
    pub fn curve_accuracy(&self) -> Result<Accuracy> {
        self.stoppable(|| match self.curve_source()? {
            (round, NoiseSource::Chains(rule)) => self.chains_curve_accuracy(&round, rule),
            _ => Ok(Accuracy::Exact),
        })
    }

    /// The mean and the second moment of the iterate's error at each of `rounds` (ascending), from `theta_0` (d components)
    /// and these initial controls.
    ///
    /// # Errors
    /// When it is not known.
    pub fn curve(&self, theta_0: &[f64], controls: &InitialControls, rounds: &[u64]) -> Result<Vec<MeanSquare>> {
        self.stoppable(|| self.computed_curve(theta_0, controls, rounds))
    }

    pub(super) fn computed_curve(&self, theta_0: &[f64], controls: &InitialControls, rounds: &[u64]) -> Result<Vec<MeanSquare>> {
        self.knows_curve_to(rounds.last().copied().unwrap_or(0))?;
        let (round, source) = self.curve_source()?;
        let (systems, setting) = (round.systems, &round.setting);
        if !matches!(source, NoiseSource::Chains(_)) {
            work::charge(self.curve_work(0)?)?;
        }
        match source {
            NoiseSource::Additive(laws) => {
                GaussMarkov::new(systems, &laws, self.sampling, setting, self.shape.drift)?.curve(theta_0, controls, rounds)
            }
            NoiseSource::Chains(rule) => self.chains_curve(&round, rule, theta_0, controls, rounds),
            NoiseSource::Independent | NoiseSource::Nothing => self.own_exact(&round, controls)?.curve(theta_0, rounds),
        }
    }
}
