//! `predicted`: a predicted quantity against a number.

use fedsa::error::Result;

use crate::checks::facts::{Context, PlanFacts};
use crate::checks::kind::CheckKind;
use crate::checks::verdict::{Asked, Measured};
use crate::config::Check;
use crate::numbers;

/// A predicted quantity, named by `metric`, is `expected` within `tolerance` (relative).
pub struct PredictedCheck;

impl CheckKind for PredictedCheck {
    fn name(&self) -> &'static str {
        "predicted"
    }

    fn possible(&self, facts: &PlanFacts<'_>, check: &Check, _: usize, cell: usize) -> Result<()> {
        facts.predictor.knows(cell, check.metric_name()).map_err(|e| e.about("metric"))
    }

    fn measure(&self, ctx: &Context<'_>, check: &Check) -> Result<Vec<Measured>> {
        let (expected, tolerance) = (check.number(), check.tolerance.expect("validated"));
        let one = |(point, cell): (usize, usize)| {
            let measured = ctx.facts.predictor.number(cell, check.metric_name())?;
            let asked = Asked::near(expected, tolerance * expected.abs());
            let allowance = format!("tolerance {}", numbers::percent(tolerance));
            Ok(Measured { allowance, ..Measured::new(measured, asked, ctx.facts.place(point)) })
        };
        ctx.cells(check)?.into_iter().map(one).collect()
    }

    fn text(&self, check: &Check) -> String {
        format!("the predicted `{}` of {} is {}", check.metric_name(), check.method_label(), numbers::number(check.number()))
    }
}
