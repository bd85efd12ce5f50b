//! The mean-square error along the rounds as a map of a state, if there is one.

use super::noise::NoiseSource;
use super::{Forecast, no_steps, unknown};
use crate::exact_mse::InitialControls;
use crate::exact_mse::evolution::{Evolution, affine, offset};
use crate::stability::{ControlVariates, global_memory_map};
use crate::work;
use fedsa::error::Result;
use fedsa::linalg::Mat;
use fedsa::method::Drift;

impl Forecast {
    /// The exact mean-square error along the rounds as a map of a state, from `theta_0` (d components) and these initial controls, for
    /// independent samples or rounds without any noise. The state grows with `d^2`, and for control variates with the number of
    /// distinct agents.
    ///
    /// # Errors
    /// When there is no such map; gives the reason. [`Forecast::curve`] may know the error nevertheless.
    pub fn evolution(&self, theta_0: &[f64], controls: &InitialControls) -> Result<Evolution> {
        self.stoppable(|| self.computed_evolution(theta_0, controls))
    }

    fn computed_evolution(&self, theta_0: &[f64], controls: &InitialControls) -> Result<Evolution> {
        self.of_last()?;
        let round = self.linear()?;
        let (systems, setting) = (round.systems, &round.setting);
        if round.link.delay.is_some() {
            return Err(unknown("the map of a round that uses old answers"));
        }
        match self.noise_source(&round)? {
            NoiseSource::Nothing => {}
            NoiseSource::Independent => {
                work::charge(self.curve_work(0).unwrap_or(0.0))?;
                return self.own_exact(&round, controls)?.evolution(theta_0);
            }
            NoiseSource::Additive(..) | NoiseSource::Chains(_) => return Err(unknown("the map of a round whose noise has memory")),
        }
        let root = systems.root()?;
        let mut start = offset(theta_0, &root)?;
        let d = start.len();
        let map: Mat<f64> = match self.shape.drift {
            Drift::Zero => {
                let plain = round.plain()?;
                start.push(1.0);
                let shift: Vec<f64> = plain.rho.iter().map(|rho| plain.server_step * rho).collect();
                affine(&plain.round_map(), &shift)
            }
            Drift::GlobalMemory { .. } => global_memory_map(systems, setting),
            Drift::ControlVariate { talk: None } => {
                let map = ControlVariates::fixed_period(systems, setting);
                // x_k = xi_k - xi*_k with xi*_k = -gbar_k(theta*), for the kinds that have agents.
                let mut used = vec![false; systems.kinds.len()];
                systems.kind_of.iter().for_each(|kind| used[*kind as usize] = true);
                for (kind, system) in systems.kinds.iter().enumerate().filter(|(kind, _)| used[*kind]) {
                    match controls {
                        InitialControls::Zero => start.extend(system.mean(&root)),
                        InitialControls::Root => start.extend(vec![0.0; d]),
                        InitialControls::Given(_) => {
                            return Err(unknown(&format!("the map from given controls of the agents of kind {kind}")));
                        }
                    }
                }
                return Ok(Evolution::without_noise(Box::new(map), start, d));
            }
            Drift::ControlVariate { talk: Some(_) } => return Err(unknown("talks are random")),
            Drift::NoSteps => return Err(no_steps()),
        };
        Ok(Evolution::without_noise(Box::new(map), start, d))
    }
}
