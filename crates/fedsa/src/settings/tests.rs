use std::collections::BTreeMap;

use serde::Deserialize;

use super::*;
use crate::error::ErrorKind;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only read")]
struct Everything {
    count: usize,
    number: Option<f64>,
    name: Option<String>,
    yes: Option<bool>,
    pair: Option<[f64; 2]>,
    list: Option<Vec<u64>>,
    map: Option<BTreeMap<String, (f64, f64)>>,
    choice: Option<Choice>,
    inner: Option<Box<Everything>>,
    law: Option<Law>,
    small: Option<u8>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Choice {
    OneThing,
    Other,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "law", rename_all = "kebab-case", deny_unknown_fields)]
#[expect(dead_code, reason = "only read")]
enum Law {
    Uniform { min: u64, max: u64, weights: Option<Vec<f64>> },
    Spikes { choice: Choice, inner: Option<Box<Law>> },
}

fn refused(text: &str) -> Error {
    let value: Value = serde_json::from_str(text).unwrap();
    read::<Everything>(&value).unwrap_err()
}

#[test]
fn errors_are_data() {
    use ErrorCode::{MissingKey, UnknownKey, UnknownName, WrongLength, WrongType};
    let whole = "a whole number, at least 0";
    for (text, code, key, value, help) in [
        (r#"{"count": -1}"#, WrongType, "count", "-1", whole),
        (r#"{"count": 1.5}"#, WrongType, "count", "1.5", whole),
        (r#"{"count": 1, "small": 256}"#, WrongType, "small", "256", whole),
        (r#"{"count": 1, "number": "x"}"#, WrongType, "number", "\"x\"", "a number"),
        (r#"{"count": 1, "name": [1]}"#, WrongType, "name", "[1]", "a text in quotes"),
        (r#"{"count": 1, "yes": 1}"#, WrongType, "yes", "1", "true or false"),
        (r#"{"count": 1, "pair": [1.0, 2.0, 3.0]}"#, WrongLength, "pair", "[1.0, 2.0, 3.0]", "a list of two, such as [0.0, 1.0]"),
        (r#"{"count": 1, "pair": 3}"#, WrongType, "pair", "3", "a list of two, such as [0.0, 1.0]"),
        (r#"{"count": 1, "list": [1, -2]}"#, WrongType, "list[1]", "-2", whole),
        (r#"{"count": 1, "list": 1}"#, WrongType, "list", "1", "a list in square brackets"),
        (r#"{"count": 1, "map": {"a": [1.0]}}"#, WrongLength, "map.a", "[1.0]", "a list of two, such as [0.0, 1.0]"),
        (r#"{"count": 1, "map": {"a.b": 1}}"#, WrongType, "map.\"a.b\"", "1", "a list of two, such as [0.0, 1.0]"),
        (r#"{"count": 1, "map": 1}"#, WrongType, "map", "1", "a table"),
        (r#"{"count": 1, "choice": 1}"#, WrongType, "choice", "1", "a name in quotes"),
        (r#"{"count": 1, "choice": "oter"}"#, UnknownName, "choice", "oter", "one of one-thing, other"),
        (r#"{"count": 1, "inner": 1}"#, WrongType, "inner", "1", "a table"),
        (r#"{"count": 1, "inner": [1]}"#, WrongType, "inner", "[1]", "a table"),
        (r#"{"count": 1, "inner": {"count": "x"}}"#, WrongType, "inner.count", "\"x\"", whole),
        (r#"{"count": 1, "inner": {}}"#, MissingKey, "inner.count", "", "count = .. in this table"),
        (r#"{"count": 1, "inner": {"count": 1, "nmber": 2}}"#, UnknownKey, "inner.nmber", "", "one of count, number, name"),
        (r#"{}"#, MissingKey, "count", "", "count = .. in this table"),
        (r#"[1]"#, WrongType, "", "[1]", "a table"),
    ] {
        let e = refused(text);
        assert_eq!((e.kind(), e.code(), e.key.as_str()), (ErrorKind::Setting, code, key), "{text}: {e}");
        assert_eq!(e.value().unwrap_or_default(), value, "{text}: {e}");
        assert!(e.help.starts_with(help), "{text}: {}", e.help);
    }
}

/// Tables with a tag are collected before they are read, so the entry at fault is looked up.
#[test]
fn errors_in_tables_with_a_tag_have_the_key_where_one_entry_can_be_meant() {
    use ErrorCode::{MissingKey, UnknownKey, UnknownName, WrongType};
    for (law, code, key) in [
        (r#"{"law": "unifrm"}"#, UnknownName, "law.law"),
        (r#"{"law": "uniform", "min": 1}"#, MissingKey, "law.max"),
        (r#"{"law": "uniform", "min": 1, "max": "x"}"#, WrongType, "law.max"),
        (r#"{"law": "uniform", "min": -1, "max": -1}"#, WrongType, "law"),
        (r#"{"law": "uniform", "min": 1, "max": 2, "mean": 3}"#, UnknownKey, "law.mean"),
        (r#"{"law": "uniform", "min": 1, "max": 2, "weights": [1, "x"]}"#, WrongType, "law.weights[1]"),
        (r#"{"law": "spikes", "choice": "x"}"#, UnknownName, "law.choice"),
        (r#"{"law": "spikes", "choice": "other", "inner": {"law": "uniform", "min": 1, "max": 2, "x": 3}}"#, UnknownKey, "law.inner.x"),
        (r#"{"min": 1}"#, MissingKey, "law.law"),
    ] {
        let e = refused(&format!(r#"{{"count": 1, "law": {law}}}"#));
        assert_eq!((e.code(), e.key.as_str()), (code, key), "{law}: {e}");
    }
}

#[test]
fn messages_are_in_plain_words() {
    for (text, message) in [
        (r#"{"count": "x"}"#, "count: \"x\" is not accepted"),
        (r#"{"count": 1, "choice": "oter"}"#, "choice: unknown value `oter`; did you mean `other`?"),
        (r#"{"count": 1, "inner": {}}"#, "inner: the key `count` is missing"),
        (r#"{"count": 1, "inner": {"count": 1, "nmber": 2}}"#, "inner.nmber: unknown key `nmber`; did you mean `number`?"),
    ] {
        assert_eq!(refused(text).to_string(), message);
    }
}

#[test]
fn values_of_other_formats_keep_their_order() {
    let text = r#"{"b":[1,2.5,true],"a":{"x":"y"}}"#;
    let value: Value = serde_json::from_str(text).unwrap();
    assert_eq!(serde_json::to_string(&value).unwrap(), text);
    assert_eq!(value.get("a").and_then(|a| a.get("x")), Some(&Value::Text("y".into())));
}
