//! Root mean square errors with standard errors over episodes.

/// The mean square of an error over the transitions of one or several agents, with the contributions of episodes.
#[derive(Debug, Clone, PartialEq)]
pub struct Errors {
    /// One for each agent.
    pub(super) parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Part {
    /// The number of transitions.
    count: f64,
    mean_square: f64,
    /// The contribution of each episode to the sum of squares, less its share of the mean.
    pub(super) episodes: Vec<f64>,
    /// The mean square of the quantities whose differences are the errors: rewards, values and returns.
    size: f64,
}

/// Errors below this share of that size are roundings, because values are solutions of linear systems.
const ROUNDING: f64 = 1e-9;

impl Errors {
    pub(super) fn new(count: usize, mean_square: f64, episodes: Vec<f64>, size: f64) -> Self {
        Self { parts: vec![Part { count: count as f64, mean_square, episodes, size }] }
    }

    /// The errors of several agents as one: transitions weight the mean squares.
    pub fn of_all<'a>(agents: impl IntoIterator<Item = &'a Self>) -> Self {
        Self { parts: agents.into_iter().flat_map(|errors| errors.parts.iter().cloned()).collect() }
    }

    fn count(&self) -> f64 {
        self.parts.iter().map(|part| part.count).sum()
    }

    /// The mean over transitions of a number of each part; `None` without transitions.
    fn mean(&self, of: impl Fn(&Part) -> f64) -> Option<f64> {
        let sum: f64 = self.parts.iter().map(|part| part.count * of(part)).sum();
        (self.count() > 0.0).then(|| sum / self.count())
    }

    fn mean_square(&self) -> Option<f64> {
        self.mean(|part| part.mean_square)
    }

    /// The root mean square; `None` without transitions.
    pub fn rms(&self) -> Option<f64> {
        self.mean_square().map(|square| square.max(0.0).sqrt())
    }

    /// The root mean square below which errors, and their differences, are roundings.
    pub fn rounding(&self) -> f64 {
        ROUNDING * self.mean(|part| part.size).unwrap_or(0.0).sqrt()
    }

    /// The standard error of the root mean square; `None` with a single episode, or if the error is 0.
    pub fn standard_error(&self) -> Option<f64> {
        let (scale, apart) = (self.scale()?, self.apart());
        self.spread(|part, episode| scale * self.parts[part].episodes[episode], |part| scale * apart(part))
    }

    /// `self.rms() - other.rms()` with its standard error, for two errors on the same episodes.
    pub fn minus(&self, other: &Self) -> (Option<f64>, Option<f64>) {
        let difference = self.rms().zip(other.rms()).map(|(a, b)| a - b);
        let error = self.scale().zip(other.scale()).and_then(|(a, b)| {
            let (mine, others) = (self.apart(), other.apart());
            self.spread(
                |part, episode| a * self.parts[part].episodes[episode] - b * other.parts[part].episodes[episode],
                |part| a * mine(part) - b * others(part),
            )
        });
        (difference, error)
    }

    /// The number of agents with a single episode among agents with more: such an agent has no spread of its own.
    pub fn single_episodes(&self) -> usize {
        if self.parts.len() < 2 { 0 } else { self.parts.iter().filter(|part| part.episodes.len() == 1).count() }
    }

    /// The excess of an agent's sum of squares over the mean of all agents.
    fn apart(&self) -> impl Fn(usize) -> f64 {
        let mean = self.mean_square().unwrap_or(0.0);
        move |part| self.parts[part].count * (self.parts[part].mean_square - mean)
    }

    /// The derivative of the root mean square by the sum of squares.
    fn scale(&self) -> Option<f64> {
        self.rms().filter(|rms| *rms > 0.0).map(|rms| 0.5 / (rms * self.count()))
    }

    /// The standard deviation of a sum of independent contributions of the episodes. A single episode of an agent is compared with the
    /// other agents (`apart`). This difference is larger than between episodes of one agent, so the result is at least the standard
    /// deviation.
    fn spread(&self, contribution: impl Fn(usize, usize) -> f64, apart: impl Fn(usize) -> f64) -> Option<f64> {
        let with_any: Vec<usize> = (0..self.parts.len()).filter(|p| self.parts[*p].count > 0.0).collect();
        let (single, several): (Vec<usize>, Vec<usize>) = with_any.into_iter().partition(|p| self.parts[*p].episodes.len() == 1);
        if several.is_empty() && single.len() < 2 {
            return None;
        }
        let of_several = |p: &usize| {
            let episodes = self.parts[*p].episodes.len();
            (0..episodes).map(|e| contribution(*p, e).powi(2)).sum::<f64>() * unbiased(episodes)
        };
        let of_single: f64 = single.iter().map(|p| apart(*p).powi(2)).sum();
        let variance = several.iter().map(of_several).sum::<f64>() + of_single * unbiased(single.len());
        Some(variance.sqrt()).filter(|x| x.is_finite())
    }
}

/// The factor that makes a sum of squares around a mean of `n` an unbiased estimate of the variance.
fn unbiased(n: usize) -> f64 {
    if n < 2 { 1.0 } else { n as f64 / (n - 1) as f64 }
}
