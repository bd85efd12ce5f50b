//! A method composed of parts of fedsa: the agents of FedHSA, and an average that is projected on a ball (as Wang et al. 2023
//! do for FedTD), so that iterates stay bounded whatever the step size is.

use fedsa::error::{Result, require};
use fedsa::local::Client;
use fedsa::method::{Drift, MethodSettings, MethodShape, Setting};
use fedsa::protocol::{Gather, Protocol};
use fedsa::schedule::StepSize;
use fedsa::server::Server;
use fedsa_methods::local::GlobalMemory;
use fedsa_methods::{averaging, check_common, fixed};
use serde::{Deserialize, Serialize};

/// The keys of `[[method]]`.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProjectedFedHsa {
    /// eta.
    pub step_size: StepSize,
    /// H.
    pub local_steps: usize,
    /// The radius of the ball around 0.
    pub radius: f64,
    /// m of the N agents take part in a round; all when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub participants: Option<usize>,
}

impl MethodSettings for ProjectedFedHsa {
    fn check(&self, agents: usize) -> Result<()> {
        require(self.radius > 0.0 && self.radius.is_finite(), "radius", self.radius, "a positive number")?;
        check_common(&self.step_size, self.local_steps, 1.0, self.participants, agents)
    }

    fn protocol(&self, setting: &Setting<'_>) -> Protocol {
        Protocol::operators_then_directions(setting.start.len(), Gather::Sum)
    }

    fn client(&self, _: &Setting<'_>) -> Box<dyn Client> {
        Box::new(GlobalMemory { steps: fixed(self.step_size, self.local_steps), fresh: 0 })
    }

    fn server(&self, setting: &Setting<'_>) -> Box<dyn Server> {
        let mut average = averaging(setting, fixed(self.step_size, self.local_steps), 1.0, self.participants);
        average.operators_first = true;
        average.radius = Some(self.radius);
        Box::new(average)
    }

    fn shape(&self) -> MethodShape {
        MethodShape {
            drift: Drift::GlobalMemory { fresh: 0 },
            step_size: self.step_size,
            local_steps: self.local_steps as f64,
            alpha_g: 1.0,
            participants: self.participants,
            is_linear: false,
        }
    }
}
