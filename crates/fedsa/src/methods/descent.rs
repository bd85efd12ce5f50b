//! What methods that move along a direction share: their protocol, their agents, and what they need of a link.
//!
//! ```text
//! round t:   g = sum_c p_c grad f_c(y_t)                                (exchange 0)
//!            p = sum_c p_c p_c(g), directions of the agents' own         (giant and done only)
//!            L(s) = sum_c p_c f_c(y_t + s p), for trial steps s          (the last exchange, with a line search)
//!            theta_{t+1} = y_t + s p
//! ```
//! A missing gradient or direction counts as zero, so that over a link that loses messages a round moves along the gradient
//! of the agents that arrived: on average towards the root, without settling there. Codecs alter gradients and
//! directions; losses are sent exactly.

use crate::error::{BadInput, Result, require};
use crate::local::descent::{DescentAgent, LocalSolve};
use crate::local::line_search::Trials;
use crate::message::Part;
use crate::protocol::{Exchange, Give, Len, Protocol, Want};
use crate::uplink::LinkFacts;

use super::Half;

/// The most halvings of a step.
const MOST_HALVINGS: usize = 60;
/// The least that the smallest trial step may be.
const SMALLEST_STEP: f64 = 1e-30;

/// Checks the settings of a line search.
///
/// # Errors
/// When one is out of range; names it.
pub(super) fn check_search(halvings: usize, decrease: f64) -> Result<()> {
    require(halvings <= MOST_HALVINGS, "halvings", halvings, &format!("at most {MOST_HALVINGS}"))?;
    check_decrease(decrease)
}

/// Checks the settings of a line search whose steps shrink by a factor of their own.
///
/// # Errors
/// When one is out of range, or the smallest step is; names it.
pub(super) fn check_shrinking_search(shrink: f64, shrinks: usize, decrease: f64) -> Result<()> {
    require(shrink > 0.0 && shrink < 1.0, "shrink", shrink, "above 0 and below 1")?;
    let most = (SMALLEST_STEP.ln() / shrink.ln() + 1e-9).min(MOST_HALVINGS as f64) as usize;
    let accepted = format!("at most {most} with this shrink, so that the smallest step, shrink^shrinks, is at least {SMALLEST_STEP:e}");
    require(shrinks <= most, "shrinks", shrinks, &accepted)?;
    check_decrease(decrease)
}

fn check_decrease(decrease: f64) -> Result<()> {
    require(decrease > 0.0 && decrease < 0.5, "decrease", decrease, "above 0 and below 1/2")
}

/// Checks a number that must be positive.
///
/// # Errors
/// When it is not; names it.
pub(super) fn check_positive(key: &'static str, x: f64) -> Result<()> {
    require(x > 0.0 && x.is_finite(), key, x, "a positive number")
}

/// Checks that a link delivers losses one by one: a receiver's noise over the air would decide which steps are
/// accepted.
///
/// # Errors
/// When only sums arrive.
pub(super) fn check_exact_losses(link: &LinkFacts) -> Result<()> {
    if !link.is_sum_only {
        return Ok(());
    }
    let what = "the method compares losses along a step, and over the air sums arrive with gains and noise of their own";
    Err(BadInput::new("uplink", what, "a link that delivers one message per agent, or gd with a step_size"))
}

/// The protocol for vectors of d components.
pub(super) fn protocol(d: usize, asks_agents: bool, trials: Option<&Trials>) -> Protocol {
    let exchange = |down, part, len| Exchange {
        down: vec![(down, Len::Exactly(d))],
        own: Vec::new(),
        wants: vec![Want { part, len: Len::Exactly(len), give: Give::Sum }],
        may_open: false,
    };
    let mut exchanges = vec![exchange(Part::Model, Part::Gradient, d)];
    if asks_agents {
        exchanges.push(exchange(Part::Gradient, Part::Direction, d));
    }
    exchanges.extend(trials.map(|trials| exchange(Part::Step, Part::Losses, trials.answer_len())));
    Protocol { exchanges, ..Protocol::default() }
}

/// The agents' half.
pub(super) fn client(trials: Option<Trials>, solve: Option<LocalSolve>) -> Half {
    Half::Each(Box::new(move |_| Box::new(DescentAgent::new(trials.clone(), solve))))
}

/// The bytes that agents keep: a model and a gradient each.
pub(super) fn memory(agents: usize, d: usize) -> f64 {
    16.0 * (agents * d) as f64
}

/// The multiply-adds of an agent in a round: a product with a matrix for the gradient, each loss, and each product of its own.
pub(super) fn work(d: usize, trials: Option<&Trials>, products: usize) -> f64 {
    (1 + trials.map_or(0, Trials::losses) + products) as f64 * (d as f64).powi(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_step_is_bounded() {
        for (shrink, shrinks) in [(0.5, 60), (0.25, 49), (0.1, 30), (1e-10, 3), (1e-300, 0), (0.999, 60)] {
            assert!(check_shrinking_search(shrink, shrinks, 0.1).is_ok(), "{shrink} {shrinks}");
            let e = check_shrinking_search(shrink, shrinks + 1, 0.1).unwrap_err();
            assert!(e.key == "shrinks" && e.help.contains("at most"), "{e:?}");
        }
        for shrink in [0.0, 1.0, f64::NAN] {
            assert_eq!(check_shrinking_search(shrink, 1, 0.1).unwrap_err().key, "shrink");
        }
        assert!(check_shrinking_search(0.5, 1, 0.5).is_err() && check_search(61, 0.1).is_err());
    }
}
