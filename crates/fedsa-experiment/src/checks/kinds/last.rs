//! `final`: the mean of a metric at the end, or by a round.

use fedsa::error::{Error, Result};

use crate::checks::allow::{near, range_of, seeds_for_allowance, standard_error, when};
use crate::checks::facts::{Context, PlanFacts};
use crate::checks::kind::CheckKind;
use crate::checks::verdict::{Asked, Measured};
use crate::config::Check;
use crate::numbers;
use crate::results::Estimate;

/// The metric (or `distance`, the root of mse) after the last round, or `by` a round, is `expected` within `tolerance` (relative), or lies
/// between `min` and `max`. With `along` it is divided by its value at the first point along a coordinate.
pub struct FinalCheck;

impl CheckKind for FinalCheck {
    fn name(&self) -> &'static str {
        "final"
    }

    fn possible(&self, facts: &PlanFacts<'_>, check: &Check, _: usize, cell: usize) -> Result<()> {
        facts.metric(cell, final_metric(check).0)?;
        facts.round(cell, "by", check.by)?;
        if check.along.is_some() && check.expected.is_some() {
            let what = "an expected value beside `along`, along which values are divided by the first";
            return Err(Error::new("along", what, "min or max, or no along"));
        }
        if check.expected.is_some() { seeds_for_allowance(facts, check, cell) } else { Ok(()) }
    }

    fn measure(&self, ctx: &Context<'_>, check: &Check) -> Result<Vec<Measured>> {
        let (name, root) = final_metric(check);
        let one = |(point, cell): (usize, usize)| {
            let values = ctx.by(cell, check.by, name)?;
            let values: Vec<f64> = values.into_iter().map(|x| if root { x.sqrt() } else { x }).collect();
            let place = ctx.facts.place(point);
            if check.expected.is_some() {
                return Ok(near(check, &values, check.number(), place));
            }
            let Estimate { mean, se } = Estimate::of(&values);
            Ok(Measured { standard_error: standard_error(&values, se), ..Measured::new(mean, Asked::within(check.min, check.max), place) })
        };
        let cells = ctx.cells(check)?;
        if check.along.is_none() {
            return cells.into_iter().map(one).collect();
        }
        let mean = |cell: usize| -> Result<f64> {
            let values = ctx.by(cell, check.by, name)?;
            Ok(Estimate::of(&values.into_iter().map(|x| if root { x.sqrt() } else { x }).collect::<Vec<_>>()).mean)
        };
        let mut out = Vec::new();
        for members in ctx.facts.groups(check, &cells)? {
            let first = mean(members[0].1)?;
            for (point, cell) in &members[1..] {
                out.push(Measured::new(mean(*cell)? / first, Asked::within(check.min, check.max), ctx.facts.place(*point)));
            }
        }
        Ok(out)
    }

    fn text(&self, check: &Check) -> String {
        let expected = if check.expected.is_some() { numbers::number(check.number()) } else { range_of(check) };
        let over = check.along.as_ref().map_or(String::new(), |along| format!(", over that at the first {along},"));
        format!("the mean {} of {}{over} is {expected} {}", check.metric_name(), check.method_label(), when(check))
    }
}

/// The metric of a `final` check, and whether its square root is taken.
fn final_metric(check: &Check) -> (&str, bool) {
    match check.metric_name() {
        "distance" => ("mse", true),
        other => (other, false),
    }
}
