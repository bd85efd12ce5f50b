//! [`Pass`]: agents of one chunk a vector in blocks of eight.
//!
//! A single step waits for its draw, for what the draw chooses, and for its sums. Other blocks' fill this time: of some blocks together, first
//! all draws are made, then all transitions are chosen, then the steps are made block after block.

use std::mem::MaybeUninit;

use super::{Drawn, Group, Tables, TransitionTable, Vectors, advance, products, steps};
use crate::kernel::pass::{ControlMoves, Pass};
use crate::kernel::vector::{self, Divisor, Vector};
use crate::kernel::{Chunk, Isa, LANES};
use crate::random::Streams;

/// Blocks that draw together.
const BLOCKS: usize = 4;

/// Whether [`pass`] can be called with agents that draw from these tables.
pub fn makes_pass(tables: &Tables) -> bool {
    tables.first().is_some_and(|table| table.width == 1)
}

/// Answers for all agents of a pass; `kinds` are their tables.
///
/// # Panics
/// When the tables cannot be those of a pass ([`makes_pass`]).
pub fn pass(pass: &mut Pass<'_>, tables: &Tables, kinds: &[u32], isa: Isa) {
    let (n, is_chain) = (pass.weights.len(), tables[0].is_chain());
    assert!(makes_pass(tables) && isa.is_available() && pass.start.len() == 1 && pass.d <= 8);
    assert!(kinds.len() == n && pass.memory.len() == n * pass.stride && pass.sums.len() == n.div_ceil(LANES) * pass.d);
    let kept = pass.controls.map_or(0, |controls| if controls.has_base { 3 } else { 2 });
    assert!(pass.controls.is_none_or(|controls| controls.has_base || controls.moves.is_none()));
    assert!(kept <= pass.stride && pass.chains.len() == if is_chain { n } else { 0 });
    // The largest one, because that loop becomes vector instructions.
    assert!((kinds.iter().fold(0, |largest, kind| largest.max(*kind)) as usize) < tables.len());
    assert!(pass.chains.iter().zip(kinds).all(|(state, kind)| *state < tables[*kind as usize].states() as u64));
    // SAFETY: what `blocks` asks for was checked.
    unsafe {
        match (is_chain, tables.are_alike()) {
            (false, false) => run::<false, false>(pass, tables, kinds, isa),
            (false, true) => run::<false, true>(pass, tables, kinds, isa),
            (true, false) => run::<true, false>(pass, tables, kinds, isa),
            (true, true) => run::<true, true>(pass, tables, kinds, isa),
        }
    }
}

/// # Safety
/// As [`blocks`] says.
unsafe fn run<const CHAIN: bool, const ALIKE: bool>(pass: &mut Pass<'_>, tables: &[TransitionTable], kinds: &[u32], isa: Isa) {
    // SAFETY: handed on.
    unsafe {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => avx512::<CHAIN, ALIKE>(pass, tables, kinds),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => avx2::<CHAIN, ALIKE>(pass, tables, kinds),
            _ => blocks::<vector::Portable, CHAIN, ALIKE>(pass, tables, kinds),
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx2,bmi2,fma")]
unsafe fn avx512<const CHAIN: bool, const ALIKE: bool>(pass: &mut Pass<'_>, tables: &[TransitionTable], kinds: &[u32]) {
    // SAFETY: handed on.
    unsafe { blocks::<vector::Avx512, CHAIN, ALIKE>(pass, tables, kinds) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi2,fma")]
unsafe fn avx2<const CHAIN: bool, const ALIKE: bool>(pass: &mut Pass<'_>, tables: &[TransitionTable], kinds: &[u32]) {
    // SAFETY: handed on.
    unsafe { blocks::<vector::Avx2, CHAIN, ALIKE>(pass, tables, kinds) }
}

/// What the blocks of a pass share.
struct Shared<V> {
    start: V,
    by: Divisor<V>,
    /// Whether quotients are corrected products.
    corrects: bool,
    /// The last model of an agent that was seen, and the mean v that agents with this model learn.
    base: V,
    mean: V,
}

/// What was drawn for a block of which agents make a single step.
struct Single {
    drawn: Drawn,
    rows: [*const Chunk; LANES],
    gammas: [f64; LANES],
}

/// All blocks.
///
/// # Safety
/// The instruction set is available. Tables are of one chunk a row; kinds, states, memory, weights and sums are as many as the agents need,
/// and kinds and states exist.
#[inline(always)]
unsafe fn blocks<V: Vector, const CHAIN: bool, const ALIKE: bool>(pass: &mut Pass<'_>, tables: &[TransitionTable], kinds: &[u32]) {
    let n = pass.weights.len();
    // SAFETY: the instruction set is available, as in all that follows.
    let mut shared = unsafe {
        let (start, nan) = (V::load(pass.start.as_ptr()), V::splat(f64::NAN));
        let corrects = Divisor::<V>::corrects(pass.sum, &pass.start[0].0[..pass.d]);
        Shared { start, by: Divisor::new(pass.sum), corrects, base: nan, mean: nan }
    };
    // Idle lanes of the last block have the last agent.
    // SAFETY: the agent exists, and its kind does.
    let table = |c: usize| unsafe { tables.get_unchecked(*kinds.get_unchecked(c.min(n - 1)) as usize) };
    // The controls; idle lanes have those of others.
    let mut drift = [Chunk::default(); LANES];
    if pass.etas.len() > 1 {
        for at in (0..n).step_by(LANES) {
            // SAFETY: as the caller says.
            unsafe {
                match n - at {
                    1..=2 => {
                        block::<V, 2>(pass, &mut shared, at, &mut drift, |pass, drift| many::<V, 2, CHAIN, ALIKE>(pass, at, drift, table))
                    }
                    3..=4 => {
                        block::<V, 4>(pass, &mut shared, at, &mut drift, |pass, drift| many::<V, 4, CHAIN, ALIKE>(pass, at, drift, table))
                    }
                    _ => block::<V, 8>(pass, &mut shared, at, &mut drift, |pass, drift| many::<V, 8, CHAIN, ALIKE>(pass, at, drift, table)),
                }
            }
        }
        return;
    }
    let mut bits = [[0; LANES]; BLOCKS];
    let mut singles = [const { MaybeUninit::uninit() }; BLOCKS];
    for first in (0..n).step_by(BLOCKS * LANES) {
        let starts = (first..n).step_by(LANES).take(BLOCKS);
        for (bits, at) in bits.iter_mut().zip(starts.clone()) {
            *bits = pass.key.first_bits(pass.first + at);
        }
        for ((single, bits), at) in singles.iter_mut().zip(&bits).zip(starts.clone()) {
            draw::<CHAIN, ALIKE>(pass, at, table, bits, single);
        }
        for (single, at) in singles.iter().zip(starts) {
            // SAFETY: as the caller says; `draw` wrote what was drawn.
            unsafe {
                let single = single.assume_init_ref();
                match n - at {
                    1..=2 => block::<V, 2>(pass, &mut shared, at, &mut drift, |pass, drift| one::<V, 2, ALIKE>(pass, drift, single)),
                    3..=4 => block::<V, 4>(pass, &mut shared, at, &mut drift, |pass, drift| one::<V, 4, ALIKE>(pass, drift, single)),
                    _ => block::<V, 8>(pass, &mut shared, at, &mut drift, |pass, drift| one::<V, 8, ALIKE>(pass, drift, single)),
                }
            }
        }
    }
}

/// Draws what agents need for a single step, from the `at`-th on, and advances their processes.
#[inline(always)]
fn draw<'a, const CHAIN: bool, const ALIKE: bool>(
    pass: &mut Pass<'_>,
    at: usize,
    table: impl Fn(usize) -> &'a TransitionTable,
    bits: &[u64; LANES],
    single: &mut MaybeUninit<Single>,
) {
    let last = pass.weights.len() - 1;
    let shift = table(0).source().shift;
    let single = single.write(Single { drawn: Drawn::NONE, rows: [table(at).rows(); LANES], gammas: [table(at).gamma(); LANES] });
    for (l, bits) in bits.iter().enumerate() {
        let c = (at + l).min(last);
        let (table, mut state) = (table(c), if CHAIN { pass.chains[c] } else { 0 });
        let source = table.source();
        let shift = if ALIKE { shift } else { source.shift };
        // SAFETY: the state is one of the table.
        unsafe { single.drawn.choose::<CHAIN, ALIKE>(l, &source, shift, &mut state, *bits) };
        if !ALIKE {
            (single.rows[l], single.gammas[l]) = (table.rows(), table.gamma());
        }
        if CHAIN && at + l <= last {
            pass.chains[c] = state;
        }
    }
}

/// The answers of the agents from the `at`-th on, at most `L`; `leg` makes the steps with drifts, and returns where they end.
///
/// # Safety
/// As [`blocks`] says.
#[inline(always)]
unsafe fn block<V: Vector, const L: usize>(
    pass: &mut Pass<'_>,
    shared: &mut Shared<V>,
    at: usize,
    drift: &mut [Chunk; LANES],
    leg: impl FnOnce(&mut Pass<'_>, &[Chunk; LANES]) -> [V; L],
) {
    let used = (pass.weights.len() - at).min(L);
    // SAFETY: the agents' vectors lie in the memory.
    unsafe {
        if let Some(controls) = &pass.controls {
            let memory = pass.memory.as_mut_ptr().add(at * pass.stride);
            settle::<V, L>(controls, shared, memory, pass.stride, drift, used);
        }
        let theta = leg(pass, drift);
        let mut sum = answer::<V, L>(pass, shared, at, &theta, shared.corrects);
        // Quotients that are not finite are divided out.
        if shared.corrects && !sum.0.iter().fold(true, |all, x| all & x.is_finite()) {
            sum = answer::<V, L>(pass, shared, at, &theta, false);
        }
        let d = pass.d;
        let sums = &mut pass.sums[at / LANES * d..][..d];
        match sums.first_chunk_mut() {
            Some(sums) => *sums = sum.0,
            None => sums.copy_from_slice(&sum.0[..d]),
        }
    }
}

/// A single step; where it ends.
///
/// # Safety
/// As [`blocks`] says; the transitions were drawn.
#[inline(always)]
unsafe fn one<V: Vector, const L: usize, const ALIKE: bool>(pass: &Pass<'_>, drift: &[Chunk; LANES], single: &Single) -> [V; L] {
    let (rows, gammas) = (std::array::from_fn(|l| single.rows[l]), std::array::from_fn(|l| single.gammas[l]));
    let vectors = Vectors { theta: [std::ptr::null_mut(); L], drift: drift.as_ptr(), rows, gammas, width: 1 };
    // SAFETY: as the caller says; with one chunk a vector the iterates are not in memory.
    unsafe {
        let mut theta = [V::load(pass.start.as_ptr()); L];
        let (sums, phi) = products::<V, L, 1, ALIKE>(&vectors, &theta, &single.drawn);
        let errors = V::differences(&single.drawn.rewards, &sums);
        advance::<V, L, 1, ALIKE>(&vectors, &mut theta, &single.drawn, &errors, &phi, pass.etas[0]);
        theta
    }
}

/// Several steps; where they end.
///
/// # Safety
/// As [`blocks`] says.
#[inline(always)]
unsafe fn many<'a, V: Vector, const L: usize, const CHAIN: bool, const ALIKE: bool>(
    pass: &mut Pass<'_>,
    at: usize,
    drift: &[Chunk; LANES],
    table: impl Fn(usize) -> &'a TransitionTable,
) -> [V; L] {
    let mut theta = [pass.start[0]; L];
    let tables: [&TransitionTable; L] = std::array::from_fn(|l| table(at + l));
    let vectors = Vectors {
        theta: std::array::from_fn(|l| (&raw mut theta).cast::<Chunk>().wrapping_add(l)),
        drift: drift.as_ptr(),
        rows: tables.map(TransitionTable::rows),
        gammas: tables.map(TransitionTable::gamma),
        width: 1,
    };
    let states = std::array::from_fn(|l| if CHAIN { pass.chains[(at + l).min(pass.chains.len() - 1)] } else { 0 });
    let mut group =
        Group { vectors, sources: tables.map(TransitionTable::source), states, streams: Streams::consecutive(pass.key, pass.first + at) };
    // SAFETY: as the caller says.
    unsafe {
        steps::<V, L, 1, CHAIN, ALIKE>(&mut group, pass.etas);
        if CHAIN {
            let used = (pass.weights.len() - at).min(L);
            pass.chains[at..at + used].copy_from_slice(&group.states[..used]);
        }
        group.vectors.load::<V, 1>()
    }
}

/// Moves the controls of the `used` first agents, as [`settle`](crate::kernel::rows) does, and makes them the drifts.
///
/// # Safety
/// As [`blocks`] says; `memory` is theirs.
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "a fixed number of lanes, of which some may be idle")]
unsafe fn settle<V: Vector, const L: usize>(
    controls: &ControlMoves,
    shared: &mut Shared<V>,
    memory: *mut Chunk,
    stride: usize,
    drift: &mut [Chunk; LANES],
    used: usize,
) {
    // SAFETY: as the caller says.
    unsafe {
        for l in 0..L {
            if l < used {
                let kept = memory.add(l * stride);
                let mut xi = V::load(kept);
                if let Some(moved) = &controls.moves {
                    let (own, base) = (V::load(kept.add(1)), V::load(kept.add(2)));
                    // Mostly all agents have the same base: v is divided out once.
                    if base.differs(shared.base) {
                        (shared.base, shared.mean) = (base, shared.start.sub(base).div(V::splat(moved.scale)));
                    }
                    let mut difference = shared.mean.sub(own);
                    if controls.afresh {
                        difference = difference.sub(xi);
                    }
                    xi = xi.add(V::splat(moved.gain).mul(difference));
                    xi.store(kept);
                }
                xi.store(&mut drift[l]);
            }
        }
    }
}

/// Keeps what the agents send who came to `theta`, and returns the weighted sum: as `directions`, `keep` and `weighted_sum` of
/// [`rows`](crate::kernel::rows).
///
/// # Safety
/// As [`blocks`] says.
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "a fixed number of lanes, of which some may be idle")]
unsafe fn answer<V: Vector, const L: usize>(pass: &mut Pass<'_>, shared: &Shared<V>, at: usize, theta: &[V; L], corrects: bool) -> Chunk {
    let used = (pass.weights.len() - at).min(L);
    let mut total = Chunk::default();
    // SAFETY: the agents' vectors.
    unsafe {
        let mut sum = V::splat(0.0);
        for l in 0..L {
            if l < used {
                let moved = theta[l].sub(shared.start);
                let mut v = if corrects { shared.by.corrected(moved) } else { shared.by.quotient(moved) };
                if let Some(controls) = &pass.controls {
                    let kept = pass.memory.as_mut_ptr().add((at + l) * pass.stride);
                    if controls.afresh {
                        v = v.sub(V::load(kept));
                    }
                    v.store(kept.add(1));
                    if controls.has_base {
                        shared.start.store(kept.add(2));
                    }
                }
                sum = sum.add(V::splat(*pass.weights.get_unchecked(at + l)).mul(v));
            }
        }
        sum.store(&mut total);
    }
    total
}
