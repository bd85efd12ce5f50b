//! HTML text.

use std::collections::HashMap;
use std::fmt::Write;

use serde_json::{Value as Json, json};

/// Text escaped for HTML elements and attributes. Characters that change the direction of the following text, or end lines in scripts,
/// appear as their numbers, so that a label cannot rearrange the page.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in shown(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// Text with numbers in place of characters that change how others appear.
fn shown(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' => out.push(c),
            c if is_hostile(c) => write!(out, "\u{27e8}U+{:04X}\u{27e9}", u32::from(c)).expect("a string takes all"),
            c => out.push(c),
        }
    }
    out
}

/// Whether a character changes how others appear.
fn is_hostile(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// JSON escaped for a `<script type="application/json">`, so that nothing in it can end the element.
pub fn json_in_script(json: &serde_json::Value) -> String {
    json.to_string().replace('<', "\\u003c").replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029")
}

/// A text cut to this number of characters.
pub fn clipped(text: &str, most: usize) -> String {
    if text.chars().count() <= most { text.to_string() } else { text.chars().take(most - 1).chain(['\u{2026}']).collect() }
}

/// A cell of a table.
pub enum Cell {
    /// Text.
    Text(String),
    /// A number with its text; tables sort by the number.
    Number(f64, String),
    /// An outcome, as a word with a colour.
    Tag(TagTone, String),
    /// Nothing.
    Empty,
}

/// The tone of a tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TagTone {
    /// As expected.
    Good,
    /// Worth a look.
    Note,
    /// Not as expected.
    Bad,
    /// Neutral.
    Plain,
}

impl TagTone {
    fn class(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Note => "note",
            Self::Bad => "bad",
            Self::Plain => "plain",
        }
    }

    /// A sign beside the word, so that colours are not essential.
    fn sign(self) -> &'static str {
        match self {
            Self::Good => "\u{2713} ",
            Self::Note => "! ",
            Self::Bad => "\u{2717} ",
            Self::Plain => "",
        }
    }
}

/// A word with a colour and a sign.
pub fn tag(tone: TagTone, text: &str) -> String {
    format!("<span class=\"tag {}\">{}{}</span>", tone.class(), tone.sign(), escaped(text))
}

/// The largest length of texts without a minimum width in a table.
const SHORT: usize = 48;
/// The largest length of texts that are not cut in a table; longer ones open at a click.
const FOLDED: usize = 200;
/// Tables with more rows than this show the number of first rows below; data for scripts, which sort and search, has all.
const LONG: usize = 300;
const FIRST: usize = 100;

/// A table with at most `most` rows in the page; it states the number of omitted rows.
pub fn table(caption: &str, heads: &[String], rows: &[Vec<Cell>], most: usize) -> String {
    let is_long = rows.len() > LONG;
    let mut out = format!(
        "<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"{0}\"><table class=\"sortable\"><caption>{0}</caption><thead><tr>",
        escaped(caption),
    );
    for (j, head) in heads.iter().enumerate() {
        let class = if is_numeric(rows, j) { " class=\"n\"" } else { "" };
        write!(out, "<th scope=\"col\"{class}>{}</th>", escaped(head)).expect("a string takes all");
    }
    out.push_str("</tr></thead><tbody>\n");
    for row in rows.iter().take(if is_long { FIRST.min(most) } else { most }) {
        out.push_str("<tr>");
        row.iter().for_each(|cell| out.push_str(&cell_html(cell)));
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table>");
    if is_long {
        let data = json_in_script(&columns_json(&rows[..rows.len().min(most)], heads.len()));
        write!(out, "<script type=\"application/json\" class=\"rows\">{data}</script>").expect("a string takes all");
    }
    out.push_str("</div>");
    if is_long {
        let (first, all) = (FIRST.min(most), rows.len());
        write!(out, "<p class=\"small first\">The first {first} of {all} rows; scripts sort, search and show all.</p>")
            .expect("a string takes all");
    }
    if rows.len() > most {
        write!(out, "<p class=\"small\">The page has {most} of {} rows; all are in <code>summary.json</code>.</p>", rows.len())
            .expect("a string takes all");
    }
    out
}

/// The columns of a table as data: the distinct cells of each, and the index of each row's cell. A cell is a text, a number with its text,
/// a tag with its class and text, or null.
fn columns_json(rows: &[Vec<Cell>], columns: usize) -> Json {
    let column = |j: usize| {
        let mut places: HashMap<String, usize> = HashMap::new();
        let mut cells: Vec<Json> = Vec::new();
        let mut at: Vec<usize> = Vec::with_capacity(rows.len());
        for row in rows {
            let cell = cell_json(&row[j]);
            let next = cells.len();
            at.push(*places.entry(cell.to_string()).or_insert_with(|| {
                cells.push(cell);
                next
            }));
        }
        if cells.len() == rows.len() { json!({ "cells": cells }) } else { json!({ "cells": cells, "at": at }) }
    };
    (0..columns).map(column).collect()
}

fn cell_json(cell: &Cell) -> Json {
    match cell {
        Cell::Text(text) => json!(shown(text)),
        // Rows are sorted by these numbers, for which nine digits suffice.
        Cell::Number(x, text) => json!([format!("{x:.8e}").parse::<f64>().unwrap_or(*x), shown(text)]),
        Cell::Tag(tone, text) => json!([tone.class(), format!("{}{}", tone.sign(), shown(text))]),
        Cell::Empty => Json::Null,
    }
}

/// A table without empty columns.
pub fn without_empty_columns(heads: Vec<String>, rows: Vec<Vec<Cell>>) -> (Vec<String>, Vec<Vec<Cell>>) {
    let is_there =
        |j: usize| rows.iter().any(|row| !matches!(&row[j], Cell::Empty) && !matches!(&row[j], Cell::Text(text) if text.is_empty()));
    let there: Vec<bool> = (0..heads.len()).map(is_there).collect();
    let kept = |j: &usize| there[*j];
    let heads = heads.into_iter().enumerate().filter(|(j, _)| kept(j)).map(|(_, head)| head).collect();
    let rows = rows.into_iter().map(|row| row.into_iter().enumerate().filter(|(j, _)| kept(j)).map(|(_, cell)| cell).collect()).collect();
    (heads, rows)
}

/// Whether a column has only numbers.
fn is_numeric(rows: &[Vec<Cell>], column: usize) -> bool {
    let mut there = rows.iter().map(|row| &row[column]).filter(|cell| !matches!(cell, Cell::Empty)).peekable();
    there.peek().is_some() && there.all(|cell| matches!(cell, Cell::Number(..)))
}

fn cell_html(cell: &Cell) -> String {
    match cell {
        Cell::Text(text) if text.chars().count() > FOLDED => {
            format!("<td class=\"t\"><details><summary>{}</summary>{}</details></td>", escaped(&clipped(text, 60)), escaped(text))
        }
        Cell::Text(text) if text.chars().count() > SHORT => format!("<td class=\"t\">{}</td>", escaped(text)),
        Cell::Text(text) => format!("<td>{}</td>", escaped(text)),
        Cell::Number(x, text) => format!("<td class=\"n\" data-v=\"{x:?}\">{}</td>", escaped(text)),
        Cell::Tag(tone, text) => format!("<td>{}</td>", tag(*tone, text)),
        Cell::Empty => "<td></td>".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_stays_text() {
        let text = escaped("</script><b a=\"1\" c='2'>&\u{202e}x\u{0}");
        assert_eq!(text, "&lt;/script&gt;&lt;b a=&quot;1&quot; c=&#39;2&#39;&gt;&amp;\u{27e8}U+202E\u{27e9}x\u{27e8}U+0000\u{27e9}");
        let json = json_in_script(&serde_json::json!("</script><!--\u{2028}"));
        assert!(!json.contains('<') && !json.contains('\u{2028}'), "{json}");
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), "</script><!--\u{2028}");
    }

    #[test]
    fn long_texts_and_tables_are_cut_and_say_so() {
        assert_eq!(clipped("abcdef", 4), "abc\u{2026}");
        let rows: Vec<Vec<Cell>> = (0..5).map(|i| vec![Cell::Number(f64::from(i), i.to_string())]).collect();
        let text = table("t", &["x".into()], &rows, 3);
        assert!(text.contains("The page has 3 of 5 rows") && !text.contains("data-v=\"3.0\""), "{text}");
    }

    #[test]
    fn a_long_table_has_its_rows_as_columns_of_different_cells() {
        let row = |i: u32| {
            let tag = Cell::Tag(TagTone::Bad, "</script>\u{202e}".into());
            let third = if i.is_multiple_of(2) { tag } else { Cell::Empty };
            vec![Cell::Text(format!("method {}", i % 2)), Cell::Number(f64::from(i) / 3.0, i.to_string()), third]
        };
        let rows: Vec<Vec<Cell>> = (0..500).map(row).collect();
        let heads = ["a", "b", "c"].map(String::from);
        let text = table("t", &heads, &rows, 400);
        assert_eq!(text.matches("<tr>").count(), 101, "the head and the first rows");
        assert!(text.contains("The first 100 of 500 rows") && text.contains("The page has 400 of 500 rows"), "{text}");
        assert_eq!(text.matches("</script>").count(), 1, "that of the data alone");
        let columns = columns_json(&rows[..400], 3);
        assert_eq!(columns[0]["cells"], json!(["method 0", "method 1"]));
        assert_eq!(columns[0]["at"].as_array().unwrap().len(), 400);
        assert_eq!(columns[1]["cells"][1], json!([0.333_333_333, "1"]));
        assert!(columns[1]["at"].is_null());
        assert_eq!(columns[2]["cells"], json!([["bad", "\u{2717} </script>\u{27e8}U+202E\u{27e9}"], null]));
    }
}
