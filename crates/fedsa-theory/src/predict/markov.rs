//! Predictions under Markov samples of finite chains: the choice among the computations in [`crate::markov`].
//!
//! All need full participation, a clear link and the server step 1. A computation is used only if its work is small enough, so that
//! predictions for a file with many points take seconds.

use super::noise::{NoiseSource, rule_of};
use super::round::Round;
use super::{EXACT_DIM, Forecast, PredictedFloor, takes_too_long, unknown};
use crate::exact_mse::{InitialControls, MeanSquare};
use crate::map::DENSE;
use crate::markov::closure::{self, Closure};
use crate::markov::joint::{self, Joint};
use crate::markov::leading_order::LeadingOrder;
use crate::markov::one_agent::OneAgent;
use crate::markov::{AgentClass, MarkovAgent, MarkovFloor, MarkovRule};
use crate::{Accuracy, RoundSetting, work};
use fedsa::error::{Error, Result};
use fedsa::linalg;
use fedsa::method::Drift;
use fedsa::sampling::ChainStart;

/// The most multiplications for a floor or a curve: some seconds.
const MAX_WORK: f64 = 5e9;
/// The most unknowns of the joint chain of several agents.
const JOINT_UNKNOWNS: usize = 20_000;
const CLOSURE_UNKNOWNS: usize = 300_000;
/// The most numbers in the moves of all distinct agents.
const MAX_NUMBERS: f64 = 4e6;
/// The number of products of a round's map with a vector in an iterative solution.
const PRODUCTS: f64 = 200.0;

/// Almost every floor takes at least this many rounds of the map of second moments.
const FEWEST: f64 = 80.0;

/// The computation of a floor.
enum Way {
    /// The chain of one agent.
    OneAgent,
    /// The joint chain of all agents.
    Joint,
    Closure,
}

impl Way {
    /// The accuracy of its result.
    fn accuracy(&self, classes: &[AgentClass], setting: &RoundSetting, rule: MarkovRule) -> Result<Accuracy> {
        match self {
            Way::Closure => Ok(of_closure(closure::eps_squared(classes, setting, rule)?)),
            Way::OneAgent | Way::Joint => Ok(Accuracy::Exact),
        }
    }
}

/// The accuracy of a closure's floor. The neglected terms have the factor `eps^2`: the floor is exact if this is 0 to rounding. That is
/// so if the agents' matrices are not random (any method), or if the states of a chain are independent (samples of states; FedLSA and
/// SCAFFLSA).
fn of_closure(eps_squared: f64) -> Accuracy {
    if eps_squared <= f64::EPSILON { Accuracy::Exact } else { Accuracy::Closure { eps_squared } }
}

/// Leading-order facts about a floor under Markov samples.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct MarkovExplanation {
    /// The noise relative to independent samples of the same law, both to leading order.
    pub noise_over_iid: f64,
    /// The share of the squared bias in the floor.
    pub bias_share: f64,
}

/// The cost of a prediction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PredictionCost {
    /// Memory, in bytes.
    pub bytes: f64,
    /// Multiplications, about one per nanosecond.
    pub multiplications: f64,
}

impl Forecast {
    /// Checks that samples come from finite chains, and that all agents participate over a clear link.
    pub(super) fn chains_known(&self, round: &Round<'_>) -> Result<()> {
        if round.few.is_some() {
            return Err(unknown("samples are not i.i.d., and not all agents participate"));
        }
        if !round.link.is_clear() || round.link.delay.is_some() {
            return Err(unknown("samples are not i.i.d., and the link changes, loses or delays messages"));
        }
        if round.setting.server_step != 1.0 {
            return Err(unknown("samples are not i.i.d., and the server's step is not 1"));
        }
        let d = self.field.dim();
        if d > EXACT_DIM {
            return Err(unknown(&format!("more than {EXACT_DIM} features")));
        }
        let (facts, kinds) = (self.field.facts(), round.systems.kinds.len());
        let mut numbers = 0.0;
        for kind in 0..kinds {
            let law = facts.law(kind).filter(|law| law.chain().is_some());
            let Some(law) = law else { return Err(unknown("samples are not i.i.d., and follow no known finite chain alone")) };
            numbers += law.mass().len() as f64 * (d * d + d) as f64;
            if numbers > MAX_NUMBERS {
                let what = format!("the second moments along the chains of {kinds} distinct agents");
                return Err(takes_too_long(&what, "fewer distinct agents, samples, states or features"));
            }
        }
        Ok(())
    }

    /// The agents' chains: agents of the same kind and weight are exchangeable.
    fn classes(&self, round: &Round<'_>) -> Result<Vec<AgentClass>> {
        let root = round.systems.root()?;
        let mut classes: Vec<(u32, f64, AgentClass)> = Vec::new();
        for (kind, weight) in round.systems.kind_of.iter().zip(&round.systems.weights) {
            work::check()?;
            if let Some((.., class)) = classes.iter_mut().find(|(k, p, _)| (k, p) == (kind, weight)) {
                class.count += 1;
                continue;
            }
            let law = self.field.facts().law(*kind as usize).ok_or_else(|| unknown("the law of samples"))?;
            let agent = MarkovAgent::new(&law, *weight, &root)?;
            classes.push((*kind, *weight, AgentClass { agent, count: 1 }));
        }
        Ok(classes.into_iter().map(|(.., class)| class).collect())
    }

    /// The chain of the only agent, if its floor is not too large.
    pub(super) fn one_agent(&self, round: &Round<'_>) -> Result<MarkovAgent> {
        let class = self.classes(round)?.pop().expect("one agent");
        let d = round.systems.dim() as f64;
        // A long chain without random moves has no floor here, but a curve.
        let products = if class.agent.is_deterministic() { 2.0 } else { PRODUCTS };
        if products * 2.0 * class.agent.moves.len() as f64 * d.powi(3) * self.batch() as f64 > MAX_WORK {
            let what = format!("the second moments of {d} features for each of {} states", class.agent.states);
            return Err(takes_too_long(&what, "fewer states or features, or smaller batches"));
        }
        Ok(class.agent)
    }

    /// The computation that can give the floor, and the agents' chains. Floors assume chains in their stationary laws; chains that
    /// start elsewhere reach these laws only if they are aperiodic.
    fn way(&self, round: &Round<'_>, rule: MarkovRule) -> Result<(Way, Vec<AgentClass>)> {
        let (way, classes) = self.way_from_anywhere(round, rule)?;
        if self.sampling.start != ChainStart::Stationary && any_periodic(&classes) {
            return Err(unknown("a chain is periodic and does not start in its stationary law"));
        }
        Ok((way, classes))
    }

    fn way_from_anywhere(&self, round: &Round<'_>, rule: MarkovRule) -> Result<(Way, Vec<AgentClass>)> {
        if self.agents() == 1 {
            return Ok((Way::OneAgent, vec![AgentClass { agent: self.one_agent(round)?, count: 1 }]));
        }
        let (classes, setting) = (self.classes(round)?, &round.setting);
        let unknowns = joint::unknowns(&classes, rule);
        if unknowns <= JOINT_UNKNOWNS && self.joint_work(round, rule, &classes) <= MAX_WORK {
            return Ok((Way::Joint, classes));
        }
        if self.batch() > 1 {
            return Err(unknown("the mean-square error of many agents under Markov samples in batches"));
        }
        // No eigenvalues for a periodic chain, such as a replayed log.
        if any_periodic(&classes) {
            return Err(unknown("a chain is periodic, and the closure for many agents needs aperiodic ones"));
        }
        let work = Closure::work(&classes, setting, rule);
        if work > MAX_WORK || Closure::unknowns(&classes, rule) > CLOSURE_UNKNOWNS {
            let what = format!("the closure for {} agents with {} features ({work:.0e} multiplications)", self.agents(), self.field.dim());
            return Err(takes_too_long(&what, "fewer agents, states or features, or fewer local steps"));
        }
        Ok((Way::Closure, classes))
    }

    /// Multiplications for the floor by the joint chain of all agents.
    fn joint_work(&self, round: &Round<'_>, rule: MarkovRule, classes: &[AgentClass]) -> f64 {
        let updates: f64 = classes.iter().map(|c| c.count as f64 * c.agent.moves.len() as f64 / c.agent.states as f64).sum();
        let d = round.systems.dim() as f64 * if rule == MarkovRule::Scafflsa { self.agents() as f64 } else { 1.0 };
        PRODUCTS * joint::unknowns(classes, rule) as f64 * updates * round.setting.local_steps as f64 * self.batch() as f64 * d
    }

    /// The memory and the work for the floor under additive noise or Markov samples; `None` where the floor comes from other
    /// recursions.
    pub fn cost_of_noise(&self) -> Option<PredictionCost> {
        let (round, source) = self.floor_known().ok()?;
        let d = round.systems.dim() as f64;
        match source {
            NoiseSource::Additive(laws) => {
                let parts = laws.len().max(round.systems.kinds.len()) as f64;
                let state =
                    if matches!(self.shape.drift, Drift::ControlVariate { .. }) { d * (round.systems.kinds.len() as f64 + 1.0) } else { d };
                let doublings = (round.setting.local_steps as f64).log2() + 2.0;
                let multiplications = parts * doublings * 6.0 * (2.0 * d).powi(3) + 60.0 * state.min(250.0).powi(3);
                Some(PredictionCost { bytes: 8.0 * (parts * 40.0 * d * d + 80.0 * state.min(250.0).powi(2)), multiplications })
            }
            NoiseSource::Chains(rule) => {
                let (way, classes) = self.way(&round, rule).ok()?;
                let numbers: f64 = classes.iter().map(|class| class.agent.moves.len() as f64 * (d * d + d)).sum();
                let (unknowns, multiplications) = match way {
                    Way::OneAgent => {
                        let unknowns = OneAgent::unknowns(&classes[0].agent);
                        (unknowns, PRODUCTS * 2.0 * classes[0].agent.moves.len() as f64 * d.powi(3) * self.batch() as f64)
                    }
                    Way::Joint => (joint::unknowns(&classes, rule), self.joint_work(&round, rule, &classes)),
                    Way::Closure => (Closure::unknowns(&classes, rule), Closure::work(&classes, &round.setting, rule)),
                };
                Some(PredictionCost { bytes: 8.0 * (1.2 * PRODUCTS * unknowns as f64 + 2.0 * numbers), multiplications })
            }
            _ => None,
        }
    }

    /// Checks that one of the computations applies.
    pub(super) fn chains_floor_way(&self, round: &Round<'_>, rule: MarkovRule) -> Result<()> {
        let (way, classes) = self.way(round, rule)?;
        if matches!(way, Way::OneAgent) { settles(&classes[0].agent) } else { Ok(()) }
    }

    /// The floor, if the remaining work is likely to suffice. It takes some hundred rounds of the map, more near the edge of stability
    /// and for small steps.
    pub(super) fn chains_floor(&self, round: &Round<'_>, rule: MarkovRule) -> Result<PredictedFloor> {
        let (way, classes) = self.way(round, rule)?;
        let setting = &round.setting;
        let affordable = |least: f64| {
            if least <= work::left() {
                return Ok(());
            }
            let what = format!("the mean-square error under Markov samples (at least {least:.0e} multiplications)");
            Err(takes_too_long(&what, "fewer agents, states, features, local steps or samples a step"))
        };
        let (floor, accuracy) = match way {
            Way::OneAgent => {
                let of = OneAgent::new(&classes[0].agent, setting.step_size, self.batch())?;
                affordable(FEWEST * of.work())?;
                (of.floor()?, Accuracy::Exact)
            }
            Way::Joint => {
                let of = Joint::new(&classes, setting, rule, self.batch())?;
                affordable(FEWEST * of.work())?;
                (of.floor()?, Accuracy::Exact)
            }
            Way::Closure => {
                affordable(0.5 * Closure::work(&classes, setting, rule))?;
                let of = Closure::new(&classes, setting, rule)?;
                (of.floor()?, of_closure(of.eps_squared()))
            }
        };
        Ok(PredictedFloor { value: mean_square(floor), accuracy })
    }

    pub(super) fn chains_floor_accuracy(&self, round: &Round<'_>, rule: MarkovRule) -> Result<Accuracy> {
        let (way, classes) = self.way(round, rule)?;
        way.accuracy(&classes, &round.setting, rule)
    }

    /// The computation of the curve.
    fn curve_way(&self, round: &Round<'_>, rule: MarkovRule) -> Result<(Way, Vec<AgentClass>)> {
        let (way, classes) = self.way(round, rule)?;
        if matches!(way, Way::Closure) && self.sampling.start != ChainStart::Stationary {
            return Err(unknown("the mean-square error of many agents' chains that do not start in their stationary laws"));
        }
        Ok((way, classes))
    }

    pub(super) fn chains_curve_known(&self, round: &Round<'_>, rule: MarkovRule) -> Result<()> {
        self.curve_way(round, rule).map(|_| ())
    }

    pub(super) fn chains_curve_affordable(&self, round: &Round<'_>, rule: MarkovRule, last: u64) -> Result<()> {
        if self.chains_curve_work(round, rule, last)? > MAX_WORK { Err(long_curve(last)) } else { Ok(()) }
    }

    pub(super) fn chains_curve_work(&self, round: &Round<'_>, rule: MarkovRule, last: u64) -> Result<f64> {
        let (way, classes) = self.curve_way(round, rule)?;
        // As floats, because the product of large settings does not fit into an integer.
        let samples = last as f64 * round.setting.local_steps as f64 * self.batch() as f64;
        Ok(match way {
            Way::OneAgent => 2.0 * samples * classes[0].agent.moves.len() as f64 * (round.systems.dim() as f64).powi(3),
            Way::Joint => {
                let updates: f64 = classes.iter().map(|c| c.count as f64 * c.agent.moves.len() as f64 / c.agent.states as f64).sum();
                samples * joint::unknowns(&classes, rule) as f64 * updates * round.systems.dim() as f64
            }
            Way::Closure => Closure::curve_work(&classes, &round.setting, rule, last),
        })
    }

    pub(super) fn chains_curve_accuracy(&self, round: &Round<'_>, rule: MarkovRule) -> Result<Accuracy> {
        let (way, classes) = self.curve_way(round, rule)?;
        way.accuracy(&classes, &round.setting, rule)
    }

    pub(super) fn chains_curve(
        &self,
        round: &Round<'_>,
        rule: MarkovRule,
        theta_0: &[f64],
        controls: &InitialControls,
        rounds: &[u64],
    ) -> Result<Vec<MeanSquare>> {
        let (way, classes) = self.curve_way(round, rule)?;
        // Classes order the agents differently, and these controls are in the order of the problem.
        if rule == MarkovRule::Scafflsa && matches!(controls, InitialControls::Given(_)) {
            return Err(unknown("the mean-square error under Markov samples from given control variates"));
        }
        let (setting, start) = (&round.setting, self.sampling.start);
        let offset: Vec<f64> = theta_0.iter().zip(round.systems.root()?).map(|(x, r)| x - r).collect();
        let floors = match way {
            Way::OneAgent => {
                let steps_to = |t: &u64| t.checked_mul(setting.local_steps).ok_or_else(|| long_curve(*t));
                let steps: Vec<u64> = rounds.iter().map(steps_to).collect::<Result<_>>()?;
                OneAgent::new(&classes[0].agent, setting.step_size, self.batch())?.curve(&offset, start, &steps)?
            }
            Way::Joint => Joint::new(&classes, setting, rule, self.batch())?.curve(&offset, controls, start, rounds)?,
            Way::Closure => {
                if rule == MarkovRule::Scafflsa && *controls != InitialControls::Zero {
                    return Err(unknown("the closure's curve of control variates that do not start at 0"));
                }
                Closure::new(&classes, setting, rule)?.curve(&offset, rounds)?
            }
        };
        Ok(floors.into_iter().map(mean_square).collect())
    }

    /// The agents' chains, if the leading order is known.
    fn leading_order(&self) -> Result<(LeadingOrder, f64)> {
        self.of_last()?;
        let round = self.linear()?;
        let rule = rule_of(self.drift_of_theta(&round))?;
        if !self.is_chain() {
            return Err(unknown("leading order, other than under Markov samples of finite chains"));
        }
        self.chains_known(&round)?;
        if self.batch() > 1 {
            return Err(unknown("leading order for batches of Markov samples"));
        }
        let classes = self.classes(&round)?;
        let work: f64 = classes.iter().map(|class| (class.agent.states as f64).powi(3)).sum();
        if work > MAX_WORK {
            return Err(takes_too_long("the fundamental matrices of the agents' chains", "fewer states or fewer distinct agents"));
        }
        Ok((LeadingOrder::new(&classes, &round.setting, rule)?, round.setting.step_size))
    }

    /// Checks that the floor to leading order is known.
    ///
    /// # Errors
    /// When it is not; gives the reason.
    pub fn knows_leading_order(&self) -> Result<()> {
        self.stoppable(|| if self.is_nonlinear() { self.nonlinear_order().map(|_| ()) } else { self.leading_order().map(|_| ()) })
    }

    /// The floor to leading order in the step size, under Markov samples or of nonlinear operators.
    ///
    /// # Errors
    /// When it is not known.
    pub fn leading_order_floor(&self) -> Result<MeanSquare> {
        self.stoppable(|| self.computed_leading_order())
    }

    fn computed_leading_order(&self) -> Result<MeanSquare> {
        if self.is_nonlinear() {
            return self.nonlinear_leading_order();
        }
        self.leading_order().map(|(leading, _)| mean_square(leading.floor()))
    }

    /// Leading-order facts about the floor.
    ///
    /// # Errors
    /// As [`Forecast::leading_order_floor`].
    pub fn markov_explanation(&self) -> Result<MarkovExplanation> {
        self.stoppable(|| self.explained())
    }

    fn explained(&self) -> Result<MarkovExplanation> {
        let (leading, _) = self.leading_order()?;
        let floor = leading.floor();
        let (of_chain, independent) = leading.traces();
        Ok(MarkovExplanation { noise_over_iid: of_chain / independent, bias_share: linalg::norm_sq(&floor.bias) / floor.mse })
    }
}

/// Rejects long chains without random moves: the eigenvalues of their maps lie on circles, where iterations hardly converge.
pub(super) fn settles(agent: &MarkovAgent) -> Result<()> {
    let is_long = OneAgent::unknowns(agent) > DENSE;
    if agent.is_deterministic() && is_long { Err(unknown("a long chain has no random moves, as a log that is replayed")) } else { Ok(()) }
}

/// Whether one of the chains is periodic.
fn any_periodic(classes: &[AgentClass]) -> bool {
    classes.iter().any(|class| class.agent.period() > 1)
}

/// The error for a curve of too many rounds.
fn long_curve(last: u64) -> Error {
    let what = format!("the mean-square error under Markov samples over {last} rounds");
    takes_too_long(&what, "fewer rounds, local steps, agents, states or features, or smaller batches")
}

fn mean_square(floor: MarkovFloor) -> MeanSquare {
    let noise = floor.noise();
    MeanSquare { bias: floor.bias, noise: noise.max(0.0) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fedsa::kernel::Isa;
    use fedsa::method::{MethodSettings as _, MethodShape};
    use fedsa::sampling::{Law, Sampling};
    use fedsa_methods::fedhsa::FedHsa;
    use fedsa_methods::fedlsa::FedLsa;
    use fedsa_methods::scafflsa::Scafflsa;
    use fedsa_problems::td::garnet::Garnet;
    use fedsa_problems::{NoFiles, ProblemSettings as _};

    /// Up to 1331 joint states: 7986 unknowns of FedLSA, 59,895 with control variates.
    #[test]
    fn with_one_local_step_all_methods_are_fedlsa() {
        let garnet = Garnet::default().with_agents(3).with_states(11).with_features(3).with_min_class(2).with_seed(3);
        let sampling = Sampling::default().with_kind(Law::Markov);
        let field = garnet.field(&NoFiles, sampling, Isa::best()).unwrap();
        let of = |shape: MethodShape| Forecast::new(&field, shape);
        let (plain, rounds) = (of(FedLsa::new(0.1, 1).shape()), [1, 5, 30]);
        let want = plain.predicted_floor().unwrap();
        assert_eq!(want.accuracy, Accuracy::Exact);
        let curve = plain.curve(&[1.0; 3], &InitialControls::Zero, &rounds).unwrap();
        for shape in [Scafflsa::new(0.1, 1).shape(), FedHsa::new(0.1, 1).shape()] {
            let one = of(shape);
            assert_eq!((one.predicted_floor().unwrap(), one.floor_accuracy().unwrap()), (want.clone(), Accuracy::Exact));
            assert_eq!(one.curve(&[1.0; 3], &InitialControls::Zero, &rounds).unwrap(), curve);
            assert_eq!(one.floor_work().unwrap(), plain.floor_work().unwrap());
        }
        // With more steps the controls matter, and the joint chain with them is too large.
        let two = of(Scafflsa::new(0.1, 2).shape());
        assert!(matches!(two.floor_accuracy().unwrap(), Accuracy::Closure { eps_squared } if eps_squared > 0.0));
    }

    #[test]
    fn a_closure_that_neglects_nothing_is_exact() {
        assert_eq!([of_closure(0.0), of_closure(1e-17)], [Accuracy::Exact; 2]);
        assert_eq!(of_closure(1e-15), Accuracy::Closure { eps_squared: 1e-15 });
    }
}
