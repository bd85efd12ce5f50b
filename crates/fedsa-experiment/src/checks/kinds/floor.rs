//! `floor`: floors against a number or a predicted quantity.

use fedsa::error::{BadInput, Result};
use toml::Value;

use crate::checks::allow::{near, seeds_for_allowance};
use crate::checks::facts::{Context, PlanFacts};
use crate::checks::verdict::Measured;
use crate::checks::{CheckKind, Keys, method_of, metric_of, not_negative, number_of};
use crate::config::Check;
use crate::numbers;
use crate::results::{self};

/// The method's floor is within `tolerance` (relative) and `se` standard errors of `expected`: a number or a predicted quantity.
pub struct FloorCheck;

impl CheckKind for FloorCheck {
    fn name(&self) -> &'static str {
        "floor"
    }

    fn keys(&self) -> Keys {
        Keys { needs: &["expected"], needs_one: &[], takes: &["metric", "tolerance", "se", "larger"] }
    }

    fn metrics(&self, check: &Check) -> Vec<&'static str> {
        let against_theory = matches!(check.expected, Some(Value::String(_)));
        if against_theory { results::predicted_metrics() } else { results::metrics() }
    }

    fn may_expect_quantities(&self) -> bool {
        true
    }

    fn accepts(&self, expected: f64) -> Result<(), &'static str> {
        not_negative(expected)
    }

    fn possible(&self, facts: &PlanFacts<'_>, check: &Check, _: usize, cell: usize) -> Result<()> {
        facts.floor(cell, metric_of(check))?;
        if let Some(Value::String(quantity)) = &check.expected {
            facts.predictor.is_level(cell, quantity).map_err(|e| BadInput { key: "expected".into(), ..e })?;
        }
        seeds_for_allowance(facts, check, cell)
    }

    fn measure(&self, ctx: &Context<'_>, check: &Check) -> Result<Vec<Measured>> {
        let one = |(point, cell): (usize, usize)| {
            let expected = match &check.expected {
                Some(Value::String(quantity)) => ctx.facts.predictor.number(cell, quantity)?,
                _ => number_of(check),
            };
            Ok(near(check, &ctx.floors(cell, metric_of(check))?, expected, ctx.facts.place(point)))
        };
        ctx.cells(check)?.into_iter().map(one).collect()
    }

    fn text(&self, check: &Check) -> String {
        let expected = match &check.expected {
            Some(Value::String(quantity)) => format!("its predicted `{quantity}`"),
            _ => numbers::number(number_of(check)),
        };
        format!("the floor of {} of {} is {expected}", metric_of(check), method_of(check))
    }
}
