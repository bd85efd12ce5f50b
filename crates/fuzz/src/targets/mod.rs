//! All targets.

mod arrays;
mod codecs;
mod config;
mod datasets;
mod enrolment;
mod files;
mod folder;
mod moments;
mod planted;
mod runs;
mod session;
mod wire;

use crate::Target;

pub use planted::PLANTED;

/// Every reader and decoder.
pub const TARGETS: &[Target] = &[
    arrays::NPZ,
    arrays::ARRAYS,
    files::CSV,
    files::LOG_FORMS,
    files::PARQUET,
    files::TRACE,
    files::DELAYS,
    files::JSON,
    files::WEIGHTS,
    files::TABLE_CSV,
    files::TABLE_PARQUET,
    files::NAMES,
    datasets::LIBSVM,
    datasets::ROWS_CSV,
    datasets::IDX,
    config::EXPERIMENT,
    config::SET,
    config::EVALUATE,
    config::FEATURES,
    codecs::CODECS,
    wire::MESSAGE,
    wire::CLIENT,
    wire::SERVER,
    moments::QUESTION,
    moments::ANSWER,
    session::SESSION,
    enrolment::INVITED,
    enrolment::APPLIED,
    enrolment::ADMITTED,
    enrolment::ANNOUNCED,
    runs::CHECKPOINT,
    folder::RUN_FOLDER,
];

/// Memory that is proportional to the input, beside what a few buffers take.
const fn proportional(len: usize) -> usize {
    (4 << 20) + 256 * len
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Inputs, Verdict};

    #[test]
    fn names_are_different_and_seeds_are_accepted() {
        for (i, target) in TARGETS.iter().enumerate() {
            assert!(TARGETS[..i].iter().all(|other| other.name != target.name), "{}", target.name);
            let inputs = Inputs::new(target, 3);
            for index in 0..inputs.valid() {
                let input = inputs.make(index);
                let verdict = (target.run)(&input);
                assert_eq!(verdict, Verdict::Accepted, "{} {index}: {}", target.name, String::from_utf8_lossy(&input));
            }
        }
    }
}
