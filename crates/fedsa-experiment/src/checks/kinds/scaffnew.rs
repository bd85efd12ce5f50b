//! `scaffnew`: control variates with random talk against Theorem B.4.

use fedsa::error::{Error, Result};
use fedsa::method::Drift;
use fedsa::problem::linear::systems::System;
use fedsa::sampling::Law;
use fedsa_theory::scaffnew::{Scaffnew, ScaffnewState};

use crate::checks::facts::{Context, PlanFacts};
use crate::checks::follow::{Deviation, followed};
use crate::checks::kind::CheckKind;
use crate::checks::verdict::Measured;
use crate::config::Check;
use crate::config::schema::ControlsStart;
use crate::plan::ResolvedStart;

/// mse or lyapunov of control variates with random talk on `Abar_c = a I` follows the exact recursion of Theorem B.4.
pub struct TheoremB4Check;

impl CheckKind for TheoremB4Check {
    fn name(&self) -> &'static str {
        "scaffnew"
    }

    fn possible(&self, facts: &PlanFacts<'_>, check: &Check, _: usize, cell: usize) -> Result<()> {
        facts.metric(cell, check.metric_name())?;
        theorem_b4(facts, cell)?;
        facts.several_seeds(cell, "")
    }

    fn measure(&self, ctx: &Context<'_>, check: &Check) -> Result<Vec<Measured>> {
        let one = |(point, cell): (usize, usize)| {
            let (recursion, start) = theorem_b4(&ctx.facts, cell)?;
            let last = ctx.facts.plan.cells[cell].run.rounds as usize;
            let talks = recursion.talks(start, last);
            let expected = |t: u64| match check.metric_name() {
                "lyapunov" => recursion.psi(&talks[t as usize]),
                _ => talks[t as usize].v,
            };
            let measured = ctx.results.curve(cell, check.metric_name());
            let after_start = measured.iter().filter(|(row, _)| row.round > 0);
            let deviations: Vec<Deviation> = after_start.map(|(row, values)| Deviation::of(values, expected(row.round), 0.0)).collect();
            followed(&deviations, 0.0, ctx.facts.place(point))
        };
        ctx.cells(check)?.into_iter().map(one).collect()
    }

    fn text(&self, check: &Check) -> String {
        format!(
            "the mean {} of {} follows the exact recursion of Theorem B.4: at 95% of the rounds within 3 standard errors, at all within 5",
            check.metric_name(),
            check.method_label()
        )
    }
}

/// The recursion of Theorem B.4 for a cell, and its start.
fn theorem_b4(facts: &PlanFacts<'_>, cell: usize) -> Result<(Scaffnew, ScaffnewState)> {
    let accepted = "random talk of all agents, alike in weight, on `Abar_c = a I` with noise on b only, over a clear link, \
                    with a global step of 1, from a start that is the same for every seed";
    let other = |what: &str| Error::new("", format!("Theorem B.4 does not apply: {what}"), accepted);
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
    let x = if planned.method.controls == ControlsStart::Ideal { 0.0 } else { controls.sum() };
    Ok((recursion, ScaffnewState { u, v: u, c: 0.0, x }))
}
