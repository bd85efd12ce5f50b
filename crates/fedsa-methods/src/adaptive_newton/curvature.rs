//! Where curvature comes from: the rule by which [`super`] changes between gradients, the agents' own Newton directions
//! and whole Hessians, from the decrease of the gradient's norm for what travelled.

use std::collections::VecDeque;

/// Where the initial matrix of quasi-Newton directions comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum InitialMatrix {
    /// From nowhere: a multiple of the identity. A round costs an agent 2 vectors.
    Gradients,
    /// From the agents' own Newton directions, as in GIANT. A round costs an agent 4 vectors.
    Agents,
    /// From a whole Hessian, which costs an agent `(d + 1) / 2` vectors once and then 2 vectors a round.
    Hessians,
}

impl InitialMatrix {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Gradients, Self::Agents, Self::Hessians];

    /// Its place in [`InitialMatrix::ALL`].
    pub fn place(self) -> usize {
        self as usize
    }

    /// What a round costs an agent up and down, in vectors of d numbers, without Hessians.
    fn vectors(self) -> f64 {
        match self {
            Self::Gradients | Self::Hessians => 2.0,
            Self::Agents => 4.0,
        }
    }
}

/// A whole Hessian serves for this many nats (factors of e) of the gradient's norm, about: what estimates of its cost assume.
pub const NATS_A_HESSIAN: f64 = 7.0;
/// The nats of a round with a whole Hessian, in estimates.
pub const NATS_A_ROUND: f64 = 1.5;
/// Where the present way is predicted to take more vectors than this, another way that has not been tried is tried.
pub const PATIENCE: f64 = 110.0;
/// The same for a way that was tried before, whose rate is forgotten after so many rounds of another one: near the target it may be another.
const PATIENCE_AGAIN: f64 = 60.0;
const FORGOTTEN: [u64; 3] = [20, 10, u64::MAX];
/// The rounds of a way after which it is judged: gradients are cheaper and slower.
const MIN_ROUNDS: [u64; 3] = [8, 4, 3];
/// The rounds over which a rate is measured.
const WINDOW: [usize; 3] = [12, 6, 2];
const LONGEST_WINDOW: usize = 12;
/// Another way is taken if it is predicted to take less than this share.
const CLEARLY: f64 = 0.8;
/// Hessians are bought where their estimate, times this, is less than what the other ways are predicted to take.
const MARGIN: f64 = 1.2;
/// A Hessian is of no use where what is left is predicted to take more than this times the estimate for new ones.
const STALLED: f64 = 3.0;
/// One that costs no more vectors than this is replaced where a single new one, and rounds with it, are estimated to take clearly less than what is left.
const CHEAP: f64 = 20.0;
/// The vectors for a nat by the agents' own directions, about, whether agents are alike or not; Hessians that are estimated to take no more are asked for at
/// once.
const AGREEING: f64 = 4.0;
/// The vectors for which agents that are alike reach the target without second derivatives that change: they take some 20 rounds.
const AGREEING_QUADRATIC: f64 = 72.0;

/// What the rule knows of a problem before the first round.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PriorKnowledge {
    /// d.
    pub dim: usize,
    /// The norm of the gradient to reach.
    pub tolerance: f64,
    /// Whether Hessians are the same everywhere.
    pub is_quadratic: bool,
    /// The way to begin with.
    pub first: InitialMatrix,
    /// The ways that may be taken, as [`InitialMatrix::ALL`].
    pub may: [bool; 3],
}

impl PriorKnowledge {
    /// What a whole Hessian costs, in vectors.
    fn hessian(&self) -> f64 {
        0.5 * (self.dim as f64 + 1.0)
    }

    /// Whether a whole Hessian is asked for with the first gradient: it serves for good, and costs no more than what agents that agree would take.
    pub fn begins_whole(&self) -> bool {
        let is_first = self.first == InitialMatrix::Hessians || self.by_hessians(0.0) <= AGREEING_QUADRATIC;
        self.is_quadratic && self.may[InitialMatrix::Hessians.place()] && is_first
    }

    /// Whether a whole Hessian comes first, where the gradient's norm is to fall by so many nats.
    pub fn begins_with_hessians(&self, nats: f64) -> bool {
        let may = self.may[InitialMatrix::Hessians.place()];
        self.begins_whole() || !self.is_quadratic && may && self.by_hessians(nats) <= AGREEING * nats
    }

    /// A Hessian is replaced where the way to the target, so many nats, is predicted to take more vectors than this.
    fn useless(&self, nats: f64) -> f64 {
        match self.hessian() <= CHEAP {
            true => MARGIN * (self.hessian() + 2.0 * (nats / NATS_A_ROUND).ceil()),
            false => STALLED * self.by_hessians(nats),
        }
    }

    /// What whole Hessians take until the gradient's norm has fallen by so many nats, in vectors: an estimate.
    pub fn by_hessians(&self, nats: f64) -> f64 {
        let nats = nats.max(0.0);
        if self.is_quadratic {
            return self.hessian() + 4.0;
        }
        self.hessian() * (nats / NATS_A_HESSIAN).ceil() + 2.0 * (nats / NATS_A_ROUND).ceil()
    }
}

/// What the rule asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WayVerdict {
    /// Go on.
    Stay,
    /// Another way.
    Change(InitialMatrix),
    /// A new Hessian.
    Renew,
}

/// Cost and least norm of a gradient before the first round of a way, and after each of its last rounds.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
struct Marks {
    first: (f64, f64),
    /// The last [`LONGEST_WINDOW`] and one, older ones first; all of them where there are fewer.
    last: VecDeque<(f64, f64)>,
    /// How many rounds followed the first mark.
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

    /// The mark of `window` rounds ago, or the first one.
    fn since(&self, window: usize) -> (f64, f64) {
        self.last[self.last.len() - 1 - window.min(self.last.len() - 1)]
    }
}

/// What has been seen of the ways so far. Costs are vectors of d numbers an agent, up and down.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct MatrixChoice {
    /// The present way.
    pub now: InitialMatrix,
    /// The vectors that have travelled.
    cost: f64,
    /// The least norm of a gradient so far.
    best: f64,
    /// Nats a vector of each way when it was last followed.
    rates: [Option<f64>; 3],
    /// How often another way was taken.
    changes: u32,
    /// Since the way was taken or the Hessian was renewed.
    marks: Marks,
}

impl MatrixChoice {
    /// Before the first round.
    pub fn new(first: InitialMatrix) -> Self {
        Self { now: first, cost: 0.0, best: f64::INFINITY, rates: [None; 3], changes: 0, marks: Marks::begin((0.0, f64::INFINITY)) }
    }

    /// An exchange of so many vectors was made.
    pub fn paid(&mut self, vectors: f64) {
        self.cost += vectors;
    }

    /// The first gradient, with this norm: which way to begin with.
    pub fn begin(&mut self, norm: f64, prior: &PriorKnowledge) {
        (self.best, self.now) = (norm, prior.first);
        let nats = (norm / prior.tolerance).ln();
        if prior.begins_with_hessians(nats) {
            self.now = InitialMatrix::Hessians;
        }
        self.marks = Marks::begin((self.cost, norm));
    }

    /// The iterate has moved to a point with a gradient of this norm.
    ///
    /// ```text
    /// rate_w = ln(norm before / norm now) / vectors, over the last rounds of the way w; predicted_w = ln(norm now / target) / rate_w
    /// gradients, agents:  the other one  if its rate is not known (any more) and predicted_w > PATIENCE, or predicted_other < 0.8 predicted_w
    ///                     Hessians       if the best prediction exceeds 1.2 times their estimate and both have been tried
    ///                                    (or the estimate is below 60 vectors, or the objective quadratic)
    /// Hessians:           a new one      if the last two rounds brought less a vector than all since the Hessian, it included,
    ///                                    or the prediction exceeds 3 times the estimate; where one costs up to 20 vectors, 1.2 times one and its rounds
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

    /// The verdict was followed: rounds are counted from here.
    pub fn take(&mut self, way: InitialMatrix) {
        self.changes += u32::from(self.now != way);
        self.now = way;
        self.marks = Marks::begin((self.cost, self.best));
    }

    /// What rounds of the present way cost beside the question and the answer of the gradient.
    pub fn more_vectors(&self) -> f64 {
        self.now.vectors() - 2.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: PriorKnowledge =
        PriorKnowledge { dim: 300, tolerance: 1e-9, is_quadratic: false, first: InitialMatrix::Agents, may: [true; 3] };

    /// Rounds that divide the norm by `factor`, until the rule asks for something: the verdict and the rounds.
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
        // 18.4 nats: at 1 nat a round some 14 rounds remain after the fourth, 58 vectors.
        assert_eq!(follow(&mut choice, &mut norm, 1f64.exp(), &ALL).0, WayVerdict::Stay);
    }

    /// Half a nat a round by the agents: gradients are tried, and kept if they bring more a vector.
    #[test]
    fn agents_that_disagree_are_left_for_what_brings_more() {
        let (mut choice, mut norm) = begun(&ALL);
        assert_eq!(follow(&mut choice, &mut norm, 0.5f64.exp(), &ALL), (WayVerdict::Change(InitialMatrix::Gradients), 4));
        let (mut kept, mut again) = (choice.clone(), norm);
        kept.take(InitialMatrix::Gradients);
        assert_eq!(follow(&mut kept, &mut again, 0.5f64.exp(), &ALL).0, WayVerdict::Stay);
        // A tenth of a nat a round is worse: back.
        choice.take(InitialMatrix::Gradients);
        assert_eq!(follow(&mut choice, &mut norm, 0.1f64.exp(), &ALL), (WayVerdict::Change(InitialMatrix::Agents), 8));
    }

    /// Where both are slow a Hessian of 150 vectors costs less than going on. Without Hessians the other one is tried again.
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
        // A useless one; and one that is worn after a fast beginning: 4 nats for 152.5 vectors, then a hundredth for 2.
        let (mut useless, mut same) = (choice.clone(), norm);
        assert_eq!(follow(&mut useless, &mut same, 1.0001, &ALL), (WayVerdict::Renew, 3));
        for (nats, verdict) in
            [(4.0, WayVerdict::Stay), (4.0, WayVerdict::Stay), (2.0, WayVerdict::Stay), (0.01, WayVerdict::Stay), (0.01, WayVerdict::Renew)]
        {
            choice.paid(2.0);
            norm /= f64::exp(nats);
            assert_eq!(choice.moved(norm, &ALL), verdict, "{nats}");
        }
        // Of a quadratic objective it never is.
        let prior = PriorKnowledge { is_quadratic: true, ..ALL };
        assert_eq!(follow(&mut choice, &mut norm, 1.0001, &prior).0, WayVerdict::Stay);
    }

    /// Half a nat a round for 2 vectors: 17 nats take 68, and a new Hessian of 8.5 with 12 rounds takes 32.5. One of 150.5 vectors is not bought so early.
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

    /// d = 54: 27.5 vectors for all of it, where Hessians are the same everywhere.
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

    /// The marks that decide are those of the whole history.
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
