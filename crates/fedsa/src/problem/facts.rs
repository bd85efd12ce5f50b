//! Optional knowledge of a problem, beyond its samples and means.

use faer::Mat;

use super::arrays::Arrays;
use super::law::{FiniteLaw, NoiseLaw};
use super::objective::Objective;
use super::root::Root;
use crate::privacy::unit::ClippedUnits;
use crate::problem::linear_operators::LinearOperators;
use crate::problem::policy_systems::PolicySystems;
use crate::problem::projected::ProjectedBellman;
use crate::problem::systems::{Moments, Systems};
use serde::{Deserialize, Serialize};

use crate::cancel::Cancel;
use crate::linalg;

/// Numbers of TD(0) learning of finite Markov reward processes, over all agents.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TdFacts {
    /// The largest discount factor gamma.
    pub gamma: f64,
    /// nu: the smallest eigenvalue of an agent's feature covariance `Phi_c^T D_c Phi_c`.
    pub nu: f64,
    /// The smallest reward.
    pub least_reward: f64,
    /// The largest reward.
    pub largest_reward: f64,
    /// The largest norm of a state's features.
    pub feature_norm: f64,
}

/// Optional knowledge of a problem. A fact that is not overridden is unknown or derived from other facts: second moments from the finite
/// law of a sample, Jacobians from linear systems or the objective, and the objective from symmetric linear systems.
///
/// A *kind* is an index into [`Systems::kinds`], or an agent if there are no systems. A problem that wraps another problem names it in
/// [`Facts::base`] and overrides the facts that it changes. Derived facts follow the wrapper's own facts: its own law determines the
/// moments, its own systems the objective. If it hides a fact of the base (`None`), facts derived from it are unknown.
pub trait Facts: Send + Sync {
    /// The facts of the wrapped problem, used for facts that are not overridden.
    fn base(&self) -> Option<&dyn Facts> {
        None
    }
    /// Whether operators are evaluated elsewhere, and are unknown here.
    fn is_elsewhere(&self) -> bool {
        self.base().is_some_and(Facts::is_elsewhere)
    }
    /// Whether theta is a table, and every sample changes one entry alone.
    fn is_table(&self) -> bool {
        false
    }
    /// The linear systems, if every `gbar_c` is affine.
    fn systems(&self) -> Option<&Systems> {
        self.base()?.systems()
    }
    /// Whether the root is the solution of least norm if the mean linear system is singular; otherwise such a problem is refused.
    fn takes_least_norm(&self) -> bool {
        self.base().is_some_and(Facts::takes_least_norm)
    }
    /// Products with `Abar_c`, if every `gbar_c` is affine.
    fn linear_operators(&self) -> Option<&dyn LinearOperators> {
        match self.base() {
            Some(base) if same(self.systems(), base.systems()) => base.linear_operators(),
            _ => self.systems().map(|systems| systems as &dyn LinearOperators),
        }
    }
    /// The systems under the policy of theta, if theta determines a policy and every `gbar_c` is affine for a fixed policy. Derived from
    /// symmetric linear systems, which have no policy.
    fn policy_systems(&self) -> Option<&dyn PolicySystems> {
        match self.base() {
            Some(base) if same(self.systems(), base.systems()) => base.policy_systems(),
            _ => self.systems().filter(|systems| systems.is_symmetric()).map(|systems| systems as &dyn PolicySystems),
        }
    }
    /// The losses, if every `gbar_c` is minus a gradient.
    fn objective(&self) -> Option<&dyn Objective> {
        match self.base() {
            Some(base) if same(self.systems(), base.systems()) => base.objective(),
            _ => self.systems().filter(|systems| systems.is_symmetric()).map(|systems| systems as &dyn Objective),
        }
    }
    /// The Jacobian of `gbar_c` at theta into `out`, d x d: entry (i, j) is the derivative of component i by `theta_j`. Returns whether it
    /// is known, which must not depend on c or theta. An unknown Jacobian does not change `out`.
    fn jacobian(&self, c: usize, theta: &[f64], out: &mut Mat<f64>) -> bool {
        if let Some(systems) = self.systems() {
            out.copy_from(-&systems.of(c).a);
        } else if let Some(objective) = self.objective() {
            objective.hessian(c, theta, out);
            *out *= faer::Scale(-1.0);
        } else {
            let base = self.base().filter(|base| same(self.systems(), base.systems()));
            return base.is_some_and(|base| base.jacobian(c, theta, out));
        }
        true
    }
    /// The law of one sample of a kind of agents, if a sample has finitely many values.
    fn law(&self, kind: usize) -> Option<FiniteLaw<'_>> {
        self.base()?.law(kind)
    }
    /// The law of one sample of agent c at theta, d components, if it depends on theta and has finitely many values.
    fn law_at(&self, _c: usize, _theta: &[f64]) -> Option<FiniteLaw<'_>> {
        None
    }
    /// Whether agents keep the law of a round's model during the round.
    fn keeps_law_in_rounds(&self) -> bool {
        self.base().is_some_and(Facts::keeps_law_in_rounds)
    }
    /// The kind of each agent, N numbers, if agents of one kind have the same operators and laws of samples. Derived from linear systems.
    fn kind_of(&self) -> Option<Vec<u32>> {
        match (self.systems(), self.base()) {
            (own, Some(base)) if same(own, base.systems()) => base.kind_of(),
            (own, _) => own.map(|systems| systems.kind_of.clone()),
        }
    }
    /// Second moments of one sample `(A(z), b(z))` of a kind of agents under its stationary law, for linear operators.
    fn moments(&self, kind: usize) -> Option<Moments> {
        match (self.law(kind), self.base()) {
            (Some(law), _) => law.moments(),
            (None, Some(base)) if base.law(kind).is_none() && same(self.systems(), base.systems()) => base.moments(kind),
            _ => None,
        }
    }
    /// The law of the noise, if samples are `gbar_c(theta) + x` with additive Gauss-Markov noise x and nothing else is random:
    /// one law for all agents, or one for each.
    fn additive_noise(&self) -> Option<Vec<NoiseLaw>> {
        self.base().filter(|base| same(self.systems(), base.systems()))?.additive_noise()
    }
    /// A certificate that the mean operator has exactly one root, if known. Derived from linear systems.
    fn monotone(&self) -> Option<Monotone> {
        match (self.systems(), self.base()) {
            (own, Some(base)) if same(own, base.systems()) => base.monotone(),
            (own, _) => own.and_then(Monotone::of_systems),
        }
    }
    /// How the units of an agent's data are shortened in its linear system, if they are: what privacy of rows and episodes counts on.
    fn clipped_units(&self, c: usize) -> Option<ClippedUnits> {
        self.base().filter(|base| same(self.systems(), base.systems()))?.clipped_units(c)
    }
    /// A point near a root of the mean operator, if known: Newton's method restarts there if it fails from 0. It is computed on every call.
    fn near_root(&self) -> Option<Vec<f64>> {
        self.base()?.near_root()
    }
    /// The root of the mean operator by the problem's own solver, or the reason why it is unknown; no other solver is then tried. `None` if
    /// the problem has no solver. After `cancel` it ends soon, and its result is not used.
    fn own_root(&self, cancel: &Cancel) -> Option<Result<Root, String>> {
        self.base().filter(|base| same(self.systems(), base.systems()))?.own_root(cancel)
    }
    /// The multiplications of a local step, if not about d^2 (mean operators) or d (a sample).
    fn step_work(&self) -> Option<usize> {
        self.base()?.step_work()
    }
    /// The approximate time of a local step on one sample, in ns on one core, if longer than a product or two of vectors.
    fn sample_ns(&self) -> Option<f64> {
        self.base()?.sample_ns()
    }
    /// The stationary law of a kind's chain of states, if there is such a chain.
    fn stationary(&self, kind: usize) -> Option<&[f64]> {
        self.base()?.stationary(kind)
    }
    /// `sum_c p_c Phi_c^T D_c Phi_c`, d x d: the norm of value errors.
    fn gram(&self) -> Option<&Mat<f64>> {
        self.base()?.gram()
    }
    /// The projected Bellman error of operators with importance ratios: GTD2, TDC, and off-policy TD. It is computed on every call.
    fn projected_bellman(&self) -> Option<ProjectedBellman> {
        self.base().filter(|base| same(self.systems(), base.systems()))?.projected_bellman()
    }
    /// TD's systems `A_c`, `b_c` of dimension d, underlying the systems of GTD2 and TDC, of dimension 2 d; `None` if the systems are TD's
    /// own.
    fn td_systems(&self) -> Option<&Systems> {
        self.base().filter(|base| same(self.systems(), base.systems()))?.td_systems()
    }
    /// The quantities of theorems on TD(0) learning of finite Markov reward processes; `None` for other problems. They are computed on
    /// every call, without additive noise ([`Facts::additive_noise`]).
    fn td(&self) -> Option<TdFacts> {
        self.base().filter(|base| same(self.systems(), base.systems()))?.td()
    }
    /// The arrays of the problem that an array file has in addition to linear systems: a Markov reward
    /// process, additive noise.
    fn export(&self) -> Option<Arrays> {
        self.base()?.export()
    }
}

/// A certificate that the mean operator has exactly one root: constants with, for all x and y,
///
/// ```text
/// <gbar(x) - gbar(y), x - y>    <=  -modulus ||x - y||^2,        gbar = sum_c p_c gbar_c
/// ||gbar_c(x) - gbar_c(y)||     <=  lipschitz ||x - y||          for every agent c
/// ```
///
/// Single agents need not be monotone. FedHSA's analysis assumes both (\[F\], strong monotonicity of the mean, Lipschitz local operators).
/// The constants are bounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Monotone {
    /// The modulus of strong monotonicity of the mean operator, positive.
    pub modulus: f64,
    /// A Lipschitz constant of all agents' mean operators.
    pub lipschitz: f64,
}

impl Monotone {
    /// The certificate, if the modulus exceeds 1e-12 of the Lipschitz constant, and so is not positive by rounding only.
    pub fn of(modulus: f64, lipschitz: f64) -> Option<Self> {
        const ROUNDING: f64 = 1e-12;
        (modulus > 0.0 && modulus > ROUNDING * lipschitz).then_some(Self { modulus, lipschitz })
    }

    /// The certificate of linear systems: the smallest eigenvalue of the symmetric part of the mean of `Abar_c`, and `max_c ||Abar_c||`.
    pub fn of_systems(systems: &Systems) -> Option<Self> {
        let mean = systems.mean().a;
        let symmetric = faer::Scale(0.5) * (&mean + mean.transpose());
        Self::of(least_eigenvalue(&symmetric)?, systems.kinds.iter().map(|system| linalg::norm2(&system.a)).fold(0.0, f64::max))
    }
}

/// The least eigenvalue of a symmetric matrix; `None` if the iteration does not converge.
pub fn least_eigenvalue(symmetric: &Mat<f64>) -> Option<f64> {
    let eigenvalues = symmetric.self_adjoint_eigenvalues(faer::Side::Lower).ok()?;
    eigenvalues.into_iter().min_by(f64::total_cmp)
}

/// Whether a wrapper has its base's systems.
fn same(own: Option<&Systems>, base: Option<&Systems>) -> bool {
    own.map(std::ptr::from_ref) == base.map(std::ptr::from_ref)
}

/// The facts of a problem about which nothing is known.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unknown;

impl Facts for Unknown {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::systems::System;

    /// The samples are `A = a`, `b = 1` or -1.
    struct One(Systems, f64);

    fn one(a: f64) -> One {
        let kinds = vec![System { a: Mat::full(1, 1, a), b: vec![0.0] }];
        One(Systems::new(kinds, vec![0], vec![1.0]), a)
    }

    impl One {
        fn own_law(&self) -> FiniteLaw<'_> {
            FiniteLaw::linear(1, vec![0.5, 0.5], |z, a, b| (a[0], b[0]) = (self.1, if z == 0 { 1.0 } else { -1.0 }))
        }
    }

    impl Facts for One {
        fn systems(&self) -> Option<&Systems> {
            Some(&self.0)
        }
        fn law(&self, _: usize) -> Option<FiniteLaw<'_>> {
            Some(self.own_law())
        }
    }

    /// The facts that a wrapper changes.
    #[derive(Clone, Copy, PartialEq)]
    enum Changes {
        Nothing,
        Law,
        HidesLaw,
        Systems,
        HidesSystems,
    }

    struct Wrapper {
        base: One,
        own: One,
        changes: Changes,
    }

    impl Facts for Wrapper {
        fn base(&self) -> Option<&dyn Facts> {
            Some(&self.base)
        }
        fn systems(&self) -> Option<&Systems> {
            match self.changes {
                Changes::Systems => Some(&self.own.0),
                Changes::HidesSystems => None,
                _ => self.base.systems(),
            }
        }
        fn law(&self, kind: usize) -> Option<FiniteLaw<'_>> {
            match self.changes {
                Changes::Law => Some(self.own.own_law()),
                Changes::HidesLaw => None,
                _ => self.base.law(kind),
            }
        }
    }

    #[test]
    fn rounding_is_no_certificate() {
        assert!(Monotone::of(1e-17, 1.0).is_none() && Monotone::of(0.0, 0.0).is_none() && Monotone::of(f64::NAN, 1.0).is_none());
        assert_eq!(Monotone::of(1e-6, 4.0), Some(Monotone { modulus: 1e-6, lipschitz: 4.0 }));
    }

    #[test]
    fn facts_are_derived_from_what_a_wrapper_changes() {
        let of = |changes| Wrapper { base: one(2.0), own: one(3.0), changes };
        let aa = |changes| of(changes).moments(0).map(|moments| moments.aa[(0, 0)]);
        assert_eq!(aa(Changes::Nothing), Some(4.0));
        assert_eq!(aa(Changes::Law), Some(9.0));
        assert_eq!(aa(Changes::HidesLaw), None, "moments of a law that is not its own");
        let hessian = |changes| {
            let mut out = Mat::zeros(1, 1);
            of(changes).objective().map(|objective| {
                objective.hessian(0, &[1.0], &mut out);
                out[(0, 0)]
            })
        };
        assert_eq!(hessian(Changes::Nothing), Some(2.0));
        assert_eq!(hessian(Changes::Systems), Some(3.0));
        assert_eq!(hessian(Changes::HidesSystems), None);
        let jacobian = |changes| {
            let mut out = Mat::zeros(1, 1);
            of(changes).jacobian(0, &[1.0], &mut out).then(|| out[(0, 0)])
        };
        assert_eq!(jacobian(Changes::Nothing), Some(-2.0));
        assert_eq!(jacobian(Changes::Systems), Some(-3.0));
        assert_eq!(jacobian(Changes::HidesSystems), None);
    }
}
