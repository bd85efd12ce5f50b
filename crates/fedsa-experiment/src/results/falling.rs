//! The rule whether a curve still falls, for the terminal, `summary.json`, the report, checks and Python.

use fedsa_evaluate::policy_value::t_quantile;

use super::Estimate;

/// A curve that will fall by less than this share has reached its floor.
const SMALL: f64 = 0.05;

/// The share of a curve, at its end, that the rule uses: three stretches of the length of a floor.
const TAIL: f64 = 0.6;

/// The number of batches of recorded rounds in the tail, three per stretch, and the least number of rounds for a conclusion.
const BATCHES: usize = 9;
const FEWEST: usize = 5;

/// The factor on the scatter of batches within one curve, because neighbouring batches are correlated.
const CORRELATED: f64 = 1.5;

/// The level of a two-sided interval with a lower end that is exceeded with 99%.
const LEVEL: f64 = 0.98;

/// The statistics of the tail of one curve.
struct Tail {
    /// The fall of the logarithm per round, over the last two stretches.
    slope: f64,
    /// The sum of squares about that line, its degrees of freedom, and the sum of squares of the rounds.
    left: f64,
    freedom: f64,
    spread: f64,
    /// The fall of the logarithm from the first stretch to the second, and from the second to the third.
    falls: [f64; 2],
    /// Batches in a stretch.
    batches: f64,
}

impl Tail {
    /// The tail of a curve of (round, value); `None` with too few rounds, or with a value that has no logarithm.
    fn of(curve: &[(f64, f64)]) -> Option<Self> {
        let last = curve.last()?.0;
        let first = curve.partition_point(|(round, _)| *round <= (1.0 - TAIL) * last);
        let tail = &curve[first.min(curve.len().saturating_sub(BATCHES))..];
        let n = tail.len().min(BATCHES);
        if n < FEWEST {
            return None;
        }
        let batch = |k: usize| {
            let rows = &tail[k * tail.len() / n..(k + 1) * tail.len() / n];
            let mean = |of: fn(&(f64, f64)) -> f64| rows.iter().map(of).sum::<f64>() / rows.len() as f64;
            (mean(|row| row.0), mean(|row| row.1).ln())
        };
        let batches: Vec<(f64, f64)> = (0..n).map(batch).collect();
        if batches.iter().any(|(_, y)| !y.is_finite()) {
            return None;
        }
        let mean = |points: &[(f64, f64)], of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / points.len() as f64;
        let stretch = |k: usize| mean(&batches[k * n / 3..(k + 1) * n / 3], |point| point.1);
        let late = &batches[n / 3..];
        let (x, y) = (mean(late, |point| point.0), mean(late, |point| point.1));
        let spread: f64 = late.iter().map(|p| (p.0 - x).powi(2)).sum();
        let slope = -late.iter().map(|p| (p.0 - x) * (p.1 - y)).sum::<f64>() / spread;
        let left = late.iter().map(|p| (p.1 - y + slope * (p.0 - x)).powi(2)).sum();
        let falls = [stretch(0) - stretch(1), stretch(1) - stretch(2)];
        Some(Self { slope, left, freedom: late.len() as f64 - 2.0, spread, falls, batches: n as f64 / 3.0 })
    }
}

/// The share by which curves of one method, one per seed, still fall over the last fifth of the rounds; `None` if they have reached their
/// floor as far as the data show. Curves are points (round, value).
///
/// They still fall under two conditions:
///
/// 1. The logarithm falls over the last 40% of the rounds: the mean slope of the seeds is above 0 at the level 1% of Student's t. Its
///    standard error comes from the scatter of six batches about each seed's line, times 1.5. From three seeds on it is at least the
///    standard error of the slopes, which does not depend on the correlation of the rounds of one seed.
/// 2. The data do not show, at the same level, that less than 5% is left to fall. If the last three fifths fall like a geometric series,
///    with differences `l_1` and `l_2` of the logarithm, `l_2^2 / (l_1 - l_2)` is left. A curve that has hardly begun to fall has `l_1 =
///    l_2`, however small both are.
///
/// The rule calls a flat curve falling in at most 1% of all runs: with three seeds for any correlation, with one or two if the correlation
/// of its rounds decays to 1/e within a tenth of them.
pub fn falls_by(curves: &[Vec<(f64, f64)>]) -> Option<f64> {
    let last = curves.first()?.last()?.0;
    // Equal runs without noise count once.
    let different = curves.iter().enumerate().filter(|(i, curve)| !curves[..*i].contains(curve));
    let tails: Vec<Tail> = different.map(|(_, curve)| Tail::of(curve)).collect::<Option<_>>()?;
    let n = tails.len() as f64;
    let freedom: f64 = tails.iter().map(|tail| tail.freedom).sum();
    let scatter = tails.iter().map(|tail| tail.left).sum::<f64>() / freedom;
    // The excess of a mean over seeds that chance gives in 1%: from the scatter within seeds, and between seeds.
    let chance = |within: f64, between: f64| {
        let within = CORRELATED * within * t_quantile(LEVEL, freedom);
        if tails.len() < 3 { within } else { within.max(between * t_quantile(LEVEL, n - 1.0)) }
    };
    let mean = |of: fn(&Tail) -> f64| Estimate::of(&tails.iter().map(of).collect::<Vec<_>>());
    let slope = mean(|tail| tail.slope);
    let falls = slope.mean > chance((scatter / tails[0].spread / n).sqrt(), slope.se);
    let (fall, bend) = (mean(|tail| tail.falls[1]).mean, mean(|tail| tail.falls[0] - tail.falls[1]));
    // The bend is y_1 - 2 y_2 + y_3 of the means of stretches.
    let least_bend = bend.mean - chance((6.0 * scatter / tails[0].batches / n).sqrt(), bend.se);
    let is_settled = fall * fall < SMALL * least_bend;
    (falls && !is_settled).then(|| -(-slope.mean * super::FLOOR_SHARE * last).exp_m1())
}

#[cfg(test)]
mod tests {
    use super::*;
    use fedsa::random::{Purpose, stream};

    /// The course of a curve without its noise.
    type Course = fn(f64) -> f64;

    /// Curves over rounds 0 to 200: the course, times the mean of three squares of normal numbers whose correlation decays to 1/e
    /// within `memory` rounds, mixed with 1 so that the relative noise is about `noise`.
    fn curves(course: Course, seeds: usize, memory: f64, noise: f64, draw: &mut impl FnMut() -> f64) -> Vec<Vec<(f64, f64)>> {
        let keep = (-1.0 / memory).exp();
        let one = |_: usize| {
            let mut x = [draw(), draw(), draw()];
            let point = |t: u32| {
                x.iter_mut().for_each(|x| *x = keep * *x + (1.0 - keep * keep).sqrt() * draw());
                let square = x.iter().map(|x| x * x).sum::<f64>() / 3.0;
                let t = f64::from(t);
                (t, course(t / 200.0) * (noise * square + 1.0 - noise))
            };
            (0..=200).map(point).collect()
        };
        (0..seeds).map(one).collect()
    }

    /// The share of 1000 experiments in which the rule says that curves fall.
    fn share(course: Course, seeds: usize, memory: f64, noise: f64) -> f64 {
        let mut stream = stream(20_261_128, Purpose::Sample, 0, seeds);
        let mut draw = || stream.normal();
        let falls = (0..1000).filter(|_| falls_by(&curves(course, seeds, memory, noise, &mut draw)).is_some()).count();
        falls as f64 / 1000.0
    }

    #[test]
    fn a_flat_curve_falls_in_one_experiment_of_a_hundred_at_most() {
        let flat: [Course; 2] = [|_| 3.0, |t| 3.0 + 60.0 * (-24.0 * t).exp()];
        for (course, seeds, memory) in flat.iter().flat_map(|course| {
            [(1, 0.1), (1, 5.0), (1, 20.0), (2, 1.0), (2, 10.0), (3, 0.1), (3, 20.0), (3, 60.0), (10, 5.0), (10, 60.0)]
                .map(|(n, m)| (*course, n, m))
        }) {
            let share = share(course, seeds, memory, 1.0);
            // 1% plus three standard errors.
            assert!(share <= 0.0195, "{seeds} seeds, correlation {memory}: {share}");
        }
    }

    #[test]
    fn a_curve_that_has_hardly_begun_to_fall_has_no_floor() {
        let course: Course = |t| 823.0 * (-1e-3 * t).exp();
        for seeds in [1, 2, 3, 10] {
            assert!(share(course, seeds, 5.0, 5e-6) > 0.99, "{seeds}");
        }
        let exact: Vec<(f64, f64)> = (0..=200).map(|t| (f64::from(t), course(f64::from(t) / 200.0))).collect();
        let found = falls_by(&[exact.clone(), exact]).unwrap();
        assert!((found / 2e-4 - 1.0).abs() < 1e-3, "{found}");
    }

    #[test]
    fn a_curve_on_its_way_falls() {
        let courses: [(Course, f64); 3] = [(|t| (-6.0 * t).exp(), 0.2), (|t| 1.0 / (t + 0.01), 0.05), (|t| 1e-4 + (-9.0 * t).exp(), 0.2)];
        for (course, noise) in courses {
            for seeds in [1, 2, 3, 10] {
                let share = share(course, seeds, 1.0, noise);
                assert!(share > 0.95, "{seeds} seeds: {share}");
            }
        }
    }

    #[test]
    fn what_is_left_of_a_geometric_fall_decides() {
        // 1 + e^(-20 t), without noise, has e^(-20) left; 1 + e^(-2 t) has 14%.
        let curve =
            |rate: f64| -> Vec<(f64, f64)> { (0..=100).map(|t| (f64::from(t), 1.0 + (-rate * f64::from(t) / 100.0).exp())).collect() };
        assert_eq!(falls_by(&[curve(20.0)]), None);
        assert!(falls_by(&[curve(2.0)]).is_some());
        // Five recorded rounds show that a curve falls; four, or a curve that reaches 0, show nothing.
        let short = |n: u32| -> Vec<(f64, f64)> { (0..n).map(|t| (f64::from(t), 9.0 - f64::from(t))).collect() };
        assert!(falls_by(&[short(5)]).is_some());
        assert_eq!((falls_by(&[short(4)]), falls_by(&[short(10)]), falls_by(&[])), (None, None, None));
    }
}
