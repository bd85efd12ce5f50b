//! The search for the choice of least cost.
//!
//! The search has three steps. Each computes the course of a choice only for as many rounds as the best cost so far allows:
//!
//! 1. *Coarse*: for each family, H and alpha_g, step sizes `top / 2^k`, from the largest down until smaller ones take more rounds.
//! 2. *Fine*: step sizes between the neighbours of the best one, by the golden section, if the coarse cost is near the best.
//! 3. *Local*: H and alpha_g of the best choices change by shrinking factors, each time with the best step size nearby.
//!
//! The result is a function of the input: ties are resolved by the order of the search.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use super::course::Meter;
use super::line::{Line, Search, Tried, largest_step};
use super::{Family, Hit, Miss, Price, SearchChoice, SearchCost, SearchStart, SearchTarget, rounded};
use crate::cost::Goal;
use fedsa::cancel::Cancel;
use fedsa::error::{Error, Result};
use fedsa::method::Setting;
use fedsa::parallel;
use fedsa::problem::Field;

/// The result of a search.
#[derive(Debug, Clone)]
pub struct SearchResult {
    /// All choices that were computed, in order.
    pub tried: Vec<Tried>,
    /// The index of the best, if one reaches the target.
    pub best: Option<usize>,
    /// For each family, the reason why its errors are not known, for at least some local steps or server steps.
    pub unknown: Vec<Option<Error>>,
    /// For each family, the cost of its rounds, or the reason why it cannot work.
    pub prices: Vec<Result<Price>>,
    /// The multiplications used, about one per nanosecond.
    pub work: f64,
    /// Whether the work or the time was used up before the search was complete.
    pub is_cut: bool,
    /// Whether the time was used up.
    pub is_late: bool,
}

impl SearchResult {
    /// The best choice.
    pub fn best(&self) -> Option<&Tried> {
        self.best.map(|best| &self.tried[best])
    }

    /// The choice with the smallest error among those that need more rounds than allowed and have a floor of at most the target; with
    /// the number of rounds computed and this error.
    pub fn too_slow(&self) -> Option<(&Tried, u64, f64)> {
        let slow = self.tried.iter().filter_map(|tried| match tried.course.outcome {
            Err(Miss::Slow { rounds, mse }) => Some((tried, rounds, mse)),
            _ => None,
        });
        slow.min_by(|a, b| a.2.total_cmp(&b.2))
    }

    /// The choice with the lowest floor above the target, and this floor.
    pub fn lowest_floor(&self) -> Option<(&Tried, f64)> {
        let floors = self.tried.iter().filter_map(|tried| match tried.course.outcome {
            Err(Miss::Floor { floor }) => Some((tried, floor)),
            _ => None,
        });
        floors.min_by(|a, b| a.1.total_cmp(&b.1))
    }
}

/// The limits of a search.
#[derive(Debug, Clone)]
pub struct Effort {
    /// The most multiplications, about one per nanosecond.
    pub most_work: f64,
    /// Cancels the search, which then returns an error.
    pub cancel: Cancel,
    /// The time at which the search ends with its results so far; none by default. The result then depends on the machine.
    pub deadline: Option<Instant>,
}

impl Default for Effort {
    /// No limits.
    fn default() -> Self {
        Self { most_work: f64::INFINITY, cancel: Cancel::never(), deadline: None }
    }
}

/// Lines whose coarse cost is at most this many times the best get a fine search.
const NEAR: f64 = 1.5;
/// With the largest factor, every family is searched for better H and alpha_g, because its server step has not changed before. With the
/// second factor, only families whose best cost is at most this many times the overall best; with the others, those within [`NEAR`].
const WIDE: f64 = 4.0;
/// The factors by which H and alpha_g change.
const FACTORS: [f64; 4] = [1.6, 1.3, 1.15, 1.07];

/// The server steps of the coarse search: 1, and the step that compensates for the mean loss of messages on the link.
pub fn server_steps(field: &dyn Field, family: &Family) -> Vec<f64> {
    let mut steps = vec![1.0];
    // The messages of a method do not depend on its step size.
    let choice = SearchChoice { family: 0, step_size: largest_step(field), local_steps: 1, server_step: 1.0 };
    let Ok(settings) = family.settings(&choice, field.agents()) else { return steps };
    let (weights, start, link) = (field.weights(), vec![0.0; field.dim()], family.link.facts());
    let encodes = settings.protocol(&Setting { seed: 0, weights, start, link, is_accelerated: false }).encodes();
    let share = family.link.share_arriving(field.dim(), encodes);
    if family.has_server_step && share > 0.0 && share < 0.9 {
        steps.push(rounded(1.0 / share));
    }
    steps
}

/// Whether one choice is better than another: by cost, then samples, then bits, then the time at which its error passes the target.
pub fn cheaper(target: &SearchTarget, a: (&SearchCost, &Hit), b: (&SearchCost, &Hit)) -> bool {
    a.0.compare(b.0, target.goal).then(a.1.passes.total_cmp(&b.1.passes)).is_lt()
}

/// All computed choices, the best of them, and the remaining work.
struct Record<'t> {
    target: &'t SearchTarget,
    tried: Vec<Tried>,
    best: Option<usize>,
    effort: &'t Effort,
    /// The effort's token, which the deadline cancels too.
    ended: Cancel,
    work: f64,
    is_cut: bool,
    is_late: bool,
}

impl Record<'_> {
    /// Runs several computations in parallel, each with an equal share of the remaining work, so that the results do not depend on the
    /// number of threads. Work left over is available to later computations.
    fn side_by_side<T: Sync, S: Send>(&mut self, all: &[T], look: impl Fn(&T, &mut Meter) -> S + Sync) -> Vec<S> {
        let share = (self.effort.most_work - self.work) / all.len() as f64;
        let seen: Vec<(S, Meter)> = parallel::map(all.len(), |i| {
            let mut meter = Meter::new(share, &self.ended);
            let seen = look(&all[i], &mut meter);
            (seen, meter)
        });
        let mut out = Vec::with_capacity(seen.len());
        for (seen, meter) in seen {
            self.work = (self.work + meter.spent.min(share)).min(self.effort.most_work);
            self.is_cut |= meter.has_ended;
            self.is_late |= meter.was_cancelled;
            out.push(seen);
        }
        out
    }

    /// Whether the search continues.
    fn goes_on(&mut self) -> bool {
        /// With less than this share of the work left, nothing more begins.
        const REST: f64 = 0.01;
        self.is_late |= self.ended.is_cancelled();
        !self.is_late && (!self.is_cut || self.work < (1.0 - REST) * self.effort.most_work)
    }

    fn cost(&self) -> f64 {
        self.best.and_then(|best| self.tried[best].cost).map_or(f64::INFINITY, |cost| cost.of(self.target.goal))
    }

    fn add(&mut self, all: Vec<Tried>) {
        for tried in all {
            // Two searches may compute the same choice with different cost limits.
            if let Some(same) = self.tried.iter_mut().find(|seen| seen.choice == tried.choice) {
                if same.cost.is_none() && tried.cost.is_some() {
                    *same = tried;
                }
                continue;
            }
            self.tried.push(tried);
        }
        for (i, tried) in self.tried.iter().enumerate() {
            let Some(new) = tried.cost.as_ref().zip(tried.reached()) else { continue };
            let old = self.best.and_then(|best| self.tried[best].cost.as_ref().zip(self.tried[best].reached()));
            if old.is_none_or(|old| cheaper(self.target, new, old)) {
                self.best = Some(i);
            }
        }
    }
}

impl Search<'_> {
    /// The lines of the coarse search, in its order.
    fn lines(&self) -> Vec<Line> {
        let mut lines: Vec<Line> = Vec::new();
        for (family, made) in self.families.iter().enumerate().filter(|(family, _)| self.prices[*family].is_ok()) {
            let steps = if made.has_local_steps { self.target.coarse_local_steps() } else { vec![1] };
            for server_step in server_steps(&**self.field, made) {
                lines.extend(steps.iter().map(|local_steps| Line { family, local_steps: *local_steps, server_step }));
            }
        }
        // All families for each number of local steps, so that a slow family does not use up the work of the others. Many local steps
        // take few rounds: if rounds cost, their results bound the work for fewer.
        match self.target.goal {
            Goal::Samples => lines.sort_by_key(|line| line.local_steps),
            Goal::Rounds | Goal::Bits | Goal::Seconds => lines.sort_by_key(|line| Reverse(line.local_steps)),
        }
        lines
    }
}

/// The lines whose best cost is near the overall best, each with its best step size.
fn near_lines(of: &Search<'_>, record: &Record<'_>) -> Vec<(Line, f64)> {
    let mut best_of: Vec<(Line, f64, f64)> = Vec::new();
    for tried in &record.tried {
        let SearchChoice { family, step_size, local_steps, server_step } = tried.choice;
        let (line, cost) = (Line { family, local_steps, server_step }, of.smooth(tried));
        match best_of.iter_mut().find(|(other, ..)| *other == line) {
            Some(entry) if cost < entry.2 => (entry.1, entry.2) = (step_size, cost),
            Some(_) => {}
            None => best_of.push((line, step_size, cost)),
        }
    }
    let most = NEAR * record.cost();
    best_of.into_iter().filter(|(.., cost)| cost.is_finite() && *cost <= most).map(|(line, step, _)| (line, step)).collect()
}

/// Finds the choice of least cost among the families whose errors theory knows.
///
/// # Errors
/// As [`SearchTarget::check`], and when the search is cancelled.
pub fn search(
    field: &Arc<dyn Field>,
    families: &[Family],
    start: &SearchStart,
    target: &SearchTarget,
    effort: &Effort,
) -> Result<SearchResult> {
    target.check(&**field, start)?;
    let prices: Vec<Result<Price>> = families.iter().map(|family| Ok(Price::of(field, family, start)?.on(target.network))).collect();
    let of = Search { field, families, start, target, prices: &prices };
    let mut unknown: Vec<Option<Error>> = prices.iter().map(|price| price.as_ref().err().cloned()).collect();
    let lines = of.lines();
    let ended = effort.cancel.until(effort.deadline);
    let mut record = Record { target, tried: Vec::new(), best: None, effort, ended, work: 0.0, is_cut: false, is_late: false };
    // Lines at the same position of the list are searched in parallel: their cost limits depend only on the lines before.
    const SIDE_BY_SIDE: usize = 4;
    for few in lines.chunks(SIDE_BY_SIDE) {
        if !record.goes_on() {
            break;
        }
        let most_cost = NEAR * record.cost();
        for (line, seen) in few.iter().zip(record.side_by_side(few, |line, meter| of.coarse(*line, most_cost, meter))) {
            // Other step sizes of the line may be known.
            if let Some(why) = seen.unknown.filter(|_| seen.tried.is_empty()) {
                unknown[line.family].get_or_insert(why);
            }
            record.add(seen.tried);
        }
    }
    let near = near_lines(&of, &record);
    for few in near.chunks(SIDE_BY_SIDE) {
        if !record.goes_on() {
            break;
        }
        let most_cost = NEAR * record.cost();
        let fine = record.side_by_side(few, |(line, step), meter| of.fine(*line, *step, 2.0, most_cost, meter));
        fine.into_iter().for_each(|tried| record.add(tried));
    }
    local(&of, &mut record);
    effort.cancel.check()?;
    let is_late = record.is_late;
    Ok(SearchResult {
        tried: record.tried,
        best: record.best,
        unknown,
        prices,
        work: record.work,
        is_cut: record.is_cut || is_late,
        is_late,
    })
}

/// The neighbours of the best choice of each family.
fn local(of: &Search<'_>, record: &mut Record<'_>) {
    let target = of.target;
    for family in 0..of.families.len() {
        let made = &of.families[family];
        let best_of = |record: &Record<'_>| {
            let mine = record.tried.iter().filter(|tried| tried.choice.family == family && tried.cost.is_some());
            mine.min_by(|a, b| of.smooth(a).total_cmp(&of.smooth(b))).map(|tried| (tried.choice, of.smooth(tried)))
        };
        let mut done: HashSet<(u64, u64)> = HashSet::new();
        for (factor, near) in FACTORS.into_iter().zip([f64::INFINITY, WIDE, NEAR, NEAR]) {
            // A few moves with each factor.
            for _ in 0..6 {
                if !record.goes_on() {
                    return;
                }
                let Some((at, cost)) = best_of(record).filter(|(_, cost)| *cost <= near * record.cost()) else { break };
                let mut next: Vec<(Line, f64)> = Vec::new();
                let mut propose = |local_steps: u64, server_step: f64, step_size: f64| {
                    let line = Line { family, local_steps, server_step: rounded(server_step) };
                    if done.insert((local_steps, line.server_step.to_bits())) {
                        next.push((line, step_size));
                    }
                };
                if made.has_local_steps && target.local_steps.is_none() {
                    let h = at.local_steps as f64;
                    let up = ((h * factor).round() as u64).max(at.local_steps + 1).min(target.max_local_steps);
                    let down = ((h / factor).round() as u64).min(at.local_steps - 1).max(1);
                    for other in [up, down].into_iter().filter(|other| *other != at.local_steps) {
                        // Between the same step size and the same span of a round.
                        propose(other, at.server_step, at.step_size * (h / other as f64).sqrt());
                    }
                }
                if made.has_server_step {
                    for by in [factor, 1.0 / factor] {
                        propose(at.local_steps, at.server_step * by, at.step_size);
                    }
                }
                let most_cost = 1.05 * cost;
                let width = 1.4 * factor.sqrt();
                let seen = record.side_by_side(&next, |(line, step), meter| of.fine(*line, *step, width, most_cost, meter));
                seen.into_iter().for_each(|tried| record.add(tried));
                if best_of(record).is_none_or(|(_, now)| now > 0.998 * cost) {
                    break;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    //! Searches on the random problems of the bounds' tests, against full grids and the corollaries of \[S\].

    use std::sync::Arc;

    use super::*;
    use crate::bounds::testing::{Case, cases};
    use crate::bounds::{fedlsa, scafflsa};
    use crate::tune::course;
    use fedsa::kernel::Isa;
    use fedsa::linalg::{self, Mat};
    use fedsa::problem::facts::Facts;
    use fedsa::problem::law::FiniteLaw;
    use fedsa::problem::systems::Systems;
    use fedsa::problem::{self, Problem};
    use fedsa::random::Stream;
    use fedsa::sampling::Sampling;
    use fedsa::uplink::Uplink;
    use fedsa_methods::fedhsa::FedHsa;
    use fedsa_methods::fedlsa::FedLsa;
    use fedsa_methods::scafflsa::Scafflsa;

    /// The problem of a case.
    struct Drawn {
        /// The equally likely `A(z)` and `b(z)` of every kind of agents.
        samples: Vec<Vec<(Mat<f64>, Vec<f64>)>>,
        systems: Systems,
    }

    impl Drawn {
        fn of(&self, c: usize) -> &[(Mat<f64>, Vec<f64>)] {
            &self.samples[self.systems.kind_of[c] as usize]
        }
    }

    impl Problem for Drawn {
        type Obs = usize;
        fn dim(&self) -> usize {
            self.systems.dim()
        }
        fn weights(&self) -> &[f64] {
            &self.systems.weights
        }
        fn sample(&self, c: usize, _: &[f64], _: &mut [u64], stream: &mut Stream, z: &mut usize) {
            let n = self.of(c).len();
            *z = ((stream.uniform() * n as f64) as usize).min(n - 1);
        }
        fn apply(&self, c: usize, theta: &[f64], z: &usize, out: &mut [f64]) {
            let (a, b) = &self.of(c)[*z];
            let pulled = linalg::mat_vec(a, theta);
            out.iter_mut().zip(b.iter().zip(&pulled)).for_each(|(out, (b, pulled))| *out = b - pulled);
        }
        fn facts(&self) -> &dyn Facts {
            self
        }
    }

    impl Facts for Drawn {
        fn systems(&self) -> Option<&Systems> {
            Some(&self.systems)
        }
        fn law(&self, kind: usize) -> Option<FiniteLaw<'_>> {
            let (d, samples) = (self.systems.dim(), &self.samples[kind]);
            let mass = vec![1.0 / samples.len() as f64; samples.len()];
            Some(FiniteLaw::linear(d, mass, move |z, a: &mut [f64], b: &mut [f64]| {
                (0..d * d).for_each(|i| a[i] = samples[z].0[(i / d, i % d)]);
                b.copy_from_slice(&samples[z].1);
            }))
        }
    }

    fn field(case: &Case) -> Arc<dyn Field> {
        let samples = case.kinds.iter().map(|kind| kind.samples.clone()).collect();
        let drawn = Drawn { samples, systems: case.systems.clone() };
        problem::field(drawn, Sampling::default(), Isa::best(), true).unwrap()
    }

    fn start(case: &Case) -> SearchStart {
        SearchStart { theta: Some(case.start.clone()), ..SearchStart::zero(case.start.len()) }
    }

    /// The first problems with few second moments under SCAFFLSA.
    fn small(count: usize) -> Vec<Case> {
        let few = |case: &Case| case.systems.dim() * (case.systems.kinds.len() + 1) <= 4;
        cases(2 * count as u64).into_iter().filter(few).take(count).collect()
    }

    fn target(case: &Case) -> f64 {
        let start = linalg::distance_sq(&case.start, &case.systems.root().unwrap());
        start * 10f64.powf(-0.5 - 2.0 * case.share[3])
    }

    /// FedLSA, SCAFFLSA and FedHSA over a clear link, with the server step 1.
    fn families() -> [Family; 3] {
        let link = Arc::new(Uplink::default());
        let families = [
            Family::new("fedlsa", |eta, h, _| Ok(Arc::new(FedLsa::new(eta, h))), &link),
            Family::new("scafflsa", |eta, h, _| Ok(Arc::new(Scafflsa::new(eta, h))), &link),
            Family::new("fedhsa", |eta, h, _| Ok(Arc::new(FedHsa::new(eta, h))), &link),
        ];
        families.map(|family| Family { has_server_step: false, ..family })
    }

    #[test]
    fn choices_are_within_a_few_percent_of_a_full_grid() {
        let mut worst = 0.0f64;
        // Each family with each goal.
        for (i, case) in small(6).iter().enumerate() {
            let (field, start, family) = (field(case), start(case), &families()[i % 3]);
            let goal = [Goal::Samples, Goal::Rounds][i / 3 % 2];
            let target =
                SearchTarget { mse: target(case), goal, max_rounds: 1_000_000_000, max_local_steps: 12, ..SearchTarget::default() };
            let found = search(&field, std::slice::from_ref(family), &start, &target, &Effort::default()).unwrap();
            let found = found.best().unwrap();
            let (cost, hit) = (found.cost.unwrap().of(goal), found.reached().unwrap());
            let price = Price::of(&field, family, &start).unwrap();
            assert!(hit.mse <= target.mse && cost == price.cost(hit.rounds, found.choice.local_steps).of(goal));
            let top = 4.0 * largest_step(&*field);
            let mut best = f64::INFINITY;
            for local_steps in 1..=12 {
                for k in 0..160 {
                    let step_size = top * 10f64.powf(-0.03 * f64::from(k));
                    let choice = SearchChoice { family: 0, step_size, local_steps, server_step: 1.0 };
                    let forecast = family.forecast(&field, &choice, &start).unwrap();
                    if let Ok(other) = course(&forecast, &start, target.mse, target.max_rounds).unwrap().outcome {
                        best = best.min(price.cost(other.rounds, local_steps).of(goal));
                    }
                }
            }
            worst = worst.max(cost / best);
            assert!(cost <= 1.05 * best, "case {i}: {found:?}, {best}");
        }
        println!("cost over the best of a full grid, at most: {worst}");
    }

    #[test]
    fn the_exact_theory_needs_this_many_times_fewer_rounds_than_the_corollaries() {
        let documented = [3.625, 14.0, 19.7, 1448.0];
        for (median, documented) in compare_with_corollaries().into_iter().zip(documented) {
            assert!((median / documented - 1.0).abs() < 0.05, "{median}, documented {documented}");
        }
    }

    /// The medians of the corollaries' rounds over the exact theory's rounds: Corollary 4.5 with the same settings and the best ones
    /// with at most as many rounds and local steps, and Corollary 5.4.
    fn compare_with_corollaries() -> [f64; 4] {
        let [plain_family, controlled_family, _] = families();
        let mut ratios = [const { Vec::new() }; 4];
        for case in &small(40) {
            let (field, start, mse) = (field(case), start(case), target(case));
            let away = linalg::distance_sq(&case.start, &case.systems.root().unwrap()).sqrt();
            let plain = fedlsa::FedLsaConstants::new(&case.systems, &case.moments).unwrap();
            let plain = fedlsa::corollary_4_5(&plain, away, mse).unwrap();
            let controlled = scafflsa::ScafflsaConstants::new(&case.systems, &case.moments).unwrap();
            let controlled = scafflsa::corollary_5_4(&controlled, away, mse).unwrap();
            for (k, (family, corollary)) in [(&plain_family, plain), (&controlled_family, controlled)].into_iter().enumerate() {
                if corollary.rounds() == 0 {
                    continue;
                }
                let setting = corollary.round_setting().unwrap();
                let (step_size, local_steps) = (setting.step_size, setting.local_steps);
                let choice = SearchChoice { family: 0, step_size, local_steps, server_step: 1.0 };
                let forecast = family.forecast(&field, &choice, &start).unwrap();
                let same = course(&forecast, &start, mse, corollary.rounds()).unwrap().outcome;
                let same = same.unwrap_or_else(|miss| panic!("{corollary:?}: {miss:?}")).rounds;
                ratios[2 * k].push(corollary.rounds / same as f64);
                if local_steps <= 60 {
                    let max_rounds = corollary.rounds();
                    let target =
                        SearchTarget { mse, goal: Goal::Rounds, max_rounds, max_local_steps: local_steps, ..SearchTarget::default() };
                    let found = search(&field, std::slice::from_ref(family), &start, &target, &Effort::default()).unwrap();
                    let best = found.best().unwrap_or_else(|| panic!("{corollary:?}: nothing is found: {found:?}"));
                    let best = best.reached().unwrap().rounds;
                    assert!(best <= same, "{corollary:?}: {best}, with its settings {same}");
                    ratios[2 * k + 1].push(corollary.rounds / best as f64);
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
}
