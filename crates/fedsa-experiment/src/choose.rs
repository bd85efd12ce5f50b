//! The choice of a method for a problem: the costs of the candidates, the cheapest one, and why.
//!
//! | for | choice | by |
//! | --- | --- | --- |
//! | `evaluate` | [`choose`] among methods for linear operators without noise | rounds and bits that are known before the run |
//! | `fit` | [`choose_for_losses`] | sizes of the data, and observations during the run |
//! | `tune` | [`fedsa_theory::tune::search`] among step sizes, local steps, codecs | exact errors, or pilot runs |
//!
//! All of them minimise a [`Goal`].

mod losses;

use std::sync::Arc;

use fedsa::cancel::Cancel;
use fedsa::error::{Error, Result};
use fedsa::linalg;
use fedsa::method::MethodSettings;
use fedsa::problem::Field;
use fedsa_data::machine;
use fedsa_methods::fedhsa::FedHsa;
use fedsa_methods::fedlsa::FedLsa;
use fedsa_methods::scafflsa::Scafflsa;
use fedsa_theory::cost::{self, Candidate, CostLimits};
pub use fedsa_theory::cost::{Cost, Goal, Network};
pub use losses::{ADAPTIVE, ConsideredForLosses, LossChoice, LossCost, LossFacts, choose_for_losses};
use toml::{Table, Value};

/// The default residual to reach, as a multiple of the residual at zero weights.
pub const TOL: f64 = 1e-12;

/// The demands on the chosen method.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Demand {
    /// The minimised quantity; bits by default.
    pub goal: Goal,
    /// The residual to reach, as a multiple of the residual at zero weights; 0 for none. By default [`TOL`], or what rounding allows.
    pub tol: Option<f64>,
    /// Whether agents may send their matrices `A_c`; true by default.
    pub may_send_matrices: bool,
    /// The step size of methods with local steps.
    pub step_size: f64,
    /// The local steps of methods with local steps.
    pub local_steps: usize,
}

impl Demand {
    /// The defaults, with this step size and number of local steps.
    pub fn new(step_size: f64, local_steps: usize) -> Self {
        Self { goal: Goal::Bits, tol: None, may_send_matrices: true, step_size, local_steps }
    }

    /// The same with another minimised quantity.
    #[must_use]
    pub fn with_goal(self, goal: Goal) -> Self {
        Self { goal, ..self }
    }

    /// The same with a residual to reach.
    #[must_use]
    pub fn with_tol(self, tol: Option<f64>) -> Self {
        Self { tol, ..self }
    }

    /// The same, with or without permission to send matrices.
    #[must_use]
    pub fn with_matrices(self, may_send_matrices: bool) -> Self {
        Self { may_send_matrices, ..self }
    }
}

/// A candidate.
pub struct Considered {
    /// Its kind.
    pub kind: &'static str,
    /// Its predicted cost, or the reason why it has none.
    pub cost: Result<Cost>,
}

/// The reason for a choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// Its predicted cost is the smallest.
    Cheapest(Goal),
    /// No cost is known beforehand; this method works for all linear operators.
    NoCostKnown,
}

/// A chosen method.
pub struct Choice {
    /// Its kind.
    pub kind: &'static str,
    /// Its settings, by the keys of its kind.
    pub settings: Table,
    /// Why it was chosen.
    pub why: Why,
    /// All candidates with their costs: the chosen one first, then the others by cost, those without a known cost last.
    pub considered: Vec<Considered>,
    /// The residual at which runs stop, as a multiple of the residual at zero weights; 0 for never.
    pub tol: f64,
    /// The residual of the predicted costs.
    pub target: f64,
    /// The demands.
    pub demand: Demand,
}

impl Choice {
    /// The number of rounds that surely suffices, if known: twice the bound, because rounding may leave more than the target.
    pub fn rounds(&self) -> Option<u64> {
        self.considered[0].cost.as_ref().ok().filter(|cost| cost.is_bound).map(|cost| 2 * cost.rounds as u64)
    }

    /// Whether rounding prevents the usual residual.
    pub fn is_limited_by_rounding(&self) -> bool {
        self.demand.tol.is_none() && self.target > TOL
    }
}

/// The cheapest method that reaches the residual, on a problem with linear operators without noise, over a clear link. Costs over links
/// that alter or lose messages are not compared.
///
/// # Errors
/// When samples are to be minimised, which such a problem does not have (key `goal`), when the available memory is unknown, and when it is
/// cancelled.
pub fn choose(field: &Arc<dyn Field>, demand: &Demand, cancel: &Cancel) -> Result<Choice> {
    if demand.goal == Goal::Samples {
        return Err(Error::new("goal", "no samples are drawn under the mean operator", "bits or rounds"));
    }
    if demand.goal == Goal::Seconds {
        return Err(Error::new("goal", "seconds of linear operators are not estimated", "bits or rounds"));
    }
    let (eta, h) = (demand.step_size, demand.local_steps);
    let first_order: Vec<(&'static str, Box<dyn MethodSettings>)> = vec![
        ("scafflsa", Box::new(Scafflsa::new(eta, h))),
        ("fedhsa", Box::new(FedHsa::new(eta, h))),
        ("fedlsa", Box::new(FedLsa::new(eta, h))),
    ];
    let checked = first_order.into_iter().filter(|(_, method)| method.check(field.agents()).is_ok()).collect();
    let memory = machine::available()?.map_or(f64::INFINITY, |available| 0.5 * available.bytes);
    // Two digits of a bound suffice.
    let two_digits = |x: f64| format!("{:.1e}", 1.05 * x).parse().unwrap_or(x);
    let allowed = rounding(&**field);
    let tol = demand.tol.unwrap_or_else(|| if allowed > TOL { two_digits(allowed) } else { TOL });
    let target = if tol > 0.0 { tol } else { TOL };
    let limits = CostLimits { target, may_send_matrices: demand.may_send_matrices, memory, cancel: cancel.clone() };
    let mut all = cost::candidates(field, &limits, checked);
    cancel.check()?;
    if demand.goal == Goal::Rounds {
        let price = |candidate: &Candidate| candidate.cost.as_ref().map_or(f64::INFINITY, |cost| cost.rounds);
        all.sort_by(|x, y| price(x).total_cmp(&price(y)));
    }
    // The candidates are sorted by cost. Without any cost: a Krylov space with as many restarts as needed.
    let mut why = Why::Cheapest(demand.goal);
    if all[0].cost.is_err() {
        let gmres = all.iter().position(|candidate| candidate.kind == "gmres").expect("gmres is a candidate");
        all[..=gmres].rotate_right(1);
        why = Why::NoCostKnown;
    }
    let settings = Value::try_from(&all[0].settings).expect("plain settings").as_table().cloned().unwrap_or_default();
    let kind = all[0].kind;
    let considered = all.into_iter().map(|Candidate { kind, cost, .. }| Considered { kind, cost }).collect();
    Ok(Choice { kind, settings, why, considered, tol, target, demand: *demand })
}

/// The smallest multiple of the residual at zero weights that rounding surely permits: products with the mean matrix have errors of about
/// `eps ||A|| ||theta*||`, and solutions of least norm omit directions of up to `d eps ||A||`. 0 if unknown.
fn rounding(field: &dyn Field) -> f64 {
    /// The number of roundings that add up.
    const MANY: f64 = 64.0;
    let (Some(systems), Some(root)) = (field.systems(), field.root()) else { return 0.0 };
    let mean = systems.mean();
    let at_zero = linalg::norm_sq(&mean.b).sqrt();
    let size = mean.a.norm_l2() * linalg::norm_sq(root).sqrt() + at_zero;
    if at_zero > 0.0 { (MANY + root.len() as f64) * f64::EPSILON * size / at_zero } else { 0.0 }
}
