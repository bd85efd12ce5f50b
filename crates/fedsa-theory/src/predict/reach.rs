//! The number of rounds until a target.

use super::{FloorCache, Forecast, Regime, unknown};
use crate::Accuracy;
use crate::exact_mse::{Evolution, InitialControls, MeanSquare};
use crate::stability::{self, RadiusStability};
use crate::work;
use fedsa::error::{Error, Result, require};
use fedsa::linalg;
use fedsa::method::Drift;

/// The most rounds that the search considers.
const MAX_ROUNDS: f64 = 1e15;
/// The most rounds along which a curve is followed, and the number of points of a pass.
const MAX_FOLLOWED: f64 = 2e6;
const POINTS: u64 = 64;
/// Up to this many rounds, one pass looks at all of them.
const SHORT: f64 = 1024.0;
/// The most multiplications of a pass.
const MAX_WORK: f64 = 6e9;

/// The approximate squared distance that rounding leaves between an iterate and a root (d).
pub fn rounding(root: &[f64]) -> f64 {
    /// The number of roundings that add up.
    const MANY: f64 = 64.0;
    (MANY * f64::EPSILON).powi(2) * linalg::norm_sq(root)
}

/// Checks a target mean-square error on a problem with this root (d).
///
/// # Errors
/// When it is not positive, or below the rounding error of the root.
pub fn check_target(target: f64, root: &[f64]) -> Result<()> {
    require(target > 0.0 && target.is_finite(), "target", target, "a positive number")?;
    let rounding = rounding(root);
    if target <= rounding {
        let what = format!("{target:e} is below what rounding leaves of theta*, {rounding:.1e}");
        return Err(Error::not_known("target", what, format!("more than {rounding:.1e}")));
    }
    Ok(())
}

/// The rounds until a target.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rounds {
    /// The number of rounds.
    pub rounds: f64,
    /// The accuracy of the curve that gives them. `None` if they follow from the radii alone, as if every round shrank the error by its
    /// radius.
    pub curve: Option<Accuracy>,
    /// Whether the curve is known but takes too long to follow.
    pub is_cut: bool,
}

/// The reason why a method stays above a target.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Obstacle {
    /// The squared bias is at least the target.
    Bias(f64),
    /// The floor is at least the target, but the squared bias, the second number, is not.
    Noise(f64, f64),
    /// The method diverges.
    Diverges,
}

/// Whether and when a method reaches a target.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Reach {
    /// No round is needed: this is the error at the start (its mean for a random start).
    AtStart(f64),
    /// After these rounds.
    After(Rounds),
    /// Never.
    Never(Obstacle),
}

/// The error for a method whose radius cannot be distinguished from 1.
fn no_rate() -> Error {
    let what = "not known: the rate cannot be told from 1 at this precision, because the radius of a round is 1 to rounding";
    Error::not_known("step_size", what, "a larger step size, or more local steps")
}

/// `E ||theta_0 - root||^2`; `None` stands for a random start with components N(0, 1).
pub fn error_at_start(theta_0: Option<&[f64]>, root: &[f64]) -> f64 {
    theta_0.map_or_else(|| linalg::norm_sq(root) + root.len() as f64, |theta| linalg::distance_sq(theta, root))
}

impl Forecast {
    /// The first time at which the mean-square error is at most `target`, possibly the start. `theta_0` (d) is the start; `None` stands
    /// for a random start with components N(0, 1), for which rounds follow from the radii.
    ///
    /// If the floor is unknown, the bias can show that the method never reaches the target, and the curve that it does. The floor and the
    /// radii are read from `cache`, which must belong to this forecast.
    ///
    /// # Errors
    /// As [`check_target`]; when neither floor nor curve is known, no radius is known, or a radius is 1 to rounding.
    pub fn reach(&self, target: f64, theta_0: Option<&[f64]>, controls: &InitialControls, cache: &FloorCache) -> Result<Reach> {
        self.stoppable(|| self.reached(target, theta_0, controls, cache))
    }

    fn reached(&self, target: f64, theta_0: Option<&[f64]>, controls: &InitialControls, cache: &FloorCache) -> Result<Reach> {
        let round = self.linear()?;
        let root = round.systems.root()?;
        check_target(target, &root)?;
        let away = error_at_start(theta_0, &root);
        if away <= target {
            return Ok(Reach::AtStart(away));
        }
        let outlook = cache.outlook(self);
        if outlook.is_unstable() {
            return Ok(Reach::Never(Obstacle::Diverges));
        }
        if outlook.regime() == Regime::TooSlow {
            return Err(no_rate());
        }
        let radius = outlook.radius?;
        let shrinks = outlook.mean_square.and_then(Result::ok).unwrap_or(0.0).max(radius * radius);
        let bias = self.bias_sq()?;
        let floor = cache.floor(self).ok().map(|floor| &floor.value);
        match floor {
            // With Markov samples the floor has its own bias.
            Some(floor) if floor.mse() >= target => {
                let bias = floor.bias_sq();
                return Ok(Reach::Never(if bias >= target { Obstacle::Bias(bias) } else { Obstacle::Noise(floor.mse(), bias) }));
            }
            None if bias >= target => return Ok(Reach::Never(Obstacle::Bias(bias))),
            _ => {}
        }
        let limit = floor.map_or(bias, MeanSquare::mse);
        if RadiusStability::of(shrinks) != RadiusStability::Stable {
            return Err(no_rate());
        }
        let about = (((away - limit).max(target) / (target - limit)).ln() / -shrinks.max(f64::MIN_POSITIVE).ln()).ceil().max(1.0);
        require(about < MAX_ROUNDS, "target", target, "a target that takes fewer rounds")?;
        if let Err(why) = cache.floor(self)
            && !self.is_noiseless()
        {
            return self.reached_by_curve(target, about, theta_0, controls, why);
        }
        let rough = |is_cut: bool| Reach::After(Rounds { rounds: about, curve: None, is_cut });
        let Some(theta_0) = theta_0 else { return Ok(rough(false)) };
        Ok(match self.rounds_exactly(target, about, theta_0, controls) {
            Ok(Some((rounds, accuracy))) => Reach::After(Rounds { rounds, curve: Some(accuracy), is_cut: false }),
            Ok(None) => rough(true),
            Err(_) => rough(false),
        })
    }

    /// The rounds to a target if the floor is not known, for the reason `why`: it may be above the target, and only a curve shows. A link's randomness cannot compensate
    /// for other noise, so that a floor without it above the target is a reason.
    fn reached_by_curve(&self, target: f64, about: f64, theta_0: Option<&[f64]>, controls: &InitialControls, why: Error) -> Result<Reach> {
        let rest = self.clone().with_steady_link().ok().filter(|rest| rest.floor_work().is_ok_and(|work| work <= MAX_WORK));
        if let Some(rest) = rest.and_then(|rest| rest.floor().ok()).filter(|rest| rest.mse() >= target) {
            let what = format!("the floor over this link, which would be {:.2e} without its randomness, above the target", rest.mse());
            return Err(unknown(&what));
        }
        match theta_0.map(|theta_0| self.rounds_exactly(target, about, theta_0, controls)) {
            Some(Ok(Some((rounds, accuracy)))) => Ok(Reach::After(Rounds { rounds, curve: Some(accuracy), is_cut: false })),
            _ => Err(why),
        }
    }

    /// The rounds until the curve is at most the target, estimated at `about`, and the accuracy of the curve; `None` if it takes too
    /// long to follow.
    fn rounds_exactly(&self, target: f64, about: f64, theta_0: &[f64], controls: &InitialControls) -> Result<Option<(f64, Accuracy)>> {
        if !self.is_noiseless() && self.curve_work(about as u64).is_ok_and(|work| work > MAX_WORK) {
            Ok(None)
        } else if self.is_noiseless() {
            let accuracy = Accuracy::Exact;
            first_below(target, about, |rounds| self.noiseless_curve(theta_0, rounds)).map(|found| found.map(|rounds| (rounds, accuracy)))
        } else if let Ok(evolution) = self.evolution(theta_0, controls)
            && evolution.start().len() > LARGE
        {
            let before = self.curve_work(0)?;
            let most = ((MAX_WORK - before) / (self.curve_work(1)? - before).max(1.0)) as u64;
            Ok(first_of(&evolution, target, most).map(|rounds| (rounds, Accuracy::Exact)))
        } else {
            self.curve_accuracy().and_then(|accuracy| {
                let curve = |rounds: &[u64]| Ok(self.curve(theta_0, controls, rounds)?.iter().map(MeanSquare::mse).collect());
                Ok(first_below(target, about, curve)?.map(|rounds| (rounds, accuracy)))
            })
        }
    }

    /// The squared error of a method without noise at each of `rounds` (ascending), from `theta_0` (d).
    ///
    /// # Errors
    /// When the path of the mean is not known, for example with control variates, whose state is larger.
    pub fn noiseless_curve(&self, theta_0: &[f64], rounds: &[u64]) -> Result<Vec<f64>> {
        self.stoppable(|| self.curve_without_noise(theta_0, rounds))
    }

    fn curve_without_noise(&self, theta_0: &[f64], rounds: &[u64]) -> Result<Vec<f64>> {
        self.of_one_copy()?;
        let round = self.linear()?;
        let root = round.systems.root()?;
        match self.shape.drift {
            Drift::Zero => Ok(self.mean(theta_0, rounds)?.iter().map(|theta| linalg::distance_sq(theta, &root)).collect()),
            Drift::GlobalMemory { .. } if round.link.is_clear() && round.few.is_none() => {
                let map = stability::global_memory_map(round.systems, &round.setting);
                let start: Vec<f64> = theta_0.iter().zip(&root).map(|(x, r)| x - r).collect();
                let mut errors = Vec::with_capacity(rounds.len());
                crate::map::at_rounds(&map, start, rounds, |u| errors.push(linalg::norm_sq(u)))?;
                Ok(errors)
            }
            _ => Err(unknown("the path of the controls")),
        }
    }
}

/// States of at least this size advance round by round, because powers of their map take longer.
const LARGE: usize = 1000;

/// The first round after which the error is at most the target; `None` if this takes more than `most` rounds, or too long.
fn first_of(evolution: &Evolution, target: f64, most: u64) -> Option<f64> {
    let mut state = evolution.start().to_vec();
    let mut next = vec![0.0; state.len()];
    for round in 1..=most {
        work::charge(evolution.map().work()).ok()?;
        evolution.map().apply(&state, &mut next);
        std::mem::swap(&mut state, &mut next);
        if evolution.mse(&state) <= target {
            return Some(round as f64);
        }
    }
    None
}

/// The first round at which a curve is at most the target, near an estimate; `None` if too many rounds are needed.
fn first_below(target: f64, about: f64, curve: impl Fn(&[u64]) -> Result<Vec<f64>>) -> Result<Option<f64>> {
    let mut last = (2.0 * about).max(POINTS as f64);
    for _ in 0..4 {
        if last > MAX_FOLLOWED {
            return Ok(None);
        }
        // Evenly spaced rounds need one power of the map.
        let (mut low, mut high) = (0, last as u64);
        loop {
            let points = if last <= SHORT { high - low } else { POINTS };
            let gap = (high - low).div_ceil(points).max(1);
            let rounds: Vec<u64> = (1..=points).map(|i| low + i * gap).collect();
            let Some(first) = curve(&rounds)?.iter().position(|x| *x <= target) else { break };
            if gap == 1 {
                return Ok(Some(rounds[first] as f64));
            }
            (low, high) = (rounds[first] - gap, rounds[first]);
        }
        last *= 4.0;
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::LinkLaw;
    use fedsa::kernel::Isa;
    use fedsa::method::MethodSettings as _;
    use fedsa::problem::Field;
    use fedsa::sampling::{Law, Sampling};
    use fedsa_methods::fedhsa::FedHsa;
    use fedsa_methods::fedlsa::FedLsa;
    use fedsa_methods::scafflsa::Scafflsa;
    use fedsa_problems::td::garnet::Garnet;
    use fedsa_problems::{NoFiles, ProblemSettings as _};

    fn garnet(kind: Law) -> std::sync::Arc<dyn Field> {
        let garnet = Garnet::default().with_agents(3).with_states(8).with_features(3).with_min_class(2).with_seed(2);
        garnet.field(&NoFiles, Sampling::default().with_kind(kind), Isa::best()).unwrap()
    }

    #[test]
    fn the_first_round_of_a_curve_at_its_target_is_found() {
        // Near the estimate and far from it.
        for (about, target) in [(500.0, 1e-3), (20.0, 1e-3), (5000.0, 0.5), (1.0, 0.999)] {
            let found = first_below(target, about, |rounds| Ok(rounds.iter().map(|t| 0.99f64.powf(*t as f64)).collect())).unwrap();
            assert_eq!(found, Some((target.ln() / 0.99f64.ln()).ceil()), "{about} {target}");
        }
        assert_eq!(first_below(1.0, 1e9, |_| panic!("too far to follow")).unwrap(), None);
        assert_eq!(first_below(1e-9, 10.0, |rounds| Ok(vec![1.0; rounds.len()])).unwrap(), None);
    }

    #[test]
    fn rounds_to_a_target_are_those_of_the_curve_stepped_through() {
        for kind in [Law::Iid, Law::Mean] {
            let field = garnet(kind);
            let start: Vec<f64> = field.root().unwrap().iter().map(|x| x + 1.0).collect();
            for shape in [FedLsa::new(0.05, 5).shape(), FedHsa::new(0.05, 5).shape()] {
                let (of, cache) = (Forecast::new(&field, shape), FloorCache::default());
                let floor = of.floor().unwrap().mse();
                let target = floor + 0.02;
                let rounds: Vec<u64> = (1..=3000).collect();
                let errors: Vec<f64> = match kind {
                    Law::Mean => of.noiseless_curve(&start, &rounds).unwrap(),
                    _ => of.curve(&start, &InitialControls::Zero, &rounds).unwrap().iter().map(MeanSquare::mse).collect(),
                };
                let want = errors.iter().position(|x| *x <= target).unwrap() as f64 + 1.0;
                let Reach::After(got) = of.reach(target, Some(&start), &InitialControls::Zero, &cache).unwrap() else {
                    panic!("it is reached")
                };
                assert_eq!((got.rounds, got.curve), (want, Some(Accuracy::Exact)));
                // From a random start the radii give the order.
                let Reach::After(rough) = of.reach(target, None, &InitialControls::Zero, &cache).unwrap() else { panic!("it is reached") };
                assert!(rough.curve.is_none() && rough.rounds > 0.2 * want && rough.rounds < 10.0 * want, "{rough:?} {want}");
                // Below the floor the result names the obstacle.
                let bias = of.bias_sq().unwrap();
                let below = of.reach(0.9 * floor.max(f64::MIN_POSITIVE), Some(&start), &InitialControls::Zero, &cache);
                if floor == 0.0 {
                    assert!(below.unwrap_err().what.contains("rounding"));
                    continue;
                }
                match below.unwrap() {
                    Reach::Never(Obstacle::Bias(x)) => assert!(x == bias && bias >= 0.9 * floor),
                    Reach::Never(Obstacle::Noise(all, x)) => assert!(all == floor && x == bias && bias < 0.9 * floor),
                    other => panic!("{other:?}"),
                }
            }
        }
        // Control variates over losses: the floor is not known, and no number of rounds is claimed, whether the target is below the floor
        // over a clear link or above it.
        let field = garnet(Law::Iid);
        let start: Vec<f64> = field.root().unwrap().iter().map(|x| x + 1.0).collect();
        let clear = Forecast::new(&field, Scafflsa::new(0.05, 5).shape());
        let level = clear.floor().unwrap().mse();
        let lossy = clear.with_link(LinkLaw { gain: 0.9, gain_square: 0.9, ..LinkLaw::clear() });
        for target in [0.5 * level, 2.0 * level] {
            for start in [Some(&start[..]), None] {
                let unknown = lossy.reach(target, start, &InitialControls::Zero, &FloorCache::default()).unwrap_err();
                assert!(unknown.what.contains("not known"), "{unknown}");
            }
        }
        let wild = Forecast::new(&field, FedLsa::new(50.0, 5).shape());
        let never = wild.reach(1.0, Some(&[0.0; 3]), &InitialControls::Zero, &FloorCache::default()).unwrap();
        assert_eq!(never, Reach::Never(Obstacle::Diverges));
    }
}
