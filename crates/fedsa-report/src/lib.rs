//! Reports: one page of HTML on finished or running runs, which needs no network and opens from disk.
//!
//! [`report`] reads folders (`run.rs`) and writes the page: first what ran, outcomes and checks, then curves, tables, predictions, costs
//! and settings (`sections.rs`). All text and tables work without scripts. With scripts, curves are interactive (`assets/report.js`, with
//! uPlot for axes and zooming), on the numbers of `trace.parquet` (`curves.rs`), for long runs thinned to what a screen can show
//! (`thin.rs`).
//!
//! The content security policy of the page allows its two scripts and its style sheet, by their digests, pictures inside it, and nothing
//! else.

mod any_json;
mod cited;
mod curves;
mod ends;
mod found;
mod html;
mod page;
mod rounds;
mod run;
mod sections;
mod sweep;
mod theory;
mod thin;

pub use sections::typed;

use std::path::{Path, PathBuf};
use std::time::Duration;

use fedsa::error::{Error, Result};
use fedsa_data::regular;

/// The options of a report.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ReportOptions {
    /// Its title; by default the run's, or the names of the runs.
    pub title: Option<String>,
    /// The command that writes it again, as typed.
    pub command: Option<String>,
    /// The time after which the page reloads itself while a run is active. By default it does not.
    pub reload: Option<Duration>,
    /// Whether folders are not named, because they are temporary copies.
    pub hides_folders: bool,
}

impl ReportOptions {
    /// With this title.
    #[must_use]
    pub fn with_title(self, title: Option<String>) -> Self {
        Self { title, ..self }
    }

    /// With this command.
    #[must_use]
    pub fn with_command(self, command: Option<String>) -> Self {
        Self { command, ..self }
    }

    /// With the names of the folders, or without.
    #[must_use]
    pub fn with_folders(self, are_named: bool) -> Self {
        Self { hides_folders: !are_named, ..self }
    }

    /// With a page that reloads itself.
    #[must_use]
    pub fn with_reload(self, reload: Option<Duration>) -> Self {
        Self { reload, ..self }
    }
}

/// A report.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Report {
    /// The page.
    pub html: String,
    /// Whether one of the runs is active.
    pub is_under_way: bool,
}

/// Whether a file is a report that fedsa wrote.
pub fn is_report(path: &Path) -> bool {
    let start = regular::start(path, 4096).unwrap_or_default();
    let head = String::from_utf8_lossy(&start);
    head.starts_with("<!doctype html>") && head.contains(page::GENERATOR)
}

/// The largest number of runs in a report.
pub const MAX_RUNS: usize = 20;

/// A report on the runs in these folders.
///
/// # Errors
/// When there is no folder or there are more than [`MAX_RUNS`], one has no output of fedsa, or its files are damaged.
pub fn report(folders: &[PathBuf], options: &ReportOptions) -> Result<Report> {
    let accepted = "the folders of one to twenty runs, such as out/ID";
    if folders.is_empty() {
        return Err(Error::new("DIR", "no folder", accepted));
    }
    if folders.len() > MAX_RUNS {
        return Err(Error::new("DIR", format!("{} folders", folders.len()), accepted));
    }
    let runs = run::read_all(folders)?;
    let is_under_way = runs.iter().any(run::ReportedRun::is_under_way);
    let reload = options.reload.filter(|_| is_under_way);
    Ok(Report { is_under_way, html: page::page(&runs, &options.clone().with_reload(reload)) })
}
