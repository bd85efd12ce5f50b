//! The command line.

mod agent;
mod cost;
mod data;
mod federation;
mod parts;
mod report;
mod values;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use fedsa_experiment::FitSettings;
use fedsa_experiment::options::{MAX_INTEGER, OUTPUT, between as whole};

pub use agent::AgentArgs;
pub use cost::{MinimiseArg, NetworkArgs};
pub use data::{DataCommand, FetchArgs, VerifyArgs};
pub use federation::{FederationCommand, NewFederationArgs};
pub use parts::{MergeArgs, PartArgs};
pub use report::ReportArgs;
pub use values::{BadRowsArg, FigureStyleArg, ProgressMode};
use values::{positive, seconds};

/// What the program's exit status says.
const EXIT_STATUS: &str = "Exit status: 0 done, every check and every run as expected; 1 done, but a check or a run is not as expected; \
                           2 bad input, nothing written; 3 the machine failed (disk, memory, a permission), what was written is kept; \
                           130 interrupted, checkpoints written.";

/// Federated stochastic approximation: federated TD learning and its relatives.
#[derive(Parser, Debug)]
#[command(name = "fedsa", version, propagate_version = true, after_help = EXIT_STATUS)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
    /// Threads to use; all cores by default
    #[arg(long, global = true, value_name = "N", value_parser = |s: &str| whole(s, 1, 4096))]
    pub threads: Option<u64>,
    /// Print the steps of the program on standard error; -vv prints more
    #[arg(long, short, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// Append the steps of the program, with times, to this log file; also if the input is refused
    #[arg(long, global = true, value_name = "FILE")]
    pub log: Option<PathBuf>,
}

#[derive(Subcommand, Debug)]
pub enum Command {
    /// Fit a model to rows with targets: regression or classification
    Fit(FitArgs),
    /// Evaluate a policy from logged transitions: weights of its value function
    Evaluate(EvaluateArgs),
    /// Apply fitted weights to data: a column of values or of predictions
    Predict(PredictArgs),
    /// Run an experiment file
    Run(RunArgs),
    /// Validate an experiment file; report what would run, whether it is stable, and how long it takes
    Check(CheckArgs),
    /// Predict an experiment file without running it: what limits the accuracy of each method, what a target costs, which steps are
    /// stable
    Theory(TheoryArgs),
    /// Run bundled experiments: figures of papers, and studies of our own
    Reproduce(ReproduceArgs),
    /// Write a page of HTML on runs: what was run, what was found, curves to look at from all sides
    Report(ReportArgs),
    /// Put the parts of a sweep together that fedsa run --points ran, to what a single run would have written
    Merge(MergeArgs),
    /// Find the method, step size, local steps and codec that reach a mean-square error at the least cost
    Tune(TuneArgs),
    /// Write the problem of an experiment file as arrays
    Export(ExportArgs),
    /// A federation on Flower, of machines that have data of their own
    #[command(subcommand)]
    Federation(FederationCommand),
    /// Be one agent of a federation, with data that stay here: a process that is asked over a socket of this machine
    Agent(AgentArgs),
    /// Draw the figure of a finished run again
    Plot(PlotArgs),
    /// List the runs in a folder: state, outcomes, checks, time
    List(ListArgs),
    /// Show two finished runs beside each other: settings that differ, results, checks
    Diff(DiffArgs),
    /// Public data sets by name: list them, fetch them into the cache, verify their checksums
    #[command(subcommand)]
    Data(DataCommand),
    /// Print the manual page of the program, or of a command
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
    /// Continue the interrupted run in the output folder, or extend a finished run by rounds or
    /// seeds
    #[arg(long, conflicts_with = "overwrite", help_heading = OUTPUT)]
    pub resume: bool,
    /// Replace the run in the output folder; files that fedsa did not write are kept
    #[arg(long, help_heading = OUTPUT)]
    pub overwrite: bool,
    /// Run even settings that are known to be unstable
    #[arg(long, help_heading = OUTPUT, hide_short_help = true)]
    pub force: bool,
    /// Print only errors
    #[arg(long, short, help_heading = OUTPUT)]
    pub quiet: bool,
    /// How progress is shown; auto: a bar on a terminal, lines elsewhere
    #[arg(long, value_enum, value_name = "HOW", default_value_t, help_heading = OUTPUT, hide_short_help = true)]
    pub progress: ProgressMode,
    /// Seconds between checkpoints of a run
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, value_parser = seconds, help_heading = OUTPUT, hide_short_help = true)]
    pub checkpoint_every: f64,
}

/// Overrides of an experiment file.
#[derive(Args, Debug, Clone, Default)]
pub struct Overrides {
    /// Seeds 0, 1, .., N - 1 instead of the file's
    #[arg(long, value_name = "N", value_parser = |s: &str| whole(s, 0, MAX_INTEGER))]
    pub seeds: Option<u64>,
    /// Rounds instead of the file's
    #[arg(long, value_name = "N", value_parser = |s: &str| whole(s, 0, MAX_INTEGER))]
    pub rounds: Option<u64>,
    /// Set a dotted key, such as problem.agents=10 or method.FedLSA.step_size=0.01
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Remove a dotted key of the file, such as run.stop or method.*.local_steps; before --set
    #[arg(long, value_name = "KEY")]
    pub unset: Vec<String>,
    /// Add a sweep: run at each of these values of a dotted key, such as method.*.step_size=0.01,0.1
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
    /// The experiment file; - for standard input
    pub file: PathBuf,
    /// The output folder; out/ID by default, ID the file's id
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Use the smaller settings of the file's quick table
    #[arg(long)]
    pub quick: bool,
    /// Print the summary as JSON instead of the report
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
    /// A bundled experiment's id, the first part of several, or all
    #[arg(required_unless_present = "list")]
    pub id: Option<String>,
    /// List the bundled experiments: id, time on two cores, title, and the data sets needed
    #[arg(long)]
    pub list: bool,
    /// Print the experiment's file instead of running it
    #[arg(long)]
    pub print: bool,
    /// Use the smaller settings of the files' quick tables; failed checks are then notes
    #[arg(long)]
    pub quick: bool,
    /// The output folder; out/ID by default, ID the file's id. For several experiments, its parent
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    #[command(flatten)]
    pub overrides: Overrides,
    #[command(flatten)]
    pub common: Common,
}

#[derive(Args, Debug)]
pub struct CheckArgs {
    /// The experiment file; - for standard input
    pub file: PathBuf,
    /// Check the smaller settings of the file's quick table
    #[arg(long)]
    pub quick: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Check these points of a sweep only, such as 3,7-12, without the checks of results: the memory is that of these points
    #[arg(long, value_name = "LIST", allow_hyphen_values = true)]
    pub points: Option<String>,
    #[command(flatten)]
    pub overrides: Overrides,
    /// Accept settings that are known to be unstable
    #[arg(long)]
    pub force: bool,
}

#[derive(Args, Debug)]
pub struct TheoryArgs {
    /// The experiment file; - for standard input
    pub file: PathBuf,
    /// Print the whole page: constants of the problem, the parts of each floor and what would change it, stable steps for other numbers
    /// of local steps, and the theorems of the papers. By default at most 25 lines
    #[arg(long, conflicts_with = "json")]
    pub full: bool,
    /// Print all numbers as JSON
    #[arg(long)]
    pub json: bool,
    /// Say how many rounds, samples and bits each method takes until its mean-square error is EPS2, or what keeps it above
    #[arg(long, value_name = "EPS2", value_parser = positive)]
    pub target_mse: Option<f64>,
    /// Write two pictures into this folder, in the formats of the file's figure: the predicted curves (theory-curves), and the
    /// stable steps over step size and local steps (theory-stability)
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Replace pictures of these names in the folder
    #[arg(long, requires = "out")]
    pub overwrite: bool,
    #[command(flatten)]
    pub overrides: Overrides,
}

#[derive(Args, Debug)]
pub struct TuneArgs {
    /// The experiment file, with the problem and the link; - for standard input
    pub file: PathBuf,
    /// The mean-square error to reach
    #[arg(long, value_name = "EPS2")]
    pub target_mse: f64,
    /// What is minimised. Bits are those of all messages, up and down
    #[arg(long, value_enum, value_name = "COST", default_value_t)]
    pub objective: MinimiseArg,
    #[command(flatten)]
    pub network: NetworkArgs,
    /// The methods that may be chosen; by default fedlsa, scafflsa and fedhsa, and those of the file with a step size
    #[arg(long, value_name = "METHODS", value_delimiter = ',')]
    pub methods: Vec<String>,
    /// The codecs of the uplink that may be chosen, such as exact,float32,quantised:8,rand-k:0.5; the file's by default. auto: exact,
    /// float32, and quantised with 4, 6, 8 and 12 bits
    #[arg(long, value_name = "CODECS", value_delimiter = ',')]
    pub codecs: Vec<String>,
    /// The numbers of local steps that may be chosen; by default all up to --max-local-steps
    #[arg(long, value_name = "H1,H2,..", value_delimiter = ',', value_parser = |s: &str| whole(s, 0, MAX_INTEGER))]
    pub local_steps: Vec<u64>,
    /// The most local steps
    #[arg(long, value_name = "H", conflicts_with = "local_steps", default_value_t = fedsa_theory::tune::MOST_LOCAL_STEPS, value_parser = |s: &str| whole(s, 1, MAX_INTEGER))]
    pub max_local_steps: u64,
    /// The most rounds
    #[arg(long, value_name = "N", default_value_t = fedsa_theory::tune::MOST_ROUNDS, value_parser = |s: &str| whole(s, 1, fedsa::message::MAX_ROUNDS))]
    pub max_rounds: u64,
    /// The method of the file whose link, start and output all candidates have, where the file's methods differ in them
    #[arg(long, value_name = "LABEL")]
    pub like: Option<String>,
    /// The time of the search, by theory and by pilot runs: 60s, 10m or 2h on one core, as fedsa estimates it, so that the answer does
    /// not depend on the machine
    #[arg(long, value_name = "TIME", default_value = "60s")]
    pub budget: String,
    /// The most time by the clock: the search ends then with the best so far, and says so. What it finds depends on the machine
    #[arg(long, value_name = "TIME")]
    pub time_limit: Option<String>,
    /// The output folder; out/ID-tune by default, ID the file's id
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Continue the interrupted tuning in the output folder
    #[arg(long, conflicts_with = "overwrite")]
    pub resume: bool,
    /// Replace the tuning in the output folder; files that fedsa did not write are kept
    #[arg(long)]
    pub overwrite: bool,
    /// Print the summary as JSON instead of the report
    #[arg(long)]
    pub json: bool,
    /// Print only errors
    #[arg(long, short)]
    pub quiet: bool,
    /// How progress is shown; auto: a bar on a terminal, nothing elsewhere
    #[arg(long, value_enum, value_name = "HOW", default_value_t)]
    pub progress: ProgressMode,
    #[command(flatten)]
    pub overrides: Overrides,
}

#[derive(Args, Debug)]
pub struct ExportArgs {
    /// The experiment file; - for standard input
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

#[derive(Args, Debug, Clone)]
pub struct PredictArgs {
    /// The weights.json that fedsa evaluate or fedsa fit wrote, or the folder of that run
    pub weights: PathBuf,
    /// Data with the columns that the weights were fitted to: Parquet, CSV or TSV files (packed with gzip or zstd or not), whose
    /// other columns are passed on; for weights of fedsa fit also LIBSVM and IDX files, of which targets are passed on. Globs, a
    /// folder, or the name of a data set. Rows stay in the order in which files are named
    #[arg(required = true, value_name = "DATA")]
    pub logs: Vec<String>,
    /// The names of columns in the files, such as s_0=x or s_*=obs_*; by default those of the logs of the evaluation, where a file has them
    #[arg(long, value_name = "NAME=FIELD,..", value_delimiter = ',')]
    pub columns: Vec<String>,
    /// The file to write, .csv or .parquet; - for standard output, as CSV
    #[arg(long, value_name = "FILE", default_value = "-")]
    pub out: PathBuf,
    /// Add the standard errors of the predictions in a second column, value_se; from the weights.npz beside the weights.json
    #[arg(long)]
    pub se: bool,
    /// The name of the added column; by default value, or prediction for weights of fedsa fit
    #[arg(long, value_name = "NAME")]
    pub column: Option<String>,
    /// Replace an existing file
    #[arg(long, alias = "force")]
    pub overwrite: bool,
}

#[derive(Args, Debug)]
pub struct PlotArgs {
    /// The folder of a finished run
    pub dir: PathBuf,
    /// Draw it for a paper or for slides: size, letters, and lines that differ without colours
    #[arg(long, value_name = "STYLE")]
    pub style: Option<FigureStyleArg>,
    /// Set a key of the figure, such as figure.x=bits_up, or the title; figure={..} replaces all keys of the figure
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
}

#[derive(Args, Debug)]
pub struct ListArgs {
    /// The folder to look in
    #[arg(default_value = "out")]
    pub dir: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct DiffArgs {
    /// The folder of a finished run
    pub a: PathBuf,
    /// The folder of another finished run
    pub b: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct ManArgs {
    /// The command, such as run, or data fetch
    pub command: Vec<String>,
}

#[derive(Args, Debug, Clone)]
pub struct EvaluateArgs {
    /// Logs of transitions, one file an agent: Parquet, CSV or TSV (packed with gzip or zstd or not); files, globs, a folder, or the name
    /// of a data set. Columns s_* and next_* in pairs, reward, done or terminated; optionally truncated or timeouts, episode, env, ratio or
    /// target and behaviour
    #[arg(required = true)]
    pub logs: Vec<String>,
    /// The names of columns in the files: s_0=x,reward=r,done=terminal, or s_*=obs_*,next_*=next_obs_*
    #[arg(long, value_name = "NAME=FIELD,..", value_delimiter = ',')]
    pub columns: Vec<String>,
    /// The column that names the agent of each row, in files with the rows of several agents
    #[arg(long, value_name = "COLUMN")]
    pub agent_column: Option<String>,
    /// What is done with rows that cannot be read; skip leaves them out, and the report counts them by file and reason
    #[arg(long, value_enum, value_name = "HOW", default_value_t)]
    pub bad_rows: BadRowsArg,
    /// Keep rows that automatic resets of environments wrote: ends whose next state is the first state of the next episode, and rows after ends that
    /// only reset. By default they are recognised, left out and counted
    #[arg(long)]
    pub keep_autoreset_rows: bool,
    /// Features of the state: identity, polynomial:ORDER, fourier:ORDER or fourier:ORDER:scaled, tiles:TILINGSxBINS or
    /// tiles:TILINGSxBINS@HASHED, radial:CENTRES or radial:CENTRES:quantiles, standardised, one-hot; 'one-hot(s_2) * tiles:8x4(s_0, s_1)': products of maps of
    /// some columns. By default the first of fourier:3, fourier:2 and fourier:1 with at most 64
    /// features, else polynomial:2 with at most 100, else polynomial:1. auto: the one of a list with the least error on held-out
    /// episodes
    #[arg(long)]
    pub features: Option<String>,
    /// The most features that --features auto may choose; 256 by default
    #[arg(long, value_name = "N", value_parser = |s: &str| whole(s, 1, 65_536))]
    pub most_features: Option<u64>,
    /// The range of a state column; taken from the data if not given
    #[arg(long, value_name = "COLUMN=LOW,HIGH", allow_hyphen_values = true)]
    pub range: Vec<String>,
    /// The discount factor; 1 only where every episode ends in a terminal state
    #[arg(long, default_value_t = 0.99)]
    pub gamma: f64,
    /// The decay of eligibility traces, from 0 to 1: TD(lambda). Traces end at done and at a change of episode
    #[arg(long, default_value_t = 0.0)]
    pub lambda: f64,
    /// The operator: td, or gtd2 or tdc, which minimise the projected Bellman error and converge off-policy where td diverges
    #[arg(long, default_value = "td")]
    pub operator: String,
    /// The ratio of the two steps of gtd2 and tdc; 1 by default
    #[arg(long, value_name = "K")]
    pub kappa: Option<f64>,
    /// Adds EPS I to the matrix A_c of every agent. By default a little of the features' mean square, which keeps values of states that the
    /// logs hardly determine within bounds; 0 for none
    #[arg(long, value_name = "EPS")]
    pub ridge: Option<f64>,
    /// Clips importance ratios at this level; the report says how many are clipped, and what their mean loses
    #[arg(long, value_name = "LEVEL")]
    pub clip_ratios: Option<f64>,
    /// How features are scaled: none, or equal-squares (all have the same mean square over the data of all agents)
    #[arg(long, value_name = "SCALING")]
    pub scaling: Option<String>,
    #[arg(long, default_value = "auto", help = crate::method_help::of_evaluate(&fedsa_experiment::Kinds::default()))]
    pub method: String,
    /// The matrices A_c stay with the agents: --method auto then does not choose lstd
    #[arg(long)]
    pub keep_matrices: bool,
    /// How transitions are drawn: mean, iid or markov
    #[arg(long, default_value = "mean")]
    pub sampling: String,
    /// The local step size, for methods with local steps; 1 by default
    #[arg(long, value_name = "ETA")]
    pub step_size: Option<f64>,
    /// Local steps per round (for scafflsa-random, their mean number between talks); 100 by default,
    /// for methods with local steps
    #[arg(long, value_name = "H", value_parser = |s: &str| whole(s, 0, MAX_INTEGER))]
    pub local_steps: Option<u64>,
    /// The largest number of rounds; the run stops earlier if it reaches --tol
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = |s: &str| whole(s, 0, MAX_INTEGER))]
    pub rounds: u64,
    /// Stop when the norm of the mean operator is at most this multiple of its norm at zero weights; 0 for never; 1e-12 by
    /// default, or what rounding allows
    #[arg(long, value_name = "RESIDUAL")]
    pub tol: Option<f64>,
    /// The seed
    #[arg(long, default_value_t = 0, value_parser = |s: &str| whole(s, 0, MAX_INTEGER))]
    pub seed: u64,
    /// Hold out this share of each agent's episodes, drawn by --seed, and report on them how good the federated weights are
    /// beside those of each agent's own data. Needs the column episode
    #[arg(long, value_name = "SHARE")]
    pub holdout: Option<f64>,
    /// The level of the intervals of the policy's value
    #[arg(long, value_name = "SHARE", default_value_t = 0.95)]
    pub level: f64,
    /// Logs of another policy: the report has the difference of the two policies' values with its interval
    #[arg(long, value_name = "LOGS", num_args = 1..)]
    pub against: Vec<String>,
    /// The one or two state columns over which the picture of the value function is drawn; by default those along which the
    /// value varies most
    #[arg(long, value_name = "COLUMNS", value_delimiter = ',')]
    pub value_columns: Vec<String>,
    /// The output folder
    #[arg(long, value_name = "DIR", default_value = "out/evaluate")]
    pub out: PathBuf,
    /// Write a Flower app for machines that keep their data, with the settings that these options and logs come to, and do nothing else: a folder that
    /// does not exist or is empty. fedsa federation limits lists what a federation cannot do yet
    #[arg(long, value_name = "DIR", help_heading = "Federation")]
    pub federation: Option<PathBuf>,
    /// Set a dotted key of the experiment file that evaluate makes from its options
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    #[command(flatten)]
    pub common: Common,
}

#[derive(Args, Debug)]
pub struct FitArgs {
    #[command(flatten)]
    pub settings: FitSettings,
    /// The output folder
    #[arg(long, value_name = "DIR", default_value = "out/fit", help_heading = OUTPUT)]
    pub out: PathBuf,
    /// Write a Flower app for machines that keep their data, with the settings that these options and data come to, and do nothing else: a folder that
    /// does not exist or is empty. fedsa federation limits lists what a federation cannot do yet
    #[arg(long, value_name = "DIR", help_heading = "Federation")]
    pub federation: Option<PathBuf>,
    /// Set a dotted key of the experiment file that fit makes from its options
    #[arg(long, value_name = "KEY=VALUE", help_heading = OUTPUT, hide_short_help = true)]
    pub set: Vec<String>,
    #[command(flatten)]
    pub common: Common,
}
