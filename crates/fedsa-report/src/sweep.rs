//! Sweeps over two keys: heat maps without scripts.

use std::collections::BTreeMap;
use std::fmt::Write;

use fedsa_experiment::numbers;
use fedsa_experiment::picture::heat_color;
use serde_json::{Value as Json, json};

use crate::html::{clipped, escaped};
use crate::run::ReportedRun;

/// The quantities of heat maps, with their names.
const QUANTITIES: [(&str, &str); 4] = [
    ("floor_mean", "mean error of the last fifth"),
    ("final_mean", "error at the end"),
    ("residual_mean", "residual at the end"),
    ("rounds", "rounds"),
];

/// The smallest and the largest number of points of a sweep with a map.
const FEWEST: usize = 6;
const MOST: usize = 20_000;

/// The number of colours in maps.
const SHADES: usize = 48;
/// Maps whose largest value exceeds this multiple of the smallest have logarithmic colours.
const WIDE: f64 = 20.0;

/// A cell of a map.
#[derive(Debug, Clone, PartialEq)]
enum MapCell {
    Value(f64),
    /// The run ended without a value; how it ended.
    Ended(String),
    NotRun,
}

/// A quantity of a method at all points.
struct MethodMap {
    method: String,
    /// Rows from the low end of y, each from the low end of x.
    cells: Vec<MapCell>,
}

/// The maps of one quantity, one per method, with common colours.
struct QuantityMaps {
    quantity: &'static str,
    methods: Vec<MethodMap>,
    colours: Scale,
}

/// The values of the colours.
#[derive(Clone, Copy)]
struct Scale {
    low: f64,
    high: f64,
    log: bool,
}

/// The maps of a sweep over exactly two keys.
pub struct SweepMaps {
    x: String,
    y: String,
    xs: Vec<Json>,
    ys: Vec<Json>,
    quantities: Vec<QuantityMaps>,
}

impl SweepMaps {
    /// The maps of a run; `None` if it is no sweep over two keys, or has nothing to show.
    pub fn of(run: &ReportedRun) -> Option<Self> {
        let results = run.summary["results"].as_array()?;
        let first = results.first()?["coordinates"].as_object()?;
        let mut varying: Vec<(String, Vec<Json>)> = first.keys().map(|key| (key.clone(), Vec::new())).collect();
        for result in results {
            for (key, values) in &mut varying {
                let value = &result["coordinates"][key.as_str()];
                if !values.contains(value) {
                    values.push(value.clone());
                }
            }
        }
        varying.retain(|(_, values)| values.len() > 1);
        let [(x, xs), (y, ys)] = &varying[..] else { return None };
        if !(FEWEST..=MOST).contains(&(xs.len() * ys.len())) || xs.iter().chain(ys).any(Json::is_null) {
            return None;
        }
        let (xs, ys) = (sorted(xs.clone()), sorted(ys.clone()));
        let maps = QUANTITIES.iter().filter_map(|(key, name)| quantity(results, (key, name), (x, &xs), (y, &ys)));
        let quantities: Vec<QuantityMaps> = maps.collect();
        (!quantities.is_empty()).then(|| Self { x: x.clone(), y: y.clone(), xs, ys, quantities })
    }

    /// The figures: one per quantity, with a map per method.
    pub fn html(&self) -> String {
        let mut out = String::new();
        for maps in &self.quantities {
            write!(out, "<figure class=\"maps\" data-quantity=\"{0}\"><figcaption>{0}</figcaption>\n<div>", escaped(maps.quantity))
                .expect("a string takes all");
            maps.methods.iter().for_each(|map| out.push_str(&self.map(maps, map)));
            write!(out, "</div>\n{}{}</figure>\n", legend(maps), self.found(maps)).expect("a string takes all");
        }
        out
    }

    /// The numbers of the maps, which `assets/report.js` shows at the pointer.
    pub fn json(&self) -> Json {
        let cell = |cell: &MapCell| match cell {
            MapCell::Value(x) => json!(x),
            MapCell::Ended(how) => json!(how),
            MapCell::NotRun => Json::Null,
        };
        let method = |map: &MethodMap| json!({ "method": map.method, "cells": map.cells.iter().map(cell).collect::<Vec<_>>() });
        let quantity =
            |maps: &QuantityMaps| json!({ "quantity": maps.quantity, "methods": maps.methods.iter().map(method).collect::<Vec<_>>() });
        let quantities: Vec<Json> = self.quantities.iter().map(quantity).collect();
        json!({ "x": self.x, "y": self.y, "xs": self.xs, "ys": self.ys, "quantities": quantities })
    }

    /// The best point of each method, in words.
    fn found(&self, maps: &QuantityMaps) -> String {
        let least = |map: &MethodMap| {
            let values =
                map.cells.iter().enumerate().filter_map(|(k, cell)| if let MapCell::Value(x) = cell { Some((k, *x)) } else { None });
            let (k, x) = values.min_by(|a, b| a.1.total_cmp(&b.1))?;
            let (i, j) = (k % self.xs.len(), k / self.xs.len());
            let at = format!("{} = {}, {} = {}", self.x, tick(&self.xs[i]), self.y, tick(&self.ys[j]));
            let without = map.cells.iter().filter(|cell| !matches!(cell, MapCell::Value(_))).count();
            let rest = if without > 0 { format!("; {without} of {} points have no value", map.cells.len()) } else { String::new() };
            Some(format!("{}: smallest {} at {at}{rest}", map.method, numbers::number(x)))
        };
        let said: Vec<String> = maps.methods.iter().filter_map(least).collect();
        format!("<p class=\"small\">{}.</p>", escaped(&said.join(". ")))
    }

    /// A map as SVG, with one path per colour, so that a map of thousands of points is small.
    fn map(&self, maps: &QuantityMaps, map: &MethodMap) -> String {
        let (columns, rows) = (self.xs.len(), self.ys.len());
        let (w, h) = ((420.0 / columns as f64).clamp(5.0, 52.0).floor(), (300.0 / rows as f64).clamp(5.0, 34.0).floor());
        let names: Vec<String> = self.ys.iter().map(tick).collect();
        let widest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0).min(LONGEST_TICK);
        let (left, top) = (34.0 + LETTER * widest as f64, 20.0);
        let (width, height) = (left + columns as f64 * w + 22.0, top + rows as f64 * h + 42.0);
        let mut by_colour: BTreeMap<String, String> = BTreeMap::new();
        for (k, cell) in map.cells.iter().enumerate() {
            let (i, j) = (k % columns, k / columns);
            let colour = match cell {
                MapCell::Value(x) => maps.colours.colour(*x),
                MapCell::Ended(_) | MapCell::NotRun => NO_VALUE.into(),
            };
            let (x, y) = (left + i as f64 * w, top + (rows - 1 - j) as f64 * h);
            write!(by_colour.entry(colour).or_default(), "M{x} {y}h{w}v{h}h-{w}z").expect("a string takes all");
        }
        let about =
            escaped(&format!("{}: {} over {} and {}; the table of results has the numbers", map.method, maps.quantity, self.x, self.y));
        let mut svg = format!(
            "<svg viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\" aria-label=\"{about}\" \
             data-left=\"{left}\" data-top=\"{top}\" data-w=\"{w}\" data-h=\"{h}\">\n"
        );
        let mut text = |x: f64, y: f64, anchor: &str, turn: &str, what: &str| {
            let turn = if turn.is_empty() { String::new() } else { format!(" transform=\"rotate({turn} {x} {y})\"") };
            writeln!(svg, "<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\"{turn}>{}</text>", escaped(what)).expect("a string takes all");
        };
        text(left, 14.0, "start", "", &clipped(&map.method, 40));
        let every = |count: usize, room: f64, each: f64| (count as f64 * each / room).ceil().max(1.0) as usize;
        let longest = self.xs.iter().map(|x| tick(x).chars().count()).max().unwrap_or(1);
        let step = every(columns, columns as f64 * w, LETTER * longest as f64 + 8.0);
        for (i, x) in self.xs.iter().enumerate().step_by(step) {
            text(left + (i as f64 + 0.5) * w, top + rows as f64 * h + 15.0, "middle", "", &tick(x));
        }
        for (j, name) in names.iter().enumerate().step_by(every(rows, rows as f64 * h, 14.0)) {
            text(left - 6.0, top + (rows - 1 - j) as f64 * h + h / 2.0 + 4.0, "end", "", name);
        }
        text(left + columns as f64 * w / 2.0, top + rows as f64 * h + 34.0, "middle", "", &clipped(&self.x, 40));
        text(14.0, top + rows as f64 * h / 2.0, "middle", "-90", &clipped(&self.y, 40));
        for (colour, path) in by_colour {
            writeln!(svg, "<path fill=\"{colour}\" d=\"{path}\"/>").expect("a string takes all");
        }
        svg.push_str("</svg>\n");
        svg
    }
}

/// The colour of cells without a value, in light and in dark.
const NO_VALUE: &str = "#9aa0a6";
/// The width of a letter, and the largest number of letters in a tick.
const LETTER: f64 = 7.0;
const LONGEST_TICK: usize = 18;

/// The colour bar of maps.
fn legend(maps: &QuantityMaps) -> String {
    let (width, height) = (240.0, 12.0);
    let mut svg =
        format!("<svg class=\"bar\" viewBox=\"0 0 {} 32\" width=\"{}\" height=\"32\" aria-hidden=\"true\">\n", width + 60.0, width + 60.0);
    let step = width / SHADES as f64;
    for shade in 0..SHADES {
        let (x, colour) = (30.0 + shade as f64 * step, shade_colour(shade));
        write!(svg, "<path fill=\"{colour}\" d=\"M{x} 0h{}v{height}h-{}z\"/>", step + 0.5, step + 0.5).expect("a string takes all");
    }
    for (part, anchor) in [(0.0, "start"), (0.5, "middle"), (1.0, "end")] {
        let (x, value) = (30.0 + part * width, numbers::number(maps.colours.at(part)));
        write!(svg, "<text x=\"{x}\" y=\"27\" text-anchor=\"{anchor}\">{}</text>", escaped(&value)).expect("a string takes all");
    }
    let has_none = maps.methods.iter().any(|map| map.cells.iter().any(|cell| !matches!(cell, MapCell::Value(_))));
    let grey = if has_none { "Grey: diverged, refused or not run. " } else { "" };
    let log = if maps.colours.log { "Colours by logarithm" } else { "Colours" };
    let all = if maps.methods.len() > 1 { ", the same for all methods" } else { "" };
    format!("{svg}</svg>\n<p class=\"small\">{grey}{log}{all}.</p>\n")
}

/// The maps of a quantity; `None` if it is missing, or the same everywhere.
fn quantity(results: &[Json], (key, name): (&str, &'static str), x: (&str, &[Json]), y: (&str, &[Json])) -> Option<QuantityMaps> {
    let mut methods: Vec<MethodMap> = Vec::new();
    for result in results {
        let method = result["method"].as_str()?;
        let at = |(key, values): (&str, &[Json])| values.iter().position(|value| *value == result["coordinates"][key]);
        let (Some(i), Some(j)) = (at(x), at(y)) else { continue };
        let cell = match result["outcome"].as_str().unwrap_or_default() {
            ended @ ("diverged" | "refused") => MapCell::Ended(ended.into()),
            _ => result[key].as_f64().map_or(MapCell::NotRun, MapCell::Value),
        };
        let m = methods.iter().position(|map| map.method == method).unwrap_or_else(|| {
            methods.push(MethodMap { method: method.into(), cells: vec![MapCell::NotRun; x.1.len() * y.1.len()] });
            methods.len() - 1
        });
        methods[m].cells[j * x.1.len() + i] = cell;
    }
    let values = || methods.iter().flat_map(|map| &map.cells).filter_map(|cell| if let MapCell::Value(x) = cell { Some(*x) } else { None });
    let (low, high) = values().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| (low.min(x), high.max(x)));
    let colours = Scale { low, high, log: low > 0.0 && high > WIDE * low };
    (low < high).then_some(QuantityMaps { quantity: name, methods, colours })
}

impl Scale {
    /// The value at a part of the scale, from 0 to 1.
    fn at(&self, part: f64) -> f64 {
        if self.log { self.low * (self.high / self.low).powf(part) } else { self.low + part * (self.high - self.low) }
    }

    fn colour(&self, x: f64) -> String {
        let part = if self.log { (x / self.low).ln() / (self.high / self.low).ln() } else { (x - self.low) / (self.high - self.low) };
        shade_colour(((part * SHADES as f64) as usize).min(SHADES - 1))
    }
}

fn shade_colour(shade: usize) -> String {
    let (red, green, blue) = heat_color(shade as f64 / (SHADES - 1) as f64);
    format!("#{red:02x}{green:02x}{blue:02x}")
}

/// A swept value beside an axis.
fn tick(value: &Json) -> String {
    match value {
        Json::Number(x) => numbers::digits(x.as_f64().unwrap_or(f64::NAN), 6),
        Json::String(text) => clipped(text, LONGEST_TICK),
        other => clipped(&other.to_string(), LONGEST_TICK),
    }
}

/// Numbers sorted; other values in their order of appearance.
fn sorted(mut values: Vec<Json>) -> Vec<Json> {
    if values.iter().all(Json::is_number) {
        values.sort_by(|a, b| a.as_f64().unwrap_or(f64::NAN).total_cmp(&b.as_f64().unwrap_or(f64::NAN)));
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;
    use fedsa_experiment::finished::RunState;

    fn run(results: Vec<Json>) -> ReportedRun {
        let summary = json!({ "results": results });
        ReportedRun::of("x".as_ref(), "x".into(), RunState::Finished, summary)
    }

    fn result(x: f64, y: &str, value: Json, outcome: &str) -> Json {
        json!({ "method": "A", "coordinates": { "eta": x, "kind": y, "same": 1 }, "floor_mean": value, "outcome": outcome })
    }

    #[test]
    fn a_sweep_over_two_keys_is_a_map_without_scripts() {
        let values = [(0.1, 1.0), (0.02, 100.0), (0.5, 10.0)];
        let results =
            values.iter().flat_map(|(x, z)| ["b", "a"].map(|y| result(*x, y, json!(z * if y == "a" { 2.0 } else { 1.0 }), "ended")));
        let mut results: Vec<Json> = results.collect();
        results[0] = result(0.1, "b", Json::Null, "diverged");
        let maps = SweepMaps::of(&run(results.clone())).unwrap();
        // Numbers are sorted, names keep their order; rows begin at the low end of y.
        assert_eq!(maps.json()["xs"], json!([0.02, 0.1, 0.5]));
        assert_eq!(maps.json()["quantities"][0]["methods"][0]["cells"], json!([100.0, "diverged", 10.0, 200.0, 2.0, 20.0]));
        let html = maps.html();
        assert!(html.contains("smallest 2 at eta = 0.1, kind = a; 1 of 6 points have no value"), "{html}");
        assert!(html.contains("Grey: diverged") && html.contains(&format!("<path fill=\"{NO_VALUE}\" d=\"M")), "{html}");
        // The smallest value has the first colour, the largest the last.
        assert!(html.matches("#440154").count() == 2 && html.matches("#fde725").count() == 2, "in the map and in its bar: {html}");
        // A sweep over one key, or three, is a table.
        assert!(SweepMaps::of(&run(results[..2].to_vec())).is_none());
        for (i, result) in results.iter_mut().enumerate() {
            result["coordinates"]["same"] = json!(i);
        }
        assert!(SweepMaps::of(&run(results)).is_none());
    }

    #[test]
    fn a_map_of_thousands_of_points_is_small() {
        let results = (0..50).flat_map(|i| (0..40).map(move |j| json!({ "method": "A", "coordinates": { "x": i, "y": j }, "floor_mean": f64::from(i * j + 1), "outcome": "ended" })));
        let html = SweepMaps::of(&run(results.collect())).unwrap().html();
        assert!(html.len() < 60_000, "{}", html.len());
    }
}
