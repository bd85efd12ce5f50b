//! A record of all that left an agent: lines of JSON with a chain of hashes, and no data.
//!
//! The field `chain` of a line is a hash of all lines before it, `H_0` = 32 zero bytes and `H_(i+1) = SHA-256(H_i | line_i)`. A changed,
//! removed, added or swapped line breaks the chain at the next line. Who can write the file can also compute a new chain, and cut lines off
//! its end: keep the last hash ([`Verified::last`]) elsewhere.
//!
//! A line is on disk before its message leaves. A process that is killed between leaves a line without a message, or a line that is cut
//! off; the next line continues after it.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use fedsa::enrolment;
use fedsa::error::{Error, Result, quoted, shown};
use fedsa::message::Part;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// What left an agent: a line of the record.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Left {
    /// The hash of all lines before, in hexadecimal digits.
    chain: String,
    /// When it left, in UTC.
    pub time: String,
    /// `application`, `answer` of a round, `sums` outside the rounds, `farewell` or `refusal`.
    pub what: String,
    /// The digest of settings and members, in hexadecimal digits; empty before the admission.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub settings: String,
    /// The epoch of the members.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub epoch: Option<u64>,
    /// The round.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub round: Option<u64>,
    /// The exchange of the round.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub exchange: Option<u8>,
    /// The names of the message's parts, with their numbers of numbers or bytes.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub parts: Vec<(String, usize)>,
    /// The code of a refusal.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub code: String,
    /// The bytes of the message, or of the refusal that others read.
    pub bytes: usize,
    /// Their SHA-256, in hexadecimal digits.
    pub sha256: String,
}

impl Left {
    /// A message.
    pub fn message(bytes: &[u8]) -> Self {
        let what = match bytes {
            _ if enrolment::is_farewell(bytes) => "farewell",
            _ if enrolment::is_answer(bytes) => "sums",
            _ if enrolment::is_enrolment(bytes) => "application",
            _ => "answer",
        };
        Self::new(what, bytes)
    }

    /// A refusal.
    pub fn refusal(e: &Error) -> Self {
        Self { code: e.code().name().into(), ..Self::new("refusal", e.for_others().as_bytes()) }
    }

    fn new(what: &str, bytes: &[u8]) -> Self {
        Self { what: what.into(), bytes: bytes.len(), sha256: hex(&Sha256::digest(bytes)), ..Self::default() }
    }

    /// In a federation with this digest and epoch.
    #[must_use]
    pub fn of(self, digest: u64, epoch: u64) -> Self {
        Self { settings: format!("{digest:016x}"), epoch: Some(epoch), ..self }
    }

    /// In this round, with these parts.
    #[must_use]
    pub fn in_round(self, round: u64, exchange: u8, parts: &[(Part, usize)]) -> Self {
        let parts = parts.iter().map(|(part, len)| (format!("{part:?}"), *len)).collect();
        Self { round: Some(round), exchange: Some(exchange), parts, ..self }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The hash of some lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Chain([u8; 32]);

impl Chain {
    fn after(self, line: &[u8]) -> Self {
        Self(Sha256::new().chain_update(self.0).chain_update(line).finalize().into())
    }
}

/// The file of a record.
pub struct Audit {
    path: PathBuf,
    /// The length of the file, and the hash of its lines, when this object last read or wrote it.
    known: (u64, Chain),
}

impl Audit {
    /// The record in this file, created with permissions for this user only if it is missing.
    ///
    /// # Errors
    /// When it cannot be read or written. A damaged record is no error: it is continued.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self> {
        let mut audit = Self { path: path.into(), known: (0, Chain::default()) };
        audit.file()?;
        Ok(audit)
    }

    /// The file, open for appending, after all that other processes have written.
    fn file(&mut self) -> Result<File> {
        let mut options = File::options();
        options.create(true).read(true).append(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(&self.path).map_err(|e| self.failed(&e))?;
        if file.metadata().map_err(|e| self.failed(&e))?.len() != self.known.0 {
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes).map_err(|e| self.failed(&e))?;
            if bytes.last().is_some_and(|last| *last != b'\n') {
                // A line that was cut off stays, and the chain goes on after it.
                file.write_all(b"\n").map_err(|e| self.failed(&e))?;
                bytes.push(b'\n');
            }
            self.known = (bytes.len() as u64, lines(&bytes).fold(Chain::default(), |chain, line| chain.after(line)));
        }
        Ok(file)
    }

    /// Appends a line, which is on disk when this returns.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn append(&mut self, left: &Left) -> Result<()> {
        let mut file = self.file()?;
        let time = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
        let left = Left { chain: hex(&self.known.1.0), time, ..left.clone() };
        let mut line = serde_json::to_vec(&left).expect("plain data serialises");
        let chain = self.known.1.after(&line);
        line.push(b'\n');
        file.write_all(&line).and_then(|()| file.sync_data()).map_err(|e| self.failed(&e))?;
        self.known = (self.known.0 + line.len() as u64, chain);
        Ok(())
    }

    fn failed(&self, e: &std::io::Error) -> Error {
        let what = format!("the record {} cannot be written: {e}", shown(self.path.display()));
        Error::machine(what, "a folder that you may write to, with free space; nothing was sent")
    }
}

/// The lines of a record, without their ends.
fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.strip_suffix(b"\n").unwrap_or(bytes).split(|byte| *byte == b'\n').filter(move |_| !bytes.is_empty())
}

/// A record whose chain holds.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Verified {
    /// What left.
    pub left: Vec<Left>,
    /// The numbers, from 1, of lines that were cut off.
    pub torn: Vec<usize>,
    /// The hash of all lines, in hexadecimal digits.
    pub last: String,
}

/// Reads a record and checks its chain.
///
/// # Errors
/// When it cannot be read; when the chain breaks, with the number of the line.
pub fn verify(path: &Path) -> Result<Verified> {
    let name = shown(path.display());
    let bytes = fedsa_data::regular::read(path, u64::MAX - 1).map_err(|e| {
        let what = format!("{name} cannot be read: {e}");
        let help = "the file `audit.jsonl` beside the state of an agent";
        if e.kind() == ErrorKind::NotFound {
            Error::data("", what, help).coded(fedsa::error::ErrorCode::NoFile)
        } else {
            Error::data("", what, help)
        }
    })?;
    let (mut chain, mut found) = (Chain::default(), Verified { left: Vec::new(), torn: Vec::new(), last: String::new() });
    for (number, line) in lines(&bytes).enumerate().map(|(i, line)| (i + 1, line)) {
        match serde_json::from_slice::<Left>(line) {
            Ok(left) if left.chain == hex(&chain.0) => found.left.push(left),
            Ok(left) => {
                let what =
                    format!("{name}: line {number}: its chain is {}, and the lines before have {}", quoted(left.chain), hex(&chain.0));
                let help = "a line before it was changed, removed, added or moved: an intact copy of the record";
                return Err(Error::format("", what, help));
            }
            Err(_) => found.torn.push(number),
        }
        chain = chain.after(line);
    }
    found.last = hex(&chain.0);
    Ok(found)
}
