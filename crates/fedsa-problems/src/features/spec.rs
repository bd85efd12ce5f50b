//! The settings of feature maps, as files and the command line have them.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::tiles::MIN_SLOTS;
use crate::logs::source::Inputs;
use fedsa::error::{Error, Result, quoted, require};

/// The settings of a map of features, `FeatureMap`.
///
/// On the command line: `columns`, `identity`, `identity:bias`, `polynomial:2`,
/// `fourier:3`, `fourier:3:scaled`, `tiles:8x4` (tilings x bins), `tiles:8x8@1024`
/// (hashed to 1024), `radial:5`, `radial:5:0.3` (centres, width),
/// `radial:5:quantiles`, `standardised`, `one-hot`. Maps of some columns multiply: `one-hot(s_2) * tiles:8x4(s_0, s_1)`.
/// One factor may have no columns and then takes all others: `one-hot(s_2) * fourier:3`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum FeatureSpec {
    /// Features that were logged, in the columns `phi_*` and `phi_next_*`: `d` is their number. They are taken as they are.
    Columns {},
    /// The clipped state itself, unscaled, `d = k`; with `bias` a constant 1
    /// before it, `d = k + 1`. The only map for which columns may lack a range
    /// (and are then not clipped).
    Identity {
        /// Whether the first feature is the constant 1.
        #[serde(default)]
        bias: bool,
    },
    /// All monomials in `x` of total degree at most `order`, times
    /// `1/sqrt(d)`, `d = C(k + order, k)`: by degree, and within a degree from
    /// the first column to the last (`1, x_1, x_2, x_1^2, x_1 x_2, x_2^2, ..`).
    Polynomial {
        /// The largest total degree.
        order: u32,
    },
    /// `cos(pi <c, x>) / sqrt(d)` for all `c` in `{0..order}^k`,
    /// `d = (order + 1)^k`. With `scaled` each is also divided by the square
    /// root of `||c||` (c other than 0). A step of size eta then moves the weight of a
    /// frequency like a step of size `eta / ||c||`. Source: Konidaris et al. 2011, "Value function
    /// approximation in reinforcement learning using the Fourier basis", section 3.2.
    Fourier {
        /// The largest frequency of a column.
        order: u32,
        /// Whether features are divided by the square root of the norm of their frequency.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        scaled: bool,
    },
    /// Tile coding: `tilings` shifted grids of `bins` tiles a column; in each
    /// grid the tile that holds `x` has the feature `1/sqrt(tilings)`, all
    /// others 0, so that `||phi|| = 1`, `d = tilings bins^k`.
    ///
    /// Tiles have the width `w = 1 / (bins - (tilings - 1)/tilings)`, so that
    /// all grids cover `[0, 1]`. Grid `t` is shifted along column `j` (both from
    /// 0) by `w ((2 j + 1) t mod tilings) / tilings`, which avoids diagonal artefacts.
    ///
    /// With `hashed` the tiles of each tiling share `hashed / tilings` features, by a
    /// fixed hash of the tile's coordinates. Colliding tiles share a weight.
    Tiles {
        /// The number of grids.
        #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
        tilings: u32,
        /// The number of tiles along each column.
        #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
        bins: u32,
        /// The number of features d, a multiple of `tilings`, if tiles are hashed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
        hashed: Option<u32>,
    },
    /// Gaussian bumps `exp(-||x - m||^2 / (2 width^2))` around the `d =
    /// centres^k` points `m` of a grid over `[0, 1]^k`, ends included (its
    /// middle for one centre), normalised to the sum 1. With `quantiles` the centres of a column are its
    /// quantiles `(c + 1/2) / centres` in the data, so that bumps are dense where states are. The default width is then
    /// the mean distance between the neighbouring centres of each column.
    Radial {
        /// The number of centres along each column.
        #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
        centres: u32,
        /// The standard deviation of a bump in units of `x`, from 0.001 to 1000;
        /// by default the distance between neighbouring centres (1 for one centre).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "schema", schemars(range(min = 0.001, max = 1000)))]
        width: Option<f64>,
        /// Whether centres are at the quantiles of the data.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        quantiles: bool,
    },
    /// A constant 1, then each column less its mean and divided by its standard deviation over the states of the data, `d = k + 1`.
    /// States are clipped to given ranges, as in an identity.
    Standardised {},
    /// A feature for each tuple of whole numbers within the ranges, 1 in the
    /// states that are this tuple and 0 in all others: `d` is the product of
    /// the numbers of values of the columns. For states that are numbered.
    OneHot {},
    /// All products `phi_i(x) psi_j(y) ..` of the features of its factors, each a map of some of the columns: `d` is the
    /// product of their numbers. Tuples `(i, j, ..)` are in lexicographic order: the feature of the last factor changes fastest. With a
    /// one-hot factor every value of its columns has weights of its own for all features of the others. One factor with columns
    /// is a map of these alone.
    Product {
        /// The factors.
        #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 16)))]
        factors: Vec<FeatureFactor>,
    },
}

/// A factor of a product of feature maps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct FeatureFactor {
    /// The feature map: any but `columns` and `product`.
    #[serde(deserialize_with = "fedsa::registry::table")]
    pub features: FeatureSpec,
    /// The state columns that it takes, in this order. Without them, which one factor may be, all that no other factor takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(min = 1)))]
    pub columns: Option<Vec<String>>,
}

impl FeatureFactor {
    /// A factor of these columns; `None` for all that no other factor takes.
    pub fn new(features: FeatureSpec, columns: Option<Vec<String>>) -> Self {
        Self { features, columns }
    }
}

/// The largest number of factors.
const MAX_FACTORS: usize = 16;

impl FeatureSpec {
    /// The number of features d for `k` state columns; `None` if it does not fit into a `usize`, or depends on their ranges (one-hot).
    /// Columns that factors name are taken to be among them.
    pub fn count(&self, k: usize) -> Option<usize> {
        let power = |base: u32| (base as usize).checked_pow(u32::try_from(k).ok()?);
        match self {
            Self::Columns {} => Some(k),
            &Self::Identity { bias } => k.checked_add(usize::from(bias)),
            &Self::Polynomial { order } => binomial(k.checked_add(order as usize)?, k.min(order as usize)),
            &Self::Fourier { order, .. } => power(order.checked_add(1)?),
            Self::Standardised {} => k.checked_add(1),
            &Self::Tiles { hashed: Some(hashed), .. } => Some(hashed as usize),
            &Self::Tiles { tilings, bins, hashed: None } => power(bins)?.checked_mul(tilings as usize),
            &Self::Radial { centres, .. } => power(centres),
            Self::OneHot {} => None,
            Self::Product { factors } => {
                let named: BTreeSet<&String> = factors.iter().flat_map(|factor| factor.columns.iter().flatten()).collect();
                let left = k.saturating_sub(named.len());
                let counts = factors.iter().map(|factor| factor.features.count(factor.columns.as_ref().map_or(left, Vec::len)));
                counts.reduce(|all, one| all?.checked_mul(one?)).flatten()
            }
        }
    }

    /// The number of features d of a map that is no product, for columns with these ranges; `None` if it does not fit into a `usize`.
    pub(super) fn count_in(&self, bounds: &[(f64, f64)]) -> Option<usize> {
        match self {
            Self::OneHot {} => bounds.iter().try_fold(1, |d: usize, range| d.checked_mul(values_in(*range))),
            _ => self.count(bounds.len()),
        }
    }

    /// Which columns of a log the map takes.
    pub fn inputs(&self) -> Inputs {
        if matches!(self, Self::Columns {}) { Inputs::Features } else { Inputs::States }
    }

    /// The number of features of a state that are not 0, of tiles and one-hot.
    pub(super) fn active_count(&self) -> Option<usize> {
        match self {
            Self::Tiles { tilings, .. } => Some(*tilings as usize),
            Self::OneHot {} => Some(1),
            _ => None,
        }
    }

    /// Whether a state has few features that are not 0, all with the same value.
    pub(super) fn is_sparse(&self) -> bool {
        match self {
            Self::Product { factors } => factors.iter().all(|factor| factor.features.is_sparse()),
            plain => plain.active_count().is_some(),
        }
    }

    pub(super) fn check(&self) -> Result<()> {
        let positive = |key: &str, value: u32| require(value >= 1, key, value, "a whole number of at least 1");
        match self {
            Self::Columns {} | Self::Identity { .. } | Self::Polynomial { .. } | Self::Fourier { .. } => Ok(()),
            Self::Standardised {} | Self::OneHot {} => Ok(()),
            &Self::Tiles { tilings, bins, hashed } => {
                positive("tilings", tilings)?;
                positive("bins", bins)?;
                let is_shared_out = |d: u32| d.is_multiple_of(tilings) && d / tilings >= MIN_SLOTS;
                let help = format!("a multiple of the {tilings} tilings, at least {}", u64::from(tilings) * u64::from(MIN_SLOTS));
                hashed.map_or(Ok(()), |d| require(is_shared_out(d), "hashed", d, &help))
            }
            &Self::Radial { centres, width, .. } => {
                positive("centres", centres)?;
                width.map_or(Ok(()), |w| require((1e-3..=1e3).contains(&w), "width", w, "a number from 0.001 to 1000"))
            }
            Self::Product { factors } => check_factors(factors),
        }
    }
}

/// Refuses factors that are no product.
fn check_factors(factors: &[FeatureFactor]) -> Result<()> {
    let refuse = |what: String, help: &str| Err(Error::new("factors", what, help));
    if !(1..=MAX_FACTORS).contains(&factors.len()) {
        return refuse(format!("{} factors", factors.len()), &format!("from 1 to {MAX_FACTORS}"));
    }
    for (i, factor) in factors.iter().enumerate() {
        factor.check().map_err(|e| e.inside(&format!("factors[{i}]")))?;
    }
    let mut rest = factors.iter().filter(|factor| factor.columns.is_none()).map(|factor| &factor.features);
    match (rest.next(), rest.next()) {
        (Some(one), Some(other)) => refuse(
            format!("neither {one} nor {other} names its columns"),
            "the columns of all factors but one, which takes all columns that no other factor takes",
        ),
        (Some(one), None) if factors.len() == 1 => {
            refuse(format!("{one} alone, which takes all columns"), "its columns, or a second factor")
        }
        _ => Ok(()),
    }
}

impl FeatureFactor {
    fn check(&self) -> Result<()> {
        match self.features {
            FeatureSpec::Columns {} => {
                let help = "maps of state columns; features that were logged are taken as they are";
                return Err(Error::new("features", "columns as a factor", help));
            }
            FeatureSpec::Product { .. } => {
                return Err(Error::new(
                    "features",
                    "a product as a factor",
                    "a map; the factors of an inner product beside the other ones",
                ));
            }
            _ => self.features.check().map_err(|mut e| {
                // Texts show no keys.
                e.what = format!("{} in {}", e.what, self.features);
                e.inside("features")
            })?,
        }
        let columns = self.columns.as_deref().unwrap_or_default();
        if self.columns.is_some() && columns.is_empty() {
            let what = format!("none of {}", self.features);
            return Err(Error::new("columns", what, "at least one column; or no `columns`, for all that no other factor takes"));
        }
        if columns.iter().any(String::is_empty) {
            return Err(Error::new("columns", format!("a column without a name in {}", self.features), "the names of state columns"));
        }
        let twice = columns.iter().enumerate().find(|(i, name)| columns[..*i].contains(name));
        twice.map_or(Ok(()), |(_, name)| {
            let what = format!("`{}` twice in {}", quoted(name), self.features);
            Err(Error::new("columns", what, "each column once in a factor"))
        })
    }
}

/// How many whole numbers there are from the one end of a range to the other.
pub(super) fn values_in((lo, hi): (f64, f64)) -> usize {
    (hi - lo) as usize + 1
}

/// `n` over `k` for `k <= n / 2`; `None` on overflow.
fn binomial(n: usize, k: usize) -> Option<usize> {
    let mut value: usize = 1;
    for i in 0..k {
        // A binomial coefficient after each step, so the division is exact.
        value = usize::try_from(value as u128 * (n - i) as u128 / (i + 1) as u128).ok()?;
    }
    Some(value)
}
