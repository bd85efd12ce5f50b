//! A cache of computations on an agent's rows at a point, for the next request at the same point.
//!
//! The loss and the gradient of a recorded round are at the model of the next round. A Hessian and a line search need the margins of the
//! preceding gradient. Methods that run side by side begin at the same point. Each of these would take a pass over all rows. Cached values
//! have the bits of computed ones, and no counter depends on the cache.

use std::sync::Mutex;

use crate::rows::dataset::Rows;

/// Cached points per agent: enough for this many runs side by side.
const POINTS: usize = 4;
/// Points may take at most one in this many parts of the rows' memory. Short rows are computed as fast as they are cached, and for few rows
/// the points would take as much memory as the rows.
const SHARE: usize = 4;

/// An agent's rows at a point.
#[derive(Debug)]
pub(super) struct Seen {
    /// The point.
    pub theta: Vec<f64>,
    /// The margins of the rows there.
    pub margins: Vec<f64>,
    /// The gradient of the loss there, if computed.
    pub gradient: Option<Vec<f64>>,
}

/// The last points of all agents; each agent's latest one is at the end.
#[derive(Debug)]
pub(super) struct SeenPoints {
    /// Empty if nothing is cached.
    of_agents: Vec<Mutex<Vec<Seen>>>,
}

impl SeenPoints {
    /// No points yet, for agents with these rows; `outputs` is the number of margins per row.
    pub fn new(rows: &Rows, outputs: usize, agents: usize) -> Self {
        let taken = POINTS * outputs * (rows.len() + 2 * rows.columns() * agents) * size_of::<f64>();
        Self::of(agents, SHARE * taken <= rows.bytes())
    }

    /// No points yet, with or without caching.
    pub fn of(agents: usize, keeps: bool) -> Self {
        Self { of_agents: (0..if keeps { agents } else { 0 }).map(|_| Mutex::default()).collect() }
    }

    /// Whether anything is cached.
    pub fn keeps(&self) -> bool {
        !self.of_agents.is_empty()
    }

    /// Takes agent c's values at theta out of the cache; [`SeenPoints::keep`] puts them back. A second thread does not wait for them but
    /// computes them again.
    pub fn take(&self, c: usize, theta: &[f64]) -> Option<Seen> {
        let mut points = self.of_agents.get(c)?.lock().ok()?;
        let is_same = |seen: &Seen| seen.theta.iter().map(|x| x.to_bits()).eq(theta.iter().map(|x| x.to_bits()));
        let at = points.iter().position(is_same)?;
        Some(points.remove(at))
    }

    /// Caches a point of agent c in place of the least recently used one.
    pub fn keep(&self, c: usize, seen: Seen) {
        let Some(Ok(mut points)) = self.of_agents.get(c).map(Mutex::lock) else { return };
        if points.len() == POINTS {
            points.remove(0);
        }
        points.push(seen);
    }
}
