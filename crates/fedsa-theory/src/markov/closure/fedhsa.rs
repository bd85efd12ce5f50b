//! FedHSA: the local phase of one agent. The effect of the other agents' first samples is kept to first order; of the rest, the
//! variance.
//!
//! `theta_{c,H} = Phi_c x + Psi_c (G - g_c) x` with `g_c = [-A(z_0), -w(z_0)]`, `Psi_c = eta sum_k prod_{j>k} B_j` and `G = sum p_c
//! g_c`. With `g_c = gbar_c + dg_c` and `Psi_c = Psibar_c + dPsi_c`, the sum over agents of `p_c Psi_c G` is
//!
//! ```text
//! sum_c p_c [ Psi_c (Gbar + p_c dg_c) + (Psbar - p_c Psibar_c) dg_c ] + sum_{c != e} p_c p_e dPsi_c dg_e
//! ```
//!
//! with `Gbar = sum p_c gbar_c`, `Psbar = sum p_c Psibar_c`. The first sum has independent maps Pi_c as terms. The second has mean 0,
//! and white noise of the same variance replaces it.

use faer::prelude::*;

use super::phase::{ClosurePhase, Ends, packed_map};
use super::steps::{Carry, PhaseSteps, SplitMoments};
use crate::RoundSetting;
use crate::markov::{AgentClass, MarkovAgent};
use crate::phase::step;
use crate::symmetric::{packed_index, packed_len};
use fedsa::linalg::Mat;

/// The local phase from `x = (u, 1)`: `Pi_c = Phi_c + Psi_c (Gbar - gbar_c - (1 - p_c) dg_c) + (Psbar - p_c Psibar_c) dg_c`.
///
/// With `r = dg_c(z_0) x`, the first step is `u + eta Gbar x + eta p_c r`. Later steps have the drift `q = (Gbar - gbar_c) x - (1 -
/// p_c) r`, and `(Psbar - p_c Psibar_c) r` is added at the end.
pub struct MemoryPhase {
    steps: PhaseSteps,
    /// H - 1.
    count: u64,
    /// H - 1 moves of the chain.
    carry: Carry,
    moves: Vec<First>,
    /// `[I, 0] + eta Gbar`, d x (d+1), and eta p_c.
    first: (Mat<f64>, f64),
    /// `Gbar - gbar_c`, d x (d+1), and -(1 - p_c).
    drift: (Mat<f64>, f64),
    /// `Psbar - p_c Psibar_c`, d x d.
    shift: Mat<f64>,
}

/// A move of the chain, and `dg = g - gbar` of its sample, d x (d+1).
struct First {
    from: usize,
    to: usize,
    p: f64,
    dg: Mat<f64>,
}

/// The stationary moments of `g_c(z_0)` and of `Psi_c`.
pub struct LegMemory {
    /// gbar_c, d x (d+1).
    g: Mat<f64>,
    /// Psibar_c, d x d.
    psi: Mat<f64>,
    /// `X -> E[dg X dg^T]`, packed d x packed (d+1).
    g_noise: Mat<f64>,
    /// `Z -> E[dPsi Z dPsi^T]`, packed d squared.
    psi_noise: Mat<f64>,
    /// `E[dPsi[a,k] dg[n,m]]` in row (k, a), column (n, m): d^2 x d (d+1), where the first index of a pair varies fastest in
    /// rows (a) and columns (n).
    both: Mat<f64>,
}

/// `g = [-A, -w]` of a sample.
fn operator(a: &Mat<f64>, w: &[f64]) -> Mat<f64> {
    Mat::from_fn(w.len(), w.len() + 1, |i, j| if j < w.len() { -a[(i, j)] } else { -w[i] })
}

fn deviations(agent: &MarkovAgent, mean: &Mat<f64>) -> Vec<First> {
    (agent.moves.iter()).map(|m| First { from: m.from as usize, to: m.to as usize, p: m.p, dg: operator(&m.a, &m.w) - mean }).collect()
}

/// The steps after the first, with a drift q.
fn steps(agent: &MarkovAgent, eta: f64) -> PhaseSteps {
    PhaseSteps::new(agent, eta, &vec![0.0; agent.dim], 1 + agent.dim, eta)
}

impl LegMemory {
    /// The moments for local phases of H steps of size eta.
    pub fn new(agent: &MarkovAgent, setting: &RoundSetting) -> Self {
        let (d, eta) = (agent.dim, setting.step_size);
        let g = operator(&agent.mean_a(), &agent.mean_w());
        let moves = deviations(agent, &g);
        let psi_from = Self::response(agent, setting);
        let psi = psi_from.iter().zip(&agent.stationary).fold(Mat::zeros(d, d), |sum: Mat<f64>, (psi, p)| sum + Scale(*p) * psi);
        let mut arriving = vec![Mat::<f64>::zeros(d, d + 1); agent.states];
        moves.iter().for_each(|m| arriving[m.to] += Scale(agent.stationary[m.from] * m.p) * &m.dg);
        let mut both = Mat::<f64>::zeros(d * d, d * (d + 1));
        for (psi_j, g_j) in psi_from.iter().zip(&arriving) {
            let dpsi = psi_j - &psi;
            for col in 0..d * (d + 1) {
                let x = g_j[(col % d, col / d)];
                (0..d * d).for_each(|row| both[(row, col)] += dpsi[(row % d, row / d)] * x);
            }
        }
        let g_noise = packed_map(d + 1, d, |x| {
            let add = |sum: Mat<f64>, m: &First| sum + Scale(agent.stationary[m.from] * m.p) * (&m.dg * x * m.dg.transpose());
            moves.iter().fold(Mat::zeros(d, d), add)
        });
        // Psi z is the end of H - 1 steps from eta z with the drift z, without w.
        let steps = steps(agent, eta);
        let psi_noise = packed_map(d, d, |z| {
            let mut start = SplitMoments::zeros(&steps, 1 + d);
            for (i, p) in agent.stationary.iter().enumerate() {
                let mut u = start.u_mut(i);
                u.rb_mut().get_mut(.., ..d).copy_from(Scale(p * eta * eta) * z);
                u.get_mut(.., d + 1..).copy_from(Scale(p * eta) * z);
                start.e_mut(i).get_mut(1.., 1..).copy_from(Scale(*p) * z);
            }
            let end = steps.run(setting.local_steps - 1, start);
            let whole = (0..agent.states).fold(Mat::zeros(d, d), |sum: Mat<f64>, j| sum + end.u(j).get(.., ..d));
            whole - &psi * z * psi.transpose()
        });
        Self { g, psi, g_noise, psi_noise, both }
    }

    /// `E[Psi | s_1 = j]` for every state j: `eta Phi_{H-1}(j) + Psi_{H-1}(j)`, where `Phi_h` and `Psi_h` are means over h steps
    /// from j.
    fn response(agent: &MarkovAgent, setting: &RoundSetting) -> Vec<Mat<f64>> {
        let (d, eta) = (agent.dim, setting.step_size);
        let mut phi = vec![Mat::<f64>::identity(d, d); agent.states];
        let mut psi = vec![Scale(eta) * Mat::<f64>::identity(d, d); agent.states];
        // psi holds eta Phi_h + Psi_h, and Psi_{h+1}(i) = sum_j P_ij (eta Phi_h + Psi_h)(j).
        for _ in 1..setting.local_steps {
            let (mut next_phi, mut next_psi) = (vec![Mat::<f64>::zeros(d, d); agent.states], vec![Mat::<f64>::zeros(d, d); agent.states]);
            for m in &agent.moves {
                let (from, to) = (m.from as usize, m.to as usize);
                next_phi[from] += Scale(m.p) * (&phi[to] * step(&m.a, eta));
                next_psi[from] += Scale(m.p) * &psi[to];
            }
            next_psi.iter_mut().zip(&next_phi).for_each(|(psi, phi)| *psi += Scale(eta) * phi);
            (phi, psi) = (next_phi, next_psi);
        }
        psi
    }
}

/// Sums over agents.
pub struct Pool {
    /// `Gbar`, d x (d+1).
    g: Mat<f64>,
    /// `Psbar`, d x d.
    psi: Mat<f64>,
}

impl Pool {
    pub fn new(classes: &[AgentClass], memories: &[LegMemory]) -> Self {
        let (d, n) = (memories[0].g.nrows(), memories[0].g.ncols());
        let mut pool = Self { g: Mat::zeros(d, n), psi: Mat::zeros(d, d) };
        for (class, memory) in classes.iter().zip(memories) {
            let weight = class.count as f64 * class.agent.weight;
            pool.g += Scale(weight) * &memory.g;
            pool.psi += Scale(weight) * &memory.psi;
        }
        pool
    }
}

/// `X -> E[D X D^T]` with `D = sum_{c != e} p_c p_e dPsi_c dg_e`, packed d x packed (d+1).
pub fn pairs(classes: &[AgentClass], memories: &[LegMemory]) -> Mat<f64> {
    let d = memories[0].g.nrows();
    let (mut psi, mut g) = (Mat::<f64>::zeros(packed_len(d), packed_len(d)), Mat::<f64>::zeros(packed_len(d), packed_len(d + 1)));
    let mut both = Mat::<f64>::zeros(d * d, d * (d + 1));
    let mut out = Mat::<f64>::zeros(packed_len(d), packed_len(d + 1));
    for (class, memory) in classes.iter().zip(memories) {
        let (n, p2) = (class.count as f64, class.agent.weight * class.agent.weight);
        psi += Scale(n * p2) * &memory.psi_noise;
        g += Scale(n * p2) * &memory.g_noise;
        both += Scale(n * p2) * &memory.both;
        // An agent forms no pair with itself.
        out -= Scale(n * p2 * p2) * (&memory.psi_noise * &memory.g_noise + crossed(d, &memory.both));
    }
    out + psi * g + crossed(d, &both)
}

/// The map `X[l,m] -> sum_{k,n} R[(a,k),(n,m)] X[l,m] R[(b,n),(k,l)]` of symmetric X, packed d x packed (d+1).
fn crossed(d: usize, r: &Mat<f64>) -> Mat<f64> {
    let at = |a: usize, k: usize, n: usize, m: usize| r[(k * d + a, m * d + n)];
    let left = Mat::from_fn(d * (d + 1), d * d, |am, kn| at(am % d, kn % d, kn / d, am / d));
    let right = Mat::from_fn(d * d, d * (d + 1), |kn, bl| at(bl % d, kn / d, kn % d, bl / d));
    let product = left * right;
    let mut out = Mat::<f64>::zeros(packed_len(d), packed_len(d + 1));
    for m in 0..=d {
        for l in 0..=d {
            let column = out.col_as_slice_mut(packed_index(l, m));
            for b in 0..d {
                for a in 0..=b {
                    // The sum over ordered pairs is symmetric in (a, b).
                    column[packed_index(a, b)] += 0.5 * (product[(m * d + a, l * d + b)] + product[(m * d + b, l * d + a)]);
                }
            }
        }
    }
    out
}

impl MemoryPhase {
    /// The local phase of an agent of the pool.
    pub fn new(agent: &MarkovAgent, setting: &RoundSetting, memory: &LegMemory, pool: &Pool) -> Self {
        let (d, eta, p) = (agent.dim, setting.step_size, agent.weight);
        let mut first = Scale(eta) * &pool.g;
        (0..d).for_each(|i| first[(i, i)] += 1.0);
        Self {
            steps: steps(agent, eta),
            count: setting.local_steps - 1,
            carry: Carry::new(agent, setting.local_steps - 1),
            moves: deviations(agent, &memory.g),
            first: (first, eta * p),
            drift: (&pool.g - &memory.g, p - 1.0),
            shift: &pool.psi - Scale(p) * &memory.psi,
        }
    }
}

/// Moments after the first move: of x, of `r = dg x` and x, of r, and of r and y.
struct Moved {
    xx: Mat<f64>,
    xy: Mat<f64>,
    rx: Mat<f64>,
    rr: Mat<f64>,
    ry: Mat<f64>,
}

impl MemoryPhase {
    fn moved(&self, second: &[MatRef<'_, f64>], with: &[MatRef<'_, f64>]) -> Vec<Moved> {
        let (d, columns) = (self.steps.dim, with[0].ncols());
        let zeros = Mat::<f64>::zeros;
        let mut moved: Vec<Moved> = (0..self.steps.states)
            .map(|_| Moved {
                xx: zeros(d + 1, d + 1),
                xy: zeros(d + 1, columns),
                rx: zeros(d, d + 1),
                rr: zeros(d, d),
                ry: zeros(d, columns),
            })
            .collect();
        for m in &self.moves {
            let to = &mut moved[m.to];
            let rx = Scale(m.p) * &m.dg * second[m.from];
            to.xx += Scale(m.p) * second[m.from];
            to.xy += Scale(m.p) * with[m.from];
            to.rr += &rx * m.dg.transpose();
            to.rx += rx;
            to.ry += Scale(m.p) * &m.dg * with[m.from];
        }
        moved
    }

    /// The moments of `(u_1, 1, q)` and of `s = (1, q, r, y)` after the first step.
    fn after_first(&self, moved: &[Moved]) -> SplitMoments {
        let (d, columns) = (self.steps.dim, moved[0].ry.ncols());
        let ((first, kappa), (drift, lambda)) = (&self.first, &self.drift);
        let mut start = SplitMoments::zeros(&self.steps, 1 + 2 * d + columns);
        for (j, Moved { xx, xy, rx, rr, ry }) in moved.iter().enumerate() {
            // Moments of u_1 and of q with x, r and y.
            let (ux, qx) = (first * xx + Scale(*kappa) * rx, drift * xx + Scale(*lambda) * rx);
            let (ur, qr) = (first * rx.transpose() + Scale(*kappa) * rr, drift * rx.transpose() + Scale(*lambda) * rr);
            let mut u = start.u_mut(j);
            u.rb_mut().get_mut(.., ..d).copy_from(&ux * first.transpose() + Scale(*kappa) * &ur);
            u.rb_mut().get_mut(.., d..d + 1).copy_from(ux.get(.., d..));
            u.rb_mut().get_mut(.., d + 1..2 * d + 1).copy_from(&ux * drift.transpose() + Scale(*lambda) * &ur);
            u.rb_mut().get_mut(.., 2 * d + 1..3 * d + 1).copy_from(&ur);
            u.get_mut(.., 3 * d + 1..).copy_from(first * xy + Scale(*kappa) * ry);
            let mut e = start.e_mut(j);
            e[(0, 0)] = xx[(d, d)];
            for k in 0..d {
                (e[(0, 1 + k)], e[(1 + k, 0)], e[(0, 1 + d + k)]) = (qx[(k, d)], qx[(k, d)], rx[(k, d)]);
            }
            e.rb_mut().get_mut(..1, 1 + 2 * d..).copy_from(xy.get(d.., ..));
            e.rb_mut().get_mut(1.., 1..1 + d).copy_from(&qx * drift.transpose() + Scale(*lambda) * &qr);
            e.rb_mut().get_mut(1.., 1 + d..1 + 2 * d).copy_from(&qr);
            e.get_mut(1.., 1 + 2 * d..).copy_from(drift * xy + Scale(*lambda) * ry);
        }
        start
    }
}

impl ClosurePhase for MemoryPhase {
    fn start(&self) -> usize {
        self.steps.dim + 1
    }

    fn run(&self, second: &[MatRef<'_, f64>], with: &[MatRef<'_, f64>]) -> Ends {
        let (d, columns) = (self.steps.dim, with[0].ncols());
        let moved = self.moved(second, with);
        let end = self.steps.run(self.count, self.after_first(&moved));
        // (r r^T, r y^T) after the other moves, one state a column.
        let kept = Mat::from_fn(d * (d + columns), moved.len(), |row, j| {
            let (i, k) = (row % d, row / d);
            if k < d { moved[j].rr[(i, k)] } else { moved[j].ry[(i, k - d)] }
        });
        let kept = self.carry.apply(&kept);
        let mut out = Ends { ends: Vec::with_capacity(moved.len()), with: Vec::with_capacity(moved.len()) };
        for j in 0..moved.len() {
            let (u, r) = (end.u(j), MatRef::from_column_major_slice(kept.col_as_slice(j), d, d + columns));
            let cross = u.get(.., 2 * d + 1..3 * d + 1) * self.shift.transpose();
            let own = &self.shift * r.get(.., ..d) * self.shift.transpose();
            out.ends.push(u.get(.., ..d) + &cross + cross.transpose() + own);
            out.with.push(u.get(.., 3 * d + 1..) + &self.shift * r.get(.., d..));
        }
        out
    }
}
