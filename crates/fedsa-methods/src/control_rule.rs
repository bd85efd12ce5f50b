//! Rules for control variates over links that alter, lose or delay messages.
//!
//! | rule | an agent sends | and subtracts from v | `sum_c p_c xi_c` stays 0 |
//! | --- | --- | --- | --- |
//! | literal | `v_c` | `v_c` as it computed it | over an exact link |
//! | acknowledged | `v_c` | `v_c` as the server decoded it; 0 if the message was lost | over every codec and loss of single messages |
//! | afresh | `c_c = v_c - xi_c` | `c_c` and `xi_c` | up to the noise of the last round, which does not accumulate |
//!
//! The section "Control variates over links" of `docs/src/reference/links.md` is the full account: how agents learn v, and what
//! `auto` chooses. The decision and its reasons are in `docs/src/inside/decisions/index.md`. In the code, `Kept::resolve` turns the
//! rule and the link into `Kept`, from which the protocol and both halves are built.

use fedsa::error::{Result, require};
use fedsa::message::Part;
use fedsa::method::ControlRule;
use fedsa::protocol::{Give, Len, Protocol};
use fedsa::uplink::LinkFacts;

use crate::local::control_variate::{Learns, OwnShare};
use crate::server::Average;

/// How control variates are kept on one link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kept {
    /// How agents learn v.
    pub learns: Learns,
    /// What they subtract from v.
    pub share: OwnShare,
}

impl Kept {
    /// How control variates are kept on a link, with all agents or some of them participating (`partial`), and with a server
    /// that moves theta after the round or without (`accelerated`).
    pub fn resolve(rule: ControlRule, partial: bool, accelerated: bool, link: &LinkFacts) -> Self {
        let from_model = !partial && !accelerated && !link.is_downlink_lossy;
        let literal = Self { learns: if partial || accelerated { Learns::Told } else { Learns::FromModel }, share: OwnShare::Computed };
        let acknowledged = Self { learns: if from_model { Learns::FromModel } else { Learns::Told }, share: OwnShare::Acknowledged };
        let afresh = Self { learns: Learns::Told, share: OwnShare::Afresh };
        match rule {
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
        let counted = if self.share == OwnShare::Acknowledged { vec![(Part::Counted, Len::Exactly(1))] } else { Vec::new() };
        match self.learns {
            Learns::FromModel => protocol.exchanges[0].own = counted,
            Learns::Told => (protocol.tell, protocol.tell_own) = (vec![(Part::Direction, Len::Exactly(d))], counted),
        }
        protocol
    }

    /// The averaging server, which also tells agents what they need.
    pub fn server(self, average: Average) -> Average {
        Average { tells_mean: self.learns == Learns::Told, ..average }
    }
}

/// Checks a `control_step`.
///
/// # Errors
/// When it is not in (0, 1].
pub(crate) fn check_control_step(step: f64) -> Result<()> {
    require(step > 0.0 && step <= 1.0, "control_step", step, "in (0, 1]")
}
