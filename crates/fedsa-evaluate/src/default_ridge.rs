//! The default ridge of an evaluation.
//!
//! Logs of short or truncated episodes hardly determine some directions of the weights. Without a ridge, values of states in these
//! directions are arbitrary. The default ridge adds [`PSEUDO_TRANSITIONS`] / H times the mean square m of a feature to the sum of the
//! matrices of all n transitions. This has the effect of [`PSEUDO_TRANSITIONS`] further transitions with the weights 0:
//!
//! ```text
//! eps = K m / (n H),     m = (1 / (n d)) sum_t |phi(s_t)|^2,     1 / H = 1 - gamma (1 - p),     p the share of terminal transitions
//! ```
//!
//! H is the effective number of steps. The bias of the ridge falls as 1/n, faster than the standard error. K was chosen by error and
//! coverage on simulated logs (evidence in the book's "Values of policies").

use fedsa::linalg;
use fedsa_problems::features::FeatureMap;
use fedsa_problems::logs::log_facts::StateSample;
use fedsa_problems::logs::log_summary::EpisodeSummary;
use fedsa_problems::logs::replay::Logs;
use fedsa_problems::logs::survey::Surveyed;

/// K.
pub const PSEUDO_TRANSITIONS: f64 = 10.0;

/// The ridge for logs without a given one, with two digits; 0 for codings with many tiles, which a ridge would make dense. The mean
/// square of features is estimated on a sample of the states.
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
