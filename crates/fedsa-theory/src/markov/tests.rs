//! Reference values, enumerations and limits.

pub(super) mod counts;
mod cycle;

use faer::prelude::*;

use self::counts::Counts;
use self::cycle::Cycle;
use super::joint::{Joint, unknowns};
use super::leading_order::LeadingOrder;
use super::one_agent::OneAgent;
use super::testing::{Given, classes, independent, joint_floor, r1, r2, r3, r4};
use super::{AgentClass, MarkovAgent, MarkovRule};
use crate::RoundSetting;
use crate::exact_mse::{ExactMse, FedLsaMse, InitialControls, ScafflsaMse};
use crate::testing::Draw;
use fedsa::linalg::{self, Mat};
use fedsa::sampling::ChainStart;

/// Half a unit in the last printed digit, and a small margin.
fn printed(value: f64, want: f64, digit: f64) {
    assert!((value - want).abs() <= 0.51 * digit, "{value} instead of {want}");
}

fn setting(eta: f64, steps: u64) -> RoundSetting {
    RoundSetting::new(eta, steps).unwrap()
}

const RULES: [MarkovRule; 3] = [MarkovRule::FedLsa, MarkovRule::FedHsa, MarkovRule::Scafflsa];

#[test]
fn one_agent_has_the_reference_values() {
    let (classes, root) = classes(&r1());
    printed(root[0], 0.3030303, 1e-7);
    let order = LeadingOrder::new(&classes, &setting(0.1, 1), MarkovRule::FedLsa).unwrap();
    printed(order.beta[0], -0.92561983, 1e-8);
    printed(order.traces().0, 1.53268219, 1e-8);
    printed(order.traces().1, 0.27047333, 1e-8);
    for (eta, bias, mse, r2) in [
        (0.01, -0.0091686791, 0.0159068293, 0.978458),
        (0.1, -0.0844964164, 0.1969328305, 0.828847),
        (0.4, -0.2679425837, 0.9426123099, 0.624675),
        (0.8, -0.4198687910, 1.9073867193, 0.463162),
    ] {
        let agent = OneAgent::new(&classes[0].agent, eta, 1).unwrap();
        let floor = agent.floor().unwrap();
        printed(floor.bias[0], bias, 1e-10);
        printed(floor.mse, mse, 1e-10);
        printed(agent.r2().unwrap(), r2, 1e-6);
        assert!(agent.map().mean_radius().unwrap().powi(2) <= agent.r2().unwrap());
        // The floor at a round's start does not depend on the number of steps of one agent, nor on the method.
        for rule in RULES {
            let joint = joint_floor(&classes, &setting(eta, 3), rule).unwrap();
            assert!((joint.mse - floor.mse).abs() < 1e-12 && (joint.bias[0] - floor.bias[0]).abs() < 1e-12);
        }
    }
}

#[test]
fn few_agents_have_the_reference_values() {
    use MarkovRule::{FedHsa, FedLsa, Scafflsa};
    for (n, rule, steps, beta, small, large, bias) in [
        (2, FedLsa, 1, -0.39265691, 0.0308461288, 0.2177072309, -0.0940192213),
        (2, FedHsa, 1, -0.39265691, 0.0308461288, 0.2177072309, -0.0940192213),
        (2, Scafflsa, 1, -0.39265691, 0.0308461288, 0.2177072309, -0.0940192213),
        (2, FedLsa, 3, -0.50276743, 0.0317488418, 0.2523807501, -0.1414963199),
        (2, FedHsa, 3, -0.41246333, 0.0309826080, 0.2239852396, -0.1034478303),
        (2, Scafflsa, 3, -0.47834692, 0.0314677074, 0.2440498956, -0.1313241120),
        (3, FedLsa, 1, -0.10269685, 0.0040140139, 0.0249737229, -0.0251294451),
        (3, Scafflsa, 1, -0.10269685, 0.0040140139, 0.0249737229, -0.0251294451),
        (3, FedLsa, 3, 0.06248740, 0.0043238517, 0.0444548404, 0.0396821768),
        (3, FedHsa, 3, -0.11302601, 0.0040363010, 0.0259975118, -0.0295634926),
        (3, Scafflsa, 3, -0.14808298, 0.0041141289, 0.0290325748, -0.0443580931),
    ] {
        let (classes, root) = classes(&r2(n));
        printed(root[0], if n == 2 { 0.49800971 } else { 1.06561302 }, 1e-8);
        let order = LeadingOrder::new(&classes, &setting(0.1, steps), rule).unwrap();
        printed(order.beta[0], beta, 1e-8);
        printed(order.v1[(0, 0)], if n == 2 { 0.58017504 } else { 0.07901736 }, 1e-8);
        printed(joint_floor(&classes, &setting(0.05, steps), rule).unwrap().mse, small, 1e-10);
        let floor = joint_floor(&classes, &setting(0.3, steps), rule).unwrap();
        printed(floor.mse, large, 1e-10);
        printed(floor.bias[0], bias, 1e-10);
        assert!((floor.noise() - (floor.mse - bias * bias)).abs() < 1e-9);
    }
}

#[test]
fn counts_have_the_reference_values_of_a_hundred_agents() {
    for (lambda, steps, eta, mse, digit) in [
        (0.5, 1, 0.02, 3.736867054e-4, 1e-13),
        (0.5, 10, 0.1, 5.858950187e-3, 1e-12),
        (0.9, 1, 0.1, 7.357163811e-3, 1e-12),
        (0.9, 10, 0.02, 2.740051557e-3, 1e-12),
        (0.9, 10, 0.1, 3.193068637e-2, 1e-11),
    ] {
        let (classes, root) = classes(&r3(100, lambda));
        printed(root[0], 0.41666667, 1e-8);
        printed(Counts::new(&classes, &setting(eta, steps), 1).unwrap().floor().unwrap().mse, mse, digit);
    }
}

#[test]
fn temporal_differences_have_the_reference_values() {
    for (lazy, agents, want, traces) in [
        (false, 1, [-2.32538472, 0.39047316, 0.95942681], (8.34516386, 5.33153715)),
        (true, 1, [-2.32538472, -0.28508088, 3.13351229], (87.42424983, 9.71151161)),
        (false, 10, [1.69778885, -0.41227036, 0.45822957], (0.67690295, 0.51074218)),
        (true, 10, [1.69778885, -1.39628125, 1.03071867], (7.75743679, 0.82053527)),
    ] {
        let (classes, root) = classes(&r4(agents, lazy));
        root.iter().zip(want).for_each(|(root, want)| printed(*root, want, 1e-8));
        let order = LeadingOrder::new(&classes, &setting(0.1, 1), MarkovRule::FedLsa).unwrap();
        printed(order.traces().0, traces.0, 1e-8);
        printed(order.traces().1, traces.1, 1e-8);
    }
    for (lazy, eta, iid, iid_digit, exact, digit, order, order_digit) in [
        (false, 0.05, 0.271437529, 1e-9, 0.408757295, 1e-9, 0.41743, 1e-5),
        (false, 0.2, 1.14860754, 1e-8, 1.54730390, 1e-8, 1.6717, 1e-4),
        (false, 0.8, 5.98311550, 1e-8, 5.50836943, 1e-8, 6.7194, 1e-4),
        (true, 0.05, 0.490237, 1e-6, 4.10136481, 1e-8, 4.396, 1e-3),
        (true, 0.2, 2.019121, 1e-6, 13.7947403, 1e-7, 17.883, 1e-3),
        (true, 0.8, 9.165627, 1e-6, 32.1517606, 1e-7, 76.31, 1e-2),
    ] {
        let given = r4(1, lazy);
        let (classes, root) = classes(&given);
        printed(OneAgent::new(&classes[0].agent, eta, 1).unwrap().floor().unwrap().mse, exact, digit);
        printed(LeadingOrder::new(&classes, &setting(eta, 1), MarkovRule::FedLsa).unwrap().floor().mse, order, order_digit);
        let (systems, moments) = independent(&given, &root);
        let floor = FedLsaMse::new(&systems, &moments, &setting(eta, 1), 1).unwrap().floor().unwrap();
        printed(floor.mse(), iid, iid_digit);
    }
    for (lazy, steps, eta, iid, order) in [
        (false, 1, 0.05, 0.0256346, (0.03385, 1e-5)),
        (false, 10, 0.8, 0.5124858, (0.5483, 1e-4)),
        (true, 1, 0.2, 0.1656051, (1.5524, 1e-4)),
        (true, 10, 0.2, 0.1653948, (1.5600, 1e-4)),
    ] {
        let given = r4(10, lazy);
        let (classes, root) = classes(&given);
        printed(LeadingOrder::new(&classes, &setting(eta, steps), MarkovRule::FedLsa).unwrap().floor().mse, order.0, order.1);
        let (systems, moments) = independent(&given, &root);
        let floor = FedLsaMse::new(&systems, &moments, &setting(eta, steps), 1).unwrap().floor().unwrap();
        printed(floor.mse(), iid, 1e-7);
    }
}

/// Both are exact for FedLSA, for classes of several agents, node and edge samples, and batches.
#[test]
fn counts_are_the_joint_chain() {
    let mut draw = Draw::new(31);
    let mut two: Vec<Given> = [0.2, 0.3].iter().map(|p| Given::random(&mut draw, *p, 2, 2, true)).collect();
    two[0].count = 2;
    two[1].count = 2;
    let mut one = vec![Given { count: 3, ..Given::random(&mut draw, 1.0 / 3.0, 2, 1, false) }];
    one[0].weight = 1.0 / 3.0;
    for given in [two, one, r3(4, 0.9)] {
        let (classes, root) = classes(&given);
        for (steps, batch) in [(1, 1), (3, 1), (2, 3)] {
            let setting = setting(0.2, steps);
            let counts = Counts::new(&classes, &setting, batch).unwrap();
            let joint = Joint::new(&classes, &setting, MarkovRule::FedLsa, batch).unwrap();
            let (a, b) = (counts.floor().unwrap(), joint.floor().unwrap());
            assert!((a.mse - b.mse).abs() < 1e-12 * b.mse.max(1.0) && linalg::distance_sq(&a.bias, &b.bias) < 1e-24, "{a:?} {b:?}");
            assert!((counts.r2().unwrap() - joint.map().second_radius().unwrap()).abs() < 1e-10);
            let offset = vec![1.0; root.len()];
            let a = counts.curve(&offset, &[0, 1, 2, 7]).unwrap();
            let b = joint.curve(&offset, &InitialControls::Zero, ChainStart::Stationary, &[0, 1, 2, 7]).unwrap();
            assert!(a.iter().zip(&b).all(|(a, b)| (a.mse - b.mse).abs() < 1e-12 * b.mse.max(1.0)), "{a:?} {b:?}");
        }
    }
}

/// Each agent's state and local variables along every path of all chains: the definition of the methods, without registers.
struct Paths<'a> {
    agents: Vec<&'a MarkovAgent>,
    eta: f64,
    steps: usize,
    batch: usize,
    rule: MarkovRule,
}

impl Paths<'_> {
    /// All paths of one agent over `n` moves from a state: probability, end, moves.
    fn paths(agent: &MarkovAgent, from: u32, n: usize) -> Vec<(f64, u32, Vec<usize>)> {
        let mut paths = vec![(1.0, from, Vec::new())];
        for _ in 0..n {
            let extend = |(q, s, seen): &(f64, u32, Vec<usize>)| -> Vec<(f64, u32, Vec<usize>)> {
                let leaves = agent.moves.iter().enumerate().filter(|(_, m)| m.from == *s);
                leaves.map(|(z, m)| (q * m.p, m.to, seen.iter().copied().chain([z]).collect())).collect()
            };
            paths = paths.iter().flat_map(extend).collect();
        }
        paths
    }

    /// `g(u)` as a mean over a batch.
    fn g(&self, c: usize, u: &[f64], batch: &[usize]) -> Vec<f64> {
        let mut g = vec![0.0; u.len()];
        for z in batch {
            let m = &self.agents[c].moves[*z];
            let at = linalg::mat_vec(&m.a, u);
            (0..u.len()).for_each(|i| g[i] -= (at[i] + m.w[i]) / batch.len() as f64);
        }
        g
    }

    /// One round from `(u, x_1 .. x_N)` along given paths.
    fn round(&self, y: &[Vec<f64>], paths: &[&[usize]]) -> Vec<Vec<f64>> {
        let n = self.agents.len();
        let d = y[0].len();
        let first: Vec<Vec<f64>> = (0..n).map(|c| self.g(c, &y[0], &paths[c][..self.batch])).collect();
        let mut ends = Vec::new();
        for c in 0..n {
            let mut u = y[0].clone();
            let xi = self.agents[c].mean_w();
            for h in 0..self.steps {
                let g = self.g(c, &u, &paths[c][h * self.batch..][..self.batch]);
                for i in 0..d {
                    let mean: f64 = (0..n).map(|e| self.agents[e].weight * first[e][i]).sum();
                    let drift = match self.rule {
                        MarkovRule::FedLsa => 0.0,
                        MarkovRule::FedHsa => mean - first[c][i],
                        MarkovRule::Scafflsa => y[c + 1][i] + xi[i],
                    };
                    u[i] += self.eta * (g[i] + drift);
                }
            }
            ends.push(u);
        }
        let mean: Vec<f64> = (0..d).map(|i| (0..n).map(|c| self.agents[c].weight * ends[c][i]).sum()).collect();
        let span = self.eta * self.steps as f64;
        let control = |c: usize| (0..d).map(|i| y[c + 1][i] + (mean[i] - ends[c][i]) / span).collect();
        std::iter::once(mean.clone()).chain((0..n).map(control)).collect()
    }

    /// The bias and the mean-square error after `rounds` rounds from u and given states.
    fn error(&self, y: &[Vec<f64>], states: &[u32], rounds: usize, q: f64, sums: &mut (Vec<f64>, f64)) {
        if rounds == 0 {
            sums.0.iter_mut().zip(&y[0]).for_each(|(sum, u)| *sum += q * u);
            sums.1 += q * linalg::norm_sq(&y[0]);
            return;
        }
        let each: Vec<_> = self.agents.iter().zip(states).map(|(a, s)| Self::paths(a, *s, self.steps * self.batch)).collect();
        let number: usize = each.iter().map(Vec::len).product();
        for mut k in 0..number {
            let chosen: Vec<_> = each
                .iter()
                .map(|paths| {
                    let at = k % paths.len();
                    k /= paths.len();
                    &paths[at]
                })
                .collect();
            let moves: Vec<&[usize]> = chosen.iter().map(|path| &path.2[..]).collect();
            let ends: Vec<u32> = chosen.iter().map(|path| path.1).collect();
            let p: f64 = chosen.iter().map(|path| path.0).product();
            self.error(&self.round(y, &moves), &ends, rounds - 1, q * p, sums);
        }
    }
}

#[test]
fn curves_are_the_enumeration_of_all_paths() {
    let mut draw = Draw::new(32);
    for (n, d, rule, steps, batch, rounds) in [
        (1, 2, MarkovRule::FedLsa, 1, 1, 5),
        (1, 2, MarkovRule::FedLsa, 1, 3, 3),
        (2, 1, MarkovRule::FedLsa, 2, 1, 2),
        (2, 2, MarkovRule::FedHsa, 3, 1, 1),
        (2, 1, MarkovRule::FedHsa, 2, 1, 2),
        (2, 1, MarkovRule::FedHsa, 2, 2, 1),
        (2, 2, MarkovRule::Scafflsa, 2, 1, 2),
        (2, 1, MarkovRule::Scafflsa, 1, 2, 2),
        (3, 1, MarkovRule::Scafflsa, 1, 1, 3),
    ] {
        let given: Vec<Given> = (0..n).map(|_| Given::random(&mut draw, 1.0 / n as f64, 2, d, true)).collect();
        let (classes, _) = classes(&given);
        let agents: Vec<&MarkovAgent> = classes.iter().map(|c| &c.agent).collect();
        let paths = Paths { agents, eta: 0.3, steps, batch, rule };
        let offset = draw.vector(d);
        let y: Vec<Vec<f64>> =
            std::iter::once(offset.clone()).chain(classes.iter().map(|c| c.agent.mean_w().iter().map(|w| -w).collect())).collect();
        let mut sums = (vec![0.0; d], 0.0);
        paths.error(&y, &vec![1; n], rounds, 1.0, &mut sums);
        let joint = Joint::new(&classes, &setting(0.3, steps as u64), rule, batch as u64).unwrap();
        let got = &joint.curve(&offset, &InitialControls::Zero, ChainStart::State(1), &[rounds as u64]).unwrap()[0];
        assert!((got.mse - sums.1).abs() < 1e-13 && linalg::distance_sq(&got.bias, &sums.0) < 1e-26, "{rule:?} {got:?} {sums:?}");
        if n == 1 {
            let one = OneAgent::new(&classes[0].agent, 0.3, batch as u64).unwrap();
            assert_eq!(OneAgent::unknowns(&classes[0].agent), 2 * d * (d + 1) / 2);
            let got = &one.curve(&offset, ChainStart::State(1), &[rounds as u64]).unwrap()[0];
            assert!((got.mse - sums.1).abs() < 1e-13 && linalg::distance_sq(&got.bias, &sums.0) < 1e-26);
        }
    }
}

#[test]
fn curves_end_at_the_floor() {
    let mut draw = Draw::new(33);
    let given: Vec<Given> = (0..2).map(|c| Given::random(&mut draw, [0.7, 0.3][c], 3, 2, true)).collect();
    let (classes, _) = classes(&given);
    for rule in RULES {
        let joint = Joint::new(&classes, &setting(0.1, 2), rule, 1).unwrap();
        let floor = joint.floor().unwrap();
        let end = &joint.curve(&[1.0, -1.0], &InitialControls::Root, ChainStart::Stationary, &[2000]).unwrap()[0];
        assert!((end.mse - floor.mse).abs() < 1e-11 * floor.mse && linalg::distance_sq(&end.bias, &floor.bias) < 1e-22, "{rule:?}");
        assert!(
            joint.map().mean_radius().unwrap().powi(2) <= joint.map().second_radius().unwrap() + 1e-9
                && joint.map().second_radius().unwrap() < 1.0
        );
    }
}

/// The relative error of the leading order falls in proportion to eta.
#[test]
fn the_leading_order_is_of_first_order() {
    for n in [2, 3] {
        for steps in [1, 3] {
            for rule in RULES {
                let (classes, _) = classes(&r2(n));
                let errors = |eta: f64| {
                    let exact = joint_floor(&classes, &setting(eta, steps), rule).unwrap();
                    let order = LeadingOrder::new(&classes, &setting(eta, steps), rule).unwrap().floor();
                    [(exact.bias[0] - order.bias[0]) / order.bias[0], (exact.mse - order.mse) / order.mse]
                };
                let (coarse, fine) = (errors(2e-4), errors(1e-4));
                for (coarse, fine) in coarse.iter().zip(fine) {
                    let slope = (coarse / fine).log2();
                    assert!((slope - 1.0).abs() < 0.1, "N = {n}, H = {steps}, {rule:?}: {slope}");
                }
            }
        }
    }
}

/// Samples of states of a chain that forgets its state at once are independent.
#[test]
fn independent_states_give_the_recursions_of_independent_samples() {
    let mut draw = Draw::new(34);
    let mut given = Vec::new();
    for weight in [0.6, 0.4] {
        let mut agent = Given::random(&mut draw, weight, 3, 2, false);
        agent.edges.iter_mut().for_each(|e| e.2 = [0.5, 0.3, 0.2][e.1]);
        given.push(agent);
    }
    let (classes, root) = classes(&given);
    let (systems, moments) = independent(&given, &root);
    let setting = setting(0.2, 3);
    let close = |a: &super::MarkovFloor, b: &crate::exact_mse::MeanSquare| {
        assert!((a.mse - b.mse()).abs() < 1e-12 && linalg::distance_sq(&a.bias, &b.bias) < 1e-24, "{a:?} {b:?}");
    };
    let theta: Vec<f64> = root.iter().map(|x| x + 1.0).collect();
    for batch in [1, 2] {
        let want = FedLsaMse::new(&systems, &moments, &setting, batch).unwrap();
        let joint = Joint::new(&classes, &setting, MarkovRule::FedLsa, batch).unwrap();
        close(&joint.floor().unwrap(), &want.floor().unwrap());
        let curve = joint.curve(&[1.0; 2], &InitialControls::Zero, ChainStart::Stationary, &[1, 4]).unwrap();
        curve.iter().zip(want.curve(&theta, &[1, 4]).unwrap()).for_each(|(a, b)| close(a, &b));
    }
    for controls in [InitialControls::Zero, InitialControls::Root] {
        let want = ScafflsaMse::new(&systems, &moments, &setting, 1, &controls).unwrap();
        let joint = Joint::new(&classes, &setting, MarkovRule::Scafflsa, 1).unwrap();
        close(&joint.floor().unwrap(), &want.floor().unwrap());
        let curve = joint.curve(&[1.0; 2], &controls, ChainStart::Stationary, &[1, 4]).unwrap();
        curve.iter().zip(want.curve(&theta, &[1, 4]).unwrap()).for_each(|(a, b)| close(a, &b));
    }
    // Neighbouring transitions share a state, so TD's transitions are dependent.
    let mut td = r4(1, false);
    let (agents, _) = super::testing::classes(&td);
    let edges = td[0].edges.clone();
    td[0].edges.clear();
    for s in 0..10 {
        let (_, _, _, _, b) = edges.iter().find(|e| e.0 == s).unwrap();
        for to in 0..10 {
            let phi = |s: usize| {
                let angle = std::f64::consts::TAU * s as f64 / 10.0;
                [1.0, angle.cos(), angle.sin()].map(|x| x / 2f64.sqrt())
            };
            let a = Mat::from_fn(3, 3, |i, j| phi(s)[i] * (phi(s)[j] - 0.9 * phi(to)[j]));
            td[0].edges.push((s, to, agents[0].agent.stationary[to], a, b.clone()));
        }
    }
    let (agents, root) = super::testing::classes(&td);
    let floor = OneAgent::new(&agents[0].agent, 0.2, 1).unwrap().floor().unwrap();
    printed(floor.mse, 0.7528, 1e-4);
    let (systems, moments) = independent(&td, &root);
    let iid = FedLsaMse::new(&systems, &moments, &super::tests::setting(0.2, 1), 1).unwrap().floor().unwrap();
    printed(iid.mse(), 0.8150, 1e-4);
    assert!(linalg::norm_sq(&floor.bias) > 1e-6 && iid.bias_sq() < 1e-20);
}

/// The switch with values 3 and -1 and mixing times 1, 5, 50, 500.
#[test]
fn the_edges_of_the_switch_are_where_r2_is_one() {
    for (mixing, edge, digit) in [(1.0, 0.4, 1e-7), (5.0, 0.0392, 1e-4), (50.0, 0.00338, 1e-5), (500.0, 0.000334, 1e-6)] {
        let leave = 0.5 / mixing;
        let (classes, _) = classes(&[Given::scalar(1.0, &[&[1.0 - leave, leave], &[leave, 1.0 - leave]], &[3.0, -1.0], &[0.0, 0.0])]);
        let r2 = |eta: f64| OneAgent::new(&classes[0].agent, eta, 1).unwrap().r2().unwrap();
        let (mut low, mut high) = (0.5 * edge, 1.5 * edge);
        assert!(r2(low) < 1.0 && r2(high) > 1.0);
        for _ in 0..60 {
            let middle = 0.5 * (low + high);
            if r2(middle) < 1.0 { low = middle } else { high = middle }
        }
        printed(low, edge, digit);
        let error = OneAgent::new(&classes[0].agent, 1.01 * low, 1).unwrap().floor().unwrap_err();
        assert!(error.key == "step_size" && error.what.contains("multiplies it by 1.0"), "{error}");
    }
}

/// A replayed log: the error in each phase is the orbit's.
#[test]
fn a_cycle_has_an_exact_floor_and_no_leading_order() {
    let (a, b) = ([1.0, 0.4, 0.7], [1.0, -1.0, 0.5]);
    let cycle: [&[f64]; 3] = [&[0.0, 1.0, 0.0], &[0.0, 0.0, 1.0], &[1.0, 0.0, 0.0]];
    let (classes, root) = classes(&[Given::scalar(1.0, &cycle, &a, &b)]);
    let eta = 0.3;
    let one = OneAgent::new(&classes[0].agent, eta, 1).unwrap();
    let mut theta = 0.0;
    let mut errors = [0.0; 3];
    for k in 0..3000 {
        theta += eta * (b[k % 3] - a[k % 3] * theta);
        errors[k % 3] = theta - root[0];
    }
    let floor = one.floor().unwrap();
    assert!((floor.bias[0] - errors.iter().sum::<f64>() / 3.0).abs() < 1e-14);
    assert!((floor.mse - linalg::norm_sq(&errors) / 3.0).abs() < 1e-14);
    // From a known state the error is the phase's.
    let end = &one.curve(&[1.0], ChainStart::State(0), &[3001]).unwrap()[0];
    assert!((end.bias[0] - errors[0]).abs() < 1e-12 && end.noise().abs() < 1e-12);
    // The recursion over states gives the same.
    let joint = joint_floor(&classes, &setting(eta, 1), MarkovRule::FedLsa).unwrap();
    assert!((joint.mse - floor.mse).abs() < 1e-14 && (joint.bias[0] - floor.bias[0]).abs() < 1e-14);
    let error = LeadingOrder::new(&classes, &setting(eta, 1), MarkovRule::FedLsa).unwrap_err();
    assert!(error.what.contains("cycles"), "{error}");
    assert!((classes[0].agent.second_modulus().unwrap() - 1.0).abs() < 1e-12);
}

/// Orbits against the recursion over states, with batches that leave one or several orbits.
#[test]
fn orbits_of_a_cycle_are_the_recursion_over_states() {
    let mut draw = Draw::new(35);
    let mut given = Given::random(&mut draw, 1.0, 6, 2, false);
    given.edges.retain(|e| e.1 == (e.0 + 1) % 6);
    given.edges.iter_mut().for_each(|e| e.2 = 1.0);
    let (classes, _) = classes(&[given]);
    for batch in [1, 2, 3, 4, 6, 7] {
        let one = OneAgent::new(&classes[0].agent, 0.3, batch).unwrap();
        let orbits = Cycle::new(&classes[0].agent, 0.3, batch).unwrap();
        let (a, b) = (orbits.floor.unwrap(), one.floor().unwrap());
        assert!((a.mse - b.mse).abs() < 1e-12 && linalg::distance_sq(&a.bias, &b.bias) < 1e-24, "{batch}: {a:?} {b:?}");
        let r1 = orbits.r1;
        assert!((r1 - one.map().mean_radius().unwrap()).abs() < 1e-10 && (r1 * r1 - one.r2().unwrap()).abs() < 1e-10);
    }
    let error = OneAgent::new(&classes[0].agent, 9.0, 1).unwrap().floor().unwrap_err();
    assert!(error.what.contains("diverges"), "{error}");
    // A long log whose product of steps underflows.
    let long = 40_000;
    let step =
        |i: u32| super::Move { from: i, to: (i + 1) % long, p: 1.0, a: linalg::from_rows(1, 1, &[1.0]), w: vec![(-1f64).powi(i as i32)] };
    let moves: Vec<super::Move> = (0..long).map(step).collect();
    let labels = (0..long).collect();
    let stationary = vec![1.0 / f64::from(long); long as usize];
    let log = MarkovAgent { weight: 1.0, dim: 1, states: long as usize, stationary, moves, labels };
    let orbit = Cycle::new(&log, 0.5, 1).unwrap();
    assert!((orbit.r1 - 0.5).abs() < 1e-12);
    // u alternates between x and -x: -x = x / 2 - 1 / 2.
    // A sum of K equal terms is rounded K times.
    assert!((orbit.floor.unwrap().mse - 1.0 / 9.0).abs() < f64::from(long) * f64::EPSILON / 9.0);
}

#[test]
fn what_cannot_be_computed_is_refused() {
    let (two, _) = classes(&r2(2));
    let wide = setting(0.1, 2).with_server_step(0.5).unwrap();
    assert_eq!(joint_floor(&two, &wide, MarkovRule::FedLsa).unwrap_err().key, "server_step");
    assert_eq!(LeadingOrder::new(&two, &wide, MarkovRule::FedLsa).unwrap_err().key, "server_step");
    assert_eq!(Counts::new(&two, &wide, 1).unwrap_err().key, "server_step");
    assert_eq!(OneAgent::new(&two[0].agent, 0.0, 1).unwrap_err().key, "step_size");
    let one = OneAgent::new(&two[0].agent, 0.1, 1).unwrap();
    assert_eq!(one.curve(&[0.0], ChainStart::State(2), &[1]).unwrap_err().key, "start");
    let many = [AgentClass { count: 30, agent: MarkovAgent { weight: 1.0 / 30.0, ..two[0].agent.clone() } }];
    assert!(Joint::new(&many, &setting(0.1, 1), MarkovRule::FedLsa, 1).unwrap_err().what.contains("unknowns"));
    assert_eq!((unknowns(&two, MarkovRule::FedLsa), unknowns(&two, MarkovRule::Scafflsa)), (4, 12));
    let (td, _) = classes(&r4(1, false));
    assert!(Counts::new(&td, &setting(0.1, 1), 1).unwrap_err().what.contains("two states"));
    assert!(joint_floor(&two, &setting(1.6, 1), MarkovRule::FedLsa).unwrap_err().what.contains("diverges"));
    let unstable = Given::scalar(1.0, &[&[0.5, 0.5], &[0.5, 0.5]], &[-1.0, 0.5], &[1.0, 0.0]);
    assert!(LeadingOrder::new(&classes(&[unstable]).0, &setting(0.1, 1), MarkovRule::FedLsa).is_err());
}

/// Systems too large for matrices: the joint chain of two TD agents equals one agent of weight 1 on the product chain.
#[test]
fn large_systems_are_solved_by_iteration() {
    let given = r4(2, false);
    let (classes, _) = classes(&given);
    let (first, second) = (&classes[0].agent, &classes[1].agent);
    let mut moves = Vec::new();
    for m in &first.moves {
        for n in &second.moves {
            moves.push(super::Move {
                from: m.from * 10 + n.from,
                to: m.to * 10 + n.to,
                p: m.p * n.p,
                a: Scale(0.5) * (&m.a + &n.a),
                w: m.w.iter().zip(&n.w).map(|(v, w)| 0.5 * (v + w)).collect(),
            });
        }
    }
    let product = MarkovAgent::from_moves(1.0, 3, 100, moves).unwrap();
    let want = OneAgent::new(&product, 0.8, 1).unwrap().floor().unwrap();
    let got = joint_floor(&classes, &setting(0.8, 1), MarkovRule::FedLsa).unwrap();
    assert!((got.mse - want.mse).abs() < 1e-10 * want.mse && linalg::distance_sq(&got.bias, &want.bias) < 1e-20, "{got:?} {want:?}");
    let error = joint_floor(&classes, &setting(6.0, 1), MarkovRule::FedLsa).unwrap_err();
    assert!(error.what.contains("diverges"), "{error}");
}
