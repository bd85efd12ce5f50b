//! What is minimised, and what messages take.

use clap::Args;
use fedsa::error::Result;
use fedsa_theory::cost::Network;

/// What is minimised.
#[derive(clap::ValueEnum, Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MinimiseArg {
    /// Rounds
    Rounds,
    /// Bits of all messages, up and down
    #[default]
    Bits,
    /// Samples of all agents
    Samples,
    /// Seconds of messages, with --latency or --bandwidth; computation is not counted
    Seconds,
}

/// What messages take on a network.
#[derive(Args, Debug, Clone, Copy)]
pub struct NetworkArgs {
    /// The seconds that an exchange takes, whatever is in it: with --objective seconds
    #[arg(long, value_name = "SECONDS")]
    pub latency: Option<f64>,
    /// The bits a second that pass, of all messages up and down: with --objective seconds
    #[arg(long, value_name = "BITS")]
    pub bandwidth: Option<f64>,
}

impl NetworkArgs {
    /// The network, if anything is said of it.
    ///
    /// # Errors
    /// When a number is out of range; names the setting.
    pub fn network(self) -> Result<Option<Network>> {
        Network::of(self.latency, self.bandwidth)
    }
}
