//! The `fedsa` program.

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use fedsa::error::BadInput;
use fedsa_cli::args::{Cli, Command};
use fedsa_cli::commands;
use fedsa_cli::error::{DONE, Failure};
use miette::MietteHandlerOpts;
use textwrap::WordSeparator;
use textwrap::WordSplitter::NoHyphenation;

fn main() -> ExitCode {
    // Paths and names are to be copied from messages in one piece.
    let handler = || MietteHandlerOpts::new().break_words(false).word_separator(WordSeparator::AsciiSpace).word_splitter(NoHyphenation);
    let _ = miette::set_hook(Box::new(move |_| Box::new(handler().build())));
    commands::signals::survive_file_limits();
    let cli = Cli::parse();
    let logging = commands::logging::start(cli.verbose, cli.log.as_deref()).map_err(Failure::from);
    let outcome = logging.and_then(|()| with_threads(cli.threads, || dispatch(&cli.command)));
    let outcome = outcome.and_then(|status| commands::lost_output().map_or(Ok(status), Err));
    ExitCode::from(outcome.unwrap_or_else(|failure| {
        log::error!("{failure}");
        let status = failure.status;
        commands::complain(failure);
        status
    }))
}

fn dispatch(command: &Command) -> Result<u8, Failure> {
    match command {
        Command::Run(args) => commands::run::run(args),
        Command::Reproduce(args) => commands::reproduce::reproduce(args),
        Command::Check(args) => commands::check::check(args),
        Command::Theory(args) => commands::theory::theory(args),
        Command::Export(args) => commands::export::export(args),
        Command::Evaluate(args) => commands::evaluate::evaluate(args),
        Command::Plot(args) => commands::plot::plot(args),
        Command::List(args) => commands::list::list(args),
        Command::Diff(args) => commands::diff::diff(args),
        Command::Man(args) => commands::man::man(args),
        Command::Schema => commands::schema::schema(),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "fedsa", &mut script);
            commands::write_out(&script);
            Ok(DONE)
        }
    }
}

/// Runs a command on as many threads as asked for.
fn with_threads(threads: Option<u64>, command: impl FnOnce() -> Result<u8, Failure> + Send) -> Result<u8, Failure> {
    let Some(threads) = threads else { return command() };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads as usize).build();
    let pool = pool.map_err(|e| BadInput::new("--threads", e.to_string(), "a number of threads that this machine can start"))?;
    pool.install(command)
}
