//! What the settings of tasks have in common where they are options of a command line: headings of the help, parsers of values, defaults.
//!
//! The types of tasks derive [`clap::Args`], [`serde::Deserialize`] and [`schemars::JsonSchema`]. An option is its field's name with `-` for `_`.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Command};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The heading of settings about data.
pub const DATA: &str = "Data";
/// The heading of settings about the model.
pub const MODEL: &str = "Model";
/// The heading of settings about standard errors and intervals.
pub const INFERENCE: &str = "Inference";
/// The heading of settings about the method and the run.
pub const METHOD: &str = "Method";
/// The heading of settings about a federation.
pub const FEDERATION: &str = "Federation";
/// The heading of settings about what is written and printed.
pub const OUTPUT: &str = "Output";

/// The largest integer of a TOML file.
pub const MAX_INTEGER: u64 = i64::MAX as u64;

/// The settings without any option: each has its default.
///
/// # Panics
/// When the options of the type contradict each other.
pub fn defaults<T: Args>() -> T {
    let command = T::augment_args(Command::new("defaults").no_binary_name(true)).mut_args(|arg| arg.required(false));
    let matches = command.try_get_matches_from([""; 0]).expect("options have defaults");
    T::from_arg_matches(&matches).expect("options have defaults")
}

/// A parser of the names of a type's values, with their descriptions.
pub fn one_of<T: DeserializeOwned + JsonSchema + Clone + Send + Sync + 'static>() -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(values_of::<T>()).try_map(|name| serde_json::from_value::<T>(Value::String(name)))
}

/// The values of a type, by its JSON schema.
fn values_of<T: JsonSchema>() -> Vec<PossibleValue> {
    let schema = schemars::schema_for!(T).to_value();
    let mut all = Vec::new();
    let each = schema.get("oneOf").and_then(Value::as_array).into_iter().flatten().chain([&schema]);
    for part in each {
        let names = part.get("enum").and_then(Value::as_array).into_iter().flatten().chain(part.get("const"));
        let about = part.get("description").and_then(Value::as_str).filter(|_| part.get("const").is_some());
        let named = |name: &str| PossibleValue::new(name.to_string());
        all.extend(names.filter_map(Value::as_str).map(|name| match about {
            Some(about) => named(name).help(about.trim_end_matches('.').to_string()),
            None => named(name),
        }));
    }
    all
}

/// A whole number.
///
/// # Errors
/// When it is none, or larger than files can say.
pub fn whole(text: &str) -> Result<u64, String> {
    between(text, 0, MAX_INTEGER)
}

/// A whole number of at least 1.
///
/// # Errors
/// When it is none, or larger than files can say.
pub fn at_least_1(text: &str) -> Result<u64, String> {
    between(text, 1, MAX_INTEGER)
}

/// A whole number between two others.
///
/// # Errors
/// When it is none.
pub fn between(text: &str, least: u64, most: u64) -> Result<u64, String> {
    let accepted = if most == MAX_INTEGER && !text.bytes().all(|c| c.is_ascii_digit()) {
        format!("a whole number, at least {least}")
    } else {
        format!("a whole number from {least} to {most}")
    };
    text.parse().ok().filter(|n| (least..=most).contains(n)).ok_or_else(|| format!("not {accepted}"))
}

/// The names of columns in a line of CSV: separated by commas, those with a comma in quotes. An empty text has none.
///
/// # Errors
/// When a quote is not closed, or closed in the middle of a name.
pub fn names(text: &str) -> Result<Vec<String>, String> {
    let help = "names separated by commas, those with a comma in quotes: '\"a, b\",c'";
    let bad = |what: &str| format!("{what}: {help}");
    let mut names = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start();
        let mut name = String::new();
        if let Some(mut inside) = rest.strip_prefix('"') {
            // Two quotes within quotes are one.
            loop {
                let (piece, after) = inside.split_once('"').ok_or_else(|| bad("a quote that is not closed"))?;
                name += piece;
                let Some(more) = after.strip_prefix('"') else {
                    rest = after.trim_start();
                    break;
                };
                name.push('"');
                inside = more;
            }
            if !rest.is_empty() && !rest.starts_with(',') {
                return Err(bad("a quote that is closed in the middle of a name"));
            }
        } else {
            let (plain, after) = rest.split_at(rest.find(',').unwrap_or(rest.len()));
            (name, rest) = (plain.trim_end().into(), after);
        }
        names.push(name);
        match rest.strip_prefix(',') {
            Some(more) => rest = more,
            None => break,
        }
    }
    Ok(if text.is_empty() { Vec::new() } else { names })
}
