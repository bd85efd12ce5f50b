//! Fitted regressions and classifications: the `weights.json` that `fedsa fit` writes, and what they predict.
//!
//! Standardisation and projections of the fit are affine maps of the rows. They are part of the coefficients, so that a model
//! is applied to rows as files have them.

use fedsa::error::{Error, Result, quoted};
use serde_json::{Value, json};

use super::table::{Cells, Text};

/// The format of `weights.json` that is written and read.
pub const FORMAT: u64 = 1;

/// What to give instead of a file that is no fitted model.
const WANTED: &str = "a weights.json that fedsa fit wrote";

/// A class of targets, as the data name it.
#[derive(Debug, Clone, PartialEq)]
pub enum PredictedClass {
    /// A number.
    Number(f64),
    /// A name.
    Name(String),
    /// All other classes.
    Rest,
}

/// What a model predicts.
#[derive(Debug, Clone, PartialEq)]
pub enum Predicts {
    /// The target: `offset + scale (intercept + coefficients^T x)`, where targets were scaled for the fit.
    Target {
        /// Added to the scaled function.
        offset: f64,
        /// Times the function.
        scale: f64,
    },
    /// The probability `1 / (1 + exp(-(intercept + coefficients^T x)))` of the second class.
    Class([PredictedClass; 2]),
}

/// A fitted function `intercept + coefficients^T x` of rows x.
#[derive(Debug, Clone, PartialEq)]
pub struct LinearModel {
    /// The columns of x; `None` for columns without names, which are called `1`, `2`, .. as those of LIBSVM files.
    pub columns: Option<Vec<String>>,
    /// A number for each column.
    pub coefficients: Vec<f64>,
    /// Added to the sum.
    pub intercept: f64,
    /// What is predicted.
    pub predicts: Predicts,
    /// The column of targets, if it has a name.
    pub target: Option<String>,
}

impl LinearModel {
    /// The names of the columns, d.
    pub fn names(&self) -> Vec<String> {
        self.columns.clone().unwrap_or_else(|| (1..=self.coefficients.len()).map(|i| i.to_string()).collect())
    }

    /// `intercept + coefficients^T x` of a row whose numbers are given by columns. Columns that the model does not have count
    /// as not there.
    pub fn score(&self, row: impl Iterator<Item = (usize, f64)>) -> f64 {
        row.filter_map(|(j, x)| Some(self.coefficients.get(j)? * x)).sum::<f64>() + self.intercept
    }

    /// The columns that are added to a table with these scores.
    pub fn predictions(&self, scores: &[f64]) -> Vec<(String, Cells)> {
        match &self.predicts {
            Predicts::Target { offset, scale } => {
                let values = scores.iter().map(|score| scale.mul_add(*score, *offset)).collect();
                vec![("prediction".into(), Cells::Numbers(values))]
            }
            Predicts::Class(classes) => {
                let probabilities = scores.iter().map(|score| 1.0 / (1.0 + (-score).exp())).collect();
                let of = |score: &f64| &classes[usize::from(*score > 0.0)];
                let predicted = match classes {
                    [PredictedClass::Number(no), PredictedClass::Number(yes)] => {
                        Cells::Numbers(scores.iter().map(|score| if *score > 0.0 { *yes } else { *no }).collect())
                    }
                    _ => {
                        let mut text = Text::default();
                        scores.iter().for_each(|score| text.push(&of(score).to_string()));
                        Cells::Text(text)
                    }
                };
                vec![("probability".into(), Cells::Numbers(probabilities)), ("prediction".into(), predicted)]
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
            Predicts::Class(classes) => ("logistic", json!(classes.each_ref().map(class)), json!(null)),
        };
        json!({
            "format": FORMAT,
            "model": model,
            "columns": self.columns,
            "coefficients": self.coefficients,
            "intercept": self.intercept,
            "classes": classes,
            "target": self.target,
            "target_map": target_map,
        })
    }

    /// The model of a `weights.json`, whose format was checked.
    ///
    /// # Errors
    /// When a field is missing or is not what it should be.
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
            Some("logistic") => {
                let class = |value: &Value| match value {
                    Value::Null => Ok(PredictedClass::Rest),
                    Value::String(name) => Ok(PredictedClass::Name(name.clone())),
                    number => finite("classes", number).map(PredictedClass::Number),
                };
                match field("classes")?.as_array().map(Vec::as_slice) {
                    Some([no, yes]) => Predicts::Class([class(no)?, class(yes)?]),
                    _ => return Err(bad("`classes` is not two classes".into())),
                }
            }
            _ => return Err(bad(format!("`model`: {}", quoted(field("model")?.to_string())))),
        };
        let target = value.get("target").and_then(Value::as_str).map(str::to_string);
        Ok(Self { columns, coefficients, intercept, predicts, target })
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
        let [(_, Cells::Numbers(probabilities)), (name, Cells::Text(_))] = &digits().predictions(&scores)[..] else { panic!() };
        assert!((probabilities[0] - 1.0 / (1.0 + (-0.5f64).exp())).abs() < 1e-15 && name == "prediction");
        let numbers = LinearModel { predicts: Predicts::Class([PredictedClass::Number(-1.0), PredictedClass::Number(1.0)]), ..digits() };
        assert_eq!(numbers.predictions(&scores)[1].1, Cells::Numbers(vec![1.0, -1.0]));
        let target = LinearModel { predicts: Predicts::Target { offset: 10.0, scale: 2.0 }, ..digits() };
        assert_eq!(target.predictions(&scores), [("prediction".to_string(), Cells::Numbers(vec![11.0, -1.0]))]);
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
