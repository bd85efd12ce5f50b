//! The settings of feature maps, as files and the command line have them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::tiles::MIN_SLOTS;
use crate::error::{Error, Result, quoted, require};
use crate::problem::source::Inputs;

/// The settings of a [`FeatureMap`](super::FeatureMap).
///
/// On the command line: `columns`, `identity`, `identity:bias`, `polynomial:2`,
/// `fourier:3`, `fourier:3:scaled`, `tiles:8x4` (tilings x bins), `tiles:8x8@1024`
/// (hashed to 1024), `radial:5`, `radial:5:0.3` (centres, width) or
/// `radial:5:quantiles`, `standardised`, `one-hot`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
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
    /// `d = (order + 1)^k`. Where it is `scaled`, each is divided by the square
    /// root of `||c||` besides (c other than 0): a step of size eta then moves the weight of a
    /// frequency as one of `eta / ||c||` would (Konidaris et al. 2011, "Value function
    /// approximation in reinforcement learning using the Fourier basis", section 3.2).
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
    /// all grids cover `[0, 1]`; grid `t` is shifted along column `j` (both from
    /// 0) by `w ((2 j + 1) t mod tilings) / tilings`, the usual displacement
    /// that avoids diagonal artefacts. With more than one tiling, and with tiles
    /// that no state visits, features are linearly dependent on the data and
    /// the solution is not unique.
    ///
    /// With `hashed` the tiles of each tiling share `hashed / tilings` features, by a
    /// fixed hash of the tile's coordinates: for many columns, of which most tiles are never seen. Tiles that fall
    /// together share a weight.
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
    /// quantiles `(c + 1/2) / centres` in the data, so that bumps are dense where states are; a width that is not given is then
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
    /// States are clipped to ranges that are given, as those of an identity.
    Standardised {},
    /// A feature for each tuple of whole numbers within the ranges, 1 in the
    /// states that are this tuple and 0 in all others: `d` is the product of
    /// the numbers of values of the columns. For states that are numbered.
    OneHot {},
}

impl FeatureSpec {
    /// The forms that [`FeatureSpec::from_str`] accepts.
    pub const FORMS: &str = "columns, identity, identity:bias, polynomial:ORDER, fourier:ORDER or fourier:ORDER:scaled, tiles:TILINGSxBINS or tiles:TILINGSxBINS@FEATURES, radial:CENTRES, radial:CENTRES:WIDTH or radial:CENTRES:quantiles, standardised, one-hot";

    /// The number of features d for `k` state columns; `None` if it does not fit into a `usize`, or depends on their ranges (one-hot).
    pub fn count(&self, k: usize) -> Option<usize> {
        let power = |base: u32| (base as usize).checked_pow(u32::try_from(k).ok()?);
        match *self {
            Self::Columns {} => Some(k),
            Self::Identity { bias } => k.checked_add(usize::from(bias)),
            Self::Polynomial { order } => binomial(k.checked_add(order as usize)?, k.min(order as usize)),
            Self::Fourier { order, .. } => power(order.checked_add(1)?),
            Self::Standardised {} => k.checked_add(1),
            Self::Tiles { hashed: Some(hashed), .. } => Some(hashed as usize),
            Self::Tiles { tilings, bins, hashed: None } => power(bins)?.checked_mul(tilings as usize),
            Self::Radial { centres, .. } => power(centres),
            Self::OneHot {} => None,
        }
    }

    /// The number of features d for columns with these ranges; `None` if it does not fit into a `usize`.
    pub(super) fn count_in(&self, bounds: &[(f64, f64)]) -> Option<usize> {
        match self {
            Self::OneHot {} => bounds.iter().try_fold(1, |d: usize, range| d.checked_mul(super::values_in(*range))),
            _ => self.count(bounds.len()),
        }
    }

    /// Which columns of a log the map takes.
    pub fn inputs(&self) -> Inputs {
        if matches!(self, Self::Columns {}) { Inputs::Features } else { Inputs::States }
    }

    /// Whether the map takes statistics of all states from the data, besides ranges.
    pub fn needs_statistics(&self) -> bool {
        self.needs_quantiles().is_some() || matches!(self, Self::Standardised {})
    }

    /// Whether columns need a range.
    pub fn needs_ranges(&self) -> bool {
        !matches!(self, Self::Columns {} | Self::Identity { .. } | Self::Standardised {})
    }

    /// How many quantiles of each column the map takes from the data; `None` of maps that take none.
    pub fn needs_quantiles(&self) -> Option<u32> {
        match self {
            Self::Radial { centres, quantiles: true, .. } => Some(*centres),
            _ => None,
        }
    }

    pub(super) fn check(&self) -> Result<()> {
        let positive = |key: &str, value: u32| require(value >= 1, key, value, "a whole number of at least 1");
        match *self {
            Self::Columns {} | Self::Identity { .. } | Self::Polynomial { .. } | Self::Fourier { .. } => Ok(()),
            Self::Standardised {} | Self::OneHot {} => Ok(()),
            Self::Tiles { tilings, bins, hashed } => {
                positive("tilings", tilings)?;
                positive("bins", bins)?;
                let is_shared_out = |d: u32| d.is_multiple_of(tilings) && d / tilings >= MIN_SLOTS;
                let help = format!("a multiple of the {tilings} tilings, at least {}", u64::from(tilings) * u64::from(MIN_SLOTS));
                hashed.map_or(Ok(()), |d| require(is_shared_out(d), "hashed", d, &help))
            }
            Self::Radial { centres, width, .. } => {
                positive("centres", centres)?;
                width.map_or(Ok(()), |w| require((1e-3..=1e3).contains(&w), "width", w, "a number from 0.001 to 1000"))
            }
        }
    }
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

impl fmt::Display for FeatureSpec {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Columns {} => write!(f, "columns"),
            Self::Identity { bias: false } => write!(f, "identity"),
            Self::Identity { bias: true } => write!(f, "identity:bias"),
            Self::Polynomial { order } => write!(f, "polynomial:{order}"),
            Self::Fourier { order, scaled } => write!(f, "fourier:{order}{}", if *scaled { ":scaled" } else { "" }),
            Self::Tiles { tilings, bins, hashed: None } => write!(f, "tiles:{tilings}x{bins}"),
            Self::Tiles { tilings, bins, hashed: Some(d) } => write!(f, "tiles:{tilings}x{bins}@{d}"),
            Self::Radial { centres, width, quantiles } => {
                write!(f, "radial:{centres}")?;
                width.map_or(Ok(()), |width| write!(f, ":{width}"))?;
                write!(f, "{}", if *quantiles { ":quantiles" } else { "" })
            }
            Self::Standardised {} => write!(f, "standardised"),
            Self::OneHot {} => write!(f, "one-hot"),
        }
    }
}

impl FromStr for FeatureSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let parse = || -> Option<Self> {
            let (kind, settings) = text.split_once(':').map_or((text, None), |(kind, rest)| (kind, Some(rest)));
            Some(match (kind, settings) {
                ("columns", None) => Self::Columns {},
                ("one-hot", None) => Self::OneHot {},
                ("identity", None) => Self::Identity { bias: false },
                ("identity", Some("bias")) => Self::Identity { bias: true },
                ("polynomial", Some(order)) => Self::Polynomial { order: order.parse().ok()? },
                ("standardised", None) => Self::Standardised {},
                ("fourier", Some(sizes)) => {
                    let (order, scaled) = sizes.strip_suffix(":scaled").map_or((sizes, false), |order| (order, true));
                    Self::Fourier { order: order.parse().ok()?, scaled }
                }
                ("tiles", Some(sizes)) => {
                    let (sizes, hashed) = sizes.split_once('@').map_or((sizes, None), |(sizes, hashed)| (sizes, Some(hashed)));
                    let (tilings, bins) = sizes.split_once('x')?;
                    let hashed = hashed.map(str::parse).transpose().ok()?;
                    Self::Tiles { tilings: tilings.parse().ok()?, bins: bins.parse().ok()?, hashed }
                }
                ("radial", Some(sizes)) => {
                    let (sizes, quantiles) = sizes.strip_suffix(":quantiles").map_or((sizes, false), |sizes| (sizes, true));
                    let (centres, width) = sizes.split_once(':').map_or((sizes, None), |(centres, width)| (centres, Some(width)));
                    Self::Radial { centres: centres.parse().ok()?, width: width.map(str::parse).transpose().ok()?, quantiles }
                }
                _ => return None,
            })
        };
        let help = || format!("accepted: {}", Self::FORMS);
        let spec = parse().ok_or_else(|| Error::new("features", format!("`{}` names no features", quoted(text)), help()))?;
        spec.check().map_err(|e| e.inside("features"))?;
        Ok(spec)
    }
}
