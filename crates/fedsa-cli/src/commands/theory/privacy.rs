//! The privacy of a method's sums, in lines.

use fedsa::uplink::stage::secure_sum::Privacy;
use fedsa_experiment::numbers::{self, number, thousands};
use fedsa_experiment::theory::PrivacyTheory;

/// The lines: the error and the budget of a method's private sums, and the data that would make it useful.
pub fn privacy(of: &PrivacyTheory) -> Vec<String> {
    let Privacy { epsilon, delta, rounds, .. } = of.planned;
    let error = of.mse.as_ref().map_or_else(|reason| reason.text.clone(), |mse| format!("error {}", number(*mse)));
    let (rounds, unit) = (numbers::rounds(rounds), of.planned.unit.name());
    let mut lines = vec![format!("{error} after {rounds}; epsilon {}, delta {} for {unit}", number(epsilon), number(delta))];
    if let (Some(needed), Some(zero)) = (&of.needed, of.of_zero) {
        let help = match needed {
            Ok(needed) => format!("about {} {} have {}", thousands(needed.count as f64), of.counted(), number(needed.mse)),
            Err(reason) => reason.text.clone(),
        };
        lines.push(format!("of little use (weights of zero have {}): {help}", number(zero)));
    }
    lines
}
