//! `fedsa report`: a page of HTML on runs.

use std::path::Path;
use std::time::Duration;

use fedsa::error::{Error, ErrorCode, Result};
use fedsa_data::atomic::{self, Existing};
use fedsa_data::regular;
use fedsa_report::{ReportOptions, is_report, report as page_on};

use super::say;
use crate::args::ReportArgs;
use crate::error::DONE;

/// How often a page is written again, and loads itself again.
const EVERY: Duration = Duration::from_secs(5);

/// Runs the command.
///
/// # Errors
/// When a folder holds nothing of fedsa or is damaged, or the page cannot be written.
pub fn report(args: &ReportArgs) -> Result<u8> {
    may_replace(args)?;
    let mut options = ReportOptions::default().with_title(args.title.clone()).with_command(Some(command(args)));
    let mut written = false;
    loop {
        options = options.with_reload(args.watch.then_some(EVERY));
        let mut page = page_on(&args.dirs, &options)?;
        let goes_on = args.watch && page.is_under_way;
        if args.watch && !goes_on {
            // The last one stays as it is.
            page = page_on(&args.dirs, &options.clone().with_reload(None))?;
        }
        write(&args.out, &page.html)?;
        if !written {
            say(args.out.display());
        }
        written = true;
        if !goes_on {
            return Ok(DONE);
        }
        std::thread::sleep(EVERY);
    }
}

/// Refuses to replace a file that is not a report, and one that lies in a folder of runs as one of their outputs.
fn may_replace(args: &ReportArgs) -> Result<()> {
    let refused = |what: String, help: &str, code| Err(Error::new("--out", format!("{}: {what}", args.out.display()), help).coded(code));
    match atomic::at(&args.out) {
        Ok(None) => Ok(()),
        Ok(Some(found)) if !found.is_file() => {
            refused(format!("this is {}", atomic::kind_of(&found)), "the path of a file, such as report.html", ErrorCode::OutputUnusable)
        }
        Ok(Some(_)) if args.overwrite => Ok(()),
        Ok(Some(_)) => match regular::read(&args.out, 1 << 30) {
            Ok(bytes) if is_report(&bytes) => Ok(()),
            _ => refused("the file is there, and is not a report of fedsa".into(), "another path, or --overwrite", ErrorCode::OutputExists),
        },
        Err(e) => Err(atomic::unwritable(&args.out, &e)),
    }
}

fn write(path: &Path, html: &str) -> Result<()> {
    atomic::write(path, html.as_bytes(), atomic::folder_of(path), Existing::Replace).map_err(|e| atomic::unwritable(path, &e))
}

/// The command that makes the page again.
fn command(args: &ReportArgs) -> String {
    let dirs = args.dirs.iter().map(|dir| dir.display().to_string());
    let words = ["fedsa".to_string(), "report".into()].into_iter().chain(dirs).chain(["--out".into(), args.out.display().to_string()]);
    fedsa_report::typed(&words.collect::<Vec<_>>().iter().map(String::as_str).collect::<Vec<_>>())
}
