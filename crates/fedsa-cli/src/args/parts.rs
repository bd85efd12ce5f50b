//! Arguments about parts of a sweep.

use std::path::PathBuf;

use clap::Args;

use super::values::ProgressMode;

/// Which part of a sweep runs.
#[derive(Args, Debug)]
pub struct PartArgs {
    /// Run these points of a sweep only, such as 3,7-12, as a part of the whole: other processes may run other points in the same
    /// folder, and fedsa merge puts them together. The first point is 0; fedsa check --json lists them. A part that is done is not run
    /// again, one that was killed goes on
    #[arg(long, value_name = "LIST", conflicts_with = "overwrite", allow_hyphen_values = true)]
    pub points: Option<String>,
    /// Run only those seeds of the points that are in this range, such as 0-4
    #[arg(long, value_name = "FIRST-LAST", requires = "points", allow_hyphen_values = true)]
    pub seed_range: Option<String>,
}

#[derive(Args, Debug)]
pub struct MergeArgs {
    /// The folder in which the parts ran
    pub dir: PathBuf,
    /// Print the summary as JSON instead of the report
    #[arg(long)]
    pub json: bool,
    /// Print only errors
    #[arg(long, short)]
    pub quiet: bool,
    /// How progress is shown; auto: a bar on a terminal, lines elsewhere
    #[arg(long, value_enum, value_name = "HOW", default_value_t)]
    pub progress: ProgressMode,
}
