//! Keys of `[[method]]` that only methods of some shapes have, such as `controls` and `measure_from`.
//!
//! They are not in the settings of the kind, because they concern starts and metrics. The method's shape
//! ([`fedsa::method::MethodShape`]) determines which kinds have them.

use fedsa::error::{Error, ErrorCode, Result};
use fedsa::method::{Drift, MethodSettings, MethodShape};
use fedsa::registry::Kind;
use schemars::SchemaGenerator;
use toml::{Table, Value};

use super::read_kind;

/// A key that only methods of some shapes have.
pub struct ShapedKey {
    /// The key.
    pub name: &'static str,
    /// Whether a method of this shape has the key.
    pub fits: fn(&MethodShape) -> bool,
    /// Why other methods do not have the key.
    why_not: &'static str,
}

/// All such keys.
pub const SHAPED_KEYS: &[ShapedKey] = &[
    ShapedKey {
        name: "controls",
        fits: |shape| matches!(shape.drift, Drift::ControlVariate { .. }),
        why_not: "which has no control variates",
    },
    ShapedKey {
        name: "measure_from",
        fits: |shape| shape.drift == Drift::Zero && shape.is_linear,
        why_not: "whose limit theory does not know",
    },
];

/// Refuses keys of `SHAPED_KEYS` that a method of this kind, one of `kinds`, does not have.
///
/// # Errors
/// When there is such a key; the help lists the kinds that have it.
pub fn check(
    kinds: &[Kind<dyn MethodSettings>],
    kind: &Kind<dyn MethodSettings>,
    settings: &dyn MethodSettings,
    keys: &Table,
) -> Result<()> {
    let shape = settings.shape();
    let Some(key) = SHAPED_KEYS.iter().find(|key| keys.contains_key(key.name) && !(key.fits)(&shape)) else { return Ok(()) };
    let kinds: Vec<&str> = kinds.iter().filter(|kind| has(kind, key.name)).map(|kind| kind.name).collect();
    let what = format!("unknown key `{}` of {}, {}", key.name, kind.name, key.why_not);
    Err(Error::new(key.name, what, format!("no such key here; it is for {}", kinds.join(", "))).coded(ErrorCode::UnknownKey))
}

/// Whether methods of a kind have a key. Keys outside [`SHAPED_KEYS`] belong to all kinds.
pub fn has(kind: &Kind<dyn MethodSettings>, name: &str) -> bool {
    let Some(key) = SHAPED_KEYS.iter().find(|key| key.name == name) else { return true };
    shape_of(kind).is_none_or(|shape| (key.fits)(&shape))
}

/// The shape of a kind's methods, from a method with examples of the required settings: the schema's example, or 1.
fn shape_of(kind: &Kind<dyn MethodSettings>) -> Option<MethodShape> {
    let schema = (kind.schema)(&mut SchemaGenerator::default());
    let required = schema.get("required").and_then(|names| names.as_array()).into_iter().flatten();
    let example = |name: &str| Value::try_from(schema.get("properties")?.get(name)?.get("examples")?.get(0)?).ok();
    let value = |name: &str| (name.to_string(), example(name).unwrap_or(Value::Integer(1)));
    let table: Table = required.filter_map(|name| name.as_str().map(value)).collect();
    read_kind(kind, &table).ok().map(|settings| settings.shape())
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn every_kind_has_a_simplest_method() {
        for kind in fedsa_methods::KINDS {
            assert!(shape_of(kind).is_some(), "{}", kind.name);
            assert!(has(kind, "label"), "{}", kind.name);
        }
        let with = |name: &str| fedsa_methods::KINDS.iter().filter(|kind| has(kind, name)).map(|kind| kind.name).collect::<Vec<_>>();
        assert_eq!(with("controls"), ["scafflsa", "scafflsa-random", "scaffold"]);
        assert_eq!(with("measure_from"), ["fedlsa", "fedtd", "delayed-sa"]);
    }
}
