//! Outliers among applicants, which stop the founding of a federation.

use super::{ColumnContent, ColumnSummary, Enrolment};
use crate::error::{Error, Result, quoted};

/// With fewer agents it is unknown which one is wrong.
const LEAST: usize = 3;

impl ColumnSummary {
    /// How far its numbers or its unnamed columns reach, and by which factor an agent's may exceed those of most agents. No honest
    /// difference is as large, but placeholders for missing numbers, such as 1e30, are.
    fn reach(&self, bounded: &[String]) -> Option<(f64, f64)> {
        match &self.content {
            ColumnContent::Numbers { range: (low, high), .. } if bounded.contains(&self.name) => Some((high.abs().max(low.abs()), 1e6)),
            ColumnContent::Counted(columns) => Some((f64::from(columns.last), 100.0)),
            _ => None,
        }
    }
}

impl Enrolment {
    /// Refuses columns of one agent that reach far beyond those of most agents, if three or more have applied. `bounded` names the columns
    /// by whose ranges features are scaled: a very wide range would make the others' states indistinguishable. Very long rows would give
    /// most columns of the model to one agent.
    ///
    /// # Errors
    /// When there is one; names the agent and the column. As [`Enrolment::close`].
    pub fn check_reach(&self, bounded: &[String]) -> Result<()> {
        let taken = self.numbered(None)?;
        for i in 0..taken.first().map_or(0, |(_, one)| one.columns.len()) {
            let reaches: Vec<_> = taken.iter().filter_map(|(who, one)| Some((who, one.columns[i].reach(bounded)?))).collect();
            let mut sorted: Vec<f64> = reaches.iter().map(|(_, (reach, _))| *reach).collect();
            sorted.sort_by(f64::total_cmp);
            let usual = if sorted.len() < LEAST { 0.0 } else { sorted[(sorted.len() - 1) / 2] };
            if let Some((who, (_, most))) = reaches.iter().find(|(_, (reach, most))| usual > 0.0 && *reach > most * usual) {
                let name = quoted(&taken[0].1.columns[i].name);
                let what = format!("`{}`: column `{name}` reaches more than {most} times as far as those of most agents", quoted(who));
                let help = format!("at most {most} times as far; or this agent's column without placeholders for missing numbers");
                return Err(Error::data("data", what, help));
            }
        }
        Ok(())
    }

    /// The agent that has the most categories or labels of one column that no other agent has: its name, the column, and their number.
    pub fn most_alone(&self) -> Option<(&str, &str, usize)> {
        let taken = self.numbered(None).ok()?;
        let mut most: Option<(&str, &str, usize)> = None;
        for (who, one) in &taken {
            for (i, column) in one.columns.iter().enumerate() {
                let Some(own) = column.values() else { continue };
                let others = || taken.iter().filter(|(other, _)| other != who).filter_map(|(_, other)| other.columns[i].values());
                let is_own = |name: &&String| others().all(|other| !other.rows.contains_key(*name));
                let count = own.rows.keys().filter(is_own).count();
                if count > most.map_or(0, |(.., most)| most) {
                    most = Some((who, &column.name, count));
                }
            }
        }
        most
    }
}
