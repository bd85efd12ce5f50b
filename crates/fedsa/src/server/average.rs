//! `theta_{t+1} = theta_t + alpha_g E v`, v the mean of the participants' directions.

use super::{Ask, Delivery, Next, Participation, Received, Server};
use crate::message::{Message, Part, TELL};
use crate::schedule::Steps;

/// Averages directions; where the agents send operators first (FedHSA), sends back
/// their mean and waits for the directions; perhaps projects on a ball; perhaps
/// tells the participants v.
#[derive(Debug, Clone)]
pub struct Average {
    /// `theta_t`.
    pub theta: Vec<f64>,
    /// Step sizes, for E.
    pub steps: Steps,
    /// The global step size.
    pub alpha_g: f64,
    /// Who takes part.
    pub participation: Participation,
    /// Tells the round's participants v at its end (control variates, m < N).
    pub tell: bool,
    /// Projects `theta_{t+1}` on the ball of this radius around 0 (Wang et al. 2023).
    pub radius: Option<f64>,
}

impl Server for Average {
    fn needs(&self) -> Delivery {
        Delivery::SumOnly
    }

    fn open(&mut self, t: u64) -> Ask {
        Ask { to: self.participation.of(t), down: Message::one(t, 0, Part::Model, self.theta.clone()) }
    }

    fn receive(&mut self, got: &Received<'_>) -> Next {
        let t = got.round;
        if got.part == Part::Operator {
            return Next::Ask(Ask { to: self.participation.of(t), down: Message::one(t, 1, Part::Operator, got.mean()) });
        }
        // theta_{t+1} = theta_t + alpha_g E v
        let v = got.mean();
        let step = self.alpha_g * self.steps.of(t).sum;
        self.theta.iter_mut().zip(&v).for_each(|(theta, v)| *theta += step * v);
        if let Some(radius) = self.radius {
            let norm = crate::linalg::norm_sq(&self.theta).sqrt();
            if norm > radius {
                self.theta.iter_mut().for_each(|x| *x *= radius / norm);
            }
        }
        let tell = self.tell.then(|| Ask { to: self.participation.of(t), down: Message::one(t, TELL, Part::Direction, v) });
        Next::Done { tell }
    }

    fn theta(&self) -> &[f64] {
        &self.theta
    }

    fn state(&self) -> Vec<Vec<f64>> {
        vec![self.theta.clone()]
    }

    fn restore(&mut self, mut state: Vec<Vec<f64>>) {
        self.theta = state.remove(0);
    }
}
