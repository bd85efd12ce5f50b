//! Fitted regressions and classifications: the `weights.json` of `fedsa fit`, and its predictions.
//!
//! Standardisation and projections of the fit are affine maps of the rows. They are part of the coefficients, so that a model applies
//! to the rows of files unchanged.

use fedsa::error::{Error, Result, quoted};
use serde_json::{Value, json};

use fedsa::columns::level_number;
use fedsa_problems::rows::preparation::columns::Category;
use fedsa_problems::rows::preparation::texts::level_name;

use super::table::{Cells, Table, Text};

/// The format of `weights.json` in this version.
pub const FORMAT: u64 = 1;

/// The advice for a file that is not a fitted model.
const WANTED: &str = "a weights.json that fedsa fit wrote";

/// A class of targets, as in the data.
#[derive(Debug, Clone, PartialEq)]
pub enum PredictedClass {
    /// A number.
    Number(f64),
    /// A name.
    Name(String),
    /// All other classes.
    Rest,
}

/// The predictions of a model.
#[derive(Debug, Clone, PartialEq)]
pub enum Predicts {
    /// The target: `offset + scale (intercept + coefficients^T x)`, if targets were scaled for the fit.
    Target {
        /// The offset of the scaled function.
        offset: f64,
        /// The factor of the function.
        scale: f64,
    },
    /// The mean of the target under a log link: `exp(intercept + coefficients^T x)`.
    Mean {
        /// The model, such as `poisson`.
        model: String,
    },
    /// The target under Huber's loss: `intercept + coefficients^T x`.
    Robust,
    /// The probability `1 / (1 + exp(-(intercept + coefficients^T x)))` of the second class.
    Class([PredictedClass; 2]),
    /// The class of greatest probability. Class k has the probability `exp(s_k) / sum_j exp(s_j)`, with `s_0 = 0` for the reference.
    /// The model's own coefficients belong to the class after the reference.
    Classes {
        /// The classes, the reference first.
        classes: Vec<PredictedClass>,
        /// The coefficients and the intercepts of the classes after the first two.
        further: Vec<(Vec<f64>, f64)>,
    },
}

/// A fitted function `intercept + coefficients^T x` of rows x.
#[derive(Debug, Clone, PartialEq)]
pub struct LinearModel {
    /// The columns of x; `None` for columns without names, which are called `1`, `2`, .. as in LIBSVM files.
    pub columns: Option<Vec<String>>,
    /// One number per column.
    pub coefficients: Vec<f64>,
    /// The intercept.
    pub intercept: f64,
    /// The predictions.
    pub predicts: Predicts,
    /// The column of targets, if it has a name.
    pub target: Option<String>,
    /// The column of offsets, added to the sum.
    pub offset: Option<String>,
    /// The columns of categories; their levels are columns of x.
    pub categories: Vec<Category>,
}

impl LinearModel {
    /// The names of the columns read as numbers: columns of x that are not levels, and the column of offsets.
    pub fn names(&self) -> Vec<String> {
        let all = self.columns.clone().unwrap_or_else(|| (1..=self.coefficients.len()).map(|i| i.to_string()).collect());
        let numbers = all.into_iter().enumerate().filter(|(i, _)| !self.is_level(*i)).map(|(_, name)| name);
        numbers.chain(self.offset.clone()).collect()
    }

    /// Whether column i of x is a level of a category.
    fn is_level(&self, i: usize) -> bool {
        self.categories.iter().any(|category| (category.first..category.first + category.levels.len()).contains(&i))
    }

    /// The number of scores of a row.
    pub fn outputs(&self) -> usize {
        if let Predicts::Classes { further, .. } = &self.predicts { 1 + further.len() } else { 1 }
    }

    /// `intercept + coefficients^T x` of a row given as (column, number). Columns that the model does not have are ignored.
    pub fn score(&self, row: impl Iterator<Item = (usize, f64)>) -> f64 {
        row.filter_map(|(j, x)| Some(self.coefficients.get(j)? * x)).sum::<f64>() + self.intercept
    }

    /// The scores of a row: [`LinearModel::score`], and the scores of further classes.
    pub fn scores(&self, row: &[(usize, f64)], out: &mut Vec<f64>) {
        out.push(self.score(row.iter().copied()));
        if let Predicts::Classes { further, .. } = &self.predicts {
            for (coefficients, intercept) in further {
                out.push(row.iter().filter_map(|(j, x)| Some(coefficients.get(*j)? * x)).sum::<f64>() + intercept);
            }
        }
    }

    /// The scores of the rows of a table whose inputs are [`LinearModel::names`], row by row.
    ///
    /// # Errors
    /// When a column of categories is missing, or has a level that the fit did not see.
    pub fn table_scores(&self, table: &Table) -> Result<Vec<f64>> {
        let numbers: Vec<usize> = (0..self.coefficients.len()).filter(|i| !self.is_level(*i)).collect();
        let cells = self.categories.iter().map(|category| {
            let found = table.columns.iter().find(|(name, _)| *name == category.column);
            found.map(|(_, cells)| (category, cells)).ok_or_else(|| {
                let what = format!("there is no column `{}` of categories, which the model was fitted to", quoted(&category.column));
                Error::data(table.name.clone(), what, "the columns of the data of the fit")
            })
        });
        let cells = cells.collect::<Result<Vec<_>>>()?;
        let width = self.names().len();
        let (mut out, mut row) = (Vec::with_capacity(table.rows * self.outputs()), Vec::new());
        for j in 0..table.rows {
            let inputs = &table.inputs[j * width..][..width];
            row.clear();
            row.extend(numbers.iter().copied().zip(inputs.iter().copied()));
            for (category, cells) in &cells {
                let text = cells.text(j);
                row.extend(level(category, &text).map_err(|e| e.about(format!("{}, row {}", table.name, j + 1)))?.map(|i| (i, 1.0)));
            }
            let first = out.len();
            self.scores(&row, &mut out);
            if self.offset.is_some() {
                let offset = inputs[width - 1];
                out[first..].iter_mut().for_each(|score| *score += offset);
            }
        }
        Ok(out)
    }

    /// The columns added to a table with these scores, [`LinearModel::outputs`] for each row.
    pub fn predictions(&self, scores: &[f64]) -> Vec<(String, Cells)> {
        match &self.predicts {
            Predicts::Target { offset, scale } => {
                let values = scores.iter().map(|score| scale.mul_add(*score, *offset)).collect();
                vec![("prediction".into(), Cells::Numbers(values))]
            }
            Predicts::Mean { .. } => vec![("prediction".into(), Cells::Numbers(scores.iter().map(|score| score.exp()).collect()))],
            Predicts::Robust => vec![("prediction".into(), Cells::Numbers(scores.to_vec()))],
            Predicts::Class(classes) => {
                let of = |k: usize| scores.iter().map(|score| 1.0 / (1.0 + if k == 1 { -score } else { *score }.exp())).collect();
                let predicted = named(classes, scores.iter().map(|score| usize::from(*score > 0.0)));
                with_probabilities(of(1), classes, of, predicted)
            }
            Predicts::Classes { classes, .. } => {
                let best = |scores: &[f64]| {
                    // The first one of equal scores; the reference has 0.
                    let better = |(best, most): (usize, f64), (k, t): (usize, &f64)| if *t > most { (k + 1, *t) } else { (best, most) };
                    scores.iter().enumerate().fold((0, 0.0), better)
                };
                let rows = || scores.chunks(classes.len() - 1);
                // The probability of class k; the score of the reference is 0.
                let probability = |scores: &[f64], k: usize| {
                    let (_, most) = best(scores);
                    let own = if k == 0 { 0.0 } else { scores[k - 1] };
                    (own - most).exp() / (scores.iter().map(|t| (t - most).exp()).sum::<f64>() + (-most).exp())
                };
                let of = |k: usize| rows().map(|scores| probability(scores, k)).collect();
                let predicted = named(classes, rows().map(|scores| best(scores).0));
                with_probabilities(rows().map(|scores| probability(scores, best(scores).0)).collect(), classes, of, predicted)
            }
        }
    }

    /// The fields of a `weights.json` that define the model.
    pub fn to_json(&self) -> Value {
        let class = |class: &PredictedClass| match class {
            PredictedClass::Number(x) => json!(x),
            PredictedClass::Name(name) => json!(name),
            PredictedClass::Rest => json!(null),
        };
        let (model, classes, target_map) = match &self.predicts {
            Predicts::Target { offset, scale } => ("least-squares", json!(null), json!([offset, scale])),
            Predicts::Mean { model } => (&model[..], json!(null), json!(null)),
            Predicts::Robust => ("huber", json!(null), json!(null)),
            Predicts::Class(classes) => ("logistic", json!(classes.each_ref().map(class)), json!(null)),
            Predicts::Classes { classes, .. } => ("multinomial", json!(classes.iter().map(class).collect::<Vec<_>>()), json!(null)),
        };
        let further = match &self.predicts {
            Predicts::Classes { further, .. } => {
                let one = |(coefficients, intercept): &(Vec<f64>, f64)| json!({ "coefficients": coefficients, "intercept": intercept });
                json!(further.iter().map(one).collect::<Vec<_>>())
            }
            _ => json!(null),
        };
        let category = |c: &Category| json!({ "column": c.column, "levels": c.levels, "reference": c.reference, "first": c.first });
        json!({
            "format": FORMAT,
            "model": model,
            "columns": self.columns,
            "coefficients": self.coefficients,
            "intercept": self.intercept,
            "classes": classes,
            "target": self.target,
            "target_map": target_map,
            "further": further,
            "offset": self.offset,
            "categories": self.categories.iter().map(category).collect::<Vec<_>>(),
        })
    }

    /// The model of a `weights.json` with a checked format.
    ///
    /// # Errors
    /// When a field is missing or invalid.
    pub fn from_json(value: &Value) -> Result<Self> {
        let bad = |what: String| Error::data("", what, WANTED);
        let field = |name: &str| value.get(name).ok_or_else(|| bad(format!("there is no `{name}`")));
        let finite = |name: &str, value: &Value| {
            let number = value.as_f64().filter(|x| x.is_finite());
            number.ok_or_else(|| bad(format!("`{name}`: {} is no finite number", quoted(value.to_string()))))
        };
        let listed = |name: &str| -> Result<Vec<f64>> {
            let list = field(name)?.as_array().ok_or_else(|| bad(format!("`{name}` is no list of numbers")))?;
            list.iter().map(|x| finite(name, x)).collect()
        };
        let coefficients = listed("coefficients")?;
        let columns: Option<Vec<String>> =
            serde_json::from_value(field("columns")?.clone()).map_err(|e| bad(format!("`columns`: {}", quoted(e.to_string()))))?;
        if coefficients.is_empty() {
            return Err(bad("there are no `coefficients`".into()));
        }
        if let Some(columns) = &columns {
            if columns.len() != coefficients.len() {
                return Err(bad(format!("{} coefficients for {} columns", coefficients.len(), columns.len())));
            }
            let mut seen = std::collections::HashSet::new();
            if let Some(twice) = columns.iter().find(|name| !seen.insert(*name)) {
                return Err(bad(format!("two columns are called `{}`", quoted(twice))));
            }
        }
        let intercept = finite("intercept", field("intercept")?)?;
        let predicts = match field("model")?.as_str() {
            Some("least-squares") => match listed("target_map")?[..] {
                [offset, scale] => Predicts::Target { offset, scale },
                _ => return Err(bad("`target_map` is not two numbers".into())),
            },
            Some("logistic") => match <[PredictedClass; 2]>::try_from(classes(field("classes")?)?) {
                Ok(classes) => Predicts::Class(classes),
                Err(_) => return Err(bad("`classes` is not two classes".into())),
            },
            Some("multinomial") => {
                Predicts::Classes { classes: classes(field("classes")?)?, further: further(field("further")?, coefficients.len())? }
            }
            Some(model @ ("poisson" | "gamma" | "negative-binomial")) => Predicts::Mean { model: model.into() },
            Some("huber") => Predicts::Robust,
            _ => return Err(bad(format!("`model`: {}", quoted(field("model")?.to_string())))),
        };
        if let Predicts::Classes { classes, further } = &predicts
            && classes.len() != further.len() + 2
        {
            return Err(bad(format!("{} classes and coefficients of {}", classes.len(), further.len() + 1)));
        }
        let text = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_string);
        let categories = value.get("categories").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let categories = categories.iter().map(|one| category(one, coefficients.len())).collect::<Result<Vec<_>>>()?;
        Ok(Self { columns, coefficients, intercept, predicts, target: text("target"), offset: text("offset"), categories })
    }
}

/// At least two classes.
fn classes(value: &Value) -> Result<Vec<PredictedClass>> {
    let bad = |what: &str| Error::data("", what, WANTED);
    let class = |value: &Value| match value {
        Value::Null => Ok(PredictedClass::Rest),
        Value::String(name) => Ok(PredictedClass::Name(name.clone())),
        number => number.as_f64().map(PredictedClass::Number).ok_or_else(|| bad("`classes` are neither numbers nor names")),
    };
    let list = value.as_array().filter(|list| list.len() >= 2);
    list.ok_or_else(|| bad("`classes` is not two classes"))?.iter().map(class).collect()
}

/// The coefficients of further classes.
fn further(value: &Value, d: usize) -> Result<Vec<(Vec<f64>, f64)>> {
    let bad = || Error::data("", "`further` is no list of coefficients and intercepts", WANTED);
    let number = |x: &Value| x.as_f64().filter(|x| x.is_finite()).ok_or_else(bad);
    let one = |one: &Value| {
        let list = one.get("coefficients").and_then(Value::as_array).filter(|list| list.len() == d).ok_or_else(bad)?;
        Ok((list.iter().map(number).collect::<Result<_>>()?, number(one.get("intercept").unwrap_or(&Value::Null))?))
    };
    value.as_array().ok_or_else(bad)?.iter().map(one).collect()
}

/// A category of a model of d coefficients.
fn category(value: &Value, d: usize) -> Result<Category> {
    let bad = || Error::data("", "`categories` is no list of columns with their levels", WANTED);
    let text = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_string);
    let levels = value.get("levels").and_then(Value::as_array).ok_or_else(bad)?;
    let levels = levels.iter().map(|level| level.as_str().map(str::to_string).ok_or_else(bad)).collect::<Result<Vec<_>>>()?;
    let first = value.get("first").and_then(Value::as_u64).ok_or_else(bad)? as usize;
    if first.checked_add(levels.len()).is_none_or(|end| end > d) {
        return Err(bad());
    }
    Ok(Category { column: text("column").ok_or_else(bad)?, levels, reference: text("reference"), first })
}

/// The coefficient of a level; `None` for the reference.
fn level(category: &Category, text: &str) -> Result<Option<usize>> {
    let text = text.trim();
    let name = level_name(text);
    // If all levels are numbers, the notation of this one does not matter.
    let are_numbers = category.levels.iter().chain(&category.reference).all(|level| level_number(level).is_some());
    let number = text.parse::<f64>().ok().filter(|_| are_numbers);
    let is = |level: &String| *level == name || number.is_some() && level_number(level) == number;
    if let Some(k) = category.levels.iter().position(is) {
        return Ok(Some(category.first + k));
    }
    if category.reference.as_ref().is_some_and(is) {
        return Ok(None);
    }
    let what = format!("the column `{}` has the level `{}`, which the fit has not seen", quoted(&category.column), quoted(text));
    Err(Error::data("", what, "levels of the data of the fit"))
}

/// The columns of predicted classes: `probability`; for each class with a name `probability_NAME`; and the predicted class.
fn with_probabilities(
    probability: Vec<f64>,
    classes: &[PredictedClass],
    of: impl Fn(usize) -> Vec<f64>,
    predicted: Cells,
) -> Vec<(String, Cells)> {
    let named = classes.iter().enumerate().filter(|(_, class)| **class != PredictedClass::Rest);
    let each = named.map(|(k, class)| (format!("probability_{class}"), Cells::Numbers(of(k))));
    let first = ("probability".into(), Cells::Numbers(probability));
    std::iter::once(first).chain(each).chain([("prediction".into(), predicted)]).collect()
}

/// The names of predicted classes; numbers if all classes are numbers.
fn named(classes: &[PredictedClass], predicted: impl Iterator<Item = usize>) -> Cells {
    let number = |class: &PredictedClass| if let PredictedClass::Number(x) = class { Some(*x) } else { None };
    match classes.iter().map(number).collect::<Option<Vec<f64>>>() {
        Some(numbers) => Cells::Numbers(predicted.map(|k| numbers[k]).collect()),
        None => {
            let mut text = Text::default();
            predicted.for_each(|k| text.push(&classes[k].to_string()));
            Cells::Text(text)
        }
    }
}

impl std::fmt::Display for PredictedClass {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PredictedClass::Number(x) => write!(f, "{x}"),
            PredictedClass::Name(name) => f.write_str(name),
            PredictedClass::Rest => f.write_str("rest"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digits() -> LinearModel {
        LinearModel {
            columns: None,
            coefficients: vec![1.0, -2.0],
            intercept: 0.5,
            predicts: Predicts::Class([PredictedClass::Rest, PredictedClass::Number(3.0)]),
            target: None,
            offset: None,
            categories: Vec::new(),
        }
    }

    #[test]
    fn a_model_is_read_as_it_was_written() {
        let songs = LinearModel {
            columns: Some(vec!["a".into(), "b".into()]),
            predicts: Predicts::Target { offset: 1926.0, scale: 84.0 },
            target: Some("year".into()),
            ..digits()
        };
        let named =
            LinearModel { predicts: Predicts::Class([PredictedClass::Name("no".into()), PredictedClass::Name("yes".into())]), ..digits() };
        for model in [digits(), songs, named] {
            assert_eq!(LinearModel::from_json(&model.to_json()).unwrap(), model);
        }
    }

    #[test]
    fn scores_become_targets_and_classes() {
        // 0.5 + 1 * 2 - 2 * 1, and a column that the model does not have.
        let scores = [digits().score([(0, 2.0), (1, 1.0), (7, 9.0)].into_iter()), digits().score([(1, 3.0)].into_iter())];
        assert_eq!(scores, [0.5, -5.5]);
        let [(_, Cells::Numbers(probabilities)), (three, of_three), (name, Cells::Text(_))] = &digits().predictions(&scores)[..] else {
            panic!()
        };
        assert!((probabilities[0] - 1.0 / (1.0 + (-0.5f64).exp())).abs() < 1e-15 && name == "prediction");
        assert!(three == "probability_3" && *of_three == Cells::Numbers(probabilities.clone()));
        let numbers = LinearModel { predicts: Predicts::Class([PredictedClass::Number(-1.0), PredictedClass::Number(1.0)]), ..digits() };
        assert_eq!(numbers.predictions(&scores)[3].1, Cells::Numbers(vec![1.0, -1.0]));
        let target = LinearModel { predicts: Predicts::Target { offset: 10.0, scale: 2.0 }, ..digits() };
        assert_eq!(target.predictions(&scores), [("prediction".to_string(), Cells::Numbers(vec![11.0, -1.0]))]);
    }

    /// Scores of 700 have exponentials that overflow in a product of two.
    #[test]
    fn every_class_has_its_probability_by_name() {
        let numbers = |columns: &[(String, Cells)], name: &str| {
            let found = columns.iter().find(|(other, _)| other == name).map(|(_, cells)| cells);
            let Some(Cells::Numbers(numbers)) = found else { panic!("{name}: {columns:?}") };
            numbers.clone()
        };
        let names = ["low", "mid", "high"].map(|name| PredictedClass::Name(name.into()));
        let further = vec![(vec![0.0, 0.0], 0.0)];
        let three = LinearModel { predicts: Predicts::Classes { classes: names.to_vec(), further }, ..digits() };
        for scores in [[0.3, -1.2], [-2.0, -0.1], [700.0, 690.0], [-700.0, -800.0]] {
            let columns = three.predictions(&scores);
            let of = ["low", "mid", "high"].map(|name| numbers(&columns, &format!("probability_{name}"))[0]);
            let most = scores.iter().fold(0.0f64, |a, b| a.max(*b));
            let weights = [0.0, scores[0], scores[1]].map(|score: f64| (score - most).exp());
            let sum: f64 = weights.iter().sum();
            of.iter().zip(&weights).for_each(|(p, weight)| assert!((p - weight / sum).abs() <= 1e-15, "{scores:?}: {of:?}"));
            assert_eq!(numbers(&columns, "probability")[0], of.iter().copied().fold(0.0, f64::max), "{scores:?}");
        }
        let two =
            LinearModel { predicts: Predicts::Class([PredictedClass::Name("no".into()), PredictedClass::Name("yes".into())]), ..digits() };
        let columns = two.predictions(&[0.7, -40.0]);
        let (no, yes) = (numbers(&columns, "probability_no"), numbers(&columns, "probability_yes"));
        assert_eq!(numbers(&columns, "probability"), yes);
        assert!((no[0] + yes[0] - 1.0).abs() < 1e-15 && (yes[1] / (-40f64).exp() - 1.0).abs() < 1e-12, "{no:?} {yes:?}");
    }

    #[test]
    fn what_is_wrong_with_a_model_is_said() {
        let error = |name: &str, value: Value| {
            let mut json = digits().to_json();
            json[name] = value;
            LinearModel::from_json(&json).unwrap_err().to_string()
        };
        assert!(error("coefficients", json!([1.0, null])).contains("`coefficients`: null is no finite number"));
        assert!(error("columns", json!(["a"])).contains("2 coefficients for 1 columns"));
        assert!(error("columns", json!(["a", "a"])).contains("two columns are called `a`"));
        assert!(error("coefficients", json!([])).contains("no `coefficients`"));
        assert!(error("model", json!("tree")).contains("tree"));
        assert!(error("classes", json!([1])).contains("two classes"));
        assert!(LinearModel::from_json(&json!({})).is_err());
    }
}
