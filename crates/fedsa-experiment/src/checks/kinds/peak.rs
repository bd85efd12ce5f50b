//! `peak`: the largest value along the rounds.

use fedsa::error::{Error, Result};

use crate::checks::allow::range_of;
use crate::checks::facts::{Context, PlanFacts};
use crate::checks::kind::CheckKind;
use crate::checks::verdict::{Asked, Measured};
use crate::config::Check;
use crate::results::Estimate;

/// The largest mean over seeds of the metric, from round `after` on, lies between `min` and `max`.
pub struct PeakCheck;

impl CheckKind for PeakCheck {
    fn name(&self) -> &'static str {
        "peak"
    }

    fn possible(&self, facts: &PlanFacts<'_>, check: &Check, _: usize, cell: usize) -> Result<()> {
        facts.metric(cell, check.metric_name())?;
        facts.round(cell, "after", check.after)
    }

    fn measure(&self, ctx: &Context<'_>, check: &Check) -> Result<Vec<Measured>> {
        let from = check.after.unwrap_or(0);
        let one = |(point, cell): (usize, usize)| {
            let curve = ctx.results.curve(cell, check.metric_name());
            let means = curve.iter().filter(|(row, _)| row.round >= from).map(|(_, values)| Estimate::of(values).mean);
            let largest = means.reduce(|a, b| if b.is_nan() || b > a { b } else { a });
            let largest = largest.ok_or_else(|| Error::new("", format!("all seeds ended before round {from}"), ""))?;
            Ok(Measured::new(largest, Asked::within(check.min, check.max), ctx.facts.place(point)))
        };
        ctx.cells(check)?.into_iter().map(one).collect()
    }

    fn text(&self, check: &Check) -> String {
        let from = check.after.map_or(String::new(), |t| format!(" from round {t} on"));
        format!("the largest mean {} of {}{from} is {}", check.metric_name(), check.method_label(), range_of(check))
    }
}
