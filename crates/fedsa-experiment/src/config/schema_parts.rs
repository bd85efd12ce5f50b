//! Schemas of keys that a type of the configuration holds as a tree, because other types read them.

use fedsa::sampling::Sampling;
use schemars::{Schema, SchemaGenerator};
use serde_json::json;

/// What stands for a table with a `kind` until the kinds are known: types say which keys there are, and the kinds are a value.
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
