//! The horizontal axes of curves.

use fedsa::record::{self, Count};
use fedsa::session::Recorded;

/// A horizontal axis of curves.
#[derive(Clone, Copy)]
pub enum Axis {
    /// A count.
    Count(&'static Count),
    /// The seconds since the start, known for federations of machines only.
    Seconds,
}

impl Axis {
    /// The name of the axis of seconds and of its column in traces.
    pub const SECONDS: &'static str = "seconds";

    /// The axis of this name.
    pub fn named(name: &str) -> Option<Self> {
        if name == Self::SECONDS { Some(Self::Seconds) } else { record::count(name).map(Self::Count) }
    }

    /// Its title.
    pub fn title(self) -> &'static str {
        match self {
            Self::Count(count) => count.axis,
            Self::Seconds => "seconds since the start of the federation",
        }
    }

    /// The position of a recorded round; `None` for unknown seconds.
    pub fn at(self, row: &Recorded) -> Option<f64> {
        match self {
            Self::Count(count) => Some(row.count(count) as f64),
            Self::Seconds => row.seconds,
        }
    }
}
