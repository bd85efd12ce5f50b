//! Theory of a finished run.

use std::path::Path;
use std::sync::Arc;

use fedsa::error::Result;
use fedsa::kernel::Isa;

use crate::config::{Document, Experiment};
use crate::finished::FinishedRun;
use crate::kinds::Kinds;
use crate::theory::{Theory, TheoryReport, TheorySettings};
use crate::{Plan, Predictor, run};

/// The largest number of multiplications, about two seconds on one core, because pages are made often.
const MAX_WORK: f64 = 1e9;

/// The brief theory of the run in a folder, as for its experiment before the run. It builds the problems again, and reads their data.
///
/// # Errors
/// When the folder has no finished run, its problems cannot be built, or predictions do not fit into memory.
pub fn foretold(path: &Path, kinds: &Kinds) -> Result<TheoryReport> {
    let finished = FinishedRun::read(path)?;
    let document = Document::parse(&path.join(run::CONFIG).display().to_string(), &finished.config)?.with_kinds(kinds);
    let plan = Arc::new(Plan::new(Experiment::read(document)?, Path::new(""), Isa::best(), &run::roots(path)?)?);
    let settings = TheorySettings { max_work: Some(MAX_WORK), ..TheorySettings::default() };
    Theory::new(&Arc::new(Predictor::new(&plan)), settings)?.report(&|_| {})
}
