//! Q-SHED: SHED with quantised eigenvectors, refined by as many bits as each agent's link carries (\[T\] chapter 3, Algorithm 5).
//!
//! ```text
//! agent c:   if t in I:  H_c = Hess f_c(theta_t) = sum_j l_j v_j v_j^T,  l_1 >= .. >= l_d,  b_j = 0       renewal
//!            b_j <- b_j + what the rule gives vector j of B_t bits a component, at most b_max in all       (3.21), (3.23)
//!            q = the last vector with a bit;  rho_c = l_{q+1}
//!            sends  grad f_c(theta_t),  rho_c,  the new bits of each vector, and l_j of vectors that are new   (first exchange)
//! server:    v^_j = v_j as its bits say;  Hhat_c = sum_{j <= q} (l_j - rho_c) v^_j v^_j^T + rho_c I        (3.22)
//!            Hhat = sum_c p_c Hhat_c,  p = -Hhat^-1 sum_c p_c grad f_c(theta_t)
//!            theta_{t+1} = theta_t + s p, s by backtracking on the agents' losses                         (second exchange)
//! ```
//!
//! **Bits.** The real numbers of bits that bring Hhat_c closest to H_c in expectation are rounded to whole bits within the budget:
//! `crate::bit_allocation`, with corrections of the source. The rounded bits need not be optimal. `crate::nested_grid` describes the
//! quantiser. Decoded vectors are not normalised, as in the source: the model of the loss assumes errors of mean 0. As `l_j >= rho_c > 0`,
//! Hhat_c is positive definite for any bits. If Hhat is singular to working precision, the step is minus the gradient, as in SHED.
//! Eigenvalues below `1e-12 l_1`, or negative, count as `1e-12 l_1`.
//!
//! **The budget** belongs to the agent's link (`bit-budget`), which the agent knows before it answers. Without one it is a setting, which
//! is refused together with a budget of the link. It pays for the digits of eigenvectors only: `sum_j (new bits of v_j) <= B_t` for each
//! component. The ledger also counts what is outside of it. The gradient, rho and the eigenvalues are exact, as in the source. The number
//! of bits per vector takes 8 bytes and 6 to 9 bits per vector; the source does not mention it. A round with budget 0 sends the gradient.
//! If all rounds have budget 0, no pair is ever sent, and the method is gradient descent with steps `s/l_1`.
//!
//! **Rules and names.** *q-shed* puts bits where they help most. *nq-shed* gives vectors b_max bits each, in their order; remaining bits
//! are unused, and a budget below a whole vector sends the gradient only. *ideal-shed* sends the vectors of *q-shed* unquantised, each with
//! its first bit; the ledger's count for it exceeds the budget.
//!
//! **Over links.** SHED's rules apply. The invariant over losses: *the server holds of an agent the leading bits of the eigenvectors of one
//! of its Hessians, with the rho of the last accepted answer*. A checksum of all vectors' bits in each answer says to what it adds. An
//! answer that does not add to the held bits counts as lost. After a lost answer, the agent's next question states the held bits, and the
//! agent continues from there. No codec changes the agents' messages, so codecs other than `exact` are refused.

mod client;
mod server;

use std::sync::Arc;

use fedsa::error::{Error, Result, require};
use fedsa::local::{ByAgent, Client, HESSIAN_AND_PAIRS};
use fedsa::message::Part;
use fedsa::method::{MethodSettings, MethodShape, Needs, Setting};
use fedsa::protocol::{Exchange, Gather, Len, Protocol, ReplySpec};
use fedsa::schedule::renewal::Renewal;
use fedsa::server::Server;
use fedsa::uplink::LinkFacts;
use serde::{Deserialize, Serialize};

use super::shed::{between_renewals, trigger};
use crate::descent;
use crate::local::line_search::Trials;
use crate::local::refinement::Refinement;
use crate::nested_grid::MAX_BITS;
use crate::server::approximation::NewtonSteps;
pub use client::BitRule;
use client::{QShedAgent, QShedPlan};
use server::{QShedRule, QShedServer};

/// The multiply-adds of an allocation per vector: some 30 by 30 evaluations of roots.
const SEARCH: f64 = 2000.0;

/// The settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct QShed {
    /// When agents recompute Hessians.
    #[serde(deserialize_with = "fedsa::registry::table")]
    pub renewal: Renewal,
    /// Eigenvectors that get the bits.
    pub allocation: BitRule,
    /// Most bits per eigenvector component between renewals.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 32)))]
    pub max_bits: u32,
    /// Bits per component and round without `bit-budget`; 2 `max_bits` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub budget: Option<u32>,
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

fedsa::settings::setters! { QShed {
    with_renewal(renewal: Renewal) = renewal;
    with_allocation(allocation: BitRule) = allocation;
    with_most_bits(max_bits: u32) = max_bits;
    with_budget(budget: impl Into<Option<u32>>) = budget.into();
    with_decrease(decrease: f64) = decrease;
    with_shrink(shrink: f64) = shrink;
    with_shrinks(shrinks: usize) = shrinks;
} }

impl Default for QShed {
    fn default() -> Self {
        Self {
            renewal: Renewal::Fibonacci,
            allocation: BitRule::Optimal,
            max_bits: 16,
            budget: None,
            decrease: 0.1,
            shrink: 0.5,
            shrinks: 20,
        }
    }
}

impl QShed {
    fn trials(&self) -> Trials {
        Trials::new(self.shrink, self.shrinks, self.decrease)
    }

    /// B over links without a bit budget.
    fn budget(&self) -> u32 {
        self.budget.unwrap_or(2 * self.max_bits)
    }
}

impl MethodSettings for QShed {
    fn check(&self, _: usize) -> Result<()> {
        self.renewal.check("renewal")?;
        let accepted = format!("between 1 and {MAX_BITS}");
        require((1..=MAX_BITS).contains(&self.max_bits), "max_bits", self.max_bits, &accepted)?;
        require(self.budget != Some(0), "budget", 0, "at least 1 bit a component")?;
        descent::check_shrinking_search(self.shrink, self.shrinks, self.decrease)
    }

    fn needs(&self) -> Needs {
        Needs::Objective
    }

    fn check_link(&self, link: &LinkFacts) -> Result<()> {
        match self.budget {
            Some(budget) if link.has_budget => {
                let what = format!("budget = {budget} has no effect over a link with a bit-budget, which says how many bits agents send");
                Err(Error::new("budget", what, "budget, or bits of a bit-budget in uplink.media, not both"))
            }
            _ => Ok(()),
        }
    }

    /// The digits of one answer have at most `b_max d (d - 1)` bits.
    fn largest_dimension(&self) -> usize {
        (1 << 15) - 1
    }

    fn protocol(&self, setting: &Setting<'_>) -> Protocol {
        let d = setting.start.len();
        let most = d - 1;
        let want = |part, len, gather| ReplySpec { part, len, gather };
        let content = match self.allocation {
            BitRule::Ideal => want(Part::Eigenvectors, Len::AtMost(most * d), Gather::Each),
            _ => want(Part::Digits, Len::AtMost((most * d * self.max_bits as usize).div_ceil(8)), Gather::Each),
        };
        let mut down = vec![(Part::Model, Len::Exactly(d))];
        down.extend(trigger(&self.renewal).map(|_| (Part::Renewal, Len::Exactly(1))));
        let bits = Exchange {
            down,
            own: vec![(Part::Counted, Len::Exactly(1))],
            replies: vec![
                want(Part::ExactGradient, Len::Exactly(d), Gather::Sum),
                want(Part::Eigenvalues, Len::AtMost(3 + most), Gather::Each),
                want(Part::Refinement, Len::AtMost(Refinement::most_bytes(most)), Gather::Each),
                content,
            ],
            may_open: false,
        };
        Protocol { exchanges: vec![bits, self.trials().exchange(d)], ..Protocol::default() }
    }

    fn client(&self, _: &Setting<'_>) -> Box<dyn Client> {
        let plan = Arc::new(QShedPlan {
            renewal: self.renewal.clone(),
            rule: self.allocation,
            max_bits: self.max_bits,
            budget: u64::from(self.budget()),
            trials: self.trials(),
        });
        ByAgent::boxed(move |_| Box::new(QShedAgent::new(Arc::clone(&plan))))
    }

    fn server(&self, setting: &Setting<'_>) -> Box<dyn Server> {
        let steps = NewtonSteps { trigger: trigger(&self.renewal), ..NewtonSteps::new(setting.start.clone(), Some(self.trials())) };
        let are_whole = self.allocation == BitRule::Ideal;
        let rule = QShedRule { seed: setting.seed, max_bits: self.max_bits, are_whole };
        Box::new(QShedServer::new(steps, setting.weights.to_vec(), rule))
    }

    /// For each agent all eigenvectors at the agent, their codes or the vectors at the server, a Hessian, and two triangles at the server.
    fn memory(&self, agents: usize, d: usize) -> f64 {
        8.0 * agents as f64 * 4.0 * (d as f64).powi(2)
    }

    /// A gradient, the losses, the sums of all refined vectors, and at renewals a Hessian with its eigenpairs. The exact search solves an
    /// allocation for each number of vectors.
    fn work(&self, _: usize, d: usize) -> f64 {
        let losses = self.trials().losses() as f64;
        let d = d as f64;
        let searching = if self.allocation == BitRule::Exact { SEARCH * f64::from(self.budget()).min(d) * d } else { 0.0 };
        (losses + 1.0) * d.powi(2) + 0.5 * d.powi(3) + HESSIAN_AND_PAIRS * d.powi(3) / between_renewals(&self.renewal, d) + searching
    }

    fn shape(&self) -> MethodShape {
        MethodShape::without_local_steps()
    }
}
