//! Clipping: before it sends a vector, an agent shortens it to at most some norm.

use serde::{Deserialize, Serialize};

use super::{Act, Alteration, LinkStage};
use crate::error::{Result, require};
use crate::linalg;
use crate::random::Stream;

/// `x min(1, norm / ||x||)`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Clip {
    /// Largest Euclidean norm.
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))]
    pub norm: f64,
}

impl Clip {
    /// Longer vectors are shortened to this norm.
    pub const fn new(norm: f64) -> Self {
        Self { norm }
    }
}

crate::settings::setters! { Clip {
    with_norm(norm: f64) = norm;
} }

impl LinkStage for Clip {
    fn act(&self) -> Act<'_> {
        Act::Alters(self)
    }
    fn check(&self) -> Result<()> {
        require(self.norm > 0.0 && self.norm.is_finite(), "norm", self.norm, "positive")
    }
}

impl Alteration for Clip {
    fn alter(&self, x: &mut [f64], _: &mut Stream) {
        linalg::shorten(x, self.norm);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_longer_is_shortened_to_the_norm() {
        let clipped = |norm: f64, x: [f64; 2]| {
            let mut x = x;
            Clip::new(norm).alter(&mut x, &mut Stream::default());
            x
        };
        let near = |x: [f64; 2], y: [f64; 2]| x.iter().zip(y).all(|(x, y)| (x - y).abs() <= 1e-15 * y.abs());
        assert!(near(clipped(1.0, [3.0, -4.0]), [0.6, -0.8]));
        assert!(near(clipped(2.0, [3e200, 4e200]), [1.2, 1.6]), "squares overflow");
        assert!(near(clipped(2e-200, [3e-190, 4e-190]), [1.2e-200, 1.6e-200]), "squares underflow");
        // No component is longer than 1, and the vector is.
        assert!(near(clipped(1.0, [0.96, 0.72]), [0.8, 0.6]));
        for kept in [[0.6, -0.8], [0.0, 0.0], [5e-324, 0.0]] {
            assert_eq!(clipped(1.001, kept), kept);
        }
        assert_eq!(clipped(1.0, [f64::INFINITY, 0.0])[0], f64::INFINITY, "a run that diverges is seen to");
        assert!(Clip::new(0.0).check().is_err() && Clip::new(f64::INFINITY).check().is_err() && Clip::new(2.0).check().is_ok());
    }
}
