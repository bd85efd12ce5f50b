//! The cheapest settings that reach a target, by the exact mean-square error under i.i.d. samples over a clear link.
//!
//! The corollaries of [`bounds`](super::bounds) give such settings too, with more rounds than needed: on random problems the settings of
//! Corollary 4.5 of \[S\] (FedLSA) reach their targets in 1/3.6 of its rounds in the median, and the best settings with as many samples
//! and local steps in 1/14; for Corollary 5.4 (SCAFFLSA) it is 1/20 and 1/1400.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::error::{BadInput, Result, in_order, require};
use crate::linalg;
use crate::problem::systems::{Moments, Systems};
use crate::theory::RoundSetting;
use crate::theory::exact_mse::{FedHsaMse, FedLsaMse, InitialControls, MeanSquare, ScafflsaMse};
use crate::theory::predict::EXACT_DIM;

/// The methods with an exact mean-square error under i.i.d. samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// FedLSA.
    Fedlsa,
    /// SCAFFLSA with a fixed period, with controls of 0 at the start.
    Scafflsa,
    /// FedHSA.
    Fedhsa,
}

/// What a run costs: `round T + sample T H`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Price {
    /// The price of a round, such as the bits of its messages.
    pub round: f64,
    /// The price of a local step of all agents.
    pub sample: f64,
}

impl Price {
    /// One for each round.
    pub const ROUNDS: Self = Self { round: 1.0, sample: 0.0 };
    /// One for each local step.
    pub const SAMPLES: Self = Self { round: 0.0, sample: 1.0 };

    /// The cost of T rounds of H steps.
    pub fn of(&self, rounds: u64, local_steps: u64) -> f64 {
        rounds as f64 * (self.round + self.sample * local_steps as f64)
    }
}

/// What is searched for.
#[derive(Debug, Clone, PartialEq)]
pub struct Search {
    /// eps^2, the mean-square error to reach.
    pub target: f64,
    /// What to minimise.
    pub price: Price,
    /// The most rounds.
    pub most_rounds: u64,
    /// The most local steps of a round.
    pub most_local_steps: u64,
    /// The most local steps of an agent in the whole run.
    pub most_samples: f64,
    /// The server's step alpha_g.
    pub server_step: f64,
}

impl Search {
    /// A search without limits but 10^9 rounds and 1000 local steps, with the server's step 1.
    pub fn new(target: f64, price: Price) -> Self {
        Self { target, price, most_rounds: 1_000_000_000, most_local_steps: 1000, most_samples: f64::INFINITY, server_step: 1.0 }
    }

    fn check(&self) -> Result<()> {
        require(self.target > 0.0 && self.target.is_finite(), "target", self.target, "a positive mean-square error")?;
        let Price { round, sample } = self.price;
        let is_price = round >= 0.0 && sample >= 0.0 && round + sample > 0.0 && (round + sample).is_finite();
        require(is_price, "price", format!("{round} a round, {sample} a sample"), "prices of at least 0 that are not both 0")?;
        require(self.most_local_steps >= 1, "most_local_steps", self.most_local_steps, "at least 1")?;
        require(self.most_rounds >= 1, "most_rounds", self.most_rounds, "at least 1")
    }
}

/// Settings that reach the target.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Chosen {
    /// eta, H and alpha_g.
    pub setting: RoundSetting,
    /// T. The exact mean-square error is at most the target after T rounds and above it after T - 1.
    pub rounds: u64,
    /// What T rounds cost.
    pub cost: f64,
    /// The exact mean-square error after T rounds.
    pub mse: f64,
    /// The exact floor of these settings.
    pub floor: f64,
}

/// Steps of the grid of eta in a factor of 10, and how often the interval around the best one is narrowed to 0.6 of it.
const PER_DECADE: i32 = 8;
const NARROWINGS: u32 = 12;
/// How many grid steps in a row may be dearer before a scan ends, how many too slow before the first that reaches the target, and the
/// longest scan.
const WORSE: u32 = 4;
const SLOW: u32 = 16;
const LONGEST: i32 = 14 * PER_DECADE;
/// Up to this number of rounds steps are looked at densely, this many on each side of the best.
const FEW_ROUNDS: u64 = 20;
const DENSE: i32 = 66;
const DENSE_RATIO: f64 = 1.03;
/// The largest state of SCAFFLSA's second moments.
const LARGEST_STATE: usize = 1000;

/// The cheapest (eta, H, T) with which a method reaches the target from `theta_0` (d): H on a grid of ratios of about 1.3 and then
/// nearby, eta on a logarithmic grid from the largest that may be stable downwards and then between its points, and T exact.
/// `moments[k]` are those of single samples of `systems.kinds[k]`, of which `batch` are averaged in a step.
///
/// The result does not depend on the number of threads. It is the best of all settings that were looked at; the cost as a function of eta
/// may have several minima, as unstable windows of SCAFFLSA make.
///
/// # Errors
/// When a setting is out of range, the mean system has no unique root, d or the number of distinct agents is too large, or no
/// settings within the limits reach the target; names the limit.
pub fn cheapest(method: Method, systems: &Systems, moments: &[Moments], batch: u64, theta_0: &[f64], search: &Search) -> Result<Chosen> {
    search.check()?;
    let d = systems.dim();
    require(theta_0.len() == d, "theta_0", theta_0.len(), &format!("{d} numbers"))?;
    require(d <= EXACT_DIM, "", format!("d = {d}"), &format!("at most {EXACT_DIM} features"))?;
    let problem = Problem { method, systems, moments, batch, theta_0, search, largest: largest_step(systems) };
    problem.fits()?;
    let mut best: Option<Chosen> = None;
    let coarse = in_order(grid(search.most_local_steps).into_par_iter().map(|h| problem.along(h)))?;
    coarse.into_iter().flatten().for_each(|found| keep(&mut best, found));
    let Some(found) = best else { return Err(problem.unreachable()) };
    let h = found.setting.local_steps as f64;
    let mut near: Vec<u64> = [0.8, 0.87, 0.93, 1.07, 1.15, 1.25].map(|f| (f * h).round().max(1.0) as u64).to_vec();
    near.retain(|n| *n != found.setting.local_steps && *n <= search.most_local_steps);
    near.dedup();
    let fine = in_order(near.into_par_iter().map(|h| problem.along(h)))?;
    fine.into_iter().flatten().for_each(|found| keep(&mut best, found));
    best.ok_or_else(|| problem.unreachable())
}

/// Keeps the cheaper one, of equally cheap ones that with the smaller error, and of equals the earlier one.
fn keep(best: &mut Option<Chosen>, found: Chosen) {
    if best.as_ref().is_none_or(|best| (found.cost, found.mse) < (best.cost, best.mse)) {
        *best = Some(found);
    }
}

/// 1, 2, 3, 4, 5, 7, 9, .. up to `most`, which is the last.
fn grid(most: u64) -> Vec<u64> {
    let mut all = vec![1u64];
    while let Some(last) = all.last().copied().filter(|last| *last < most) {
        all.push((last + 1).max((1.3 * last as f64).round() as u64).min(most));
    }
    all
}

/// A step that is stable for no method with H = 1 or more: `4 / ||Abar||` is above `2 / rho` for the mean system, and twice as much
/// leaves room for agents whose matrices cancel.
fn largest_step(systems: &Systems) -> f64 {
    8.0 / linalg::norm2(&systems.mean().a).max(f64::MIN_POSITIVE)
}

/// The exact mean-square error of a method.
trait Exact {
    fn floor(&self) -> Result<MeanSquare>;
    fn rounds_to(&self, theta_0: &[f64], target: f64, most: u64) -> Option<u64>;
    fn curve(&self, theta_0: &[f64], rounds: &[u64]) -> Result<Vec<MeanSquare>>;
}

macro_rules! exact {
    ($($theory:ident),*) => {$(
        impl Exact for $theory {
            fn floor(&self) -> Result<MeanSquare> {
                $theory::floor(self)
            }
            fn rounds_to(&self, theta_0: &[f64], target: f64, most: u64) -> Option<u64> {
                $theory::rounds_to(self, theta_0, target, most)
            }
            fn curve(&self, theta_0: &[f64], rounds: &[u64]) -> Result<Vec<MeanSquare>> {
                $theory::curve(self, theta_0, rounds)
            }
        }
    )*};
}

exact!(FedLsaMse, ScafflsaMse, FedHsaMse);

/// What a search looks at.
struct Problem<'a> {
    method: Method,
    systems: &'a Systems,
    moments: &'a [Moments],
    batch: u64,
    theta_0: &'a [f64],
    search: &'a Search,
    largest: f64,
}

/// One point of the search.
enum Point {
    /// The target is reached.
    Reached(Chosen),
    /// The floor is above the target, or does not exist.
    TooHigh,
    /// The floor is low enough, but the limits of the search come first.
    TooSlow,
}

impl Problem<'_> {
    fn fits(&self) -> Result<()> {
        if self.method != Method::Scafflsa {
            return Ok(());
        }
        let (d, kinds) = (self.systems.dim(), self.systems.kinds.len());
        let state = (d * (kinds + 1) + 1).pow(2) + kinds * d * d;
        let help = format!("second moments of at most {LARGEST_STATE} numbers: fewer distinct agents or features");
        require(state <= LARGEST_STATE, "", format!("{kinds} distinct agents with d = {d}"), &help)
    }

    /// The exact error of one setting.
    fn at(&self, eta: f64, h: u64) -> Result<Point> {
        let setting = RoundSetting::new(eta, h)?.with_server_step(self.search.server_step)?;
        let by_samples = (self.search.most_samples / h as f64).floor().min(u64::MAX as f64) as u64;
        let most = self.search.most_rounds.min(by_samples);
        let (systems, moments, batch, start) = (self.systems, self.moments, self.batch, self.theta_0);
        let target = self.search.target;
        let theory: Box<dyn Exact> = match self.method {
            Method::Fedlsa => Box::new(FedLsaMse::new(systems, moments, &setting, batch)?),
            Method::Scafflsa => Box::new(ScafflsaMse::new(systems, moments, &setting, batch, &InitialControls::Zero)?),
            Method::Fedhsa => Box::new(FedHsaMse::new(systems, moments, &setting, batch)?),
        };
        // A floor does not exist where the mean-square error diverges.
        let Some(floor) = theory.floor().ok().map(|floor| floor.mse()).filter(|floor| *floor < target) else {
            return Ok(Point::TooHigh);
        };
        let Some(rounds) = theory.rounds_to(start, target, most) else { return Ok(Point::TooSlow) };
        let mse = theory.curve(start, &[rounds])?[0].mse();
        Ok(Point::Reached(Chosen { setting, rounds, cost: self.search.price.of(rounds, h), mse, floor }))
    }

    /// The best step size for H local steps: a scan from large steps to small ones, then a narrowing interval around the best.
    fn along(&self, h: u64) -> Result<Option<Chosen>> {
        let ratio = 10f64.powf(1.0 / f64::from(PER_DECADE));
        let mut best: Option<Chosen> = None;
        let mut worse = 0;
        for k in 0..LONGEST {
            match self.at(self.largest * ratio.powi(-k), h)? {
                Point::Reached(found) => {
                    let is_better = best.as_ref().is_none_or(|best| found.cost < best.cost);
                    worse = if is_better { 0 } else { worse + 1 };
                    keep(&mut best, found);
                }
                // Near the edge of stability, or where steps are too small.
                Point::TooSlow => worse += 1,
                Point::TooHigh => {}
            }
            if worse >= if best.is_some() { WORSE } else { SLOW } {
                break;
            }
        }
        // Few rounds are enough in narrow windows of steps.
        if let Some(found) = best.filter(|best| best.rounds <= FEW_ROUNDS) {
            for k in -DENSE..=DENSE {
                if let Point::Reached(other) = self.at(found.setting.step_size * DENSE_RATIO.powi(k), h)? {
                    keep(&mut best, other);
                }
            }
        }
        let mut width = ratio.ln();
        for _ in 0..NARROWINGS {
            let Some(middle) = best.map(|best| best.setting.step_size) else { break };
            for side in [-1.0, 1.0] {
                if let Point::Reached(found) = self.at(middle * (side * 0.6 * width).exp(), h)? {
                    keep(&mut best, found);
                }
            }
            width *= 0.6;
        }
        Ok(best)
    }

    /// Why nothing was found.
    fn unreachable(&self) -> BadInput {
        let Search { target, most_rounds, most_samples, most_local_steps, .. } = self.search;
        let samples = if most_samples.is_finite() { format!(", {most_samples} samples an agent") } else { String::new() };
        BadInput::new(
            "target",
            format!(
                "no step size reaches a mean-square error of {target:.4e} within {most_rounds} rounds of at most {most_local_steps} \
                 local steps{samples}"
            ),
            "a larger target, more rounds or samples, or a larger batch",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::theory::bounds::testing::{Case, cases};
    use crate::theory::bounds::{fedlsa, scafflsa};

    const METHODS: [Method; 3] = [Method::Fedlsa, Method::Scafflsa, Method::Fedhsa];

    /// The first problems whose second moments under SCAFFLSA are few.
    fn small(count: usize) -> Vec<Case> {
        let few = |case: &Case| case.systems.dim() * (case.systems.kinds.len() + 1) <= 4;
        cases(2 * count as u64).into_iter().filter(few).take(count).collect()
    }

    fn target(case: &Case) -> f64 {
        let start = linalg::distance_sq(&case.start, &case.systems.root().unwrap());
        start * 10f64.powf(-0.5 - 2.0 * case.share[3])
    }

    fn problem<'a>(method: Method, case: &'a Case, search: &'a Search) -> Problem<'a> {
        let largest = largest_step(&case.systems);
        Problem { method, systems: &case.systems, moments: &case.moments, batch: 1, theta_0: &case.start, search, largest }
    }

    #[test]
    fn grids_end_at_their_limit() {
        assert_eq!(grid(1), [1]);
        assert_eq!(grid(10), [1, 2, 3, 4, 5, 7, 9, 10]);
        assert_eq!(Price { round: 3.0, sample: 0.5 }.of(4, 10), 32.0);
    }

    #[test]
    fn the_choice_is_within_a_few_percent_of_a_full_grid() {
        compare_with_a_full_grid(3, 3);
    }

    #[test]
    #[ignore = "minutes"]
    fn every_choice_is_within_a_few_percent_of_a_full_grid() {
        compare_with_a_full_grid(18, 12);
    }

    fn compare_with_a_full_grid(count: usize, most_local_steps: u64) {
        let mut worst = 0.0f64;
        for (i, case) in small(count).iter().enumerate() {
            let method = METHODS[i % 3];
            // A round as dear as 0, 5 or infinitely many samples.
            let price = [Price::SAMPLES, Price { round: 5.0, sample: 1.0 }, Price::ROUNDS][i / 3 % 3];
            let search = Search { most_local_steps, ..Search::new(target(case), price) };
            let found = cheapest(method, &case.systems, &case.moments, 1, &case.start, &search).unwrap();
            assert!(
                found.mse <= search.target
                    && found.floor < search.target
                    && found.cost == price.of(found.rounds, found.setting.local_steps)
            );
            let problem = problem(method, case, &search);
            let mut best = f64::INFINITY;
            for h in 1..=most_local_steps {
                for k in 0..160 {
                    if let Point::Reached(other) = problem.at(problem.largest * 10f64.powf(-0.03 * f64::from(k)), h).unwrap() {
                        best = best.min(other.cost);
                    }
                }
            }
            worst = worst.max(found.cost / best);
            assert!(found.cost <= 1.05 * best, "case {i}: {found:?}, {best}");
        }
        println!("cost over the best of a full grid, at most: {worst}");
    }

    #[test]
    fn the_exact_theory_needs_fewer_rounds_than_the_corollaries() {
        compare_with_corollaries(3);
    }

    #[test]
    #[ignore = "minutes"]
    fn the_exact_theory_needs_this_many_times_fewer_rounds_than_the_corollaries() {
        let documented = [3.625, 14.0, 19.7, 1448.0];
        for (median, documented) in compare_with_corollaries(40).into_iter().zip(documented) {
            assert!((median / documented - 1.0).abs() < 0.05, "{median}, documented {documented}");
        }
    }

    /// The medians of the corollaries' rounds over those of the exact theory: Corollary 4.5 with the same settings and the best, and
    /// Corollary 5.4.
    fn compare_with_corollaries(count: usize) -> [f64; 4] {
        let mut ratios = [const { Vec::new() }; 4];
        for case in &small(count) {
            let (target, start) = (target(case), linalg::distance_sq(&case.start, &case.systems.root().unwrap()).sqrt());
            let plain = fedlsa::FedLsaConstants::new(&case.systems, &case.moments).unwrap();
            let plain = fedlsa::corollary_4_5(&plain, start, target).unwrap();
            let controlled = scafflsa::ScafflsaConstants::new(&case.systems, &case.moments).unwrap();
            let controlled = scafflsa::corollary_5_4(&controlled, start, target).unwrap();
            for (k, (method, choice)) in [(Method::Fedlsa, plain), (Method::Scafflsa, controlled)].into_iter().enumerate() {
                if choice.rounds() == 0 {
                    continue;
                }
                // The same settings, and the best with as many samples and local steps.
                let setting = choice.round_setting().unwrap();
                let search = Search {
                    most_samples: choice.samples,
                    most_rounds: choice.rounds(),
                    most_local_steps: setting.local_steps,
                    ..Search::new(target, Price::ROUNDS)
                };
                let Point::Reached(same) = problem(method, case, &search).at(setting.step_size, setting.local_steps).unwrap() else {
                    panic!("{choice:?}");
                };
                ratios[2 * k].push(choice.rounds / same.rounds.max(1) as f64);
                if setting.local_steps <= 60 {
                    let best = cheapest(method, &case.systems, &case.moments, 1, &case.start, &search).unwrap();
                    assert!(best.rounds <= same.rounds, "{best:?} {same:?}");
                    ratios[2 * k + 1].push(choice.rounds / best.rounds.max(1) as f64);
                }
            }
        }
        let mut medians = [0.0; 4];
        for ((name, ratios), median) in
            ["4.5, same settings", "4.5, best", "5.4, same settings", "5.4, best"].iter().zip(&mut ratios).zip(&mut medians)
        {
            ratios.sort_by(f64::total_cmp);
            let n = ratios.len();
            *median = ratios[n / 2];
            println!("rounds of Corollary {name}: {} to {}, median {median} of {n}", ratios[0], ratios[n - 1]);
        }
        medians
    }

    #[test]
    fn what_cannot_be_reached_is_refused() {
        let case = &cases(2)[1];
        let at = |search: &Search| cheapest(Method::Fedlsa, &case.systems, &case.moments, 1, &case.start, search).unwrap_err();
        assert_eq!(at(&Search::new(0.0, Price::ROUNDS)).key, "target");
        assert_eq!(at(&Search::new(0.1, Price { round: 0.0, sample: 0.0 })).key, "price");
        let few = Search { most_rounds: 3, most_local_steps: 2, ..Search::new(1e-9, Price::ROUNDS) };
        assert!(at(&few).what.contains("within 3 rounds"), "{}", at(&few).what);
        let short = cheapest(Method::Fedlsa, &case.systems, &case.moments, 1, &[], &Search::new(0.1, Price::ROUNDS));
        assert_eq!(short.unwrap_err().key, "theta_0");
    }
}
