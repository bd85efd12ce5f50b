//! The `fedsa` program.

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use fedsa_cli::args::{Cli, Command};
use fedsa_cli::commands;
use fedsa_cli::error::{DONE, status_of};
use fedsa_data::{MachineFailure, PARQUET_THREAD};
use fedsa_experiment::error::Failure;
use miette::MietteHandlerOpts;
use textwrap::WordSeparator;
use textwrap::WordSplitter::NoHyphenation;

fn main() -> ExitCode {
    // Lines are not wrapped, so that paths and names can be copied from messages.
    let handler = || MietteHandlerOpts::new().break_words(false).word_separator(WordSeparator::AsciiSpace).word_splitter(NoHyphenation);
    let _ = miette::set_hook(Box::new(move |_| Box::new(handler().build())));
    keep_readers_quiet();
    commands::signals::survive_file_limits();
    let cli = Cli::parse();
    commands::signals::watch();
    let logging = commands::logging::start(cli.verbose, cli.log.as_deref()).map_err(Failure::from);
    let outcome = logging.and_then(|()| with_threads(cli.threads, || dispatch(&cli.command)));
    let outcome = outcome.and_then(|status| commands::lost_output().map_or(Ok(status), Err));
    ExitCode::from(outcome.unwrap_or_else(|failure| {
        log::error!("{failure}");
        let status = status_of(&failure);
        commands::complain(failure);
        status
    }))
}

/// Hides the panics of the Parquet library, which become errors that name the file.
fn keep_readers_quiet() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if std::thread::current().name() != Some(PARQUET_THREAD) {
            hook(info);
        }
    }));
}

fn dispatch(command: &Command) -> Result<u8, Failure> {
    match command {
        Command::Run(args) => commands::run::run(args),
        Command::Reproduce(args) => commands::reproduce::reproduce(args),
        Command::Check(args) => commands::check::check(args),
        Command::Theory(args) => commands::theory::theory(args),
        Command::Export(args) => commands::export::export(args),
        Command::Evaluate(args) => commands::evaluate::evaluate(args),
        Command::Predict(args) => commands::predict::predict(args),
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

/// Runs a command on the requested number of threads.
fn with_threads(threads: Option<u64>, command: impl FnOnce() -> Result<u8, Failure> + Send) -> Result<u8, Failure> {
    let failed = |e: rayon::ThreadPoolBuildError| {
        let help = "--threads N, with fewer threads, or a higher limit on processes (ulimit -u)".to_string();
        Failure::from(MachineFailure { what: format!("the threads cannot be started: {e}"), help })
    };
    match threads {
        // The thread pool of the process is created here; the first user would panic if it cannot be created.
        None => rayon::ThreadPoolBuilder::new().build_global().map_err(failed).and_then(|()| command()),
        Some(threads) => rayon::ThreadPoolBuilder::new().num_threads(threads as usize).build().map_err(failed)?.install(command),
    }
}
