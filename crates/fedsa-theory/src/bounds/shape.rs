//! Statements with constants that are not known.

use serde::Serialize;

use super::Assumption;
use fedsa::error::{Result, require};

/// A bound `C_rate exp(-rate t) + sum C_k floor_k` with unknown factors C. What it predicts is how its parts change with the settings.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BoundShape {
    /// The statement in its source.
    pub statement: &'static str,
    /// The exponent of a round up to a factor: the error at the start falls as `exp(-rate t)`.
    pub rate: f64,
    /// The parts of the floor up to a factor each; the first is the leading one.
    pub floor: Vec<super::Term>,
    /// The conditions of the statement. Limits with unknown factors are left out.
    pub assumptions: Vec<Assumption>,
}

impl BoundShape {
    /// The leading part of the floor.
    pub fn leading(&self) -> f64 {
        self.floor.first().map_or(0.0, |term| term.value)
    }
}

/// `measured = constant shape^slope`, fitted to points by least squares of logarithms. A shape that is right has the slope 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ShapeFit {
    /// The slope of the logarithms.
    pub slope: f64,
    /// The factor.
    pub constant: f64,
    /// The largest `|measured / fitted - 1|`.
    pub residual: f64,
}

impl ShapeFit {
    /// The fit to pairs (shape, measured).
    ///
    /// # Errors
    /// When there are fewer than two points, a number is not positive, or all shapes are equal.
    pub fn new(points: &[(f64, f64)]) -> Result<Self> {
        require(points.len() >= 2, "points", points.len(), "at least 2")?;
        for (x, y) in points {
            let are_positive = *x > 0.0 && *y > 0.0 && x.is_finite() && y.is_finite();
            require(are_positive, "points", format!("({x}, {y})"), "positive numbers")?;
        }
        let n = points.len() as f64;
        let (mx, my) = points.iter().fold((0.0, 0.0), |(mx, my), (x, y)| (mx + x.ln() / n, my + y.ln() / n));
        let (mut sxx, mut sxy) = (0.0, 0.0);
        for (x, y) in points {
            sxx += (x.ln() - mx).powi(2);
            sxy += (x.ln() - mx) * (y.ln() - my);
        }
        require(sxx > 0.0, "points", "one shape", "shapes that differ")?;
        let slope = sxy / sxx;
        let constant = (my - slope * mx).exp();
        let residual = points.iter().map(|(x, y)| (y / (constant * x.powf(slope)) - 1.0).abs()).fold(0.0, f64::max);
        Ok(Self { slope, constant, residual })
    }

    /// The fitted value at a shape.
    pub fn at(&self, shape: f64) -> f64 {
        self.constant * shape.powf(self.slope)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_power_law_is_found() {
        let law = |x: f64| 3.0 * x.powf(-0.7);
        let points: Vec<(f64, f64)> = [0.1, 0.5, 2.0, 30.0].map(|x| (x, law(x))).to_vec();
        let fit = ShapeFit::new(&points).unwrap();
        assert!((fit.slope + 0.7).abs() < 1e-12 && (fit.constant - 3.0).abs() < 1e-12 && fit.residual < 1e-12);
        assert!((fit.at(7.0) - law(7.0)).abs() < 1e-12);
        for bad in [&points[..1], &[(1.0, 1.0), (1.0, 2.0)], &[(1.0, 0.0), (2.0, 1.0)], &[(1.0, f64::NAN), (2.0, 1.0)]] {
            assert_eq!(ShapeFit::new(bad).unwrap_err().key, "points");
        }
    }
}
