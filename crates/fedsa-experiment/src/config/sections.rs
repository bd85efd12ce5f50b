//! The tables that sweeps and variants can change. Points share a table until one changes it.

use std::sync::Arc;

use fedsa::error::{Error, quoted};
use toml::{Table, Value};

use super::dotted::{joined_path, parts, set_inside, set_items};

/// The tables that may differ from point to point.
pub const SECTIONS: &[&str] = &["problem", "sampling", "method", "run"];

/// `[problem]`, `[sampling]`, `[[method]]` and `[run]` of one point. A copy shares the tables that it does not change.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sections {
    /// `[problem]`.
    pub problem: Option<Arc<Value>>,
    /// `[sampling]`.
    pub sampling: Option<Arc<Value>>,
    /// `[[method]]`.
    pub method: Option<Methods>,
    /// `[run]`.
    pub run: Option<Arc<Value>>,
}

/// The value of `method`.
#[derive(Debug, Clone, PartialEq)]
pub enum Methods {
    /// A list of tables.
    Each(Vec<Arc<Value>>),
    /// Any other value, which is refused when the methods are read.
    Other(Arc<Value>),
}

impl From<Value> for Methods {
    fn from(value: Value) -> Self {
        match value {
            Value::Array(items) => Methods::Each(items.into_iter().map(Arc::new).collect()),
            other => Methods::Other(Arc::new(other)),
        }
    }
}

impl Methods {
    fn value(&self) -> Value {
        match self {
            Methods::Each(items) => Value::Array(items.iter().map(|item| (**item).clone()).collect()),
            Methods::Other(value) => (**value).clone(),
        }
    }
}

impl Sections {
    /// The sections of a file's tree.
    pub fn of(table: &Table) -> Self {
        let section = |key: &str| table.get(key).cloned().map(Arc::new);
        Self {
            problem: section("problem"),
            sampling: section("sampling"),
            method: table.get("method").cloned().map(Methods::from),
            run: section("run"),
        }
    }

    /// The table of a method.
    pub fn method(&self, i: usize) -> Option<&Arc<Value>> {
        match self.method.as_ref()? {
            Methods::Each(tables) => tables.get(i),
            Methods::Other(_) => None,
        }
    }

    /// As a tree.
    pub fn table(&self) -> Table {
        let section = |value: &Option<Arc<Value>>| value.as_deref().cloned();
        let method = self.method.as_ref().map(Methods::value);
        let all =
            [("problem", section(&self.problem)), ("sampling", section(&self.sampling)), ("method", method), ("run", section(&self.run))];
        all.into_iter().filter_map(|(key, value)| Some((key.to_string(), value?))).collect()
    }

    /// Sets a dotted key, as `dotted::set` does in a tree.
    ///
    /// # Errors
    /// When the key is in none of these tables, or a part of it names neither a table nor a list item.
    pub fn set(&mut self, key: &str, value: &Value) -> Result<Vec<String>, Error> {
        let parts = parts(key)?;
        let [first, rest @ ..] = &parts[..] else { return Ok(Vec::new()) };
        let path = joined_path("", first);
        let mut done = Vec::new();
        let section = match *first {
            "problem" => &mut self.problem,
            "sampling" => &mut self.sampling,
            "run" => &mut self.run,
            "method" => {
                match (rest, &mut self.method) {
                    ([], method) => {
                        *method = Some(Methods::from(value.clone()));
                        done.push(path);
                    }
                    (rest, Some(Methods::Each(items))) => set_items(items, "method", rest, path, value, &mut done)?,
                    (rest, method) => {
                        let mut other = method.as_ref().map_or_else(|| Value::Table(Table::new()), Methods::value);
                        set_inside(&mut other, "method", rest, path, value, &mut done)?;
                        *method = Some(Methods::Other(Arc::new(other)));
                    }
                }
                return Ok(done);
            }
            _ => return Err(unreachable(key, first)),
        };
        match rest {
            [] => {
                *section = Some(Arc::new(value.clone()));
                done.push(path);
            }
            rest => {
                let inner = Arc::make_mut(section.get_or_insert_with(|| Arc::new(Value::Table(Table::new()))));
                set_inside(inner, first, rest, path, value, &mut done)?;
            }
        }
        Ok(done)
    }
}

/// Refuses a key outside the tables that may differ from point to point.
fn unreachable(key: &str, first: &str) -> Error {
    let near = super::did_you_mean(super::nearest(first, SECTIONS.iter().copied()));
    let what = format!("`{}` is in none of the tables that can differ by point{near}", quoted(key));
    Error::new("", what, format!("a key in {}", SECTIONS.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::super::dotted;
    use super::*;

    #[test]
    fn what_is_not_set_is_shared() {
        let table: Table =
            "[problem]\nkind = \"x\"\n[run]\nrounds = 1\n[[method]]\nkind = \"a\"\n[[method]]\nkind = \"b\"\n".parse().unwrap();
        let base = Sections::of(&table);
        let mut point = base.clone();
        assert_eq!(point.set("method.b.c", &Value::Integer(3)).unwrap(), ["method[1].c"]);
        assert_eq!(point.set("run.rounds", &Value::Integer(2)).unwrap(), ["run.rounds"]);
        assert_eq!(point.set("sampling.batch", &Value::Integer(2)).unwrap(), ["sampling.batch"]);
        assert!(Arc::ptr_eq(base.problem.as_ref().unwrap(), point.problem.as_ref().unwrap()));
        let (Some(Methods::Each(before)), Some(Methods::Each(after))) = (&base.method, &point.method) else { panic!() };
        assert!(Arc::ptr_eq(&before[0], &after[0]) && !Arc::ptr_eq(&before[1], &after[1]));
        assert_eq!(base.table(), table);
        // The same as in a tree.
        let mut expected = table;
        for (key, value) in [("method.b.c", 3), ("run.rounds", 2), ("sampling.batch", 2)] {
            dotted::set(&mut expected, key, &Value::Integer(value)).unwrap();
        }
        assert_eq!(point.table(), expected);
        assert!(point.set("figure.x", &Value::Integer(1)).unwrap_err().what.contains("none of the tables"));
    }
}
