//! The eigenvalues of the agents' Hessians, which give rates of methods without local steps.

use fedsa::linalg;
use fedsa::parallel;
use fedsa::problem::Field;

use super::reason::{KnownOrReason, Reason, ReasonCode};

/// The eigenvalues of Hessians at theta*.
#[derive(Debug, Clone)]
pub struct HessianEigenvalues {
    /// The smallest and the largest eigenvalue of the mean Hessian, mu and L.
    pub least: f64,
    pub largest: f64,
    /// Each agent's weight and eigenvalues, in decreasing order.
    pub agents: Vec<(f64, Vec<f64>)>,
    /// Whether the losses are quadratic, so that the eigenvalues are the same everywhere.
    pub is_quadratic: bool,
}

impl HessianEigenvalues {
    /// The eigenvalues for a problem, within `most` multiplications.
    pub(super) fn of(field: &dyn Field, most: f64) -> KnownOrReason<Self> {
        let unknown = |why: String| Reason::text(ReasonCode::NotKnown, why);
        let objective = field.facts().objective().ok_or_else(|| unknown("the operators are not minus gradients of losses".into()))?;
        let root = field.solution().map_err(|why| unknown(format!("theta* is not known: {why}")))?;
        let (n, d) = (field.agents(), field.dim());
        if 30.0 * (n as f64 + 1.0) * (d as f64).powi(3) > most {
            let what = format!("the eigenvalues of {n} Hessians of {d} components take too long");
            return Err(Reason::text(ReasonCode::TakesTooLong, what));
        }
        let values = |h: &linalg::Mat<f64>| -> KnownOrReason<Vec<f64>> {
            let values = linalg::eigenvalues(h).map_err(|e| Reason::from(&e))?;
            let mut values: Vec<f64> = values.into_iter().map(|(re, _)| re).collect();
            values.sort_by(|a, b| b.total_cmp(a));
            Ok(values)
        };
        let hessian = |c: usize| {
            let mut out = linalg::Mat::<f64>::zeros(d, d);
            objective.hessian(c, &root.theta, &mut out);
            out
        };
        let all: Vec<linalg::Mat<f64>> = parallel::map(n, hessian);
        let mut mean = linalg::Mat::<f64>::zeros(d, d);
        for (h, p) in all.iter().zip(field.weights()) {
            (0..d).for_each(|j| linalg::add_scaled(mean.col_as_slice_mut(j), *p, h.col_as_slice(j)));
        }
        let of_mean = values(&mean)?;
        let agents = parallel::try_map(n, |c| Ok::<_, Reason>((field.weights()[c], values(&all[c])?)))?;
        let is_quadratic = field.facts().linear_operators().is_some() || field.systems().is_some();
        Ok(Self { least: of_mean[d - 1], largest: of_mean[0], agents, is_quadratic })
    }
}
