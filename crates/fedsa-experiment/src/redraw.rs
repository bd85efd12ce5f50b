//! Redraws the pictures of a finished run: its figure, and the coefficients of a fit.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fedsa::error::{Error, Result};
use fedsa::kernel::Isa;
use fedsa_data::find::Places;

use crate::checks::{self, Verdict};
use crate::config::{Document, Experiment};
use crate::finished::FinishedRun;
use crate::fit::forest;
use crate::folder::COEFFICIENTS;
use crate::kinds::Kinds;
use crate::made::Changes;
use crate::picture::{self, DrawnFigure, Picture};
use crate::{Plan, Predictor, Results, folder, output, resolve, run};

/// A finished run with its figure.
#[non_exhaustive]
pub struct Redrawn {
    /// Its folder.
    pub path: PathBuf,
    /// The plan, with another figure.
    pub plan: Arc<Plan>,
    /// Its results, from its trace.
    pub results: Results,
    /// Its checks, measured again.
    pub verdicts: Vec<Verdict>,
    /// The figure.
    pub picture: Picture,
    /// The coefficients of a fit.
    pub coefficients: Option<Picture>,
    /// The text of the settings, with the new figure.
    config: String,
}

/// Redraws the figure of the run in a folder, with these changes of the figure and the title.
///
/// # Errors
/// When the folder has no finished run, or a change cannot be used.
pub fn redraw(path: &Path, changes: &Changes, kinds: &Kinds) -> Result<Redrawn, Error> {
    let finished = FinishedRun::read(path)?;
    let mut document = Document::parse(&path.join(run::CONFIG).display().to_string(), &finished.config)?.with_kinds(kinds);
    changes.apply(&mut document)?;
    let mut experiment = Experiment::read(document)?;
    experiment.figure.own = finished.own_metrics();
    let plan = Arc::new(Plan::new(experiment, Path::new(""), Isa::best(), &run::roots(path)?)?);
    let results = finished.results(&plan)?;
    picture::check_axes(&plan.experiment, &results).map_err(|e| plan.experiment.document.failure(e))?;
    let predictor = Predictor::new(&plan);
    let unmeasured = checks::unmeasured(&plan, Path::new(""))?;
    let verdicts = checks::measure(&plan, &results, &predictor, &unmeasured);
    let quick = finished.summary["quick"] == true;
    let picture = picture::draw(&plan, &results, &predictor, &verdicts, quick);
    let config = resolve::file(&plan.experiment, &Places::from_env(""))?;
    let coefficients = forest::picture(&finished.summary);
    Ok(Redrawn { path: path.to_path_buf(), plan, results, verdicts, picture, coefficients, config })
}

impl Redrawn {
    /// The figure with everything that its files need.
    pub fn drawn(self) -> DrawnFigure {
        DrawnFigure::new(&self.plan.experiment, self.picture, &self.config)
    }

    /// The pictures with their contents, in the formats of the figure.
    pub fn files(&self) -> Vec<(String, Vec<u8>)> {
        let all = [(output::FIGURE, Some(&self.picture)), (COEFFICIENTS, self.coefficients.as_ref())];
        let draw = |(stem, picture): (&str, Option<&Picture>)| Some(output::pictures(&self.plan, stem, picture?, &self.config));
        all.into_iter().filter_map(draw).flatten().collect()
    }

    /// Writes the pictures into the folder of the run, and returns their paths.
    ///
    /// # Errors
    /// When the folder cannot be written to, or a foreign file has the name of a picture.
    pub fn write(&self) -> Result<Vec<PathBuf>, Error> {
        let files = self.files();
        let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
        let found = folder::look(&self.path)?;
        found.refuse_foreign(&names)?;
        found.claim(true)?.write(&files)?;
        Ok(names.iter().map(|name| self.path.join(name)).collect())
    }
}
