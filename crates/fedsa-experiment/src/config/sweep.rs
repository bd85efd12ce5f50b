//! Sweeps and variants: the points of a file.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use fedsa::error::{Error, ErrorCode, Result, is_control, quoted, require};
use schemars::JsonSchema;
use serde::Deserialize;
use toml::{Table, Value};

use super::document::{Document, Origin, SetBy};
use super::dotted::{Assignment, assignments, parts};
use super::sections::Sections;
use crate::numbers;

/// A `[[sweep]]`: one key and its values, or several keys that change together.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sweep {
    /// A dotted key.
    #[serde(default)]
    key: Option<String>,
    /// Dotted keys that change together.
    #[serde(default)]
    keys: Option<Vec<String>>,
    /// The values; with `keys`, lists of one value per key.
    #[schemars(with = "Vec<serde_json::Value>", length(min = 1))]
    values: Vec<Value>,
    /// The coordinate's name; by default the last part of the first key, or as many parts as distinguish sweeps.
    #[serde(default)]
    name: Option<String>,
    /// A text for each value, for figures and traces.
    #[serde(default)]
    labels: Option<Vec<String>>,
}

/// A `[[variant]]`: alternative values of several keys, with its own sweeps.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// The value of the coordinate `variant`.
    label: String,
    /// Dotted keys and their values.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, serde_json::Value>")]
    set: Table,
    /// Sweeps of this variant only.
    #[serde(default)]
    sweep: Vec<Sweep>,
}

/// One sweep point: a value for each swept key.
///
/// A point stores the indices of its values. Its tables are built on request, so that many points take little memory.
#[derive(Debug, Clone)]
pub struct SweepPoint {
    /// The `point` column: `eta = 0.1, H = 10`; empty when nothing is swept.
    pub label: String,
    /// Short name and value of each swept key, in the file's order.
    pub coordinates: Vec<(String, Value)>,
    /// The tables of its variant, or of the file, before sweeps are applied.
    start: Arc<VariantBase>,
    /// For each sweep of `start`, the index of the value.
    at: Box<[u32]>,
}

/// The file with one variant's settings; without variants, the file itself.
#[derive(Debug)]
struct VariantBase {
    sections: Sections,
    /// The keys that the variant sets.
    origins: Vec<Origin>,
    sweeps: Vec<Arc<AppliedSweep>>,
}

/// A validated sweep.
#[derive(Debug)]
struct AppliedSweep {
    /// Its place in the file, such as `sweep[0]`.
    place: String,
    name: String,
    keys: Vec<String>,
    /// Whether it has `keys`: its values are then lists.
    is_joint: bool,
    values: Vec<Value>,
    labels: Option<Vec<String>>,
}

impl SweepPoint {
    /// The only point of a file without sweeps.
    pub fn of(sections: Sections) -> Self {
        let start = VariantBase { sections, origins: Vec::new(), sweeps: Vec::new() };
        Self { label: String::new(), coordinates: Vec::new(), start: Arc::new(start), at: Box::new([]) }
    }

    /// The tables of this point.
    pub fn sections(&self) -> Sections {
        self.applied(&mut Vec::new())
    }

    /// The tables of this point as one TOML tree.
    pub fn table(&self) -> Table {
        self.sections().table()
    }

    /// The keys that variants and sweeps set at this point.
    pub fn origins(&self) -> Vec<Origin> {
        let mut origins = self.start.origins.clone();
        self.applied(&mut origins);
        origins
    }

    fn applied(&self, origins: &mut Vec<Origin>) -> Sections {
        let mut sections = self.start.sections.clone();
        for (axis, i) in self.start.sweeps.iter().zip(&self.at) {
            axis.apply(*i as usize, &mut sections, origins).expect("points were made so");
        }
        sections
    }

    /// The value of a coordinate as a number.
    pub fn number(&self, name: &str) -> Option<f64> {
        let (_, value) = self.coordinates.iter().find(|(n, _)| n == name)?;
        number(value)
    }

    /// The label, without one of the coordinates.
    pub fn label_without(&self, name: &str) -> String {
        let others: Vec<(String, Value)> = self.coordinates.iter().filter(|(n, _)| n != name).cloned().collect();
        label(&others)
    }

    /// Whether the coordinates have all of these values.
    pub fn is_at(&self, at: &BTreeMap<String, Value>) -> bool {
        at.iter().all(|(name, value)| self.coordinates.iter().any(|(n, v)| n == name && same(v, value)))
    }
}

fn number(value: &Value) -> Option<f64> {
    value.as_float().or_else(|| value.as_integer().map(|i| i as f64))
}

/// Whether a value is `wanted`, or one item of `wanted` if that is a list. `1` equals `1.0`.
fn same(value: &Value, wanted: &Value) -> bool {
    match (number(value), number(wanted), wanted) {
        (Some(x), Some(y), _) => x == y,
        (_, _, Value::Array(any)) => any.iter().any(|w| same(value, w)),
        _ => value == wanted,
    }
}

/// The largest number of points.
const MAX_POINTS: usize = 100_000;
/// The largest number of sweeps of one point.
const MAX_SWEEPS: usize = 64;

/// All combinations of variants and sweep values.
///
/// # Errors
/// When a sweep or variant cannot be applied or has no effect, or two points have the same label.
pub fn expand(document: &Document, sweeps: Vec<Sweep>, variants: Vec<Variant>) -> Result<Vec<Arc<SweepPoint>>> {
    let base = Sections::of(&document.table);
    let axes = axes(sweeps, &variants)?;
    let shared = axes.get(&None).map_or(&[][..], Vec::as_slice);
    let mut points = Vec::new();
    let mut flags = Overridden::new(document);
    if variants.is_empty() {
        let start = VariantBase { sections: base, origins: Vec::new(), sweeps: shared.to_vec() };
        start.points(Vec::new(), &mut points, &mut flags)?;
    } else {
        let mut labels = HashSet::new();
        for (i, variant) in variants.into_iter().enumerate() {
            let place = format!("variant[{i}]");
            let at = |key: &str| format!("{place}.{key}");
            shown(&variant.label).map_err(|e| e.about(at("label")))?;
            if !labels.insert(variant.label.clone()) {
                let what = format!("two variants are called `{}`", quoted(&variant.label));
                return Err(Error::new(at("label"), what, "a label of its own for each variant"));
            }
            let (mut sections, mut origins) = (base.clone(), Vec::new());
            let set = assignments(&variant.set, &at("set"))?;
            let mut keys = Vec::new();
            for Assignment { key, value, place } in set {
                let set = sections.set(&key, &value).map_err(|e| e.about(place.clone()))?;
                origins.extend(set.iter().map(|key| Origin { key: key.clone(), from: SetBy::Place(place.clone()) }));
                keys.push((place, key, set));
            }
            let own = axes.get(&Some(i)).map_or(&[][..], Vec::as_slice);
            let start = VariantBase { sections, origins, sweeps: [shared, own].concat() };
            start.check_effect(keys)?;
            start.points(vec![("variant".into(), Value::String(variant.label))], &mut points, &mut flags)?;
        }
    }
    let mut labels = HashSet::new();
    if let Some(twice) = points.iter().find(|point| !labels.insert(point.label.as_str())) {
        let table = twice.start.sweeps.iter().find_map(|axis| axis.repeated());
        let table = table.unwrap_or_else(|| if shared.is_empty() { "variant" } else { "sweep" }.into());
        let what = format!("two points are both at `{}`", quoted(&twice.label));
        return Err(Error::new(table, what, "different values and labels"));
    }
    flags.check()?;
    Ok(points.into_iter().map(Arc::new).collect())
}

/// Options of the command line and quick settings without effect at all points so far, because a sweep or every variant sets the same key.
struct Overridden<'d> {
    pending: Vec<&'d Origin>,
}

impl<'d> Overridden<'d> {
    fn new(document: &'d Document) -> Self {
        let is_option =
            |from: &SetBy| matches!(from, SetBy::Caller(_)) || matches!(from, SetBy::Place(place) if place.starts_with("quick."));
        Self { pending: document.origins.iter().filter(|origin| is_option(&origin.from)).collect() }
    }

    /// Notes what the sweeps and the variant of a point set.
    fn see(&mut self, origins: &[Origin]) {
        self.pending.retain(|option| origins.iter().any(|later| later.decides(&option.key)));
    }

    fn check(&self) -> Result<()> {
        let Some(Origin { key, from }) = self.pending.first() else { return Ok(()) };
        let (what, example) = match from {
            SetBy::Caller(by) => ("option", format!("set what the sweep says, such as {}sweep.0.values=[1,2]", by.words.set)),
            SetBy::Place(_) | SetBy::Setting(_) => ("setting", "what the sweep says, such as \"sweep.0.values\" = [1, 2]".to_string()),
        };
        let what = format!("a sweep or variant sets this key at every point, so that the {what} has no effect");
        Err(Error::new(key, what, format!("{example}, or a key that is not swept")).coded(ErrorCode::NoEffect))
    }
}

/// Refuses a text that cannot be a label or a name: an empty text, or one with control characters.
///
/// # Errors
/// When the text is empty or contains control characters.
pub fn shown(text: &str) -> Result<()> {
    let good = !text.trim().is_empty() && !text.chars().any(is_control);
    require(good, "", format!("\"{}\"", quoted(text)), "a text that is not empty and has no control characters")
}

/// The sweeps of the file (`None`) and of its variants, named.
fn axes(sweeps: Vec<Sweep>, variants: &[Variant]) -> Result<HashMap<Option<usize>, Vec<Arc<AppliedSweep>>>> {
    let shared = sweeps.into_iter().enumerate().map(|(i, sweep)| (None, format!("sweep[{i}]"), sweep));
    let own = variants.iter().enumerate().flat_map(|(v, variant)| {
        variant.sweep.iter().enumerate().map(move |(i, sweep)| (Some(v), format!("variant[{v}].sweep[{i}]"), sweep.clone()))
    });
    let mut all = Vec::new();
    for (scope, place, sweep) in shared.chain(own) {
        let explicit = sweep.name.is_some();
        let axis = AppliedSweep::new(place.clone(), sweep).map_err(|e| e.inside(&place))?;
        all.push((scope, explicit, axis));
    }
    name(&mut all)?;
    let mut out: HashMap<Option<usize>, Vec<Arc<AppliedSweep>>> = HashMap::new();
    for (scope, _, axis) in all {
        out.entry(scope).or_default().push(Arc::new(axis));
    }
    let shared = out.get(&None).map_or(0, Vec::len);
    for (scope, axes) in &out {
        let count = axes.len() + if scope.is_some() { shared } else { 0 };
        require(count <= MAX_SWEEPS, "sweep", format!("{count} sweeps"), &format!("at most {MAX_SWEEPS} sweeps of one point"))?;
    }
    Ok(out)
}

/// Names sweeps without a name by the shortest end of the first key that no other sweep of the same points uses. A key has the same name in
/// all variants.
fn name(axes: &mut [(Option<usize>, bool, AppliedSweep)]) -> Result<()> {
    let keys: Vec<Vec<String>> = axes.iter().map(|(_, _, axis)| named_parts(&axis.keys[0])).collect();
    let mut lengths: HashMap<&[String], usize> = HashMap::new();
    loop {
        for ((_, explicit, axis), key) in axes.iter_mut().zip(&keys) {
            if !*explicit {
                let length = *lengths.entry(key).or_insert(1);
                axis.name = key[key.len() - length..].join(".");
            }
        }
        // The sweeps of one name that share a point.
        let mut by_name: HashMap<&str, Vec<usize>> = HashMap::new();
        axes.iter().enumerate().for_each(|(i, (_, _, axis))| by_name.entry(&axis.name).or_default().push(i));
        let mut met: Vec<usize> = Vec::new();
        for same in by_name.values().filter(|same| same.len() > 1) {
            let mut own: HashMap<usize, usize> = HashMap::new();
            same.iter().filter_map(|i| axes[*i].0).for_each(|variant| *own.entry(variant).or_insert(0) += 1);
            let is_shared = same.iter().any(|i| axes[*i].0.is_none());
            met.extend(same.iter().filter(|i| is_shared || axes[**i].0.is_some_and(|variant| own[&variant] > 1)));
        }
        met.sort_unstable();
        let longer: HashSet<&[String]> =
            met.iter().filter(|i| !axes[**i].1 && lengths[&keys[**i][..]] < keys[**i].len()).map(|i| &keys[*i][..]).collect();
        if longer.is_empty() {
            let Some(last) = met.last() else { return Ok(()) };
            let (_, explicit, axis) = &axes[*last];
            let other = *met.iter().find(|i| *i != last && axes[**i].2.name == axis.name).expect("two met");
            let (place, with) = (if *explicit { format!("{}.name", axis.place) } else { axis.key_place(0) }, &axes[other].2.place);
            let what = match keys[*last] == keys[other] {
                true => format!("`{}` is swept twice, by {with} too", quoted(&axis.keys[0])),
                false => format!("the sweeps {with} and {} are both called `{}`", axis.place, quoted(&axis.name)),
            };
            return Err(Error::new(place, what, "one sweep for each key, and name = .., one of its own, for each sweep"));
        }
        longer.into_iter().for_each(|key| *lengths.get_mut(key).expect("a default name") += 1);
    }
}

/// The parts of a key as in names: those with dots are quoted.
fn named_parts(key: &str) -> Vec<String> {
    let parts = parts(key).unwrap_or_else(|_| vec![key]);
    parts.iter().map(|part| if part.contains('.') { format!("\"{part}\"") } else { (*part).to_string() }).collect()
}

impl AppliedSweep {
    fn new(place: String, sweep: Sweep) -> Result<Self> {
        let Sweep { key, keys, values, name, labels } = sweep;
        let is_joint = keys.is_some();
        let keys: Vec<String> = match (key, keys) {
            (Some(key), None) => vec![key],
            (None, Some(keys)) if !keys.is_empty() => keys,
            (Some(_), Some(_)) => return Err(Error::new("keys", "both key and keys", "key for one, or keys that move together")),
            _ => return Err(Error::new("", "a sweep needs key or keys", "key = \"run.rounds\", or keys = [..] that move together")),
        };
        require(!values.is_empty(), "values", "[]", "a list of at least one value")?;
        if let Some(labels) = &labels {
            let accepted = format!("one label per value, {}", values.len());
            require(labels.len() == values.len(), "labels", format!("a list of {}", labels.len()), &accepted)?;
            for (i, label) in labels.iter().enumerate() {
                shown(label).map_err(|e| e.inside(&format!("labels[{i}]")))?;
            }
        }
        if let Some(name) = &name {
            shown(name).map_err(|e| e.inside("name"))?;
            require(name != "variant", "name", "\"variant\"", "another name: this one is that of the variants' coordinate")?;
        }
        for (j, key) in keys.iter().enumerate() {
            let at = if is_joint { format!("keys[{j}]") } else { "key".to_string() };
            let parts = parts(key).map_err(|e| e.about(at.clone()))?;
            if let ["method", .., "label"] = parts[..] {
                return Err(Error::new(at, "a sweep cannot change labels", "a key other than a method's label"));
            }
        }
        for (i, value) in values.iter().enumerate() {
            let count = value.as_array().map(Vec::len);
            if is_joint && count != Some(keys.len()) {
                let what = format!("{} is not a list of {} values", super::short(value), keys.len());
                return Err(Error::new(format!("values[{i}]"), what, format!("lists of {} values, one per key", keys.len())));
            }
            let first = if is_joint { &value[0] } else { value };
            if let (Value::String(text), None) = (first, &labels) {
                shown(text).map_err(|e| e.inside(&format!("values[{i}]")))?;
            }
        }
        Ok(Self { place, name: name.unwrap_or_default(), keys, is_joint, values, labels })
    }

    /// The value that belongs to a key.
    fn value(&self, i: usize, key: usize) -> &Value {
        if self.is_joint { &self.values[i][key] } else { &self.values[i] }
    }

    /// The place of that value in the file.
    fn value_place(&self, i: usize, key: usize) -> String {
        if self.is_joint { format!("{}.values[{i}][{key}]", self.place) } else { format!("{}.values[{i}]", self.place) }
    }

    /// The place of a coordinate that repeats an earlier value.
    fn repeated(&self) -> Option<String> {
        let mut seen = HashSet::new();
        let i = (0..self.values.len()).find(|i| !seen.insert(label(&[self.coordinate(*i)])))?;
        Some(if self.labels.is_some() { format!("{}.labels[{i}]", self.place) } else { self.value_place(i, 0) })
    }

    /// The place of a key in the file.
    fn key_place(&self, key: usize) -> String {
        if self.is_joint { format!("{}.keys[{key}]", self.place) } else { format!("{}.key", self.place) }
    }

    /// Sets the keys to their i-th values.
    fn apply(&self, i: usize, sections: &mut Sections, origins: &mut Vec<Origin>) -> Result<()> {
        for (j, key) in self.keys.iter().enumerate() {
            let set = sections.set(key, self.value(i, j)).map_err(|e| e.about(self.key_place(j)))?;
            let from = || SetBy::Place(self.value_place(i, j));
            origins.extend(set.into_iter().map(|key| Origin { key, from: from() }));
        }
        Ok(())
    }

    /// The coordinate of the i-th value.
    fn coordinate(&self, i: usize) -> (String, Value) {
        let shown = self.labels.as_ref().map_or_else(|| self.value(i, 0).clone(), |labels| Value::String(labels[i].clone()));
        (self.name.clone(), shown)
    }
}

impl VariantBase {
    /// Refuses settings that another one replaces at every point: a key that is swept twice, or a setting of a variant that a sweep
    /// replaces. `set` lists the variant's settings: place, key, and the keys it expands to.
    fn check_effect(&self, mut set: Vec<(String, String, Vec<String>)>) -> Result<()> {
        let count = set.len();
        let mut sections = self.sections.clone();
        for axis in &self.sweeps {
            for (j, key) in axis.keys.iter().enumerate() {
                let done = sections.set(key, axis.value(0, j)).map_err(|e| e.about(axis.key_place(j)))?;
                set.push((axis.key_place(j), key.clone(), done));
            }
        }
        // From last to first: the last sweep of a key determines its value.
        let mut last: HashMap<&str, &str> = HashMap::new();
        for (i, (place, key, keys)) in set.iter().enumerate().rev() {
            let by: Vec<&str> = keys.iter().map_while(|key| around(key).find_map(|key| last.get(key).copied())).collect();
            if let (Some(later), true) = (by.last(), by.len() == keys.len()) {
                let what = match i < count {
                    true => format!("{later} sets this key at every point of the variant, so that this setting has no effect"),
                    false => format!("`{}` is swept twice: {later} sets it at every point too", quoted(key)),
                };
                return Err(Error::new(place, what, "each key once; keys = [..] for keys that move together"));
            }
            last.extend(keys.iter().map(|key| (key.as_str(), place.as_str())));
        }
        Ok(())
    }

    /// Appends the points of all combinations; the first sweep varies slowest.
    fn points(self, coordinates: Vec<(String, Value)>, points: &mut Vec<SweepPoint>, flags: &mut Overridden<'_>) -> Result<()> {
        if coordinates.is_empty() {
            self.check_effect(Vec::new())?;
        }
        let mut own = 1_usize;
        for (place, count) in std::iter::once(("variant", 1)).chain(self.sweeps.iter().map(|axis| (&axis.place[..], axis.values.len()))) {
            own = own.saturating_mul(count);
            let all = points.len().saturating_add(own);
            let help = format!("sweeps over at most {MAX_POINTS} points in all");
            require(all <= MAX_POINTS, place, format!("{all} points or more"), &help)?;
        }
        let start = Arc::new(self);
        let mut made = Made { start: &start, at: Vec::new(), coordinates, origins: start.origins.clone(), points, flags };
        made.descend(&start.sections)
    }
}

/// An iteration over the combinations of one base's sweeps.
struct Made<'w, 'd> {
    start: &'w Arc<VariantBase>,
    at: Vec<u32>,
    coordinates: Vec<(String, Value)>,
    origins: Vec<Origin>,
    points: &'w mut Vec<SweepPoint>,
    flags: &'w mut Overridden<'d>,
}

impl Made<'_, '_> {
    fn descend(&mut self, sections: &Sections) -> Result<()> {
        let Some(axis) = self.start.sweeps.get(self.at.len()) else {
            self.flags.see(&self.origins);
            let label = label(&self.coordinates);
            let (coordinates, start, at) = (self.coordinates.clone(), Arc::clone(self.start), self.at.clone().into());
            self.points.push(SweepPoint { label, coordinates, start, at });
            return Ok(());
        };
        let set_before = self.origins.len();
        for i in 0..axis.values.len() {
            let mut next = sections.clone();
            axis.apply(i, &mut next, &mut self.origins)?;
            self.at.push(i as u32);
            self.coordinates.push(axis.coordinate(i));
            self.descend(&next)?;
            self.at.pop();
            self.coordinates.pop();
            self.origins.truncate(set_before);
        }
        Ok(())
    }
}

/// A key, followed by the keys of all tables that contain it.
fn around(key: &str) -> impl Iterator<Item = &str> {
    std::iter::once(key).chain(key.char_indices().rev().filter(|(_, c)| ['.', '['].contains(c)).map(|(i, _)| &key[..i]))
}

fn label(coordinates: &[(String, Value)]) -> String {
    let text = |(name, value): &(String, Value)| match value {
        Value::String(s) if name == "variant" => s.clone(),
        Value::String(s) => format!("{name}={s}"),
        Value::Float(x) if !numbers::is_plain(*x) => format!("{name}={}", numbers::typed(*x)),
        other => format!("{name}={other}"),
    };
    coordinates.iter().map(text).collect::<Vec<_>>().join(", ")
}
