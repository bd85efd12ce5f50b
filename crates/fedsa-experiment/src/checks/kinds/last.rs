//! `final`: the mean of a metric at the end, or by a round.

use fedsa::error::Result;

use crate::checks::allow::{near, seeds_for_allowance, standard_error, when};
use crate::checks::facts::{Context, PlanFacts};
use crate::checks::verdict::{Asked, Measured};
use crate::checks::{CheckKind, Keys, method_of, metric_of, not_negative, number_of, range_of};
use crate::config::Check;
use crate::numbers;
use crate::results::{self, Estimate};

/// The metric (or `distance`, the root of mse) after the last round, or `by` a round, is `expected` within `tolerance`
/// (relative), or at most `max`.
pub struct FinalCheck;

impl CheckKind for FinalCheck {
    fn name(&self) -> &'static str {
        "final"
    }

    fn keys(&self) -> Keys {
        Keys { needs: &[], needs_one: &["expected", "min", "max"], takes: &["metric", "tolerance", "se", "larger", "by"] }
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
        ctx.cells(check)?.into_iter().map(one).collect()
    }

    fn text(&self, check: &Check) -> String {
        let expected = if check.expected.is_some() { numbers::number(number_of(check)) } else { range_of(check) };
        format!("the mean {} of {} is {expected} {}", metric_of(check), method_of(check), when(check))
    }
}

/// The metric of a `final` check, and whether its square root is taken.
fn final_metric(check: &Check) -> (&str, bool) {
    match metric_of(check) {
        "distance" => ("mse", true),
        other => (other, false),
    }
}
