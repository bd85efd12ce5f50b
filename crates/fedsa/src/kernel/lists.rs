//! Sums over lists of places, of which those of about the same length are computed side by side.
//!
//! Each sum is in the order of its list, on every instruction set.

use std::cell::RefCell;

use super::Isa;

/// Sums that are computed side by side.
const SIDE: usize = 8;
/// Numbers to sum. Whatever 16 bits number is a place.
pub type ListNumbers = [f64; 1 << 16];

thread_local! {
    static NUMBERS: RefCell<Option<Box<ListNumbers>>> = const { RefCell::new(None) };
}

/// The lists of some sums.
#[derive(Debug)]
pub struct Lists {
    groups: Vec<ListGroup>,
    /// The lists of each group: first places, second places, .. of its sums.
    places: Vec<[u16; SIDE]>,
}

/// Sums whose lists are about as long.
#[derive(Debug)]
pub struct ListGroup {
    /// Where the sums are written, if anywhere.
    targets: [u32; SIDE],
    /// The length of the longest list.
    len: u32,
}

impl Lists {
    /// Lists of these lengths, of which those of length 0 are left out. `target` says where the sum of each list is written, and no two are written to
    /// one place; `each` gives every list and place, those of a list in their order. The number at the place `nothing` leaves sums as they are.
    pub fn of(lengths: &[u32], nothing: u16, target: impl Fn(usize) -> u32, each: impl FnOnce(&mut dyn FnMut(usize, u16))) -> Self {
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
        let (mut groups, mut all) = (Vec::with_capacity(order.len().div_ceil(SIDE)), 0);
        // Where the next place of each list goes.
        let mut next = vec![0usize; lengths.len()];
        for group in order.chunks(SIDE) {
            let mut targets = [u32::MAX; SIDE];
            for (k, list) in group.iter().enumerate() {
                (targets[k], next[*list as usize]) = (target(*list as usize), SIDE * all + k);
            }
            let len = lengths[group[0] as usize];
            groups.push(ListGroup { targets, len });
            all += len as usize;
        }
        let mut places = vec![[nothing; SIDE]; all];
        let flat = places.as_flattened_mut();
        each(&mut |list, place| {
            flat[next[list]] = place;
            next[list] += SIDE;
        });
        Self { groups, places }
    }

    /// Adds the numbers of each list to its target, one after the other. Targets beyond the end are nowhere.
    pub fn add(&self, isa: Isa, numbers: &ListNumbers, out: &mut [f64]) {
        add(isa, &self.groups, &self.places, numbers, out);
    }
}

/// Shows room for numbers to sum, which have any values: that of the thread, unless what it is shown to asks for room itself.
pub fn with_numbers<R>(see: impl FnOnce(&mut ListNumbers) -> R) -> R {
    let kept = NUMBERS.take();
    let mut numbers = kept.unwrap_or_else(|| vec![0.0; 1 << 16].try_into().expect("as many numbers"));
    let shown = see(&mut numbers);
    NUMBERS.set(Some(numbers));
    shown
}

per_isa! {
    /// [`Lists::add`].
    fn add(groups: &[ListGroup], places: &[[u16; SIDE]], numbers: &ListNumbers, out: &mut [f64]) {
        let mut rest = places;
        for group in groups {
            let (own, after) = rest.split_at(group.len as usize);
            rest = after;
            let mut sums = group.targets.map(|target| out.get(target as usize).copied().unwrap_or(0.0));
            for places in own {
                for (sum, place) in sums.iter_mut().zip(places) {
                    *sum += numbers[*place as usize];
                }
            }
            for (target, sum) in group.targets.iter().zip(sums) {
                if let Some(out) = out.get_mut(*target as usize) {
                    *out = sum;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Purpose, stream};

    #[test]
    fn sums_are_in_the_order_of_their_lists() {
        let mut s = stream(5, Purpose::Fresh, 0, 0);
        let mut numbers: Box<ListNumbers> = vec![0.0; 1 << 16].try_into().unwrap();
        (0..50).for_each(|i| numbers[i] = s.normal());
        numbers[50] = -0.0;
        for count in [0, 1, 7, 8, 9, 40] {
            let lists: Vec<Vec<u16>> =
                (0..count).map(|_| (0..(10.0 * s.uniform()) as usize).map(|_| (50.0 * s.uniform()) as u16).collect()).collect();
            let lengths: Vec<u32> = lists.iter().map(|list| list.len() as u32).collect();
            // Backwards, and the first one nowhere.
            let kept = Lists::of(
                &lengths,
                50,
                |i| if i == 0 { u32::MAX } else { (count - i) as u32 },
                |put| {
                    lists.iter().enumerate().for_each(|(i, list)| list.iter().for_each(|place| put(i, *place)));
                },
            );
            for isa in Isa::available() {
                let [sums, added] = [0.0, -0.0].map(|start| {
                    let mut out = vec![start; count + 1];
                    kept.add(isa, &numbers, &mut out);
                    out
                });
                for (i, list) in lists.iter().enumerate() {
                    let of = |start: f64| list.iter().fold(start, |sum, place| sum + numbers[*place as usize]).to_bits();
                    let expected = if i == 0 { [0.0f64.to_bits(), (-0.0f64).to_bits()] } else { [of(0.0), of(-0.0)] };
                    assert_eq!([sums[count - i].to_bits(), added[count - i].to_bits()], expected);
                }
            }
        }
    }
}
