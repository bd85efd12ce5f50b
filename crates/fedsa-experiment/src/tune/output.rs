//! The output of a tuning: the experiment file of its answer, the summary, and the picture of cost against error.

use std::collections::HashMap;
use std::sync::Arc;

use fedsa::error::{Error, Result};
use fedsa_data::find::Places;
use fedsa_theory::Accuracy;
use fedsa_theory::cost::Goal;
use fedsa_theory::tune::{Miss, SearchChoice, SearchCost, Tried};
use serde_json::{Map, Value as Json, json};
use toml::{Table, Value};

use super::pilots::Piloted;
use super::{Evidence, Tuned, Tuning, run_table};
use crate::checks;
use crate::config::{Document, Experiment};
use crate::numbers::{self, number};
use crate::picture::{DrawnFigure, Picture};
use crate::plan::{Plan, PlanControl};
use crate::resolve;
use fedsa_figure::{Chart, Format, Level, Panel, PlottedCurve, Provenance, RenderOptions, Style};

/// The names of the files: the experiment of the answer, the pictures, the summary.
pub fn names() -> Vec<String> {
    let pictures = [Format::Svg, Format::Png].map(|format| format.file_name(FRONTIER));
    std::iter::once(FILE.to_string()).chain(pictures).chain([SUMMARY.to_string()]).collect()
}

/// The experiment file of the answer.
pub const FILE: &str = "tuned.toml";
const FRONTIER: &str = "frontier";
const SUMMARY: &str = "summary.json";
/// The version of the summary.
const FORMAT: u64 = 1;
/// The largest and the smallest number of seeds of the answer's file, and the seconds on one core for its run. Four standard errors over
/// the largest number are about a fifth of the error.
const SEEDS: u64 = 400;
const FEW_SEEDS: u64 = 20;
const SECONDS: f64 = 60.0;
/// The largest ratio of the standard deviation of single errors to their mean with which intervals are trusted; for Gaussian iterates it is
/// at most the square root of 2.
const WIDE: f64 = 2.0;
/// A predicted error below this share of the target is 0 within rounding.
const NOTHING: f64 = 1e-12;

/// A line of the tables: a choice with its results.
struct Entry<'t> {
    choice: SearchChoice,
    /// The error after some rounds; for pilots the upper end of its interval.
    path: Vec<(u64, f64)>,
    by: &'static str,
    /// Its pilot.
    pilot: Option<&'t Piloted>,
    outcome: Json,
    cost: Option<&'t SearchCost>,
}

impl Tuning {
    /// The files of an answer with their contents. The experiment file is first read and planned as by `fedsa run`.
    ///
    /// # Errors
    /// When the answer's file could not run.
    pub fn files(&self, tuned: &Tuned) -> Result<Vec<(String, Vec<u8>)>, Error> {
        let text = self.file(tuned)?;
        let look = RenderOptions::default();
        let about = Provenance { id: &self.experiment.id, config: &text };
        let picture = self.picture(tuned);
        let pictures = [Format::Svg, Format::Png].map(|format| (format.file_name(FRONTIER), picture.render(format, &look, &about)));
        let mut files = vec![(FILE.to_string(), text.clone().into_bytes())];
        files.extend(pictures);
        files.push((SUMMARY.to_string(), format!("{:#}\n", self.summary(tuned)).into_bytes()));
        Ok(files)
    }

    /// The check that the prediction holds.
    fn check(&self, tuned: &Tuned, is_noiseless: bool) -> Vec<(&'static str, Value)> {
        let label = self.candidates[tuned.choice.family].kind.name;
        // A prediction of 0 can only be met within rounding.
        let is_nothing = tuned.hit.mse < NOTHING * self.target.mse;
        let mut check = vec![("method", Value::String(label.into())), ("metric", Value::String("mse".into()))];
        check.extend(if is_nothing {
            [
                ("kind", Value::String("reaches".into())),
                ("name", Value::String("Error at the end at most the target, as predicted".into())),
                ("max", Value::Float(self.target.mse)),
            ]
        } else {
            [
                ("kind", Value::String("final".into())),
                ("name", Value::String("Error at the end, as predicted".into())),
                ("expected", Value::Float(tuned.hit.mse)),
            ]
        });
        match tuned.evidence {
            _ if is_nothing => {}
            _ if is_noiseless => check.push(("tolerance", Value::Float(1e-6))),
            Evidence::Theory(Accuracy::Closure { eps_squared }) => {
                check.extend([("se", Value::Float(4.0)), ("tolerance", Value::Float(eps_squared))]);
            }
            // Runs with equal samples have no standard error.
            Evidence::Theory(_) => check.extend([("se", Value::Float(4.0)), ("tolerance", Value::Float(1e-6))]),
            // The prediction itself is a mean over seeds.
            Evidence::Pilots { se, .. } => {
                check.extend([("se", Value::Float(4.0)), ("tolerance", Value::Float(4.0 * se / tuned.hit.mse))]);
            }
        }
        check
    }

    /// The text of the answer's experiment file.
    fn file(&self, tuned: &Tuned) -> Result<String, Error> {
        let label = self.candidates[tuned.choice.family].kind.name;
        let (is_noiseless, knows_curve) = self.known(tuned);
        let with = |seeds: u64| Value::Integer(if is_noiseless { 1 } else { seeds as i64 });
        let mut table = run_table(self, &tuned.choice, tuned.hit.rounds, with(SEEDS), None);
        let seconds = super::estimated_seconds(&self.plan(table.clone())?);
        if seconds > SECONDS && !is_noiseless {
            let seeds = ((SEEDS as f64 * SECONDS / seconds) as u64).max(FEW_SEEDS);
            table = run_table(self, &tuned.choice, tuned.hit.rounds, with(seeds), None);
        }
        table.insert("id".into(), Value::String(format!("{}-tuned", self.experiment.id)));
        let aim = self.options.epsilon.map_or_else(
            || format!("to {}", numbers::typed(self.target.mse)),
            |epsilon| format!("under epsilon = {}", numbers::typed(epsilon)),
        );
        let title = format!("{}: {label} {aim}", self.experiment.title);
        table.insert("title".into(), Value::String(title));
        table.insert("check".into(), Value::Array(vec![Value::Table(owned(self.check(tuned, is_noiseless)))]));
        let mut figure = vec![("y", Value::String("mse".into()))];
        if knows_curve {
            figure.push(("exact", Value::Array(vec![Value::String(label.into())])));
        }
        table.insert("figure".into(), Value::Table(owned(figure)));
        let experiment = self.read(table)?;
        let resolved = resolve::table(&experiment, &Places::from_env(&self.base))?;
        // Read as by `fedsa run`.
        let document = Document::of_table(resolved.clone(), Vec::new()).with_kinds(&self.experiment.document.kinds);
        let plan = Plan::with_problem(
            Experiment::read(document)?,
            &self.base,
            self.isa,
            &HashMap::new(),
            Some(self.problem.clone()),
            &PlanControl::default(),
        )?;
        checks::unmeasured(&Arc::new(plan), &self.base)?;
        let goal = self.options.objective.name();
        let what = match self.options.epsilon {
            None => format!("Reaches a mean-square error of {} with the fewest {goal} of what was tried", numbers::typed(self.target.mse)),
            Some(epsilon) => format!("The smallest mean-square error under epsilon = {} of what was tried", numbers::typed(epsilon)),
        };
        let head = format!("# {what}: {}.\n# Made by fedsa tune; the check is the prediction.\n", self.text_of(tuned));
        Ok(format!("{head}{}", toml::to_string(&resolved).expect("a tree of plain values")))
    }

    /// Whether the answer's runs have no noise, and whether theory knows its whole curve.
    fn known(&self, tuned: &Tuned) -> (bool, bool) {
        let Some(forecast) = self.forecast(&tuned.choice) else { return (false, false) };
        let is_noiseless = matches!(tuned.evidence, Evidence::Theory(_)) && forecast.is_noiseless();
        (is_noiseless, self.start.theta.is_some() && forecast.knows_curve_to(tuned.hit.rounds).is_ok())
    }

    /// A choice in words.
    pub fn choice_text(&self, choice: &SearchChoice) -> String {
        let server =
            if choice.server_step == 1.0 { String::new() } else { format!(", global step size {}", numbers::typed(choice.server_step)) };
        let steps = if choice.local_steps == 1 { "1 local step".to_string() } else { format!("{} local steps", choice.local_steps) };
        format!("{}, step size {}, {steps}{server}", self.family(choice), numbers::typed(choice.step_size))
    }

    /// The answer in one line.
    pub fn text_of(&self, tuned: &Tuned) -> String {
        format!("{}: {}", self.choice_text(&tuned.choice), cost_text(&tuned.cost))
    }

    /// The report as text.
    pub fn report(&self, tuned: &Tuned) -> Vec<String> {
        if let Some(privacy) = &tuned.privacy {
            return self.report_private(tuned, privacy);
        }
        let goal = self.options.objective.name();
        let mut lines = vec![format!("a mean-square error of {} with the fewest {goal}:", numbers::typed(self.target.mse))];
        lines.push(format!("  {}", self.text_of(tuned)));
        lines.push(match tuned.evidence {
            Evidence::Theory(accuracy) => format!("  mean-square error {} then, by theory ({accuracy})", number(tuned.hit.mse)),
            Evidence::Pilots { seeds, se, by_mean } => format!(
                "  mean-square error {} +- {} then, over {seeds} seeds of a pilot run; the mean alone is there after {}",
                number(tuned.hit.mse),
                numbers::rough(se),
                numbers::rounds(by_mean)
            ),
        });
        if let Evidence::Pilots { seeds, se, .. } = tuned.evidence {
            let spread = se * (seeds as f64).sqrt() / tuned.hit.mse;
            if spread > WIDE {
                lines.push(format!(
                    "  the errors of single runs differ widely (standard deviation {} times the mean): rare large errors may be missing from \
                     the mean and its interval",
                    number(spread)
                ));
            }
        }
        lines.push("the best of the others:".into());
        for (family, of) in self.candidates.iter().enumerate().filter(|(family, _)| *family != tuned.choice.family) {
            lines.push(format!(
                "  {}",
                self.best_of(tuned, family).unwrap_or_else(|| format!("{}: {}", of.name(), self.why_not(tuned, family)))
            ));
        }
        if self.candidates.len() == 1 {
            lines.pop();
        }
        let piloted = tuned.pilots.tried.len();
        let pilots =
            if piloted == 0 { String::new() } else { format!(", {piloted} by pilot runs of about {} s", number(tuned.pilots.spent)) };
        lines.push(format!("{} choices were tried by theory{pilots}", tuned.found.tried.len()));
        let most = self.options.max_local_steps;
        if self.options.local_steps.is_empty() && tuned.choice.local_steps == most && most > 1 {
            lines.push(format!("its local steps are the most that may be chosen, {most}: a larger `max_local_steps` may find better"));
        }
        if tuned.is_cut() {
            let limit = self.limit(tuned.is_late);
            lines.push(format!("{} ended the search early: a larger {} may find better", limit.text, limit.setting));
            if tuned.is_late {
                lines.push("what is found within a time limit depends on the machine: the same command may find something else".into());
            }
        }
        lines
    }

    /// The best choice of a family in one line, if it reaches the target.
    fn best_of(&self, tuned: &Tuned, family: usize) -> Option<String> {
        let goal = self.options.objective;
        let entries = self.entries(tuned);
        let mine = entries.iter().filter(|entry| entry.choice.family == family);
        let (best, cost) = mine.filter_map(|entry| Some((entry, entry.cost?))).min_by(|a, b| a.1.compare(b.1, goal))?;
        let how = match best.pilot {
            Some(pilot) if pilot.is_confirmed() => " (by a pilot run)".to_string(),
            // A choice that looks cheaper than the answer with few seeds was not confirmed within the budget.
            Some(pilot) if cost.of(goal) < tuned.cost.of(goal) => {
                format!(" (by {} seeds of a pilot run; {} did not suffice to confirm it)", pilot.seeds, self.limit(tuned.is_late).name)
            }
            Some(pilot) => format!(" (by {} seeds of a pilot run)", pilot.seeds),
            None => String::new(),
        };
        Some(format!("{}: {}{how}", self.choice_text(&best.choice), cost_text(cost)))
    }

    /// Why a family misses the target.
    fn why_not(&self, tuned: &Tuned, family: usize) -> String {
        if let Err(why) = &tuned.found.prices[family] {
            return why.what.clone();
        }
        let tried = tuned.found.tried.iter().any(|tried| tried.choice.family == family);
        let piloted = tuned.pilots.tried.iter().any(|piloted| piloted.choice.family == family);
        let limit = self.limit(tuned.is_late);
        match &tuned.found.unknown[family] {
            _ if (tried || piloted) && tuned.is_cut() => format!("did not reach the target for less before {} ended", limit.name),
            _ if tried && !piloted => "does not reach the target for less".into(),
            Some(_) if piloted => "does not reach the target for less in its pilot runs".into(),
            Some(_) if tuned.pilots.exhausted => format!("theory does not know it, and no pilot run of it fitted into {}", limit.name),
            Some(_) => "theory does not know it, and one round of it costs more than the answer".into(),
            None => format!("{} ended the search before it was tried", limit.name),
        }
    }

    /// All tried choices.
    fn entries<'t>(&self, tuned: &'t Tuned) -> Vec<Entry<'t>> {
        let of_theory = |tried: &'t Tried| Entry {
            choice: tried.choice,
            path: tried.course.path.clone(),
            by: "theory",
            pilot: None,
            outcome: match tried.course.outcome {
                Ok(hit) => json!({ "reaches": true, "rounds": hit.rounds, "mse": hit.mse }),
                Err(Miss::Diverges) => json!({ "reaches": false, "why": "diverges" }),
                Err(Miss::Floor { floor }) => json!({ "reaches": false, "why": "floor", "floor": floor }),
                Err(Miss::Slow { rounds, mse }) => json!({ "reaches": false, "why": "costs more", "rounds": rounds, "mse": mse }),
            },
            cost: tried.cost.as_ref(),
        };
        let of_pilots = |piloted: &'t Piloted| Entry {
            choice: piloted.choice,
            path: piloted.measured.upper(),
            by: "pilots",
            pilot: Some(piloted),
            outcome: match &piloted.surely {
                Some((hit, _)) => {
                    let se = piloted.measured.at(hit.rounds).map(|(_, se)| se);
                    json!({ "reaches": true, "rounds": hit.rounds, "mse": hit.mse, "se": se, "seeds": piloted.seeds })
                }
                None if piloted.measured.diverged => json!({ "reaches": false, "why": "diverges", "seeds": piloted.seeds }),
                None => json!({ "reaches": false, "why": "not within its pilot run", "seeds": piloted.seeds }),
            },
            cost: piloted.surely.as_ref().map(|(_, cost)| cost),
        };
        tuned.found.tried.iter().map(of_theory).chain(tuned.pilots.tried.iter().map(of_pilots)).collect()
    }

    /// For each error, the least cost at which a tried choice of the family has it, as steps (cost, error) by increasing cost.
    fn frontier(&self, tuned: &Tuned, family: usize) -> Vec<(f64, f64)> {
        let Ok(price) = &tuned.found.prices[family] else { return Vec::new() };
        let goal = self.options.objective;
        let mut points: Vec<(f64, f64)> = Vec::new();
        for entry in self.entries(tuned).iter().filter(|entry| entry.choice.family == family) {
            let of = |t: &u64| price.cost(*t, entry.choice.local_steps).of(goal);
            points.extend(entry.path.iter().filter(|(t, mse)| *t > 0 && mse.is_finite()).map(|(t, mse)| (of(t), *mse)));
        }
        points.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
        let mut lowest = f64::INFINITY;
        points.retain(|(_, mse)| {
            let is_lower = *mse < 0.999 * lowest;
            lowest = lowest.min(*mse);
            is_lower
        });
        points
    }

    /// The summary: the request, the answer, and the tried choices. It has no times, so that equal input gives equal text.
    pub fn summary(&self, tuned: &Tuned) -> Json {
        let choice = |choice: &SearchChoice| {
            let mut out = Map::new();
            out.insert("family".into(), json!(self.family(choice)));
            out.insert("method".into(), json!(self.candidates[choice.family].kind.name));
            out.insert("step_size".into(), json!(choice.step_size));
            out.insert("local_steps".into(), json!(choice.local_steps));
            out.insert("global_step_size".into(), json!(choice.server_step));
            out
        };
        let mut answer = choice(&tuned.choice);
        answer.insert("cost".into(), json!(tuned.cost));
        answer.insert("mse".into(), json!(tuned.hit.mse));
        answer.insert("evidence".into(), evidence_json(tuned.evidence));
        if let Some(privacy) = &tuned.privacy {
            answer
                .insert("privacy".into(), json!({ "epsilon": self.options.epsilon, "mse": privacy.by_privacy, "agents": privacy.agents }));
        }
        answer.insert("table".into(), json!(self.method(&tuned.choice, tuned.hit.rounds)));
        let tried: Vec<Json> = self
            .entries(tuned)
            .iter()
            .map(|entry| {
                let mut out = choice(&entry.choice);
                out.insert("by".into(), json!(entry.by));
                out.insert("outcome".into(), entry.outcome.clone());
                out.insert("cost".into(), json!(entry.cost));
                out.into()
            })
            .collect();
        let families: Vec<Json> = (0..self.candidates.len())
            .map(|family| {
                let unknown = tuned.found.unknown[family].as_ref().map(|why| why.what.clone());
                json!({
                    "family": self.candidates[family].name(),
                    "theory": unknown.is_none(),
                    "why_not_theory": unknown,
                    "frontier": self.frontier(tuned, family),
                })
            })
            .collect();
        json!({
            "format": FORMAT,
            "id": format!("{}-tune", self.experiment.id),
            "title": self.experiment.title,
            "fedsa": env!("CARGO_PKG_VERSION"),
            "options": self.options,
            "answer": answer,
            "theory": { "estimated_seconds": tuned.theory_seconds, "budget_exhausted": tuned.found.is_cut && !tuned.found.is_late },
            "pilots": { "estimated_seconds": tuned.pilots.spent, "budget_exhausted": tuned.pilots.exhausted && !tuned.pilots.is_late },
            "time_limit": self.options.time_limit,
            "time_limit_reached": tuned.is_late,
            "families": families,
            "tried": tried,
        })
    }

    /// The frontier of cost against error, with everything that its files need.
    ///
    /// # Errors
    /// When the answer's file could not run.
    pub fn drawn(&self, tuned: &Tuned) -> Result<DrawnFigure, Error> {
        Ok(DrawnFigure::new(&self.experiment, self.picture(tuned), &self.file(tuned)?))
    }

    /// The frontier of cost against error.
    fn picture(&self, tuned: &Tuned) -> Picture {
        let goal = self.options.objective;
        let mut curves: Vec<PlottedCurve> = Vec::new();
        for (family, of) in self.candidates.iter().enumerate() {
            let points = self.frontier(tuned, family);
            if points.is_empty() {
                continue;
            }
            curves.push(PlottedCurve {
                label: of.name(),
                color: family,
                x: points.iter().map(|(cost, _)| *cost).collect(),
                y: points.iter().map(|(_, mse)| *mse).collect(),
                style: Style::Line,
                ..PlottedCurve::default()
            });
        }
        curves.push(PlottedCurve {
            label: "the answer".into(),
            color: tuned.choice.family,
            x: vec![tuned.cost.of(goal)],
            y: vec![tuned.hit.mse],
            style: Style::Points,
            ..PlottedCurve::default()
        });
        let x_label = match goal {
            Goal::Bits => "bits, up and down with headers, all agents",
            Goal::Samples => "samples, all agents",
            Goal::Rounds | Goal::Seconds => goal.name(),
        };
        let panel = Panel {
            x_label: x_label.into(),
            y_label: "mean-square error".into(),
            x_log: true,
            y_log: true,
            curves,
            levels: self.options.target_mse.map(|y| Level { label: "target".into(), y, color: 7, dash: 0 }).into_iter().collect(),
            ..Panel::default()
        };
        let pilots = match tuned.pilots.tried.len() {
            0 => String::new(),
            n => format!(
                " and {n} by pilot runs (of which it is the upper end of the interval of the mean error, in the race over 8 seeds that \
                 all share: the lowest of many is too low)"
            ),
        };
        let caption = format!(
            "The lowest mean-square error that a choice of settings has for a cost, among {} choices by theory{pilots}. Choices were \
             looked for near the target: elsewhere others may do better. A choice may pass an error on the way to a higher floor; that of \
             the answer is at most the target.",
            tuned.found.tried.len()
        );
        Picture::Chart(Chart {
            title: format!("{}: error against {}", self.experiment.title, goal.name()),
            panels: vec![panel],
            caption,
            notes: vec![format!("The answer: {}.", self.text_of(tuned))],
            ..Chart::default()
        })
    }
}

/// The limit that ended a search early.
pub(super) struct Limit {
    /// The text of the setting with its value, the setting, and a phrase.
    pub text: String,
    pub setting: &'static str,
    pub name: &'static str,
}

impl Limit {
    /// The key of the setting.
    pub fn key(&self) -> &'static str {
        self.setting.trim_matches('`')
    }
}

impl Tuning {
    /// The limit that ended the search early: the time limit, or the budget.
    pub(super) fn limit(&self, is_late: bool) -> Limit {
        match self.options.time_limit.filter(|_| is_late) {
            Some(limit) => {
                Limit { text: format!("the time limit of {} s", number(limit)), setting: "`time_limit`", name: "the time limit" }
            }
            None => Limit { text: format!("the budget of {} s", number(self.options.budget)), setting: "`budget`", name: "the budget" },
        }
    }
}

impl Tuned {
    /// Whether the budget or the time limit ended the search early.
    pub(super) fn is_cut(&self) -> bool {
        self.pilots.exhausted || self.found.is_cut
    }
}

fn evidence_json(evidence: Evidence) -> Json {
    match evidence {
        Evidence::Theory(accuracy) => json!({ "by": "theory", "accuracy": accuracy }),
        Evidence::Pilots { seeds, se, by_mean } => {
            json!({ "by": "pilots", "seeds": seeds, "standard_error": se, "rounds_by_mean": by_mean })
        }
    }
}

fn owned(entries: Vec<(&str, Value)>) -> Table {
    entries.into_iter().map(|(key, value)| (key.to_string(), value)).collect()
}

/// A cost in words.
fn cost_text(cost: &SearchCost) -> String {
    let bits = match cost.bits {
        bits if bits < 1e6 => format!("{} kbit", number(bits / 1e3)),
        bits if bits < 1e9 => format!("{} Mbit", number(bits / 1e6)),
        bits => format!("{} Gbit", number(bits / 1e9)),
    };
    let samples = match cost.samples {
        0.0 => String::new(),
        1.0 => ", 1 sample".into(),
        samples => format!(", {} samples", numbers::thousands(samples)),
    };
    let seconds = cost.seconds.map_or(String::new(), |seconds| format!(", {} s of messages", number(seconds)));
    format!("{}, {bits}{samples}{seconds}", numbers::rounds(cost.rounds))
}
