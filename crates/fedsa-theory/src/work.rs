//! Counted work: computations that end after so many operations, at the same place on every machine, or when they are cancelled.
//!
//! Solutions by iteration, eigenvalues and paths over many rounds take a number of products that is known only afterwards. They count
//! what they do as they go on (`charge`), in multiplications of about a nanosecond each. [`within`] sets how much a computation may
//! take; what needs more is an error. Without it nothing is limited.
//!
//! Where work is counted, the token is looked at with which the computation may be cancelled ([`until`]).
//!
//! The count and the token belong to the thread that computes: solvers work in the thread that calls them, and only their products use
//! others. A thread that waits for others may take on a task of another computation meanwhile, so each task of a loop over several threads
//! has a count and a token of its own ([`alone`], `map`).

use std::cell::{Cell, RefCell};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use fedsa::cancel::Cancel;
use fedsa::error::{Error, Result};
use fedsa::parallel;

/// What a computation may still take and has taken, and whether something in it was not computed because it would take too long.
#[derive(Debug, Clone, Copy)]
struct Meter {
    left: f64,
    spent: f64,
    was_cut: bool,
}

const UNLIMITED: Meter = Meter { left: f64::INFINITY, spent: 0.0, was_cut: false };

thread_local! {
    static METER: Cell<Meter> = const { Cell::new(UNLIMITED) };
    static TOKEN: RefCell<Cancel> = const { RefCell::new(Cancel::never()) };
}

/// What a computation has taken.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WorkSpent {
    /// The multiplications that were counted.
    pub work: f64,
    /// Whether something was not computed because it would take too long.
    pub was_cut: bool,
}

/// Puts back the count of the computation around this one, with what this one has taken.
struct Around(Meter);

impl Drop for Around {
    fn drop(&mut self) {
        let (outer, spent) = (self.0, METER.get().spent);
        METER.set(Meter { left: outer.left - spent, spent: outer.spent + spent, was_cut: outer.was_cut });
    }
}

/// Computes within about `most` multiplications, or what is left of a computation around this one; the result, and what it took.
///
/// # Errors
/// The result is an error where the computation fails or would take more.
pub fn within<T>(most: f64, compute: impl FnOnce() -> Result<T>) -> (Result<T>, WorkSpent) {
    let around = Around(METER.get());
    METER.set(Meter { left: most.min(around.0.left), ..UNLIMITED });
    let result = compute();
    let Meter { spent, was_cut, .. } = METER.get();
    drop(around);
    (result, WorkSpent { work: spent, was_cut })
}

/// As [`within`], in a task of its own: a computation around it, whose thread may have taken this task on while it waits, neither limits
/// it nor pays for it.
///
/// # Errors
/// As [`within`].
pub fn alone<T>(most: f64, compute: impl FnOnce() -> Result<T>) -> (Result<T>, WorkSpent) {
    let waiting = Waiting(METER.replace(UNLIMITED));
    let result = within(most, compute);
    drop(waiting);
    result
}

/// Puts back the count of a computation that waits.
struct Waiting(Meter);

impl Drop for Waiting {
    fn drop(&mut self) {
        METER.set(self.0);
    }
}

/// Puts back the token of the computation around this one.
struct TokenAround(Cancel);

impl TokenAround {
    fn replacing_with(cancel: &Cancel) -> Self {
        Self(TOKEN.replace(cancel.clone()))
    }
}

impl Drop for TokenAround {
    fn drop(&mut self) {
        TOKEN.replace(std::mem::replace(&mut self.0, Cancel::never()));
    }
}

/// Computes until `cancel` is cancelled, and then stops soon. The token of a computation around this one does not count in it: of
/// forecasts, that of the forecast counts ([`Forecast::with_cancel`](crate::predict::Forecast::with_cancel)).
///
/// # Errors
/// As the computation; when the token was cancelled before its end, with the kind
/// [`Cancelled`](fedsa::error::ErrorKind::Cancelled), also where the computation goes on without what it could not compute.
pub fn until<T>(cancel: &Cancel, compute: impl FnOnce() -> Result<T>) -> Result<T> {
    let around = TokenAround::replacing_with(cancel);
    cancel.check()?;
    let result = compute();
    drop(around);
    cancel.check()?;
    result
}

/// Whether the computation of this thread is cancelled.
pub(crate) fn is_cancelled() -> bool {
    TOKEN.with_borrow(Cancel::is_cancelled)
}

/// Goes on, unless the computation of this thread is cancelled.
///
/// # Errors
/// When it is.
pub(crate) fn check() -> Result<()> {
    TOKEN.with_borrow(Cancel::check)
}

/// The multiplications of a dense factorisation, eigenvalues too, that takes no more than a tenth of a second.
const SOON: f64 = 1e8;
/// The time between looks at the token.
const LOOK: Duration = Duration::from_millis(20);

/// A factorisation of about `work` multiplications, which cannot be stopped: one that takes long has a thread of its own, which is left
/// alone once the computation is cancelled.
///
/// # Errors
/// When the computation is cancelled.
///
/// # Panics
/// When `compute` does.
pub(crate) fn dense<T: Send + 'static>(work: f64, compute: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    check()?;
    if work < SOON {
        return Ok(compute());
    }
    let (give, take) = channel();
    let worker = thread::Builder::new().name("fedsa-dense".into()).spawn(move || {
        // Nobody takes what was left alone.
        let _ = give.send(compute());
    });
    let worker = worker.map_err(|e| Error::machine(format!("a thread cannot be started: {e}"), "fewer threads"))?;
    loop {
        match take.recv_timeout(LOOK) {
            Ok(found) => return Ok(found),
            Err(RecvTimeoutError::Timeout) => check()?,
            Err(RecvTimeoutError::Disconnected) => {
                let panic = worker.join().expect_err("a thread that ends without a result has panicked");
                std::panic::resume_unwind(panic)
            }
        }
    }
}

/// `of` each index below `n`, in order and in parallel, until this computation is cancelled. Each may take what is left; what all took is
/// counted afterwards.
///
/// # Errors
/// When it is, or when all together took more than what is left.
pub(crate) fn map<T: Send>(n: usize, of: impl Fn(usize) -> T + Sync) -> Result<Vec<T>> {
    try_map(n, |i| Ok(of(i)))
}

/// As [`map`]. Of several errors the first in order is returned.
///
/// # Errors
/// The first error in order, when the computation is cancelled, or when all together took more than what is left.
pub(crate) fn try_map<T: Send>(n: usize, of: impl Fn(usize) -> Result<T> + Sync) -> Result<Vec<T>> {
    let token = TOKEN.with_borrow(Cancel::clone);
    let left = left();
    let all = parallel::map(n, |i| {
        let _around = TokenAround::replacing_with(&token);
        alone(left, || token.check().and_then(|()| of(i)))
    });
    let (results, spent): (Vec<Result<T>>, Vec<WorkSpent>) = all.into_iter().unzip();
    if spent.iter().any(|task| task.was_cut) {
        METER.set(Meter { was_cut: true, ..METER.get() });
    }
    let counted = record(spent.iter().map(|task| task.work).sum());
    // Errors of the tasks come first: they say what was being computed.
    let results = results.into_iter().collect::<Result<Vec<T>>>()?;
    counted.map(|()| results)
}

/// Counts `work` multiplications that come next.
///
/// # Errors
/// When so many are no longer allowed; they are not counted then, because they are not made. When the computation is cancelled.
pub(crate) fn charge(work: f64) -> Result<()> {
    check()?;
    if left() >= work { record(work) } else { Err(refused("", LESS)) }
}

/// Counts `work` multiplications that were made.
///
/// # Errors
/// When they were more than allowed, or the computation is cancelled.
pub(crate) fn record(work: f64) -> Result<()> {
    let now = METER.get();
    METER.set(Meter { left: now.left - work, spent: now.spent + work, ..now });
    check()?;
    if now.left >= work { Ok(()) } else { Err(refused("", LESS)) }
}

/// What takes less.
const LESS: &str = "fewer agents, states, features or local steps, or a step size further from the edge of stability";

/// The error of what is not computed because it would take too long.
pub(crate) fn refused(what: &str, help: &str) -> Error {
    METER.set(Meter { was_cut: true, ..METER.get() });
    let what = if what.is_empty() { "it" } else { what };
    Error::not_known("", format!("not computed: {what} takes too long"), help)
}

/// How many multiplications may still be counted; infinite without a limit.
pub(crate) fn left() -> f64 {
    METER.get().left.max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fedsa::error::ErrorKind;

    #[test]
    fn work_is_counted_within_and_around() {
        assert_eq!(left(), f64::INFINITY);
        let (result, spent) = within(100.0, || {
            charge(30.0)?;
            let (inner, inner_spent) = within(50.0, || charge(40.0).and_then(|()| charge(20.0)));
            assert!(inner.unwrap_err().what.contains("takes too long") && inner_spent == WorkSpent { work: 40.0, was_cut: true });
            // The inner one has taken its part of the outer one.
            assert_eq!(left(), 30.0);
            let (all, _) = within(1e9, || charge(31.0));
            assert!(all.is_err() && left() == 30.0);
            record(31.0)
        });
        assert!(result.is_err() && spent == WorkSpent { work: 101.0, was_cut: true });
        assert_eq!(left(), f64::INFINITY);
    }

    #[test]
    fn tasks_are_counted_by_the_computation_that_they_belong_to() {
        // A thread that computes within 10 takes on a task of another computation, while it waits.
        let (result, spent) = within(10.0, || {
            let (other, of_other) = alone(50.0, || charge(40.0));
            assert!(other.is_ok() && of_other == WorkSpent { work: 40.0, was_cut: false });
            charge(10.0)
        });
        assert!(result.is_ok() && spent == WorkSpent { work: 10.0, was_cut: false });
        // Whichever threads they run in, tasks are paid for by the loop that they belong to.
        let (result, spent) = within(100.0, || try_map(8, |_| charge(12.0)));
        assert!(result.is_ok() && spent == WorkSpent { work: 96.0, was_cut: false });
        let (result, spent) = within(90.0, || try_map(8, |_| charge(12.0)));
        assert!(result.is_err() && spent == WorkSpent { work: 96.0, was_cut: true });
        let (result, spent) = within(10.0, || try_map(8, |i| charge(i as f64 * 3.0)));
        assert!(result.is_err() && spent == WorkSpent { work: 18.0, was_cut: true }, "{spent:?}");
    }

    /// The factorisation goes on until the test lets it end, which it does after the call has returned.
    #[test]
    fn a_cancelled_computation_does_not_wait_for_a_factorisation() {
        let cancel = Cancel::new();
        let (release, wait) = channel::<()>();
        let (begun, begins) = channel();
        let factorise = move || {
            begun.send(()).unwrap();
            wait.recv().is_ok()
        };
        thread::scope(|scope| {
            let found = scope.spawn(|| until(&cancel, || dense(1e9, factorise)));
            begins.recv().unwrap();
            cancel.cancel();
            assert_eq!(found.join().unwrap().unwrap_err().kind(), ErrorKind::Cancelled);
        });
        release.send(()).unwrap();
        assert_eq!(until(&Cancel::new(), || dense(1e9, || 5)), Ok(5));
    }

    #[test]
    fn a_computation_ends_with_its_own_token() {
        let (outer, inner) = (Cancel::new(), Cancel::new());
        let ended = until(&outer, || {
            inner.cancel();
            let within = until(&inner, || -> Result<()> { panic!("it is cancelled before it begins") });
            assert_eq!(within.unwrap_err().kind(), ErrorKind::Cancelled);
            charge(1.0)?;
            // Threads that help look at the token of the computation that they help.
            assert_eq!(map(100, |_| is_cancelled())?, vec![false; 100]);
            outer.cancel();
            assert!(until(&Cancel::never(), || charge(1.0)).is_ok());
            assert_eq!(map(3, |i| i).unwrap_err().kind(), ErrorKind::Cancelled);
            assert_eq!(charge(1.0).unwrap_err().kind(), ErrorKind::Cancelled);
            Ok(())
        });
        assert_eq!(ended.unwrap_err().kind(), ErrorKind::Cancelled);
        assert!(charge(1.0).is_ok());
    }

    /// As long as there is no limit, and after a panic too.
    #[test]
    fn limits_end_with_their_computation() {
        assert!(charge(1e300).is_ok());
        assert_eq!(within(5.0, || charge(2.0)).1, WorkSpent { work: 2.0, was_cut: false });
        let _ = std::panic::catch_unwind(|| within(1.0, || -> Result<()> { panic!("in between") }));
        assert!(charge(1e300).is_ok());
    }
}
