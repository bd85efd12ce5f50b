//! Faulty answers, and the agents that are excluded because of them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::federation::rules::Faults;
use crate::linalg::norm_sq;
use crate::message::{Body, Part, Unit};
use crate::protocol::{are_finite, refused};
use crate::server::ClientUpdate;

/// An agent that was excluded because of a faulty answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Exclusion {
    /// The agent.
    pub agent: usize,
    /// The round in which its answer arrived.
    pub round: u64,
    /// The exchange within the round.
    pub exchange: u8,
    /// The reason.
    pub reason: String,
}

/// The largest median norm so far of each part of the answers to each exchange. Near the root, norms of methods with control variates go to
/// 0, while an agent that joins or is readmitted sends norms as large as at the start.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Medians(BTreeMap<(u8, u8), f64>);

impl Medians {
    /// Returns the largest median before, if any, and updates it with the median of these norms.
    fn see(&mut self, exchange: u8, part: Part, norms: &[Option<f64>]) -> Option<f64> {
        let mut all: Vec<f64> = norms.iter().flatten().copied().collect();
        all.sort_by(f64::total_cmp);
        let key = (exchange, part.tag());
        let before = self.0.get(&key).copied();
        if let Some(median) = all.get(all.len().saturating_sub(1) / 2).filter(|x| all.len() >= LEAST && x.is_finite()) {
            self.0.insert(key, before.unwrap_or(0.0).max(*median));
        }
        before
    }
}

/// The smallest number of answers among which one can be an outlier.
const LEAST: usize = 3;

/// Removes faulty answers, and returns their agents with the reasons. If there are more than `most`, none is removed.
pub(super) fn remove(
    updates: &mut [Option<ClientUpdate>],
    exchange: u8,
    rule: Faults,
    most: usize,
    medians: &mut Medians,
) -> Vec<(usize, Error)> {
    let Faults::Exclude { norm_limit } = rule else { return Vec::new() };
    let mut faults: Vec<Option<Error>> = updates.iter().map(|update| not_finite(update.as_ref()?)).collect();
    let parts = updates.iter().flatten().next().map_or(Vec::new(), |update| update.parts.iter().map(|(part, _)| *part).collect());
    for part in parts.into_iter().filter(|part| part.unit() != Unit::Nothing && !part.is_packed()) {
        let norms: Vec<Option<f64>> = updates.iter().zip(&faults).map(|(update, fault)| norm(update.as_ref()?, part, fault)).collect();
        let largest = medians.see(exchange, part, &norms);
        for (fault, (norm, median)) in faults.iter_mut().zip(norms.iter().zip(medians_of_others(&norms))) {
            let usual = median.into_iter().chain(largest).fold(0.0, f64::max);
            if let Some(norm) = norm
                && usual > 0.0
                && *norm > norm_limit * usual
                && fault.is_none()
            {
                let what = format!("{part} of norm {norm:e}, and the median of the answers is or was {usual:e}");
                *fault = Some(refused(what, &format!("at most {norm_limit} times that median")));
            }
        }
    }
    if faults.iter().flatten().count() > most {
        return Vec::new();
    }
    let remove = |(update, fault): (&mut Option<ClientUpdate>, Option<Error>)| Some((fault?, update.take()?.agent));
    updates.iter_mut().zip(faults).filter_map(remove).map(|(fault, agent)| (agent, fault)).collect()
}

/// The fault of an answer whose numbers are not finite.
fn not_finite(update: &ClientUpdate) -> Option<Error> {
    (!are_finite(&update.parts)).then(|| refused("numbers that are no longer finite", "finite numbers"))
}

/// The norm of a part, unless the answer has a fault.
fn norm(update: &ClientUpdate, part: Part, fault: &Option<Error>) -> Option<f64> {
    if fault.is_some() {
        return None;
    }
    match &update.parts.iter().find(|(p, _)| *p == part)?.1 {
        Body::Numbers(x) | Body::Sparse { value: x, .. } => Some(norm_sq(x).sqrt()),
        Body::Packed(_) => None,
    }
}

/// For each norm the median of all others (of two the lower one); `None` if there are fewer than two others.
fn medians_of_others(norms: &[Option<f64>]) -> Vec<Option<f64>> {
    let mut order: Vec<usize> = (0..norms.len()).filter(|i| norms[*i].is_some()).collect();
    order.sort_by(|i, j| norms[*i].unwrap_or(0.0).total_cmp(&norms[*j].unwrap_or(0.0)));
    let mut medians = vec![None; norms.len()];
    if order.len() >= LEAST {
        let middle = (order.len() - 2) / 2;
        for (at, i) in order.iter().enumerate() {
            let of = order[if at <= middle { middle + 1 } else { middle }];
            medians[*i] = norms[of];
        }
    }
    medians
}

#[cfg(test)]
mod tests {
    use super::*;

    fn updates(vectors: &[&[f64]]) -> Vec<Option<ClientUpdate>> {
        let one = |(agent, x): (usize, &&[f64])| {
            Some(ClientUpdate { agent, answers: 0, weight: 0.25, parts: vec![(Part::Direction, Body::Numbers(x.to_vec()))] })
        };
        vectors.iter().enumerate().map(one).collect()
    }

    fn removed_of(all: &mut [Option<ClientUpdate>], medians: &mut Medians) -> Vec<(usize, Error)> {
        let most = all.len().saturating_sub(1) / 2;
        remove(all, 0, Faults::Exclude { norm_limit: 10.0 }, most, medians)
    }

    fn removed(vectors: &[&[f64]]) -> Vec<usize> {
        let mut all = updates(vectors);
        let faults = removed_of(&mut all, &mut Medians::default());
        let agents: Vec<usize> = faults.iter().map(|(agent, _)| *agent).collect();
        assert!((0..all.len()).all(|c| all[c].is_none() == agents.contains(&c)));
        agents
    }

    #[test]
    fn the_limit_is_that_of_the_median_of_the_others() {
        assert_eq!(removed(&[&[1.0], &[2.0], &[3.0], &[1e200]]), [3]);
        // The median of 1 and 2 is 1.
        assert_eq!(removed(&[&[1.0], &[2.0], &[10.0]]), [0usize; 0]);
        assert_eq!(removed(&[&[1.0], &[2.0], &[10.5]]), [2]);
        assert_eq!(removed(&[&[1.0], &[f64::NAN], &[1.0]]), [1]);
        assert_eq!(removed(&[&[1.0], &[f64::NAN], &[1.0], &[1e9], &[2.0]]), [1, 3]);
        // Two answers, or a median of 0, have no outliers; half of the agents are never at fault.
        assert_eq!(removed(&[&[1.0], &[1e200]]), [0usize; 0]);
        assert_eq!(removed(&[&[0.0], &[0.0], &[1.0]]), [0usize; 0]);
        assert_eq!(removed(&[&[f64::NAN], &[f64::NAN], &[1.0], &[1.0]]), [0usize; 0]);
        assert_eq!(removed(&[]), [0usize; 0]);
        let mut all = updates(&[&[1.0], &[2.0], &[f64::NAN]]);
        assert!(remove(&mut all, 0, Faults::End, 3, &mut Medians::default()).is_empty() && all.iter().all(Option::is_some));
    }

    /// Norms as large as all once sent are accepted later, much larger ones are not, also without a present median.
    #[test]
    fn the_largest_median_so_far_is_remembered() {
        let mut medians = Medians::default();
        let mut later = |vectors: &[&[f64]]| {
            let faults = removed_of(&mut updates(vectors), &mut medians);
            faults.into_iter().map(|(agent, _)| agent).collect::<Vec<_>>()
        };
        assert_eq!(later(&[&[1.0], &[2.0], &[3.0]]), [0usize; 0]);
        assert_eq!(later(&[&[1e-9], &[2e-9], &[5.0]]), [0usize; 0], "one that joins");
        assert_eq!(later(&[&[1e-9], &[2e-9], &[21.0]]), [2]);
        assert_eq!(later(&[&[0.0], &[0.0], &[21.0]]), [2]);
        assert_eq!(later(&[&[5.0], &[1e200], &[f64::NAN]]), [0usize; 0], "two of three");
        assert_eq!(remove(&mut updates(&[&[5.0], &[1e200]]), 0, Faults::Exclude { norm_limit: 10.0 }, 1, &mut medians)[0].0, 1);
        let other_exchange = remove(&mut updates(&[&[5.0], &[1e200]]), 1, Faults::Exclude { norm_limit: 10.0 }, 1, &mut medians);
        assert!(other_exchange.is_empty());
    }
}
