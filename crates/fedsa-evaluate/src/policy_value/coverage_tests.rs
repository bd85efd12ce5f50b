//! Coverage of the true values by intervals, over repetitions.

use fedsa::parallel;
use fedsa::random::{Purpose, stream};

use super::robust_tests::tabular;
use super::tests::{Chain, value_of};
use super::*;

/// Estimates, standard errors and coverage over repetitions, of fitted values, of weighted returns, of the doubly robust value, and of
/// self-normalised weights (without ratios, of weighted returns again).
fn coverage(chain: &Chain, (episodes, most): (usize, usize), repetitions: usize) -> [[f64; 3]; 4] {
    let truth = chain.truth();
    let found = parallel::map(repetitions, |seed| {
        let log = chain.log(episodes, most, &mut stream(seed as u64, Purpose::Fresh, 1, 0));
        // Values of actions are in the span of features of each state.
        let log = if most == usize::MAX { log } else { tabular(chain, &log) };
        let value = value_of(&[log], 0.0, &PolicyValueSettings::default());
        let normalised = value.importance.self_normalised.as_ref().map_or(value.importance.table.all, |table| table.all);
        [value.fitted.table.all, value.importance.table.all, value.doubly_robust.unwrap().table.all, normalised]
    });
    std::array::from_fn(|k| {
        // In few logs, an action that was never taken in a state leaves the value undetermined; the estimate reports this.
        let of: Vec<&ValueEstimate> = found.iter().map(|both| &both[k]).filter(|e| e.se.is_finite()).collect();
        assert!(of.len() as f64 >= 0.98 * repetitions as f64, "{k}: {} of {repetitions} values are determined", of.len());
        let n = of.len() as f64;
        let mean = of.iter().map(|e| e.estimate).sum::<f64>() / n;
        let deviation = (of.iter().map(|e| (e.estimate - mean).powi(2)).sum::<f64>() / (n - 1.0)).sqrt();
        let covered = of.iter().filter(|e| e.low <= truth && truth <= e.high).count() as f64 / n;
        let bias = (mean - truth) / (deviation / n.sqrt());
        [bias, of.iter().map(|e| e.se).sum::<f64>() / n / deviation, covered]
    })
}

/// With few repetitions: coverage within four standard errors of .95, bias within four of 0.
#[test]
fn intervals_cover_the_truth() {
    for off in [false, true] {
        let chain = Chain::new(off);
        for (k, [bias, ratio, covered]) in coverage(&chain, (60, usize::MAX), 400).into_iter().enumerate() {
            // Self-normalised weights have a bias, of O(1/n).
            assert!(bias.abs() < if k == 3 { 8.0 } else { 4.0 }, "{off} {k}: bias of {bias} standard errors");
            assert!((ratio - 1.0).abs() < 0.15, "{off} {k}: standard errors {ratio} of the deviation");
            assert!((covered - 0.95).abs() < 4.0 * (0.95 * 0.05 / 400.0f64).sqrt(), "{off} {k}: {covered}");
        }
    }
}

/// Nearly all episodes are truncated after a few steps, so most of the value is bootstrapped; the true values are in the span of the
/// features.
#[test]
fn intervals_cover_the_truth_where_episodes_are_cut() {
    for (off, most) in [(false, 2), (false, 5), (true, 3)] {
        for (k, [bias, ratio, covered]) in coverage(&Chain::new(off), (150, most), 400).into_iter().enumerate() {
            assert!(bias.abs() < 8.0, "{off} {most} {k}: bias of {bias} standard errors");
            assert!((ratio - 1.0).abs() < 0.15, "{off} {most} {k}: standard errors {ratio} of the deviation");
            assert!((covered - 0.95).abs() < 4.0 * (0.95 * 0.05 / 400.0f64).sqrt(), "{off} {most} {k}: {covered}");
        }
    }
}

/// Coverage, biases and standard errors of all estimates, in 2,000 repetitions with this number of episodes, of ten transitions on
/// average.
fn covers(episodes: usize, least: f64, most: f64) {
    for off in [false, true] {
        covers_of(off, (episodes, usize::MAX), least, most);
    }
}

/// [`covers`] for one policy and episodes with at most this many transitions.
fn covers_of(off: bool, (episodes, longest): (usize, usize), least: f64, most: f64) {
    for (k, [bias, ratio, covered]) in coverage(&Chain::new(off), (episodes, longest), 2000).into_iter().enumerate() {
        let name = ["fitted", "importance", "doubly robust", "self-normalised"][k];
        let what = format!(
            "off-policy {off}, {episodes} episodes of at most {longest}, {name}: bias {bias:.2} se, se/sd {ratio:.3}, coverage {covered:.4}"
        );
        assert!((least..=most).contains(&covered), "{what}");
    }
}

/// Truncated episodes.
#[test]
#[ignore = "takes a minute"]
fn intervals_of_cut_episodes_cover_the_truth_in_two_thousand_repetitions() {
    covers_of(false, (150, 2), 0.93, 0.97);
    covers_of(false, (150, 5), 0.93, 0.97);
    covers_of(true, (150, 3), 0.93, 0.97);
}

/// 200 and 2,000 transitions.
#[test]
#[ignore = "takes minutes"]
fn intervals_of_few_episodes_cover_the_truth_in_two_thousand_repetitions() {
    covers(20, 0.90, 1.0);
    covers(200, 0.93, 0.97);
}

/// 20,000 transitions.
#[test]
#[ignore = "takes an hour"]
fn intervals_of_many_episodes_cover_the_truth_in_two_thousand_repetitions() {
    covers(2000, 0.94, 0.96);
}
