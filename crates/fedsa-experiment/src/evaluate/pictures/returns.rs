//! Predicted values against the Monte-Carlo returns of held-out episodes.

use std::collections::BTreeMap;

use crate::made::count;
use crate::numbers::thousands;
use crate::picture::Picture;
use fedsa::error::Result;
use fedsa_figure::{Chart, Panel, PlottedCurve, Style};
use fedsa_problems::features::FeatureMap;
use fedsa_problems::logs::held_out;
use fedsa_problems::logs::log::Log;
use fedsa_problems::logs::replay::TraceRule;

use super::range_of;

/// The largest number of agents with a panel each.
const MAX_PANELS: usize = 12;
/// The largest number of points that are drawn.
const MAX_POINTS: usize = 2000;
/// The largest number of groups of transitions, and the least number of transitions in one.
const GROUPS: usize = 10;
const FEWEST: usize = 5;
/// The smallest share of the transitions in a group.
const SMALLEST: f64 = 0.02;

/// A held-out transition: the predicted value of its state, and the return that followed.
#[derive(Debug, Clone, Copy)]
struct Outcome {
    predicted: f64,
    returned: f64,
    /// The number of the episode in the panel.
    episode: usize,
}

/// The picture of predicted values and returns of the held-out episodes that terminated, for one log per agent. `None` if no episode
/// terminated, or no prediction is finite.
///
/// # Errors
/// When the logs' episodes are not usable.
pub fn returns(held: &[Log], map: &FeatureMap, rule: TraceRule, theta: &[f64]) -> Result<Option<Picture>> {
    let mut agents = Vec::new();
    let mut cut = 0;
    for log in held {
        let (outcomes, without) = outcomes(log, map, rule, theta)?;
        cut += without;
        agents.push((log.name.clone(), outcomes));
    }
    let has_ratios = rule.ratios && held.iter().any(|log| log.ratio.is_some());
    agents.retain(|(_, outcomes)| !outcomes.is_empty());
    let total: usize = agents.iter().map(|(_, outcomes)| outcomes.len()).sum();
    if total == 0 {
        return Ok(None);
    }
    if agents.len() > MAX_PANELS {
        let mut all: Vec<Outcome> = Vec::new();
        let name = format!("all {} agents", agents.len());
        for (_, outcomes) in agents {
            let before = all.iter().map(|outcome| outcome.episode + 1).max().unwrap_or(0);
            all.extend(outcomes.into_iter().map(|outcome| Outcome { episode: before + outcome.episode, ..outcome }));
        }
        agents = vec![(name, all)];
    }
    let stride = total.div_ceil(MAX_POINTS);
    let drawn = agents.iter().map(|(_, outcomes)| outcomes.len().div_ceil(stride)).sum::<usize>();
    let panels = agents.iter().map(|(name, outcomes)| panel(name, outcomes, stride)).collect();
    let share = match stride {
        1 => String::new(),
        _ => format!(" ({} of {}, evenly taken)", thousands(drawn as f64), thousands(total as f64)),
    };
    let mut notes = Vec::new();
    if cut > 0 {
        notes.push(format!("{} of episodes that did not terminate have no returns.", count(cut, "held-out transition")));
    }
    if has_ratios {
        notes.push("Returns are weighted per decision by the importance ratios.".into());
    }
    let caption = format!(
        "Faint dots: held-out transitions{share}, the predicted value of the state and the discounted rewards that followed. Points: \
         means of groups of transitions with similar predictions; bars: two standard errors over episodes on either side. \
         Predictions are right on average where bars reach the diagonal."
    );
    let title = "Predicted values and returns of held-out episodes".to_string();
    Ok(Some(Picture::Chart(Chart { title, panels, caption, notes, ..Chart::default() })))
}

/// The transitions of an agent that have a return and a finite prediction, and the number of those without a return.
fn outcomes(log: &Log, map: &FeatureMap, rule: TraceRule, theta: &[f64]) -> Result<(Vec<Outcome>, usize)> {
    let returns = fedsa_evaluate::held_out::returns(log, rule)?;
    let mut phi = vec![0.0; map.len()];
    let mut outcomes = Vec::new();
    for (episode, rows) in held_out::episodes(log)?.into_iter().enumerate() {
        for row in rows {
            let Some(returned) = returns[row] else { continue };
            map.eval(log.state(row), &mut phi);
            let predicted = phi.iter().zip(theta).map(|(x, w)| x * w).sum::<f64>();
            if predicted.is_finite() && returned.is_finite() {
                outcomes.push(Outcome { predicted, returned, episode });
            }
        }
    }
    Ok((outcomes, returns.iter().filter(|returned| returned.is_none()).count()))
}

fn panel(name: &str, outcomes: &[Outcome], stride: usize) -> Panel {
    let drawn = || outcomes.iter().step_by(stride);
    let cloud = PlottedCurve {
        label: "transition".into(),
        color: 0,
        x: drawn().map(|outcome| outcome.predicted).collect(),
        y: drawn().map(|outcome| outcome.returned).collect(),
        style: Style::Cloud,
        ..PlottedCurve::default()
    };
    let groups = groups(outcomes);
    let shown = cloud.x.iter().copied().chain(groups.iter().map(|group| group.predicted));
    let (low, high) = range_of(shown).expect("predictions are finite");
    let diagonal = PlottedCurve {
        label: "return = prediction".into(),
        x: vec![low, high],
        y: vec![low, high],
        style: Style::Reference,
        ..PlottedCurve::default()
    };
    let edge = |sign: f64| groups.iter().map(|group| group.returned + sign * 2.0 * group.error.unwrap_or(f64::NAN)).collect();
    let means = PlottedCurve {
        label: "mean of a group".into(),
        color: 1,
        x: groups.iter().map(|group| group.predicted).collect(),
        y: groups.iter().map(|group| group.returned).collect(),
        band: Some((edge(-1.0), edge(1.0))),
        style: Style::Points,
    };
    let mut episodes: Vec<usize> = outcomes.iter().map(|outcome| outcome.episode).collect();
    episodes.dedup();
    Panel {
        title: name.into(),
        x_label: "predicted value v(s)".into(),
        y_label: "return G".into(),
        curves: vec![cloud, diagonal, means],
        notes: vec![format!("{} of {}", count(outcomes.len(), "transition"), count(episodes.len(), "episode"))],
        ..Panel::default()
    }
}

/// Transitions with similar predictions: their means, and the standard error of the mean return.
struct Group {
    predicted: f64,
    returned: f64,
    /// `None` for a single episode.
    error: Option<f64>,
}

/// Groups by equal parts of the range of the predictions, without the hundredth at either end; parts with few transitions
/// are joined.
fn groups(outcomes: &[Outcome]) -> Vec<Group> {
    let mut sorted = outcomes.to_vec();
    sorted.sort_by(|a, b| a.predicted.total_cmp(&b.predicted));
    let n = sorted.len();
    let least = FEWEST.max((SMALLEST * n as f64) as usize);
    let (low, high) = (sorted[n / 100].predicted, sorted[n - 1 - n / 100].predicted);
    let ends = (1..GROUPS).map(|part| low + (high / GROUPS as f64 - low / GROUPS as f64) * part as f64);
    let mut ends: Vec<usize> = ends.map(|end| sorted.partition_point(|outcome| outcome.predicted < end)).collect();
    ends.push(n);
    let mut groups = Vec::new();
    let mut first = 0;
    for end in ends {
        if end == n || (end - first >= least && n - end >= least) {
            groups.push(group(&sorted[first..end]));
            first = end;
        }
    }
    groups
}

fn group(outcomes: &[Outcome]) -> Group {
    let n = outcomes.len() as f64;
    let mean = |of: fn(&Outcome) -> f64| outcomes.iter().map(|outcome| of(outcome) / n).sum::<f64>();
    let returned = mean(|outcome| outcome.returned);
    // Transitions of an episode are dependent, episodes are independent: the standard error of a ratio of two sums over episodes.
    let mut misses: BTreeMap<usize, f64> = BTreeMap::new();
    for outcome in outcomes {
        *misses.entry(outcome.episode).or_default() += (outcome.returned - returned) / n;
    }
    let episodes = misses.len() as f64;
    let error = (misses.len() > 1).then(|| (misses.values().map(|x| x * x).sum::<f64>() * episodes / (episodes - 1.0)).sqrt());
    Group { predicted: mean(|outcome| outcome.predicted), returned, error }
}

#[cfg(test)]
mod tests {
    use fedsa_problems::features::{FeatureSpec, Ranges};

    use super::*;

    /// Episodes of states 3, 2, 1, with reward -1 a step; the last is cut after two steps.
    fn chain(name: &str, times: usize) -> Log {
        let episodes = (0..=times).flat_map(|episode| if episode == times { 2..4 } else { 1..4 }.rev().map(move |s| (episode, s)));
        let rows: Vec<(usize, u8)> = episodes.collect();
        Log {
            name: name.into(),
            columns: vec!["s_0".into()],
            states: rows.iter().map(|(_, s)| f64::from(*s)).collect(),
            rewards: vec![-1.0; rows.len()],
            next: rows.iter().map(|(_, s)| f64::from(s - 1)).collect(),
            done: rows.iter().map(|(_, s)| *s == 1).collect(),
            truncated: None,
            breaks: None,
            actions: None,
            episode: Some(rows.iter().map(|(episode, _)| *episode as i64).collect()),
            ratio: None,
        }
    }

    fn picture(held: &[Log], theta: f64) -> Option<Chart> {
        let map = FeatureMap::new(&FeatureSpec::Identity { bias: false }, &["s_0".into()], &Ranges::new()).unwrap();
        match returns(held, &map, TraceRule { gamma: 1.0, lambda: 0.0, ratios: true, clip: None }, &[theta]).unwrap() {
            Some(Picture::Chart(chart)) => Some(chart),
            _ => None,
        }
    }

    #[test]
    fn points_are_predictions_and_returns_of_episodes_that_terminated() {
        let chart = picture(&[chain("a", 2), chain("b", 0), chain("c", 1)], -2.0).unwrap();
        assert_eq!(chart.panels.iter().map(|panel| panel.title.as_str()).collect::<Vec<_>>(), ["a", "c"]);
        let [cloud, diagonal, means] = &chart.panels[0].curves[..] else { panic!("three curves") };
        assert_eq!((&cloud.x[..3], &cloud.y[..3]), (&[-6.0, -4.0, -2.0][..], &[-3.0, -2.0, -1.0][..]));
        assert_eq!((diagonal.x.as_slice(), diagonal.y.as_slice()), (&[-6.0, -2.0][..], &[-6.0, -2.0][..]));
        assert_eq!((means.x.as_slice(), means.y.as_slice()), (&[-4.0][..], &[-2.0][..]));
        assert_eq!(chart.panels[0].notes, ["6 transitions of 2 episodes"]);
        assert_eq!(chart.notes, ["6 held-out transitions of episodes that did not terminate have no returns."]);
        assert!(picture(&[chain("b", 0)], 1.0).is_none() && picture(&[chain("a", 2)], f64::NAN).is_none());
    }

    #[test]
    fn the_error_of_a_group_is_over_episodes() {
        let outcome = |returned: f64, episode| Outcome { predicted: 0.0, returned, episode };
        // Two episodes with means 1 and 3: each transition but the first of an episode repeats it.
        let all: Vec<Outcome> = (0..50).map(|_| outcome(1.0, 0)).chain((0..50).map(|_| outcome(3.0, 1))).collect();
        let Group { returned, error, .. } = group(&all);
        assert!((returned - 2.0).abs() < 1e-12 && (error.unwrap() - 1.0).abs() < 1e-12);
        assert!(group(&all[..50]).error.is_none());
    }

    #[test]
    fn many_agents_share_a_panel_and_many_points_are_thinned() {
        let held: Vec<Log> = (0..60).map(|agent| chain(&format!("agent {agent}"), 20)).collect();
        let chart = picture(&held, -1.0).unwrap();
        let [panel] = &chart.panels[..] else { panic!("one panel") };
        assert_eq!((panel.title.as_str(), &panel.notes[..]), ("all 60 agents", &["3600 transitions of 1200 episodes".to_string()][..]));
        assert_eq!(panel.curves[0].x.len(), 1800);
        assert!(chart.caption.contains("(1,800 of 3,600, evenly taken)"), "{}", chart.caption);
        // The chain has three states, and so three predictions.
        let means = &panel.curves[2];
        assert_eq!(means.x.len(), 3);
        assert!(means.x.iter().zip(&means.y).zip([-3.0, -2.0, -1.0]).all(|((x, y), mean)| (x - mean).abs() + (y - mean).abs() < 1e-9));
    }
}
