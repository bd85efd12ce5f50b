//! Readable names of features.

use super::FeatureMap;
use super::factor::Factor;
use super::spec::{FeatureSpec, values_in};

impl FeatureMap {
    /// A readable name of every feature, d names in the order of [`FeatureMap::eval`], without scale factors. Column names denote scaled
    /// values, except in an identity. The name of a product has the names of its factors in parentheses.
    pub fn names(&self) -> Vec<String> {
        if let [only] = &self.factors[..] {
            return only.names();
        }
        let of_factor = |factor: &Factor| factor.names_with_columns().into_iter().map(|name| format!("({name})"));
        let joined = |before: Vec<String>, factor: &Factor| {
            let names: Vec<String> = of_factor(factor).collect();
            before.iter().flat_map(|before| names.iter().map(move |name| format!("{before} * {name}"))).collect()
        };
        self.factors[1..].iter().fold(of_factor(&self.factors[0]).collect(), joined)
    }
}

impl Factor {
    /// The names of features. Every factor that takes some of the columns only names them.
    fn names_with_columns(&self) -> Vec<String> {
        let names = self.names();
        match self.features {
            FeatureSpec::Tiles { .. } | FeatureSpec::Radial { .. } => {
                names.into_iter().map(|name| format!("{name} of {}", self.columns.join(", "))).collect()
            }
            _ => names,
        }
    }

    fn names(&self) -> Vec<String> {
        let columns = &self.columns;
        let k = columns.len();
        match self.features {
            FeatureSpec::Columns {} => columns.clone(),
            FeatureSpec::Identity { bias } => bias.then(|| "1".to_string()).into_iter().chain(columns.iter().cloned()).collect(),
            FeatureSpec::Polynomial { .. } => {
                let mut powers = vec![vec![0u32; k]];
                for &(old, j) in &self.monomials {
                    let mut power = powers[old].clone();
                    power[j] += 1;
                    powers.push(power);
                }
                powers.iter().map(|power| monomial_name(columns, power)).collect()
            }
            FeatureSpec::Standardised {} => {
                let scaled = |column: &String| format!("standardised {column}");
                std::iter::once("1".to_string()).chain(columns.iter().map(scaled)).collect()
            }
            FeatureSpec::Fourier { order, .. } => {
                grid(k, order as usize + 1).map(|c| if c.iter().all(|&c| c == 0) { "1".into() } else { cosine_name(columns, &c) }).collect()
            }
            FeatureSpec::Tiles { tilings, hashed: Some(d), .. } => {
                (0..d).map(|i| format!("tiling {}, hashed {}", i / (d / tilings), i % (d / tilings))).collect()
            }
            FeatureSpec::Tiles { tilings, bins, hashed: None } => {
                let tile = |t, c: Vec<usize>| format!("tiling {t}, tile ({})", join(c));
                (0..tilings).flat_map(|t| grid(k, bins as usize).map(move |c| tile(t, c))).collect()
            }
            FeatureSpec::Radial { centres, .. } => {
                let at = |c: Vec<usize>| join(c.into_iter().enumerate().map(|(j, c)| self.bumps.centre(j, c)));
                grid(k, centres as usize).map(|c| format!("bump at ({})", at(c))).collect()
            }
            FeatureSpec::OneHot {} => (0..self.len).map(|tuple| self.tuple_name(tuple)).collect(),
            FeatureSpec::Product { .. } => unreachable!("a factor is no product"),
        }
    }

    /// The name of the feature of a tuple: `row = 2, column = 0`.
    fn tuple_name(&self, tuple: usize) -> String {
        let (mut left, mut parts) = (tuple, Vec::new());
        for (column, range) in self.columns.iter().zip(&self.bounds).rev() {
            let size = values_in(*range);
            parts.push(format!("{column} = {}", range.0 + (left % size) as f64));
            left /= size;
        }
        parts.reverse();
        parts.join(", ")
    }
}

/// All tuples of `{0..size - 1}^k` in lexicographic order.
fn grid(k: usize, size: usize) -> impl Iterator<Item = Vec<usize>> {
    let mut next = Some(vec![0; k]);
    std::iter::from_fn(move || {
        let current = next.take()?;
        if let Some(j) = (0..k).rev().find(|&j| current[j] + 1 < size) {
            let mut following = current.clone();
            following[j] += 1;
            following[j + 1..].fill(0);
            next = Some(following);
        }
        Some(current)
    })
}

fn join<T: ToString>(items: impl IntoIterator<Item = T>) -> String {
    items.into_iter().map(|i| i.to_string()).collect::<Vec<_>>().join(", ")
}

fn monomial_name(columns: &[String], powers: &[u32]) -> String {
    let factors: Vec<String> = columns
        .iter()
        .zip(powers)
        .filter(|(_, power)| **power > 0)
        .map(|(column, power)| if *power == 1 { column.clone() } else { format!("{column}^{power}") })
        .collect();
    if factors.is_empty() { "1".into() } else { factors.join(" ") }
}

fn cosine_name(columns: &[String], c: &[usize]) -> String {
    let terms: Vec<String> = columns
        .iter()
        .zip(c)
        .filter(|(_, c)| **c > 0)
        .map(|(column, c)| if *c == 1 { column.clone() } else { format!("{c} {column}") })
        .collect();
    format!("cos(pi ({}))", terms.join(" + "))
}
