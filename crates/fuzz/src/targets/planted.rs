//! Targets that fail on purpose: the tests see that each way of failing is noticed.

use std::hint::black_box;
use std::time::Duration;

use crate::{Corpus, Target, Verdict};

fn seeds() -> Vec<Corpus> {
    vec![Corpus::bytes(vec![b"a valid input".to_vec()])]
}

/// Whether an input is one that the target fails on.
fn is_bad(data: &[u8]) -> bool {
    data != b"a valid input" && data.len() % 4 == 3
}

fn deeper(depth: u64) -> u64 {
    black_box([depth; 64]).iter().sum::<u64>() + if black_box(depth) == u64::MAX { 0 } else { deeper(depth + 1) }
}

const fn planted(name: &'static str, run: fn(&[u8]) -> Verdict) -> Target {
    Target { name, about: "fails on purpose", corpora: seeds, run, memory: |_| 1 << 20 }
}

/// Targets that fail on purpose.
pub const PLANTED: &[Target] = &[
    planted("planted-panic", |data| {
        assert!(!is_bad(data), "planted");
        Verdict::Accepted
    }),
    planted("planted-memory", |data| {
        black_box(vec![1u8; if is_bad(data) { 2 << 20 } else { 1 }]);
        Verdict::Accepted
    }),
    planted("planted-flood", |data| {
        black_box(vec![1u8; if is_bad(data) { 1 << 42 } else { 1 }]);
        Verdict::Accepted
    }),
    planted("planted-stack", |data| {
        black_box(if is_bad(data) { deeper(0) } else { 0 });
        Verdict::Accepted
    }),
    planted("planted-hang", |data| {
        while is_bad(data) {
            std::thread::sleep(Duration::from_millis(10));
        }
        Verdict::Accepted
    }),
];
