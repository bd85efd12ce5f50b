//! The kernel of problems without a kernel of their own: `sample`, `apply`, step.
//!
//! Tests compare the results of the hand-written kernels with those of this one, bit for bit.

use super::{Isa, Lanes};
use crate::problem::Problem;
use crate::random::Stream;

/// Writes an agent's operator at an iterate into the last argument, d numbers, with the chain and the stream of its samples.
type Operator<'a> = dyn FnMut(usize, &[f64], &mut [u64], &mut Stream, &mut [f64]) + 'a;

/// Runs the local phase for all lanes: `theta += eta_h (g + drift)` for every `eta_h`, where g is the mean of `batch` samples
/// `g_c(theta, z)`, or `gbar_c(theta)` when `batch` is 0.
pub fn local_phase<P: Problem>(problem: &P, lanes: &mut Lanes, etas: &[f64], batch: usize, isa: Isa) {
    with_operator(problem, batch, isa, &mut |d, operator| steps(isa, d, lanes, etas, operator));
}

/// Writes `g_c(theta, z)` of every lane, with the next sample of its stream, into `lanes.observed`. Sampling processes and
/// streams advance only if `advance` is true.
pub fn observe<P: Problem>(problem: &P, lanes: &mut Lanes, advance: bool, batch: usize, isa: Isa) {
    with_operator(problem, batch, isa, &mut |d, operator| observations(d, lanes, advance, operator));
}

/// Calls `see` with d and the operator of a problem on an instruction set. Only the operator is compiled per problem and instruction set.
fn with_operator<P: Problem>(problem: &P, batch: usize, isa: Isa, see: &mut dyn FnMut(usize, &mut Operator<'_>)) {
    assert!(isa.is_available());
    let d = problem.dim();
    // The first sample of a batch is written in place.
    let (mut z, mut one) = (P::Obs::default(), vec![0.0; if batch > 1 { d } else { 0 }]);
    see(d, &mut |agent, theta, chain, stream, g| {
        // SAFETY: the instruction set is available.
        unsafe {
            match isa {
                #[cfg(target_arch = "x86_64")]
                Isa::Avx512 => operator_avx512(problem, agent, theta, chain, stream, batch, &mut z, g, &mut one),
                #[cfg(target_arch = "x86_64")]
                Isa::Avx2 => operator_avx2(problem, agent, theta, chain, stream, batch, &mut z, g, &mut one),
                _ => operator(problem, agent, theta, chain, stream, batch, &mut z, g, &mut one),
            }
        }
    });
}

per_isa! {
    fn steps(d: usize, lanes: &mut Lanes, etas: &[f64], operator: &mut Operator<'_>) {
        let mut spare = std::mem::take(&mut lanes.spare);
        let g = &mut super::flat_mut(&mut spare)[..d];
        for l in 0..lanes.len {
            let agent = lanes.agents[l];
            let mut stream = lanes.streams.get(l);
            for &eta in etas {
                let chain = &mut lanes.chains[l * lanes.chain_len..][..lanes.chain_len];
                let theta = super::flat_mut(&mut lanes.theta[l * lanes.width..][..lanes.width]);
                let drift = super::flat(&lanes.drift[l * lanes.width..][..lanes.width]);
                operator(agent, &theta[..d], chain, &mut stream, g);
                moved(eta, g, drift, theta);
            }
            lanes.streams.set(l, stream);
        }
        lanes.spare = spare;
    }
}

per_isa! {
    /// `theta += eta (g + drift)` in every component, a step of [`local_phase`].
    fn step(eta: f64, g: &[f64], drift: &[f64], theta: &mut [f64]) {
        moved(eta, g, drift, theta);
    }
}

/// `theta += eta (g + drift)` in the components of `g`.
#[inline(always)]
fn moved(eta: f64, g: &[f64], drift: &[f64], theta: &mut [f64]) {
    for ((theta, g), drift) in theta.iter_mut().zip(g).zip(drift) {
        *theta = eta.mul_add(g + drift, *theta);
    }
}

fn observations(d: usize, lanes: &mut Lanes, advance: bool, operator: &mut Operator<'_>) {
    // Without `advance`, copies of the chains are advanced.
    let mut copies = if advance { Vec::new() } else { lanes.chains.clone() };
    for l in 0..lanes.len {
        let words = l * lanes.chain_len..(l + 1) * lanes.chain_len;
        let chain = if advance { &mut lanes.chains[words] } else { &mut copies[words] };
        let mut stream = lanes.streams.get(l);
        let g = &mut super::flat_mut(&mut lanes.observed[l * lanes.width..][..lanes.width])[..d];
        let theta = &super::flat(&lanes.theta[l * lanes.width..][..lanes.width])[..d];
        operator(lanes.agents[l], theta, chain, &mut stream, g);
        if advance {
            lanes.streams.set(l, stream);
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx2,fma")]
#[allow(clippy::too_many_arguments, reason = "as of `operator`")]
unsafe fn operator_avx512<P: Problem>(
    problem: &P,
    agent: usize,
    theta: &[f64],
    chain: &mut [u64],
    stream: &mut Stream,
    batch: usize,
    z: &mut P::Obs,
    g: &mut [f64],
    one: &mut [f64],
) {
    operator(problem, agent, theta, chain, stream, batch, z, g, one);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
#[allow(clippy::too_many_arguments, reason = "as of `operator`")]
unsafe fn operator_avx2<P: Problem>(
    problem: &P,
    agent: usize,
    theta: &[f64],
    chain: &mut [u64],
    stream: &mut Stream,
    batch: usize,
    z: &mut P::Obs,
    g: &mut [f64],
    one: &mut [f64],
) {
    operator(problem, agent, theta, chain, stream, batch, z, g, one);
}

/// Writes the mean of `batch` samples `g_c(theta, z)` into `g` (d numbers), or `gbar_c(theta)` when `batch` is 0.
#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "the loop's buffers, passed apart so that it allocates nothing")]
fn operator<P: Problem>(
    problem: &P,
    agent: usize,
    theta: &[f64],
    chain: &mut [u64],
    stream: &mut Stream,
    batch: usize,
    z: &mut P::Obs,
    g: &mut [f64],
    one: &mut [f64],
) {
    if batch == 0 {
        // Fields with unknown mean operators are refused under mean sampling.
        let is_known = problem.mean(agent, theta, g);
        debug_assert!(is_known);
        return;
    }
    // Only here, so that `sample` and `apply` are inlined once.
    for i in 0..batch {
        problem.sample(agent, theta, chain, stream, z);
        problem.apply(agent, theta, z, if i == 0 { &mut *g } else { &mut *one });
        if i > 0 {
            g.iter_mut().zip(one.iter()).for_each(|(g, one)| *g += one);
        }
    }
    if batch > 1 {
        g.iter_mut().for_each(|g| *g /= batch as f64);
    }
}
