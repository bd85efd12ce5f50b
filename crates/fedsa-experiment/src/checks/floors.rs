//! Checks about floors, and about metrics at single rounds.

use fedsa::error::{BadInput, Result, require};
use toml::Value;

use super::verdict::{Allowance, Asked, Measured};
use super::{Context, Facts, metric_of, number_of, standard_error};
use crate::config::Check;
use crate::results::Estimate;

/// What a check allows beside what it expects.
fn allowance(check: &Check) -> Allowance {
    Allowance { relative: check.tolerance.unwrap_or(0.0), se: check.se.unwrap_or(3.0), larger: check.larger }
}

/// A mean that is asked to be near a number.
fn near(check: &Check, values: &[f64], expected: f64, place: String) -> Measured {
    let (Estimate { mean, se }, allowance) = (Estimate::of(values), allowance(check));
    let error = standard_error(values, se);
    Measured {
        standard_error: error,
        allowance: allowance.text(error),
        ..Measured::new(mean, Asked::near(expected, allowance.of(expected, se)), place)
    }
}

/// Several seeds, where standard errors are asked for, or are all that is allowed.
fn seeds_for_allowance(facts: &Facts<'_>, check: &Check, cell: usize) -> Result<()> {
    match (check.se, check.tolerance) {
        (Some(se), _) if se > 0.0 => facts.several_seeds(cell, "se"),
        (None, None) => facts.several_seeds(cell, ""),
        _ => Ok(()),
    }
}

pub(super) fn floor_possible(facts: &Facts<'_>, check: &Check, _: usize, cell: usize) -> Result<()> {
    facts.floor(cell, metric_of(check))?;
    if let Some(Value::String(quantity)) = &check.expected {
        facts.predictor.knows(cell, quantity).map_err(|e| BadInput { key: "expected".into(), ..e })?;
    }
    seeds_for_allowance(facts, check, cell)
}

pub(super) fn floor(ctx: &Context<'_>, check: &Check) -> Result<Vec<Measured>> {
    let one = |(point, cell): (usize, usize)| {
        let expected = match &check.expected {
            Some(Value::String(quantity)) => ctx.facts.predictor.number(cell, quantity)?,
            _ => number_of(check),
        };
        Ok(near(check, &ctx.floors(cell, metric_of(check))?, expected, ctx.facts.place(point)))
    };
    ctx.cells(check)?.into_iter().map(one).collect()
}

pub(super) fn floor_text(check: &Check) -> String {
    let expected = match &check.expected {
        Some(Value::String(quantity)) => format!("its predicted `{quantity}`"),
        _ => crate::numbers::number(number_of(check)),
    };
    format!("the floor of {} of {} is {expected}", metric_of(check), super::method_of(check))
}

pub(super) fn ratio_possible(facts: &Facts<'_>, check: &Check, point: usize, cell: usize) -> Result<()> {
    facts.floor(cell, metric_of(check))?;
    let over = facts.over(check, point)?;
    facts.floor(over, metric_of(check))?;
    if check.se.is_some_and(|se| se > 0.0) {
        facts.several_seeds(cell, "se")?;
    }
    Ok(())
}

pub(super) fn ratio(ctx: &Context<'_>, check: &Check) -> Result<Vec<Measured>> {
    let one = |(point, cell): (usize, usize)| {
        let over = ctx.facts.over(check, point)?;
        let (below, above) = (ctx.floors(cell, metric_of(check))?, ctx.floors(over, metric_of(check))?);
        let Estimate { mean, se } = paired(&above, &below)?;
        // A stated range of a ratio near 1 allows for noise; a factor to be beaten does not.
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

pub(super) fn ratio_text(check: &Check) -> String {
    let expected = if check.tolerance.is_some() { "1".to_string() } else { super::range_of(check) };
    let (method, over) = (super::method_of(check), super::over_of(check));
    format!("the floor of {} of {over} over that of {method} is {expected}", metric_of(check))
}

/// The ratio of means with the standard error of paired samples.
fn paired(above: &[f64], below: &[f64]) -> Result<Estimate> {
    let scale = Estimate::of(below).mean;
    if scale == 0.0 {
        return Err(BadInput::new("", "the floor that is divided by is 0", ""));
    }
    let mean = Estimate::of(above).mean / scale;
    let residuals: Vec<f64> = above.iter().zip(below).map(|(a, b)| (a - mean * b) / scale).collect();
    Ok(Estimate { mean, se: Estimate::of(&residuals).se })
}

pub(super) fn spread_possible(facts: &Facts<'_>, check: &Check, _: usize, cell: usize) -> Result<()> {
    facts.floor(cell, metric_of(check))?;
    if check.se.is_some_and(|se| se > 0.0) {
        facts.several_seeds(cell, "se")?;
    }
    Ok(())
}

pub(super) fn spread(ctx: &Context<'_>, check: &Check) -> Result<Vec<Measured>> {
    let allowance = allowance(check);
    let mut out = Vec::new();
    for members in ctx.facts.groups(check, &ctx.cells(check)?)? {
        let first = ctx.floors(members[0].1, metric_of(check))?;
        for (point, cell) in &members[1..] {
            let floors = ctx.floors(*cell, metric_of(check))?;
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

pub(super) fn spread_text(check: &Check) -> String {
    let along = check.along.as_deref().unwrap_or_default();
    format!("the floor of {} of {} is the same at every {along} as at the first", metric_of(check), super::method_of(check))
}

pub(super) fn slope_possible(facts: &Facts<'_>, check: &Check, point: usize, cell: usize) -> Result<()> {
    facts.floor(cell, metric_of(check))?;
    let along = check.along.as_deref().expect("validated");
    let x = facts.plan.points[point].point.number(along);
    let shown = x.map_or_else(|| "text".to_string(), crate::numbers::number);
    require(
        x.is_some_and(|x| x > 0.0),
        "along",
        format!("{along} = {shown}"),
        "a coordinate of positive numbers, whose logarithms are taken",
    )
}

pub(super) fn slope(ctx: &Context<'_>, check: &Check) -> Result<Vec<Measured>> {
    let along = check.along.as_deref().expect("validated");
    let tolerance = check.tolerance.expect("validated");
    let one = |members: Vec<(usize, usize)>| {
        let mut points = Vec::new();
        let mut several = true;
        for (point, cell) in &members {
            let x = ctx.facts.plan.points[*point].point.number(along);
            let x = x.ok_or_else(|| BadInput::new("along", format!("{along} is not a number"), ""))?;
            let floors = ctx.floors(*cell, metric_of(check))?;
            let Estimate { mean, se } = Estimate::of(&floors);
            if mean <= 0.0 {
                let what = format!("a floor is 0, which has no logarithm (at {})", ctx.facts.place(*point));
                return Err(BadInput::new("", what, ""));
            }
            several &= floors.len() > 1;
            points.push((x.ln(), mean.ln(), se / mean));
        }
        let (slope, se) = fit(&points);
        let error = several.then_some(se);
        let shown = error.map_or(String::new(), |se| format!("; its standard error is {}", crate::numbers::rough(se)));
        let allowance = format!("tolerance {}{shown}", crate::numbers::number(tolerance));
        let asked = Asked::near(number_of(check), tolerance);
        Ok(Measured { standard_error: error, allowance, ..Measured::new(slope, asked, ctx.facts.place_of_group(check, members[0].0)) })
    };
    ctx.facts.groups(check, &ctx.cells(check)?)?.into_iter().map(one).collect()
}

pub(super) fn slope_text(check: &Check) -> String {
    let (along, power) = (check.along.as_deref().unwrap_or_default(), crate::numbers::number(number_of(check)));
    format!("the floor of {} of {} goes as {along} to the power of {power}", metric_of(check), super::method_of(check))
}

/// Least squares: the slope of y over x, and its standard error from those of y.
fn fit(points: &[(f64, f64, f64)]) -> (f64, f64) {
    let n = points.len() as f64;
    let mean_x = points.iter().map(|p| p.0).sum::<f64>() / n;
    let mean_y = points.iter().map(|p| p.1).sum::<f64>() / n;
    let sxx: f64 = points.iter().map(|p| (p.0 - mean_x).powi(2)).sum();
    let sxy: f64 = points.iter().map(|p| (p.0 - mean_x) * (p.1 - mean_y)).sum();
    let var: f64 = points.iter().map(|p| ((p.0 - mean_x) / sxx * p.2).powi(2)).sum();
    (sxy / sxx, var.sqrt())
}

pub(super) fn reaches_possible(facts: &Facts<'_>, check: &Check, _: usize, cell: usize) -> Result<()> {
    facts.metric(cell, metric_of(check))?;
    facts.round(cell, "by", check.by)
}

pub(super) fn reaches(ctx: &Context<'_>, check: &Check) -> Result<Vec<Measured>> {
    let one = |(point, cell): (usize, usize)| {
        let values = ctx.by(cell, check.by, metric_of(check))?;
        // A number that is none is the worst.
        let worst = values.into_iter().fold(0.0, |a: f64, b| if b.is_nan() || b > a { b } else { a });
        Ok(Measured::new(worst, Asked::within(None, check.max), ctx.facts.place(point)))
    };
    ctx.cells(check)?.into_iter().map(one).collect()
}

pub(super) fn reaches_text(check: &Check) -> String {
    format!("{} of {} is {} for every seed {}", metric_of(check), super::method_of(check), super::range_of(check), when(check))
}

/// When something is measured, in words.
fn when(check: &Check) -> String {
    check.by.map_or_else(|| "at the last round".to_string(), |t| format!("by round {t}"))
}

/// The metric that a `final` check reads, and whether its root is taken.
fn final_metric(check: &Check) -> (&str, bool) {
    match metric_of(check) {
        "distance" => ("mse", true),
        other => (other, false),
    }
}

pub(super) fn final_possible(facts: &Facts<'_>, check: &Check, _: usize, cell: usize) -> Result<()> {
    facts.metric(cell, final_metric(check).0)?;
    facts.round(cell, "by", check.by)?;
    if check.expected.is_some() { seeds_for_allowance(facts, check, cell) } else { Ok(()) }
}

pub(super) fn last(ctx: &Context<'_>, check: &Check) -> Result<Vec<Measured>> {
    let (name, root) = final_metric(check);
    let one = |(point, cell): (usize, usize)| {
        let values = ctx.by(cell, check.by, name)?;
        let values: Vec<f64> = values.into_iter().map(|x| if root { x.sqrt() } else { x }).collect();
        let place = ctx.facts.place(point);
        if check.expected.is_some() {
            return Ok(near(check, &values, number_of(check), place));
        }
        let Estimate { mean, se } = Estimate::of(&values);
        Ok(Measured { standard_error: standard_error(&values, se), ..Measured::new(mean, Asked::within(check.min, check.max), place) })
    };
    ctx.cells(check)?.into_iter().map(one).collect()
}

pub(super) fn final_text(check: &Check) -> String {
    let expected = if check.expected.is_some() { crate::numbers::number(number_of(check)) } else { super::range_of(check) };
    format!("the mean {} of {} is {expected} {}", metric_of(check), super::method_of(check), when(check))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_paired_by_seed() {
        let Estimate { mean, se } = paired(&[2.0, 4.0], &[1.0, 2.0]).unwrap();
        assert_eq!((mean, se), (2.0, 0.0));
        assert!(paired(&[1.0], &[0.0]).is_err());
        assert_eq!(fit(&[(0.0, 1.0, 0.0), (1.0, 0.0, 0.0), (2.0, -1.0, 0.0)]), (-1.0, 0.0));
    }
}
