//! Counted work: computations end after a number of operations, at the same place on every machine, or when they are cancelled.
//!
//! Solutions by iteration, eigenvalues and paths over many rounds take a number of products that is known only afterwards. They count
//! their work as they proceed (`charge`), in multiplications of about a nanosecond each. [`within`] limits a computation; more work is
//! an error. Without it there is no limit.
//!
//! Counting work also checks the token that can cancel the computation ([`until`]).
//!
//! The count and the token belong to the computing thread: solvers work in the calling thread, and only their products use others. A
//! waiting thread may take on a task of another computation, so each task of a parallel loop has its own count and token ([`alone`],
//! `map`).

use std::cell::{Cell, RefCell};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use fedsa::cancel::Cancel;
use fedsa::error::{Error, Result};
use fedsa::parallel;

/// The remaining and used work of a computation, and whether a part was skipped because it would take too long.
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

/// The work of a computation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WorkSpent {
    /// The counted multiplications.
    pub work: f64,
    /// Whether a part was skipped because it would take too long.
    pub was_cut: bool,
}

/// Restores the count of the surrounding computation, plus the work of this one.
struct Around(Meter);

impl Drop for Around {
    fn drop(&mut self) {
        let (outer, spent) = (self.0, METER.get().spent);
        METER.set(Meter { left: outer.left - spent, spent: outer.spent + spent, was_cut: outer.was_cut });
    }
}

/// Computes within about `most` multiplications, or within the remaining work of the surrounding computation; returns the result and
/// the work.
///
/// # Errors
/// The result is an error if the computation fails or would take more.
pub fn within<T>(most: f64, compute: impl FnOnce() -> Result<T>) -> (Result<T>, WorkSpent) {
    let around = Around(METER.get());
    METER.set(Meter { left: most.min(around.0.left), ..UNLIMITED });
    let result = compute();
    let Meter { spent, was_cut, .. } = METER.get();
    drop(around);
    (result, WorkSpent { work: spent, was_cut })
}

/// As [`within`], as a separate task. A surrounding computation, whose thread may have taken on this task while it waits, neither
/// limits nor counts it.
///
/// # Errors
/// As [`within`].
pub fn alone<T>(most: f64, compute: impl FnOnce() -> Result<T>) -> (Result<T>, WorkSpent) {
    let waiting = Waiting(METER.replace(UNLIMITED));
    let result = within(most, compute);
    drop(waiting);
    result
}

/// Restores the count of a waiting computation.
struct Waiting(Meter);

impl Drop for Waiting {
    fn drop(&mut self) {
        METER.set(self.0);
    }
}

/// Restores the token of the surrounding computation.
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

/// Computes until `cancel` is cancelled, and then stops soon. The token of a surrounding computation has no effect inside. A forecast
/// uses its own token ([`Forecast::with_cancel`](crate::predict::Forecast::with_cancel)).
///
/// # Errors
/// As the computation. If the token was cancelled before its end, the kind is [`Cancelled`](fedsa::error::ErrorKind::Cancelled), even
/// if the computation continues without the missing part.
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

/// Checks that the computation of this thread is not cancelled.
///
/// # Errors
/// When it is.
pub(crate) fn check() -> Result<()> {
    TOKEN.with_borrow(Cancel::check)
}

/// The multiplications of a dense factorisation, or eigenvalues, that takes at most a tenth of a second.
const SOON: f64 = 1e8;
/// The time between checks of the token.
const LOOK: Duration = Duration::from_millis(20);

/// A factorisation of about `work` multiplications, which cannot be stopped. A long one runs on its own thread, which is abandoned if
/// the computation is cancelled.
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
        // No receiver is left after cancellation.
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

/// Applies `of` to each index below `n`, in parallel, with results in order, until this computation is cancelled. Each may take all
/// remaining work; the sum is counted afterwards.
///
/// # Errors
/// When it is cancelled, or all together took more than the remaining work.
pub(crate) fn map<T: Send>(n: usize, of: impl Fn(usize) -> T + Sync) -> Result<Vec<T>> {
    try_map(n, |i| Ok(of(i)))
}

/// As [`map`]. Of several errors the first in order is returned.
///
/// # Errors
/// The first error in order, or when the computation is cancelled or all together took more than the remaining work.
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
    // Errors of the tasks come first: they name the computation.
    let results = results.into_iter().collect::<Result<Vec<T>>>()?;
    counted.map(|()| results)
}

/// Counts the next `work` multiplications.
///
/// # Errors
/// When they exceed the limit; then they are not counted, because they are not made. When the computation is cancelled.
pub(crate) fn charge(work: f64) -> Result<()> {
    check()?;
    if left() >= work { record(work) } else { Err(refused("", LESS)) }
}

/// Counts `work` multiplications already made.
///
/// # Errors
/// When they exceed the limit, or the computation is cancelled.
pub(crate) fn record(work: f64) -> Result<()> {
    let now = METER.get();
    METER.set(Meter { left: now.left - work, spent: now.spent + work, ..now });
    check()?;
    if now.left >= work { Ok(()) } else { Err(refused("", LESS)) }
}

/// Advice to reduce work.
const LESS: &str = "fewer agents, states, features or local steps, or a step size further from the edge of stability";

/// The error for a result that would take too long.
pub(crate) fn refused(what: &str, help: &str) -> Error {
    METER.set(Meter { was_cut: true, ..METER.get() });
    let what = if what.is_empty() { "it" } else { what };
    Error::not_known("", format!("not computed: {what} takes too long"), help)
}

/// The multiplications that may still be counted; infinite without a limit.
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
            // The inner computation has used its part of the outer one.
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
        // A thread with a limit of 10 takes on a task of another computation while it waits.
        let (result, spent) = within(10.0, || {
            let (other, of_other) = alone(50.0, || charge(40.0));
            assert!(other.is_ok() && of_other == WorkSpent { work: 40.0, was_cut: false });
            charge(10.0)
        });
        assert!(result.is_ok() && spent == WorkSpent { work: 10.0, was_cut: false });
        // The loop pays for its tasks in whichever threads they run.
        let (result, spent) = within(100.0, || try_map(8, |_| charge(12.0)));
        assert!(result.is_ok() && spent == WorkSpent { work: 96.0, was_cut: false });
        let (result, spent) = within(90.0, || try_map(8, |_| charge(12.0)));
        assert!(result.is_err() && spent == WorkSpent { work: 96.0, was_cut: true });
        let (result, spent) = within(10.0, || try_map(8, |i| charge(i as f64 * 3.0)));
        assert!(result.is_err() && spent == WorkSpent { work: 18.0, was_cut: true }, "{spent:?}");
    }

    /// The factorisation continues until the test lets it end, after the call has returned.
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
            // Helping threads check the token of the computation that they help.
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
