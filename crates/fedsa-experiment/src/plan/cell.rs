//! Cells of a plan: one method on one problem, with its start and its link.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use fedsa::error::{Error, Result, quoted, require};
use fedsa::method::{Drift, MethodSettings, MethodShape, Setting};
use fedsa::problem::Field;
use fedsa::problem::copies::{Copies, CopyRule};
use fedsa::protocol::Protocol;
use fedsa::record::OutputRule;
use fedsa::sampling::Law;
use fedsa::uplink::Uplink;
use fedsa_data::DiskFiles;
use fedsa_data::find::Places;
use fedsa_theory::predict::{Forecast, shape_over};

use super::digest::{self, Digest, canonical, canonical_link, digest, without};
use crate::config::link;
use crate::config::schema::{Centre, ControlsStart, Refused};
use crate::config::{MethodSpec, PointReader, RunSpec, StartSpec};
use crate::kinds::Kinds;
use crate::resolve;

/// A cell: one method on one problem with its run settings, for all seeds.
#[derive(Clone)]
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
    /// The copies of theta whose combination is the output.
    pub copies: Option<CopyRule>,
    /// The link.
    pub uplink: Arc<Uplink>,
    /// The recorded rounds.
    pub grid: Arc<[u64]>,
    /// Why the cell does not run: the method cannot work over its link.
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

/// Parts that cells share, each built once.
pub(super) struct Shared<'p> {
    places: &'p Places,
    kinds: &'p Kinds,
    runs: Mutex<HashMap<Digest, SharedRun>>,
    links: Parts<Digest, Uplink>,
    /// By problem and start.
    starts: Parts<(usize, Digest), [f64]>,
}

/// A `[run]` table.
#[derive(Clone)]
pub(super) struct SharedRun {
    spec: Arc<RunSpec>,
    /// The recorded rounds.
    grid: Arc<[u64]>,
    /// A digest of the table without its number of rounds and its seeds.
    pub identity: Digest,
}

/// A part, with the checksum of the files from which it was built.
type Kept<T> = (Arc<T>, u32);
/// Parts by the settings from which they were built.
type Parts<K, T> = Mutex<HashMap<K, Kept<T>>>;

impl<'p> Shared<'p> {
    pub fn new(places: &'p Places, kinds: &'p Kinds) -> Self {
        Self { places, kinds, runs: Mutex::default(), links: Mutex::default(), starts: Mutex::default() }
    }

    /// `[run]` of the point that was read last.
    pub fn run(&self, digest: &Digest, reader: &PointReader) -> Result<SharedRun> {
        if let Some(run) = self.runs.lock().expect("no panics under the lock").get(digest) {
            return Ok(run.clone());
        }
        let spec = Arc::clone(reader.run());
        let grid = spec.record.rounds(spec.rounds).into();
        let endless = without(&resolve::section("run", reader.resolved_run()?, self.places)?, &["rounds", "seeds"]);
        let made = SharedRun { spec, grid, identity: digest::digest(&[&canonical(&endless)]) };
        Ok(self.runs.lock().expect("no panics under the lock").entry(*digest).or_insert(made).clone())
    }

    /// The link of a method.
    fn link(&self, method: &MethodSpec) -> Result<Kept<Uplink>> {
        let ends = digest(&[
            &canonical_link(&method.uplink.codec, &method.uplink.media),
            &format!("{} {:?}", method.uplink.error_feedback, method.uplink.aggregation),
            &canonical_link(&method.downlink.codec, &[]),
        ]);
        let made = |files: &DiskFiles| link::build(self.kinds, &method.uplink, &method.downlink, Some(files)).map(Arc::new);
        self.kept(&self.links, ends, made)
    }

    /// The part with this key. It is built outside the lock, so that two threads may build the same part.
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
    /// Checks a method with its link on a problem, and computes its start.
    pub(super) fn new(
        identity: &str,
        index: usize,
        shared_field: &Arc<dyn Field>,
        method: MethodSpec,
        SharedRun { spec: run, grid, .. }: SharedRun,
        shared: &Shared<'_>,
        place: usize,
    ) -> Result<Self> {
        let field = &**shared_field;
        let place = format!("method[{place}]");
        let inside = |e: Error| e.inside(&place);
        method.settings.check(field.agents()).map_err(inside)?;
        check_stop(&run, field)?;
        let output = method.output.rule(run.rounds).map_err(inside)?;
        let copies = method.output.copies().map_err(inside)?;
        let (start, start_files) = start_of(&method, &run, shared_field, index, shared, &place)?;
        let centre = match method.measure_from {
            Centre::Root => None,
            Centre::Limit => {
                let limit = Forecast::new(shared_field, method.settings.shape()).of_copies(copies).limit();
                Some(limit.map_err(|e| e.inside(&format!("{place}.measure_from")))?)
            }
        };
        if method.controls == ControlsStart::Ideal {
            let known = field.root().is_some() && field.has_mean();
            require(known, "controls", "\"ideal\"", "ideal only where theta* and the mean operators are known").map_err(inside)?;
        }
        let (uplink, link_files) = shared.link(&method).map_err(inside)?;
        copies.map_or(Ok(()), |rule| check_copies(rule, &method, shared_field, &uplink)).map_err(inside)?;
        let encodes = protocol(field, &*method.settings, &uplink).encodes();
        let fits = uplink
            .check(field.agents(), field.dim(), encodes)
            .and_then(|()| check_traces(&uplink, run.rounds))
            .and_then(|()| check_privacy(&uplink, run.rounds))
            .and_then(|()| fedsa::round::check_units(&uplink, field));
        fits.map_err(|e| link::located(&method.uplink, e).inside(&place))?;
        fedsa::round::check_needs(&*method.settings, field).map_err(|e| e.inside(&place))?;
        let refused = match check_link(field, &method, &uplink) {
            Ok(()) => None,
            Err(e) if run.refused == Refused::Skip => Some(e.what),
            Err(e) => return Err(e.inside(&format!("{place}.uplink"))),
        };
        let identity = format!("{identity} files {start_files:08x} {link_files:08x}");
        Ok(Self { identity, field: index, method, run, start, centre, output, copies, uplink, grid, refused })
    }

    /// The method's shape for theory. Over a link that is not clear, a round does not count as linear.
    pub fn shape(&self) -> MethodShape {
        shape_over(&*self.method.settings, &self.uplink)
    }

    /// The share of the agents' messages that arrive, weakened or not.
    pub fn share_arriving(&self, field: &dyn Field) -> f64 {
        self.uplink.share_arriving(field.dim(), protocol(field, &*self.method.settings, &self.uplink).encodes())
    }

    /// Whether everything that agents send arrives at once and unaltered.
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

/// Refuses copies of theta where their combination has no meaning.
fn check_copies(rule: CopyRule, method: &MethodSpec, field: &Arc<dyn Field>, uplink: &Uplink) -> Result<()> {
    let (shape, facts) = (method.settings.shape(), field.facts());
    let what = "copies of theta that move on the same samples";
    let known = |is_known: bool, why: &str| require(is_known, "output", format!("{what}, and {why}"), "last, average, tail or weighted");
    known(shape.is_linear, "rounds of this method are not linear on linear problems")?;
    known(uplink.is_clear(), "a link that loses or alters messages: all copies are in one")?;
    known(method.controls != ControlsStart::Ideal, "controls that are ideal for one")?;
    let is_fixed = field.sampling().kind == Law::Mean || facts.law(0).is_some() || facts.additive_noise().is_some();
    known(is_fixed, "it is not known whether samples depend on theta")?;
    if rule == CopyRule::LinearTwin {
        let is_unbiased = !matches!(shape.drift, Drift::Zero) && shape.participants.is_none() && field.systems().is_none();
        let help = "a method with control variates or corrections of all agents on a nonlinear problem: its linear twin has no bias";
        require(is_unbiased, "output.linear_twin", "a method that has a bias on linear problems, or a linear problem", help)?;
    }
    Copies::new(field, rule).map(|_| ())
}

/// Refuses a stop at a metric that the problem does not have.
fn check_stop(run: &RunSpec, field: &dyn Field) -> Result<()> {
    if field.facts().is_elsewhere() {
        return Ok(());
    }
    if run.stop.mse.is_some() && field.root().is_none() {
        let what = "theta* is not known for this problem, and therefore the mse";
        return Err(Error::new("run.stop.mse", what, "stop = { residual = x } or { relative_residual = x }"));
    }
    if (run.stop.residual.is_some() || run.stop.relative_residual.is_some()) && !field.has_mean() {
        let what = "the residual is not known, because the operators can only be sampled";
        return Err(Error::new("run.stop", what, "no stop at a residual"));
    }
    if run.stop.gap.is_some() && (field.root().is_none() || field.facts().objective().is_none()) {
        let what = "f(theta) - f(theta*) is not known for this problem: its operators are not minus gradients, or theta* is not known";
        return Err(Error::new("run.stop.gap", what, "stop = { residual = x } or { relative_residual = x }"));
    }
    Ok(())
}

/// `theta_0` of a method at `place`, on the problem with this index, and the checksum of the files it was read from.
fn start_of(
    method: &MethodSpec,
    run: &RunSpec,
    field: &Arc<dyn Field>,
    index: usize,
    shared: &Shared<'_>,
    place: &str,
) -> Result<(ResolvedStart, u32)> {
    let (start, key) = match &method.start {
        Some(start) => (start, format!("{place}.start")),
        None => (&run.start, "run.start".to_string()),
    };
    Ok(match start {
        StartSpec::Name(name) if name == "normal" => (ResolvedStart::Normal, 0),
        // The limit depends on the method's own settings.
        StartSpec::Name(name) if name == "limit" => {
            let limit = Forecast::new(field, method.settings.shape()).limit().map_err(|e| e.inside(&key))?;
            (ResolvedStart::Fixed(limit.into()), 0)
        }
        start => {
            let made = |files: &DiskFiles| resolve_start(start, &**field, files).map(Arc::from).map_err(|e| e.inside(&key));
            let (theta, digest) = shared.kept(&shared.starts, (index, digest(&[&format!("{start:?}")])), made)?;
            (ResolvedStart::Fixed(theta), digest)
        }
    })
}

/// Refuses more rounds than the privacy of a link covers.
fn check_privacy(uplink: &Uplink, rounds: u64) -> Result<()> {
    let Some(privacy) = uplink.privacy().filter(|privacy| rounds > privacy.rounds) else { return Ok(()) };
    let what = format!("{}, and the run has {rounds} rounds, each of which is a release", privacy.rounds);
    Err(Error::new("uplink.media.privacy.rounds", what, "as many rounds as the run, or fewer `rounds` in [run]"))
}

/// Refuses a link whose traces of delays are shorter than the run.
fn check_traces(uplink: &Uplink, rounds: u64) -> Result<()> {
    uplink.delay().map_or(Ok(()), |delay| delay.check_rounds(rounds)).map_err(|e| e.inside("uplink.media"))
}

/// Refuses a method that cannot work over its link.
fn check_link(field: &dyn Field, method: &MethodSpec, uplink: &Uplink) -> Result<()> {
    let setting = setting(field, uplink);
    let (client, protocol) = (method.settings.client(&setting), method.settings.protocol(&setting));
    fedsa::method::check_link(&*method.settings, &*client, &protocol, uplink, field.dim()).map_err(|e| e.about(String::new()))
}

/// The messages between the halves of a method.
fn protocol(field: &dyn Field, method: &dyn MethodSettings, uplink: &Uplink) -> Protocol {
    method.protocol(&setting(field, uplink))
}

/// A run from zero with any seed, used for its shape only.
fn setting<'a>(field: &'a dyn Field, uplink: &Uplink) -> Setting<'a> {
    Setting { seed: 0, weights: field.weights(), start: vec![0.0; field.dim()], link: uplink.facts(), is_accelerated: false }
}

/// `theta_0` of a start that depends only on the problem, d components.
fn resolve_start(start: &StartSpec, field: &dyn Field, files: &DiskFiles) -> Result<Vec<f64>> {
    const NAMES: &str = "zero, root, root+1, normal, limit, a list of d numbers, or a file (.npz with theta, or .json)";
    let d = field.dim();
    let root = || {
        let known = field.solution().map(|root| root.theta.clone());
        known.map_err(|why| Error::new("", format!("theta* is not known for this problem: {why}"), NAMES))
    };
    let theta = match start {
        StartSpec::List(theta) => theta.clone(),
        StartSpec::Name(name) => match name.as_str() {
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
                return Err(Error::new("", format!("there is no start `{}`{near}", quoted(other)), NAMES));
            }
        },
    };
    let accepted = format!("{d} finite numbers, one per feature");
    if theta.len() != d {
        return Err(Error::new("", format!("{} numbers for d = {d}", theta.len()), accepted));
    }
    if let Some(i) = theta.iter().position(|x| !x.is_finite()) {
        return Err(Error::new("", format!("component {i} is {}", theta[i]), accepted));
    }
    Ok(theta)
}
