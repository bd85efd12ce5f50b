//! `fedsa report`: a page of HTML on runs.

use std::time::Duration;

use fedsa::error::{Error, ErrorCode, Result};
use fedsa_data::atomic::{self, Existing};
use fedsa_report::{ReportOptions, is_report, report as page_on};

use super::say;
use crate::args::ReportArgs;
use crate::error::DONE;

/// The interval at which the page is rewritten and reloads itself.
const EVERY: Duration = Duration::from_secs(5);

/// Runs the command.
///
/// # Errors
/// When a folder has no output of fedsa or is damaged, or the page cannot be written.
pub fn report(args: &ReportArgs) -> Result<u8> {
    may_replace(args)?;
    let options = ReportOptions::default().with_title(args.title.clone()).with_command(Some(command(args)));
    let options = options.with_reload(args.watch.then_some(EVERY));
    let write = || -> Result<bool> {
        let page = page_on(&args.dirs, &options)?;
        let existing = Existing::Replace;
        atomic::write(&args.out, page.html.as_bytes(), atomic::folder_of(&args.out), existing)
            .map_err(|e| atomic::unwritable(&args.out, &e))?;
        Ok(page.is_under_way)
    };
    let mut goes_on = write()?;
    say(args.out.display());
    while args.watch && goes_on {
        std::thread::sleep(EVERY);
        goes_on = write()?;
    }
    Ok(DONE)
}

/// Refuses to replace a file that is no report of fedsa.
fn may_replace(args: &ReportArgs) -> Result<()> {
    let refused =
        |what: String, help: &str, code| Err(Error::new("--out FILE", format!("{}: {what}", args.out.display()), help).coded(code));
    match atomic::at(&args.out) {
        Ok(None) => Ok(()),
        Ok(Some(found)) if !found.is_file() => {
            refused(format!("this is {}", atomic::kind_of(&found)), "the path of a file, such as report.html", ErrorCode::OutputUnusable)
        }
        Ok(Some(_)) if args.overwrite => Ok(()),
        Ok(Some(_)) if is_report(&args.out) => Ok(()),
        Ok(Some(_)) => refused("the file is there, and is not a report of fedsa".into(), "another path", ErrorCode::OutputExists),
        Err(e) => Err(atomic::unwritable(&args.out, &e)),
    }
}

/// The command that writes the page again.
fn command(args: &ReportArgs) -> String {
    let dirs = args.dirs.iter().map(|dir| dir.display().to_string());
    let words = ["fedsa".to_string(), "report".into()].into_iter().chain(dirs).chain(["--out".into(), args.out.display().to_string()]);
    fedsa_report::typed(&words.collect::<Vec<_>>().iter().map(String::as_str).collect::<Vec<_>>())
}
