//! TD(0) over tables of transitions: one alias draw, two feature rows and one dot product per step.

mod single;
mod table;

use std::hint::black_box;

use fedsa::kernel::vector::{self, Vector};
use fedsa::kernel::{Chunk, Isa, LANES, Lanes};
use fedsa::random::Streams;

pub(crate) use table::MAX_WIDE;
use table::Source;
pub use table::{Column, Tables, Transition, TransitionTable, alias, column_bits};

/// Runs the local phase for all lanes of these blocks: `theta += eta_h (g_c(theta, z_h) + drift)` for every `eta_h`. `kinds` has the table
/// index of each agent.
///
/// # Panics
/// When an agent has no table.
#[inline]
pub fn local_phase(blocks: &mut [Lanes], tables: &Tables, kinds: &[u32], etas: &[f64], isa: Isa) {
    assert!(isa.is_available());
    if single::suits(blocks, tables, etas) {
        return single::step(blocks, tables, kinds, etas[0], isa);
    }
    for lanes in blocks {
        check(lanes, tables);
        let chosen = &of_lanes(lanes, tables, kinds);
        // Few agents use a smaller group, because lanes would idle.
        match lanes.len {
            1..=2 => of_size::<2>(lanes, chosen, tables.are_alike(), etas, isa),
            3..=4 => of_size::<4>(lanes, chosen, tables.are_alike(), etas, isa),
            _ => of_size::<8>(lanes, chosen, tables.are_alike(), etas, isa),
        }
    }
}

/// Checks the vectors and processes of the lanes, on which the steps rely.
#[inline]
fn check(lanes: &Lanes, tables: &Tables) {
    assert!((1..=LANES).contains(&lanes.len));
    assert!(lanes.theta.len() == LANES * lanes.width && lanes.drift.len() == LANES * lanes.width && lanes.spare.len() == lanes.width);
    assert!(tables[0].width == lanes.width && tables[0].is_chain() == (lanes.chain_len == 1));
    assert!(lanes.chains.len() == LANES * lanes.chain_len);
}

/// The table of each lane; idle lanes get the last one.
#[inline]
fn of_lanes<'a>(lanes: &Lanes, tables: &'a Tables, kinds: &[u32]) -> [&'a TransitionTable; LANES] {
    // A loop, because `map` with panics inside is not inlined.
    let mut chosen = [&tables[0]; LANES];
    for (l, table) in chosen.iter_mut().enumerate() {
        *table = &tables[kinds[lanes.agents[l.min(lanes.len - 1)]] as usize];
    }
    chosen
}

#[inline]
fn of_size<const L: usize>(lanes: &mut Lanes, tables: &[&TransitionTable; LANES], are_alike: bool, etas: &[f64], isa: Isa) {
    match (lanes.width, lanes.chain_len == 1, are_alike) {
        (1, false, true) => run::<L, 1, false, true>(lanes, tables, etas, isa),
        (1, false, false) => run::<L, 1, false, false>(lanes, tables, etas, isa),
        (1, true, true) => run::<L, 1, true, true>(lanes, tables, etas, isa),
        (1, true, false) => run::<L, 1, true, false>(lanes, tables, etas, isa),
        (_, false, _) => run::<L, 0, false, false>(lanes, tables, etas, isa),
        (_, true, _) => run::<L, 0, true, false>(lanes, tables, etas, isa),
    }
}

fn run<const L: usize, const W: usize, const CHAIN: bool, const ALIKE: bool>(
    lanes: &mut Lanes,
    tables: &[&TransitionTable; LANES],
    etas: &[f64],
    isa: Isa,
) {
    // SAFETY: `local_phase` checked the instruction set and the lengths of vectors.
    unsafe {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => run_avx512::<L, W, CHAIN, ALIKE>(lanes, tables, etas),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => run_avx2::<L, W, CHAIN, ALIKE>(lanes, tables, etas),
            _ => group::<vector::Portable, L, W, CHAIN, ALIKE>(lanes, tables, etas),
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx2,bmi2,fma")]
unsafe fn run_avx512<const L: usize, const W: usize, const CHAIN: bool, const ALIKE: bool>(
    lanes: &mut Lanes,
    tables: &[&TransitionTable; LANES],
    etas: &[f64],
) {
    // SAFETY: as in `run`.
    unsafe { group::<vector::Avx512, L, W, CHAIN, ALIKE>(lanes, tables, etas) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi2,fma")]
unsafe fn run_avx2<const L: usize, const W: usize, const CHAIN: bool, const ALIKE: bool>(
    lanes: &mut Lanes,
    tables: &[&TransitionTable; LANES],
    etas: &[f64],
) {
    // SAFETY: as in `run`.
    unsafe { group::<vector::Avx2, L, W, CHAIN, ALIKE>(lanes, tables, etas) }
}

/// Pointers to the vectors and rows that the steps of `L` agents use.
struct Vectors<const L: usize> {
    theta: [*mut Chunk; L],
    /// The drifts of all lanes, one after the other.
    drift: *const Chunk,
    /// The feature rows of each lane's table.
    rows: [*const Chunk; L],
    gammas: [f64; L],
    width: usize,
}

/// `L` agents of one local phase.
struct Group<const L: usize> {
    vectors: Vectors<L>,
    sources: [Source; L],
    states: [u64; L],
    streams: Streams<L>,
}

/// Runs the first `L` lanes, idle ones in scratch memory. Everything that the steps read is assembled here, in code of the same instruction
/// set: wide loads after narrower stores would wait for the cache. With `ALIKE` the tables are alike ([`Tables::are_alike`]).
///
/// # Safety
/// The instruction set is available, and vectors, tables and lanes have the lengths that [`local_phase`] asserts.
#[inline(always)]
unsafe fn group<V: Vector, const L: usize, const W: usize, const CHAIN: bool, const ALIKE: bool>(
    lanes: &mut Lanes,
    tables: &[&TransitionTable; LANES],
    etas: &[f64],
) {
    let (used, width) = (lanes.len, if W == 0 { lanes.width } else { W });
    let tables: &[&TransitionTable; L] = tables.first_chunk().expect("at most all lanes");
    let mut states = [0; L];
    if CHAIN {
        states = std::array::from_fn(|l| lanes.chains[l.min(used - 1)]);
        assert!((0..L).all(|l| states[l] < tables[l].states() as u64));
    }
    let (theta, spare) = (lanes.theta.as_mut_ptr(), lanes.spare.as_mut_ptr());
    let vectors = Vectors {
        // SAFETY: l < LANES, so the pointers stay inside an array of LANES vectors.
        theta: std::array::from_fn(|l| if l < used { unsafe { theta.add(l * width) } } else { spare }),
        drift: lanes.drift.as_ptr(),
        rows: tables.map(TransitionTable::rows),
        gammas: tables.map(TransitionTable::gamma),
        width,
    };
    let mut group = Group::<L> { vectors, sources: tables.map(TransitionTable::source), states, streams: lanes.streams.first() };
    // SAFETY: states and tables were checked; the pointers are valid for `width` chunks.
    unsafe {
        if etas.len() < AHEAD {
            short::<V, L, W, CHAIN, ALIKE>(&mut group, etas);
        } else {
            steps::<V, L, W, CHAIN, ALIKE>(&mut group, etas);
        }
    }
    // The streams of idle lanes are discarded.
    lanes.streams.set_first(&group.streams);
    if CHAIN {
        lanes.chains[..used].copy_from_slice(&group.states[..used]);
    }
}

/// Steps one after the other, for local phases too short to draw ahead.
///
/// # Safety
/// As [`steps`] says.
#[inline(always)]
unsafe fn short<V: Vector, const L: usize, const W: usize, const CHAIN: bool, const ALIKE: bool>(group: &mut Group<L>, etas: &[f64]) {
    let mut drawn = Drawn::NONE;
    // SAFETY: as `steps` says.
    unsafe {
        let mut theta = group.vectors.load::<V, W>();
        for &eta in etas {
            let bits = group.streams.bits();
            choose::<L, CHAIN, ALIKE>(group, &bits, &mut drawn);
            let (sums, phi) = products::<V, L, W, ALIKE>(&group.vectors, &theta, &drawn);
            // One by one: a vector load of just-stored rewards would wait for the cache.
            let sums = V::sums(&sums);
            let errors = Chunk(std::array::from_fn(|l| if l < L { drawn.rewards.0[l] - sums[l] } else { 0.0 }));
            advance::<V, L, W, ALIKE>(&group.vectors, &mut theta, &drawn, &errors, &phi, eta);
        }
        group.vectors.store::<V, W>(&theta);
    }
}

/// The number of steps by which draws run ahead of the arithmetic.
const AHEAD: usize = 4;

/// The steps of `L` agents; vectors are `W` chunks wide, or `width` when W is 0.
///
/// A step waits for its sums about as long as choosing transitions takes, so transitions of a later step are chosen in the meantime.
///
/// # Safety
/// The instruction set is available; pointers of the group are valid for a vector each, and its states are its tables'.
#[inline(always)]
unsafe fn steps<V: Vector, const L: usize, const W: usize, const CHAIN: bool, const ALIKE: bool>(group: &mut Group<L>, etas: &[f64]) {
    // SAFETY: the caller guarantees the instruction set, states, tables and rows; `choose` gives transitions of the lanes' tables.
    unsafe {
        let mut theta = group.vectors.load::<V, W>();
        let mut bits = [[0; L]; AHEAD];
        let (mut drawn, mut later) = (&mut [Drawn::NONE; AHEAD], &mut [Drawn::NONE; AHEAD]);
        let first = etas.len().min(AHEAD);
        group.streams.fill(&mut bits[..first]);
        for h in 0..first {
            choose::<L, CHAIN, ALIKE>(group, &bits[h], &mut drawn[h]);
        }
        let mut left = etas.len() - first;
        for etas in etas.chunks(AHEAD) {
            let ahead = left.min(AHEAD);
            left -= ahead;
            group.streams.fill(&mut bits[..ahead]);
            for (h, &eta) in etas.iter().enumerate() {
                let (sums, phi) = products::<V, L, W, ALIKE>(&group.vectors, &theta, &drawn[h]);
                let errors = V::differences(&drawn[h].rewards, &sums);
                if h < ahead {
                    choose::<L, CHAIN, ALIKE>(group, &bits[h], &mut later[h]);
                }
                advance::<V, L, W, ALIKE>(&group.vectors, &mut theta, &drawn[h], &errors, &phi, eta);
            }
            std::mem::swap(&mut drawn, &mut later);
        }
        group.vectors.store::<V, W>(&theta);
    }
}

impl<const L: usize> Vectors<L> {
    /// The iterates; vectors of one chunk stay in registers.
    #[inline(always)]
    unsafe fn load<V: Vector, const W: usize>(&self) -> [V; L] {
        // SAFETY: as `steps` says.
        unsafe { if W == 1 { self.theta.map(|theta| V::load(theta)) } else { [V::splat(0.0); L] } }
    }

    /// Stores the registers.
    #[inline(always)]
    unsafe fn store<V: Vector, const W: usize>(&self, theta: &[V; L]) {
        if W == 1 {
            // SAFETY: as `steps` says.
            theta.iter().zip(self.theta).for_each(|(theta, to)| unsafe { theta.store(to) });
        }
    }
}

/// Transitions drawn for some lanes.
#[derive(Clone, Copy)]
struct Drawn {
    rewards: Chunk,
    /// The feature row of s, plus `2^32` times the row of s': row indices, or byte offsets if tables are alike.
    rows: [u64; LANES],
}

impl Drawn {
    const NONE: Self = Self { rewards: Chunk([0.0; 8]), rows: [0; LANES] };

    /// The feature rows of lane `l`, of s and s', among `rows` of `width` chunks.
    ///
    /// # Safety
    /// `rows` belong to the table from which the transition was chosen.
    #[inline(always)]
    unsafe fn rows<const ALIKE: bool>(&self, l: usize, rows: *const Chunk, width: usize) -> [*const Chunk; 2] {
        let [phi, next] = [self.rows[l] as u32 as usize, (self.rows[l] >> 32) as usize];
        // SAFETY: as the caller says.
        unsafe { if ALIKE { [rows.byte_add(phi), rows.byte_add(next)] } else { [rows.add(phi * width), rows.add(next * width)] } }
    }

    /// Gives lane `l` the transition that 64 random bits choose: z ~ pi_c, or the next one of the chain in `state`. Shifting a draw by
    /// `shift` gives its column.
    ///
    /// # Safety
    /// The source and the shift belong to a table, and the state is one of its states.
    #[inline(always)]
    unsafe fn choose<const CHAIN: bool, const ALIKE: bool>(&mut self, l: usize, source: &Source, shift: u32, state: &mut u64, bits: u64) {
        let column = ((bits >> shift) + if CHAIN { *state << (64 - shift) } else { 0 }) as usize;
        // SAFETY: columns, outcomes and successors were validated when the table was built.
        let (rows, reward, successor) = unsafe {
            if ALIKE {
                let column = &*source.wide.add(column);
                let i = usize::from(bits >= column.threshold);
                (column.rows[i], column.rewards[i], column.successors[i])
            } else {
                let z = (*source.columns.add(column)).outcome(bits);
                let Transition { phi, next, reward } = *source.transitions.add(z);
                let successor = if CHAIN { u64::from(*source.successors.add(z)) } else { 0 };
                (u64::from(phi) | u64::from(next) << 32, reward, successor)
            }
        };
        if CHAIN {
            *state = successor;
        }
        // One by one: the compiler would assemble vectors with a shuffle for each lane.
        // SAFETY: places of this value.
        unsafe {
            (&raw mut self.rows[l]).write_volatile(rows);
            (&raw mut self.rewards.0[l]).write_volatile(reward);
        }
    }
}

/// The transitions that `bits` choose, for all lanes.
///
/// # Safety
/// As [`steps`] says.
#[inline(always)]
unsafe fn choose<const L: usize, const CHAIN: bool, const ALIKE: bool>(group: &mut Group<L>, bits: &[u64; L], out: &mut Drawn) {
    for (l, bits) in bits.iter().enumerate() {
        let shift = group.sources[if ALIKE { 0 } else { l }].shift;
        // SAFETY: the states are the tables'.
        unsafe { out.choose::<CHAIN, ALIKE>(l, &group.sources[l], shift, &mut group.states[l], *bits) };
    }
}

/// `(phi - gamma phi')^T theta` of all lanes, still to be summed, and `phi` if a vector is one chunk.
///
/// # Safety
/// As [`steps`] says; the transitions were chosen.
#[inline(always)]
unsafe fn products<V: Vector, const L: usize, const W: usize, const ALIKE: bool>(
    vectors: &Vectors<L>,
    theta: &[V; L],
    z: &Drawn,
) -> ([V; L], [V; L]) {
    let width = if W == 0 { vectors.width } else { W };
    // SAFETY: as the caller says.
    unsafe {
        let (mut sums, mut kept) = ([V::splat(0.0); L], [V::splat(0.0); L]);
        for l in 0..L {
            let gamma = V::splat(vectors.gammas[if ALIKE { 0 } else { l }]);
            let [phi, next] = z.rows::<ALIKE>(l, vectors.rows[if ALIKE { 0 } else { l }], width);
            for k in 0..width {
                let at = if W == 1 { theta[l] } else { V::load(vectors.theta[l].add(k)) };
                kept[l] = V::load(phi.add(k));
                sums[l] = at.mul_add(gamma.neg_mul_add(V::load(next.add(k)), kept[l]), sums[l]);
            }
        }
        (sums, kept)
    }
}

/// `theta += eta (error phi + drift)` in all lanes.
///
/// # Safety
/// As [`steps`] says; the transitions were chosen, and `errors` are theirs.
#[inline(always)]
unsafe fn advance<V: Vector, const L: usize, const W: usize, const ALIKE: bool>(
    vectors: &Vectors<L>,
    theta: &mut [V; L],
    z: &Drawn,
    errors: &Chunk,
    kept: &[V; L],
    eta: f64,
) {
    // The black box keeps errors and drifts in memory. A load broadcasts an error without a shuffle, and drifts in registers would evict
    // the iterates.
    let (vectors, errors) = black_box((vectors, errors));
    let width = if W == 0 { vectors.width } else { W };
    // SAFETY: as the caller says.
    unsafe {
        let eta = V::splat(eta);
        for l in 0..L {
            let error = V::splat(errors.0[l]);
            let [phi, _] = z.rows::<ALIKE>(l, vectors.rows[if ALIKE { 0 } else { l }], width);
            for k in 0..width {
                let at = if W == 1 { theta[l] } else { V::load(vectors.theta[l].add(k)) };
                let phi = if W == 1 && V::HAS_ROOM { kept[l] } else { V::load(phi.add(k)) };
                let g = error.mul(phi).add(V::load(vectors.drift.add(l * width + k)));
                let to = eta.mul_add(g, at);
                if W == 1 { theta[l] = to } else { to.store(vectors.theta[l].add(k)) }
            }
        }
    }
}
