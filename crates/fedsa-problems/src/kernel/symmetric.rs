//! Local steps on symmetric matrices, half of which is stored: `g = b_z - A_z theta`, with a term z drawn for each step.
//!
//! A product reads `d (d + 8) / 2` numbers, so a step takes as long as reading half a matrix from memory. The order of operations is the
//! same on every instruction set. g starts at b. For each column of 8 x 8 blocks, J = 0, 1, ..., whole blocks on and below the diagonal are
//! used column by column,
//!
//! ```text
//! g_J = a_j theta_j + g_J      for the columns a_j of the block on the diagonal,
//! g_K = a_j theta_j + g_K      for the columns a_j of each block K > J below it, and, for the block mirrored above,
//! s_j = a_j * theta_K + s_j    (component by component, from s_j = 0),
//! g_J = g_J + (tree(s_0), .., tree(s_7))
//! ```
//!
//! where each line rounds once (`mul_add`) and [`tree`] is the sum of eight partial sums.

use fedsa::kernel::vector::{self, Vector};
use fedsa::kernel::{Chunk, Isa, LANES, Lanes, chunks, to_chunks, tree};
use fedsa::problem::systems::System;

/// Terms `b_z - A_z theta`, z = 0, 1, ..., of one agent, with symmetric `A_z`. Each term has first b, then the blocks of -A on and below
/// the diagonal, by block column, each block column by column. Zeros pad rows to whole chunks.
#[derive(Debug, Clone)]
pub struct Symmetric {
    d: usize,
    /// Chunks of one term.
    stride: usize,
    data: Vec<Chunk>,
}

/// The chunks of one term of dimension d.
pub const fn term_chunks(d: usize) -> usize {
    let (whole, width) = (d / 8, chunks(d));
    // Each of the whole columns of blocks has 8 columns, the last one d mod 8.
    let below = 8 * (whole * width - whole * whole.saturating_sub(1) / 2);
    width + below + d % 8
}

impl Symmetric {
    /// The bytes of the terms.
    pub fn bytes(&self) -> usize {
        size_of_val(&self.data[..])
    }

    /// No terms yet, with capacity for `terms`.
    pub fn with_capacity(d: usize, terms: usize) -> Self {
        let stride = term_chunks(d);
        Self { d, stride, data: Vec::with_capacity(stride * terms) }
    }

    /// The layout of a single term.
    ///
    /// # Panics
    /// As [`Symmetric::push`].
    pub fn one(system: &System) -> Self {
        let mut terms = Self::with_capacity(system.b.len(), 1);
        terms.push(system);
        terms
    }

    /// Adds a term. Only the lower triangle of A is read.
    ///
    /// # Panics
    /// When the term has another dimension.
    pub fn push(&mut self, System { a, b }: &System) {
        let (d, width) = (self.d, chunks(self.d));
        assert!(b.len() == d && a.shape() == (d, d));
        self.data.extend(to_chunks(b));
        let entry = |i: usize, j: usize| if i >= d { 0.0 } else { -a[(i.max(j), i.min(j))] };
        for col in 0..width {
            for row in col..width {
                let columns = 8 * col..(8 * col + 8).min(d);
                self.data.extend(columns.map(|j| Chunk(std::array::from_fn(|i| entry(8 * row + i, j)))));
            }
        }
    }

    /// The number of terms.
    pub fn len(&self) -> usize {
        self.data.len() / self.stride
    }

    /// Whether there are no terms.
    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    fn term(&self, z: usize) -> &[Chunk] {
        &self.data[z * self.stride..(z + 1) * self.stride]
    }

    /// Writes `A_z`, d x d in row-major order, and `b_z`, d numbers.
    pub fn parts(&self, z: usize, a: &mut [f64], b: &mut [f64]) {
        let (d, width) = (self.d, chunks(self.d));
        let (offset, mut blocks) = self.term(z).split_at(width);
        b.copy_from_slice(&fedsa::kernel::flat(offset)[..d]);
        for col in 0..width {
            for row in col..width {
                let columns = (d - 8 * col).min(8);
                let (block, rest) = blocks.split_at(columns);
                for (j, column) in block.iter().enumerate() {
                    for (i, x) in column.0.iter().enumerate().take(d - 8 * row) {
                        let (i, j) = (8 * row + i, 8 * col + j);
                        (a[i * d + j], a[j * d + i]) = (-x, -x);
                    }
                }
                blocks = rest;
            }
        }
    }

    /// Writes `b_z - A_z theta` (d numbers) into `out`, in the kernel's order of operations.
    #[inline(always)]
    pub fn apply(&self, z: usize, theta: &[f64], out: &mut [f64]) {
        let (d, width) = (self.d, chunks(self.d));
        let (offset, mut blocks) = self.term(z).split_at(width);
        out[..d].copy_from_slice(&fedsa::kernel::flat(offset)[..d]);
        for col in 0..width {
            let columns = (d - 8 * col).min(8);
            let x = load(theta, col);
            let mut own = load(out, col);
            let (diagonal, rest) = blocks.split_at(columns);
            for (a, x) in diagonal.iter().zip(&x) {
                fma(&mut own, &a.0, &[*x; 8]);
            }
            let (below, rest) = rest.split_at(8 * (width - col - 1));
            let mut sums = [[0.0; 8]; 8];
            for (k, block) in below.as_chunks::<8>().0.iter().enumerate() {
                let row = col + 1 + k;
                let (right, mut left) = (load(theta, row), load(out, row));
                for j in 0..8 {
                    fma(&mut left, &block[j].0, &[x[j]; 8]);
                    fma(&mut sums[j], &block[j].0, &right);
                }
                store(out, row, &left);
            }
            if !below.is_empty() {
                own.iter_mut().zip(sums).for_each(|(own, sums)| *own += tree(sums));
            }
            store(out, col, &own);
            blocks = rest;
        }
    }
}

/// `to = a x + to`, component by component.
#[inline(always)]
fn fma(to: &mut [f64; 8], a: &[f64; 8], x: &[f64; 8]) {
    for i in 0..8 {
        to[i] = a[i].mul_add(x[i], to[i]);
    }
}

/// Components `8 k..8 k + 8` of a vector, with zeros after its end.
#[inline(always)]
fn load(v: &[f64], k: usize) -> [f64; 8] {
    match v.get(8 * k..8 * k + 8) {
        Some(whole) => whole.try_into().expect("eight numbers"),
        None => std::array::from_fn(|i| v.get(8 * k + i).copied().unwrap_or(0.0)),
    }
}

/// Writes components `8 k..8 k + 8` of a vector, up to its end.
#[inline(always)]
fn store(v: &mut [f64], k: usize, x: &[f64; 8]) {
    let end = (8 * k + 8).min(v.len());
    v[8 * k..end].copy_from_slice(&x[..end - 8 * k]);
}

/// Runs the local phase for all lanes: `theta += eta_h (b_z - A_z theta + drift)` for every `eta_h`, with the term
/// `z = picks[h][l]` of `terms[l]` in step h of lane l.
pub fn local_phase(lanes: &mut Lanes, terms: &[&Symmetric], picks: &[[u32; LANES]], etas: &[f64], isa: Isa) {
    let width = lanes.width;
    assert!(terms.len() == lanes.len && lanes.len <= LANES && picks.len() == etas.len() && isa.is_available());
    assert!(lanes.theta.len() == LANES * width && lanes.drift.len() == LANES * width && lanes.spare.len() == width);
    assert!(terms.iter().all(|terms| chunks(terms.d) == width && terms.stride == term_chunks(terms.d)));
    for picks in picks {
        assert!(picks.iter().zip(terms).all(|(z, terms)| (*z as usize) < terms.len()));
    }
    // SAFETY: the instruction set is available, and the lengths are as asserted.
    unsafe {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => local_phase_avx512(lanes, terms, picks, etas),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => local_phase_avx2(lanes, terms, picks, etas),
            _ => steps::<vector::Portable>(lanes, terms, picks, etas),
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx2,fma")]
unsafe fn local_phase_avx512(lanes: &mut Lanes, terms: &[&Symmetric], picks: &[[u32; LANES]], etas: &[f64]) {
    // SAFETY: as in `local_phase`.
    unsafe { steps::<vector::Avx512>(lanes, terms, picks, etas) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn local_phase_avx2(lanes: &mut Lanes, terms: &[&Symmetric], picks: &[[u32; LANES]], etas: &[f64]) {
    // SAFETY: as in `local_phase`.
    unsafe { steps::<vector::Avx2>(lanes, terms, picks, etas) }
}

/// Short vectors: all lanes make step h before step h + 1, so that the dependency chains of lanes overlap. Long vectors: a lane makes all
/// its steps before the next lane starts, so that terms drawn twice are in the cache.
///
/// # Safety
/// As [`local_phase`] asserts.
#[inline(always)]
unsafe fn steps<V: Vector>(lanes: &mut Lanes, terms: &[&Symmetric], picks: &[[u32; LANES]], etas: &[f64]) {
    const SHORT: usize = 2;
    if lanes.width <= SHORT {
        for (h, eta) in etas.iter().enumerate() {
            let ahead = &picks[(h + 1).min(picks.len() - 1)];
            for (l, terms) in terms.iter().enumerate() {
                // A short term ends before the hardware prefetcher recognises the access pattern.
                for chunk in terms.term(ahead[l] as usize) {
                    // SAFETY: the chunk exists.
                    unsafe { V::prefetch(chunk) };
                }
                // SAFETY: as the caller.
                unsafe { step::<V>(lanes, l, terms, picks[h][l], *eta) };
            }
        }
    } else {
        for (l, terms) in terms.iter().enumerate() {
            for (picks, eta) in picks.iter().zip(etas) {
                // SAFETY: as the caller.
                unsafe { step::<V>(lanes, l, terms, picks[l], *eta) };
            }
        }
    }
}

/// One step of one lane.
///
/// # Safety
/// As [`local_phase`] asserts.
#[inline(always)]
unsafe fn step<V: Vector>(lanes: &mut Lanes, l: usize, terms: &Symmetric, z: u32, eta: f64) {
    let (d, width) = (terms.d, lanes.width);
    let theta = lanes.theta[l * width..][..width].as_mut_ptr();
    let drift = lanes.drift[l * width..][..width].as_ptr();
    let g = lanes.spare[..width].as_mut_ptr();
    // SAFETY: `local_phase` asserted that term z exists and has the chunks of dimension d, whose vectors have `width` chunks.
    unsafe {
        let term = terms.data.as_ptr().add(z as usize * terms.stride);
        // Sums of four columns fit into sixteen registers, sums of eight into thirty-two.
        if V::ROWS == 4 {
            product::<V, 8>(term, d, theta, g)
        } else {
            product::<V, 4>(term, d, theta, g)
        }
        let eta = V::splat(eta);
        for k in 0..width {
            let s = V::load(g.add(k)).add(V::load(drift.add(k)));
            eta.mul_add(s, V::load(theta.add(k))).store(theta.add(k));
        }
    }
}

/// `g = b - A theta`, with the columns below the diagonal in groups of C, a divisor of 8.
///
/// # Safety
/// `term` has [`term_chunks`] chunks, theta and g have [`chunks`] of d.
#[inline(always)]
unsafe fn product<V: Vector, const C: usize>(term: *const Chunk, d: usize, theta: *const Chunk, g: *mut Chunk) {
    let width = chunks(d);
    // SAFETY: blocks are read in the order in which `Symmetric::push` wrote them.
    unsafe {
        for k in 0..width {
            V::load(term.add(k)).store(g.add(k));
        }
        let mut at = term.add(width);
        for col in 0..width {
            let columns = (d - 8 * col).min(8);
            let x = theta.add(col).cast::<f64>();
            let mut own = V::load(g.add(col));
            for j in 0..columns {
                own = V::load(at.add(j)).mul_add(V::splat(*x.add(j)), own);
            }
            at = at.add(columns);
            let below = width - col - 1;
            if below > 0 {
                let mut mirrored = Chunk::default();
                for first in (0..8).step_by(C) {
                    let x: [V; C] = std::array::from_fn(|j| V::splat(*x.add(first + j)));
                    let mut sums = [V::splat(0.0); C];
                    for k in 0..below {
                        let block = at.add(8 * k + first);
                        let right = V::load(theta.add(col + 1 + k));
                        let mut left = V::load(g.add(col + 1 + k));
                        for j in 0..C {
                            let a = V::load(block.add(j));
                            left = a.mul_add(x[j], left);
                            sums[j] = a.mul_add(right, sums[j]);
                        }
                        left.store(g.add(col + 1 + k));
                    }
                    mirrored.0[first..first + C].copy_from_slice(&V::sums(&sums));
                }
                own = own.add(V::load(&mirrored));
                at = at.add(8 * below);
            }
            own.store(g.add(col));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use faer::Mat;
    use fedsa::random::{Purpose, stream};

    fn drawn(d: usize, seed: u64) -> System {
        let mut draw = stream(seed, Purpose::System, 0, d);
        let g = Mat::from_fn(d, d, |_, _| draw.normal());
        System { a: &g + g.transpose(), b: (0..d).map(|_| draw.normal()).collect() }
    }

    #[test]
    fn terms_come_back_and_their_products_are_those_of_the_matrices() {
        for d in [1, 2, 7, 8, 9, 16, 17, 24, 31, 40] {
            let systems = [drawn(d, 1), drawn(d, 2)];
            let mut terms = Symmetric::with_capacity(d, 2);
            systems.iter().for_each(|system| terms.push(system));
            assert_eq!((terms.len(), terms.data.len()), (2, 2 * term_chunks(d)), "d = {d}");
            let theta: Vec<f64> = (0..d).map(|i| 0.3 - i as f64).collect();
            for (z, system) in systems.iter().enumerate() {
                let (mut a, mut b, mut g) = (vec![f64::NAN; d * d], vec![0.0; d], vec![0.0; d]);
                terms.parts(z, &mut a, &mut b);
                assert_eq!((a, b), (fedsa::linalg::to_rows(&system.a), system.b.clone()), "d = {d}");
                terms.apply(z, &theta, &mut g);
                let size = system.a.norm_l2() * fedsa::linalg::norm_sq(&theta).sqrt();
                assert!(fedsa::linalg::distance_sq(&g, &system.mean(&theta)).sqrt() <= 1e-14 * size, "d = {d}");
            }
        }
    }
}
