//! Statements of the sources' theorems about a method, and the exact values.

use fedsa_experiment::numbers::{about, number, typed};
use fedsa_experiment::theory::Theorems;
use fedsa_theory::bounds::{Assumption, Period};
use fedsa_theory::predict::Statement;

use super::text::{Page, row, sentence};

/// The section.
pub fn section(page: &mut Page, theorems: &Theorems) {
    if theorems.statements.as_ref().is_ok_and(Vec::is_empty) {
        return;
    }
    page.heading("What the theorems of the papers say");
    match &theorems.statements {
        Err(reason) => {
            let why = reason.text.trim_start_matches("not known in closed form: ");
            page.paragraph(&sentence(&format!("Their numbers are not known: {why}")));
        }
        Ok(all) => all.iter().for_each(|statement| one(page, statement, theorems.rounds)),
    }
    if !theorems.choices.is_empty() {
        page.paragraph("Their corollaries choose for the target, from the constants alone:");
        let mut rows = vec![row(&["corollary", "step size", "local steps", "rounds"])];
        rows.extend(theorems.choices.iter().map(|choice| {
            let steps = match choice.period {
                Period::Fixed(h) => h.to_string(),
                Period::Random(p) => format!("a talk with probability {}", number(p)),
            };
            row(&[choice.statement, &number(choice.step_size), &steps, &about(choice.rounds)])
        }));
        page.table(&rows);
        page.paragraph("fedsa tune chooses from the exact error instead, and needs far fewer.");
    }
}

fn one(page: &mut Page, statement: &Statement, rounds: u64) {
    let Statement { statement: name, of, value, exact, .. } = statement;
    let parts: Vec<String> = statement.terms.iter().map(|term| format!("{} {}", term.name, number(term.value))).collect();
    let parts = parts.join(", ");
    let against = match exact {
        Some(exact) if *exact > 0.0 => format!("exactly it is {}, {} times less", number(*exact), number(value / exact)),
        Some(_) => "exactly it is 0".into(),
        None => "its exact value is not known".into(),
    };
    page.paragraph(&match (statement.holds(), statement.is_shape) {
        (false, _) => {
            let failing = listed(statement.failing());
            let conditions = if statement.failing().count() == 1 { "a condition of it fails" } else { "conditions of it fail" };
            format!("{name} does not apply, because {conditions}: {failing}.")
        }
        (true, true) => {
            let exact = exact.map_or("not known".into(), number);
            format!(
                "{name}: {of} is made of these parts, up to factors that the source does not state: {parts}. The exact floor is {exact}."
            )
        }
        (true, false) => {
            let after = if rounds == 1 { "1 round".to_string() } else { format!("{} rounds", typed(rounds as f64)) };
            format!("{name}: after {after} {of} is at most {} ({parts}); {against}.", number(*value))
        }
    });
    if !statement.constants.is_empty() {
        let all: Vec<String> = statement.constants.iter().map(|one| format!("{} = {}", one.name, number(one.value))).collect();
        page.paragraph(&format!("Its constants: {}.", all.join("; ")));
    }
    if statement.holds() && !statement.assumptions.is_empty() {
        page.paragraph(&format!("Its conditions hold: {}.", listed(statement.assumptions.iter())));
    }
}

/// Conditions with the numbers that decide them.
fn listed<'a>(conditions: impl Iterator<Item = &'a Assumption>) -> String {
    conditions.map(|condition| format!("{} ({})", condition.name, condition.text)).collect::<Vec<_>>().join("; ")
}
