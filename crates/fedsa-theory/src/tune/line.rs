//! The step sizes of a line of the search, on which all other settings are fixed: a coarse search, and a fine one around one of them.

use std::sync::Arc;

use super::course::{Meter, course_within};
use super::{Course, Family, Hit, Miss, Price, SearchChoice, SearchCost, SearchStart, SearchTarget, rounded};
use fedsa::error::{Error, Result};
use fedsa::linalg;
use fedsa::problem::Field;

/// A choice that was computed.
#[derive(Debug, Clone, PartialEq)]
pub struct Tried {
    /// The choice.
    pub choice: SearchChoice,
    /// Its predicted course.
    pub course: Course,
    /// Its cost, if it reaches the target.
    pub cost: Option<SearchCost>,
}

impl Tried {
    /// Its arrival at the target, if it reaches it.
    pub fn reached(&self) -> Option<&Hit> {
        self.course.outcome.as_ref().ok()
    }
}

/// The number of halvings of the coarse search of step sizes.
const HALVINGS: u32 = 40;
/// A line on which no step size has reached the target ends after more than this many slow ones.
const SLOW: u32 = 3;
/// The golden section ends when the interval of step sizes spans this factor.
const FINE: f64 = 1.03;

/// The step size at which the coarse search begins its descent: `2 / max ||Abar_c||`, above which one local step of that agent grows in
/// some direction. Without known systems it comes from the Lipschitz constant of the mean operators, or is 1.
pub fn largest_step(field: &dyn Field) -> f64 {
    let of_systems = field.systems().map(|systems| systems.kinds.iter().map(|kind| linalg::norm2(&kind.a)).fold(0.0, f64::max));
    let size = of_systems.or_else(|| field.facts().monotone().map(|known| known.lipschitz));
    match size {
        Some(size) if size > 0.0 && size.is_finite() => 2.0 / size,
        _ => 1.0,
    }
}

/// The step sizes of the coarse search, descending.
pub fn coarse_steps(field: &dyn Field) -> impl Iterator<Item = f64> {
    let top = largest_step(field);
    (0..HALVINGS).map(move |k| rounded(top / 2f64.powi(k as i32)))
}

/// A line of the search: all settings but the step size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Line {
    pub family: usize,
    pub local_steps: u64,
    pub server_step: f64,
}

impl Line {
    pub fn at(self, step_size: f64) -> SearchChoice {
        SearchChoice { family: self.family, step_size: rounded(step_size), local_steps: self.local_steps, server_step: self.server_step }
    }
}

/// The choices computed on a line.
#[derive(Default)]
pub(super) struct Seen {
    pub tried: Vec<Tried>,
    pub unknown: Option<Error>,
}

pub(super) struct Search<'s> {
    pub field: &'s Arc<dyn Field>,
    pub families: &'s [Family],
    pub start: &'s SearchStart,
    pub target: &'s SearchTarget,
    pub prices: &'s [Result<Price>],
}

impl Search<'_> {
    pub fn price(&self, family: usize) -> &Price {
        self.prices[family].as_ref().expect("only families that can work are searched")
    }

    /// The course of a choice within a cost.
    pub fn look(&self, choice: SearchChoice, most_cost: f64, meter: &mut Meter) -> Result<Tried> {
        let price = self.price(choice.family);
        let most = price.affordable(most_cost, self.target.goal, choice.local_steps, self.target.max_rounds).max(1);
        let forecast = self.families[choice.family].forecast(self.field, &choice, self.start)?.with_cancel(meter.token());
        let course = course_within(&forecast, self.start, self.target.mse, most, meter).inspect_err(|e| meter.failed(e))?;
        let cost = course.outcome.ok().map(|hit| price.cost(hit.rounds, choice.local_steps));
        Ok(Tried { choice, course, cost })
    }

    /// The cost of a choice, with the time of passing instead of its rounds; infinite if it misses the target.
    pub fn smooth(&self, tried: &Tried) -> f64 {
        match (&tried.cost, tried.reached()) {
            (Some(cost), Some(hit)) => hit.smooth(cost.of(self.target.goal)),
            _ => f64::INFINITY,
        }
    }

    /// Step sizes `top / 2^k`.
    pub fn coarse(&self, line: Line, most_cost: f64, meter: &mut Meter) -> Seen {
        let mut seen = Seen::default();
        let (mut best, mut slow) = (f64::INFINITY, 0);
        let sizes: Vec<f64> = coarse_steps(&**self.field).collect();
        // The step of this turn, and the step of the turn before.
        let (mut at, mut before) = (0, 0);
        while let Some(step_size) = sizes.get(at) {
            // Up to twice the line's best cost is enough to see that it grows.
            let tried = match self.look(line.at(*step_size), most_cost.min(2.0 * best), meter) {
                Ok(tried) => tried,
                Err(_) if meter.has_ended => break,
                Err(why) => {
                    seen.unknown = Some(why);
                    at += 1;
                    // Another step size may be known: closures depend on it.
                    if best.is_finite() || seen.tried.is_empty() { break } else { continue }
                }
            };
            if let Err(Miss::Floor { floor }) = tried.course.outcome {
                before = at;
                // Far from the edge of stability, a floor falls with the step at most as its square. So half of the halvings between
                // the floor and the target, at least one, do not skip the first step that reaches it.
                at += ((floor / self.target.mse).log2() / 2.0).max(1.0) as usize;
                seen.tried.push(tried);
                continue;
            }
            // Close to the edge the floor falls faster, so the skipped steps are tried upwards.
            for passed in sizes[before..at].iter().skip(1).rev() {
                let Ok(larger) = self.look(line.at(*passed), most_cost.min(2.0 * best), meter) else { break };
                best = best.min(self.smooth(&larger));
                let is_above = matches!(larger.course.outcome, Err(Miss::Floor { .. } | Miss::Diverges));
                seen.tried.push(larger);
                if is_above {
                    break;
                }
            }
            before = at;
            at += 1;
            let cost = self.smooth(&tried);
            slow += u32::from(matches!(tried.course.outcome, Err(Miss::Slow { .. })));
            seen.tried.push(tried);
            // A step is also slow if its floor is close to the target or its round nearly overshoots; then smaller steps are faster.
            if slow > if best.is_finite() { 0 } else { SLOW } || cost > best {
                break;
            }
            best = cost;
        }
        seen
    }

    /// The golden section between the neighbours of a step size, on a logarithmic scale.
    pub fn fine(&self, line: Line, around: f64, width: f64, most_cost: f64, meter: &mut Meter) -> Vec<Tried> {
        const GOLDEN: f64 = 0.618_033_988_749_894_9;
        // Above all costs, and above all logarithms of step sizes.
        const MISSED: f64 = 1e200;
        const LONG: f64 = 1e4;
        let (mut low, mut high) = ((around / width).ln(), (around * width).ln());
        let mut seen: Vec<Tried> = Vec::new();
        let mut look = |at: f64| -> f64 {
            let Ok(tried) = self.look(line.at(at.exp()), most_cost, meter) else { return f64::INFINITY };
            let cost = self.smooth(&tried);
            // Beyond the steps that reach the target, the search must return to smaller steps, also between two misses.
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
