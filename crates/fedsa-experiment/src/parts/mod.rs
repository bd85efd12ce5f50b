//! Parts of a sweep that run separately: in several processes, on several machines, or together in one folder.
//!
//! [`run_part`] runs some points of an experiment ([`SweepPart`]), and leaves a file with their results. [`fn@merge`] checks that all are
//! there, and makes the results of a single run of them, bit for bit. [`seconds_of_points`] estimates the time of points, by which parts
//! are formed.

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
