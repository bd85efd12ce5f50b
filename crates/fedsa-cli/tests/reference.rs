//! The reference pages of the book are made from the types, and are compared with them here.
//!
//! Pages are written by hand but for the regions between `<!-- generated: NAME -->` and `<!-- end -->`, and but for the pages of
//! commands, which are generated as a whole. `cargo xtask book --reference` writes both: it runs this test with
//! `FEDSA_WRITE_REFERENCE=1`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, Command, CommandFactory};
use fedsa::error::{Error, ErrorCode, ErrorKind};
use fedsa::metrics::{METRICS, Need};
use fedsa::record::{COUNTS, OUTCOMES, Outcome};
use fedsa_cli::args::Cli;
use fedsa_cli::error::status_of;
use fedsa_experiment::bundled::ALL;
use fedsa_experiment::file_schema::of_files;
use fedsa_experiment::folder::{GROWING, OUTPUTS, POLICY_PICTURES, TUNING, VALUE_PICTURES};
use fedsa_experiment::names::QUANTITIES;
use serde_json::{Map, Value as Json};

use crate::json_schema::{common_keys, key_sets};

/// What begins a region, on a line of its own.
const BEGIN: &str = "\n<!-- generated: ";
const END: &str = "<!-- end -->";
/// The first line of a page that is generated as a whole.
const WHOLE: &str = "<!-- generated from the program: cargo xtask book --reference -->";
/// The page with the values that keys may have.
const VALUES: &str = "reference/values.md";

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src")
}

/// All pages of the book, by their path below its source, with their texts.
fn pages() -> BTreeMap<String, String> {
    fn collect(folder: &Path, root: &Path, out: &mut BTreeMap<String, String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                collect(&path, root, out);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                let name = path.strip_prefix(root).unwrap().to_str().unwrap().replace('\\', "/");
                out.insert(name, std::fs::read_to_string(&path).unwrap());
            }
        }
    }
    let mut out = BTreeMap::new();
    collect(&source(), &source(), &mut out);
    out
}

/// The pages as they must be.
fn wanted(pages: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let schema = of_files(&fedsa_experiment::Kinds::default());
    let mut seen = BTreeSet::new();
    let mut out: BTreeMap<String, String> = commands();
    for (path, text) in pages.iter().filter(|(_, text)| !text.starts_with(WHOLE)) {
        let mut page = String::new();
        let mut rest = text.as_str();
        while let Some((before, after)) = rest.split_once(BEGIN) {
            let (name, after) = after.split_once(" -->\n").unwrap_or_else(|| panic!("{path}: a region without a name"));
            let (_, after) = after.split_once(END).unwrap_or_else(|| panic!("{path}: {name} has no end"));
            assert!(seen.insert(name.to_string()), "{path}: {name} has two homes");
            let made = region(name, path, &schema).unwrap_or_else(|| panic!("{path}: nothing is called {name}"));
            write!(page, "{before}{BEGIN}{name} -->\n{}\n{END}", made.trim_end()).unwrap();
            rest = after;
        }
        out.insert(path.clone(), page + rest);
    }
    let needed = [
        "values",
        "metrics",
        "counts",
        "outcomes",
        "error kinds",
        "error codes",
        "commands",
        "options of all commands",
        "files",
        "problems",
        "methods",
        "codecs",
        "media",
    ];
    let keys = key_sets().into_iter().map(|(name, _)| name).filter(|name| {
        let kind = name.split(' ').next().unwrap();
        !["method", "codec", "medium", "FeatureSpec", "Gain", "Decay", "Stop"].contains(&kind)
    });
    for name in needed.iter().map(ToString::to_string).chain(keys.map(|name| format!("keys {name}"))) {
        assert!(seen.contains(&name), "no page has the region `{name}`");
    }
    out
}

/// What stands in a region.
fn region(name: &str, page: &str, schema: &Json) -> Option<String> {
    Some(match name {
        "keys method common" => keys(&common_keys(), page, &[]),
        "files" => {
            let of_policies = POLICY_PICTURES.iter().map(|name| (format!("{name}.svg"), "a picture of `fedsa improve`; PNG or PDF too"));
            let of_values = VALUE_PICTURES.iter().map(|name| (format!("{name}.svg"), "a picture of `fedsa evaluate`; PNG or PDF too"));
            let of_tuning = TUNING.iter().map(|name| ((*name).to_string(), "the answer of `fedsa tune`"));
            let growing = [(GROWING.to_string(), "recorded rounds of a run that is under way")];
            let outputs = OUTPUTS.iter().map(|(name, about)| ((*name).to_string(), *about));
            let all = outputs.chain(of_values).chain(of_policies).chain(of_tuning).chain(growing);
            table(&["file", "is"], all.map(|(name, about)| vec![format!("`{name}`"), about.to_string()]))
        }
        "problems" => table(
            &["kind", "is"],
            key_sets().into_iter().filter_map(|(name, keys)| {
                let name = name.strip_prefix("problem ")?;
                let about = sentence(keys["kind"]["description"].as_str().unwrap_or_default());
                Some(vec![format!("[`{name}`](#{name})"), about])
            }),
        ),
        "methods" => methods(page),
        "codecs" => kinds("codec", page),
        "media" => kinds("medium", page),
        "values" => values(schema),
        "metrics" => table(
            &["name", "is", "known where"],
            METRICS.iter().map(|m| vec![format!("`{}`", m.name), m.about.trim().to_string(), needs(m.needs)]),
        ),
        "counts" => table(&["name", "is"], COUNTS.iter().map(|count| vec![format!("`{}`", count.name), count.about.to_string()])),
        "outcomes" => table(&["outcome", "meaning"], OUTCOMES.iter().map(|(name, about)| vec![format!("`{name}`"), (*about).to_string()])),
        "error kinds" => table(
            &["kind", "exit status", "is about"],
            ErrorKind::ALL.iter().map(|kind| {
                let code = *ErrorCode::ALL.iter().find(|code| code.kind() == *kind).unwrap();
                let status = status_of(&Error::new("", "", "").coded(code));
                vec![format!("`{kind:?}`"), status.to_string(), kind.about().to_string()]
            }),
        ),
        "error codes" => table(
            &["code", "kind", "means"],
            ErrorCode::ALL.iter().map(|code| vec![format!("`{}`", code.name()), format!("`{:?}`", code.kind()), code.about().to_string()]),
        ),
        "commands" => table(
            &["command", "what it does"],
            leaves(&program()).into_iter().map(|(path, command)| {
                let file = format!("{}.md", path.join("-"));
                vec![format!("[`fedsa {}`]({file})", path.join(" ")), about(&command)]
            }),
        ),
        "options of all commands" => arguments(program().get_arguments().filter(|arg| arg.is_global_set())),
        _ => {
            let set = name.strip_prefix("keys ")?;
            let (_, own) = key_sets().into_iter().find(|(name, _)| name == set)?;
            let without: &[&str] = if set.starts_with("problem ") { &["kind"] } else { &[] };
            keys(&own, page, without)
        }
    })
}

fn needs(needs: &[Need]) -> String {
    let words = needs.iter().map(|need| match need {
        Need::Root => "`theta*` is known",
        Need::RootOrCentre => "`theta*` is known, or the method has `measure_from = \"limit\"`",
        Need::Gram => "reward processes and logs",
        Need::Controls => "the method has control variates",
        Need::Means => "the agents' mean operators are known",
        Need::Objective => "the problem has losses",
        Need::Answers => "federations of machines",
    });
    words.collect::<Vec<_>>().join("; ")
}

/// A table in Markdown.
fn table(heads: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let cell = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|");
    let mut out = format!("| {} |\n|{}\n", heads.join(" | "), " --- |".repeat(heads.len()));
    for row in rows {
        writeln!(out, "| {} |", row.iter().map(|text| cell(text)).collect::<Vec<_>>().join(" | ")).unwrap();
    }
    out
}

/// A sentence with a full stop.
fn sentence(text: &str) -> String {
    let words = text.split_whitespace().map(|word| match word.split_once("::") {
        // What links to a field in the documentation of the library names a key here.
        Some((kind, field)) if kind.starts_with('`') => format!("`{field}"),
        _ => word.to_string(),
    });
    let text = words.collect::<Vec<_>>().join(" ");
    if text.is_empty() || text.ends_with(['.', '!', '?']) { text } else { text + "." }
}

/// A table of keys.
fn keys(keys: &Map<String, Json>, page: &str, without: &[&str]) -> String {
    let schema = of_files(&fedsa_experiment::Kinds::default());
    let required = required(&schema, keys).unwrap_or_default();
    let rows = keys.iter().filter(|(key, _)| !without.contains(&key.as_str()));
    table(
        &["key", "type", "default", "range", "meaning"],
        rows.map(|(key, schema)| {
            let about = sentence(schema["description"].as_str().unwrap_or_default());
            let default = if required.contains(key) { "required".into() } else { default(schema) };
            vec![format!("`{key}`"), type_of(schema, page), default, range(schema), about]
        }),
    )
}

/// The keys that a table with these keys must have.
fn required(schema: &Json, keys: &Map<String, Json>) -> Option<Vec<String>> {
    match schema {
        Json::Object(fields) if fields.get("properties").and_then(Json::as_object) == Some(keys) => {
            let names = fields.get("required").and_then(Json::as_array).into_iter().flatten();
            Some(names.filter_map(|name| Some(name.as_str()?.to_string())).collect())
        }
        Json::Object(fields) => fields.values().find_map(|field| required(field, keys)),
        Json::Array(items) => items.iter().find_map(|item| required(item, keys)),
        _ => None,
    }
}

/// The default of a key.
fn default(schema: &Json) -> String {
    match schema.get("default") {
        None | Some(Json::Null) => String::new(),
        Some(Json::Object(table)) if table.is_empty() => String::new(),
        Some(Json::Object(table)) => {
            let fields: Vec<String> = table.iter().map(|(key, value)| format!("{key} = {value}")).collect();
            format!("`{{ {} }}`", fields.join(", "))
        }
        Some(value) => format!("`{value}`"),
    }
}

/// The range of a number, or of the entries of a list.
fn range(schema: &Json) -> String {
    let number = |key: &str| schema.get(key).and_then(Json::as_f64).map(|x| if x.abs() >= 1e6 { format!("{x:e}") } else { x.to_string() });
    let low = number("minimum").map(|x| format!("at least {x}")).or_else(|| number("exclusiveMinimum").map(|x| format!("above {x}")));
    let high = number("maximum").map(|x| format!("at most {x}")).or_else(|| number("exclusiveMaximum").map(|x| format!("below {x}")));
    let mut parts: Vec<String> = low.into_iter().chain(high).collect();
    if let (Some(least), Some(most)) = (schema.get("minItems"), schema.get("maxItems")) {
        parts.push(if least == most { format!("{least} entries") } else { format!("{least} to {most} entries") });
    } else if let Some(least) = schema.get("minItems").and_then(Json::as_u64) {
        parts.push(format!("{least} entries or more"));
    }
    parts.join(", ")
}

/// The anchor of a definition on the page of values.
fn anchor(name: &str) -> String {
    name.to_lowercase()
}

/// The type of a value, with links to the page of values.
fn type_of(schema: &Json, page: &str) -> String {
    if let Some(name) = schema.get("$ref").and_then(Json::as_str) {
        let name = name.rsplit('/').next().unwrap();
        let (folder, file) = VALUES.split_once('/').unwrap();
        let target = match page.rsplit_once('/') {
            _ if page == VALUES => String::new(),
            Some((own, _)) if own == folder => file.to_string(),
            _ => format!("{}{VALUES}", "../".repeat(page.matches('/').count())),
        };
        return format!("[{name}]({target}#{})", anchor(name));
    }
    if let Some(value) = schema.get("const") {
        return format!("`{value}`");
    }
    if let Some(values) = schema.get("enum").and_then(Json::as_array) {
        return values.iter().map(|value| format!("`{value}`")).collect::<Vec<_>>().join(", ");
    }
    for key in ["anyOf", "oneOf"] {
        if let Some(ways) = schema.get(key).and_then(Json::as_array) {
            if ways.iter().all(|way| way["properties"].get("kind").is_some()) {
                return "a table with a `kind`".into();
            }
            let ways = ways.iter().filter(|way| way["type"] != "null").map(|way| type_of(way, page));
            return ways.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(" or ");
        }
    }
    let names: Vec<&str> = match &schema["type"] {
        Json::String(name) => vec![name],
        Json::Array(names) => names.iter().filter_map(Json::as_str).filter(|name| *name != "null").collect(),
        _ => return "any value".into(),
    };
    let words = names.into_iter().map(|name| match name {
        "integer" => "whole number".to_string(),
        "string" => "text".into(),
        "boolean" => "true or false".into(),
        "array" => match schema.get("items") {
            Some(items) if items.is_object() => format!("list of {}", plural(&type_of(items, page))),
            _ => "list".into(),
        },
        "object" => match schema.get("properties").and_then(Json::as_object) {
            Some(keys) if !keys.is_empty() => {
                format!("table of {}", keys.keys().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", "))
            }
            _ => "table".into(),
        },
        other => other.into(),
    });
    words.collect::<Vec<_>>().join(" or ")
}

fn plural(name: &str) -> String {
    match name {
        "number" | "whole number" | "text" | "list" | "table" => format!("{name}s"),
        "a table with a `kind`" => "tables with a `kind`".into(),
        _ => name.strip_prefix("list of ").map_or_else(|| name.to_string(), |of| format!("lists of {of}")),
    }
}

/// A section for each kind of methods with the keys of its own.
fn methods(page: &str) -> String {
    let common = common_keys();
    sections("method", page, &common.keys().map(String::as_str).collect::<Vec<_>>())
}

fn kinds(what: &str, page: &str) -> String {
    sections(what, page, &["kind", "law"])
}

/// A section for each kind of a part. Names with the same keys (presets, other names) share a section.
fn sections(what: &str, page: &str, without: &[&str]) -> String {
    let level = if what == "method" { "###" } else { "####" };
    let mut out = String::new();
    let mut groups: Vec<(Vec<String>, Map<String, Json>)> = Vec::new();
    for (name, keys) in key_sets() {
        let Some(name) = name.strip_prefix(what).and_then(|rest| rest.strip_prefix(' ')) else { continue };
        match groups.iter_mut().find(|(_, of)| *of == keys) {
            Some((names, _)) => names.push(name.to_string()),
            None => groups.push((vec![name.to_string()], keys)),
        }
    }
    for (names, own) in groups {
        let head = names[0].replace(' ', ": law ");
        write!(out, "{level} `{head}`\n\n{}", sentence(own["kind"]["description"].as_str().unwrap_or_default())).unwrap();
        if names.len() > 1 {
            let others: Vec<String> = names[1..].iter().map(|name| format!("`{name}`")).collect();
            write!(out, " Other names, and presets: {}.", others.join(", ")).unwrap();
        }
        out.push_str("\n\n");
        if own.keys().any(|key| !without.contains(&key.as_str())) {
            writeln!(out, "{}", keys(&own, page, without)).unwrap();
        } else {
            out.push_str("It has no keys of its own.\n\n");
        }
    }
    out
}

/// A section for each type of values that keys have.
fn values(schema: &Json) -> String {
    let mut out = String::new();
    let sets = key_sets();
    let definitions = schema["$defs"].as_object().unwrap();
    let names: BTreeSet<&String> = definitions.keys().collect();
    for name in names {
        let of = &definitions[name];
        write!(out, "## {name}\n\n{}\n\n", sentence(of["description"].as_str().unwrap_or_default())).unwrap();
        // Kinds that have sections on a page of their own.
        if let Some((_, page)) = [("Base", "methods.md"), ("Delay", "links.md#media")].iter().find(|(own, _)| own == name) {
            write!(out, "[Its kinds]({page}).\n\n").unwrap();
            continue;
        }
        if let Some(own) = of.get("properties").and_then(Json::as_object) {
            // Tables of a file have their keys on a page of their own.
            let elsewhere = ["Sampling", "Sweep", "Variant", "Figure", "Check", "UplinkSpec", "DownlinkSpec", "Noise", "Federation"];
            assert!(elsewhere.iter().all(|name| sets.iter().any(|(set, _)| set == name)));
            match elsewhere.contains(&name.as_str()) {
                true => {
                    let page = match name.as_str() {
                        "Figure" => "figure.md",
                        "Check" => "check.md",
                        "UplinkSpec" | "DownlinkSpec" => "links.md",
                        "Noise" => "problems.md#additive-noise",
                        "Federation" => "experiment-files.md#federation",
                        _ => "experiment-files.md",
                    };
                    write!(out, "[Its keys]({page}).\n\n").unwrap();
                }
                false => writeln!(out, "{}", keys(own, VALUES, &[])).unwrap(),
            }
            continue;
        }
        let ways = of.get("oneOf").or_else(|| of.get("anyOf")).and_then(Json::as_array);
        match ways {
            Some(ways) => {
                for way in ways {
                    let about = sentence(way["description"].as_str().unwrap_or_default());
                    let range = range(way);
                    let range = if range.is_empty() { range } else { format!(", {range}") };
                    let colon = if about.is_empty() { "" } else { ": " };
                    let tag = ["kind", "law", "schedule"].iter().find_map(|tag| Some((*tag, way["properties"].get(tag)?.get("const")?)));
                    let what = tag.map_or_else(|| type_of(way, VALUES), |(tag, name)| format!("`{{ {tag} = {name}, .. }}`"));
                    writeln!(out, "- {what}{range}{colon}{about}").unwrap();
                    for (key, schema) in way["properties"].as_object().into_iter().flatten() {
                        if schema.get("const").is_none() {
                            let parts = [type_of(schema, VALUES), range_and_default(schema)];
                            let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
                            let about = sentence(schema["description"].as_str().unwrap_or_default());
                            let colon = if about.is_empty() { "" } else { ": " };
                            writeln!(out, "  - `{key}` ({}){colon}{about}", parts.join(", ")).unwrap();
                        }
                    }
                }
                out.push('\n');
            }
            None => write!(out, "A {}.\n\n", type_of(of, VALUES)).unwrap(),
        }
    }
    out
}

fn range_and_default(schema: &Json) -> String {
    let default = default(schema);
    let default = if default.is_empty() { default } else { format!("{default} by default") };
    [range(schema), default].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
}

/// The command line with all of its commands.
fn program() -> Command {
    let mut program = Cli::command().term_width(100);
    program.build();
    program
}

/// The commands without subcommands, with the words that call them.
fn leaves(command: &Command) -> Vec<(Vec<String>, Command)> {
    let mut out = Vec::new();
    for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
        let below = leaves(sub);
        match below.is_empty() {
            true => out.push((vec![sub.get_name().to_string()], sub.clone())),
            false => out.extend(below.into_iter().map(|(path, leaf)| ([vec![sub.get_name().to_string()], path].concat(), leaf))),
        }
    }
    out
}

fn about(command: &Command) -> String {
    let text = command.get_about().map(ToString::to_string).unwrap_or_default();
    sentence(&text)
}

/// A page for each command.
fn commands() -> BTreeMap<String, String> {
    let mut out = BTreeMap::new();
    for (path, command) in leaves(&program()) {
        let mut page = format!("{WHOLE}\n\n# fedsa {}\n\n", path.join(" "));
        let long = command.get_long_about().map_or_else(|| about(&command), ToString::to_string);
        for paragraph in long.split("\n\n") {
            write!(page, "{}\n\n", escaped(&sentence(paragraph))).unwrap();
        }
        let usage = command.clone().render_usage().to_string();
        for line in usage.trim_start_matches("Usage:").lines() {
            writeln!(page, "    {}", line.trim()).unwrap();
        }
        page.push('\n');
        let all: Vec<&Arg> = command
            .get_arguments()
            .filter(|arg| !arg.is_hide_set() && !arg.is_global_set() && !["help", "version"].contains(&arg.get_id().as_str()))
            .collect();
        let (positional, options): (Vec<&Arg>, Vec<&Arg>) = all.into_iter().partition(|arg| arg.is_positional());
        let mut groups: Vec<(String, Vec<&Arg>)> = Vec::new();
        if !positional.is_empty() {
            groups.push(("Arguments".into(), positional));
        }
        for option in options {
            let heading = option.get_help_heading().unwrap_or("Options");
            match groups.iter_mut().find(|(name, _)| name == heading) {
                Some((_, list)) => list.push(option),
                None => groups.push((heading.into(), vec![option])),
            }
        }
        for (heading, args) in groups {
            write!(page, "## {heading}\n\n{}\n", arguments(args)).unwrap();
        }
        if let Some(after) = command.get_after_long_help().or_else(|| command.get_after_help()) {
            page.push_str("## Notes\n\n");
            after.to_string().lines().for_each(|line| writeln!(page, "    {line}").unwrap());
            page.push('\n');
        }
        page.push_str("[Options of all commands](index.md#options-of-all-commands)\n");
        out.insert(format!("reference/commands/{}.md", path.join("-")), page);
    }
    out
}

/// A list of arguments.
fn arguments<'a>(args: impl IntoIterator<Item = &'a Arg>) -> String {
    let mut out = String::new();
    for arg in args {
        let default = match arg_default(arg).as_str() {
            "" => String::new(),
            "required" => " (required)".into(),
            value => format!(" ({value} by default)"),
        };
        writeln!(out, "- {}{default}: {}", call(arg), arg_about(arg)).unwrap();
    }
    out
}

/// Text in which nothing is read as a tag of HTML.
fn escaped(text: &str) -> String {
    text.split('`')
        .enumerate()
        .map(|(i, part)| if i % 2 == 0 { part.replace('<', "&lt;").replace('*', "\\*") } else { format!("`{part}`") })
        .collect()
}

/// How an argument is written.
fn call(arg: &Arg) -> String {
    let names = arg.get_value_names().unwrap_or_default();
    let takes = !matches!(arg.get_action(), ArgAction::SetTrue | ArgAction::SetFalse | ArgAction::Count);
    let of_one = |name: &clap::builder::Str| if arg.is_require_equals_set() { format!("[=<{name}>]") } else { format!(" <{name}>") };
    let value = if takes { names.iter().map(of_one).collect::<String>() } else { String::new() };
    if arg.is_positional() {
        return format!("`{}`", value.trim());
    }
    let short = arg.get_short().map(|c| format!("`-{c}`, ")).unwrap_or_default();
    format!("{short}`--{}{value}`", arg.get_long().unwrap_or_default())
}

fn arg_default(arg: &Arg) -> String {
    let takes = !matches!(arg.get_action(), ArgAction::SetTrue | ArgAction::SetFalse | ArgAction::Count);
    let given = arg.get_default_values().iter().filter(|value| !value.is_empty());
    let values: Vec<String> = given.map(|value| format!("`{}`", value.to_string_lossy())).collect();
    match (takes, arg.is_required_set()) {
        (_, true) => "required".into(),
        (true, _) => values.join(", "),
        _ => String::new(),
    }
}

fn arg_about(arg: &Arg) -> String {
    let help = arg.get_long_help().or_else(|| arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let mut text = escaped(&sentence(&help));
    let values: Vec<String> = arg.get_possible_values().iter().map(|value| format!("`{}`", value.get_name())).collect();
    let takes = !matches!(arg.get_action(), ArgAction::SetTrue | ArgAction::SetFalse | ArgAction::Count);
    if takes && !values.is_empty() {
        write!(text, " One of {}.", values.join(", ")).unwrap();
    }
    text
}

#[test]
fn pages_are_those_of_the_types() {
    let pages = pages();
    let wanted = wanted(&pages);
    let gone = pages.iter().filter(|(path, text)| text.starts_with(WHOLE) && !wanted.contains_key(*path));
    let different = wanted.iter().filter(|(path, text)| pages.get(*path) != Some(text));
    if std::env::var_os("FEDSA_WRITE_REFERENCE").is_some_and(|wish| wish == "1") {
        for (path, text) in different {
            let path = source().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        gone.for_each(|(path, _)| std::fs::remove_file(source().join(path)).unwrap());
        return;
    }
    let wrong: Vec<&String> = different.map(|(path, _)| path).chain(gone.map(|(path, _)| path)).collect();
    assert!(wrong.is_empty(), "these pages differ from the program; `cargo xtask book --reference` writes them: {wrong:?}");
}

/// What is listed by hand has all that there is: commands in the table of contents, bundled experiments, predicted quantities, outcomes.
#[test]
fn lists_by_hand_are_complete() {
    let pages = pages();
    let summary = &pages["SUMMARY.md"];
    for (path, _) in leaves(&program()) {
        let page = format!("(reference/commands/{}.md)", path.join("-"));
        assert!(summary.contains(&page), "SUMMARY.md lacks {page}");
    }
    for bundled in ALL {
        assert!(pages["reference/bundled.md"].contains(&format!("| `{}` |", bundled.id)), "reference/bundled.md lacks {}", bundled.id);
    }
    for name in QUANTITIES.iter() {
        assert!(pages["concepts/predictions.md"].contains(&format!("| `{name}` |")), "concepts/predictions.md lacks {name}");
    }
    let reading = &pages["concepts/reading-figures.md"];
    for (name, _) in OUTCOMES.iter().filter(|(name, _)| *name != Outcome::Interrupted.name()) {
        assert!(reading.contains(&format!("| `{name}`")), "concepts/reading-figures.md lacks {name}");
    }
}
