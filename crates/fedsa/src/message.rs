//! Messages between the halves of a method: named parts, and their bytes.
//!
//! On the wire, little endian:
//!
//! | what | type |
//! | --- | --- |
//! | version of the format | u8 |
//! | exchange | u8 |
//! | number of parts | u8 |
//! | round | u32 |
//! | agent: sender of a message up, recipient of a message down; `u32::MAX` for all agents | u32 |
//! | mark: see [`Envelope::mark`] | u32 |
//! | settings: hash of the settings of both ends | u64 |
//! | message at the end of an earlier round, if any: 127 u8, number of its parts u8, that round u32, its parts | |
//! | each part: tag u8, form u8, length u32, payload | |
//! | CRC-32 (IEEE 802.3) of all bytes before | u32 |
//!
//! The form of a part is the tag of its codec for numbers, [`SPARSE`] for sparse numbers, or [`PACKED`] for bytes that the method packed
//! itself (the length is then in bytes). Sparse numbers are their count as u32, the increasing indices as u32, then the values as f64.

mod part;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

pub use part::{Form, OutsidePart, Part, Unit};

use crate::error::Result;
use crate::random::{ALL, Stream};
use crate::uplink::codec::{self, Codec, malformed};

/// The content of a part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Body {
    /// All numbers, written out.
    Numbers(Vec<f64>),
    /// `len` numbers, which are zero except at these increasing indices.
    Sparse {
        /// The number of numbers, zeros included.
        len: u32,
        /// The indices of the nonzero numbers.
        index: Vec<u32>,
        /// The numbers at these indices.
        value: Vec<f64>,
    },
    /// Bytes that only the method's halves can read.
    Packed(Vec<u8>),
}

impl Body {
    /// `len` numbers that are 0 except at these increasing indices: sparse if that takes fewer bytes, otherwise written out.
    ///
    /// # Panics
    /// When there are more than 2^32 numbers.
    pub fn shorter(len: usize, index: Vec<u32>, value: Vec<f64>) -> Self {
        let body = Body::Sparse { len: u32::try_from(len).expect("a part has at most 2^32 numbers"), index, value };
        if body.payload_len() < 8 * len {
            return body;
        }
        let mut body = body;
        body.write_out();
        body
    }

    /// [`Body::shorter`] from all numbers.
    pub fn of_numbers(numbers: Vec<f64>) -> Self {
        let count = numbers.iter().filter(|x| **x != 0.0).count();
        if Body::shorter_len(numbers.len(), count) == 8 * numbers.len() || numbers.len() > u32::MAX as usize {
            return Body::Numbers(numbers);
        }
        let some = numbers.iter().enumerate().filter(|(_, x)| **x != 0.0).map(|(i, x)| (i as u32, *x));
        let (index, value) = some.unzip();
        Body::Sparse { len: numbers.len() as u32, index, value }
    }

    /// The payload bytes of [`Body::shorter`] for `len` numbers, `count` of them nonzero.
    pub fn shorter_len(len: usize, count: usize) -> usize {
        (8 * len).min(4 + 12 * count)
    }

    /// Whether indices of sparse numbers increase, lie below the length, and are as many as the numbers. Decoded bodies always are; bodies
    /// of a saved state need not be.
    pub fn is_sound(&self) -> bool {
        let Body::Sparse { len, index, value } = self else { return true };
        index.len() == value.len() && index.is_sorted_by(|a, b| a < b) && index.last().is_none_or(|i| i < len)
    }

    /// Writes sparse numbers out with their zeros.
    pub(crate) fn write_out(&mut self) {
        if let Body::Sparse { len, index, value } = self {
            let mut numbers = vec![0.0; *len as usize];
            index.iter().zip(value).for_each(|(i, x)| numbers[*i as usize] = *x);
            *self = Body::Numbers(numbers);
        }
    }

    /// The numbers, written out with their zeros; none for packed bytes.
    pub fn to_numbers(&self) -> Vec<f64> {
        let mut body = self.clone();
        body.write_out();
        body.numbers().unwrap_or_default().to_vec()
    }

    /// The number of numbers, zeros included; for packed bytes the number of bytes.
    pub fn len(&self) -> usize {
        match self {
            Body::Numbers(x) => x.len(),
            Body::Sparse { len, .. } => *len as usize,
            Body::Packed(bytes) => bytes.len(),
        }
    }

    /// Whether the length is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The numbers, if they are written out.
    pub fn numbers(&self) -> Option<&[f64]> {
        match self {
            Body::Numbers(x) => Some(x),
            _ => None,
        }
    }

    /// The first number that is infinite or NaN.
    pub fn not_finite(&self) -> Option<f64> {
        let numbers = match self {
            Body::Numbers(x) => x,
            Body::Sparse { value, .. } => value,
            Body::Packed(_) => return None,
        };
        // First all at once, which is vectorised: such numbers are rare.
        let are_finite = numbers.iter().fold(true, |all, x| all & x.is_finite());
        if are_finite { None } else { numbers.iter().copied().find(|x| !x.is_finite()) }
    }

    /// Writes the bytes of the payload without a codec.
    fn payload(&self, out: &mut Vec<u8>) {
        match self {
            Body::Numbers(x) => x.iter().for_each(|x| out.extend(x.to_le_bytes())),
            Body::Sparse { index, value, .. } => {
                out.extend((index.len() as u32).to_le_bytes());
                index.iter().for_each(|i| out.extend(i.to_le_bytes()));
                value.iter().for_each(|x| out.extend(x.to_le_bytes()));
            }
            Body::Packed(bytes) => out.extend(bytes),
        }
    }

    /// The number of bytes of [`Body::payload`].
    fn payload_len(&self) -> usize {
        match self {
            Body::Numbers(x) => 8 * x.len(),
            Body::Sparse { index, .. } => 4 + 12 * index.len(),
            Body::Packed(bytes) => bytes.len(),
        }
    }

    fn form(&self) -> u8 {
        match self {
            Body::Numbers(_) => codec::Exact.tag(),
            Body::Sparse { .. } => SPARSE,
            Body::Packed(_) => PACKED,
        }
    }
}

impl From<Vec<f64>> for Body {
    fn from(numbers: Vec<f64>) -> Self {
        Body::Numbers(numbers)
    }
}

/// The form of sparse numbers.
pub const SPARSE: u8 = 254;
/// The form of packed bytes.
pub const PACKED: u8 = 255;

/// Bytes of a message outside its parts: 23 before them and a checksum of 4 after them.
pub const HEADER_BYTES: usize = FRONT_BYTES + CHECKSUM_BYTES;
/// Bytes before the payload of a part.
pub const PART_HEADER_BYTES: usize = 6;
/// Bytes before the parts.
const FRONT_BYTES: usize = 23;
/// Bytes of the checksum.
const CHECKSUM_BYTES: usize = 4;
/// Rounds are numbered below this.
pub const MAX_ROUNDS: u64 = u32::MAX as u64 - 1;
/// The version of the byte format.
const VERSION: u8 = 3;
/// Stands in place of a part's tag before the message about an earlier round.
const TOLD: u8 = 127;

/// The agent and the federation that a message belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Envelope {
    /// The sender of a message up, or the recipient of a message down; [`ALL`] for all agents.
    pub agent: usize,
    /// The mark of the sender's state, if its state depends on which of its answers counted ([`crate::node`]); otherwise 0.
    pub mark: u32,
    /// The hash of the settings of both ends ([`crate::node::Federation::digest`]).
    pub settings: u64,
}

impl Default for Envelope {
    fn default() -> Self {
        Self { agent: ALL, mark: 0, settings: 0 }
    }
}

/// A message, up or down, with the round and exchange that it belongs to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// The round t.
    pub round: u64,
    /// The exchange within the round, from 0; [`TELL`] at the round's end.
    pub exchange: u8,
    /// The parts.
    pub parts: Vec<(Part, Body)>,
}

/// Whether an agent's last answer counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LastAnswer {
    /// The server counted it.
    Counted,
    /// The server did not count it, but an earlier one.
    Lost,
    /// The server has counted no answer of the agent.
    NoneCounts,
}

/// The exchange number of a message at a round's end, which agents do not answer.
pub const TELL: u8 = u8::MAX;

impl Message {
    /// A message of one part.
    pub fn one(round: u64, exchange: u8, part: Part, values: Vec<f64>) -> Self {
        Self { round, exchange, parts: vec![(part, Body::Numbers(values))] }
    }

    /// The hash of parts: SHA-256 of tag, form, length and content of each.
    pub(crate) fn hash(parts: &[(Part, Body)]) -> [u8; 32] {
        let mut all = Writer { bytes: vec![0; 3] };
        parts.iter().for_each(|(part, body)| all.body(*part, body));
        Sha256::digest(&all.bytes).into()
    }

    /// The content of a part, if the message has this part.
    pub fn find(&self, part: Part) -> Option<&Body> {
        self.parts.iter().find(|(p, _)| *p == part).map(|(_, body)| body)
    }

    /// The numbers of a part.
    ///
    /// # Panics
    /// When the part is absent, sparse or packed. The protocol of the method excludes this.
    pub fn part(&self, part: Part) -> &[f64] {
        let found = self.find(part).and_then(Body::numbers);
        found.unwrap_or_else(|| panic!("the message of round {} exchange {} has no numbers {part:?}", self.round, self.exchange))
    }

    /// The last round that counted an answer of the recipient, if the message says so ([`Part::Counted`]); `Some(None)` if no round did.
    /// Otherwise the recipient assumes that its last answer counted.
    pub fn counted(&self) -> Option<Option<u64>> {
        let said = self.find(Part::Counted).and_then(Body::numbers)?.first()?;
        Some((*said >= 0.0).then_some(*said as u64))
    }

    /// Whether the recipient's last answer, in round `answered`, counted according to this message.
    pub fn last_answer(&self, answered: Option<u64>) -> LastAnswer {
        match self.counted() {
            None => LastAnswer::Counted,
            Some(None) => LastAnswer::NoneCounts,
            // A message at the end of a round is about that round's answer, a question about the last one.
            Some(round) if self.exchange != TELL && round == answered => LastAnswer::Counted,
            Some(_) => LastAnswer::Lost,
        }
    }

    /// The bytes of this message. Parts that may be encoded pass `codec`.
    pub fn encode(&self, envelope: &Envelope, codec: &dyn Codec, stream: &mut Stream) -> Vec<u8> {
        let mut out = Writer::new(self.round, self.exchange, envelope);
        out.parts(&self.parts, codec, stream);
        out.finish()
    }

    /// The bytes of this question together with a message about an earlier round, if any. `open` gives the encoder's stream for a round and
    /// exchange; both are encoded as if sent alone.
    pub fn encode_after(
        &self,
        told: Option<&Message>,
        envelope: &Envelope,
        codec: &dyn Codec,
        open: impl Fn(u64, u8) -> Stream,
    ) -> Vec<u8> {
        let mut out = Writer::new(self.round, self.exchange, envelope);
        if let Some(told) = told {
            out.told(told, codec, &mut open(told.round, told.exchange));
        }
        out.parts(&self.parts, codec, &mut open(self.round, self.exchange));
        out.finish()
    }

    /// The length of [`Message::encode`], without encoding.
    pub fn encoded_len(&self, codec: &dyn Codec) -> usize {
        let part = |(part, body): &(Part, Body)| match body {
            Body::Numbers(x) if part.may_be_encoded() => codec.encoded_len(x.len(), None).expect("there is no budget"),
            body => body.payload_len(),
        };
        HEADER_BYTES + self.parts.iter().map(|p| PART_HEADER_BYTES + part(p)).sum::<usize>()
    }

    /// The number of bytes that this message adds to the question with which it travels.
    pub(crate) fn joined_len(&self, codec: &dyn Codec) -> usize {
        self.encoded_len(codec) - HEADER_BYTES + PART_HEADER_BYTES
    }

    /// Reads the front of a message: its envelope, round, exchange and number of parts.
    ///
    /// # Errors
    /// When the bytes are damaged or not a message of this version.
    pub fn front(bytes: &[u8]) -> Result<Front<'_>> {
        let Some((text, checksum)) = bytes.split_last_chunk::<CHECKSUM_BYTES>() else { return Err(malformed("too short")) };
        let Some((front, rest)) = text.split_first_chunk::<FRONT_BYTES>() else { return Err(malformed("too short")) };
        if crc32fast::hash(text) != u32::from_le_bytes(*checksum) {
            return Err(malformed("damaged on its way: its checksum does not match"));
        }
        if front[0] != VERSION {
            return Err(malformed(format!("format version {}", front[0])));
        }
        let word = |at: usize| u32::from_le_bytes(front[at..at + 4].try_into().expect("four bytes"));
        let (exchange, round, agent) = (front[1], u64::from(word(3)), word(7));
        if round >= MAX_ROUNDS {
            return Err(malformed(format!("round {round}, of at most {MAX_ROUNDS}")));
        }
        let agent = if agent == u32::MAX { ALL } else { agent as usize };
        let settings = u64::from_le_bytes(front[15..].try_into().expect("eight bytes"));
        let envelope = Envelope { agent, mark: word(11), settings };
        Ok(Front { envelope, round, exchange, parts: usize::from(front[2]), rest })
    }

    /// The checksum of a message's bytes: the four at their end. (The CRC of all bytes is the same for every message.)
    pub(crate) fn checksum(bytes: &[u8]) -> u32 {
        bytes.last_chunk().map_or(0, |checksum| u32::from_le_bytes(*checksum))
    }

    /// Decodes a message with parts of at most `longest` numbers or bytes; `open` gives the encoder's stream for a round and exchange.
    ///
    /// # Errors
    /// When the bytes are damaged or not a message of this version made with `codec`.
    pub fn decode(bytes: &[u8], codec: &dyn Codec, longest: usize, open: impl Fn(u64, u8) -> Stream) -> Result<(Envelope, Self)> {
        let front = Self::front(bytes)?;
        Ok((front.envelope, front.message(codec, longest, &[], open)?))
    }
}

/// The front of a message, and the bytes of its parts.
#[derive(Debug, Clone, Copy)]
pub struct Front<'a> {
    /// The agent and the federation.
    pub envelope: Envelope,
    /// The round.
    pub round: u64,
    /// The exchange.
    pub exchange: u8,
    /// The number of parts.
    pub parts: usize,
    rest: &'a [u8],
}

impl Front<'_> {
    /// The message, as by [`Message::decode`]; `outside` are the allowed parts of other crates.
    ///
    /// # Errors
    /// When the parts were not made with `codec`.
    pub fn message(&self, codec: &dyn Codec, longest: usize, outside: &[Part], open: impl Fn(u64, u8) -> Stream) -> Result<Message> {
        let mut reader = Reader { rest: self.rest, codec, longest, outside };
        self.question(&mut reader, open)
    }

    /// The question, and the message about an earlier round with it, if any.
    ///
    /// # Errors
    /// As [`Front::message`], and when that message is not about an earlier round.
    pub fn messages(
        &self,
        codec: &dyn Codec,
        longest: usize,
        outside: &[Part],
        open: impl Fn(u64, u8) -> Stream,
    ) -> Result<(Option<Message>, Message)> {
        let mut reader = Reader { rest: self.rest, codec, longest, outside };
        let told = reader.told(&open)?;
        if told.as_ref().is_some_and(|told| told.round >= self.round) {
            return Err(malformed("what is told is of no earlier round"));
        }
        Ok((told, self.question(&mut reader, open)?))
    }

    fn question(&self, reader: &mut Reader<'_>, open: impl Fn(u64, u8) -> Stream) -> Result<Message> {
        let Front { round, exchange, .. } = *self;
        let mut stream = open(round, exchange);
        let parts = (0..self.parts).map(|_| reader.part(&mut stream)).collect::<Result<_>>()?;
        if reader.rest.is_empty() { Ok(Message { round, exchange, parts }) } else { Err(malformed("bytes after the last part")) }
    }
}

/// Reads parts of messages.
struct Reader<'a> {
    rest: &'a [u8],
    codec: &'a dyn Codec,
    longest: usize,
    outside: &'a [Part],
}

impl Reader<'_> {
    /// The message about an earlier round before a question's parts.
    fn told(&mut self, open: impl Fn(u64, u8) -> Stream) -> Result<Option<Message>> {
        let Some(([TOLD, count, round @ ..], after)) = self.rest.split_first_chunk::<PART_HEADER_BYTES>() else { return Ok(None) };
        let (round, count) = (u64::from(u32::from_le_bytes(*round)), *count);
        self.rest = after;
        let mut stream = open(round, TELL);
        let parts = (0..count).map(|_| self.part(&mut stream)).collect::<Result<_>>()?;
        Ok(Some(Message { round, exchange: TELL, parts }))
    }

    /// The next part.
    fn part(&mut self, stream: &mut Stream) -> Result<(Part, Body)> {
        let Self { rest, codec, longest, outside } = *self;
        let Some((head, payload)) = rest.split_first_chunk::<PART_HEADER_BYTES>() else { return Err(malformed("a part is cut off")) };
        let part = Part::of_tag(head[0], outside).ok_or_else(|| malformed(format!("part {}", head[0])))?;
        let len = u32::from_le_bytes(head[2..].try_into().expect("four bytes")) as usize;
        // The number of bytes does not limit the length of sparse numbers.
        if len > longest {
            return Err(malformed(format!("a part of length {len} where at most {longest} is wanted")));
        }
        let (body, after) = match head[1] {
            SPARSE => sparse(len, payload)?,
            PACKED => {
                let (packed, after) = payload.split_at_checked(len).ok_or_else(|| malformed("packed bytes are cut off"))?;
                (Body::Packed(packed.to_vec()), after)
            }
            tag => {
                let codec = if part.may_be_encoded() { codec } else { &codec::Exact };
                if tag != codec.tag() {
                    return Err(malformed(format!("codec {tag} where {} was agreed", codec.tag())));
                }
                if codec.min_len(len) > payload.len() {
                    return Err(malformed(format!("{} bytes for {len} numbers", payload.len())));
                }
                let mut values = vec![0.0; len];
                let used = codec.decode(payload, stream, &mut values)?;
                (Body::Numbers(values), &payload[used..])
            }
        };
        self.rest = after;
        Ok((part, body))
    }
}

/// The sparse numbers at the start of `payload`, and the bytes after them.
fn sparse(len: usize, payload: &[u8]) -> Result<(Body, &[u8])> {
    let cut = || malformed("sparse numbers are cut off");
    let (count, rest) = payload.split_first_chunk::<4>().ok_or_else(cut)?;
    let count = u32::from_le_bytes(*count) as usize;
    if count > len {
        return Err(malformed(format!("{count} of {len} numbers")));
    }
    let (indices, rest) = rest.split_at_checked(4 * count).ok_or_else(cut)?;
    let (values, rest) = rest.split_at_checked(8 * count).ok_or_else(cut)?;
    let index: Vec<u32> = indices.chunks_exact(4).map(|b| u32::from_le_bytes(b.try_into().expect("four bytes"))).collect();
    let value = values.chunks_exact(8).map(|b| f64::from_le_bytes(b.try_into().expect("eight bytes"))).collect();
    if !index.is_sorted_by(|a, b| a < b) || index.last().is_some_and(|i| *i as usize >= len) {
        return Err(malformed(format!("indices that do not increase, or not below {len}")));
    }
    Ok((Body::Sparse { len: len as u32, index, value }, rest))
}

/// Writes the bytes of a message.
pub(crate) struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// The bytes before the parts.
    pub fn new(round: u64, exchange: u8, envelope: &Envelope) -> Self {
        let round = u32::try_from(round).expect("rounds are limited to u32");
        let agent = if envelope.agent == ALL { u32::MAX } else { u32::try_from(envelope.agent).expect("fewer agents than 2^32") };
        let mut bytes = vec![VERSION, exchange, 0];
        bytes.extend(round.to_le_bytes());
        bytes.extend(agent.to_le_bytes());
        bytes.extend(envelope.mark.to_le_bytes());
        bytes.extend(envelope.settings.to_le_bytes());
        Self { bytes }
    }

    /// Writes the head of a part. The caller appends the payload to the returned bytes.
    pub fn part(&mut self, part: Part, form: u8, len: usize) -> &mut Vec<u8> {
        self.bytes[2] += 1;
        self.bytes.extend([part.tag(), form]);
        self.bytes.extend((len as u32).to_le_bytes());
        &mut self.bytes
    }

    /// The parts of a message; those that may be encoded pass `codec`.
    fn parts(&mut self, parts: &[(Part, Body)], codec: &dyn Codec, stream: &mut Stream) {
        for (part, body) in parts {
            match body {
                Body::Numbers(x) if part.may_be_encoded() => {
                    let bytes = self.part(*part, codec.tag(), x.len());
                    codec.encode(x, None, stream, bytes);
                }
                body => self.body(*part, body),
            }
        }
    }

    /// A message about an earlier round, before a question's parts and not counted among them.
    fn told(&mut self, told: &Message, codec: &dyn Codec, stream: &mut Stream) {
        let round = u32::try_from(told.round).expect("rounds are limited to u32");
        self.bytes.extend([TOLD, told.parts.len() as u8]);
        self.bytes.extend(round.to_le_bytes());
        self.parts(&told.parts, codec, stream);
        self.bytes[2] = 0;
    }

    /// A part without a codec.
    pub fn body(&mut self, part: Part, body: &Body) {
        body.payload(self.part(part, body.form(), body.len()));
    }

    /// The whole message.
    pub fn finish(mut self) -> Vec<u8> {
        let checksum = crc32fast::hash(&self.bytes);
        self.bytes.extend(checksum.to_le_bytes());
        self.bytes
    }
}
