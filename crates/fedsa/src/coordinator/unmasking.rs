//! Secure sums at the server: it adds masked answers, and asks for the seeds of the masks that do not cancel.

use super::handed_in::Reply;
use super::masked::{MaskedSum, Unmasking, unmasked};
use super::{Coordinator, asked_weight};
use crate::linalg::norm_sq;
use crate::message::{Body, HEADER_BYTES, Message, PART_HEADER_BYTES, Part};
use crate::protocol::{UNMASKING, refused};
use crate::random::ALL;
use crate::record::Sent;
use crate::secure::{SumGrid, WORD_COUNT, revealed_len, subtract, unpack};
use crate::server::Broadcast;
use crate::uplink::MessageKey;

impl Coordinator {
    /// Answers arrive masked from now on.
    pub(crate) fn expect_masks(&mut self) {
        self.is_masked = self.grid.is_some();
    }

    /// The grid of secure sums, if the link has them.
    pub(crate) fn grid(&self) -> Option<SumGrid> {
        self.grid
    }

    /// The largest rounding error of a number in a secure sum; otherwise 0.
    pub(super) fn sum_rounding(&self) -> f64 {
        self.grid.map_or(0.0, |grid| grid.rounding(self.everyone.len()))
    }

    /// The number of numbers that agents clipped to the bound of secure sums since the start.
    pub fn clipped(&self) -> u64 {
        self.state.clipped
    }

    /// The question that the answers are about: the one before the open question, if that unmasks its sum.
    pub(super) fn asked_about(&self) -> &Broadcast {
        self.state.masked.as_ref().map_or(&self.state.ask, |masked| &masked.ask)
    }

    /// A sum of enough answers with who is in it; otherwise zero, of nobody.
    pub(super) fn if_enough(&mut self, sum: Vec<f64>, arrived: Vec<bool>) -> (Vec<f64>, Vec<bool>) {
        if self.count_unmasking(&arrived) { (sum, arrived) } else { (vec![0.0; sum.len()], vec![false; self.asked().len()]) }
    }

    /// Whether enough agents answered. In one process: counts the messages that would unmask their sum over a link with secure sums.
    pub(super) fn count_unmasking(&mut self, arrived: &[bool]) -> bool {
        let asked = self.asked().len();
        let here = if arrived.is_empty() { asked } else { arrived.iter().filter(|arrived| **arrived).count() };
        if here < self.federation.uplink().least_agents() {
            return false;
        }
        if self.grid.is_none() {
            return true;
        }
        let head = HEADER_BYTES + PART_HEADER_BYTES;
        let ledger = &mut self.state.ledger;
        ledger.exchanges += 1;
        ledger.down(here, here * (head + self.everyone.len().div_ceil(8)));
        ledger.up(&Sent { messages: here as u64, bytes: (here * (head + revealed_len(asked - here))) as u64, ..Sent::default() });
        true
    }

    /// Ends an exchange with masked answers, or one with seeds.
    pub(super) fn receive_masked(&mut self, replies: Vec<Option<Reply>>) -> Unmasking {
        let grid = self.grid.expect("a link with secure sums");
        match self.state.masked.take() {
            None => self.add_masked(grid, replies),
            Some(masked) => {
                let sum = unmasked(&masked, grid, self.asked(), &replies);
                self.state.ask = masked.ask;
                let Some((sum, clipped)) = sum else { return self.without_sum() };
                self.state.clipped += clipped;
                let arrived = self.asked().iter().map(|c| masked.answered[*c]).collect::<Vec<bool>>();
                let arrived = if arrived.contains(&false) { arrived } else { Vec::new() };
                self.acknowledge(&arrived);
                Unmasking::Sums(sum, arrived)
            }
        }
    }

    /// Zero, of nobody: too few answers, or seeds that did not come.
    fn without_sum(&mut self) -> Unmasking {
        let (n, len) = (self.asked().len(), self.protocol.summed_len(self.state.ask.down.exchange));
        let arrived = vec![false; n];
        self.acknowledge(&arrived);
        Unmasking::Sums(vec![0.0; len], arrived)
    }

    fn add_masked(&mut self, grid: SumGrid, replies: Vec<Option<Reply>>) -> Unmasking {
        let Message { round, exchange, .. } = self.state.ask.down;
        let at = MessageKey { seed: self.federation.seed(), round, exchange, agent: ALL };
        let asked = self.asked().to_vec();
        let gains = self.state.end.gains(self.federation.uplink(), at, &asked);
        let len = self.protocol.summed_len(exchange) + WORD_COUNT;
        let (mut answered, mut words) = (vec![false; self.everyone.len()], vec![0u64; len]);
        for ((c, reply), _) in asked.iter().zip(&replies).zip(&gains).filter(|(_, gain)| **gain != 0.0) {
            let Some((_, Body::Packed(bytes))) = reply.as_ref().and_then(|reply| reply.parts.first()) else { continue };
            answered[*c] = true;
            words.iter_mut().zip(unpack(bytes, len, grid)).for_each(|(sum, y)| *sum = sum.wrapping_add(y) & grid.largest_word());
        }
        let to: Vec<usize> = asked.into_iter().filter(|c| answered[*c]).collect();
        if to.len() < self.federation.uplink().least_agents() {
            return self.without_sum();
        }
        let mut bitmap = vec![0u8; answered.len().div_ceil(8)];
        to.iter().for_each(|c| bitmap[c / 8] |= 1 << (c % 8));
        let parts = vec![(Part::Answered, Body::Packed(bitmap))];
        let ask = self.state.ask.clone();
        self.state.masked = Some(MaskedSum { ask, answered, words });
        Unmasking::Ask(Broadcast { to: Some(to), down: Message { round, exchange: exchange + UNMASKING, parts }, own: None })
    }

    /// The weight of the participants of the exchange with masked answers, and of those that are in its sum: 0 until all seeds are here.
    pub(super) fn weight_of_masked(&self) -> Option<(f64, f64)> {
        let masked = self.state.masked.as_ref()?;
        let weights = self.federation.weights();
        let asked = masked.ask.to.as_deref().unwrap_or(&self.everyone);
        let is_known = self.answered() == self.asked().len();
        let answered = asked.iter().filter(|c| is_known && masked.answered[**c]).map(|c| weights[*c]).sum();
        Some((asked_weight(weights, asked), answered))
    }

    /// The number of answers without which the open exchange of a secure sum gives nothing: all seeds, and the least number of masked
    /// answers; otherwise 0.
    pub(crate) fn needed_answers(&self) -> usize {
        match self.is_masked {
            true if self.state.masked.is_some() => self.asked().len(),
            true => self.federation.uplink().least_agents(),
            false => 0,
        }
    }

    /// The norm of the mean of the first vector in the sum that the open question unmasks, once all seeds are here.
    pub(super) fn mean_of_masked(&self) -> Option<(Part, f64)> {
        let masked = self.state.masked.as_ref()?;
        let replies = self.state.replies.each();
        let (sum, _) = unmasked(masked, self.grid?, self.asked(), replies)?;
        let first = self.protocol.wanted(masked.ask.down.exchange).first()?;
        let vector = sum.get(..self.federation.dim()).filter(|_| first.len.largest() == self.federation.dim())?;
        let (_, weight) = self.weight_of_masked()?;
        Some((first.part, norm_sq(vector).sqrt() / weight))
    }

    /// Refuses seeds that are not those of the masks in the sum that the open question unmasks.
    pub(super) fn check_seeds(&self, agent: usize, parts: &[(Part, Body)]) -> crate::error::Result<()> {
        let (Some(masked), Some(grid)) = (&self.state.masked, self.grid) else { return Ok(()) };
        let [(Part::Seeds, Body::Packed(seeds))] = parts else { return Ok(()) };
        if subtract(seeds, agent, &masked.answered, grid, &mut []) {
            return Ok(());
        }
        Err(refused(
            format!("seeds of agent {agent} that are not those of its masks"),
            "its own seed, and one for each agent without an answer",
        ))
    }
}
