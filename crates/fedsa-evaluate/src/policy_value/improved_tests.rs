//! Values of a policy on episodes that another one acted in, against the truth of a small chain.

use fedsa::parallel;
use fedsa::random::{Purpose, stream};
use fedsa_problems::features::{FeatureSpec, Ranges};

use super::super::robust_tests::tabular;
use super::super::tests::{Chain, GAMMA, STATES};
use super::*;

/// The state that has this one feature.
fn state(phi: &[f64]) -> usize {
    phi.iter().position(|x| *x == 1.0).unwrap()
}

/// Two agents' logs with the probabilities of the actions that were taken, or without.
fn logs(chain: &Chain, seed: u64, episodes: usize, with_behaviour: bool) -> Vec<Log> {
    let [_, acts] = chain.laws();
    let one = |c: u64| {
        let log = tabular(chain, &chain.log(episodes, 40, &mut stream(seed, Purpose::Fresh, c, 0)));
        let mut actions = log.actions.clone().unwrap();
        (actions.here, actions.next) = (Vec::new(), Vec::new());
        if with_behaviour {
            let of = |i: usize| if actions.taken[i] == 1 { acts[state(log.state(i))] } else { 1.0 - acts[state(log.state(i))] };
            actions.behaviour = (0..log.len()).map(of).collect();
        }
        Log { name: format!("agent_{c}"), ratio: None, actions: Some(actions), ..log }
    };
    vec![one(0), one(1)]
}

fn value(chain: &Chain, logs: &[Log], policy: StatePolicy<'_>) -> ImprovedValue {
    let map = FeatureMap::new(&FeatureSpec::Identity { bias: false }, &logs[0].columns, &Ranges::new()).unwrap();
    assert_eq!(chain.laws()[0].len(), STATES);
    ImprovedValue::of(logs, &map, policy, GAMMA, &PolicyValueSettings::default()).unwrap().unwrap()
}

#[test]
fn intervals_of_both_values_and_of_their_difference_cover_the_truth() {
    const REPETITIONS: usize = 300;
    let chain = Chain::new(true);
    let [evaluated, _] = chain.laws();
    let policy = |phi: &[f64], law: &mut [f64]| law.copy_from_slice(&[1.0 - evaluated[state(phi)], evaluated[state(phi)]]);
    let (new, acted) = (chain.truth(), chain.acting().truth());
    let truths = [new, acted, new - acted];
    assert!((new - acted).abs() > 0.05, "the policies hardly differ");
    let found = parallel::map(REPETITIONS, |seed| {
        let value = value(&chain, &logs(&chain, seed as u64, 60, false), &policy);
        assert_eq!(value.weighted, Err(NoWeights::NoProbabilities));
        [value.new.all, value.acted.all, value.difference]
    });
    for (k, truth) in truths.into_iter().enumerate() {
        let n = REPETITIONS as f64;
        let mean = found.iter().map(|all| all[k].estimate).sum::<f64>() / n;
        let deviation = (found.iter().map(|all| (all[k].estimate - mean).powi(2)).sum::<f64>() / (n - 1.0)).sqrt();
        assert!((mean - truth).abs() < 4.0 * deviation / n.sqrt() + 0.01, "{k}: {mean}, {truth}");
        let covers = found.iter().filter(|all| (all[k].low..=all[k].high).contains(&truth)).count() as f64 / n;
        // 4 binomial standard errors.
        assert!((covers - 0.95).abs() < 0.05, "{k}: {covers}");
    }
    // The difference is known better than both values were independent.
    let apart = found.iter().map(|all| all[0].se.hypot(all[1].se)).sum::<f64>();
    assert!(found.iter().map(|all| all[2].se).sum::<f64>() < apart);
}

#[test]
fn logged_probabilities_give_estimates_with_ratios_unless_few_episodes_remain() {
    let chain = Chain::new(true);
    let [evaluated, acts] = chain.laws();
    let near = |phi: &[f64], law: &mut [f64]| {
        let p = 0.5 * (evaluated[state(phi)] + acts[state(phi)]);
        law.copy_from_slice(&[1.0 - p, p]);
    };
    let logs = logs(&chain, 1, 400, true);
    let found = value(&chain, &logs, &near);
    let weighted = found.weighted.clone().unwrap();
    for table in [Some(weighted.importance), weighted.doubly_robust].into_iter().flatten() {
        let apart = (table.all.estimate - found.new.all.estimate).abs();
        assert!(apart < 4.0 * table.all.se.hypot(found.new.all.se), "{table:?} {:?}", found.new);
    }
    assert!(!found.is_impossible());
    // A policy that always takes the second action leaves few whole episodes.
    let greedy = |_: &[f64], law: &mut [f64]| law.copy_from_slice(&[0.0, 1.0]);
    let few: Vec<Log> = logs.iter().map(|log| log.part(0..log.len() / 10)).collect();
    assert!(matches!(value(&chain, &few, &greedy).weighted, Err(NoWeights::FewEffective(n)) if n < 20.0));
}

#[test]
fn values_beyond_what_rewards_allow_are_impossible() {
    let chain = Chain::new(true);
    let any = |_: &[f64], law: &mut [f64]| law.copy_from_slice(&[0.5, 0.5]);
    let mut found = value(&chain, &logs(&chain, 2, 30, false), &any);
    assert!(!found.is_impossible() && found.possible.low < 0.0 && found.possible.high > 0.0);
    let (se, n) = (found.new.all.se, found.new.all.episodes);
    let before = found.clone();
    found.new.all = ValueEstimate::new(2.0 * found.possible.high, se, n, n as f64, found.level);
    assert!(found.is_impossible() && found.may_be_worse());
    assert!(before.rank() > found.rank(), "an impossible value is no reason for a policy");
    // An interval that reaches the range is possible.
    found.new.all = ValueEstimate::new(2.0 * found.possible.high, found.possible.high, n, n as f64, found.level);
    assert!(!found.is_impossible());
}
