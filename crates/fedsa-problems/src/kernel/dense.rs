//! Noiseless linear steps: `g = b - A theta` with one small dense matrix per agent.

use fedsa::kernel::vector::{self, Vector};
use fedsa::kernel::{Chunk, Isa, LANES, Lanes, chunks, to_chunks};
use fedsa::problem::systems::System;

/// A linear mean operator in the kernel's layout: first `b`, then `-A` in strips of eight rows, each strip column by column. Zeros pad rows
/// to whole chunks and columns to a multiple of four.
#[derive(Debug, Clone)]
pub struct Dense {
    d: usize,
    columns: usize,
    data: Vec<Chunk>,
}

impl Dense {
    /// The layout of `gbar(theta) = b - A theta`.
    pub fn new(system: &System) -> Self {
        let d = system.b.len();
        let columns = d.next_multiple_of(4);
        let mut data = Vec::with_capacity((columns + 1) * chunks(d));
        data.extend(to_chunks(&system.b));
        let entry = |i: usize, j: usize| if i < d && j < d { -system.a[(i, j)] } else { 0.0 };
        for k in 0..chunks(d) {
            data.extend((0..columns).map(|j| Chunk(std::array::from_fn(|i| entry(8 * k + i, j)))));
        }
        Self { d, columns, data }
    }

    /// Writes `gbar(theta) = b - A theta` (d numbers) into `out`, in the kernel's order of operations: four partial sums over the columns
    /// `j mod 4`; the first starts at b.
    #[inline(always)]
    pub fn mean(&self, theta: &[f64], out: &mut [f64]) {
        let width = chunks(self.d);
        for (k, out) in out[..self.d].chunks_mut(8).enumerate() {
            let mut acc = [self.data[k].0, [0.0; 8], [0.0; 8], [0.0; 8]];
            for j in 0..self.columns {
                let theta = theta.get(j).copied().unwrap_or(0.0);
                let column = &self.data[width + k * self.columns + j].0;
                for (acc, a) in acc[j % 4].iter_mut().zip(column) {
                    *acc = theta.mul_add(*a, *acc);
                }
            }
            for (i, out) in out.iter_mut().enumerate() {
                *out = (acc[0][i] + acc[1][i]) + (acc[2][i] + acc[3][i]);
            }
        }
    }
}

/// Runs the local phase for all lanes: `theta += eta_h (b_c - A_c theta + drift)` for every `eta_h`.
pub fn local_phase(lanes: &mut Lanes, systems: &[&Dense], etas: &[f64], isa: Isa) {
    let width = lanes.width;
    assert!(systems.len() == lanes.len && lanes.len <= LANES && isa.is_available());
    assert!(lanes.theta.len() == LANES * width && lanes.drift.len() == LANES * width && lanes.spare.len() == width);
    assert!(systems.iter().all(|s| chunks(s.d) == width && s.data.len() == (s.columns + 1) * width && s.columns <= 8 * width));
    // SAFETY: the instruction set is available, and the lengths are as asserted.
    unsafe {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => local_phase_avx512(lanes, systems, etas),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => local_phase_avx2(lanes, systems, etas),
            _ => steps::<vector::Portable>(lanes, systems, etas),
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx2,fma")]
unsafe fn local_phase_avx512(lanes: &mut Lanes, systems: &[&Dense], etas: &[f64]) {
    // SAFETY: as in `local_phase`.
    unsafe { steps::<vector::Avx512>(lanes, systems, etas) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn local_phase_avx2(lanes: &mut Lanes, systems: &[&Dense], etas: &[f64]) {
    // SAFETY: as in `local_phase`.
    unsafe { steps::<vector::Avx2>(lanes, systems, etas) }
}

/// # Safety
/// As [`local_phase`] asserts.
#[inline(always)]
unsafe fn steps<V: Vector>(lanes: &mut Lanes, systems: &[&Dense], etas: &[f64]) {
    match lanes.width {
        // SAFETY: as the caller.
        1 => unsafe { lane_steps::<V, 1>(lanes, systems, etas) },
        // SAFETY: as the caller.
        2 => unsafe { lane_steps::<V, 2>(lanes, systems, etas) },
        // SAFETY: as the caller.
        _ => unsafe { lane_steps::<V, 0>(lanes, systems, etas) },
    }
}

/// The steps with vectors of `W` chunks, or of `lanes.width` when W is 0.
///
/// Small operators: all lanes make step h before step h + 1, so that the dependency chains of lanes overlap. Large operators: a lane makes
/// all its steps before the next lane starts, so that its operator stays in the cache.
///
/// # Safety
/// As [`local_phase`] asserts.
#[inline(always)]
unsafe fn lane_steps<V: Vector, const W: usize>(lanes: &mut Lanes, systems: &[&Dense], etas: &[f64]) {
    if W == 0 {
        for (l, system) in systems.iter().enumerate() {
            for &eta in etas {
                // SAFETY: as the caller.
                unsafe { step::<V, W>(lanes, l, system, eta) };
            }
        }
    } else {
        for &eta in etas {
            for (l, system) in systems.iter().enumerate() {
                // SAFETY: as the caller.
                unsafe { step::<V, W>(lanes, l, system, eta) };
            }
        }
    }
}

/// One step of one lane.
///
/// # Safety
/// As [`local_phase`] asserts.
#[inline(always)]
unsafe fn step<V: Vector, const W: usize>(lanes: &mut Lanes, l: usize, system: &Dense, eta: f64) {
    let width = if W == 0 { lanes.width } else { W };
    let theta = lanes.theta[l * width..][..width].as_mut_ptr();
    let drift = lanes.drift[l * width..][..width].as_ptr();
    let g = lanes.spare[..width].as_mut_ptr();
    // SAFETY: `local_phase` asserted that a system has width chunks of b and as many strips of columns. The number of columns is at most
    // the number of theta's padded components.
    unsafe {
        let mut k = 0;
        while W == 0 && k + V::ROWS <= width {
            // ROWS is 4 or 1.
            if V::ROWS == 4 {
                strips::<V, 4>(system, width, k, theta, g)
            } else {
                strips::<V, 1>(system, width, k, theta, g)
            }
            k += V::ROWS;
        }
        while k < width {
            strips::<V, 1>(system, width, k, theta, g);
            k += 1;
        }
        let eta = V::splat(eta);
        for k in 0..width {
            let s = V::load(g.add(k)).add(V::load(drift.add(k)));
            eta.mul_add(s, V::load(theta.add(k))).store(theta.add(k));
        }
    }
}

/// Chunks `k..k + R` of `b - A theta`.
///
/// # Safety
/// As [`step`] says.
#[inline(always)]
unsafe fn strips<V: Vector, const R: usize>(system: &Dense, width: usize, k: usize, theta: *const Chunk, g: *mut Chunk) {
    // SAFETY: as `step` says.
    unsafe {
        let (data, x) = (system.data.as_ptr(), theta.cast::<f64>());
        let zero = V::splat(0.0);
        let zeros = [zero; R];
        let mut sums: [[V; R]; 4] = [std::array::from_fn(|r| V::load(data.add(k + r))), zeros, zeros, zeros];
        let strips: [*const Chunk; R] = std::array::from_fn(|r| data.add(width + (k + r) * system.columns));
        for j in (0..system.columns).step_by(4) {
            for (i, sums) in sums.iter_mut().enumerate() {
                let x = V::splat(*x.add(j + i));
                for (sum, strip) in sums.iter_mut().zip(strips) {
                    *sum = x.mul_add(V::load(strip.add(j + i)), *sum);
                }
            }
        }
        let [s0, s1, s2, s3] = sums;
        for r in 0..R {
            s0[r].add(s1[r]).add(s2[r].add(s3[r])).store(g.add(k + r));
        }
    }
}
