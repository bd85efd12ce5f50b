//! The runs of a part of a sweep: points and seeds.

use std::fmt;
use std::str::FromStr;

use fedsa::error::{Error, ErrorCode, Result, quoted};
use serde::{Deserialize, Serialize};

use crate::plan;

/// The key of errors about points.
pub const POINTS: &str = "points";
/// The key of errors about a range of seeds.
pub const SEED_RANGE: &str = "seed_range";

/// Numbers of points of a sweep, from 0: increasing ranges. As text: `3,7-12`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PointList(Vec<(usize, usize)>);

/// Seeds from the first to the last, inclusive. As text: `0-4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeedRange {
    first: u64,
    last: u64,
}

/// A part of a sweep: all methods at these points, with these seeds or all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SweepPart {
    /// The points.
    pub points: PointList,
    /// The seeds, among the experiment's.
    pub seeds: Option<SeedRange>,
}

/// A whole number, or two with a hyphen between them.
fn range<N: FromStr + Copy + PartialOrd>(text: &str) -> Option<(N, N)> {
    let whole = |text: &str| text.bytes().all(|c| c.is_ascii_digit()).then(|| text.parse::<N>().ok()).flatten();
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    whole(first.trim()).zip(whole(last.trim())).filter(|(first, last)| first <= last)
}

impl FromStr for PointList {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        const ACCEPTED: &str = "numbers of points and ranges of them, each point once, such as 3,7-12; the first point is 0";
        let bad = |what: String| Error::new(POINTS, what, ACCEPTED);
        let ranges = text.split(',').map(|one| range::<usize>(one).ok_or_else(|| bad(format!("`{}` is no range", quoted(one.trim())))));
        let mut ranges: Vec<(usize, usize)> = ranges.collect::<Result<_>>()?;
        ranges.sort_unstable();
        match ranges.windows(2).find(|two| two[1].0 <= two[0].1) {
            Some(two) => Err(bad(format!("point {} is named twice in `{}`", two[1].0, quoted(text)))),
            None => Ok(Self::of_ranges(ranges)),
        }
    }
}

impl PointList {
    /// These points, sorted and without repetition.
    pub fn of(points: impl IntoIterator<Item = usize>) -> Self {
        Self::of_ranges(points.into_iter().map(|point| (point, point)).collect())
    }

    fn of_ranges(ranges: Vec<(usize, usize)>) -> Self {
        let mut joined: Vec<(usize, usize)> = Vec::new();
        for (first, last) in ranges {
            match joined.last_mut().filter(|before| before.1.checked_add(1) == Some(first)) {
                Some(before) => before.1 = last,
                None => joined.push((first, last)),
            }
        }
        Self(joined)
    }

    /// The points.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().flat_map(|(first, last)| *first..=*last)
    }

    /// The number of points.
    pub fn count(&self) -> usize {
        self.0.iter().map(|(first, last)| last - first + 1).sum()
    }

    /// The first and the last point.
    fn ends(&self) -> (usize, usize) {
        let end = |range: Option<&(usize, usize)>| range.copied().unwrap_or((0, 0));
        (end(self.0.first()).0, end(self.0.last()).1)
    }

    /// A common point.
    fn common(&self, other: &Self) -> Option<usize> {
        let (mut own, mut others) = (self.0.iter().peekable(), other.0.iter().peekable());
        while let (Some(a), Some(b)) = (own.peek(), others.peek()) {
            if a.0.max(b.0) <= a.1.min(b.1) {
                return Some(a.0.max(b.0));
            }
            if a.1 < b.1 {
                own.next()
            } else {
                others.next()
            };
        }
        None
    }
}

impl fmt::Display for PointList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(","))
    }
}

impl PointList {
    fn text(&self, between: &str) -> String {
        let one = |(first, last): &(usize, usize)| if first == last { first.to_string() } else { format!("{first}-{last}") };
        self.0.iter().map(one).collect::<Vec<_>>().join(between)
    }
}

impl FromStr for SeedRange {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let found = range(text).map(|(first, last)| Self { first, last });
        found.ok_or_else(|| Error::new(SEED_RANGE, format!("`{}` is no range", quoted(text)), "a seed, or a range of seeds such as 0-4"))
    }
}

impl SeedRange {
    /// Whether it has a seed.
    pub fn has(&self, seed: u64) -> bool {
        (self.first..=self.last).contains(&seed)
    }
}

impl fmt::Display for SeedRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last { write!(f, "{}", self.first) } else { write!(f, "{}-{}", self.first, self.last) }
    }
}

/// The longest list of points, in characters, that serves as the name of a part.
const LONGEST_NAME: usize = 120;
/// The start of names of longer lists, and the separator before the seeds in names.
const LONG: &str = "list-";
const SEEDS: &str = "_seeds-";

impl SweepPart {
    /// All seeds of these points.
    pub fn of(points: PointList) -> Self {
        Self { points, seeds: None }
    }

    /// Refuses points beyond a sweep of this size.
    ///
    /// # Errors
    /// When there is one.
    pub fn check(&self, points: usize) -> Result<()> {
        let Some(beyond) = self.points.0.iter().map(|(first, last)| if *first >= points { *first } else { *last }).find(|p| *p >= points)
        else {
            return Ok(());
        };
        let has = if points == 1 { "the experiment has one point, 0".to_string() } else { format!("the experiment has {points} points") };
        let accepted = if points == 1 { "0".to_string() } else { format!("points from 0 to {}", points - 1) };
        Err(Error::new(POINTS, format!("there is no point {beyond}: {has}"), accepted).coded(ErrorCode::OutOfRange))
    }

    /// The name of its file and folder, unique to the part.
    pub fn name(&self) -> String {
        let mut name = self.points.text("_");
        if name.len() > LONGEST_NAME {
            let (first, last) = self.points.ends();
            let digest = plan::identity(&[&name]);
            name = format!("{LONG}{first}-{last}-{}", &digest[..16]);
        }
        self.seeds.map_or(name.clone(), |seeds| format!("{name}{SEEDS}{seeds}"))
    }

    /// A point that both parts have with a common seed.
    pub fn overlap(&self, other: &Self) -> Option<usize> {
        let together = |(a, b): (SeedRange, SeedRange)| a.first.max(b.first) <= a.last.min(b.last);
        let seeds = self.seeds.zip(other.seeds).is_none_or(together);
        self.points.common(&other.points).filter(|_| seeds)
    }
}

/// The text between points and seeds.
const WITH_SEEDS: &str = " with seeds ";

/// Text such as `points 3,7-12 with seeds 0-4`.
impl fmt::Display for SweepPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", if self.points.count() == 1 { "point" } else { "points" }, self.points)?;
        self.seeds.map_or(Ok(()), |seeds| write!(f, "{WITH_SEEDS}{seeds}"))
    }
}

impl FromStr for SweepPart {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (points, seeds) = text.split_once(WITH_SEEDS).map_or((text, None), |(points, seeds)| (points, Some(seeds)));
        let points = points.trim_start_matches("points ").trim_start_matches("point ");
        Ok(Self { points: points.parse()?, seeds: seeds.map(str::parse).transpose()? })
    }
}

/// The content of a part's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NamedPart {
    /// Everything.
    Known(SweepPart),
    /// A part that contains it, because the list of its points is too long for a name.
    Within(SweepPart),
}

impl NamedPart {
    /// Parses a name; `None` if it is no part's.
    pub fn read(name: &str) -> Option<Self> {
        let (points, seeds) = match name.split_once(SEEDS) {
            Some((points, seeds)) => (points, Some(seeds.parse().ok()?)),
            None => (name, None),
        };
        let part = |points: &str| Some(SweepPart { points: points.parse().ok()?, seeds });
        match points.strip_prefix(LONG) {
            Some(long) => part(long.rsplit_once('-')?.0).map(Self::Within),
            None => part(&points.replace('_', ",")).map(Self::Known).filter(|_| !points.contains(',')),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(points: &str, seeds: Option<&str>) -> SweepPart {
        SweepPart { points: points.parse().unwrap(), seeds: seeds.map(|seeds| seeds.parse().unwrap()) }
    }

    #[test]
    fn lists_are_read_and_shown_in_order() {
        for (text, shown) in [("3,7-12", "3,7-12"), ("7-12, 3", "3,7-12"), ("0,1,2", "0-2"), ("5", "5"), ("4-4,2-3", "2-4")] {
            let list: PointList = text.parse().unwrap();
            assert_eq!(list.to_string(), shown);
            assert_eq!(PointList::of(list.iter()), list);
            assert_eq!(list.count(), list.iter().count());
        }
        for (text, what) in [
            ("", "`` is no range"),
            ("3,", "`` is no range"),
            ("9-7", "`9-7` is no range"),
            ("-3", "`-3` is no range"),
            ("a", "`a` is no range"),
            ("+3", "`+3` is no range"),
            ("99999999999999999999", "is no range"),
            ("3,2-5", "point 3 is named twice"),
            ("1-4,4-6", "point 4 is named twice"),
        ] {
            let e = text.parse::<PointList>().unwrap_err();
            assert!(e.key == POINTS && e.what.contains(what), "{text}: {e}");
        }
    }

    #[test]
    fn points_beyond_the_sweep_are_refused() {
        assert!(part("0-11", None).check(12).is_ok());
        assert!(part("0-12", None).check(12).unwrap_err().what.contains("no point 12: the experiment has 12 points"));
        assert!(part("3,20-30", None).check(12).unwrap_err().what.contains("no point 20"));
        assert!(part("1", None).check(1).unwrap_err().what.contains("one point, 0"));
    }

    #[test]
    fn names_say_what_a_part_has() {
        for (points, seeds) in [("3,7-12", None), ("0", Some("0-4")), ("1-5", Some("7"))] {
            let part = part(points, seeds);
            assert_eq!(part.to_string().parse::<SweepPart>().unwrap(), part);
            assert_eq!(NamedPart::read(&part.name()), Some(NamedPart::Known(part)));
        }
        let long = |step: usize| SweepPart::of(PointList::of((0..1000).map(|i| step * i)));
        assert_ne!(long(2).name(), long(3).name());
        assert_eq!(NamedPart::read(&long(2).name()), Some(NamedPart::Within(part("0-1998", None))));
        for strange in ["", "x", "3,4", "list-3", "3_seeds-", "3_seeds-x", "notes.txt"] {
            assert_eq!(NamedPart::read(strange), None, "{strange}");
        }
    }

    #[test]
    fn parts_overlap_in_points_and_seeds() {
        let overlap = |a: (&str, Option<&str>), b: (&str, Option<&str>)| part(a.0, a.1).overlap(&part(b.0, b.1));
        assert_eq!(overlap(("0-3,8", None), ("4-7,9", None)), None);
        assert_eq!(overlap(("0-3,8", None), ("4-8", None)), Some(8));
        assert_eq!(overlap(("0-3", Some("0-4")), ("3", Some("5-9"))), None);
        assert_eq!(overlap(("0-3", Some("0-5")), ("3", Some("5-9"))), Some(3));
        assert_eq!(overlap(("0-3", Some("0-5")), ("2-9", None)), Some(2));
    }
}
