//! The server half of FedNL: the step of the learned Hessian.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use faer::{Mat, Side};
use fedsa::error::Result;
use fedsa::linalg::{self, add_scaled, column, solve_definite};
use fedsa::message::{Body, Message, Part};
use fedsa::parallel;
use fedsa::protocol::{are_finite, refused};
use fedsa::saved::{packed, unpacked};
use fedsa::server::{Broadcast, ClientUpdate, Next, Participation, Received, Server, ServerFacts, by_agent};
use fedsa::triangle::{Support, entries};
use serde::{Deserialize, Serialize};

use super::client::{CORRECT, SEARCH, WHOLE, compressor_stream};
use super::compressor::{Compressor, MatrixChange, are_bounded, entries_of};
use crate::local::line_search::{LineSearch, Trials};

/// How the learned Hessian becomes positive definite.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Definite {
    /// Eigenvalues below mu become mu (Option 1).
    Projection(f64),
    /// Adds the mean distance between learned and true Hessians to the diagonal (Option 2).
    Shift,
}

/// The sum of the learned Hessians is recomputed after this many rounds, against accumulated rounding errors.
const ROUNDS_OF_A_SUM: u64 = 50;
/// The fewest entries of the sum per task.
const ENTRIES: usize = 4096;
/// The columns of the mean per task.
const COLUMNS: usize = 8;
/// The most agents per learning task: their matrices differ in size.
const AGENTS: usize = 4;
/// Approximate tasks per thread: few, because each scans all changes, but more than one.
const TASKS: usize = 2;

/// A learned Hessian `H_c`: its entries on a support.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Learned {
    support: Support,
    entries: Vec<f64>,
}

impl Learned {
    /// The matrix of a whole Hessian's message; `None` if it is invalid.
    fn of(d: usize, whole: &Body) -> Option<Self> {
        let (support, entries) = match whole {
            Body::Numbers(x) => (Support::all(d), x),
            Body::Sparse { index, value, .. } => (Support::of(d, index.clone())?, value),
            Body::Packed(_) => return None,
        };
        (entries.len() == support.len()).then(|| Self { support, entries: entries.clone() })
    }

    /// Adds `scale C`; the support may grow. Returns whether the result is finite.
    fn add(&mut self, change: &MatrixChange<'_>, scale: f64) -> bool {
        let add = |to: &mut Self| change.add(scale, &to.support, &mut to.entries);
        add(self).unwrap_or_else(|| {
            let wider = change.widen(&self.support);
            self.entries = self.support.widened(&self.entries, &wider);
            self.support = wider;
            add(self).expect("a support that has grown to the change")
        })
    }
}

/// The server's record of an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentKnowledge {
    /// `H_c`, if any.
    learned: Option<Learned>,
    /// The model of the agent's last answer, then its gradient there; empty before the first.
    model: Vec<f64>,
    gradient: Vec<f64>,
    /// `||H_c - Hess f_c||_F` as last reported for this `H_c`.
    deviation: f64,
    /// Whether to ask the agent for its whole Hessian.
    needs_whole: bool,
}

impl AgentKnowledge {
    /// Clears the record: the agent counts again once it has sent its whole Hessian.
    fn forget(&mut self) {
        let (model, gradient) = (Vec::new(), Vec::new());
        *self = Self { learned: None, model, gradient, deviation: 0.0, needs_whole: true };
    }

    /// Restarts from the whole Hessian of a message.
    fn start(&mut self, d: usize, whole: &Body) {
        self.learned = Learned::of(d, whole);
        (self.deviation, self.needs_whole) = (0.0, self.learned.is_none());
    }

    /// `H_c`, if the agent has an answer that counts.
    fn heard(&self) -> Option<&Learned> {
        self.learned.as_ref().filter(|_| !self.model.is_empty())
    }

    /// Whether the agent has an answer that counts.
    fn is_heard(&self) -> bool {
        self.heard().is_some()
    }
}

/// The direction of a round.
#[derive(Debug, Clone, PartialEq)]
enum Way {
    /// The step to the minimum of the sum of the agents' quadratic models.
    Minimum(Vec<f64>),
    /// The sum has no minimum, or none that can be computed: minus the mean gradient.
    Downhill(Vec<f64>),
}

/// The sum of quadratic models: `p^T M p / 2 - r^T p` of a step p.
struct Models {
    /// M, as its lower triangle.
    m: Mat<f64>,
    /// r.
    right: Vec<f64>,
    /// Minus the mean gradient of the agents whose last answer is to the current model.
    downhill: Vec<f64>,
}

impl Models {
    fn way(self, definite: Definite) -> Way {
        let p = match definite {
            Definite::Projection(mu) => projected_solve(&self.m, mu, &self.right),
            Definite::Shift => solve_definite(&self.m, &self.right),
        };
        p.map_or(Way::Downhill(self.downhill), Way::Minimum)
    }
}

/// Parts of a triangle of at least [`ENTRIES`] entries, with their rows.
fn by_rows(mut triangle: &mut [f64], d: usize) -> Vec<(Range<usize>, &mut [f64])> {
    let (mut parts, mut first) = (Vec::new(), 0);
    let least = ENTRIES.max(entries(d) / (TASKS * parallel::threads()));
    while first < d {
        let end = (first + 1..d).find(|end| entries(*end) - entries(first) >= least).unwrap_or(d);
        let (part, rest) = triangle.split_at_mut(entries(end) - entries(first));
        parts.push((first..end, part));
        (triangle, first) = (rest, end);
    }
    parts
}

/// The server's rule.
///
/// The step of a round minimises the sum of the agents' last quadratic models. With `w_c` the model of agent c's last answer,
/// `M = sum p_c (H_c + l_c I)`, `p = M^-1 sum p_c [(H_c + l_c I)(w_c - theta) - grad f_c(w_c)]`. If all agents answer the current model,
/// this is `-(H + l I)^-1 g` with the means. Agents without an answer in a round count with their last one, and the method still settles at
/// the root. `l_c` is the distance of the `H_c` in M: before the correction in the round of an answer, after it in later rounds.
///
/// If M is not positive definite, a line search follows minus the mean gradient of the answers to the current model. Without a line search
/// theta stays, which counts as a failed search.
///
/// The rule keeps `H_c` of each agent on its support, at most N d (d + 1) / 2 numbers. The support comes from the agent's whole Hessian and
/// grows with corrections.
#[derive(Clone)]
pub struct FedNlServer {
    theta: Vec<f64>,
    weights: Vec<f64>,
    seed: u64,
    compressor: Arc<dyn Compressor>,
    learning_rate: f64,
    definite: Definite,
    /// The share of the step without a line search.
    step: f64,
    search: Option<LineSearch>,
    /// Whether the step of a round uses its corrections.
    is_fresh: bool,
    participation: Participation,
    agents: Vec<AgentKnowledge>,
    /// The record of an agent before its first answer.
    unknown: AgentKnowledge,
    /// `sum p_c H_c` over the agents that have answered, a lower triangle; then the sum of their weights.
    sum: Vec<f64>,
    heard: f64,
    /// The participants that were asked for their whole Hessian, and the others.
    asked: [Vec<usize>; 2],
    failed: u64,
}

/// The settings of [`FedNlServer`].
pub struct FedNlRule {
    /// The compressor.
    pub compressor: Arc<dyn Compressor>,
    /// alpha.
    pub learning_rate: f64,
    /// How the learned Hessian becomes positive definite.
    pub definite: Definite,
    /// mu of the first learned Hessian `mu I`; without it agents send their Hessians.
    pub first: Option<f64>,
    /// The share of the step without a line search.
    pub step: f64,
    /// The trial steps of a line search.
    pub trials: Option<Trials>,
    /// Whether the step of a round uses its corrections.
    pub is_fresh: bool,
    /// The participants of a round once each agent has answered; before that, all agents.
    pub participation: Participation,
}

impl FedNlServer {
    /// The server before its first round.
    pub fn new(theta: Vec<f64>, weights: Vec<f64>, seed: u64, rule: FedNlRule) -> Self {
        let d = theta.len();
        let known = AgentKnowledge {
            learned: rule.first.map(|mu| Learned { support: Support::diagonal(d), entries: vec![mu; d] }),
            model: Vec::new(),
            gradient: Vec::new(),
            deviation: 0.0,
            needs_whole: rule.first.is_none(),
        };
        let FedNlRule { compressor, learning_rate, definite, step, trials, is_fresh, participation, .. } = rule;
        let (agents, sum) = (vec![known.clone(); weights.len()], vec![0.0; entries(d)]);
        let asked = [Vec::new(), Vec::new()];
        Self {
            theta,
            weights,
            seed,
            compressor,
            learning_rate,
            definite,
            step,
            search: trials.map(LineSearch::new),
            is_fresh,
            participation,
            agents,
            unknown: known,
            sum,
            heard: 0.0,
            asked,
            failed: 0,
        }
    }

    /// The question with a model of an exchange, to the agents that it asks.
    fn question(&self, round: u64, exchange: u8) -> Broadcast {
        let to = self.all_or(&self.asked[usize::from(exchange)]);
        Broadcast { to, down: Message::one(round, exchange, Part::Model, self.theta.clone()), own: None }
    }

    fn all_or(&self, to: &[usize]) -> Option<Vec<usize>> {
        (to.len() < self.weights.len()).then(|| to.to_vec())
    }

    /// Records the answers, at the model that the agents decoded. Returns whether the sum must be recomputed.
    fn hear(&mut self, updates: &[ClientUpdate], model: &[f64]) -> bool {
        let (d, gradient_part) = (self.theta.len(), self.compressor.gradient_part());
        let of = by_agent(updates, self.agents.len());
        let is_new_sum = AtomicBool::new(false);
        let mut agents: Vec<_> = self.agents.iter_mut().zip(of).filter_map(|(known, update)| Some((known, update?))).collect();
        parallel::each_mut_by(&mut agents, AGENTS, &|_, (known, update)| {
            let is_new = !known.is_heard();
            let whole = update.parts.iter().find(|(part, _)| *part == Part::Hessian);
            if let Some((_, whole)) = whole {
                known.start(d, whole);
            } else {
                known.deviation = update.part(Part::Deviation)[0];
            }
            known.model.clear();
            known.model.extend(model);
            known.gradient.clear();
            known.gradient.extend(update.part(gradient_part));
            is_new_sum.fetch_or(is_new || whole.is_some(), Ordering::Relaxed);
        });
        is_new_sum.into_inner()
    }

    /// Computes the sum over the agents that have answered, and their weight. Each entry is summed in the order of the agents, so that bits
    /// do not depend on threads.
    fn add_up(&mut self) {
        let heard: Vec<(f64, &Learned)> =
            self.weights.iter().zip(&self.agents).filter_map(|(p, known)| Some((*p, known.heard()?))).collect();
        parallel::each_mut(&mut by_rows(&mut self.sum, self.theta.len()), |_, (rows, sum)| {
            sum.fill(0.0);
            heard.iter().for_each(|(p, learned)| learned.support.add_rows(&learned.entries, *p, rows, sum));
        });
        self.heard = heard.iter().map(|(p, _)| p).sum();
    }

    /// Applies the changes of counted answers: first the rows of the sum in parallel, each in the agents' order, then the agents in
    /// parallel. The record of an agent whose matrix is no longer finite is cleared.
    fn learn(&mut self, round: u64, updates: &[ClientUpdate]) {
        let (d, seed, compressor, rate) = (self.theta.len(), self.seed, &self.compressor, self.learning_rate);
        let changes = parallel::map(updates.len(), |k| {
            let update = &updates[k];
            let (_, body) = update.parts.last()?;
            Some((update, compressor.change(d, body, compressor_stream(seed, round, update.agent))))
        });
        let changes: Vec<(&ClientUpdate, MatrixChange<'_>)> = changes.into_iter().flatten().collect();
        parallel::each_mut(&mut by_rows(&mut self.sum, d), |_, (rows, sum)| {
            changes.iter().for_each(|(update, change)| change.add_rows(rate * self.weights[update.agent], rows, sum));
        });
        let mut of: Vec<Option<(MatrixChange<'_>, f64)>> = vec![None; self.agents.len()];
        for (update, change) in changes {
            // With the distance after the change.
            of[update.agent] = Some((change, update.part(Part::Deviation)[1]));
        }
        let is_lost = AtomicBool::new(false);
        let mut agents: Vec<_> = self.agents.iter_mut().zip(of).filter_map(|(known, change)| Some((known, change?))).collect();
        parallel::each_mut_by(&mut agents, AGENTS, &|_, (known, (change, after))| {
            let Some(learned) = &mut known.learned else { return };
            let is_kept = learned.add(change, rate);
            known.deviation = *after;
            if !is_kept {
                known.forget();
                is_lost.store(true, Ordering::Relaxed);
            }
        });
        if is_lost.into_inner() || round % ROUNDS_OF_A_SUM == ROUNDS_OF_A_SUM - 1 {
            self.add_up();
        }
    }

    /// The sum of the quadratic models of the agents' last answers; `None` without an answer to the current model, or if the model is
    /// already the minimum.
    fn models(&self) -> Option<Models> {
        let d = self.theta.len();
        let is_shifted = self.definite == Definite::Shift;
        let (mut right, mut shift, mut is_answered) = (vec![0.0; d], 0.0, false);
        let (mut downhill, mut here) = (vec![0.0; d], 0.0);
        for (p, known) in self.weights.iter().zip(&self.agents) {
            let is_here = known.model == self.theta;
            if is_here {
                add_scaled(&mut downhill, -p, &known.gradient);
                here += p;
            }
            let Some(learned) = known.heard() else { continue };
            let l = if is_shifted { known.deviation } else { 0.0 };
            shift += p * l;
            add_scaled(&mut right, -p, &known.gradient);
            if is_here {
                is_answered = true;
                continue;
            }
            let back: Vec<f64> = linalg::minus(&known.model, &self.theta);
            add_scaled(&mut right, *p, &learned.support.product(&learned.entries, &back));
            add_scaled(&mut right, p * l, &back);
        }
        if !is_answered || right.iter().all(|x| *x == 0.0) {
            return None;
        }
        right.iter_mut().for_each(|x| *x /= self.heard);
        downhill.iter_mut().for_each(|x| *x /= here);
        Some(Models { m: self.shifted_mean(shift), right, downhill })
    }

    /// The lower triangle of the mean of the learned Hessians, with `shift` added to the diagonal of their sum.
    fn shifted_mean(&self, shift: f64) -> Mat<f64> {
        let d = self.theta.len();
        let mut m = Mat::<f64>::zeros(d, d);
        let mut columns: Vec<&mut [f64]> =
            m.col_iter_mut().map(|column| column.try_as_col_major_mut().expect("columns in one piece").as_slice_mut()).collect();
        // Consecutive numbers in a row of the sum go to adjacent columns.
        let mut panels: Vec<&mut [&mut [f64]]> = columns.chunks_mut(COLUMNS).collect();
        parallel::each_mut(&mut panels, |panel, columns| {
            let first = panel * COLUMNS;
            for i in first..d {
                let row = &self.sum[entries(i) + first..entries(i + 1)];
                columns.iter_mut().zip(row).for_each(|(column, x)| column[i] = x / self.heard);
            }
            columns.iter_mut().enumerate().for_each(|(k, column)| column[first + k] += shift / self.heard);
        });
        m
    }

    /// Moves by the step of the answers that arrived, or asks for the losses along it. Meanwhile it learns.
    fn close(&mut self, got: &Received<'_>) -> Next {
        if self.is_fresh && got.exchange == CORRECT {
            self.learn(got.round, got.updates);
        }
        let (models, definite) = (self.models(), self.definite);
        if let (Some(search), Some(models)) = (&mut self.search, &models) {
            let gradient: Vec<f64> = models.downhill.iter().map(|x| -x).collect();
            search.begin(&gradient, self.agents.iter().all(|known| known.model == self.theta));
        }
        let learn = || {
            if !self.is_fresh && got.exchange == CORRECT {
                self.learn(got.round, got.updates);
            }
        };
        let (way, ()) = rayon::join(|| models.map(|models| models.way(definite)), learn);
        let p = match way {
            Some(Way::Minimum(p)) => p,
            Some(Way::Downhill(p)) if self.search.is_some() => p,
            // Only a line search gives the length of such a step.
            Some(Way::Downhill(_)) => {
                self.failed += 1;
                return Next::Done { tell: None };
            }
            None => return Next::Done { tell: None },
        };
        if self.search.is_some() {
            let mut to = [&self.asked[0][..], &self.asked[1]].concat();
            to.sort_unstable();
            return Next::Ask(Broadcast { to: self.all_or(&to), down: Message::one(got.round, SEARCH, Part::Step, p), own: None });
        }
        add_scaled(&mut self.theta, self.step, &p);
        Next::Done { tell: None }
    }
}

/// `[m]_mu^-1 b` of a symmetric d x d matrix, given by its lower triangle: eigenvalues of m below mu become mu. If a factorisation of
/// `m - mu I` shows that all are above, nothing is decomposed. `None` if the solution is not finite.
fn projected_solve(m: &Mat<f64>, mu: f64, b: &[f64]) -> Option<Vec<f64>> {
    let are_above = || {
        let mut rest = m.clone();
        (0..b.len()).for_each(|i| rest[(i, i)] -= mu);
        linalg::factorise(rest.as_mut())
    };
    let (are_above, x) = rayon::join(are_above, || solve_definite(m, b));
    if are_above {
        return x;
    }
    let eigen = m.self_adjoint_eigen(Side::Lower).ok()?;
    let mut shares = eigen.U().transpose() * column(b);
    for (i, value) in eigen.S().column_vector().iter().enumerate() {
        shares[(i, 0)] /= value.max(mu);
    }
    let x = (eigen.U() * shares).col_as_slice(0).to_vec();
    x.iter().all(|x| x.is_finite()).then_some(x)
}

impl Server for FedNlServer {
    fn open(&mut self, t: u64) -> Broadcast {
        let n = self.weights.len();
        // All agents take part until each has answered; the sum is over those that have.
        let are_heard = self.agents.iter().all(AgentKnowledge::is_heard);
        let participants = self.participation.of(t).filter(|_| are_heard).unwrap_or_else(|| (0..n).collect());
        let (whole, others) = participants.into_iter().partition(|c| self.agents[*c].needs_whole);
        self.asked = [whole, others];
        self.question(t, if self.asked[0].is_empty() { CORRECT } else { WHOLE })
    }

    fn receive(&mut self, got: &Received<'_>) -> Next {
        if got.exchange == SEARCH {
            let accepted = self.search.as_mut().and_then(|search| search.step(got, Some(1.0)));
            if let Some(s) = accepted {
                add_scaled(&mut self.theta, s, got.down.part(Part::Step));
            }
            self.failed += u64::from(accepted.is_none() && got.mean(Part::Losses).iter().any(|loss| *loss != 0.0));
            return Next::Done { tell: None };
        }
        // If the downlink alters models, answers are to the model that agents decoded.
        let model = got.down.part(Part::Model).to_vec();
        if self.hear(got.updates, &model) {
            self.add_up();
        }
        if !got.updates.is_empty() {
            self.theta = model;
        }
        if got.exchange == WHOLE && !self.asked[1].is_empty() {
            return Next::Ask(self.question(got.round, CORRECT));
        }
        self.close(got)
    }

    /// Accepts compressed matrices whose numbers may be learned.
    fn accepts(&self, exchange: u8, parts: &[(Part, Body)]) -> Result<()> {
        let Some((_, body)) = parts.last().filter(|_| exchange != SEARCH) else { return Ok(()) };
        let d = self.theta.len();
        if exchange == CORRECT && !self.compressor.accepts(d, body) {
            return Err(refused("a matrix that the compressor does not make", "the compressed difference of Hessians"));
        }
        if exchange == WHOLE && entries_of(d, body).is_none() {
            return Err(refused("entries that are not those of a triangle", "a whole Hessian"));
        }
        // Numbers that are not finite end the run; nodes refuse them earlier.
        if !are_finite(parts) {
            return Ok(());
        }
        let is_sound = match body {
            Body::Numbers(whole) | Body::Sparse { value: whole, .. } if exchange == WHOLE => are_bounded(whole),
            body => self.compressor.is_sound(d, body),
        };
        if !is_sound {
            return Err(refused("a matrix with huge numbers, or a vector whose length is not 1", "numbers of at most 1e150"));
        }
        let deviations = parts.iter().find(|(part, _)| *part == Part::Deviation).and_then(|(_, body)| body.numbers());
        match deviations.unwrap_or_default().iter().find(|x| **x < 0.0) {
            Some(x) => Err(refused(format!("the distance {x} of matrices"), "distances of 0 or more")),
            None => Ok(()),
        }
    }

    fn theta(&self) -> &[f64] {
        &self.theta
    }

    /// Without a line search, rounds in which M was not positive definite also count as failed searches.
    fn facts(&self) -> ServerFacts<'_> {
        ServerFacts { failed_searches: Some(self.failed), ..ServerFacts::default() }
    }

    /// The agent is asked for its whole Hessian, unless its first one is known.
    fn forget(&mut self, agent: usize) {
        let known = &mut self.agents[agent];
        known.needs_whole |= known.is_heard();
    }

    fn regrouped(&self, from: &[Option<usize>], weights: &[f64]) -> Option<Vec<u8>> {
        let known = |c: &Option<usize>| c.map_or_else(|| self.unknown.clone(), |c| self.agents[c].clone());
        let mut next = Self { agents: from.iter().map(known).collect(), weights: weights.to_vec(), ..self.clone() };
        next.asked = [Vec::new(), Vec::new()];
        next.add_up();
        Some(next.state())
    }

    fn state(&self) -> Vec<u8> {
        packed(&(&self.theta, &self.sum, self.heard, self.failed, &self.search, &self.asked, &self.agents))
    }

    fn restore(&mut self, state: &[u8]) -> Result<()> {
        (self.theta, self.sum, self.heard, self.failed, self.search, self.asked, self.agents) = unpacked(state)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
