//! Checks of an application before the server keeps it: the memory of its decoded form, and the resulting model.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};

use super::columns::ColumnSummary;
use super::frame::{self, Kind};
use super::terms::TermsHashes;
use super::{Application, Enrolment, Marks};
use crate::error::{Result, quoted};
use crate::protocol::refused;

/// The memory of a text in a set, without its letters.
const TEXT: usize = 2 * size_of::<String>() + 16;

/// The claims of an application.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Claim<'a> {
    /// Its columns.
    pub columns: &'a [ColumnSummary],
    /// The form of the model's inputs and outputs.
    pub form: Option<&'a str>,
    /// Its dimension.
    pub dim: Option<usize>,
}

impl Application {
    pub(super) fn claim(&self) -> Claim<'_> {
        Claim { columns: &self.columns, form: self.form.as_deref(), dim: self.dim.map(|dim| dim as usize) }
    }

    /// Its approximate memory in bytes.
    pub(super) fn memory(&self) -> usize {
        size_of::<Self>() + self.columns.iter().map(memory_of).sum::<usize>() + self.form.as_ref().map_or(0, String::len)
    }
}

/// The approximate memory of a column in a grown list, in bytes.
fn memory_of(column: &ColumnSummary) -> usize {
    let texts = column.values().into_iter().flat_map(|values| values.rows.keys()).map(|name| TEXT + name.len()).sum::<usize>();
    2 * size_of::<ColumnSummary>() + column.name.len() + texts
}

/// An application, decoded one column at a time.
#[derive(Deserialize)]
struct Sized {
    _terms: TermsHashes,
    _agent: Option<u32>,
    _rows: u64,
    _weighted: Option<f64>,
    _dim: Option<u32>,
    columns: SizeOfColumns,
    form: Option<String>,
    _marks: Marks,
}

impl Sized {
    /// The approximate memory of columns and form, in bytes.
    fn bytes(&self) -> usize {
        self.columns.bytes + self.form.as_ref().map_or(0, String::len)
    }
}

fn mega(bytes: f64) -> String {
    format!("{:.1} MB", bytes / 1e6)
}

/// The smallest limit on the memory of a later agent's application, in bytes.
const LEAST: usize = 1 << 16;

/// Refuses a later agent's application that takes far more memory than the federation's founding columns, before it is decoded as a whole;
/// other columns are not allowed.
pub(super) fn check_later(sender: &str, bytes: &[u8], founded: &[ColumnSummary], form: Option<&str>) -> Result<()> {
    let claimed: Sized = frame::read(Kind::Application, bytes)?;
    let most = LEAST + 2 * (founded.iter().map(memory_of).sum::<usize>() + form.map_or(0, str::len));
    if claimed.bytes() <= most {
        return Ok(());
    }
    let (count, needed) = (claimed.columns.count, mega(claimed.bytes() as f64));
    let what = format!("the application of `{}`: its {count} columns need about {needed} of memory", quoted(sender));
    Err(refused(what, &format!("the {} columns with which the federation was founded", founded.len())))
}

/// The number of columns, and their memory in bytes.
struct SizeOfColumns {
    count: usize,
    bytes: usize,
}

impl<'de> Deserialize<'de> for SizeOfColumns {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_seq(Sizing)
    }
}

struct Sizing;

impl<'de> Visitor<'de> for Sizing {
    type Value = SizeOfColumns;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("columns")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut columns: A) -> std::result::Result<SizeOfColumns, A::Error> {
        let mut size = SizeOfColumns { count: 0, bytes: 0 };
        while let Some(column) = columns.next_element::<ColumnSummary>()? {
            size.count += 1;
            size.bytes += memory_of(&column);
        }
        Ok(size)
    }
}

impl Enrolment {
    /// Limits the memory of all applications together, in bytes.
    #[must_use]
    pub fn with_memory(self, bytes: f64) -> Self {
        Self { memory: Some(bytes), ..self }
    }

    /// Refuses an application that would exceed the memory of all applications, before it is decoded as a whole.
    pub(super) fn check_memory(&self, sender: &str, bytes: &[u8]) -> Result<()> {
        let Some(memory) = self.memory else { return Ok(()) };
        let claimed: Sized = frame::read(Kind::Application, bytes)?;
        let (needed, free) = (claimed.bytes() as f64, (memory - self.held as f64).max(0.0));
        if needed <= free {
            return Ok(());
        }
        let (count, needed, free) = (claimed.columns.count, mega(needed), mega(free));
        let what = format!(
            "the application of `{}`: its {count} columns need about {needed} of memory, and {free} are left beside other applications",
            quoted(sender)
        );
        Err(refused(what, "fewer columns, categories and labels, or a server with more memory"))
    }
}
