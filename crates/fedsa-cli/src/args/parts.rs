//! Arguments about parts of a sweep.

use std::path::PathBuf;

use clap::Args;

use super::values::ProgressMode;

/// Which part of a sweep runs.
#[derive(Args, Debug)]
pub struct PartArgs {
    /// Run only these sweep points, such as 3,7-12, numbered as in fedsa check --json. Processes may share the folder; fedsa merge joins
    /// their parts. A repeated command continues its part
    #[arg(long, value_name = "LIST", conflicts_with = "overwrite", allow_hyphen_values = true)]
    pub points: Option<String>,
    /// Run only these seeds, such as 0-4
    #[arg(long, value_name = "FIRST-LAST", requires = "points", allow_hyphen_values = true)]
    pub seed_range: Option<String>,
}

#[derive(Args, Debug)]
pub struct MergeArgs {
    /// Folder in which the parts ran
    pub dir: PathBuf,
    /// Print the summary as JSON
    #[arg(long)]
    pub json: bool,
    /// Print only errors
    #[arg(long, short)]
    pub quiet: bool,
    /// Progress; auto: bar on a terminal, else lines
    #[arg(long, value_enum, value_name = "HOW", default_value_t)]
    pub progress: ProgressMode,
}
