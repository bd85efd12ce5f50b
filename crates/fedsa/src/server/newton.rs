//! The server half of Newton's method: the step of the mean objective, and its length.

use faer::Mat;

use super::{Ask, Next, Received, Server};
use crate::error::Result;
use crate::linalg;
use crate::local::line_search::LineSearch;
use crate::message::{Message, Part};
use crate::saved::{packed, unpacked};

/// Computes the step from the mean of the agents' Hessians, and shortens it by the mean of their losses (backtracking).
///
/// The rule keeps the last Hessian that arrived from each agent, N d (d + 1) / 2 numbers, and uses it if the next one is
/// lost.
#[derive(Debug, Clone)]
pub struct NewtonServer {
    /// `theta_t`.
    pub theta: Vec<f64>,
    /// The agents' weights `p_c`.
    pub weights: Vec<f64>,
    /// The line search.
    pub search: LineSearch,
    /// The last Hessian of each agent as a lower triangle, d (d + 1) / 2 numbers; empty before the first.
    pub hessians: Vec<Vec<f64>>,
}

impl NewtonServer {
    /// The step `p = -H^-1 g`; `-g` if H is not positive definite, or the step not finite. `None` if no Hessian has arrived or g is 0.
    fn direction(&self, g: &[f64]) -> Option<Vec<f64>> {
        let d = g.len();
        let mut h = Mat::<f64>::zeros(d, d);
        let mut weight = 0.0;
        for (p, lower) in self.weights.iter().zip(&self.hessians).filter(|(_, lower)| !lower.is_empty()) {
            weight += p;
            for i in 0..d {
                for j in 0..=i {
                    h[(i, j)] += p * lower[i * (i + 1) / 2 + j];
                }
            }
        }
        if weight == 0.0 || g.iter().all(|g| *g == 0.0) {
            return None;
        }
        for i in 0..d {
            for j in 0..=i {
                h[(i, j)] /= weight;
                h[(j, i)] = h[(i, j)];
            }
        }
        let minus: Vec<f64> = g.iter().map(|g| -g).collect();
        Some(linalg::solve_definite(&h, &minus).unwrap_or(minus))
    }
}

impl Server for NewtonServer {
    fn open(&mut self, t: u64) -> Ask {
        Ask { to: None, down: Message::one(t, 0, Part::Model, self.theta.clone()), own: None }
    }

    fn receive(&mut self, got: &Received<'_>) -> Next {
        if got.exchange == 0 {
            for letter in got.letters {
                let hessian = letter.parts.iter().find(|(part, _)| *part == Part::Hessian);
                self.hessians[letter.agent] = hessian.map(|(_, body)| body.to_numbers()).unwrap_or_default();
            }
            // Where the downlink alters models, gradients are those at the model that agents decoded.
            self.theta = got.down.part(Part::Model).to_vec();
            let g = got.mean(Part::Gradient);
            self.search.begin(&g, got.arrived.is_empty());
            let Some(p) = self.direction(&g) else { return Next::Done { tell: None } };
            return Next::Ask(Ask { to: None, down: Message::one(got.round, 1, Part::Step, p), own: None });
        }
        // theta_{t+1} = theta_t + s p. If no answer arrived, losses and slope are zero, and no step is accepted.
        let p = got.down.part(Part::Step);
        if let Some(s) = self.search.step(p, &got.mean(Part::Losses), got.arrived.is_empty(), Some(1.0)) {
            self.theta.iter_mut().zip(p).for_each(|(x, p)| *x = s.mul_add(*p, *x));
        }
        Next::Done { tell: None }
    }

    fn theta(&self) -> &[f64] {
        &self.theta
    }

    fn regrouped(&self, from: &[Option<usize>], _: &[f64]) -> Option<Vec<u8>> {
        let hessian = |c: &Option<usize>| c.map_or(Vec::new(), |c| self.hessians[c].clone());
        Some(packed(&(&self.theta, &self.search, from.iter().map(hessian).collect::<Vec<_>>())))
    }

    fn state(&self) -> Vec<u8> {
        packed(&(&self.theta, &self.search, &self.hessians))
    }

    fn restore(&mut self, state: &[u8]) -> Result<()> {
        (self.theta, self.search, self.hessians) = unpacked(state)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::line_search::Trials;

    /// The mean Hessian of the agents that are known decides: Newton's step where it is positive definite, else minus the gradient.
    #[test]
    fn without_a_definite_hessian_the_step_is_minus_the_gradient() {
        let server = |hessians: [&[f64]; 2]| NewtonServer {
            theta: vec![0.0; 2],
            weights: vec![0.5; 2],
            search: LineSearch::new(Trials::new(0.5, 3, 1e-4)),
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
            assert_eq!(server(hessians).direction(&g), Some(p.to_vec()), "{hessians:?}");
        }
        assert_eq!(server([&[], &[]]).direction(&g), None);
        assert_eq!(server([&[1.0, 0.0, 1.0], &[]]).direction(&[0.0; 2]), None);
    }
}
