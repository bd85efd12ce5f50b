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
//! use fedsa::error::Result;
//! use fedsa::kernel::Isa;
//! use fedsa::methods::{self, fedlsa::FedLsa, scafflsa::Scafflsa};
//! use fedsa::problem::garnet::{Garnet, Heterogeneity};
//! use fedsa::problem::{Field, NoFiles, ProblemSettings};
//! use fedsa::record::{Metrics, OutputRule};
//! use fedsa::round::Run;
//! use fedsa::sampling::Sampling;
//! use fedsa::uplink::Uplink;
//! use fedsa_theory::RoundSetting;
//!
//! /// `||theta_t - theta*||^2` after 300 rounds from zero.
//! fn error_of(method: &dyn methods::MethodSettings, field: &dyn Field) -> Result<f64> {
//!     method.check(field.agents())?;
//!     let uplink = Uplink::default();
//!     let start = vec![0.0; field.dim()];
//!     let mut run = Run::new(field, method, &uplink, OutputRule::Last, 0, start)?;
//!     for _ in 0..300 {
//!         run.step();
//!     }
//!     let seen = Metrics::new(field).observe(&run, None, 0.0);
//!     println!("error {:.2e}, residual {:.2e}, bits up {}", seen.mse.unwrap(), seen.residual.unwrap(), run.ledger().bits_up);
//!     Ok(seen.mse.unwrap())
//! }
//!
//! # fn main() -> Result<()> {
//! let garnet = Garnet { agents: 10, heterogeneity: Heterogeneity::TwoKernels, seed: 1, ..Garnet::default() };
//! let field = garnet.field(&NoFiles, Sampling::default(), Isa::best())?;
//! let (step_size, local_steps) = (0.1, 1000);
//!
//! let fedlsa = FedLsa::new(step_size, local_steps);
//! let scafflsa = Scafflsa::new(step_size, local_steps);
//! let (biased, unbiased) = (error_of(&fedlsa, &*field)?, error_of(&scafflsa, &*field)?);
//!
//! let setting = RoundSetting::new(step_size, local_steps as u64)?;
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
//! | [`problem`] | agents' operators ([`problem::Problem`]), and a problem with its sampling as everything downstream sees it ([`problem::Field`]) |
//! | [`sampling`] | mean, i.i.d. or Markov samples, batches |
//! | [`kernel`] | the hot loop of H local steps, for each instruction set |
//! | [`local`] | client halves: what an agent does with a message from the server |
//! | [`protocol`] | what travels between the halves of a method |
//! | [`uplink`], [`message`] | links (codecs and media), and messages with their bytes |
//! | [`server`] | server halves: what the server does with the answers |
//! | [`methods`] | one file per published method: its mathematics and its two halves |
//! | [`presets`] | methods with their links, under the names of their sources |
//! | [`round`] | the in-process engine: one run of a method on a field |
//! | [`node`] | the same halves across machines: bytes in, bytes out |
//! | [`record`] | ledger, metrics, output rules |
//! | [`bit_allocation`], [`nested_grid`] | which eigenvectors get how many bits, and the quantiser that is refined by them |
//! | [`schedule`], [`random`], [`linalg`], [`triangle`], [`parallel`], [`settings`], [`registry`], [`error`] | what these share |
//!
//! The library does no file or console input or output; the `fedsa` program does.
//!
//! # Sources
//!
//! \[S\] is SCAFFLSA (arXiv 2402.04114v1), \[F\] FedHSA, \[T\] Dal Fabbro's thesis
//! (2023). Equation numbers of \[S\] are those of the PDF; "HTML eq." says that
//! the number is that of the HTML rendering, which counts differently.

pub mod bit_allocation;
pub mod coordinator;
pub mod eigenpairs;
pub mod error;
pub mod federation;
pub mod kernel;
pub mod linalg;
pub mod local;
pub mod message;
pub mod methods;
pub mod metrics;
pub mod nested_grid;
pub mod node;
pub mod parallel;
pub mod presets;
pub mod problem;
pub mod protocol;
pub mod random;
pub mod record;
pub mod registry;
pub mod round;
pub mod sampling;
pub mod schedule;
pub mod server;
pub mod settings;
pub mod sums;
pub mod triangle;
pub mod uplink;
