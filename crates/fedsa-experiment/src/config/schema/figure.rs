//! `[figure]`: the content and the style of the figure.

use std::collections::BTreeMap;

use fedsa::settings::choice;
use schemars::JsonSchema;
use serde::Deserialize;

use fedsa_figure::{FigureStyle, Format, Theme};

/// The `[figure]` table.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "Figure")]
#[non_exhaustive]
pub struct FigureSpec {
    /// curves (a metric over rounds), scaling (floors over a coordinate), cost (the cost of reaching a level, over a
    /// coordinate) or table (floors as numbers).
    pub kind: FigureKind,
    /// The horizontal axis: round, exchanges, samples or bits_up, or several of them, a panel each; seconds of a federation of machines; for
    /// scaling and cost, a coordinate; for a table, the coordinate whose values are columns.
    pub x: Option<AxisNames>,
    /// The metric, or several.
    pub y: Option<MetricNames>,
    /// The count that measures cost; bits_up by default.
    pub cost: Option<String>,
    /// The level that the metric must reach, or several levels.
    pub level: Option<Levels>,
    /// Whether levels are shares of the metric's value at round 0.
    pub relative: bool,
    /// Whether the horizontal axis is logarithmic.
    pub x_log: Option<bool>,
    /// Whether the vertical axis is logarithmic; true by default.
    pub y_log: Option<bool>,
    /// The labels of the methods that are drawn; by default all.
    pub methods: Option<Vec<String>>,
    /// The labels of the points that are drawn; by default all.
    pub points: Option<Vec<String>>,
    /// The centre over seeds: mean or median; mean by default.
    pub centre: Option<CurveCentre>,
    /// The band around means: by default standard errors where a prediction is drawn, otherwise standard deviations.
    pub band: Option<Band>,
    /// Coordinates with one panel per value; for curves, all coordinates by default.
    pub panels: Option<Vec<String>>,
    /// Predicted levels (for scaling, curves over the coordinate): method label -> quantities.
    pub levels: BTreeMap<String, Vec<String>>,
    /// Predicted curves: labels of methods whose exact mean-square error is drawn.
    pub exact: Vec<String>,
    /// Whether each panel has a lower panel with the ratio of measured to exact means.
    pub ratios: bool,
    /// The slope of a reference line.
    pub slope: Option<f64>,
    /// The range of the vertical axis.
    pub y_range: Option<[f64; 2]>,
    /// Whether panels share one vertical range; by default they do if each fills a good part of it.
    pub share_y: Option<bool>,
    /// Panels per row.
    pub columns: Option<usize>,
    /// Where the picture goes: neurips (5.5 inches, 9 point Times), ieee (a column of 3.5 inches, 8 point Times) or slides (16:9, large
    /// letters). Lines then differ in dashes and markers too, and title, caption and notes are left to the text around the picture,
    /// but for the title of slides. By default the picture is for a screen.
    pub style: Option<FigureStyle>,
    /// The picture's width in pixels, 96 of which are an inch.
    pub width: Option<f64>,
    /// Resolution of a PNG in dots per inch; 192 by default, 300 with a style.
    pub dpi: Option<f64>,
    /// The colour theme: light or dark.
    pub theme: Theme,
    /// The formats to write: svg, png, pdf; by default svg and png, with a style all.
    pub formats: Option<Vec<Format>>,
}

impl FigureSpec {
    /// The coordinate on the horizontal axis of a figure other than curves, which has one axis.
    pub fn coordinate(&self) -> Option<&str> {
        self.x.as_ref().and_then(|x| x.list().first()).map(String::as_str)
    }

    /// The levels whose costs are shown.
    pub fn cost_levels(&self) -> Vec<CostLevel> {
        let levels = self.level.as_ref().map_or(&[][..], |level| level.list());
        levels.iter().map(|value| CostLevel { value: *value, is_relative: self.relative }).collect()
    }
}

/// A level that a metric is to reach.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CostLevel {
    /// Its value, or the share of the metric's mean at round 0.
    pub value: f64,
    /// Whether it is such a share.
    pub is_relative: bool,
}

/// One horizontal axis or several.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema)]
#[schemars(untagged)]
#[schemars(rename = "Axes")]
pub enum AxisNames {
    /// One.
    One(String),
    /// Several, of curves only.
    Many(Vec<String>),
}

choice!(AxisNames, "the name of an axis in quotes, or a list of them",
    text String => |x| Ok(AxisNames::One(x)),
    list Vec<String> => |all| Ok(AxisNames::Many(all)),
);

impl AxisNames {
    /// As a list.
    pub fn list(&self) -> &[String] {
        match self {
            AxisNames::One(x) => std::slice::from_ref(x),
            AxisNames::Many(all) => all,
        }
    }
}

/// One metric or several.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema)]
#[schemars(untagged)]
#[schemars(rename = "Metrics")]
pub enum MetricNames {
    /// One.
    One(String),
    /// Several.
    Many(Vec<String>),
}

choice!(MetricNames, "the name of a metric in quotes, or a list of them",
    text String => |metric| Ok(MetricNames::One(metric)),
    list Vec<String> => |all| Ok(MetricNames::Many(all)),
);

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
#[derive(Debug, Clone, PartialEq, JsonSchema)]
#[schemars(untagged)]
pub enum Levels {
    /// One.
    One(f64),
    /// Several.
    Many(Vec<f64>),
}

choice!(Levels, "a positive number, or a list of them",
    number f64 => |x| Ok(Levels::One(x)),
    list Vec<f64> => |all| Ok(Levels::Many(all)),
);

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
    /// A metric over rounds.
    #[default]
    Curves,
    /// Floors over a coordinate.
    Scaling,
    /// The cost of reaching a level of the metric, over a coordinate.
    Cost,
    /// Floors as numbers.
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
