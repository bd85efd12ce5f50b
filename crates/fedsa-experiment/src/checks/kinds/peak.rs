//! `peak`: the largest value along the rounds.

use fedsa::error::{BadInput, Result};

use crate::checks::facts::{Context, PlanFacts};
use crate::checks::verdict::{Asked, Measured};
use crate::checks::{CheckKind, Keys, method_of, metric_of, range_of};
use crate::config::Check;
use crate::results::Estimate;

/// The largest value of the metric, of the mean over seeds from round `after` on, lies between `min` and `max`.
pub struct PeakCheck;

impl CheckKind for PeakCheck {
    fn name(&self) -> &'static str {
        "peak"
    }

    fn keys(&self) -> Keys {
        Keys { needs: &[], needs_one: &["min", "max"], takes: &["metric", "after"] }
    }

    fn possible(&self, facts: &PlanFacts<'_>, check: &Check, _: usize, cell: usize) -> Result<()> {
        facts.metric(cell, metric_of(check))?;
        facts.round(cell, "after", check.after)
    }

    fn measure(&self, ctx: &Context<'_>, check: &Check) -> Result<Vec<Measured>> {
        let from = check.after.unwrap_or(0);
        let one = |(point, cell): (usize, usize)| {
            let curve = ctx.results.curve(cell, metric_of(check));
            let means = curve.iter().filter(|(row, _)| row.round >= from).map(|(_, values)| Estimate::of(values).mean);
            let largest = means.reduce(|a, b| if b.is_nan() || b > a { b } else { a });
            let largest = largest.ok_or_else(|| BadInput::new("", format!("all seeds ended before round {from}"), ""))?;
            Ok(Measured::new(largest, Asked::within(check.min, check.max), ctx.facts.place(point)))
        };
        ctx.cells(check)?.into_iter().map(one).collect()
    }

    fn text(&self, check: &Check) -> String {
        let from = check.after.map_or(String::new(), |t| format!(" from round {t} on"));
        format!("the largest mean {} of {}{from} is {}", metric_of(check), method_of(check), range_of(check))
    }
}
