//! The one error of fedsa's libraries.
//!
//! Callers match [`Error::kind`] or the finer [`Error::code`], which are stable. [`Error::key`], [`Error::value`], [`Error::help`] and
//! [`Error::place`] give the fault, the accepted values, and the place. Texts ([`Error::what`], and the error as text) are for people.
//! Libraries' texts name settings, never a program's flags.
//!
//! Divergence is not an error but an outcome of a run ([`crate::record::Outcome`]).
//!
//! ```
//! use fedsa::error::{ErrorCode, ErrorKind, require};
//!
//! let e = require(false, "step_size", -1.0, "a positive number").unwrap_err().inside("method[0]");
//! assert_eq!((e.kind(), e.code(), e.key.as_str()), (ErrorKind::Setting, ErrorCode::OutOfRange, "method[0].step_size"));
//! assert_eq!((e.value(), e.help.as_str()), (Some("-1"), "a positive number"));
//! assert_eq!(e.to_string(), "method[0].step_size: -1 is not accepted");
//! ```

mod code;
mod failure;
mod place;
mod quoting;

pub use code::{ErrorCode, ErrorKind};
pub use failure::Failure;
pub use place::{Excerpt, FileLocation};
pub use quoting::{QUOTED, escaped, in_quotes, is_control, quoted, shown};

/// An error: the fault, and the accepted values.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Error {
    code: ErrorCode,
    /// The setting, array, column or file at fault, relative to the raising code (`step_size`, `P`); outer layers prefix it
    /// (`method[0].step_size`). Empty for the whole.
    pub key: String,
    /// The fault, with the value.
    pub what: String,
    /// The accepted values, or how to go on.
    pub help: String,
    more: Option<Box<More>>,
}

/// Fields that few errors have.
#[derive(Debug, Clone, Default, PartialEq)]
struct More {
    value: Option<String>,
    place: Option<FileLocation>,
}

/// The library's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl std::error::Error for Error {}

/// The file if no line is known, the key, and the fault. A missing key is shown as its table.
impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(place) = self.place().filter(|place| place.excerpt.is_none() && !place.file.is_empty()) {
            write!(f, "{}: ", shown(&place.file))?;
        }
        let key = match self.code {
            ErrorCode::MissingKey => self.key.rsplit_once('.').map_or("", |(table, _)| table),
            _ => &self.key,
        };
        if !key.is_empty() {
            write!(f, "{}: ", shown(key))?;
        }
        f.write_str(&self.what)
    }
}

/// Constructors of the kinds.
impl Error {
    /// An error about the setting `key`: the fault, and the accepted values.
    pub fn new(key: impl Into<String>, what: impl Into<String>, help: impl Into<String>) -> Self {
        Self { code: ErrorCode::Setting, key: key.into(), what: what.into(), help: help.into(), more: None }
    }

    /// An error about data: a file, an array, a column.
    pub fn data(key: impl Into<String>, what: impl Into<String>, help: impl Into<String>) -> Self {
        Self::new(key, what, help).coded(ErrorCode::Data)
    }

    /// An error about a saved state, checkpoint or result of another format or version.
    pub fn format(key: impl Into<String>, what: impl Into<String>, help: impl Into<String>) -> Self {
        Self::new(key, what, help).coded(ErrorCode::Format)
    }

    /// The refusal of a message: the reason, and the accepted messages.
    pub fn refused_message(what: impl Into<String>, help: impl Into<String>) -> Self {
        Self::new("message", what, help).coded(ErrorCode::RefusedMessage)
    }

    /// The refusal of a message that does not follow an agent's state. Only the agent's operator discards a state.
    pub fn other_state(what: impl Into<String>) -> Self {
        let what = format!("{}; the agent's state is newer than the server's, or of another federation", what.into());
        Self::refused_message(what, "messages that follow this state; or its operator deletes `agent.state`").coded(ErrorCode::OtherState)
    }

    /// A question without an answer in theory: the reason, and when there is one.
    pub fn not_known(key: impl Into<String>, what: impl Into<String>, help: impl Into<String>) -> Self {
        Self::new(key, what, help).coded(ErrorCode::NotKnown)
    }

    /// The refusal of work that needs too much memory.
    pub fn no_memory(key: impl Into<String>, what: impl Into<String>, help: impl Into<String>) -> Self {
        Self::new(key, what, help).coded(ErrorCode::NoMemory)
    }

    /// A failure of the machine (disk, network, threads): what failed, and how to go on.
    pub fn machine(what: impl Into<String>, help: impl Into<String>) -> Self {
        Self::new("", what, help).coded(ErrorCode::Machine)
    }

    /// The end of cancelled work: what is left, and how to go on.
    pub fn cancelled(what: impl Into<String>, help: impl Into<String>) -> Self {
        Self::new("", what, help).coded(ErrorCode::Cancelled)
    }

    /// An error about the missing key `name`.
    pub fn missing_key(name: &str, help: impl Into<String>) -> Self {
        Self::new(name, format!("the key `{}` is missing", quoted(name)), help).coded(ErrorCode::MissingKey)
    }
}

/// Parts of an error, and errors with a part replaced.
impl Error {
    /// Its kind, which determines the reaction.
    pub fn kind(&self) -> ErrorKind {
        self.code.kind()
    }

    /// What other machines may read of this error ([`for_others`]).
    pub fn for_others(&self) -> String {
        for_others(self.code.name(), &self.key, &self.what, &self.help)
    }

    /// Its code, finer than the kind.
    pub fn code(&self) -> ErrorCode {
        self.code
    }

    /// The refused value as text, if any.
    pub fn value(&self) -> Option<&str> {
        self.more.as_ref()?.value.as_deref()
    }

    /// The place in a file, if known.
    pub fn place(&self) -> Option<&FileLocation> {
        self.more.as_ref()?.place.as_ref()
    }

    /// The same error with another code.
    #[must_use]
    pub fn coded(self, code: ErrorCode) -> Self {
        Self { code, ..self }
    }

    /// The same error about another key.
    #[must_use]
    pub fn about(self, key: impl Into<String>) -> Self {
        Self { key: key.into(), ..self }
    }

    /// The same error with another fault text.
    #[must_use]
    pub fn saying(self, what: impl Into<String>) -> Self {
        Self { what: what.into(), ..self }
    }

    /// The same error with a prefix to its text, such as `agent 3: ..`.
    #[must_use]
    pub fn prefixed(mut self, about: impl std::fmt::Display) -> Self {
        self.what = format!("{about}: {}", self.what);
        self
    }

    /// The same error with another help.
    #[must_use]
    pub fn helped(self, help: impl Into<String>) -> Self {
        Self { help: help.into(), ..self }
    }

    /// The same error with the refused value.
    #[must_use]
    pub fn valued(mut self, value: impl Into<String>) -> Self {
        self.more.get_or_insert_default().value = Some(value.into());
        self
    }

    /// The same error with its place in a file.
    #[must_use]
    pub fn at(mut self, place: FileLocation) -> Self {
        self.more.get_or_insert_default().place = Some(place);
        self
    }

    /// The same error from one level further out: `inside("method[0]")` turns `step_size` into `method[0].step_size`.
    #[must_use]
    pub fn inside(mut self, outer: &str) -> Self {
        self.key = match self.key.as_str() {
            "" => outer.to_string(),
            inner if inner.starts_with('[') => format!("{outer}{inner}"),
            inner => format!("{outer}.{inner}"),
        };
        self
    }
}

/// What other machines may read of an error with this code, key, text and help. A refusal of a message is about the message, and others
/// read it all; a refusal of disclosure rules contains no value, and others read it with the code and the help. Other texts may quote cells
/// and name files of this machine: others read the code, the setting, and the line or row with its column. The whole text belongs in this
/// machine's log.
pub fn for_others(code: &str, key: &str, what: &str, help: &str) -> String {
    if code.starts_with(ErrorCode::RefusedMessage.name()) {
        return what.to_string();
    }
    if code.starts_with(code::DISCLOSURE) {
        return format!("{code}: {what}: {help}");
    }
    let setting = if code.starts_with("setting") && !key.is_empty() { format!(", {}", shown(key)) } else { String::new() };
    let place = place_in(what).map_or(String::new(), |place| format!(", {place}"));
    format!("{code}{setting}{place}: the log of the agent has the reason")
}

/// The line or row that a text names, with the column that follows it, such as ``line 3, column `age` ``. It is at the start of the text, or
/// after a prefix such as the file's name; and before all that is quoted, because a quoted cell may contain such words.
fn place_in(all: &str) -> Option<&str> {
    const COLUMN: &str = ", column `";
    let unquoted = &all[..all.find('`').unwrap_or(all.len())];
    let starts = std::iter::once(0).chain(unquoted.match_indices(": ").map(|(at, colon)| at + colon.len()));
    starts.into_iter().find_map(|start| {
        let text = &all[start..];
        let number = text.strip_prefix("line ").or_else(|| text.strip_prefix("row "))?;
        let rest = number.trim_start_matches(|c: char| c.is_ascii_digit());
        let end = start + text.len() - rest.len();
        match rest.strip_prefix(COLUMN).and_then(|name| name.find('`')) {
            _ if rest.len() == number.len() => None,
            Some(closed) => Some(&all[start..end + COLUMN.len() + closed + 1]),
            None => (rest.starts_with(": ") || rest.starts_with(" is ")).then(|| &all[start..end]),
        }
    })
}

/// Refuses a setting outside its range, with the code [`ErrorCode::OutOfRange`].
///
/// `accepted` is the range in words: "a positive number".
///
/// # Errors
/// When `ok` is false.
pub fn require(ok: bool, key: &str, value: impl std::fmt::Display, accepted: &str) -> Result<()> {
    if ok {
        return Ok(());
    }
    Err(out_of_range(key, &value.to_string(), accepted))
}

fn out_of_range(key: &str, value: &str, accepted: &str) -> Error {
    let is_finite = !["inf", "-inf", "NaN"].contains(&value) || accepted.contains("finite");
    let accepted = if is_finite { accepted.to_string() } else { format!("{accepted}, and finite") };
    let value = quoted(value);
    Error::new(key, format!("{value} is not accepted"), accepted).coded(ErrorCode::OutOfRange).valued(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_is_missing_is_named_by_the_table_that_lacks_it() {
        let e = Error::missing_key("step_size", "step_size = .. in this table").inside("method[0]");
        assert_eq!((e.key.as_str(), e.code(), e.kind()), ("method[0].step_size", ErrorCode::MissingKey, ErrorKind::Setting));
        assert_eq!(e.to_string(), "method[0]: the key `step_size` is missing");
        assert_eq!(Error::missing_key("id", "").to_string(), "the key `id` is missing");
    }

    #[test]
    fn a_file_without_a_line_is_named() {
        let whole = FileLocation { file: "a.toml".into(), ..FileLocation::default() };
        let e = Error::new("run", "is wrong", "").at(whole);
        assert_eq!(e.to_string(), "a.toml: run: is wrong");
        assert_eq!(e.place().unwrap().file, "a.toml");
    }

    #[test]
    fn others_read_the_place_and_no_cell() {
        let of = |e: Error| e.for_others();
        let data = |what: &str| of(Error::data("/home/eve/site.csv", what, ""));
        let log = "the log of the agent has the reason";
        assert_eq!(data("line 3, column `age`: `patient 4711` is not a finite number"), format!("data, line 3, column `age`: {log}"));
        assert_eq!(data("a.csv: row 12: `patient 4711` is none"), format!("data, row 12: {log}"));
        assert_eq!(data("the line of patient 4711"), format!("data: {log}"));
        assert_eq!(data("a.csv: row 12 is null"), format!("data, row 12: {log}"));
        assert_eq!(data("a.csv: row 2, column `ward`: `line 19610523` is none"), format!("data, row 2, column `ward`: {log}"));
        for cell in ["2 labels: line 19610523, ..", "`line 7, column `Mueller HIV``", "line 7.csv: no rows", "`a`: line 7: b` is none"] {
            assert_eq!(data(cell), format!("data: {log}"));
        }
        assert_eq!(of(Error::new("target", "191 labels: patient 4711, ..", "")), format!("setting, target: {log}"));
        assert_eq!(of(Error::machine("/var/x cannot be written", "")), format!("machine: {log}"));
        assert_eq!(of(Error::refused_message("round 3 after round 5", "")), "round 3 after round 5");
        let rules = Error::data("data", "fewer than 3 rows", "more rows").coded(ErrorCode::DisclosureRows);
        assert_eq!(of(rules), "disclosure.rows: fewer than 3 rows: more rows");
    }

    #[test]
    fn an_error_is_small() {
        assert!(size_of::<Error>() <= 88 && size_of::<Result<()>>() <= 88);
    }
}
