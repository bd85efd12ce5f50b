//! Copies of theta that move on the same samples, and their combination.
//!
//! Methods that make local steps treat all components alike. A vector of k copies of theta therefore makes k runs in one: copy i with the
//! operator `s_i g_c(theta_i, z)` makes the steps `s_i eta`, with the same samples z as the others, losses, participants, and control
//! variates of its own. Messages have k d numbers. The output is a combination of the copies with less error ([`CopyRule`]).
//!
//! Sources: Richardson-Romberg extrapolation of FedAvg, Mangold et al. (2024), \[arXiv 2412.01389\]; the linear twin is our own.

use std::sync::{Arc, OnceLock};

use faer::Mat;
use serde::{Deserialize, Serialize};

use super::Field;
use super::facts::{Facts, Unknown};
use super::root::{Root, RootSource};
use super::systems::Moments;
use crate::cancel::Cancel;
use crate::error::{Error, Result, require};
use crate::kernel::{Isa, Lanes, chunks, flat, flat_mut, generic};
use crate::linalg;
use crate::parallel;
use crate::random::Stream;
use crate::sampling::Sampling;

/// Which copies there are, and their combination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CopyRule {
    /// Steps eta and 2 eta: `2 theta(eta) - theta(2 eta)`, without the part of the bias that is linear in eta.
    Two,
    /// Steps eta, 2 eta and 4 eta: `(8 theta(eta) - 6 theta(2 eta) + theta(4 eta)) / 3`, without the quadratic part too.
    Three,
    /// `theta* + theta - twin`. The twin has the operator `g_c(theta*, z) - A_c (twin - theta*)`, with `A_c` minus the Jacobian at theta*. If
    /// the method has no bias on linear problems, the twin's mean is theta*; it shares most of the noise of theta, so that the difference
    /// shows small biases.
    LinearTwin,
}

impl CopyRule {
    /// The multiples of the step, of the copies that have the problem's operator.
    pub fn steps(self) -> &'static [f64] {
        match self {
            CopyRule::Two => &[1.0, 2.0],
            CopyRule::Three => &[1.0, 2.0, 4.0],
            CopyRule::LinearTwin => &[1.0],
        }
    }

    /// The coefficients of all copies.
    pub fn coefficients(self) -> &'static [f64] {
        match self {
            CopyRule::Two => &[2.0, -1.0],
            CopyRule::Three => &[8.0 / 3.0, -2.0, 1.0 / 3.0],
            CopyRule::LinearTwin => &[1.0, -1.0],
        }
    }
}

/// The combination of copies: `shift + sum_i a_i theta_i`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Combination {
    /// The coefficients `a_i`.
    coefficients: Vec<f64>,
    /// The shift, d numbers; empty for 0.
    shift: Vec<f64>,
}

impl Combination {
    /// The combination of the copies `all`, one after the other (d).
    pub fn of(&self, all: &[f64]) -> Vec<f64> {
        let d = all.len() / self.coefficients.len();
        let mut out = if self.shift.is_empty() { vec![0.0; d] } else { self.shift.clone() };
        self.coefficients.iter().zip(all.chunks(d)).for_each(|(a, theta)| linalg::add_scaled(&mut out, *a, theta));
        out
    }
}

/// A problem for copies of theta.
pub struct Copies {
    base: Arc<dyn Field>,
    rule: CopyRule,
    /// For the linear twin: theta* and the agents' Jacobians there.
    twin: Option<(Vec<f64>, Vec<Mat<f64>>)>,
    root: OnceLock<std::result::Result<Root, String>>,
}

impl Copies {
    /// The copies of a problem.
    ///
    /// # Errors
    /// When samples depend on theta; for the linear twin, when theta* or Jacobians are not known.
    pub fn new(base: &Arc<dyn Field>, rule: CopyRule) -> Result<Self> {
        let (facts, d) = (base.facts(), base.dim());
        let follows = facts.law_at(0, &vec![0.0; d]).is_some();
        let what = "copies of theta that share samples, and the samples of this problem depend on theta";
        require(!follows, "output", what, "last, average, tail or weighted")?;
        let twin = (rule == CopyRule::LinearTwin).then(|| -> Result<_> {
            let unknown = |what: String| Error::not_known("output", format!("a linear twin, and {what}"), "another output");
            let root = base.solution().map_err(|why| unknown(format!("no root is known: {why}")))?.theta.clone();
            let jacobian = |c: usize| {
                let mut jacobian = Mat::zeros(d, d);
                facts.jacobian(c, &root, &mut jacobian).then_some(jacobian)
            };
            let all: Option<Vec<_>> = parallel::map(base.agents(), jacobian).into_iter().collect();
            Ok((root, all.ok_or_else(|| unknown("Jacobians are not known".into()))?))
        });
        Ok(Self { base: Arc::clone(base), rule, twin: twin.transpose()?, root: OnceLock::new() })
    }

    fn count(&self) -> usize {
        self.rule.coefficients().len()
    }

    /// The start of all copies, from that of theta.
    pub fn start(&self, theta: &[f64]) -> Vec<f64> {
        theta.repeat(self.count())
    }

    /// The combination that is the output.
    pub fn combination(&self) -> Combination {
        let shift = self.twin.as_ref().map_or_else(Vec::new, |(root, _)| root.clone());
        Combination { coefficients: self.rule.coefficients().to_vec(), shift }
    }

    /// `out += A_c`-part of the twin's operator at `theta`, which holds `g_c(theta*, z)`.
    fn add_linear(&self, c: usize, theta: &[f64], out: &mut [f64]) {
        if let Some((root, jacobians)) = &self.twin {
            linalg::add_scaled(out, 1.0, &linalg::mat_vec(&jacobians[c], &linalg::minus(theta, root)));
        }
    }

    /// Lanes for one copy of the agents of some lanes, with their sampling processes and streams.
    fn lanes_of_one(&self, lanes: &Lanes) -> Lanes {
        let mut one = Lanes::new(self.base.dim(), lanes.chain_len);
        (one.agents, one.identities, one.len) = (lanes.agents, lanes.identities, lanes.len);
        (one.chains, one.streams) = (lanes.chains.clone(), lanes.streams);
        one
    }

    /// Writes the operators of all copies into `lanes.observed`, with the next samples of `one`, which advance only if `advance`.
    fn observe_copies(&self, lanes: &mut Lanes, one: &mut Lanes, advance: bool) {
        let (d, count, width) = (self.base.dim(), self.count(), lanes.width);
        for i in 0..count {
            // All copies but the last leave the sample to the next one.
            let is_last = i + 1 == count;
            let scale = self.rule.steps().get(i);
            for l in 0..lanes.len {
                let theta = &flat(&lanes.theta[l * width..][..width])[i * d..][..d];
                let at = match (&self.twin, scale) {
                    (Some((root, _)), None) => root,
                    _ => theta,
                };
                one.theta_mut(l)[..d].copy_from_slice(at);
            }
            self.base.observe(std::slice::from_mut(one), advance && is_last);
            for l in 0..lanes.len {
                let g = &flat(&one.observed[l * one.width..][..one.width])[..d];
                let out = &mut flat_mut(&mut lanes.observed[l * width..][..width])[i * d..][..d];
                match scale {
                    Some(scale) => out.iter_mut().zip(g).for_each(|(out, g)| *out = scale * g),
                    None => {
                        out.copy_from_slice(g);
                        let theta = &flat(&lanes.theta[l * width..][..width])[i * d..][..d];
                        self.add_linear(lanes.agents[l], theta, out);
                    }
                }
            }
        }
    }

    /// Gives lanes the sampling processes and streams of their copies.
    fn take_samples(lanes: &mut Lanes, one: Lanes) {
        (lanes.chains, lanes.streams) = (one.chains, one.streams);
    }
}

impl Field for Copies {
    fn dim(&self) -> usize {
        self.count() * self.base.dim()
    }
    fn weights(&self) -> &[f64] {
        self.base.weights()
    }
    fn chain_len(&self) -> usize {
        self.base.chain_len()
    }
    fn sampling(&self) -> Sampling {
        self.base.sampling()
    }
    fn start_chain(&self, c: usize, stream: &mut Stream, chain: &mut [u64]) {
        self.base.start_chain(c, stream, chain);
    }
    fn is_state(&self, c: usize, chain: &[u64]) -> bool {
        self.base.is_state(c, chain)
    }
    fn local_phase(&self, blocks: &mut [Lanes], etas: &[f64]) {
        debug_assert_eq!(blocks.first().map_or(0, |lanes| lanes.width), chunks(self.dim()));
        for lanes in blocks {
            let mut one = self.lanes_of_one(lanes);
            for eta in etas {
                self.observe_copies(lanes, &mut one, true);
                let used = lanes.len * lanes.width * 8;
                let (g, drift) = (&flat(&lanes.observed)[..used], &flat(&lanes.drift)[..used]);
                generic::step(Isa::best(), *eta, g, drift, &mut flat_mut(&mut lanes.theta)[..used]);
            }
            Self::take_samples(lanes, one);
        }
    }
    fn observe(&self, blocks: &mut [Lanes], advance: bool) {
        for lanes in blocks {
            let mut one = self.lanes_of_one(lanes);
            self.observe_copies(lanes, &mut one, advance);
            if advance {
                Self::take_samples(lanes, one);
            }
        }
    }
    fn mean(&self, c: usize, theta: &[f64], out: &mut [f64]) -> bool {
        let d = self.base.dim();
        for (i, (theta, out)) in theta.chunks(d).zip(out.chunks_mut(d)).enumerate() {
            let scale = self.rule.steps().get(i);
            let at = self.twin.as_ref().filter(|_| scale.is_none()).map_or(theta, |(root, _)| root);
            if !self.base.mean(c, at, out) {
                return false;
            }
            match scale {
                Some(scale) => out.iter_mut().for_each(|out| *out *= scale),
                None => self.add_linear(c, theta, out),
            }
        }
        true
    }
    fn has_mean(&self) -> bool {
        self.base.has_mean()
    }
    fn facts(&self) -> &dyn Facts {
        &Unknown
    }
    fn solution(&self) -> std::result::Result<&Root, &str> {
        let all = || {
            let root = self.base.solution().map_err(String::from)?;
            Ok(Root { theta: self.start(&root.theta), source: RootSource::Given })
        };
        self.root.get_or_init(all).as_ref().map_err(String::as_str)
    }
    fn solve(&self, cancel: &Cancel) -> Result<()> {
        self.base.solve(cancel)
    }
    fn set_root(&self, theta: Vec<f64>) {
        self.base.set_root(theta[..self.base.dim()].to_vec());
    }
    fn generic(&self) -> Arc<dyn Field> {
        let Self { base, rule, twin, root, .. } = self;
        Arc::new(Self { base: base.generic(), rule: *rule, twin: twin.clone(), root: root.clone() })
    }
    fn failure(&self) -> Option<Error> {
        self.base.failure()
    }
    fn recover(&self) {
        self.base.recover();
    }
    fn second_moments(&self, _: usize) -> Option<Arc<Moments>> {
        None
    }
}
