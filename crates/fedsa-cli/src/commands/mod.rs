//! The commands: what each does with its arguments. All return an exit status.

pub mod check;
pub mod evaluate;
pub mod export;
pub mod reproduce;
pub mod run;
pub mod theory;

use std::path::{Path, PathBuf};

use fedsa::error::BadInput;

use crate::args::Overrides;
use crate::config::{Document, Experiment};
use crate::error::Failure;

/// Reads an experiment file with its overrides; also the folder that its paths are relative to.
///
/// # Errors
/// When it cannot be read or is not a valid experiment.
pub fn load(path: &Path, overrides: &Overrides, quick: bool) -> Result<(Experiment, PathBuf), Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|e| BadInput::new(path.display().to_string(), format!("cannot be read: {e}"), "the path of an experiment file (TOML)"))?;
    let experiment = parse(&path.display().to_string(), &text, overrides, quick)?;
    let base = path.parent().map_or_else(PathBuf::new, Path::to_path_buf);
    Ok((experiment, base))
}

/// Reads the text of an experiment with its overrides.
///
/// # Errors
/// When it is not a valid experiment.
pub fn parse(name: &str, text: &str, overrides: &Overrides, quick: bool) -> Result<Experiment, Failure> {
    let mut document = Document::parse(name, text)?;
    if quick {
        document.make_quick()?;
    }
    for assignment in &overrides.set {
        document.set_text(assignment)?;
    }
    if let Some(n) = overrides.seeds {
        document.set_text(&format!("run.seeds={n}"))?;
    }
    if let Some(n) = overrides.rounds {
        document.set_text(&format!("run.rounds={n}"))?;
    }
    Experiment::read(document)
}

/// A duration for people.
pub fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 1.0 => "under a second".into(),
        s if s < 90.0 => format!("{s:.0} s"),
        s if s < 5400.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}
