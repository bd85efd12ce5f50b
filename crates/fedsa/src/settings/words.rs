//! Accepted values, as messages to users name them.

pub(super) const WHOLE_POSITIVE: &str = "a whole number, at least 0";
pub(super) const WHOLE: &str = "a whole number";
pub(super) const NUMBER: &str = "a number";
pub(super) const TEXT: &str = "a text in quotes";
pub(super) const BOOL: &str = "true or false";
pub(super) const LIST: &str = "a list in square brackets";
pub(super) const TABLE: &str = "a table";
pub(super) const NAME: &str = "a name in quotes";
