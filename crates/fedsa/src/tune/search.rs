//! The search for the choice of the least cost.
//!
//! The space is searched in three steps, each of which asks for the course of a choice only within the rounds that the best
//! cost so far would pay for:
//!
//! 1. *Coarse*: for each family, H and alpha_g, step sizes `top / 2^k`, from the largest downwards until smaller ones take more
//!    rounds.
//! 2. *Fine*: step sizes between the neighbours of the best one, by the golden section, where the coarse cost is near the best.
//! 3. *Local*: H and alpha_g of the best choices are changed by factors that shrink, each time with the best step size nearby.
//!
//! The result is a function of the input: ties are resolved by the order of the search.

use std::collections::HashSet;

use rayon::prelude::*;

use super::{Choice, Cost, Course, Family, Miss, Price, Reach, Start, Target, course, rounded};
use crate::error::{BadInput, Result};
use crate::linalg;
use crate::problem::Field;

/// A choice that was looked at.
#[derive(Debug, Clone, PartialEq)]
pub struct Tried {
    /// The choice.
    pub choice: Choice,
    /// What theory says about it.
    pub course: Course,
    /// What it costs, if it reaches the target.
    pub cost: Option<Cost>,
}

impl Tried {
    /// How it reaches the target, if it does.
    pub fn reached(&self) -> Option<&Reach> {
        self.course.outcome.as_ref().ok()
    }
}

/// The result of a search.
#[derive(Debug, Clone)]
pub struct Found {
    /// All choices that were looked at, in order.
    pub tried: Vec<Tried>,
    /// The index of the best, if one reaches the target.
    pub best: Option<usize>,
    /// For each family, the reason why its errors are not known, if they are not.
    pub unknown: Vec<Option<BadInput>>,
    /// For each family, what its rounds cost, or why it cannot work.
    pub prices: Vec<Result<Price>>,
}

impl Found {
    /// The best choice.
    pub fn best(&self) -> Option<&Tried> {
        self.best.map(|best| &self.tried[best])
    }

    /// The choice whose error is smallest within the rounds that are allowed, and this error.
    pub fn lowest(&self) -> Option<(&Tried, f64)> {
        let error = |tried: &Tried| match tried.course.outcome {
            Ok(reach) => Some(reach.mse),
            Err(Miss::Diverges) => None,
            Err(Miss::Floor { floor }) => Some(floor),
            Err(Miss::Slow { mse }) => Some(mse),
        };
        let all = self.tried.iter().filter_map(|tried| Some((tried, error(tried)?)));
        all.min_by(|a, b| a.1.total_cmp(&b.1))
    }
}

/// The number of halvings of the coarse search of step sizes.
const HALVINGS: u32 = 40;
/// Lines whose coarse cost is at most this many times the best are searched finely.
const NEAR: f64 = 1.5;
/// The golden section ends when the interval of step sizes spans this factor.
const FINE: f64 = 1.03;
/// The factors by which H and alpha_g are changed.
const FACTORS: [f64; 4] = [1.6, 1.3, 1.15, 1.07];

/// The step size from which the coarse search goes down: `2 / max ||Abar_c||`, above which one local step of that agent grows in some
/// direction; without known systems, from the Lipschitz constant of the mean operators, or 1.
pub fn largest_step(field: &dyn Field) -> f64 {
    let of_systems = field.systems().map(|systems| systems.kinds.iter().map(|kind| linalg::norm2(&kind.a)).fold(0.0, f64::max));
    let size = of_systems.or_else(|| field.facts().monotone().map(|known| known.lipschitz));
    match size {
        Some(size) if size > 0.0 && size.is_finite() => 2.0 / size,
        _ => 1.0,
    }
}

/// The server's steps of the coarse search: 1, and what makes up for the messages that a link loses on average.
pub fn server_steps(field: &dyn Field, family: &Family<'_>) -> Vec<f64> {
    let mut steps = vec![1.0];
    let share = family.link.share_arriving(field.dim());
    if family.has_server_step && share > 0.0 && share < 0.9 {
        steps.push(rounded(1.0 / share));
    }
    steps
}

/// The step sizes of the coarse search, descending.
pub fn coarse_steps(field: &dyn Field) -> impl Iterator<Item = f64> {
    let top = largest_step(field);
    (0..HALVINGS).map(move |k| rounded(top / 2f64.powi(k as i32)))
}

/// Whether one choice is better than another: its cost, then its samples, then when its error passes the target.
pub fn cheaper(target: &Target, a: (&Cost, &Reach), b: (&Cost, &Reach)) -> bool {
    let key = |(cost, reach): (&Cost, &Reach)| (cost.of(target.goal), cost.samples, reach.passes);
    let (a, b) = (key(a), key(b));
    a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.total_cmp(&b.2)).is_lt()
}

/// A line of the search: all settings but the step size.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Line {
    family: usize,
    local_steps: u64,
    server_step: f64,
}

impl Line {
    fn at(self, step_size: f64) -> Choice {
        Choice { family: self.family, step_size: rounded(step_size), local_steps: self.local_steps, server_step: self.server_step }
    }
}

/// What was looked at on a line.
#[derive(Default)]
struct Seen {
    tried: Vec<Tried>,
    unknown: Option<BadInput>,
}

struct Search<'s, 'm> {
    field: &'s dyn Field,
    families: &'s [Family<'m>],
    start: &'s Start,
    target: &'s Target,
    prices: &'s [Result<Price>],
}

impl Search<'_, '_> {
    fn price(&self, family: usize) -> &Price {
        self.prices[family].as_ref().expect("only families that can work are searched")
    }

    /// The course of a choice within a cost.
    fn look(&self, choice: Choice, most_cost: f64) -> Result<Tried> {
        let price = self.price(choice.family);
        let most = price.affordable(most_cost, self.target.goal, choice.local_steps, self.target.most_rounds).max(1);
        let forecast = self.families[choice.family].forecast(self.field, &choice, self.start)?;
        let course = course(&forecast, self.start, self.target.mse, most)?;
        let cost = course.outcome.ok().map(|reach| price.cost(reach.rounds, choice.local_steps));
        Ok(Tried { choice, course, cost })
    }

    /// The cost of a choice with the time of its passing in place of its rounds; infinite if it misses.
    fn smooth(&self, tried: &Tried) -> f64 {
        match (&tried.cost, tried.reached()) {
            (Some(cost), Some(reach)) => cost.of(self.target.goal) * reach.passes / reach.rounds as f64,
            _ => f64::INFINITY,
        }
    }

    /// Step sizes `top / 2^k`.
    fn coarse(&self, line: Line, most_cost: f64) -> Seen {
        let mut seen = Seen::default();
        let mut best = f64::INFINITY;
        for step_size in coarse_steps(self.field) {
            // Twice the best of the line is enough to see that it grows.
            let tried = match self.look(line.at(step_size), most_cost.min(2.0 * best)) {
                Ok(tried) => tried,
                Err(why) => {
                    seen.unknown = Some(why);
                    // Another step size may be known: closures depend on it.
                    if best.is_finite() || seen.tried.is_empty() { break } else { continue }
                }
            };
            let cost = self.smooth(&tried);
            let is_slow = matches!(tried.course.outcome, Err(Miss::Slow { .. }));
            seen.tried.push(tried);
            if is_slow || cost > best {
                break;
            }
            best = cost;
        }
        seen
    }

    /// The golden section between the neighbours of a step size, on the logarithm.
    fn fine(&self, line: Line, around: f64, width: f64, most_cost: f64) -> Vec<Tried> {
        const GOLDEN: f64 = 0.618_033_988_749_894_9;
        // Above all costs, and above all logarithms of step sizes.
        const MISSED: f64 = 1e200;
        const LONG: f64 = 1e4;
        let (mut low, mut high) = ((around / width).ln(), (around * width).ln());
        let mut seen: Vec<Tried> = Vec::new();
        let mut look = |at: f64| -> f64 {
            let Ok(tried) = self.look(line.at(at.exp()), most_cost) else { return f64::INFINITY };
            let cost = self.smooth(&tried);
            // Beyond the edge of what reaches the target, the search must turn back to smaller steps, also between two misses.
            let cost = match tried.course.outcome {
                Ok(_) => cost,
                Err(Miss::Slow { .. }) => MISSED * (1.0 - at / LONG),
                Err(Miss::Floor { .. } | Miss::Diverges) => MISSED * (1.0 + at / LONG),
            };
            seen.push(tried);
            cost
        };
        let inner = |low: f64, high: f64| (high - GOLDEN * (high - low), low + GOLDEN * (high - low));
        let (mut a, mut b) = inner(low, high);
        let (mut at_a, mut at_b) = (look(a), look(b));
        while high - low > FINE.ln() {
            if at_a <= at_b {
                (high, b, at_b) = (b, a, at_a);
                a = inner(low, high).0;
                at_a = look(a);
            } else {
                (low, a, at_a) = (a, b, at_b);
                b = inner(low, high).1;
                at_b = look(b);
            }
        }
        seen
    }
}

/// All that was looked at, with the best of it.
struct Record<'t> {
    target: &'t Target,
    tried: Vec<Tried>,
    best: Option<usize>,
}

impl Record<'_> {
    fn cost(&self) -> f64 {
        self.best.and_then(|best| self.tried[best].cost).map_or(f64::INFINITY, |cost| cost.of(self.target.goal))
    }

    fn add(&mut self, all: Vec<Tried>) {
        for tried in all {
            // Two searches may look at the same choice, within different costs.
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

/// Searches for the choice of the least cost among the families whose errors theory knows.
///
/// # Errors
/// As [`Target::check`].
pub fn search(field: &dyn Field, families: &[Family<'_>], start: &Start, target: &Target) -> Result<Found> {
    target.check(field, start)?;
    let prices: Vec<Result<Price>> = families.iter().map(|family| Price::of(field, family, start)).collect();
    let of = Search { field, families, start, target, prices: &prices };
    let mut unknown: Vec<Option<BadInput>> = prices.iter().map(|price| price.as_ref().err().cloned()).collect();
    let mut lines: Vec<Line> = Vec::new();
    for (family, made) in families.iter().enumerate().filter(|(family, _)| prices[*family].is_ok()) {
        let steps = if made.has_local_steps { target.coarse_local_steps() } else { vec![1] };
        for server_step in server_steps(field, made) {
            lines.extend(steps.iter().map(|local_steps| Line { family, local_steps: *local_steps, server_step }));
        }
    }
    let mut record = Record { target, tried: Vec::new(), best: None };
    // Lines of the same place in the list are searched side by side: what they may cost depends on the lines before alone.
    const SIDE_BY_SIDE: usize = 4;
    for few in lines.chunks(SIDE_BY_SIDE) {
        let most_cost = NEAR * record.cost();
        let seen: Vec<Seen> = few.par_iter().map(|line| of.coarse(*line, most_cost)).collect();
        for (line, seen) in few.iter().zip(seen) {
            if let Some(why) = seen.unknown {
                unknown[line.family].get_or_insert(why);
            }
            record.add(seen.tried);
        }
    }
    // Families with some known errors are not unknown.
    for tried in &record.tried {
        unknown[tried.choice.family] = None;
    }
    let near: Vec<(Line, f64)> = {
        let mut best_of: Vec<(Line, f64, f64)> = Vec::new();
        for tried in &record.tried {
            let Choice { family, step_size, local_steps, server_step } = tried.choice;
            let (line, cost) = (Line { family, local_steps, server_step }, of.smooth(tried));
            match best_of.iter_mut().find(|(other, ..)| *other == line) {
                Some(entry) if cost < entry.2 => (entry.1, entry.2) = (step_size, cost),
                Some(_) => {}
                None => best_of.push((line, step_size, cost)),
            }
        }
        let most = NEAR * record.cost();
        best_of.into_iter().filter(|(.., cost)| cost.is_finite() && *cost <= most).map(|(line, step, _)| (line, step)).collect()
    };
    let most_cost = NEAR * record.cost();
    let fine: Vec<Vec<Tried>> = near.par_iter().map(|(line, step)| of.fine(*line, *step, 2.0, most_cost)).collect();
    fine.into_iter().for_each(|tried| record.add(tried));
    local(&of, &mut record);
    Ok(Found { tried: record.tried, best: record.best, unknown, prices })
}

/// The neighbours of the best choice of each family.
fn local(of: &Search<'_, '_>, record: &mut Record<'_>) {
    let target = of.target;
    for family in 0..of.families.len() {
        let made = &of.families[family];
        let best_of = |record: &Record<'_>| {
            let mine = record.tried.iter().filter(|tried| tried.choice.family == family && tried.cost.is_some());
            mine.min_by(|a, b| of.smooth(a).total_cmp(&of.smooth(b))).map(|tried| (tried.choice, of.smooth(tried)))
        };
        let mut done: HashSet<(u64, u64)> = HashSet::new();
        for factor in FACTORS {
            // A few moves at each size.
            for _ in 0..6 {
                let Some((at, cost)) = best_of(record).filter(|(_, cost)| *cost <= NEAR * record.cost()) else { break };
                let mut next: Vec<(Line, f64)> = Vec::new();
                let mut propose = |local_steps: u64, server_step: f64, step_size: f64| {
                    let line = Line { family, local_steps, server_step: rounded(server_step) };
                    if done.insert((local_steps, line.server_step.to_bits())) {
                        next.push((line, step_size));
                    }
                };
                if made.has_local_steps && target.local_steps.is_none() {
                    let h = at.local_steps as f64;
                    let up = ((h * factor).round() as u64).max(at.local_steps + 1).min(target.most_local_steps);
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
                let most_cost = 1.05 * record.cost().min(cost);
                let seen: Vec<Vec<Tried>> =
                    next.par_iter().map(|(line, step)| of.fine(*line, *step, 1.4 * factor.sqrt(), most_cost)).collect();
                seen.into_iter().for_each(|tried| record.add(tried));
                if best_of(record).is_none_or(|(_, now)| now > 0.998 * cost) {
                    break;
                }
            }
        }
    }
}
