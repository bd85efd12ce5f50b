//! Facts from one pass over an agent's log.

/// Facts from one pass over an agent's log.
#[derive(Debug, Clone, PartialEq)]
pub struct LogFacts {
    /// The agent's name.
    pub name: String,
    /// The number of transitions.
    pub transitions: usize,
    /// The smallest and the largest value of each column, in states and next states, without the next states of terminal transitions.
    pub seen: Vec<(f64, f64)>,
    /// Whether each column has whole numbers only, in states and next states.
    pub whole: Vec<bool>,
    /// Whether any reward is not 0.
    pub has_rewards: bool,
    /// The effective sample size under the importance ratios, if logged.
    pub effective_size: Option<f64>,
    /// The mean importance ratio, if logged; right ratios have the mean 1 up to chance.
    pub mean_ratio: Option<f64>,
    /// The effect of clipping on the ratios, if they were clipped.
    pub clipping: Option<RatioClipping>,
    /// The number of actions, if logged with the evaluated policy's probabilities.
    pub actions: Option<usize>,
    /// In a log without episodes, the number of transitions that are cut off from the previous one
    /// ([`Log::is_cut_off`](crate::logs::log::Log::is_cut_off)).
    pub cut_off: usize,
    /// Some of the states, for figures.
    pub sample: StateSample,
}

/// Importance ratios clipped at a level.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RatioClipping {
    /// The level.
    pub level: f64,
    /// The number of ratios above it.
    pub clipped: usize,
    /// The mean ratio before clipping; [`LogFacts::mean_ratio`] is the mean after it. The difference is lost weight, a bias.
    pub mean_before: f64,
    /// The effective sample size before clipping.
    pub effective_before: f64,
}

/// Every `stride`-th state of a log.
#[derive(Debug, Clone, PartialEq)]
pub struct StateSample {
    columns: usize,
    states: Vec<f64>,
    /// A power of two.
    stride: usize,
    count: usize,
    /// The largest number of states; even.
    most: usize,
}

impl StateSample {
    /// No states yet.
    pub fn new(columns: usize) -> Self {
        const NUMBERS: usize = 1 << 14;
        let most = (NUMBERS / columns.max(1)).clamp(1 << 6, 1 << 13) & !1;
        Self { columns, states: Vec::new(), stride: 1, count: 0, most }
    }

    /// Adds the next state.
    pub fn see(&mut self, state: &[f64]) {
        if self.count.is_multiple_of(self.stride) {
            if self.states.len() == self.most * self.columns {
                self.thin();
            }
            self.states.extend(state);
        }
        self.count += 1;
    }

    /// Drops every other state.
    fn thin(&mut self) {
        self.stride *= 2;
        self.states = self.states.chunks_exact(self.columns).step_by(2).flatten().copied().collect();
    }

    /// An equal share of the states of several logs, and how many states of the logs each represents.
    pub fn even(samples: &[&Self]) -> (Vec<f64>, usize) {
        let stride = samples.iter().map(|sample| sample.stride).max().unwrap_or(1);
        let mut all = Vec::new();
        for sample in samples {
            let mut sample = (*sample).clone();
            while sample.stride < stride {
                sample.thin();
            }
            all.extend(sample.states);
        }
        (all, stride)
    }
}
