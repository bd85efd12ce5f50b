//! What the files of a crate import of each other, read from their text.
//!
//! A file imports another where its code, without its tests, names something of it. A name that a module hands on (`pub use`) is one of
//! the file that defines it, and handing on names of its own children is no import.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::crate_rules::{folder, sources};

/// A path of names, from the root of the crate.
pub type Names = Vec<String>;

/// A source file.
#[derive(Default)]
pub struct Source {
    file: String,
    /// The names that it hands on, and the paths that they stand for, relative to the file.
    handed: Vec<(String, Names)>,
    /// The modules of which it hands on everything, relative to the file.
    all_of: Vec<Names>,
    /// The paths that its code names otherwise, relative to the file.
    named: Vec<Names>,
    /// What it defines.
    defined: BTreeSet<String>,
}

/// The code of a file as words and marks: no comments, texts, or tests, which come last.
fn words(text: &str) -> Vec<String> {
    const TESTS: &str = "\n#[cfg(test)]\n";
    let is_module = |at: usize| text[at + TESTS.len()..].lines().next().is_some_and(|line| line.contains("mod ") && line.ends_with('{'));
    let text = &text[..text.match_indices(TESTS).map(|(at, _)| at).find(|at| is_module(*at)).unwrap_or(text.len())];
    let mut words: Vec<String> = Vec::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let skip = match c {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '"' => {
                let mut end = 1;
                while end < rest.len() && !rest[end..].starts_with('"') {
                    end += if rest[end..].starts_with('\\') { 2 } else { rest[end..].chars().next().map_or(1, char::len_utf8) };
                }
                end + 1
            }
            'r' if rest.starts_with("r#\"") => rest[3..].find("\"#").map_or(rest.len(), |at| at + 5),
            // A character, not the name of a lifetime.
            '\'' if rest[1..].chars().nth(1) == Some('\'') => 2 + rest[1..].chars().next().map_or(1, char::len_utf8),
            '\'' if rest.starts_with("'\\") => rest[2..].find('\'').map_or(rest.len(), |at| at + 3),
            ':' if rest.starts_with("::") => {
                words.push("::".into());
                2
            }
            c if c.is_alphanumeric() || c == '_' => {
                let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
                words.push(rest[..end].to_string());
                end
            }
            c => {
                if !c.is_whitespace() {
                    words.push(c.to_string());
                }
                c.len_utf8()
            }
        };
        rest = rest.get(skip..).unwrap_or("");
    }
    words
}

/// The paths of a `use` from `at` on, each with the name under which it is known, and where it ends.
fn tree(words: &[String], mut at: usize, before: &Names, found: &mut Vec<(String, Names)>) -> usize {
    let mut path = before.clone();
    let mut alias = None;
    while at < words.len() {
        match words[at].as_str() {
            "::" => {}
            "as" => {
                alias = Some(words[at + 1].clone());
                at += 1;
            }
            "{" => {
                at += 1;
                while words[at] != "}" {
                    at = tree(words, at, &path, found);
                    if words[at] == "," {
                        at += 1;
                    }
                }
                return at + 1;
            }
            "," | "}" | ";" => break,
            word => path.push(word.to_string()),
        }
        at += 1;
    }
    if path.last().is_some_and(|last| last == "self") {
        path.pop();
    }
    if path.len() > before.len() || words[at - 1] == "self" {
        let name = alias.unwrap_or_else(|| path.last().cloned().unwrap_or_default());
        found.push((name, path));
    }
    at
}

pub fn read(file: String, text: &str) -> Source {
    let words = words(text);
    let mut source = Source { file, ..Source::default() };
    let mut at = 0;
    while at < words.len() {
        let word = words[at].as_str();
        let before = at.checked_sub(1).map_or("", |i| words[i].as_str());
        if ["fn", "struct", "enum", "trait", "type", "const", "static", "union"].contains(&word) && at + 1 < words.len() {
            source.defined.insert(words[at + 1].clone());
        }
        if word == "macro_rules" {
            source.defined.insert(words[at + 2].clone());
        }
        if word == "use" && [";", "}", "]", "", "pub", ")", "{"].contains(&before) {
            let mut found = Vec::new();
            at = tree(&words, at + 1, &Names::new(), &mut found);
            for (name, path) in found {
                if before != "pub" && before != ")" {
                    source.named.push(path);
                } else if name == "*" {
                    source.all_of.push(path[..path.len() - 1].to_vec());
                } else {
                    source.handed.push((name, path));
                }
            }
        } else if ["crate", "super"].contains(&word)
            && before != "::"
            && before != "("
            && words.get(at + 1).is_some_and(|next| next == "::")
        {
            let mut path = vec![word.to_string()];
            let mut end = at + 1;
            while words.get(end).is_some_and(|w| w == "::") && words.get(end + 1).is_some_and(|w| w.starts_with(char::is_alphabetic)) {
                path.push(words[end + 1].clone());
                end += 2;
            }
            source.named.push(path);
        }
        at += 1;
    }
    source
}

/// The files of a crate by the paths of their modules, without those of tests.
fn modules(root: &Path) -> BTreeMap<Names, Source> {
    let mut files = Vec::new();
    sources(root, &mut files);
    let module = |path: &PathBuf| {
        let file = path.strip_prefix(root).unwrap();
        let mut names: Names = file.with_extension("").iter().map(|name| name.to_string_lossy().into_owned()).collect();
        names.pop_if(|name| ["mod", "lib", "main"].contains(&name.as_str()));
        (names, read(file.display().to_string(), &std::fs::read_to_string(path).unwrap()))
    };
    let is_test = |path: &&PathBuf| path.file_stem().is_some_and(|name| name.to_string_lossy().starts_with("tests"));
    files.iter().filter(|path| !is_test(path)).map(module).collect()
}

/// The module in whose file a path ends that the file of module `from` names; `None` for what is not of the crate.
fn target(all: &BTreeMap<Names, Source>, from: &Names, path: &Names, depth: usize) -> Option<Names> {
    let (mut at, mut rest) = match path.first()?.as_str() {
        "crate" => (Names::new(), &path[1..]),
        "self" => (from.clone(), &path[1..]),
        "super" => {
            let ups = path.iter().take_while(|name| *name == "super").count();
            (from[..from.len().checked_sub(ups)?].to_vec(), &path[ups..])
        }
        first if all.contains_key(&[&from[..], &[first.to_string()]].concat()) => (from.clone(), &path[..]),
        _ => return None,
    };
    while let Some(name) = rest.first() {
        let inner = [&at[..], std::slice::from_ref(name)].concat();
        if all.contains_key(&inner) {
            (at, rest) = (inner, &rest[1..]);
            continue;
        }
        let Some(source) = all.get(&at) else { return Some(at) };
        if depth > 0 && !source.defined.contains(name) {
            if let Some((_, path)) = source.handed.iter().find(|(handed, _)| handed == name) {
                return target(all, &at, path, depth - 1);
            }
            let has = |of: &Names| {
                let module = target(all, &at, of, depth - 1)?;
                all.get(&module).is_some_and(|source| source.defined.contains(name)).then_some(module)
            };
            if let Some(module) = source.all_of.iter().find_map(has) {
                return Some(module);
            }
        }
        break;
    }
    Some(at)
}

/// What each file imports.
pub type Arrows = BTreeMap<String, BTreeSet<String>>;

/// The imports of these files of a crate.
pub fn imports(all: &BTreeMap<Names, Source>) -> Arrows {
    let mut arrows = Arrows::new();
    for (module, source) in all {
        let named = source.named.iter().chain(source.handed.iter().map(|(_, path)| path));
        let targets = named.filter_map(|path| Some((path, target(all, module, path, 4)?)));
        // Handing on what children define is no import.
        let is_handed = |path: &Names, to: &Names| source.handed.iter().any(|(_, handed)| handed == path) && to.starts_with(module);
        let to = targets.filter(|(path, to)| to != module && !is_handed(path, to)).filter_map(|(_, to)| Some(all.get(&to)?.file.clone()));
        arrows.entry(source.file.clone()).or_default().extend(to);
    }
    arrows
}

/// The imports of the files of a crate of this workspace.
pub fn imports_of(name: &str) -> Arrows {
    let arrows = imports(&modules(&folder(name).join("src")));
    assert!(arrows.values().map(BTreeSet::len).sum::<usize>() > arrows.len() / 2, "{name}: imports are read");
    arrows
}
