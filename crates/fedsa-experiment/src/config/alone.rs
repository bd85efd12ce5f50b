//! Checks of tables with a `kind` without a file, for callers that compose an experiment of parts.

use std::sync::Arc;

use fedsa::error::{Error, Result};
use fedsa::method::MethodSettings;
use fedsa::uplink::Uplink;
use fedsa_data::DiskFiles;
use toml::Table;

use super::link::{self, DownlinkSpec, UplinkSpec};
use super::reader;
use super::schema::ControlsStart;
use crate::kinds::Kinds;

/// A table with a `kind`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KindTable {
    /// `[problem]`.
    Problem,
    /// A `[[method]]`; its kind may be a preset.
    Method,
    /// The `codec` of a link.
    Codec,
    /// One of the `media` of a link.
    Medium,
}

/// Refuses a table that no experiment can have. It does not check what depends on other tables, such as the number of agents, and reads no
/// files that the table names.
///
/// # Errors
/// When the kind is unknown, a key is unknown, missing or of the wrong type, or a value is out of range. Keys are relative to the table.
pub fn check(kinds: &Kinds, part: KindTable, table: &Table) -> Result<()> {
    let of_link = |up: UplinkSpec, inside: &str| {
        link::build(kinds, &up, &DownlinkSpec::default(), None).map(|_| ()).map_err(|e| {
            let key = e.key.strip_prefix(inside).unwrap_or(&e.key).trim_start_matches('.').to_string();
            e.about(key)
        })
    };
    match part {
        KindTable::Problem => reader::check_problem(kinds, table),
        KindTable::Method => reader::method_alone(kinds, table).map(|_| ()),
        KindTable::Codec => of_link(UplinkSpec { codec: Some(table.clone()), ..UplinkSpec::default() }, "uplink.codec"),
        KindTable::Medium => of_link(UplinkSpec { media: vec![table.clone()], ..UplinkSpec::default() }, "uplink.media[0]"),
    }
}

/// The settings of a method's table, and its link. Files that the link names are read from `files`.
///
/// # Errors
/// As [`check`], when the link is inconsistent, and when the method has keys that only experiments can use: ideal initial control variates.
pub fn method(kinds: &Kinds, table: &Table, files: &DiskFiles) -> Result<(Arc<dyn MethodSettings>, Uplink)> {
    let spec = reader::method_alone(kinds, table)?;
    if spec.controls == ControlsStart::Ideal {
        let what = "control variates that begin at their ideal values need the root, which agents do not know";
        return Err(Error::new("controls", what, "controls = \"zero\""));
    }
    let link = link::build(kinds, &spec.uplink, &spec.downlink, Some(files))?;
    Ok((spec.settings, link))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_relative_to_the_table() {
        for (part, text, key) in [
            (KindTable::Problem, "kind = 'garnet'\nstates = 'x'", "states"),
            (KindTable::Problem, "kind = 'garnet'\nstate = 3", "state"),
            (KindTable::Problem, "states = 3", "kind"),
            (KindTable::Problem, "kind = 'garnet'\ngamma = 2", "gamma"),
            (KindTable::Problem, "kind = 'logistic'\ndata = 'a.csv'\nholdout = 1", "holdout"),
            (KindTable::Problem, "kind = 'logs'\npath = 'a.csv'\nfeatures = { kind = 'identity' }\ngamma = 2", "gamma"),
            (KindTable::Problem, "kind = 'switching'\nagents = 2\ndim = 2\nvalues = []", "values"),
            (KindTable::Problem, "kind = 'quadratic'\nagents = 0\ndim = 2", "agents"),
            (KindTable::Method, "kind = 'fedlsa'\nlocal_steps = 10", "step_size"),
            (KindTable::Method, "kind = 'fib-shed'\nrho = 'x'", "rho"),
            (KindTable::Method, "kind = 'fedlsa'\nstep_size = -1\nlocal_steps = 10", "step_size"),
            (KindTable::Codec, "kind = 'quantised'\nbits = 0", "bits"),
            (KindTable::Medium, "kind = 'erasure'\nsuccess = 2", "success"),
        ] {
            let e = check(&Kinds::default(), part, &text.parse().unwrap()).unwrap_err();
            assert_eq!(e.key, key, "{text}: {e}");
        }
        for (part, text) in [
            (KindTable::Problem, "kind = 'garnet'"),
            (KindTable::Method, "kind = 'fib-shed'"),
            (KindTable::Codec, "kind = 'quantised'\nbits = 4"),
            (KindTable::Medium, "kind = 'delay'\nlaw = 'trace'\npath = 'a.txt'"),
        ] {
            check(&Kinds::default(), part, &text.parse().unwrap()).unwrap();
        }
    }
}
