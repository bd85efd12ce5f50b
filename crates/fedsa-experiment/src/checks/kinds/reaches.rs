//! `reaches`: a metric at the end, or by a round.

use fedsa::error::Result;

use crate::checks::allow::{range_of, when};
use crate::checks::facts::{Context, PlanFacts};
use crate::checks::kind::CheckKind;
use crate::checks::verdict::{Asked, Measured};
use crate::config::Check;

/// The metric is at most `max` after the last round, or `by` a round, for every seed.
pub struct ReachesCheck;

impl CheckKind for ReachesCheck {
    fn name(&self) -> &'static str {
        "reaches"
    }

    fn possible(&self, facts: &PlanFacts<'_>, check: &Check, _: usize, cell: usize) -> Result<()> {
        facts.metric(cell, check.metric_name())?;
        facts.round(cell, "by", check.by)
    }

    fn measure(&self, ctx: &Context<'_>, check: &Check) -> Result<Vec<Measured>> {
        let one = |(point, cell): (usize, usize)| {
            let values = ctx.by(cell, check.by, check.metric_name())?;
            // NaN counts as the worst value.
            let worst = values.into_iter().fold(0.0, |a: f64, b| if b.is_nan() || b > a { b } else { a });
            Ok(Measured::new(worst, Asked::within(None, check.max), ctx.facts.place(point)))
        };
        ctx.cells(check)?.into_iter().map(one).collect()
    }

    fn text(&self, check: &Check) -> String {
        format!("{} of {} is {} for every seed {}", check.metric_name(), check.method_label(), range_of(check), when(check))
    }
}
