//! The report as JSON. Its fields are documented in `docs/src/guides/theory.md`.

use serde_json::{Map, Value as Json, json};

use super::reason::{KnownOrReason, Reason, ReasonCode};
use super::{MethodTheory, SettingChange, Theorems, TheoryReport};

pub(super) fn report(report: &TheoryReport) -> Json {
    let problems: Vec<Json> = report.problems.iter().map(|problem| problem.numbers.clone()).collect();
    let methods: Vec<Json> = report.methods.iter().map(method).collect();
    json!({ "id": report.id, "title": report.title, "problems": problems, "methods": methods, "left_out": report.left_out })
}

/// Numbers, and the reasons for those that are null.
#[derive(Default)]
struct Table {
    out: Map<String, Json>,
    unknown: Map<String, Json>,
}

impl Table {
    fn put(&mut self, name: &str, value: impl Into<Json>) {
        self.out.insert(name.into(), value.into());
    }

    /// A value, or null with its reason.
    fn known<T: serde::Serialize>(&mut self, name: &str, value: &KnownOrReason<T>) {
        match value {
            Ok(x) => self.put(name, json!(x)),
            Err(reason) => {
                self.put(name, Json::Null);
                self.unknown.insert(name.into(), json!(reason));
            }
        }
    }

    /// A number, or null with its reason; infinity is null.
    fn number(&mut self, name: &str, value: &KnownOrReason<f64>) {
        let infinite = || Err(Reason::text(ReasonCode::Infinite, "it is infinite"));
        self.known(name, &value.clone().and_then(|x| if x.is_finite() { Ok(x) } else { infinite() }));
    }
}

fn method(method: &MethodTheory) -> Json {
    let mut table = Table::default();
    table.put("method", method.label.as_str());
    table.put("kind", method.kind);
    table.put("point", method.point.as_str());
    table.put("problem", method.problem);
    for (name, value) in &method.quantities {
        table.number(name, value);
    }
    if let Some(largest) = &method.stability.largest {
        table.number("largest_stable_step", &largest.clone().map(|found| found.step));
        if let Ok(found) = largest {
            table.put("largest_stable_step_limit", found.limit());
        }
    } else {
        table.known::<f64>("largest_stable_step", &Err(method.rounds.clone().err().unwrap_or_else(no_steps)));
    }
    table.put("limits", limits(method));
    table.put("changes", method.changes.iter().map(change).collect::<Vec<_>>());
    let accuracies: Map<String, Json> = method.accuracies.iter().map(|(name, accuracy)| ((*name).into(), json!(accuracy))).collect();
    if !accuracies.is_empty() {
        table.put("accuracy", accuracies);
    }
    // One warning for all quantities of one closure.
    if let Some(warning) = method.accuracies.iter().find_map(|(_, accuracy)| accuracy.warning()) {
        table.put("warning", warning);
    }
    if let Some(schedule) = &method.schedule {
        table.put("corollary_1_step_size", json!(schedule));
    }
    if let Some(explanation) = &method.leading_order {
        table.put("leading_order", json!(explanation));
    }
    table.known("stable", &method.outlook.stable().map_err(|why| Reason::text(ReasonCode::NotKnown, why)));
    if let Some(limit) = &method.limit {
        table.known("limit", limit);
        let mean = method.mean_from_zero.iter().map(|(t, theta)| json!({ "round": t, "theta": theta })).collect::<Vec<_>>();
        table.put("mean_iterate_from_zero", mean);
    }
    if let Some(theorems) = &method.theorems {
        let statements = theorems.statements.as_ref().map(|all| all.iter().map(|one| statement(one, theorems)).collect::<Vec<_>>());
        table.known("statements", &statements.map_err(Clone::clone));
    }
    if let Some(privacy) = &method.privacy {
        table.put("privacy", privacy.json());
    }
    if let Some(target) = &method.target {
        let mut target = target.json();
        target["corollaries"] = json!(method.theorems.as_ref().map_or(&[][..], |theorems| &theorems.choices[..]));
        table.put("target", target);
    }
    let Table { mut out, unknown } = table;
    if !unknown.is_empty() {
        out.insert("unknown".into(), unknown.into());
    }
    out.into()
}

/// The parts of the floor, or the reason why it is unknown.
fn limits(method: &MethodTheory) -> Json {
    match &method.limits {
        Err(reason) => json!({ "unknown": reason }),
        Ok(limits) => json!({
            "floor": limits.floor,
            "bias": limits.bias,
            "samples": limits.samples,
            "mixing": limits.mixing,
            "link": limits.link,
            "participation": limits.participation,
            "accuracy": limits.accuracy,
            "warning": limits.accuracy.warning(),
        }),
    }
}

/// The floor with one setting changed.
fn change(change: &SettingChange) -> Json {
    json!({
        "change": change.what,
        "floor": change.floor.as_ref().ok().map(|floor| floor.floor),
        "why": change.floor.as_ref().err().map(|reason| &reason.text),
    })
}

fn no_steps() -> Reason {
    Reason::text(ReasonCode::NotKnown, "not asked for")
}

fn statement(statement: &fedsa_theory::predict::Statement, theorems: &Theorems) -> Json {
    let mut entry = json!(statement);
    entry["holds"] = json!(statement.holds());
    entry["rounds"] = json!(theorems.rounds);
    entry
}
