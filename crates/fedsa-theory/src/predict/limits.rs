//! The parts of a method's floor.

use super::noise::NoiseSource;
use super::round::{packed, phases_of_moments, round_of_moments};
use super::{FloorCache, Forecast, delayed_work};
use crate::Accuracy;
use crate::link::LinkLaw;
use crate::map::DENSE;
use fedsa::error::Result;
use fedsa::linalg;
use fedsa::method::Drift;
use fedsa::sampling::Law;

/// The parts of a floor, all squared errors; their sum is the floor. The sources are removed in the order mixing, link, participation,
/// samples, bias. Each part is the difference that its source makes while the later sources are present.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// The floor.
    pub floor: f64,
    /// The accuracy of the floor.
    pub accuracy: Accuracy,
    /// The squared distance of the noiseless limit from theta*; of nonlinear operators, that of the mean iterate.
    pub bias: f64,
    /// The noise of independent samples, with all agents and a link that weakens all messages alike; `None` under mean sampling.
    pub samples: Option<f64>,
    /// The contribution of the dependence between successive samples to noise and bias; negative where it helps. `None` for independent
    /// samples.
    pub mixing: Option<f64>,
    /// The contribution of the link's randomness; `None` without any.
    pub link: Option<f64>,
    /// The contribution of the choice of participants; `None` if all agents participate.
    pub participation: Option<f64>,
}

impl Forecast {
    /// The parts of the floor, which is read from `cache`; `cache` must belong to this forecast.
    ///
    /// # Errors
    /// When the floor, or the floor without one of the sources, is not known; gives the reason.
    pub fn limits(&self, cache: &FloorCache) -> Result<Limits> {
        self.stoppable(|| self.parts_of_floor(cache))
    }

    fn parts_of_floor(&self, cache: &FloorCache) -> Result<Limits> {
        let whole = cache.floor(self)?;
        // Noise and curvature move the mean of nonlinear iterates, too.
        let bias = if self.is_nonlinear() { whole.value.bias_sq() } else { self.bias_sq()? };
        let (floor, accuracy) = (whole.value.mse(), whole.accuracy);
        let mut parts = Limits { floor, accuracy, bias, samples: None, mixing: None, link: None, participation: None };
        let (mut now, mut left) = (self.clone(), floor);
        let without = |next: &Self, left: &mut f64| -> Result<f64> {
            let rest = next.floor()?.mse();
            let part = *left - rest;
            *left = rest;
            Ok(part)
        };
        if self.sampling.kind == Law::Markov {
            now = now.with_sampling(self.sampling.with_kind(Law::Iid));
            parts.mixing = Some(without(&now, &mut left)?);
        }
        if self.is_nonlinear() {
            // This floor is known over clear links and with all agents only.
            parts.samples = self.is_sampled().then(|| (left - bias).max(0.0));
            return Ok(parts);
        }
        if self.link()?.is_noisy() {
            now = now.with_steady_link()?;
            parts.link = Some(without(&now, &mut left)?);
        }
        if self.linear()?.few.is_some() {
            now = now.with_all_agents();
            parts.participation = Some(without(&now, &mut left)?);
        }
        if self.is_sampled() {
            // FedHSA has a bias with partial participation only; this bias then counts as part of participation.
            let bias = linalg::norm_sq(&now.bias(&now.linear()?)?);
            parts.samples = Some((left - bias).max(0.0));
        }
        Ok(parts)
    }

    /// Multiplications for the floor, about one per nanosecond; 0 without noise.
    ///
    /// # Errors
    /// When the floor is not known; gives the reason.
    pub fn floor_work(&self) -> Result<f64> {
        let (round, source) = self.floor_known()?;
        if let Some(cost) = self.cost_of_noise() {
            // Every product reads the numbers of a chain's moves from memory.
            let slower = if matches!(source, NoiseSource::Chains(_)) { 2.5 } else { 1.0 };
            return Ok(slower * cost.multiplications);
        }
        let (kinds, d) = (round.systems.kinds.len() as f64, round.systems.dim() as f64);
        Ok(match (source, self.shape.drift, round.delay()) {
            (NoiseSource::Nothing, ..) => 0.0,
            (_, Drift::Zero, None) => {
                let n = packed(d) + packed(d + 1.0);
                0.12 * n.powi(3) + 30.0 * n.powi(2) + phases_of_moments(&round, Drift::Zero)
            }
            (_, Drift::Zero, Some((delay, _))) => (packed(d) + delay as f64 * d * d).powi(3),
            (_, drift @ Drift::ControlVariate { .. }, _) => {
                let state = d * (kinds + 1.0) + 1.0;
                // For a small state, eigenvalues and a linear system. For a large state, two systems, with about 25 d rounds together.
                let n = state * state + kinds * d * d;
                let of_round = round_of_moments(&round);
                let solves = if n <= DENSE as f64 { 1.3 * n.powi(3) + n * of_round } else { 25.0 * d * of_round };
                phases_of_moments(&round, drift) + solves
            }
            (_, drift, _) => phases_of_moments(&round, drift) + packed(d).powi(3),
        })
    }

    /// Multiplications for the curve up to a round, about one per nanosecond.
    ///
    /// # Errors
    /// When the curve is not known; gives the reason.
    pub fn curve_work(&self, last: u64) -> Result<f64> {
        let (round, source) = self.curve_source()?;
        let d = round.systems.dim() as f64;
        let kinds = round.systems.kinds.len() as f64;
        Ok(match (source, self.shape.drift) {
            (NoiseSource::Chains(rule), _) => self.chains_curve_work(&round, rule, last)?,
            // Five products for each part of the noise, and two for each block of the state.
            (NoiseSource::Additive(laws), drift) => {
                let blocks = if matches!(drift, Drift::ControlVariate { .. }) { kinds + 1.0 } else { 1.0 };
                last as f64 * (5.0 * kinds.max(laws.len() as f64) + 2.0 * blocks) * d.powi(3)
            }
            (NoiseSource::Independent, drift) => {
                let each = match drift {
                    Drift::ControlVariate { .. } => round_of_moments(&round),
                    _ => round.delay().map_or(0.0, |(delay, _)| delayed_work(round.systems.dim(), delay)),
                };
                phases_of_moments(&round, drift) + last as f64 * each
            }
            (NoiseSource::Nothing, _) => 0.0,
        })
    }

    /// The same forecast over a link without randomness. It weakens every message by the mean factor and has the same delays, but no
    /// losses, no noise of agents or receivers, and no codec error.
    ///
    /// # Errors
    /// When the link's effect on the mean of a round is not known.
    pub fn with_steady_link(self) -> Result<Self> {
        let law = self.link()?;
        let random_delay = law.delay.as_ref().is_some_and(|delay| delay.constant().is_none());
        let only_mean = law.only_mean.filter(|_| random_delay);
        let steady = LinkLaw { gain_square: law.gain * law.gain, receiver_noise: 0.0, sent_noise: 0.0, only_mean, ..law.clone() };
        Ok(self.with_link(steady))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::predict::twins;
    use fedsa::kernel::Isa;
    use fedsa::method::MethodSettings as _;
    use fedsa::problem::Field;
    use fedsa::sampling::Sampling;
    use fedsa::uplink::Uplink;
    use fedsa::uplink::stage::erasure::Erasure;
    use fedsa_methods::fedlsa::FedLsa;
    use fedsa_problems::td::garnet::Garnet;
    use fedsa_problems::{NoFiles, ProblemSettings as _};

    fn garnet(agents: usize, kind: Law) -> Arc<dyn Field> {
        let garnet = Garnet::default().with_agents(agents).with_states(6).with_features(2).with_min_class(2).with_seed(5);
        garnet.field(&NoFiles, Sampling::default().with_kind(kind), Isa::best()).unwrap()
    }

    /// Compares each part with a forecast for its own problem, link or participants.
    #[test]
    fn parts_are_differences_of_floors_of_settings_of_their_own() {
        let few = FedLsa::new(0.1, 4).with_participants(2);
        let mut lossy = Uplink::default();
        lossy.push(Arc::new(Erasure::new(0.5))).unwrap();
        let iid = garnet(3, Law::Iid);
        let floor = |field: &Arc<dyn Field>, method: &FedLsa, link: &Uplink| Forecast::over(field, method, link).floor().unwrap().mse();
        let limits = Forecast::over(&iid, &few, &lossy).limits(&FloorCache::default()).unwrap();
        assert_eq!(limits.floor, floor(&iid, &few, &lossy));
        assert_eq!(limits.mixing, None);
        let sum = limits.bias + limits.samples.unwrap() + limits.link.unwrap() + limits.participation.unwrap();
        assert!((sum - limits.floor).abs() <= 1e-12 * limits.floor, "{limits:?}");
        // Losses with probability 1/2 weaken the mean as half the server step does.
        let weak = few.clone().with_global_step_size(0.5);
        let without = floor(&iid, &weak, &Uplink::default());
        assert!((limits.link.unwrap() - (limits.floor - without)).abs() <= 1e-12 * limits.floor);
        let all = weak.with_participants(None);
        let with_all = floor(&iid, &all, &Uplink::default());
        assert!((limits.participation.unwrap() - (without - with_all)).abs() <= 1e-12 * limits.floor);
        // Markov samples against independent ones of the same law.
        let (method, clear) = (FedLsa::new(0.1, 4), Uplink::default());
        let markov = garnet(1, Law::Markov);
        let limits = Forecast::over(&markov, &method, &clear).limits(&FloorCache::default()).unwrap();
        let independent = floor(&garnet(1, Law::Iid), &method, &clear);
        assert!((limits.mixing.unwrap() - (limits.floor - independent)).abs() <= 1e-12 * limits.floor);
        assert_eq!((limits.link, limits.participation), (None, None));
        // Without noise the floor is the bias.
        let limits = Forecast::over(&garnet(3, Law::Mean), &method, &clear).limits(&FloorCache::default()).unwrap();
        assert_eq!((limits.floor, limits.samples, limits.mixing), (limits.bias, None, None));
    }

    #[test]
    fn twins_halve_the_noise_of_methods_whose_agents_average() {
        let field = garnet(3, Law::Iid);
        let of = Forecast::new(&field, FedLsa::new(0.02, 4).shape());
        let doubled = Arc::new(twins(field.systems().unwrap()));
        let (one, two) = (of.floor().unwrap(), of.clone().with_twins(&doubled).floor().unwrap());
        assert!((one.bias_sq() - two.bias_sq()).abs() <= 1e-9 * one.bias_sq(), "the mean operator is the same");
        let ratio = one.noise / two.noise;
        assert!((ratio - 2.0).abs() < 0.02, "{ratio}");
        assert!(
            (of.with_twins(&doubled).radius().unwrap() - Forecast::new(&field, FedLsa::new(0.02, 4).shape()).radius().unwrap()).abs()
                < 1e-12
        );
    }
}
