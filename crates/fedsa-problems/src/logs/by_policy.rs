//! Logs of one policy for the evaluation of another one that is a function of states.
//!
//! Such a policy gives each transition the probabilities of all actions in the state and in the next state, and an importance ratio, if the
//! log has the probability of the taken action under the policy that acted.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use fedsa::error::{Error, Result, quoted};
use sha2::{Digest as _, Sha256};

use crate::logs::left_out::LeftOutRows;
use crate::logs::log::{Log, LoggedActions};
use crate::logs::source::{LogSource, read_checked};

/// The share of a log's episodes that may equal episodes of the fit: short episodes in few states do by chance.
const COINCIDENCES: f64 = 0.5;

/// A policy that is a function of states: writes the probabilities of K actions.
pub type StatePolicy<'a> = &'a (dyn Fn(&[f64], &mut [f64]) + Sync);

/// A policy in a file.
pub trait KnownPolicy: Send + Sync {
    /// The names of the state columns.
    fn columns(&self) -> &[String];
    /// The number of actions K.
    fn actions(&self) -> usize;
    /// Writes the probabilities of the actions in a state, with its columns in the order of [`KnownPolicy::columns`].
    fn write(&self, state: &[f64], law: &mut [f64]);
    /// The hashes of the episodes from which it was found ([`episode_hashes`]), without those that occurred twice: they are of episodes that
    /// many logs have. Values of the episodes of the fit would be too good.
    fn training(&self) -> &HashSet<String>;
    /// The discount factor of the values that it follows, if it is known.
    fn gamma(&self) -> Option<f64>;
    /// The names of columns in the files of its logs, by their names in logs; empty if they were the same.
    fn file_columns(&self) -> &BTreeMap<String, String>;
}

/// The log with the probabilities of this policy and importance ratios, if it has the probabilities of the policy that acted.
///
/// # Errors
/// When the log has no actions.
pub fn described(log: &Log, policy: StatePolicy<'_>) -> Result<Log> {
    let Some(actions) = &log.actions else {
        return Err(Error::data(&log.name, "a log without actions", "the number of the action that was taken in each row"));
    };
    let mut law = vec![0.0; actions.count];
    let mut of = |state: &[f64], to: &mut Vec<f64>| {
        policy(state, &mut law);
        to.extend_from_slice(&law);
    };
    let (mut here, mut next) = (Vec::new(), Vec::new());
    for i in 0..log.len() {
        of(log.state(i), &mut here);
        // After a terminal transition any numbers will do.
        of(if log.done[i] { log.state(i) } else { log.next_state(i) }, &mut next);
    }
    let taken = |i: usize| here.get(i * actions.count + actions.taken[i] as usize).copied().unwrap_or(f64::NAN);
    let ratio = (!actions.behaviour.is_empty()).then(|| actions.behaviour.iter().enumerate().map(|(i, p)| taken(i) / p).collect());
    let actions = LoggedActions { here, next, behaviour: Vec::new(), ..actions.clone() };
    Ok(Log { ratio, actions: Some(actions), ..log.clone() })
}

/// The hashes of all episodes of a log: of states, actions and rewards, 16 hexadecimal digits each.
///
/// # Errors
/// When the log cannot be read.
pub fn episode_hashes(source: &dyn LogSource) -> Result<Vec<String>> {
    let (mut hashes, mut hash) = (Vec::new(), Sha256::new());
    let mut end = |hash: &mut Sha256| {
        let digest = std::mem::take(hash).finalize();
        hashes.push(digest[..8].iter().map(|byte| format!("{byte:02x}")).collect());
    };
    read_checked(source, &mut |batch| {
        let taken = batch.log.actions.as_ref().map_or(&[][..], |actions| &actions.taken);
        for i in 0..batch.log.len() {
            if batch.begins(i) && batch.first + i > 0 {
                end(&mut hash);
            }
            batch.log.state(i).iter().for_each(|x| hash.update(x.to_le_bytes()));
            hash.update(taken.get(i).map_or([0; 4], |action| action.to_le_bytes()));
            hash.update(batch.log.rewards[i].to_le_bytes());
        }
        Ok(())
    })?;
    end(&mut hash);
    Ok(hashes)
}

/// A log with the probabilities of a policy and importance ratios.
struct ByPolicy {
    source: Box<dyn LogSource>,
    policy: Arc<dyn KnownPolicy>,
    /// For each column of the policy its position in the log's states.
    positions: Vec<usize>,
}

/// The logs for the evaluation of this policy.
///
/// # Errors
/// When a log lacks a state column of the policy, cannot be read, or most of its episodes are those from which the policy was found.
pub(crate) fn by_policy(sources: Vec<Box<dyn LogSource>>, policy: &Arc<dyn KnownPolicy>) -> Result<Vec<Box<dyn LogSource>>> {
    let one = |source: Box<dyn LogSource>| -> Result<Box<dyn LogSource>> {
        let find = |name: &String| {
            source.columns().iter().position(|own| own == name).ok_or_else(|| {
                let what = format!("{} has no state column {}, which the policy needs", quoted(source.name()), quoted(name));
                Error::data("policy", what, "logs with the state columns of the policy")
            })
        };
        let positions = policy.columns().iter().map(find).collect::<Result<_>>()?;
        let hashes = if policy.training().is_empty() { Vec::new() } else { episode_hashes(&*source)? };
        let known = hashes.iter().filter(|hash| policy.training().contains(*hash)).count();
        if known as f64 > COINCIDENCES * hashes.len() as f64 {
            let what = format!("the policy was found from {known} of the {} episodes of {}", hashes.len(), quoted(source.name()));
            return Err(Error::data("policy", what, "logs of other episodes: a value on those of the fit would be too good"));
        }
        Ok(Box::new(ByPolicy { source, policy: Arc::clone(policy), positions }))
    };
    sources.into_iter().map(one).collect()
}

impl LogSource for ByPolicy {
    fn name(&self) -> &str {
        self.source.name()
    }
    fn columns(&self) -> &[String] {
        self.source.columns()
    }
    fn left_out(&self) -> Vec<LeftOutRows> {
        self.source.left_out()
    }
    fn next_follows(&self) -> bool {
        self.source.next_follows()
    }
    fn read(&self, see: &mut dyn FnMut(&Log) -> Result<()>) -> Result<()> {
        let policy = |state: &[f64], law: &mut [f64]| {
            let state: Vec<f64> = self.positions.iter().map(|i| state[*i]).collect();
            self.policy.write(&state, law);
        };
        self.source.read(&mut |log| {
            let described = described(log, &policy)?;
            if described.ratio.is_none() {
                let what = format!("{} has no column `behaviour`", quoted(self.name()));
                let help = "the probability of each logged action under the policy that acted, in a column `behaviour`";
                return Err(Error::data("policy", what, help));
            }
            see(&described)
        })
    }
    fn located(&self, e: Error) -> Error {
        self.source.located(e)
    }
}
