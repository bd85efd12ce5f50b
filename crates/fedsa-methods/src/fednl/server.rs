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
    /// Its eigenvalues below mu become mu (Option 1).
    Projection(f64),
    /// The mean distance of learned from true Hessians is added to its diagonal (Option 2).
    Shift,
}

/// The sum of the learned Hessians is computed anew every so many rounds, against rounding errors that add up.
const ROUNDS_OF_A_SUM: u64 = 50;
/// The entries of the sum that a thread computes at a time, at least.
const ENTRIES: usize = 4096;
/// The columns of the mean that a thread fills at a time.
const COLUMNS: usize = 8;
/// The agents that a thread learns from at a time, at most: their matrices differ in size.
const AGENTS: usize = 4;
/// The tasks of a thread, about: few, because each looks through all changes, but more than one.
const TASKS: usize = 2;

/// A learned Hessian `H_c`: its entries on a support.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Learned {
    support: Support,
    entries: Vec<f64>,
}

impl Learned {
    /// The matrix of a whole Hessian's message; `None` if it is none.
    fn of(d: usize, whole: &Body) -> Option<Self> {
        let (support, entries) = match whole {
            Body::Numbers(x) => (Support::all(d), x),
            Body::Sparse { index, value, .. } => (Support::of(d, index.clone())?, value),
            Body::Packed(_) => return None,
        };
        (entries.len() == support.len()).then(|| Self { support, entries: entries.clone() })
    }

    /// Adds `scale C`, for which the support may have to grow. Returns whether the result is finite.
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

/// What the server knows of an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentKnowledge {
    /// `H_c`, if there is one.
    learned: Option<Learned>,
    /// The model of the agent's last answer and its gradient there; empty before the first.
    model: Vec<f64>,
    gradient: Vec<f64>,
    /// `||H_c - Hess f_c||_F` as the agent last said of this `H_c`.
    deviation: f64,
    /// Whether the agent must be asked for its whole Hessian.
    needs_whole: bool,
}

impl AgentKnowledge {
    /// Forgets everything: the agent counts again once it has sent its whole Hessian.
    fn forget(&mut self) {
        let (model, gradient) = (Vec::new(), Vec::new());
        *self = Self { learned: None, model, gradient, deviation: 0.0, needs_whole: true };
    }

    /// Starts anew from the whole Hessian of a message.
    fn start(&mut self, d: usize, whole: &Body) {
        self.learned = Learned::of(d, whole);
        (self.deviation, self.needs_whole) = (0.0, self.learned.is_none());
    }

    /// `H_c`, if an answer of the agent counts.
    fn heard(&self) -> Option<&Learned> {
        self.learned.as_ref().filter(|_| !self.model.is_empty())
    }

    /// Whether an answer of the agent counts.
    fn is_heard(&self) -> bool {
        self.heard().is_some()
    }
}

/// Where a round's answers lead.
#[derive(Debug, Clone, PartialEq)]
enum Way {
    /// The step to the minimum of the sum of the agents' quadratic models.
    Minimum(Vec<f64>),
    /// This sum has no minimum, or none that can be computed: minus the mean gradient.
    Downhill(Vec<f64>),
}

/// The sum of quadratic models: `p^T M p / 2 - r^T p` of a step p.
struct Models {
    /// M: its lower triangle is read.
    m: Mat<f64>,
    /// r.
    right: Vec<f64>,
    /// Minus the mean gradient of the agents whose last answer is to the present model.
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
/// The step of a round minimises the sum of the agents' last quadratic models: with `w_c` the model that agent c answered last,
/// `M = sum p_c (H_c + l_c I)`, `p = M^-1 sum p_c [(H_c + l_c I)(w_c - theta) - grad f_c(w_c)]`. If all agents answer the present
/// model, this is `-(H + l I)^-1 g` with the means. Agents whose answers are missing, or that do not take part in a round, count
/// with their last one, and the method settles at the root all the same. `l_c` is the distance of the `H_c` in M: that before the
/// correction in the round of an answer, and that after it later.
///
/// Where M is not positive definite, a line search goes along minus the mean gradient of the answers to the present model; without
/// a line search theta stays, which counts as a failed search.
///
/// It keeps `H_c` of each agent on its support, which it learns from the agent's whole Hessian and which grows with corrections: at most
/// N d (d + 1) / 2 numbers.
#[derive(Clone)]
pub struct FedNlServer {
    theta: Vec<f64>,
    weights: Vec<f64>,
    seed: u64,
    compressor: Arc<dyn Compressor>,
    learning_rate: f64,
    definite: Definite,
    /// The share of the step, without a line search.
    step: f64,
    search: Option<LineSearch>,
    participation: Participation,
    agents: Vec<AgentKnowledge>,
    /// What is known of an agent before its first answer.
    unknown: AgentKnowledge,
    /// `sum p_c H_c` over the agents that have answered, a lower triangle; the sum of their weights.
    sum: Vec<f64>,
    heard: f64,
    /// The round's participants that were asked for their whole Hessian, and the others.
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
    /// mu of the first learned Hessian `mu I`; without it agents send theirs.
    pub first: Option<f64>,
    /// The share of the step that is taken without a line search.
    pub step: f64,
    /// The trial steps of a line search.
    pub trials: Option<Trials>,
    /// The participants of a round, once each agent has been heard; before, all take part.
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
        let FedNlRule { compressor, learning_rate, definite, step, trials, participation, .. } = rule;
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
            participation,
            agents,
            unknown: known,
            sum,
            heard: 0.0,
            asked,
            failed: 0,
        }
    }

    /// The question of an exchange with a model to the agents that it asks.
    fn question(&self, round: u64, exchange: u8) -> Broadcast {
        let to = self.all_or(&self.asked[usize::from(exchange)]);
        Broadcast { to, down: Message::one(round, exchange, Part::Model, self.theta.clone()), own: None }
    }

    fn all_or(&self, to: &[usize]) -> Option<Vec<usize>> {
        (to.len() < self.weights.len()).then(|| to.to_vec())
    }

    /// Records what the answers say of their agents, at the model that they decoded. Returns whether the sum has to be computed anew.
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

    /// Computes the sum over the agents that have been heard, and their weight: each entry in the order of the agents, so that
    /// bits do not depend on threads.
    fn add_up(&mut self) {
        let heard: Vec<(f64, &Learned)> =
            self.weights.iter().zip(&self.agents).filter_map(|(p, known)| Some((*p, known.heard()?))).collect();
        parallel::each_mut(&mut by_rows(&mut self.sum, self.theta.len()), |_, (rows, sum)| {
            sum.fill(0.0);
            heard.iter().for_each(|(p, learned)| learned.support.add_rows(&learned.entries, *p, rows, sum));
        });
        self.heard = heard.iter().map(|(p, _)| p).sum();
    }

    /// Makes the changes of the answers that have counted: the rows of the sum in parallel, each in the agents' order, then agents in
    /// parallel. An agent whose matrix is no longer finite is forgotten.
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
            // With the distance after it.
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

    /// The sum of the quadratic models of the agents' last answers; `None` without an answer to the present model, and where the sum has
    /// its minimum there.
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
        // Numbers that follow each other in a row of the sum go to columns beside each other.
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

    /// Moves by the step of the answers that have arrived, or asks for the losses along it. Meanwhile learns.
    fn close(&mut self, got: &Received<'_>) -> Next {
        let (models, definite) = (self.models(), self.definite);
        if let (Some(search), Some(models)) = (&mut self.search, &models) {
            let gradient: Vec<f64> = models.downhill.iter().map(|x| -x).collect();
            search.begin(&gradient, self.agents.iter().all(|known| known.model == self.theta));
        }
        let learn = || {
            if got.exchange == CORRECT {
                self.learn(got.round, got.updates);
            }
        };
        let (way, ()) = rayon::join(|| models.map(|models| models.way(definite)), learn);
        let p = match way {
            Some(Way::Minimum(p)) => p,
            Some(Way::Downhill(p)) if self.search.is_some() => p,
            // The length of such a step is known from a line search only.
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

/// `[m]_mu^-1 b` of a symmetric d x d matrix (its lower triangle is read): eigenvalues of m below mu count as mu. Where all are above,
/// which a factorisation of `m - mu I` tells, nothing is decomposed. `None` if the solution is not finite.
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
        // All agents take part until each has answered: the sum is over the agents that have.
        let are_heard = self.agents.iter().all(AgentKnowledge::is_heard);
        let participants = self.participation.of(t).filter(|_| are_heard).unwrap_or_else(|| (0..n).collect());
        let (whole, others) = participants.into_iter().partition(|c| self.agents[*c].needs_whole);
        self.asked = [whole, others];
        self.question(t, if self.asked[0].is_empty() { CORRECT } else { WHOLE })
    }

    fn receive(&mut self, got: &Received<'_>) -> Next {
        if got.exchange == SEARCH {
            let (p, losses) = (got.down.part(Part::Step), got.mean(Part::Losses));
            let accepted = self.search.as_mut().and_then(|search| search.step(p, &losses, got.arrived.is_empty(), Some(1.0)));
            if let Some(s) = accepted {
                add_scaled(&mut self.theta, s, p);
            }
            self.failed += u64::from(accepted.is_none() && losses.iter().any(|loss| *loss != 0.0));
            return Next::Done { tell: None };
        }
        // Where the downlink alters models, answers are to the model that agents decoded.
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

    /// Matrices that the compressor makes, with numbers that can be learned.
    fn accepts(&self, exchange: u8, parts: &[(Part, Body)]) -> Result<()> {
        let Some((_, body)) = parts.last().filter(|_| exchange != SEARCH) else { return Ok(()) };
        let d = self.theta.len();
        if exchange == CORRECT && !self.compressor.accepts(d, body) {
            return Err(refused("a matrix that the compressor does not make", "the compressed difference of Hessians"));
        }
        if exchange == WHOLE && entries_of(d, body).is_none() {
            return Err(refused("entries that are not those of a triangle", "a whole Hessian"));
        }
        // Numbers that are not finite end the run; from a network they are refused before.
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

    /// Failed searches also count, without a line search, the rounds in which M was not positive definite.
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
