//! A problem, built before its plan or for it.

use std::sync::Arc;

use fedsa::error::{Error, Result};
use fedsa::kernel::Isa;
use fedsa::problem::Field;
use fedsa::sampling::Sampling;
use fedsa_data::DiskFiles;
use fedsa_problems::memory::MemoryEstimate;

use super::digest::{Digest, Digester, hex};
use crate::config::{Experiment, PointReader};
use crate::memory;

/// A problem with its sampling; clones share it.
#[derive(Clone)]
pub struct PlannedField {
    /// A digest of the tables and files from which the problem was built. Equal digests mean equal problems.
    pub fingerprint: String,
    /// The problem.
    pub field: Arc<dyn Field>,
}

/// The problem that `reader` read last.
pub(super) fn build_problem(reader: &PointReader, tables: &Digest, files: &DiskFiles, isa: Isa) -> Result<PlannedField> {
    planned(reader.problem().field(files, reader.sampling(), isa), tables, files)
}

/// A problem that was built from these tables and files.
fn planned(field: Result<Arc<dyn Field>>, tables: &Digest, files: &DiskFiles) -> Result<PlannedField> {
    let field = field.map_err(|e| if e.key.starts_with("sampling") { e } else { e.inside("problem") })?;
    let given = files.given_identity().map_or(String::new(), |identity| format!(" memory {identity}"));
    Ok(PlannedField { fingerprint: format!("{} files {:08x}{given}", hex(tables), files.digest()), field })
}

/// The problem of an experiment's first point, built before the plan; clones share it.
#[derive(Clone)]
pub struct BuiltProblem {
    /// The digest of its tables.
    pub(super) tables: Digest,
    pub(super) memory: MemoryEstimate,
    pub(super) planned: PlannedField,
}

impl BuiltProblem {
    /// Builds the problem if it fits into the available memory.
    ///
    /// # Errors
    /// When a setting or file cannot be used, or the problem does not fit; the failure shows its line.
    pub fn new(experiment: &Experiment, files: &DiskFiles, isa: Isa) -> Result<Self, Error> {
        let memory = |reader: &PointReader| memory::of_problem(&**reader.problem(), reader.sampling(), files);
        Self::by(experiment, files, memory, |reader| reader.problem().field(files, reader.sampling(), isa))
    }

    /// Builds the problem of an experiment from data that the caller has read from `files`, if it fits into the available memory.
    ///
    /// # Errors
    /// As [`BuiltProblem::new`].
    pub fn of_data(
        experiment: &Experiment,
        files: &DiskFiles,
        memory: Result<MemoryEstimate>,
        field: impl FnOnce(Sampling) -> Result<Arc<dyn Field>>,
    ) -> Result<Self, Error> {
        Self::by(experiment, files, |_| memory, |reader| field(reader.sampling()))
    }

    fn by(
        experiment: &Experiment,
        files: &DiskFiles,
        memory: impl FnOnce(&PointReader) -> Result<MemoryEstimate>,
        field: impl FnOnce(&PointReader) -> Result<Arc<dyn Field>>,
    ) -> Result<Self, Error> {
        let point = &experiment.points[0];
        let mut reader = PointReader::new(&experiment.document.kinds);
        let build = || -> Result<Self> {
            reader.read(point)?;
            let tables = Digester::default().point(&reader, &files.places)?.field;
            let memory = memory(&reader);
            memory::problems(vec![memory.clone()], 0.0).map_err(|(_, e)| e)?;
            Ok(Self { tables, memory: memory?, planned: planned(field(&reader), &tables, files)? })
        };
        build().map_err(|e| experiment.failure_at(e, point))
    }

    /// Identifies the contents of its data: the part of its fingerprint after the tables.
    pub fn data(&self) -> &str {
        self.planned.fingerprint.split_once(' ').map_or("", |(_, data)| data)
    }

    /// The problem.
    pub fn field(&self) -> &dyn Field {
        &*self.planned.field
    }

    /// The same, to be shared.
    pub fn shared_field(&self) -> &Arc<dyn Field> {
        &self.planned.field
    }
}
