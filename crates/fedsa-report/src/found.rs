//! The first lines of the page: what ran, and the result of a tuning or an evaluation, in sentences.

use std::collections::BTreeMap;

use fedsa_experiment::numbers::{digits, number, percent, rough, thousands};
use serde_json::Value as Json;

use crate::html::clipped;
use crate::run::ReportedRun;

/// The largest number of methods with their settings.
const MAX_METHODS: usize = 6;

/// The experiment that ran: the problem, rounds and seeds, methods with their steps, and sweeps. Empty if the settings are unknown.
pub fn ran(run: &ReportedRun) -> String {
    let Ok(settings) = run.config.parse::<toml::Table>() else { return String::new() };
    let part = |name: &str| settings.get(name).and_then(toml::Value::as_table);
    let mut parts = Vec::new();
    if let Some(problem) = part("problem") {
        let kind = problem.get("kind").and_then(toml::Value::as_str).unwrap_or("own");
        let known = |key: &str| run.summary["problem"][key].as_u64().or_else(|| problem.get(key)?.as_integer()?.try_into().ok());
        let agents = known("agents").map_or(String::new(), |n| format!(", {} agents", thousands(n as f64)));
        let dim = known("dim").map_or(String::new(), |n| format!(", dimension {}", thousands(n as f64)));
        let sampling =
            part("sampling").and_then(|sampling| sampling.get("kind")?.as_str()).map_or(String::new(), |kind| format!(", {kind} sampling"));
        parts.push(format!("Problem {kind}{agents}{dim}{sampling}."));
    }
    if run.table.is_none() {
        // The settings of a tuning belong to its answer.
        return parts.join(" ");
    }
    if let Some(run) = part("run").filter(|_| settings.contains_key("method")) {
        let rounds = run.get("rounds").and_then(toml::Value::as_integer).map(|n| format!("{} rounds at most", thousands(n as f64)));
        let seeds = match run.get("seeds") {
            Some(toml::Value::Array(list)) => list.len() as i64,
            Some(toml::Value::Integer(n)) => *n,
            _ => 1,
        };
        let seeds = format!("{seeds} {}", if seeds == 1 { "seed" } else { "seeds" });
        parts.push(format!("{}.", rounds.into_iter().chain([seeds]).collect::<Vec<_>>().join(", ")));
    }
    let methods: Vec<String> = settings.get("method").and_then(toml::Value::as_array).into_iter().flatten().filter_map(method).collect();
    if !methods.is_empty() {
        let more = if methods.len() > MAX_METHODS { format!(" and {} more", methods.len() - MAX_METHODS) } else { String::new() };
        parts.push(format!("Methods: {}{more}.", methods[..methods.len().min(MAX_METHODS)].join("; ")));
    }
    let swept: Vec<String> = settings.get("sweep").and_then(toml::Value::as_array).into_iter().flatten().filter_map(swept).collect();
    if !swept.is_empty() {
        parts.push(format!("Swept: {}.", swept.join("; ")));
    }
    let variants = settings.get("variant").and_then(toml::Value::as_array).map_or(0, Vec::len);
    if variants > 0 {
        parts.push(format!("{} {}.", thousands(variants as f64), if variants == 1 { "variant" } else { "variants" }));
    }
    parts.join(" ")
}

/// A method with its steps.
fn method(settings: &toml::Value) -> Option<String> {
    let text = |key: &str| settings.get(key).and_then(toml::Value::as_str);
    let (kind, label) = (text("kind")?, text("label").unwrap_or_else(|| text("kind").unwrap_or_default()));
    let kind = if kind.eq_ignore_ascii_case(label) { None } else { Some(kind.to_string()) };
    let value = |key: &str| settings.get(key).filter(|value| value.is_integer() || value.is_float()).map(|value| format!("{key} {value}"));
    let about: Vec<String> =
        kind.into_iter().chain(["step_size", "local_steps", "participants"].iter().filter_map(|key| value(key))).collect();
    let about = if about.is_empty() { String::new() } else { format!(" ({})", about.join(", ")) };
    Some(format!("{}{about}", clipped(label, 60)))
}

/// The key of a sweep, and its number of values.
fn swept(sweep: &toml::Value) -> Option<String> {
    let keys = || {
        let keys: Vec<&str> = sweep.get("keys")?.as_array()?.iter().filter_map(toml::Value::as_str).collect();
        Some(keys.join(" with "))
    };
    let name = |key: &str| sweep.get(key).and_then(toml::Value::as_str).map(str::to_string);
    let key = name("name").or_else(|| name("key")).or_else(keys)?;
    let values = sweep.get("values").or_else(|| sweep.get("points")).and_then(toml::Value::as_array).map(Vec::len);
    Some(values.map_or_else(|| key.clone(), |n| format!("{key}, {} values", thousands(n as f64))))
}

/// The result of a tuning or an evaluation.
pub fn found(run: &ReportedRun) -> Vec<String> {
    let summary = &run.summary;
    let found = [answer(summary), limits(summary), policy_value(&summary["policy_value"]), held_out(&run.held_out)];
    found.into_iter().flatten().collect()
}

/// The answer of a tuning.
fn answer(summary: &Json) -> Option<String> {
    let (answer, options) = (&summary["answer"], &summary["options"]);
    let method = answer["method"].as_str()?;
    let with = [("step_size", "step size"), ("local_steps", "local steps"), ("global_step_size", "global step size")];
    let with: Vec<String> = with.iter().filter_map(|(key, name)| Some(format!("{name} {}", digits(answer[*key].as_f64()?, 4)))).collect();
    let costs = ["rounds", "bits", "samples", "seconds"];
    let costs: Vec<String> = costs.iter().filter_map(|key| Some(format!("{} {key}", thousands(answer["cost"][*key].as_f64()?)))).collect();
    let evidence = &answer["evidence"];
    let by = evidence["accuracy"]["status"].as_str().map_or(String::new(), |status| format!(" ({})", status.replace('_', " ")));
    let by = evidence["by"].as_str().map_or(String::new(), |way| format!(", by {way}{by}"));
    let error = answer["mse"].as_f64().map_or(String::new(), |mse| format!(" The mean-square error is then {}{by}", number(mse)));
    let asked = options["target_mse"].as_f64().map_or(String::new(), |target| format!("; asked was {}", number(target)));
    let least = options["objective"].as_str().map_or(String::new(), |cost| format!(" with the fewest {cost}"));
    Some(format!("{method} reaches the target{least}, with {}: {}.{error}{asked}.", with.join(", "), costs.join(", ")))
}

/// Limits that may have prevented a better answer of a tuning.
fn limits(summary: &Json) -> Option<String> {
    let (answer, options) = (&summary["answer"], &summary["options"]);
    let mut limits = Vec::new();
    if let (Some(own), Some(most)) = (answer["local_steps"].as_u64(), options["max_local_steps"].as_u64())
        && own == most
        && most > 1
        && options["local_steps"].is_null()
    {
        limits.push(format!("The answer has the most local steps that may be chosen, {most}: with more there may be a better one."));
    }
    let ended = |key: &str| summary[key]["budget_exhausted"] == true;
    if ended("theory") || ended("pilots") || summary["time_limit_reached"] == true {
        limits.push("The budget or the time limit ended the search early: with more there may be a better answer.".into());
    }
    (!limits.is_empty()).then(|| limits.join(" "))
}

/// The value of a policy, by the fitted value function and by the returns of the logs.
fn policy_value(value: &Json) -> Option<String> {
    let of = |way: &str| {
        let all = &value[way]["all"];
        let number = |key: &str| all[key].as_f64();
        let (estimate, se) = (number("estimate")?, number("se"));
        let error = se.map_or(String::new(), |se| format!(" \u{b1} {}", rough(se)));
        let level = value["level"].as_f64().map_or(String::new(), |level| format!("{} ", percent(level)));
        let interval =
            number("low").zip(number("high")).map(|(low, high)| format!(" ({level}interval {} to {})", digits(low, 4), digits(high, 4)));
        Some(format!("{}{error}{}", digits(estimate, 4), interval.unwrap_or_default()))
    };
    let returns = of("importance").map_or(String::new(), |text| format!("; by the returns of the episodes it is {text}"));
    Some(format!("The policy's value in the states in which episodes start is {} by the fitted value function{returns}.", of("fitted")?))
}

/// Whether the federation helps on held-out data.
fn held_out(held_out: &Json) -> Option<String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let agents = held_out["agents"].as_array()?;
    for agent in agents {
        *counts.entry(agent["return_error"]["own_minus_federated"]["helps"].as_str()?).or_default() += 1;
    }
    let count = |word: &str| counts.get(word).copied().unwrap_or(0);
    Some(format!(
        "On the {} of the episodes that were held out, the federated weights predict returns better than an agent's own at {} of {} agents, \
         worse at {}; at {} the difference is within its error.",
        percent(held_out["share"].as_f64()?),
        count("yes"),
        agents.len(),
        count("no"),
        count("not clear"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fedsa_experiment::finished::RunState;
    use serde_json::json;

    fn run(config: &str, summary: Json, held_out: Json) -> ReportedRun {
        let table = Some(crate::rounds::RecordedRounds::default());
        ReportedRun { config: config.into(), held_out, table, ..ReportedRun::of("x".as_ref(), "x".into(), RunState::Finished, summary) }
    }

    #[test]
    fn the_first_lines_say_what_was_run() {
        let config = "[problem]\nkind = \"garnet\"\nagents = 100\n[sampling]\nkind = \"iid\"\n[[method]]\nkind = \"fedlsa\"\nlabel = \"FedLSA\"\n\
                      step_size = 0.01\nlocal_steps = 10000\n[[method]]\nkind = \"scafflsa\"\nlabel = \"ours\"\nstep_size = { kind = \"decay\" }\n\
                      [run]\nrounds = 1000\nseeds = [0, 1]\n[[sweep]]\nkey = \"problem.seed\"\nvalues = [1, 2, 3]\n";
        assert_eq!(
            ran(&run(config, json!({ "problem": { "dim": 8 } }), Json::Null)),
            "Problem garnet, 100 agents, dimension 8, iid sampling. 1,000 rounds at most, 2 seeds. Methods: FedLSA (step_size 0.01, \
             local_steps 10000); ours (scafflsa). Swept: problem.seed, 3 values."
        );
        assert_eq!(ran(&run("", Json::Null, Json::Null)), "");
    }

    #[test]
    fn keys_that_are_swept_together_and_variants_are_named() {
        let config =
            "[[sweep]]\nkeys = [\"method.*.local_steps\", \"run.rounds\"]\nvalues = [[1, 100], [10, 10]]\n[[variant]]\nlabel = \"a\"\n";
        let table = Some(crate::rounds::from_lines(""));
        let run = ReportedRun { table, ..run(config, Json::Null, Json::Null) };
        assert_eq!(ran(&run), "Swept: method.*.local_steps with run.rounds, 2 values. 1 variant.");
    }

    #[test]
    fn the_first_lines_say_what_may_have_kept_a_tuning_from_a_better_answer() {
        let of = |steps: u64, given: Json, cut: bool| {
            let options = json!({ "max_local_steps": 1000, "local_steps": given });
            limits(&json!({ "answer": { "local_steps": steps }, "options": options, "pilots": { "budget_exhausted": cut } }))
        };
        assert_eq!(of(10, Json::Null, false), None);
        assert_eq!(of(1000, json!([1000]), false), None);
        assert!(of(1000, Json::Null, false).unwrap().contains("most local steps that may be chosen, 1000"));
        assert!(of(10, Json::Null, true).unwrap().contains("ended the search early"));
    }

    #[test]
    fn the_first_lines_say_what_was_found() {
        let summary = json!({
            "options": { "target_mse": 0.02, "objective": "bits" },
            "answer": { "method": "scafflsa", "step_size": 0.416, "local_steps": 1000, "cost": { "rounds": 26, "bits": 161_408.0 }, "mse": 0.01976,
                "evidence": { "by": "theory", "accuracy": { "status": "exact" } } },
        });
        assert_eq!(
            found(&run("", summary, Json::Null)),
            ["scafflsa reaches the target with the fewest bits, with step size 0.416, local steps 1000: 26 rounds, 161,408 bits. \
              The mean-square error is then 0.0198, by theory (exact); asked was 0.02."]
        );
        let all = json!({ "estimate": 17.1201, "se": 0.0607, "low": 17.001, "high": 17.239 });
        let agent = |helps: &str| json!({ "return_error": { "own_minus_federated": { "helps": helps } } });
        let said = found(&run(
            "",
            json!({ "policy_value": { "level": 0.95, "fitted": { "all": all } } }),
            json!({ "share": 0.2, "agents": [agent("yes"), agent("no"), agent("yes"), agent("not clear")] }),
        ));
        assert!(said[0].contains("is 17.12 \u{b1} 0.061 (95% interval 17.00 to 17.24) by the fitted"), "{said:?}");
        assert!(said[1].contains("better than an agent's own at 2 of 4 agents, worse at 1; at 1"), "{said:?}");
        assert!(found(&run("", json!({ "results": [] }), Json::Null)).is_empty());
    }
}
