//! Generalised linear models beside their formulas, written out for rows with offsets and weights: losses, gradients, Hessians, standard errors,
//! deviance. References of other programs are in `glm.rs`.

use faer::Mat;

use crate::common::Sets;
use crate::glm::{base, table, u};
use fedsa::cancel::Cancel;
use fedsa::kernel::Isa;
use fedsa::linalg;
use fedsa::sampling::{Law, Sampling};
use fedsa_evaluate::inference::{CovarianceKind, InferenceSettings, infer};
use fedsa_problems::ProblemSettings;
use fedsa_problems::rows::dataset::{Dataset, Labels, Rows};
use fedsa_problems::rows::glm::family::FamilyName;
use fedsa_problems::rows::regression::GeneralisedLinear;

/// The settings that [`base`] has.
const ALPHA: f64 = 0.8;
const THRESHOLD: f64 = 1.2;
/// The features: x1, x2, x3, and the column of ones.
const D: usize = 4;

/// A row: its features, offset, weight, target and agent.
struct Row {
    x: [f64; D],
    offset: f64,
    weight: f64,
    y: f64,
    agent: usize,
}

/// The problem of a family with offsets and row weights, its data, and the same as rows.
fn case(family: FamilyName) -> (GeneralisedLinear, Dataset, Vec<Row>) {
    let mut set = table(family);
    let (Rows::Dense { values, .. }, Some(Labels::Numbers(y)), Some(Labels::Numbers(agents))) = (&set.rows, &set.targets, &set.groups)
    else {
        unreachable!()
    };
    let weight = |j: usize| 0.5 + u(j + 1, 4) + f64::from(j.is_multiple_of(3));
    let row =
        |(j, x): (usize, &[f64])| Row { x: [x[0], x[1], x[2], 1.0], offset: x[3], weight: weight(j), y: y[j], agent: agents[j] as usize };
    let rows: Vec<Row> = values.chunks(4).enumerate().map(row).collect();
    let weighted = values.chunks(4).enumerate().flat_map(|(j, row)| row.iter().copied().chain([weight(j)])).collect();
    set.rows = Rows::Dense { d: 5, values: weighted };
    set.columns = ["x1", "x2", "x3", "log_exposure", "w"].map(String::from).into_iter().collect();
    let settings = GeneralisedLinear { offset: Some("log_exposure".into()), row_weights: Some("w".into()), ..base(family) };
    (settings, set, rows)
}

/// The loss of a row, its derivatives by the predictors, and the second ones.
fn loss(family: FamilyName, eta: &[f64], y: f64) -> (f64, Vec<f64>, Vec<f64>) {
    let (t, mu) = (eta[0], eta[0].exp());
    match family {
        FamilyName::Poisson => (mu - y * t, vec![mu - y], vec![mu]),
        FamilyName::Gamma => (y / mu + t, vec![1.0 - y / mu], vec![y / mu]),
        FamilyName::NegativeBinomial => {
            let away = 1.0 + ALPHA * mu;
            let bend = mu * (1.0 + ALPHA * y) / (away * away);
            ((y + 1.0 / ALPHA) * away.ln() - y * t, vec![(mu - y) / away], vec![bend])
        }
        // The second derivative where enough residuals are within the threshold.
        FamilyName::Huber => {
            let r = t - y;
            let is_small = r.abs() <= THRESHOLD;
            let value = if is_small { r * r / 2.0 } else { THRESHOLD * r.abs() - THRESHOLD * THRESHOLD / 2.0 };
            (value, vec![if is_small { r } else { THRESHOLD * r.signum() }], vec![f64::from(is_small)])
        }
        FamilyName::Multinomial => {
            let total = 1.0 + eta.iter().map(|t| t.exp()).sum::<f64>();
            let p: Vec<f64> = eta.iter().map(|t| t.exp() / total).collect();
            let is = |k: usize| f64::from(y == (k + 1) as f64);
            let own: f64 = eta.iter().enumerate().map(|(k, t)| is(k) * t).sum();
            let bends = (0..4).map(|i| if i / 2 == i % 2 { p[i / 2] - p[i / 2] * p[i / 2] } else { -p[0] * p[1] }).collect();
            (total.ln() - own, (0..2).map(|k| p[k] - is(k)).collect(), bends)
        }
        _ => unreachable!("families of exponential or several predictors, and Huber's loss"),
    }
}

fn close(got: f64, expected: f64, what: &str) {
    assert!((got - expected).abs() <= 1e-9 * (1.0 + expected.abs()), "{what}: {got:?} {expected:?}");
}

#[test]
fn losses_and_their_derivatives_are_those_of_the_formulas() {
    const RIDGE: f64 = 0.3;
    for family in [FamilyName::Poisson, FamilyName::Gamma, FamilyName::NegativeBinomial, FamilyName::Multinomial, FamilyName::Huber] {
        let (settings, set, rows) = case(family);
        let settings = GeneralisedLinear { ridge: RIDGE, ..settings };
        let field = settings.field(&Sets(vec![set]), Sampling::default().with_kind(Law::Mean), Isa::best()).unwrap();
        let q = if family == FamilyName::Multinomial { 2 } else { 1 };
        assert_eq!(field.dim(), q * D);
        let theta: Vec<f64> = (0..q * D).map(|i| [0.4, -0.006, 0.5, 0.3][i % D] * (1.0 - 0.7 * (i / D) as f64)).collect();
        let (mut value, mut gradient, mut hessian) = (0.0, vec![0.0; q * D], Mat::<f64>::zeros(q * D, q * D));
        let total: f64 = rows.iter().map(|row| row.weight).sum();
        // Agents with fewer than a quarter of their residuals within the threshold of Huber's loss.
        let residual = |row: &Row| (linalg::dot(&theta[..D], &row.x) + row.offset - row.y).abs();
        let within = |agent: usize| rows.iter().filter(|row| row.agent == agent && residual(row) <= THRESHOLD).count();
        let is_linear: Vec<bool> = (0..12).map(|agent| family == FamilyName::Huber && within(agent) < 5).collect();
        if family == FamilyName::Huber {
            assert!(is_linear.contains(&true) && is_linear.contains(&false), "{is_linear:?}");
        }
        for row in &rows {
            let eta: Vec<f64> = theta.chunks(D).map(|block| linalg::dot(block, &row.x) + row.offset).collect();
            let (l, slopes, mut bends) = loss(family, &eta, row.y);
            if is_linear[row.agent] {
                // That of the parabola with its vertex at y that touches Huber's loss at eta.
                bends = vec![slopes[0] / (eta[0] - row.y)];
            }
            let share = row.weight / total;
            value += share * l;
            for i in 0..q * D {
                gradient[i] += share * slopes[i / D] * row.x[i % D];
                (0..q * D).for_each(|j| hessian[(i, j)] += share * bends[i / D * q + j / D] * row.x[i % D] * row.x[j % D]);
            }
        }
        // The ridge applies to all but the intercept.
        for i in (0..q * D).filter(|i| i % D < D - 1) {
            value += RIDGE / 2.0 * theta[i] * theta[i];
            gradient[i] += RIDGE * theta[i];
            hessian[(i, i)] += RIDGE;
        }
        let what = format!("{family:?}");
        close(field.mean_loss(&theta).unwrap(), value, &what);
        let operator = field.mean_operator(&theta).unwrap();
        operator.iter().zip(&gradient).for_each(|(got, expected)| close(-got, *expected, &what));
        let objective = field.facts().objective().unwrap();
        let (mut one, mut all) = (Mat::<f64>::zeros(q * D, q * D), Mat::<f64>::zeros(q * D, q * D));
        for (c, weight) in field.weights().iter().enumerate() {
            objective.hessian(c, &theta, &mut one);
            all += &one * faer::Scale(*weight);
        }
        for i in 0..q * D {
            (0..q * D).for_each(|j| close(all[(i, j)], hessian[(i, j)], &format!("{what}, entry {i}, {j}")));
        }
    }
}

/// What a row adds at the estimate: a (y - mu) mu' / V, the expected and the observed information, deviance and Pearson's statistic.
fn added(family: FamilyName, mu: f64, y: f64, a: f64) -> [f64; 5] {
    let ratio = if y > 0.0 { y * (y / mu).ln() } else { 0.0 };
    match family {
        FamilyName::Poisson => [a * (y - mu), a * mu, a * mu, 2.0 * a * (ratio - y + mu), a * (y - mu).powi(2) / mu],
        FamilyName::Gamma => {
            let r = (y - mu) / mu;
            [a * r, a, a * y / mu, 2.0 * a * (r - (y / mu).ln()), a * r * r]
        }
        _ => {
            let away = 1.0 + ALPHA * mu;
            let deviance = 2.0 * (ratio - (y + 1.0 / ALPHA) * ((1.0 + ALPHA * y) / away).ln());
            let pearson = (y - mu).powi(2) / (mu * away);
            [a * (y - mu) / away, a * mu / away, a * mu * (1.0 + ALPHA * y) / away.powi(2), a * deviance, a * pearson]
        }
    }
}

fn inverse(m: &Mat<f64>) -> Mat<f64> {
    linalg::solve_columns(m, &Mat::<f64>::identity(D, D)).unwrap()
}

#[test]
fn standard_errors_are_those_of_the_formulas() {
    for family in [FamilyName::Poisson, FamilyName::Gamma, FamilyName::NegativeBinomial] {
        let (settings, set, rows) = case(family);
        let prepared = settings.prepare(&Sets(vec![set])).unwrap();
        let of = |kind| infer(&prepared, &[0.0; D], InferenceSettings::default().with_covariance(kind), &Cancel::never()).unwrap();
        let plain = of(CovarianceKind::Model);
        // The intercept is listed first, and the column of ones is the last one.
        let theta: Vec<f64> = [1, 2, 3, 0].map(|i: usize| plain.coefficients[i].estimate).to_vec();
        let zeros = || Mat::<f64>::zeros(D, D);
        let (mut expected, mut observed, mut outer, mut clustered) = (zeros(), zeros(), zeros(), zeros());
        let (mut of_agents, mut deviance, mut pearson) = (vec![[0.0; D]; 12], 0.0, 0.0);
        for row in &rows {
            let mu = (linalg::dot(&theta, &row.x) + row.offset).exp();
            let [s, e, o, d, p] = added(family, mu, row.y, row.weight);
            (deviance, pearson) = (deviance + d, pearson + p);
            for i in 0..D {
                of_agents[row.agent][i] += s * row.x[i];
                for j in 0..D {
                    let square = row.x[i] * row.x[j];
                    expected[(i, j)] += e * square;
                    observed[(i, j)] += o * square;
                    outer[(i, j)] += s * s * square;
                }
            }
        }
        for own in &of_agents {
            (0..D * D).for_each(|at| clustered[(at / D, at % D)] += own[at / D] * own[at % D]);
        }
        for i in 0..D {
            let score: f64 = of_agents.iter().map(|own| own[i]).sum();
            assert!(score.abs() <= 1e-8 * outer[(i, i)].sqrt(), "{family:?}: the score {score} vanishes at the estimate");
        }
        let n = rows.len() as f64;
        let phi = if family == FamilyName::Gamma { pearson / (n - D as f64) } else { 1.0 };
        let bread = inverse(&observed);
        let sandwich = |meat: &Mat<f64>, factor: f64| &bread * meat * &bread * faer::Scale(factor);
        let wanted = [
            (CovarianceKind::Model, inverse(&expected) * faer::Scale(phi)),
            (CovarianceKind::Sandwich, sandwich(&outer, 1.0)),
            (CovarianceKind::Hc1, sandwich(&outer, n / (n - D as f64))),
            (CovarianceKind::Clustered, sandwich(&clustered, 12.0 / 11.0)),
        ];
        for (kind, covariance) in wanted {
            let got = of(kind);
            let what = format!("{family:?}, {kind:?}");
            close(got.deviance / deviance, 1.0, &what);
            close(got.pearson / pearson, 1.0, &what);
            close(got.dispersion, phi, &what);
            for (i, c) in got.coefficients.iter().enumerate() {
                let at = (i + D - 1) % D;
                let se = covariance[(at, at)].sqrt();
                assert!((c.se / se - 1.0).abs() <= 1e-7, "{what}, {}: {} {se}", c.name, c.se);
                // The quantile of the normal distribution at 97.5%.
                let half = 1.959_963_984_540_054 * c.se;
                close(c.z, c.estimate / c.se, &what);
                close(c.low, c.estimate - half, &what);
                close(c.high, c.estimate + half, &what);
                close(c.p, libm::erfc(c.z.abs() / std::f64::consts::SQRT_2), &what);
            }
        }
    }
}
