//! Rules for old directions: a direction is used only if its model is near the current model.

use std::collections::VecDeque;

use fedsa::error::Result;
use fedsa::linalg::distance_sq;
use fedsa::message::{Message, Part};
use fedsa::saved::{packed, unpacked};
use fedsa::schedule::StepSchedule;
use fedsa::server::{Broadcast, ClientUpdate, Next, Participation, Received, Server, ordered_sum};

/// Uses only directions whose model is near the current model.
#[derive(Debug, Clone)]
pub struct Adaptive {
    /// `theta_t`.
    pub theta: Vec<f64>,
    /// Step sizes, for E.
    pub steps: StepSchedule,
    /// The global step size.
    pub alpha_g: f64,
    /// The participants of each round.
    pub participation: Participation,
    /// `eps`: the largest distance of a model from the current one.
    pub threshold: f64,
    /// The rule for selecting near directions.
    pub choice: NearRule,
    /// The largest age of a direction in rounds; models are kept for this long.
    pub reach: u64,
    /// The models of the last rounds, the newest last.
    pub models: VecDeque<Vec<f64>>,
    /// The round of the first of `models`.
    pub first: u64,
}

/// The directions that a round uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NearRule {
    /// All with `||theta_t - theta_{t - tau}|| <= eps` (Adibi et al. 2024); others count as zero.
    EachNear,
    /// The mean of the half with the smallest distances; none if their median exceeds eps (DASA, Dal Fabbro et al. 2024).
    NearestHalf,
}

impl Adaptive {
    /// `||theta_t - theta_{t - tau}||` for the model that an update answers.
    fn distance(&self, update: &ClientUpdate) -> f64 {
        distance_sq(&self.theta, &self.models[(update.answers - self.first) as usize]).sqrt()
    }

    /// The direction of the round, d numbers; `None` if the round is skipped.
    fn direction(&self, got: &Received<'_>) -> Option<Vec<f64>> {
        let mut near: Vec<(f64, &ClientUpdate)> = got.updates.iter().map(|update| (self.distance(update), update)).collect();
        let total = match self.choice {
            NearRule::EachNear => {
                near.retain(|(distance, _)| *distance <= self.threshold);
                got.asked
            }
            NearRule::NearestHalf => {
                // Distances may be equal, for example without delays. No agent may then be preferred, so the order starts half of the
                // agents further on in each round.
                let agents = self.participation.agents as u64;
                let turn = got.round % agents.max(1) * agents.div_ceil(2) % agents.max(1);
                let place = |update: &ClientUpdate| (update.agent as u64 + agents - turn) % agents;
                near.sort_by(|a, b| a.0.total_cmp(&b.0).then_with(|| place(a.1).cmp(&place(b.1))));
                near.truncate(near.len().div_ceil(2));
                // The largest distance of the nearer half is the median of all.
                if near.last().is_none_or(|(median, _)| *median > self.threshold) {
                    return None;
                }
                near.sort_by_key(|(_, update)| update.agent);
                near.iter().map(|(_, update)| update.weight).sum()
            }
        };
        let sum = ordered_sum(self.theta.len(), near.iter().map(|(_, update)| (update.weight, update.part(Part::Direction))));
        Some(sum.into_iter().map(|x| x / total).collect())
    }
}

impl Server for Adaptive {
    fn open(&mut self, t: u64) -> Broadcast {
        while self.models.len() as u64 > self.reach {
            self.models.pop_front();
            self.first += 1;
        }
        self.models.push_back(self.theta.clone());
        Broadcast { to: self.participation.of(t), down: Message::one(t, 0, Part::Model, self.theta.clone()), own: None }
    }

    fn receive(&mut self, got: &Received<'_>) -> Next {
        // theta_{t+1} = theta_t + alpha_g E v
        if let Some(v) = self.direction(got) {
            let step = self.alpha_g * self.steps.of(got.round).sum;
            self.theta.iter_mut().zip(&v).for_each(|(theta, v)| *theta += step * v);
        }
        Next::Done { tell: None }
    }

    fn theta(&self) -> &[f64] {
        &self.theta
    }

    /// Past models apply to all agents.
    fn regrouped(&self, _: &[Option<usize>], _: &[f64]) -> Option<Vec<u8>> {
        Some(self.state())
    }

    fn state(&self) -> Vec<u8> {
        packed(&(&self.theta, self.first, &self.models))
    }

    fn restore(&mut self, state: &[u8]) -> Result<()> {
        (self.theta, self.first, self.models) = unpacked(state)?;
        Ok(())
    }
}
