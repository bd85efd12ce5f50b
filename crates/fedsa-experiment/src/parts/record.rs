//! The file, written by the first part in a folder, that identifies the experiment of the parts and the program that runs them.

use std::fmt;
use std::io;
use std::path::Path;

use fedsa::error::{Error, ErrorCode, Result};
use fedsa_data::atomic::{self, Existing};
use fedsa_data::find::Places;
use fedsa_data::regular;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use crate::config::Experiment;
use crate::folder::{self, OUT};
use crate::plan::{self, canonical};
use crate::{finished, resolve};

/// The version of the layout of the file.
const FORMAT: u64 = 1;
/// The largest file that is read: an experiment with absolute paths.
const MOST: u64 = 256 << 20;

/// A version of the program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ProgramVersion {
    fedsa: String,
    commit: Option<String>,
}

impl ProgramVersion {
    /// The version of this program.
    pub fn own() -> Self {
        Self { fedsa: env!("CARGO_PKG_VERSION").into(), commit: option_env!("FEDSA_COMMIT").map(str::to_string) }
    }
}

impl fmt::Display for ProgramVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "fedsa {}", self.fedsa)?;
        self.commit.as_ref().map_or(Ok(()), |commit| write!(f, " (commit {commit})"))
    }
}

/// The sweep of the parts in a folder.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct SweepRecord {
    format: u64,
    pub program: ProgramVersion,
    /// Identifies the settings, and whether they are the quick ones.
    pub identity: String,
    /// The number of points.
    pub points: usize,
    pub quick: bool,
    /// The settings, with overrides applied and paths absolute.
    pub settings: String,
}

impl SweepRecord {
    /// The record of an experiment with relative paths in `base`.
    pub fn of(experiment: &Experiment, base: &Path, quick: bool) -> Self {
        let given = resolve::given(experiment, &Places::from_env(base));
        let settings = toml::to_string(&given).expect("a tree of plain values");
        let identity = plan::identity(&[&quick.to_string(), &canonical(&Value::Table(given))]);
        Self { format: FORMAT, program: ProgramVersion::own(), identity, points: experiment.points.len(), quick, settings }
    }

    /// The record of a folder; `None` if it has no parts.
    ///
    /// # Errors
    /// When the file is damaged, or missing although there are parts.
    pub fn read(out: &Path) -> Result<Option<Self>> {
        let path = folder::sweep_path(out);
        let bad = |what: String| {
            let help = "the folder as fedsa left it; or another folder, in which all parts run again";
            Error::format(OUT, format!("{}: {what}", path.display()), help)
        };
        let bytes = match regular::read(&path, MOST) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let names = folder::names_of_parts(out).map_err(|e| bad(e.to_string()))?;
                // A first part that was killed before it wrote the file leaves its folder.
                return if names.done.is_empty() { Ok(None) } else { Err(bad("it is missing: it says what the parts are of".into())) };
            }
            Err(e) => return Err(bad(format!("cannot be read: {e}"))),
        };
        let record: Self = serde_json::from_slice(&bytes).map_err(|e| bad(format!("damaged, or of another version of fedsa: {e}")))?;
        match record.format {
            FORMAT => Ok(Some(record)),
            other => Err(bad(format!("of layout {other}; this version has {FORMAT}"))),
        }
    }

    /// Writes the record if there is none, and returns the folder's record.
    ///
    /// # Errors
    /// When it cannot be written or read.
    pub fn keep(&self, out: &Path) -> Result<Self> {
        let path = folder::sweep_path(out);
        let text = format!("{}\n", serde_json::to_string_pretty(self).expect("plain data"));
        match atomic::write(&path, text.as_bytes(), &folder::parts_path(out), Existing::Keep) {
            Ok(()) => Ok(self.clone()),
            // Another part was first.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(Self::read(out)?.unwrap_or_else(|| self.clone())),
            Err(e) => Err(atomic::unwritable(&path, &e)),
        }
    }

    /// Refuses a part of another experiment, or of another version of the program.
    ///
    /// # Errors
    /// When it is such a part.
    pub fn refuse_other(&self, now: &Self, out: &Path) -> Result<()> {
        let out = out.display();
        refuse_version(&self.program, &format!("{out} holds parts of a sweep"))?;
        if self.identity == now.identity {
            return Ok(());
        }
        let tables = [&self.settings, &now.settings].map(|text| text.parse::<Table>().unwrap_or_default());
        let differs = finished::differences(&tables[0], &tables[1]).into_iter().next();
        let shown = |value: Option<String>| value.unwrap_or_else(|| "not set".into());
        let differs = differs.map_or(String::new(), |d| format!(": {} was {} for them, and is {} now", d.key, shown(d.a), shown(d.b)));
        let help = "the same file and options for all parts of a folder; another folder for another sweep";
        Err(Error::new(OUT, format!("{out} holds parts of another sweep{differs}"), help).coded(ErrorCode::OtherRun))
    }
}

/// Refuses output of another version of the program: `what`.
///
/// # Errors
/// When the version differs.
pub(super) fn refuse_version(program: &ProgramVersion, what: &str) -> Result<()> {
    let own = ProgramVersion::own();
    if *program == own {
        return Ok(());
    }
    let help = "one version of fedsa for all parts and for their merge; or another folder, in which all parts run again";
    Err(Error::format(OUT, format!("{what} of {program}, and this is {own}"), help).coded(ErrorCode::OtherRun))
}
