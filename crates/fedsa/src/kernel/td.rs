//! TD(0) over tables of transitions: one alias draw, two feature rows, one dot product a step.

use std::sync::Arc;

use super::vector::{self, Vector};
use super::{Chunk, Isa, LANES, Lanes};
use crate::random::Streams;

/// One column of an alias table (Walker 1977, Vose 1991) with a power of two of columns.
///
/// The top bits of a 64-bit draw choose the column without bias; the others,
/// against `threshold`, choose between `own` and `alias`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Column {
    /// Below it the draw is `own`.
    pub threshold: u64,
    /// Index of a transition.
    pub own: u32,
    /// Index of a transition.
    pub alias: u32,
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
/// Its parts are validated by [`Table::new`]; the kernels rely on that.
#[derive(Debug, Clone)]
pub struct Table {
    gamma: f64,
    bits: u32,
    /// How many feature rows the transitions may name.
    rows: usize,
    columns: Vec<Column>,
    transitions: Arc<[Transition]>,
    /// The chain's next state after each transition; empty for i.i.d. draws.
    successors: Vec<u32>,
}

impl Table {
    /// A table over feature rows `0..rows`. `columns` holds `2^bits` columns
    /// for each state of the chain, or once for i.i.d. draws (`successors` empty).
    ///
    /// # Panics
    /// When an index is out of range: tables are built by this crate from validated input.
    pub fn new(gamma: f64, bits: u32, columns: Vec<Column>, transitions: Arc<[Transition]>, successors: Vec<u32>, rows: usize) -> Self {
        assert!((1..32).contains(&bits) && !transitions.is_empty());
        assert!(transitions.iter().all(|t| (t.phi as usize) < rows && (t.next as usize) < rows));
        assert!(columns.iter().all(|c| (c.own as usize) < transitions.len() && (c.alias as usize) < transitions.len()));
        let states = columns.len() >> bits;
        assert!(states >= 1 && columns.len() == states << bits);
        assert!(successors.is_empty() && states == 1 || successors.len() == transitions.len());
        assert!(successors.iter().all(|s| (*s as usize) < states));
        Self { gamma, bits, rows, columns, transitions, successors }
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
        let column = &self.columns[((state << self.bits) + (bits >> (64 - self.bits))) as usize];
        let z = if (bits << self.bits) < column.threshold { column.own } else { column.alias } as usize;
        (&self.transitions[z], self.successors.get(z).map_or(0, |s| u64::from(*s)))
    }
}

/// Builds an alias table over `2^bits` columns that draws `outcomes[i]` with probability `p[i]`.
///
/// `p` sums to 1 up to rounding; columns beyond the outcomes carry no mass of their own.
pub fn alias(p: &[f64], outcomes: &[u32], bits: u32, out: &mut Vec<Column>) {
    let n = 1usize << bits;
    assert!(p.len() == outcomes.len() && !p.is_empty() && p.len() <= n);
    let total: f64 = p.iter().sum();
    let heaviest = (0..p.len()).max_by(|i, j| p[*i].total_cmp(&p[*j])).expect("at least one outcome");
    let mut mass: Vec<f64> = (0..n).map(|i| p.get(i).map_or(0.0, |p| p / total * n as f64)).collect();
    let outcome = |i: usize| outcomes[if i < p.len() && p[i] > 0.0 { i } else { heaviest }];
    let (mut small, mut large): (Vec<usize>, Vec<usize>) = (0..n).partition(|i| mass[*i] < 1.0);
    let start = out.len();
    out.extend((0..n).map(|i| Column { threshold: u64::MAX, own: outcome(i), alias: outcome(i) }));
    while let (Some(s), Some(l)) = (small.pop(), large.pop()) {
        out[start + s].threshold = (mass[s] * 2f64.powi(64)) as u64;
        out[start + s].alias = outcome(l);
        mass[l] -= 1.0 - mass[s];
        if mass[l] < 1.0 { small.push(l) } else { large.push(l) }
    }
    // What is left misses 1 only by rounding and keeps its own outcome, except
    // columns without an outcome of their own, which take the heaviest.
}

/// The number of bits of columns for `n` outcomes.
pub fn column_bits(n: usize) -> u32 {
    n.next_power_of_two().trailing_zeros().max(1)
}

/// What a lane needs of its agent: the table and the feature rows (`width` chunks a row).
#[derive(Clone, Copy)]
pub struct LaneTable<'a> {
    /// The agent's transitions.
    pub table: &'a Table,
    /// The agent's feature rows, `width` chunks each, as many as its table was built for.
    pub rows: &'a [Chunk],
}

/// Runs the leg for all lanes: `theta += eta_h (g_c(theta, z_h) + drift)` for every `eta_h`.
pub fn leg(lanes: &mut Lanes, tables: &[LaneTable<'_>], etas: &[f64], isa: Isa) {
    assert!(tables.len() == lanes.len && lanes.len <= LANES && isa.is_available());
    let mut l = 0;
    while l < lanes.len {
        // One or two agents left over go alone: eight lanes would idle.
        if lanes.len - l > 2 {
            group::<8>(lanes, tables, l, etas, isa)
        } else {
            group::<2>(lanes, tables, l, etas, isa)
        }
        l += if lanes.len - l > 2 { 8 } else { 2 };
    }
}

/// `L` agents of one leg, as the kernel sees them.
struct Group<'a, const L: usize> {
    theta: [*mut Chunk; L],
    drift: [*const Chunk; L],
    rows: [*const Chunk; L],
    tables: [&'a Table; L],
    states: [u64; L],
    streams: Streams<L>,
    width: usize,
}

/// Runs lanes `first..first + L`; lanes beyond the last repeat it in scratch memory.
fn group<const L: usize>(lanes: &mut Lanes, tables: &[LaneTable<'_>], first: usize, etas: &[f64], isa: Isa) {
    let used = (lanes.len - first).min(L);
    let lane = |l: usize| first + l.min(used - 1);
    let width = lanes.width;
    let chain = lanes.chain_len == 1;
    for t in &tables[first..first + used] {
        assert!(t.table.is_chain() == chain && t.table.rows * width <= t.rows.len());
    }
    assert!(lanes.theta.len() == LANES * width && lanes.drift.len() == LANES * width && lanes.spare.len() == width);
    let theta = lanes.theta.as_mut_ptr();
    let spare = lanes.spare.as_mut_ptr();
    let mut group = Group::<L> {
        // SAFETY: lane(l) < LANES, so the pointers stay inside the arrays whose length is asserted above.
        theta: std::array::from_fn(|l| if l < used { unsafe { theta.add(lane(l) * width) } } else { spare }),
        drift: std::array::from_fn(|l| lanes.drift[lane(l) * width..].as_ptr()),
        rows: std::array::from_fn(|l| tables[lane(l)].rows.as_ptr()),
        tables: std::array::from_fn(|l| tables[lane(l)].table),
        states: std::array::from_fn(|l| if chain { lanes.chains[lane(l)] } else { 0 }),
        streams: Streams::gather(&std::array::from_fn(|l| lanes.streams[lane(l)])),
        width,
    };
    assert!((0..L).all(|l| group.states[l] < group.tables[l].states() as u64));
    match (width, chain) {
        (1, false) => run::<L, 1, false>(&mut group, etas, isa),
        (1, true) => run::<L, 1, true>(&mut group, etas, isa),
        (_, false) => run::<L, 0, false>(&mut group, etas, isa),
        (_, true) => run::<L, 0, true>(&mut group, etas, isa),
    }
    let streams = group.streams.scatter();
    for l in 0..used {
        lanes.streams[first + l] = streams[l];
        if chain {
            lanes.chains[first + l] = group.states[l];
        }
    }
}

fn run<const L: usize, const W: usize, const CHAIN: bool>(group: &mut Group<'_, L>, etas: &[f64], isa: Isa) {
    // SAFETY: the caller checked the instruction set, the states against the
    // tables and the tables against the rows; the pointers are valid for `width` chunks.
    unsafe {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => run_avx512::<L, W, CHAIN>(group, etas),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => run_avx2::<L, W, CHAIN>(group, etas),
            _ => steps::<vector::Portable, L, W, CHAIN>(group, etas),
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx2,fma")]
unsafe fn run_avx512<const L: usize, const W: usize, const CHAIN: bool>(group: &mut Group<'_, L>, etas: &[f64]) {
    // SAFETY: as in `run`.
    unsafe { steps::<vector::Avx512, L, W, CHAIN>(group, etas) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn run_avx2<const L: usize, const W: usize, const CHAIN: bool>(group: &mut Group<'_, L>, etas: &[f64]) {
    // SAFETY: as in `run`.
    unsafe { steps::<vector::Avx2, L, W, CHAIN>(group, etas) }
}

/// The steps of `L` agents; vectors are `W` chunks wide, or `group.width` when W is 0.
///
/// # Safety
/// As [`run`] says.
#[inline(always)]
unsafe fn steps<V: Vector, const L: usize, const W: usize, const CHAIN: bool>(group: &mut Group<'_, L>, etas: &[f64]) {
    let width = if W == 0 { group.width } else { W };
    let mut streams = group.streams;
    let mut states = group.states;
    let columns: [*const Column; L] = std::array::from_fn(|l| group.tables[l].columns.as_ptr());
    let transitions: [*const Transition; L] = std::array::from_fn(|l| group.tables[l].transitions.as_ptr());
    let successors: [*const u32; L] = std::array::from_fn(|l| group.tables[l].successors.as_ptr());
    let bits: [u32; L] = std::array::from_fn(|l| group.tables[l].bits);
    let gammas: [f64; L] = std::array::from_fn(|l| group.tables[l].gamma);
    unsafe {
        // With one chunk a vector the iterates live in registers.
        let zero = V::splat(0.0);
        let mut theta = [zero; L];
        if W == 1 {
            for l in 0..L {
                theta[l] = V::load(group.theta[l]);
            }
        }
        for &eta in etas {
            let eta = V::splat(eta);
            // z ~ pi_c, or the next transition of the chain.
            let draws = streams.bits();
            let mut phi = [std::ptr::null::<Chunk>(); L];
            let mut next = [std::ptr::null::<Chunk>(); L];
            let mut reward = [0.0; L];
            for l in 0..L {
                let row = (draws[l] >> (64 - bits[l])) + if CHAIN { states[l] << bits[l] } else { 0 };
                let column = *columns[l].add(row as usize);
                let z = if (draws[l] << bits[l]) < column.threshold { column.own } else { column.alias } as usize;
                if CHAIN {
                    states[l] = u64::from(*successors[l].add(z));
                }
                let t = *transitions[l].add(z);
                phi[l] = group.rows[l].add(t.phi as usize * width);
                next[l] = group.rows[l].add(t.next as usize * width);
                reward[l] = t.reward;
            }
            // (phi - gamma phi')^T theta
            let mut sums = [zero; L];
            for l in 0..L {
                let gamma = V::splat(gammas[l]);
                for k in 0..width {
                    let at = if W == 1 { theta[l] } else { V::load(group.theta[l].add(k)) };
                    let psi = gamma.neg_mul_add(V::load(next[l].add(k)), V::load(phi[l].add(k)));
                    sums[l] = at.mul_add(psi, sums[l]);
                }
            }
            let values = V::sums(&sums);
            // theta += eta ((r - (phi - gamma phi')^T theta) phi + drift)
            for l in 0..L {
                let error = V::splat(reward[l] - values[l]);
                for k in 0..width {
                    let at = if W == 1 { theta[l] } else { V::load(group.theta[l].add(k)) };
                    let g = error.mul(V::load(phi[l].add(k))).add(V::load(group.drift[l].add(k)));
                    let to = eta.mul_add(g, at);
                    if W == 1 { theta[l] = to } else { to.store(group.theta[l].add(k)) }
                }
            }
        }
        if W == 1 {
            for l in 0..L {
                theta[l].store(group.theta[l]);
            }
        }
    }
    group.streams = streams;
    group.states = states;
}
