//! The round of methods without memory: the state is `x = (u, 1)`.

use faer::prelude::*;

use super::phase::{ClosurePhase, Ends, Stationary, refs, unpack};
use super::round::Round;
use super::steps::Carry;
use crate::symmetric::{congruence, packed_index, packed_len};
use fedsa::linalg::{self, Mat};
use fedsa::parallel;

/// Identical agents.
pub struct ClosureClass {
    /// The number of agents.
    pub count: f64,
    /// `q = alpha_g p_c` of one of them.
    pub share: f64,
    /// The stationary law of the chain.
    pub law: Vec<f64>,
    pub phase: Box<dyn ClosurePhase>,
    pub carry: Carry,
    pub stationary: Stationary,
}

/// The round `x' = C x + sum_c q_c Pi_c x` with `C = (1 - alpha_g) I` on u.
pub struct PlainRound {
    dim: usize,
    classes: Vec<ClosureClass>,
    others: Vec<Others>,
    /// FedHSA's variance of products of two agents, which the independent maps Pi_c do not have: packed d x packed D.
    pairs: Option<Mat<f64>>,
    /// The approximate multiplications of a round.
    pub work: f64,
}

/// The effect of the other agents on an agent of a class.
struct Others {
    /// `L_c = C + sum_{e != c} q_e E Pi_e`, D x D.
    mean: Mat<f64>,
    /// `M -> L_c M L_c^T + sum_{e != c} q_e^2 V_e[M]`, packed D squared.
    second: Mat<f64>,
}

/// The first half of a round, for an agent of a class.
struct Half {
    ends: Ends,
    /// `X = sum_i M_c(i)`, packed.
    x: Vec<f64>,
    /// `Q_c`, d x D.
    q: Mat<f64>,
    /// `T_c`, d x d.
    t: Mat<f64>,
}

impl PlainRound {
    /// The round of these classes with the server's step `alpha`.
    pub fn new(dim: usize, alpha: f64, classes: Vec<ClosureClass>, pairs: Option<Mat<f64>>) -> Self {
        let side = dim + 1;
        let mut all = Mat::<f64>::zeros(side, side);
        (0..dim).for_each(|i| all[(i, i)] = 1.0 - alpha);
        all[(dim, dim)] = 1.0;
        let mut covariance = Mat::<f64>::zeros(packed_len(dim), packed_len(side));
        for class in &classes {
            let (n, q) = (class.count, class.share);
            let mut top = all.get_mut(..dim, ..);
            top += Scale(n * q) * &class.stationary.mean;
            covariance += Scale(n * q * q) * &class.stationary.covariance;
        }
        let others = (classes.iter())
            .map(|class| {
                let q = class.share;
                let mut mean = all.clone();
                let mut top = mean.get_mut(..dim, ..);
                top -= Scale(q) * &class.stationary.mean;
                let mut second = congruence(&mean);
                // The block of u is a prefix of packed matrices.
                let mut noise = second.get_mut(..packed_len(dim), ..);
                noise += &covariance - Scale(q * q) * &class.stationary.covariance;
                Others { mean, second }
            })
            .collect();
        Self { dim, classes, others, pairs, work: 0.0 }
    }

    fn first(&self, class: &ClosureClass, now: MatRef<'_, f64>) -> Half {
        let (d, side) = (self.dim, self.dim + 1);
        let moments: Vec<Mat<f64>> = (0..now.ncols()).map(|i| unpack(side, &column(now, i))).collect();
        let ends = class.phase.run(&refs(&moments), &refs(&moments));
        let x: Vec<f64> = (0..now.nrows()).map(|r| now.row(r).iter().sum()).collect();
        let mean = &class.stationary.mean;
        let moved = mean * unpack(side, &x);
        let q = ends.with.iter().fold(Scale(-1.0) * &moved, |sum, y| sum + y);
        let covariance = unpack(d, &linalg::mat_vec(&class.stationary.covariance, &x));
        let cross = &q * mean.transpose();
        let t = ends.ends.iter().fold(Scale(-1.0) * (covariance + moved * mean.transpose()), |sum, end| sum + end);
        Half { ends, x, q, t: t - &cross - cross.transpose() }
    }

    fn second(&self, c: usize, now: MatRef<'_, f64>, half: &Half, q: &Mat<f64>, t: &Mat<f64>) -> Mat<f64> {
        let (d, class, others) = (self.dim, &self.classes[c], &self.others[c]);
        let share = class.share;
        let q = q - Scale(share) * &half.q;
        let mut t = t - Scale(share * share) * &half.t;
        if let Some(pairs) = &self.pairs {
            t += unpack(d, &linalg::mat_vec(pairs, &half.x));
        }
        let mut out = &others.second * class.carry.apply(&now.to_owned());
        for (j, pi) in class.law.iter().enumerate() {
            let cross = (Scale(share) * &half.ends.with[j] + Scale(*pi) * &q) * others.mean.transpose();
            let shift = Scale(share) * (&class.stationary.by_state[j] * q.transpose());
            let end = &half.ends.ends[j];
            let column = out.col_as_slice_mut(j);
            for b in 0..d {
                for a in 0..=b {
                    let added = cross[(a, b)] + cross[(b, a)] + shift[(a, b)] + shift[(b, a)];
                    let own = 0.5 * (share * share * (end[(a, b)] + end[(b, a)]) + pi * (t[(a, b)] + t[(b, a)]));
                    column[packed_index(a, b)] += added + own;
                }
                column[packed_index(b, d)] += cross[(b, d)];
            }
        }
        out
    }
}

fn column(m: MatRef<'_, f64>, j: usize) -> Vec<f64> {
    m.col(j).iter().copied().collect()
}

impl Round for PlainRound {
    fn work(&self) -> f64 {
        self.work
    }

    fn side(&self) -> usize {
        self.dim + 1
    }

    fn laws(&self) -> Vec<&[f64]> {
        self.classes.iter().map(|c| &c.law[..]).collect()
    }

    fn round(&self, now: &[MatRef<'_, f64>]) -> Vec<Mat<f64>> {
        let halves: Vec<Half> = parallel::map(now.len(), |c| self.first(&self.classes[c], now[c]));
        let (mut q, mut t) = (Mat::<f64>::zeros(self.dim, self.dim + 1), Mat::<f64>::zeros(self.dim, self.dim));
        for (class, half) in self.classes.iter().zip(&halves) {
            q += Scale(class.count * class.share) * &half.q;
            t += Scale(class.count * class.share * class.share) * &half.t;
        }
        parallel::map(now.len(), |c| self.second(c, now[c], &halves[c], &q, &t))
    }
}
