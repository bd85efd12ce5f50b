//! `fedsa audit`: checks the record of what left an agent, and prints it.

use fedsa::error::Error;
use fedsa_experiment::deployment::audit::{Left, verify};
use serde_json::json;

use super::{count, say, say_json, warn};
use crate::args::AuditArgs;
use crate::error::DONE;

/// The characters of the settings' digest that a table shows.
const DIGEST: usize = 8;

/// Runs the command.
///
/// # Errors
/// When the record cannot be read, or its chain is broken.
pub fn audit(args: &AuditArgs) -> Result<u8, Error> {
    let verified = verify(&args.file)?;
    if args.json {
        say_json(&json!({ "last": verified.last, "cut_off": verified.torn, "left": verified.left }));
        return Ok(DONE);
    }
    say(format!("{:<24}  {:<11}  {:<DIGEST$}  {:>5}  {:>8}  {:>9}  content", "time", "what", "settings", "epoch", "round", "bytes"));
    verified.left.iter().for_each(|left| say(row(left)));
    for line in &verified.torn {
        warn(format!("line {line} was cut off, as by a crash: its message may have left"));
    }
    say(format!("{}, the chain holds; its last hash is {}", count(verified.left.len(), "line"), verified.last));
    Ok(DONE)
}

fn row(left: &Left) -> String {
    let number = |n: Option<u64>| n.map_or(String::new(), |n| n.to_string());
    let round = left.round.map_or(String::new(), |round| format!("{round}.{}", left.exchange.unwrap_or(0)));
    let parts: Vec<String> = left.parts.iter().map(|(part, len)| format!("{part} {len}")).collect();
    let content = if left.code.is_empty() { parts.join(", ") } else { left.code.clone() };
    let settings: String = left.settings.chars().take(DIGEST).collect();
    let (epoch, bytes) = (number(left.epoch), left.bytes);
    let line = format!("{:<24}  {:<11}  {settings:<DIGEST$}  {epoch:>5}  {round:>8}  {bytes:>9}  {content}", left.time, left.what);
    line.trim_end().to_string()
}
