//! Suggestions for misspelt names.

use crate::error::quoted;

/// The candidate most similar to a name, if one is similar enough.
pub fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    /// The longest name that is compared: time and memory grow with the product of the lengths.
    const LONGEST: usize = 200;
    candidates
        .filter(|c| name.len() <= LONGEST && c.len() <= LONGEST)
        .map(|c| (strsim::damerau_levenshtein(name, c), c))
        .filter(|(distance, c)| *distance <= 1 + c.len().max(name.len()) / 3)
        .min()
        .map(|(_, c)| c)
}

/// The end of a message about an unknown name: the nearest one as a question, or nothing.
pub fn did_you_mean(near: Option<&str>) -> String {
    near.map_or(String::new(), |near| format!("; did you mean `{}`?", quoted(near)))
}
