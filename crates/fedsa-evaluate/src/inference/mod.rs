//! Inference: coefficients of the original columns with standard errors, deviance, log-likelihood and AIC, from sums that agents send.
//!
//! With `s = sum_j s_j`, `s_j = a_j (y_j - mu_j) mu'_j / V_j x_j`, the expected information `I = sum_j a_j mu'_j^2 / V_j x_j x_j^T` and
//! the observed one H, covariances of the estimate are
//!
//! ```text
//! model        phi I^-1, phi = X^2 / (n - p) for Gaussian and gamma, 1 otherwise
//! sandwich     H^-1 (sum_j s_j s_j^T) H^-1     (HC0; hc1: times n / (n - p))
//! clustered    H^-1 (sum_c s_c s_c^T) H^-1 G / (G - 1), s_c the sum over agent c, G agents
//! ```
//!
//! (spec/inference.md, section 5.) Features are affine in the columns of the files; coefficients and covariances transform accordingly.

mod agent_sums;
mod data_sums;
mod estimate;
mod kind;
mod layout;
mod source;
mod units;

use faer::Mat;
use fedsa::cancel::Cancel;
use fedsa::error::{Error, ErrorCode, Result, quoted, require};
use fedsa_problems::rows::glm::family::ModelFamily;
use fedsa_problems::rows::preparation::Prepared;
use fedsa_problems::rows::preparation::quality::LabelledRows;
use fedsa_problems::rows::preparation::targets::Targets;

pub use kind::CovarianceKind;

use agent_sums::{ModelSums, Want};
use data_sums::DataSums;
use estimate::{Estimate, NoEstimate, Scaled};
use layout::Layout;
use source::{OfAgents, OfRows, Source};
use units::ColumnUnits;

/// With fewer agents than this, a clustered covariance is unreliable.
pub const FEW_AGENTS: usize = 10;

/// The name of the coefficient of the column of ones.
const INTERCEPT: &str = "intercept";
/// The most components of theta whose covariance is computed.
pub const MAX_COEFFICIENTS: usize = 2000;

/// The settings of inference.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct InferenceSettings {
    /// The covariance.
    pub covariance: CovarianceKind,
    /// The level of intervals, between 0 and 1.
    pub level: f64,
}

impl Default for InferenceSettings {
    fn default() -> Self {
        Self { covariance: CovarianceKind::Model, level: 0.95 }
    }
}

fedsa::settings::setters! { InferenceSettings {
    with_covariance(covariance: CovarianceKind) = covariance;
    with_level(level: f64) = level;
} }

/// A coefficient of an original column.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Coefficient {
    /// The column, or `intercept`.
    pub name: String,
    /// The class against the reference, if there are several classes.
    pub class: Option<String>,
    /// The estimate.
    pub estimate: f64,
    /// Its standard error.
    pub se: f64,
    /// estimate / se.
    pub z: f64,
    /// The probability of a larger |z| under the normal distribution.
    pub p: f64,
    /// The lower end of the interval.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

/// Coefficients with standard errors, and the quality of the fit.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Inference {
    /// The family.
    pub family: ModelFamily,
    /// The covariance.
    pub covariance: CovarianceKind,
    /// The level of the intervals.
    pub level: f64,
    /// n, the rows with a weight above 0.
    pub rows: usize,
    /// p, the fitted parameters, without a dispersion.
    pub parameters: usize,
    /// The number of agents.
    pub agents: usize,
    /// The deviance.
    pub deviance: f64,
    /// The log-likelihood as in R: for Gaussian with the dispersion deviance / n, for gamma with deviance / (sum of weights).
    pub log_likelihood: f64,
    /// `-2 log_likelihood + 2 p`, plus 2 if there is a dispersion, as in R.
    pub aic: f64,
    /// Whether the AIC counts the dispersion as a parameter.
    pub aic_counts_dispersion: bool,
    /// Pearson's statistic `X^2 = sum_j a_j (y_j - mu_j)^2 / V(mu_j)`.
    pub pearson: f64,
    /// phi: `X^2 / (n - p)` for Gaussian and gamma, 1 otherwise.
    pub dispersion: f64,
    /// The reference class, if there are several classes.
    pub reference: Option<String>,
    /// The coefficients, the intercept first; several classes follow one another.
    pub coefficients: Vec<Coefficient>,
    /// The covariance of the coefficients, in their order, row by row. Products beyond the range of doubles are 0 or infinite here;
    /// standard errors are not affected.
    pub covariances: Vec<f64>,
    /// The estimate as weights of the features, d numbers.
    pub theta: Vec<f64>,
    /// Exchanges: Newton steps from the start, and the last sums.
    pub exchanges: usize,
    /// The numbers that each agent sends in these exchanges.
    pub numbers_up: usize,
}

/// `P(|Z| > z)` of a normal variable.
fn two_sided(z: f64) -> f64 {
    libm::erfc(z.abs() / std::f64::consts::SQRT_2)
}

/// The bound that the absolute value of a normal variable does not exceed with the probability `level`, between 0 and 1.
pub fn normal_quantile(level: f64) -> f64 {
    let (mut low, mut high) = (0.0, 40.0);
    // Bisection to the last bit.
    for _ in 0..80 {
        let middle = 0.5 * (low + high);
        if two_sided(middle) > 1.0 - level { low = middle } else { high = middle }
    }
    0.5 * (low + high)
}

/// The maximum-likelihood estimate on the fitted rows, by Newton's method from `start`, with its covariance.
///
/// `prepared` gives the family. Every row counts by its weight; agents' weights do not matter.
///
/// # Errors
/// [`ErrorCode::NoEstimate`] if the likelihood has no single maximum (separated classes; collinear columns, which are named), or if a
/// covariance divides by n - p and there are not more rows than coefficients. Other errors: a family without a likelihood; targets
/// mapped to a range; a column called `intercept` next to the model's; a clustered covariance with no more agents than coefficients;
/// more than [`MAX_COEFFICIENTS`] coefficients; a level outside (0, 1); cancellation.
pub fn infer(prepared: &Prepared, start: &[f64], how: InferenceSettings, cancel: &Cancel) -> Result<Inference> {
    let (part, family) = (&prepared.train, prepared.train.family);
    let agents = part.first.windows(2).filter(|at| (at[0]..at[1]).any(|j| part.weight(j) > 0.0)).count();
    check(prepared, start.len(), how, agents)?;
    let units = ColumnUnits::of(part);
    let within = units.apply(part);
    let mut source = OfRows { family, part: &within };
    let (mut inference, estimate) = inferred(prepared, &units, &mut source, start, how, cancel)?;
    let numbers = |want| ModelSums::numbers(start.len(), family, want);
    // Each step takes an exchange for its sums and one for the loss. The last check and the last sums take one each, and a start at
    // the mean target one for two numbers.
    inference.exchanges = 2 * estimate.steps + 2 + usize::from(estimate.is_from_mean);
    inference.numbers_up =
        (estimate.steps + 1) * numbers(Want::Step) + estimate.steps + numbers(Want::Covariance) + 2 * usize::from(estimate.is_from_mean);
    Ok(inference)
}

/// The vector of sums at theta over the rows of one agent, from which [`infer_by`] computes; `prepared` has that agent's rows only. The
/// head of `inference/layout.rs` describes the numbers.
pub fn sums_of_agent(prepared: &Prepared, theta: &[f64], covariance: CovarianceKind) -> Vec<f64> {
    layout(prepared, covariance).of_agent(&prepared.train, theta)
}

/// The length of a vector of [`sums_of_agent`].
pub fn numbers_of_agent(prepared: &Prepared, covariance: CovarianceKind) -> usize {
    layout(prepared, covariance).numbers()
}

/// [`infer`] on the rows of agents elsewhere: `ask` returns the sum of the vectors of `agents` agents at a theta ([`sums_of_agent`]), added
/// in the agents' order. `model` has the family and the transformations, but no rows. The numbers have the bits of one process, except for
/// columns of extreme sizes, for which one process changes units.
///
/// # Errors
/// As [`infer`], except that a constant target is an exact fit; those of `ask`.
pub fn infer_by(
    model: &Prepared,
    start: &[f64],
    how: InferenceSettings,
    agents: usize,
    ask: &mut dyn FnMut(&[f64]) -> Result<Vec<f64>>,
) -> Result<Inference> {
    check(model, start.len(), how, agents)?;
    let layout = layout(model, how.covariance);
    let mut source = OfAgents::new(layout, start, ask);
    let (mut inference, _) = inferred(model, &ColumnUnits::ones(layout.d), &mut source, start, how, &Cancel::never())?;
    (inference.exchanges, inference.numbers_up) = (source.asked, source.asked * layout.numbers());
    Ok(inference)
}

fn layout(prepared: &Prepared, covariance: CovarianceKind) -> Layout {
    Layout { family: prepared.train.family, d: prepared.train.rows.columns(), covariance }
}

/// The estimate from these sums, in these units of columns, with its covariance; without exchanges.
fn inferred(
    prepared: &Prepared,
    units: &ColumnUnits,
    source: &mut dyn Source,
    start: &[f64],
    how: InferenceSettings,
    cancel: &Cancel,
) -> Result<(Inference, Estimate)> {
    let (family, p) = (prepared.train.family, start.len());
    let data = source.data()?;
    let estimate = match estimate::estimate(family, source, &data, prepared.transform.intercept, &units.within(start), cancel)? {
        Ok(estimate) => estimate,
        Err(why) => return Err(no_estimate(prepared, &data, &why)),
    };
    cancel.check()?;
    let sums = source.at(&estimate.theta, Want::Covariance)?;
    cancel.check()?;
    check_residuals(family, &data, &sums)?;
    let covariance = covariance(family, &sums, how.covariance, p)?;
    let (n, p) = (sums.rows, p as f64);
    let has_dispersion = family.has_dispersion();
    let log_likelihood = family.log_likelihood(&sums.fit, n, sums.weights);
    let mut inference = Inference {
        family,
        covariance: how.covariance,
        level: how.level,
        rows: n as usize,
        parameters: start.len(),
        agents: sums.agents as usize,
        deviance: sums.fit.deviance,
        log_likelihood,
        aic: -2.0 * log_likelihood + 2.0 * (p + f64::from(has_dispersion)),
        aic_counts_dispersion: has_dispersion,
        pearson: sums.fit.pearson,
        dispersion: dispersion(family, &sums, p),
        reference: prepared.targets.reference().map(|class| class.to_string()),
        coefficients: Vec::new(),
        covariances: Vec::new(),
        exchanges: 0,
        numbers_up: 0,
        theta: units.without(&estimate.theta),
    };
    inference.name(prepared, units, &covariance)?;
    Ok((inference, estimate))
}

/// Rejects settings and data for which inference is not defined.
fn check(prepared: &Prepared, p: usize, how: InferenceSettings, agents: usize) -> Result<()> {
    let family = prepared.train.family;
    require(how.level > 0.0 && how.level < 1.0, "level", how.level, "a number between 0 and 1, such as 0.95")?;
    if !family.has_likelihood() {
        let what = format!("the model {} has no likelihood, and no standard errors", family.name());
        return Err(Error::new("inference", what, "a model with a likelihood, or no inference"));
    }
    if let Targets::Numbers { offset, scale } = prepared.targets
        && (offset, scale) != (0.0, 1.0)
    {
        return Err(Error::new("target_range", "targets that are mapped to a range, beside inference", "targets as they are"));
    }
    if prepared.transform.intercept && prepared.transform.columns.position(INTERCEPT).is_some() {
        let what =
            format!("a column called `{INTERCEPT}` beside the intercept of the model, which has this name in the list of coefficients");
        return Err(Error::data("inference", what, "another name of the column; or `drop`, which leaves it out; or no intercept"));
    }
    let family_needs_residuals = family.has_dispersion() && prepared.transform.intercept;
    if let Some(target) = prepared.train.constant_target().filter(|_| family_needs_residuals) {
        return Err(no_residuals(format!("all rows have the target {target}")));
    }
    let most = format!("at most {MAX_COEFFICIENTS} of them: fewer columns or principal components");
    require(p <= MAX_COEFFICIENTS, "inference", format!("{p} coefficients"), &most)?;
    check_agents(agents, how.covariance, p)
}

/// The deviance of an exact fit, from squares of rounding errors, as a share of its value if the residuals were as large as the
/// targets.
const EXACT: f64 = 1e-26;

/// Rejects a fit without residuals if the dispersion is estimated from them.
fn check_residuals(family: ModelFamily, data: &DataSums, sums: &ModelSums) -> Result<()> {
    let size = if family == ModelFamily::Gaussian { data.squares } else { sums.weights };
    let is_beyond = |sum: f64| !sum.is_finite() || sum < f64::MIN_POSITIVE && data.nonzero > 0.0;
    if family.has_dispersion() && (is_beyond(size) || !sums.fit.deviance.is_finite() || !sums.fit.pearson.is_finite()) {
        let what = "targets whose squares are beyond the range of numbers, so that there is no dispersion";
        return Err(Error::data("inference", what, "targets in other units, or no inference").coded(ErrorCode::NoEstimate));
    }
    if !family.has_dispersion() || sums.fit.deviance > EXACT * size {
        return Ok(());
    }
    Err(no_residuals("the model fits all rows exactly".into()))
}

/// The error for a fit without residuals.
fn no_residuals(why: String) -> Error {
    let what = format!("{why}: nothing is left to estimate standard errors from");
    Error::new("inference", what, "targets with noise, or no inference").coded(ErrorCode::NoEstimate)
}

/// Rejects a clustered covariance whose rank is below the number of coefficients. The scores of G agents sum to 0, so their products
/// have at most the rank G - 1, and some combinations of coefficients would have no variance.
fn check_agents(agents: usize, kind: CovarianceKind, p: usize) -> Result<()> {
    if kind != CovarianceKind::Clustered || agents > p {
        return Ok(());
    }
    let what = match agents {
        1 => "clustered, and one agent".to_string(),
        _ => format!(
            "clustered by {agents} agents, and {p} coefficients: this covariance has at most the rank {}, and no standard errors",
            agents - 1
        ),
    };
    let help = format!("more agents than coefficients (here {} or more), fewer columns, or another covariance", p + 1);
    Err(Error::new("covariance", what, help))
}

/// phi.
fn dispersion(family: ModelFamily, sums: &ModelSums, p: f64) -> f64 {
    if family.has_dispersion() { sums.fit.pearson / (sums.rows - p) } else { 1.0 }
}

/// The covariance of theta.
fn covariance(family: ModelFamily, sums: &ModelSums, kind: CovarianceKind, p: usize) -> Result<Mat<f64>> {
    let divides = kind == CovarianceKind::Hc1 || kind == CovarianceKind::Model && family.has_dispersion();
    if divides && sums.rows <= p as f64 {
        let what = format!("{} rows and {p} coefficients leave nothing to estimate the dispersion from", sums.rows);
        return Err(Error::new("inference", what, "more rows than coefficients, or fewer columns").coded(ErrorCode::NoEstimate));
    }
    let singular = || {
        let what = "the information is singular to 1e-12 of its scale";
        Error::new("inference", what, "fewer columns, or another scale").coded(ErrorCode::NoEstimate)
    };
    if kind == CovarianceKind::Model {
        let phi = dispersion(family, sums, p as f64);
        return Ok(Scaled::of(&sums.expected).ok_or_else(singular)?.inverse() * faer::Scale(phi));
    }
    let bread = Scaled::of(&sums.observed).ok_or_else(singular)?.inverse();
    let (meat, factor) = match kind {
        CovarianceKind::Clustered => (&sums.clustered, sums.agents / (sums.agents - 1.0)),
        CovarianceKind::Hc1 => (&sums.outer, sums.rows / (sums.rows - p as f64)),
        _ => (&sums.outer, 1.0),
    };
    Ok(&bread * meat * &bread * faer::Scale(factor))
}

/// The linear map from a block of d weights of the features, in their units, to the coefficients of the columns, the intercept first.
/// The coefficients have their own units, the second result, because squares of coefficients may exceed the range of doubles.
fn column_map(prepared: &Prepared, units: &ColumnUnits, d: usize) -> (Mat<f64>, Vec<f64>) {
    let columns = (0..d).map(|j| {
        let unit: Vec<f64> = (0..d).map(|i| f64::from(i == j)).collect();
        let (weights, constant) = prepared.transform.on_columns(&unit);
        let all = has_constant(prepared).then_some(constant).into_iter().chain(weights);
        all.map(|x| x * units.factor(j)).collect::<Vec<f64>>()
    });
    let columns: Vec<Vec<f64>> = columns.collect();
    let width = columns.first().map_or(0, Vec::len);
    let own = |i: usize| columns.iter().map(|column| column[i].abs()).fold(0.0, f64::max);
    let own: Vec<f64> = (0..width).map(own).map(|x| if x > 0.0 { x } else { 1.0 }).collect();
    (Mat::from_fn(width, d, |i, j| columns[j][i] / own[i]), own)
}

/// Whether the model of the columns has a constant.
fn has_constant(prepared: &Prepared) -> bool {
    let transform = &prepared.transform;
    transform.intercept || !transform.means.is_empty() || transform.components.is_some()
}

impl Inference {
    /// Coefficients of the columns and their covariance, from the features' coefficients.
    ///
    /// # Errors
    /// When a number exceeds the range of doubles.
    fn name(&mut self, prepared: &Prepared, units: &ColumnUnits, covariance: &Mat<f64>) -> Result<()> {
        let (transform, q) = (&prepared.transform, self.family.outputs());
        let d = self.theta.len() / q;
        let has_constant = has_constant(prepared);
        let width = transform.width + usize::from(has_constant);
        let (map, own) = column_map(prepared, units, d);
        let quantile = normal_quantile(self.level);
        let names: Vec<String> = has_constant
            .then(|| INTERCEPT.to_string())
            .into_iter()
            .chain(transform.columns.iter().take(transform.width).map(|name| name.into_owned()))
            .collect();
        // A column beyond the range of doubles moves the intercept beyond it too.
        let mut beyond: Option<String> = None;
        let all = width * q;
        self.covariances = vec![0.0; all * all];
        for k in 0..q {
            let mut variances = Vec::new();
            for l in 0..q {
                let block = &map * covariance.submatrix(k * d, l * d, d, d) * map.transpose();
                for i in 0..width {
                    (0..width).for_each(|j| self.covariances[(k * width + i) * all + l * width + j] = block[(i, j)] * own[i] * own[j]);
                }
                if k == l {
                    variances = block.diagonal().column_vector().iter().copied().collect();
                }
            }
            let (weights, constant) = transform.on_columns(&self.theta[k * d..][..d]);
            let estimates = has_constant.then_some(constant).into_iter().chain(weights);
            for (i, (name, estimate)) in names.iter().zip(estimates).enumerate() {
                let se = own[i] * variances[i].max(0.0).sqrt();
                let is_beyond = !estimate.is_finite() || !se.is_finite() || se < f64::MIN_POSITIVE && variances[i] > 0.0;
                if is_beyond && beyond.as_ref().is_none_or(|name| name == INTERCEPT) {
                    beyond = Some(name.clone());
                }
                self.coefficients.push(Coefficient {
                    name: name.clone(),
                    class: prepared.targets.class_of_output(k),
                    estimate,
                    se,
                    z: estimate / se,
                    p: two_sided(estimate / se),
                    low: estimate - quantile * se,
                    high: estimate + quantile * se,
                });
            }
        }
        let Some(name) = beyond else { return Ok(()) };
        let what = format!("the coefficient of `{}` or its standard error is beyond the range of numbers", quoted(name));
        Err(Error::data("inference", what, "this column in other units, or without it: `drop`").coded(ErrorCode::NoEstimate))
    }
}

/// The name of a feature for messages.
fn feature(prepared: &Prepared, i: usize) -> String {
    let transform = &prepared.transform;
    if transform.intercept && i + 1 == prepared.train.rows.columns() {
        return "the intercept".into();
    }
    match &transform.components {
        Some(_) => format!("principal component {}", i + 1),
        None => format!("`{}`", quoted(transform.columns.name(i).unwrap_or_default())),
    }
}

/// The most columns that a message names.
const MAX_NAMED: usize = 12;

/// Names in a sentence.
fn listed(names: &[String]) -> String {
    let shown = names.iter().take(MAX_NAMED).cloned().collect::<Vec<_>>().join(", ");
    if names.len() > MAX_NAMED { format!("{shown}, .. ({} in all)", names.len()) } else { shown }
}

/// The smallest and largest number of a feature.
fn extremes(part: &LabelledRows, column: usize) -> (f64, f64) {
    let number = |j: usize| part.rows.row(j).find(|(i, _)| *i == column).map_or(0.0, |(_, x)| x);
    (0..part.rows.len()).map(number).fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), x| (least.min(x), most.max(x)))
}

/// The message that columns are combinations of others, with advice.
fn no_single_value(prepared: &Prepared, rows: usize, columns: &[(usize, Vec<usize>)]) -> (String, &'static str) {
    let name = |i: &usize| feature(prepared, *i);
    let is_intercept = |i: usize| prepared.transform.intercept && i + 1 == prepared.train.rows.columns();
    let ends = |column: usize, others: &[usize]| match others {
        // Without rows the numbers of a column are unknown.
        [only] if is_intercept(*only) && !prepared.train.rows.is_empty() => Some(extremes(&prepared.train, column)),
        _ => None,
    };
    let sentence = |(column, others): &(usize, Vec<usize>)| match (&others[..], ends(*column, others)) {
        ([], _) => format!("{} is 0 in all rows", name(column)),
        (_, Some((least, most))) if least == most => format!("{} is constant", name(column)),
        (_, Some((least, most))) => format!("{} varies by less than 1e-6 of its size, from {least:e} to {most:e}", name(column)),
        (others, None) => format!("{} is a combination of {}", name(column), listed(&others.iter().map(name).collect::<Vec<_>>())),
    };
    let all: Vec<String> = columns.iter().map(sentence).collect();
    let shown = all.iter().take(MAX_NAMED).cloned().collect::<Vec<_>>().join("; ");
    let more = all.len().checked_sub(MAX_NAMED).filter(|n| *n > 0).map_or(String::new(), |n| format!("; and {n} more"));
    let varies = columns.iter().filter_map(|(column, others)| ends(*column, others)).any(|(least, most)| least < most);
    let help = if varies {
        "`standardise`, which subtracts the means of columns; or `drop`, which names those to leave out"
    } else {
        "columns that are not combinations of others: `drop` names those to leave out"
    };
    let coefficients = prepared.train.rows.columns();
    let few = if rows < coefficients { format!("{rows} rows for {coefficients} coefficients: ") } else { String::new() };
    (format!("{few}collinear columns, whose coefficients have no single value: {shown}{more}"), help)
}

/// The error for a missing estimate, with the names of columns.
fn no_estimate(prepared: &Prepared, data: &DataSums, why: &NoEstimate) -> Error {
    let name = |i: &usize| feature(prepared, *i);
    let (what, help) = match why {
        NoEstimate::Collinear(columns) => no_single_value(prepared, data.rows as usize, columns),
        NoEstimate::Separated(columns) => {
            let intercept = prepared.transform.intercept.then(|| prepared.train.rows.columns() - 1);
            let others: Vec<usize> = columns.iter().copied().filter(|i| Some(*i) != intercept).collect();
            let columns = if others.is_empty() { columns } else { &others };
            let names = listed(&columns.iter().map(name).collect::<Vec<_>>());
            if data.nonzero == 0.0 && others.is_empty() {
                let what = "no estimate of greatest likelihood: all rows have the target 0, and the intercept falls without bound";
                return Error::new("inference", what, "targets that are not all 0").coded(ErrorCode::NoEstimate);
            }
            let what = format!("no estimate of greatest likelihood: targets are separated by {names}, and coefficients grow without bound");
            (what, "no such column, more rows, or a fit with a positive `ridge` and without `inference`")
        }
        NoEstimate::NotFound(left) => {
            let what = format!("the estimate of greatest likelihood was not found: {left:.1e} of the score is left");
            (what, "columns of a moderate scale: `standardise`")
        }
    };
    Error::new("inference", what, help).coded(ErrorCode::NoEstimate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_tables() {
        for (level, expected) in [(0.95, 1.959_963_984_540_054), (0.5, 0.674_489_750_196_081_7), (0.999, 3.290_526_731_491_896)] {
            assert!((normal_quantile(level) - expected).abs() < 1e-12, "{level}");
            assert!((two_sided(expected) - (1.0 - level)).abs() < 1e-14);
        }
    }
}
