//! Traces of delays: text, one line per round.
//!
//! A line has one delay for all agents, or one per agent: whole numbers of rounds, separated by commas or blanks. Empty lines and lines
//! that start with `#` are skipped.

use std::path::Path;

use fedsa::error::{Error, Result, quoted};
use fedsa::uplink::stage::delay::{MAX_DELAY, Row};

use super::about;

const ACCEPTED: &str = "a line per round: one delay for all agents or one per agent, whole numbers of rounds";

/// Reads a trace.
///
/// # Errors
/// When the file cannot be read or is not a trace; the message names the line.
pub fn read(path: &Path) -> Result<Vec<Row>> {
    from_bytes(&super::read(path)?).map_err(|e| about(path, e))
}

/// As [`read`], for a file in memory.
///
/// # Errors
/// As [`read`].
pub fn from_bytes(bytes: &[u8]) -> Result<Vec<Row>> {
    let bad = |line: usize, what: String| Error::data("", format!("line {line}: {what}"), ACCEPTED);
    let text = std::str::from_utf8(bytes).map_err(|e| {
        let line = 1 + bytes[..e.valid_up_to()].iter().filter(|b| **b == b'\n').count();
        bad(line, "not UTF-8".into())
    })?;
    let (mut rows, mut columns) = (Vec::new(), 0);
    for (i, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let delay = |field: &str| match field.parse::<u64>() {
            Ok(delay) if delay <= MAX_DELAY => Ok(delay),
            Ok(delay) => Err(bad(i + 1, format!("a delay of {delay} rounds, and at most {MAX_DELAY} are accepted"))),
            Err(_) => Err(bad(i + 1, format!("`{}` is not a whole number of rounds", quoted(field)))),
        };
        let row = line.split(',').flat_map(|part| {
            // An empty field between two commas is an error; several blanks are not.
            let part = part.trim();
            if part.is_empty() { vec![""] } else { part.split_whitespace().collect() }
        });
        let row = row.map(delay).collect::<Result<Vec<u64>>>()?;
        if columns != 0 && row.len() != columns {
            return Err(bad(i + 1, format!("{} delays, but earlier lines have {columns}", row.len())));
        }
        columns = row.len();
        rows.push(if columns == 1 { Row::All(row[0]) } else { Row::Each(row) });
    }
    if rows.is_empty() { Err(Error::data("", "there is no delay in it", ACCEPTED)) } else { Ok(rows) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_round() {
        assert_eq!(from_bytes(b"0\n3\r\n1").unwrap(), [Row::All(0), Row::All(3), Row::All(1)]);
        let each = [Row::Each(vec![1, 0, 2]), Row::Each(vec![4, 5, 6])];
        assert_eq!(from_bytes("\u{feff}# ours\n1,0, 2\n\n4 5\t 6\n".as_bytes()).unwrap(), each);
    }

    #[test]
    fn what_is_no_delay_is_named_with_its_line() {
        for (text, message) in [
            ("", "there is no delay in it"),
            ("# only words\n", "there is no delay in it"),
            ("delay\n1\n", "line 1: `delay` is not a whole number of rounds"),
            ("1\n\n-1\n", "line 3: `-1` is not"),
            ("1\n2.5\n", "line 2: `2.5` is not"),
            ("1,,2\n", "line 1: `` is not"),
            ("1,2\n1\n", "line 2: 1 delays, but earlier lines have 2"),
            ("1000001\n", "line 1: a delay of 1000001 rounds, and at most 1000000"),
            ("99999999999999999999999\n", "line 1: `99999999999999999999999` is not"),
        ] {
            let e = from_bytes(text.as_bytes()).unwrap_err();
            assert!(e.to_string().starts_with(message), "{text:?}: {e}");
            assert_eq!(e.help, ACCEPTED);
        }
        assert_eq!(from_bytes(b"1\n\xff\n").unwrap_err().to_string(), "line 2: not UTF-8");
    }
}
