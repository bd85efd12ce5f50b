//! The stability of a plan's methods: in words, and as a refusal.

use fedsa::cancel::Cancel;
use fedsa::error::{Error, Result};
use fedsa::method::Drift;
use fedsa_theory::predict::{Regime, StableStep, TOO_SLOW};

use super::plan::{Plan, PlannedCell};
use crate::numbers;

/// The stability of a cell in words.
pub fn text(plan: &Plan, cell: usize) -> String {
    if let Some(reason) = &plan.cells[cell].refused {
        return format!("refused, not run: {reason}");
    }
    let outlook = plan.forecast(cell).outlook();
    let rho = match &outlook.radius {
        Err(e) => return format!("stability {}", e.what),
        Ok(rho) => format!("the radius of a noiseless round is {}", numbers::radius(*rho)),
    };
    let step = || stable_step_text(plan, cell);
    match (outlook.regime(), &outlook.mean_square) {
        (Regime::TooSlow, _) => TOO_SLOW.to_string(),
        (Regime::MeanDiverges, _) => format!("UNSTABLE: {rho}; {}", step()),
        (Regime::MeanSquareDiverges, Some(Ok(square))) => {
            let square = numbers::radius(*square);
            format!("stable in the mean only: {rho}, but noise makes the mean square DIVERGE, its radius is {square}; {}", step())
        }
        (_, None) => format!("stable: {rho}"),
        (Regime::InMean, Some(Ok(_))) => format!("stable in the mean: {rho}; that of the mean square is 1 to rounding"),
        (_, Some(Ok(square))) => format!("stable: {rho}, that of the mean square {}", numbers::radius(*square)),
        (_, Some(Err(e))) => format!("stable in the mean: {rho}; in the mean square {}", e.what),
    }
}

/// The largest stable step size of a cell in words.
pub fn stable_step_text(plan: &Plan, cell: usize) -> String {
    stable_text(&plan.forecast(cell).largest_stable_step())
}

/// The text if only the limit of the mean is known.
const NOT_COMPUTED: &str = "the limit of the mean square, which noise can make smaller, was not computed";

/// The largest stable step size in words, rounded down so that the printed value is stable.
pub fn stable_text(found: &Result<StableStep>) -> String {
    match found {
        Ok(stable) if stable.step.is_infinite() && stable.in_mean_square => "stable with any step_size".into(),
        Ok(stable) if stable.step.is_infinite() => format!("stable with any step_size in the mean; {NOT_COMPUTED}"),
        Ok(stable) if stable.in_mean_square => format!("stable up to step_size = {}", numbers::rounded_down(stable.step)),
        Ok(stable) => {
            let step = numbers::rounded_down(stable.step);
            format!("stable up to step_size = {step} in the mean; {NOT_COMPUTED}")
        }
        Err(e) => format!("no stable step found: {}", e.what),
    }
}

/// Refuses settings that are known to be unstable, unless they are expected to diverge, part of a sweep, or forced.
///
/// # Errors
/// When there is such a setting; the help names a stable step. When it is cancelled.
pub fn refuse_unstable(plan: &Plan, force: bool, cancel: &Cancel) -> Result<(), Error> {
    if force || plan.is_swept() {
        return Ok(());
    }
    for (i, cell) in plan.points[0].cells.iter().enumerate() {
        let PlannedCell { method, .. } = &plan.cells[*cell];
        if method.expect.is_some() {
            continue;
        }
        let shape = plan.cells[*cell].shape();
        let outlook = plan.forecast(*cell).with_cancel(cancel).outlook();
        cancel.check()?;
        let radius = |of: &Option<f64>| of.map_or(String::new(), numbers::radius);
        let why = match outlook.regime() {
            Regime::MeanDiverges => format!("the radius of a noiseless round is {}", radius(&outlook.radius.ok())),
            Regime::MeanSquareDiverges => {
                let square = radius(&outlook.mean_square.and_then(Result::ok));
                format!("noise makes the mean square diverge, the radius of a round's second moments is {square}")
            }
            _ => continue,
        };
        let hint = match shape.drift {
            Drift::ControlVariate { talk: None } => ", or random talk (kind = \"scafflsa-random\")",
            _ => "",
        };
        let e = Error::new(
            format!("method[{i}].step_size"),
            format!("{} is unstable with these settings: {why}", method.label),
            format!("{}{hint}; expect = \"diverges\" in the method, or `force`, to run it nevertheless", stable_step_text(plan, *cell)),
        );
        return Err(plan.experiment.document.failure(e));
    }
    Ok(())
}
