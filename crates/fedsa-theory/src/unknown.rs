//! The error for quantities that theory does not know.

use fedsa::error::Error;

/// The error for a quantity that theory does not know.
pub fn unknown(why: &str) -> Error {
    let known = "a linear problem, a constant step size, and a link over which rounds are known";
    Error::not_known("", format!("not known in closed form: {why}"), known)
}
