//! Newton's method with backtracking: summed gradients, and the Hessian of each agent.
//!
//! ```text
//! round t:   g = sum_c p_c grad f_c(theta_t),  H = sum_c p_c Hess f_c(theta_t)      (first exchange)
//!            p = -H^-1 g                        (-g where H is not positive definite)
//!            L(s) = sum_c p_c f_c(theta_t + s p),  s in {0, 1, 1/2, .., 2^-K},
//!            D = sum_c p_c p^T grad f_c(theta_t)                                      (second exchange)
//!            theta_{t+1} = theta_t + s p,  the first s > 0 with L(s) <= L(0) + a s D; theta_t if there is none
//! ```
//! For problems with an objective, gbar_c = -grad f_c, including linear ones with symmetric `A_c`. The losses include s = 0 and the slope,
//! so that a missing agent counts as zero in all of them. If an agent's Hessian is missing, its last one counts. A missing gradient counts
//! as zero: over a link that loses messages, a round steps to the root of the agents that arrived, and does not settle.
//!
//! Source: Newton's method, Armijo (1966). Methods with Hessian eigenvectors (\[T\] chapter 2) build on the same exchanges.

use faer::Mat;
use fedsa::error::Result;
use fedsa::linalg;
use fedsa::local::{Agent, ByAgent, Client, LocalContext};
use fedsa::message::{Body, Message, Part};
use fedsa::method::{MethodSettings, MethodShape, Needs, Setting};
use fedsa::protocol::{Exchange, Gather, Len, Protocol, ReplySpec};
use fedsa::saved::{packed, unpacked};
use fedsa::server::{Broadcast, Next, Received, Server};
use fedsa::uplink::LinkFacts;
use serde::{Deserialize, Serialize};

use crate::descent;
use crate::local::Point;
use crate::local::line_search::Trials;
use crate::server::approximation::NewtonSteps;

/// The settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Newton {
    /// Most halvings.
    #[cfg_attr(feature = "schema", schemars(range(max = 60)))]
    pub halvings: usize,
    /// Armijo constant.
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0, "exclusiveMaximum" = 0.5)))]
    pub decrease: f64,
}

fedsa::settings::setters! { Newton {
    with_halvings(halvings: usize) = halvings;
    with_decrease(decrease: f64) = decrease;
} }

impl Default for Newton {
    fn default() -> Self {
        Self { halvings: 20, decrease: 1e-4 }
    }
}

impl Newton {
    /// The trial steps: 0, 1, 1/2, ..
    fn trials(&self) -> Trials {
        Trials::new(0.5, self.halvings, self.decrease)
    }
}

impl MethodSettings for Newton {
    fn check(&self, _: usize) -> Result<()> {
        descent::check_search(self.halvings, self.decrease)
    }

    fn check_link(&self, link: &LinkFacts) -> Result<()> {
        descent::check_exact_losses(link)
    }

    fn needs(&self) -> Needs {
        Needs::Objective
    }

    fn protocol(&self, setting: &Setting<'_>) -> Protocol {
        let d = setting.start.len();
        let want = |part, len, gather| ReplySpec { part, len: Len::Exactly(len), gather };
        // Where single Hessians arrive, the last one of an agent stands for one that is lost.
        let hessians = if setting.link.is_sum_only { Gather::Sum } else { Gather::Each };
        let first = Exchange {
            down: vec![(Part::Model, Len::Exactly(d))],
            own: Vec::new(),
            replies: vec![want(Part::Gradient, d, Gather::Sum), want(Part::Hessian, d * (d + 1) / 2, hessians)],
            may_open: false,
        };
        Protocol { exchanges: vec![first, self.trials().exchange(d)], ..Protocol::default() }
    }

    fn client(&self, _: &Setting<'_>) -> Box<dyn Client> {
        let trials = self.trials();
        ByAgent::boxed(move |_| Box::new(NewtonAgent::new(trials.clone())))
    }

    fn server(&self, setting: &Setting<'_>) -> Box<dyn Server> {
        Box::new(NewtonServer {
            steps: NewtonSteps::new(setting.start.clone(), Some(self.trials())),
            weights: setting.weights.to_vec(),
            hessians: vec![Vec::new(); setting.agents()],
        })
    }

    /// For each agent, the last Hessian at the server and one in transit, both as lower triangles, and the one that it computed.
    fn memory(&self, agents: usize, d: usize) -> f64 {
        let d = d as f64;
        agents as f64 * (16.0 * d * (d + 1.0) / 2.0 + 8.0 * d * d)
    }

    /// A matrix product for each loss and for the gradient, and the Hessian with its copy.
    fn work(&self, _: usize, d: usize) -> f64 {
        (self.trials().losses() as f64 + 3.0) * (d as f64).powi(2)
    }

    fn shape(&self) -> MethodShape {
        MethodShape::without_local_steps()
    }
}

/// In the first exchange the agent sends `grad f_c(theta_t)`, d numbers, and the lower triangle of `Hess f_c(theta_t)`, d (d + 1) / 2
/// numbers. In the second it sends the losses `f_c(theta_t + s p)` for the trial steps s, starting with s = 0, followed by the slope
/// `p^T grad f_c(theta_t)`.
#[derive(Debug, Clone)]
pub struct NewtonAgent {
    /// The trial steps s.
    pub trials: Trials,
    /// The last model of a question.
    point: Point,
}

impl NewtonAgent {
    /// The agent before its first round, with these trial steps.
    pub fn new(trials: Trials) -> Self {
        Self { trials, point: Point::default() }
    }
}

impl Agent for NewtonAgent {
    fn answer(&mut self, at: &LocalContext<'_>, down: &Message) -> Result<Vec<(Part, Body)>> {
        if down.exchange == 0 {
            self.point = Point::asked(at, down);
            let lower = at.hessian_triangle(&self.point.theta);
            return Ok(vec![(Part::Gradient, Body::Numbers(self.point.gradient.clone())), (Part::Hessian, Body::Numbers(lower))]);
        }
        self.point.losses(at, &self.trials, down.part(Part::Step))
    }

    fn save(&self) -> Vec<u8> {
        self.point.save()
    }

    fn restore(&mut self, bytes: &[u8]) -> Result<()> {
        self.point = Point::restored(bytes, "a Newton agent")?;
        Ok(())
    }
}

/// Computes the step from the mean of the agents' Hessians, and shortens it by the mean of their losses (backtracking).
///
/// The rule keeps the last Hessian that arrived from each agent, N d (d + 1) / 2 numbers, and uses it if the next one is
/// lost.
#[derive(Debug, Clone)]
pub struct NewtonServer {
    /// `theta_t`, and the line search.
    pub steps: NewtonSteps,
    /// The agents' weights `p_c`.
    pub weights: Vec<f64>,
    /// The last Hessian of each agent as a lower triangle, d (d + 1) / 2 numbers; empty before the first.
    pub hessians: Vec<Vec<f64>>,
}

impl NewtonServer {
    /// The mean of the known Hessians, a lower triangle; `None` without any.
    fn mean_hessian(&self) -> Option<Vec<f64>> {
        let known = || self.weights.iter().zip(&self.hessians).filter(|(_, lower)| !lower.is_empty());
        let mut mean = vec![0.0; known().next()?.1.len()];
        let mut weight = 0.0;
        for (p, lower) in known() {
            weight += p;
            mean.iter_mut().zip(lower).for_each(|(mean, h)| *mean += p * h);
        }
        mean.iter_mut().for_each(|mean| *mean /= weight);
        Some(mean)
    }

    /// The step `p = -H^-1 g` of a mean Hessian, a lower triangle; `-g` if H is not positive definite or the step not finite. `None` without
    /// a Hessian, or if g is 0.
    fn direction(g: &[f64], mean: Option<&[f64]>) -> Option<Vec<f64>> {
        let (d, mean) = (g.len(), mean?);
        if g.iter().all(|g| *g == 0.0) {
            return None;
        }
        let h = Mat::from_fn(d, d, |i, j| mean[i.max(j) * (i.max(j) + 1) / 2 + i.min(j)]);
        let minus: Vec<f64> = g.iter().map(|g| -g).collect();
        Some(linalg::solve_definite(&h, &minus).unwrap_or(minus))
    }
}

impl Server for NewtonServer {
    fn open(&mut self, t: u64) -> Broadcast {
        Broadcast { to: None, down: self.steps.question(t), own: None }
    }

    fn receive(&mut self, got: &Received<'_>) -> Next {
        if got.exchange == 0 {
            let sum = got.sums.iter().any(|(part, _)| *part == Part::Hessian).then(|| got.mean(Part::Hessian));
            for update in got.updates {
                let hessian = update.parts.iter().find(|(part, _)| *part == Part::Hessian);
                self.hessians[update.agent] = hessian.map(|(_, body)| body.to_numbers()).unwrap_or_default();
            }
            let g = self.steps.see(got, Part::Gradient, 0);
            let mean = sum.or_else(|| self.mean_hessian());
            let p = Self::direction(&g, mean.as_deref());
            return self.steps.along(got.round, p);
        }
        self.steps.after_losses(got)
    }

    fn theta(&self) -> &[f64] {
        &self.steps.theta
    }

    fn regrouped(&self, from: &[Option<usize>], _: &[f64]) -> Option<Vec<u8>> {
        let hessian = |c: &Option<usize>| c.map_or(Vec::new(), |c| self.hessians[c].clone());
        Some(packed(&(&self.steps, from.iter().map(hessian).collect::<Vec<_>>())))
    }

    fn state(&self) -> Vec<u8> {
        packed(&(&self.steps, &self.hessians))
    }

    fn restore(&mut self, state: &[u8]) -> Result<()> {
        (self.steps, self.hessians) = unpacked(state)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_work_are_those_of_hessians_and_losses() {
        let newton = Newton::default();
        // Two triangles of 3 numbers and a square of 4, for 5 agents.
        assert_eq!(newton.memory(5, 2), 5.0 * 8.0 * (3.0 + 3.0 + 4.0));
        assert_eq!(newton.work(1, 10), 2500.0);
        assert!(Newton { halvings: 60, ..newton }.work(1, 10) > 2.0 * newton.work(1, 10));
    }

    /// The mean Hessian of the known agents decides: Newton's step if it is positive definite, otherwise minus the gradient.
    #[test]
    fn without_a_definite_hessian_the_step_is_minus_the_gradient() {
        let server = |hessians: [&[f64]; 2]| NewtonServer {
            steps: NewtonSteps::new(vec![0.0; 2], None),
            weights: vec![0.5; 2],
            hessians: hessians.map(<[f64]>::to_vec).into(),
        };
        let g = [2.0, -6.0];
        // The means are the diagonals (4, 16), (1, 4), (2, -3) and (1, 0); powers of 4 have exact factors.
        let cases: [([&[f64]; 2], [f64; 2]); 4] = [
            ([&[3.0, 0.0, 10.0], &[5.0, 0.0, 22.0]], [-0.5, 0.375]),
            ([&[1.0, 0.0, 4.0], &[]], [-2.0, 1.5]),
            ([&[1.0, 0.0, -7.0], &[3.0, 0.0, 1.0]], [-2.0, 6.0]),
            ([&[1.0, 0.0, 0.0], &[]], [-2.0, 6.0]),
        ];
        for (hessians, p) in cases {
            assert_eq!(NewtonServer::direction(&g, server(hessians).mean_hessian().as_deref()), Some(p.to_vec()), "{hessians:?}");
        }
        assert_eq!(NewtonServer::direction(&g, server([&[], &[]]).mean_hessian().as_deref()), None);
        assert_eq!(NewtonServer::direction(&[0.0; 2], Some(&[1.0, 0.0, 1.0])), None);
    }
}
