//! Federated stochastic approximation: find the root of the mean of N agents'
//! operators with little communication.
//!
//! Agent `c` has an operator `gbar_c(theta)` in R^d, known only through samples `g_c(theta, z)`. Methods find `theta*` with `sum_c p_c
//! gbar_c(theta*) = 0`, for weights `p_c` that sum to 1. An operator points where theta should move: `theta += eta g`. Federated TD(0) with
//! linear features is the main case.
//!
//! This example runs FedLSA and SCAFFLSA on a Garnet problem with two kinds of agents. FedLSA stops at its heterogeneity bias, which theory
//! predicts exactly; SCAFFLSA reaches the noise level.
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
//! | module | contents |
//! | --- | --- |
//! | [`problem`] | problems ([`problem::Problem`]), and problems with their sampling ([`problem::Field`]); `fedsa_problems` has implementations |
//! | [`sampling`] | mean, i.i.d. or Markov samples, batches |
//! | [`kernel`] | the hot loop of H local steps, for each instruction set |
//! | [`local`] | client halves: agents' answers to the server's messages |
//! | [`protocol`] | the messages between the halves of a method |
//! | [`uplink`], [`message`] | links (codecs and media), and messages with their bytes |
//! | [`secure`] | secure sums: the grid, keys and masks |
//! | [`server`] | server halves: updates from the answers |
//! | [`method`] | methods: settings, two halves, a protocol; `fedsa_methods` has implementations |
//! | [`federation`] | settings on which all ends of a federation agree: method, link, weights, seed, start, with a digest |
//! | [`enrolment`], [`columns`] | before a federation: its agents, their rows and columns |
//! | [`coordinator`] | the server's side of a federation: asks, checks and counts answers, ends rounds |
//! | [`round`] | the in-process engine: a coordinator with all agents in this process |
//! | [`node`] | the same halves across machines: bytes in, bytes out |
//! | [`session`] | recorded rounds up to a target, over any carrier of messages; ends in one [`record::Outcome`] |
//! | [`metrics`], [`record`] | distances from the root; ledger, output rules and outcomes |
//! | [`privacy`] | differential privacy: accounting, exact noise, sensitivities |
//! | [`note`] | information that a reader of a result needs besides its numbers |
//! | [`saved`] | the bytes of the states that nodes, enrolments and agents save |
//! | [`schedule`], [`random`], [`linalg`], [`triangle`], [`parallel`], [`settings`], [`registry`], [`cancel`], [`error`] | shared parts |
//!
//! The library does no file or console input or output; the `fedsa` program does.
//!
//! # Sources
//!
//! \[S\] is SCAFFLSA (arXiv 2402.04114v1), \[F\] FedHSA, \[T\] Dal Fabbro's thesis (2023). Equation numbers of \[S\] refer to the PDF,
//! "HTML eq." to the HTML rendering, which counts differently.

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
pub mod privacy;
pub mod problem;
pub mod protocol;
pub mod random;
pub mod record;
pub mod registry;
pub mod round;
pub mod sampling;
pub mod saved;
pub mod schedule;
pub mod secure;
pub mod server;
pub mod session;
pub mod settings;
pub mod sums;
pub mod triangle;
pub mod uplink;
