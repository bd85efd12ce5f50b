//! Links between agents and the server.
//!
//! An uplink has two ends. The agent's end has the altering stages, the bit budget of the exchange, the codec and error feedback. The
//! server's end delivers one message per agent (which may be lost, weakened or late) or only the sum of all messages, and takes their mean.
//! The page `docs/src/reference/links.md` describes what links do to messages.

pub(crate) mod agent_end;
pub mod aggregation;
pub mod codec;
pub mod stage;

use std::sync::Arc;

use crate::error::{Error, Result, require};
use crate::message::{Envelope, Message};
use crate::privacy::unit::{ClippedUnits, PrivacyUnit, UnitClip};
use crate::random::{ALL, Key, Purpose, Stream};
use crate::secure::SumGrid;
pub(crate) use agent_end::{AgentEnd, Answer};
pub use aggregation::Aggregation;
use codec::{Codec, Exact};
use stage::bit_budget::BitBudget;
use stage::delay::{Delay, Pull};
use stage::secure_sum::{Privacy, SecureSum, Summed};
use stage::{Act, Alteration, Channel, LinkStage};

/// A link: the codec and stages of agents' messages, the server's mean, and the codec of the server's messages.
#[derive(Debug, Clone, serde::Serialize)]
#[non_exhaustive]
pub struct Uplink {
    /// The codec of the agents' messages.
    pub codec: Arc<dyn Codec>,
    /// Whether an agent adds the codec's error of one message to its next message.
    pub error_feedback: bool,
    /// The stages that messages pass, in order.
    pub media: Vec<Arc<dyn LinkStage>>,
    /// The server's mean of the answers.
    #[serde(skip_serializing_if = "Aggregation::is_mean")]
    pub aggregation: Aggregation,
    /// The codec of the server's messages.
    pub downlink: Arc<dyn Codec>,
}

crate::settings::setters! { Uplink {
    with_codec(codec: Arc<dyn Codec>) = codec;
    with_error_feedback(error_feedback: bool) = error_feedback;
    with_media(media: Vec<Arc<dyn LinkStage>>) = media;
    with_aggregation(aggregation: Aggregation) = aggregation;
    with_downlink(downlink: Arc<dyn Codec>) = downlink;
} }

impl Default for Uplink {
    fn default() -> Self {
        let (codec, downlink): (Arc<dyn Codec>, Arc<dyn Codec>) = (Arc::new(Exact), Arc::new(Exact));
        Self { codec, error_feedback: false, media: Vec::new(), aggregation: Aggregation::Mean, downlink }
    }
}

/// The link's effects on messages that methods depend on. An agent knows alterations of its message, but not whether it was lost, late or
/// summed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkFacts {
    /// A codec, a budget or another stage alters agents' messages. An agent can compute the decoded message.
    pub is_altered: bool,
    /// Stages weaken or lose messages. An agent does not know what arrives.
    pub is_lost: bool,
    /// The server gets only sums.
    pub is_sum_only: bool,
    /// These sums are analogue: with gains and noise, of unknown messages.
    pub is_analogue: bool,
    /// The server uses directions at old models (pull), at most this many rounds old.
    pub stale: Option<u64>,
    /// Answers arrive late (push), by at most this many rounds.
    pub late: Option<u64>,
    /// Sums are altered by the rounding of a fine grid (secure sums of 40 bits or more, without noise) and by nothing else.
    pub is_fine_sum: bool,
    /// The server takes a mean other than the weighted one.
    pub is_robust: bool,
    /// The downlink alters the server's messages.
    pub is_downlink_lossy: bool,
    /// The link tells agents how many bits they may send.
    pub has_budget: bool,
}

impl LinkFacts {
    /// Whether messages in either direction may be altered, weakened or lost.
    pub fn changes_messages(&self) -> bool {
        self.is_altered || self.is_lost || self.is_downlink_lossy
    }

    /// Whether the server gets the mean of what all agents send, but for the rounding of a fine grid of secure sums.
    pub fn shows_means(&self) -> bool {
        let is_fine = self.is_fine_sum;
        *self == Self { is_altered: is_fine, is_sum_only: is_fine, is_fine_sum: is_fine, ..Self::default() }
    }
}

impl Uplink {
    /// The link's effects on messages.
    pub fn facts(&self) -> LinkFacts {
        LinkFacts {
            is_altered: self.alters(),
            is_lost: self.channels().next().is_some(),
            is_sum_only: self.is_sum_only(),
            is_analogue: self.acts().any(|act| matches!(act, Act::AddsUp { .. })),
            stale: self.pull().map(|pull| pull.delay.max()),
            late: self.late().map(Delay::max),
            is_fine_sum: self.secure_sum().is_some_and(SecureSum::is_fine) && !self.alters_vectors() && self.budget().is_none(),
            is_robust: !self.aggregation.is_mean(),
            is_downlink_lossy: !self.downlink.is_exact(),
            has_budget: self.budget().is_some(),
        }
    }

    fn acts(&self) -> impl Iterator<Item = Act<'_>> {
        self.media.iter().map(|stage| stage.act())
    }

    /// The stages that weaken or lose messages.
    fn channels(&self) -> impl Iterator<Item = &dyn Channel> {
        self.acts().filter_map(Act::channel)
    }

    /// How agents alter what they send.
    fn alterations(&self) -> impl Iterator<Item = &dyn Alteration> {
        self.acts().filter_map(|act| if let Act::Alters(alteration) = act { Some(alteration) } else { None })
    }

    /// The bits that each message may take.
    pub fn budget(&self) -> Option<&BitBudget> {
        self.acts().find_map(|act| if let Act::Limits(budget) = act { Some(budget) } else { None })
    }

    /// Delays of models (pull).
    pub fn pull(&self) -> Option<&Pull> {
        self.acts().find_map(|act| if let Act::Pulls(pull) = act { Some(pull) } else { None })
    }

    /// Delays of answers (push).
    pub fn late(&self) -> Option<&Delay> {
        self.acts().find_map(|act| if let Act::Delays(late) = act { Some(late) } else { None })
    }

    /// The law of the delays, of models or of answers.
    pub fn delay(&self) -> Option<&Delay> {
        self.pull().map(|pull| &pull.delay).or(self.late())
    }

    fn is_sum_only(&self) -> bool {
        self.acts().any(|act| matches!(act, Act::AddsUp { .. } | Act::Masks(_)))
    }

    /// The stage of secure sums.
    pub fn secure_sum(&self) -> Option<&SecureSum> {
        self.acts().find_map(|act| if let Act::Masks(sum) = act { Some(sum) } else { None })
    }

    /// The privacy of secure sums, if agents add noise.
    pub fn privacy(&self) -> Option<Privacy> {
        self.secure_sum().and_then(|sum| sum.privacy)
    }

    /// The fewest agents in a secure sum; 0 without secure sums.
    pub fn least_agents(&self) -> usize {
        self.secure_sum().map_or(0, |sum| sum.least_agents)
    }

    /// Checks that a problem shortens what the privacy of rows or episodes counts on.
    ///
    /// # Errors
    /// When it shortens other parts, to a larger norm, or nothing.
    pub fn check_clip(&self, clip: Option<UnitClip>) -> Result<()> {
        let Some(sum) = self.secure_sum() else { return Ok(()) };
        let unit = sum.privacy.map_or(PrivacyUnit::Agent, |privacy| privacy.unit);
        if unit == PrivacyUnit::Agent || clip.is_some_and(|clip| clip.unit == unit && clip.norm <= sum.bound) {
            return Ok(());
        }
        let what = format!("{}, and the problem does not shorten it to the norm {}", unit.name(), sum.bound);
        let help = "the same unit and at most `bound` as norm in `clip` of the problem, which is logs or least-squares";
        Err(Error::new("uplink.media.privacy.unit", what, help))
    }

    /// Checks that an agent's data are shortened so, and that its weight fits the number of its rows.
    ///
    /// # Errors
    /// When they are not, or the weight does not.
    pub(crate) fn check_units(&self, weight: f64, units: Option<ClippedUnits>) -> Result<()> {
        self.check_clip(units.map(|units| units.clip))?;
        match (self.privacy(), units) {
            (Some(privacy), Some(units)) if privacy.unit != PrivacyUnit::Agent => privacy.check_rows(weight, units.rows),
            _ => Ok(()),
        }
    }

    /// The grid of secure sums.
    ///
    /// # Errors
    /// As [`SecureSum::grid`].
    pub fn grid(&self, of: Summed<'_>) -> Result<Option<SumGrid>> {
        self.secure_sum().map(|sum| sum.grid(of)).transpose()
    }

    /// Whether a stage alters the vectors that agents send.
    pub fn alters_vectors(&self) -> bool {
        self.alterations().next().is_some()
    }

    /// Whether messages arrive at once and unaltered, and the server takes their mean. No bytes need then be produced.
    pub fn is_clear(&self) -> bool {
        self.facts() == LinkFacts::default()
    }

    /// Whether agents' vectors of `d` components all arrive at once and unaltered; `encodes` as for [`Uplink::check`]. A bit budget alters
    /// nothing by itself: it may carry no message, or make a codec send fewer bits.
    pub fn delivers_all(&self, d: usize, encodes: bool) -> bool {
        let is_altered = !self.codec.is_exact() || self.alters_vectors();
        let but_for_budget = LinkFacts { is_altered, has_budget: false, is_robust: false, ..self.facts() };
        but_for_budget == LinkFacts::default() && self.share_arriving(d, encodes) == 1.0
    }

    /// Adds a stage after the present ones.
    ///
    /// # Errors
    /// When a setting is out of range, or the stage cannot be combined with the link.
    pub fn push(&mut self, stage: Arc<dyn LinkStage>) -> Result<()> {
        stage.check()?;
        let act = stage.act();
        let refused = |what: &str, help: &str| Err(Error::new("", what, help));
        if self.is_sum_only() && !matches!(act, Act::Limits(_)) {
            return refused("a medium after one that leaves only a sum", "over-the-air or secure-sum as the last medium");
        }
        let is_secure = self.secure_sum().is_some() || matches!(act, Act::Masks(_));
        if is_secure && self.acts().chain([act]).any(|act| !matches!(act, Act::Masks(_) | Act::Alters(_) | Act::Weakens(_))) {
            let help =
                "clip, noise, erasure or gilbert-elliott before secure-sum: masks cancel only in a sum of whole answers to one question";
            return refused("a delay, a budget or an analogue sum beside secure-sum", help);
        }
        if is_secure && !self.codec.is_exact() {
            return refused("a codec beside secure-sum, whose grid encodes what agents send", "fewer `bits` of secure-sum, and no codec");
        }
        match act {
            Act::Limits(_) if self.budget().is_some() => return refused("two bit budgets on one link", "one"),
            Act::Pulls(_) | Act::Delays(_) if self.delay().is_some() => return refused("two delays on one link", "one delay or late"),
            Act::Pulls(_) if self.error_feedback => {
                let help = "late (push): with pull a direction may be used twice or never, which error feedback cannot follow";
                return refused("a delay (pull) on a link with error feedback", help);
            }
            _ => {}
        }
        self.media.push(stage);
        Ok(())
    }

    /// Checks the link for `agents` agents and vectors of `d` components; `encodes` says whether the codec encodes any part of an answer
    /// ([`crate::protocol::Protocol::encodes`]). Otherwise agents fit their answers to the budget, and no budget is too small.
    ///
    /// # Errors
    /// - A codec needs more components, or a trimmed mean's share is out of range.
    /// - A budget never carries an encoded message.
    /// - Stages cannot be combined, or a trace has delays for another number of agents.
    ///
    /// The key is inside a method's `uplink` or `downlink`, without the medium's index.
    pub fn check(&self, agents: usize, d: usize, encodes: bool) -> Result<()> {
        self.codec.check_dim(d).map_err(|e| e.inside("uplink.codec"))?;
        if self.error_feedback {
            self.codec.check_feedback(d).map_err(|e| e.inside("uplink.codec"))?;
        }
        self.downlink.check_dim(d).map_err(|e| e.inside("downlink.codec"))?;
        self.aggregation.check().map_err(|e| e.inside("uplink"))?;
        self.grid(Summed { weights: &vec![1.0 / agents as f64; agents], numbers: d, exchanges: 1 })
            .map_err(|e| e.inside("uplink.media"))?;
        if let Some(sum) = self.secure_sum() {
            let accepted = format!("secure-sum with `least_agents` of at most {agents}, the number of agents");
            require(sum.least_agents <= agents, "uplink.media.least_agents", sum.least_agents, &accepted)?;
        }
        let mut again = Self { media: Vec::new(), ..self.clone() };
        self.media.iter().try_for_each(|stage| again.push(Arc::clone(stage))).map_err(|e| e.inside("uplink.media"))?;
        if let Some(budget) = self.budget().filter(|_| encodes) {
            budget.carries(&*self.codec, d).map_err(|e| e.inside("uplink.media"))?;
        }
        self.delay().map_or(Ok(()), |delay| delay.check_agents(agents)).map_err(|e| e.inside("uplink.media"))
    }

    /// The share of messages of `d` components that arrive, weakened or not; `encodes` as for [`Uplink::check`].
    pub fn share_arriving(&self, d: usize, encodes: bool) -> f64 {
        let sent = self
            .budget()
            .filter(|_| encodes)
            .map_or(1.0, |budget| budget.share_carried(|bits| self.codec.encoded_len(d, Some(bits)).is_some()));
        self.channels().map(|channel| channel.gain_law().share_arriving).product::<f64>() * sent
    }

    /// The number of stored numbers per agent for error feedback: d for each exchange of a round.
    pub fn feedback_len(&self, d: usize, exchanges: usize) -> usize {
        if self.error_feedback { exchanges * d } else { 0 }
    }

    /// The number of words that the stages remember per agent.
    pub fn media_len(&self) -> usize {
        self.channels().map(Channel::memory).sum()
    }

    /// Sets the stages' memory of agent `c` at the start of a run.
    pub fn start(&self, seed: u64, c: usize, memory: &mut [u64]) {
        let mut stream = Key::new(seed, Purpose::Medium, u64::MAX).stream(c);
        let mut rest = memory;
        for channel in self.channels() {
            let (own, others) = rest.split_at_mut(channel.memory());
            channel.start(own, &mut stream);
            rest = others;
        }
    }

    /// The agent's end of one vector. The stages alter `x` in their order, then the codec encodes it into `bytes` (cleared first), with
    /// error feedback if the link has it. `decoded` becomes the vector that the server will decode. Error feedback stores the codec's
    /// error, without the stages' alterations. Returns whether there is a message; if the budget carries none, `decoded` is 0. `altered` is
    /// the message's stream for the stages' draws, shared by its parts.
    pub fn encode(
        &self,
        at: MessageKey,
        x: &[f64],
        altered: &mut Stream,
        feedback: &mut [f64],
        bytes: &mut Vec<u8>,
        decoded: &mut [f64],
    ) -> bool {
        bytes.clear();
        decoded.copy_from_slice(x);
        self.alterations().for_each(|alteration| alteration.alter(decoded, altered));
        let budget = self.budget().map(|b| b.draw(&mut at.stream(Purpose::Budget)));
        let carries = self.codec.encoded_len(x.len(), budget).is_some();
        let left = match feedback {
            [] => &mut [][..],
            all => &mut all[usize::from(at.exchange) * x.len()..][..x.len()],
        };
        left.iter_mut().zip(&*decoded).for_each(|(left, x)| *left += x);
        if !carries {
            decoded.fill(0.0);
            return false;
        }
        self.codec.encode(if left.is_empty() { &*decoded } else { &*left }, budget, &mut at.stream(Purpose::Codec), bytes);
        self.codec.decode(bytes, &mut at.stream(Purpose::Codec), decoded).expect("what was just encoded");
        left.iter_mut().zip(&*decoded).for_each(|(left, sent)| *left -= sent);
        true
    }

    /// The server's end: the factor by which a message arrives, 0 when it is lost.
    pub fn gain(&self, at: MessageKey, memory: &mut [u64]) -> f64 {
        if self.media.is_empty() {
            return 1.0;
        }
        let mut stream = at.stream(Purpose::Medium);
        let (mut gain, mut rest) = (1.0, memory);
        for channel in self.channels() {
            let (own, others) = rest.split_at_mut(channel.memory());
            gain *= channel.gain(own, &mut stream);
            rest = others;
        }
        gain
    }

    /// Whether a codec, a budget or another stage alters agents' messages.
    pub fn alters(&self) -> bool {
        !self.codec.is_exact() || self.alters_vectors() || self.budget().is_some() || self.secure_sum().is_some()
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

    /// Adds the receiver's noise to weighted sums over agents whose weights sum to `asked`.
    pub fn receive(&self, at: MessageKey, sums: &mut [&mut [f64]], agents: usize, asked: f64) {
        let noise = self.acts().find_map(|act| if let Act::AddsUp { receiver_noise, .. } = act { Some(receiver_noise) } else { None });
        if let Some(noise) = noise.filter(|noise| *noise > 0.0) {
            let (mut stream, std) = (at.stream(Purpose::Receiver), noise / agents as f64);
            sums.iter_mut().flat_map(|sum| sum.iter_mut()).for_each(|x| *x += asked * (std * stream.normal()));
        }
    }

    /// The number of bits that the link carries for vectors of d components in an exchange, if it has a budget. The agent knows it before
    /// it chooses what to send.
    pub fn allowance(&self, at: MessageKey, d: usize) -> Option<u64> {
        self.budget().map(|budget| u64::from(budget.draw(&mut at.stream(Purpose::Budget))) * d as u64)
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
