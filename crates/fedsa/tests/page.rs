//! The functions and files of this project through which one round goes, before an agent computes: what a reader of a round must open.
//!
//! In release builds functions are inlined, and a backtrace has no lines. `cargo test -p fedsa page::` counts.
#![cfg(debug_assertions)]

use std::backtrace::Backtrace;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use crate::common::run_from;
use crate::example::Regression;
use fedsa::kernel::Isa;
use fedsa::linalg::Mat;
use fedsa::method::MethodSettings;
use fedsa::problem::facts::Facts;
use fedsa::problem::objective::Objective;
use fedsa::problem::{Field, Problem, Sampled};
use fedsa::random::Stream;
use fedsa::sampling::{Law, Sampling};
use fedsa_methods::fednl::FedNl;
use fedsa_methods::scafflsa::Scafflsa;

/// A regression that notes who calls it.
struct Noted(Regression, Arc<Mutex<BTreeSet<(String, String)>>>);

impl Noted {
    /// Notes the callers of this crate and the methods' crate, each once, with their files.
    fn note(&self) {
        let mut calls = self.1.lock().unwrap();
        let text = Backtrace::force_capture().to_string();
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        for pair in lines.windows(2) {
            let (Some((_, name)), Some(place)) = (pair[0].split_once(": "), pair[1].strip_prefix("at ")) else { continue };
            if let Some(file) = place.split(':').next().filter(|file| file.contains("src/") && !file.contains("/rustc/")) {
                let is_ours = name.contains("fedsa") && !file.contains("registry");
                is_ours.then(|| calls.insert((name.replace("::{{closure}}", ""), file.to_owned())));
            }
        }
    }
}

impl Problem for Noted {
    type Obs = usize;

    fn dim(&self) -> usize {
        self.0.dim()
    }
    fn weights(&self) -> &[f64] {
        self.0.weights()
    }
    fn sample(&self, c: usize, theta: &[f64], chain: &mut [u64], stream: &mut Stream, z: &mut usize) {
        self.0.sample(c, theta, chain, stream, z);
    }
    fn apply(&self, c: usize, theta: &[f64], z: &usize, out: &mut [f64]) {
        self.note();
        self.0.apply(c, theta, z, out);
    }
    fn mean(&self, c: usize, theta: &[f64], out: &mut [f64]) -> bool {
        self.note();
        self.0.mean(c, theta, out)
    }
    fn facts(&self) -> &dyn Facts {
        self
    }
}

impl Facts for Noted {
    fn objective(&self) -> Option<&dyn Objective> {
        Some(self)
    }
}

impl Objective for Noted {
    fn loss(&self, c: usize, theta: &[f64]) -> f64 {
        self.0.loss(c, theta)
    }
    fn gradient(&self, c: usize, theta: &[f64], out: &mut [f64]) {
        self.note();
        self.0.gradient(c, theta, out);
    }
    fn hessian(&self, c: usize, theta: &[f64], out: &mut Mat<f64>) {
        self.note();
        self.0.hessian(c, theta, out);
    }
    fn hessian_vector(&self, c: usize, theta: &[f64], v: &[f64], out: &mut [f64]) {
        self.note();
        self.0.hessian_vector(c, theta, v, out);
    }
}

/// The functions, with their files, that a round of `method` calls on the way to the operators.
fn of(method: &dyn MethodSettings, law: Law) -> (usize, usize) {
    let calls = Arc::new(Mutex::new(BTreeSet::new()));
    // One agent: its answer is computed in this thread, whose backtrace begins at the round.
    let problem = Noted(Regression::new(1, 12, 2), Arc::clone(&calls));
    let field: Arc<dyn Field> = Arc::new(Sampled::new(problem, Sampling::default().with_kind(law), Isa::Portable).unwrap());
    let mut run = run_from(&field, method, 1, &[0.0; 2]);
    run.step();
    calls.lock().unwrap().clear();
    run.step();
    let calls = calls.lock().unwrap();
    assert!(calls.iter().any(|(name, _)| name.contains("round")), "the backtrace has no names: {calls:?}");
    let files: BTreeSet<&String> = calls.iter().map(|(_, file)| file).collect();
    calls.iter().for_each(|(name, file)| println!("{file}: {name}"));
    println!("{} functions in {} files", calls.len(), files.len());
    (calls.len(), files.len())
}

#[test]
fn a_round_is_read_in_few_functions_and_files() {
    let (functions, files) = of(&Scafflsa::new(0.1, 5), Law::Iid);
    assert!(functions <= 25 && files <= 10, "SCAFFLSA: {functions} functions in {files} files");
    let (functions, files) = of(&FedNl::default(), Law::Mean);
    assert!(functions <= 30 && files <= 10, "FedNL: {functions} functions in {files} files");
}
