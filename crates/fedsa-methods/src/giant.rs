//! GIANT: the mean of the agents' own Newton directions for the mean gradient.
//!
//! ```text
//! round t:   g = sum_c p_c grad f_c(theta_t)                                          (exchange 0)
//!            p = -sum_c p_c H_c^-1 g,  H_c = Hess f_c(theta_t)                          (exchange 1)
//!            theta_{t+1} = theta_t + s p, s the first of 1, 1/4, .., 4^-9 with
//!            f(theta_t + s p) <= f(theta_t) + a s g^T p, a = 0.1;  4^-9 if there is none   (exchange 2)
//! ```
//! The step belongs to the harmonic mean of the local Hessians: it is Newton's if all agents are alike, and wrong otherwise. No Hessian is
//! sent. If agents differ, p may be more than twice as long as Newton's step, so that s = 1 expands. If rounding errors hide the decrease,
//! slopes bound s ([`mod@crate::local::line_search`]). If no trial step lowers the loss enough, the last one is taken, and the metric
//! `failed_searches` counts it. Source: Wang, Roosta-Khorasani, Xu and Mahoney (2018), algorithm 1 (\[144\] of \[T\]).
//!
//! **Local directions.** In the source agents approximate `H_c^-1 g` by conjugate gradients. A product with `H_c` costs 2 m multiply-adds
//! for each of the agent's rows, with m non-zero entries. Forming `H_c` costs m^2 / 2 per row, as much as m / 4 products. Regularised
//! regressions take far more products: about d, and up to 2 d if rounding destroys the orthogonality. With at most [`MAX_FORMED`]
//! components an agent therefore forms `H_c` and solves by Cholesky's factorisation with d^3 / 6 multiply-adds, which gives exactly what
//! the iteration approximates. If that does not solve the system (`H_c` is indefinite, or singular up to rounding), conjugate gradients
//! follow with the formed matrix. With more components, or if `cg_tolerance` or `cg_steps` is set, no Hessian is formed, and conjugate
//! gradients use products. The ledger counts either one of `hessians` per agent and round, or each product in `hessian_vectors`.
//!
//! **Two exchanges per round.** With `gradients_ahead` agents add to their losses the gradient at the last accepted trial step, s = 1 at
//! first. If the server accepts that step again, it has the next round's mean gradient. The round then opens with exchange 1, in which the
//! model travels with the gradient; otherwise it opens with exchange 0. The iterates are the same, bit for bit. This saves a message header
//! if the step was right; otherwise the gradient travels twice. Only over a clear link, because other links would change or lose gradients
//! differently.
//!
//! Over links: a missing direction counts as zero and makes the step shorter. Local Hessians are positive definite on strongly convex
//! losses, so every mean of directions is a descent direction for the sent mean gradient. Refused over the air, and over `delay` and
//! `late`.

use fedsa::error::{Result, require};
use serde::{Deserialize, Serialize};

use super::descent::{self, DescentSettings};
use crate::local::descent::LocalSolve;
use crate::local::line_search::{LineSearch, Trials};
use crate::server::descent::{Direction, Length};
use crate::server::directions::Gradient;

/// The most components d for which agents form their Hessians: 2 MB each, and 22 million multiply-adds for the factorisation, as many as 55
/// products of an agent with 400 dense rows. Agents with few or sparse rows have cheaper products, and may be faster with `cg_tolerance`
/// set. A factorisation takes about a millisecond at d = 300.
pub const MAX_FORMED: usize = 512;
/// The default of [`Giant::cg_tolerance`].
const CG_TOLERANCE: f64 = 1e-6;
/// The default of [`Giant::cg_steps`].
const CG_STEPS: usize = 1000;

/// The settings of GIANT.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Giant {
    /// Relative residual of conjugate gradients; 1e-6 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 0), extend("exclusiveMaximum" = 1)))]
    pub cg_tolerance: Option<f64>,
    /// Most products per round; 1000 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub cg_steps: Option<usize>,
    /// Factor between trial steps.
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0, "exclusiveMaximum" = 1)))]
    pub shrink: f64,
    /// Most reductions.
    #[cfg_attr(feature = "schema", schemars(range(max = 60)))]
    pub shrinks: usize,
    /// Armijo constant.
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0, "exclusiveMaximum" = 0.5)))]
    pub decrease: f64,
    /// Send gradients with trial losses, which can save an exchange.
    pub gradients_ahead: bool,
}

fedsa::settings::setters! { Giant {
    with_cg_tolerance(cg_tolerance: impl Into<Option<f64>>) = cg_tolerance.into();
    with_cg_steps(cg_steps: impl Into<Option<usize>>) = cg_steps.into();
    with_shrink(shrink: f64) = shrink;
    with_shrinks(shrinks: usize) = shrinks;
    with_decrease(decrease: f64) = decrease;
    with_gradients_ahead(gradients_ahead: bool) = gradients_ahead;
} }

impl Default for Giant {
    fn default() -> Self {
        Self { cg_tolerance: None, cg_steps: None, shrink: 0.25, shrinks: 9, decrease: 0.1, gradients_ahead: false }
    }
}

descent::moves_along!(Giant);

impl DescentSettings for Giant {
    fn check_ranges(&self) -> Result<()> {
        let (tolerance, steps) = (self.cg_tolerance.unwrap_or(CG_TOLERANCE), self.cg_steps.unwrap_or(CG_STEPS));
        require((0.0..1.0).contains(&tolerance), "cg_tolerance", tolerance, "at least 0 and below 1")?;
        require((1..=1_000_000).contains(&steps), "cg_steps", steps, "between 1 and 1000000")?;
        descent::check_shrinking_search(self.shrink, self.shrinks, self.decrease)
    }

    /// Unused: the agents compute the direction.
    fn rule(&self) -> Box<dyn Direction> {
        Box::new(Gradient)
    }

    fn length(&self) -> Length {
        Length::SearchOrLast(LineSearch::new(Trials::new(self.shrink, self.shrinks, self.decrease)))
    }

    fn gradients_ahead(&self) -> bool {
        self.gradients_ahead
    }

    fn local_solve(&self, d: usize) -> Option<LocalSolve> {
        let (tolerance, steps) = (self.cg_tolerance.unwrap_or(CG_TOLERANCE), self.cg_steps.unwrap_or(CG_STEPS));
        let is_direct = d <= MAX_FORMED && self.cg_tolerance.is_none() && self.cg_steps.is_none();
        Some(if is_direct { LocalSolve::Direct { tolerance, steps } } else { LocalSolve::Cg { tolerance, steps } })
    }
}

#[cfg(test)]
mod tests {
    use fedsa::federation::Federation;
    use fedsa::kernel::Isa;
    use fedsa::linalg::{distance_sq, norm_sq};
    use fedsa::method::MethodSettings;
    use fedsa::round::Run;
    use fedsa::sampling::{Law, Sampling};
    use fedsa::uplink::{LinkFacts, Uplink};
    use fedsa_problems::linear::quadratic::Quadratic;
    use fedsa_problems::nonlinear::random_logistic::RandomLogistic;
    use fedsa_problems::{NoFiles, ProblemSettings};

    use super::*;

    #[test]
    fn hessians_are_formed_where_they_are_small_and_nobody_set_the_iteration() {
        let (direct, cg) = (LocalSolve::Direct { tolerance: 1e-6, steps: 1000 }, LocalSolve::Cg { tolerance: 1e-6, steps: 1000 });
        let giant = Giant::default();
        assert_eq!((giant.local_solve(MAX_FORMED), giant.local_solve(MAX_FORMED + 1)), (Some(direct), Some(cg)));
        // An explicit default is a setting too.
        let set = [Giant { cg_tolerance: Some(1e-6), ..Giant::default() }, Giant { cg_steps: Some(1000), ..Giant::default() }];
        for giant in set {
            assert_eq!(giant.local_solve(2), Some(cg), "{giant:?}");
        }
    }

    /// The ledger has one Hessian per agent and round, or products; both ways lead to the same models.
    #[test]
    fn what_agents_compute_is_counted() {
        let problem = Quadratic::default().with_agents(5).with_dim(8).with_greatest_eigenvalue(Some(30.0));
        let field = problem.field(&NoFiles, Sampling::default().with_kind(Law::Mean), Isa::best()).unwrap();
        let uplink = Uplink::default();
        let after_two_rounds = |giant: &Giant| {
            let mut run = Run::new(&field, &Federation::new(giant, &uplink, field.weights(), 5, vec![0.0; 8]).unwrap()).unwrap();
            run.step();
            run.step();
            (run.ledger().calls, run.theta().to_vec())
        };
        let (direct, exact) = after_two_rounds(&Giant::default());
        let (cg, near) = after_two_rounds(&Giant { cg_tolerance: Some(1e-13), ..Giant::default() });
        assert_eq!((direct.hessians, direct.hessian_vectors), (10, 0));
        assert!(cg.hessians == 0 && cg.hessian_vectors > 10, "{cg:?}");
        assert_eq!((direct.gradients, direct.losses), (cg.gradients, cg.losses));
        assert!(distance_sq(&exact, &near) < 1e-16 * norm_sq(&exact), "{exact:?} {near:?}");
    }

    /// The same iterates, bit for bit, in two exchanges instead of three after a repeated step; one more gradient after another step.
    #[test]
    fn gradients_ahead_change_exchanges_alone() {
        let problem = RandomLogistic::default().with_agents(4).with_dim(6).with_points(40).with_ridge(1e-3);
        let field = problem.field(&NoFiles, Sampling::default().with_kind(Law::Mean), Isa::best()).unwrap();
        let (rounds, mut wrong_in_all) = (8u64, 0);
        for decrease in [0.1, 0.4, 0.49] {
            let run = |gradients_ahead: bool| {
                let giant = Giant { gradients_ahead, decrease, ..Giant::default() };
                let federation = Federation::new(&giant, &Uplink::default(), field.weights(), 5, vec![3.0; 6]).unwrap();
                let mut run = Run::new(&field, &federation).unwrap();
                let step = |_| {
                    // A restored run continues in the same way.
                    let state = run.save().unwrap();
                    run.restore(&state).unwrap();
                    run.step();
                    run.theta().iter().map(|x| x.to_bits()).collect::<Vec<u64>>()
                };
                ((0..rounds).map(step).collect::<Vec<_>>(), run.ledger())
            };
            let ((thetas, plain), (same, ahead)) = (run(false), run(true));
            assert_eq!(thetas, same);
            assert_eq!((plain.exchanges, plain.calls.gradients), (3 * rounds, 4 * rounds));
            // The first round has no gradient ahead, nor has a round after another step.
            let wrong = ahead.exchanges - 2 * rounds;
            assert!((1..rounds).contains(&wrong), "{wrong}");
            // The gradients ahead of the last round are not used.
            assert_eq!(ahead.calls.gradients, 4 * (rounds + wrong));
            assert_eq!((ahead.calls.hessians, ahead.calls.losses), (plain.calls.hessians, plain.calls.losses));
            wrong_in_all += wrong - 1;
        }
        assert!(wrong_in_all > 0, "every step was foreseen");
    }

    /// Other links would change or lose gradients differently in another exchange.
    #[test]
    fn gradients_are_sent_ahead_over_a_clear_link_alone() {
        let giant = Giant { gradients_ahead: true, ..Giant::default() };
        assert!(giant.check_link(&LinkFacts::default()).is_ok());
        for link in [
            LinkFacts { is_altered: true, ..LinkFacts::default() },
            LinkFacts { is_lost: true, ..LinkFacts::default() },
            LinkFacts { is_downlink_lossy: true, ..LinkFacts::default() },
        ] {
            assert_eq!(giant.check_link(&link).unwrap_err().key, "uplink");
            assert!(Giant::default().check_link(&link).is_ok());
        }
    }

    /// Memory counts a matrix and its factor for each agent at work, if matrices are formed; work counts the factorisation.
    #[test]
    fn memory_and_work_are_those_of_the_way_to_a_direction() {
        let (direct, cg) = (Giant::default(), Giant { cg_steps: Some(50), ..Giant::default() });
        let d = 300;
        assert_eq!(direct.memory(1, d), (16 * d + 16 * d * d) as f64);
        assert_eq!(cg.memory(1, d), (16 * d + 32 * d) as f64);
        assert_eq!((direct.work(1, d), cg.work(1, d)), (64.0 * 90_000.0, 62.0 * 90_000.0));
        assert!(direct.memory(1, MAX_FORMED + 1) < 0.01 * direct.memory(1, MAX_FORMED));
    }
}
