//! The model of an agent's last question, and its gradient there.

use fedsa::error::{Error, Result};
use fedsa::local::LocalContext;
use fedsa::message::{Body, Message, Part};
use fedsa::protocol::refused;
use serde::{Deserialize, Serialize};

use super::line_search::Trials;

/// An agent's state between the exchanges of a round: `theta_t` of the last question with a model, and `grad f_c(theta_t)`, d components
/// each; both are empty before the first.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Point {
    pub(crate) theta: Vec<f64>,
    pub(crate) gradient: Vec<f64>,
}

impl Point {
    /// The model of a question, and the agent's gradient there.
    pub(crate) fn asked(at: &LocalContext<'_>, down: &Message) -> Self {
        Self::at(at, down.part(Part::Model).to_vec())
    }

    /// A point, and the agent's gradient there.
    pub(crate) fn at(at: &LocalContext<'_>, theta: Vec<f64>) -> Self {
        let mut gradient = vec![0.0; theta.len()];
        at.gradient(&theta, &mut gradient);
        Self { theta, gradient }
    }

    /// The answer to a step: the losses along it.
    ///
    /// # Errors
    /// When the agent has no point of the step's length.
    pub(crate) fn losses(&self, at: &LocalContext<'_>, trials: &Trials, step: &[f64]) -> Result<Vec<(Part, Body)>> {
        if self.theta.len() != step.len() {
            return Err(refused("a step before the first model", "the exchanges of a round in their order"));
        }
        Ok(vec![(Part::Losses, Body::Numbers(trials.answer(at, &self.theta, &self.gradient, step)))])
    }

    /// Both vectors as bytes: theta, then the gradient, numbers in little-endian order.
    pub(crate) fn save(&self) -> Vec<u8> {
        self.theta.iter().chain(&self.gradient).flat_map(|x| x.to_le_bytes()).collect()
    }

    /// Reads the bytes of [`Point::save`]; `whose` names the agent in the error, such as `a Newton agent`.
    ///
    /// # Errors
    /// When the bytes are not two vectors of one length.
    pub(crate) fn restored(bytes: &[u8], whose: &str) -> Result<Self> {
        let (numbers, rest) = bytes.as_chunks::<8>();
        if !rest.is_empty() || !numbers.len().is_multiple_of(2) {
            return Err(Error::format("checkpoint", format!("not the state of {whose}"), "a checkpoint of the same settings"));
        }
        let mut theta: Vec<f64> = numbers.iter().map(|b| f64::from_le_bytes(*b)).collect();
        let gradient = theta.split_off(numbers.len() / 2);
        Ok(Self { theta, gradient })
    }
}

/// Restores an agent without state.
pub(crate) fn without_state(bytes: &[u8]) -> Result<()> {
    if bytes.is_empty() {
        Ok(())
    } else {
        Err(Error::format("checkpoint", "the state of another agent", "a checkpoint of the same settings"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_saved_is_restored_and_anything_else_refused() {
        let point = Point { theta: vec![1.0, -0.0], gradient: vec![f64::MIN_POSITIVE, 1e300] };
        let bytes = point.save();
        assert_eq!(bytes.len(), 32);
        let again = Point::restored(&bytes, "an agent").unwrap();
        assert_eq!((again.save(), &again), (bytes.clone(), &point));
        assert_eq!(Point::restored(&[], "an agent").unwrap(), Point::default());
        for length in [31, 24, 1] {
            let e = Point::restored(&bytes[..length], "a Newton agent").unwrap_err();
            assert!(e.key == "checkpoint" && e.what.contains("a Newton agent"), "{e:?}");
        }
    }
}
