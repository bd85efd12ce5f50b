//! Problems as arrays: an MRP, an MDP with a policy, or linear systems.
//!
//! | arrays | shapes |
//! | --- | --- |
//! | `P` | (N, S, S), or (N, S, A, S) with `policy` (S, A) or (N, S, A) |
//! | `R` | (N, S), (N, S, A) or (N, S, S'); with a policy and A = S, read as (N, S, A) |
//! | `Phi` | (S, d) or (N, S, d) |
//! | `gamma` | scalar or (N,) |
//! | or `A`, `b` | (N, d, d), (N, d) |
//! | `noise_std`, `noise_memory` | optional: a scalar, and (d, d) or (N, d, d): additive noise |
//! | `weights` | optional, (N,): positive, divided by their sum |
//!
//! Other arrays are ignored. All numbers must be finite. The rows of `P` and `policy` sum to 1 within [`ROW_SUM_TOLERANCE`].

use std::sync::Arc;

use faer::Mat;
use serde::{Deserialize, Serialize};

use crate::linear::affine::Linear;
use crate::memory::{self, MemoryEstimate, Moves, TableSizes, check_transitions, reward_process};
use crate::noise::{self, Noise, Noisy};
use crate::scope::Scope;
use crate::td::mrp::{FederatedTd, Mrp, Successor};
use crate::td::td0::{Features, Td};
use crate::{Files, ProblemSettings};
use fedsa::cancel::Cancel;
use fedsa::error::{Error, ErrorKind, Result, quoted, require};
use fedsa::kernel::Isa;
use fedsa::problem::arrays::{Array, Arrays, shape_text};
use fedsa::problem::law::ROW_SUM_TOLERANCE;
use fedsa::problem::systems::{System, Systems};
use fedsa::problem::{Field, Problem, equal_weights, field};
use fedsa::sampling::Sampling;

/// The `file` problem.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ArrayFile {
    /// The `.npz` file.
    pub path: String,
    /// Additive noise, for files without `noise_std`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise: Option<Noise>,
    /// Accept singular agents.
    #[serde(default)]
    pub allow_singular_agents: bool,
}

impl ArrayFile {
    /// The arrays of the file `path`, without further noise.
    pub fn new(path: impl Into<String>) -> Self {
        Self { path: path.into(), noise: None, allow_singular_agents: false }
    }
}

fedsa::settings::setters! { ArrayFile {
    with_path(path: impl Into<String>) = path.into();
    with_noise(noise: impl Into<Option<Noise>>) = noise.into();
    with_allow_singular_agents(allow_singular_agents: bool) = allow_singular_agents;
} }

impl ProblemSettings for ArrayFile {
    fn check(&self) -> Result<()> {
        crate::noise::check(self.noise.as_ref())
    }

    fn own_to_each_end(&self) -> &'static [&'static str] {
        &["path"]
    }

    fn without_effect(&self, sampling: &Sampling) -> Option<Error> {
        self.noise.as_ref()?.without_effect(sampling)
    }

    fn field(&self, files: &dyn Files, sampling: Sampling, isa: Isa) -> Result<Arc<dyn Field>> {
        let arrays = files.arrays(&self.path)?;
        let named = |e: Error| {
            if e.kind() == ErrorKind::Cancelled {
                return e;
            }
            let what = format!("{}: {}", self.path, e);
            e.saying(what).about("path")
        };
        self.field_of_arrays(&arrays, sampling, isa, files.cancel()).map_err(named)
    }

    fn memory(&self, files: &dyn Files, sampling: Sampling, threads: usize) -> Result<MemoryEstimate> {
        Ok(self.memory_of_arrays(&files.arrays(&self.path)?, sampling, threads))
    }
}

/// The memory of the problem in these arrays. Shapes of invalid arrays do not matter: building the problem refuses them.
fn sizes(arrays: &Arrays, noise: Option<&Noise>, sampling: Sampling, threads: usize) -> MemoryEstimate {
    let own = arrays.find("noise_std").map(|_| own_noise_sizes(arrays));
    let noise = noise.or(own.as_ref());
    let source: f64 = arrays.iter().map(|(_, array)| 8.0 * array.data().len() as f64).sum();
    let dims = |name: &str| arrays.find(name).map(|array| array.shape().iter().map(|n| *n as f64).collect::<Vec<_>>());
    match (dims("P").as_deref(), dims("Phi").as_deref(), dims("A").as_deref()) {
        (Some(&[agents, states, .., next]), Some(phi @ &[.., d]), _) if agents >= 1.0 && states == next => {
            let each = arrays.find("P").map_or(1, |p| p.data().len() / agents as usize).max(1);
            let positive = |p: &[f64]| p.iter().filter(|p| **p > 0.0).count() as f64;
            let counts: Vec<f64> = arrays.find("P").map_or(Vec::new(), |p| p.data().chunks(each).map(positive).collect());
            let most = counts.iter().copied().fold(0.0, f64::max);
            let outcomes = each as f64 / states.max(1.0);
            let tables = TableSizes {
                agents,
                kinds: agents,
                d,
                rows: states,
                shared: phi.len() == 2,
                transitions: counts.iter().sum(),
                most,
                chain: Moves::States { states, outcomes },
                making: reward_process(states, most, states),
                source,
                solved: true,
            };
            let text = format!("{}, {states} states, {most} transitions each, d = {d}", memory::agents(agents as usize));
            MemoryEstimate::new(noise::with_noise(tables.memory(sampling, threads), noise, agents as usize, d as usize), text)
        }
        (None, _, Some(&[agents, d, _])) => {
            let sizes = memory::linear(agents, d, true, source, threads);
            MemoryEstimate::new(
                noise::with_noise(sizes, noise, agents as usize, d as usize),
                format!("{}, d = {d}", memory::agents(agents as usize)),
            )
        }
        _ => MemoryEstimate::new((source, source), "arrays".into()),
    }
}

/// Noise settings with the size of the file's noise.
fn own_noise_sizes(arrays: &Arrays) -> Noise {
    let is_shared = arrays.find("noise_memory").is_none_or(|m| m.shape().len() < 3);
    Noise { memory: if is_shared { Scope::Shared } else { Scope::PerAgent }, ..Noise::default() }
}

impl ArrayFile {
    /// The memory of [`ArrayFile::field_of_arrays`].
    pub fn memory_of_arrays(&self, arrays: &Arrays, sampling: Sampling, threads: usize) -> MemoryEstimate {
        sizes(arrays, self.noise.as_ref(), sampling, threads)
    }

    /// The problem in arrays in memory, under the rules for files.
    ///
    /// # Errors
    /// When an array is missing, or has a wrong shape or value; the error names the array.
    pub fn field_of_arrays(&self, arrays: &Arrays, sampling: Sampling, isa: Isa, cancel: &Cancel) -> Result<Arc<dyn Field>> {
        // A setting without effect is an error.
        if self.noise.is_some() && arrays.find("noise_std").is_some() {
            let what = "noise for a file that has noise of its own: noise_std";
            return Err(Error::new("noise", what, "no noise here, or a file without noise_std"));
        }
        match (arrays.find("P"), arrays.find("A")) {
            (Some(_), _) => self.joined(mdp(arrays, sampling, cancel)?, arrays, sampling, isa),
            (None, Some(_)) => self.joined(Linear::new(linear_systems(arrays)?), arrays, sampling, isa),
            (None, None) => {
                let names: Vec<String> = arrays.iter().take(20).map(|(name, _)| quoted(name)).collect();
                let what = format!("neither `P` nor `A` among its arrays ({})", names.join(", "));
                Err(Error::data("", what, "an MRP or MDP as P, R, Phi, gamma (and policy), or linear systems as A, b"))
            }
        }
    }
}

impl ArrayFile {
    /// The field of a problem, with the noise of the settings or of the file, if any.
    fn joined<P: Problem>(&self, problem: P, arrays: &Arrays, sampling: Sampling, isa: Isa) -> Result<Arc<dyn Field>> {
        match own_noise(arrays, problem.weights().len(), problem.dim())? {
            None => noise::field(problem, self.noise.as_ref(), sampling, isa, self.allow_singular_agents),
            Some((std, matrices)) => {
                let noisy = Noisy::with_matrices(problem, std, &matrices, sampling).map_err(|e| e.inside("noise"))?;
                field(noisy, sampling, isa, self.allow_singular_agents)
            }
        }
    }
}

/// The position of entry `i` in Python's notation.
fn index_text(shape: &[usize], mut i: usize) -> String {
    let mut index = vec![0; shape.len()];
    for (at, size) in index.iter_mut().zip(shape).rev() {
        *at = i % size;
        i /= size;
    }
    format!("[{}]", index.iter().map(usize::to_string).collect::<Vec<_>>().join(", "))
}

pub(crate) fn wrong_shape(name: &str, array: &Array, accepted: &str) -> Error {
    Error::data(name, format!("shape {}", shape_text(array.shape())), format!("{name} must have the shape {accepted}"))
}

pub(crate) fn scalar(array: &Array, name: &str) -> Result<f64> {
    match array.data() {
        [x] => Ok(*x),
        _ => Err(wrong_shape(name, array, "()")),
    }
}

/// The array of this name, if any; its numbers must be finite. Only arrays in use are checked: others may hold NaN, such as local roots of
/// singular agents.
pub(crate) fn find<'a>(arrays: &'a Arrays, name: &str) -> Result<Option<&'a Array>> {
    let Some(array) = arrays.find(name) else { return Ok(None) };
    match array.data().iter().position(|x| !x.is_finite()) {
        None => Ok(Some(array)),
        Some(i) => {
            let what = format!("{} at {}", array.data()[i], index_text(array.shape(), i));
            Err(Error::data(name, what, "finite numbers"))
        }
    }
}

/// As [`find`], for a required array.
pub(crate) fn get<'a>(arrays: &'a Arrays, name: &str) -> Result<&'a Array> {
    find(arrays, name)?.map_or_else(|| arrays.get(name), Ok)
}

/// The agents' weights: equal unless the file has some.
fn weights(arrays: &Arrays, agents: usize) -> Result<Vec<f64>> {
    // Weights that sum to 1 up to rounding keep their bits.
    const ROUNDING: f64 = 1e-12;
    let Some(given) = find(arrays, "weights")? else { return Ok(equal_weights(agents)) };
    if given.shape() != [agents] {
        return Err(wrong_shape("weights", given, &format!("({agents},)")));
    }
    if let Some(c) = given.data().iter().position(|p| *p <= 0.0) {
        return Err(Error::data("weights", format!("{} (agent {c})", given.data()[c]), "positive weights; leave out agents without one"));
    }
    let sum: f64 = given.data().iter().sum();
    require(sum.is_finite(), "weights", format!("a sum of {sum}"), "weights with a finite sum")?;
    Ok(if (sum - 1.0).abs() <= ROUNDING { given.data().to_vec() } else { given.data().iter().map(|p| p / sum).collect() })
}

/// The standard deviation and the memory M (one for all `n` agents, or one each) of the file's additive noise, if any.
fn own_noise(arrays: &Arrays, n: usize, d: usize) -> Result<Option<(f64, Vec<Mat<f64>>)>> {
    let Some(std) = find(arrays, "noise_std")? else {
        return match find(arrays, "noise_memory")? {
            Some(_) => Err(Error::data("noise_memory", "there is no noise that could have it", "noise_std beside it, or no noise_memory")),
            None => Ok(None),
        };
    };
    let memory = match find(arrays, "noise_memory")? {
        None => vec![Mat::zeros(d, d)],
        Some(m) if m.shape() == [d, d] || m.shape() == [n, d, d] => {
            m.data().chunks(d * d).map(|m| fedsa::linalg::from_rows(d, d, m)).collect()
        }
        Some(m) => return Err(wrong_shape("noise_memory", m, &format!("({d}, {d}), or ({n}, {d}, {d})"))),
    };
    Ok(Some((scalar(std, "noise_std")?, memory)))
}

fn linear_systems(arrays: &Arrays) -> Result<Systems> {
    let (a, b) = (get(arrays, "A")?, get(arrays, "b")?);
    let &[n, d, cols] = a.shape() else { return Err(wrong_shape("A", a, "(N, d, d)")) };
    if d != cols || n == 0 || d == 0 {
        return Err(wrong_shape("A", a, "(N, d, d) with N and d at least 1"));
    }
    if b.shape() != [n, d] {
        return Err(wrong_shape("b", b, &format!("({n}, {d}), as A has")));
    }
    let kinds = (0..n)
        .map(|c| System { a: Mat::from_fn(d, d, |i, j| a.data()[(c * d + i) * d + j]), b: b.data()[c * d..(c + 1) * d].to_vec() })
        .collect();
    Ok(Systems::new(kinds, (0..n as u32).collect(), weights(arrays, n)?))
}

/// The shapes of an MDP's arrays.
struct Shapes {
    agents: usize,
    states: usize,
    /// 1 for an MRP.
    actions: usize,
}

/// TD(0) on the file's reward process, or on its MDP under the policy.
fn mdp(arrays: &Arrays, sampling: Sampling, cancel: &Cancel) -> Result<Td> {
    let (shapes, p, policy) = kernels(arrays)?;
    let Shapes { agents, states, actions } = shapes;
    let reward = rewards(arrays, shapes, policy.is_some())?;
    let gamma = discounts(arrays, agents)?;
    let phi = get(arrays, "Phi")?;
    let (d, shared) = match *phi.shape() {
        [s, d] if s == states && d >= 1 => (d, true),
        [n, s, d] if n == agents && s == states && d >= 1 => (d, false),
        _ => return Err(wrong_shape("Phi", phi, &format!("({states}, d) or ({agents}, {states}, d)"))),
    };
    let one = Arc::new(Features::new(d, &phi.data()[..states * d]));
    let features = |c: usize| match shared {
        true => Arc::clone(&one),
        false => Arc::new(Features::new(d, &phi.data()[c * states * d..(c + 1) * states * d])),
    };
    let mrp = |c: usize| {
        cancel.check()?;
        let row = |s: usize| {
            let each = (0..actions).flat_map(|a| (0..states).map(move |t| (a, t)));
            each.filter_map(|(a, t)| {
                let chosen = policy.map_or(1.0, |policy| {
                    let agent = if policy.shape().len() == 3 { c } else { 0 };
                    policy.data()[(agent * states + s) * actions + a]
                });
                let q = chosen * p.data()[((c * states + s) * actions + a) * states + t];
                (q > 0.0).then(|| Successor { next: t as u32, p: q, reward: reward(c, s, a, t) })
            })
            .collect()
        };
        Ok(Mrp { states: (0..states).map(row).collect(), gamma: gamma(c) })
    };
    FederatedTd {
        kinds: agents,
        kind_of: (0..agents as u32).collect(),
        weights: weights(arrays, agents)?,
        mrp: &mrp,
        features: &features,
        allow_singular_agents: false,
    }
    .td(sampling)
}

/// The shapes of a process, its transition probabilities `P`, and its policy if any.
fn kernels(arrays: &Arrays) -> Result<(Shapes, &Array, Option<&Array>)> {
    let p = get(arrays, "P")?;
    let policy = find(arrays, "policy")?;
    let has_policy = policy.is_some();
    let shapes = match *p.shape() {
        [agents, states, next] if states == next && !has_policy => Shapes { agents, states, actions: 1 },
        [agents, states, actions, next] if states == next && has_policy => Shapes { agents, states, actions },
        _ if has_policy => return Err(wrong_shape("P", p, "(N, S, A, S), since there is a policy")),
        _ => return Err(wrong_shape("P", p, "(N, S, S), or (N, S, A, S) with a policy")),
    };
    let Shapes { agents, states, actions } = shapes;
    require(agents >= 1 && states >= 1 && actions >= 1, "P", shape_text(p.shape()), "an array with at least one agent, state and action")?;
    check_transitions("P", (states * actions) as f64 * states as f64)?;
    probabilities("P", p)?;
    if let Some(policy) = policy {
        if policy.shape() != [states, actions] && policy.shape() != [agents, states, actions] {
            return Err(wrong_shape("policy", policy, &format!("({states}, {actions}) or ({agents}, {states}, {actions})")));
        }
        probabilities("policy", policy)?;
    }
    Ok((shapes, p, policy))
}

/// The reward of a transition, by agent, state, action and next state.
type Reward<'a> = Box<dyn Fn(usize, usize, usize, usize) -> f64 + Sync + 'a>;

/// `R`, by state, by state and action, or by state and next state.
fn rewards(arrays: &Arrays, Shapes { agents, states, actions }: Shapes, has_policy: bool) -> Result<Reward<'_>> {
    let r = get(arrays, "R")?;
    Ok(match *r.shape() {
        [n, s] if n == agents && s == states => Box::new(move |c, s, _, _| r.data()[c * states + s]),
        [n, s, a] if n == agents && s == states && has_policy && a == actions => {
            Box::new(move |c, s, a, _| r.data()[(c * states + s) * actions + a])
        }
        [n, s, t] if n == agents && s == states && t == states => Box::new(move |c, s, _, t| r.data()[(c * states + s) * states + t]),
        _ => return Err(wrong_shape("R", r, &format!("({agents}, {states}), ({agents}, {states}, A) or ({agents}, {states}, {states})"))),
    })
}

/// `gamma` of each agent.
fn discounts(arrays: &Arrays, agents: usize) -> Result<impl Fn(usize) -> f64 + Sync> {
    let gamma = get(arrays, "gamma")?;
    if !gamma.shape().is_empty() && gamma.data().len() != 1 && gamma.shape() != [agents] {
        return Err(wrong_shape("gamma", gamma, &format!("() or ({agents},)")));
    }
    let gamma = |c: usize| gamma.data()[c.min(gamma.data().len() - 1)];
    for c in 0..agents {
        require((0.0..1.0).contains(&gamma(c)), "gamma", format!("{} (agent {c})", gamma(c)), "in [0, 1)")?;
    }
    Ok(gamma)
}

/// The root `theta~` of the virtual MDP of Wang et al. 2023 (\[S\] HTML eq. 265-266). Its kernel and rewards are the agents' means,
/// weighted by `weights`. `arrays` are the arrays of an MRP from [`fedsa::problem::facts::Facts::export`].
///
/// # Errors
/// When features or discounts differ by agent, or the virtual chain or its system is singular.
pub fn virtual_root(arrays: &Arrays, weights: &[f64]) -> Result<Vec<f64>> {
    let (p, r, phi, gamma) = (arrays.get("P")?, arrays.get("R")?, arrays.get("Phi")?, arrays.get("gamma")?);
    let &[agents, n, _] = p.shape() else { return Err(wrong_shape("P", p, "(N, S, S)")) };
    let &[_, d] = phi.shape() else { return Err(wrong_shape("Phi", phi, "(S, d): one set of features")) };
    require(gamma.data().iter().all(|g| *g == gamma.data()[0]), "gamma", "several", "the same for all agents")?;
    let mut mean_p = vec![0.0; n * n];
    let mut mean_r = vec![0.0; n];
    require(weights.len() == agents, "weights", weights.len(), "one for each agent")?;
    for (c, weight) in weights.iter().enumerate() {
        for (i, q) in p.data()[c * n * n..(c + 1) * n * n].iter().enumerate() {
            mean_p[i] += weight * q;
            mean_r[i / n] += weight * q * r.data()[c * n * n + i];
        }
    }
    let mrp = Mrp::dense(n, &mean_p, |s, _| mean_r[s], gamma.data()[0]);
    let kind = mrp.transitions(Arc::new(Features::new(d, phi.data())))?;
    crate::td::td0::Td::new(vec![kind], vec![0], vec![1.0], Sampling::default())?.root()
}

/// Checks that the last dimension of an array holds probabilities.
pub(crate) fn probabilities(name: &str, array: &Array) -> Result<()> {
    let n = array.shape().last().copied().unwrap_or(0).max(1);
    for (row, p) in array.data().chunks(n).enumerate() {
        let shape = &array.shape()[..array.shape().len() - 1];
        let sum: f64 = p.iter().sum();
        if let Some(j) = p.iter().position(|x| *x < 0.0) {
            let at = index_text(array.shape(), row * n + j);
            return Err(Error::data(name, format!("the probability {} at {at}", p[j]), "probabilities must be at least 0"));
        }
        if (sum - 1.0).abs() > ROW_SUM_TOLERANCE {
            let what = format!("row {} sums to {sum}", index_text(shape, row));
            return Err(Error::data(name, what, format!("every row must sum to 1 within {ROW_SUM_TOLERANCE:e}")));
        }
    }
    Ok(())
}
