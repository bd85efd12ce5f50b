//! The finite law of a sample, and what is derived from it, against independent computations.

use std::sync::Arc;

use crate::common::{field, unequal};
use fedsa::linalg::{self, Mat};
use fedsa::problem::Field;
use fedsa::problem::arrays::Arrays;
use fedsa::problem::law::{Chain, FiniteLaw};
use fedsa::problem::systems::Moments;
use fedsa::sampling::Law;
use fedsa_problems::linear::affine::LinearSystems;
use fedsa_problems::linear::finite_sum::FiniteSum;
use fedsa_problems::linear::switching::Switching;
use fedsa_problems::scope::Scope;
use fedsa_problems::td::baird::Baird;
use fedsa_problems::td::garnet::{Garnet, Heterogeneity};
use fedsa_problems::td::gradient_td::TdOperator;
use fedsa_problems::td::random_mrp::{Discount, RandomMrp};

fn fields() -> Vec<(&'static str, Arc<dyn Field>)> {
    let mrp = RandomMrp::default()
        .with_agents(3)
        .with_states(7)
        .with_features(3)
        .with_kernel(Scope::PerAgent)
        .with_gamma(Discount::Uniform([0.5, 0.99]));
    let baird = |operator| Baird::default().with_agents(2).with_operator(operator).with_reward(1.0).with_spread(0.5);
    vec![
        ("garnet", field(&Garnet::default().with_agents(4).with_heterogeneity(Heterogeneity::TwoKernels), Law::Iid)),
        ("mrp", field(&mrp, Law::Iid)),
        ("logs", unequal(Law::Iid)),
        ("baird, td", field(&baird(TdOperator::Td), Law::Markov)),
        ("baird, gtd2", field(&baird(TdOperator::Gtd2).with_kappa(2.5), Law::Iid)),
        ("baird, tdc", field(&baird(TdOperator::Tdc).with_kappa(0.3), Law::Markov)),
        ("switching", field(&Switching::default().with_agents(3).with_dim(2).with_mixing_time(5.0).with_spread(1.0), Law::Iid)),
        ("finite sum", field(&FiniteSum::default().with_agents(3).with_dim(4).with_terms(5), Law::Iid)),
        ("finite sum, Markov", field(&FiniteSum::default().with_agents(3).with_dim(4).with_terms(5).with_mixing_time(3.0), Law::Markov)),
        ("linear", field(&LinearSystems::default().with_agents(3).with_dim(4), Law::Iid)),
    ]
}

#[test]
fn laws_are_probabilities_whose_mean_is_the_mean_operator() {
    for (name, field) in fields() {
        let (systems, d) = (field.systems().unwrap(), field.dim());
        for (kind, system) in systems.kinds.iter().enumerate() {
            let law = field.facts().law(kind).unwrap();
            assert!((law.mass().iter().sum::<f64>() - 1.0).abs() < 1e-12, "{name}");
            let theta: Vec<f64> = (0..d).map(|i| 0.3 - i as f64).collect();
            let size = linalg::norm2(&system.a) * linalg::norm_sq(&theta).sqrt() + linalg::norm_sq(&system.b).sqrt();
            let off = linalg::distance_sq(&law.mean(&theta), &system.mean(&theta)).sqrt();
            assert!(off <= 1e-12 * size, "{name}, kind {kind}: {off}");
            let Some(Chain { from, to, p, law: states }) = law.chain() else { continue };
            // The mass of a sample is that of its state times its probability there, and moves keep the law.
            let (mut next, mut sums) = (vec![0.0; states.len()], vec![0.0; states.len()]);
            for (z, mass) in law.mass().iter().enumerate() {
                assert!((mass - states[from[z] as usize] * p[z]).abs() < 1e-14, "{name}");
                next[to[z] as usize] += mass;
                sums[from[z] as usize] += p[z];
            }
            assert!(next.iter().zip(states).all(|(next, now)| (next - now).abs() < 1e-13), "{name}");
            assert!(sums.iter().all(|sum| (sum - 1.0).abs() < 1e-12), "{name}");
        }
    }
}

/// E of products of the entries of `(A, b)`, one after the other.
fn by_definition(d: usize, samples: &[(f64, Mat<f64>, Vec<f64>)]) -> Moments {
    let (mut aa, mut ab, mut bb) = (Mat::zeros(d * d, d * d), Mat::zeros(d * d, d), Mat::zeros(d, d));
    for (w, a, b) in samples {
        for (i, k) in (0..d).flat_map(|i| (0..d).map(move |k| (i, k))) {
            for j in 0..d {
                (0..d).for_each(|l| aa[(i * d + k, j * d + l)] += w * a[(i, j)] * a[(k, l)]);
                ab[(i * d + k, j)] += w * a[(i, j)] * b[k];
            }
            bb[(i, k)] += w * b[i] * b[k];
        }
    }
    Moments { aa, ab, bb }
}

/// The transitions of agent `c` of a reward process, from its arrays and the stationary law of its states.
fn transitions(arrays: &Arrays, c: usize, law: &[f64]) -> Vec<(f64, Mat<f64>, Vec<f64>)> {
    let array = |name: &str| arrays.get(name).unwrap();
    let (p, r, phi, gamma) = (array("P").data(), array("R").data(), array("Phi"), array("gamma").data()[c]);
    let (n, d) = (law.len(), phi.shape()[phi.shape().len() - 1]);
    let first = if phi.shape().len() == 3 { c * n * d } else { 0 };
    let feature = |s: usize, i: usize| phi.data()[first + s * d + i];
    let each = (0..n).flat_map(|s| (0..n).map(move |t| (s, t)));
    each.map(|(s, t)| {
        let at = (c * n + s) * n + t;
        let a = Mat::from_fn(d, d, |i, j| feature(s, i) * (feature(s, j) - gamma * feature(t, j)));
        (law[s] * p[at], a, (0..d).map(|i| feature(s, i) * r[at]).collect())
    })
    .collect()
}

fn assert_close(got: &Moments, want: &Moments, name: &str) {
    for (got, want) in [(&got.aa, &want.aa), (&got.ab, &want.ab), (&got.bb, &want.bb)] {
        assert_eq!(got.shape(), want.shape());
        let off = (got - want).norm_max();
        assert!(off <= 1e-13 * want.norm_max().max(1e-300), "{name}: {off} of {}", want.norm_max());
    }
}

#[test]
fn second_moments_are_their_definition() {
    for (name, field) in fields() {
        let systems = field.systems().unwrap();
        for kind in 0..systems.kinds.len() {
            let (facts, d) = (field.facts(), field.dim());
            let got = facts.moments(kind).unwrap();
            let system = &systems.kinds[kind];
            let samples = match name {
                "garnet" | "mrp" => {
                    let agent = systems.kind_of.iter().position(|k| *k as usize == kind).unwrap();
                    transitions(&facts.export().unwrap(), agent, facts.stationary(kind).unwrap())
                }
                // a(z) is 3 or -1.
                "switching" => {
                    [3.0, -1.0].map(|a| (0.5, Mat::from_fn(d, d, |i, j| if i == j { a } else { 0.0 }), system.b.clone())).to_vec()
                }
                "linear" => vec![(1.0, system.a.clone(), system.b.clone())],
                // The law itself, sample by sample through its operator: b = g(0), A e_j = g(0) - g(e_j).
                _ => {
                    let law = facts.law(kind).unwrap();
                    let at = |z: usize, theta: &[f64]| {
                        let mut g = vec![0.0; d];
                        law.operator(z, theta, &mut g);
                        g
                    };
                    let unit = |j: usize| (0..d).map(|i| f64::from(i == j)).collect::<Vec<_>>();
                    let sample = |z: usize| {
                        let b = at(z, &vec![0.0; d]);
                        let columns: Vec<Vec<f64>> = (0..d).map(|j| at(z, &unit(j))).collect();
                        (law.mass()[z], Mat::from_fn(d, d, |i, j| b[i] - columns[j][i]), b)
                    };
                    (0..law.mass().len()).map(sample).collect()
                }
            };
            assert_close(&got, &by_definition(d, &samples), name);
        }
    }
}

#[test]
fn covariances_are_those_of_the_moments() {
    for (name, field) in fields() {
        let (systems, d) = (field.systems().unwrap(), field.dim());
        let (law, Moments { aa, ab, bb }) = (field.facts().law(0).unwrap(), field.facts().moments(0).unwrap());
        let theta: Vec<f64> = (0..d).map(|i| 0.5 - 0.2 * i as f64).collect();
        let mean = systems.kinds[0].mean(&theta);
        // E g g^T = E (b - A theta)(b - A theta)^T, entry by entry.
        let want = Mat::from_fn(d, d, |i, k| {
            let mut sum = bb[(i, k)] - mean[i] * mean[k];
            for j in 0..d {
                sum -= ab[(i * d + k, j)] * theta[j] + ab[(k * d + i, j)] * theta[j];
                sum += (0..d).map(|l| aa[(i * d + k, j * d + l)] * theta[j] * theta[l]).sum::<f64>();
            }
            sum
        });
        let scale = bb.norm_max() + aa.norm_max() * linalg::norm_sq(&theta);
        assert!((law.covariance(&theta) - want).norm_max() <= 1e-12 * scale, "{name}");
    }
}

/// The least t with `lambda^t size <= eps`.
fn decays(size: f64, lambda: f64, eps: f64) -> u64 {
    (0..).find(|t| size * lambda.powi(*t) <= eps).unwrap() as u64
}

#[test]
fn switching_chains_mix_as_their_closed_form_says() {
    // P = lambda I + (1 - lambda) 1 pi^T, so that P^t - 1 pi^T = lambda^t (I - 1 pi^T).
    for (values, mixing_time) in [(vec![3.0, -1.0], 5.0), (vec![1.0, 2.0, 6.0], 50.0), (vec![2.0, 1.0], 1.0)] {
        let settings = Switching::default()
            .with_agents(1)
            .with_dim(2)
            .with_values(values.clone())
            .with_mixing_time(mixing_time)
            .with_spread(1.0)
            .with_seed(1)
            .with_noise(None);
        let field = field(&settings, Law::Markov);
        let law = field.facts().law(0).unwrap();
        let (chain, lambda, n) = (law.chain().unwrap(), 1.0 - 1.0 / mixing_time, values.len() as f64);
        assert!((chain.second_eigenvalue().unwrap() - lambda).abs() < 1e-12);
        let mean = values.iter().sum::<f64>() / n;
        let farthest = values.iter().map(|a| (a - mean).abs()).fold(0.0, f64::max);
        for eps in [0.9, 0.3, 0.01, 1e-6] {
            assert_eq!(chain.mixing_time(eps).unwrap(), Some(decays(1.0 - 1.0 / n, lambda, eps)), "{values:?}, {eps}");
            // One move has been made when the next sample is seen.
            let want = if farthest <= eps { 0 } else { 1 + decays(farthest, lambda, eps) };
            assert_eq!(law.operator_mixing_time(eps).unwrap(), Some(want), "{values:?}, {eps}");
        }
    }
}

#[test]
fn mixing_times_of_reward_processes_are_those_of_step_by_step_powers() {
    let garnet = Garnet::default().with_agents(1).with_states(12).with_features(3);
    let field = field(&garnet, Law::Markov);
    let law = field.facts().law(0).unwrap();
    let (chain, pi) = (law.chain().unwrap(), field.facts().stationary(0).unwrap());
    let arrays = field.facts().export().unwrap();
    let p = arrays.get("P").unwrap().data();
    let n = pi.len();
    let step = |row: &[f64]| -> Vec<f64> { (0..n).map(|t| (0..n).map(|s| row[s] * p[s * n + t]).sum()).collect() };
    let each: Vec<(f64, Mat<f64>, Vec<f64>)> = transitions(&arrays, 0, pi);
    let system = &field.systems().unwrap().kinds[0];
    // E[(A, b) | state] - (Abar, bbar), and the size of their mean over a law of states.
    let size = |row: &[f64]| {
        let (mut a, mut b) = (-&system.a, system.b.iter().map(|b| -b).collect::<Vec<_>>());
        for (s, t) in (0..n).flat_map(|s| (0..n).map(move |t| (s, t))).filter(|(s, t)| p[s * n + t] > 0.0) {
            let (_, at, bt) = &each[s * n + t];
            a += faer::Scale(row[s] * p[s * n + t]) * at;
            b.iter_mut().zip(bt).for_each(|(b, x)| *b += row[s] * p[s * n + t] * x);
        }
        linalg::norm2(&a).max(linalg::norm_sq(&b).sqrt())
    };
    let entered: Vec<usize> = (0..n).filter(|t| (0..n).any(|s| p[s * n + t] > 0.0)).collect();
    let units = || (0..n).map(|s| (0..n).map(|t| f64::from(s == t)).collect::<Vec<f64>>()).collect::<Vec<_>>();
    for eps in [0.25, 0.01, 1e-5] {
        let mut rows = units();
        let far = |rows: &[Vec<f64>]| {
            rows.iter().map(|row| 0.5 * row.iter().zip(pi).map(|(x, y)| (x - y).abs()).sum::<f64>()).fold(0.0, f64::max)
        };
        let mut t = 0;
        while far(&rows) > eps {
            rows = rows.iter().map(|row| step(row)).collect();
            t += 1;
        }
        assert_eq!(chain.mixing_time(eps).unwrap(), Some(t), "eps {eps}");
        let mut rows = units();
        let mut lag = 1;
        while entered.iter().map(|s| size(&rows[*s])).fold(0.0, f64::max) > eps {
            rows = rows.iter().map(|row| step(row)).collect();
            lag += 1;
        }
        // A lag of 0 would need operators that do not depend on the sample.
        assert_eq!(law.operator_mixing_time(eps).unwrap(), Some(lag), "eps {eps}");
    }
    // The distance from the stationary law falls by the second eigenvalue, in the end.
    let lambda = chain.second_eigenvalue().unwrap();
    let (short, long) = (chain.mixing_time(1e-4).unwrap().unwrap(), chain.mixing_time(1e-12).unwrap().unwrap());
    let rate = (1e-8f64.ln() / (long - short) as f64).exp();
    assert!((rate.ln() / lambda.ln() - 1.0).abs() < 0.1, "{rate} {lambda}");
}

#[test]
fn periodic_chains_do_not_mix() {
    // Replayed logs are a cycle; three states in a row too.
    let logs = unequal(Law::Markov);
    let law = logs.facts().law(0).unwrap();
    assert!((law.chain().unwrap().second_eigenvalue().unwrap() - 1.0).abs() < 1e-12);
    assert_eq!(law.chain().unwrap().mixing_time(0.1).unwrap(), None);
    assert_eq!(law.operator_mixing_time(0.1).unwrap(), None);
    let one = Chain { from: vec![0], to: vec![0], p: vec![1.0], law: vec![1.0] };
    assert!(one.second_eigenvalue().unwrap() == 0.0 && one.mixing_time(0.1).unwrap() == Some(0));
}

/// Two classes that take turns, or never meet; within a class the index of two stays with probability 0.9: eigenvalues
/// 1 and 0.8 with the sign of the class. `b(z)` is 1 or -1 by the index that `see` picks of the move from i to j.
fn two_classes(turns: bool, see: impl Fn(u32, u32) -> u32 + Send + Sync + 'static) -> FiniteLaw<'static> {
    let mut moves = Vec::new();
    for (class, i, j) in (0..2).flat_map(|class| (0..4).map(move |ij| (class, ij / 2, ij % 2))) {
        let to = if turns { 1 - class } else { class };
        moves.push((2 * class + i, 2 * to + j, if i == j { 0.9 } else { 0.1 }));
    }
    let chain = Chain {
        from: moves.iter().map(|m| m.0).collect(),
        to: moves.iter().map(|m| m.1).collect(),
        p: moves.iter().map(|m| m.2).collect(),
        law: vec![0.25; 4],
    };
    let mass = moves.iter().map(|m| 0.25 * m.2).collect();
    let value = move |z: usize| if see(moves[z].0, moves[z].1) == 0 { 1.0 } else { -1.0 };
    FiniteLaw::linear(1, mass, move |z, a, b| (a[0], b[0]) = (1.0, value(z))).with_chain(chain)
}

#[test]
fn operators_mix_that_do_not_see_what_the_chain_remembers() {
    for turns in [true, false] {
        // By the index that is entered: 0.8^lag. By the one that is left: 0.8^(lag - 1).
        let (entered, left) = (two_classes(turns, |_, to| to % 2), two_classes(turns, |from, _| from % 2));
        for (eps, lag) in [(0.5, 4), (0.1, 11), (1e-9, 93)] {
            assert_eq!(entered.operator_mixing_time(eps).unwrap(), Some(lag), "{turns}, {eps}");
            assert_eq!(left.operator_mixing_time(eps).unwrap(), Some(lag + 1), "{turns}, {eps}");
        }
        let chain = entered.chain().unwrap();
        assert!((chain.second_eigenvalue().unwrap() - 1.0).abs() < 1e-12);
        // One class is half of the stationary law: the distance is the larger of 1/2 and 1/4 + 0.8^t / 2.
        assert_eq!(chain.mixing_time(0.4).unwrap(), None);
        assert_eq!(chain.mixing_time(0.6).unwrap(), Some(2));
        // An operator that sees the class never mixes.
        assert_eq!(two_classes(turns, |_, to| to / 2).operator_mixing_time(0.5).unwrap(), None);
    }
}

#[test]
fn what_has_no_mixing_time_says_why() {
    let independent = FiniteLaw::linear(1, vec![1.0], |_, a, b| (a[0], b[0]) = (1.0, 0.0));
    assert!(independent.operator_mixing_time(0.1).unwrap_err().to_string().contains("samples follow no chain"));
    let any = FiniteLaw::new(1, vec![1.0], |_, theta, out| out[0] = theta[0].tanh());
    assert!(any.operator_mixing_time(0.1).unwrap_err().to_string().contains("not linear"));
    assert!(any.moments().is_none());
    let n = 5000;
    let large = Chain {
        from: (0..n).collect(),
        to: (0..n).map(|s| (s + 1) % n).collect(),
        p: vec![1.0; n as usize],
        law: vec![1.0 / f64::from(n); n as usize],
    };
    assert!(large.mixing_time(0.1).unwrap_err().to_string().contains("a chain of 5000 states"));
    assert!(large.mixing_time(0.0).is_err() && large.mixing_time(f64::NAN).is_err());
}
