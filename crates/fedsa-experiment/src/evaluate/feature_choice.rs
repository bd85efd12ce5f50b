//! The choice of features by their error on held-out episodes.
//!
//! A share of each agent's episodes is held out, in addition to the caller's held-out ones. For each candidate the pooled LSTD solution of
//! the other episodes is compared with the Monte-Carlo returns of the held-out ones ([`fedsa_evaluate::held_out`]). The error is the root
//! mean square over all agents' transitions, which is comparable between features. The least error wins; of equal ones the first. The
//! weights are then fitted to all episodes.

use fedsa::cancel::Cancel;
use fedsa::error::{Error, Result};
use fedsa::parallel;
use fedsa_evaluate::held_out::{Errors, judge};
use fedsa_problems::features::{FeatureMap, FeatureSpec};
use fedsa_problems::logs::log_summary::EpisodeSummary;
use fedsa_problems::logs::replay::Logs;
use fedsa_problems::logs::source::in_memory;
use fedsa_problems::logs::survey::Surveyed;
use serde_json::{Value as Json, json};

/// The candidates, in this order. Those with too many features are omitted, and one-hot for columns that are not whole numbers.
pub const CANDIDATES: [&str; 14] = [
    "identity:bias",
    "standardised",
    "polynomial:2",
    "polynomial:3",
    "fourier:1",
    "fourier:2",
    "fourier:3",
    "fourier:5",
    "radial:3:quantiles",
    "radial:5:quantiles",
    "radial:9:quantiles",
    "tiles:4x4",
    "tiles:8x8",
    "one-hot",
];

/// The held-out share of the episodes.
const SHARE: f64 = 0.2;

/// A candidate.
#[derive(Debug, Clone)]
pub struct TriedFeatures {
    /// The settings.
    pub spec: FeatureSpec,
    /// The number d of features, if known.
    pub features: Option<usize>,
    /// The root-mean-square error against returns with its standard error, if known; or why there is none.
    pub error: Result<(f64, Option<f64>)>,
}

/// Features chosen by their error on held-out episodes.
#[derive(Debug, Clone)]
pub struct FeatureChoice {
    /// The chosen features.
    pub chosen: FeatureSpec,
    /// All candidates, in the order of [`CANDIDATES`].
    pub tried: Vec<TriedFeatures>,
    /// The largest allowed number of features.
    pub most: usize,
    /// The number of held-out episodes with returns, that is of complete ones.
    pub episodes: usize,
    /// The number of all held-out episodes.
    pub held: usize,
    /// The seed that drew the episodes.
    pub seed: u64,
}

impl FeatureChoice {
    /// Chooses among features with at most `most` features. `settings` describes the logs, and `logs` are the logs without the caller's
    /// held-out episodes.
    ///
    /// # Errors
    /// When logs have no episodes, no held-out episode terminates, or no features can be used (key `features`); when it is cancelled.
    pub(super) fn new(settings: &Logs, logs: Surveyed, most: usize, cancel: &Cancel) -> Result<Self> {
        // Episodes other than those that the caller's seed draws.
        let seed = settings.holdout_seed.wrapping_add(1);
        let no_episodes = |e: Error| {
            let what = format!("auto, by errors on held-out episodes: {}", e.what);
            Error::data("features", what, format!("features by name; or, to choose by held-out episodes, {}", e.help))
        };
        let logs = Surveyed::new(logs.sources, SHARE, seed).map_err(no_episodes)?;
        let terminates = |log: &fedsa_problems::logs::log::Log| (0..log.len()).filter(|i| log.done[*i]).count();
        let episodes = logs.held.iter().map(terminates).sum();
        if episodes == 0 {
            let what = "auto, and no held-out episode terminates: errors against returns are not known";
            return Err(Error::data("features", what, "features by name, or logs of episodes that terminate"));
        }
        let held = in_memory(logs.held.iter().filter(|log| !log.is_empty()).cloned().collect());
        let held = held.iter().map(|log| Ok(EpisodeSummary::of(&**log, settings.gamma)?.episodes())).sum::<Result<usize>>()?;
        let mut tried = Vec::new();
        for name in CANDIDATES {
            cancel.check()?;
            let spec: FeatureSpec = name.parse()?;
            // The number of features is checked before anything is allocated.
            let count = spec.count(logs.columns().len());
            if matches!(spec, FeatureSpec::OneHot {}) && logs.whole_ranges().is_none() {
                continue;
            }
            if count.is_some_and(|d| d <= most) || matches!(spec, FeatureSpec::OneHot {}) {
                tried.push(tried_on(&settings.clone().with_features(spec.clone()), &logs, spec, most));
            } else {
                tried.push(TriedFeatures { spec, features: count, error: Err(too_many(most)) });
            }
        }
        let known = tried.iter().filter_map(|tried| Some((&tried.spec, tried.error.as_ref().ok()?.0)));
        let best = known.filter(|(_, error)| error.is_finite()).reduce(|best, other| if other.1 < best.1 { other } else { best });
        let Some((chosen, _)) = best else {
            let why = tried.iter().find_map(|tried| tried.error.as_ref().err()).map_or(String::new(), |e| format!(": {}", e.what));
            return Err(Error::data("features", format!("auto, and none of the features can be used{why}"), "features by name"));
        };
        Ok(Self { chosen: chosen.clone(), tried, most, episodes, held, seed })
    }

    /// The object `features_tried` of `weights.json` and `summary.json`.
    pub fn json(&self) -> Json {
        let one = |tried: &TriedFeatures| {
            let (rms, se) = tried.error.as_ref().ok().map_or((None, None), |(rms, se)| (Some(*rms), *se));
            let why = tried.error.as_ref().err().map(|e| e.what.clone());
            json!({ "features": tried.spec.to_string(), "d": tried.features, "rms": rms, "se": se, "left_out": why })
        };
        let tried: Vec<Json> = self.tried.iter().map(one).collect();
        json!({ "chosen": self.chosen.to_string(), "most": self.most, "episodes": self.episodes, "held": self.held, "share": SHARE, "seed": self.seed, "tried": tried })
    }
}

fn too_many(most: usize) -> Error {
    Error::new("features", format!("more than {most} features"), "fewer")
}

/// A candidate, fitted to the logs, with its error on the held-out episodes.
fn tried_on(settings: &Logs, logs: &Surveyed, spec: FeatureSpec, most: usize) -> TriedFeatures {
    let map = match settings.map(logs) {
        Ok(map) => map,
        Err(e) => return TriedFeatures { spec, features: None, error: Err(e) },
    };
    let features = Some(map.len());
    if map.len() > most {
        return TriedFeatures { spec, features, error: Err(too_many(most)) };
    }
    TriedFeatures { spec, features, error: error_of(settings, logs, &map) }
}

/// The error against returns, and its standard error.
fn error_of(settings: &Logs, logs: &Surveyed, map: &FeatureMap) -> Result<(f64, Option<f64>)> {
    let theta = settings.pooled_solution(logs, map)?;
    let judged = parallel::try_map(logs.held.len(), |c| judge(&logs.held[c], map, settings.rule(), &[&theta]))?;
    let errors = Errors::of_all(judged.iter().map(|judged| &judged.returns[0]));
    let rms = errors.rms().ok_or_else(|| Error::data("features", "no returns", "episodes that terminate"))?;
    Ok((rms, errors.standard_error()))
}
