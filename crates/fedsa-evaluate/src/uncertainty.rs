//! Standard errors of LSTD weights and values, by batch means along trajectories.
//!
//! The weights solve `sum_c p_c gbar_c(theta) = 0` with `gbar_c` the mean over agent c's log of `g_{c,t}(theta) = z_t delta_t`, with
//! `delta_t = r_t + gamma phi'_t^T theta - phi_t^T theta`. The trace `z_t = rho_t (gamma lambda z_{t-1} + phi_t)` restarts at the start
//! of an episode ([`fedsa_problems::td::traces`]). Their covariance is the sandwich `A^-1 S A^-T`, `A = sum_c p_c A_c`, with `S` the
//! covariance of `sum_c p_c gbar_c`. Consecutive terms are dependent. So each log of n transitions is cut into about `sqrt(n)` equal
//! batches, at most [`MOST`], whose means are nearly independent, and `S = sum_c p_c^2 B/(B - 1) sum_b (n_b/n)^2 (gbar_cb -
//! gbar_c)(gbar_cb - gbar_c)'`.
//!
//! Agents are taken as given: their differences are not a source of error. Errors are too small if batches are shorter than the memory
//! of the chain and of the traces.

use faer::Mat;
use fedsa::error::Result;
use fedsa::kernel::{Isa, products};
use fedsa::linalg;
use fedsa::parallel;
use fedsa_problems::features::FeatureMap;
use fedsa_problems::logs::block_features::BlockFeatures;
use fedsa_problems::logs::log_means::TraceRule;
use fedsa_problems::logs::source::{LogSource, read_checked};
use fedsa_problems::logs::survey::Surveyed;

/// The fewest transitions of an agent for which there are standard errors.
pub const FEWEST: usize = 16;

/// The largest number of batches of an agent, which bounds the memory of [`BatchMeans`].
pub const MOST: usize = 1024;

/// The covariance of weights.
#[derive(Debug, Clone, PartialEq)]
pub struct Covariance {
    /// d x d, row by row. It is 0 in directions in which A is singular, as for the least-norm solution.
    pub rows: Vec<f64>,
    /// An orthonormal basis of these directions, which the data do not determine; d numbers each, one after the other.
    pub null: Vec<f64>,
}

impl Covariance {
    /// The standard errors of the weights: the root of the diagonal.
    pub fn standard_errors(&self) -> Vec<f64> {
        let d = self.rows.len().isqrt();
        (0..d).map(|i| self.rows[i * d + i].max(0.0).sqrt()).collect()
    }

    /// The standard error of a value, `sqrt(phi' Cov phi)`; NaN if the data do not determine a part of the features.
    pub fn value_error(&self, phi: &[f64]) -> f64 {
        /// The share of the features' norm that is rounding.
        const NOTHING: f64 = 1e-7;
        let size = linalg::norm_sq(phi).sqrt();
        let unknown = |direction: &[f64]| direction.iter().zip(phi).map(|(n, x)| n * x).sum::<f64>().abs() > NOTHING * size;
        if self.null.chunks_exact(phi.len()).any(unknown) {
            return f64::NAN;
        }
        let rows = self.rows.chunks_exact(phi.len()).zip(phi).filter(|(_, x)| **x != 0.0);
        rows.map(|(row, x)| x * row.iter().zip(phi).map(|(c, y)| c * y).sum::<f64>()).sum::<f64>().max(0.0).sqrt()
    }
}

/// The covariance of the weights `theta` fitted to `logs` under `rule`; `a` is the mean matrix A. `None` if an agent has fewer than
/// [`FEWEST`] transitions, or weights are not finite. Reads the logs once, in batches.
///
/// # Errors
/// When a log cannot be read.
pub fn covariance(logs: &Surveyed, map: &FeatureMap, rule: TraceRule, a: &Mat<f64>, theta: &[f64]) -> Result<Option<Covariance>> {
    let total = logs.transitions();
    let agents = parallel::try_map_shared(logs.sources.len(), |c| {
        let mut means = BatchMeans::new(theta, logs.facts[c].transitions, rule);
        means.read(&*logs.sources[c], BlockFeatures::new(map, logs.sources.len())).map(|()| means.spread(total))
    });
    let sum = agents?.into_iter().reduce(|sum, agent| Some(sum? + agent?)).flatten();
    Ok(sum.map(|sum| sandwich(a, &sum)))
}

/// `A^-1 S A^-T`.
fn sandwich(a: &Mat<f64>, s: &Mat<f64>) -> Covariance {
    let left = linalg::least_norm(a, s);
    let both = linalg::least_norm(a, &left.x.transpose().to_owned()).x;
    // Removes asymmetry due to rounding.
    let d = a.nrows();
    let rows = (0..d).flat_map(|i| (0..d).map(move |j| (i, j))).map(|(i, j)| 0.5 * (both[(i, j)] + both[(j, i)])).collect();
    Covariance { rows, null: left.null.concat() }
}

/// One transition for [`BatchMeans`].
#[derive(Debug, Clone, Copy)]
pub struct BatchTransition<'a> {
    /// `phi(s)`, d numbers.
    pub phi: &'a [f64],
    /// `phi(s')`; `None` if the episode terminated.
    pub next: Option<&'a [f64]>,
    /// The reward.
    pub reward: f64,
    /// The importance ratio; 1 if none are used.
    pub ratio: f64,
    /// Whether it is the first of its episode.
    pub begins: bool,
}

/// The means of an agent's terms `z_t delta_t` over batches of successive transitions. Transitions are added one by one, in their
/// order; the log need not be in memory as a whole.
#[derive(Debug, Clone)]
pub struct BatchMeans {
    theta: Vec<f64>,
    rule: TraceRule,
    /// The number of transitions.
    n: usize,
    /// The number of transitions added so far.
    taken: usize,
    /// The batch of the next transition.
    batch: usize,
    /// `z_{t-1}`, d numbers.
    trace: Vec<f64>,
    /// The sums of the terms, d numbers for each batch.
    sums: Vec<f64>,
    batches: usize,
}

impl BatchMeans {
    /// For an agent with `n` transitions, at the weights `theta`.
    pub fn new(theta: &[f64], n: usize, rule: TraceRule) -> Self {
        Self::in_batches(theta, n, rule, n.isqrt().min(MOST))
    }

    fn in_batches(theta: &[f64], n: usize, rule: TraceRule, batches: usize) -> Self {
        let d = theta.len();
        let (trace, sums) = (vec![0.0; d], vec![0.0; batches * d]);
        Self { theta: theta.to_vec(), rule, n, taken: 0, batch: 0, trace, sums, batches }
    }

    /// The first transition of a batch.
    fn first(&self, batch: usize) -> usize {
        batch * self.n / self.batches
    }

    /// Adds the next transition. Those beyond the n-th are ignored.
    pub fn take(&mut self, step: BatchTransition<'_>) {
        let (d, value) = (self.theta.len(), |phi: &[f64]| phi.iter().zip(&self.theta).map(|(x, w)| x * w).sum::<f64>());
        if self.taken >= self.n {
            return;
        }
        let mut delta = step.reward - value(step.phi);
        if let Some(next) = step.next {
            delta += self.rule.gamma * value(next);
        }
        let decay = if step.begins { 0.0 } else { self.rule.decay() };
        products::lengthen(Isa::best(), &mut self.trace, decay, step.ratio, step.phi);
        while self.batch + 1 < self.batches && self.taken >= self.first(self.batch + 1) {
            self.batch += 1;
        }
        let sum = &mut self.sums[self.batch * d..(self.batch + 1) * d];
        products::add_scaled(Isa::best(), sum, delta, &self.trace);
        self.taken += 1;
    }

    /// The agent's part of S, d x d, among `total` transitions of all agents; `None` if it is not known.
    pub fn spread(&self, total: usize) -> Option<Mat<f64>> {
        if self.n < FEWEST || self.taken < self.n || self.theta.iter().any(|x| !x.is_finite()) {
            return None;
        }
        let (d, n, count) = (self.theta.len(), self.n as f64, self.batches as f64);
        let mut whole = vec![0.0; d];
        for sum in self.sums.chunks_exact(d) {
            whole.iter_mut().zip(sum).for_each(|(w, s)| *w += s);
        }
        let scale = n / total as f64 * (count / (count - 1.0)).sqrt() / n;
        let part = |batch: usize| (self.first(batch + 1) - self.first(batch)) as f64 / n;
        let columns = Mat::from_fn(d, self.batches, |i, batch| scale * (self.sums[batch * d + i] - part(batch) * whole[i]));
        let mut spread = Mat::zeros(d, d);
        linalg::add_outer(&mut spread, columns.as_ref(), columns.as_ref());
        Some(spread)
    }

    /// Adds the transitions of a log.
    ///
    /// # Errors
    /// When the log cannot be read.
    fn read(&mut self, source: &dyn LogSource, mut features: BlockFeatures<'_>) -> Result<()> {
        read_checked(source, &mut |batch| {
            let log = batch.log;
            for row in 0..log.len() {
                let [phi, next] = features.of(log, row);
                let (ratio, next) = (self.rule.ratio(&batch, row), (!log.done[row]).then_some(next));
                self.take(BatchTransition { phi, next, reward: log.rewards[row], ratio, begins: batch.begins(row) });
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use fedsa::random::{Purpose, stream};
    use fedsa_problems::features::{FeatureSpec, Ranges};
    use fedsa_problems::logs::log::Log;

    use super::*;

    const GAMMA: f64 = 0.8;
    /// Two agents' kernels on three states, with slow mixing.
    const KERNELS: [[[f64; 3]; 3]; 2] =
        [[[0.8, 0.2, 0.0], [0.1, 0.8, 0.1], [0.0, 0.2, 0.8]], [[0.6, 0.2, 0.2], [0.1, 0.85, 0.05], [0.05, 0.05, 0.9]]];
    const REWARDS: [f64; 3] = [1.0, 0.0, -2.0];
    /// The kernel of the second action.
    const OTHER: [[f64; 3]; 3] = [[0.5, 0.25, 0.25], [0.3, 0.4, 0.3], [0.2, 0.3, 0.5]];
    const LENGTHS: [usize; 2] = [1500, 2500];

    /// The behaviour and the evaluation of transitions.
    #[derive(Debug, Clone, Copy, Default)]
    struct Case {
        lambda: f64,
        /// The probabilities of the second action under the behaviour policy and the evaluated policy; `None` for one action without
        /// ratios.
        second: Option<[f64; 2]>,
    }

    impl Case {
        fn rule(self) -> TraceRule {
            TraceRule { gamma: GAMMA, lambda: self.lambda, ratios: self.second.is_some(), clip: None }
        }

        /// The kernel of agent c under the behaviour policy (0) or the evaluated policy (1).
        fn kernel(self, c: usize, policy: usize) -> [[f64; 3]; 3] {
            let p = self.second.map_or(0.0, |second| second[policy]);
            std::array::from_fn(|i| std::array::from_fn(|j| (1.0 - p) * KERNELS[c][i][j] + p * OTHER[i][j]))
        }
    }

    /// A log of n transitions, with the `phi` of each state as its columns.
    fn simulated(case: Case, phi: &[Vec<f64>; 3], n: usize, seed: u64, agent: usize) -> Log {
        let mut s = stream(seed, Purpose::Fresh, 0, agent);
        let mut state = (s.uniform() * 3.0) as usize;
        let d = phi[0].len();
        let mut log = Log {
            name: String::new(),
            columns: (0..d).map(|j| format!("s_{j}")).collect(),
            states: Vec::new(),
            rewards: Vec::new(),
            next: Vec::new(),
            done: vec![false; n],
            truncated: None,
            breaks: None,
            actions: None,
            episode: None,
            ratio: case.second.map(|_| Vec::new()),
        };
        for _ in 0..n {
            let mut kernel = &KERNELS[agent];
            if let (Some([acted, evaluated]), Some(ratio)) = (case.second, &mut log.ratio) {
                let is_second = s.uniform() < acted;
                ratio.push(if is_second { evaluated / acted } else { (1.0 - evaluated) / (1.0 - acted) });
                kernel = if is_second { &OTHER } else { kernel };
            }
            let u = s.uniform();
            let following = if u < kernel[state][0] { 0 } else { 1 + usize::from(u >= kernel[state][0] + kernel[state][1]) };
            log.states.extend(&phi[state]);
            log.next.extend(&phi[following]);
            log.rewards.push(REWARDS[state]);
            state = following;
        }
        log
    }

    /// Adds `weight z (phi - gamma phi')'` to A and `weight z r` to b.
    fn add(a: &mut Mat<f64>, b: &mut [f64], weight: f64, z: &[f64], phi: &[f64], reward: f64, next: &[f64]) {
        for i in 0..b.len() {
            b[i] += weight * z[i] * reward;
            (0..b.len()).for_each(|j| a[(i, j)] += weight * z[i] * (phi[j] - GAMMA * next[j]));
        }
    }

    /// LSTD(lambda) in the limit of long logs. The sum of traces in state s, `m(s) = d(s) E[gamma lambda z_{t-1} + phi_t | s_t = s]`
    /// with d the stationary law of the behaviour policy, satisfies `m(s') = d(s') phi(s') + gamma lambda sum_s m(s) P(s, s')` with the
    /// kernel P of the evaluated policy.
    fn truth(case: Case, phi: &[Vec<f64>; 3]) -> Vec<f64> {
        let d = phi[0].len();
        let (mut a, mut b) = (Mat::<f64>::zeros(d, d), vec![0.0; d]);
        for (c, n) in LENGTHS.into_iter().enumerate() {
            let (acts, evaluated) = (case.kernel(c, 0), case.kernel(c, 1));
            let mut law = [1.0 / 3.0; 3];
            for _ in 0..2000 {
                law = std::array::from_fn(|j| (0..3).map(|i| law[i] * acts[i][j]).sum());
            }
            let own = |s: usize| phi[s].iter().map(|x| law[s] * x).collect::<Vec<f64>>();
            let mut m: Vec<Vec<f64>> = (0..3).map(own).collect();
            for _ in 0..500 {
                let before = m.clone();
                m = (0..3).map(own).collect();
                for (s, from) in before.iter().enumerate() {
                    for (after, to) in m.iter_mut().enumerate() {
                        to.iter_mut().zip(from).for_each(|(x, z)| *x += GAMMA * case.lambda * evaluated[s][after] * z);
                    }
                }
            }
            for s in 0..3 {
                for after in 0..3 {
                    add(&mut a, &mut b, n as f64 * evaluated[s][after], &m[s], &phi[s], REWARDS[s], &phi[after]);
                }
            }
        }
        linalg::solve(&a, &b).unwrap()
    }

    /// The mean system of logs.
    fn fitted(case: Case, logs: &[Log], d: usize) -> (Mat<f64>, Vec<f64>) {
        let (mut a, mut b) = (Mat::<f64>::zeros(d, d), vec![0.0; d]);
        let total = logs.iter().map(Log::len).sum::<usize>() as f64;
        for log in logs {
            let mut z = vec![0.0; d];
            for i in 0..log.len() {
                let rho = log.ratio.as_ref().map_or(1.0, |ratio| ratio[i]);
                let decay = if log.begins(i) { 0.0 } else { GAMMA * case.lambda };
                z.iter_mut().zip(log.state(i)).for_each(|(z, x)| *z = rho * (decay * *z + x));
                let zero = vec![0.0; d];
                let next = if log.done[i] { &zero[..] } else { log.next_state(i) };
                add(&mut a, &mut b, 1.0 / total, &z, log.state(i), log.rewards[i], next);
            }
        }
        (a, b)
    }

    fn identity(d: usize) -> FeatureMap {
        let names: Vec<String> = (0..d).map(|j| format!("s_{j}")).collect();
        FeatureMap::new(&FeatureSpec::Identity { bias: false }, &names, &Ranges::new()).unwrap()
    }

    /// The share of 95% intervals that contain the true weights and a true value, over many simulated pairs of logs. `assumed` gives
    /// the intervals.
    fn coverage(case: Case, assumed: Case, phi: &[Vec<f64>; 3], batches: impl Fn(usize) -> usize + Copy, repetitions: u64) -> Vec<f64> {
        let d = phi[0].len();
        let (map, truth) = (identity(d), truth(case, phi));
        let mut hits = vec![0.0; d + 1];
        for seed in 0..repetitions {
            let logs: Vec<Log> = (0..2).map(|c| simulated(case, phi, LENGTHS[c], seed, c)).collect();
            let (a, b) = fitted(case, &logs, d);
            let theta = linalg::solve(&a, &b).unwrap();
            let means: Vec<BatchMeans> = logs
                .iter()
                .map(|log| {
                    let mut means = BatchMeans::in_batches(&theta, log.len(), assumed.rule(), batches(log.len()));
                    means.read(log, BlockFeatures::new(&map, 1)).unwrap();
                    means
                })
                .collect();
            let total = logs.iter().map(Log::len).sum();
            let spread = means.iter().map(|means| means.spread(total).unwrap()).reduce(|sum, agent| sum + agent).unwrap();
            let covariance = sandwich(&a, &spread);
            let errors = covariance.standard_errors();
            for i in 0..d {
                hits[i] += f64::from(u8::from((theta[i] - truth[i]).abs() <= 1.959_964 * errors[i]));
            }
            let value = |theta: &[f64]| phi[1].iter().zip(theta).map(|(x, w)| x * w).sum::<f64>();
            let error = covariance.value_error(&phi[1]);
            hits[d] += f64::from(u8::from((value(&theta) - value(&truth)).abs() <= 1.959_964 * error));
        }
        hits.iter().map(|hits| hits / repetitions as f64).collect()
    }

    const REPETITIONS: u64 = 2000;

    /// Whether the measured share is within three standard errors of the share over all logs, assumed from 90% to 98%.
    fn covers(share: f64) -> bool {
        let three = 3.0 * (0.95 * 0.05 / REPETITIONS as f64).sqrt();
        (0.90 + three..=0.98 - three).contains(&share)
    }

    fn tabular() -> [Vec<f64>; 3] {
        [vec![1.0, 0.0, 0.0], vec![0.0, 1.0, 0.0], vec![0.0, 0.0, 1.0]]
    }

    /// Features that cannot represent the values: errors of consecutive transitions are then dependent.
    fn two() -> [Vec<f64>; 3] {
        [vec![1.0, 0.0], vec![1.0, 0.3], vec![1.0, 1.0]]
    }

    #[test]
    fn intervals_cover_as_often_as_they_say() {
        let plain = Case::default();
        for phi in [&tabular(), &two()] {
            let covered = coverage(plain, plain, phi, |n| n.isqrt(), REPETITIONS);
            println!("coverage of 95% intervals: {covered:?}");
            assert!(covered.iter().all(|share| covers(*share)), "{covered:?}");
        }
        // Batches of single transitions, as if these were independent, give too small errors.
        let one = [vec![1.0], vec![1.0], vec![1.0]];
        let naive = coverage(plain, plain, &one, |n| n, 300);
        println!("with single transitions: {naive:?}");
        assert!(naive[0] < 0.8, "{naive:?}");
        let batched = coverage(plain, plain, &one, |n| n.isqrt(), REPETITIONS);
        println!("with batches: {batched:?}");
        assert!(covers(batched[0]), "{batched:?}");
    }

    #[test]
    fn intervals_of_traces_and_importance_ratios_cover_as_often_as_they_say() {
        let second = Some([0.5, 0.2]);
        for case in [Case { lambda: 0.7, second: None }, Case { lambda: 0.0, second }, Case { lambda: 0.7, second }] {
            for phi in [&tabular(), &two()] {
                let covered = coverage(case, case, phi, |n| n.isqrt(), REPETITIONS);
                println!("{case:?}: coverage of 95% intervals: {covered:?}");
                assert!(covered.iter().all(|share| covers(*share)), "{case:?}: {covered:?}");
            }
            // Terms without the traces and ratios of the fit give wrong errors.
            let without = coverage(case, Case::default(), &two(), |n| n.isqrt(), REPETITIONS);
            println!("{case:?}, without: {without:?}");
            assert!(without.iter().any(|share| !covers(*share)), "{case:?}: {without:?}");
        }
    }

    /// Compares with the formula at the head of the file, written out, for episodes that terminate or are truncated.
    #[test]
    fn traces_start_anew_where_an_episode_begins() {
        let case = Case { lambda: 0.9, second: Some([0.5, 0.3]) };
        let (phi, n) = (two(), 100);
        let mut log = simulated(case, &phi, n, 3, 0);
        log.done = (0..n).map(|i| i % 17 == 16).collect();
        log.episode = Some((0..n as i64).map(|i| i / 9).collect());
        let theta = [0.7, -1.3];
        let rule = case.rule();
        let found = of(Box::new(log.clone()), rule, &theta).unwrap();
        // The same result to the bit in batches of any size: episodes continue across batches.
        for size in [1, 7, 100] {
            assert_eq!(of(Box::new(InPieces { log: log.clone(), size }), rule, &theta), Some(found.clone()), "batches of {size}");
        }
        let value = |phi: &[f64]| phi[0] * theta[0] + phi[1] * theta[1];
        let mut terms: Vec<[f64; 2]> = Vec::new();
        for t in 0..n {
            // All transitions of the episode up to this one, each with the product of the ratios since.
            let mut z = [0.0; 2];
            let (mut product, mut from) = (1.0, t);
            loop {
                product *= log.ratio.as_ref().unwrap()[from];
                let decay = (GAMMA * case.lambda).powi((t - from) as i32);
                (0..2).for_each(|i| z[i] += product * decay * log.state(from)[i]);
                if log.begins(from) {
                    break;
                }
                from -= 1;
            }
            let following = if log.done[t] { 0.0 } else { GAMMA * value(log.next_state(t)) };
            let delta = log.rewards[t] + following - value(log.state(t));
            terms.push([z[0] * delta, z[1] * delta]);
        }
        // Ten batches of ten.
        let mean = |terms: &[[f64; 2]], i: usize| terms.iter().map(|g| g[i]).sum::<f64>() / terms.len() as f64;
        for i in 0..2 {
            for j in 0..2 {
                let of = |batch: &[[f64; 2]]| (mean(batch, i) - mean(&terms, i)) * (mean(batch, j) - mean(&terms, j));
                let expected = terms.chunks(10).map(of).sum::<f64>() * 10.0 / 9.0 / 100.0;
                let found = found.rows[2 * i + j];
                assert!((found / expected - 1.0).abs() < 1e-12, "{i}, {j}: {found}, {expected}");
            }
        }
    }

    /// The covariance of weights fitted to one log, for a mean matrix of 1.
    fn of(source: Box<dyn LogSource>, rule: TraceRule, theta: &[f64]) -> Option<Covariance> {
        let logs = Surveyed::new(vec![source], 0.0, 0).unwrap();
        covariance(&logs, &identity(theta.len()), rule, &Mat::identity(theta.len(), theta.len()), theta).unwrap()
    }

    /// A log that is read in batches of `size` transitions.
    struct InPieces {
        log: Log,
        size: usize,
    }

    impl LogSource for InPieces {
        fn name(&self) -> &str {
            &self.log.name
        }
        fn columns(&self) -> &[String] {
            &self.log.columns
        }
        fn read(&self, see: &mut dyn FnMut(&Log) -> Result<()>) -> Result<()> {
            (0..self.log.len()).step_by(self.size).try_for_each(|first| see(&self.log.filtered(|row| row / self.size * self.size == first)))
        }
    }

    #[test]
    fn ratios_that_are_not_used_change_nothing() {
        let case = Case { lambda: 0.0, second: Some([0.5, 0.3]) };
        let with = simulated(case, &two(), 400, 3, 0);
        let without = Log { ratio: None, ..with.clone() };
        let of = |log: &Log, ratios| {
            of(Box::new(log.clone()), TraceRule { gamma: GAMMA, lambda: 0.0, ratios, clip: None }, &[1.0, 2.0]).unwrap()
        };
        assert_eq!(of(&with, false), of(&without, true));
        assert_ne!(of(&with, true), of(&without, true));
    }

    #[test]
    fn there_are_none_for_few_transitions() {
        let phi = [vec![1.0], vec![1.0], vec![1.0]];
        let rule = Case::default().rule();
        let of = |n: usize, theta: f64| of(Box::new(simulated(Case::default(), &phi, n, 0, 0)), rule, &[theta]);
        assert!(of(FEWEST, 0.0).is_some() && of(FEWEST - 1, 0.0).is_none() && of(FEWEST, f64::NAN).is_none());
        assert!(BatchMeans::new(&[0.0], FEWEST, rule).spread(FEWEST).is_none(), "its transitions are missing");
    }

    /// The data do not determine a feature that no state has, nor the difference of two equal features.
    #[test]
    fn values_of_which_the_data_say_nothing_have_no_error() {
        let phi = [vec![1.0, 1.0, 0.0], vec![2.0, 2.0, 0.0], vec![0.5, 0.5, 0.0]];
        let log = simulated(Case::default(), &phi, 400, 1, 0);
        let (a, b) = fitted(Case::default(), std::slice::from_ref(&log), 3);
        let solved = linalg::least_norm(&a, &linalg::column(&b));
        assert_eq!((solved.rank(), solved.null.len()), (1, 2));
        let theta = solved.x.col_as_slice(0).to_vec();
        assert!((theta[0] - theta[1]).abs() < 1e-14 && theta[2] == 0.0);
        let logs = Surveyed::new(vec![Box::new(log)], 0.0, 0).unwrap();
        let found = covariance(&logs, &identity(3), Case::default().rule(), &a, &theta).unwrap().unwrap();
        assert!(found.value_error(&[1.0, 1.0, 0.0]) > 0.0);
        assert!(found.value_error(&[1.0, 0.0, 0.0]).is_nan() && found.value_error(&[1.0, 1.0, 0.1]).is_nan());
    }

    /// The number of batches of a long log is bounded, and they cover it evenly.
    #[test]
    fn long_logs_have_longer_batches() {
        let n = 4_000_000;
        let means = BatchMeans::new(&[0.0], n, Case::default().rule());
        assert_eq!((means.batches, means.first(0), means.first(MOST)), (MOST, 0, n));
        assert!((0..MOST).all(|batch| (means.first(batch + 1) - means.first(batch)).abs_diff(n / MOST) <= 1));
        assert_eq!(BatchMeans::new(&[0.0], 10_000, Case::default().rule()).batches, 100);
    }
}
