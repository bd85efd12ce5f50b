//! `floor`: floors against a number or a predicted quantity.

use fedsa::error::Result;
use toml::Value;

use crate::checks::allow::{near, seeds_for_allowance};
use crate::checks::facts::{Context, PlanFacts};
use crate::checks::kind::CheckKind;
use crate::checks::verdict::{Asked, Measured};
use crate::config::Check;
use crate::numbers;

/// The method's floor is within `tolerance` (relative) and `se` standard errors of `expected`: a number or a predicted quantity. A
/// closure's eps^2 (relative) is allowed in addition.
pub struct FloorCheck;

impl CheckKind for FloorCheck {
    fn name(&self) -> &'static str {
        "floor"
    }

    fn possible(&self, facts: &PlanFacts<'_>, check: &Check, _: usize, cell: usize) -> Result<()> {
        facts.floor(cell, check.metric_name())?;
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
                _ => (check.number(), 0.0),
            };
            let measured = near(check, &ctx.floors(cell, check.metric_name())?, expected, ctx.facts.place(point));
            Ok(falling(widened(measured, closure_error), ctx.results.falls_by(cell, check.metric_name())))
        };
        ctx.cells(check)?.into_iter().map(one).collect()
    }

    fn text(&self, check: &Check) -> String {
        let expected = match &check.expected {
            Some(Value::String(quantity)) => format!("its predicted `{quantity}`"),
            _ => numbers::number(check.number()),
        };
        format!("the floor of {} of {} is {expected}", check.metric_name(), check.method_label())
    }
}

/// A measurement of an error that may still fall: `share` is its decrease over the last fifth of the rounds.
fn falling(measured: Measured, share: Option<f64>) -> Measured {
    let Some(share) = share else { return measured };
    let joined = if measured.allowance.is_empty() { "" } else { "; " };
    let said = format!("no floor yet: it falls by {} over the last fifth of the rounds", numbers::percent(share));
    Measured { allowance: format!("{}{joined}{said}", measured.allowance), ..measured }
}

/// A measurement near a number with the relative error `closure_error`, the eps^2 of a closure.
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
