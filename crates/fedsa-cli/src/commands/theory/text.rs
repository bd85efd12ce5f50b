//! Lines of a page: headings, wrapped paragraphs, and tables whose last column is wrapped.

use textwrap::WordSplitter::NoHyphenation;
use textwrap::{Options, WordSeparator};

/// The width of the page in characters.
pub const WIDTH: usize = 100;
/// The indentation below a heading.
const INDENT: &str = "  ";
/// The narrowest last column of a table.
const NARROWEST: usize = 24;

/// A page under construction.
#[derive(Debug, Default)]
pub struct Page {
    lines: Vec<String>,
}

fn wrapped(text: &str, first: &str, others: &str) -> Vec<String> {
    let options = Options::new(WIDTH).initial_indent(first).subsequent_indent(others).break_words(false);
    let options = options.word_separator(WordSeparator::AsciiSpace).word_splitter(NoHyphenation);
    textwrap::wrap(text, options).into_iter().map(std::borrow::Cow::into_owned).collect()
}

impl Page {
    /// A heading, underlined.
    pub fn title(&mut self, text: &str) {
        self.gap();
        let lines = wrapped(text, "", "");
        let longest = lines.iter().map(|line| line.chars().count()).max().unwrap_or(0);
        self.lines.extend(lines);
        self.lines.push("-".repeat(longest));
    }

    /// A heading within a section.
    pub fn heading(&mut self, text: &str) {
        self.gap();
        self.lines.extend(wrapped(text, "", INDENT));
    }

    /// A paragraph.
    pub fn paragraph(&mut self, text: &str) {
        self.lines.extend(wrapped(text, INDENT, INDENT));
    }

    /// Rows with equal numbers of cells. Columns but the last are as wide as their widest cell.
    pub fn table(&mut self, rows: &[Vec<String>]) {
        let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns.saturating_sub(1)).map(width).collect();
        let before = 2 * INDENT.len() + widths.iter().map(|width| width + 2).sum::<usize>();
        for row in rows {
            let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}  "));
            let head = format!("{INDENT}{INDENT}{}", cells.collect::<String>());
            let last = row.get(columns - 1).map_or("", String::as_str);
            if last.is_empty() {
                self.lines.push(head.trim_end().to_string());
            } else if before + NARROWEST > WIDTH && head.chars().count() + last.chars().count() > WIDTH {
                // A separate line.
                self.lines.push(head.trim_end().to_string());
                let indent = INDENT.repeat(4);
                self.lines.extend(wrapped(last, &indent, &indent));
            } else {
                self.lines.extend(wrapped(last, &head, &" ".repeat(before)));
            }
        }
    }

    /// An empty line, unless there is one or the page is empty.
    pub fn gap(&mut self) {
        if self.lines.last().is_some_and(|line| !line.is_empty()) {
            self.lines.push(String::new());
        }
    }

    /// Removes and returns the lines so far; an empty line precedes the next ones.
    pub fn take(&mut self) -> Vec<String> {
        let lines = std::mem::take(&mut self.lines);
        self.lines.push(String::new());
        lines
    }
}

/// A row of a table.
pub fn row(cells: &[&str]) -> Vec<String> {
    cells.iter().map(|cell| (*cell).to_string()).collect()
}

/// A sentence: its first letter in upper case, and a full stop.
pub fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map_or(String::new(), |c| c.to_uppercase().collect());
    let end = if text.ends_with('.') { "" } else { "." };
    format!("{first}{}{end}", letters.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_wrapped_and_tables_aligned() {
        let mut page = Page::default();
        page.title("a title");
        page.paragraph(&"word ".repeat(40));
        page.table(&[row(&["a", "1", "short"]), row(&["long name", "22", &"text ".repeat(40)]), row(&["b", "3", ""])]);
        let lines = page.take();
        assert_eq!(&lines[..2], ["a title", "-------"]);
        assert!(lines.iter().all(|line| line.chars().count() <= WIDTH && !line.ends_with(' ')), "{lines:#?}");
        assert!(lines[2].starts_with("  word") && lines[2].len() > 90);
        let at = |text: &str| lines.iter().find(|line| line.contains(text)).unwrap().find(text).unwrap();
        assert_eq!((at("short"), at("22") < at("text")), (at("text"), true));
        assert!(lines.contains(&"    b          3".to_string()), "{lines:#?}");
        page.paragraph("more");
        assert_eq!(page.take(), ["", "  more"]);
        assert_eq!((sentence("not known"), sentence("Done.")), ("Not known.".to_string(), "Done.".to_string()));
    }

    #[test]
    fn long_words_and_wide_tables_are_not_cut() {
        let mut page = Page::default();
        page.paragraph(&"x".repeat(300));
        page.table(&[row(&[&"y".repeat(90), "z"]), row(&["y", &"more ".repeat(40)])]);
        let lines = page.take();
        assert!(lines.concat().contains(&"x".repeat(300)) && lines.iter().any(|line| line.ends_with("y  z")), "{lines:#?}");
        assert!(lines.iter().all(|line| line.chars().count() <= WIDTH || line.contains("xxx")), "{lines:#?}");
    }
}
