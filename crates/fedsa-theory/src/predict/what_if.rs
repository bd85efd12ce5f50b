//! The same method with one setting changed, for comparisons.

use std::sync::Arc;

use super::{Forecast, unknown};
use crate::link::LinkLaw;
use fedsa::error::Result;
use fedsa::method::{ControlRule, Drift, MethodShape, MissingUpdate};
use fedsa::problem::law::NoiseLaw;
use fedsa::problem::systems::Systems;
use fedsa::sampling::{Law, Sampling};
use fedsa::schedule::StepSize;

/// Twice the agents: each has a twin with the same operator, and both have half of its weight.
#[must_use]
pub fn twins(systems: &Systems) -> Systems {
    let half: Vec<f64> = systems.weights.iter().map(|p| 0.5 * p).collect();
    Systems::new(systems.kinds.clone(), systems.kind_of.repeat(2), half.repeat(2))
}

impl Forecast {
    /// The same forecast with another step size.
    #[must_use]
    pub fn with_step(self, eta: f64) -> Self {
        Self { shape: MethodShape { step_size: StepSize::Constant(eta), ..self.shape }, ..self }
    }

    /// The same forecast of one copy of theta, with steps of this multiple if they are constant.
    #[must_use]
    pub(super) fn with_steps_times(self, factor: f64) -> Self {
        let of = match self.shape.step_size {
            StepSize::Constant(eta) if factor != 1.0 => self.with_step(factor * eta),
            _ => self,
        };
        Self { copies: None, ..of }
    }

    /// The largest multiple of the step that a copy of theta has.
    pub(super) fn largest_factor(&self) -> f64 {
        self.copies.map_or(1.0, |rule| rule.steps().iter().copied().fold(1.0, f64::max))
    }

    /// Rejects combinations of copies of theta with other steps.
    pub(super) fn of_one_copy(&self) -> Result<()> {
        if self.largest_factor() == 1.0 { Ok(()) } else { Err(unknown("the course of a combination of copies")) }
    }

    /// The same forecast with another number of local steps; with random talk, another mean number.
    #[must_use]
    pub fn with_local_steps(self, h: u64) -> Self {
        let drift = match self.shape.drift {
            Drift::ControlVariate { talk: Some(_) } => Drift::ControlVariate { talk: Some(1.0 / h as f64) },
            other => other,
        };
        Self { shape: MethodShape { local_steps: h as f64, drift, ..self.shape }, ..self }
    }

    /// The same forecast with the drift of another method.
    #[must_use]
    pub fn with_drift(self, drift: Drift) -> Self {
        Self { shape: MethodShape { drift, ..self.shape }, ..self }
    }

    /// The same forecast with samples drawn in another way.
    #[must_use]
    pub fn with_sampling(self, sampling: Sampling) -> Self {
        Self { sampling, ..self }
    }

    /// The same forecast with all agents in every round.
    #[must_use]
    pub fn with_all_agents(self) -> Self {
        Self { shape: MethodShape { participants: None, ..self.shape }, ..self }
    }

    /// The same forecast for the [`twins`] of the field's agents. Twice as many agents participate.
    #[must_use]
    pub fn with_twins(self, twins: &Arc<Systems>) -> Self {
        let participants = self.shape.participants.map(|m| 2 * m);
        Self { others: Some(Arc::clone(twins)), shape: MethodShape { participants, ..self.shape }, ..self }
    }

    /// The same forecast over another link.
    #[must_use]
    pub fn with_link(self, law: LinkLaw) -> Self {
        let lost = if law.delivers() { MissingUpdate::Zero } else { self.lost };
        Self { link: Arc::new(Ok(law)), lost, ..self }
    }

    /// The same forecast where the server gets the mean of an exchange with noise of this variance in each component, besides that of the
    /// link: a private release. Control variates are made afresh.
    ///
    /// # Errors
    /// When the link's effect on the mean of a round is not known.
    pub fn with_release_noise(self, variance: f64) -> Result<Self> {
        let mut law = self.link()?.clone();
        let asked = self.shape.participants.map_or(self.agents(), |m| m.min(self.agents()));
        law.receiver_noise = law.receiver_noise.hypot(asked as f64 * variance.sqrt());
        let controls = matches!(self.shape.drift, Drift::ControlVariate { .. });
        let lost = if controls { MissingUpdate::Controls(ControlRule::Afresh) } else { self.lost };
        Ok(Self { link: Arc::new(Ok(law)), lost, ..self })
    }

    /// The variance of the noise in each component of the mean of an exchange, from private releases or at a receiver.
    ///
    /// # Errors
    /// As [`Forecast::with_release_noise`].
    pub fn release_noise(&self) -> Result<f64> {
        let asked = self.shape.participants.map_or(self.agents(), |m| m.min(self.agents()));
        Ok((self.link()?.receiver_noise / asked as f64).powi(2))
    }

    /// The same forecast over a clear link.
    #[must_use]
    pub fn over_clear_link(self) -> Self {
        self.with_link(LinkLaw::clear())
    }

    /// The number of local steps H, with random talk their mean; 0 for methods without local steps.
    pub fn local_steps(&self) -> f64 {
        self.shape.local_steps
    }

    /// The step size.
    ///
    /// # Errors
    /// When it varies.
    pub fn step_size(&self) -> Result<f64> {
        match self.shape.step_size {
            StepSize::Constant(eta) => Ok(eta),
            _ => Err(unknown("the step size varies")),
        }
    }

    /// Theory's view of the method.
    pub fn shape(&self) -> &MethodShape {
        &self.shape
    }

    /// How samples are drawn.
    pub fn sampling(&self) -> Sampling {
        self.sampling
    }

    /// The number of agents.
    pub(crate) fn agents(&self) -> usize {
        self.others.as_ref().map_or_else(|| self.field.agents(), |systems| systems.weights.len())
    }

    /// The agents' systems.
    pub(super) fn systems(&self) -> Option<&Systems> {
        self.others.as_deref().or_else(|| self.field.systems())
    }

    /// The law of additive noise: one for all agents, or one for each.
    pub(super) fn additive_noise(&self) -> Option<Vec<NoiseLaw>> {
        let laws = self.field.facts().additive_noise()?;
        let each = laws.len() > 1 && laws.len() < self.agents();
        Some(if each { [&laws[..], &laws[..]].concat() } else { laws })
    }

    /// Whether samples are random.
    pub(super) fn is_sampled(&self) -> bool {
        self.sampling.kind != Law::Mean
    }
}
