//! Settings that would change a floor.

use fedsa_experiment::numbers::{number, radius};
use fedsa_experiment::theory::{ReasonCode, SettingChange, against};
use fedsa_theory::predict::Limits;

use super::text::row;

/// The table of changed settings, one row each: the floor, its parts, and the factor by which a round shrinks the error.
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
