//! The settings of methods that reach a mean-square error at the least cost.
//!
//! A [`Family`] is a method with its link and free step size eta, local steps H and server step alpha_g. A [`SearchChoice`] sets these.
//! If its mean-square error along the rounds is known ([`Forecast`]), [`course()`] computes the rounds until the target, and the floor.
//! [`Price`] turns rounds into bits and samples. [`search()`] finds the choice of least cost.
//!
//! A choice *reaches* the target after T rounds if the mean-square error of the iterate is at most the target after T rounds and above
//! it after T - 1. The floor, its limit after many rounds, must be at most the target too. If the matrices are far from normal, the
//! error may rise above the target in between.
//!
//! ```
//! use std::sync::Arc;
//! use fedsa::kernel::Isa;
//! use fedsa_methods::fedhsa::FedHsa;
//! use fedsa_methods::fedlsa::FedLsa;
//! use fedsa_problems::td::garnet::Garnet;
//! use fedsa_problems::{NoFiles, ProblemSettings as _};
//! use fedsa::sampling::Sampling;
//! use fedsa_theory::tune::{Effort, Family, SearchStart, SearchTarget, search};
//! use fedsa_theory::cost::Goal;
//! use fedsa::uplink::Uplink;
//!
//! # fn main() -> fedsa::error::Result<()> {
//! let garnet = Garnet::default().with_agents(3).with_states(8).with_features(2).with_seed(1);
//! let field = garnet.field(&NoFiles, Sampling::default(), Isa::best())?;
//! let link = Arc::new(Uplink::default());
//! let families = [
//!     Family::new("fedlsa", |eta, h, alpha| Ok(Arc::new(FedLsa::new(eta, h).with_global_step_size(alpha))), &link),
//!     Family::new("fedhsa", |eta, h, alpha| Ok(Arc::new(FedHsa::new(eta, h).with_global_step_size(alpha))), &link),
//! ];
//! let target = SearchTarget { mse: 0.01, goal: Goal::Bits, ..SearchTarget::default() };
//! let found = search(&field, &families, &SearchStart::zero(field.dim()), &target, &Effort::default())?;
//! let best = found.best().expect("two methods that reach every error");
//! assert!(best.reached().is_some_and(|reach| reach.mse <= 0.01));
//! # Ok(())
//! # }
//! ```
//!
//! [`Forecast`]: crate::predict::Forecast

mod course;
mod line;
mod price;
mod search;

use std::sync::Arc;

pub use course::{Course, Hit, Miss, course};
pub use line::{Tried, coarse_steps, largest_step};
pub use price::{Price, SearchCost};

pub use search::{Effort, SearchResult, cheaper, search, server_steps};

use crate::cost::{Goal, Network};
use crate::exact_mse::InitialControls;
use crate::predict::{Forecast, check_target, error_at_start, rounding};
use fedsa::error::{Error, Result, require};
use fedsa::method::MethodSettings;
use fedsa::problem::Field;
use fedsa::record::OutputRule;
use fedsa::uplink::Uplink;
use fedsa_methods::MAX_LOCAL_STEPS;

/// The target, and the limits of the choice.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchTarget {
    /// The mean-square error `E ||theta - theta*||^2`.
    pub mse: f64,
    /// The quantity to minimise.
    pub goal: Goal,
    /// The most rounds.
    pub max_rounds: u64,
    /// The most local steps.
    pub max_local_steps: u64,
    /// H, if given.
    pub local_steps: Option<Vec<u64>>,
    /// The time that messages take, if seconds are the goal.
    pub network: Option<Network>,
}

impl Default for SearchTarget {
    fn default() -> Self {
        Self {
            mse: 0.0,
            goal: Goal::Bits,
            max_rounds: DEFAULT_MAX_ROUNDS,
            max_local_steps: DEFAULT_MAX_LOCAL_STEPS,
            local_steps: None,
            network: None,
        }
    }
}

/// The default of [`SearchTarget::max_rounds`].
pub const DEFAULT_MAX_ROUNDS: u64 = 100_000;
/// The default of [`SearchTarget::max_local_steps`].
pub const DEFAULT_MAX_LOCAL_STEPS: u64 = 1000;

impl SearchTarget {
    /// Checks the target for a problem and a start.
    ///
    /// # Errors
    /// - When the error is not positive, below the rounding error of the root, or already reached at the start.
    /// - When theta* is not known.
    /// - When H or a limit is out of range.
    /// - When samples are the goal and none are drawn, or seconds are the goal without a network.
    pub fn check(&self, field: &dyn Field, start: &SearchStart) -> Result<()> {
        require(self.max_rounds >= 1, "max_rounds", self.max_rounds, "at least 1")?;
        let allowed = 1..=MAX_LOCAL_STEPS as u64;
        let accepted = format!("between 1 and {MAX_LOCAL_STEPS}");
        require(allowed.contains(&self.max_local_steps), "max_local_steps", self.max_local_steps, &accepted)?;
        for given in self.local_steps.iter().flatten() {
            require(allowed.contains(given), "local_steps", given, &accepted)?;
        }
        let root = field.solution().map_err(|why| {
            let what = format!("theta* is not known for this problem, and therefore no mean-square error: {why}");
            Error::new("target", what, "a problem with a known root")
        })?;
        check_target(self.mse, &root.theta)?;
        let at_start = error_at_start(start.theta.as_deref(), &root.theta);
        if at_start <= self.mse {
            let what = format!("the start has the error {at_start:.3e} already: no round is needed");
            let is_root = at_start <= rounding(&root.theta);
            let help = if is_root { "a start away from the root".into() } else { format!("less than {at_start:.3e}, or another start") };
            return Err(Error::new("target", what, help));
        }
        if self.goal == Goal::Seconds && self.network.is_none() {
            let what = "seconds of computation depend on the machine, and are not predicted";
            let accepted = "`latency` or `bandwidth`, for seconds of messages; or bits, rounds or samples";
            return Err(Error::new("objective", what, accepted));
        }
        if self.goal == Goal::Samples && field.sampling().samples_per_step() == 0 {
            return Err(Error::new("objective", "no samples are drawn under the mean operator", "rounds or bits, or another sampling"));
        }
        Ok(())
    }

    /// The numbers of local steps of the coarse search, ascending.
    pub fn coarse_local_steps(&self) -> Vec<u64> {
        if let Some(given) = &self.local_steps {
            let mut given = given.clone();
            given.sort_unstable();
            given.dedup();
            return given;
        }
        // 1, 2, 5, 10, 20, 50, ..
        let decades = (0..9).flat_map(|decade| [1, 2, 5].map(|digit| digit * 10u64.pow(decade)));
        let mut all: Vec<u64> = decades.take_while(|h| *h < self.max_local_steps).collect();
        all.push(self.max_local_steps);
        all
    }
}

/// The start of the runs.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchStart {
    /// `theta_0` (d); `None` for a start drawn per seed, which theory does not know.
    pub theta: Option<Vec<f64>>,
    /// The control variates.
    pub controls: InitialControls,
    /// The output.
    pub output: OutputRule,
}

impl SearchStart {
    /// Starts from zero with zero controls; the output is the last iterate.
    pub fn zero(d: usize) -> Self {
        Self { theta: Some(vec![0.0; d]), controls: InitialControls::Zero, output: OutputRule::Last }
    }
}

/// Makes the settings of a method from eta, H and alpha_g.
pub type Make = dyn Fn(f64, usize, f64) -> Result<Arc<dyn MethodSettings>> + Send + Sync;

/// A method with its link and free step size, local steps and server step.
#[derive(Clone)]
pub struct Family {
    /// Its name in messages: the method, and the codec if there are several.
    pub name: String,
    /// Makes its settings.
    pub make: Arc<Make>,
    /// Its link.
    pub link: Arc<Uplink>,
    /// Whether it has local steps; otherwise H is 1.
    pub has_local_steps: bool,
    /// Whether it has a server step; otherwise alpha_g is 1.
    pub has_server_step: bool,
}

impl Family {
    /// A method with local steps and a server step.
    pub fn new(
        name: &str,
        make: impl Fn(f64, usize, f64) -> Result<Arc<dyn MethodSettings>> + Send + Sync + 'static,
        link: &Arc<Uplink>,
    ) -> Self {
        Self { name: name.into(), make: Arc::new(make), link: Arc::clone(link), has_local_steps: true, has_server_step: true }
    }

    /// The method with these settings.
    ///
    /// # Errors
    /// When the method does not accept them.
    pub fn settings(&self, choice: &SearchChoice, agents: usize) -> Result<Arc<dyn MethodSettings>> {
        let settings = (self.make)(choice.step_size, choice.local_steps as usize, choice.server_step)?;
        settings.check(agents)?;
        Ok(settings)
    }

    /// The forecast for the method with these settings.
    ///
    /// # Errors
    /// When the method does not accept them.
    pub fn forecast(&self, field: &Arc<dyn Field>, choice: &SearchChoice, start: &SearchStart) -> Result<Forecast> {
        let settings = self.settings(choice, field.agents())?;
        Ok(Forecast::over(field, &*settings, &self.link).of_output(start.output))
    }
}

/// Settings of a family.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct SearchChoice {
    /// The index of the family.
    pub family: usize,
    /// eta.
    pub step_size: f64,
    /// H.
    pub local_steps: u64,
    /// alpha_g.
    pub server_step: f64,
}

/// A number with four significant digits, so that files can hold what was computed.
pub fn rounded(x: f64) -> f64 {
    format!("{x:.3e}").parse().unwrap_or(x)
}

#[cfg(test)]
mod tests {
    //! Compares courses with curves that are computed round by round, and searches with grids.

    use std::sync::Arc;

    use super::*;
    use fedsa::cancel::Cancel;
    use fedsa::error::ErrorKind;
    use fedsa::kernel::Isa;
    use fedsa::linalg;
    use fedsa::method::ControlRule;
    use fedsa::sampling::{Law, Sampling};
    use fedsa::uplink::codec::{CodecSettings as _, Quantised, Rounding};
    use fedsa::uplink::stage::erasure::Erasure;
    use fedsa_methods::fedhsa::FedHsa;
    use fedsa_methods::fedlsa::FedLsa;
    use fedsa_methods::scafflsa::Scafflsa;
    use fedsa_methods::scafflsa_random::ScafflsaRandom;
    use fedsa_problems::td::garnet::Garnet;
    use fedsa_problems::{NoFiles, ProblemSettings as _};

    fn field(seed: u64, agents: usize, features: usize, kind: Law) -> Arc<dyn Field> {
        let garnet = Garnet::default().with_agents(agents).with_states(6).with_features(features).with_gamma(0.8).with_seed(seed);
        garnet.field(&NoFiles, Sampling::default().with_kind(kind), Isa::best()).unwrap()
    }

    fn families(link: &Arc<Uplink>) -> Vec<Family> {
        vec![
            Family::new("fedlsa", |eta, h, alpha| Ok(Arc::new(FedLsa::new(eta, h).with_global_step_size(alpha))), link),
            Family::new("scafflsa", |eta, h, alpha| Ok(Arc::new(Scafflsa::new(eta, h).with_global_step_size(alpha))), link),
            Family::new("fedhsa", |eta, h, alpha| Ok(Arc::new(FedHsa::new(eta, h).with_global_step_size(alpha))), link),
        ]
    }

    fn clear() -> Arc<Uplink> {
        Arc::new(Uplink::default())
    }

    /// The first round after which the curve is at most the target, from all rounds of the curve; `None` if there is none up to `most`,
    /// or if the floor is above the target.
    fn by_all_rounds(forecast: &Forecast, start: &SearchStart, target: f64, most: u64) -> Option<u64> {
        let rounds: Vec<u64> = (0..=most).collect();
        let floor = forecast.floor().ok()?.mse();
        let curve = forecast.curve(start.theta.as_ref().unwrap(), &start.controls, &rounds).unwrap();
        (floor <= target).then(|| curve.iter().position(|point| point.mse() <= target)).flatten().map(|t| t as u64)
    }

    #[test]
    fn rounds_are_those_of_the_curve() {
        const MOST: u64 = 700;
        let (mut reached, mut floors, mut slow, mut diverging) = (0, 0, 0, 0);
        for (seed, agents, features) in [(1, 2, 2), (2, 4, 3), (3, 3, 4)] {
            let field = field(seed, agents, features, Law::Iid);
            let start = SearchStart::zero(field.dim());
            let at_start = linalg::norm_sq(field.root().unwrap());
            for family in families(&clear()) {
                for (step_size, local_steps, server_step) in [(0.4, 1, 1.0), (0.2, 8, 1.0), (0.05, 3, 1.7), (0.02, 20, 0.6), (30.0, 4, 1.0)]
                {
                    for share in [0.5, 0.03, 0.0005] {
                        let (target, choice) = (share * at_start, SearchChoice { family: 0, step_size, local_steps, server_step });
                        let forecast = family.forecast(&field, &choice, &start).unwrap();
                        let course = course(&forecast, &start, target, MOST).unwrap();
                        let wanted = by_all_rounds(&forecast, &start, target, MOST);
                        assert_eq!(course.outcome.ok().map(|hit| hit.rounds), wanted, "{} {choice:?}", family.name);
                        match course.outcome {
                            Ok(hit) => {
                                reached += 1;
                                let exact = forecast.curve(&vec![0.0; field.dim()], &start.controls, &[hit.rounds]).unwrap()[0].mse();
                                assert!((hit.mse - exact).abs() <= 1e-9 * exact, "{} {exact}", hit.mse);
                                assert!(hit.passes > hit.rounds as f64 - 1.0 && hit.passes <= hit.rounds as f64);
                            }
                            Err(Miss::Floor { floor }) => {
                                floors += 1;
                                let exact = forecast.floor().unwrap().mse();
                                assert!((floor - exact).abs() <= 1e-6 * exact, "{floor} {exact}");
                            }
                            Err(Miss::Slow { .. }) => slow += 1,
                            Err(Miss::Diverges) => {
                                diverging += 1;
                                assert!(forecast.outlook().is_unstable());
                            }
                        }
                    }
                }
            }
        }
        assert!(reached > 20 && floors > 5 && diverging > 5 && slow > 0, "{reached} {floors} {slow} {diverging}");
    }

    #[test]
    fn rounds_without_noise_are_those_of_runs() {
        let field = field(5, 3, 3, Law::Mean);
        let start = SearchStart::zero(field.dim());
        let root = field.root().unwrap().to_vec();
        for family in families(&clear()) {
            let choice = SearchChoice { family: 0, step_size: 0.3, local_steps: 4, server_step: 1.0 };
            let forecast = family.forecast(&field, &choice, &start).unwrap();
            let bias = forecast.bias_sq().unwrap();
            let target = (1e-6f64).max(1.5 * bias);
            let hit = course(&forecast, &start, target, 10_000).unwrap().outcome.unwrap();
            let settings = family.settings(&choice, field.agents()).unwrap();
            let federation =
                fedsa::federation::Federation::new(&*settings, &family.link, field.weights(), 0, vec![0.0; field.dim()]).unwrap();
            let mut run = fedsa::round::Run::new(&field, &federation).unwrap();
            let mut error = linalg::norm_sq(&root);
            while error > target {
                assert!(run.round() < 10_000);
                run.step();
                error = linalg::distance_sq(run.theta(), &root);
            }
            assert_eq!(run.round(), hit.rounds, "{}", family.name);
            assert!((error - hit.mse).abs() <= 1e-6 * error, "{}: {error} {}", family.name, hit.mse);
            // A target below the bias.
            if bias > 1e-12 {
                let outcome = course(&forecast, &start, 0.5 * bias, 10_000).unwrap().outcome;
                assert!(matches!(outcome, Err(Miss::Floor { floor }) if (floor - bias).abs() <= 1e-6 * bias), "{outcome:?}");
            }
        }
    }

    #[test]
    fn prices_are_those_of_the_ledger() {
        let field = field(6, 3, 3, Law::Iid);
        let start = SearchStart::zero(field.dim());
        let quantised = Uplink::default().with_codec(Quantised::new(4).with_rounding(Rounding::Stochastic).build());
        for link in [clear(), Arc::new(quantised)] {
            for family in families(&link) {
                let price = Price::of(&field, &family, &start).unwrap();
                let settings = family.settings(&SearchChoice { family: 0, step_size: 0.01, local_steps: 7, server_step: 1.0 }, 3).unwrap();
                let federation =
                    fedsa::federation::Federation::new(&*settings, &family.link, field.weights(), 1, vec![0.0; field.dim()]).unwrap();
                let mut run = fedsa::round::Run::new(&field, &federation).unwrap();
                (0..20).for_each(|_| run.step());
                let (cost, ledger) = (price.cost(20, 7), run.ledger());
                let counted = SearchCost {
                    rounds: 20,
                    bits: (ledger.bits_up + ledger.bits_down) as f64,
                    samples: ledger.samples as f64,
                    seconds: None,
                };
                let network = Network { latency: 2.0, bandwidth: Some(1e3) };
                let seconds = price.on(Some(network)).cost(20, 7).seconds.unwrap();
                assert!((seconds - 2.0 * ledger.exchanges as f64 - counted.bits / 1e3).abs() < 1e-9 * seconds, "{}", family.name);
                assert_eq!(cost, counted, "{}", family.name);
                for goal in [Goal::Rounds, Goal::Bits, Goal::Samples] {
                    assert_eq!(price.affordable(cost.of(goal), goal, 7, 1000), 20, "{} {goal:?}", family.name);
                    assert_eq!(price.affordable(0.999 * cost.of(goal), goal, 7, 1000), 19, "{} {goal:?}", family.name);
                    assert_eq!(price.affordable(f64::INFINITY, goal, 7, 1000), 1000);
                }
            }
        }
    }

    #[test]
    fn random_talks_cost_their_mean() {
        let field = field(6, 3, 3, Law::Iid);
        let talk = |step_size, h: usize, global_step_size| -> Result<Arc<dyn MethodSettings>> {
            let talk_probability = 1.0 / h as f64;
            let rule = ControlRule::default();
            Ok(Arc::new(ScafflsaRandom::new(step_size, talk_probability).with_global_step_size(global_step_size).with_rule(rule)))
        };
        let price = Price::of(&field, &Family::new("talk", talk, &clear()), &SearchStart::zero(3)).unwrap();
        // In the mean, a round has 1/p local steps of every agent.
        let (cost, once) = (price.cost(50, 4).samples, price.cost(50, 1).samples);
        assert!((once - 150.0).abs() < 1e-9 && (cost - 600.0).abs() < 1e-9, "{once} {cost}");
    }

    /// The least cost on a grid, from all rounds of each point's curve.
    fn least_of_grid(field: &Arc<dyn Field>, families: &[Family], start: &SearchStart, target: &SearchTarget, most: u64) -> f64 {
        let mut least = f64::INFINITY;
        for family in families {
            let Ok(price) = Price::of(field, family, start) else { continue };
            for local_steps in [1, 2, 4, 8, 16, 32].into_iter().filter(|h| *h <= target.max_local_steps) {
                for k in 0..9 {
                    for server_step in [1.0, 1.5] {
                        let choice = SearchChoice { family: 0, step_size: 1.2 / 1.6f64.powi(k), local_steps, server_step };
                        let forecast = family.forecast(field, &choice, start).unwrap();
                        let reached = forecast.knows_curve().ok().and_then(|()| by_all_rounds(&forecast, start, target.mse, most));
                        least = least.min(reached.map_or(f64::INFINITY, |t| price.cost(t, local_steps).of(target.goal)));
                    }
                }
            }
        }
        least
    }

    #[test]
    fn searches_are_as_good_as_grids() {
        let mut erasure = Uplink::default();
        erasure.push(Arc::new(Erasure::new(0.7))).unwrap();
        let erasure = Arc::new(erasure);
        for (seed, agents, features, share, goal, link) in [
            (11, 2, 2, 0.02, Goal::Rounds, clear()),
            (12, 3, 2, 0.05, Goal::Bits, clear()),
            (13, 2, 3, 0.05, Goal::Samples, clear()),
            (14, 3, 2, 0.05, Goal::Bits, erasure),
        ] {
            let field = field(seed, agents, features, Law::Iid);
            let start = SearchStart::zero(field.dim());
            let target =
                SearchTarget { mse: share * linalg::norm_sq(field.root().unwrap()), goal, max_local_steps: 32, ..SearchTarget::default() };
            let families = families(&link);
            let found = search(&field, &families, &start, &target, &Effort::default()).unwrap();
            let best = found.best().unwrap();
            let cost = best.cost.unwrap().of(goal);
            let grid = least_of_grid(&field, &families, &start, &target, 200);
            assert!(cost <= 1.05 * grid, "{goal:?}: {cost} of {best:?}, over {grid}");
            // Its claims hold for all rounds of the curve.
            let forecast = families[best.choice.family].forecast(&field, &best.choice, &start).unwrap();
            let rounds = best.reached().unwrap().rounds;
            assert_eq!(by_all_rounds(&forecast, &start, target.mse, rounds + 5), Some(rounds));
            assert_eq!(best.cost.unwrap(), found.prices[best.choice.family].as_ref().unwrap().cost(rounds, best.choice.local_steps));
            // The same again.
            let again = search(&field, &families, &start, &target, &Effort::default()).unwrap();
            assert_eq!((again.best, again.tried), (found.best, found.tried));
        }
    }

    #[test]
    fn what_cannot_be_reached_names_its_floor() {
        let field = field(21, 3, 3, Law::Iid);
        let start = SearchStart::zero(field.dim());
        let families: Vec<Family> = families(&clear()).into_iter().take(1).collect();
        let target = SearchTarget { mse: 1e-7, max_rounds: 40, local_steps: Some(vec![50]), ..SearchTarget::default() };
        let found = search(&field, &families, &start, &target, &Effort::default()).unwrap();
        assert!(found.best().is_none() && !found.is_cut);
        // Small enough steps have a floor below every target, but need more rounds: two numbers.
        let (tried, rounds, lowest) = found.too_slow().unwrap();
        assert!(rounds == 40 && lowest > target.mse && lowest < linalg::norm_sq(field.root().unwrap()));
        let forecast = families[0].forecast(&field, &tried.choice, &start).unwrap();
        let after = forecast.curve(&vec![0.0; field.dim()], &start.controls, &[40]).unwrap()[0].mse();
        assert!((lowest - after).abs() <= 1e-9 * after && forecast.floor().unwrap().mse() <= target.mse);
        let (tried, floor) = found.lowest_floor().unwrap();
        let forecast = families[0].forecast(&field, &tried.choice, &start).unwrap();
        assert!(floor > target.mse && (forecast.floor().unwrap().mse() - floor).abs() <= 1e-6 * floor);
        // A bias that no number of rounds removes.
        let coarse = SearchTarget { max_rounds: 1_000_000_000, ..target };
        let noiseless = super::tests::field(21, 3, 3, Law::Mean);
        let wide = Family { make: Arc::new(|_, h, _| Ok(Arc::new(FedLsa::new(0.5, h)))), ..self::families(&clear()).remove(0) };
        let found = search(&noiseless, &[wide], &start, &coarse, &Effort::default()).unwrap();
        assert!(found.best().is_none() && found.too_slow().is_none());
        let bias = Forecast::over(&noiseless, &FedLsa::new(0.5, 50), &Uplink::default()).bias_sq().unwrap();
        assert!((found.lowest_floor().unwrap().1 - bias).abs() <= 1e-6 * bias);
    }

    #[test]
    fn searches_end_with_their_work() {
        let field = field(24, 3, 3, Law::Iid);
        let (start, families) = (SearchStart::zero(field.dim()), families(&clear()));
        let target = SearchTarget { mse: 0.03 * linalg::norm_sq(field.root().unwrap()), max_local_steps: 20, ..SearchTarget::default() };
        let within = |most_work: f64| {
            let effort = Effort { most_work, ..Effort::default() };
            search(&field, &families, &start, &target, &effort).unwrap()
        };
        let whole = within(f64::INFINITY);
        assert!(!whole.is_cut && whole.work > 0.0);
        let enough = within(8.0 * whole.work);
        assert_eq!((&enough.tried, enough.best, enough.is_cut), (&whole.tried, whole.best, false));
        let half = within(0.5 * whole.work);
        assert!(half.is_cut);
        assert!(half.work <= 0.5 * whole.work && !half.tried.is_empty(), "{} {}", half.work, whole.work);
        assert!(half.tried.len() < whole.tried.len());
        // The same on one thread.
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        let alone = pool.install(|| within(0.5 * whole.work));
        assert_eq!((alone.tried, alone.best, alone.work), (half.tried, half.best, half.work));
        let effort = Effort { cancel: Cancel::new(), ..Effort::default() };
        effort.cancel.cancel();
        let cancelled = search(&field, &families, &start, &target, &effort).unwrap_err();
        assert_eq!(cancelled.kind(), ErrorKind::Cancelled);
    }

    #[test]
    fn unknown_families_say_why() {
        let field = field(22, 3, 3, Law::Iid);
        let start = SearchStart::zero(field.dim());
        let quantised = Uplink::default().with_codec(Quantised::new(4).with_rounding(Rounding::Stochastic).build());
        let mut families = families(&clear());
        families.push(Family::new("coarse", |eta, h, _| Ok(Arc::new(FedLsa::new(eta, h))), &Arc::new(quantised)));
        let target = SearchTarget { mse: 0.1 * linalg::norm_sq(field.root().unwrap()), max_local_steps: 10, ..SearchTarget::default() };
        let found = search(&field, &families, &start, &target, &Effort::default()).unwrap();
        assert!(found.best().is_some());
        let known: Vec<bool> = found.unknown.iter().map(Option::is_none).collect();
        assert_eq!(known, [true, true, true, false]);
        assert!(found.unknown[3].as_ref().unwrap().what.contains("codec"), "{:?}", found.unknown[3]);
    }

    #[test]
    fn bad_targets_are_refused() {
        let field = field(23, 2, 2, Law::Iid);
        let start = SearchStart::zero(field.dim());
        let norm = linalg::norm_sq(field.root().unwrap());
        let refused = |target: SearchTarget, key: &str, says: &str| {
            let e = target.check(&*field, &start).unwrap_err();
            assert!(e.key == key && e.what.contains(says), "{e}");
        };
        let good = SearchTarget { mse: 0.1 * norm, ..SearchTarget::default() };
        good.check(&*field, &start).unwrap();
        refused(SearchTarget { mse: 0.0, ..good.clone() }, "target", "0");
        refused(SearchTarget { mse: f64::NAN, ..good.clone() }, "target", "NaN");
        refused(SearchTarget { mse: 1e-29 * norm, ..good.clone() }, "target", "rounding");
        refused(SearchTarget { mse: 2.0 * norm, ..good.clone() }, "target", "start");
        refused(SearchTarget { max_rounds: 0, ..good.clone() }, "max_rounds", "0");
        refused(SearchTarget { local_steps: Some(vec![3, 0]), ..good.clone() }, "local_steps", "0");
        let noiseless = super::tests::field(23, 2, 2, Law::Mean);
        refused(SearchTarget { goal: Goal::Seconds, ..good.clone() }, "objective", "seconds");
        let network = Some(Network { latency: 3.0, bandwidth: None });
        SearchTarget { goal: Goal::Seconds, network, ..good.clone() }.check(&*field, &start).unwrap();
        let e = SearchTarget { goal: Goal::Samples, ..good }.check(&*noiseless, &start).unwrap_err();
        assert_eq!(e.key, "objective");
    }

    #[test]
    fn coarse_local_steps_are_in_order() {
        let of =
            |max_local_steps, local_steps| SearchTarget { max_local_steps, local_steps, ..SearchTarget::default() }.coarse_local_steps();
        assert_eq!(of(30, None), [1, 2, 5, 10, 20, 30]);
        assert_eq!(of(1, None), [1]);
        assert_eq!(of(5, Some(vec![7, 3, 7])), [3, 7]);
    }

    /// Processor time of the release profile on one idle core with AVX-512, in microseconds per agent: local steps 1, 30 and 1000.
    #[test]
    fn phases_are_estimated_as_they_were_measured() {
        let measured = [
            (2, [[5.1, 13.2, 21.1], [5.6, 16.8, 27.9], [12.1, 31.8, 50.7]]),
            (4, [[6.8, 20.6, 34.0], [8.8, 50.3, 94.3], [27.7, 79.3, 142.0]]),
            (8, [[29.2, 119.0, 223.0], [39.0, 573.0, 1090.0], [180.0, 763.0, 1480.0]]),
            (12, [[162.0, 723.0, 1320.0], [209.0, 4060.0, 7830.0], [887.0, 4870.0, 9770.0]]),
            (20, [[1350.0, 10_600.0, 19_700.0], [1430.0, 69_300.0, 138_000.0], [11_700.0, 78_600.0, 166_000.0]]),
        ];
        let families = families(&clear());
        for (d, of) in measured {
            let garnet = Garnet::default().with_agents(3).with_states(2 * d).with_features(d).with_gamma(0.8);
            let field = garnet.field(&NoFiles, Sampling::default(), Isa::best()).unwrap();
            for (family, times) in of.into_iter().enumerate() {
                for (local_steps, time) in [1, 30, 1000].into_iter().zip(times) {
                    let choice = SearchChoice { family: 0, step_size: 0.1, local_steps, server_step: 1.0 };
                    let forecast = families[family].forecast(&field, &choice, &SearchStart::zero(d)).unwrap();
                    let ratio = forecast.curve_work(0).unwrap() / (3e3 * time);
                    let name = &families[family].name;
                    assert!((0.5..2.0).contains(&ratio), "{name} with d = {d} and {local_steps} local steps: {ratio}");
                }
            }
        }
    }
}
