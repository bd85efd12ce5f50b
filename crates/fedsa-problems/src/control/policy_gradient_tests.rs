//! Numbers of PG1 and of the fork were computed apart from this code, with NumPy.

use super::*;
use fedsa::problem::arrays::Array;
use fedsa::problem::root::RootSource;
use fedsa::random::{Purpose, stream};

/// Three states, two actions, two agents; the first state has the law (1, 2, 3) / 6.
fn arrays() -> Arrays {
    let (mut p, mut r) = (Vec::new(), Vec::new());
    for (c, s, a) in (0..2usize).flat_map(|c| (0..3usize).flat_map(move |s| (0..2usize).map(move |a| (c, s, a)))) {
        let row: Vec<f64> = (0..3).map(|t| (1 + (2 * s + 3 * a + 4 * t + c * (s + 2 * t)) % 5) as f64).collect();
        let sum: f64 = row.iter().sum();
        p.extend(row.iter().map(|p| p / sum));
        r.push(((s + 2 * a + 2 * c) % 3) as f64 - (a * c) as f64 / 2.0);
    }
    let mut arrays = Arrays::new();
    arrays.insert("P", Array::new(vec![2, 3, 2, 3], p).unwrap());
    arrays.insert("R", Array::new(vec![2, 3, 2], r).unwrap());
    arrays.insert("gamma", Array::scalar(0.8));
    arrays.insert("rho", Array::new(vec![3], [1.0, 2.0, 3.0].map(|x| x / 6.0).to_vec()).unwrap());
    arrays
}

fn agents(Given { kinds, start, gamma }: Given, entropy: f64, length: Option<usize>) -> Agents {
    let returns = Returns { kinds, start, gamma, entropy, length };
    Agents { returns, weights: equal_weights(2), sampling: Sampling::default() }
}

fn pg1(entropy: f64, length: Option<usize>) -> Agents {
    agents(read(&arrays()).unwrap(), entropy, length)
}

fn assert_near(found: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len());
    assert!(found.iter().zip(expected).all(|(x, y)| (x - y).abs() <= tolerance), "{found:?} {expected:?}");
}

fn root(agents: &Agents) -> std::result::Result<Root, String> {
    agents.own_root(&Cancel::never()).unwrap()
}

fn mean_value(agents: &Agents, theta: &[f64]) -> f64 {
    (0..2).map(|kind| agents.returns.gains(kind, theta).value / 2.0).sum()
}

const THETA: [f64; 6] = [0.3, -0.2, 0.0, 0.5, -0.4, 0.1];

#[test]
fn returns_gradients_and_the_root_are_those_of_numpy() {
    let agents = pg1(0.0, None);
    let gains = agents.returns.gains(0, &THETA);
    assert_near(&[gains.value], &[4.05113776511822], 1e-13);
    let of_action_0: Vec<f64> = (0..3).map(|s| gains.policy[2 * s] * gains.gains[2 * s]).collect();
    assert_near(&of_action_0, &[-0.660914408204, 0.430691668798, 0.396633834635], 1e-12);
    let agents = pg1(0.5, None);
    let root = root(&agents).unwrap();
    let of_action_0: Vec<f64> = root.theta.iter().step_by(2).copied().collect();
    assert_near(&of_action_0, &[-0.452700510796, -0.183431461149, 1.253197923286], 1e-11);
    assert!(root.theta.chunks(2).all(|theta| (theta[0] + theta[1]).abs() < 1e-14), "{root:?}");
    assert_near(&[mean_value(&agents, &root.theta)], &[6.546106603648], 1e-12);
    assert_eq!(root.source, RootSource::Searched { starts: 8, found: 1, stable: 1 });
}

/// All objectives that the next tests differentiate and sample.
fn all() -> Vec<Agents> {
    let lengths = [None, Some(1), Some(2), Some(7)];
    let mut all: Vec<Agents> = lengths.into_iter().flat_map(|length| [0.0, 0.5].map(|entropy| pg1(entropy, length))).collect();
    all.push(agents(fork(), 0.2, None));
    all
}

/// The central differences of `of` by each component of theta.
fn differences(theta: &[f64], of: impl Fn(&[f64]) -> Vec<f64>) -> Vec<Vec<f64>> {
    let step = 1e-5;
    let at = |k: usize, step: f64| of(&theta.iter().enumerate().map(|(i, x)| if i == k { x + step } else { *x }).collect::<Vec<f64>>());
    (0..theta.len()).map(|k| at(k, step).iter().zip(at(k, -step)).map(|(above, below)| (above - below) / (2.0 * step)).collect()).collect()
}

#[test]
fn operators_and_jacobians_are_derivatives_of_returns() {
    for agents in all() {
        let theta = &THETA[..agents.dim()];
        for c in 0..2 {
            let mean = |theta: &[f64]| {
                let mut g = vec![0.0; theta.len()];
                assert!(agents.mean(c, theta, &mut g));
                g
            };
            let slopes = differences(theta, |theta| vec![-agents.loss(c, theta)]).concat();
            assert_near(&mean(theta), &slopes, 1e-8);
            let mut jacobian = Mat::zeros(theta.len(), theta.len());
            assert!(agents.jacobian(c, theta, &mut jacobian));
            for (k, slope) in differences(theta, mean).iter().enumerate() {
                assert_near(slope, jacobian.col_as_slice(k), 1e-8);
            }
            let (mut gradient, mut product) = (vec![0.0; theta.len()], vec![0.0; theta.len()]);
            assert_eq!(agents.loss_and_gradient(c, theta, &mut gradient), agents.loss(c, theta));
            agents.hessian_vector(c, theta, theta, &mut product);
            let expected: Vec<f64> = linalg::mat_vec(&jacobian, theta).iter().map(|x| -x).collect();
            assert_near(&product, &expected, 1e-14);
        }
    }
}

/// A long episode is nearly one without an end.
#[test]
fn short_episodes_have_another_objective() {
    let value = |length| mean_value(&pg1(0.5, length), &THETA);
    let (forever, long, short) = (value(None), value(Some(150)), value(Some(20)));
    assert!((forever - long).abs() < 1e-12 && (forever - short).abs() > 0.05, "{forever} {long} {short}");
}

/// The sum over all episodes of their probability times their sample.
#[test]
fn samples_have_the_mean_operator_as_their_mean_exactly() {
    let n = 3;
    let agents = pg1(0.5, Some(n));
    let environment = &agents.returns.kinds[1];
    let (mut z, mut g, mut mean, mut mass) = (Episode::default(), [0.0; 6], [0.0; 6], 0.0);
    agents.returns.policy(&THETA, &mut z.policy);
    for code in 0..6usize.pow(n as u32) {
        let pairs: Vec<usize> = (0..n).map(|t| code / 6usize.pow(t as u32) % 6).collect();
        let mut p = agents.returns.start[pairs[0] / 2];
        z.steps.clear();
        for (t, pair) in pairs.iter().enumerate() {
            p *= z.policy[*pair];
            if let Some(after) = pairs.get(t + 1) {
                p *= environment.moves(*pair).filter(|(next, _)| *next == after / 2).map(|(_, p)| p).sum::<f64>();
            }
            let reward = environment.rewards[*pair] - 0.5 * z.policy[*pair].ln();
            z.steps.push((*pair, 0.8f64.powi(t as i32) * reward));
        }
        agents.apply(1, &THETA, &z, &mut g);
        linalg::add_scaled(&mut mean, p, &g);
        mass += p;
    }
    let mut exact = [0.0; 6];
    agents.mean(1, &THETA, &mut exact);
    assert_near(&mean, &exact, 1e-14);
    assert_near(&[mass], &[1.0], 1e-14);
}

#[test]
fn episodes_are_drawn_with_their_probabilities() {
    const EPISODES: usize = 100_000;
    let agents = pg1(0.5, Some(6));
    for c in 0..2 {
        let mut stream = stream(7, Purpose::Sample, 0, c);
        let (mut z, mut g, mut sums, mut squares) = (Episode::default(), [0.0; 6], [0.0; 6], [0.0; 6]);
        for _ in 0..EPISODES {
            agents.sample(c, &THETA, &mut [], &mut stream, &mut z);
            agents.apply(c, &THETA, &z, &mut g);
            (0..6).for_each(|k| (sums[k], squares[k]) = (sums[k] + g[k], squares[k] + g[k] * g[k]));
        }
        let mut exact = [0.0; 6];
        agents.mean(c, &THETA, &mut exact);
        for k in 0..6 {
            let (mean, square) = (sums[k] / EPISODES as f64, squares[k] / EPISODES as f64);
            let se = ((square - mean * mean) / EPISODES as f64).sqrt();
            assert!((mean - exact[k]).abs() < 4.0 * se, "{c} {k}: {mean} {} {se}", exact[k]);
        }
    }
}

#[test]
fn the_best_common_policy_of_the_fork_is_mixed() {
    let agents = agents(fork(), 0.0, None);
    let root = root(&agents).unwrap();
    let mut policy = Vec::new();
    agents.returns.policy(&root.theta, &mut policy);
    assert_near(&[policy[0], mean_value(&agents, &root.theta)], &[0.441173638719682, 7.57148869802242], 1e-12);
    assert_near(&root.theta[2..], &[0.0, 0.0], 1e-9);
    let deterministic = |sign: f64| mean_value(&agents, &[sign * 50.0, -sign * 50.0, 0.0, 0.0]);
    assert_near(&[deterministic(1.0), deterministic(-1.0)], &[4.5, 45.0 / 11.0], 1e-12);
}

/// Without entropy the best policies of one environment are deterministic, at infinity.
#[test]
fn deterministic_policies_are_no_roots() {
    let Given { kinds, start, gamma } = read(&arrays()).unwrap();
    let one = agents(Given { kinds: kinds[..1].to_vec(), start, gamma }, 0.0, None);
    assert!(root(&one).unwrap_err().contains("deterministic"));
}

/// Little entropy makes nearly deterministic policies, of actions whose probabilities are below all rounding errors.
#[test]
fn roots_with_little_entropy_are_found() {
    let agents = pg1(0.02, None);
    let root = root(&agents).unwrap();
    assert!(root.theta.iter().any(|theta| *theta > 20.0), "{root:?}");
    let near = pg1(0.0, None);
    assert!(mean_value(&near, &root.theta) > mean_value(&near, &[0.0; 6]) + 1.0);
}

/// Agent 0 is paid for action 0 in two states, one after the other, and agent 1 for action 1: the mean return has two maxima, with a saddle
/// between them where both policies are uniform.
#[test]
fn the_best_of_several_maxima_is_taken() {
    let environment = |action: usize, paid: f64| {
        let to = |state: u32, is_right: bool| vec![(if is_right { state } else { 2 }, 1.0)];
        let moves = [to(1, action == 0), to(1, action == 1), to(2, true), to(2, true), to(2, true), to(2, true)];
        let rewards = (0..6).map(|pair| if pair == 2 + action { paid } else { 0.0 }).collect();
        Environment::new(2, &moves, rewards)
    };
    let with = |paid: [f64; 2]| {
        let kinds = vec![environment(0, paid[0]), environment(1, paid[1])];
        root(&agents(Given { kinds, start: vec![1.0, 0.0, 0.0], gamma: 0.9 }, 0.05, None)).unwrap()
    };
    assert_eq!(with([1.0, 1.0]).source, RootSource::Searched { starts: 8, found: 3, stable: 2 });
    for (paid, sign) in [([1.0, 0.8], 1.0), ([0.8, 1.0], -1.0)] {
        let Root { theta, source } = with(paid);
        assert!(sign * theta[0] > 1.0 && sign * theta[2] > 1.0, "{theta:?}");
        assert!(matches!(source, RootSource::Searched { stable: 2, .. }), "{source:?}");
    }
}

/// States that are never left may be several.
#[test]
fn processes_may_end_in_several_ways() {
    let moves = [vec![(1, 1.0)], vec![(2, 1.0)], vec![(1, 1.0)], vec![(1, 1.0)], vec![(2, 1.0)], vec![(2, 1.0)]];
    let kinds = vec![Environment::new(2, &moves, vec![0.0, 0.0, 1.0, 1.0, 2.0, 2.0])];
    let agents = agents(Given { kinds, start: vec![1.0, 0.0, 0.0], gamma: 0.5 }, 0.1, None);
    let theta = root(&agents).unwrap().theta;
    // The difference of the values of the actions is 1, and state 0 is visited once.
    assert_near(&theta[..2], &[-5.0, 5.0], 1e-10);
}

#[test]
fn settings_that_do_not_go_together_are_refused() {
    let refused = |settings: PolicyGradient| settings.check().unwrap_err().to_string();
    let settings = PolicyGradient::default();
    assert!(refused(settings.clone().with_entropy(-1.0)).contains("entropy"));
    assert!(refused(settings.clone().with_length(0)).contains("length"));
    assert!(refused(settings.clone().with_fork(true).with_states(4)).contains("fork"));
    assert!(refused(settings.clone().with_fork(true).with_path("a.npz".to_string())).contains("fork"));
    assert!(refused(settings.clone().with_path("a.npz".to_string()).with_gamma(0.5)).contains("path"));
    settings.clone().with_fork(true).with_agents(2).with_entropy(0.0).with_length(20).check().unwrap();
    let field = |settings: &PolicyGradient, law| {
        let built = settings.field(&crate::NoFiles, Sampling::default().with_kind(law), Isa::best());
        built.map(|field| field.dim()).map_err(|e| e.to_string())
    };
    assert!(field(&settings, Law::Iid).unwrap_err().contains("length"));
    assert!(field(&settings.clone().with_length(5), Law::Markov).unwrap_err().contains("episodes"));
    assert_eq!(field(&settings, Law::Mean), Ok(20));
    assert_eq!(field(&settings.with_length(5), Law::Iid), Ok(20));
}
