//! All suites of the crate in one program, so that the crate is linked once.

mod adaptive_newton;
mod anderson;
mod arrivals;
mod batched;
mod by_hand;
mod closed_forms;
mod codecs;
mod common;
mod conformance;
mod enrolment;
mod epochs;
mod every_link;
/// The example of a problem of one's own.
#[allow(dead_code, reason = "the example's own run")]
#[path = "../examples/own_problem.rs"]
mod example;
mod faults;
mod features;
mod federation;
mod forms;
mod glm;
mod gradient_td;
mod handles;
mod import_rules;
mod invariants;
mod kernels;
mod laws;
mod ledger;
mod link_moments;
mod link_rates;
mod links;
mod markov_moments;
mod markov_noise;
mod messages;
mod moments;
mod named_methods;
mod network;
mod nodes;
mod noise;
mod nonlinear;
mod own_problem;
mod parts;
mod probe;
mod q_shed;
mod rates;
mod regression;
mod rules;
mod sampling;
mod second_order;
mod session;
mod shed;
mod solvers;
mod terms;
mod traces;
mod twins;
mod twins_alone;
