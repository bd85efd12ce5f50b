//! Tests of the closure against reference numbers, the exact joint chain and the recursions for independent samples.

use super::*;
use crate::exact_mse::{ExactMse, FedHsaMse, FedLsaMse, InitialControls, ScafflsaMse};
use crate::markov::joint::Joint;
use crate::markov::one_agent::OneAgent;
use crate::markov::testing::{Given, classes, independent, joint_floor, r1, r2, r3, r4};
use crate::markov::tests::counts::Counts;
use crate::testing::Draw;
use fedsa::sampling::ChainStart;

const RULES: [MarkovRule; 3] = [MarkovRule::FedLsa, MarkovRule::FedHsa, MarkovRule::Scafflsa];

fn setting(eta: f64, h: u64) -> RoundSetting {
    RoundSetting::new(eta, h).unwrap()
}

fn closure(given: &[Given], setting: &RoundSetting, rule: MarkovRule) -> Closure {
    Closure::new(&classes(given).0, setting, rule).unwrap()
}

fn floor(given: &[Given], eta: f64, h: u64, rule: MarkovRule) -> MarkovFloor {
    closure(given, &setting(eta, h), rule).floor().unwrap()
}

fn close(got: f64, want: f64, relative: f64, what: &str) {
    assert!((got - want).abs() <= relative * want.abs(), "{what}: {got:.12e} {want:.12e}");
}

/// Agents with samples of moves or of states, of dimension d and with chains of k states.
fn random(seed: u64, agents: usize, k: usize, d: usize, of_moves: bool) -> Vec<Given> {
    let mut draw = Draw::new(seed);
    let weights: Vec<f64> = (0..agents).map(|c| 1.0 + 0.3 * c as f64).collect();
    let sum: f64 = weights.iter().sum();
    weights.iter().map(|w| Given::random(&mut draw, w / sum, k, d, of_moves)).collect()
}

/// The same agents with chains whose moves do not depend on the state.
fn without_memory(given: Vec<Given>) -> Vec<Given> {
    let mut given = given;
    for agent in &mut given {
        let k = agent.states;
        let first: Vec<f64> = agent.edges.iter().filter(|e| e.0 == 0).map(|e| e.2).collect();
        assert_eq!(first.len(), k);
        agent.edges.iter_mut().for_each(|e| e.2 = first[e.1]);
    }
    given
}

#[test]
fn two_and_three_agents_have_the_reference_values() {
    use MarkovRule::{FedHsa, FedLsa, Scafflsa};
    for (n, rule, h, small, large) in [
        (2, FedLsa, 1, 0.0307600406, 0.2062426711),
        (2, FedHsa, 1, 0.0307600406, 0.2062426711),
        (2, Scafflsa, 1, 0.0307600406, 0.2062426711),
        (2, FedLsa, 3, 0.0317230778, 0.2501711181),
        (2, FedHsa, 3, 0.0308628545, 0.2070474612),
        (2, Scafflsa, 3, 0.0314386869, 0.2413936317),
        (3, FedLsa, 1, 0.0040078457, 0.0240690134),
        (3, FedHsa, 1, 0.0040078457, 0.0240690134),
        (3, Scafflsa, 1, 0.0040078457, 0.0240690134),
        (3, FedLsa, 3, 0.0043223110, 0.0444000673),
        (3, FedHsa, 3, 0.0040259311, 0.0245585249),
        (3, Scafflsa, 3, 0.0041123398, 0.0288599793),
    ] {
        for (eta, want) in [(0.05, small), (0.3, large)] {
            let got = floor(&r2(n), eta, h, rule).mse;
            assert!((got - want).abs() <= 0.51e-10, "{n} {rule:?} {h} {eta}: {got:.10} {want:.10}");
        }
    }
}

#[test]
fn a_hundred_agents_have_the_reference_values() {
    use MarkovRule::{FedHsa, FedLsa};
    for (rule, lambda, eta, want, digit) in [
        (FedLsa, 0.9, 0.02, 2.739978e-3, 1e-9),
        (FedHsa, 0.5, 0.02, 3.8432e-4, 1e-8),
        (FedHsa, 0.5, 0.1, 2.3131e-3, 1e-7),
        (FedHsa, 0.9, 0.02, 2.1721e-3, 1e-7),
    ] {
        let got = floor(&r3(100, lambda), eta, 10, rule).mse;
        assert!((got - want).abs() <= 0.51 * digit, "{rule:?} {lambda} {eta}: {got:e} {want:e}");
    }
    for (lambda, eta, h) in [(0.5, 0.1, 1), (0.5, 0.1, 10), (0.9, 0.02, 1), (0.9, 0.1, 10)] {
        let (classes, _) = classes(&r3(100, lambda));
        let closure = Closure::new(&classes, &setting(eta, h), FedLsa).unwrap();
        let exact = Counts::new(&classes, &setting(eta, h), 1).unwrap().floor().unwrap();
        close(closure.floor().unwrap().mse, exact.mse, closure.eps_squared(), "exact counts");
    }
}

#[test]
fn ten_agents_that_learn_values_have_the_reference_values() {
    for (lazy, h, want) in [
        (false, 1, [(0.05, 0.0338391, 1e-7), (0.2, 0.1353893, 1e-7), (0.8, 0.5473116, 1e-7)]),
        (false, 10, [(0.05, 0.0334068, 1e-7), (0.2, 0.1292971, 1e-7), (0.8, 0.5008112, 1e-7)]),
        (true, 1, [(0.05, 0.3824302, 1e-7), (0.2, 1.4715412, 1e-7), (0.8, 5.1969324, 1e-7)]),
        (true, 10, [(0.05, 0.3762329, 1e-7), (0.2, 1.3789798, 1e-7), (0.8, 4.0675581, 1e-7)]),
    ] {
        for (eta, want, digit) in want {
            let got = floor(&r4(10, lazy), eta, h, MarkovRule::FedLsa).mse;
            assert!((got - want).abs() <= 0.51 * digit, "lazy {lazy}, H = {h}, eta = {eta}: {got} {want}");
        }
    }
}

/// Moments of any size in the closure's form: all `M_c(i)`, packed, with the same X for every agent.
fn any_moments(closure: &Closure, seed: u64) -> Vec<f64> {
    let round = closure.as_round();
    let mut draw = Draw::new(seed);
    let mut state: Vec<f64> = (0..Flat(round).dim()).map(|_| draw.number()).collect();
    round.clear_constants(&mut state);
    round.make_consistent(&mut state);
    state.iter_mut().zip(round.constants()).for_each(|(x, c)| *x += c);
    state
}

#[test]
fn a_round_is_the_exact_one_projected_on_sums_over_agents() {
    for (seed, n, k, d, h, of_moves) in [(10, 3, 2, 1, 1, false), (11, 3, 2, 2, 2, true), (12, 3, 3, 1, 3, true), (13, 4, 2, 1, 2, false)] {
        let mut given = random(seed, n, k, d, of_moves);
        // SCAFFLSA eliminates the last agent among those with the largest weight: the same agent in both computations.
        given.iter_mut().for_each(|g| g.weight = 1.0 / n as f64);
        for rule in [MarkovRule::FedLsa, MarkovRule::Scafflsa] {
            let (agents, setting) = (classes(&given).0, setting(0.3, h));
            let closure = Closure::new(&agents, &setting, rule).unwrap();
            let round = closure.as_round();
            let (side, entries) = (round.side(), round.entries());
            let state = any_moments(&closure, seed);
            let x = round.total(&state);
            let law = |c: usize, i: usize| agents[c].agent.stationary[i];
            let of = |c: usize, i: usize, e: usize| state[(c * k + i) * entries + e];
            // The state of agent c in cell s, and the joint law without agent c.
            let at = |s: usize, c: usize| s / k.pow(c as u32) % k;
            let others = |s: usize, without: usize| (0..n).filter(|c| *c != without).map(|c| law(c, at(s, c))).product::<f64>();
            // The joint chain has controls, and the closure has eta H times the controls.
            let scale = |i: usize| if i < d || i + 1 == side { 1.0 } else { setting.span() };
            let scales = pack(side, |i, j| scale(i) * scale(j));
            let cells = k.pow(n as u32);
            let mut joint = Vec::new();
            for s in 0..cells {
                for e in 0..entries {
                    let sum: f64 = (0..n).map(|c| of(c, at(s, c), e) * others(s, c)).sum();
                    joint.push((sum - (n as f64 - 1.0) * others(s, n) * x[e]) / scales[e]);
                }
            }
            let mut moved = vec![0.0; joint.len()];
            Joint::new(&agents, &setting, rule, 1).unwrap().map().second(&joint, &mut moved);
            let mut want = vec![0.0; state.len()];
            for (s, cell) in moved.chunks_exact(entries).enumerate() {
                for c in 0..n {
                    for e in 0..entries {
                        want[(c * k + at(s, c)) * entries + e] += scales[e] * cell[e];
                    }
                }
            }
            let mut got = vec![0.0; state.len()];
            Flat(round).apply(&state, &mut got);
            let error = got.iter().zip(&want).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max);
            let size = want.iter().fold(0.0f64, |m, x| m.max(x.abs()));
            assert!(error <= 1e-12 * size, "{rule:?}, N = {n}, K = {k}, d = {d}: {error:e} of {size}");
        }
    }
}

#[test]
fn all_agents_agree_on_the_second_moment() {
    let given = random(20, 3, 3, 2, true);
    for rule in RULES {
        let closure = closure(&given, &setting(0.2, 3).with_server_step(0.8).unwrap(), rule);
        let round = closure.as_round();
        let mut state = any_moments(&closure, 21);
        let fixed = closure.fixed().unwrap();
        for t in 0..3 {
            let mut next = vec![0.0; state.len()];
            Flat(round).apply(&state, &mut next);
            state = next;
            for (state, what) in [(&state, "moved"), (&fixed, "fixed")] {
                let totals = round.totals(state);
                let size = totals[0].iter().fold(0.0f64, |m, x| m.max(x.abs()));
                for total in &totals {
                    let error = total.iter().zip(&totals[0]).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max);
                    assert!(error <= 1e-12 * size, "{rule:?}, round {t}, {what}: {error:e} of {size}");
                }
            }
        }
    }
}

#[test]
fn one_agent_is_exact() {
    for given in [r1(), r4(1, false), random(30, 1, 4, 2, true)] {
        let (agents, _) = classes(&given);
        for eta in [0.05, 0.4] {
            let exact = OneAgent::new(&agents[0].agent, eta, 1).unwrap();
            let want = exact.floor().unwrap();
            let d = agents[0].agent.dim;
            let transient = exact.curve(&vec![1.0; d], ChainStart::Stationary, &[0, 3, 12]).unwrap();
            for (rule, h) in [(MarkovRule::FedLsa, 1), (MarkovRule::FedLsa, 3), (MarkovRule::FedHsa, 3), (MarkovRule::Scafflsa, 3)] {
                let closure = Closure::new(&agents, &setting(eta, h), rule).unwrap();
                let got = closure.floor().unwrap();
                close(got.mse, want.mse, 1e-11, &format!("{rule:?}, H = {h}"));
                let off = linalg::distance_sq(&got.bias, &want.bias).sqrt();
                assert!(off <= 1e-11 * linalg::norm_sq(&want.bias).sqrt(), "{rule:?}, H = {h}: bias {off}");
                let curve = closure.curve(&vec![1.0; d], &[0, 3 / h, 12 / h]).unwrap();
                curve.iter().zip(&transient).for_each(|(got, want)| close(got.mse, want.mse, 1e-12, "transient"));
            }
        }
    }
}

#[test]
fn constant_matrices_are_exact() {
    for of_moves in [false, true] {
        let mut given = random(40, 3, 2, 2, of_moves);
        for agent in &mut given {
            let a = agent.edges[0].3.clone();
            agent.edges.iter_mut().for_each(|e| e.3 = a.clone());
        }
        for (rule, h) in [(MarkovRule::FedLsa, 1), (MarkovRule::FedLsa, 3), (MarkovRule::FedHsa, 3), (MarkovRule::Scafflsa, 2)] {
            let setting = setting(0.3, h);
            let (agents, _) = classes(&given);
            let (got, want) = (closure(&given, &setting, rule).floor().unwrap(), joint_floor(&agents, &setting, rule).unwrap());
            close(got.mse, want.mse, 1e-12, &format!("{rule:?}, H = {h}"));
            let curve = closure(&given, &setting, rule).curve(&[1.0, -1.0], &[1, 4, 9]).unwrap();
            let joint = Joint::new(&agents, &setting, rule, 1).unwrap();
            let exact = joint.curve(&[1.0, -1.0], &InitialControls::Zero, ChainStart::Stationary, &[1, 4, 9]).unwrap();
            curve.iter().zip(&exact).for_each(|(got, want)| close(got.mse, want.mse, 1e-12, &format!("transient, {rule:?}, H = {h}")));
        }
    }
}

#[test]
fn independent_samples_are_exact() {
    for (seed, n, d) in [(50, 2, 2), (51, 4, 1), (52, 3, 3)] {
        let given = without_memory(random(seed, n, 3, d, false));
        let (_, root) = classes(&given);
        let (systems, moments) = independent(&given, &root);
        for (h, alpha) in [(1, 1.0), (3, 1.0), (4, 0.7)] {
            let setting = setting(0.3, h).with_server_step(alpha).unwrap();
            let (u_0, rounds) = (vec![1.0; d], [0, 1, 2, 7]);
            let theta_0: Vec<f64> = root.iter().map(|r| r + 1.0).collect();
            for rule in RULES {
                let (want, curve) = match rule {
                    MarkovRule::FedLsa => {
                        let exact = FedLsaMse::new(&systems, &moments, &setting, 1).unwrap();
                        (exact.floor().unwrap(), exact.curve(&theta_0, &rounds).unwrap())
                    }
                    MarkovRule::FedHsa => {
                        let exact = FedHsaMse::new(&systems, &moments, &setting, 1).unwrap();
                        (exact.floor().unwrap(), exact.curve(&theta_0, &rounds).unwrap())
                    }
                    MarkovRule::Scafflsa => {
                        let exact = ScafflsaMse::new(&systems, &moments, &setting, 1, &InitialControls::Zero).unwrap();
                        (exact.floor().unwrap(), exact.curve(&theta_0, &rounds).unwrap())
                    }
                };
                let what = format!("{rule:?}, N = {n}, H = {h}, alpha_g = {alpha}");
                let closure = closure(&given, &setting, rule);
                let got = closure.floor().unwrap();
                close(got.mse, want.mse(), 1e-12, &what);
                let off = linalg::distance_sq(&got.bias, &want.bias).sqrt();
                assert!(off <= 1e-12, "{what}: bias {off}");
                for (got, want) in closure.curve(&u_0, &rounds).unwrap().iter().zip(&curve) {
                    close(got.mse, want.mse(), 1e-12, &format!("transient, {what}"));
                }
            }
        }
    }
}

#[test]
fn agents_alike_are_one_class() {
    let one = Given { count: 4, weight: 0.25, ..random(60, 1, 3, 2, true).remove(0) };
    let four = vec![Given { count: 1, ..one.clone() }; 4];
    for rule in RULES {
        let (a, b) = (floor(std::slice::from_ref(&one), 0.3, 3, rule), floor(&four, 0.3, 3, rule));
        close(a.mse, b.mse, 1e-11, &format!("{rule:?}"));
        // 144 unknowns of the four and 36 of the class: dense; SCAFFLSA: GMRES.
        let end = closure(std::slice::from_ref(&one), &setting(0.3, 3), rule).curve(&[1.0, 1.0], &[400]).unwrap();
        close(end[0].mse, a.mse, 1e-10, &format!("{rule:?} after many rounds"));
    }
}

#[test]
fn the_closure_is_close_to_the_joint_chain() {
    for (of_moves, k) in [(false, 2), (true, 3)] {
        let given = random(70, 2, k, 2, of_moves);
        let (agents, _) = classes(&given);
        for (rule, h) in [(MarkovRule::FedLsa, 1), (MarkovRule::FedLsa, 4), (MarkovRule::FedHsa, 4), (MarkovRule::Scafflsa, 4)] {
            let setting = setting(0.1, h);
            let closure = Closure::new(&agents, &setting, rule).unwrap();
            let (got, want) = (closure.floor().unwrap().mse, joint_floor(&agents, &setting, rule).unwrap().mse);
            assert!(closure.eps_squared() < 0.1);
            close(got, want, 1.05 * closure.eps_squared(), &format!("{rule:?}, H = {h}"));
            assert!((got / want - 1.0).abs() > 1e-12, "{rule:?}: equal, so that this test says nothing");
        }
    }
}

#[test]
fn the_indicator_is_its_formula() {
    // lambda = .9, samples of states: tau = 9; both classes have p_1 p_0 (1.4)^2 and .21 (1.2)^2.
    let at = |rule| closure(&r3(100, 0.9), &setting(0.02, 10), rule).eps_squared();
    let a2 = 0.25 * 1.4 * 1.4;
    close(at(MarkovRule::FedLsa), (0.02f64 * 9.0).powi(2) * a2 / 100.0, 1e-12, "FedLSA");
    close(at(MarkovRule::FedHsa), (0.02f64 * 19.0).powi(2) * a2 / 100.0, 1e-12, "FedHSA");
    // Samples of moves: 1 / (1 - lambda).
    let (agents, _) = classes(&r4(1, true));
    let lambda = agents[0].agent.second_modulus().unwrap();
    let got = Closure::new(&agents, &setting(0.1, 1), MarkovRule::FedLsa).unwrap().eps_squared();
    close(got, (0.1 / (1.0 - lambda)).powi(2) * agents[0].agent.noise_of_a(), 1e-12, "moves");
}

#[test]
fn what_has_no_floor_is_refused() {
    for rule in RULES {
        for h in [1, 4] {
            assert_eq!(closure(&r2(3), &setting(3.0, h), rule).floor().unwrap_err().key, "step_size");
        }
        let cycle = Given::scalar(1.0, &[&[0.0, 1.0], &[1.0, 0.0]], &[1.0, 2.0], &[1.0, -1.0]);
        let error = Closure::new(&classes(&[cycle]).0, &setting(0.1, 1), rule).unwrap_err();
        assert!(error.what.contains("periodic"), "{error}");
        let mut given = r2(3);
        given[0].weight = 0.5;
        assert_eq!(Closure::new(&classes(&given).0, &setting(0.1, 1), rule).unwrap_err().key, "weights");
        assert_eq!(Closure::new(&[], &setting(0.1, 1), rule).unwrap_err().key, "agents");
        let other = closure(&r2(3), &setting(0.1, 1), rule);
        assert_eq!(other.curve(&[1.0, 1.0], &[1]).unwrap_err().key, "theta_0");
        assert_eq!(other.curve(&[1.0], &[2, 1]).unwrap_err().key, "rounds");
    }
}

#[test]
fn the_solve_finds_the_radius() {
    // 1000 numbers: the floor comes from GMRES, the radius here from Arnoldi.
    let mut seen = [0; 2];
    for (lazy, rule, h) in [(false, MarkovRule::FedLsa, 1), (true, MarkovRule::FedLsa, 3), (false, MarkovRule::FedHsa, 3)] {
        for eta in [0.2, 1.0, 3.0, 6.0, 12.0, 24.0] {
            let closure = closure(&r4(10, lazy), &setting(eta, h), rule);
            let radius = spectral_radius(&Homogeneous(closure.as_round())).unwrap();
            match closure.floor() {
                Ok(floor) => assert!(radius < 1.0 && floor.mse > 0.0, "{rule:?}, H = {h}, eta = {eta}: {radius}, {floor:?}"),
                Err(e) => assert!(radius >= 1.0 && e.key == "step_size", "{rule:?}, H = {h}, eta = {eta}: {radius}, {e}"),
            }
            seen[usize::from(radius < 1.0)] += 1;
        }
    }
    assert!(seen.iter().all(|n| *n > 3), "{seen:?}");
    // Without noise at the root the floor is 0 where the closure is stable.
    let mut given = r4(10, false);
    given.iter_mut().for_each(|g| g.edges.iter_mut().for_each(|e| e.4.fill(0.0)));
    let (small, large) = (closure(&given, &setting(0.5, 1), MarkovRule::FedLsa), closure(&given, &setting(24.0, 1), MarkovRule::FedLsa));
    assert_eq!(small.floor().unwrap().mse, 0.0);
    assert_eq!(large.floor().unwrap_err().key, "step_size");
}

#[test]
fn unknowns_are_those_of_the_map() {
    let given = random(80, 3, 2, 2, true);
    for rule in RULES {
        let states = 6;
        let closure = closure(&given, &setting(0.1, 2), rule);
        assert_eq!(Closure::unknowns(&classes(&given).0, rule), Flat(closure.as_round()).dim() - states);
        let less = Closure::work(&classes(&given).0, &setting(0.1, 2), rule);
        assert!(Closure::work(&classes(&given).0, &setting(0.1, 20), rule) > 2.0 * less);
    }
}
