//! The error about what theory does not know.

use fedsa::error::BadInput;

/// The error of a quantity that theory does not know.
pub fn unknown(why: &str) -> BadInput {
    let known = "a linear problem, a constant step size, and a link over which rounds are known";
    BadInput::not_known("", format!("not known in closed form: {why}"), known)
}
