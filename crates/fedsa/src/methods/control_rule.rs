//! How control variates are kept over links that alter, lose or delay messages.
//!
//! | rule | an agent sends | subtracts from v | `sum_c p_c xi_c` stays 0 |
//! | --- | --- | --- | --- |
//! | literal | `v_c` | `v_c` as it computed it | over an exact link |
//! | acknowledged | `v_c` | `v_c` as the server decoded it, nothing where it was lost | whatever is altered or lost, one message at a time |
//! | afresh | `v_c - xi_c` | that and `xi_c` | up to the last round's noise: nothing adds up |
//!
//! v itself an agent learns from the next model where it takes part in every round and models arrive as they were sent;
//! elsewhere it is told, which the ledger prices. What a codec makes of its own message an agent knows: it decodes it as
//! the server will. That a message was lost it does not know: the server says so with the next question, to those whose
//! answer was lost and to nobody else.

use serde::{Deserialize, Serialize};

use crate::error::{Result, require};
use crate::local::control_variate::{Learns, Share};
use crate::message::Part;
use crate::protocol::{Give, Len, Protocol};
use crate::server::average::Tell;
use crate::server::{Average, Included};
use crate::uplink::Facts;

/// The `rule` setting: how control variates are kept over imperfect links.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ControlRule {
    /// acknowledged, which is literal over an exact link; afresh where only sums arrive, late or over a lossy
    /// downlink. Where not all agents take part: literal over links that are late alone, acknowledged over a
    /// lossy downlink too.
    #[default]
    Auto,
    /// To the letter of \[S\], whatever the link does.
    Literal,
    /// Subtracts its own message as the server decoded it, or nothing where it was lost, which the server says.
    Acknowledged,
    /// Sends `c_c = v_c - xi_c`. Where not all agents take part a control is that of the last
    /// round the agent did, and the drifts of the others are missed: stable, but biased.
    Afresh,
}

impl ControlRule {
    /// What it comes to on a link.
    pub(crate) fn resolve(self, partial: bool, link: &Facts) -> Kept {
        let from_model = !partial && !link.is_downlink_lossy;
        let literal = Kept { learns: if partial { Learns::Told } else { Learns::FromModel }, share: Share::Computed };
        let acknowledged = Kept { learns: if from_model { Learns::FromModel } else { Learns::Told }, share: Share::Acknowledged };
        let afresh = Kept { learns: Learns::Told, share: Share::Afresh };
        match self {
            ControlRule::Literal => literal,
            ControlRule::Acknowledged => acknowledged,
            ControlRule::Afresh => afresh,
            ControlRule::Auto if link.is_sum_only => afresh,
            // Late but whole, every message is in some round's mean, and nothing is lost.
            ControlRule::Auto if link.late.is_some() && partial && !link.changes_messages() => literal,
            ControlRule::Auto if link.late.is_some() => afresh,
            ControlRule::Auto if link.is_downlink_lossy && !partial => afresh,
            ControlRule::Auto => acknowledged,
        }
    }
}

/// How control variates are kept on one link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kept {
    /// How agents learn v.
    pub learns: Learns,
    /// What they subtract from it.
    pub share: Share,
}

impl Kept {
    /// The rule that it is, where all messages are altered or lost one at a time.
    pub fn rule(self) -> ControlRule {
        match self.share {
            Share::Computed => ControlRule::Literal,
            Share::Acknowledged => ControlRule::Acknowledged,
            Share::Afresh => ControlRule::Afresh,
        }
    }

    /// Models down and directions up, and what agents are told besides.
    pub fn protocol(self, d: usize) -> Protocol {
        let mut protocol = Protocol::directions(d, Give::Sum);
        let included = if self.share == Share::Acknowledged { vec![(Part::Included, Len::Exactly(1))] } else { Vec::new() };
        match self.learns {
            Learns::FromModel => protocol.exchanges[0].own = included,
            Learns::Told => (protocol.tell, protocol.tell_own) = (vec![(Part::Direction, Len::Exactly(d))], included),
        }
        protocol
    }

    /// The averaging server that tells agents what they need.
    pub fn server(self, average: Average) -> Average {
        let agents = average.participation.agents;
        let tell = match (self.learns, self.share) {
            (Learns::FromModel, _) => Tell::Nothing,
            (Learns::Told, Share::Acknowledged) => Tell::MeanAndArrival,
            (Learns::Told, _) => Tell::Mean,
        };
        let says = self == Kept { learns: Learns::FromModel, share: Share::Acknowledged };
        Average { tell, included: says.then(|| Included::new(agents)), ..average }
    }
}

/// # Errors
/// When it is not a share.
pub(crate) fn check_control_step(step: f64) -> Result<()> {
    require(step > 0.0 && step <= 1.0, "control_step", step, "in (0, 1]")
}
