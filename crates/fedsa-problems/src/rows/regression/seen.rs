//! What was computed of an agent's rows at a point, for whoever asks for the same point next.
//!
//! The loss and the gradient of a recorded round are those of the model that agents are asked about in the next one, a Hessian and a line
//! search need the margins of the gradient before them, and methods that run side by side begin at one point. Each of these would be a pass
//! over all rows. What is remembered has the bits of what would be computed, and nothing that is counted depends on it.

use std::sync::Mutex;

use crate::rows::dataset::Rows;

/// How many points are remembered of an agent: those of so many runs side by side.
const POINTS: usize = 4;
/// The share of the rows' memory, one in so many, that points may take: those of short rows are computed as fast, and those of few rows take
/// as much as the rows.
const SHARE: usize = 4;

/// An agent's rows at a point.
#[derive(Debug)]
pub(super) struct Seen {
    /// The point.
    pub theta: Vec<f64>,
    /// The margins of the rows there.
    pub margins: Vec<f64>,
    /// The gradient of the loss there, if it has been computed.
    pub gradient: Option<Vec<f64>>,
}

/// The last points of all agents, of each the last one at the end.
#[derive(Debug)]
pub(super) struct SeenPoints {
    /// None where nothing is remembered.
    of_agents: Vec<Mutex<Vec<Seen>>>,
}

impl SeenPoints {
    /// No points yet, of agents with these rows, which have so many margins each.
    pub fn new(rows: &Rows, outputs: usize, agents: usize) -> Self {
        let taken = POINTS * outputs * (rows.len() + 2 * rows.columns() * agents) * size_of::<f64>();
        Self::of(agents, SHARE * taken <= rows.bytes())
    }

    /// No points yet of some agents, which are remembered or not.
    pub fn of(agents: usize, keeps: bool) -> Self {
        Self { of_agents: (0..if keeps { agents } else { 0 }).map(|_| Mutex::default()).collect() }
    }

    /// Whether anything is remembered.
    pub fn keeps(&self) -> bool {
        !self.of_agents.is_empty()
    }

    /// Takes what is known of agent c at theta; [`SeenPoints::keep`] gives it back. Nobody waits for another one's computation, who would take it
    /// twice instead.
    pub fn take(&self, c: usize, theta: &[f64]) -> Option<Seen> {
        let mut points = self.of_agents.get(c)?.lock().ok()?;
        let is_same = |seen: &Seen| seen.theta.iter().map(|x| x.to_bits()).eq(theta.iter().map(|x| x.to_bits()));
        let at = points.iter().position(is_same)?;
        Some(points.remove(at))
    }

    /// Remembers a point of agent c instead of the one that was asked for the longest time ago.
    pub fn keep(&self, c: usize, seen: Seen) {
        let Some(Ok(mut points)) = self.of_agents.get(c).map(Mutex::lock) else { return };
        if points.len() == POINTS {
            points.remove(0);
        }
        points.push(seen);
    }
}
