//! Checks against closed forms: predicted quantities, exact curves, Theorem B.4.

use fedsa::error::{BadInput, Result};
use fedsa::methods::Drift;
use fedsa::problem::systems::System;
use fedsa::sampling::Law;
use fedsa::theory::scaffnew::{Scaffnew, ScaffnewState};

use super::verdict::{Asked, Measured};
use super::{Context, Facts, metric_of, number_of};
use crate::config::Check;
use crate::config::schema::Controls;
use crate::numbers::{number, percent};
use crate::plan::ResolvedStart;
use crate::results::Estimate;

pub(super) fn predicted_possible(facts: &Facts<'_>, check: &Check, _: usize, cell: usize) -> Result<()> {
    facts.predictor.knows(cell, metric_of(check)).map_err(|e| BadInput { key: "metric".into(), ..e })
}

pub(super) fn predicted(ctx: &Context<'_>, check: &Check) -> Result<Vec<Measured>> {
    let (expected, tolerance) = (number_of(check), check.tolerance.expect("validated"));
    let one = |(point, cell): (usize, usize)| {
        let measured = ctx.facts.predictor.number(cell, metric_of(check))?;
        let asked = Asked::near(expected, tolerance * expected.abs());
        let allowance = format!("tolerance {}", percent(tolerance));
        Ok(Measured { allowance, ..Measured::new(measured, asked, ctx.facts.place(point)) })
    };
    ctx.cells(check)?.into_iter().map(one).collect()
}

pub(super) fn predicted_text(check: &Check) -> String {
    format!("the predicted `{}` of {} is {}", metric_of(check), super::method_of(check), number(number_of(check)))
}

pub(super) fn curve_possible(facts: &Facts<'_>, check: &Check, _: usize, cell: usize) -> Result<()> {
    facts.metric(cell, metric_of(check))?;
    facts.predictor.knows_curve(cell)?;
    facts.several_seeds(cell, "")
}

pub(super) fn curve(ctx: &Context<'_>, check: &Check) -> Result<Vec<Measured>> {
    let slack = check.tolerance.unwrap_or(0.0);
    let one = |(point, cell): (usize, usize)| {
        let exact = ctx.facts.predictor.curve(cell)?;
        let exact = ctx.facts.predictor.mse(cell, &exact, metric_of(check));
        let grid = &ctx.facts.plan.cells[cell].grid;
        let measured = ctx.results.curve(cell, metric_of(check));
        let after_start = measured.iter().filter(|(row, _)| row.round > 0);
        let deviations: Vec<Deviation> = after_start
            .filter_map(|(row, values)| {
                let expected = exact[grid.binary_search(&row.round).ok()?];
                Some(Deviation::of(values, expected, slack * expected))
            })
            .collect();
        followed(&deviations, slack, ctx.facts.place(point))
    };
    ctx.cells(check)?.into_iter().map(one).collect()
}

pub(super) fn curve_text(check: &Check) -> String {
    format!(
        "the mean {} of {} follows its exact mean-square error: at 95% of the rounds within 3 standard errors, at all within 5",
        metric_of(check),
        super::method_of(check)
    )
}

pub(super) fn scaffnew_possible(facts: &Facts<'_>, check: &Check, _: usize, cell: usize) -> Result<()> {
    facts.metric(cell, metric_of(check))?;
    theorem_b4(facts, cell)?;
    facts.several_seeds(cell, "")
}

pub(super) fn scaffnew(ctx: &Context<'_>, check: &Check) -> Result<Vec<Measured>> {
    let one = |(point, cell): (usize, usize)| {
        let (recursion, start) = theorem_b4(&ctx.facts, cell)?;
        let last = ctx.facts.plan.cells[cell].run.rounds as usize;
        let talks = recursion.talks(start, last);
        let expected = |t: u64| match metric_of(check) {
            "lyapunov" => recursion.psi(&talks[t as usize]),
            _ => talks[t as usize].v,
        };
        let measured = ctx.results.curve(cell, metric_of(check));
        let after_start = measured.iter().filter(|(row, _)| row.round > 0);
        let deviations: Vec<Deviation> = after_start.map(|(row, values)| Deviation::of(values, expected(row.round), 0.0)).collect();
        followed(&deviations, 0.0, ctx.facts.place(point))
    };
    ctx.cells(check)?.into_iter().map(one).collect()
}

pub(super) fn scaffnew_text(check: &Check) -> String {
    format!(
        "the mean {} of {} follows the exact recursion of Theorem B.4: at 95% of the rounds within 3 standard errors, at all within 5",
        metric_of(check),
        super::method_of(check)
    )
}

/// How far the mean of some values is from what is expected.
struct Deviation {
    /// In standard errors, beside the slack.
    errors: f64,
    /// Whether three standard errors and the slack are half of what is expected, or more.
    weak: bool,
}

impl Deviation {
    fn of(values: &[f64], expected: f64, slack: f64) -> Self {
        let Estimate { mean, se } = Estimate::of(values);
        let beyond = (mean - expected).abs() - slack;
        Self { errors: if beyond <= 0.0 { 0.0 } else { beyond / se }, weak: 3.0 * se + slack >= 0.5 * expected.abs() }
    }
}

/// Whether deviations are those of the right mean: 95% within three standard errors, all within five.
fn followed(deviations: &[Deviation], slack: f64, place: String) -> Result<Measured> {
    if deviations.is_empty() {
        return Err(BadInput::new("", "no round after the start is recorded by all seeds", ""));
    }
    let count = deviations.len() as f64;
    let within = deviations.iter().filter(|d| d.errors <= 3.0).count() as f64 / count;
    // A deviation that is no number, as of a run that diverged, is the worst.
    let worst = deviations.iter().map(|d| if d.errors.is_nan() { f64::INFINITY } else { d.errors }).fold(0.0, f64::max);
    let beside = if slack > 0.0 { format!(", beside a tolerance of {}", percent(slack)) } else { String::new() };
    let measured = Measured::new(within, Asked::within(Some(0.95), None), place);
    Ok(Measured {
        allowance: format!(
            "the share of {count} rounds within 3 SE; the furthest is off by {} SE, at most 5 allowed{beside}",
            number(worst)
        ),
        besides: (worst > 5.0).then(|| format!("one round is off by {} SE", number(worst))),
        // Where noise hides half of the curve at most rounds, any curve of its size is followed.
        weak: deviations.iter().filter(|d| d.weak).count() as f64 > 0.5 * count,
        ..measured
    })
}

/// The recursion of Theorem B.4 for a cell, and its start.
fn theorem_b4(facts: &Facts<'_>, cell: usize) -> Result<(Scaffnew, ScaffnewState)> {
    let accepted = "random talk of all agents, alike in weight, on `Abar_c = a I` with noise on b only, over a clear link, \
                    with a global step of 1, from a start that is the same for every seed";
    let other = |what: &str| BadInput::new("", format!("Theorem B.4 does not apply: {what}"), accepted);
    let (field, planned) = (facts.plan.field(cell), &facts.plan.cells[cell]);
    let shape = planned.shape();
    let Drift::ControlVariate { talk: Some(p) } = shape.drift else { return Err(other("talks are not random")) };
    let systems = field.systems().ok_or_else(|| other("the operators are not linear"))?;
    let root = field.root().ok_or_else(|| other("theta* is not known"))?;
    if field.sampling().kind != Law::Iid {
        return Err(other("samples are not i.i.d."));
    }
    if !shape.is_linear || shape.alpha_g != 1.0 || shape.participants.is_some_and(|m| m < field.agents()) {
        return Err(other("a round is not the theorem's"));
    }
    if planned.output != fedsa::record::OutputRule::Last {
        return Err(other("the output is not the last iterate"));
    }
    let weights = field.weights();
    if weights.iter().any(|p| (p - weights[0]).abs() > 1e-12 * weights[0]) {
        return Err(other("agents differ in weight"));
    }
    let d = field.dim();
    let scale = systems.kinds[0].a[(0, 0)];
    let is_scaled_identity = |s: &System| (0..d).all(|i| (0..d).all(|j| s.a[(i, j)] == if i == j { scale } else { 0.0 }));
    if !systems.kinds.iter().all(is_scaled_identity) {
        return Err(other("some Abar_c is not a I"));
    }
    // The mean over agents of the noise's second moment, E ||b||^2 - ||bbar||^2.
    let mut sigma = 0.0;
    for (k, (System { a, b }, weight)) in systems.kinds.iter().zip(systems.kind_weights()).enumerate() {
        let moments = field.moments(k).ok_or_else(|| other("the noise is not known"))?;
        let fixed = fedsa::linalg::kron(a, a);
        if (&moments.aa - &fixed).norm_max() > 1e-12 * fixed.norm_max() {
            return Err(other("A(z) is random"));
        }
        sigma += weight * (0..d).map(|i| moments.bb[(i, i)] - b[i] * b[i]).sum::<f64>();
    }
    let recursion = Scaffnew {
        agents: field.agents() as u64,
        eta: shape.step_size.constant().ok_or_else(|| other("the step varies"))?,
        a: scale,
        p,
        // A step averages a batch of samples.
        sigma: sigma / field.sampling().batch as f64,
    };
    let ResolvedStart::Fixed(theta) = &planned.start else { return Err(other("the start is random")) };
    let u = fedsa::linalg::distance_sq(theta, root);
    let controls = (0..field.agents()).map(|c| fedsa::linalg::norm_sq(&systems.of(c).mean(root)) / field.agents() as f64);
    let x = if planned.method.controls == Controls::Ideal { 0.0 } else { controls.sum() };
    Ok((recursion, ScaffnewState { u, v: u, c: 0.0, x }))
}
