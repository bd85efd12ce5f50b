//! The limit for the nesting of lists and tables.

use fedsa::error::Error;
use toml::Value;

/// The deepest accepted nesting of lists and tables: parsing, walking and dropping a tree recurse and must not exhaust the stack.
const MAX_DEPTH: usize = 64;
/// The message for input that is nested too deep.
pub const DEEP: &str = "lists and tables are more than 64 deep";
/// The help for input that is nested too deep.
pub const DEEP_HELP: &str = "at most 64 lists and tables within each other";

/// Refuses a tree that is too deep.
///
/// # Errors
/// When lists and tables are nested too deep.
pub fn check_depth(value: &Value) -> Result<(), Error> {
    let mut open = vec![(value, 0)];
    while let Some((value, depth)) = open.pop() {
        if depth > MAX_DEPTH {
            return Err(Error::new("", DEEP, DEEP_HELP));
        }
        match value {
            Value::Array(items) => open.extend(items.iter().map(|item| (item, depth + 1))),
            Value::Table(table) => open.extend(table.iter().map(|(_, item)| (item, depth + 1))),
            _ => {}
        }
    }
    Ok(())
}

/// The position at which a text is nested too deep to be parsed. Each bracket and each dot of a key counts as a level.
/// The parser counts brackets and the parts of keys, but not their product, and recurses.
pub fn too_deep(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    // The levels that open brackets added, and the dots since the last bracket, comma or line.
    let (mut open, mut depth, mut dots) = (Vec::new(), 0, 0);
    let mut i = 0;
    while i < bytes.len() {
        match bytes[i] {
            quote @ (b'"' | b'\'') => {
                let triple = bytes[i..].starts_with(&[quote; 3]);
                let end: &[u8] = if triple { &[quote; 3] } else { &[quote] };
                i += end.len();
                while i < bytes.len() && !bytes[i..].starts_with(end) && (triple || bytes[i] != b'\n') {
                    i += if bytes[i] == b'\\' && quote == b'"' { 2 } else { 1 };
                }
                i += end.len();
                continue;
            }
            b'#' => {
                i += bytes[i..].iter().position(|b| *b == b'\n').unwrap_or(bytes.len() - i);
                continue;
            }
            b'[' | b'{' => {
                open.push(dots + 1);
                depth += dots + 1;
                dots = 0;
            }
            b']' | b'}' => {
                depth -= open.pop().unwrap_or(0);
                dots = 0;
            }
            b',' | b'\n' => dots = 0,
            b'.' => dots += 1,
            _ => {}
        }
        if depth + dots > MAX_DEPTH {
            return Some(i);
        }
        i += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_is_seen_before_anything_is_parsed() {
        for text in [
            "a.b.c = { d.e = [1.5, 2.5], f = [[[]]] }\n".repeat(1000),
            format!("x = \"{}\"", "[".repeat(1000)),
            format!("x = \"\\\"{}\"", "{".repeat(1000)),
            format!("x = '{}'\ny = 1 # {}\n", ".".repeat(1000), "[".repeat(1000)),
            format!("x = \"\"\"\n{}\n\"\"\"\ny = '''{}'''", "[".repeat(1000), "{\n".repeat(1000)),
            format!("x = [{}]", "1.5,\n".repeat(1000)),
            "[a.b]\n[[a.c]]\n".repeat(1000),
        ] {
            assert_eq!(too_deep(&text), None, "{:.80}", text);
        }
        let key = vec!["a"; 20].join(".");
        for (text, at) in [
            (format!("x = {}", "[".repeat(100)), 68),
            (format!("{} = 1", vec!["a"; 100].join(".")), 129),
            (format!("x = {}", format!("{{ {key} = ").repeat(4)), 145),
        ] {
            assert_eq!(too_deep(&text), Some(at), "{text}");
        }
    }
}
