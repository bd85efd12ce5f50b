//! The methods of fedsa: one file or folder per published method, with its mathematics, its source, and its client and server halves.
//!
//! `docs/src/extend/parts.md` in the repository explains how to add a method.

#![forbid(unsafe_code)]

pub mod adaptive_newton;
pub mod agd;
pub mod anderson;
pub mod bfgs;
pub mod bit_allocation;
pub mod control_rule;
pub mod delayed_sa;
pub mod descent;
pub mod done;
pub mod fedhsa;
pub mod fedlin;
pub mod fedlsa;
pub mod fednl;
pub mod fedprox;
pub mod fedtd;
pub mod first_policy;
pub mod fitted_q;
pub mod gd;
pub mod giant;
pub mod gmres;
pub mod importance_averaging;
pub mod lbfgs;
pub mod local;
mod local_sa;
pub mod lspi;
pub mod lstd;
pub mod nested_grid;
pub mod newton;
pub mod one_shot;
pub mod prelude;
pub mod presets;
pub mod projected_td;
pub mod q_shed;
pub mod scafflsa;
pub mod scafflsa_random;
pub mod scaffold;
pub mod server;
pub mod shed;

use fedsa::error::{Result, require};
use fedsa::method::{MethodSettings, Setting};
use fedsa::registry::{Kind, kind};
use fedsa::schedule::{LocalSteps, StepSchedule, StepSize};
use fedsa::server::Participation;
use server::Average;

/// The kinds of methods, by the name that `kind` gives.
pub const KINDS: &[Kind<dyn MethodSettings>] = &[
    kind!("fedlsa", "local steps, then averaging (Local SA)", fedlsa::FedLsa, "fedavg"),
    kind!("scafflsa", "control variates, a talk every H steps", scafflsa::Scafflsa),
    kind!("scafflsa-random", "control variates, talks at random", scafflsa_random::ScafflsaRandom),
    kind!("fedhsa", "the mean operator of the round's start as memory", fedhsa::FedHsa),
    kind!("scaffold", "control variates of the agents and of the server", scaffold::Scaffold),
    kind!("fedlin", "FedHSA with a sample of its own in the first local step", fedlin::FedLin),
    kind!("fedprox", "local steps that are pulled back to the round's model", fedprox::FedProx),
    kind!(
        "importance-averaging",
        "entries of tables count by their visits in the round (Q-learning)",
        importance_averaging::ImportanceAveraging
    ),
    kind!("one-shot", "all local steps first, then one average", one_shot::OneShot),
    kind!("fedtd", "one direction an agent and round (federated TD over channels)", fedtd::FedTd),
    kind!("delayed-sa", "directions at stale models", delayed_sa::DelayedSa),
    kind!("delay-adaptive-sa", "directions at stale models that are near enough", delayed_sa::DelayAdaptiveSa),
    kind!("dasa", "the half of the directions whose models are nearest", delayed_sa::Dasa),
    kind!("projected-td", "FedLSA projected on a ball", projected_td::ProjectedTd),
    kind!("lstd", "every agent sends its linear system, the server solves", lstd::Lstd),
    kind!("lspi", "policy iteration: systems under the policy of theta, the server solves", lspi::Lspi),
    kind!("fitted-q", "fitted Q-iteration: Gram matrices once, then one operator an agent and round", fitted_q::FittedQ),
    kind!("gmres", "a Krylov space of the mean operator at the server", gmres::Gmres),
    kind!("anderson", "Anderson acceleration of another method's rounds", anderson::Anderson),
    kind!("newton", "Newton steps with backtracking, for problems with an objective", newton::Newton),
    kind!("shed", "Newton-type steps from a few Hessian eigenpairs a round", shed::Shed),
    kind!("q-shed", "the same with eigenvectors quantised by as many bits as the link carries", q_shed::QShed),
    kind!("gd", "gradient descent, by a fixed step or with backtracking", gd::GradientDescent),
    kind!("agd", "Nesterov's accelerated gradients", agd::AcceleratedGradient),
    kind!("bfgs", "BFGS at the server, with backtracking", bfgs::Bfgs),
    kind!("lbfgs", "limited-memory BFGS at the server, with backtracking", lbfgs::Lbfgs),
    kind!("giant", "the mean of the agents' own Newton directions", giant::Giant),
    kind!(
        "adaptive-newton",
        "quasi-Newton steps with curvature of the agents or of whole Hessians, whichever pays",
        adaptive_newton::AdaptiveNewton
    ),
    kind!("done", "the mean of the agents' own Newton directions, by Richardson's iteration", done::Done),
    kind!("fednl", "a Hessian learned from compressed corrections", fednl::FedNl),
];

/// The approximate number of agents, of N that compute alone, that answer at the same time: the number of threads.
pub(crate) fn at_work(agents: usize) -> f64 {
    agents.min(rayon::current_num_threads()) as f64
}

/// A global step size of 1.
pub(crate) fn one() -> f64 {
    1.0
}

/// Checks the common settings of first-order methods, for N agents.
///
/// # Errors
/// When a step size is not positive, H is not between 1 and [`MAX_LOCAL_STEPS`], or m is not between 1 and N; the error names the setting.
pub fn check_common(step_size: &StepSize, local_steps: usize, alpha_g: f64, participants: Option<usize>, agents: usize) -> Result<()> {
    step_size.check()?;
    require((1..=MAX_LOCAL_STEPS).contains(&local_steps), "local_steps", local_steps, &format!("between 1 and {MAX_LOCAL_STEPS}"))?;
    require(alpha_g > 0.0 && alpha_g.is_finite(), "global_step_size", alpha_g, "a positive number")?;
    let m = participants.unwrap_or(agents);
    require((1..=agents).contains(&m), "participants", m, &format!("between 1 and the number of agents, {agents}"))
}

/// The largest accepted number of local steps in one round.
pub const MAX_LOCAL_STEPS: usize = 100_000_000;

/// The averaging server of first-order methods: `theta += alpha_g E v` over m of N participants. A method may set its fields, such as
/// `radius` and `operators_first`.
pub fn averaging(setting: &Setting<'_>, steps: StepSchedule, alpha_g: f64, participants: Option<usize>) -> Average {
    Average {
        theta: setting.start.clone(),
        steps,
        alpha_g,
        participation: Participation { m: participants, agents: setting.agents(), seed: setting.seed },
        operators_first: false,
        table: None,
        table_rounds: Vec::new(),
        weights: Vec::new(),
        tells_mean: false,
        radius: None,
    }
}

/// H local steps in every round.
pub fn fixed(size: StepSize, h: usize) -> StepSchedule {
    StepSchedule { size, local: LocalSteps::Fixed(h) }
}
