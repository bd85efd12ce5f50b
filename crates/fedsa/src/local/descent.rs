//! The client half of methods that move along a direction: gradients, directions of the agents' own, and losses along a step.

use super::line_search::Trials;
use super::{Agent, At};
use crate::error::{BadInput, Result};
use crate::linalg::dot;
use crate::message::{Body, Message, Part};
use crate::protocol::refused;

/// How an agent computes its own Newton direction `-H_c^-1 g` from products with its Hessian `H_c` at `theta_t`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LocalSolve {
    /// Conjugate gradients from 0, until `||H_c p + g|| <= tolerance ||g||`, after at most `steps` products, or where
    /// `H_c` curves downwards (then with what has been found, and `-g` at first).
    Cg {
        /// The relative residual.
        tolerance: f64,
        /// The most products.
        steps: usize,
    },
    /// Richardson's iteration `p <- p - size (H_c p + g)` from 0: `steps` times, of which the first needs no product.
    Richardson {
        /// The size of a step.
        size: f64,
        /// The number of steps R.
        steps: usize,
    },
}

impl LocalSolve {
    /// `p` with `H p ~ -g`; `product(v)` is `H v`. All vectors have d components.
    pub fn direction(self, g: &[f64], product: impl FnMut(&[f64]) -> Vec<f64>) -> Vec<f64> {
        match self {
            LocalSolve::Cg { tolerance, steps } => conjugate_gradients(g, tolerance, steps, product),
            LocalSolve::Richardson { size, steps } => richardson(g, size, steps, product),
        }
    }
}

/// Hestenes and Stiefel (1952) for `H p = -g`.
fn conjugate_gradients(g: &[f64], tolerance: f64, steps: usize, mut product: impl FnMut(&[f64]) -> Vec<f64>) -> Vec<f64> {
    let mut p = vec![0.0; g.len()];
    // r = -g - H p, the residual; v the direction of search.
    let mut r: Vec<f64> = g.iter().map(|g| -g).collect();
    let mut v = r.clone();
    let mut rr = dot(&r, &r);
    let enough = tolerance * tolerance * rr;
    for k in 0..steps {
        if rr <= enough {
            break;
        }
        let hv = product(&v);
        let curvature = dot(&v, &hv);
        if !(curvature > 0.0) {
            return if k == 0 { v } else { p };
        }
        let a = rr / curvature;
        p.iter_mut().zip(&v).for_each(|(p, v)| *p = a.mul_add(*v, *p));
        r.iter_mut().zip(&hv).for_each(|(r, hv)| *r = (-a).mul_add(*hv, *r));
        let before = std::mem::replace(&mut rr, dot(&r, &r));
        v.iter_mut().zip(&r).for_each(|(v, r)| *v = (rr / before).mul_add(*v, *r));
    }
    p
}

fn richardson(g: &[f64], size: f64, steps: usize, mut product: impl FnMut(&[f64]) -> Vec<f64>) -> Vec<f64> {
    let mut p: Vec<f64> = g.iter().map(|g| -size * g).collect();
    for _ in 1..steps {
        let hp = product(&p);
        p.iter_mut().zip(hp.iter().zip(g)).for_each(|(p, (hp, g))| *p -= size * (hp + g));
    }
    p
}

/// Answers a model with the gradient `grad f_c(theta_t)`; the mean gradient with the agent's own Newton direction; and a
/// step with the losses along it. A method asks for what it needs, in this order.
#[derive(Debug, Clone)]
pub struct DescentAgent {
    trials: Option<Trials>,
    solve: Option<LocalSolve>,
    /// `theta_t` of the last question; empty before the first.
    theta: Vec<f64>,
    /// `grad f_c(theta_t)`.
    gradient: Vec<f64>,
}

impl DescentAgent {
    /// The agent before its first round, with the trial steps of a line search and the way to a direction of its own, if
    /// the method has them.
    pub fn new(trials: Option<Trials>, solve: Option<LocalSolve>) -> Self {
        Self { trials, solve, theta: Vec::new(), gradient: Vec::new() }
    }
}

impl Agent for DescentAgent {
    fn answer(&mut self, at: &At<'_>, down: &Message) -> Result<Vec<(Part, Body)>> {
        if down.find(Part::Model).is_some() {
            self.theta = down.part(Part::Model).to_vec();
            self.gradient = vec![0.0; self.theta.len()];
            at.gradient(&self.theta, &mut self.gradient);
            return Ok(vec![(Part::Gradient, Body::Numbers(self.gradient.clone()))]);
        }
        let x = down.parts.first().and_then(|(_, body)| body.numbers()).unwrap_or(&[]);
        if x.len() != self.theta.len() {
            return Err(refused("a direction before the first model", "the exchanges of a round in their order"));
        }
        if let (Some(_), Some(solve)) = (down.find(Part::Gradient), self.solve) {
            let mut products = at.hessian_products(&self.theta);
            let product = |v: &[f64]| {
                let mut out = vec![0.0; v.len()];
                products(v, &mut out);
                out
            };
            return Ok(vec![(Part::Direction, Body::Numbers(solve.direction(x, product)))]);
        }
        let trials = self.trials.as_ref().ok_or_else(|| refused("a step", "the exchanges of this method"))?;
        Ok(vec![(Part::Losses, Body::Numbers(trials.answer(at, &self.theta, &self.gradient, x)))])
    }

    fn save(&self) -> Vec<u8> {
        self.theta.iter().chain(&self.gradient).flat_map(|x| x.to_le_bytes()).collect()
    }

    fn restore(&mut self, bytes: &[u8]) -> Result<()> {
        let (numbers, rest) = bytes.as_chunks::<8>();
        if !rest.is_empty() || numbers.len() % 2 != 0 {
            return Err(BadInput::new("checkpoint", "not the state of an agent of a descent method", "a checkpoint of the same settings"));
        }
        let mut numbers: Vec<f64> = numbers.iter().map(|b| f64::from_le_bytes(*b)).collect();
        self.gradient = numbers.split_off(numbers.len() / 2);
        self.theta = numbers;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const H: [[f64; 3]; 3] = [[4.0, 1.0, 0.0], [1.0, 3.0, -1.0], [0.0, -1.0, 2.0]];
    const G: [f64; 3] = [1.0, -2.0, 0.5];

    fn product(v: &[f64]) -> Vec<f64> {
        H.iter().map(|row| dot(row, v)).collect()
    }

    fn residual(p: &[f64]) -> f64 {
        product(p).iter().zip(&G).map(|(hp, g)| (hp + g).powi(2)).sum::<f64>().sqrt()
    }

    #[test]
    fn conjugate_gradients_are_exact_after_d_products_and_stop_at_their_tolerance() {
        let mut products = 0;
        let mut counted = |v: &[f64]| {
            products += 1;
            product(v)
        };
        let exact = LocalSolve::Cg { tolerance: 0.0, steps: 3 }.direction(&G, &mut counted);
        assert!(residual(&exact) < 1e-14 && products == 3);
        let loose = LocalSolve::Cg { tolerance: 0.3, steps: 3 }.direction(&G, product);
        let r = residual(&loose) / dot(&G, &G).sqrt();
        assert!(r <= 0.3 && r > 1e-3, "{r}");
        // Where the Hessian curves downwards at first: the gradient's direction.
        let down = LocalSolve::Cg { tolerance: 0.0, steps: 3 }.direction(&G, |v| v.iter().map(|v| -v).collect());
        assert_eq!(down, G.map(|g| -g));
    }

    /// The error of Richardson's iteration is `(I - size H)^R H^-1 g`.
    #[test]
    fn richardson_contracts_as_its_matrix() {
        let newton = LocalSolve::Cg { tolerance: 0.0, steps: 3 }.direction(&G, product);
        let (size, steps) = (0.2, 7);
        let p = LocalSolve::Richardson { size, steps }.direction(&G, product);
        let mut error = newton.clone();
        for _ in 0..steps {
            let he = product(&error);
            error.iter_mut().zip(he).for_each(|(e, he)| *e -= size * he);
        }
        let apart = p.iter().zip(&newton).zip(&error).map(|((p, n), e)| (n - p - e).abs()).fold(0.0, f64::max);
        assert!(apart < 1e-14, "{apart:e}");
    }
}
