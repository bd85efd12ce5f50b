//! Finite sums of quadratic losses, `f_c = (1/n) sum_j f_cj` with `f_cj(theta) = theta^T A_cj theta / 2 - b_cj^T theta` (\[F\] sec. 6.3). A
//! sample is the index j of a term: drawn uniformly (`iid`), or along a Markov chain with a uniform stationary law (`markov`, one
//! trajectory per agent).
//!
//! | key | meaning |
//! | --- | --- |
//! | `agents`, `terms`, `dim`, `seed` | N, n, d, and the seed. Agent c is the same for every N |
//! | `least_eigenvalue` | of every term, before `scales`: `A_cj = (G + G^T) / 2` with entries of G from N(0, 1), shifted by a multiple of I |
//! | `greatest_eigenvalue` | if given, spectra are mapped affinely instead of shifted |
//! | `scales` | `one`, or `exponential`: all `A_cj` of an agent times one Exp(1) number |
//! | `term_spread`, `spread` | `b_cj = term_spread e_cj + spread e_c + k u_c`, with `e_cj`, `e_c` from N(0, I) |
//! | `disagreement` | k; `u_c ~ N(0, I)` centred (`sum_c p_c u_c = 0`), so that the average operator stays |
//! | `chain` | of `markov` sampling: `random` (symmetric, doubly stochastic: U(0, 1) entries after 100 Sinkhorn sweeps), `uniform` draws, or `cyclic`, from each index to the next |
//! | `mixing_time` | tau from 1 to 1e9: with probability 1 - 1/tau a random or uniform chain keeps its state; a cyclic chain draws its next state uniformly with probability 1/tau |
//! | `chains` | one `shared` chain or one `per-agent` (random chains only) |
//! | `transitions` | the chain's doubly stochastic n x n matrix, instead of `chain`, `mixing_time` and `chains` |
//! | `noise` | additive noise ([`mod@crate::noise`]) |

use std::sync::Arc;

use faer::Mat;
use serde::{Deserialize, Serialize};

use crate::index_chain::{self, IndexChain};
use crate::kernel::symmetric::{self, Symmetric, term_chunks};
use crate::linear::spectra::{self, Spectrum};
use crate::memory::{self, MemoryEstimate};
use crate::noise::{self, Noise};
use crate::scope::Scope;
use crate::{Files, ProblemSettings};
use fedsa::error::{Error, Result, require};
use fedsa::kernel::{Isa, LANES, Lanes};
use fedsa::parallel;
use fedsa::problem::facts::Facts;
use fedsa::problem::law::FiniteLaw;
use fedsa::problem::systems::{Moments, System, Systems};
use fedsa::problem::{Field, Problem, StepKernel, equal_weights};
use fedsa::random::{Purpose, Stream, stream};
use fedsa::sampling::{ChainStart, Law, Sampling};

pub use crate::index_chain::ChainLaw;

/// The factor of an agent's matrices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Scales {
    /// 1.
    #[default]
    One,
    /// An Exp(1) number per agent.
    Exponential,
}

/// The `finite-sum` problem.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct FiniteSum {
    /// Agents N.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = crate::MAX_AGENTS)))]
    pub agents: usize,
    /// Terms n per agent.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = index_chain::MAX_STATES)))]
    pub terms: usize,
    /// Dimension d.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub dim: usize,
    /// Seed.
    pub seed: u64,
    /// Least eigenvalue of every term.
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))]
    pub least_eigenvalue: f64,
    /// Greatest eigenvalue of every term.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))]
    pub greatest_eigenvalue: Option<f64>,
    /// Factor of an agent's matrices.
    pub scales: Scales,
    /// Factor of `e_cj`.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub term_spread: f64,
    /// Factor of `e_c`.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub spread: f64,
    /// Factor of `u_c`.
    pub disagreement: f64,
    /// Chain of indices.
    pub chain: ChainLaw,
    /// Mixing time tau, up to 1e9.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub mixing_time: f64,
    /// Whether agents share a random chain.
    pub chains: Scope,
    /// Matrix of the chain, n x n.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub transitions: Vec<Vec<f64>>,
    /// Additive noise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub noise: Option<Noise>,
}

fedsa::settings::setters! { FiniteSum {
    with_agents(agents: usize) = agents;
    with_terms(terms: usize) = terms;
    with_dim(dim: usize) = dim;
    with_seed(seed: u64) = seed;
    with_least_eigenvalue(least_eigenvalue: f64) = least_eigenvalue;
    with_greatest_eigenvalue(greatest_eigenvalue: impl Into<Option<f64>>) = greatest_eigenvalue.into();
    with_scales(scales: Scales) = scales;
    with_term_spread(term_spread: f64) = term_spread;
    with_spread(spread: f64) = spread;
    with_disagreement(disagreement: f64) = disagreement;
    with_chain(chain: ChainLaw) = chain;
    with_mixing_time(mixing_time: f64) = mixing_time;
    with_chains(chains: Scope) = chains;
    with_transitions(transitions: Vec<Vec<f64>>) = transitions;
    with_noise(noise: impl Into<Option<Noise>>) = noise.into();
} }

impl Default for FiniteSum {
    fn default() -> Self {
        Self {
            agents: 10,
            terms: 10,
            dim: 10,
            seed: 0,
            least_eigenvalue: 1.0,
            greatest_eigenvalue: None,
            scales: Scales::One,
            term_spread: 1.0,
            spread: 0.0,
            disagreement: 0.0,
            chain: ChainLaw::Random,
            mixing_time: 1.0,
            chains: Scope::Shared,
            transitions: Vec::new(),
            noise: None,
        }
    }
}

impl ProblemSettings for FiniteSum {
    fn check(&self) -> Result<()> {
        crate::noise::check(self.noise.as_ref())?;
        crate::check_linear(self.agents, self.dim)?;
        let most = index_chain::MAX_STATES;
        require((1..=most).contains(&self.terms), "terms", self.terms, &format!("between 1 and {most}"))?;
        crate::check_size("terms", &[self.agents, self.terms, self.dim, self.dim])?;
        Spectrum { least: self.least_eigenvalue, greatest: self.greatest_eigenvalue }.check()?;
        crate::check_spread(self.spread)?;
        require((0.0..=1e300).contains(&self.term_spread), "term_spread", format!("{:?}", self.term_spread), "from 0 to 1e300")?;
        require(self.disagreement.abs() <= 1e300, "disagreement", self.disagreement, "from -1e300 to 1e300")?;
        index_chain::check_mixing_time(self.mixing_time)
    }

    fn without_effect(&self, sampling: &Sampling) -> Option<Error> {
        let default = Self::default();
        let given = [
            ("transitions", !self.transitions.is_empty()),
            ("chain", self.chain != default.chain),
            ("mixing_time", self.mixing_time != default.mixing_time),
            ("chains", self.chains != default.chains),
        ];
        let Some((key, _)) = given.into_iter().find(|(_, is_given)| *is_given && sampling.kind != Law::Markov) else {
            return self.noise.as_ref()?.without_effect(sampling);
        };
        let what = "a setting of the chain of indices, and samples are not those of a trajectory";
        Some(Error::new(key, what, format!("no {key}, or kind = \"markov\" in [sampling]")))
    }

    fn field(&self, _: &dyn Files, sampling: Sampling, isa: Isa) -> Result<Arc<dyn Field>> {
        self.check()?;
        if let ChainStart::State(s) = sampling.start {
            let accepted = format!("a term's index below {}", self.terms);
            require((s as usize) < self.terms, "start", s, &accepted).map_err(|e| e.inside("sampling"))?;
        }
        let chains = if sampling.kind == Law::Markov { self.chains()? } else { Vec::new() };
        let sums = Sums::new(self, chains, sampling)?;
        noise::field(sums, self.noise.as_ref(), sampling, isa, true)
    }

    fn memory(&self, _: &dyn Files, sampling: Sampling, threads: usize) -> Result<MemoryEstimate> {
        self.check()?;
        let (agents, n, d) = (self.agents as f64, self.terms as f64, self.dim as f64);
        let at_work = (threads as f64).min(agents);
        // Terms in the kernel's layout, a mean term of each agent, and chains.
        let layout = |terms: f64| agents * (64.0 * terms * term_chunks(self.dim) as f64 + 200.0);
        let chains = if self.chains == Scope::PerAgent { agents } else { 1.0 };
        let chains = if sampling.kind == Law::Markov { 16.0 * chains * n * n } else { 0.0 };
        let terms = if sampling.kind == Law::Mean { 0.0 } else { n };
        let added = layout(1.0) + layout(terms) + chains;
        // Each thread draws a matrix, and its eigenvalues take two more.
        let making = 5.0 * at_work * memory::matrix(d, d);
        let (peak, kept) = memory::linear(agents, d, false, making, threads);
        let sizes = noise::with_noise((peak + added, kept + added), self.noise.as_ref(), self.agents, self.dim);
        Ok(MemoryEstimate::new(sizes, format!("{} of {} terms, d = {}", memory::agents(self.agents), self.terms, self.dim)))
    }
}

impl FiniteSum {
    /// One chain for all agents, or one for each.
    fn chains(&self) -> Result<Vec<IndexChain>> {
        let n = self.terms;
        if !self.transitions.is_empty() {
            let default = Self::default();
            let given = [
                ("chain", self.chain != default.chain),
                ("mixing_time", self.mixing_time != 1.0),
                ("chains", self.chains != default.chains),
            ];
            if let Some((key, _)) = given.into_iter().find(|(_, is_given)| *is_given) {
                let what = "a setting of a chain that is drawn, beside transitions that are written out";
                return Err(Error::new(key, what, format!("no {key} beside transitions, which decide it")));
            }
            return Ok(vec![IndexChain::given(n, &self.transitions)?]);
        }
        if self.chains == Scope::PerAgent && self.chain != ChainLaw::Random {
            let what = "a chain per agent, and this chain is not random: all would be the same";
            return Err(Error::new("chains", what, "chains = \"shared\", or chain = \"random\""));
        }
        let distinct = if self.chains == Scope::Shared { 1 } else { self.agents };
        crate::check_size("terms", &[distinct, n, n])?;
        let draw = |c: usize| {
            let draws = stream(self.seed, Purpose::System, spectra::CHAIN, self.chains.of(c));
            IndexChain::drawn(self.chain, n, self.mixing_time, draws)
        };
        parallel::try_map(distinct, draw)
    }

    /// The terms of agent `c`, one after the other, before their offsets are centred.
    fn terms(&self, c: usize, mut see: impl FnMut(System)) -> Result<()> {
        let d = self.dim;
        let normals = |what: u64, scale: f64| spectra::normals(d, scale, stream(self.seed, Purpose::System, what, c));
        let scale = match self.scales {
            Scales::One => 1.0,
            Scales::Exponential => -(1.0 - stream(self.seed, Purpose::System, spectra::SCALE, c).uniform()).ln(),
        };
        let common = normals(spectra::SPREAD, self.spread);
        let spectrum = Spectrum { least: self.least_eigenvalue, greatest: self.greatest_eigenvalue };
        for j in 0..self.terms as u64 {
            let mut draws = stream(self.seed, Purpose::System, spectra::TERMS + 2 * j, c);
            let mut a = spectra::symmetric_part(&spectra::gaussian(d, &mut draws));
            spectrum.impose(&mut a)?;
            if scale != 1.0 {
                a *= faer::Scale(scale);
            }
            let own = normals(spectra::TERMS + 2 * j + 1, self.term_spread);
            see(System { a, b: own.iter().zip(&common).map(|(own, common)| own + common).collect() });
        }
        Ok(())
    }
}

/// The random parts of one agent.
struct Agent {
    terms: Symmetric,
    mean: System,
}

/// Finite sums of symmetric terms.
#[derive(Debug)]
struct Sums {
    systems: Systems,
    /// The terms of each agent; empty with mean sampling.
    terms: Vec<Symmetric>,
    /// The mean term of each agent.
    means: Vec<Symmetric>,
    /// The number of terms n.
    states: usize,
    /// One for all agents or one each; empty unless samples follow trajectories.
    chains: Vec<IndexChain>,
    sampling: Sampling,
}

impl Sums {
    fn new(settings: &FiniteSum, chains: Vec<IndexChain>, sampling: Sampling) -> Result<Self> {
        let (n, d) = (settings.terms, settings.dim);
        let weights = equal_weights(settings.agents);
        let mut zeros = vec![vec![0.0; d]; settings.agents];
        spectra::disagree(settings.disagreement, settings.seed, &weights, &mut zeros.iter_mut().map(|b| &mut b[..]).collect::<Vec<_>>());
        // Mean sampling does not keep the terms.
        let kept = if sampling.kind == Law::Mean { 0 } else { n };
        let make = |c: usize| -> Result<Agent> {
            let mut terms = Symmetric::with_capacity(d, kept);
            let mut mean = System { a: Mat::zeros(d, d), b: vec![0.0; d] };
            settings.terms(c, |mut term| {
                term.b.iter_mut().zip(&zeros[c]).for_each(|(b, away)| *b += away);
                mean.a += &term.a;
                mean.b.iter_mut().zip(&term.b).for_each(|(mean, b)| *mean += b);
                if kept > 0 {
                    terms.push(&term);
                }
            })?;
            mean.a *= faer::Scale(1.0 / n as f64);
            mean.b.iter_mut().for_each(|b| *b /= n as f64);
            Ok(Agent { terms, mean })
        };
        let agents = parallel::try_map(settings.agents, make)?;
        let (mut terms, mut kinds) = (Vec::with_capacity(settings.agents), Vec::with_capacity(settings.agents));
        for agent in agents {
            let Agent { terms: own, mean } = agent;
            terms.push(own);
            kinds.push(mean);
        }
        let means = kinds.iter().map(Symmetric::one).collect();
        let systems = Systems::new(kinds, (0..settings.agents as u32).collect(), weights);
        Ok(Self { systems, terms, means, states: n, chains, sampling })
    }

    fn chain(&self, c: usize) -> Option<&IndexChain> {
        if self.chains.len() == 1 { self.chains.first() } else { self.chains.get(c) }
    }

    #[inline(always)]
    fn uniform(&self, stream: &mut Stream) -> u32 {
        (stream.uniform() * self.states as f64) as u32
    }
}

impl Problem for Sums {
    /// The index of a term.
    type Obs = u32;

    fn dim(&self) -> usize {
        self.systems.dim()
    }
    fn weights(&self) -> &[f64] {
        &self.systems.weights
    }
    fn chain_len(&self) -> usize {
        usize::from(!self.chains.is_empty())
    }
    fn start_chain(&self, _: usize, stream: &mut Stream, chain: &mut [u64]) {
        if let Some(state) = chain.first_mut() {
            *state = match self.sampling.start {
                ChainStart::State(s) => u64::from(s),
                ChainStart::Stationary => u64::from(self.uniform(stream)),
            };
        }
    }
    fn is_state(&self, _: usize, chain: &[u64]) -> bool {
        chain.iter().all(|state| *state < self.states as u64)
    }
    #[inline(always)]
    fn sample(&self, c: usize, _: &[f64], chain: &mut [u64], stream: &mut Stream, z: &mut u32) {
        match (chain.first_mut(), self.chain(c)) {
            (Some(state), Some(moves)) => {
                *z = *state as u32;
                *state = u64::from(moves.next(*z, stream.uniform()));
            }
            _ => *z = self.uniform(stream),
        }
    }
    #[inline(always)]
    fn apply(&self, c: usize, theta: &[f64], z: &u32, out: &mut [f64]) {
        self.terms[c].apply(*z as usize, theta, out);
    }
    #[inline(always)]
    fn mean(&self, c: usize, theta: &[f64], out: &mut [f64]) -> bool {
        self.means[c].apply(0, theta, out);
        true
    }
    fn facts(&self) -> &dyn Facts {
        self
    }
    fn local_phase(&self, law: Law) -> Option<StepKernel<Self>> {
        Some(match law {
            Law::Mean => |sums, blocks, etas, isa| blocks.iter_mut().for_each(|lanes| sums.mean_steps(lanes, etas, isa)),
            Law::Iid | Law::Markov => |sums, blocks, etas, isa| blocks.iter_mut().for_each(|lanes| sums.steps(lanes, etas, isa)),
        })
    }
}

impl Sums {
    /// The H local steps with one sample per step.
    fn steps(&self, lanes: &mut Lanes, etas: &[f64], isa: Isa) {
        /// Steps whose samples are drawn ahead: a larger number finds more terms in the cache.
        const AHEAD: usize = 256;
        let terms: [&Symmetric; LANES] = std::array::from_fn(|l| &self.terms[lanes.agents[l.min(lanes.len - 1)]]);
        let mut picks = [[0; LANES]; AHEAD];
        for etas in etas.chunks(AHEAD) {
            let picks = &mut picks[..etas.len()];
            for l in 0..lanes.len {
                let mut stream = lanes.stream(l);
                let chain = &mut lanes.chains[l * lanes.chain_len..][..lanes.chain_len];
                picks.iter_mut().for_each(|picks| self.sample(lanes.agents[l], &[], chain, &mut stream, &mut picks[l]));
                lanes.set_stream(l, stream);
            }
            symmetric::local_phase(lanes, &terms[..lanes.len], picks, etas, isa);
        }
    }

    /// The H local steps on the mean operators.
    fn mean_steps(&self, lanes: &mut Lanes, etas: &[f64], isa: Isa) {
        let means: [&Symmetric; LANES] = std::array::from_fn(|l| &self.means[lanes.agents[l.min(lanes.len - 1)]]);
        symmetric::local_phase(lanes, &means[..lanes.len], &vec![[0; LANES]; etas.len()], etas, isa);
    }
}

impl Facts for Sums {
    fn systems(&self) -> Option<&Systems> {
        Some(&self.systems)
    }
    /// Independent samples are the terms. Samples of a trajectory are moves between terms and see the first one.
    fn law(&self, kind: usize) -> Option<FiniteLaw<'_>> {
        let (n, d) = (self.states, self.dim());
        let terms = self.terms.get(kind).filter(|terms| !terms.is_empty())?;
        let Some(chain) = self.chain(kind) else {
            return Some(FiniteLaw::linear(d, vec![1.0 / n as f64; n], move |z, a, b| terms.parts(z, a, b)));
        };
        let chain = chain.moves();
        let mass = chain.p.iter().map(|p| p / n as f64).collect();
        let from = chain.from.clone();
        Some(FiniteLaw::linear(d, mass, move |z, a, b| terms.parts(from[z] as usize, a, b)).with_chain(chain))
    }
    /// The time to read half a matrix from memory.
    fn sample_ns(&self) -> Option<f64> {
        let d = self.dim() as f64;
        Some(20.0 + 0.35 * d * (d + 8.0))
    }
    /// From the n terms; unknown if `(d^2 + d)^2` numbers would exceed some 70 MB.
    fn moments(&self, kind: usize) -> Option<Moments> {
        const MOST: usize = 3000;
        let (n, d) = (self.states, self.dim());
        let terms = self.terms.get(kind).filter(|terms| !terms.is_empty() && d * d + d <= MOST)?;
        FiniteLaw::linear(d, vec![1.0 / n as f64; n], move |z, a, b| terms.parts(z, a, b)).moments()
    }
}
