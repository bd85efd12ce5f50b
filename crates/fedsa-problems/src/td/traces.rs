//! TD(lambda) with eligibility traces and importance ratios, on logged transitions.
//!
//! ```text
//! z_t = rho_t (gamma lambda z_{t-1} + phi(s_t))
//! g_t = (r_t + gamma phi(s'_t)^T theta - phi(s_t)^T theta) z_t
//! ```
//!
//! with the importance ratios `rho_t` of the decisions, 1 if none were logged. A trace starts with `z_{t-1} = 0` at the first transition of
//! an episode ([`Log::begins`]) and of the log, also after replay wraps around. A truncation ends the trace like the end of an episode, but
//! its last transition still bootstraps from `phi(s')`.
//!
//! The means over a log of n transitions are `Abar = (1/n) sum_t z_t (phi_t - gamma phi'_t)^T` and
//! `bbar = (1/n) sum_t z_t r_t`. Their root is the solution of LSTD(lambda).
//! With `lambda = 0` and ratios of 1 this is [`Td`], bit for bit.

use crate::kernel::td::Transition;
use crate::logs::log::Log;
use crate::logs::log_means::{Means, TraceRule};
use crate::td::td0::{Td, Transitions};
use fedsa::error::{Error, Result};
use fedsa::kernel::products::lengthened;
use fedsa::problem::facts::Facts;
use fedsa::problem::law::FiniteLaw;
use fedsa::problem::{Problem, StepKernel};
use fedsa::random::Stream;
use fedsa::sampling::{Law, Sampling};

/// The facts of one agent's log that traces need.
#[derive(Debug, Clone)]
struct Steps {
    /// `rho_t`; empty if all are 1.
    ratio: Vec<f64>,
    /// Whether a trace starts at transition t; empty if `lambda` is 0.
    begins: Vec<bool>,
}

impl Steps {
    #[inline(always)]
    fn ratio(&self, t: usize) -> f64 {
        self.ratio.get(t).copied().unwrap_or(1.0)
    }
}

/// TD(lambda) over tables of logged transitions, one kind per agent.
#[derive(Debug)]
pub struct Traces {
    /// The same transitions, with the means of traces.
    td: Td,
    steps: Vec<Steps>,
    /// `gamma lambda`.
    decay: f64,
    /// Whether a trace lasts longer than one transition, which makes it part of the chain's state.
    lasts: bool,
}

impl Traces {
    /// Agents with these logs, their transitions ([`crate::logs::replay::transitions`]) and means.
    ///
    /// # Errors
    /// When single transitions are drawn independently and `lambda` is not 0, or the sampling starts chains in a state out of range.
    pub(crate) fn new(
        kinds: Vec<Transitions>,
        logs: &[Log],
        means: &[Means],
        weights: Vec<f64>,
        rule: TraceRule,
        sampling: Sampling,
    ) -> Result<Self> {
        check_sampling(rule.lambda, sampling)?;
        let lasts = rule.lambda > 0.0;
        let step = |log: &Log| Steps {
            ratio: log.ratio.clone().filter(|_| rule.ratios).unwrap_or_default(),
            begins: if lasts { (0..log.len()).map(|t| log.begins(t)).collect() } else { Vec::new() },
        };
        let steps: Vec<Steps> = logs.iter().map(step).collect();
        let agents = (0..logs.len() as u32).collect();
        let td = Td::with_means(kinds, agents, weights, sampling, |c, _| (means[c].system.clone(), means[c].gram.clone()))?;
        Ok(Self { td: td.with_least_norm(), steps, decay: rule.decay(), lasts })
    }
}

/// Whether an agent with this log needs [`Traces`].
pub(crate) fn are_needed(log: &Log, rule: TraceRule) -> bool {
    rule.lambda > 0.0 || (rule.ratios && log.ratio.is_some())
}

/// Refuses traces with transitions that are drawn one by one.
///
/// # Errors
/// Under i.i.d. sampling, when `lambda` is not 0.
pub(crate) fn check_sampling(lambda: f64, sampling: Sampling) -> Result<()> {
    if lambda > 0.0 && sampling.kind == Law::Iid {
        let what = format!("{lambda} under iid sampling: single transitions that are drawn independently have no traces");
        return Err(Error::new("lambda", what, "0, or kind = \"markov\" or \"mean\" in [sampling]"));
    }
    Ok(())
}

/// A transition, and the trace there.
#[derive(Debug, Default)]
pub struct TracedTransition {
    z: Transition,
    /// d numbers.
    trace: Vec<f64>,
}

impl Problem for Traces {
    type Obs = TracedTransition;

    fn dim(&self) -> usize {
        self.td.dim()
    }
    fn weights(&self) -> &[f64] {
        self.td.weights()
    }
    /// The index of the next transition, then the trace that it continues: zeros if it begins an episode.
    fn chain_len(&self) -> usize {
        self.td.chain_len() + if self.lasts { self.td.chain_len() * self.dim() } else { 0 }
    }
    /// A replay that starts within an episode has no trace from earlier transitions.
    fn start_chain(&self, c: usize, stream: &mut Stream, chain: &mut [u64]) {
        let (index, trace) = chain.split_at_mut(self.td.chain_len());
        self.td.start_chain(c, stream, index);
        trace.fill(0.0f64.to_bits());
    }
    fn is_state(&self, c: usize, chain: &[u64]) -> bool {
        let (index, trace) = chain.split_at(self.td.chain_len());
        let begins = |t: &u64| self.steps[self.td.kind_of(c)].begins.get(*t as usize).is_some_and(|begins| *begins);
        let is_zero = |word: &u64| *word == 0.0f64.to_bits();
        self.td.is_state(c, index)
            && trace.iter().all(|word| f64::from_bits(*word).is_finite())
            && (!index.iter().any(begins) || trace.iter().all(is_zero))
    }
    #[inline(always)]
    fn sample(&self, c: usize, _: &[f64], chain: &mut [u64], stream: &mut Stream, seen: &mut TracedTransition) {
        let d = self.dim();
        let (source, steps) = (self.td.transitions(c), &self.steps[self.td.kind_of(c)]);
        let (index, words) = chain.split_at_mut(self.td.chain_len());
        let table = self.td.table(c);
        let z = table.transitions()[table.draw(index, stream)];
        seen.z = z;
        // Rows and transitions of logs have the same indices.
        let (ratio, phi) = (steps.ratio(z.phi as usize), &source.features.row(z.phi)[..d]);
        let trace = &mut seen.trace;
        trace.resize(d, 0.0);
        if words.is_empty() {
            trace.iter_mut().zip(phi).for_each(|(trace, phi)| *trace = ratio * phi);
        } else {
            trace.iter_mut().zip(&*words).for_each(|(trace, word)| *trace = f64::from_bits(*word));
            lengthened(trace, self.decay, ratio, phi);
            if index.iter().any(|next| steps.begins[*next as usize]) {
                words.fill(0.0f64.to_bits());
            } else {
                words.iter_mut().zip(&*trace).for_each(|(word, trace)| *word = trace.to_bits());
            }
        }
    }
    #[inline(always)]
    fn apply(&self, c: usize, theta: &[f64], seen: &TracedTransition, out: &mut [f64]) {
        let error = self.td.error(c, theta, &seen.z);
        out.iter_mut().zip(&seen.trace).for_each(|(out, trace)| *out = error * trace);
    }
    #[inline(always)]
    fn mean(&self, c: usize, theta: &[f64], out: &mut [f64]) -> bool {
        self.td.mean(c, theta, out)
    }
    fn facts(&self) -> &dyn Facts {
        self
    }
    fn local_phase(&self, law: Law) -> Option<StepKernel<Self>> {
        (law == Law::Mean).then_some(|problem, blocks, etas, isa| problem.td.mean_steps(blocks, etas, isa))
    }
}

impl Facts for Traces {
    fn base(&self) -> Option<&dyn Facts> {
        Some(&self.td)
    }
    /// Without lasting traces a sample is a transition: `A = rho phi psi^T`, `b = rho r phi`. With lasting traces, a sample has as many
    /// values as there are paths to it: unknown.
    fn law(&self, kind: usize) -> Option<FiniteLaw<'_>> {
        let steps = &self.steps[kind];
        (!self.lasts).then(|| self.td.kind(kind).weighted_law(|z| steps.ratio(z)))
    }
}
