//! `fedsa schema`: the JSON schema of experiment files, for editors.

use fedsa_experiment::config::json_schema;
use fedsa_experiment::error::Failure;
use fedsa_experiment::{checks, results};
use serde_json::{Value as Json, json};

use super::say_json;
use crate::error::DONE;

/// Runs the command.
///
/// # Errors
/// None.
pub fn schema() -> Result<u8, Failure> {
    say_json(&of_files());
    Ok(DONE)
}

/// The schema of the configuration's types, with the names that only the parts that use them know.
pub fn of_files() -> Json {
    let mut schema = json_schema::file();
    let mut names = |place: &str, names: Vec<&str>| {
        let Some(Json::Object(at)) = schema.pointer_mut(place) else { return };
        at.insert("enum".into(), json!(names));
    };
    names("/$defs/Check/properties/kind", checks::kinds());
    names("/$defs/Metrics/anyOf/0", results::metrics());
    names("/$defs/Metrics/anyOf/1/items", results::metrics());
    schema
}
