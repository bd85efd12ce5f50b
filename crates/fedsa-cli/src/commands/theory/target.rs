//! A target in words.

use fedsa_experiment::numbers::{number, thousands, two_digits};
use fedsa_experiment::theory::MethodTarget;
use fedsa_theory::cost::RoundCost;
use fedsa_theory::predict::{Obstacle, Reach};

use super::text::sentence;

/// A target in words.
pub fn text(target: &MethodTarget) -> String {
    let goal = number(target.mse);
    match &target.reach {
        Err(reason) => format!("Whether a mean-square error of {goal} is reached is {}.", reason.text),
        Ok(Reach::AtStart(error)) => {
            let mean = if target.is_random { ", on average over random starts" } else { "" };
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
                None if target.is_random => "from the radii, for a start with components N(0, 1)".to_string(),
                None => "from the radii; a transient may add to it".to_string(),
            };
            let rounds = if count == 1.0 { "round" } else { "rounds" };
            let cost = match &target.cost {
                Ok(cost) => format!(" That is {about}{}.", amounts(cost, count)),
                Err(reason) => format!(" {}", sentence(&format!("its samples and bits are {}", reason.text))),
            };
            format!("A mean-square error of {goal} is first reached after {about}{} {rounds}, {how}.{cost}", thousands(count))
        }
    }
}
/// The cost of some rounds.
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
