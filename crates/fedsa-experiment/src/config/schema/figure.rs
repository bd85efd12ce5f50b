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
    /// The content: curves, scaling, cost or a table.
    pub kind: FigureKind,
    /// The horizontal axis. Curves: a count such as `round`, or several; scaling and cost: a coordinate; table: the coordinate of its
    /// columns.
    pub x: Option<AxisNames>,
    /// The metric; several for curves and scaling. By default `mse`, or `residual` without `theta*`.
    pub y: Option<MetricNames>,
    /// The count; `bits_up` by default.
    pub cost: Option<String>,
    /// Levels to reach, one panel each; required for cost.
    pub level: Option<Levels>,
    /// Whether levels are shares of the mean at round 0.
    pub relative: bool,
    /// Whether x is logarithmic; by default for scaling and cost with positive values.
    pub x_log: Option<bool>,
    /// Whether y is logarithmic; true by default.
    pub y_log: Option<bool>,
    /// Labels of the methods; all by default.
    pub methods: Option<Vec<String>>,
    /// Labels of the points; all by default.
    pub points: Option<Vec<String>>,
    /// Over seeds: the mean (default) with `band`, or the median with the 10% and 90% quantiles.
    pub centre: Option<CurveCentre>,
    /// The band around means; `error` by default for scaling and beside predictions, else `deviation`.
    pub band: Option<Band>,
    /// Coordinates with a panel per value (in a table a group of rows); by default all for curves, else none.
    pub panels: Option<Vec<String>>,
    /// Predicted quantities as dashes: `{ LABEL = ["bias2", "floor"] }`.
    pub levels: BTreeMap<String, Vec<String>>,
    /// Labels of methods with their predicted mean-square error.
    pub exact: Vec<String>,
    /// Whether panels below show the ratio of measured to exact means.
    pub ratios: bool,
    /// The slope of a grey line, on logarithmic axes.
    pub slope: Option<f64>,
    /// The range of y, `[low, high]`; by default from the data.
    pub y_range: Option<[f64; 2]>,
    /// Whether panels of a metric, all or in a row, share a y range; by default if each fills a fifth of it.
    pub share_y: Option<bool>,
    /// Panels per row, as far as `width` has room.
    pub columns: Option<usize>,
    /// The destination; a screen by default. Styles use dashes and markers, and omit caption, notes and title (slides keep it).
    pub style: Option<FigureStyle>,
    /// Pixels, 300 to 4000, 96 per inch; by default 720 for one column of panels, else 900.
    pub width: Option<f64>,
    /// Dots per inch of PNG, 24 to 1200; by default 192, with a style 300.
    pub dpi: Option<f64>,
    /// The colours.
    pub theme: Theme,
    /// The formats; by default svg and png, all with a style.
    pub formats: Option<Vec<Format>>,
    /// The names of the caller's metrics in the results, which files do not have.
    #[serde(skip)]
    pub own: Vec<String>,
}

impl FigureSpec {
    /// Whether y is logarithmic. The caller's metrics may be negative.
    pub fn is_y_log(&self) -> bool {
        let shows_own = || self.y.as_ref().is_some_and(|y| y.list().iter().any(|y| self.own.iter().any(|own| own == y)));
        self.y_log.unwrap_or_else(|| !shows_own())
    }

    /// The coordinate on the horizontal axis, for all figures but curves.
    pub fn coordinate(&self) -> Option<&str> {
        self.x.as_ref().and_then(|x| x.list().first()).map(String::as_str)
    }

    /// The levels whose costs are shown.
    pub fn cost_levels(&self) -> Vec<CostLevel> {
        let levels = self.level.as_ref().map_or(&[][..], |level| level.list());
        levels.iter().map(|value| CostLevel { value: *value, is_relative: self.relative }).collect()
    }
}

/// A level of a metric to reach.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CostLevel {
    /// Its value, or the share of the metric's mean at round 0.
    pub value: f64,
    /// Whether `value` is a share.
    pub is_relative: bool,
}

/// Horizontal axes.
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

/// Metrics.
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

/// Levels.
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

/// Contents of figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FigureKind {
    /// A metric over rounds.
    #[default]
    Curves,
    /// Floors along a coordinate.
    Scaling,
    /// The cost of a level of the metric, along a coordinate or as numbers.
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
