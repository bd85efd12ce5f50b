//! Answers of a tuning against grids of runs, on 50 combinations of problem, sampling, link and target that are drawn by seed.
//!
//! Every point of a grid is run, with the same seeds, as long as it may still be the best: until it costs 1.3 times the best so far. A
//! grid whose points all run to the end takes many times longer; its time is estimated from the seconds that a round of each point has
//! taken. The points that are cheapest in these runs, and the answer, are then compared by their exact mean-square error where it is
//! known, computed round by round. `docs/src/evidence/tuning.md` has what came of it. `FEDSA_STUDY=0..10` runs a part.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use fedsa::cancel::Cancel;
use fedsa::error::Error;
use fedsa::kernel::Isa;
use fedsa::random::{Purpose, Stream, stream};
use fedsa_experiment::RunObserver;
use fedsa_experiment::config::{Document, Experiment};
use fedsa_experiment::execute::{Earlier, execute};
use fedsa_experiment::tune::{Evidence, Searched, TuneControl, TuneSettings, Tuning};
use fedsa_experiment::{Executed, Plan, RunControl};
use fedsa_theory::cost::Goal;

const COMBINATIONS: u64 = 50;
/// The most local steps, of tunings and grids.
const MAX_LOCAL_STEPS: u64 = 32;
const MAX_ROUNDS: u64 = 3000;
/// The rounds of a point's first run.
const FEW_ROUNDS: u64 = 40;
/// The seeds of a grid's runs, and of those of its best points.
const SEEDS: u64 = 16;
const FRESH: u64 = 800;
/// The grid's best points that are compared with the answer.
const BEST: usize = 6;

/// One of 50.
struct Combination {
    text: String,
    about: String,
    goal: Goal,
    /// The target over the error at the start.
    share: f64,
}

fn pick<'a, T>(stream: &mut Stream, of: &'a [T]) -> &'a T {
    &of[(stream.bits() % of.len() as u64) as usize]
}

/// Combination number k: the first draw whose problem has one root.
fn combination(k: u64) -> Combination {
    (0..)
        .map(|draw| drawn(k, draw))
        .find(|drawn| plan_of(drawn, "kind = \"fedlsa\"\nstep_size = 0.1\nlocal_steps = 1", 1, 0..1).is_ok())
        .expect("a problem")
}

fn drawn(k: u64, draw: usize) -> Combination {
    let seed = k + COMBINATIONS * draw as u64;
    let mut draw = stream(2024, Purpose::Fresh, k, draw);
    let draw = &mut draw;
    let (agents, features, states) = (2 + draw.bits() % 4, 2 + draw.bits() % 4, 6 + draw.bits() % 5);
    let gamma = *pick(draw, &[0.5, 0.8, 0.9]);
    let sampling = *pick(draw, &["iid", "iid", "iid", "mean", "markov"]);
    let batch = if sampling == "iid" { *pick(draw, &[1, 4]) } else { 1 };
    let link = *pick(
        draw,
        &[
            ("clear", ""),
            ("clear", ""),
            ("erasure 0.7", "uplink = { media = [{ kind = \"erasure\", success = 0.7 }] }"),
            ("over the air", "uplink = { media = [{ kind = \"over-the-air\", receiver_noise = 0.05 }] }"),
            ("quantised 6", "uplink = { codec = { kind = \"quantised\", bits = 6 } }"),
        ],
    );
    let goals = if sampling == "mean" { vec![Goal::Rounds, Goal::Bits] } else { vec![Goal::Rounds, Goal::Bits, Goal::Samples] };
    let goal = *pick(draw, &goals);
    let share = *pick(draw, &[0.05, 0.01, 0.003]);
    let text = format!(
        "id = \"c{k}\"\n[problem]\nkind = \"garnet\"\nagents = {agents}\nstates = {states}\nfeatures = {features}\ngamma = {gamma}\nseed = {seed}\n\
         [sampling]\nkind = \"{sampling}\"\nbatch = {batch}\n[run]\nrounds = 10\n[[method]]\nkind = \"fedlsa\"\nstep_size = 0.1\nlocal_steps = 1\n{}\n",
        link.1
    );
    let law = if batch > 1 { format!("{sampling}, batch {batch}") } else { sampling.to_string() };
    Combination { about: format!("N = {agents}, d = {features}, gamma = {gamma} | {law} | {}", link.0), text, goal, share }
}

struct Silent;
impl RunObserver for Silent {}

/// The mean error of a method's runs after each recorded round, and the counts.
struct Curve {
    /// Round, mean error, cost by each goal.
    points: Vec<(f64, [f64; 3])>,
    diverged: bool,
}

fn plan_of(combination: &Combination, settings: &str, rounds: u64, seeds: std::ops::Range<u64>) -> Result<Plan, String> {
    let (before, method) = combination.text.split_once("[run]").unwrap();
    let link = method.lines().find(|line| line.starts_with("uplink")).unwrap_or_default();
    let seeds: Vec<String> = seeds.map(|seed| seed.to_string()).collect();
    let text = format!(
        "{before}[run]\nrounds = {rounds}\nseeds = [{}]\nrecord = {{ every = 1 }}\n[[method]]\n{settings}\n{link}\n",
        seeds.join(", ")
    );
    let experiment = Experiment::read(Document::parse("grid.toml", &text).map_err(|e| e.what)?).map_err(|e| e.what)?;
    Plan::new(experiment, Path::new(""), Isa::best(), &HashMap::new()).map_err(|e| e.what)
}

/// Runs one point of a grid.
fn run(plan: &Plan) -> Curve {
    let cancel = Cancel::new();
    let control =
        RunControl { cancel: &cancel, folder: None, every: Duration::MAX, earlier: &Earlier::default(), observer: &Silent, in_turn: false };
    let Ok(Executed::Done(results)) = execute(plan, &control) else { panic!("it runs") };
    let seeds = &results.cells[0];
    let shortest = seeds.iter().map(|seed| seed.rows.len()).min().unwrap();
    let n = seeds.len() as f64;
    let points = (0..shortest).map(|i| {
        let mean = |of: &dyn Fn(&fedsa_experiment::results::Recorded) -> f64| seeds.iter().map(|seed| of(&seed.rows[i])).sum::<f64>() / n;
        let bits = mean(&|row| (row.ledger.bits_up + row.ledger.bits_down) as f64);
        (mean(&|row| row.metric("mse").unwrap()), [mean(&|row| row.round as f64), bits, mean(&|row| row.ledger.samples as f64)])
    });
    Curve { points: points.collect(), diverged: seeds.iter().any(|seed| seed.diverged.is_some()) }
}

fn index(goal: Goal) -> usize {
    [Goal::Rounds, Goal::Bits, Goal::Samples].iter().position(|other| *other == goal).unwrap()
}

impl Curve {
    /// The cost when the error is at most the target and stays there on average.
    fn cost(&self, target: f64, goal: Goal) -> Option<(u64, f64)> {
        let stays = |at: &usize| {
            let rest = &self.points[*at..];
            rest.iter().map(|(mse, _)| mse).sum::<f64>() / rest.len() as f64 <= target
        };
        let below = (0..self.points.len()).filter(|at| !self.diverged && self.points[*at].0 <= target);
        below.into_iter().find(stays).map(|at| (at as u64, self.points[at].1[index(goal)]))
    }
}

/// The rounds and the cost of settings by their exact error, round by round, or by runs of fresh seeds.
fn compared(combination: &Combination, settings: &str, rounds: u64, target: f64) -> Option<f64> {
    let plan = plan_of(combination, settings, rounds, 5000..5001).ok()?;
    let forecast = plan.forecast(0);
    let seeds = if forecast.is_noiseless() { 1 } else { FRESH };
    if forecast.is_noiseless() || forecast.knows_curve_to(rounds).is_err() || forecast.curve_accuracy().ok()?.warning().is_some() {
        let plan = plan_of(combination, settings, rounds, 5000..5000 + seeds).ok()?;
        return run(&plan).cost(target, combination.goal).map(|(_, cost)| cost);
    }
    if forecast.floor().ok()?.mse() > target {
        return None;
    }
    let all: Vec<u64> = (0..=rounds).collect();
    let start = vec![0.0; plan.field(0).dim()];
    let curve = forecast.curve(&start, &fedsa_theory::exact_mse::InitialControls::Zero, &all).ok()?;
    let reached = curve.iter().position(|point| point.mse() <= target)?;
    // The counts of as many rounds.
    let plan = plan_of(combination, settings, reached.max(1) as u64, 5000..5008).ok()?;
    run(&plan).points.last().map(|(_, cost)| cost[index(combination.goal)])
}

#[test]
#[ignore = "runs grids of 50 combinations, for minutes"]
fn answers_are_near_the_best_of_a_grid() {
    let part = std::env::var("FEDSA_STUDY").unwrap_or_else(|_| format!("0..{COMBINATIONS}"));
    let (from, to) = part.split_once("..").expect("A..B");
    let (from, to): (u64, u64) = (from.parse().unwrap(), to.parse().unwrap());
    let mut table = String::from(
        "| | problem | sampling | link | target | cost | answer | by | over the grid's best | time over the cut grid's | time over the full grid's |\n|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    let (mut ratios, mut times) = (Vec::new(), Vec::new());
    for k in from..to {
        let combination = combination(k);
        let (line, ratio, time) = study(k, &combination);
        println!("{line}");
        writeln!(table, "{line}").unwrap();
        ratios.extend(ratio);
        times.push(time);
    }
    let median = |values: &mut Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    println!("{table}");
    let worst = ratios.iter().copied().fold(0.0, f64::max);
    let [mut cut, mut full] = [0, 1].map(|i| times.iter().map(|time| time[i]).collect::<Vec<f64>>());
    let (cut, full) = (median(&mut cut), median(&mut full));
    println!("cost: median {:.3}, worst {worst:.3}; time: median {cut:.3} of the cut grid, {full:.4} of the full one", median(&mut ratios));
    assert!(median(&mut ratios) <= 1.05 && worst <= 1.2);
}

/// The points of a grid of settings with steps up to `top` that reach the target: cost, settings and rounds; and the time of a grid whose
/// points run for the most rounds.
fn grid(combination: &Combination, top: f64, target: f64) -> (Vec<(f64, String, u64)>, f64) {
    let mut grid: Vec<(f64, String, u64)> = Vec::new();
    let mut full_grid = 0.0;
    for method in ["fedlsa", "scafflsa", "fedhsa"] {
        for local_steps in [1u64, 2, 4, 8, 16, 32] {
            for i in 0..10 {
                let step = top / 2f64.powf(0.75 * f64::from(i));
                // What makes up for lost messages, where some are lost.
                for alpha in if combination.text.contains("erasure") { vec![1.0, 1.4] } else { vec![1.0] } {
                    let settings =
                        format!("kind = \"{method}\"\nstep_size = {step:?}\nlocal_steps = {local_steps}\nglobal_step_size = {alpha:?}");
                    let least = grid.iter().map(|(cost, ..)| *cost).fold(f64::INFINITY, f64::min);
                    let (reached, of_round) = reached(combination, &settings, target, least);
                    grid.extend(reached.map(|(cost, rounds)| (cost, settings, rounds)));
                    full_grid += of_round * MAX_ROUNDS as f64;
                }
            }
        }
    }
    (grid, full_grid)
}

/// The cost at which settings reach the target and their rounds until then, unless they cost far more than `least`; and the time of a round.
fn reached(combination: &Combination, settings: &str, target: f64, least: f64) -> (Option<(f64, u64)>, f64) {
    // Few rounds first: most points are decided by then.
    let mut rounds = FEW_ROUNDS;
    let mut of_round = 0.0;
    while let Ok(plan) = plan_of(combination, settings, rounds, 0..SEEDS) {
        let began = Instant::now();
        let curve = run(&plan);
        of_round = began.elapsed().as_secs_f64() / curve.points.len() as f64;
        let spent = curve.points.last().map_or(f64::INFINITY, |(_, cost)| cost[index(combination.goal)]);
        if let Some((reached, cost)) = curve.cost(target, combination.goal) {
            // That it stays there is seen in as many rounds again.
            if rounds >= (2 * reached + 20).min(MAX_ROUNDS) {
                return (Some((cost, reached)), of_round);
            }
            rounds = (2 * reached + 20).min(MAX_ROUNDS);
            continue;
        }
        // What has cost more than the best by now is not the best.
        if curve.diverged || spent > 1.3 * least || rounds == MAX_ROUNDS {
            break;
        }
        let paid = 1.35 * least / spent * rounds as f64;
        rounds = (6 * rounds).min(MAX_ROUNDS).min(if paid.is_finite() { paid.ceil() as u64 } else { MAX_ROUNDS });
    }
    (None, of_round)
}

fn study(k: u64, combination: &Combination) -> (String, Option<f64>, [f64; 2]) {
    let experiment = Experiment::read(Document::parse("c.toml", &combination.text).unwrap()).unwrap();
    let at_start = {
        let plan = Plan::new(experiment.clone(), Path::new(""), Isa::best(), &HashMap::new()).unwrap();
        fedsa::linalg::norm_sq(plan.field(0).root().unwrap())
    };
    let target: f64 = format!("{:.2e}", combination.share * at_start).parse().unwrap();
    let options = TuneSettings {
        objective: combination.goal,
        max_local_steps: MAX_LOCAL_STEPS,
        max_rounds: MAX_ROUNDS,
        budget: 3600.0,
        ..TuneSettings::new(target)
    };
    let began = Instant::now();
    let tuning = Tuning::new(&experiment, Path::new(""), Isa::best(), &options, &Cancel::never()).unwrap();
    let memo = tuning.memo();
    let cancel = Cancel::new();
    let mut control = TuneControl { cancel: &cancel, memo, keep: &mut |_| Ok(()), began: &mut |_| {} };
    let searched = tuning.search(&mut control);
    let took = began.elapsed().as_secs_f64();
    let head = format!("| {k} | {} | {:.1}% | {}", combination.about, 100.0 * combination.share, combination.goal.name());

    // The grid, all of it.
    let began = Instant::now();
    let top = {
        let plan = Plan::new(experiment, Path::new(""), Isa::best(), &HashMap::new()).unwrap();
        fedsa_theory::tune::largest_step(plan.field(0))
    };
    let (mut grid, full_grid) = grid(combination, top, target);
    let grid_took = began.elapsed().as_secs_f64();
    grid.sort_by(|a, b| a.0.total_cmp(&b.0));
    let rounds = |reached: u64| 2 * reached + 20;
    let best = grid.iter().take(BEST).filter_map(|(_, settings, reached)| compared(combination, settings, rounds(*reached), target));
    let best = best.fold(f64::INFINITY, f64::min);
    let time = [took / grid_took, took / full_grid];
    let times = format!("{:.3} | {:.4}", time[0], time[1]);
    match searched {
        Ok(Searched::Done(tuned)) => {
            let cost = tuned.cost.of(combination.goal);
            let by = match tuned.evidence {
                Evidence::Theory(accuracy) => accuracy.to_string(),
                Evidence::Pilots { seeds, .. } => format!("pilots, {seeds} seeds"),
            };
            let ratio = cost / best;
            let line = format!("{head} | {} | {by} | {ratio:.3} | {times} |", tuning.text_of(&tuned));
            (line, Some(ratio).filter(|ratio| ratio.is_finite()), time)
        }
        Ok(Searched::Interrupted) => unreachable!("nobody interrupts"),
        Err(e) => {
            let e = Error::new("", e.what, e.help);
            assert!(!best.is_finite(), "refused although the grid reaches it for {best}: {e}");
            (format!("{head} | refused: {} | | | {times} |", e.what), None, time)
        }
    }
}
