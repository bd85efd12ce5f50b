//! The JSON schema of experiment files, completed with the names of metrics, counts, quantities and checks.

use fedsa::metrics::METRICS;
use fedsa::record::COUNTS;
use serde_json::{Value as Json, json};

use crate::config::json_schema;
use crate::config::validate::check_kinds;
use crate::kinds::Kinds;
use crate::names::QUANTITIES;

/// The schema of files with these kinds, from the configuration's types, and from the tables of metrics, counts, predicted quantities and
/// kinds of checks.
pub fn of_files(kinds: &Kinds) -> Json {
    let mut schema = json_schema::file(kinds);
    let mut names = |place: &str, names: &[&str]| {
        let Some(Json::Object(at)) = schema.pointer_mut(place) else { panic!("the schema has no {place}") };
        at.insert("enum".into(), json!(names));
    };
    let metrics: Vec<&str> = METRICS.iter().map(|metric| metric.name).collect();
    let counts: Vec<&str> = COUNTS.iter().map(|count| count.name).collect();
    names("/$defs/Check/properties/kind", &check_kinds::names());
    names("/$defs/Metrics/anyOf/0", &metrics);
    names("/$defs/Metrics/anyOf/1/items", &metrics);
    names("/$defs/Check/properties/cost", &counts);
    names("/$defs/Figure/properties/cost", &counts);
    names("/$defs/Figure/properties/levels/additionalProperties/items", &QUANTITIES);
    schema
}
