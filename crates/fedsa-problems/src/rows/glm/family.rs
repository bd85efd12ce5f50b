//! Families of generalised linear models, and other losses of the linear predictors of a row.
//!
//! A row has the data x, the target y, the offset o and the weight a. Its loss is `a l(eta, y)` with the predictors `eta = x^T theta + o`:
//! one number, or K - 1 numbers for K classes. Without a dispersion, l is the negative log-likelihood, up to terms without theta.

use serde::{Deserialize, Serialize};

use crate::kernel::elementary::{exp_below, log_one_plus};
use crate::rows::regression::loss::{LogLoss, Loss};

/// A family with its link, or another loss.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ModelFamily {
    /// `mu = eta`, `l = (eta - y)^2 / 2`.
    Gaussian,
    /// `P(y = 1) = 1 / (1 + exp(-eta))` with targets of -1 and 1, `l = log(1 + exp(-y eta))`.
    Binomial,
    /// Counts with the variance mu: `mu = exp(eta)`, `l = mu - y eta`.
    Poisson,
    /// Positive numbers with the variance `phi mu^2`: `mu = exp(eta)`, `l = y / mu + eta`. The link is not canonical.
    Gamma,
    /// Counts with the variance `mu + alpha mu^2`, alpha given: `mu = exp(eta)`, `l = (y + 1/alpha) log(1 + alpha mu) - y eta`. The link is
    /// not canonical.
    NegativeBinomial {
        /// alpha, positive.
        dispersion: f64,
    },
    /// The classes 0, 1, .., K - 1 with `P(k) = exp(eta_k) / sum_j exp(eta_j)` and `eta_0 = 0`: class 0 is the reference.
    Multinomial {
        /// K, at least 2.
        classes: usize,
    },
    /// Huber's loss of the residual `r = eta - y`: `r^2 / 2` up to delta, `delta |r| - delta^2 / 2` beyond it. It has no likelihood.
    Huber {
        /// delta, positive, in units of the target.
        delta: f64,
    },
}

/// The names of families.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "Family"))]
#[serde(rename_all = "kebab-case")]
pub enum FamilyName {
    /// Constant variance, identity link: least squares.
    Gaussian,
    /// Two classes, logit link: logistic regression.
    #[default]
    Binomial,
    /// Counts, log link.
    Poisson,
    /// Positive numbers, constant coefficient of variation, log link.
    Gamma,
    /// Overdispersed counts, log link.
    NegativeBinomial,
    /// Several classes against a reference, logit link.
    Multinomial,
    /// Numbers with outliers: Huber's loss.
    Huber,
}

/// A row's contribution to deviance, Pearson's statistic and log-likelihood.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RowFit {
    /// `a` times the unit deviance.
    pub deviance: f64,
    /// `a (y - mu)^2 / V(mu)`.
    pub pearson: f64,
    /// The log-likelihood; for gamma `-a (y / mu + eta)`, for Gaussian 0.
    pub likelihood: f64,
    /// For gamma `a log(y)`, for Gaussian `log(a)`; otherwise 0.
    pub log: f64,
}

/// `exp(x)` with the same bits on every platform.
#[inline(always)]
fn exp(x: f64) -> f64 {
    if x <= 0.0 { exp_below(x) } else { 1.0 / exp_below(-x) }
}

/// `log(1 + exp(x))` without overflow.
#[inline(always)]
fn softplus(x: f64) -> f64 {
    x.max(0.0) + log_one_plus(exp_below(-x.abs()))
}

/// `log(x)` for x at least 1, with the same bits on every platform.
#[inline(always)]
fn log_above(mut x: f64) -> f64 {
    let mut halvings = 0.0;
    while x > 2.0 && x.is_finite() {
        (x, halvings) = (0.5 * x, halvings + 1.0);
    }
    f64::mul_add(halvings, std::f64::consts::LN_2, log_one_plus(x - 1.0))
}

/// Whether a number is a valid target of a family.
type IsTarget = fn(f64) -> bool;

impl ModelFamily {
    /// The number of predictors of a row: K - 1 for K classes, otherwise 1.
    pub fn outputs(&self) -> usize {
        match self {
            ModelFamily::Multinomial { classes } => classes - 1,
            _ => 1,
        }
    }

    /// The name in experiment files.
    pub fn name(&self) -> &'static str {
        match self {
            ModelFamily::Gaussian => "gaussian",
            ModelFamily::Binomial => "binomial",
            ModelFamily::Poisson => "poisson",
            ModelFamily::Gamma => "gamma",
            ModelFamily::NegativeBinomial { .. } => "negative-binomial",
            ModelFamily::Multinomial { .. } => "multinomial",
            ModelFamily::Huber { .. } => "huber",
        }
    }

    /// Whether there is a likelihood, which inference needs.
    pub fn has_likelihood(&self) -> bool {
        !matches!(self, ModelFamily::Huber { .. })
    }

    /// Whether the dispersion is estimated, by Pearson's statistic over n - p; otherwise it is 1.
    pub fn has_dispersion(&self) -> bool {
        matches!(self, ModelFamily::Gaussian | ModelFamily::Gamma)
    }

    /// Whether l'' does not depend on y, so that observed and expected information are equal.
    pub fn is_canonical(&self) -> bool {
        !matches!(self, ModelFamily::Gamma | ModelFamily::NegativeBinomial { .. })
    }

    /// Whether the mean of a target is `exp(eta)`.
    pub fn has_log_link(&self) -> bool {
        matches!(self, ModelFamily::Poisson | ModelFamily::Gamma | ModelFamily::NegativeBinomial { .. })
    }

    /// The mean mu of a target with one predictor; for the binomial family, the probability of the positive class.
    pub fn mean(&self, eta: f64) -> f64 {
        match self {
            ModelFamily::Gaussian | ModelFamily::Huber { .. } => eta,
            ModelFamily::Binomial | ModelFamily::Multinomial { .. } => LogLoss::pull(-eta),
            ModelFamily::Poisson | ModelFamily::Gamma | ModelFamily::NegativeBinomial { .. } => exp(eta),
        }
    }

    /// The class of greatest probability, the first one among ties; 0 is the reference.
    pub fn likeliest(&self, eta: &[f64]) -> usize {
        let (mut best, mut most) = (0, 0.0);
        for (k, t) in eta.iter().enumerate() {
            if *t > most {
                (best, most) = (k + 1, *t);
            }
        }
        best
    }

    /// The check of a target, and its domain in words.
    pub(crate) fn domain(&self) -> Option<(IsTarget, &'static str)> {
        match self {
            ModelFamily::Poisson | ModelFamily::NegativeBinomial { .. } => Some((|y| y >= 0.0, "numbers of at least 0, such as counts")),
            ModelFamily::Gamma => Some((|y| y > 0.0, "positive numbers")),
            _ => None,
        }
    }

    /// `l(eta, y)`; eta has [`ModelFamily::outputs`] numbers.
    #[inline(always)]
    pub fn value(&self, eta: &[f64], y: f64) -> f64 {
        let t = eta[0];
        match *self {
            ModelFamily::Gaussian => 0.5 * (t - y) * (t - y),
            ModelFamily::Binomial => LogLoss::value(y * t),
            ModelFamily::Poisson => exp(t) - y * t,
            ModelFamily::Gamma => y * exp(-t) + t,
            ModelFamily::NegativeBinomial { dispersion: alpha } => f64::mul_add(y + 1.0 / alpha, softplus(t + alpha.ln()), -y * t),
            ModelFamily::Multinomial { .. } => {
                // The largest term, 1, is left out of the sum so that small losses keep their digits.
                let likeliest = self.likeliest(eta);
                let top = if likeliest == 0 { 0.0 } else { eta[likeliest - 1] };
                let others = eta.iter().enumerate().filter(|(k, _)| k + 1 != likeliest).map(|(_, t)| exp_below(t - top)).sum::<f64>();
                let rest = others + if likeliest == 0 { 0.0 } else { exp_below(-top) };
                let own = if y > 0.0 { eta[y as usize - 1] } else { 0.0 };
                (top - own) + if rest <= 1.0 { log_one_plus(rest) } else { log_above(1.0 + rest) }
            }
            ModelFamily::Huber { delta } => {
                let r = (t - y).abs();
                if r <= delta { 0.5 * r * r } else { delta * (r - 0.5 * delta) }
            }
        }
    }

    /// `out = -dl/d eta`; for likelihoods `(y - mu) mu' / V(mu)`.
    #[inline(always)]
    pub fn pull(&self, eta: &[f64], y: f64, out: &mut [f64]) {
        let t = eta[0];
        out[0] = match *self {
            ModelFamily::Gaussian => y - t,
            ModelFamily::Binomial => y * LogLoss::pull(y * t),
            ModelFamily::Poisson => y - exp(t),
            ModelFamily::Gamma => f64::mul_add(y, exp(-t), -1.0),
            ModelFamily::NegativeBinomial { dispersion: alpha } => {
                // (y - mu) / (1 + alpha mu), with mu / (1 + alpha mu) computed from its logarithm.
                let s = softplus(t + alpha.ln());
                f64::mul_add(y, exp_below(-s), -exp(t - s))
            }
            ModelFamily::Multinomial { .. } => {
                probabilities(eta, out);
                out.iter_mut().for_each(|p| *p = -*p);
                if y > 0.0 {
                    out[y as usize - 1] += 1.0;
                }
                return;
            }
            ModelFamily::Huber { delta } => (y - t).clamp(-delta, delta),
        };
    }

    /// Writes the second derivatives of l by eta, row by row: the observed information of a data row.
    #[inline(always)]
    pub fn bend(&self, eta: &[f64], y: f64, out: &mut [f64]) {
        let t = eta[0];
        out[0] = match *self {
            ModelFamily::Gaussian => 1.0,
            ModelFamily::Binomial => LogLoss::bend(t),
            ModelFamily::Poisson => exp(t),
            ModelFamily::Gamma => y * exp(-t),
            ModelFamily::NegativeBinomial { dispersion: alpha } => {
                let s = softplus(t + alpha.ln());
                f64::mul_add(alpha, y, 1.0) * exp(t - s) * exp_below(-s)
            }
            ModelFamily::Multinomial { .. } => return Self::class_bends(eta, out),
            ModelFamily::Huber { delta } => f64::from((t - y).abs() <= delta),
        };
    }

    /// Writes the second derivatives of a quadratic function of eta that touches l at eta and majorises it, for losses whose second
    /// derivative may vanish. For Huber's loss it is `min(1, t / |r|)` (iteratively reweighted least squares), otherwise the derivatives of
    /// l.
    #[inline(always)]
    pub(crate) fn majorant(&self, eta: &[f64], y: f64, out: &mut [f64]) {
        match *self {
            ModelFamily::Huber { delta } => out[0] = (delta / (eta[0] - y).abs()).min(1.0),
            _ => self.bend(eta, y, out),
        }
    }

    /// Writes the expected second derivatives, `mu'^2 / V(mu)`.
    #[inline(always)]
    pub fn expected(&self, eta: &[f64], y: f64, out: &mut [f64]) {
        match *self {
            ModelFamily::Gamma => out[0] = 1.0,
            ModelFamily::NegativeBinomial { dispersion: alpha } => out[0] = exp(eta[0] - softplus(eta[0] + alpha.ln())),
            _ => self.bend(eta, y, out),
        }
    }

    /// `diag(p) - p p^T`.
    #[inline(always)]
    fn class_bends(eta: &[f64], out: &mut [f64]) {
        let q = eta.len();
        let mut p = vec![0.0; q];
        probabilities(eta, &mut p);
        for i in 0..q {
            for j in 0..q {
                out[i * q + j] = if i == j { p[i] * (1.0 - p[i]) } else { -p[i] * p[j] };
            }
        }
    }

    /// The contribution of a row of weight a > 0 to deviance, Pearson's statistic and log-likelihood.
    pub fn row_fit(&self, eta: &[f64], y: f64, a: f64) -> RowFit {
        let t = eta[0];
        let log_ratio = |mu: f64| if y > 0.0 { y * (y / mu).ln() } else { 0.0 };
        let (deviance, pearson, likelihood, log) = match *self {
            ModelFamily::Gaussian => ((y - t).powi(2), (y - t).powi(2), 0.0, a.ln() / a),
            ModelFamily::Binomial => {
                let loss = LogLoss::value(y * t);
                (2.0 * loss, exp(-y * t), -loss, 0.0)
            }
            ModelFamily::Poisson => {
                let mu = exp(t);
                let deviance = 2.0 * (log_ratio(mu) - (y - mu));
                (deviance, (y - mu).powi(2) / mu, y * t - mu - libm::lgamma(y + 1.0), 0.0)
            }
            ModelFamily::Gamma => {
                let ratio = y * exp(-t);
                (2.0 * (ratio - 1.0 - ratio.ln()), (ratio - 1.0).powi(2), -(ratio + t), y.ln())
            }
            ModelFamily::NegativeBinomial { dispersion: alpha } => {
                let (mu, k) = (exp(t), 1.0 / alpha);
                let deviance = 2.0 * (log_ratio(mu) - (y + k) * (alpha * (y - mu) / f64::mul_add(alpha, mu, 1.0)).ln_1p());
                // log(1 + alpha mu); for small alpha, its logarithm would lose digits.
                let spread = if alpha * mu < 1.0 { (alpha * mu).ln_1p() } else { softplus(t + alpha.ln()) };
                let likelihood = log_rising(y, k) - libm::lgamma(y + 1.0) + y * t - (y + k) * spread;
                (deviance, (y - mu).powi(2) / (mu * f64::mul_add(alpha, mu, 1.0)), likelihood, 0.0)
            }
            ModelFamily::Multinomial { .. } => {
                let loss = self.value(eta, y);
                (2.0 * loss, exp(loss) - 1.0, -loss, 0.0)
            }
            ModelFamily::Huber { .. } => (2.0 * self.value(eta, y), f64::NAN, f64::NAN, 0.0),
        };
        RowFit { deviance: a * deviance, pearson: a * pearson, likelihood: a * likelihood, log: a * log }
    }

    /// The log-likelihood of n rows from the sums of their contributions and of their weights. The dispersion of Gaussian is deviance / n,
    /// and a row of weight a has the variance phi / a. The dispersion of gamma is deviance / (sum of weights), and a row's log-density
    /// counts a times. Both agree with R (`gaussian()$aic`, `Gamma()$aic`).
    pub fn log_likelihood(&self, sums: &RowFit, n: f64, weights: f64) -> f64 {
        match self {
            ModelFamily::Gaussian => {
                let phi = sums.deviance / n;
                -0.5 * (n * ((2.0 * std::f64::consts::PI * phi).ln() + 1.0) - sums.log)
            }
            ModelFamily::Gamma => {
                let k = weights / sums.deviance;
                f64::mul_add(k, sums.likelihood, (k - 1.0) * sums.log) + weights * (k * k.ln() - libm::lgamma(k))
            }
            _ => sums.likelihood,
        }
    }
}

/// `lgamma(y + k) - lgamma(k) - y log(k)` without the cancellation of a large k; for whole y the sum of `log(1 + j / k)` over j < y.
fn log_rising(y: f64, k: f64) -> f64 {
    /// From here on, the terms below leave less than 1e-15 of Stirling's series.
    const LARGE: f64 = 10.0;
    if k < LARGE {
        return libm::lgamma(y + k) - libm::lgamma(k) - y * k.ln();
    }
    let series = |z: f64| {
        let terms = [1.0 / 12.0, -1.0 / 360.0, 1.0 / 1260.0, -1.0 / 1680.0, 1.0 / 1188.0, -691.0 / 360_360.0];
        terms.iter().rev().fold(0.0, |sum, term| sum / (z * z) + term) / z
    };
    (y + k - 0.5) * (y / k).ln_1p() - y + (series(y + k) - series(k))
}

/// `P(k)` of all classes except the reference.
#[inline(always)]
fn probabilities(eta: &[f64], out: &mut [f64]) {
    let top = eta.iter().fold(0.0, |a: f64, b| a.max(*b));
    out.iter_mut().zip(eta).for_each(|(p, t)| *p = exp_below(t - top));
    let total = out.iter().sum::<f64>() + exp_below(-top);
    out.iter_mut().for_each(|p| *p /= total);
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [(ModelFamily, [f64; 3]); 7] = [
        (ModelFamily::Gaussian, [-1.3, 0.0, 2.5]),
        (ModelFamily::Binomial, [-1.0, 1.0, 1.0]),
        (ModelFamily::Poisson, [0.0, 1.0, 7.0]),
        (ModelFamily::Gamma, [0.2, 1.0, 9.0]),
        (ModelFamily::NegativeBinomial { dispersion: 0.7 }, [0.0, 1.0, 7.0]),
        (ModelFamily::Multinomial { classes: 3 }, [0.0, 1.0, 2.0]),
        (ModelFamily::Huber { delta: 0.8 }, [-1.3, 0.1, 2.5]),
    ];

    #[test]
    fn derivatives_are_differences_of_losses() {
        for (family, targets) in ALL {
            let q = family.outputs();
            for y in targets {
                for t in [-4.0, -0.3, 0.6, 3.0] {
                    let eta: Vec<f64> = (0..q).map(|k| t - 0.9 * k as f64).collect();
                    let (mut pull, mut bend, h) = (vec![0.0; q], vec![0.0; q * q], 1e-5);
                    family.pull(&eta, y, &mut pull);
                    family.bend(&eta, y, &mut bend);
                    for k in 0..q {
                        let at = |s: f64| eta.iter().enumerate().map(|(i, t)| if i == k { t + s } else { *t }).collect::<Vec<_>>();
                        let slope = (family.value(&at(h), y) - family.value(&at(-h), y)) / (2.0 * h);
                        assert!((slope + pull[k]).abs() < 1e-7 * (1.0 + slope.abs()), "{family:?} {y} {t}: {slope} {}", pull[k]);
                        let (mut above, mut below) = (vec![0.0; q], vec![0.0; q]);
                        family.pull(&at(h), y, &mut above);
                        family.pull(&at(-h), y, &mut below);
                        for i in 0..q {
                            let slope = (below[i] - above[i]) / (2.0 * h);
                            assert!((slope - bend[i * q + k]).abs() < 1e-7 * (1.0 + slope.abs()), "{family:?} {y} {t}");
                        }
                    }
                }
            }
        }
    }

    /// The expected second derivative is the mean of the observed one over the law of y.
    #[test]
    fn expected_information_is_the_mean_of_the_observed_one() {
        let family = ModelFamily::NegativeBinomial { dispersion: 0.5 };
        let (t, k) = (0.7f64, 2.0);
        let (mu, mut mean, mut bend) = (t.exp(), 0.0, [0.0]);
        for y in 0..400 {
            let y = f64::from(y);
            let mass =
                (libm::lgamma(y + k) - libm::lgamma(k) - libm::lgamma(y + 1.0) + y * (mu / (mu + k)).ln() + k * (k / (mu + k)).ln()).exp();
            family.bend(&[t], y, &mut bend);
            mean += mass * bend[0];
            // The likelihood is the logarithm of this mass.
            assert!((family.row_fit(&[t], y, 1.0).likelihood - mass.ln()).abs() < 1e-10 * (1.0 + y), "{y}");
        }
        family.expected(&[t], 0.0, &mut bend);
        assert!((mean - bend[0]).abs() < 1e-12, "{mean} {}", bend[0]);
        // Gamma: the mean of y / mu is 1.
        ModelFamily::Gamma.expected(&[t], 3.0, &mut bend);
        assert_eq!(bend, [1.0]);
    }

    #[test]
    fn large_predictors_do_not_overflow() {
        for (family, targets) in ALL {
            let q = family.outputs();
            for t in [-700.0, 700.0] {
                let (mut pull, mut bend) = (vec![0.0; q], vec![0.0; q * q]);
                family.pull(&vec![t; q], targets[1], &mut pull);
                family.bend(&vec![t; q], targets[1], &mut bend);
                let value = family.value(&vec![t; q], targets[1]);
                assert!(value.is_finite() && pull.iter().chain(&bend).all(|x| x.is_finite()), "{family:?} {t}: {value} {pull:?} {bend:?}");
            }
        }
    }

    #[test]
    fn two_classes_are_the_binomial_family() {
        let two = ModelFamily::Multinomial { classes: 2 };
        for t in [-20.0, -0.4, 3.0] {
            for (class, sign) in [(0.0, -1.0), (1.0, 1.0)] {
                let (a, b) = (two.row_fit(&[t], class, 1.5), ModelFamily::Binomial.row_fit(&[t], sign, 1.5));
                assert!((a.deviance / b.deviance - 1.0).abs() < 1e-14 && (a.pearson / b.pearson - 1.0).abs() < 1e-6, "{a:?} {b:?}");
            }
        }
    }

    /// The mass `prod_{j < y} (1 + j alpha) mu^y / (y! (1 + alpha mu)^(y + 1/alpha))` of the law, by logarithms of its factors.
    #[test]
    fn the_negative_binomial_likelihood_keeps_its_digits_at_every_alpha() {
        for alpha in [1e-300, 1e-15, 1e-12, 1e-8, 1e-4, 0.01, 0.09, 0.1, 0.11, 0.7, 5.0, 1e3, 1e8] {
            let family = ModelFamily::NegativeBinomial { dispersion: alpha };
            for t in [-2.0f64, 0.3, 3.0] {
                for y in [0u32, 1, 2, 17, 400] {
                    let (mu, n) = (t.exp(), f64::from(y));
                    let rising: f64 = (0..y).map(|j| (f64::from(j) * alpha).ln_1p() - f64::from(j + 1).ln()).sum();
                    // (1/alpha) log(1 + alpha mu) is mu for tiny alpha.
                    let spread = if alpha < 1e-200 { mu } else { (alpha * mu).ln_1p() / alpha };
                    let expected = rising + n * t - n * (alpha * mu).ln_1p() - spread;
                    let got = family.row_fit(&[t], n, 1.0).likelihood;
                    assert!((got - expected).abs() <= 2e-13 * (1.0 + n * n.max(2.0).ln()), "{alpha:e}, {t}, {y}: {got} {expected}");
                }
            }
        }
    }

    /// Against explicit laws: the deviance is twice the log-mass lost compared with a mean of y, and Pearson's statistic is the squared
    /// residual divided by the variance.
    #[test]
    fn row_fits_follow_from_laws() {
        let close = |got: f64, expected: f64, what: &str| {
            assert!((got - expected).abs() <= 1e-9 * (1.0 + expected.abs()), "{what}: {got} {expected}");
        };
        const ALPHA: f64 = 0.7;
        let steps = |y: f64| (0..y as u32).map(f64::from);
        let poisson = |y: f64, mu: f64| steps(y).map(|j| (mu / (j + 1.0)).ln()).sum::<f64>() - mu;
        let negative = |y: f64, mu: f64| {
            let k = 1.0 / ALPHA;
            steps(y).map(|j| ((j + k) / (j + 1.0) * mu / (mu + k)).ln()).sum::<f64>() + k * (k / (mu + k)).ln()
        };
        // An exponential law is a gamma law of shape 1.
        let exponential = |y: f64, mu: f64| -mu.ln() - y / mu;
        type LogMass<'a> = &'a dyn Fn(f64, f64) -> f64;
        type Case<'a> = (ModelFamily, LogMass<'a>, fn(f64) -> f64);
        let cases: [Case<'_>; 3] = [
            (ModelFamily::Poisson, &poisson, |mu| mu),
            (ModelFamily::NegativeBinomial { dispersion: ALPHA }, &negative, |mu| mu + ALPHA * mu * mu),
            (ModelFamily::Gamma, &exponential, |mu| mu * mu),
        ];
        for (family, log_mass, variance) in cases {
            for t in [-1.2f64, 0.4, 2.1] {
                for y in [0.0, 1.0, 2.0, 9.0] {
                    if y == 0.0 && family == ModelFamily::Gamma {
                        continue;
                    }
                    let (mu, what) = (t.exp(), format!("{family:?}, {t}, {y}"));
                    let fit = family.row_fit(&[t], y, 1.5);
                    close(fit.deviance, 3.0 * (log_mass(y, y.max(1e-300)) - log_mass(y, mu)), &what);
                    close(fit.pearson, 1.5 * (y - mu).powi(2) / variance(mu), &what);
                    close(fit.likelihood, 1.5 * log_mass(y, mu), &what);
                    close(fit.log, if family == ModelFamily::Gamma { 1.5 * y.ln() } else { 0.0 }, &what);
                }
            }
        }
        let family = ModelFamily::Multinomial { classes: 3 };
        for eta in [[0.3f64, -1.1], [2.0, 2.5], [-3.0, 0.1]] {
            let total = 1.0 + eta[0].exp() + eta[1].exp();
            let p = [1.0 / total, eta[0].exp() / total, eta[1].exp() / total];
            for y in 0..3 {
                let fit = family.row_fit(&eta, y as f64, 1.5);
                let pearson: f64 = (0..3).map(|k| (f64::from(k == y) - p[k]).powi(2) / p[k]).sum();
                close(fit.deviance, -3.0 * p[y].ln(), "deviance");
                close(fit.pearson, 1.5 * pearson, "pearson");
                close(fit.likelihood, 1.5 * p[y].ln(), "likelihood");
            }
        }
    }
}
