//! Lower values of actions that few rows are behind.
//!
//! The greedy action of fitted values prefers actions whose values are too high by chance, and those are the actions that the logs hardly know.
//! `1 / h(s, a)` rows are behind a pair, with `h = psi(s, a)^T (n (G + EPS I))^-1 psi(s, a)`, the n rows of all agents, and a small EPS
//! ([`Improving::coverage`](super::improvement::Improving::coverage)). A pessimistic policy
//! takes the action of the largest `q(s, a) - less(s, a)`, in targets too:
//!
//! ```text
//! lcb:KAPPA     less = KAPPA sigma sqrt(h)
//! support:ROWS  less = 0 if 1 / h >= ROWS, otherwise infinite; without such an action only the one of the smallest h is taken
//! ```

use std::fmt::{Display, Formatter};
use std::str::FromStr;

use faer::Mat;
use fedsa::error::{Error, quoted};
use fedsa::linalg;
use serde::{Deserialize, Serialize};

/// What lowers the values of rare actions.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Pessimism {
    /// Nothing.
    #[default]
    None,
    /// This many standard errors of the fitted value.
    LowerBound(f64),
    /// Only actions with this many rows behind them are taken.
    Support(f64),
}

/// What a setting accepts.
const ACCEPTED: &str = "none, lcb:KAPPA with a number of standard errors, or support:ROWS with a number of rows";

impl FromStr for Pessimism {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let refused = || Error::new("pessimism", quoted(text), ACCEPTED);
        let number = |text: &str| text.parse().ok().filter(|x: &f64| *x > 0.0 && x.is_finite()).ok_or_else(refused);
        match text.split_once(':') {
            None if text == "none" => Ok(Self::None),
            Some(("lcb", kappa)) => number(kappa).map(Self::LowerBound),
            Some(("support", rows)) => number(rows).map(Self::Support),
            _ => Err(refused()),
        }
    }
}

impl TryFrom<String> for Pessimism {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse().map_err(|e: Error| format!("{} is not accepted; use {}", e.what, e.help))
    }
}

impl From<Pessimism> for String {
    fn from(rule: Pessimism) -> Self {
        rule.to_string()
    }
}

impl Display for Pessimism {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::LowerBound(kappa) => write!(f, "lcb:{kappa}"),
            Self::Support(rows) => write!(f, "support:{rows}"),
        }
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Pessimism {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Pessimism".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "pattern": "^(none|(lcb|support):[+]?[0-9.]+([eE][+-]?[0-9]+)?)$",
            "description": "none; lcb:KAPPA lowers values by KAPPA standard errors; support:ROWS takes only actions with so many rows behind them"
        })
    }
}

/// For each action `(n (G_a + EPS I))^-1`, m x m: how well the logs cover pairs of a state and an action.
#[derive(Debug, Clone, PartialEq)]
pub struct Coverage(pub Vec<Mat<f64>>);

impl Coverage {
    /// `h` of a state with these features (m) and an action: `1 / h` rows are behind the pair.
    pub fn h(&self, phi: &[f64], action: usize) -> f64 {
        let inverse = &self.0[action];
        phi.iter().enumerate().map(|(j, x)| x * linalg::dot(inverse.col_as_slice(j), phi)).sum()
    }
}

/// A rule with what it needs of the fit.
#[derive(Debug, Clone, PartialEq)]
pub struct Caution {
    /// The rule.
    pub rule: Pessimism,
    /// The standard deviation of residuals.
    pub sigma: f64,
    /// The rows behind pairs.
    pub coverage: Coverage,
}

impl Caution {
    /// Subtracts `less(s, a)` from the values of the actions (K) in a state with these features (m).
    pub fn lower(&self, phi: &[f64], q: &mut [f64]) {
        let h: Vec<f64> = (0..q.len()).map(|action| self.coverage.h(phi, action)).collect();
        match self.rule {
            Pessimism::None => {}
            Pessimism::LowerBound(kappa) => {
                q.iter_mut().zip(&h).for_each(|(q, h)| *q -= kappa * self.sigma * h.max(0.0).sqrt());
            }
            Pessimism::Support(rows) => {
                let least = h.iter().copied().fold(f64::INFINITY, f64::min).max(1.0 / rows);
                q.iter_mut().zip(&h).filter(|(_, h)| **h > least).for_each(|(q, _)| *q = f64::NEG_INFINITY);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lowered(rule: Pessimism, phi: &[f64]) -> Vec<f64> {
        let coverage = Coverage([0.01, 0.25, 4.0].map(|x| faer::Scale(x) * Mat::<f64>::identity(2, 2)).to_vec());
        let mut q = vec![1.0, 2.0, 3.0];
        Caution { rule, sigma: 2.0, coverage }.lower(phi, &mut q);
        q
    }

    #[test]
    fn rare_actions_have_lower_values() {
        // h is .01, .25 and 4: 100 rows, 4 rows, a quarter of one.
        assert_eq!(lowered(Pessimism::None, &[0.6, 0.8]), [1.0, 2.0, 3.0]);
        let q = lowered(Pessimism::LowerBound(0.5), &[0.6, 0.8]);
        assert!(q.iter().zip([0.9, 1.5, 1.0]).all(|(x, y)| (x - y).abs() < 1e-15), "{q:?}");
        assert_eq!(lowered(Pessimism::Support(3.9), &[0.6, 0.8]), [1.0, 2.0, f64::NEG_INFINITY]);
        assert_eq!(lowered(Pessimism::Support(99.0), &[0.6, 0.8]), [1.0, f64::NEG_INFINITY, f64::NEG_INFINITY]);
        // Without enough rows behind any, the action with most rows behind it.
        assert_eq!(lowered(Pessimism::Support(1e6), &[0.6, 0.8]), [1.0, f64::NEG_INFINITY, f64::NEG_INFINITY]);
    }

    #[test]
    fn rules_have_texts() {
        for text in ["none", "lcb:1.5", "support:5"] {
            assert_eq!(text.parse::<Pessimism>().unwrap().to_string(), text);
        }
        for text in ["", "lcb", "lcb:-1", "support:x", "support:0", "other:1", "lcb:inf"] {
            assert!(text.parse::<Pessimism>().is_err(), "{text}");
        }
    }
}
