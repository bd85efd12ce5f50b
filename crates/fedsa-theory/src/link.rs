//! The effect of a link on the mean and variance of a method's rounds.

use crate::unknown::unknown;
use fedsa::error::Result;
use fedsa::uplink::Uplink;
use fedsa::uplink::stage::Act;
use fedsa::uplink::stage::bit_budget::BitBudget;
use fedsa::uplink::stage::delay::{Before, Delay};

/// The longest delay, in rounds, for which closed forms are computed.
const LONGEST: u64 = 250;

/// The bits of secure sums from which predictions leave rounding out.
const FINE_BITS: u32 = 24;

/// The reason why only the mean is known over a codec with an error.
const CODEC: &str = "the variance of the codec's error depends on the vector that is sent";

/// A link whose effect on the mean of a round is known. Codecs are unbiased, every message arrives with a factor h that is independent
/// over agents and exchanges, and delays have a known law.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkLaw {
    /// `E h`.
    pub gain: f64,
    /// `E h^2`.
    pub gain_square: f64,
    /// `s_w`: the standard deviation of N w, where w is the receivers' noise in each component of a mean over N agents.
    pub receiver_noise: f64,
    /// `s_e`: the standard deviation of the noise that an agent adds to each component of what it sends.
    pub sent_noise: f64,
    /// The law of the delays; `None` if there are none.
    pub delay: Option<DelayLaw>,
    /// The reason if only the mean is known.
    pub only_mean: Option<&'static str>,
}

/// The law of the age of directions in rounds, the same in every round.
#[derive(Debug, Clone, PartialEq)]
pub struct DelayLaw {
    /// `P(tau = k)` for k = 0, 1, ..; the last is not 0.
    pub probabilities: Vec<f64>,
    /// The server's directions in the first rounds, when no answer is as old as the delay.
    pub before: Before,
}

impl DelayLaw {
    /// tau, if the delay is constant.
    pub fn constant(&self) -> Option<usize> {
        let last = self.probabilities.len() - 1;
        (self.probabilities[last] == 1.0).then_some(last)
    }
}

impl LinkLaw {
    /// A clear link.
    pub fn clear() -> Self {
        Self { gain: 1.0, gain_square: 1.0, receiver_noise: 0.0, sent_noise: 0.0, delay: None, only_mean: None }
    }

    /// The effect of `link` on messages with vectors of `d` components.
    ///
    /// # Errors
    /// When the effect on a round's mean is not known; gives the reason.
    pub fn of(link: &Uplink, d: usize) -> Result<Self> {
        Self::with_budget(link, d, link.budget())
    }

    /// The effect of `link` with another bit budget.
    ///
    /// # Errors
    /// As [`LinkLaw::of`].
    pub fn with_budget(link: &Uplink, d: usize, budget: Option<&BitBudget>) -> Result<Self> {
        if link.error_feedback {
            return Err(unknown("with error feedback a message depends on all earlier messages"));
        }
        if !link.codec.is_unbiased() || !link.downlink.is_unbiased() {
            return Err(unknown("the codec is biased, and its error is not a linear function of the vector"));
        }
        if !link.aggregation.is_mean() {
            return Err(unknown("the server takes a robust mean of the answers, which is not linear in them"));
        }
        let mut law = Self::clear();
        for stage in &link.media {
            let act = stage.act();
            match act {
                Act::Alters(alteration) => {
                    let nonlinear = || unknown("agents alter what they send (clip), which is not a linear function of the vector");
                    law.sent_noise = law.sent_noise.hypot(alteration.noise().ok_or_else(nonlinear)?);
                }
                Act::AddsUp { receiver_noise, .. } => law.receiver_noise = law.receiver_noise.hypot(receiver_noise),
                // Sums are rounded by about sqrt(N / 12) steps of the grid, which a fine grid makes negligible.
                Act::Masks(sum) if sum.bits < FINE_BITS => {
                    return Err(unknown("secure sums of few bits are rounded to a coarse grid"));
                }
                Act::Weakens(_) | Act::Masks(_) | Act::Limits(_) | Act::Pulls(_) | Act::Delays(_) => {}
            }
            let Some(channel) = act.channel() else { continue };
            let (gain, square) = channel.gain_law().moments.ok_or_else(|| unknown("losses come in bursts and are not independent"))?;
            law.gain *= gain;
            law.gain_square *= square;
        }
        if let Some(budget) = budget {
            let carried = budget.share_carried(|bits| link.codec.encoded_len(d, Some(bits)).is_some());
            law.gain *= carried;
            law.gain_square *= carried;
        }
        if law.gain == 0.0 {
            return Err(unknown("no message arrives"));
        }
        let before = link.pull().map_or(Before::Nothing, |pull| pull.before);
        law.delay = link.delay().map_or(Ok(None), |delay| delay_law(delay, before))?;
        law.only_mean = if !link.codec.is_exact() || !link.downlink.is_exact() {
            Some(CODEC)
        } else if law.delay.as_ref().is_some_and(|delay| delay.constant().is_none()) {
            Some("delays are drawn anew in each round, so that samples are used several times or never")
        } else {
            None
        };
        Ok(law)
    }

    /// Whether the link changes nothing.
    pub fn is_clear(&self) -> bool {
        *self == Self::clear()
    }

    /// Whether a codec adds an error to messages.
    pub fn has_codec_error(&self) -> bool {
        self.only_mean == Some(CODEC)
    }

    /// Whether the link adds noise.
    pub fn is_noisy(&self) -> bool {
        self.only_mean.is_some() || self.gain_square != self.gain * self.gain || self.adds_noise()
    }

    /// Whether messages arrive, at once or later, without a factor and without noise.
    pub fn delivers(&self) -> bool {
        self.gain == 1.0 && self.gain_square == 1.0 && !self.adds_noise()
    }

    /// Whether agents or receivers add noise.
    pub fn adds_noise(&self) -> bool {
        self.receiver_noise > 0.0 || self.sent_noise > 0.0
    }

    /// `sqrt(s_w^2 + N^2 E h^2 s_e^2 sum p_c^2)`, for a mean over N agents with these weights: the standard deviation of N w if the
    /// receivers' noise w alone had the variance of all noise in the mean.
    pub fn noise_in_mean(&self, weights: &[f64]) -> f64 {
        let squares = weights.iter().map(|p| p * p).sum::<f64>();
        self.receiver_noise.hypot(weights.len() as f64 * self.sent_noise * (self.gain_square * squares).sqrt())
    }
}

/// The law of delays; `None` if all delays are 0.
fn delay_law(delay: &Delay, before: Before) -> Result<Option<DelayLaw>> {
    if delay.max() == 0 {
        return Ok(None);
    }
    if delay.max() > LONGEST {
        return Err(unknown(&format!("delays of more than {LONGEST} rounds")));
    }
    let max = delay.max() as usize;
    let mut probabilities = vec![0.0; max + 1];
    match delay {
        Delay::Constant { .. } => probabilities[max] = 1.0,
        Delay::Uniform { min, .. } => probabilities[*min as usize..].fill(1.0 / (max as u64 - min + 1) as f64),
        Delay::Geometric { mean, .. } => {
            // P(tau >= k) = r^k, cut off at the largest delay.
            let r = mean / (1.0 + mean);
            for (k, p) in probabilities.iter_mut().enumerate() {
                *p = r.powi(k as i32) * if k == max { 1.0 } else { 1.0 - r };
            }
        }
        Delay::Spikes { probability, .. } => {
            probabilities[0] = 1.0 - probability;
            probabilities[max] = *probability;
        }
        Delay::Trace { .. } | Delay::Stall { .. } => {
            return Err(unknown("delays follow a trace or stall at set times, so that their law changes from round to round"));
        }
    }
    while probabilities.last() == Some(&0.0) {
        probabilities.pop();
    }
    Ok((probabilities.len() > 1).then_some(DelayLaw { probabilities, before }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fedsa::random::{Purpose, stream};
    use fedsa::uplink::codec::{CodecSettings, Exact, Quantised, Rounding};
    use fedsa::uplink::stage::clip::Clip;
    use fedsa::uplink::stage::erasure::Erasure;
    use fedsa::uplink::stage::over_the_air::{Gain, OverTheAir};
    use fedsa::uplink::stage::sent_noise::SentNoise;
    use std::sync::Arc;

    #[test]
    fn laws_of_delays_are_those_that_are_drawn() {
        let laws = [
            Delay::Constant { rounds: 3 },
            Delay::Uniform { min: 2, max: 6 },
            Delay::Geometric { mean: 1.5, max: None },
            Delay::Geometric { mean: 4.0, max: Some(5) },
            Delay::Spikes { probability: 0.2, rounds: 7 },
        ];
        let draws = 200_000;
        for delay in laws {
            let law = delay_law(&delay, Before::First).unwrap().unwrap();
            assert!((law.probabilities.iter().sum::<f64>() - 1.0).abs() < 1e-14);
            let mut seen = vec![0.0; law.probabilities.len()];
            let mut stream = stream(5, Purpose::Fresh, 0, 0);
            (0..draws).for_each(|_| seen[delay.of(0, 0, &mut stream) as usize] += 1.0);
            for (p, n) in law.probabilities.iter().zip(seen) {
                let error = (p * (1.0 - p) / f64::from(draws)).sqrt();
                assert!((n / f64::from(draws) - p).abs() <= 4.5 * error, "{delay:?}: {p}, seen {n}");
            }
        }
        for nothing in
            [Delay::Constant { rounds: 0 }, Delay::Spikes { probability: 0.0, rounds: 9 }, Delay::Geometric { mean: 0.0, max: None }]
        {
            assert_eq!(delay_law(&nothing, Before::First).unwrap(), None);
        }
        assert!(delay_law(&Delay::Stall { period: 9, length: 3, short: 0 }, Before::First).is_err());
        assert!(delay_law(&Delay::Constant { rounds: 251 }, Before::First).is_err());
    }

    #[test]
    fn budgets_carry_as_often_as_they_are_drawn() {
        let draws = 100_000;
        for (bits, snr, fewest) in [(4.0, 3.0, 1), (2.0, 0.5, 1), (16.0, 2.0, 32)] {
            let budget = BitBudget::new(bits).with_fading_snr(snr);
            let p = budget.share_carried(|bits| bits >= fewest);
            let mut stream = stream(6, Purpose::Fresh, 0, 0);
            let seen = (0..draws).filter(|_| budget.draw(&mut stream) >= fewest).count() as f64 / f64::from(draws);
            assert!((seen - p).abs() <= 4.0 * (p * (1.0 - p) / f64::from(draws)).sqrt(), "{bits} {snr}: {p}, seen {seen}");
        }
    }

    #[test]
    fn gains_of_stacked_media_multiply() {
        let mut link = Uplink::default();
        link.push(Arc::new(Erasure::new(0.6))).unwrap();
        link.push(Arc::new(OverTheAir::default().with_gain(Gain::Constant { value: 0.5 }).with_receiver_noise(0.3))).unwrap();
        let law = LinkLaw::of(&link, 3).unwrap();
        assert!((law.gain - 0.3).abs() < 1e-15 && (law.gain_square - 0.15).abs() < 1e-15 && law.is_noisy());
        assert_eq!((law.receiver_noise, law.only_mean), (0.3, None));
        assert!(LinkLaw::of(&Uplink::default(), 3).unwrap().is_clear());
        let coded = Uplink::default().with_codec(Quantised::new(4).with_rounding(Rounding::Stochastic).build());
        assert!(LinkLaw::of(&coded, 3).unwrap().only_mean.is_some());
        // An exact codec under a bit budget that sometimes fails is an erasure.
        let carries = BitBudget::new(32.0).with_fading_snr(5.0);
        let link = Uplink::default().with_codec(Arc::new(Exact)).with_media(vec![Arc::new(carries)]);
        let law = LinkLaw::of(&link, 3).unwrap();
        assert!((law.gain - (-3.0f64 / 5.0).exp()).abs() < 1e-15 && law.gain == law.gain_square && law.only_mean.is_none());
    }
    #[test]
    fn noise_of_agents_counts_as_a_receivers_and_clipping_is_not_known() {
        let media: [Arc<dyn fedsa::uplink::stage::LinkStage>; 4] = [
            Arc::new(SentNoise::new(0.3)),
            Arc::new(SentNoise::new(0.4)),
            Arc::new(Erasure::new(0.5)),
            Arc::new(OverTheAir::default().with_gain(Gain::Constant { value: 2.0 }).with_receiver_noise(0.7)),
        ];
        let law = LinkLaw::of(&Uplink::default().with_media(media.to_vec()), 3).unwrap();
        assert!((law.sent_noise - 0.5).abs() < 1e-15 && law.only_mean.is_none() && law.is_noisy() && !law.is_clear());
        // N w = 3 sum p_c h_c e_c + N w_r has the variance 9 (0.25 + 2 / 16) 2 0.25 + 0.49.
        assert!((law.noise_in_mean(&[0.5, 0.25, 0.25]) - (9.0f64 * 0.375 * 0.5 + 0.49).sqrt()).abs() < 1e-14);
        for stage in [&media[0], &media[2]] {
            let link = Uplink::default().with_media(vec![Arc::clone(stage), Arc::new(Clip::new(1e9))]);
            assert!(LinkLaw::of(&link, 3).unwrap_err().what.contains("clip"));
        }
    }
}
