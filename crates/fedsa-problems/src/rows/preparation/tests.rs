use faer::Mat;

use super::partition::Pool;
use super::targets::{ClassLabel, Found};
use super::transform::{PcaFit, TransformRule};
use super::*;
use crate::NoFiles;
use crate::logs::log_form::LogForm;
use crate::logs::replay;
use crate::logs::source::LogSource;
use crate::rows::dataset::Labels;
use crate::rows::regression::Logistic;
use fedsa::linalg;
use fedsa::problem::arrays::Arrays;
use fedsa::random::{Purpose, Stream, stream};

/// Data sets in memory.
struct Sets(Vec<Dataset>);

impl Files for Sets {
    fn arrays(&self, path: &str) -> Result<Arrays> {
        NoFiles.arrays(path)
    }
    fn logs(&self, sources: &[String], form: &LogForm) -> Result<Vec<Box<dyn LogSource>>> {
        NoFiles.logs(sources, form)
    }
    fn datasets(&self, _: &[String], _: &Wanted) -> Result<Vec<Dataset>> {
        Ok(self.0.clone())
    }
}

fn set(rows: Rows, labels: Labels) -> Dataset {
    let columns = (0..rows.columns()).map(|i| format!("x{i}")).collect();
    Dataset { name: "set".into(), columns, rows, targets: Some(labels), groups: None, texts: Vec::new(), notes: Vec::new() }
}

/// n rows whose only feature is their index, with these labels.
fn numbered(labels: Vec<f64>) -> Dataset {
    let values = (0..labels.len()).map(|i| i as f64).collect();
    set(Rows::Dense { d: 1, values }, Labels::Numbers(labels))
}

fn how(agents: usize) -> Preparation {
    Preparation { agents: Some(agents), ..Logistic::new(replay::Sources::One("x".into())).preparation() }
}

/// The indices of each agent's rows, in the agent's order.
fn dealt(part: &LabelledRows) -> Vec<Vec<usize>> {
    let of = |at: &[usize]| (at[0]..at[1]).map(|j| part.rows.row(j).next().map_or(0, |(_, x)| x as usize)).collect();
    part.first.windows(2).map(of).collect()
}

fn normals(n: usize, s: &mut Stream) -> Vec<f64> {
    (0..n).map(|_| s.normal()).collect()
}

/// 120 rows of 4 classes.
fn four_classes() -> Vec<f64> {
    (0..120).map(|i| f64::from(i % 4)).collect()
}

#[test]
fn every_partition_deals_every_row_at_most_once() {
    let labels = four_classes();
    for partition in
        [Partition::Even, Partition::Shuffled, Partition::Sorted, Partition::Similarity(0.4), Partition::Dirichlet(0.7), Partition::ByLabel]
    {
        for (samples, reshuffle, holdout) in [(None, false, 0.0), (Some(4), false, 0.0), (Some(4), true, 0.3), (None, true, 0.0)] {
            if partition == Partition::Dirichlet(0.7) && samples.is_some() {
                continue;
            }
            let positive = TargetRule::Classes { positive: Some(ClassLabel::Number(2.0)), classes: None };
            let how = Preparation { partition, samples, reshuffle, holdout, targets: positive, seed: 3, ..how(7) };
            let Prepared { train, held_out, weights, .. } = how.prepare(&Sets(vec![numbered(labels.clone())])).unwrap();
            let (fit, held) = (dealt(&train), dealt(&held_out));
            let mut all: Vec<usize> = fit.iter().chain(&held).flatten().copied().collect();
            all.sort_unstable();
            let n = all.len();
            all.dedup();
            assert_eq!(all.len(), n, "{partition:?}: a row twice");
            let expected = samples.map_or(120, |samples| 7 * samples);
            assert_eq!((n, weights.len()), (expected, 7), "{partition:?}");
            for (j, row) in fit.iter().flatten().enumerate() {
                assert_eq!(train.targets[j], if row % 4 == 2 { 1.0 } else { -1.0 });
            }
            if samples.is_some() {
                assert!(fit.iter().zip(&held).all(|(fit, held)| fit.len() + held.len() == 4 && (held.len() == 1) == (holdout > 0.0)));
            } else if !matches!(partition, Partition::Dirichlet(_) | Partition::ByLabel) {
                assert!(fit.iter().all(|rows| rows.len() == 17 || rows.len() == 18), "{partition:?}");
            }
        }
    }
}

#[test]
fn partitions_are_what_they_say() {
    let of = |partition, samples, agents, seed| {
        let positive = TargetRule::Classes { positive: Some(ClassLabel::Number(2.0)), classes: None };
        let how = Preparation { partition, samples, targets: positive, seed, ..how(agents) };
        dealt(&how.prepare(&Sets(vec![numbered(four_classes())])).unwrap().train)
    };
    assert_eq!(of(Partition::Even, None, 7, 0)[..2], [(0..18).collect::<Vec<_>>(), (18..35).collect()]);
    assert_eq!(of(Partition::Even, Some(3), 2, 0), [vec![0, 1, 2], vec![3, 4, 5]]);
    let classes = |rows: &[usize]| {
        let mut classes: Vec<usize> = rows.iter().map(|row| row % 4).collect();
        classes.sort_unstable();
        classes
    };
    // Sorted: one class per agent, in increasing order.
    for (c, rows) in of(Partition::Sorted, None, 4, 1).iter().enumerate() {
        assert_eq!(classes(rows), vec![c; 30]);
    }
    assert_eq!(of(Partition::Similarity(0.0), None, 4, 1), of(Partition::Sorted, None, 4, 1));
    // By label: half of the positive class, half of one other, which take turns.
    for (c, rows) in of(Partition::ByLabel, Some(9), 6, 1).iter().enumerate() {
        let other = [0, 1, 3][c % 3];
        let mut expected = [vec![2; 4], vec![other; 5]].concat();
        expected.sort_unstable();
        assert_eq!(classes(rows), expected);
    }
    assert_eq!(of(Partition::ByLabel, None, 7, 1).iter().map(Vec::len).collect::<Vec<_>>(), [15, 20, 19, 14, 19, 19, 14]);
    assert_ne!(of(Partition::Shuffled, None, 4, 1), of(Partition::Shuffled, None, 4, 2));
}

#[test]
fn agents_are_files_or_values_of_a_column() {
    let labels = || Labels::Numbers(vec![0.0, 1.0, 0.0]);
    let mut sets = vec![
        set(Rows::Dense { d: 1, values: vec![0.0, 1.0, 2.0] }, labels()),
        set(Rows::Dense { d: 1, values: vec![3.0, 4.0, 5.0] }, labels()),
    ];
    let files = Preparation { agents: None, partition: Partition::Files, ..how(1) };
    assert_eq!(dealt(&files.prepare(&Sets(sets.clone())).unwrap().train), [vec![0, 1, 2], vec![3, 4, 5]]);
    let columns = Preparation { agents: None, partition: Partition::ByColumn, weighting: AgentWeights::Rows, ..how(1) };
    assert_eq!(columns.prepare(&Sets(sets.clone())).unwrap_err().key, "group");
    sets[0].groups = Some(Labels::Names { names: vec!["b".into(), "a".into()], of: vec![0, 1, 0] });
    sets[1].groups = Some(Labels::Names { names: vec!["a".into(), "c".into()], of: vec![0, 0, 1] });
    let prepared = columns.prepare(&Sets(sets.clone())).unwrap();
    assert_eq!(dealt(&prepared.train), [vec![0, 2], vec![1, 3, 4], vec![5]]);
    assert_eq!(prepared.weights, [2.0 / 6.0, 3.0 / 6.0, 1.0 / 6.0]);
    let mixed = Preparation { reshuffle: true, ..columns.clone() };
    let mixed = dealt(&mixed.prepare(&Sets(sets.clone())).unwrap().train);
    assert_eq!(mixed.iter().map(Vec::len).collect::<Vec<_>>(), [2, 3, 1]);
    let e = Preparation { agents: Some(2), ..columns }.prepare(&Sets(sets)).unwrap_err();
    assert!(e.key == "agents" && e.what.contains("3 values"), "{e}");
}

/// A share of a class is Beta(alpha, (N - 1) alpha): mean 1/N, variance (N - 1) / (N^2 (N alpha + 1)).
#[test]
fn dirichlet_shares_have_their_law() {
    let (agents, alpha, seeds) = (4, 0.8, 400);
    let labels: Vec<f64> = (0..4000).map(|i| f64::from(i % 2)).collect();
    let sets = [numbered(labels)];
    let found = Found::of(&sets, &TargetRule::Classes { positive: None, classes: None }).unwrap();
    let pool = Pool::new(&sets, &found).unwrap();
    let mut shares = Vec::new();
    for seed in 0..seeds {
        let divided = Partition::Dirichlet(alpha).divide(&pool, Some(agents), None, false, seed).unwrap();
        // The first agent's share of each class; the classes are independent.
        shares.extend((0..2).map(|class| divided[0].iter().filter(|row| *row % 2 == class).count() as f64 / 2000.0));
    }
    let n = shares.len() as f64;
    let mean = shares.iter().sum::<f64>() / n;
    let squares: Vec<f64> = shares.iter().map(|x| (x - mean).powi(2)).collect();
    let variance = squares.iter().sum::<f64>() / n;
    let expected = 3.0 / (16.0 * (4.0 * alpha + 1.0));
    let error = (squares.iter().map(|x| (x - variance).powi(2)).sum::<f64>() / n / n).sqrt();
    assert!((mean - 0.25).abs() < 4.0 * (expected / n).sqrt(), "{mean}");
    assert!((variance - expected).abs() < 4.0 * error, "{variance} {expected} {error}");
}

/// Chi-square of the positions of rows over agents: 3 degrees of freedom for each row, over seeds.
#[test]
fn shuffled_rows_come_to_each_agent_alike() {
    let (n, agents, seeds) = (40, 4, 2000);
    let sets = [numbered((0..n).map(|i| f64::from(i as u32 % 2)).collect())];
    let found = Found::of(&sets, &TargetRule::Classes { positive: None, classes: None }).unwrap();
    let pool = Pool::new(&sets, &found).unwrap();
    for (partition, reshuffle) in [(Partition::Shuffled, false), (Partition::Sorted, true)] {
        let mut counts = vec![[0.0; 4]; n];
        for seed in 0..seeds {
            let divided = partition.divide(&pool, Some(agents), None, reshuffle, seed).unwrap();
            divided.iter().enumerate().for_each(|(c, rows)| rows.iter().for_each(|row| counts[*row][c] += 1.0));
        }
        let expected = seeds as f64 / agents as f64;
        let chi: f64 = counts.iter().flatten().map(|count| (count - expected).powi(2) / expected).sum();
        // Mean 3 n, slightly less because agents fill up; standard deviation about sqrt(6 n).
        let mean = 3.0 * n as f64;
        assert!((chi - mean).abs() < 5.0 * (6.0 * n as f64).sqrt(), "{partition:?}: {chi} of {mean}");
    }
}

fn random_set(n: usize, d: usize, sparse: bool) -> Dataset {
    let mut s = stream(9, Purpose::Fresh, 0, 0);
    let mut values = normals(n * d, &mut s);
    for row in values.chunks_mut(d) {
        row.iter_mut().enumerate().for_each(|(i, x)| *x = (i + 1) as f64 * *x + 5.0 * i as f64);
        row[1] = 7.0;
        if s.uniform() < 0.5 {
            row[2] = 0.0;
        }
    }
    let rows = Rows::Dense { d, values };
    set(if sparse { rows.to_sparse() } else { rows }, Labels::Numbers((0..n).map(|i| f64::from(i as u32 % 2)).collect()))
}

#[test]
fn standardised_features_have_mean_0_and_deviation_1_over_the_union() {
    let (n, d) = (60, 5);
    for sparse in [false, true] {
        let how = Preparation { standardise: true, divide_by: 4.0, partition: Partition::Shuffled, ..how(7) };
        let prepared = how.prepare(&Sets(vec![random_set(n, d, sparse)])).unwrap();
        let raw = random_set(n, d, false).rows;
        let column = |rows: &Rows, i: usize| (0..n).map(|j| rows.row(j).find(|(k, _)| *k == i).map_or(0.0, |(_, x)| x)).collect::<Vec<_>>();
        let moments = |x: &[f64]| {
            let mean = x.iter().sum::<f64>() / n as f64;
            (mean, (x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n as f64).sqrt())
        };
        for i in 0..d {
            let (mean, deviation) = moments(&column(&prepared.train.rows, i));
            let (raw_mean, raw_deviation) = moments(&column(&raw, i));
            if i == 1 {
                assert_eq!((mean, deviation), if sparse { (7.0 / 4.0, 0.0) } else { (0.0, 0.0) }, "a constant column is not scaled");
                continue;
            }
            assert!((deviation - 1.0).abs() < 1e-13, "{deviation}");
            assert!((mean - if sparse { raw_mean / raw_deviation } else { 0.0 }).abs() < 1e-13, "{mean}");
            assert!((prepared.transform.deviations[i] - raw_deviation / 4.0).abs() < 1e-14 * raw_deviation);
        }
    }
}

/// Numbers whose squares are 0 or infinite are scaled like all others, also outliers near the largest number.
#[test]
fn columns_of_any_size_are_standardised() {
    let (n, d) = (60, 5);
    let plain = random_set(n, d, false);
    let Rows::Dense { values, .. } = &plain.rows else { unreachable!() };
    let how = Preparation { standardise: true, partition: Partition::Shuffled, ..how(7) };
    let standardised = |values: Vec<f64>, is_sparse: bool| {
        let rows = Rows::Dense { d, values };
        let rows = if is_sparse { rows.to_sparse() } else { rows };
        let prepared = how.prepare(&Sets(vec![set(rows, plain.targets.clone().unwrap())])).unwrap();
        let all: Vec<f64> = (0..n).flat_map(|j| prepared.train.rows.row(j).map(|(_, x)| x).collect::<Vec<_>>()).collect();
        (all, prepared.transform.deviations)
    };
    for is_sparse in [false, true] {
        let (expected, deviations) = standardised(values.clone(), is_sparse);
        for exponent in [-1000, -700, -500, 500, 1015] {
            let size = f64::from(exponent).exp2();
            let (got, scaled) = standardised(values.iter().map(|x| x * size).collect(), is_sparse);
            let off = expected.iter().zip(&got).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            // The constant column is divided by 1.
            let off_deviation = (0..d).filter(|i| *i != 1).map(|i| (scaled[i] / size / deviations[i] - 1.0).abs()).fold(0.0, f64::max);
            assert!(off_deviation < 1e-15 && (is_sparse || off < 1e-13), "2^{exponent}: {off:e} {off_deviation:e}");
        }
    }
    // For alternating +-1e308, the deviation is 1e308.
    let ends = (0..n * d).map(|k| if (k / d) % 2 == 0 { 1e308 } else { -1e308 });
    let (got, deviations) = standardised(ends.collect(), false);
    assert!(deviations.iter().all(|x| (x / 1e308 - 1.0).abs() < 1e-15) && got.iter().all(|x| (x.abs() - 1.0).abs() < 1e-15));
    // One outlier of 1e308 puts the others at its distance from the mean, which is finite.
    let mut with_outlier = values.clone();
    with_outlier[0] = 1e308;
    assert!(standardised(with_outlier, false).0.iter().all(|x| x.is_finite() && x.abs() < 8.0));
}

#[test]
fn components_are_eigenvectors_of_the_unions_second_moments() {
    let (n, d) = (60, 5);
    for centre in [true, false] {
        let of = |fit| {
            let how = Preparation { pca: Some(Pca { dim: 3, centre, fit }), intercept: true, ..how(7) };
            how.prepare(&Sets(vec![random_set(n, d, false)])).unwrap()
        };
        let (union, federated) = (of(PcaFit::Union), of(PcaFit::Federated));
        let parts = |prepared: &Prepared| prepared.transform.components.clone().unwrap();
        let (x, y) = (parts(&union), parts(&federated));
        assert!(
            (&x.vectors - &y.vectors).norm_max() < 1e-12
                && union.sizes().contains("on the union")
                && federated.sizes().contains("federatedly")
        );
        let Rows::Dense { values, .. } = random_set(n, d, false).rows else { unreachable!() };
        let mean = |i: usize| if centre { values.iter().skip(i).step_by(d).sum::<f64>() / n as f64 } else { 0.0 };
        let means: Vec<f64> = (0..d).map(mean).collect();
        let moment = |i: usize, k: usize| values.chunks(d).map(|row| (row[i] - means[i]) * (row[k] - means[k])).sum::<f64>() / n as f64;
        let moments = Mat::from_fn(d, d, moment);
        for (k, lambda) in x.moments.iter().enumerate() {
            let v = x.vectors.col_as_slice(k).to_vec();
            let image = linalg::mat_vec(&moments, &v);
            let residual: f64 = image.iter().zip(&v).map(|(a, v)| (a - lambda * v).powi(2)).sum();
            assert!(residual.sqrt() < 1e-11 * x.moments[0] && (linalg::norm_sq(&v) - 1.0).abs() < 1e-13);
            let most = v.iter().copied().max_by(|a, b| a.abs().total_cmp(&b.abs())).unwrap();
            assert!(most > 0.0 && (k == 0 || *lambda <= x.moments[k - 1]));
        }
        // Scores are the same on the columns of the file.
        let theta = [0.3, -1.0, 0.7, 2.0];
        let (weights, constant) = union.transform.on_columns(&theta);
        for (row, score) in values.chunks(d).zip(union.train.scores(&theta)) {
            let direct: f64 = row.iter().zip(&weights).map(|(x, w)| x * w).sum::<f64>() + constant;
            assert!((direct - score).abs() < 1e-11 * (1.0 + score.abs()));
        }
    }
}

#[test]
fn models_of_standardised_features_are_models_of_columns() {
    for sparse in [false, true] {
        let how = Preparation { standardise: true, divide_by: 3.0, intercept: true, ..how(4) };
        let prepared = how.prepare(&Sets(vec![random_set(30, 4, sparse)])).unwrap();
        let theta = [0.3, -1.0, 0.7, 2.0, -0.4];
        let (weights, constant) = prepared.transform.on_columns(&theta);
        let raw = random_set(30, 4, false).rows;
        for (j, score) in prepared.train.scores(&theta).iter().enumerate() {
            let direct: f64 = raw.row(j).map(|(i, x)| weights[i] * x).sum::<f64>() + constant;
            assert!((direct - score).abs() < 1e-12);
        }
        // In other rows, columns unknown to the fit are left out, and missing ones are 0.
        for (d, sparse) in [(6, false), (6, true), (2, false), (2, true)] {
            let other = random_set(5, 6, false).rows;
            let cut: Vec<f64> = (0..5).flat_map(|j| other.row(j).map(|(_, x)| x).take(d).collect::<Vec<_>>()).collect();
            let cut = Rows::Dense { d, values: cut };
            let features = prepared.transform.apply(if sparse { cut.to_sparse() } else { cut.clone() });
            assert_eq!((features.columns(), features.len()), (5, 5));
            for j in 0..5 {
                let direct: f64 = cut.row(j).filter(|(i, _)| *i < 4).map(|(i, x)| weights[i] * x).sum::<f64>() + constant;
                let score: f64 = features.row(j).map(|(i, x)| theta[i] * x).sum();
                assert!((direct - score).abs() < 1e-12, "{d} {sparse}");
            }
        }
    }
}

#[test]
fn held_out_rows_are_a_share_of_each_agents_rows_and_judge_models() {
    let how = Preparation { holdout: 0.25, weighting: AgentWeights::Rows, ..how(3) };
    let prepared = how.prepare(&Sets(vec![random_set(34, 3, false)])).unwrap();
    // 12, 11 and 11 rows.
    assert_eq!((prepared.train.first.clone(), prepared.held_out.first.clone()), (vec![0, 9, 17, 25], vec![0, 3, 6, 9]));
    assert_eq!(prepared.weights, [9.0 / 25.0, 8.0 / 25.0, 8.0 / 25.0]);
    let theta = [0.1, 0.02, -0.3];
    let quality = prepared.held_out_quality(&theta).unwrap();
    let (mut loss, mut right) = (0.0, 0);
    for (j, y) in prepared.held_out.targets.iter().enumerate() {
        let t: f64 = prepared.held_out.rows.row(j).map(|(i, x)| theta[i] * x).sum();
        loss += (1.0 + (-y * t).exp()).ln() / 9.0;
        right += usize::from((t > 0.0) == (*y > 0.0));
    }
    assert!((quality.loss - loss).abs() < 1e-14 && quality.rows == 9 && quality.accuracy == Some(right as f64 / 9.0));
    assert_eq!(prepared.train_quality(&theta).rows, 25);
    let all = Preparation { holdout: 0.0, ..how }.prepare(&Sets(vec![random_set(34, 3, false)])).unwrap();
    assert!(all.held_out_quality(&theta).is_none());
}

/// A row of weight w equals w rows, also in means and deviations.
#[test]
fn standardisation_counts_rows_by_their_weights() {
    let set = random_set(20, 3, false);
    let Rows::Dense { d, values } = &set.rows else { unreachable!() };
    let weights: Vec<f64> = (0..20).map(|i| f64::from(i * 7 % 4)).collect();
    let repeated = |j: usize| (0..weights[j] as usize).flat_map(move |_| values[j * d..(j + 1) * d].to_vec());
    let many = Rows::Dense { d: *d, values: (0..20).flat_map(repeated).collect() };
    let labels = Labels::Numbers(vec![0.0; many.len()]);
    let many = Dataset { targets: Some(labels), rows: many, ..set.clone() };
    let rule = TransformRule { divide_by: 2.0, standardise: true, pca: None, intercept: false, known: None };
    let fit = |set: &Dataset, weights: &[f64]| {
        let sets = [set.clone()];
        let found = Found::of(&sets, &TargetRule::Numbers { range: None }).unwrap();
        let rows: Vec<usize> = (0..set.rows.len()).collect();
        Transform::fit(&rule, &sets, &Pool::new(&sets, &found).unwrap(), (&[rows], weights), &Cancel::never()).unwrap()
    };
    let (weighted, expected) = (fit(&set, &weights), fit(&many, &[]));
    assert!(linalg::distance_sq(&weighted.means, &expected.means).sqrt() < 1e-13);
    assert!(linalg::distance_sq(&weighted.deviations, &expected.deviations).sqrt() < 1e-13);
    assert!(linalg::distance_sq(&weighted.deviations, &fit(&set, &[]).deviations).sqrt() > 1e-3);
}

#[test]
fn targets_are_classes_or_numbers_in_a_range() {
    let targets = |labels: Labels, targets: TargetRule| {
        let rows = Rows::Dense { d: 1, values: vec![1.0; labels.len()] };
        Preparation { targets, ..how(1) }.prepare(&Sets(vec![set(rows, labels)]))
    };
    let classes = |positive| TargetRule::Classes { positive, classes: None };
    let names = |names: &[&str], of: &[u32]| Labels::Names { names: names.iter().map(|x| x.to_string()).collect(), of: of.to_vec() };
    assert_eq!(targets(Labels::Numbers(vec![0.0, 1.0, 1.0]), classes(None)).unwrap().train.targets, [-1.0, 1.0, 1.0]);
    assert_eq!(targets(Labels::Numbers(vec![-1.0, 1.0]), classes(None)).unwrap().train.targets, [-1.0, 1.0]);
    // The second in alphabetical order.
    let class = |name: &str| ClassLabel::Name(name.into());
    let spam = targets(names(&["spam", "ham"], &[0, 1, 0]), classes(None)).unwrap();
    assert_eq!(spam.train.targets, [1.0, -1.0, 1.0]);
    let Targets::Classes { positive, negative, .. } = &spam.targets else { panic!() };
    assert_eq!((positive, negative), (&ClassLabel::Name("spam".into()), &Some(ClassLabel::Name("ham".into()))));
    let ham = classes(Some(ClassLabel::Name("ham".into())));
    assert_eq!(targets(names(&["spam", "ham", "eggs"], &[0, 1, 2]), ham).unwrap().train.targets, [-1.0, 1.0, -1.0]);
    // One agent's rows of one class, with the classes of all agents.
    let all = |names: &[&str]| Some(names.iter().map(|name| ClassLabel::Name((*name).into())).collect());
    let binary = TargetRule::Classes { positive: None, classes: all(&["spam", "ham"]) };
    let one_class = targets(names(&["ham"], &[0, 0]), binary).unwrap();
    assert_eq!(one_class.train.targets, [-1.0, -1.0]);
    assert_eq!(one_class.targets, Targets::Classes { rank: 1, positive: class("spam"), negative: Some(class("ham")) });
    let many = TargetRule::Many { reference: Some(class("eggs")), classes: all(&["spam", "ham", "eggs", "tea"]) };
    let two = targets(names(&["spam", "eggs"], &[0, 1, 0]), many).unwrap();
    // Against eggs: ham is 1, spam 2 and tea 3.
    assert_eq!((two.train.targets, two.train.family.outputs()), (vec![2.0, 0.0, 2.0], 3));
    // In character order, for given and found classes, also for names that messages escape.
    let marked = ["aZ", "a\u{1}", "b"];
    let ranks = |classes| targets(names(&marked, &[0, 1, 2]), TargetRule::Many { reference: None, classes }).unwrap().train.targets;
    assert_eq!((ranks(all(&marked)), ranks(None)), (vec![1.0, 0.0, 2.0], vec![1.0, 0.0, 2.0]));
    let numbers = targets(Labels::Numbers(vec![1990.0, 2010.0, 1950.0]), TargetRule::Numbers { range: Some([0.0, 1.0]) }).unwrap();
    assert!(linalg::distance_sq(&numbers.train.targets, &[2.0 / 3.0, 1.0, 0.0]).sqrt() < 1e-14);
    assert!((numbers.targets.label(0.5) - 1980.0).abs() < 1e-10);
    let scores = numbers.train_quality(&[0.5]);
    let expected = ((100.0f64 + 900.0 + 900.0) / 3.0).sqrt();
    assert!((scores.rmse.unwrap() - expected).abs() < 1e-9, "{scores:?}");
}

#[track_caller]
fn refused(how: Preparation, sets: Vec<Dataset>, key: &str, words: &[&str]) {
    let e = how.prepare(&Sets(sets)).unwrap_err();
    assert_eq!(e.key, key, "{e} ({})", e.help);
    for word in words {
        assert!(e.to_string().contains(word) || e.help.contains(word), "{e} ({}) lacks {word}", e.help);
    }
}

#[test]
fn labels_that_cannot_be_used_are_refused_with_the_reason() {
    let three = || vec![numbered(vec![1.0, 2.0, 3.0, 1.0])];
    refused(how(1), three(), "target", &["3 labels", "two classes: 1, 2, 3", "multinomial"]);
    let two = how(1).prepare(&Sets(vec![numbered(vec![2.0, 1.0])])).unwrap();
    assert_eq!((two.train.targets, two.notes[0].code), (vec![1.0, -1.0], fedsa::note::NoteCode::PositiveClass));
    let alike = Labels::Names { names: ["Yes", "no", " yes"].map(String::from).into(), of: vec![0, 1, 2, 2] };
    let alike = Dataset { targets: Some(alike), ..numbered(vec![0.0; 4]) };
    refused(how(1), vec![alike], "target", &["`Yes` (1 row in set)", "` yes` (2 rows in set)"]);
    let positive = |x: f64| TargetRule::Classes { positive: Some(ClassLabel::Number(x)), classes: None };
    refused(Preparation { targets: positive(7.0), ..how(1) }, three(), "positive", &["label 7", "1, 2, 3"]);
    let name = TargetRule::Classes { positive: Some(ClassLabel::Name("1".into())), classes: None };
    refused(Preparation { targets: name, ..how(1) }, three(), "positive", &["\"1\"", "1, 2, 3"].map(|x| x.trim_matches('"')));
    let among = |classes: Vec<ClassLabel>| Preparation { targets: TargetRule::Many { reference: None, classes: Some(classes) }, ..how(1) };
    let number = ClassLabel::Number;
    refused(among(vec![number(1.0), number(2.0)]), three(), "classes", &["label 3", "all agents"]);
    refused(among(vec![]), three(), "classes", &["0 classes"]);
    refused(among(vec![number(1.0), number(1.0)]), three(), "classes", &["2 classes, 1 of them different"]);
    refused(among(vec![number(1.0), ClassLabel::Name("2".into())]), three(), "classes", &["numbers and names", "[0, 1]"]);
    refused(how(1), vec![numbered(vec![1.0, 1.0])], "target", &["all rows have the target 1", "two classes"]);
    // The first two rows are of one class.
    refused(Preparation { targets: positive(3.0), samples: Some(2), ..how(1) }, three(), "positive", &["no agent has a row of class 3"]);
    refused(Preparation { targets: positive(1.0), samples: Some(1), ..how(1) }, three(), "positive", &["another class than 1"]);
}

#[test]
fn data_that_cannot_be_used_are_refused_with_the_reason() {
    let three = || vec![numbered(vec![1.0, 2.0, 3.0, 1.0])];
    let positive = |x: f64| TargetRule::Classes { positive: Some(ClassLabel::Number(x)), classes: None };
    let mut nan = numbered(vec![0.0, 1.0]);
    nan.rows = Rows::Dense { d: 1, values: vec![0.0, f64::NAN] };
    refused(how(1), vec![nan], "data.set", &["row 1", "x0", "NaN"]);
    refused(how(5), vec![numbered(vec![0.0, 1.0])], "agents", &["5 agents for 2 rows"]);
    refused(Preparation { samples: Some(3), targets: positive(2.0), ..how(2) }, three(), "samples", &["4 rows", "at most 2"]);
    refused(Preparation { agents: None, targets: positive(2.0), ..how(1) }, three(), "agents", &["no number"]);
    let pca = |dim| Some(Pca { dim, centre: true, fit: PcaFit::Union });
    refused(Preparation { pca: pca(2), ..how(1) }, vec![numbered(vec![0.0, 1.0])], "pca.dim", &["at most the number of columns, 1"]);
    refused(Preparation { pca: pca(0), ..how(1) }, three(), "pca.dim", &["at least 1"]);
    refused(Preparation { divide_by: 0.0, ..how(1) }, three(), "divide_by", &["255"]);
    refused(Preparation { holdout: 1.0, ..how(1) }, three(), "holdout", &["below 1"]);
    refused(Preparation { holdout: 0.5, ..how(2) }, vec![numbered(vec![0.0, 1.0])], "holdout", &["one row"]);
    refused(Preparation { partition: Partition::Dirichlet(0.0), ..how(1) }, three(), "partition.dirichlet", &["0.001"]);
    let numbers = |range| TargetRule::Numbers { range };
    refused(Preparation { targets: numbers(None), partition: Partition::ByLabel, ..how(1) }, three(), "partition", &["numbers"]);
    refused(Preparation { targets: numbers(Some([1.0, 0.0])), ..how(1) }, three(), "target_range", &["smaller one first"]);
    let names = Labels::Names { names: vec!["a".into(), "b".into()], of: vec![0, 1] };
    let named = || vec![set(Rows::Dense { d: 1, values: vec![0.0, 1.0] }, names.clone())];
    refused(Preparation { targets: numbers(None), ..how(1) }, named(), "target", &["names", "a, b"]);
    let unlabelled = Dataset { targets: None, ..numbered(vec![0.0, 1.0]) };
    refused(how(1), vec![unlabelled], "target", &["no labels"]);
    let wide = set(Rows::Dense { d: 2, values: vec![0.0, 1.0] }, Labels::Numbers(vec![1.0]));
    refused(how(1), vec![numbered(vec![0.0, 1.0]), wide], "data", &["1 features", "2"]);
    refused(
        Preparation { samples: Some(50), partition: Partition::ByLabel, ..how(2) },
        vec![numbered(four_classes())],
        "target",
        &["4 labels", "multinomial"],
    );
    let by_label = Preparation { samples: Some(60), partition: Partition::ByLabel, targets: positive(1.0), ..how(2) };
    refused(by_label, vec![numbered(four_classes())], "samples", &["60 rows of class 1", "there are 30"]);
}
