//! `[[check]]`: comparisons of measured with expected quantities.
//!
//! Each kind of check is a type in `kinds/` that implements `CheckKind`: its conditions on a run, its measurement and its statement in
//! words. [`config::validate`](crate::config::validate) has its keys. [`unmeasured`] finds checks that the plan cannot answer, and
//! [`measure`] measures the results.

mod allow;
mod facts;
mod follow;
mod kind;
mod kinds;
mod verdict;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use fedsa::error::{Error, Result};
use fedsa::kernel::Isa;

use facts::{Context, PlanFacts};
use kind::CheckKind;
use kinds::KINDS;
use verdict::CheckSubject;
pub use verdict::Verdict;

use super::plan::Plan;
use super::predict::Predictor;
use super::results::Results;
use crate::config::schema::Unmeasured;
use crate::config::validate::validate_points;
use crate::config::{Check, Document, Experiment};

fn kind_of(check: &Check) -> &'static dyn CheckKind {
    *KINDS.iter().find(|kind| kind.name() == check.kind).expect("validated")
}

/// Checks that a check can be measured at all its points.
fn possible(facts: &PlanFacts<'_>, check: &Check) -> Result<()> {
    validate_points(&facts.plan.experiment, check, false)?;
    let cells = facts.cells(check, false)?;
    if cells.is_empty() {
        let what = match facts.refusal(check) {
            Some(reason) => format!("{} is refused at every point: {reason}", check.method_label()),
            None => "no point has an eta H in the range of the check".to_string(),
        };
        return Err(Error::new("", what, "a check of a point that is run"));
    }
    let shown = |e: Error, point: usize| {
        let what = format!("{}{}", e.what, facts.at(point));
        e.saying(what)
    };
    for (point, cell) in &cells {
        kind_of(check).possible(facts, check, *point, *cell).map_err(|e| shown(e, *point))?;
        if check.bias_over_noise.is_some() {
            for quantity in ["bias2", "noise"] {
                let known = facts.predictor.knows(*cell, quantity).map_err(|e| e.about("bias_over_noise"));
                known.map_err(|e| shown(e, *point))?;
            }
        }
    }
    if check.along.is_some() {
        facts.groups(check, &cells)?;
    }
    Ok(())
}

/// Refuses a figure of a metric that no cell has.
fn figure_is_measured(plan: &Arc<Plan>) -> Result<()> {
    let predictor = Predictor::new(plan);
    let facts = PlanFacts { plan, predictor: &predictor };
    let cells = || (0..plan.cells.len()).filter(|cell| plan.cells[*cell].refused.is_none());
    for metric in plan.experiment.figure.y.iter().flat_map(|y| y.list()) {
        // The server of a federation computes the residual from the agents' answers.
        let is_taken = |cell: usize| metric == "residual" && plan.field(cell).facts().is_elsewhere();
        let reasons: Option<Vec<Error>> = cells().map(|cell| facts.metric(cell, metric).err().filter(|_| !is_taken(cell))).collect();
        if let Some(first) = reasons.and_then(|reasons| reasons.into_iter().next()) {
            return Err(first.about("figure.y"));
        }
    }
    Ok(())
}

/// For each check of a plan, the reason if it is not measured: options of the command line leave it no seeds, rounds or points, or it has
/// `unmeasured = "note"`.
///
/// # Errors
/// When a check can never be measured; the error shows its line.
pub fn unmeasured(plan: &Arc<Plan>, base: &Path) -> Result<Vec<Option<String>>, Error> {
    figure_is_measured(plan).map_err(|e| plan.experiment.document.failure(e))?;
    let mut reasons = lacks(plan);
    let document = &plan.experiment.document;
    // The file without options; it is planned only if a check cannot be measured.
    let mut plain: Option<Option<(Document, Vec<Option<Error>>)>> = None;
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
fn lacks(plan: &Arc<Plan>) -> Vec<Option<Error>> {
    let predictor = Predictor::new(plan);
    let facts = PlanFacts { plan, predictor: &predictor };
    plan.experiment.checks.iter().map(|check| possible(&facts, check).err()).collect()
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
        method: check.method_label().to_string(),
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

#[cfg(test)]
mod tests {
    use super::KINDS;
    use crate::config::validate::check_kinds;

    #[test]
    fn every_kind_that_a_file_may_name_is_measured() {
        assert_eq!(KINDS.iter().map(|kind| kind.name()).collect::<Vec<_>>(), check_kinds::names());
    }
}
