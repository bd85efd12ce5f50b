//! The arguments of `fedsa report`.

use std::path::PathBuf;

use clap::Args;

#[derive(Args, Debug)]
pub struct ReportArgs {
    /// The folders of runs, fits, evaluations or tunings; several are shown beside each other
    #[arg(required = true, value_name = "DIR")]
    pub dirs: Vec<PathBuf>,
    /// The page to write
    #[arg(long, value_name = "FILE", default_value = "report.html")]
    pub out: PathBuf,
    /// Its title; by default that of the run
    #[arg(long)]
    pub title: Option<String>,
    /// Write the page again every few seconds, and let it load itself again, until no run goes on
    #[arg(long)]
    pub watch: bool,
    /// Replace a file that is not a report of fedsa
    #[arg(long)]
    pub overwrite: bool,
}
