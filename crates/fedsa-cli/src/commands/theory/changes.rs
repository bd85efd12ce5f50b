//! What would change a floor.

use fedsa_experiment::numbers::{number, percent, radius};
use fedsa_experiment::theory::{ReasonCode, SettingChange};
use fedsa_theory::predict::Limits;

use super::text::row;

/// The table of changed settings: a row each, with the floor, its parts, and the factor by which a round shrinks the error.
pub fn table(changes: &[SettingChange], limits: &Limits) -> Vec<Vec<String>> {
    let rest = if limits.mixing.is_some() { "noise and mixing" } else { "noise" };
    let mut table = vec![row(&["change", "floor", "bias^2", rest, "error per round", "against now"])];
    table.extend(changes.iter().map(|change| change_row(change, limits)));
    table
}

fn change_row(change: &SettingChange, now: &Limits) -> Vec<String> {
    let shrinks = change.radius.map_or(String::new(), radius);
    match &change.floor {
        Ok(found) => {
            let bias = match found.bias {
                None => "0".to_string(),
                Some(bias) if bias <= found.rounding => format!("below {}", number(found.rounding)),
                Some(bias) => number(bias),
            };
            row(&[&change.what, &number(found.floor), &bias, &number(found.rest), &shrinks, &against(found.floor, now.floor)])
        }
        Err(reason) if reason.code == ReasonCode::Diverges => row(&[&change.what, "", "", "", "", "diverges"]),
        Err(reason) if reason.code == ReasonCode::TakesTooLong => {
            row(&[&change.what, "", "", "", &shrinks, "not computed: takes too long"])
        }
        Err(reason) => row(&[&change.what, "", "", "", &shrinks, &reason.text]),
    }
}

/// The change with the lowest floor, if that is lower than now.
pub fn best<'a>(changes: &'a [SettingChange], limits: &Limits) -> Option<(&'a SettingChange, f64)> {
    let lower = changes.iter().filter_map(|change| Some((change, change.floor.as_ref().ok()?.floor)));
    lower.filter(|(_, floor)| *floor < 0.995 * limits.floor).min_by(|a, b| a.1.total_cmp(&b.1))
}

/// A floor against another one.
pub fn against(floor: f64, now: f64) -> String {
    let ratio = floor / now;
    match ratio {
        // Of rounding.
        x if (x - 1.0).abs() < 5e-4 => "the same".into(),
        0.0 => "none is left".into(),
        x if x < 0.1 => format!("{} times lower", number(1.0 / x)),
        x if x < 1.0 => format!("{} lower", percent_of(1.0 - x)),
        x if x < 2.0 => format!("{} higher", percent_of(x - 1.0)),
        x => format!("{} times higher", number(x)),
    }
}

/// A share with two digits.
fn percent_of(share: f64) -> String {
    percent(format!("{share:.1e}").parse().unwrap_or(share))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floors_are_compared_in_words() {
        for (floor, text) in [
            (1.0, "the same"),
            (0.5, "50% lower"),
            (0.01, "100 times lower"),
            (1.234, "23% higher"),
            (3.0, "3 times higher"),
            (0.0, "none is left"),
        ] {
            assert_eq!(against(floor, 1.0), text);
        }
    }
}
