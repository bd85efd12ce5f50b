//! What a hostile network does to messages, drawn from a stream.

use fedsa::random::Stream;

/// What the network does to one message on its way.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum MessageOutcome {
    Arrives,
    Lost,
    Twice,
    CutOff,
    Flipped,
    /// After its round.
    Late,
    /// To, or as from, another agent too.
    Misdelivered,
}

/// Lost with probability `lost`, and with probability `other` each of the rest that is not [`MessageOutcome::Arrives`].
pub fn fate(draws: &mut Stream, lost: f64, other: f64) -> MessageOutcome {
    let u = draws.uniform();
    if u < lost {
        return MessageOutcome::Lost;
    }
    let others =
        [MessageOutcome::Twice, MessageOutcome::CutOff, MessageOutcome::Flipped, MessageOutcome::Late, MessageOutcome::Misdelivered];
    others.get(((u - lost) / other) as usize).copied().unwrap_or(MessageOutcome::Arrives)
}

/// The bytes of a message that was cut off, or of which one bit was flipped.
pub fn damaged(draws: &mut Stream, bytes: &[u8], fate: MessageOutcome) -> Vec<u8> {
    let at = (draws.uniform() * bytes.len() as f64) as usize;
    let mut bytes = bytes.to_vec();
    if fate == MessageOutcome::CutOff {
        bytes.truncate(at)
    } else {
        bytes[at] ^= 1 << (draws.bits() % 8)
    }
    bytes
}

/// One of n agents that is not agent c.
pub fn another(draws: &mut Stream, n: usize, c: usize) -> usize {
    (c + 1 + draws.bits() as usize % (n - 1)) % n
}

/// 0, .., n - 1 in any order.
pub fn any_order(draws: &mut Stream, n: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..n).collect();
    for i in (1..n).rev() {
        let j = draws.bits() as usize % (i + 1);
        order.swap(i, j);
    }
    order
}
