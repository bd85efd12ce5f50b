//! Client halves of methods that solve the mean linear system at the server.

use super::{Agent, LocalContext};
use crate::error::{Error, Result};
use crate::message::{Body, Message, Part};

/// Sends `A_c` row by row, followed by `b_c`: d (d + 1) numbers, those that are not 0 with their indices if that is shorter.
#[derive(Debug, Clone, Copy)]
pub struct SystemAgent {
    /// The dimension d.
    pub d: usize,
}

impl Agent for SystemAgent {
    fn answer(&mut self, at: &LocalContext<'_>, _: &Message) -> Result<Vec<(Part, Body)>> {
        Ok(vec![(Part::System, at.system(self.d))])
    }
    fn save(&self) -> Vec<u8> {
        Vec::new()
    }
    fn restore(&mut self, bytes: &[u8]) -> Result<()> {
        without_state(bytes)
    }
}

/// Answers a model theta with `b_c - A_c theta`, and a direction q with `A_c q`; d numbers each, those that are not 0 with their
/// indices if that is shorter.
#[derive(Debug, Clone, Copy, Default)]
pub struct ProductAgent;

impl Agent for ProductAgent {
    fn answer(&mut self, at: &LocalContext<'_>, down: &Message) -> Result<Vec<(Part, Body)>> {
        if down.exchange == 0 {
            return Ok(vec![(Part::Operator, Body::of_numbers(at.operator(down.part(Part::Model))))]);
        }
        Ok(vec![(Part::Product, Body::of_numbers(at.product(down.part(Part::Direction))))])
    }
    fn save(&self) -> Vec<u8> {
        Vec::new()
    }
    fn restore(&mut self, bytes: &[u8]) -> Result<()> {
        without_state(bytes)
    }
}

/// Restores an agent that keeps nothing.
fn without_state(bytes: &[u8]) -> Result<()> {
    if bytes.is_empty() {
        Ok(())
    } else {
        Err(Error::format("checkpoint", "the state of another agent", "a checkpoint of the same settings"))
    }
}
