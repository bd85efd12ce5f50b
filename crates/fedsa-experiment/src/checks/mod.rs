//! `[[check]]`: comparisons of measured with expected quantities.
//!
//! A kind of check is a type in `kinds/` that implements `CheckKind`: its keys, its conditions on a run, its measurement
//! and its statement in words. [`validate`] checks the keys, [`unmeasured`] finds checks that the plan cannot answer,
//! and [`measure`] measures the results.

mod allow;
mod facts;
mod follow;
mod kinds;
mod validate;
mod verdict;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use fedsa::error::{BadInput, Error, Result};
use fedsa::kernel::Isa;

use facts::{Context, PlanFacts};
use kinds::KINDS;
pub use validate::validate;
pub use verdict::Verdict;
use verdict::{CheckSubject, Measured};

use super::plan::Plan;
use super::predict::Predictor;
use super::results::{self, Results};
use crate::config::schema::Unmeasured;
use crate::config::{Check, Document, Experiment};

/// One kind of check.
trait CheckKind: Sync {
    /// Its name.
    fn name(&self) -> &'static str;
    /// Its keys.
    fn keys(&self) -> Keys;
    /// The names that `metric` accepts.
    fn metrics(&self, _: &Check) -> Vec<&'static str> {
        results::metrics()
    }
    /// Whether `expected` may name a predicted quantity.
    fn may_expect_quantities(&self) -> bool {
        false
    }
    /// The keys that the check would ignore if `min` or `max` is given.
    fn ignored_beside_range(&self) -> &'static [&'static str] {
        &[]
    }
    /// Refuses an expected number that no run can have. The error is the text of what would be accepted.
    fn accepts(&self, _expected: f64) -> Result<(), &'static str> {
        Ok(())
    }
    /// Checks that a cell at a point can answer a check.
    fn possible(&self, facts: &PlanFacts<'_>, check: &Check, point: usize, cell: usize) -> Result<()>;
    /// The measured values, one per point or group of points of the check.
    fn measure(&self, ctx: &Context<'_>, check: &Check) -> Result<Vec<Measured>>;
    /// The statement in words.
    fn text(&self, check: &Check) -> String;
}

/// The keys of a kind of check, in addition to those that every check may have.
struct Keys {
    /// Required keys.
    needs: &'static [&'static str],
    /// Keys of which at least one is required, if the list is not empty.
    needs_one: &'static [&'static str],
    /// Optional keys.
    takes: &'static [&'static str],
}

/// The names of the kinds.
pub fn kinds() -> Vec<&'static str> {
    KINDS.iter().map(|kind| kind.name()).collect()
}

fn kind_of(check: &Check) -> &'static dyn CheckKind {
    *KINDS.iter().find(|kind| kind.name() == check.kind).expect("validated")
}

/// Refuses a figure of a metric that no cell has.
fn figure_is_measured(plan: &Arc<Plan>) -> Result<()> {
    let predictor = Predictor::new(plan);
    let facts = PlanFacts { plan, predictor: &predictor };
    let cells = || (0..plan.cells.len()).filter(|cell| plan.cells[*cell].refused.is_none());
    for metric in plan.experiment.figure.y.iter().flat_map(|y| y.list()) {
        let reasons: Option<Vec<BadInput>> = cells().map(|cell| facts.metric(cell, metric).err()).collect();
        if let Some(first) = reasons.and_then(|reasons| reasons.into_iter().next()) {
            return Err(first.about("figure.y"));
        }
    }
    Ok(())
}

/// For each check of a plan, the reason why it is not measured, if it is not: options of the command line leave
/// it no seeds, rounds or points, or the check permits this with `unmeasured = "note"`.
///
/// # Errors
/// When a check can never be measured; the failure shows its line.
pub fn unmeasured(plan: &Arc<Plan>, base: &Path) -> Result<Vec<Option<String>>, Error> {
    figure_is_measured(plan).map_err(|e| plan.experiment.document.failure(e))?;
    let mut reasons = lacks(plan);
    let document = &plan.experiment.document;
    // The file without options; it is planned only if a check cannot be measured.
    let mut plain: Option<Option<(Document, Vec<Option<BadInput>>)>> = None;
    for (i, check) in plan.experiment.checks.iter().enumerate() {
        let Some(reason) = reasons[i].clone() else { continue };
        let own = format!("check[{i}]");
        let set_here = document.origins.iter().any(|origin| origin.key.starts_with(&own));
        if check.unmeasured == Unmeasured::Note {
            continue;
        }
        if document.origins.is_empty() || set_here {
            return Err(document.failure(reason.inside(&own)));
        }
        let as_written = plain.get_or_insert_with(|| {
            let document = Document::parse(&document.name, &document.text).ok()?.with_kinds(&document.kinds);
            let experiment = Experiment::read(document.clone()).ok()?;
            // A file that cannot be planned without options allows no comparison.
            let plan = Plan::new(experiment, base, Isa::best(), &HashMap::new()).ok()?;
            Some((document, lacks(&Arc::new(plan))))
        });
        if let Some((document, never)) = as_written
            && let Some(Some(never)) = never.get(i)
        {
            return Err(document.failure(never.clone().inside(&own)));
        }
    }
    Ok(reasons.iter_mut().map(|reason| reason.take().map(|e| e.what)).collect())
}

/// For each check of a plan, the reason why it cannot be measured, if it cannot.
fn lacks(plan: &Arc<Plan>) -> Vec<Option<BadInput>> {
    let predictor = Predictor::new(plan);
    let facts = PlanFacts { plan, predictor: &predictor };
    plan.experiment.checks.iter().map(|check| facts.possible(check).err()).collect()
}

/// Measures all checks, except those with a reason in `unmeasured`.
pub fn measure(plan: &Plan, results: &Results, predictor: &Predictor, unmeasured: &[Option<String>]) -> Vec<Verdict> {
    let context = Context { facts: PlanFacts { plan, predictor }, results };
    let checks = plan.experiment.checks.iter().zip(unmeasured);
    checks
        .map(|(check, why)| match why {
            Some(why) => Verdict::excused(about(check), why.clone()),
            None => Verdict::of(about(check), kind_of(check).measure(&context, check)),
        })
        .collect()
}

/// A check's name, kind, method and statement.
pub fn name(check: &Check) -> String {
    check.name.clone().unwrap_or_else(|| statement(check))
}

fn about(check: &Check) -> CheckSubject {
    CheckSubject {
        name: check.name.clone(),
        kind: check.kind.clone(),
        method: method_of(check).to_string(),
        statement: statement(check),
        expected_to_fail: check.expected_to_fail.clone(),
    }
}

/// A check's statement in words.
pub fn statement(check: &Check) -> String {
    let at: Vec<String> = check.at.iter().map(|(name, value)| format!("{name} = {value}")).collect();
    let at = if at.is_empty() { String::new() } else { format!(" (at {})", at.join(", ")) };
    format!("{}{at}", kind_of(check).text(check))
}

fn metric_of(check: &Check) -> &str {
    check.metric.as_deref().unwrap_or("mse")
}

fn method_of(check: &Check) -> &str {
    check.method.as_deref().expect("validated")
}

fn over_of(check: &Check) -> &str {
    check.over.as_deref().expect("validated")
}

/// The expected number; `None` if `expected` is the name of a quantity or absent.
fn number_of(check: &Check) -> f64 {
    let value = check.expected.as_ref();
    value.and_then(|v| v.as_float().or(v.as_integer().map(|i| i as f64))).unwrap_or(f64::NAN)
}

/// The range of `min` and `max` in words.
fn range_of(check: &Check) -> String {
    verdict::range(check.min.unwrap_or(f64::NEG_INFINITY), check.max.unwrap_or(f64::INFINITY))
}

/// Accepts values that a metric can have.
fn not_negative(expected: f64) -> Result<(), &'static str> {
    if expected >= 0.0 { Ok(()) } else { Err("at least 0, as metrics are") }
}
