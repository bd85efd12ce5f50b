//! Captions, which explain lines, points and bands.

use std::collections::BTreeSet;

use super::{Band, CurveCentre, Panel, Plan, Results, schema};

/// The meaning of the band around the centre over seeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BandKind {
    Deviation,
    Error,
    Quantiles,
    Nothing,
}

impl BandKind {
    /// The kind of band of a figure; by default standard errors if a prediction is drawn.
    pub fn of(figure: &schema::FigureSpec) -> Self {
        let is_tested = !figure.exact.is_empty() || !figure.levels.is_empty();
        match (figure.band, figure.centre) {
            (Some(Band::None), _) => BandKind::Nothing,
            (_, Some(CurveCentre::Median)) => BandKind::Quantiles,
            (Some(Band::Error), _) => BandKind::Error,
            (None, _) if is_tested => BandKind::Error,
            (Some(Band::Deviation) | None, _) => BandKind::Deviation,
        }
    }
}

/// The numbers of seeds of the cells in a picture.
#[derive(Default)]
pub(super) struct SeedCounts {
    counts: BTreeSet<usize>,
    /// The numbers of seeds in each panel.
    panels: Vec<BTreeSet<usize>>,
}

impl SeedCounts {
    /// Starts a panel.
    pub fn panel(&mut self) {
        self.panels.push(BTreeSet::new());
    }

    /// Adds a cell to the panel that was started last.
    pub fn add(&mut self, plan: &Plan, results: &Results, cell: usize) {
        if plan.cells[cell].refused.is_none() {
            let count = results.cells[cell].len();
            self.counts.insert(count);
            self.panels.iter_mut().last().into_iter().for_each(|panel| _ = panel.insert(count));
        }
    }

    /// `5 seeds`.
    pub fn text(&self) -> String {
        text(&self.counts)
    }

    /// Whether everything has a single seed.
    fn is_single(&self) -> bool {
        self.counts.iter().all(|count| *count == 1)
    }

    /// Adds a note with the number of seeds to each panel, in the order in which they were started, unless all have the same number.
    pub fn note_in(&self, panels: &mut [Panel]) {
        let note = |seeds: &BTreeSet<usize>| (self.counts.len() > 1 && !seeds.is_empty()).then(|| format!("Over {}", text(seeds)));
        for (panel, seeds) in panels.iter_mut().zip(&self.panels) {
            panel.notes.splice(0..0, note(seeds));
        }
    }
}

fn text(counts: &BTreeSet<usize>) -> String {
    let (Some(least), Some(most)) = (counts.first(), counts.last()) else { return "no seeds".into() };
    match counts.len() {
        1 if *most == 1 => "a single seed".into(),
        1 => format!("{most} seeds"),
        2 => format!("{least} or {most} seeds"),
        _ => format!("{least} to {most} seeds"),
    }
}

/// The caption of curves over rounds.
pub(super) fn curves(seeds: &SeedCounts, centre: CurveCentre, spread: BandKind) -> String {
    if seeds.is_single() {
        return format!("Lines: one run, of {}.", seeds.text());
    }
    let middle = if centre == CurveCentre::Median { "median" } else { "mean" };
    let band = match spread {
        BandKind::Deviation => "; bands: one standard deviation to either side, cut off below at the smallest seed",
        BandKind::Error => "; bands: one standard error of the mean to either side",
        BandKind::Quantiles => "; bands: from the 10% to the 90% quantile",
        BandKind::Nothing => "",
    };
    let alone = if seeds.counts.contains(&1) && spread != BandKind::Nothing { " (none for a single seed)" } else { "" };
    format!("Lines: {middle} over {}{band}{alone}.", seeds.text())
}

/// The caption of floors over a coordinate.
pub(super) fn scaling(seeds: &SeedCounts, spread: BandKind) -> String {
    let floor = "floors, each seed's mean over the last fifth of the rounds";
    if seeds.is_single() {
        return format!("Points: {floor}, of {}.", seeds.text());
    }
    let band = match spread {
        BandKind::Nothing => "",
        BandKind::Deviation => "; bands: one standard deviation to either side",
        _ => "; bands: one standard error to either side",
    };
    format!("Points: mean over {} of {floor}{band}.", seeds.text())
}

/// The part of a caption that explains predictions.
pub(super) const PREDICTED: &str = " Thin dashes: what theory predicts.";
