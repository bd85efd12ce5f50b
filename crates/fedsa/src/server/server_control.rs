//! A control variate of the server beside the average (Scaffold with m of N participants).

use super::{Ask, Average, Next, Own, Received, Server};
use crate::error::Result;
use crate::message::{Body, Part};
use crate::saved::{packed, unpacked};

/// [`Average`], whose questions also contain the server's control c. After a round
/// `c += sum_c p_c (-c - v_c)` over the participants whose answers arrived: each summand is the change of the agent's own
/// control, so that `c = sum_c p_c c_c` over all agents. The server remembers the round that it asked each agent last, and
/// the last one in which the answer arrived; where they differ, the agent is told with its next question.
#[derive(Debug, Clone)]
pub struct ServerControlled {
    average: Average,
    weights: Vec<f64>,
    /// c, d components.
    control: Vec<f64>,
    /// The round in which each agent was asked last, -1 before the first.
    asked: Vec<f64>,
    /// The last round in which the answer of each agent arrived, -1 before the first.
    counted: Vec<f64>,
}

impl ServerControlled {
    /// At the start of a run: c = 0. `weights` are those of all N agents.
    pub fn new(average: Average, weights: &[f64]) -> Self {
        let (n, d) = (weights.len(), average.theta.len());
        Self { average, weights: weights.to_vec(), control: vec![0.0; d], asked: vec![-1.0; n], counted: vec![-1.0; n] }
    }

    /// The participants of round t.
    fn participants(&self, t: u64) -> Vec<usize> {
        self.average.participation.of(t).unwrap_or_else(|| (0..self.weights.len()).collect())
    }
}

impl Server for ServerControlled {
    fn open(&mut self, t: u64) -> Ask {
        let mut ask = self.average.open(t);
        ask.down.parts.push((Part::ServerControl, Body::Numbers(self.control.clone())));
        if let Some(Own { part, mut each }) = self.own(t) {
            let each: Vec<Option<Vec<f64>>> = self.participants(t).into_iter().map(|c| each[c].take()).collect();
            ask.own = each.iter().any(Option::is_some).then_some(Own { part, each });
        }
        ask
    }

    fn own(&self, _: u64) -> Option<Own> {
        let one = |(asked, counted): (&f64, &f64)| (asked != counted).then(|| vec![*counted]);
        let each: Vec<Option<Vec<f64>>> = self.asked.iter().zip(&self.counted).map(one).collect();
        each.iter().any(Option::is_some).then_some(Own { part: Part::Included, each })
    }

    fn receive(&mut self, got: &Received<'_>) -> Next {
        let mut arrived = 0.0;
        for (i, c) in self.participants(got.round).into_iter().enumerate() {
            self.asked[c] = got.round as f64;
            if got.arrived.get(i).is_none_or(|arrived| *arrived) {
                self.counted[c] = got.round as f64;
                arrived += self.weights[c];
            }
        }
        // c += sum p_c (-c - v_c) over the answers that arrived
        for (control, v) in self.control.iter_mut().zip(got.sum(Part::Direction)) {
            *control -= arrived * *control + v;
        }
        self.average.receive(got)
    }

    fn theta(&self) -> &[f64] {
        self.average.theta()
    }

    fn control(&self) -> Option<&[f64]> {
        Some(&self.control)
    }

    fn state(&self) -> Vec<u8> {
        packed(&(self.average.state(), &self.control, &self.asked, &self.counted))
    }

    fn restore(&mut self, state: &[u8]) -> Result<()> {
        let (average, control, asked, counted): (Vec<u8>, _, _, _) = unpacked(state)?;
        self.average.restore(&average)?;
        (self.control, self.asked, self.counted) = (control, asked, counted);
        Ok(())
    }
}
