//! `ratio`: floors of two methods.

use fedsa::error::Result;

use crate::checks::allow::{allowance, paired, range_of, standard_error};
use crate::checks::facts::{Context, PlanFacts};
use crate::checks::kind::CheckKind;
use crate::checks::verdict::{Allowance, Asked, Measured};
use crate::config::Check;
use crate::results::Estimate;

/// Floor of `over` / floor of `method`, paired by seed, lies between `min` and `max`, or within `tolerance` of 1.
pub struct RatioCheck;

impl CheckKind for RatioCheck {
    fn name(&self) -> &'static str {
        "ratio"
    }

    fn possible(&self, facts: &PlanFacts<'_>, check: &Check, point: usize, cell: usize) -> Result<()> {
        facts.floor(cell, check.metric_name())?;
        let over = facts.over(check, point)?;
        facts.floor(over, check.metric_name())?;
        if check.se.is_some_and(|se| se > 0.0) {
            facts.several_seeds(cell, "se")?;
        }
        Ok(())
    }

    fn measure(&self, ctx: &Context<'_>, check: &Check) -> Result<Vec<Measured>> {
        let one = |(point, cell): (usize, usize)| {
            let over = ctx.facts.over(check, point)?;
            let (below, above) = (ctx.floors(cell, check.metric_name())?, ctx.floors(over, check.metric_name())?);
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
        let (method, over) = (check.method_label(), check.over_label());
        format!("the floor of {} of {over} over that of {method} is {expected}", check.metric_name())
    }
}
