//! FedNL: agents and server learn the Hessian together, from compressed corrections.
//!
//! ```text
//! round t:   agent c sends grad f_c(theta_t), S_c = C(Hess f_c(theta_t) - H_c), l_c = ||H_c - Hess f_c(theta_t)||_F
//!            H = sum_c p_c H_c,  l = sum_c p_c l_c,  g = sum_c p_c grad f_c(theta_t)
//!            theta_{t+1} = theta_t - eta M^-1 g,  M = [H]_mu (option projection) or H + l I (option shift)
//!            H_c <- H_c + alpha S_c                                        (agents and server)
//! ```
//! The step of a round uses the Hessian learned before it, and its distance, as in the source. Source: Safaryan, Islamov, Qian and
//! Richtarik (2022), algorithm 1 (\[125\] of \[T\]), options 1 and 2; its algorithm 2 for m of N agents; the line search is its algorithm
//! 3.
//!
//! **First Hessians.** `first_hessian = "full"`: in its first round each agent sends its whole Hessian as `H_c`, so that the first step is
//! Newton's. `first_hessian = "mu-identity"`: `H_c = mu I` at both ends, and nothing is sent.
//!
//! **Sparse data.** An entry of the Hessian of sparse rows is 0, at every theta, unless some row has both columns. Agents compute the
//! Hessian, its difference from `H_c` and the correction at the other entries only ([`fedsa::triangle::Support`]). They send whole Hessians
//! as entries with their indices if that is shorter. The server keeps `H_c` at the entries of the whole Hessian, and adds missing entries
//! of corrections (starting from `mu I`). Compressed matrices and norms equal those of the matrices with all entries. With `rank-1`,
//! corrections change all entries, and both ends keep all.
//!
//! With `fresh`, the step of a round uses `H_c` and `l_c` after the corrections of the round, as the code of algorithm 2 by Burlachenko and
//! Richtarik (2024) does.
//!
//! **Non-participants** (m of N, or a lost answer) count with their last answer. In the source's algorithm 2 each agent sends
//! `(H_c + l_c I) w_c - grad f_c(w_c)` at its last model `w_c`. Here the server keeps `H_c`, `w_c` and the gradient of each agent, and
//! computes the same: the step minimises the sum of the agents' last quadratic models. With all agents it is the step above. It settles at
//! the root, although no round includes all agents. For all agents, `H_c` excludes the round's corrections, as with full participation. An
//! agent also sends `||H_c + alpha S_c - Hess f_c(theta_t)||_F`, which is its `l_c` in later rounds, until its next answer. All agents take
//! part in each round until all have answered once.
//!
//! **If M is not positive definite** (indefinite Hessians, or missing agents), or gives no finite step: with a line search the direction is
//! minus the mean gradient of the answers to `theta_t`. Without one, theta stays in this round, and the metric `failed_searches` counts it.
//! The Hessians are still learned, so M changes.
//!
//! **Lost or repeated messages.** Agent and server must hold the same `H_c`; the server keeps a copy. An agent applies its sent change at
//! the next question, and drops it if the question says that the answer did not count ([`Part::Counted`]). If an agent's state differs from
//! the server's assumption, because it was restored from an older state or from none, the server asks for its whole Hessian in its next
//! round, and both restart from it ([`fedsa::node`]).
//!
//! **Pairs in few bits.** With `pair_bits`, the vector of a rank-1 correction has this many bits per component, by the quantiser of Q-SHED
//! with subtractive dither ([`crate::nested_grid`]), and lambda has 64 bits. Both ends use the rounded values (`compressor/pairs.rs`).
//! Lambda is the best number for the rounded vector, `v^^T M v^ / ||v^||^4`, up to rounding the eigenvalue, which the source of \[T\]
//! Figures 3.1 and 3.2 uses. With few bits the eigenvalue could move `H_c` away from the Hessian; this number cannot. Over a link with a
//! bit budget, an agent whose link carries fewer bits per component in a round sends no correction in this round. Gradients, lambda and
//! whole Hessians are then sent exactly and outside of the budget.
//!
//! Codecs change gradients only, and not with `pair_bits`; corrections have a separate compressor. Refused over the air (each agent's
//! correction is needed), and over `delay` and `late`.

mod client;
mod compressor;
mod server;

use std::sync::Arc;

use fedsa::error::{Error, Result, require};
use fedsa::local::{ByAgent, Client};
use fedsa::message::Part;
use fedsa::method::{MethodSettings, MethodShape, Needs, Setting};
use fedsa::protocol::{Exchange, Gather, Len, Protocol, ReplySpec};
use fedsa::server::{Participation, Server};
use serde::{Deserialize, Serialize};

use crate::local::line_search::Trials;
use crate::nested_grid::MAX_BITS;
use crate::{at_work, descent};
use client::FedNlAgent;
use compressor::{Compressor, Full, Natural, PackedPair, RandEntries, RandSequence, RankOne, TopEntries, TopLek};
use server::{Definite, FedNlRule, FedNlServer};

/// The compressor of corrections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Compression {
    /// Eigenpair of largest magnitude.
    #[serde(rename = "rank-1")]
    RankOne,
    /// The k largest entries of the triangle, with indices.
    #[default]
    TopK,
    /// TopLEK: as few of the largest entries as the bound of `top-k` needs on average, at most k, with indices.
    TopLek,
    /// k random entries of the upper triangle; both ends draw the indices.
    RandK,
    /// RandSeqK: k entries one after the other, from a random one on.
    RandSeqK,
    /// Entries rounded to powers of two, at random and without bias.
    Natural,
    /// The whole difference.
    Full,
}

/// How the learned Hessian becomes positive definite.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Remedy {
    /// Option 1: eigenvalues below `mu` become `mu`.
    Projection,
    /// Option 2: adds the mean distance from true Hessians to the diagonal.
    #[default]
    Shift,
}

/// First learned Hessians.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum FirstHessian {
    /// The agents' Hessians, sent whole.
    #[default]
    Full,
    /// `mu I`.
    MuIdentity,
}

/// The settings of FedNL.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct FedNl {
    /// Compressor of Hessian corrections.
    pub compressor: Compression,
    /// Entries of `top-k`, `top-lek`, `rand-k` or `rand-seq-k`; 8 d by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub k: Option<usize>,
    /// Bits per component of `rank-1` vectors; 64 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 32)))]
    pub pair_bits: Option<u32>,
    /// How the learned Hessian becomes positive definite.
    pub option: Remedy,
    /// Lower bound of Hessian eigenvalues, for `projection` and `mu-identity`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))]
    pub mu: Option<f64>,
    /// Learned share of a correction; 1 by default, 1 / (1 + omega) if unbiased.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))]
    pub learning_rate: Option<f64>,
    /// First learned Hessians.
    pub first_hessian: FirstHessian,
    /// Step size without line search.
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))]
    pub step_size: f64,
    /// Backtrack in a second exchange.
    pub line_search: bool,
    /// Most halvings.
    #[cfg_attr(feature = "schema", schemars(range(max = 60)))]
    pub halvings: usize,
    /// Armijo constant.
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0, "exclusiveMaximum" = 0.5)))]
    pub decrease: f64,
    /// Participants; all by default. Not with `line_search`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub participants: Option<usize>,
    /// The step of a round uses the corrections of the round.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub fresh: bool,
}

fedsa::settings::setters! { FedNl {
    with_compressor(compressor: Compression) = compressor;
    with_k(k: impl Into<Option<usize>>) = k.into();
    with_pair_bits(pair_bits: impl Into<Option<u32>>) = pair_bits.into();
    with_option(option: Remedy) = option;
    with_mu(mu: impl Into<Option<f64>>) = mu.into();
    with_learning_rate(learning_rate: impl Into<Option<f64>>) = learning_rate.into();
    with_first_hessian(first_hessian: FirstHessian) = first_hessian;
    with_step_size(step_size: f64) = step_size;
    with_line_search(line_search: bool) = line_search;
    with_halvings(halvings: usize) = halvings;
    with_decrease(decrease: f64) = decrease;
    with_participants(participants: impl Into<Option<usize>>) = participants.into();
    with_fresh(fresh: bool) = fresh;
} }

impl Default for FedNl {
    fn default() -> Self {
        Self {
            compressor: Compression::default(),
            k: None,
            pair_bits: None,
            option: Remedy::default(),
            mu: None,
            learning_rate: None,
            first_hessian: FirstHessian::default(),
            step_size: 1.0,
            line_search: false,
            halvings: 20,
            decrease: 1e-4,
            participants: None,
            fresh: false,
        }
    }
}

impl FedNl {
    fn compressor(&self, d: usize) -> Arc<dyn Compressor> {
        let k = self.k.unwrap_or(8 * d);
        match (self.compressor, self.pair_bits) {
            (Compression::RankOne, None) => Arc::new(RankOne),
            (Compression::RankOne, Some(bits)) => Arc::new(PackedPair(bits)),
            (Compression::TopK, _) => Arc::new(TopEntries(k)),
            (Compression::TopLek, _) => Arc::new(TopLek(k)),
            (Compression::RandK, _) => Arc::new(RandEntries(k)),
            (Compression::RandSeqK, _) => Arc::new(RandSequence(k)),
            (Compression::Natural, _) => Arc::new(Natural),
            (Compression::Full, _) => Arc::new(Full),
        }
    }

    fn learning_rate(&self, d: usize) -> f64 {
        self.learning_rate.unwrap_or_else(|| self.compressor(d).learning_rate(d))
    }

    fn trials(&self) -> Option<Trials> {
        self.line_search.then(|| Trials::new(0.5, self.halvings, self.decrease))
    }

    /// mu of the first learned Hessians.
    fn first(&self) -> Option<f64> {
        self.mu.filter(|_| self.first_hessian == FirstHessian::MuIdentity)
    }
}

impl MethodSettings for FedNl {
    fn check(&self, agents: usize) -> Result<()> {
        descent::check_search(self.halvings, self.decrease)?;
        descent::check_positive("step_size", self.step_size)?;
        self.mu.map_or(Ok(()), |mu| descent::check_positive("mu", mu))?;
        require(self.k.is_none_or(|k| k >= 1), "k", 0, "at least 1")?;
        if let Some(rate) = self.learning_rate {
            require(rate > 0.0 && rate <= 1.0, "learning_rate", rate, "above 0 and at most 1")?;
        }
        if self.k.is_some() && matches!(self.compressor, Compression::RankOne | Compression::Natural | Compression::Full) {
            let help = "k with top-k, top-lek, rand-k or rand-seq-k";
            return Err(Error::new("k", "a number of entries for a compressor that has none", help));
        }
        if let Some(bits) = self.pair_bits {
            if self.compressor != Compression::RankOne {
                return Err(Error::new(
                    "pair_bits",
                    "bits of vectors for a compressor that sends none",
                    "pair_bits with compressor = \"rank-1\"",
                ));
            }
            require((1..=MAX_BITS).contains(&bits), "pair_bits", bits, &format!("between 1 and {MAX_BITS}"))?;
        }
        if self.mu.is_none() && (self.option == Remedy::Projection || self.first_hessian == FirstHessian::MuIdentity) {
            let what = "no mu, and option = \"projection\" and first_hessian = \"mu-identity\" are with mu";
            return Err(Error::new("mu", what, "a lower bound of the eigenvalues of the Hessians, such as the ridge"));
        }
        let m = self.participants.unwrap_or(agents);
        require((1..=agents).contains(&m), "participants", m, &format!("between 1 and the number of agents, {agents}"))?;
        if self.line_search && m < agents {
            let what = format!("{m} of {agents} agents with a line search, whose losses would be those of these agents alone");
            return Err(Error::new("participants", what, "all agents, or line_search = false"));
        }
        Ok(())
    }

    /// The entries of a triangle have 32-bit indices.
    fn largest_dimension(&self) -> usize {
        (1 << 16) - 1
    }

    fn needs(&self) -> Needs {
        Needs::Objective
    }

    fn protocol(&self, setting: &Setting<'_>) -> Protocol {
        let d = setting.start.len();
        let want = |part, len| ReplySpec { part, len, gather: Gather::Each };
        let gradient = want(self.compressor(d).gradient_part(), Len::Exactly(d));
        let whole = Exchange {
            down: vec![(Part::Model, Len::Exactly(d))],
            own: vec![(Part::Counted, Len::Exactly(1))],
            replies: vec![gradient, want(Part::Hessian, Len::Exactly(d * (d + 1) / 2))],
            may_open: true,
        };
        let (part, len) = self.compressor(d).part(d);
        let correct = Exchange {
            down: vec![(Part::Model, Len::Exactly(d))],
            own: vec![(Part::Counted, Len::Exactly(1))],
            replies: vec![gradient, want(Part::Deviation, Len::Exactly(2)), want(part, len)],
            may_open: true,
        };
        // It follows either of the others.
        let search = self.trials().map(|trials| Exchange { may_open: true, ..trials.exchange(d) });
        Protocol { exchanges: [whole, correct].into_iter().chain(search).collect(), ..Protocol::default() }
    }

    fn client(&self, setting: &Setting<'_>) -> Box<dyn Client> {
        let d = setting.start.len();
        let (compressor, rate, trials, first) = (self.compressor(d), self.learning_rate(d), self.trials(), self.first());
        ByAgent::boxed(move |_| Box::new(FedNlAgent::new(Arc::clone(&compressor), rate, trials.clone(), first)))
    }

    fn server(&self, setting: &Setting<'_>) -> Box<dyn Server> {
        let d = setting.start.len();
        let definite = match (self.option, self.mu) {
            (Remedy::Projection, Some(mu)) => Definite::Projection(mu),
            _ => Definite::Shift,
        };
        let rule = FedNlRule {
            compressor: self.compressor(d),
            learning_rate: self.learning_rate(d),
            definite,
            first: self.first(),
            step: self.step_size,
            trials: self.trials(),
            is_fresh: self.fresh,
            participation: Participation { m: self.participants, agents: setting.agents(), seed: setting.seed },
        };
        Box::new(FedNlServer::new(setting.start.clone(), setting.weights.to_vec(), setting.seed, rule))
    }

    /// The learned Hessian of each agent at both ends, at most d (d + 1) / 2 numbers each, with the indices of its entries at the agent, in
    /// its sums of sparse rows, and at the server. A whole Hessian in transit, or later a correction with its agent's record; two vectors
    /// at each end. The server has the sum, M, and a factor, or eigenvectors with two scratch matrices. An answering agent has its Hessian
    /// with all entries or the sums of its rows, the difference, and the positions of indices.
    fn memory(&self, agents: usize, d: usize) -> f64 {
        let (square, vector) = ((d as f64).powi(2), d as f64);
        let triangle = (square + vector) / 2.0;
        let change = self.compressor(d).memory(d);
        let sent = match self.first_hessian {
            FirstHessian::Full => triangle.max(2.0 * change),
            FirstHessian::MuIdentity => 2.0 * change,
        };
        let kept = agents as f64 * ((2.0 + 3.0 * 0.5) * triangle + sent + 4.0 * vector);
        let solving = match self.option {
            Remedy::Projection => 3.0 * square,
            Remedy::Shift => square,
        };
        let answering = at_work(agents) * (square + 2.5 * triangle);
        8.0 * (kept + triangle + square + solving + answering)
    }

    /// A matrix product for the gradient and each loss, the Hessian, its difference and the compressor.
    fn work(&self, _: usize, d: usize) -> f64 {
        let losses = self.trials().map_or(0, |trials| trials.losses());
        (4 + losses) as f64 * (d as f64).powi(2) + self.compressor(d).work(d)
    }

    fn shape(&self) -> MethodShape {
        MethodShape { participants: self.participants, ..MethodShape::without_local_steps() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For each agent two learned Hessians with three indices per entry, and the message; the server's sum, M and its factor; and scratch
    /// memory of an agent at work.
    #[test]
    fn memory_is_that_of_what_is_learned_and_sent() {
        let d = 100;
        let (square, triangle) = (10_000.0, 5050.0);
        let numbers = |fednl: &FedNl, agents: usize| fednl.memory(agents, d) / 8.0;
        let per_agent = |sent: f64| 3.5 * triangle + sent + 400.0;
        let once = triangle + 2.0 * square + square + 2.5 * triangle;
        let pairs = FedNl { compressor: Compression::RankOne, ..FedNl::default() };
        assert_eq!(numbers(&pairs, 1), per_agent(triangle) + once);
        let projection = FedNl { option: Remedy::Projection, mu: Some(1.0), ..pairs };
        assert_eq!(numbers(&projection, 1), per_agent(triangle) + once + 2.0 * square);
        for (compressor, k, pair_bits, sent) in [
            (Compression::RankOne, None, None, 101.0),
            // Lambda, components across, and the codes.
            (Compression::RankOne, None, Some(16), (64.0 + 67.0 + 1600.0) / 64.0),
            (Compression::TopK, None, None, 1.5 * 800.0),
            (Compression::TopK, Some(1_000_000), None, 1.5 * triangle),
            (Compression::RandK, Some(1_000_000), None, triangle),
            (Compression::RandK, Some(70), None, 70.0),
            (Compression::Natural, None, None, 1.5 * triangle / 8.0),
            (Compression::Full, None, None, triangle),
        ] {
            let first_hessian = FirstHessian::MuIdentity;
            let fednl = FedNl { compressor, k, pair_bits, mu: Some(1.0), first_hessian, ..FedNl::default() };
            let off = numbers(&fednl, 1) - per_agent(2.0 * sent) - once;
            assert!(off.abs() < 1.0, "{compressor:?}, {k:?}, {pair_bits:?}: {off}");
        }
        // Scratch memory grows with agents up to the number of threads.
        let more = numbers(&FedNl::default(), 1001) - numbers(&FedNl::default(), 1000);
        assert!(more >= per_agent(triangle) && more <= per_agent(triangle) + square + 2.5 * triangle, "{more}");
    }
}
