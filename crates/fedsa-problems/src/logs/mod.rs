//! Logs of transitions, and TD on them.

pub mod autoreset;
pub mod block_features;
pub mod by_policy;
pub mod clipped;
pub mod episode;
pub mod held_out;
pub(crate) mod left_out;
pub mod log;
pub mod log_facts;
pub mod log_form;
pub mod log_means;
pub mod log_summary;
pub mod ratio_means;
pub mod replay;
pub mod source;
pub(crate) mod sparse;
pub mod survey;
