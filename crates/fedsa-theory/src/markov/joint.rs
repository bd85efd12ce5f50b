//! A few agents under Markov samples: exact, on the joint chain of all agents.
//!
//! Every method's round is written as instructions on registers (`registers.rs`):
//!
//! ```text
//! FedLSA      each agent: H steps from u;  u <- sum p_c u_c
//! FedHSA      each agent: q_c = g_c(u, z_c0);  u <- u + eta G with G = sum p_c q_c, which is every agent's first step;
//!             each agent: H - 1 more steps with the drift G - q_c;  u <- sum p_c u_c
//! SCAFFLSA    each agent: H steps with the drift x_c;  x_c <- x_c + (sum p_e u_e - u_c) / (eta H);  u <- sum p_e u_e
//! ```
//!
//! `x_c = xi_c - xi*_c` with `xi*_c = wbar_c`. Since `sum p_c x_c = 0`, the last agent's `x_N` follows from the others. So no unknown
//! direction stays unchanged by a round.

use super::one_agent::step;
use super::registers::{Instruction, RoundMap};
use super::stationary::CellMap;
use super::{AgentClass, MarkovAgent, MarkovFloor, MarkovRule};
use crate::RoundSetting;
use crate::exact_mse::InitialControls;
use fedsa::error::{Error, Result, require};
use fedsa::linalg;
use fedsa::sampling::ChainStart;

/// The most unknowns, and the most numbers within a round.
const MAX_UNKNOWNS: usize = 1 << 20;
const MAX_NUMBERS: usize = 1 << 25;

/// The exact mean and second moment of `theta_t - theta*` for a few agents. Each local step takes the mean of `batch` consecutive
/// samples of the agent's chain.
///
/// Cost of a round: `prod K_c * N H nnz(P) / K` updates of a register, of about `(registers * d) d^2` operations each.
#[derive(Debug, Clone)]
pub struct Joint {
    rule: MarkovRule,
    map: RoundMap,
    weights: Vec<f64>,
    /// `xi*_c = wbar_c` of every agent.
    controls: Vec<Vec<f64>>,
}

/// The number of unknowns of the floor's second moments: `prod K_c` packed matrices of d coordinates, or N d for SCAFFLSA. A
/// number that does not fit is `usize::MAX`.
pub fn unknowns(classes: &[AgentClass], rule: MarkovRule) -> usize {
    let agents: usize = classes.iter().map(|c| c.count).fold(0, usize::saturating_add);
    let d = classes.first().map_or(0, |c| c.agent.dim);
    let n = if rule == MarkovRule::Scafflsa { agents.saturating_mul(d) } else { d };
    let cells = classes.iter().try_fold(1usize, |cells, c| cells.checked_mul(c.agent.states.checked_pow(u32::try_from(c.count).ok()?)?));
    let packed = n.checked_add(1).and_then(|m| Some(n.checked_mul(m)? / 2));
    cells.zip(packed).and_then(|(cells, packed)| cells.checked_mul(packed)).unwrap_or(usize::MAX)
}

impl Joint {
    /// The recursion on the joint chain of all agents.
    ///
    /// # Errors
    /// - When there are no agents, or their dimensions differ.
    /// - When the server's step is not 1, or the batch is 0.
    /// - When a round has more than 10^6 samples of an agent, or there are more than 2^20 unknowns or 2^25 numbers within a round.
    pub fn new(classes: &[AgentClass], setting: &RoundSetting, rule: MarkovRule, batch: u64) -> Result<Self> {
        super::check(classes, setting)?;
        super::check_samples(setting.local_steps, batch)?;
        let size = unknowns(classes, rule);
        let too_large = |size: usize, what: &str, most: usize| {
            let size = if size == usize::MAX { "too many".to_string() } else { size.to_string() };
            Error::not_known(
                "",
                format!("a joint chain with {size} {what}"),
                format!("fewer agents or states, so that there are at most {most}"),
            )
        };
        if size > MAX_UNKNOWNS {
            return Err(too_large(size, "unknowns", MAX_UNKNOWNS));
        }
        let agents: Vec<&MarkovAgent> = classes.iter().flat_map(|c| std::iter::repeat_n(&c.agent, c.count)).collect();
        let weights: Vec<f64> = agents.iter().map(|a| a.weight).collect();
        // The methods are the same for one agent.
        let rule = if agents.len() == 1 { MarkovRule::FedLsa } else { rule };
        let round = Round { weights: &weights, eta: setting.step_size, steps: setting.local_steps, batch };
        let (main, registers, instructions) = match rule {
            MarkovRule::FedLsa => round.fedlsa(),
            MarkovRule::FedHsa => round.fedhsa(),
            MarkovRule::Scafflsa => round.scafflsa(),
        };
        let side = registers * agents[0].dim + 1;
        let numbers = agents.iter().fold(side * side, |n, a| n.saturating_mul(a.states));
        if numbers > MAX_NUMBERS {
            return Err(too_large(numbers, "numbers", MAX_NUMBERS));
        }
        let controls = agents.iter().map(|a| a.mean_w()).collect();
        let map = RoundMap::new(&agents, main, registers, instructions, rule == MarkovRule::Scafflsa);
        Ok(Self { rule, map, weights, controls })
    }

    pub(super) fn map(&self) -> &dyn CellMap {
        &self.map
    }

    /// The approximate multiplications of a round of the second moments, one per nanosecond.
    pub(crate) fn work(&self) -> f64 {
        self.map().second_work()
    }

    /// The floor of chains that start from their stationary laws.
    ///
    /// # Errors
    /// When the mean-square error diverges, or a linear solve does not converge.
    pub fn floor(&self) -> Result<MarkovFloor> {
        self.map().floor()
    }

    /// The error at the start of each of `rounds` (ascending), from `offset = theta_0 - theta*` (d). Only SCAFFLSA uses `controls`, in
    /// the order of the agents.
    ///
    /// # Errors
    /// When rounds are not in ascending order, shapes differ, the start is no state of every closed class, or given controls do not sum
    /// to 0.
    pub fn curve(&self, offset: &[f64], controls: &InitialControls, start: ChainStart, rounds: &[u64]) -> Result<Vec<MarkovFloor>> {
        let d = self.map.dim();
        require(offset.len() == d, "theta_0", offset.len(), &format!("{d} numbers"))?;
        let mut y = offset.to_vec();
        if self.rule == MarkovRule::Scafflsa {
            let n = self.weights.len();
            let initial: Vec<Vec<f64>> = match controls {
                InitialControls::Root => vec![vec![0.0; d]; n],
                InitialControls::Zero => self.controls.iter().map(|xi| xi.iter().map(|x| -x).collect()).collect(),
                InitialControls::Given(given) => {
                    let fits = given.len() == n && given.iter().all(|xi| xi.len() == d);
                    require(fits, "controls", given.len(), &format!("one vector of {d} numbers for each of {n} agents"))?;
                    let scale = given.iter().map(|xi| linalg::norm_sq(xi).sqrt()).fold(0.0, f64::max);
                    for i in 0..d {
                        let sum: f64 = self.weights.iter().zip(given).map(|(p, xi)| p * xi[i]).sum();
                        require(sum.abs() <= 1e-12 * scale, "controls", sum, "vectors whose weighted sum is 0")?;
                    }
                    given.iter().zip(&self.controls).map(|(xi, root)| xi.iter().zip(root).map(|(x, r)| x - r).collect()).collect()
                }
            };
            y.extend(initial[..n - 1].iter().flatten());
        }
        let q = self.map.start_law(start)?;
        self.map().curve(self.map().start(&y, &q), rounds)
    }
}

/// The settings of a round that its instructions use.
struct Round<'a> {
    weights: &'a [f64],
    eta: f64,
    steps: u64,
    batch: u64,
}

/// The number of lasting registers, the number of all registers, and the instructions.
type Program = (usize, usize, Vec<Instruction>);

fn set(into: usize, terms: &[(f64, usize)]) -> Instruction {
    Instruction::Combine { into, terms: terms.to_vec() }
}

impl Round<'_> {
    /// `steps` local steps of an agent on register `at`, each with `eta drift` if there is a drift.
    fn local(&self, agent: usize, at: usize, spare: usize, steps: u64, drift: Option<usize>, to: &mut Vec<Instruction>) {
        let mut one = step(agent, at, spare, self.eta, self.batch).0;
        // `A u` uses u before the drift is added.
        one.extend(drift.map(|drift| set(at, &[(1.0, at), (self.eta, drift)])));
        (0..steps).for_each(|_| to.extend(one.iter().cloned()));
    }

    fn fedlsa(&self) -> Program {
        let (u, sum, own, spare) = (0, 1, 2, 3);
        let mut round = vec![set(sum, &[])];
        for (c, p) in self.weights.iter().enumerate() {
            round.push(set(own, &[(1.0, u)]));
            self.local(c, own, spare, self.steps, None, &mut round);
            round.push(set(sum, &[(1.0, sum), (*p, own)]));
        }
        round.push(set(u, &[(1.0, sum)]));
        (1, if self.batch == 1 { 3 } else { 4 }, round)
    }

    fn fedhsa(&self) -> Program {
        let n = self.weights.len();
        let (u, sum, own, drift, spare) = (0, n + 1, n + 2, n + 3, n + 4);
        let first = |c: usize| c + 1;
        let mut round = Vec::new();
        for c in 0..n {
            round.push(set(first(c), &[]));
            let sample = Instruction::Sample { agent: c, into: first(c), at: u, scale: 1.0 / self.batch as f64 };
            round.extend((0..self.batch).map(|_| sample.clone()));
        }
        let mean: Vec<(f64, usize)> = self.weights.iter().enumerate().map(|(c, p)| (*p, first(c))).collect();
        // With the drift G - g_c(u, z_c0) the first step is eta G.
        let step: Vec<(f64, usize)> = std::iter::once((1.0, u)).chain(mean.iter().map(|(p, q)| (self.eta * p, *q))).collect();
        round.push(set(u, &step));
        round.push(set(sum, &[]));
        for (c, p) in self.weights.iter().enumerate() {
            let difference: Vec<(f64, usize)> = mean.iter().copied().chain([(-1.0, first(c))]).collect();
            round.push(set(drift, &difference));
            round.push(set(own, &[(1.0, u)]));
            self.local(c, own, spare, self.steps - 1, Some(drift), &mut round);
            round.push(set(sum, &[(1.0, sum), (*p, own)]));
        }
        round.push(set(u, &[(1.0, sum)]));
        (1, if self.batch == 1 { n + 4 } else { n + 5 }, round)
    }

    fn scafflsa(&self) -> Program {
        let n = self.weights.len();
        let (u, sum, own, last, spare) = (0, n, n + 1, n + 2, n + 3);
        let span = self.eta * self.steps as f64;
        let control = |c: usize| if c + 1 < n { c + 1 } else { last };
        let p_last = self.weights[n - 1];
        let eliminated: Vec<(f64, usize)> = (0..n - 1).map(|c| (-self.weights[c] / p_last, control(c))).collect();
        let mut round = vec![set(last, &eliminated), set(sum, &[])];
        for (c, p) in self.weights.iter().enumerate() {
            round.push(set(own, &[(1.0, u)]));
            self.local(c, own, spare, self.steps, Some(control(c)), &mut round);
            round.push(set(sum, &[(1.0, sum), (*p, own)]));
            if c + 1 < n {
                round.push(set(control(c), &[(1.0, control(c)), (-1.0 / span, own)]));
            }
        }
        round.push(set(u, &[(1.0, sum)]));
        round.extend((0..n - 1).map(|c| set(control(c), &[(1.0, control(c)), (1.0 / span, sum)])));
        (n, if self.batch == 1 { n + 3 } else { n + 4 }, round)
    }
}
