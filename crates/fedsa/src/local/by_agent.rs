//! The rule of agents that compute alone.

use super::batch::Other;
use super::{Agent, AgentBatch, Client, ClientFacts, MakeAgent, Outbox};
use crate::error::Result;
use crate::message::Message;

/// The client rule of agents that compute alone, which answer one after the other.
pub struct ByAgent(MakeAgent);

impl ByAgent {
    /// A rule whose agents are made from their numbers.
    pub fn boxed(make: impl Fn(usize) -> Box<dyn Agent> + Send + Sync + 'static) -> Box<dyn Client> {
        Box::new(Self(Box::new(make)))
    }
}

impl Client for ByAgent {
    fn facts(&self) -> ClientFacts<'_> {
        ClientFacts { agents: Some(&self.0), ..ClientFacts::default() }
    }

    fn local_steps(&self, _: u64) -> usize {
        0
    }

    fn answer(&self, batch: &mut AgentBatch<'_>, down: &Message, out: &mut Outbox) -> Result<()> {
        for l in batch.lanes() {
            let answer = batch.alone(l, down, |agent, at, down| agent.answer(at, down));
            out.set(l, answer.map_or_else(Other::Refused, Other::Parts));
        }
        Ok(())
    }

    fn sent(&self, batch: &mut AgentBatch<'_>, _: &Message, sent: &Outbox) -> Result<()> {
        for l in batch.lanes() {
            if let Some(parts) = sent.decoded(l) {
                batch.agent(l).sent(parts);
            }
        }
        Ok(())
    }

    fn told(&self, batch: &mut AgentBatch<'_>, down: &Message) {
        for l in batch.lanes() {
            batch.alone(l, down, |agent, at, down| agent.told(at, down));
        }
    }
}
