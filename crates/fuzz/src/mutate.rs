//! Mutation of valid input.
//!
//! Which mutations are made is drawn from a stream of random numbers, so that an input is a
//! function of the seed and its number and can be made again.

use fedsa::random::{Purpose, Stream, stream};

/// Random choices.
#[derive(Debug, Clone)]
pub struct Rng(Stream);

impl Rng {
    /// The choices of input `index` of a target, whose name is hashed to `target`.
    pub fn new(seed: u64, target: u32, index: u64) -> Self {
        Self(stream(seed, Purpose::Fresh, index, target as usize))
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0.bits()
    }

    /// A number below `n`; 0 when `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.bits()) * n as u128) >> 64) as usize
    }

    /// Whether an event of probability `1 / n` happens.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// One of several, which must not be none.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }

    /// A length from 1 to `most`, short ones more often.
    fn length(&mut self, most: usize) -> usize {
        let bound = self.below(most.max(1));
        1 + self.below(bound + 1)
    }

    /// A part of something of length `len`, perhaps an empty one.
    fn range(&mut self, len: usize) -> std::ops::Range<usize> {
        let start = self.below(len + 1);
        let end = (start + self.length(len)).min(len);
        start..end
    }
}

/// What an input is made of: it decides which mutations fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Binary numbers, lengths, offsets.
    Bytes,
    /// Words, numbers in digits, punctuation, lines.
    Text,
}

/// No input becomes longer than this.
pub const MAX_LEN: usize = 1 << 16;

/// Integers at the edges of what formats and machines hold.
const INTEGERS: [i64; 30] = [
    0,
    1,
    2,
    3,
    7,
    8,
    9,
    16,
    63,
    64,
    65,
    127,
    128,
    255,
    256,
    1000,
    4095,
    4096,
    32767,
    65535,
    1 << 20,
    i32::MAX as i64,
    1 << 31,
    u32::MAX as i64,
    1 << 32,
    1 << 53,
    i64::MAX,
    i64::MIN,
    -1,
    -2,
];

/// Doubles that arithmetic does not like.
const DOUBLES: [f64; 12] =
    [0.0, -0.0, 1.0, -1.0, 0.5, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, -f64::MAX, f64::MIN_POSITIVE, 5e-324];

/// Numbers as text, valid and not.
const NUMBERS: &[&str] = &[
    "0",
    "-0",
    "1",
    "-1",
    "2",
    "3",
    "10",
    "40",
    "0.0",
    "0.5",
    "1.0",
    "-1.5",
    "+1",
    ".5",
    "5.",
    "1e3",
    "1e308",
    "1e309",
    "-1e309",
    "1e-320",
    "1e-400",
    "nan",
    "NaN",
    "inf",
    "-inf",
    "127",
    "128",
    "255",
    "256",
    "65535",
    "65536",
    "100000",
    "1000000",
    "10000000",
    "2147483647",
    "2147483648",
    "4294967295",
    "4294967296",
    "9007199254740993",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "340282366920938463463374607431768211456",
    "-9223372036854775808",
    "0x10",
    "0b1",
    "0o7",
    "1_000",
    "1__0",
    "00",
    "0.1.2",
    "1e",
    "1979-05-27",
];

/// Pieces of text that readers trip over.
const ODD: &[&str] = &[
    "",
    " ",
    "\t",
    "\n",
    "\r\n",
    "\r",
    "\"",
    "'",
    "\"\"\"",
    "'''",
    "\\",
    "\\u0000",
    "\u{0}",
    "\u{1b}[31m",
    "\u{7f}",
    "\u{85}",
    "\u{feff}",
    "\u{202e}",
    "\u{2028}",
    "\u{fffd}",
    "é",
    "e\u{301}",
    "\u{1f9ea}",
    "\u{10ffff}",
    "[",
    "]",
    "[[",
    "]]",
    "{",
    "}",
    "(",
    ")",
    "=",
    ",",
    ".",
    "..",
    ":",
    ";",
    "#",
    "*",
    "/",
    "-",
    "_",
    "x",
    "true",
    "false",
    "null",
    "`",
];

/// Makes one to some mutations of `data`; `others` are seeds to take parts from, `words` the
/// vocabulary of the format.
pub fn mutate(rng: &mut Rng, data: &mut Vec<u8>, others: &[Vec<u8>], form: Form, words: &[&str]) {
    let most = *rng.pick(&[1, 1, 2, 3, 6]);
    for _ in 0..1 + rng.below(most) {
        match form {
            Form::Bytes => bytes(rng, data, others),
            Form::Text if rng.one_in(12) => bytes(rng, data, others),
            Form::Text => text(rng, data, others, words),
        }
        data.truncate(MAX_LEN);
    }
}

/// One mutation of bytes.
fn bytes(rng: &mut Rng, data: &mut Vec<u8>, others: &[Vec<u8>]) {
    let at = rng.below(data.len());
    match rng.below(14) {
        _ if data.is_empty() => data.extend((0..rng.length(16)).map(|i| (i as u8).wrapping_mul(37))),
        0 | 1 => data[at] ^= 1 << rng.below(8),
        2 => data[at] = *rng.pick(&[0, 1, 0x7f, 0x80, 0xfe, 0xff]),
        3 => data[at] = rng.bits() as u8,
        4 => data[at] = data[at].wrapping_add(*rng.pick(&[1, 2, 0xff, 0xfe, 16, 0xf0])),
        5 | 6 => overwrite(data, at, &number(rng, at)),
        7 => {
            // A number in steps of seven bits replaces the one that may stand there.
            let end = data[at..].iter().take(10).position(|byte| byte & 0x80 == 0).map_or(at + 1, |more| at + more + 1);
            data.splice(at..end, varint(*rng.pick(&INTEGERS) as u64));
        }
        8 => drop(data.drain(rng.range(data.len()))),
        9 => {
            let part = data[rng.range(data.len())].to_vec();
            let copies = if rng.one_in(20) { rng.length(200) } else { 1 };
            insert(data, at, &part.repeat(copies));
        }
        10 => data.truncate(at),
        11 => {
            let other = rng.pick(others);
            let part = &other[rng.range(other.len())];
            if rng.one_in(2) { insert(data, at, part) } else { overwrite(data, at, part) }
        }
        12 => {
            // The start of this and the end of another.
            let other = rng.pick(others);
            let from = if rng.one_in(2) { at.min(other.len()) } else { rng.below(other.len() + 1) };
            data.truncate(at);
            data.extend_from_slice(&other[from..]);
        }
        _ => {
            let part: Vec<u8> = (0..rng.length(16)).map(|_| rng.bits() as u8).collect();
            insert(data, at, &part);
        }
    }
}

/// A binary number of 1, 2, 4 or 8 bytes, of either byte order.
fn number(rng: &mut Rng, at: usize) -> Vec<u8> {
    if rng.one_in(4) {
        return rng.pick(&DOUBLES).to_le_bytes().to_vec();
    }
    let value = if rng.one_in(6) { at as i64 } else { *rng.pick(&INTEGERS) };
    let width = *rng.pick(&[1, 2, 4, 8]);
    let mut out = value.to_le_bytes()[..width].to_vec();
    if rng.one_in(2) {
        out.reverse();
    }
    out
}

/// A number in steps of seven bits, the lowest first.
fn varint(mut value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
    out
}

fn overwrite(data: &mut [u8], at: usize, with: &[u8]) {
    data[at..].iter_mut().zip(with).for_each(|(to, from)| *to = *from);
}

fn insert(data: &mut Vec<u8>, at: usize, part: &[u8]) {
    let room = MAX_LEN.saturating_sub(data.len());
    data.splice(at..at, part.iter().take(room).copied());
}

/// One mutation of text.
fn text(rng: &mut Rng, data: &mut Vec<u8>, others: &[Vec<u8>], words: &[&str]) {
    match rng.below(10) {
        0..=2 => {
            // A number becomes another.
            let numbers = tokens(data, |c| c.is_ascii_digit());
            match numbers.is_empty() {
                true => replace_token(rng, data, others, words),
                false => {
                    let place = rng.pick(&numbers).clone();
                    let new = if rng.one_in(20) { "9".repeat(rng.length(400)) } else { (*rng.pick(NUMBERS)).to_string() };
                    data.splice(place, new.into_bytes());
                }
            }
        }
        3..=5 => replace_token(rng, data, others, words),
        6 => {
            let at = rng.below(data.len() + 1);
            let piece = *rng.pick(ODD);
            let copies = if rng.one_in(30) { rng.length(400) } else { 1 };
            insert(data, at, piece.repeat(copies).as_bytes());
        }
        7 => {
            let all = tokens(data, |_| true);
            if let [_, _, ..] = all[..] {
                let (a, b) = (rng.below(all.len()), rng.below(all.len()));
                let (a, b) = (all[a.min(b)].clone(), all[a.max(b)].clone());
                let (first, second) = (data[a.clone()].to_vec(), data[b.clone()].to_vec());
                data.splice(b, first);
                data.splice(a, second);
            }
        }
        _ => lines(rng, data, others),
    }
}

/// A token becomes one of the format, of another seed, or a piece of text, or goes.
fn replace_token(rng: &mut Rng, data: &mut Vec<u8>, others: &[Vec<u8>], words: &[&str]) {
    let all = tokens(data, |_| true);
    let place = if all.is_empty() { 0..0 } else { rng.pick(&all).clone() };
    let new: Vec<u8> = match rng.below(8) {
        0..=2 if !words.is_empty() => rng.pick(words).as_bytes().to_vec(),
        0..=4 => {
            let other = rng.pick(others);
            let theirs = tokens(other, |_| true);
            if theirs.is_empty() { Vec::new() } else { other[rng.pick(&theirs).clone()].to_vec() }
        }
        5 => rng.pick(ODD).as_bytes().to_vec(),
        6 => rng.pick(NUMBERS).as_bytes().to_vec(),
        _ => Vec::new(),
    };
    data.splice(place, new);
}

/// Lines go, come twice, change places, or come from another seed.
fn lines(rng: &mut Rng, data: &mut Vec<u8>, others: &[Vec<u8>]) {
    let mut all: Vec<Vec<u8>> = data.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    let (a, b) = (rng.below(all.len()), rng.below(all.len()));
    match rng.below(5) {
        _ if all.is_empty() => return,
        0 => drop(all.drain(a..(a + rng.length(4)).min(all.len()))),
        1 => all.swap(a, b),
        2 => {
            let again = all[a..(a + rng.length(6)).min(all.len())].to_vec();
            all.splice(b..b, again);
        }
        3 => {
            let other = rng.pick(others);
            let theirs: Vec<&[u8]> = other.split_inclusive(|byte| *byte == b'\n').collect();
            let some = theirs[rng.range(theirs.len())].iter().map(|line| line.to_vec());
            all.splice(b..b, some.collect::<Vec<_>>());
        }
        _ => all.truncate(a),
    }
    *data = all.concat();
}

/// The places of runs of letters, digits, `_` and `.`, and of single other characters, whose
/// first byte passes.
fn tokens(data: &[u8], first: impl Fn(u8) -> bool) -> Vec<std::ops::Range<usize>> {
    let is_word = |c: u8| c.is_ascii_alphanumeric() || c == b'_' || c == b'.' || c == b'-' || c >= 0x80;
    let mut out = Vec::new();
    let mut at = 0;
    while at < data.len() {
        let end =
            if is_word(data[at]) { data[at..].iter().position(|c| !is_word(*c)).map_or(data.len(), |more| at + more) } else { at + 1 };
        if !data[at].is_ascii_whitespace() && first(data[at]) {
            out.push(at..end);
        }
        at = end;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_number_gives_the_same_input() {
        let seeds = [b"a = 1\nb = [2, 3]\n".to_vec(), b"c = \"text\"\n".to_vec()];
        let input = |form, index| {
            let (mut rng, mut data) = (Rng::new(1, 2, index), seeds[0].clone());
            mutate(&mut rng, &mut data, &seeds, form, &["word"]);
            data
        };
        for form in [Form::Bytes, Form::Text] {
            let all: Vec<Vec<u8>> = (0..200).map(|i| input(form, i)).collect();
            assert_eq!(all, (0..200).map(|i| input(form, i)).collect::<Vec<_>>());
            let differ = all.iter().collect::<std::collections::BTreeSet<_>>().len();
            assert!(differ > 150, "{differ} of 200 {form:?} are different");
        }
    }

    #[test]
    fn nothing_is_too_short_to_be_mutated_and_nothing_becomes_too_long() {
        for index in 0..3000 {
            let mut rng = Rng::new(7, 0, index);
            let mut data = vec![b'a'; rng.below(3)];
            let others = [vec![b'b'; MAX_LEN], Vec::new()];
            let form = *rng.pick(&[Form::Bytes, Form::Text]);
            (0..5).for_each(|_| mutate(&mut rng, &mut data, &others, form, &[]));
            assert!(data.len() <= MAX_LEN);
        }
    }

    #[test]
    fn tokens_are_words_and_marks() {
        let text = b"a.b = [1e-3,\n 20]";
        let found: Vec<&[u8]> = tokens(text, |_| true).into_iter().map(|place| &text[place]).collect();
        assert_eq!(found, [&b"a.b"[..], b"=", b"[", b"1e-3", b",", b"20", b"]"]);
        assert_eq!(tokens(text, |c| c.is_ascii_digit()).len(), 2);
    }
}
