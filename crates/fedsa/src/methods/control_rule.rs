//! Rules for control variates over links that alter, lose or delay messages.
//!
//! | rule | an agent sends | and subtracts from v | `sum_c p_c xi_c` stays 0 |
//! | --- | --- | --- | --- |
//! | literal | `v_c` | `v_c` as it computed it | over an exact link |
//! | acknowledged | `v_c` | `v_c` as the server decoded it; 0 if the message was lost | over every codec and loss of single messages |
//! | afresh | `c_c = v_c - xi_c` | `c_c` and `xi_c` | up to the noise of the last round, which does not accumulate |
//!
//! The section "Control variates over links" of `docs/src/reference/links.md` is the full account: how agents learn v, and what
//! `auto` chooses. The decisions and their reasons are in `docs/src/inside/decisions`. In the code, `ControlRule::resolve` turns the
//! rule and the link into `Kept`, from which the protocol and both halves are built.

use serde::{Deserialize, Serialize};

use crate::error::{Result, require};
use crate::local::control_variate::{Learns, OwnShare};
use crate::message::Part;
use crate::protocol::{Give, Len, Protocol};
use crate::server::average::Tell;
use crate::server::{Average, Included};
use crate::uplink::LinkFacts;

/// The `rule` setting: how control variates are kept over links that are not exact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ControlRule {
    /// `acknowledged`, which over an exact link equals `literal`; `afresh` if only sums arrive, if messages arrive late, or
    /// if the downlink alters models. With m of N participants: `literal` if messages arrive late and otherwise whole, and
    /// `acknowledged` also if the downlink alters models.
    #[default]
    Auto,
    /// As in \[S\], whatever the link does.
    Literal,
    /// Agents subtract their own message as the server decoded it, or nothing if the server says that it was lost.
    Acknowledged,
    /// Agents send `c_c = v_c - xi_c`. With m of N participants the control of an agent is that of the last
    /// round in which it participated, and the drifts of the other agents are missing: stable, but biased.
    Afresh,
}

impl ControlRule {
    /// How control variates are kept on a link, with all agents or some of them participating (`partial`), and with a server
    /// that moves theta after the round or without (`accelerated`).
    pub(crate) fn resolve(self, partial: bool, accelerated: bool, link: &LinkFacts) -> Kept {
        let from_model = !partial && !accelerated && !link.is_downlink_lossy;
        let literal = Kept { learns: if partial || accelerated { Learns::Told } else { Learns::FromModel }, share: OwnShare::Computed };
        let acknowledged = Kept { learns: if from_model { Learns::FromModel } else { Learns::Told }, share: OwnShare::Acknowledged };
        let afresh = Kept { learns: Learns::Told, share: OwnShare::Afresh };
        match self {
            ControlRule::Literal => literal,
            ControlRule::Acknowledged => acknowledged,
            ControlRule::Afresh => afresh,
            ControlRule::Auto if link.is_sum_only => afresh,
            // Messages that are late and otherwise whole are all in some round's mean.
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
    /// What they subtract from v.
    pub share: OwnShare,
}

impl Kept {
    /// The rule that it is, where all messages are altered or lost one at a time.
    pub fn rule(self) -> ControlRule {
        match self.share {
            OwnShare::Computed => ControlRule::Literal,
            OwnShare::Acknowledged => ControlRule::Acknowledged,
            OwnShare::Afresh => ControlRule::Afresh,
        }
    }

    /// Models down and directions up, and what agents are told besides.
    pub fn protocol(self, d: usize) -> Protocol {
        let mut protocol = Protocol::directions(d, Give::Sum);
        let included = if self.share == OwnShare::Acknowledged { vec![(Part::Included, Len::Exactly(1))] } else { Vec::new() };
        match self.learns {
            Learns::FromModel => protocol.exchanges[0].own = included,
            Learns::Told => (protocol.tell, protocol.tell_own) = (vec![(Part::Direction, Len::Exactly(d))], included),
        }
        protocol
    }

    /// The averaging server, which also tells agents what they need.
    pub fn server(self, average: Average) -> Average {
        let agents = average.participation.agents;
        let tell = match (self.learns, self.share) {
            (Learns::FromModel, _) => Tell::Nothing,
            (Learns::Told, OwnShare::Acknowledged) => Tell::MeanAndArrival,
            (Learns::Told, _) => Tell::Mean,
        };
        let says = self == Kept { learns: Learns::FromModel, share: OwnShare::Acknowledged };
        Average { tell, included: says.then(|| Included::new(agents)), ..average }
    }
}

/// Checks a `control_step`.
///
/// # Errors
/// When it is not in (0, 1].
pub(crate) fn check_control_step(step: f64) -> Result<()> {
    require(step > 0.0 && step <= 1.0, "control_step", step, "in (0, 1]")
}
