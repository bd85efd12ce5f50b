//! The marker of a folder: that fedsa uses the folder, for what purpose, and which files it wrote.

use std::collections::BTreeSet;
use std::path::Path;

use fedsa_data::atomic::at;
use fedsa_data::regular;
use serde::{Deserialize, Serialize};

use super::{COEFFICIENTS, GROWING, MARKER, OUTPUTS, OWN, POLICY_PICTURES, SUMMARY, TUNING, VALUE_PICTURES, is_file, is_folder};
use fedsa_figure::Format;

/// The version of the marker's layout.
const FORMAT: u64 = 2;

/// The kinds of work that write to a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FolderWork {
    /// The runs of an experiment.
    Run,
    /// A fit.
    Fit,
    /// An evaluation.
    Evaluation,
    /// An improvement of a policy.
    Improvement,
    /// A tuning.
    Tuning,
}

/// The work in words, for messages.
impl std::fmt::Display for FolderWork {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            FolderWork::Run => "run",
            FolderWork::Fit => "fit",
            FolderWork::Evaluation => "evaluation",
            FolderWork::Improvement => "improvement",
            FolderWork::Tuning => "tuning",
        })
    }
}

/// The purpose of a folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FolderPurpose {
    /// The kind of work.
    pub work: FolderWork,
    /// Identifies the requested work; equal for runs of which one continues the other.
    pub identity: String,
    /// Identifies the contents of the data, if they were read before the folder was inspected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
    /// Requests outside the keys of the experiment, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub further: Option<String>,
}

impl FolderPurpose {
    /// This work, with this identity.
    pub fn new(work: FolderWork, identity: impl Into<String>) -> Self {
        Self { work, identity: identity.into(), data: None, further: None }
    }
}

/// The program's record of a folder that it uses.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Marker {
    /// The version of its layout.
    format: u64,
    /// The version of the program.
    fedsa: String,
    /// Distinguishes consecutive runs in the same folder.
    run: String,
    /// The purpose of the folder; `None` for a copy without its marker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub purpose: Option<FolderPurpose>,
    /// The names of the outputs that the program wrote, or was about to write.
    pub outputs: BTreeSet<String>,
}

impl Marker {
    /// The marker of a new run.
    pub fn new() -> Self {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let run = format!("{:x}-{:x}", now.as_nanos(), std::process::id());
        Self { format: FORMAT, fedsa: env!("CARGO_PKG_VERSION").into(), run, purpose: None, outputs: BTreeSet::new() }
    }

    /// Marks a new use of the folder, which others that have inspected it before recognise. Without a purpose the folder keeps its purpose.
    pub fn take(&mut self, purpose: Option<FolderPurpose>) {
        self.run = Self::new().run;
        self.purpose = purpose.or(self.purpose.take());
    }

    /// The marker of a folder; `None` if there is none that can be read.
    pub fn of(path: &Path) -> Option<Self> {
        /// The largest marker that is read, in bytes.
        const MAX: u64 = 1 << 20;
        let own = path.join(OWN);
        let file = own.join(MARKER);
        if !is_folder(&own) || !is_file(&file) {
            return None;
        }
        let marker: Self = serde_json::from_slice(&regular::read(&file, MAX).ok()?).ok()?;
        // Only outputs in this folder can belong to the program, whatever the marker says.
        let is_sound = marker.format == FORMAT && marker.outputs.iter().all(|name| is_output(name));
        is_sound.then_some(marker)
    }

    /// The marker of a copied folder without one, with outputs by their names.
    pub fn of_copy(path: &Path) -> Self {
        let outputs = OUTPUTS.iter().map(|(name, _)| (*name).to_string()).filter(|name| is_file(&path.join(name)));
        Self { outputs: outputs.collect(), ..Self::new() }
    }

    /// Whether the program wrote the file of this name. Before it uses a folder it refuses foreign files with names of outputs, so that
    /// there are none.
    pub fn wrote(&self, folder: &Path, name: &str) -> bool {
        (name == GROWING || self.outputs.contains(name)) && is_file(&folder.join(name))
    }

    /// Whether the folder has a finished run.
    pub fn is_finished(&self, folder: &Path) -> bool {
        self.wrote(folder, SUMMARY)
    }

    /// The outputs that are missing from the folder.
    pub fn lost(&self, folder: &Path) -> Vec<&str> {
        let is_lost = |name: &&str| at(&folder.join(name)).is_ok_and(|there| there.is_none());
        self.outputs.iter().map(String::as_str).filter(is_lost).collect()
    }

    /// The first line of an appended file.
    pub fn first_line(&self) -> String {
        format!("{{\"fedsa\":\"{}\",\"run\":\"{}\"}}", self.fedsa, self.run)
    }
}

/// Whether an output can have this name.
fn is_output(name: &str) -> bool {
    let mut pictures = VALUE_PICTURES
        .iter()
        .chain(&POLICY_PICTURES)
        .chain([&COEFFICIENTS])
        .flat_map(|stem| Format::ALL.map(|format| format.file_name(stem)));
    OUTPUTS.iter().any(|(output, _)| *output == name) || TUNING.contains(&name) || pictures.any(|picture| picture == name)
}
