//! Values of actions that are linear in features of states, and policies that follow them.

use super::greedy::greedy;
use super::pessimism::Caution;
use fedsa::linalg;

/// `q(s, a) = phi(s)^T theta_a`, with the m weights of each of K actions one after the other.
#[derive(Debug, Clone, Copy)]
pub struct ActionValues<'a> {
    theta: &'a [f64],
    /// The number m of features of a state.
    features: usize,
    caution: Option<&'a Caution>,
}

impl<'a> ActionValues<'a> {
    /// The values with these weights (K m).
    ///
    /// # Panics
    /// When the number of weights is not a multiple of m.
    pub fn new(theta: &'a [f64], features: usize) -> Self {
        assert!(features > 0 && theta.len().is_multiple_of(features), "weights of whole actions");
        Self { theta, features, caution: None }
    }

    /// The same values with a policy that avoids rare actions.
    #[must_use]
    pub fn with_caution(self, caution: Option<&'a Caution>) -> Self {
        Self { caution, ..self }
    }

    /// The number of actions K.
    pub fn actions(&self) -> usize {
        self.theta.len() / self.features
    }

    /// Writes the values of the actions (K) in a state with these features (m).
    pub fn write(&self, phi: &[f64], q: &mut [f64]) {
        q.iter_mut().zip(self.theta.chunks_exact(self.features)).for_each(|(q, theta)| *q = linalg::dot(phi, theta));
    }

    /// The action that the policy takes in a state with these features: the greedy one, without rare ones if they are avoided. `q` (K) is
    /// overwritten.
    pub fn choice(&self, phi: &[f64], q: &mut [f64]) -> usize {
        self.write(phi, q);
        if let Some(caution) = self.caution {
            caution.lower(phi, q);
        }
        greedy(q)
    }

    /// Writes the probabilities of the actions (K) in a state with these features: the chosen action, or with probability `soften` any.
    pub fn write_policy(&self, phi: &[f64], soften: f64, law: &mut [f64]) {
        let (best, any) = (self.choice(phi, law), soften / law.len() as f64);
        law.iter_mut().enumerate().for_each(|(a, p)| *p = if a == best { 1.0 - soften + any } else { any });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_follow_values() {
        let values = ActionValues::new(&[1.0, 2.0, 3.0, -1.0, 0.0, 2.5], 2);
        let mut q = [0.0; 3];
        values.write(&[1.0, 2.0], &mut q);
        assert_eq!((values.actions(), q), (3, [5.0, 1.0, 5.0]));
        // Ties go to the lowest action.
        values.write_policy(&[1.0, 2.0], 0.3, &mut q);
        assert!(q.iter().zip([0.8, 0.1, 0.1]).all(|(p, expected)| (p - expected).abs() < 1e-15), "{q:?}");
        values.write_policy(&[1.0, 0.0], 0.0, &mut q);
        assert_eq!(q, [0.0, 1.0, 0.0]);
    }
}
