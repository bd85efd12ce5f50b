//! `coincide`: curves that are the same, round by round.

use fedsa::error::{Error, Result};

use crate::checks::facts::{Context, PlanFacts};
use crate::checks::kind::CheckKind;
use crate::checks::verdict::{Asked, Measured};
use crate::config::Check;
use crate::numbers;

/// The metric of every seed at every recorded round equals the metric at the first point `along` a coordinate, or of the method `over` at
/// the same point, within `tolerance` (relative to the larger one).
pub struct CoincideCheck;

impl CoincideCheck {
    /// The pairs of cells to compare, each with the place of the first one.
    fn pairs(facts: &PlanFacts<'_>, check: &Check, cells: &[(usize, usize)]) -> Result<Vec<(usize, usize, String)>> {
        let with_over = |(point, cell): &(usize, usize)| Ok((*cell, facts.over(check, *point)?, facts.place(*point)));
        if check.along.is_none() {
            return cells.iter().map(with_over).collect();
        }
        let groups = facts.groups(check, cells)?;
        let to_first = |members: &Vec<(usize, usize)>| {
            let first = members[0].1;
            members[1..].iter().map(|(point, cell)| (*cell, first, facts.place(*point))).collect::<Vec<_>>()
        };
        Ok(groups.iter().flat_map(to_first).collect())
    }
}

impl CheckKind for CoincideCheck {
    fn name(&self) -> &'static str {
        "coincide"
    }

    fn possible(&self, facts: &PlanFacts<'_>, check: &Check, point: usize, cell: usize) -> Result<()> {
        if check.along.is_some() && check.over.is_some() {
            let what = "a curve is compared along a coordinate or with another method, not both";
            return Err(Error::new("over", what, "along, or over"));
        }
        facts.metric(cell, check.metric_name())?;
        if check.over.is_some() {
            facts.metric(facts.over(check, point)?, check.metric_name())?;
        }
        Ok(())
    }

    fn measure(&self, ctx: &Context<'_>, check: &Check) -> Result<Vec<Measured>> {
        let tolerance = check.tolerance.expect("validated");
        let one = |(cell, other, place): (usize, usize, String)| {
            let (curves, others) = (ctx.rows(cell, check.metric_name())?, ctx.rows(other, check.metric_name())?);
            let rounds = |curves: &[Vec<(u64, f64)>]| curves.iter().map(|rows| rows.iter().map(|(t, _)| *t).collect()).collect();
            let (here, there): (Vec<Vec<u64>>, Vec<Vec<u64>>) = (rounds(&curves), rounds(&others));
            if here != there {
                return Err(Error::new("", "the two runs have other seeds or recorded other rounds", ""));
            }
            let values = curves.iter().flatten().zip(others.iter().flatten());
            // Equal values deviate by 0, also if both are 0; NaN counts as the worst deviation.
            let deviations = values.map(|((_, x), (_, y))| if x == y { 0.0 } else { (x - y).abs() / x.abs().max(y.abs()) });
            let worst = deviations.fold(0.0, |a: f64, b| if b.is_nan() || b > a { b } else { a });
            let allowance = "the largest relative deviation of a seed at a recorded round".to_string();
            Ok(Measured { allowance, ..Measured::new(worst, Asked::within(None, Some(tolerance)), place) })
        };
        Self::pairs(&ctx.facts, check, &ctx.cells(check)?)?.into_iter().map(one).collect()
    }

    fn text(&self, check: &Check) -> String {
        let (metric, method) = (check.metric_name(), check.method_label());
        let tolerance = numbers::number(check.tolerance.unwrap_or(f64::NAN));
        match (&check.along, &check.over) {
            (Some(along), _) => format!("the curve of {metric} of {method} is the same at every {along}, within {tolerance} relative"),
            (None, over) => {
                let over = over.as_deref().unwrap_or_default();
                format!("the curves of {metric} of {method} and {over} are the same, within {tolerance} relative")
            }
        }
    }
}
