//! The weights of a fit.

use std::path::Path;

use fedsa::cancel::Cancel;
use fedsa::error::{Error, Result};
use fedsa::linalg;
use fedsa::note::Note;
use fedsa::problem::arrays::{Array, Arrays};
use fedsa_data::linear_model::{LinearModel, PredictedClass, Predicts};
use fedsa_data::npz;
use fedsa_evaluate::inference::{Inference, infer};
use fedsa_problems::rows::glm::family::ModelFamily;
use fedsa_problems::rows::preparation::quality::FitQuality;
use fedsa_problems::rows::preparation::targets::{self, Targets};
use fedsa_problems::rows::preparation::{AgentWeights, Prepared};
use serde_json::{Value as Json, json};

use super::settings::FitSettings;
use super::{described, forest, inferred, notes};
use crate::folder::COEFFICIENTS;
use crate::outcome::Outcome;
use crate::output;
use crate::picture::Picture;
use crate::results::paid;
use crate::run::Ran;
use crate::summary::Summary;
use crate::tables::{Shown, SummaryColumn, SummaryTable};

/// The files of a fit in addition to a run's.
pub(super) const NAMES: [&str; 2] = ["weights.json", "weights.npz"];

/// The costs of a method.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct MethodSpending {
    /// Its label.
    pub method: String,
    /// Rounds.
    pub rounds: u64,
    /// Exchanges.
    pub exchanges: u64,
    /// Vectors of d numbers from agents to the server, over all agents.
    pub vectors_up: u64,
    /// Bits from agents to the server, over all agents.
    pub bits_up: u64,
    /// Bits up and down, over all agents.
    pub bits: u64,
    /// Hessians, over all agents.
    pub hessians: u64,
    /// The wall time in seconds, if known; methods ran one after another.
    pub seconds: Option<f64>,
    /// The norm of the gradient at the end, if it was recorded.
    pub residual: Option<f64>,
    /// The objective at the end, if it was recorded.
    pub loss: Option<f64>,
    /// How the run ended.
    pub outcome: Outcome,
}

/// A fitted model.
#[non_exhaustive]
pub struct Fitted {
    /// The runs of all methods.
    pub ran: Ran,
    /// The prepared rows.
    pub prepared: Prepared,
    /// The model of the first method, for the columns of the data.
    pub model: LinearModel,
    /// `||grad f||` at its weights; NaN if unknown.
    pub gradient_norm: f64,
    /// The weighted mean of the agents' losses at its weights, with the ridge, if known.
    pub objective: Option<f64>,
    /// Its quality on the fitted rows.
    pub train: FitQuality,
    /// Its quality on held-out rows, if any.
    pub held_out: Option<FitQuality>,
    /// Standard errors of the coefficients, if requested.
    pub inference: Option<Inference>,
    /// The weights of the prepared features.
    theta: Vec<f64>,
    /// mu.
    ridge: f64,
}

impl Fitted {
    /// The fit with the weights of the first method. With inference, further steps make the score of the weights vanish. `notes` are those
    /// from before the runs.
    pub(super) fn new(mut ran: Ran, settings: &FitSettings, prepared: Prepared, notes: Vec<Note>, cancel: &Cancel) -> Result<Self> {
        ran.add_notes(notes);
        let mut theta = ran.results.cells[0][0].theta.clone();
        let inference = match settings.standard_errors() {
            None => None,
            Some(how) => {
                if theta.iter().any(|x| !x.is_finite()) {
                    theta.fill(0.0);
                }
                let inference = infer(&prepared, &theta, how, cancel)?;
                ran.add_to_summary("inference", inferred::json(&inference));
                ran.add_notes(inferred::odd(&inference, &prepared));
                settle(&mut ran);
                theta.clone_from(&inference.theta);
                Some(inference)
            }
        };
        let field = ran.plan.field(0);
        let gradient_norm = field.mean_operator(&theta).map_or(f64::NAN, |g| linalg::norm_sq(&g).sqrt());
        let objective = field.mean_loss(&theta);
        let (train, held_out) = (prepared.train_quality(&theta), prepared.held_out_quality(&theta));
        let model = model(&prepared, &theta, settings.target.clone(), settings.offset.clone());
        ran.add_to_summary(
            "fit",
            described::json(&prepared, [prepared.train.rows.len(), prepared.held_out.rows.len()], &model, inference.as_ref()),
        );
        let ridge = settings.mu();
        let first = &ran.results.cells[0][0];
        let outcome = if inference.is_some() { Outcome::Converged } else { first.outcome(&ran.plan.cells[0].run.stop) };
        let rounds = first.rows.last().map_or(0, |row| row.round);
        ran.add_notes(notes::after(&prepared, settings, outcome, rounds));
        ran.add_notes(prepared.far_from_rows());
        ran.took_until_now();
        Ok(Self { ran, prepared, model, gradient_norm, objective, train, held_out, inference, theta, ridge })
    }

    /// The weights of the prepared features, d components.
    pub fn theta(&self) -> &[f64] {
        &self.theta
    }

    /// The outcome of the fit: of the method that gives the weights, or with inference of the search for the estimate.
    pub fn outcome(&self) -> Outcome {
        match self.inference {
            Some(_) => Outcome::Converged,
            None => self.ran.results.cells[0][0].outcome(&self.ran.plan.cells[0].run.stop),
        }
    }

    /// Whether rows have weights; losses, accuracy and errors are then weighted means.
    pub fn counts_by_weights(&self) -> bool {
        !self.prepared.train.row_weights.is_empty()
    }

    /// The label of the method that gives the weights.
    pub fn method(&self) -> &str {
        &self.ran.plan.cells[0].method.label
    }

    /// The costs of every method; the method that gives the weights is the first.
    pub fn spent(&self) -> Vec<MethodSpending> {
        let Ran { plan, results, .. } = &self.ran;
        let of = |(label, cell): (&String, &usize)| {
            let result = results.cells[*cell].first()?;
            let last = result.rows.last()?;
            let counted = |name: &str| last.count(paid(Some(name)));
            Some(MethodSpending {
                method: label.clone(),
                rounds: counted("round"),
                exchanges: counted("exchanges"),
                vectors_up: counted("vectors_up"),
                bits_up: counted("bits_up"),
                bits: counted("bits"),
                hessians: counted("hessians"),
                seconds: result.seconds,
                residual: last.metric("residual"),
                loss: last.metric("loss"),
                outcome: result.outcome(&plan.cells[*cell].run.stop),
            })
        };
        plan.labels.iter().zip(&plan.points[0].cells).filter_map(of).collect()
    }

    /// The report: the runs, the costs of every method, and the quality of the model.
    pub fn summary(&self) -> Summary {
        let mut summary = self.ran.summary();
        summary.tables = vec![self.spending(), self.quality()];
        summary.tables.extend(self.inference.as_ref().map(inferred::table));
        summary
    }

    /// The costs of every method.
    fn spending(&self) -> SummaryTable {
        let columns = vec![
            SummaryColumn::left("method", Shown::Short),
            SummaryColumn::right("rounds", Shown::Whole),
            SummaryColumn::right("exchanges", Shown::Whole),
            SummaryColumn::right("vectors up", Shown::Digits(6)),
            SummaryColumn::right("MB up", Shown::Decimals(2)),
            SummaryColumn::right("Hessians", Shown::Digits(6)),
            SummaryColumn::right("seconds", Shown::Decimals(2)),
            SummaryColumn::right("gradient", Shown::Short),
            SummaryColumn::right("objective", Shown::Digits(8)),
            SummaryColumn::right("", Shown::Short),
        ];
        let mut table = SummaryTable::new("what methods spent", columns);
        for spent in self.spent() {
            table.rows.push(vec![
                spent.method.as_str().into(),
                (spent.rounds as f64).into(),
                (spent.exchanges as f64).into(),
                (spent.vectors_up as f64).into(),
                (spent.bits_up as f64 / 8e6).into(),
                (spent.hessians as f64).into(),
                spent.seconds.into(),
                spent.residual.into(),
                spent.loss.into(),
                spent.outcome.name().into(),
            ]);
        }
        let mean = match self.prepared.weighting() {
            AgentWeights::Rows if self.counts_by_weights() => "the mean of the losses of all rows by their weights",
            AgentWeights::Rows => "the mean of the losses of all rows",
            AgentWeights::Equal => "the mean of the agents' mean losses, in which agents count equally",
        };
        table.notes.push(format!("vectors, bytes and Hessians of all agents; the objective is {mean}, with the ridge"));
        table
    }

    /// The quality of the model, on fitted and on held-out rows.
    fn quality(&self) -> SummaryTable {
        let columns = vec![
            SummaryColumn::left("rows", Shown::Short),
            SummaryColumn::right("number", Shown::Whole),
            SummaryColumn::right("loss without the ridge", Shown::Short),
            SummaryColumn::right("accuracy", Shown::Digits(6)),
            SummaryColumn::right("root mean square error", Shown::Short),
        ];
        let mut table = SummaryTable::new(format!("how good {} is", self.method()), columns);
        let all = [("the fit", Some(&self.train)), ("held out", self.held_out.as_ref())];
        for (name, quality) in all.into_iter().filter_map(|(name, quality)| Some((name, quality?))) {
            let FitQuality { rows, loss, accuracy, rmse } = *quality;
            table.rows.push(vec![name.into(), (rows as f64).into(), loss.into(), accuracy.into(), rmse.into()]);
        }
        table
    }

    /// `weights.json`: the model, and the costs of its fit.
    pub fn json(&self) -> Json {
        let finite = |x: f64| if x.is_finite() { json!(x) } else { json!(null) };
        let last = self.ran.results.cells[0][0].rows.last();
        let counted = |name: &str| last.map_or(0, |row| row.count(paid(Some(name))));
        let mut weights = self.model.to_json();
        let mut more = json!({
            "agents": self.ran.plan.field(0).agents(),
            "prepared": self.prepared.sizes(),
            "ridge": self.ridge,
            "method": self.method(),
            "outcome": self.outcome().name(),
            "rounds": counted("round"),
            "exchanges": counted("exchanges"),
            "vectors_up": counted("vectors_up"),
            "bits_up": counted("bits_up"),
            "bits": counted("bits"),
            "hessians": counted("hessians"),
            "objective": self.objective.map(finite),
            "gradient_norm": finite(self.gradient_norm),
            "train": quality_json(&self.train),
            "holdout": self.held_out.as_ref().map(quality_json),
            "theta": self.theta().iter().map(|x| finite(*x)).collect::<Vec<_>>(),
        });
        let agents = self.prepared.named_agents();
        let named = agents.map(|(name, rows)| json!({ "name": name, "rows": rows })).collect::<Vec<_>>();
        if !named.is_empty() {
            more["named_agents"] = json!(named);
        }
        weights.as_object_mut().expect("an object").extend(more.as_object().cloned().expect("an object"));
        weights
    }

    /// `weights.npz`: `theta`, the coefficients of the columns, and the intercept.
    ///
    /// # Errors
    /// When a shape does not fit, which never happens.
    pub fn arrays(&self) -> Result<Arrays> {
        let mut arrays = Arrays::new();
        arrays.insert("theta", Array::new(vec![self.theta().len()], self.theta().to_vec())?);
        arrays.insert("coefficients", Array::new(vec![self.model.coefficients.len()], self.model.coefficients.clone())?);
        arrays.insert("intercept", Array::scalar(self.model.intercept));
        arrays.insert("format", Array::scalar(1.0));
        Ok(arrays)
    }

    /// The picture of the coefficients, with intervals if there is inference; `None` if there are too many coefficients.
    pub fn picture(&self) -> Option<Picture> {
        forest::picture(&self.ran.summary_json())
    }

    /// `weights.json`, `weights.npz` and the picture of the coefficients, with their contents.
    ///
    /// # Errors
    /// When the weights are too many for the format.
    pub fn files(&self) -> Result<Vec<(String, Vec<u8>)>> {
        let contents = [format!("{:#}\n", self.json()).into_bytes(), npz::to_bytes(&self.arrays()?)?];
        let mut files: Vec<_> = NAMES.map(String::from).into_iter().zip(contents).collect();
        let draw = |picture: Picture| output::pictures(&self.ran.plan, COEFFICIENTS, &picture, self.ran.config());
        files.extend(self.picture().map_or_else(Vec::new, draw));
        Ok(files)
    }

    /// Writes the files of the fit and of its runs into its folder; nothing without a folder.
    ///
    /// # Errors
    /// When files cannot be made or written. The runs remain in the folder and can be resumed.
    pub fn write(&self) -> Result<(), Error> {
        let files = self.files().map_err(|e| self.ran.unfinished(e))?;
        self.ran.write(files)
    }

    /// Writes the files of a fit without a folder into one.
    ///
    /// # Errors
    /// As [`Ran::write_into`].
    pub fn write_into(&self, path: &Path, if_exists: crate::run::IfExists) -> Result<(), Error> {
        self.ran.write_into(path, if_exists, self.files()?)
    }
}

/// The quality of a model, in `weights.json`.
pub(crate) fn quality_json(quality: &FitQuality) -> Json {
    let finite = |x: f64| if x.is_finite() { json!(x) } else { json!(null) };
    json!({ "rows": quality.rows, "loss": finite(quality.loss), "accuracy": quality.accuracy, "rmse": quality.rmse.map(finite) })
}

/// Once inference has found the estimate, the outcome of the first method no longer counts.
pub(crate) fn settle(ran: &mut Ran) {
    let first = &ran.results.cells[0][0];
    let outcome = first.outcome(&ran.plan.cells[0].run.stop);
    if let Outcome::Diverged { .. } | Outcome::Stalled(_) | Outcome::MaxRounds(_) = outcome {
        let label = &ran.plan.cells[0].method.label;
        let note = format!("{label} itself ended as `{}`; the estimate is that of Newton steps on sums of the agents", outcome.name());
        ran.settle(0, note);
    }
}

/// The model of weights, for the columns of the data.
pub(crate) fn model(prepared: &Prepared, theta: &[f64], target: Option<String>, offset: Option<String>) -> LinearModel {
    let (family, transform) = (prepared.train.family, &prepared.transform);
    let d = theta.len() / family.outputs();
    let mut blocks = theta.chunks(d).map(|block| transform.on_columns(block));
    let (coefficients, intercept) = blocks.next().expect("at least one block");
    let predicts = predicts(&prepared.targets, family, blocks.collect());
    let columns = (!transform.columns.are_counted()).then(|| transform.columns.iter().map(|name| name.into_owned()).collect());
    let categories = prepared.categories.clone();
    LinearModel { columns, coefficients, intercept, predicts, target, offset, categories }
}

/// The predictions of a model with these targets and this family; `further` has the coefficients and intercepts of the classes after the
/// first two.
pub(crate) fn predicts(targets: &Targets, family: ModelFamily, further: Vec<(Vec<f64>, f64)>) -> Predicts {
    let class = |class: &targets::ClassLabel| match class {
        targets::ClassLabel::Number(x) => PredictedClass::Number(*x),
        targets::ClassLabel::Name(name) => PredictedClass::Name(name.clone()),
    };
    match (targets, family) {
        (Targets::Classes { positive, negative, .. }, _) => {
            Predicts::Class([negative.as_ref().map_or(PredictedClass::Rest, class), class(positive)])
        }
        (Targets::Many { classes, .. }, _) => Predicts::Classes { classes: classes.iter().map(class).collect(), further },
        (_, ModelFamily::Poisson | ModelFamily::Gamma | ModelFamily::NegativeBinomial { .. }) => {
            Predicts::Mean { model: family.name().into() }
        }
        (_, ModelFamily::Huber { .. }) => Predicts::Robust,
        (Targets::Numbers { offset, scale }, _) => Predicts::Target { offset: *offset, scale: 1.0 / scale },
    }
}
