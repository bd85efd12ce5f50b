//! `slope`: floors along a coordinate, as a power of it.

use fedsa::error::{Error, Result, require};

use crate::checks::facts::{Context, PlanFacts};
use crate::checks::kind::CheckKind;
use crate::checks::verdict::{Asked, Measured};
use crate::config::Check;
use crate::numbers;
use crate::results::Estimate;

/// Log floor against log `along` has slope `expected` within `tolerance`.
pub struct SlopeCheck;

impl CheckKind for SlopeCheck {
    fn name(&self) -> &'static str {
        "slope"
    }

    fn possible(&self, facts: &PlanFacts<'_>, check: &Check, point: usize, cell: usize) -> Result<()> {
        facts.floor(cell, check.metric_name())?;
        let along = check.along.as_deref().expect("validated");
        let x = facts.plan.points[point].point.number(along);
        let shown = x.map_or_else(|| "text".to_string(), numbers::number);
        require(
            x.is_some_and(|x| x > 0.0),
            "along",
            format!("{along} = {shown}"),
            "a coordinate of positive numbers, whose logarithms are taken",
        )
    }

    fn measure(&self, ctx: &Context<'_>, check: &Check) -> Result<Vec<Measured>> {
        let along = check.along.as_deref().expect("validated");
        let tolerance = check.tolerance.expect("validated");
        let one = |members: Vec<(usize, usize)>| {
            let mut points = Vec::new();
            let mut several = true;
            for (point, cell) in &members {
                let x = ctx.facts.plan.points[*point].point.number(along);
                let x = x.ok_or_else(|| Error::new("along", format!("{along} is not a number"), ""))?;
                let floors = ctx.floors(*cell, check.metric_name())?;
                let Estimate { mean, se } = Estimate::of(&floors);
                if mean <= 0.0 {
                    let what = format!("a floor is 0, which has no logarithm (at {})", ctx.facts.place(*point));
                    return Err(Error::new("", what, ""));
                }
                several &= floors.len() > 1;
                points.push((x.ln(), mean.ln(), se / mean));
            }
            let (slope, se) = fit(&points);
            let error = several.then_some(se);
            let shown = error.map_or(String::new(), |se| format!("; its standard error is {}", numbers::rough(se)));
            let allowance = format!("tolerance {}{shown}", numbers::number(tolerance));
            let asked = Asked::near(check.number(), tolerance);
            Ok(Measured { standard_error: error, allowance, ..Measured::new(slope, asked, ctx.facts.place_of_group(check, members[0].0)) })
        };
        ctx.facts.groups(check, &ctx.cells(check)?)?.into_iter().map(one).collect()
    }

    fn text(&self, check: &Check) -> String {
        let (along, power) = (check.along.as_deref().unwrap_or_default(), numbers::number(check.number()));
        format!("the floor of {} of {} goes as {along} to the power of {power}", check.metric_name(), check.method_label())
    }
}

/// Least squares: the slope of y over x, with its standard error from the standard errors of y.
fn fit(points: &[(f64, f64, f64)]) -> (f64, f64) {
    let n = points.len() as f64;
    let mean_x = points.iter().map(|p| p.0).sum::<f64>() / n;
    let mean_y = points.iter().map(|p| p.1).sum::<f64>() / n;
    let sxx: f64 = points.iter().map(|p| (p.0 - mean_x).powi(2)).sum();
    let sxy: f64 = points.iter().map(|p| (p.0 - mean_x) * (p.1 - mean_y)).sum();
    let var: f64 = points.iter().map(|p| ((p.0 - mean_x) / sxx * p.2).powi(2)).sum();
    (sxy / sxx, var.sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slope_is_fitted_by_least_squares() {
        assert_eq!(fit(&[(0.0, 1.0, 0.0), (1.0, 0.0, 0.0), (2.0, -1.0, 0.0)]), (-1.0, 0.0));
    }
}
