//! The client half of SHED: gradients, and eigenpairs of a Hessian that is computed anew at renewals only.

use std::sync::Arc;

use faer::Mat;
use serde::{Deserialize, Serialize};

use super::line_search::Trials;
use super::{Agent, At};
use crate::eigenpairs::{Eigenpairs, smallest};
use crate::error::{BadInput, Result};
use crate::message::{Body, Message, Part};
use crate::protocol::refused;
use crate::random::{Key, Purpose};
use crate::schedule::renewal::{Pairs, Renewal};

/// rho, the value that takes the place of the eigenvalues that were not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Rho {
    /// `l_{q+1}`, the largest of them (\[T\] eq. 2.21).
    Next,
    /// `(l_{q+1} + l_d) / 2` (\[T\] eq. 2.8).
    Midpoint,
}

/// What all agents know of the method.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// When each agent renews: one schedule for all, or one for each.
    pub renewals: Vec<Renewal>,
    /// `d_t`.
    pub pairs: Pairs,
    /// rho.
    pub rho: Rho,
    /// The trial steps; `None` where every step is 1.
    pub trials: Option<Trials>,
}

impl Plan {
    /// The schedule of agent c.
    pub fn renewal(&self, c: usize) -> &Renewal {
        &self.renewals[c.min(self.renewals.len() - 1)]
    }
}

/// The share of the largest eigenvalue that takes the place of smaller ones, and of those that are negative: what an agent
/// sends of its Hessian is positive definite, and not below it.
pub const FLOOR: f64 = 1e-12;

/// An agent: what it last computed and sent.
pub struct ShedAgent {
    plan: Arc<Plan>,
    saved: State,
    /// The eigenpairs of the Hessian at the last renewal. They are not saved: after a restart they are computed again.
    kept: Option<Kept>,
}

/// What an agent saves.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct State {
    /// `theta_t` of the last question and `grad f_c(theta_t)`, for the line search; else empty.
    theta: Vec<f64>,
    gradient: Vec<f64>,
    /// The round of the last renewal, and theta in that round.
    renewed: Option<(u64, Vec<f64>)>,
    /// How many pairs of this Hessian the server holds, if the last answer arrived.
    sent: usize,
}

/// Eigenpairs of one Hessian.
struct Kept {
    pairs: Eigenpairs,
    /// The Hessian, while not all pairs are computed.
    hessian: Option<Mat<f64>>,
    /// `l_d`, where rho needs it.
    least: f64,
}

impl Kept {
    /// The first `few` pairs of a Hessian.
    fn new(hessian: Mat<f64>, few: usize, rho: Rho) -> Self {
        let pairs = Eigenpairs::leading(&hessian, few);
        let is_whole = pairs.values.len() == hessian.nrows();
        let least = match rho {
            Rho::Next => f64::NAN,
            Rho::Midpoint if is_whole => pairs.values[pairs.values.len() - 1],
            Rho::Midpoint => smallest(&hessian),
        };
        Self { pairs, hessian: (!is_whole).then_some(hessian), least }
    }

    /// Computes all pairs if fewer than `n` are known.
    fn ensure(&mut self, n: usize) {
        if self.pairs.values.len() < n
            && let Some(hessian) = self.hessian.take()
        {
            let few = std::mem::replace(&mut self.pairs, Eigenpairs { values: Vec::new(), vectors: Mat::new() });
            self.pairs = few.completed(&hessian);
        }
    }

    /// The least value that stands for an eigenvalue.
    fn floor(&self) -> f64 {
        (FLOOR * self.pairs.values[0]).max(f64::MIN_POSITIVE)
    }

    /// How many pairs are worth sending after the first q: at most k, up to d - 1 in all, those above the floor.
    fn worth(&mut self, q: usize, k: usize) -> usize {
        let d = self.pairs.vectors.nrows();
        let end = q.saturating_add(k).min(d - 1);
        self.ensure(end + 1);
        let floor = self.floor();
        let above = self.pairs.values.iter().take_while(|l| **l > floor).count();
        // NaN compares false, and is to be sent: the run has then diverged.
        if self.pairs.values[0].is_nan() { end.saturating_sub(q) } else { end.min(above).saturating_sub(q) }
    }

    /// rho after q pairs.
    fn rho(&mut self, q: usize, rule: Rho) -> f64 {
        self.ensure(q + 1);
        let next = self.pairs.values[q];
        let rho = match rule {
            Rho::Next => next,
            Rho::Midpoint => 0.5 * (next + self.least.min(next)),
        };
        if rho.is_nan() { rho } else { rho.max(self.floor()) }
    }
}

impl ShedAgent {
    /// The agent before its first round.
    pub fn new(plan: Arc<Plan>) -> Self {
        Self { plan, saved: State::default(), kept: None }
    }

    /// How many pairs are computed at a renewal in round t: those that are sent until the next one, and one for rho. They are a
    /// function of the settings, the seed and the round, so that a restart computes the same.
    fn few(&self, at: &At<'_>, t: u64, d: usize) -> usize {
        let rounds = self.plan.renewal(at.agent).rounds_left(t, d);
        (t..t.saturating_add(rounds)).fold(1, |few: usize, t| few.saturating_add(self.wanted(at, t)))
    }

    /// `d_t` of round t, which may be a later one.
    fn wanted(&self, at: &At<'_>, t: u64) -> usize {
        self.plan.pairs.of(at.agent, || Key::of_exchange(at.seed(), Purpose::Pairs, t, at.exchange).stream(at.agent))
    }

    /// The pairs of the last renewal: kept, or computed again after a restart.
    fn pairs(&mut self, at: &At<'_>) {
        let Some((round, theta)) = self.saved.renewed.as_ref().filter(|_| self.kept.is_none()) else { return };
        let d = theta.len();
        let mut hessian = Mat::zeros(d, d);
        at.hessian_again(theta, &mut hessian);
        self.kept = Some(Kept::new(hessian, self.few(at, *round, d), self.plan.rho));
    }

    /// Sends the gradient at theta_t and the next pairs.
    fn pairs_and_gradient(&mut self, at: &At<'_>, down: &Message) -> Result<Vec<(Part, Body)>> {
        let (t, theta) = (at.round, down.part(Part::Model));
        let d = theta.len();
        let due = due(self.plan.renewal(at.agent), down, d)?;
        let held = match down.find(Part::Held).and_then(Body::numbers) {
            None => None,
            Some(held) if held[0] == -1.0 => Some((None, 0)),
            Some(held) => match (index(held[0]).filter(|round| *round < t), index(held[1]).filter(|q| *q < d.max(1) as u64)) {
                (Some(round), Some(q)) => Some((Some(round), q as usize)),
                _ => return Err(foreign("what the server holds")),
            },
        };
        if self.saved.renewed.as_ref().is_some_and(|(_, theta)| theta.len() != d) {
            return Err(foreign("a model of another length"));
        }
        // if t in I (or the server holds pairs of a later Hessian, of which a restored agent does not know):
        let own = self.saved.renewed.as_ref().map(|(round, _)| *round);
        let is_due = own.is_none_or(|own| own < due || held.is_some_and(|(round, _)| round > Some(own)));
        if is_due {
            //   H_c = Hess f_c(theta_t), k_t = t, q = 0
            let mut hessian = Mat::zeros(d, d);
            at.hessian(theta, &mut hessian);
            self.kept = Some(Kept::new(hessian, self.few(at, t, d), self.plan.rho));
            (self.saved.renewed, self.saved.sent) = (Some((t, theta.to_vec())), 0);
        } else if let Some((round, q)) = held {
            // The last answer was lost: q is what the server holds.
            self.saved.sent = if round == own { q } else { 0 };
        }
        self.pairs(at);
        let wanted = self.wanted(at, t);
        let (round, kept) = match (&self.saved.renewed, &mut self.kept) {
            (Some((round, _)), Some(kept)) => (*round, kept),
            _ => unreachable!("an agent renews in its first round"),
        };
        // q_t = q_{t-1} + d_t
        let first = self.saved.sent;
        let q = first + kept.worth(first, wanted);
        let rho = kept.rho(q, self.plan.rho);
        self.saved.sent = q;
        // U = { (l_j, v_j) for q_{t-1} < j <= q_t, grad f_c(theta_t), rho }
        let mut values = vec![round as f64, first as f64, rho];
        values.extend(&kept.pairs.values[first..q]);
        let vectors = (first..q).flat_map(|j| kept.pairs.vector(j)).copied().collect();
        let mut gradient = vec![0.0; d];
        at.gradient(theta, &mut gradient);
        if self.plan.trials.is_some() {
            self.saved.theta = theta.to_vec();
            self.saved.gradient.clone_from(&gradient);
        }
        Ok(vec![
            (Part::Gradient, Body::Numbers(gradient)),
            (Part::Eigenvalues, Body::Numbers(values)),
            (Part::Eigenvectors, Body::Numbers(vectors)),
        ])
    }
}

impl Agent for ShedAgent {
    fn answer(&mut self, at: &At<'_>, down: &Message) -> Result<Vec<(Part, Body)>> {
        if down.exchange == 0 {
            return self.pairs_and_gradient(at, down);
        }
        let p = down.part(Part::Step);
        let trials = self.plan.trials.as_ref().filter(|_| self.saved.theta.len() == p.len());
        let trials = trials.ok_or_else(|| refused("a step before the first model", "the exchanges of a round in their order"))?;
        Ok(vec![(Part::Losses, Body::Numbers(trials.answer(at, &self.saved.theta, &self.saved.gradient, p)))])
    }

    fn save(&self) -> Vec<u8> {
        postcard::to_stdvec(&self.saved).expect("plain data serialises")
    }

    fn restore(&mut self, bytes: &[u8]) -> Result<()> {
        let (saved, rest): (State, _) = postcard::take_from_bytes(bytes).map_err(|_| bad_state())?;
        let State { theta, gradient, renewed, sent } = &saved;
        let d = renewed.as_ref().map_or(0, |(_, theta)| theta.len());
        let has_search = self.plan.trials.is_some() && renewed.is_some();
        let fits = theta.len() == gradient.len() && theta.len() == if has_search { d } else { 0 } && *sent < d.max(1);
        let mut numbers = theta.iter().chain(gradient).chain(renewed.iter().flat_map(|(_, theta)| theta));
        if !rest.is_empty() || !fits || renewed.is_some() && d == 0 || !numbers.all(|x| x.is_finite()) {
            return Err(bad_state());
        }
        (self.saved, self.kept) = (saved, None);
        Ok(())
    }
}

/// The round of the last renewal in or before the round of a question, for vectors of d components.
///
/// # Errors
/// When the server decides on renewals, and the question names a round that is none.
pub(super) fn due(renewal: &Renewal, down: &Message, d: usize) -> Result<u64> {
    match renewal.last(down.round, d) {
        Some(due) => Ok(due),
        None => index(down.part(Part::Renewal)[0]).filter(|due| *due <= down.round).ok_or_else(|| foreign("the round of a renewal")),
    }
}

/// A whole number that a message gives.
pub(super) fn index(x: f64) -> Option<u64> {
    (x >= 0.0 && x.fract() == 0.0 && x < f64::from(u32::MAX)).then_some(x as u64)
}

pub(super) fn foreign(what: &str) -> BadInput {
    refused(what, "rounds and numbers of pairs of this method")
}

fn bad_state() -> BadInput {
    BadInput::new("checkpoint", "not the state of an agent of SHED", "a checkpoint of the same settings")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As many pairs as the schedule can ask for are worth sending up to d - 1, and not those below the floor.
    #[test]
    fn any_number_of_pairs_may_be_asked_for() {
        let mut kept = Kept::new(Mat::<f64>::identity(4, 4), 1, Rho::Next);
        assert_eq!((kept.worth(0, usize::MAX), kept.worth(1, usize::MAX), kept.worth(2, 1), kept.worth(3, 5)), (3, 2, 1, 0));
        let mut flat = Kept::new(Mat::<f64>::identity(4, 4) * faer::Scale(-1.0), 1, Rho::Next);
        assert_eq!((flat.worth(0, usize::MAX), flat.rho(0, Rho::Next)), (0, f64::MIN_POSITIVE));
    }
}
