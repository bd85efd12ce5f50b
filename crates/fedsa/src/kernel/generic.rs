//! The kernel of problems without a kernel of their own: `sample`, `apply`, step.
//!
//! Tests compare the results of the hand-written kernels with those of this one, bit for bit.

use super::{Isa, Lanes};
use crate::problem::Problem;

/// Runs the leg for all lanes: `theta += eta_h (g + drift)` for every `eta_h`, where g is the mean of `batch` samples
/// `g_c(theta, z)`, or `gbar_c(theta)` when `batch` is 0.
pub fn leg<P: Problem>(problem: &P, lanes: &mut Lanes, etas: &[f64], batch: usize, isa: Isa) {
    assert!(isa.is_available());
    // SAFETY: the instruction set is available.
    unsafe {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => leg_avx512(problem, lanes, etas, batch),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => leg_avx2(problem, lanes, etas, batch),
            _ => steps(problem, lanes, etas, batch),
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx2,fma")]
unsafe fn leg_avx512<P: Problem>(problem: &P, lanes: &mut Lanes, etas: &[f64], batch: usize) {
    steps(problem, lanes, etas, batch);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn leg_avx2<P: Problem>(problem: &P, lanes: &mut Lanes, etas: &[f64], batch: usize) {
    steps(problem, lanes, etas, batch);
}

#[inline(always)]
fn steps<P: Problem>(problem: &P, lanes: &mut Lanes, etas: &[f64], batch: usize) {
    let d = problem.dim();
    let mut z = P::Obs::default();
    let mut g = vec![0.0; d];
    let mut one = vec![0.0; d];
    for l in 0..lanes.len {
        let agent = lanes.agents[l];
        let mut stream = lanes.streams.get(l);
        for &eta in etas {
            let chain = &mut lanes.chains[l * lanes.chain_len..][..lanes.chain_len];
            let theta = super::flat_mut(&mut lanes.theta[l * lanes.width..][..lanes.width]);
            let drift = super::flat(&lanes.drift[l * lanes.width..][..lanes.width]);
            operator(problem, agent, &theta[..d], chain, &mut stream, batch, &mut z, &mut g, &mut one);
            for ((theta, g), drift) in theta.iter_mut().zip(&g).zip(drift) {
                *theta = eta.mul_add(g + drift, *theta);
            }
        }
        lanes.streams.set(l, stream);
    }
}

/// Writes `g_c(theta, z)` of every lane, with the next sample of its stream, into `lanes.observed`. Sampling processes and
/// streams advance only if `advance` is true.
pub fn observe<P: Problem>(problem: &P, lanes: &mut Lanes, advance: bool, batch: usize, isa: Isa) {
    assert!(isa.is_available());
    // SAFETY: the instruction set is available.
    unsafe {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => observe_avx512(problem, lanes, advance, batch),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => observe_avx2(problem, lanes, advance, batch),
            _ => observations(problem, lanes, advance, batch),
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx2,fma")]
unsafe fn observe_avx512<P: Problem>(problem: &P, lanes: &mut Lanes, advance: bool, batch: usize) {
    observations(problem, lanes, advance, batch);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn observe_avx2<P: Problem>(problem: &P, lanes: &mut Lanes, advance: bool, batch: usize) {
    observations(problem, lanes, advance, batch);
}

#[inline(always)]
fn observations<P: Problem>(problem: &P, lanes: &mut Lanes, advance: bool, batch: usize) {
    let d = problem.dim();
    let mut z = P::Obs::default();
    let mut one = vec![0.0; d];
    let mut chain = vec![0; lanes.chain_len];
    for l in 0..lanes.len {
        let words = l * lanes.chain_len..(l + 1) * lanes.chain_len;
        chain.copy_from_slice(&lanes.chains[words.clone()]);
        let mut stream = lanes.streams.get(l);
        let g = &mut super::flat_mut(&mut lanes.observed[l * lanes.width..][..lanes.width])[..d];
        let theta = &super::flat(&lanes.theta[l * lanes.width..][..lanes.width])[..d];
        operator(problem, lanes.agents[l], theta, &mut chain, &mut stream, batch, &mut z, g, &mut one);
        if advance {
            lanes.chains[words].copy_from_slice(&chain);
            lanes.streams.set(l, stream);
        }
    }
}

/// Writes the mean of `batch` samples `g_c(theta, z)` into `g` (d numbers), or `gbar_c(theta)` when `batch` is 0.
#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "the loop's buffers, passed apart so that it allocates nothing")]
pub(crate) fn operator<P: Problem>(
    problem: &P,
    agent: usize,
    theta: &[f64],
    chain: &mut [u64],
    stream: &mut crate::random::Stream,
    batch: usize,
    z: &mut P::Obs,
    g: &mut [f64],
    one: &mut [f64],
) {
    if batch == 0 {
        // A field under mean sampling is refused if its mean operators are not known.
        let is_known = problem.mean(agent, theta, g);
        debug_assert!(is_known);
        return;
    }
    problem.sample(agent, chain, stream, z);
    problem.apply(agent, theta, z, g);
    for _ in 1..batch {
        problem.sample(agent, chain, stream, z);
        problem.apply(agent, theta, z, one);
        g.iter_mut().zip(one.iter()).for_each(|(g, one)| *g += one);
    }
    if batch > 1 {
        g.iter_mut().for_each(|g| *g /= batch as f64);
    }
}
