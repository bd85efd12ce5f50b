//! The pictures of an evaluation: the value function, predicted values against returns, and the costs of methods.

mod methods;
mod returns;
mod value;

pub use self::methods::methods;
pub use self::returns::returns;
pub use self::value::{SeenStates, StateFunction, ValueColumns, Values, named_columns, over_states};

/// The smallest and the largest finite number.
fn range_of(numbers: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    numbers.filter(|x| x.is_finite()).fold(None, |range: Option<(f64, f64)>, x| {
        let (low, high) = range.unwrap_or((x, x));
        Some((low.min(x), high.max(x)))
    })
}
