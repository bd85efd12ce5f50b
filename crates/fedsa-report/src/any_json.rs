//! Other parts of a summary: numbers as lists, objects of equal shape as tables.

use fedsa_experiment::numbers;
use serde_json::{Map, Value as Json};

use crate::html::{Cell, clipped, escaped, table, without_empty_columns};

/// The largest number of rows in a table.
const MAX_ROWS: usize = 2_000;
/// The largest number of levels of headings; deeper values have dotted names.
const DEPTH: usize = 2;

/// A value under a heading of this level, as HTML; empty if there is nothing to show.
pub fn section(title: &str, value: &Json, level: usize) -> String {
    let inside = match value {
        Json::Object(map) => object(title, map, level),
        Json::Array(items) if items.iter().any(Json::is_object) => {
            rows(title, items.iter().enumerate().map(|(i, item)| (i.to_string(), item)), false)
        }
        _ => return String::new(),
    };
    if inside.is_empty() { inside } else { format!("<h{level}>{}</h{level}>\n{inside}", escaped(&words(title))) }
}

/// Names of summaries that need words without their context.
const WORDS: [(&str, &str); 31] = [
    ("n", "Rows"),
    ("aic", "AIC"),
    ("answer", "The answer"),
    ("options", "What was asked"),
    ("families", "Methods that were looked at"),
    ("tried", "All choices that were tried"),
    ("theory", "Search by theory"),
    ("pilots", "Pilot runs"),
    ("estimated_seconds", "Seconds, estimated"),
    ("budget_exhausted", "Budget used up"),
    ("why_not_theory", "Why not by theory"),
    ("mse", "Mean-square error"),
    ("target_mse", "Target of the mean-square error"),
    ("level", "Confidence level"),
    ("interval", "Intervals by"),
    ("of_weights", "Of the weights alone"),
    ("held_out", "On held-out data"),
    ("held_out_rows", "Held-out rows"),
    ("return_error", "Error of predicted returns"),
    ("projected_bellman_error", "Projected Bellman error"),
    ("own_minus_federated", "own minus federated"),
    ("rms", "root mean square"),
    ("policy_value", "Value of the policy, in the states in which episodes start"),
    ("fitted", "By the fitted value function"),
    ("importance", "By discounted returns, weighted where logs have importance ratios"),
    ("doubly_robust", "Doubly robust"),
    ("all", "All agents"),
    ("own", "Each agent by its own transitions alone"),
    ("se", "Standard error"),
    ("low", "Interval from"),
    ("high", "Interval to"),
];

/// Objects that repeat values beside them in the form of experiment files.
const REPEATED: [&str; 1] = ["table"];

/// The words of a name in a file: `Bits up` for `bits_up`.
pub fn words(name: &str) -> String {
    if let Some((_, words)) = WORDS.iter().find(|(known, _)| *known == name) {
        return (*words).to_string();
    }
    let text = name.replace('_', " ");
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

fn object(title: &str, map: &Map<String, Json>, level: usize) -> String {
    // An object of objects is a table: a row for each name.
    if map.len() > 1 && map.values().all(Json::is_object) {
        return rows(title, map.iter().map(|(name, item)| (name.clone(), item)), true);
    }
    let mut out = String::new();
    let plain: Vec<(&String, String)> =
        map.iter().filter(|(_, value)| !value.is_null()).filter_map(|(name, value)| Some((name, short(value)?))).collect();
    if !plain.is_empty() {
        out.push_str("<dl>\n");
        for (name, text) in plain {
            out.push_str(&format!("<div><dt>{}</dt><dd>{}</dd></div>\n", escaped(&words(name)), escaped(&text)));
        }
        out.push_str("</dl>\n");
    }
    for (name, value) in map.iter().filter(|(name, _)| !REPEATED.contains(&name.as_str())) {
        if level < 3 + DEPTH {
            out.push_str(&section(name, value, level + 1));
        }
    }
    out
}

/// A value that fits into a line.
fn short(value: &Json) -> Option<String> {
    match value {
        Json::Null => Some("not known".into()),
        Json::Bool(yes) => Some(if *yes { "yes" } else { "no" }.into()),
        Json::Number(x) => Some(number(x.as_f64().unwrap_or(f64::NAN))),
        Json::String(text) => Some(text.clone()),
        Json::Array(items) if items.is_empty() => None,
        Json::Array(items) if items.iter().all(|item| !item.is_object() && !item.is_array()) && items.len() <= 12 => {
            Some(items.iter().filter_map(short).collect::<Vec<_>>().join(", "))
        }
        Json::Array(items) if !items.iter().any(Json::is_object) => Some(format!("{} values", items.len())),
        Json::Array(_) | Json::Object(_) => None,
    }
}

fn number(x: f64) -> String {
    let is_whole = x.fract() == 0.0 && x.abs() < 1e12;
    if is_whole { numbers::thousands(x) } else { numbers::digits(x, 4) }
}

/// A table of objects: a column for each name; inner objects have dotted names.
fn rows<'a>(title: &str, items: impl Iterator<Item = (String, &'a Json)>, named: bool) -> String {
    let mut heads: Vec<String> = if named { vec!["name".into()] } else { Vec::new() };
    let mut flat: Vec<Map<String, Json>> = Vec::new();
    for (name, item) in items {
        let mut row = Map::new();
        if named {
            row.insert("name".into(), Json::String(name));
        }
        flatten(item, "", &mut row);
        for key in row.keys() {
            if !heads.contains(key) {
                heads.push(key.clone());
            }
        }
        flat.push(row);
    }
    // The name of a row is the first column.
    heads.sort_by_key(|head| head != "name");
    let cell = |value: Option<&Json>| match value {
        None | Some(Json::Null) => Cell::Empty,
        Some(Json::Number(x)) => x.as_f64().map_or(Cell::Empty, |x| Cell::Number(x, number(x))),
        Some(other) => short(other).map_or(Cell::Empty, Cell::Text),
    };
    let cells: Vec<Vec<Cell>> = flat.iter().map(|row| heads.iter().map(|head| cell(row.get(head))).collect()).collect();
    let (heads, cells) = without_empty_columns(heads, cells);
    let known = |name: &str| {
        WORDS.iter().find(|(known, _)| *known == name).map_or_else(|| name.replace('_', " "), |(_, words)| (*words).to_string())
    };
    let head = |head: &String| clipped(&head.split('.').map(|name| lower(&known(name))).collect::<Vec<_>>().join(": "), 80);
    // The heading above names it.
    format!("<div class=\"bare\">{}</div>", table(&words(title), &heads.iter().map(head).collect::<Vec<_>>(), &cells, MAX_ROWS))
}

/// A text with its first letter in lower case.
fn lower(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_lowercase().chain(letters).collect())
}

fn flatten(value: &Json, prefix: &str, out: &mut Map<String, Json>) {
    let Json::Object(map) = value else { return };
    for (name, value) in map {
        let key = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        match value {
            Json::Object(_) => flatten(value, &key, out),
            Json::Array(items) if items.iter().any(|item| item.is_object() || item.is_array()) => {}
            other => {
                out.insert(key, other.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn objects_of_one_shape_are_a_table_and_single_numbers_a_list() {
        let value = json!({ "level": 0.95, "agents": { "a": { "x": 1.5, "of": { "y": 2 } }, "b": { "x": null, "of": { "y": 3 } } } });
        let text = section("policy_value", &value, 2);
        assert!(text.starts_with("<h2>Value of the policy, in the states in which episodes start</h2>"), "{text}");
        assert!(text.contains("<dt>Confidence level</dt><dd>0.95</dd>"), "{text}");
        assert!(
            text.contains("<th scope=\"col\" class=\"n\">of: y</th>") && text.contains(">1.5</td>") && text.contains("<td></td>"),
            "{text}"
        );
    }
}
