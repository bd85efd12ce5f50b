//! The sums after the last round give a federation the standard errors, deviance and quality of one process.

use std::path::Path;

use fedsa::cancel::Cancel;
use fedsa::error::ErrorKind;
use fedsa::note::NoteCode;
use fedsa_evaluate::inference::CovarianceKind;
use fedsa_experiment::deployment::{Afterwards, of_evaluation, of_fit};
use fedsa_experiment::evaluate::{EvaluateSettings, Evaluation};
use fedsa_experiment::fit::{Fit, FitSettings, Fitted, Model};
use fedsa_experiment::run::{Ran, RunOutcome};
use fedsa_experiment::{RunSettings, Unobserved};
use serde_json::Value as Json;

use crate::deployed_tasks::{Led, assert_same, by, fit_of, fitted, led};
use crate::deployment::{agent_of, file};

/// Tables of six sites of different sizes, with a numeric column, a category of three levels, an exposure and targets of all models.
pub fn sites(folder: &Path) -> Vec<String> {
    let table = |site: usize| {
        let row = |i: usize| {
            let (a, b) = ((i as f64 * 0.7 + site as f64).sin(), (i as f64 * 1.3 + 0.2 * site as f64).cos());
            let (group, u) = (["red", "green", "blue"][(i * 7 + site) % 3], (i as f64 * 2.9 + site as f64).sin());
            let score = 0.4 + 0.5 * a - 0.7 * b + f64::from(u32::from(group == "red")) * 0.3;
            let exposure = 0.1 * (i % 4) as f64;
            let class = if score + 1.5 * u > 0.0 { "yes" } else { "no" };
            let third = if score + 1.2 * u > 0.8 {
                "high"
            } else if score - 1.1 * u > 0.1 {
                "mid"
            } else {
                "low"
            };
            let count = (1.2 * (score + exposure).exp() * (1.0 + u)).round();
            let size = (score + 0.5 * u).exp();
            let weight = 1 + (i + site) % 3;
            format!("{a},{b},{group},{exposure},{weight},{},{class},{third},{count},{size}\n", score + u)
        };
        let rows: String = (0..30 + 17 * site).map(row).collect();
        format!("a,b,group,exposure,weight,y,class,third,count,size\n{rows}")
    };
    (0..6).map(|site| file(folder, &format!("site_{site}.csv"), &table(site))).collect()
}

const TARGETS: [&str; 5] = ["y", "class", "third", "count", "size"];

/// A fit of this target, without the other ones.
pub fn of_target(files: &[String], model: Model, target: &str) -> FitSettings {
    let others = TARGETS.into_iter().filter(|other| *other != target).map(String::from);
    let drop = others.chain(["exposure".into(), "weight".into()]).collect();
    FitSettings { model, target: Some(target.into()), drop, dispersion: (model == Model::NegativeBinomial).then_some(0.7), ..fit_of(files) }
}

/// A federation of this fit after its last round, and its sums.
fn ended(settings: &FitSettings, files: &[String]) -> (Led, Option<Afterwards>) {
    let task = of_fit(&Fit::new(settings, &Cancel::never()).unwrap()).unwrap();
    let led = led(&task.text, files);
    let after = led.deployment.afterwards(&led.enrolled.membership, led.theta()).unwrap();
    (led, after)
}

/// Asks all agents until nothing is left to ask. Returns the number of exchanges.
fn ask(led: &mut Led, after: &mut Afterwards) -> usize {
    let mut exchanges = 0;
    while let Some(question) = after.question().map(<[u8]>::to_vec) {
        exchanges += 1;
        for c in after.waiting() {
            let answer = led.agents[c].handle(&question).unwrap().unwrap();
            after.take(c, &answer).unwrap();
        }
    }
    exchanges
}

/// The results of a federation, with its `weights.json`.
pub fn results(settings: &FitSettings, files: &[String]) -> (Ran, Json, usize) {
    let (mut led, after) = ended(settings, files);
    let mut after = after.expect("rows have sums");
    let exchanges = ask(&mut led, &mut after);
    let mut ran = led.results();
    after.add_to(&mut ran);
    let weights = led.deployment.weights(&led.enrolled.membership, &ran, Some(&after)).unwrap().unwrap();
    (ran, weights, exchanges)
}

/// A JSON value without some keys.
fn without(mut json: Json, keys: &[&str]) -> Json {
    keys.iter().for_each(|key| _ = json.as_object_mut().unwrap().remove(*key));
    json
}

/// The same inference and fit, to the last bit, and the same weights and quality.
pub fn assert_same_fit((ran, weights): (&Ran, &Json), local: &Fitted) {
    let (summary, of_local) = (ran.summary_json(), local.ran.summary_json());
    let costs = ["exchanges", "numbers_up", "bits_up", "bits"];
    if local.inference.is_some() {
        assert_eq!(without(summary["inference"].clone(), &costs), without(of_local["inference"].clone(), &costs));
    }
    // Agents do not count the rows of declared levels.
    assert_eq!(without(summary["fit"].clone(), &["levels"]), without(of_local["fit"].clone(), &["levels"]));
    let all = local.json();
    for key in ["coefficients", "intercept", "theta", "train", "holdout", "objective", "outcome", "columns", "classes", "further"] {
        assert_eq!(weights[key], all[key], "{key}");
    }
    let norm = |json: &Json| json["gradient_norm"].as_f64().unwrap();
    // One process adds gradients in pairs.
    assert!((norm(weights) - norm(&all)).abs() < 1e-13, "{} {}", norm(weights), norm(&all));
    assert_eq!(summary["exit_status"], of_local["exit_status"]);
}

#[test]
fn a_federation_has_the_standard_errors_of_one_process_to_the_last_bit() {
    let folder = tempfile::tempdir().unwrap();
    let files = sites(folder.path());
    let models = [
        (Model::LeastSquares, "y"),
        (Model::Logistic, "class"),
        (Model::Multinomial, "third"),
        (Model::Poisson, "count"),
        (Model::NegativeBinomial, "count"),
        (Model::Gamma, "size"),
    ];
    for (model, target) in models {
        for covariance in CovarianceKind::ALL {
            if model == Model::Multinomial && covariance == CovarianceKind::Clustered {
                continue;
            }
            let settings = FitSettings { inference: Some(covariance), ..of_target(&files, model, target) };
            let local = fitted(&settings);
            let (ran, weights, exchanges) = results(&settings, &files);
            assert_same(&ran, &local.ran);
            assert_same_fit((&ran, &weights), &local);
            // Weights that are close to the estimate need few exchanges.
            assert!((1..=3).contains(&exchanges), "{}: {exchanges}", model.name());
        }
    }
}

#[test]
fn a_fit_far_from_the_estimate_takes_the_steps_of_one_process() {
    let folder = tempfile::tempdir().unwrap();
    let files = sites(folder.path());
    let settings = of_target(&files, Model::Poisson, "count");
    let settings = FitSettings { inference: Some(CovarianceKind::Sandwich), max_rounds: 2, tol: 0.0, ..by("fedlsa", settings) };
    let settings = FitSettings { step_size: Some(0.01), ..settings };
    let local = fitted(&settings);
    let (ran, weights, exchanges) = results(&settings, &files);
    assert_same_fit((&ran, &weights), &local);
    assert!(exchanges > 3, "{exchanges}");
}

#[test]
fn a_federation_tells_the_quality_of_its_model() {
    let folder = tempfile::tempdir().unwrap();
    let files = sites(folder.path());
    for (model, target) in [(Model::LeastSquares, "y"), (Model::Logistic, "class"), (Model::Multinomial, "third")] {
        let settings = of_target(&files, model, target);
        let local = fitted(&settings);
        let (ran, weights, exchanges) = results(&settings, &files);
        assert_same_fit((&ran, &weights), &local);
        assert_eq!(exchanges, 1);
        assert!(weights["objective"].as_f64().unwrap() > 0.0 && weights["train"]["rows"] == 435);
    }
}

#[test]
fn missing_sums_are_told_and_leave_the_weights() {
    let folder = tempfile::tempdir().unwrap();
    let files = sites(folder.path());
    let settings = FitSettings { inference: Some(CovarianceKind::Model), ..of_target(&files, Model::LeastSquares, "y") };
    let (mut led, after) = ended(&settings, &files);
    let mut after = after.unwrap();
    let question = after.question().unwrap().to_vec();
    for c in 0..5 {
        let answer = led.agents[c].handle(&question).unwrap().unwrap();
        after.take(c, &answer).unwrap();
    }
    assert_eq!(after.waiting(), [5]);
    // A server that is started again asks again.
    let state = after.save();
    let mut again = led.deployment.afterwards(&led.enrolled.membership, led.theta()).unwrap().unwrap();
    again.restore(&state).unwrap();
    assert_eq!((again.waiting().len(), again.question()), (6, Some(&question[..])));
    again.give_up("site_5 did not answer");
    assert!(again.question().is_none());
    let mut ran = led.results();
    again.add_to(&mut ran);
    let note = ran.notes().iter().find(|note| note.code == NoteCode::FederationSumsMissing).unwrap();
    assert!(note.text.contains("site_5 did not answer"), "{}", note.text);
    let weights = led.deployment.weights(&led.enrolled.membership, &ran, Some(&again)).unwrap().unwrap();
    assert!(weights["train"].is_null() && ran.summary_json()["inference"].is_null());
    assert_eq!(weights["theta"], serde_json::json!(led.theta()));
}

/// Over secure sums: all estimates and errors of one process with the same link, up to the order of sums.
#[test]
fn sums_after_secure_rounds_are_masked_and_those_of_one_process() {
    let folder = tempfile::tempdir().unwrap();
    let files = sites(folder.path());
    for (model, target, covariance) in [
        (Model::LeastSquares, "y", CovarianceKind::Model),
        (Model::Logistic, "class", CovarianceKind::Sandwich),
        (Model::Poisson, "count", CovarianceKind::Clustered),
    ] {
        let settings = of_target(&files, model, target);
        let settings = FitSettings { inference: Some(covariance), secure_sums: Some(64.0), ..by("newton", settings) };
        let (ran, weights, exchanges) = results(&settings, &files);
        assert!(exchanges.is_multiple_of(2), "each sum has a second exchange: {exchanges}");
        let local = fitted(&settings);
        let (summary, of_local) = (ran.summary_json(), local.ran.summary_json());
        let numbers = |summary: &Json| {
            let of = &summary["inference"];
            let each = of["coefficients"].as_array().unwrap().iter().flat_map(|one| [&one["estimate"], &one["se"], &one["high"]]);
            each.chain([&of["deviance"], &of["aic"]]).map(|x| x.as_f64().unwrap()).collect::<Vec<f64>>()
        };
        let (of_all, of_one) = (numbers(&summary), numbers(&of_local));
        assert!(of_all.iter().zip(&of_one).all(|(x, y)| (x - y).abs() <= 1e-10 * (1.0 + y.abs())), "{of_all:?} {of_one:?}");
        assert_eq!(weights["train"]["rows"], 435);
    }
}

#[test]
fn a_masked_sum_takes_masked_answers_and_then_their_seeds() {
    let folder = tempfile::tempdir().unwrap();
    let files = sites(folder.path());
    let settings = FitSettings { secure_sums: Some(64.0), ..by("newton", of_target(&files, Model::LeastSquares, "y")) };
    let (mut led, after) = ended(&settings, &files);
    let mut after = after.unwrap();
    let (mut other, of_other) = ended(&settings, &files);
    let mut of_other = of_other.unwrap();
    let question = after.question().unwrap().to_vec();
    let foreign = of_other.question().unwrap().to_vec();
    let answers: Vec<Vec<u8>> = led.agents.iter_mut().map(|agent| agent.handle(&question).unwrap().unwrap()).collect();
    for (c, answer) in answers.iter().enumerate() {
        // The same masks again, also for an agent that was started again.
        let state = led.agents[c].save();
        led.agents[c].restore(&state).unwrap();
        assert_eq!(&led.agents[c].handle(&question).unwrap().unwrap(), answer);
        let theirs = other.agents[c].handle(&foreign).unwrap().unwrap();
        assert!(after.take(c, &theirs).is_err(), "an answer to another run");
        of_other.take(c, &theirs).unwrap();
        after.take(c, answer).unwrap();
    }
    let seeds = after.question().unwrap().to_vec();
    assert!(seeds != question && after.waiting().len() == 6);
    assert!(after.take(0, &answers[0]).is_err(), "a masked answer in place of a seed");
    let of_other_run = of_other.question().unwrap().to_vec();
    assert!(led.agents[0].handle(&of_other_run).is_err(), "a seed for another run");
    for c in 0..6 {
        let answer = led.agents[c].handle(&seeds).unwrap().unwrap();
        assert_eq!(led.agents[c].handle(&seeds).unwrap().unwrap(), answer);
        after.take(c, &answer).unwrap();
    }
    assert!(after.question().is_none());
    // Of an agent that has not answered there is no seed.
    let mut fresh = agent_of(&led.deployment, &files[..1]).unwrap();
    assert!(fresh.handle(&seeds).is_err());
}

#[test]
fn questions_of_other_runs_and_settings_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let files = sites(folder.path());
    let settings = FitSettings { inference: Some(CovarianceKind::Model), ..of_target(&files, Model::LeastSquares, "y") };
    let (mut led, after) = ended(&settings, &files);
    let mut after = after.unwrap();
    let question = after.question().unwrap().to_vec();
    let before: Vec<Vec<u8>> = led.agents.iter().map(|agent| agent.save()).collect();
    let answer = led.agents[0].handle(&question).unwrap().unwrap();
    assert_eq!(led.agents[0].handle(&question).unwrap().unwrap(), answer);
    // The same settings in another run, and other settings.
    let (mut other, of_other) = ended(&settings, &files);
    let foreign = of_other.unwrap().question().unwrap().to_vec();
    let plain = FitSettings { inference: None, ridge: Some(0.0), intercept: Some(true), ..settings.clone() };
    let (mut third, of_third) = ended(&plain, &files);
    let third_question = of_third.unwrap().question().unwrap().to_vec();
    let mut damaged = question.clone();
    damaged[20] ^= 1;
    for bytes in [&foreign, &third_question, &damaged] {
        assert_eq!(led.agents[0].handle(bytes).unwrap_err().kind(), ErrorKind::RefusedMessage);
    }
    assert_eq!(other.agents[0].handle(&question).unwrap_err().kind(), ErrorKind::RefusedMessage);
    let theirs = third.agents[0].handle(&third_question).unwrap().unwrap();
    assert!(after.take(0, &theirs).is_err() && after.take(6, &answer).is_err() && after.take(0, &question).is_err());
    assert_eq!(after.waiting().len(), 6);
    assert!(led.agents.iter().zip(before).all(|(agent, before)| agent.save() == before));
}

/// The same without these columns among the dropped ones.
fn using(settings: FitSettings, columns: &[&str]) -> FitSettings {
    let drop = settings.drop.iter().filter(|name| !columns.contains(&name.as_str())).cloned().collect();
    FitSettings { drop, ..settings }
}

#[test]
fn offsets_row_weights_held_out_rows_and_standardised_columns_are_those_of_one_process() {
    let folder = tempfile::tempdir().unwrap();
    let files = sites(folder.path());
    let inference = Some(CovarianceKind::Sandwich);
    let counts = || FitSettings { offset: Some("exposure".into()), ..using(of_target(&files, Model::Poisson, "count"), &["exposure"]) };
    let weighted = |settings: FitSettings| FitSettings { row_weights: Some("weight".into()), ..using(settings, &["weight"]) };
    let numeric = || {
        let settings = of_target(&files, Model::LeastSquares, "y");
        FitSettings { drop: settings.drop.iter().cloned().chain(["group".into()]).collect(), ..settings }
    };
    let classes = || of_target(&files, Model::Logistic, "class");
    let all = [
        ("offset", counts()),
        ("offset and inference", FitSettings { inference, ..counts() }),
        ("row weights", weighted(classes())),
        ("row weights, inference", FitSettings { inference, ..weighted(counts()) }),
        ("held-out rows", FitSettings { holdout: Some(0.3), ..classes() }),
        ("held-out rows of numbers", FitSettings { holdout: Some(0.3), ..numeric() }),
        ("held-out weighted rows", FitSettings { holdout: Some(0.2), inference, ..weighted(classes()) }),
        ("standardised", FitSettings { standardise: true, ..numeric() }),
        ("standardised, inference", FitSettings { standardise: true, inference, divide_by: Some(3.0), ..numeric() }),
        ("standardised, categories", FitSettings { standardise: true, ..classes() }),
        ("standardised, categories, inference", FitSettings { standardise: true, inference, ..classes() }),
        ("standardised, held out, weighted", FitSettings { standardise: true, holdout: Some(0.3), inference, ..weighted(numeric()) }),
    ];
    for (name, settings) in all {
        let local = fitted(&settings);
        let (ran, weights, _) = results(&settings, &files);
        let (one, other) = (&ran.results.cells[0][0].theta, &local.ran.results.cells[0][0].theta);
        assert_eq!(one, other, "{name}");
        assert_same(&ran, &local.ran);
        assert_same_fit((&ran, &weights), &local);
        assert_eq!(weights["holdout"].is_null(), settings.holdout.is_none(), "{name}");
        if settings.row_weights.is_some() {
            let plain =
                fitted(&FitSettings { row_weights: None, drop: [settings.drop.clone(), vec!["weight".into()]].concat(), ..settings });
            assert_ne!(plain.theta(), local.theta(), "{name}");
        }
    }
}

/// An agent's number in a federation differs from the place of its file, and changes when others leave.
#[test]
fn a_file_holds_out_the_same_rows_in_any_place() {
    let folder = tempfile::tempdir().unwrap();
    let mut files = sites(folder.path());
    let held = |files: &[String]| {
        let settings = FitSettings { holdout: Some(0.3), ..of_target(files, Model::LeastSquares, "y") };
        let fit = Fit::new(&settings, &Cancel::never()).unwrap();
        let held = &fit.prepared().held_out;
        held.first.windows(2).map(|at| held.targets[at[0]..at[1]].to_vec()).collect::<Vec<_>>()
    };
    let forwards = held(&files);
    files.reverse();
    let mut backwards = held(&files);
    backwards.reverse();
    assert_eq!(forwards, backwards);
    assert_eq!(forwards.iter().map(Vec::len).collect::<Vec<_>>(), [9, 14, 19, 24, 29, 35]);
}

/// Logs of three agents with whole episodes of different lengths, some cut short, with or without importance ratios.
fn logs(folder: &Path, has_ratios: bool, are_cut: bool) -> Vec<String> {
    let log = |agent: usize| {
        let mut text = String::from("episode,s_0,s_1,reward,next_0,next_1,terminated,truncated,ratio\n");
        let noise = |i: usize| ((i * 7919 + agent * 104_729) as f64 * 0.618).fract();
        let mut row = 0;
        for episode in 0..25 + 6 * agent {
            let len = 2 + (episode * 5 + agent) % 7;
            let start = noise(episode) - 0.5;
            let state = |t: usize| (start + 0.1 * t as f64, (start * 3.0 + 0.4 * t as f64).sin());
            for t in 0..len {
                let ((x, y), (next_x, next_y)) = (state(t), state(t + 1));
                let is_last = t + 1 == len;
                let is_cut = is_last && are_cut && episode % 4 == 1;
                let (reward, ratio) = (x * y + 0.3 * noise(row), 0.5 + noise(row + 31));
                text += &format!("{episode},{x},{y},{reward},{next_x},{next_y},{},{is_cut},{ratio}\n", is_last && !is_cut);
                row += 1;
            }
        }
        if has_ratios { text } else { text.lines().map(|line| format!("{}\n", &line[..line.rfind(',').unwrap()])).collect() }
    };
    (0..3).map(|agent| file(folder, &format!("log_{has_ratios}_{are_cut}_{agent}.csv"), &log(agent))).collect()
}

/// The sums of the stages of an agent are added to those of others, so its own value is missing.
#[test]
fn a_federation_has_the_value_of_the_policy_of_one_process() {
    let folder = tempfile::tempdir().unwrap();
    for (has_ratios, are_cut, clip) in [(false, false, None), (false, true, None), (true, true, None), (true, false, Some(1.3))] {
        let files = logs(folder.path(), has_ratios, are_cut);
        let settings = EvaluateSettings {
            gamma: 0.9,
            level: 0.9,
            seed: 4,
            features: Some("polynomial:2".into()),
            method: "lstd".into(),
            max_importance_ratio: clip,
            ..EvaluateSettings::new(&files)
        };
        let evaluation = Evaluation::new(&settings, &Cancel::never()).unwrap();
        let task = of_evaluation(&evaluation).unwrap();
        let RunOutcome::Done(local) = evaluation.run(RunSettings::default(), &Unobserved, &Cancel::never()).unwrap() else {
            unreachable!()
        };
        let mut led = led(&task.text, &files);
        let mut after = led.deployment.afterwards(&led.enrolled.membership, led.theta()).unwrap().unwrap();
        assert_eq!(ask(&mut led, &mut after), if has_ratios { 4 } else { 3 });
        let mut ran = led.results();
        after.add_to(&mut ran);
        let (found, expected) = (ran.summary_json()["policy_value"].clone(), local.ran.summary_json()["policy_value"].clone());
        for by in ["fitted", "importance"] {
            assert_eq!(found[by]["all"], expected[by]["all"], "{by} {has_ratios} {are_cut}");
        }
        let (one, other) = (&found["importance"], &expected["importance"]);
        assert!(one["all"]["se"].as_f64().unwrap() > 0.0);
        for key in ["plain", "cut_episodes", "bootstrapped", "clipped"] {
            assert_eq!(one[key], other[key], "{key}");
        }
        assert_eq!(one["self_normalised"]["all"], other["self_normalised"]["all"]);
        assert_eq!(one["self_normalised"].is_null(), !has_ratios);
        assert_eq!((&found["level"], &found["fitted"]["of_weights"]), (&expected["level"], &expected["fitted"]["of_weights"]));
        // A server that is started again goes on with the sums that it has.
        let state = after.save();
        let mut again = led.deployment.afterwards(&led.enrolled.membership, led.theta()).unwrap().unwrap();
        again.restore(&state).unwrap();
        assert!(again.question().is_none());
    }
}

#[test]
fn what_no_sum_answers_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let files = sites(folder.path());
    for (key, changed) in [
        ("problem.ridge", ("ridge = 0.0", "ridge = 0.1")),
        ("problem.weighting", ("weighting = \"rows\"", "weighting = \"equal\"")),
        ("federation.level", ("level = 0.95", "level = 1.5")),
    ] {
        let settings = FitSettings { inference: Some(CovarianceKind::Model), ..of_target(&files, Model::Logistic, "class") };
        let text = of_fit(&Fit::new(&settings, &Cancel::never()).unwrap()).unwrap().text;
        assert!(text.contains(changed.0), "{text}");
        let document = fedsa_experiment::config::Document::parse("a.toml", &text.replace(changed.0, changed.1)).unwrap();
        assert_eq!(fedsa_experiment::deployment::Deployment::new(document).err().unwrap().key, key);
    }
}

/// The rounding of sums hides the last decreases of losses and the last slopes. Fits end all the same, after as many rounds as over a clear
/// link; `gd` goes on with shorter steps, because the hidden slopes no longer tell it longer ones.
#[test]
fn fits_over_secure_sums_end_where_those_over_clear_links_do() {
    let folder = tempfile::tempdir().unwrap();
    let files = sites(folder.path());
    let ended = |settings: &FitSettings| {
        let result = fitted(settings).ran.summary_json()["results"][0].clone();
        assert_eq!(result["outcome"], "converged", "{:?} {:?} {:?}", settings.model, settings.method, settings.secure_sums);
        result["rounds"].as_u64().unwrap()
    };
    for (model, target) in [(Model::LeastSquares, "y"), (Model::Logistic, "class"), (Model::Poisson, "count")] {
        for (method, longer) in [("newton", 1), ("auto", 1), ("lbfgs", 1), ("bfgs", 1), ("gd", 2), ("agd", 1)] {
            let settings = by(method, of_target(&files, model, target));
            let clear = ended(&settings);
            for bound in [64.0, 1e3, 1e4] {
                let secure = ended(&FitSettings { secure_sums: Some(bound), ..settings.clone() });
                assert!(secure <= longer * clear, "{model:?} {method} {bound}: {secure} rounds, {clear} over a clear link");
            }
        }
    }
}
