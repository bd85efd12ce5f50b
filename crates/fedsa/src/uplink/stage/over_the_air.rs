//! Over-the-air computation (\[T\] eq. 4.4): `v = (1/N) sum h_i g_i + w`.
//!
//! The gains `h_i` are independent over agents and exchanges; `w ~ N(0, s_w^2 / N^2 I)`, N the number of participants. The server gets only
//! the sum.

use serde::{Deserialize, Serialize};

use super::{Act, Channel, GainLaw, LinkStage};
use crate::error::{Result, require};
use crate::random::Stream;

/// Analogue messages: the server gets only their sum.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct OverTheAir {
    /// Law of channel gains.
    #[serde(default, deserialize_with = "crate::registry::table")]
    pub gain: Gain,
    /// Standard deviation `s_w` of receiver noise.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub receiver_noise: f64,
}

impl Default for OverTheAir {
    /// Gains of the default law, no noise.
    fn default() -> Self {
        Self { gain: Gain::default(), receiver_noise: 0.0 }
    }
}

crate::settings::setters! { OverTheAir {
    with_gain(gain: Gain) = gain;
    with_receiver_noise(receiver_noise: f64) = receiver_noise;
} }

/// The law of a channel's gain h.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "law", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Gain {
    /// `h = scale sqrt(x^2 + y^2)`, x, y standard normal.
    Rayleigh {
        /// `sqrt(2/pi)` by default: mean 1.
        #[serde(default = "unit_mean")]
        #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))]
        scale: f64,
    },
    /// `h = sqrt((line_of_sight + scale x)^2 + (scale y)^2)`.
    Rician {
        /// Amplitude of the direct path.
        #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
        line_of_sight: f64,
        /// Scale of the scattered paths.
        #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))]
        scale: f64,
    },
    /// Always the same.
    Constant {
        /// h.
        #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))]
        value: f64,
    },
}

fn unit_mean() -> f64 {
    (2.0 / std::f64::consts::PI).sqrt()
}

impl Default for Gain {
    fn default() -> Self {
        Gain::Rayleigh { scale: unit_mean() }
    }
}

impl Gain {
    fn draw(&self, stream: &mut Stream) -> f64 {
        match *self {
            Gain::Rayleigh { scale } => scale * stream.normal().hypot(stream.normal()),
            Gain::Rician { line_of_sight, scale } => (line_of_sight + scale * stream.normal()).hypot(scale * stream.normal()),
            Gain::Constant { value } => value,
        }
    }

    /// `E h` and `E h^2`.
    pub fn moments(&self) -> (f64, f64) {
        match *self {
            Gain::Rayleigh { scale } => (scale * (std::f64::consts::PI / 2.0).sqrt(), 2.0 * scale * scale),
            Gain::Rician { line_of_sight, scale } => {
                (rician_mean(line_of_sight, scale), line_of_sight * line_of_sight + 2.0 * scale * scale)
            }
            Gain::Constant { value } => (value, value * value),
        }
    }
}

/// `scale sqrt(pi/2) 1F1(-1/2; 1; -K)` with `K = line_of_sight^2 / (2 scale^2)`: for K < 100 as `e^-K sum_n (3/2)_n K^n / n!^2`, with
/// positive terms (Kummer); above, by the asymptotic series `line_of_sight sum_n ((-1/2)_n)^2 / (n! K^n)`, whose terms fall below 1e-16.
fn rician_mean(line_of_sight: f64, scale: f64) -> f64 {
    let k = (line_of_sight / scale).powi(2) / 2.0;
    let (mut term, mut sum) = (1.0, 1.0);
    if k >= 100.0 {
        for n in 0..8 {
            let n = f64::from(n);
            term *= (n - 0.5).powi(2) / ((n + 1.0) * k);
            sum += term;
        }
        return line_of_sight * sum;
    }
    // The terms grow up to n = K and are below 1e-30 of the sum at n = 400.
    for n in 0..400 {
        let n = f64::from(n);
        term *= (n + 1.5) * k / ((n + 1.0) * (n + 1.0));
        sum += term;
    }
    scale * (std::f64::consts::PI / 2.0).sqrt() * (-k).exp() * sum
}

impl LinkStage for OverTheAir {
    fn act(&self) -> Act<'_> {
        Act::AddsUp { channel: self, receiver_noise: self.receiver_noise }
    }
    fn check(&self) -> Result<()> {
        let positive = |x: f64| x > 0.0 && x.is_finite();
        let (key, x, ok, accepted) = match self.gain {
            Gain::Rayleigh { scale } => ("gain.scale", scale, positive(scale), "positive"),
            Gain::Rician { line_of_sight, scale } if line_of_sight >= 0.0 => ("gain.scale", scale, positive(scale), "positive"),
            Gain::Rician { line_of_sight, .. } => ("gain.line_of_sight", line_of_sight, false, "at least 0"),
            Gain::Constant { value } => ("gain.value", value, positive(value), "positive"),
        };
        require(ok, key, x, accepted)?;
        let noise = self.receiver_noise;
        require(noise >= 0.0 && noise.is_finite(), "receiver_noise", noise, "a standard deviation, at least 0")
    }
}

impl Channel for OverTheAir {
    fn gain(&self, _: &mut [u64], stream: &mut Stream) -> f64 {
        self.gain.draw(stream)
    }
    fn gain_law(&self) -> GainLaw {
        GainLaw { moments: Some(self.gain.moments()), share_arriving: 1.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `E |nu + s (x + iy)|` by polar coordinates: Simpson's rule over the modulus, the trapezoidal rule over the angle.
    fn by_quadrature(nu: f64, s: f64) -> f64 {
        let (points, angles, reach) = (4000, 400, 12.0);
        let step = reach / f64::from(points);
        let mut total = 0.0;
        for i in 0..=points {
            let r = f64::from(i) * step;
            let weight = if i == 0 || i == points { 1.0 } else { 2.0 * f64::from(1 + i % 2) };
            let mean = (0..angles).map(|a| {
                let phi = std::f64::consts::TAU * f64::from(a) / f64::from(angles);
                (nu + s * r * phi.cos()).hypot(s * r * phi.sin())
            });
            total += weight * step / 3.0 * r * (-r * r / 2.0).exp() * mean.sum::<f64>() / f64::from(angles);
        }
        total
    }

    #[test]
    fn moments_of_gains_are_those_of_their_laws() {
        for (nu, s) in [(0.0, 1.0), (0.3, 1.0), (0.9, 0.3), (2.0, 0.5), (14.0, 1.0), (14.2, 1.0), (30.0, 1.0)] {
            let (mean, square) = Gain::Rician { line_of_sight: nu, scale: s }.moments();
            let wanted = by_quadrature(nu, s);
            // The angle's integrand has a kink where the direct path is met; elsewhere both rules are exact to rounding.
            assert!((mean / wanted - 1.0).abs() < 1e-6, "{nu} {s}: {mean} {wanted}");
            assert!((square - (nu * nu + 2.0 * s * s)).abs() < 1e-12 * square);
        }
        let rayleigh = Gain::default().moments();
        let rician = Gain::Rician { line_of_sight: 0.0, scale: unit_mean() }.moments();
        assert!((rayleigh.0 - 1.0).abs() < 1e-15 && (rician.0 - rayleigh.0).abs() < 1e-14 && (rician.1 - rayleigh.1).abs() < 1e-14);
        // Both series meet.
        let [below, above] = [99.999_999, 100.0].map(|k: f64| rician_mean((2.0 * k).sqrt(), 1.0) / (2.0 * k).sqrt());
        assert!((below - above).abs() < 1e-9, "{below} {above}");
    }
}
