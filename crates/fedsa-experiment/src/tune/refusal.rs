//! Why nothing reaches the target, and what would help.

use fedsa::error::{Error, ErrorCode};
use fedsa::message::MAX_ROUNDS;
use fedsa_theory::tune::{self, SearchChoice, SearchResult};

use super::pilots::Pilots;
use super::{SIMPLER_SHARE, THEORY_SHARE, Tuning};
use crate::numbers::{self, number};

impl Tuning {
    /// The error if no choice reaches the target.
    pub(super) fn refusal(&self, found: &SearchResult, pilots: &Pilots) -> Error {
        if let Some(early) = self.nothing_tried(found, pilots) {
            return early;
        }
        let wanted = numbers::typed(self.target.mse);
        let most = numbers::rounds(self.target.max_rounds);
        let mut help: Vec<String> = Vec::new();
        // First choices that theory knows to reach the target finally, then pilots, then floors.
        let (parts, what) = if let Some((choice, error)) = self.nearest(found, pilots) {
            let parts = self.floor_parts(&choice);
            let of_floor = parts.map_or(String::new(), |parts| format!("; {}", of_parts(parts)));
            let settings = self.choice_text(&choice);
            let more = self.rounds_needed(&choice).map_or_else(
                || "more rounds (`max_rounds`), for smaller steps".into(),
                |rounds| format!("`max_rounds = {rounds}`, which these settings need, or less with others"),
            );
            help.push(more);
            (
                parts,
                format!(
                    "no choice that was tried reaches {wanted} within {most}: near it is {settings}, with the error {}{of_floor}",
                    number(error)
                ),
            )
        } else if let Some((tried, floor)) = found.lowest_floor() {
            let parts = self.floor_parts(&tried.choice);
            let of_floor = parts.map_or_else(|| format!("its floor is {}", number(floor)), of_parts);
            let settings = self.choice_text(&tried.choice);
            (
                parts,
                format!(
                    "no choice that was tried reaches {wanted}, in any number of rounds: the lowest floor is that of {settings}; {of_floor}"
                ),
            )
        } else {
            return self.no_level(found, pilots);
        };
        help.extend(self.what_helps(found, pilots, parts));
        if help.is_empty() {
            help.push("a larger target".into());
        }
        Error::new("target", what, help.join("; ")).coded(ErrorCode::TargetNotReached)
    }

    /// The error if no choice was tried: no method works over the link, or the budget is too short for one.
    fn nothing_tried(&self, found: &SearchResult, pilots: &Pilots) -> Option<Error> {
        let reasons: Vec<String> = (0..self.candidates.len())
            .filter_map(|family| {
                let why = found.prices[family].as_ref().err()?;
                Some(format!("{}: {why}", self.candidates[family].name()))
            })
            .collect();
        if reasons.len() == self.candidates.len() {
            let what = format!("no method works over this link: {}", reasons.join("; "));
            return Some(Error::new("methods", what, "other methods or codecs").coded(ErrorCode::NoCandidate));
        }
        if !(found.tried.is_empty() && pilots.tried.is_empty()) {
            return None;
        }
        let limit = self.limit(is_late(found, pilots));
        if let Some(least) = pilots.too_short.filter(|least| found.is_cut && *least < (1.0 - THEORY_SHARE) * self.options.budget) {
            let what = format!(
                "{} was spent on theory, which knows no choice yet: nothing is left for a pilot run, of about {}",
                limit.text,
                seconds(least)
            );
            return Some(Error::new("budget", what, "a larger one, or fewer `methods` and `codecs`").coded(ErrorCode::OutOfRange));
        }
        if let Some(least) = pilots.too_short {
            let what = format!("{} s are too short for a single pilot run, of about {}", number(self.options.budget), seconds(least));
            // Theory takes its share first.
            let enough = least / (1.0 - THEORY_SHARE - SIMPLER_SHARE);
            return Some(Error::new("budget", what, format!("at least {}", seconds(enough))).coded(ErrorCode::OutOfRange));
        }
        if !found.is_cut && !pilots.is_late {
            return None;
        }
        let what = format!("{} is too short for a single choice{}", limit.text, if pilots.is_late { "" } else { " by theory" });
        Some(Error::new(limit.key(), what, "a larger one, or fewer `methods` and `codecs`").coded(ErrorCode::OutOfRange))
    }

    /// The choice whose error after the most rounds is nearest to the target, and that error.
    fn nearest(&self, found: &SearchResult, pilots: &Pilots) -> Option<(SearchChoice, f64)> {
        let slow = found.too_slow().map(|(tried, _, error)| (tried.choice, error));
        // Lower ends of intervals over few seeds may be below the target by luck, so that the error at the end of a run counts.
        let by_pilots = pilots.tried.iter().filter(|piloted| !piloted.measured.diverged).filter_map(|piloted| {
            let error = piloted.measured.mean_over(0.8, 1.0);
            (error.is_finite() && error > self.target.mse).then_some((piloted.choice, error))
        });
        slow.into_iter().chain(by_pilots).min_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// The error if neither an error nor a floor above the target is known.
    fn no_level(&self, found: &SearchResult, pilots: &Pilots) -> Error {
        if pilots.tried.iter().any(|piloted| !piloted.measured.diverged) {
            let (wanted, most) = (numbers::typed(self.target.mse), numbers::rounds(self.target.max_rounds));
            let what =
                format!("no choice is confirmed to reach {wanted} within {most}: with few seeds some did, and with more they did not");
            return Error::new("target", what, "a larger target or `budget`, or a codec with more bits").coded(ErrorCode::TargetNotReached);
        }
        if pilots.exhausted || found.is_cut {
            let limit = self.limit(is_late(found, pilots));
            let what = format!("{} ended the search when only choices whose errors grow had been tried", limit.text);
            return Error::new(limit.key(), what, "a larger one").coded(ErrorCode::TargetNotReached);
        }
        let what = "no step size is stable: the errors of all choices grow";
        Error::new("", what, "other methods, fewer `local_steps`, or a larger sampling.batch").coded(ErrorCode::NoCandidate)
    }

    /// How to lower an error with these parts, bias and noise, or to continue the search.
    fn what_helps(&self, found: &SearchResult, pilots: &Pilots, parts: Option<(f64, f64)>) -> Vec<String> {
        let mut help: Vec<String> = Vec::new();
        match parts {
            Some((bias, noise)) if bias > noise && bias > 0.01 * self.target.mse => {
                help.push("fewer local steps, or scafflsa or fedhsa, which have no bias over a clear link".into());
            }
            Some((_, noise)) if noise > 0.01 * self.target.mse => {
                help.push("a larger sampling.batch, or more agents, which lower the noise".into());
            }
            _ => {}
        }
        if self.candidates.iter().any(|candidates| !candidates.link.codec.is_exact()) {
            help.push("a codec with more bits".into());
        }
        if pilots.exhausted || found.is_cut {
            help.push(format!("a larger {}, which ended the search early", self.limit(is_late(found, pilots)).setting));
        }
        help
    }

    /// The squared bias and the noise of a choice's floor.
    fn floor_parts(&self, choice: &SearchChoice) -> Option<(f64, f64)> {
        self.forecast(choice)?.floor().ok().map(|floor| (floor.bias_sq(), floor.noise))
    }

    /// The rounds that a choice needs, by theory.
    fn rounds_needed(&self, choice: &SearchChoice) -> Option<u64> {
        let course = tune::course(&self.forecast(choice)?, &self.start, self.target.mse, MAX_ROUNDS).ok()?;
        course.outcome.ok().map(|reach| reach.rounds)
    }
}

/// Whether a time limit ended the search.
fn is_late(found: &SearchResult, pilots: &Pilots) -> bool {
    found.is_late || pilots.is_late
}

/// The squared bias and the noise of a floor, in words.
fn of_parts((bias, noise): (f64, f64)) -> String {
    format!("its floor is {}: bias {}, noise {}", number(bias + noise), number(bias), number(noise))
}

fn seconds(x: f64) -> String {
    format!("{} s", number(x.max(0.001)))
}
