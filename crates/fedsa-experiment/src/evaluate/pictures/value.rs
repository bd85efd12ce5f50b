//! A function of states over one or two state columns: curves, or heat maps.

use crate::numbers::{self, thousands};
use crate::picture::Picture;
use fedsa::error::{Error, Result, quoted};
use fedsa::parallel;
use fedsa_evaluate::uncertainty::Covariance;
use fedsa_figure::{Chart, HeatMap, HeatMaps, Panel, PlottedCurve, Style};
use fedsa_problems::features::{FeatureMap, FeatureSpec};
use fedsa_problems::logs::survey::{LogFacts, StateSample};

use super::range_of;

/// The cells of a heat map along each column.
const CELLS: usize = 48;
/// The points of a curve.
const POINTS: usize = 481;
/// The number of parts of the range. A state is near a place of a curve if it is in the same or a neighbouring part.
const PARTS: usize = 60;
/// The largest number of columns whose medians a caption lists.
const LISTED: usize = 8;

/// The logged states as pictures need them: their ranges, and an even sample.
pub struct SeenStates {
    /// The number of states in the logs.
    count: usize,
    /// The smallest and the largest value of each column.
    ranges: Vec<(f64, f64)>,
    /// Every `stride`-th state.
    sample: Vec<f64>,
    stride: usize,
}

impl SeenStates {
    /// The states of surveyed logs, of at least one.
    pub fn of(logs: &[LogFacts]) -> Self {
        let samples: Vec<&StateSample> = logs.iter().map(|log| &log.sample).collect();
        let (sample, stride) = StateSample::even(&samples);
        let range = |j: usize| {
            let all = logs.iter().map(|log| log.seen[j]);
            all.fold((f64::INFINITY, f64::NEG_INFINITY), |a, b| (a.0.min(b.0), a.1.max(b.1)))
        };
        let ranges = (0..logs[0].seen.len()).map(range).collect();
        Self { count: logs.iter().map(|log| log.transitions).sum(), ranges, sample, stride }
    }

    /// The sample.
    pub fn sample(&self) -> impl Iterator<Item = &[f64]> + Clone {
        self.sample.chunks_exact(self.ranges.len())
    }

    /// The median of each column.
    fn medians(&self) -> Vec<f64> {
        let median = |j: usize| {
            let mut values: Vec<f64> = self.sample().map(|state| state[j]).collect();
            let middle = values.len() / 2;
            *values.select_nth_unstable_by(middle, f64::total_cmp).1
        };
        (0..self.ranges.len()).map(median).collect()
    }

    /// The subject of a sentence about places without a state nearby.
    fn no_state(&self) -> String {
        match self.stride {
            1 => "no logged state".into(),
            _ => format!("none of {} logged states, evenly taken from {},", thousands(self.kept() as f64), thousands(self.count as f64)),
        }
    }

    fn kept(&self) -> usize {
        self.sample.len() / self.ranges.len()
    }
}

/// The positions of the named columns.
///
/// # Errors
/// When there are more than two names, one twice, or an unknown one.
pub fn named_columns(names: &[String], columns: &[String]) -> Result<Vec<usize>> {
    let bad = |what: String| {
        let help = format!("one or two of the state columns {}", quoted(columns.join(", ")));
        Error::new("value_columns", what, help)
    };
    let found = names.iter().map(|name| {
        let position = columns.iter().position(|column| column == name);
        position.ok_or_else(|| bad(format!("there is no state column `{}`", quoted(name))))
    });
    let found = found.collect::<Result<Vec<_>>>()?;
    match found[..] {
        [a, b] if a == b => Err(bad(format!("`{}` twice", quoted(&names[0])))),
        [_, _, _, ..] => Err(bad(format!("{} columns", names.len()))),
        _ => Ok(found),
    }
}

/// A function of states that a picture shows.
pub trait StateFunction: Sync {
    /// The features of states.
    fn map(&self) -> &FeatureMap;
    /// Its name, with which a title begins.
    fn name(&self) -> &'static str;
    /// The labels of its numbers. Columns are chosen by the first one.
    fn labels(&self) -> Vec<String>;
    /// Its numbers in a state; NaN where one is not known.
    fn at(&self, state: &[f64]) -> Vec<f64>;
    /// Whether the second number is the standard error of the first.
    fn has_error(&self) -> bool;
    /// What maps show besides the first number, in whole sentences; `shown` are the numbers with a map.
    fn about(&self, shown: &[usize]) -> String;
}

/// A value function with its standard errors.
pub struct Values<'a> {
    map: &'a FeatureMap,
    theta: &'a [f64],
    covariance: Option<&'a Covariance>,
}

impl<'a> Values<'a> {
    /// The value function with these weights, whose covariance may be known.
    pub fn new(map: &'a FeatureMap, theta: &'a [f64], covariance: Option<&'a Covariance>) -> Self {
        // After a divergence the covariance overflows before the values do.
        Self { map, theta, covariance: covariance.filter(|covariance| covariance.rows.iter().all(|x| x.is_finite())) }
    }
}

impl StateFunction for Values<'_> {
    fn map(&self) -> &FeatureMap {
        self.map
    }
    fn name(&self) -> &'static str {
        "Value function"
    }
    fn labels(&self) -> Vec<String> {
        vec!["value v(s)".into(), "standard error of v(s)".into()]
    }
    /// The standard error is unknown for sparse features.
    fn at(&self, state: &[f64]) -> Vec<f64> {
        if let Some((count, feature)) = self.map.sparse() {
            let (mut active, mut phi) = (vec![0; count], vec![1.0; count]);
            self.map.active(state, &mut active);
            if self.map.is_mixed() {
                self.map.active_values(state, &mut phi);
            }
            return vec![active.iter().zip(&phi).map(|(j, x)| feature * x * self.theta[*j as usize]).sum(), f64::NAN];
        }
        let mut phi = vec![0.0; self.map.len()];
        self.map.eval(state, &mut phi);
        let value = phi.iter().zip(self.theta).map(|(x, w)| x * w).sum();
        vec![value, self.covariance.map_or(f64::NAN, |covariance| covariance.value_error(&phi))]
    }
    fn has_error(&self) -> bool {
        true
    }
    fn about(&self, shown: &[usize]) -> String {
        if shown.len() > 1 { "The first map shows the value, the second its standard error.".into() } else { String::new() }
    }
}

/// The columns of a picture.
#[derive(Clone, Copy)]
pub struct ValueColumns<'a> {
    /// Their positions, if named.
    pub wanted: &'a [usize],
    /// The caller's word for their setting, if there is one.
    pub setting: Option<&'a str>,
}

/// The picture of a function over one or two state columns: those of `wanted`, or by default those along which its first number varies most
/// over the logged states. Other columns are at their medians. `None` if no value is finite, or no column has a range.
pub fn over_states(of: &dyn StateFunction, seen: &SeenStates, ValueColumns { wanted, setting }: ValueColumns<'_>) -> Option<Picture> {
    if seen.count == 0 {
        return None;
    }
    let (map, medians) = (of.map(), seen.medians());
    let given = map.ranges();
    let ranges: Vec<(f64, f64)> =
        map.columns().iter().zip(&seen.ranges).map(|(column, seen)| given.get(column).copied().unwrap_or(*seen)).collect();
    // An axis cannot show a narrower or wider range.
    let has_range = |&j: &usize| {
        let (low, high) = ranges[j];
        (high - low).is_finite() && high - low > 1e-9 * low.abs().max(high.abs())
    };
    let mut shown: Vec<usize> = if wanted.is_empty() { (0..ranges.len()).collect() } else { wanted.to_vec() };
    shown.retain(has_range);
    let is_choice = shown.len() > 2;
    if is_choice {
        let spreads: Vec<f64> = (0..ranges.len()).map(|j| spread_along(of, seen, &medians, j)).collect();
        shown.sort_by(|a, b| spreads[*b].total_cmp(&spreads[*a]));
        shown.truncate(2);
        shown.sort_unstable();
    }
    let names: Vec<&str> = shown.iter().map(|j| map.columns()[*j].as_str()).collect();
    let mut about = vec![held_text(map, &medians, &shown)];
    if is_choice {
        let others = setting.map_or(String::new(), |setting| format!("; {setting} names other columns"));
        about.push(format!("Along {} and {} the value varies most over the logged states{others}.", names[0], names[1]));
    }
    match shown[..] {
        [] => None,
        [j] => curve(of, seen, &medians, (j, names[0], ranges[j]), &about),
        [i, j, ..] => heat(of, seen, &medians, [(i, names[0], ranges[i]), (j, names[1], ranges[j])], &about),
    }
}

/// A shown column: its position, its name, its range.
type Shown<'a> = (usize, &'a str, (f64, f64));

/// `Other columns are at their medians over the logged states: ..`; empty if there are no others.
fn held_text(map: &FeatureMap, medians: &[f64], shown: &[usize]) -> String {
    let others = map.columns().iter().zip(medians).enumerate().filter(|(j, _)| !shown.contains(j));
    let others: Vec<String> = others.map(|(_, (column, median))| format!("{column} = {}", numbers::number(*median))).collect();
    if others.is_empty() {
        return String::new();
    }
    let more = others.len().saturating_sub(LISTED);
    let and = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("Other columns are at their medians over the logged states: {}{and}.", others[..others.len() - more].join(", "))
}

/// The standard deviation of the value over the logged values of a column, with the other columns at their medians; 0 if no value is
/// finite.
fn spread_along(of: &dyn StateFunction, seen: &SeenStates, medians: &[f64], column: usize) -> f64 {
    /// The largest number of logged values; less for many columns, because time grows with their square.
    const MOST: usize = 512;
    const FEWEST: usize = 8;
    const WORK: usize = 1 << 22;
    let most = (WORK / medians.len().pow(2).max(1)).clamp(FEWEST, MOST);
    let mut state = medians.to_vec();
    let along = seen.sample().step_by(seen.kept().div_ceil(most)).map(|seen| {
        state[column] = seen[column];
        of.at(&state)[0]
    });
    let along: Vec<f64> = along.filter(|v| v.is_finite()).collect();
    let mean = along.iter().map(|v| v / along.len() as f64).sum::<f64>();
    let largest = along.iter().map(|v| (v - mean).abs()).fold(0.0, f64::max);
    if largest == 0.0 || !largest.is_finite() {
        return 0.0;
    }
    // Scaled to avoid overflow of squares.
    let square = along.iter().map(|v| ((v - mean) / largest).powi(2)).sum::<f64>() / along.len() as f64;
    largest * square.sqrt()
}

/// The part of a range, cut into `parts`, that contains a number; numbers beyond are clipped, as by feature maps.
fn part_of(x: f64, (low, high): (f64, f64), parts: usize) -> usize {
    (((x - low) / (high - low) * parts as f64).max(0.0) as usize).min(parts - 1)
}

/// The text about places without a logged state nearby, which have this mark.
fn extrapolated_text(mark: &str, seen: &SeenStates, place: &str, others: &str) -> String {
    format!("{mark}: {} {place}{others}; values there are extrapolated.", seen.no_state())
}

fn others_text(is_projected: bool) -> &'static str {
    if is_projected { ", whatever its other columns" } else { "" }
}

/// The range of the vertical axis, for values that are bold near logged states and faint elsewhere. It exceeds the range of bold values by
/// at most half on either side, so that extrapolated values cannot flatten them.
fn sober_range(values: impl Iterator<Item = (f64, bool)> + Clone) -> Option<(f64, f64)> {
    let (low, high) = range_of(values.clone().filter(|(_, is_faint)| !is_faint).map(|(v, _)| v))?;
    let (lowest, highest) = range_of(values.map(|(v, _)| v))?;
    let half = 0.5 * high - 0.5 * low;
    Some((lowest.max(low - half), highest.min(high + half)))
}

/// The largest number of labels in a column for which a curve has a point each.
const MAX_LABELS: f64 = 5000.0;

/// The places of a curve along a column, and whether a logged state is near; for labels, one place per label with its own states.
fn places(map: &FeatureMap, seen: &SeenStates, j: usize, range: (f64, f64)) -> (Vec<f64>, Vec<bool>) {
    let (low, high) = range;
    if matches!(map.spec(), FeatureSpec::OneHot {}) && high - low <= MAX_LABELS {
        let x: Vec<f64> = (0..=(high - low) as usize).map(|i| low + i as f64).collect();
        let mut near = vec![false; x.len()];
        for state in seen.sample() {
            let place = (state[j] - low).round();
            if place >= 0.0 && (place as usize) < near.len() {
                near[place as usize] = true;
            }
        }
        return (x, near);
    }
    let mut near = [false; PARTS];
    for state in seen.sample() {
        let part = part_of(state[j], range, PARTS);
        near[part.saturating_sub(1)..(part + 2).min(PARTS)].fill(true);
    }
    let x: Vec<f64> = (0..POINTS).map(|i| low + (high - low) * i as f64 / (POINTS - 1) as f64).collect();
    let is_near = x.iter().map(|x| near[part_of(*x, range, PARTS)]).collect();
    (x, is_near)
}

fn curve(of: &dyn StateFunction, seen: &SeenStates, medians: &[f64], shown: Shown, about: &[String]) -> Option<Picture> {
    let (j, name, range) = shown;
    let (x, is_near) = places(of.map(), seen, j, range);
    let at = |x: &f64| {
        let mut state = medians.to_vec();
        state[j] = *x;
        of.at(&state)
    };
    let all: Vec<Vec<f64>> = parallel::map(x.len(), |i| at(&x[i]));
    let is_extrapolated = is_near.iter().any(|near| !near);
    let (labels, has_error) = (of.labels(), of.has_error());
    let line = Line { x, is_near };
    let of_number = |k: usize| all.iter().map(|numbers| numbers[k]).collect::<Vec<_>>();
    let panel = |k: usize, error: Option<&[f64]>| line.panel(name, &labels[k], &of_number(k), error);
    let error = Some(of_number(1)).filter(|error| has_error && error.iter().any(|se| *se > 0.0));
    let mut panels = vec![panel(0, error.as_deref())?];
    if !has_error {
        panels.extend((1..labels.len()).filter_map(|k| panel(k, None)));
    }
    let mut caption: Vec<String> = about.to_vec();
    if error.is_some() {
        caption.push("Band: two standard errors on either side.".into());
    }
    if is_extrapolated {
        caption.push(extrapolated_text("Dots", seen, "is near", others_text(medians.len() > 1)));
    }
    let title = format!("{} over {name}", of.name());
    Some(Picture::Chart(Chart { title, panels, caption: joined(&caption), ..Chart::default() }))
}

/// The places of a curve, and whether a logged state is near.
struct Line {
    x: Vec<f64>,
    is_near: Vec<bool>,
}

impl Line {
    /// A curve whose part near logged states is bold, with a band of two of these standard errors; `None` if no number is finite.
    fn panel(&self, name: &str, label: &str, y: &[f64], error: Option<&[f64]>) -> Option<Panel> {
        let points = self.x.len();
        let is_faint = |i: usize| !self.is_near[i];
        let edge = |i: usize, sign: f64| error.map_or(f64::NAN, |error| y[i] + sign * 2.0 * error[i]);
        let bold = (0..points).flat_map(|i| [y[i], edge(i, -1.0), edge(i, 1.0)].map(|v| (v, is_faint(i))));
        let y_range = sober_range(bold)?;
        let kept = |i: usize, y: f64| if is_faint(i) { f64::NAN } else { y };
        let band = |sign: f64| (0..points).map(|i| kept(i, edge(i, sign))).collect::<Vec<_>>();
        let mut curves = vec![PlottedCurve {
            label: label.into(),
            x: self.x.clone(),
            y: (0..points).map(|i| kept(i, y[i])).collect(),
            band: error.map(|_| (band(-1.0), band(1.0))),
            ..PlottedCurve::default()
        }];
        if (0..points).any(is_faint) {
            // The faint curve begins at the end of the bold line.
            let is_kept = |i: usize| is_faint(i) || (i > 0 && is_faint(i - 1)) || (i + 1 < points && is_faint(i + 1));
            let y = (0..points).map(|i| if is_kept(i) { y[i] } else { f64::NAN }).collect();
            let (label, x) = ("extrapolated".into(), self.x.clone());
            curves.push(PlottedCurve { label, x, y, style: Style::Reference, ..PlottedCurve::default() });
        }
        Some(Panel { x_label: name.into(), y_label: label.into(), curves, y_range: padded(y_range), ..Panel::default() })
    }
}

/// A range with a margin; `None` if it has no width, for which the axis has a default.
fn padded((low, high): (f64, f64)) -> Option<(f64, f64)> {
    let margin = 0.04 * (high - low);
    (high - low > 1e-9 * low.abs().max(high.abs()) && margin.is_finite()).then_some((low - margin, high + margin))
}

fn joined(caption: &[String]) -> String {
    caption.iter().filter(|part| !part.is_empty()).cloned().collect::<Vec<_>>().join(" ")
}

fn heat(of: &dyn StateFunction, seen: &SeenStates, medians: &[f64], [across, up]: [Shown; 2], about: &[String]) -> Option<Picture> {
    let ((i, x_name, x), (j, y_name, y)) = (across, up);
    let mut faint = vec![vec![true; CELLS]; CELLS];
    for state in seen.sample() {
        let (column, row) = (part_of(state[i], x, CELLS), part_of(state[j], y, CELLS));
        for beside in &mut faint[row.saturating_sub(1)..(row + 2).min(CELLS)] {
            beside[column.saturating_sub(1)..(column + 2).min(CELLS)].fill(false);
        }
    }
    let middle = |(low, high): (f64, f64), cell: usize| low + (high - low) * (cell as f64 + 0.5) / CELLS as f64;
    let at = |row: usize, column: usize| {
        let mut state = medians.to_vec();
        (state[i], state[j]) = (middle(x, column), middle(y, row));
        of.at(&state)
    };
    let all: Vec<Vec<Vec<f64>>> = parallel::map(CELLS, |row| (0..CELLS).map(|column| at(row, column)).collect());
    let labels = of.labels();
    let map = |k: usize| -> Option<HeatMap> {
        let z: Vec<Vec<f64>> = all.iter().map(|row| row.iter().map(|numbers| numbers[k]).collect()).collect();
        // A number that is the same everywhere needs no further map.
        if k > 0 && range_of(z.iter().flatten().copied()).is_none_or(|(low, high)| low == high) {
            return None;
        }
        let z_range = sober_range(z.iter().flatten().copied().zip(faint.iter().flatten().copied()))?;
        let (x_label, y_label) = (x_name.to_string(), y_name.to_string());
        let (title, z_label) = (String::new(), labels[k].clone());
        Some(HeatMap { title, x_label, y_label, z_label, x, y, z, z_range: Some(z_range), faint: faint.clone(), ..HeatMap::default() })
    };
    let (shown, maps): (Vec<usize>, Vec<HeatMap>) = (0..labels.len()).filter_map(|k| Some((k, map(k)?))).unzip();
    if shown.first() != Some(&0) {
        return None;
    }
    let mut caption: Vec<String> = about.to_vec();
    caption.push(of.about(&shown));
    if faint.iter().flatten().any(|is_faint| *is_faint) {
        let others = others_text(medians.len() > 2);
        caption.push(extrapolated_text("Faded cells", seen, "is in the cell or beside it", others));
        let is_beyond = |map: &HeatMap| {
            let (low, high) = map.z_range.unwrap_or_default();
            map.z.iter().flatten().any(|z| *z < low || *z > high)
        };
        if maps.iter().any(is_beyond) {
            caption.push("Extrapolated values beyond the scale have the colour of its pointed end.".into());
        }
    }
    if maps.iter().any(|map| map.z.iter().flatten().any(|z| !z.is_finite())) {
        caption.push("Grey cells: no finite number.".into());
    }
    let title = format!("{} over {x_name} and {y_name}", of.name());
    Some(Picture::Heat(HeatMaps { title, maps, caption: joined(&caption), notes: Vec::new() }))
}

#[cfg(test)]
mod tests {
    use fedsa_problems::features::{FeatureSpec, Ranges};

    use super::*;

    fn value(map: &FeatureMap, theta: &[f64], covariance: Option<&Covariance>, seen: &SeenStates, wanted: &[usize]) -> Option<Picture> {
        over_states(&Values::new(map, theta, covariance), seen, ValueColumns { wanted, setting: Some("value_columns") })
    }

    fn identity(columns: usize) -> FeatureMap {
        let names: Vec<String> = (0..columns).map(|j| format!("s_{j}")).collect();
        FeatureMap::new(&FeatureSpec::Identity { bias: false }, &names, &Ranges::new()).unwrap()
    }

    fn seen(columns: usize, states: impl Iterator<Item = Vec<f64>>) -> SeenStates {
        let mut facts = LogFacts {
            name: String::new(),
            transitions: 0,
            seen: vec![(f64::INFINITY, f64::NEG_INFINITY); columns],
            whole: vec![false; columns],
            has_rewards: true,
            effective_size: None,
            mean_ratio: None,
            clipping: None,
            actions: None,
            cut_off: 0,
            sample: StateSample::new(columns),
        };
        for state in states {
            facts.transitions += 1;
            facts.seen.iter_mut().zip(&state).for_each(|(range, x)| *range = (range.0.min(*x), range.1.max(*x)));
            facts.sample.see(&state);
        }
        SeenStates::of(&[facts])
    }

    fn maps(picture: Option<Picture>) -> HeatMaps {
        let Some(Picture::Heat(maps)) = picture else { panic!("a heat map") };
        maps
    }

    fn chart(picture: Option<Picture>) -> Chart {
        let Some(Picture::Chart(chart)) = picture else { panic!("a chart") };
        chart
    }

    #[test]
    fn the_sample_is_even_and_bounded() {
        let seen = seen(1, (0..100_000).map(|i| vec![f64::from(i)]));
        assert_eq!((seen.count, seen.stride, seen.ranges[0]), (100_000, 16, (0.0, 99_999.0)));
        assert!(seen.sample().map(|state| state[0]).eq((0..6250).map(|i| f64::from(16 * i))));
        assert!((seen.medians()[0] - 50_000.0).abs() <= 16.0);
    }

    #[test]
    fn cells_hold_the_values_of_their_middles_and_are_pale_where_no_state_is_near() {
        // States on the diagonal; v = s_0 + 10 s_1.
        let seen = seen(2, (0..=1000).map(|i| vec![f64::from(i) / 1000.0, f64::from(i) / 500.0]));
        let HeatMaps { maps, caption, .. } = maps(value(&identity(2), &[1.0, 10.0], None, &seen, &[]));
        let [map] = &maps[..] else { panic!("no error is known") };
        assert_eq!((map.x, map.y, map.x_label.as_str(), map.y_label.as_str()), ((0.0, 1.0), (0.0, 2.0), "s_0", "s_1"));
        let cells = CELLS as f64;
        assert!((map.z[3][7] - (7.5 / cells + 10.0 * 2.0 * 3.5 / cells)).abs() < 1e-12);
        assert!(!map.faint[5][5] && !map.faint[5][6] && map.faint[5][8] && map.faint[40][2]);
        assert!(caption.contains("Faded cells: no logged state is in the cell or beside it; values there are extrapolated."), "{caption}");
    }

    #[test]
    fn the_columns_along_which_the_value_varies_most_are_shown_and_the_others_named_with_their_medians() {
        let states = || (0..=100).map(|i| vec![f64::from(i % 7), f64::from(i), 0.25, f64::from(100 - i)]);
        let theta = [3.0, -1.0, 5.0, 0.01];
        let chosen = maps(value(&identity(4), &theta, None, &seen(4, states()), &[]));
        assert_eq!(chosen.title, "Value function over s_0 and s_1");
        assert!(chosen.caption.contains("medians over the logged states: s_2 = 0.25, s_3 = 50."), "{}", chosen.caption);
        assert!(chosen.caption.contains("value_columns") && chosen.caption.contains("whatever its other columns"), "{}", chosen.caption);
        let named = maps(value(&identity(4), &theta, None, &seen(4, states()), &[3, 0]));
        assert_eq!((named.maps[0].x_label.as_str(), named.maps[0].y_label.as_str()), ("s_3", "s_0"));
        assert!(!named.caption.contains("varies most"), "{}", named.caption);
        // s_2 is the same in all states.
        assert_eq!(chart(value(&identity(4), &theta, None, &seen(4, states()), &[2, 1])).title, "Value function over s_1");
        assert!(value(&identity(4), &theta, None, &seen(4, states()), &[2]).is_none());
    }

    #[test]
    fn a_curve_has_a_band_of_two_standard_errors_and_a_gap_where_no_state_is_near() {
        let states = (0..=400).filter(|i| !(150..250).contains(i)).map(|i| vec![f64::from(i) / 100.0]);
        let chart = chart(value(&identity(1), &[2.0], Some(&Covariance { rows: vec![0.25], null: Vec::new() }), &seen(1, states), &[]));
        let [line, dots] = &chart.panels[0].curves[..] else { panic!("a line, and dots for its gap") };
        let (low, high) = line.band.as_ref().unwrap();
        let last = POINTS - 1;
        assert_eq!((line.x[last], line.y[last], low[last], high[last]), (4.0, 8.0, 4.0, 12.0));
        assert!(line.y[POINTS / 2].is_nan() && dots.y[POINTS / 2] == 4.0 && dots.y[0].is_nan());
        assert!(chart.caption.contains("Dots: no logged state is near; values there are extrapolated."), "{}", chart.caption);
    }

    #[test]
    fn extrapolated_values_do_not_take_the_scale() {
        let mut values = vec![(1.0, false), (3.0, false), (2.5, true)];
        assert_eq!(sober_range(values.iter().copied()), Some((1.0, 3.0)));
        values.extend([(1e30, true), (f64::NAN, false), (0.5, true)]);
        assert_eq!(sober_range(values.iter().copied()), Some((0.5, 4.0)));
    }

    #[test]
    fn without_a_finite_value_or_a_range_there_is_no_picture() {
        let states = || seen(2, (0..10).map(|i| vec![f64::from(i), 1.0]));
        assert!(value(&identity(2), &[f64::NAN, 0.0], None, &states(), &[]).is_none());
        assert!(value(&identity(2), &[f64::INFINITY, 0.0], None, &states(), &[0]).is_none());
        assert!(value(&identity(2), &[1.0, 0.0], None, &seen(2, std::iter::once(vec![1.0, 1.0])), &[]).is_none());
        assert!(value(&identity(2), &[1e300, 0.0], None, &states(), &[]).is_some());
        assert!(value(&identity(2), &[0.0, 0.0], None, &states(), &[]).is_some());
    }

    #[test]
    fn named_columns_are_one_or_two_that_exist() {
        let columns = ["s_0".to_string(), "s_x".into(), "s_1".into()];
        let of = |names: &[&str]| named_columns(&names.iter().map(|name| name.to_string()).collect::<Vec<_>>(), &columns);
        assert_eq!((of(&[]).unwrap(), of(&["s_1", "s_0"]).unwrap()), (vec![], vec![2, 0]));
        for (names, what) in [(&["s_2"][..], "no state column `s_2`"), (&["s_0", "s_0"], "twice"), (&["s_0", "s_x", "s_1"], "3 columns")] {
            let e = of(names).unwrap_err();
            assert!(e.to_string().contains(what) && e.help.contains("s_0, s_x, s_1"), "{e}: {}", e.help);
        }
    }
}
