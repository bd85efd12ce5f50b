//! `spread`: floors that do not change along a coordinate.

use fedsa::error::Result;

use crate::checks::allow::{allowance, paired, standard_error};
use crate::checks::facts::{Context, PlanFacts};
use crate::checks::kind::CheckKind;
use crate::checks::verdict::{Asked, Measured};
use crate::config::Check;
use crate::results::Estimate;

/// Floors `along` a coordinate stay within `tolerance` of the first floor, paired by seed.
pub struct SpreadCheck;

impl CheckKind for SpreadCheck {
    fn name(&self) -> &'static str {
        "spread"
    }

    fn possible(&self, facts: &PlanFacts<'_>, check: &Check, _: usize, cell: usize) -> Result<()> {
        facts.floor(cell, check.metric_name())?;
        if check.se.is_some_and(|se| se > 0.0) {
            facts.several_seeds(cell, "se")?;
        }
        Ok(())
    }

    fn measure(&self, ctx: &Context<'_>, check: &Check) -> Result<Vec<Measured>> {
        let allowance = allowance(check);
        let mut out = Vec::new();
        for members in ctx.facts.groups(check, &ctx.cells(check)?)? {
            let first = ctx.floors(members[0].1, check.metric_name())?;
            for (point, cell) in &members[1..] {
                let floors = ctx.floors(*cell, check.metric_name())?;
                let Estimate { mean, se } = paired(&floors, &first)?;
                let error = standard_error(&floors, se);
                let asked = Asked::near(1.0, allowance.of(1.0, se));
                out.push(Measured {
                    standard_error: error,
                    allowance: allowance.text(error),
                    ..Measured::new(mean, asked, ctx.facts.place(*point))
                });
            }
        }
        Ok(out)
    }

    fn text(&self, check: &Check) -> String {
        let along = check.along.as_deref().unwrap_or_default();
        format!("the floor of {} of {} is the same at every {along} as at the first", check.metric_name(), check.method_label())
    }
}
