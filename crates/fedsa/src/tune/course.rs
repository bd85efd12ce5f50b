//! The rounds until a mean-square error is at most a target, by theory.

use super::Start;
use crate::error::{BadInput, Result};
use crate::linalg::Mat;
use crate::theory::Accuracy;
use crate::theory::exact_mse::Evolution;
use crate::theory::predict::{Forecast, unknown};

/// What theory says about a choice.
#[derive(Debug, Clone, PartialEq)]
pub struct Course {
    /// Whether it reaches the target.
    pub outcome: std::result::Result<Reach, Miss>,
    /// The mean-square error after some rounds, in ascending order, beginning with the start.
    pub path: Vec<(u64, f64)>,
    /// How the errors are known.
    pub accuracy: Accuracy,
}

/// How a target is reached.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Reach {
    /// The first round after which the error is at most the target.
    pub rounds: u64,
    /// The error after these rounds.
    pub mse: f64,
    /// The time at which the error passes the target, between `rounds - 1` and `rounds`: interpolated in the logarithm. It
    /// distinguishes choices that take the same number of rounds.
    pub passes: f64,
}

/// Why a target is missed.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(tag = "why", rename_all = "kebab-case")]
pub enum Miss {
    /// The error grows.
    Diverges,
    /// The error after many rounds, which is above the target.
    Floor {
        /// The floor.
        floor: f64,
    },
    /// More rounds are needed than are allowed.
    Slow {
        /// The error after the rounds that are allowed.
        mse: f64,
    },
}

/// The largest state whose map is raised to powers; larger states are taken round by round.
const POWERS: usize = 200;
/// The most multiplications of a course that is taken round by round.
const MOST_WORK: f64 = 2e9;
/// The most multiplications of a floor under noise with memory: a search looks at hundreds.
const MOST_CHAIN: f64 = 3e7;
/// Closures with a larger eps^2 are not near enough to choose by.
const NEAR: f64 = 0.02;
/// An error this many times the start's counts as diverging.
const DIVERGES: f64 = 1e20;

/// The course of a choice towards the target, within `most` rounds.
///
/// # Errors
/// When the error is not known along the rounds, exactly or by a closure that is near; gives the reason.
pub fn course(forecast: &Forecast<'_>, start: &Start, target: f64, most: u64) -> Result<Course> {
    let Some(theta) = &start.theta else { return Err(unknown("the start is random")) };
    match forecast.evolution(theta, &start.controls) {
        Ok(evolution) if evolution.start().len() <= POWERS => Ok(by_powers(&evolution, target, most)),
        Ok(evolution) => round_by_round(forecast, &evolution, target, most),
        Err(_) => by_curve(forecast, start, theta, target, most),
    }
}

fn apply(map: &Mat<f64>, x: &[f64]) -> Vec<f64> {
    crate::linalg::mat_vec(map, x)
}

/// The time between `rounds - 1` and `rounds` at which an error passes the target.
fn reach(rounds: u64, before: f64, mse: f64, target: f64) -> Reach {
    let share = (before / target).ln() / (before / mse).ln();
    let passes = (rounds - 1) as f64 + if share.is_finite() { share.clamp(0.0, 1.0) } else { 1.0 };
    Reach { rounds, mse, passes }
}

/// By the powers `M^(2^k)` of the map: doubling until the error is at most the target, then bisection.
fn by_powers(evolution: &Evolution, target: f64, most: u64) -> Course {
    let exact = |outcome, path| Course { outcome, path, accuracy: Accuracy::Exact };
    let at_start = evolution.mse(evolution.start());
    let mut path = vec![(0, at_start)];
    let limit = DIVERGES * at_start.max(target);
    let mut powers = vec![evolution.map().to_matrix()];
    // The states after 2^k rounds.
    let mut states: Vec<Vec<f64>> = Vec::new();
    let mut below: Option<usize> = None;
    let mut settled = f64::NAN;
    for k in 0..62 {
        let state = apply(&powers[k], evolution.start());
        let mse = evolution.mse(&state);
        if !(mse <= limit) {
            return exact(Err(Miss::Diverges), path);
        }
        if 1u64 << k <= most {
            path.push((1 << k, mse));
        }
        states.push(state);
        if below.is_none() && mse <= target {
            below = Some(k);
        }
        // Settled: the error does not change over as many rounds as there were so far, or its rest is far below the target.
        let is_long = 1u64 << k > most;
        if (is_long && (mse - settled).abs() <= 1e-9 * mse) || mse <= 1e-6 * target {
            settled = mse;
            break;
        }
        settled = mse;
        powers.push(&powers[k] * &powers[k]);
    }
    if !(settled <= target) {
        return exact(Err(Miss::Floor { floor: settled }), path);
    }
    let Some(k) = below else { unreachable!("a settled error at most the target was seen") };
    let (mut rounds, mut before, mut after) = if k == 0 {
        (0, evolution.start().to_vec(), states[0].clone())
    } else {
        (1u64 << (k - 1), states[k - 1].clone(), states[k].clone())
    };
    // The error is above the target after `rounds` rounds, and at most it 2^j rounds later.
    for j in (0..k.saturating_sub(1)).rev() {
        let middle = apply(&powers[j], &before);
        if evolution.mse(&middle) > target {
            (rounds, before) = (rounds + (1 << j), middle);
        } else {
            after = middle;
        }
    }
    rounds += 1;
    if rounds > most {
        let mse = path.last().map_or(at_start, |(_, mse)| *mse);
        return exact(Err(Miss::Slow { mse }), path);
    }
    let (before, mse) = (evolution.mse(&before), evolution.mse(&after));
    path.retain(|(t, _)| *t < rounds);
    path.push((rounds, mse));
    exact(Ok(reach(rounds, before, mse, target)), path)
}

/// Round by round, for large states; the floor comes first, from a linear system.
fn round_by_round(forecast: &Forecast<'_>, evolution: &Evolution, target: f64, most: u64) -> Result<Course> {
    let exact = |outcome, path| Course { outcome, path, accuracy: Accuracy::Exact };
    let mut state = evolution.start().to_vec();
    let at_start = evolution.mse(&state);
    let mut path = vec![(0, at_start)];
    let floor = match forecast.floor() {
        Ok(floor) => floor.mse(),
        Err(_) if forecast.outlook().is_unstable() => return Ok(exact(Err(Miss::Diverges), path)),
        Err(e) => return Err(e),
    };
    if floor > target {
        return Ok(exact(Err(Miss::Floor { floor }), path));
    }
    let mut next = vec![0.0; state.len()];
    let mut before = at_start;
    // A round of a state of n numbers takes some n^(3/2) multiplications.
    let work = 4.0 * (state.len() as f64).powf(1.5);
    for t in 1..=most {
        if t as f64 * work > MOST_WORK {
            let what = format!("the mean-square error over more than {t} rounds of a state of {} numbers", state.len());
            return Err(BadInput::new("", format!("not computed: {what}"), "fewer features or distinct agents, or a larger target"));
        }
        evolution.map().apply(&state, &mut next);
        std::mem::swap(&mut state, &mut next);
        let mse = evolution.mse(&state);
        if t.is_power_of_two() || mse <= target {
            path.push((t, mse));
        }
        if mse <= target {
            return Ok(exact(Ok(reach(t, before, mse, target)), path));
        }
        if !(mse <= DIVERGES * at_start.max(target)) {
            return Ok(exact(Err(Miss::Diverges), path));
        }
        before = mse;
    }
    Ok(exact(Err(Miss::Slow { mse: before }), path))
}

/// By the curve at chosen rounds, each time from the start: at powers of two, then between the last two of them.
fn by_curve(forecast: &Forecast<'_>, start: &Start, theta: &[f64], target: f64, most: u64) -> Result<Course> {
    /// The rounds that one computation of the curve looks at between two others.
    const PARTS: u64 = 8;
    forecast.knows_curve()?;
    if forecast.cost_of_noise().is_some_and(|cost| cost.multiplications > MOST_CHAIN) {
        return Err(BadInput::new("", "theory takes too long to compare many choices by", "pilot runs"));
    }
    let accuracy = forecast.curve_accuracy()?;
    match accuracy {
        Accuracy::Exact => {}
        Accuracy::Closure { eps_squared } if eps_squared <= NEAR => {}
        other => return Err(BadInput::new("", format!("theory is not near enough to choose by ({other})"), "pilot runs")),
    }
    let known = |outcome, path| Course { outcome, path, accuracy };
    let errors = |rounds: &[u64]| -> Result<Vec<(u64, f64)>> {
        let curve = forecast.curve(theta, &start.controls, rounds)?;
        Ok(rounds.iter().copied().zip(curve.iter().map(|point| point.mse())).collect())
    };
    let mut path = errors(&[0])?;
    let at_start = path[0].1;
    if forecast.outlook().is_unstable() {
        return Ok(known(Err(Miss::Diverges), path));
    }
    let floor = forecast.floor()?.mse();
    if floor > target {
        return Ok(known(Err(Miss::Floor { floor }), path));
    }
    let (mut low, mut high) = ((0, at_start), None);
    let mut reach_of = 1u64;
    while high.is_none() && low.0 < most {
        let round = reach_of.min(most);
        let seen = errors(&[round])?[0];
        if !(seen.1 <= DIVERGES * at_start.max(target)) {
            return Ok(known(Err(Miss::Diverges), path));
        }
        path.push(seen);
        if seen.1 <= target {
            high = Some(seen)
        } else {
            low = seen
        }
        reach_of = reach_of.saturating_mul(2);
    }
    let Some(mut high) = high else { return Ok(known(Err(Miss::Slow { mse: low.1 }), path)) };
    while high.0 - low.0 > 1 {
        let gap = high.0 - low.0;
        let mut between: Vec<u64> = (1..PARTS).map(|i| low.0 + i * gap / PARTS).filter(|t| *t > low.0 && *t < high.0).collect();
        between.dedup();
        for seen in errors(&between)? {
            if seen.1 <= target {
                high = seen;
                break;
            }
            low = seen;
        }
    }
    path.retain(|(t, _)| *t < high.0);
    path.push(high);
    Ok(known(Ok(reach(high.0, low.1, high.1, target)), path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linalg;

    #[test]
    fn the_first_round_of_a_map_is_found() {
        // A decay of 0.99 a round, in a plane that turns.
        let (c, s) = (0.99 * 0.3f64.cos(), 0.99 * 0.3f64.sin());
        let turn = linalg::from_rows(2, 2, &[c, -s, s, c]);
        let start = vec![3.0, 4.0];
        let evolution = Evolution::without_noise(Box::new(turn.clone()), start.clone(), 2);
        for norm in [4.99f64, 4.95, 1.0, 1e-3, 1e-9] {
            let target = norm * norm;
            let (mut state, mut want) = (start.clone(), 0);
            while linalg::norm_sq(&state) > target {
                state = apply(&turn, &state);
                want += 1;
            }
            let rounds = |most: u64| by_powers(&evolution, target, most).outcome.map(|reach| reach.rounds);
            assert_eq!(rounds(10_000), Ok(want), "{norm}");
            assert_eq!(rounds(want), Ok(want));
            assert!(matches!(rounds(want - 1), Err(Miss::Slow { .. })));
        }
        let growth = Evolution::without_noise(Box::new(Mat::full(1, 1, 2.0)), vec![1.0], 1);
        assert_eq!(by_powers(&growth, 0.5, u64::MAX / 2).outcome, Err(Miss::Diverges));
    }
}
