//! What the suites share: small problems and every method.
#![allow(dead_code, reason = "each suite uses a part")]

use fedsa::kernel::Isa;
use fedsa::methods::{self, Settings as Method};
use fedsa::problem::garnet::{Garnet, Heterogeneity};
use fedsa::problem::linear::LinearSystems;
use fedsa::problem::noise::Noise;
use fedsa::problem::{Field, NoFiles, Settings};
use fedsa::record::OutputRule;
use fedsa::round::Run;
use fedsa::sampling::{Law, Sampling};
use fedsa::uplink::Uplink;

/// A field on the fastest kernels.
pub fn field(problem: &dyn Settings, kind: Law) -> Box<dyn Field> {
    problem.field(&NoFiles, Sampling { kind, ..Sampling::default() }, Isa::best()).unwrap()
}

/// A method from its name and a JSON object of settings.
pub fn method(kind: &str, settings: &str) -> Box<dyn Method> {
    let entry = methods::KINDS.iter().find(|k| k.is_called(kind)).expect("a known kind");
    let mut json = serde_json::Deserializer::from_str(settings);
    (entry.read)(&mut <dyn erased_serde::Deserializer>::erase(&mut json)).unwrap()
}

/// Every method, with settings that are stable on [`problems`].
pub fn methods(participants: Option<usize>) -> Vec<(&'static str, Box<dyn Method>)> {
    let m = participants.map_or(String::new(), |m| format!(r#", "participants": {m}"#));
    let settings = [
        ("fedlsa", r#""step_size": 0.05, "local_steps": 7"#),
        ("fedlsa", r#""step_size": {"c": 0.5, "t0": 10, "per": "step"}, "local_steps": 7, "global_step_size": 0.8"#),
        ("scafflsa", r#""step_size": 0.05, "local_steps": 7"#),
        ("scafflsa", r#""step_size": {"c": 0.5, "t0": 10}, "local_steps": 7, "global_step_size": 0.8"#),
        ("scafflsa-random", r#""step_size": 0.05, "talk_probability": 0.2"#),
        ("fedhsa", r#""step_size": 0.05, "local_steps": 7"#),
        ("fedhsa", r#""step_size": 0.05, "local_steps": 7, "global_step_size": 0.8"#),
        ("projected-td", r#""step_size": 0.05, "local_steps": 7, "radius": 0.5"#),
    ];
    let all: Vec<_> = settings.iter().map(|(kind, s)| (*kind, method(kind, &format!("{{{s}{m}}}")))).collect();
    for kind in methods::KINDS {
        assert!(all.iter().any(|(name, _)| *name == kind.name), "{} has no entry in the suites", kind.name);
    }
    all
}

/// Small problems, one of each sort.
pub fn problems(agents: usize) -> Vec<(&'static str, Box<dyn Settings>)> {
    let noise = |radius| Some(Noise { std: 0.3, radius, seed: 1 });
    vec![
        ("garnet", Box::new(Garnet { agents, heterogeneity: Heterogeneity::TwoKernels, ..Garnet::default() })),
        ("garnet, 11 features", Box::new(Garnet { agents, features: 11, ..Garnet::default() })),
        ("linear, white noise", Box::new(LinearSystems { agents, dim: 3, noise: noise(0.0), ..LinearSystems::default() })),
        ("linear, Gauss-Markov noise", Box::new(LinearSystems { agents, dim: 3, noise: noise(0.7), ..LinearSystems::default() })),
    ]
}

/// A run from zero.
pub fn run<'a>(field: &'a dyn Field, method: &dyn Method, uplink: &'a Uplink, seed: u64) -> Run<'a> {
    method.check(field.agents()).unwrap();
    Run::new(field, method, uplink, OutputRule::Last, seed, vec![0.0; field.dim()])
}

/// The bits of a vector.
pub fn bits(x: &[f64]) -> Vec<u64> {
    x.iter().map(|x| x.to_bits()).collect()
}
