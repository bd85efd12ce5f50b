//! The judgement on a radius, and the search for the largest stable step.

use fedsa::error::{Error, Result, require};

/// The smallest distance from 1 at which a radius can be distinguished from 1. Rounding changes every eigenvalue by about
/// 1e-15 times the size of the map, and eigenvalues of large maps are accepted with a residual of this size. With a radius
/// of `1 - 1e-10` an error shrinks by a factor e in `1e10` rounds.
pub const RESOLUTION: f64 = 1e-10;

/// The judgement from a computed spectral radius.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RadiusStability {
    /// The radius is below 1: the round converges.
    Stable,
    /// The radius is above 1 or not finite: the round diverges.
    Unstable,
    /// The radius is within [`RESOLUTION`] of 1, and cannot be distinguished from 1.
    TooSlow,
}

impl RadiusStability {
    /// The judgement from this radius.
    pub fn of(radius: f64) -> Self {
        match radius - 1.0 {
            x if x < -RESOLUTION => RadiusStability::Stable,
            x if x <= RESOLUTION => RadiusStability::TooSlow,
            _ => RadiusStability::Unstable,
        }
    }
}

/// The smallest step of the search: steps and their tolerances must be normal numbers.
const SMALLEST: f64 = 1e-280;
/// The largest step of the search.
const LARGEST: f64 = 1e300;

/// The ratio of neighbouring steps in the scan, `2^(1/16)`. The scan can miss windows of instability that are narrower than
/// 4% of the step.
const GRID: f64 = 1.044_273_782_427_413_8;
/// The ratio of neighbouring steps, `2^(1/4)`, at small steps, where windows of instability are wide.
const COARSE: f64 = 1.189_207_115_002_721;
/// The scan begins at this number times `scale / steps`.
const FIRST: f64 = 1.0 / 1024.0;

/// The largest step eta below the first instability: no step of the scan up to it is unstable, and the steps directly above it are not
/// stable.
///
/// Stable steps need not form an interval: SCAFFLSA has unstable windows of eta H with stable steps above them. The scan therefore goes
/// upward on a geometric grid and stops at the first unstable radius. Between this step and the largest stable step before it,
/// bisection finds the edge with a relative error of 1e-6. A radius of 1 to rounding at small steps neither stops the scan nor counts
/// as its result.
///
/// `scale` is the step `2 / max_c ||Abar_c||`, above which a step of the fastest agent overshoots, and `steps` is the number of steps
/// of a round. The scan begins at `scale / (1024 steps)`, with a ratio of `2^(1/4)` up to `scale / steps` and of `2^(1/16)` above. If
/// its start is unstable, it begins lower, down to `2^-60` of that start. The result does not depend on the method's own step. It is
/// infinite if no step up to `2^20 scale` is unstable.
///
/// # Errors
/// Those of `radius`, or when no stable step is found.
pub fn largest_stable_step(radius: impl Fn(f64) -> Result<f64>, scale: f64, steps: f64) -> Result<f64> {
    require(scale > 0.0 && scale.is_finite(), "scale", scale, "a positive number")?;
    require(steps >= 1.0, "steps", steps, "at least 1")?;
    let side = |eta: f64| -> Result<RadiusStability> { Ok(RadiusStability::of(radius(eta)?)) };
    let fine = scale / steps;
    let first = FIRST * fine;
    if first < SMALLEST {
        return Err(no_stable_step(first));
    }
    let mut eta = first;
    while side(eta)? == RadiusStability::Unstable {
        eta /= 1024.0;
        if eta < (first * 2f64.powi(-60)).max(SMALLEST) {
            return Err(no_stable_step(eta));
        }
    }
    let most = (scale * 2f64.powi(20)).min(LARGEST);
    let mut stable = None;
    let high = loop {
        match side(eta)? {
            RadiusStability::Stable => stable = Some(eta),
            RadiusStability::TooSlow => {}
            RadiusStability::Unstable => break eta,
        }
        if eta > most {
            return stable.map(|_| f64::INFINITY).ok_or_else(|| no_stable_step(first));
        }
        eta *= if eta < fine { COARSE } else { GRID };
    };
    let low = stable.ok_or_else(|| no_stable_step(first))?;
    edge(side, low, high)
}

/// The largest stable step below the window of instability that contains the unstable step `limit`, for windows that the scan missed.
pub fn edge_below(radius: impl Fn(f64) -> Result<f64>, limit: f64) -> Result<f64> {
    require(limit > 0.0 && limit.is_finite(), "step_size", limit, "a positive number")?;
    let side = |eta: f64| -> Result<RadiusStability> { Ok(RadiusStability::of(radius(eta)?)) };
    let (mut high, mut low) = (limit, limit / GRID);
    while side(low)? != RadiusStability::Stable {
        (high, low) = (low, low / GRID);
        if low < (limit * 2f64.powi(-60)).max(SMALLEST) {
            return Err(no_stable_step(low));
        }
    }
    edge(side, low, high)
}

/// The number of octaves below `limit` at which [`stable_step_below`] begins, and the ratio of its steps.
const OCTAVES: i32 = 12;
const STRIDE: f64 = std::f64::consts::SQRT_2;

/// The largest stable step below the first instability under `limit`, or `limit` itself if there is none. It is meant for radii that
/// are costly and at least 1 above `limit`. The search goes upward from `limit 2^-12` with a ratio of `sqrt(2)`, and finds the edge
/// with a relative error of 1e-6 ([`edge_between`]). If its first step is unstable, it begins lower.
///
/// # Errors
/// Those of `radius`, or when no stable step is found.
pub fn stable_step_below(radius: impl Fn(f64) -> Result<f64>, limit: f64) -> Result<f64> {
    require(limit > 0.0, "step_size", limit, "a positive number")?;
    // If every step is stable in the mean, the search may begin anywhere.
    let last = limit.min(2f64.powi(60));
    if last < SMALLEST * 2f64.powi(OCTAVES) {
        return Err(no_stable_step(last));
    }
    let mut eta = last * 2f64.powi(-OCTAVES);
    let mut now = radius(eta)?;
    while RadiusStability::of(now) == RadiusStability::Unstable {
        eta *= 0.5;
        if eta < (last * 2f64.powi(-80)).max(SMALLEST) {
            return Err(no_stable_step(eta));
        }
        now = radius(eta)?;
    }
    let mut stable = None;
    loop {
        match RadiusStability::of(now) {
            RadiusStability::Stable => stable = Some((eta, now)),
            RadiusStability::TooSlow => {}
            RadiusStability::Unstable => break,
        }
        if eta == last {
            return stable.map(|(eta, _)| eta).ok_or_else(|| no_stable_step(eta));
        }
        // Near `limit` the stride is short, because the mean square often diverges shortly before the mean.
        eta = if eta < 0.999 * last { (eta * STRIDE).min(0.999 * last) } else { last };
        now = radius(eta)?;
    }
    edge_between(&radius, stable.ok_or_else(|| no_stable_step(eta))?, (eta, now))
}

/// The relative error of edges of stable steps.
const EDGE: f64 = 1e-6;

/// The edge of stability between a stable step and one that is not, each with its radius. The other step may be larger or smaller. The
/// result is a stable step within a factor of `1 + 1e-6` of one that is not.
///
/// The logarithms of radius and step are interpolated (ITP of Oliveira and Takahashi, ACM TOMS 47, 2020), which takes about eight radii
/// instead of bisection's twenty. If the radius is not smooth, it takes at most one more than bisection.
///
/// # Errors
/// Those of `radius`.
pub fn edge_between(mut radius: impl FnMut(f64) -> Result<f64>, stable: (f64, f64), other: (f64, f64)) -> Result<f64> {
    // From the stable step at 0 to the other at 1.
    let (origin, length) = (stable.0.ln(), (other.0 / stable.0).ln());
    let at = |t: f64| (origin + t * length).exp();
    let half = 0.5 * EDGE / length.abs();
    // Infinite radii, and radii that cannot be distinguished from 1, are not interpolated.
    let value = |radius: f64| match RadiusStability::of(radius) {
        RadiusStability::Stable => radius.ln().max(-1e3),
        RadiusStability::TooSlow => f64::NAN,
        RadiusStability::Unstable => radius.ln(),
    };
    let (mut low, mut high) = ((0.0, value(stable.1)), (1.0, value(other.1)));
    let mut inside = stable.0;
    let mut slack = half * 2f64.powi(2 + (0.5 / half).log2().ceil().max(0.0) as i32);
    while high.0 - low.0 > 2.0 * half {
        slack *= 0.5;
        let (width, middle) = (high.0 - low.0, 0.5 * (low.0 + high.0));
        let chord = (high.1 * low.0 - low.1 * high.0) / (high.1 - low.1);
        let t = if chord.is_finite() {
            let toward = (middle - chord).signum();
            let truncated = 0.2 * width * width;
            let moved = if truncated <= (middle - chord).abs() { chord + toward * truncated } else { middle };
            let reach = (slack - 0.5 * width).max(0.0);
            if (moved - middle).abs() <= reach { moved } else { middle - toward * reach }
        } else {
            middle
        };
        let eta = at(t);
        let now = radius(eta)?;
        if RadiusStability::of(now) == RadiusStability::Stable {
            (inside, low) = (eta, (t, value(now)));
        } else {
            high = (t, value(now));
        }
    }
    Ok(inside)
}

/// The largest stable step between a stable step and one that is not, by bisection to a relative error of 1e-6.
fn edge(side: impl Fn(f64) -> Result<RadiusStability>, mut stable: f64, mut other: f64) -> Result<f64> {
    while other > (1.0 + EDGE) * stable {
        let middle = stable.sqrt() * other.sqrt();
        if side(middle)? == RadiusStability::Stable {
            stable = middle;
        } else {
            other = middle;
        }
    }
    Ok(stable)
}

fn no_stable_step(down_to: f64) -> Error {
    let help = "a mean matrix whose eigenvalues all have positive real parts";
    Error::new("step_size", format!("no stable step down to {down_to:e}"), help)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RoundSetting;
    use crate::stability::{control_variates_radius, global_memory_radius, plain_radius, random_talk_radius};
    use crate::testing::Draw;
    use fedsa::linalg::{self, Mat};
    use fedsa::problem::systems::{System, Systems};

    #[test]
    fn a_step_is_found_below_a_limit_that_is_too_large() {
        let below = |edge: f64| move |eta: f64| Ok(if eta < edge { 0.5 } else { 1.5 });
        // The limit itself where it is stable, and the edge just below it where it is not.
        assert_eq!(stable_step_below(below(2.0), 1.0).unwrap(), 1.0);
        let found = stable_step_below(below(0.9995), 1.0).unwrap();
        assert!(found < 0.9995 && found > 0.9995 * (1.0 - EDGE), "{found}");
        let found = stable_step_below(below(0.3), 100.0).unwrap();
        assert!(found < 0.3 && found > 0.3 * (1.0 - EDGE), "{found}");
        assert!(stable_step_below(below(0.3), f64::INFINITY).unwrap() < 0.3);
        assert!(stable_step_below(|_| Ok(1.0), 1.0).is_err() && stable_step_below(|_| Ok(1.5), 1.0).is_err());
        // Below the lower of two windows.
        let windows = |eta: f64| Ok(if (0.02..0.04).contains(&eta) || eta > 0.5 { 1.5 } else { 0.5 });
        let found = stable_step_below(windows, 1.0).unwrap();
        assert!(found < 0.02 && found > 0.02 * (1.0 - EDGE), "{found}");
    }

    /// From either side, for radii that are smooth, have a kink or a jump at the edge, or are flat next to it.
    #[test]
    fn edges_are_found_with_few_radii() {
        type Radius = fn(f64) -> f64;
        let smooth: [(Radius, usize); 3] =
            [(|x| (x - 1.0).exp(), 9), (|x| 0.9 + 0.1 * x.powi(3), 11), (|x| (0.5 * x + 0.5).max(3.0 * x - 2.0), 22)];
        let jump: (Radius, usize) = (|x| if x < 1.0 { 0.999 } else { f64::INFINITY }, 22);
        for (radius, most) in smooth.into_iter().chain([jump]) {
            for (stable, other) in [(0.8, 1.13), (0.3, 1.0 + 1e-3), (1.0 - 1e-4, 40.0)] {
                let (calls, of) = (std::cell::Cell::new(0), |x: f64| Ok(radius(x)));
                let counted = |x: f64| {
                    calls.set(calls.get() + 1);
                    of(x)
                };
                let found = edge_between(counted, (stable, radius(stable)), (other, radius(other))).unwrap();
                assert!(found < 1.0 && found > 1.0 - 1.1 * EDGE, "{found}");
                assert!(calls.get() <= most + 6, "{stable} {other}: {}", calls.get());
            }
        }
        let falling = |x: f64| Ok((1.0 - x).exp());
        let found = edge_between(falling, (1.4, (-0.4f64).exp()), (0.7, 0.3f64.exp())).unwrap();
        assert!(found > 1.0 && found < 1.0 + 1.1 * EDGE, "{found}");
    }

    #[test]
    fn the_step_found_lies_below_the_first_instability() {
        // Stable below 0.3, unstable to 0.5, stable to 2.
        let radius = |eta: f64| Ok(if (0.3..0.5).contains(&eta) || eta > 2.0 { 1.5 } else { 0.5 });
        for scale in [0.1, 1.0, 50.0] {
            assert!((largest_stable_step(radius, scale, 1.0).unwrap() - 0.3).abs() < 1e-6);
        }
        // From an unstable start down and up again.
        assert!((largest_stable_step(radius, 400.0, 1.0).unwrap() - 0.3).abs() < 1e-6);
        assert_eq!(largest_stable_step(|_| Ok(0.5), 1.0, 10.0).unwrap(), f64::INFINITY);
        assert!(largest_stable_step(|_| Ok(1.0), 1.0, 1.0).is_err());
        assert!((edge_below(radius, 0.4).unwrap() - 0.3).abs() < 1e-6);
        // A single scalar agent: |1 - eta a|^H < 1 exactly below 2 / a.
        let one = Systems::new(vec![System { a: Mat::full(1, 1, 4.0), b: vec![1.0] }], vec![0], vec![1.0]);
        let edge = largest_stable_step(|eta| plain_radius(&one, &RoundSetting::new(eta, 10)?), 0.5, 10.0).unwrap();
        assert!((edge - 0.5).abs() < 1e-6);
    }

    #[test]
    fn a_radius_is_told_from_one_or_too_slow_to_tell() {
        let sides = [0.5, 1.0 - 1e-9, 1.0 - 1e-11, 1.0, 1.0 + 1e-11, 1.0 + 1e-9, f64::INFINITY, f64::NAN].map(RadiusStability::of);
        let [stable, slow, unstable] = [RadiusStability::Stable, RadiusStability::TooSlow, RadiusStability::Unstable];
        assert_eq!(sides, [stable, stable, slow, slow, slow, unstable, unstable, unstable]);
    }

    #[test]
    fn small_steps_are_never_called_unstable() {
        // Over forty orders of step sizes: the instability lies above the returned edge, and the edge is stable.
        for seed in 0..6 {
            let systems = Draw::new(20 + seed).systems(2, 3);
            let scale = 2.0 / systems.kinds.iter().map(|k| linalg::norm2(&k.a)).fold(0.0, f64::max);
            type Radius<'a> = Box<dyn Fn(f64) -> Result<f64> + 'a>;
            let methods: [Radius<'_>; 4] = [
                Box::new(|eta| plain_radius(&systems, &RoundSetting::new(eta, 5)?)),
                Box::new(|eta| control_variates_radius(&systems, &RoundSetting::new(eta, 5)?)),
                Box::new(|eta| global_memory_radius(&systems, &RoundSetting::new(eta, 5)?)),
                Box::new(|eta| random_talk_radius(&systems, eta, 0.2, 1.0)),
            ];
            for (m, radius) in methods.iter().enumerate() {
                let edge = largest_stable_step(radius, scale, 5.0).unwrap();
                assert_eq!(RadiusStability::of(radius(edge).unwrap()), RadiusStability::Stable, "seed {seed}, method {m}: {edge}");
                for order in -60..40 {
                    let eta = 10f64.powf(0.5 * f64::from(order));
                    if RadiusStability::of(radius(eta).unwrap()) == RadiusStability::Unstable {
                        assert!(eta > edge, "seed {seed}, method {m}: {eta} is unstable, {edge} the edge");
                    }
                }
            }
        }
    }

    #[test]
    fn the_search_for_a_step_ends_at_the_edges_of_numbers() {
        // Stable below a limit, at all sizes; and nowhere, and everywhere.
        for limit in [5e-324, 1e-310, 1e-300, 1e-250, 1.0, 1e250, 1e306, f64::MAX] {
            for around in [5e-324, 1e-306, 1e-100, 1.0, 1e100, 1e306, f64::MAX] {
                let radius = |eta: f64| Ok(if eta < limit { 0.5 } else { 2.0 });
                let found = [largest_stable_step(radius, around, 5.0), stable_step_below(radius, around), edge_below(radius, around)];
                for step in found.into_iter().flatten() {
                    assert!(step.is_infinite() || (step < limit && step > 0.0), "{limit} {around}: {step}");
                }
            }
        }
        for around in [5e-324, 1e-306, 1.0, 1e306] {
            assert!(largest_stable_step(|_| Ok(2.0), around, 1.0).is_err());
            assert!(stable_step_below(|_| Ok(2.0), around).is_err());
            assert!(edge_below(|_| Ok(2.0), around).is_err());
        }
    }
}
