//! Fitted weights: the `weights.json` of `fedsa evaluate` and `fedsa fit`, for use on other data.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use faer::Mat;
use fedsa::error::{Error, Result, quoted};
use fedsa::problem::arrays::Arrays;
use fedsa_evaluate::uncertainty::Covariance;
use fedsa_problems::control::action_values::ActionValues;
use fedsa_problems::control::pessimism::{Caution, Coverage};
use fedsa_problems::features::{ColumnStatistics, FeatureMap, FeatureSpec, Ranges};
use fedsa_problems::logs::by_policy::KnownPolicy;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::linear_model::{FORMAT, LinearModel};
use super::{about, name_of, npz, shown, theta_from_json};

/// The advice for a file without weights.
const WANTED: &str = "a weights.json that fedsa evaluate or fedsa fit wrote, or a policy.json of fedsa improve";

/// The outcome of the run behind a `weights.json`, one of the names of outcomes, or the ending of the iteration behind a `policy.json`; `None`
/// if the file does not have it.
pub fn outcome(path: &Path) -> Option<String> {
    let weights: Value = serde_json::from_slice(&super::read(path).ok()?).ok()?;
    Some(weights.get("ending").or_else(|| weights.get("outcome"))?.as_str()?.to_string())
}

/// The contents of a `weights.json`.
#[derive(Debug, Clone, PartialEq)]
pub enum FittedModel {
    /// A value function of states, from `fedsa evaluate`.
    Value(ValueModel),
    /// A policy, from `fedsa improve`.
    Policy(PolicyModel),
    /// A regression or classification, from `fedsa fit`.
    Linear(LinearModel),
}

/// A policy that takes the action of the largest value, `q(s, a) = phi(s)^T theta_a`.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicyModel {
    /// The features of states.
    map: FeatureMap,
    /// The weights of the actions, one after the other, finite.
    theta: Vec<f64>,
    /// The names of the actions, in the order of their numbers.
    actions: Vec<String>,
    caution: Option<Caution>,
    /// The probability of any action in evaluations.
    soften: f64,
    /// The discount factor of the values.
    gamma: Option<f64>,
    /// Hashes of the episodes of the fit.
    training: HashSet<String>,
    file_columns: BTreeMap<String, String>,
}

impl KnownPolicy for PolicyModel {
    fn columns(&self) -> &[String] {
        self.map.columns()
    }
    fn actions(&self) -> usize {
        self.actions.len()
    }
    fn write(&self, state: &[f64], law: &mut [f64]) {
        law.copy_from_slice(&self.probabilities(state, self.soften));
    }
    fn training(&self) -> &HashSet<String> {
        &self.training
    }
    fn gamma(&self) -> Option<f64> {
        self.gamma
    }
    fn file_columns(&self) -> &BTreeMap<String, String> {
        &self.file_columns
    }
}

/// A rule about rare actions in `policy.json`: for each action the lower triangle of its m x m matrix, row by row.
pub fn caution_json(caution: &Caution) -> Value {
    let triangle = |of: &Mat<f64>| -> Vec<f64> { (0..of.nrows()).flat_map(|i| (0..=i).map(move |j| of[(i, j)])).collect() };
    let inverses: Vec<Vec<f64>> = caution.coverage.0.iter().map(triangle).collect();
    json!({ "rule": caution.rule, "sigma": caution.sigma, "inverses": inverses })
}

/// The rule of [`caution_json`] for this many features.
fn caution_of(json: &Value, features: usize, actions: usize) -> Result<Caution> {
    let bad = |what: String| Error::data("", format!("`caution`: {}", quoted(what)), WANTED);
    let read = |key: &str| json.get(key).cloned().ok_or_else(|| bad(format!("`{key}` is missing")));
    let rule = serde_json::from_value(read("rule")?).map_err(|e| bad(e.to_string()))?;
    let sigma: f64 = serde_json::from_value(read("sigma")?).map_err(|e| bad(e.to_string()))?;
    let triangles: Vec<Vec<f64>> = serde_json::from_value(read("inverses")?).map_err(|e| bad(e.to_string()))?;
    if triangles.len() != actions || triangles.iter().any(|one| one.len() != features * (features + 1) / 2) {
        return Err(bad(format!("`inverses` are not {actions} triangles of {features} rows")));
    }
    let of = |one: &Vec<f64>| Mat::from_fn(features, features, |i, j| one[i.max(j) * (i.max(j) + 1) / 2 + i.min(j)]);
    if !(0.0..f64::INFINITY).contains(&sigma) {
        return Err(bad(format!("`sigma` is {sigma}, and a standard deviation is at least 0")));
    }
    Ok(Caution { rule, sigma, coverage: Coverage(triangles.iter().map(of).collect()) })
}

impl PolicyModel {
    /// The state columns, in the order of [`PolicyModel::values`].
    pub fn inputs(&self) -> &[String] {
        self.map.columns()
    }

    /// The names of the actions.
    pub fn actions(&self) -> &[String] {
        &self.actions
    }

    /// The names of columns in the logs' files, by their names in logs; empty if they were the same.
    pub fn file_columns(&self) -> &BTreeMap<String, String> {
        &self.file_columns
    }

    /// The features of states.
    pub fn map(&self) -> &FeatureMap {
        &self.map
    }

    /// The weights.
    pub fn theta(&self) -> &[f64] {
        &self.theta
    }

    /// The values of all actions in every row of `inputs`, K numbers a row.
    pub fn values(&self, inputs: &[f64]) -> Vec<f64> {
        let values = ActionValues::new(&self.theta, self.map.len());
        self.by_row(inputs, |phi, q| values.write(phi, q))
    }

    /// The action that the policy takes in every row.
    pub fn choices(&self, inputs: &[f64]) -> Vec<usize> {
        let values = self.acting();
        let (mut phi, mut q) = (vec![0.0; self.map.len()], vec![0.0; self.actions.len()]);
        let mut choice = |row: &[f64]| {
            self.map.eval(row, &mut phi);
            values.choice(&phi, &mut q)
        };
        inputs.chunks_exact(self.map.columns().len()).map(&mut choice).collect()
    }

    /// The probabilities of all actions in every row, K numbers a row: the action of the largest value, or with probability `soften` any.
    pub fn probabilities(&self, inputs: &[f64], soften: f64) -> Vec<f64> {
        let values = self.acting();
        self.by_row(inputs, |phi, law| values.write_policy(phi, soften, law))
    }

    /// The values with the policy that follows them.
    fn acting(&self) -> ActionValues<'_> {
        ActionValues::new(&self.theta, self.map.len()).with_caution(self.caution.as_ref())
    }

    fn by_row(&self, inputs: &[f64], write: impl Fn(&[f64], &mut [f64])) -> Vec<f64> {
        let (k, mut phi) = (self.actions.len(), vec![0.0; self.map.len()]);
        let rows = inputs.chunks_exact(self.map.columns().len());
        let mut all = vec![0.0; rows.len() * k];
        for (row, out) in rows.zip(all.chunks_exact_mut(k)) {
            self.map.eval(row, &mut phi);
            write(&phi, out);
        }
        all
    }
}

/// A fitted function of some columns: features, and a weight for each.
#[derive(Debug, Clone, PartialEq)]
pub struct ValueModel {
    /// The features of the columns.
    map: FeatureMap,
    /// The weights, one per feature, finite.
    theta: Vec<f64>,
    /// The names of columns in the logs' files, by the names of the inputs.
    file_columns: BTreeMap<String, String>,
    /// The covariance of the weights, if it was read.
    covariance: Option<Covariance>,
}

impl ValueModel {
    /// The columns that the function needs, in the order of [`ValueModel::apply`].
    pub fn inputs(&self) -> &[String] {
        self.map.columns()
    }

    /// The names of columns in the logs' files, by their names in logs; empty if they were the same.
    pub fn file_columns(&self) -> &BTreeMap<String, String> {
        &self.file_columns
    }

    /// The name of the predicted column.
    pub fn output(&self) -> &'static str {
        "value"
    }

    /// The features.
    pub fn map(&self) -> &FeatureMap {
        &self.map
    }

    /// The weights.
    pub fn theta(&self) -> &[f64] {
        &self.theta
    }

    /// The prediction of every row of `inputs`, which has a number for each of [`ValueModel::inputs`].
    pub fn apply(&self, inputs: &[f64]) -> Vec<f64> {
        let rows = inputs.chunks_exact(self.map.columns().len());
        if let Some((m, value)) = self.map.sparse() {
            let (mut active, mut phi) = (vec![0; m], vec![1.0; m]);
            let values = rows.map(|row| {
                self.map.active(row, &mut active);
                if self.map.is_mixed() {
                    self.map.active_values(row, &mut phi);
                }
                value * active.iter().zip(&phi).map(|(i, x)| x * self.theta[*i as usize]).sum::<f64>()
            });
            return values.collect();
        }
        let mut phi = vec![0.0; self.map.len()];
        rows.map(|row| {
            self.map.eval(row, &mut phi);
            phi.iter().zip(&self.theta).map(|(x, w)| x * w).sum()
        })
        .collect()
    }

    /// Reads the covariance of the weights from the `weights.npz` of the same run.
    ///
    /// # Errors
    /// When the file cannot be read, holds no covariance, or belongs to other weights.
    pub fn read_covariance(&mut self, path: &Path) -> Result<()> {
        self.take_covariance(&npz::read(path)?).map_err(|e| match e.key.as_str() {
            "" => Error::data(shown(name_of(path)), e.what.clone(), e.help.clone()),
            _ => about(path, e),
        })
    }

    /// Takes the covariance of the weights from the arrays of a `weights.npz`.
    ///
    /// # Errors
    /// When there is no covariance, or it belongs to other weights.
    pub fn take_covariance(&mut self, arrays: &Arrays) -> Result<()> {
        let d = self.theta.len();
        if arrays.get("theta")?.data() != self.theta {
            return Err(Error::data("", "holds other weights", "the weights.npz that was written with the weights.json"));
        }
        let covariance = arrays.find("theta_cov").filter(|array| array.shape() == [d, d]).ok_or_else(|| {
            let what = "holds no covariance `theta_cov` of the weights";
            Error::data("", what, "a fit to logs of at least 16 transitions an agent, which has standard errors")
        })?;
        let null = arrays.find("theta_null").filter(|array| matches!(array.shape(), [_, columns] if *columns == d));
        self.covariance =
            Some(Covariance { rows: covariance.data().to_vec(), null: null.map_or_else(Vec::new, |null| null.data().to_vec()) });
        Ok(())
    }

    /// The standard error of the prediction of every row; NaN if the data of the fit do not determine it.
    ///
    /// # Panics
    /// When the covariance was not read.
    pub fn standard_errors(&self, inputs: &[f64]) -> Vec<f64> {
        let d = self.map.len();
        let covariance = self.covariance.as_ref().expect("the covariance is read first");
        let mut phi = vec![0.0; d];
        let rows = inputs.chunks_exact(self.map.columns().len());
        rows.map(|row| {
            self.map.eval(row, &mut phi);
            covariance.value_error(&phi)
        })
        .collect()
    }
}

/// Reads fitted weights.
///
/// # Errors
/// When the file cannot be read, or as [`from_json`].
pub fn read(path: &Path) -> Result<FittedModel> {
    from_json(&super::read(path)?).map_err(|e| about(path, e))
}

fn missing(name: &str) -> Error {
    Error::data("", format!("there is no `{name}`"), WANTED)
}

/// What a field holds; `None` if it is missing or null.
fn optional<T: DeserializeOwned>(value: &Value, name: &str) -> Result<Option<T>> {
    let held = value.get(name).filter(|held| !held.is_null()).cloned();
    let bad = |e: serde_json::Error| Error::data("", format!("`{name}`: {}", quoted(e.to_string())), WANTED);
    held.map(serde_json::from_value).transpose().map_err(bad)
}

/// The features of the columns.
fn map_of(value: &Value) -> Result<FeatureMap> {
    let spec: FeatureSpec = optional(value, "feature_map")?.ok_or_else(|| missing("feature_map"))?;
    let columns: Vec<String> = optional(value, "columns")?.ok_or_else(|| missing("columns"))?;
    let ranges: Ranges = optional(value, "ranges")?.ok_or_else(|| missing("ranges"))?;
    let statistics: ColumnStatistics = optional(value, "statistics")?.unwrap_or_default();
    let map = FeatureMap::with_statistics(&spec, &columns, &ranges, statistics)?;
    match optional(value, "scale")? {
        None => Ok(map),
        Some(scale) => map.with_scale(scale),
    }
}

/// Fitted weights from the bytes of a `weights.json`.
///
/// # Errors
/// When the bytes are not JSON or of another format, a field is missing, weights are not finite, or the number of weights is not the
/// number of features.
pub fn from_json(file: &[u8]) -> Result<FittedModel> {
    let value: Value = serde_json::from_slice(file).map_err(|e| Error::data("", format!("not JSON: {e}"), WANTED))?;
    let field = |name: &str| value.get(name).ok_or_else(|| missing(name));
    let format = field("format")?;
    if format.as_u64() != Some(FORMAT) {
        let help = format!("weights of format {FORMAT}: fit them again with this version of fedsa, or use the version that wrote them");
        return Err(Error::format("", format!("weights of format {}", quoted(format.to_string())), help));
    }
    if value.get("model").is_some() {
        return LinearModel::from_json(&value).map(FittedModel::Linear);
    }
    let map = map_of(&value)?;
    let file_columns = optional(&value, "file_columns")?.unwrap_or_default();
    let listed = field("theta")?.as_array().map_or(&[][..], Vec::as_slice);
    // Weights that are not finite are null, because JSON has no other way to write them.
    if let Some(i) = listed.iter().position(Value::is_null) {
        let help = "the weights of a run that did not diverge: `outcome`, or `ending` of a policy, says how this run ended";
        return Err(Error::data("", format!("weight {i} of `theta` is not finite"), help));
    }
    let theta = theta_from_json(file).map_err(|e| e.inside("theta"))?;
    let actions: Option<Vec<String>> = optional(&value, "actions")?;
    let (is_policy, actions) = (actions.is_some(), actions.unwrap_or_default());
    let each = actions.len().max(1);
    if theta.len() != map.len() * each || is_policy && actions.is_empty() {
        let of_actions = if is_policy { format!(" for each of {} actions", actions.len()) } else { String::new() };
        let what = format!(
            "`theta` has {} weights, but {} on {} state columns has {} features{of_actions}",
            theta.len(),
            quoted(map.spec().to_string()),
            map.columns().len(),
            map.len()
        );
        return Err(Error::data("", what, WANTED));
    }
    if is_policy {
        let caution: Option<Value> = optional(&value, "caution")?;
        let caution = caution.map(|caution| caution_of(&caution, map.len(), actions.len())).transpose()?;
        let soften = optional(&value, "soften")?.unwrap_or(0.0);
        if !(0.0..=1.0).contains(&soften) {
            return Err(Error::data("", format!("`soften` is {soften}"), "a probability"));
        }
        if let Some(name) = actions.iter().enumerate().find_map(|(i, name)| actions[..i].contains(name).then_some(name)) {
            return Err(Error::data("", format!("`actions` has {} twice", quoted(name)), "a name for each action"));
        }
        let training = optional(&value, "training_episodes")?.unwrap_or_default();
        return Ok(FittedModel::Policy(PolicyModel {
            map,
            theta,
            actions,
            caution,
            soften,
            gamma: optional(&value, "gamma")?,
            training,
            file_columns,
        }));
    }
    Ok(FittedModel::Value(ValueModel { map, theta, file_columns, covariance: None }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"{"format": 1, "feature_map": {"kind": "identity", "bias": true}, "columns": ["s_0"],
        "ranges": {"s_0": [0.0, 2.0]}, "theta": [0.5, -2.0]}"#;

    fn value(text: &str) -> ValueModel {
        match from_json(text.as_bytes()).unwrap() {
            FittedModel::Value(weights) => weights,
            FittedModel::Linear(_) | FittedModel::Policy(_) => panic!("a value function"),
        }
    }

    #[test]
    fn policies_have_weights_for_each_action() {
        let text = GOOD.replace("\"theta\": [0.5, -2.0]", "\"actions\": [\"stay\", \"go\"], \"theta\": [0.5, -2.0, 0.0, -1.0]");
        let FittedModel::Policy(policy) = from_json(text.as_bytes()).unwrap() else { panic!("a policy") };
        assert_eq!((policy.inputs(), policy.actions()), (&["s_0".to_string()][..], &["stay".to_string(), "go".to_string()][..]));
        assert_eq!(policy.values(&[0.25, 2.0]), [0.0, -0.25, -3.5, -2.0]);
        assert_eq!(policy.probabilities(&[0.25, 2.0], 0.5), [0.75, 0.25, 0.25, 0.75]);
        let three = text.replace("[\"stay\", \"go\"]", "[\"stay\", \"go\", \"wait\"]");
        let what = "`theta` has 4 weights, but identity:bias on 1 state columns has 2 features for each of 3 actions";
        assert_eq!(from_json(three.as_bytes()).unwrap_err().what, what);
        assert!(from_json(text.replace("[\"stay\", \"go\"]", "[]").as_bytes()).unwrap_err().what.contains("of 0 actions"));
        let with = |more: &str| from_json(text.replace("\"format\": 1", &format!("\"format\": 1, {more}")).as_bytes());
        assert_eq!(with("\"soften\": 1.5").unwrap_err().what, "`soften` is 1.5");
        let caution =
            |sigma: f64| format!("\"caution\": {{\"rule\": \"lcb:1\", \"sigma\": {sigma}, \"inverses\": [[1, 0, 1], [1, 0, 1]]}}");
        assert!(with(&caution(1.0)).is_ok());
        let what = with(&caution(-1.0)).unwrap_err().what;
        assert!(what.contains("`sigma` is -1"), "{what}");
        let twice = from_json(text.replace("\"go\"", "\"stay\"").as_bytes()).unwrap_err().what;
        assert!(twice.contains("twice"), "{twice}");
    }

    #[test]
    fn weights_are_applied_to_clipped_states() {
        let weights = value(GOOD);
        assert_eq!((weights.inputs(), weights.output()), (&["s_0".to_string()][..], "value"));
        assert_eq!(weights.apply(&[-1.0, 0.5, 7.0]), [0.5, -0.5, -3.5]);
    }

    #[test]
    fn weights_of_products_are_of_pairs_of_features() {
        let text = r#"{"format": 1, "feature_map": {"kind": "product", "factors": [{"features": {"kind": "one-hot"}, "columns": ["mode"]},
            {"features": {"kind": "identity", "bias": true}, "columns": ["s_0"]}]}, "columns": ["s_0", "mode", "s_1"],
            "ranges": {"mode": [0, 1]}, "theta": [0.5, -2.0, 10.0, 3.0]}"#;
        let weights = value(text);
        assert_eq!(weights.inputs(), ["s_0", "mode", "s_1"]);
        assert_eq!(weights.apply(&[4.0, 0.0, 7.0, 4.0, 1.0, 7.0, -1.0, 5.0, f64::NAN]), [-7.5, 22.0, 7.0]);
        let e = from_json(text.replace("\"mode\"]", "\"m\\u0007\"]").as_bytes()).unwrap_err();
        assert_eq!(e.what, "there is no state column `m\\u{7}`, which one-hot takes");
    }

    #[test]
    fn weights_of_logged_features_take_the_columns_of_the_features() {
        let text = r#"{"format": 1, "feature_map": {"kind": "identity", "bias": false}, "columns": ["phi_2", "phi_10"], "ranges": {},
            "theta": [0.5, -2.0]}"#;
        let weights = value(text);
        assert_eq!(weights.inputs(), ["phi_2", "phi_10"]);
        let form = crate::table::TableForm::new(weights.inputs());
        let table = crate::table::from_csv("phi_10,phi_1,phi_next_2,phi_2\n1,7,7,4\n-3,7,7,2e3\n".into(), &form).unwrap();
        assert_eq!(weights.apply(&table.inputs), [0.0, 1006.0], "as they are: identity clips to ranges only");
        let missing = crate::table::from_csv("s_1,phi_2\n".into(), &form).unwrap_err();
        assert_eq!(missing.to_string(), "there is no column `phi_10`: the columns are `s_1`, `phi_2`");
    }

    #[test]
    fn what_is_wrong_with_weights_is_said() {
        for (from, to, message) in [
            (r#""format": 1"#, r#""format": 2"#, "weights of format 2"),
            (r#""format": 1, "#, "", "there is no `format`"),
            (r#", "theta": [0.5, -2.0]"#, "", "there is no `theta`"),
            ("[0.5, -2.0]", "[0.5]", "`theta` has 1 weights, but identity:bias on 1 state columns has 2 features"),
            ("[0.5, -2.0]", "[0.5, null]", "weight 1 of `theta` is not finite"),
            ("[0.5, -2.0]", "[0.5, \"x\"]", "theta: \"x\" is not a number"),
            ("identity", "identify", "`feature_map`: "),
            ("[0.0, 2.0]", "[2.0, 0.0]", "`s_0`: [2, 0] is not a range"),
            ("{", "", "not JSON: "),
        ] {
            assert!(GOOD.contains(from));
            let e = from_json(GOOD.replacen(from, to, 1).as_bytes()).unwrap_err();
            assert!(e.to_string().contains(message) && !e.help.is_empty(), "{message}: {e}");
        }
    }
}
