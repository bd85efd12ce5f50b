//! What a target costs: rounds, samples and bits until the mean-square error is at a level, or what keeps it above.

use fedsa::error::Result;
use fedsa_experiment::config::schema::ControlsStart;
use fedsa_experiment::numbers::{number, thousands, two_digits};
use fedsa_experiment::plan::ResolvedStart;
use fedsa_experiment::{Plan, Predictor};
use fedsa_theory::cost::RoundCost;
use fedsa_theory::exact_mse::InitialControls;
use fedsa_theory::predict::{Obstacle, Reach};
use serde_json::{Value as Json, json};

use super::text::sentence;

/// A target of a method.
pub struct Target {
    /// The level.
    mse: f64,
    reach: Result<Reach>,
    cost: Result<RoundCost>,
    /// Whether the start is random.
    is_random: bool,
}

/// The cost of a round of a cell.
pub fn cost(plan: &Plan, cell: usize) -> Result<RoundCost> {
    let planned = &plan.cells[cell];
    RoundCost::new(plan.field(cell), &*planned.method.settings, &planned.uplink)
}

impl Target {
    /// The target `mse` for a cell.
    pub fn of(plan: &Plan, predictor: &Predictor<'_>, cell: usize, mse: f64) -> Self {
        let planned = &plan.cells[cell];
        let controls = if planned.method.controls == ControlsStart::Ideal { InitialControls::Root } else { InitialControls::Zero };
        let start = match &planned.start {
            ResolvedStart::Fixed(theta) => Some(&theta[..]),
            ResolvedStart::Normal => None,
        };
        let reach = plan.forecast(cell).reach(mse, start, &controls, &predictor.floors_of(cell));
        Self { mse, reach, cost: cost(plan, cell), is_random: start.is_none() }
    }

    /// For programs.
    pub fn json(&self) -> Json {
        let mut out = json!({ "mse": self.mse });
        match &self.reach {
            Err(e) => out["why"] = json!(e.to_string()),
            Ok(Reach::AtStart(error)) => {
                out["reached"] = json!(true);
                out["rounds"] = json!(0.0);
                out["at_start"] = json!(error);
            }
            Ok(Reach::Never(obstacle)) => {
                out["reached"] = json!(false);
                let (name, value) = match obstacle {
                    Obstacle::Bias(bias) => ("bias", Some(*bias)),
                    Obstacle::Noise(floor, _) => ("noise", Some(*floor)),
                    Obstacle::Diverges => ("diverges", None),
                };
                out["obstacle"] = json!({ "kind": name, "level": value });
            }
            Ok(Reach::After(after)) => {
                out["reached"] = json!(true);
                out["rounds"] = json!(after.rounds);
                out["accuracy"] = after.curve.map_or(json!({ "status": "radius" }), |accuracy| json!(accuracy));
                if let Ok(cost) = &self.cost {
                    out["exchanges"] = json!(after.rounds * cost.exchanges);
                    out["samples"] = json!(after.rounds * cost.samples);
                    out["bits_up"] = json!(after.rounds * cost.bits_up);
                    out["bits_down"] = json!(after.rounds * cost.bits_down);
                }
            }
        }
        out
    }

    /// For people.
    pub fn text(&self) -> String {
        let goal = number(self.mse);
        match &self.reach {
            Err(e) => format!("Whether a mean-square error of {goal} is reached is {}.", e.what),
            Ok(Reach::AtStart(error)) => {
                let mean = if self.is_random { ", on average over random starts" } else { "" };
                format!("The start has the mean-square error {} already{mean}, at most {goal}: no round is needed.", number(*error))
            }
            Ok(Reach::Never(Obstacle::Diverges)) => format!("A mean-square error of {goal} is not reached: the method diverges."),
            Ok(Reach::Never(Obstacle::Bias(bias))) => format!(
                "A mean-square error of {goal} is not reached: the squared bias {} alone is larger, and more rounds, agents or samples \
                 do not change it.",
                number(*bias)
            ),
            Ok(Reach::Never(Obstacle::Noise(floor, bias))) => format!(
                "A mean-square error of {goal} is not reached: the floor is {}, and the noise is in the way (the squared bias is {}). A \
                 smaller step, more agents or larger batches lower it.",
                number(*floor),
                number(*bias)
            ),
            Ok(Reach::After(after)) => {
                let (about, count) = match after.curve {
                    Some(_) => ("", after.rounds),
                    None => ("about ", two_digits(after.rounds)),
                };
                let how = match after.curve {
                    Some(accuracy) => format!("read from the predicted curve ({accuracy})"),
                    None if after.is_cut => {
                        "from the radii, because the predicted curve takes too long to follow; a transient may add to it".to_string()
                    }
                    None if self.is_random => "from the radii, for a start with components N(0, 1)".to_string(),
                    None => "from the radii; a transient may add to it".to_string(),
                };
                let rounds = if count == 1.0 { "round" } else { "rounds" };
                let cost = match &self.cost {
                    Ok(cost) => format!(" That is {about}{}.", amounts(cost, count)),
                    Err(e) => format!(" {}", sentence(&format!("its samples and bits are {}", e.what))),
                };
                format!("A mean-square error of {goal} is first reached after {about}{} {rounds}, {how}.{cost}", thousands(count))
            }
        }
    }
}

/// What some rounds cost.
pub fn amounts(cost: &RoundCost, rounds: f64) -> String {
    let samples = if cost.samples > 0.0 { format!(", {} of all agents", counted(rounds * cost.samples, "sample")) } else { String::new() };
    let bits = format!("{} bits up and {} bits down", amount(rounds * cost.bits_up), amount(rounds * cost.bits_down));
    format!("{}{samples}, {bits}", counted(rounds * cost.exchanges, "exchange"))
}

/// A count with its noun.
fn counted(n: f64, noun: &str) -> String {
    format!("{} {noun}{}", amount(n), if n == 1.0 { "" } else { "s" })
}

/// A count: in full up to a million, then with three digits.
fn amount(n: f64) -> String {
    if n < 1e6 { thousands(n.round()) } else { format!("{n:.2e}") }
}
