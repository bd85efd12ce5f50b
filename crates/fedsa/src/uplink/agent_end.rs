//! The agent's end of a link, where answers are made: the budget, the codec and error feedback.

use super::{MessageKey, Uplink};
use crate::message::{Body, Envelope, HEADER_BYTES, Message, PART_HEADER_BYTES, Part, Writer};
use crate::protocol::are_finite;
use crate::random::{Purpose, Stream};
use crate::secure::{SumGrid, WORD_COUNT};

/// The agent's end of a link in one exchange. The engine and client nodes make every answer here.
pub(crate) struct AgentEnd<'a> {
    /// The link.
    pub uplink: &'a Uplink,
    /// The round, the exchange and the agent.
    pub at: MessageKey,
    /// The agent's stored errors (error feedback), [`Uplink::feedback_len`] numbers.
    pub feedback: &'a mut [f64],
    /// The grid of secure sums and the agent's weight `p_c`, if the link has them.
    pub grid: Option<(SumGrid, f64)>,
}

/// An answer on the grid of secure sums.
pub(crate) struct OnGrid {
    /// The parts, as shares in a sum over the agent's weight.
    pub parts: Vec<(Part, Body)>,
    /// Their integers of w bits, in the order of the parts, and the number of clipped numbers.
    pub words: Vec<u64>,
}

/// An answer as it leaves an agent.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Answer {
    /// A message.
    Sent {
        /// The parts as the server will decode them.
        parts: Vec<(Part, Body)>,
        /// The number of bytes on the wire.
        len: usize,
        /// The bytes, if requested or needed to compute `parts`.
        bytes: Vec<u8>,
    },
    /// No message: the link's budget does not carry it.
    NotCarried,
    /// A message without numbers, because the agent's numbers are no longer finite.
    Diverged {
        /// The number of bytes on the wire.
        len: usize,
        /// The bytes, if requested.
        bytes: Vec<u8>,
    },
}

impl Answer {
    /// Over a link that alters messages: the parts that the server will decode, or `Some(None)` if the budget carried no message. `None`
    /// over other links, and if the agent's numbers are no longer finite.
    pub fn altered(&self, uplink: &Uplink) -> Option<Option<&[(Part, Body)]>> {
        match self {
            _ if !uplink.alters() => None,
            Answer::Sent { parts, .. } => Some(Some(parts)),
            Answer::NotCarried => Some(None),
            Answer::Diverged { .. } => None,
        }
    }

    /// The bytes of the message, if there is one.
    pub fn into_bytes(self) -> Option<Vec<u8>> {
        match self {
            Answer::Sent { bytes, .. } | Answer::Diverged { bytes, .. } => Some(bytes),
            Answer::NotCarried => None,
        }
    }
}

impl AgentEnd<'_> {
    /// The number of bits that the link carries for vectors of d components in this exchange, if it has a budget. The agent
    /// knows it before it chooses what to send.
    pub fn allowance(&self, d: usize) -> Option<u64> {
        self.uplink.allowance(self.at, d)
    }

    /// Sends one vector: writes its payload into `bytes` and the vector that the server will decode into `decoded`, both reused. Returns
    /// the number of bytes on the wire, or `None` if the budget carries no message; `decoded` is then 0. Over a link that alters nothing
    /// `bytes` is not written.
    pub fn send_vector(&mut self, x: &[f64], bytes: &mut Vec<u8>, decoded: &mut [f64]) -> Option<u64> {
        if let Some((grid, _)) = self.grid {
            let mut altered = self.at.stream(Purpose::Altered);
            return self.put_on_grid(x, true, &mut altered, decoded).map(|_| grid.masked_len(x.len()) as u64);
        }
        let payload = if self.uplink.alters() {
            let mut altered = self.at.stream(Purpose::Altered);
            self.uplink.encode(self.at, x, &mut altered, self.feedback, bytes, decoded).then_some(bytes.len())?
        } else {
            decoded.copy_from_slice(x);
            8 * x.len()
        };
        Some((HEADER_BYTES + PART_HEADER_BYTES + payload) as u64)
    }

    /// Sends the parts of an answer. Parts that may be encoded pass the codec, with error feedback for parts of d numbers. Bytes are made
    /// if `envelope` is given or the link alters messages; otherwise their number is known without them.
    pub fn send(&mut self, parts: Vec<(Part, Body)>, envelope: Option<&Envelope>) -> Answer {
        let MessageKey { round, exchange, .. } = self.at;
        if let Some((grid, _)) = self.grid {
            let Some(OnGrid { parts, words }) = self.on_grid(parts) else { return Answer::NotCarried };
            return Answer::Sent { parts, len: grid.masked_len(words.len() - WORD_COUNT), bytes: Vec::new() };
        }
        if !are_finite(&parts) {
            let bytes = envelope.map_or(Vec::new(), |envelope| without_numbers(Part::Diverged, round, exchange, envelope));
            return Answer::Diverged { len: HEADER_BYTES + PART_HEADER_BYTES, bytes };
        }
        if envelope.is_none() && !self.uplink.alters() {
            let message = Message { round, exchange, parts };
            let len = message.encoded_len(&*self.uplink.codec);
            return Answer::Sent { parts: message.parts, len, bytes: Vec::new() };
        }
        let mut writer = Writer::new(round, exchange, envelope.unwrap_or(&Envelope::default()));
        let Some(parts) = self.write(parts, &mut writer) else { return Answer::NotCarried };
        let bytes = writer.finish();
        Answer::Sent { parts, len: bytes.len(), bytes }
    }

    /// The parts on the grid of secure sums; `None` if numbers are not finite.
    pub fn on_grid(&mut self, mut parts: Vec<(Part, Body)>) -> Option<OnGrid> {
        let (grid, weight) = self.grid?;
        let (mut altered, mut words, mut clipped) = (self.at.stream(Purpose::Altered), Vec::new(), 0);
        for (part, body) in &mut parts {
            body.write_out();
            let Body::Numbers(x) = body else { return None };
            let mut share = vec![0.0; x.len()];
            clipped += self.put_on_grid(x, part.may_be_encoded(), &mut altered, &mut share)?;
            words.extend(share.iter().map(|x| grid.word(grid.integer(weight, *x))));
            *x = share;
        }
        words.push(clipped & grid.largest_word());
        Some(OnGrid { parts, words })
    }

    /// Writes to `kept` the numbers x after the stages' alterations (if `is_altered`) and error feedback, as the grid has them: shares of
    /// the sum over the agent's weight. Returns how many were clipped; `None` if one is not finite, and `kept` is then 0.
    fn put_on_grid(&mut self, x: &[f64], is_altered: bool, altered: &mut Stream, kept: &mut [f64]) -> Option<u64> {
        let Self { uplink, at, feedback, grid } = self;
        let (grid, weight) = (*grid)?;
        kept.copy_from_slice(x);
        let mut left = &mut [][..];
        if is_altered {
            uplink.alterations().for_each(|alteration| alteration.alter(kept, altered));
            if !feedback.is_empty() {
                left = &mut feedback[usize::from(at.exchange) * x.len()..][..x.len()];
            }
        }
        kept.iter_mut().zip(&*left).for_each(|(kept, left)| *kept += left);
        if !kept.iter().all(|x| x.is_finite()) {
            kept.fill(0.0);
            return None;
        }
        left.copy_from_slice(&kept[..left.len()]);
        let clipped = grid.shorten(kept);
        kept.iter_mut().for_each(|x| *x = grid.share(weight, *x) / weight);
        left.iter_mut().zip(&*kept).for_each(|(left, kept)| *left -= kept);
        Some(clipped)
    }

    /// Writes the parts, and returns them as the server will decode them; `None` if the budget carries no message.
    fn write(&mut self, mut parts: Vec<(Part, Body)>, writer: &mut Writer) -> Option<Vec<(Part, Body)>> {
        let Self { uplink, at, feedback, .. } = self;
        let (alters, mut altered) = (uplink.alters(), at.stream(Purpose::Altered));
        for (part, body) in &mut parts {
            if part.may_be_encoded() && alters {
                body.write_out();
            }
            match body {
                Body::Numbers(x) if part.may_be_encoded() && !alters => {
                    let payload = writer.part(*part, uplink.codec.tag(), x.len());
                    uplink.codec.encode(x, None, &mut at.stream(Purpose::Codec), payload);
                }
                Body::Numbers(x) if part.may_be_encoded() => {
                    let (mut payload, mut decoded) = (Vec::new(), vec![0.0; x.len()]);
                    if !uplink.encode(*at, x, &mut altered, feedback, &mut payload, &mut decoded) {
                        return None;
                    }
                    writer.part(*part, uplink.codec.tag(), x.len()).extend(payload);
                    *x = decoded;
                }
                body => writer.body(*part, body),
            }
        }
        Some(parts)
    }
}

/// The bytes of an answer that consists of one part without numbers.
pub(crate) fn without_numbers(part: Part, round: u64, exchange: u8, envelope: &Envelope) -> Vec<u8> {
    let mut writer = Writer::new(round, exchange, envelope);
    writer.body(part, &Body::Numbers(Vec::new()));
    writer.finish()
}
