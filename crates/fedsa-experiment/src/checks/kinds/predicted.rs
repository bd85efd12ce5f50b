//! `predicted`: a predicted quantity against a number.

use fedsa::error::Result;

use crate::checks::facts::{Context, PlanFacts};
use crate::checks::verdict::{Asked, Measured};
use crate::checks::{CheckKind, Keys, method_of, metric_of, number_of};
use crate::config::Check;
use crate::numbers;
use crate::predict::QUANTITIES;

/// A predicted quantity, named by `metric`, is `expected` within `tolerance` (relative).
pub struct PredictedCheck;

impl CheckKind for PredictedCheck {
    fn name(&self) -> &'static str {
        "predicted"
    }

    fn keys(&self) -> Keys {
        Keys { needs: &["metric", "expected", "tolerance"], needs_one: &[], takes: &[] }
    }

    fn metrics(&self, _: &Check) -> Vec<&'static str> {
        QUANTITIES.to_vec()
    }

    fn possible(&self, facts: &PlanFacts<'_>, check: &Check, _: usize, cell: usize) -> Result<()> {
        facts.predictor.knows(cell, metric_of(check)).map_err(|e| e.about("metric"))
    }

    fn measure(&self, ctx: &Context<'_>, check: &Check) -> Result<Vec<Measured>> {
        let (expected, tolerance) = (number_of(check), check.tolerance.expect("validated"));
        let one = |(point, cell): (usize, usize)| {
            let measured = ctx.facts.predictor.number(cell, metric_of(check))?;
            let asked = Asked::near(expected, tolerance * expected.abs());
            let allowance = format!("tolerance {}", numbers::percent(tolerance));
            Ok(Measured { allowance, ..Measured::new(measured, asked, ctx.facts.place(point)) })
        };
        ctx.cells(check)?.into_iter().map(one).collect()
    }

    fn text(&self, check: &Check) -> String {
        format!("the predicted `{}` of {} is {}", metric_of(check), method_of(check), numbers::number(number_of(check)))
    }
}
