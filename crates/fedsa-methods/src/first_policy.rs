//! The first policy of methods that improve one, and the exchange that asks for its values.

use fedsa::linalg;
use fedsa::message::Part;
use fedsa::protocol::{Exchange, Gather, Len, ReplySpec};
use serde::{Deserialize, Serialize};

/// The policy whose values are the first iterate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum FirstPolicy {
    /// The policy that logged the agents' data; without such data the policy of the start.
    #[default]
    Behaviour,
    /// The policy that the start determines.
    Start,
}

/// The exchange of a model and a system of d components, which may open a round.
pub(crate) fn system_exchange(d: usize) -> Exchange {
    Exchange {
        down: vec![(Part::Model, Len::Exactly(d))],
        own: Vec::new(),
        replies: vec![ReplySpec { part: Part::System, len: Len::Exactly(d * (d + 1)), gather: Gather::Sum }],
        may_open: true,
    }
}

/// The solution of a sum of systems, A row by row, then b; the one of least norm if A is singular. `None` if no system arrived.
pub(crate) fn solution(d: usize, system: &[f64]) -> Option<Vec<f64>> {
    let (a, b) = system.split_at(d * d);
    let has_arrived = system.iter().any(|x| *x != 0.0);
    has_arrived.then(|| linalg::solve_or_least(&linalg::from_rows(d, d, a), b))
}
