//! Control: operators whose samples come from a policy that theta itself determines.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `environment` | finite Markov decision processes and their stationary laws |
//! | `policy` | policies that follow action values |
//! | `features` | features of pairs of a state and an action |
//! | `learners` | agents that act by the values that they learn |
//! | [`sarsa`] | the problem `sarsa`; `sarsa_root` finds its roots |

pub(crate) mod environment;
pub(crate) mod features;
mod learners;
pub(crate) mod policy;
pub mod sarsa;
mod sarsa_root;
