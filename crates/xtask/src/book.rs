//! `cargo xtask book`: the book of the documents, its links, and its generated pages.
//!
//! Links are checked without mdBook: between pages, to headings, to files of the repository, to pictures. mdBook is needed only to make
//! the pages of the browser.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use crate::{cargo, root};

/// The version of mdBook with which the book is built.
const MDBOOK: &str = "0.5.4";
/// The folder of the book's pages.
const SOURCE: &str = "docs/src";
/// Documents with a size that readers can rely on: a path, the most lines, the most bytes.
const LIMITS: &[(&str, usize, usize)] = &[("README.md", 150, usize::MAX), ("ARCHITECTURE.md", usize::MAX, 12_288)];

/// The most words of the book.
const WORDS: usize = 60_000;

/// Checks the links, and builds the book into `docs/book`.
///
/// # Errors
/// When a link is dead, and when mdBook is missing or fails.
pub fn run() -> Result<(), String> {
    check()?;
    let built = Command::new("mdbook").args(["build", "docs"]).current_dir(root()).status();
    match built {
        Ok(status) if status.success() => {
            eprintln!("the book is in docs/book/index.html");
            Ok(())
        }
        Ok(status) => Err(format!("mdbook: {status}")),
        Err(e) if e.kind() == ErrorKind::NotFound => {
            Err(format!("the links are right, but mdbook is not on the PATH: cargo install mdbook --locked --version {MDBOOK}"))
        }
        Err(e) => Err(format!("mdbook: {e}")),
    }
}

/// Writes the pages that are made from the types: runs the test that compares them, and lets it write.
///
/// # Errors
/// When the test fails.
pub fn reference() -> Result<(), String> {
    let test = ["test", "--release", "-p", "fedsa-cli", "--test", "suites", "reference::pages_are_those_of_the_types"];
    let status = cargo(&test).env("FEDSA_WRITE_REFERENCE", "1").status().map_err(|e| e.to_string())?;
    if !status.success() {
        return Err("the reference was not written".into());
    }
    check()
}

/// Checks all links of the repository's documents, the table of contents, the sizes of documents, and their sentences.
///
/// # Errors
/// Lists what is wrong, a line each.
pub fn check() -> Result<(), String> {
    let mut texts = BTreeMap::new();
    collect(&root(), Path::new(""), &mut texts).map_err(|e| e.to_string())?;
    let mut wrong = dead_links(&texts, &|path| root().join(path).exists());
    wrong.extend(outside_of_the_contents(&texts));
    wrong.extend(too_long(&texts));
    wrong.extend(texts.iter().flat_map(|(path, text)| crate::prose::faults(path, text)));
    let count = texts.len();
    if wrong.is_empty() {
        eprintln!("{count} documents, no dead link");
        return Ok(());
    }
    Err(format!("{}\n{} mistakes in {count} documents", wrong.join("\n"), wrong.len()))
}

/// The documents below a folder, by their path from the root. Hidden folders and those of builds are left out.
fn collect(root: &Path, folder: &Path, out: &mut BTreeMap<PathBuf, String>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let name = entry.file_name();
        let path = folder.join(&name);
        let is_left_out =
            name.to_string_lossy().starts_with('.') || ["target", "out", "docs/book"].iter().any(|left| path == Path::new(left));
        if is_left_out {
            continue;
        }
        if entry.file_type()?.is_dir() {
            collect(root, &path, out)?;
        } else if is_document(&path) {
            out.insert(path.clone(), std::fs::read_to_string(root.join(&path))?);
        }
    }
    Ok(())
}

fn is_document(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "md")
}

/// The links that lead nowhere, a line each. `exists` says whether the repository has a file or folder.
fn dead_links(texts: &BTreeMap<PathBuf, String>, exists: &dyn Fn(&Path) -> bool) -> Vec<String> {
    let mut wrong = Vec::new();
    let headings: HashMap<&Path, BTreeSet<String>> = texts.iter().map(|(path, text)| (path.as_path(), anchors(text))).collect();
    for (path, text) in texts {
        for (line, target) in links(text) {
            let mut refuse = |why: &str| wrong.push(format!("{}:{line}: {target}: {why}", path.display()));
            if target.split_once(':').is_some_and(|(scheme, _)| scheme.chars().all(|c| c.is_ascii_alphabetic())) {
                continue;
            }
            let (file, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let full = match file {
                "" => Some(path.clone()),
                file => resolved(path.parent().unwrap_or(Path::new("")), file),
            };
            let Some(full) = full else {
                refuse("is outside of the repository");
                continue;
            };
            if !exists(&full) && !texts.contains_key(&full) {
                refuse("there is no such file");
            } else if path.starts_with(SOURCE) && is_document(&full) && !full.starts_with(SOURCE) {
                refuse("mdBook takes links to documents for pages, and this one is outside of the book: name the file without a link");
            } else if !anchor.is_empty() && !headings.get(full.as_path()).is_some_and(|known| known.contains(anchor)) {
                refuse("there is no such heading");
            }
        }
    }
    wrong
}

/// A relative path from a folder, without `..`; nothing if it leaves the root.
fn resolved(folder: &Path, file: &str) -> Option<PathBuf> {
    let mut out = PathBuf::new();
    for part in folder.join(file).components() {
        match part {
            Component::Normal(name) => out.push(name),
            Component::ParentDir => {
                if !out.pop() {
                    return None;
                }
            }
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(out)
}

/// The lines of a document outside of blocks of code, with their numbers, without what is code within them.
fn prose(text: &str) -> Vec<(usize, String)> {
    let mut out = Vec::new();
    let mut fence: Option<&str> = None;
    let mut follows_blank = true;
    let mut is_code = false;
    for (number, line) in text.lines().enumerate() {
        let trimmed = line.trim_start();
        let mark = ["```", "~~~"].into_iter().find(|mark| trimmed.starts_with(mark));
        match (fence, mark) {
            (Some(open), Some(mark)) if open == mark => fence = None,
            (None, Some(mark)) => fence = Some(mark),
            (Some(_), _) => {}
            (None, None) => {
                is_code = line.starts_with("    ") && (follows_blank || is_code);
                if !is_code {
                    out.push((number + 1, without_code(line)));
                }
            }
        }
        follows_blank = trimmed.is_empty();
    }
    out
}

/// A line without its spans of code.
fn without_code(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some(start) = rest.find('`') {
        let ticks = rest[start..].chars().take_while(|c| *c == '`').count();
        let (before, after) = (&rest[..start], &rest[start + ticks..]);
        out.push_str(before);
        match after.find(&"`".repeat(ticks)) {
            Some(end) => rest = &after[end + ticks..],
            // It ends on another line, or nowhere.
            None => rest = after,
        }
    }
    out + rest
}

/// The targets of the links and pictures of a document, with their lines.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut out = Vec::new();
    for (number, line) in prose(text) {
        for (at, _) in line.match_indices("](") {
            let target: String = line[at + 2..].chars().take_while(|c| !c.is_whitespace() && *c != ')').collect();
            out.push((number, target));
        }
    }
    out
}

/// The anchors of a document's headings, as mdBook and the usual hosts of repositories make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut out = BTreeSet::new();
    // Code in headings belongs to their anchors.
    let lines: Vec<&str> = text.lines().collect();
    for (number, _) in prose(text) {
        let line = lines[number - 1];
        let level = line.chars().take_while(|c| *c == '#').count();
        let Some(title) = line[level..].strip_prefix(' ').filter(|_| (1..=6).contains(&level)) else { continue };
        let anchor = anchor(title);
        let count = seen.entry(anchor.clone()).or_default();
        out.insert(if *count == 0 { anchor } else { format!("{anchor}-{count}") });
        *count += 1;
    }
    out
}

/// The anchor of a heading: its letters, digits, `-` and `_` in lower case, `-` for blanks.
fn anchor(title: &str) -> String {
    let mut text = String::new();
    let mut rest = title.trim();
    // Of a link in a heading only its text counts.
    while let Some((before, after)) = rest.split_once("](") {
        text.push_str(before);
        rest = after.split_once(')').map_or("", |(_, after)| after);
    }
    text.push_str(rest);
    let kept = text.chars().filter_map(|c| match c {
        c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c.to_ascii_lowercase()),
        c if c.is_whitespace() => Some('-'),
        _ => None,
    });
    kept.collect()
}

/// Pages that the table of contents lacks or names twice.
fn outside_of_the_contents(texts: &BTreeMap<PathBuf, String>) -> Vec<String> {
    let summary = Path::new(SOURCE).join("SUMMARY.md");
    let Some(contents) = texts.get(&summary) else { return vec![format!("{} is missing", summary.display())] };
    let named: Vec<PathBuf> = links(contents).into_iter().filter_map(|(_, target)| resolved(Path::new(SOURCE), &target)).collect();
    let pages = texts.keys().filter(|path| path.starts_with(SOURCE) && **path != summary);
    let counted = pages.map(|page| (page, named.iter().filter(|name| *name == page).count()));
    let wrong = counted.filter(|(_, count)| *count != 1);
    wrong.map(|(page, count)| format!("{}: {count} times in {}", page.display(), summary.display())).collect()
}

/// Documents that are longer than their readers were told.
fn too_long(texts: &BTreeMap<PathBuf, String>) -> Vec<String> {
    let sizes = LIMITS.iter().filter_map(|limit| Some((limit, texts.get(Path::new(limit.0))?)));
    let long = sizes.filter(|((_, lines, bytes), text)| text.lines().count() > *lines || text.len() > *bytes);
    let long = long.map(|((path, ..), text)| format!("{path}: {} lines and {} bytes are too many", text.lines().count(), text.len()));
    let book = texts.iter().filter(|(path, _)| path.starts_with(SOURCE));
    // Marks of tables and lists are no words.
    let words = book.flat_map(|(_, text)| text.split_whitespace()).filter(|word| word.contains(char::is_alphanumeric)).count();
    long.chain((words > WORDS).then(|| format!("the book: {words} words, more than {WORDS}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(files: &[(&str, &str)]) -> BTreeMap<PathBuf, String> {
        files.iter().map(|(path, text)| (PathBuf::from(path), (*text).to_string())).collect()
    }

    fn dead(files: &[(&str, &str)]) -> Vec<String> {
        dead_links(&texts(files), &|path| path == Path::new("crates/x.rs") || path == Path::new("docs/src/a.svg"))
    }

    #[test]
    fn anchors_are_those_of_the_headings() {
        let text = "# Reading `fedsa theory`\n## What it is, and why\n## A\n### A\n```\n# no heading\n```\n## See [a link](b.md)\n#none\n";
        let expected = ["reading-fedsa-theory", "what-it-is-and-why", "a", "a-1", "see-a-link"];
        assert_eq!(anchors(text), expected.map(String::from).into());
    }

    #[test]
    fn links_that_lead_somewhere_are_accepted() {
        let page = "# Top\n[a](b.md#two-words) [b](../../crates/x.rs) ![c](a.svg) [d](#top) [e](https://x.y/z) [over\nlines](b.md)\n";
        assert_eq!(dead(&[("docs/src/a.md", page), ("docs/src/b.md", "## Two words\n")]), Vec::<String>::new());
    }

    #[test]
    fn dead_links_are_named_with_their_line() {
        for (link, why) in [
            ("c.md", "no such file"),
            ("b.md#three", "no such heading"),
            ("#none", "no such heading"),
            ("../../../x", "outside of the repository"),
            ("/etc/passwd", "outside of the repository"),
            ("../../README.md", "outside of the book"),
            ("a.svg#x", "no such heading"),
        ] {
            let text = format!("# Top\n\ntext [name]({link})\n");
            let found = dead(&[("docs/src/a.md", &text), ("docs/src/b.md", ""), ("README.md", "")]);
            assert_eq!(found.len(), 1, "{link}: {found:?}");
            assert!(found[0].starts_with("docs/src/a.md:3: ") && found[0].contains(why), "{found:?}");
        }
        // Other documents may link to documents outside of the book.
        assert_eq!(dead(&[("README.md", "[a](CHANGELOG.md)\n"), ("CHANGELOG.md", "")]), Vec::<String>::new());
    }

    #[test]
    fn code_has_no_links() {
        let text =
            "`[a](no.md)` and ``x ` [a](no.md)``\n\n    [a](no.md)\n\n    [b](no.md)\n\n```toml\n[a](no.md)\n```\n- item\n    [c](no.md)\n";
        let found = dead(&[("a.md", text)]);
        assert_eq!(found, ["a.md:11: no.md: there is no such file"]);
    }

    #[test]
    fn pages_are_in_the_contents_once() {
        let files = [
            ("docs/src/SUMMARY.md", "[a](a.md)\n[a](a.md)\n[b](x/b.md)\n"),
            ("docs/src/a.md", ""),
            ("docs/src/x/b.md", ""),
            ("docs/src/c.md", ""),
        ];
        let wrong = outside_of_the_contents(&texts(&files));
        assert_eq!(wrong, ["docs/src/a.md: 2 times in docs/src/SUMMARY.md", "docs/src/c.md: 0 times in docs/src/SUMMARY.md"]);
    }

    #[test]
    fn documents_keep_to_their_sizes() {
        let long = "x\n".repeat(201);
        assert_eq!(too_long(&texts(&[("README.md", &long), ("ARCHITECTURE.md", &long)])).len(), 1);
        for (words, mistakes) in [(60_000, 0), (60_001, 1)] {
            assert_eq!(too_long(&texts(&[("docs/src/a.md", &"| word ".repeat(words))])).len(), mistakes);
        }
    }
}
