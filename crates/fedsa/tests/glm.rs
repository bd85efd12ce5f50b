//! Generalised linear models: losses and their derivatives, methods on them, and inference beside independent computations.

use std::sync::Arc;

use crate::common::{Sets, distance, field, method, run_for};
use faer::Mat;
use fedsa::cancel::Cancel;
use fedsa::error::{Error, ErrorCode};
use fedsa::kernel::Isa;
use fedsa::linalg;
use fedsa::problem::Field;
use fedsa::sampling::{Law, Sampling};
use fedsa_evaluate::inference::{CovarianceKind, Inference, InferenceSettings, infer};
use fedsa_problems::ProblemSettings;
use fedsa_problems::logs::replay::Sources;
use fedsa_problems::rows::dataset::{Dataset, Labels, Rows, TextColumn};
use fedsa_problems::rows::glm::family::FamilyName;
use fedsa_problems::rows::preparation::AgentWeights;
use fedsa_problems::rows::preparation::partition::Partition;
use fedsa_problems::rows::preparation::targets::ClassLabel;
use fedsa_problems::rows::preparation::transform::Pca;
use fedsa_problems::rows::regression::GeneralisedLinear;

/// Fractional parts of multiples of the root of a prime: numbers between 0 and 1 that other programs make too.
pub(crate) fn u(i: usize, k: usize) -> f64 {
    let x = i as f64 * [2.0f64, 3.0, 5.0, 7.0, 11.0][k].sqrt();
    x - x.floor()
}

/// The least k whose Poisson distribution function is at least q.
fn count(mean: f64, q: f64) -> f64 {
    let (mut k, mut p) = (0.0, (-mean).exp());
    let mut sum = p;
    while sum < q && k < 200.0 {
        k += 1.0;
        p *= mean / k;
        sum += p;
    }
    k
}

/// 240 rows of 12 agents with the columns x1, x2, x3 and log(exposure), and targets of a family: the data of the references below.
pub(crate) fn table(family: FamilyName) -> Dataset {
    let n = 240;
    let (mut values, mut y, mut agents) = (Vec::new(), Vec::new(), Vec::new());
    for i in 1..=n {
        let (x1, x2, x3) = (4.0 * u(i, 0) - 2.0, 100.0 * u(i, 1) + 50.0, f64::from(u(i, 2) < 0.3));
        let (v, w) = (u(i, 3), u(i, 4));
        let eta = 0.4 + 0.8 * x1 - 0.02 * (x2 - 100.0) + 0.7 * x3;
        let (mu, p) = (eta.exp(), 1.0 / (1.0 + (-eta).exp()));
        let offset = (1.0 + 3.0 * w).ln();
        y.push(match family {
            FamilyName::Binomial => f64::from(v < p),
            FamilyName::Poisson => count(mu * (1.0 + 3.0 * w), v),
            FamilyName::Gamma => mu * (0.05 - (1.0 - 0.999 * v).ln()),
            FamilyName::NegativeBinomial => count(mu * 2.0 * -(1.0 - 0.999 * w).ln(), v),
            FamilyName::Multinomial => {
                if v < 0.3 {
                    0.0
                } else if v < 0.3 + 0.5 * p {
                    1.0
                } else {
                    2.0
                }
            }
            _ => 3.0 * eta + 4.0 * (v - 0.5) * (1.0 + w),
        });
        values.extend([x1, x2, x3, offset]);
        agents.push(((i - 1) % 12) as f64);
    }
    let columns = ["x1", "x2", "x3", "log_exposure"].map(String::from).into_iter().collect();
    let (targets, groups) = (Some(Labels::Numbers(y)), Some(Labels::Numbers(agents)));
    Dataset { name: "table".into(), columns, rows: Rows::Dense { d: 4, values }, targets, groups, texts: Vec::new(), notes: Vec::new() }
}

/// Without the last column.
fn without_offset(mut set: Dataset) -> Dataset {
    let Rows::Dense { values, .. } = &set.rows else { unreachable!() };
    let values = values.chunks(4).flat_map(|row| row[..3].to_vec()).collect();
    set.rows = Rows::Dense { d: 3, values };
    set.columns = ["x1", "x2", "x3"].map(String::from).into_iter().collect();
    set
}

pub(crate) fn base(family: FamilyName) -> GeneralisedLinear {
    GeneralisedLinear {
        family: Some(family),
        dispersion: (family == FamilyName::NegativeBinomial).then_some(0.8),
        huber_delta: (family == FamilyName::Huber).then_some(1.2),
        intercept: true,
        penalise_intercept: false,
        partition: Partition::ByColumn,
        group: Some("agent".into()),
        weighting: AgentWeights::Rows,
        ..GeneralisedLinear::new(Sources::One("table".into()))
    }
}

pub(crate) fn inferred(settings: &GeneralisedLinear, sets: Vec<Dataset>, kind: CovarianceKind) -> Result<Inference, Error> {
    let prepared = settings.prepare(&Sets(sets))?;
    let start = vec![0.0; prepared.train.family.outputs() * prepared.train.rows.columns()];
    infer(&prepared, &start, InferenceSettings::default().with_covariance(kind), &Cancel::never())
}

/// The sets of a family, with offsets for Poisson.
pub(crate) fn case(family: FamilyName) -> (GeneralisedLinear, Dataset) {
    match family {
        FamilyName::Poisson => (GeneralisedLinear { offset: Some("log_exposure".into()), ..base(family) }, table(family)),
        _ => (base(family), without_offset(table(family))),
    }
}

pub(crate) fn near(got: &[f64], expected: &[f64], what: &str) {
    assert_eq!(got.len(), expected.len(), "{what}");
    for (got, expected) in got.iter().zip(expected) {
        assert!((got - expected).abs() <= 1e-9 * expected.abs().max(1e-3), "{what}: {got:?} {expected:?}");
    }
}

/// What statsmodels 0.15.0 says: coefficients, and the errors of the covariances model, HC0, HC1 and clustered, intercept first; deviance,
/// Pearson's statistic, log-likelihood (that of Gaussian and gamma at the dispersion deviance / n). Clustered errors are those without
/// statsmodels' correction, times the root of G / (G - 1).
struct Reference {
    family: FamilyName,
    estimates: [f64; 4],
    errors: [[f64; 4]; 4],
    fit: [f64; 3],
}

const REFERENCES: [Reference; 5] = [
    Reference {
        family: FamilyName::Binomial,
        estimates: [2.15644312724522, 0.763089051324729, -0.0180125169256997, 0.676284622127688],
        errors: [
            [0.566200867040523, 0.140214075259883, 0.00526178210439195, 0.33240516960647],
            [0.569491626992757, 0.146298313736473, 0.00521608199008135, 0.327289998889437],
            [0.574297548711282, 0.147532920550769, 0.00526010034001586, 0.330051988775442],
            [0.577321497875047, 0.0955825855046878, 0.0047642233834808, 0.208284015103244],
        ],
        fit: [272.861461795596, 245.566630616183, -136.430730897798],
    },
    Reference {
        family: FamilyName::Gaussian,
        estimates: [7.16196818885777, 2.43860184224165, -0.0599345040067363, 2.27079271621545],
        errors: [
            [0.422486331167371, 0.0998716502846537, 0.00398658827666735, 0.251127572919115],
            [0.432780854006713, 0.0985576024612995, 0.00397619974799923, 0.244759921227982],
            [0.436433077862252, 0.0993893269322907, 0.00400975477114682, 0.246825442414774],
            [0.404037951064104, 0.0573300258259691, 0.00357929461408612, 0.166264498049081],
        ],
        fit: [747.735639525244, 747.735639525244, -476.914516257429],
    },
    Reference {
        family: FamilyName::Poisson,
        estimates: [2.40409150287461, 0.827541539276844, -0.0202870669339578, 0.716316076253586],
        errors: [
            [0.0777255849625604, 0.0234391965145527, 0.000805494114463525, 0.0448712502117392],
            [0.0718512504504351, 0.0212994240507736, 0.000723607348968125, 0.0410823383105563],
            [0.0724576008666236, 0.0214791692125739, 0.000729713848360318, 0.0414290308562871],
            [0.0797257326854411, 0.0181249704068227, 0.000843576065867197, 0.0449361294031173],
        ],
        fit: [243.389798300892, 220.298709892403, -495.58336825171],
    },
    Reference {
        family: FamilyName::Gamma,
        estimates: [2.49935391771801, 0.82754331752411, -0.0206579867602548, 0.72168540432596],
        errors: [
            [0.219562404289032, 0.0519024120762028, 0.00207179461763177, 0.130508775375142],
            [0.219104090746586, 0.0494056767186058, 0.00200062871274784, 0.120905478364072],
            [0.220953103196334, 0.049822609652307, 0.00201751195479316, 0.12192579584868],
            [0.278456148612221, 0.0353205083537785, 0.00231237757463667, 0.100066554856537],
        ],
        fit: [212.199138778059, 201.947607028986, -391.287152766948],
    },
    Reference {
        family: FamilyName::NegativeBinomial,
        estimates: [2.88316708660457, 0.839092286509463, -0.0178854342603737, 0.782204638981933],
        errors: [
            [0.247611512649634, 0.0627356731825997, 0.00241891870496255, 0.147066523222161],
            [0.282613802260164, 0.0698642536457311, 0.0028019385650899, 0.15985933627217],
            [0.284998771144446, 0.0704538358591124, 0.00282558403548082, 0.161208384124122],
            [0.31922868827862, 0.0453049659287902, 0.00395557611052535, 0.124284971601502],
        ],
        fit: [283.456359573844, 278.519725015979, -601.679421989386],
    },
];

#[test]
fn inference_is_that_of_statsmodels_on_five_data_sets() {
    for Reference { family, estimates, errors, fit } in &REFERENCES {
        let (settings, set) = case(*family);
        for (kind, errors) in CovarianceKind::ALL.into_iter().zip(errors) {
            let got = inferred(&settings, vec![set.clone()], kind).unwrap();
            let what = format!("{family:?}, {kind:?}");
            near(&got.coefficients.iter().map(|c| c.estimate).collect::<Vec<_>>(), estimates, &what);
            near(&got.coefficients.iter().map(|c| c.se).collect::<Vec<_>>(), errors, &what);
            near(&[got.deviance, got.pearson, got.log_likelihood], fit, &what);
            let counted = 2.0 * (4.0 + f64::from(matches!(family, FamilyName::Gaussian | FamilyName::Gamma)));
            near(&[got.aic], &[counted - 2.0 * got.log_likelihood], &what);
            assert_eq!((got.rows, got.agents, got.coefficients[0].name.as_str()), (240, 12, "intercept"));
        }
    }
    // The p-value of x3 and its interval, of statsmodels' GLM.
    let (settings, set) = case(FamilyName::Binomial);
    let x3 = inferred(&settings, vec![set], CovarianceKind::Model).unwrap().coefficients.remove(3);
    near(&[x3.p, x3.low, x3.high], &[0.041_899_298_285_565_4, 0.024_782_461_424_058_5, 1.327_786_782_831_32], "p and interval");
}

/// statsmodels 0.15.0, MNLogit: class 1 against class 0, then class 2.
#[test]
fn several_classes_are_those_of_statsmodels() {
    let (settings, set) = case(FamilyName::Multinomial);
    let of = |kind| inferred(&settings, vec![set.clone()], kind).unwrap();
    let estimates = [
        0.429783342325291,
        0.280375016405213,
        -0.00564687473382565,
        0.286629720906293,
        -0.0883752245733675,
        -0.236800318694649,
        0.00315279563296247,
        0.0391828107799413,
    ];
    let errors = [
        0.610165161930954,
        0.149668686252399,
        0.0058488453294589,
        0.366993813035215,
        0.587490037239299,
        0.139727709504574,
        0.00547929701821318,
        0.349444880969519,
    ];
    let sandwich = [
        0.612941397054639,
        0.145317172306023,
        0.00586160266559009,
        0.365909959290831,
        0.593649330272841,
        0.139710267744705,
        0.00548914441662935,
        0.350979835852019,
    ];
    let clustered = [
        0.491616451045897,
        0.0985757445642315,
        0.00510171848934908,
        0.22830205692239,
        0.497648464106443,
        0.090349428566354,
        0.00474100775330892,
        0.222583233349148,
    ];
    for (kind, errors) in [(CovarianceKind::Model, errors), (CovarianceKind::Sandwich, sandwich), (CovarianceKind::Clustered, clustered)] {
        let got = of(kind);
        near(&got.coefficients.iter().map(|c| c.estimate).collect::<Vec<_>>(), &estimates, "estimates");
        near(&got.coefficients.iter().map(|c| c.se).collect::<Vec<_>>(), &errors, &format!("{kind:?}"));
        near(&[got.log_likelihood, got.aic], &[-253.271635903571, 522.543271807141], "fit");
        let class = |i: usize| got.coefficients[i].class.as_deref();
        assert_eq!((got.reference.as_deref(), class(0), class(4)), (Some("0"), Some("1"), Some("2")));
    }
}

/// Standardisation and a rotation onto all principal components are undone, with the covariance.
#[test]
fn coefficients_are_those_of_the_columns_whatever_the_features() {
    for family in [FamilyName::Binomial, FamilyName::Gamma, FamilyName::Multinomial] {
        let (settings, set) = case(family);
        let of = |settings: &GeneralisedLinear, kind| inferred(settings, vec![set.clone()], kind).unwrap();
        for kind in [CovarianceKind::Model, CovarianceKind::Clustered] {
            let plain = of(&settings, kind);
            for changed in [
                GeneralisedLinear { standardise: true, ..settings.clone() },
                GeneralisedLinear { divide_by: 7.0, pca: Some(Pca::new(3)), ..settings.clone() },
            ] {
                let other = of(&changed, kind);
                for (a, b) in plain.coefficients.iter().zip(&other.coefficients) {
                    assert_eq!(a.name, b.name);
                    near(&[b.estimate, b.se], &[a.estimate, a.se], &a.name);
                }
            }
        }
    }
}

#[test]
fn a_row_of_weight_two_is_two_rows() {
    for family in [FamilyName::Poisson, FamilyName::NegativeBinomial, FamilyName::Binomial] {
        let (settings, set) = case(family);
        let Rows::Dense { d, values } = set.rows.clone() else { unreachable!() };
        let (Some(Labels::Numbers(y)), Some(Labels::Numbers(c))) = (set.targets.clone(), set.groups.clone()) else { unreachable!() };
        // Weights 0, 1, 2 as a column, and rows as often.
        let weight = |j: usize| (j / 12 + j) % 3;
        let weighted = values.chunks(d).enumerate().flat_map(|(j, row)| row.iter().copied().chain([weight(j) as f64])).collect();
        let columns = set.columns.iter().map(|name| name.into_owned()).chain(["w".to_string()]).collect();
        let weighted = Dataset { rows: Rows::Dense { d: d + 1, values: weighted }, columns, ..set.clone() };
        let often: Vec<usize> = (0..y.len()).flat_map(|j| std::iter::repeat_n(j, weight(j))).collect();
        let repeated = Dataset {
            rows: Rows::Dense { d, values: often.iter().flat_map(|j| values[j * d..][..d].to_vec()).collect() },
            targets: Some(Labels::Numbers(often.iter().map(|j| y[*j]).collect())),
            groups: Some(Labels::Numbers(often.iter().map(|j| c[*j]).collect())),
            ..set
        };
        let by_weight = GeneralisedLinear { row_weights: Some("w".into()), ridge: 0.01, ..settings.clone() };
        let by_rows = GeneralisedLinear { ridge: 0.01, ..settings };
        let root = |settings: &GeneralisedLinear, set: &Dataset| {
            let sampling = Sampling::default().with_kind(Law::Mean);
            settings.field(&Sets(vec![set.clone()]), sampling, Isa::best()).unwrap().root().unwrap().to_vec()
        };
        let (a, b) = (root(&by_weight, &weighted), root(&by_rows, &repeated));
        assert!(distance(&a, &b) < 1e-9, "{family:?}: {a:?} {b:?}");
        let of = |settings: &GeneralisedLinear, set: &Dataset| inferred(settings, vec![set.clone()], CovarianceKind::Model).unwrap();
        let (a, b) = (of(&by_weight, &weighted), of(&by_rows, &repeated));
        a.coefficients.iter().zip(&b.coefficients).for_each(|(a, b)| near(&[a.estimate, a.se], &[b.estimate, b.se], &a.name));
        near(&[a.deviance, a.log_likelihood], &[b.deviance, b.log_likelihood], "fit");
        assert_eq!((a.rows, b.rows), (160, 240));
    }
}

/// Every family, dense and sparse rows.
fn fields() -> Vec<(String, Arc<dyn Field>)> {
    let mut all = Vec::new();
    for (name, problem) in crate::common::generalised(5, 12, 3) {
        all.push((name.to_string(), field(&*problem, Law::Mean)));
    }
    all
}

#[test]
fn derivatives_are_differences() {
    for (name, field) in fields() {
        let d = field.dim();
        let objective = field.facts().objective().unwrap();
        let theta: Vec<f64> = (0..d).map(|i| 0.3 * u(i + 1, 0) - 0.1).collect();
        let v: Vec<f64> = (0..d).map(|i| u(i + 1, 1) - 0.5).collect();
        let at = |s: f64| theta.iter().zip(&v).map(|(x, v)| x + s * v).collect::<Vec<_>>();
        let (mut g, mut below, mut h, mut hv) = (vec![0.0; d], vec![0.0; d], Mat::zeros(d, d), vec![0.0; d]);
        for c in 0..field.agents() {
            let step = 1e-5;
            objective.gradient(c, &theta, &mut g);
            let slope = (objective.loss(c, &at(step)) - objective.loss(c, &at(-step))) / (2.0 * step);
            assert!((slope - linalg::dot(&g, &v)).abs() < 1e-7 * (1.0 + slope.abs()), "{name}");
            objective.hessian(c, &theta, &mut h);
            objective.hessian_vector(c, &theta, &v, &mut hv);
            assert!(distance(&linalg::mat_vec(&h, &v), &hv) < 1e-12, "{name}");
            let mut twice = vec![0.0; 2 * d];
            objective.hessian_products(c, &theta)(&[&v[..], &v[..]].concat(), &mut twice);
            assert_eq!(twice, [&hv[..], &hv[..]].concat(), "{name}");
            objective.gradient(c, &at(step), &mut g);
            objective.gradient(c, &at(-step), &mut below);
            let difference: Vec<f64> = g.iter().zip(&below).map(|(a, b)| (a - b) / (2.0 * step)).collect();
            // Huber's loss has no second derivative at its thresholds, which no row is near here.
            assert!(distance(&difference, &hv) < 1e-6 * (1.0 + linalg::norm_sq(&hv).sqrt()), "{name}: {difference:?} {hv:?}");
            let (steps, mut losses) = ([0.0, 0.5, 1.0], [0.0; 3]);
            objective.losses_along(c, &theta, &v, &steps, &mut losses);
            assert_eq!(losses[0].to_bits(), objective.loss(c, &theta).to_bits(), "{name}");
            steps.iter().zip(&losses).for_each(|(s, loss)| assert!((loss - objective.loss(c, &at(*s))).abs() < 1e-12, "{name}"));
        }
    }
}

/// The law of a sample has the mean operator for its mean.
#[test]
fn laws_have_the_mean_operator_for_their_mean() {
    for (name, problem) in crate::common::generalised(3, 12, 3) {
        for kind in [Law::Iid, Law::Markov] {
            let field = field(&*problem, kind);
            let d = field.dim();
            let theta: Vec<f64> = (0..d).map(|i| 0.4 * u(i + 1, 2) - 0.2).collect();
            let mut mean = vec![0.0; d];
            for c in 0..field.agents() {
                let law = field.facts().law(c).unwrap();
                field.mean(c, &theta, &mut mean);
                assert!(distance(&law.mean(&theta), &mean) < 1e-12 * (1.0 + linalg::norm_sq(&mean).sqrt()), "{name}, {kind:?}");
            }
        }
    }
}

/// Every method of second order, and rules of first order, end at the minimum that Newton's method finds on all rows.
#[test]
fn methods_of_first_and_second_order_reach_the_optimum_of_every_family() {
    let mut missed = Vec::new();
    for (name, field) in fields() {
        let (d, root) = (field.dim(), field.root().unwrap().to_vec());
        let gradient = field.mean_operator(&root).unwrap();
        assert!(linalg::norm_sq(&gradient).sqrt() < 1e-11, "{name}: {gradient:?}");
        for (kind, settings, rounds, error) in [
            ("newton", "{}", 30, 1e-10),
            ("giant", "{}", 400, 1e-4),
            ("shed", "{}", 100, 1e-6),
            ("q-shed", "{}", 200, 1e-6),
            ("fednl", r#"{"line_search": true}"#, 300, 1e-6),
            ("lbfgs", "{}", 400, 1e-6),
            ("bfgs", "{}", 400, 1e-6),
            ("done", r#"{"richardson_step": 0.05, "richardson_steps": 40, "step_size": 0.5}"#, 400, 1e-3),
            ("agd", "{}", 2000, 1e-4),
            ("gd", "{}", 2000, 1e-4),
            ("scafflsa", r#"{"step_size": 0.03, "local_steps": 4}"#, 6000, 1e-4),
            ("fedhsa", r#"{"step_size": 0.03, "local_steps": 4}"#, 6000, 1e-4),
        ] {
            // Many rounds, for few families.
            if rounds >= 2000 && !["poisson", "multinomial, sparse"].contains(&&name[..]) {
                continue;
            }
            let run = run_for(&field, &*method(kind, settings), 0, &vec![0.0; d], rounds);
            let left = distance(run.theta(), &root);
            // Not a number is no end.
            if !matches!(left.partial_cmp(&error), Some(std::cmp::Ordering::Less)) {
                missed.push(format!("{name}, {kind}: {left:e}"));
            }
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}

pub(crate) fn refused(settings: &GeneralisedLinear, set: Dataset, kind: CovarianceKind, words: &[&str]) {
    let e = inferred(settings, vec![set], kind).unwrap_err();
    words.iter().for_each(|word| assert!(e.to_string().contains(word), "{e}: {word}"));
    assert!(!e.help.is_empty());
}

#[test]
fn separated_targets_and_collinear_columns_are_named() {
    let (settings, set) = case(FamilyName::Binomial);
    let Rows::Dense { values, .. } = &set.rows else { unreachable!() };
    // The class is that of x1 above 0.3.
    let by_x1 = Labels::Numbers(values.chunks(3).map(|row| f64::from(row[0] > 0.3)).collect());
    let separated = Dataset { targets: Some(by_x1), ..set.clone() };
    let e = inferred(&settings, vec![separated.clone()], CovarianceKind::Model).unwrap_err();
    assert_eq!(e.code(), ErrorCode::NoEstimate);
    refused(&settings, separated, CovarianceKind::Model, &["separated by `x1`", "without bound"]);
    // All rows with x3 have the class 1: its coefficient alone has no end.
    let Some(Labels::Numbers(y)) = &set.targets else { unreachable!() };
    let quasi = Labels::Numbers(values.chunks(3).zip(y).map(|(row, y)| if row[2] == 1.0 { 1.0 } else { *y }).collect());
    refused(&settings, Dataset { targets: Some(quasi), ..set.clone() }, CovarianceKind::Model, &["separated by `x3`, and"]);
    // x3 = 2 x1 - x2 + 4, a constant, and zeros.
    let with = |of: &dyn Fn(&[f64]) -> f64| {
        let values = values.chunks(3).flat_map(|row| [row[0], row[1], of(row)]).collect();
        Dataset { rows: Rows::Dense { d: 3, values }, ..set.clone() }
    };
    refused(&settings, with(&|row| 2.0 * row[0] - row[1] + 4.0), CovarianceKind::Model, &["`x3` is a combination of", "`x1`", "`x2`"]);
    refused(&settings, with(&|_| 5.0), CovarianceKind::Model, &["`x3` is constant"]);
    refused(&settings, with(&|_| 0.0), CovarianceKind::Sandwich, &["`x3` is 0 in all rows"]);
    // Zero counts wherever x3 is 1.
    let (settings, set) = case(FamilyName::NegativeBinomial);
    let Some(Labels::Numbers(y)) = &set.targets else { unreachable!() };
    let zeros = Labels::Numbers(values.chunks(3).zip(y).map(|(row, y)| if row[2] == 1.0 { 0.0 } else { *y }).collect());
    refused(&settings, Dataset { targets: Some(zeros), ..set.clone() }, CovarianceKind::Model, &["separated by `x3`, and"]);
}

/// An agent without a class, and one of a single row: sums are sums.
#[test]
fn estimates_do_not_depend_on_how_rows_are_dealt() {
    for family in [FamilyName::Binomial, FamilyName::Multinomial, FamilyName::Gamma] {
        let (settings, set) = case(family);
        let Some(Labels::Numbers(y)) = &set.targets else { unreachable!() };
        let expected = inferred(&settings, vec![set.clone()], CovarianceKind::Sandwich).unwrap();
        // The first row is an agent of its own, all other rows of the class of the second row are another.
        let agents = (0..y.len())
            .map(|j| {
                if j == 0 {
                    0.0
                } else if y[j] == y[1] {
                    1.0
                } else {
                    2.0
                }
            })
            .collect();
        let got = inferred(&settings, vec![Dataset { groups: Some(Labels::Numbers(agents)), ..set }], CovarianceKind::Sandwich).unwrap();
        for (a, b) in expected.coefficients.iter().zip(&got.coefficients) {
            near(&[b.estimate, b.se, b.p], &[a.estimate, a.se, a.p], &a.name);
        }
    }
    let (settings, set) = case(FamilyName::Binomial);
    let one = Dataset { groups: Some(Labels::Numbers(vec![0.0; 240])), ..set };
    refused(&settings, one, CovarianceKind::Clustered, &["one agent"]);
}

#[test]
fn sums_are_the_same_for_any_number_of_threads() {
    let (settings, set) = case(FamilyName::Gamma);
    let on = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| inferred(&settings, vec![set.clone()], CovarianceKind::Clustered).unwrap())
    };
    assert_eq!(on(1), on(3));
}

#[test]
fn categories_are_columns_of_their_levels_but_the_first() {
    let (settings, set) = case(FamilyName::Gaussian);
    let Rows::Dense { values, .. } = &set.rows else { unreachable!() };
    // x3 as text: its positions are those of names in the order of their rows.
    let first = values[2];
    let coded = values.chunks(3).flat_map(|row| [row[0], row[1], f64::from(row[2] != first)]).collect();
    let names = if first == 0.0 { ["low", "top"] } else { ["top", "low"] }.map(String::from).to_vec();
    let text = Dataset { rows: Rows::Dense { d: 3, values: coded }, texts: vec![TextColumn { column: "x3".into(), names }], ..set.clone() };
    let (plain, by_text) = (
        inferred(&settings, vec![set.clone()], CovarianceKind::Model).unwrap(),
        inferred(&settings, vec![text], CovarianceKind::Model).unwrap(),
    );
    assert_eq!(by_text.coefficients[3].name, "x3=top");
    plain.coefficients.iter().zip(&by_text.coefficients).for_each(|(a, b)| near(&[b.estimate, b.se], &[a.estimate, a.se], &a.name));
    // Numbers that are named, without an intercept: all levels of the first category have a column.
    let settings = GeneralisedLinear { categorical: vec!["x3".into()], intercept: false, ..settings };
    let levels = inferred(&settings, vec![set], CovarianceKind::Model).unwrap();
    assert_eq!(levels.coefficients.iter().map(|c| c.name.as_str()).collect::<Vec<_>>(), ["x1", "x2", "x3=0", "x3=1"]);
    let difference = levels.coefficients[3].estimate - levels.coefficients[2].estimate;
    near(&[difference, levels.deviance], &[plain.coefficients[3].estimate, plain.deviance], "levels");
}

#[test]
fn settings_and_targets_of_other_families_are_refused() {
    let (settings, set) = case(FamilyName::Gamma);
    let e = |settings: &GeneralisedLinear, set: &Dataset| {
        let sampling = Sampling::default().with_kind(Law::Mean);
        settings.field(&Sets(vec![set.clone()]), sampling, Isa::best()).err().expect("refused").to_string()
    };
    let zero = Dataset { targets: Some(Labels::Numbers(vec![0.0; 240])), ..set.clone() };
    assert!(e(&settings, &zero).contains("the target 0, and the family is gamma"));
    for (changed, words) in [
        (GeneralisedLinear { dispersion: Some(1.0), ..settings.clone() }, "dispersion: 1, which belongs to the negative-binomial family"),
        (GeneralisedLinear { dispersion: None, ..base(FamilyName::NegativeBinomial) }, "dispersion: the negative-binomial family needs it"),
        (GeneralisedLinear { huber_delta: Some(-1.0), ..base(FamilyName::Huber) }, "huber_delta: -1 is not accepted"),
        (GeneralisedLinear { offset: Some("other".into()), ..settings.clone() }, "there is no column `other`"),
        (GeneralisedLinear { row_weights: Some("x1".into()), ..settings.clone() }, "row_weights: table: row 1 has the weight -0.343"),
        (
            GeneralisedLinear { row_weights: Some("x1".into()), offset: Some("x1".into()), ..settings.clone() },
            "row_weights: the column `x1` is the offset besides",
        ),
        (GeneralisedLinear { categorical: vec!["agent".into()], ..settings.clone() }, "categorical: the column `agent` is the group"),
    ] {
        let got = e(&changed, &set);
        assert!(got.contains(words), "{got}");
    }
    let (classes, several) = case(FamilyName::Multinomial);
    let nine = GeneralisedLinear { reference: Some(ClassLabel::Number(9.0)), ..classes };
    assert!(e(&nine, &several).contains("no row has the label 9"));
    let (huber, set) = case(FamilyName::Huber);
    refused(&huber, set, CovarianceKind::Sandwich, &["huber has no likelihood"]);
}

/// R's formula for gamma with prior weights: the dispersion is deviance / (sum of weights), and log-densities count by their weights.
#[test]
fn gamma_with_row_weights_has_the_likelihood_of_r() {
    let settings = GeneralisedLinear { row_weights: Some("log_exposure".into()), ..base(FamilyName::Gamma) };
    let set = table(FamilyName::Gamma);
    let (Rows::Dense { values, .. }, Some(Labels::Numbers(y))) = (&set.rows, &set.targets) else { unreachable!() };
    let got = inferred(&settings, vec![set.clone()], CovarianceKind::Model).unwrap();
    let theta: Vec<f64> = got.coefficients.iter().map(|c| c.estimate).collect();
    let rows: Vec<(f64, f64, f64)> =
        values.chunks(4).zip(y).map(|(x, y)| ((theta[0] + theta[1] * x[0] + theta[2] * x[1] + theta[3] * x[2]).exp(), *y, x[3])).collect();
    let weights: f64 = rows.iter().map(|(.., w)| w).sum();
    let deviance: f64 = rows.iter().map(|(mu, y, w)| 2.0 * w * (y / mu - 1.0 - (y / mu).ln())).sum();
    let (shape, scale) = (weights / deviance, deviance / weights);
    let density = |mu: f64, y: f64| (shape - 1.0) * y.ln() - y / (mu * scale) - shape * (mu * scale).ln() - libm::lgamma(shape);
    let likelihood: f64 = rows.iter().map(|(mu, y, w)| w * density(*mu, *y)).sum();
    near(&[got.deviance, got.log_likelihood, got.aic], &[deviance, likelihood, 2.0 * (5.0 - likelihood)], "gamma");
}

/// Without residuals there is nothing to estimate the dispersion from; a column that hardly varies is not called constant.
#[test]
fn exact_fits_and_columns_far_from_zero_are_said_to_be_so() {
    let (settings, set) = case(FamilyName::Gaussian);
    for y in [3.0, 0.0] {
        let constant = Dataset { targets: Some(Labels::Numbers(vec![y; 240])), ..set.clone() };
        refused(&settings, constant, CovarianceKind::Model, &[&format!("all rows have the target {y}")]);
    }
    let Rows::Dense { values, .. } = &set.rows else { unreachable!() };
    let with = |x: &dyn Fn(usize) -> f64| {
        let values = values.chunks(3).enumerate().flat_map(|(j, row)| [row[0], row[1], x(j)]).collect();
        Dataset { rows: Rows::Dense { d: 3, values }, ..set.clone() }
    };
    let exact = with(&|j| if let Some(Labels::Numbers(y)) = &set.targets { y[j] } else { 0.0 });
    refused(&settings, exact, CovarianceKind::Model, &["fits all rows exactly"]);
    let far = with(&|j| 9e15 + (j * 7 % 240) as f64);
    refused(&settings, far.clone(), CovarianceKind::Model, &["`x3` varies by less than 1e-6 of its size, from 9e15"]);
    let standardised = GeneralisedLinear { standardise: true, ..settings };
    assert!(inferred(&standardised, vec![far], CovarianceKind::Model).is_ok());
}
