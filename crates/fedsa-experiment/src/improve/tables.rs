//! A policy's value and the ridges that were tried, as tables and as JSON.

use fedsa_evaluate::policy_value::improved::{ImprovedValue, NoWeights};
use fedsa_evaluate::policy_value::{EstimateTable, ValueEstimate};
use fedsa_problems::control::improvement::PolicyEnding;
use serde_json::{Value as Json, json};

use super::ridge::RidgeChoice;
use crate::evaluate::difference_json;
use crate::numbers;
use crate::tables::{Shown, SummaryCell, SummaryColumn, SummaryTable};

/// The ending in files.
pub(crate) fn ending_name(ending: PolicyEnding) -> &'static str {
    match ending {
        PolicyEnding::Settled => "settled",
        PolicyEnding::Cycle(_) => "cycle",
        PolicyEnding::Unsettled => "unsettled",
        PolicyEnding::Diverged => "diverged",
    }
}

fn estimate(e: &ValueEstimate) -> SummaryCell {
    let known = |x: f64| Some(x).filter(|x| x.is_finite());
    known(e.estimate).map_or(SummaryCell::Missing, |x| SummaryCell::Estimate(x, known(e.se)))
}

/// An agent's estimate from its own episodes if there are enough, and otherwise under shared weights.
fn of_agent<'t>(table: &'t EstimateTable, name: &str) -> Option<&'t ValueEstimate> {
    let find = |list: &'t [(String, ValueEstimate)]| list.iter().find(|(other, _)| other == name).map(|(_, e)| e);
    find(&table.own).or_else(|| find(&table.shared))
}

/// Values on held-out episodes, of all agents and of each.
pub(super) fn values(value: &ImprovedValue, rare_pairs: &[(String, f64)]) -> SummaryTable {
    let columns = vec![
        SummaryColumn::left("", Shown::Short),
        SummaryColumn::left("new policy (standard error)", Shown::Short),
        SummaryColumn::left("policy that acted", Shown::Short),
        SummaryColumn::left("difference", Shown::Short),
        SummaryColumn::right("episodes", Shown::Whole),
        SummaryColumn::right("rare", Shown::Short),
    ];
    let mut table = SummaryTable::new("values of start states by fitted values on held-out episodes", columns);
    let rare = |name: &str| rare_pairs.iter().find(|(other, _)| other == name).map(|(_, share)| numbers::percent(*share));
    let rare_of_all = rare_pairs.first().map(|(_, share)| numbers::percent(*share));
    let mut row = |name: &str, new: &ValueEstimate, acted: &ValueEstimate, difference: ValueEstimate, rare: Option<String>| {
        let rare = rare.map_or(SummaryCell::Missing, |share| share.as_str().into());
        table.rows.push(vec![name.into(), estimate(new), estimate(acted), estimate(&difference), (new.episodes as f64).into(), rare]);
    };
    let only = rare_of_all.filter(|_| value.new.shared.len() <= 1);
    row("all agents", &value.new.all, &value.acted.all, value.difference, only);
    if value.new.shared.len() > 1 {
        for (name, _) in &value.new.shared {
            if let (Some(new), Some(acted)) = (of_agent(&value.new, name), of_agent(&value.acted, name)) {
                row(name, new, acted, new.minus(acted, value.level), rare(name));
            }
        }
    }
    if value.difference.se.is_finite() {
        let (low, high) = (numbers::number(value.difference.low), numbers::number(value.difference.high));
        table
            .notes
            .push(format!("the difference is from {low} to {high} ({} interval, paired by episodes)", numbers::percent(value.level)));
    }
    table.notes.push("differences of single agents take their two values as independent".into());
    table.notes.push("rare: logged states in which fewer than 5 rows are behind the chosen action".into());
    if let Ok(weighted) = &value.weighted {
        let robust = weighted.doubly_robust.as_ref().map(|table| ("doubly robust", &table.all));
        for (by, e) in [("by importance sampling", &weighted.importance.all)].into_iter().chain(robust) {
            table.notes.push(format!("{by} the new policy's value is {} ({})", numbers::number(e.estimate), numbers::number(e.se)));
        }
    }
    table
}

/// The ridges that were tried.
pub(super) fn ridges(choice: &RidgeChoice) -> SummaryTable {
    let columns = vec![
        SummaryColumn::right("ridge", Shown::Short),
        SummaryColumn::right("degrees of freedom", Shown::Digits(3)),
        SummaryColumn::left("iteration", Shown::Short),
        SummaryColumn::left("value on held-out episodes", Shown::Short),
    ];
    let mut table = SummaryTable::new("ridges that were tried", columns);
    for tried in &choice.tried {
        let name = if tried.ridge == choice.chosen { "settled, chosen" } else { "settled" };
        let ending = if ending_name(tried.ending) == "settled" { name.to_string() } else { ending_name(tried.ending).to_string() };
        let value = tried.value.as_ref().map_or(SummaryCell::Missing, estimate);
        table.rows.push(vec![tried.ridge.into(), tried.degrees.into(), ending.as_str().into(), value]);
    }
    table
}

/// The ridges that were tried, as JSON.
pub(super) fn ridges_json(choice: &RidgeChoice) -> Json {
    let one = |tried: &super::TriedRidge| {
        let value = tried.value.map(|value| json!({ "estimate": value.estimate, "se": Some(value.se).filter(|se| se.is_finite()) }));
        json!({ "ridge": tried.ridge, "degrees_of_freedom": tried.degrees, "ending": ending_name(tried.ending), "value": value })
    };
    choice.tried.iter().map(one).collect()
}

/// The value on held-out episodes, as JSON.
pub(super) fn value_json(value: Option<&ImprovedValue>) -> Json {
    let Some(value) = value else { return Json::Null };
    let all = |e: &ValueEstimate| {
        let mut one = difference_json(e);
        one["episodes"] = json!(e.episodes);
        one
    };
    let agents = |table: &EstimateTable| -> Json {
        table
            .shared
            .iter()
            .filter_map(|(name, _)| Some((name.clone(), all(of_agent(table, name)?))))
            .collect::<serde_json::Map<_, _>>()
            .into()
    };
    let weighted = match &value.weighted {
        Ok(weighted) => json!({
            "importance": all(&weighted.importance.all),
            "doubly_robust": weighted.doubly_robust.as_ref().map(|table| all(&table.all)),
        }),
        Err(why) => json!({ "missing": match why {
            NoWeights::NoProbabilities => "the logs have no column `behaviour`".to_string(),
            NoWeights::FewEffective(n) => format!("ratios leave {} effective episodes or rows", numbers::digits(*n, 2)),
            NoWeights::WrongRatios => "the logged probabilities cannot be those of the policy that acted".into(),
        } }),
    };
    let possible = [value.possible.low, value.possible.high].map(|x| Some(x).filter(|x| x.is_finite()));
    json!({
        "level": value.level,
        "new": all(&value.new.all),
        "acted": all(&value.acted.all),
        "difference": all(&value.difference),
        "new_by_agent": agents(&value.new),
        "acted_by_agent": agents(&value.acted),
        "weighted": weighted,
        "possible": possible,
    })
}
