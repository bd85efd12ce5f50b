//! Distances that are recorded along a run.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::linalg;
use crate::problem::systems::System;
use crate::problem::{Field, value_error};
use crate::round::Run;

/// What is recorded of one round; absent where it is not known.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Observation {
    /// `||theta - theta*||^2`.
    pub mse: Option<f64>,
    /// `||theta - limit||^2`, against a point of the user's.
    pub error: Option<f64>,
    /// `||sum_c p_c gbar_c(theta)||`; not known where operators can only be sampled.
    pub residual: Option<f64>,
    /// `(theta - theta*)^T sum_c p_c Phi_c^T D_c Phi_c (theta - theta*)`.
    pub value_error: Option<f64>,
    /// `sum_c p_c ||xi_c - xi*_c||^2`, `xi*_c = -gbar_c(theta*)`.
    pub control_error: Option<f64>,
    /// `||theta - theta*||^2 + w sum_c p_c ||xi_c - xi*_c||^2`, the Lyapunov function of
    /// \[S\] HTML eq. 45 and 51: `w = (eta / p)^2`, or `(eta H)^2` with a fixed period.
    pub lyapunov: Option<f64>,
}

/// What metrics need, computed once per field.
pub struct Metrics<'a> {
    field: &'a dyn Field,
    mean: Option<System>,
    /// `xi*_c` of every kind where operators are linear, of every agent elsewhere; empty where they are not known.
    ideal: Vec<Vec<f64>>,
}

impl<'a> Metrics<'a> {
    /// For runs on `field`.
    pub fn new(field: &'a dyn Field) -> Self {
        let minus = |g: Vec<f64>| g.iter().map(|g| -g).collect();
        let ideal = match (field.systems(), field.root()) {
            (Some(systems), Some(root)) => systems.kinds.iter().map(|s| minus(s.mean(root))).collect(),
            (None, Some(root)) if field.has_mean() => {
                let of = |c: usize| {
                    let mut g = vec![0.0; field.dim()];
                    field.mean(c, root, &mut g);
                    minus(g)
                };
                (0..field.agents()).into_par_iter().map(of).collect()
            }
            _ => Vec::new(),
        };
        Self { field, mean: field.systems().map(|s| s.mean()), ideal }
    }

    /// `xi*_c = -gbar_c(theta*)`, d numbers, where `theta*` and the mean operators are known.
    pub fn ideal_control(&self, c: usize) -> Option<&[f64]> {
        let at = self.field.systems().map_or(c, |systems| systems.kind_of[c] as usize);
        self.ideal.get(at).map(Vec::as_slice)
    }

    /// The metrics of a run as it stands; `centre` is what `error` is measured from,
    /// `control_weight` the w of the Lyapunov function.
    pub fn observe(&self, run: &Run<'_>, centre: Option<&[f64]>, control_weight: f64) -> Observation {
        let theta = run.output();
        let root = self.field.root();
        let g = self.mean.as_ref().map_or_else(|| self.field.mean_operator(theta), |mean| Some(mean.mean(theta)));
        let mse = root.map(|root| linalg::distance_sq(theta, root));
        let control_error = run.controls().and_then(|xi| {
            let each = xi.iter().enumerate().zip(self.field.weights());
            each.map(|((c, xi), p)| Some(p * linalg::distance_sq(xi, self.ideal_control(c)?))).sum()
        });
        Observation {
            mse,
            error: centre.map(|centre| linalg::distance_sq(theta, centre)),
            residual: g.map(|g| linalg::norm_sq(&g).sqrt()),
            value_error: root.and_then(|root| Some(value_error(self.field.facts().gram()?, theta, root))),
            control_error,
            lyapunov: mse.zip(control_error).map(|(mse, control)| mse + control_weight * control),
        }
    }
}
