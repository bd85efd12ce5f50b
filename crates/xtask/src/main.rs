//! `cargo xtask`: the chores of this repository.

mod bench;
mod book;
mod figures;
mod fuzz;
mod mutants;
mod package;
mod prose;
mod python;
mod release;
mod test;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const USAGE: &str = "\
usage: cargo xtask test [--all]         format, paths, lints, documentation, tests; --all: the slow tests too
       cargo xtask bench [--json PATH]  speed and memory, beside NumPy, JAX and a plain loop in the same run
       cargo xtask bench --figures [ID ..] [--json PATH]
                                        seconds, memory and hottest functions of bundled experiments in full settings
       cargo xtask fuzz --minutes M     mutated input for every reader and decoder, for M minutes in all; further options
                                        are those of fedsa-fuzz: --target NAME, --inputs N, --seed S, --jobs J, --list
       cargo xtask mutants [ID ..]      faults put into the sources one at a time, each of which its tests must notice:
                                        those of crates/xtask/mutants.toml whose names contain an ID; --list names them
       cargo xtask python [--all]       builds the wheel of the Python package into target/wheels, installs it into target/python,
                                        and runs its tests; cargo xtask test does so too
       cargo xtask book                 checks the links of all documents, and builds the book into docs/book with mdBook;
                                        --links: checks the links only; --reference: writes the pages made from the types
       cargo xtask release              the files of a release: checks licences, packs and builds each public crate, and makes the wheel
                                        and the source distribution";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let done = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["test"] => test::run(false),
        ["test", "--all"] => test::run(true),
        ["bench"] => bench::run(None),
        ["bench", "--json", path] => bench::run(Some(Path::new(path))),
        ["bench", "--figures", ref ids @ .., "--json", path] => figures::run(ids, Some(Path::new(path))),
        ["bench", "--figures", ref ids @ ..] => figures::run(ids, None),
        ["fuzz", ref options @ ..] if !options.is_empty() => fuzz::run(options),
        ["python"] => package::install().and_then(|python| package::test(&python, false)),
        ["python", "--all"] => package::install().and_then(|python| package::test(&python, true)),
        ["book"] => book::run(),
        ["book", "--links"] => book::check(),
        ["book", "--reference"] => book::reference(),
        ["release"] => release::run(),
        ["mutants", ref ids @ ..] => mutants::run(ids),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            eprintln!("{what}");
            ExitCode::FAILURE
        }
    }
}

/// The repository's root folder.
fn root() -> PathBuf {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("this crate lies in crates/xtask");
    crates.parent().expect("this crate lies in crates/xtask").to_path_buf()
}

/// The cargo that runs this, in the repository's root.
fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root()).args(args);
    command
}

/// Runs a command.
///
/// # Errors
/// When it cannot be started, or fails.
fn passes(command: &mut Command) -> Result<(), String> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{command:?} ended with {status}")),
        Err(e) => Err(format!("{command:?}: {e}")),
    }
}
