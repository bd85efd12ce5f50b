//! Compares the doubly robust value of section 3 with a slow twin and the truth.

use fedsa::parallel;
use fedsa::random::{Purpose, stream};
use fedsa_problems::features::{FeatureMap, FeatureSpec, Ranges};
use fedsa_problems::logs::log::Log;

use super::tests::{Chain, GAMMA, STATES, close, dot, named, rule, three, units, value_of};
use super::twin::{self, TwinEpisode, TwinRow};
use super::*;

/// `psi(s, a)`: phi in the block of the action.
fn acted(log: &Log, i: usize) -> Vec<f64> {
    let (phi, actions) = (log.state(i), log.actions.as_ref().unwrap());
    (0..actions.count).flat_map(|k| phi.iter().map(move |x| if actions.taken[i] as usize == k { *x } else { 0.0 })).collect()
}

/// `sum_k p_k psi(s, k)`.
fn mean(phi: &[f64], law: &[f64]) -> Vec<f64> {
    law.iter().flat_map(|p| phi.iter().map(move |x| p * x)).collect()
}

#[test]
fn doubly_robust_values_are_those_of_the_slow_twin() {
    for off in [false, true] {
        let logs = three(&Chain::new(off));
        let found = value_of(&logs, 0.3, &PolicyValueSettings::default()).doubly_robust.unwrap();
        // The same episodes with features of actions, and the features of their states separately.
        let (mut all, plain) = (units(&logs, 0), units(&logs, 0));
        let mut here: Vec<Vec<Vec<f64>>> = Vec::new();
        let mut rows = logs.iter().flat_map(|log| (0..log.len()).map(move |i| (log, i)));
        for unit in &mut all {
            let mut states = Vec::new();
            for row in unit.parts.iter_mut().flatten() {
                let (log, i) = rows.next().unwrap();
                let law = |p: &[f64]| p[2 * i..2 * i + 2].to_vec();
                let actions = log.actions.as_ref().unwrap();
                states.push(mean(log.state(i), &law(&actions.here)));
                let next = if log.done[i] { vec![0.0; 6] } else { mean(log.next_state(i), &law(&actions.next)) };
                *row = TwinRow { phi: acted(log, i), next, reward: row.reward, ratio: 1.0 };
            }
            here.push(states);
        }
        let fit = twin::TwinFit { lambda: 0.0, ridge: 0.0 };
        let w: Vec<Vec<f64>> =
            (0..FOLDS).map(|k| fit.theta(&all.iter().filter(|unit| unit.fold != k).collect::<Vec<&TwinEpisode>>())).collect();
        let value = |(i, unit): (usize, &TwinEpisode)| {
            let (w, mut value, mut rho) = (&w[unit.fold], dot(&here[i][0], &w[unit.fold]), 1.0);
            for (t, row) in unit.parts[0].iter().enumerate() {
                rho *= plain[i].parts[0][t].ratio;
                value += GAMMA.powi(t as i32) * rho * (row.reward + GAMMA * dot(&row.next, w) - dot(&row.phi, w));
            }
            value
        };
        let values: Vec<f64> = all.iter().enumerate().map(value).collect();
        let n = values.len() as f64;
        let average = values.iter().sum::<f64>() / n;
        close(found.table.all.estimate, average, "the mean");
        let every: Vec<&TwinEpisode> = all.iter().collect();
        let rho = |i: usize| plain[i].parts[0].iter().map(|row| row.ratio).product::<f64>();
        let parts = twin::by_weights(&fit, &every, |_| true, rho);
        close(found.table.all.se, twin::error(&every, |_| true, &values, &parts), "its error");
        let own: Vec<f64> = all.iter().zip(&values).filter(|(unit, _)| unit.agent == 1).map(|(_, v)| *v).collect();
        close(found.table.shared[1].1.estimate, own.iter().sum::<f64>() / own.len() as f64, "an agent's mean");
    }
}

/// A log with a feature for each state, so that action values are linear in the features.
pub(super) fn tabular(chain: &Chain, log: &Log) -> Log {
    let one = |phi: &[f64]| -> Vec<f64> { (0..STATES).map(|s| f64::from(u8::from(phi == chain.phi[s]))).collect() };
    let all = |states: &[f64]| states.chunks_exact(3).flat_map(one).collect();
    let columns = (0..STATES).map(|s| format!("s_{s}")).collect();
    Log { columns, states: all(&log.states), next: all(&log.next), ..log.clone() }
}

/// With wrong ratios, importance sampling is far off, but the doubly robust value is right, since q is.
#[test]
fn wrong_ratios_do_no_harm_where_values_of_actions_are_right() {
    let chain = Chain::new(true);
    let (truth, repetitions) = (chain.truth(), 200);
    let found = parallel::map(repetitions, |seed| {
        let log = tabular(&chain, &chain.log(150, usize::MAX, &mut stream(seed as u64, Purpose::Fresh, 2, 0)));
        let log = Log { ratio: None, ..log };
        let map = FeatureMap::new(&FeatureSpec::Identity { bias: false }, &log.columns, &Ranges::new()).unwrap();
        let value = PolicyValue::of(&named(vec![log]), &map, rule(0.0), &PolicyValueSettings::default()).unwrap().unwrap();
        [value.importance.table.all.estimate, value.doubly_robust.unwrap().table.all.estimate]
    });
    let n = repetitions as f64;
    let [importance, robust] = [0, 1].map(|k| {
        let average = found.iter().map(|both| both[k]).sum::<f64>() / n;
        let deviation = (found.iter().map(|both| (both[k] - average).powi(2)).sum::<f64>() / (n - 1.0)).sqrt();
        (average - truth) / (deviation / n.sqrt())
    });
    assert!(robust.abs() < 4.0, "{robust} standard errors off");
    assert!(importance.abs() > 10.0, "{importance} standard errors off: the ratios are not wrong enough");
}

/// Agents that describe different actions, or none, have no such value.
#[test]
fn all_logs_have_to_describe_the_same_actions() {
    let logs = three(&Chain::new(true));
    let without = Log { actions: None, ..logs[1].clone() };
    assert!(value_of(&[logs[0].clone(), without], 0.0, &PolicyValueSettings::default()).doubly_robust.is_none());
}
