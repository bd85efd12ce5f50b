//! The server half of SHED: the agents' eigenpairs, a Newton-type step from them, and its length.

use faer::Mat;
use faer::linalg::solvers::Solve;

use super::{Ask, Next, Own, Received, Server, foreign_state, restored_theta};
use crate::error::Result;
use crate::linalg;
use crate::local::line_search::Trials;
use crate::message::{Body, Message, Part};
use crate::protocol::refused;

/// Keeps the pairs that each agent has sent, and steps by the mean of the Hessians that they approximate.
///
/// Of each agent the rule also keeps `S_c = sum l_j v_j v_j^T` and `P_c = sum v_j v_j^T`, to which a new pair adds one term, so
/// that a round costs d^2 multiply-adds per agent and new pair, 2 d^2 per agent, and one Cholesky factorisation. Both are sums in
/// the order of the pairs: after a restart they are computed from the pairs to the same bits.
#[derive(Debug, Clone)]
pub struct ShedServer {
    /// `theta_t`.
    pub theta: Vec<f64>,
    /// The agents' weights `p_c`.
    pub weights: Vec<f64>,
    /// The trial steps; `None` where every step is 1.
    pub trials: Option<Trials>,
    /// When the norm of the gradient decides on renewals: b and the least number of rounds between them.
    pub trigger: Option<Trigger>,
    held: Vec<Held>,
    /// Whether the agent's last answer was lost.
    lost: Vec<bool>,
}

/// Renewals by the norm of the mean gradient (GN-SHED), and what the server remembers for them.
#[derive(Debug, Clone, PartialEq)]
pub struct Trigger {
    /// b.
    pub factor: f64,
    /// The least number of rounds between renewals.
    pub min_distance: u64,
    /// The round of the last renewal that was decided on.
    renewal: u64,
    /// `||g_{t-2}||` and `||g_{t-1}||`, as far as known: an incomplete gradient is none.
    norms: Vec<f64>,
}

impl Trigger {
    /// Before the first round, with a renewal in round 0.
    pub fn new(factor: f64, min_distance: u64) -> Self {
        Self { factor, min_distance, renewal: 0, norms: Vec::new() }
    }

    /// Sees `||g_t||` (`None` if some agent's gradient is missing), and decides on a renewal in round t + 1; d is the length of
    /// theta.
    ///
    /// \[T\] sec. 2.5.1 tests the norm of round t for a renewal in round t. Nobody knows it before the agents have answered, so
    /// that the renewal is that of the next round.
    pub fn see(&mut self, t: u64, norm: Option<f64>, d: usize) {
        let distance = t + 1 - self.renewal;
        let slows = match (&self.norms[..], norm) {
            ([g2, g1], Some(g)) => g1 - g < self.factor * (g2 - g1),
            _ => false,
        };
        if distance >= d as u64 || slows && distance >= self.min_distance {
            self.renewal = t + 1;
        }
        match norm {
            None => self.norms.clear(),
            Some(g) => {
                self.norms.push(g);
                self.norms.drain(..self.norms.len().saturating_sub(2));
            }
        }
    }

    /// The round of the last renewal that was decided on.
    pub fn renewal(&self) -> u64 {
        self.renewal
    }
}

/// What the server holds of one agent.
#[derive(Debug, Clone, Default)]
struct Held {
    /// The round of the Hessian; `None` before its first pairs.
    round: Option<u64>,
    rho: f64,
    values: Vec<f64>,
    /// d numbers for each value.
    vectors: Vec<f64>,
    /// The lower triangles of `S_c` and `P_c`, column by column.
    s: Vec<f64>,
    p: Vec<f64>,
}

impl Held {
    /// Takes an answer, if it goes on from what is held: further pairs of the same Hessian, or the first ones of a later Hessian.
    fn take(&mut self, t: u64, values: &[f64], vectors: &[f64], d: usize) -> bool {
        let [round, first, rho, values @ ..] = values else { return false };
        // Wrong for NaN too.
        let fits = *round >= 0.0 && *round <= t as f64 && *first >= 0.0 && *rho > 0.0;
        let (round, first) = (*round as u64, *first as usize);
        let is_later = self.round.is_none_or(|own| own < round) && first == 0;
        let goes_on = self.round == Some(round) && first <= self.values.len();
        if !fits || !(is_later || goes_on) || first + values.len() >= d.max(1) {
            return false;
        }
        let keep = if goes_on { first } else { 0 };
        let is_cut = keep < self.values.len();
        self.values.truncate(keep);
        self.vectors.truncate(keep * d);
        (self.round, self.rho) = (Some(round), *rho);
        self.values.extend(values);
        self.vectors.extend(vectors);
        if is_cut || self.s.is_empty() {
            self.sum(d);
        } else {
            (keep..self.values.len()).for_each(|j| self.add(j, d));
        }
        true
    }

    /// Computes the sums of all pairs.
    fn sum(&mut self, d: usize) {
        self.s = vec![0.0; d * (d + 1) / 2];
        self.p = self.s.clone();
        (0..self.values.len()).for_each(|j| self.add(j, d));
    }

    /// Adds pair j to the sums.
    fn add(&mut self, j: usize, d: usize) {
        let (l, v) = (self.values[j], &self.vectors[j * d..(j + 1) * d]);
        let mut at = 0;
        for i in 0..d {
            let (x, below) = (v[i], &v[i..]);
            let (s, p) = (&mut self.s[at..at + below.len()], &mut self.p[at..at + below.len()]);
            for ((s, p), y) in s.iter_mut().zip(p).zip(below) {
                *p += x * y;
                *s += l * x * y;
            }
            at += below.len();
        }
    }
}

impl ShedServer {
    /// At `theta_0`, without pairs.
    pub fn new(theta: Vec<f64>, weights: Vec<f64>, trials: Option<Trials>, trigger: Option<Trigger>) -> Self {
        let n = weights.len();
        Self { theta, weights, trials, trigger, held: vec![Held::default(); n], lost: vec![false; n] }
    }

    /// `Hhat = sum_c p_c (S_c - rho_c P_c + rho_c I)` over the agents whose pairs are held, divided by their weight: the lower
    /// triangle. `None` if there are none.
    pub fn hessian(&self) -> Option<Mat<f64>> {
        let d = self.theta.len();
        let (mut weight, mut rho) = (0.0, 0.0);
        let mut sum = vec![0.0; d * (d + 1) / 2];
        for (p, held) in self.weights.iter().zip(&self.held).filter(|(_, held)| held.round.is_some()) {
            weight += p;
            rho += p * held.rho;
            let minus = -p * held.rho;
            for ((sum, s), v) in sum.iter_mut().zip(&held.s).zip(&held.p) {
                *sum += p * s + minus * v;
            }
        }
        if weight == 0.0 {
            return None;
        }
        let mut h = Mat::zeros(d, d);
        let mut at = 0;
        for j in 0..d {
            let column = h.col_as_slice_mut(j);
            column[j..].iter_mut().zip(&sum[at..]).for_each(|(h, x)| *h = x / weight);
            column[j] += rho / weight;
            at += d - j;
        }
        Some(h)
    }

    /// The step `-Hhat^-1 g`; `-g` if Hhat is singular to working precision. `None` if no pairs have arrived or g is 0.
    fn direction(&self, g: &[f64]) -> Option<Vec<f64>> {
        let h = self.hessian().filter(|_| g.iter().any(|g| *g != 0.0))?;
        let minus: Vec<f64> = g.iter().map(|g| -g).collect();
        let Ok(factor) = h.llt(faer::Side::Lower) else { return Some(minus) };
        let p = factor.solve(linalg::column(&minus)).col_as_slice(0).to_vec();
        Some(if p.iter().all(|x| x.is_finite()) { p } else { minus })
    }

    /// `theta += s p`.
    fn step(&mut self, s: f64, p: &[f64]) {
        self.theta.iter_mut().zip(p).for_each(|(x, p)| *x = s.mul_add(*p, *x));
    }
}

impl Server for ShedServer {
    fn open(&mut self, t: u64) -> Ask {
        let mut down = Message::one(t, 0, Part::Model, self.theta.clone());
        down.parts.extend(self.trigger.as_ref().map(|trigger| (Part::Renewal, Body::Numbers(vec![trigger.renewal as f64]))));
        Ask { to: None, down, own: self.own(t) }
    }

    fn own(&self, _: u64) -> Option<Own> {
        let told = |(lost, held): (&bool, &Held)| {
            let round = held.round.map_or(-1.0, |round| round as f64);
            lost.then(|| vec![round, held.values.len() as f64])
        };
        let each: Vec<_> = self.lost.iter().zip(&self.held).map(told).collect();
        self.lost.contains(&true).then_some(Own { part: Part::Held, each })
    }

    fn receive(&mut self, got: &Received<'_>) -> Next {
        let d = self.theta.len();
        if got.exchange == 0 {
            // Where the downlink alters models, gradients are those at the model that agents decoded.
            self.theta = got.down.part(Part::Model).to_vec();
            self.lost.fill(true);
            for letter in got.letters {
                let (values, vectors) = (letter.part(Part::Eigenvalues), letter.part(Part::Eigenvectors));
                self.lost[letter.agent] = !self.held[letter.agent].take(got.round, values, vectors, d);
            }
            let g = got.mean(Part::Gradient);
            if let Some(trigger) = &mut self.trigger {
                let is_whole = got.letters.len() == self.weights.len();
                trigger.see(got.round, is_whole.then(|| linalg::norm_sq(&g).sqrt()), d);
            }
            let Some(p) = self.direction(&g) else { return Next::Done { tell: None } };
            if self.trials.is_some() {
                return Next::Ask(Ask { to: None, down: Message::one(got.round, 1, Part::Step, p), own: None });
            }
            self.step(1.0, &p);
            return Next::Done { tell: None };
        }
        // If no answer arrived, losses and slope are zero, and no step is accepted.
        if let Some(s) = self.trials.as_ref().and_then(|trials| trials.accepted(&got.mean(Part::Losses))) {
            self.step(s, got.down.part(Part::Step));
        }
        Next::Done { tell: None }
    }

    /// Vectors for all eigenvalues, and eigenvalues that go with a positive rho. Rounds and indices are compared with what is held when
    /// the answer is received: one that does not go on from it counts as lost.
    fn accepts(&self, exchange: u8, parts: &[(Part, Body)]) -> Result<()> {
        if exchange != 0 {
            return Ok(());
        }
        let numbers = |part| parts.iter().find(|(p, _)| *p == part).and_then(|(_, body)| body.numbers()).unwrap_or_default();
        let (values, vectors) = (numbers(Part::Eigenvalues), numbers(Part::Eigenvectors));
        // Numbers that are not finite end the run.
        if values.iter().chain(vectors).any(|x| !x.is_finite()) {
            return Ok(());
        }
        let [round, first, rho, values @ ..] = values else { return Err(refused("no round, index and rho", "eigenpairs")) };
        let whole = |x: &f64| *x >= 0.0 && x.fract() == 0.0;
        let d = self.theta.len();
        if !whole(round) || !whole(first) || vectors.len() != values.len() * d || first + values.len() as f64 > d as f64 - 1.0 {
            let what = format!("{} eigenvalues from index {first} with {} numbers of eigenvectors", values.len(), vectors.len());
            return Err(refused(what, &format!("at most {} eigenpairs with vectors of {d} components", d - 1)));
        }
        let least = values.last().copied().unwrap_or(f64::INFINITY);
        if *rho <= 0.0 || least < *rho || !values.is_sorted_by(|a, b| a >= b) {
            return Err(refused(format!("eigenvalues down to {least} with rho = {rho}"), "decreasing eigenvalues above a positive rho"));
        }
        Ok(())
    }

    fn theta(&self) -> &[f64] {
        &self.theta
    }

    fn state(&self) -> Vec<Vec<f64>> {
        let lost = self.lost.iter().map(|lost| f64::from(*lost)).collect();
        let trigger = self.trigger.iter().flat_map(|trigger| std::iter::once(trigger.renewal as f64).chain(trigger.norms.iter().copied()));
        let mut state = vec![self.theta.clone(), lost, trigger.collect()];
        state.extend(self.held.iter().map(|held| match held.round {
            None => Vec::new(),
            Some(round) => {
                let mut all = vec![round as f64, held.rho, held.values.len() as f64];
                all.extend(&held.values);
                all.extend(&held.vectors);
                all
            }
        }));
        state
    }

    fn restore(&mut self, mut state: Vec<Vec<f64>>, opened: u64) -> Result<()> {
        let (n, d) = (self.weights.len(), self.theta.len());
        let theta = restored_theta(&mut state, d)?;
        if state.len() != n + 2 {
            return Err(foreign_state());
        }
        let (lost, trigger) = (state.remove(0), state.remove(0));
        let is_round = |t: f64, most: u64| t >= 0.0 && t <= most as f64 && t.fract() == 0.0;
        let trigger = match (&self.trigger, &trigger[..]) {
            (None, []) => None,
            (Some(own), [renewal, norms @ ..]) if is_round(*renewal, opened) && norms.len() <= 2 && norms.iter().all(|g| *g >= 0.0) => {
                Some(Trigger { renewal: *renewal as u64, norms: norms.to_vec(), ..own.clone() })
            }
            _ => return Err(foreign_state()),
        };
        if lost.len() != n || lost.iter().any(|x| *x != 0.0 && *x != 1.0) {
            return Err(foreign_state());
        }
        let held = |all: Vec<f64>| {
            let [round, rho, q, rest @ ..] = &all[..] else { return all.is_empty().then(Held::default) };
            let fits = is_round(*round, opened) && *rho > 0.0 && is_round(*q, d as u64 - 1) && rest.len() == *q as usize * (d + 1);
            let (values, vectors) = rest.split_at_checked(if fits { *q as usize } else { usize::MAX })?;
            let mut held =
                Held { round: Some(*round as u64), rho: *rho, values: values.to_vec(), vectors: vectors.to_vec(), ..Held::default() };
            rest.iter().all(|x| x.is_finite()).then(|| held.sum(d))?;
            Some(held)
        };
        let held = state.into_iter().map(held).collect::<Option<Vec<Held>>>().ok_or_else(foreign_state)?;
        self.lost = lost.iter().map(|x| *x == 1.0).collect();
        (self.theta, self.trigger, self.held) = (theta, trigger, held);
        Ok(())
    }
}
