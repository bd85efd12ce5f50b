//! Pilot runs, for choices whose errors theory does not know.
//!
//! All choices run with the same seeds, so that they share samples that do not depend on the settings.
//!
//! 1. *Race*: few seeds, for 64 rounds, then four times as many, and so on. A choice leaves the race when its error has reached the target
//!    or no longer falls, or when it costs more than 1.5 times the cheapest so far.
//! 2. *Smaller steps*, in separate races, for methods of which no choice has reached the target; again after the confirmation, if no choice
//!    remains.
//! 3. *Neighbours*: the cheapest choices run again with more seeds, and then neighbours of the best of them, whose settings differ by
//!    decreasing factors.
//! 4. *Confirmation*: the cheapest choice runs again with four times as many seeds, then the choice that is now the cheapest, until a
//!    choice with all seeds is the cheapest. This removes choices that look cheap by luck. If few rounds suffice, choices that miss an
//!    earlier round by less than their standard error run again, with up to 32,768 seeds. A choice has reached the target when the upper
//!    end of a one-sided interval of 95% of its mean error has. A choice with fewer seeds is ranked by its interval with all seeds, for the
//!    same mean and spread.
//!
//! Time is counted by the estimate of [`crate::estimate`], a function of the settings. The choice thus depends neither on the speed of the
//! machine nor on earlier processes.

use std::cmp::Ordering;

use fedsa::cancel::Cancel;
use fedsa::error::{Error, Result};
use fedsa_theory::tune::{Family, Hit, Price, SearchChoice, SearchCost, SearchTarget, Tried, cheaper, rounded};
use serde::{Deserialize, Serialize};

/// A runner of pilots.
pub(super) trait Measure {
    /// The estimated time of a pilot, in seconds on one core.
    ///
    /// # Errors
    /// When the settings cannot run.
    fn estimate(&mut self, choice: &SearchChoice, rounds: u64, seeds: u64) -> std::result::Result<f64, Error>;
    /// Runs a pilot; `None` if it was interrupted.
    ///
    /// # Errors
    /// When the settings cannot run, or the machine fails.
    fn run(&mut self, choice: &SearchChoice, rounds: u64, seeds: u64) -> std::result::Result<Option<Measured>, Error>;
}

/// The measurements of a pilot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Measured {
    /// The recorded rounds, with the mean over seeds of the mean-square error, and its standard error.
    pub path: Vec<(u64, f64, f64)>,
    /// Whether a run diverged.
    pub diverged: bool,
}

/// The number of standard errors in a one-sided interval of 95%.
const UPPER: f64 = 1.645;

impl Measured {
    /// The first recorded round at which the mean error plus `errors` standard errors is at most the target, and from which on the average
    /// mean error is at most the target.
    pub fn hit(&self, target: f64, errors: f64) -> Option<Hit> {
        if self.diverged {
            return None;
        }
        let upper = |(t, mean, se): (u64, f64, f64)| (t, mean + errors * se);
        let mut at = None;
        let mut rest = 0.0;
        for (i, point) in self.path.iter().enumerate().rev() {
            rest += point.1;
            if upper(*point).1 <= target && rest / (self.path.len() - i) as f64 <= target {
                at = Some(i);
            }
        }
        let at = at?;
        let (rounds, mse, _) = self.path[at];
        let passes = Hit::between(upper(self.path[at.saturating_sub(1)]), upper(self.path[at]), target).passes;
        Some(Hit { rounds, mse, passes })
    }

    /// The mean error and its standard error after this round.
    pub fn at(&self, round: u64) -> Option<(f64, f64)> {
        self.path.iter().find(|(t, ..)| *t == round).map(|(_, mean, se)| (*mean, *se))
    }

    /// The upper end of the interval of the mean error after the recorded rounds.
    pub fn upper(&self) -> Vec<(u64, f64)> {
        self.path.iter().map(|(t, mean, se)| (*t, mean + UPPER * se)).collect()
    }

    /// The mean error over a range of the run, given as shares of its rounds.
    pub fn mean_over(&self, from: f64, to: f64) -> f64 {
        let last = self.path.last().map_or(0, |(t, ..)| *t) as f64;
        let part: Vec<f64> =
            self.path.iter().filter(|(t, ..)| (from * last..=to * last).contains(&(*t as f64))).map(|(_, mean, _)| *mean).collect();
        part.iter().sum::<f64>() / part.len().max(1) as f64
    }

    /// Whether the error has fallen, and no longer falls.
    fn has_settled(&self) -> bool {
        let start = self.path.first().map_or(f64::NAN, |(_, mean, _)| *mean);
        let (middle, end) = (self.mean_over(0.4, 0.6), self.mean_over(0.8, 1.0));
        end < 0.5 * start && end > 0.9 * middle
    }
}

/// A choice with its pilots.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Piloted {
    /// The choice.
    pub choice: SearchChoice,
    /// The seeds of its largest pilot.
    pub seeds: u64,
    /// The measurements of that pilot.
    pub measured: Measured,
    /// When the mean error reached the target, and the cost.
    pub reached: Option<(Hit, SearchCost)>,
    /// When the upper end of the interval of the mean error reached it, and the cost.
    pub surely: Option<(Hit, SearchCost)>,
    /// The same with all seeds, for the same mean and spread.
    projected: Option<(Hit, SearchCost)>,
    /// The same with a mean error lower by one standard error.
    hopeful: Option<(Hit, SearchCost)>,
}

impl Piloted {
    /// Whether it ran with all seeds.
    pub fn is_confirmed(&self) -> bool {
        self.seeds >= MANY
    }
}

/// The result of the pilots.
#[derive(Debug, Default)]
pub(super) struct Pilots {
    /// All choices, in order.
    pub tried: Vec<Piloted>,
    /// The best choice by the upper end of the interval of its error, when it reaches the target, and its cost.
    pub best: Option<(usize, Hit, SearchCost)>,
    /// The spent estimated time, in seconds on one core.
    pub spent: f64,
    /// Whether the budget or an interruption ended the search.
    pub exhausted: bool,
    /// If no pilot could run within the budget: the time of the shortest requested one.
    pub too_short: Option<f64>,
    /// Whether the caller or the time limit interrupted the search.
    pub is_late: bool,
}

/// The seeds of the race.
const FEW: u64 = 8;
/// The rounds of the first heat, and the factor between two.
const FIRST: u64 = 64;
const LONGER: u64 = 4;
/// The number of choices that leave the race, the seeds of them and of their neighbours, and the factors of neighbours.
const STAY: usize = 8;
const SOME: u64 = 32;
const FACTORS: [f64; 3] = [1.8, 1.4, 1.2];
/// The factor by which seeds grow in the confirmation, and the number of all seeds.
const MORE: u64 = 4;
const MANY: u64 = 2048;
/// The largest number of seeds, if few rounds suffice and an earlier round is within reach.
const MOST: u64 = 32_768;
/// A choice that is cheaper by less than this factor is not worth more pilots.
const CLOSE: f64 = 0.99;
/// Up to this number of rounds, one round is a large part of the cost.
const FEW_ROUNDS: u64 = 12;

/// The search.
pub(super) struct PilotSearch<'s> {
    /// The step sizes of grids, descending, and the server step of each family.
    pub sizes: Vec<f64>,
    pub server_steps: Vec<f64>,
    pub families: &'s [Family],
    pub target: &'s SearchTarget,
    pub prices: &'s [Result<Price>],
    /// The budget in seconds.
    pub budget: f64,
    /// The least cost known to theory.
    pub known: f64,
    /// Cancelled by the caller, and when time is up.
    pub ended: Cancel,
}

/// Why a pilot did not run.
enum Stop {
    Budget,
    Interrupted,
    Failed(Error),
}

impl PilotSearch<'_> {
    fn price(&self, choice: &SearchChoice) -> &Price {
        self.prices[choice.family].as_ref().expect("only families that can work are searched")
    }

    fn cost(&self, choice: &SearchChoice, hit: &Hit) -> SearchCost {
        self.price(choice).cost(hit.rounds, choice.local_steps)
    }

    /// Runs one pilot within the budget.
    fn measure(
        &self,
        pilots: &mut Pilots,
        by: &mut dyn Measure,
        choice: &SearchChoice,
        rounds: u64,
        seeds: u64,
    ) -> std::result::Result<Measured, Stop> {
        if self.ended.is_cancelled() {
            return Err(Stop::Interrupted);
        }
        let estimate = by.estimate(choice, rounds, seeds).map_err(Stop::Failed)?;
        if pilots.spent + estimate > self.budget {
            pilots.exhausted = true;
            if pilots.spent == 0.0 {
                pilots.too_short = Some(pilots.too_short.map_or(estimate, |least| least.min(estimate)));
            }
            return Err(Stop::Budget);
        }
        pilots.spent += estimate;
        pilots.too_short = None;
        match by.run(choice, rounds, seeds) {
            Ok(Some(measured)) => Ok(measured),
            Ok(None) => Err(Stop::Interrupted),
            Err(failure) => Err(Stop::Failed(failure)),
        }
    }

    /// The first choices of a family: those that theory knows for the same method under simpler conditions, the cheapest by this family's
    /// price first, and smaller steps; otherwise a grid.
    fn proposals(&self, family: usize, simpler: &[Tried]) -> Vec<SearchChoice> {
        const MOST: usize = 8;
        let Ok(price) = &self.prices[family] else { return Vec::new() };
        let mut known: Vec<(f64, SearchChoice)> = simpler
            .iter()
            .filter(|tried| tried.choice.family == family)
            .filter_map(|tried| {
                let hit = tried.reached()?;
                let cost = price.cost(hit.rounds, tried.choice.local_steps).of(self.target.goal);
                Some((hit.smooth(cost), tried.choice))
            })
            .collect();
        known.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut chosen: Vec<SearchChoice> = Vec::new();
        for (_, choice) in known {
            let is_like = |other: &SearchChoice| {
                let near = |a: f64, b: f64, factor: f64| (a / b).ln().abs() < factor.ln();
                near(other.local_steps as f64, choice.local_steps as f64, 1.5) && near(other.server_step, choice.server_step, 1.2)
            };
            if !chosen.iter().any(is_like) && chosen.len() < MOST {
                chosen.push(choice);
            }
        }
        if !chosen.is_empty() {
            // The conditions that the simpler ones lack add noise, which smaller steps reduce, or lose messages.
            let server_step = self.server_steps[family];
            let also = |choice: &SearchChoice| {
                let smaller = [1.0, 1.7, 3.0].map(|by| SearchChoice { step_size: rounded(choice.step_size / by), ..*choice });
                let louder = [1.0, 1.7].map(|by| SearchChoice {
                    step_size: rounded(choice.step_size / by),
                    server_step: rounded(choice.server_step * server_step),
                    ..*choice
                });
                let louder = louder.into_iter().filter(move |_| server_step != 1.0);
                smaller.into_iter().chain(louder).collect::<Vec<SearchChoice>>()
            };
            return chosen.iter().flat_map(also).collect();
        }
        let made = &self.families[family];
        let steps: Vec<u64> = match (&self.target.local_steps, made.has_local_steps) {
            (_, false) => vec![1],
            (Some(_), true) => self.target.coarse_local_steps(),
            (None, true) => {
                let tens = (0..9).map(|decade| 10u64.pow(decade)).take_while(|h| *h < self.target.max_local_steps);
                tens.chain([self.target.max_local_steps]).collect()
            }
        };
        let server_step = self.server_steps[family];
        let choice =
            |local_steps: &u64, step_size: &f64| SearchChoice { family, step_size: *step_size, local_steps: *local_steps, server_step };
        steps.iter().flat_map(|h| self.sizes.iter().map(move |eta| choice(h, eta))).collect()
    }

    /// Searches the families unknown to theory. `simpler` are choices of the same families under conditions that theory knows.
    ///
    /// # Errors
    /// When a pilot cannot run, or the machine fails.
    pub fn search(&self, unknown: &[usize], simpler: &[Tried], by: &mut dyn Measure) -> std::result::Result<Pilots, Error> {
        let mut pilots = Pilots::default();
        let mut all: Vec<SearchChoice> = Vec::new();
        let lists: Vec<Vec<SearchChoice>> = unknown.iter().map(|family| self.proposals(*family, simpler)).collect();
        // The first of each family, then the second of each, and so on.
        for i in 0..lists.iter().map(Vec::len).max().unwrap_or(0) {
            all.extend(lists.iter().filter_map(|list| list.get(i)));
        }
        match self.stages(&mut pilots, all, simpler, by) {
            Ok(()) | Err(Stop::Budget) => {}
            Err(Stop::Interrupted) => (pilots.is_late, pilots.exhausted) = (true, true),
            Err(Stop::Failed(failure)) => return Err(failure),
        }
        self.settle(&mut pilots);
        Ok(pilots)
    }

    /// The race, smaller steps, neighbours and confirmation; again with smaller steps if more seeds refute all choices.
    fn stages(
        &self,
        pilots: &mut Pilots,
        all: Vec<SearchChoice>,
        simpler: &[Tried],
        by: &mut dyn Measure,
    ) -> std::result::Result<(), Stop> {
        const TIMES: usize = 3;
        self.race(pilots, all, by)?;
        for _ in 0..TIMES {
            self.descend(pilots, by, simpler)?;
            self.approach(pilots, by)?;
            self.confirm(pilots, by)?;
            if self.known.is_finite() || pilots.tried.iter().any(|piloted| piloted.projected.is_some()) {
                break;
            }
        }
        Ok(())
    }

    /// Records a pilot of a choice.
    fn record(&self, pilots: &mut Pilots, choice: SearchChoice, seeds: u64, measured: Measured) {
        let hit = |errors: f64| measured.hit(self.target.mse, errors).map(|hit| (hit, self.cost(&choice, &hit)));
        let (reached, surely, projected) = (hit(0.0), hit(UPPER), hit(UPPER * (seeds as f64 / MANY as f64).sqrt().min(1.0)));
        let hopeful = hit(-1.0);
        let now = Piloted { choice, seeds, measured, reached, surely, projected, hopeful };
        match pilots.tried.iter_mut().find(|seen| seen.choice == choice) {
            Some(seen) => *seen = now,
            None => pilots.tried.push(now),
        }
    }

    /// The least cost so far.
    fn least(&self, pilots: &Pilots) -> f64 {
        let costs = pilots.tried.iter().filter_map(|piloted| piloted.reached.as_ref()).map(|(_, cost)| cost.of(self.target.goal));
        costs.fold(self.known, f64::min)
    }

    fn race(&self, pilots: &mut Pilots, mut alive: Vec<SearchChoice>, by: &mut dyn Measure) -> std::result::Result<(), Stop> {
        let most = self.target.max_rounds;
        let mut rounds = FIRST.min(most);
        loop {
            let mut on: Vec<SearchChoice> = Vec::new();
            for choice in alive {
                let paid = self.price(&choice).affordable(1.5 * self.least(pilots), self.target.goal, choice.local_steps, most);
                let within = rounds.min(paid);
                if within == 0 {
                    continue;
                }
                let measured = match self.measure(pilots, by, &choice, within, FEW) {
                    Ok(measured) => measured,
                    // Another pilot may be shorter.
                    Err(Stop::Budget) => continue,
                    Err(other) => return Err(other),
                };
                let ends = measured.diverged || measured.has_settled() || within < rounds;
                self.record(pilots, choice, FEW, measured);
                let is_there = pilots.tried.iter().any(|piloted| piloted.choice == choice && piloted.reached.is_some());
                if !ends && !is_there {
                    on.push(choice);
                }
            }
            if on.is_empty() || rounds == most {
                return Ok(());
            }
            alive = on;
            rounds = rounds.saturating_mul(LONGER).min(most);
        }
    }

    /// Races of smaller and smaller steps, for each family of which no choice has reached the target. A settled error has a floor above the
    /// target, which falls with the step; so has one that more seeds refuted. Diverging steps are reduced only if theory knows a stable
    /// choice of the family under simpler conditions; otherwise there may be none.
    fn descend(&self, pilots: &mut Pilots, by: &mut dyn Measure, simpler: &[Tried]) -> std::result::Result<(), Stop> {
        /// The factor between two steps, and the largest number of races.
        const SMALLER: f64 = 4.0;
        const RACES: usize = 6;
        let same_line =
            |a: &SearchChoice, b: &SearchChoice| (a.family, a.local_steps, a.server_step) == (b.family, b.local_steps, b.server_step);
        for _ in 0..RACES {
            let mut smallest: Vec<&Piloted> = Vec::new();
            for piloted in &pilots.tried {
                match smallest.iter_mut().find(|other| same_line(&other.choice, &piloted.choice)) {
                    Some(other) if piloted.choice.step_size < other.choice.step_size => *other = piloted,
                    Some(_) => {}
                    None => smallest.push(piloted),
                }
            }
            let is_there =
                |family: usize| pilots.tried.iter().any(|piloted| piloted.choice.family == family && piloted.projected.is_some());
            let is_stable = |family: usize| simpler.iter().any(|tried| tried.choice.family == family && tried.reached().is_some());
            smallest.retain(|piloted| {
                let family = piloted.choice.family;
                let is_above = piloted.measured.has_settled() || piloted.seeds > FEW;
                let goes_on = if piloted.measured.diverged { is_stable(family) } else { is_above };
                goes_on && !is_there(family)
            });
            let next: Vec<SearchChoice> = smallest
                .into_iter()
                .map(|piloted| SearchChoice { step_size: rounded(piloted.choice.step_size / SMALLER), ..piloted.choice })
                .collect();
            if next.is_empty() {
                break;
            }
            self.race(pilots, next, by)?;
        }
        Ok(())
    }

    /// Choices with at least this many seeds that would reach the target with all seeds, the cheapest first. They cost at most 1.5 times as
    /// much as the first, or as theory's best.
    fn cheapest(&self, pilots: &Pilots, seeds: u64) -> Vec<Ranked> {
        let with = pilots.tried.iter().filter(|piloted| piloted.seeds >= seeds);
        let mut all: Vec<Ranked> = with
            .filter_map(|piloted| {
                let (hit, cost) = piloted.projected?;
                Some(Ranked { choice: piloted.choice, seeds: piloted.seeds, hit, cost })
            })
            .collect();
        all.sort_by(|a, b| {
            if cheaper(self.target, (&a.cost, &a.hit), (&b.cost, &b.hit)) {
                Ordering::Less
            } else if cheaper(self.target, (&b.cost, &b.hit), (&a.cost, &a.hit)) {
                Ordering::Greater
            } else {
                Ordering::Equal
            }
        });
        let goal = self.target.goal;
        let least = all.first().map_or(self.known, |first| first.cost.of(goal).min(self.known));
        all.retain(|ranked| ranked.cost.of(goal) <= 1.5 * least);
        all
    }

    /// The same, ordered by the interpolated time at which the error passes the target instead of whole rounds. Of two choices with the
    /// same rounds, the one that misses the target by less a round earlier comes first.
    fn earliest(&self, pilots: &Pilots, seeds: u64) -> Vec<Ranked> {
        let mut all = self.cheapest(pilots, seeds);
        let smooth = |one: &Ranked| one.hit.smooth(one.cost.of(self.target.goal));
        all.sort_by(|a, b| smooth(a).total_cmp(&smooth(b)));
        all
    }

    fn neighbours(&self, choice: &SearchChoice, factor: f64) -> Vec<SearchChoice> {
        let made = &self.families[choice.family];
        let mut all: Vec<SearchChoice> =
            [factor, 1.0 / factor].map(|by| SearchChoice { step_size: rounded(choice.step_size * by), ..*choice }).to_vec();
        if made.has_local_steps && self.target.local_steps.is_none() {
            let h = choice.local_steps as f64;
            for by in [factor, 1.0 / factor] {
                let local_steps = ((h * by).round() as u64).clamp(1, self.target.max_local_steps);
                if local_steps != choice.local_steps {
                    all.push(SearchChoice {
                        local_steps,
                        step_size: rounded(choice.step_size * (h / local_steps as f64).sqrt()),
                        ..*choice
                    });
                }
            }
        }
        if made.has_server_step {
            all.extend([factor, 1.0 / factor].map(|by| SearchChoice { server_step: rounded(choice.server_step * by), ..*choice }));
        }
        all
    }

    /// Runs a choice for 1.5 times `rounds`, long enough to see its error settle below the target, and slower choices arrive. Returns
    /// whether the budget sufficed.
    fn again(
        &self,
        pilots: &mut Pilots,
        by: &mut dyn Measure,
        choice: SearchChoice,
        rounds: u64,
        seeds: u64,
    ) -> std::result::Result<bool, Stop> {
        let rounds = (rounds + rounds / 2 + 8).min(self.target.max_rounds);
        match self.measure(pilots, by, &choice, rounds, seeds) {
            Ok(measured) => {
                self.record(pilots, choice, seeds, measured);
                Ok(true)
            }
            // Other pilots may be shorter.
            Err(Stop::Budget) => Ok(false),
            Err(other) => Err(other),
        }
    }

    /// Neighbours of the best choices, as long as they improve.
    fn approach(&self, pilots: &mut Pilots, by: &mut dyn Measure) -> std::result::Result<(), Stop> {
        /// The number of moves at each factor.
        const MOVES: usize = 4;
        for first in self.earliest(pilots, FEW).into_iter().take(STAY) {
            self.again(pilots, by, first.choice, first.hit.rounds, SOME)?;
        }
        for factor in FACTORS {
            for _ in 0..MOVES {
                let ranked = self.earliest(pilots, SOME);
                let Some(Ranked { choice: best, .. }) = ranked.first().copied() else { return Ok(()) };
                let mut near: Vec<(SearchChoice, u64)> = Vec::new();
                // Neighbours of the best choice, and of the best with another family or number of local steps.
                let is_other = |one: &&Ranked| (one.choice.family, one.choice.local_steps) != (best.family, best.local_steps);
                for one in ranked.first().into_iter().chain(ranked.iter().find(is_other)) {
                    for other in self.neighbours(&one.choice, factor) {
                        let is_new = !pilots.tried.iter().any(|piloted| piloted.choice == other && piloted.seeds >= SOME)
                            && !near.iter().any(|(choice, _)| *choice == other);
                        if is_new {
                            near.push((other, one.hit.rounds));
                        }
                    }
                }
                for (choice, rounds) in near {
                    self.again(pilots, by, choice, rounds, SOME)?;
                }
                if self.earliest(pilots, SOME).first().is_none_or(|first| first.choice == best) {
                    break;
                }
            }
        }
        Ok(())
    }

    /// More seeds for the cheapest choice, until it has all. If it takes few rounds, choices that missed an earlier round by less than a
    /// standard error get more seeds too.
    fn confirm(&self, pilots: &mut Pilots, by: &mut dyn Measure) -> std::result::Result<(), Stop> {
        let goal = self.target.goal;
        // Choices whose next pilot exceeds the budget.
        let mut dear: Vec<SearchChoice> = Vec::new();
        loop {
            let mut ranked = self.cheapest(pilots, SOME);
            if ranked.is_empty() {
                // All choices with more seeds have missed: try those that the race left behind.
                ranked = self.cheapest(pilots, FEW);
            }
            let confirmed = ranked.iter().find(|one| one.seeds >= MANY).copied();
            let most = CLOSE * confirmed.map_or(f64::INFINITY, |one| one.cost.of(goal));
            let is_open = |choice: &SearchChoice, cost: f64| cost < most && !dear.contains(choice);
            let by_mean = ranked.iter().find(|one| one.seeds < MANY && is_open(&one.choice, one.cost.of(goal)));
            let by_mean = by_mean.map(|one| (one.choice, one.seeds, one.hit));
            let by_hope = || {
                let hopeful = pilots.tried.iter().filter_map(|piloted| {
                    let (hit, cost) = piloted.hopeful.filter(|_| (SOME..MOST).contains(&piloted.seeds))?;
                    let cost = cost.of(goal);
                    is_open(&piloted.choice, cost).then_some((piloted.choice, piloted.seeds, hit, hit.smooth(cost)))
                });
                hopeful.min_by(|a, b| a.3.total_cmp(&b.3)).map(|(choice, seeds, hit, _)| (choice, seeds, hit))
            };
            let takes_few = confirmed.is_some_and(|one| one.hit.rounds <= FEW_ROUNDS);
            let Some((choice, seeds, hit)) = by_mean.or_else(|| takes_few.then(by_hope).flatten()) else { return Ok(()) };
            let most = if seeds < MANY { MANY } else { MOST };
            if !self.again(pilots, by, choice, hit.rounds, most.min(MORE * seeds))? {
                dear.push(choice);
            }
        }
    }

    /// The cheapest choice by the upper end of the interval of its error, among those with all seeds. If the budget ended the search
    /// before, among those with the most seeds that reach the target.
    fn settle(&self, pilots: &mut Pilots) {
        let mut levels: Vec<u64> = pilots.tried.iter().map(|piloted| piloted.seeds.min(MANY)).collect();
        levels.sort_unstable();
        levels.dedup();
        for seeds in levels.into_iter().rev().filter(|seeds| *seeds == MANY || pilots.exhausted) {
            let with = pilots.tried.iter().enumerate().filter(|(_, piloted)| piloted.seeds.min(MANY) == seeds);
            let surely = with.filter_map(|(i, piloted)| piloted.surely.map(|(hit, cost)| (i, hit, cost)));
            pilots.best = surely.reduce(|a, b| if cheaper(self.target, (&b.2, &b.1), (&a.2, &a.1)) { b } else { a });
            if pilots.best.is_some() {
                return;
            }
        }
    }
}

/// A choice with its cost to reach the target.
#[derive(Debug, Clone, Copy)]
struct Ranked {
    choice: SearchChoice,
    seeds: u64,
    hit: Hit,
    cost: SearchCost,
}

/// The mean and its standard error along the recorded rounds, over seeds.
pub(super) fn measured(results: &[crate::results::SeedResult]) -> Measured {
    let diverged = results.iter().any(|seed| seed.diverged.is_some());
    let shortest = results.iter().map(|seed| seed.rows.len()).min().unwrap_or(0);
    let point = |i: usize| {
        let values: Option<Vec<f64>> = results.iter().map(|seed| seed.rows[i].metric("mse")).collect();
        let estimate = crate::results::Estimate::of(&values?);
        Some((results[0].rows[i].round, estimate.mean, estimate.se))
    };
    Measured { path: (0..shortest).filter_map(point).collect(), diverged }
}

#[cfg(test)]
mod tests;
