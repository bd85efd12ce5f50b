//! Methods with plain local steps and an averaging server: FedLSA and its variants. Each consists of its settings, which define its
//! [`LocalSa`].

use std::collections::VecDeque;

use fedsa::error::{Result, require};
use fedsa::local::Client;
use fedsa::method::{Drift, MethodShape, Setting};
use fedsa::protocol::{Gather, Protocol};
use fedsa::schedule::{StepSchedule, StepSize};
use fedsa::server::{Participation, Server};

use crate::local::Plain;
use crate::server::Average;
use crate::server::adaptive::{Adaptive, NearRule};
use crate::{averaging, check_common, fixed};

/// The parameters of such a method.
#[derive(Debug, Clone, Copy)]
pub(super) struct LocalSa {
    /// `eta`.
    pub(super) step_size: StepSize,
    /// H.
    pub(super) local_steps: usize,
    /// `alpha_g`.
    pub(super) global_step_size: f64,
    /// m.
    pub(super) participants: Option<usize>,
    /// R: the radius of the ball on which the mean iterate is projected.
    pub(super) radius: Option<f64>,
    /// The rule for directions at stale models, and eps, by default the largest step size.
    pub(super) near: Option<(NearRule, Option<f64>)>,
}

impl LocalSa {
    /// FedLSA.
    pub(super) fn new(step_size: StepSize, local_steps: usize, global_step_size: f64, participants: Option<usize>) -> Self {
        Self { step_size, local_steps, global_step_size, participants, radius: None, near: None }
    }

    fn steps(self) -> StepSchedule {
        fixed(self.step_size, self.local_steps)
    }

    pub(super) fn check(self, agents: usize) -> Result<()> {
        if let Some(radius) = self.radius {
            require(radius > 0.0 && radius.is_finite(), "radius", radius, "a positive number")?;
        }
        if let Some((_, Some(eps))) = self.near {
            require(eps > 0.0, "threshold", eps, "a positive distance")?;
        }
        check_common(&self.step_size, self.local_steps, self.global_step_size, self.participants, agents)
    }

    pub(super) fn protocol(self, d: usize) -> Protocol {
        Protocol::directions(d, if self.near.is_some() { Gather::Each } else { Gather::Sum })
    }

    pub(super) fn client(self) -> Box<dyn Client> {
        Box::new(Plain { steps: self.steps() })
    }

    pub(super) fn server(self, setting: &Setting<'_>) -> Box<dyn Server> {
        let Some((choice, threshold)) = self.near else {
            let average = averaging(setting, self.steps(), self.global_step_size, self.participants);
            return Box::new(Average { radius: self.radius, ..average });
        };
        Box::new(Adaptive {
            theta: setting.start.clone(),
            steps: self.steps(),
            alpha_g: self.global_step_size,
            participation: Participation { m: self.participants, agents: setting.agents(), seed: setting.seed },
            threshold: threshold.unwrap_or(self.step_size.largest()),
            choice,
            reach: setting.link.stale.or(setting.link.late).unwrap_or(0),
            models: VecDeque::new(),
            first: 0,
        })
    }

    pub(super) fn shape(self) -> MethodShape {
        MethodShape {
            drift: Drift::Zero,
            step_size: self.step_size,
            local_steps: self.local_steps as f64,
            alpha_g: self.global_step_size,
            participants: self.participants,
            is_linear: self.radius.is_none() && self.near.is_none(),
        }
    }
}

/// Implements a method for settings with a function `rule`.
macro_rules! is_local_sa {
    ($($settings:ident),+) => { $(
        impl fedsa::method::MethodSettings for $settings {
            fn check(&self, agents: usize) -> fedsa::error::Result<()> {
                self.rule().check(agents)
            }

            fn protocol(&self, setting: &fedsa::method::Setting<'_>) -> fedsa::protocol::Protocol {
                self.rule().protocol(setting.start.len())
            }

            fn client(&self, _: &fedsa::method::Setting<'_>) -> Box<dyn fedsa::local::Client> {
                self.rule().client()
            }

            fn server(&self, setting: &fedsa::method::Setting<'_>) -> Box<dyn fedsa::server::Server> {
                self.rule().server(setting)
            }

            fn shape(&self) -> fedsa::method::MethodShape {
                self.rule().shape()
            }
        }
    )+ };
}
pub(super) use is_local_sa;
