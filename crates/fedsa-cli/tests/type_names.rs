//! No two public types of the crates have one name.

use std::collections::{BTreeMap, BTreeSet};

use crate::crate_rules::{CRATES, folder, lines_of_code, sources};

/// The public type that a line defines.
fn defined(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix("pub ")?;
    let name = ["struct ", "enum ", "trait ", "type "].iter().find_map(|word| rest.strip_prefix(word))?;
    name.split(|c: char| !(c.is_alphanumeric() || c == '_')).next()
}

#[test]
fn no_two_public_types_have_one_name() {
    let mut places: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for name in CRATES {
        let mut files = Vec::new();
        sources(&folder(name).join("src"), &mut files);
        for file in files.iter().filter(|file| !file.ends_with("tests.rs")) {
            let text = std::fs::read_to_string(file).unwrap();
            for defined in lines_of_code(&text).filter_map(|(_, line)| defined(line)) {
                // A file may define a name twice, under conditions that exclude each other.
                places.entry(defined.to_string()).or_default().insert(file.display().to_string());
            }
        }
    }
    assert!(places.len() > 500, "types are read: {}", places.len());
    places.retain(|_, files| files.len() > 1);
    let wrong: Vec<String> = places.iter().map(|(name, files)| format!("{name}: {files:?}")).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn types_are_found() {
    assert_eq!(defined("pub struct Plan<'a> {"), Some("Plan"));
    assert_eq!(defined("    pub trait Rule: Sync {"), Some("Rule"));
    assert_eq!(defined("pub type Names = Vec<String>;"), Some("Names"));
    assert!(["struct Plan {", "pub(crate) enum A {", "pub fn plan() {", "pub typed: f64,"].iter().all(|line| defined(line).is_none()));
}
