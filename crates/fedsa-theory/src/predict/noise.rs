//! The source of the noise in a method's rounds, and its second moments.

use std::borrow::Cow;
use std::sync::Arc;

use super::round::Round;
use super::{EXACT_DIM, Forecast, no_moments, no_steps, unknown};
use crate::exact_mse::{DelayedMse, ExactMse, FedHsaMse, FedLsaMse, InitialControls, ScafflsaMse};
use crate::gauss_markov::GaussMarkov;
use crate::markov::MarkovRule;
use crate::work;
use fedsa::error::Result;
use fedsa::method::{ControlRule, Drift, MissingUpdate};
use fedsa::problem::law::NoiseLaw;
use fedsa::problem::systems::{Moments, Systems};
use fedsa::sampling::Law;

/// The source of the noise in a method's rounds. It decides which closed form applies.
pub(super) enum NoiseSource {
    /// None: the floor is the squared bias.
    Nothing,
    /// Independent samples, the link or the choice of participants.
    Independent,
    /// Additive Gauss-Markov noise alone.
    Additive(Vec<NoiseLaw>),
    /// Finite chains.
    Chains(MarkovRule),
}

/// The method with this drift, among those with a recursion of second moments.
///
/// # Errors
/// For other drifts.
pub(super) fn rule_of(drift: Drift) -> Result<MarkovRule> {
    match drift {
        Drift::Zero => Ok(MarkovRule::FedLsa),
        Drift::GlobalMemory { fresh: 0 } => Ok(MarkovRule::FedHsa),
        Drift::GlobalMemory { .. } => Err(unknown("the first local step draws a sample of its own")),
        Drift::ControlVariate { talk: None } => Ok(MarkovRule::Scafflsa),
        Drift::ControlVariate { talk: Some(_) } => Err(unknown("talks are random")),
        Drift::NoSteps => Err(no_steps()),
    }
}

impl Forecast {
    /// Checks that second moments of samples are known.
    pub(super) fn moments_known(&self) -> Result<()> {
        if self.sampling.kind != Law::Iid {
            return Err(unknown("samples are not i.i.d."));
        }
        if self.field.dim() > EXACT_DIM {
            return Err(unknown(&format!("more than {EXACT_DIM} features")));
        }
        self.field.second_moments(0).map(|_| ()).ok_or_else(no_moments)
    }

    /// The second moments of independent samples, for all kinds.
    pub(super) fn moments(&self, systems: &Systems) -> Result<Vec<Moments>> {
        self.moments_known()?;
        self.moments_of_all(systems)
    }

    /// The second moments of single samples, however they are drawn, for all kinds.
    pub(super) fn moments_of_all(&self, systems: &Systems) -> Result<Vec<Moments>> {
        work::try_map(systems.kinds.len(), |k| self.field.second_moments(k).map(Arc::unwrap_or_clone).ok_or_else(no_moments))
    }

    pub(super) fn batch(&self) -> u64 {
        self.sampling.batch as u64
    }

    /// Whether samples, the link or the choice of participants are noisy.
    pub(super) fn is_noisy(&self, round: &Round<'_>) -> bool {
        self.sampling.kind != Law::Mean || round.is_noisy()
    }

    /// Whether a round is a known linear map without any noise. If so, late rounds multiply the error by the radius.
    pub fn is_noiseless(&self) -> bool {
        self.linear().is_ok_and(|round| !self.is_noisy(&round))
    }

    /// The second moments of samples; `None` if sampling is noiseless.
    pub(super) fn noise_of_samples(&self, systems: &Systems) -> Result<Option<Vec<Moments>>> {
        if self.sampling.kind == Law::Mean { Ok(None) } else { self.moments(systems).map(Some) }
    }

    /// Exact results for rounds with this drift and independent samples; `moments` is `None` if operators are noiseless.
    pub(super) fn exact(
        &self,
        round: &Round<'_>,
        drift: Drift,
        moments: Option<&[Moments]>,
        controls: &InitialControls,
    ) -> Result<Box<dyn ExactMse>> {
        let (systems, setting, batch) = (round.systems, &round.setting, self.batch());
        // With noise of the link alone.
        let given = || -> Cow<'_, [Moments]> {
            moments.map_or_else(|| Cow::Owned(systems.kinds.iter().map(Moments::of_mean).collect()), Cow::Borrowed)
        };
        Ok(match (drift, round.delay()) {
            (Drift::Zero, None) => Box::new(FedLsaMse::arriving(systems, moments, setting, batch, &round.arrivals())?),
            (Drift::Zero, Some(delay)) => Box::new(DelayedMse::new(systems, moments, setting, batch, &round.arrivals(), delay)?),
            (Drift::GlobalMemory { .. }, _) => {
                let noise = round.only_noise()?;
                Box::new(FedHsaMse::new(systems, &given(), setting, batch)?.with_noise(noise, noise))
            }
            _ => {
                let (clear, noise) = (ScafflsaMse::new(systems, &given(), setting, batch, controls)?, round.only_noise()?);
                Box::new(if noise > 0.0 { clear.with_noise(noise) } else { clear })
            }
        })
    }

    /// The same for the method's own rounds and samples.
    pub(super) fn own_exact(&self, round: &Round<'_>, controls: &InitialControls) -> Result<Box<dyn ExactMse>> {
        self.exact(round, self.shape.drift, self.noise_of_samples(round.systems)?.as_deref(), controls)
    }

    /// Checks that second moments of FedLSA's rounds have a closed form that is small enough to compute.
    pub(super) fn plain_known(&self, round: &Round<'_>) -> Result<()> {
        round.has_mean_square()?;
        if self.sampling.kind == Law::Mean && round.is_noisy() {
            if self.field.dim() > EXACT_DIM { Err(unknown(&format!("more than {EXACT_DIM} features"))) } else { Ok(()) }
        } else {
            self.moments_known()
        }
    }

    /// Checks that second moments of a method with memory have a closed form over the link.
    pub(super) fn memory_known(&self, round: &Round<'_>) -> Result<()> {
        let noise = round.only_noise()?;
        if noise == 0.0 || !matches!(self.shape.drift, Drift::ControlVariate { .. }) {
            return Ok(());
        }
        match self.lost {
            MissingUpdate::Controls(ControlRule::Afresh) => Ok(()),
            MissingUpdate::Controls(ControlRule::Literal) => {
                Err(unknown("control variates are kept to the letter and accumulate the noise, so that the error grows in every round"))
            }
            _ => Err(unknown("control variates contain the noise of what agents sent, unless they are made afresh (`rule`)")),
        }
    }

    /// Whether samples come from finite chains.
    pub(super) fn is_chain(&self) -> bool {
        self.sampling.kind == Law::Markov && self.field.facts().additive_noise().is_none()
    }

    /// The source of the rounds' noise, if there is a closed form of the mean square.
    pub(super) fn noise_source(&self, round: &Round<'_>) -> Result<NoiseSource> {
        if !self.is_noisy(round) {
            return Ok(NoiseSource::Nothing);
        }
        let law = self.sampling.kind;
        let is_plain = round.is_plain().is_ok() && round.link.delay.is_none();
        if law != Law::Mean
            && is_plain
            && let Some(laws) = self.additive_noise()
        {
            let parts = if laws.len() == 1 { round.systems.kinds.len() } else { laws.len() };
            GaussMarkov::affordable(parts, round.systems.dim(), &round.setting, self.batch())?;
            if self.shape.drift != (Drift::GlobalMemory { fresh: 1 }) {
                rule_of(self.shape.drift)?;
            }
            return Ok(NoiseSource::Additive(laws));
        }
        let rule = rule_of(self.shape.drift)?;
        if law == Law::Markov {
            self.chains_known(round)?;
            // FedLSA's joint chain is smaller.
            return Ok(NoiseSource::Chains(rule_of(self.drift_of_theta(round))?));
        }
        match rule {
            MarkovRule::FedLsa => self.plain_known(round)?,
            MarkovRule::FedHsa | MarkovRule::Scafflsa => {
                self.memory_known(round)?;
                self.plain_known(round)?;
            }
        }
        Ok(NoiseSource::Independent)
    }
}
