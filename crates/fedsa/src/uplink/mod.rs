//! Links between agents and the server.
//!
//! An uplink has two ends. The agent's end has the bit budget of the exchange, the codec and error feedback. The server's end
//! delivers one message per agent (which may be lost, weakened or late) or only the sum of all messages. The section
//! `docs/src/reference/links.md` describes in full what links do to messages.

pub(crate) mod agent_end;
pub mod codec;
pub mod install;
pub mod medium;

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::message::{Envelope, Message};
use crate::random::{ALL, Key, Purpose, Stream};
pub(crate) use agent_end::{AgentEnd, Answer};
use codec::{Codec, Exact};
use medium::Medium;
use medium::bit_budget::BitBudget;
use medium::delay::{Delay, Pull};

/// A link: the codec and the media of agents' messages, and the codec of the server's messages.
#[derive(Debug, Clone, serde::Serialize)]
#[non_exhaustive]
pub struct Uplink {
    /// The codec of the agents' messages.
    pub codec: Arc<dyn Codec>,
    /// Whether an agent adds what the codec left out of one message to its next message.
    pub error_feedback: bool,
    /// The bits that each message may take.
    pub budget: Option<BitBudget>,
    /// The media that messages pass, in order.
    pub media: Vec<Arc<dyn Medium>>,
    /// Delays of models (pull).
    pub delay: Option<Pull>,
    /// Delays of answers (push).
    pub late: Option<Delay>,
    /// The codec of the server's messages.
    pub downlink: Arc<dyn Codec>,
}

crate::settings::setters! { Uplink {
    with_codec(codec: Arc<dyn Codec>) = codec;
    with_error_feedback(error_feedback: bool) = error_feedback;
    with_budget(budget: impl Into<Option<BitBudget>>) = budget.into();
    with_media(media: Vec<Arc<dyn Medium>>) = media;
    with_delay(delay: impl Into<Option<Pull>>) = delay.into();
    with_late(late: impl Into<Option<Delay>>) = late.into();
    with_downlink(downlink: Arc<dyn Codec>) = downlink;
} }

impl Default for Uplink {
    fn default() -> Self {
        Self {
            codec: Arc::new(Exact),
            error_feedback: false,
            budget: None,
            media: Vec::new(),
            delay: None,
            late: None,
            downlink: Arc::new(Exact),
        }
    }
}

/// What a link does to messages, as methods need to know it. An agent can know that its message was altered; it cannot
/// know that its message was lost, late or summed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkFacts {
    /// A codec or a budget alters agents' messages. An agent knows what the server will decode.
    pub is_altered: bool,
    /// Media weaken or lose messages. An agent does not know what arrives.
    pub is_lost: bool,
    /// The server gets only sums.
    pub is_sum_only: bool,
    /// The server uses directions at old models (pull), at most this many rounds old.
    pub stale: Option<u64>,
    /// Answers arrive late (push), by at most this many rounds.
    pub late: Option<u64>,
    /// The downlink alters the server's messages.
    pub is_downlink_lossy: bool,
    /// The link tells agents how many bits they may send.
    pub has_budget: bool,
}

impl LinkFacts {
    /// Whether messages in either direction may be altered, weakened or lost.
    pub(crate) fn changes_messages(&self) -> bool {
        self.is_altered || self.is_lost || self.is_downlink_lossy
    }
}

impl Uplink {
    /// What the link does to messages.
    pub fn facts(&self) -> LinkFacts {
        LinkFacts {
            is_altered: self.alters(),
            is_lost: !self.media.is_empty(),
            is_sum_only: self.media.iter().any(|m| m.is_sum_only()),
            stale: self.delay.as_ref().map(|d| d.delay.max()),
            late: self.late.as_ref().map(Delay::max),
            is_downlink_lossy: !self.downlink.is_exact(),
            has_budget: self.budget.is_some(),
        }
    }

    /// Whether messages arrive at once and unaltered. No bytes need then be produced.
    pub fn is_clear(&self) -> bool {
        self.facts() == LinkFacts::default()
    }

    /// Whether all that agents send, vectors of `d` components, arrives at once and unaltered; `encodes` as for [`Uplink::check`]. A bit
    /// budget alters nothing by itself: it may carry no message, or a codec may round by it.
    pub fn delivers_all(&self, d: usize, encodes: bool) -> bool {
        let but_for_budget = LinkFacts { is_altered: !self.codec.is_exact(), has_budget: false, ..self.facts() };
        but_for_budget == LinkFacts::default() && self.share_arriving(d, encodes) == 1.0
    }

    /// Adds a medium after the present ones.
    pub(crate) fn push(&mut self, medium: Arc<dyn Medium>, name: &str) -> Result<()> {
        self.per_agent(name)?;
        self.media.push(medium);
        Ok(())
    }

    /// Checks that a medium added now would get one message per agent.
    ///
    /// # Errors
    /// When a medium before it delivers only a sum.
    pub(crate) fn per_agent(&self, name: &str) -> Result<()> {
        if self.media.iter().any(|m| m.is_sum_only()) {
            let what = format!("{name} after over-the-air, which leaves only a sum");
            return Err(Error::new("", what, "over-the-air as the last medium"));
        }
        Ok(())
    }

    /// Checks the link for `agents` agents and vectors of `d` components; `encodes` says whether the codec encodes any part of an answer
    /// ([`crate::protocol::Protocol::encodes`]). Otherwise agents choose what they send by the budget, and none is too small.
    ///
    /// # Errors
    /// When a codec needs more components, a budget never carries a message that is encoded, or a trace has
    /// delays for another number of agents. The key is that of a method's `uplink` or
    /// `downlink`, without the medium's place in its list.
    pub fn check(&self, agents: usize, d: usize, encodes: bool) -> Result<()> {
        self.codec.check_dim(d).map_err(|e| e.inside("uplink.codec"))?;
        if self.error_feedback {
            self.codec.check_feedback(d).map_err(|e| e.inside("uplink.codec"))?;
        }
        self.downlink.check_dim(d).map_err(|e| e.inside("downlink.codec"))?;
        if let Some(budget) = self.budget.as_ref().filter(|_| encodes) {
            budget.carries(&*self.codec, d).map_err(|e| e.inside("uplink.media"))?;
        }
        let delays = [self.delay.as_ref().map(|pull| &pull.delay), self.late.as_ref()];
        delays.into_iter().flatten().try_for_each(|delay| delay.check_agents(agents)).map_err(|e| e.inside("uplink.media"))
    }

    /// The share of messages of `d` components that arrive, weakened or not; `encodes` as for [`Uplink::check`].
    pub fn share_arriving(&self, d: usize, encodes: bool) -> f64 {
        let sent = self
            .budget
            .as_ref()
            .filter(|_| encodes)
            .map_or(1.0, |budget| budget.share_carried(|bits| self.codec.encoded_len(d, Some(bits)).is_some()));
        self.media.iter().map(|medium| medium.share_arriving()).product::<f64>() * sent
    }

    /// The number of numbers that error feedback keeps per agent: a vector of d components for each exchange of a round.
    pub fn feedback_len(&self, d: usize, exchanges: usize) -> usize {
        if self.error_feedback { exchanges * d } else { 0 }
    }

    /// The number of words that the media remember per agent.
    pub fn media_len(&self) -> usize {
        self.media.iter().map(|m| m.memory()).sum()
    }

    /// Sets the media's memory of agent `c` at the start of a run.
    pub fn start(&self, seed: u64, c: usize, memory: &mut [u64]) {
        let mut stream = Key::new(seed, Purpose::Medium, u64::MAX).stream(c);
        let mut rest = memory;
        for medium in &self.media {
            let (own, others) = rest.split_at_mut(medium.memory());
            medium.start(own, &mut stream);
            rest = others;
        }
    }

    /// The agent's end of one vector: encodes `x` into `bytes` (cleared first), with error feedback if there is any, and sets `decoded` to
    /// what the server will decode. Returns whether there is a message. If the budget carries none, the result is
    /// `false`, and `decoded` is 0.
    pub fn encode(&self, at: MessageKey, x: &[f64], feedback: &mut [f64], bytes: &mut Vec<u8>, decoded: &mut [f64]) -> bool {
        bytes.clear();
        let budget = self.budget.map(|b| b.draw(&mut at.stream(Purpose::Budget)));
        let carries = self.codec.encoded_len(x.len(), budget).is_some();
        let left = match feedback {
            [] => &mut [][..],
            all => &mut all[usize::from(at.exchange) * x.len()..][..x.len()],
        };
        left.iter_mut().zip(x).for_each(|(left, x)| *left += x);
        if !carries {
            decoded.fill(0.0);
            return false;
        }
        self.codec.encode(if left.is_empty() { x } else { left }, budget, &mut at.stream(Purpose::Codec), bytes);
        self.codec.decode(bytes, &mut at.stream(Purpose::Codec), decoded).expect("what was just encoded");
        left.iter_mut().zip(&*decoded).for_each(|(left, sent)| *left -= sent);
        true
    }

    /// The server's end: the factor by which a message arrives, 0 when it is lost.
    pub fn gain(&self, at: MessageKey, memory: &mut [u64]) -> f64 {
        let mut stream = at.stream(Purpose::Medium);
        let (mut gain, mut rest) = (1.0, memory);
        for medium in &self.media {
            let (own, others) = rest.split_at_mut(medium.memory());
            gain *= medium.gain(own, &mut stream);
            rest = others;
        }
        gain
    }

    /// Whether a codec or a budget alters agents' messages.
    pub fn alters(&self) -> bool {
        !self.codec.is_exact() || self.budget.is_some()
    }

    /// Turns the server's message `down` into the message that agents decode.
    pub(crate) fn tell(&self, seed: u64, down: &mut Message) {
        if !self.downlink.is_exact() {
            let place = MessageKey { seed, round: down.round, exchange: down.exchange, agent: ALL };
            let bytes = down.encode(&Envelope::default(), &*self.downlink, &mut place.stream(Purpose::Codec));
            let longest = down.parts.iter().map(|(_, x)| x.len()).max().unwrap_or(0);
            let decoded = Message::decode(&bytes, &*self.downlink, longest, |_, _| place.stream(Purpose::Codec));
            *down = decoded.expect("what was just encoded").1;
        }
    }

    /// Adds the receivers' noise to weighted sums over agents whose weights sum to `asked`.
    pub fn receive(&self, at: MessageKey, sums: &mut [&mut [f64]], agents: usize, asked: f64) {
        if self.media.iter().any(|m| m.is_sum_only()) {
            let mut stream = at.stream(Purpose::Receiver);
            for sum in sums {
                let mut noise = vec![0.0; sum.len()];
                self.media.iter().for_each(|m| m.receive(&mut noise, agents, &mut stream));
                sum.iter_mut().zip(&noise).for_each(|(sum, w)| *sum += asked * w);
            }
        }
    }

    /// The number of bits that the link carries for vectors of d components in an exchange, if it has a budget. The agent
    /// knows this number before it chooses what to send.
    pub fn allowance(&self, at: MessageKey, d: usize) -> Option<u64> {
        self.budget.map(|budget| u64::from(budget.draw(&mut at.stream(Purpose::Budget))) * d as u64)
    }
}

/// The key of a message: all random events of the message are drawn from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageKey {
    /// The run's seed.
    pub seed: u64,
    /// The round.
    pub round: u64,
    /// The exchange.
    pub exchange: u8,
    /// The agent, or [`crate::random::ALL`].
    pub agent: usize,
}

impl MessageKey {
    /// The stream of this message for a purpose; both ends of the link can open it.
    pub fn stream(&self, purpose: Purpose) -> Stream {
        Key::of_exchange(self.seed, purpose, self.round, self.exchange).stream(self.agent)
    }
}
