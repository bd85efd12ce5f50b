//! The problems of fedsa: the agents' operators, their samples, and known facts about them.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`td`] | temporal differences on Markov reward processes |
//! | [`logs`] | logs of transitions, and TD on them; [`features`] of their states |
//! | [`rows`] | rows with targets: data sets, their preparation, regression |
//! | [`linear`] | linear systems and quadratic losses |
//! | [`nonlinear`] | nonlinear operators |
//! | [`control`] | policies that improve: SARSA, policy gradients |
//! | [`noise`], [`scope`] | noise on samples of any of them; what agents share |
//! | [`elsewhere`] | placeholder of a problem in the results of a federation |
//! | [`kernel`] | the hot loops of these problems |
//! | [`memory`] | the memory of a problem, before it is built |
//!
//! `docs/src/extend/parts.md` in the repository explains how to add a problem.

#![deny(unsafe_code)]

pub mod control;
pub mod elsewhere;
pub mod features;
mod files;
mod index_chain;
#[allow(unsafe_code, reason = "hand-written kernels, each with a safe twin as its test")]
pub mod kernel;
mod kinds;
mod lazy_index;
pub mod linear;
pub mod logs;
pub mod memory;
pub mod noise;
pub mod nonlinear;
pub mod prelude;
pub mod rows;
pub mod scope;
mod settings;
pub mod td;

pub use files::{Files, NoFiles};
pub use kinds::KINDS;
pub use settings::ProblemSettings;
pub(crate) use settings::{MAX_AGENTS, check_counts, check_linear, check_size, check_spread};
