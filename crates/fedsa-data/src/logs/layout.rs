//! The positions of a log's columns in a file, and the meaning of its numbers.

use std::collections::HashSet;

use fedsa::error::{Error, Result, quoted};
use fedsa_problems::logs::log::{Log, LoggedActions};
use fedsa_problems::logs::log_form::{BadRows, LogForm};

use super::header::{ACTION as ACTION_NAMES, DONE, EPISODE, Header, REWARD, TRUNCATED};
use super::ratios::{BEHAVIOURS, PROBABILITIES, RatioColumns};
use crate::find::natural_order;

/// The most bytes of a batch with more than one transition.
const BATCH_BYTES: usize = 2 << 20;

/// The columns of a log.
fn wanted(form: &LogForm) -> String {
    let (state, next) = form.inputs.prefixes();
    let states = format!("the columns `{state}*` and `{next}*` in pairs, `reward`");
    if form.actions.is_some() {
        return format!("{states}, `action` and `done` (or `terminated`); optionally `truncated`, `episode`, `env` and `behaviour`");
    }
    format!(
        "{states} and `done` (or `terminated`); optionally `truncated`, `episode`, `env`, `ratio` or `target` and `behaviour`, and `action` \
         with `target_*` and `target_next_*` in pairs"
    )
}

/// The bytes of a transition with `k` state columns, at most.
pub(super) fn row_bytes(k: usize) -> usize {
    16 * k + 27
}

/// The positions of the columns that describe actions.
#[derive(Debug, Clone)]
pub(super) struct ActionColumns {
    /// The number of actions K.
    pub count: usize,
    /// The number of the action taken.
    pub taken: usize,
    /// `target_k`, the probability of action k in the state, for k = 0, 1, ..; empty without an evaluated policy.
    pub here: Vec<usize>,
    /// `target_next_k`, the same in the next state.
    pub next: Vec<usize>,
    /// The probability of the action taken under the policy that acted.
    pub behaviour: Option<usize>,
}

impl ActionColumns {
    /// The columns of actions that were taken, without an evaluated policy.
    fn of_taken(count: usize, taken: usize, behaviour: Option<usize>) -> Self {
        Self { count, taken, here: Vec::new(), next: Vec::new(), behaviour }
    }

    /// The columns of an evaluated policy. `None` without `action`, `target_0` or `target_next_0`: such columns then mean something else.
    fn new(
        (names, taken): (&[String], Option<usize>),
        find: &dyn Fn(&str) -> Result<Option<usize>>,
        missing: &dyn Fn(&str) -> Error,
    ) -> Result<Option<Self>> {
        let (Some(taken), Some(_), Some(_)) = (taken, find("target_0")?, find("target_next_0")?) else { return Ok(None) };
        let numbered = |prefix: &str| {
            let suffixes = names.iter().filter_map(|name| name.strip_prefix(prefix));
            suffixes.filter(|suffix| suffix.bytes().all(|c| c.is_ascii_digit()) && !suffix.is_empty()).count()
        };
        let count = numbered("target_").max(numbered("target_next_"));
        let all = |prefix: &str| {
            let of = |k: usize| {
                let name = format!("{prefix}{k}");
                find(&name)?.ok_or_else(|| missing(&name))
            };
            (0..count).map(of).collect::<Result<Vec<usize>>>()
        };
        Ok(Some(Self { count, taken, here: all("target_")?, next: all("target_next_")?, behaviour: None }))
    }
}

/// The positions of a log's columns in a file.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    /// The names of the state columns.
    pub columns: Vec<String>,
    pub states: Vec<usize>,
    /// Empty if the next state is the state of the following row ([`Layout::follows`]).
    pub next: Vec<usize>,
    pub reward: usize,
    pub done: usize,
    pub truncated: Option<usize>,
    pub episode: Option<usize>,
    pub ratio: Option<RatioColumns>,
    pub actions: Option<ActionColumns>,
    /// The columns that name the agent and the environment.
    pub keys: [Option<usize>; 2],
    /// Whether unreadable rows are omitted.
    pub skips: bool,
}

/// The column that names the agents.
fn agent_column(header: &Header, name: &str) -> Result<usize> {
    let no_column = || {
        let what = format!("there is no column `{}`, which names the agents: {}", quoted(name), header.found());
        Error::data("", what, "the name of a column of every file as `agent_column`")
    };
    header.names.iter().position(|other| other == name).ok_or_else(no_column)
}

impl Layout {
    pub fn new(names: &[String], form: &LogForm) -> Result<Self> {
        let (state_prefix, next_prefix) = form.inputs.prefixes();
        let header = Header::new(names.to_vec(), &form.columns)?;
        let wanted = || wanted(form);
        let find = |name: &str| header.find(name).map_err(|e| e.helped(wanted()));
        let first = |names: &[&str]| header.first(names).map_err(|e| e.helped(wanted()));
        let missing = |name: &str| Error::data("", format!("there is no column `{}`: {}", quoted(name), header.found()), wanted());
        let require = |name: &str| find(name)?.ok_or_else(|| missing(name));

        // `phi_next_1` begins with `phi_` too, but is not a feature.
        let is_state = |name: &&String| name.starts_with(state_prefix) && !name.starts_with(next_prefix);
        let mut columns: Vec<String> = header.roles.iter().filter(is_state).cloned().collect();
        columns.sort_by(|a, b| natural_order(a, b));
        if columns.is_empty() {
            let e = missing(&format!("{state_prefix}*"));
            let proposal = header.proposal(state_prefix, next_prefix);
            let help = proposal.map(|columns| format!("{}; for these names `columns = {}`", e.help, quoted(columns)));
            return Err(match help {
                Some(help) => e.helped(help),
                None => e,
            });
        }
        let after = |column: &String| column.replacen(state_prefix, next_prefix, 1);
        let states = columns.iter().map(|column| require(column)).collect::<Result<_>>()?;
        let [truncated, episode] = [first(&TRUNCATED)?, first(&EPISODE)?];
        let has_next = header.roles.iter().any(|name| name.starts_with(next_prefix));
        let next = if has_next {
            columns.iter().map(|column| require(&after(column))).collect::<Result<_>>()?
        } else {
            check_follows(truncated.or(episode), find("env")?).map_err(|what| {
                let e = missing(&after(&columns[0]));
                let help = format!("{}; {what}", e.help);
                e.helped(help)
            })?;
            Vec::new()
        };
        let known: HashSet<&str> = columns.iter().filter_map(|column| column.strip_prefix(state_prefix)).collect();
        if let Some(suffix) = header.roles.iter().filter_map(|name| name.strip_prefix(next_prefix)).find(|suffix| !known.contains(suffix)) {
            return Err(missing(&format!("{state_prefix}{suffix}")));
        }
        let reward = first(&REWARD)?.ok_or_else(|| missing("reward"))?;
        let done = first(&DONE)?.ok_or_else(|| missing("done"))?;
        let agent = form.agent_column.as_deref().map(|name| agent_column(&header, name));
        let (taken, behaviour) = (first(&ACTION_NAMES)?, first(&BEHAVIOURS)?);
        let (ratio, actions) = match form.actions {
            Some(count) => (None, Some(ActionColumns::of_taken(count, taken.ok_or_else(|| missing(ACTION_NAMES[0]))?, behaviour))),
            None => {
                let target = find(PROBABILITIES[0])?;
                // With actions and without an evaluated policy, logs are of the policy that acted.
                let behaviour = behaviour.filter(|_| taken.is_none() || target.is_some());
                let ratio = RatioColumns::new(find("ratio")?, target, behaviour)?;
                (ratio, ActionColumns::new((&header.roles, taken), &find, &missing)?)
            }
        };
        let keys = [agent.transpose()?, find("env")?];
        let skips = form.bad_rows == BadRows::Skip;
        Ok(Self { states, next, reward, done, truncated, episode, ratio, actions, columns, keys, skips })
    }

    /// Whether there are no columns of next states, which then come from the following rows.
    pub fn follows(&self) -> bool {
        self.next.is_empty()
    }

    /// A batch without transitions.
    pub fn empty(&self, name: &str) -> Log {
        Log {
            name: name.into(),
            columns: self.columns.clone(),
            states: Vec::new(),
            rewards: Vec::new(),
            next: Vec::new(),
            done: Vec::new(),
            truncated: self.truncated.map(|_| Vec::new()),
            breaks: self.skips.then(Vec::new),
            episode: self.episode.map(|_| Vec::new()),
            ratio: self.ratio.map(|_| Vec::new()),
            actions: self.actions.as_ref().map(|actions| LoggedActions::none(actions.count)),
        }
    }

    /// The number of transitions of a batch.
    pub fn batch(&self, most: usize) -> usize {
        let actions = self.actions.as_ref().map_or(0, |actions| actions.here.len());
        most.min(BATCH_BYTES / row_bytes(self.columns.len() + actions)).max(1)
    }
}

/// Checks that next states can come from the following rows, given a column that marks the ends of episodes and one of environments;
/// otherwise says what is needed.
fn check_follows(cuts: Option<usize>, env: Option<usize>) -> std::result::Result<(), &'static str> {
    match (cuts, env) {
        (_, Some(_)) => Err("rows of vector environments (`env`) need their next states"),
        (None, None) => Err("without columns of next states each is that of the following row, and the log needs `episode` or `truncated`"),
        (Some(_), None) => Ok(()),
    }
}

/// The flag `done` from a number, which must be 0 or 1.
pub(super) fn flag(value: f64) -> Option<bool> {
    [(0.0, false), (1.0, true)].iter().find(|(number, _)| *number == value).map(|(_, flag)| *flag)
}

/// The number of an action from a double.
pub(super) fn action_number(value: f64) -> Option<u32> {
    (value.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&value)).then_some(value as u32)
}

pub(super) const ACTION: &str = "the number of an action: 0, 1, ..";
pub(super) const FLAGS: &str = "true or false, or 1 or 0";
pub(super) const WHOLE: &str = "a whole number";
