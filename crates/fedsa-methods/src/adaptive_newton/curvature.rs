//! The rule by which [`super`] switches its source of curvature: gradients, the agents' own Newton directions, or whole Hessians. It
//! compares the decrease of the gradient norm with the traffic.

use std::collections::VecDeque;

/// Source of the initial matrix of quasi-Newton directions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum InitialMatrix {
    /// A multiple of the identity; a round takes 2 vectors per agent.
    Gradients,
    /// The agents' Newton directions, as in GIANT; a round takes 4 vectors per agent.
    Agents,
    /// A whole Hessian; `(d + 1) / 2` vectors per agent once, then 2 per round.
    Hessians,
}

impl InitialMatrix {
    /// All sources.
    pub const ALL: [Self; 3] = [Self::Gradients, Self::Agents, Self::Hessians];

    /// Its index in [`InitialMatrix::ALL`].
    pub fn place(self) -> usize {
        self as usize
    }

    /// The traffic of a round per agent, both ways, in vectors of d numbers, without Hessians.
    fn vectors(self) -> f64 {
        match self {
            Self::Gradients | Self::Hessians => 2.0,
            Self::Agents => 4.0,
        }
    }
}

/// Estimates of costs assume that a whole Hessian serves for about this many nats (factors of e) of the gradient norm.
pub const NATS_A_HESSIAN: f64 = 7.0;
/// Estimates assume this many nats per round with a whole Hessian.
pub const NATS_A_ROUND: f64 = 1.5;
/// If the current source is predicted to take more vectors than this, an untried source is tried.
pub const PATIENCE: f64 = 110.0;
/// The same after the first switch. A source's rate is forgotten after [`FORGOTTEN`] rounds of another source, because it may differ near
/// the target.
const PATIENCE_AGAIN: f64 = 60.0;
const FORGOTTEN: [u64; 3] = [20, 10, u64::MAX];
/// The rounds after which a source is judged; gradients are cheaper and slower.
const MIN_ROUNDS: [u64; 3] = [8, 4, 3];
/// The rounds over which a rate is measured, by source.
const WINDOW: [usize; 3] = [12, 6, 2];
const LONGEST_WINDOW: usize = 12;
/// The rule switches to another source if its prediction is below this share.
const CLEARLY: f64 = 0.8;
/// Hessians are bought if this multiple of their estimate is below the other sources' predictions.
const MARGIN: f64 = 1.2;
/// A Hessian is useless if the predicted rest exceeds this multiple of the estimate for new ones.
const STALLED: f64 = 3.0;
/// A Hessian that costs at most this many vectors is replaced if one new Hessian with its rounds is estimated to take clearly less than the
/// rest.
const CHEAP: f64 = 20.0;
/// The vectors per nat with the agents' directions, roughly, for agreeing agents. If Hessians are estimated to take no more, they are
/// requested at once.
const AGREEING: f64 = 4.0;
/// The vectors with which agreeing agents reach the target of a quadratic objective, in some 20 rounds.
const AGREEING_QUADRATIC: f64 = 72.0;

/// The rule's knowledge of a problem before the first round.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PriorKnowledge {
    /// d.
    pub dim: usize,
    /// The target norm of the gradient.
    pub tolerance: f64,
    /// Whether Hessians are constant.
    pub is_quadratic: bool,
    /// The first source.
    pub first: InitialMatrix,
    /// The allowed sources, in the order of [`InitialMatrix::ALL`].
    pub may: [bool; 3],
}

impl PriorKnowledge {
    /// The cost of a whole Hessian, in vectors.
    fn hessian(&self) -> f64 {
        0.5 * (self.dim as f64 + 1.0)
    }

    /// Whether to request a whole Hessian with the first gradient: it is final, and costs no more than agreeing agents would take.
    pub fn begins_whole(&self) -> bool {
        let is_first = self.first == InitialMatrix::Hessians || self.by_hessians(0.0) <= AGREEING_QUADRATIC;
        self.is_quadratic && self.may[InitialMatrix::Hessians.place()] && is_first
    }

    /// Whether a whole Hessian comes first if the gradient norm must fall by this many nats.
    pub fn begins_with_hessians(&self, nats: f64) -> bool {
        let may = self.may[InitialMatrix::Hessians.place()];
        self.begins_whole() || !self.is_quadratic && may && self.by_hessians(nats) <= AGREEING * nats
    }

    /// A Hessian is replaced if the rest, this many nats, is predicted to take more vectors than this.
    fn useless(&self, nats: f64) -> f64 {
        match self.hessian() <= CHEAP {
            true => MARGIN * (self.hessian() + 2.0 * (nats / NATS_A_ROUND).ceil()),
            false => STALLED * self.by_hessians(nats),
        }
    }

    /// An estimate of the vectors that whole Hessians take until the gradient norm has fallen by this many nats.
    pub fn by_hessians(&self, nats: f64) -> f64 {
        let nats = nats.max(0.0);
        if self.is_quadratic {
            return self.hessian() + 4.0;
        }
        self.hessian() * (nats / NATS_A_HESSIAN).ceil() + 2.0 * (nats / NATS_A_ROUND).ceil()
    }
}

/// The rule's decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WayVerdict {
    /// Keep the source.
    Stay,
    /// Switch to this source.
    Change(InitialMatrix),
    /// Request a new Hessian.
    Renew,
}

/// The cost and the least gradient norm before the first round of a source, and after each of its last rounds.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
struct Marks {
    first: (f64, f64),
    /// The last [`LONGEST_WINDOW`] + 1 marks, oldest first; all marks if there are fewer.
    last: VecDeque<(f64, f64)>,
    /// The number of rounds after the first mark.
    rounds: u64,
}

impl Marks {
    fn begin(mark: (f64, f64)) -> Self {
        Self { first: mark, last: [mark].into(), rounds: 0 }
    }

    fn push(&mut self, mark: (f64, f64)) {
        if self.last.len() > LONGEST_WINDOW {
            self.last.pop_front();
        }
        self.last.push_back(mark);
        self.rounds += 1;
    }

    /// The mark `window` rounds ago, or the first one.
    fn since(&self, window: usize) -> (f64, f64) {
        self.last[self.last.len() - 1 - window.min(self.last.len() - 1)]
    }
}

/// The record of the sources so far. Costs are vectors of d numbers per agent, both ways.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct MatrixChoice {
    /// The current source.
    pub now: InitialMatrix,
    /// The vectors sent so far.
    cost: f64,
    /// The least gradient norm so far.
    best: f64,
    /// The nats per vector of each source when it was last used.
    rates: [Option<f64>; 3],
    /// The number of switches.
    changes: u32,
    /// The marks since the switch to this source, or since the last renewal of the Hessian.
    marks: Marks,
}

impl MatrixChoice {
    /// The record before the first round.
    pub fn new(first: InitialMatrix) -> Self {
        Self { now: first, cost: 0.0, best: f64::INFINITY, rates: [None; 3], changes: 0, marks: Marks::begin((0.0, f64::INFINITY)) }
    }

    /// Counts an exchange of this many vectors.
    pub fn paid(&mut self, vectors: f64) {
        self.cost += vectors;
    }

    /// Chooses the first source, from the norm of the first gradient.
    pub fn begin(&mut self, norm: f64, prior: &PriorKnowledge) {
        (self.best, self.now) = (norm, prior.first);
        let nats = (norm / prior.tolerance).ln();
        if prior.begins_with_hessians(nats) {
            self.now = InitialMatrix::Hessians;
        }
        self.marks = Marks::begin((self.cost, norm));
    }

    /// The iterate has moved to a point with this gradient norm.
    ///
    /// ```text
    /// rate_w = ln(norm before / norm now) / vectors, over the last rounds of source w;  predicted_w = ln(norm now / target) / rate_w
    /// gradients, agents:  the other    if its rate is unknown or forgotten, and predicted_w > PATIENCE,
    ///                                  or if predicted_other < 0.8 predicted_w
    ///                     Hessians     if the best prediction exceeds 1.2 times their estimate, and both have been tried
    ///                                  (or the estimate is below 60 vectors, or the objective is quadratic)
    /// Hessians:           a new one    if the last two rounds brought less per vector than all rounds with the Hessian and its cost,
    ///                                  or if the prediction exceeds 3 times the estimate; for a Hessian of up to 20 vectors,
    ///                                  1.2 times one new Hessian and its rounds
    /// ```
    pub fn moved(&mut self, norm: f64, prior: &PriorKnowledge) -> WayVerdict {
        self.best = self.best.min(norm);
        self.marks.push((self.cost, self.best));
        let (now, rounds) = (self.now, self.marks.rounds);
        let since = self.marks.since(WINDOW[now.place()]);
        let rate = |from: (f64, f64), best: f64, cost: f64| (from.1 / best).ln().max(1e-3) / (cost - from.0).max(1.0);
        let recent = rate(since, self.best, self.cost);
        self.rates[now.place()] = Some(recent);
        let nats = (self.best / prior.tolerance).ln();
        if nats <= 0.0 || rounds < MIN_ROUNDS[now.place()] {
            return WayVerdict::Stay;
        }
        if now == InitialMatrix::Hessians {
            let whole = rate(self.marks.first, self.best, self.cost);
            let is_slow = recent < whole || nats / recent > prior.useless(nats);
            let is_worn = !prior.is_quadratic && is_slow && nats > 1.0;
            return if is_worn { WayVerdict::Renew } else { WayVerdict::Stay };
        }
        let other = if now == InitialMatrix::Agents { InitialMatrix::Gradients } else { InitialMatrix::Agents };
        if rounds >= FORGOTTEN[now.place()] {
            self.rates[other.place()] = None;
        }
        let may = |way: InitialMatrix| prior.may[way.place()];
        let predicted = |way: InitialMatrix| self.rates[way.place()].map(|rate| nats / rate);
        let (here, there) = (predicted(now).unwrap_or(f64::INFINITY), predicted(other).filter(|_| may(other)));
        let by_hessians = prior.by_hessians(nats);
        let least = there.map_or(here, |there| here.min(there));
        if may(InitialMatrix::Hessians)
            && least > MARGIN * by_hessians
            && (there.is_some() || !may(other) || by_hessians < 60.0 || prior.is_quadratic)
        {
            return WayVerdict::Change(InitialMatrix::Hessians);
        }
        let patience = if self.changes == 0 { PATIENCE } else { PATIENCE_AGAIN };
        let is_better = there.map_or(here > patience, |there| there < CLEARLY * here);
        if may(other) && is_better { WayVerdict::Change(other) } else { WayVerdict::Stay }
    }

    /// Applies a switch or a renewal: rounds count from here.
    pub fn take(&mut self, way: InitialMatrix) {
        self.changes += u32::from(self.now != way);
        self.now = way;
        self.marks = Marks::begin((self.cost, self.best));
    }

    /// The vectors of a round of this source, in addition to the gradient's question and answer.
    pub fn more_vectors(&self) -> f64 {
        self.now.vectors() - 2.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: PriorKnowledge =
        PriorKnowledge { dim: 300, tolerance: 1e-9, is_quadratic: false, first: InitialMatrix::Agents, may: [true; 3] };

    /// Makes rounds that divide the norm by `factor`, until the rule decides on a change. Returns the decision and the number of rounds.
    fn follow(choice: &mut MatrixChoice, norm: &mut f64, factor: f64, prior: &PriorKnowledge) -> (WayVerdict, usize) {
        for round in 1..1000 {
            choice.paid(2.0 + choice.more_vectors());
            *norm /= factor;
            let verdict = choice.moved(*norm, prior);
            if verdict != WayVerdict::Stay || *norm <= prior.tolerance {
                return (verdict, round);
            }
        }
        (WayVerdict::Stay, 1000)
    }

    fn begun(prior: &PriorKnowledge) -> (MatrixChoice, f64) {
        let mut choice = MatrixChoice::new(prior.first);
        choice.paid(2.0);
        choice.begin(0.1, prior);
        (choice, 0.1)
    }

    #[test]
    fn agents_that_agree_are_asked_until_the_end() {
        let (mut choice, mut norm) = begun(&ALL);
        // 18.4 nats: at 1 nat per round, some 14 rounds remain after the fourth, 58 vectors.
        assert_eq!(follow(&mut choice, &mut norm, 1f64.exp(), &ALL).0, WayVerdict::Stay);
    }

    /// At half a nat per round with the agents, gradients are tried, and kept if they bring more per vector.
    #[test]
    fn agents_that_disagree_are_left_for_what_brings_more() {
        let (mut choice, mut norm) = begun(&ALL);
        assert_eq!(follow(&mut choice, &mut norm, 0.5f64.exp(), &ALL), (WayVerdict::Change(InitialMatrix::Gradients), 4));
        let (mut kept, mut again) = (choice.clone(), norm);
        kept.take(InitialMatrix::Gradients);
        assert_eq!(follow(&mut kept, &mut again, 0.5f64.exp(), &ALL).0, WayVerdict::Stay);
        // A tenth of a nat per round is worse: switch back.
        choice.take(InitialMatrix::Gradients);
        assert_eq!(follow(&mut choice, &mut norm, 0.1f64.exp(), &ALL), (WayVerdict::Change(InitialMatrix::Agents), 8));
    }

    /// If both are slow, a Hessian of 150 vectors costs less. Without Hessians, the other source is tried again.
    #[test]
    fn hessians_are_bought_where_both_ways_are_dearer() {
        for may_whole in [true, false] {
            let prior = PriorKnowledge { may: [true, true, may_whole], ..ALL };
            let (mut choice, mut norm) = begun(&prior);
            assert_eq!(follow(&mut choice, &mut norm, 0.05f64.exp(), &prior), (WayVerdict::Change(InitialMatrix::Gradients), 4));
            choice.take(InitialMatrix::Gradients);
            let (verdict, _) = follow(&mut choice, &mut norm, 0.03f64.exp(), &prior);
            assert_eq!(
                verdict,
                if may_whole { WayVerdict::Change(InitialMatrix::Hessians) } else { WayVerdict::Change(InitialMatrix::Agents) }
            );
        }
    }

    #[test]
    fn a_hessian_is_renewed_when_rounds_bring_less_than_its_mean() {
        let (mut choice, mut norm) = begun(&ALL);
        choice.paid(150.5);
        choice.take(InitialMatrix::Hessians);
        choice.paid(150.5);
        // A useless Hessian; and one that is worn out after a fast start: 4 nats for 152.5 vectors, then a hundredth for 2.
        let (mut useless, mut same) = (choice.clone(), norm);
        assert_eq!(follow(&mut useless, &mut same, 1.0001, &ALL), (WayVerdict::Renew, 3));
        for (nats, verdict) in
            [(4.0, WayVerdict::Stay), (4.0, WayVerdict::Stay), (2.0, WayVerdict::Stay), (0.01, WayVerdict::Stay), (0.01, WayVerdict::Renew)]
        {
            choice.paid(2.0);
            norm /= f64::exp(nats);
            assert_eq!(choice.moved(norm, &ALL), verdict, "{nats}");
        }
        // For a quadratic objective it never is.
        let prior = PriorKnowledge { is_quadratic: true, ..ALL };
        assert_eq!(follow(&mut choice, &mut norm, 1.0001, &prior).0, WayVerdict::Stay);
    }

    /// Half a nat per round for 2 vectors: 17 nats take 68, and a new Hessian of 8.5 with 12 rounds takes 32.5. A Hessian of 150.5 vectors
    /// is not bought so early.
    #[test]
    fn a_cheap_hessian_is_renewed_early() {
        for (dim, verdict) in [(16, WayVerdict::Renew), (300, WayVerdict::Stay)] {
            let prior = PriorKnowledge { dim, first: InitialMatrix::Hessians, ..ALL };
            let (mut choice, mut norm) = begun(&prior);
            choice.take(InitialMatrix::Hessians);
            choice.paid(prior.hessian());
            for wanted in [WayVerdict::Stay, WayVerdict::Stay, verdict] {
                choice.paid(2.0);
                norm /= 0.5f64.exp();
                assert_eq!(choice.moved(norm, &prior), wanted, "{dim}");
            }
        }
    }

    /// d = 54: 27.5 vectors in all if Hessians are constant.
    #[test]
    fn small_hessians_are_asked_for_at_once() {
        for (dim, is_quadratic, now) in [
            (54, true, InitialMatrix::Hessians),
            (135, true, InitialMatrix::Hessians),
            (136, true, InitialMatrix::Agents),
            (300, true, InitialMatrix::Agents),
            (30, false, InitialMatrix::Hessians),
            (54, false, InitialMatrix::Agents),
        ] {
            assert_eq!(begun(&PriorKnowledge { dim, is_quadratic, ..ALL }).0.now, now);
        }
    }

    /// Pruned marks give the decisions of the whole history.
    #[test]
    fn marks_are_those_of_all_rounds() {
        let mark = |round: u64| (round as f64, 1.0 / (1.0 + round as f64));
        let (mut marks, mut all) = (Marks::begin(mark(0)), vec![mark(0)]);
        for round in 1..40 {
            marks.push(mark(round));
            all.push(mark(round));
            let before = |window: usize| all[all.len() - 1 - window.min(all.len() - 1)];
            assert_eq!((marks.first, marks.rounds), (all[0], round));
            assert!(WINDOW.iter().all(|window| marks.since(*window) == before(*window)));
            assert!(marks.last.len() <= LONGEST_WINDOW + 1);
        }
        assert_eq!(WINDOW.iter().max(), Some(&LONGEST_WINDOW));
    }
}
