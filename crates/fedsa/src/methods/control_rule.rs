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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ControlRule {
    /// literal over an exact link, acknowledged where messages are altered or lost one
    /// by one, afresh where only sums arrive, late or over a lossy downlink. Where not all
    /// agents take part: literal over links that are late alone, acknowledged over a lossy
    /// downlink too.
    #[default]
    Auto,
    /// To the letter of \[S\], whatever the link does.
    Literal,
    /// Told v and whether the own message is in it.
    Acknowledged,
    /// Sends `c_c = v_c - xi_c`. Where not all agents take part a control is that of the last
    /// round the agent did, and the drifts of the others are missed: stable, but biased.
    Afresh,
}

impl ControlRule {
    /// What it comes to on a link, and what the server then tells.
    pub(crate) fn resolve(self, partial: bool, link: &Facts) -> (Learns, Tell) {
        let literal = if partial { (Learns::Told, Tell::Mean) } else { (Learns::FromModel, Tell::Nothing) };
        let altered = link.is_lossy || link.is_downlink_lossy;
        match self {
            ControlRule::Literal => literal,
            ControlRule::Acknowledged => (Learns::Acknowledged, Tell::MeanAndArrival),
            ControlRule::Afresh => (Learns::Afresh, Tell::Mean),
            ControlRule::Auto if link.is_sum_only => (Learns::Afresh, Tell::Mean),
            // Late but whole, every message is in some round's mean, and nothing is lost.
            ControlRule::Auto if link.late.is_some() && partial && !altered => literal,
            ControlRule::Auto if link.late.is_some() => (Learns::Afresh, Tell::Mean),
            ControlRule::Auto if link.is_downlink_lossy && !partial => (Learns::Afresh, Tell::Mean),
            ControlRule::Auto if link.is_lossy => (Learns::Acknowledged, Tell::MeanAndArrival),
            ControlRule::Auto => literal,
        }
    }
}

/// # Errors
/// When it is not a share.
pub(crate) fn check_control_step(step: f64) -> Result<()> {
    require(step > 0.0 && step <= 1.0, "control_step", step, "in (0, 1]")
}
