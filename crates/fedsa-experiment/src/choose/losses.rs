//! The choice of a method for losses: the facts known before the first round, and rough estimates of the methods' costs.
//!
//! The number of rounds depends on the data. [`ADAPTIVE`] therefore continues to choose during the run, from what the server sees
//! (`fedsa_methods::adaptive_newton::curvature`). This module decides how it begins, and whether another method suits the goal better.

use fedsa::error::{Error, Result};
use fedsa::message::{HEADER_BYTES, PART_HEADER_BYTES};
use fedsa_methods::adaptive_newton::AdaptiveNewton;
use fedsa_methods::adaptive_newton::curvature::{InitialMatrix, NATS_A_ROUND, PATIENCE, PriorKnowledge};
use fedsa_methods::giant::MAX_FORMED;
use fedsa_problems::rows::preparation::Prepared;
use fedsa_theory::cost::{Goal, Network};
use toml::{Table, Value};

/// The method for losses: it obtains curvature from the cheapest source.
pub const ADAPTIVE: &str = "adaptive-newton";

/// The largest number of components with which the server factorises whole Hessians in every round.
const MAX_WHOLE: usize = 4096;
/// Rounds of Newton's method from zero weights to a gradient norm of 1e-9, roughly: 8 to 12 on the data sets of the guide.
const NEWTON_ROUNDS: f64 = 9.0;
/// The decrease of the gradient's norm to 1e-9 in nats (factors of e), roughly.
const NATS: f64 = 18.0;
/// Rounds of gradients before [`ADAPTIVE`] turns to Hessians.
const TRIAL_ROUNDS: f64 = 8.0;
/// Rounds with the agents' own directions if agents are alike, roughly.
const AGREEING_ROUNDS: f64 = 14.0;
/// Rounds with gradients alone, roughly: the geometric mean of 40 to 900 on the same sets.
const GRADIENT_ROUNDS: f64 = 190.0;
/// Products with a Hessian for an agent's own direction by conjugate gradients, roughly.
const PRODUCTS: f64 = 100.0;
/// Multiply-adds in addition to such a product, in units of d.
const BESIDE_A_PRODUCT: f64 = 10.0;
/// Losses and slopes that agents send in a line search of Newton's method, L-BFGS and GIANT.
const SEARCH: f64 = 23.0;
const GIANT_SEARCH: f64 = 12.0;
/// Bytes of an exchange in addition to numbers, both ways: headers of the message and of four parts.
const EXCHANGE_BYTES: f64 = (2 * HEADER_BYTES + 4 * PART_HEADER_BYTES) as f64;
/// Multiply-adds per second and thread, roughly.
const PACE: f64 = 1e9;
/// The speed of products of dense matrices relative to this, cautiously: a factor of 14 was measured with AVX-512.
const DENSE: f64 = 8.0;

/// The facts that a federation can know of its losses before the first round.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct LossFacts {
    /// d.
    pub dim: usize,
    /// The number of rows of each agent.
    pub rows: Vec<usize>,
    /// The number of stored entries of all rows: the non-zero ones of sparse rows.
    pub stored: usize,
    /// Whether Hessians are constant.
    pub is_quadratic: bool,
}

impl LossFacts {
    /// The facts of prepared rows.
    pub fn of(prepared: &Prepared, dim: usize, is_quadratic: bool) -> Self {
        let rows = prepared.train.first.windows(2).map(|ends| ends[1] - ends[0]).collect();
        Self { dim, rows, stored: prepared.train.rows.stored(), is_quadratic }
    }

    /// The inputs of the rule of [`ADAPTIVE`].
    fn prior(&self, first: InitialMatrix) -> PriorKnowledge {
        AdaptiveNewton::default().with_first(first).with_quadratic(self.is_quadratic).prior(self.dim)
    }

    /// Whether [`ADAPTIVE`] asks for one whole Hessian with the first gradient, and needs no other.
    fn begins_whole(&self) -> bool {
        self.prior(InitialMatrix::Agents).begins_whole()
    }

    /// Whether [`ADAPTIVE`] begins with a whole Hessian.
    fn begins_with_hessians(&self) -> bool {
        self.prior(InitialMatrix::Agents).begins_with_hessians(NATS)
    }

    /// The median of the agents' numbers of rows.
    pub fn median_rows(&self) -> usize {
        let mut rows = self.rows.clone();
        rows.sort_unstable();
        rows.get(rows.len() / 2).copied().unwrap_or(0)
    }
}

/// A rough estimate of a method's cost, which data may miss by far.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct LossCost {
    /// Rounds.
    pub rounds: f64,
    /// Exchanges.
    pub exchanges: f64,
    /// Bits of all messages, up and down, of all agents.
    pub bits: f64,
    /// Seconds of computation with the threads of this process.
    pub computation: f64,
    /// Seconds of computation and of messages; without a known network only of computation.
    pub seconds: f64,
}

impl LossCost {
    fn of(self, goal: Goal) -> f64 {
        match goal {
            Goal::Rounds => self.rounds,
            Goal::Seconds => self.seconds,
            Goal::Bits | Goal::Samples => self.bits,
        }
    }
}

/// A candidate for losses.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ConsideredForLosses {
    /// Its kind.
    pub kind: &'static str,
    /// The first source of curvature of [`ADAPTIVE`].
    pub first: Option<InitialMatrix>,
    /// Its estimated cost.
    pub cost: LossCost,
    /// Whether the estimate holds only for agents that are alike.
    pub if_alike: bool,
}

/// A method chosen for losses.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct LossChoice {
    /// Its kind.
    pub kind: &'static str,
    /// Its settings, by the keys of its kind.
    pub settings: Table,
    /// The minimised quantity.
    pub goal: Goal,
    /// The network, if known.
    pub network: Option<Network>,
    /// The reason, in a sentence.
    pub why: String,
    /// The known facts.
    pub facts: LossFacts,
    /// All candidates with their estimates: the chosen one first, then the others by cost.
    pub considered: Vec<ConsideredForLosses>,
}

impl LossChoice {
    /// The choice before any data are known: [`ADAPTIVE`] with its defaults.
    pub(crate) fn unread(tol: f64, is_quadratic: bool) -> (&'static str, Table) {
        (ADAPTIVE, settings(InitialMatrix::Agents, tol, is_quadratic))
    }
}

/// The keys of the method that differ from its defaults.
fn settings(first: InitialMatrix, tol: f64, is_quadratic: bool) -> Table {
    let default = AdaptiveNewton::default();
    let mut table = Table::new();
    if first != default.first {
        table.insert("first".into(), Value::try_from(first).expect("a plain setting"));
    }
    if tol > 0.0 && tol != default.tolerance {
        table.insert("tolerance".into(), Value::Float(tol));
    }
    if is_quadratic {
        table.insert("quadratic".into(), Value::Boolean(true));
    }
    table
}

/// The method for losses over a clear link, to a gradient norm of `tol`. Seconds are those of computation, and of messages if the network
/// is known.
///
/// # Errors
/// When samples are to be minimised (key `goal`): methods for losses use all rows in every round.
pub fn choose_for_losses(facts: LossFacts, goal: Goal, network: Option<Network>, tol: f64) -> Result<LossChoice> {
    if goal == Goal::Samples {
        return Err(Error::new("goal", "samples: methods for losses use all rows in every round", "bits, rounds or seconds"));
    }
    let first = if facts.median_rows() < facts.dim { InitialMatrix::Gradients } else { InitialMatrix::Agents };
    let mut considered = candidates(&facts, first, network);
    let is_small = facts.dim <= MAX_WHOLE;
    // For bits the adaptive method needs no estimates, because it continues to choose.
    let chosen = match goal {
        Goal::Rounds if is_small => 1,
        Goal::Seconds => least(&considered, goal, is_small),
        _ => 0,
    };
    let chosen = considered.remove(chosen);
    considered.sort_by(|a, b| a.cost.of(goal).total_cmp(&b.cost.of(goal)));
    considered.insert(0, chosen);
    let kind = considered[0].kind;
    let settings = if kind == ADAPTIVE { settings(first, tol, facts.is_quadratic) } else { Table::new() };
    let why = why(&facts, (goal, network), kind, first);
    Ok(LossChoice { kind, settings, goal, network, why, facts, considered })
}

/// The candidate with the smallest estimate among those without a big matrix.
fn least(considered: &[ConsideredForLosses], goal: Goal, is_small: bool) -> usize {
    let fits = |(_, candidate): &(usize, &ConsideredForLosses)| is_small || candidate.kind != "newton";
    let all = considered.iter().enumerate().filter(fits).filter(|(_, candidate)| candidate.kind != "giant");
    all.min_by(|(_, a), (_, b)| a.cost.of(goal).total_cmp(&b.cost.of(goal))).map_or(0, |(i, _)| i)
}

fn why(facts: &LossFacts, (goal, network): (Goal, Option<Network>), kind: &str, first: InitialMatrix) -> String {
    let (rows, d) = (facts.median_rows(), facts.dim);
    let whole = 0.5 * (d as f64 + 1.0);
    if kind == ADAPTIVE && goal != Goal::Seconds && facts.begins_whole() {
        return format!("the objective is quadratic: gradients and whole Hessians of {whole:.1} vectors, sent once, give its minimum");
    }
    if kind == ADAPTIVE && goal != Goal::Seconds && facts.begins_with_hessians() {
        return format!(
            "{d} weights: whole Hessians of {whole:.1} vectors are cheap; a new one is sent where rounds with the last one bring little"
        );
    }
    let begins = match first {
        InitialMatrix::Gradients => format!(
            "half of the agents have at most {rows} rows for {d} weights, too few for Newton directions of their own: it begins with \
             gradients alone, 2 vectors an agent and round"
        ),
        _ => format!(
            "half of the agents have at least {rows} rows for {d} weights: it begins with the agents' own Newton directions, 4 vectors an \
             agent and round"
        ),
    };
    let changes = format!(
        "it turns to gradients where it predicts more than {PATIENCE} vectors, and to whole Hessians of {} vectors where these cost less",
        0.5 * (d as f64 + 1.0)
    );
    match (goal, kind) {
        (Goal::Rounds, "newton") => "whole Hessians in every round take the fewest rounds".into(),
        (Goal::Seconds, _) if network.is_some() => "the fewest seconds of messages and computation by rule of thumb".into(),
        (Goal::Seconds, _) => "the least computation by rule of thumb; messages are taken to be free".into(),
        _ => format!("{begins}; {changes}"),
    }
}

/// Rough costs of the methods. A Hessian of sparse rows takes as many multiply-adds as pairs of entries in a row; a Hessian of dense rows
/// is a matrix product.
fn candidates(facts: &LossFacts, first: InitialMatrix, network: Option<Network>) -> Vec<ConsideredForLosses> {
    let (d, agents, stored) = (facts.dim as f64, facts.rows.len() as f64, facts.stored as f64);
    let rows: usize = facts.rows.iter().sum();
    let gradient = 2.0 * stored;
    let pairs = 0.5 * stored * stored / (rows as f64).max(1.0);
    let hessian = if facts.stored == rows * facts.dim { pairs / DENSE } else { pairs };
    let cube = d * d * d / DENSE;
    let (matrix, threads) = (0.5 * (d + 1.0), rayon::current_num_threads() as f64);
    let cost = |rounds: f64, each: f64, vectors: f64, losses: f64, work: f64| {
        let exchanges = rounds * each;
        let bits = agents * (64.0 * rounds * (d * vectors + losses) + 8.0 * exchanges * EXCHANGE_BYTES);
        let computation = rounds * work / (PACE * threads);
        let messages = network.map_or(0.0, |network| network.seconds(exchanges, bits));
        LossCost { rounds, exchanges, bits, computation, seconds: computation + messages }
    };
    // The directions of agents with fewer rows than weights do not agree.
    let has_few_rows = first == InitialMatrix::Gradients;
    let agreeing = if has_few_rows { GRADIENT_ROUNDS } else { AGREEING_ROUNDS };
    let newton = if facts.is_quadratic { 1.0 } else { NEWTON_ROUNDS };
    let of = |kind, first, cost, if_alike| ConsideredForLosses { kind, first, cost, if_alike };
    let direction = match facts.dim <= MAX_FORMED {
        true => hessian + agents * cube / 6.0,
        false => PRODUCTS * (gradient + agents * BESIDE_A_PRODUCT * d),
    };
    let own = direction + 2.0 * gradient;
    let whole = hessian + gradient + cube / 3.0;
    let adaptive = match first {
        _ if facts.begins_whole() => of(ADAPTIVE, Some(InitialMatrix::Hessians), cost(1.0, 1.0, 2.0 + matrix, 1.0, whole), false),
        _ if facts.begins_with_hessians() => {
            let rounds = NATS / NATS_A_ROUND;
            let vectors = facts.prior(first).by_hessians(NATS) / rounds;
            of(ADAPTIVE, Some(InitialMatrix::Hessians), cost(rounds, 1.0, vectors, 1.0, whole), false)
        }
        InitialMatrix::Gradients => {
            let (by_gradients, by_hessians) = (2.0 * GRADIENT_ROUNDS, facts.prior(first).by_hessians(NATS) + 2.0 * TRIAL_ROUNDS);
            // It changes to Hessians if these cost less.
            let rounds = if by_hessians < by_gradients { TRIAL_ROUNDS + NATS / NATS_A_ROUND } else { GRADIENT_ROUNDS };
            of(ADAPTIVE, Some(first), cost(rounds, 1.0, by_gradients.min(by_hessians) / rounds, 1.0, 1.5 * gradient), false)
        }
        _ => of(ADAPTIVE, Some(first), cost(AGREEING_ROUNDS, 2.0, 4.0, 1.0, own), true),
    };
    vec![
        adaptive,
        of("newton", None, cost(newton, 2.0, 3.0 + matrix, SEARCH, hessian + 2.0 * gradient + threads * cube / 3.0), false),
        of("giant", None, cost(agreeing, 3.0, 5.0, GIANT_SEARCH, own + gradient), !has_few_rows),
        of("lbfgs", None, cost(GRADIENT_ROUNDS, 2.0, 3.0, SEARCH, 2.0 * gradient), false),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(dim: usize, rows: &[usize], stored: usize) -> LossFacts {
        LossFacts { dim, rows: rows.to_vec(), stored, is_quadratic: false }
    }

    #[test]
    fn few_rows_begin_with_gradients() {
        for (rows, first) in [(vec![1000; 8], None), (vec![50; 8], Some("gradients")), (vec![50, 50, 1000], Some("gradients"))] {
            let choice = choose_for_losses(facts(300, &rows, 300 * rows.iter().sum::<usize>()), Goal::Bits, None, 1e-6).unwrap();
            assert_eq!(choice.kind, ADAPTIVE);
            assert_eq!(choice.settings.get("first").and_then(Value::as_str), first, "{rows:?}");
            assert_eq!(choice.settings.get("tolerance").and_then(Value::as_float), Some(1e-6));
            assert_eq!(choice.considered[0].kind, ADAPTIVE);
            assert_eq!(choice.why.contains("too few for Newton directions"), first.is_some(), "{}", choice.why);
        }
    }

    /// For least squares the estimate is exact: one exchange, which costs less than every other candidate.
    #[test]
    fn a_small_quadratic_takes_one_exchange() {
        for dim in [2, 20, 135] {
            let facts = LossFacts { is_quadratic: true, ..facts(dim, &[1000; 3], 3000 * dim) };
            let choice = choose_for_losses(facts, Goal::Bits, None, 1e-9).unwrap();
            let ConsideredForLosses { kind, first, cost, if_alike } = choice.considered[0].clone();
            assert_eq!((kind, first, cost.rounds, cost.exchanges, if_alike), (ADAPTIVE, Some(InitialMatrix::Hessians), 1.0, 1.0, false));
            assert!(choice.considered[1..].iter().all(|other| other.cost.bits > cost.bits), "{:?}", choice.considered);
            assert!(choice.why.contains("quadratic") && !choice.why.contains("own Newton directions"), "{}", choice.why);
        }
        // The chosen method has the smallest estimate of bits for other losses too.
        for (dim, rows) in [(2, 1000), (8, 1000), (30, 1000), (30, 10), (300, 1000), (300, 20)] {
            let choice = choose_for_losses(facts(dim, &[rows; 3], 3 * rows * dim), Goal::Bits, None, 1e-9).unwrap();
            let least = choice.considered.iter().map(|one| one.cost.bits).fold(f64::INFINITY, f64::min);
            assert_eq!((choice.considered[0].kind, choice.considered[0].cost.bits), (ADAPTIVE, least), "{dim}, {rows}");
        }
    }

    /// GIANT took 2 to 4 s with 2,000 sparse rows of 50,000 columns, whose Hessian is never formed.
    #[test]
    fn wide_rows_have_directions_without_hessians() {
        let choice = choose_for_losses(facts(50_000, &[250; 8], 150_000), Goal::Bits, None, 1e-9).unwrap();
        let giant = choice.considered.iter().find(|candidate| candidate.kind == "giant").unwrap();
        assert!((0.1..60.0).contains(&giant.cost.seconds), "{}", giant.cost.seconds);
    }

    #[test]
    fn rounds_and_seconds_have_methods_of_their_own() {
        // Estimates of seconds depend on the threads.
        let threads = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        let chosen = |dim, stored, goal| choose_for_losses(facts(dim, &[10_000; 4], stored), goal, None, 1e-9).unwrap().kind;
        let kind = |dim, stored, goal| threads.install(|| chosen(dim, stored, goal));
        assert_eq!(kind(300, 12_000_000, Goal::Rounds), "newton");
        assert_eq!(kind(10_000, 400_000, Goal::Rounds), ADAPTIVE);
        // Hessians are cheap with ten entries a row, expensive with two thousand, and cheap again for dense rows of a few hundred.
        assert_eq!(kind(100, 400_000, Goal::Seconds), "newton");
        assert_eq!(kind(784, 31_360_000, Goal::Seconds), "newton");
        assert_eq!(kind(2_000, 80_000_000, Goal::Seconds), "lbfgs");
        // If messages take seconds, few exchanges are best; if bits take time, methods without whole Hessians.
        let over = |latency, bandwidth| {
            let network = Network::of(Some(latency), bandwidth).unwrap();
            choose_for_losses(facts(2_000, &[10_000; 4], 80_000_000), Goal::Seconds, network, 1e-9).unwrap()
        };
        let (fast, slow, narrow) = (over(0.0, None), over(3.0, None), over(3.0, Some(1e5)));
        assert_eq!((fast.kind, slow.kind, narrow.kind), ("lbfgs", "newton", ADAPTIVE));
        for choice in [fast, slow, narrow] {
            for LossCost { exchanges, bits, computation, seconds, .. } in choice.considered.iter().map(|one| one.cost) {
                assert_eq!(seconds, computation + choice.network.unwrap().seconds(exchanges, bits));
            }
        }
        for (key, latency, bandwidth) in [("latency", -1.0, None), ("bandwidth", 1.0, Some(0.0))] {
            assert_eq!(Network::of(Some(latency), bandwidth).unwrap_err().key, key);
        }
        assert_eq!(Network::of(None, None).unwrap(), None);
        let e = choose_for_losses(facts(10, &[10], 100), Goal::Samples, None, 1e-9).unwrap_err();
        assert_eq!(e.key, "goal");
    }
}
