//! TD(0) on logs with sparse features, such as tile codings of up to millions of tiles with a few active ones per state.
//!
//! With m active tiles of the value v, `A(z) = rho v^2 1_phi (1_phi - gamma 1_phi')^T` has 2 m^2 entries, and `b(z) = rho v r 1_phi`. A
//! sampled step costs m operations, for any d. Means are kept as sparse rows. In products with dense maps, the m active features have
//! separate values instead of 1, and v = 1.

use crate::features::FeatureMap;
use crate::logs::log::Log;
use crate::logs::log_means::{TraceRule, overflow};
use crate::logs::source::{LogSource, read_checked};
use crate::memory;
use fedsa::error::{Error, Result};
use fedsa::kernel::{Isa, Lanes};
use fedsa::parallel;
use fedsa::problem::facts::Facts;
use fedsa::problem::linear_operators::LinearOperators;
use fedsa::problem::{Problem, StepKernel};
use fedsa::random::Stream;
use fedsa::sampling::{ChainStart, Law, Sampling};

/// The mean operator of one agent: the non-zero rows of `Abar`, in increasing order.
#[derive(Debug, Default)]
struct Rows {
    /// The index of each row.
    row: Vec<u32>,
    /// The first entry of each row, then the number of entries.
    start: Vec<usize>,
    column: Vec<u32>,
    value: Vec<f64>,
    /// `bbar` in these rows; other entries are 0.
    b: Vec<f64>,
}

impl Rows {
    fn entries(&self, k: usize) -> impl Iterator<Item = (u32, f64)> + '_ {
        let range = self.start[k]..self.start[k + 1];
        self.column[range.clone()].iter().copied().zip(self.value[range].iter().copied())
    }

    /// `out = Abar q`.
    fn product(&self, q: &[f64], out: &mut [f64]) {
        out.fill(0.0);
        for (k, row) in self.row.iter().enumerate() {
            out[*row as usize] = self.entries(k).map(|(j, x)| x * q[j as usize]).sum();
        }
    }
}

/// Sums over one agent's transitions, row by row.
struct Sums {
    /// The position of each row among the kept rows; `u32::MAX` for none.
    place: Vec<u32>,
    row: Vec<u32>,
    /// The entries of each kept row, by increasing column.
    entries: Vec<Vec<(u32, f64)>>,
    b: Vec<f64>,
    n: usize,
}

impl Sums {
    fn new(d: usize) -> Self {
        Self { place: vec![u32::MAX; d], row: Vec::new(), entries: Vec::new(), b: Vec::new(), n: 0 }
    }

    /// Adds `weight phi (phi - gamma next)^T` and `reward phi`.
    fn add(&mut self, phi: Active<'_>, next: Active<'_>, weight: f64, gamma: f64, reward: f64) {
        self.n += 1;
        for (i, own) in phi.each() {
            let place = &mut self.place[i];
            if *place == u32::MAX {
                *place = self.row.len() as u32;
                self.row.push(i as u32);
                self.entries.push(Vec::new());
                self.b.push(0.0);
            }
            let place = *place as usize;
            self.b[place] += reward * own;
            let entries = &mut self.entries[place];
            let all = phi.each().map(|(j, x)| (j, weight * own * x)).chain(next.each().map(|(j, x)| (j, -gamma * weight * own * x)));
            for (j, x) in all {
                let j = j as u32;
                match entries.binary_search_by_key(&j, |entry| entry.0) {
                    Ok(at) => entries[at].1 += x,
                    Err(at) => entries.insert(at, (j, x)),
                }
            }
        }
    }

    fn finish(self) -> Rows {
        let mut order: Vec<usize> = (0..self.row.len()).collect();
        order.sort_unstable_by_key(|k| self.row[*k]);
        let share = 1.0 / self.n as f64;
        let mut rows = Rows { start: vec![0], ..Rows::default() };
        let total = self.entries.iter().map(Vec::len).sum();
        rows.column.reserve_exact(total);
        rows.value.reserve_exact(total);
        let mut entries = self.entries;
        for k in order {
            rows.row.push(self.row[k]);
            rows.b.push(share * self.b[k]);
            // Frees each row after it is laid out.
            for (j, x) in std::mem::take(&mut entries[k]) {
                rows.column.push(j);
                rows.value.push(share * x);
            }
            rows.start.push(rows.column.len());
        }
        rows
    }
}

/// The map and its number of active features.
#[derive(Debug, Clone, Copy)]
struct Tiles<'a> {
    map: &'a FeatureMap,
    /// m and v.
    active: (usize, f64),
    rule: TraceRule,
}

impl Tiles<'_> {
    fn rows(&self, source: &dyn LogSource) -> Result<Rows> {
        let (m, v) = self.active;
        let mut sums = Sums::new(self.map.len());
        let own = if self.map.is_mixed() { m } else { 0 };
        let (mut phi, mut next) = ((vec![0; m], vec![0.0; own]), (vec![0; m], vec![0.0; own]));
        read_checked(source, &mut |batch| {
            for i in 0..batch.log.len() {
                let here = Active::of(self.map, batch.log.state(i), &mut phi.0, &mut phi.1);
                let following = match batch.log.done[i] {
                    true => Active::NOTHING,
                    false => Active::of(self.map, batch.log.next_state(i), &mut next.0, &mut next.1),
                };
                let ratio = self.rule.ratio(&batch, i);
                sums.add(here, following, ratio * v * v, self.rule.gamma, ratio * v * batch.log.rewards[i]);
            }
            Ok(())
        })?;
        let rows = sums.finish();
        if rows.value.iter().chain(&rows.b).any(|x| !x.is_finite()) {
            return Err(overflow(source.name(), self.rule));
        }
        Ok(rows)
    }
}

/// The mean operators of all agents.
#[derive(Debug)]
struct Means {
    d: usize,
    ridge: f64,
    agents: Vec<Rows>,
}

impl Means {
    /// `out = bbar_c - (Abar_c + EPS I) theta`.
    fn mean(&self, c: usize, theta: &[f64], out: &mut [f64]) {
        let rows = &self.agents[c];
        rows.product(theta, out);
        out.iter_mut().zip(theta).for_each(|(out, theta)| *out = (-self.ridge).mul_add(*theta, -*out));
        rows.row.iter().zip(&rows.b).for_each(|(i, b)| out[*i as usize] += b);
    }
}

impl LinearOperators for Means {
    fn product(&self, c: usize, q: &[f64], out: &mut [f64]) {
        self.agents[c].product(q, out);
        if self.ridge > 0.0 {
            out.iter_mut().zip(q).for_each(|(out, q)| *out = self.ridge.mul_add(*q, *out));
        }
    }
    fn offset(&self, c: usize, out: &mut [f64]) {
        let rows = &self.agents[c];
        out.fill(0.0);
        rows.row.iter().zip(&rows.b).for_each(|(i, b)| out[*i as usize] = *b);
    }
    fn entries(&self, c: usize, see: &mut dyn FnMut(usize, usize, f64)) {
        let rows = &self.agents[c];
        let mut kept = rows.row.iter().enumerate().peekable();
        for i in 0..self.d {
            let own = kept.next_if(|(_, row)| **row as usize == i);
            let mut ridge = Some(self.ridge).filter(|ridge| *ridge > 0.0);
            for (j, x) in own.into_iter().flat_map(|(k, _)| rows.entries(k)) {
                let j = j as usize;
                if j > i
                    && let Some(ridge) = ridge.take()
                {
                    see(i, i, ridge);
                }
                let x = if j == i { x + ridge.take().unwrap_or(0.0) } else { x };
                if x != 0.0 {
                    see(i, j, x);
                }
            }
            if let Some(ridge) = ridge {
                see(i, i, ridge);
            }
        }
    }
}

/// The active features of a state.
#[derive(Debug, Clone, Copy)]
struct Active<'a> {
    numbers: &'a [u32],
    /// Their values; empty if all are 1.
    values: &'a [f64],
}

impl<'a> Active<'a> {
    const NOTHING: Self = Self { numbers: &[], values: &[] };

    /// The active features of a state; `values` has room for them if the map is mixed.
    fn of(map: &FeatureMap, state: &[f64], numbers: &'a mut [u32], values: &'a mut [f64]) -> Self {
        map.active(state, numbers);
        if !values.is_empty() {
            map.active_values(state, values);
        }
        Self { numbers, values }
    }

    #[inline(always)]
    fn each(self) -> impl Iterator<Item = (usize, f64)> + 'a {
        self.numbers.iter().enumerate().map(move |(k, i)| (*i as usize, self.values.get(k).copied().unwrap_or(1.0)))
    }
}

/// One agent's transitions, as indices of active features.
#[derive(Debug)]
struct Steps {
    /// m indices per transition.
    phi: Vec<u32>,
    /// m indices per transition; [`NONE`] if the transition is terminal.
    next: Vec<u32>,
    /// The values of both; empty if all are 1.
    values: [Vec<f64>; 2],
    rewards: Vec<f64>,
    /// Empty if all are 1.
    ratio: Vec<f64>,
}

/// No tile.
const NONE: u32 = u32::MAX;

/// TD(0) with sparse features.
#[derive(Debug)]
pub struct SparseTd {
    means: Means,
    weights: Vec<f64>,
    /// The transitions of each agent; empty with mean sampling.
    steps: Vec<Steps>,
    m: usize,
    v: f64,
    gamma: f64,
    sampling: Sampling,
}

impl SparseTd {
    /// Agents with these logs and weights, with sparse features. Mean sampling reads the logs once and does not keep them.
    ///
    /// # Errors
    /// When a log cannot be read, its sums overflow, or chains start at a transition out of range.
    ///
    /// # Panics
    /// When the map's features are not sparse.
    pub fn new(
        sources: &[Box<dyn LogSource>],
        map: &FeatureMap,
        weights: Vec<f64>,
        rule: TraceRule,
        ridge: f64,
        sampling: Sampling,
    ) -> Result<Self> {
        let active = map.sparse().expect("features are sparse");
        let tiles = Tiles { map, active, rule };
        let agents = parallel::try_map(sources.len(), |c| tiles.rows(&*sources[c]))?;
        let means = Means { d: map.len(), ridge, agents };
        let mut steps = Vec::new();
        if sampling.kind != Law::Mean {
            steps = parallel::try_map(sources.len(), |c| {
                let log = crate::logs::source::whole(&*sources[c])?;
                memory::check_transitions("path", log.len() as f64)?;
                Ok::<_, Error>(Steps::new(&log, map, active.0, rule))
            })?;
        }
        if let (Law::Markov, ChainStart::State(s)) = (sampling.kind, sampling.start) {
            let fewest = steps.iter().map(|steps: &Steps| steps.rewards.len()).min().unwrap_or(0);
            fedsa::error::require((s as usize) < fewest, "start", s, &format!("a state below {fewest}"))
                .map_err(|e| e.inside("sampling"))?;
        }
        Ok(Self { means, weights, steps, m: active.0, v: active.1, gamma: rule.gamma, sampling })
    }

    fn active<'a>(&self, of: &'a [u32], values: &'a [f64], z: usize) -> Active<'a> {
        let numbers = &of[z * self.m..][..self.m];
        if numbers[0] == NONE {
            return Active::NOTHING;
        }
        Active { numbers, values: if values.is_empty() { values } else { &values[z * self.m..][..self.m] } }
    }

    /// `rho v (r + gamma phi'^T theta - phi^T theta)`, and the features to which it is added.
    #[inline(always)]
    fn update(&self, c: usize, z: usize, theta: &mut [f64], fresh: impl Fn(&mut [f64], usize)) -> (f64, Active<'_>) {
        let steps = &self.steps[c];
        let (phi, next) = (self.active(&steps.phi, &steps.values[0], z), self.active(&steps.next, &steps.values[1], z));
        let mut sum = |active: Active<'_>| {
            let mut sum = 0.0;
            for (i, x) in active.each() {
                fresh(theta, i);
                sum += x * theta[i];
            }
            sum
        };
        let (now, after) = (sum(phi), sum(next));
        let error = steps.rewards[z] + self.v * (self.gamma * after - now);
        let ratio = steps.ratio.get(z).copied().unwrap_or(1.0);
        (ratio * self.v * error, phi)
    }
}

impl Steps {
    fn new(log: &Log, map: &FeatureMap, m: usize, rule: TraceRule) -> Self {
        let n = log.len();
        let (mut phi, mut next) = (vec![0; n * m], vec![NONE; n * m]);
        let own = if map.is_mixed() { m } else { 0 };
        let mut values = [vec![0.0; n * own], vec![0.0; n * own]];
        for i in 0..n {
            Active::of(map, log.state(i), &mut phi[i * m..][..m], &mut values[0][i * own..][..own]);
            if !log.done[i] {
                Active::of(map, log.next_state(i), &mut next[i * m..][..m], &mut values[1][i * own..][..own]);
            }
        }
        let ratio = log.ratio.clone().filter(|_| rule.ratios).unwrap_or_default();
        Self { phi, next, values, rewards: log.rewards.clone(), ratio }
    }
}

impl Problem for SparseTd {
    /// The index of a transition.
    type Obs = usize;

    fn dim(&self) -> usize {
        self.means.d
    }
    fn weights(&self) -> &[f64] {
        &self.weights
    }
    fn chain_len(&self) -> usize {
        usize::from(self.sampling.kind == Law::Markov)
    }
    fn start_chain(&self, c: usize, stream: &mut Stream, chain: &mut [u64]) {
        let Some(state) = chain.first_mut() else { return };
        *state = match self.sampling.start {
            ChainStart::State(s) => u64::from(s),
            ChainStart::Stationary => stream.below(self.steps[c].rewards.len()) as u64,
        };
    }
    fn is_state(&self, c: usize, chain: &[u64]) -> bool {
        let n = self.steps.get(c).map_or(0, |steps| steps.rewards.len()) as u64;
        chain.iter().all(|state| *state < n)
    }
    #[inline(always)]
    fn sample(&self, c: usize, _: &[f64], chain: &mut [u64], stream: &mut Stream, z: &mut usize) {
        let n = self.steps[c].rewards.len();
        match chain.first_mut() {
            Some(state) => {
                *z = *state as usize;
                *state = (*state + 1) % n as u64;
            }
            None => *z = stream.below(n),
        }
    }
    fn apply(&self, c: usize, theta: &[f64], z: &usize, out: &mut [f64]) {
        // `update` works on components that it may bring up to date; here all are.
        out.copy_from_slice(theta);
        let (step, active) = self.update(c, *z, out, |_, _| {});
        out.iter_mut().zip(theta).for_each(|(out, theta)| *out = -self.means.ridge * theta);
        active.each().for_each(|(i, x)| out[i] += step * x);
    }
    fn mean(&self, c: usize, theta: &[f64], out: &mut [f64]) -> bool {
        self.means.mean(c, theta, out);
        true
    }
    fn facts(&self) -> &dyn Facts {
        self
    }
    fn local_phase(&self, law: Law) -> Option<StepKernel<Self>> {
        // A ridge moves every component in every step.
        (law != Law::Mean && self.means.ridge == 0.0)
            .then_some(|problem, blocks, etas, isa| blocks.iter_mut().for_each(|lanes| problem.steps(lanes, etas, isa)))
    }
}

impl SparseTd {
    /// Changes active tiles only. A tile that was inactive for k steps catches up on the drift of k steps when it becomes active, or at the
    /// end. This differs from k single steps by rounding.
    fn steps(&self, lanes: &mut Lanes, etas: &[f64], _: Isa) {
        // The sums of the step sizes before each step.
        let mut before = Vec::with_capacity(etas.len() + 1);
        before.push(0.0);
        etas.iter().for_each(|eta| before.push(before[before.len() - 1] + eta));
        let mut seen = if lanes.is_still() { Vec::new() } else { vec![0u32; self.means.d] };
        for l in 0..lanes.len {
            let c = lanes.agents[l];
            let mut stream = lanes.stream(l);
            seen.fill(0);
            for (h, eta) in etas.iter().enumerate() {
                let mut z = 0;
                self.sample(c, &[], &mut lanes.chains[l * lanes.chain_len..][..lanes.chain_len], &mut stream, &mut z);
                let (theta, drift) = lanes.theta_and_drift(l);
                let seen = std::cell::Cell::from_mut(&mut seen[..]).as_slice_of_cells();
                let fresh = |theta: &mut [f64], i: usize| {
                    if let Some(last) = seen.get(i) {
                        let away = before[h] - before[last.replace(h as u32) as usize];
                        theta[i] += away * drift[i];
                    }
                };
                let (step, active) = self.update(c, z, theta, fresh);
                active.each().for_each(|(i, x)| theta[i] = eta.mul_add(step * x, theta[i]));
            }
            let (theta, drift) = lanes.theta_and_drift(l);
            for ((theta, drift), last) in theta.iter_mut().zip(drift).zip(&seen) {
                *theta += (before[etas.len()] - before[*last as usize]) * drift;
            }
            lanes.set_stream(l, stream);
        }
    }
}

impl Facts for SparseTd {
    fn linear_operators(&self) -> Option<&dyn LinearOperators> {
        Some(&self.means)
    }
    fn takes_least_norm(&self) -> bool {
        true
    }
    fn step_work(&self) -> Option<usize> {
        let entries: usize = self.means.agents.iter().map(|rows| rows.value.len()).sum();
        Some(match self.sampling.kind {
            Law::Mean => entries / self.means.agents.len() + self.means.d,
            _ if self.means.ridge > 0.0 => self.means.d,
            _ => 4 * self.m,
        })
    }
}
