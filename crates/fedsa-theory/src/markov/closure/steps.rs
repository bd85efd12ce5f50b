//! The steps of a local phase on second moments that are split by the state of the agent's own chain.

use faer::{MatMut, MatRef};

use crate::markov::MarkovAgent;
use crate::markov::chain::Move;
use crate::work;
use fedsa::linalg::Mat;

/// The local steps of one agent, `u <- B u - eta w + gain q`. The drift `e = (1, q)` is constant within a local phase; for FedLSA there
/// is no q, and `e = (1)`.
pub struct PhaseSteps {
    pub dim: usize,
    pub states: usize,
    /// The length of e: 1, or 1 + d.
    pub drift: usize,
    gain: f64,
    moves: Vec<Step>,
}

/// A move of the chain, from one state to another with probability p, and its step.
struct Step {
    from: usize,
    to: usize,
    p: f64,
    /// `B = I - eta A`, column by column.
    b: Vec<f64>,
    /// `-eta (w - shift)`.
    n: Vec<f64>,
}

/// Second moments split by the state of the chain. Besides u and e there may be other vectors y that are constant within a local phase.
/// With `s = (e, y)` of length m, block i holds column by column `E[u (u, s)^T 1{s_k = i}]` (d x (d + m)) in `u`, and
/// `E[e s^T 1{s_k = i}]` (length of e x m) in `e`.
pub struct SplitMoments {
    dim: usize,
    drift: usize,
    columns: usize,
    u: Vec<f64>,
    e: Vec<f64>,
}

impl SplitMoments {
    /// Zeros for steps and s of length m = `columns`.
    pub fn zeros(steps: &PhaseSteps, columns: usize) -> Self {
        let (dim, drift) = (steps.dim, steps.drift);
        let (u, e) = (vec![0.0; steps.states * dim * (dim + columns)], vec![0.0; steps.states * drift * columns]);
        Self { dim, drift, columns, u, e }
    }

    /// `E[u (u, s)^T 1{s_k = i}]`, d x (d + m).
    pub fn u(&self, i: usize) -> MatRef<'_, f64> {
        let size = self.dim * (self.dim + self.columns);
        MatRef::from_column_major_slice(&self.u[i * size..(i + 1) * size], self.dim, self.dim + self.columns)
    }

    /// As [`SplitMoments::u`], mutable.
    pub fn u_mut(&mut self, i: usize) -> MatMut<'_, f64> {
        let size = self.dim * (self.dim + self.columns);
        MatMut::from_column_major_slice_mut(&mut self.u[i * size..(i + 1) * size], self.dim, self.dim + self.columns)
    }

    /// `E[e s^T 1{s_k = i}]`, mutable.
    pub fn e_mut(&mut self, i: usize) -> MatMut<'_, f64> {
        let size = self.drift * self.columns;
        MatMut::from_column_major_slice_mut(&mut self.e[i * size..(i + 1) * size], self.drift, self.columns)
    }
}

impl PhaseSteps {
    /// The steps of size eta of an agent, with `w - shift` in place of w.
    pub fn new(agent: &MarkovAgent, eta: f64, shift: &[f64], drift: usize, gain: f64) -> Self {
        let d = agent.dim;
        let step = |m: &Move| Step {
            from: m.from as usize,
            to: m.to as usize,
            p: m.p,
            b: (0..d * d).map(|k| f64::from(u8::from(k % d == k / d)) - eta * m.a[(k % d, k / d)]).collect(),
            n: m.w.iter().zip(shift).map(|(w, s)| -eta * (w - s)).collect(),
        };
        Self { dim: d, states: agent.states, drift, gain, moves: agent.moves.iter().map(step).collect() }
    }

    /// The split moments after `count` steps.
    pub fn run(&self, count: u64, start: SplitMoments) -> SplitMoments {
        let mut now = start;
        let mut next = SplitMoments { u: vec![0.0; now.u.len()], e: vec![0.0; now.e.len()], ..now };
        let mut image = vec![0.0; self.dim * (self.dim + now.columns)];
        for _ in 0..count {
            // A cancelled result is not used.
            if work::is_cancelled() {
                break;
            }
            self.advance(&now, &mut next, &mut image);
            std::mem::swap(&mut now, &mut next);
        }
        now
    }

    fn advance(&self, now: &SplitMoments, next: &mut SplitMoments, image: &mut [f64]) {
        next.u.fill(0.0);
        next.e.fill(0.0);
        let (u, e) = (self.dim * (self.dim + now.columns), self.drift * now.columns);
        for step in &self.moves {
            let (from, to) = (step.from, step.to);
            self.add(step, &now.u[from * u..(from + 1) * u], &now.e[from * e..(from + 1) * e], image, &mut next.u[to * u..(to + 1) * u]);
            next.e[to * e..(to + 1) * e].iter_mut().zip(&now.e[from * e..]).for_each(|(out, x)| *out += step.p * x);
        }
    }

    /// Adds a move's contribution to `E[u (u, s)^T]` to `out`. For small d the compiler makes loops of constant length.
    fn add(&self, step: &Step, u: &[f64], e: &[f64], image: &mut [f64], out: &mut [f64]) {
        match self.dim {
            1 => self.add_in(1, step, u, e, image, out),
            2 => self.add_in(2, step, u, e, image, out),
            3 => self.add_in(3, step, u, e, image, out),
            4 => self.add_in(4, step, u, e, image, out),
            5 => self.add_in(5, step, u, e, image, out),
            6 => self.add_in(6, step, u, e, image, out),
            7 => self.add_in(7, step, u, e, image, out),
            8 => self.add_in(8, step, u, e, image, out),
            d => self.add_in(d, step, u, e, image, out),
        }
    }

    /// Adds `R = E[u' (u, s)^T]`, the image of the old moments under the step, to the columns of s. The columns of u get `R_uu B^T +
    /// R_ue N^T`, with `N = (-eta w, gain I)`.
    #[inline(always)]
    fn add_in(&self, d: usize, step: &Step, u: &[f64], e: &[f64], image: &mut [f64], out: &mut [f64]) {
        let (drift, p) = (self.drift, step.p);
        let (b, n) = (&step.b[..d * d], &step.n[..d]);
        for (k, (image, u_k)) in image.chunks_exact_mut(d).zip(u.chunks_exact(d)).enumerate() {
            // E[e x_k] for the k-th of (u, s).
            let with_e = |l: usize| if k < d { u[(d + l) * d + k] } else { e[(k - d) * drift + l] };
            let one = with_e(0);
            for a in 0..d {
                image[a] = n[a] * one;
            }
            if drift > 1 {
                image.iter_mut().enumerate().for_each(|(a, x)| *x += self.gain * with_e(1 + a));
            }
            for (column, x) in b.chunks_exact(d).zip(u_k) {
                for a in 0..d {
                    image[a] += column[a] * x;
                }
            }
        }
        let (with_u, with_s) = image.split_at(d * d);
        let (out_u, out_s) = out.split_at_mut(d * d);
        out_s.iter_mut().zip(with_s).for_each(|(out, x)| *out += p * x);
        for (c, out) in out_u.chunks_exact_mut(d).enumerate() {
            let (by_one, one) = (p * n[c], &with_s[..d]);
            for a in 0..d {
                out[a] += by_one * one[a];
            }
            if drift > 1 {
                let (by_q, q) = (p * self.gain, &with_s[(1 + c) * d..(2 + c) * d]);
                for a in 0..d {
                    out[a] += by_q * q[a];
                }
            }
            for (column, by) in with_u.chunks_exact(d).zip(b[c..].iter().step_by(d)) {
                let by = p * by;
                for a in 0..d {
                    out[a] += by * column[a];
                }
            }
        }
    }

    /// The multiplications of `count` steps with s of length m.
    pub fn work(dim: usize, moves: usize, drift: usize, columns: usize, count: u64) -> f64 {
        let (d, m, e) = (dim as f64, columns as f64, drift as f64);
        count as f64 * moves as f64 * ((d * d + d) * (d + m) + d * d * (d + 1.0) + e * m)
    }
}

/// `count` moves of a chain, applied to any quantity that is split by its state.
pub enum Carry {
    /// `P^count`, K x K.
    Power(Mat<f64>),
    /// Moves (from, to, p), and the number of times they are made.
    Moves(usize, Vec<(usize, usize, f64)>, u64),
}

impl Carry {
    /// The moves of this agent's chain.
    pub fn new(agent: &MarkovAgent, count: u64) -> Self {
        let k = agent.states;
        let mut pairs: Vec<(usize, usize, f64)> = agent.moves.iter().map(|m| (m.from as usize, m.to as usize, m.p)).collect();
        pairs.sort_by_key(|(from, to, _)| (*from, *to));
        pairs.dedup_by(|next, kept| {
            let same = (next.0, next.1) == (kept.0, kept.1);
            kept.2 += if same { next.2 } else { 0.0 };
            same
        });
        if (pairs.len() as f64) * (count as f64) < (k * k) as f64 {
            return Self::Moves(k, pairs, count);
        }
        let mut p = Mat::zeros(k, k);
        pairs.iter().for_each(|(from, to, q)| p[(*from, *to)] += q);
        Self::Power(crate::phase::power_and_sum(&p, count).0)
    }

    /// `X P^count`: column i of X belongs to state i.
    pub fn apply(&self, x: &Mat<f64>) -> Mat<f64> {
        match self {
            Self::Power(power) => x * power,
            Self::Moves(states, pairs, count) => {
                let mut now = x.clone();
                for _ in 0..*count {
                    let mut next = Mat::zeros(x.nrows(), *states);
                    for (from, to, p) in pairs {
                        let old = now.col_as_slice(*from);
                        next.col_as_slice_mut(*to).iter_mut().zip(old).for_each(|(out, x)| *out += p * x);
                    }
                    now = next;
                }
                now
            }
        }
    }
}
