//! What one pass over an agent's log tells.

/// What one pass over an agent's log tells.
#[derive(Debug, Clone, PartialEq)]
pub struct LogFacts {
    /// The agent's name.
    pub name: String,
    /// The number of transitions.
    pub transitions: usize,
    /// The smallest and the largest value of each column, in states and next states; the next state of a terminal transition
    /// is not counted.
    pub seen: Vec<(f64, f64)>,
    /// Whether all of each column are whole numbers, in states and next states.
    pub whole: Vec<bool>,
    /// Whether a reward is not 0.
    pub has_rewards: bool,
    /// The effective sample size under the importance ratios, if they were logged.
    pub effective_size: Option<f64>,
    /// The mean of the importance ratios, if they were logged; 1 but for chance where they are right.
    pub mean_ratio: Option<f64>,
    /// What clipping has done to the ratios, if they were clipped.
    pub clipping: Option<RatioClipping>,
    /// The number of actions, if they were logged with the probabilities of the policy that is evaluated.
    pub actions: Option<usize>,
    /// The number of transitions of a log without episodes that are cut off from those before them
    /// ([`Log::is_cut_off`](crate::logs::log::Log::is_cut_off)).
    pub cut_off: usize,
    /// Some of the states, for pictures.
    pub sample: StateSample,
}

/// Importance ratios of which those above a level were replaced by the level.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RatioClipping {
    /// The level.
    pub level: f64,
    /// The number of ratios above it.
    pub clipped: usize,
    /// The mean ratio before. That after it is [`LogFacts::mean_ratio`]; what it falls by is the weight that is lost, and with it comes a bias.
    pub mean_before: f64,
    /// The effective sample size before.
    pub effective_before: f64,
}

/// Every so many states of a log.
#[derive(Debug, Clone, PartialEq)]
pub struct StateSample {
    columns: usize,
    states: Vec<f64>,
    /// A power of two.
    stride: usize,
    count: usize,
    /// The largest number of states, which is even.
    most: usize,
}

impl StateSample {
    /// No states yet.
    pub fn new(columns: usize) -> Self {
        const NUMBERS: usize = 1 << 14;
        let most = (NUMBERS / columns.max(1)).clamp(1 << 6, 1 << 13) & !1;
        Self { columns, states: Vec::new(), stride: 1, count: 0, most }
    }

    /// Takes the next state.
    pub fn see(&mut self, state: &[f64]) {
        if self.count.is_multiple_of(self.stride) {
            if self.states.len() == self.most * self.columns {
                self.thin();
            }
            self.states.extend(state);
        }
        self.count += 1;
    }

    /// Leaves out every other state.
    fn thin(&mut self) {
        self.stride *= 2;
        self.states = self.states.chunks_exact(self.columns).step_by(2).flatten().copied().collect();
    }

    /// The states, and how many there are in the log for each of them, for several logs at once: an equal share of every log.
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
