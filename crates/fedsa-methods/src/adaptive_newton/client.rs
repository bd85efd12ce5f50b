//! The client half of [`crate::adaptive_newton`]: gradients with losses, local Newton directions, and Hessians.

use fedsa::error::Result;
use fedsa::local::{Agent, LocalContext};
use fedsa::message::{Body, Message, Part};
use fedsa::protocol::refused;

use crate::local::Point;
use crate::local::descent::LocalSolve;
use crate::local::line_search::UNKNOWN_LOSS;

/// The exchange in which agents also send their Hessians with the gradient.
const WITH_HESSIAN: u8 = 3;

/// Answers
/// - a model with `grad f_c` and `f_c` there, or with 0 and 1e300 if these are not finite; in the last exchange with `H_c` too;
/// - a vector g with `-H_c^-1 g`, `H_c` the Hessian at the last model;
/// - a message without content with the lower triangle of `H_c`: d (d + 1) / 2 numbers, or non-zero entries with their indices if that is
///   shorter.
#[derive(Debug, Clone)]
pub struct AdaptiveNewtonAgent {
    solve: LocalSolve,
    /// The last model of a question.
    point: Point,
}

impl AdaptiveNewtonAgent {
    /// The agent before its first round; `solve` computes its Newton directions.
    pub fn new(solve: LocalSolve) -> Self {
        Self { solve, point: Point::default() }
    }

    /// The lower triangle of `H_c` at the last model.
    fn hessian(&self, at: &LocalContext<'_>) -> Body {
        Body::of_numbers(at.hessian_triangle(&self.point.theta))
    }
}

impl Agent for AdaptiveNewtonAgent {
    fn answer(&mut self, at: &LocalContext<'_>, down: &Message) -> Result<Vec<(Part, Body)>> {
        if down.find(Part::Model).is_some() {
            self.point = Point::asked(at, down);
            let (loss, mut gradient) = (at.loss(&self.point.theta), self.point.gradient.clone());
            let is_known = loss.is_finite() && gradient.iter().all(|g| g.is_finite());
            // A trial point with an overflowing loss, such as exp after a step of 1000, must not be accepted, but is no divergence.
            let loss = if is_known { loss } else { UNKNOWN_LOSS };
            gradient.iter_mut().filter(|_| !is_known).for_each(|g| *g = 0.0);
            let mut answer = vec![(Part::Gradient, Body::Numbers(gradient)), (Part::Losses, Body::Numbers(vec![loss]))];
            if down.exchange == WITH_HESSIAN {
                answer.push((Part::Hessian, self.hessian(at)));
            }
            return Ok(answer);
        }
        let d = self.point.theta.len();
        let vector = down.find(Part::Gradient).and_then(Body::numbers);
        if d == 0 || vector.is_some_and(|g| g.len() != d) {
            return Err(refused("a question before the first model", "the exchanges of a round in their order"));
        }
        if let Some(g) = vector {
            return Ok(vec![(Part::Direction, Body::Numbers(self.solve.direction(at, &self.point.theta, g)))]);
        }
        Ok(vec![(Part::Hessian, self.hessian(at))])
    }

    fn save(&self) -> Vec<u8> {
        self.point.save()
    }

    fn restore(&mut self, bytes: &[u8]) -> Result<()> {
        self.point = Point::restored(bytes, "an agent of adaptive-newton")?;
        Ok(())
    }
}
