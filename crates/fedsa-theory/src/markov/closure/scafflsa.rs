//! SCAFFLSA's round: the state is `y = (u, z_1 .. z_{N-1}, 1)` with `z_c = eta H (xi_c - xi*_c)`.
//!
//! `z_N = -sum_{c<N} p_c z_c / p_N` is eliminated. Identical agents are not merged, because their controls differ.

use faer::prelude::*;

use super::phase::{ClosurePhase, Ends, PlainPhase, Stationary, refs, unpack};
use super::round::Round;
use super::steps::{Carry, PhaseSteps};
use crate::RoundSetting;
use crate::markov::AgentClass;
use crate::symmetric::{pack, packed_index, packed_len};
use crate::work;
use fedsa::error::Result;
use fedsa::linalg::{self, Mat};
use fedsa::parallel;

/// The round `y' = C y + sum_c B_c Pi_c E_c y`. `E_c` selects `(u, 1, z_c)`, and Pi_c is the local phase from there. With the end
/// of agent c's local phase `e_c`, `B_c e_c` adds `alpha_g p_c e_c` to u and `(p_c - [j = c]) e_c` to `z_j`; C is `1 - alpha_g` on u and 1
/// on the rest.
pub struct ControlledRound {
    dim: usize,
    alpha: f64,
    kinds: Vec<Kind>,
    /// The kind of every agent; those with the largest weight come last.
    kind_of: Vec<usize>,
    /// The weight of every agent.
    weights: Vec<f64>,
    /// The approximate multiplications of a round.
    pub work: f64,
}

/// The parts that agents of a class share.
struct Kind {
    law: Vec<f64>,
    phase: PlainPhase,
    carry: Carry,
    stationary: Stationary,
    /// `xi*_c = wbar_c`.
    control: Vec<f64>,
}

/// The first half of a round.
struct Half {
    ends: Ends,
    /// `Q_c` without `B_c`, d x D.
    q: Mat<f64>,
    /// `T_c`, d x d.
    t: Mat<f64>,
}

impl ControlledRound {
    /// The round of these classes.
    ///
    /// # Errors
    /// When the computation is cancelled.
    pub fn new(classes: &[AgentClass], setting: &RoundSetting) -> Result<Self> {
        let (dim, eta, h) = (classes[0].agent.dim, setting.step_size, setting.local_steps);
        let kinds = work::map(classes.len(), |c| {
            let agent = &classes[c].agent;
            let control = agent.mean_w();
            let phase = PlainPhase { steps: PhaseSteps::new(agent, eta, &control, 1 + dim, 1.0 / h as f64), count: h };
            let stationary = Stationary::new(&phase, &agent.stationary);
            Kind { law: agent.stationary.clone(), carry: Carry::new(agent, h), phase, stationary, control }
        })?;
        let mut order: Vec<usize> = (0..classes.len()).collect();
        order.sort_by(|a, b| classes[*a].agent.weight.total_cmp(&classes[*b].agent.weight));
        let kind_of: Vec<usize> = order.into_iter().flat_map(|k| vec![k; classes[k].count]).collect();
        let weights = kind_of.iter().map(|k| classes[*k].agent.weight).collect();
        Ok(Self { dim, alpha: setting.server_step, kinds, kind_of, weights, work: 0.0 })
    }

    fn agents(&self) -> usize {
        self.kind_of.len()
    }

    fn kind(&self, c: usize) -> &Kind {
        &self.kinds[self.kind_of[c]]
    }

    /// The state if the model's error is u and all controls are 0; `span` is `eta H`.
    pub fn start(&self, u: &[f64], span: f64) -> Vec<f64> {
        let controls = (0..self.agents() - 1).flat_map(|c| self.kind(c).control.iter().map(|x| -span * x));
        u.iter().copied().chain(controls).chain([1.0]).collect()
    }

    /// `E_c y` for every column: the rows of u, 1 and z_c.
    fn select(&self, c: usize, y: MatRef<'_, f64>) -> Mat<f64> {
        let (d, last, n) = (self.dim, y.nrows() - 1, self.agents());
        let mut out = Mat::<f64>::zeros(2 * d + 1, y.ncols());
        for j in 0..y.ncols() {
            let (from, to) = (y.col(j), out.col_as_slice_mut(j));
            (0..d).for_each(|i| to[i] = from[i]);
            to[d] = from[last];
            if c + 1 < n {
                (0..d).for_each(|i| to[d + 1 + i] = from[(c + 1) * d + i]);
            } else {
                for (e, p) in self.weights[..n - 1].iter().enumerate() {
                    let share = p / self.weights[n - 1];
                    (0..d).for_each(|i| to[d + 1 + i] -= share * from[(e + 1) * d + i]);
                }
            }
        }
        out
    }

    /// `E_c Y E_c^T`.
    fn select_both(&self, c: usize, y: MatRef<'_, f64>) -> Mat<f64> {
        self.select(c, self.select(c, y).transpose())
    }

    /// Adds `B_c end` for every column.
    fn spread(&self, c: usize, end: &Mat<f64>, out: &mut Mat<f64>) {
        let (d, p) = (self.dim, self.weights[c]);
        for j in 0..end.ncols() {
            let (from, to) = (end.col_as_slice(j), out.col_as_slice_mut(j));
            (0..d).for_each(|i| to[i] += self.alpha * p * from[i]);
            for e in 0..self.agents() - 1 {
                let by = if e == c { p - 1.0 } else { p };
                (0..d).for_each(|i| to[(e + 1) * d + i] += by * from[i]);
            }
        }
    }

    /// `C y + sum_e B_e ends_e` for every column; without y, the sum.
    fn combine(&self, y: Option<MatRef<'_, f64>>, ends: &[Option<Mat<f64>>], columns: usize) -> Mat<f64> {
        let d = self.dim;
        let mut out = y.map_or_else(|| Mat::zeros(self.side(), columns), |y| y.to_owned());
        let mut mean = Mat::<f64>::zeros(d, columns);
        for (p, end) in self.weights.iter().zip(ends) {
            if let Some(end) = end {
                mean += Scale(*p) * end;
            }
        }
        for j in 0..columns {
            let (to, mean) = (out.col_as_slice_mut(j), mean.col_as_slice(j));
            (0..d).for_each(|i| to[i] = (1.0 - self.alpha) * to[i] + self.alpha * mean[i]);
            for (z, end) in to[d..].chunks_exact_mut(d).zip(ends).take(self.agents() - 1) {
                z.iter_mut().zip(mean).for_each(|(z, m)| *z += m);
                if let Some(end) = end {
                    z.iter_mut().zip(end.col_as_slice(j)).for_each(|(z, e)| *z -= e);
                }
            }
        }
        out
    }

    /// `L_c y` for every column: the mean round without agent c's local phase.
    fn round_of_others(&self, c: usize, y: MatRef<'_, f64>) -> Mat<f64> {
        let end = |e: usize| (e != c).then(|| &self.kind(e).stationary.mean * self.select(e, y));
        let ends: Vec<Option<Mat<f64>>> = (0..self.agents()).map(end).collect();
        self.combine(Some(y), &ends, y.ncols())
    }

    /// Adds `sum_e B_e noise_e B_e^T`; noises are d x d and symmetric.
    fn add_noise(&self, noises: &[Mat<f64>], out: &mut Mat<f64>) {
        let (d, n, alpha) = (self.dim, self.agents(), self.alpha);
        let mut total = Mat::<f64>::zeros(d, d);
        noises.iter().zip(&self.weights).for_each(|(z, p)| total += Scale(p * p) * z);
        let weighted: Vec<Mat<f64>> = noises.iter().zip(&self.weights).map(|(z, p)| Scale(*p) * z).collect();
        for b in 0..d {
            for a in 0..d {
                out[(a, b)] += alpha * alpha * total[(a, b)];
                for j in 0..n - 1 {
                    let cross = alpha * (total[(a, b)] - weighted[j][(a, b)]);
                    out[(a, (j + 1) * d + b)] += cross;
                    out[((j + 1) * d + b, a)] += cross;
                    for i in 0..n - 1 {
                        let own = if i == j { noises[i][(a, b)] } else { 0.0 };
                        out[((i + 1) * d + a, (j + 1) * d + b)] += total[(a, b)] - weighted[i][(a, b)] - weighted[j][(a, b)] + own;
                    }
                }
            }
        }
    }

    fn first(&self, c: usize, now: MatRef<'_, f64>) -> Half {
        let (kind, side, d) = (self.kind(c), self.side(), self.dim);
        let moments = now.col_iter().map(|m| unpack(side, &m.iter().copied().collect::<Vec<_>>()));
        let with: Vec<Mat<f64>> = moments.map(|m| self.select(c, m.as_ref())).collect();
        let second: Vec<Mat<f64>> = with.iter().map(|w| self.select(c, w.transpose())).collect();
        let ends = kind.phase.run(&refs(&second), &refs(&with));
        let sum = |m: &[Mat<f64>]| m.iter().fold(Mat::<f64>::zeros(m[0].nrows(), m[0].ncols()), |sum, m| sum + m);
        let (start, mean) = (sum(&second), &kind.stationary.mean);
        let q = sum(&ends.with) - mean * sum(&with);
        let cross = self.select(c, q.transpose()).transpose() * mean.transpose();
        let covariance = unpack(d, &linalg::mat_vec(&kind.stationary.covariance, &pack(2 * d + 1, |i, j| start[(i, j)])));
        let t = sum(&ends.ends) - covariance - mean * start * mean.transpose() - &cross - cross.transpose();
        Half { ends, q, t }
    }

    fn second(&self, c: usize, now: MatRef<'_, f64>, halves: &[Half]) -> Mat<f64> {
        let (kind, side, d) = (self.kind(c), self.side(), self.dim);
        let moved = kind.carry.apply(&now.to_owned());
        let q: Vec<Option<Mat<f64>>> = halves.iter().enumerate().map(|(e, half)| (e != c).then(|| half.q.clone())).collect();
        let q = self.combine(None, &q, side);
        let own_q = self.select(c, q.transpose());
        let mut out = Mat::<f64>::zeros(packed_len(side), now.ncols());
        for (j, pi) in kind.law.iter().enumerate() {
            let before = unpack(side, moved.col_as_slice(j));
            // L_c M L_c^T + W L_c^T + L_c W^T = R + R^T with R = L_c (M L_c^T / 2 + W^T).
            let mut w = Scale(*pi) * &q;
            self.spread(c, &halves[c].ends.with[j], &mut w);
            w += Scale(0.5) * self.round_of_others(c, before.as_ref());
            let mut half = self.round_of_others(c, w.transpose());
            self.spread(c, &(&kind.stationary.by_state[j] * &own_q), &mut half);
            let noises: Vec<Mat<f64>> = (0..self.agents())
                .map(|e| {
                    if e == c {
                        let end = &halves[c].ends.ends[j];
                        return Scale(0.5) * (end + end.transpose());
                    }
                    let start = self.select_both(e, before.as_ref());
                    let white = linalg::mat_vec(&self.kind(e).stationary.covariance, &pack(2 * d + 1, |i, j| start[(i, j)]));
                    let t = &halves[e].t;
                    Mat::from_fn(d, d, |a, b| white[packed_index(a, b)] + 0.5 * pi * (t[(a, b)] + t[(b, a)]))
                })
                .collect();
            let mut noise = Mat::<f64>::zeros(side, side);
            self.add_noise(&noises, &mut noise);
            let packed = pack(side, |a, b| half[(a, b)] + half[(b, a)] + noise[(a, b)]);
            out.col_as_slice_mut(j).copy_from_slice(&packed);
        }
        out
    }
}

impl Round for ControlledRound {
    fn work(&self) -> f64 {
        self.work
    }

    fn side(&self) -> usize {
        self.dim * self.agents() + 1
    }

    fn laws(&self) -> Vec<&[f64]> {
        (0..self.agents()).map(|c| &self.kind(c).law[..]).collect()
    }

    fn round(&self, now: &[MatRef<'_, f64>]) -> Vec<Mat<f64>> {
        let halves: Vec<Half> = parallel::map(now.len(), |c| self.first(c, now[c]));
        parallel::map(now.len(), |c| self.second(c, now[c], &halves))
    }
}
