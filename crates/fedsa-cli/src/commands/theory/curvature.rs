//! Rates of methods with gradients and Hessians, from the eigenvalues of the agents' Hessians.

use fedsa_experiment::Plan;
use fedsa_experiment::numbers::{about, number};
use fedsa_experiment::theory::{HessianEigenvalues, MethodTheory};
use fedsa_theory::shed;
use serde_json::Value as Json;

use super::text::{Page, row};

/// The rate of a method without local steps.
pub fn rates(page: &mut Page, plan: &Plan, known: &MethodTheory) {
    let (planned, field) = (&plan.cells[known.cell], plan.field(known.cell));
    let settings = serde_json::to_value(&*planned.method.settings).unwrap_or(Json::Null);
    match planned.method.kind {
        "lstd" => {
            page.paragraph("Known: the server solves the sum of all agents' systems, so that the first round ends at theta* to rounding, over a clear link.");
            return;
        }
        "lspi" => {
            page.paragraph("Known: a round solves the sum of the systems under the policy of theta. Policy iteration settles, or goes round in a cycle.");
            return;
        }
        "fitted-q" => {
            page.paragraph("Known: close to theta*, a round multiplies errors by gamma G^-1 C under the policy of theta*.");
            return;
        }
        "gmres" => {
            let d = field.dim();
            page.paragraph(&format!(
                "Known: on linear operators and without noise at most {} rounds to theta*, one a direction of its Krylov space.",
                d + 1
            ));
            return;
        }
        _ => {}
    }
    let curvature = match &known.curvature {
        Some(Ok(curvature)) => curvature,
        Some(Err(reason)) => {
            page.paragraph(&format!("Rates would follow from the eigenvalues of the Hessians, which are not known: {}.", reason.text));
            return;
        }
        None => return,
    };
    let HessianEigenvalues { least, largest, is_quadratic, .. } = *curvature;
    page.paragraph(&format!(
        "Known: the Hessian of the mean loss at theta* has eigenvalues from mu = {} to L = {}, a condition number of {}.",
        number(least),
        number(largest),
        number(largest / least)
    ));
    let loss = if is_quadratic {
        "The losses are quadratic, so that these hold everywhere."
    } else {
        "The losses are not quadratic: rates hold near theta*."
    };
    page.paragraph(loss);
    rate_of(page, planned.method.kind, curvature, &settings);
    if !is_quadratic && planned.method.kind != "newton" {
        page.paragraph("Which steps are stable is decided by a line search where the method has one, and is not predicted.");
    }
}

/// The rate of a kind of method, from the eigenvalues of the Hessians.
fn rate_of(page: &mut Page, kind: &str, curvature: &HessianEigenvalues, settings: &Json) {
    let HessianEigenvalues { least, largest, is_quadratic, .. } = *curvature;
    match kind {
        "shed" => eigenpairs(page, curvature, settings),
        "newton" if is_quadratic => page.paragraph("A full Newton step is exact on quadratic losses: one round."),
        "newton" => page.paragraph(
            "Near theta* the distance is squared in every round, times a constant that needs the Lipschitz constant of the Hessian, which fedsa does \
             not know. Far from it the line search decides.",
        ),
        "fednl" => page.paragraph(
            "The learned Hessians converge to those at theta*, and the rate becomes super-linear. How fast depends on the compressor and on the Lipschitz \
             constant of the Hessian, which fedsa does not know.",
        ),
        "gd" => rate(page, "Gradient descent with the step 1/L multiplies the distance by at most 1 - mu/L", 1.0 - least / largest),
        "agd" => rate(page, "Accelerated gradients shrink the loss by about 1 - sqrt(mu/L) a round, the distance by its root", (1.0 - (least / largest).sqrt()).sqrt()),
        "bfgs" | "lbfgs" => page.paragraph(
            "Quasi-Newton steps are at most as slow as gradient descent with the same line search, and bfgs becomes super-linear near theta*; how soon is not known.",
        ),
        "giant" | "done" => page.paragraph(
            "The mean of the agents' own Newton directions is a Newton direction where the agents' Hessians are alike. The rate depends on how much they differ, \
             for which no closed form is computed.",
        ),
        _ => page.paragraph("No rate of this method is known in closed form."),
    }
}

fn rate(page: &mut Page, what: &str, factor: f64) {
    let tenfold = 10f64.ln() / -factor.ln();
    page.paragraph(&format!("{what}: {} a round, about {} rounds for a tenth of the distance.", number(factor), about(tenfold)));
}

/// Rates of steps with a few eigenpairs (Dal Fabbro 2023, chapter 2).
fn eigenpairs(page: &mut Page, curvature: &HessianEigenvalues, settings: &Json) {
    let HessianEigenvalues { agents, is_quadratic, .. } = curvature;
    let d = agents[0].1.len();
    let is_midpoint = settings["rho"] == "midpoint";
    let rho = if is_midpoint { shed::midpoint } else { shed::next };
    let name = if is_midpoint { "halfway between the next eigenvalue and the last" } else { "the next eigenvalue" };
    let mean = |f: &dyn Fn(&[f64]) -> f64| agents.iter().map(|(p, values)| p * f(values)).sum::<f64>();
    let least = mean(&|values| values[d - 1]);
    let factor = |q: usize| shed::federated_factor(least, mean(&|values| rho(values, q)));
    page.paragraph(&format!(
        "With rho {name}, a step of length 1 with q eigenpairs of each agent multiplies the distance by at most c(q):"
    ));
    let mut qs = vec![0, 1, d / 10, d / 4, d / 2, 3 * d / 4, d - 1];
    qs.retain(|q| *q < d);
    qs.sort_unstable();
    qs.dedup();
    let mut rows = vec![row(&["q", "c(q)"])];
    rows.extend(qs.iter().map(|q| row(&[&q.to_string(), &number(factor(*q))])));
    page.table(&rows);
    let one_pair = settings["pairs"] == 1;
    match settings["renewal"]["schedule"].as_str() {
        Some("once") if *is_quadratic && one_pair => {
            page.paragraph(&format!(
                "Agents send one pair a round: after {} rounds all pairs are there, and the next step is exact.",
                d - 1
            ));
        }
        Some("every") if one_pair => {
            let period = settings["renewal"]["period"].as_u64().unwrap_or(1) as usize;
            let rate = shed::periodic_rate(agents, period, rho);
            let text = format!("Hessians anew every {period} rounds and one pair a round: the distance falls by at most");
            if rate > 0.0 {
                page.paragraph(&format!(
                    "{text} {} a round on average (the bound abar_T), about {} rounds for a tenth.",
                    number(rate),
                    about(10f64.ln() / -rate.ln())
                ));
            } else {
                page.paragraph(&format!("{text} a factor that is 0 at the end of a period, when all pairs are there."));
            }
        }
        _ => {
            let periods: Vec<usize> = [1, 2, 3, 5, 8, 13, 21, 34].into_iter().filter(|period| *period < d).collect();
            let rates = periods.iter().map(|period| format!("{} at {period}", number(shed::periodic_rate(agents, *period, rho))));
            page.paragraph(&format!(
                "Over a period of T rounds between renewals, with one pair a round, the distance falls by at most abar_T a round on average: {}. Longer \
                 periods, as late in a Fibonacci schedule, are faster: the convergence is super-linear until pairs run out.",
                rates.collect::<Vec<_>>().join(", ")
            ));
        }
    }
    if !is_quadratic {
        page.paragraph(
            "These bounds leave out that Hessians are outdated between renewals (theorem 2.5), which needs the Lipschitz constant of the Hessian; fedsa does not know it.",
        );
    }
}
