//! How much memory an input takes.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The system's allocator, which counts the bytes that are and at most were in use, and has
/// none left beyond [`MOST`].
pub struct Counting;

/// The most memory that a process may use: a machine that many use is not to be filled.
pub const MOST: usize = 3 << 30;

static IN_USE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// Takes note of `size` bytes more; whether there is room for them.
fn take(size: usize) -> bool {
    let now = IN_USE.fetch_add(size, Ordering::Relaxed) + size;
    if now > MOST {
        IN_USE.fetch_sub(size, Ordering::Relaxed);
        return false;
    }
    PEAK.fetch_max(now, Ordering::Relaxed);
    true
}

// SAFETY: every call is handed to the system's allocator as it is, or answered with null, which
// says that there is no memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if take(layout.size()) { unsafe { System.alloc(layout) } } else { std::ptr::null_mut() }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if take(layout.size()) { unsafe { System.alloc_zeroed(layout) } } else { std::ptr::null_mut() }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !take(size.saturating_sub(layout.size())) {
            return std::ptr::null_mut();
        }
        IN_USE.fetch_sub(layout.size().saturating_sub(size), Ordering::Relaxed);
        unsafe { System.realloc(at, layout, size) }
    }
}

/// The bytes that `work` took at its peak beyond those in use before; 0 where this is not the
/// allocator of the process. Counts all threads.
pub fn of<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = IN_USE.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let done = work();
    (done, PEAK.load(Ordering::Relaxed).saturating_sub(before))
}
