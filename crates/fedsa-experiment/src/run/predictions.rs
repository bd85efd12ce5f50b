//! The predictions of a run during its comparison with theory. They are saved in its folder, so that an interrupted run need not compute
//! them again.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use fedsa::cancel::Cancel;

use crate::execute::{read_framed, write_framed};
use crate::folder::{self, PREDICTIONS, RunFolder};
use crate::observer::{Computed, RunObserver};
use crate::plan::Plan;
use crate::predict::{KeptPredictions, Predictor, PredictorEvent};

/// The predictions of an interrupted run in a folder; none if the file is damaged or of another version.
pub(super) fn kept(path: &Path) -> KeptPredictions {
    let path = folder::own_path(path, PREDICTIONS);
    let kept = if path.exists() { read_framed::<KeptPredictions>(&path).ok() } else { None };
    kept.filter(KeptPredictions::is_current).unwrap_or_default()
}

/// The time between two writings.
const BETWEEN: Duration = Duration::from_millis(200);

/// The state of predictions in progress.
struct Keeper<'a> {
    predictor: &'a Predictor,
    folder: Option<&'a RunFolder>,
    observer: &'a dyn RunObserver,
    /// The approximate number of cells with predictions.
    asked: usize,
    /// The cells that were begun.
    begun: BTreeSet<usize>,
    written: Instant,
    /// Whether there are unwritten predictions.
    is_new: bool,
    warned: bool,
}

impl Keeper<'_> {
    fn hear(&mut self, progress: PredictorEvent) {
        match progress {
            PredictorEvent::Begins(cell) => {
                if self.begun.insert(cell) {
                    let k = self.begun.len();
                    self.observer.computing(Computed::Predictions, k, self.asked.max(k));
                }
            }
            PredictorEvent::Ended => {
                self.is_new = true;
                if self.written.elapsed() >= BETWEEN {
                    self.write();
                }
            }
        }
    }

    fn write(&mut self) {
        let (Some(folder), true) = (self.folder, self.is_new) else { return };
        if let Err(e) = write_framed(folder, PREDICTIONS, &self.predictor.keep())
            && !std::mem::replace(&mut self.warned, true)
        {
            self.observer.warned(&format!("predictions could not be kept: {}", e.what));
        }
        (self.written, self.is_new) = (Instant::now(), false);
    }
}

/// Calls `compare`, which uses the predictor, and meanwhile informs the observer and saves predictions in the folder.
pub(super) fn while_comparing<T>(
    plan: &Plan,
    predictor: &Predictor,
    folder: Option<&RunFolder>,
    observer: &dyn RunObserver,
    cancel: &Cancel,
    compare: impl FnOnce() -> T,
) -> T {
    let asked = plan.compares_with_theory().into_iter().filter(|asked| *asked).count();
    let (begun, written) = (BTreeSet::new(), Instant::now());
    let keeper = Mutex::new(Keeper { predictor, folder, observer, asked, begun, written, is_new: false, warned: false });
    let compared = predictor.watched(&|progress| keeper.lock().expect("no panics under the lock").hear(progress), compare);
    if cancel.is_cancelled() {
        keeper.into_inner().expect("no panics under the lock").write();
    }
    compared
}
