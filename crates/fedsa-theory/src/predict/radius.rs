//! The spectral radius of a noiseless round, and the largest stable step.

use std::cell::Cell;

use super::outlook::{MeanSquareRadius, Outlook, StableStep};
use super::round::Round;
use super::{Forecast, no_steps, takes_too_long, unknown};
use crate::stability::{ControlVariates, RadiusStability};
use crate::{map, stability, work};
use fedsa::error::Result;
use fedsa::linalg;
use fedsa::method::ControlRule;
use fedsa::method::{Drift, MissingUpdate};
use fedsa::problem::root::{Root, RootSource};

/// The largest size, the number of kinds times d, for which radii of control variates are computed.
const RADIUS_SIZE: usize = 4000;

/// The largest number of components for which the largest stable step is searched for. The search takes the radii of many steps.
const MAX_SEARCHED: usize = 300;

/// Limits on the search for the largest stable step. The first two are the most multiplications in the mean (about one per nanosecond)
/// and in the mean square (about four per nanosecond). The third is the approximate number of radii of the mean square.
const SEARCH_WORK: f64 = 1e10;
const SQUARE_SEARCH_WORK: f64 = 4e10;
const STABLE_STEP_RADII: f64 = 30.0;
/// Advice to reduce the work of radii.
const LESS_DISTINCT: &str = "fewer distinct agents or features";

impl Forecast {
    /// The drift that theta depends on. With one local step of all agents over a clear link the drifts of a round sum to 0 over the
    /// agents, and the iterates equal FedLSA's.
    pub(super) fn drift_of_theta(&self, round: &Round<'_>) -> Drift {
        match self.shape.drift {
            Drift::ControlVariate { talk: None } | Drift::GlobalMemory { fresh: 0 }
                if round.setting.local_steps == 1 && round.is_plain().is_ok() && round.link.delay.is_none() =>
            {
                Drift::Zero
            }
            drift => drift,
        }
    }

    /// The round whose radius can be computed.
    pub(super) fn radius_known(&self) -> Result<Round<'_>> {
        let round = self.linear()?;
        let kinds = round.systems.kinds.len();
        if matches!(self.drift_of_theta(&round), Drift::ControlVariate { .. }) && kinds * round.systems.dim() > RADIUS_SIZE {
            return Err(unknown(&format!("the linear map of a round of {kinds} distinct agents is too large")));
        }
        Ok(round)
    }

    /// Checks that the radius can be computed.
    pub(super) fn knows_radius(&self) -> Result<()> {
        if self.is_nonlinear() { self.linearised_rounds()?.knows_radius() } else { self.radius_known().map(|_| ()) }
    }

    /// The spectral radius of the mean of a round; of nonlinear operators at their root.
    ///
    /// # Errors
    /// When a round is not a known linear map, or the map is too large.
    pub fn radius(&self) -> Result<f64> {
        self.radius_within(f64::INFINITY).map(|(radius, _)| radius)
    }

    /// [`Forecast::radius`] within about `most` multiplications, and the number used, about one per nanosecond.
    ///
    /// # Errors
    /// As [`Forecast::radius`], and when it would take more.
    pub(super) fn radius_within(&self, most: f64) -> Result<(f64, f64)> {
        self.stoppable(|| self.radius_and_work(most))
    }

    pub(super) fn radius_and_work(&self, most: f64) -> Result<(f64, f64)> {
        if self.is_nonlinear() {
            return self.linearised_rounds()?.radius_and_work(most);
        }
        let round = self.radius_known()?;
        let Round { systems, setting, link, .. } = round;
        let phases = self.phases_work(&round);
        if phases > most {
            return Err(takes_too_long("the radius of a round", "fewer distinct agents or features"));
        }
        work::charge(phases)?;
        let controls = |map: ControlVariates| {
            let map = match self.lost {
                _ if (link.gain - 1.0).abs() <= 1e-12 => map.moving_by(round.share()),
                MissingUpdate::Controls(ControlRule::Afresh) => map.made_anew(link.gain),
                _ => map.arriving(link.gain).moving_by(round.share()),
            };
            map.radius_within(most - phases)
        };
        // The eigenvalues of a matrix.
        let of = |radius: Result<f64>, rows: f64| radius.map(|radius| (radius, 12.0 * rows.powi(3)));
        let d = systems.dim() as f64;
        let (radius, work) = match self.drift_of_theta(&round) {
            Drift::Zero => match &link.delay {
                None => of(map::spectral_radius(&round.plain()?.round_map()), d),
                Some(delay) => {
                    // Eigenvalues of d complex matrices.
                    work::charge(8.0 * d * (delay.probabilities.len() as f64).powi(3))?;
                    let radius = stability::delayed_radius(&round.plain()?.pull(), &delay.probabilities);
                    radius.map(|radius| (radius, 30.0 * d * (delay.probabilities.len() as f64).powi(3) + 12.0 * d.powi(3)))
                }
            },
            Drift::GlobalMemory { .. } if self.lost == MissingUpdate::Last => {
                of(stability::last_operators_radius(systems, &setting, link.gain), 2.0 * d)
            }
            Drift::GlobalMemory { .. } => of(stability::global_memory_radius_over(systems, &setting, link.gain, round.mixing()), d),
            Drift::NoSteps => Err(no_steps()),
            Drift::ControlVariate { talk: None } => controls(ControlVariates::fixed_period(systems, &setting)),
            Drift::ControlVariate { talk: Some(p) } => {
                ControlVariates::random_talk(systems, setting.step_size, p, setting.server_step)?.map_or(Ok((f64::INFINITY, 0.0)), controls)
            }
        }?;
        Ok((radius, work + phases))
    }

    /// Multiplications for the local phases of all distinct agents.
    pub(super) fn phases_work(&self, round: &Round<'_>) -> f64 {
        let (kinds, d) = (round.systems.kinds.len() as f64, round.systems.dim() as f64);
        // About four small products in each doubling, which cost more than their multiplications.
        kinds * ((round.setting.local_steps as f64).log2() + 2.0) * (4.0 * d.powi(3) + 2000.0)
    }

    /// The radii that decide whether the method is stable.
    pub fn outlook(&self) -> Outlook {
        self.outlook_with(|| MeanSquareRadius::new(self).and_then(|of| of.at(self)))
    }

    /// [`Forecast::outlook`] with a radius of the mean square that may be known already.
    pub(super) fn outlook_with(&self, mean_square: impl FnOnce() -> Result<f64>) -> Outlook {
        if self.largest_factor() > 1.0 {
            // The copy with the largest step must be stable, and the slowest decides how long it takes.
            let largest = self.clone().with_steps_times(self.largest_factor()).outlook();
            let own = self.clone().with_steps_times(1.0).radius();
            return Outlook { radius: largest.radius.and_then(|rho| own.map(|own| rho.max(own))), ..largest };
        }
        let radius = self.radius();
        if self.is_nonlinear() {
            // Rounds that leave the root need not diverge.
            let leaves = || unknown("the root is not stable under rounds with these settings, and where they lead is not known");
            let radius = radius.and_then(|rho| if rho < 1.0 { Ok(rho) } else { Err(leaves()) });
            return Outlook { mean_square: radius.is_ok().then(|| Err(unknown("the mean square of nonlinear operators"))), radius };
        }
        let noisy = self.linear().is_ok_and(|round| self.is_noisy(&round));
        let converges = radius.as_ref().is_ok_and(|rho| RadiusStability::of(*rho) == RadiusStability::Stable);
        let mean_square = (noisy && converges).then(mean_square);
        Outlook { radius, mean_square }
    }

    /// The largest step size below the first instability of the mean, with all other settings unchanged. If noise makes the mean square
    /// diverge at this step, the result is a smaller step at which it converges. If the method's own step is unstable, the result is
    /// below it; otherwise the result does not depend on it.
    ///
    /// # Errors
    /// As [`Forecast::radius`], and when the radii of so many steps take too long (counted in multiplications).
    pub fn largest_stable_step(&self) -> Result<StableStep> {
        let of_one = self.stoppable(|| self.found_stable_step())?;
        Ok(StableStep { step: of_one.step / self.largest_factor(), ..of_one })
    }

    pub(super) fn found_stable_step(&self) -> Result<StableStep> {
        let round = self.linear()?;
        if let Ok(Root { source: RootSource::LeastNorm { .. }, .. }) = self.field.solution() {
            return Err(unknown("features depend on each other: the radius is 1 whatever the step size is"));
        }
        if self.field.dim() > MAX_SEARCHED {
            return Err(unknown("it is not searched for among so many components"));
        }
        let Round { systems, setting, link, .. } = &round;
        let left = Cell::new(SEARCH_WORK);
        let mean_radius = |eta: f64| {
            if left.get() <= 0.0 {
                return Err(takes_too_long("the search for the largest stable step", LESS_DISTINCT));
            }
            let (radius, work) = self.clone().with_step(eta).radius_within(left.get())?;
            left.set(left.get() - work);
            Ok(radius)
        };
        let size = systems.kinds.iter().map(|kind| linalg::norm2(&kind.a)).fold(0.0, f64::max);
        let mut in_mean = stability::largest_stable_step(mean_radius, 2.0 / (size * link.gain.max(1.0)), self.shape.local_steps.max(1.0))?;
        let own = setting.step_size;
        // If the method's own step is unstable and below the edge, the scan has missed a window of instability.
        let missed = |edge: f64, radius: &dyn Fn(f64) -> Result<f64>| {
            edge >= own && radius(own).is_ok_and(|rho| RadiusStability::of(rho) == RadiusStability::Unstable)
        };
        if missed(in_mean, &mean_radius) {
            in_mean = stability::edge_below(mean_radius, own)?;
        }
        if !self.is_noisy(&round) {
            return Ok(StableStep { step: in_mean, in_mean_square: true });
        }
        let found = MeanSquareRadius::new(self).and_then(|of| {
            let (_, own) = self.radius_within(SEARCH_WORK)?;
            if STABLE_STEP_RADII * self.mean_square_work(self.local_steps().max(1.0), own)? > SQUARE_SEARCH_WORK {
                return Err(takes_too_long("the search for the largest stable step in the mean square", LESS_DISTINCT));
            }
            let square = |eta: f64| of.at(&self.clone().with_step(eta));
            let step = stability::stable_step_below(square, in_mean)?;
            if missed(step, &square) { stability::edge_below(square, own) } else { Ok(step) }
        });
        Ok(found.map_or(StableStep { step: in_mean, in_mean_square: false }, |step| StableStep { step, in_mean_square: true }))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use fedsa::kernel::Isa;
    use fedsa::method::{MethodSettings as _, MethodShape};
    use fedsa::problem::Field;
    use fedsa::sampling::{Law, Sampling};
    use fedsa_methods::fedhsa::FedHsa;
    use fedsa_methods::fedlsa::FedLsa;
    use fedsa_methods::scafflsa::Scafflsa;
    use fedsa_problems::td::garnet::Garnet;
    use fedsa_problems::{NoFiles, ProblemSettings as _};

    fn garnet(agents: usize, law: Law) -> Arc<dyn Field> {
        let garnet = Garnet::default().with_agents(agents).with_states(10).with_features(4).with_min_class(2).with_seed(3);
        garnet.field(&NoFiles, Sampling::default().with_kind(law), Isa::best()).unwrap()
    }

    /// The mean converges up to 18.8, but the mean square already diverges at 8.
    #[test]
    fn the_stable_step_of_control_variates_is_that_of_the_mean_square() {
        let field = garnet(7, Law::Iid);
        let of = |step: f64| Forecast::new(&field, Scafflsa::new(step, 3).shape());
        let found = of(8.0).largest_stable_step().unwrap();
        assert!(found.in_mean_square && found.limit() == "mean-square" && found.step < 8.0, "{found:?}");
        let radius = |step: f64| MeanSquareRadius::new(&of(step)).unwrap().at(&of(step)).unwrap();
        assert!(radius(found.step) < 1.0 && radius(found.step * 1.01) > 1.0 && of(found.step * 1.01).radius().unwrap() < 1.0);
    }

    /// In exact arithmetic their iterates equal FedLSA's.
    #[test]
    fn with_one_local_step_radii_and_stable_steps_are_those_of_fedlsa() {
        for law in [Law::Iid, Law::Markov] {
            let field = garnet(1, law);
            let several = garnet(3, law);
            for field in [&field, &several] {
                let of = |shape: MethodShape| Forecast::new(field, shape);
                let plain = of(FedLsa::new(0.1, 1).shape());
                let want = (plain.radius(), plain.largest_stable_step(), plain.leading_order_floor(), plain.outlook().mean_square);
                for shape in [Scafflsa::new(0.1, 1).shape(), FedHsa::new(0.1, 1).shape()] {
                    let one = of(shape);
                    let found = (one.radius(), one.largest_stable_step(), one.leading_order_floor(), one.outlook().mean_square);
                    assert_eq!(format!("{found:?}"), format!("{want:?}"));
                }
            }
        }
    }
}
