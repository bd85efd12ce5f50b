//! Fuzzing of every reader and decoder of fedsa.
//!
//! A [`Target`] is a function from bytes that must return: without a panic, without a hang,
//! without more memory than the input justifies, and with what it asserts of the outcome. Inputs
//! are mutations of valid ones, which the targets make in code. Input `index` is a function of
//! the target, the seed and `index`, so that a finding is made again from these three.
//!
//! The program (`main.rs`) gives each target a process of its own, so that an abort (of the
//! stack, of memory) is a finding like any other, and memory is counted for one target alone.

pub mod engine;
pub mod memory;
pub mod mutate;
pub mod targets;

use std::cell::RefCell;

use fedsa::error::{Error, is_control};
use mutate::{Form, Rng, mutate};

/// A reader or decoder.
pub struct Target {
    /// Its name.
    pub name: &'static str,
    /// What it reads.
    pub about: &'static str,
    /// Valid inputs, and how they are mutated.
    pub corpora: fn() -> Vec<Corpus>,
    /// Reads an input. Panics when something is wrong with what comes of it.
    pub run: fn(&[u8]) -> Verdict,
    /// The memory that an input of so many bytes may take.
    pub memory: fn(usize) -> usize,
}

/// What a reader said of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It was read.
    Accepted,
    /// It was refused, with a message.
    Refused,
    /// It was not tried: it would take long for a good reason, such as a large sweep.
    PassedOver,
}

/// Valid inputs of one kind.
pub struct Corpus {
    /// The inputs, before they are sealed.
    pub seeds: Vec<Vec<u8>>,
    /// What they are made of.
    pub form: Form,
    /// The vocabulary of the format, for text.
    pub words: Vec<&'static str>,
    /// Makes a mutated input whole again: checksums, lengths, the archive around it.
    pub seal: fn(&mut Rng, Vec<u8>) -> Vec<u8>,
}

impl Corpus {
    /// Binary inputs that nothing need be done to.
    pub fn bytes(seeds: Vec<Vec<u8>>) -> Self {
        Self { seeds, form: Form::Bytes, words: Vec::new(), seal: |_, data| data }
    }

    /// Texts.
    pub fn text<T: AsRef<[u8]>>(seeds: impl IntoIterator<Item = T>, words: &[&'static str]) -> Self {
        let seeds = seeds.into_iter().map(|seed| seed.as_ref().to_vec()).collect();
        Self { seeds, form: Form::Text, words: words.to_vec(), seal: |_, data| data }
    }

    /// The same with a seal.
    #[must_use]
    pub fn sealed(self, seal: fn(&mut Rng, Vec<u8>) -> Vec<u8>) -> Self {
        Self { seal, ..self }
    }
}

/// The inputs of a target.
pub struct Inputs {
    corpora: Vec<Corpus>,
    target: u32,
    seed: u64,
}

impl Inputs {
    /// Makes the seeds.
    pub fn new(target: &Target, seed: u64) -> Self {
        let corpora = (target.corpora)();
        assert!(!corpora.is_empty() && corpora.iter().all(|c| !c.seeds.is_empty()), "{} has no seeds", target.name);
        Self { corpora, target: crc32fast::hash(target.name.as_bytes()), seed }
    }

    /// How many inputs at the start are valid ones.
    pub fn valid(&self) -> u64 {
        self.corpora.iter().map(|corpus| corpus.seeds.len() as u64).sum()
    }

    /// Input `index`: the seeds as they are, then mutated ones.
    pub fn make(&self, index: u64) -> Vec<u8> {
        let mut rng = Rng::new(self.seed, self.target, index);
        let mut left = index as usize;
        for corpus in &self.corpora {
            if let Some(seed) = corpus.seeds.get(left) {
                return (corpus.seal)(&mut rng, seed.clone());
            }
            left -= corpus.seeds.len();
        }
        let corpus = rng.pick(&self.corpora);
        let mut data = rng.pick(&corpus.seeds).clone();
        mutate(&mut rng, &mut data, &corpus.seeds, corpus.form, &corpus.words);
        (corpus.seal)(&mut rng, data)
    }
}

/// The longest message, and the longest help, in characters.
pub const LONGEST: usize = 2000;

thread_local! {
    /// The last message that was checked.
    static MESSAGE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// What the last refused input of this thread was told.
pub fn last_message() -> String {
    MESSAGE.with_borrow(String::clone)
}

/// Checks a message: short, without control characters, with help.
///
/// # Panics
/// When it is not so.
#[track_caller]
pub fn check_message(what: &str, help: &str) {
    assert!(!what.is_empty() && !help.is_empty(), "no message, or no help: {what:?}, {help:?}");
    for text in [what, help] {
        assert!(text.chars().count() <= LONGEST, "a message of {} characters: {:.300?}..", text.chars().count(), text);
        assert!(!text.chars().any(is_control), "a control character in a message: {text:?}");
    }
    MESSAGE.set(format!("{what}\n{help}"));
}

/// What a refusal comes to: [`Verdict::Refused`], if its message is a good one.
#[track_caller]
pub fn refused(e: &Error) -> Verdict {
    check_message(&e.to_string(), &e.help);
    Verdict::Refused
}
