//! `final`: the mean of a metric at the end, or by a round.

use fedsa::error::{BadInput, Result};

use crate::checks::allow::{near, seeds_for_allowance, standard_error, when};
use crate::checks::facts::{Context, PlanFacts};
use crate::checks::verdict::{Asked, Measured};
use crate::checks::{CheckKind, Keys, method_of, metric_of, not_negative, number_of, range_of};
use crate::config::Check;
use crate::numbers;
use crate::results::{self, Estimate};

/// The metric (or `distance`, the root of mse) after the last round, or `by` a round, is `expected` within `tolerance`
/// (relative), or lies between `min` and `max`. With `along` it is divided by that at the first point along a coordinate.
pub struct FinalCheck;

impl CheckKind for FinalCheck {
    fn name(&self) -> &'static str {
        "final"
    }

    fn keys(&self) -> Keys {
        Keys { needs: &[], needs_one: &["expected", "min", "max"], takes: &["metric", "tolerance", "se", "larger", "by", "along"] }
    }

    fn metrics(&self, _: &Check) -> Vec<&'static str> {
        [results::metrics(), vec!["distance"]].concat()
    }

    fn ignored_beside_range(&self) -> &'static [&'static str] {
        &["expected", "tolerance", "se", "larger"]
    }

    fn accepts(&self, expected: f64) -> Result<(), &'static str> {
        not_negative(expected)
    }

    fn possible(&self, facts: &PlanFacts<'_>, check: &Check, _: usize, cell: usize) -> Result<()> {
        facts.metric(cell, final_metric(check).0)?;
        facts.round(cell, "by", check.by)?;
        if check.along.is_some() && check.expected.is_some() {
            let what = "an expected value beside `along`, along which values are divided by the first";
            return Err(BadInput::new("along", what, "min or max, or no along"));
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
                return Ok(near(check, &values, number_of(check), place));
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
        let expected = if check.expected.is_some() { numbers::number(number_of(check)) } else { range_of(check) };
        let over = check.along.as_ref().map_or(String::new(), |along| format!(", over that at the first {along},"));
        format!("the mean {} of {}{over} is {expected} {}", metric_of(check), method_of(check), when(check))
    }
}

/// The metric of a `final` check, and whether its square root is taken.
fn final_metric(check: &Check) -> (&str, bool) {
    match metric_of(check) {
        "distance" => ("mse", true),
        other => (other, false),
    }
}
