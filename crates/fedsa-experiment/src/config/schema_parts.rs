//! Schemas of keys that the configuration holds as trees, because other types read them.

use fedsa::sampling::Sampling;
use schemars::{Schema, SchemaGenerator};
use serde_json::json;

/// The placeholder of a table with a `kind`: the kinds are a value, and only known later.
pub(super) const OF_KINDS: &str = "x-of-kinds";

fn of_kinds(name: &str) -> Schema {
    json!({ OF_KINDS: name }).try_into().expect("an object")
}

/// `[problem]`.
pub(super) fn problem(_: &mut SchemaGenerator) -> Schema {
    of_kinds("problem")
}

/// `[sampling]`.
pub(super) fn sampling(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<Sampling>()
}

/// `[[method]]`.
pub(super) fn method(_: &mut SchemaGenerator) -> Schema {
    of_kinds("method")
}

/// `[quick]`.
pub(super) fn quick(_: &mut SchemaGenerator) -> Schema {
    json!({ "type": "object", "minProperties": 1 }).try_into().expect("an object")
}

/// `codec` of a link.
pub(super) fn codec(_: &mut SchemaGenerator) -> Schema {
    of_kinds("codec")
}

/// `media` of an uplink.
pub(super) fn media(_: &mut SchemaGenerator) -> Schema {
    of_kinds("media")
}

/// `expected` of a check.
pub(super) fn number_or_name(_: &mut SchemaGenerator) -> Schema {
    json!({ "type": ["number", "string"] }).try_into().expect("an object")
}
