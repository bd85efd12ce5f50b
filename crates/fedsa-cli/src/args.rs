//! The command line.

mod agent;
mod data;
mod federation;
mod parts;
mod report;
mod values;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use fedsa_experiment::apply::PredictSettings;
use fedsa_experiment::options::{FEDERATION, MAX_INTEGER, OUTPUT, between as whole};
use fedsa_experiment::theory::TheorySettings;
use fedsa_experiment::tune::TuneSettings;
use fedsa_experiment::{EvaluateSettings, FitSettings, ImproveSettings};

pub use agent::{AgentArgs, AuditArgs};
pub use data::{DataCommand, FetchArgs, VerifyArgs};
pub use federation::{FederationCommand, NewFederationArgs};
pub use parts::{MergeArgs, PartArgs};
pub use report::ReportArgs;
use values::seconds;
pub use values::{FigureStyleArg, ProgressMode};

/// The meaning of the program's exit statuses.
const EXIT_STATUS: &str = "Exit status: 0 done, every check and every run as expected; 1 done, but a check or a run is not as expected; \
                           2 bad input, nothing written; 3 the machine failed (disk, memory, a permission), what was written is kept; \
                           130 interrupted, checkpoints written.";

/// Federated stochastic approximation: federated TD learning and its relatives.
#[derive(Parser, Debug)]
#[command(name = "fedsa", version, propagate_version = true, after_help = EXIT_STATUS)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
    /// Threads; all cores by default
    #[arg(long, global = true, value_name = "N", value_parser = |s: &str| whole(s, 1, 4096))]
    pub threads: Option<u64>,
    /// Log steps on standard error; -vv logs more
    #[arg(long, short, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// Append steps, with times, to this log file
    #[arg(long, global = true, value_name = "FILE")]
    pub log: Option<PathBuf>,
}

#[derive(Subcommand, Debug)]
pub enum Command {
    /// Fit a regression or classification model to rows with targets
    Fit(FitArgs),
    /// Evaluate a policy: fit its value function to logged transitions
    Evaluate(EvaluateArgs),
    /// Improve a policy: find one that chooses better actions from logged transitions
    Improve(ImproveArgs),
    /// Apply fitted weights to data: add a column of values or predictions
    Predict(PredictArgs),
    /// Run an experiment file
    Run(RunArgs),
    /// Validate an experiment file; report runs, stability and time
    Check(CheckArgs),
    /// Predict accuracy, costs and stable steps of an experiment file
    Theory(TheoryArgs),
    /// Run bundled experiments: figures of papers, and further studies
    Reproduce(ReproduceArgs),
    /// Write an HTML page with settings, results and curves of runs
    Report(ReportArgs),
    /// Merge the parts of a sweep that fedsa run --points ran
    Merge(MergeArgs),
    /// Find the cheapest method, step size, local steps and codec for a mean-square error
    Tune(TuneArgs),
    /// Write the problem of an experiment file as arrays
    Export(ExportArgs),
    /// Federations of machines with their own data, on Flower
    #[command(subcommand)]
    Federation(FederationCommand),
    /// Run one agent of a federation, which answers over a local socket
    Agent(AgentArgs),
    /// Check the record of what left an agent, and print it
    Audit(AuditArgs),
    /// Redraw the figure of a finished run
    Plot(PlotArgs),
    /// List the runs in a folder: state, outcomes, checks, time
    List(ListArgs),
    /// Compare two finished runs: settings, results, checks
    Diff(DiffArgs),
    /// List, fetch and verify public data sets
    #[command(subcommand)]
    Data(DataCommand),
    /// Print the manual page of the program or of a command
    Man(ManArgs),
    /// Print the JSON schema of experiment files, for editors
    Schema,
    /// Print a shell's completion script
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// Options of all commands that run experiments.
#[derive(Args, Debug, Clone, Default)]
pub struct Common {
    /// Continue a run, or extend it by rounds or seeds
    #[arg(long, conflicts_with = "overwrite", help_heading = OUTPUT)]
    pub resume: bool,
    /// Replace the run in the output folder; other files stay
    #[arg(long, help_heading = OUTPUT)]
    pub overwrite: bool,
    /// Run unstable settings
    #[arg(long, help_heading = OUTPUT, hide_short_help = true)]
    pub force: bool,
    /// Print only errors
    #[arg(long, short, help_heading = OUTPUT)]
    pub quiet: bool,
    /// Progress; auto: bar on a terminal, else lines
    #[arg(long, value_enum, value_name = "HOW", default_value_t, help_heading = OUTPUT, hide_short_help = true)]
    pub progress: ProgressMode,
    /// Seconds between checkpoints
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, value_parser = seconds, help_heading = OUTPUT, hide_short_help = true)]
    pub checkpoint_every: f64,
}

/// Overrides of an experiment file.
#[derive(Args, Debug, Clone, Default)]
pub struct Overrides {
    /// Use the seeds 0 to N - 1
    #[arg(long, value_name = "N", value_parser = |s: &str| whole(s, 0, MAX_INTEGER))]
    pub seeds: Option<u64>,
    /// Number of rounds
    #[arg(long, value_name = "N", value_parser = |s: &str| whole(s, 0, MAX_INTEGER))]
    pub rounds: Option<u64>,
    /// Set a dotted key: method.FedLSA.step_size=0.01
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Remove a dotted key, before --set: run.stop
    #[arg(long, value_name = "KEY")]
    pub unset: Vec<String>,
    /// Sweep a dotted key: method.*.step_size=0.01,0.1
    #[arg(long, value_name = "KEY=V1,V2,..")]
    pub sweep: Vec<String>,
}

impl Overrides {
    /// Whether nothing is overridden.
    pub fn is_empty(&self) -> bool {
        self.seeds.is_none() && self.rounds.is_none() && self.set.is_empty() && self.unset.is_empty() && self.sweep.is_empty()
    }
}

#[derive(Args, Debug)]
pub struct RunArgs {
    /// Experiment file; - for standard input
    pub file: PathBuf,
    /// Output folder; by default out/ID
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Use the file's quick settings
    #[arg(long)]
    pub quick: bool,
    /// Print the summary as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub part: PartArgs,
    #[command(flatten)]
    pub overrides: Overrides,
    #[command(flatten)]
    pub common: Common,
}

#[derive(Args, Debug)]
pub struct ReproduceArgs {
    /// Id of a bundled experiment, the first part of several, or all
    #[arg(required_unless_present = "list")]
    pub id: Option<String>,
    /// List bundled experiments: title, time on two cores, data sets
    #[arg(long)]
    pub list: bool,
    /// Only print the experiment file
    #[arg(long)]
    pub print: bool,
    /// Use quick settings; failed checks are then notes
    #[arg(long)]
    pub quick: bool,
    /// Output folder, or its parent for several experiments; by default out/ID
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    #[command(flatten)]
    pub overrides: Overrides,
    #[command(flatten)]
    pub common: Common,
}

#[derive(Args, Debug)]
pub struct CheckArgs {
    /// Experiment file; - for standard input
    pub file: PathBuf,
    /// Check the file's quick settings
    #[arg(long)]
    pub quick: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Check only these sweep points (3,7-12), without checks of results
    #[arg(long, value_name = "LIST", allow_hyphen_values = true)]
    pub points: Option<String>,
    #[command(flatten)]
    pub overrides: Overrides,
    /// Accept unstable settings
    #[arg(long)]
    pub force: bool,
}

#[derive(Args, Debug)]
pub struct TheoryArgs {
    /// Experiment file; - for standard input
    pub file: PathBuf,
    #[command(flatten)]
    pub settings: TheorySettings,
    /// Print all numbers as JSON
    #[arg(long, conflicts_with = "full")]
    pub json: bool,
    /// Folder for pictures of predicted curves (theory-curves) and stable steps (theory-stability), in the figure's formats
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Replace pictures of these names
    #[arg(long, requires = "out")]
    pub overwrite: bool,
    #[command(flatten)]
    pub overrides: Overrides,
}

#[derive(Args, Debug)]
pub struct TuneArgs {
    /// Experiment file with problem and link; - for standard input
    pub file: PathBuf,
    #[command(flatten)]
    pub settings: TuneSettings,
    /// Output folder; by default out/ID-tune
    #[arg(long, value_name = "DIR", help_heading = OUTPUT)]
    pub out: Option<PathBuf>,
    /// Continue an interrupted tuning
    #[arg(long, conflicts_with = "overwrite", help_heading = OUTPUT)]
    pub resume: bool,
    /// Replace the tuning in the output folder; other files stay
    #[arg(long, help_heading = OUTPUT)]
    pub overwrite: bool,
    /// Print the summary as JSON
    #[arg(long, help_heading = OUTPUT)]
    pub json: bool,
    /// Print only errors
    #[arg(long, short, help_heading = OUTPUT)]
    pub quiet: bool,
    /// Progress; auto: bar on a terminal, else nothing
    #[arg(long, value_enum, value_name = "HOW", default_value_t, help_heading = OUTPUT)]
    pub progress: ProgressMode,
    #[command(flatten)]
    pub overrides: Overrides,
}

#[derive(Args, Debug)]
pub struct ExportArgs {
    /// Experiment file; - for standard input
    pub file: PathBuf,
    /// The .npz file to write; - for standard output
    #[arg(long, value_name = "PATH")]
    pub npz: PathBuf,
    /// Replace an existing file
    #[arg(long)]
    pub overwrite: bool,
    #[command(flatten)]
    pub overrides: Overrides,
}

#[derive(Args, Debug)]
pub struct PredictArgs {
    #[command(flatten)]
    pub settings: PredictSettings,
    /// File to write, .csv or .parquet; - for standard output, as CSV
    #[arg(long, value_name = "FILE", default_value = "-", help_heading = OUTPUT)]
    pub out: PathBuf,
    /// Replace an existing file
    #[arg(long, help_heading = OUTPUT)]
    pub overwrite: bool,
}

#[derive(Args, Debug)]
pub struct PlotArgs {
    /// Folder of a finished run
    pub dir: PathBuf,
    /// Style for a paper or slides
    #[arg(long, value_name = "STYLE")]
    pub style: Option<FigureStyleArg>,
    /// Set a key of the figure (figure.x=bits_up; figure={..} for all), or the title
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
}

#[derive(Args, Debug)]
pub struct ListArgs {
    /// Folder to look in
    #[arg(default_value = "out")]
    pub dir: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct DiffArgs {
    /// Folder of a finished run
    pub a: PathBuf,
    /// Folder of another finished run
    pub b: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct ManArgs {
    /// Command, such as run, or data fetch
    pub command: Vec<String>,
}

#[derive(Args, Debug)]
pub struct EvaluateArgs {
    #[command(flatten)]
    pub settings: EvaluateSettings,
    /// Output folder
    #[arg(long, value_name = "DIR", default_value = "out/evaluate", help_heading = OUTPUT)]
    pub out: PathBuf,
    #[command(flatten)]
    pub task: TaskArgs,
    #[command(flatten)]
    pub common: Common,
}

#[derive(Args, Debug)]
pub struct ImproveArgs {
    #[command(flatten)]
    pub settings: ImproveSettings,
    /// Output folder
    #[arg(long, value_name = "DIR", default_value = "out/improve", help_heading = OUTPUT)]
    pub out: PathBuf,
    #[command(flatten)]
    pub task: TaskArgs,
    #[command(flatten)]
    pub common: Common,
}

#[derive(Args, Debug)]
pub struct FitArgs {
    #[command(flatten)]
    pub settings: FitSettings,
    /// Output folder
    #[arg(long, value_name = "DIR", default_value = "out/fit", help_heading = OUTPUT)]
    pub out: PathBuf,
    #[command(flatten)]
    pub task: TaskArgs,
    #[command(flatten)]
    pub common: Common,
}

/// Options of commands that turn their settings into an experiment.
#[derive(Args, Debug)]
pub struct TaskArgs {
    /// Only write a Flower app into this new or empty folder. See fedsa federation limits
    #[arg(long, value_name = "DIR", help_heading = FEDERATION)]
    pub federation: Option<PathBuf>,
    /// Set a dotted key of the resulting experiment
    #[arg(long, value_name = "KEY=VALUE", help_heading = OUTPUT, hide_short_help = true)]
    pub set: Vec<String>,
}
