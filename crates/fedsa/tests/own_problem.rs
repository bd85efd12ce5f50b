//! Problems of one's own: what follows from the operators alone, and from facts. The problem is that of the example.

use std::sync::Arc;

use crate::common::local::Local;
use crate::common::{Mean, bits, distance, follows, noise_of, run_for, run_from};
use crate::example::Regression;
use fedsa::kernel::Isa;
use fedsa::linalg::{self, Mat};
use fedsa::method::MethodSettings;
use fedsa::metrics::Metrics;
use fedsa::problem::newton;
use fedsa::problem::root::{self, RootSource};
use fedsa::problem::{Facts, Field, Objective, Problem, Sampled, equal_weights};
use fedsa::random::{Purpose, Stream, stream};
use fedsa::sampling::{ChainStart, Law, Sampling};
use fedsa::sums;
use fedsa_methods::fedhsa::FedHsa;
use fedsa_methods::fedlsa::FedLsa;
use fedsa_methods::scafflsa::Scafflsa;
use fedsa_problems::linear::affine::LinearSystems;
use fedsa_problems::noise::{Noise, Noisy};
use fedsa_problems::td::garnet::Garnet;
use fedsa_problems::{NoFiles, ProblemSettings as _};
use fedsa_theory::stability::{control_variates_radius, global_memory_radius, largest_stable_step, plain_radius};
use fedsa_theory::{RoundSetting, map};

fn sampled<P: Problem>(problem: P, kind: Law) -> Arc<dyn Field> {
    Arc::new(Sampled::new(problem, Sampling::default().with_kind(kind), Isa::best()).unwrap())
}

fn regression(agents: usize, kind: Law) -> Arc<dyn Field> {
    sampled(Regression::new(agents, 12, 2), kind)
}

fn fedhsa(step: f64, steps: usize) -> FedHsa {
    FedHsa::new(step, steps)
}

/// What a wrapper leaves of a problem.
#[derive(Clone, Copy, PartialEq)]
enum Left {
    /// Samples and means, no facts.
    Means,
    /// Samples only.
    Samples,
}

/// A problem of which less is known.
struct Less<P>(P, Left);

impl<P: Problem> Problem for Less<P> {
    type Obs = P::Obs;
    fn dim(&self) -> usize {
        self.0.dim()
    }
    fn weights(&self) -> &[f64] {
        self.0.weights()
    }
    fn sample(&self, c: usize, theta: &[f64], chain: &mut [u64], stream: &mut Stream, z: &mut P::Obs) {
        self.0.sample(c, theta, chain, stream, z);
    }
    fn apply(&self, c: usize, theta: &[f64], z: &P::Obs, out: &mut [f64]) {
        self.0.apply(c, theta, z, out);
    }
    fn mean(&self, c: usize, theta: &[f64], out: &mut [f64]) -> bool {
        self.1 == Left::Means && self.0.mean(c, theta, out)
    }
}

/// A mean operator from a function, alike for two agents.
struct Given(usize, fn(&[f64], &mut [f64]));

impl Problem for Given {
    type Obs = ();
    fn dim(&self) -> usize {
        self.0
    }
    fn weights(&self) -> &[f64] {
        &[0.5, 0.5]
    }
    fn sample(&self, _: usize, _: &[f64], _: &mut [u64], _: &mut Stream, _: &mut ()) {}
    fn apply(&self, _: usize, theta: &[f64], _: &(), out: &mut [f64]) {
        self.1(theta, out);
    }
    fn mean(&self, _: usize, theta: &[f64], out: &mut [f64]) -> bool {
        self.1(theta, out);
        true
    }
}

#[test]
fn derivatives_of_the_example_are_differences() {
    let problem = Regression::new(3, 12, 2);
    let bare = sampled(Less(Regression::new(3, 12, 2), Left::Means), Law::Mean);
    let theta = [0.4, -0.3];
    let mut gradient = [0.0; 2];
    for c in 0..3 {
        problem.gradient(c, &theta, &mut gradient);
        // Central differences: errors of h^2 and of rounding over h.
        let h = 1e-5;
        for (i, slope) in gradient.iter().enumerate() {
            let at = |t: f64| problem.loss(c, &[theta[0] + if i == 0 { t } else { 0.0 }, theta[1] + if i == 1 { t } else { 0.0 }]);
            assert!((slope - (at(h) - at(-h)) / (2.0 * h)).abs() < 1e-9);
        }
        let (differences, source) = newton::jacobian(&*bare, c, &theta).unwrap();
        assert_eq!(source, RootSource::Differences);
        let mut known = Mat::zeros(2, 2);
        assert!(Facts::jacobian(&problem, c, &theta, &mut known));
        assert!((&known - differences).norm_max() < 1e-9, "minus the Hessian");
        let v = [0.7, 1.1];
        let mut product = [0.0; 2];
        problem.hessian_vector(c, &theta, &v, &mut product);
        assert!(linalg::mat_vec(&known, &v).iter().zip(&product).all(|(x, y)| (x + y).abs() < 1e-14));
    }
}

#[test]
fn the_law_of_the_example_has_its_mean_and_its_covariance() {
    let (field, problem, theta) = (regression(3, Law::Iid), Regression::new(3, 12, 2), [0.4, -0.3]);
    for c in 0..3 {
        let law = field.facts().law(c).unwrap();
        let mut mean = [0.0; 2];
        assert!(field.mean(c, &theta, &mut mean));
        assert!(distance(&law.mean(&theta), &mean) < 1e-15);
        let samples: Vec<Vec<f64>> = (0..12)
            .map(|z| {
                let mut g = vec![0.0; 2];
                problem.apply(c, &theta, &z, &mut g);
                g
            })
            .collect();
        let want = Mat::from_fn(2, 2, |i, j| samples.iter().map(|g| g[i] * g[j]).sum::<f64>() / 12.0 - mean[i] * mean[j]);
        assert!((law.covariance(&theta) - want).norm_max() < 1e-15);
        assert!(field.facts().moments(c).is_none() && law.chain().is_none());
    }
}

#[test]
fn symmetric_linear_systems_have_an_objective() {
    let objective = |settings: &dyn fedsa_problems::ProblemSettings| crate::common::field(settings, Law::Iid).facts().objective().is_some();
    let noise = Some(Noise::new(0.3, 0.5, 1));
    assert!(objective(&LinearSystems::default()) && objective(&LinearSystems::default().with_noise(noise)));
    assert!(!objective(&Garnet::default()), "operators of TD are no gradients");
    // Its derivatives are minus the operator and minus the Jacobian.
    let field = crate::common::field(&LinearSystems::default().with_dim(3), Law::Mean);
    let (theta, mut gradient, mut mean) = ([0.3, -1.0, 2.0], [0.0; 3], [0.0; 3]);
    let (mut hessian, mut jacobian) = (Mat::zeros(3, 3), Mat::zeros(3, 3));
    let losses = field.facts().objective().unwrap();
    losses.gradient(1, &theta, &mut gradient);
    losses.hessian(1, &theta, &mut hessian);
    assert!(field.mean(1, &theta, &mut mean) && field.facts().jacobian(1, &theta, &mut jacobian));
    assert!(gradient.iter().zip(mean).all(|(x, y)| (x + y).abs() < 1e-15) && hessian == -jacobian);
}

#[test]
fn roots_of_nonlinear_operators_are_where_their_mean_vanishes() {
    let (known, bare) = (regression(9, Law::Iid), sampled(Less(Regression::new(9, 12, 2), Left::Means), Law::Iid));
    assert_eq!(known.solution().unwrap().source, RootSource::Newton);
    assert_eq!(bare.solution().unwrap().source, RootSource::Differences);
    // Gradient descent, by hand: the operators are at most 1-Lipschitz times the size of the points.
    let (mut theta, mut g) = (vec![0.0; 2], vec![0.0; 2]);
    for _ in 0..5000 {
        let mut sum = [0.0; 2];
        for c in 0..9 {
            known.mean(c, &theta, &mut g);
            sum.iter_mut().zip(&g).for_each(|(sum, g)| *sum += g / 9.0);
        }
        theta.iter_mut().zip(sum).for_each(|(x, g)| *x += 0.3 * g);
    }
    // A residual of rounding over the least eigenvalue of the Jacobian, some 0.3.
    assert!(distance(known.root().unwrap(), &theta) < 1e-14);
    assert!(distance(bare.root().unwrap(), &theta) < 1e-14);
    // Known roots are measured from, and a run without noise comes to them.
    let field = regression(9, Law::Mean);
    let scafflsa = Scafflsa::new(0.1, 5);
    let run = run_for(&field, &scafflsa, 0, &[0.0; 2], 600);
    let seen = Metrics::new(&field).observe(&run, None, 0.0);
    assert!(seen.mse.unwrap() < 1e-26 && seen.residual.unwrap() < 1e-13, "{seen:?}");
}

#[test]
fn newtons_method_bears_flat_and_far_operators() {
    // Saturated at the start, where the Jacobian is 0 for clipped residuals and 1e-34 for tanh.
    let clipped = Given(2, |theta, out| (out[0], out[1]) = ((40.0 - theta[0]).clamp(-1.0, 1.0), (0.25 - theta[1]).clamp(-1.0, 1.0)));
    let far = Given(2, |theta, out| (out[0], out[1]) = ((40.0 - theta[0]).tanh(), (theta[0] - 3.0 * theta[1]).tanh()));
    // A full step from 0 overshoots for ever.
    let atan = Given(1, |theta, out| out[0] = (20.0 - theta[0]).atan());
    // Not symmetric: the flow turns.
    let spiral = Given(2, |theta, out| {
        let (x, y) = (1.0 - theta[0], 2.0 - theta[1]);
        (out[0], out[1]) = ((0.2 * x - y).tanh() + 0.1 * x, (x + 0.2 * y).tanh() + 0.1 * y);
    });
    for (problem, want) in [(clipped, vec![40.0, 0.25]), (far, vec![40.0, 40.0 / 3.0]), (atan, vec![20.0]), (spiral, vec![1.0, 2.0])] {
        let field = sampled(problem, Law::Mean);
        let root = field.solution().unwrap_or_else(|why| panic!("{want:?}: {why}"));
        assert!(distance(&root.theta, &want) < 1e-13 * linalg::norm_sq(&want).sqrt(), "{root:?}");
    }
    // Agents alike and a root at 0: there is no size but that of the start.
    let zero = sampled(Given(1, |theta, out| out[0] = -theta[0].tanh()), Law::Mean);
    assert_eq!(zero.root().unwrap(), [0.0]);
}

#[test]
fn roots_that_are_not_known_have_a_reason() {
    let why = |problem: Given| sampled(problem, Law::Mean).solution().unwrap_err().to_string();
    assert!(why(Given(1, |_, out| out[0] = 1.0)).contains("did not converge"));
    assert!(why(Given(1, |theta, out| out[0] = 1.0 + theta[0] * theta[0])).contains("did not converge"));
    assert!(why(Given(1, |_, out| out[0] = f64::NAN)).contains("not finite"));
    let triple = Given(2, |theta, out| (out[0], out[1]) = ((1.0 - theta[0]).powi(3), 2.0 - theta[1]));
    let told = why(triple);
    assert!(told.contains("singular"), "{told}");
    assert!(why(Given(root::MAX_DIM + 1, |_, out| out.fill(0.0))).contains("2001 components"));
    let sampled_only = sampled(Less(Regression::new(3, 12, 2), Left::Samples), Law::Iid);
    assert!(sampled_only.solution().unwrap_err().contains("only be sampled"));
}

#[test]
fn operators_that_can_only_be_sampled_are_legal_problems() {
    let make = |kind| Sampled::new(Less(Regression::new(9, 12, 2), Left::Samples), Sampling::default().with_kind(kind), Isa::best());
    let e = make(Law::Mean).err().expect("no means");
    assert!(e.key == "sampling.kind" && e.what.contains("only be sampled") && e.help.contains("iid"), "{e}");
    let field: Arc<dyn Field> = Arc::new(make(Law::Iid).unwrap());
    assert!(!field.has_mean() && field.mean_operator(&[0.0; 2]).is_none() && field.root().is_none());
    // It runs, with the samples of the whole problem.
    let whole = regression(9, Law::Iid);
    for method in [&FedLsa::new(0.05, 5) as &dyn MethodSettings, &Scafflsa::new(0.05, 5), &fedhsa(0.05, 5)] {
        let (run, twin) = (run_for(&field, method, 3, &[0.0; 2], 40), run_for(&whole, method, 3, &[0.0; 2], 40));
        assert_eq!(bits(run.theta()), bits(twin.theta()));
        let seen = Metrics::new(&field).observe(&run, Some(&[0.0; 2]), 1.0);
        assert!(seen.residual.is_none() && seen.mse.is_none() && seen.control_error.is_none() && seen.lyapunov.is_none());
        assert_eq!(seen.error, Some(linalg::norm_sq(run.theta())));
    }
    assert!(Local::new(&*field).unwrap_err().to_string().contains("only be sampled"));
}

#[test]
fn the_mean_operator_has_one_order_of_sums_whatever_the_threads() {
    let field = regression(131, Law::Iid);
    let theta = [0.3, 0.9];
    let each: Vec<Vec<f64>> = (0..131)
        .map(|c| {
            let mut g = vec![0.0; 2];
            field.mean(c, &theta, &mut g);
            g
        })
        .collect();
    let want = sums::sum(2, each.iter().zip(field.weights()).map(|(g, p)| Some((*p, &g[..]))));
    let roots: Vec<Vec<u64>> = [1, 2, 5]
        .map(|threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            assert_eq!(bits(&pool.install(|| field.mean_operator(&theta)).unwrap()), bits(&want));
            bits(pool.install(|| regression(131, Law::Iid)).root().unwrap())
        })
        .to_vec();
    assert!(roots.iter().all(|root| *root == roots[0]));
}

/// The Jacobian of a function at x by central differences of step h.
fn differences(x: &[f64], h: f64, f: impl Fn(&[f64]) -> Vec<f64>) -> Mat<f64> {
    let columns: Vec<Vec<f64>> = (0..x.len())
        .map(|j| {
            let at = |t: f64| f(&x.iter().enumerate().map(|(i, x)| if i == j { x + t } else { *x }).collect::<Vec<_>>());
            at(h).iter().zip(at(-h)).map(|(high, low)| (high - low) / (2.0 * h)).collect()
        })
        .collect();
    Mat::from_fn(columns[0].len(), x.len(), |i, j| columns[j][i])
}

#[test]
fn local_radii_are_those_of_the_engines_round_at_its_fixed_point() {
    // Differences with this step have errors of its square.
    const STEP: f64 = 1e-4;
    const CLOSE: f64 = 1e-6;
    let field = regression(4, Law::Mean);
    let root = field.root().unwrap();
    let local = Local::new(&*field).unwrap();
    assert_eq!(local.jacobians, RootSource::Newton);
    assert!(distance(&local.systems.root().unwrap(), root) < 1e-13, "the models have the root of the operators");
    let next = |method: &dyn MethodSettings, theta: &[f64]| run_for(&field, method, 0, theta, 1).theta().to_vec();
    for (step, steps, alpha) in [(0.3, 1, 1.0), (0.3, 7, 1.0), (0.9, 20, 0.7)] {
        let setting = RoundSetting::new(step, steps).unwrap().with_server_step(alpha).unwrap();
        let systems = &local.systems;
        let close = |name: &str, got: f64, round: &Mat<f64>| {
            let want = map::spectral_radius(round).unwrap();
            assert!((got - want).abs() < CLOSE, "{name}, {setting:?}: {got} {want}");
        };
        let method = fedhsa(step, steps as usize).with_global_step_size(alpha);
        close("fedhsa", global_memory_radius(systems, &setting).unwrap(), &differences(root, STEP, |theta| next(&method, theta)));
        if steps == 1 {
            let method = FedLsa::new(step, 1).with_global_step_size(alpha);
            close("fedlsa", plain_radius(systems, &setting).unwrap(), &differences(root, STEP, |theta| next(&method, theta)));
        }
        // SCAFFLSA's state: theta and the controls, whose sum is first put to 0.
        let method = Scafflsa::new(step, steps as usize).with_global_step_size(alpha);
        let metrics = Metrics::new(&field);
        let mut fixed = root.to_vec();
        (0..4).for_each(|c| fixed.extend(metrics.ideal_control(c).unwrap()));
        let round = |state: &[f64]| {
            let (theta, controls) = state.split_at(2);
            let mean: Vec<f64> = (0..2).map(|i| controls.chunks(2).map(|xi| xi[i] / 4.0).sum()).collect();
            let controls: Vec<Vec<f64>> = controls.chunks(2).map(|xi| vec![xi[0] - mean[0], xi[1] - mean[1]]).collect();
            let mut run = run_from(&field, &method, 0, theta);
            run.set_controls(&controls);
            run.step();
            [run.theta().to_vec(), run.controls().unwrap().concat()].concat()
        };
        assert!(distance(&round(&fixed), &fixed) < 1e-13, "a fixed point");
        close("scafflsa", control_variates_radius(systems, &setting).unwrap(), &differences(&fixed, STEP, round));
    }
    // Just below the local edge small deviations die out, above it they grow.
    let radius = |step: f64| plain_radius(&local.systems, &RoundSetting::new(step, 1)?);
    let edge = largest_stable_step(radius, 1.0, 1.0).unwrap();
    let start: Vec<f64> = root.iter().map(|x| x + 1e-3).collect();
    let after = |step: f64| distance(run_for(&field, &FedLsa::new(step, 1), 0, &start, 300).theta(), root);
    assert!(after(0.97 * edge) < 1e-5 && after(1.03 * edge) > 1e-2, "{} {}", after(0.97 * edge), after(1.03 * edge));
    // Differences of the mean operators do nearly as well, and say what they are.
    let bare = Local::new(&*sampled(Less(Regression::new(4, 12, 2), Left::Means), Law::Mean)).unwrap();
    assert_eq!(bare.jacobians, RootSource::Differences);
    let setting = RoundSetting::new(0.3, 7).unwrap();
    let radius = |of: &Local| global_memory_radius(&of.systems, &setting).unwrap();
    assert!((radius(&bare) - radius(&local)).abs() < 1e-8);
}

#[test]
fn ideal_controls_are_those_at_the_root() {
    let field = regression(9, Law::Mean);
    let (root, metrics) = (field.root().unwrap(), Metrics::new(&field));
    let ideal: Vec<Vec<f64>> = (0..9).map(|c| metrics.ideal_control(c).unwrap().to_vec()).collect();
    let mut size = 0.0;
    for (c, xi) in ideal.iter().enumerate() {
        let mut g = vec![0.0; 2];
        field.facts().objective().unwrap().gradient(c, root, &mut g);
        assert_eq!(bits(xi), bits(&g));
        size += linalg::norm_sq(xi) / 9.0;
    }
    // At the root with ideal controls nothing moves; with controls of 0 their error is the size of the ideal ones.
    let method = Scafflsa::new(0.1, 5);
    let mut run = run_from(&field, &method, 0, root);
    let cold = metrics.observe(&run, None, 0.25);
    assert!((cold.control_error.unwrap() - size).abs() < 1e-14 && (cold.lyapunov.unwrap() - 0.25 * size).abs() < 1e-14);
    run.set_controls(&ideal);
    assert_eq!(metrics.observe(&run, None, 0.25).lyapunov, Some(0.0));
    (0..50).for_each(|_| run.step());
    let still = metrics.observe(&run, None, 0.25);
    assert!(still.mse.unwrap() < 1e-28 && still.control_error.unwrap() < 1e-28, "{still:?}");
    // From zero both errors fall to rounding.
    let run = run_for(&field, &method, 0, &[0.0; 2], 800);
    let seen = metrics.observe(&run, None, 1.0);
    assert!(seen.control_error.unwrap() < 1e-26 && seen.lyapunov.unwrap() == seen.mse.unwrap() + seen.control_error.unwrap());
}

#[test]
fn noise_on_any_problem_adds_its_covariance_to_the_samples_own() {
    const AGENTS: usize = 400;
    let theta = [0.4, -0.3];
    for (law, radius) in [(Law::Iid, 0.0), (Law::Iid, 0.7), (Law::Markov, 0.7)] {
        let sampling = Sampling::default().with_kind(law);
        let noise = Noise::new(0.2, radius, 6);
        let noisy = Noisy::new(Regression::new(AGENTS, 12, 2), &noise, sampling).unwrap();
        let field: Arc<dyn Field> = Arc::new(Sampled::new(noisy, sampling, Isa::best()).unwrap());
        // The covariance of x alone, from the noise on an operator that is 0.
        let still = Given(2, |_, out| out.fill(0.0));
        let sigma = {
            let mut m = Mat::<f64>::zeros(2, 2);
            if radius > 0.0 {
                let mut s = stream(6, Purpose::Noise, 0, fedsa::random::ALL);
                let g = Mat::from_fn(2, 2, |_, _| s.normal());
                m = faer::Scale(radius / linalg::spectral_radius(&g).unwrap()) * g;
            }
            (0..400).fold(Mat::<f64>::zeros(2, 2), |sigma, _| &m * &sigma * m.transpose() + faer::Scale(0.04) * Mat::<f64>::identity(2, 2))
        };
        assert!(Noisy::new(still, &noise, sampling).unwrap().facts().moments(0).is_none(), "no law, no moments");
        let plain = regression(AGENTS, Law::Iid);
        let (mut means, mut squares) = (vec![Mean::default(); 2], vec![Mean::default(); 4]);
        let mut want = Mat::<f64>::zeros(2, 2);
        for c in 0..AGENTS {
            let own = field.facts().base().unwrap().law(c).unwrap().covariance(&theta);
            // One number an agent: the steps of one are not independent.
            let x = noise_of(&field, c, &theta, 200);
            for i in 0..2 {
                means[i].see(x.iter().map(|x| x[i]).sum::<f64>() / 200.0);
                for j in 0..2 {
                    // Agents differ: each is compared with its own covariance.
                    squares[2 * i + j].see(x.iter().map(|x| x[i] * x[j]).sum::<f64>() / 200.0 - own[(i, j)]);
                    want[(i, j)] += own[(i, j)] / AGENTS as f64;
                }
            }
        }
        let off: Vec<f64> = (means.iter().map(|m| m.off(0.0))).chain((0..4).map(|k| squares[k].off(sigma[(k / 2, k % 2)]))).collect();
        follows(&off).unwrap_or_else(|e| panic!("{law:?}, radius {radius}: {e}"));
        assert!(follows(&[squares[0].off(0.0), squares[3].off(0.0)]).is_err(), "the noise shows");
        // Means, root and what else is known are those of the problem itself.
        assert_eq!(bits(field.root().unwrap()), bits(plain.root().unwrap()));
        assert!(field.facts().objective().is_some() && field.facts().law(0).is_none());
    }
}

#[test]
fn noise_on_reward_processes_keeps_their_chains() {
    let garnet = Garnet::default().with_agents(2).with_states(12).with_features(3);
    let sampling = Sampling::default().with_kind(Law::Markov).with_start(ChainStart::State(2));
    let boxed = garnet.field(&NoFiles, sampling, Isa::best()).unwrap();
    let arrays = boxed.facts().export().unwrap();
    let (states, d) = (12, 3);
    let mrp = |c: usize| {
        let p = &arrays.get("P").unwrap().data()[c * states * states..(c + 1) * states * states];
        let r = &arrays.get("R").unwrap().data()[c * states * states..(c + 1) * states * states];
        fedsa_problems::td::mrp::Mrp::dense(states, p, |s, t| r[s * states + t], arrays.get("gamma").unwrap().data()[c])
    };
    let features = std::sync::Arc::new(fedsa_problems::td::td0::Features::new(d, arrays.get("Phi").unwrap().data()));
    let td = || {
        let kinds = (0..2).map(|c| mrp(c).transitions(features.clone()).unwrap()).collect();
        fedsa_problems::td::td0::Td::new(kinds, vec![0, 1], equal_weights(2), sampling).unwrap()
    };
    let silent = Noise::new(0.0, 0.5, 1);
    let (plain, noisy) = (
        Sampled::new(td(), sampling, Isa::best()).unwrap(),
        Sampled::new(Noisy::new(td(), &silent, sampling).unwrap(), sampling, Isa::best()).unwrap(),
    );
    assert_eq!((plain.chain_len(), noisy.chain_len()), (1, 1 + d));
    let mut chain = vec![7; 1 + d];
    noisy.start_chain(0, &mut stream(1, Purpose::Chain, 0, 0), &mut chain);
    assert_eq!(chain, [2, 0, 0, 0], "the process starts where it is told, the noise at 0");
    assert!(noisy.is_state(0, &chain) && !noisy.is_state(0, &[12, 0, 0, 0]) && !noisy.is_state(0, &[2, f64::NAN.to_bits(), 0, 0]));
    // Noise of size 0 leaves the moments, the mean local phase and the systems as they are.
    let (a, b) = (plain.facts().moments(1).unwrap(), noisy.facts().moments(1).unwrap());
    assert!(a.aa == b.aa && a.ab == b.ab && a.bb == b.bb && noisy.facts().stationary(0) == plain.facts().stationary(0));
    let loud = Noisy::new(td(), &Noise::new(0.3, 0.0, 1), sampling).unwrap();
    let off = loud.facts().moments(0).unwrap().bb - plain.facts().moments(0).unwrap().bb;
    assert!((off - faer::Scale(0.09) * Mat::<f64>::identity(d, d)).norm_max() < 1e-15);
    assert!(loud.facts().export().unwrap().get("P").is_ok() && loud.facts().export().unwrap().get("noise_std").is_ok());
}
