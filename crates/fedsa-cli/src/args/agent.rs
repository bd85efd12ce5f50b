//! The arguments of `fedsa agent`.

use std::path::PathBuf;

use clap::Args;

use super::Overrides;
use fedsa_experiment::options::between as whole;

#[derive(Args, Debug)]
pub struct AgentArgs {
    /// The settings of the federation, which all ends have: an experiment file with one method and one seed, without data
    pub file: PathBuf,
    /// The data of this agent: files, globs, a folder, or the name of a data set; none where the problem is generated
    pub data: Vec<String>,
    /// The folder for its state, which is made if it does not exist. An agent that is started again with it goes on from there
    #[arg(long, value_name = "DIR")]
    pub state: PathBuf,
    /// The number of this agent in the federation; by default the server gives it one
    #[arg(long, value_name = "N", value_parser = |s: &str| whole(s, 0, u64::from(u32::MAX) - 1))]
    pub agent: Option<u64>,
    /// The socket at which it is asked; by default DIR/socket
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Leave the federation for good: answer so, whatever the server asks
    #[arg(long)]
    pub leave: bool,
    #[command(flatten)]
    pub overrides: Overrides,
    /// Print only errors
    #[arg(long, short)]
    pub quiet: bool,
}
