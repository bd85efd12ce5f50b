//! Transition logs: one Parquet or CSV file per agent.
//!
//! Columns go by name: the state in `s_*` and the state that followed in
//! `next_*`, paired by what follows the prefix (`s_0` with `next_0`, `s_speed`
//! with `next_speed`); `reward`; `done` (true or false, or 1 or 0: the episode
//! terminated, not merely was cut short); optionally `episode` (an integer) and
//! `ratio` (an importance ratio, at least 0).
//! `action` and all other columns are not needed and not read. State columns
//! are in natural order of their names, whatever their order in the file.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use fedsa::error::{BadInput, Result, quoted};
use fedsa::problem::log::Log;

use super::find::{Places, extension_of, natural_order};
use super::parquet::contained;
use super::{about, listed, name_of, shown};

/// The extensions of the formats that logs come in.
pub const EXTENSIONS: [&str; 2] = ["parquet", "csv"];

const WANTED: &str = "the columns `s_*` and `next_*` in pairs, `reward` and `done`; optionally `episode` and `ratio`";

/// Reads the logs of all agents, in natural order of their paths (`agent_2`
/// before `agent_10`). A source is a path, a glob, a directory or the name of
/// a data set ([`Places::files`]). A log is named after its file, without the
/// extension if these names are distinct.
///
/// # Errors
/// When a source is not found, a file is listed twice or cannot be read, or two
/// files' state columns differ.
pub fn read(sources: &[String], places: &Places) -> Result<Vec<Log>> {
    let paths = paths_of(sources, places)?;
    let mut logs = paths.iter().map(|path| read_file(path)).collect::<Result<Vec<_>>>()?;
    for (log, name) in logs.iter_mut().zip(short_names(&paths)) {
        log.name = name;
    }
    Ok(logs)
}

/// The files of all sources, in natural order of their paths.
pub(super) fn paths_of(sources: &[String], places: &Places) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for source in sources {
        paths.extend(places.files(source, &EXTENSIONS)?);
    }
    paths.sort_by(|a, b| natural_order(&name_of(a), &name_of(b)));
    // The same file through another path or link is the same log.
    let mut seen: HashMap<PathBuf, &PathBuf> = HashMap::new();
    for path in &paths {
        let target = std::fs::canonicalize(path).unwrap_or_else(|_| path.clone());
        if let Some(first) = seen.insert(target, path) {
            let also = if first == path { String::new() } else { format!(", as {} too", shown(name_of(first))) };
            return Err(BadInput::new(shown(name_of(path)), format!("this log is given twice{also}"), "one log per agent"));
        }
    }
    Ok(paths)
}

/// Reads one agent's log, which is named by its path.
///
/// # Errors
/// When it cannot be read or is not a log.
pub fn read_file(path: &Path) -> Result<Log> {
    let from_bytes = match extension_of(path).as_deref() {
        Some("parquet") => from_parquet,
        Some("csv") => from_csv,
        _ => return Err(BadInput::new(shown(name_of(path)), "not a known format of logs", "a file with the extension .parquet or .csv")),
    };
    let log = from_bytes(super::read(path)?).map_err(|e| about(path, e))?;
    let log = Log { name: name_of(path), ..log };
    log.check()?;
    Ok(log)
}

/// The files' names without directory and extension, or their paths if two of these names
/// are equal.
pub(super) fn short_names(paths: &[PathBuf]) -> Vec<String> {
    let stems: Vec<String> = paths.iter().map(|path| path.file_stem().unwrap_or_default().to_string_lossy().into_owned()).collect();
    let all_differ = stems.iter().collect::<std::collections::BTreeSet<_>>().len() == stems.len();
    if all_differ { stems } else { paths.iter().map(|path| name_of(path)).collect() }
}

/// The positions of a log's columns in a file.
struct Layout {
    /// The names of the state columns.
    columns: Vec<String>,
    states: Vec<usize>,
    next: Vec<usize>,
    reward: usize,
    done: usize,
    episode: Option<usize>,
    ratio: Option<usize>,
}

impl Layout {
    fn new(names: &[String]) -> Result<Self> {
        let found = || {
            if names.is_empty() { "an empty file".into() } else { format!("the columns are {}", listed(names.iter().map(String::as_str))) }
        };
        let find = |name: &str| {
            let mut places = names.iter().enumerate().filter(|(_, other)| *other == name).map(|(i, _)| i);
            match (places.next(), places.next()) {
                (Some(_), Some(_)) => Err(BadInput::new("", format!("two columns are called `{}`", quoted(name)), WANTED)),
                (place, _) => Ok(place),
            }
        };
        let missing = |name: &str| BadInput::new("", format!("there is no column `{}`: {}", quoted(name), found()), WANTED);
        let require = |name: &str| find(name)?.ok_or_else(|| missing(name));

        let mut columns: Vec<String> = names.iter().filter(|name| name.starts_with("s_")).cloned().collect();
        columns.sort_by(|a, b| natural_order(a, b));
        if columns.is_empty() {
            return Err(missing("s_*"));
        }
        let after = |column: &String| column.replacen("s_", "next_", 1);
        let states = columns.iter().map(|column| require(column)).collect::<Result<_>>()?;
        let next = columns.iter().map(|column| require(&after(column))).collect::<Result<_>>()?;
        if let Some(suffix) =
            names.iter().filter_map(|name| name.strip_prefix("next_")).find(|suffix| !columns.contains(&format!("s_{suffix}")))
        {
            return Err(missing(&format!("s_{suffix}")));
        }
        let (reward, done) = (require("reward")?, require("done")?);
        Ok(Self { states, next, reward, done, episode: find("episode")?, ratio: find("ratio")?, columns })
    }
}

/// The flag `done` from a number, which must be 0 or 1.
fn flag(value: f64) -> Option<bool> {
    [(0.0, false), (1.0, true)].iter().find(|(number, _)| *number == value).map(|(_, flag)| *flag)
}

/// The number of an episode from a double.
fn whole(value: f64) -> Option<i64> {
    (value.fract() == 0.0 && value.abs() <= (1u64 << f64::MANTISSA_DIGITS) as f64).then_some(value as i64)
}

const FLAGS: &str = "true or false, or 1 or 0";
const WHOLE: &str = "a whole number";
const RATIO: &str = "a finite number that is at least 0";

/// A log (without a name) from the bytes of a Parquet file.
///
/// # Errors
/// When it is not a Parquet file, or columns are missing or of the wrong type; the
/// numbers themselves are not checked.
pub fn from_parquet(file: Vec<u8>) -> Result<Log> {
    contained(file, |file| {
        let names = file.names();
        let layout = Layout::new(&names)?;
        let in_column = |i: usize, e: BadInput| BadInput::new("", format!("column `{}`: {}", quoted(&names[i]), e.what), e.help);
        let numbers = |i: usize| file.numbers(i).map_err(|e| in_column(i, e));
        let rows = |columns: &[usize]| -> Result<Vec<f64>> {
            let columns = columns.iter().map(|&i| numbers(i)).collect::<Result<Vec<_>>>()?;
            Ok((0..file.rows()).flat_map(|row| columns.iter().map(move |column| column[row])).collect())
        };
        let not = |i: usize, row: usize, v: f64, wanted: &str| in_column(i, BadInput::new("", format!("row {row} is {v}"), wanted));
        let done = numbers(layout.done)?.into_iter().enumerate();
        let episode = |i: usize| -> Result<Vec<i64>> {
            let values = numbers(i)?.into_iter().enumerate();
            values.map(|(row, v)| whole(v).ok_or_else(|| not(i, row, v, WHOLE))).collect()
        };
        Ok(Log {
            name: String::new(),
            states: rows(&layout.states)?,
            rewards: numbers(layout.reward)?,
            next: rows(&layout.next)?,
            done: done.map(|(row, v)| flag(v).ok_or_else(|| not(layout.done, row, v, FLAGS))).collect::<Result<_>>()?,
            episode: layout.episode.map(episode).transpose()?,
            ratio: layout.ratio.map(numbers).transpose()?,
            columns: layout.columns,
        })
    })
}

/// A log (without a name) from the bytes of a CSV file with a header.
///
/// # Errors
/// When a line has too many or too few fields, or a field has the wrong type for its
/// column.
pub fn from_csv(file: Vec<u8>) -> Result<Log> {
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(&file[..]);
    let names: Vec<String> = reader.headers().map_err(|e| bad_line(&e))?.iter().map(str::to_string).collect();
    if let [only] = &names[..]
        && let Some(separator) = [';', '\t', '|'].into_iter().find(|c| only.contains(*c))
    {
        let what = format!("line 1 has a single field, `{}`", quoted(only));
        return Err(BadInput::new("", what, format!("fields that are separated by commas, not by {separator:?}")));
    }
    let layout = Layout::new(&names)?;
    let mut log = Log {
        name: String::new(),
        columns: layout.columns,
        states: Vec::new(),
        rewards: Vec::new(),
        next: Vec::new(),
        done: Vec::new(),
        episode: layout.episode.map(|_| Vec::new()),
        ratio: layout.ratio.map(|_| Vec::new()),
    };
    let mut record = csv::StringRecord::new();
    while reader.read_record(&mut record).map_err(|e| bad_line(&e))? {
        // The reader has checked that every line has a field for every name.
        let not = |i: usize, wanted: &str| {
            let (line, field) = (record.position().map_or(0, csv::Position::line), &record[i]);
            let what = if field.is_empty() { "nothing".into() } else { format!("`{}`", quoted(field)) };
            BadInput::new(
                "",
                format!("line {line}, column `{}`: {what} is not {wanted}", quoted(&names[i])),
                format!("{wanted} on every line"),
            )
        };
        let number = |i: usize| {
            let value = record[i].parse().ok().filter(|v: &f64| v.is_finite());
            value.ok_or_else(|| not(i, "a finite number"))
        };
        for &i in &layout.states {
            log.states.push(number(i)?);
        }
        for &i in &layout.next {
            log.next.push(number(i)?);
        }
        log.rewards.push(number(layout.reward)?);
        log.done.push(match record[layout.done].to_ascii_lowercase().as_str() {
            "true" => true,
            "false" => false,
            other => other.parse().ok().and_then(flag).ok_or_else(|| not(layout.done, FLAGS))?,
        });
        if let (Some(i), Some(episodes)) = (layout.episode, &mut log.episode) {
            episodes.push(number(i).ok().and_then(whole).ok_or_else(|| not(i, WHOLE))?);
        }
        if let (Some(i), Some(ratios)) = (layout.ratio, &mut log.ratio) {
            ratios.push(number(i).ok().filter(|rho| *rho >= 0.0).ok_or_else(|| not(i, RATIO))?);
        }
    }
    Ok(log)
}

pub(super) fn bad_line(e: &csv::Error) -> BadInput {
    let line = e.position().map_or(1, csv::Position::line);
    match e.kind() {
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            BadInput::new("", format!("line {line}: {len} fields, but the header has {expected_len}"), "as many fields on every line")
        }
        csv::ErrorKind::Utf8 { .. } => BadInput::new("", format!("line {line}: not UTF-8"), "text in UTF-8"),
        _ => BadInput::new("", format!("line {line}: {}", shown(e)), "comma-separated values with a header"),
    }
}

#[cfg(test)]
mod tests {
    use fedsa::linalg;
    use fedsa::problem::features::{FeatureMap, FeatureSpec, Ranges};

    use super::*;

    const CSV: &str = "episode,s_b,s_a,action,next_a,next_b,reward,done\n\
                       0, 1.5,2,0,3,4.25,-1,False\n\
                       1,-1e-3,0,1,5,6,0.5,1\n";

    fn expected() -> Log {
        Log {
            name: String::new(),
            columns: vec!["s_a".into(), "s_b".into()],
            states: vec![2.0, 1.5, 0.0, -1e-3],
            rewards: vec![-1.0, 0.5],
            next: vec![3.0, 4.25, 5.0, 6.0],
            done: vec![false, true],
            episode: Some(vec![0, 1]),
            ratio: None,
        }
    }

    fn csv_error(text: &str) -> String {
        let e = from_csv(text.into()).and_then(|log| log.check()).unwrap_err();
        assert!(!e.help.is_empty());
        e.to_string()
    }

    #[test]
    fn columns_go_by_name() {
        assert_eq!(from_csv(CSV.into()).unwrap(), expected());
        assert_eq!(from_csv(format!("\u{feff}{CSV}").into()).unwrap(), expected(), "a byte order mark");
        assert_eq!(from_csv(CSV.replace('\n', "\r\n").into()).unwrap(), expected());
    }

    #[test]
    fn what_is_wrong_with_a_csv_is_named_with_its_place() {
        assert_eq!(csv_error(""), "there is no column `s_*`: an empty file");
        assert_eq!(csv_error("s_0,next_0,reward,done\n"), "a log without transitions");
        assert_eq!(csv_error("s_0,next_0,done\n1,2,0\n"), "there is no column `reward`: the columns are `s_0`, `next_0`, `done`");
        assert_eq!(
            csv_error("s_0,s_1,next_0,reward,done\n"),
            "there is no column `next_1`: the columns are `s_0`, `s_1`, `next_0`, `reward`, `done`"
        );
        assert!(csv_error("s_0,next_0,next_1,reward,done\n").starts_with("there is no column `s_1`"));
        assert_eq!(csv_error("s_0,s_0,next_0,reward,done\n"), "two columns are called `s_0`");
        let head = "s_0,next_0,reward,done,episode\n0,0,0,0,0\n";
        for (line, message) in [
            ("0,x,0,0,0", "line 3, column `next_0`: `x` is not a finite number"),
            ("NaN,0,0,0,0", "line 3, column `s_0`: `NaN` is not a finite number"),
            ("0,0,,0,0", "line 3, column `reward`: nothing is not a finite number"),
            ("0,0,0,2,0", "line 3, column `done`: `2` is not true or false, or 1 or 0"),
            ("0,0,0,0,0.5", "line 3, column `episode`: `0.5` is not a whole number"),
            ("0,0,0,0", "line 3: 4 fields, but the header has 5"),
        ] {
            assert_eq!(csv_error(&format!("{head}{line}\n")), message);
        }
        let head_with_ratio = "s_0,next_0,reward,done,ratio\n0,0,0,0,1.5\n";
        assert_eq!(from_csv(format!("{head_with_ratio}0,0,0,0,0\n").into()).unwrap().ratio, Some(vec![1.5, 0.0]));
        for bad in ["-0.5", "inf", "NaN", "x"] {
            let message = format!("line 3, column `ratio`: `{bad}` is not a finite number that is at least 0");
            assert_eq!(csv_error(&format!("{head_with_ratio}0,0,0,0,{bad}\n")), message);
        }
        assert_eq!(
            csv_error(&format!("{head}0,0,0,0,1\n0,0,0,0,0\n")),
            "row 2, `episode`: episode 0 goes on after episode 1",
            "rows are transitions, from 0"
        );
        let mut bytes = head.as_bytes().to_vec();
        bytes.extend(b"0,0,\xff,0,0\n");
        assert_eq!(from_csv(bytes).unwrap_err().to_string(), "line 3: not UTF-8");
    }

    #[test]
    fn agents_are_read_in_natural_order_and_must_agree() {
        let dir = tempfile::tempdir().unwrap();
        let places = Places { base: dir.path().into(), data: vec![] };
        for i in [10, 9, 2] {
            std::fs::write(dir.path().join(format!("agent_{i}.csv")), CSV.replace("-1,", &format!("{i},"))).unwrap();
        }
        let names = |logs: Vec<Log>| logs.into_iter().map(|log| log.name).collect::<Vec<_>>();
        let given: Vec<String> = ["agent_10.csv", "agent_2.csv"].map(String::from).into();
        assert_eq!(names(read(&given, &places).unwrap()), ["agent_2", "agent_10"]);
        assert_eq!(names(read(&["*.csv".into()], &places).unwrap()), ["agent_2", "agent_9", "agent_10"]);
        assert!(read(&["*.csv".into(), "agent_9.csv".into()], &places).unwrap_err().what.contains("twice"));

        std::fs::write(dir.path().join("x.txt"), CSV).unwrap();
        assert!(read(&["x.txt".into()], &places).unwrap_err().what.contains("format"));
    }

    #[test]
    fn logs_of_the_same_name_are_told_apart_by_their_paths() {
        let paths = ["a/log.csv", "b/log.csv"].map(PathBuf::from);
        assert_eq!(short_names(&paths), ["a/log.csv", "b/log.csv"]);
        assert_eq!(short_names(&paths[..1]), ["log"]);
    }

    /// The norm of the pooled LSTD solution: what a federation must agree on.
    fn lstd_norm(logs: &[Log], order: u32, ranges: &[(f64, f64)]) -> f64 {
        let gamma = 0.99;
        let ranges: Ranges = logs[0].columns.iter().cloned().zip(ranges.iter().copied()).collect();
        let map = FeatureMap::new(&FeatureSpec::Fourier { order }, &logs[0].columns, &ranges).unwrap();
        let d = map.len();
        let (mut a, mut b) = (vec![0.0; d * d], vec![0.0; d]);
        let (mut phi, mut next) = (vec![0.0; d], vec![0.0; d]);
        let total = logs.iter().map(Log::len).sum::<usize>() as f64;
        for log in logs {
            for t in 0..log.len() {
                map.eval(log.state(t), &mut phi);
                map.eval(log.next_state(t), &mut next);
                let gamma = if log.done[t] { 0.0 } else { gamma };
                for i in 0..d {
                    for j in 0..d {
                        a[i * d + j] += phi[i] * (phi[j] - gamma * next[j]) / total;
                    }
                    b[i] += phi[i] * log.rewards[t] / total;
                }
            }
        }
        let theta = linalg::solve(&linalg::from_rows(d, d, &a), &b).unwrap();
        linalg::norm_sq(&theta).sqrt()
    }

    #[test]
    fn real_logs_have_the_known_solutions() {
        if std::env::var_os("FEDSA_DATA").is_none() {
            println!("skipped: FEDSA_DATA does not name a folder with transitions/");
            return;
        }
        let places = Places::from_env("");
        let logs = |name: &str| read(&[name.to_string()], &places).unwrap();
        let mountaincar = logs("transitions/mountaincar");
        assert_eq!(mountaincar.iter().map(Log::len).collect::<Vec<_>>(), [20_000; 8]);
        let norm = lstd_norm(&mountaincar, 3, &[(-1.2, 0.6), (-0.07, 0.07)]);
        assert!((norm - 289.02).abs() < 0.005, "{norm}");
        let cartpole = logs("transitions/cartpole/agent_*.parquet");
        let norm = lstd_norm(&cartpole, 1, &[(-2.4, 2.4), (-3.0, 3.0), (-0.21, 0.21), (-3.5, 3.5)]);
        assert!((norm - 191.46).abs() < 0.005, "{norm}");
    }
}
