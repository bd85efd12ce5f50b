//! Terms: settings that both ends know before enrolment: method, link, seed, start, and the problem's description.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::ColumnSummary;
use crate::error::{Result, require};
use crate::federation::description::digest;
use crate::federation::{Description, Federation};
use crate::method::MethodSettings;
use crate::protocol::refused;
use crate::record::OutputRule;
use crate::uplink::Uplink;

/// The settings that each end's operator provides.
#[derive(Clone)]
pub struct Terms {
    method: Arc<dyn MethodSettings>,
    uplink: Uplink,
    seed: u64,
    output: OutputRule,
    start: Option<Vec<f64>>,
    share: Share,
    problem: Description,
    forms: fn(&str, &str) -> Option<String>,
}

/// How agents are weighted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Share {
    Rows,
    Equal,
}

/// Separate hashes of all terms, so that a refusal can name the difference.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct TermsHashes {
    method: u64,
    link: u64,
    problem: u64,
    sampling: u64,
    seed: u64,
    run: u64,
}

impl TermsHashes {
    /// Refuses terms that differ from these.
    pub fn check(&self, other: &Self) -> Result<()> {
        let pairs = [
            ("the method", self.method, other.method),
            ("the link", self.link, other.link),
            ("the problem", self.problem, other.problem),
            ("sampling", self.sampling, other.sampling),
            ("the seed", self.seed, other.seed),
            ("start, output or weighting", self.run, other.run),
        ];
        let differing: Vec<&str> = pairs.iter().filter(|(_, a, b)| a != b).map(|(name, ..)| *name).collect();
        if differing.is_empty() {
            return Ok(());
        }
        Err(refused(format!("settings that differ in {}", differing.join(", ")), "the settings of this end"))
    }
}

impl Terms {
    /// A method over a clear link with seed 0, start 0 and weights by rows. `problem` has the settings that must agree at all ends. Its
    /// dimension need not agree, because it may be unknown before agents apply.
    #[must_use]
    pub fn new(method: &dyn MethodSettings, problem: Description) -> Self {
        let (method, problem) = (method.shared(), problem.of_dim(0));
        Self {
            method,
            uplink: Uplink::default(),
            seed: 0,
            output: OutputRule::Last,
            start: None,
            share: Share::Rows,
            problem,
            forms: |_, _| None,
        }
    }

    /// The link.
    #[must_use]
    pub fn with_uplink(self, uplink: &Uplink) -> Self {
        Self { uplink: uplink.clone(), ..self }
    }

    /// The seed.
    #[must_use]
    pub fn with_seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// The output rule.
    #[must_use]
    pub fn with_output(self, output: OutputRule) -> Self {
        Self { output, ..self }
    }

    /// `theta_0`, d components.
    #[must_use]
    pub fn with_start(self, start: Vec<f64>) -> Self {
        Self { start: Some(start), ..self }
    }

    /// Weights agents equally.
    #[must_use]
    pub fn with_equal_weights(self) -> Self {
        Self { share: Share::Equal, ..self }
    }

    /// How to say where a second form of data ([`super::Applicant::with_form`]) differs from a first one, such as by the first column.
    #[must_use]
    pub fn with_forms(self, forms: fn(&str, &str) -> Option<String>) -> Self {
        Self { forms, ..self }
    }

    /// The difference between two forms, in words.
    pub(super) fn difference_of_forms(&self, usual: Option<&str>, own: Option<&str>) -> String {
        usual.zip(own).and_then(|(usual, own)| (self.forms)(usual, own)).unwrap_or_else(|| {
            "data of another form: other columns, another number of them, other classes, or other scales of targets".into()
        })
    }

    /// The weights of agents with these rows, each with the sum of its rows' weights if rows have weights.
    pub(super) fn weights(&self, agents: &[(u64, Option<f64>)]) -> Vec<f64> {
        // 128 bits: many agents may have 2^53 rows each.
        let all: u128 = agents.iter().map(|(n, _)| u128::from(*n)).sum();
        if self.share == Share::Equal {
            return vec![1.0 / agents.len() as f64; agents.len()];
        }
        match agents.iter().map(|(_, weighted)| *weighted).collect::<Option<Vec<f64>>>() {
            None => agents.iter().map(|(n, _)| *n as f64 / all as f64).collect(),
            Some(each) => {
                let all: f64 = each.iter().sum();
                each.iter().map(|own| own / all).collect()
            }
        }
    }

    /// Whether the sums of rounds have noise for privacy.
    pub fn has_privacy(&self) -> bool {
        self.uplink.privacy().is_some()
    }

    /// Whether sums are secure.
    pub fn has_secure_sums(&self) -> bool {
        self.uplink.secure_sum().is_some()
    }

    pub(super) fn hashes(&self) -> TermsHashes {
        TermsHashes {
            method: digest(&*self.method),
            link: digest(&self.uplink),
            problem: digest(&self.problem.without_sampling()),
            sampling: digest(&self.problem.sampling()),
            seed: digest(&self.seed),
            run: digest(&(&self.start, self.output, self.share)),
        }
    }

    /// The first iterate.
    pub(super) fn start_of(&self, dim: usize) -> Result<Vec<f64>> {
        require(dim > 0, "dim", dim, "one component or more")?;
        let Some(start) = &self.start else { return Ok(vec![0.0; dim]) };
        require(start.len() == dim, "start", format!("{} components", start.len()), &format!("{dim} components"))?;
        Ok(start.clone())
    }

    /// Whether a first iterate agrees with these terms.
    pub(super) fn agrees_on(&self, start: &[f64]) -> bool {
        match &self.start {
            Some(own) => own == start,
            None => start.iter().all(|x| *x == 0.0),
        }
    }

    /// The federation of agents with these weights.
    pub(super) fn federation(&self, weights: &[f64], start: Vec<f64>, columns: &[ColumnSummary]) -> Result<Federation> {
        let problem = self.problem.clone().of_dim(start.len()).agreeing_on(&columns);
        let federation = Federation::new(&*self.method, &self.uplink, weights, self.seed, start)?;
        Ok(federation.with_output(self.output).of_problem(problem))
    }
}
