//! The arguments of `fedsa agent`.

use std::path::PathBuf;

use clap::Args;

use super::Overrides;
use fedsa_experiment::options::between as whole;

#[derive(Args, Debug)]
pub struct AgentArgs {
    /// Experiment file of the federation: one method and one seed, without data
    pub file: PathBuf,
    /// Data of this agent: files, globs, a folder, or a data set; none for a generated problem
    pub data: Vec<String>,
    /// State folder, created if missing. An agent restarted with it continues
    #[arg(long, value_name = "DIR")]
    pub state: PathBuf,
    /// Number of this agent; by default assigned by the server
    #[arg(long, value_name = "N", value_parser = |s: &str| whole(s, 0, u64::from(u32::MAX) - 1))]
    pub agent: Option<u64>,
    /// Socket of the agent; by default DIR/socket
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Disclosure rules of this agent, a TOML file; by default the profile datashield
    #[arg(long, value_name = "FILE")]
    pub rules: Option<PathBuf>,
    /// Leave the federation for good: the agent answers this to every message
    #[arg(long)]
    pub leave: bool,
    #[command(flatten)]
    pub overrides: Overrides,
    /// Print only errors
    #[arg(long, short)]
    pub quiet: bool,
}

#[derive(Args, Debug)]
pub struct AuditArgs {
    /// Record of an agent: audit.jsonl in its state folder
    pub file: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
