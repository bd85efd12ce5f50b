//! `fedsa theory`: predictions for an experiment, without running it. For people they are a page of text (`page`) and two pictures
//! (`pictures`), for programs JSON.

use std::collections::HashMap;

use fedsa::error::{BadInput, Error};
use fedsa::kernel::Isa;
use fedsa::linalg;
use fedsa::methods::Drift;
use fedsa::problem::Field;
use fedsa::problem::arrays::Arrays;
use fedsa::problem::file::virtual_root;
use fedsa::problem::law::FiniteLaw;
use fedsa::sampling::Law;
use fedsa_experiment::predict::QUANTITIES;
use fedsa_experiment::{Kinds, Plan, Predictor, memory};
use fedsa_theory::Accuracy;
use fedsa_theory::constants::{Constants, TdConstants};
use fedsa_theory::fedhsa_bounds::{CorollarySchedule, FedHsaConstants};
use fedsa_theory::predict::{self, EXACT_DIM, Forecast, StableStep};
use rayon::prelude::*;
use serde_json::{Map, Value as Json, json};

mod constants;
mod curvature;
mod page;
mod pictures;
mod statements;
mod target;
mod text;
mod what_if;

use super::progress::Predicting;
use super::{load, say, say_json};
use crate::args::TheoryArgs;
use crate::error::DONE;

/// Runs the command.
///
/// # Errors
/// On bad input.
pub fn theory(args: &TheoryArgs, kinds: &Kinds) -> Result<u8, Error> {
    let (experiment, base) = load(&args.file, &args.overrides, false, kinds)?;
    let shown = Predicting::begin(&experiment.id);
    shown.about("problems");
    let plan = Plan::new(experiment, &base, Isa::best(), &HashMap::new())?;
    args.target_mse.map_or(Ok(()), |mse| check_target(&plan, mse))?;
    memory::refuse_predictions(&plan).map_err(|e| plan.experiment.document.failure(e))?;
    let predictor = Predictor::new(&plan);
    let pictures = args.out.as_deref().map(|out| pictures::Target::new(out, args.overwrite, &plan)).transpose()?;
    let problems: Vec<Json> = plan.fields.par_iter().map(|f| problem(&*f.field)).collect();
    if args.json {
        let numbers = numbers(&plan, &predictor, &problems, args.target_mse, &shown);
        shown.hidden(|| say_json(&numbers));
    } else {
        page::page(&plan, &predictor, &problems, args.target_mse, &shown, &mut |lines| shown.hidden(|| say(lines.join("\n"))));
    }
    if let Some(target) = pictures {
        shown.about("pictures");
        let written = target.write(&plan, &predictor, &base)?;
        if !args.json {
            shown.hidden(|| written.into_iter().for_each(say));
        }
    }
    Ok(DONE)
}

/// Refuses a target that is below what rounding leaves of the roots of all problems, as `fedsa tune` does. Where another problem of the
/// plan admits it, methods have the reason in its place.
fn check_target(plan: &Plan, mse: f64) -> Result<(), Error> {
    let checked = plan.fields.iter().filter_map(|planned| Some(predict::check_target(mse, &planned.field.solution().ok()?.theta)));
    let refused: Result<Vec<()>, BadInput> = match checked.clone().any(|one| one.is_ok()) {
        true => Ok(Vec::new()),
        false => checked.collect(),
    };
    refused.map(|_| ()).map_err(|e| e.about("--target-mse"))
}

/// All numbers, for programs.
fn numbers(plan: &Plan, predictor: &Predictor<'_>, problems: &[Json], target: Option<f64>, shown: &Predicting) -> Json {
    let mut methods = Vec::new();
    for planned in &plan.points {
        for (label, cell) in plan.labels.iter().zip(&planned.cells) {
            shown.about(&format!("{label} {}", planned.point.label));
            let mut entry = json!({ "method": label, "kind": plan.cells[*cell].method.kind, "point": planned.point.label });
            entry["problem"] = json!(planned.field);
            entry["statements"] = statements::json(plan, *cell, &problems[planned.field]);
            if let Json::Object(fields) = method(plan, predictor, *cell, &problems[planned.field]) {
                entry.as_object_mut().expect("an object").extend(fields);
            }
            if let Some(target) = target {
                entry["target"] = target::Target::of(plan, predictor, *cell, target).json();
                entry["target"]["corollaries"] = statements::choices_json(plan, *cell, target);
            }
            methods.push(entry);
        }
    }
    json!({ "id": plan.experiment.id, "problems": problems, "methods": methods })
}

fn finite(x: f64) -> Json {
    if x.is_finite() { json!(x) } else { Json::Null }
}

/// Constants of a problem.
fn problem(field: &dyn Field) -> Json {
    let mut out = Map::new();
    out.insert("agents".into(), json!(field.agents()));
    out.insert("dim".into(), json!(field.dim()));
    if field.sampling().kind == Law::Markov {
        out.insert("mixing".into(), mixing(field));
    }
    let monotone = field.facts().monotone().map(|known| json!({ "modulus": known.modulus, "lipschitz": known.lipschitz }));
    out.insert("monotone".into(), monotone.unwrap_or_else(|| json!("no certificate that the mean operator has one root")));
    let root = match field.solution() {
        Ok(root) => &root.theta[..],
        Err(why) => {
            out.insert("theta_star".into(), json!(format!("not known: {why}")));
            return Json::Object(out);
        }
    };
    out.insert("theta_star".into(), json!(root));
    out.insert("theta_star_norm".into(), json!(linalg::norm_sq(root).sqrt()));
    let Some(systems) = field.systems() else { return Json::Object(out) };
    let locals: Vec<Option<f64>> =
        (0..systems.kinds.len()).map(|k| systems.local_root(k).ok().map(|x| linalg::distance_sq(&x, root).sqrt())).collect();
    let known: Vec<f64> = locals.iter().flatten().copied().collect();
    if !known.is_empty() {
        let (min, max) = known.iter().fold((f64::INFINITY, 0.0), |(a, b): (f64, f64), x| (a.min(*x), b.max(*x)));
        out.insert("local_root_distance".into(), json!({ "min": min, "max": max, "singular_agents": locals.len() - known.len() }));
    }
    let moments: Option<Vec<_>> = match without_moments(field) {
        None => (0..systems.kinds.len()).map(|k| field.moments(k)).collect(),
        Some(_) => None,
    };
    match Constants::new(systems, moments.as_deref()) {
        Ok(constants) => {
            let mut value = serde_json::to_value(&constants).unwrap_or(Json::Null);
            if let Some(step) = constants.largest_step() {
                value["eta_inf"] = finite(step);
            }
            out.insert("constants".into(), value);
        }
        Err(e) => {
            out.insert("constants".into(), json!(e.to_string()));
        }
    }
    if let Ok(constants) = FedHsaConstants::new(systems, field.facts()) {
        out.insert("fedhsa".into(), json!(constants));
    }
    if let Some(facts) = field.facts().td() {
        if let Ok(td) = TdConstants::new(facts.gamma, facts.nu) {
            let mut value = json!(td);
            value["least_reward"] = json!(facts.least_reward);
            value["largest_reward"] = json!(facts.largest_reward);
            value["feature_norm"] = json!(facts.feature_norm);
            out.insert("td".into(), value);
        }
        if let Some(Ok(virtual_root)) = small_export(field).map(|arrays| virtual_root(&arrays, field.weights())) {
            out.insert("virtual_mdp_distance".into(), json!(linalg::distance_sq(&virtual_root, root).sqrt()));
        }
    }
    Json::Object(out)
}

/// How fast samples forget: of finite chains the second eigenvalue and the mixing times of the slowest agent, of additive
/// Gauss-Markov noise the spectral radius of its memory. Numbers that are not known have their reason in their place.
fn mixing(field: &dyn Field) -> Json {
    /// The levels of mixing times.
    const LEVELS: [f64; 2] = [0.25, 0.01];
    /// The most multiplications, of dense matrices of all distinct agents' states.
    const MOST_WORK: f64 = 5e9;
    if let Some(laws) = field.facts().additive_noise() {
        let radii: Result<Vec<f64>, BadInput> = laws.iter().map(|law| linalg::spectral_radius(&law.memory)).collect();
        return match radii.map(|radii| radii.into_iter().fold(0.0, f64::max)) {
            Ok(radius) => json!({ "memory_radius": radius, "relaxation_time": 1.0 / (1.0 - radius) }),
            Err(e) => json!(e.to_string()),
        };
    }
    let kinds = field.systems().map_or(field.agents(), |systems| systems.kinds.len());
    let facts = field.facts();
    let sizes = facts.law(0).and_then(|law| law.chain().map(|chain| (chain.law.len(), chain.from.len())));
    let Some((states, moves)) = sizes else {
        return json!("not known: samples follow no known finite chain alone");
    };
    // Eigenvalues, and some ten products of the transition matrix with itself and with the operators, d^2 numbers for each state.
    let (n, d) = (states as f64, field.dim() as f64);
    if kinds as f64 * (50.0 * n.powi(3) + 20.0 * d * d * (n * n + moves as f64)) > MOST_WORK {
        return json!(format!("not computed: {kinds} distinct chains of {states} states take too long"));
    }
    let over = |of: &dyn Fn(&FiniteLaw<'_>) -> Result<f64, BadInput>| -> Json {
        let mut most = 0.0f64;
        for kind in 0..kinds {
            match facts.law(kind).map(|law| of(&law)) {
                Some(Ok(x)) => most = most.max(x),
                Some(Err(e)) => return json!(e.to_string()),
                None => return json!("not known"),
            }
        }
        if most.is_finite() { json!(most) } else { json!("infinite: a chain is periodic") }
    };
    let chain = |law: &FiniteLaw<'_>| law.chain().cloned().ok_or_else(|| BadInput::new("", "samples follow no chain", "a finite chain"));
    let time = |time: Option<u64>| time.map_or(f64::INFINITY, |t| t as f64);
    let mut out = Map::new();
    out.insert("second_eigenvalue".into(), over(&|law| chain(law)?.second_eigenvalue()));
    let levels = LEVELS.iter().map(|eps| {
        json!({
            "eps": eps,
            "total_variation": over(&|law| Ok(time(chain(law)?.mixing_time(*eps)?))),
            "operator": over(&|law| Ok(time(law.operator_mixing_time(*eps)?))),
        })
    });
    out.insert("mixing_times".into(), levels.collect());
    out.into()
}

/// Why second moments are not computed for the constants, which are those of i.i.d. samples; d^4 numbers an agent.
fn without_moments(field: &dyn Field) -> Option<String> {
    const MOST_KINDS: usize = 2000;
    let kinds = field.systems().map_or(0, |systems| systems.kinds.len());
    if field.sampling().kind != Law::Iid {
        Some("samples are not i.i.d.".into())
    } else if field.dim() > EXACT_DIM {
        Some(format!("more than {EXACT_DIM} features"))
    } else if kinds > MOST_KINDS {
        Some(format!("more than {MOST_KINDS} distinct agents"))
    } else if !memory::moments_fit(kinds, field.dim()) {
        Some("second moments do not fit into memory".into())
    } else {
        None
    }
}

/// For people: puts the reason in the place of each constant that is not known.
fn explain(problem: &mut Json, field: &dyn Field) {
    let singular = problem["local_root_distance"]["singular_agents"].as_u64() != Some(0);
    let Some(constants) = problem.get_mut("constants").and_then(Json::as_object_mut) else { return };
    if !constants.values().any(Json::is_null) {
        return;
    }
    let moments = || field.moments(0).is_none().then(|| "second moments of the samples are not known".to_string());
    let without = without_moments(field).or_else(moments);
    let holds = constants.get("a").and_then(Json::as_f64).is_some_and(|a| a > 0.0);
    for (key, value) in constants.iter_mut().filter(|(_, value)| value.is_null()) {
        let why = match (&without, key.as_str()) {
            (Some(why), _) => why.clone(),
            (None, "l") if !holds => "a is not positive".into(),
            (None, "sigma_eps" | "v_heter") if singular => "the mean system of an agent is singular".into(),
            _ => continue,
        };
        *value = json!(format!("not known: {why}"));
    }
}

/// A problem's own arrays, unless they are too large: each agent has
/// its own copy of its kernel there, although many agents may share one.
fn small_export(field: &dyn Field) -> Option<Arrays> {
    const MOST_NUMBERS: f64 = 1e8;
    let states = field.facts().stationary(0)?.len() as f64;
    let numbers = field.agents() as f64 * states * states;
    // Kernels and rewards.
    (numbers <= MOST_NUMBERS && memory::fits(2.0 * 8.0 * numbers)).then(|| field.facts().export()).flatten()
}

/// The predictions for a method at a point.
fn method(plan: &Plan, predictor: &Predictor<'_>, cell: usize, problem: &Json) -> Json {
    let field = plan.field(cell);
    let mut out = Map::new();
    let mut put = |key: &str, value: fedsa::error::Result<f64>| {
        let value = match value {
            Ok(x) => finite(x),
            Err(e) => json!(e.to_string()),
        };
        out.insert(key.to_string(), value);
    };
    for quantity in QUANTITIES.iter() {
        put(quantity, predictor.number(cell, quantity));
    }
    put("largest_stable_step", largest_stable_step(plan, cell).map(|stable| stable.step));
    let accuracies: Vec<(&str, Accuracy)> = QUANTITIES.iter().filter_map(|q| Some((*q, predictor.accuracy(cell, q)?))).collect();
    // One warning for all quantities of one closure.
    let warning = accuracies.iter().find_map(|(_, accuracy)| accuracy.warning());
    let values: Map<String, Json> = accuracies.into_iter().map(|(q, accuracy)| (q.to_string(), json!(accuracy))).collect();
    if !values.is_empty() {
        out.insert("accuracy".into(), values.into());
    }
    out.extend(warning.map(|warning| ("warning".to_string(), json!(warning))));
    if matches!(plan.cells[cell].shape().drift, Drift::GlobalMemory { .. })
        && let Some(schedule) = corollary_schedule(problem, &plan.forecast(cell))
    {
        out.insert("corollary_1_step_size".into(), json!(schedule));
    }
    if let Ok(explanation) = plan.forecast(cell).markov_explanation() {
        out.insert("leading_order".into(), json!(explanation));
    }
    out.insert(
        "stable".into(),
        predictor.floors_of(cell).outlook(&plan.forecast(cell)).stable().map_or_else(|why| json!(why), |stable| json!(stable)),
    );
    if plan.cells[cell].shape().drift == Drift::Zero {
        out.extend(fedlsa(field, &plan.forecast(cell)).unwrap_or_default());
    }
    Json::Object(out)
}

/// The schedule of Corollary 1 of FedHSA's source, from the constants of the problem, with the mixing time of the slowest chain
/// in total variation at 1/4; `None` where one is not known.
fn corollary_schedule(problem: &Json, forecast: &Forecast<'_>) -> Option<CorollarySchedule> {
    let constants: FedHsaConstants = serde_json::from_value(problem["fedhsa"].clone()).ok()?;
    let tau = statements::mixing_time(problem)?;
    constants.schedule(&forecast.round_setting().ok()?, tau).ok()
}

/// The largest stable step, unless its search, with maps of hundreds of rounds, takes minutes.
fn largest_stable_step(plan: &Plan, cell: usize) -> Result<StableStep, BadInput> {
    const MOST_WORK: f64 = 1e7;
    let field = plan.field(cell);
    let kinds = field.systems().map_or(0, |systems| systems.kinds.len());
    // Every map costs a sum over agents.
    if kinds as f64 * ((field.dim() as f64).powi(3) + 200.0) + 0.5 * field.agents() as f64 > MOST_WORK {
        let what = format!("not searched for: {} agents, {kinds} distinct, with d = {}", field.agents(), field.dim());
        return Err(BadInput::new("", what, "fewer distinct agents or features"));
    }
    plan.forecast(cell).largest_stable_step()
}

/// FedLSA's exact mean iterate and its limit, over links whose mean is known too.
fn fedlsa(field: &dyn Field, forecast: &Forecast<'_>) -> Option<Map<String, Json>> {
    forecast.knows_rounds().ok()?;
    let mut out = Map::new();
    out.insert("limit".into(), forecast.limit().map_or_else(|e| json!(e.to_string()), |x| json!(x)));
    let rounds = [1, 2, 5, 10, 100, 1000];
    let means = forecast.mean(&vec![0.0; field.dim()], &rounds).ok()?;
    let mean = rounds.iter().zip(means).map(|(t, theta)| json!({ "round": t, "theta": theta })).collect::<Vec<_>>();
    out.insert("mean_iterate_from_zero".into(), json!(mean));
    Some(out)
}
