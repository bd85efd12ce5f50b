//! Tables of transitions, from which the steps of TD(0) draw.

use std::sync::Arc;

use fedsa::kernel::Chunk;
use fedsa::random::Stream;

/// One column of an alias table (Walker 1977, Vose 1991) with a power of two of columns.
///
/// The top bits of a 64-bit draw choose the column without bias; the draw,
/// against `threshold`, chooses between the column's two outcomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Column {
    /// Draws below it give the first outcome. Its top bits equal the top bits of the column's draws, so that whole draws are compared.
    pub threshold: u64,
    /// Two transitions.
    pub outcomes: [u32; 2],
}

impl Column {
    /// A column that always gives transition `z`.
    pub fn one(z: u32) -> Self {
        Self { threshold: u64::MAX, outcomes: [z; 2] }
    }

    /// The outcome of 64 random bits that chose this column; branch-free.
    #[inline(always)]
    pub(super) fn outcome(&self, bits: u64) -> usize {
        self.outcomes[usize::from(bits >= self.threshold)] as usize
    }
}

/// One transition: `g = (reward + gamma phi'^T theta - phi^T theta) phi`.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[repr(C)]
pub struct Transition {
    /// The feature row of s.
    pub phi: u32,
    /// The feature row of s'; a row of zeros after an episode's last transition.
    pub next: u32,
    /// The reward r(s, s').
    pub reward: f64,
}

/// The transitions of one agent, drawn i.i.d. or along a chain.
///
/// [`TransitionTable::new`] validates its parts; the kernels rely on that.
#[derive(Debug, Clone)]
pub struct TransitionTable {
    gamma: f64,
    bits: u32,
    /// The feature rows of the transitions, `width` chunks each.
    rows: Arc<[Chunk]>,
    pub(super) width: usize,
    columns: Vec<Column>,
    transitions: Arc<[Transition]>,
    /// The chain's next state after each transition; empty for i.i.d. draws.
    successors: Vec<u32>,
    /// The columns in the form for alike [`Tables`].
    wide: Vec<Wide>,
}

impl TransitionTable {
    /// A table over feature rows of `width` chunks each. `columns` holds `2^bits` columns for each state of the chain, or once for i.i.d.
    /// draws, with `successors` empty.
    ///
    /// # Panics
    /// When an index is out of range; this crate builds tables from validated input.
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
        Self { gamma, bits, rows, width, columns, transitions, successors, wide: Vec::new() }
    }

    /// The discount factor.
    pub fn gamma(&self) -> f64 {
        self.gamma
    }

    /// The transitions.
    pub fn transitions(&self) -> &[Transition] {
        &self.transitions
    }

    /// The number of states of the sampling chain; one for i.i.d. draws.
    pub fn states(&self) -> usize {
        self.columns.len() >> self.bits
    }

    /// Whether draws follow a chain.
    pub fn is_chain(&self) -> bool {
        !self.successors.is_empty()
    }

    /// The index of the next transition: drawn from the chain's state, which moves on, or independently without a chain.
    #[inline(always)]
    pub fn draw(&self, chain: &mut [u64], stream: &mut Stream) -> usize {
        let (state, bits) = (chain.first().copied().unwrap_or(0), stream.bits());
        let z = self.columns[((state << self.bits) + (bits >> (64 - self.bits))) as usize].outcome(bits);
        if let Some(state) = chain.first_mut() {
            *state = self.successors.get(z).map_or(0, |s| u64::from(*s));
        }
        z
    }
}

/// A column with everything that a step needs of its two outcomes, in one cache line.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Wide {
    pub threshold: u64,
    /// The byte offset of the row of s, plus `2^32` times the offset of the row of s'; rows are one chunk.
    pub rows: [u64; 2],
    pub rewards: [f64; 2],
    pub successors: [u64; 2],
}

/// A table as the steps read it, without the lengths that [`TransitionTable::new`] has checked.
#[derive(Clone, Copy)]
pub(super) struct Source {
    pub columns: *const Column,
    /// Readable only if tables are alike.
    pub wide: *const Wide,
    pub transitions: *const Transition,
    /// Not readable for i.i.d. draws.
    pub successors: *const u32,
    /// Shifting a draw right by this gives its column.
    pub shift: u32,
}

impl TransitionTable {
    /// The feature rows of the transitions.
    #[inline(always)]
    pub(super) fn rows(&self) -> *const Chunk {
        self.rows.as_ptr()
    }

    /// The columns, for rows of one chunk.
    fn widened(&self) -> Vec<Wide> {
        let wide = |column: &Column| {
            let of = column.outcomes.map(|z| (self.transitions[z as usize], self.successors.get(z as usize)));
            Wide {
                threshold: column.threshold,
                rows: of.map(|(t, _)| 64 * (u64::from(t.phi) | u64::from(t.next) << 32)),
                rewards: of.map(|(t, _)| t.reward),
                successors: of.map(|(_, successor)| successor.map_or(0, |s| u64::from(*s))),
            }
        };
        self.columns.iter().map(wide).collect()
    }

    #[inline(always)]
    pub(super) fn source(&self) -> Source {
        Source {
            columns: self.columns.as_ptr(),
            wide: self.wide.as_ptr(),
            transitions: self.transitions.as_ptr(),
            successors: self.successors.as_ptr(),
            shift: 64 - self.bits,
        }
    }
}

/// The tables of all kinds of agents. All have the same width, and all or none are chains.
#[derive(Debug, Clone, Default)]
pub struct Tables {
    all: Vec<TransitionTable>,
    /// Whether all have the same rows of one chunk, the same discount, the same number of columns, and wide columns.
    are_alike: bool,
}

/// The most bytes of wide columns.
pub(crate) const MAX_WIDE: usize = 1 << 24;

impl Tables {
    /// # Panics
    /// When widths differ, or only some tables are chains.
    pub fn new(mut all: Vec<TransitionTable>) -> Self {
        assert!(all.iter().all(|table| table.width == all[0].width && table.is_chain() == all[0].is_chain()));
        let columns: usize = all.iter().map(|table| table.columns.len()).sum();
        let is_like = |table: &TransitionTable, first: &TransitionTable| {
            Arc::ptr_eq(&table.rows, &first.rows) && table.gamma.to_bits() == first.gamma.to_bits() && table.bits == first.bits
        };
        let are_small = columns * size_of::<Wide>() <= MAX_WIDE && all.iter().all(|table| table.width == 1 && table.rows.len() < 1 << 26);
        let are_alike = are_small && all.iter().all(|table| is_like(table, &all[0]));
        if are_alike {
            all.iter_mut().for_each(|table| table.wide = table.widened());
        }
        Self { all, are_alike }
    }

    /// Whether all have the same rows of one chunk, the same discount, the same number of columns, and wide columns.
    #[inline]
    pub(super) fn are_alike(&self) -> bool {
        self.are_alike
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
/// `p` sums to 1 up to rounding. Probabilities become whole numbers of the `2^64` draws; the heaviest one gets the rounding error. The
/// table divides the draws exactly, so each outcome has its probability to `2^-50`, for any number of outcomes.
pub fn alias(p: &[f64], outcomes: &[u32], bits: u32, out: &mut Vec<Column>) {
    const DRAWS: u128 = 1 << 64;
    let n = 1usize << bits;
    assert!(p.len() == outcomes.len() && !p.is_empty() && p.len() <= n);
    let column_draws = DRAWS >> bits;
    let total = compensated(p.iter().copied());
    let heaviest = (0..p.len()).max_by(|i, j| p[*i].total_cmp(&p[*j])).expect("at least one outcome");
    // The fraction cut from one outcome's draws is added to the next one's.
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
    // While a column lacks draws, another has too many. All are full at the end.
    while let (Some(s), Some(l)) = (small.pop(), large.pop()) {
        out[start + s].threshold = ((s as u64) << (64 - bits)) + draws[s] as u64;
        out[start + s].outcomes[1] = outcome(l);
        draws[l] -= column_draws - draws[s];
        if draws[l] < column_draws { small.push(l) } else { large.push(l) }
    }
}

/// The sum of numbers to a few units in the last place, for any count (Neumaier 1974).
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
