//! `fedsa man`: the manual page of the program, or of a command.

use fedsa::error::{Error, quoted};

use super::write_out;
use crate::args::ManArgs;
use crate::error::DONE;

/// Runs the command; `program` is the whole command line.
///
/// # Errors
/// When there is no such command.
pub fn man(args: &ManArgs, mut program: clap::Command) -> Result<u8, Error> {
    program.build();
    let (mut page, mut title) = (program, "fedsa".to_string());
    for name in &args.command {
        let names: Vec<String> = page.get_subcommands().map(|c| c.get_name().to_string()).collect();
        let found = page.get_subcommands().find(|c| c.get_name() == name).cloned();
        page = found.ok_or_else(|| {
            let help = if names.is_empty() { "no further word".into() } else { format!("one of {}", names.join(", ")) };
            Error::new("", format!("there is no command `{}`", quoted(name)), help)
        })?;
        title = format!("{title}-{name}");
    }
    let mut text = Vec::new();
    clap_mangen::Man::new(page).title(title).render(&mut text).expect("writing into memory cannot fail");
    write_out(&text);
    Ok(DONE)
}
