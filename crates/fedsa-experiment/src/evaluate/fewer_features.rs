//! The proposal of fewer features.

use fedsa::error::{Error, ErrorKind};
use fedsa_problems::features::FeatureSpec;

use super::Data;
use crate::made::count;

impl Data {
    /// Features of the same kind that take less time, if there are too many for a direct solution.
    pub fn fewer_features(&self) -> String {
        /// The largest number of features whose systems are solved directly, in one exchange.
        const MOST: usize = 1000;
        if self.map.len() <= MOST {
            return String::new();
        }
        let count_of = |spec: &FeatureSpec| self.map.count_of(spec).unwrap_or(usize::MAX);
        let spec = self.map.spec();
        let fewer = smaller(spec, MOST as u32).find(|spec| count_of(spec) <= MOST).or_else(|| with_smaller_factors(spec, MOST, count_of));
        let hashed = match *spec {
            FeatureSpec::Tiles { tilings, bins, hashed: None } => {
                let most = u32::try_from(MOST).unwrap_or(u32::MAX) / tilings * tilings;
                (most >= 2 * tilings).then_some(FeatureSpec::Tiles { tilings, bins, hashed: Some(most) })
            }
            _ => None,
        };
        fewer.into_iter().chain(hashed).fold(String::new(), |said, spec| {
            format!("{said}`features = {spec}` has {}, which one exchange solves; ", count(count_of(&spec), "feature"))
        })
    }
}

/// An error about too little memory, with the features that need less.
pub(super) fn with_proposal(e: Error, data: &Data) -> Error {
    if e.kind() != ErrorKind::NoMemory {
        return e;
    }
    let help = format!("{}{}", data.fewer_features(), e.help);
    e.helped(help)
}

/// Features of the same kind in decreasing number, with sizes up to `most`; none for kinds without a size.
fn smaller(spec: &FeatureSpec, most: u32) -> Box<dyn Iterator<Item = FeatureSpec>> {
    let tiles = |bins: u32, tilings: u32| FeatureSpec::Tiles { tilings, bins, hashed: None };
    match *spec {
        FeatureSpec::Tiles { tilings, bins, hashed: None } => {
            let of_bins = (2..bins.min(most)).rev().map(move |bins| tiles(bins, tilings));
            Box::new(of_bins.chain((1..tilings.min(most)).rev().map(move |tilings| tiles(2, tilings))))
        }
        FeatureSpec::Fourier { order, scaled } => {
            Box::new((1..order.min(most)).rev().map(move |order| FeatureSpec::Fourier { order, scaled }))
        }
        FeatureSpec::Polynomial { order } => Box::new((1..order.min(most)).rev().map(|order| FeatureSpec::Polynomial { order })),
        FeatureSpec::Radial { centres, width: None, quantiles } => {
            Box::new((2..centres.min(most)).rev().map(move |centres| FeatureSpec::Radial { centres, width: None, quantiles }))
        }
        _ => Box::new(std::iter::empty()),
    }
}

/// The product with smaller factors: one step at a time, each of which keeps as many features as possible, until there are at most `most`.
fn with_smaller_factors(spec: &FeatureSpec, most: usize, count_of: impl Fn(&FeatureSpec) -> usize) -> Option<FeatureSpec> {
    let FeatureSpec::Product { factors } = spec else { return None };
    let mut factors = factors.clone();
    loop {
        let with = |i: usize| {
            let mut factors = factors.clone();
            factors[i].features = smaller(&factors[i].features, most as u32).next()?;
            Some(factors)
        };
        let each =
            (0..factors.len()).filter_map(with).map(|factors| (count_of(&FeatureSpec::Product { factors: factors.clone() }), factors));
        let (count, next) = each.max_by_key(|(count, _)| *count)?;
        factors = next;
        if count <= most {
            return Some(FeatureSpec::Product { factors });
        }
    }
}
