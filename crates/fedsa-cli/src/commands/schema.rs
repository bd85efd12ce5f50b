//! `fedsa schema`: the JSON schema of experiment files, for editors.

use fedsa::error::Error;
use fedsa_experiment::{Kinds, file_schema};

use super::say_json;
use crate::error::DONE;

/// Runs the command.
///
/// # Errors
/// None.
pub fn schema(kinds: &Kinds) -> Result<u8, Error> {
    say_json(&file_schema::of_files(kinds));
    Ok(DONE)
}
