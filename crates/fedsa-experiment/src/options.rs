//! Common parts of the settings of tasks as options of a command line: headings of the help, parsers of values, defaults.
//!
//! The types of tasks derive [`clap::Args`], [`serde::Deserialize`] and [`schemars::JsonSchema`]. An option is its field's name with `-`
//! for `_`.

use std::collections::BTreeMap;

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
/// The heading of settings about output.
pub const OUTPUT: &str = "Output";

/// The largest integer of a TOML file.
pub const MAX_INTEGER: u64 = i64::MAX as u64;

/// The default settings.
///
/// # Panics
/// When the options of the type contradict each other.
pub fn defaults<T: Args>() -> T {
    parsed(&[])
}

/// The settings with these values by name, and other defaults.
///
/// # Panics
/// When a value is invalid, or a setting without a default is missing.
pub fn parsed<T: Args>(given: &[(&str, &str)]) -> T {
    let command = T::augment_args(Command::new("settings").no_binary_name(true)).mut_args(|arg| arg.required(false));
    let options = given.iter().map(|(name, value)| format!("--{}={value}", name.replace('_', "-")));
    let matches = command.try_get_matches_from(options).expect("options of the type");
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
/// When the text is none, or the number is larger than files can hold.
pub fn whole(text: &str) -> Result<u64, String> {
    between(text, 0, MAX_INTEGER)
}

/// A whole number of at least 1.
///
/// # Errors
/// When the text is none, or the number is larger than files can hold.
pub fn at_least_1(text: &str) -> Result<u64, String> {
    between(text, 1, MAX_INTEGER)
}

/// A whole number from `least` to `most`.
///
/// # Errors
/// When the text is none.
pub fn between(text: &str, least: u64, most: u64) -> Result<u64, String> {
    let accepted = if most == MAX_INTEGER && !text.bytes().all(|c| c.is_ascii_digit()) {
        format!("a whole number, at least {least}")
    } else {
        format!("a whole number from {least} to {most}")
    };
    text.parse().ok().filter(|n| (least..=most).contains(n)).ok_or_else(|| format!("not {accepted}"))
}

/// A positive number.
///
/// # Errors
/// When the text is none.
pub fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(x) if x > 0.0 && x.is_finite() => Ok(x),
        _ => Err("not a positive number".into()),
    }
}

/// A time in seconds: `90s`, `10m`, `2h`, or a number of seconds.
///
/// # Errors
/// When the text is none.
pub fn time(text: &str) -> Result<f64, String> {
    let (number, unit) = match text.strip_suffix(['s', 'm', 'h']) {
        Some(number) if text.ends_with('m') => (number, 60.0),
        Some(number) if text.ends_with('h') => (number, 3600.0),
        Some(number) => (number, 1.0),
        None => (text, 1.0),
    };
    let seconds = number.trim().parse().ok().filter(|x| (0.0..=1e9).contains(x)).map(|x: f64| x * unit);
    seconds.ok_or_else(|| "not a time: seconds, or a number with s, m or h, such as 60s or 10m".to_string())
}

/// Names of columns, with the names that they have in files: `NAME=FIELD`, separated by commas.
///
/// # Errors
/// When a `=` is missing, or a name comes twice.
pub fn named_columns(text: &str) -> Result<BTreeMap<String, String>, String> {
    pairs(text, "NAME=FIELD, such as s_0=x,reward=r,done=terminal or s_*=obs_*", |field| Some(field.to_string()))
}

/// The ranges of columns: `COLUMN=LOW:HIGH`, separated by commas.
///
/// # Errors
/// When one is not of this form, or a column comes twice.
pub fn ranges(text: &str) -> Result<BTreeMap<String, [f64; 2]>, String> {
    pairs(text, "COLUMN=LOW:HIGH, such as s_0=-1.2:0.6,s_1=-0.07:0.07", |range| {
        let (low, high) = range.split_once(':')?;
        Some([low.trim().parse().ok()?, high.trim().parse().ok()?])
    })
}

/// Names with their values, `NAME=VALUE` separated by commas.
fn pairs<V>(text: &str, help: &str, value_of: impl Fn(&str) -> Option<V>) -> Result<BTreeMap<String, V>, String> {
    let mut all = BTreeMap::new();
    for pair in text.split(',').filter(|_| !text.is_empty()) {
        let read = pair.split_once('=').and_then(|(name, value)| Some((name.trim(), value_of(value.trim())?)));
        let (name, value) = read.ok_or_else(|| format!("`{pair}` is not {help}"))?;
        if all.insert(name.to_string(), value).is_some() {
            return Err(format!("`{name}` comes twice: {help}"));
        }
    }
    Ok(all)
}

/// The names of columns in a line of CSV: separated by commas; names with commas are quoted. An empty text has none.
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
            // Two quotes within quotes stand for one.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        assert_eq!(["60s", "60", "1.5m", "2h", "0"].map(time), [60.0, 60.0, 90.0, 7200.0, 0.0].map(Ok));
        assert!(["", "s", "-1s", "nan", "1d", "1e99"].iter().all(|text| time(text).is_err()));
    }
}
