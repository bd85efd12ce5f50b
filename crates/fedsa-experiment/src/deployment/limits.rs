//! Limits of federations. The refusals of settings, `fedsa federation limits` and the guide use these texts.

use fedsa::error::Error;

/// A feature that works in one process and not in a federation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limit {
    /// The key of the settings, or the missing result.
    pub setting: &'static str,
    /// The task: `fit`, `evaluate`, or `all`.
    pub task: &'static str,
    /// Why it does not work.
    pub why: &'static str,
    /// The alternative.
    pub instead: &'static str,
}

const fn limit(setting: &'static str, task: &'static str, why: &'static str, instead: &'static str) -> Limit {
    Limit { setting, task, why, instead }
}

/// All limits.
pub const LIMITS: &[Limit] = &[
    limit(
        "standardise",
        "fit",
        "agents tell moments of features that they know: not of LIBSVM columns, nor beside categories or classes that are not declared",
        "`levels` and `classes` in [problem], columns that are scaled before, or no `standardise`",
    ),
    limit("pca", "fit", "principal components need the rows of all agents", "features that are projected before, or no `pca`"),
    limit(
        "target_range",
        "fit",
        "beside categories, or LIBSVM rows, each agent would scale targets by its own rows",
        "targets that are scaled before, and no `target_range`",
    ),
    limit("compare", "fit", "a federation runs one method", "one `method`"),
    limit("against", "evaluate", "a federation evaluates one policy", "a federation for each policy"),
    limit("policy", "evaluate", "agents have no file of the policy", "an evaluation by this policy at each agent"),
    limit("pessimism", "improve", "agents do not know how many rows of all agents are behind an action", "no `pessimism`"),
    limit("agent_column", "evaluate", "the rows of a machine are those of one agent", "a file for each agent, and no `agent_column`"),
    limit("scaling", "evaluate", "this scaling needs the transitions of all agents", "`scaling = \"none\"`"),
    limit("features", "evaluate", "quantiles and standard deviations need the states of all agents", "features without them"),
    limit("holdout", "evaluate", "errors on held-out episodes need the episodes of all agents", "no `holdout`"),
    limit("sweep", "all", "a federation runs one point", "no sweeps and no variants"),
    limit("method", "all", "a federation runs one method", "one method"),
    limit("controls", "all", "the root is not known before a federation", "no initial controls"),
    limit("seeds", "all", "a federation runs one seed", "one seed"),
    limit("output", "all", "agents keep one copy of theta", "another `output`"),
    limit("start", "all", "no end knows this start", "\"zero\", or a list of numbers"),
    limit(
        "stop",
        "all",
        "a target needs a residual that the server can measure: exact messages, and a method that sends gradients, operators or systems",
        "`rounds`, and no target; or a method such as newton, lbfgs, fednl, fedhsa or lstd",
    ),
    limit(
        "values of single agents",
        "evaluate",
        "sums tell the value of all agents together, not the doubly robust one nor the one with ratios before clipping",
        "`fedsa evaluate` at an agent",
    ),
    limit(
        "notes on the data",
        "all",
        "agents tell how many rows they have, not what looks odd in them",
        "`fedsa fit` or `fedsa evaluate` at an agent",
    ),
    limit("counts of computation", "all", "the server does not see what agents compute", "the counts of a run in one process"),
];

/// The error about a setting that a federation cannot have; `key` is the key of the file.
///
/// # Panics
/// When the list lacks it.
pub(crate) fn refusal(key: &str) -> Error {
    let setting = key.rsplit('.').next().unwrap_or(key);
    let setting = setting.split('[').next().unwrap_or(setting);
    let limit = LIMITS.iter().find(|limit| limit.setting == setting).expect("a setting of the list");
    Error::new(key, format!("a federation cannot do this yet: {}", limit.why), limit.instead)
}

/// The list as a Markdown table, for the guide.
pub fn markdown() -> String {
    let rows = LIMITS.iter().map(|one| {
        let name = if one.setting.contains(' ') { one.setting.to_string() } else { format!("`{}`", one.setting) };
        format!("| {name} | {} | {} | {} |\n", one.task, one.why, one.instead)
    });
    format!("| not yet | of | because | instead |\n| --- | --- | --- | --- |\n{}", rows.collect::<String>())
}
