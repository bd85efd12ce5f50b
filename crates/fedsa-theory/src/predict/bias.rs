//! Methods whose noiseless limit is theta* itself, and the rounding error of a bias.

use super::Forecast;
use super::round::Round;
use crate::predict::rounding;
use fedsa::error::Result;
use fedsa::linalg;
use fedsa::method::Drift;

/// The reason why a method has no bias at any step size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoBias {
    /// Control variates remove it.
    Controls,
    /// Every step uses the mean operator, and all agents participate.
    Memory,
    /// With one local step the mean of the directions is the mean operator.
    OneStep,
    /// All agents have the same system, and so the same root.
    SameSystem,
    /// All agents have the same matrix. Local steps shrink their operators equally, and these sum to 0 at theta*.
    SameMatrix,
}

impl Forecast {
    /// Why the limit without noise is exactly theta*; `None` where it may differ, although the computed bias may be 0 to rounding.
    ///
    /// # Errors
    /// When a round is not a known linear map.
    pub fn no_bias(&self) -> Result<Option<NoBias>> {
        let round = self.linear()?;
        Ok(match self.shape.drift {
            Drift::ControlVariate { .. } => Some(NoBias::Controls),
            Drift::GlobalMemory { .. } => (round.mixing() == 1.0).then_some(NoBias::Memory),
            Drift::Zero if round.setting.local_steps == 1 => Some(NoBias::OneStep),
            Drift::Zero => alike(&round),
            Drift::NoSteps => None,
        })
    }

    /// The approximate rounding error of the squared bias: from theta*, and from the agents' operators at theta*. These have the sum 0,
    /// and their size in units of theta is `||Abar^-1 gbar_c(theta*)||`.
    ///
    /// # Errors
    /// When a round is not a known linear map, or the mean system has no unique root.
    pub fn bias_rounding(&self) -> Result<f64> {
        let round = self.linear()?;
        let root = round.systems.root()?;
        let mean = round.systems.mean().a;
        let mut largest = rounding(&root);
        for system in &round.systems.kinds {
            largest = largest.max(rounding(&linalg::solve(&mean, &system.mean(&root))?));
        }
        Ok(largest)
    }
}

/// Whether the agents' systems, or their matrices, are all the same.
fn alike(round: &Round<'_>) -> Option<NoBias> {
    let (kinds, weights) = (&round.systems.kinds, round.systems.kind_weights());
    let mut used = kinds.iter().zip(weights).filter(|(_, weight)| *weight > 0.0).map(|(system, _)| system);
    let first = used.next()?;
    let (mut same_b, mut same_a) = (true, true);
    for system in used {
        same_a &= system.a == first.a;
        same_b &= system.b == first.b;
    }
    match (same_a, same_b) {
        (true, true) => Some(NoBias::SameSystem),
        (true, false) => Some(NoBias::SameMatrix),
        (false, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use fedsa::kernel::Isa;
    use fedsa::method::MethodSettings as _;
    use fedsa::problem::Field;
    use fedsa::sampling::{Law, Sampling};
    use fedsa_methods::fedhsa::FedHsa;
    use fedsa_methods::fedlsa::FedLsa;
    use fedsa_methods::scafflsa::Scafflsa;
    use fedsa_problems::linear::affine::LinearSystems;
    use fedsa_problems::{NoFiles, ProblemSettings as _};

    fn two(a: [f64; 2], b: [f64; 2]) -> Arc<dyn Field> {
        let linear = LinearSystems::default().with_a(a.map(|a| vec![vec![a]]).to_vec()).with_b(b.map(|b| vec![b]).to_vec());
        linear.field(&NoFiles, Sampling::default().with_kind(Law::Mean), Isa::best()).unwrap()
    }

    #[test]
    fn a_bias_that_is_0_exactly_has_a_reason_and_a_small_one_has_none() {
        let (different, same, shifted) = (two([1.0, 3.0], [1.0, -2.0]), two([2.0; 2], [1.0; 2]), two([2.0; 2], [1.0, -3.0]));
        let reason = |field: &Arc<dyn Field>, shape| Forecast::new(field, shape).no_bias().unwrap();
        for eta in [0.1, 1e-9, 1e-15] {
            let steps = FedLsa::new(eta, 5).shape();
            assert_eq!(reason(&different, steps), None);
            assert_eq!(reason(&same, steps), Some(NoBias::SameSystem));
            assert_eq!(reason(&shifted, steps), Some(NoBias::SameMatrix));
            assert_eq!(reason(&different, FedLsa::new(eta, 1).shape()), Some(NoBias::OneStep));
            assert_eq!(reason(&different, FedHsa::new(eta, 5).shape()), Some(NoBias::Memory));
            assert_eq!(reason(&different, Scafflsa::new(eta, 5).shape()), Some(NoBias::Controls));
            // With a reason the computed bias is within its rounding error.
            for field in [&same, &shifted] {
                let of = Forecast::new(field, steps);
                assert!(of.bias_sq().unwrap() <= of.bias_rounding().unwrap());
            }
        }
        // Without one it exceeds the rounding error at large steps, and is below it at tiny ones.
        let of = |eta: f64| Forecast::new(&different, FedLsa::new(eta, 5).shape());
        assert!(of(0.1).bias_sq().unwrap() > 1e10 * of(0.1).bias_rounding().unwrap());
        assert!(of(1e-16).bias_sq().unwrap() <= of(1e-16).bias_rounding().unwrap());
        // Some of the agents.
        let few = FedHsa::new(0.1, 5).with_participants(1);
        assert_eq!(reason(&different, few.shape()), None);
    }

    /// The root may be 0 although the agents' own roots are not.
    #[test]
    fn rounding_of_operators_that_cancel_counts() {
        let field = two([1.0, 1.0], [1.0, -1.0]);
        let of = Forecast::new(&field, FedLsa::new(0.1, 5).shape());
        assert_eq!(rounding(&of.linear().unwrap().systems.root().unwrap()), 0.0);
        assert!(of.bias_rounding().unwrap() == rounding(&[1.0]));
    }
}
