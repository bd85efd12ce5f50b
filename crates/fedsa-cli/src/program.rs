//! The program as a function, for programs with their own kinds.

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::OnceLock;

use clap::{Arg, ArgAction, CommandFactory, FromArgMatches};
use fedsa::error::Error;
use fedsa_data::PARQUET_THREAD;
use fedsa_experiment::{Extensions, Kinds};
use fedsa_methods::presets::PRESETS;
use miette::MietteHandlerOpts;
use textwrap::WordSeparator;
use textwrap::WordSplitter::NoHyphenation;

use crate::args::{Cli, Command};
use crate::commands;
use crate::error::{BAD_INPUT, DONE, status_of};
use crate::hints::{self, in_options};

/// Runs the program `fedsa` with the arguments of the process and additional kinds. All readers of experiment files know these: sweeps,
/// checks, figures, theory, `--resume`, `plot`, the JSON schema, `evaluate --method`. A kind whose name is taken is refused with the exit
/// status of bad input.
///
/// ```no_run
/// let status: std::process::ExitCode = fedsa_cli::main_with(fedsa_cli::Extensions::default());
/// ```
pub fn main_with(extensions: Extensions<'_>) -> ExitCode {
    ExitCode::from(run_with(std::env::args_os(), extensions))
}

/// Runs the program `fedsa` with these arguments (the first is the program's name), and returns its exit status. Like [`main_with`] it
/// prints, handles Ctrl-C, and creates the threads of the process.
pub fn run_with(args: impl IntoIterator<Item = OsString>, extensions: Extensions<'_>) -> u8 {
    let args: Vec<OsString> = args.into_iter().collect();
    // Lines are not wrapped, so that paths and names can be copied from messages.
    let handler = || MietteHandlerOpts::new().break_words(false).word_separator(WordSeparator::AsciiSpace).word_splitter(NoHyphenation);
    let _ = miette::set_hook(Box::new(move |_| Box::new(handler().build())));
    keep_readers_quiet();
    commands::signals::survive_file_limits();
    let kinds = match Kinds::with(extensions) {
        Ok(kinds) => kinds,
        Err(e) => return failed(e),
    };
    let line = for_help(command_line(&kinds), args.get(1..).unwrap_or_default());
    let matches = line.clone().try_get_matches_from(&args);
    let named = matches.as_ref().ok().and_then(|matches| line.find_subcommand(matches.subcommand_name()?));
    named.into_iter().for_each(hints::speak_of);
    let cli = match matches.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        // Clap returns help as an error.
        Err(e) => {
            let _ = e.print();
            return u8::try_from(e.exit_code()).unwrap_or(BAD_INPUT);
        }
    };
    commands::signals::watch();
    let logging = commands::logging::start(cli.verbose, cli.log.as_deref(), args.get(1..).unwrap_or_default());
    let outcome = logging.and_then(|()| with_threads(cli.threads, || dispatch(&cli.command, &kinds)));
    let outcome = outcome.and_then(|status| commands::lost_output().map_or(Ok(status), Err));
    outcome.unwrap_or_else(failed)
}

/// Reports a failure; its exit status.
fn failed(e: Error) -> u8 {
    let e = in_options(e);
    log::error!("{e}");
    let status = status_of(&e);
    commands::complain(e);
    status
}

/// The command line; the help of `evaluate --method` and `fit --method` lists all kinds of methods.
fn command_line(kinds: &Kinds) -> clap::Command {
    let kinds = kinds.methods().iter().map(|kind| kind.name);
    let all: Vec<&str> = kinds.chain(PRESETS.iter().map(|preset| preset.name)).collect();
    let named = |method: Arg| {
        let help = method.get_help().map_or(String::new(), ToString::to_string);
        method.help(format!("{help}. Methods: {}", all.join(", ")))
    };
    let line = Cli::command().mut_subcommand("evaluate", |evaluate| evaluate.mut_arg("method", named));
    with_help(line.mut_subcommand("fit", |fit| fit.mut_arg("method", named)))
}

/// The commands of the short help.
const FIRST: [&str; 9] = ["fit", "evaluate", "improve", "predict", "run", "check", "theory", "reproduce", "report"];

/// The command line; it has few commands if these arguments ask for the short help.
fn for_help(line: clap::Command, args: &[OsString]) -> clap::Command {
    let is_short = args.is_empty() || matches!(args, [only] if only == "--help" || only == "-h");
    if !is_short {
        return line;
    }
    let below = line.get_after_help().map_or(String::new(), ToString::to_string);
    let line = line.after_help(format!("fedsa --help-all lists all commands, and fedsa COMMAND --help the options of one.\n\n{below}"));
    line.mut_subcommands(|command| {
        let is_other = !FIRST.contains(&command.get_name());
        command.hide(is_other)
    })
}

/// The command with a short and a full help; both name options in place of settings.
fn with_help(command: clap::Command) -> clap::Command {
    let options = hints::options_of(&command);
    let worded = |arg: Arg| {
        let is_negative = arg.get_long().is_some() && arg.get_action().takes_values();
        let arg = if is_negative { arg.allow_negative_numbers(true) } else { arg };
        match arg.get_help().map(|help| hints::text_with(&help.to_string(), &options)) {
            Some(help) => arg.help(help),
            None => arg,
        }
    };
    let short = Arg::new("help").long("help").short('h').action(ArgAction::HelpShort).help("Print help");
    let all = Arg::new("help_all").long("help-all").action(ArgAction::HelpLong).help("Print help with all options");
    command.disable_help_flag(true).mut_args(worded).arg(short).arg(all).mut_subcommands(with_help)
}

/// Hides panics of the Parquet library, which become errors that name the file.
fn keep_readers_quiet() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if std::thread::current().name() != Some(PARQUET_THREAD) {
            hook(info);
        }
    }));
}

fn dispatch(command: &Command, kinds: &Kinds) -> Result<u8, Error> {
    match command {
        Command::Run(args) => match &args.part.points {
            Some(points) => commands::parts::run(args, points, kinds),
            None => commands::run::run(args, kinds),
        },
        Command::Merge(args) => commands::parts::merge(args, kinds),
        Command::Reproduce(args) => commands::reproduce::reproduce(args),
        Command::Check(args) => commands::check::check(args, kinds),
        Command::Theory(args) => commands::theory::theory(args, kinds),
        Command::Tune(args) => commands::tune::tune(args, kinds),
        Command::Export(args) => commands::export::export(args, kinds),
        Command::Evaluate(args) => commands::evaluate::evaluate(args, kinds),
        Command::Improve(args) => commands::improve::improve(args, kinds),
        Command::Fit(args) => commands::fit::fit(args, kinds),
        Command::Predict(args) => commands::predict::predict(args),
        Command::Federation(command) => commands::federation::federation(command, kinds),
        Command::Agent(args) => commands::agent::agent(args, kinds),
        Command::Audit(args) => commands::audit::audit(args),
        Command::Plot(args) => commands::plot::plot(args, kinds),
        Command::Report(args) => commands::report::report(args),
        Command::List(args) => commands::list::list(args),
        Command::Diff(args) => commands::diff::diff(args),
        Command::Data(command) => commands::data::data(command),
        Command::Man(args) => commands::man::man(args, command_line(kinds)),
        Command::Schema => commands::schema::schema(kinds),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut command_line(kinds), "fedsa", &mut script);
            commands::write_out(&script);
            Ok(DONE)
        }
    }
}

/// Runs a command on the requested number of threads.
fn with_threads(threads: Option<u64>, command: impl FnOnce() -> Result<u8, Error> + Send) -> Result<u8, Error> {
    let failed = |e: rayon::ThreadPoolBuildError| {
        let help = "--threads N, with fewer threads, or a higher limit on processes (ulimit -u)";
        Error::machine(format!("the threads cannot be started: {e}"), help)
    };
    // The thread pool is created here, because its first user would panic if it could not be created.
    static OF_THE_PROCESS: OnceLock<Option<Error>> = OnceLock::new();
    match threads {
        None => {
            let refused = OF_THE_PROCESS.get_or_init(|| rayon::ThreadPoolBuilder::new().build_global().map_err(failed).err());
            refused.clone().map_or(Ok(()), Err).and_then(|()| command())
        }
        Some(threads) => rayon::ThreadPoolBuilder::new().num_threads(threads as usize).build().map_err(failed)?.install(command),
    }
}
