//! The contents of a folder.

use std::path::{Path, PathBuf};

use fedsa::error::{Error, ErrorCode, Result};
use fedsa_data::{regular, trace};
use fedsa_experiment::finished::{FinishedRun, RunState, state_of};
use fedsa_experiment::folder::{self, FolderWork};
use serde_json::Value as Json;

use crate::rounds::{RecordedRounds, from_lines, from_trace};

/// A run in the report.
pub struct ReportedRun {
    /// The folder, as the user named it.
    pub folder: PathBuf,
    /// A name unique in the report.
    pub name: String,
    /// Its state.
    pub state: RunState,
    /// `summary.json`; null before the run has ended.
    pub summary: Json,
    /// The text of the settings: `config.toml`, or the answer of a tuning.
    pub config: String,
    /// The recorded rounds; none for a tuning.
    pub table: Option<RecordedRounds>,
    /// Pictures: names and SVG.
    pub pictures: Vec<(String, String)>,
    /// The quality of the weights on held-out data; null without any.
    pub held_out: Json,
}

impl ReportedRun {
    /// A run with only its summary.
    pub fn of(folder: &Path, name: String, state: RunState, summary: Json) -> Self {
        let (folder, held_out) = (folder.into(), Json::Null);
        Self { folder, name, state, summary, config: String::new(), table: None, pictures: Vec::new(), held_out }
    }

    /// Whether a process is writing to it.
    pub fn is_under_way(&self) -> bool {
        self.state == RunState::UnderWay
    }

    /// Its title.
    pub fn title(&self) -> String {
        let of_settings = || {
            let table: toml::Table = self.config.parse().ok()?;
            Some(table.get("title").or(table.get("id"))?.as_str()?.to_string())
        };
        self.summary["title"].as_str().map(str::to_string).or_else(of_settings).unwrap_or_else(|| self.name.clone())
    }
}

/// The largest picture in the page, in bytes.
const LARGEST_PICTURE: u64 = 4 << 20;

/// The runs in folders.
///
/// # Errors
/// When a folder is named twice, has no output of fedsa, or its files are damaged.
pub fn read_all(folders: &[PathBuf]) -> Result<Vec<ReportedRun>> {
    let same = |folder: &PathBuf| folder.canonicalize().unwrap_or_else(|_| folder.clone());
    for (i, folder) in folders.iter().enumerate() {
        if folders[..i].iter().any(|other| same(other) == same(folder)) {
            return Err(Error::new(folder.display().to_string(), "the folder is named twice", "each folder once"));
        }
    }
    let names = names(folders);
    folders.iter().zip(names).map(|(folder, name)| read(folder, name)).collect()
}

/// The shortest ends of paths that distinguish folders.
fn names(folders: &[PathBuf]) -> Vec<String> {
    let end = |folder: &Path, parts: usize| -> String {
        let all: Vec<String> = folder.components().map(|part| part.as_os_str().to_string_lossy().into_owned()).collect();
        all[all.len().saturating_sub(parts)..].join("/")
    };
    let deepest = folders.iter().map(|folder| folder.components().count()).max().unwrap_or(1);
    for parts in 1..=deepest {
        let names: Vec<String> = folders.iter().map(|folder| end(folder, parts)).collect();
        let mut distinct = names.clone();
        distinct.sort_unstable();
        distinct.dedup();
        if distinct.len() == names.len() {
            return names;
        }
    }
    folders.iter().map(|folder| folder.display().to_string()).collect()
}

fn read(folder: &Path, name: String) -> Result<ReportedRun> {
    let state = state_of(folder);
    let is_tuning = folder::work_in(folder) == Some(FolderWork::Tuning);
    let pictures = || pictures(folder);
    match state {
        Some(RunState::Finished) if is_tuning => {
            let summary = serde_json::from_str(&text(folder, "summary.json")?).map_err(|e| {
                Error::format(folder.join("summary.json").display().to_string(), format!("not JSON: {e}"), "the file that fedsa wrote")
            })?;
            let config = text(folder, folder::TUNING[0]).unwrap_or_default();
            Ok(ReportedRun { config, pictures: pictures(), ..ReportedRun::of(folder, name, RunState::Finished, summary) })
        }
        Some(state @ (RunState::UnderWay | RunState::Interrupted)) if !folder.join("summary.json").exists() => {
            let config = text(folder, "config.toml").unwrap_or_default();
            let lines = regular::read_text(&folder.join("trace.jsonl")).unwrap_or_default();
            let table = Some(from_lines(&lines));
            Ok(ReportedRun { config, table, ..ReportedRun::of(folder, name, state, Json::Null) })
        }
        // Refuses damaged or foreign files.
        _ => {
            let finished = FinishedRun::read(folder)?;
            let path = folder.join("trace.parquet");
            let own = folder::outputs(folder);
            // Changed settings would not match the results.
            for name in ["config.toml", "trace.parquet"] {
                if !own.iter().any(|own| own == name) {
                    let path = folder.join(name);
                    let what = if path.exists() { "it was changed after fedsa wrote it" } else { "it is missing" };
                    return Err(Error::format(path.display().to_string(), what, "the folder as fedsa wrote it"));
                }
            }
            let table = Some(from_trace(&trace::read(&path)?, &path)?);
            let FinishedRun { summary, config, .. } = finished;
            let held_out = held_out(folder);
            Ok(ReportedRun { config, table, pictures: pictures(), held_out, ..ReportedRun::of(folder, name, RunState::Finished, summary) })
        }
    }
}

/// The results on held-out data in `weights.json` of a fit or an evaluation.
fn held_out(folder: &Path) -> Json {
    if !folder::outputs(folder).iter().any(|name| name == "weights.json") {
        return Json::Null;
    }
    let weights = text(folder, "weights.json").ok().and_then(|text| serde_json::from_str::<Json>(&text).ok());
    weights.map_or(Json::Null, |mut weights| weights["holdout"].take())
}

fn text(folder: &Path, file: &str) -> Result<String> {
    let path = folder.join(file);
    let unreadable = |e| Error::data(path.display().to_string(), format!("cannot be read: {e}"), "the folder as fedsa wrote it");
    regular::read_text(&path).map_err(|e| unreadable(e).coded(ErrorCode::Unreadable))
}

/// The unchanged pictures of a folder.
fn pictures(folder: &Path) -> Vec<(String, String)> {
    let svg = folder::outputs(folder).into_iter().filter(|name| name.ends_with(".svg"));
    svg.filter_map(|name| Some((name.clone(), picture(folder, &name)?))).collect()
}

fn picture(folder: &Path, name: &str) -> Option<String> {
    String::from_utf8(regular::read(&folder.join(name), LARGEST_PICTURE).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_shortest_ends_that_differ() {
        let of = |paths: &[&str]| names(&paths.iter().map(PathBuf::from).collect::<Vec<_>>());
        assert_eq!(of(&["out/a", "out/b"]), ["a", "b"]);
        assert_eq!(of(&["x/run", "y/run"]), ["x/run", "y/run"]);
        assert_eq!(of(&["only"]), ["only"]);
    }
}
