//! Predictions of theory for a plan's cells. Each prediction is computed once, on request.
//!
//! The library has the mathematics ([`fedsa_theory::predict`]). This module adds what depends on a run: its rounds, its start, and the
//! reference point of errors.

mod kept;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use fedsa::cancel::Cancel;
use fedsa::error::{Error, ErrorKind, Result};
use fedsa_theory::exact_mse::{InitialControls, MeanSquare};
use fedsa_theory::predict::{self, FloorCache, Forecast, unknown};
use fedsa_theory::{Accuracy, DOUBTFUL};

use super::plan::{Plan, ResolvedStart};
use super::results::in_tail;
use crate::config::schema::ControlsStart;
use crate::names::FINITE_FLOOR;
use kept::KeptCell;
pub use kept::KeptPredictions;

/// Predictions of a plan's cells, each computed once.
pub struct Predictor {
    plan: Arc<Plan>,
    numbers: Mutex<HashMap<(usize, String), Result<f64>>>,
    floors: Mutex<HashMap<usize, Arc<FloorCache>>>,
    curves: Mutex<HashMap<usize, Result<Arc<Vec<MeanSquare>>>>>,
    accuracies: Mutex<HashMap<usize, Result<Accuracy>>>,
    cancel: Cancel,
    /// The predictions of an earlier run, used on request.
    kept: KeptPredictions,
    /// The receiver of progress, if there is one.
    listener: Mutex<Option<mpsc::Sender<Message>>>,
}

/// A step of a predictor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PredictorEvent {
    /// It computes a prediction of this cell.
    Begins(usize),
    /// A known prediction is computed.
    Ended,
}

/// An event, and the channel that confirms its reception.
type Message = (PredictorEvent, mpsc::SyncSender<()>);

impl Predictor {
    /// A predictor for a plan; it computes nothing yet.
    pub fn new(plan: &Arc<Plan>) -> Self {
        Self {
            plan: Arc::clone(plan),
            numbers: Mutex::default(),
            floors: Mutex::default(),
            curves: Mutex::default(),
            accuracies: Mutex::default(),
            cancel: Cancel::never(),
            kept: KeptPredictions::default(),
            listener: Mutex::default(),
        }
    }

    /// The plan.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// The same with a token: computations stop soon after it is cancelled, with errors of the kind
    /// [`Cancelled`](fedsa::error::ErrorKind::Cancelled). A later request computes them again.
    #[must_use]
    pub fn with_cancel(self, cancel: &Cancel) -> Self {
        Self { cancel: cancel.clone(), ..self }
    }

    /// The same with earlier predictions, which are not computed again.
    #[must_use]
    pub fn with_kept(self, kept: KeptPredictions) -> Self {
        Self { kept, ..self }
    }

    /// The known predictions, including earlier ones.
    pub fn keep(&self) -> KeptPredictions {
        let mut all = self.kept.clone();
        let numbers: Vec<((usize, String), f64)> = {
            let numbers = self.numbers.lock().expect("no panics under the lock");
            numbers.iter().filter_map(|(key, x)| Some((key.clone(), *x.as_ref().ok()?))).collect()
        };
        for ((cell, quantity), x) in numbers {
            let accuracy = self.accuracy(cell, &quantity).map(Into::into);
            all.entry(&self.plan, cell).numbers.insert(quantity, (x, accuracy));
        }
        for (cell, curve) in self.curves.lock().expect("no panics under the lock").iter() {
            if let Ok(curve) = curve {
                all.entry(&self.plan, *cell).curve = Some(curve.to_vec());
            }
        }
        for (cell, accuracy) in self.accuracies.lock().expect("no panics under the lock").iter() {
            if let Ok(accuracy) = accuracy {
                all.entry(&self.plan, *cell).curve_accuracy = Some((*accuracy).into());
            }
        }
        all
    }

    /// Calls `compute`, and meanwhile `hear` for every progress, from a thread of its own. The predictor waits for `hear`.
    pub(crate) fn watched<T>(&self, hear: &(dyn Fn(PredictorEvent) + Sync), compute: impl FnOnce() -> T) -> T {
        /// Ends the reception, after a panic too.
        struct Listening<'p>(&'p Predictor);
        impl Drop for Listening<'_> {
            fn drop(&mut self) {
                self.0.listener.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
            }
        }
        thread::scope(|scope| {
            let (sender, messages) = mpsc::channel::<Message>();
            *self.listener.lock().expect("no panics under the lock") = Some(sender);
            let _listening = Listening(self);
            scope.spawn(move || {
                for (progress, heard) in messages {
                    hear(progress);
                    let _ = heard.send(());
                }
            });
            compute()
        })
    }

    fn tell(&self, progress: PredictorEvent) {
        let (heard, wait) = mpsc::sync_channel(1);
        let sender = self.listener.lock().expect("no panics under the lock").clone();
        if sender.is_some_and(|sender| sender.send((progress, heard)).is_ok()) {
            // A receiver that has gone needs no more events.
            let _ = wait.recv();
        }
    }

    /// The result of `compute` for a cell, which must not be stored after a cancellation.
    fn computed<T>(&self, cell: usize, compute: impl FnOnce() -> Result<T>) -> Result<Result<T>> {
        self.tell(PredictorEvent::Begins(cell));
        match compute() {
            Err(e) if e.kind() == ErrorKind::Cancelled => Err(e),
            value => Ok(value),
        }
    }

    /// The token that cancels its computations.
    pub fn cancel(&self) -> &Cancel {
        &self.cancel
    }

    /// The forecast of a cell, cancelled with this predictor.
    pub fn forecast(&self, cell: usize) -> Forecast {
        self.plan.forecast(cell).with_cancel(&self.cancel)
    }

    fn kept_of(&self, cell: usize) -> Option<&KeptCell> {
        self.kept.of(&self.plan, cell)
    }

    /// A quantity of a cell, one of [`QUANTITIES`](crate::names::QUANTITIES).
    ///
    /// # Errors
    /// When it is unknown, with the reason.
    pub fn number(&self, cell: usize, quantity: &str) -> Result<f64> {
        let key = (cell, quantity.to_string());
        if let Some(known) = self.numbers.lock().expect("no panics under the lock").get(&key) {
            return known.clone();
        }
        let kept = self.kept_of(cell).and_then(|kept| kept.numbers.get(quantity));
        let value = match (kept, quantity) {
            (Some((x, _)), _) => Ok(*x),
            (None, FINITE_FLOOR) => self.computed(cell, || self.finite_floor(cell))?,
            (None, other) => self.computed(cell, || predict::quantity(other)?.value_with(&self.forecast(cell), &self.floors_of(cell)))?,
        };
        self.numbers.lock().expect("no panics under the lock").insert(key, value.clone());
        if kept.is_none() && value.is_ok() {
            self.tell(PredictorEvent::Ended);
        }
        value
    }

    /// The floors of a cell, each computed once, without a lock during the computation.
    pub fn floors_of(&self, cell: usize) -> Arc<FloorCache> {
        Arc::clone(self.floors.lock().expect("no panics under the lock").entry(cell).or_default())
    }

    /// How a quantity of a cell is known; `None` if it is unknown, does not exist, or is no mean square.
    pub fn accuracy(&self, cell: usize, quantity: &str) -> Option<Accuracy> {
        if let Some((_, accuracy)) = self.kept_of(cell).and_then(|kept| kept.numbers.get(quantity)) {
            return accuracy.map(Into::into);
        }
        match quantity {
            FINITE_FLOOR => self.number(cell, FINITE_FLOOR).and_then(|_| self.curve_accuracy(cell)).ok(),
            other => predict::quantity(other).ok()?.accuracy(&self.forecast(cell), &self.floors_of(cell)),
        }
    }

    /// How the curve of a cell is known.
    ///
    /// # Errors
    /// When it is unknown, with the reason.
    pub fn curve_accuracy(&self, cell: usize) -> Result<Accuracy> {
        if let Some(known) = self.accuracies.lock().expect("no panics under the lock").get(&cell) {
            return known.clone();
        }
        let value = match self.kept_of(cell).and_then(|kept| kept.curve_accuracy) {
            Some(kept) => Ok(kept.into()),
            None => match self.forecast(cell).curve_accuracy() {
                Err(e) if e.kind() == ErrorKind::Cancelled => return Err(e),
                value => value,
            },
        };
        self.accuracies.lock().expect("no panics under the lock").insert(cell, value.clone());
        value
    }

    /// The relative error of a cell's curve that comparisons allow: eps^2 of a closure, otherwise 0.
    ///
    /// # Errors
    /// When the curve is unknown, or a closure that may be far off, with the reason.
    pub fn curve_error(&self, cell: usize) -> Result<f64> {
        allowed_error(self.curve_accuracy(cell)?)
    }

    /// The relative error of a cell's quantity that comparisons allow: eps^2 of a closure, otherwise 0.
    ///
    /// # Errors
    /// When the quantity is unknown, or from a closure that may be far off, with the reason.
    pub fn relative_error(&self, cell: usize, quantity: &str) -> Result<f64> {
        if quantity == FINITE_FLOOR {
            return self.curve_error(cell);
        }
        let accuracy = predict::quantity(quantity)?.expected_accuracy(&self.forecast(cell), &self.floors_of(cell))?;
        accuracy.map_or(Ok(0.0), allowed_error)
    }

    /// The exact mean-square error over the last fifth of the rounds.
    fn finite_floor(&self, cell: usize) -> Result<f64> {
        let curve = self.curve(cell)?;
        let last = self.plan.cells[cell].run.rounds;
        let tail = self.plan.cells[cell].grid.iter().zip(self.mse(cell, &curve, "error")).filter(|(t, _)| in_tail(**t, last));
        let values: Vec<f64> = tail.map(|(_, x)| x).collect();
        Ok(values.iter().sum::<f64>() / values.len() as f64)
    }

    /// Checks that a quantity of a cell has a closed form. Its computation may still fail.
    ///
    /// # Errors
    /// When it has none, with the reason.
    pub fn knows(&self, cell: usize, quantity: &str) -> Result<()> {
        match quantity {
            FINITE_FLOOR => self.knows_curve(cell),
            other => predict::quantity(other).and_then(|quantity| quantity.known(&self.forecast(cell))),
        }
    }

    /// Checks that measurements of a cell can be compared with a quantity: it is known, beyond leading order, and not from a closure that
    /// may be far off.
    ///
    /// # Errors
    /// When they cannot, with the reason.
    pub fn is_level(&self, cell: usize, quantity: &str) -> Result<()> {
        if quantity != FINITE_FLOOR && !predict::quantity(quantity)?.is_level() {
            let what = format!("`{quantity}` is known to leading order in the step size only, often 10 to 50% off");
            return Err(Error::new("", what, "a number, or a quantity that is exact or a closure; figures can draw it"));
        }
        self.knows(cell, quantity)?;
        self.relative_error(cell, quantity).map(|_| ())
    }

    /// Checks that the exact mean-square error of a cell has a closed form, and that its rounds are few enough to compute it.
    ///
    /// # Errors
    /// When it cannot be computed, with the reason.
    pub fn knows_curve(&self, cell: usize) -> Result<()> {
        self.start(cell).and_then(|_| self.forecast(cell).knows_curve_to(self.plan.cells[cell].run.rounds))
    }

    /// The start of a cell, if all its seeds have the same start.
    fn start(&self, cell: usize) -> Result<&[f64]> {
        self.forecast(cell).knows_rounds()?;
        match &self.plan.cells[cell].start {
            ResolvedStart::Fixed(theta_0) => Ok(theta_0),
            ResolvedStart::Normal => Err(unknown("the start is random")),
        }
    }

    /// A quantity of a cell, if it has already been computed.
    pub fn known(&self, cell: usize, quantity: &str) -> Option<f64> {
        let numbers = self.numbers.lock().expect("no panics under the lock");
        numbers.get(&(cell, quantity.to_string()))?.as_ref().ok().copied()
    }

    /// Why a requested quantity of a cell is unknown.
    pub fn why_unknown(&self, cell: usize, quantity: &str) -> Option<Error> {
        let numbers = self.numbers.lock().expect("no panics under the lock");
        numbers.get(&(cell, quantity.to_string()))?.as_ref().err().cloned()
    }

    /// Why the requested curve of a cell is unknown.
    pub fn why_no_curve(&self, cell: usize) -> Option<Error> {
        self.curves.lock().expect("no panics under the lock").get(&cell)?.as_ref().err().cloned()
    }

    /// The mean and mean-square error at the recorded rounds of a cell, with the accuracy of [`Predictor::curve_accuracy`].
    ///
    /// # Errors
    /// When they are unknown, with the reason.
    pub fn curve(&self, cell: usize) -> Result<Arc<Vec<MeanSquare>>> {
        if let Some(known) = self.curves.lock().expect("no panics under the lock").get(&cell) {
            return known.clone();
        }
        let planned = &self.plan.cells[cell];
        let controls = if planned.method.controls == ControlsStart::Ideal { InitialControls::Root } else { InitialControls::Zero };
        let curve = |theta_0: &[f64]| self.forecast(cell).curve(theta_0, &controls, &planned.grid);
        let kept = self.kept_of(cell).and_then(|kept| kept.curve.clone());
        let is_kept = kept.is_some();
        let value = match kept {
            Some(kept) => Ok(Arc::new(kept)),
            None => self.computed(cell, || self.start(cell).and_then(curve).map(Arc::new))?,
        };
        self.curves.lock().expect("no panics under the lock").insert(cell, value.clone());
        if !is_kept && value.is_ok() {
            self.tell(PredictorEvent::Ended);
        }
        value
    }

    /// `||E theta_t - theta*||^2 + noise` of `points`, measured from a cell's centre.
    pub fn mse(&self, cell: usize, points: &[MeanSquare], metric: &str) -> Vec<f64> {
        let (field, cell) = (self.plan.field(cell), &self.plan.cells[cell]);
        let offset: Option<Vec<f64>> = match (&cell.centre, field.root(), metric) {
            (Some(centre), Some(root), "error") => Some(centre.iter().zip(root).map(|(c, r)| c - r).collect()),
            _ => None,
        };
        points.iter().map(|p| offset.as_ref().map_or_else(|| p.mse(), |offset| p.mse_around(offset))).collect()
    }
}

/// The relative error that comparisons with a number allow: eps^2 of a closure, otherwise 0.
fn allowed_error(accuracy: Accuracy) -> Result<f64> {
    match (accuracy, accuracy.warning()) {
        (Accuracy::Closure { .. }, Some(why)) => {
            let help = format!("a number, or what is exact or a closure with eps² of at most {DOUBTFUL}; figures can draw it");
            Err(Error::new("", why, help))
        }
        (Accuracy::Closure { eps_squared }, None) => Ok(eps_squared),
        (Accuracy::Exact | Accuracy::LeadingOrder, _) => Ok(0.0),
    }
}
