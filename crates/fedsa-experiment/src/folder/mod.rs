//! The folder of a run: the files of the program, the process that writes to it, and what may be replaced.
//!
//! A run's folder contains the outputs, and a folder `.fedsa` with the program's own files:
//!
//! - `marker.json`: the names of the outputs that the program wrote, and the purpose of the folder ([`FolderPurpose`]). All other files in
//!   the folder belong to the user, and are neither deleted nor replaced.
//! - `lock`: locked by the process that writes to the folder. The system releases it when that process ends.
//! - checkpoints and the states of finished runs.
//! - `parts`: parts of a sweep that run separately, until they are merged.
//!
//! A folder without a marker, such as a copy of the outputs, counts as a run's folder if it has the `config.toml` and `summary.json` of a
//! run. Its outputs are then known by their names.

mod checkpoints;
mod found;
mod lock;
mod marker;
mod parts;
mod run;

use std::io;
use std::path::Path;

use fedsa_data::atomic::at;

pub use checkpoints::{CHECKPOINT, CHECKPOINT_MAGIC, ENDED_CHECKPOINT, PILOTS, PREDICTIONS, RUN_CHECKPOINT, own_path};
pub use found::{Found, holds, is_under_way, look, outputs, purpose_of, work_in};
pub use marker::{FolderPurpose, FolderWork};
pub use parts::{
    PARTS, PartNames, has_parts, is_part_under_way, names_of_parts, part_file, part_folder, parts_path, remove_part_folder, sweep_path,
};
pub use run::RunFolder;

/// The key of errors about the folder of results.
pub const OUT: &str = "out";
/// The folder for the program's own files.
const OWN: &str = ".fedsa";
/// The marker: the purpose of the folder, and the names of the program's files.
const MARKER: &str = "marker.json";
/// The output that is written last.
const SUMMARY: &str = "summary.json";
/// The lock file, held by the process that writes to the folder.
const LOCK: &str = "lock";
/// The file to which lines are appended while runs are in progress.
pub const GROWING: &str = "trace.jsonl";

/// The possible names of outputs with descriptions, except [`VALUE_PICTURES`], [`POLICY_PICTURES`] and [`TUNING`].
pub const OUTPUTS: &[(&str, &str)] = &[
    (SUMMARY, "outcomes, floors, predictions, costs and checks; written last"),
    ("config.toml", "the file as it ran, with defaults written out and paths absolute"),
    ("trace.parquet", "a row for each method, point, seed and recorded round"),
    ("theta.npz", "the final outputs of the methods, and the root"),
    ("iterates.npz", "the outputs at all recorded rounds, if Python asked for them"),
    ("figure.svg", "the picture"),
    ("figure.png", "the picture"),
    ("figure.pdf", "the picture"),
    ("weights.json", "fitted weights, with what is needed to apply them"),
    ("policy.json", "a policy, with what is needed to apply it"),
    ("weights.npz", "fitted weights as arrays, with their covariance where it is known"),
];
/// The pictures of `fedsa evaluate`, without extensions: the value function, predicted values against returns, and the costs of methods.
pub const VALUE_PICTURES: [&str; 3] = ["value", "returns", "methods"];
/// The pictures of `fedsa improve`, without extensions: the policy, and values of the ridges that were tried.
pub const POLICY_PICTURES: [&str; 2] = ["policy", "ridges"];
/// The picture of the coefficients of `fedsa fit`, without its extension.
pub const COEFFICIENTS: &str = "coefficients";
/// The outputs of `fedsa tune` in addition to its summary.
pub const TUNING: [&str; 4] = ["tuned.toml", "frontier.svg", "frontier.png", "frontier.pdf"];
/// The first characters of every `config.toml`.
pub const CONFIG_HEAD: &str = "# What ran: ";

/// The contents of a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holds {
    /// Nothing, or the folder does not exist.
    Nothing,
    /// Files that are not a run's.
    Foreign,
    /// A run that was not finished.
    Unfinished,
    /// A finished run.
    Finished,
}

impl Holds {
    /// The contents in words, for messages about a folder with the purpose `work`.
    pub fn text(self, work: Option<FolderWork>) -> String {
        let work = work.unwrap_or(FolderWork::Run);
        match self {
            Holds::Nothing => format!("no {work}"),
            Holds::Foreign => "files that fedsa did not write".into(),
            Holds::Unfinished => format!("an interrupted {work}"),
            Holds::Finished => format!("a finished {work}"),
        }
    }
}

fn is_file(path: &Path) -> bool {
    at(path).is_ok_and(|there| there.is_some_and(|there| there.is_file()))
}

fn is_folder(path: &Path) -> bool {
    at(path).is_ok_and(|there| there.is_some_and(|there| there.is_dir()))
}

/// The names in a folder, sorted.
fn names_in(folder: &Path) -> io::Result<Vec<String>> {
    let mut names = std::fs::read_dir(folder)?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<io::Result<Vec<String>>>()?;
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_another_process_has_used_meanwhile_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("d");
        let (first, second) = (look(&path).unwrap(), look(&path).unwrap());
        let run = second.claim(false).unwrap();
        run.write(&[(SUMMARY.into(), b"{}".to_vec())]).unwrap();
        drop(run);
        let e = first.claim(false).unwrap_err();
        assert!(e.what.contains("another fedsa process has written to"), "{e}");
        assert_eq!(holds(&path), Holds::Finished, "what the other did stays");
        // A process that inspects the folder now sees the run, and holds the lock.
        let found = look(&path).unwrap();
        assert_eq!(found.holds, Holds::Finished);
        assert!(look(&path).is_err(), "held by the one who looked");
        found.claim(false).unwrap().abandon();
    }
}
