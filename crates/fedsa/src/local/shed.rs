//! The client half of SHED: gradients, and eigenpairs of a Hessian that is computed anew at renewals only.

use std::sync::Arc;

use faer::Mat;
use serde::{Deserialize, Serialize};

use super::line_search::Trials;
use super::{Agent, LocalContext};
use crate::eigenpairs::restarted::Search;
use crate::eigenpairs::{Eigenpairs, smallest};
use crate::error::{Error, Result};
use crate::message::{Body, Message, Part};
use crate::problem::objective::ActiveComponents;
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
pub struct ShedPlan {
    /// When each agent renews: one schedule for all, or one for each.
    pub renewals: Vec<Renewal>,
    /// `d_t`.
    pub pairs: Pairs,
    /// rho.
    pub rho: Rho,
    /// The trial steps; `None` where every step is 1.
    pub trials: Option<Trials>,
    /// How many pairs of one Hessian are sent, at most d - 1.
    pub most: usize,
    /// The relative residual of eigenpairs that are computed from products with the Hessian; `None` where Hessians are formed.
    pub tolerance: Option<f64>,
}

impl ShedPlan {
    /// What schedules take for d: in as many rounds all pairs are sent.
    fn span(&self) -> usize {
        self.most + 1
    }

    /// The schedule of agent c.
    pub fn renewal(&self, c: usize) -> &Renewal {
        &self.renewals[c.min(self.renewals.len() - 1)]
    }
}

/// The share of the largest eigenvalue that takes the place of smaller ones, and of those that are negative: what an agent
/// sends of its Hessian is positive definite, and not below it.
pub const FLOOR: f64 = 1e-12;

/// How many pairs are computed from products at one time, at most: the iteration keeps half as many vectors again.
pub const AT_ONCE: usize = 32;
/// How many pairs are computed at one time, at least, after the first ones.
const AT_LEAST: usize = 8;

/// An agent: what it last computed and sent.
pub struct ShedAgent {
    plan: Arc<ShedPlan>,
    saved: State,
    /// The eigenpairs of the Hessian at the last renewal. Of a formed Hessian those are saved that may still have to be sent before the next
    /// renewal; all of those from products, because an iteration starts from the pairs of the renewal before.
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
    /// How many it holds in any case.
    held: usize,
}

/// What an agent saves beside it of its eigenpairs.
#[derive(Serialize, Deserialize)]
struct SavedPairs {
    values: Vec<f64>,
    /// One eigenvector after the other.
    vectors: Vec<f64>,
    least: f64,
}

impl SavedPairs {
    fn is_finite(&self) -> bool {
        self.values.iter().chain(&self.vectors).all(|x| x.is_finite()) && !self.least.is_infinite()
    }
}

/// What it saves of pairs of a formed Hessian: the eigenvectors from number `first` on, of those that are sent before the next renewal.
#[derive(Serialize, Deserialize)]
struct SavedRest {
    first: usize,
    few: usize,
    pairs: SavedPairs,
}

/// Eigenpairs of one Hessian.
struct Kept {
    /// In the components of the support, where one is known.
    pairs: Eigenpairs,
    source: Source,
    /// `l_d`, where rho needs it.
    least: f64,
    /// How many pairs of a formed Hessian are wanted until the next renewal.
    few: usize,
}

/// Where further pairs come from.
enum Source {
    /// The Hessian; `None` once all pairs are computed.
    Formed(Option<Mat<f64>>),
    /// Products with the Hessian, which differs from a multiple of the identity in the components of the support.
    Products { support: Option<ActiveComponents>, tolerance: f64 },
    /// Saved pairs from products.
    Restored,
    /// Saved pairs of a formed Hessian: the first known eigenvector is that of pair `first`.
    Rest { first: usize },
}

impl Kept {
    /// The first `few` pairs of a Hessian.
    fn formed(hessian: Mat<f64>, few: usize, rho: Rho) -> Self {
        let pairs = Eigenpairs::leading(&hessian, few);
        let is_whole = pairs.values.len() == hessian.nrows();
        let least = match rho {
            Rho::Next => f64::NAN,
            Rho::Midpoint if is_whole => pairs.values[pairs.values.len() - 1],
            Rho::Midpoint => smallest(&hessian),
        };
        Self { pairs, source: Source::Formed((!is_whole).then_some(hessian)), least, few }
    }

    /// The first pairs of the Hessian at theta from products with it. The iteration starts from those of the renewal before.
    fn of_products(
        at: &LocalContext<'_>,
        renewed: &(u64, Vec<f64>),
        before: Option<Kept>,
        goal: usize,
        plan: &ShedPlan,
        tolerance: f64,
    ) -> Self {
        let support = at.active();
        let n = support.as_ref().map_or(renewed.1.len(), |support| support.components.len());
        let near = before.map(|kept| kept.pairs.vectors).filter(|near| near.nrows() == n).unwrap_or_else(|| Mat::zeros(n, 0));
        let support = support.as_ref();
        let least = match plan.rho {
            Rho::Next => f64::NAN,
            Rho::Midpoint => {
                let outside = support.map_or(f64::INFINITY, |support| support.outside);
                let inside = if n > 0 { search(at, renewed, LEAST, support, tolerance, |search| search.smallest()) } else { outside };
                if inside < outside || inside.is_nan() { inside } else { outside }
            }
        };
        let pairs = search(at, renewed, 0, support, tolerance, |search| search.extend(Eigenpairs::none(n), goal, &near));
        Self { pairs, source: Source::Products { support: support.cloned(), tolerance }, least, few: goal }
    }

    /// Computes further pairs if fewer than `n` are known, and there are more: all of a formed Hessian, or at least up to n and at most about
    /// `few` from products.
    fn ensure(&mut self, at: &LocalContext<'_>, renewed: &(u64, Vec<f64>), n: usize, few: usize) {
        let known = self.pairs.values.len();
        if known >= n.min(self.pairs.vectors.nrows()) {
            return;
        }
        let pairs = std::mem::replace(&mut self.pairs, Eigenpairs::none(0));
        self.pairs = match &mut self.source {
            Source::Formed(hessian) => match hessian.take() {
                Some(hessian) => pairs.completed(&hessian),
                None => pairs,
            },
            Source::Products { support, tolerance } => {
                let goal = n.max(few.max(known + AT_LEAST).min(known + AT_ONCE));
                let near = Mat::zeros(pairs.vectors.nrows(), 0);
                search(at, renewed, known, support.as_ref(), *tolerance, |search| search.extend(pairs, goal - known, &near))
            }
            Source::Restored | Source::Rest { .. } => pairs,
        };
    }

    /// The eigenvalue of all components outside of the support, where one is known.
    fn outside(&self) -> Option<f64> {
        match &self.source {
            Source::Products { support: Some(support), .. } => Some(support.outside),
            _ => None,
        }
    }

    /// Eigenvalue j, from 0, if the first j + 1 are known.
    fn value(&self, j: usize) -> f64 {
        match (self.pairs.values.get(j), self.outside()) {
            (Some(inside), Some(outside)) if *inside < outside => outside,
            (Some(inside), _) => *inside,
            (None, outside) => outside.unwrap_or(f64::NAN),
        }
    }

    /// The least value that stands for an eigenvalue.
    fn floor(&self) -> f64 {
        (FLOOR * self.value(0)).max(f64::MIN_POSITIVE)
    }

    /// How many pairs are worth sending after the first q, of which at least `end` and one more are known: up to `end` in all, those above
    /// the floor, and above the eigenvalue of what is outside of the support by more than their errors.
    fn worth(&self, q: usize, end: usize) -> usize {
        let floor = match (&self.source, self.outside()) {
            (Source::Products { tolerance, .. }, Some(outside)) => self.floor().max(outside + tolerance * self.value(0)),
            _ => self.floor(),
        };
        let above = self.pairs.values.iter().take_while(|l| **l > floor).count();
        // NaN compares false, and is to be sent: the run has then diverged.
        let end = if self.value(0).is_nan() { end.min(self.pairs.values.len()) } else { end.min(above) };
        end.saturating_sub(q)
    }

    /// rho after q pairs, of which one more is known.
    fn rho(&self, q: usize, rule: Rho) -> f64 {
        let next = self.value(q);
        let rho = match rule {
            Rho::Next => next,
            Rho::Midpoint => 0.5 * (next + self.least.min(next)),
        };
        if rho.is_nan() { rho } else { rho.max(self.floor()) }
    }

    /// The number of the first pair whose vector is known.
    fn first(&self) -> usize {
        if let Source::Rest { first } = self.source { first } else { 0 }
    }

    /// Whether saved pairs do not suffice to send those from number `from` on, of which n are to be known.
    fn lacks(&self, from: usize, n: usize) -> bool {
        matches!(self.source, Source::Rest { first } if from < first || self.pairs.values.len() < n.min(self.pairs.vectors.nrows()))
    }

    /// The eigenvectors `from..to` in d components, one after the other.
    fn body(&self, from: usize, to: usize, d: usize) -> Body {
        let vectors = (from..to).map(|j| self.pairs.vector(j - self.first()));
        let Source::Products { support: Some(ActiveComponents { components, .. }), .. } = &self.source else {
            return Body::Numbers(vectors.flatten().copied().collect());
        };
        let place = |j: usize| move |(i, x): (&u32, &f64)| ((j * d) as u32 + i, *x);
        let some = vectors.enumerate().flat_map(|(j, v)| components.iter().zip(v).filter(|(_, x)| **x != 0.0).map(place(j)));
        let (index, value) = some.unzip();
        Body::shorter((to - from) * d, index, value)
    }

    /// What is saved of pairs of a formed Hessian of which the server holds `held`; `None` where they are not finite.
    fn rest(&self, held: usize) -> Option<SavedRest> {
        let known = self.few.min(self.pairs.values.len());
        let first = held.max(self.first()).min(known);
        // The last pair that is wanted serves rho alone, with its value.
        let vectors = (first..known.saturating_sub(1)).flat_map(|j| self.pairs.vector(j - self.first())).copied().collect();
        let pairs = SavedPairs { values: self.pairs.values[..known].to_vec(), vectors, least: self.least };
        let is_finite = pairs.values.iter().chain(&pairs.vectors).all(|x| x.is_finite());
        is_finite.then_some(SavedRest { first, few: self.few, pairs })
    }

    /// The pairs that [`Kept::rest`] gave, of a Hessian with d rows; `None` if they are not such.
    fn of_rest(saved: SavedRest, d: usize) -> Option<Self> {
        let SavedRest { first, few, pairs: SavedPairs { values, vectors, least } } = saved;
        let (known, columns) = (values.len(), values.len().saturating_sub(first + 1));
        let is_finite = values.iter().chain(&vectors).all(|x| x.is_finite()) && !least.is_infinite();
        let fits = first <= known && known <= d && known <= few && vectors.len() == columns * d && values.is_sorted_by(|a, b| a >= b);
        let pairs = Eigenpairs { vectors: Mat::from_fn(d, columns, |i, j| vectors.get(j * d + i).copied().unwrap_or(f64::NAN)), values };
        (fits && is_finite).then_some(Self { pairs, source: Source::Rest { first }, least, few })
    }

    /// What is saved of pairs from products.
    fn saved(&self) -> Option<SavedPairs> {
        let (Source::Products { .. } | Source::Restored) = self.source else { return None };
        let vectors = (0..self.pairs.values.len()).flat_map(|j| self.pairs.vector(j)).copied().collect();
        Some(SavedPairs { values: self.pairs.values.clone(), vectors, least: self.least })
    }

    /// The pairs that [`Kept::saved`] gave; `None` if they are not such.
    fn restored(saved: SavedPairs) -> Option<Self> {
        let is_finite = saved.is_finite();
        let SavedPairs { values, vectors, least } = saved;
        let (q, n) = (values.len(), vectors.len().checked_div(values.len()).unwrap_or(0));
        let fits = n * q == vectors.len() && q <= n && values.is_sorted_by(|a, b| a >= b);
        let pairs = Eigenpairs { values, vectors: Mat::from_fn(n, q, |i, j| vectors[j * n + i]) };
        (fits && is_finite).then_some(Self { pairs, source: Source::Restored, least, few: q })
    }
}

/// In place of a number of pairs in the key of a stream: the least eigenvalue is looked for.
const LEAST: usize = (1 << 20) - 1;

/// Calls `see` with a search for eigenpairs of the agent's Hessian at its last renewal, in the components of its support. Streams are keyed by
/// the round of the renewal and the number of pairs that are known.
fn search<R>(
    at: &LocalContext<'_>,
    renewed: &(u64, Vec<f64>),
    known: usize,
    support: Option<&ActiveComponents>,
    tolerance: f64,
    see: impl FnOnce(Search<'_>) -> R,
) -> R {
    let (round, theta) = renewed;
    let draws = Key::new(at.seed(), Purpose::Lanczos, (round << 20) + known as u64).stream(at.agent);
    match support {
        None => see(Search::new(theta.len(), &mut at.hessian_products(theta), tolerance, draws)),
        Some(ActiveComponents { components, .. }) => {
            see(Search::new(components.len(), &mut at.products_within(theta, components), tolerance, draws))
        }
    }
}

impl ShedAgent {
    /// The agent before its first round.
    pub fn new(plan: Arc<ShedPlan>) -> Self {
        Self { plan, saved: State::default(), kept: None }
    }

    /// How many pairs are computed at a renewal in round t: those that are sent until the next one, and one for rho. They are a
    /// function of the settings, the seed and the round, so that a restart computes the same.
    fn few(&self, at: &LocalContext<'_>, t: u64) -> usize {
        let rounds = self.plan.renewal(at.agent).rounds_left(t, self.plan.span());
        (t..t.saturating_add(rounds)).fold(1, |few: usize, t| few.saturating_add(self.wanted(at, t))).min(self.plan.span())
    }

    /// `d_t` of round t, which may be a later one.
    fn wanted(&self, at: &LocalContext<'_>, t: u64) -> usize {
        self.plan.pairs.of(at.agent, || Key::of_exchange(at.seed(), Purpose::Pairs, t, at.exchange).stream(at.agent))
    }

    /// Renews at theta in round t: `H_c = Hess f_c(theta_t), k_t = t, q = 0`.
    fn renew(&mut self, at: &LocalContext<'_>, t: u64, theta: &[f64]) {
        let (d, few, before) = (theta.len(), self.few(at, t), self.kept.take());
        let renewed = (t, theta.to_vec());
        self.kept = Some(match self.plan.tolerance {
            None => {
                let mut hessian = if let Some(Kept { source: Source::Formed(Some(old)), .. }) = before { old } else { Mat::zeros(d, d) };
                at.hessian(theta, &mut hessian);
                Kept::formed(hessian, few, self.plan.rho)
            }
            Some(tolerance) => Kept::of_products(at, &renewed, before, few.min(AT_ONCE), &self.plan, tolerance),
        });
        (self.saved.renewed, self.saved.sent, self.saved.held) = (Some(renewed), 0, 0);
    }

    /// Computes the pairs of the last renewal again where saved ones do not suffice to send those from number `from` on, of which n are to
    /// be known: where the server was itself restored from an older state, and asks for pairs that it had.
    fn compute_again(&mut self, at: &LocalContext<'_>, from: usize, n: usize) {
        let Some((round, theta)) = &self.saved.renewed else { return };
        if self.plan.tolerance.is_none() && self.kept.as_ref().is_none_or(|kept| kept.lacks(from, n)) {
            let mut hessian = Mat::zeros(theta.len(), theta.len());
            at.hessian_again(theta, &mut hessian);
            self.kept = Some(Kept::formed(hessian, self.few(at, *round), self.plan.rho));
        }
    }

    /// After a restart: finds out where saved pairs from products belong.
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
        // Those of other data are of no use: the agent renews.
        if kept.pairs.vectors.nrows() != n {
            (self.kept, self.saved.renewed) = (None, None);
        }
    }

    /// Sends the gradient at theta_t and the next pairs.
    fn pairs_and_gradient(&mut self, at: &LocalContext<'_>, down: &Message) -> Result<Vec<(Part, Body)>> {
        let (t, theta) = (at.round, down.part(Part::Model));
        let d = theta.len();
        let due = due(self.plan.renewal(at.agent), down, self.plan.span())?;
        let held = match down.find(Part::Held).and_then(Body::numbers) {
            None => None,
            Some(held) if held[0] == -1.0 => Some((None, 0)),
            Some(held) => match (index(held[0]).filter(|round| *round < t), index(held[1]).filter(|q| *q <= self.plan.most as u64)) {
                (Some(round), Some(q)) => Some((Some(round), q as usize)),
                _ => return Err(foreign("what the server holds")),
            },
        };
        if self.saved.renewed.as_ref().is_some_and(|(_, theta)| theta.len() != d) {
            return Err(foreign("a model of another length"));
        }
        self.resume(at);
        // if t in I (or the server holds pairs of a later Hessian, of which a restored agent does not know):
        let own = self.saved.renewed.as_ref().map(|(round, _)| *round);
        let is_due = own.is_none_or(|own| own < due || held.is_some_and(|(round, _)| round > Some(own)));
        // The last answer was lost: q is what the server holds.
        let held = held.map(|(round, q)| if round == own { q } else { 0 }).filter(|_| !is_due);
        if held.zip(self.kept.as_ref()).is_some_and(|(q, kept)| q > kept.pairs.vectors.nrows()) {
            return Err(foreign("what the server holds"));
        }
        // Nothing is refused from here on.
        if is_due {
            self.renew(at, t, theta);
        }
        // q_t = q_{t-1} + d_t
        let first = held.unwrap_or(self.saved.sent);
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
        (self.saved.sent, self.saved.held) = (q, first);
        // U = { (l_j, v_j) for q_{t-1} < j <= q_t, grad f_c(theta_t), rho }
        let mut values = vec![renewed.0 as f64, first as f64, rho];
        values.extend(kept.pairs.values.iter().take(q).skip(first));
        let vectors = kept.body(first, q, d);
        let mut gradient = vec![0.0; d];
        at.gradient(theta, &mut gradient);
        if self.plan.trials.is_some() {
            self.saved.theta = theta.to_vec();
            self.saved.gradient.clone_from(&gradient);
        }
        Ok(vec![(Part::Gradient, Body::Numbers(gradient)), (Part::Eigenvalues, Body::Numbers(values)), (Part::Eigenvectors, vectors)])
    }
}

impl Agent for ShedAgent {
    fn answer(&mut self, at: &LocalContext<'_>, down: &Message) -> Result<Vec<(Part, Body)>> {
        if down.exchange == 0 {
            return self.pairs_and_gradient(at, down);
        }
        let p = down.part(Part::Step);
        let trials = self.plan.trials.as_ref().filter(|_| self.saved.theta.len() == p.len());
        let trials = trials.ok_or_else(|| refused("a step before the first model", "the exchanges of a round in their order"))?;
        Ok(vec![(Part::Losses, Body::Numbers(trials.answer(at, &self.saved.theta, &self.saved.gradient, p)))])
    }

    fn save(&self) -> Vec<u8> {
        let pairs = self.kept.as_ref().and_then(Kept::saved);
        // Of pairs that are no numbers nothing can be sent: the agent renews when it comes back.
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
        let State { theta, gradient, renewed, sent, held } = &saved;
        let d = renewed.as_ref().map_or(0, |(_, theta)| theta.len());
        let has_search = self.plan.trials.is_some() && renewed.is_some();
        let fits = theta.len() == gradient.len() && theta.len() == if has_search { d } else { 0 } && *sent < d.max(1) && held <= sent;
        // Numbers need not be finite: those of an agent that was asked far from where its loss can be computed are not.
        if !fits || renewed.is_some() && d == 0 {
            return Err(bad_state());
        }
        let kept = if self.plan.tolerance.is_some() && renewed.is_some() {
            let (pairs, rest): (SavedPairs, _) = postcard::take_from_bytes(rest).map_err(|_| bad_state())?;
            let kept = Kept::restored(pairs).filter(|kept| rest.is_empty() && kept.pairs.vectors.nrows() <= d);
            Some(kept.ok_or_else(bad_state)?)
        } else if rest.is_empty() {
            None
        } else {
            let (saved, rest): (SavedRest, _) = postcard::take_from_bytes(rest).map_err(|_| bad_state())?;
            let kept = Kept::of_rest(saved, d).filter(|_| rest.is_empty() && renewed.is_some());
            Some(kept.ok_or_else(bad_state)?)
        };
        (self.saved, self.kept) = (saved, kept);
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

pub(super) fn foreign(what: &str) -> Error {
    refused(what, "rounds and numbers of pairs of this method")
}

fn bad_state() -> Error {
    Error::format("checkpoint", "not the state of an agent of SHED", "a checkpoint of the same settings")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As many pairs as the schedule can ask for are worth sending up to d - 1, and not those below the floor.
    #[test]
    fn pairs_below_the_floor_are_not_worth_sending() {
        let kept = Kept::formed(Mat::<f64>::identity(4, 4), 1, Rho::Next);
        assert_eq!((kept.worth(0, 3), kept.worth(1, 3), kept.worth(2, 3), kept.worth(3, 3)), (3, 2, 1, 0));
        let flat = Kept::formed(Mat::<f64>::identity(4, 4) * faer::Scale(-1.0), 1, Rho::Next);
        assert_eq!((flat.worth(0, 3), flat.rho(0, Rho::Next)), (0, f64::MIN_POSITIVE));
    }

    fn with_support(values: &[f64], outside: f64) -> Kept {
        let n = values.len();
        let support = Some(ActiveComponents { components: (0..n as u32).map(|i| 2 * i + 1).collect(), outside });
        let pairs = Eigenpairs { values: values.to_vec(), vectors: Mat::identity(n, n) };
        Kept { pairs, source: Source::Products { support, tolerance: 1e-8 }, least: outside, few: n }
    }

    /// Outside of the support all eigenvalues are the same: they come before smaller ones inside, and none of them is sent.
    #[test]
    fn eigenvalues_outside_of_the_support_count() {
        let kept = with_support(&[3.0, 2.0, 0.5, 0.1], 0.4);
        assert_eq!((0..6).map(|j| kept.value(j)).collect::<Vec<_>>(), [3.0, 2.0, 0.5, 0.4, 0.4, 0.4]);
        assert_eq!((kept.worth(0, 2), kept.worth(1, 9), kept.worth(3, 9)), (2, 2, 0));
        assert_eq!((kept.rho(2, Rho::Next), kept.rho(3, Rho::Next), kept.rho(2, Rho::Midpoint)), (0.5, 0.4, 0.45));
        let expected = Body::Sparse { len: 20, index: vec![3, 15], value: vec![1.0, 1.0] };
        assert_eq!(kept.body(1, 3, 10), expected);
        assert_eq!(kept.body(0, 1, 2), Body::Numbers(vec![0.0, 1.0]));
        let none = with_support(&[], 0.2);
        assert_eq!((none.worth(0, 3), none.rho(0, Rho::Next)), (0, 0.2));
    }

    #[test]
    fn saved_pairs_are_restored_and_others_refused() {
        let kept = with_support(&[3.0, 2.0, 0.5], 0.4);
        let again = Kept::restored(kept.saved().unwrap()).unwrap();
        assert!(again.pairs == kept.pairs && again.least == kept.least && matches!(again.source, Source::Restored));
        for change in [0, 1, 2, 3] {
            let mut saved = kept.saved().unwrap();
            match change {
                0 => saved.values[0] = 1.0,
                1 => saved.vectors.truncate(8),
                2 => saved.vectors[2] = f64::NAN,
                _ => saved.vectors.truncate(6),
            }
            assert!(Kept::restored(saved).is_none(), "{change}");
        }
        assert!(Kept::formed(Mat::identity(2, 2), 2, Rho::Next).saved().is_none());
    }

    /// Of a formed Hessian what the server may not hold is saved, and of that what is sent before the next renewal.
    #[test]
    fn the_rest_of_the_pairs_is_saved() {
        let hessian = Mat::from_fn(5, 5, |i, j| if i == j { 5.0 - i as f64 } else { 0.1 });
        let kept = Kept::formed(hessian, 4, Rho::Midpoint);
        let again = |held: usize| Kept::of_rest(kept.rest(held).unwrap(), 5).unwrap();
        let rest = again(1);
        assert_eq!((rest.first(), rest.pairs.values.len(), rest.pairs.vectors.ncols()), (1, 4, 2));
        assert_eq!((rest.body(1, 3, 5), rest.rho(3, Rho::Midpoint), rest.worth(1, 3)), (kept.body(1, 3, 5), kept.rho(3, Rho::Midpoint), 2));
        assert!(!rest.lacks(1, 4) && rest.lacks(0, 2) && rest.lacks(1, 5) && !kept.lacks(0, 5));
        // What is saved of it again is the same, and so is what a later state has.
        let bytes = |kept: &Kept, held: usize| postcard::to_stdvec(&kept.rest(held).unwrap()).unwrap();
        assert_eq!((bytes(&rest, 1), bytes(&rest, 2), bytes(&again(4), 4)), (bytes(&kept, 1), bytes(&kept, 2), bytes(&kept, 4)));
        for change in 0..4 {
            let mut saved = kept.rest(1).unwrap();
            match change {
                0 => saved.first = 0,
                1 => saved.few = 3,
                2 => saved.pairs.values[3] = 9.0,
                _ => saved.pairs.vectors[0] = f64::INFINITY,
            }
            assert!(Kept::of_rest(saved, 5).is_none(), "{change}");
        }
        assert!(Kept::formed(Mat::full(2, 2, f64::NAN), 2, Rho::Next).rest(0).is_none());
    }
}
