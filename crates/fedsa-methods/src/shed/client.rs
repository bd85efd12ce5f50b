//! The client half of SHED: gradients, and eigenpairs of a Hessian that is recomputed only at renewals.

use std::sync::Arc;

use faer::Mat;
use fedsa::eigenpairs::Eigenpairs;
use fedsa::error::{Error, Result};
use fedsa::local::{Agent, LocalContext};
use fedsa::message::{Body, LastAnswer, Message, Part};
use fedsa::protocol::refused;
use fedsa::random::{Key, Purpose};
use fedsa::schedule::renewal::{Pairs, Renewal};
use serde::{Deserialize, Serialize};

use super::hessian_pairs::{AT_ONCE, HessianPairs, Rho, SavedPairs, SavedRest, Source};
use crate::local::Point;
use crate::local::line_search::Trials;
use crate::local::renewal::{due, foreign};

/// The method's parameters, known to all agents.
#[derive(Debug, Clone, PartialEq)]
pub struct ShedPlan {
    /// The agents' renewal schedules: one for all, or one each.
    pub renewals: Vec<Renewal>,
    /// `d_t`.
    pub pairs: Pairs,
    /// rho.
    pub rho: Rho,
    /// The trial steps; `None` if every step is 1.
    pub trials: Option<Trials>,
    /// The most pairs sent of one Hessian, at most d - 1.
    pub most: usize,
    /// The relative residual of eigenpairs from products with the Hessian; `None` if Hessians are formed.
    pub tolerance: Option<f64>,
}

impl ShedPlan {
    /// The value of d in schedules: the number of rounds in which all pairs are sent.
    fn span(&self) -> usize {
        self.most + 1
    }

    /// The schedule of agent c.
    pub fn renewal(&self, c: usize) -> &Renewal {
        &self.renewals[c.min(self.renewals.len() - 1)]
    }
}

/// An agent: its last computations and messages.
pub struct ShedAgent {
    plan: Arc<ShedPlan>,
    saved: State,
    /// The eigenpairs of the Hessian at the last renewal. For a formed Hessian, pairs that may still be sent before the next renewal are
    /// saved. Pairs from products are all saved, because an iteration starts from the previous renewal's pairs.
    kept: Option<HessianPairs>,
}

/// The saved state of an agent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct State {
    /// The last model of a question, for the line search; otherwise empty.
    point: Point,
    /// The round of the last renewal, and theta in that round.
    renewed: Option<(u64, Vec<f64>)>,
    /// The round of its last answer.
    answered: Option<u64>,
    /// The number of pairs of this Hessian at the server, if the last answer counted.
    sent: usize,
    /// The number at the server otherwise.
    held: usize,
}

impl ShedAgent {
    /// The agent before its first round.
    pub fn new(plan: Arc<ShedPlan>) -> Self {
        Self { plan, saved: State::default(), kept: None }
    }

    /// The number of pairs computed at a renewal in round t: the pairs sent until the next one, and one for rho. It depends on the
    /// settings, the seed and the round only, so a restart computes the same pairs.
    fn few(&self, at: &LocalContext<'_>, t: u64) -> usize {
        let rounds = self.plan.renewal(at.agent).rounds_left(t, self.plan.span());
        (t..t.saturating_add(rounds)).fold(1, |few: usize, t| few.saturating_add(self.wanted(at, t))).min(self.plan.span())
    }

    /// `d_t` of round t, which may be a later round.
    fn wanted(&self, at: &LocalContext<'_>, t: u64) -> usize {
        self.plan.pairs.of(at.agent, || Key::of_exchange(at.seed(), Purpose::Pairs, t, at.exchange).stream(at.agent))
    }

    /// Renews at theta in round t: `H_c = Hess f_c(theta_t), k_t = t, q = 0`.
    fn renew(&mut self, at: &LocalContext<'_>, t: u64, theta: &[f64]) {
        let (few, before) = (self.few(at, t), self.kept.take());
        let renewed = (t, theta.to_vec());
        self.kept = Some(match self.plan.tolerance {
            None => {
                let memory = if let Some(HessianPairs { source: Source::Formed(Some(old)), .. }) = before { old } else { Mat::new() };
                at.count_hessian();
                HessianPairs::of_hessian(at, theta, few, self.plan.rho, memory)
            }
            Some(tolerance) => HessianPairs::of_products(at, &renewed, before, few.min(AT_ONCE), self.plan.rho, tolerance),
        });
        (self.saved.renewed, self.saved.sent, self.saved.held) = (Some(renewed), 0, 0);
    }

    /// Recomputes the pairs of the last renewal if saved ones do not suffice to send pairs from index `from` on, when n must be known,
    /// because the agent restarts.
    fn compute_again(&mut self, at: &LocalContext<'_>, from: usize, n: usize) {
        let Some((round, theta)) = &self.saved.renewed else { return };
        if self.plan.tolerance.is_none() && self.kept.as_ref().is_none_or(|kept| kept.lacks(from, n)) {
            self.kept = Some(HessianPairs::of_hessian(at, theta, self.few(at, *round), self.plan.rho, Mat::new()));
        }
    }

    /// After a restart: finds the support to which saved pairs from products belong.
    fn resume(&mut self, at: &LocalContext<'_>) {
        let Some((_, theta)) = &self.saved.renewed else { return };
        let (Some(kept), Some(tolerance)) = (&mut self.kept, self.plan.tolerance) else { return };
        if !matches!(kept.source, Source::Restored) {
            return;
        }
        let support = at.active();
        let n = support.as_ref().map_or(theta.len(), |support| support.components.len());
        if kept.pairs.values.is_empty() {
            kept.pairs = Eigenpairs::none(n);
        }
        kept.source = Source::Products { support, tolerance };
        // Pairs of other data are useless: the agent renews.
        if kept.pairs.vectors.nrows() != n {
            (self.kept, self.saved.renewed) = (None, None);
        }
    }

    /// Sends the gradient at theta_t and the next pairs.
    fn pairs_and_gradient(&mut self, at: &LocalContext<'_>, down: &Message) -> Result<Vec<(Part, Body)>> {
        let (t, theta) = (at.round, down.part(Part::Model));
        let d = theta.len();
        let due = due(self.plan.renewal(at.agent), down, self.plan.span())?;
        if self.saved.renewed.as_ref().is_some_and(|(_, theta)| theta.len() != d) {
            return Err(foreign("a model of another length"));
        }
        self.resume(at);
        // if t in I:
        if self.saved.renewed.as_ref().is_none_or(|(own, _)| *own < due) {
            self.renew(at, t, theta);
        }
        // q_t = q_{t-1} + d_t;  q_{t-1} is what the server holds
        let first = match down.last_answer(self.saved.answered) {
            LastAnswer::Counted => self.saved.sent,
            LastAnswer::Lost => self.saved.held,
            LastAnswer::NoneCounts => 0,
        };
        let end = first.saturating_add(self.wanted(at, t)).min(self.plan.most);
        self.compute_again(at, first, end.max(first) + 1);
        let few = self.few(at, self.saved.renewed.as_ref().map_or(t, |(round, _)| *round));
        let (renewed, kept) = match (&self.saved.renewed, &mut self.kept) {
            (Some(renewed), Some(kept)) => (renewed, kept),
            _ => unreachable!("an agent renews in its first round"),
        };
        kept.ensure(at, renewed, end.max(first) + 1, few);
        let q = first + kept.worth(first, end);
        let rho = kept.rho(q, self.plan.rho);
        (self.saved.answered, self.saved.sent, self.saved.held) = (Some(t), q, first);
        // U = { (l_j, v_j) for q_{t-1} < j <= q_t, grad f_c(theta_t), rho }
        let mut values = vec![renewed.0 as f64, first as f64, rho];
        values.extend(kept.pairs.values.iter().take(q).skip(first));
        let vectors = kept.body(first, q, d);
        let point = Point::asked(at, down);
        let gradient = point.gradient.clone();
        if self.plan.trials.is_some() {
            self.saved.point = point;
        }
        Ok(vec![(Part::Gradient, Body::Numbers(gradient)), (Part::Eigenvalues, Body::Numbers(values)), (Part::Eigenvectors, vectors)])
    }
}

impl Agent for ShedAgent {
    fn answer(&mut self, at: &LocalContext<'_>, down: &Message) -> Result<Vec<(Part, Body)>> {
        if down.exchange == 0 {
            return self.pairs_and_gradient(at, down);
        }
        let trials = self.plan.trials.as_ref().ok_or_else(|| refused("a step", "the exchanges of this method"))?;
        self.saved.point.losses(at, trials, down.part(Part::Step))
    }

    fn save(&self) -> Vec<u8> {
        let pairs = self.kept.as_ref().and_then(HessianPairs::saved);
        // Pairs with NaN cannot be sent: the agent renews when it returns.
        let is_lost = pairs.as_ref().is_some_and(|pairs| !pairs.is_finite());
        let saved = if is_lost { &State::default() } else { &self.saved };
        let mut bytes = postcard::to_stdvec(saved).expect("plain data serialises");
        if is_lost {
            return bytes;
        }
        if let Some(pairs) = pairs {
            bytes = postcard::to_extend(&pairs, bytes).expect("plain data serialises");
        } else if let Some(rest) = self.kept.as_ref().and_then(|kept| kept.rest(self.saved.held)) {
            bytes = postcard::to_extend(&rest, bytes).expect("plain data serialises");
        }
        bytes
    }

    fn restore(&mut self, bytes: &[u8]) -> Result<()> {
        let (saved, rest): (State, _) = postcard::take_from_bytes(bytes).map_err(|_| bad_state())?;
        let State { point: Point { theta, gradient }, renewed, sent, held, .. } = &saved;
        let d = renewed.as_ref().map_or(0, |(_, theta)| theta.len());
        let has_search = self.plan.trials.is_some() && renewed.is_some();
        let fits = theta.len() == gradient.len() && theta.len() == if has_search { d } else { 0 } && *sent < d.max(1) && held <= sent;
        // Numbers may be infinite or NaN if the agent was asked far from where its loss can be computed.
        if !fits || renewed.is_some() && d == 0 {
            return Err(bad_state());
        }
        let kept = if self.plan.tolerance.is_some() && renewed.is_some() {
            let (pairs, rest): (SavedPairs, _) = postcard::take_from_bytes(rest).map_err(|_| bad_state())?;
            let kept = HessianPairs::restored(pairs).filter(|kept| rest.is_empty() && kept.pairs.vectors.nrows() <= d);
            Some(kept.ok_or_else(bad_state)?)
        } else if rest.is_empty() {
            None
        } else {
            let (saved, rest): (SavedRest, _) = postcard::take_from_bytes(rest).map_err(|_| bad_state())?;
            let kept = HessianPairs::of_rest(saved, d).filter(|_| rest.is_empty() && renewed.is_some());
            Some(kept.ok_or_else(bad_state)?)
        };
        (self.saved, self.kept) = (saved, kept);
        Ok(())
    }
}

fn bad_state() -> Error {
    Error::format("checkpoint", "not the state of an agent of SHED", "a checkpoint of the same settings")
}
