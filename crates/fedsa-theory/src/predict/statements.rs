//! The theorems of the sources about a method, next to the exact value.

use serde::Serialize;

use super::noise::NoiseSource;
use super::round::{Round, round_of_moments};
use super::{EXACT_DIM, Forecast, unknown};
use crate::bounds::delayed::DelayedSaBound;
use crate::bounds::fedlsa::{self, FedLsaConstants};
use crate::bounds::scafflsa::{self, ScafflsaConstants};
use crate::bounds::{Assumption, Bound, BoundShape, CorollaryChoice, Term, effective_agents, fedhsa, random_talk};
use crate::constants::Constants;
use crate::exact_mse::{InitialControls, MeanSquare, ScafflsaMse};
use crate::fedhsa_bounds::FedHsaConstants;
use fedsa::error::Result;
use fedsa::linalg;
use fedsa::method::Drift;
use fedsa::problem::systems::Moments;
use fedsa::record::OutputRule;
use fedsa::sampling::Law;

/// The most multiplications for an exact value, about one per nanosecond.
const MAX_WORK: f64 = 2e9;
/// The most distinct agents whose constants are computed.
pub(super) const MAX_KINDS: usize = 2000;

/// A statement about a method after some rounds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Statement {
    /// The statement in its source.
    pub statement: &'static str,
    /// The quantity that is bounded.
    pub of: &'static str,
    /// The parts of the bound. For a shape, the parts of the floor, each without the factor that its source does not state.
    pub terms: Vec<Term>,
    /// Their sum.
    pub value: f64,
    /// Whether factors are not stated, so that the value is not a bound.
    pub is_shape: bool,
    /// Constants of the problem that no other statement shares, each with its meaning; often none.
    pub constants: Vec<Term>,
    /// The conditions of the statement.
    pub assumptions: Vec<Assumption>,
    /// The exact value of the quantity, if it is known and does not take too long.
    pub exact: Option<f64>,
}

impl Statement {
    pub(super) fn of_bound(bound: Bound, more: Vec<Assumption>, exact: Option<f64>) -> Self {
        let value = bound.value();
        let assumptions = [bound.assumptions, more].concat();
        let (statement, of, terms) = (bound.statement, bound.of, bound.terms);
        Self { statement, of, terms, value, is_shape: false, constants: Vec::new(), assumptions, exact }
    }

    fn of_shape(shape: BoundShape, more: Vec<Assumption>, exact: Option<f64>) -> Self {
        let value = shape.floor.iter().map(|term| term.value).sum();
        let assumptions = [shape.assumptions, more].concat();
        let of = "the floor of E ||theta_t - theta*||^2";
        Self { statement: shape.statement, of, terms: shape.floor, value, is_shape: true, constants: Vec::new(), assumptions, exact }
    }

    /// Whether all conditions hold.
    pub fn holds(&self) -> bool {
        self.failing().next().is_none()
    }

    /// The conditions that do not hold.
    pub fn failing(&self) -> impl Iterator<Item = &Assumption> {
        self.assumptions.iter().filter(|assumption| !assumption.holds)
    }
}

pub(super) fn condition(name: &'static str, holds: bool, text: String) -> Assumption {
    Assumption { name, holds, text }
}

impl Forecast {
    /// The theorems about this method, after `rounds` rounds from `theta_0` (d), with controls of 0 at the start. `tau` is the mixing
    /// time of the samples, 1 for independent ones. Theorems whose conditions fail are included, with the conditions.
    ///
    /// - FedLSA: \[S\] Theorem A.5 with the bias
    /// - SCAFFLSA: \[S\] Theorems 5.1 and 5.3
    /// - FedHSA: \[F\] Theorems 1 and 2
    /// - one agent with delays: \[T\] Theorem 5.4
    /// - Markov reward processes: \[S\] Corollary 4.3, and one of \[T\] Theorems 4.2 to 4.4, by the link
    ///
    /// # Errors
    /// When a round is not a known linear map, or constants of the theorem do not exist or take too long; gives the reason.
    pub fn statements(&self, theta_0: &[f64], rounds: u64, tau: f64) -> Result<Vec<Statement>> {
        self.stoppable(|| self.applicable_statements(theta_0, rounds, tau))
    }

    fn applicable_statements(&self, theta_0: &[f64], rounds: u64, tau: f64) -> Result<Vec<Statement>> {
        let round = self.linear()?;
        let root = round.systems.root()?;
        let start = linalg::distance_sq(theta_0, &root).sqrt();
        let mut all = Vec::new();
        match self.shape.drift {
            Drift::Zero => {
                let td = self.td_statements(&round, theta_0, start, rounds);
                let own = match round.systems.weights.len() == 1 && round.link.delay.is_some() {
                    true => self.delayed(&round, theta_0, start, rounds, tau),
                    false => self.total_error(&round, theta_0, rounds),
                };
                match own {
                    Ok(own) => all.push(own),
                    Err(e) if td.is_empty() => return Err(e),
                    Err(_) => {}
                }
                all.extend(td);
            }
            Drift::ControlVariate { talk: None } => {
                let moments = self.moments_of_samples(&round)?;
                let constants = ScafflsaConstants::new(round.systems, &moments)?;
                let constants = constants.up_to(round.systems, &moments, round.setting.step_size)?;
                let bound = scafflsa::theorem_5_3(&constants, &round.setting, start, rounds);
                let exact = (rounds as f64 * round_of_moments(&round) <= MAX_WORK && self.is_exact(&round))
                    .then(|| ScafflsaMse::new(round.systems, &moments, &round.setting, self.batch(), &InitialControls::Zero).ok())
                    .flatten()
                    .and_then(|theory| theory.lyapunov(theta_0, &[rounds]).ok()?.pop());
                all.push(Statement::of_bound(bound, self.independent(&round), exact));
            }
            Drift::ControlVariate { talk: Some(p) } => {
                let constants = Constants::new(round.systems, Some(&self.moments_of_samples(&round)?))?;
                let steps = (rounds as f64 / p).round() as u64;
                let bound = random_talk::theorem_5_1(&constants, round.setting.step_size, p, start, steps)?;
                all.push(Statement::of_bound(bound, self.independent(&round), None));
            }
            Drift::GlobalMemory { fresh: 0 } => {
                let constants = FedHsaConstants::new(round.systems, self.field.facts())?;
                let shape = fedhsa::theorem_2(&constants, &round.setting, effective_agents(round.systems), tau)?;
                let exact = self.floor_work().is_ok_and(|work| work <= MAX_WORK).then(|| self.floor().ok()).flatten();
                all.push(Statement::of_shape(shape, vec![self.clear(&round), self.last()], exact.map(|floor| floor.mse())));
            }
            Drift::GlobalMemory { .. } | Drift::NoSteps => {}
        }
        Ok(all)
    }

    /// The settings that the corollaries choose for a mean-square error of `target` from `theta_0` (d) with this method; none for other
    /// methods, or if a theorem requires another problem or link.
    ///
    /// - FedLSA: \[S\] Corollaries 4.4 and 4.5
    /// - SCAFFLSA: \[S\] Corollary 5.4; with random talk 5.2
    /// - Markov reward processes: also \[S\] Corollaries 4.6 and 5.5, if they need fewer than 9e15 samples
    ///
    /// # Errors
    /// As [`Forecast::statements`], and when the target is not positive or takes too many samples.
    pub fn corollaries(&self, theta_0: &[f64], target: f64) -> Result<Vec<CorollaryChoice>> {
        self.stoppable(|| self.applicable_corollaries(theta_0, target))
    }

    fn applicable_corollaries(&self, theta_0: &[f64], target: f64) -> Result<Vec<CorollaryChoice>> {
        let round = self.linear()?;
        if self.independent(&round).iter().any(|condition| !condition.holds) {
            return Ok(Vec::new());
        }
        let start = linalg::distance_sq(theta_0, &round.systems.root()?).sqrt();
        let td = self.td_federation(&round);
        Ok(match self.shape.drift {
            Drift::Zero => {
                let constants = FedLsaConstants::new(round.systems, &self.moments_of_samples(&round)?)?;
                let mut all = vec![fedlsa::corollary_4_4(&constants, start, target)?, fedlsa::corollary_4_5(&constants, start, target)?];
                all.extend(td.and_then(|td| td.corollary_4_6(start, target).ok()));
                all
            }
            Drift::ControlVariate { talk: None } => {
                let constants = ScafflsaConstants::new(round.systems, &self.moments_of_samples(&round)?)?;
                let mut all = vec![scafflsa::corollary_5_4(&constants, start, target)?];
                all.extend(td.and_then(|td| td.corollary_5_5(start, target).ok()));
                all
            }
            Drift::ControlVariate { talk: Some(_) } => {
                let constants = Constants::new(round.systems, Some(&self.moments_of_samples(&round)?))?;
                vec![random_talk::corollary_5_2(&constants, start, target)?]
            }
            Drift::GlobalMemory { .. } | Drift::NoSteps => Vec::new(),
        })
    }

    /// \[S\] Theorem A.5 with the bias.
    fn total_error(&self, round: &Round<'_>, theta_0: &[f64], rounds: u64) -> Result<Statement> {
        let moments = self.moments_of_samples(round)?;
        let bound = fedlsa::total_error(round.systems, &moments, &round.setting, theta_0, rounds)?;
        let exact = self.exact_at(theta_0, rounds).map(f64::sqrt);
        Ok(Statement::of_bound(bound, self.independent(round), exact))
    }

    /// \[T\] Theorem 5.4.
    fn delayed(&self, round: &Round<'_>, theta_0: &[f64], start: f64, rounds: u64, tau: f64) -> Result<Statement> {
        let constants = FedHsaConstants::new(round.systems, self.field.facts())?;
        let sa = DelayedSaBound::new(&constants, linalg::norm_sq(theta_0).sqrt(), start, tau.ceil() as u64);
        let tau_max = round.link.delay.as_ref().map_or(0, |delay| delay.probabilities.len() as u64 - 1);
        let (h, alpha) = (round.setting.local_steps, round.setting.step_size * round.setting.server_step);
        let more = vec![
            condition("one local step", h == 1, format!("H = {h}")),
            condition("no messages are lost or altered", round.link.delivers(), format!("mean gain {}", round.link.gain)),
            self.last(),
        ];
        Ok(Statement::of_bound(sa.theorem_5_4(alpha, tau_max, rounds)?, more, self.exact_at(theta_0, rounds)))
    }

    /// The general conditions of \[S\], beyond each theorem's own.
    pub(super) fn independent(&self, round: &Round<'_>) -> Vec<Assumption> {
        let (kind, batch) = (self.sampling.kind, self.sampling.batch);
        let text = match kind {
            Law::Markov => "samples along a trajectory".to_string(),
            Law::Mean => "no noise".to_string(),
            Law::Iid => format!("{batch} a step"),
        };
        vec![
            condition("independent samples, one a step", kind == Law::Mean || (kind == Law::Iid && batch == 1), text),
            self.clear(round),
            self.last(),
        ]
    }

    fn clear(&self, round: &Round<'_>) -> Assumption {
        let text = match (round.link.is_clear(), round.few) {
            (false, _) => "the link alters, loses or delays messages".to_string(),
            (true, Some(m)) => format!("{m} of {} agents a round", round.agents()),
            (true, None) => "clear link, all agents".to_string(),
        };
        condition("all messages of all agents arrive as sent", round.link.is_clear() && round.few.is_none(), text)
    }

    pub(super) fn last(&self) -> Assumption {
        let is_last = self.output == OutputRule::Last;
        condition("the output is the last iterate", is_last, if is_last { "last".into() } else { "an average".into() })
    }

    /// The second moments of single samples; without noise, of the mean.
    fn moments_of_samples(&self, round: &Round<'_>) -> Result<Vec<Moments>> {
        let (kinds, d) = (&round.systems.kinds, round.systems.dim());
        if d > EXACT_DIM || kinds.len() > MAX_KINDS {
            return Err(unknown(&format!("second moments of {} distinct agents with {d} features", kinds.len())));
        }
        if self.sampling.kind == Law::Mean {
            return Ok(kinds.iter().map(Moments::of_mean).collect());
        }
        self.moments_of_all(round.systems)
    }

    /// Whether the exact second moments assume independent samples over a clear link.
    fn is_exact(&self, round: &Round<'_>) -> bool {
        matches!(self.noise_source(round), Ok(NoiseSource::Independent | NoiseSource::Nothing)) && self.output == OutputRule::Last
    }

    /// The exact mean-square error after some rounds.
    pub(super) fn exact_at(&self, theta_0: &[f64], rounds: u64) -> Option<f64> {
        if self.is_noiseless() {
            return self.noiseless_curve(theta_0, &[rounds]).ok()?.pop();
        }
        if !self.curve_work(rounds).is_ok_and(|work| work <= MAX_WORK) {
            return None;
        }
        self.curve(theta_0, &InitialControls::Zero, &[rounds]).ok()?.iter().map(MeanSquare::mse).next()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use fedsa::kernel::Isa;
    use fedsa::method::MethodSettings;
    use fedsa::problem::Field;
    use fedsa::sampling::Sampling;
    use fedsa::uplink::Uplink;
    use fedsa::uplink::stage::erasure::Erasure;
    use fedsa_methods::fedhsa::FedHsa;
    use fedsa_methods::fedlsa::FedLsa;
    use fedsa_methods::scafflsa::Scafflsa;
    use fedsa_methods::scafflsa_random::ScafflsaRandom;
    use fedsa_problems::td::garnet::Garnet;
    use fedsa_problems::{NoFiles, ProblemSettings as _};

    fn garnet(kind: Law, batch: usize) -> Arc<dyn Field> {
        let garnet = Garnet::default().with_agents(3).with_states(6).with_features(2).with_gamma(0.5).with_seed(5);
        garnet.field(&NoFiles, Sampling::default().with_kind(kind).with_batch(batch), Isa::best()).unwrap()
    }

    fn of(field: &Arc<dyn Field>, method: &dyn MethodSettings) -> Forecast {
        Forecast::over(field, method, &Uplink::default())
    }

    #[test]
    fn bounds_are_above_the_exact_values_where_their_conditions_hold() {
        for kind in [Law::Iid, Law::Mean] {
            let field = garnet(kind, 1);
            let start: Vec<f64> = field.root().unwrap().iter().map(|x| x + 2.0).collect();
            let (mut held, mut failed) = (0, 0);
            for eta in [1e-4, 1e-3, 0.02, 1.0] {
                for method in [&FedLsa::new(eta, 3) as &dyn MethodSettings, &Scafflsa::new(eta, 3)] {
                    let statement = of(&field, method).statements(&start, 40, 1.0).unwrap().remove(0);
                    let exact = statement.exact.unwrap();
                    if statement.holds() {
                        held += 1;
                        assert!(exact <= statement.value * (1.0 + 1e-9), "{statement:?}");
                    } else {
                        failed += 1;
                    }
                }
            }
            assert!(held >= 3 && failed >= 1, "{held} {failed}");
        }
    }

    /// Exact values match the curve. For psi, the part of theta is at most psi.
    #[test]
    fn exact_values_are_those_of_the_curve() {
        let field = garnet(Law::Iid, 1);
        let start = vec![0.5; 2];
        let plain = of(&field, &FedLsa::new(0.01, 4));
        let mse = plain.curve(&start, &InitialControls::Zero, &[30]).unwrap()[0].mse();
        assert_eq!(plain.statements(&start, 30, 1.0).unwrap()[0].exact, Some(mse.sqrt()));
        let controlled = of(&field, &Scafflsa::new(0.01, 4));
        let mse = controlled.curve(&start, &InitialControls::Zero, &[30]).unwrap()[0].mse();
        let psi = controlled.statements(&start, 30, 1.0).unwrap()[0].exact.unwrap();
        assert!(psi > mse && psi < 2.0 * mse, "{psi} {mse}");
        let memory = of(&field, &FedHsa::new(0.01, 4));
        let shape = memory.statements(&start, 30, 1.0).unwrap().remove(0);
        assert!(shape.is_shape && shape.statement == "[F] Theorem 1");
        assert_eq!(shape.exact, Some(memory.floor().unwrap().mse()));
        assert_eq!(memory.statements(&start, 30, 4.0).unwrap()[0].statement, "[F] Theorem 2");
        let random = ScafflsaRandom::new(1e-4, 0.25);
        let random = of(&field, &random).statements(&start, 30, 1.0).unwrap().remove(0);
        assert_eq!((random.statement, random.exact), ("[S] Theorem 5.1", None));
    }

    #[test]
    fn what_a_theorem_does_not_cover_is_named() {
        let start = vec![0.5; 2];
        let fails = |of: &Forecast| of.statements(&start, 10, 1.0).unwrap()[0].failing().next().map(|condition| condition.name);
        let small = FedLsa::new(1e-4, 4);
        assert_eq!(fails(&of(&garnet(Law::Iid, 1), &small)), None);
        assert_eq!(fails(&of(&garnet(Law::Iid, 2), &small)), Some("independent samples, one a step"));
        let mut lossy = Uplink::default();
        lossy.push(Arc::new(Erasure::new(0.5))).unwrap();
        let field = garnet(Law::Iid, 1);
        let arrives = Some("all messages of all agents arrive as sent");
        assert_eq!(fails(&Forecast::over(&field, &small, &lossy)), arrives);
        assert_eq!(fails(&of(&field, &small.clone().with_participants(2))), arrives);
        assert_eq!(fails(&of(&field, &small.clone().with_global_step_size(0.5))), Some("alpha_g = 1"));
        assert_eq!(fails(&of(&field, &FedLsa::new(30.0, 4))), Some("A 2"));
        assert_eq!(fails(&of(&field, &small).of_output(OutputRule::Average)), Some("the output is the last iterate"));
    }

    #[test]
    fn corollaries_reach_their_targets() {
        let field = garnet(Law::Iid, 1);
        let start = vec![0.5; 2];
        for method in [&FedLsa::new(0.01, 4) as &dyn MethodSettings, &Scafflsa::new(0.01, 4)] {
            let choices = of(&field, method).corollaries(&start, 0.01).unwrap();
            assert!(!choices.is_empty());
            for choice in choices {
                let setting = choice.round_setting().unwrap();
                let chosen = of(&field, method).with_step(setting.step_size).with_local_steps(setting.local_steps);
                let reached = chosen.curve(&start, &InitialControls::Zero, &[choice.rounds()]).unwrap()[0].mse();
                assert!(choice.holds() && reached <= 0.01, "{choice:?} {reached}");
            }
        }
        assert!(of(&field, &FedHsa::new(0.01, 4)).corollaries(&start, 0.01).unwrap().is_empty());
        assert!(of(&field, &FedLsa::new(0.01, 4)).corollaries(&start, 0.0).is_err());
    }
}
