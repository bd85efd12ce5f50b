//! The kinds of checks, one type and one file each.

mod coincide;
mod cost;
mod curve;
mod floor;
mod gap;
mod last;
mod peak;
mod predicted;
mod rate;
mod ratio;
mod reaches;
mod rounds;
mod slope;
mod spread;

use super::kind::CheckKind;

/// All kinds of checks.
pub const KINDS: &[&dyn CheckKind] = &[
    &floor::FloorCheck,
    &ratio::RatioCheck,
    &reaches::ReachesCheck,
    &curve::CurveCheck,
    &slope::SlopeCheck,
    &spread::SpreadCheck,
    &coincide::CoincideCheck,
    &rounds::RoundsCheck,
    &predicted::PredictedCheck,
    &last::FinalCheck,
    &gap::GapCheck,
    &peak::PeakCheck,
    &cost::CostCheck,
    &rate::RateCheck,
];
