//! A single step of the agents of several blocks, with vectors of one chunk.
//!
//! A step waits for its draw, for the chosen data, and for its sums. Other blocks fill this time: first all transitions of some blocks are
//! chosen, then the steps are made block by block.

use super::{Drawn, Tables, TransitionTable, Vectors, advance, check, of_lanes, products};
use fedsa::kernel::vector::{self, Vector};
use fedsa::kernel::{Isa, LANES, Lanes};

/// Blocks whose transitions are chosen together.
const TOGETHER: usize = 4;

/// Whether this module can make these steps.
#[inline]
pub(super) fn suits(blocks: &[Lanes], tables: &Tables, etas: &[f64]) -> bool {
    etas.len() == 1 && blocks.len() > 1 && tables[0].width == 1
}

/// `theta += eta (g_c(theta, z) + drift)` in every lane.
///
/// # Panics
/// When an agent has no table.
pub(super) fn step(blocks: &mut [Lanes], tables: &Tables, kinds: &[u32], eta: f64, isa: Isa) {
    blocks.iter().for_each(|lanes| check(lanes, tables));
    match (tables[0].is_chain(), tables.are_alike()) {
        (false, false) => run::<false, false>(blocks, tables, kinds, eta, isa),
        (false, true) => run::<false, true>(blocks, tables, kinds, eta, isa),
        (true, false) => run::<true, false>(blocks, tables, kinds, eta, isa),
        (true, true) => run::<true, true>(blocks, tables, kinds, eta, isa),
    }
}

fn run<const CHAIN: bool, const ALIKE: bool>(blocks: &mut [Lanes], tables: &Tables, kinds: &[u32], eta: f64, isa: Isa) {
    // SAFETY: `local_phase` checked the instruction set, and `step` the blocks.
    unsafe {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => avx512::<CHAIN, ALIKE>(blocks, tables, kinds, eta),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => avx2::<CHAIN, ALIKE>(blocks, tables, kinds, eta),
            _ => steps::<vector::Portable, CHAIN, ALIKE>(blocks, tables, kinds, eta),
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx2,bmi2,fma")]
unsafe fn avx512<const CHAIN: bool, const ALIKE: bool>(blocks: &mut [Lanes], tables: &Tables, kinds: &[u32], eta: f64) {
    // SAFETY: as the caller.
    unsafe { steps::<vector::Avx512, CHAIN, ALIKE>(blocks, tables, kinds, eta) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi2,fma")]
unsafe fn avx2<const CHAIN: bool, const ALIKE: bool>(blocks: &mut [Lanes], tables: &Tables, kinds: &[u32], eta: f64) {
    // SAFETY: as the caller.
    unsafe { steps::<vector::Avx2, CHAIN, ALIKE>(blocks, tables, kinds, eta) }
}

/// # Safety
/// The instruction set is available, and the blocks were checked.
#[inline(always)]
unsafe fn steps<V: Vector, const CHAIN: bool, const ALIKE: bool>(blocks: &mut [Lanes], tables: &Tables, kinds: &[u32], eta: f64) {
    for blocks in blocks.chunks_mut(TOGETHER) {
        let mut drawn = [Drawn::NONE; TOGETHER];
        let mut chosen = [[&tables[0]; LANES]; TOGETHER];
        let mut bits = [[0; LANES]; TOGETHER];
        for ((bits, chosen), lanes) in bits.iter_mut().zip(&mut chosen).zip(&mut *blocks) {
            *bits = lanes.streams.bits();
            *chosen = of_lanes(lanes, tables, kinds);
        }
        for (((drawn, bits), chosen), lanes) in drawn.iter_mut().zip(&bits).zip(&chosen).zip(&mut *blocks) {
            for l in 0..LANES {
                let (source, at) = (chosen[l].source(), l.min(lanes.len - 1));
                let mut state = if CHAIN { lanes.chains[at] } else { 0 };
                assert!(!CHAIN || state < chosen[l].states() as u64);
                // SAFETY: the state is one of the table.
                unsafe { drawn.choose::<CHAIN, ALIKE>(l, &source, source.shift, &mut state, bits[l]) };
                if CHAIN && l < lanes.len {
                    lanes.chains[l] = state;
                }
            }
        }
        for ((drawn, chosen), lanes) in drawn.iter().zip(&chosen).zip(blocks) {
            let vectors = Vectors::<LANES> {
                theta: std::array::from_fn(|l| lanes.theta.as_mut_ptr().wrapping_add(l)),
                drift: lanes.drift.as_ptr(),
                rows: chosen.map(TransitionTable::rows),
                gammas: chosen.map(TransitionTable::gamma),
                width: 1,
            };
            // SAFETY: the transitions were chosen from the lanes' tables, and there are as many vectors as lanes.
            unsafe {
                let mut theta = vectors.load::<V, 1>();
                let (sums, phi) = products::<V, LANES, 1, ALIKE>(&vectors, &theta, drawn);
                let errors = V::differences(&drawn.rewards, &sums);
                advance::<V, LANES, 1, ALIKE>(&vectors, &mut theta, drawn, &errors, &phi, eta);
                vectors.store::<V, 1>(&theta);
            }
        }
    }
}
