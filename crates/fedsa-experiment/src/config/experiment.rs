//! A whole file: its tables, its sweep points, and errors that concern several tables.

use std::collections::HashSet;
use std::sync::Arc;

use fedsa::error::{Error, Result, quoted, require};

use super::document::Document;
use super::reader::PointReader;
use super::schema::{Check, Expect, ExpectAt, FederationSpec, FigureSpec, Top};
use super::sweep::{self, SweepPoint};
use super::{read_table, short};

/// An experiment file, with sweeps expanded.
#[derive(Debug, Clone)]
pub struct Experiment {
    /// The file.
    pub document: Document,
    /// The experiment's name, and the default name of the output folder.
    pub id: String,
    /// The figure's title.
    pub title: String,
    /// The figure.
    pub figure: FigureSpec,
    /// The checks of the results.
    pub checks: Vec<Check>,
    /// Timeouts and rules for answers in a federation of machines.
    pub federation: FederationSpec,
    /// One per combination of variants and sweep values; one if there are none.
    pub points: Vec<Arc<SweepPoint>>,
    /// Whether these are only some of the points. Conditions on at least one point may then be unmet.
    is_part: bool,
}

/// The longest id in bytes; file names have at most 255.
const LONGEST_ID: usize = 200;

impl Experiment {
    /// Reads a document: expands its sweeps, and reads the figure and the checks, but not yet the tables of points.
    ///
    /// # Errors
    /// When a key is unknown, missing or of the wrong type, at its line.
    pub fn read(document: Document) -> Result<Self, Error> {
        let parsed = Self::read_unlocated(&document);
        parsed.map_err(|e| document.failure(e))
    }

    fn read_unlocated(document: &Document) -> Result<Self> {
        let Top { id, title, sweep: sweeps, variant: variants, figure, check: checks, federation, .. } = read_table(&document.table)?;
        let id = id.unwrap_or_else(|| {
            let stem = std::path::Path::new(&document.name).file_stem();
            stem.map_or("run".into(), |s| s.to_string_lossy().into_owned())
        });
        let is_folder = |part: &str| !part.is_empty() && !part.starts_with(".fedsa") && ![".", ".."].contains(&part);
        let sane = id.split('/').all(is_folder) && id.len() <= LONGEST_ID;
        require(sane, "id", format!("\"{}\"", quoted(&id)), "a relative path of at most 200 bytes without `.` and `..`, not of .fedsa")?;
        sweep::shown(&id).map_err(|e| e.inside("id"))?;
        if let Some(title) = &title {
            sweep::shown(title).map_err(|e| e.inside("title"))?;
        }
        federation.check().map_err(|e| e.inside("federation"))?;
        let points = sweep::expand(document, sweeps, variants)?;
        Ok(Self {
            id: id.clone(),
            title: title.unwrap_or(id),
            figure,
            checks,
            federation,
            points,
            is_part: false,
            document: document.clone(),
        })
    }

    /// The same without checks and figure.
    #[must_use]
    pub(crate) fn without_checks(&self) -> Self {
        Self { checks: Vec::new(), figure: FigureSpec::default(), ..self.clone() }
    }

    /// The same at these points, in this order, without checks and figure.
    #[must_use]
    pub fn at_points(&self, points: impl IntoIterator<Item = usize>) -> Self {
        Self {
            document: self.document.clone(),
            id: self.id.clone(),
            title: self.title.clone(),
            figure: FigureSpec::default(),
            checks: Vec::new(),
            federation: self.federation.clone(),
            points: points.into_iter().map(|i| Arc::clone(&self.points[i])).collect(),
            is_part: true,
        }
    }

    /// Reads the tables of all points and checks them against each other.
    ///
    /// # Errors
    /// When a table cannot be read, with its line.
    pub fn settings(&self) -> Result<(), Error> {
        self.read_all(|| (), |(), _| Ok(())).map(|_| ())
    }

    /// Reads the tables of all points in parallel and returns the results of `keep`, in the points' order.
    /// `begin` creates the state that `keep` carries from point to point.
    ///
    /// # Errors
    /// When a table cannot be read or `keep` fails: the error of the first such point, with its line.
    pub fn read_all<M, K: Send>(
        &self,
        begin: impl Fn() -> M + Sync,
        keep: impl Fn(&mut M, &PointReader) -> Result<K> + Sync,
    ) -> Result<Vec<K>, Error> {
        use rayon::prelude::*;
        /// The number of points per reader; a reader reads shared tables once.
        const CHUNK: usize = 256;
        let labels = self.labels().map_err(|e| self.failure_at(e, &self.points[0]))?;
        let chunks: Vec<_> = (0..self.points.len()).step_by(CHUNK).collect();
        let read = |first: &usize| {
            let (mut reader, mut memory) = (PointReader::new(&self.document.kinds), begin());
            let mut seen = Seen::default();
            let mut kept = Vec::new();
            for i in *first..self.points.len().min(first + CHUNK) {
                let point = &self.points[i];
                let mut one = || {
                    reader.read(point)?;
                    for (m, (method, first)) in reader.methods.iter().zip(&labels).enumerate() {
                        if method.label != *first {
                            let what = format!("`{}`, but `{}` at the first point", quoted(&method.label), quoted(first));
                            return Err(Error::new(format!("method[{m}].label"), what, "the same label at every point"));
                        }
                    }
                    seen.see(&reader, i == *first);
                    keep(&mut memory, &reader)
                };
                kept.push(one().map_err(|e| (i, e))?);
            }
            Ok((kept, seen))
        };
        let chunks: Vec<Result<_, (usize, Error)>> = chunks.par_iter().map(read).collect();
        let mut all = Vec::with_capacity(self.points.len());
        let mut seen: Option<Seen> = None;
        for chunk in chunks {
            let (kept, own) = chunk.map_err(|(i, e)| self.failure_at(e, &self.points[i]))?;
            all.extend(kept);
            seen = Some(seen.map_or_else(|| own.clone(), |before| before.and(&own)));
        }
        seen.filter(|_| !self.is_part).map_or(Ok(()), |seen| seen.check(self)).map_err(|e| self.failure_at(e, &self.points[0]))?;
        Ok(all)
    }

    /// The labels of the methods, in the file's order; the same at every point.
    ///
    /// # Errors
    /// When a table cannot be read.
    pub fn labels(&self) -> Result<Vec<String>> {
        let mut reader = PointReader::new(&self.document.kinds);
        reader.read(&self.points[0])?;
        Ok(reader.methods.iter().map(|method| method.label.clone()).collect())
    }

    /// An error about a key at a sweep point; the message names the point if there are several.
    pub fn failure_at(&self, e: Error, point: &SweepPoint) -> Error {
        let e = if point.label.is_empty() {
            e
        } else {
            {
                let what = format!("{} (at {})", e.what, quoted(&point.label));
                e.saying(what)
            }
        };
        self.document.failure_at(e, &point.origins())
    }
}

/// Findings about several points.
#[derive(Debug, Clone, Default)]
struct Seen {
    /// Settings that had no effect at any of these points.
    idle: Vec<Error>,
    /// For each method, the entries of `expect` that applied at some point.
    matched: Vec<HashSet<usize>>,
    /// The `expect` of each method that has a list; the longest one.
    expected: Vec<Vec<ExpectAt>>,
}

impl Seen {
    fn see(&mut self, reader: &PointReader, is_first: bool) {
        let idle = reader.idle();
        match is_first {
            true => self.idle = idle,
            false => self.idle.retain(|e| idle.iter().any(|other| other.key == e.key)),
        }
        self.matched.resize_with(reader.methods.len(), HashSet::new);
        self.expected.resize_with(reader.methods.len(), Vec::new);
        for (m, method) in reader.methods.iter().enumerate() {
            self.matched[m].extend(method.expected_by);
            if let Some(Expect::At(list)) = reader.expect(m)
                && list.len() > self.expected[m].len()
            {
                self.expected[m].clone_from(list);
            }
        }
    }

    /// The findings about both sets of points.
    fn and(mut self, other: &Seen) -> Self {
        self.idle.retain(|e| other.idle.iter().any(|idle| idle.key == e.key));
        for (m, matched) in other.matched.iter().enumerate() {
            self.matched[m].extend(matched);
            if other.expected[m].len() > self.expected[m].len() {
                self.expected[m].clone_from(&other.expected[m]);
            }
        }
        self
    }

    /// Refuses settings that have no effect at any point.
    fn check(&self, experiment: &Experiment) -> Result<()> {
        if let Some(idle) = self.idle.first() {
            return Err(idle.clone());
        }
        let unmatched = |(m, list): (usize, &Vec<ExpectAt>)| Some((m, (0..list.len()).find(|j| !self.matched[m].contains(j))?));
        let Some((m, j)) = self.expected.iter().enumerate().find_map(unmatched) else { return Ok(()) };
        let (entry, key, names) = (&self.expected[m][j], format!("method[{m}].expect[{j}]"), experiment.coordinate_names());
        if let Some(name) = entry.at.keys().find(|name| !names.contains(&name.as_str())) {
            let near = super::did_you_mean(super::nearest(name, names.iter().copied()));
            let what = format!("there is no swept coordinate `{}`{near}", quoted(name));
            let accepted =
                if names.is_empty() { "expect = \"diverges\", or a sweep".into() } else { format!("one of {}", names.join(", ")) };
            return Err(Error::new(format!("{key}.at.{name}"), what, accepted));
        }
        let at: Vec<String> = entry.at.iter().map(|(name, value)| format!("{name} = {}", short(value))).collect();
        let what = format!("no point is at {}, or earlier entries match all such points", at.join(", "));
        Err(Error::new(key, what, "values that are swept, and each point in one entry"))
    }
}

impl Experiment {
    /// The names of all coordinates, sorted.
    pub fn coordinate_names(&self) -> Vec<&str> {
        let names: HashSet<&str> = self.points.iter().flat_map(|p| &p.coordinates).map(|(name, _)| name.as_str()).collect();
        let mut names: Vec<&str> = names.into_iter().collect();
        names.sort_unstable();
        names
    }
}
