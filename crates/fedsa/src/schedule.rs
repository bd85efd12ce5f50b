//! Step sizes and the number of local steps of each round.

pub mod renewal;

use std::ops::Range;

use rand_distr::{Distribution, Geometric};
use serde::{Deserialize, Serialize};

use crate::error::{Result, require};
use crate::random::{ALL, Purpose, stream};
use crate::settings::choice;

/// The step size.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum StepSize {
    /// Constant.
    Constant(#[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))] f64),
    /// `c / (t + t0)^power`.
    Decaying(Decay),
}

impl From<f64> for StepSize {
    /// The same step size always.
    fn from(eta: f64) -> Self {
        StepSize::Constant(eta)
    }
}

choice!(StepSize, "a positive number, or { c = .., t0 = .., power = .., per = \"round\" or \"step\" }",
    number f64 => |eta| Ok(StepSize::Constant(eta)),
    table Decay => |decay| Ok(StepSize::Decaying(decay)),
);

/// `c / (t + t0)^power`, t the round or local step.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Decay {
    /// Numerator.
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))]
    pub c: f64,
    /// Offset; the first size is `c / t0^power`.
    #[serde(default = "one")]
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))]
    pub t0: f64,
    /// Exponent; 1 in \[F\] Corollary 1.
    #[serde(default = "one")]
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub power: f64,
    /// The unit of t.
    #[serde(default)]
    pub per: Per,
}

impl Decay {
    /// `c / (t + 1)`, t the index of the round.
    pub fn new(c: f64) -> Self {
        Self { c, t0: 1.0, power: 1.0, per: Per::Round }
    }
}

crate::settings::setters! { Decay {
    with_t0(t0: f64) = t0;
    with_power(power: f64) = power;
    with_per(per: Per) = per;
} }

/// The unit of t in a decaying step size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Per {
    /// Rounds: one size per round.
    #[default]
    Round,
    /// Local steps, `t H + h`.
    Step,
}

fn one() -> f64 {
    1.0
}

impl StepSize {
    /// # Errors
    /// When a step size is not positive and finite.
    pub fn check(&self) -> Result<()> {
        match self {
            StepSize::Constant(eta) => require(*eta > 0.0 && eta.is_finite(), "step_size", eta, "a positive number"),
            StepSize::Decaying(d) => {
                require(d.c > 0.0 && d.c.is_finite(), "step_size.c", d.c, "a positive number")?;
                require(d.t0 > 0.0 && d.t0.is_finite(), "step_size.t0", d.t0, "a positive number")?;
                require(d.power >= 0.0 && d.power.is_finite(), "step_size.power", d.power, "at least 0")?;
                let (first, raw) = (d.at(0), d.c / d.t0.powf(d.power));
                require(raw > 0.0 && first.is_finite(), "step_size", format!("c / t0^power = {raw}"), "a positive first step size")
            }
        }
    }

    /// The step size, if it is constant.
    pub fn constant(&self) -> Option<f64> {
        match self {
            StepSize::Constant(eta) => Some(*eta),
            StepSize::Decaying(_) => None,
        }
    }

    /// The largest step size: the first.
    pub fn largest(&self) -> f64 {
        match self {
            StepSize::Constant(eta) => *eta,
            StepSize::Decaying(d) => d.at(0),
        }
    }
}

impl Decay {
    /// At least the smallest normal number: directions are divided by the sum of step sizes.
    fn at(&self, t: u64) -> f64 {
        (self.c / (t as f64 + self.t0).powf(self.power)).max(f64::MIN_POSITIVE)
    }
}

/// The number of local steps of a round.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LocalSteps {
    /// H.
    Fixed(usize),
    /// Geometric: after each step all agents communicate with the same probability, by a shared draw.
    Geometric {
        /// The probability p of communicating after a step.
        talk: f64,
        /// The run's seed. The key of the draw names no agent.
        seed: u64,
    },
}

/// The step sizes of every round, known to both halves of a method.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepSchedule {
    /// The step size.
    pub size: StepSize,
    /// The number of local steps.
    pub local: LocalSteps,
}

/// The local steps of one round.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LocalPhase {
    /// H.
    pub len: usize,
    /// `E`, the sum of the step sizes.
    pub sum: f64,
    eta: f64,
    decay: Option<(Decay, u64)>,
}

impl StepSchedule {
    /// The local steps of round t.
    #[inline]
    pub fn of(&self, t: u64) -> LocalPhase {
        match (self.local, self.size) {
            (LocalSteps::Fixed(len), StepSize::Constant(eta)) => LocalPhase { len, sum: eta * len as f64, eta, decay: None },
            _ => self.varying(t),
        }
    }

    /// The sum of round t's step sizes, times `t + 1`: a scale for the total of `t + 1` rounds. With a constant step size and fixed H it is
    /// the sum of all step sizes.
    pub fn scale_of_all(&self, t: u64) -> f64 {
        self.of(t).sum * (t + 1) as f64
    }

    /// [`StepSchedule::of`] for schedules whose rounds differ.
    fn varying(&self, t: u64) -> LocalPhase {
        let len = match self.local {
            LocalSteps::Fixed(h) => h,
            LocalSteps::Geometric { talk, seed } => {
                let failures = Geometric::new(talk).expect("checked: p in (0, 1]").sample(&mut stream(seed, Purpose::Coin, t, ALL));
                usize::try_from(failures + 1).expect("a number of steps")
            }
        };
        let flat = |eta: f64| LocalPhase { len, sum: eta * len as f64, eta, decay: None };
        match self.size {
            StepSize::Constant(eta) => flat(eta),
            StepSize::Decaying(d) if d.per == Per::Round => flat(d.at(t)),
            StepSize::Decaying(d) => {
                let first = t * len as u64;
                let sum = (first..first + len as u64).map(|k| d.at(k)).sum();
                LocalPhase { len, sum, eta: 0.0, decay: Some((d, first)) }
            }
        }
    }
}

impl LocalPhase {
    /// The size of all steps, if they share one.
    #[inline]
    pub fn constant(&self) -> Option<f64> {
        self.decay.is_none().then_some(self.eta)
    }

    /// The local phase of step h alone.
    pub fn step(&self, h: usize) -> LocalPhase {
        let eta = self.decay.map_or(self.eta, |(d, first)| d.at(first + h as u64));
        LocalPhase { len: 1, sum: eta, eta, decay: None }
    }

    /// The step sizes of some of the steps, in order; `steps` lies within `0..len`.
    #[inline]
    pub fn fill(&self, steps: Range<usize>, etas: &mut Vec<f64>) {
        etas.clear();
        match self.decay {
            None => etas.resize(steps.len(), self.eta),
            Some((d, first)) => etas.extend(steps.map(|h| d.at(first + h as u64))),
        }
    }
}
