//! The content of logs, before anything is fitted.

use fedsa_problems::logs::log_form::LeftOutRows;
use fedsa_problems::logs::log_summary::EpisodeSummary;
use fedsa_problems::logs::survey::Surveyed;
use serde_json::{Value as Json, json};

/// The content of the logs.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct LogsRead {
    /// The name and the episodes of each agent, without held-out ones.
    pub agents: Vec<(String, EpisodeSummary)>,
    /// The episodes of all agents.
    pub all: EpisodeSummary,
    /// Omitted rows.
    pub left_out: Vec<LeftOutRows>,
    /// Whether next states come from the following rows, for logs without columns for them.
    pub next_follows: bool,
}

impl LogsRead {
    /// The content of logs with these episodes of their agents.
    pub fn of(logs: &Surveyed, episodes: &[EpisodeSummary]) -> Self {
        let names = logs.facts.iter().map(|log| log.name.clone());
        let all = episodes.iter().fold(EpisodeSummary::default(), |all, one| all.join(*one));
        let agents = names.zip(episodes.iter().copied()).collect();
        Self { agents, all, left_out: logs.left_out(), next_follows: logs.next_follows() }
    }

    /// An agent's share of the transitions.
    pub fn share(&self, agent: &EpisodeSummary) -> f64 {
        agent.transitions as f64 / self.all.transitions as f64
    }

    /// Whether rows are not in the order of time; episodes and their starts are then unknown.
    pub fn is_shuffled(&self) -> bool {
        self.all.is_shuffled(self.agents.len())
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

/// The episodes of an agent, or of all, as JSON.
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
