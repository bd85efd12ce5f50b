//! The commands. Each takes its arguments and returns an exit status.

pub mod agent;
pub mod audit;
pub mod check;
pub mod data;
pub mod diff;
mod episodes;
pub mod evaluate;
pub mod export;
pub mod federation;
pub mod fit;
mod holdout;
pub mod improve;
pub mod list;
pub mod logging;
pub mod man;
pub mod parts;
pub mod plot;
pub mod predict;
mod progress;
pub mod report;
pub mod reproduce;
mod results;
pub mod run;
pub mod schema;
pub mod signals;
pub mod theory;
pub mod tune;

use std::fmt::Display;
use std::io::{BufWriter, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use fedsa::error::{Error, ErrorCode, is_control, quoted};
use fedsa_data::atomic;
use fedsa_data::regular;
use fedsa_experiment::Kinds;
use fedsa_experiment::config::document::{Caller, Words};
use fedsa_experiment::config::{Document, Experiment, reader};
use fedsa_experiment::excerpt::harmless;
use fedsa_experiment::made::Changes;
use fedsa_experiment::numbers;
use fedsa_experiment::tables::SummaryTable;

use crate::args::{Overrides, TaskArgs};
use crate::error::ShownError;
use crate::hints;

/// The reason why standard output was lost, if it was.
static LOST: Mutex<Option<String>> = Mutex::new(None);

/// Prints a line, with control characters escaped, because names in it may come from files. A reader that has ended (`| head`) is ignored;
/// any other write failure is reported at the end ([`lost_output`]).
pub fn say(line: impl Display) {
    write_out(format!("{}\n", harmless(&line.to_string())).as_bytes());
}

/// Prints a value as JSON, with control characters of its strings escaped. Parts that are made while writing are not stored.
pub fn say_json(value: &impl serde::Serialize) {
    let mut out = Escaping(BufWriter::new(std::io::stdout().lock()));
    let written = serde_json::to_writer_pretty(&mut out, value).map_err(std::io::Error::from);
    lose(written.and_then(|()| out.0.write_all(b"\n")).and_then(|()| out.0.flush()));
}

/// Writes pieces of JSON, each of whole characters, with control characters escaped.
struct Escaping<W>(W);

impl<W: Write> Write for Escaping<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let text = std::str::from_utf8(bytes).map_err(|e| std::io::Error::new(ErrorKind::InvalidData, e))?;
        let mut plain = 0;
        for (at, c) in text.char_indices().filter(|(_, c)| is_control(*c) && *c != '\n') {
            self.0.write_all(&bytes[plain..at])?;
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                write!(self.0, "\\u{unit:04x}")?;
            }
            plain = at + c.len_utf8();
        }
        self.0.write_all(&bytes[plain..])?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

/// Writes bytes to standard output, as [`say`].
pub fn write_out(bytes: &[u8]) {
    let mut out = std::io::stdout().lock();
    lose(out.write_all(bytes).and_then(|()| out.flush()));
}

/// Records that standard output was lost. A reader that has ended is no loss.
fn lose(written: std::io::Result<()>) {
    if let Err(e) = written
        && e.kind() != ErrorKind::BrokenPipe
    {
        LOST.lock().expect("no panics under the lock").get_or_insert_with(|| e.to_string());
    }
}

/// The failure of a command whose standard output was lost, for example to a full disk.
pub fn lost_output() -> Option<Error> {
    let why = LOST.lock().expect("no panics under the lock").take()?;
    let what = format!("standard output could not be written: {why}");
    Some(Error::machine(what, "what was printed is incomplete; files that the command wrote are complete"))
}

/// Refuses a target of a single file, named by the option `key`, that must not be replaced, or whose folder does not exist.
///
/// # Errors
/// As described.
pub fn may_write(key: &str, path: &Path, overwrite: bool) -> Result<(), Error> {
    let folder = atomic::folder_of(path);
    if !folder.is_dir() {
        return Err(Error::new(key, format!("there is no folder {}", folder.display()), "a file in an existing folder"));
    }
    match atomic::at(path) {
        Ok(None) => Ok(()),
        Ok(Some(found)) if found.is_file() && overwrite => Ok(()),
        Ok(Some(found)) if found.is_file() => {
            let help = "another path, --overwrite to replace the file, or - for standard output";
            Err(Error::new(key, format!("{} exists already", path.display()), help))
        }
        Ok(Some(found)) => {
            let what = format!("{} is {}, which is not replaced", path.display(), atomic::kind_of(&found));
            Err(Error::new(key, what, "the path of a regular file, or - for standard output"))
        }
        Err(e) => Err(Error::new(key, format!("{}: {e}", path.display()), "a path that you may write to")),
    }
}

/// Prints a line to standard error, with control characters escaped as in [`say`].
pub fn warn(line: impl Display) {
    let _ = writeln!(std::io::stderr(), "{}", harmless(&line.to_string()));
}

/// Prints an error.
pub fn complain(e: Error) {
    // The message is already escaped; its colour codes must not be.
    let _ = writeln!(std::io::stderr(), "{:?}", miette::Report::new(ShownError::from(e)));
}

/// The largest experiment file, in bytes. Its tree takes about forty times as much memory; 100,000 sweep values take two million bytes.
const LARGEST: u64 = 16_000_000;

/// Reads an experiment file with its overrides. Returns also the base folder of its paths.
/// The file `-` is standard input, with paths relative to the working directory.
///
/// # Errors
/// When it cannot be read or is not a valid experiment.
pub fn load(path: &Path, overrides: &Overrides, quick: bool, kinds: &Kinds) -> Result<(Experiment, PathBuf), Error> {
    let (name, base) = match path.as_os_str() == STDIN {
        true => ("stdin".to_string(), PathBuf::new()),
        false => (path.display().to_string(), path.parent().map_or_else(PathBuf::new, Path::to_path_buf)),
    };
    let accepted = "the path of an experiment file (TOML), or - for standard input";
    let unreadable = |e: std::io::Error| Error::new(quoted(&name), format!("cannot be read: {e}"), accepted);
    let mut bytes = Vec::new();
    let read = match path.as_os_str() == STDIN {
        true => std::io::stdin().lock().take(LARGEST + 1).read_to_end(&mut bytes),
        false => regular::read(path, LARGEST).map(|read| {
            bytes = read;
            bytes.len()
        }),
    };
    read.map_err(unreadable)?;
    if bytes.len() as u64 > LARGEST {
        let what = format!("more than {} MB", LARGEST / 1_000_000);
        return Err(Error::new(quoted(&name), what, "an experiment file; large arrays belong in an .npz, for kind = \"file\""));
    }
    let text = String::from_utf8(bytes).map_err(|e| {
        let good = e.utf8_error().valid_up_to();
        let line = 1 + e.as_bytes()[..good].iter().filter(|byte| **byte == b'\n').count();
        Error::new(quoted(&name), format!("line {line} is not UTF-8"), "text in UTF-8")
    })?;
    Ok((parse(&name, &text, overrides, quick, kinds)?, base))
}

/// The path of standard input.
const STDIN: &str = "-";

/// Reads the text of an experiment with its overrides.
///
/// # Errors
/// When it is not a valid experiment, with or without its quick settings.
pub fn parse(name: &str, text: &str, overrides: &Overrides, quick: bool, kinds: &Kinds) -> Result<Experiment, Error> {
    let document = Document::parse(name, text)?.with_kinds(kinds);
    let with = |quick: bool| {
        let mut document = document.clone();
        if quick {
            document.make_quick()?;
        }
        apply(overrides, &mut document)?;
        Experiment::read(document)
    };
    let experiment = with(quick)?;
    if !quick && overrides.is_empty() && document.table.contains_key("quick") {
        experiment.settings()?;
        with(true)?.settings()?;
    }
    Ok(experiment)
}

/// Applies the options of the command line that set keys.
///
/// # Errors
/// When an option names no table of the file.
pub fn apply(overrides: &Overrides, document: &mut Document) -> Result<(), Error> {
    for key in &overrides.unset {
        unset(document, key)?;
    }
    for assignment in &overrides.set {
        set(document, assignment)?;
    }
    for assignment in &overrides.sweep {
        sweep(document, assignment)?;
    }
    for (name, value) in [("seeds", overrides.seeds), ("rounds", overrides.rounds)] {
        if let Some(n) = value {
            reader::check_before_replacing(document, name)?;
            let option = format!("--{name}");
            let by = Caller::new(format!("{option} {n}"), WORDS);
            document.set(&format!("run.{name}={n}"), by).map_err(|e| hints::of_option(&option, e))?;
        }
    }
    Ok(())
}

/// The options that set and remove keys of an experiment file.
const WORDS: Words = Words { set: "--set ", remove: "--unset " };

/// Applies `--set`.
///
/// # Errors
/// As [`Document::set`].
pub fn set(document: &mut Document, assignment: &str) -> Result<(), Error> {
    let by = Caller::new(format!("--set {}", quoted(assignment)), WORDS);
    document.set(assignment, by).map_err(|e| hints::of_option("--set", e))
}

/// Applies `--unset`.
///
/// # Errors
/// As [`Document::unset`].
pub fn unset(document: &mut Document, key: &str) -> Result<(), Error> {
    let by = Caller::new(format!("--unset {}", quoted(key)), WORDS);
    document.unset(key, by).map_err(|e| hints::of_option("--unset", e))
}

/// Applies `--sweep`.
///
/// # Errors
/// As [`Document::add_sweep`].
pub fn sweep(document: &mut Document, assignment: &str) -> Result<(), Error> {
    let by = Caller::new(format!("--sweep {}", quoted(assignment)), WORDS);
    document.add_sweep(assignment, by).map_err(|e| hints::of_option("--sweep", e))
}

/// The changes that `--set` makes in the experiment of a command's options.
pub fn changes(task: &TaskArgs) -> Changes {
    changes_of(&task.set)
}

/// The changes of these keys with their values.
fn changes_of(set: &[String]) -> Changes {
    let set = Overrides { set: set.to_vec(), ..Overrides::default() };
    Changes::new(move |document| apply(&set, document))
}

/// The lines of a table with its title and notes.
fn table_lines(table: &SummaryTable) -> Vec<String> {
    let title = format!("{}:", table.title);
    let below = table.lines().into_iter().chain(table.notes.iter().cloned()).map(|line| format!("  {line}"));
    std::iter::once(title).chain(below).collect()
}

/// The error about a missing setting of a method that options name. It names the option with this help, if any, otherwise the key.
fn lacking<'m>(e: Error, methods: impl IntoIterator<Item = &'m String>, options: &[(&str, &str)]) -> Error {
    let at = |key: &str| key.strip_prefix("method[")?.split_once("].").and_then(|(i, key)| Some((i.parse().ok()?, key.to_string())));
    let Some((i, key)) = at(&e.key).filter(|_| e.code() == ErrorCode::MissingKey) else { return e };
    let name = methods.into_iter().nth(i).map_or("the method".into(), quoted);
    let e = e.coded(ErrorCode::Setting).saying(format!("{name} needs it"));
    match options.iter().find(|(option, _)| *option == key) {
        Some((_, help)) => e.about(key).helped(*help),
        None => e.about("set").helped(format!("--set method.{name}.{key}=VALUE")),
    }
}

/// A count with its noun: `1 method`, `2 methods`.
pub fn count(n: usize, thing: &str) -> String {
    format!("{n} {thing}{}", if n == 1 { "" } else { "s" })
}

/// A number of bits for people: `12.5 Mbit`.
pub fn megabits(bits: f64) -> String {
    if bits < 1e9 { format!("{} Mbit", numbers::digits(bits / 1e6, 3)) } else { format!("{} Gbit", numbers::digits(bits / 1e9, 3)) }
}

/// A duration in seconds as text.
pub fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 1.0 => "less than a second".into(),
        s if s < 90.0 => format!("about {s:.0} s"),
        s if s < 5400.0 => format!("about {:.0} min", s / 60.0),
        s if s < 48.0 * 3600.0 => format!("about {:.1} h", s / 3600.0),
        s => format!("about {:.0} days", s / 86400.0),
    }
}
