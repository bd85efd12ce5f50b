//! The two pictures: predicted curves, and stable steps over step size and local steps.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use fedsa::error::{Error, Result};
use fedsa::method::Drift;
use fedsa_data::atomic::{self, Existing};
use fedsa_data::find::Places;
use fedsa_figure::{Chart, HeatMap, HeatMaps, Level, Panel, PlottedCurve};
use fedsa_theory::predict::{Region, Spot, StepVerdict};

use crate::folder::OUT;
use crate::numbers::{number, typed};
use crate::picture::Picture;
use crate::plan::{PlannedPoint, ResolvedStart};
use crate::{Plan, Predictor, output, resolve};

/// The names of the pictures, without their extensions.
const CURVES: &str = "theory-curves";
const STABILITY: &str = "theory-stability";

/// The largest numbers of panels of curves, of curves in a panel, and of maps.
const PANELS: usize = 12;
const MAX_CURVES: usize = 12;
const MAPS: usize = 6;
/// The largest number of rings with their settings in the text.
const RINGS: usize = 8;

/// The pictures by name, or the reason why one is empty.
///
/// They show the curves and the floors of all methods, and the stable steps of each method.
pub fn pictures(plan: &Plan, predictor: &Predictor) -> Vec<(&'static str, Result<Picture, String>)> {
    [CURVES, STABILITY].into_iter().filter_map(|name| Some((name, picture(plan, predictor, name)?))).collect()
}

/// The picture of this name, or the reason why it is empty; `None` if there is no such picture.
pub fn picture(plan: &Plan, predictor: &Predictor, name: &str) -> Option<Result<Picture, String>> {
    let picture = match name {
        CURVES => Picture::Chart(curves(plan, predictor)),
        STABILITY => Picture::Heat(stability(plan)),
        _ => return None,
    };
    Some(nothing_in(&picture).map_or(Ok(picture), Err))
}

/// The folder of the pictures.
pub struct PictureFolder {
    folder: PathBuf,
    existing: Existing,
}

impl PictureFolder {
    /// The folder, which need not exist yet.
    ///
    /// # Errors
    /// When it is no folder, or has a file with the name of a picture that must not be replaced.
    pub fn new(folder: &Path, overwrite: bool, plan: &Plan) -> Result<Self> {
        if folder.exists() && !folder.is_dir() {
            return Err(Error::new(OUT, format!("{} is not a folder", folder.display()), "the path of a folder that you may write to"));
        }
        let names = [CURVES, STABILITY].into_iter().flat_map(|stem| output::picture_names(&plan.experiment, stem));
        for path in names.map(|name| folder.join(name)) {
            match atomic::at(&path) {
                Ok(Some(found)) if found.is_file() && overwrite => {}
                Ok(Some(found)) if found.is_file() => {
                    let what = format!("{} exists already", path.display());
                    return Err(Error::new(OUT, what, "another folder, or `overwrite` to replace the pictures"));
                }
                Ok(Some(found)) => {
                    let what = format!("{} is {}, which is not replaced", path.display(), atomic::kind_of(&found));
                    return Err(Error::new(OUT, what, "another folder"));
                }
                Ok(None) | Err(_) => {}
            }
        }
        Ok(Self { folder: folder.to_path_buf(), existing: if overwrite { Existing::Replace } else { Existing::Keep } })
    }

    /// Writes the pictures, each atomically, and returns a line for each: its path, or why it is empty. An empty picture is not written; an
    /// existing file of its name is removed if it may be replaced.
    ///
    /// # Errors
    /// When the folder cannot be created or written to.
    pub fn write(&self, plan: &Plan, predictor: &Predictor, base: &Path) -> Result<Vec<String>, Error> {
        let config = resolve::file(&plan.experiment, &Places::from_env(base))?;
        let mut written = Vec::new();
        for (stem, picture) in pictures(plan, predictor) {
            let picture = match picture {
                Ok(picture) => picture,
                Err(why) => {
                    written.push(format!("no {stem}: {why}"));
                    self.remove(plan, stem)?;
                    continue;
                }
            };
            std::fs::create_dir_all(&self.folder).map_err(|e| {
                let what = format!("{} cannot be made: {e}", self.folder.display());
                Error::new(OUT, what, "the path of a folder that you may write to")
            })?;
            for (name, bytes) in output::pictures(plan, stem, &picture, &config) {
                let path = self.folder.join(name);
                atomic::write(&path, &bytes, &self.folder, self.existing).map_err(|e| atomic::unwritable(&path, &e))?;
                written.push(path.display().to_string());
            }
        }
        Ok(written)
    }

    /// Removes the files of an empty picture, if they may be replaced.
    fn remove(&self, plan: &Plan, stem: &str) -> Result<(), Error> {
        if self.existing != Existing::Replace {
            return Ok(());
        }
        for path in output::picture_names(&plan.experiment, stem).into_iter().map(|name| self.folder.join(name)) {
            match std::fs::remove_file(&path) {
                Err(e) if e.kind() != ErrorKind::NotFound => return Err(atomic::unwritable(&path, &e)),
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }
}

/// Why a picture is empty.
fn nothing_in(picture: &Picture) -> Option<String> {
    let notes: Vec<&String> = match picture {
        Picture::Chart(chart) => {
            let is_empty = |panel: &Panel| panel.curves.is_empty() && panel.levels.is_empty();
            chart.panels.iter().all(is_empty).then(|| chart.panels.iter().flat_map(|panel| &panel.notes).chain(&chart.notes).collect())?
        }
        Picture::Table(_) => return None,
        Picture::Heat(heat) => heat.maps.is_empty().then(|| heat.notes.iter().collect())?,
    };
    let mut all: Vec<&str> = notes.into_iter().map(String::as_str).collect();
    all.dedup();
    Some(all.join("; "))
}

/// The predicted curves, a panel for each point.
fn curves(plan: &Plan, predictor: &Predictor) -> Chart {
    let mut notes = Vec::new();
    let mut panels = Vec::new();
    for planned in plan.points.iter().take(PANELS) {
        let mut panel = Panel {
            title: planned.point.label.clone(),
            x_label: "rounds".into(),
            y_label: "‖θ − θ*‖²".into(),
            y_log: true,
            ..Panel::default()
        };
        for (color, (label, cell)) in plan.labels.iter().zip(&planned.cells).take(MAX_CURVES).enumerate() {
            match predictor.curve(*cell) {
                Ok(curve) => {
                    let y = predictor.mse(*cell, &curve, "mse");
                    let x = plan.cells[*cell].grid.iter().map(|t| *t as f64).collect();
                    let known = predictor.curve_accuracy(*cell).map_or(String::new(), |known| format!(", {known}"));
                    panel.curves.push(PlottedCurve { label: format!("{label}{known}"), color, x, y, ..PlottedCurve::default() });
                }
                Err(why) => match noiseless(plan, *cell) {
                    Some((x, y)) => {
                        panel.curves.push(PlottedCurve { label: format!("{label}, without noise"), color, x, y, ..PlottedCurve::default() })
                    }
                    None => panel.notes.push(format!("{label}: no curve: {}", why.what)),
                },
            }
            let levels = [("floor", "floor", 0), ("bias2", "bias²", 1)];
            let known = levels.into_iter().filter_map(|(quantity, name, dash)| Some((predictor.number(*cell, quantity).ok()?, name, dash)));
            panel.levels.extend(known.filter(|(y, ..)| *y > 1e-28).map(|(y, name, dash)| Level {
                label: format!("{label}: {name}"),
                y,
                color,
                dash,
            }));
        }
        // The notes of an empty panel have the reasons.
        panel.curves.retain(|curve| !curve.x.is_empty());
        panels.push(panel);
    }
    if plan.points.len() > PANELS {
        notes.push(format!("Shown: the first {PANELS} of {} points.", plan.points.len()));
    }
    let caption =
        "What theory predicts: the mean-square error over the rounds of the file from its start (lines), the floor at which it ends and \
                   the squared bias (dashes)."
            .to_string();
    Chart { title: format!("Predicted: {}", plan.experiment.title), panels, caption, notes, ..Chart::default() }
}

/// The squared distance along the rounds of a method without noise.
fn noiseless(plan: &Plan, cell: usize) -> Option<(Vec<f64>, Vec<f64>)> {
    let of = plan.forecast(cell);
    let ResolvedStart::Fixed(start) = &plan.cells[cell].start else { return None };
    let grid = &plan.cells[cell].grid;
    let y = of.is_noiseless().then(|| of.noiseless_curve(start, grid).ok())??;
    Some((grid.iter().map(|t| *t as f64).collect(), y))
}

/// Maps of stable steps while they are collected.
#[derive(Default)]
struct Maps {
    maps: Vec<HeatMap>,
    notes: Vec<String>,
    /// The method and problem of each map.
    drawn: Vec<(String, usize)>,
    /// Whether a map shows only the mean, although there is noise.
    is_mean_only: bool,
    left_out: usize,
}

impl Maps {
    /// Adds a method at a point. Points that differ only in the step or in the local steps share a map, with a ring for each.
    fn add(&mut self, plan: &Plan, planned: &PlannedPoint, label: &str, cell: usize) {
        let of = plan.forecast(cell);
        if of.shape().drift == Drift::NoSteps {
            return self.note(format!("{label}: no map: the method makes no local steps"));
        }
        let place = of.step_size().ok().map(|eta| (eta, of.local_steps().max(1.0)));
        let (alpha, few) = (of.shape().alpha_g, of.shape().participants);
        let key = format!("{label} {} {alpha} {few:?} {:?}", planned.field, plan.cells[cell].uplink);
        if let Some((_, map)) = self.drawn.iter().find(|(known, _)| *known == key) {
            let map: &mut HeatMap = &mut self.maps[*map];
            map.rings.extend(place.filter(|place| !map.rings.contains(place)));
            return;
        }
        if self.maps.len() == MAPS {
            self.left_out += 1;
            return;
        }
        match of.region() {
            Ok(region) => {
                let is_mean_only = region.is_noisy && !region.in_mean_square;
                self.is_mean_only |= is_mean_only;
                let at = if plan.points.len() > 1 { format!(", at {}", planned.point.label) } else { String::new() };
                if region.is_cut {
                    self.notes.push(format!("{label}{at}: rows with many local steps are empty, because they take too long."));
                }
                let looked = if is_mean_only { " (mean only)" } else { "" };
                self.drawn.push((key, self.maps.len()));
                self.maps.push(map(format!("{label}{at}{looked}"), &region, place));
            }
            Err(why) => self.note(format!("{label}: no map: {}", why.what)),
        }
    }

    /// Adds a note once.
    fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }
}

/// The note on the settings of all rings.
fn rings_text(maps: &[HeatMap]) -> Option<String> {
    let mut rings: Vec<(f64, f64)> = Vec::new();
    for ring in maps.iter().flat_map(|map| &map.rings) {
        if !rings.contains(ring) {
            rings.push(*ring);
        }
    }
    let places: Vec<String> = rings.iter().take(RINGS).map(|(eta, h)| format!("η = {}, H = {}", typed(*eta), number(*h))).collect();
    let more = if rings.len() > RINGS { format!(" and {} more", rings.len() - RINGS) } else { String::new() };
    (!rings.is_empty()).then(|| format!("Rings: {}{more}.", places.join("; ")))
}

/// The maps of stable steps, one for each method and problem.
fn stability(plan: &Plan) -> HeatMaps {
    let mut all = Maps::default();
    for planned in &plan.points {
        for (label, cell) in plan.labels.iter().zip(&planned.cells) {
            all.add(plan, planned, label, *cell);
        }
    }
    let Maps { maps, mut notes, is_mean_only, left_out, .. } = all;
    if left_out > 0 {
        notes.push(format!("Shown: the first {MAPS} maps; {left_out} more methods at points are left out."));
    }
    notes.extend(rings_text(&maps));
    let mut caption = "Stable settings are coloured by the rounds that a tenfold smaller squared error takes; grey ones diverge in the mean. Faded: \
                       the mean converges, and noise makes the mean square diverge. The rings are the settings of the file. Grey between colours in \
                       a row is a window of steps that diverge although larger ones do not."
        .to_string();
    if is_mean_only {
        caption.push_str(" (mean only): the mean square takes too long or is not known, and may diverge at smaller steps.");
    }
    HeatMaps { title: format!("Stable steps: {}", plan.experiment.title), maps, caption, notes }
}

fn map(title: String, region: &Region, place: Option<(f64, f64)>) -> HeatMap {
    /// Slower settings have the colour of this many rounds.
    const SLOWEST: f64 = 1e6;
    let rounds = |shrinks: f64| (10f64.ln() / -shrinks.max(f64::MIN_POSITIVE).ln()).clamp(1.0, SLOWEST);
    let z = region.spots.iter().map(|row| {
        let value = |spot: &Spot| match spot.verdict {
            StepVerdict::Stable => rounds(spot.shrinks_by().min(1.0 - 1e-12)),
            StepVerdict::MeanSquareDiverges => rounds((spot.radius * spot.radius).min(1.0 - 1e-12)),
            StepVerdict::MeanDiverges | StepVerdict::Unknown => f64::NAN,
        };
        row.iter().map(value).collect()
    });
    let faint = |spots: &Vec<Spot>| spots.iter().map(|spot| spot.verdict == StepVerdict::MeanSquareDiverges).collect();
    HeatMap {
        title,
        x_label: "step size η".into(),
        y_label: "local steps H".into(),
        z_label: "rounds to a tenth".into(),
        x: region.steps,
        y: region.local_steps,
        x_log: true,
        y_log: true,
        z_log: true,
        z: z.collect(),
        z_range: None,
        faint: region.spots.iter().map(faint).collect(),
        rings: place.into_iter().collect(),
    }
}
