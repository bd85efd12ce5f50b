//! The protocol of a method: the messages between its halves in a round.
//!
//! A method builds one [`Protocol`]. It is the basis of checks of links ([`crate::method::check_link`]), of nodes' checks of messages from
//! a network ([`Protocol::check_down`], [`Protocol::check_answer`]), and of the engine's sums.

use crate::error::{Error, Result};
use crate::message::{Body, Form, Message, Part, TELL};
use crate::secure::{KEY_BYTES, WORD_COUNT};
use crate::uplink::codec::bits::packed_len;

/// The length of a part, in numbers, or in bytes if the method packs it itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Len {
    /// Exactly this length.
    Exactly(usize),
    /// This length or less.
    AtMost(usize),
}

impl Len {
    pub fn largest(self) -> usize {
        let (Len::Exactly(n) | Len::AtMost(n)) = self;
        n
    }

    fn fits(self, n: usize) -> bool {
        match self {
            Len::Exactly(len) => n == len,
            Len::AtMost(len) => n <= len,
        }
    }
}

/// The form in which the server needs a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gather {
    /// The weighted sum over agents is enough.
    Sum,
    /// The part of each agent is needed.
    Each,
}

/// A part of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplySpec {
    /// The part.
    pub part: Part,
    /// Its length.
    pub len: Len,
    /// Whether a sum is enough.
    pub gather: Gather,
}

/// One exchange: a message to some agents, and their answers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Exchange {
    /// The parts that all recipients get.
    pub down: Vec<(Part, Len)>,
    /// The parts that some recipients get in addition, each with its own content.
    pub own: Vec<(Part, Len)>,
    /// The parts of an answer, in order.
    pub replies: Vec<ReplySpec>,
    /// Whether a round may begin with this exchange, as it always may with the first.
    pub may_open: bool,
}

/// The exchanges of a method's rounds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Protocol {
    /// The exchanges in order. A round may end after any of them.
    pub exchanges: Vec<Exchange>,
    /// The parts of the message at a round's end, which agents do not answer; no message if empty.
    pub tell: Vec<(Part, Len)>,
    /// The parts that some recipients of this message get in addition, each with its own content.
    pub tell_own: Vec<(Part, Len)>,
    /// Whether rounds ask for operators ahead of the iterate, at a point that it does not become (Nesterov's method).
    pub asks_ahead: bool,
    /// Over a link with secure sums: how answers are masked, and the exchange that follows each one and unmasks its sum.
    pub masks: Option<Masks>,
}

/// Secure sums on the wire. An exchange e has masked answers; the exchange with the number [`UNMASKING`]` + e` unmasks their sum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Masks {
    /// The bits of each number.
    pub bits: u32,
    /// The second exchange: the agents that answered down, seeds of masks up.
    pub unmasking: Exchange,
}

/// The number of an exchange's unmasking is higher by this number.
pub const UNMASKING: u8 = 64;

impl Masks {
    /// Masks of N agents' numbers of `bits` bits.
    pub fn new(bits: u32, agents: usize) -> Self {
        let want = |part, most| ReplySpec { part, len: Len::AtMost(most), gather: Gather::Each };
        let down = vec![(Part::Answered, Len::Exactly(agents.div_ceil(8)))];
        let replies = vec![want(Part::Seeds, KEY_BYTES + agents * (4 + KEY_BYTES))];
        Self { bits, unmasking: Exchange { down, replies, ..Exchange::default() } }
    }
}

/// The exchange whose sum an exchange is about: its own number, or that of the masked exchange.
pub fn masked_exchange(exchange: u8) -> u8 {
    if is_unmasking(exchange) { exchange - UNMASKING } else { exchange }
}

/// Whether this is the number of an exchange that unmasks a sum.
pub fn is_unmasking(exchange: u8) -> bool {
    (UNMASKING..2 * UNMASKING).contains(&exchange)
}

impl Protocol {
    /// Whether the first answers of every round are operators, gradients or systems at the iterate, or at a point that becomes it if it is
    /// accepted. A first round may instead ask for systems of another policy, which measure nothing.
    pub fn measures_iterates(&self) -> bool {
        let Some((first, later)) = self.exchanges.split_first() else { return false };
        let is_at = |part: Part| first.down.iter().any(|(down, _)| *down == part);
        let is_exact = |part: Part| match part {
            Part::Operator | Part::Gradient | Part::ExactGradient => is_at(Part::Model),
            part => part == Part::System,
        };
        // Such rounds go on from gradients of the round before, or build a space of products.
        let is_other = |want: &ReplySpec| matches!(want.part, Part::Direction | Part::Product);
        let opens_otherwise = later.iter().any(|exchange| exchange.may_open && exchange.replies.iter().any(is_other));
        first.replies.iter().any(|want| is_exact(want.part)) && !opens_otherwise && !self.asks_ahead
    }

    /// One exchange: a model of d numbers down, a direction of d numbers up.
    pub fn directions(d: usize, gather: Gather) -> Self {
        let want = ReplySpec { part: Part::Direction, len: Len::Exactly(d), gather };
        let exchange = Exchange { down: vec![(Part::Model, Len::Exactly(d))], own: Vec::new(), replies: vec![want], may_open: false };
        Self { exchanges: vec![exchange], ..Self::default() }
    }

    /// Two exchanges: a model down and operators up, then their mean down and directions up.
    pub fn operators_then_directions(d: usize, gather: Gather) -> Self {
        let len = Len::Exactly(d);
        let exchange = |down, part, gather| Exchange {
            down: vec![(down, len)],
            own: Vec::new(),
            replies: vec![ReplySpec { part, len, gather }],
            may_open: false,
        };
        let exchanges = vec![exchange(Part::Model, Part::Operator, gather), exchange(Part::Operator, Part::Direction, Gather::Sum)];
        Self { exchanges, ..Self::default() }
    }

    /// An exchange by its number.
    pub fn exchange(&self, exchange: u8) -> Option<&Exchange> {
        match &self.masks {
            Some(masks) if is_unmasking(exchange) => self.exchange(masked_exchange(exchange)).map(|_| &masks.unmasking),
            _ => self.exchanges.get(usize::from(exchange)),
        }
    }

    /// The number of summed numbers in an answer to an exchange.
    pub fn summed_len(&self, exchange: u8) -> usize {
        self.wanted(exchange).iter().map(|want| want.len.largest()).sum()
    }

    /// The length in bytes of a masked answer to an exchange; `None` without masks, and for the exchange that unmasks.
    pub(crate) fn masked_len(&self, exchange: u8) -> Option<usize> {
        let masks = self.masks.as_ref().filter(|_| !is_unmasking(exchange))?;
        Some(packed_len(self.summed_len(exchange) + WORD_COUNT, masks.bits))
    }

    /// The parts that the server wants in the answers to an exchange.
    pub fn wanted(&self, exchange: u8) -> &[ReplySpec] {
        self.exchange(exchange).map_or(&[], |exchange| &exchange.replies)
    }

    /// Whether the server needs some part of each agent in an exchange.
    pub fn wants_each(&self, exchange: u8) -> bool {
        self.wanted(exchange).iter().any(|want| want.gather == Gather::Each)
    }

    /// Whether the server needs some part of each agent in any exchange.
    pub fn wants_each_anywhere(&self) -> bool {
        (0..self.exchanges.len()).any(|e| self.wants_each(e as u8))
    }

    /// Whether the agents' state depends on which of their answers to an exchange counted. An agent assumes that its last such answer
    /// counted, unless a message says otherwise ([`Part::Counted`]): its next question of such an exchange, or the message at the end of
    /// the round if the method has one.
    pub fn is_acknowledged(&self, exchange: u8) -> bool {
        match self.exchange(exchange) {
            Some(_) if says_what_counted(&self.tell_own) => usize::from(exchange) + 1 == self.exchanges.len(),
            Some(exchange) => says_what_counted(&exchange.own),
            None => false,
        }
    }

    /// Whether any exchange is acknowledged.
    pub(crate) fn acknowledges(&self) -> bool {
        (0..self.exchanges.len()).any(|e| self.is_acknowledged(e as u8))
    }

    /// Whether messages with this number ([`TELL`] included) say which of an agent's answers counted last.
    pub(crate) fn tells_what_counted(&self, exchange: u8) -> bool {
        match exchange {
            TELL => says_what_counted(&self.tell_own),
            _ => self.exchange(exchange).is_some_and(|exchange| says_what_counted(&exchange.own)),
        }
    }

    /// Whether answers may depend on the server's messages: false if its questions have no content. An answer to an older question then
    /// also answers the present one.
    pub fn depends_on_model(&self) -> bool {
        self.exchanges.iter().any(|exchange| !exchange.down.is_empty() || !exchange.own.is_empty())
    }

    /// Whether a codec may alter some part of an answer, and a link's budget applies to it.
    pub fn encodes(&self) -> bool {
        self.exchanges.iter().flat_map(|exchange| &exchange.replies).any(|want| want.part.may_be_encoded())
    }

    /// The length of the longest answer, in numbers or bytes.
    pub fn largest_answer(&self) -> usize {
        let answer = |exchange: &Exchange| exchange.replies.iter().map(|want| want.len.largest()).sum();
        self.exchanges.iter().map(answer).max().unwrap_or(0)
    }

    /// The length of the longest part, in numbers or bytes.
    pub fn longest(&self) -> usize {
        let down = self.exchanges.iter().flat_map(|e| e.down.iter().chain(&e.own));
        let told = self.tell.iter().chain(&self.tell_own);
        let masked = (0..self.exchanges.len()).filter_map(|e| self.masked_len(e as u8)).map(Len::Exactly);
        let unmasking = self
            .masks
            .iter()
            .flat_map(|masks| masks.unmasking.down.iter().map(|(_, len)| *len))
            .chain(self.masks.iter().flat_map(|masks| &masks.unmasking.replies).map(|want| want.len));
        let up = self.exchanges.iter().flat_map(|e| &e.replies).map(|want| want.len).chain(masked).chain(unmasking);
        down.chain(told).map(|(_, len)| *len).chain(up).map(Len::largest).max().unwrap_or(0)
    }

    /// The largest number of parts of a message.
    pub fn most_parts(&self) -> usize {
        let exchange = |e: &Exchange| (e.down.len() + e.own.len()).max(e.replies.len());
        // A server node may add a control variate.
        1 + self.exchanges.iter().map(exchange).max().unwrap_or(0).max(self.tell.len() + self.tell_own.len())
    }

    /// All parts that messages of the method may have.
    fn parts(&self) -> impl Iterator<Item = Part> {
        let down = self.exchanges.iter().flat_map(|exchange| exchange.down.iter().chain(&exchange.own));
        let down = down.chain(&self.tell).chain(&self.tell_own).map(|(part, _)| *part);
        down.chain(self.exchanges.iter().flat_map(|exchange| &exchange.replies).map(|want| want.part))
    }

    /// The parts of other crates that messages of the method may have.
    pub fn outside(&self) -> Vec<Part> {
        self.parts().filter(|part| matches!(part, Part::Outside(_))).collect()
    }

    /// Checks that messages can be encoded and decoded by this description.
    ///
    /// # Errors
    /// When an exchange wants nothing or the same part twice, a summed part cannot be summed, or a codec would have to encode two parts of
    /// one message.
    pub fn check(&self) -> Result<()> {
        let bad = |what: String| Err(Error::new("protocol", what, "parts that can be encoded, summed and told apart"));
        if self.exchanges.is_empty() || self.exchanges.len() > usize::from(UNMASKING) {
            return bad(format!("{} exchanges", self.exchanges.len()));
        }
        let told = [(&self.tell, &self.tell_own)].into_iter();
        let down = self.exchanges.iter().map(|exchange| (&exchange.down, &exchange.own)).chain(told);
        let down = down.map(|(all, own)| all.iter().chain(own).map(|(part, _)| *part).collect::<Vec<Part>>());
        let up = self.exchanges.iter().map(|exchange| exchange.replies.iter().map(|want| want.part).collect::<Vec<Part>>());
        for parts in down.chain(up) {
            if parts.len() > 100 || parts.iter().enumerate().any(|(i, part)| parts[..i].contains(part)) {
                return bad(format!("a message of {} parts, some of them alike", parts.len()));
            }
            if parts.iter().filter(|part| part.may_be_encoded()).count() > 1 {
                return bad("two parts of a message that a codec may alter".into());
            }
        }
        let outside = self.outside();
        if outside.iter().enumerate().any(|(i, part)| outside[..i].iter().any(|other| other.tag() == part.tag() && other != part)) {
            return bad("two declarations of an outside part with one number".into());
        }
        for want in self.exchanges.iter().flat_map(|exchange| &exchange.replies) {
            let is_number = !matches!(want.part.form(), Form::Sparse | Form::Packed);
            let is_summable = matches!(want.len, Len::Exactly(_)) && is_number;
            if want.gather == Gather::Sum && !is_summable {
                return bad(format!("a sum of {}, which has no fixed number of numbers", want.part));
            }
        }
        match self.exchanges.iter().position(|exchange| exchange.replies.is_empty()) {
            None => Ok(()),
            Some(e) => bad(format!("exchange {e} wants nothing back")),
        }
    }

    /// Checks that a message down belongs to this method.
    ///
    /// # Errors
    /// When it has other parts; names the accepted ones.
    pub fn check_down(&self, down: &Message) -> Result<()> {
        let (wanted, own) = match (down.exchange, self.exchange(down.exchange)) {
            (TELL, _) if !self.tell.is_empty() => (&self.tell, &self.tell_own),
            (_, Some(exchange)) => (&exchange.down, &exchange.own),
            _ => return Err(refused(format!("exchange {}", down.exchange), "an exchange of this method")),
        };
        let (all, rest) = down.parts.split_at(wanted.len().min(down.parts.len()));
        check_shape(all, wanted)?;
        check_finite(all)?;
        let is_own = |(part, body): &(Part, Body)| own.iter().any(|want| want.0 == *part && want.1.fits(body.len()) && part.takes(body));
        let are_own = rest.iter().enumerate().all(|(i, it)| is_own(it) && rest[..i].iter().all(|(part, _)| *part != it.0));
        if !are_own {
            return Err(refused(parts_text(rest), &format!("besides at most {}", wants_text(own))));
        }
        check_finite(rest)?;
        let counted = down.find(Part::Counted).and_then(Body::numbers).and_then(<[f64]>::first);
        match counted.filter(|k| !(**k >= -1.0 && k.fract() == 0.0 && **k < down.round as f64)) {
            Some(k) => Err(refused(format!("round {k} as the last that counted an answer"), "an earlier round, or -1 for none")),
            None => Ok(()),
        }
    }

    /// Checks that these are the parts of an answer to an exchange, with finite numbers.
    ///
    /// # Errors
    /// When there are other parts, or numbers that are not finite; names the accepted parts.
    pub fn check_answer(&self, exchange: u8, parts: &[(Part, Body)]) -> Result<()> {
        self.check_answer_shape(exchange, parts)?;
        check_finite(parts)
    }

    /// Checks that this is a masked answer to an exchange, or an answer with seeds.
    ///
    /// # Errors
    /// As [`Protocol::check_answer`].
    pub(crate) fn check_masked(&self, exchange: u8, parts: &[(Part, Body)]) -> Result<()> {
        match self.masked_len(exchange) {
            Some(len) => check_shape(parts, &[(Part::Masked, Len::Exactly(len))]),
            None => self.check_answer_shape(exchange, parts),
        }
    }

    /// [`Protocol::check_answer`] without the check of numbers.
    pub(crate) fn check_answer_shape(&self, exchange: u8, parts: &[(Part, Body)]) -> Result<()> {
        let wanted: Vec<(Part, Len)> = self.wanted(exchange).iter().map(|want| (want.part, want.len)).collect();
        check_shape(parts, &wanted)
    }

    /// The answer of an agent whose numbers are no longer finite: NaN in every number.
    pub(crate) fn diverged_answer(&self, exchange: u8) -> Vec<(Part, Body)> {
        let nan = |want: &ReplySpec| match want.part {
            part if part.form() == Form::Sparse => Body::Sparse { len: want.len.largest() as u32, index: vec![0], value: vec![f64::NAN] },
            part if part.is_packed() => Body::Packed(Vec::new()),
            _ => Body::Numbers(vec![f64::NAN; want.len.largest()]),
        };
        self.wanted(exchange).iter().map(|want| (want.part, nan(want))).collect()
    }
}

/// Whether recipients' own parts say which of their answers counted last.
fn says_what_counted(own: &[(Part, Len)]) -> bool {
    own.iter().any(|(part, _)| *part == Part::Counted)
}

/// Checks that parts are the wanted parts, in their order.
fn check_shape(parts: &[(Part, Body)], wanted: &[(Part, Len)]) -> Result<()> {
    let fits = |((part, body), (want, len)): (&(Part, Body), &(Part, Len))| {
        part == want && len.fits(body.len()) && part.takes(body) && body.is_sound()
    };
    if parts.len() != wanted.len() || !parts.iter().zip(wanted).all(fits) {
        return Err(refused(parts_text(parts), &wants_text(wanted)));
    }
    Ok(())
}

/// Whether all numbers are finite.
pub fn are_finite(parts: &[(Part, Body)]) -> bool {
    parts.iter().all(|(_, body)| body.not_finite().is_none())
}

fn check_finite(parts: &[(Part, Body)]) -> Result<()> {
    match parts.iter().find_map(|(part, body)| Some((part, body.not_finite()?))) {
        None => Ok(()),
        Some((part, x)) => Err(refused(format!("{part} with the number {x}"), "finite numbers")),
    }
}

fn parts_text(parts: &[(Part, Body)]) -> String {
    let one = |(part, body): &(Part, Body)| format!("{part} of length {}", body.len());
    if parts.is_empty() { "no parts".into() } else { parts.iter().take(4).map(one).collect::<Vec<_>>().join(", ") }
}

fn wants_text(wanted: &[(Part, Len)]) -> String {
    let one = |(part, len): &(Part, Len)| match len {
        Len::Exactly(n) => format!("{part} of length {n}"),
        Len::AtMost(n) => format!("{part} of length at most {n}"),
    };
    if wanted.is_empty() { "nothing".into() } else { wanted.iter().map(one).collect::<Vec<_>>().join(", ") }
}

/// The error about a message that does not belong to this federation at this point.
pub fn refused(what: impl Into<String>, accepted: &str) -> Error {
    Error::refused_message(what, accepted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wanted_passes_and_nothing_else() {
        let mut protocol = Protocol::operators_then_directions(3, Gather::Sum);
        protocol.exchanges[0].own = vec![(Part::Counted, Len::Exactly(1))];
        protocol.tell = vec![(Part::Direction, Len::Exactly(3))];
        let vector = |part, n| (part, Body::Numbers(vec![0.5; n]));
        let down = |exchange, parts: Vec<(Part, Body)>| protocol.check_down(&Message { round: 4, exchange, parts }).is_ok();
        let counted = |round: f64| (Part::Counted, Body::Numbers(vec![round]));
        assert!(down(0, vec![vector(Part::Model, 3)]));
        assert!([3.0, 0.0, -1.0].iter().all(|round| down(0, vec![vector(Part::Model, 3), counted(*round)])));
        assert!([4.0, -2.0, 0.5].iter().all(|round| !down(0, vec![vector(Part::Model, 3), counted(*round)])));
        assert!(down(1, vec![vector(Part::Operator, 3)]));
        assert!(down(TELL, vec![vector(Part::Direction, 3)]));
        let sparse = |part| vec![(part, Body::Sparse { len: 3, index: vec![1], value: vec![0.5] })];
        // Receivers expand sparse operators, for sums and for single answers.
        assert!(protocol.check_answer(0, &sparse(Part::Operator)).is_ok());
        assert!(Protocol::operators_then_directions(3, Gather::Each).check_answer(0, &sparse(Part::Operator)).is_ok());
        assert!(down(1, sparse(Part::Operator)));
        for (exchange, parts) in [
            (0, vec![]),
            (0, vec![counted(3.0)]),
            (0, vec![counted(3.0), vector(Part::Model, 3)]),
            (0, vec![vector(Part::Model, 3), counted(3.0), counted(3.0)]),
            (0, vec![vector(Part::Model, 4)]),
            (0, vec![vector(Part::Operator, 3)]),
            (0, vec![(Part::Model, Body::Packed(vec![0; 3]))]),
            (0, vec![(Part::Model, Body::Sparse { len: 3, index: vec![], value: vec![] })]),
            (0, vec![(Part::Model, Body::Numbers(vec![0.0, f64::NAN, 0.0]))]),
            (1, vec![vector(Part::Operator, 3), counted(3.0)]),
            (2, vec![vector(Part::Model, 3)]),
            (TELL, vec![vector(Part::Model, 3)]),
        ] {
            assert!(!down(exchange, parts.clone()), "{exchange} {parts:?}");
        }
        assert!(protocol.check_answer(0, &[vector(Part::Operator, 3)]).is_ok());
        assert!(protocol.check_answer(1, &[vector(Part::Operator, 3)]).is_err());
        assert!(protocol.check_answer(0, &[]).is_err());
        assert!(protocol.check_answer(0, &[vector(Part::Operator, 3), vector(Part::Operator, 3)]).is_err());
        assert_eq!(protocol.longest(), 3);
        assert!(protocol.check().is_ok());
        let with = |change: &dyn Fn(&mut Protocol)| {
            let mut changed = protocol.clone();
            change(&mut changed);
            changed.check()
        };
        let want = |part, len, gather| ReplySpec { part, len, gather };
        assert!(with(&|p| p.exchanges.clear()).is_err());
        assert!(with(&|p| p.exchanges[1].replies.clear()).is_err());
        assert!(with(&|p| p.exchanges[0].replies.push(want(Part::Operator, Len::Exactly(3), Gather::Sum))).is_err(), "twice");
        assert!(with(&|p| p.exchanges[0].replies.push(want(Part::Gradient, Len::Exactly(3), Gather::Sum))).is_err(), "two for a codec");
        for part in [Part::Packed, Part::PackedMatrix, Part::Refinement, Part::Digits] {
            assert!(with(&|p| p.exchanges[0].replies.push(want(part, Len::Exactly(3), Gather::Sum))).is_err());
            assert!(with(&|p| p.exchanges[0].replies.push(want(part, Len::AtMost(3), Gather::Each))).is_ok());
            assert!(part.takes(&Body::Packed(vec![1])) && !part.takes(&Body::Numbers(vec![1.0])));
        }
        // Only methods with `tell` have a message at the end of a round.
        let silent = Protocol::directions(3, Gather::Each);
        assert!(silent.check_down(&Message::one(0, TELL, Part::Direction, vec![0.0; 3])).is_err());
        assert!(silent.wants_each_anywhere() && !protocol.wants_each_anywhere());
    }
}
