//! The arguments of `fedsa federation`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use fedsa_experiment::options::between as whole;

#[derive(Subcommand, Debug)]
pub enum FederationCommand {
    /// Write a Flower app: settings, server, node, and a README with commands
    New(NewFederationArgs),
    /// List what a federation cannot do yet
    Limits,
}

#[derive(Args, Debug)]
pub struct NewFederationArgs {
    /// Folder of the app, new or empty; its name is the app's
    pub dir: PathBuf,
    /// Experiment file of the federation: one method and one seed, without data; by default a small example
    #[arg(long, value_name = "FILE")]
    pub settings: Option<PathBuf>,
    /// Number of agents
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = |s: &str| whole(s, 1, 1_000_000))]
    pub agents: u64,
}
