//! Predictions for a method on a problem: limits, radii, floors, exact mean-square errors, and whether a step size is
//! stable.
//!
//! The closed forms are in the other modules of [`super`]. A [`Forecast`] selects the one that applies to a method over its
//! link, gives the reason if none applies, and judges stability by the radii ([`Outlook`]). A prediction whose computation
//! would take too long counts as unknown.
//!
//! | link or participation | mean: limit, radius | mean square: floor, curve, radius |
//! | --- | --- | --- |
//! | clear | all methods whose round is a linear map | FedLSA, FedHSA, SCAFFLSA with a fixed period |
//! | unbiased codecs, up or down, without error feedback | as over a clear link | unknown: the error's variance depends on the vector |
//! | independent losses, over the air, fading bit budgets | with the mean gain | methods without memory |
//! | m of N agents of equal weight | FedLSA as with all; others with factors of their own | methods without memory |
//! | delays, the same law in every round | methods without memory | constant ones, methods without memory |
//!
//! The mean square over a clear link with all agents, by the noise of samples:
//!
//! | samples | FedLSA, FedHSA, SCAFFLSA with a fixed period |
//! | --- | --- |
//! | independent | exact |
//! | additive Gauss-Markov noise on linear systems | exact ([`super::gauss_markov`]) |
//! | a finite chain, one agent | exact, batches too |
//! | finite chains, a few agents or exchangeable agents of two states | floors exact |
//! | finite chains, more agents | closure, where it is small enough; leading order |
//!
//! [`Accuracy`] says which of these a number is.
//!
//! ```
//! use fedsa::kernel::Isa;
//! use fedsa::methods::{MethodSettings as _, fedlsa::FedLsa};
//! use fedsa::problem::garnet::Garnet;
//! use fedsa::problem::{NoFiles, ProblemSettings as _};
//! use fedsa::sampling::Sampling;
//! use fedsa_theory::predict::{Forecast, Regime};
//! use fedsa::uplink::Uplink;
//!
//! # fn main() -> fedsa::error::Result<()> {
//! let garnet = Garnet::default().with_agents(4).with_states(10).with_features(3).with_seed(1);
//! let field = garnet.field(&NoFiles, Sampling::default(), Isa::best())?;
//! let forecast = Forecast::over(&*field, &FedLsa::new(0.1, 10), &Uplink::default());
//! assert!(forecast.floor()?.mse() > forecast.bias_sq()?);
//! assert_eq!(forecast.outlook().regime(), Regime::Stable);
//! assert!(forecast.largest_stable_step()?.step > 0.1);
//! # Ok(())
//! # }
//! ```

mod bias;
mod evolution;
mod limits;
mod markov;
mod outlook;
mod quantities;
mod reach;
mod region;
mod statements;
mod td;
mod what_if;

pub use bias::NoBias;
pub use limits::Limits;
pub use markov::{MarkovExplanation, PredictionCost};
pub use outlook::{MeanSquareRadius, Outlook, Regime, StableStep, TOO_SLOW};
pub use quantities::{FloorCache, QUANTITIES, Quantity, quantity};
pub use reach::{Obstacle, Reach, Rounds, check_target, error_at_start, rounding};
pub use region::{Region, Spot, StableSet, Verdict};
pub use statements::Statement;
pub use what_if::twins;

pub use super::unknown::unknown;

use std::cell::Cell;
use std::sync::Arc;

use super::exact_mse::{ArrivalLaw, DelayedMse, FedHsaMse, FedLsaMse, InitialControls, MeanSquare, ScafflsaMse};
use super::fedlsa::FedLsaMean;
use super::gauss_markov::{AdditiveRule, GaussMarkov};
use super::link::LinkLaw;
use super::markov::Rule;
use super::stability::{self, ControlVariates, Stability};
use super::{Accuracy, RoundSetting, work};
use fedsa::error::{BadInput, Result};
use fedsa::linalg;
use fedsa::methods::control_rule::ControlRule;
use fedsa::methods::{self, Drift, Lost, MethodShape};
use fedsa::parallel;
use fedsa::problem::Field;
use fedsa::problem::law::NoiseLaw;
use fedsa::problem::root::{Root, RootSource};
use fedsa::problem::systems::{Moments, Systems};
use fedsa::record::OutputRule;
use fedsa::sampling::{Law, Sampling};
use fedsa::schedule::StepSize;
use fedsa::uplink::Uplink;
use fedsa::uplink::medium::delay::Before;

/// The largest size, the number of kinds times d, for which radii of control variates are computed.
const RADIUS_SIZE: usize = 4000;
/// The largest d for which exact mean-square errors are computed.
pub const EXACT_DIM: usize = 24;
/// Mean-square radii are computed up to this many multiplications for a step's map, and up to this many rows of the state of
/// control variates, whose second moments have the square of that size.
const MEAN_SQUARE_WORK: usize = 20_000_000;
const MEAN_SQUARE_STATE: usize = 120;
/// The largest linear system that is solved for the floor of a delayed method.
const DELAYED_FLOOR: usize = 2600;
/// The most multiplications along the rounds of a delayed method, and what reduces them.
const DELAYED_WORK: f64 = 5e9;
/// Multiplications of a round of the second moments of a delayed method.
fn delayed_work(d: usize, delay: usize) -> f64 {
    2.0 * (d as f64).powi(3) * (delay + 1) as f64
}
const LESS_DELAYED: &str = "fewer rounds, shorter delays or fewer features";

/// The mean and the second moment of the iterate's error in the limit of many rounds, and how they are known.
#[derive(Debug, Clone, PartialEq)]
pub struct PredictedFloor {
    /// The bias and the noise.
    pub value: MeanSquare,
    /// How they are known.
    pub accuracy: Accuracy,
}

/// Where the noise of a method's rounds comes from, and thereby which closed form applies.
enum NoiseSource {
    /// None: the floor is the squared bias.
    Nothing,
    /// Independent samples, the link or the choice of participants.
    Independent,
    /// Additive Gauss-Markov noise alone.
    Additive(AdditiveRule, Vec<NoiseLaw>),
    /// Finite chains.
    Chains(Rule),
}

/// A method on a problem over a link. Predictions are computed when they are asked for.
#[derive(Clone)]
pub struct Forecast<'f> {
    field: &'f dyn Field,
    /// How samples are drawn; that of the field, unless the forecast is about another law.
    sampling: Sampling,
    /// Other agents than those of the field.
    others: Option<&'f Systems>,
    shape: MethodShape,
    output: OutputRule,
    lost: Lost,
    link: Arc<Result<LinkLaw>>,
}

/// The shape of a method over a link for closed forms that hold over clear links only: over any other link no round counts
/// as linear.
pub fn shape_over(method: &dyn methods::MethodSettings, link: &Uplink) -> MethodShape {
    let shape = method.shape();
    MethodShape { is_linear: shape.is_linear && link.is_clear(), ..shape }
}

/// The error of what has a closed form that is not computed, and what could be.
fn takes_too_long(what: &str, help: &str) -> BadInput {
    work::refused(what, help)
}

fn no_steps() -> BadInput {
    unknown("the method makes no local steps")
}

fn no_moments() -> BadInput {
    unknown("second moments of the samples")
}

/// A round whose mean is known.
struct Round<'a, 'f> {
    systems: &'f Systems,
    setting: RoundSetting,
    link: &'a LinkLaw,
    /// m, if not all N agents participate.
    few: Option<usize>,
}

impl Round<'_, '_> {
    fn agents(&self) -> usize {
        self.systems.weights.len()
    }

    /// The moments of the weights with which directions enter the mean.
    fn arrivals(&self) -> ArrivalLaw {
        let asked = self.few.unwrap_or(self.agents());
        ArrivalLaw::by_factors(self.link.gain, self.link.gain_square, self.link.receiver_noise, asked).of_few(asked, self.agents())
    }

    /// Whether the link or the choice of participants adds noise.
    fn is_noisy(&self) -> bool {
        self.link.is_noisy() || self.few.is_some()
    }

    /// Refuses links for which the mean square is not known for any method.
    fn has_mean_square(&self) -> Result<()> {
        self.link.only_mean.map_or(Ok(()), |why| Err(unknown(why)))
    }

    /// Refuses links and participation for which only methods without memory have closed forms of the mean square.
    fn is_plain(&self) -> Result<()> {
        if self.link.is_clear() && self.few.is_none() {
            return Ok(());
        }
        self.has_mean_square()?;
        Err(unknown("the mean-square error of methods with memory, unless all agents participate over a clear link"))
    }

    /// FedLSA's mean round with the mean gain of the link.
    fn plain(&self) -> Result<FedLsaMean> {
        FedLsaMean::new(self.systems, &self.setting.with_server_step(self.setting.server_step * self.link.gain)?)
    }

    /// The delay, if it is constant.
    fn delay(&self) -> Option<(usize, Before)> {
        self.link.delay.as_ref().and_then(|delay| Some((delay.constant()?, delay.before)))
    }

    /// The weight of a pair of different participants in the mean over pairs of agents, `N (m - 1) / (m (N - 1))`; 1 if all
    /// participate ([`stability::global_memory_radius_over`]).
    fn mixing(&self) -> f64 {
        let n = self.agents() as f64;
        self.few.map_or(1.0, |m| n * (m as f64 - 1.0) / (m as f64 * (n - 1.0)))
    }

    /// The share of `v - v_c` by which an agent's control changes in the mean, `(m - 1) / (N - 1)`; 1 if all participate.
    fn share(&self) -> f64 {
        self.few.map_or(1.0, |m| (m as f64 - 1.0) / (self.agents() as f64 - 1.0))
    }
}

/// The largest number of components for which the largest stable step is searched for: it takes the radii of many steps.
const MOST_SEARCHED: usize = 300;

/// The most multiplications of the search for the largest stable step, in the mean and in the mean square each, and how many radii
/// of the mean square it takes, about.
const SEARCH_WORK: f64 = 1e10;
const STABLE_STEP_RADII: f64 = 30.0;
/// What reduces the work of radii.
const LESS_DISTINCT: &str = "fewer distinct agents or features";

impl<'f> Forecast<'f> {
    /// The forecast for a method of this shape over a clear link whose output is the last iterate.
    pub fn new(field: &'f dyn Field, shape: MethodShape) -> Self {
        let (output, lost, link) = (OutputRule::Last, Lost::Zero, Arc::new(Ok(LinkLaw::clear())));
        Self { field, sampling: field.sampling(), others: None, shape, output, lost, link }
    }

    /// The forecast for a method over a link whose output is the last iterate.
    pub fn over(field: &'f dyn Field, method: &dyn methods::MethodSettings, link: &Uplink) -> Self {
        let law = LinkLaw::of(link, field.dim());
        let lost = method.lost(field.agents(), &link.facts());
        Self { lost, link: Arc::new(law), ..Self::new(field, method.shape()) }
    }

    /// The same forecast with another output.
    #[must_use]
    pub fn of_output(self, output: OutputRule) -> Self {
        Self { output, ..self }
    }

    /// Refuses outputs other than the last iterate, because averaging changes the noise.
    fn of_last(&self) -> Result<()> {
        if self.output == OutputRule::Last { Ok(()) } else { Err(unknown("the output is not the last iterate")) }
    }

    /// The effect of the link on a round.
    ///
    /// # Errors
    /// When it is not known; gives the reason.
    pub fn link(&self) -> Result<&LinkLaw> {
        self.link.as_ref().as_ref().map_err(Clone::clone)
    }

    /// The method's round, if its mean is known.
    fn linear(&self) -> Result<Round<'_, 'f>> {
        let Self { field, shape, .. } = self;
        let systems = self.systems().ok_or_else(|| match field.facts().linear_operators() {
            Some(_) => unknown("the systems are sparse, and predictions need dense ones"),
            None => unknown("the operators are not linear"),
        })?;
        if !shape.is_linear {
            return Err(unknown("a round is not a linear map"));
        }
        let link = self.link()?;
        let few = shape.participants.filter(|m| *m < systems.weights.len());
        let alike = || systems.weights.iter().all(|p| (p - systems.weights[0]).abs() <= 1e-12 * systems.weights[0]);
        if few.is_some() && !alike() {
            return Err(unknown("only some of the agents participate, and their weights differ"));
        }
        if link.delay.is_some() && shape.drift != Drift::Zero {
            return Err(unknown("answers belong to old models, and the method remembers its earlier answers"));
        }
        let controls = matches!(shape.drift, Drift::ControlVariate { .. });
        if controls && few == Some(1) {
            return Err(unknown("with one participant per round the control variates do not change"));
        }
        // A mean gain of 1 may differ from 1 by rounding.
        let loses = (link.gain - 1.0).abs() > 1e-12;
        match self.lost {
            Lost::Controls(ControlRule::Literal) if controls && loses => {
                return Err(unknown("control variates are kept to the letter and accumulate the errors of lost messages"));
            }
            Lost::Controls(ControlRule::Afresh) if controls && few.is_some() => {
                return Err(unknown("control variates are made afresh, and those of a round's participants do not sum to 0"));
            }
            Lost::Last if few.is_some() || (loses && link.gain_square != link.gain) => {
                return Err(unknown(
                    "a missing operator is replaced by the agent's last one, and participation is partial or the link weakens messages",
                ));
            }
            _ => {}
        }
        let StepSize::Constant(eta) = shape.step_size else { return Err(unknown("the step size varies")) };
        let setting = RoundSetting::new(eta, (shape.local_steps.round() as u64).max(1))?.with_server_step(shape.alpha_g)?;
        Ok(Round { systems, setting, link, few })
    }

    /// Checks that a noiseless round is a known linear map.
    ///
    /// # Errors
    /// When it is not; gives the reason.
    pub fn knows_rounds(&self) -> Result<()> {
        self.linear().map(|_| ())
    }

    /// The settings of the method's rounds.
    ///
    /// # Errors
    /// When a noiseless round is not a known linear map; gives the reason.
    pub fn round_setting(&self) -> Result<RoundSetting> {
        self.linear().map(|round| round.setting)
    }

    /// The limit of the mean iterate of FedLSA with the method's settings, d numbers.
    ///
    /// # Errors
    /// When it is not known.
    pub fn limit(&self) -> Result<Vec<f64>> {
        self.linear()?.plain()?.limit()
    }

    /// The mean iterates `E theta_t` of FedLSA with the method's settings from `theta_0`, at each of `rounds` (ascending);
    /// vectors of d components.
    ///
    /// # Errors
    /// When they are not known.
    pub fn mean(&self, theta_0: &[f64], rounds: &[u64]) -> Result<Vec<Vec<f64>>> {
        let round = self.linear()?;
        let plain = round.plain()?;
        let Some(delay) = &round.link.delay else { return Ok(plain.mean(theta_0, rounds)) };
        // u_{t+1} = u_t + sum_k pi_k (k - K u_{t-k}). Terms with t < k use the first model, or are 0.
        let (pull, reach) = (plain.pull(), delay.probabilities.len());
        let mut past = vec![theta_0.iter().zip(&plain.root).map(|(x, r)| x - r).collect::<Vec<f64>>()];
        let last = rounds.last().map_or(0, |t| *t as usize);
        if last as f64 * (reach * plain.root.len()) as f64 > DELAYED_WORK {
            let (d, most) = (plain.root.len(), reach - 1);
            let what = format!("the mean of {d} features over {last} rounds with delays up to {most} rounds");
            return Err(takes_too_long(&what, LESS_DELAYED));
        }
        for t in 0..last {
            let (mut answered, mut arrived) = (vec![0.0; plain.root.len()], 0.0);
            for (k, p) in delay.probabilities.iter().enumerate().filter(|(k, _)| *k <= t || delay.before == Before::First) {
                arrived += p;
                answered.iter_mut().zip(&past[t.saturating_sub(k)]).for_each(|(a, u)| *a += p * u);
            }
            let pulled = linalg::mat_vec(&pull, &answered);
            let next = |i: usize| past[t][i] - pulled[i] + arrived * plain.server_step * plain.rho[i];
            past.push((0..pulled.len()).map(next).collect());
        }
        Ok(rounds.iter().map(|t| past[*t as usize].iter().zip(&plain.root).map(|(u, r)| u + r).collect()).collect())
    }

    /// The limit of the mean iterate minus theta* (d).
    fn bias(&self, round: &Round<'_, '_>) -> Result<Vec<f64>> {
        match self.shape.drift {
            Drift::Zero => round.plain()?.bias(),
            Drift::GlobalMemory { .. } => stability::global_memory_bias(round.systems, &round.setting, round.mixing()),
            Drift::ControlVariate { .. } => Ok(vec![0.0; round.systems.dim()]),
            Drift::NoSteps => Err(no_steps()),
        }
    }

    /// The squared distance of the method's limit from theta*. It is positive for FedLSA's local steps, and for FedHSA if only
    /// some of the agents participate; otherwise 0.
    ///
    /// # Errors
    /// When it is not known.
    pub fn bias_sq(&self) -> Result<f64> {
        Ok(linalg::norm_sq(&self.bias(&self.linear()?)?))
    }

    /// The round whose radius can be computed.
    fn radius_known(&self) -> Result<Round<'_, 'f>> {
        let round = self.linear()?;
        let kinds = round.systems.kinds.len();
        if matches!(self.shape.drift, Drift::ControlVariate { .. }) && kinds * round.systems.dim() > RADIUS_SIZE {
            return Err(unknown(&format!("the linear map of a round of {kinds} distinct agents is too large")));
        }
        Ok(round)
    }

    /// The spectral radius of the mean of a round.
    ///
    /// # Errors
    /// When a round is not a known linear map, or the map is too large.
    pub fn radius(&self) -> Result<f64> {
        self.radius_within(f64::INFINITY).map(|(radius, _)| radius)
    }

    /// [`Forecast::radius`] within about `most` multiplications, and how many it took, about one a nanosecond.
    ///
    /// # Errors
    /// As [`Forecast::radius`], and when it would take more.
    fn radius_within(&self, most: f64) -> Result<(f64, f64)> {
        let round = self.radius_known()?;
        let Round { systems, setting, link, .. } = round;
        let legs = self.legs_work(&round);
        if legs > most {
            return Err(takes_too_long("the radius of a round", "fewer distinct agents or features"));
        }
        work::charge(legs)?;
        let controls = |map: ControlVariates| {
            let map = match self.lost {
                _ if (link.gain - 1.0).abs() <= 1e-12 => map.moving_by(round.share()),
                Lost::Controls(ControlRule::Afresh) => map.made_anew(link.gain),
                _ => map.arriving(link.gain).moving_by(round.share()),
            };
            map.radius_within(most - legs)
        };
        // The eigenvalues of a matrix.
        let of = |radius: Result<f64>, rows: f64| radius.map(|radius| (radius, 12.0 * rows.powi(3)));
        let d = systems.dim() as f64;
        let (radius, work) = match self.shape.drift {
            Drift::Zero => match &link.delay {
                None => of(super::map::spectral_radius(&round.plain()?.round_map()), d),
                Some(delay) => {
                    // Eigenvalues of d complex matrices.
                    work::charge(8.0 * d * (delay.probabilities.len() as f64).powi(3))?;
                    let radius = stability::delayed_radius(&round.plain()?.pull(), &delay.probabilities);
                    radius.map(|radius| (radius, 30.0 * d * (delay.probabilities.len() as f64).powi(3) + 12.0 * d.powi(3)))
                }
            },
            Drift::GlobalMemory { .. } if self.lost == Lost::Last => {
                of(stability::last_operators_radius(systems, &setting, link.gain), 2.0 * d)
            }
            Drift::GlobalMemory { .. } => of(stability::global_memory_radius_over(systems, &setting, link.gain, round.mixing()), d),
            Drift::NoSteps => Err(no_steps()),
            Drift::ControlVariate { talk: None } => controls(ControlVariates::fixed_period(systems, &setting)),
            Drift::ControlVariate { talk: Some(p) } => {
                ControlVariates::random_talk(systems, setting.step_size, p, setting.server_step)?.map_or(Ok((f64::INFINITY, 0.0)), controls)
            }
        }?;
        Ok((radius, work + legs))
    }

    /// Multiplications of the legs of all distinct agents.
    fn legs_work(&self, round: &Round<'_, '_>) -> f64 {
        let (kinds, d) = (round.systems.kinds.len() as f64, round.systems.dim() as f64);
        // Some four small products in each doubling, which cost more than their multiplications.
        kinds * ((round.setting.local_steps as f64).log2() + 2.0) * (4.0 * d.powi(3) + 2000.0)
    }

    /// Checks that second moments of samples are known.
    fn moments_known(&self) -> Result<()> {
        if self.sampling.kind != Law::Iid {
            return Err(unknown("samples are not i.i.d."));
        }
        if self.field.dim() > EXACT_DIM {
            return Err(unknown(&format!("more than {EXACT_DIM} features")));
        }
        self.field.second_moments(0).map(|_| ()).ok_or_else(no_moments)
    }

    /// All kinds' second moments, of independent samples.
    fn moments(&self, systems: &Systems) -> Result<Vec<Moments>> {
        self.moments_known()?;
        self.moments_of_all(systems)
    }

    /// All kinds' second moments, of single samples however they are drawn.
    fn moments_of_all(&self, systems: &Systems) -> Result<Vec<Moments>> {
        let of = |k: usize| self.field.second_moments(k).map(Arc::unwrap_or_clone);
        parallel::map_all(systems.kinds.len(), of).ok_or_else(no_moments)
    }

    fn batch(&self) -> u64 {
        self.sampling.batch as u64
    }

    /// Whether samples, the link or the choice of participants are noisy.
    fn is_noisy(&self, round: &Round<'_, '_>) -> bool {
        self.sampling.kind != Law::Mean || round.is_noisy()
    }

    /// Whether a round is a known linear map without any noise. After many rounds each one then multiplies the error by the
    /// radius.
    pub fn is_noiseless(&self) -> bool {
        self.linear().is_ok_and(|round| !self.is_noisy(&round))
    }

    /// The second moments of samples; `None` if sampling is noiseless.
    fn noise_of_samples(&self, systems: &Systems) -> Result<Option<Vec<Moments>>> {
        if self.sampling.kind == Law::Mean { Ok(None) } else { self.moments(systems).map(Some) }
    }

    /// Checks that second moments of FedLSA's rounds have a closed form that is small enough to compute.
    fn plain_known(&self, round: &Round<'_, '_>) -> Result<()> {
        round.has_mean_square()?;
        if self.sampling.kind == Law::Mean && round.is_noisy() {
            if self.field.dim() > EXACT_DIM { Err(unknown(&format!("more than {EXACT_DIM} features"))) } else { Ok(()) }
        } else {
            self.moments_known()
        }
    }

    /// The method among those with a recursion of second moments.
    ///
    /// # Errors
    /// For other methods.
    fn rule(&self) -> Result<Rule> {
        match self.shape.drift {
            Drift::Zero => Ok(Rule::FedLsa),
            Drift::GlobalMemory { fresh: false } => Ok(Rule::FedHsa),
            Drift::GlobalMemory { fresh: true } => Err(unknown("the first local step draws a sample of its own")),
            Drift::ControlVariate { talk: None } => Ok(Rule::Scafflsa),
            Drift::ControlVariate { talk: Some(_) } => Err(unknown("talks are random")),
            Drift::NoSteps => Err(no_steps()),
        }
    }

    /// The method among those with a closed form under additive noise.
    fn additive_rule(&self) -> Result<AdditiveRule> {
        match (self.shape.drift, self.rule()) {
            (Drift::GlobalMemory { fresh: true }, _) => Ok(AdditiveRule::FedLin),
            (_, rule) => rule.map(AdditiveRule::from),
        }
    }

    /// Whether samples are those of finite chains.
    fn is_chain(&self) -> bool {
        self.sampling.kind == Law::Markov && self.field.facts().additive_noise().is_none()
    }

    /// Where the noise of rounds comes from, if there is a closed form of the mean square.
    fn noise_source(&self, round: &Round<'_, '_>) -> Result<NoiseSource> {
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
            return Ok(NoiseSource::Additive(self.additive_rule()?, laws));
        }
        let rule = self.rule()?;
        if law == Law::Markov {
            self.chains_known(round)?;
            // With one local step the drifts of a round sum to 0 over all agents: the method is FedLSA, whose joint chain is smaller.
            let rule = if round.setting.local_steps == 1 { Rule::FedLsa } else { rule };
            return Ok(NoiseSource::Chains(rule));
        }
        match rule {
            Rule::FedLsa => self.plain_known(round)?,
            Rule::FedHsa | Rule::Scafflsa => {
                round.is_plain()?;
                self.moments_known()?;
            }
        }
        Ok(NoiseSource::Independent)
    }

    /// The method's round, if its floor has a closed form.
    fn floor_known(&self) -> Result<(Round<'_, 'f>, NoiseSource)> {
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
        self.floor_known().map(|_| ())
    }

    /// The mean and the second moment of the iterate's error in the limit of many rounds.
    ///
    /// # Errors
    /// When it is not known, or does not exist.
    pub fn floor(&self) -> Result<MeanSquare> {
        self.predicted_floor().map(|floor| floor.value)
    }

    /// [`Forecast::floor`], and how it is known.
    ///
    /// # Errors
    /// As there.
    pub fn predicted_floor(&self) -> Result<PredictedFloor> {
        let (round, source) = self.floor_known()?;
        match &source {
            // Solved by iteration, which counts what it does.
            NoiseSource::Chains(rule) => self.chains_floor_affordable(&round, *rule)?,
            NoiseSource::Independent if matches!(self.shape.drift, Drift::ControlVariate { .. }) => {
                work::charge(limits::legs_of_moments(&round, 2.0 * round.systems.dim() as f64 + 1.0))?;
            }
            _ => work::charge(self.floor_work()?)?,
        }
        let (systems, setting) = (round.systems, &round.setting);
        let exact = |value| PredictedFloor { value, accuracy: Accuracy::Exact };
        match source {
            NoiseSource::Nothing => Ok(exact(MeanSquare { bias: self.bias(&round)?, noise: 0.0 })),
            NoiseSource::Additive(rule, laws) => GaussMarkov::new(systems, &laws, self.sampling, setting, rule)?.floor().map(exact),
            NoiseSource::Chains(rule) => self.chains_floor(&round, rule),
            NoiseSource::Independent => match self.shape.drift {
                Drift::Zero => {
                    let moments = self.noise_of_samples(systems)?;
                    let moments = moments.as_deref();
                    match round.delay() {
                        None => FedLsaMse::arriving(systems, moments, setting, self.batch(), &round.arrivals())?.floor(),
                        Some(delay) => DelayedMse::new(systems, moments, setting, self.batch(), &round.arrivals(), delay)?.floor(),
                    }
                }
                Drift::GlobalMemory { .. } => FedHsaMse::new(systems, &self.moments(systems)?, setting, self.batch())?.floor(),
                _ => ScafflsaMse::new(systems, &self.moments(systems)?, setting, self.batch(), &InitialControls::Zero)?.floor(),
            }
            .map(exact),
        }
    }

    /// How the floor is known. The floor is not computed, and may not exist.
    ///
    /// # Errors
    /// As [`Forecast::knows_floor`].
    pub fn floor_accuracy(&self) -> Result<Accuracy> {
        match self.floor_known()? {
            (round, NoiseSource::Chains(rule)) => self.chains_floor_accuracy(&round, rule),
            _ => Ok(Accuracy::Exact),
        }
    }

    /// Checks that the mean-square error along the rounds has a closed form.
    ///
    /// # Errors
    /// When it has none; gives the reason.
    pub fn knows_curve(&self) -> Result<()> {
        self.curve_source().map(|_| ())
    }

    fn curve_source(&self) -> Result<(Round<'_, 'f>, NoiseSource)> {
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

    /// Whether the mean-square error up to this round is computed: [`Forecast::knows_curve`], and it does not take too long for so
    /// many rounds.
    ///
    /// # Errors
    /// When it is not, with the reason.
    pub fn knows_curve_to(&self, last: u64) -> Result<()> {
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

    /// How the curve is known.
    ///
    /// # Errors
    /// As [`Forecast::knows_curve`].
    pub fn curve_accuracy(&self) -> Result<Accuracy> {
        match self.curve_source()? {
            (round, NoiseSource::Chains(rule)) => self.chains_curve_accuracy(&round, rule),
            _ => Ok(Accuracy::Exact),
        }
    }

    /// The mean and the second moment of the iterate's error at each of `rounds` (ascending), from `theta_0` (d components)
    /// and these initial controls.
    ///
    /// # Errors
    /// When it is not known.
    pub fn curve(&self, theta_0: &[f64], controls: &InitialControls, rounds: &[u64]) -> Result<Vec<MeanSquare>> {
        self.knows_curve_to(rounds.last().copied().unwrap_or(0))?;
        let (round, source) = self.curve_source()?;
        let (systems, setting) = (round.systems, &round.setting);
        if !matches!(source, NoiseSource::Chains(_)) {
            work::charge(self.curve_work(0)?)?;
        }
        match source {
            NoiseSource::Additive(rule, laws) => {
                return GaussMarkov::new(systems, &laws, self.sampling, setting, rule)?.curve(theta_0, controls, rounds);
            }
            NoiseSource::Chains(rule) => return self.chains_curve(&round, rule, theta_0, controls, rounds),
            NoiseSource::Independent | NoiseSource::Nothing => {}
        }
        match self.shape.drift {
            Drift::Zero => {
                let moments = self.noise_of_samples(systems)?;
                let (moments, arrivals) = (moments.as_deref(), round.arrivals());
                match round.delay() {
                    None => FedLsaMse::arriving(systems, moments, setting, self.batch(), &arrivals)?.curve(theta_0, rounds),
                    Some(delay) => DelayedMse::new(systems, moments, setting, self.batch(), &arrivals, delay)?.curve(theta_0, rounds),
                }
            }
            Drift::GlobalMemory { .. } => FedHsaMse::new(systems, &self.moments(systems)?, setting, self.batch())?.curve(theta_0, rounds),
            _ => ScafflsaMse::new(systems, &self.moments(systems)?, setting, self.batch(), controls)?.curve(theta_0, rounds),
        }
    }

    /// The radii that decide whether the method is stable.
    pub fn outlook(&self) -> Outlook {
        self.outlook_with(|| MeanSquareRadius::new(self).and_then(|of| of.at(self)))
    }

    /// [`Forecast::outlook`] with a radius of the mean square that may be known already.
    fn outlook_with(&self, mean_square: impl FnOnce() -> Result<f64>) -> Outlook {
        let radius = self.radius();
        let noisy = self.linear().is_ok_and(|round| self.is_noisy(&round));
        let converges = radius.as_ref().is_ok_and(|rho| Stability::of(*rho) == Stability::Stable);
        let mean_square = (noisy && converges).then(mean_square);
        Outlook { radius, mean_square }
    }

    /// The largest step size below the first instability of the mean, with all other settings unchanged. If noise makes the
    /// mean square diverge at this step, the result is a smaller step at which it converges. The result does not depend on the
    /// method's own step, unless that is unstable: the result is then below it.
    ///
    /// # Errors
    /// As [`Forecast::radius`], and when the radii of so many steps take too long (counted in multiplications).
    pub fn largest_stable_step(&self) -> Result<StableStep> {
        let round = self.linear()?;
        if let Ok(Root { source: RootSource::LeastNorm { .. }, .. }) = self.field.solution() {
            return Err(unknown("features depend on each other: the radius is 1 whatever the step size is"));
        }
        if self.field.dim() > MOST_SEARCHED {
            return Err(unknown("it is not searched for among so many components"));
        }
        let Round { systems, setting, link, .. } = &round;
        let left = Cell::new(SEARCH_WORK);
        let mean_radius = |eta: f64| {
            if left.get() <= 0.0 {
                return Err(takes_too_long("the search for the largest stable step", LESS_DISTINCT));
            }
            let (radius, work) = self.clone().with_step(eta).radius_within(left.get())?;
            left.set(left.get() - work);
            Ok(radius)
        };
        let size = systems.kinds.iter().map(|kind| linalg::norm2(&kind.a)).fold(0.0, f64::max);
        let mut in_mean = stability::largest_stable_step(mean_radius, 2.0 / (size * link.gain.max(1.0)), self.shape.local_steps.max(1.0))?;
        let own = setting.step_size;
        // If the method's own step is unstable and below the edge, the scan has missed a window of instability.
        let missed = |edge: f64, radius: &dyn Fn(f64) -> Result<f64>| {
            edge >= own && radius(own).is_ok_and(|rho| Stability::of(rho) == Stability::Unstable)
        };
        if missed(in_mean, &mean_radius) {
            in_mean = stability::edge_below(mean_radius, own)?;
        }
        if !self.is_noisy(&round) {
            return Ok(StableStep { step: in_mean, in_mean_square: true });
        }
        let found = MeanSquareRadius::new(self).and_then(|of| {
            let (_, own) = self.radius_within(SEARCH_WORK)?;
            if STABLE_STEP_RADII * self.mean_square_work(self.local_steps().max(1.0), own)? > SEARCH_WORK {
                return Err(takes_too_long("the search for the largest stable step in the mean square", LESS_DISTINCT));
            }
            let square = |eta: f64| of.at(&self.clone().with_step(eta));
            let step = stability::stable_step_below(square, in_mean)?;
            if missed(step, &square) { stability::edge_below(square, own) } else { Ok(step) }
        });
        Ok(found.map_or(StableStep { step: in_mean, in_mean_square: false }, |step| StableStep { step, in_mean_square: true }))
    }
}
