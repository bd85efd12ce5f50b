//! The plan of an experiment: its problems are built, its methods checked and its starts computed.

mod built;
mod cell;
mod digest;

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use fedsa::cancel::Cancel;
use fedsa::error::{Error, Result};
use fedsa::kernel::Isa;
use fedsa::parallel;
use fedsa::problem::Field;
use fedsa_data::DiskFiles;
use fedsa_data::find::Places;
use fedsa_problems::memory::MemoryEstimate;
use fedsa_theory::predict::Forecast;
use toml::{Table, Value};

use super::{memory, resolve};
use crate::config::schema::Seeds;
use crate::config::{Experiment, PointReader, RunSpec, SweepPoint, validate};
use built::build_problem;
pub use built::{BuiltProblem, PlannedField};
use cell::Shared;
pub use cell::{PlannedCell, ResolvedStart};
use digest::{Digest, Digester, Digests, digest, hex};
pub(crate) use digest::{canonical, identity};

/// An experiment ready to run.
#[derive(Clone)]
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
    /// The folders of files.
    places: Places,
    /// For each problem, the digest of its tables and its estimated memory.
    origins: Vec<(Digest, MemoryEstimate)>,
}

/// Cancellation and progress of the building of a plan.
#[derive(Clone, Copy)]
pub struct PlanControl<'a> {
    /// Cancels the building of problems and the computation of roots.
    pub cancel: &'a Cancel,
    /// Called before the k-th of n roots is computed. With it, all roots are computed before methods are planned; otherwise only those that
    /// the plan needs.
    pub solving: Option<&'a (dyn Fn(usize, usize) + Sync)>,
}

impl Default for PlanControl<'_> {
    /// No cancellation and no progress.
    fn default() -> Self {
        Self { cancel: &NEVER, solving: None }
    }
}

static NEVER: Cancel = Cancel::never();

impl PlanControl<'_> {
    /// Computes the roots of the problems that are `asked` for, or of all if progress is observed. Cells are planned in parallel, and each
    /// would compute an unknown root of its problem.
    fn solve(&self, fields: &[PlannedField], asked: &[bool]) -> Result<()> {
        let asked: Vec<usize> = (0..fields.len()).filter(|i| self.solving.is_some() || asked[*i]).collect();
        let begun = AtomicUsize::new(0);
        let solve = |i: usize| {
            if let Some(solving) = self.solving {
                solving(begun.fetch_add(1, Ordering::Relaxed) + 1, asked.len());
            }
            fields[asked[i]].field.solve(self.cancel)
        };
        parallel::try_map(asked.len(), solve).map(|_| ())
    }
}

/// A sweep point.
#[derive(Clone)]
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
    /// Builds the plan. `base` is the folder of relative paths. `roots` has the `theta*` of problems by fingerprint, from an earlier run of
    /// this experiment.
    ///
    /// # Errors
    /// When a setting or file cannot be used; the error shows its line.
    pub fn new(experiment: Experiment, base: &Path, isa: Isa, roots: &HashMap<String, Vec<f64>>) -> Result<Self, Error> {
        Self::with_problem(experiment, base, isa, roots, None, &PlanControl::default())
    }

    /// The same for an experiment that differs only in its figure and title.
    pub(crate) fn drawn_as(&self, experiment: Experiment) -> Self {
        Self { experiment, ..self.clone() }
    }

    /// [`Plan::new`] with a problem that was built before, if the experiment has it.
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
        // Checks that need no problem come first.
        let digests = experiment.read_all(Digester::default, |digester, reader| digester.point(reader, &places))?;
        let labels = experiment.labels().map_err(|e| experiment.failure_at(e, &experiment.points[0]))?;
        validate::experiment(&experiment, &labels).map_err(|e| experiment.document.failure(e))?;
        let (wanted, field_of) = numbered(digests.iter().enumerate().map(|(i, own)| (i, own.field)));
        let (fields, memory, estimates) = build_problems(&experiment, &places, isa, roots, known, &wanted, control)?;
        let mut asked = vec![false; fields.len()];
        digests.iter().zip(&field_of).for_each(|(own, field)| asked[*field] |= own.asks_for_root);
        control.solve(&fields, &asked)?;
        let own = |(i, own): (usize, &Digests)| {
            let of_field = &fields[field_of[i]].fingerprint;
            let digest_of = |method: &Digest| digest(&[of_field, &hex(&own.run), &hex(method)]);
            own.methods.iter().enumerate().map(|(m, method)| ((i, m), digest_of(method))).collect::<Vec<_>>()
        };
        let (first, cell_of) = numbered(digests.iter().enumerate().flat_map(own));
        let cells = build_cells(&experiment, &places, &digests, &fields, &field_of, &first)?;
        let mut cell_of = cell_of.into_iter();
        let cells_of = digests.iter().map(|own| cell_of.by_ref().take(own.methods.len()).collect());
        let point = |(point, (field, own)): (&Arc<SweepPoint>, (usize, Vec<usize>))| {
            let run = Arc::clone(&cells[own[0]].run);
            PlannedPoint { point: Arc::clone(point), field, run, cells: own }
        };
        let points = experiment.points.iter().zip(field_of.iter().copied().zip(cells_of)).map(point).collect();
        let origins = wanted.iter().map(|(_, tables)| *tables).zip(estimates).collect();
        Ok(Self { experiment, fields, points, labels, cells, memory, places, origins })
    }

    /// The tables of a point, with defaults and absolute paths.
    pub fn resolved(&self, point: usize) -> Table {
        let mut reader = PointReader::new(&self.experiment.document.kinds);
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
        Forecast::over(self.shared_field(cell), &*planned.method.settings, &planned.uplink)
            .of_output(planned.output)
            .of_copies(planned.copies)
    }

    /// For each cell, whether checks or the figure use predictions that need second moments.
    pub fn compares_with_theory(&self) -> Vec<bool> {
        let experiment = &self.experiment;
        let noisy = |quantity: &str| ["noise", "floor", "floor_bias2", "finite_floor", "mean_square_radius"].contains(&quantity);
        let asks = |label: &str| {
            let by_figure = experiment.figure.exact.iter().any(|l| l == label)
                || experiment.figure.levels.get(label).is_some_and(|quantities| quantities.iter().any(|q| noisy(q)));
            let by_checks = experiment.checks.iter().filter(|check| check.method.as_deref() == Some(label)).any(|check| {
                matches!(check.kind.as_str(), "curve" | "predicted")
                    || check.bias_over_noise.is_some()
                    || check.expected.as_ref().and_then(Value::as_str).is_some_and(noisy)
            });
            by_figure || by_checks
        };
        let by_label: Vec<bool> = self.labels.iter().map(|label| asks(label)).collect();
        let mut cells = vec![false; self.cells.len()];
        for (cell, asked) in self.points.iter().flat_map(|point| point.cells.iter().zip(&by_label)) {
            cells[*cell] |= asked;
        }
        cells
    }

    /// The problem of the first point, for a plan of another experiment with the same problem.
    pub fn problem(&self) -> BuiltProblem {
        let first = self.points[0].field;
        let (tables, memory) = self.origins[first].clone();
        BuiltProblem { tables, memory, planned: self.fields[first].clone() }
    }

    /// The same with only the wanted seeds.
    #[must_use]
    pub(crate) fn with_seeds(mut self, is_wanted: impl Fn(u64) -> bool) -> Self {
        for cell in &mut self.cells {
            let seeds = Seeds::List(cell.run.seeds.list().into_iter().filter(|seed| is_wanted(*seed)).collect());
            cell.run = Arc::new(RunSpec { seeds, ..(*cell.run).clone() });
        }
        self
    }

    /// Whether there are sweeps or variants.
    pub fn is_swept(&self) -> bool {
        self.points.len() > 1 || !self.points[0].point.coordinates.is_empty()
    }
}

/// The number of points or cells per reader.
const CHUNK: usize = 256;

/// The distinct digests with the first place of each, and for each place the index of its digest.
fn numbered<P>(places: impl Iterator<Item = (P, Digest)>) -> (Vec<(P, Digest)>, Vec<usize>) {
    let mut index: HashMap<Digest, usize> = HashMap::new();
    let mut distinct: Vec<(P, Digest)> = Vec::new();
    let number = |(place, digest): (P, Digest)| {
        *index.entry(digest).or_insert_with(|| {
            distinct.push((place, digest));
            distinct.len() - 1
        })
    };
    let all = places.map(number).collect();
    (distinct, all)
}

/// Builds the problems of these points, if they fit into the available memory. A `known` problem is reused, and `roots` has the `theta*` of
/// problems by fingerprint. Also returns their memory, in sum and each.
fn build_problems(
    experiment: &Experiment,
    places: &Places,
    isa: Isa,
    roots: &HashMap<String, Vec<f64>>,
    known: Option<BuiltProblem>,
    wanted: &[(usize, Digest)],
    control: &PlanControl<'_>,
) -> Result<(Vec<PlannedField>, memory::Problems, Vec<MemoryEstimate>), Error> {
    let failure_at = |e: Error, w: usize| experiment.failure_at(e, &experiment.points[wanted[w].0]);
    let known = Mutex::new(known);
    let size = |w: usize| {
        let (i, tables) = &wanted[w];
        if let Some(known) = known.lock().expect("no thread panics").as_ref().filter(|known| known.tables == *tables) {
            return Ok(known.memory.clone());
        }
        let mut reader = PointReader::new(&experiment.document.kinds);
        reader.read(&experiment.points[*i])?;
        memory::of_problem(&**reader.problem(), reader.sampling(), &DiskFiles::new(places.clone()).with_cancel(control.cancel))
    };
    let sizes: Vec<Result<_>> = parallel::map(wanted.len(), size);
    let there = known.lock().expect("no thread panics").as_ref().map_or(0.0, |known| known.memory.peak);
    let estimates: Vec<MemoryEstimate> = sizes.iter().filter_map(|size| size.as_ref().ok().cloned()).collect();
    let memory = memory::problems(sizes, there).map_err(|(w, e)| failure_at(e, w))?;
    let build = |w: usize| -> Result<PlannedField> {
        let (i, tables) = &wanted[w];
        let known = known.lock().expect("no thread panics").take_if(|known| known.tables == *tables);
        let planned = match known {
            Some(known) => known.planned,
            None => {
                let mut reader = PointReader::new(&experiment.document.kinds);
                reader.read(&experiment.points[*i])?;
                build_problem(&reader, tables, &DiskFiles::new(places.clone()).with_cancel(control.cancel), isa)?
            }
        };
        if let Some(root) = roots.get(&planned.fingerprint).filter(|root| root.len() == planned.field.dim()) {
            planned.field.set_root(root.clone());
        }
        Ok(planned)
    };
    let built = parallel::map(wanted.len(), build);
    control.cancel.check()?;
    let fields = built.into_iter().enumerate().map(|(w, field)| field.map_err(|e| failure_at(e, w)));
    let fields = fields.collect::<Result<Vec<_>, _>>()?;
    Ok((fields, memory, estimates))
}

/// Builds cells: `first` has the first point and method of each, and `field_of` the problem of each point.
fn build_cells(
    experiment: &Experiment,
    places: &Places,
    digests: &[Digests],
    fields: &[PlannedField],
    field_of: &[usize],
    first: &[((usize, usize), Digest)],
) -> Result<Vec<PlannedCell>, Error> {
    let shared = Shared::new(places, &experiment.document.kinds);
    let chunks: Vec<_> = first.chunks(CHUNK).collect();
    let build = |chunk: &[((usize, usize), Digest)]| -> Result<Vec<PlannedCell>, (usize, Error)> {
        let (mut reader, mut last) = (PointReader::new(&experiment.document.kinds), None);
        let mut cells = Vec::with_capacity(chunk.len());
        for ((i, m), _) in chunk {
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
    };
    let located = |(i, e): (usize, Error)| experiment.failure_at(e, &experiment.points[i]);
    let cells = parallel::map(chunks.len(), |c| build(chunks[c]));
    let cells: Vec<Vec<PlannedCell>> = cells.into_iter().map(|cells| cells.map_err(located)).collect::<Result<_, _>>()?;
    Ok(cells.into_iter().flatten().collect())
}
