//! `gap`: the difference of two methods' floors along a coordinate.

use fedsa::error::{Error, Result};

use crate::checks::facts::{Context, PlanFacts};
use crate::checks::kind::CheckKind;
use crate::checks::verdict::{Asked, Measured};
use crate::config::Check;
use crate::numbers;
use crate::results::Estimate;

/// The difference of the floors of `method` and `over` falls by a factor of at least `min` from the first to the last value of `along`.
pub struct GapCheck;

impl CheckKind for GapCheck {
    fn name(&self) -> &'static str {
        "gap"
    }

    fn possible(&self, facts: &PlanFacts<'_>, check: &Check, point: usize, cell: usize) -> Result<()> {
        facts.floor(cell, check.metric_name())?;
        facts.floor(facts.over(check, point)?, check.metric_name())
    }

    fn measure(&self, ctx: &Context<'_>, check: &Check) -> Result<Vec<Measured>> {
        let one = |members: Vec<(usize, usize)>| {
            let gap = |(point, cell): (usize, usize)| -> Result<f64> {
                let other = ctx.facts.over(check, point)?;
                let mean = |cell| Ok::<f64, Error>(Estimate::of(&ctx.floors(cell, check.metric_name())?).mean);
                Ok((mean(cell)? - mean(other)?).abs())
            };
            let (first, last) = (gap(members[0])?, gap(members[members.len() - 1])?);
            if first == 0.0 {
                return Err(Error::new("", "the difference is 0 at the first value", ""));
            }
            Ok(Measured::new(first / last, Asked::within(check.min, None), ctx.facts.place_of_group(check, members[0].0)))
        };
        ctx.facts.groups(check, &ctx.cells(check)?)?.into_iter().map(one).collect()
    }

    fn text(&self, check: &Check) -> String {
        let (method, over, along) = (check.method_label(), check.over_label(), check.along.as_deref().unwrap_or_default());
        let least = numbers::number(check.min.unwrap_or(f64::NAN));
        format!(
            "the difference of the floors of {} of {method} and {over} falls at least {least} times from the first to the last {along}",
            check.metric_name()
        )
    }
}
