//! The arguments of `fedsa report`.

use std::path::PathBuf;

use clap::Args;

#[derive(Args, Debug)]
pub struct ReportArgs {
    /// Folders of runs, fits, evaluations or tunings
    #[arg(required = true, value_name = "DIR")]
    pub dirs: Vec<PathBuf>,
    /// Page to write
    #[arg(long, value_name = "FILE", default_value = "report.html")]
    pub out: PathBuf,
    /// Title of the page; by default the run's
    #[arg(long)]
    pub title: Option<String>,
    /// Rewrite the page every few seconds until no run is active; it reloads itself
    #[arg(long)]
    pub watch: bool,
    /// Replace a file that is not a report of fedsa
    #[arg(long)]
    pub overwrite: bool,
}
