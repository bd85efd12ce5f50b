//! The rounds until a mean-square error is at most a target, by theory.

use super::SearchStart;
use crate::Accuracy;
use crate::exact_mse::Evolution;
use crate::predict::{Forecast, unknown};
use crate::work;
use fedsa::cancel::Cancel;
use fedsa::error::{Error, ErrorKind, Result};
use fedsa::linalg::Mat;

/// The predicted course of a choice.
#[derive(Debug, Clone, PartialEq)]
pub struct Course {
    /// Whether the choice reaches the target.
    pub outcome: std::result::Result<Hit, Miss>,
    /// The mean-square error after some rounds, in ascending order, beginning with the start.
    pub path: Vec<(u64, f64)>,
    /// The accuracy of the errors.
    pub accuracy: Accuracy,
}

/// The rounds and the error at the target.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Hit {
    /// The round after which the error is at most the target; one round earlier it is above.
    pub rounds: u64,
    /// The error after these rounds.
    pub mse: f64,
    /// The time at which the error passes the target, between `rounds - 1` and `rounds`: interpolated in the logarithm. It
    /// distinguishes choices with the same number of rounds.
    pub passes: f64,
}

/// The reason why a target is missed.
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
    /// The target needs more rounds than allowed; the floor is at most the target.
    Slow {
        /// The allowed rounds.
        rounds: u64,
        /// The error after them.
        mse: f64,
    },
}

/// Counts the work of courses, in nanoseconds on one core, and ends them.
pub(super) struct Meter {
    pub spent: f64,
    most: f64,
    cancel: Cancel,
    /// Whether the computation stops: the work is used up, or the token is cancelled.
    pub has_ended: bool,
    /// Whether the token was cancelled during a computation.
    pub was_cancelled: bool,
}

impl Meter {
    pub fn new(most: f64, cancel: &Cancel) -> Self {
        Self { spent: 0.0, most, cancel: cancel.clone(), has_ended: false, was_cancelled: false }
    }

    /// The token that ends the search.
    pub fn token(&self) -> &Cancel {
        &self.cancel
    }

    /// Records the error of a computation.
    pub fn failed(&mut self, e: &Error) {
        if e.kind() == ErrorKind::Cancelled {
            (self.has_ended, self.was_cancelled) = (true, true);
        }
    }

    /// Counts work before it is done.
    fn charge(&mut self, work: f64) -> Result<()> {
        self.cancel.check().inspect_err(|e| self.failed(e))?;
        self.has_ended |= self.spent + work > self.most;
        self.spent += work;
        if self.has_ended { Err(ended()) } else { Ok(()) }
    }

    /// Runs a computation that counts its own work, such as an iterative solve.
    fn counted<T>(&mut self, compute: impl FnOnce() -> Result<T>) -> Result<T> {
        self.charge(0.0)?;
        let (result, spent) = work::alone(self.most - self.spent, compute);
        self.spent += spent.work;
        if spent.was_cut && self.most.is_finite() {
            (self.spent, self.has_ended) = (self.spent.max(self.most), true);
            return Err(ended());
        }
        result
    }
}

fn ended() -> Error {
    Error::not_known("", "the search ended", "more work")
}

/// The largest state whose map is raised to powers.
const POWERS: usize = 1000;
/// The cost of squaring a map of n numbers, with its products with the states before and after. In large matrices a multiplication
/// takes much less than a nanosecond; for small ones allocation dominates. Within a factor of two of measurements from n = 6 to 1225.
fn squaring(n: f64) -> f64 {
    1500.0 + 3.0 * n.powi(2) + 0.042 * n.powi(3)
}

/// The squarings until an error has settled, beyond those for the allowed rounds.
const SETTLING: f64 = 8.0;
/// The most multiplications for a course that is computed round by round.
const MAX_WORK: f64 = 2e9;
/// The most multiplications for a floor under noise with memory, and for the curves of a choice: a search computes hundreds.
const MAX_CHAIN: f64 = 3e7;
const MAX_CURVES: f64 = 1e8;
/// Closures with a larger eps^2 are too inaccurate for a choice.
const NEAR: f64 = 0.02;
/// An error this many times larger than at the start counts as diverging.
const DIVERGES: f64 = 1e20;

/// The course of a choice towards the target, within `most` rounds.
///
/// # Errors
/// When the error along the rounds is not known exactly or by an accurate closure; gives the reason.
pub fn course(forecast: &Forecast, start: &SearchStart, target: f64, most: u64) -> Result<Course> {
    course_within(forecast, start, target, most, &mut Meter::new(f64::INFINITY, &Cancel::never()))
}

/// [`course`] within the meter's work, beyond which it fails.
pub(super) fn course_within(forecast: &Forecast, start: &SearchStart, target: f64, most: u64, meter: &mut Meter) -> Result<Course> {
    let Some(theta) = &start.theta else { return Err(unknown("the start is random")) };
    // The moments of the local phases, from which the map is built.
    let phases = forecast.curve_work(0).unwrap_or(0.0);
    meter.charge(phases)?;
    let Ok(evolution) = forecast.evolution(theta, &start.controls) else {
        return by_curve(forecast, start, theta, target, most, meter);
    };
    let n = evolution.start().len() as f64;
    let of_round = evolution.map().work();
    let squarings = (most as f64).log2() + SETTLING;
    let powers = evolution.map().matrix_work() + squarings * squaring(n);
    let rounds = most as f64 * of_round + forecast.floor_work().unwrap_or(0.0);
    if evolution.start().len() <= POWERS && powers <= rounds {
        by_powers(&evolution, target, most, meter)
    } else {
        round_by_round(forecast, &evolution, of_round, target, most, meter)
    }
}

fn apply(map: &Mat<f64>, x: &[f64]) -> Vec<f64> {
    fedsa::linalg::mat_vec(map, x)
}

impl Hit {
    /// The cost of all rounds, with the time of passing instead of the rounds.
    pub fn smooth(&self, cost: f64) -> f64 {
        cost * self.passes / self.rounds.max(1) as f64
    }

    /// From two rounds with their errors, above the target and at most the target.
    pub fn between(above: (u64, f64), below: (u64, f64), target: f64) -> Self {
        let share = (above.1 / target).ln() / (above.1 / below.1).ln();
        let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 1.0 };
        Self { rounds: below.0, mse: below.1, passes: above.0 as f64 + share * (below.0 - above.0) as f64 }
    }
}

/// Whether a state observed after 1, 2, 4, .. rounds has settled.
struct Settling {
    /// The distance that the state moved from one power to the next, in any component, and how often in a row it has shrunk.
    moves: Vec<f64>,
    still: u32,
    /// The largest component of the start.
    size: f64,
    /// The error at the last observation.
    last: f64,
}

impl Settling {
    /// Records an observation: this error, and a state at this distance from the previous observation.
    ///
    /// Settled means one of these:
    /// - The error does not change over as many rounds as there were so far, and the state moved twice in a row by less than half as
    ///   much as before (with small steps it moves by twice as much).
    /// - After more rounds than allowed, the state does not move at all.
    /// - The last two errors are both far below the target.
    fn has_settled(&mut self, mse: f64, step: f64, are_many: bool, target: f64) -> bool {
        let is_flat = (mse - self.last).abs() <= 1e-9 * mse;
        self.still = if step <= (1e-9 * mse).min(0.5 * self.moves.last().copied().unwrap_or(0.0)) { self.still + 1 } else { 0 };
        let has_moved = self.moves.iter().any(|other| *other >= 1e-6 * self.size);
        let is_stuck = are_many && step <= 4.0 * f64::EPSILON * self.size;
        let is_still = is_flat && (is_stuck || (self.still >= 2 && has_moved));
        if step.is_finite() {
            self.moves.push(step);
        }
        let is_gone = mse <= 1e-6 * target && self.last <= 1e-6 * target;
        self.last = mse;
        is_still || is_gone
    }
}

/// The powers `M^(2^k)` of the map until the error has settled.
struct Doubled {
    powers: Vec<Mat<f64>>,
    /// The states after 2^k rounds.
    states: Vec<Vec<f64>>,
    /// The first k with an error of at most the target.
    below: Option<usize>,
    /// The error in the end; `None` if it diverges.
    floor: Option<f64>,
    path: Vec<(u64, f64)>,
}

fn doubled(evolution: &Evolution, target: f64, most: u64, meter: &mut Meter) -> Result<Doubled> {
    let at_start = evolution.mse(evolution.start());
    let limit = DIVERGES * at_start.max(target);
    meter.charge(evolution.map().matrix_work())?;
    let powers = vec![evolution.map().to_matrix()];
    let mut of = Doubled { powers, states: Vec::new(), below: None, floor: None, path: vec![(0, at_start)] };
    let distance = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max);
    let size = evolution.start().iter().fold(0.0f64, |size, x| size.max(x.abs()));
    let mut settling = Settling { moves: Vec::new(), still: 0, size, last: f64::NAN };
    for k in 0..62 {
        let state = apply(&of.powers[k], evolution.start());
        let mse = evolution.mse(&state);
        if !(mse <= limit) {
            return Ok(of);
        }
        if 1u64 << k <= most {
            of.path.push((1 << k, mse));
        }
        if of.below.is_none() && mse <= target {
            of.below = Some(k);
        }
        let step = of.states.last().map_or(f64::INFINITY, |before| distance(&state, before));
        of.states.push(state);
        if settling.has_settled(mse, step, 1u64 << k > most, target) {
            break;
        }
        meter.charge(squaring(of.powers[k].nrows() as f64))?;
        of.powers.push(&of.powers[k] * &of.powers[k]);
    }
    of.floor = Some(settling.last);
    Ok(of)
}

/// Computes powers `M^(2^k)` of the map: doubling until the error has settled, then bisection.
fn by_powers(evolution: &Evolution, target: f64, most: u64, meter: &mut Meter) -> Result<Course> {
    let exact = |outcome, path| Course { outcome, path, accuracy: Accuracy::Exact };
    let Doubled { powers, states, below, floor, mut path } = doubled(evolution, target, most, meter)?;
    let Some(floor) = floor else { return Ok(exact(Err(Miss::Diverges), path)) };
    if !(floor <= target) {
        return Ok(exact(Err(Miss::Floor { floor }), path));
    }
    let Some(k) = below else { unreachable!("a settled error at most the target was seen") };
    let (mut rounds, mut before, mut after) = if k == 0 {
        (0, evolution.start().to_vec(), states[0].clone())
    } else {
        (1u64 << (k - 1), states[k - 1].clone(), states[k].clone())
    };
    // The error is above the target after `rounds` rounds, and at most the target 2^j rounds later.
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
        let bits = (0..powers.len()).filter(|j| most >> j & 1 == 1);
        let state = bits.fold(evolution.start().to_vec(), |state, j| apply(&powers[j], &state));
        let mse = evolution.mse(&state);
        path.push((most, mse));
        path.dedup_by_key(|(t, _)| *t);
        return Ok(exact(Err(Miss::Slow { rounds: most, mse }), path));
    }
    let (before, mse) = (evolution.mse(&before), evolution.mse(&after));
    path.retain(|(t, _)| *t < rounds);
    path.push((rounds, mse));
    Ok(exact(Ok(Hit::between((rounds - 1, before), (rounds, mse), target)), path))
}

/// Computes round by round, for large states and few rounds; the floor comes first, from a linear system.
fn round_by_round(forecast: &Forecast, evolution: &Evolution, of_round: f64, target: f64, most: u64, meter: &mut Meter) -> Result<Course> {
    let exact = |outcome, path| Course { outcome, path, accuracy: Accuracy::Exact };
    let mut state = evolution.start().to_vec();
    let at_start = evolution.mse(&state);
    let mut path = vec![(0, at_start)];
    let floor = match meter.counted(|| forecast.floor()) {
        Ok(floor) => floor.mse(),
        Err(e) if meter.has_ended => return Err(e),
        Err(e) => match meter.counted(|| Ok(forecast.outlook().is_unstable()))? {
            true => return Ok(exact(Err(Miss::Diverges), path)),
            false => return Err(e),
        },
    };
    if floor > target {
        return Ok(exact(Err(Miss::Floor { floor }), path));
    }
    let mut next = vec![0.0; state.len()];
    let mut before = at_start;
    for t in 1..=most {
        if t as f64 * of_round > MAX_WORK {
            let what = format!("the mean-square error over more than {t} rounds of a state of {} numbers", state.len());
            return Err(Error::not_known("", format!("not computed: {what}"), "fewer features or distinct agents, or a larger target"));
        }
        meter.charge(of_round)?;
        evolution.map().apply(&state, &mut next);
        std::mem::swap(&mut state, &mut next);
        let mse = evolution.mse(&state);
        if t.is_power_of_two() || mse <= target {
            path.push((t, mse));
        }
        if mse <= target {
            return Ok(exact(Ok(Hit::between((t - 1, before), (t, mse), target)), path));
        }
        if !(mse <= DIVERGES * at_start.max(target)) {
            return Ok(exact(Err(Miss::Diverges), path));
        }
        before = mse;
    }
    path.push((most, before));
    path.dedup_by_key(|(t, _)| *t);
    Ok(exact(Err(Miss::Slow { rounds: most, mse: before }), path))
}

fn too_long() -> Error {
    Error::not_known("", "theory takes too long to compare many choices by", "pilot runs")
}

/// The first round whose error is at most the target, after one before it: two consecutive rounds with their errors.
fn first_between(
    mut low: (u64, f64),
    mut high: (u64, f64),
    target: f64,
    errors: &mut impl FnMut(&[u64]) -> Result<Vec<(u64, f64)>>,
) -> Result<((u64, f64), (u64, f64))> {
    /// The number of rounds that one computation of the curve checks between two others.
    const PARTS: u64 = 8;
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
    Ok((low, high))
}

/// Computes the curve at chosen rounds, each time from the start: at powers of two, then between the last two of them.
fn by_curve(forecast: &Forecast, start: &SearchStart, theta: &[f64], target: f64, most: u64, meter: &mut Meter) -> Result<Course> {
    forecast.knows_curve()?;
    if forecast.cost_of_noise().is_some_and(|cost| cost.multiplications > MAX_CHAIN) {
        return Err(too_long());
    }
    let accuracy = forecast.curve_accuracy()?;
    match accuracy {
        Accuracy::Exact => {}
        Accuracy::Closure { eps_squared } if eps_squared <= NEAR => {}
        other => return Err(Error::not_known("", format!("theory is not near enough to choose by ({other})"), "pilot runs")),
    }
    let known = |outcome, path| Course { outcome, path, accuracy };
    meter.charge(forecast.floor_work().unwrap_or(0.0))?;
    let mut work = 0.0;
    let mut errors = |rounds: &[u64]| -> Result<Vec<(u64, f64)>> {
        let more = forecast.curve_work(rounds.last().copied().unwrap_or(0))?;
        work += more;
        if work > MAX_CURVES {
            return Err(too_long());
        }
        meter.charge(more)?;
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
    let Some(high) = high else { return Ok(known(Err(Miss::Slow { rounds: low.0, mse: low.1 }), path)) };
    let (low, high) = first_between(low, high, target, &mut errors)?;
    path.retain(|(t, _)| *t < high.0);
    path.push(high);
    Ok(known(Ok(Hit::between(low, high, target)), path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fedsa::linalg;

    #[test]
    fn the_first_round_of_a_map_is_found() {
        // A decay of 0.99 per round, in a plane that rotates.
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
            let rounds = |most: u64| powers(&evolution, target, most).map(|hit| hit.rounds);
            assert_eq!(rounds(10_000), Ok(want), "{norm}");
            assert_eq!(rounds(want), Ok(want));
            let Err(Miss::Slow { rounds, mse }) = rounds(want - 1) else { panic!("{norm}: it takes {want} rounds") };
            // The radius is 5 at the start, and shrinks by 0.99 per round.
            let left = 25.0 * 0.99f64.powi(2 * rounds as i32);
            assert!(rounds == want - 1 && (mse - left).abs() <= 1e-9 * left, "{rounds}: {mse} {left}");
        }
        let growth = Evolution::without_noise(Box::new(Mat::full(1, 1, 2.0)), vec![1.0], 1);
        assert_eq!(powers(&growth, 0.5, u64::MAX / 2), Err(Miss::Diverges));
    }

    fn powers(evolution: &Evolution, target: f64, most: u64) -> std::result::Result<Hit, Miss> {
        by_powers(evolution, target, most, &mut Meter::new(f64::INFINITY, &Cancel::never())).unwrap().outcome
    }

    #[test]
    fn an_error_that_dips_has_not_settled() {
        // Two modes: one turns by a quarter in each round, so that the error is far below the target after 2 rounds, and grows.
        let map = linalg::from_rows(2, 2, &[0.0, -1.2, 1.2, 0.0]);
        // The error is the square of the first component, which is 0 after every odd round.
        let evolution = Evolution::without_noise(Box::new(map), vec![1.0, 0.0], 1);
        assert_eq!(powers(&evolution, 0.5, 1000), Err(Miss::Diverges));
    }

    #[test]
    fn an_error_that_hardly_moves_has_not_settled() {
        let wait = |rate: f64, target: f64, most: u64| {
            // A fast mode, and a slow one.
            let map = linalg::from_rows(2, 2, &[0.1, 0.0, 0.0, rate]);
            let evolution = Evolution::without_noise(Box::new(map), vec![1.0, 1.0], 2);
            powers(&evolution, target, most)
        };
        for small in [1e-4f64, 1e-8, 3e-12] {
            let rounds = ((0.5f64.ln() / (2.0 * (-small).ln_1p())).ceil()) as u64;
            let hit = wait(1.0 - small, 0.5, u64::MAX / 2).unwrap();
            assert!((hit.rounds as f64 / rounds as f64 - 1.0).abs() < 1e-3, "{small}: {} {rounds}", hit.rounds);
            assert!(matches!(wait(1.0 - small, 0.5, 1000), Err(Miss::Slow { rounds: 1000, .. })), "{small}");
            assert_eq!(wait(1.0 + small, 0.5, 10), Err(Miss::Diverges), "{small}");
        }
    }

    #[test]
    fn work_and_cancellation_end_a_course() {
        let slow = Evolution::without_noise(Box::new(Mat::full(1, 1, 0.999_999)), vec![1.0], 1);
        let mut meter = Meter::new(1.0, &Cancel::never());
        by_powers(&slow, 1e-3, 1 << 40, &mut meter).unwrap_err();
        assert!(meter.has_ended && meter.spent <= 1.0 + squaring(1.0));
        let cancel = Cancel::new();
        cancel.cancel();
        let mut meter = Meter::new(f64::INFINITY, &cancel);
        let why = by_powers(&slow, 1e-3, 1 << 40, &mut meter).unwrap_err();
        assert_eq!((meter.has_ended, why.kind()), (true, ErrorKind::Cancelled));
    }

    /// Processor time of the release profile on one idle core with AVX-512, in microseconds.
    #[test]
    fn squarings_and_rounds_are_estimated_as_they_were_measured() {
        let near = |estimate: f64, measured: f64, what: &str| {
            let ratio = estimate / (1e3 * measured);
            assert!((0.5..2.0).contains(&ratio), "{what}: {ratio}");
        };
        for (n, measured) in [
            (6, 1.75),
            (9, 1.9),
            (25, 4.1),
            (45, 10.4),
            (81, 38.4),
            (153, 189.0),
            (325, 1470.0),
            (441, 3690.0),
            (861, 27_400.0),
            (1225, 88_000.0),
        ] {
            near(squaring(f64::from(n)), measured, &format!("a map of {n} numbers"));
        }
        let rounds = [
            (2, [(1, 5.0), (4, 17.0), (10, 52.0), (30, 232.0)]),
            (4, [(1, 6.5), (4, 24.6), (10, 81.0), (30, 593.0)]),
            (8, [(1, 10.4), (4, 44.5), (10, 210.0), (30, 1510.0)]),
            (12, [(1, 18.4), (4, 107.0), (10, 428.0), (30, 4050.0)]),
            (20, [(1, 158.0), (2, 326.0), (4, 700.0), (10, 2590.0)]),
        ];
        for (d, classes) in rounds {
            for (k, measured) in classes {
                near(crate::exact_mse::round_work(f64::from(k), f64::from(d)), measured, &format!("{k} classes of d = {d}"));
            }
        }
    }
}
