//! The page for people: what limits the accuracy of each method, what it costs, and which steps are stable.

use std::collections::BTreeSet;

use fedsa::error::BadInput;
use fedsa::linalg;
use fedsa::methods::Drift;
use fedsa::problem::Field;
use fedsa::sampling::Law;
use fedsa::schedule::StepSize;
use fedsa::uplink::medium::bit_budget::BitBudget;
use fedsa_experiment::numbers::{self, about, number, percent, rounded_down, rounded_up, typed};
use fedsa_experiment::{Plan, Predictor};
use fedsa_theory::Accuracy;
use fedsa_theory::predict::{Forecast, Limits, NoBias, Outlook, Regime, Spot, StableSet, TOO_SLOW, Verdict, rounding};
use serde_json::Value as Json;

use super::text::{Page, row, sentence};
use super::{constants, curvature, explain, largest_stable_step, statements, target, what_if};
use crate::commands::check::stable_text;
use crate::commands::count;
use crate::commands::progress::Predicting;

/// The most problems, and the most methods at points, that are described in full; and the most that have a line.
const PROBLEMS: usize = 4;
const METHODS: usize = 8;
const LINES: usize = 100;
/// The most multiplications of the floors of all methods that are described, of those of lines, and of the curve of a method, about one a
/// nanosecond.
const FLOORS_WORK: f64 = 2e10;
const LINES_WORK: f64 = 1e10;
const CURVE_WORK: f64 = 2e9;
/// The most multiplications of a floor that is computed for comparison.
const OTHER_WORK: f64 = 2e9;

/// Makes the page, and passes it on part by part, because later parts take time; `shown` says what is being computed.
pub fn page(
    plan: &Plan,
    predictor: &Predictor<'_>,
    problems: &[Json],
    target: Option<f64>,
    shown: &Predicting,
    say: &mut dyn FnMut(Vec<String>),
) {
    let mut page = Page::default();
    let experiment = &plan.experiment;
    page.title(&format!("{}: {}", experiment.id, experiment.title));
    page.paragraph(
        "What theory predicts before anything runs. Errors are squared distances ||theta - theta*||^2 from the root theta*, mean over \
         runs. The guide explains the page (section 4, Reading fedsa theory); --json has all numbers with all their digits.",
    );
    let mut explained = BTreeSet::new();
    for (i, known) in problems.iter().enumerate().take(PROBLEMS) {
        problem(&mut page, plan, i, known, &mut explained);
        say(page.take());
    }
    if problems.len() > PROBLEMS {
        page.paragraph(&format!("{} more are not described; --json has them.", count(problems.len() - PROBLEMS, "problem")));
    }
    let all: Vec<(usize, &String, usize)> = (0..plan.points.len())
        .flat_map(|point| plan.labels.iter().zip(&plan.points[point].cells).map(move |(label, cell)| (point, label, *cell)))
        .collect();
    let mut left = FLOORS_WORK;
    for (point, label, cell) in all.iter().take(METHODS) {
        shown.about(&format!("{label} {}", plan.points[*point].point.label));
        left -= plan.forecast(*cell).floor_work().unwrap_or(0.0);
        method(&mut page, plan, predictor, (*point, label, *cell), &problems[plan.points[*point].field], target, left >= 0.0);
        say(page.take());
    }
    if all.len() > METHODS {
        page.title("Other points");
        page.paragraph(&format!("In brief; fix the swept keys with --set to have a page of one of them. Above: the first {METHODS}."));
        let mut rows = vec![row(&["method", "floor", "bias^2", "radius", "at"])];
        let mut left = LINES_WORK;
        let mut is_cut = false;
        for (point, label, cell) in all.iter().skip(METHODS).take(LINES) {
            shown.about(&format!("{label} {}", plan.points[*point].point.label));
            left -= plan.forecast(*cell).floor_work().unwrap_or(0.0);
            let value = |quantity| {
                if quantity == "floor" && left < 0.0 {
                    return "not computed".to_string();
                }
                predictor.number(*cell, quantity).map_or("not known".to_string(), number)
            };
            is_cut |= left < 0.0;
            let radius = predictor.number(*cell, "radius").map_or("not known".to_string(), numbers::radius);
            rows.push(row(&[label, &value("floor"), &value("bias2"), &radius, &plan.points[*point].point.label]));
        }
        page.table(&rows);
        if is_cut {
            page.paragraph("Floors that are not computed here take too long; --json computes all of them.");
        }
        if all.len() > METHODS + LINES {
            page.paragraph(&format!("{} more are left out; --json has them.", all.len() - METHODS - LINES));
        }
        say(page.take());
    }
}

/// How samples are drawn, in words.
fn sampling(field: &dyn Field) -> String {
    let sampling = field.sampling();
    let each = if sampling.batch == 1 { "one a step".to_string() } else { format!("{} a step", sampling.batch) };
    match sampling.kind {
        Law::Mean => "every step uses the mean operator of all of an agent's data, without noise".into(),
        Law::Iid => format!("independent samples, {each}"),
        Law::Markov => format!("samples along one trajectory an agent, {each}"),
    }
}

/// The section of a problem.
fn problem(page: &mut Page, plan: &Plan, i: usize, known: &Json, explained: &mut BTreeSet<&'static str>) {
    let field = &*plan.fields[i].field;
    let mut known = known.clone();
    explain(&mut known, field);
    let of = if plan.fields.len() == 1 { "Problem".to_string() } else { format!("Problem {}", i + 1) };
    let at = plan.points.iter().find(|point| point.field == i).map_or("", |point| &point.point.label);
    page.title(&if at.is_empty() || plan.fields.len() == 1 { of } else { format!("{of}, at {at}") });
    let distinct = field.systems().map(|s| s.kinds.len()).filter(|kinds| *kinds < field.agents());
    let distinct = distinct.map_or(String::new(), |kinds| format!(" ({kinds} distinct)"));
    page.paragraph(&format!("{}{distinct}, {}; {}.", count(field.agents(), "agent"), count(field.dim(), "component"), sampling(field)));
    match field.solution() {
        Err(why) => page.paragraph(&sentence(&format!("theta* is not known: {why}"))),
        Ok(root) => {
            let shown: Vec<String> = root.theta.iter().take(6).map(|x| number(*x)).collect();
            let more = if root.theta.len() > 6 { ", .." } else { "" };
            page.paragraph(&format!("theta* = [{}{more}], of norm {}.", shown.join(", "), number(linalg::norm_sq(&root.theta).sqrt())));
        }
    }
    if let (Some(min), Some(max)) = (known["local_root_distance"]["min"].as_f64(), known["local_root_distance"]["max"].as_f64()) {
        let singular = known["local_root_distance"]["singular_agents"].as_u64().unwrap_or(0);
        let more = if singular > 0 { format!(" {singular} distinct agents have no root of their own.") } else { String::new() };
        let rounding = field.root().map_or(0.0, rounding).sqrt();
        let text = if field.systems().is_some_and(|systems| systems.kinds.len() == 1) {
            "All agents have this root: there is no heterogeneity.".to_string()
        } else if max <= rounding.max(1e-9) {
            format!("All agents have this root to rounding, their own are at most {} away from it: heterogeneity is not seen.", number(max))
        } else {
            format!("The agents' own roots are {} to {} away from it: this is what local steps pull towards.", number(min), number(max))
        };
        page.paragraph(&format!("{text}{more}"));
    }
    mixing(page, &known);
    constants::constants(page, &known, explained);
}

/// How fast samples forget.
fn mixing(page: &mut Page, known: &Json) {
    let Some(mixing) = known.get("mixing") else { return };
    let value = |value: &Json| value.as_f64().map_or(value.as_str().unwrap_or("not known").to_string(), number);
    if let Some(why) = mixing.as_str() {
        page.paragraph(&sentence(&format!("how fast samples forget is {why}")));
    } else if let Some(radius) = mixing["memory_radius"].as_f64() {
        let time = number(mixing["relaxation_time"].as_f64().unwrap_or(f64::NAN));
        page.paragraph(&format!(
            "The noise remembers: its memory matrix has the spectral radius {}, so that it forgets in about {time} samples.",
            number(radius)
        ));
    } else {
        let times = mixing["mixing_times"].as_array().cloned().unwrap_or_default();
        let time = |i: usize, key: &str| times.get(i).map_or("not known".into(), |level| value(&level[key]));
        page.paragraph(&format!(
            "Samples forget: the second eigenvalue of the slowest agent's chain is {} (0 for independent samples, 1 for a chain that does \
             not forget). Its law is within 1/4 of the stationary one after {} samples and within 0.01 after {}; what matters for theta, the \
             mean of the operator, is within 0.01 after {} (mixing times).",
            value(&mixing["second_eigenvalue"]),
            time(0, "total_variation"),
            time(1, "total_variation"),
            time(1, "operator")
        ));
    }
}

/// The settings of a method in words.
fn settings(of: &Forecast<'_>, plan: &Plan, cell: usize) -> String {
    let shape = of.shape();
    let mut parts = vec![format!("kind {}", plan.cells[cell].method.kind)];
    if shape.drift != Drift::NoSteps {
        parts.push(match shape.step_size {
            StepSize::Constant(eta) => format!("step size eta = {}", typed(eta)),
            _ => "a step size that varies".into(),
        });
        let h = shape.local_steps;
        parts.push(match shape.drift {
            Drift::ControlVariate { talk: Some(p) } => format!("a talk after each step with probability {}", number(p)),
            _ => format!("{} a round (H)", count(h.round() as usize, "local step")),
        });
        if shape.alpha_g != 1.0 {
            parts.push(format!("global step size {}", typed(shape.alpha_g)));
        }
        parts.extend(shape.participants.map(|m| format!("{m} of {} agents a round", plan.field(cell).agents())));
    }
    let planned = &plan.cells[cell];
    let carries = planned.uplink.budget.map(|BitBudget { bits, fading_snr }| match fading_snr {
        None => format!("carries {} bits a component in an exchange", number(bits.floor())),
        Some(snr) => format!("carries {} log2(1 + {} gamma) bits a component in an exchange, gamma ~ Exp(1)", typed(bits), typed(snr)),
    });
    let alters = (!planned.delivers_all(plan.field(cell))).then(|| "alters, loses or delays messages".to_string());
    let link: Vec<String> = carries.into_iter().chain(alters).collect();
    if !link.is_empty() {
        parts.push(format!("a link that {}", link.join(" and ")));
    }
    parts.join(", ")
}

/// The section of a method. `in_time` says whether its floor may be computed.
fn method(
    page: &mut Page,
    plan: &Plan,
    predictor: &Predictor<'_>,
    (point, label, cell): (usize, &str, usize),
    problem: &Json,
    target: Option<f64>,
    in_time: bool,
) {
    let at = &plan.points[point].point.label;
    let of_problem = if plan.fields.len() == 1 { String::new() } else { format!(" (problem {})", plan.points[point].field + 1) };
    page.title(&if at.is_empty() { label.to_string() } else { format!("{label}, at {at}{of_problem}") });
    let of = plan.forecast(cell);
    page.paragraph(&sentence(&settings(&of, plan, cell)));
    if let Some(reason) = &plan.cells[cell].refused {
        page.paragraph(&format!("It is refused and not run: {reason}."));
        return;
    }
    let cache = predictor.floors_of(cell);
    let outlook = cache.outlook(&of);
    if let Err(why) = of.knows_rounds() {
        unknown(page, plan, cell, &why.what);
        return;
    }
    if outlook.is_unstable() {
        stability(page, plan, cell, &of, outlook);
        return;
    }
    if in_time {
        accuracy(page, plan, predictor, cell, &of);
    } else {
        page.heading("What limits the accuracy");
        page.paragraph("The floor is not computed here, because those of all methods together take too long; --json computes it.");
        bias(page, &of);
    }
    speed(page, plan, cell, outlook);
    page.paragraph(&match target {
        Some(mse) if in_time => target::Target::of(plan, predictor, cell, mse).text(),
        Some(mse) => format!("Whether a mean-square error of {} is reached is not computed here either.", number(mse)),
        None => "--target-mse EPS2 says when the error is EPS2, and what keeps it above.".into(),
    });
    stability(page, plan, cell, &of, outlook);
    statements::section(page, plan, cell, problem, target);
}

/// What is known of a method whose rounds have no closed form.
fn unknown(page: &mut Page, plan: &Plan, cell: usize, why: &str) {
    page.heading("Accuracy, rounds and stability");
    page.paragraph(&format!("Its limit, floor, rate and stable steps are {why}."));
    if let Ok(cost) = target::cost(plan, cell) {
        page.paragraph(&format!("A round takes {}.", target::amounts(&cost, 1.0)));
    }
    match plan.forecast(cell).shape().drift {
        Drift::NoSteps => curvature::rates(page, plan, cell),
        _ => page.paragraph(
            "The constants of the problem above hold for it too. A run measures the rest: fedsa run, and fedsa check for its time.",
        ),
    }
}

/// What limits the accuracy.
fn accuracy(page: &mut Page, plan: &Plan, predictor: &Predictor<'_>, cell: usize, of: &Forecast<'_>) {
    page.heading("What limits the accuracy");
    let limits = match of.limits(&predictor.floors_of(cell)) {
        Ok(limits) => limits,
        Err(why) => return floor_alone(page, predictor, cell, of, &why.what),
    };
    let rounding = of.bias_rounding().unwrap_or(0.0);
    if limits.floor <= rounding {
        page.paragraph(&match of.no_bias() {
            Ok(Some(_)) => "Nothing: without noise and without a bias it reaches theta* to rounding.".to_string(),
            _ => format!("Nothing that can be seen: the floor is below what rounding leaves of theta*, {}.", number(rounding)),
        });
        return;
    }
    page.paragraph(&format!(
        "The error stays at {} in the end ({}), the floor. {}",
        number(limits.floor),
        limits.accuracy,
        verdict(&limits)
    ));
    page.paragraph("It consists of:");
    page.table(&parts(of, plan, cell, &limits));
    if let Some(warning) = limits.accuracy.warning() {
        page.paragraph(&sentence(&warning));
    }
    leading_order(page, of);
    finite(page, plan, predictor, cell, &limits);
    let changes = what_if::table(plan, cell, &limits);
    if changes.len() > 1 {
        page.heading("What would change it");
        page.table(&changes);
        page.paragraph(
            "Each row is computed with that change alone. The error per round is the radius of a noiseless round: closer to 1 is slower.",
        );
    }
}

/// The largest part in words.
fn verdict(limits: &Limits) -> String {
    let noise = limits.floor - limits.bias;
    let (bias_share, noise_share) = (limits.bias / limits.floor, noise / limits.floor);
    let share = |x: f64| percent(format!("{x:.2}").parse().unwrap_or(x));
    match bias_share {
        x if x > 0.9 => format!("The bias limits it ({} of the floor): averaging over more agents or samples does not help.", share(x)),
        x if x < 0.1 => {
            format!("Noise limits it ({} of the floor): more agents, larger batches or a smaller step help.", share(noise_share))
        }
        x => format!("Bias ({}) and noise ({}) limit it.", share(x), share(noise_share)),
    }
}

/// The table of the parts of a floor.
fn parts(of: &Forecast<'_>, plan: &Plan, cell: usize, limits: &Limits) -> Vec<Vec<String>> {
    let share = |x: f64| percent(format!("{:.1e}", x / limits.floor).parse().unwrap_or(0.0));
    let mut rows = vec![row(&["part", "squared error", "share", "meaning"])];
    let shape = of.shape();
    let rounding = of.bias_rounding().unwrap_or(0.0);
    let small = format!(
        "local steps pull the agents apart, and at this step by less than can be seen: the squared bias is below what rounding leaves of \
         theta*, {}",
        number(rounding)
    );
    let (bias, meaning) = match (of.no_bias().ok().flatten(), shape.drift) {
        (Some(reason), _) => ("0".to_string(), why_no_bias(reason)),
        (None, _) if limits.bias <= rounding => (format!("below {}", number(rounding)), &small[..]),
        (None, Drift::GlobalMemory { .. }) => (
            number(limits.bias),
            "some of the agents do not take part, so that a participant's own operator counts too often in the memory",
        ),
        (None, _) => (
            number(limits.bias),
            "the squared distance of the limit without noise from theta*: in H local steps each agent moves towards its own root, and the mean of where they end is not theta*",
        ),
    };
    let of_floor = match &bias[..] {
        "0" => "0%".to_string(),
        text if text.starts_with("below") => String::new(),
        _ => share(limits.bias),
    };
    rows.push(row(&["bias", &bias, &of_floor, meaning]));
    let mut add = |name: &str, value: f64, meaning: &str| {
        // Of rounding.
        let is_nothing = value.abs() <= 1e-12 * limits.floor;
        let (value, share) = if is_nothing { ("0".to_string(), "0%".to_string()) } else { (number(value), share(value)) };
        rows.push(row(&[name, &value, &share, meaning]));
    };
    if let Some(samples) = limits.samples {
        add(
            "samples",
            samples,
            "noise of independent samples. It falls about in proportion to the step, and with the number of agents and samples a step",
        );
    }
    if let Some(mixing) = limits.mixing {
        let meaning = if mixing >= 0.0 {
            "what the dependence of successive samples adds, to the noise and to the bias: nothing where samples forget at once"
        } else {
            "the dependence of successive samples lowers the floor: their errors cancel"
        };
        add("mixing", mixing, meaning);
    }
    if let Some(link) = limits.link {
        let gain = of.link().map_or(1.0, |law| law.gain);
        let mean = if (gain - 1.0).abs() < 1e-12 {
            String::new()
        } else {
            format!("; in the mean it multiplies messages by {}, which acts as a smaller step of the server", number(gain))
        };
        add("link", link, &format!("what the randomness of the link adds{mean}"));
    }
    if let Some(participation) = limits.participation {
        let m = shape.participants.unwrap_or(0);
        add(
            "participation",
            participation,
            &format!("that {m} of {} agents take part, drawn anew in each round", plan.field(cell).agents()),
        );
    }
    rows
}

/// Why there is no bias, in words.
fn why_no_bias(reason: NoBias) -> &'static str {
    match reason {
        NoBias::Controls => "none: control variates remove it, and the limit without noise is theta* itself",
        NoBias::Memory => "none: the mean operator in every step removes it, and the limit without noise is theta* itself",
        NoBias::OneStep => "none: with one local step the mean of the directions is the mean operator",
        NoBias::SameSystem => "none: all agents have the same operator, so that local steps do not pull them apart",
        NoBias::SameMatrix => "none: all agents have the same matrix, so that what their local steps pull apart sums to 0",
    }
}

/// What leading order explains under Markov samples.
fn leading_order(page: &mut Page, of: &Forecast<'_>) {
    if let Ok(explanation) = of.markov_explanation() {
        page.paragraph(&format!(
            "To leading order in the step size, the noise is {} times that of independent samples, and the squared bias is {} of the floor.",
            number(explanation.noise_over_iid),
            percent(format!("{:.2}", explanation.bias_share).parse().unwrap_or(explanation.bias_share))
        ));
    }
}

/// Whether the rounds of the file are enough to see the floor.
fn finite(page: &mut Page, plan: &Plan, predictor: &Predictor<'_>, cell: usize, limits: &Limits) {
    if plan.forecast(cell).curve_work(plan.cells[cell].run.rounds).is_ok_and(|work| work > CURVE_WORK) {
        page.paragraph("Whether the rounds of the file end before it settles is not computed: the curve takes too long.");
    } else if let Ok(finite) = predictor.number(cell, "finite_floor")
        && finite > 1.05 * limits.floor
    {
        page.paragraph(&format!("The rounds of the file end before it settles: the last fifth of them has {} on average.", number(finite)));
    }
}

/// What is known where the parts of the floor are not.
fn floor_alone(page: &mut Page, predictor: &Predictor<'_>, cell: usize, of: &Forecast<'_>, why: &str) {
    match predictor.number(cell, "floor") {
        Ok(floor) => {
            let known = predictor.accuracy(cell, "floor").unwrap_or(Accuracy::Exact);
            let part = |quantity| predictor.number(cell, quantity).map_or("not known".into(), number);
            page.paragraph(&format!(
                "The error stays at {} in the end ({known}): {}, the squared distance of the mean iterate from theta*, and {} of noise around it. \
                 What they consist of is {why}.",
                number(floor),
                part("floor_bias2"),
                part("noise")
            ));
        }
        Err(_) => page.paragraph(&sentence(&format!("The floor is {why}"))),
    }
    bias(page, of);
    // Over a codec everything but the codec's error may be known.
    if let Ok(law) = of.link()
        && law.only_mean.is_some()
        && let Ok(steady) = of.clone().with_steady_link().and_then(|of| in_time(&of)?.floor())
    {
        page.paragraph(&format!(
            "Without the randomness of the link the floor would be {}. How much the link adds is not known: {}.",
            number(steady.mse()),
            law.only_mean.unwrap_or_default()
        ));
    } else if of.link().is_ok_and(|law| !law.is_clear())
        && let Ok(clear) = in_time(&of.clone().over_clear_link()).and_then(Forecast::floor)
    {
        page.paragraph(&format!("Over a clear link the floor would be {}.", number(clear.mse())));
    }
    if let Ok(leading) = predictor.number(cell, "floor_leading_order") {
        page.paragraph(&format!("To leading order in the step size the floor is {}, often 10 to 50% off.", number(leading)));
    }
    leading_order(page, of);
}

/// A forecast whose floor does not take too long.
fn in_time<'a, 'f>(of: &'a Forecast<'f>) -> fedsa::error::Result<&'a Forecast<'f>> {
    match of.floor_work()? {
        work if work > OTHER_WORK => Err(BadInput::new("", "not computed: the floor takes too long", "fewer features or distinct agents")),
        _ => Ok(of),
    }
}

/// The bias alone.
fn bias(page: &mut Page, of: &Forecast<'_>) {
    let (Ok(bias), Ok(reason)) = (of.bias_sq(), of.no_bias()) else { return };
    let rounding = of.bias_rounding().unwrap_or(0.0);
    page.paragraph(&match reason {
        Some(_) => "The limit of the mean iterate is theta* itself: the bias is 0, and what remains is noise.".to_string(),
        None if bias <= rounding => format!(
            "The squared bias, that of the limit without noise, is below what rounding leaves of theta*, {}: what can be seen is noise.",
            number(rounding)
        ),
        None => format!("The squared bias, that of the limit without noise, is {}: the floor is at least as high.", number(bias)),
    });
}

/// How fast it is, and what a round costs.
fn speed(page: &mut Page, plan: &Plan, cell: usize, outlook: &Outlook) {
    page.heading("Rounds, samples and bits");
    match (&outlook.radius, outlook.regime()) {
        (_, Regime::TooSlow) => page.paragraph(&sentence(TOO_SLOW)),
        (Ok(radius), _) => {
            let tenfold = 10f64.ln() / -radius.ln();
            let rounds = if *radius < 1e-12 { "one round".into() } else { format!("about {} rounds", about(tenfold.max(1.0))) };
            page.paragraph(&format!(
                "Far from the floor a round multiplies the distance from the limit by {} in the long run (the radius of a noiseless round): \
                 {rounds} for a tenth of it.",
                numbers::radius(*radius)
            ));
        }
        (Err(e), _) => page.paragraph(&sentence(&format!("The radius of a round is {}", e.what))),
    }
    match target::cost(plan, cell) {
        Ok(cost) => page.paragraph(&format!("A round takes {}.", target::amounts(&cost, 1.0))),
        Err(e) => page.paragraph(&sentence(&format!("What a round costs is {}", e.what))),
    }
}

/// Which steps are stable, and why the next larger one is not.
fn stability(page: &mut Page, plan: &Plan, cell: usize, of: &Forecast<'_>, outlook: &Outlook) {
    page.heading("Stability");
    let square = outlook.mean_square.as_ref().and_then(|square| square.as_ref().ok().map(|x| numbers::radius(*x)));
    let rho = outlook.radius.as_ref().map_or("not known".into(), |rho| numbers::radius(*rho));
    page.paragraph(&match outlook.regime() {
        Regime::MeanDiverges => format!("This step is UNSTABLE: the radius of a noiseless round is {rho}. {}", mode(of)),
        Regime::MeanSquareDiverges => format!(
            "This step is stable in the mean only (radius {rho}): noise in the matrices makes the mean square DIVERGE, its radius is {}.",
            square.unwrap_or_default()
        ),
        Regime::TooSlow => sentence(TOO_SLOW),
        Regime::Unknown => sentence(&format!("It is {}", outlook.radius.as_ref().err().map_or("not known", |e| &e.what))),
        Regime::Stable | Regime::InMean => match (&outlook.mean_square, square) {
            (_, Some(square)) => {
                format!("This step is stable: the radius of a noiseless round is {rho}, that of the second moments {square}.")
            }
            (None, _) => format!("This step is stable: the radius of a noiseless round is {rho}."),
            (Some(_), None) => {
                let why = outlook.mean_square.as_ref().and_then(|square| square.as_ref().err().map(|e| e.what.clone()));
                format!("This step is stable in the mean, with radius {rho}. In the mean square it is {}.", why.unwrap_or_default())
            }
        },
    });
    let found = largest_stable_step(plan, cell);
    match &found {
        Ok(stable) if stable.step.is_infinite() => page.paragraph("Every step is stable: none is too large."),
        Ok(stable) => {
            let step = stable.step;
            let ratio = of.step_size().map_or(String::new(), |eta| match step / eta {
                x if x >= 1.0 => format!(", {} times the present one", number(x)),
                _ => ", below the present one".into(),
            });
            page.paragraph(&format!("With these local steps it is {}{ratio}. {}", stable_text(&found), beyond(of, step)));
        }
        Err(e) => page.paragraph(&sentence(&format!("The largest stable step is {}", e.what))),
    }
    windows(page, plan, cell, of);
}

/// What fails beyond the largest stable step.
fn beyond(of: &Forecast<'_>, step: f64) -> String {
    // Edges of the mean are known to 1e-6, those of the mean square to 2%. The step that is looked at is the one that is printed.
    let above = [1.002, 1.03].map(|factor| fedsa_theory::tune::rounded(factor * step));
    let failing = above.into_iter().find_map(|eta| Some((eta, of.at_step(eta).ok().filter(|spot| spot.verdict != Verdict::Stable)?)));
    match failing {
        Some((eta, Spot { verdict: Verdict::MeanDiverges, radius, .. })) => {
            let of = of.clone().with_step(eta);
            format!("At {} the mean diverges: the radius of a noiseless round is {}. {}", typed(eta), numbers::radius(radius), mode(&of))
        }
        Some((eta, Spot { verdict: Verdict::MeanSquareDiverges, mean_square: Some(square), .. })) => format!(
            "At {} the mean still converges, and the mean square does not: the radius of the second moments is {}. The noise of the \
             matrices grows with the distance from theta*, and at this step adds more in a round than the round removes.",
            typed(eta),
            numbers::radius(square)
        ),
        _ => String::new(),
    }
}

/// The direction that grows, in words.
fn mode(of: &Forecast<'_>) -> String {
    match of.leading_eigenvalue() {
        Ok(Some((re, im))) if im > 1e-9 * re.abs() => {
            format!("The leading eigenvalues of the round are {} +- {} i: the error turns while it grows.", number(re), number(im))
        }
        Ok(Some((re, _))) if re < 0.0 => {
            format!("The leading eigenvalue of the round is {}: a round overshoots, and the error changes its sign every time.", number(re))
        }
        Ok(Some((re, _))) => format!("The leading eigenvalue of the round is {}: the error grows along one direction.", number(re)),
        Ok(None) | Err(_) => String::new(),
    }
}

/// The stable steps for some numbers of local steps.
fn windows(page: &mut Page, plan: &Plan, cell: usize, of: &Forecast<'_>) {
    let own = of.local_steps().round().max(1.0) as u64;
    let mut hs = vec![1, own / 10, own, own.saturating_mul(10)];
    hs.retain(|h| *h >= 1);
    hs.sort_unstable();
    hs.dedup();
    match of.stable_sets(&hs, largest_stable_step(plan, cell).ok()) {
        Err(e) => page.paragraph(&sentence(&format!("Stable steps for other numbers of local steps are {}", e.what))),
        Ok(sets) => {
            let which = if !of.is_noiseless() && !sets[0].in_mean_square { ", in the mean" } else { "" };
            page.paragraph(&format!("Stable steps by number of local steps{which}:"));
            page.table(&sets.iter().map(|set| interval_row(set, own)).collect::<Vec<_>>());
            cut_short(page, &sets, &hs);
            if sets.iter().any(|set| set.intervals.len() > 1) {
                page.paragraph(
                    "Stable steps need not form one interval: between these windows a smaller step diverges, and a larger one does not.",
                );
            }
        }
    }
}

/// Where the scan of steps was coarser or shorter than it could be.
fn cut_short(page: &mut Page, sets: &[StableSet], hs: &[u64]) {
    let finest = 2f64.powf(1.0 / 15.5);
    if let Some(set) = sets.first().filter(|set| set.ratio > finest) {
        page.paragraph(&format!(
            "To end in time the scan looks at steps a factor of {} apart: narrower windows may be missed.",
            number(set.ratio)
        ));
    }
    let left_out: Vec<String> = hs.iter().filter(|h| sets.iter().all(|set| set.local_steps != **h)).map(|h| format!("H = {h}")).collect();
    if !left_out.is_empty() {
        page.paragraph(&format!("Left out, because they take too long: {}.", left_out.join(", ")));
    }
    for set in sets.iter().filter(|set| set.is_cut) {
        page.paragraph(&format!(
            "The scan for H = {} was cut short at {}, because it takes too long.",
            set.local_steps,
            number(set.looked_to)
        ));
    }
}

fn interval_row(set: &StableSet, own: u64) -> Vec<String> {
    let text = |(low, high): &(f64, f64)| match (*low, *high) {
        (0.0, high) if high.is_infinite() => format!("up to {} at least", number(set.looked_to)),
        (0.0, high) => format!("up to {}", rounded_down(high)),
        (low, high) if high.is_infinite() => format!("from {} on", rounded_up(low)),
        (low, high) => format!("{} to {}", rounded_up(low), rounded_down(high)),
    };
    let all: Vec<String> = set.intervals.iter().map(text).collect();
    let mark = if set.local_steps == own { " (as in the file)" } else { "" };
    let shown = if all.is_empty() { "none".to_string() } else { all.join("; ") };
    row(&[&format!("H = {}{mark}", set.local_steps), &shown])
}
