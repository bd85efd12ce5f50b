//! The stable steps of a method, and why larger ones are unstable.

use fedsa_experiment::numbers::{self, number, rounded_down, rounded_up, typed};
use fedsa_experiment::theory::{KnownOrReason, MethodTheory};
use fedsa_theory::predict::{Forecast, Regime, Spot, StableSet, StableStep, StepVerdict, TOO_SLOW};

use super::text::{Page, row, sentence};
use fedsa_experiment::stability::stable_text;

/// The section.
pub fn section(page: &mut Page, known: &MethodTheory, of: &Forecast) {
    let outlook = &known.outlook;
    page.heading("Stability");
    let square = outlook.mean_square.as_ref().and_then(|square| square.as_ref().ok().map(|x| numbers::radius(*x)));
    let rho = outlook.radius.as_ref().map_or("not known".into(), |rho| numbers::radius(*rho));
    page.paragraph(&match known.regime {
        Regime::MeanDiverges => format!("This step is UNSTABLE: the radius of a noiseless round is {rho}. {}", mode(of)),
        Regime::MeanSquareDiverges => format!(
            "This step is stable in the mean only (radius {rho}): noise in the matrices makes the mean square DIVERGE, its radius is {}.",
            square.unwrap_or_default()
        ),
        Regime::TooSlow => sentence(TOO_SLOW),
        Regime::Unknown => sentence(&format!("It is {}", outlook.radius.as_ref().err().map_or("not known", |e| &e.what))),
        Regime::Stable | Regime::InMean => match (&outlook.mean_square, square) {
            (_, Some(square)) => {
                format!("This step is stable: the radius of a noiseless round is {rho}, that of the second moments {square}.")
            }
            (None, _) => format!("This step is stable: the radius of a noiseless round is {rho}."),
            (Some(_), None) => {
                let why = outlook.mean_square.as_ref().and_then(|square| square.as_ref().err().map(|e| e.what.clone()));
                format!("This step is stable in the mean, with radius {rho}. In the mean square it is {}.", why.unwrap_or_default())
            }
        },
    });
    if let Some(found) = &known.stability.largest {
        page.paragraph(&largest(found, known, of));
    }
    windows(page, known, of);
}

/// The largest stable step, and the failure above it.
fn largest(found: &KnownOrReason<StableStep>, known: &MethodTheory, of: &Forecast) -> String {
    match found {
        Ok(stable) if stable.step.is_infinite() => "Every step is stable: none is too large.".into(),
        Ok(stable) => {
            let ratio = of.step_size().map_or(String::new(), |eta| match stable.step / eta {
                x if x >= 1.0 => format!(", {} times the present one", number(x)),
                _ => ", below the present one".into(),
            });
            format!("With these local steps it is {}{ratio}. {}", stable_text(&Ok(*stable)), above(known, of)).trim_end().to_string()
        }
        Err(reason) => sentence(&format!("The largest stable step is {}", reason.text)),
    }
}

/// The failure beyond the largest stable step.
fn above(known: &MethodTheory, of: &Forecast) -> String {
    match known.stability.above {
        Some((eta, Spot { verdict: StepVerdict::MeanDiverges, radius, .. })) => {
            let of = of.clone().with_step(eta);
            format!("At {} the mean diverges: the radius of a noiseless round is {}. {}", typed(eta), numbers::radius(radius), mode(&of))
        }
        Some((eta, Spot { verdict: StepVerdict::MeanSquareDiverges, mean_square: Some(square), .. })) => format!(
            "At {} the mean still converges, and the mean square does not: the radius of the second moments is {}. The noise of the \
             matrices grows with the distance from theta*, and at this step adds more in a round than the round removes.",
            typed(eta),
            numbers::radius(square)
        ),
        _ => String::new(),
    }
}

/// The direction that grows, in words.
fn mode(of: &Forecast) -> String {
    match of.leading_eigenvalue() {
        Ok(Some((re, im))) if im > 1e-9 * re.abs() => {
            format!("The leading eigenvalues of the round are {} +- {} i: the error turns while it grows.", number(re), number(im))
        }
        Ok(Some((re, _))) if re < 0.0 => {
            format!("The leading eigenvalue of the round is {}: a round overshoots, and the error changes its sign every time.", number(re))
        }
        Ok(Some((re, _))) => format!("The leading eigenvalue of the round is {}: the error grows along one direction.", number(re)),
        Ok(None) | Err(_) => String::new(),
    }
}

/// The stable steps for some numbers of local steps.
fn windows(page: &mut Page, known: &MethodTheory, of: &Forecast) {
    let own = of.local_steps().round().max(1.0) as u64;
    match &known.stability.sets {
        None => {}
        Some(Err(reason)) => page.paragraph(&sentence(&format!("Stable steps for other numbers of local steps are {}", reason.text))),
        Some(Ok(sets)) => {
            let in_mean = |set: &StableSet| !of.is_noiseless() && !set.in_mean_square;
            let which = if sets.iter().all(in_mean) { ", in the mean" } else { "" };
            page.paragraph(&format!("Stable steps by number of local steps{which}:"));
            let row_of = |set: &StableSet| interval_row(set, own, which.is_empty() && in_mean(set));
            page.table(&sets.iter().map(row_of).collect::<Vec<_>>());
            cut_short(page, sets, &known.stability.asked);
            if sets.iter().any(|set| set.intervals.len() > 1) {
                page.paragraph(
                    "Stable steps need not form one interval: between these windows a smaller step diverges, and a larger one does not.",
                );
            }
        }
    }
}

/// A note if the scan of steps was coarser or shorter than usual.
fn cut_short(page: &mut Page, sets: &[StableSet], hs: &[u64]) {
    let finest = 2f64.powf(1.0 / 15.5);
    if let Some(set) = sets.first().filter(|set| set.ratio > finest) {
        page.paragraph(&format!(
            "To end in time the scan looks at steps a factor of {} apart: narrower windows may be missed.",
            number(set.ratio)
        ));
    }
    let left_out: Vec<String> = hs.iter().filter(|h| sets.iter().all(|set| set.local_steps != **h)).map(|h| format!("H = {h}")).collect();
    if !left_out.is_empty() {
        page.paragraph(&format!("Left out, because they take too long: {}.", left_out.join(", ")));
    }
    for set in sets.iter().filter(|set| set.is_cut) {
        page.paragraph(&format!(
            "The scan for H = {} was cut short at {}, because it takes too long.",
            set.local_steps,
            number(set.looked_to)
        ));
    }
}

/// The intervals for a number of local steps; `is_mean` marks those that were computed for the mean only.
fn interval_row(set: &StableSet, own: u64, is_mean: bool) -> Vec<String> {
    let text = |(low, high): &(f64, f64)| match (*low, *high) {
        (0.0, high) if high.is_infinite() => format!("up to {} at least", number(set.looked_to)),
        (0.0, high) => format!("up to {}", rounded_down(high)),
        (low, high) if high.is_infinite() => format!("from {} on", rounded_up(low)),
        (low, high) => format!("{} to {}", rounded_up(low), rounded_down(high)),
    };
    let all: Vec<String> = set.intervals.iter().map(text).collect();
    let mark = if set.local_steps == own { " (as in the file)" } else { "" };
    let kind = if is_mean { ", in the mean" } else { "" };
    let shown = if all.is_empty() { "none".to_string() } else { format!("{}{kind}", all.join("; ")) };
    row(&[&format!("H = {}{mark}", set.local_steps), &shown])
}
