//! Feature maps as text, such as `one-hot(s_2) * tiles:8x4(s_0, s_1)`.
//!
//! A text is one factor, or several with `*` between them. A factor is a kind with its settings, then its columns in parentheses. Without
//! columns it takes all that no other factor takes. A column name that contains one of `( ) , * "`, or starts or ends with a blank, is in
//! double quotes; `""` inside stands for one quote. Blanks between parts do not count.

use std::fmt;
use std::str::FromStr;

use super::spec::{FeatureFactor, FeatureSpec};
use fedsa::error::{Error, Result, quoted};

impl FeatureSpec {
    /// The forms that [`FeatureSpec::from_str`] accepts.
    pub const FORMS: &str = "columns, identity, identity:bias, polynomial:ORDER, fourier:ORDER or fourier:ORDER:scaled, tiles:TILINGSxBINS or tiles:TILINGSxBINS@FEATURES, radial:CENTRES, radial:CENTRES:WIDTH or radial:CENTRES:quantiles, standardised, one-hot; products such as one-hot(COLUMN,..) * fourier:ORDER";
}

/// The characters that end an unquoted name.
const MARKS: [char; 5] = ['(', ')', ',', '*', '"'];

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
            Self::Product { factors } => factors.iter().enumerate().try_for_each(|(i, factor)| {
                f.write_str(if i == 0 { "" } else { " * " })?;
                write!(f, "{factor}")
            }),
        }
    }
}

impl fmt::Display for FeatureFactor {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}", self.features)?;
        let Some(columns) = &self.columns else { return Ok(()) };
        let names: Vec<String> = columns.iter().map(|name| column_text(name)).collect();
        write!(f, "({})", names.join(", "))
    }
}

/// The name of a column, quoted if necessary.
fn column_text(name: &str) -> String {
    let is_plain = !name.is_empty() && name.trim() == name && !name.contains(MARKS);
    if is_plain { name.to_string() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

/// Reads factors from left to right.
struct Factors<'a> {
    text: &'a str,
    /// The unread rest.
    left: &'a str,
}

impl<'a> Factors<'a> {
    /// The error about the unread rest.
    fn refuse<T>(&self, wanted: &str) -> Result<T> {
        let at = self.text.chars().count() - self.left.chars().count() + 1;
        let found = if self.left.is_empty() { "the end".into() } else { format!("`{}` at character {at}", quoted(self.left)) };
        let help = format!("accepted: {}", FeatureSpec::FORMS);
        Err(Error::new("features", format!("`{}`: {found} where {wanted} should be", quoted(self.text)), help))
    }

    /// Reads the next character if it is `mark`; returns whether it was.
    fn takes(&mut self, mark: char) -> bool {
        self.left = self.left.trim_start();
        let rest = self.left.strip_prefix(mark);
        self.left = rest.unwrap_or(self.left);
        rest.is_some()
    }

    /// Reads a name up to the next mark, without surrounding blanks.
    fn name(&mut self) -> &'a str {
        let (name, left) = self.left.split_at(self.left.find(MARKS).unwrap_or(self.left.len()));
        self.left = left;
        name.trim()
    }

    fn column(&mut self) -> Result<String> {
        const WANTED: &str = "a column";
        if !self.takes('"') {
            let before = self.left;
            let name = self.name();
            if name.is_empty() {
                self.left = before;
                return self.refuse(WANTED);
            }
            return Ok(name.to_string());
        }
        let mut name = String::new();
        loop {
            let Some((part, left)) = self.left.split_once('"') else {
                self.left = "";
                return self.refuse("a closing quote of a column");
            };
            (name, self.left) = (name + part, left);
            match self.left.strip_prefix('"') {
                Some(left) => (name, self.left) = (name + "\"", left),
                None => return Ok(name),
            }
        }
    }

    fn columns(&mut self) -> Result<Vec<String>> {
        let mut columns = vec![self.column()?];
        while self.takes(',') {
            columns.push(self.column()?);
        }
        if self.takes(')') { Ok(columns) } else { self.refuse("`,` or `)`") }
    }

    fn factor(&mut self) -> Result<FeatureFactor> {
        let before = self.left.trim_start();
        let name = self.name();
        let Some(features) = plain(name) else {
            self.left = before;
            return self.refuse("a feature map");
        };
        let columns = if self.takes('(') { Some(self.columns()?) } else { None };
        Ok(FeatureFactor::new(features, columns))
    }

    fn all(&mut self) -> Result<Vec<FeatureFactor>> {
        let mut factors = vec![self.factor()?];
        while self.takes('*') {
            factors.push(self.factor()?);
        }
        if self.left.is_empty() { Ok(factors) } else { self.refuse("`*` or the end") }
    }
}

/// A map that is no product.
fn plain(text: &str) -> Option<FeatureSpec> {
    let (kind, settings) = text.split_once(':').map_or((text, None), |(kind, rest)| (kind, Some(rest)));
    Some(match (kind, settings) {
        ("columns", None) => FeatureSpec::Columns {},
        ("one-hot", None) => FeatureSpec::OneHot {},
        ("identity", None) => FeatureSpec::Identity { bias: false },
        ("identity", Some("bias")) => FeatureSpec::Identity { bias: true },
        ("polynomial", Some(order)) => FeatureSpec::Polynomial { order: order.parse().ok()? },
        ("standardised", None) => FeatureSpec::Standardised {},
        ("fourier", Some(sizes)) => {
            let (order, scaled) = sizes.strip_suffix(":scaled").map_or((sizes, false), |order| (order, true));
            FeatureSpec::Fourier { order: order.parse().ok()?, scaled }
        }
        ("tiles", Some(sizes)) => {
            let (sizes, hashed) = sizes.split_once('@').map_or((sizes, None), |(sizes, hashed)| (sizes, Some(hashed)));
            let (tilings, bins) = sizes.split_once('x')?;
            let hashed = hashed.map(str::parse).transpose().ok()?;
            FeatureSpec::Tiles { tilings: tilings.parse().ok()?, bins: bins.parse().ok()?, hashed }
        }
        ("radial", Some(sizes)) => {
            let (sizes, quantiles) = sizes.strip_suffix(":quantiles").map_or((sizes, false), |sizes| (sizes, true));
            let (centres, width) = sizes.split_once(':').map_or((sizes, None), |(centres, width)| (centres, Some(width)));
            FeatureSpec::Radial { centres: centres.parse().ok()?, width: width.map(str::parse).transpose().ok()?, quantiles }
        }
        _ => return None,
    })
}

impl FromStr for FeatureSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let spec = if text.contains(MARKS) {
            Self::Product { factors: Factors { text, left: text }.all()? }
        } else {
            let help = || format!("accepted: {}", Self::FORMS);
            plain(text.trim()).ok_or_else(|| Error::new("features", format!("`{}` names no features", quoted(text)), help()))?
        };
        spec.check().map_err(|e| e.inside("features"))?;
        Ok(spec)
    }
}
