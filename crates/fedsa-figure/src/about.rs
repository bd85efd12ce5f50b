//! The metadata of a picture's file: the program's version, the experiment, and the configuration that ran.

use std::path::Path;

use super::text::forbidden;

/// The source of a picture, written into its file as metadata.
#[derive(Clone, Copy, Debug, Default)]
pub struct Provenance<'a> {
    /// The experiment's id.
    pub id: &'a str,
    /// The text of `config.toml`.
    pub config: &'a str,
}

/// The longest configuration that is written in full, in bytes.
const LONGEST: usize = 64 * 1024;

impl Provenance<'_> {
    /// The program and its version.
    pub(super) fn software() -> String {
        format!("fedsa {}", env!("CARGO_PKG_VERSION"))
    }

    /// The configuration without characters that XML forbids. Absolute paths lose their folders, because pictures are shared and the
    /// folders of one machine mean nothing on another. A configuration of more than 64 KiB is cut, with a note of its length and
    /// CRC-32.
    pub(super) fn source(&self) -> String {
        let kept = match self.config.len() > LONGEST {
            true => &self.config[..self.config.floor_char_boundary(LONGEST)],
            false => self.config,
        };
        let mut source: String = kept.lines().map(without_folders).collect::<Vec<_>>().join("\n");
        source.extend(kept.ends_with('\n').then_some('\n'));
        source = source.chars().map(|c| if forbidden(c) { ' ' } else { c }).collect();
        if kept.len() < self.config.len() {
            let (length, sum) = (self.config.len(), crc32fast::hash(self.config.as_bytes()));
            source.push_str(&format!("\n# Cut here: the whole has {length} bytes and the CRC-32 {sum:08x}.\n"));
        }
        source
    }
}

/// A line of TOML in which the names of files replace absolute paths.
fn without_folders(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some((before, quote, after)) = rest.find(['"', '\'']).map(|i| (&rest[..i], rest.as_bytes()[i] as char, &rest[i + 1..])) {
        out.push_str(before);
        out.push(quote);
        let Some(end) = end_of(after, quote) else {
            out.push_str(after);
            return out;
        };
        let path = Path::new(&after[..end]);
        let name = path.file_name().and_then(|name| name.to_str()).filter(|_| path.is_absolute());
        out.push_str(name.unwrap_or(&after[..end]));
        out.push(quote);
        rest = &after[end + 1..];
    }
    out + rest
}

/// The end of a string that `quote` opened.
fn end_of(text: &str, quote: char) -> Option<usize> {
    let mut escaped = false;
    text.char_indices().find_map(|(i, c)| {
        let ends = c == quote && !escaped;
        escaped = c == '\\' && !escaped && quote == '"';
        ends.then_some(i)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_absolute_paths_are_left_out() {
        let source = |config: &str| Provenance { id: "a", config }.source();
        assert_eq!(source("path = \"/home/ann/logs/a.csv\"\nid = \"a/b\"\n"), "path = \"a.csv\"\nid = \"a/b\"\n");
        let list = "path = ['/home/ann/a b.csv', \"logs/c.csv\", \"/d\"] # it's \"/e/f\"";
        assert_eq!(source(list), "path = ['a b.csv', \"logs/c.csv\", \"d\"] # it's \"/e/f\"");
        let quoted = "title = \"a \\\"/quoted/path\\\" in a title\"\nopen = \"/never/closed";
        assert_eq!(source(quoted), quoted);
    }
}
