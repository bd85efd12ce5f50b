//! The ridge of an evaluation by default.
//!
//! Logs of short or truncated episodes hardly determine some directions of the weights, and the values of states there are arbitrary
//! without a ridge. The default ridge adds [`PSEUDO_TRANSITIONS`] / H times the mean square m of a feature to the sum of the matrices of
//! all n transitions. This is as if that many further transitions said that weights are 0:
//!
//! ```text
//! eps = K m / (n H),     m = (1 / (n d)) sum_t |phi(s_t)|^2,     1 / H = 1 - gamma (1 - p),     p the share of terminal transitions
//! ```
//!
//! H is the number of steps that count. The bias that it brings falls as 1/n, faster than the standard error. K was chosen by error and
//! coverage on simulated logs (the book: "Values of policies", evidence).

use fedsa::linalg;
use fedsa_problems::features::FeatureMap;
use fedsa_problems::logs::log_facts::StateSample;
use fedsa_problems::logs::log_summary::EpisodeSummary;
use fedsa_problems::logs::replay::Logs;
use fedsa_problems::logs::survey::Surveyed;

/// K.
pub const PSEUDO_TRANSITIONS: f64 = 10.0;

/// The ridge for logs where none is given, with two digits; 0 for tile codings of many tiles, which a ridge would make dense.
/// The mean square of features is estimated on a sample of the states.
pub fn default_ridge(settings: &Logs, logs: &Surveyed, map: &FeatureMap, episodes: &[EpisodeSummary]) -> f64 {
    if map.sparse().is_some() {
        return 0.0;
    }
    let samples: Vec<&StateSample> = logs.facts.iter().map(|facts| &facts.sample).collect();
    let (states, _) = StateSample::even(&samples);
    let (mut phi, mut squares, mut count) = (vec![0.0; map.len()], 0.0, 0.0);
    for state in states.chunks_exact(map.columns().len()) {
        map.eval(state, &mut phi);
        squares += linalg::norm_sq(&phi);
        count += map.len() as f64;
    }
    let all = episodes.iter().fold(EpisodeSummary::default(), |all, one| all.join(*one));
    let n = all.transitions as f64;
    let ended = all.ended as f64 / n;
    let ridge = PSEUDO_TRANSITIONS * squares / count / n * (1.0 - settings.gamma * (1.0 - ended));
    let digits = format!("{ridge:.1e}").parse().unwrap_or(0.0);
    if f64::is_finite(digits) { digits } else { 0.0 }
}
