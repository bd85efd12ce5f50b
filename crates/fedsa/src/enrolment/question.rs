//! Questions about sums over agents' data, apart from the rounds: for standard errors, losses and values of policies.
//!
//! The server asks all agents the same, and adds their numbers. A question may be repeated, and gets the same answer. Over a link with secure
//! sums the answers are masked, and a second question asks for the seeds of the masks.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::frame::{self, Kind};
use crate::error::{Error, Result, quoted};
use crate::federation::Federation;
use crate::protocol::refused;

/// The server's question.
#[derive(Serialize, Deserialize)]
struct Question {
    /// The federation, with its run and epoch.
    #[serde(with = "postcard::fixint::le")]
    digest: u64,
    /// The sums, in words that both ends derive from their settings.
    what: String,
    /// Theta, or earlier sums.
    numbers: Vec<f64>,
}

/// An agent's part in sums: the content of an answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Sums {
    /// Its numbers.
    Plain(Vec<f64>),
    /// Its masked numbers ([`crate::secure::ExactSum`]).
    Masked(#[serde(with = "serde_bytes")] Vec<u8>),
    /// The seed of its mask.
    Seed(#[serde(with = "serde_bytes")] Vec<u8>),
}

/// An agent's answer.
#[derive(Serialize, Deserialize)]
struct Answer {
    /// The mark of the question.
    #[serde(with = "postcard::fixint::le")]
    question: u64,
    sums: Sums,
}

/// The mark of a question, which answers repeat.
fn mark_of(question: &[u8]) -> u64 {
    u64::from_le_bytes(*Sha256::digest(question).first_chunk().expect("32 bytes"))
}

/// The question for the sums `what` to all agents of a federation, with the numbers that they need: theta, or earlier sums.
pub fn question(federation: &Federation, what: &str, numbers: &[f64]) -> Vec<u8> {
    frame::written(Kind::Question, &Question { digest: federation.digest(), what: what.into(), numbers: numbers.to_vec() })
}

/// Whether bytes are a question about sums.
pub fn is_question(bytes: &[u8]) -> bool {
    frame::is_of(Kind::Question, bytes)
}

/// Whether bytes are an answer to a question about sums.
pub fn is_answer(bytes: &[u8]) -> bool {
    frame::is_of(Kind::Answer, bytes)
}

/// The numbers of a question for the sums `what`.
///
/// # Errors
/// When the bytes are damaged or not a question of this version; when the question is one of another federation, run or epoch, asks for
/// other sums, or has numbers that are not finite.
pub fn asked(federation: &Federation, what: &str, bytes: &[u8]) -> Result<Vec<f64>> {
    let question: Question = frame::read(Kind::Question, bytes)?;
    if question.digest != federation.digest() {
        return Err(refused("a question about sums of another federation, run or epoch", "one of the federation of this agent"));
    }
    if question.what != what {
        let what = format!("the sums that this agent's settings ask for: `{what}`");
        return Err(refused(format!("a question for the sums `{}`", quoted(&question.what)), &what));
    }
    if question.numbers.iter().any(|x| !x.is_finite()) {
        return Err(refused("a question about sums with numbers that are not finite", "finite numbers"));
    }
    Ok(question.numbers)
}

/// An agent's answer to a question.
///
/// # Errors
/// When it exceeds the length of messages.
pub fn answer(question: &[u8], sums: Sums) -> Result<Vec<u8>> {
    let bytes = frame::written(Kind::Answer, &Answer { question: mark_of(question), sums });
    if bytes.len() <= frame::LONGEST {
        return Ok(bytes);
    }
    Err(Error::data("data", format!("sums of {} bytes", bytes.len()), frame::ACCEPTED))
}

/// The content of an agent's answer to a question.
///
/// # Errors
/// When the bytes are damaged, not an answer of this version, or one to another question.
pub fn answered(question: &[u8], bytes: &[u8]) -> Result<Sums> {
    let Answer { question: mark, sums } = frame::read(Kind::Answer, bytes)?;
    if mark == mark_of(question) { Ok(sums) } else { Err(refused("sums for another question", "an answer to the last question")) }
}
