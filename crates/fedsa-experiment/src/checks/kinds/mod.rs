//! The kinds of checks, one type and one file each.

mod cost;
mod curve;
mod floor;
mod gap;
mod last;
mod peak;
mod predicted;
mod ratio;
mod reaches;
mod rounds;
mod scaffnew;
mod slope;
mod spread;

use super::CheckKind;

/// The kinds, an entry each.
pub const KINDS: &[&dyn CheckKind] = &[
    &floor::Floor,
    &ratio::Ratio,
    &reaches::Reaches,
    &curve::Curve,
    &slope::Slope,
    &spread::Spread,
    &rounds::Rounds,
    &predicted::Predicted,
    &last::Final,
    &gap::Gap,
    &peak::Peak,
    &cost::Cost,
    &scaffnew::TheoremB4,
];
