//! `rate`: the factor by which a metric falls in a round.

use fedsa::error::{Error, Result};

use crate::checks::allow::range_of;
use crate::checks::facts::{Context, PlanFacts};
use crate::checks::kind::CheckKind;
use crate::checks::verdict::{Asked, Measured};
use crate::config::Check;
use crate::results::Estimate;

/// The factor by which the metric falls in a round, the geometric mean from round `after` to round `by`, lies between `min` and `max`. For
/// squared distances and losses it is the factor of their root, that is of a distance.
pub struct RateCheck;

impl CheckKind for RateCheck {
    fn name(&self) -> &'static str {
        "rate"
    }

    fn possible(&self, facts: &PlanFacts<'_>, check: &Check, _: usize, cell: usize) -> Result<()> {
        facts.metric(cell, check.metric_name())?;
        facts.round(cell, "after", check.after)?;
        facts.round(cell, "by", check.by)?;
        let (after, by) = (check.after.unwrap_or(0), check.by.unwrap_or(0));
        if after >= by {
            return Err(Error::new("by", format!("round {by}, not later than the round {after} of `after`"), "a later round"));
        }
        Ok(())
    }

    fn measure(&self, ctx: &Context<'_>, check: &Check) -> Result<Vec<Measured>> {
        let name = check.metric_name();
        let degree = fedsa::metrics::metric(name).map_or(1.0, |metric| f64::from(metric.degree));
        let one = |(point, cell): (usize, usize)| {
            let at = |round: u64| -> Result<f64> {
                let curve = ctx.results.curve(cell, name);
                let seen = curve.iter().find(|(row, _)| row.round == round).map(|(_, values)| Estimate::of(values).mean);
                let missing = || Error::new("", format!("round {round} was not recorded, or the run ended before it"), "a recorded round");
                seen.filter(|x| *x > 0.0).ok_or_else(missing)
            };
            let (after, by) = (check.after.unwrap_or(0), check.by.unwrap_or(0));
            let factor = (at(by)? / at(after)?).powf(1.0 / (degree * (by - after) as f64));
            Ok(Measured::new(factor, Asked::within(check.min, check.max), ctx.facts.place(point)))
        };
        ctx.cells(check)?.into_iter().map(one).collect()
    }

    fn text(&self, check: &Check) -> String {
        let (after, by) = (check.after.unwrap_or(0), check.by.unwrap_or(0));
        let (metric, method) = (check.metric_name(), check.method_label());
        format!(
            "the {metric} of {method} falls by a factor a round (of a distance) that is {}, from round {after} to {by}",
            range_of(check)
        )
    }
}
