//! The threads of the package: a pool that is created on first use, and again after a fork.

use std::mem::forget;
use std::sync::{Arc, Mutex, PoisonError};

use fedsa::error::{Error, require};
use rayon::{ThreadPool, ThreadPoolBuilder};

/// The largest number of threads.
const MOST: usize = 1024;

/// Threads, and the process that started them.
struct Started {
    process: u32,
    pool: Arc<ThreadPool>,
}

struct State {
    /// The requested number of threads; by default the machine's.
    asked: Option<usize>,
    started: Option<Started>,
}

static STATE: Mutex<State> = Mutex::new(State { asked: None, started: None });

/// The pool of this process.
///
/// # Errors
/// When threads cannot be started, or `FEDSA_THREADS` is not a number of threads.
pub fn pool() -> Result<Arc<ThreadPool>, Error> {
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    let process = std::process::id();
    match state.started.take() {
        Some(started) if started.process == process => {
            let pool = Arc::clone(&started.pool);
            state.started = Some(started);
            return Ok(pool);
        }
        // The threads belong to the process from which this one was forked; here there are none to end.
        Some(started) => forget(started),
        None => {}
    }
    let threads = state.asked.map_or_else(of_environment, Ok)?;
    let pool = started(threads, "fedsa")?;
    state.started = Some(Started { process, pool: Arc::clone(&pool) });
    Ok(pool)
}

/// A second pool with as many threads, for work that waits for Python while Python uses the first.
///
/// # Errors
/// As [`pool`].
pub fn beside() -> Result<Arc<ThreadPool>, Error> {
    started(pool()?.current_num_threads(), "fedsa-session")
}

/// A pool of one thread, for work that calls Python.
///
/// # Errors
/// When the thread cannot be started.
pub fn alone() -> Result<Arc<ThreadPool>, Error> {
    started(1, "fedsa-callbacks")
}

fn started(threads: usize, name: &'static str) -> Result<Arc<ThreadPool>, Error> {
    let builder = ThreadPoolBuilder::new().num_threads(threads).thread_name(move |i| format!("{name}-{i}"));
    let failed = |e| Error::machine(format!("the threads cannot be started: {e}"), "set_threads with fewer threads");
    builder.build().map(Arc::new).map_err(failed)
}

/// Sets the number of threads of later calls; `None` stands for the environment's or the machine's number.
///
/// # Errors
/// When it is not between 1 and [`MOST`].
pub fn set(threads: Option<usize>) -> Result<(), Error> {
    threads.map_or(Ok(()), |n| in_range("threads", n))?;
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    state.asked = threads;
    match state.started.take() {
        Some(started) if started.process != std::process::id() => forget(started),
        // Running calls keep the pool until they end.
        _ => {}
    }
    Ok(())
}

fn in_range(key: &str, n: usize) -> Result<(), Error> {
    require((1..=MOST).contains(&n), key, n, &format!("a whole number between 1 and {MOST}"))
}

/// The value of `FEDSA_THREADS`; by default 0, one thread per processor.
fn of_environment() -> Result<usize, Error> {
    const NAME: &str = "FEDSA_THREADS";
    let Some(text) = std::env::var_os(NAME).filter(|text| !text.is_empty()) else { return Ok(0) };
    let threads = text.to_string_lossy().trim().parse().unwrap_or(0);
    in_range(NAME, threads).map_err(|e| e.saying(format!("{:?} is not accepted", text)))?;
    Ok(threads)
}
