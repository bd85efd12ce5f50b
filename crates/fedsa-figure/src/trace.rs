//! Reduces data to the points that the pixels of a panel can show.

use super::axis::Axis;
use super::point::Point;

/// A panel's rectangle, with its axes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub left: f64,
    pub top: f64,
    pub width: f64,
    pub height: f64,
    pub x: Axis,
    pub y: Axis,
}

/// A coordinate far outside any panel that still allows arithmetic.
const FAR: f64 = 1e6;

impl Window {
    pub fn right(&self) -> f64 {
        self.left + self.width
    }

    pub fn bottom(&self) -> f64 {
        self.top + self.height
    }

    fn x_at(&self, value: f64) -> Option<f64> {
        self.x.fraction(value).map(|f| self.left + self.width * f.clamp(-FAR, FAR))
    }

    pub fn y_at(&self, value: f64) -> Option<f64> {
        self.y.fraction(value).map(|f| self.bottom() - self.height * f.clamp(-FAR, FAR))
    }

    pub fn place(&self, x: f64, y: f64) -> Option<Point> {
        Some((self.x_at(x)?, self.y_at(y)?))
    }

    fn contains(&self, (x, y): Point) -> bool {
        (self.left..=self.right()).contains(&x) && (self.top..=self.bottom()).contains(&y)
    }

    /// The curve's pieces inside the window, of about `budget` points in all.
    pub fn pieces(&self, x: &[f64], y: &[f64], budget: usize) -> Vec<Vec<Point>> {
        let mut pieces = Vec::new();
        let mut piece = Thinned::new(self.slot(budget));
        let mut previous = None;
        for point in x.iter().zip(y).map(|(&x, &y)| self.place(x, y)) {
            if let (Some(from), Some(to)) = (previous, point) {
                match self.clip(from, to) {
                    Some((start, end)) => {
                        if start != from {
                            piece.end(&mut pieces);
                        }
                        piece.push(start);
                        piece.push(end);
                        if end != to {
                            piece.end(&mut pieces);
                        }
                    }
                    None => piece.end(&mut pieces),
                }
            } else if let Some(alone) = point.filter(|p| self.contains(*p)) {
                piece.push(alone);
            } else {
                piece.end(&mut pieces);
            }
            previous = point;
        }
        piece.end(&mut pieces);
        keep_evenly(pieces, budget)
    }

    /// The points inside the window, one per pixel, `budget` at most.
    pub fn points(&self, x: &[f64], y: &[f64], budget: usize) -> Vec<Point> {
        let mut taken = std::collections::HashSet::new();
        let inside = x.iter().zip(y).filter_map(|(&x, &y)| self.place(x, y)).filter(|p| self.contains(*p));
        let apart: Vec<_> = inside.filter(|p| taken.insert((p.0.round() as i32, p.1.round() as i32))).collect();
        let stride = apart.len().div_ceil(budget.max(1)).max(1);
        apart.into_iter().step_by(stride).collect()
    }

    /// The band's pieces as x, upper and lower y. A lower edge that a logarithmic axis cannot show is placed below the panel.
    pub fn ribbons(&self, x: &[f64], low: &[f64], high: &[f64], budget: usize) -> Vec<Vec<(f64, f64, f64)>> {
        let slot = self.slot(budget);
        let mut pieces = Vec::new();
        let mut piece: Vec<(f64, f64, f64)> = Vec::new();
        // The first x of a slot gets the extremes of all points in the slot.
        let mut push = |edge: Option<(f64, f64, f64)>| match (edge, piece.last_mut()) {
            (Some(edge), Some(last)) if edge.0 < last.0 => {
                pieces.push(std::mem::replace(&mut piece, vec![edge]));
            }
            (Some(edge), Some(last)) if edge.0 - last.0 < slot => *last = (last.0, last.1.min(edge.1), last.2.max(edge.2)),
            (Some(edge), _) => piece.push(edge),
            (None, _) => pieces.push(std::mem::take(&mut piece)),
        };
        for ((&x, &low), &high) in x.iter().zip(low).zip(high) {
            let bottom = if low.is_nan() { None } else { Some(self.y_at(low).unwrap_or(self.bottom() + self.height)) };
            let edge = self.x_at(x).zip(self.y_at(high)).zip(bottom);
            push(edge.map(|((x, top), bottom)| (x, top.min(bottom), top.max(bottom))));
        }
        push(None);
        let pieces = pieces.into_iter().map(|piece| self.fit(&piece)).filter(|piece| piece.len() > 1).collect();
        keep_evenly(pieces, budget)
    }

    /// The part of a ribbon inside the window, clipped at its top and bottom.
    fn fit(&self, ribbon: &[(f64, f64, f64)]) -> Vec<(f64, f64, f64)> {
        const ROUNDING: f64 = 1e-3;
        let (left, right, roof, floor) = (self.left, self.right(), self.top, self.bottom());
        let mut edges = Vec::with_capacity(ribbon.len());
        for pair in ribbon.windows(2) {
            let (from, to) = (pair[0], pair[1]);
            let crossing = |a: f64, b: f64, side: f64| ((a < side) != (b < side)).then(|| (side - a) / (b - a));
            let mut parts: Vec<f64> = [(from.0, to.0, left, right), (from.1, to.1, roof, floor), (from.2, to.2, roof, floor)]
                .into_iter()
                .flat_map(|(a, b, near, far)| [crossing(a, b, near), crossing(a, b, far)])
                .flatten()
                .collect();
            parts.sort_by(f64::total_cmp);
            edges.push(from);
            edges.extend(parts.iter().map(|part| {
                let along = |a: f64, b: f64| a + part * (b - a);
                (along(from.0, to.0), along(from.1, to.1), along(from.2, to.2))
            }));
        }
        edges.extend(ribbon.last());
        edges.retain(|edge| (left - ROUNDING..=right + ROUNDING).contains(&edge.0));
        for edge in &mut edges {
            *edge = (edge.0.clamp(left, right), edge.1.clamp(roof, floor), edge.2.clamp(roof, floor));
        }
        edges.dedup();
        edges
    }

    /// The width of the slots, of four points each, for `budget` points in the window.
    fn slot(&self, budget: usize) -> f64 {
        (4.0 * self.width / budget.max(1) as f64).max(0.5)
    }

    /// The part of a segment inside the window (Liang and Barsky).
    fn clip(&self, from: Point, to: Point) -> Option<(Point, Point)> {
        let (dx, dy) = (to.0 - from.0, to.1 - from.1);
        let (mut enter, mut leave) = (0.0_f64, 1.0_f64);
        let sides = [(-dx, from.0 - self.left), (dx, self.right() - from.0), (-dy, from.1 - self.top), (dy, self.bottom() - from.1)];
        for (speed, room) in sides {
            if speed == 0.0 {
                if room < 0.0 {
                    return None;
                }
            } else if speed < 0.0 {
                enter = enter.max(room / speed);
            } else {
                leave = leave.min(room / speed);
            }
        }
        let along = |part: f64| {
            let (x, y) = (from.0 + part * dx, from.1 + part * dy);
            (x.clamp(self.left, self.right()), y.clamp(self.top, self.bottom()))
        };
        let start = if enter > 0.0 { along(enter) } else { from };
        let end = if leave < 1.0 { along(leave) } else { to };
        (enter <= leave).then_some((start, end))
    }
}

/// Of consecutive points within a slot of x, keeps the first, the extremes and the last.
struct Thinned {
    slot: f64,
    done: Vec<Point>,
    run: Option<Run>,
}

struct Run {
    slot: f64,
    length: usize,
    first: Point,
    lowest: (usize, Point),
    highest: (usize, Point),
    last: Point,
}

impl Thinned {
    fn new(slot: f64) -> Self {
        Thinned { slot, done: Vec::new(), run: None }
    }

    fn push(&mut self, point: Point) {
        let slot = (point.0 / self.slot).floor();
        match &mut self.run {
            Some(run) if run.slot == slot => {
                run.last = point;
                if point.1 < run.lowest.1.1 {
                    run.lowest = (run.length, point);
                }
                if point.1 > run.highest.1.1 {
                    run.highest = (run.length, point);
                }
                run.length += 1;
            }
            _ => {
                self.close_run();
                let extreme = (0, point);
                self.run = Some(Run { slot, length: 1, first: point, lowest: extreme, highest: extreme, last: point });
            }
        }
    }

    fn close_run(&mut self) {
        if let Some(Run { first, lowest, highest, last, .. }) = self.run.take() {
            let (earlier, later) = if lowest.0 < highest.0 { (lowest.1, highest.1) } else { (highest.1, lowest.1) };
            for point in [first, earlier, later, last] {
                if self.done.last() != Some(&point) {
                    self.done.push(point);
                }
            }
        }
    }

    fn end(&mut self, pieces: &mut Vec<Vec<Point>>) {
        self.close_run();
        if !self.done.is_empty() {
            pieces.push(std::mem::take(&mut self.done));
        }
    }
}

/// Drops pieces or points evenly until about `budget` are left. Used for lines that break or reverse at almost every
/// point.
fn keep_evenly<T>(mut pieces: Vec<Vec<T>>, budget: usize) -> Vec<Vec<T>> {
    let total: usize = pieces.iter().map(Vec::len).sum();
    let stride = total.div_ceil(2 * budget.max(1));
    if stride <= 1 {
        return pieces;
    }
    if pieces.len() > total / 4 {
        return pieces.into_iter().step_by(stride).collect();
    }
    for piece in &mut pieces {
        *piece = std::mem::take(piece).into_iter().step_by(stride).collect();
    }
    pieces
}
