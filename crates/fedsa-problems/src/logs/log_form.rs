//! The layout of log files, as callers specify it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use crate::logs::left_out::{LeftOutRows, RowPlace};
use crate::logs::source::Inputs;
use fedsa::error::{Error, Result, quoted};

/// Treatment of unreadable rows: a field is not a number, or a line has too few fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum BadRows {
    /// Refuse the log.
    #[default]
    Refuse,
    /// Leave them out and count them. Traces and returns end there.
    Skip,
}

/// The layout of log files.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct LogForm {
    /// The state columns.
    pub inputs: Inputs,
    /// Column names in the files, by the names in logs: `reward = "r"`. One `*` on both sides stands for the same text: `s_* = "obs_*"`.
    pub columns: BTreeMap<String, String>,
    /// The column that names the agent of each row, in files with several agents.
    pub agent_column: Option<String>,
    /// Treatment of unreadable rows.
    pub bad_rows: BadRows,
    /// The number of actions K of a log whose column `action` is read, with `behaviour` if there is one; columns of an evaluated policy and
    /// importance ratios are then not read. Without it, actions are read only together with an evaluated policy.
    pub actions: Option<usize>,
    /// Whether to keep rows that automatic resets wrote ([`crate::logs::autoreset`]).
    pub keep_autoreset_rows: bool,
}

fedsa::settings::setters! { LogForm {
    with_columns(columns: BTreeMap<String, String>) = columns;
    with_agent_column(agent_column: Option<String>) = agent_column;
    with_bad_rows(bad_rows: BadRows) = bad_rows;
    with_actions(actions: Option<usize>) = actions;
    with_keep_autoreset_rows(keep_autoreset_rows: bool) = keep_autoreset_rows;
} }

impl From<Inputs> for LogForm {
    /// Columns with their default names, one file per agent.
    fn from(inputs: Inputs) -> Self {
        Self { inputs, ..Self::default() }
    }
}

/// The names of the columns of a log, other than the state.
pub const COLUMNS: [&str; 9] = ["reward", "done", "truncated", "episode", "env", "ratio", "target", "behaviour", "action"];

impl LogForm {
    /// Whether a log has a column of this name, or, with `*`, columns of this form.
    fn is_known(name: &str) -> bool {
        let prefixes = [Inputs::States, Inputs::Features].map(Inputs::prefixes);
        COLUMNS.contains(&name) || prefixes.iter().any(|(state, next)| name.starts_with(state) || name.starts_with(next))
    }

    /// Checks column names before a file is read.
    ///
    /// # Errors
    /// When a name is unknown, a `*` is on one side only, or a column is named twice (key `columns`).
    pub fn check(&self) -> Result<()> {
        let error = |what: String, help: &str| Err(Error::new("columns", what, help));
        for (name, field) in &self.columns {
            if !Self::is_known(name) {
                let help =
                    format!("NAME=FIELD with a name of a log: s_*, next_*, {}; the agent has a setting of its own", COLUMNS.join(", "));
                return error(format!("a log has no column `{}`", quoted(name)), &help);
            }
            if field.is_empty() {
                return error(format!("`{}` has no field", quoted(name)), "the name of a column of the files");
            }
            if [name, field].map(|text| text.matches('*').count()) != [0, 0]
                && [name, field].map(|text| text.matches('*').count()) != [1, 1]
            {
                let what = format!("{}={}", quoted(name), quoted(field));
                return error(what, "one * on both sides, such as s_*=obs_*, or none");
            }
            if let Some((other, _)) = self.columns.iter().find(|(other, field_of)| *other < name && *field_of == field) {
                let what = format!("`{}` is both `{}` and `{}`", quoted(field), quoted(other), quoted(name));
                return error(what, "each column of the files once");
            }
        }
        match self.agent_column.as_deref() {
            Some("") => Err(Error::new("agent_column", "no name", "the name of a column of the files")),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_no_log_has_are_refused() {
        let check = |pairs: &[(&str, &str)]| {
            let columns = pairs.iter().map(|(name, field)| ((*name).to_string(), (*field).to_string())).collect();
            LogForm::default().with_columns(columns).check().map_err(|e| e.to_string())
        };
        assert_eq!(check(&[("s_0", "x"), ("next_0", "y"), ("reward", "r"), ("done", "terminal"), ("phi_*", "f*")]), Ok(()));
        for (pairs, message) in [
            (&[("rewards", "r")][..], "columns: a log has no column `rewards`"),
            (&[("reward", "")], "columns: `reward` has no field"),
            (&[("s_*", "x")], "columns: s_*=x"),
            (&[("s_**", "x**")], "columns: s_**=x**"),
            (&[("s_0", "x"), ("s_1", "x")], "columns: `x` is both `s_0` and `s_1`"),
        ] {
            assert_eq!(check(pairs), Err(message.into()));
        }
        assert!(LogForm::default().with_agent_column(Some(String::new())).check().is_err());
    }
}
