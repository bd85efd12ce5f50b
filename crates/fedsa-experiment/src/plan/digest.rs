//! Digests of the tables of an experiment, which identify equal problems and equal cells.

use std::collections::HashMap;
use std::sync::Arc;

use fedsa::error::Result;
use fedsa_data::find::Places;
use sha2::{Digest as _, Sha256};
use toml::{Table, Value};

use crate::config::schema::{Centre, ControlsStart};
use crate::config::{MethodSpec, PointReader, RunSpec, StartSpec};
use crate::resolve;

/// A digest of 128 bits that identifies a table.
pub(super) type Digest = [u8; 16];

/// The digest of several texts in order.
pub(super) fn digest(texts: &[&str]) -> Digest {
    let mut hasher = Sha256::new();
    for text in texts {
        hasher.update((text.len() as u64).to_le_bytes());
        hasher.update(text);
    }
    hasher.finalize()[..16].try_into().expect("half of 32 bytes")
}

/// Identifies several texts in order: their digest as hexadecimal digits.
pub(crate) fn identity(texts: &[&str]) -> String {
    hex(&digest(texts))
}

pub(super) fn hex(digest: &Digest) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The digests of the tables of a point.
pub(super) struct Digests {
    /// The problem with its sampling.
    pub field: Digest,
    /// `[run]`.
    pub run: Digest,
    /// Each method.
    pub methods: Vec<Digest>,
    /// Whether the plan of a method needs `theta*` of the problem.
    pub asks_for_root: bool,
}

/// Digests of tables, for points that share them.
#[derive(Default)]
pub(super) struct Digester {
    known: HashMap<usize, (Arc<Value>, Digest)>,
}

impl Digester {
    /// The digest of the resolved table. The last table of each `place` is cached.
    fn of(&mut self, place: usize, given: Option<&Arc<Value>>, resolved: impl FnOnce() -> Result<Value>) -> Result<Digest> {
        if let (Some(given), Some((before, digest))) = (given, self.known.get(&place))
            && Arc::ptr_eq(before, given)
        {
            return Ok(*digest);
        }
        let digest = digest(&[&canonical(&resolved()?)]);
        if let Some(given) = given {
            self.known.insert(place, (Arc::clone(given), digest));
        }
        Ok(digest)
    }

    /// The digests of the point that `reader` read last.
    pub fn point(&mut self, reader: &PointReader, places: &Places) -> Result<Digests> {
        let sections = reader.sections();
        let problem = self.of(0, sections.problem.as_ref(), || resolve::section("problem", reader.resolved_problem()?, places))?;
        let sampling = self.of(1, sections.sampling.as_ref(), || reader.resolved_sampling())?;
        let run = self.of(2, sections.run.as_ref(), || resolve::section("run", reader.resolved_run()?, places))?;
        let mut methods = Vec::with_capacity(reader.methods.len());
        for (m, method) in reader.methods.iter().enumerate() {
            let table = self.of(3 + m, sections.method(m), || resolve::section("method", reader.resolved_method(m)?, places))?;
            // The expected status may differ between points whose runs are otherwise equal.
            methods.push(digest(&[&hex(&table), &method.expected_by.map_or(String::new(), |_| format!("{:?}", method.expect))]));
        }
        let asks_for_root = reader.methods.iter().any(|method| asks_for_root(reader.run(), method));
        Ok(Digests { field: digest(&[&hex(&problem), &hex(&sampling)]), run, methods, asks_for_root })
    }
}

/// Whether the plan of a method needs `theta*`: for its start, its controls, a stop or a point to measure from.
fn asks_for_root(run: &RunSpec, method: &MethodSpec) -> bool {
    let start = method.start.as_ref().unwrap_or(&run.start);
    run.stop.mse.is_some()
        || run.stop.gap.is_some()
        || matches!(start, StartSpec::Name(name) if ["root", "root+1", "limit"].contains(&&name[..]))
        || method.measure_from == Centre::Limit
        || method.controls == ControlsStart::Ideal
}

/// A table without some of its keys.
pub(super) fn without(value: &Value, keys: &[&str]) -> Value {
    let mut value = value.clone();
    if let Value::Table(table) = &mut value {
        keys.iter().for_each(|key| {
            table.remove(*key);
        });
    }
    value
}

/// The tables of one direction of a link as text.
pub(super) fn canonical_link(codec: &Option<Table>, media: &[Table]) -> String {
    let tables = codec.iter().chain(media).map(|table| canonical(&Value::Table(table.clone())));
    format!("{}: {}", codec.is_some(), tables.collect::<Vec<_>>().join(" "))
}

/// A value as text with the keys of tables sorted.
pub(crate) fn canonical(value: &Value) -> String {
    match value {
        Value::Table(table) => {
            let mut keys: Vec<&String> = table.keys().collect();
            keys.sort();
            let inner: Vec<String> = keys.iter().map(|k| format!("{k}={}", canonical(&table[*k]))).collect();
            format!("{{{}}}", inner.join(","))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(canonical).collect::<Vec<_>>().join(",")),
        other => other.to_string(),
    }
}
