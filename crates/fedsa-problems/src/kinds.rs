//! The kinds of problems, by name.

use crate::control::{improvement, policy_gradient, sarsa};
use crate::linear::{affine, file, finite_sum, quadratic, switching};
use crate::logs::replay;
use crate::nonlinear::{fixed_point, q_learning, random_logistic};
use crate::rows::regression;
use crate::td::{baird, garnet, random_mrp};
use crate::{ProblemSettings, elsewhere};
use fedsa::registry::{Kind, kind};

/// The kinds of problems, by the name that `kind` gives.
pub const KINDS: &[Kind<dyn ProblemSettings>] = &[
    kind!("garnet", "Garnet MDPs, four presets of heterogeneity", garnet::Garnet),
    kind!("mrp", "dense random Markov reward processes", random_mrp::RandomMrp),
    kind!("file", "an MRP, an MDP with a policy, or linear systems, as arrays in an .npz", file::ArrayFile),
    kind!("baird", "Baird's seven-star example: off-policy, where TD diverges", baird::Baird),
    kind!("logs", "logged transitions, one file an agent", replay::Logs),
    kind!("switching", "linear operators that switch along a chain", switching::Switching),
    kind!("linear", "linear systems A_c, b_c", affine::LinearSystems),
    kind!("quadratic", "quadratic losses, definite or indefinite per agent", quadratic::Quadratic),
    kind!("finite-sum", "finite sums of quadratic losses, terms drawn along a chain", finite_sum::FiniteSum),
    kind!("random-logistic", "gradients of logistic losses on generated data", random_logistic::RandomLogistic),
    kind!("logistic", "logistic regression on data sets", regression::Logistic),
    kind!("least-squares", "linear regression on data sets", regression::LeastSquares),
    kind!("glm", "generalised linear models, and Huber's loss, on data sets", regression::GeneralisedLinear),
    kind!("fixed-point", "maps whose mean is a contraction, and single ones need not be", fixed_point::FixedPoint),
    kind!("elsewhere", "what the server of a federation knows of its agents' problem; it cannot be run", elsewhere::Elsewhere),
    kind!("q-learning", "Q-learning with linear features on Garnet MDPs", q_learning::QLearning),
    kind!("sarsa", "on-policy SARSA: agents act by the values that they learn", sarsa::Sarsa),
    kind!("improvement", "better policies from logged transitions with actions, one file an agent", improvement::Improvement),
    kind!("policy-gradient", "policy gradients (REINFORCE) of softmax policies", policy_gradient::PolicyGradient),
];
