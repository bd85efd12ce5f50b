//! Coefficients with standard errors, as a table and in `summary.json`.

use fedsa::message::{HEADER_BYTES, PART_HEADER_BYTES};
use fedsa::note::{Note, NoteCode};
use fedsa_evaluate::inference::{Coefficient, CovarianceKind, FEW_AGENTS, Inference, InferenceSettings};
use fedsa_problems::rows::glm::family::ModelFamily;
use fedsa_problems::rows::preparation::Prepared;
use serde_json::{Value as Json, json};

use crate::numbers::{digits, number, percent};
use crate::tables::{Shown, SummaryCell, SummaryColumn, SummaryTable};

/// Counts with more than this multiple of the variance of Poisson's family are called overdispersed.
const OVERDISPERSED: f64 = 1.5;

/// Below this number of degrees of freedom, quantiles of the t distribution at 95% exceed those of the normal distribution by more than 4%.
const FEW_DEGREES: usize = 30;

/// The requested inference, in words.
pub(super) fn asked(how: Option<InferenceSettings>) -> String {
    how.map_or("no inference".into(), |how| format!("inference at the level {} by the covariance {}", how.level, how.covariance.name()))
}

/// The bits of inference from all agents to the server, and back, as messages of one part: its numbers up, and theta down in every
/// exchange.
fn bits(inference: &Inference) -> [u64; 2] {
    let Inference { agents, exchanges, numbers_up, theta, .. } = inference;
    [*numbers_up, exchanges * theta.len()]
        .map(|numbers| (agents * 8 * (exchanges * (HEADER_BYTES + PART_HEADER_BYTES) + 8 * numbers)) as u64)
}

/// `inference` of `summary.json`.
pub(crate) fn json(inference: &Inference) -> Json {
    let coefficient = |c: &Coefficient| {
        let mut one = json!({
            "name": c.name,
            "estimate": c.estimate,
            "se": c.se,
            "z": c.z,
            "p": c.p,
            "low": c.low,
            "high": c.high,
        });
        if let Some(class) = &c.class {
            one["class"] = json!(class);
        }
        one
    };
    json!({
        "family": inference.family.name(),
        "covariance": inference.covariance.name(),
        "level": inference.level,
        "n": inference.rows,
        "parameters": inference.parameters,
        "agents": inference.agents,
        "deviance": inference.deviance,
        "log_likelihood": inference.log_likelihood,
        "aic": inference.aic,
        "aic_counts_dispersion": inference.aic_counts_dispersion,
        "pearson": inference.pearson,
        "dispersion": inference.dispersion,
        "reference": inference.reference,
        "exchanges": inference.exchanges,
        "numbers_up": inference.numbers_up,
        "bits_up": bits(inference)[0],
        "bits": bits(inference).iter().sum::<u64>(),
        "coefficients": inference.coefficients.iter().map(coefficient).collect::<Vec<_>>(),
    })
}

/// The table of coefficients, with the quality of the model below.
pub(super) fn table(inference: &Inference) -> SummaryTable {
    let has_classes = inference.reference.is_some();
    let class = has_classes.then(|| SummaryColumn::left("class", Shown::Short));
    let columns = class.into_iter().chain([
        SummaryColumn::left("coefficient", Shown::Short),
        SummaryColumn::right("estimate", Shown::Digits(6)),
        SummaryColumn::right("se", Shown::Digits(4)),
        SummaryColumn::right("z", Shown::Decimals(2)),
        SummaryColumn::right("p", Shown::Probability),
        SummaryColumn::right("low", Shown::Digits(6)),
        SummaryColumn::right("high", Shown::Digits(6)),
    ]);
    let title = format!("coefficients of {}, with intervals at {}", inference.family.name(), percent(inference.level));
    let mut table = SummaryTable::new(title, columns.collect());
    for c in &inference.coefficients {
        let class = c.class.as_deref().map(SummaryCell::from);
        let cells = [c.name.as_str().into(), c.estimate.into(), c.se.into(), c.z.into(), c.p.into(), c.low.into(), c.high.into()];
        table.rows.push(class.into_iter().chain(cells).collect());
    }
    table.notes = notes(inference);
    table
}

/// Notes for readers of the errors.
pub(crate) fn odd(inference: &Inference, prepared: &Prepared) -> Vec<Note> {
    let Inference { family, covariance, rows, parameters, agents, .. } = inference;
    let mut notes = Vec::new();
    let per_row = inference.pearson / (*rows as f64 - *parameters as f64);
    if family.has_dispersion() && *rows < *parameters + FEW_DEGREES {
        let more = "intervals and p-values of the t distribution, as R's lm and glm have them, are wider and larger";
        let what = format!("n - p is {}: {more}", rows.saturating_sub(*parameters));
        notes.push(Note::new(NoteCode::InferenceFewDegrees, what));
    }
    if *covariance == CovarianceKind::Model && *family == ModelFamily::Poisson && per_row > OVERDISPERSED {
        let more = "errors of the covariance model are too small: take the sandwich, or a negative-binomial model";
        let what = format!("counts have {} times the variance of the family: {more}", number(per_row));
        notes.push(Note::new(NoteCode::InferenceOverdispersed, what));
    }
    if prepared.transform.components.is_some() {
        let what = "standard errors and p-values take the principal components of `pca` as known, and are too small";
        notes.push(Note::new(NoteCode::InferenceAfterPca, what));
    }
    if *covariance == CovarianceKind::Clustered && *agents < FEW_AGENTS {
        let what = format!("{agents} agents: clustered errors of fewer than {FEW_AGENTS} agents are too small more often than not");
        notes.push(Note::new(NoteCode::InferenceFewAgents, what));
    }
    notes
}

/// Explanations of the table.
fn notes(inference: &Inference) -> Vec<String> {
    let Inference { family, covariance, rows, parameters, .. } = inference;
    let mut notes = vec![format!(
        "{} model, n = {rows}, p = {parameters}, covariance {}, intervals of the normal distribution at {}",
        family.name(),
        covariance.name(),
        percent(inference.level)
    )];
    if let Some(reference) = &inference.reference {
        notes.push(format!("each class against the reference class {reference}"));
    }
    let counted = match family {
        ModelFamily::Gaussian => "as R: the dispersion is a parameter; statsmodels does not count it, its AIC is 2 less",
        _ if inference.aic_counts_dispersion => "as R: the dispersion is a parameter, which statsmodels does not count",
        _ => "as R and statsmodels",
    };
    let log_likelihood = digits(inference.log_likelihood, 8);
    notes.push(format!(
        "deviance {}, log-likelihood {log_likelihood}, AIC {} ({counted})",
        digits(inference.deviance, 8),
        digits(inference.aic, 8)
    ));
    if *family == ModelFamily::Gamma {
        notes.push("the log-likelihood is at the dispersion deviance / (sum of weights), as R has it; statsmodels takes Pearson's".into());
    }
    if family.has_dispersion() {
        notes.push(format!("dispersion {} (Pearson's statistic over n - p)", digits(inference.dispersion, 6)));
    }
    let [up, down] = bits(inference).map(|bits| number(bits as f64 / 1e6));
    notes.push(format!(
        "{} exchanges after the fit, {} numbers from each agent: sums over its rows; of all agents {up} Mbit up and {down} Mbit down, which the \
         table of what methods spent does not count",
        inference.exchanges, inference.numbers_up
    ));
    notes
}
