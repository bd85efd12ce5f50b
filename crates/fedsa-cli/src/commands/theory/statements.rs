//! What the theorems of the sources say about a method, beside the exact value.

use fedsa_experiment::Plan;
use fedsa_experiment::numbers::{about, number, typed};
use fedsa_experiment::plan::ResolvedStart;
use fedsa_theory::bounds::{Assumption, Choice, Period};
use fedsa_theory::predict::Statement;
use serde_json::{Value as Json, json};

use super::text::{Page, row, sentence};

/// The statements about a cell after the rounds of the file, or why there are none.
fn of_cell(plan: &Plan, cell: usize, problem: &Json) -> Result<Vec<Statement>, String> {
    let planned = &plan.cells[cell];
    let ResolvedStart::Fixed(theta_0) = &planned.start else { return Err("the start is random".into()) };
    let tau = mixing_time(problem).ok_or("the mixing time of the samples is not known")?;
    plan.forecast(cell).statements(theta_0, planned.run.rounds, tau).map_err(|e| e.what)
}

/// The mixing time of the slowest chain in total variation at 1/4; 1 for independent samples.
pub fn mixing_time(problem: &Json) -> Option<f64> {
    match problem.get("mixing") {
        None => Some(1.0),
        Some(mixing) => Some(mixing["mixing_times"][0]["total_variation"].as_f64()?.max(1.0)),
    }
}

/// The settings that corollaries choose for a target; none where they do not apply.
fn choices(plan: &Plan, cell: usize, target: f64) -> Vec<Choice> {
    let ResolvedStart::Fixed(theta_0) = &plan.cells[cell].start else { return Vec::new() };
    plan.forecast(cell).corollaries(theta_0, target).unwrap_or_default()
}

/// For programs.
pub fn json(plan: &Plan, cell: usize, problem: &Json) -> Json {
    match of_cell(plan, cell, problem) {
        Ok(all) => {
            let rounds = plan.cells[cell].run.rounds;
            let one = |statement: &Statement| {
                let mut entry = json!(statement);
                entry["holds"] = json!(statement.holds());
                entry["rounds"] = json!(rounds);
                entry
            };
            all.iter().map(one).collect()
        }
        Err(why) => json!(why),
    }
}

/// For programs: the settings that corollaries choose for a target.
pub fn choices_json(plan: &Plan, cell: usize, target: f64) -> Json {
    json!(choices(plan, cell, target))
}

/// For people.
pub fn section(page: &mut Page, plan: &Plan, cell: usize, problem: &Json, target: Option<f64>) {
    let statements = of_cell(plan, cell, problem);
    if statements.as_ref().is_ok_and(Vec::is_empty) {
        return;
    }
    page.heading("What the theorems of the papers say");
    match statements {
        Err(why) => {
            page.paragraph(&sentence(&format!("Their numbers are not known: {}", why.trim_start_matches("not known in closed form: "))))
        }
        Ok(all) => all.iter().for_each(|statement| one(page, statement, plan.cells[cell].run.rounds)),
    }
    let choices = target.map_or(Vec::new(), |target| choices(plan, cell, target));
    if !choices.is_empty() {
        page.paragraph("Their corollaries choose for the target, from the constants alone:");
        let mut rows = vec![row(&["corollary", "step size", "local steps", "rounds"])];
        rows.extend(choices.iter().map(|choice| {
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
