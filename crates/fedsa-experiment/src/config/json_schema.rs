//! The JSON schema of experiment files, made from the types that read them.
//!
//! Editors use it to complete, explain and check keys. A sweep, a variant or `[quick]` may set a key that its table lacks. The schema
//! therefore requires only keys that the program reads before it knows the sweep.

use fedsa::method::MethodSettings;
use fedsa::registry::Kind;
use fedsa_methods::presets::PRESETS;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value as Json, json};

use super::schema::{MethodCommon, Top};
use super::schema_parts::OF_KINDS;
use super::shaped_keys;
use crate::kinds::Kinds;

/// The schema of a file with these kinds.
pub fn file(kinds: &Kinds) -> Json {
    let mut generator = SchemaSettings::draft2020_12().into_generator();
    let mut schema = object(Top::json_schema(&mut generator));
    let tables: [(&str, Schema); 4] = [
        ("problem", one_of(kinds.problems(), &mut generator, |_| Map::new(), |_| Vec::new())),
        ("method", methods(kinds, &mut generator)),
        ("codec", one_of(kinds.codecs(), &mut generator, |_| Map::new(), |_| Vec::new())),
        ("media", media_of(kinds, &mut generator)),
    ];
    schema.remove("required");
    schema.insert("title".into(), json!("fedsa experiment"));
    schema.insert("description".into(), json!("An experiment file of fedsa: a problem, how it is sampled, methods, and what is run."));
    schema.insert("$defs".into(), Json::Object(generator.take_definitions(true)));
    let mut out = Map::from_iter([("$schema".to_string(), json!("https://json-schema.org/draft/2020-12/schema"))]);
    out.extend(schema);
    let mut out = Json::Object(out);
    fill(&mut out, &tables.map(|(name, schema)| (name, Json::Object(object(schema)))));
    plain(&mut out);
    out
}

/// Replaces the placeholders of tables with a `kind`.
fn fill(schema: &mut Json, tables: &[(&str, Json)]) {
    if let Some(name) = schema.get(OF_KINDS).and_then(Json::as_str) {
        let (_, table) = tables.iter().find(|(own, _)| *own == name).expect("a table with kinds");
        let mut table = table.clone();
        // The description of the key stays.
        let about = schema.get("description").cloned();
        table.as_object_mut().expect("a schema").extend(about.map(|about| ("description".to_string(), about)));
        *schema = table;
    }
    match schema {
        Json::Object(map) => map.values_mut().for_each(|value| fill(value, tables)),
        Json::Array(items) => items.iter_mut().for_each(|value| fill(value, tables)),
        _ => {}
    }
}

/// `[[method]]`: the keys of its kind and the keys of all methods.
fn methods(kinds: &Kinds, generator: &mut SchemaGenerator) -> Schema {
    let mut common = object(MethodCommon::json_schema(generator));
    let common = common.remove("properties").and_then(|p| p.as_object().cloned()).unwrap_or_default();
    let common = |kind: &Kind<dyn MethodSettings>| {
        let own = common.iter().filter(|(key, _)| shaped_keys::has(kind, key));
        own.map(|(key, schema)| (key.clone(), schema.clone())).collect()
    };
    // A preset has the keys of its method.
    let presets = |kind: &str| PRESETS.iter().filter(|preset| preset.method == kind).map(|preset| preset.name).collect();
    let one = one_of(kinds.methods(), generator, common, presets);
    json!({ "type": "array", "minItems": 1, "items": one }).try_into().expect("an object")
}

fn media_of(kinds: &Kinds, generator: &mut SchemaGenerator) -> Schema {
    let mut one = one_of(kinds.media(), generator, |_| Map::new(), |_| Vec::new());
    // A trace of delays may be a file, which is read before the medium.
    for medium in one.get_mut("anyOf").and_then(Json::as_array_mut).into_iter().flatten() {
        if let Some(keys) = medium.get_mut("properties").and_then(Json::as_object_mut)
            && keys.contains_key("delays")
        {
            let about = "A text file with a line per round: one delay for all agents, or one per agent; in place of delays.";
            keys.insert("path".into(), json!({ "description": about, "type": "string" }));
        }
    }
    json!({ "type": "array", "items": one }).try_into().expect("an object")
}

fn object(schema: Schema) -> Map<String, Json> {
    schema.as_object().cloned().unwrap_or_default()
}

/// A table with a `kind`: the keys of each kind, the keys that all kinds share, and aliases of keys.
fn one_of<T: ?Sized>(
    kinds: &[Kind<T>],
    generator: &mut SchemaGenerator,
    common: impl Fn(&Kind<T>) -> Map<String, Json>,
    more: impl Fn(&str) -> Vec<&'static str>,
) -> Schema {
    let mut all = Vec::new();
    for kind in kinds {
        let names: Vec<&str> = std::iter::once(kind.name).chain(kind.aliases.iter().copied()).chain(more(kind.name)).collect();
        let schema = (kind.schema)(generator);
        for table in tables(schema, generator) {
            let mut keys = Map::from_iter([("kind".to_string(), json!({ "description": sentence(kind.about), "enum": names }))]);
            keys.extend(table);
            keys.extend(common(kind));
            all.push(json!({
                "description": sentence(kind.about),
                "type": "object",
                "properties": keys,
                "required": ["kind"],
                "additionalProperties": false,
            }));
        }
    }
    json!({ "type": "object", "anyOf": all }).try_into().expect("an object")
}

fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|c| c.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", chars.as_str())
}

/// The keys of a table; several sets of keys if a key such as `law` determines the others.
fn tables(schema: Schema, generator: &SchemaGenerator) -> Vec<Map<String, Json>> {
    let mut schema = object(schema);
    // A newtype is its inner type.
    if let Some(name) = schema.get("$ref").and_then(Json::as_str).and_then(|at| at.rsplit('/').next()) {
        schema = generator.definitions().get(name).and_then(Json::as_object).cloned().unwrap_or_default();
    }
    let keys = |schema: &Map<String, Json>| schema.get("properties").and_then(Json::as_object).cloned().unwrap_or_default();
    let own = keys(&schema);
    match schema.get("oneOf").and_then(Json::as_array) {
        None => vec![own],
        Some(choices) => {
            let choice = |choice: &Json| {
                let mut all = choice.as_object().map(keys).unwrap_or_default();
                all.extend(own.clone());
                all
            };
            choices.iter().map(choice).collect()
        }
    }
}

/// Makes descriptions plain text; they are written for rustdoc.
fn plain(schema: &mut Json) {
    match schema {
        Json::Object(map) => {
            for (key, value) in map.iter_mut() {
                match value {
                    Json::String(text) if key == "description" => *text = unmarked(text),
                    other => plain(other),
                }
            }
        }
        Json::Array(items) => items.iter_mut().for_each(plain),
        _ => {}
    }
}

/// A text without the links of rustdoc: `[`Type`]` becomes `` `Type` ``, `\[S\]` becomes `[S]`.
fn unmarked(text: &str) -> String {
    text.replace("[`", "`").replace("`]", "`").replace("\\[", "[").replace("\\]", "]")
}
