//! `theta_{t+1} = theta_t + alpha_g E v`, v the mean of the participants' directions.

use fedsa::error::Result;
use fedsa::message::{Message, Part, TELL};
use fedsa::saved::{packed, unpacked};
use fedsa::schedule::StepSchedule;
use fedsa::server::{Broadcast, Next, Participation, Received, Server, ordered_sum};

/// Averages directions. For FedHSA it first asks for operators and sends back their mean. Optionally it projects on a ball, and sends v to
/// the participants.
#[derive(Debug, Clone)]
pub struct Average {
    /// `theta_t`.
    pub theta: Vec<f64>,
    /// Step sizes, for E.
    pub steps: StepSchedule,
    /// The global step size.
    pub alpha_g: f64,
    /// The participants of each round.
    pub participation: Participation,
    /// Whether a first exchange asks for `g_c(theta_t, z_{c,0})`, whose mean is sent back (FedHSA).
    pub operators_first: bool,
    /// The last operator that arrived from each agent, d numbers each, if these replace lost operators.
    pub table: Option<Vec<f64>>,
    /// The round of each of these operators, -1 before the first, because late answers may arrive out of order.
    pub table_rounds: Vec<f64>,
    /// The agents' weights, with a table.
    pub weights: Vec<f64>,
    /// Whether the server sends v to the participants at the end of a round (control variates).
    pub tells_mean: bool,
    /// Projects `theta_{t+1}` on the ball of this radius around 0 (Wang et al. 2023).
    pub radius: Option<f64>,
}

impl Average {
    /// Projects theta on the ball, if any.
    fn project(&mut self) {
        let Some(radius) = self.radius else { return };
        let norm = fedsa::linalg::norm_sq(&self.theta).sqrt();
        if norm > radius {
            self.theta.iter_mut().for_each(|x| *x *= radius / norm);
        }
    }

    /// G: the mean of the operators that arrived. A lost operator counts as zero, or as its agent's last operator that arrived.
    fn mean_operator(&mut self, got: &Received<'_>) -> Vec<f64> {
        let d = self.theta.len();
        let Some(table) = &mut self.table else { return got.mean(Part::Operator) };
        for update in got.updates {
            if self.table_rounds[update.agent] > update.answers as f64 {
                continue;
            }
            self.table_rounds[update.agent] = update.answers as f64;
            // The table keeps the operator as it arrived, possibly weakened.
            let gain = update.weight / self.weights[update.agent];
            table[update.agent * d..(update.agent + 1) * d]
                .iter_mut()
                .zip(update.part(Part::Operator))
                .for_each(|(kept, x)| *kept = gain * x);
        }
        ordered_sum(d, self.weights.iter().copied().zip(table.chunks(d)))
    }
}

impl Server for Average {
    fn open(&mut self, t: u64) -> Broadcast {
        let down = Message::one(t, 0, Part::Model, self.theta.clone());
        Broadcast { to: self.participation.of(t), down, own: None }
    }

    fn receive(&mut self, got: &Received<'_>) -> Next {
        let t = got.round;
        if self.operators_first && got.exchange == 0 {
            let down = Message::one(t, 1, Part::Operator, self.mean_operator(got));
            return Next::Ask(Broadcast { to: self.participation.of(t), down, own: None });
        }
        // theta_{t+1} = theta_t + alpha_g E v
        let step = self.alpha_g * self.steps.of(t).sum;
        self.theta.iter_mut().zip(got.mean_of(Part::Direction)).for_each(|(theta, v)| *theta += step * v);
        self.project();
        let v = || Message::one(t, TELL, Part::Direction, got.mean(Part::Direction));
        let tell = self.tells_mean.then(|| Broadcast { to: self.participation.of(t), down: v(), own: None });
        Next::Done { tell }
    }

    fn theta(&self) -> &[f64] {
        &self.theta
    }

    fn move_to(&mut self, theta: Vec<f64>) {
        self.theta = theta;
        self.project();
    }

    fn regrouped(&self, from: &[Option<usize>], _: &[f64]) -> Option<Vec<u8>> {
        let (d, table) = (self.theta.len(), self.table.as_ref()?);
        let zero = vec![0.0; d];
        let operators: Vec<f64> = from.iter().flat_map(|c| c.map_or(&zero[..], |c| &table[c * d..(c + 1) * d])).copied().collect();
        let rounds: Vec<f64> = from.iter().map(|c| c.map_or(-1.0, |c| self.table_rounds[c])).collect();
        Some(packed(&(&self.theta, Some(operators), rounds)))
    }

    fn state(&self) -> Vec<u8> {
        packed(&(&self.theta, &self.table, &self.table_rounds))
    }

    fn restore(&mut self, state: &[u8]) -> Result<()> {
        (self.theta, self.table, self.table_rounds) = unpacked(state)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use fedsa::schedule::{LocalSteps, StepSize};

    use super::*;

    #[test]
    fn only_a_whole_state_is_put_back() {
        let steps = StepSchedule { size: StepSize::Constant(0.1), local: LocalSteps::Fixed(1) };
        let rule = |table: Option<Vec<f64>>| Average {
            theta: vec![0.0; 2],
            steps,
            alpha_g: 1.0,
            participation: Participation { m: None, agents: 3, seed: 0 },
            operators_first: true,
            table_rounds: vec![-1.0; if table.is_some() { 3 } else { 0 }],
            table,
            weights: vec![1.0 / 3.0; 3],
            tells_mean: false,
            radius: None,
        };
        let state = rule(Some((0..6).map(f64::from).collect())).state();
        let mut restored = rule(Some(vec![0.0; 6]));
        restored.restore(&state).unwrap();
        assert_eq!(restored.state(), state);
        // A refused state changes nothing.
        let mut kept = rule(None);
        kept.theta = vec![3.0, 4.0];
        assert!((0..state.len()).all(|n| kept.restore(&state[..n]).is_err()) && kept.restore(&[&state[..], &[0]].concat()).is_err());
        assert_eq!(kept.theta, [3.0, 4.0]);
    }
}
