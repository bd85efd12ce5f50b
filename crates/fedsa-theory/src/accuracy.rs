//! The accuracy of a predicted mean-square error.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The accuracy of a predicted mean-square error. As text: `exact`, `closure, eps² = 0.02`, `leading order`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "kebab-case")]
pub enum Accuracy {
    /// Exact up to rounding.
    Exact,
    /// From the closure of [`super::markov::closure`], which neglects part of the dependence between agents' chains. Observed relative
    /// errors of floors are at most about `eps_squared`, and usually far smaller.
    Closure {
        /// The indicator eps^2.
        eps_squared: f64,
    },
    /// To leading order in the step size: relative errors are proportional to it, and often of 10 to 50%.
    LeadingOrder,
}

/// Closures with a larger eps^2 get a warning.
pub const DOUBTFUL: f64 = 0.1;

impl Accuracy {
    /// The warning for a number that may be far off.
    pub fn warning(self) -> Option<String> {
        match self {
            Self::Closure { eps_squared } if eps_squared > DOUBTFUL => {
                Some(format!("eps² = {} is above {DOUBTFUL}: the closure may be off by as much", short(eps_squared)))
            }
            _ => None,
        }
    }

    /// The less accurate of the two.
    #[must_use]
    pub fn or_worse(self, other: Self) -> Self {
        match (self, other) {
            (Self::LeadingOrder, _) | (_, Self::LeadingOrder) => Self::LeadingOrder,
            (Self::Closure { eps_squared: a }, Self::Closure { eps_squared: b }) => Self::Closure { eps_squared: a.max(b) },
            (Self::Closure { eps_squared }, _) | (_, Self::Closure { eps_squared }) => Self::Closure { eps_squared },
            _ => Self::Exact,
        }
    }
}

impl fmt::Display for Accuracy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact => f.write_str("exact"),
            Self::Closure { eps_squared } => write!(f, "closure, eps² = {}", short(*eps_squared)),
            Self::LeadingOrder => f.write_str("leading order"),
        }
    }
}

/// A number with two significant digits.
fn short(x: f64) -> String {
    if (1e-3..1e3).contains(&x) {
        let digits = (1 - x.log10().floor() as i32).max(0) as usize;
        format!("{x:.digits$}")
    } else {
        format!("{x:.1e}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_warnings() {
        let closure = |eps_squared| Accuracy::Closure { eps_squared };
        assert_eq!(closure(0.0213).to_string(), "closure, eps² = 0.021");
        assert_eq!(closure(12.3).to_string(), "closure, eps² = 12");
        assert_eq!(closure(3.21e-5).to_string(), "closure, eps² = 3.2e-5");
        assert!(closure(0.09).warning().is_none() && closure(0.11).warning().unwrap().contains("0.11"));
        assert!(Accuracy::Exact.warning().is_none());
        assert_eq!(Accuracy::Exact.or_worse(closure(0.2)).or_worse(closure(0.1)), closure(0.2));
        assert_eq!(closure(0.1).or_worse(Accuracy::LeadingOrder), Accuracy::LeadingOrder);
        let json = serde_json::to_value([Accuracy::Exact, closure(0.5), Accuracy::LeadingOrder]).unwrap();
        let want = serde_json::json!([{"status": "exact"}, {"status": "closure", "eps_squared": 0.5}, {"status": "leading-order"}]);
        assert_eq!(json, want);
    }
}
