//! The errors of value functions on held-out episodes, which were not used for the fit.
//!
//! Two errors of values `v(s) = phi(s)' theta`, each a root mean square over an agent's held-out transitions:
//!
//! - **Against Monte-Carlo returns**: `v(s_i) - G_i` with `G_i = sum_k gamma^k r_{i+k}` to the end of the episode. Only episodes that
//!   terminate (`done`) have returns; transitions of truncated episodes are omitted and counted.
//! - **Projected Bellman error**: `sqrt(dbar' C^+ dbar)` with `dbar = mean phi rho delta`, `delta = r + gamma v(s') - v(s)`, `C = mean
//!   phi phi'` and its pseudo-inverse. It is the norm of `Pi (T v - v)`, `Pi` the projection on the features under the distribution of
//!   the held-out states. With few episodes, noise makes it positive even for perfect weights.
//!
//! Standard errors assume independent episodes. Each error is linearised in the contributions of single episodes (the ratio estimator
//! for the first, the delta method for the second).

mod errors;
mod judge;

pub use errors::Errors;
pub use judge::{Judged, judge, returns};

#[cfg(test)]
mod tests {
    use fedsa::random::{Purpose, stream};
    use fedsa_problems::features::{FeatureMap, FeatureSpec, Ranges};
    use fedsa_problems::logs::log::{Break, Log};
    use fedsa_problems::logs::log_means::TraceRule;

    use super::*;

    /// Episodes of a chain 3, 2, 1 with reward -1 per step, `times` of them; the last is truncated after two steps.
    fn chain(times: usize) -> Log {
        let mut log = Log {
            name: "chain".into(),
            columns: vec!["s_0".into()],
            states: Vec::new(),
            rewards: Vec::new(),
            next: Vec::new(),
            done: Vec::new(),
            truncated: None,
            breaks: None,
            actions: None,
            episode: Some(Vec::new()),
            ratio: None,
        };
        for episode in 0..=times {
            for state in if episode == times { 2..4 } else { 1..4 }.rev() {
                log.states.push(f64::from(state));
                log.next.push(f64::from(state - 1));
                log.rewards.push(-1.0);
                log.done.push(state == 1);
                log.episode.as_mut().unwrap().push(episode as i64);
            }
        }
        log
    }

    fn rule(gamma: f64) -> TraceRule {
        TraceRule { gamma, lambda: 0.0, ratios: true, clip: None }
    }

    /// Returns by hand, weighted per decision: the second decision of the chain has a ratio of 2, and the third one of 1/2.
    #[test]
    fn ratios_weigh_returns_and_bellman_errors() {
        let log = chain(1).filtered(|row| row < 3);
        let log = Log { ratio: Some(vec![1.0, 2.0, 0.5]), ..log };
        let last = -0.5;
        let second = 2.0 * (-1.0 + 0.9 * last);
        let first = -1.0 + 0.9 * second;
        assert_eq!(returns(&log, rule(0.9)).unwrap(), [Some(first), Some(second), Some(last)]);
        let off = TraceRule { ratios: false, ..rule(1.0) };
        assert_eq!(returns(&log, off).unwrap(), [Some(-3.0), Some(-2.0), Some(-1.0)]);
        let broken = Log { breaks: Some(vec![Break::None, Break::LeftOut, Break::None]), ..log.clone() };
        assert_eq!(returns(&broken, off).unwrap(), [None, Some(-2.0), Some(-1.0)], "what came between is not known");
        let judged = judge(&broken, &identity(), off, &[&[-2.0]]).unwrap();
        assert_eq!((judged.episodes_cut, judged.transitions_cut), (0, 1));
        // With v(s) = -2 s every delta is 1: the mean of rho s over the root of the mean of s^2.
        let judged = judge(&log, &identity(), rule(1.0), &[&[-2.0]]).unwrap();
        let expected = (3.0 + 4.0 + 0.5) / 3.0 / (14.0f64 / 3.0).sqrt();
        assert!((judged.bellman[0].rms().unwrap() - expected).abs() < 1e-14);
    }

    fn identity() -> FeatureMap {
        FeatureMap::new(&FeatureSpec::Identity { bias: false }, &["s_0".into()], &Ranges::new()).unwrap()
    }

    #[test]
    fn a_chain_has_the_errors_that_follow_by_hand() {
        // Without discount v(s) = -s is exact; v(s) = -2 s is off by s.
        let judged = judge(&chain(4), &identity(), rule(1.0), &[&[-1.0], &[-2.0]]).unwrap();
        assert_eq!((judged.episodes, judged.transitions, judged.episodes_cut, judged.transitions_cut), (5, 14, 1, 2));
        assert_eq!((judged.returns[0].rms(), judged.bellman[0].rms()), (Some(0.0), Some(0.0)));
        assert!((judged.returns[1].rms().unwrap() - (14.0f64 / 3.0).sqrt()).abs() < 1e-14);
        // All episodes are identical.
        assert!(judged.returns[1].standard_error().unwrap() < 1e-14);
        // delta = -1 - 2 (s - 1) + 2 s = 1: the mean of s delta over the root of the mean of s^2.
        let (sum, squares) = (4.0 * 6.0 + 5.0, 4.0 * 14.0 + 13.0);
        let expected = sum / 14.0 / (squares / 14.0f64).sqrt();
        assert!((judged.bellman[1].rms().unwrap() - expected).abs() < 1e-14);
        let (difference, _) = judged.returns[1].minus(&judged.returns[0]);
        assert_eq!(difference, judged.returns[1].rms());
    }

    /// Episodes of random length, states and rewards.
    fn random(episodes: usize, seed: u64) -> Log {
        let mut s = stream(seed, Purpose::Fresh, 0, 0);
        let mut log = chain(0).filtered(|_| false);
        for episode in 0..episodes {
            let length = 1 + (s.uniform() * 6.0) as usize;
            let (level, mut x) = (s.normal(), s.normal());
            for step in 0..length {
                let following = 0.5 * x + s.normal();
                log.states.push(x);
                log.next.push(following);
                log.rewards.push(level + s.normal());
                log.done.push(step + 1 == length && s.uniform() < 0.8);
                log.episode.as_mut().unwrap().push(episode as i64);
                x = following;
            }
        }
        log
    }

    #[test]
    fn standard_errors_are_those_of_the_jackknife_and_of_repetition() {
        let map = FeatureMap::new(&FeatureSpec::Identity { bias: true }, &["s_0".into()], &Ranges::new()).unwrap();
        let theta: [&[f64]; 2] = [&[1.0, 0.5], &[-0.5, 1.0]];
        let log = random(400, 1);
        let judged = judge(&log, &map, rule(0.9), &theta).unwrap();
        // Each episode left out in turn.
        let rms = |judged: &Judged| {
            let [a, b] = [0, 1].map(|j| (judged.bellman[j].rms().unwrap(), judged.returns[j].rms().unwrap()));
            [a.0, a.1, b.0 - a.0, b.1 - a.1]
        };
        let whole = judged.returns[0].parts[0].episodes.len() as f64;
        let left_out: Vec<[f64; 4]> = (0..400)
            .map(
                |episode| rms(&judge(&log.filtered(|row| log.episode.as_ref().unwrap()[row] != episode), &map, rule(0.9), &theta).unwrap()),
            )
            .collect();
        let stated = [
            judged.bellman[0].standard_error(),
            judged.returns[0].standard_error(),
            judged.bellman[1].minus(&judged.bellman[0]).1,
            judged.returns[1].minus(&judged.returns[0]).1,
        ];
        for (i, stated) in stated.into_iter().enumerate() {
            let count = if i % 2 == 0 { 400.0 } else { whole };
            let all = rms(&judged)[i];
            let jackknife = ((count - 1.0) / count * left_out.iter().map(|x| (x[i] - all).powi(2)).sum::<f64>()).sqrt();
            assert!((stated.unwrap() / jackknife - 1.0).abs() < 0.02, "{i}: {stated:?} {jackknife}");
        }
    }

    /// An agent with a single episode among agents with many: its contribution is its difference from them.
    #[test]
    fn a_single_episode_of_one_agent_leaves_the_error_of_all_known() {
        let map = identity();
        let theta: [&[f64]; 2] = [&[1.0], &[-0.5]];
        let judged: Vec<Judged> = [(400, 5), (1, 6)]
            .map(|(episodes, seed)| {
                let mut log = random(episodes, seed);
                // The last row of the single episode ends it, so that it has returns.
                *log.done.last_mut().unwrap() = true;
                judge(&log, &map, rule(0.9), &theta).unwrap()
            })
            .into();
        assert_eq!(judged[1].bellman[0].standard_error(), None);
        fn bellman(judged: &Judged) -> &[Errors] {
            &judged.bellman
        }
        fn against_returns(judged: &Judged) -> &[Errors] {
            &judged.returns
        }
        for pick in [bellman, against_returns] {
            let of_all = |j: usize| Errors::of_all(judged.iter().map(|judged| &pick(judged)[j]));
            let (large, all) = (&pick(&judged[0])[0], of_all(0));
            assert_eq!((all.single_episodes(), large.single_episodes()), (1, 0));
            // One of 401 episodes changes little.
            let (se, of_large) = (all.standard_error().unwrap(), large.standard_error().unwrap());
            assert!((se / of_large - 1.0).abs() < 0.1, "{se}, {of_large}");
            assert!(all.minus(&of_all(1)).1.is_some());
            // If each agent has one episode, the agents are the sample.
            let single = &pick(&judged[1])[0];
            assert_eq!(Errors::of_all([single, single]).standard_error().map(|se| se < 1e-12), Some(true), "they are alike");
        }
    }

    #[test]
    fn what_is_rounding_is_told_by_the_size_of_the_values() {
        // Values that are exact up to a rounding in the last digits, of a size of 2e8.
        let mut log = chain(4);
        log.rewards.iter_mut().for_each(|r| *r *= 1e8);
        let judged = judge(&log, &identity(), rule(1.0), &[&[-1e8], &[-1e8 * (1.0 + 1e-14)], &[-1e8 * (1.0 + 1e-6)]]).unwrap();
        for errors in [&judged.returns, &judged.bellman] {
            let rounding = errors[0].rounding();
            assert!((0.1..1.0).contains(&rounding), "{rounding}");
            assert!(errors[1].rms().unwrap() < rounding && errors[2].rms().unwrap() > rounding);
        }
    }
}
