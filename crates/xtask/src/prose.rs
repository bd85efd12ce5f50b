//! Sentences over which a reader of the documents stumbles: long ones, clauses as subjects, odd turns; long paragraphs and pages.

use std::path::Path;

/// The most words of a sentence.
const SENTENCE: usize = 30;
/// The most words of a paragraph.
const PARAGRAPH: usize = 90;
/// The most words of pages below a folder; the first folder that fits counts.
const PAGES: &[(&str, usize)] = &[
    ("docs/src/inside/decisions/index.md", 1500),
    ("docs/src/inside/decisions", 250),
    ("docs/src/guides", 900),
    ("docs/src/start", 400),
    ("docs/src/choose", 700),
    ("docs/src/concepts", 700),
    ("docs/src/evidence", 900),
    ("docs/src/extend/parts.md", 2000),
    ("docs/src/extend", 900),
];
/// Clauses that begin a sentence without an actor.
const SUBJECTS: &[&str] = &["What", "Who", "Whose", "That", "Those", "Which"];
/// Turns that have a plain form.
const TURNS: &[&str] = &[
    "that of",
    "those of",
    "the one of",
    "the ones of",
    "anew",
    "goes on with",
    "go on with",
    "is told",
    "are told",
    "comes about",
    "come about",
    "stands in",
    "stand in",
    "but where",
    "but for",
    "beside it",
    "besides",
    "of one's own",
    "nobody",
];

/// What is wrong with a document, a line each.
pub fn faults(path: &Path, text: &str) -> Vec<String> {
    let name = path.display().to_string();
    if name.ends_with("SUMMARY.md")
        || !(name.starts_with("docs/src") || ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].contains(&&*name))
    {
        return Vec::new();
    }
    let mut wrong = Vec::new();
    let words = text.split_whitespace().count();
    if let Some((_, most)) = PAGES.iter().find(|(folder, _)| path.starts_with(folder)).filter(|(_, most)| words > *most) {
        wrong.push(format!("{name}: {words} words, more than {most}"));
    }
    for paragraph in paragraphs(text) {
        let words = paragraph.split_whitespace().count();
        if words > PARAGRAPH {
            wrong.push(format!("{name}: a paragraph of {words} words: {}", start(&paragraph)));
        }
        for sentence in sentences(&paragraph) {
            if let Some(why) = fault(&sentence) {
                wrong.push(format!("{name}: {why}: {}", start(&sentence)));
            }
        }
    }
    wrong
}

/// The first words of a text.
fn start(text: &str) -> String {
    text.chars().take(100).collect()
}

/// Why a reader stumbles over a sentence, if one does.
fn fault(sentence: &str) -> Option<String> {
    let words: Vec<&str> = sentence.split_whitespace().collect();
    if words.len() > SENTENCE {
        return Some(format!("{} words", words.len()));
    }
    let is_question = sentence.contains('?') || words.get(1).is_some_and(|word| ["is", "are", "does"].contains(word));
    if words.len() > 3 && SUBJECTS.contains(&words[0]) && !is_question {
        return Some("a clause as the subject".into());
    }
    let plain = format!(" {} ", words.iter().map(|word| word.trim_matches([',', '.', ';', ':', '(', ')'])).collect::<Vec<_>>().join(" "));
    let turn = TURNS.iter().find(|turn| plain.contains(&format!(" {turn} ")))?;
    Some(format!("`{turn}`: say it plainly"))
}

/// The paragraphs and list items of prose in a document, with code as `x` and links as their texts.
fn paragraphs(text: &str) -> Vec<String> {
    let (mut out, mut current, mut is_code) = (Vec::new(), String::new(), false);
    for line in text.lines().chain([""]) {
        let inner = line.trim_start();
        if inner.starts_with("```") {
            is_code = !is_code;
        }
        let is_prose = !is_code && !line.starts_with("    ") && !["|", "#", "<!--", "```", "!["].iter().any(|mark| inner.starts_with(mark));
        let item =
            inner.strip_prefix("- ").or_else(|| inner.split_once(". ").filter(|(n, _)| n.parse::<u8>().is_ok()).map(|(_, rest)| rest));
        if !is_prose || inner.is_empty() || item.is_some() {
            out.extend((!current.is_empty()).then(|| std::mem::take(&mut current)));
        }
        if is_prose && !inner.is_empty() {
            current.push_str(item.unwrap_or(inner));
            current.push(' ');
        }
    }
    out.iter().map(|paragraph| plain(paragraph)).collect()
}

/// A paragraph with code as `x`, and links as their texts.
fn plain(paragraph: &str) -> String {
    let without_code: String = paragraph.split('`').enumerate().map(|(i, piece)| if i % 2 == 0 { piece } else { "x" }).collect();
    let mut out = String::new();
    let mut rest = &without_code[..];
    while let Some(at) = rest.find("](") {
        out.push_str(&rest[..at]);
        rest = rest[at..].find(')').map_or("", |end| &rest[at + end + 1..]);
    }
    (out + rest).replace(['[', ']', '*'], "")
}

/// The sentences of a paragraph: they end before a capital.
fn sentences(paragraph: &str) -> Vec<String> {
    let mut out = vec![String::new()];
    let words: Vec<&str> = paragraph.split_whitespace().collect();
    for (i, word) in words.iter().enumerate() {
        let last = out.last_mut().expect("a sentence");
        last.push_str(word);
        last.push(' ');
        let ends = word.trim_end_matches(')').ends_with(['.', '!', '?', ':', ';']);
        if ends && words.get(i + 1).is_some_and(|next| next.starts_with(|c: char| c.is_uppercase() || c == 'x')) {
            out.push(String::new());
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_and_odd_sentences_are_found() {
        let found = |text: &str| faults(Path::new("docs/src/guides/a.md"), text);
        assert_eq!(found("The server waits. `fedsa run FILE` [shows](b.md) it."), [] as [&str; 0]);
        assert!(found(&"word ".repeat(31))[0].contains("31 words"));
        assert!(found("What no agent has is refused here.")[0].contains("a clause as the subject"));
        assert_eq!(found("What does it cost? Which is it?"), [] as [&str; 0]);
        assert!(found("Its hash is\nthat of the settings.")[0].contains("`that of`"));
        assert_eq!(found("```\nWhat no agent has is refused here.\n```\n| What no agent has is refused |\n"), [] as [&str; 0]);
        assert!(found(&"One two three. ".repeat(31))[0].contains("a paragraph of 93 words"));
        assert!(found(&"- One two.\n".repeat(301))[0].contains("903 words, more than 900"));
        assert!(faults(Path::new("docs/src/SUMMARY.md"), "What no agent has is refused here.").is_empty());
    }
}
