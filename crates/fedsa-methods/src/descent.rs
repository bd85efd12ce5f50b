//! Shared parts of methods that move along a direction: the protocol, both halves, and requirements of a link. Such a method consists of
//! its settings with a rule for the direction ([`DescentSettings`]).
//!
//! ```text
//! round t:   g = sum_c p_c grad f_c(y_t)                                (exchange 0)
//!            p = sum_c p_c p_c(g), directions of the agents' own         (giant and done only)
//!            L(s) = sum_c p_c f_c(y_t + s p), for trial steps s          (the last exchange, with a line search)
//!            theta_{t+1} = y_t + s p
//! ```
//! A missing gradient or direction counts as zero. Over a link that loses messages, a round therefore moves along the mean gradient of the
//! agents that arrived: on average towards the root, without settling there. Codecs change gradients and directions; losses are sent
//! exactly.

use fedsa::error::{Error, Result, require};
use fedsa::local::{ByAgent, Client};
use fedsa::message::Part;
use fedsa::method::Setting;
use fedsa::protocol::{Exchange, Gather, Len, Protocol, ReplySpec};
use fedsa::server::Server;
use fedsa::uplink::LinkFacts;

use crate::at_work;
use crate::local::descent::{DescentAgent, LocalSolve};
use crate::local::line_search::Trials;
use crate::server::descent::{Descent, Direction, Length};

/// The settings of a method that moves along a direction. `moves_along!` implements [`MethodSettings`](fedsa::method::MethodSettings) for
/// them.
pub trait DescentSettings {
    /// Checks ranges. It is called before the other functions.
    ///
    /// # Errors
    /// When a setting is out of range; the error names it.
    fn check_ranges(&self) -> Result<()>;
    /// The server's rule for directions from mean gradients.
    fn rule(&self) -> Box<dyn Direction>;
    /// The rule for the step along a direction.
    fn length(&self) -> Length;
    /// How agents compute their own directions for the mean gradient, d components; `None` if the method does not use them.
    fn local_solve(&self, _d: usize) -> Option<LocalSolve> {
        None
    }
    /// Whether agents with their own directions also send the gradient at the last accepted trial step with their losses.
    fn gradients_ahead(&self) -> bool {
        false
    }
    /// Whether the server asks for gradients ahead of its iterate.
    fn asks_ahead(&self) -> bool {
        false
    }
    /// The bytes that the rule keeps for d components, in addition to a few vectors.
    fn rule_memory(&self, _d: usize) -> f64 {
        0.0
    }
}

impl dyn DescentSettings + '_ {
    /// Checks that the method works over a link.
    pub(crate) fn check_over(&self, link: &LinkFacts) -> Result<()> {
        if self.gradients_ahead() && *link != LinkFacts::default() {
            let what =
                "gradients_ahead = true, and a link that alters, loses or delays messages: other gradients would arrive than without it";
            return Err(Error::new("uplink", what, "a clear link, or gradients_ahead = false"));
        }
        self.length().trials().map_or(Ok(()), |_| check_exact_losses(link))
    }

    /// The messages for d components.
    pub(crate) fn messages(&self, d: usize) -> Protocol {
        let protocol = protocol(d, self.local_solve(d).is_some(), self.length().trials());
        let protocol = Protocol { asks_ahead: self.asks_ahead(), ..protocol };
        if self.gradients_ahead() { with_gradients_ahead(protocol, d) } else { protocol }
    }

    /// The agents' half, for d components.
    pub(crate) fn agents_half(&self, d: usize) -> Box<dyn Client> {
        let (trials, solve) = (self.length().trials().cloned(), self.local_solve(d));
        ByAgent::boxed(move |_| Box::new(DescentAgent::new(trials.clone(), solve)))
    }

    /// The server's half.
    pub(crate) fn server_half(&self, setting: &Setting<'_>) -> Box<dyn Server> {
        let asks_agents = self.local_solve(setting.start.len()).is_some();
        let server = Descent::new(setting.start.clone(), self.rule(), asks_agents, self.length());
        Box::new(if self.gradients_ahead() { server.with_gradients_ahead() } else { server })
    }

    /// The bytes of a model and a gradient of each agent, of scratch memory of agents that answer at the same time, and of the rule's
    /// memory. No d x d matrix, unless one of the latter two is one.
    pub(crate) fn bytes(&self, agents: usize, d: usize) -> f64 {
        let solving = self.local_solve(d).map_or(0.0, |solve| at_work(agents) * solve.memory(d));
        16.0 * agents as f64 * d as f64 + solving + self.rule_memory(d)
    }

    /// The multiply-adds of an agent in a round: a matrix product for the gradient and for each loss, and its own direction.
    pub(crate) fn multiply_adds(&self, d: usize) -> f64 {
        let losses = self.length().trials().map_or(0, Trials::losses);
        (1 + losses) as f64 * (d as f64).powi(2) + self.local_solve(d).map_or(0.0, |solve| solve.work(d))
    }
}

/// Implements a method for settings that are [`DescentSettings`].
macro_rules! moves_along {
    ($settings:ident) => {
        impl fedsa::method::MethodSettings for $settings {
            fn check(&self, _: usize) -> fedsa::error::Result<()> {
                self.check_ranges()
            }

            fn needs(&self) -> fedsa::method::Needs {
                fedsa::method::Needs::Objective
            }

            fn check_link(&self, link: &fedsa::uplink::LinkFacts) -> fedsa::error::Result<()> {
                <dyn DescentSettings>::check_over(self, link)
            }

            fn protocol(&self, setting: &fedsa::method::Setting<'_>) -> fedsa::protocol::Protocol {
                <dyn DescentSettings>::messages(self, setting.start.len())
            }

            fn client(&self, setting: &fedsa::method::Setting<'_>) -> Box<dyn fedsa::local::Client> {
                <dyn DescentSettings>::agents_half(self, setting.start.len())
            }

            fn server(&self, setting: &fedsa::method::Setting<'_>) -> Box<dyn fedsa::server::Server> {
                <dyn DescentSettings>::server_half(self, setting)
            }

            fn memory(&self, agents: usize, d: usize) -> f64 {
                <dyn DescentSettings>::bytes(self, agents, d)
            }

            fn work(&self, _: usize, d: usize) -> f64 {
                <dyn DescentSettings>::multiply_adds(self, d)
            }

            fn shape(&self) -> fedsa::method::MethodShape {
                fedsa::method::MethodShape::without_local_steps()
            }
        }
    };
}
pub(crate) use moves_along;

/// The most halvings of a step.
const MAX_HALVINGS: usize = 60;
/// The least allowed value of the smallest trial step.
const SMALLEST_STEP: f64 = 1e-30;

/// Checks the settings of a line search.
///
/// # Errors
/// When one is out of range; the error names it.
pub(super) fn check_search(halvings: usize, decrease: f64) -> Result<()> {
    require(halvings <= MAX_HALVINGS, "halvings", halvings, &format!("at most {MAX_HALVINGS}"))?;
    check_decrease(decrease)
}

/// Checks the settings of a line search with a given shrink factor.
///
/// # Errors
/// When one, or the smallest step, is out of range; the error names it.
pub(super) fn check_shrinking_search(shrink: f64, shrinks: usize, decrease: f64) -> Result<()> {
    require(shrink > 0.0 && shrink < 1.0, "shrink", shrink, "above 0 and below 1")?;
    let most = (SMALLEST_STEP.ln() / shrink.ln() + 1e-9).min(MAX_HALVINGS as f64) as usize;
    let accepted = format!("at most {most} with this shrink, so that the smallest step, shrink^shrinks, is at least {SMALLEST_STEP:e}");
    require(shrinks <= most, "shrinks", shrinks, &accepted)?;
    check_decrease(decrease)
}

fn check_decrease(decrease: f64) -> Result<()> {
    require(decrease > 0.0 && decrease < 0.5, "decrease", decrease, "above 0 and below 1/2")
}

/// Checks a number that must be positive.
///
/// # Errors
/// When it is not; the error names it.
pub(super) fn check_positive(key: &'static str, x: f64) -> Result<()> {
    require(x > 0.0 && x.is_finite(), key, x, "a positive number")
}

/// Checks that a link delivers losses one by one. Over the air, the receiver's noise would decide which steps are accepted.
///
/// # Errors
/// When sums are analogue.
pub(super) fn check_exact_losses(link: &LinkFacts) -> Result<()> {
    if !link.is_analogue {
        return Ok(());
    }
    let what = "the method compares losses along a step, and over the air sums arrive with gains and noise of their own";
    Err(Error::new("uplink", what, "a link that delivers one message per agent, or gd with a step_size"))
}

/// The protocol for vectors of d components.
fn protocol(d: usize, asks_agents: bool, trials: Option<&Trials>) -> Protocol {
    let exchange = |down, part| Exchange {
        down: vec![(down, Len::Exactly(d))],
        own: Vec::new(),
        replies: vec![ReplySpec { part, len: Len::Exactly(d), gather: Gather::Sum }],
        may_open: false,
    };
    let mut exchanges = vec![exchange(Part::Model, Part::Gradient)];
    if asks_agents {
        exchanges.push(exchange(Part::Gradient, Part::Direction));
    }
    exchanges.extend(trials.map(|trials| trials.exchange(d)));
    Protocol { exchanges, ..Protocol::default() }
}

/// The same for agents that also send gradients at the trial step named by the server: a round may then open with the agents' directions.
fn with_gradients_ahead(mut protocol: Protocol, d: usize) -> Protocol {
    let [_, directions, search] = &mut protocol.exchanges[..] else { unreachable!("directions of the agents and a line search") };
    directions.down = vec![(Part::Model, Len::Exactly(d)), (Part::ExactGradient, Len::Exactly(d))];
    directions.may_open = true;
    search.down.push((Part::Trial, Len::Exactly(1)));
    search.replies.push(ReplySpec { part: Part::Gradient, len: Len::Exactly(d), gather: Gather::Sum });
    protocol
}

#[cfg(test)]
mod tests {
    use fedsa::method::MethodSettings as _;

    use super::*;
    use crate::agd::AcceleratedGradient;
    use crate::bfgs::Bfgs;
    use crate::done::Done;
    use crate::gd::GradientDescent;
    use crate::giant::Giant;
    use crate::lbfgs::Lbfgs;

    #[test]
    fn servers_measure_residuals_where_rounds_begin_at_the_iterate() {
        let of = |method: &dyn fedsa::method::MethodSettings| {
            let link = LinkFacts::default();
            let setting = Setting { seed: 0, weights: &[0.5; 2], start: vec![0.0; 3], link, is_accelerated: false };
            method.protocol(&setting).measures_iterates()
        };
        assert!(of(&Giant::default()) && of(&Lbfgs::default()) && of(&crate::lstd::Lstd::default()));
        assert!(of(&crate::adaptive_newton::AdaptiveNewton::default()) && of(&crate::fedhsa::FedHsa::new(0.1, 5)));
        assert!(!of(&AcceleratedGradient::default()) && !of(&Giant { gradients_ahead: true, ..Giant::default() }));
        let (lspi, fitted_q) = (crate::lspi::Lspi::default(), crate::fitted_q::FittedQ::default());
        assert!(of(&lspi) && of(&fitted_q));
        assert!(!of(&crate::gmres::Gmres::default()) && !of(&crate::fedlsa::FedLsa::new(0.1, 5)));
    }

    /// Among these methods only BFGS has a d x d matrix for large d.
    #[test]
    fn memory_is_that_of_vectors_where_there_is_no_matrix() {
        let (agents, d) = (10, 300_000);
        let vectors = |n: f64| 8.0 * n * d as f64;
        let done = Done { richardson_step: Some(0.1), richardson_steps: 20, step_size: 1.0 };
        assert_eq!(GradientDescent::default().memory(agents, d), vectors(20.0));
        assert_eq!(AcceleratedGradient::default().memory(agents, d), vectors(20.0));
        assert_eq!(Lbfgs::default().memory(agents, d), vectors(20.0 + 20.0));
        for memory in [Giant::default().memory(agents, d), done.memory(agents, d)] {
            assert!(memory > vectors(20.0) && memory <= vectors(20.0 + 4.0 * agents as f64), "{memory:e}");
        }
        assert!(Bfgs::default().memory(agents, d) > 8.0 * (d as f64).powi(2));
    }

    /// A gradient and the losses of 22 trial steps; ten halvings fewer; none with a fixed step; and the agents' own directions.
    #[test]
    fn work_is_that_of_gradients_losses_and_products() {
        let d = 1000;
        let products = |work: f64| work / (d as f64).powi(2);
        let done = Done { richardson_step: Some(0.1), richardson_steps: 20, step_size: 1.0 };
        assert_eq!(products(Bfgs::default().work(1, d)), 23.0);
        assert_eq!(products(Bfgs { halvings: 10, ..Bfgs::default() }.work(1, d)), 13.0);
        assert_eq!(products(GradientDescent { step_size: Some(0.1), ..GradientDescent::default() }.work(1, d)), 1.0);
        assert_eq!(products(done.work(1, d)), 21.0);
        assert_eq!(products(Giant { cg_steps: Some(30), ..Giant::default() }.work(1, d)), 12.0 + 30.0);
    }

    #[test]
    fn the_smallest_step_is_bounded() {
        for (shrink, shrinks) in [(0.5, 60), (0.25, 49), (0.1, 30), (1e-10, 3), (1e-300, 0), (0.999, 60)] {
            assert!(check_shrinking_search(shrink, shrinks, 0.1).is_ok(), "{shrink} {shrinks}");
            let e = check_shrinking_search(shrink, shrinks + 1, 0.1).unwrap_err();
            assert!(e.key == "shrinks" && e.help.contains("at most"), "{e:?}");
        }
        for shrink in [0.0, 1.0, f64::NAN] {
            assert_eq!(check_shrinking_search(shrink, 1, 0.1).unwrap_err().key, "shrink");
        }
        assert!(check_shrinking_search(0.5, 1, 0.5).is_err() && check_search(61, 0.1).is_err());
    }
}
