//! Applicants of whom some may be left out: the others' columns together, without joining all columns again for each choice.

use std::collections::{BTreeMap, BTreeSet};

use super::columns::joined;
use super::outliers::median;
use super::{Application, ColumnContent, ColumnSummary, DistinctValues, Enrolment, State, said_dim};
use crate::error::{Error, Result};

/// Applicants of whom some may be left out.
pub struct Candidates<'a> {
    enrolment: &'a Enrolment,
    taken: Vec<(&'a str, &'a Application)>,
    excluded: Vec<(&'a str, Error)>,
    is_out: Vec<bool>,
    /// By column.
    values: Vec<Holders>,
}

/// The values of a column of categories or labels, and the agents with them; empty for other columns.
struct Holders {
    /// The positions of each agent's values among all sorted values.
    of: Vec<Vec<u32>>,
    /// The number of remaining agents with each value.
    count: Vec<u32>,
    /// The positions of values that a remaining agent has.
    present: BTreeSet<u32>,
}

impl Holders {
    /// The values of one column of all agents.
    fn new<'a>(agents: impl Iterator<Item = Option<&'a DistinctValues>> + Clone) -> Self {
        let mut at: BTreeMap<&str, u32> = BTreeMap::new();
        agents.clone().flatten().flat_map(|values| values.rows.keys()).for_each(|name| *at.entry(name).or_default() += 1);
        let count: Vec<u32> = at.values().copied().collect();
        at.values_mut().zip(0..).for_each(|(position, i)| *position = i);
        let positions = |values: &DistinctValues| values.rows.keys().map(|name| at[name.as_str()]).collect();
        let of = agents.map(|values| values.map_or_else(Vec::new, positions)).collect();
        Self { present: (0..count.len() as u32).collect(), of, count }
    }

    fn leave_out(&mut self, agent: usize) {
        for position in &self.of[agent] {
            self.count[*position as usize] -= 1;
            if self.count[*position as usize] == 0 {
                self.present.remove(position);
            }
        }
    }

    fn take_back(&mut self, agent: usize) {
        for position in &self.of[agent] {
            self.count[*position as usize] += 1;
            self.present.insert(*position);
        }
    }
}

/// The number of single columns by which agents are ordered: labels, and columns with the most rare values.
const MAX_ASPECTS: usize = 9;

/// The excess of each number over the median.
fn beyond_most(numbers: Vec<f64>) -> Vec<f64> {
    let usual = median(numbers.iter().copied());
    numbers.into_iter().map(|number| (number - usual).max(0.0)).collect()
}

impl Enrolment {
    /// The present candidates.
    ///
    /// # Errors
    /// When too few agents can take part.
    pub fn candidates(&self) -> Result<Candidates<'_>> {
        let (taken, excluded) = self.numbered(None)?;
        let columns = taken.first().map_or(0, |(_, one)| one.columns.len());
        let values = (0..columns).map(|i| Holders::new(taken.iter().map(move |(_, one)| one.columns[i].values()))).collect();
        Ok(Candidates { enrolment: self, is_out: vec![false; taken.len()], taken, excluded, values })
    }

    /// The same enrolment without these applicants.
    #[must_use]
    pub fn without<'a>(&self, senders: impl IntoIterator<Item = &'a str>) -> Self {
        let senders: BTreeSet<&str> = senders.into_iter().collect();
        let applied = self.state.applied.iter().filter(|(who, _)| !senders.contains(who.as_str())).cloned().collect();
        let state = State { applied, cost: self.state.cost, run: self.state.run };
        Self { terms: self.terms.clone(), agents: self.agents.clone(), held: state.held(), state, memory: self.memory }
    }
}

impl Candidates<'_> {
    /// The number of remaining agents.
    pub fn agents(&self) -> usize {
        self.is_out.iter().filter(|out| !**out).count()
    }

    /// The number of candidates that can be left out so that enough remain.
    pub fn spare(&self) -> usize {
        self.taken.len().saturating_sub(*self.enrolment.agents.start())
    }

    /// An agent's sender.
    pub fn sender(&self, agent: usize) -> &str {
        self.taken[agent].0
    }

    /// The applicants that are not candidates, and the reasons: their columns or dimension differ from those of most agents.
    pub fn excluded(&self) -> Vec<(String, Error)> {
        self.excluded.iter().map(|(who, e)| ((*who).to_string(), e.clone())).collect()
    }

    /// Leaves out an agent.
    ///
    /// # Panics
    /// When it is already left out.
    pub fn leave_out(&mut self, agent: usize) {
        assert!(!std::mem::replace(&mut self.is_out[agent], true), "agent {agent} is left out");
        self.values.iter_mut().for_each(|column| column.leave_out(agent));
    }

    /// Takes back an agent that was left out.
    ///
    /// # Panics
    /// When it is not left out.
    pub fn take_back(&mut self, agent: usize) {
        assert!(std::mem::replace(&mut self.is_out[agent], false), "agent {agent} is not left out");
        self.values.iter_mut().for_each(|column| column.take_back(agent));
    }

    /// All candidates, sorted by the number of categories and labels that no other agent has, plus numbered columns beyond those of most
    /// agents, largest first; equal ones by their numbers.
    pub fn suspects(&self) -> Vec<usize> {
        let mut alone: Vec<usize> = self.widths().into_iter().map(|more| more as usize).collect();
        for column in &self.values {
            for (alone, of) in alone.iter_mut().zip(&column.of) {
                *alone += of.iter().filter(|at| column.count[**at as usize] == 1).count();
            }
        }
        let mut suspects: Vec<usize> = (0..alone.len()).collect();
        suspects.sort_by_key(|agent| std::cmp::Reverse(alone[*agent]));
        suspects
    }

    /// The number of columns of each candidate beyond those of most agents.
    fn widths(&self) -> Vec<f64> {
        let last = |one: &Application| one.columns.iter().filter_map(ColumnSummary::counted).map(|columns| columns.last).max().unwrap_or(0);
        beyond_most(self.taken.iter().map(|(_, one)| f64::from(last(one))).collect())
    }

    /// All candidates in several orders, rarest values first: by all columns together, and by single columns, because most agents may have
    /// rare values in columns without a problem. A value that k agents share counts 1/k for each, so that two equal agents do not hide each
    /// other. In each column the usual amount does not count, so that many rare values in one column outweigh a few in others.
    pub fn orders(&self) -> Vec<Vec<usize>> {
        let of_column = |column: &Holders| {
            let share = |at: &u32| 1.0 / f64::from(column.count[*at as usize]);
            beyond_most(column.of.iter().map(|of| of.iter().map(share).sum()).collect())
        };
        let of_columns = self.values.iter().enumerate().map(|(i, column)| (self.are_labels(i), of_column(column)));
        let mut aspects: Vec<(bool, Vec<f64>)> = std::iter::once((false, self.widths())).chain(of_columns).collect();
        let mut together = vec![0.0; self.taken.len()];
        aspects.iter().for_each(|(_, aspect)| together.iter_mut().zip(aspect).for_each(|(sum, rare)| *sum += rare));
        aspects.retain(|(_, aspect)| aspect.iter().any(|rare| *rare > 0.0));
        // Labels first, so that a column of few labels is always included.
        let by_sum = |a: &[f64], b: &[f64]| b.iter().sum::<f64>().total_cmp(&a.iter().sum());
        aspects.sort_by(|(are_labels, a), (other, b)| other.cmp(are_labels).then_with(|| by_sum(a, b)));
        let suspects = self.suspects();
        let order = |aspect: Vec<f64>| {
            let mut agents = suspects.clone();
            agents.sort_by(|a, b| aspect[*b].total_cmp(&aspect[*a]));
            agents
        };
        let single = aspects.into_iter().map(|(_, aspect)| aspect).take(MAX_ASPECTS);
        std::iter::once(together).chain(single).map(order).collect()
    }

    fn are_labels(&self, column: usize) -> bool {
        self.taken.first().is_some_and(|(_, one)| matches!(one.columns[column].content, ColumnContent::Labels(_)))
    }

    /// The columns of the remaining agents.
    ///
    /// # Errors
    /// When a column has too many values; checked before they are joined.
    pub fn columns(&self) -> Result<Vec<ColumnSummary>> {
        let rest: Vec<&Application> = self.taken.iter().zip(&self.is_out).filter(|(_, out)| !**out).map(|((_, one), _)| *one).collect();
        let Some(first) = rest.first() else { return Ok(Vec::new()) };
        let together = |i: usize| {
            let holders = &self.values[i];
            let with = || {
                let mut rows: BTreeMap<String, u64> = BTreeMap::new();
                for (name, count) in rest.iter().filter_map(|one| one.columns[i].values()).flat_map(|values| &values.rows) {
                    *rows.entry(name.clone()).or_default() += count;
                }
                let mut all = rest.iter().filter_map(|one| one.columns[i].values());
                DistinctValues { rows, are_numbers: all.all(|values| values.are_numbers) }
            };
            let column = &first.columns[i];
            if holders.present.len() > column.content.most_values() {
                return Err(column.content.refused_values(&column.name, holders.present.len()));
            }
            let content = match &column.content {
                ColumnContent::Categories(_) => ColumnContent::Categories(with()),
                ColumnContent::Labels(_) => ColumnContent::Labels(with()),
                _ => return Ok(joined(rest.iter().map(|one| &one.columns[i..=i])).remove(0)),
            };
            Ok(ColumnSummary { name: column.name.clone(), content })
        };
        (0..first.columns.len()).map(together).collect()
    }

    /// The form of their data ([`super::Applicant::with_form`]).
    pub fn form(&self) -> Option<&str> {
        self.taken.first()?.1.form.as_deref()
    }

    /// Their number of components.
    pub fn said_dim(&self) -> Option<usize> {
        said_dim(&self.taken)
    }

    /// Checks a federation of the remaining agents with this dimension and these columns, as [`Enrolment::close`] would.
    ///
    /// # Errors
    /// As [`Enrolment::close`].
    pub fn check(&self, dim: Option<usize>, columns: &[ColumnSummary]) -> Result<()> {
        let rest = self.taken.iter().zip(&self.is_out).filter(|(_, out)| !**out);
        let rows: Vec<(u64, Option<f64>)> = rest.map(|((_, one), _)| (one.rows, one.weighted)).collect();
        self.enrolment.federation_of(&rows, dim.or_else(|| self.said_dim()), columns).map(|_| ())
    }
}
