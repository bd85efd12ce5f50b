//! Loops over agents, rows and blocks on all threads.
//!
//! The loop calls the work through a pointer, so it is compiled once; rayon's iterators are compiled for each closure, which was an eighth
//! of the crate's code. If the work for an index does not depend on the order of calls, results have the same bits for any number of
//! threads.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// The threads that share the work.
pub fn threads() -> usize {
    rayon::current_num_threads()
}

/// Calls `see` with ranges that together are the indices below `n`, each of at most `most` indices. As in rayon's iterators, each thread
/// has several ranges, and stolen ranges are halved again, so that idle threads find work.
pub fn ranges(n: usize, most: usize, see: &(dyn Fn(Range<usize>) + Sync)) {
    if n > 0 {
        halve(0..n, threads().max(n / most.max(1)), false, see);
    }
}

fn halve(range: Range<usize>, pieces: usize, is_taken_over: bool, see: &(dyn Fn(Range<usize>) + Sync)) {
    if range.len() < 2 || (pieces == 0 && !is_taken_over) {
        return see(range);
    }
    let pieces = if is_taken_over { threads().max(pieces / 2) } else { pieces / 2 };
    let middle = range.start + range.len() / 2;
    let (low, high) = (range.start..middle, middle..range.end);
    rayon::join_context(|at| halve(low, pieces, at.migrated(), see), |at| halve(high, pieces, at.migrated(), see));
}

/// Calls `see` with each index below `n`.
pub fn each(n: usize, see: impl Fn(usize) + Sync) {
    ranges(n, usize::MAX, &|range| range.for_each(&see));
}

/// Collects `of(i)` for each index i below `n`, in order.
pub fn map<T: Send>(n: usize, of: impl Fn(usize) -> T + Sync) -> Vec<T> {
    map_by(n, usize::MAX, &of)
}

/// As [`map`], in tasks of at most `most` indices.
pub fn map_by<T: Send>(n: usize, most: usize, of: &(dyn Fn(usize) -> T + Sync)) -> Vec<T> {
    let mut all: Vec<Option<T>> = Vec::with_capacity(n);
    all.resize_with(n, || None);
    let all = Mutex::new(all);
    ranges(n, most, &|range| {
        let first = range.start;
        let mut own = Vec::with_capacity(range.len());
        for i in range {
            own.push(Some(of(i)));
        }
        // Held briefly: only moves.
        let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
        all[first..first + own.len()].swap_with_slice(&mut own);
    });
    let mut out = Vec::with_capacity(n);
    for one in all.into_inner().unwrap_or_else(PoisonError::into_inner) {
        out.push(one.expect("each index is in a range"));
    }
    out
}

/// [`map`] for work that can fail.
///
/// # Errors
/// The first error in order.
pub fn try_map<T: Send, E: Send>(n: usize, of: impl Fn(usize) -> Result<T, E> + Sync) -> Result<Vec<T>, E> {
    let mut out = Vec::with_capacity(n);
    for one in map(n, of) {
        out.push(one?);
    }
    Ok(out)
}

/// [`try_map`] for work that sometimes uses several threads itself. It runs on threads of the pool, which divide work without waking
/// another thread and waiting for it.
///
/// # Errors
/// The first error in order.
pub fn try_map_shared<T: Send, E: Send>(n: usize, of: impl Fn(usize) -> Result<T, E> + Sync) -> Result<Vec<T>, E> {
    rayon::scope(|_| try_map(n, &of))
}

/// [`map`]; `None` if any result is.
pub fn map_all<T: Send>(n: usize, of: impl Fn(usize) -> Option<T> + Sync) -> Option<Vec<T>> {
    try_map(n, |i| of(i).ok_or(())).ok()
}

/// [`map`] over items that `of` consumes.
pub fn map_into<T: Send, U: Send>(items: Vec<T>, of: impl Fn(usize, T) -> U + Sync) -> Vec<U> {
    let mut cells = Vec::with_capacity(items.len());
    for item in items {
        cells.push(Mutex::new(Some(item)));
    }
    let take = |i: usize| cells[i].lock().unwrap_or_else(PoisonError::into_inner).take();
    map(cells.len(), |i| of(i, take(i).expect("each index is in one range")))
}

/// Computes both results: in parallel if there are fewer `items` than threads, so that loops over them leave threads idle; otherwise one
/// after the other, which takes less memory.
pub fn both<A: Send, B: Send>(items: usize, a: impl FnOnce() -> A + Send, b: impl FnOnce() -> B + Send) -> (A, B) {
    if items < threads() { rayon::join(a, b) } else { (a(), b()) }
}

/// Calls `see` with each item and its index.
pub fn each_mut<T: Send>(items: &mut [T], see: impl Fn(usize, &mut T) + Sync) {
    each_mut_by(items, usize::MAX, &see);
}

/// As [`each_mut`], in tasks of at most `most` items.
pub fn each_mut_by<T: Send>(items: &mut [T], most: usize, see: &(dyn Fn(usize, &mut T) + Sync)) {
    let mut cells = Vec::with_capacity(items.len());
    for item in items {
        // Each is locked once, by the thread that has its index.
        cells.push(Mutex::new(item));
    }
    ranges(cells.len(), most, &|range| {
        for i in range {
            see(i, &mut cells[i].lock().unwrap_or_else(PoisonError::into_inner));
        }
    });
}

/// Calls `see` with each chunk of `size` numbers, the last of which may be shorter, and its index.
pub fn each_chunk(values: &mut [f64], size: usize, see: &(dyn Fn(usize, &mut [f64]) + Sync)) {
    let mut chunks: Vec<&mut [f64]> = values.chunks_mut(size).collect();
    each_mut_by(&mut chunks, usize::MAX, &|k, chunk| see(k, chunk));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(threads: usize, work: impl Fn() + Send + Sync) {
        rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(work);
    }

    #[test]
    fn both_are_computed_whatever_there_are_of_items() {
        for (threads, items) in [(1, 0), (1, 1), (2, 1), (2, 2), (3, 9)] {
            on(threads, || assert_eq!(both(items, || 1, || "b"), (1, "b")));
        }
    }

    #[test]
    fn each_index_is_seen_once_and_results_are_in_order() {
        for threads in [1, 2, 5] {
            for (n, most) in [(0, 1), (1, 1), (2, 7), (100, 1), (1000, 16), (1000, usize::MAX), (7, 0)] {
                on(threads, || {
                    assert_eq!(map_by(n, most, &|i| i.to_string()), (0..n).map(|i| i.to_string()).collect::<Vec<_>>());
                    let items: Vec<String> = (0..n).map(|i| i.to_string()).collect();
                    assert_eq!(map_into(items.clone(), |i, item| (i, item)), items.into_iter().enumerate().collect::<Vec<_>>());
                    let mut seen = vec![0; n];
                    each_mut_by(&mut seen, most, &|i, x| *x += i + 1);
                    assert!(seen.iter().enumerate().all(|(i, x)| *x == i + 1), "{n} {most}");
                    let mut values = vec![0.0; n];
                    each_chunk(&mut values, 7, &|k, chunk| chunk.iter_mut().enumerate().for_each(|(i, x)| *x += (7 * k + i) as f64));
                    assert!(values.iter().enumerate().all(|(i, x)| *x == i as f64), "{n}");
                });
            }
        }
    }

    #[test]
    fn the_first_error_in_order_is_returned() {
        let of = |i: usize| if i % 10 == 7 { Err(i) } else { Ok(i) };
        on(3, || assert_eq!(try_map(100, of), Err(7)));
        assert_eq!(try_map(7, of), Ok((0..7).collect()));
        assert_eq!(map_all(9, |i| of(i).ok()), None);
    }

    #[test]
    fn tasks_are_small_where_that_is_asked() {
        let most = Mutex::new(0);
        ranges(1000, 10, &|range| {
            let mut most = most.lock().unwrap();
            *most = range.len().max(*most);
        });
        assert!(*most.lock().unwrap() <= 10);
    }
}
