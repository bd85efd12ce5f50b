//! The memory of an experiment does not grow with the number of seeds: seeds are counted, not listed.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use fedsa_experiment::config::{Document, Experiment};

/// The system's allocator, and how many bytes are and at most were in use.
struct Counting;

static IN_USE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is handed to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        PEAK.fetch_max(IN_USE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size(), Ordering::Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        PEAK.fetch_max(IN_USE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size(), Ordering::Relaxed);
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn seeds_are_counted_without_a_list_of_them() {
    let text = "[problem]\nkind = \"garnet\"\n[[method]]\nkind = \"fedtd\"\nstep_size = 0.1\n[run]\nrounds = 1\nseeds = 10000000\n";
    let before = IN_USE.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let read = Document::parse("seeds.toml", text).and_then(Experiment::read).and_then(|experiment| experiment.settings());
    assert!(read.is_ok());
    let used = PEAK.load(Ordering::Relaxed) - before;
    assert!(used < 4 << 20, "{used} bytes of memory");
}
