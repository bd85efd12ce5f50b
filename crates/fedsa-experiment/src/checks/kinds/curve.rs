//! `curve`: the mean along the rounds against the exact mean-square error.

use fedsa::error::Result;

use crate::checks::facts::{Context, PlanFacts};
use crate::checks::follow::{Deviation, followed};
use crate::checks::kind::CheckKind;
use crate::checks::verdict::Measured;
use crate::config::Check;
use crate::numbers;

/// The mean over seeds of mse or error follows the exact mean-square error: at least 95% of the rounds within 3 standard errors, all within
/// 5. A relative `tolerance` and a closure's eps^2 widen both.
pub struct CurveCheck;

impl CheckKind for CurveCheck {
    fn name(&self) -> &'static str {
        "curve"
    }

    fn possible(&self, facts: &PlanFacts<'_>, check: &Check, _: usize, cell: usize) -> Result<()> {
        facts.metric(cell, check.metric_name())?;
        facts.predictor.knows_curve(cell)?;
        facts.predictor.curve_error(cell)?;
        facts.several_seeds(cell, "")
    }

    fn measure(&self, ctx: &Context<'_>, check: &Check) -> Result<Vec<Measured>> {
        let tolerance = check.tolerance.unwrap_or(0.0);
        let one = |(point, cell): (usize, usize)| {
            let exact = ctx.facts.predictor.curve(cell)?;
            let closure_error = ctx.facts.predictor.curve_error(cell)?;
            let exact = ctx.facts.predictor.mse(cell, &exact, check.metric_name());
            let grid = &ctx.facts.plan.cells[cell].grid;
            let measured = ctx.results.curve(cell, check.metric_name());
            let after_start = measured.iter().filter(|(row, _)| row.round > 0);
            let deviations: Vec<Deviation> = after_start
                .filter_map(|(row, values)| {
                    let expected = exact[grid.binary_search(&row.round).ok()?];
                    Some(Deviation::of(values, expected, (tolerance + closure_error) * expected))
                })
                .collect();
            let measured = followed(&deviations, tolerance, ctx.facts.place(point))?;
            if closure_error == 0.0 {
                return Ok(measured);
            }
            let joined = if tolerance > 0.0 { " and" } else { ", beside" };
            let allowance = format!("{}{joined} eps^2 of the closure, {}", measured.allowance, numbers::percent(closure_error));
            Ok(Measured { allowance, ..measured })
        };
        ctx.cells(check)?.into_iter().map(one).collect()
    }

    fn text(&self, check: &Check) -> String {
        format!(
            "the mean {} of {} follows its exact mean-square error: at 95% of the rounds within 3 standard errors, at all within 5",
            check.metric_name(),
            check.method_label()
        )
    }
}
