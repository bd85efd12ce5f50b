//! The inputs of checks: the plan and its predictions before a run, and the results after it.

use std::collections::HashMap;

use fedsa::error::{Error, Result};
use fedsa::method::Drift;
use fedsa::metrics::{Knowledge, Need};

use crate::config::Check;
use crate::config::schema::ExpectedStatus;
use crate::plan::Plan;
use crate::predict::Predictor;
use crate::results::Results;

/// A plan and its predictions, which are known before anything runs. Methods that return `Result` refuse checks that the
/// plan cannot answer.
pub struct PlanFacts<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// Its predictions.
    pub predictor: &'a Predictor,
}

impl PlanFacts<'_> {
    /// The points of a check as (point, cell of the method). With `by_theory`, points are left out if predictions
    /// exclude them (`bias_over_noise`).
    pub fn cells(&self, check: &Check, by_theory: bool) -> Result<Vec<(usize, usize)>> {
        let method = self.method(check.method_label());
        let mut out = Vec::new();
        for (i, planned) in self.plan.points.iter().enumerate().filter(|(_, p)| p.point.is_at(&check.at)) {
            let cell = planned.cells[method];
            if self.plan.cells[cell].refused.is_some() {
                continue;
            }
            let shape = self.plan.cells[cell].shape();
            let eta_h = shape.step_size.largest() * shape.local_steps;
            // 0.1 * 1000 is 100.00000000000001.
            let slack = 1.0 + 1e-9;
            if check.min_eta_h.is_some_and(|x| eta_h * slack < x) || check.max_eta_h.is_some_and(|x| eta_h > x * slack) {
                continue;
            }
            if let Some(times) = check.bias_over_noise.filter(|_| by_theory)
                && self.predictor.number(cell, "bias2")? <= times * self.predictor.number(cell, "noise")?
            {
                continue;
            }
            out.push((i, cell));
        }
        Ok(out)
    }

    /// The reason why the method of a check is refused, if it is refused at all points.
    pub fn refusal(&self, check: &Check) -> Option<String> {
        let method = self.method(check.method_label());
        let mut at = self.plan.points.iter().filter(|p| p.point.is_at(&check.at)).map(|p| &self.plan.cells[p.cells[method]].refused);
        let first = at.next()?.clone()?;
        at.all(Option::is_some).then_some(first)
    }

    /// Groups points that agree in all coordinates except `along`; each group is in the file's order.
    pub fn groups(&self, check: &Check, cells: &[(usize, usize)]) -> Result<Vec<Vec<(usize, usize)>>> {
        let along = check.along.as_deref().expect("validated");
        /// The points and cells that have the same other coordinates.
        type Group = Vec<(usize, usize)>;
        let mut groups: Vec<Group> = Vec::new();
        let mut index: HashMap<Vec<(String, String)>, usize> = HashMap::new();
        for (point, cell) in cells {
            let coordinates = &self.plan.points[*point].point.coordinates;
            let others = coordinates.iter().filter(|(n, _)| n != along).map(|(n, v)| (n.clone(), v.to_string()));
            let at = *index.entry(others.collect()).or_insert_with(|| {
                groups.push(Vec::new());
                groups.len() - 1
            });
            groups[at].push((*point, *cell));
        }
        groups.retain(|members| members.len() >= 2);
        match groups.is_empty() {
            true => Err(Error::new("along", format!("{along} has one value only"), "a coordinate with two values or more")),
            false => Ok(groups),
        }
    }

    /// The index of the method with this label.
    pub fn method(&self, label: &str) -> usize {
        self.plan.labels.iter().position(|l| l == label).expect("validated")
    }

    /// The cell of the method `over` at a point.
    pub fn over(&self, check: &Check, point: usize) -> Result<usize> {
        let over = check.over_label();
        let cell = self.plan.points[point].cells[self.method(over)];
        match &self.plan.cells[cell].refused {
            Some(reason) => Err(Error::new("over", format!("{over} is refused: {reason}"), "a method that is run at these points")),
            None => Ok(cell),
        }
    }

    /// A point's name.
    pub fn place(&self, point: usize) -> String {
        self.plan.points[point].point.label.clone()
    }

    /// The name of a group of points that differ only in the coordinate `along`.
    pub fn place_of_group(&self, check: &Check, point: usize) -> String {
        let along = check.along.as_deref().unwrap_or_default();
        self.plan.points[point].point.label_without(along)
    }

    /// A point's name as ` (at NAME)`; empty where nothing is swept.
    pub fn at(&self, point: usize) -> String {
        let place = self.place(point);
        if place.is_empty() { place } else { format!(" (at {place})") }
    }

    /// Checks that a cell has a metric.
    pub fn metric(&self, cell: usize, metric: &str) -> Result<()> {
        let planned = &self.plan.cells[cell];
        let has_controls = matches!(planned.method.settings.shape().drift, Drift::ControlVariate { .. });
        let known = Knowledge::of(self.plan.field(cell), has_controls, planned.centre.is_some());
        let Some(need) = fedsa::metrics::metric(metric).and_then(|metric| metric.missing(&known)) else { return Ok(()) };
        if self.plan.field(cell).facts().is_elsewhere() {
            let what = format!("{metric} is not known: the data are with the agents of a federation");
            let help = "no `y`, or the residual, which is taken from the answers of agents; checks of counts alone";
            return Err(Error::new("metric", what, help));
        }
        const ANOTHER: &str = "another metric, such as mse";
        let label = &planned.method.label;
        let (why, accepted) = match need {
            Need::Root | Need::RootOrCentre => ("theta* is not known".to_string(), "metric = \"residual\""),
            Need::Gram => ("the problem is not a reward process".to_string(), ANOTHER),
            Need::Controls => (format!("{label} has no control variates"), "another metric, or a method of the SCAFFLSA kinds"),
            Need::Means => ("the operators can only be sampled".to_string(), "another metric, such as error"),
            Need::Answers => ("only a federation of machines has it".to_string(), ANOTHER),
            Need::Objective => ("the operators are not minus gradients of losses".to_string(), "another metric, such as residual"),
        };
        Err(Error::new("metric", format!("{metric} is not known: {why}"), accepted))
    }

    /// Checks that a cell has floors of a metric.
    pub fn floor(&self, cell: usize, metric: &str) -> Result<()> {
        self.metric(cell, metric)?;
        let method = &self.plan.cells[cell].method;
        match method.expect {
            Some(ExpectedStatus::Diverges) => {
                let what = format!("{} is expected to diverge, so that it has no floor", method.label);
                Err(Error::new("", what, "a check of points where it is not expected to diverge"))
            }
            _ => Ok(()),
        }
    }

    /// Checks that a cell has at least two seeds, which standard errors need.
    pub fn several_seeds(&self, cell: usize, key: &str) -> Result<()> {
        if self.plan.cells[cell].run.seeds.count() >= 2 {
            return Ok(());
        }
        let help = match key {
            "se" => "at least two seeds under [run], or a tolerance instead of se",
            _ => "at least two seeds under [run]",
        };
        Err(Error::new(key, "standard errors need at least two seeds, and there is one", help))
    }

    /// Checks that a round is within the run.
    pub fn round(&self, cell: usize, key: &str, round: Option<u64>) -> Result<()> {
        let last = self.plan.cells[cell].run.rounds;
        match round.filter(|t| *t > last) {
            Some(t) => Err(Error::new(key, format!("round {t} is beyond the last, {last}"), format!("a round from 0 to {last}"))),
            None => Ok(()),
        }
    }
}

/// A plan with its results, which checks measure.
pub struct Context<'a> {
    /// The plan and its predictions.
    pub facts: PlanFacts<'a>,
    /// The measured results.
    pub results: &'a Results,
}

impl Context<'_> {
    /// The points of a check as (point, cell of the method).
    pub fn cells(&self, check: &Check) -> Result<Vec<(usize, usize)>> {
        self.facts.cells(check, true)
    }

    /// The floors of a cell, one per seed.
    pub fn floors(&self, cell: usize, metric: &str) -> Result<Vec<f64>> {
        let label = &self.facts.plan.cells[cell].method.label;
        if !self.results.is_ok(cell) {
            return Err(Error::new("", format!("{label} diverged"), ""));
        }
        self.results.floors(cell, metric).ok_or_else(|| Error::new("", format!("{metric} is not known for {label}"), ""))
    }

    /// The recorded rounds of every seed, each with the value of a metric.
    pub fn rows(&self, cell: usize, metric: &str) -> Result<Vec<Vec<(u64, f64)>>> {
        let label = &self.facts.plan.cells[cell].method.label;
        let seeds = self.results.cells[cell].iter();
        let rows: Option<_> = seeds.map(|seed| seed.rows.iter().map(|row| Some((row.round, row.metric(metric)?))).collect()).collect();
        rows.ok_or_else(|| Error::new("", format!("{metric} is not known for {label}"), ""))
    }

    /// A metric of every seed at the last recorded round up to `round`, or at the last round.
    pub fn by(&self, cell: usize, round: Option<u64>, metric: &str) -> Result<Vec<f64>> {
        let label = &self.facts.plan.cells[cell].method.label;
        let values: Option<Vec<f64>> = self.results.cells[cell].iter().map(|seed| seed.by(round, metric)).collect();
        values.ok_or_else(|| Error::new("", format!("{metric} is not known for {label}"), ""))
    }
}
