//! The manifest of a folder: the outputs that the program wrote, with the digests of their contents.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;
use std::path::Path;

use fedsa_data::atomic::at;
use fedsa_data::regular;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use sha2::{Digest, Sha256};

use super::checkpoints::{PILOTS, own_path};
use super::{GROWING, MANIFEST, OUTPUTS, OWN, SUMMARY, TUNING, VALUE_PICTURES, is_file, is_folder};
use fedsa_figure::Format;

/// The version of the manifest's layout.
const FORMAT: u64 = 1;

/// What writes to a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FolderWork {
    /// The runs of an experiment.
    Run,
    /// A fit.
    Fit,
    /// An evaluation.
    Evaluation,
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
            FolderWork::Tuning => "tuning",
        })
    }
}

/// What a folder was taken for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FolderPurpose {
    /// What writes to it.
    pub work: FolderWork,
    /// Identifies what was asked for; equal for runs of which one goes on with the other.
    pub identity: String,
    /// Identifies the contents of the data, where these were read before the folder was looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
    /// What was asked for that is no key of the experiment, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub further: Option<String>,
}

impl FolderPurpose {
    /// This work on what the identity stands for.
    pub fn new(work: FolderWork, identity: impl Into<String>) -> Self {
        Self { work, identity: identity.into(), data: None, further: None }
    }
}

/// The list of files that the program wrote into a folder.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// The version of its layout.
    pub format: u64,
    /// The version of the program.
    pub fedsa: String,
    /// A mark of this run for files that are appended to, and so have no digest.
    pub run: String,
    /// For every output, the lengths and digests of the contents that were written under its name.
    pub outputs: BTreeMap<String, BTreeSet<String>>,
    /// What the folder was taken for; manifests of earlier versions do not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub purpose: Option<FolderPurpose>,
}

impl Manifest {
    /// The manifest of a new run.
    pub fn new() -> Self {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let run = hex(&Sha256::digest(format!("{} {}", now.as_nanos(), std::process::id())))[..16].to_string();
        Self { format: FORMAT, fedsa: env!("CARGO_PKG_VERSION").into(), run, outputs: BTreeMap::new(), purpose: None }
    }

    /// The manifest of a folder; `None` if there is none that can be read.
    pub fn of(path: &Path) -> Option<Self> {
        /// The largest manifest that is read.
        const MOST: u64 = 64 << 20;
        let own = path.join(OWN);
        let file = own.join(MANIFEST);
        if !is_folder(&own) || !is_file(&file) {
            return None;
        }
        let manifest: Self = serde_json::from_slice(&regular::read(&file, MOST).ok()?).ok()?;
        // Only outputs in this folder can belong to the program, whatever names a manifest contains.
        let is_sound = manifest.format == FORMAT && manifest.outputs.keys().all(|name| is_output(name));
        is_sound.then_some(manifest)
    }

    /// A manifest for a finished run that has none. Its summary has the digests of the other outputs; outputs of earlier
    /// versions are recognised by their names.
    pub fn adopting(path: &Path) -> Self {
        let summary = regular::read_text(&path.join(SUMMARY)).ok().and_then(|text| serde_json::from_str::<Json>(&text).ok());
        let digests = summary.as_ref().and_then(|summary| summary["files"].as_object());
        let digest_there = |name: &str| digest_of(&path.join(name), |_| true);
        let known = |name: &&str| match digests {
            Some(digests) if **name != *SUMMARY => digests.get(*name).and_then(|digest| digest.as_str().map(str::to_string)),
            _ => digest_there(name),
        };
        let outputs = OUTPUTS.iter().map(|(name, _)| name).filter(|name| is_file(&path.join(name)));
        let outputs = outputs.filter_map(|name| Some(((*name).to_string(), BTreeSet::from([known(name)?]))));
        Self { outputs: outputs.collect(), ..Self::new() }
    }

    /// Whether a file in the folder has contents that the program wrote there.
    pub fn wrote(&self, folder: &Path, name: &str) -> bool {
        let path = folder.join(name);
        if !is_file(&path) {
            return false;
        }
        let is_known = |known: &BTreeSet<String>| {
            let may_be = |length: u64| known.iter().any(|digest| digest.split(':').next() == Some(&length.to_string()));
            digest_of(&path, may_be).is_some_and(|digest| known.contains(&digest))
        };
        self.outputs.get(name).is_some_and(is_known) || (name == GROWING && self.grew(&path))
    }

    /// What wrote to the folder, as far as it is known: earlier versions leave a tuning's own files only.
    pub fn work(&self, folder: &Path) -> Option<FolderWork> {
        let is_tuning = || self.outputs.keys().any(|name| TUNING.contains(&name.as_str())) || is_file(&own_path(folder, PILOTS));
        self.purpose.as_ref().map(|purpose| purpose.work).or_else(|| is_tuning().then_some(FolderWork::Tuning))
    }

    /// The outputs that are not in the folder any more.
    pub fn lost(&self, folder: &Path) -> Vec<&str> {
        let is_lost = |name: &&str| at(&folder.join(name)).is_ok_and(|there| there.is_none());
        self.outputs.keys().map(String::as_str).filter(is_lost).collect()
    }

    /// Whether a file is the one to which this run appends lines.
    fn grew(&self, path: &Path) -> bool {
        let mut head = Vec::new();
        let read = File::open(path).map(|file| file.take(256).read_to_end(&mut head));
        read.is_ok() && String::from_utf8_lossy(&head).lines().next().is_some_and(|line| line == self.mark())
    }

    /// The first line of a file to which lines are appended.
    pub fn mark(&self) -> String {
        format!("{{\"fedsa\":\"{}\",\"run\":\"{}\"}}", self.fedsa, self.run)
    }
}

/// Whether an output can have this name.
fn is_output(name: &str) -> bool {
    let mut pictures = VALUE_PICTURES.iter().flat_map(|stem| Format::ALL.map(|format| format.file_name(stem)));
    OUTPUTS.iter().any(|(output, _)| *output == name) || TUNING.contains(&name) || pictures.any(|picture| picture == name)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The identification of contents: their length and SHA-256 digest.
pub fn digest(bytes: &[u8]) -> String {
    format!("{}:{}", bytes.len(), hex(&Sha256::digest(bytes)))
}

/// The identification of a regular file, if `may_be` accepts its length; `None` if the file cannot be read.
fn digest_of(path: &Path, may_be: impl Fn(u64) -> bool) -> Option<String> {
    let mut file = File::open(path).ok()?;
    let length = file.metadata().ok().filter(|there| there.is_file() && may_be(there.len()))?.len();
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    // The file may grow in the meantime.
    let mut left = Read::by_ref(&mut file).take(length);
    loop {
        match left.read(&mut buffer).ok()? {
            0 => return Some(format!("{length}:{}", hex(&hasher.finalize()))),
            n => hasher.update(&buffer[..n]),
        }
    }
}
