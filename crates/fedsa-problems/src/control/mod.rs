//! Control: operators whose samples come from a policy that theta itself determines.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`action_values`] | values of actions, and policies that follow them |
//! | [`action_log`] | an agent's logged rows with actions, and their sums under a policy |
//! | `environment` | finite Markov decision processes and their stationary laws |
//! | [`pessimism`] | lower values of actions that few rows are behind |
//! | `policy` | policies that follow action values |
//! | `features` | features of pairs of a state and an action |
//! | `learners` | agents that act by the values that they learn |
//! | [`mod@greedy`] | greedy actions |
//! | [`improvement`] | the problem `improvement`: better policies from logs |
//! | `returns` | returns of softmax policies, with their gradients and Hessians |
//! | [`policy_gradient`] | the problem `policy-gradient`; `policy_gradient_root` finds its roots |
//! | [`sarsa`] | the problem `sarsa`; `sarsa_root` finds its roots, `sarsa_step` draws its steps, `sarsa_systems` has its systems |
//! | `root_search` | what both searches for roots share |

pub mod action_log;
pub mod action_values;
pub(crate) mod environment;
pub(crate) mod features;
pub mod greedy;
pub mod improvement;
mod learners;
pub mod pessimism;
pub(crate) mod policy;
pub mod policy_gradient;
mod policy_gradient_root;
mod returns;
mod root_search;
pub mod sarsa;
mod sarsa_root;
mod sarsa_step;
mod sarsa_systems;
