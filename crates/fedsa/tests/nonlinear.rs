//! Nonlinear problems: roots and certificates against independent computations, samples against their laws, and what
//! heterogeneity does to methods.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use crate::common::local::Local;
use crate::common::{Mean, bits, distance, field, follows, method, run_for};
use fedsa::kernel::{Isa, Lanes, flat};
use fedsa::linalg::{self, Mat};
use fedsa::method::MethodSettings;
use fedsa::parallel;
use fedsa::problem::Field;
use fedsa::problem::facts::Monotone;
use fedsa::problem::law::FiniteLaw;
use fedsa::problem::root::RootSource;
use fedsa::random::{Purpose, stream};
use fedsa::sampling::{ChainStart, Law, Sampling};
use fedsa_methods::fedlsa::FedLsa;
use fedsa_methods::scafflsa::Scafflsa;
use fedsa_problems::noise::Noise;
use fedsa_problems::nonlinear::fixed_point::FixedPoint;
use fedsa_problems::nonlinear::q_learning::{PairFeatures, QLearning};
use fedsa_problems::nonlinear::random_logistic::RandomLogistic;
use fedsa_problems::td::garnet::Heterogeneity;
use fedsa_problems::{NoFiles, ProblemSettings};
use fedsa_theory::RoundSetting;
use fedsa_theory::stability::{control_variates_radius, global_memory_radius};

fn logistic(agents: usize, seed: u64) -> RandomLogistic {
    RandomLogistic::default().with_agents(agents).with_dim(4).with_points(30).with_spread(3.0).with_seed(seed)
}

fn fixed_point(agents: usize, seed: u64) -> FixedPoint {
    FixedPoint::default().with_agents(agents).with_dim(5).with_seed(seed)
}

fn q_learning(agents: usize, seed: u64) -> QLearning {
    QLearning::default().with_agents(agents).with_states(6).with_seed(seed)
}

fn problems(agents: usize, seed: u64) -> Vec<(&'static str, Box<dyn ProblemSettings>)> {
    let features = q_learning(agents, seed).with_feature_law(PairFeatures::Simplex).with_features(4).with_gamma(0.5);
    vec![
        ("random-logistic", Box::new(logistic(agents, seed))),
        ("fixed-point", Box::new(fixed_point(agents, seed))),
        ("q-learning", Box::new(q_learning(agents, seed))),
        ("q-learning, features", Box::new(features)),
    ]
}

fn mean_of(field: &Arc<dyn Field>, c: usize, theta: &[f64]) -> Vec<f64> {
    let mut out = vec![0.0; theta.len()];
    assert!(field.mean(c, theta, &mut out));
    out
}

/// A point of standard normal numbers.
fn point(d: usize, number: u64) -> Vec<f64> {
    let mut s = stream(21, Purpose::Fresh, number, 0);
    (0..d).map(|_| s.normal()).collect()
}

#[test]
fn roots_are_known_and_certified_for_every_seed() {
    for seed in 0..20 {
        for (name, problem) in problems(7, seed) {
            let field = field(&*problem, Law::Mean);
            let solution = field.solution().unwrap_or_else(|why| panic!("{name}, seed {seed}: {why}"));
            assert_eq!(solution.source, RootSource::Newton, "{name}");
            let size = |theta: &[f64]| linalg::norm_sq(&field.mean_operator(theta).unwrap()).sqrt();
            let (at_root, at_zero) = (size(&solution.theta), size(&vec![0.0; field.dim()]));
            assert!(at_root <= 1e-14 * (at_zero + linalg::norm_sq(&solution.theta).sqrt() + 1.0), "{name}, seed {seed}: {at_root:e}");
            assert!(at_zero > 1e-3, "{name}: 0 is not near the root");
        }
    }
}

/// Newton's method works on all threads, and a thread that waits for others takes up another task meanwhile: one that asks for the same
/// root. A test that hangs fails.
#[test]
fn many_tasks_ask_for_the_root_of_one_field() {
    let (done, ended) = mpsc::channel();
    std::thread::spawn(move || {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(16).build().unwrap();
        for seed in 0..8 {
            let field = field(&logistic(512, seed), Law::Mean);
            let roots = pool.install(|| parallel::map(128, |_| field.solution().unwrap().theta.clone()));
            assert!(roots.iter().all(|root| bits(root) == bits(&roots[0])));
        }
        done.send(()).unwrap();
    });
    ended.recv_timeout(Duration::from_secs(100)).expect("all roots are computed");
}

/// Value iteration on the mean MDP, written out from the laws of the samples alone: the expected Bellman target of a pair is
/// its mass-weighted mean over agents. One-hot features make `g(theta, z)` tell the pair, and the pair's value the error.
#[test]
fn the_root_of_tabular_q_learning_is_that_of_value_iteration_on_the_mean_mdp() {
    for (seed, exploration) in [(0, 1.0), (1, 0.3), (2, 0.05)] {
        let settings = q_learning(5, seed).with_exploration(exploration);
        let field = field(&settings, Law::Mean);
        let d = field.dim();
        let laws: Vec<FiniteLaw<'_>> = (0..5).map(|c| field.facts().law(c).unwrap()).collect();
        let (mut mass, mut reward, mut next) = (vec![0.0; d], vec![0.0; d], vec![vec![0.0; settings.states]; d]);
        for law in &laws {
            for (z, w) in law.mass().iter().enumerate() {
                let mut g = vec![0.0; d];
                law.operator(z, &vec![0.0; d], &mut g);
                // At theta = 0 the operator is r at the pair of the step; rewards are positive.
                let pair = g.iter().position(|g| *g != 0.0).expect("a reward");
                (mass[pair], reward[pair]) = (mass[pair] + w, reward[pair] + w * g[pair]);
                next[pair][law.chain().unwrap().to[z] as usize] += w;
            }
        }
        assert!(mass.iter().all(|w| *w > 0.0), "every pair is visited");
        let mut q: Vec<f64> = vec![0.0; d];
        for _ in 0..400 {
            let values: Vec<f64> = q.chunks(2).map(|q| q[0].max(q[1])).collect();
            let target = |pair: usize| -> f64 {
                let ahead: f64 = next[pair].iter().zip(&values).map(|(p, v)| p * v).sum();
                (reward[pair] + settings.gamma * ahead) / mass[pair]
            };
            q = (0..d).map(target).collect();
        }
        // 0.8^400 is far below rounding.
        assert!(distance(field.root().unwrap(), &q) < 1e-12, "seed {seed}: {:?} {q:?}", field.root());
        assert!(q.chunks(2).any(|q| (q[0] - q[1]).abs() > 0.01) && q.chunks(2).any(|q| q[1] > q[0]), "actions matter");
    }
}

/// Projected value iteration `theta <- G^-1 sum_c p_c E phi (r + gamma max Q(s'))`, with G and the right side from the operators:
/// `gbar(theta) = b(theta) - G theta`. `None` if it does not settle.
fn projected_value_iteration(field: &Arc<dyn Field>) -> Option<Vec<f64>> {
    let gram = field.facts().gram().unwrap();
    let mut theta = vec![0.0; field.dim()];
    for _ in 0..6000 {
        let step = linalg::solve(gram, &field.mean_operator(&theta).unwrap()).unwrap();
        theta.iter_mut().zip(&step).for_each(|(x, step)| *x += step);
        let (step, size) = (linalg::norm_sq(&step), linalg::norm_sq(&theta));
        if !size.is_finite() {
            return None;
        }
        if step < 1e-26 * size {
            return Some(theta);
        }
    }
    None
}

#[test]
fn where_projected_value_iteration_settles_newtons_method_finds_that_root() {
    let (mut settled, mut found) = (0, 0);
    for seed in 0..10 {
        for feature_law in [PairFeatures::Uniform, PairFeatures::Simplex, PairFeatures::Orthonormal] {
            for (gamma, features) in [(0.5, 4), (0.9, 3), (0.9, 8), (0.99, 5), (0.99, 11)] {
                let settings = q_learning(5, seed).with_feature_law(feature_law).with_features(features).with_gamma(gamma);
                let field = field(&settings, Law::Mean);
                found += usize::from(field.root().is_some());
                let Some(theta) = projected_value_iteration(&field) else { continue };
                settled += 1;
                let root = field.solution().unwrap_or_else(|why| panic!("{feature_law:?}, {gamma}, {features}, seed {seed}: {why}"));
                let off = distance(&root.theta, &theta) / (1.0 + linalg::norm_sq(&theta).sqrt());
                assert!(off < 1e-9, "{feature_law:?}, {gamma}, {features}, seed {seed}: {off:e}");
            }
        }
    }
    // Newton's method finds some more, where the fit of the targets goes round in circles.
    assert!(settled >= 100 && found > settled, "{settled} of 150 settled, Newton's method found {found} roots");
}

#[test]
fn the_optimum_of_logistic_losses_is_that_of_gradient_descent() {
    let settings = logistic(4, 3);
    let field = field(&settings, Law::Mean);
    let Monotone { lipschitz, .. } = field.facts().monotone().unwrap();
    let mut theta = vec![0.0; 4];
    for _ in 0..4000 {
        let g = field.mean_operator(&theta).unwrap();
        theta.iter_mut().zip(g).for_each(|(x, g)| *x += g / lipschitz);
    }
    assert!(distance(field.root().unwrap(), &theta) < 1e-14 * 10.0);
    // Newton's method on the objective.
    let newton = method("newton", "{}");
    let run = run_for(&field, &*newton, 0, &[0.0; 4], 10);
    assert!(distance(run.theta(), field.root().unwrap()) < 1e-14);
}

#[test]
fn derivatives_are_differences() {
    for (name, problem) in problems(3, 5) {
        let field = field(&*problem, Law::Mean);
        let d = field.dim();
        for number in 0..5 {
            let theta = point(d, number);
            for c in 0..3 {
                let mut known = Mat::zeros(d, d);
                assert!(field.facts().jacobian(c, &theta, &mut known));
                // Far from the points where the greedy action changes, with this step.
                let h = 1e-6;
                for j in 0..d {
                    let at = |t: f64| {
                        let mut theta = theta.clone();
                        theta[j] += t;
                        mean_of(&field, c, &theta)
                    };
                    let (high, low) = (at(h), at(-h));
                    for i in 0..d {
                        let slope = (high[i] - low[i]) / (2.0 * h);
                        assert!((known[(i, j)] - slope).abs() < 1e-8, "{name}, agent {c}, ({i}, {j}): {} {slope}", known[(i, j)]);
                    }
                }
            }
        }
    }
    let field = field(&logistic(2, 1), Law::Mean);
    let (losses, theta, v) = (field.facts().objective().unwrap(), point(4, 8), point(4, 9));
    for c in 0..2 {
        let at = |t: f64| losses.loss(c, &theta.iter().zip(&v).map(|(x, v)| x + t * v).collect::<Vec<_>>());
        let (mut gradient, mut product, mut hessian) = (vec![0.0; 4], vec![0.0; 4], Mat::zeros(4, 4));
        losses.gradient(c, &theta, &mut gradient);
        losses.hessian_vector(c, &theta, &v, &mut product);
        losses.hessian(c, &theta, &mut hessian);
        let slope: f64 = gradient.iter().zip(&v).map(|(g, v)| g * v).sum();
        assert!((slope - (at(1e-5) - at(-1e-5)) / 2e-5).abs() < 1e-9);
        assert!(distance(&linalg::mat_vec(&hessian, &v), &product) < 1e-14);
        assert!(gradient.iter().zip(mean_of(&field, c, &theta)).all(|(x, g)| (x + g).abs() < 1e-15));
    }
    // The loss neither overflows nor loses what is small.
    let far = [1e4, 0.0, 0.0, 0.0];
    assert!(losses.loss(0, &far).is_finite() && mean_of(&field, 0, &far).iter().all(|g| g.is_finite()));
}

#[test]
fn certificates_hold_and_are_the_constants_that_they_say() {
    for (name, problem) in problems(6, 2) {
        let field = field(&*problem, Law::Mean);
        let Some(Monotone { modulus, lipschitz }) = field.facts().monotone() else {
            assert_eq!(name, "q-learning", "gamma sqrt(2) is above 1");
            continue;
        };
        assert!(modulus > 0.0 && lipschitz >= modulus, "{name}");
        let d = field.dim();
        let mut steepest = 0.0f64;
        for number in 0..200 {
            // Near and far, around 0.
            let scale = [0.01, 1.0, 30.0][number as usize % 3];
            let (x, y): (Vec<f64>, Vec<f64>) =
                point(d, 2 * number).iter().zip(point(d, 2 * number + 1)).map(|(x, y)| (scale * x, scale * y)).unzip();
            let away = linalg::distance_sq(&x, &y);
            let (gx, gy) = (field.mean_operator(&x).unwrap(), field.mean_operator(&y).unwrap());
            let along: f64 = gx.iter().zip(&gy).zip(x.iter().zip(&y)).map(|((gx, gy), (x, y))| (gx - gy) * (x - y)).sum();
            assert!(along <= -modulus * away * (1.0 - 1e-9), "{name}, {number}: {along} {}", modulus * away);
            for c in 0..6 {
                let ratio = (linalg::distance_sq(&mean_of(&field, c, &x), &mean_of(&field, c, &y)) / away).sqrt();
                steepest = steepest.max(ratio);
            }
        }
        assert!(steepest <= lipschitz && steepest > 0.1 * lipschitz, "{name}: {steepest} {lipschitz}");
    }
    // The modulus is the ridge, and 1 - ||W|| with ||W|| as given; some agents of the map are no contractions.
    assert_eq!(field(&logistic(3, 0), Law::Mean).facts().monotone().unwrap().modulus, 0.1);
    let map = field(&fixed_point(6, 2), Law::Mean);
    let Monotone { modulus, lipschitz } = map.facts().monotone().unwrap();
    assert!((modulus - 0.5).abs() < 1e-12 && lipschitz > 2.0, "{modulus} {lipschitz}");
    // For an agent on its own, J + I at 0 is W_c.
    let expanding = (0..6).filter(|c| {
        let mut jacobian = Mat::zeros(5, 5);
        map.facts().jacobian(*c, &[0.0; 5], &mut jacobian);
        linalg::spectral_radius(&(jacobian + Mat::<f64>::identity(5, 5))).unwrap() > 1.0
    });
    assert!(expanding.count() >= 2);
    // Of linear systems: the symmetric part of the mean.
    let linear = field(&crate::common::linear(&[([[3.0, 1.0], [0.0, 1.0]], [0.0; 2]), ([[1.0, 0.0], [1.0, -0.5]], [0.0; 2])]), Law::Mean);
    let (trace, det) = (2.25, 2.0 * 0.25 - 0.25);
    let want = trace / 2.0 - f64::sqrt(trace * trace / 4.0 - det);
    let got = linear.facts().monotone().unwrap();
    assert!(
        (got.modulus - want).abs() < 1e-14
            && (got.lipschitz - linalg::norm2(&linalg::from_rows(2, 2, &[3.0, 1.0, 0.0, 1.0]))).abs() < 1e-14
    );
    let indefinite = field(&crate::common::linear(&[([[1.0, 0.0], [0.0, -0.5]], [0.0; 2])]), Law::Mean);
    assert!(indefinite.facts().monotone().is_none());
}

#[test]
fn noise_on_top_leaves_root_and_certificate() {
    let noise = Some(Noise::new(0.3, 0.5, 1));
    for (bare, noisy) in [
        (
            Box::new(logistic(3, 0)) as Box<dyn ProblemSettings>,
            Box::new(logistic(3, 0).with_noise(noise.clone())) as Box<dyn ProblemSettings>,
        ),
        (Box::new(fixed_point(3, 0)), Box::new(fixed_point(3, 0).with_noise(noise.clone()))),
        (Box::new(q_learning(3, 0)), Box::new(q_learning(3, 0).with_noise(noise))),
    ] {
        let (bare, noisy) = (field(&*bare, Law::Markov), field(&*noisy, Law::Markov));
        assert_eq!(bare.root(), noisy.root());
        assert_eq!(bare.facts().monotone(), noisy.facts().monotone());
        assert!(noisy.facts().law(0).is_none() && bare.facts().law(0).is_some());
        assert_eq!(noisy.chain_len(), bare.chain_len() + bare.dim());
    }
}

#[test]
fn laws_are_probabilities_whose_mean_is_the_mean_operator() {
    for (name, problem) in problems(3, 4) {
        let field = field(&*problem, Law::Iid);
        for c in 0..3 {
            let (law, theta) = (field.facts().law(c).unwrap(), point(field.dim(), 3));
            assert!((law.mass().iter().sum::<f64>() - 1.0).abs() < 1e-12, "{name}");
            assert!(distance(&law.mean(&theta), &mean_of(&field, c, &theta)) < 1e-13, "{name}");
            let chain = law.chain().expect("a chain");
            let mut next = vec![0.0; chain.law.len()];
            for (z, mass) in law.mass().iter().enumerate() {
                assert!((mass - chain.law[chain.from[z] as usize] * chain.p[z]).abs() < 1e-14, "{name}");
                next[chain.to[z] as usize] += mass;
            }
            assert!(distance(&next, &chain.law) < 1e-13, "{name}: the law is stationary");
            assert!(chain.mixing_time(0.1).unwrap().is_some(), "{name}");
            assert!(law.covariance(&theta).norm_max() > 1e-4, "{name}: there is noise");
        }
    }
}

/// `E <g_k, g_(k + lag)>` of the noise `g - gbar` of a stationary trajectory, from the law and its chain.
fn correlation(law: &FiniteLaw<'_>, theta: &[f64], lag: usize) -> f64 {
    let (chain, mean, d) = (law.chain().unwrap(), law.mean(theta), theta.len());
    let noise: Vec<Vec<f64>> = (0..law.mass().len())
        .map(|z| {
            let mut g = vec![0.0; d];
            law.operator(z, theta, &mut g);
            g.iter().zip(&mean).map(|(g, mean)| g - mean).collect()
        })
        .collect();
    // The mean of the next noise in each state, taken back move by move.
    let mut ahead = vec![vec![0.0; d]; chain.law.len()];
    for (z, noise) in noise.iter().enumerate() {
        ahead[chain.from[z] as usize].iter_mut().zip(noise).for_each(|(sum, g)| *sum += chain.p[z] * g);
    }
    for _ in 1..lag {
        let mut back = vec![vec![0.0; d]; chain.law.len()];
        for z in 0..noise.len() {
            let later = ahead[chain.to[z] as usize].clone();
            back[chain.from[z] as usize].iter_mut().zip(later).for_each(|(sum, g)| *sum += chain.p[z] * g);
        }
        ahead = back;
    }
    let of = |z: usize| noise[z].iter().zip(&ahead[chain.to[z] as usize]).map(|(x, y)| x * y).sum::<f64>();
    (0..noise.len()).map(|z| law.mass()[z] * of(z)).sum()
}

#[test]
fn samples_have_their_law_and_trajectories_their_memory() {
    // A mixing time has no meaning without a trajectory.
    let problems = |kind: Law| -> Vec<(&str, Box<dyn ProblemSettings>)> {
        let mixing_time = if kind == Law::Markov { 4.0 } else { 1.0 };
        vec![
            ("random-logistic", Box::new(logistic(2, 1).with_mixing_time(mixing_time))),
            ("fixed-point", Box::new(fixed_point(2, 1).with_mixing_time(mixing_time))),
            ("q-learning", Box::new(q_learning(2, 1))),
            ("q-learning, little exploration", Box::new(q_learning(2, 1).with_exploration(0.2))),
        ]
    };
    for kind in [Law::Iid, Law::Markov] {
        for (name, problem) in problems(kind) {
            let field = field(&*problem, kind);
            let (d, theta, c) = (field.dim(), point(field.dim(), 7), 1);
            let law = field.facts().law(c).unwrap();
            let mean = mean_of(&field, c, &theta);
            let variance: f64 = (0..d).map(|i| law.covariance(&theta)[(i, i)]).sum();
            let mut lanes = Lanes::new(d, field.chain_len());
            (lanes.len, lanes.agents[0]) = (1, c);
            lanes.theta_mut(0)[..d].copy_from_slice(&theta);
            let (mut means, mut squares, mut lags) = (vec![Mean::default(); d], Mean::default(), [Mean::default(); 3]);
            for seed in 0..3000 {
                lanes.set_stream(0, stream(seed, Purpose::Sample, 0, c));
                let words = field.chain_len();
                field.start_chain(c, &mut stream(seed, Purpose::Chain, 0, c), &mut lanes.chains[..words]);
                let seen: Vec<Vec<f64>> = (0..4)
                    .map(|_| {
                        field.observe(std::slice::from_mut(&mut lanes), true);
                        flat(&lanes.observed)[..d].iter().zip(&mean).map(|(g, mean)| g - mean).collect()
                    })
                    .collect();
                means.iter_mut().zip(&seen[3]).for_each(|(mean, g)| mean.see(*g));
                squares.see(linalg::norm_sq(&seen[3]));
                for (k, lag) in lags.iter_mut().enumerate() {
                    lag.see(seen[0].iter().zip(&seen[k + 1]).map(|(x, y)| x * y).sum());
                }
            }
            let mut off: Vec<f64> = means.iter().map(|mean| mean.off(0.0)).collect();
            off.push(squares.off(variance));
            let wanted = |lag: usize| if kind == Law::Iid { 0.0 } else { correlation(&law, &theta, lag) };
            off.extend(lags.iter().enumerate().map(|(k, lag)| lag.off(wanted(k + 1))));
            follows(&off).unwrap_or_else(|why| panic!("{name}, {kind:?}: {why}, {off:?}"));
            // Where the memory is long, 0 would not pass.
            let is_slow = kind == Law::Markov && !name.starts_with("q-learning");
            assert!(!is_slow || lags[0].off(0.0).abs() > 5.0, "{name}: {}", lags[0].off(0.0));
        }
    }
}

#[test]
fn steps_of_a_trajectory_leave_the_state_that_the_last_one_entered() {
    let field = field(&q_learning(3, 1), Law::Markov);
    let (d, mut states) = (field.dim(), std::collections::BTreeSet::new());
    let mut lanes = Lanes::new(d, 1);
    (lanes.len, lanes.agents[0]) = (1, 2);
    lanes.set_stream(0, stream(1, Purpose::Sample, 0, 2));
    field.start_chain(2, &mut stream(1, Purpose::Chain, 0, 2), &mut lanes.chains[..1]);
    for _ in 0..200 {
        let entered = lanes.chains[0] as usize;
        field.observe(std::slice::from_mut(&mut lanes), true);
        // At theta = 0 and with one feature a pair, g is the reward at the pair of the step.
        let pair = flat(&lanes.observed)[..d].iter().position(|g| *g != 0.0).expect("a reward");
        assert_eq!(pair / 2, entered);
        states.insert(pair);
    }
    assert_eq!(states.len(), 12, "all pairs are visited");
}

#[test]
fn chains_start_where_they_are_told() {
    for (name, problem) in problems(2, 1) {
        let field =
            problem.field(&NoFiles, Sampling::default().with_kind(Law::Markov).with_start(ChainStart::State(3)), Isa::best()).unwrap();
        let mut chain = [7];
        field.start_chain(1, &mut stream(0, Purpose::Chain, 0, 1), &mut chain);
        assert_eq!(chain, [3], "{name}");
        assert!(field.is_state(1, &[5]) && !field.is_state(1, &[1000]));
        let refused = problem.field(&NoFiles, Sampling::default().with_kind(Law::Markov).with_start(ChainStart::State(1000)), Isa::best());
        assert_eq!(refused.err().expect("no such state").key, "sampling.start", "{name}");
    }
}

#[test]
fn agents_of_a_small_federation_are_the_first_of_a_larger_one() {
    type Pool = Box<dyn Fn(usize) -> Box<dyn ProblemSettings>>;
    let pools: [Pool; 3] = [
        Box::new(|n| Box::new(logistic(n, 1))),
        Box::new(|n| Box::new(q_learning(n, 1))),
        Box::new(|n| Box::new(q_learning(n, 1).with_heterogeneity(Heterogeneity::TwoKernels))),
    ];
    for pool in pools {
        let (few, many) = (field(&*pool(3), Law::Mean), field(&*pool(10), Law::Mean));
        let theta = point(few.dim(), 1);
        for c in 0..3 {
            assert_eq!(mean_of(&few, c, &theta), mean_of(&many, c, &theta));
        }
        assert_ne!(mean_of(&many, 0, &theta), mean_of(&many, 1, &theta));
    }
    // The mean map is the same for every N, but for the offsets.
    let at = |n: usize| {
        let field = field(&fixed_point(n, 1).with_offsets(0.0), Law::Mean);
        field.mean_operator(&point(5, 1)).unwrap()
    };
    assert!(distance(&at(1), &at(9)) < 1e-14);
}

fn fedhsa(step: f64, steps: usize) -> Box<dyn MethodSettings> {
    method("fedhsa", &format!(r#"{{"step_size": {step}, "local_steps": {steps}}}"#))
}

#[test]
fn without_noise_fedhsa_and_scafflsa_reach_the_root_at_the_local_rate_and_fedlsa_does_not() {
    const H: usize = 10;
    for (name, problem) in problems(6, 2) {
        let field = field(&*problem, Law::Mean);
        let (root, d) = (field.root().unwrap(), field.dim());
        let step = if name.starts_with("q-learning") { 0.3 } else { 0.1 };
        let setting = RoundSetting::new(step, H as u64).unwrap();
        let systems = Local::new(&*field).unwrap().systems;
        let (of_fedhsa, of_scafflsa) =
            (global_memory_radius(&systems, &setting).unwrap(), control_variates_radius(&systems, &setting).unwrap());
        let scafflsa = Scafflsa::new(step, H);
        for (kind, method, radius) in
            [("fedhsa", &*fedhsa(step, H), of_fedhsa), ("scafflsa", &scafflsa as &dyn MethodSettings, of_scafflsa)]
        {
            assert!(radius < 1.0, "{kind} on {name}: {radius}");
            let error = |rounds: f64| distance(run_for(&field, method, 0, &vec![0.0; d], rounds as u64).theta(), root);
            // As many rounds as take the error to 1e-5 and to 1e-10 of its size, at that rate.
            let (early, late) = ((1e-5f64.ln() / radius.ln()).ceil(), (1e-10f64.ln() / radius.ln()).ceil());
            let rate = (error(late) / error(early)).powf(1.0 / (late - early));
            // Complex eigenvalues let the error swing around its rate: by a factor of 3 at most over these rounds.
            let slack = 3f64.ln() / (late - early);
            assert!((rate.ln() - radius.ln()).abs() < slack, "{kind} on {name}: {rate} {radius}");
            let end = error(3.0 * late);
            assert!(end < 1e-13 * (1.0 + linalg::norm_sq(root).sqrt()), "{kind} on {name}: {end:e}");
        }
        // FedLSA stops elsewhere, as far away as local steps are many.
        let limit = |steps: usize| {
            let fedlsa = FedLsa::new(step, steps);
            let there = run_for(&field, &fedlsa, 0, root, 20_000 / steps as u64 + 1000).theta().to_vec();
            let next = run_for(&field, &fedlsa, 0, &there, 1).theta().to_vec();
            assert!(distance(&there, &next) < 1e-12, "{name}, H = {steps}: settled");
            distance(&there, root)
        };
        let (one, some, more) = (limit(1), limit(2), limit(H));
        assert!(one < 1e-12 && some > 1e-4 && more > 2.0 * some, "{name}: {one:e} {some:e} {more:e}");
    }
}

#[test]
fn with_noise_fedlsa_stays_at_its_bias_and_fedhsa_at_the_root() {
    // Long rounds for a large bias, batches for little noise: with a constant step noise moves the mean of nonlinear iterates too.
    const H: usize = 50;
    for (name, problem) in problems(6, 2) {
        for kind in [Law::Iid, Law::Markov] {
            let sampling = Sampling::default().with_kind(kind).with_batch(20);
            let (field, noiseless) = (problem.field(&NoFiles, sampling, Isa::best()).unwrap(), field(&*problem, Law::Mean));
            let (root, d) = (field.root().unwrap(), field.dim());
            let step = if name.starts_with("q-learning") { 0.2 } else { 0.05 };
            let fedlsa = FedLsa::new(step, H);
            let limit = run_for(&noiseless, &fedlsa, 0, root, 1000).theta().to_vec();
            let bias = linalg::distance_sq(&limit, root);
            // The mean iterate of the rounds 100 to 500.
            let mean = |method: &dyn MethodSettings| {
                let mut run = run_for(&field, method, 3, root, 100);
                let mut mean = vec![0.0; d];
                for _ in 0..400 {
                    run.step();
                    mean.iter_mut().zip(run.theta()).for_each(|(mean, x)| *mean += x / 400.0);
                }
                mean
            };
            let (plain, corrected) = (mean(&fedlsa), mean(&*fedhsa(step, H)));
            let off = |theta: &[f64]| linalg::distance_sq(theta, root);
            assert!(
                off(&plain) > 0.3 * bias && off(&corrected) < 0.1 * off(&plain),
                "{name}, {kind:?}: {:e} {:e}, bias {bias:e}",
                off(&plain),
                off(&corrected)
            );
        }
    }
}
