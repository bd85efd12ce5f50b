//! The settings of feature maps, in files and on the command line.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::tiles::MIN_SLOTS;
use crate::logs::source::Inputs;
use fedsa::error::{Error, Result, quoted, require};

/// The settings of a feature map.
///
/// On the command line: `columns`, `identity`, `identity:bias`, `polynomial:2`, `fourier:3`, `fourier:3:scaled`, `tiles:8x4` (tilings x
/// bins), `tiles:8x8@1024` (hashed to 1024), `radial:5`, `radial:5:0.3` (centres, width), `radial:5:quantiles`, `standardised`, `one-hot`,
/// and products: `one-hot(s_2) * tiles:8x4(s_0, s_1)`. One factor may omit its columns and takes all others: `one-hot(s_2) * fourier:3`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum FeatureSpec {
    /// Logged features, as they are, in the columns `phi_*` and `phi_next_*`.
    Columns {},
    /// The clipped, unscaled state, `d = k`; `bias` puts a constant 1 first, `d = k + 1`. Columns without a range are not clipped; other
    /// maps need ranges.
    Identity {
        /// Adds a constant feature 1.
        #[serde(default)]
        bias: bool,
    },
    /// All monomials in `x` of total degree at most `order`, times `1/sqrt(d)`, `d = C(k + order, k)`, by degree:
    /// `1, x_1, x_2, x_1^2, x_1 x_2, x_2^2, ..`
    Polynomial {
        /// Largest total degree.
        order: u32,
    },
    /// `cos(pi <c, x>) / sqrt(d)` for all `c` in `{0..order}^k`, `d = (order + 1)^k` (Konidaris et al. 2011). `scaled` divides by the
    /// square root of `||c||` (c other than 0), so that a step eta acts like `eta / ||c||` (section 3.2).
    Fourier {
        /// Largest frequency of a column.
        order: u32,
        /// Divide by the square root of `||c||`.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        scaled: bool,
    },
    /// Tile coding: `tilings` shifted grids of `bins` tiles per column. The tile of each grid that holds `x` has the feature
    /// `1/sqrt(tilings)`, all others 0; `d = tilings bins^k`.
    ///
    /// Tiles have the width `w = 1 / (bins - (tilings - 1)/tilings)`, so that all grids cover `[0, 1]`. Grid `t` is shifted along column
    /// `j` by `w ((2 j + 1) t mod tilings) / tilings`, both counted from 0.
    ///
    /// With `hashed`, the tiles of each tiling share `hashed / tilings` features by a fixed hash. Colliding tiles share a weight.
    Tiles {
        /// Grids.
        #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
        tilings: u32,
        /// Tiles along each column.
        #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
        bins: u32,
        /// Features d of hashed tiles, a multiple of `tilings`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
        hashed: Option<u32>,
    },
    /// Gaussian bumps `exp(-||x - m||^2 / (2 width^2))`, normalised to sum 1, at the `d = centres^k` points `m` of a grid over `[0, 1]^k`,
    /// ends included. One centre is in the middle. With `quantiles`, a column's centres are its quantiles `(c + 1/2) / centres` in the
    /// data.
    Radial {
        /// Centres along each column.
        #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
        centres: u32,
        /// Standard deviation of a bump in units of `x`; by default the mean distance of neighbouring centres, 1 for one centre.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "schema", schemars(range(min = 0.001, max = 1000)))]
        width: Option<f64>,
        /// Centres at quantiles of the data.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        quantiles: bool,
    },
    /// A constant 1, then each column minus its mean, divided by its standard deviation over the data's states; `d = k + 1`. States are
    /// clipped to given ranges.
    Standardised {},
    /// An indicator of each tuple of whole numbers within the ranges; `d` is the product of the columns' numbers of values.
    OneHot {},
    /// All products `phi_i(x) psi_j(y) ..` of the factors' features, in lexicographic order: the last factor's feature changes fastest. `d`
    /// is the product of the factors' numbers. A one-hot factor gives each of its values separate weights.
    Product {
        /// Factors.
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
    /// The state columns that it takes, in this order. One factor may omit them and takes all others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(min = 1)))]
    pub columns: Option<Vec<String>>,
}

impl FeatureFactor {
    /// A factor of these columns; `None` takes all columns that no other factor takes.
    pub fn new(features: FeatureSpec, columns: Option<Vec<String>>) -> Self {
        Self { features, columns }
    }
}

/// The largest number of factors.
const MAX_FACTORS: usize = 16;

impl FeatureSpec {
    /// The number of features d for `k` state columns, which include all columns that factors name. `None` on overflow, or if d depends on
    /// ranges (one-hot).
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

    /// The number of features d of a map that is no product, for columns with these ranges; `None` on overflow.
    pub(super) fn count_in(&self, bounds: &[(f64, f64)]) -> Option<usize> {
        match self {
            Self::OneHot {} => bounds.iter().try_fold(1, |d: usize, range| d.checked_mul(values_in(*range))),
            _ => self.count(bounds.len()),
        }
    }

    /// The columns of a log that the map takes.
    pub fn inputs(&self) -> Inputs {
        if matches!(self, Self::Columns {}) { Inputs::Features } else { Inputs::States }
    }

    /// The number of non-zero features of a state, for tiles and one-hot.
    pub(super) fn active_count(&self) -> Option<usize> {
        match self {
            Self::Tiles { tilings, .. } => Some(*tilings as usize),
            Self::OneHot {} => Some(1),
            _ => None,
        }
    }

    /// Whether a state has few non-zero features, all with the same value.
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

/// Refuses factors that do not form a product.
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
                // Texts have no keys.
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

/// The number of whole numbers in a range, both ends included.
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
