//! The theorems on TD(0) about a method on Markov reward processes.

use super::Forecast;
use super::round::Round;
use super::statements::{MAX_KINDS, Statement, condition};
use crate::bounds::fedlsa::{largest_bias, with_bias};
use crate::bounds::fedtd::{Erasures, FedTdBound, OverTheAirMoments};
use crate::bounds::td::TdFederation;
use crate::bounds::{Assumption, Bound, Term, effective_agents};
use crate::constants::TdConstants;
use fedsa::error::Result;
use fedsa::linalg;
use fedsa::problem::facts::TdFacts;
use fedsa::sampling::Law;
use fedsa::uplink::stage::delay::Before;

/// The most multiplications for a mixing time, about one per nanosecond, and the smallest level above rounding.
const MIXING_WORK: f64 = 1e9;
const MIN_LEVEL: f64 = 1e-13;

impl Forecast {
    /// \[S\] Corollary 4.3 and \[T\] Theorem 4.2, 4.3 or 4.4 about FedLSA; none if the problem is not a Markov reward process, or its
    /// features are linearly dependent.
    pub(super) fn td_statements(&self, round: &Round<'_>, theta_0: &[f64], start: f64, rounds: u64) -> Vec<Statement> {
        let Some(facts) = self.td_facts(round) else { return Vec::new() };
        let exact = self.exact_at(theta_0, rounds);
        let plain = self.corollary_4_3(round, &facts, start, rounds, exact.map(f64::sqrt));
        plain.into_iter().chain(self.channel_theorem(round, &facts, start, rounds, exact)).collect()
    }

    /// The problem's facts for the theorems.
    fn td_facts(&self, round: &Round<'_>) -> Option<TdFacts> {
        if round.systems.kinds.len() > MAX_KINDS {
            return None;
        }
        self.field.facts().td().filter(|facts| facts.nu > 0.0)
    }

    /// TD in the terms of \[S\], if the problem meets all its conditions.
    pub(super) fn td_federation(&self, round: &Round<'_>) -> Option<TdFederation> {
        let facts = self.td_facts(round)?;
        let conditions = [self.processes_alone(), features_are_short(&facts), rewards_are_in_0_1(&facts)];
        conditions.iter().all(|condition| condition.holds).then(|| federation(round, &facts).ok())?
    }

    /// \[S\] Corollary 4.3, with the bias.
    fn corollary_4_3(&self, round: &Round<'_>, facts: &TdFacts, start: f64, rounds: u64, exact: Option<f64>) -> Option<Statement> {
        let td = federation(round, facts).ok()?;
        let mean = round.plain().ok()?;
        let bound = td.corollary_4_3(&round.setting, rounds, largest_bias(&mean, rounds).ok()?, start).ok()?;
        let mut more = vec![self.processes_alone(), features_are_short(facts), rewards_are_in_0_1(facts)];
        more.extend(self.independent(round));
        let constants = constants(&[
            ("gamma, the discount factor", facts.gamma),
            ("nu, the least eigenvalue of an agent's feature covariance", facts.nu),
            ("N, the number of agents", td.agents),
            ("the mean of ||theta*_c||^2 of the agents' own roots", td.local_roots_sq),
            ("the mean of ||theta*_c - theta*||^2", td.distance_sq),
        ]);
        Some(Statement { constants, ..Statement::of_bound(with_bias(bound, &mean, rounds), more, exact) })
    }

    /// The theorem of \[T\] on this link, with the constants of its proof.
    fn channel_theorem(&self, round: &Round<'_>, facts: &TdFacts, start: f64, rounds: u64, exact: Option<f64>) -> Option<Statement> {
        let (link, alpha) = (round.link, round.setting.step_size * round.setting.server_step);
        let root = round.systems.root().ok()?;
        let largest = facts.largest_reward.abs().max(facts.least_reward.abs());
        let sigma = largest.max(linalg::norm_sq(&root).sqrt()).max(start).max(1.0);
        let mixing = self.time_to_mix(round, alpha);
        let tau = mixing.clone().unwrap_or(1.0);
        let agents = round.agents() as f64;
        let td = FedTdBound { omega: facts.nu, gamma: facts.gamma, agents, sigma, start, tau };
        let mut own = vec![
            ("omega, the least eigenvalue of the feature covariance", td.omega),
            ("gamma, the discount factor", td.gamma),
            ("N, the number of agents", td.agents),
            ("sigma, the largest of 1, |r|, ||theta*|| and ||theta_0 - theta*||", td.sigma),
            ("tau, the mixing time of the operator at the level alpha^2", td.tau),
        ];
        let mut more = self.of_processes(round, facts);
        more.push(condition(
            "the samples' mixing time is known",
            mixing.is_ok(),
            mixing.map_or_else(|why| why, |tau| format!("tau = {tau}")),
        ));
        let bound: Result<Bound> = if let Some(delay) = &link.delay {
            let longest = delay.probabilities.len() as u64 - 1;
            own.push(("tau_max, the longest delay", longest as f64));
            let is_first = delay.before == Before::First;
            let text = if is_first { "answers at theta_0" } else { "no answers" };
            more.push(condition("answers at theta_0 before older ones are there", is_first, text.into()));
            more.push(condition("no messages are lost or altered", link.delivers(), format!("mean gain {}", link.gain)));
            td.theorem_4_4(alpha, longest, rounds)
        } else if link.gain_square != link.gain || link.adds_noise() {
            let receiver_noise = link.noise_in_mean(&round.systems.weights);
            own.extend([
                ("m_h, the mean gain", link.gain),
                ("m_h^2 + s_h^2, the mean square gain", link.gain_square),
                ("s_w, the receiver's noise in N v", receiver_noise),
            ]);
            let (mean, square) = (link.gain, link.gain_square);
            td.theorem_4_3(alpha, &OverTheAirMoments { mean, square, receiver_noise, dim: round.systems.dim() }, rounds)
        } else {
            own.push(("p, the probability that a message arrives", link.gain));
            td.theorem_4_2(alpha, &Erasures { success: link.gain, zeta: 0.0 }, rounds)
        };
        Some(Statement { constants: constants(&own), ..Statement::of_bound(bound.ok()?, more, exact) })
    }

    /// The conditions of \[T\] on the problem, the method and the codec.
    fn of_processes(&self, round: &Round<'_>, facts: &TdFacts) -> Vec<Assumption> {
        let kinds = round.systems.kind_weights().into_iter().filter(|weight| *weight > 0.0).count();
        let (h, batch) = (round.setting.local_steps, self.sampling.batch);
        let weights = &round.systems.weights;
        let equal = weights.iter().all(|p| (p - weights[0]).abs() <= 1e-12 * weights[0]);
        let has_error = round.link.has_codec_error();
        let each = if self.sampling.kind == Law::Mean { "no noise".to_string() } else { format!("{batch} a step") };
        vec![
            condition("one Markov reward process of all agents", kinds == 1, format!("{kinds} distinct")),
            self.processes_alone(),
            features_are_short(facts),
            condition("one local step", h == 1, format!("H = {h}")),
            condition("one sample a step", self.sampling.kind == Law::Mean || batch == 1, each),
            condition("equal weights", equal, if equal { "equal".into() } else { "weights differ".into() }),
            condition(
                "all agents take part",
                round.few.is_none(),
                format!("{} of {}", round.few.unwrap_or(round.agents()), round.agents()),
            ),
            condition(
                "a codec whose variance constant zeta is known",
                !has_error,
                if has_error { "zeta is not known".into() } else { "zeta = 0, no error".into() },
            ),
            self.last(),
        ]
    }

    fn processes_alone(&self) -> Assumption {
        let alone = self.sampling.kind == Law::Mean || self.field.facts().additive_noise().is_none();
        condition("samples of the process alone", alone, if alone { "no other noise".into() } else { "additive noise".into() })
    }

    /// tau of \[T\]: the mixing time of the operator at the level `alpha^2`, at least 1, or why it is not known.
    fn time_to_mix(&self, round: &Round<'_>, alpha: f64) -> std::result::Result<f64, String> {
        if self.sampling.kind != Law::Markov {
            return Ok(1.0);
        }
        let law = self.field.facts().law(0).ok_or("the samples follow no known chain")?;
        let states = law.chain().map_or(0, |chain| chain.law.len()) as f64;
        let d = round.systems.dim() as f64;
        // About twenty powers of the chain's matrix, each applied to the operators of all states.
        if 20.0 * (states.powi(3) + states * states * d * (d + 1.0)) > MIXING_WORK {
            return Err("it takes too long to compute".into());
        }
        let level = alpha * alpha;
        if level < MIN_LEVEL {
            return Err(format!("the level alpha^2 = {level:.1e} is within rounding"));
        }
        let time = law.operator_mixing_time(level).map_err(|e| e.what)?.ok_or("the chain does not mix")?;
        Ok((time as f64).max(1.0))
    }
}

/// The constants of Lemma 3.1 for the problem.
fn federation(round: &Round<'_>, facts: &TdFacts) -> Result<TdFederation> {
    let root = round.systems.root()?;
    let (mut local_roots_sq, mut distance_sq) = (0.0, 0.0);
    for (k, p) in round.systems.kind_weights().into_iter().enumerate() {
        let local = round.systems.local_root(k)?;
        local_roots_sq += p * linalg::norm_sq(&local);
        distance_sq += p * linalg::distance_sq(&local, &root);
    }
    let constants = TdConstants::new(facts.gamma, facts.nu)?;
    Ok(TdFederation { constants, agents: effective_agents(round.systems), local_roots_sq, distance_sq, root_sq: linalg::norm_sq(&root) })
}

fn constants(all: &[(&'static str, f64)]) -> Vec<Term> {
    all.iter().map(|(name, value)| Term { name, value: *value }).collect()
}

fn features_are_short(facts: &TdFacts) -> Assumption {
    // Normalised features have the norm 1 up to rounding.
    condition("||phi|| <= 1", facts.feature_norm <= 1.0 + 1e-12, format!("at most {:.4}", facts.feature_norm))
}

fn rewards_are_in_0_1(facts: &TdFacts) -> Assumption {
    let holds = facts.least_reward >= 0.0 && facts.largest_reward <= 1.0;
    condition("rewards in [0, 1] (TD 1)", holds, format!("{:.4} to {:.4}", facts.least_reward, facts.largest_reward))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use fedsa::kernel::Isa;
    use fedsa::problem::Field;
    use fedsa::sampling::Sampling;
    use fedsa::uplink::Uplink;
    use fedsa::uplink::stage::LinkStage;
    use fedsa::uplink::stage::delay::{Delay, Pull};
    use fedsa::uplink::stage::erasure::Erasure;
    use fedsa::uplink::stage::over_the_air::{self, Gain};
    use fedsa::uplink::stage::sent_noise::SentNoise;
    use fedsa_methods::fedlsa::FedLsa;
    use fedsa_methods::scafflsa::Scafflsa;
    use fedsa_problems::td::random_mrp::RandomMrp;
    use fedsa_problems::{NoFiles, ProblemSettings as _};

    fn process(agents: usize, kind: Law, reward_range: [f64; 2]) -> Arc<dyn Field> {
        let mrp = RandomMrp::default().with_agents(agents).with_states(5).with_features(2).with_seed(3).with_reward_range(reward_range);
        mrp.field(&NoFiles, Sampling::default().with_kind(kind), Isa::best()).unwrap()
    }

    fn over(media: &[Arc<dyn LinkStage>]) -> Uplink {
        Uplink::default().with_media(media.to_vec())
    }

    /// The statements of \[T\] equal the library's bounds for the problem's facts, and exceed the exact errors.
    #[test]
    fn theorems_of_channels_are_the_bounds_of_the_link() {
        let field = process(4, Law::Iid, [0.0, 1.0]);
        let facts = field.facts().td().unwrap();
        let root = field.root().unwrap().to_vec();
        let theta_0: Vec<f64> = root.iter().map(|x| x + 0.5).collect();
        let start = linalg::distance_sq(&theta_0, &root).sqrt();
        let sigma = linalg::norm_sq(&root).sqrt().max(facts.largest_reward).max(start).max(1.0);
        let td = FedTdBound { omega: facts.nu, gamma: facts.gamma, agents: 4.0, sigma, start, tau: 1.0 };
        let alpha = facts.nu * (1.0 - facts.gamma) / 1e5;
        // Few enough for the curve over a delay.
        let rounds = 20_000;
        let air = over_the_air::OverTheAir::default().with_gain(Gain::Rician { line_of_sight: 0.6, scale: 0.3 }).with_receiver_noise(0.5);
        let delay = Pull::new(Delay::Constant { rounds: 3 }).with_before(Before::First);
        let links = [
            over(&[]),
            over(&[Arc::new(Erasure::new(0.7))]),
            over(&[Arc::new(air)]),
            over(&[Arc::new(delay)]),
            over(&[Arc::new(Erasure::new(0.7)), Arc::new(SentNoise::new(0.5))]),
        ];
        for (i, link) in links.iter().enumerate() {
            let of = Forecast::over(&field, &FedLsa::new(alpha, 1), link);
            let law = of.link().unwrap();
            let want = match i {
                0 | 1 => td.theorem_4_2(alpha, &Erasures { success: [1.0, 0.7][i], zeta: 0.0 }, rounds),
                2 => {
                    let (mean, square) = (law.gain, law.gain_square);
                    td.theorem_4_3(alpha, &OverTheAirMoments { mean, square, receiver_noise: 0.5, dim: 2 }, rounds)
                }
                3 => td.theorem_4_4(alpha, 3, rounds),
                // The mean of four messages has the noise of a receiver with this s_w: 4^2 (0.5^2 0.7 / 4) = 0.7.
                _ => {
                    let air = OverTheAirMoments { mean: 0.7, square: 0.7, receiver_noise: 0.7f64.sqrt(), dim: 2 };
                    let want = td.theorem_4_3(alpha, &air, rounds).unwrap().value();
                    let all = of.statements(&theta_0, rounds, 1.0).unwrap();
                    let found = all.iter().find(|one| one.statement == "[T] Theorem 4.3").unwrap();
                    assert!((found.value / want - 1.0).abs() < 1e-12 && found.holds() && found.exact.unwrap() <= found.value, "{found:?}");
                    continue;
                }
            };
            let want = want.unwrap();
            let all = of.statements(&theta_0, rounds, 1.0).unwrap();
            let found = all.iter().find(|one| one.statement.starts_with("[T] Theorem 4")).unwrap();
            assert_eq!((found.statement, found.value, &found.terms), (want.statement, want.value(), &want.terms));
            assert!(found.holds(), "{found:?}");
            let at = |name: &str| found.constants.iter().find(|one| one.name.starts_with(name)).unwrap().value;
            assert_eq!((at("omega"), at("N,"), at("sigma"), at("tau, ")), (facts.nu, 4.0, sigma, 1.0));
            let exact = found.exact.unwrap();
            assert!(exact > 0.0 && exact <= found.value, "{found:?}");
        }
    }

    #[test]
    fn what_the_theorems_on_td_do_not_cover_is_named() {
        let fails = |field: &Arc<dyn Field>, method: &FedLsa, link: &Uplink, name: &str| {
            let theta_0 = vec![0.0; 2];
            let of = Forecast::over(field, method, link);
            let all = of.statements(&theta_0, 1_000_000_000, 1.0).unwrap();
            let found = all.iter().find(|one| one.statement.starts_with(name)).unwrap();
            found.failing().map(|one| one.name).collect::<Vec<_>>()
        };
        let (clear, small) = (Uplink::default(), FedLsa::new(1e-8, 1));
        let field = process(3, Law::Iid, [0.0, 1.0]);
        let (t, s) = ("[T] Theorem 4.2", "[S] Corollary 4.3");
        assert!(fails(&field, &small, &clear, t).is_empty());
        assert!(fails(&field, &small, &clear, s).is_empty());
        assert_eq!(fails(&field, &FedLsa::new(1e-8, 2), &clear, t), ["one local step"]);
        assert_eq!(fails(&field, &FedLsa::new(1.0, 1), &clear, t), ["alpha is small enough"]);
        assert_eq!(fails(&field, &small.clone().with_participants(2), &clear, t), ["all agents take part"]);
        let rich = process(3, Law::Iid, [0.0, 10.0]);
        assert!(fails(&rich, &small, &clear, t).is_empty());
        assert_eq!(fails(&rich, &small, &clear, s), ["rewards in [0, 1] (TD 1)"]);
        // The level alpha^2 is within rounding.
        let chain = process(3, Law::Markov, [0.0, 1.0]);
        assert_eq!(fails(&chain, &small, &clear, t), ["the samples' mixing time is known"]);
        assert_eq!(fails(&chain, &small, &clear, s), ["independent samples, one a step"]);
        let late = over(&[Arc::new(Pull::new(Delay::Constant { rounds: 2 }).with_before(Before::Nothing))]);
        assert_eq!(fails(&field, &small, &late, "[T] Theorem 4.4"), ["answers at theta_0 before older ones are there"]);
        let noisy = over(&[Arc::new(SentNoise::new(0.1)), Arc::new(Pull::new(Delay::Constant { rounds: 2 }))]);
        assert_eq!(fails(&field, &small, &noisy, "[T] Theorem 4.4"), ["no messages are lost or altered"]);
    }

    /// tau follows Definition 4.2.1 at the level alpha^2.
    #[test]
    fn the_mixing_time_is_that_of_the_operator() {
        let field = process(2, Law::Markov, [0.0, 1.0]);
        let of = Forecast::new(&field, fedsa::method::MethodSettings::shape(&FedLsa::new(1e-3, 1)));
        let all = of.statements(&[0.0; 2], 1000, 1.0).unwrap();
        let found = all.iter().find(|one| one.statement == "[T] Theorem 4.2").unwrap();
        let tau = found.constants.iter().find(|one| one.name.starts_with("tau")).unwrap().value;
        let want = field.facts().law(0).unwrap().operator_mixing_time(1e-3 * 1e-3).unwrap().unwrap();
        assert!(tau == want as f64 && tau > 1.0, "{tau} {want}");
    }

    #[test]
    fn corollaries_on_td_are_those_of_the_constants_of_lemma_3_1() {
        let field = process(3, Law::Iid, [0.0, 1.0]);
        let facts = field.facts().td().unwrap();
        let root = field.root().unwrap().to_vec();
        let theta_0: Vec<f64> = root.iter().map(|x| x + 2.0).collect();
        let start = linalg::distance_sq(&theta_0, &root).sqrt();
        let systems = field.systems().unwrap();
        // One process: the agents' own roots are theta*.
        let root_sq = linalg::norm_sq(&root);
        let constants = TdConstants::new(facts.gamma, facts.nu).unwrap();
        let td = TdFederation { constants, agents: 3.0, local_roots_sq: root_sq, distance_sq: 0.0, root_sq };
        let choices = |method: &dyn fedsa::method::MethodSettings| {
            Forecast::over(&field, method, &Uplink::default()).corollaries(&theta_0, 1.0).unwrap().pop().unwrap()
        };
        let (plain, controlled) = (choices(&FedLsa::new(0.1, 4)), choices(&Scafflsa::new(0.1, 4)));
        let close = |x: f64, y: f64| (x / y - 1.0).abs() < 1e-6;
        for (got, want) in [(plain, td.corollary_4_6(start, 1.0).unwrap()), (controlled, td.corollary_5_5(start, 1.0).unwrap())] {
            assert_eq!(got.statement, want.statement);
            assert!(close(got.step_size, want.step_size) && close(got.rounds, want.rounds), "{got:?} {want:?}");
        }
        assert_eq!(systems.kinds.len(), 1);
        // The corollaries do not cover rewards beyond [0, 1].
        let rich = process(3, Law::Iid, [0.0, 10.0]);
        let all = Forecast::over(&rich, &FedLsa::new(0.1, 4), &Uplink::default()).corollaries(&theta_0, 1.0).unwrap();
        assert_eq!(all.len(), 2);
    }

    /// The facts match the exported arrays.
    #[test]
    fn facts_are_those_of_the_arrays() {
        let field = process(3, Law::Iid, [-2.0, 5.0]);
        let (facts, arrays) = (field.facts().td().unwrap(), field.facts().export().unwrap());
        let rewards: Vec<f64> = arrays.find("R").unwrap().data().to_vec();
        let (low, high) = rewards.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), r| (low.min(*r), high.max(*r)));
        assert!((facts.least_reward - low).abs() < 1e-12 && (facts.largest_reward - high).abs() < 1e-12 && low < high);
        let longest = arrays.find("Phi").unwrap().data().chunks(2).map(|phi| phi[0].hypot(phi[1])).fold(0.0, f64::max);
        assert!((facts.feature_norm - longest).abs() < 1e-12);
        assert_eq!(facts.gamma, arrays.find("gamma").unwrap().data()[0]);
        // All agents share the process, so the covariance is the mean's.
        let nu = linalg::eigenvalues(field.facts().gram().unwrap()).unwrap().iter().map(|(re, _)| *re).fold(f64::INFINITY, f64::min);
        assert!((facts.nu - nu).abs() < 1e-12 * nu.max(1e-3), "{facts:?} {nu}");
    }
}
