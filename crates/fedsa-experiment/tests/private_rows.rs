//! Privacy of rows: LSTD and least squares from sums that are released once.

use std::collections::HashMap;
use std::path::Path;

use fedsa::cancel::Cancel;
use fedsa::error::Error;
use fedsa::kernel::Isa;
use fedsa::problem::systems::System;
use fedsa_experiment::config::{Document, Experiment};
use fedsa_experiment::run::{Job, RunOutcome};
use fedsa_experiment::theory::{TheorySettings, theory};
use fedsa_experiment::tune::{TuneOutcome, TuneSettings, tune};
use fedsa_experiment::{Plan, RunSettings, Unobserved};
use serde_json::Value as Json;

use crate::deployment::{agent_of, file, made, settings};

const AGENTS: usize = 4;
const EACH: usize = 500;

/// Rows of four agents around a line, and logs of four agents.
fn files(folder: &Path, is_log: bool) -> Vec<String> {
    let table = |agent: usize| {
        let row = |i: usize| {
            let wave = |k: f64| (k * (i * AGENTS + agent) as f64).sin();
            if is_log {
                let (x, next, done) = (0.8 * wave(0.37), 0.8 * wave(0.37 + 0.011), i % 25 == 24);
                return format!("{x},{},{next},{done}\n", 0.5 + 0.3 * x);
            }
            let (a, b) = (0.9 * wave(0.7), 0.9 * wave(1.3));
            format!("{a},{b},{}\n", 0.6 * a - 0.4 * b + 0.1 * wave(2.9))
        };
        let head = if is_log { "s_0,reward,next_0,done\n" } else { "a,b,y\n" };
        head.to_string() + &(0..EACH).map(row).collect::<String>()
    };
    (0..AGENTS).map(|agent| file(folder, &format!("{}_{agent}.csv", if is_log { "log" } else { "rows" }), &table(agent))).collect()
}

/// An experiment of LSTD with privacy; `more` are further keys of the privacy.
fn text(problem: &str, more: &str, seeds: u64) -> String {
    let media = format!(
        "[{{ kind = \"secure-sum\", bound = 2.0, bits = 44, least_agents = 3, privacy = {{ epsilon = 1.0, delta = 1e-6, rounds = 1, {more} }} }}]"
    );
    format!(
        "id = \"t\"\ntitle = \"t\"\nproblem = {problem}\nsampling = {{ kind = \"mean\" }}\n\
         method = [{{ kind = \"lstd\", label = \"m\", uplink = {{ media = {media} }} }}]\n[run]\nrounds = 1\nseeds = {seeds}\n"
    )
}

fn problem(files: &[String], is_log: bool, clip: &str) -> String {
    if is_log {
        return format!(
            "{{ kind = \"logs\", path = {files:?}, features = {{ kind = \"identity\", bias = true }}, gamma = 0.5, clip = {clip} }}"
        );
    }
    format!("{{ kind = \"least-squares\", data = {files:?}, target = \"y\", partition = \"files\", weighting = \"rows\", clip = {clip} }}")
}

fn experiment(text: &str) -> Result<Experiment, Error> {
    Experiment::read(Document::parse("t.toml", text)?)
}

fn errors(text: &str) -> Result<Vec<f64>, Error> {
    let RunOutcome::Done(ran) = Job::new(experiment(text)?, RunSettings::default()).run(&Unobserved, &Cancel::never())? else {
        unreachable!()
    };
    Ok(ran.results.cells[0].iter().map(|seed| seed.rows.last().unwrap().seen.mse.unwrap()).collect())
}

fn predicted(text: &str) -> Json {
    let report = theory(experiment(text).unwrap(), Path::new(""), TheorySettings::default(), &|_| (), &Cancel::never()).unwrap();
    report.json()["methods"][0]["privacy"].clone()
}

#[test]
fn the_error_of_one_release_is_the_predicted_one() {
    let folder = tempfile::tempdir().unwrap();
    for (is_log, unit, relation) in
        [(false, "row", "removed"), (false, "row", "replaced"), (true, "row", "removed"), (true, "episode", "removed")]
    {
        let files = files(folder.path(), is_log);
        // Episodes of 25 rows have larger parts.
        let problem = problem(&files, is_log, &format!("{{ unit = \"{unit}\", norm = 2.0 }}"));
        let text = text(&problem, &format!("unit = \"{unit}\", relation = \"{relation}\", rows = {}", AGENTS * EACH), 400);
        let all = errors(&text).unwrap();
        let n = all.len() as f64;
        let mean = all.iter().sum::<f64>() / n;
        let se = (all.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n * (n - 1.0))).sqrt();
        let of = predicted(&text);
        let mse = of["mse"].as_f64().unwrap();
        // The expansion is exact to second order: 6% while the noise of A is a small part of it.
        assert!((mean - mse).abs() < 3.0 * se + 0.06 * mse, "{unit} {relation}: {mean} +- {se}, predicted {mse}");
        assert!(mean > 0.0 && of["unit"].as_str().unwrap().starts_with(if unit == "row" { "a row" } else { "an episode" }));
    }
}

#[test]
fn half_the_epsilon_and_half_the_rows_have_four_times_the_error() {
    let folder = tempfile::tempdir().unwrap();
    let problem = problem(&files(folder.path(), false), false, "{ unit = \"row\", norm = 2.0 }");
    let mse = |more: &str| predicted(&text(&problem, more, 1))["mse"].as_f64().unwrap();
    let own = mse("unit = \"row\", rows = 2000");
    let of_half = mse("unit = \"row\", rows = 1000") / own;
    let replaced = mse("unit = \"row\", relation = \"replaced\", rows = 2000") / own;
    assert!((of_half - 4.0).abs() < 0.1 && (replaced - 4.0).abs() < 0.1, "{of_half} {replaced}");
}

#[test]
fn what_would_not_be_private_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (rows, logs) = (files(folder.path(), false), files(folder.path(), true));
    let clip = "{ unit = \"row\", norm = 2.0 }";
    let of = |problem: &str, more: &str| errors(&text(problem, more, 1)).err().map(|e| e.key);
    let plain = problem(&rows, false, clip).replace(&format!(", clip = {clip}"), "");
    let unit = Some("method[0].uplink.media.privacy.unit".to_string());
    assert_eq!(of(&plain, "unit = \"row\", rows = 2000"), unit);
    assert_eq!(of(&problem(&rows, false, "{ unit = \"row\", norm = 2.5 }"), "unit = \"row\", rows = 2000"), unit);
    assert_eq!(of(&problem(&logs, true, clip), "unit = \"episode\", rows = 2000"), unit);
    // A row would count by more than 1 / rows, or an agent has more rows than is accounted for.
    for n in [2001, 900] {
        let key = of(&problem(&rows, false, clip), &format!("unit = \"row\", rows = {n}")).unwrap();
        assert_eq!(key, "method[0].uplink.media.privacy.rows", "{n}");
    }
    for more in ["unit = \"row\"", "rows = 2000"] {
        assert!(of(&problem(&rows, false, clip), more).unwrap().ends_with("privacy.rows"), "{more}");
    }
    let newton = text(&problem(&rows, false, clip), "unit = \"row\", rows = 2000", 1).replace("\"lstd\"", "\"newton\"");
    assert!(errors(&newton).unwrap_err().what.contains("more than sums over rows"));
    let twice = text(&problem(&rows, false, clip), "unit = \"row\", rows = 2000", 1).replace("rounds = 1, ", "rounds = 2, ");
    assert!(errors(&twice).unwrap_err().what.contains("several releases"));
    for more in ["standardise = true", "ridge = 0.1", "target_range = [-1.0, 1.0]"] {
        let of_all = problem(&rows, false, clip).replace("clip =", &format!("{more}, clip ="));
        let key = of(&of_all, "unit = \"row\", rows = 2000").unwrap();
        assert!(key.starts_with("problem.") && more.starts_with(&key[8..]), "{more}: {key}");
    }
    let ranges = problem(&logs, true, clip).replace("kind = \"identity\", bias = true", "kind = \"fourier\", order = 1");
    assert_eq!(of(&ranges, "unit = \"row\", rows = 2000").unwrap(), "problem.ranges");
    let traces = problem(&logs, true, clip).replace("gamma = 0.5", "gamma = 0.5, lambda = 0.5");
    assert!(of(&traces, "unit = \"row\", rows = 2000").unwrap().ends_with("clip.unit"));
}

/// One row more or less changes the weighted mean system by at most C / rows, whatever the row: the sensitivity that is accounted for.
#[test]
fn no_row_changes_the_sums_by_more_than_its_share() {
    let folder = tempfile::tempdir().unwrap();
    let system = |last: &str| {
        let lines: String =
            (0..40).map(|i| format!("{},{},{}\n", (i as f64).sin(), (1.7 * i as f64).cos(), (0.3 * i as f64).sin())).collect();
        let path = file(folder.path(), "one.csv", &format!("a,b,y\n{lines}{last}\n"));
        let problem = problem(&[path], false, "{ unit = \"row\", norm = 0.7 }");
        let text = settings(&problem, "{ kind = \"mean\" }", "{ kind = \"lstd\" }", 1);
        let plan = Plan::new(experiment(&text).unwrap(), Path::new(""), Isa::best(), &HashMap::new()).unwrap();
        let System { a, b } = plan.field(0).systems().unwrap().mean();
        (0..2).flat_map(|i| (0..2).map(move |j| (i, j))).map(|(i, j)| a[(i, j)]).chain(b).collect::<Vec<f64>>()
    };
    let without = system("0,0,0");
    for last in ["1,2,3", "-1e6,1e6,5", "0.1,0.2,-0.1", "1e-3,2,1e8", "1e-170,0,1e300"] {
        let norm = system(last).iter().zip(&without).map(|(x, y)| (x - y).powi(2)).sum::<f64>().sqrt();
        assert!(norm <= 0.7 / 41.0 * (1.0 + 1e-12), "{last}: {norm}");
        assert!(last.starts_with("0.1") || norm > 0.999 * 0.7 / 41.0, "{last}: {norm}, so that the bound is tight");
    }
}

#[test]
fn agents_of_a_federation_check_their_rows() {
    let folder = tempfile::tempdir().unwrap();
    let files = files(folder.path(), false);
    let problem = problem(&[], false, "{ unit = \"row\", norm = 2.0 }").replace("data = [], ", "").replace("partition = \"files\", ", "");
    for (rows, is_possible) in [(2000, true), (3000, false)] {
        let text = text(&problem, &format!("unit = \"row\", rows = {rows}"), 1).replace("seeds = 1", "seeds = [5]");
        let deployment = made(&text);
        let mut agents: Vec<_> = files.iter().map(|path| agent_of(&deployment, std::slice::from_ref(path)).unwrap()).collect();
        let mut enrolment = deployment.enrolment(AGENTS..=AGENTS).unwrap();
        let invitation = enrolment.invite(AGENTS);
        for (c, agent) in agents.iter_mut().enumerate() {
            deployment.take(&mut enrolment, &format!("{c}"), &agent.handle(&invitation).unwrap().unwrap()).unwrap();
        }
        let enrolled = deployment.found(&enrolment).unwrap();
        for told in &enrolled.admissions {
            let joined = agents[told.agent].handle(&told.bytes);
            assert_eq!(joined.is_ok(), is_possible, "{rows}: {:?}", joined.err());
        }
    }
}

/// The answer's file has the error that the search found, and no neighbour of its settings has a smaller one.
#[test]
fn a_tuning_under_a_budget_has_the_least_error_near_it() {
    let media =
        "[{ kind = \"secure-sum\", bound = 2.0, bits = 44, least_agents = 160, privacy = { epsilon = 5.0, delta = 1e-6, rounds = 3 } }]";
    let text = format!(
        "id = \"t\"\ntitle = \"t\"\nproblem = {{ kind = \"linear\", agents = 200, dim = 2 }}\nsampling = {{ kind = \"mean\" }}\n\
         method = [{{ kind = \"fedlsa\", step_size = 0.1, local_steps = 2, uplink = {{ media = {media} }} }}]\n[run]\nrounds = 3\nseeds = 1\n"
    );
    let settings = TuneSettings { epsilon: Some(1.0), methods: vec!["fedlsa".into()], ..TuneSettings::default() };
    let run = RunSettings::default();
    let outcome = tune(&experiment(&text).unwrap(), &settings, &run, &mut |_| (), &Cancel::never()).unwrap();
    let TuneOutcome::Done(answer) = outcome else { unreachable!() };
    let files = answer.tuning.files(&answer.tuned).unwrap();
    let file = String::from_utf8(files[0].1.clone()).unwrap();
    let mse = |text: &str| predicted(text)["mse"].as_f64().unwrap();
    let own = mse(&file);
    assert!((own / answer.tuned.hit.mse - 1.0).abs() < 1e-3 && predicted(&file)["epsilon"] == 1.0, "{own} {}", answer.tuned.hit.mse);
    let (step, rounds) = (answer.tuned.choice.step_size, answer.tuned.hit.rounds);
    for other in [0.8 * step, 1.25 * step] {
        let other = file.replace(&format!("step_size = {step}"), &format!("step_size = {other}"));
        assert!(other != file && mse(&other) > own * (1.0 - 1e-3), "{other}");
    }
    let longer = file.replace(&format!("rounds = {rounds}"), &format!("rounds = {}", rounds + 1));
    assert!(longer != file && mse(&longer) > own * (1.0 - 1e-3));
    assert!(answer.tuning.report(&answer.tuned)[0].contains("epsilon = 1"));
    let plain = experiment(&text.replace(", privacy = { epsilon = 5.0, delta = 1e-6, rounds = 3 }", "")).unwrap();
    assert_eq!(tune(&plain, &settings, &run, &mut |_| (), &Cancel::never()).err().unwrap().key, "epsilon");
}
