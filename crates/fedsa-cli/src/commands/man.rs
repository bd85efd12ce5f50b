//! `fedsa man`: the manual page of the program, or of a command.

use fedsa::error::{BadInput, quoted};
use fedsa_experiment::error::Failure;

use super::write_out;
use crate::args::ManArgs;
use crate::error::DONE;

/// Runs the command; `program` is the whole command line.
///
/// # Errors
/// When there is no such command.
pub fn man(args: &ManArgs, mut program: clap::Command) -> Result<u8, Failure> {
    program.build();
    let (page, title) = match &args.command {
        None => (program, "fedsa".to_string()),
        Some(name) => {
            let names: Vec<String> = program.get_subcommands().map(|c| c.get_name().to_string()).collect();
            let found = program.get_subcommands().find(|c| c.get_name() == name).cloned();
            let found = found.ok_or_else(|| {
                BadInput::new("", format!("there is no command `{}`", quoted(name)), format!("one of {}", names.join(", ")))
            })?;
            (found, format!("fedsa-{name}"))
        }
    };
    let mut text = Vec::new();
    clap_mangen::Man::new(page).title(title).render(&mut text).expect("writing into memory cannot fail");
    write_out(&text);
    Ok(DONE)
}
