//! The server node's copies of the agents' control variates.

use serde::{Deserialize, Serialize};

use crate::local::Controls;
use crate::message::{Message, Part};
use crate::server::ClientUpdate;

/// Copies of the agents' control variates; empty for methods without them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Copies {
    /// The number of components d.
    dim: usize,
    /// `xi_c`, d numbers each.
    pub xi: Vec<f64>,
}

impl Copies {
    /// Copies of N control variates of d components, all 0.
    pub fn new(n: usize, dim: usize) -> Self {
        Self { dim, xi: vec![0.0; n * dim] }
    }

    /// The copy of agent `c`, if there are any.
    pub fn of(&self, c: usize) -> Option<&[f64]> {
        self.xi.get(c * self.dim..(c + 1) * self.dim).filter(|xi| !xi.is_empty())
    }

    /// The copies of the next epoch's agents, each `from` these or new. `xi_c -= sum p_k xi_k` with the new weights `p_k` makes them sum to
    /// zero.
    pub fn regrouped(&self, from: &[Option<usize>], weights: &[f64]) -> Self {
        let d = self.dim;
        let mut next = Self::new(from.len(), d);
        for (xi, old) in next.xi.chunks_mut(d).zip(from).filter_map(|(xi, old)| Some((xi, (*old)?))) {
            xi.copy_from_slice(&self.xi[old * d..(old + 1) * d]);
        }
        let mut mean = vec![0.0; d];
        for (p, xi) in weights.iter().zip(next.xi.chunks(d)) {
            mean.iter_mut().zip(xi).for_each(|(mean, xi)| *mean += p * xi);
        }
        next.xi.chunks_mut(d).for_each(|xi| xi.iter_mut().zip(&mean).for_each(|(xi, mean)| *xi -= mean));
        next
    }

    /// Updates the copies at the end of a round that led to `theta`, as the agents will update their control variates. `down` is the
    /// message at the end of the round, or its question if there is no such message.
    pub fn settle(&mut self, controls: &dyn Controls, down: &Message, asked: &[usize], updates: &[ClientUpdate], theta: &[f64]) {
        let (d, shared) = (self.dim, controls.shared(down, theta));
        let mut updates = updates.iter().peekable();
        for c in asked {
            let own = updates.next_if(|update| update.agent == *c).map(|update| update.part(Part::Direction));
            controls.settle(down.round, &mut self.xi[c * d..(c + 1) * d], &shared, own);
        }
    }
}
