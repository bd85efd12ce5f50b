//! The conditional covariance of a local phase's end, as a linear map of the second
//! moment of its start.

use faer::prelude::*;

use crate::RoundSetting;
use crate::phase::{bits_from_highest, step};
use crate::symmetric::{congruence, packed_index, packed_len};
use crate::work;
use fedsa::error::{Error, Result, require};
use fedsa::linalg::Mat;
use fedsa::problem::systems::{Moments, System, Systems};

/// Checks that every kind has moments of the right shapes, and that the batch is at least 1.
pub fn check(systems: &Systems, moments: &[Moments], batch: u64) -> Result<()> {
    require(batch >= 1, "batch", batch, "at least 1")?;
    let d = systems.dim();
    let right = |m: &Moments| {
        (m.aa.nrows(), m.aa.ncols()) == (d * d, d * d)
            && (m.ab.nrows(), m.ab.ncols()) == (d * d, d)
            && (m.bb.nrows(), m.bb.ncols()) == (d, d)
    };
    if moments.len() == systems.kinds.len() && moments.iter().all(right) {
        Ok(())
    } else {
        Err(Error::not_known(
            "moments",
            format!("{} sets of second moments for {} kinds of agents of dimension {d}", moments.len(), systems.kinds.len()),
            "one per kind: aa d^2 x d^2, ab d^2 x d, bb d x d",
        ))
    }
}

/// The covariance of one step's noise `A(z) theta - b(z)`, a mean of `batch`
/// samples, at `theta = theta* + u`: packed d x packed (d+1), a linear map of
/// the second moment of `(u, 1)`.
pub fn step_noise(system: &System, moments: &Moments, root: &[f64], batch: u64) -> Mat<f64> {
    let d = root.len();
    let k = batch as f64;
    let (a, b) = (&system.a, &system.b);
    let aa = |i: usize, j: usize, k: usize, l: usize| moments.aa[(i * d + k, j * d + l)] - a[(i, j)] * a[(k, l)];
    let ab = |i: usize, j: usize, k: usize| moments.ab[(i * d + k, j)] - a[(i, j)] * b[k];
    let bb = |i: usize, k: usize| moments.bb[(i, k)] - b[i] * b[k];
    // In the coordinates (theta, 1).
    let mut at_theta = Mat::<f64>::zeros(packed_len(d), packed_len(d + 1));
    for i in 0..d {
        for m in 0..=i {
            let row = packed_index(i, m);
            for j in 0..d {
                for l in 0..=j {
                    let twice = if j == l { aa(i, j, m, l) } else { aa(i, j, m, l) + aa(i, l, m, j) };
                    at_theta[(row, packed_index(j, l))] = twice / k;
                }
                at_theta[(row, packed_index(j, d))] = -(ab(i, j, m) + ab(m, j, i)) / k;
            }
            at_theta[(row, packed_index(d, d))] = bb(i, m) / k;
        }
    }
    let mut shift = Mat::<f64>::identity(d + 1, d + 1);
    (0..d).for_each(|i| shift[(i, d)] = root[i]);
    at_theta * congruence(&shift)
}

/// The conditional covariance of a local phase's end as a map of the packed second moment X of its start: packed d x packed n. `f` is
/// the matrix of one mean step on the coordinates `(u, 1, ..)`, n x n.
///
/// The mean path has the second moment `F^h X F^hT` after h steps, and the covariance around it obeys `V_{h+1} = K V_h + Q (F^h X
/// F^hT)`, where `Q` is the covariance that a step adds and `K V = D V D^T + Q(V)`. Doubling gives, as maps of packed X, `T_{2m} = K^m
/// T_m + T_m (F^m (x) F^m)`. A cancelled computation ends early with a wrong matrix.
pub fn phase_noise(system: &System, moments: &Moments, root: &[f64], batch: u64, setting: &RoundSetting, f: &Mat<f64>) -> Mat<f64> {
    let (d, n, eta) = (root.len(), f.nrows(), setting.step_size);
    let added = Scale(eta * eta) * step_noise(system, moments, root, batch);
    let k1 = congruence(&step(&system.a, eta)) + added.get(.., ..packed_len(d));
    let mut t1 = Mat::<f64>::zeros(packed_len(d), packed_len(n));
    t1.get_mut(.., ..packed_len(d + 1)).copy_from(&added);
    let (mut t, mut k, mut path) = (t1.clone(), k1.clone(), f.clone());
    for bit in bits_from_highest(setting.local_steps).skip(1).take_while(|_| !work::is_cancelled()) {
        t = &k * &t + &t * congruence(&path);
        k = &k * &k;
        path = &path * &path;
        if bit {
            t = &k1 * &t + &t1 * congruence(&path);
            k = &k1 * &k;
            path = f * &path;
        }
    }
    t
}
