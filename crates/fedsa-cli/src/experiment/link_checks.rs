//! Checks about what links do to floors and transients.

use fedsa::error::{BadInput, Result};

use super::checks::{Context, Measured, groups, metric_of, range_text};
use super::picture::count_of;
use super::results::Estimate;
use crate::config::Check;

/// How much the difference of two methods' floors falls along a coordinate.
pub(super) fn gap(ctx: &Context<'_>, check: &Check) -> Result<Vec<Measured>> {
    let (over, min) = (check.over.as_deref().expect("validated"), check.min.expect("validated"));
    let each = groups(ctx, check)?.into_iter().map(|members| {
        let gap = |(point, cell): (usize, usize)| -> Result<f64> {
            let other = ctx.other(point, over);
            let mean = |cell| Ok::<f64, BadInput>(Estimate::of(&ctx.floors(cell, metric_of(check))?).mean);
            Ok((mean(cell)? - mean(other)?).abs())
        };
        let (first, last) = (members[0], members[members.len() - 1]);
        let measured = gap(first)? / gap(last)?;
        Ok(Measured {
            measured,
            expected: range_text(min, f64::INFINITY),
            tolerance: "none".into(),
            pass: measured >= min,
            place: ctx.place(first.0),
        })
    });
    each.collect()
}

/// The largest value of the mean over seeds, from some round on.
pub(super) fn peak(ctx: &Context<'_>, check: &Check) -> Result<Vec<Measured>> {
    let (low, high) = (check.min.unwrap_or(f64::NEG_INFINITY), check.max.unwrap_or(f64::INFINITY));
    let from = check.after.unwrap_or(0);
    let each = ctx.cells(check, check.method.as_deref().expect("validated"))?.into_iter().map(|(point, cell)| {
        let curve = ctx.results.curve(cell, metric_of(check));
        let measured = curve.iter().filter(|(row, _)| row.round >= from).map(|(_, v)| Estimate::of(v).mean).fold(f64::NAN, f64::max);
        Ok(Measured {
            measured,
            expected: format!("{}, from round {from} on", range_text(low, high)),
            tolerance: "none".into(),
            pass: measured >= low && measured <= high,
            place: ctx.place(point),
        })
    });
    each.collect()
}

/// What another method pays to reach a level, over what this one pays.
pub(super) fn cost(ctx: &Context<'_>, check: &Check) -> Result<Vec<Measured>> {
    let (over, level) = (check.over.as_deref().expect("validated"), check.level.expect("validated"));
    let (low, high) = (check.min.unwrap_or(f64::NEG_INFINITY), check.max.unwrap_or(f64::INFINITY));
    let count = count_of(check.cost.as_deref().unwrap_or("bits_up"));
    let each = ctx.cells(check, check.method.as_deref().expect("validated"))?.into_iter().map(|(point, cell)| {
        let paid = |cell: usize| {
            let label = &ctx.plan.cells[cell].method.label;
            let missed = || BadInput::new("", format!("{label} does not reach {level:e} ({})", ctx.place(point)), "");
            ctx.results.cost(cell, metric_of(check), level, count).ok_or_else(missed)
        };
        let measured = paid(ctx.other(point, over))? / paid(cell)?;
        Ok(Measured {
            measured,
            expected: range_text(low, high),
            tolerance: "none".into(),
            pass: measured >= low && measured <= high,
            place: ctx.place(point),
        })
    });
    each.collect()
}
