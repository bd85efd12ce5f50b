//! The floor with one setting changed.

use std::sync::Arc;

use fedsa::error::Result;
use fedsa::method::Drift;
use fedsa::parallel;
use fedsa::problem::systems::Systems;
use fedsa::sampling::Law;
use fedsa_theory::link::LinkLaw;
use fedsa_theory::predict::{Forecast, Limits, twins};
use fedsa_theory::work::{self, WorkSpent};

use super::Allowance;
use super::reason::{KnownOrReason, Reason, ReasonCode};
use crate::numbers::{number, percent, typed};
use crate::{Predictor, memory};

/// The largest number of multiplications for a floor that is computed for comparison.
const MAX_WORK: f64 = 8e9;

/// A changed setting, and the floor with it.
#[derive(Debug, Clone)]
pub struct SettingChange {
    /// The setting in words: `half the step, 0.05`.
    pub what: String,
    /// The radius of a noiseless round, if known.
    pub radius: Option<f64>,
    /// The floor; the reason is [`ReasonCode::Diverges`] if the change makes the method diverge.
    pub floor: KnownOrReason<ChangedFloor>,
}

/// A floor with one setting changed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ChangedFloor {
    /// The final squared error.
    pub floor: f64,
    /// The squared bias of the limit without noise; `None` if it is 0 exactly.
    pub bias: Option<f64>,
    /// The squared bias within rounding.
    pub rounding: f64,
    /// The rest of the floor: noise, and the effect of mixing.
    pub rest: f64,
}

/// The change with the lowest floor, if lower than the present one.
pub fn best<'a>(changes: &'a [SettingChange], limits: &Limits) -> Option<(&'a SettingChange, f64)> {
    let lower = changes.iter().filter_map(|change| Some((change, change.floor.as_ref().ok()?.floor)));
    lower.filter(|(_, floor)| *floor < 0.995 * limits.floor).min_by(|a, b| a.1.total_cmp(&b.1))
}

/// A floor relative to another one.
pub fn against(floor: f64, now: f64) -> String {
    let ratio = floor / now;
    match ratio {
        // A difference within rounding.
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

/// A changed setting, and the forecast with it.
struct Changed {
    what: String,
    of: Forecast,
}

/// The changes that may lower the floor, in the order of the page. Together they take at most the remaining work, and each at most its
/// share.
pub(super) fn all(predictor: &Predictor, cell: usize, limits: &Limits, allowance: &mut Allowance) -> Vec<SettingChange> {
    let plan = predictor.plan();
    let field = plan.field(cell);
    let fits = field.systems().is_some_and(|systems| memory::moments_fit(systems.kinds.len(), field.dim()));
    let doubled = field.systems().filter(|_| fits).map(|systems| Arc::new(twins(systems)));
    let all = changes(predictor, cell, limits, doubled.as_ref());
    let mut computed = compute(&all.iter().collect::<Vec<_>>(), allowance);
    // Changes that take more than their share get what the others left.
    let cut: Vec<usize> = (0..all.len()).filter(|i| computed[*i].1.was_cut).collect();
    if cut.len() < all.len() {
        let again = compute(&cut.iter().map(|i| &all[*i]).collect::<Vec<_>>(), allowance);
        cut.into_iter().zip(again).for_each(|(i, change)| computed[i] = change);
    }
    let mut rows = Vec::new();
    for (change, spent) in computed {
        let Ok(mut change) = change else { continue };
        if let Err(reason) = &mut change.floor
            && spent.was_cut
        {
            reason.code = ReasonCode::TakesTooLong;
            allowance.cut.push((format!("the floor with {}", change.what), reason.text.clone()));
        }
        rows.push(change);
    }
    rows
}

/// Computes changes, each within its share of the remaining work.
fn compute(all: &[&Changed], allowance: &mut Allowance) -> Vec<(Result<SettingChange>, WorkSpent)> {
    let share = (allowance.left.max(0.0) / all.len().max(1) as f64).min(MAX_WORK);
    let computed = parallel::map(all.len(), |i| work::alone(share, || Ok(all[i].computed())));
    allowance.left -= computed.iter().map(|(_, spent)| spent.work).sum::<f64>();
    computed
}

fn changes(predictor: &Predictor, cell: usize, limits: &Limits, doubled: Option<&Arc<Systems>>) -> Vec<Changed> {
    let (plan, of) = (predictor.plan(), predictor.forecast(cell));
    let (shape, sampling) = (*of.shape(), of.sampling());
    let mut all = Vec::new();
    let mut add = |what: String, of: Forecast| all.push(Changed { what, of });
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
        add(format!("{batch} samples a step"), of.clone().with_sampling(sampling.with_batch(batch)));
    }
    if limits.mixing.is_some() {
        add("independent samples".into(), of.clone().with_sampling(sampling.with_kind(Law::Iid)));
    }
    if shape.participants.is_some() && limits.participation.is_some() {
        add("all agents in every round".into(), of.clone().with_all_agents());
    }
    let link = &plan.cells[cell].uplink;
    if let Some(budget) = link.budget() {
        let more = budget.with_bits(2.0 * budget.bits);
        if let Ok(law) = LinkLaw::with_budget(link, plan.field(cell).dim(), Some(&more)) {
            add(format!("twice the bits, {} a component", number(more.bits)), of.clone().with_link(law));
        }
    }
    if !link.is_clear() {
        add("a clear link".into(), of.clone().over_clear_link());
    }
    if shape.drift == Drift::Zero && h > 1 && limits.bias > 0.0 {
        add("fedhsa, the same step".into(), of.clone().with_drift(Drift::GlobalMemory { fresh: 0 }));
        add("scafflsa, the same step".into(), of.with_drift(Drift::ControlVariate { talk: None }));
    }
    all
}

impl Changed {
    fn computed(&self) -> SettingChange {
        let outlook = self.of.outlook();
        let floor = if outlook.is_unstable() {
            Err(Reason::text(ReasonCode::Diverges, "diverges"))
        } else {
            self.floor().map_err(|e| Reason::from(&e))
        };
        let radius = if outlook.is_unstable() { None } else { outlook.radius.ok() };
        SettingChange { what: self.what.clone(), radius, floor }
    }

    fn floor(&self) -> Result<ChangedFloor> {
        let (floor, bias) = (self.of.floor()?.mse(), self.of.bias_sq()?);
        let is_none = self.of.no_bias().is_ok_and(|reason| reason.is_some());
        // Rounding may make the rest negative; dependent successive samples may lower the floor below the bias.
        let rest = match floor - bias {
            _ if is_none => floor,
            rest if self.of.sampling().kind == Law::Markov => rest,
            rest => rest.max(0.0),
        };
        Ok(ChangedFloor { floor, bias: (!is_none).then_some(bias), rounding: self.of.bias_rounding().unwrap_or(0.0), rest })
    }
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
