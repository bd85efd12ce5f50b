//! Messages between the halves of a method: named parts, and their bytes.
//!
//! On the wire (little endian): version u8, exchange u8, parts u8, round u32,
//! then for each part: tag u8, codec u8, length u32, payload.

use crate::error::Result;
use crate::random::Stream;
use crate::uplink::codec::{self, Codec, malformed};

/// What a part of a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Part {
    /// The server's iterate `theta_t`; d numbers.
    Model = 1,
    /// A direction `v_c = (theta_{c,H} - theta_t) / E`, or the mean of several; d numbers.
    Direction = 2,
    /// An operator's value `g_c(theta_t, z)`, or the mean of several; d numbers.
    Operator = 3,
    /// Whether the agent's message of this round arrived: 1 or 0, one number.
    Arrived = 4,
    /// The last round whose mean has the agent's answer, -1 for none, one number; with a question, where that is
    /// not the round before.
    Included = 5,
}

impl Part {
    const ALL: [Part; 5] = [Part::Model, Part::Direction, Part::Operator, Part::Arrived, Part::Included];

    /// Whether a codec may alter it; the others travel exactly.
    pub fn may_be_encoded(self) -> bool {
        !matches!(self, Part::Arrived | Part::Included)
    }
}

/// Bytes before the parts.
pub const HEADER_BYTES: usize = 7;
/// Bytes before the payload of a part.
pub const PART_HEADER_BYTES: usize = 6;
/// The version of the byte format.
const VERSION: u8 = 1;

/// A message, up or down. It says which round and exchange it belongs to.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// The round t.
    pub round: u64,
    /// The exchange within the round, from 0; [`TELL`] at the round's end.
    pub exchange: u8,
    /// The parts.
    pub parts: Vec<(Part, Vec<f64>)>,
}

/// The exchange number of what is told at a round's end and not answered.
pub const TELL: u8 = u8::MAX;

impl Message {
    /// A message of one part.
    pub fn one(round: u64, exchange: u8, part: Part, values: Vec<f64>) -> Self {
        Self { round, exchange, parts: vec![(part, values)] }
    }

    /// The values of a part.
    ///
    /// # Panics
    /// When it is absent: the halves of a method agree on what they send.
    pub fn part(&self, part: Part) -> &[f64] {
        let found = self.parts.iter().find(|(p, _)| *p == part);
        &found.unwrap_or_else(|| panic!("the message of round {} exchange {} has no {part:?}", self.round, self.exchange)).1
    }

    /// The bytes of a message of one part of `n` numbers, given what `codec` made of them.
    pub(crate) fn around(round: u64, exchange: u8, part: Part, codec: &dyn Codec, n: usize, payload: &[u8]) -> Vec<u8> {
        let mut out = Self { round, exchange, parts: vec![(part, Vec::new())] }.header();
        part_header(part, codec, n, &mut out);
        out.extend(payload);
        out
    }

    /// The bytes of this message, each part through `codec` where it may be.
    pub fn encode(&self, codec: &dyn Codec, stream: &mut Stream) -> Vec<u8> {
        let mut out = self.header();
        for (part, values) in &self.parts {
            let codec = if part.may_be_encoded() { codec } else { &codec::Exact };
            part_header(*part, codec, values.len(), &mut out);
            codec.encode(values, None, stream, &mut out);
        }
        out
    }

    /// The number of bytes of [`Message::encode`], without making them.
    pub fn encoded_len(&self, codec: &dyn Codec) -> usize {
        let part = |(part, values): &(Part, Vec<f64>)| {
            let codec = if part.may_be_encoded() { codec } else { &codec::Exact };
            PART_HEADER_BYTES + codec.encoded_len(values.len(), None).expect("there is no budget")
        };
        HEADER_BYTES + self.parts.iter().map(part).sum::<usize>()
    }

    /// The bytes before the parts.
    fn header(&self) -> Vec<u8> {
        let round = u32::try_from(self.round).expect("rounds are limited to u32");
        let mut out = vec![VERSION, self.exchange, self.parts.len() as u8];
        out.extend(round.to_le_bytes());
        out
    }

    /// The message that bytes hold, of parts of at most `longest` numbers; `open` gives the
    /// encoder's stream for a round and exchange.
    ///
    /// # Errors
    /// When the bytes are not a message of this version made with `codec`.
    pub fn decode(bytes: &[u8], codec: &dyn Codec, longest: usize, open: impl Fn(u64, u8) -> Stream) -> Result<Self> {
        let Some((header, mut rest)) = bytes.split_at_checked(HEADER_BYTES) else { return Err(malformed("too short")) };
        if header[0] != VERSION {
            return Err(malformed(format!("format version {}", header[0])));
        }
        let round = u64::from(u32::from_le_bytes(header[3..7].try_into().expect("four bytes")));
        let mut stream = open(round, header[1]);
        let mut parts = Vec::new();
        for _ in 0..header[2] {
            let Some((head, payload)) = rest.split_at_checked(PART_HEADER_BYTES) else { return Err(malformed("a part is cut off")) };
            let part = Part::ALL.into_iter().find(|p| *p as u8 == head[0]).ok_or_else(|| malformed(format!("part {}", head[0])))?;
            let codec = if part.may_be_encoded() { codec } else { &codec::Exact };
            if head[1] != codec.tag() {
                return Err(malformed(format!("codec {} where {} was agreed", head[1], codec.tag())));
            }
            let len = u32::from_le_bytes(head[2..6].try_into().expect("four bytes")) as usize;
            // A sparse codec's bytes justify no length by themselves.
            if len > longest {
                return Err(malformed(format!("a part of {len} numbers where at most {longest} are wanted")));
            }
            if codec.min_len(len) > payload.len() {
                return Err(malformed(format!("{} bytes for {len} numbers", payload.len())));
            }
            let mut values = vec![0.0; len];
            let used = codec.decode(payload, &mut stream, &mut values)?;
            rest = &payload[used..];
            parts.push((part, values));
        }
        if rest.is_empty() { Ok(Self { round, exchange: header[1], parts }) } else { Err(malformed("bytes after the last part")) }
    }
}

/// The bytes before the payload of a part.
fn part_header(part: Part, codec: &dyn Codec, len: usize, out: &mut Vec<u8>) {
    out.extend([part as u8, codec.tag()]);
    out.extend((len as u32).to_le_bytes());
}
