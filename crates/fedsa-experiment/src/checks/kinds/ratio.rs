//! `ratio`: floors of two methods.

use fedsa::error::Result;

use crate::checks::allow::{allowance, paired, standard_error};
use crate::checks::facts::{Context, PlanFacts};
use crate::checks::verdict::{Allowance, Asked, Measured};
use crate::checks::{CheckKind, Keys, method_of, metric_of, over_of, range_of};
use crate::config::Check;
use crate::results::Estimate;

/// Floor of `over` / floor of `method`, paired by seed, lies between `min` and `max`, or within `tolerance` of 1.
pub struct RatioCheck;

impl CheckKind for RatioCheck {
    fn name(&self) -> &'static str {
        "ratio"
    }

    fn keys(&self) -> Keys {
        Keys { needs: &["over"], needs_one: &["min", "max", "tolerance"], takes: &["metric", "se"] }
    }

    fn ignored_beside_range(&self) -> &'static [&'static str] {
        &["tolerance"]
    }

    fn possible(&self, facts: &PlanFacts<'_>, check: &Check, point: usize, cell: usize) -> Result<()> {
        facts.floor(cell, metric_of(check))?;
        let over = facts.over(check, point)?;
        facts.floor(over, metric_of(check))?;
        if check.se.is_some_and(|se| se > 0.0) {
            facts.several_seeds(cell, "se")?;
        }
        Ok(())
    }

    fn measure(&self, ctx: &Context<'_>, check: &Check) -> Result<Vec<Measured>> {
        let one = |(point, cell): (usize, usize)| {
            let over = ctx.facts.over(check, point)?;
            let (below, above) = (ctx.floors(cell, metric_of(check))?, ctx.floors(over, metric_of(check))?);
            let Estimate { mean, se } = paired(&above, &below)?;
            // Without `tolerance`, only the standard errors of `se` widen `min` and `max`.
            let allowance = match check.tolerance {
                Some(_) => allowance(check),
                None => Allowance { relative: 0.0, se: check.se.unwrap_or(0.0), larger: false },
            };
            let asked = match check.tolerance {
                Some(_) => Asked::near(1.0, allowance.of(1.0, se)),
                None => Asked::Within {
                    min: check.min.unwrap_or(f64::NEG_INFINITY),
                    max: check.max.unwrap_or(f64::INFINITY),
                    slack: allowance.of(0.0, se),
                },
            };
            let error = standard_error(&above, se);
            Ok(Measured { standard_error: error, allowance: allowance.text(error), ..Measured::new(mean, asked, ctx.facts.place(point)) })
        };
        ctx.cells(check)?.into_iter().map(one).collect()
    }

    fn text(&self, check: &Check) -> String {
        let expected = if check.tolerance.is_some() { "1".to_string() } else { range_of(check) };
        let (method, over) = (method_of(check), over_of(check));
        format!("the floor of {} of {over} over that of {method} is {expected}", metric_of(check))
    }
}
