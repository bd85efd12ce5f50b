//! TD(0) over tables of transitions: one alias draw, two feature rows, one dot product a step.

use std::sync::Arc;

use super::vector::{self, Vector};
use super::{Chunk, Isa, LANES, Lanes};
use crate::random::Streams;

/// One column of an alias table (Walker 1977, Vose 1991) with a power of two of columns.
///
/// The top bits of a 64-bit draw choose the column without bias; the draw,
/// against `threshold`, chooses between the column's two outcomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Column {
    /// Draws below it give the first outcome. Its top bits are those of the column's
    /// draws, so that whole draws are compared.
    pub threshold: u64,
    /// Two transitions.
    pub outcomes: [u32; 2],
}

impl Column {
    /// A column that always gives `z`.
    pub fn one(z: u32) -> Self {
        Self { threshold: u64::MAX, outcomes: [z; 2] }
    }

    /// The outcome of 64 random bits that chose this column; no branch to mispredict.
    #[inline(always)]
    fn outcome(&self, bits: u64) -> usize {
        self.outcomes[usize::from(bits >= self.threshold)] as usize
    }
}

/// One transition: `g = (reward + gamma phi'^T theta - phi^T theta) phi`.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[repr(C)]
pub struct Transition {
    /// The feature row of s.
    pub phi: u32,
    /// The feature row of s'; a row of zeros after the last one of an episode.
    pub next: u32,
    /// The reward r(s, s').
    pub reward: f64,
}

/// The transitions of one agent, drawn i.i.d. or along a chain.
///
/// Its parts are validated by [`TransitionTable::new`]; the kernels rely on that.
#[derive(Debug, Clone)]
pub struct TransitionTable {
    gamma: f64,
    bits: u32,
    /// The feature rows that the transitions name, `width` chunks each.
    rows: Arc<[Chunk]>,
    width: usize,
    columns: Vec<Column>,
    transitions: Arc<[Transition]>,
    /// The chain's next state after each transition; empty for i.i.d. draws.
    successors: Vec<u32>,
}

impl TransitionTable {
    /// A table over feature rows of `width` chunks each. `columns` holds `2^bits` columns
    /// for each state of the chain, or once for i.i.d. draws (`successors` empty).
    ///
    /// # Panics
    /// When an index is out of range: tables are built by this crate from validated input.
    pub fn new(
        gamma: f64,
        bits: u32,
        columns: Vec<Column>,
        transitions: Arc<[Transition]>,
        successors: Vec<u32>,
        rows: Arc<[Chunk]>,
        width: usize,
    ) -> Self {
        assert!(width >= 1 && rows.len().is_multiple_of(width));
        let count = rows.len() / width;
        assert!((1..32).contains(&bits) && !transitions.is_empty());
        assert!(transitions.iter().all(|t| (t.phi as usize) < count && (t.next as usize) < count));
        assert!(columns.iter().all(|c| c.outcomes.iter().all(|z| (*z as usize) < transitions.len())));
        let states = columns.len() >> bits;
        assert!(states >= 1 && columns.len() == states << bits);
        assert!(successors.is_empty() && states == 1 || successors.len() == transitions.len());
        assert!(successors.iter().all(|s| (*s as usize) < states));
        Self { gamma, bits, rows, width, columns, transitions, successors }
    }

    /// The discount factor.
    pub fn gamma(&self) -> f64 {
        self.gamma
    }

    /// The transitions.
    pub fn transitions(&self) -> &[Transition] {
        &self.transitions
    }

    /// How many states the sampling chain has (one for i.i.d. draws).
    pub fn states(&self) -> usize {
        self.columns.len() >> self.bits
    }

    /// Whether draws follow a chain.
    pub fn is_chain(&self) -> bool {
        !self.successors.is_empty()
    }

    /// The transition that 64 random bits choose from `state`, and the next state.
    #[inline(always)]
    pub fn draw(&self, state: u64, bits: u64) -> (&Transition, u64) {
        let (z, next) = self.draw_number(state, bits);
        (&self.transitions[z], next)
    }

    /// The number of the transition that 64 random bits choose from `state`, and the next state.
    #[inline(always)]
    pub fn draw_number(&self, state: u64, bits: u64) -> (usize, u64) {
        let column = &self.columns[((state << self.bits) + (bits >> (64 - self.bits))) as usize];
        let z = column.outcome(bits);
        (z, self.successors.get(z).map_or(0, |s| u64::from(*s)))
    }
}

/// The tables of all kinds of agents, which are all of one width, and all chains or none.
#[derive(Debug, Clone, Default)]
pub struct Tables {
    all: Vec<TransitionTable>,
}

impl Tables {
    /// # Panics
    /// When the tables are of several widths, or only some are chains.
    pub fn new(all: Vec<TransitionTable>) -> Self {
        assert!(all.iter().all(|table| table.width == all[0].width && table.is_chain() == all[0].is_chain()));
        Self { all }
    }
}

impl std::ops::Deref for Tables {
    type Target = [TransitionTable];
    #[inline]
    fn deref(&self) -> &[TransitionTable] {
        &self.all
    }
}

/// Builds an alias table over `2^bits` columns that draws `outcomes[i]` with probability `p[i]`.
///
/// `p` sums to 1 up to rounding. Probabilities become whole numbers of the `2^64` draws, the
/// heaviest taking what rounding leaves, and the table shares the draws out exactly: outcomes
/// have the probability that they should to `2^-50`, however many there are.
pub fn alias(p: &[f64], outcomes: &[u32], bits: u32, out: &mut Vec<Column>) {
    const DRAWS: u128 = 1 << 64;
    let n = 1usize << bits;
    assert!(p.len() == outcomes.len() && !p.is_empty() && p.len() <= n);
    let column_draws = DRAWS >> bits;
    let total = compensated(p.iter().copied());
    let heaviest = (0..p.len()).max_by(|i, j| p[*i].total_cmp(&p[*j])).expect("at least one outcome");
    // What is cut off one outcome's draws is added to the next one's.
    let mut cut = 0.0;
    let whole = |p: &f64| {
        let exact = p / total * 2f64.powi(64) + cut;
        cut = exact.fract();
        exact.trunc() as u128
    };
    let mut draws: Vec<u128> = p.iter().map(whole).collect();
    // Columns beyond the outcomes have no draws of their own.
    draws.resize(n, 0);
    let others = draws.iter().sum::<u128>() - draws[heaviest];
    draws[heaviest] = DRAWS.checked_sub(others).expect("probabilities that sum to 1");
    let outcome = |i: usize| outcomes[if i < p.len() && p[i] > 0.0 { i } else { heaviest }];
    let (mut small, mut large) = (Vec::with_capacity(n), Vec::with_capacity(n));
    (0..n).for_each(|i| if draws[i] < column_draws { small.push(i) } else { large.push(i) });
    let start = out.len();
    out.extend((0..n).map(|i| Column::one(outcome(i))));
    // While a column lacks draws another has too many; in the end all are full.
    while let (Some(s), Some(l)) = (small.pop(), large.pop()) {
        out[start + s].threshold = ((s as u64) << (64 - bits)) + draws[s] as u64;
        out[start + s].outcomes[1] = outcome(l);
        draws[l] -= column_draws - draws[s];
        if draws[l] < column_draws { small.push(l) } else { large.push(l) }
    }
}

/// The sum of numbers to a few units of its last place, however many there are (Neumaier 1974).
fn compensated(numbers: impl Iterator<Item = f64>) -> f64 {
    let (mut sum, mut lost) = (0.0f64, 0.0);
    for x in numbers {
        let next = sum + x;
        lost += if sum.abs() >= x.abs() { (sum - next) + x } else { (x - next) + sum };
        sum = next;
    }
    sum + lost
}

/// The number of bits of columns for `n` outcomes.
pub fn column_bits(n: usize) -> u32 {
    n.next_power_of_two().trailing_zeros().max(1)
}

/// Runs the leg for all lanes: `theta += eta_h (g_c(theta, z_h) + drift)` for every `eta_h`.
/// `kinds` are the lanes' tables; those of idle lanes repeat the last.
#[inline]
pub fn leg(lanes: &mut Lanes, tables: &Tables, kinds: &[usize; LANES], etas: &[f64], isa: Isa) {
    // A loop and not `map`, which is a call of its own where it has panics inside.
    let mut chosen = [&tables.all[0]; LANES];
    for (table, kind) in chosen.iter_mut().zip(kinds) {
        *table = &tables.all[*kind];
    }
    let tables = &chosen;
    assert!((1..=LANES).contains(&lanes.len) && isa.is_available());
    assert!(lanes.theta.len() == LANES * lanes.width && lanes.drift.len() == LANES * lanes.width && lanes.spare.len() == lanes.width);
    assert!(tables[0].width == lanes.width && tables[0].is_chain() == (lanes.chain_len == 1));
    // Few agents go in a smaller group: lanes would idle.
    match lanes.len {
        1..=2 => of_size::<2>(lanes, tables, etas, isa),
        3..=4 => of_size::<4>(lanes, tables, etas, isa),
        _ => of_size::<8>(lanes, tables, etas, isa),
    }
}

#[inline]
fn of_size<const L: usize>(lanes: &mut Lanes, tables: &[&TransitionTable; LANES], etas: &[f64], isa: Isa) {
    match (lanes.width, lanes.chain_len == 1) {
        (1, false) => run::<L, 1, false>(lanes, tables, etas, isa),
        (1, true) => run::<L, 1, true>(lanes, tables, etas, isa),
        (_, false) => run::<L, 0, false>(lanes, tables, etas, isa),
        (_, true) => run::<L, 0, true>(lanes, tables, etas, isa),
    }
}

fn run<const L: usize, const W: usize, const CHAIN: bool>(lanes: &mut Lanes, tables: &[&TransitionTable; LANES], etas: &[f64], isa: Isa) {
    // SAFETY: `leg` checked the instruction set and the lengths of vectors.
    unsafe {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => run_avx512::<L, W, CHAIN>(lanes, tables, etas),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => run_avx2::<L, W, CHAIN>(lanes, tables, etas),
            _ => group::<vector::Portable, L, W, CHAIN>(lanes, tables, etas),
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx2,fma")]
unsafe fn run_avx512<const L: usize, const W: usize, const CHAIN: bool>(
    lanes: &mut Lanes,
    tables: &[&TransitionTable; LANES],
    etas: &[f64],
) {
    // SAFETY: as in `run`.
    unsafe { group::<vector::Avx512, L, W, CHAIN>(lanes, tables, etas) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn run_avx2<const L: usize, const W: usize, const CHAIN: bool>(lanes: &mut Lanes, tables: &[&TransitionTable; LANES], etas: &[f64]) {
    // SAFETY: as in `run`.
    unsafe { group::<vector::Avx2, L, W, CHAIN>(lanes, tables, etas) }
}

/// `L` agents of one leg, as the kernel sees them.
struct Group<'a, const L: usize> {
    theta: [*mut Chunk; L],
    drift: [*const Chunk; L],
    rows: [*const Chunk; L],
    tables: [&'a TransitionTable; L],
    gammas: [f64; L],
    /// Draws are shifted so far to the right to give their columns.
    shifts: [u32; L],
    columns: [*const Column; L],
    transitions: [*const Transition; L],
    states: [u64; L],
    streams: Streams<L>,
    width: usize,
}

/// Runs the first `L` lanes, idle ones in scratch memory. Everything that the steps read is put together here, in
/// code of the same instruction set: narrower stores would have to reach the cache before wide loads see them.
///
/// # Safety
/// The instruction set is available, and vectors, tables and lanes have the lengths that [`leg`] asserts.
#[inline(always)]
unsafe fn group<V: Vector, const L: usize, const W: usize, const CHAIN: bool>(
    lanes: &mut Lanes,
    tables: &[&TransitionTable; LANES],
    etas: &[f64],
) {
    let used = lanes.len;
    let tables: &[&TransitionTable; L] = tables.first_chunk().expect("at most all lanes");
    let mut states = [0; L];
    if CHAIN {
        states = std::array::from_fn(|l| lanes.chains[l.min(used - 1)]);
        assert!((0..L).all(|l| states[l] < tables[l].states() as u64));
    }
    if etas.len() < AHEAD {
        // SAFETY: handed on, and states were checked.
        unsafe { short::<V, L, W, CHAIN>(lanes, tables, &mut states, etas) };
    } else {
        // SAFETY: as above.
        unsafe { long::<V, L, W, CHAIN>(lanes, tables, &mut states, etas) };
    }
    if CHAIN {
        lanes.chains[..used].copy_from_slice(&states[..used]);
    }
}

/// Steps one after the other, for legs too short to draw ahead in; the tables are read where they are.
///
/// # Safety
/// As [`group`] says; states are the tables'.
#[inline(always)]
unsafe fn short<V: Vector, const L: usize, const W: usize, const CHAIN: bool>(
    lanes: &mut Lanes,
    tables: &[&TransitionTable; L],
    states: &mut [u64; L],
    etas: &[f64],
) {
    let (used, width) = (lanes.len, if W == 0 { lanes.width } else { W });
    let mut streams = lanes.streams.first::<L>();
    let (theta, drift, spare) = (lanes.theta.as_mut_ptr(), lanes.drift.as_ptr(), lanes.spare.as_mut_ptr());
    // SAFETY: l < LANES, so that vectors lie inside arrays of LANES; tables were validated, and states are theirs.
    unsafe {
        let theta = |l: usize| if l < used { theta.add(l * width) } else { spare };
        for &eta in etas {
            let (bits, eta) = (streams.bits(), V::splat(eta));
            let mut z = [Transition::default(); L];
            let mut sums = [V::splat(0.0); L];
            for l in 0..L {
                let table = tables[l];
                let column = (bits[l] >> (64 - table.bits)) + if CHAIN { states[l] << table.bits } else { 0 };
                let chosen = table.columns.get_unchecked(column as usize).outcome(bits[l]);
                if CHAIN {
                    states[l] = u64::from(*table.successors.get_unchecked(chosen));
                }
                z[l] = *table.transitions.get_unchecked(chosen);
            }
            // All lanes' transitions are on their way from the cache before the first is used.
            for l in 0..L {
                let rows = tables[l].rows.as_ptr();
                let (phi, next) = (rows.add(z[l].phi as usize * width), rows.add(z[l].next as usize * width));
                let gamma = V::splat(tables[l].gamma);
                for k in 0..width {
                    let psi = gamma.neg_mul_add(V::load(next.add(k)), V::load(phi.add(k)));
                    sums[l] = V::load(theta(l).add(k)).mul_add(psi, sums[l]);
                }
            }
            let values = V::sums(&sums);
            for l in 0..L {
                let error = V::splat(z[l].reward - values[l]);
                let phi = tables[l].rows.as_ptr().add(z[l].phi as usize * width);
                for k in 0..width {
                    let g = error.mul(V::load(phi.add(k))).add(V::load(drift.add(l * width + k)));
                    eta.mul_add(g, V::load(theta(l).add(k))).store(theta(l).add(k));
                }
            }
        }
    }
    // Streams of idle lanes are nobody's.
    lanes.streams.set_first(&streams);
}

/// Many steps.
///
/// # Safety
/// As [`short`] says.
#[inline(always)]
unsafe fn long<V: Vector, const L: usize, const W: usize, const CHAIN: bool>(
    lanes: &mut Lanes,
    tables: &[&TransitionTable; L],
    states: &mut [u64; L],
    etas: &[f64],
) {
    let (used, width) = (lanes.len, if W == 0 { lanes.width } else { W });
    let (theta, drift) = (lanes.theta.as_mut_ptr(), lanes.drift.as_ptr());
    let spare = lanes.spare.as_mut_ptr();
    let mut group = Group::<L> {
        // SAFETY: l < LANES, so the pointers stay inside arrays of LANES vectors.
        theta: std::array::from_fn(|l| if l < used { unsafe { theta.add(l * width) } } else { spare }),
        // SAFETY: as above.
        drift: std::array::from_fn(|l| unsafe { drift.add(l * width) }),
        rows: tables.map(|table| table.rows.as_ptr()),
        tables: *tables,
        gammas: tables.map(|table| table.gamma),
        shifts: tables.map(|table| 64 - table.bits),
        columns: tables.map(|table| table.columns.as_ptr()),
        transitions: tables.map(|table| table.transitions.as_ptr()),
        states: *states,
        streams: lanes.streams.first(),
        width,
    };
    // SAFETY: states and tables were checked; the pointers are valid for `width` chunks.
    unsafe { steps::<V, L, W, CHAIN>(&mut group, etas) };
    // Streams of idle lanes are nobody's.
    lanes.streams.set_first(&group.streams);
    *states = group.states;
}

/// Steps by which the draws run ahead of the arithmetic.
const AHEAD: usize = 4;

/// The steps of `L` agents; vectors are `W` chunks wide, or `group.width` when W is 0.
///
/// A step waits for its sums about as long as it takes to choose transitions, so
/// those of a later step are chosen in the meantime.
///
/// # Safety
/// As [`group`] says.
#[inline(always)]
unsafe fn steps<V: Vector, const L: usize, const W: usize, const CHAIN: bool>(group: &mut Group<'_, L>, etas: &[f64]) {
    // SAFETY: the caller vouches for the instruction set and for states, tables and rows;
    // `choose` gives transitions of the lanes' tables.
    unsafe {
        // With one chunk a vector the iterates live in registers.
        let mut theta = [V::splat(0.0); L];
        if W == 1 {
            theta = group.theta.map(|theta| V::load(theta));
        }
        let mut bits = [[0; L]; AHEAD];
        let (mut drawn, mut later) = (&mut [[Transition::default(); L]; AHEAD], &mut [[Transition::default(); L]; AHEAD]);
        let first = etas.len().min(AHEAD);
        group.streams.fill(&mut bits[..first]);
        for h in 0..first {
            choose::<L, CHAIN>(group, &bits[h], &mut drawn[h]);
        }
        let mut left = etas.len() - first;
        for etas in etas.chunks(AHEAD) {
            let ahead = left.min(AHEAD);
            left -= ahead;
            group.streams.fill(&mut bits[..ahead]);
            for (h, &eta) in etas.iter().enumerate() {
                let next = if h < ahead { Some((&bits[h], &mut later[h])) } else { None };
                step::<V, L, W, CHAIN>(group, &mut theta, &drawn[h], eta, next);
            }
            std::mem::swap(&mut drawn, &mut later);
        }
        if W == 1 {
            theta.iter().zip(group.theta).for_each(|(theta, to)| theta.store(to));
        }
    }
}

/// One step on the transitions `z`; meanwhile the bits of a later one choose its transitions.
///
/// # Safety
/// As [`group`] says.
#[inline(always)]
unsafe fn step<V: Vector, const L: usize, const W: usize, const CHAIN: bool>(
    group: &mut Group<'_, L>,
    theta: &mut [V; L],
    z: &[Transition; L],
    eta: f64,
    next: Option<(&[u64; L], &mut [Transition; L])>,
) {
    // SAFETY: as `steps` says.
    unsafe {
        let width = if W == 0 { group.width } else { W };
        let zero = V::splat(0.0);
        let eta = V::splat(eta);
        // (phi - gamma phi')^T theta
        let mut sums = [zero; L];
        for l in 0..L {
            let gamma = V::splat(group.gammas[l]);
            let (phi, next) = (group.rows[l].add(z[l].phi as usize * width), group.rows[l].add(z[l].next as usize * width));
            for k in 0..width {
                let at = if W == 1 { theta[l] } else { V::load(group.theta[l].add(k)) };
                let psi = gamma.neg_mul_add(V::load(next.add(k)), V::load(phi.add(k)));
                sums[l] = at.mul_add(psi, sums[l]);
            }
        }
        let values = V::sums(&sums);
        // Meanwhile z ~ pi_c, or the next one of the chain, for a later step.
        if let Some((bits, later)) = next {
            choose::<L, CHAIN>(group, bits, later);
        }
        // theta += eta ((r - (phi - gamma phi')^T theta) phi + drift)
        // (The black box keeps drifts in memory: in registers they would push the iterates out.)
        let group = std::hint::black_box(&*group);
        for l in 0..L {
            let error = V::splat(z[l].reward - values[l]);
            let phi = group.rows[l].add(z[l].phi as usize * width);
            for k in 0..width {
                let at = if W == 1 { theta[l] } else { V::load(group.theta[l].add(k)) };
                let g = error.mul(V::load(phi.add(k))).add(V::load(group.drift[l].add(k)));
                let to = eta.mul_add(g, at);
                if W == 1 { theta[l] = to } else { to.store(group.theta[l].add(k)) }
            }
        }
    }
}

/// The transitions that `bits` choose: z ~ pi_c, or the next ones of the chain.
///
/// # Safety
/// As [`group`] says.
#[inline(always)]
unsafe fn choose<const L: usize, const CHAIN: bool>(group: &mut Group<'_, L>, bits: &[u64; L], out: &mut [Transition; L]) {
    for l in 0..L {
        let shift = group.shifts[l];
        let column = (bits[l] >> shift) + if CHAIN { group.states[l] << (64 - shift) } else { 0 };
        // SAFETY: the table was validated, and the state is one of its states.
        unsafe {
            let z = (*group.columns[l].add(column as usize)).outcome(bits[l]);
            if CHAIN {
                group.states[l] = u64::from(*group.tables[l].successors.get_unchecked(z));
            }
            out[l] = *group.transitions[l].add(z);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The draws that each outcome gets, of 2^64.
    fn draws_of(columns: &[Column], outcomes: usize, bits: u32) -> Vec<u128> {
        let all = 1u128 << (64 - bits);
        let mut draws = vec![0; outcomes];
        for (i, column) in columns.iter().enumerate() {
            let own = if column.threshold == u64::MAX { all } else { u128::from(column.threshold) - i as u128 * all };
            assert!(own <= all, "the threshold lies among the column's draws");
            draws[column.outcomes[0] as usize] += own;
            draws[column.outcomes[1] as usize] += all - own;
        }
        draws
    }

    #[test]
    fn columns_share_the_draws_as_the_probabilities_say() {
        let uneven: Vec<f64> = (1..=100_000).map(|i| 1.0 / f64::from(i)).collect();
        let one_and_many: Vec<f64> = (0..70_000).map(|i| if i == 5 { 1.0 } else { 1e-9 }).collect();
        for p in [vec![0.1, 0.0, 0.45, 0.25, 0.2], vec![1.0], vec![0.0, 1.0], vec![1.0 / 3.0; 3], uneven, one_and_many] {
            let total = compensated(p.iter().copied());
            let outcomes: Vec<u32> = (0..p.len() as u32).collect();
            for bits in [column_bits(p.len()), column_bits(p.len()) + 2] {
                let mut columns = Vec::new();
                alias(&p, &outcomes, bits, &mut columns);
                let draws = draws_of(&columns, p.len(), bits);
                assert_eq!(draws.iter().sum::<u128>(), 1 << 64);
                for (draws, p) in draws.iter().zip(&p) {
                    let wanted = (p / total * 2f64.powi(64)) as i128;
                    assert!((*draws as i128 - wanted).abs() <= 1 << 14, "{draws} of 2^64 draws for {p}");
                    assert!(*p > 0.0 || *draws == 0, "what has no probability is never drawn");
                }
            }
        }
    }

    #[test]
    fn compensated_sums_lose_nothing() {
        assert_eq!(compensated([1.0, 1e100, 1.0, -1e100].into_iter()), 2.0);
        assert_eq!(compensated(std::iter::repeat_n(0.1, 1_000_000)), 100_000.0);
        assert_eq!(compensated(std::iter::empty()), 0.0);
    }

    #[test]
    fn a_threshold_is_the_first_draw_of_the_other_outcome() {
        let mut columns = Vec::new();
        alias(&[0.1, 0.0, 0.45, 0.25, 0.2], &[7, 8, 9, 10, 11], 3, &mut columns);
        for (i, column) in columns.iter().enumerate().filter(|(_, c)| c.threshold != u64::MAX) {
            assert_eq!(column.outcome(column.threshold), column.outcomes[1] as usize);
            if column.threshold > (i as u64) << 61 {
                assert_eq!(column.outcome(column.threshold - 1), column.outcomes[0] as usize);
            }
        }
    }
}
