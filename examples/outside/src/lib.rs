//! A problem, a client rule with its method, and a method composed of parts of fedsa, each in a file.
//!
//! [`KINDS`] registers them: with `fedsa_cli::main_with` they join experiment files, sweeps, checks, figures, theory and the
//! JSON schema.

pub mod fedprox;
pub mod projected_fedhsa;
pub mod rows;

use fedsa_cli::Extensions;

/// The kinds of this crate.
pub const KINDS: Extensions<'static> = Extensions {
    problems: &[fedsa::kind!("rows", "linear systems of which an agent samples one row at a time", rows::Rows)],
    methods: &[
        fedsa::kind!("fedprox", "local steps that are pulled back to the server's model", fedprox::FedProx),
        fedsa::kind!("projected-fedhsa", "FedHSA projected on a ball", projected_fedhsa::ProjectedFedHsa),
    ],
    codecs: &[],
    media: &[],
};
