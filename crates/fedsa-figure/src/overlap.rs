//! Finds curves that coincide and would hide each other.

use std::collections::HashMap;

use super::style::Overlap;
use super::trace::Window;
use super::{Panel, PlottedCurve, Style};

/// The number of positions along the horizontal axis at which curves are compared.
const PLACES: usize = 64;
/// Curves closer than this distance, in pixels, hide each other.
const NEAR: f64 = 1.8;
/// The share of the shorter curve that must coincide with the other curve.
const SHARE: f64 = 0.4;
/// Greater depths are drawn alike.
const DEEPEST: usize = 5;

/// The identity of a curve in all panels: its label and colour, and whether it is predicted.
type Name = (String, usize, bool);

fn name(curve: &PlottedCurve) -> Name {
    (curve.label.clone(), curve.color, curve.style == Style::Dashed)
}

/// The drawing of curves that coincide with others, the same in all panels.
#[derive(Debug, Default)]
pub(super) struct Overlaps(HashMap<Name, Overlap>);

impl Overlaps {
    pub fn of<'a>(panels: impl Iterator<Item = (&'a Panel, Window)>) -> Overlaps {
        let mut names: Vec<Name> = Vec::new();
        let mut beneath: Vec<Vec<usize>> = Vec::new();
        for (panel, window) in panels {
            let curves: Vec<(usize, Vec<Option<f64>>)> = panel
                .curves
                .iter()
                .filter(|curve| !matches!(curve.style, Style::Reference | Style::Points | Style::Cloud))
                .map(|curve| {
                    let name = name(curve);
                    let index = names.iter().position(|known| *known == name).unwrap_or_else(|| {
                        names.push(name);
                        beneath.push(Vec::new());
                        names.len() - 1
                    });
                    (index, heights(curve, &window))
                })
                .collect();
            for (i, (upper, above)) in curves.iter().enumerate() {
                for (lower, below) in &curves[..i] {
                    if names[*upper].2 == names[*lower].2 && lower < upper && coincide(above, below) {
                        beneath[*upper].push(*lower);
                    }
                }
            }
        }
        let mut depths: Vec<usize> = Vec::new();
        // The first curve of a group whose members coincide directly or through other members.
        let mut first: Vec<usize> = Vec::new();
        for (i, lower) in beneath.iter().enumerate() {
            depths.push(lower.iter().map(|l| depths[*l] + 1).max().unwrap_or(0).min(DEEPEST));
            let root = lower.iter().map(|l| first[*l]).min().unwrap_or(i);
            first.push(root);
            for other in lower.iter().map(|l| first[*l]).collect::<Vec<_>>() {
                first.iter_mut().filter(|f| **f == other).for_each(|f| *f = root);
            }
        }
        let most = |i: usize| (0..names.len()).filter(|j| first[*j] == first[i]).map(|j| depths[j]).max().unwrap_or(0);
        let overlaps: Vec<Overlap> = (0..names.len()).map(|i| Overlap { depth: depths[i], most: most(i) }).collect();
        Overlaps(names.into_iter().zip(overlaps).collect())
    }

    pub fn at(&self, curve: &PlottedCurve) -> Overlap {
        self.0.get(&name(curve)).copied().unwrap_or_default()
    }
}

/// The height of a curve at each position, in pixels; `None` where the curve is absent or runs backwards.
fn heights(curve: &PlottedCurve, window: &Window) -> Vec<Option<f64>> {
    let points = curve.x.iter().zip(&curve.y).filter_map(|(x, y)| window.place(*x, *y));
    let mut heights = vec![None; PLACES];
    let mut previous: Option<(f64, f64)> = None;
    for (x, y) in points {
        let (from_x, from_y) = previous.unwrap_or((x, y));
        previous = Some((x, y));
        let place = |x: f64| (x - window.left) / window.width * (PLACES - 1) as f64;
        let (first, last) = (place(from_x).max(0.0).ceil(), place(x).min((PLACES - 1) as f64).floor());
        if last < first {
            continue;
        }
        for (at, height) in heights.iter_mut().enumerate().take(last as usize + 1).skip(first as usize) {
            let here = window.left + window.width * at as f64 / (PLACES - 1) as f64;
            let part = if x > from_x { (here - from_x) / (x - from_x) } else { 1.0 };
            *height = Some(from_y + part * (y - from_y));
        }
    }
    heights
}

fn coincide(above: &[Option<f64>], below: &[Option<f64>]) -> bool {
    let present = |heights: &[Option<f64>]| heights.iter().flatten().count();
    let near = above.iter().zip(below).filter(|(a, b)| matches!((a, b), (Some(a), Some(b)) if (a - b).abs() < NEAR)).count();
    let shorter = present(above).min(present(below));
    shorter > 1 && near as f64 >= SHARE * shorter as f64
}
