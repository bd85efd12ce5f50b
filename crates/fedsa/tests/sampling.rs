//! Samples have the laws that the problems state, and problems the structure they promise.

use std::sync::Arc;

use crate::common::{Mean, bits, field, follows, noise_of};
use fedsa::error::{Error, Result};
use fedsa::kernel::{Isa, LANES, Lanes};
use fedsa::linalg::{self, Mat};
use fedsa::problem::Field;
use fedsa::problem::arrays::{Array, Arrays};
use fedsa::random::{Purpose, stream};
use fedsa::sampling::{ChainStart, Law, Sampling};
use fedsa_problems::kernel::td::{Column, alias, column_bits};
use fedsa_problems::linear::affine::LinearSystems;
use fedsa_problems::linear::file::ArrayFile;
use fedsa_problems::logs::log::Log;
use fedsa_problems::logs::log_form::LogForm;
use fedsa_problems::logs::source::LogSource;
use fedsa_problems::scope::Scope;
use fedsa_problems::td::garnet::{Garnet, Heterogeneity, Policy};
use fedsa_problems::td::random_mrp::{Discount, FeatureLaw, KernelLaw, RandomMrp};
use fedsa_problems::{Files, ProblemSettings};

// Alias tables.

/// The exact number of the 2^64 draws that give each outcome.
fn draws_of(columns: &[Column], column_bits: u32, outcomes: usize) -> Vec<u128> {
    let draws_per_column = 1u128 << (64 - column_bits);
    let mut draws = vec![0; outcomes];
    for (i, column) in columns.iter().enumerate() {
        // A column's draws are i 2^(64 - bits) and up; those below the threshold give its first outcome.
        let below = u128::from(column.threshold).saturating_sub(i as u128 * draws_per_column).min(draws_per_column);
        draws[column.outcomes[0] as usize] += below;
        draws[column.outcomes[1] as usize] += draws_per_column - below;
    }
    draws
}

fn assert_alias(p: &[f64]) {
    let outcomes: Vec<u32> = (0..p.len() as u32).collect();
    let bits = column_bits(p.len());
    let mut columns = Vec::new();
    alias(p, &outcomes, bits, &mut columns);
    let draws = draws_of(&columns, bits, p.len());
    assert_eq!(draws.iter().sum::<u128>(), 1 << 64);
    let total: f64 = p.iter().sum();
    // A plain sum of n numbers is off by at most n 2^-53 of it, and the last column bears that.
    let tolerance = (p.len() as f64 * 2f64.powi(-53)).max(2f64.powi(-50));
    for (i, (p, draws)) in p.iter().zip(&draws).enumerate() {
        let got = *draws as f64 * 2f64.powi(-64);
        assert!((got - p / total).abs() <= tolerance, "outcome {i}: {got} for {}", p / total);
        assert!(*p > 0.0 || *draws == 0, "outcome {i} of probability 0 is drawn");
    }
}

#[test]
fn alias_tables_have_the_wanted_probabilities() {
    for p in [vec![1.0], vec![0.0, 1.0], vec![1.0, 0.0, 0.0], vec![0.1; 10], vec![1e-300, 1.0, 0.0, 1e-20], vec![0.3, 0.7]] {
        assert_alias(&p);
    }
    let mut s = stream(1, Purpose::Fresh, 0, 0);
    for n in [2, 3, 5, 8, 31, 32, 33, 257, 1000, 4097] {
        for sharpness in [0.0, 1.0, 6.0, 40.0] {
            // Uniform to the power: from all alike to a few that hold nearly all; a fifth have none.
            let p: Vec<f64> = (0..n).map(|i| if i % 5 == 3 { 0.0 } else { s.uniform().powf(sharpness) }).collect();
            let total: f64 = p.iter().sum();
            assert_alias(&p.iter().map(|p| p / total).collect::<Vec<_>>());
        }
    }
}

// Draws of a chain that is written out.

/// One problem's arrays.
struct Given(Arrays);

impl Files for Given {
    fn arrays(&self, _: &str) -> Result<Arrays> {
        Ok(self.0.clone())
    }
    fn logs(&self, _: &[String], _: &LogForm) -> Result<Vec<Box<dyn LogSource>>> {
        Err(Error::new("path", "no logs here", "arrays"))
    }
}

const STATES: usize = 5;
/// State 4 is transient; the others form a cycle with chords.
const P: [[f64; STATES]; STATES] = [
    [0.0, 0.75, 0.25, 0.0, 0.0],
    [0.1, 0.2, 0.7, 0.0, 0.0],
    [0.0, 0.0, 0.5, 0.5, 0.0],
    [0.9, 0.0, 0.1, 0.0, 0.0],
    [0.5, 0.0, 0.0, 0.0, 0.5],
];

/// One agent on [`P`] whose reward tells the transition and whose features tell the state.
fn told_apart(sampling: Sampling) -> Arc<dyn Field> {
    let mut arrays = Arrays::new();
    let mut put = |name: &str, shape: &[usize], data: Vec<f64>| arrays.insert(name, Array::new(shape.to_vec(), data).unwrap());
    put("P", &[1, STATES, STATES], P.concat());
    put("R", &[1, STATES, STATES], (1..=STATES * STATES).map(|r| r as f64).collect());
    // State 4 is never seen: it has the features of state 0, so that the system is regular.
    let phi = |s: usize, i: usize| f64::from(u8::from(s == i || (s == 4 && i == 0)));
    put("Phi", &[STATES, STATES - 1], (0..STATES).flat_map(|s| (0..STATES - 1).map(move |i| phi(s, i))).collect());
    put("gamma", &[], vec![0.5]);
    let settings = ArrayFile::new(String::new());
    settings.field(&Given(arrays), sampling, Isa::best()).unwrap()
}

/// The transitions (s, s') that `steps` steps of eight agents draw, agent by agent.
fn transitions(field: &Arc<dyn Field>, steps: usize) -> [Vec<(usize, usize)>; LANES] {
    let mut lanes = Lanes::new(field.dim(), field.chain_len());
    lanes.len = LANES;
    for l in 0..LANES {
        lanes.set_stream(l, stream(9, Purpose::Sample, 0, l));
        let words = l * lanes.chain_len..(l + 1) * lanes.chain_len;
        field.start_chain(0, &mut stream(9, Purpose::Chain, 0, l), &mut lanes.chains[words]);
    }
    let mut drawn: [Vec<(usize, usize)>; LANES] = Default::default();
    for _ in 0..steps {
        // From theta = 0, a step of size 1 leaves r(s, s') phi(s).
        lanes.theta.fill(Default::default());
        field.local_phase(std::slice::from_mut(&mut lanes), &[1.0]);
        for (l, drawn) in drawn.iter_mut().enumerate() {
            let reward: f64 = lanes.theta(l).iter().sum();
            let index = reward as usize - 1;
            drawn.push((index / STATES, index % STATES));
        }
    }
    drawn
}

fn stationary_of(p: &[[f64; STATES]; STATES]) -> [f64; STATES] {
    let mut law = [1.0 / STATES as f64; STATES];
    for _ in 0..2000 {
        law = std::array::from_fn(|t| (0..STATES).map(|s| law[s] * p[s][t]).sum());
    }
    law
}

#[test]
fn draws_have_the_stationary_law_and_the_transition_probabilities() {
    let law = stationary_of(&P);
    for kind in [Law::Iid, Law::Markov] {
        let field = told_apart(Sampling::default().with_kind(kind));
        let stated = field.facts().stationary(0).unwrap();
        assert!(law.iter().zip(stated).all(|(x, y)| (x - y).abs() < 1e-14), "{stated:?} {law:?}");
        let drawn = transitions(&field, 20_000);
        let mut off = Vec::new();
        // Transitions given their state are independent draws under both laws.
        for (s, row) in P.iter().enumerate() {
            for (t, p) in row.iter().enumerate() {
                let mut share = Mean::default();
                let leaving = drawn.iter().flatten().filter(|(from, _)| *from == s);
                leaving.for_each(|(_, to)| share.see(f64::from(u8::from(*to == t))));
                if law[s] > 0.0 && *p > 0.0 {
                    off.push(share.off(*p));
                } else {
                    assert!(law[s] == 0.0 || share.value() == 0.0, "{s} to {t} is impossible");
                }
            }
        }
        // Visits: independent draws, or a chain, whose eight agents are independent of each other.
        // Batches of 500 steps, many mixing times, stand for independent numbers.
        for (s, share) in law.iter().enumerate().filter(|(_, share)| **share > 0.0) {
            let mut visits = Mean::default();
            for batch in drawn.iter().flat_map(|agent| agent.chunks(500)) {
                visits.see(batch.iter().filter(|(from, _)| *from == s).count() as f64 / 500.0);
            }
            off.push(visits.off(*share));
        }
        assert!(drawn.iter().flatten().all(|(from, _)| *from != 4), "the transient state is never seen");
        follows(&off).unwrap_or_else(|e| panic!("{kind:?}: {e}"));
        // A chain goes on from where it went; independent draws do so by chance.
        let pairs = || drawn.iter().flat_map(|agent| agent.windows(2));
        match kind {
            Law::Markov => assert!(pairs().all(|w| w[0].1 == w[1].0)),
            _ => {
                let mut follow = Mean::default();
                pairs().for_each(|w| follow.see(f64::from(u8::from(w[0].1 == w[1].0))));
                follows(&[follow.off(law.iter().map(|p| p * p).sum())]).unwrap();
            }
        }
    }
}

#[test]
fn chains_start_where_they_are_told() {
    let start = |start| transitions(&told_apart(Sampling::default().with_kind(Law::Markov).with_batch(1).with_start(start)), 1);
    for s in [0, 2, 4] {
        assert!(start(ChainStart::State(s)).iter().all(|agent| agent[0].0 == s as usize));
    }
    let field = told_apart(Sampling::default().with_kind(Law::Markov));
    let mut at = [Mean::default(); STATES];
    for seed in 0..20_000 {
        let mut chain = [0];
        field.start_chain(0, &mut stream(seed, Purpose::Chain, 0, 0), &mut chain);
        at.iter_mut().enumerate().for_each(|(s, at)| at.see(f64::from(u8::from(chain[0] == s as u64))));
    }
    let law = stationary_of(&P);
    follows(&(0..4).map(|s| at[s].off(law[s])).collect::<Vec<_>>()).unwrap();
    assert_eq!(at[4].value(), 0.0);
}

#[test]
fn logs_are_replayed_in_order_or_drawn_at_random() {
    // One feature, always 1: from theta = 0 a step of size 1 leaves the reward, which tells the transition.
    let n = 11;
    let log = Log {
        name: "agent".into(),
        columns: vec!["x".into()],
        states: vec![1.0; n],
        rewards: (0..n).map(|i| i as f64).collect(),
        next: vec![1.0; n],
        done: (0..n).map(|i| i == 4).collect(),
        truncated: None,
        breaks: None,
        actions: None,
        episode: None,
        ratio: None,
    };
    let seen = |law, steps| -> Vec<usize> {
        let field = crate::common::logs(vec![log.clone()], law);
        let mut lanes = Lanes::new(1, field.chain_len());
        lanes.len = 1;
        lanes.set_stream(0, stream(2, Purpose::Sample, 0, 0));
        field.start_chain(0, &mut stream(2, Purpose::Chain, 0, 0), &mut lanes.chains[..field.chain_len()]);
        let step = |_| {
            lanes.theta.fill(Default::default());
            field.local_phase(std::slice::from_mut(&mut lanes), &[1.0]);
            lanes.theta(0)[0] as usize
        };
        (0..steps).map(step).collect()
    };
    // In order, the first after the last.
    assert!(seen(Law::Markov, 40).windows(2).all(|w| w[1] == (w[0] + 1) % n));
    // With replacement, all alike.
    let drawn = seen(Law::Iid, 50_000);
    let share = |i: usize| {
        let mut share = Mean::default();
        drawn.iter().for_each(|z| share.see(f64::from(u8::from(*z == i))));
        share.off(1.0 / n as f64)
    };
    follows(&(0..n).map(share).collect::<Vec<_>>()).unwrap();
    // Nothing follows a transition that is done: A = mean(1 - gamma [not done]).
    let field = crate::common::logs(vec![log], Law::Mean);
    let system = field.systems().unwrap().of(0);
    assert!((system.a[(0, 0)] - (1.0 - 0.5 * 10.0 / 11.0)).abs() < 1e-15 && (system.b[0] - 5.0).abs() < 1e-14);
}

// Generated problems.

/// One agent's kernel, expected rewards r(s, s') and features, from the problem's own export.
struct Exported {
    states: usize,
    dim: usize,
    p: Vec<f64>,
    r: Vec<f64>,
    /// S x d of each agent, or once for all.
    phi: Vec<f64>,
    gamma: Vec<f64>,
}

impl Exported {
    fn of(settings: &dyn ProblemSettings) -> Self {
        let field = field(settings, Law::Iid);
        let arrays = field.facts().export().unwrap();
        let data = |name| arrays.get(name).unwrap().data().to_vec();
        let states = arrays.get("P").unwrap().shape()[1];
        Self { states, dim: field.dim(), p: data("P"), r: data("R"), phi: data("Phi"), gamma: data("gamma") }
    }

    /// Row `s` of agent `c`'s kernel.
    fn row(&self, c: usize, s: usize) -> &[f64] {
        &self.p[(c * self.states + s) * self.states..][..self.states]
    }

    /// The reward of state `s`, the same for all its successors.
    fn reward(&self, c: usize, s: usize) -> f64 {
        let next = self.row(c, s).iter().position(|p| *p > 0.0).unwrap();
        self.r[(c * self.states + s) * self.states + next]
    }

    /// The states that every state reaches: the closed class, if there is only one.
    fn closed_class(&self, c: usize) -> Vec<usize> {
        let n = self.states;
        let mut reach = vec![false; n * n];
        (0..n).for_each(|s| (0..n).for_each(|t| reach[s * n + t] = s == t || self.row(c, s)[t] > 0.0));
        for via in 0..n {
            for s in 0..n {
                for t in 0..n {
                    reach[s * n + t] |= reach[s * n + via] && reach[via * n + t];
                }
            }
        }
        (0..n).filter(|t| (0..n).all(|s| reach[s * n + t])).collect()
    }
}

fn garnet(agents: usize, heterogeneity: Heterogeneity) -> Garnet {
    Garnet::default().with_agents(agents).with_heterogeneity(heterogeneity)
}

#[test]
fn garnets_branch_as_they_say() {
    for seed in 0..20 {
        let one = Exported::of(&garnet(3, Heterogeneity::Independent).with_seed(seed));
        let uniform = Exported::of(&garnet(3, Heterogeneity::Independent).with_seed(seed).with_policy(Policy::Uniform));
        for c in 0..3 {
            for s in 0..30 {
                // One action: two successors of probability 1/2. All actions alike: multiples of 1/4.
                let successors: Vec<f64> = one.row(c, s).iter().copied().filter(|p| *p > 0.0).collect();
                assert_eq!(successors, [0.5, 0.5]);
                let quarters: Vec<f64> = uniform.row(c, s).iter().map(|p| p * 4.0).collect();
                assert!(quarters.iter().all(|q| q.fract() == 0.0) && quarters.iter().sum::<f64>() == 4.0);
            }
            assert!(one.closed_class(c).len() >= 16 && uniform.closed_class(c).len() >= 16);
        }
        // Both policies face the same kernel: what one action does, all do with a share.
        assert!((0..30).any(|s| uniform.row(0, s).iter().filter(|p| **p > 0.0).count() > 2));
        // Agents of their own kernels.
        assert!((0..30).any(|s| one.row(0, s) != one.row(1, s)));
        for row in one.phi.chunks(one.dim) {
            assert!(row.iter().all(|x| *x > 0.0) && (row.iter().sum::<f64>() - 1.0).abs() < 1e-15);
        }
        let law = field(&garnet(3, Heterogeneity::Independent).with_seed(seed), Law::Iid);
        for c in 0..3 {
            let law = law.facts().stationary(c).unwrap();
            let visited: Vec<usize> = (0..30).filter(|s| law[*s] > 0.0).collect();
            assert_eq!(visited, one.closed_class(c));
            let next: Vec<f64> = (0..30).map(|t| (0..30).map(|s| law[s] * one.row(c, s)[t]).sum()).collect();
            assert!(law.iter().zip(&next).all(|(x, y)| (x - y).abs() < 1e-15));
        }
    }
}

#[test]
fn a_larger_min_class_is_kept() {
    let garnet = garnet(40, Heterogeneity::Independent).with_min_class(25);
    let exported = Exported::of(&garnet);
    assert!((0..40).all(|c| exported.closed_class(c).len() >= 25));
}

#[test]
fn perturbations_stay_within_their_range() {
    let base = Exported::of(&garnet(1, Heterogeneity::Low).with_perturbation(0.0).with_reward_perturbation(0.0));
    for (heterogeneity, eps, reward_eps) in [(Heterogeneity::Identical, 0.0002, 0.0), (Heterogeneity::Low, 0.02, 0.02)] {
        let agents = Exported::of(&garnet(20, heterogeneity));
        // p = (1/2 + u) / (1 + u + u'): between (1/2) / (1 + eps) and (1/2 + eps) / (1 + eps).
        let (low, high) = (0.5 / (1.0 + eps), (0.5 + eps) / (1.0 + eps));
        let (mut least, mut most) = (1.0f64, 0.0f64);
        for (c, s) in (0..20).flat_map(|c| (0..30).map(move |s| (c, s))) {
            for (p, q) in agents.row(c, s).iter().zip(base.row(0, s)) {
                assert_eq!(*p > 0.0, *q > 0.0, "the same successors");
                if *p > 0.0 {
                    assert!((low..=high).contains(p), "{p}");
                    (least, most) = (least.min(*p), most.max(*p));
                }
            }
            let more = agents.reward(c, s) - base.reward(0, s);
            assert!(more >= 0.0 && more <= reward_eps, "{more}");
        }
        // 1200 draws fill the range but for its ends.
        assert!(most - least > 0.8 * (high - low), "{least} {most}");
    }
}

#[test]
fn every_action_is_perturbed_and_normalised_by_itself() {
    // Both actions' successors, each pair within the range that a pair has by itself.
    let eps = 0.2;
    let garnet = garnet(1, Heterogeneity::Low).with_perturbation(eps).with_policy(Policy::Uniform).with_states(400).with_min_class(2);
    let exported = Exported::of(&garnet);
    let (low, high) = (0.5 * 0.5 / (1.0 + eps), 0.5 * (0.5 + eps) / (1.0 + eps));
    for s in 0..400 {
        let successors: Vec<f64> = exported.row(0, s).iter().copied().filter(|p| *p > 0.0).collect();
        if successors.len() == 4 {
            assert!(successors.iter().all(|p| (low..=high).contains(p)), "{successors:?}");
            let pairs = [(0, 1), (0, 2), (0, 3)].iter().any(|(i, j)| (successors[*i] + successors[*j] - 0.5).abs() < 1e-15);
            assert!(pairs, "an action keeps its half: {successors:?}");
        }
    }
}

#[test]
fn two_kernels_alternate_with_opposite_rewards() {
    let agents = Exported::of(&garnet(6, Heterogeneity::TwoKernels));
    let support = |c: usize| -> Vec<bool> { (0..30).flat_map(|s| agents.row(c, s).iter().map(|p| *p > 0.0).collect::<Vec<_>>()).collect() };
    for c in 2..6 {
        assert_eq!(support(c), support(c % 2), "the kernel of agent {}", c % 2);
        assert_ne!(support(c), support(1 - c % 2));
        assert_ne!(agents.row(c, 0), agents.row(c % 2, 0), "perturbed by itself");
    }
    for (c, s) in (0..6).flat_map(|c| (0..30).map(move |s| (c, s))) {
        let sign = if c % 2 == 0 { 1.0 } else { -1.0 };
        assert_eq!(agents.reward(c, s), sign * agents.reward(0, s));
    }
}

/// Agents that share nothing: chain, rewards, features and discount are each agent's own.
fn all_of_their_own(agents: usize) -> RandomMrp {
    RandomMrp::default()
        .with_agents(agents)
        .with_states(20)
        .with_features(4)
        .with_kernel(Scope::PerAgent)
        .with_rewards(Scope::PerAgent)
        .with_feature_scope(Scope::PerAgent)
        .with_gamma(Discount::Uniform([0.5, 0.99]))
}

#[test]
fn agents_of_a_small_federation_are_the_first_of_a_larger_one() {
    type Pool = Box<dyn Fn(usize) -> Box<dyn ProblemSettings>>;
    let pools: [Pool; 6] = [
        Box::new(|n| Box::new(garnet(n, Heterogeneity::Identical))),
        Box::new(|n| Box::new(garnet(n, Heterogeneity::Low))),
        Box::new(|n| Box::new(garnet(n, Heterogeneity::TwoKernels))),
        Box::new(|n| Box::new(garnet(n, Heterogeneity::Independent))),
        Box::new(move |n| Box::new(all_of_their_own(n))),
        Box::new(|n| Box::new(LinearSystems::default().with_agents(n).with_dim(3))),
    ];
    for pool in pools {
        let (few, many) = (field(&*pool(3), Law::Iid), field(&*pool(11), Law::Iid));
        for c in 0..3 {
            let numbers = |f: &Arc<dyn Field>| {
                let system = f.systems().unwrap().of(c);
                (bits(&linalg::to_rows(&system.a)), bits(&system.b))
            };
            assert_eq!(numbers(&few), numbers(&many), "agent {c}");
        }
        if let (Some(few), Some(many)) = (few.facts().export(), many.facts().export()) {
            for name in ["P", "R", "Phi", "gamma"] {
                let (few, many) = (few.get(name).unwrap().data(), many.get(name).unwrap().data());
                assert_eq!(bits(few), bits(&many[..few.len()]), "{name}");
            }
        }
    }
}

#[test]
fn random_mrps_share_what_they_are_told_to() {
    for (kernel, rewards, feature_scope) in
        [(Scope::Shared, Scope::PerAgent, Scope::Shared), (Scope::PerAgent, Scope::Shared, Scope::PerAgent)]
    {
        let gamma = Discount::Uniform([0.5, 0.99]);
        let settings = RandomMrp::default()
            .with_agents(3)
            .with_kernel(kernel)
            .with_rewards(rewards)
            .with_feature_scope(feature_scope)
            .with_gamma(gamma)
            .with_reward_range([2.0, 3.0]);
        let mrp = Exported::of(&settings);
        let n = mrp.states;
        assert_eq!(mrp.row(0, 0) == mrp.row(1, 0), kernel == Scope::Shared);
        assert_eq!(mrp.reward(0, 0) == mrp.reward(1, 0), rewards == Scope::Shared);
        assert_eq!(mrp.phi.len() == n * mrp.dim, feature_scope == Scope::Shared);
        assert!(mrp.gamma.iter().all(|g| (0.5..0.99).contains(g)) && mrp.gamma[0] != mrp.gamma[1]);
        for (c, s) in (0..3).flat_map(|c| (0..n).map(move |s| (c, s))) {
            assert!(mrp.row(c, s).iter().all(|p| *p > 0.0) && (mrp.row(c, s).iter().sum::<f64>() - 1.0).abs() < 1e-14);
            assert!((2.0..3.0).contains(&mrp.reward(c, s)));
        }
    }
}

#[test]
fn kernels_have_the_rank_and_the_law_that_they_are_told_to() {
    let of = |kernel_law, kernel_rank| {
        let settings =
            RandomMrp::default().with_agents(1).with_states(40).with_features(3).with_kernel_law(kernel_law).with_kernel_rank(kernel_rank);
        let mrp = Exported::of(&settings);
        linalg::from_rows(40, 40, &(0..40).flat_map(|s| mrp.row(0, s).to_vec()).collect::<Vec<_>>())
    };
    for law in [KernelLaw::Uniform, KernelLaw::Triangular] {
        for rank in [1, 7, 39] {
            let singular = of(law, Some(rank)).singular_values().unwrap();
            assert!(singular[rank - 1] > 1e-6 && singular[rank] < 1e-14, "{law:?}, rank {rank}: {singular:?}");
        }
        assert!(of(law, None).singular_values().unwrap()[39] > 1e-6, "{law:?}: full rank");
    }
    // Entries over their mean 1/n: the variance of U / E U is 1/3, of a sum of two 1/6. Row sums of 40 correlate entries by 1/40.
    for (law, variance) in [(KernelLaw::Uniform, 1.0 / 3.0), (KernelLaw::Triangular, 1.0 / 6.0)] {
        let p = of(law, None);
        let mut squares = Mean::default();
        (0..40).for_each(|i| (0..40).for_each(|j| squares.see((40.0 * p[(i, j)] - 1.0).powi(2))));
        assert!((squares.value() - variance).abs() < 4.0 * squares.error() + variance / 20.0, "{law:?}: {}", squares.value());
    }
}

#[test]
fn copies_of_base_agents_are_the_same_problem_for_every_number_of_agents() {
    let settings = |agents, base_agents| all_of_their_own(agents).with_base_agents(base_agents);
    let (base, copies) = (field(&settings(3, None), Law::Markov), field(&settings(12, Some(3)), Law::Markov));
    let (few, many) = (base.systems().unwrap(), copies.systems().unwrap());
    assert!(many.kinds.len() == 3 && copies.agents() == 12, "copies share their tables");
    for c in 0..12 {
        let numbers = |system: &fedsa::problem::systems::System| (bits(&linalg::to_rows(&system.a)), bits(&system.b));
        assert_eq!(numbers(many.of(c)), numbers(few.of(c % 3)), "agent {c}");
    }
    assert!(linalg::distance_sq(base.root().unwrap(), copies.root().unwrap()).sqrt() < 1e-12);
    // Each copy has a trajectory of its own, the first ones those of the base agents.
    let draws = |field: &Arc<dyn Field>, c: usize| noise_of(field, c, &[0.5; 4], 20);
    assert_eq!(draws(&base, 2), draws(&copies, 2));
    assert_ne!(draws(&copies, 2), draws(&copies, 5));
    // All that is shared makes one kind, copies or not.
    assert_eq!(field(&RandomMrp::default().with_agents(6).with_base_agents(3), Law::Iid).systems().unwrap().kinds.len(), 1);
}

#[test]
fn orthonormal_features_are() {
    let mrp = Exported::of(&RandomMrp::default().with_feature_law(FeatureLaw::Orthonormal));
    let phi = linalg::from_rows(mrp.states, mrp.dim, &mrp.phi);
    let gram = phi.transpose() * &phi - Mat::<f64>::identity(mrp.dim, mrp.dim);
    assert!(gram.norm_max() < 1e-14, "{}", gram.norm_max());
}

#[test]
fn td_systems_are_their_definition() {
    // Abar = Phi^T D (I - gamma P) Phi, bbar = Phi^T D r, from what the problem exports.
    for settings in [Box::new(garnet(4, Heterogeneity::TwoKernels)) as Box<dyn ProblemSettings>, Box::new(RandomMrp::default())] {
        let (field, mrp) = (field(&*settings, Law::Iid), Exported::of(&*settings));
        let n = mrp.states;
        let phi = linalg::from_rows(n, mrp.dim, &mrp.phi);
        for c in 0..4 {
            let system = field.systems().unwrap().of(c);
            let law = field.facts().stationary(field.systems().unwrap().kind_of[c] as usize).unwrap();
            let drop = Mat::from_fn(n, n, |s, t| law[s] * (f64::from(u8::from(s == t)) - mrp.gamma[c] * mrp.row(c, s)[t]));
            let reward = Mat::from_fn(n, 1, |s, _| law[s] * mrp.reward(c, s));
            assert!((phi.transpose() * drop * &phi - &system.a).norm_max() < 1e-14);
            assert!((phi.transpose() * reward - linalg::column(&system.b)).norm_max() < 1e-14);
        }
    }
}
