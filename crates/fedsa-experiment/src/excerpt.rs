//! Excerpts of files in messages: the lines around a place, without control characters.

use std::borrow::Cow;
use std::ops::Range;

use fedsa::error::{Excerpt, FileLocation, escaped, is_control};

/// The largest number of characters of a line that is shown whole.
const WHOLE: usize = 200;
/// The number of characters of a longer line that are shown before the place, and after its start.
const BEFORE: usize = 60;
const AFTER: usize = 100;
/// The largest number of lines of a place.
const LINES: usize = 6;

/// The place of a range of a text's bytes, with the lines around it; long lines are cut to a window around the place.
pub fn place(name: &str, text: &str, place: Range<usize>) -> FileLocation {
    let boundary = |i: usize| (0..=i.min(text.len())).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0);
    let (start, end) = (boundary(place.start), boundary(place.end.max(place.start)));
    let start_of_line = |i: usize| text[..i].rfind('\n').map_or(0, |at| at + 1);
    let own_line = start_of_line(start);
    let line = text.as_bytes()[..own_line].iter().filter(|byte| **byte == b'\n').count();
    let from = if own_line == 0 { 0 } else { start_of_line(own_line - 1) };
    let mut out = Lines { text: String::new(), span: 0..0 };
    let (mut begin, mut ended, mut lines) = (from, None, 0);
    for piece in text[from..].split_inclusive('\n') {
        let whole = begin..begin + piece.trim_end_matches(['\n', '\r']).len();
        out.push(text, &whole, start, end);
        begin += piece.len();
        lines += 1;
        // One line more than the place has.
        if ended.is_some() || lines > LINES {
            break;
        }
        ended = (begin >= end && begin > start).then_some(());
    }
    let span = out.span.start..out.span.end.max(out.span.start);
    let excerpt = Excerpt { text: out.text, span, first: line - usize::from(own_line > 0) };
    FileLocation { file: escaped(name), line: Some(line + 1), column: Some(start - own_line + 1), excerpt: Some(excerpt) }
}

/// The lines so far, and the place in them.
struct Lines {
    text: String,
    span: Range<usize>,
}

impl Lines {
    /// Adds a line of the text.
    fn push(&mut self, text: &str, line: &Range<usize>, start: usize, end: usize) {
        let focus = if line.contains(&start) || line.end == start { start } else { line.start };
        let long = text[line.clone()].chars().nth(WHOLE).is_some();
        let (from, to) = if long {
            let before = text[line.start..focus].char_indices().rev().nth(BEFORE - 1).map_or(line.start, |(i, _)| line.start + i);
            let after = text[focus..line.end].char_indices().nth(AFTER).map_or(line.end, |(i, _)| focus + i);
            (before, after)
        } else {
            (line.start, line.end)
        };
        if from > line.start {
            self.text.push_str("..");
        }
        for (i, c) in text[from..to].char_indices().map(|(i, c)| (from + i, c)) {
            if i == start {
                self.span = self.text.len()..self.text.len();
            }
            self.text.push(if is_control(c) && c != '\t' { char::REPLACEMENT_CHARACTER } else { c });
            if (start..end).contains(&i) {
                self.span.end = self.text.len();
            }
        }
        // The place may be the end of the line.
        if start == to {
            self.span = self.text.len()..self.text.len();
        }
        if to < line.end {
            self.text.push_str("..");
        }
        self.text.push('\n');
    }
}

/// A text of several lines, with control characters escaped.
pub fn harmless(text: &str) -> Cow<'_, str> {
    let steers = |c: char| is_control(c) && !matches!(c, '\n' | '\t');
    if !text.contains(steers) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if steers(c) { out.extend(c.escape_default()) } else { out.push(c) }
    }
    Cow::Owned(out)
}

/// As [`harmless`], cut to at most `most` characters.
pub fn harmless_part(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}..", harmless(&text[..end])),
        None => harmless(text).into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, place: Range<usize>) -> (String, String, (usize, usize)) {
        let place = super::place("f", text, place);
        let Excerpt { text, span, .. } = place.excerpt.unwrap();
        (text.clone(), text[span].to_string(), (place.line.unwrap() - 1, place.column.unwrap() - 1))
    }

    #[test]
    fn the_lines_around_a_place_are_shown() {
        let text = "a = 1\nb = 2\r\nc = é3\nd = 4\ne = 5\n";
        let at = text.find("é3").unwrap();
        assert_eq!(shown(text, at..at + 3), ("b = 2\nc = é3\nd = 4\n".into(), "é3".into(), (2, 4)));
        assert_eq!(shown(text, 0..1), ("a = 1\nb = 2\n".into(), "a".into(), (0, 0)));
        assert_eq!(shown("x", 1..1), ("x\n".into(), String::new(), (0, 1)));
        assert_eq!(shown("", 0..0), (String::new(), String::new(), (0, 0)));
        assert_eq!(shown("x\ny", 900..901).1, "");
    }

    #[test]
    fn long_lines_are_cut_around_the_place() {
        let text = format!("short\n{}HERE{}\n{}", "x".repeat(1_000_000), "y".repeat(1_000_000), "z".repeat(5000));
        let at = text.find("HERE").unwrap();
        let (lines, place, (line, column)) = shown(&text, at..at + 4);
        assert_eq!((place.as_str(), line, column), ("HERE", 1, 1_000_000));
        assert!(lines.len() < 500 && lines.starts_with("short\n..x") && lines.contains("y..\nzzz"), "{lines}");
        // All of it.
        let (lines, place, _) = shown(&text, 6..text.len());
        assert!(lines.len() < 500 && place.len() > 90, "{lines}");
    }

    #[test]
    fn control_characters_are_not_shown() {
        let (lines, place, _) = shown("a = \"\u{1b}[31m\"\tb", 4..10);
        assert_eq!((lines.as_str(), place.as_str()), ("a = \"\u{fffd}[31m\"\tb\n", "\"\u{fffd}[31m"));
        assert_eq!(harmless("a\nb\u{7}\tc"), "a\nb\\u{7}\tc");
        assert_eq!(harmless_part(&"é".repeat(100), 3), "ééé..");
    }
}
