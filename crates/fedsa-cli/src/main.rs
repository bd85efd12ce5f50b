//! The `fedsa` program.

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use fedsa_cli::args::{Cli, Command, Common};
use fedsa_cli::commands;
use fedsa_cli::error::{BAD_INPUT, DONE, Failure};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = dispatch(&cli.command);
    ExitCode::from(outcome.unwrap_or_else(|failure| {
        eprintln!("{:?}", miette::Report::new(failure));
        BAD_INPUT
    }))
}

fn dispatch(command: &Command) -> Result<u8, Failure> {
    match command {
        Command::Run(args) => with_threads(&args.common, || commands::run::run(args)),
        Command::Reproduce(args) => with_threads(&args.common, || commands::reproduce::reproduce(args)),
        Command::Check(args) => commands::check::check(args),
        Command::Theory(args) => commands::theory::theory(args),
        Command::Export(args) => commands::export::export(args),
        Command::Evaluate(args) => with_threads(&args.common, || commands::evaluate::evaluate(args)),
        Command::Completions { shell } => {
            clap_complete::generate(*shell, &mut Cli::command(), "fedsa", &mut std::io::stdout());
            Ok(DONE)
        }
    }
}

/// Runs a command on as many threads as asked for.
fn with_threads(common: &Common, command: impl FnOnce() -> Result<u8, Failure> + Send) -> Result<u8, Failure> {
    let Some(threads) = common.threads else { return command() };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads as usize).build();
    let pool =
        pool.map_err(|e| fedsa::error::BadInput::new("--threads", e.to_string(), "a number of threads that this machine can start"))?;
    pool.install(command)
}
