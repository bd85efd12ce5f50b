//! Optional knowledge of a problem, beyond its samples and means.

use faer::Mat;

use super::arrays::Arrays;
use super::law::FiniteLaw;
use super::linear_operators::LinearOperators;
use super::objective::Objective;
use super::systems::{Moments, Systems};

/// Optional knowledge of a problem. A fact that is not overridden is unknown, or is derived from other facts:
/// second moments from the finite law of a sample, Jacobians from linear systems or from the objective,
/// the objective from symmetric linear systems.
///
/// A *kind* is an index into [`Systems::kinds`], or an agent if there are no systems.
/// A problem that wraps another problem names it in [`Facts::base`] and overrides what it changes.
pub trait Facts: Send + Sync {
    /// The facts of the wrapped problem, used for facts that are not overridden.
    fn base(&self) -> Option<&dyn Facts> {
        None
    }
    /// The linear systems, if every `gbar_c` is affine.
    fn systems(&self) -> Option<&Systems> {
        self.base()?.systems()
    }
    /// Products with `Abar_c`, if every `gbar_c` is affine.
    fn linear_operators(&self) -> Option<&dyn LinearOperators> {
        match self.base() {
            Some(base) => base.linear_operators(),
            None => self.systems().map(|systems| systems as &dyn LinearOperators),
        }
    }
    /// The losses, if every `gbar_c` is minus a gradient.
    fn objective(&self) -> Option<&dyn Objective> {
        match self.base() {
            Some(base) => base.objective(),
            None => self.systems().filter(|systems| systems.is_symmetric()).map(|systems| systems as &dyn Objective),
        }
    }
    /// The Jacobian of `gbar_c` at theta into `out`, d x d: entry (i, j) is the derivative of component i by `theta_j`.
    /// Returns whether it is known, which must not depend on c or theta. If it is unknown, `out` does not change.
    fn jacobian(&self, c: usize, theta: &[f64], out: &mut Mat<f64>) -> bool {
        if let Some(systems) = self.systems() {
            out.copy_from(-&systems.of(c).a);
        } else if let Some(objective) = self.objective() {
            objective.hessian(c, theta, out);
            *out *= faer::Scale(-1.0);
        } else {
            return self.base().is_some_and(|base| base.jacobian(c, theta, out));
        }
        true
    }
    /// The law of one sample of a kind of agents, if a sample has finitely many values.
    fn law(&self, kind: usize) -> Option<FiniteLaw<'_>> {
        self.base()?.law(kind)
    }
    /// Second moments of one sample `(A(z), b(z))` of a kind of agents under its stationary law, for linear operators.
    fn moments(&self, kind: usize) -> Option<Moments> {
        match self.base() {
            Some(base) => base.moments(kind),
            None => self.law(kind)?.moments(),
        }
    }
    /// The stationary law of a kind's chain of states, if there is such a chain.
    fn stationary(&self, kind: usize) -> Option<&[f64]> {
        self.base()?.stationary(kind)
    }
    /// `sum_c p_c Phi_c^T D_c Phi_c`, d x d: the norm of value errors.
    fn gram(&self) -> Option<&Mat<f64>> {
        self.base()?.gram()
    }
    /// The arrays of the problem that [`mod@super::file`] reads in addition to linear systems: a Markov reward
    /// process, additive noise.
    fn export(&self) -> Option<Arrays> {
        self.base()?.export()
    }
}

/// The facts of a problem of which nothing is known.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unknown;

impl Facts for Unknown {}
