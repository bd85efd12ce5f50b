//! Rules for control variates over links that change, lose or delay messages.
//!
//! | rule | an agent sends | and subtracts from v | `sum_c p_c xi_c` stays 0 |
//! | --- | --- | --- | --- |
//! | literal | `v_c` | its computed `v_c` | over an exact link |
//! | acknowledged | `v_c` | `v_c` as decoded by the server; 0 if lost | over every codec and loss of single messages |
//! | afresh | `c_c = v_c - xi_c` | `c_c` and `xi_c` | up to the last round's noise, which does not accumulate |
//!
//! The section "Control variates over links" of `docs/src/reference/links.md` says when the server sends v, and [`ControlRule`] how `auto`
//! chooses. `docs/src/inside/decisions/index.md` has the decision and its reasons. `ControlScheme::resolve` turns the rule and the link
//! into a `ControlScheme`, from which the protocol and both halves are built.

use fedsa::error::{Result, require};
use fedsa::message::Part;
use fedsa::method::ControlRule;
use fedsa::protocol::{Gather, Len, Protocol};
use fedsa::uplink::LinkFacts;

use crate::local::control_variate::{MeanSource, SubtractedShare};
use crate::server::Average;

/// The treatment of control variates on one link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ControlScheme {
    /// The source from which agents learn v.
    pub mean_from: MeanSource,
    /// The share that they subtract from v.
    pub share: SubtractedShare,
}

impl ControlScheme {
    /// The treatment on a link, with all agents or some of them (`partial`), and with or without a server that moves theta after the round
    /// (`accelerated`).
    pub fn resolve(rule: ControlRule, partial: bool, accelerated: bool, link: &LinkFacts) -> Self {
        let from_model = !partial && !accelerated && !link.is_downlink_lossy;
        let literal = Self {
            mean_from: if partial || accelerated { MeanSource::Told } else { MeanSource::FromModel },
            share: SubtractedShare::Computed,
        };
        let acknowledged =
            Self { mean_from: if from_model { MeanSource::FromModel } else { MeanSource::Told }, share: SubtractedShare::Acknowledged };
        let afresh = Self { mean_from: MeanSource::Told, share: SubtractedShare::Afresh };
        match rule {
            ControlRule::Literal => literal,
            ControlRule::Acknowledged => acknowledged,
            ControlRule::Afresh => afresh,
            ControlRule::Auto if link.is_sum_only => afresh,
            // Late but unchanged messages all enter some round's mean.
            ControlRule::Auto if link.late.is_some() && partial && !link.changes_messages() => literal,
            ControlRule::Auto if link.late.is_some() => afresh,
            ControlRule::Auto if link.is_downlink_lossy && !partial => afresh,
            ControlRule::Auto => acknowledged,
        }
    }

    /// The corresponding rule, if all messages are changed or lost one at a time.
    pub fn rule(self) -> ControlRule {
        match self.share {
            SubtractedShare::Computed => ControlRule::Literal,
            SubtractedShare::Acknowledged => ControlRule::Acknowledged,
            SubtractedShare::Afresh => ControlRule::Afresh,
        }
    }

    /// Models down, directions up, and additional messages to agents.
    pub fn protocol(self, d: usize) -> Protocol {
        let mut protocol = Protocol::directions(d, Gather::Sum);
        let counted = if self.share == SubtractedShare::Acknowledged { vec![(Part::Counted, Len::Exactly(1))] } else { Vec::new() };
        match self.mean_from {
            MeanSource::FromModel => protocol.exchanges[0].own = counted,
            MeanSource::Told => (protocol.tell, protocol.tell_own) = (vec![(Part::Direction, Len::Exactly(d))], counted),
        }
        protocol
    }

    /// The averaging server, with the additional messages that agents need.
    pub fn server(self, average: Average) -> Average {
        Average { tells_mean: self.mean_from == MeanSource::Told, ..average }
    }
}

/// Checks a `control_step`.
///
/// # Errors
/// When it is not in (0, 1].
pub(crate) fn check_control_step(step: f64) -> Result<()> {
    require(step > 0.0 && step <= 1.0, "control_step", step, "in (0, 1]")
}
