//! The predictions of a run whose results are being compared with theory: they are kept in its folder as they are computed, so that a
//! run that is interrupted then need not compute them again.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Mutex;

use crate::execute::{read_framed, write_framed};
use crate::folder::{self, PREDICTIONS, RunFolder};
use crate::memory;
use crate::observer::{Computed, Observer};
use crate::plan::Plan;
use crate::predict::{KeptPredictions, Predictor, Progress};

/// Those that an interrupted run has left in a folder; none if the file is damaged or of another version.
pub(super) fn kept(path: &Path) -> KeptPredictions {
    let path = folder::own_path(path, PREDICTIONS);
    let kept = if path.exists() { read_framed::<KeptPredictions>(&path).ok() } else { None };
    kept.filter(KeptPredictions::is_current).unwrap_or_default()
}

/// Calls `compare`, which asks the predictor, and meanwhile tells the observer of predictions and keeps them in the folder.
pub(super) fn while_comparing<T>(
    plan: &Plan,
    predictor: &Predictor,
    folder: Option<&RunFolder>,
    observer: &dyn Observer,
    compare: impl FnOnce() -> T,
) -> T {
    let asked = memory::asked_for(plan).into_iter().filter(|asked| *asked).count();
    // The cells that were begun, and whether a warning was given.
    let seen = Mutex::new((BTreeSet::new(), false));
    let hear = |progress: Progress| {
        let (begun, warned) = &mut *seen.lock().expect("no panics under the lock");
        match (progress, folder) {
            (Progress::Begins(cell), _) if begun.insert(cell) => {
                observer.computing(Computed::Predictions, begun.len(), asked.max(begun.len()));
            }
            (Progress::Ended, Some(folder)) => {
                if let Err(e) = write_framed(folder, PREDICTIONS, &predictor.keep())
                    && !std::mem::replace(warned, true)
                {
                    observer.warned(&format!("predictions could not be kept: {}", e.what));
                }
            }
            _ => {}
        }
    };
    predictor.watched(&hear, compare)
}
