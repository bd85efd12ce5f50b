//! Reading the real data sets: counts, classes, and how long it takes.
//!
//! Runs only where `FEDSA_DATA` names the folder with the data.

use std::collections::BTreeMap;
use std::time::Instant;

use fedsa_data::{DiskFiles, find::Places};
use fedsa_problems::Files;
use fedsa_problems::rows::dataset::{Dataset, Labels, Rows, Wanted};

fn files() -> Option<DiskFiles> {
    fedsa_testing::data()?;
    Some(DiskFiles::new(Places::from_env("")))
}

fn read(files: &DiskFiles, sources: &[&str], wanted: &Wanted) -> Vec<Dataset> {
    let sources: Vec<String> = sources.iter().map(|source| source.to_string()).collect();
    let start = Instant::now();
    let sets = files.datasets(&sources, wanted).unwrap();
    println!("{sources:?}: {:.1} ms", start.elapsed().as_secs_f64() * 1e3);
    sets.iter().for_each(|set| set.check().unwrap());
    sets
}

/// How many rows have each number.
fn counts(labels: &Option<Labels>) -> BTreeMap<i64, usize> {
    let Some(Labels::Numbers(numbers)) = labels else { panic!("no numbers: {labels:?}") };
    let mut counts = BTreeMap::new();
    for x in numbers {
        assert_eq!(x.fract(), 0.0);
        *counts.entry(*x as i64).or_default() += 1;
    }
    counts
}

fn shape(set: &Dataset) -> (usize, usize) {
    assert_eq!(set.columns.len(), set.rows.columns());
    (set.rows.len(), set.rows.columns())
}

#[test]
fn libsvm_sets_have_the_rows_and_classes_of_the_collection() {
    let Some(files) = files() else { return };
    for (name, rows, columns, positive) in
        [("w8a", 49_749, 300, 1479), ("w8a.t", 14_951, 300, 454), ("a9a", 32_561, 123, 7841), ("phishing", 11_055, 68, 6157)]
    {
        let set = read(&files, &[&format!("libsvm/{name}")], &Wanted::default()).remove(0);
        assert_eq!(shape(&set), (rows, columns), "{name}");
        assert_eq!(counts(&set.targets)[&1], positive, "{name}");
        assert!(matches!(set.rows, Rows::Sparse { .. }));
        let name = |j: usize| set.columns.name(j).map(|name| name.into_owned());
        assert_eq!((name(0), name(columns - 1)), (Some("1".into()), Some(columns.to_string())));
    }
    // Alone it has 122 columns; beside a9a it has those of a9a.
    assert_eq!(shape(&read(&files, &["libsvm/a9a.t"], &Wanted::default())[0]), (16_281, 122));
    let both = read(&files, &["libsvm/a9a", "libsvm/a9a.t"], &Wanted::default());
    assert_eq!(both.iter().map(shape).collect::<Vec<_>>(), [(32_561, 123), (16_281, 123)]);
    let first: Vec<usize> = both[0].rows.row(0).map(|(j, _)| j + 1).collect();
    assert_eq!(first, [3, 11, 14, 19, 39, 42, 55, 64, 67, 73, 75, 76, 80, 83]);
}

#[test]
fn images_come_with_labels_and_writers() {
    let Some(files) = files() else { return };
    let wanted = Wanted::default().with_group("writers");
    for source in ["femnist-digits", "femnist-digits/images-idx3-ubyte.gz"] {
        let set = read(&files, &[source], &wanted).remove(0);
        assert_eq!(shape(&set), (5997, 784));
        assert_eq!(counts(&set.targets).keys().copied().collect::<Vec<_>>(), (0..10).collect::<Vec<_>>());
        assert_eq!(counts(&set.groups).len(), 12);
        // White on black: the corners are black.
        let Rows::Dense { values, .. } = &set.rows else { panic!("sparse") };
        assert!(values.iter().all(|x| (0.0..=255.0).contains(x)) && values.contains(&255.0));
    }
    // The copy without the official order answers to its own name too.
    assert_eq!(shape(&read(&files, &["fashion-mnist-unordered/t10k"], &Wanted::default())[0]), (10_000, 784));
    let train = read(&files, &["fashion-mnist/train"], &Wanted::default()).remove(0);
    assert_eq!(shape(&train), (60_000, 784));
    let both = read(&files, &["fashion-mnist"], &Wanted::default());
    assert_eq!(both.iter().map(|set| shape(set).0).collect::<Vec<_>>(), [10_000, 60_000]);
    let (mut all, train) = (counts(&both[0].targets), counts(&both[1].targets));
    train.into_iter().for_each(|(class, count)| *all.entry(class).or_default() += count);
    assert_eq!(all.into_iter().collect::<Vec<_>>(), (0..10).map(|class| (class, 7000)).collect::<Vec<_>>());
}

#[test]
fn a_table_of_songs_has_years_as_targets() {
    let Some(files) = files() else { return };
    let wanted = Wanted::default().with_target("year");
    for source in ["million-song", "million-song/timbre"] {
        let set = read(&files, &[source], &wanted).remove(0);
        assert_eq!(shape(&set), (4680, 54));
        let years = counts(&set.targets);
        assert_eq!((years.keys().min(), years.keys().max()), (Some(&1926), Some(&2010)));
        assert_eq!((set.columns.name(0).as_deref(), set.rows.row(0).next()), (Some("x0"), Some((0, 43.07103636363632))));
    }
    let logs = Wanted::default().with_target("reward").with_drop(vec!["episode".into()]).with_group("done");
    let sets = read(&files, &["transitions/cartpole"], &logs);
    assert_eq!(sets.iter().map(shape).collect::<Vec<_>>(), [(20_000, 9); 8]);
}

#[test]
fn the_digest_is_one_of_the_contents() {
    let Some(files) = files() else { return };
    let digest = |sources: &[&str], times: usize| {
        let files = DiskFiles::new(files.places.clone());
        (0..times).for_each(|_| drop(read(&files, sources, &Wanted::default())));
        files.digest()
    };
    let once = digest(&["libsvm/phishing"], 1);
    assert_ne!(once, 0);
    assert_eq!(digest(&["libsvm/phishing"], 2), once);
    assert_ne!(digest(&["libsvm/a9a.t"], 1), once);
    assert_ne!(digest(&["libsvm/phishing", "libsvm/a9a.t"], 1), digest(&["libsvm/a9a.t", "libsvm/phishing"], 1));
}
