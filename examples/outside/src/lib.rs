//! A problem, a client rule and a server rule with their methods, a method composed of parts of fedsa, and a problem on data in memory,
//! each in a file.
//!
//! [`KINDS`] lists those that are types alone, and [`problems`] adds the one that holds data. With `fedsa_cli::main_with` they join
//! experiment files, sweeps, checks, figures, theory and the JSON schema.

pub mod momentum;
pub mod projected_fedhsa;
pub mod pulled;
pub mod recorded;
pub mod rows;

use fedsa::random::{Purpose, stream};
use fedsa::registry::Kind;
use fedsa_cli::Extensions;
use fedsa_problems::ProblemSettings;

/// The kinds of this crate that are types alone.
pub const KINDS: Extensions<'static> = Extensions {
    problems: &[fedsa::kind!("rows", "linear systems of which an agent samples one row at a time", rows::Rows)],
    methods: &[
        fedsa::kind!("momentum", "local steps, then averaging with momentum on the server", momentum::Momentum),
        fedsa::kind!("pulled", "local steps that are pulled back to the server's model", pulled::Pulled),
        fedsa::kind!("projected-fedhsa", "FedHSA projected on a ball", projected_fedhsa::ProjectedFedHsa),
    ],
    codecs: &[],
    media: &[],
};

/// The problems of [`KINDS`], and the one on walks that the program has in memory.
pub fn problems() -> Vec<Kind<dyn ProblemSettings>> {
    let mut all = KINDS.problems.to_vec();
    all.push(recorded::kind(walks(4, 200)));
    all
}

/// Walks on a ring of five states, with a reward at state 0 that differs between the agents.
pub fn walks(agents: usize, moves: usize) -> Vec<Vec<recorded::Move>> {
    let walk = |c: usize| {
        let (mut draws, mut from) = (stream(7, Purpose::System, 0, c), 0);
        let step = |_| {
            let to = (from + if draws.uniform() < 0.5 { 1 } else { 4 }) % 5;
            let left = std::mem::replace(&mut from, to);
            (left, if left == 0 { 1.0 + c as f64 } else { 0.0 }, to)
        };
        (0..moves).map(step).collect()
    };
    (0..agents).map(walk).collect()
}
