//! Checks of an application before the server keeps it: the memory of its decoded form, and the resulting model.

use super::columns::ColumnSummary;
use super::{Application, Enrolment};
use crate::error::{Result, quoted};
use crate::protocol::refused;

/// The memory of a text in a set, without its letters.
const TEXT: usize = 2 * size_of::<String>() + 16;

/// The largest ratio of the memory of a decoded application to its bytes: columns without values, and categories of one letter, need most.
const EXPANSION: usize = 40;

/// The smallest limit on the length of a later agent's application, in bytes.
const LEAST: usize = 1 << 12;

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

/// Refuses a later agent's application that is far longer than the columns with which the federation was founded, before it is decoded:
/// other columns are not allowed.
pub(super) fn check_later(sender: &str, bytes: &[u8], founded: &[ColumnSummary], form: Option<&str>) -> Result<()> {
    let most = LEAST + 2 * (founded.iter().map(memory_of).sum::<usize>() + form.map_or(0, str::len));
    if bytes.len() <= most {
        return Ok(());
    }
    let what = format!("the application of `{}`: {} bytes", quoted(sender), bytes.len());
    Err(refused(what, &format!("the {} columns with which the federation was founded", founded.len())))
}

impl Enrolment {
    /// Limits the memory of all applications together, in bytes.
    #[must_use]
    pub fn with_memory(self, bytes: f64) -> Self {
        Self { memory: Some(bytes), ..self }
    }

    /// Refuses an application that might exceed the memory of all applications, before it is decoded.
    pub(super) fn check_memory(&self, sender: &str, bytes: &[u8]) -> Result<()> {
        let Some(memory) = self.memory else { return Ok(()) };
        let (needed, free) = ((EXPANSION * bytes.len()) as f64, (memory - self.held as f64).max(0.0));
        if needed <= free {
            return Ok(());
        }
        let mega = |bytes: f64| format!("{:.1} MB", bytes / 1e6);
        let what = format!(
            "the application of `{}`: {} bytes may need {} of memory, and {} are left beside other applications",
            quoted(sender),
            bytes.len(),
            mega(needed),
            mega(free)
        );
        Err(refused(what, "fewer columns, categories and labels, or a server with more memory"))
    }
}
