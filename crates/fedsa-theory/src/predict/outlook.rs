//! Whether a method is stable, from the radii of its rounds.

use super::markov::settles;
use super::noise::{NoiseSource, rule_of};
use super::{EXACT_DIM, Forecast, unknown};
use crate::exact_mse::InitialControls;
use crate::markov::MarkovRule;
use crate::markov::one_agent::OneAgent;
use crate::stability::RadiusStability;
use crate::work;
use fedsa::error::{ErrorKind, Result};
use fedsa::problem::systems::{Moments, Systems};
use fedsa::sampling::Law;

/// Mean-square radii are computed up to this many multiplications for a step's map and up to this many rows of the state of control
/// variates. Its second moments have the square of that size.
const MEAN_SQUARE_WORK: usize = 20_000_000;
const MEAN_SQUARE_STATE: usize = 120;
/// The mean-square radius of one agent's chain is computed up to this many unknowns, and multiplications for a step of all of them.
/// Searches for stable steps compute dozens of radii.
const CHAIN_UNKNOWNS: usize = 2000;
const CHAIN_PRODUCT: f64 = 1e5;

/// The radii that decide whether a method is stable.
#[derive(Debug, Clone)]
pub struct Outlook {
    /// The spectral radius of a noiseless round.
    pub radius: Result<f64>,
    /// The spectral radius of the map of second moments; `None` without noise, or if the mean does not converge.
    pub mean_square: Option<Result<f64>>,
}

/// Whether a method is stable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Regime {
    /// The mean converges, and with noise the mean square does too.
    Stable,
    /// The mean converges; whether the mean square does is not known.
    InMean,
    /// The radius is too close to 1 to tell ([`RadiusStability::TooSlow`]).
    TooSlow,
    /// The mean diverges.
    MeanDiverges,
    /// The mean converges, and noise makes the mean square diverge.
    MeanSquareDiverges,
    /// There is no closed form.
    Unknown,
}

impl Outlook {
    /// The judgement from the radii.
    pub fn regime(&self) -> Regime {
        let Ok(radius) = &self.radius else { return Regime::Unknown };
        match (RadiusStability::of(*radius), &self.mean_square) {
            (RadiusStability::Unstable, _) => Regime::MeanDiverges,
            (RadiusStability::TooSlow, _) => Regime::TooSlow,
            (RadiusStability::Stable, None) => Regime::Stable,
            (RadiusStability::Stable, Some(Err(_))) => Regime::InMean,
            (RadiusStability::Stable, Some(Ok(square))) => match RadiusStability::of(*square) {
                RadiusStability::Stable => Regime::Stable,
                RadiusStability::TooSlow => Regime::InMean,
                RadiusStability::Unstable => Regime::MeanSquareDiverges,
            },
        }
    }

    /// Whether a radius is missing because its computation was cancelled.
    pub(super) fn is_cancelled(&self) -> bool {
        let is_cancelled = |radius: &Result<f64>| radius.as_ref().is_err_and(|e| e.kind() == ErrorKind::Cancelled);
        is_cancelled(&self.radius) || self.mean_square.as_ref().is_some_and(is_cancelled)
    }

    /// Whether the method is known to diverge.
    pub fn is_unstable(&self) -> bool {
        matches!(self.regime(), Regime::MeanDiverges | Regime::MeanSquareDiverges)
    }

    /// Whether the method is stable, or the reason why this is not known.
    pub fn stable(&self) -> std::result::Result<bool, String> {
        match (self.regime(), &self.radius) {
            (Regime::Stable | Regime::InMean, _) => Ok(true),
            (Regime::MeanDiverges | Regime::MeanSquareDiverges, _) => Ok(false),
            (Regime::TooSlow, _) => Err(TOO_SLOW.to_string()),
            (Regime::Unknown, Err(e)) => Err(e.what.clone()),
            (Regime::Unknown, Ok(_)) => unreachable!("a radius has a verdict"),
        }
    }
}

/// The message for a round whose radius cannot be distinguished from 1.
pub const TOO_SLOW: &str = "it moves too slowly to tell: the radius of a noiseless round is 1 to rounding";

/// A step size that is stable.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StableStep {
    /// The step size.
    pub step: f64,
    /// Whether the mean square is also known to converge with this step, and not only the mean.
    pub in_mean_square: bool,
}

impl StableStep {
    /// The limit in files: `mean-square`, or `mean` if the limit of the mean square was not computed.
    pub fn limit(self) -> &'static str {
        if self.in_mean_square { "mean-square" } else { "mean" }
    }
}

/// Computes the spectral radius of the map of second moments of a method's round, for any step size.
pub struct MeanSquareRadius(Map);

enum Map {
    /// The recursion under independent samples, with their second moments.
    Recursion(Option<Vec<Moments>>),
    /// Additive noise does not change the map of second moments, which has the square of the mean's radius.
    Additive,
    /// One agent's chain: the map of a step.
    OneAgent,
}

impl MeanSquareRadius {
    /// The radius for the method of a forecast.
    ///
    /// # Errors
    /// When the map is not known or too large.
    pub fn new(of: &Forecast) -> Result<Self> {
        of.stoppable(|| Self::of_map(of))
    }

    fn of_map(of: &Forecast) -> Result<Self> {
        Ok(Self(match Self::systems(of)? {
            None if of.agents() == 1 && of.is_chain() => Map::OneAgent,
            None => Map::Additive,
            Some(systems) => Map::Recursion(of.noise_of_samples(systems)?),
        }))
    }

    /// Whether the map is known and small enough.
    pub fn is_small(of: &Forecast) -> bool {
        Self::systems(of).is_ok()
    }

    /// The systems, if the map is known and small enough; `None` for maps that need no moments.
    fn systems(of: &Forecast) -> Result<Option<&Systems>> {
        let round = of.linear()?;
        let systems = round.systems;
        match of.noise_source(&round) {
            Ok(NoiseSource::Additive(..)) => return of.radius_known().map(|_| None),
            Ok(NoiseSource::Chains(..)) if of.agents() == 1 => {
                let agent = of.one_agent(&round)?;
                settles(&agent)?;
                let d = round.systems.dim() as f64;
                if OneAgent::unknowns(&agent) > CHAIN_UNKNOWNS || agent.moves.len() as f64 * d.powi(3) > CHAIN_PRODUCT {
                    return Err(unknown(&format!("the map of second moments with {d} features and {} states is too large", agent.states)));
                }
                return Ok(None);
            }
            Ok(NoiseSource::Chains(..)) => return Err(unknown("the mean square of several agents under Markov samples")),
            _ => {}
        }
        let (kinds, d) = (systems.kinds.len(), systems.dim());
        let packed = |n: usize| n.saturating_mul(n + 1) / 2;
        let (work, state) = match rule_of(of.drift_of_theta(&round))? {
            MarkovRule::FedLsa => {
                of.plain_known(&round)?;
                (kinds.saturating_mul(packed(d).saturating_pow(3)), round.delay().map_or(0, |(delay, _)| d * (delay + 1)))
            }
            rule => {
                of.memory_known(&round)?;
                if of.sampling.kind == Law::Markov {
                    of.moments_known()?;
                }
                (
                    kinds.saturating_mul(packed(d)).saturating_mul(packed(2 * d + 1).saturating_pow(2)),
                    if rule == MarkovRule::Scafflsa { d * (kinds + 1) + 1 } else { d },
                )
            }
        };
        if d > EXACT_DIM || work > MEAN_SQUARE_WORK || state > MEAN_SQUARE_STATE {
            let delay = round.delay().map_or(String::new(), |(delay, _)| format!(" over a delay of {delay} rounds"));
            return Err(unknown(&format!("the map of second moments of {kinds} distinct agents with {d} features{delay} is too large")));
        }
        Ok(Some(systems))
    }

    /// The radius with the step size of `of`, a forecast for the same method on the same problem over the same link.
    ///
    /// # Errors
    /// When the eigenvalues cannot be computed, or take more work than [`crate::work::within`] allows.
    pub fn at(&self, of: &Forecast) -> Result<f64> {
        of.stoppable(|| self.computed(of))
    }

    fn computed(&self, of: &Forecast) -> Result<f64> {
        let round = of.linear()?;
        // Products of small matrices take a quarter of a nanosecond per multiplication.
        work::charge(0.25 * of.mean_square_work(of.local_steps().max(1.0), 0.0)?)?;
        match &self.0 {
            Map::Additive => of.radius().map(|radius| radius * radius),
            Map::OneAgent => {
                let agent = of.one_agent(&round)?;
                let of_step = OneAgent::new(&agent, round.setting.step_size, of.batch())?.r2()?;
                Ok(of_step.powf(round.setting.local_steps as f64))
            }
            Map::Recursion(moments) => of.exact(&round, of.drift_of_theta(&round), moments.as_deref(), &InitialControls::Zero)?.radius(),
        }
    }
}
