//! What `fedsa evaluate --holdout` says: whether the federated weights are better than an agent's own.

use fedsa::problem::holdout::Errors;
use fedsa_experiment::evaluate::comparison::{ERRORS, FEDERATED, HoldoutComparison, OWN};
use fedsa_experiment::numbers::number;

use super::count;

/// The comparison as a table.
pub fn lines(compared: &HoldoutComparison) -> Vec<String> {
    let (cut, transitions) = (compared.sum(|judged| judged.transitions_cut), compared.sum(|judged| judged.transitions));
    let mut lines =
        vec![format!("held out: {}, {}", count(compared.sum(|judged| judged.episodes), "episode"), count(transitions, "transition"))];
    if cut > 0 {
        lines.push(format!(
            "  {} of {} that did not terminate have no returns, and count in the projected Bellman error only",
            count(cut, "transition"),
            count(compared.sum(|judged| judged.episodes_cut), "episode")
        ));
    }
    if compared.is_weighted {
        lines.push("  returns and Bellman errors are weighted by the importance ratios".into());
    }
    if compared.has_traces {
        lines.push("  the projected Bellman error is that of one step; weights of TD(lambda) do not make it smallest".into());
    }
    for (_, title, pick) in ERRORS {
        let all = compared.all(pick);
        if all[FEDERATED].rms().is_none() {
            continue;
        }
        let heads = ["", "federated", "own data only", "all data pooled", "own - federated", "does federation help?"];
        let mut rows: Vec<Vec<String>> = vec![heads.map(String::from).into()];
        rows.extend(compared.agents.iter().map(|(name, judged)| row(name, pick(judged))));
        rows.push(row("all agents", &all));
        lines.push(format!("{title}, root mean square (standard error):"));
        let widths: Vec<usize> = (0..heads.len()).map(|i| rows.iter().map(|row| row[i].chars().count()).max().unwrap_or(0)).collect();
        lines.extend(rows.iter().map(|row| {
            let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
            format!("  {}", cells.collect::<Vec<_>>().join("  ")).trim_end().to_string()
        }));
    }
    lines
}

/// A row of the table.
fn row(name: &str, errors: &[Errors]) -> Vec<String> {
    let with_error = |x: Option<f64>, se: Option<f64>| match (x, se) {
        (Some(x), Some(se)) => format!("{} ({})", number(x), number(se)),
        (Some(x), None) => number(x),
        (None, _) => "-".into(),
    };
    let (difference, se) = errors[OWN].minus(&errors[FEDERATED]);
    // Twice the standard error: a difference as large by chance alone is seen once in twenty cases.
    let verdict = match (difference, se) {
        (Some(x), Some(se)) if x > 2.0 * se => "yes",
        (Some(x), Some(se)) if x < -2.0 * se => "no",
        (Some(_), Some(_)) => "not clear",
        _ => "not known",
    };
    let mut cells = vec![name.to_string()];
    cells.extend(errors.iter().map(|errors| with_error(errors.rms(), errors.standard_error())));
    cells.extend([with_error(difference, se), verdict.into()]);
    cells
}
