//! SHED: a few eigenpairs of the agents' Hessians per round, instead of the Hessians (\[T\] chapter 2, Algorithms 1, 3, 4).
//!
//! ```text
//! agent c:   if t in I:  H_c = Hess f_c(theta_t) = sum_j l_j v_j v_j^T,  l_1 >= .. >= l_d,  q = 0         renewal
//!            q_new = min(q + d_t, d - 1);  rho_c = l_{q_new + 1}  or  (l_{q_new + 1} + l_d) / 2
//!            sends  grad f_c(theta_t),  rho_c  and  (l_j, v_j) for q < j <= q_new;  q = q_new             (first exchange)
//! server:    Hhat_c = sum_{j <= q} (l_j - rho_c) v_j v_j^T + rho_c I                                      (2.10), (2.22)
//!            Hhat = sum_c p_c Hhat_c,  p = -Hhat^-1 sum_c p_c grad f_c(theta_t)                           (2.9), (2.18)
//!            theta_{t+1} = theta_t + s p,  s = 1, or by backtracking on the agents' losses                (second exchange)
//! ```
//!
//! **Settings and names.** SHED-LS: one Hessian, rho in the middle, s = 1. Fib-SHED, the default: renewals at distances that grow as the
//! Fibonacci numbers, `rho = l_{q+1}`, backtracking. GN-SHED: renewals when the gradient norm falls too slowly. Mont-Dec: a renewal in
//! every round. The names with + draw `d_t`. All are presets of this method (`crate::presets`).
//!
//! **Hessians that are not positive definite.** An eigenvalue below `1e-12 l_1`, or negative, counts as `1e-12 l_1`. `Hhat_c` then
//! approximates the projection of `H_c` on positive definite matrices, which is not below `H_c`, so that backtracking still accepts steps
//! on convex means of indefinite agents. \[T\] assumes `rho > 0`. An agent without a positive eigenvalue adds nothing; if no agent has one,
//! the step is `-grad`.
//!
//! **Without matrices.** With `curvature = "products"`, or by default above d = 4096, agents compute leading eigenpairs from Hessian-vector
//! products, by a restarted block Lanczos iteration that starts from the last renewal's pairs ([`mod@fedsa::eigenpairs::restarted`]). The
//! server steps by Woodbury's formula from the vectors (`woodbury.rs`). No d x d matrix is formed. A pair has a residual of at most
//! `pair_tolerance l_1`, so `Hhat_c` belongs to a Hessian that differs from `H_c` by this much. `max_pairs` bounds the kept vectors.
//! Schedules use it, plus 1, as d, so that Fibonacci renewals are at most this many rounds apart. An agent with sparse rows iterates in the
//! columns that occur in them. Elsewhere its Hessian is the ridge times the identity: rho is at least the ridge, and only pairs above the
//! ridge are sent.
//!
//! **Over links.** The server needs the pairs of each agent, so links that deliver only sums are refused, as are delayed and late ones.
//! Codecs change the gradient only. The invariant over losses: *the server always holds of an agent a prefix of the eigenpairs of one of
//! its Hessians, with the rho of that prefix*. The next question tells an agent that its answer was lost ([`Part::Counted`]), and the agent
//! continues from the pairs before it. It makes up for a missed renewal at its next question. If none of an agent's answers counts, it
//! restarts with its first pair.
//!
//! A missing gradient counts as zero. A round then steps to the root of the agents that arrived, and theta does not settle. Over a link
//! that loses answers, the error stays at a floor. The floor is proportional to the differences between the agents' gradients at the root,
//! and is zero without differences.

mod client;
mod hessian_pairs;
mod server;
mod woodbury;

use std::sync::Arc;

use fedsa::error::{Result, require};
use fedsa::local::{ByAgent, Client, HESSIAN_AND_PAIRS};
use fedsa::message::Part;
use fedsa::method::{MethodSettings, MethodShape, Needs, Setting};
use fedsa::protocol::{Exchange, Gather, Len, Protocol, ReplySpec};
use fedsa::schedule::renewal::{Pairs, Renewal};
use fedsa::server::Server;
use serde::{Deserialize, Serialize};

use crate::local::line_search::Trials;
use crate::server::approximation::{NewtonSteps, Trigger};
use crate::{at_work, descent};
use client::{ShedAgent, ShedPlan};
use hessian_pairs::AT_ONCE;
pub use hessian_pairs::Rho;
use server::ShedServer;

/// The settings; the default is Fib-SHED.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Shed {
    /// When agents recompute Hessians.
    #[serde(deserialize_with = "fedsa::registry::table")]
    pub renewal: Renewal,
    /// One schedule per agent, instead of `renewal`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub renewal_of_agents: Vec<Renewal>,
    /// Eigenpairs per agent and round, `d_t`.
    pub pairs: Pairs,
    /// Value that replaces eigenvalues not yet sent.
    pub rho: Rho,
    /// Source of eigenpairs.
    pub curvature: CurvatureSource,
    /// Relative residual of eigenpairs from products.
    #[cfg_attr(feature = "schema", schemars(range(min = 1e-12, max = 0.1)))]
    pub pair_tolerance: f64,
    /// Most eigenpairs per Hessian; d - 1 by default, min(64, 8192 / N) for products with d > 4096.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub max_pairs: Option<usize>,
    /// Unit step or line search.
    pub step: StepLength,
    /// Armijo constant.
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0, "exclusiveMaximum" = 0.5)))]
    pub decrease: f64,
    /// Factor between trial steps.
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0, "exclusiveMaximum" = 1)))]
    pub shrink: f64,
    /// Most reductions.
    #[cfg_attr(feature = "schema", schemars(range(max = 60)))]
    pub shrinks: usize,
}

fedsa::settings::setters! { Shed {
    with_renewal(renewal: Renewal) = renewal;
    with_renewal_of_agents(renewal_of_agents: Vec<Renewal>) = renewal_of_agents;
    with_pairs(pairs: Pairs) = pairs;
    with_rho(rho: Rho) = rho;
    with_curvature(curvature: CurvatureSource) = curvature;
    with_pair_tolerance(pair_tolerance: f64) = pair_tolerance;
    with_most_pairs(max_pairs: impl Into<Option<usize>>) = max_pairs.into();
    with_step(step: StepLength) = step;
    with_decrease(decrease: f64) = decrease;
    with_shrink(shrink: f64) = shrink;
    with_shrinks(shrinks: usize) = shrinks;
} }

/// Source of eigenpairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "Curvature"))]
#[serde(rename_all = "kebab-case")]
pub enum CurvatureSource {
    /// Hessians up to d = 4096, products above.
    Auto,
    /// The Hessian, d x d, at renewals.
    Hessian,
    /// Hessian-vector products, by a restarted block Lanczos iteration.
    Products,
}

/// The largest d for which `auto` forms Hessians, and for which all pairs may be sent by default.
const MAX_FORMED: usize = 4096;
/// The most pairs sent of one Hessian by default for larger d, and the most pairs of all agents at the server behind this default.
const MAX_PAIRS: usize = 64;
const MAX_HELD: usize = 8192;

/// Step length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "Step"))]
#[serde(rename_all = "kebab-case")]
pub enum StepLength {
    /// 1.
    Unit,
    /// The longest of 1, beta, beta^2, .. that lowers the mean loss enough; a second exchange.
    LineSearch,
}

impl Default for Shed {
    fn default() -> Self {
        Self {
            renewal: Renewal::Fibonacci,
            renewal_of_agents: Vec::new(),
            pairs: Pairs::Same(1),
            rho: Rho::Next,
            curvature: CurvatureSource::Auto,
            pair_tolerance: 1e-8,
            max_pairs: None,
            step: StepLength::LineSearch,
            decrease: 0.1,
            shrink: 0.5,
            shrinks: 20,
        }
    }
}

impl Shed {
    /// The trial steps of a line search, if any.
    fn trials(&self) -> Option<Trials> {
        (self.step == StepLength::LineSearch).then(|| Trials::new(self.shrink, self.shrinks, self.decrease))
    }

    /// The relative residual of pairs from products; `None` if Hessians of d rows are formed.
    fn tolerance(&self, d: usize) -> Option<f64> {
        let has_products = match self.curvature {
            CurvatureSource::Auto => d > MAX_FORMED,
            CurvatureSource::Hessian => false,
            CurvatureSource::Products => true,
        };
        has_products.then_some(self.pair_tolerance)
    }

    /// The most pairs sent of one Hessian.
    fn most(&self, agents: usize, d: usize) -> usize {
        let is_large = d > MAX_FORMED && self.tolerance(d).is_some();
        let default = if is_large { (MAX_HELD / agents).clamp(1, MAX_PAIRS) } else { usize::MAX };
        self.max_pairs.unwrap_or(default).min(d.saturating_sub(1))
    }

    /// The server's part in renewals.
    fn trigger(&self) -> Option<Trigger> {
        trigger(&self.renewal).filter(|_| self.renewal_of_agents.is_empty())
    }
}

/// The server's part in the renewals of a schedule.
pub(super) fn trigger(renewal: &Renewal) -> Option<Trigger> {
    match renewal {
        Renewal::GradientNorm { factor, min_distance } => Some(Trigger::new(*factor, *min_distance)),
        _ => None,
    }
}

/// The approximate number of rounds between renewals, for vectors of d components.
pub(super) fn between_renewals(renewal: &Renewal, d: f64) -> f64 {
    let every = match renewal {
        Renewal::Every { period } => *period as f64,
        // The gradient rarely falls as fast as the least distance allows.
        Renewal::GradientNorm { min_distance, .. } => (*min_distance as f64).max(d / 10.0),
        _ => d,
    };
    every.min(d)
}

impl MethodSettings for Shed {
    fn check(&self, agents: usize) -> Result<()> {
        self.renewal.check("renewal")?;
        let own = &self.renewal_of_agents;
        let fits = own.is_empty() || own.len() == agents || agents == usize::MAX;
        require(fits, "renewal_of_agents", format!("a list of {}", own.len()), "one schedule for each agent")?;
        for renewal in own {
            renewal.check("renewal_of_agents")?;
            let is_own = !matches!(renewal, Renewal::GradientNorm { .. });
            let accepted = "schedules that agents follow by themselves: the server decides on gradient-norm renewals, for all agents";
            require(is_own, "renewal_of_agents", "gradient-norm", accepted)?;
        }
        self.pairs.check(agents)?;
        let tolerance = self.pair_tolerance;
        require((1e-12..=0.1).contains(&tolerance), "pair_tolerance", format!("{tolerance:?}"), "from 1e-12 to 0.1")?;
        require(self.max_pairs != Some(0), "max_pairs", 0, "at least 1")?;
        let unused = Self::default();
        if self.curvature == CurvatureSource::Hessian {
            let accepted = "curvature = \"products\", or no pair_tolerance: pairs of formed Hessians are exact";
            require(tolerance == unused.pair_tolerance, "pair_tolerance", format!("{tolerance:?}"), accepted)?;
        }
        if self.step == StepLength::Unit {
            let accepted = "step = \"line-search\", or none of shrink, shrinks and decrease";
            require(self.shrink == unused.shrink, "shrink", self.shrink, accepted)?;
            require(self.shrinks == unused.shrinks, "shrinks", self.shrinks, accepted)?;
            require(self.decrease == unused.decrease, "decrease", self.decrease, accepted)?;
        }
        descent::check_shrinking_search(self.shrink, self.shrinks, self.decrease)
    }

    fn needs(&self) -> Needs {
        Needs::Objective
    }

    /// An answer has at most d - 1 vectors.
    fn largest_dimension(&self) -> usize {
        let default = if self.tolerance(usize::MAX).is_some() { MAX_PAIRS } else { usize::MAX };
        let most = self.pairs.most_of_all().min(self.max_pairs.unwrap_or(default)).max(1);
        (u32::MAX as usize / most).max(u16::MAX as usize)
    }

    fn protocol(&self, setting: &Setting<'_>) -> Protocol {
        let d = setting.start.len();
        let most = self.pairs.most_of_all().min(self.most(setting.weights.len(), d));
        let want = |part, len, gather| ReplySpec { part, len, gather };
        let mut down = vec![(Part::Model, Len::Exactly(d))];
        down.extend(self.trigger().map(|_| (Part::Renewal, Len::Exactly(1))));
        let pairs = Exchange {
            down,
            own: vec![(Part::Counted, Len::Exactly(1))],
            replies: vec![
                want(Part::Gradient, Len::Exactly(d), Gather::Sum),
                want(Part::Eigenvalues, Len::AtMost(3 + most), Gather::Each),
                want(Part::Eigenvectors, Len::AtMost(most * d), Gather::Each),
            ],
            may_open: false,
        };
        let search = self.trials().map(|trials| trials.exchange(d));
        Protocol { exchanges: std::iter::once(pairs).chain(search).collect(), ..Protocol::default() }
    }

    fn client(&self, setting: &Setting<'_>) -> Box<dyn Client> {
        let d = setting.start.len();
        let renewals = if self.renewal_of_agents.is_empty() { vec![self.renewal.clone()] } else { self.renewal_of_agents.clone() };
        let (pairs, rho, trials) = (self.pairs.clone(), self.rho, self.trials());
        let plan =
            Arc::new(ShedPlan { renewals, pairs, rho, trials, most: self.most(setting.weights.len(), d), tolerance: self.tolerance(d) });
        ByAgent::boxed(move |_| Box::new(ShedAgent::new(Arc::clone(&plan))))
    }

    fn server(&self, setting: &Setting<'_>) -> Box<dyn Server> {
        let d = setting.start.len();
        let steps = NewtonSteps { trigger: self.trigger(), ..NewtonSteps::new(setting.start.clone(), self.trials()) };
        let server = ShedServer::new(steps, setting.weights.to_vec()).up_to(self.most(setting.weights.len(), d));
        Box::new(if self.tolerance(d).is_some() { server.of_vectors() } else { server })
    }

    /// For each agent all eigenvectors at the agent and at the server, a Hessian, and two triangles at the server. With products: the pairs
    /// of one Hessian at the agent and at the server, and scratch vectors of agents that answer at the same time, counted with d numbers
    /// although vectors of sparse rows take less; the inner products of all pairs at the server, with room to grow, and the server's system
    /// with its factor.
    fn memory(&self, agents: usize, d: usize) -> f64 {
        let (n, square) = (agents as f64, (d as f64).powi(2));
        if self.tolerance(d).is_none() {
            return 8.0 * n * 4.0 * square;
        }
        let most = (self.most(agents, d) + 1) as f64;
        let iterating = 4.0 * 1.5 * (most.min(AT_ONCE as f64) + 16.0);
        8.0 * (d as f64 * (n * (2.0 * most + 4.0) + at_work(agents) * iterating) + 4.0 * (n * most).powi(2))
    }

    /// A gradient, the losses, and at renewals a Hessian with its eigenpairs, or about eight products per pair. Renewals are d rounds
    /// apart, or as the schedule says. Without d x d matrices, the server solves a system with the pairs of all agents, half of them on
    /// average.
    fn work(&self, agents: usize, d: usize) -> f64 {
        let losses = self.trials().map_or(0, |trials| trials.losses()) as f64;
        let span = (self.most(agents, d) + 1) as f64;
        let is_from_products = self.tolerance(d).is_some();
        let renewal = if is_from_products { 8.0 * span * (d as f64).powi(2) } else { HESSIAN_AND_PAIRS * (d as f64).powi(3) };
        let held = 0.5 * agents as f64 * span;
        let solving = if is_from_products { held.powi(3) / 3.0 / agents as f64 } else { 0.0 };
        (losses + 1.0) * (d as f64).powi(2) + renewal / between_renewals(&self.renewal, span) + solving
    }

    fn shape(&self) -> MethodShape {
        MethodShape::without_local_steps()
    }
}
