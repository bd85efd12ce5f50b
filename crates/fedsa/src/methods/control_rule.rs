//! How control variates are kept over links that alter, lose or delay messages.
//!
//! | rule | an agent sends | learns | `sum_c p_c xi_c` stays 0 |
//! | --- | --- | --- | --- |
//! | literal | `v_c` | v, from the next model or told | over an exact link |
//! | acknowledged | `v_c` | v, and whether its own is in it | whatever is altered or lost, one message at a time |
//! | afresh | `v_c - xi_c` | v | up to the last round's noise: nothing adds up |

use serde::{Deserialize, Serialize};

use crate::error::{Result, require};
use crate::local::control_variate::Learns;
use crate::server::average::Tell;
use crate::uplink::Facts;

/// The `rule` setting: how control variates are kept over imperfect links.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ControlRule {
    /// literal over an exact link, acknowledged where messages are altered or lost one
    /// by one, afresh where only sums arrive, late or over a lossy downlink.
    #[default]
    Auto,
    /// To the letter of \[S\], whatever the link does.
    Literal,
    /// Told v and whether the own message is in it.
    Acknowledged,
    /// Sends `c_c = v_c - xi_c`; full participation only.
    Afresh,
}

impl ControlRule {
    /// # Errors
    /// When the rule needs all agents in every round and there are fewer.
    pub(crate) fn check(self, participants: Option<usize>, agents: usize) -> Result<()> {
        let partial = participants.is_some_and(|m| m < agents);
        require(
            self != ControlRule::Afresh || !partial,
            "rule",
            "\"afresh\"",
            "auto, literal or acknowledged where not all agents take part",
        )
    }

    /// What it comes to on a link, and what the server then tells.
    pub(crate) fn resolve(self, partial: bool, link: &Facts) -> (Learns, Tell) {
        let literal = if partial { (Learns::Told, Tell::Mean) } else { (Learns::FromModel, Tell::Nothing) };
        let cannot_acknowledge = link.is_sum_only || link.late.is_some() || link.is_downlink_lossy;
        match self {
            ControlRule::Literal => literal,
            ControlRule::Acknowledged => (Learns::Acknowledged, Tell::MeanAndArrival),
            ControlRule::Afresh => (Learns::Afresh, Tell::Mean),
            ControlRule::Auto if cannot_acknowledge && !partial => (Learns::Afresh, Tell::Mean),
            ControlRule::Auto if cannot_acknowledge => literal,
            ControlRule::Auto if link.is_lossy => (Learns::Acknowledged, Tell::MeanAndArrival),
            ControlRule::Auto => literal,
        }
    }
}
