//! Generalised linear models where numbers are far from 1, information is nearly singular, or Hessians are 0.

use crate::common::{distance, field, method, run_for};
use crate::glm::{base, case, inferred, near, refused, table};
use fedsa::error::ErrorCode;
use fedsa::linalg;
use fedsa::sampling::Law;
use fedsa_evaluate::inference::CovarianceKind;
use fedsa_problems::rows::dataset::{Dataset, Labels, Rows, TextColumn};
use fedsa_problems::rows::glm::family::FamilyName;
use fedsa_problems::rows::regression::GeneralisedLinear;

/// The set with its columns multiplied by these numbers.
fn scaled(set: &Dataset, by: [f64; 3]) -> Dataset {
    let Rows::Dense { values, .. } = &set.rows else { unreachable!() };
    let values = values.chunks(3).flat_map(|row| [row[0] * by[0], row[1] * by[1], row[2] * by[2]]).collect();
    Dataset { rows: Rows::Dense { d: 3, values }, ..set.clone() }
}

fn targets(set: &Dataset) -> &[f64] {
    let Some(Labels::Numbers(y)) = &set.targets else { unreachable!() };
    y
}

/// Units of columns change coefficients and their errors by the same factor, also where squares of these are no numbers.
#[test]
fn standard_errors_follow_units_to_the_ends_of_the_range_of_numbers() {
    for family in [FamilyName::Gaussian, FamilyName::Binomial, FamilyName::Gamma] {
        let (settings, set) = case(family);
        for kind in [CovarianceKind::Model, CovarianceKind::Sandwich, CovarianceKind::Clustered] {
            let plain = inferred(&settings, vec![set.clone()], kind).unwrap();
            for by in [[1e-170, 1e168, 1e-160], [1e155, 1e-155, 1.0], [1e-300, 1e-290, 1e300]] {
                for standardise in [false, true] {
                    let settings = GeneralisedLinear { standardise, ..settings.clone() };
                    let got = inferred(&settings, vec![scaled(&set, by)], kind).unwrap();
                    for ((a, b), by) in plain.coefficients.iter().zip(&got.coefficients).zip([1.0, by[0], by[1], by[2]]) {
                        let what = format!("{family:?}, {kind:?}, {by:e}, {standardise}, {}", a.name);
                        near(&[b.estimate * by, b.se * by, b.z, b.p], &[a.estimate, a.se, a.z, a.p], &what);
                    }
                }
            }
        }
    }
    // Errors that are no numbers are refused by the column's name.
    let (settings, set) = case(FamilyName::Gaussian);
    for standardise in [false, true] {
        let settings = GeneralisedLinear { standardise, ..settings.clone() };
        refused(&settings, scaled(&set, [1e-318, 1.0, 1.0]), CovarianceKind::Model, &["`x1`", "beyond the range of numbers"]);
    }
}

/// The scores of G agents sum to 0: their products have the rank G - 1.
#[test]
fn a_clustered_covariance_of_too_few_agents_has_no_errors() {
    let (settings, set) = case(FamilyName::Binomial);
    let among = |agents: usize| {
        let groups = (0..240).map(|j| (j % agents) as f64).collect();
        inferred(&settings, vec![Dataset { groups: Some(Labels::Numbers(groups)), ..set.clone() }], CovarianceKind::Clustered)
    };
    for agents in 2..=4 {
        let e = among(agents).unwrap_err().to_string();
        assert!(e.contains(&format!("{agents} agents, and 4 coefficients: this covariance has at most the rank {}", agents - 1)), "{e}");
    }
    assert!(among(5).unwrap().coefficients.iter().all(|c| c.se > 0.0));
}

/// Targets in other units move the intercept of gamma's model alone; a negative-binomial model of large means has the score of its formula.
#[test]
fn log_links_find_means_that_are_far_from_one() {
    let (settings, set) = case(FamilyName::Gamma);
    let plain = inferred(&settings, vec![set.clone()], CovarianceKind::Model).unwrap();
    for unit in [1e-12, 1e10, 1e30, 1e150] {
        let y = targets(&set).iter().map(|y| y * unit).collect();
        let got = inferred(&settings, vec![Dataset { targets: Some(Labels::Numbers(y)), ..set.clone() }], CovarianceKind::Model).unwrap();
        for (i, (a, b)) in plain.coefficients.iter().zip(&got.coefficients).enumerate() {
            let moved = if i == 0 { f64::ln(unit) } else { 0.0 };
            near(&[b.estimate - moved, b.se], &[a.estimate, a.se], &format!("{unit:e}, {}", a.name));
        }
    }
    let (settings, set) = case(FamilyName::NegativeBinomial);
    let Rows::Dense { values, .. } = &set.rows else { unreachable!() };
    for unit in [1e10, 1e13, 1e18] {
        let y: Vec<f64> = targets(&set).iter().map(|y| y * unit).collect();
        for intercept in [true, false] {
            let settings = GeneralisedLinear { intercept, ..settings.clone() };
            let changed = Dataset { targets: Some(Labels::Numbers(y.clone())), ..set.clone() };
            let got = inferred(&settings, vec![changed], CovarianceKind::Model).unwrap();
            let theta: Vec<f64> = got.coefficients.iter().map(|c| c.estimate).collect();
            let row =
                |j: usize| if intercept { vec![1.0] } else { vec![] }.into_iter().chain(values[3 * j..][..3].to_vec()).collect::<Vec<_>>();
            let (mut score, mut size) = (vec![0.0; theta.len()], vec![0.0; theta.len()]);
            for (j, y) in y.iter().enumerate() {
                let mu = linalg::dot(&theta, &row(j)).exp();
                let pull = (y - mu) / (1.0 + 0.8 * mu);
                row(j).iter().enumerate().for_each(|(i, x)| (score[i], size[i]) = (score[i] + pull * x, size[i] + (pull * x).abs()));
            }
            score.iter().zip(&size).for_each(|(s, size)| assert!(s.abs() < 1e-9 * size, "{unit:e}: {score:?} {size:?}"));
        }
    }
}

/// 300 rows of two classes that are separated but for two rows at the boundary: predictors go up to 196. Estimates and errors are those of
/// statsmodels 0.15.0.
#[test]
fn classes_that_are_nearly_separated_have_an_estimate() {
    let label = |x: usize| f64::from(x > 150 && x != 151 || x == 150);
    let set = |label: &dyn Fn(usize) -> f64| Dataset {
        name: "steep".into(),
        columns: ["x".to_string()].into_iter().collect(),
        rows: Rows::Dense { d: 1, values: (1..=300).map(f64::from).collect() },
        targets: Some(Labels::Numbers((1..=300).map(label).collect())),
        groups: Some(Labels::Numbers((0..300).map(|j| f64::from(j % 7)).collect())),
        texts: Vec::new(),
        notes: Vec::new(),
    };
    let got = inferred(&base(FamilyName::Binomial), vec![set(&label)], CovarianceKind::Model).unwrap();
    let numbers: Vec<f64> = got.coefficients.iter().flat_map(|c| [c.estimate, c.se]).collect();
    let expected = [-197.174_595_599_938_47, 124.430_708_533_220_5, 1.310_130_203_321_849_6, 0.826_747_135_109_388_5];
    numbers.iter().zip(&expected).for_each(|(a, b)| assert!((a / b - 1.0).abs() < 1e-6, "{numbers:?}"));
    let e = inferred(&base(FamilyName::Binomial), vec![set(&|x| f64::from(x > 150))], CovarianceKind::Model).unwrap_err();
    assert_eq!(e.code(), ErrorCode::NoEstimate);
    assert!(e.to_string().contains("separated by `x`"), "{e}");
}

/// Counts that are all 0 have no estimate, and no column is at fault.
#[test]
fn counts_that_are_all_zero_are_said_to_be_so() {
    for family in [FamilyName::Poisson, FamilyName::NegativeBinomial] {
        let zeros = Dataset { targets: Some(Labels::Numbers(vec![0.0; 240])), ..table(family) };
        refused(&base(family), zeros, CovarianceKind::Model, &["all rows have the target 0"]);
    }
}

/// At theta = 0 all residuals are beyond the delta of Huber's loss, whose Hessian is 0 there. The minimum is where the clamped residuals are
/// orthogonal to the columns, and methods find it.
#[test]
fn hubers_loss_is_minimised_from_where_its_hessian_is_zero() {
    let y: Vec<f64> = (0..30).map(|j| 40.0 + 2.0 * f64::from(j) + if j % 7 == 3 { 80.0 } else { 0.3 * f64::from(j * j % 5) }).collect();
    let set = Dataset {
        name: "line".into(),
        columns: ["x".to_string()].into_iter().collect(),
        rows: Rows::Dense { d: 1, values: (0..30).map(f64::from).collect() },
        targets: Some(Labels::Numbers(y.clone())),
        groups: Some(Labels::Numbers((0..30).map(|j| f64::from(j % 3)).collect())),
        texts: Vec::new(),
        notes: Vec::new(),
    };
    for (delta, ridge) in [(2.0, 0.0), (0.3, 0.0), (2.0, 1e-5)] {
        let settings = GeneralisedLinear { huber_delta: Some(delta), ridge, ..base(FamilyName::Huber) };
        let field = field(&crate::common::OnSets { settings, sets: vec![set.clone()] }, Law::Mean);
        let root = field.root().unwrap().to_vec();
        let clamped = |j: usize| (y[j] - root[0] * j as f64 - root[1]).clamp(-delta, delta) / 30.0;
        let gradient = [(0..30).map(|j| clamped(j) * j as f64).sum::<f64>() - ridge * root[0], (0..30).map(clamped).sum::<f64>()];
        assert!(gradient.iter().all(|g| g.abs() < 1e-12), "{delta}: {root:?} {gradient:?}");
        for (kind, settings) in [
            ("newton", "{}"),
            ("giant", "{}"),
            ("shed", "{}"),
            ("adaptive-newton", "{}"),
            // It learns Hessians step by step, and needs some that change little.
            ("fednl", r#"{"line_search": true}"#),
        ] {
            if kind == "fednl" && delta < 1.0 {
                continue;
            }
            let run = run_for(&field, &*method(kind, settings), 0, &[0.0; 2], 100);
            let left = distance(run.theta(), &root);
            assert!(left < 1e-6, "{kind}, {delta}, {ridge}: {left:e}");
        }
    }
    // Between 1.5 and 8.5 all points are minima, where the Hessian is 0: one of them is found.
    let flat = Dataset {
        rows: Rows::Dense { d: 1, values: vec![1.0; 4] },
        targets: Some(Labels::Numbers(vec![1.0, 1.0, 9.0, 9.0])),
        groups: Some(Labels::Numbers(vec![0.0; 4])),
        ..set
    };
    let settings = GeneralisedLinear { huber_delta: Some(0.5), intercept: false, ..base(FamilyName::Huber) };
    let field = field(&crate::common::OnSets { settings, sets: vec![flat] }, Law::Mean);
    let root = field.root().unwrap()[0];
    assert!((1.5..=8.5).contains(&root), "{root}");
}

/// A column that is text at one agent and numbers at another has each level once, under its text.
#[test]
fn levels_are_the_same_whether_agents_hold_numbers_or_texts() {
    let (settings, set) = case(FamilyName::Gaussian);
    let Rows::Dense { values, .. } = &set.rows else { unreachable!() };
    let level = |j: usize| [7, 2, 30, 9][j % 4];
    let half = |from: usize, names: Option<&[&str]>| {
        let rows = from..from + 120;
        let code = |j: usize| match names {
            Some(names) => names.iter().position(|name| *name == level(j).to_string()).unwrap() as f64,
            None => f64::from(level(j)),
        };
        let values = rows.clone().flat_map(|j| [values[3 * j], values[3 * j + 1], code(j)]).collect();
        let names = names.map(|names| names.iter().map(ToString::to_string).collect());
        Dataset {
            rows: Rows::Dense { d: 3, values },
            targets: Some(Labels::Numbers(targets(&set)[rows.clone()].to_vec())),
            groups: Some(Labels::Numbers(rows.map(|j| (j % 12) as f64).collect())),
            texts: names.map(|names| TextColumn { column: "x3".into(), names }).into_iter().collect(),
            ..set.clone()
        }
    };
    let settings = GeneralisedLinear { categorical: vec!["x3".into()], ..settings };
    let all: &[&str] = &["30", "9", "2", "7"];
    let names = |sets| {
        let got = inferred(&settings, sets, CovarianceKind::Model).unwrap();
        got.coefficients.iter().map(|c| (c.name.clone(), c.estimate)).collect::<Vec<_>>()
    };
    let (mixed, texts) = (names(vec![half(0, None), half(120, Some(all))]), names(vec![half(0, Some(all)), half(120, Some(all))]));
    assert_eq!(mixed, texts);
    assert_eq!(mixed.iter().skip(3).map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["x3=7", "x3=9", "x3=30"]);
    let numbers = names(vec![half(0, None), half(120, None)]);
    assert_eq!(numbers.iter().skip(3).map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["x3=7", "x3=9", "x3=30"]);
    // A column that has the name of a level.
    let columns = ["x1", "x3=9", "x3"].map(String::from).into_iter().collect();
    refused(&settings, Dataset { columns, ..half(0, Some(all)) }, CovarianceKind::Model, &["`x3=9`", "level of the category `x3`"]);
}
