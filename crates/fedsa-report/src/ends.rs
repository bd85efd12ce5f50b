//! Unexpected endings: how, why, and the remedy.

use fedsa_experiment::numbers;
use serde_json::Value as Json;

use crate::html::escaped;
use crate::run::ReportedRun;

/// The largest number of endings that are listed.
const MOST: usize = 5;

/// A list of a run's unexpected endings in its summary; empty if there are none.
pub fn told(run: &ReportedRun) -> String {
    let results = run.summary["results"].as_array().map_or(&[][..], Vec::as_slice);
    let ends: Vec<String> = results.iter().filter_map(end).collect();
    if ends.is_empty() {
        return String::new();
    }
    let items: String = ends.iter().take(MOST).map(|text| format!("<li>{}</li>\n", escaped(text))).collect();
    let rest = ends.len().saturating_sub(MOST);
    let more = match rest {
        0 => String::new(),
        _ => format!(
            "<li>and {} more of {}, in the table of results</li>\n",
            numbers::thousands(rest as f64),
            numbers::thousands(results.len() as f64)
        ),
    };
    format!("<ul>\n{items}{more}</ul>\n")
}

/// How a result ended, why, and the remedy; `None` if all is well.
fn end(result: &Json) -> Option<String> {
    let point = result["point"].as_str().filter(|point| !point.is_empty()).map_or(String::new(), |point| format!(" at {point}"));
    let what = match result["outcome"].as_str()? {
        "diverged" => diverged(result),
        "stalled" => {
            let why = result["why_stalled"].as_str().map_or(String::new(), |why| format!("; {why}"));
            format!("stalled above its target: {}{why}", missed(result))
        }
        "max-rounds" => format!(
            "ended before it reached its target: {}. If it still falls, more rounds help: the same command with --resume --rounds and a larger number",
            missed(result)
        ),
        "incomplete" => {
            let missing = result["missing_weight"].as_f64().map_or("much".into(), numbers::percent);
            format!("ended without {missing} of the weight on average: the result leans away from the agents that were missing")
        }
        "refused" => format!("was refused and not run: {}", result["reason"].as_str().unwrap_or("no reason is known")),
        _ => return None,
    };
    let expected = if result["as_expected"] == true { " (as expected)" } else { "" };
    Some(format!("{}{point} {what}{expected}.", result["method"].as_str().unwrap_or_default()))
}

fn diverged(result: &Json) -> String {
    // The round of the seed that diverged first.
    let first = if result["diverged_seeds"].as_u64().is_some_and(|seeds| seeds > 1) { " first" } else { "" };
    let round = result["diverged_at_round"]
        .as_u64()
        .map_or(String::new(), |round| format!("{first} in round {}", numbers::thousands(round as f64)));
    let seeds = match (result["diverged_seeds"].as_u64(), result["seeds"].as_u64()) {
        (Some(some), Some(all)) if all > 1 => format!(", {some} of {all} seeds"),
        _ => String::new(),
    };
    let help = match result["largest_stable_step"].as_f64() {
        Some(step) => {
            let of = if result["largest_stable_step_limit"] == "mean" { "its mean converges" } else { "it is stable" };
            format!("its step size is too large: with these settings {of} up to step_size = {}", numbers::rounded_down(step))
        }
        None => "a smaller step_size, fewer local_steps, or a link that alters messages less may help".to_string(),
    };
    // An expected divergence needs no remedy.
    let help = if result["as_expected"] == true { String::new() } else { format!("; {help}") };
    format!("diverged{round}{seeds}: the iterates grew without bound{help}")
}

/// The final distance of a result from its target.
fn missed(result: &Json) -> String {
    let target = &result["target"];
    let number = |key: &str| target[key].as_f64().map_or("not known".into(), numbers::number);
    format!("the {} is {} at the end, and was to be {}", target["metric"].as_str().unwrap_or("metric"), number("reached"), number("asked"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_did_not_end_well_is_told_with_reason_and_remedy() {
        let mut result = json!({
            "method": "FedLSA", "point": "H = 3", "outcome": "diverged", "as_expected": false, "seeds": 2,
            "diverged_seeds": 1, "diverged_at_round": 12, "largest_stable_step": 0.456_78,
        });
        let said = end(&result).unwrap();
        assert!(said.starts_with("FedLSA at H = 3 diverged in round 12, 1 of 2 seeds: "), "{said}");
        result["diverged_seeds"] = json!(2);
        assert!(end(&result).unwrap().starts_with("FedLSA at H = 3 diverged first in round 12, 2 of 2 seeds: "));
        result["diverged_seeds"] = json!(1);
        assert!(said.ends_with("; its step size is too large: with these settings it is stable up to step_size = 0.4567."), "{said}");
        result["largest_stable_step"] = Json::Null;
        result["as_expected"] = json!(true);
        assert!(end(&result).unwrap().ends_with("1 of 2 seeds: the iterates grew without bound (as expected)."));
        result["as_expected"] = json!(false);
        assert!(end(&result).unwrap().contains("a smaller step_size"));
        let stalled = json!({
            "method": "A", "point": "", "outcome": "stalled", "as_expected": false, "why_stalled": "it has reached the rounding error",
            "target": { "metric": "residual", "asked": 1e-9, "reached": 2e-7 },
        });
        assert_eq!(
            end(&stalled).unwrap(),
            "A stalled above its target: the residual is 2e-7 at the end, and was to be 1e-9; it has reached the rounding error."
        );
        assert!(end(&json!({ "method": "A", "outcome": "completed" })).is_none());
    }
}
