//! The counts of a run: the one table behind columns, axes and costs.

use super::Ledger;

/// A count from the start of a run.
pub struct Count {
    /// Its name.
    pub name: &'static str,
    /// Its meaning, in a line.
    pub about: &'static str,
    /// Its title on axes.
    pub axis: &'static str,
    /// Its title above columns.
    pub column: &'static str,
    /// Whether tables of costs show it by default.
    pub is_usual: bool,
    /// Its value after `round` rounds.
    pub of: fn(round: u64, &Ledger) -> u64,
    /// Sets it in a ledger, if the ledger has a field for it.
    pub set: Option<fn(&mut Ledger, u64)>,
}

/// An entry for a count of the ledger.
macro_rules! kept {
    ($name:ident, $about:literal, $axis:literal, $column:literal, $is_usual:literal) => {
        Count {
            name: stringify!($name),
            about: $about,
            axis: $axis,
            column: $column,
            is_usual: $is_usual,
            of: |_, ledger| ledger.$name,
            set: Some(|ledger, count| ledger.$name = count),
        }
    };
}

/// An entry for calls of the agents' problems.
macro_rules! called {
    ($name:ident, $about:literal, $axis:literal, $column:literal) => {
        Count {
            name: stringify!($name),
            about: $about,
            axis: $axis,
            column: $column,
            is_usual: false,
            of: |_, ledger| ledger.calls.$name,
            set: Some(|ledger, count| ledger.calls.$name = count),
        }
    };
}

/// All counts: the round, and the counts of the ledger.
pub const COUNTS: &[Count] = &[
    Count {
        name: "round",
        about: "rounds done",
        axis: "communication round t",
        column: "rounds",
        is_usual: true,
        of: |round, _| round,
        set: None,
    },
    kept!(exchanges, "exchanges, including messages that only tell", "exchanges", "exchanges", true),
    kept!(samples, "samples that all agents drew", "samples, all agents", "samples", true),
    kept!(messages, "messages in both directions", "messages", "messages", false),
    kept!(bits_up, "bits from agents to the server", "bits sent up with headers, all agents", "bits up", true),
    kept!(bits_down, "bits from the server to agents", "bits sent down with headers, all agents", "bits down", true),
    Count {
        name: "bits",
        about: "bits in both directions",
        axis: "bits sent up and down with headers, all agents",
        column: "bits up and down",
        is_usual: true,
        of: |_, ledger| ledger.bits_up + ledger.bits_down,
        set: None,
    },
    kept!(vectors_up, "vectors of d components from agents to the server", "vectors sent up, all agents", "vectors up", false),
    kept!(matrices_up, "matrices from agents to the server", "matrices sent up, all agents", "matrices up", false),
    kept!(scalars_up, "single numbers from agents to the server", "numbers sent up, all agents", "numbers up", false),
    called!(operators, "evaluations of operators by all agents", "operator evaluations, all agents", "operators"),
    called!(gradients, "gradients that all agents computed", "gradients, all agents", "gradients"),
    called!(hessians, "Hessians that all agents computed", "Hessians, all agents", "Hessians"),
    called!(hessian_vectors, "products of a Hessian and a vector by all agents", "Hessian-vector products, all agents", "Hessian products"),
    called!(losses, "losses that all agents computed", "losses, all agents", "losses"),
];

/// The default cost.
pub const USUAL_COST: &str = "bits_up";

/// The count of this name.
pub fn count(name: &str) -> Option<&'static Count> {
    COUNTS.iter().find(|count| count.name == name)
}

impl Ledger {
    /// The ledger with these counts, by name.
    pub fn from_names(mut count: impl FnMut(&'static str) -> u64) -> Self {
        let mut ledger = Self::default();
        COUNTS.iter().for_each(|entry| entry.set.into_iter().for_each(|set| set(&mut ledger, count(entry.name))));
        ledger
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::calls::Calls;

    #[test]
    fn every_count_of_a_ledger_has_its_entry() {
        // Without `..`, so that a new field of the ledger fails to compile until it has an entry.
        let ledger = Ledger::from_names(|name| name.len() as u64);
        let Ledger { exchanges, samples, messages, bits_up, bits_down, vectors_up, matrices_up, scalars_up, calls } = ledger;
        let Calls { operators, losses, gradients, hessians, hessian_vectors } = calls;
        let lengths = ["exchanges", "samples", "messages", "bits_up", "bits_down", "vectors_up", "matrices_up", "scalars_up"];
        let counts = [exchanges, samples, messages, bits_up, bits_down, vectors_up, matrices_up, scalars_up];
        assert_eq!(counts, lengths.map(|name| name.len() as u64));
        let lengths = ["operators", "losses", "gradients", "hessians", "hessian_vectors"].map(|name| name.len() as u64);
        assert_eq!([operators, losses, gradients, hessians, hessian_vectors], lengths);
        let ledger = Ledger { bits_up: 3, bits_down: 4, ..Ledger::default() };
        assert_eq!((count("bits").unwrap().of)(9, &ledger), 7);
        assert_eq!((count("round").unwrap().of)(9, &ledger), 9);
        assert!(count(USUAL_COST).is_some() && count("mse").is_none());
    }
}
