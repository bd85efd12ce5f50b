//! The server half of FedNL: the step of the learned Hessian.

use faer::linalg::solvers::Solve;
use faer::{Mat, Side};
use rayon::prelude::*;

use super::{Ask, Letter, Next, Own, Participation, Received, Server, foreign_state, restored_theta};
use crate::error::{BadInput, Result};
use crate::linalg::{self, add_scaled, triangle_vec};
use crate::local::compressor::Compressor;
use crate::local::fednl::{CORRECT, FIRST_MARK, NO_MARK, SEARCH, WHOLE, compressor_stream, mark_after, multiple_of_identity};
use crate::local::line_search::Trials;
use crate::message::{Body, Message, Part};

/// How the learned Hessian becomes positive definite.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Definite {
    /// Its eigenvalues below mu become mu (Option 1).
    Projection(f64),
    /// The mean distance of learned from true Hessians is added to its diagonal (Option 2).
    Shift,
}

/// What the server knows of an agent.
#[derive(Debug, Clone, PartialEq)]
pub struct Known {
    /// `H_c`, a lower triangle; empty if there is none.
    learned: Vec<f64>,
    /// The mark of `H_c`.
    mark: f64,
    /// The model of the agent's last answer and its gradient there; empty before the first.
    model: Vec<f64>,
    gradient: Vec<f64>,
    /// `||H_c - Hess f_c||_F` as the agent last said.
    deviation: f64,
    /// Whether the agent's last answer was lost: it does not know which change counts.
    is_unsure: bool,
    /// Whether the agent must be asked for its whole Hessian.
    needs_whole: bool,
}

/// The server's rule.
///
/// The step of a round minimises the sum of the agents' last quadratic models: with `w_c` the model that agent c answered last,
/// `M = sum p_c (H_c + l_c I)`, `p = M^-1 sum p_c [(H_c + l_c I)(w_c - theta) - grad f_c(w_c)]`. If all agents answer the present
/// model, this is `-(H + l I)^-1 g` with the means. Agents whose answers are missing, or that do not take part in a round, count
/// with their last one, and the method settles at the root all the same.
///
/// It keeps `H_c` of each agent: N d (d + 1) / 2 numbers.
pub struct FedNlServer {
    theta: Vec<f64>,
    weights: Vec<f64>,
    seed: u64,
    compressor: Compressor,
    learning_rate: f64,
    definite: Definite,
    /// The share of the step, without a line search.
    step: f64,
    trials: Option<Trials>,
    participation: Participation,
    agents: Vec<Known>,
    /// `sum p_c H_c` over the agents that have answered, a lower triangle; the sum of their weights.
    sum: Vec<f64>,
    heard: f64,
    /// The round's participants that were asked for their whole Hessian, and the others.
    asked: [Vec<usize>; 2],
    failed: u64,
}

/// The settings of [`FedNlServer`].
pub struct Rule {
    /// The compressor.
    pub compressor: Compressor,
    /// alpha.
    pub learning_rate: f64,
    /// How the learned Hessian becomes positive definite.
    pub definite: Definite,
    /// mu of the first learned Hessian `mu I`; without it agents send theirs.
    pub first: Option<f64>,
    /// The share of the step that is taken without a line search.
    pub step: f64,
    /// The trial steps of a line search.
    pub trials: Option<Trials>,
    /// The participants of a round, after the first, in which all agents take part.
    pub participation: Participation,
}

impl FedNlServer {
    /// The server before its first round.
    pub fn new(theta: Vec<f64>, weights: Vec<f64>, seed: u64, rule: Rule) -> Self {
        let d = theta.len();
        let known = Known {
            learned: rule.first.map_or(Vec::new(), |mu| multiple_of_identity(d, mu)),
            mark: if rule.first.is_some() { FIRST_MARK } else { NO_MARK },
            model: Vec::new(),
            gradient: Vec::new(),
            deviation: 0.0,
            is_unsure: false,
            needs_whole: rule.first.is_none(),
        };
        let Rule { compressor, learning_rate, definite, step, trials, participation, .. } = rule;
        let (agents, sum) = (vec![known; weights.len()], vec![0.0; d * (d + 1) / 2]);
        let asked = [Vec::new(), Vec::new()];
        Self {
            theta,
            weights,
            seed,
            compressor,
            learning_rate,
            definite,
            step,
            trials,
            participation,
            agents,
            sum,
            heard: 0.0,
            asked,
            failed: 0,
        }
    }

    /// The question of an exchange with a model to the agents that it asks.
    fn question(&self, round: u64, exchange: u8) -> Ask {
        let to = &self.asked[usize::from(exchange)];
        let own = (exchange == CORRECT && to.iter().any(|c| self.agents[*c].is_unsure)).then(|| {
            let mark = |c: &usize| self.agents[*c].is_unsure.then(|| vec![self.agents[*c].mark]);
            Own { part: Part::Mark, each: to.iter().map(mark).collect() }
        });
        Ask { to: self.all_or(to), down: Message::one(round, exchange, Part::Model, self.theta.clone()), own }
    }

    fn all_or(&self, to: &[usize]) -> Option<Vec<usize>> {
        (to.len() < self.weights.len()).then(|| to.to_vec())
    }

    /// Records what an answer says of its agent, at the model that it decoded.
    fn hear(&mut self, letter: &Letter, model: &[f64]) {
        let (p, known) = (self.weights[letter.agent], &mut self.agents[letter.agent]);
        let is_new = known.model.is_empty();
        if let Some((_, Body::Numbers(whole))) = letter.parts.iter().find(|(part, _)| *part == Part::Hessian) {
            if !is_new {
                add_scaled(&mut self.sum, -p, &known.learned);
            }
            add_scaled(&mut self.sum, p, whole);
            known.mark = mark_after(NO_MARK, &letter.parts[1].1);
            known.learned.clone_from(whole);
            (known.deviation, known.needs_whole) = (0.0, false);
        } else {
            if letter.part(Part::Mark)[0] == known.mark {
                known.deviation = letter.part(Part::Deviation)[0];
            } else {
                known.needs_whole = true;
            }
            if is_new {
                add_scaled(&mut self.sum, p, &known.learned);
            }
        }
        if is_new {
            self.heard += p;
        }
        known.is_unsure = false;
        known.model = model.to_vec();
        known.gradient = letter.part(Part::Gradient).to_vec();
    }

    /// Makes the changes of the answers that have counted, after the step has been computed: agents in parallel, the sum in
    /// their order.
    fn learn(&mut self, round: u64, letters: &[Letter]) {
        let (d, seed, compressor, rate) = (self.theta.len(), self.seed, self.compressor, self.learning_rate);
        let mut changes: Vec<Option<&Body>> = vec![None; self.agents.len()];
        for letter in letters.iter().filter(|letter| letter.part(Part::Mark)[0] == self.agents[letter.agent].mark) {
            changes[letter.agent] = letter.parts.last().map(|(_, body)| body);
        }
        for (c, change) in changes.iter().enumerate() {
            let Some(change) = change else { continue };
            compressor.add(d, change, rate * self.weights[c], &mut compressor_stream(seed, round, c), &mut self.sum);
        }
        self.agents.par_iter_mut().zip(changes).enumerate().for_each(|(c, (known, change))| {
            let Some(change) = change else { return };
            compressor.add(d, change, rate, &mut compressor_stream(seed, round, c), &mut known.learned);
            known.mark = mark_after(known.mark, change);
        });
    }

    /// The step p to the minimum of the sum of the agents' quadratic models; `None` if it is 0, or there is none.
    fn direction(&self) -> Option<Vec<f64>> {
        let d = self.theta.len();
        let is_shifted = self.definite == Definite::Shift;
        let (mut right, mut shift) = (vec![0.0; d], 0.0);
        for (p, known) in self.weights.iter().zip(&self.agents).filter(|(_, known)| !known.model.is_empty()) {
            let l = if is_shifted { known.deviation } else { 0.0 };
            shift += p * l;
            add_scaled(&mut right, -p, &known.gradient);
            if known.model != self.theta {
                let back: Vec<f64> = known.model.iter().zip(&self.theta).map(|(w, x)| w - x).collect();
                add_scaled(&mut right, *p, &triangle_vec(&known.learned, &back));
                add_scaled(&mut right, p * l, &back);
            }
        }
        // Without an answer to the present model the iterate stays.
        let is_answered = self.agents.iter().any(|known| known.model == self.theta);
        if !is_answered || right.iter().all(|x| *x == 0.0) {
            return None;
        }
        right.iter_mut().for_each(|x| *x /= self.heard);
        let mut m = Mat::<f64>::zeros(d, d);
        let mut rest = &self.sum[..];
        for i in 0..d {
            let (row, after) = rest.split_at(i + 1);
            rest = after;
            row.iter().enumerate().for_each(|(j, x)| m[(i, j)] = x / self.heard);
            m[(i, i)] += shift / self.heard;
        }
        let p = match self.definite {
            Definite::Projection(mu) => projected_solve(m, mu, &right)?,
            Definite::Shift => solve(&m, &right)?,
        };
        p.iter().all(|x| x.is_finite()).then_some(p)
    }

    /// Moves by the step of the answers that have arrived, or asks for the losses along it; then learns.
    fn close(&mut self, got: &Received<'_>) -> Next {
        let p = self.direction();
        if got.exchange == CORRECT {
            self.learn(got.round, got.letters);
        }
        let Some(p) = p else { return Next::Done { tell: None } };
        if self.trials.is_some() {
            let mut to = [&self.asked[0][..], &self.asked[1]].concat();
            to.sort_unstable();
            return Next::Ask(Ask { to: self.all_or(&to), down: Message::one(got.round, SEARCH, Part::Step, p), own: None });
        }
        add_scaled(&mut self.theta, self.step, &p);
        Next::Done { tell: None }
    }
}

/// `m^-1 b` of a positive definite matrix of which the lower triangle is given.
fn solve(m: &Mat<f64>, b: &[f64]) -> Option<Vec<f64>> {
    let factor = m.llt(Side::Lower).ok()?;
    Some(factor.solve(linalg::column(b)).col_as_slice(0).to_vec())
}

/// `[m]_mu^-1 b`: eigenvalues of m below mu count as mu. Where all are above, which a factorisation of `m - mu I` tells, nothing is
/// decomposed.
fn projected_solve(mut m: Mat<f64>, mu: f64, b: &[f64]) -> Option<Vec<f64>> {
    let d = b.len();
    (0..d).for_each(|i| m[(i, i)] -= mu);
    let is_above = m.llt(Side::Lower).is_ok();
    (0..d).for_each(|i| m[(i, i)] += mu);
    if is_above {
        return solve(&m, b);
    }
    let eigen = m.self_adjoint_eigen(Side::Lower).ok()?;
    let mut shares = eigen.U().transpose() * linalg::column(b);
    for (i, value) in eigen.S().column_vector().iter().enumerate() {
        shares[(i, 0)] /= value.max(mu);
    }
    Some((eigen.U() * shares).col_as_slice(0).to_vec())
}

impl Server for FedNlServer {
    fn open(&mut self, t: u64) -> Ask {
        let n = self.weights.len();
        // All agents take part until each has answered: the sum is over the agents that have.
        let all = || (0..n).collect::<Vec<usize>>();
        let participants = if t == 0 { all() } else { self.participation.of(t).unwrap_or_else(all) };
        let (whole, others) = participants.into_iter().partition(|c| self.agents[*c].needs_whole);
        self.asked = [whole, others];
        self.question(t, if self.asked[0].is_empty() { CORRECT } else { WHOLE })
    }

    fn receive(&mut self, got: &Received<'_>) -> Next {
        if got.exchange == SEARCH {
            let losses = got.mean(Part::Losses);
            let accepted = self.trials.as_ref().and_then(|trials| trials.accepted(&losses));
            if let Some(s) = accepted {
                add_scaled(&mut self.theta, s, got.down.part(Part::Step));
            }
            self.failed += u64::from(accepted.is_none() && losses.iter().any(|loss| *loss != 0.0));
            return Next::Done { tell: None };
        }
        for (i, c) in self.asked[usize::from(got.exchange)].iter().enumerate() {
            // A lost answer with a correction: the agent has to be told. (A whole Hessian is asked for again.)
            self.agents[*c].is_unsure = got.exchange == CORRECT && !got.arrived.get(i).is_none_or(|arrived| *arrived);
        }
        // Where the downlink alters models, answers are to the model that agents decoded.
        let model = got.down.part(Part::Model).to_vec();
        got.letters.iter().for_each(|letter| self.hear(letter, &model));
        if !got.letters.is_empty() {
            self.theta = model;
        }
        if got.exchange == WHOLE && !self.asked[1].is_empty() {
            return Next::Ask(self.question(got.round, CORRECT));
        }
        self.close(got)
    }

    fn accepts(&self, exchange: u8, parts: &[(Part, Body)]) -> Result<()> {
        match parts.last() {
            Some((_, body)) if exchange == CORRECT && !self.compressor.accepts(self.theta.len(), body) => {
                Err(BadInput::new("message", "a matrix that the compressor does not make", "the compressed difference of Hessians"))
            }
            _ => Ok(()),
        }
    }

    fn theta(&self) -> &[f64] {
        &self.theta
    }

    fn failed_searches(&self) -> Option<u64> {
        self.trials.as_ref().map(|_| self.failed)
    }

    fn state(&self) -> Vec<Vec<f64>> {
        let indices = |asked: &Vec<usize>| asked.iter().map(|c| *c as f64).collect();
        let mut state = vec![self.theta.clone(), self.sum.clone(), vec![self.heard, self.failed as f64]];
        state.extend(self.asked.iter().map(indices));
        for known in &self.agents {
            let flags = vec![known.mark, known.deviation, f64::from(known.is_unsure), f64::from(known.needs_whole)];
            state.extend([flags, known.model.clone(), known.gradient.clone(), known.learned.clone()]);
        }
        state
    }

    fn restore(&mut self, mut state: Vec<Vec<f64>>, _: u64) -> Result<()> {
        let (d, n) = (self.theta.len(), self.weights.len());
        let size = d * (d + 1) / 2;
        let theta = restored_theta(&mut state, d)?;
        if state.len() != 4 + 4 * n || state[0].len() != size || state[1].len() != 2 {
            return Err(foreign_state());
        }
        let is_flag = |x: f64| x == 0.0 || x == 1.0;
        let fits = |known: &[Vec<f64>]| {
            let [flags, model, gradient, learned] = known else { return false };
            let has = |x: &Vec<f64>, len: usize| x.is_empty() || x.len() == len;
            flags.len() == 4
                && flags[2..].iter().all(|x| is_flag(*x))
                && has(model, d)
                && gradient.len() == model.len()
                && has(learned, size)
                && (model.is_empty() || !learned.is_empty())
                && (flags[3] == 1.0 || !learned.is_empty())
        };
        let is_index = |c: &f64| *c >= 0.0 && *c < n as f64 && c.fract() == 0.0;
        let are_agents = |asked: &[f64]| asked.iter().all(is_index) && asked.is_sorted_by(|a, b| a < b);
        let count = state[1][1];
        let is_ours = state[2..4].iter().all(|asked| are_agents(asked)) && state[4..].chunks(4).all(fits) && count >= 0.0;
        if !is_ours || count.fract() != 0.0 || count > 1e15 {
            return Err(foreign_state());
        }
        let agents = state.split_off(4);
        let indices = |asked: &[f64]| asked.iter().map(|c| *c as usize).collect();
        self.asked = [indices(&state[2]), indices(&state[3])];
        (self.heard, self.failed) = (state[1][0], count as u64);
        (self.theta, self.sum) = (theta, state.swap_remove(0));
        let mut agents = agents.into_iter();
        while let (Some(flags), Some(model), Some(gradient), Some(learned)) = (agents.next(), agents.next(), agents.next(), agents.next()) {
            let c = self.agents.len() - agents.len() / 4 - 1;
            let (is_unsure, needs_whole) = (flags[2] == 1.0, flags[3] == 1.0);
            self.agents[c] = Known { learned, mark: flags[0], model, gradient, deviation: flags[1], is_unsure, needs_whole };
        }
        Ok(())
    }
}
