//! The report of `fedsa evaluate --holdout`: whether federated weights are better than an agent's own.

use fedsa_experiment::evaluate::comparison::HoldoutComparison;

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
    for table in compared.tables() {
        lines.push(format!("{}:", table.title));
        lines.extend(table.lines().into_iter().map(|line| format!("  {line}")));
    }
    lines
}
