//! The plan of an experiment: its problems are built, its methods checked and its starts computed.

mod built;
mod cell;
mod digest;

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use fedsa::cancel::Cancel;
use fedsa::error::{BadInput, Error, Result};
use fedsa::kernel::Isa;
use fedsa::parallel;
use fedsa::problem::Field;
use fedsa::problem::memory::MemoryEstimate;
use fedsa_data::DiskFiles;
use fedsa_data::find::Places;
use fedsa_theory::predict::Forecast;
use toml::Table;

use super::{memory, resolve};
use crate::config::{Experiment, Reader, RunSpec, SweepPoint};
use built::build_problem;
pub use built::{BuiltProblem, PlannedField};
use cell::Shared;
pub use cell::{PlannedCell, ResolvedStart};
use digest::{Digest, Digester, Digests, digest, hex};

/// An experiment ready to run.
pub struct Plan {
    /// The experiment file.
    pub experiment: Experiment,
    /// The distinct problems, each with its sampling.
    pub fields: Vec<PlannedField>,
    /// One per sweep point, in the file's order.
    pub points: Vec<PlannedPoint>,
    /// The labels of the methods, in the file's order; the same at every point.
    pub labels: Vec<String>,
    /// The distinct cells. Methods at different points share a cell if all their settings are equal.
    pub cells: Vec<PlannedCell>,
    /// The estimated memory of its problems.
    pub memory: memory::Problems,
    /// The folders in which files are looked for.
    places: Places,
    /// Of each problem, the digest of its tables, and its estimated memory.
    origins: Vec<(Digest, MemoryEstimate)>,
}

/// What may end the building of a plan, and who hears of it.
#[derive(Clone, Copy)]
pub struct PlanControl<'a> {
    /// Ends it while problems are built and their roots are computed.
    pub cancel: &'a Cancel,
    /// Hears that the k-th of n roots is computed next. All of them are then computed before methods are planned; otherwise only those
    /// that are asked for.
    pub solving: Option<&'a (dyn Fn(usize, usize) + Sync)>,
}

impl Default for PlanControl<'_> {
    /// Nothing ends it, and nobody hears of it.
    fn default() -> Self {
        Self { cancel: &NEVER, solving: None }
    }
}

static NEVER: Cancel = Cancel::never();

impl PlanControl<'_> {
    /// Computes the roots of the problems, where somebody hears of them.
    fn solve(&self, fields: &[PlannedField]) -> Result<()> {
        let Some(solving) = self.solving else { return Ok(()) };
        let begun = AtomicUsize::new(0);
        let solve = |i: usize| {
            solving(begun.fetch_add(1, Ordering::Relaxed) + 1, fields.len());
            fields[i].field.solve(self.cancel)
        };
        parallel::try_map(fields.len(), solve).map(|_| ())
    }
}

/// A sweep point.
pub struct PlannedPoint {
    /// The point's coordinates and tables.
    pub point: Arc<SweepPoint>,
    /// The index of its problem.
    pub field: usize,
    /// Its `[run]` table.
    pub run: Arc<RunSpec>,
    /// For each method, the index of its cell.
    pub cells: Vec<usize>,
}

impl Plan {
    /// Builds the plan. `base` is the folder of relative paths. `roots` has the `theta*` of problems by fingerprint, as an
    /// earlier run of this experiment computed them.
    ///
    /// # Errors
    /// When a setting or file cannot be used; the failure shows its line.
    pub fn new(experiment: Experiment, base: &Path, isa: Isa, roots: &HashMap<String, Vec<f64>>) -> Result<Self, Error> {
        Self::with_problem(experiment, base, isa, roots, None, &PlanControl::default())
    }

    /// [`Plan::new`] with a problem that was built before, which is used where it is one of this experiment.
    ///
    /// # Errors
    /// As [`Plan::new`], and when it is cancelled.
    pub fn with_problem(
        experiment: Experiment,
        base: &Path,
        isa: Isa,
        roots: &HashMap<String, Vec<f64>>,
        known: Option<BuiltProblem>,
        control: &PlanControl<'_>,
    ) -> Result<Self, Error> {
        let places = Places::from_env(base);
        let located = |e: BadInput| experiment.document.failure(e);
        // Checks that need no problem come first.
        let digests = experiment.read_all(Digester::default, |digester, reader| digester.point(reader, &places))?;
        let labels = experiment.labels().map_err(|e| experiment.failure_at(e, &experiment.points[0]))?;
        super::checks::validate(&experiment, &labels).map_err(located)?;
        super::picture::validate(&experiment, &labels).map_err(located)?;

        let mut index: HashMap<Digest, usize> = HashMap::new();
        let mut wanted: Vec<(usize, Digest)> = Vec::new();
        let mut field_of = |i: usize, digest: Digest| {
            *index.entry(digest).or_insert_with(|| {
                wanted.push((i, digest));
                wanted.len() - 1
            })
        };
        let field_of: Vec<usize> = digests.iter().enumerate().map(|(i, own)| field_of(i, own.field)).collect();
        let known = Mutex::new(known);
        let size = |(i, tables): &(usize, Digest)| {
            if let Some(known) = known.lock().expect("no thread panics").as_ref().filter(|known| known.tables == *tables) {
                return Ok(known.memory.clone());
            }
            let mut reader = Reader::new(&experiment.document.kinds);
            reader.read(&experiment.points[*i])?;
            memory::of_problem(&**reader.problem(), reader.sampling(), &DiskFiles::new(places.clone()))
        };
        let sizes: Vec<Result<_>> = parallel::map(wanted.len(), |w| size(&wanted[w]));
        let there = known.lock().expect("no thread panics").as_ref().map_or(0.0, |known| known.memory.peak);
        let estimates: Vec<MemoryEstimate> = sizes.iter().filter_map(|size| size.as_ref().ok().cloned()).collect();
        let memory = memory::problems(sizes, there).map_err(|(p, e)| experiment.failure_at(e, &experiment.points[wanted[p].0]))?;
        let built = parallel::map(wanted.len(), |w| -> Result<PlannedField> {
            let (i, tables) = &wanted[w];
            let known = known.lock().expect("no thread panics").take_if(|known| known.tables == *tables);
            let planned = match known {
                Some(known) => known.planned,
                None => {
                    let mut reader = Reader::new(&experiment.document.kinds);
                    reader.read(&experiment.points[*i])?;
                    build_problem(&reader, tables, &DiskFiles::new(places.clone()).with_cancel(control.cancel), isa)?
                }
            };
            if let Some(root) = roots.get(&planned.fingerprint).filter(|root| root.len() == planned.field.dim()) {
                planned.field.set_root(root.clone());
            }
            Ok(planned)
        });
        control.cancel.check()?;
        let fields =
            built.into_iter().zip(&wanted).map(|(field, (i, _))| field.map_err(|e| experiment.failure_at(e, &experiment.points[*i])));
        let fields: Vec<PlannedField> = fields.collect::<Result<_, _>>()?;

        control.solve(&fields)?;
        let mut by_digest: HashMap<Digest, usize> = HashMap::new();
        // For each cell, the first point and method that has it.
        let mut first: Vec<(usize, usize)> = Vec::new();
        let mut cell_of = |i: usize, m: usize, digest: Digest| {
            *by_digest.entry(digest).or_insert_with(|| {
                first.push((i, m));
                first.len() - 1
            })
        };
        let cells_of = |(i, own): (usize, &Digests)| {
            let of_field = &fields[field_of[i]].fingerprint;
            let cell = |(m, method): (usize, &Digest)| cell_of(i, m, digest(&[of_field, &hex(&own.run), &hex(method)]));
            own.methods.iter().enumerate().map(cell).collect()
        };
        let cells_of: Vec<Vec<usize>> = digests.iter().enumerate().map(cells_of).collect();
        let shared = Shared::new(&places, &experiment.document.kinds);
        let chunks: Vec<&[(usize, usize)]> = first.chunks(CHUNK).collect();
        let cells = parallel::map(chunks.len(), |c| -> Result<Vec<PlannedCell>, (usize, BadInput)> {
            let (mut reader, mut last) = (Reader::new(&experiment.document.kinds), None);
            let mut cells = Vec::with_capacity(chunks[c].len());
            for (i, m) in chunks[c] {
                let mut build = || {
                    // A point is read once for all its methods.
                    if last.replace(i) != Some(i) {
                        reader.read(&experiment.points[*i])?;
                    }
                    let run = shared.run(&digests[*i].run, &reader)?;
                    let of = &fields[field_of[*i]];
                    let identity = hex(&digest(&[&of.fingerprint, &hex(&run.identity), &hex(&digests[*i].methods[*m])]));
                    PlannedCell::new(&identity, field_of[*i], &of.field, reader.methods[*m].clone(), run, &shared, *m)
                };
                cells.push(build().map_err(|e| (*i, e))?);
            }
            Ok(cells)
        });
        let located = |(i, e): (usize, BadInput)| experiment.failure_at(e, &experiment.points[i]);
        let cells: Vec<Vec<PlannedCell>> = cells.into_iter().map(|cells| cells.map_err(located)).collect::<Result<_, _>>()?;
        let cells: Vec<PlannedCell> = cells.into_iter().flatten().collect();
        let point = |(point, (field, own)): (&Arc<SweepPoint>, (usize, Vec<usize>))| {
            let run = Arc::clone(&cells[own[0]].run);
            PlannedPoint { point: Arc::clone(point), field, run, cells: own }
        };
        let points = experiment.points.iter().zip(field_of.iter().copied().zip(cells_of)).map(point).collect();
        let origins = wanted.iter().map(|(_, tables)| *tables).zip(estimates).collect();
        Ok(Self { experiment, fields, points, labels, cells, memory, places, origins })
    }

    /// The tables of a point, with defaults written out and absolute paths.
    pub fn resolved(&self, point: usize) -> Table {
        let mut reader = Reader::new(&self.experiment.document.kinds);
        let read = reader.read(&self.points[point].point).and_then(|()| resolve::point(&reader, &self.places));
        read.expect("it was read before")
    }

    /// The problem of a cell.
    pub fn field(&self, cell: usize) -> &dyn Field {
        &**self.shared_field(cell)
    }

    /// The same, to be shared.
    pub fn shared_field(&self, cell: usize) -> &Arc<dyn Field> {
        &self.fields[self.cells[cell].field].field
    }

    /// The predictions of theory for a cell.
    pub fn forecast(&self, cell: usize) -> Forecast {
        let planned = &self.cells[cell];
        Forecast::over(self.shared_field(cell), &*planned.method.settings, &planned.uplink).of_output(planned.output)
    }

    /// The problem of the first point, for a plan of another experiment with the same problem.
    pub fn into_problem(mut self) -> BuiltProblem {
        let first = self.points[0].field;
        let (tables, memory) = self.origins.swap_remove(first);
        BuiltProblem { tables, memory, planned: self.fields.swap_remove(first) }
    }

    /// Whether there are sweeps or variants.
    pub fn is_swept(&self) -> bool {
        self.points.len() > 1 || !self.points[0].point.coordinates.is_empty()
    }
}

/// The number of points or cells per reader.
const CHUNK: usize = 256;
