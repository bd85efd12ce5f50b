//! Sums over lists of indices; lists of similar length are summed side by side.
//!
//! Each sum is in the order of its list, on every instruction set. Sums land at positions that [`Lists::of`] returns, a group's sums next
//! to each other. Callers copy them out, which is faster than scattered writes.

use std::cell::RefCell;

use fedsa::kernel::vector::{self, Vector};
use fedsa::kernel::{Chunk, Isa};

/// Sums computed side by side.
const SIDE: usize = 8;
/// Numbers to sum. Every 16-bit index is valid.
pub type ListNumbers = [f64; 1 << 16];

/// The most groups whose sums a thread keeps memory for: 4 MiB.
const MAX_KEPT: usize = 1 << 16;

/// Scratch memory of a thread: numbers to sum, with arbitrary values, and sums.
struct Room {
    numbers: Box<ListNumbers>,
    sums: Vec<Chunk>,
}

thread_local! {
    static ROOM: RefCell<Option<Room>> = const { RefCell::new(None) };
}

/// The lists, in groups of similar length.
#[derive(Debug)]
pub struct Lists {
    /// The length of the longest list of each group.
    lengths: Vec<u32>,
    /// The lists of each group: the first indices of its sums, then the second indices, ..
    places: Vec<[u16; SIDE]>,
}

impl Lists {
    /// Builds lists of these lengths; also returns the position of each list's sum. Lists of length 0 get the position after the last
    /// group, which holds 0. `each` yields every list and index, in each list's order. The number at the index `nothing` must leave sums
    /// unchanged.
    pub fn of(lengths: &[u32], nothing: u16, each: impl FnOnce(&mut dyn FnMut(usize, u16))) -> (Self, Vec<u32>) {
        // By length, the longest first.
        let longest = lengths.iter().max().map_or(0, |most| *most as usize);
        let mut before = vec![0; longest + 2];
        lengths.iter().for_each(|len| before[longest - *len as usize + 1] += 1);
        (0..=longest).for_each(|len| before[len + 1] += before[len]);
        let mut order = vec![0u32; before[longest]];
        for (list, len) in lengths.iter().enumerate().filter(|(_, len)| **len > 0) {
            let at = &mut before[longest - *len as usize];
            order[*at] = list as u32;
            *at += 1;
        }
        let groups = order.len().div_ceil(SIDE);
        let mut positions = vec![(SIDE * groups) as u32; lengths.len()];
        order.iter().zip(0..).for_each(|(list, at)| positions[*list as usize] = at);
        // The next free place of each list.
        let (mut next, mut of_groups, mut all) = (vec![0usize; lengths.len()], Vec::with_capacity(groups), 0);
        for group in order.chunks(SIDE) {
            group.iter().enumerate().for_each(|(k, list)| next[*list as usize] = SIDE * all + k);
            let len = lengths[group[0] as usize];
            of_groups.push(len);
            all += len as usize;
        }
        let mut places = vec![[nothing; SIDE]; all];
        let flat = places.as_flattened_mut();
        each(&mut |list, place| {
            flat[next[list]] = place;
            next[list] += SIDE;
        });
        (Self { lengths: of_groups, places }, positions)
    }

    /// The sums at all positions, followed by 0.
    ///
    /// # Panics
    /// When the instruction set is not available.
    pub fn sum<'a>(&self, isa: Isa, numbers: &ListNumbers, sums: &'a mut Vec<Chunk>) -> &'a [f64] {
        sums.resize(sums.len().max(self.lengths.len() + 1), Chunk::default());
        let (all, rest) = sums.split_at_mut(self.lengths.len());
        go_on::<true>(isa, self, numbers, all);
        rest[0] = Chunk::default();
        &fedsa::kernel::flat(sums)[..SIDE * (self.lengths.len() + 1)]
    }

    /// Adds list k's numbers to `out[k]`, one after the other. `positions` are from [`Lists::of`].
    ///
    /// # Panics
    /// When the instruction set is not available.
    pub fn add(&self, isa: Isa, numbers: &ListNumbers, positions: &[u32], sums: &mut Vec<Chunk>, out: &mut [f64]) {
        sums.resize(sums.len().max(self.lengths.len() + 1), Chunk::default());
        let flat = fedsa::kernel::flat_mut(sums);
        positions.iter().zip(&*out).for_each(|(at, out)| flat[*at as usize] = *out);
        go_on::<false>(isa, self, numbers, &mut sums[..self.lengths.len()]);
        // Numbers without a list share one position.
        let (flat, nowhere) = (fedsa::kernel::flat(sums), SIDE * self.lengths.len());
        let some = positions.iter().zip(out).filter(|(at, _)| **at as usize != nowhere);
        some.for_each(|(at, out)| *out = flat[*at as usize]);
    }
}

/// Calls `see` with the thread's scratch memory: numbers with arbitrary values, and sums. A nested call gets separate memory.
pub fn with_room<R>(see: impl FnOnce(&mut ListNumbers, &mut Vec<Chunk>) -> R) -> R {
    let numbers = || vec![0.0; 1 << 16].try_into().expect("as many numbers");
    let mut room = ROOM.take().unwrap_or_else(|| Room { numbers: numbers(), sums: Vec::new() });
    let shown = see(&mut room.numbers, &mut room.sums);
    if room.sums.len() > MAX_KEPT {
        room.sums = Vec::new();
    }
    ROOM.set(Some(room));
    shown
}

/// Continues the sums of all groups, or with `ANEW` starts them at 0.
fn go_on<const ANEW: bool>(isa: Isa, lists: &Lists, numbers: &ListNumbers, sums: &mut [Chunk]) {
    assert!(isa.is_available());
    // SAFETY: the instruction set is available.
    unsafe {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => avx512::<ANEW>(lists, numbers, sums),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => avx2::<ANEW>(lists, numbers, sums),
            _ => all_groups::<vector::Portable, ANEW>(lists, numbers, sums),
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx2,fma")]
unsafe fn avx512<const ANEW: bool>(lists: &Lists, numbers: &ListNumbers, sums: &mut [Chunk]) {
    // SAFETY: as in `go_on`.
    unsafe { all_groups::<vector::Avx512, ANEW>(lists, numbers, sums) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn avx2<const ANEW: bool>(lists: &Lists, numbers: &ListNumbers, sums: &mut [Chunk]) {
    // SAFETY: as in `go_on`.
    unsafe { all_groups::<vector::Avx2, ANEW>(lists, numbers, sums) }
}

/// # Safety
/// The instruction set of V is available.
#[inline(always)]
unsafe fn all_groups<V: Vector, const ANEW: bool>(lists: &Lists, numbers: &ListNumbers, sums: &mut [Chunk]) {
    let mut rest = &lists.places[..];
    for (len, sums) in lists.lengths.iter().zip(sums) {
        let (own, after) = rest.split_at(*len as usize);
        rest = after;
        // SAFETY: every 16-bit index is valid.
        unsafe {
            let mut sum = if ANEW { V::splat(0.0) } else { V::load(sums) };
            for places in own {
                sum = sum.add(V::gather(numbers.as_ptr(), places));
            }
            sum.store(sums);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fedsa::random::{Purpose, stream};

    #[test]
    fn sums_are_in_the_order_of_their_lists() {
        let mut s = stream(5, Purpose::Fresh, 0, 0);
        let mut numbers: Box<ListNumbers> = vec![0.0; 1 << 16].try_into().unwrap();
        (0..50).for_each(|i| numbers[i] = s.normal());
        numbers[50] = -0.0;
        // Earlier contents do not matter.
        let mut sums = vec![Chunk([f64::NAN; 8]); 3];
        for count in [0, 1, 7, 8, 9, 40] {
            let lists: Vec<Vec<u16>> =
                (0..count).map(|_| (0..(10.0 * s.uniform()) as usize).map(|_| (50.0 * s.uniform()) as u16).collect()).collect();
            let lengths: Vec<u32> = lists.iter().map(|list| list.len() as u32).collect();
            let (kept, positions) = Lists::of(&lengths, 50, |put| {
                lists.iter().enumerate().for_each(|(i, list)| list.iter().for_each(|place| put(i, *place)));
            });
            let expected = |start: f64| -> Vec<u64> {
                lists.iter().map(|list| list.iter().fold(start, |sum, place| sum + numbers[*place as usize]).to_bits()).collect()
            };
            for isa in Isa::available() {
                let found = kept.sum(isa, &numbers, &mut sums);
                assert_eq!(positions.iter().map(|at| found[*at as usize].to_bits()).collect::<Vec<_>>(), expected(0.0), "{isa:?}");
                for start in [0.3, -0.0, f64::NAN] {
                    let mut out = vec![start; count];
                    kept.add(isa, &numbers, &positions, &mut sums, &mut out);
                    let bits: Vec<u64> = out.iter().map(|x| x.to_bits()).collect();
                    assert!(bits == expected(start) || start.is_nan() && out.iter().all(|x| x.is_nan()), "{isa:?}, {start}");
                }
            }
        }
    }
}
