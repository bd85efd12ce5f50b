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
    use crate::predict::{FloorCache, Regime};
    use fedsa::kernel::Isa;
    use fedsa::method::MethodSettings as _;
    use fedsa::problem::Field;
    use fedsa::problem::copies::CopyRule;
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

    /// TD learning of agents with five states each; chains and rewards differ.
    fn td(agents: usize) -> Arc<dyn Field> {
        let normalised = |mut p: Vec<Vec<f64>>| {
            p.iter_mut().for_each(|row| {
                let sum: f64 = row.iter().sum();
                row.iter_mut().for_each(|p| *p /= sum);
            });
            p
        };
        let (mut all_a, mut all_b) = (Vec::new(), Vec::new());
        for c in 0..agents {
            let weight = |i: usize, j: usize| (1 + (i * i + 3 * j + 2 * c * i + c) % 7) as f64;
            let p = normalised((0..5).map(|i| (0..5).map(|j| weight(i, j)).collect()).collect());
            let mut law = vec![0.2; 5];
            for _ in 0..1000 {
                law = (0..5).map(|j| (0..5).map(|i| law[i] * p[i][j]).sum()).collect();
            }
            let phi = |i: usize| [0.5f64.sqrt(), 0.5f64.sqrt() * (2.0 * i as f64).cos()];
            let (mut a, mut b) = (vec![vec![0.0; 2]; 2], vec![0.0; 2]);
            for i in 0..5 {
                let x = c as f64 + 1.0;
                let reward = (i as f64).cos() + 2.0 * (x * (i as f64 + 1.0)).sin() + if c % 2 == 0 { 4.0 } else { -4.0 };
                let next = |l: usize| (0..5).map(|j| p[i][j] * phi(j)[l]).sum::<f64>();
                for (k, (row, b)) in a.iter_mut().zip(&mut b).enumerate() {
                    let weight = law[i] * phi(i)[k];
                    *b += weight * reward;
                    row.iter_mut().enumerate().for_each(|(l, a)| *a += weight * (phi(i)[l] - 0.8 * next(l)));
                }
            }
            all_a.push(a);
            all_b.push(b);
        }
        let linear = LinearSystems::default().with_a(all_a).with_b(all_b);
        linear.field(&NoFiles, Sampling::default().with_kind(Law::Mean), Isa::best()).unwrap()
    }

    /// The numbers are NumPy's.
    #[test]
    fn extrapolation_removes_the_first_orders_of_the_bias() {
        let field = td(4);
        let root = field.root().unwrap();
        assert!((root[0] - 0.7713755908).abs() < 1e-9 && (root[1] + 1.0452882661).abs() < 1e-9, "{root:?}");
        let bias = |eta: f64, copies| Forecast::new(&field, FedLsa::new(eta, 10).shape()).of_copies(copies).bias_sq().unwrap().sqrt();
        for (copies, at, half) in
            [(None, 0.0307371, 0.0152272), (Some(CopyRule::Two), 1.0347794e-3, 2.832409e-4), (Some(CopyRule::Three), 2.943e-4, 3.278e-5)]
        {
            for (eta, expected) in [(0.1, at), (0.05, half)] {
                let found = bias(eta, copies);
                assert!((found - expected).abs() < 2e-4 * expected, "{copies:?} {eta}: {found}");
            }
        }
        // Methods without a bias have none.
        assert_eq!(Forecast::new(&field, Scafflsa::new(0.1, 10).shape()).of_copies(Some(CopyRule::Two)).bias_sq().unwrap(), 0.0);
    }

    /// The steps of the copies must be stable, and noise of a combination is not known.
    #[test]
    fn a_combination_is_as_stable_as_its_largest_step() {
        let field = td(4);
        let of = |eta: f64, copies| Forecast::new(&field, FedLsa::new(eta, 2).shape()).of_copies(copies);
        let largest = of(0.1, None).largest_stable_step().unwrap().step;
        let regime = |share: f64, copies| FloorCache::default().outlook(&of(share * largest, copies)).regime();
        assert_eq!(regime(0.4, None), Regime::Stable);
        assert_eq!(regime(0.4, Some(CopyRule::Two)), Regime::Stable);
        assert_eq!(regime(0.6, Some(CopyRule::Two)), Regime::MeanDiverges);
        assert_eq!(regime(0.4, Some(CopyRule::Three)), Regime::MeanDiverges);
        assert!(of(0.1, Some(CopyRule::Two)).floor().is_err());
    }
}
