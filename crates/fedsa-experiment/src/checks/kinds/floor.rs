//! `floor`: floors against a number or a predicted quantity.

use fedsa::error::Result;
use toml::Value;

use crate::checks::allow::{near, seeds_for_allowance};
use crate::checks::facts::{Context, PlanFacts};
use crate::checks::verdict::{Asked, Measured};
use crate::checks::{CheckKind, Keys, method_of, metric_of, not_negative, number_of};
use crate::config::Check;
use crate::numbers;
use crate::results::{self};

/// The method's floor is within `tolerance` (relative) and `se` standard errors of `expected`: a number or a predicted quantity. A
/// closure's eps^2 (relative) is allowed beside.
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
            facts.predictor.is_level(cell, quantity).map_err(|e| e.about("expected"))?;
        }
        seeds_for_allowance(facts, check, cell)
    }

    fn measure(&self, ctx: &Context<'_>, check: &Check) -> Result<Vec<Measured>> {
        let one = |(point, cell): (usize, usize)| {
            let (expected, closure_error) = match &check.expected {
                Some(Value::String(quantity)) => {
                    let predictor = ctx.facts.predictor;
                    (predictor.number(cell, quantity)?, predictor.relative_error(cell, quantity)?)
                }
                _ => (number_of(check), 0.0),
            };
            let measured = near(check, &ctx.floors(cell, metric_of(check))?, expected, ctx.facts.place(point));
            Ok(widened(measured, closure_error))
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

/// A measurement near a number that may be off by `closure_error` (relative), the eps^2 of a closure.
fn widened(measured: Measured, closure_error: f64) -> Measured {
    let Asked::Near { expected, tolerance } = measured.asked else { return measured };
    if closure_error == 0.0 {
        return measured;
    }
    let asked = Asked::near(expected, tolerance + closure_error * expected.abs());
    let joined = if measured.allowance.is_empty() { "" } else { " and " };
    let allowance = format!("{}{joined}eps^2 of the closure, {}", measured.allowance, numbers::percent(closure_error));
    Measured { asked, allowance, weak: asked.is_weak(), ..measured }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closure_widens_what_is_allowed() {
        let measured = Measured { allowance: "3 SE of 0.1".into(), ..Measured::new(2.5, Asked::near(2.0, 0.3), String::new()) };
        let exact = widened(measured.clone(), 0.0);
        assert_eq!((exact.asked, &exact.allowance[..]), (Asked::near(2.0, 0.3), "3 SE of 0.1"));
        let closure = widened(measured, 0.0625);
        assert_eq!(closure.asked, Asked::near(2.0, 0.3 + 0.125));
        assert!(closure.allowance.starts_with("3 SE of 0.1 and eps^2 of the closure, 6.25"), "{}", closure.allowance);
        assert!(!closure.weak);
    }
}
