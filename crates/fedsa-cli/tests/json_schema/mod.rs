//! The JSON schema that `fedsa schema` prints is held to the program: bundled files and examples are
//! valid, both refuse the same keys, and its bounds are the program's. And tables of the book that are written by hand are held to
//! the schema; those that are generated are compared by `reference.rs`.

mod complete;

use crate::common::{Folder, SMALL, mrp, npz_bytes};
use complete::complete;
use fedsa::kernel::Isa;
use fedsa_experiment::Plan;
use fedsa_experiment::bundled::ALL;
use fedsa_experiment::config::{Document, Experiment};
use fedsa_experiment::file_schema::of_files;
use proptest::prelude::*;
use serde_json::{Map, Value as Json, json};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use toml::Value;

/// What a validation looks at.
#[derive(Clone, Copy, PartialEq)]
enum Look {
    /// Everything.
    All,
    /// Only which keys tables have.
    Keys,
}

/// A validator of the keywords that the schema uses, and of no others.
struct Validator {
    schema: Json,
    look: Look,
}

impl Validator {
    fn new(look: Look) -> Self {
        Self { schema: of_files(&fedsa_experiment::Kinds::default()), look }
    }

    /// What is wrong with a file; nothing if it is valid.
    fn refuses(&self, file: &Json) -> Option<String> {
        self.check(&self.schema, file, "").err()
    }

    fn check(&self, schema: &Json, value: &Json, at: &str) -> Result<(), String> {
        let schema = match schema {
            Json::Bool(true) => return Ok(()),
            Json::Bool(false) => return Err(format!("{at} is not allowed")),
            other => other.as_object().expect("a schema"),
        };
        let all = self.look == Look::All;
        let list = |key: &str| schema.get(key).and_then(Json::as_array);
        for (key, rule) in schema {
            match key.as_str() {
                "$schema" | "$defs" | "title" | "description" | "default" | "format" | "examples" => {}
                "$ref" => {
                    let name = rule.as_str().unwrap().strip_prefix('#').unwrap();
                    self.check(self.schema.pointer(name).unwrap_or_else(|| panic!("{name}")), value, at)?;
                }
                "type" => self.check_type(rule, value, at)?,
                "properties" => {
                    for (key, schema) in rule.as_object().unwrap() {
                        if let Some(value) = value.get(key) {
                            self.check(schema, value, &format!("{at}.{key}"))?;
                        }
                    }
                }
                "additionalProperties" => {
                    let known = schema.get("properties").and_then(Json::as_object).cloned().unwrap_or_default();
                    for (key, value) in value.as_object().into_iter().flatten().filter(|(key, _)| !known.contains_key(*key)) {
                        self.check(rule, value, &format!("{at}.{key}"))?;
                    }
                }
                "required" => self.check_required(rule, value, at)?,
                "anyOf" | "oneOf" => self.check_choices(key, list(key).unwrap(), value, at)?,
                "allOf" => list(key).unwrap().iter().try_for_each(|one| self.check(one, value, at))?,
                // What a table is decides about its keys.
                "const" if (all || value.is_string()) && value != rule => return Err(format!("{at}: {value} is not {rule}")),
                "enum" if (all || value.is_string()) && !rule.as_array().unwrap().contains(value) => {
                    return Err(format!("{at}: {value} is none of {rule}"));
                }
                "const" | "enum" => {}
                "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "minItems" | "maxItems" | "minProperties" => {
                    self.check_bound(key, rule, value, at)?;
                }
                "items" => {
                    for (i, item) in value.as_array().into_iter().flatten().enumerate() {
                        self.check(rule, item, &format!("{at}[{i}]"))?;
                    }
                }
                "prefixItems" => {
                    for (i, (item, rule)) in value.as_array().into_iter().flatten().zip(rule.as_array().unwrap()).enumerate() {
                        self.check(rule, item, &format!("{at}[{i}]"))?;
                    }
                }
                other => panic!("the validator does not know `{other}`"),
            }
        }
        Ok(())
    }

    fn check_bound(&self, key: &str, rule: &Json, value: &Json, at: &str) -> Result<(), String> {
        let all = self.look == Look::All;
        let number = |holds: &dyn Fn(f64, f64) -> bool| match (value.as_f64(), rule.as_f64()) {
            (Some(x), Some(bound)) if all && !holds(x, bound) => Err(format!("{at}: {x} and {key} {bound}")),
            _ => Ok(()),
        };
        let count = |len: Option<usize>, holds: &dyn Fn(usize, usize) -> bool| match (len, rule.as_u64()) {
            (Some(n), Some(bound)) if all && !holds(n, bound as usize) => Err(format!("{at}: {n} entries and {key} {bound}")),
            _ => Ok(()),
        };
        match key {
            "minimum" => number(&|x, bound| x >= bound),
            "maximum" => number(&|x, bound| x <= bound),
            "exclusiveMinimum" => number(&|x, bound| x > bound),
            "exclusiveMaximum" => number(&|x, bound| x < bound),
            "minItems" => count(value.as_array().map(Vec::len), &|n, bound| n >= bound),
            "maxItems" => count(value.as_array().map(Vec::len), &|n, bound| n <= bound),
            "minProperties" => count(value.as_object().map(Map::len), &|n, bound| n >= bound),
            other => unreachable!("{other}"),
        }
    }

    fn check_type(&self, rule: &Json, value: &Json, at: &str) -> Result<(), String> {
        let names: Vec<&str> =
            rule.as_array().map_or_else(|| vec![rule.as_str().unwrap()], |l| l.iter().map(|t| t.as_str().unwrap()).collect());
        let is = |name: &str| match name {
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            "number" => value.is_number(),
            "integer" => value.is_i64() || value.is_u64(),
            "null" => value.is_null(),
            other => panic!("type {other}"),
        };
        let container = value.is_object() || value.is_array();
        if (self.look == Look::All || container) && !names.iter().any(|name| is(name)) {
            return Err(format!("{at}: {value} is no {rule}"));
        }
        Ok(())
    }

    fn check_required(&self, rule: &Json, value: &Json, at: &str) -> Result<(), String> {
        let missing = rule.as_array().unwrap().iter().find(|key| value.is_object() && value.get(key.as_str().unwrap()).is_none());
        if let (Some(key), true) = (missing, self.look == Look::All) {
            return Err(format!("{at} lacks {key}"));
        }
        Ok(())
    }

    /// Checks `anyOf` or `oneOf`.
    fn check_choices(&self, key: &str, choices: &[Json], value: &Json, at: &str) -> Result<(), String> {
        let errors: Vec<String> = choices.iter().filter_map(|one| self.check(one, value, at).err()).collect();
        let valid = choices.len() - errors.len();
        if valid == 0 || (key == "oneOf" && valid > 1 && self.look == Look::All) {
            return Err(format!("{at}: {valid} of {key}: {}", errors.join("; ")));
        }
        Ok(())
    }
}

/// A tree of TOML as JSON; numbers that JSON has not as large ones.
fn json(value: &Value) -> Json {
    match value {
        Value::Table(table) => Json::Object(table.iter().map(|(key, value)| (key.clone(), json(value))).collect()),
        Value::Array(items) => items.iter().map(json).collect(),
        Value::String(text) => json!(text),
        Value::Integer(i) => json!(i),
        Value::Float(x) => json!(x.clamp(-1e300, 1e300)),
        Value::Boolean(b) => json!(b),
        Value::Datetime(date) => json!(date.to_string()),
    }
}

fn parsed(text: &str) -> Value {
    Value::Table(text.parse().unwrap_or_else(|e| panic!("{e}\n{text}")))
}

fn repository(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)).unwrap()
}

/// The files that must be valid, by name: those bundled, the examples of the documents, and [`SMALL`].
fn valid_files() -> Vec<(String, String)> {
    let mut files: Vec<(String, String)> = ALL.iter().map(|bundled| (bundled.id.to_string(), bundled.text.to_string())).collect();
    let pages = ["start/first-experiment.md", "reference/links.md", "reference/experiment-files.md"];
    for name in pages.map(|page| format!("docs/src/{page}")).iter().chain(&["README.md".to_string()]) {
        let text = repository(name);
        let examples = text.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap().to_string());
        files.extend(examples.enumerate().map(|(i, example)| (format!("{name}, example {i}"), example)));
    }
    files.push(("small".into(), SMALL.into()));
    files
}

#[test]
fn bundled_files_and_examples_are_valid() {
    let validator = Validator::new(Look::All);
    let files = valid_files();
    assert!(files.len() > ALL.len() + 3);
    for (name, text) in &files {
        assert_eq!(validator.refuses(&json(&parsed(text))), None, "{name}");
    }
    for text in [
        "[problem]\nkind = \"garnet\"\nagnts = 3",
        "[problem]\nkind = \"garnt\"",
        "[run]\nrounds = 0",
        "[[method]]\nkind = \"fedlsa\"\nstep_size = [1, 2]",
        "x = 1",
    ] {
        assert!(validator.refuses(&json(&parsed(text))).is_some(), "{text}");
    }
}

/// The schema itself is checked by another validator than that of the tests.
#[test]
fn another_validator_agrees() {
    let Some(interpreter) = fedsa_testing::python() else { return };
    let folder = Folder::new();
    let mut files: Vec<Json> = valid_files().iter().map(|(_, text)| json(&parsed(text))).collect();
    files.push(json(&parsed("[run]\nrounds = 0")));
    folder.write("files.json", serde_json::to_string(&files).unwrap());
    folder.write("schema.json", folder.run(&["schema"]).exits(0).stdout);
    let script = "import json, jsonschema\n\
        schema = json.load(open('schema.json'))\n\
        jsonschema.Draft202012Validator.check_schema(schema)\n\
        validator = jsonschema.Draft202012Validator(schema)\n\
        print([i for i, file in enumerate(json.load(open('files.json'))) if not validator.is_valid(file)])\n";
    let output = std::process::Command::new(interpreter).args(["-c", script]).current_dir(folder.path("")).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(out.trim(), format!("[{}]", files.len() - 1), "{err}");
}

#[test]
fn the_schema_is_printed_and_describes_keys() {
    let printed: Json = serde_json::from_str(&Folder::new().run(&["schema"]).exits(0).stdout).unwrap();
    assert_eq!(printed, of_files(&fedsa_experiment::Kinds::default()));
    assert_eq!(printed["$schema"], "https://json-schema.org/draft/2020-12/schema");
    assert!(printed["properties"]["run"]["properties"]["rounds"]["description"].as_str().unwrap().contains("number of rounds"));
    // Every key of every kind says what it is.
    for (place, keys) in key_sets() {
        for (key, schema) in keys.iter().filter(|(key, _)| !["law", "kind"].contains(&key.as_str())) {
            assert!(schema.get("description").is_some(), "{place}: {key} has no description");
        }
    }
    assert!(!printed.to_string().contains("[`"), "links of rustdoc");
}

/// The alternatives of a table with a kind: by the names of the kind (and law), their keys.
fn alternatives(schema: &Json, name: &str) -> Vec<(String, Map<String, Json>)> {
    let each = schema["anyOf"].as_array().unwrap().iter().flat_map(|one| {
        let keys = one["properties"].as_object().unwrap().clone();
        let law = keys.get("law").and_then(|law| law["const"].as_str()).map_or(String::new(), |law| format!(" {law}"));
        let kinds: Vec<String> = keys["kind"]["enum"].as_array().unwrap().iter().map(|k| k.as_str().unwrap().to_string()).collect();
        kinds.into_iter().map(move |kind| (format!("{name} {kind}{law}"), keys.clone())).collect::<Vec<_>>()
    });
    each.collect()
}

/// All tables of the schema with their keys.
pub fn key_sets() -> Vec<(String, Map<String, Json>)> {
    let schema = of_files(&fedsa_experiment::Kinds::default());
    let top = &schema["properties"];
    let uplink = &schema["$defs"]["UplinkSpec"]["properties"];
    let of = |name: &str| (name.to_string(), schema["$defs"][name]["properties"].as_object().unwrap_or_else(|| panic!("{name}")).clone());
    let mut all = vec![
        ("top".to_string(), top.as_object().unwrap().clone()),
        ("run".to_string(), top["run"]["properties"].as_object().unwrap().clone()),
    ];
    all.extend(
        ["Sampling", "Sweep", "Variant", "Figure", "Check", "UplinkSpec", "DownlinkSpec", "Federation", "Noise", "Decay", "Stop"].map(of),
    );
    all.extend(alternatives(&top["problem"], "problem"));
    all.extend(alternatives(&top["method"]["items"], "method"));
    all.extend(alternatives(&uplink["codec"], "codec"));
    all.extend(alternatives(&uplink["media"]["items"], "medium"));
    for (name, tag) in [("FeatureSpec", "kind"), ("Gain", "law")] {
        for one in schema["$defs"][name]["oneOf"].as_array().unwrap() {
            let keys = one["properties"].as_object().unwrap().clone();
            all.push((format!("{name} {}", keys[tag]["const"].as_str().unwrap()), keys));
        }
    }
    all
}

/// The keys that methods of all kinds have.
pub fn common_keys() -> Map<String, Json> {
    let methods: Vec<Map<String, Json>> =
        key_sets().into_iter().filter(|(name, _)| name.starts_with("method ")).map(|(_, keys)| keys).collect();
    let everywhere = methods[0].iter().filter(|(key, _)| methods.iter().all(|keys| keys.contains_key(*key)));
    let mut keys: Map<String, Json> = everywhere.map(|(key, schema)| (key.clone(), schema.clone())).collect();
    keys["kind"] = json!({ "type": "string", "description": "The method, or a preset." });
    keys
}

fn data() -> Folder {
    let folder = Folder::new();
    folder.write("p.npz", npz_bytes(&mrp()));
    folder.write("rows.csv", "a,b,label\n0,1,0\n1,0,1\n0.5,2,0\n3,1,1\n2,2,0\n1,3,1\n");
    folder.write(
        "a.csv",
        "s_0,phi_0,phi_next_0,next_0,reward,done,action\n0,1,2,1,2,0,0\n1,2,1,0.2,1,0,1\n0.2,1,0,1,0,1,0\n0.7,3,1,0.1,1,0,1\n",
    );
    folder
}

fn plan(text: &str, set: Option<&str>, folder: &Folder) -> Result<Plan, fedsa::error::Error> {
    let mut document = Document::parse("x", text)?;
    set.map_or(Ok(()), |set| fedsa_cli::commands::set(&mut document, set))?;
    Plan::new(Experiment::read(document)?, &folder.path(""), Isa::best(), &HashMap::new())
}

/// What the schema says is out of range, the program refuses.
#[test]
fn bounds_are_those_of_the_program() {
    let folder = data();
    let mut count = 0;
    for (name, keys) in key_sets() {
        let Some((text, place)) = complete(&name) else { continue };
        // A preset stands for its method.
        if ["qfedtd", "vanilla-fedtd", "oacfedtd", "asyncfedtd"].iter().any(|preset| name.ends_with(preset)) {
            continue;
        }
        // Its states are to be whole numbers, and it has no keys with bounds.
        if name == "FeatureSpec one-hot" {
            continue;
        }
        plan(&text, None, &folder).unwrap_or_else(|e| panic!("{name}: {e}\n{text}"));
        for (key, schema) in &keys {
            for (bound, beyond) in [("minimum", -1.0), ("maximum", 1.0), ("exclusiveMinimum", 0.0), ("exclusiveMaximum", 0.0)] {
                let Some(bound) = schema.get(bound).and_then(Json::as_f64) else { continue };
                let x = bound + beyond;
                let shown = if x.fract() == 0.0 { format!("{x:.0}") } else { x.to_string() };
                let set = format!("{place}.{key}={shown}");
                assert!(plan(&text, Some(&set), &folder).is_err(), "{name}: {set} is accepted");
                count += 1;
            }
        }
    }
    assert!(count > 100, "{count} bounds");
}

/// The places of all tables of a tree whose keys are those of the schema.
fn tables(value: &Json, place: &str, out: &mut Vec<String>) {
    let mut enter = |key: &str, child: &Json| tables(child, &format!("{place}/{key}"), out);
    match value {
        Json::Object(fields) => fields.iter().for_each(|(key, child)| enter(key, child)),
        Json::Array(items) => items.iter().enumerate().for_each(|(i, child)| enter(&i.to_string(), child)),
        _ => return,
    }
    // The settings of a variant become tables of the file only when they are applied.
    if value.is_object() && !place.contains("/set/") && !place.starts_with("/quick") {
        out.push(place.to_string());
    }
}

const TEXT: &str = r#"
[problem]
kind = "linear"
agents = 3
noise = { std = 0.5, radius = 0.3 }
[sampling]
kind = "markov"
start = { state = 0 }
[[method]]
kind = "fedlsa"
label = "a"
step_size = { c = 0.1, t0 = 10 }
local_steps = 3
expect = [{ at = { rounds = 4 }, status = "ok" }]
output = { tail = 0.5 }
downlink = { codec = { kind = "float32" } }
uplink = { codec = { kind = "quantised", bits = 8 }, media = [{ kind = "erasure", success = 0.9 }, { kind = "late", law = "constant", rounds = 1 }, { kind = "over-the-air", gain = { law = "constant", value = 0.5 } }] }
[[method]]
kind = "scafflsa"
label = "b"
step_size = 0.1
local_steps = 2
[federation]
deadline = 9.0
[run]
rounds = 5
record = { points = 2 }
stop = { residual = 1e-9 }
[[sweep]]
key = "run.rounds"
values = [3, 4]
[[variant]]
label = "v"
set = { "run.seeds" = 2 }
[figure]
levels = { b = ["floor"] }
[[check]]
kind = "reaches"
method = "b"
max = 1e9
"#;

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// A key put into a table is unknown to the program if it is to the schema.
    #[test]
    fn schema_and_program_agree_about_unknown_keys(which in any::<prop::sample::Index>(), key in any::<prop::sample::Index>(), odd in "[a-z_]{1,6}") {
        let folder = data();
        let mut file = parsed(TEXT);
        let mut places = Vec::new();
        tables(&json(&file), "", &mut places);
        let mut keys: Vec<String> = key_sets().into_iter().flat_map(|(_, keys)| keys.into_iter().map(|(key, _)| key)).collect();
        keys.push(odd);
        let (place, key) = (&places[which.index(places.len())], &keys[key.index(keys.len())]);
        let table = place.split('/').skip(1).fold(&mut file, |value, part| match value {
            Value::Array(items) => &mut items[part.parse::<usize>().unwrap()],
            other => other.get_mut(part).unwrap(),
        });
        let table = table.as_table_mut().unwrap();
        prop_assume!(!table.contains_key(key));
        table.insert(key.clone(), Value::Boolean(true));
        let schema = Validator::new(Look::Keys).refuses(&json(&file));
        let document = Document::of_table(file.as_table().unwrap().clone(), Vec::new());
        let program = Experiment::read(document).and_then(|experiment| experiment.settings().map(|()| experiment));
        let program = program.err().filter(|e| e.code() == fedsa::error::ErrorCode::UnknownKey);
        prop_assert_eq!(schema.is_some(), program.is_some(), "{} in {}: {:?}, {:?}", key, place, schema, program);
        drop(folder);
    }
}

/// The words in backquotes that can be keys.
fn words(cell: &str) -> BTreeSet<String> {
    let quoted = cell.split('`').skip(1).step_by(2).map(|word| word.trim_matches(['[', ']']).to_string());
    quoted
        .filter(|word| !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-+".contains(c)))
        .collect()
}

/// The keys of an inline table in backquotes: `{ law = "x", scale = 1 }`.
fn inline(cell: &str) -> BTreeMap<String, String> {
    let inner = cell.split('`').nth(1).unwrap_or_default();
    let table: toml::Table = format!("x = {inner}").parse().unwrap_or_default();
    let table = table.get("x").and_then(Value::as_table).cloned().unwrap_or_default();
    table.iter().map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_string())).collect()
}

/// The tables below a heading: heads and rows of cells.
fn markdown(text: &str, heading: &str) -> Vec<(Vec<String>, Vec<Vec<String>>)> {
    let level = heading.chars().take_while(|c| *c == '#').count();
    let below = text.lines().skip_while(|line| *line != heading).skip(1);
    let own = below.take_while(|line| !line.starts_with('#') || line.chars().take_while(|c| *c == '#').count() > level);
    // Those of sections within this one are found below their own headings.
    let own: Vec<&str> = own.take_while(|line| !line.starts_with('#')).collect();
    let cells = |line: &str| {
        let line = line.replace("\\|", "\u{0}");
        line.trim_matches('|').split('|').map(|cell| cell.trim().replace('\u{0}', "|")).collect::<Vec<_>>()
    };
    let mut out = Vec::new();
    for block in own.split(|line| !line.starts_with('|')).filter(|block| block.len() > 2) {
        out.push((cells(block[0]), block[2..].iter().map(|line| cells(line)).collect()));
    }
    assert!(!out.is_empty(), "no tables below {heading}");
    out
}

#[test]
fn tables_of_the_book_by_hand_are_those_of_the_schema() {
    let sets: HashMap<String, BTreeSet<String>> =
        key_sets().into_iter().map(|(name, keys)| (name, keys.into_iter().map(|(key, _)| key).collect())).collect();
    let first = |table: &(Vec<String>, Vec<Vec<String>>)| table.1.iter().flat_map(|row| words(&row[0])).collect::<BTreeSet<_>>();
    let names = |prefix: &str| sets.keys().filter_map(|name| name.strip_prefix(prefix)).map(str::to_string).collect::<BTreeSet<_>>();

    // Every problem has a section, and every kind of check a row.
    let problems = repository("docs/src/reference/problems.md");
    for kind in names("problem ") {
        assert!(problems.contains(&format!("\n## {kind}\n")), "no section for the problem {kind}");
    }
    let checks = markdown(&repository("docs/src/reference/check.md"), "# Checks");
    let kinds: BTreeSet<String> = of_files(&fedsa_experiment::Kinds::default())["$defs"]["Check"]["properties"]["kind"]["enum"]
        .as_array()
        .unwrap()
        .iter()
        .map(|k| k.as_str().unwrap().to_string())
        .collect();
    assert_eq!(first(checks.iter().find(|(heads, _)| heads[0] == "kind").unwrap()), kinds);

    // The list of methods and that of presets have all names.
    let methods = repository("docs/src/reference/methods.md");
    let listed = first(&markdown(&methods, "# Methods")[0]);
    let presets = first(&markdown(&methods, "## Presets")[0]);
    assert_eq!(listed.union(&presets).cloned().collect::<BTreeSet<_>>(), names("method "), "kinds of methods");

    // Codecs, media, laws, features.
    let links = repository("docs/src/reference/links.md");
    assert_eq!(first(&markdown(&links, "## Codecs")[0]), names("codec "));
    let media = markdown(&links, "## Media");
    let (kinds, laws): (BTreeSet<String>, BTreeSet<String>) = names("medium ")
        .iter()
        .map(|name| name.split_once(' ').unwrap_or((name, "")))
        .map(|(kind, law)| (kind.to_string(), law.to_string()))
        .unzip();
    assert_eq!(first(&media[0]), kinds);
    let listed = first(media.iter().find(|(heads, _)| heads[0] == "`law` of delays").unwrap());
    assert_eq!(listed, laws.into_iter().filter(|law| !law.is_empty()).collect());
    for row in &markdown(&problems, "## logs").iter().find(|(heads, _)| heads[0] == "`features`").unwrap().1 {
        let keys = inline(&row[0]);
        let all: BTreeSet<String> = keys.keys().cloned().chain(words(&row[1])).collect();
        assert_eq!(all, sets[&format!("FeatureSpec {}", keys["kind"])]);
    }
}
