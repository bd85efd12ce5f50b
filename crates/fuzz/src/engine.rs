//! Runs inputs of one target one after the other, and takes note of what fails.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::panic::{self, AssertUnwindSafe};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::{Inputs, Target, Verdict, memory};

/// When to stop.
#[derive(Debug, Clone, Copy, Default)]
pub struct Budget {
    /// After this input (not included).
    pub inputs: Option<u64>,
    /// After so long.
    pub time: Option<Duration>,
}

/// What is wrong with an input.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fault {
    /// The input.
    pub index: u64,
    /// What happened; the same for inputs that fail in the same way.
    pub kind: String,
    /// The message.
    pub message: String,
}

/// How inputs went.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// How many there were.
    pub inputs: u64,
    /// How many were read.
    pub accepted: u64,
    /// How many were passed over.
    pub passed_over: u64,
    /// The first of each kind of fault.
    pub faults: Vec<Fault>,
    /// How many inputs failed in all.
    pub failed: u64,
    /// The seconds that the slowest took, and which it was.
    pub slowest: (f64, u64),
    /// The bytes that the largest took, and which it was.
    pub largest: (usize, u64),
}

impl Report {
    /// Adds what later inputs came to.
    pub fn join(&mut self, later: Report) {
        self.inputs += later.inputs;
        self.accepted += later.accepted;
        self.passed_over += later.passed_over;
        self.failed += later.failed;
        for fault in later.faults {
            if self.faults.iter().all(|known| known.kind != fault.kind) {
                self.faults.push(fault);
            }
        }
        if later.slowest.0 > self.slowest.0 {
            self.slowest = later.slowest;
        }
        if later.largest.0 > self.largest.0 {
            self.largest = later.largest;
        }
    }
}

thread_local! {
    /// Where the last panic of this thread was.
    static PLACE: RefCell<String> = const { RefCell::new(String::new()) };
    /// Whether this thread runs an input.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Keeps panics of inputs off the terminal, and remembers where they were.
pub fn hush() {
    let hook = panic::take_hook();
    panic::set_hook(Box::new(move |info| match INSIDE.get() {
        true => PLACE.set(info.location().map_or(String::new(), ToString::to_string)),
        false => hook(info),
    }));
}

/// Runs an input; the payload of its panic, if it panics.
fn caught(target: &Target, input: &[u8]) -> thread::Result<Verdict> {
    INSIDE.set(true);
    let outcome = panic::catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
    INSIDE.set(false);
    outcome
}

/// Runs inputs from `first` on until the budget is spent; `begins` is told of each before.
pub fn run(target: &Target, inputs: &Inputs, first: u64, budget: Budget, mut begins: impl FnMut(u64)) -> Report {
    // What is made once and kept is no input's memory.
    for index in 0..inputs.valid() {
        begins(index);
        let _ = caught(target, &inputs.make(index));
    }
    let start = Instant::now();
    let mut report = Report::default();
    let mut kinds: BTreeMap<String, Fault> = BTreeMap::new();
    for index in first.. {
        if budget.inputs.is_some_and(|end| index >= end) || budget.time.is_some_and(|time| start.elapsed() >= time) {
            break;
        }
        let input = inputs.make(index);
        begins(index);
        let began = Instant::now();
        let (outcome, used) = memory::of(|| caught(target, &input));
        let took = began.elapsed().as_secs_f64();
        report.inputs += 1;
        if took > report.slowest.0 {
            report.slowest = (took, index);
        }
        if used > report.largest.0 {
            report.largest = (used, index);
        }
        let mut fault = |kind: String, message: String| {
            report.failed += 1;
            kinds.entry(kind.clone()).or_insert(Fault { index, kind, message });
        };
        match outcome {
            Ok(Verdict::Accepted) => report.accepted += 1,
            Ok(verdict) if index < inputs.valid() => fault("seed".into(), format!("a valid input is not accepted but {verdict:?}")),
            Ok(Verdict::Refused) => {}
            Ok(Verdict::PassedOver) => report.passed_over += 1,
            Err(payload) => {
                // The place, and the start of the text: assertions of several kinds may share a place.
                let text = text_of(&*payload);
                let start: String = text.chars().take_while(|c| !c.is_ascii_digit()).take(24).collect();
                fault(format!("panic at {}: {start}", PLACE.with_borrow(String::clone)), text);
            }
        }
        let allowed = (target.memory)(input.len());
        if used > allowed {
            fault("memory".into(), format!("{used} bytes of memory for an input of {}, where {allowed} are allowed", input.len()));
        }
    }
    report.faults = kinds.into_values().collect();
    report
}

/// What a panic said.
fn text_of(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("a panic without a text").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Corpus;

    fn planted(run: fn(&[u8]) -> Verdict) -> Report {
        let corpora = || vec![Corpus::bytes(vec![b"good".to_vec()])];
        let target = Target { name: "planted", about: "", corpora, run, memory: |_| usize::MAX };
        run_all(&target)
    }

    fn run_all(target: &Target) -> Report {
        hush();
        let mut told = Vec::new();
        let report = run(target, &Inputs::new(target, 1), 0, Budget { inputs: Some(500), time: None }, |index| told.push(index));
        // The valid input is run once before.
        assert_eq!((report.inputs, told), (500, std::iter::once(0).chain(0..500).collect()));
        report
    }

    #[test]
    fn a_reader_that_takes_everything_has_no_faults() {
        let report = planted(|_| Verdict::Accepted);
        assert_eq!((report.accepted, report.failed), (500, 0));
    }

    #[test]
    fn panics_are_found_and_told_apart_by_their_place() {
        let report = planted(|data| {
            assert!(data.len() < 8, "too long");
            assert!(data.len() > 1, "too short");
            Verdict::Accepted
        });
        let messages: Vec<&str> = report.faults.iter().map(|fault| fault.message.as_str()).collect();
        assert_eq!(messages, ["too long", "too short"]);
        assert!(report.failed > 2 && report.failed + report.accepted == 500);
        assert!(report.faults.iter().all(|fault| fault.kind.contains("engine.rs")));
    }

    #[test]
    fn a_valid_input_that_is_refused_is_a_fault() {
        let report = planted(|data| if data == b"good" { Verdict::Refused } else { Verdict::Accepted });
        assert!(report.faults.iter().any(|fault| fault.index == 0 && fault.kind == "seed"), "{report:?}");
    }

    #[test]
    fn reports_add_up() {
        let fault = |index, kind: &str| Fault { index, kind: kind.into(), message: String::new() };
        let mut report = Report { inputs: 3, failed: 1, faults: vec![fault(1, "a")], slowest: (0.5, 2), ..Report::default() };
        report.join(Report { inputs: 2, failed: 2, faults: vec![fault(4, "a"), fault(5, "b")], slowest: (0.25, 4), ..Report::default() });
        assert_eq!((report.inputs, report.failed, report.faults.len(), report.slowest), (5, 3, 2, (0.5, 2)));
    }
}
