//! Problems as arrays: an MRP, an MDP with a policy, or linear systems.
//!
//! | arrays | shapes |
//! | --- | --- |
//! | `P` | (N, S, S), or (N, S, A, S) with `policy` (S, A) or (N, S, A) |
//! | `R` | (N, S), (N, S, A) or (N, S, S'); with a policy and A = S, (N, S, A) is meant |
//! | `Phi` | (S, d) or (N, S, d) |
//! | `gamma` | scalar or (N,) |
//! | or `A`, `b` | (N, d, d), (N, d); optional `noise_std`, a scalar |

use std::sync::Arc;

use faer::Mat;
use serde::{Deserialize, Serialize};

use super::arrays::{Array, Arrays, shape_text};
use super::linear::linear_field;
use super::mrp::{Federation, Mrp, Outcome, ROW_SUM_TOLERANCE};
use super::noise::Noise;
use super::systems::{System, Systems};
use super::td::Features;
use super::{Field, Files, Settings, equal_weights};
use crate::error::{BadInput, Result, require};
use crate::kernel::Isa;
use crate::sampling::Sampling;

/// The arrays that a problem is made of.
const INPUTS: &[&str] = &["P", "R", "Phi", "gamma", "policy", "A", "b", "noise_std"];

/// The `file` problem.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArrayFile {
    /// The `.npz` file.
    pub path: String,
    /// Additive noise, for linear systems without `noise_std`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise: Option<Noise>,
    /// Accept agents whose own linear system is singular, as long as the mean is not.
    #[serde(default)]
    pub allow_singular_agents: bool,
}

impl Settings for ArrayFile {
    fn field(&self, files: &dyn Files, sampling: Sampling, isa: Isa) -> Result<Box<dyn Field>> {
        let arrays = files.arrays(&self.path)?;
        let named = |e: BadInput| BadInput { what: format!("{}: {}", self.path, e), key: "path".into(), ..e };
        self.field_of(&arrays, sampling, isa).map_err(named)
    }
}

impl ArrayFile {
    fn field_of(&self, arrays: &Arrays, sampling: Sampling, isa: Isa) -> Result<Box<dyn Field>> {
        // What an export holds beside may be unknown: an agent's root, where its system is singular.
        for (name, array) in arrays.iter().filter(|(name, _)| INPUTS.contains(name)) {
            if let Some(i) = array.data().iter().position(|x| !x.is_finite()) {
                let what = format!("{} at {}", array.data()[i], index_text(array.shape(), i));
                return Err(BadInput::new(name, what, "finite numbers"));
            }
        }
        match (arrays.find("P"), arrays.find("A")) {
            (Some(_), _) => mdp_field(arrays, sampling, isa),
            (None, Some(_)) => {
                let systems = linear_systems(arrays)?;
                let std = arrays.find("noise_std").map(|a| scalar(a, "noise_std")).transpose()?;
                let noise = std.map(|std| Noise { std, radius: 0.0, seed: 0 }).or_else(|| self.noise.clone());
                linear_field(systems, noise.as_ref(), sampling, isa, self.allow_singular_agents)
            }
            (None, None) => {
                let names: Vec<&str> = arrays.iter().map(|(name, _)| name).collect();
                let what = format!("neither `P` nor `A` among its arrays ({})", names.join(", "));
                Err(BadInput::new("", what, "an MRP or MDP as P, R, Phi, gamma (and policy), or linear systems as A, b"))
            }
        }
    }
}

/// The position of entry `i` as Python writes it.
fn index_text(shape: &[usize], mut i: usize) -> String {
    let mut index = vec![0; shape.len()];
    for (at, size) in index.iter_mut().zip(shape).rev() {
        *at = i % size;
        i /= size;
    }
    format!("[{}]", index.iter().map(usize::to_string).collect::<Vec<_>>().join(", "))
}

fn wrong_shape(name: &str, array: &Array, accepted: &str) -> BadInput {
    BadInput::new(name, format!("shape {}", shape_text(array.shape())), format!("{name} must have the shape {accepted}"))
}

fn scalar(array: &Array, name: &str) -> Result<f64> {
    match array.data() {
        [x] => Ok(*x),
        _ => Err(wrong_shape(name, array, "()")),
    }
}

fn linear_systems(arrays: &Arrays) -> Result<Systems> {
    let (a, b) = (arrays.get("A")?, arrays.get("b")?);
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
    Ok(Systems { kinds, kind_of: (0..n as u32).collect(), weights: equal_weights(n) })
}

/// The shapes of an MDP's arrays.
struct Shapes {
    agents: usize,
    states: usize,
    /// 1 for an MRP.
    actions: usize,
}

fn mdp_field(arrays: &Arrays, sampling: Sampling, isa: Isa) -> Result<Box<dyn Field>> {
    let p = arrays.get("P")?;
    let has_policy = arrays.find("policy").is_some();
    let shapes = match *p.shape() {
        [agents, states, next] if states == next && !has_policy => Shapes { agents, states, actions: 1 },
        [agents, states, actions, next] if states == next && has_policy => Shapes { agents, states, actions },
        _ if has_policy => return Err(wrong_shape("P", p, "(N, S, A, S), since there is a policy")),
        _ => return Err(wrong_shape("P", p, "(N, S, S), or (N, S, A, S) with a policy")),
    };
    let Shapes { agents, states, actions } = shapes;
    require(agents >= 1 && states >= 1 && actions >= 1, "P", shape_text(p.shape()), "an array with at least one agent, state and action")?;
    probabilities("P", p)?;
    let policy = arrays.find("policy");
    if let Some(policy) = policy {
        if policy.shape() != [states, actions] && policy.shape() != [agents, states, actions] {
            return Err(wrong_shape("policy", policy, &format!("({states}, {actions}) or ({agents}, {states}, {actions})")));
        }
        probabilities("policy", policy)?;
    }
    let r = arrays.get("R")?;
    let reward: Box<dyn Fn(usize, usize, usize, usize) -> f64 + Sync> = match *r.shape() {
        [n, s] if n == agents && s == states => Box::new(|c, s, _, _| r.data()[c * states + s]),
        [n, s, a] if n == agents && s == states && has_policy && a == actions => {
            Box::new(|c, s, a, _| r.data()[(c * states + s) * actions + a])
        }
        [n, s, t] if n == agents && s == states && t == states => Box::new(|c, s, _, t| r.data()[(c * states + s) * states + t]),
        _ => return Err(wrong_shape("R", r, &format!("({agents}, {states}), ({agents}, {states}, A) or ({agents}, {states}, {states})"))),
    };
    let gamma = arrays.get("gamma")?;
    if !gamma.shape().is_empty() && gamma.data().len() != 1 && gamma.shape() != [agents] {
        return Err(wrong_shape("gamma", gamma, &format!("() or ({agents},)")));
    }
    let gamma = |c: usize| gamma.data()[c.min(gamma.data().len() - 1)];
    for c in 0..agents {
        require((0.0..1.0).contains(&gamma(c)), "gamma", format!("{} (agent {c})", gamma(c)), "in [0, 1)")?;
    }
    let phi = arrays.get("Phi")?;
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
        let row = |s: usize| {
            let each = (0..actions).flat_map(|a| (0..states).map(move |t| (a, t)));
            each.filter_map(|(a, t)| {
                let chosen = policy.map_or(1.0, |policy| {
                    let agent = if policy.shape().len() == 3 { c } else { 0 };
                    policy.data()[(agent * states + s) * actions + a]
                });
                let q = chosen * p.data()[((c * states + s) * actions + a) * states + t];
                (q > 0.0).then(|| Outcome { next: t as u32, p: q, reward: reward(c, s, a, t) })
            })
            .collect()
        };
        Ok(Mrp { states: (0..states).map(row).collect(), gamma: gamma(c) })
    };
    Federation { kinds: agents, kind_of: (0..agents as u32).collect(), weights: equal_weights(agents), mrp: &mrp, features: &features }
        .field(sampling, isa)
}

/// The root `theta~` of the virtual MDP of Wang et al. 2023: the mean of the agents'
/// kernels and of their rewards (\[S\] HTML eq. 265-266). Takes the arrays of an MRP as
/// [`super::Problem::export`] gives them.
///
/// # Errors
/// When features or discounts differ by agent, or the virtual chain or its system is singular.
pub fn virtual_root(arrays: &Arrays) -> Result<Vec<f64>> {
    let (p, r, phi, gamma) = (arrays.get("P")?, arrays.get("R")?, arrays.get("Phi")?, arrays.get("gamma")?);
    let &[agents, n, _] = p.shape() else { return Err(wrong_shape("P", p, "(N, S, S)")) };
    let &[_, d] = phi.shape() else { return Err(wrong_shape("Phi", phi, "(S, d): one set of features")) };
    require(gamma.data().iter().all(|g| *g == gamma.data()[0]), "gamma", "several", "the same for all agents")?;
    let mut mean_p = vec![0.0; n * n];
    let mut mean_r = vec![0.0; n];
    for c in 0..agents {
        for (i, q) in p.data()[c * n * n..(c + 1) * n * n].iter().enumerate() {
            mean_p[i] += q / agents as f64;
            mean_r[i / n] += q * r.data()[c * n * n + i] / agents as f64;
        }
    }
    let mrp = Mrp::dense(n, &mean_p, |s, _| mean_r[s], gamma.data()[0]);
    let kind = mrp.transitions(Arc::new(Features::new(d, phi.data())))?;
    super::td::Td::new(vec![kind], vec![0], vec![1.0], Sampling::default())?.root()
}

/// Checks that the last dimension of an array holds probabilities.
fn probabilities(name: &str, array: &Array) -> Result<()> {
    let n = array.shape().last().copied().unwrap_or(0).max(1);
    for (row, p) in array.data().chunks(n).enumerate() {
        let shape = &array.shape()[..array.shape().len() - 1];
        let sum: f64 = p.iter().sum();
        if let Some(j) = p.iter().position(|x| *x < 0.0) {
            let at = index_text(array.shape(), row * n + j);
            return Err(BadInput::new(name, format!("the probability {} at {at}", p[j]), "probabilities must be at least 0"));
        }
        if (sum - 1.0).abs() > ROW_SUM_TOLERANCE {
            let what = format!("row {} sums to {sum}", index_text(shape, row));
            return Err(BadInput::new(name, what, format!("every row must sum to 1 within {ROW_SUM_TOLERANCE:e}")));
        }
    }
    Ok(())
}
