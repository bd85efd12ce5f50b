//! Error rates of the rule on simulated ratios.

use super::*;
use crate::logs::log::Log;
use crate::logs::source::LogSource;
use fedsa::random::{Purpose, Stream, stream};

/// Logs with these ratios, one per agent.
fn logs(all: Vec<Vec<f64>>) -> Surveyed {
    let log = |(c, ratio): (usize, Vec<f64>)| {
        let n = ratio.len();
        let log = Log {
            name: format!("agent_{c}"),
            columns: vec!["s_0".into()],
            states: vec![0.5; n],
            rewards: vec![1.0; n],
            next: vec![0.5; n],
            done: vec![true; n],
            truncated: None,
            breaks: None,
            episode: None,
            ratio: Some(ratio),
            actions: None,
        };
        Box::new(log) as Box<dyn LogSource>
    };
    Surveyed::new(all.into_iter().enumerate().map(log).collect(), 0.0, 0).unwrap()
}

fn is_wrong(ratios: Vec<f64>) -> bool {
    !logs(vec![ratios]).wrong_ratios().is_empty()
}

/// The rejected share of 500 logs of n rows.
fn refused(n: usize, mut ratio: impl FnMut(&mut Stream) -> f64) -> f64 {
    const LOGS: u64 = 500;
    let of = |seed| {
        let mut s = stream(seed, Purpose::Fresh, 0, 0);
        (0..n).map(|_| ratio(&mut s)).collect::<Vec<f64>>()
    };
    let count = (0..LOGS).map(of).filter(|ratios| is_wrong(ratios.clone())).count();
    count as f64 / LOGS as f64
}

/// Two actions: one has the probability `p` under the acting policy and `q` under the evaluated one.
fn two_actions(p: f64, q: f64) -> impl FnMut(&mut Stream) -> f64 {
    move |s| if s.uniform() < p { q / p } else { (1.0 - q) / (1.0 - p) }
}

fn log_normal(spread: f64) -> impl FnMut(&mut Stream) -> f64 {
    move |s| (spread * s.normal() - 0.5 * spread * spread).exp()
}

#[test]
fn ratios_of_moderately_different_policies_have_a_value() {
    for n in [40, 400, 4000] {
        for (p, q) in [(0.5, 0.9), (0.9, 0.5), (0.3, 0.6), (0.05, 0.2)] {
            let share = refused(n, two_actions(p, q));
            assert!(share <= 0.002, "{p} {q} {n}: {share}");
        }
        for spread in [0.3, 0.7, 1.0] {
            let share = refused(n, log_normal(spread));
            assert!(share <= 0.002, "{spread} {n}: {share}");
        }
    }
}

#[test]
fn swapped_probabilities_and_other_ratios_of_another_mean_have_none() {
    for (p, q) in [(0.5, 0.9), (0.9, 0.5), (0.3, 0.6)] {
        let mut right = two_actions(p, q);
        assert_eq!(refused(4000, |s| 1.0 / right(s)), 1.0, "{p} {q}");
    }
    for wrong in [1e7, 1e300, 1e-7, 1.5] {
        assert!(is_wrong(vec![wrong; 4000]), "{wrong}");
    }
    assert!(is_wrong(vec![1e7; 3]), "few rows too");
}

#[test]
fn a_few_rows_that_carry_all_weight_have_no_value_and_clipped_ones_do() {
    let ratios = |large: usize| (0..4000).map(|i| if i < large { 1e5 } else { 1.0 }).collect::<Vec<f64>>();
    for large in [1, 3] {
        assert!(is_wrong(ratios(large)));
        assert!(logs(vec![ratios(large)]).with_clipped_ratios(5.0).unwrap().wrong_ratios().is_empty());
    }
    let heavy = |seed| {
        let (mut ratio, mut s) = (log_normal(5.0), stream(seed, Purpose::Fresh, 0, 0));
        (0..4000).map(|_| ratio(&mut s)).collect::<Vec<f64>>()
    };
    assert!((0..100).filter(|seed| is_wrong(heavy(*seed))).count() > 70);
}

/// The weight lost by clipping does not make ratios wrong. A mean that was wrong before clipping, or is wrong after it, does.
#[test]
fn clipping_excuses_a_smaller_mean_only() {
    let clipped = |ratios: Vec<f64>, level| !logs(vec![ratios]).with_clipped_ratios(level).unwrap().wrong_ratios().is_empty();
    let right = || (0..4000).map(|i| if i % 10 == 0 { 5.5 } else { 0.5 }).collect::<Vec<f64>>();
    assert!(!is_wrong(right()) && !clipped(right(), 2.0));
    assert!(clipped(vec![1e7; 4000], 5.0) && clipped(vec![0.1; 4000], 0.05));
}

#[test]
fn the_log_with_wrong_ratios_is_named_and_all_are_judged_together() {
    let right = vec![1.0; 500];
    let found = logs(vec![right.clone(), vec![1e7; 500]]).wrong_ratios();
    assert!(
        matches!(&found[..], [WrongRatios::Mean(Some(name), of)] if name == "agent_1" && of.mean == 1e7 && of.rows == 500.0),
        "{found:?}"
    );
    // Forty logs, each too short to decide.
    let found = logs(vec![vec![1.5; 50]; 40]).wrong_ratios();
    assert!(matches!(&found[..], [WrongRatios::Mean(None, of)] if of.rows == 2000.0), "{found:?}");
    assert!(logs(vec![right; 3]).wrong_ratios().is_empty());
}
