//! Terms of finite sums: the chain of their indices, their probabilities and their spectra.

use crate::common::{field, follows, noise_of};
use fedsa::kernel::Lanes;
use fedsa::linalg::{self, Mat};
use fedsa::random::{Purpose, stream};
use fedsa::sampling::Law;
use fedsa_problems::linear::finite_sum::{ChainLaw, FiniteSum, Scales};

#[test]
fn indices_of_terms_follow_their_chain() {
    const STEPS: usize = 20_000;
    let sum = FiniteSum::default().with_agents(1).with_terms(4).with_dim(3).with_mixing_time(2.0);
    for chain in [ChainLaw::Random, ChainLaw::Uniform, ChainLaw::Cyclic] {
        let noiseless = field(&sum.clone().with_chain(chain), Law::Markov);
        let law = noiseless.facts().law(0).unwrap();
        let moves = law.chain().unwrap();
        let (n, mut counts) = (4, vec![0usize; 16]);
        for start in 0..8 {
            let mut lanes = Lanes::new(3, 1);
            lanes.len = 1;
            lanes.set_stream(0, stream(9, Purpose::Sample, 0, start));
            noiseless.start_chain(0, &mut stream(9, Purpose::Chain, 0, start), &mut lanes.chains[..1]);
            for _ in 0..STEPS {
                let before = lanes.chains[0] as usize;
                noiseless.observe(std::slice::from_mut(&mut lanes), true);
                counts[before * n + lanes.chains[0] as usize] += 1;
            }
        }
        let mut off = Vec::new();
        for s in 0..n {
            let total = counts[s * n..(s + 1) * n].iter().sum::<usize>() as f64;
            for t in 0..n {
                let p = (0..moves.p.len()).find(|i| (moves.from[*i] as usize, moves.to[*i] as usize) == (s, t)).map_or(0.0, |i| moves.p[i]);
                assert!(p > 0.0 || counts[s * n + t] == 0, "{chain:?}: a move of probability 0");
                off.push((counts[s * n + t] as f64 - total * p) / (total * p * (1.0 - p)).sqrt());
            }
        }
        follows(&off).unwrap_or_else(|e| panic!("{chain:?}: {e}"));
        assert!((moves.second_eigenvalue().unwrap() - 0.5).abs() < 1e-12 || chain == ChainLaw::Random);
    }
}

/// Under i.i.d. and Markov sampling alike, g(0) is the offset of the term that was drawn.
#[test]
fn samples_of_finite_sums_are_their_terms_with_equal_probabilities() {
    const STEPS: usize = 20_000;
    for kind in [Law::Iid, Law::Markov] {
        // Uniform draws, so that counts are binomial.
        let chain = if kind == Law::Markov { ChainLaw::Uniform } else { ChainLaw::Random };
        let sum = field(&FiniteSum::default().with_agents(2).with_terms(5).with_dim(3).with_chain(chain), kind);
        for c in 0..2 {
            let terms = field(&FiniteSum::default().with_agents(2).with_terms(5).with_dim(3), Law::Iid);
            let law = terms.facts().law(c).unwrap();
            let offsets: Vec<Vec<f64>> = (0..5)
                .map(|z| {
                    let mut g = vec![0.0; 3];
                    law.operator(z, &[0.0; 3], &mut g);
                    g
                })
                .collect();
            let mut mean = vec![0.0; 3];
            sum.mean(c, &[0.0; 3], &mut mean);
            let mut counts = [0.0; 5];
            for x in noise_of(&sum, c, &[0.0; 3], STEPS) {
                let near = |b: &&Vec<f64>| (0..3).all(|i| (x[i] + mean[i] - b[i]).abs() < 1e-12);
                counts[offsets.iter().position(|b| near(&b)).expect("a term")] += 1.0;
            }
            let off = counts.map(|count| (count - STEPS as f64 / 5.0) / (STEPS as f64 * 0.2 * 0.8).sqrt());
            follows(&off).unwrap_or_else(|e| panic!("{kind:?}, agent {c}: {e}"));
        }
    }
}

#[test]
fn terms_have_the_spectra_that_are_asked_for() {
    let terms = |settings: &FiniteSum, c: usize| -> Vec<(f64, f64)> {
        let field = field(settings, Law::Iid);
        let law = field.facts().law(c).unwrap();
        let d = settings.dim;
        let of = |z: usize| {
            let at = |theta: &[f64]| {
                let mut g = vec![0.0; d];
                law.operator(z, theta, &mut g);
                g
            };
            let b = at(&vec![0.0; d]);
            let column = |j: usize| at(&(0..d).map(|i| f64::from(i == j)).collect::<Vec<_>>());
            let columns: Vec<Vec<f64>> = (0..d).map(column).collect();
            let all = linalg::eigenvalues(&Mat::from_fn(d, d, |i, j| b[i] - columns[j][i])).unwrap();
            all.iter().fold((f64::INFINITY, 0.0), |(low, high): (f64, f64), x| (low.min(x.0), high.max(x.0)))
        };
        (0..settings.terms).map(of).collect()
    };
    let sum = FiniteSum::default().with_agents(3).with_terms(4).with_dim(6).with_least_eigenvalue(0.1);
    assert!(terms(&sum, 1).iter().all(|(low, _)| (low - 0.1).abs() < 1e-12));
    let mapped = sum.clone().with_least_eigenvalue(1.0).with_greatest_eigenvalue(10.0);
    assert!(terms(&mapped, 2).iter().all(|(low, high)| (low - 1.0).abs() < 1e-12 && (high - 10.0).abs() < 1e-12));
    // One scale for all terms of an agent, another for another agent.
    let scaled = sum.with_scales(Scales::Exponential);
    let scales = [0, 1].map(|c| terms(&scaled, c).iter().map(|(low, _)| low / 0.1).collect::<Vec<_>>());
    assert!(scales.iter().all(|own| own.iter().all(|x| (x / own[0] - 1.0).abs() < 1e-11)) && (scales[0][0] - scales[1][0]).abs() > 1e-3);
}
