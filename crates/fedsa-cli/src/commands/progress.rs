//! Progress of runs: a bar on a terminal, lines elsewhere.

use std::io::IsTerminal;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use fedsa::error::quoted;
use fedsa_experiment::execute::total_work;
use fedsa_experiment::results::SeedResult;
use fedsa_experiment::{Computed, Plan, RunObserver, Stage, estimate};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::signals::{self, Phase};
use super::{count, duration, warn};
use crate::args::{Common, ProgressMode};

/// The time until the first line, and between lines.
const FIRST_LINE: Duration = Duration::from_secs(10);
const BETWEEN_LINES: Duration = Duration::from_secs(30);

/// The program's observer of an experiment: shows progress, and tells signals which phase it is in.
pub struct Watcher<'a> {
    common: &'a Common,
    began: Instant,
    /// Prints the lines about the plan before it runs.
    planned: &'a (dyn Fn(&Plan) + Sync),
    plan: OnceLock<Arc<Plan>>,
    shown: OnceLock<ProgressDisplay>,
    comparing: Mutex<Option<Comparing>>,
}

enum ProgressDisplay {
    Bar(ProgressBar),
    Lines(Box<Mutex<Lines>>),
    Nothing,
}

struct Lines {
    name: String,
    began: Instant,
    next: Instant,
    /// Local steps of an earlier run.
    found: f64,
    /// Completed local steps, including an earlier run's.
    done: f64,
    total: f64,
    /// Whether runs may end early, at a target.
    may_end_early: bool,
}

/// Local steps per unit of the bar.
const UNIT: f64 = 1000.0;

impl<'a> Watcher<'a> {
    /// An observer of work that began at `began`; it calls `planned` with the plan before the runs.
    pub fn new(common: &'a Common, began: Instant, planned: &'a (dyn Fn(&Plan) + Sync)) -> Self {
        Self { common, began, planned, plan: OnceLock::new(), shown: OnceLock::new(), comparing: Mutex::new(None) }
    }

    /// Hides the progress from now on.
    pub fn hide(&self) {
        self.comparing.lock().expect("no panics under the lock").take();
    }

    fn print(&self, line: &str) {
        match self.shown.get() {
            Some(ProgressDisplay::Bar(bar)) => bar.suspend(|| warn(line)),
            _ => warn(line),
        }
    }
}

impl ProgressDisplay {
    /// The progress of a plan's runs.
    fn new(plan: &Plan, common: &Common) -> Self {
        let on_terminal = std::io::stderr().is_terminal();
        match common.progress {
            _ if common.quiet => ProgressDisplay::Nothing,
            ProgressMode::None => ProgressDisplay::Nothing,
            ProgressMode::Bar => ProgressDisplay::Bar(bar(plan)),
            ProgressMode::Auto if on_terminal => ProgressDisplay::Bar(bar(plan)),
            ProgressMode::Auto | ProgressMode::Plain => {
                let began = Instant::now();
                let (name, total) = (plan.experiment.id.clone(), total_work(plan));
                ProgressDisplay::Lines(Box::new(Mutex::new(Lines {
                    name,
                    began,
                    next: began + FIRST_LINE,
                    found: 0.0,
                    done: 0.0,
                    total,
                    may_end_early: ends_early(plan),
                })))
            }
        }
    }
}

/// The comparison of results with theory, which can take as long as the runs.
struct Comparing(Option<ProgressBar>);

impl Comparing {
    /// Shows a spinner on a terminal; elsewhere a line, if the command has already taken long enough for lines.
    fn begin(plan: &Plan, progress: ProgressMode, quiet: bool, began: Instant) -> Self {
        let on_terminal = std::io::stderr().is_terminal();
        let what = format!("{}: comparing with theory, and drawing", plan.experiment.id);
        match progress {
            _ if quiet => Self(None),
            ProgressMode::None => Self(None),
            ProgressMode::Auto | ProgressMode::Bar if on_terminal => {
                let spinner = ProgressBar::new_spinner().with_message(what);
                spinner.enable_steady_tick(Duration::from_millis(200));
                Self(Some(spinner))
            }
            _ => {
                if began.elapsed() > FIRST_LINE || estimate::comparing(plan) > FIRST_LINE.as_secs_f64() {
                    warn(what);
                }
                Self(None)
            }
        }
    }
}

/// The progress of a tuning: the current candidate, and the spent share of the budget.
pub struct Tunings(Option<ProgressBar>);

impl Tunings {
    /// A bar of the budget (seconds) on a terminal, nothing elsewhere. A search may end long before its budget.
    pub fn begin(id: &str, budget: f64, progress: ProgressMode, quiet: bool) -> Self {
        let is_shown = match progress {
            ProgressMode::Auto => std::io::stderr().is_terminal(),
            ProgressMode::Bar => true,
            _ => false,
        };
        Self((is_shown && !quiet).then(|| {
            let bar = ProgressBar::with_draw_target(Some(budget.ceil() as u64), ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template("{prefix} [{bar:20}] {pos} of at most {len} s on one core · {elapsed} · {wide_msg}");
            bar.set_style(style.expect("a valid template").progress_chars("=> "));
            bar.set_prefix(id.to_string());
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        }))
    }

    /// Shows the next step of the search, and the spent seconds of the budget.
    pub fn show(&self, what: &str, spent: f64) {
        if let Some(bar) = &self.0 {
            bar.set_position(spent as u64);
            bar.set_message(what.to_string());
        }
    }
}

impl Drop for Tunings {
    fn drop(&mut self) {
        self.0.iter().for_each(ProgressBar::finish_and_clear);
    }
}

impl Drop for Comparing {
    fn drop(&mut self) {
        self.0.iter().for_each(ProgressBar::finish_and_clear);
    }
}

/// The current computation of `theory` on a terminal, on the line after the printed ones.
pub struct Predicting(Option<ProgressBar>);

impl Predicting {
    /// Shows a spinner if standard error is a terminal.
    pub fn begin(of: &str) -> Self {
        let spinner = std::io::stderr().is_terminal().then(|| {
            let spinner = ProgressBar::new_spinner().with_prefix(quoted(of));
            let style = ProgressStyle::with_template("{spinner} {prefix}: {wide_msg} {elapsed}").expect("a valid template");
            spinner.set_style(style);
            spinner.enable_steady_tick(Duration::from_millis(200));
            spinner
        });
        Self(spinner)
    }

    /// Names the next computation.
    pub fn about(&self, what: &str) {
        self.0.iter().for_each(|spinner| spinner.set_message(quoted(what.trim_end())));
    }

    /// Prints while the spinner is hidden.
    pub fn hidden(&self, print: impl FnOnce()) {
        match &self.0 {
            Some(spinner) => spinner.suspend(print),
            None => print(),
        }
    }
}

impl Drop for Predicting {
    fn drop(&mut self) {
        self.0.iter().for_each(ProgressBar::finish_and_clear);
    }
}

/// Whether runs may end before their last round: the time left is then a bound.
fn ends_early(plan: &Plan) -> bool {
    plan.cells.iter().any(|cell| !cell.run.stop.is_never())
}

fn bar(plan: &Plan) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some((total_work(plan) / UNIT).ceil() as u64), ProgressDrawTarget::stderr());
    bar.set_message(plan.experiment.id.clone());
    let template = if ends_early(plan) {
        "{msg} [{bar:30}] {percent:>3}% of the most rounds · {elapsed} · at most {eta} left"
    } else {
        "{msg} [{bar:30}] {percent:>3}% · {elapsed} · {eta} left"
    };
    let style = ProgressStyle::with_template(template).expect("a valid template");
    bar.set_style(style.progress_chars("=> "));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

impl Lines {
    /// The next line, if it is due.
    fn due(&mut self, now: Instant) -> Option<String> {
        if now < self.next {
            return None;
        }
        self.next = now + BETWEEN_LINES;
        let spent = (now - self.began).as_secs_f64();
        let share = (self.done / self.total).clamp(0.0, 1.0);
        let left = match self.done - self.found {
            ours if ours > 0.0 => {
                let left = duration(spent * (self.total - self.done).max(0.0) / ours);
                if self.may_end_early {
                    format!("at most {}: a run ends at its target", left.trim_start_matches("about "))
                } else {
                    format!("{left} left")
                }
            }
            _ => "time left not known yet".into(),
        };
        let of = if self.may_end_early { " of the most rounds" } else { "" };
        Some(format!("{}: {:.0}%{of} after {}, {left}", self.name, 100.0 * share, duration(spent)))
    }
}

impl RunObserver for Watcher<'_> {
    fn stage(&self, stage: Stage<'_>) {
        match stage {
            Stage::Building => log::info!("building the problems"),
            Stage::Planned(plan) => {
                let (problems, points, methods) = (plan.fields.len(), plan.points.len(), plan.cells.len());
                log::info!("{}, {}, {}", count(problems, "problem"), count(points, "point"), count(methods, "method"));
                (self.planned)(plan);
                self.plan.get_or_init(|| Arc::clone(plan));
            }
            Stage::Running => {
                signals::enter(Phase::Working);
                let plan = self.plan.get().expect("it was planned");
                self.shown.get_or_init(|| ProgressDisplay::new(plan, self.common));
            }
            Stage::Ended => {
                if let Some(ProgressDisplay::Bar(bar)) = self.shown.get() {
                    bar.finish_and_clear();
                }
                signals::enter(Phase::Ending);
            }
            Stage::Comparing => {
                log::info!("comparing with theory, and drawing the figure");
                let plan = self.plan.get().expect("it was planned");
                let comparing = Comparing::begin(plan, self.common.progress, self.common.quiet, self.began);
                *self.comparing.lock().expect("no panics under the lock") = Some(comparing);
            }
            _ => {}
        }
    }

    fn computing(&self, what: Computed, k: usize, n: usize) {
        log::debug!("{} {k} of {n}", what.text());
        if let Some(Comparing(Some(spinner))) = &*self.comparing.lock().expect("no panics under the lock") {
            let id = &self.plan.get().expect("it was planned").experiment.id;
            let of = if n > 1 { format!(" {k} of {n}") } else { String::new() };
            spinner.set_message(format!("{id}: {}{of}", what.text()));
        }
    }

    fn advanced(&self, steps: f64) {
        let Some(shown) = self.shown.get() else { return };
        match shown {
            ProgressDisplay::Bar(bar) => bar.inc((steps / UNIT).round() as u64),
            ProgressDisplay::Lines(lines) => {
                let line = {
                    let mut lines = lines.lock().expect("no panics under the lock");
                    lines.done += steps;
                    lines.due(Instant::now())
                };
                line.iter().for_each(|line| self.print(line));
            }
            ProgressDisplay::Nothing => {}
        }
    }

    fn found(&self, steps: f64) {
        let Some(shown) = self.shown.get() else { return };
        match shown {
            ProgressDisplay::Bar(bar) => {
                bar.inc((steps / UNIT).round() as u64);
                bar.reset_eta();
            }
            ProgressDisplay::Lines(lines) => {
                let mut lines = lines.lock().expect("no panics under the lock");
                lines.found += steps;
                lines.done += steps;
            }
            ProgressDisplay::Nothing => {}
        }
    }

    fn ended(&self, cell: usize, result: &SeedResult) {
        let planned = &self.plan.get().expect("it was planned").cells[cell];
        let rounds = result.rows.last().map_or(0, |row| row.round);
        log::info!("{}, seed {}: {} after {rounds} rounds", planned.method.label, result.seed, result.outcome(&planned.run.stop).name());
    }

    fn warned(&self, what: &str) {
        self.print(&format!("warning: {what}"));
        log::warn!("{what}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_at_intervals_and_say_how_long_it_takes() {
        let began = Instant::now();
        let mut lines =
            Lines { name: "x".into(), began, next: began + FIRST_LINE, found: 0.0, done: 25.0, total: 100.0, may_end_early: false };
        assert_eq!(lines.due(began + Duration::from_secs(9)), None);
        assert_eq!(lines.due(began + Duration::from_secs(20)).unwrap(), "x: 25% after about 20 s, about 60 s left");
        lines.done = 50.0;
        assert_eq!(lines.due(began + Duration::from_secs(49)), None);
        assert_eq!(lines.due(began + Duration::from_secs(50)).unwrap(), "x: 50% after about 50 s, about 50 s left");
        // The time of this run excludes steps of an earlier run.
        lines.found = 40.0;
        assert_eq!(lines.due(began + Duration::from_secs(90)).unwrap(), "x: 50% after about 2 min, about 8 min left");
        lines.may_end_early = true;
        let line = lines.due(began + Duration::from_secs(130)).unwrap();
        assert_eq!(line, "x: 50% of the most rounds after about 2 min, at most 11 min: a run ends at its target");
    }
}
