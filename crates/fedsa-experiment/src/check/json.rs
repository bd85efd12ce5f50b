//! A checked plan as JSON.

use std::collections::HashMap;

use fedsa::method::{Drift, MethodShape};
use fedsa::parallel;
use fedsa::schedule::StepSize;
use fedsa_theory::predict::{Outlook, Regime, StableStep};
use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};
use serde_json::{Map, Value as Json, json};
use toml::Table;

use super::{Checked, LISTED};
use crate::checks;
use crate::estimate::{self, EstimatedTime};
use crate::plan::{Plan, PlannedCell};

/// The version of the layout of [`Checked::json`].
const JSON_FORMAT: u64 = 1;

/// The largest problems for which [`Checked::json`] searches stable steps (hundreds of radii each): distinct agents times d^3, and the size
/// of the state of control variates. Theory searches larger ones too.
const STEP_WORK: usize = 100_000;
const STEP_STATE: usize = 64;

/// The number of points, and of problems, that are in memory at a time.
const TOGETHER: usize = 256;

/// All numbers of a checked plan, to be serialised. Problems and points are made while writing, some at a time.
pub struct CheckedJson<'a> {
    checked: &'a Checked,
    reported: Reported<'a>,
}

/// The inputs of a report on a plan's problems and methods.
struct Reported<'a> {
    plan: &'a Plan,
    numbers: &'a [usize],
    duration: EstimatedTime,
    /// The first point of each problem.
    points: Vec<Option<usize>>,
    /// The stable steps of the cells of listed points.
    steps: HashMap<usize, Option<StableStep>>,
    outlooks: HashMap<usize, Outlook>,
}

impl<'a> Reported<'a> {
    fn of(Checked { plan, numbers, .. }: &'a Checked) -> Self {
        let listed: Vec<usize> = plan.points.iter().take(LISTED).flat_map(|point| point.cells.iter().copied()).collect();
        let outlooks = parallel::map(listed.len(), |i| (listed[i], plan.forecast(listed[i]).outlook()));
        let mut points = vec![None; plan.fields.len()];
        plan.points.iter().enumerate().rev().for_each(|(i, point)| points[point.field] = Some(i));
        Self {
            points,
            plan,
            numbers,
            duration: estimate::duration(plan),
            steps: stable_steps(plan, &listed),
            outlooks: outlooks.into_iter().collect(),
        }
    }

    fn problem(&self, i: usize) -> Json {
        let field = &self.plan.fields[i].field;
        let tables = self.points[i].map(|point| self.plan.resolved(point));
        let table = |name: &str| json!(tables.as_ref().and_then(|t| t.get(name)));
        json!({
            "agents": field.agents(),
            "dim": field.dim(),
            "kinds_of_agents": field.systems().map(|s| s.kinds.len()),
            "settings": table("problem"),
            "sampling": table("sampling"),
        })
    }

    /// Whether a cell is stable, if known, and the reason why not, or the condition.
    fn judgement(&self, cell: usize) -> (Option<bool>, Option<String>) {
        match (&self.plan.cells[cell].refused, self.outlooks.get(&cell).map(|o| (o.regime(), o.stable()))) {
            (Some(reason), _) => (None, Some(format!("refused, not run: {reason}"))),
            (None, None) => (None, Some(format!("not computed: more than {LISTED} points"))),
            (None, Some((Regime::InMean, _))) => (Some(true), Some("in the mean; the mean square is not known".to_string())),
            (None, Some((Regime::MeanDiverges, _))) => (Some(false), Some("the mean diverges".to_string())),
            (None, Some((Regime::MeanSquareDiverges, _))) => (Some(false), Some("noise makes the mean square diverge".to_string())),
            (None, Some((_, Ok(stable)))) => (Some(stable), None),
            (None, Some((_, Err(why)))) => (None, Some(why)),
        }
    }

    /// The method `m` of a point with these tables.
    fn method(&self, resolved: &Table, m: usize, cell: usize) -> Json {
        let (planned, outlook) = (&self.plan.cells[cell], self.outlooks.get(&cell));
        let (stable, reason) = self.judgement(cell);
        let finite = |x: Option<f64>| x.filter(|x| x.is_finite());
        json!({
            "method": self.plan.labels[m],
            "kind": planned.method.kind,
            "settings": resolved.get("method").and_then(|methods| methods.get(m)),
            "refused": planned.refused,
            "radius": finite(outlook.and_then(|o| o.radius.clone().ok())),
            "mean_square_radius": finite(outlook.and_then(|o| o.mean_square.clone()?.ok())),
            "stable": stable,
            "reason": reason,
            "largest_stable_step": finite(self.steps.get(&cell).and_then(|step| step.map(|s| s.step))),
            "largest_stable_step_limit": self.steps.get(&cell).and_then(|step| step.map(StableStep::limit)),
            "runs": planned.seeds().len(),
            "seconds": self.duration.cells[cell],
        })
    }

    fn point(&self, i: usize) -> Json {
        let (planned, resolved) = (&self.plan.points[i], self.plan.resolved(i));
        let coordinates: Map<String, Json> = planned.point.coordinates.iter().map(|(n, v)| (n.clone(), json!(v))).collect();
        let methods: Vec<Json> = planned.cells.iter().enumerate().map(|(m, cell)| self.method(&resolved, m, *cell)).collect();
        let seconds: f64 = planned.cells.iter().map(|cell| self.duration.cells[*cell]).sum();
        json!({
            "index": self.numbers[i],
            "point": planned.point.label,
            "coordinates": coordinates,
            "problem": planned.field,
            "run": resolved.get("run"),
            "methods": methods,
            "seconds": seconds,
        })
    }
}

impl<'a> CheckedJson<'a> {
    pub(super) fn of(checked: &'a Checked) -> Self {
        Self { checked, reported: Reported::of(checked) }
    }
}

impl Serialize for CheckedJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Checked { plan, unmeasured, quick, bytes, refusal, .. } = self.checked;
        let (experiment, reported) = (&plan.experiment, &self.reported);
        let checks = experiment.checks.iter().zip(unmeasured).map(|(check, why)| {
            let (name, statement) = (checks::name(check), checks::statement(check));
            json!({ "name": name, "kind": check.kind, "method": check.method, "statement": statement, "measurable": why.is_none(), "why": why })
        });
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("format", &JSON_FORMAT)?;
        map.serialize_entry("id", &experiment.id)?;
        map.serialize_entry("title", &experiment.title)?;
        map.serialize_entry("quick", quick)?;
        map.serialize_entry("accepted", &refusal.is_none())?;
        map.serialize_entry("refusal", &refusal.as_ref().map(ToString::to_string))?;
        map.serialize_entry("problems", &Made { count: plan.fields.len(), make: &|i| reported.problem(i) })?;
        map.serialize_entry("points", &Made { count: plan.points.len(), make: &|i| reported.point(i) })?;
        map.serialize_entry("runs", &plan.cells.iter().map(|cell| cell.seeds().len()).sum::<usize>())?;
        map.serialize_entry("seconds", &reported.duration.total)?;
        map.serialize_entry("bytes", bytes)?;
        map.serialize_entry("threads", &rayon::current_num_threads())?;
        map.serialize_entry("checks", &checks.collect::<Vec<_>>())?;
        map.end()
    }
}

/// A list whose items are made while writing.
struct Made<'a> {
    count: usize,
    make: &'a (dyn Fn(usize) -> Json + Sync),
}

impl Serialize for Made<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.count))?;
        for first in (0..self.count).step_by(TOGETHER) {
            let some = TOGETHER.min(self.count - first);
            for item in parallel::map(some, |i| (self.make)(first + i)) {
                list.serialize_element(&item)?;
            }
        }
        list.end()
    }
}

/// The largest stable steps of cells. Cells that differ only in their step share one search.
fn stable_steps(plan: &Plan, cells: &[usize]) -> HashMap<usize, Option<StableStep>> {
    let key = |cell: usize| {
        let shape = plan.cells[cell].shape();
        let alike = MethodShape { step_size: StepSize::Constant(1.0), ..shape };
        let PlannedCell { field, method, uplink, .. } = &plan.cells[cell];
        let memory = method.settings.lost(plan.field(cell).agents(), &uplink.facts());
        format!("{field} {alike:?} {} {memory:?} {uplink:?}", shape.step_size.constant().is_some())
    };
    let mut distinct: Vec<(String, usize)> = cells.iter().map(|cell| (key(*cell), *cell)).collect();
    distinct.sort();
    distinct.dedup_by(|a, b| a.0 == b.0);
    let found = parallel::map(distinct.len(), |i| {
        let cell = distinct[i].1;
        let field = plan.field(cell);
        let (kinds, d) = (field.systems().map_or(0, |s| s.kinds.len()), field.dim());
        let shape = plan.cells[cell].shape();
        let is_small = match shape.drift {
            Drift::ControlVariate { .. } => d * (kinds + 1) <= STEP_STATE,
            Drift::Zero | Drift::GlobalMemory { .. } => kinds.saturating_mul(d.pow(3)) <= STEP_WORK,
            Drift::NoSteps => false,
        };
        if is_small { plan.forecast(cell).largest_stable_step().ok() } else { None }
    });
    let found: HashMap<String, Option<StableStep>> = distinct.into_iter().map(|(key, _)| key).zip(found).collect();
    cells.iter().map(|cell| (*cell, found[&key(*cell)])).collect()
}
