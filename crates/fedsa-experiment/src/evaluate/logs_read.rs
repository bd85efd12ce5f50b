//! What was read of logs, before anything is fitted.

use fedsa::note::{Note, NoteCode};
use fedsa::problem::log_form::LeftOutRows;
use fedsa::problem::log_summary::EpisodeSummary;
use serde_json::{Value as Json, json};

use super::Data;
use crate::numbers;

/// What was read of the logs.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct LogsRead {
    /// The name and the episodes of each agent, without those that are held out.
    pub agents: Vec<(String, EpisodeSummary)>,
    /// Those of all agents.
    pub all: EpisodeSummary,
    /// Rows that were left out.
    pub left_out: Vec<LeftOutRows>,
    /// Whether next states are those of following rows, for logs without columns of them.
    pub next_follows: bool,
}

impl LogsRead {
    /// Of the logs of an evaluation.
    pub fn of(data: &Data) -> Self {
        let names = data.logs.facts.iter().map(|log| log.name.clone());
        let all = data.episodes.iter().fold(EpisodeSummary::default(), |all, one| all.join(*one));
        let agents = names.zip(data.episodes.iter().copied()).collect();
        Self { agents, all, left_out: data.logs.left_out(), next_follows: data.logs.next_follows() }
    }

    /// The share of the transitions that an agent has.
    pub fn share(&self, agent: &EpisodeSummary) -> f64 {
        agent.transitions as f64 / self.all.transitions as f64
    }

    /// Whether rows are not in the order of time, so that episodes and their starts are not known.
    pub fn is_shuffled(&self) -> bool {
        self.all.is_shuffled(self.agents.len())
    }

    /// What a reader must know of the logs.
    pub fn notes(&self) -> Vec<Note> {
        let (all, mut notes) = (&self.all, left_out(&self.left_out));
        let is_shuffled = self.is_shuffled();
        if self.next_follows {
            let text = "no columns of next states: each next state is that of the following row of the episode";
            notes.push(Note::new(NoteCode::NextOfFollowing, text));
        }
        if is_shuffled {
            let text = "rows are not in the order of time, and episodes are not known: most begin in another state than the row before led to. \
                        There is no value of start states (a column `env` or `episode` puts rows of environments that are side by side in \
                        order)";
            notes.push(Note::new(NoteCode::RowsOutOfOrder, text));
        }
        if all.both > 0 {
            let rows = counted(all.both, "transition is", "transitions are");
            let text = format!(
                "{rows} marked as terminal and as truncated, and count as terminal: where `done` means either, `columns` names the column \
                 that means terminal, such as done=FIELD"
            );
            notes.push(Note::new(NoteCode::EndsBoth, text));
        }
        if all.jumps > 0 && !is_shuffled {
            let rows = counted(all.jumps, "transition", "transitions");
            let text = format!(
                "{rows} in the midst of an episode begin in another state than the row before led to: rows of an episode belong in the \
                 order of time, or its returns, traces and value are wrong"
            );
            notes.push(Note::new(NoteCode::RowsOutOfOrder, text));
        }
        if all.resumed > 0 {
            let text = counted(all.resumed, "episode goes", "episodes go");
            let text = format!("{text} on after their end under the same number, and what follows counts as an episode of its own");
            notes.push(Note::new(NoteCode::EpisodesResumed, text));
        }
        notes
    }

    /// `logs` of `summary.json`.
    pub fn json(&self) -> Json {
        let agents = self.agents.iter().map(|(name, agent)| {
            let mut one = of(agent);
            one["name"] = json!(name);
            one["share"] = json!(self.share(agent));
            one
        });
        let mut all = of(&self.all);
        all["agents"] = agents.collect();
        let left_out =
            |rows: &LeftOutRows| json!({ "file": rows.file, "reason": rows.reason, "rows": rows.rows, "first": rows.first.to_string() });
        all["left_out"] = self.left_out.iter().map(left_out).collect();
        all["next_from_following_rows"] = json!(self.next_follows);
        all
    }
}

fn counted(n: usize, one: &str, several: &str) -> String {
    format!("{} {}", numbers::thousands(n as f64), if n == 1 { one } else { several })
}

/// The notes about rows that were left out: of the first files and reasons, and of all others together.
fn left_out(all: &[LeftOutRows]) -> Vec<Note> {
    /// The largest number of files and reasons that are named.
    const NAMED: usize = 12;
    let mut notes: Vec<Note> = all.iter().take(NAMED).map(LeftOutRows::note).collect();
    if let Some(further) = all.get(NAMED..).filter(|further| !further.is_empty()) {
        let rows = counted(further.iter().map(|rows| rows.rows).sum(), "row", "rows");
        let text = format!("left out {rows} for {} further reasons; summary.json lists all", further.len());
        notes.push(Note::new(NoteCode::RowsLeftOut, text));
    }
    notes
}

/// Of an agent, or of all.
fn of(episodes: &EpisodeSummary) -> Json {
    let finite = |x: f64| if x.is_finite() { json!(x) } else { json!(null) };
    let returns = episodes
        .returns()
        .map(|(count, mean, deviation)| json!({ "episodes": count, "mean": finite(mean), "standard_deviation": finite(deviation) }));
    json!({
        "transitions": episodes.transitions,
        "episodes": episodes.episodes(),
        "ended": episodes.ended,
        "truncated": episodes.truncated,
        "cut": episodes.cut,
        "jumps": episodes.jumps,
        "resumed": episodes.resumed,
        "discounted_returns": returns,
    })
}
