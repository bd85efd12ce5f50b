//! `[figure]`: the content and the style of the figure.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::figure::{Format, Theme};

/// The `[figure]` table.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "Figure")]
pub struct FigureSpec {
    /// curves (a metric along the rounds), scaling (floors along a coordinate), cost (what
    /// it takes to reach a level, along a coordinate) or table (floors in numbers).
    pub kind: FigureKind,
    /// The horizontal axis: round, exchanges, samples, bits_up, or for scaling and cost a
    /// coordinate; for a table the coordinate whose values are columns.
    pub x: Option<String>,
    /// The metric, or several.
    pub y: Option<MetricNames>,
    /// What is paid: bits_up by default.
    pub cost: Option<String>,
    /// The level of the metric that is to be reached, or several.
    pub level: Option<Levels>,
    /// Whether the horizontal axis is logarithmic.
    pub x_log: Option<bool>,
    /// mean or median over seeds; mean by default.
    pub centre: Option<CurveCentre>,
    /// What bands around means are; standard errors by default where a prediction is drawn, else standard deviations.
    pub band: Option<Band>,
    /// Coordinates that make panels; all, for curves, by default.
    pub panels: Option<Vec<String>>,
    /// Predicted levels (along the coordinate, for scaling), as method label -> quantities.
    pub levels: BTreeMap<String, Vec<String>>,
    /// Predicted curves: labels of methods whose exact mean-square error is drawn.
    pub exact: Vec<String>,
    /// Whether a panel of measured over exact means is drawn under each panel.
    pub ratios: bool,
    /// The slope of a reference line.
    pub slope: Option<f64>,
    /// The range of the vertical axis.
    pub y_range: Option<[f64; 2]>,
    /// Whether panels have one vertical range; by default where each fills a good part of it.
    pub share_y: Option<bool>,
    /// Panels per row.
    pub columns: Option<usize>,
    /// The picture's width in pixels.
    pub width: Option<f64>,
    /// Dots of a PNG to an inch of 96 pixels.
    pub dpi: Option<f64>,
    /// light or dark.
    pub theme: Theme,
    /// What is written: svg, png, pdf.
    pub formats: Option<Vec<Format>>,
}

/// One metric or several.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "the name of a metric in quotes, or a list of them")]
#[schemars(rename = "Metrics")]
pub enum MetricNames {
    /// One.
    One(String),
    /// Several.
    Many(Vec<String>),
}

impl MetricNames {
    /// As a list.
    pub fn list(&self) -> Vec<&str> {
        match self {
            MetricNames::One(m) => vec![m],
            MetricNames::Many(all) => all.iter().map(String::as_str).collect(),
        }
    }
}

/// One level or several.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a positive number, or a list of them")]
pub enum Levels {
    /// One.
    One(f64),
    /// Several.
    Many(Vec<f64>),
}

impl Levels {
    /// As a list.
    pub fn list(&self) -> &[f64] {
        match self {
            Levels::One(x) => std::slice::from_ref(x),
            Levels::Many(all) => all,
        }
    }
}

/// What the figure shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FigureKind {
    /// A metric along the rounds.
    #[default]
    Curves,
    /// Floors along a coordinate.
    Scaling,
    /// What it takes to reach a level of the metric, along a coordinate.
    Cost,
    /// Floors in numbers.
    Table,
}

/// The middle of a band over seeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CurveCentre {
    /// The mean.
    Mean,
    /// The median.
    Median,
}

/// A band around a mean over seeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Band {
    /// One standard deviation.
    Deviation,
    /// One standard error.
    Error,
    /// No band.
    None,
}
