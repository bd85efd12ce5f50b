//! The mean-square error of many agents by a closure: exact for each agent's chain, first order in the dependence on several chains.
//!
//! The closure keeps `M_c(i) = E[x x^T 1{s_c = i}]` for every agent c and state i of its chain, with `x = (u, 1)` (SCAFFLSA: with the
//! controls). It assumes that `E[x x^T | s_1 .. s_N]` is a sum of functions of one agent's state each. So for two agents e and f
//!
//! ```text
//! E[x x^T 1{s_e = i, s_f = k}] = pi_f(k) M_e(i) + pi_e(i) M_f(k) - pi_e(i) pi_f(k) X        X = sum_i M_c(i)
//! ```
//!
//! A round is then a linear map of all M_c. Given the states at its start, the agents' random maps Pi_c are independent. With
//! `F_c[i,j] = E[Pi_c 1{s_H = j} | s_0 = i]`, `K_c[i,j]` the same of `Pi_c (x) Pi_c`, stationary means Fb and Kb,
//! `V_e = Kb_e - Fb_e (x) Fb_e`, `L_c` the mean round without agent c, weights q_c and `M~_c(i) = M_c(i) - pi_c(i) X`,
//!
//! ```text
//! M_c(j) <- q_c^2 sum_i K_c[i,j] M_c(i) + Y + Y^T + L_c Pm(j) L_c^T + sum_{e != c} q_e^2 V_e Pm(j)
//!           + pi_c(j) (Q L_c^T + L_c Q^T + T)                          Pm(j) = sum_i (P_c^H)_ij M_c(i)
//! Y = q_c sum_i F_c[i,j] (M_c(i) L_c^T + pi_c(i) Q^T)                   Q = sum_{e != c} q_e Q_e, T = sum_{e != c} q_e^2 T_e
//! Q_e = sum_ij F_e[i,j] M~_e(i)                                         T_e = sum_ij K_e[i,j] M~_e(i) - Q_e Fb_e^T - Fb_e Q_e^T
//! ```
//!
//! The K_c are not formed: the M_c are propagated through the H steps. Only the V_e are matrices.
//!
//! The closure is exact for one agent, for samples that are independent in time, and if `A_c` is not random. Otherwise the relative
//! error is about [`Closure::eps_squared`], and usually far below 1%. FedHSA's first samples couple the agents. White noise replaces
//! the terms of second order in both agents' noise; this is exact for independent samples.

mod fedhsa;
mod phase;
mod plain;
mod round;
mod scafflsa;
mod solve;
mod steps;
#[cfg(test)]
mod tests;

use faer::MatRef;

use self::fedhsa::{LegMemory, MemoryPhase, Pool};
use self::phase::{ClosurePhase, PlainPhase, Stationary};
use self::plain::{ClosureClass, PlainRound};
use self::round::Round;
use self::scafflsa::ControlledRound;
use self::steps::{Carry, PhaseSteps};
use super::{AgentClass, MarkovFloor, MarkovRule};
use crate::RoundSetting;
use crate::map::{DENSE, LinearMap, at_rounds, spectral_radius};
use crate::symmetric::{pack, packed_index, packed_len, packed_trace};
use crate::work;
use fedsa::error::{Error, Result, require};
use fedsa::linalg::{self, Mat};

/// A second eigenvalue of this modulus or more is 1 to rounding.
const PERIODIC: f64 = 1.0 - 1e-12;
/// The approximate number of rounds that the solve for a floor applies.
const ROUNDS: f64 = 150.0;
/// The eigenvalues of a K x K matrix take about this number times K^3 multiplications.
const EIGENVALUES: f64 = 30.0;

/// The closure for a federation, a method and the setting of its rounds.
pub struct Closure {
    dim: usize,
    span: f64,
    round: Kind,
    eps_squared: f64,
}

enum Kind {
    Plain(PlainRound),
    Controlled(ControlledRound),
}

impl std::fmt::Debug for Closure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "closure with {} unknowns", Flat(self.as_round()).dim())
    }
}

impl Closure {
    /// The closure for these agents, whose weights sum to 1.
    ///
    /// # Errors
    /// When there are no agents, dimensions differ, weights do not sum to 1, or a chain is periodic.
    pub fn new(classes: &[AgentClass], setting: &RoundSetting, rule: MarkovRule) -> Result<Self> {
        require(!classes.is_empty() && classes.iter().all(|c| c.count > 0), "agents", 0, "at least one agent in every class")?;
        let dim = classes[0].agent.dim;
        if let Some(other) = classes.iter().find(|c| c.agent.dim != dim) {
            return Err(Error::new("agents", format!("dimensions {dim} and {}", other.agent.dim), "agents of one dimension"));
        }
        let sum: f64 = classes.iter().map(|c| c.count as f64 * c.agent.weight).sum();
        require((sum - 1.0).abs() < 1e-9, "weights", format!("a sum of {sum}"), "weights that sum to 1")?;
        let eps_squared = eps_squared(classes, setting, rule)?;
        let mut round = match rule {
            MarkovRule::FedLsa => Kind::Plain(fedlsa(classes, setting)?),
            MarkovRule::FedHsa => Kind::Plain(fedhsa(classes, setting)?),
            MarkovRule::Scafflsa => Kind::Controlled(ControlledRound::new(classes, setting)?),
        };
        // Every product reads the numbers of a chain's moves from memory.
        let work = 4.0 * Self::solve_work(classes, setting, rule) / ROUNDS;
        match &mut round {
            Kind::Plain(round) => round.work = work,
            Kind::Controlled(round) => round.work = work,
        }
        Ok(Self { dim, span: setting.span(), round, eps_squared })
    }

    fn as_round(&self) -> &dyn Round {
        match &self.round {
            Kind::Plain(round) => round,
            Kind::Controlled(round) => round,
        }
    }

    /// `(eta tau sigma_A)^2 / N`, about the relative error of the closure: at most 1.0 times it in 481 cases of FedLSA.
    ///
    /// `tau = lambda / (1 - lambda)` for samples of states and `1 / (1 - lambda)` for samples of transitions, with lambda the second
    /// largest modulus of P; FedHSA adds H. `sigma_A^2 = ||E A~^T A~||`. The agent with the largest `tau sigma_A` decides. This is no
    /// bound; a result with more than 0.1 deserves a warning.
    pub fn eps_squared(&self) -> f64 {
        self.eps_squared
    }

    /// The number of unknowns of the floor.
    pub fn unknowns(classes: &[AgentClass], rule: MarkovRule) -> usize {
        let d = classes[0].agent.dim;
        let per_state = |c: &AgentClass, side: usize| c.agent.states * (packed_len(side) - 1);
        match rule {
            MarkovRule::FedLsa | MarkovRule::FedHsa => classes.iter().map(|c| per_state(c, d + 1)).sum(),
            MarkovRule::Scafflsa => {
                let agents: usize = classes.iter().map(|c| c.count).sum();
                classes.iter().map(|c| c.count * per_state(c, agents * d + 1)).sum()
            }
        }
    }

    /// The approximate multiplications for a floor, with [`Closure::eps_squared`].
    pub fn work(classes: &[AgentClass], setting: &RoundSetting, rule: MarkovRule) -> f64 {
        Self::eigenvalue_work(classes) + Self::solve_work(classes, setting, rule)
    }

    /// The approximate multiplications for a curve of rounds up to `last`.
    pub fn curve_work(classes: &[AgentClass], setting: &RoundSetting, rule: MarkovRule, last: u64) -> f64 {
        Self::eigenvalue_work(classes) + last as f64 / ROUNDS * Self::solve_work(classes, setting, rule)
    }

    /// The multiplications for the eigenvalues of the transition matrices.
    fn eigenvalue_work(classes: &[AgentClass]) -> f64 {
        classes.iter().map(|class| EIGENVALUES * (class.agent.states as f64).powi(3)).sum()
    }

    /// The multiplications of the solve for a floor.
    fn solve_work(classes: &[AgentClass], setting: &RoundSetting, rule: MarkovRule) -> f64 {
        let (d, h) = (classes[0].agent.dim, setting.local_steps);
        let agents: usize = classes.iter().map(|c| c.count).sum();
        let of = |c: &AgentClass| {
            let (k, moves) = (c.agent.states as f64, c.agent.moves.len());
            let phase = |drift: usize, columns: usize| PhaseSteps::work(d, moves, drift, columns, h);
            let packed = |n: usize| packed_len(n) as f64;
            match rule {
                MarkovRule::FedLsa => ROUNDS * (phase(1, d + 2) + k * packed(d + 1).powi(2)) + packed(d + 1) * phase(1, 1),
                MarkovRule::FedHsa => {
                    let own = phase(1 + d, 3 * d + 2) + k * packed(d + 1).powi(2);
                    let products = (d as f64).powi(6);
                    ROUNDS * own + packed(d + 1) * phase(1 + d, 2 * d + 1) + packed(d) * phase(1 + d, 1 + d) + products
                }
                MarkovRule::Scafflsa => {
                    let (side, n) = (agents * d + 1, agents as f64);
                    // The mean round on both sides, the noise of each other agent, and the moments.
                    let others = n * (4 * d * d * side + 4 * d * side) as f64 + n * packed(2 * d + 1) * packed(d);
                    let own = phase(1 + d, 1 + d + side) + k * (others + 10.0 * (side * side) as f64);
                    c.count as f64 * ROUNDS * own + packed(2 * d + 1) * phase(1 + d, 1 + d)
                }
            }
        };
        classes.iter().map(of).sum()
    }

    /// The stationary bias and mean-square error of `theta_t`.
    ///
    /// # Errors
    /// When the closure's own round is unstable, its result is negative, or the solve does not converge. A stable closure does not
    /// prove a stable method: near the edge the exact mean-square error may diverge first.
    pub fn floor(&self) -> Result<MarkovFloor> {
        let fixed = self.fixed()?;
        let x = self.as_round().total(&fixed);
        let floor = MarkovFloor { bias: self.bias(&x), mse: packed_trace(self.dim, &x) };
        if floor.mse.is_nan() || floor.noise() < -1e-9 * floor.mse.abs() {
            let what = format!("the closure's mean-square error {:.3e} is not that of a stable method", floor.mse);
            return Err(unstable(what));
        }
        Ok(floor)
    }

    /// All `M_c(i)` at the floor, packed.
    fn fixed(&self) -> Result<Vec<f64>> {
        let round = self.as_round();
        let homogeneous = Homogeneous(round);
        let constants = round.constants();
        let mut source = vec![0.0; constants.len()];
        Flat(round).apply(&constants, &mut source);
        round.clear_constants(&mut source);
        let radius_of = |radius: f64| {
            let growth = match radius.is_finite() {
                true => format!(": after many rounds each one multiplies it by about {radius:.6}"),
                false => String::new(),
            };
            if radius < 1.0 { Ok(()) } else { Err(unstable(format!("the mean-square error diverges{growth}"))) }
        };
        let mut fixed = if homogeneous.dim() <= DENSE {
            let matrix = homogeneous.to_matrix();
            radius_of(if matrix.is_all_finite() { spectral_radius(&matrix)? } else { f64::INFINITY })?;
            linalg::solve(&(Mat::<f64>::identity(matrix.nrows(), matrix.nrows()) - matrix), &source)?
        } else if source.iter().all(|x| *x == 0.0) {
            radius_of(spectral_radius(&homogeneous)?)?;
            source
        } else {
            let solved = solve::gmres(&homogeneous, &source, &round.excited())?;
            radius_of(solved.radius)?;
            solved.x
        };
        fixed.iter_mut().zip(&constants).for_each(|(x, constant)| *x += constant);
        Ok(fixed)
    }

    fn bias(&self, x: &[f64]) -> Vec<f64> {
        (0..self.dim).map(|i| x[packed_index(i, self.as_round().side() - 1)]).collect()
    }

    /// The bias and mean-square error at each of `rounds` (ascending), from `u_0 = theta_0 - theta*` (d) and chains in their
    /// stationary laws. SCAFFLSA's controls start at 0.
    ///
    /// # Errors
    /// When `u_0` does not have d components, or the rounds are not in ascending order.
    pub fn curve(&self, u_0: &[f64], rounds: &[u64]) -> Result<Vec<MarkovFloor>> {
        require(u_0.len() == self.dim, "theta_0", format!("{} numbers", u_0.len()), &format!("{} numbers", self.dim))?;
        let round = self.as_round();
        let y = match &self.round {
            Kind::Plain(_) => u_0.iter().copied().chain([1.0]).collect(),
            Kind::Controlled(round) => round.start(u_0, self.span),
        };
        let moment = pack(y.len(), |i, j| y[i] * y[j]);
        let start = round.laws().iter().flat_map(|law| law.iter().flat_map(|p| moment.iter().map(move |x| p * x))).collect();
        let mut curve = Vec::with_capacity(rounds.len());
        at_rounds(&Flat(round), start, rounds, |state| {
            let x = round.total(state);
            curve.push(MarkovFloor { bias: self.bias(&x), mse: packed_trace(self.dim, &x) });
        })?;
        Ok(curve)
    }
}

fn unstable(what: String) -> Error {
    Error::not_known("step_size", what, "a smaller step size or fewer local steps")
}

/// [`Closure::eps_squared`], without the closure.
///
/// # Errors
/// When a chain is periodic or has more than 4000 states, or its eigenvalues do not converge.
pub fn eps_squared(classes: &[AgentClass], setting: &RoundSetting, rule: MarkovRule) -> Result<f64> {
    let agents: usize = classes.iter().map(|c| c.count).sum();
    let of = |class: &AgentClass| -> Result<f64> {
        let agent = &class.agent;
        require(agent.period() == 1, "chain", "a periodic chain", "an aperiodic one")?;
        let lambda = agent.second_modulus()?;
        require(lambda < PERIODIC, "chain", "a chain whose second eigenvalue is 1 to rounding", "one that mixes")?;
        let of_states = agent.moves.windows(2).all(|m| m[0].from != m[1].from || (m[0].a == m[1].a && m[0].w == m[1].w));
        let tau = if of_states { lambda } else { 1.0 } / (1.0 - lambda);
        let held = if rule == MarkovRule::FedHsa { setting.local_steps as f64 } else { 0.0 };
        Ok((setting.step_size * (tau + held)).powi(2) * agent.noise_of_a())
    };
    let each: Vec<f64> = work::try_map(classes.len(), |c| of(&classes[c]))?;
    Ok(each.into_iter().fold(0.0, f64::max) / agents as f64)
}

fn fedlsa(classes: &[AgentClass], setting: &RoundSetting) -> Result<PlainRound> {
    let (dim, eta) = (classes[0].agent.dim, setting.step_size);
    let phase = |class: &AgentClass| -> Box<dyn ClosurePhase> {
        Box::new(PlainPhase { steps: PhaseSteps::new(&class.agent, eta, &vec![0.0; dim], 1, 0.0), count: setting.local_steps })
    };
    let all = work::map(classes.len(), |c| of_class(&classes[c], setting, phase(&classes[c])))?;
    Ok(PlainRound::new(dim, setting.server_step, all, None))
}

fn fedhsa(classes: &[AgentClass], setting: &RoundSetting) -> Result<PlainRound> {
    let alpha = setting.server_step;
    let memories: Vec<LegMemory> = work::map(classes.len(), |c| LegMemory::new(&classes[c].agent, setting))?;
    let pool = Pool::new(classes, &memories);
    let all = work::map(classes.len(), |c| {
        of_class(&classes[c], setting, Box::new(MemoryPhase::new(&classes[c].agent, setting, &memories[c], &pool)))
    })?;
    let pairs = faer::Scale(alpha * alpha) * fedhsa::pairs(classes, &memories);
    Ok(PlainRound::new(classes[0].agent.dim, alpha, all, Some(pairs)))
}

fn of_class(class: &AgentClass, setting: &RoundSetting, phase: Box<dyn ClosurePhase>) -> ClosureClass {
    let agent = &class.agent;
    let stationary = Stationary::new(&*phase, &agent.stationary);
    let carry = Carry::new(agent, setting.local_steps);
    let share = setting.server_step * agent.weight;
    ClosureClass { count: class.count as f64, share, law: agent.stationary.clone(), phase, carry, stationary }
}

impl dyn Round + '_ {
    /// The states of all `M_c(i)`: the number of entries of each, and the position of its constant.
    fn entries(&self) -> usize {
        packed_len(self.side())
    }

    /// `M_c(i)` with the constant only.
    fn constants(&self) -> Vec<f64> {
        let entries = self.entries();
        let mut out = Vec::new();
        for p in self.laws().into_iter().flatten() {
            out.resize(out.len() + entries - 1, 0.0);
            out.push(*p);
        }
        out
    }

    fn clear_constants(&self, x: &mut [f64]) {
        x.chunks_exact_mut(self.entries()).for_each(|m| m[m.len() - 1] = 0.0);
    }

    /// Moments `M_c(i) = pi_c(i) X` with an X that excites every direction, whatever the noise does.
    fn excited(&self) -> Vec<f64> {
        let entries = self.entries();
        let golden = (5f64.sqrt() - 1.0) / 2.0;
        let x: Vec<f64> = (1..entries).map(|k| (k as f64 * golden).fract() - 0.5).chain([0.0]).collect();
        self.laws().into_iter().flatten().flat_map(|p| x.iter().map(move |x| p * x)).collect()
    }

    /// `X_c = sum_i M_c(i)` of every agent, packed.
    fn totals(&self, x: &[f64]) -> Vec<Vec<f64>> {
        let entries = self.entries();
        let mut blocks = x.chunks_exact(entries);
        let sum = |law: &[f64], blocks: &mut std::slice::ChunksExact<'_, f64>| {
            let mut total = vec![0.0; entries];
            blocks.take(law.len()).for_each(|m| total.iter_mut().zip(m).for_each(|(t, m)| *t += m));
            total
        };
        self.laws().into_iter().map(|law| sum(law, &mut blocks)).collect()
    }

    /// `X`, packed: the same from every agent, here their mean.
    fn total(&self, x: &[f64]) -> Vec<f64> {
        let totals = self.totals(x);
        (0..self.entries()).map(|k| totals.iter().map(|t| t[k]).sum::<f64>() / totals.len() as f64).collect()
    }

    /// The nearest moments with the same X for every agent.
    fn make_consistent(&self, x: &mut [f64]) {
        let (totals, mean) = (self.totals(x), self.total(x));
        let mut blocks = x.chunks_exact_mut(self.entries());
        for (law, total) in self.laws().into_iter().zip(&totals) {
            for (p, m) in law.iter().zip(&mut blocks) {
                m.iter_mut().zip(mean.iter().zip(total)).for_each(|(m, (mean, total))| *m += p * (mean - total));
            }
        }
    }
}

/// A round of all `M_c(i)`, packed, one after another.
struct Flat<'a>(&'a dyn Round);

impl LinearMap for Flat<'_> {
    fn work(&self) -> f64 {
        self.0.work()
    }

    fn dim(&self) -> usize {
        self.0.laws().iter().map(|law| law.len()).sum::<usize>() * self.0.entries()
    }

    fn apply(&self, x: &[f64], out: &mut [f64]) {
        let entries = self.0.entries();
        let mut rest = x;
        let mut now = Vec::new();
        for law in self.0.laws() {
            let (first, last) = rest.split_at(law.len() * entries);
            now.push(MatRef::from_column_major_slice(first, entries, law.len()));
            rest = last;
        }
        let moved = self.0.round(&now);
        let columns = moved.iter().flat_map(|m| (0..m.ncols()).map(|i| m.col_as_slice(i)));
        out.chunks_exact_mut(entries).zip(columns).for_each(|(out, m)| out.copy_from_slice(m));
    }
}

/// The linear part of a round on moments with the same X for every agent. The constants are left out, because their map has the
/// eigenvalue 1.
struct Homogeneous<'a>(&'a dyn Round);

impl LinearMap for Homogeneous<'_> {
    fn work(&self) -> f64 {
        self.0.work() + 10.0 * self.dim() as f64
    }

    fn dim(&self) -> usize {
        Flat(self.0).dim()
    }

    fn apply(&self, x: &[f64], out: &mut [f64]) {
        let mut state = x.to_vec();
        self.0.clear_constants(&mut state);
        self.0.make_consistent(&mut state);
        Flat(self.0).apply(&state, out);
        self.0.clear_constants(out);
    }
}
