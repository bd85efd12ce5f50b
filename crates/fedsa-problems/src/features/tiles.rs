//! Tile coding: shifted grids whose tiles have separate or hashed features.

/// The fewest features of a hashed tiling.
pub(super) const MIN_SLOTS: u32 = 2;

/// Grids of tiles, and the indices of their features.
pub(super) struct Tiling {
    /// The number of grids.
    pub tilings: usize,
    bins: usize,
    is_hashed: bool,
    /// The number of features of a grid.
    slots: usize,
}

impl Tiling {
    /// The grids, with `len` features in all.
    pub fn new(tilings: u32, bins: u32, hashed: Option<u32>, len: usize) -> Self {
        Self { tilings: tilings as usize, bins: bins as usize, is_hashed: hashed.is_some(), slots: len / tilings as usize }
    }

    /// The index of the feature of grid `t` at the scaled state `x` of `k` columns. Does not allocate.
    #[inline]
    pub fn feature(&self, t: usize, k: usize, x: impl Fn(usize) -> f64) -> usize {
        let tile = |j: usize| tile_of(x(j), j, t, self.tilings, self.bins);
        let slot = if self.is_hashed {
            let hash = (0..k).fold(mixed(t as u64 + 1), |hash, j| mixed(hash ^ tile(j) as u64));
            (hash % self.slots as u64) as usize
        } else {
            (0..k).fold(0, |number, j| number * self.bins + tile(j))
        };
        t * self.slots + slot
    }
}

/// The finaliser of SplitMix64 (Steele, Lea & Flood 2014), a bijection of 64 bits. Weights in files depend on it: never change it.
fn mixed(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The tile along column `j` that holds `x` in grid `t`.
fn tile_of(x: f64, j: usize, t: usize, tilings: usize, bins: usize) -> usize {
    let shift = ((2 * j + 1) * t % tilings) as f64 / tilings as f64;
    let tiles = bins as f64 - (tilings - 1) as f64 / tilings as f64; // tiles per unit of x
    ((x * tiles + shift) as usize).min(bins - 1)
}
