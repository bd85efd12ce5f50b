//! The weights of a value function.

use std::path::Path;

use fedsa::error::{Error, Result};
use fedsa::linalg;
use fedsa::parallel;
use fedsa::problem::Field;
use fedsa::problem::arrays::{Array, Arrays};
use fedsa::problem::projected::ProjectedBellman;
use fedsa::problem::root::{Root, RootSource};
use fedsa_data::npz;
use fedsa_evaluate::policy_value::PolicyValue;
use fedsa_evaluate::uncertainty::{self, Covariance};
use fedsa_problems::logs::source::Inputs;
use fedsa_problems::logs::survey::LogFacts;
use serde_json::{Value as Json, json};

use super::comparison::HoldoutComparison;
use super::pictures::{self, SeenStates, ValueColumns, Values};
use super::{Data, FeatureChoice, LogsRead, notes, policy_value, possible};
use crate::choose::Choice;
use crate::folder::VALUE_PICTURES;
use crate::outcome::Outcome;
use crate::picture::Picture;
use crate::plan::ResolvedStart;
use crate::run::{IfExists, Ran};
use crate::summary::Summary;
use crate::tables::{Shown, SummaryCell, SummaryColumn, SummaryTable};
use crate::{numbers, output};

/// The files of an evaluation in addition to a run's files and pictures.
pub(super) const NAMES: [&str; 2] = ["weights.json", "weights.npz"];

/// The largest number of features whose names `weights.json` lists.
pub(crate) const NAMED: usize = 1 << 16;

/// The caller's words for settings, in captions of pictures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PictureWords<'a> {
    /// The setting that compares methods.
    pub chooser: &'a str,
    /// The setting that names the columns of the picture of values.
    pub value_columns: &'a str,
}

impl Default for PictureWords<'_> {
    fn default() -> Self {
        Self { chooser: "the choice of a method", value_columns: "the setting value_columns" }
    }
}

/// A fitted value function.
#[non_exhaustive]
pub struct Evaluated {
    /// The run of the method.
    pub ran: Ran,
    /// The logs and their features.
    pub data: Data,
    /// The choice of the method, unless it was named.
    pub choice: Option<Choice>,
    /// Comparison on held-out episodes, if there are any.
    pub comparison: Option<HoldoutComparison>,
    /// The covariance of the weights, if known.
    pub covariance: Option<Covariance>,
    /// The projected Bellman error of the pooled data, for GTD2, TDC, and TD with importance ratios and without traces.
    pub projected: Option<ProjectedBellman>,
    /// The value of the policy, if a log has the start of an episode and there are at most
    /// [`MAX_FEATURES`](fedsa_evaluate::policy_value::MAX_FEATURES) features.
    pub policy_value: Option<PolicyValue>,
}

impl Evaluated {
    /// The weights of a run.
    ///
    /// # Errors
    /// When the episodes of held-out logs are not usable; the runs remain in their folder.
    pub(super) fn new(mut ran: Ran, data: Data, choice: Option<Choice>) -> Result<Self, Error> {
        let (field, theta) = (ran.plan.field(0), &ran.results.cells[0][0].theta);
        let theta = &theta[..data.map.len().min(theta.len())];
        let projected = projected(&data, field);
        let rule = data.settings.rule();
        let comparison = || match &data.logs.held[..] {
            [] => Ok(None),
            held => HoldoutComparison::new(held, &data.map, rule, field, theta).map(Some),
        };
        let covariance = || match field.facts().td_systems().or(field.systems()) {
            None => Ok(None),
            Some(systems) => uncertainty::covariance(&data.logs, &data.map, rule, &systems.mean().a, theta),
        };
        let value = || data.policy_value();
        let found = || {
            let comparison = comparison()?;
            // Both read the logs.
            let (covariance, value) = parallel::both(data.logs.sources.len(), covariance, value);
            Ok((comparison, covariance?, value?))
        };
        let (comparison, covariance, value) = found().map_err(|e| ran.unfinished(e))?;
        let of_weights = value.as_ref().map(|value| start_value(value, theta));
        let value_json = value.as_ref().zip(of_weights).map(|(value, of_weights)| {
            let mut object = policy_value::json(value, of_weights);
            if let Some(against) = &data.against {
                object["against"] = against.json(value);
            }
            object
        });
        let mut known = notes::of(&data, ran.plan.field(0));
        known.extend(possible::notes(&data, theta, value.as_ref()));
        known.extend(value.iter().zip(of_weights).flat_map(|(value, of_weights)| policy_value::odd(value, of_weights)));
        ran.add_notes(known);
        ran.took_until_now();
        ran.add_to_summary("logs", LogsRead::of(&data.logs, &data.episodes).json());
        if let Some(choice) = &data.features {
            ran.add_to_summary("features_tried", choice.json());
        }
        ran.add_to_summary("policy_value", json!(value_json));
        Ok(Self { ran, data, choice, comparison, covariance, projected, policy_value: value })
    }

    /// Tables of the policy's value, by fitted values and by returns, and of the difference from another policy.
    pub fn policy_value_tables(&self) -> Vec<SummaryTable> {
        let tables = |value: &PolicyValue| {
            let against = self.data.against.iter().map(|against| against.table(value));
            policy_value::tables(value).into_iter().chain(against).collect()
        };
        self.policy_value.as_ref().map_or_else(Vec::new, tables)
    }

    /// The weights, d components.
    pub fn theta(&self) -> &[f64] {
        self.halves().0
    }

    /// The second half u of the iterate of GTD2 and TDC (d components); empty for TD.
    pub fn auxiliary(&self) -> &[f64] {
        self.halves().1
    }

    fn halves(&self) -> (&[f64], &[f64]) {
        let x = &self.ran.results.cells[0][0].theta;
        x.split_at(if self.data.settings.operator.has_auxiliary() { x.len() / 2 } else { x.len() })
    }

    /// The projected Bellman error at the start and at the weights, if known.
    pub fn projected_errors(&self) -> Option<(f64, f64)> {
        let error = self.projected.as_ref()?;
        let ResolvedStart::Fixed(start) = &self.ran.plan.cells[0].start else { return None };
        Some((error.error(&start[..self.data.map.len()]), error.error(self.theta())))
    }

    /// How the run ended.
    pub fn outcome(&self) -> Outcome {
        self.ran.results.cells[0][0].outcome(&self.ran.plan.cells[0].run.stop)
    }

    /// The rounds of the run.
    pub fn rounds(&self) -> u64 {
        self.ran.results.cells[0][0].rows.last().map_or(0, |row| row.round)
    }

    /// The pooled LSTD solution (d components) and its rank; `None` if systems are too large for a direct solution. For GTD2 and TDC with a
    /// singular A: the weights of least projected Bellman error.
    pub fn lstd(&self) -> Option<(&[f64], usize)> {
        if self.data.settings.operator.has_auxiliary() {
            let Root { theta, source } = self.ran.plan.field(0).solution().ok()?;
            let d = theta.len() / 2;
            let rank = || self.projected.as_ref().map_or(d, |error| error.minimiser().rank);
            return Some((&theta[..d], if matches!(source, RootSource::LeastNorm { .. }) { rank() } else { d }));
        }
        match self.ran.plan.field(0).solution() {
            Ok(Root { theta, source: RootSource::LeastNorm { rank } }) => Some((theta, *rank)),
            Ok(Root { theta, .. }) => Some((theta, theta.len())),
            // Sparse systems have no direct solution.
            Err(_) => None,
        }
    }

    /// The distance of the weights from the pooled LSTD solution, and the norm of that solution.
    pub fn distance_to_lstd(&self) -> Option<(f64, f64)> {
        self.lstd().map(|(root, _)| (linalg::distance_sq(self.theta(), root).sqrt(), linalg::norm_sq(root).sqrt()))
    }

    /// The report: the run, the weights, and whether federation helps, if episodes were held out.
    pub fn summary(&self) -> Summary {
        let mut summary = self.ran.summary();
        summary.tables.extend(self.policy_value_tables());
        summary.tables.push(self.weights());
        summary.tables.extend(self.comparison.iter().flat_map(HoldoutComparison::tables));
        summary
    }

    /// The first weights with their standard errors.
    fn weights(&self) -> SummaryTable {
        const LISTED: usize = 100;
        let columns = vec![SummaryColumn::left("feature", Shown::Short), SummaryColumn::right("weight (standard error)", Shown::Short)];
        let mut table = SummaryTable::new("weights", columns);
        let errors = self.covariance.as_ref().map(Covariance::standard_errors);
        let (theta, map) = (self.theta(), &self.data.map);
        let names = if map.len() <= NAMED { map.names() } else { Vec::new() };
        for (i, name) in names.iter().take(LISTED).enumerate() {
            let se = errors.as_ref().map(|errors| errors[i]).filter(|se| se.is_finite());
            table.rows.push(vec![name.as_str().into(), SummaryCell::Estimate(theta[i], se)]);
        }
        if theta.len() > table.rows.len() {
            table.notes.push(format!("{} of {} weights are listed", table.rows.len(), theta.len()));
        }
        table
    }

    /// `weights.json`.
    pub fn json(&self) -> Json {
        let (plan, result) = (&self.ran.plan, &self.ran.results.cells[0][0]);
        let Data { logs, settings, map, .. } = &self.data;
        let finite = |x: f64| if x.is_finite() { json!(x) } else { json!(null) };
        let distance = self.distance_to_lstd();
        let stop = &plan.cells[0].run.stop;
        let residual = plan.field(0).mean_operator(&result.theta).map(|g| finite(linalg::norm_sq(&g).sqrt()));
        json!({
            "format": 1,
            "features": (map.len() <= NAMED).then(|| map.names()),
            "feature_map": map.spec(),
            "features_tried": self.data.features.as_ref().map(FeatureChoice::json),
            "scale": Some(map.scale()).filter(|scale| !scale.is_empty()),
            "statistics": Some(map.statistics()).filter(|statistics| !statistics.is_empty()),
            "columns": map.columns(),
            "file_columns": Some(&settings.columns).filter(|columns| !columns.is_empty()),
            "ranges": map.ranges(),
            "gamma": settings.gamma,
            "lambda": settings.lambda,
            "operator": settings.operator,
            "kappa": settings.operator.has_auxiliary().then(|| settings.kappa.unwrap_or(1.0)),
            "ridge": settings.ridge,
            "rank": self.lstd().map(|(_, rank)| rank),
            "agents": logs.facts.iter().map(|facts| self.agent(facts)).collect::<Vec<_>>(),
            "method": plan.cells[0].method.kind,
            "outcome": self.outcome().name(),
            "rounds": self.rounds(),
            "exchanges": result.rows.last().map_or(0, |r| r.ledger.exchanges),
            "bits": result.rows.last().map_or(0, |r| r.ledger.bits_up + r.ledger.bits_down),
            "theta": self.theta().iter().map(|x| finite(*x)).collect::<Vec<_>>(),
            "theta_se": self.covariance.as_ref().map(|c| c.standard_errors().into_iter().map(finite).collect::<Vec<_>>()),
            "auxiliary": Some(self.auxiliary()).filter(|u| !u.is_empty()).map(|u| u.iter().map(|x| finite(*x)).collect::<Vec<_>>()),
            "projected_bellman_error": self.projected_errors().map(|(start, end)| json!({ "start": finite(start), "end": finite(end) })),
            "residual": residual,
            "residual_asked": result.residual_asked(stop).map(finite),
            "lstd": self.lstd().map(|(root, _)| root),
            "distance_to_lstd": distance.map(|(distance, _)| finite(distance)),
            "lstd_norm": distance.map(|(_, norm)| norm),
            "holdout": self.comparison.as_ref().map(|comparison| comparison.json(settings.holdout, settings.holdout_seed)),
        })
    }

    /// An agent, with its own weights if it has enough episodes.
    fn agent(&self, facts: &LogFacts) -> Json {
        let mut one = agent(facts);
        let own = self.policy_value.as_ref().map(|value| &value.fitted.own_weights);
        if let Some((_, theta)) = own.and_then(|own| own.iter().find(|(name, _)| *name == facts.name)) {
            one["own_theta"] = json!(theta);
        }
        one
    }

    /// `weights.npz`: `theta`, and if known the pooled solution and the covariance.
    ///
    /// # Errors
    /// When a shape does not fit, which never happens.
    pub fn arrays(&self) -> Result<Arrays> {
        let theta = self.theta();
        let d = theta.len();
        let mut arrays = Arrays::new();
        arrays.insert("theta", Array::new(vec![d], theta.to_vec())?);
        if let Some((root, _)) = self.lstd() {
            arrays.insert("lstd", Array::new(vec![d], root.to_vec())?);
        }
        if !self.data.map.scale().is_empty() {
            arrays.insert("scale", Array::new(vec![d], self.data.map.scale().to_vec())?);
        }
        if let Some(covariance) = &self.covariance {
            arrays.insert("theta_cov", Array::new(vec![d, d], covariance.rows.clone())?);
            if !covariance.null.is_empty() {
                arrays.insert("theta_null", Array::new(vec![covariance.null.len() / d, d], covariance.null.clone())?);
            }
        }
        arrays.insert("gamma", Array::scalar(self.data.settings.gamma));
        arrays.insert("format", Array::scalar(1.0));
        Ok(arrays)
    }

    /// The pictures by the names of [`VALUE_PICTURES`], as far as they have content: the value function, predicted values against returns,
    /// and the costs of the candidate methods. Captions use the caller's words.
    ///
    /// # Errors
    /// When the episodes of held-out logs are not usable.
    pub fn pictures(&self, words: &PictureWords<'_>) -> Result<Vec<(&'static str, Picture)>> {
        let Data { logs, map, settings, .. } = &self.data;
        let mut all = [None, None, None];
        // Diverged values show nothing.
        if self.ran.results.cells[0][0].diverged.is_none() {
            all[0] = self.value_picture(words);
            all[1] = pictures::returns(&logs.held, map, settings.rule(), self.theta())?;
        }
        all[2] = self.choice.as_ref().and_then(|choice| {
            let steps = steps_text(choice);
            pictures::methods(&choice.considered, choice.target, &steps, words.chooser)
        });
        Ok(VALUE_PICTURES.into_iter().zip(all).filter_map(|(stem, picture)| Some((stem, picture?))).collect())
    }

    /// The picture of the value function. With logged features it needs columns that the caller names, because features are no states.
    fn value_picture(&self, words: &PictureWords<'_>) -> Option<Picture> {
        let Data { logs, map, value_columns, .. } = &self.data;
        if map.spec().inputs() == Inputs::Features && value_columns.is_empty() {
            return None;
        }
        let columns = ValueColumns { wanted: value_columns, setting: Some(words.value_columns) };
        let values = Values::new(map, self.theta(), self.covariance.as_ref());
        pictures::over_states(&values, &SeenStates::of(&logs.facts), columns)
    }

    /// `weights.json`, `weights.npz` and the pictures, with their contents.
    ///
    /// # Errors
    /// When the weights are too many for the format, or the episodes of held-out logs are not usable.
    pub fn files(&self, words: &PictureWords<'_>) -> Result<Vec<(String, Vec<u8>)>> {
        let contents = [format!("{:#}\n", self.json()).into_bytes(), npz::to_bytes(&self.arrays()?)?];
        let mut files: Vec<_> = NAMES.map(String::from).into_iter().zip(contents).collect();
        for (stem, picture) in self.pictures(words)? {
            files.extend(output::pictures(&self.ran.plan, stem, &picture, self.ran.config()));
        }
        Ok(files)
    }

    /// Writes the files of the evaluation and of its run into its folder; nothing without a folder.
    ///
    /// # Errors
    /// When files cannot be made or written. The runs remain in the folder and can be resumed.
    pub fn write(&self, words: &PictureWords<'_>) -> Result<(), Error> {
        let files = self.files(words).map_err(|e| self.ran.unfinished(e))?;
        self.ran.write(files)
    }

    /// Writes the files of an evaluation without a folder into one.
    ///
    /// # Errors
    /// As [`Ran::write_into`].
    pub fn write_into(&self, path: &Path, if_exists: IfExists, words: &PictureWords<'_>) -> Result<(), Error> {
        self.ran.write_into(path, if_exists, self.files(words)?)
    }
}

/// The mean value of the start states under weights.
fn start_value(value: &PolicyValue, theta: &[f64]) -> f64 {
    linalg::dot(&value.fitted.start, theta)
}

/// An agent's log in `weights.json`.
fn agent(log: &LogFacts) -> Json {
    let mut said = json!({ "name": log.name, "transitions": log.transitions });
    if let (Some(mean), Some(size)) = (log.mean_ratio, log.effective_size) {
        let clipped = log.clipping.map(|clip| json!({ "level": clip.level, "clipped": clip.clipped, "mean_before": clip.mean_before, "effective_before": clip.effective_before }));
        said["ratios"] = json!({ "mean": mean, "effective_size": size, "clipping": clipped });
    }
    said
}

/// The projected Bellman error of the pooled data, if useful.
fn projected(data: &Data, field: &dyn Field) -> Option<ProjectedBellman> {
    /// The largest number of features, because it needs the eigenvalues of C.
    const MOST: usize = 2000;
    let (Data { logs, settings, map, .. }, facts) = (data, field.facts());
    if map.len() > MOST {
        return None;
    }
    let is_weighted = settings.ratios && settings.lambda == 0.0 && logs.facts.iter().any(|log| log.effective_size.is_some());
    let of_td = || ProjectedBellman::new(facts.systems()?.mean(), facts.gram()?);
    facts.projected_bellman().or_else(|| is_weighted.then(of_td).flatten())
}

/// The settings of the candidates with local steps in words.
pub(super) fn steps_text(choice: &Choice) -> String {
    format!("step size {}, {} local steps", numbers::typed(choice.demand.step_size), choice.demand.local_steps)
}
