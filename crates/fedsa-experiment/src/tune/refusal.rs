//! Why nothing reaches the target, and what would help.

use fedsa::error::BadInput;
use fedsa::tune::{Found, Miss};

use super::Tuning;
use super::pilots::Pilots;
use crate::numbers::{self, number};

impl Tuning {
    /// The error where no choice reaches the target.
    pub(super) fn refusal(&self, found: &Found, pilots: &Pilots) -> BadInput {
        let wanted = numbers::typed(self.target.mse);
        let reasons: Vec<String> = (0..self.candidates.len())
            .filter_map(|family| {
                let why = found.prices[family].as_ref().err()?;
                Some(format!("{}: {}", self.candidates[family].name(), why.what))
            })
            .collect();
        if reasons.len() == self.candidates.len() {
            return BadInput::new(
                "--methods",
                format!("no method works over this link: {}", reasons.join("; ")),
                "other methods or codecs",
            );
        }
        if let Some(least) = pilots.too_short.filter(|_| pilots.tried.is_empty() && found.tried.is_empty()) {
            let what = format!("{} s are too short for a single pilot run, of about {}", number(self.options.budget), seconds(least));
            return BadInput::new("--budget", what, format!("at least {}", seconds(least)));
        }
        // The lowest error that was seen, by theory and by pilots.
        let by_theory = found.lowest().map(|(tried, error)| (tried.choice, error, tried.course.outcome.err()));
        let by_pilots = pilots.tried.iter().filter(|piloted| !piloted.measured.diverged).filter_map(|piloted| {
            let error = piloted.measured.path.iter().map(|(_, mean, _)| *mean).fold(f64::INFINITY, f64::min);
            error.is_finite().then_some((piloted.choice, error, None))
        });
        let lowest = by_theory.into_iter().chain(by_pilots).min_by(|a, b| a.1.total_cmp(&b.1));
        let Some((choice, error, miss)) = lowest else {
            let what = "no step size is stable: the errors of all choices grow";
            let help = "other methods, fewer local steps (--local-steps), or a larger sampling.batch";
            return BadInput::new("", what, help);
        };
        let settings = format!(
            "{}, step size {}, {} local step{}",
            self.family(&choice),
            numbers::typed(choice.step_size),
            choice.local_steps,
            if choice.local_steps == 1 { "" } else { "s" }
        );
        let problem = self.problem.as_ref().expect("no plan has it");
        let family = self.candidates[choice.family].family();
        let floor = family.forecast(problem.field(), &choice, &self.start).and_then(|forecast| forecast.floor()).ok();
        let of_floor = floor.as_ref().map_or(String::new(), |floor| {
            format!("; its floor is {}: bias {}, noise {}", number(floor.mse()), number(floor.bias_sq()), number(floor.noise))
        });
        let most = numbers::thousands(self.target.most_rounds as f64);
        let what =
            format!("no choice reaches {wanted} within {most} rounds: the lowest error is {}, of {settings}{of_floor}", number(error));
        let mut help: Vec<&str> = Vec::new();
        let is_slow = matches!(miss, Some(Miss::Slow { .. })) || miss.is_none();
        let is_biased = floor.as_ref().is_some_and(|floor| floor.bias_sq() > floor.noise);
        if is_biased {
            help.push("fewer local steps, or scafflsa or fedhsa, which have no bias over a clear link");
        } else if floor.as_ref().is_some_and(|floor| floor.noise > 0.0) {
            help.push("a larger sampling.batch, or more agents, which lower the noise");
        }
        if is_slow || !is_biased {
            help.push("more rounds (--max-rounds), for smaller steps");
        }
        if !self.candidates[choice.family].link.codec.is_exact() {
            help.push("a codec with more bits");
        }
        if pilots.exhausted {
            help.push("a larger --budget, which ended the pilot runs");
        }
        BadInput::new("--target-mse", what, help.join("; "))
    }
}

fn seconds(x: f64) -> String {
    format!("{} s", number(x.max(0.001)))
}
