//! Messages one part of which is sent in another form than the ends of a method send it: numbers, sparse numbers, packed bytes. Whoever
//! writes a node of one's own, or wants to break one, can send them; they have the right lengths, checksum and settings.

use fedsa::message::{Body, Envelope, Message, Part};
use fedsa::random::{ALL, Purpose};
use fedsa::uplink::MessageKey;
use fedsa::uplink::codec::Codec;

/// A message with one part in another form.
pub struct Reformed {
    /// The message.
    pub message: Message,
    /// Whether it says the same: the numbers are those of the message that it was made of.
    pub is_same: bool,
}

/// The numbers of a body, with the zeros of sparse ones; `None` for packed bytes.
fn numbers(body: &Body) -> Option<Vec<f64>> {
    match body {
        Body::Numbers(x) => Some(x.clone()),
        Body::Sparse { len, index, value } => {
            let mut all = vec![0.0; *len as usize];
            index.iter().zip(value).for_each(|(i, x)| all[*i as usize] = *x);
            Some(all)
        }
        Body::Packed(_) => None,
    }
}

/// A part of n numbers or bytes in all forms.
fn bodies(n: usize) -> Vec<Body> {
    let mut all =
        vec![Body::Numbers(vec![0.5; n]), Body::Sparse { len: n as u32, index: Vec::new(), value: Vec::new() }, Body::Packed(vec![1; n])];
    all.extend((n > 0).then(|| Body::Sparse { len: n as u32, index: vec![n as u32 / 2], value: vec![0.5] }));
    all
}

/// What a body is sent as otherwise, and whether that says the same.
fn others(body: &Body) -> Vec<(Body, bool)> {
    let mut all = Vec::new();
    if let Some(x) = numbers(body) {
        let index = (0..x.len() as u32).collect();
        all.extend([(Body::Sparse { len: x.len() as u32, index, value: x.clone() }, true), (Body::Numbers(x), true)]);
    }
    all.extend(bodies(body.len()).into_iter().map(|body| (body, false)));
    all.retain(|(other, _)| other != body);
    all
}

/// Every message that differs from this one in the form of one part, or has one of the parts `besides`, of these lengths, in any form.
pub fn reformed(message: &Message, besides: &[(Part, usize)]) -> Vec<Reformed> {
    let mut all = Vec::new();
    for (i, (_, body)) in message.parts.iter().enumerate() {
        for (body, is_same) in others(body) {
            let mut message = message.clone();
            message.parts[i].1 = body;
            all.push(Reformed { message, is_same });
        }
    }
    for (part, n) in besides.iter().filter(|(part, _)| message.find(*part).is_none()) {
        for body in bodies(*n) {
            let mut message = message.clone();
            message.parts.push((*part, body));
            all.push(Reformed { message, is_same: false });
        }
    }
    all
}

/// What an agent may send instead of an answer, in all forms.
pub fn instead(message: &Message) -> Vec<Message> {
    let one = |part| [0, 1].into_iter().flat_map(bodies).map(move |body| Message { parts: vec![(part, body)], ..message.clone() });
    one(Part::Diverged).collect()
}

/// The bytes of messages of one sender, and back.
pub struct Wire<'a> {
    /// The codec of this direction.
    pub codec: &'a dyn Codec,
    /// The seed of the federation.
    pub seed: u64,
    /// The agent that sends; `None` for the server.
    pub sender: Option<usize>,
}

impl Wire<'_> {
    fn open(&self, round: u64, exchange: u8) -> fedsa::random::Stream {
        MessageKey { seed: self.seed, round, exchange, agent: self.sender.unwrap_or(ALL) }.stream(Purpose::Codec)
    }

    /// The message, if there is one whose parts are short, as those of small problems are.
    pub fn read(&self, bytes: &[u8]) -> Option<(Envelope, Message)> {
        Message::decode(bytes, self.codec, 1 << 10, |round, exchange| self.open(round, exchange)).ok()
    }

    /// A question, with what is told of an earlier round before it.
    pub fn read_both(&self, bytes: &[u8]) -> Option<(Envelope, Option<Message>, Message)> {
        let front = Message::front(bytes).ok()?;
        let (told, message) = front.messages(self.codec, 1 << 10, &[], |round, exchange| self.open(round, exchange)).ok()?;
        Some((front.envelope, told, message))
    }

    /// Its bytes.
    pub fn write(&self, envelope: &Envelope, message: &Message) -> Vec<u8> {
        message.encode(envelope, self.codec, &mut self.open(message.round, message.exchange))
    }

    /// The bytes of a question with what is told before it.
    pub fn write_both(&self, envelope: &Envelope, told: Option<&Message>, message: &Message) -> Vec<u8> {
        message.encode_after(told, envelope, self.codec, |round, exchange| self.open(round, exchange))
    }
}
