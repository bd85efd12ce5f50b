//! Control: operators whose samples come from a policy that theta itself determines.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`environment`] | finite Markov decision processes and their stationary laws |
//! | [`policy`] | policies that follow action values |
//! | [`features`] | features of pairs of a state and an action |
//! | [`sarsa`] | the problem `sarsa` |

pub(crate) mod environment;
pub(crate) mod features;
pub(crate) mod policy;
pub mod sarsa;
mod sarsa_root;
