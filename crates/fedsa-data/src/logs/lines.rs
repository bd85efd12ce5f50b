//! Logs in CSV or TSV: a transition on each line.

use std::panic::resume_unwind;
use std::thread;

use fedsa::error::{Error, Result, quoted};
use fedsa::problem::log::LoggedActions;
use fedsa::problem::log_form::{LogForm, RowPlace};

use super::ahead::{self, Ahead};
use super::layout::{ACTION, FLAGS, Layout, WHOLE, action_number, flag, whole_number};
use super::ratios::{BEHAVIOUR, OF_TAKEN, RATIO, RatioColumns, TARGET, contradicts, quotient, ratio};
use super::told::{Rows, Told};
use crate::decimals::Decimals;
use crate::separated::Opened;
use crate::store::Store;
use crate::{field, input, separated};

/// The name of the reading thread.
const THREAD: &str = "fedsa-csv";

/// Opens a log, and reads the names of its columns.
pub(super) fn open_csv(file: &Store) -> Result<Opened> {
    separated::open(input::open(file)?)
}

/// What stands for a number that is missing.
const MISSING: [&str; 5] = ["", "nan", "na", "null", "none"];

/// Whether a next state is missing: after a terminal one there is none, and many logs have an empty field there.
fn is_missing(text: &str) -> bool {
    MISSING.iter().any(|word| text.eq_ignore_ascii_case(word))
}

/// A field that is not what its column needs: the place of the column, and what it needs.
struct BadField(usize, &'static str);

/// Reads a log in CSV or TSV. Lines are read on a thread of their own while the caller's thread sees the batch before.
pub(super) fn read_csv(file: &Store, form: &LogForm, name: &str, most: usize, see: &mut dyn FnMut(&Rows) -> Result<()>) -> Result<Told> {
    let (ahead, behind) = ahead::both();
    thread::scope(|scope| {
        let read = move || read_lines(file, form, name, most, &ahead);
        let spawned = thread::Builder::new().name(THREAD.into()).spawn_scoped(scope, read);
        // Without a thread there is nothing to see: what would have sent it is dropped.
        let seen = behind.see(see);
        let read = match spawned {
            Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            Err(e) => Err(Error::machine(format!("no thread to read it on: {e}"), "memory for one more thread")),
        };
        seen.and(read)
    })
}

fn read_lines(file: &Store, form: &LogForm, name: &str, most: usize, ahead: &Ahead) -> Result<Told> {
    let Opened { mut reader, names, decimals } = open_csv(file)?;
    let layout = Layout::new(&names, form)?;
    let most = layout.batch(most);
    let new = || Rows::new(layout.empty(name));
    let mut rows = new();
    let mut told = Told::default();
    let mut record = csv::StringRecord::new();
    loop {
        reader.get_mut().begin();
        match reader.read_record(&mut record) {
            Ok(false) => break,
            Ok(true) => {
                let n = rows.log.len();
                if let Err(BadField(i, wanted)) = add_record(&mut rows, &mut told, &layout, &record, &decimals) {
                    let line = separated::line_of(&reader, &record);
                    let field = field::in_words(record[i].trim());
                    let column = format!("column `{}`", quoted(&names[i]));
                    if !layout.skips {
                        let what = format!("line {line}, {column}: {field} is not {wanted}");
                        return Err(Error::data("", what, format!("{wanted} on every line")));
                    }
                    rows.truncate(n);
                    let key = key_of(&record, &layout, &mut told);
                    told.leave_out(format!("{column}: not {wanted}"), RowPlace::Line(line), key);
                }
            }
            Err(e) => {
                let Some(reason) = why_left_out(&e, &record).filter(|_| layout.skips) else {
                    return Err(separated::bad_line(&e, &reader, &record));
                };
                told.leave_out(reason.into(), RowPlace::Line(separated::line_of(&reader, &record)), None);
            }
        }
        decimals.check(|| separated::line_of(&reader, &record))?;
        if rows.log.len() == most {
            // An error is that of the one who sees.
            if !ahead.hand_on(rows) {
                return Ok(told);
            }
            rows = ahead.batch(new);
            rows.truncate(0);
        }
    }
    decimals.finish()?;
    if !rows.log.is_empty() {
        ahead.hand_on(rows);
    }
    Ok(told)
}

/// Why a line that is no record may be left out; `None` of those that show that the whole file is not what it should be.
fn why_left_out(e: &csv::Error, record: &csv::StringRecord) -> Option<&'static str> {
    match e.kind() {
        csv::ErrorKind::UnequalLengths { .. } if separated::spans_lines(record) => None,
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } if len < expected_len => Some("too few fields"),
        csv::ErrorKind::UnequalLengths { .. } => Some("too many fields"),
        csv::ErrorKind::Utf8 { .. } => Some("not UTF-8"),
        _ => None,
    }
}

/// The agent and the environment of a line, if it names them.
fn key_of(record: &csv::StringRecord, layout: &Layout, told: &mut Told) -> Option<[u32; 2]> {
    let texts = layout.keys.map(|column| column.map_or("-", |column| record[column].trim()));
    let is_known = texts.iter().all(|text| !text.is_empty());
    is_known.then(|| [0, 1].map(|i| layout.keys[i].map_or(0, |_| told.names[i].number(texts[i]))))
}

/// Adds the transition of a line.
fn add_record(
    rows: &mut Rows,
    told: &mut Told,
    layout: &Layout,
    record: &csv::StringRecord,
    decimals: &Decimals,
) -> std::result::Result<(), BadField> {
    // The reader has checked that every line has a field for every name. Fields are trimmed here, because the reader would
    // copy every line to trim it.
    let text = |i: usize| record[i].trim();
    let finite = |i: usize| field::number(&decimals.number(text(i)));
    let number = |i: usize| finite(i).ok_or(BadField(i, "a finite number"));
    let flag = |i: usize| match text(i) {
        text if text.eq_ignore_ascii_case("true") => Ok(true),
        text if text.eq_ignore_ascii_case("false") => Ok(false),
        text => text.parse().ok().and_then(flag).ok_or(BadField(i, FLAGS)),
    };
    let log = &mut rows.log;
    for &i in &layout.states {
        log.states.push(number(i)?);
    }
    log.rewards.push(number(layout.reward)?);
    log.done.push(flag(layout.done)?);
    let is_terminal = log.done[log.done.len() - 1];
    let first = log.states.len() - layout.states.len();
    for (&i, k) in layout.next.iter().zip(first..) {
        log.next.push(if is_terminal && is_missing(text(i)) { log.states[k] } else { number(i)? });
    }
    if let (Some(i), Some(truncated)) = (layout.truncated, &mut log.truncated) {
        truncated.push(flag(i)?);
    }
    if let (Some(i), Some(episodes)) = (layout.episode, &mut log.episode) {
        episodes.push(finite(i).and_then(whole_number).ok_or(BadField(i, WHOLE))?);
    }
    if let (Some(i), Some(ratios)) = (layout.ratio, &mut log.ratio) {
        ratios.push(ratio_of(i, &finite)?);
    }
    if let (Some(columns), Some(actions)) = (&layout.actions, &mut log.actions) {
        actions.taken.push(finite(columns.taken).and_then(action_number).ok_or(BadField(columns.taken, ACTION))?);
        for (columns, out) in [(&columns.here, &mut actions.here), (&columns.next, &mut actions.next)] {
            for &i in columns {
                out.push(number(i)?);
            }
        }
        check_target(layout.ratio, actions, &finite)?;
    }
    for (i, wanted) in [(0, "the name of an agent"), (1, "the name of an environment")] {
        if let Some(column) = layout.keys[i] {
            if text(column).is_empty() {
                return Err(BadField(column, wanted));
            }
            rows.keys[i].push(told.names[i].number(text(column)));
        }
    }
    if layout.skips {
        let breaks = told.break_before(rows.key(rows.log.done.len() - 1));
        rows.log.breaks.get_or_insert_default().push(breaks);
    }
    Ok(())
}

/// Refuses a probability of the last action that contradicts those of all actions.
fn check_target(
    columns: Option<RatioColumns>,
    actions: &LoggedActions,
    finite: &dyn Fn(usize) -> Option<f64>,
) -> std::result::Result<(), BadField> {
    let Some(RatioColumns::Probabilities { target, .. }) = columns else { return Ok(()) };
    let (law, taken) = (&actions.here[actions.here.len() - actions.count..], actions.taken[actions.taken.len() - 1]);
    let is_wrong = finite(target).is_some_and(|p| contradicts(p, law, taken));
    if is_wrong { Err(BadField(target, OF_TAKEN)) } else { Ok(()) }
}

/// The ratio of a line, or that of its probabilities.
fn ratio_of(columns: RatioColumns, finite: &dyn Fn(usize) -> Option<f64>) -> std::result::Result<f64, BadField> {
    match columns {
        RatioColumns::Ratio(i) => finite(i).and_then(ratio).ok_or(BadField(i, RATIO)),
        RatioColumns::Probabilities { target, behaviour } => {
            let of = |i: usize, wanted: &'static str| finite(i).ok_or(BadField(i, wanted));
            let found = quotient(of(target, TARGET)?, of(behaviour, BEHAVIOUR)?);
            found.map_err(|(place, wanted)| BadField([target, behaviour][place], wanted))
        }
    }
}

/// Calls `see` with the episodes of all lines that have one.
pub(super) fn each_episode(file: &Store, column: usize, see: &mut dyn FnMut(i64)) -> Result<()> {
    let Opened { mut reader, .. } = open_csv(file)?;
    let mut record = csv::ByteRecord::new();
    loop {
        reader.get_mut().begin();
        match reader.read_byte_record(&mut record) {
            Ok(true) => (),
            // What cannot be read is refused where transitions are.
            Err(e) if matches!(e.kind(), csv::ErrorKind::UnequalLengths { .. }) => continue,
            Ok(false) | Err(_) => return Ok(()),
        }
        let text = record.get(column).and_then(|field| std::str::from_utf8(field).ok());
        if let Some(episode) = text.and_then(|text| field::number(text.trim())).and_then(whole_number) {
            see(episode);
        }
    }
}
