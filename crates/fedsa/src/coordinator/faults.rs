//! Answers that nobody should believe, and the agents that are excluded because of them.

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::federation::rules::Faults;
use crate::linalg::norm_sq;
use crate::message::{Body, Part, Unit};
use crate::protocol::{are_finite, refused};
use crate::server::Letter;

/// An agent that is asked nothing more, because nobody should believe its answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Exclusion {
    /// The agent.
    pub agent: usize,
    /// The round and exchange in which its answer arrived.
    pub round: u64,
    /// The exchange within the round.
    pub exchange: u8,
    /// Why.
    pub reason: String,
}

/// Removes the answers that nobody should believe, and returns their agents with the reasons. If these are more than `most`, all stay.
pub(super) fn remove(letters: &mut [Option<Letter>], rule: Faults, most: usize) -> Vec<(usize, Error)> {
    let Faults::Exclude { norm_limit } = rule else { return Vec::new() };
    let mut faults: Vec<Option<Error>> = letters.iter().map(|letter| not_finite(letter.as_ref()?)).collect();
    let parts = letters.iter().flatten().next().map_or(Vec::new(), |letter| letter.parts.iter().map(|(part, _)| *part).collect());
    for part in parts.into_iter().filter(|part| part.unit() != Unit::Nothing && !part.is_packed()) {
        let norms: Vec<Option<f64>> = letters.iter().zip(&faults).map(|(letter, fault)| norm(letter.as_ref()?, part, fault)).collect();
        for (fault, (norm, median)) in faults.iter_mut().zip(norms.iter().zip(medians_of_others(&norms))) {
            if let (Some(norm), Some(median)) = (norm, median)
                && *norm > norm_limit * median
                && fault.is_none()
            {
                let what = format!("{part:?} of norm {norm:e}, and the median of the other answers is {median:e}");
                *fault = Some(refused(what, &format!("at most {norm_limit} times that median")));
            }
        }
    }
    if faults.iter().flatten().count() > most {
        return Vec::new();
    }
    let remove = |(letter, fault): (&mut Option<Letter>, Option<Error>)| Some((fault?, letter.take()?.agent));
    letters.iter_mut().zip(faults).filter_map(remove).map(|(fault, agent)| (agent, fault)).collect()
}

/// Why an answer is none, if its numbers are not finite.
fn not_finite(letter: &Letter) -> Option<Error> {
    (!are_finite(&letter.parts)).then(|| refused("numbers that are no longer finite", "finite numbers"))
}

/// The norm of a part of an answer without a fault.
fn norm(letter: &Letter, part: Part, fault: &Option<Error>) -> Option<f64> {
    if fault.is_some() {
        return None;
    }
    match &letter.parts.iter().find(|(p, _)| *p == part)?.1 {
        Body::Numbers(x) | Body::Sparse { value: x, .. } => Some(norm_sq(x).sqrt()),
        Body::Packed(_) => None,
    }
}

/// The median of all other norms for each of them (the lower one of two); `None` if there are fewer than two others, or it is 0.
fn medians_of_others(norms: &[Option<f64>]) -> Vec<Option<f64>> {
    let mut order: Vec<usize> = (0..norms.len()).filter(|i| norms[*i].is_some()).collect();
    order.sort_by(|i, j| norms[*i].unwrap_or(0.0).total_cmp(&norms[*j].unwrap_or(0.0)));
    let mut medians = vec![None; norms.len()];
    if order.len() >= 3 {
        let middle = (order.len() - 2) / 2;
        for (at, i) in order.iter().enumerate() {
            let of = order[if at <= middle { middle + 1 } else { middle }];
            medians[*i] = norms[of].filter(|median| *median > 0.0);
        }
    }
    medians
}

#[cfg(test)]
mod tests {
    use super::*;

    fn letters(vectors: &[&[f64]]) -> Vec<Option<Letter>> {
        let one = |(agent, x): (usize, &&[f64])| {
            Some(Letter { agent, answers: 0, weight: 0.25, parts: vec![(Part::Direction, Body::Numbers(x.to_vec()))] })
        };
        vectors.iter().enumerate().map(one).collect()
    }

    fn removed(vectors: &[&[f64]]) -> Vec<usize> {
        let mut all = letters(vectors);
        let faults = remove(&mut all, Faults::Exclude { norm_limit: 10.0 }, vectors.len().saturating_sub(1) / 2);
        let agents: Vec<usize> = faults.iter().map(|(agent, _)| *agent).collect();
        assert!((0..all.len()).all(|c| all[c].is_none() == agents.contains(&c)));
        agents
    }

    #[test]
    fn the_limit_is_that_of_the_median_of_the_others() {
        assert_eq!(removed(&[&[1.0], &[2.0], &[3.0], &[1e200]]), [3]);
        // Of 1 and 2 the lower one is the median.
        assert_eq!(removed(&[&[1.0], &[2.0], &[10.0]]), [0usize; 0]);
        assert_eq!(removed(&[&[1.0], &[2.0], &[10.5]]), [2]);
        assert_eq!(removed(&[&[1.0], &[f64::NAN], &[1.0]]), [1]);
        assert_eq!(removed(&[&[1.0], &[f64::NAN], &[1.0], &[1e9], &[2.0]]), [1, 3]);
        // Nobody is far from a median of two answers, or from 0; half of the agents are not at fault.
        assert_eq!(removed(&[&[1.0], &[1e200]]), [0usize; 0]);
        assert_eq!(removed(&[&[0.0], &[0.0], &[1.0]]), [0usize; 0]);
        assert_eq!(removed(&[&[f64::NAN], &[f64::NAN], &[1.0], &[1.0]]), [0usize; 0]);
        assert_eq!(removed(&[]), [0usize; 0]);
        let mut all = letters(&[&[1.0], &[2.0], &[f64::NAN]]);
        assert!(remove(&mut all, Faults::End, 3).is_empty() && all.iter().all(Option::is_some));
    }
}
