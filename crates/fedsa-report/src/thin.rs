//! Selects the records of long runs that a screen can show.

use std::collections::{HashMap, HashSet};

use crate::rounds::Series;

/// The largest number of numbers in the curves of a page: about 2 MB of text.
const MAX_NUMBERS: usize = 200_000;
/// The least number of records of a series that has more.
const FEWEST: usize = 64;

/// The seeds of a method at a point.
pub type Group<'a> = Vec<&'a Series>;

/// For each group, the indices of the selected records, the same for all its seeds: the first, the last, and for each stretch of records
/// those with the smallest and largest mean over the seeds of one of the columns `extremes`. Stretches are short at the start, for
/// logarithmic axes. If all groups have few numbers, all records are selected.
pub fn kept(groups: &[Group<'_>], columns: &[usize], extremes: &[usize]) -> Vec<Vec<usize>> {
    let most = most_records(groups, columns);
    groups.iter().map(|group| of_group(group, extremes, most)).collect()
}

fn records(group: &Group<'_>) -> usize {
    group.iter().map(|series| series.columns[0].len()).max().unwrap_or(0)
}

/// The largest number of records per series with which all columns fit into the page.
fn most_records(groups: &[Group<'_>], columns: &[usize]) -> usize {
    // Columns that are equal for all seeds count once.
    let distinct = |group: &Group<'_>| {
        let bits = |column: &Vec<f64>| column.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        let all = group.iter().flat_map(|series| columns.iter().map(|j| bits(&series.columns[*j])));
        all.collect::<HashSet<_>>().len()
    };
    let sizes: Vec<(usize, usize)> = groups.iter().map(|group| (records(group), distinct(group))).collect();
    let numbers = |most: usize| sizes.iter().map(|(records, columns)| columns * (*records).min(most)).sum::<usize>();
    let longest = sizes.iter().map(|(records, _)| *records).max().unwrap_or(0);
    if numbers(longest) <= MAX_NUMBERS {
        return longest;
    }
    // The largest fitting number of records is between these two.
    let (mut fits, mut does_not) = (FEWEST, longest.max(FEWEST + 1));
    while does_not - fits > 1 {
        let middle = usize::midpoint(fits, does_not);
        if numbers(middle) <= MAX_NUMBERS { fits = middle } else { does_not = middle }
    }
    fits
}

fn of_group(group: &Group<'_>, extremes: &[usize], most: usize) -> Vec<usize> {
    let records = records(group);
    if records <= most {
        return (0..records).collect();
    }
    let means: Vec<Vec<f64>> = extremes.iter().map(|j| mean(group, *j, records)).collect();
    // Metrics often have their extremes at the same records, so that more stretches fit.
    let mut count = most;
    loop {
        let kept = ends_and_extremes(group, &means, &stretches(records, count));
        if kept.len() <= most || count <= 2 {
            return kept;
        }
        count = (count * 4 / 5).max(2);
    }
}

/// The first record, the last record of each seed, and the extremes of these means in each stretch.
fn ends_and_extremes(group: &Group<'_>, means: &[Vec<f64>], stretches: &[usize]) -> Vec<usize> {
    let mut kept: Vec<usize> = group.iter().filter_map(|series| series.columns[0].len().checked_sub(1)).collect();
    kept.push(0);
    for stretch in stretches.windows(2) {
        for mean in means {
            let known = || (stretch[0]..stretch[1]).filter(|k| mean[*k].is_finite());
            kept.extend(known().min_by(|a, b| mean[*a].total_cmp(&mean[*b])));
            kept.extend(known().max_by(|a, b| mean[*a].total_cmp(&mean[*b])));
        }
    }
    kept.sort_unstable();
    kept.dedup();
    kept
}

/// The mean of a column over the seeds that have a record.
fn mean(group: &Group<'_>, column: usize, records: usize) -> Vec<f64> {
    let at = |k: usize| {
        let values: Vec<f64> = group.iter().filter_map(|series| series.columns[column].get(k).copied()).collect();
        values.iter().sum::<f64>() / values.len() as f64
    };
    (0..records).map(at).collect()
}

/// The edges of at most `count` stretches of records: half of equal length, half with logarithmically growing length.
fn stretches(records: usize, count: usize) -> Vec<usize> {
    let half = count.div_ceil(2);
    let part = |k: usize| k as f64 / half as f64;
    let equal = (0..=half).map(|k| (records as f64 * part(k)).round() as usize);
    let logarithmic = (0..=half).map(|k| (records as f64).powf(part(k)).round() as usize);
    let mut edges: Vec<usize> = equal.chain(logarithmic).collect();
    edges.sort_unstable();
    edges.dedup();
    edges
}

/// The series of some runs by run, method and point, in the order of the runs.
pub fn grouped<'a>(all: impl Iterator<Item = (usize, &'a Series)>) -> Vec<(usize, Group<'a>)> {
    let mut places: HashMap<(usize, &str, &str), usize> = HashMap::new();
    let mut groups: Vec<(usize, Group<'a>)> = Vec::new();
    for (run, series) in all {
        let place = *places.entry((run, &series.method, &series.point)).or_insert(groups.len());
        if place == groups.len() {
            groups.push((run, Vec::new()));
        }
        groups[place].1.push(series);
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(seed: u64, columns: Vec<Vec<f64>>) -> Series {
        Series { method: "A".into(), point: String::new(), seed, columns }
    }

    #[test]
    fn long_runs_keep_their_ends_and_extremes_and_short_ones_all() {
        let n = 100_000;
        let round: Vec<f64> = (0..n).map(f64::from).collect();
        let noise =
            |seed: i32, peak: i32| (0..n).map(|k| f64::from((k * 7919 + seed) % 1000) + if k == peak { 1e6 } else { 0.0 }).collect();
        let long: Vec<Series> = (0..4).map(|seed| series(seed as u64, vec![round.clone(), noise(seed, 77_777)])).collect();
        let short = series(0, vec![round[..50].to_vec(), round[..50].to_vec()]);
        let groups = [long.iter().collect(), vec![&short]];
        let kept = kept(&groups, &[0, 1], &[1]);
        assert_eq!(kept[1], (0..50).collect::<Vec<_>>());
        let long = &kept[0];
        // One column of rounds for all seeds, and one for each.
        assert!((30_000..=40_000).contains(&long.len()), "{}", long.len());
        assert!(long[0] == 0 && long.contains(&77_777) && long.last() == Some(&(n as usize - 1)));
        assert!((0..8).all(|k| long.contains(&k)), "{:?}", &long[..20]);
        assert!(long.windows(2).all(|two| two[1] > two[0] && two[1] - two[0] < 50));
    }

    #[test]
    fn seeds_that_ended_early_keep_their_last_record_and_stay_side_by_side() {
        let column = |n: usize| (0..n).map(|k| k as f64).collect::<Vec<f64>>();
        let both = [series(0, vec![column(300_000); 1]), series(1, vec![column(123_456); 1])];
        let kept = kept(&[both.iter().collect()], &[0], &[0]);
        assert!(kept[0].contains(&123_455) && kept[0].contains(&299_999), "{}", kept[0].len());
        assert!(kept[0].len() <= 100_002);
    }

    #[test]
    fn stretches_are_short_at_the_start() {
        assert_eq!(stretches(1000, 6), [0, 1, 10, 100, 333, 667, 1000]);
    }
}
