//! What the floor would be with one setting changed.

use fedsa::error::Result;
use fedsa::methods::Drift;
use fedsa::parallel;
use fedsa::problem::systems::Systems;
use fedsa::sampling::{Law, Sampling};
use fedsa_experiment::numbers::{number, percent, radius, typed};
use fedsa_experiment::{Plan, memory};
use fedsa_theory::link::LinkLaw;
use fedsa_theory::predict::{Forecast, Limits, twins};

use super::text::row;

/// The most multiplications of a floor that is computed for comparison.
const MOST_WORK: f64 = 2e9;

/// A changed setting, and the forecast with it.
struct Change<'a> {
    what: String,
    of: Forecast<'a>,
}

/// The table of changed settings that may lower the floor: a row each, with the floor, its parts, and the factor by which a round
/// shrinks the error.
pub fn table(plan: &Plan, cell: usize, limits: &Limits) -> Vec<Vec<String>> {
    let field = plan.field(cell);
    let fits = field.systems().is_some_and(|systems| memory::moments_fit(systems.kinds.len(), field.dim()));
    let doubled = field.systems().filter(|_| fits).map(twins);
    let all = changes(plan, cell, limits, doubled.as_ref());
    let rows: Vec<Vec<String>> = parallel::map(all.len(), |i| all[i].row(limits));
    let rest = if limits.mixing.is_some() { "noise and mixing" } else { "noise" };
    let mut table = vec![row(&["change", "floor", "bias^2", rest, "error per round", "against now"])];
    table.extend(rows);
    table
}

fn changes<'a>(plan: &'a Plan, cell: usize, limits: &Limits, doubled: Option<&'a Systems>) -> Vec<Change<'a>> {
    let of = plan.forecast(cell);
    let (shape, sampling) = (*of.shape(), of.sampling());
    let mut all = Vec::new();
    let mut add = |what: String, of: Forecast<'a>| all.push(Change { what, of });
    if let Ok(eta) = of.step_size() {
        add(format!("half the step, {}", typed(0.5 * eta)), of.clone().with_step(0.5 * eta));
    }
    let h = of.local_steps().round() as u64;
    if h > 1 {
        add(format!("half the local steps, {}", h / 2), of.clone().with_local_steps(h / 2));
    }
    let has_noise = limits.floor > limits.bias;
    if has_noise && let Some(doubled) = doubled {
        add("twice the agents, each with a twin".into(), of.clone().with_twins(doubled));
    }
    if has_noise && sampling.kind != Law::Mean {
        let batch = 4 * sampling.batch;
        add(format!("{batch} samples a step"), of.clone().with_sampling(Sampling { batch, ..sampling }));
    }
    if limits.mixing.is_some() {
        add("independent samples".into(), of.clone().with_sampling(Sampling { kind: Law::Iid, ..sampling }));
    }
    if shape.participants.is_some() && limits.participation.is_some() {
        add("all agents in every round".into(), of.clone().with_all_agents());
    }
    let link = &plan.cells[cell].uplink;
    if let Some(budget) = link.budget {
        let more = fedsa::uplink::medium::bit_budget::BitBudget { bits: 2.0 * budget.bits, ..budget };
        if let Ok(law) = LinkLaw::with_budget(link, plan.field(cell).dim(), Some(&more)) {
            add(format!("twice the bits, {} a component", number(more.bits)), of.clone().with_link(law));
        }
    }
    if !link.is_clear() {
        add("a clear link".into(), of.clone().over_clear_link());
    }
    if shape.drift == Drift::Zero && h > 1 && limits.bias > 0.0 {
        add("fedhsa, the same step".into(), of.clone().with_drift(Drift::GlobalMemory { fresh: false }));
        add("scafflsa, the same step".into(), of.with_drift(Drift::ControlVariate { talk: None }));
    }
    all
}

impl Change<'_> {
    fn row(&self, now: &Limits) -> Vec<String> {
        let outlook = self.of.outlook();
        if outlook.is_unstable() {
            return row(&[&self.what, "", "", "", "", "diverges"]);
        }
        let shrinks = outlook.radius.as_ref().map_or(String::new(), |rho| radius(*rho));
        let floor = self.floor();
        match floor {
            Ok(Some((floor, bias))) => {
                let is_none = self.of.no_bias().is_ok_and(|reason| reason.is_some());
                let rounding = self.of.bias_rounding().unwrap_or(0.0);
                let shown = match bias {
                    _ if is_none => "0".to_string(),
                    bias if bias <= rounding => format!("below {}", number(rounding)),
                    bias => number(bias),
                };
                // Rounding may leave less than nothing; the dependence of successive samples may lower the floor below the bias.
                let rest = match floor - bias {
                    _ if is_none => floor,
                    rest if self.of.sampling().kind == Law::Markov => rest,
                    rest => rest.max(0.0),
                };
                row(&[&self.what, &number(floor), &shown, &number(rest), &shrinks, &against(floor, now.floor)])
            }
            Ok(None) => row(&[&self.what, "", "", "", &shrinks, "not computed: takes too long"]),
            Err(e) => row(&[&self.what, "", "", "", &shrinks, &e.what]),
        }
    }

    /// The floor, and the squared bias of the limit without noise; `None` if the floor takes too long.
    fn floor(&self) -> Result<Option<(f64, f64)>> {
        if self.of.floor_work()? > MOST_WORK {
            return Ok(None);
        }
        Ok(Some((self.of.floor()?.mse(), self.of.bias_sq()?)))
    }
}

/// A floor against another one.
fn against(floor: f64, now: f64) -> String {
    let ratio = floor / now;
    match ratio {
        // Of rounding.
        x if (x - 1.0).abs() < 5e-4 => "the same".into(),
        0.0 => "none is left".into(),
        x if x < 0.1 => format!("{} times lower", number(1.0 / x)),
        x if x < 1.0 => format!("{} lower", percent_of(1.0 - x)),
        x if x < 2.0 => format!("{} higher", percent_of(x - 1.0)),
        x => format!("{} times higher", number(x)),
    }
}

/// A share with two digits.
fn percent_of(share: f64) -> String {
    percent(format!("{share:.1e}").parse().unwrap_or(share))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floors_are_compared_in_words() {
        for (floor, text) in [
            (1.0, "the same"),
            (0.5, "50% lower"),
            (0.01, "100 times lower"),
            (1.234, "23% higher"),
            (3.0, "3 times higher"),
            (0.0, "none is left"),
        ] {
            assert_eq!(against(floor, 1.0), text);
        }
    }
}
