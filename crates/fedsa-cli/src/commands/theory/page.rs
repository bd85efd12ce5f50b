//! The long page: the limits of each method's accuracy, its costs, and its stable steps.

use std::collections::BTreeSet;

use fedsa::linalg;
use fedsa::method::Drift;
use fedsa::problem::Field;
use fedsa::sampling::Law;
use fedsa::schedule::StepSize;
use fedsa::uplink::stage::bit_budget::BitBudget;
use fedsa_experiment::numbers::{self, about, number, percent, typed};
use fedsa_experiment::theory::{LeftOut, MethodTheory, ProblemTheory, Theory};
use fedsa_experiment::{Plan, Predictor};
use fedsa_theory::predict::{Forecast, Limits, NoBias, Regime, TOO_SLOW, rounding};
use fedsa_theory::work;
use serde_json::Value as Json;

use super::text::{Page, row, sentence};
use super::{changes, constants, curvature, privacy, stability, statements, target};
use crate::commands::count;
use crate::commands::progress::Predicting;

/// The largest numbers of problems, and of methods at points, that are described in full, and that have a line.
const PROBLEMS: usize = 4;
const METHODS: usize = 8;
const LINES: usize = 100;
/// The largest numbers of multiplications (about one per nanosecond) for the floors of lines, and for the curve of a method and the floor
/// that it is compared with.
const LINES_WORK: f64 = 2e10;
const CURVE_WORK: f64 = 4e9;
const OTHER_WORK: f64 = 4e9;

/// Makes the page, and passes it on part by part, because later parts take time; `shown` displays the current computation.
pub fn page(
    plan: &Plan,
    predictor: &Predictor,
    mut theory: Theory,
    target: Option<f64>,
    shown: &Predicting,
    say: &mut dyn FnMut(Vec<String>),
) {
    let mut page = Page::default();
    let experiment = &plan.experiment;
    page.title(&format!("{}: {}", experiment.id, experiment.title));
    page.paragraph(
        "What theory predicts before anything runs. Errors are squared distances ||theta - theta*||^2 from the root theta*, mean over \
         runs. The guide `What a target costs` explains the page; --json has all numbers with all their digits.",
    );
    let problems = theory.problems();
    let mut explained = BTreeSet::new();
    for (i, known) in problems.iter().enumerate().take(PROBLEMS) {
        problem(&mut page, plan, i, known, &mut explained);
        say(page.take());
    }
    if problems.len() > PROBLEMS {
        page.paragraph(&format!("{} more are not described; --json has them.", count(problems.len() - PROBLEMS, "problem")));
    }
    for _ in 0..METHODS.min(theory.len()) {
        if let Some((label, point)) = theory.upcoming() {
            shown.about(&format!("{label} {point}"));
        }
        let Some(known) = theory.next_method(&problems) else { break };
        method(&mut page, plan, predictor, &known, target);
        say(page.take());
    }
    if !theory.left_out().is_empty() {
        left_out(&mut page, theory.left_out());
        say(page.take());
    }
    if theory.len() > METHODS {
        others(&mut page, plan, predictor, shown);
        say(page.take());
    }
}

/// Numbers that were omitted because they take too long.
fn left_out(page: &mut Page, all: &[LeftOut]) {
    page.title("Left out");
    page.paragraph("These take too long, by a count of operations that is the same on every machine:");
    let of = |one: &LeftOut| match one.point.as_str() {
        "" => one.method.clone(),
        point => format!("{}, at {point}", one.method),
    };
    page.table(&all.iter().map(|one| row(&[&of(one), &one.what, &one.why])).collect::<Vec<_>>());
}

/// Points after the first ones, one line each.
fn others(page: &mut Page, plan: &Plan, predictor: &Predictor, shown: &Predicting) {
    page.title("Other points");
    page.paragraph(&format!("In brief; fix the swept keys with --set to have a page of one of them. Above: the first {METHODS}."));
    let all: Vec<(usize, &String, usize)> = (0..plan.points.len())
        .flat_map(|point| plan.labels.iter().zip(&plan.points[point].cells).map(move |(label, cell)| (point, label, *cell)))
        .collect();
    let mut rows = vec![row(&["method", "floor", "bias^2", "radius", "at"])];
    let (mut left, mut is_cut) = (LINES_WORK, false);
    for (point, label, cell) in all.iter().skip(METHODS).take(LINES) {
        shown.about(&format!("{label} {}", plan.points[*point].point.label));
        let mut value = |quantity: &str| {
            let (value, spent) = work::within(left, || predictor.number(*cell, quantity));
            left -= spent.work;
            is_cut |= spent.was_cut;
            match value {
                Ok(x) => number(x),
                Err(_) if spent.was_cut => "not computed".to_string(),
                Err(_) => "not known".to_string(),
            }
        };
        let (floor, bias) = (value("floor"), value("bias2"));
        let radius = predictor.number(*cell, "radius").map_or("not known".to_string(), numbers::radius);
        rows.push(row(&[label, &floor, &bias, &radius, &plan.points[*point].point.label]));
    }
    page.table(&rows);
    if is_cut {
        page.paragraph("Floors that are not computed here take too long; --json computes those of every point for longer.");
    }
    if all.len() > METHODS + LINES {
        page.paragraph(&format!("{} more are left out; --json has them.", all.len() - METHODS - LINES));
    }
}

/// How samples are drawn, in words.
pub(super) fn sampling(field: &dyn Field) -> String {
    let sampling = field.sampling();
    let each = if sampling.batch == 1 { "one a step".to_string() } else { format!("{} a step", sampling.batch) };
    match sampling.kind {
        Law::Mean => "every step uses the mean operator of all of an agent's data, without noise".into(),
        Law::Iid => format!("independent samples, {each}"),
        Law::Markov => format!("samples along one trajectory an agent, {each}"),
    }
}

/// The section of a problem.
fn problem(page: &mut Page, plan: &Plan, i: usize, known: &ProblemTheory, explained: &mut BTreeSet<&'static str>) {
    let field = &*plan.fields[i].field;
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
    if let (Some(min), Some(max)) =
        (known.numbers["local_root_distance"]["min"].as_f64(), known.numbers["local_root_distance"]["max"].as_f64())
    {
        let singular = known.numbers["local_root_distance"]["singular_agents"].as_u64().unwrap_or(0);
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
    mixing(page, known);
    constants::constants(page, known, explained);
}

/// The mixing of the samples.
fn mixing(page: &mut Page, known: &ProblemTheory) {
    if let Some(why) = known.reason("mixing") {
        return page.paragraph(&sentence(&format!("how fast samples forget is {why}")));
    }
    let Some(mixing) = known.numbers.get("mixing") else { return };
    if let Some(radius) = mixing["memory_radius"].as_f64() {
        let time = number(mixing["relaxation_time"].as_f64().unwrap_or(f64::NAN));
        return page.paragraph(&format!(
            "The noise remembers: its memory matrix has the spectral radius {}, so that it forgets in about {time} samples.",
            number(radius)
        ));
    }
    let value = |table: &Json, key: &str| match table[key].as_f64() {
        Some(x) => number(x),
        None => table["unknown"][key]["text"].as_str().unwrap_or("not known").to_string(),
    };
    let times = mixing["mixing_times"].as_array().cloned().unwrap_or_default();
    let time = |i: usize, key: &str| times.get(i).map_or("not known".into(), |level| value(level, key));
    page.paragraph(&format!(
        "Samples forget: the second eigenvalue of the slowest agent's chain is {} (0 for independent samples, 1 for a chain that does \
         not forget). Its law is within 1/4 of the stationary one after {} samples and within 0.01 after {}; what matters for theta, the \
         mean of the operator, is within 0.01 after {} (mixing times).",
        value(mixing, "second_eigenvalue"),
        time(0, "total_variation"),
        time(1, "total_variation"),
        time(1, "operator")
    ));
}

/// The settings of a method in words.
pub(super) fn settings(of: &Forecast, plan: &Plan, cell: usize) -> String {
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
    let carries = planned.uplink.budget().map(|&BitBudget { bits, fading_snr, .. }| match fading_snr {
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

/// The section of a method.
fn method(page: &mut Page, plan: &Plan, predictor: &Predictor, known: &MethodTheory, target: Option<f64>) {
    let (cell, at) = (known.cell, &known.point);
    let of_problem = if plan.fields.len() == 1 { String::new() } else { format!(" (problem {})", known.problem + 1) };
    page.title(&if at.is_empty() { known.label.clone() } else { format!("{}, at {at}{of_problem}", known.label) });
    let of = plan.forecast(cell);
    page.paragraph(&sentence(&settings(&of, plan, cell)));
    if let Some(reason) = &known.refused {
        page.paragraph(&format!("It is refused and not run: {reason}."));
        return;
    }
    if let Err(why) = &known.rounds {
        if known.floor.is_ok() || known.outlook.radius.is_ok() {
            page.paragraph("The operators are not linear: the radius of a round is that at theta*, and floors are of leading order.");
            floor_alone(page, predictor, known, &of, &why.text);
            speed(page, known);
        } else {
            unknown(page, plan, known, &why.text);
        }
        return;
    }
    if known.outlook.is_unstable() {
        stability::section(page, known, &of);
        return;
    }
    accuracy(page, plan, predictor, known, &of);
    speed(page, known);
    for line in known.privacy.iter().flat_map(privacy::privacy) {
        page.paragraph(&format!("Privacy: {line}."));
    }
    page.paragraph(&match (&known.target, target) {
        (Some(target), _) => target::text(target),
        _ => "--target-mse EPS2 says when the error is EPS2, and what keeps it above.".into(),
    });
    stability::section(page, known, &of);
    if let Some(theorems) = &known.theorems {
        statements::section(page, theorems);
    }
}

/// The known numbers of a method whose rounds have no closed form.
fn unknown(page: &mut Page, plan: &Plan, known: &MethodTheory, why: &str) {
    page.heading("Accuracy, rounds and stability");
    page.paragraph(&format!("Its limit, floor, rate and stable steps are {why}."));
    if let Ok(cost) = &known.cost {
        page.paragraph(&format!("A round takes {}.", target::amounts(cost, 1.0)));
    }
    match plan.forecast(known.cell).shape().drift {
        Drift::NoSteps => curvature::rates(page, plan, known),
        _ => page.paragraph(
            "The constants of the problem above hold for it too. A run measures the rest: fedsa run, and fedsa check for its time.",
        ),
    }
}

/// The limits of the accuracy.
fn accuracy(page: &mut Page, plan: &Plan, predictor: &Predictor, known: &MethodTheory, of: &Forecast) {
    page.heading("What limits the accuracy");
    let limits = match &known.limits {
        Ok(limits) => limits,
        Err(why) => return floor_alone(page, predictor, known, of, &why.text),
    };
    if limits.floor <= known.bias_rounding {
        page.paragraph(&match known.no_bias {
            Some(_) => "Nothing: without noise and without a bias it reaches theta* to rounding.".to_string(),
            None => {
                format!("Nothing that can be seen: the floor is below what rounding leaves of theta*, {}.", number(known.bias_rounding))
            }
        });
        return;
    }
    page.paragraph(&format!(
        "The error stays at {} in the end ({}), the floor. {}",
        number(limits.floor),
        limits.accuracy,
        verdict(limits)
    ));
    page.paragraph("It consists of:");
    page.table(&parts(of, plan, known, limits));
    if let Some(warning) = limits.accuracy.warning() {
        page.paragraph(&sentence(&warning));
    }
    leading_order(page, known);
    finite(page, predictor, known, limits);
    if !known.changes.is_empty() {
        page.heading("What would change it");
        page.table(&changes::table(&known.changes, limits));
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

/// The bias among the parts of a floor; `share` writes the share of a number.
fn bias_part(known: &MethodTheory, limits: &Limits, drift: Drift, share: impl Fn(f64) -> String) -> Vec<String> {
    let rounding = known.bias_rounding;
    let small = format!(
        "local steps pull the agents apart, and at this step by less than can be seen: the squared bias is below what rounding leaves of \
         theta*, {}",
        number(rounding)
    );
    let (bias, meaning) = match (known.no_bias, drift) {
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
    row(&["bias", &bias, &of_floor, meaning])
}

/// The table of the parts of a floor.
fn parts(of: &Forecast, plan: &Plan, known: &MethodTheory, limits: &Limits) -> Vec<Vec<String>> {
    let share = |x: f64| percent(format!("{:.1e}", x / limits.floor).parse().unwrap_or(0.0));
    let mut rows = vec![row(&["part", "squared error", "share", "meaning"])];
    let shape = of.shape();
    rows.push(bias_part(known, limits, shape.drift, share));
    let mut add = |name: &str, value: f64, meaning: &str| {
        // An effect of rounding.
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
            &format!("that {m} of {} agents take part, drawn anew in each round", plan.field(known.cell).agents()),
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

/// The share that the leading order explains under Markov samples.
fn leading_order(page: &mut Page, known: &MethodTheory) {
    if let Some(explanation) = known.leading_order {
        page.paragraph(&format!(
            "To leading order in the step size, the noise is {} times that of independent samples, and the squared bias is {} of the floor.",
            number(explanation.noise_over_iid),
            percent(format!("{:.2}", explanation.bias_share).parse().unwrap_or(explanation.bias_share))
        ));
    }
}

/// Whether the file's rounds suffice to reach the floor.
fn finite(page: &mut Page, predictor: &Predictor, known: &MethodTheory, limits: &Limits) {
    let (finite, spent) = work::within(CURVE_WORK, || predictor.number(known.cell, "finite_floor"));
    match finite {
        Err(_) if spent.was_cut => {
            page.paragraph("Whether the rounds of the file end before it settles is not computed: the curve takes too long.");
        }
        Ok(finite) if finite > 1.05 * limits.floor => page
            .paragraph(&format!("The rounds of the file end before it settles: the last fifth of them has {} on average.", number(finite))),
        _ => {}
    }
}

/// The floor of a method, if its parts are unknown.
fn floor_alone(page: &mut Page, predictor: &Predictor, known: &MethodTheory, of: &Forecast, why: &str) {
    match &known.floor {
        Ok(floor) => page.paragraph(&format!(
            "The error stays at {} in the end ({}): {}, the squared distance of the mean iterate from theta*, and {} of noise around it. \
             What they consist of is {why}.",
            number(floor.value.mse()),
            floor.accuracy,
            number(floor.value.bias_sq()),
            number(floor.value.noise)
        )),
        Err(_) => page.paragraph(&sentence(&format!("The floor is {why}"))),
    }
    bias(page, known);
    let floor_of = |of: Forecast| work::within(OTHER_WORK, || of.floor()).0;
    // Over a codec everything but the codec's error may be known.
    if let Ok(law) = of.link()
        && law.only_mean.is_some()
        && let Ok(steady) = of.clone().with_steady_link().and_then(floor_of)
    {
        page.paragraph(&format!(
            "Without the randomness of the link the floor would be {}. How much the link adds is not known: {}.",
            number(steady.mse()),
            law.only_mean.unwrap_or_default()
        ));
    } else if of.link().is_ok_and(|law| !law.is_clear())
        && let Ok(clear) = floor_of(of.clone().over_clear_link())
    {
        page.paragraph(&format!("Over a clear link the floor would be {}.", number(clear.mse())));
    }
    if let Ok(leading) = predictor.number(known.cell, "floor_leading_order") {
        page.paragraph(&format!("To leading order in the step size the floor is {}, often 10 to 50% off.", number(leading)));
    }
    leading_order(page, known);
}

/// The bias, if only it is known.
fn bias(page: &mut Page, known: &MethodTheory) {
    let Ok(bias) = known.bias else { return };
    page.paragraph(&match known.no_bias {
        Some(_) => "The limit of the mean iterate is theta* itself: the bias is 0, and what remains is noise.".to_string(),
        None if bias <= known.bias_rounding => format!(
            "The squared bias, that of the limit without noise, is below what rounding leaves of theta*, {}: what can be seen is noise.",
            number(known.bias_rounding)
        ),
        None => format!("The squared bias, that of the limit without noise, is {}: the floor is at least as high.", number(bias)),
    });
}

/// The speed, and the cost of a round.
fn speed(page: &mut Page, known: &MethodTheory) {
    page.heading("Rounds, samples and bits");
    match (&known.outlook.radius, known.regime) {
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
    match &known.cost {
        Ok(cost) => page.paragraph(&format!("A round takes {}.", target::amounts(cost, 1.0))),
        Err(reason) => page.paragraph(&sentence(&format!("What a round costs is {}", reason.text))),
    }
}
