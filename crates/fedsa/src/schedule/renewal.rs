//! Renewals of agents' Hessians, and the number of eigenpairs that agents send in a round.

use serde::{Deserialize, Serialize};

use crate::error::{Result, require};
use crate::random::Stream;
use crate::settings::choice;

/// The rounds of new Hessians (\[T\] sec. 2.5.1); iteration i of \[T\] is round i - 1.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "schedule", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Renewal {
    /// Once, in round 0.
    Once,
    /// Rounds 0, T, 2 T, ..
    Every {
        /// T.
        #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
        period: u64,
    },
    /// Iterations 1, 2, 4, 7, 12, .. (Fibonacci distances) up to d - 1, then every d - 1.
    Fibonacci,
    /// When the norm of the mean gradient falls by less than `factor` times its last decrease, at the latest after d rounds. The server
    /// decides.
    GradientNorm {
        /// b, in (0, 1).
        #[serde(default = "factor")]
        #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0, "exclusiveMaximum" = 1)))]
        factor: f64,
        /// Fewest rounds between renewals.
        #[serde(default = "min_distance")]
        #[cfg_attr(feature = "schema", schemars(range(min = 3)))]
        min_distance: u64,
    },
    /// These rounds, increasing from 0.
    Rounds {
        /// The rounds.
        rounds: Vec<u64>,
    },
}

fn factor() -> f64 {
    0.95
}

fn min_distance() -> u64 {
    12
}

impl Renewal {
    /// # Errors
    /// When a setting is out of range; `key` is the name of this one.
    pub fn check(&self, key: &str) -> Result<()> {
        match self {
            Renewal::Once | Renewal::Fibonacci => Ok(()),
            Renewal::Every { period } => require(*period >= 1, &format!("{key}.period"), period, "at least 1"),
            Renewal::GradientNorm { factor, min_distance } => {
                require(*factor > 0.0 && *factor < 1.0, &format!("{key}.factor"), factor, "above 0 and below 1")?;
                require(*min_distance >= 3, &format!("{key}.min_distance"), min_distance, "at least 3")
            }
            Renewal::Rounds { rounds } => {
                let increase = rounds.first() == Some(&0) && rounds.is_sorted_by(|a, b| a < b);
                require(increase, &format!("{key}.rounds"), format!("{rounds:?}"), "rounds that increase, the first of which is 0")
            }
        }
    }

    /// The last renewal in or before round t, for vectors of d components; `None` if the server decides.
    pub fn last(&self, t: u64, d: usize) -> Option<u64> {
        match self {
            Renewal::Once => Some(0),
            Renewal::Every { period } => Some(t - t % period),
            Renewal::Fibonacci => Some(fibonacci(t, d).0),
            Renewal::GradientNorm { .. } => None,
            Renewal::Rounds { rounds } => Some(rounds[rounds.partition_point(|r| *r <= t).max(1) - 1]),
        }
    }

    /// The number of rounds from t (included) to the next renewal, at most d. If the server decides: the number that certainly follow a
    /// renewal in round t.
    pub fn rounds_left(&self, t: u64, d: usize) -> u64 {
        let next = match self {
            Renewal::Once => None,
            Renewal::Every { period } => (t - t % period).checked_add(*period),
            Renewal::Fibonacci => Some(fibonacci(t, d).1),
            Renewal::GradientNorm { min_distance, .. } => t.checked_add(*min_distance),
            Renewal::Rounds { rounds } => rounds.get(rounds.partition_point(|r| *r <= t)).copied(),
        };
        next.map_or(d as u64, |next| (next - t).min(d as u64))
    }
}

/// The last renewal in or before round t and the first one after it.
fn fibonacci(t: u64, d: usize) -> (u64, u64) {
    let most = (d as u64).saturating_sub(1).max(1);
    // I_j and the next distance, F_{j+1}.
    let (mut iteration, mut distance, mut after) = (1u64, 1u64, 2u64);
    while iteration < most {
        if iteration + distance > t + 1 {
            return (iteration - 1, iteration + distance - 1);
        }
        iteration += distance;
        (distance, after) = (after, distance + after);
    }
    let whole = (t + 1).saturating_sub(iteration) / most;
    let last = iteration + whole * most;
    (last - 1, last + most - 1)
}

/// Eigenpairs per agent and round, `d_t`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Pairs {
    /// The same always.
    Same(#[cfg_attr(feature = "schema", schemars(range(min = 1)))] usize),
    /// One for each agent.
    Each(Vec<usize>),
    /// Drawn per agent and round.
    Drawn(Drawn),
}

/// The name of a law.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Drawn {
    /// Uniform on 1, 2, .., 7.
    Random,
}

/// The largest number that [`Drawn::Random`] draws.
const MAX_DRAWN: usize = 7;

choice!(Pairs, "a positive whole number, a list of such numbers (one for each agent), or \"random\"",
    whole usize => |n| Ok(Pairs::Same(n)),
    list Vec<usize> => |list| Ok(Pairs::Each(list)),
    text Drawn => |drawn| Ok(Pairs::Drawn(drawn)),
);

impl Pairs {
    /// # Errors
    /// When a number is 0, or their number is not N (`usize::MAX` if N is not yet known).
    pub fn check(&self, agents: usize) -> Result<()> {
        match self {
            Pairs::Same(n) => require(*n >= 1, "pairs", n, "at least 1"),
            Pairs::Each(list) => {
                let fits = list.iter().all(|n| *n >= 1) && (list.len() == agents || agents == usize::MAX);
                require(fits, "pairs", format!("{list:?}"), &format!("a positive number for each of {agents} agents"))
            }
            Pairs::Drawn(Drawn::Random) => Ok(()),
        }
    }

    /// The largest number that agent c sends in a round.
    pub fn most(&self, c: usize) -> usize {
        match self {
            Pairs::Same(n) => *n,
            Pairs::Each(list) => list[c],
            Pairs::Drawn(Drawn::Random) => MAX_DRAWN,
        }
    }

    /// The largest number that any agent sends in a round.
    pub fn most_of_all(&self) -> usize {
        match self {
            Pairs::Each(list) => list.iter().copied().max().unwrap_or(0),
            other => other.most(0),
        }
    }

    /// The number that agent c sends in a round; `stream` is its stream of the round.
    pub fn of(&self, c: usize, stream: impl FnOnce() -> Stream) -> usize {
        match self {
            Pairs::Drawn(Drawn::Random) => 1 + ((stream().uniform() * MAX_DRAWN as f64) as usize).min(MAX_DRAWN - 1),
            fixed => fixed.most(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Purpose, stream};

    fn renewals(renewal: &Renewal, rounds: u64, d: usize) -> Vec<u64> {
        (0..rounds).filter(|t| renewal.last(*t, d) == Some(*t)).map(|t| t + 1).collect()
    }

    #[test]
    fn fibonacci_renewals_are_those_of_the_thesis() {
        let start = [1, 2, 4, 7, 12, 20, 33, 54, 88, 143, 232, 376];
        // d = 300: 376 is the first iteration that reaches 299; then every 299.
        assert_eq!(renewals(&Renewal::Fibonacci, 1400, 300), [&start[..], &[675, 974, 1273]].concat());
        assert_eq!(renewals(&Renewal::Fibonacci, 225, 300).len(), 10);
        assert_eq!((renewals(&Renewal::Fibonacci, 376, 300).len(), renewals(&Renewal::Fibonacci, 674, 300).len()), (12, 12));
        assert_eq!(renewals(&Renewal::Fibonacci, 60, 20), [1, 2, 4, 7, 12, 20, 39, 58]);
        assert_eq!(renewals(&Renewal::Fibonacci, 5, 2), [1, 2, 3, 4, 5]);
        assert_eq!(renewals(&Renewal::Fibonacci, 3, 1), [1, 2, 3]);
    }

    #[test]
    fn the_next_renewal_is_where_the_last_one_changes() {
        let list = Renewal::Rounds { rounds: vec![0, 3, 4, 90] };
        for d in [1, 2, 5, 20, 300] {
            for renewal in [Renewal::Once, Renewal::Every { period: 7 }, Renewal::Every { period: 1 }, Renewal::Fibonacci, list.clone()] {
                for t in 0..400 {
                    let last = renewal.last(t, d).unwrap();
                    assert!(last <= t && renewal.last(last, d) == Some(last));
                    let left = renewal.rounds_left(t, d);
                    assert!(left >= 1 && left <= d as u64);
                    assert_eq!(renewal.last(t + left - 1, d), Some(last), "{renewal:?} {t}");
                    assert!(left == d as u64 || renewal.last(t + left, d) == Some(t + left), "{renewal:?} {t} {d}");
                }
            }
        }
        assert_eq!(renewals(&list, 100, 5), [1, 4, 5, 91]);
    }

    #[test]
    fn settings_out_of_range_are_refused() {
        assert_eq!(Renewal::Every { period: 0 }.check("renewal").unwrap_err().key, "renewal.period");
        assert_eq!(Renewal::GradientNorm { factor: 0.95, min_distance: 2 }.check("renewal").unwrap_err().key, "renewal.min_distance");
        assert_eq!(Renewal::GradientNorm { factor: 1.0, min_distance: 12 }.check("renewal").unwrap_err().key, "renewal.factor");
        for rounds in [vec![], vec![1], vec![0, 0], vec![0, 5, 4]] {
            assert!(Renewal::Rounds { rounds }.check("renewal").is_err());
        }
        assert!(Pairs::Same(0).check(3).is_err() && Pairs::Each(vec![1, 2]).check(3).is_err() && Pairs::Each(vec![1, 0]).check(2).is_err());
        assert!(Pairs::Each(vec![1, 2]).check(usize::MAX).is_ok() && Pairs::Each(vec![1, 2]).check(2).is_ok());
        for (json, accepted) in [("3", true), ("[1, 2]", true), ("\"random\"", true), ("\"some\"", false), ("-1", false), ("1.5", false)] {
            assert_eq!(serde_json::from_str::<Pairs>(json).is_ok(), accepted, "{json}");
        }
    }

    #[test]
    fn random_numbers_of_pairs_are_uniform_on_one_to_seven() {
        let mut counts = [0usize; 8];
        (0..7000).for_each(|t| counts[Pairs::Drawn(Drawn::Random).of(3, || stream(1, Purpose::Pairs, t, 3))] += 1);
        assert_eq!(counts[0], 0);
        // Each count is binomial: 1000 with a standard deviation of 29.3.
        assert!(counts[1..].iter().all(|n| n.abs_diff(1000) < 4 * 30), "{counts:?}");
    }
}
