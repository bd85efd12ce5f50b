//! Parts of a sweep that run apart: in other processes, on other machines, beside each other in one folder.
//!
//! [`run_part`] runs some points of an experiment ([`SweepPart`]), and leaves a file with what they have come to. [`fn@merge`] checks that all
//! are there, and makes of them what a single run would have made, bit for bit. [`seconds_of_points`] says how long points take, by which
//! they are put together.

pub(crate) mod done;
mod list;
mod merge;
mod one;
mod record;
mod sizes;

pub use done::parts_in;
pub use list::{POINTS, PointList, SEED_RANGE, SeedRange, SweepPart};
pub use merge::{experiment_of_parts, merge};
pub use one::{PartOutcome, RanPart, add_part, file_of_part, run_part};
pub use sizes::seconds_of_points;
