//! Disclosure control: what an agent checks, by its own file, before anything leaves it.
//!
//! The rules follow DataSHIELD's (`nfilter.tab`, `nfilter.glm`, `nfilter.levels`). A refusal names the rule and the column, and contains no
//! value: the server reads it whole ([`fedsa::error::for_others`]).

mod counts;

use std::fmt::Display;
use std::path::Path;

use fedsa::error::{Error, ErrorCode, Result, quoted, require, shown};
use fedsa_data::regular;
use fedsa_problems::logs::log_summary::EpisodeSummary;
use fedsa_problems::logs::replay::Logs;
use fedsa_problems::logs::survey::Surveyed;
use fedsa_problems::rows::dataset::Dataset;
use fedsa_problems::rows::preparation::Preparation;
use fedsa_problems::rows::preparation::levels::RowLevels;
use fedsa_problems::rows::preparation::targets::TargetRule;
use serde::Deserialize;
use toml::{Table, Value};

use crate::config;

/// The most bytes of a file of rules.
const LONGEST: u64 = 1 << 20;

/// The rules of an agent. The default is the profile `datashield`.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct DisclosureRules {
    /// The least number of rows of an agent; 0 for no rule.
    pub least_rows: u64,
    /// The least number of episodes of an agent with logs; 0 for no rule.
    pub least_episodes: u64,
    /// The least number of rows with a category or class, and outside of the commonest value of a column; 0 for no rule.
    pub least_count: u64,
    /// The most components of the model for each row; infinite for no rule.
    pub parameters: f64,
    /// The rows that count for `parameters`.
    pub scope: ParameterScope,
    /// The most categories or classes of a column.
    pub levels: u64,
    /// The most categories or classes of a column for each row; infinite for no rule.
    pub level_density: f64,
    /// The least number of agents of a secure sum, and of a difference of two; 0 for no rule.
    pub least_agents: u32,
    /// Whether ranges and categories may come from the agent's data.
    pub undeclared: Undeclared,
}

/// The rows by which the number of components is limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ParameterScope {
    /// The agent's own rows.
    Agent,
    /// All agents' rows, as the agent's weight tells them.
    Sum,
}

/// What happens to ranges and categories that the settings do not declare.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Undeclared {
    /// The agent takes no part.
    Refuse,
    /// They come from the data of all agents.
    Allow,
}

/// The rules that a profile sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Profile {
    #[default]
    Datashield,
    None,
}

/// A file of rules.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Keys {
    profile: Profile,
    least_rows: Option<u64>,
    least_episodes: Option<u64>,
    least_count: Option<u64>,
    parameters: Option<f64>,
    scope: Option<ParameterScope>,
    levels: Option<u64>,
    level_density: Option<f64>,
    least_agents: Option<u32>,
    undeclared: Option<Undeclared>,
}

impl Default for DisclosureRules {
    fn default() -> Self {
        Self {
            least_rows: 3,
            least_episodes: 10,
            least_count: 3,
            parameters: 0.33,
            scope: ParameterScope::Agent,
            levels: 40,
            level_density: 0.33,
            least_agents: 3,
            undeclared: Undeclared::Refuse,
        }
    }
}

/// Rules from files.
impl DisclosureRules {
    /// No rule at all: an agent's own decision.
    pub fn none() -> Self {
        Self {
            least_rows: 0,
            least_episodes: 0,
            least_count: 0,
            parameters: f64::INFINITY,
            scope: ParameterScope::Agent,
            levels: u64::MAX,
            level_density: f64::INFINITY,
            least_agents: 0,
            undeclared: Undeclared::Allow,
        }
    }

    /// The rules of a TOML file; those of `datashield` without a file.
    ///
    /// # Errors
    /// When the file cannot be read, or as [`DisclosureRules::parse`]; names the file.
    pub fn read(path: Option<&Path>) -> Result<Self> {
        let Some(path) = path else { return Ok(Self::default()) };
        let unreadable = |e: &dyn Display| {
            let what = format!("{} cannot be read: {e}", shown(path.display()));
            Error::data("rules", what, "a TOML file of disclosure rules").coded(ErrorCode::Unreadable)
        };
        let bytes = regular::read(path, LONGEST).map_err(|e| unreadable(&e))?;
        let text = String::from_utf8(bytes).map_err(|e| unreadable(&e))?;
        Self::parse(&text).map_err(|e| e.inside("rules").prefixed(shown(path.display())))
    }

    /// The rules of a text: the profile, and single values that replace its own.
    ///
    /// # Errors
    /// When the text is not TOML, a key is unknown, or a value is out of range.
    pub fn parse(text: &str) -> Result<Self> {
        let table: Table = text.parse().map_err(|e: toml::de::Error| {
            Error::new("", format!("not TOML: {}", shown(e.message())), "lines such as: least_rows = 3").coded(ErrorCode::NotToml)
        })?;
        let keys: Keys = config::read(Value::Table(table))?;
        for (key, value) in [("parameters", keys.parameters), ("level_density", keys.level_density)] {
            let Some(share) = value else { continue };
            require(share > 0.0 && share.is_finite(), key, share, "a positive number, such as 0.33")?;
        }
        let base = if keys.profile == Profile::None { Self::none() } else { Self::default() };
        Ok(Self {
            least_rows: keys.least_rows.unwrap_or(base.least_rows),
            least_episodes: keys.least_episodes.unwrap_or(base.least_episodes),
            least_count: keys.least_count.unwrap_or(base.least_count),
            parameters: keys.parameters.unwrap_or(base.parameters),
            scope: keys.scope.unwrap_or(base.scope),
            levels: keys.levels.unwrap_or(base.levels),
            level_density: keys.level_density.unwrap_or(base.level_density),
            least_agents: keys.least_agents.unwrap_or(base.least_agents),
            undeclared: keys.undeclared.unwrap_or(base.undeclared),
        })
    }
}

/// The error of a rule; `key` is the key of the agent's file.
fn refusal(code: ErrorCode, key: &str, what: impl Into<String>, instead: &str) -> Error {
    Error::data(key, what, format!("{instead}; or another `{key}` in the rules of this agent")).coded(code)
}

fn column(name: &str) -> String {
    format!("the column `{}`", quoted(name))
}

/// Checks of an agent's data before its application.
impl DisclosureRules {
    /// Checks rows with these levels. `fitted` are the fitted rows among those of all sets; the others are held out, or not used.
    ///
    /// # Errors
    /// The refusal of the first rule that they break.
    pub(super) fn check_rows(&self, sets: &[Dataset], levels: &RowLevels, how: &Preparation, fitted: &[usize]) -> Result<()> {
        let (all, n) = (sets.iter().map(|set| set.rows.len()).sum::<usize>(), fitted.len() as u64);
        self.check_size(n, self.least_rows, "least_rows", "rows")?;
        if how.holdout > 0.0 {
            self.check_size(all as u64 - n, self.least_rows, "least_rows", "held-out rows")?;
        }
        self.check_declared_levels(levels, how)?;
        let rows = counts::Fitted::new(sets, fitted);
        if let Some(name) = how.special.row_weights.as_ref().filter(|name| rows.effective(name) < self.least_rows as f64) {
            let what = format!("with the weights in {} all rows count like fewer than {}: nothing was sent", column(name), self.least_rows);
            return Err(refusal(ErrorCode::DisclosureRows, "least_rows", what, "weights of which no few are far above all others"));
        }
        for one in &levels.categories {
            self.check_levels(&column(&one.column), rows.of_category(&one.column).values().copied(), n)?;
        }
        let target = how.wanted.target.as_deref().map_or_else(|| "the target".to_string(), column);
        match &how.targets {
            TargetRule::Numbers { .. } => {
                let mut counted = counts::Commonest::new(1, self.least_count);
                rows.numbers(&mut |y| counted.see([(0, y)]));
                self.check_counts(&counted, |_| target.clone())?;
            }
            _ => self.check_levels(&target, rows.of_labels().values().copied(), n)?,
        }
        let is_category = |j: usize| sets[0].columns.name(j).is_some_and(|name| levels.categories.iter().any(|one| one.column == name));
        let width = sets.iter().map(|set| set.rows.columns()).max().unwrap_or(0);
        let mut counted = counts::Commonest::new(width, self.least_count);
        rows.each(&mut |set, i| counted.see(set.rows.row(i)));
        counted.ignore(is_category);
        self.check_counts(&counted, |j| column(&sets.iter().find_map(|set| set.columns.name(j)).unwrap_or_default()))
    }

    /// Checks logs of one agent. Reads them twice more.
    ///
    /// # Errors
    /// The refusal of the first rule that they break; when a log cannot be read.
    pub(super) fn check_logs(&self, surveyed: &Surveyed, logs: &Logs) -> Result<()> {
        self.check_size(surveyed.transitions() as u64, self.least_rows, "least_rows", "rows")?;
        let names = surveyed.columns();
        let undeclared = undeclared_ranges(names, logs)?;
        if let (Undeclared::Refuse, Some(name)) = (self.undeclared, undeclared.first()) {
            let what = format!("the features need the range of {}, which would come from the data", column(name));
            return Err(refusal(ErrorCode::DisclosureUndeclared, "undeclared", what, "`ranges` of this column in [problem]"));
        }
        if self.least_episodes > 0 {
            let episodes: usize = surveyed.episodes(1.0)?.iter().map(EpisodeSummary::episodes).sum();
            self.check_size(episodes as u64, self.least_episodes, "least_episodes", "episodes")?;
        }
        let mut counted = counts::Commonest::new(names.len() + 2, self.least_count);
        for source in surveyed.sources.iter().filter(|_| self.least_count > 0) {
            source.read(&mut |log| {
                for i in 0..log.len() {
                    let further = [log.rewards[i], f64::from(log.done[i])];
                    counted.see(log.state(i).iter().copied().chain(further).enumerate());
                }
                Ok(())
            })?;
        }
        self.check_counts(&counted, |j| match j.checked_sub(names.len()) {
            None => column(&names[j]),
            Some(0) => "the rewards".into(),
            Some(_) => "the terminal states".into(),
        })
    }

    /// Checks the number of components of the model for an agent with this many rows and this weight.
    ///
    /// # Errors
    /// The refusal.
    pub(super) fn check_parameters(&self, dim: usize, rows: u64, weight: Option<f64>) -> Result<()> {
        let (rows, whose) = match (self.scope, weight) {
            (ParameterScope::Agent, _) => (rows as f64, "rows of this agent"),
            (ParameterScope::Sum, Some(weight)) => ((rows as f64 / weight).round(), "rows of all agents"),
            (ParameterScope::Sum, None) => return Ok(()),
        };
        if dim as f64 <= self.parameters * rows {
            return Ok(());
        }
        let what = format!("a model of {dim} weights for {rows} {whose}: at most {}", (self.parameters * rows).floor());
        Err(refusal(ErrorCode::DisclosureParameters, "parameters", what, "a smaller model, or agents with more rows"))
    }

    fn check_size(&self, found: u64, least: u64, key: &str, of: &str) -> Result<()> {
        if found >= least {
            return Ok(());
        }
        let what = format!("fewer than {least} {of}: nothing was sent");
        Err(refusal(ErrorCode::DisclosureRows, key, what, &format!("an agent with more {of}")))
    }

    /// Refuses categories, classes and scales that would come from the rows.
    fn check_declared_levels(&self, levels: &RowLevels, how: &Preparation) -> Result<()> {
        if self.undeclared == Undeclared::Allow {
            return Ok(());
        }
        let refused = |what: String, instead: &str| Err(refusal(ErrorCode::DisclosureUndeclared, "undeclared", what, instead));
        if let Some(one) = levels.categories.iter().find(|one| !one.are_declared) {
            let what = format!("the categories of {} would come from the data", column(&one.column));
            return refused(what, "`levels` of this column in [problem], or `drop`");
        }
        if levels.classes.is_some() {
            return refused("the classes would come from the data".into(), "`classes` in [problem]");
        }
        if matches!(how.targets, TargetRule::Numbers { range: Some(_) }) {
            return refused("`target_range` takes the range of the targets from the data".into(), "no `target_range`");
        }
        Ok(())
    }

    /// Refuses too many levels, and levels with few rows. Declared levels may have no row.
    fn check_levels(&self, whose: &str, counts: impl Iterator<Item = u64> + Clone, rows: u64) -> Result<()> {
        let present = counts.clone().filter(|count| *count > 0).count() as u64;
        if present > self.levels || present as f64 > self.level_density * rows as f64 {
            let most = (self.level_density * rows as f64).floor().min(self.levels as f64);
            let what = format!("{whose} has more than {most} categories");
            let key = if present > self.levels { "levels" } else { "level_density" };
            return Err(refusal(ErrorCode::DisclosureLevels, key, what, "merge categories, or leave the column out"));
        }
        let mut few = counts.filter(|count| (1..self.least_count).contains(count));
        few.next().map_or(Ok(()), |_| {
            let what = format!("{whose} has a category with fewer than {} rows", self.least_count);
            Err(refusal(ErrorCode::DisclosureCount, "least_count", what, "merge categories, or leave the column out"))
        })
    }

    /// Refuses columns in which few rows differ from all others.
    fn check_counts(&self, counted: &counts::Commonest, name: impl Fn(usize) -> String) -> Result<()> {
        let Some(j) = counted.few() else { return Ok(()) };
        let what = format!("in {} fewer than {} rows differ from all others", name(j), self.least_count);
        Err(refusal(ErrorCode::DisclosureCount, "least_count", what, "leave the column out, or an agent with more rows"))
    }
}

/// The columns whose ranges features need, and the settings do not declare.
///
/// # Errors
/// When the features do not fit the columns.
pub(super) fn undeclared_ranges(columns: &[String], logs: &Logs) -> Result<Vec<String>> {
    let needs = logs.features.needs(columns).map_err(|e| e.inside("problem"))?;
    let open = columns.iter().zip(needs).filter(|(name, needs)| needs.range && !logs.ranges.contains_key(*name));
    Ok(open.map(|(name, _)| name.clone()).collect())
}
