//! How much memory a thread asks for. A program that uses this crate has its allocator: the system's, which counts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, which counts what the current thread asks for.
struct Counting;

#[derive(Clone, Copy)]
struct Counts {
    asked: usize,
    largest: usize,
    in_use: isize,
    peak: isize,
}

thread_local! {
    static COUNTS: Cell<Counts> = const { Cell::new(Counts { asked: 0, largest: 0, in_use: 0, peak: 0 }) };
}

fn asks(size: usize) {
    COUNTS.with(|cell| {
        let Counts { asked, largest, in_use, peak } = cell.get();
        let in_use = in_use + size.cast_signed();
        cell.set(Counts { asked: asked + size, largest: largest.max(size), in_use, peak: peak.max(in_use) });
    });
}

// SAFETY: every call is handed to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        asks(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        asks(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        COUNTS.with(|cell| cell.set(Counts { in_use: cell.get().in_use - layout.size().cast_signed(), ..cell.get() }));
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What the current thread asked for while `work` ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Used {
    /// Bytes that it asked for in all.
    pub asked: usize,
    /// Bytes of its largest request.
    pub largest: usize,
    /// Bytes more than before that it had at most at one time.
    pub peak: usize,
}

/// Runs `work`, and measures what the current thread asks for meanwhile. What other threads ask for is not counted.
pub fn of<T>(work: impl FnOnce() -> T) -> (T, Used) {
    let before = COUNTS.get();
    COUNTS.set(Counts { largest: 0, peak: before.in_use, ..before });
    let result = work();
    let after = COUNTS.get();
    let peak = (after.peak - before.in_use).max(0).unsigned_abs();
    (result, Used { asked: after.asked - before.asked, largest: after.largest, peak })
}
