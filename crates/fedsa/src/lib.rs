//! Federated stochastic approximation: find the root of the mean of N agents'
//! operators with little communication.
//!
//! Agent `c` has an operator `gbar_c(theta)` in R^d, seen only through samples
//! `g_c(theta, z)`. Wanted is `theta*` with `sum_c p_c gbar_c(theta*) = 0`, the
//! weights `p_c` summing to 1. An operator points where theta should move:
//! `theta += eta g`. Federated TD(0) with linear features is the main case.
//!
//! This example runs FedLSA and SCAFFLSA on a Garnet problem with two kinds of
//! agents. FedLSA stops at its heterogeneity bias, which theory knows exactly;
//! SCAFFLSA goes on to the noise.
//!
//! ```
//! use fedsa_methods::prelude::*;
//! use fedsa_problems::prelude::*;
//!
//! /// `||theta_t - theta*||^2` after 300 rounds from zero.
//! fn error_of(method: &dyn MethodSettings, field: &std::sync::Arc<dyn Field>) -> Result<f64> {
//!     let federation = Federation::builder(method).on(&**field)?;
//!     let run = Run::new(field, &federation)?;
//!     let mut session = Session::new(run).with_metrics(Metrics::new(field).into()).recording(Record::Every(100));
//!     let outcome = session.advance(&StoppingCriteria::rounds(300), &Cancel::new(), &mut ())?;
//!     let last = session.rows().last().expect("the last round is recorded");
//!     let error = last.seen.mse.expect("theta* of linear systems is known");
//!     println!("{}: error {error:.2e}, {} bits up", outcome.name(), last.ledger.bits_up);
//!     Ok(error)
//! }
//!
//! # fn main() -> Result<()> {
//! let garnet = Garnet::default().with_agents(10).with_heterogeneity(Heterogeneity::TwoKernels).with_seed(1);
//! let field = garnet.field(&NoFiles, Sampling::default(), Isa::best())?;
//! let (step_size, local_steps) = (0.1, 1000);
//!
//! let biased = error_of(&FedLsa::new(step_size, local_steps), &field)?;
//! let unbiased = error_of(&Scafflsa::new(step_size, local_steps), &field)?;
//!
//! let setting = fedsa_theory::RoundSetting::new(step_size, local_steps as u64)?;
//! let bias = fedsa_theory::fedlsa::FedLsaMean::new(field.systems().unwrap(), &setting)?.bias_sq()?;
//! println!("predicted squared bias of FedLSA {bias:.2e}");
//! assert!((0.5..2.0).contains(&(biased / bias)));
//! assert!(unbiased < 0.1 * biased);
//! # Ok(())
//! # }
//! ```
//!
//! # The parts
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`problem`] | what a problem is ([`problem::Problem`]), and with its sampling as everything downstream sees it ([`problem::Field`]); the problems are in `fedsa_problems` |
//! | [`sampling`] | mean, i.i.d. or Markov samples, batches |
//! | [`kernel`] | the hot loop of H local steps, for each instruction set |
//! | [`local`] | client halves: what an agent does with a message from the server |
//! | [`protocol`] | what travels between the halves of a method |
//! | [`uplink`], [`message`] | links (codecs and media), and messages with their bytes |
//! | [`server`] | server halves: what the server does with the answers |
//! | [`method`] | what a method is: settings, two halves, a protocol; the methods are in `fedsa_methods` |
//! | [`federation`] | what all ends of a federation agree on: method, link, weights, seed, start, and a digest of them |
//! | [`enrolment`], [`columns`] | before a federation: who takes part, with which rows and columns |
//! | [`coordinator`] | the server's side of a federation: asks, checks and counts answers, ends rounds |
//! | [`round`] | the in-process engine: a coordinator with all agents in this process |
//! | [`node`] | the same halves across machines: bytes in, bytes out |
//! | [`session`] | rounds until a target, recorded, over any carrier of messages; ends in one [`record::Outcome`] |
//! | [`metrics`], [`record`] | distances from the root; ledger, output rules and outcomes |
//! | [`note`] | what a reader of a result must know besides its numbers |
//! | [`saved`] | the bytes of the states that nodes, enrolments and agents save |
//! | [`schedule`], [`random`], [`linalg`], [`triangle`], [`parallel`], [`settings`], [`registry`], [`cancel`], [`error`] | what these share |
//!
//! The library does no file or console input or output; the `fedsa` program does.
//!
//! # Sources
//!
//! \[S\] is SCAFFLSA (arXiv 2402.04114v1), \[F\] FedHSA, \[T\] Dal Fabbro's thesis
//! (2023). Equation numbers of \[S\] are those of the PDF; "HTML eq." says that
//! the number is that of the HTML rendering, which counts differently.

pub mod cancel;
pub mod columns;
pub mod coordinator;
pub mod eigenpairs;
pub mod enrolment;
pub mod error;
pub mod federation;
pub mod kernel;
pub mod linalg;
pub mod local;
pub mod message;
pub mod method;
pub mod metrics;
pub mod node;
pub mod note;
pub mod parallel;
pub mod prelude;
pub mod problem;
pub mod protocol;
pub mod random;
pub mod record;
pub mod registry;
pub mod round;
pub mod sampling;
pub mod saved;
pub mod schedule;
pub mod server;
pub mod session;
pub mod settings;
pub mod sums;
pub mod triangle;
pub mod uplink;
