//! The plan of an experiment: its problems are built, its methods checked and its starts computed.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use fedsa::error::{BadInput, Error, Result, quoted, require};
use fedsa::kernel::Isa;
use fedsa::methods::{MethodSettings, Setting, Shape};
use fedsa::parallel;
use fedsa::problem::Field;
use fedsa::problem::memory::MemoryEstimate;
use fedsa::protocol::Protocol;
use fedsa::record::OutputRule;
use fedsa::sampling::Sampling;
use fedsa::uplink::Uplink;
use fedsa_data::DiskFiles;
use fedsa_data::find::Places;
use fedsa_theory::predict::{Forecast, shape_over};
use sha2::{Digest as _, Sha256};
use toml::{Table, Value};

use super::{memory, resolve};
use crate::config::link;
use crate::config::schema::{Centre, ControlsStart, Refused};
use crate::config::{Experiment, MethodSpec, Reader, RunSpec, Start, SweepPoint};
use crate::kinds::Kinds;

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

/// A problem with its sampling.
pub struct PlannedField {
    /// A digest of the tables and files from which the problem was built. Equal digests mean equal problems.
    pub fingerprint: String,
    /// The problem.
    pub field: Arc<dyn Field>,
}

/// The problem that `reader` read last.
fn build_problem(reader: &Reader, tables: &Digest, files: &DiskFiles, isa: Isa) -> Result<PlannedField> {
    planned(reader.problem().field(files, reader.sampling(), isa), tables, files)
}

/// A problem that was built from these tables and files.
fn planned(field: Result<Arc<dyn Field>>, tables: &Digest, files: &DiskFiles) -> Result<PlannedField> {
    let field = field.map_err(|e| if e.key.starts_with("sampling") { e } else { e.inside("problem") })?;
    Ok(PlannedField { fingerprint: format!("{} files {:08x}", hex(tables), files.digest()), field })
}

/// The problem of an experiment's first point, built before the plan.
pub struct BuiltProblem {
    /// The digest of its tables.
    tables: Digest,
    memory: MemoryEstimate,
    planned: PlannedField,
}

impl BuiltProblem {
    /// Builds the problem if it fits into the available memory.
    ///
    /// # Errors
    /// When a setting or file cannot be used, or the problem does not fit; the failure shows its line.
    pub fn new(experiment: &Experiment, files: &DiskFiles, isa: Isa) -> Result<Self, Error> {
        let memory = |reader: &Reader| memory::of_problem(&**reader.problem(), reader.sampling(), files);
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
        memory: impl FnOnce(&Reader) -> Result<MemoryEstimate>,
        field: impl FnOnce(&Reader) -> Result<Arc<dyn Field>>,
    ) -> Result<Self, Error> {
        let point = &experiment.points[0];
        let mut reader = Reader::new(&experiment.document.kinds);
        let build = || -> Result<Self> {
            reader.read(point)?;
            let tables = Digester::default().point(&reader, &files.places)?.field;
            let memory = memory(&reader);
            memory::problems(vec![memory.clone()], 0.0).map_err(|(_, e)| e)?;
            Ok(Self { tables, memory: memory?, planned: planned(field(&reader), &tables, files)? })
        };
        build().map_err(|e| experiment.failure_at(e, point))
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

/// A cell: one method on one problem with its run settings, for all seeds.
pub struct PlannedCell {
    /// A digest of all settings except the number of rounds and the seeds. It identifies the cell in checkpoints.
    pub identity: String,
    /// The index of its problem.
    pub field: usize,
    /// The method.
    pub method: MethodSpec,
    /// The run settings.
    pub run: Arc<RunSpec>,
    /// `theta_0`.
    pub start: ResolvedStart,
    /// The reference point of the `error` metric, d components, if it is not `theta*`.
    pub centre: Option<Vec<f64>>,
    /// The method's output.
    pub output: OutputRule,
    /// The link.
    pub uplink: Arc<Uplink>,
    /// The recorded rounds.
    pub grid: Arc<[u64]>,
    /// The reason why the cell is not run: the method cannot work over its link.
    pub refused: Option<String>,
}

/// `theta_0`, for every seed or drawn per seed.
#[derive(Debug, Clone, PartialEq)]
pub enum ResolvedStart {
    /// The same for every seed.
    Fixed(Arc<[f64]>),
    /// N(0, I), drawn from the run's seed.
    Normal,
}

impl ResolvedStart {
    /// `theta_0` of a seed, d components.
    pub fn of(&self, seed: u64, d: usize) -> Vec<f64> {
        match self {
            ResolvedStart::Fixed(theta) => theta.to_vec(),
            ResolvedStart::Normal => {
                let mut s = fedsa::random::stream(seed, fedsa::random::Purpose::Start, 0, fedsa::random::ALL);
                (0..d).map(|_| s.normal()).collect()
            }
        }
    }
}

/// A digest of 128 bits that identifies a table.
type Digest = [u8; 16];

/// The digest of several texts in order.
fn digest(texts: &[&str]) -> Digest {
    let mut hasher = Sha256::new();
    for text in texts {
        hasher.update((text.len() as u64).to_le_bytes());
        hasher.update(text);
    }
    hasher.finalize()[..16].try_into().expect("half of 32 bytes")
}

fn hex(digest: &Digest) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The digests of the tables of a point.
struct Digests {
    /// Of the problem with its sampling.
    field: Digest,
    /// Of `[run]`.
    run: Digest,
    /// Of each method.
    methods: Vec<Digest>,
}

/// Digests of tables, for points that share them.
#[derive(Default)]
struct Digester {
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
    fn point(&mut self, reader: &Reader, places: &Places) -> Result<Digests> {
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
        Ok(Digests { field: digest(&[&hex(&problem), &hex(&sampling)]), run, methods })
    }
}

impl Plan {
    /// Builds the plan. `base` is the folder of relative paths. `roots` has the `theta*` of problems by fingerprint, as an
    /// earlier run of this experiment computed them.
    ///
    /// # Errors
    /// When a setting or file cannot be used; the failure shows its line.
    pub fn new(experiment: Experiment, base: &Path, isa: Isa, roots: &HashMap<String, Vec<f64>>) -> Result<Self, Error> {
        Self::with_problem(experiment, base, isa, roots, None)
    }

    /// [`Plan::new`] with a problem that was built before, which is used where it is one of this experiment.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub fn with_problem(
        experiment: Experiment,
        base: &Path,
        isa: Isa,
        roots: &HashMap<String, Vec<f64>>,
        known: Option<BuiltProblem>,
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
                    build_problem(&reader, tables, &DiskFiles::new(places.clone()), isa)?
                }
            };
            if let Some(root) = roots.get(&planned.fingerprint).filter(|root| root.len() == planned.field.dim()) {
                planned.field.set_root(root.clone());
            }
            Ok(planned)
        });
        let fields =
            built.into_iter().zip(&wanted).map(|(field, (i, _))| field.map_err(|e| experiment.failure_at(e, &experiment.points[*i])));
        let fields: Vec<PlannedField> = fields.collect::<Result<_, _>>()?;

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
                    PlannedCell::new(&identity, field_of[*i], &*of.field, reader.methods[*m].clone(), run, &shared, *m)
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
    pub fn forecast(&self, cell: usize) -> Forecast<'_> {
        let planned = &self.cells[cell];
        Forecast::over(self.field(cell), &*planned.method.settings, &planned.uplink).of_output(planned.output)
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

/// A table without some of its keys.
fn without(value: &Value, keys: &[&str]) -> Value {
    let mut value = value.clone();
    if let Value::Table(table) = &mut value {
        keys.iter().for_each(|key| {
            table.remove(*key);
        });
    }
    value
}

/// The tables of one direction of a link as text.
fn canonical_link(codec: &Option<Table>, media: &[Table]) -> String {
    let tables = codec.iter().chain(media).map(|table| canonical(&Value::Table(table.clone())));
    format!("{}: {}", codec.is_some(), tables.collect::<Vec<_>>().join(" "))
}

/// A value as text with the keys of tables sorted.
fn canonical(value: &Value) -> String {
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

/// The number of points or cells per reader.
const CHUNK: usize = 256;

/// Parts that cells share, each built once.
struct Shared<'p> {
    places: &'p Places,
    kinds: &'p Kinds,
    runs: Mutex<HashMap<Digest, SharedRun>>,
    links: Parts<Digest, Uplink>,
    /// By problem and start.
    starts: Parts<(usize, Digest), [f64]>,
}

/// A `[run]` table.
#[derive(Clone)]
struct SharedRun {
    spec: Arc<RunSpec>,
    /// The recorded rounds.
    grid: Arc<[u64]>,
    /// A digest of the table without its number of rounds and its seeds.
    identity: Digest,
}

/// A part, with the checksum of the files from which it was built.
type Kept<T> = (Arc<T>, u32);
/// Parts by the settings from which they were built.
type Parts<K, T> = Mutex<HashMap<K, Kept<T>>>;

impl<'p> Shared<'p> {
    fn new(places: &'p Places, kinds: &'p Kinds) -> Self {
        Self { places, kinds, runs: Mutex::default(), links: Mutex::default(), starts: Mutex::default() }
    }

    /// `[run]` of the point that was read last.
    fn run(&self, digest: &Digest, reader: &Reader) -> Result<SharedRun> {
        if let Some(run) = self.runs.lock().expect("no panics under the lock").get(digest) {
            return Ok(run.clone());
        }
        let spec = Arc::clone(reader.run());
        let grid = spec.record.rounds(spec.rounds).into();
        let endless = without(&resolve::section("run", reader.resolved_run()?, self.places)?, &["rounds", "seeds"]);
        let made = SharedRun { spec, grid, identity: self::digest(&[&canonical(&endless)]) };
        Ok(self.runs.lock().expect("no panics under the lock").entry(*digest).or_insert(made).clone())
    }

    /// The part with this key. It is built outside the lock; two threads may therefore build the same part.
    fn kept<K: Copy + Eq + std::hash::Hash, T: ?Sized>(
        &self,
        parts: &Parts<K, T>,
        key: K,
        make: impl FnOnce(&DiskFiles) -> Result<Arc<T>>,
    ) -> Result<Kept<T>> {
        if let Some(kept) = parts.lock().expect("no panics under the lock").get(&key) {
            return Ok(kept.clone());
        }
        let files = DiskFiles::new(self.places.clone());
        let made = (make(&files)?, files.digest());
        Ok(parts.lock().expect("no panics under the lock").entry(key).or_insert(made).clone())
    }
}

impl PlannedCell {
    fn new(
        identity: &str,
        index: usize,
        field: &dyn Field,
        method: MethodSpec,
        SharedRun { spec: run, grid, .. }: SharedRun,
        shared: &Shared<'_>,
        place: usize,
    ) -> Result<Self> {
        let place = format!("method[{place}]");
        let inside = |e: BadInput| e.inside(&place);
        method.settings.check(field.agents()).map_err(inside)?;
        if run.stop.mse.is_some() && field.root().is_none() {
            let what = "theta* is not known for this problem, and therefore the mse";
            return Err(BadInput::new("run.stop.mse", what, "stop = { residual = x } or { relative_residual = x }"));
        }
        if (run.stop.residual.is_some() || run.stop.relative_residual.is_some()) && !field.has_mean() {
            let what = "the residual is not known, because the operators can only be sampled";
            return Err(BadInput::new("run.stop", what, "no stop at a residual"));
        }
        if run.stop.gap.is_some() && (field.root().is_none() || field.facts().objective().is_none()) {
            let what = "f(theta) - f(theta*) is not known for this problem: its operators are not minus gradients, or theta* is not known";
            return Err(BadInput::new("run.stop.gap", what, "stop = { residual = x } or { relative_residual = x }"));
        }
        let output = method.output.rule(run.rounds).map_err(inside)?;
        let (start, key) = match &method.start {
            Some(start) => (start, format!("{place}.start")),
            None => (&run.start, "run.start".to_string()),
        };
        let (start, start_files) = match start {
            Start::Name(name) if name == "normal" => (ResolvedStart::Normal, 0),
            // The limit depends on the method's own settings.
            Start::Name(name) if name == "limit" => {
                let limit = Forecast::new(field, method.settings.shape()).limit().map_err(|e| e.inside(&key))?;
                (ResolvedStart::Fixed(limit.into()), 0)
            }
            start => {
                let made = |files: &DiskFiles| resolve_start(start, field, files).map(Arc::from).map_err(|e| e.inside(&key));
                let (theta, digest) = shared.kept(&shared.starts, (index, digest(&[&format!("{start:?}")])), made)?;
                (ResolvedStart::Fixed(theta), digest)
            }
        };
        let centre = match method.measure_from {
            Centre::Root => None,
            Centre::Limit => {
                let limit = Forecast::new(field, method.settings.shape()).limit();
                Some(limit.map_err(|e| e.inside(&format!("{place}.measure_from")))?)
            }
        };
        if method.controls == ControlsStart::Ideal {
            let known = field.root().is_some() && field.has_mean();
            require(known, "controls", "\"ideal\"", "ideal only where theta* and the mean operators are known").map_err(inside)?;
        }
        let ends = digest(&[
            &canonical_link(&method.uplink.codec, &method.uplink.media),
            &format!("{}", method.uplink.error_feedback),
            &canonical_link(&method.downlink.codec, &[]),
        ]);
        let made =
            |files: &DiskFiles| link::build(shared.kinds, &method.uplink, &method.downlink, Some(files)).map(Arc::new).map_err(inside);
        let (uplink, link_files) = shared.kept(&shared.links, ends, made)?;
        let encodes = protocol(field, &*method.settings, &uplink).encodes();
        let fits = uplink.check(field.agents(), field.dim(), encodes).and_then(|()| check_traces(&uplink, run.rounds));
        fits.map_err(|e| link::located(&method.uplink, e).inside(&place))?;
        fedsa::round::check_needs(&*method.settings, field).map_err(|e| e.inside(&place))?;
        let refused = match check_link(field, &method, &uplink) {
            Ok(()) => None,
            Err(e) if run.refused == Refused::Skip => Some(e.what),
            Err(e) => return Err(e.inside(&format!("{place}.uplink"))),
        };
        let identity = format!("{identity} files {start_files:08x} {link_files:08x}");
        Ok(Self { identity, field: index, method, run, start, centre, output, uplink, grid, refused })
    }

    /// The method's shape for theory. Over a link that is not clear, a round does not count as linear.
    pub fn shape(&self) -> Shape {
        shape_over(&*self.method.settings, &self.uplink)
    }

    /// The share of the agents' messages that arrive, weakened or not.
    pub fn share_arriving(&self, field: &dyn Field) -> f64 {
        self.uplink.share_arriving(field.dim(), protocol(field, &*self.method.settings, &self.uplink).encodes())
    }

    /// Whether all that agents send arrives at once and unaltered.
    pub fn delivers_all(&self, field: &dyn Field) -> bool {
        self.uplink.delivers_all(field.dim(), protocol(field, &*self.method.settings, &self.uplink).encodes())
    }

    /// The seeds to run; none if the cell is refused.
    pub fn seeds(&self) -> Vec<u64> {
        if self.refused.is_some() { Vec::new() } else { self.run.seeds.list() }
    }

    /// The number of seeds to run.
    pub fn seeds_count(&self) -> usize {
        if self.refused.is_some() { 0 } else { self.run.seeds.count() }
    }

    /// The cost of one seed: local steps of all agents over all rounds, with 10 steps per agent and round for overhead.
    pub fn work(&self, field: &dyn Field) -> f64 {
        let shape = self.method.settings.shape();
        let agents = shape.participants.unwrap_or(field.agents()) as f64;
        self.run.rounds as f64 * agents * (shape.local_steps + 10.0)
    }
}

/// Refuses a link whose traces of delays are shorter than the run.
fn check_traces(uplink: &Uplink, rounds: u64) -> Result<()> {
    let delays = [uplink.delay.as_ref().map(|pull| &pull.delay), uplink.late.as_ref()];
    delays.into_iter().flatten().try_for_each(|delay| delay.check_rounds(rounds)).map_err(|e| e.inside("uplink.media"))
}

/// Refuses a method that cannot work over its link.
fn check_link(field: &dyn Field, method: &MethodSpec, uplink: &Uplink) -> Result<()> {
    let setting = setting(field, uplink);
    let (client, protocol) = (method.settings.client(&setting), method.settings.protocol(&setting));
    fedsa::methods::check_link(&*method.settings, &client, &protocol, uplink, field.dim()).map_err(|e| e.about(String::new()))
}

/// What travels between the halves of a method.
fn protocol(field: &dyn Field, method: &dyn MethodSettings, uplink: &Uplink) -> Protocol {
    method.protocol(&setting(field, uplink))
}

/// A run from zero, whatever its seed, of which only the shape is of interest.
fn setting<'a>(field: &'a dyn Field, uplink: &Uplink) -> Setting<'a> {
    Setting { seed: 0, weights: field.weights(), start: vec![0.0; field.dim()], link: uplink.facts(), is_accelerated: false }
}

/// `theta_0` of a start that depends only on the problem, d components.
fn resolve_start(start: &Start, field: &dyn Field, files: &DiskFiles) -> Result<Vec<f64>> {
    const NAMES: &str = "zero, root, root+1, normal, limit, a list of d numbers, or a file (.npz with theta, or .json)";
    let d = field.dim();
    let root = || {
        let known = field.solution().map(|root| root.theta.clone());
        known.map_err(|why| BadInput::new("", format!("theta* is not known for this problem: {why}"), NAMES))
    };
    let theta = match start {
        Start::List(theta) => theta.clone(),
        Start::Name(name) => match name.as_str() {
            "zero" => vec![0.0; d],
            "root" => root()?,
            "root+1" => root()?.iter().map(|x| x + 1.0).collect(),
            file if file.contains('.') => files.vector(file).map_err(|e| {
                let what = e.to_string();
                e.about("").saying(what)
            })?,
            other => {
                let near = crate::config::nearest(other, ["zero", "root", "root+1", "normal", "limit"].into_iter());
                let near = near.map_or(String::new(), |n| format!("; did you mean `{n}`?"));
                return Err(BadInput::new("", format!("there is no start `{}`{near}", quoted(other)), NAMES));
            }
        },
    };
    let accepted = format!("{d} finite numbers, one per feature");
    if theta.len() != d {
        return Err(BadInput::new("", format!("{} numbers for d = {d}", theta.len()), accepted));
    }
    if let Some(i) = theta.iter().position(|x| !x.is_finite()) {
        return Err(BadInput::new("", format!("component {i} is {}", theta[i]), accepted));
    }
    Ok(theta)
}
