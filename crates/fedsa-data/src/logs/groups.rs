//! Logs whose rows are reordered: several agents in one file, interleaved environments, and interleaved episodes. Such logs are in
//! memory as a whole.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use fedsa::error::{Error, Result, quoted};
use fedsa::note::NoteCode;
use fedsa_problems::logs::log::{Break, Log};
use fedsa_problems::logs::log_form::{LeftOutRows, LogForm, RowPlace};

use super::first_pass::{FirstPass, Names, Rows};
use super::following::{self, paired};
use super::format::{BATCH, Format};
use super::layout::row_bytes;
use crate::find::natural_order;
use crate::input::Room;
use crate::memory::MemoryTable;
use crate::memory_log::MemoryLog;
use crate::store::Store;
use crate::{about, name_of, shown};

/// An agent's log, with the file that has its first row.
pub(super) struct Arranged {
    pub log: MemoryLog,
    pub path: PathBuf,
}

/// A table read as a whole. Errors name its path; for a table in memory this is its name.
pub(super) struct Whole<'a> {
    pub path: PathBuf,
    pub rows: WholeRows<'a>,
}

/// The source of the rows of a table.
pub(super) enum WholeRows<'a> {
    File(Format, Open<'a>),
    Memory(&'a MemoryTable<'a>),
}

impl<'a> Whole<'a> {
    /// The table of a file.
    pub fn file(path: &Path, format: Format, open: Open<'a>) -> Self {
        Self { path: path.to_path_buf(), rows: WholeRows::File(format, open) }
    }

    /// Calls `see` with all transitions, in batches.
    fn read(&self, form: &LogForm, see: &mut dyn FnMut(&Rows, &mut Room) -> Result<()>) -> Result<FirstPass> {
        match self.rows {
            WholeRows::File(format, open) => {
                let store = open(&self.path)?;
                let mut room = Room::of(store.len());
                format.read(store, form, "", BATCH, &mut |rows| see(rows, &mut room))
            }
            WholeRows::Memory(table) => {
                let mut room = Room::of(0);
                table.each_rows(form, &mut |rows| see(rows, &mut room))
            }
        }
    }
}

/// The report on the omitted rows of a file.
pub(super) fn left_out_of(path: &Path, told: &FirstPass) -> Vec<LeftOutRows> {
    let of = |(reason, rows, first): &(String, usize, RowPlace)| LeftOutRows {
        file: shown(name_of(path)),
        reason: reason.clone(),
        rows: *rows,
        first: *first,
        code: NoteCode::RowsLeftOut,
    };
    told.left_out.iter().map(of).collect()
}

/// All rows of several files, in memory.
struct Gathered {
    rows: Rows,
    /// The agents; one without a name if no column names them.
    agents: Names,
    /// The file of each environment.
    file_of: Vec<usize>,
    left_out: Vec<LeftOutRows>,
    /// Whether rows have no next states.
    next_follows: bool,
}

/// The function that opens a file.
pub(super) type Open<'a> = &'a dyn Fn(&Path) -> Result<Store>;

/// Reads whole tables. Environments of different tables are different, even if they have the same name.
fn gather(tables: &[Whole<'_>], form: &LogForm) -> Result<Gathered> {
    let mut all: Option<Rows> = None;
    let (mut agents, mut file_of, mut left_out) = (Names::default(), Vec::new(), Vec::new());
    for (number, table) in tables.iter().enumerate() {
        let first = all.as_ref().map_or(0, |all| all.log.len());
        let read = table.read(form, &mut |rows, room| {
            // Memory for the rows of all agents, for one agent's rows, and for the ordered rows.
            room.take(4 * rows.log.len() * (row_bytes(rows.log.columns.len()) + 8), || "rows of several agents or environments".into())?;
            let all = match &mut all {
                None => all.insert(Rows::new(rows.log.clone())),
                Some(all) => {
                    check_same_columns(&all.log, &rows.log)?;
                    all.log.append(&rows.log);
                    all
                }
            };
            for row in 0..rows.log.len() {
                all.keys.iter_mut().zip(rows.key(row)).for_each(|(keys, key)| keys.push(key));
            }
            Ok(())
        });
        let told = read.map_err(|e| about(&table.path, e))?;
        left_out.extend(left_out_of(&table.path, &told));
        // Converts the numbers of agents and environments in this table to numbers among all tables.
        let names: Vec<u32> = told.names[0].all.iter().map(|name| agents.number(name)).collect();
        let before = file_of.len() as u32;
        file_of.resize(file_of.len() + told.names[1].all.len().max(1), number);
        if let Some(Rows { keys: [agent, env], .. }) = &mut all {
            agent[first..].iter_mut().for_each(|agent| *agent = names.get(*agent as usize).copied().unwrap_or(0));
            env[first..].iter_mut().for_each(|env| *env += before);
        }
    }
    let mut rows =
        all.ok_or_else(|| about(&tables[0].path, Error::data("", "a log without transitions", "an agent needs at least one transition")))?;
    let next_follows = rows.log.next.is_empty();
    if next_follows {
        rows.log.next.clone_from(&rows.log.states);
    }
    Ok(Gathered { rows, agents, file_of, left_out, next_follows })
}

/// Rejects a file whose columns differ from earlier files.
fn check_same_columns(first: &Log, other: &Log) -> Result<()> {
    let optional = |log: &Log| {
        [
            ("next_*", !log.next.is_empty()),
            ("truncated", log.truncated.is_some()),
            ("episode", log.episode.is_some()),
            ("ratio", log.ratio.is_some()),
            ("action", log.actions.is_some()),
            ("behaviour", log.actions.as_ref().is_some_and(|actions| !actions.behaviour.is_empty())),
        ]
    };
    let differs = optional(first).into_iter().zip(optional(other)).find(|(a, b)| a != b);
    if first.columns != other.columns {
        let what = format!(
            "its state columns are {}, and those of the files before are {}",
            quoted(other.columns.join(", ")),
            quoted(first.columns.join(", "))
        );
        return Err(Error::data("", what, "files with the same columns"));
    }
    match differs {
        None => Ok(()),
        Some(((name, is_there), _)) => {
            let what = if is_there { "no column" } else { "a column" };
            Err(Error::data("", format!("it has {what} `{name}`, unlike the files before"), "files with the same columns"))
        }
    }
}

/// The logs of the agents named in a column, in natural order of the names.
///
/// # Errors
/// When a file cannot be read, files have different columns, or as [`arranged`].
pub(super) fn by_agent(tables: &[Whole<'_>], form: &LogForm) -> Result<Vec<Arranged>> {
    let Gathered { rows, agents, file_of, mut left_out, next_follows } = gather(tables, form)?;
    let mut rows_of: Vec<Vec<usize>> = vec![Vec::new(); agents.all.len()];
    rows.keys[0].iter().enumerate().for_each(|(row, agent)| rows_of[*agent as usize].push(row));
    let mut order: Vec<usize> = (0..agents.all.len()).filter(|agent| !rows_of[*agent].is_empty()).collect();
    order.sort_by(|a, b| natural_order(&agents.all[*a], &agents.all[*b]));
    let mut all = Vec::new();
    for agent in order {
        let (name, of) = (&agents.all[agent], &rows_of[agent]);
        let path = &tables[file_of[rows.keys[1][of[0]] as usize]].path;
        let envs: Vec<u32> = of.iter().map(|row| rows.keys[1][*row]).collect();
        let arranged = arranged(&rows.log.rows(of), &envs, next_follows);
        let (mut log, more) = arranged.map_err(|e| about(path, e.prefixed(format!("agent `{}`", quoted(name)))))?;
        log.name.clone_from(name);
        let mut left_out = std::mem::take(&mut left_out);
        left_out.extend(dropped(path, &more.iter().map(|row| of[*row]).collect::<Vec<_>>()));
        all.push(Arranged { log: MemoryLog { log, left_out, next_follows }, path: path.clone() });
    }
    Ok(all)
}

/// The log of a table with one agent.
///
/// # Errors
/// As [`by_agent`].
pub(super) fn of_one(table: &Whole<'_>, form: &LogForm, name: &str) -> Result<Arranged> {
    let Gathered { rows, file_of, mut left_out, next_follows, .. } = gather(std::slice::from_ref(table), form)?;
    let mut interleaving = Interleaving::default();
    rows.log.episode.iter().flatten().for_each(|episode| interleaving.see(*episode));
    let is_in_order = file_of.len() == 1 && !next_follows && !interleaving.comes_back();
    let (mut log, more) = match is_in_order {
        true => (rows.log, Vec::new()),
        false => arranged(&rows.log, &rows.keys[1], next_follows).map_err(|e| about(&table.path, e))?,
    };
    log.name = name.into();
    left_out.extend(dropped(&table.path, &more));
    Ok(Arranged { log: MemoryLog { log, left_out, next_follows }, path: table.path.clone() })
}

/// The report on the agent's omitted rows, which have no next state; `rows` are their numbers in the file.
fn dropped(path: &Path, rows: &[usize]) -> Option<LeftOutRows> {
    following::left_out(shown(name_of(path)), rows)
}

/// Reorders one agent's rows from the order of logging, so that the rows of an environment follow each other, and within it the rows of
/// an episode. Episodes get new numbers. If `next_follows`, rows without a next state are omitted; the second result lists them.
///
/// # Errors
/// When the rows of an interrupted episode do not continue each other.
pub(super) fn arranged(log: &Log, envs: &[u32], next_follows: bool) -> Result<(Log, Vec<usize>)> {
    let episodes = episodes_of(log, envs);
    let mut first_of: HashMap<u32, (usize, usize)> = HashMap::new();
    let mut places = Vec::with_capacity(envs.len());
    for (row, env) in envs.iter().enumerate() {
        let (_, count) = first_of.entry(*env).or_insert((row, 0));
        places.push(*count);
        *count += 1;
    }
    let mut order: Vec<usize> = (0..log.len()).collect();
    // Stable: the rows of an episode keep their order.
    order.sort_by_key(|row| (first_of[&envs[*row]].0, episodes.as_ref().map_or(0, |episodes| episodes[*row])));
    for pair in order.windows(2).filter(|_| !next_follows) {
        check_goes_on(log, (pair[0], pair[1]), &places, episodes.as_deref())?;
    }
    let mut all = log.rows(&order);
    all.episode = episodes.map(|episodes| order.iter().map(|row| episodes[*row]).collect());
    let begins: Vec<usize> = (1..order.len()).filter(|i| envs[order[*i]] != envs[order[i - 1]]).collect();
    if !begins.is_empty() {
        let breaks = all.breaks.get_or_insert_with(|| vec![Break::None; order.len()]);
        for i in begins {
            if breaks[i] == Break::None {
                breaks[i] = Break::Stream;
            }
        }
    }
    let out = if next_follows { paired(&mut all) } else { Vec::new() };
    if out.is_empty() {
        return Ok((all, out));
    }
    // The break before an omitted row moves to the next row: it is an end.
    let keep = |row: usize| out.binary_search(&row).is_err();
    Ok((all.filtered(keep), out.iter().map(|row| order[*row]).collect()))
}

/// The number of each row's episode: a new one for each number within an environment, and after an episode's end.
fn episodes_of(log: &Log, envs: &[u32]) -> Option<Vec<i64>> {
    let numbers = log.episode.as_ref()?;
    let mut known: HashMap<(u32, i64), i64> = HashMap::new();
    let mut count = 0;
    let mut all = Vec::with_capacity(numbers.len());
    for (row, (number, env)) in numbers.iter().zip(envs).enumerate() {
        let key = (*env, *number);
        let episode = *known.entry(key).or_insert_with(|| {
            count += 1;
            count - 1
        });
        all.push(episode);
        if log.done[row] || log.truncated.as_ref().is_some_and(|truncated| truncated[row]) {
            known.remove(&key);
        }
    }
    Some(all)
}

/// Rejects two rows of an episode with other rows between them, if the second does not begin in the state after the first. `places` are
/// the positions of rows within their environments.
fn check_goes_on(log: &Log, (row, next): (usize, usize), places: &[usize], episodes: Option<&[i64]>) -> Result<()> {
    let (Some(episodes), Some(numbers)) = (episodes, &log.episode) else { return Ok(()) };
    let is_interrupted = episodes[row] == episodes[next] && places[next] != places[row] + 1;
    if !is_interrupted || log.break_before(next) != Break::None || log.next_state(row) == log.state(next) {
        return Ok(());
    }
    let number = numbers[next];
    let what = format!("row {next}, `episode`: episode {number} goes on after another one, in another state than row {row} led to");
    Err(Error::data(
        "",
        what,
        "episodes with numbers of their own; where environments are side by side a column `env`, where agents are `agent_column`",
    ))
}

/// Whether an episode of a file continues after another one.
///
/// # Errors
/// When the file cannot be read.
pub(super) fn is_interleaved(store: &Store, format: Format, column: usize) -> Result<bool> {
    let mut interleaving = Interleaving::default();
    format.each_episode(store, column, &mut |episode| interleaving.see(episode))?;
    Ok(interleaving.comes_back())
}

/// The episodes of rows, to detect whether one continues after another.
#[derive(Debug, Default)]
pub(super) struct Interleaving {
    last: Option<i64>,
    most: Option<i64>,
    has_fallen: bool,
    seen: Vec<i64>,
}

impl Interleaving {
    /// Adds the episode of the next row.
    pub fn see(&mut self, episode: i64) {
        if self.last != Some(episode) {
            self.last = Some(episode);
            self.has_fallen |= self.most.is_some_and(|most| episode <= most);
            self.most = self.most.max(Some(episode));
            self.seen.push(episode);
        }
    }

    /// Whether an episode continues after another.
    pub fn comes_back(mut self) -> bool {
        let count = self.seen.len();
        self.has_fallen && {
            self.seen.sort_unstable();
            self.seen.dedup();
            self.seen.len() < count
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two interleaved environments, which reset in a separate step: states 0, 1, 2, an end, and 0 again.
    fn vector() -> (Log, Vec<u32>) {
        let steps = [(0.0, 1.0, 1.0, false), (1.0, 2.0, 1.0, true), (2.0, 0.0, 0.0, false), (0.0, 1.0, 1.0, false)];
        let rows: Vec<(u32, (f64, f64, f64, bool))> = steps.iter().flat_map(|step| [(0, *step), (1, *step)]).collect();
        let log = Log {
            name: String::new(),
            columns: vec!["s_0".into()],
            states: rows.iter().map(|row| row.1.0).collect(),
            next: rows.iter().map(|row| row.1.1).collect(),
            rewards: rows.iter().map(|row| row.1.2).collect(),
            done: rows.iter().map(|row| row.1.3).collect(),
            truncated: None,
            breaks: None,
            episode: None,
            ratio: None,
            actions: None,
        };
        (log, rows.iter().map(|row| row.0).collect())
    }

    #[test]
    fn rows_of_an_environment_follow_each_other() {
        let (log, envs) = vector();
        let (all, left_out) = arranged(&log, &envs, false).unwrap();
        assert_eq!((&left_out[..], &all.states[..]), (&[][..], &[0.0, 1.0, 2.0, 0.0, 0.0, 1.0, 2.0, 0.0][..]));
        let breaks = all.breaks.unwrap();
        assert_eq!((0..8).filter(|row| breaks[*row] != Break::None).collect::<Vec<_>>(), [4]);
        assert_eq!(breaks[4], Break::Stream);
    }

    #[test]
    fn episodes_side_by_side_are_put_in_order_and_numbered() {
        let (mut log, envs) = vector();
        log.episode = Some(vec![0, 1, 0, 1, 2, 3, 2, 3]);
        let (all, _) = arranged(&log, &[0; 8], false).unwrap();
        assert_eq!((all.episode.unwrap(), &all.states[..]), (vec![0, 0, 1, 1, 2, 2, 3, 3], &[0.0, 1.0, 0.0, 1.0, 2.0, 0.0, 2.0, 0.0][..]));
        // Separate numbers in each environment, and the same number again after an end.
        log.episode = Some(vec![0; 8]);
        let (all, _) = arranged(&log, &envs, false).unwrap();
        assert_eq!(all.episode.unwrap(), [0, 0, 2, 2, 1, 1, 3, 3]);
        log.episode = Some(vec![0, 1, 0, 1, 2, 3, 2, 3]);
        log.states[6] = 9.0;
        let e = arranged(&log, &[0; 8], false).unwrap_err().to_string();
        assert_eq!(e, "row 6, `episode`: episode 2 goes on after another one, in another state than row 4 led to");
    }
}
