//! What is true near the root of nonlinear operators: the theory of their linear models there.
//!
//! The linear model of `gbar_c` at theta* is `gbar_c(theta*) + J_c (theta - theta*)`, that is `A_c = -J_c` and
//! `b_c = gbar_c(theta*) - J_c theta*`: systems with the same root. Everything that is derived from them is *local*: it says
//! how small deviations from the fixed point behave, not from how far away it is reached.

use rayon::prelude::*;

use crate::error::{BadInput, Result};
use crate::linalg;
use crate::problem::Field;
use crate::problem::root::{self, Source};
use crate::problem::systems::{System, Systems};
use crate::theory::RoundSetting;
use crate::theory::constants::Radii;

/// The linear models of the agents' operators at the root.
#[derive(Debug, Clone)]
pub struct Local {
    /// One system for each agent, or those of a linear problem, which are its models everywhere.
    pub systems: Systems,
    /// Whether Jacobians are those that the problem knows or differences of its mean operators, which have
    /// relative errors of some 1e-10.
    pub jacobians: Source,
}

impl Local {
    /// The models of a problem: N matrices of d x d numbers where operators are not linear.
    ///
    /// # Errors
    /// When the root or the mean operators are not known, with the reason.
    pub fn new(field: &dyn Field) -> Result<Self> {
        if let Some(systems) = field.systems() {
            return Ok(Self { systems: systems.clone(), jacobians: Source::Linear });
        }
        let unknown = |why: &str| BadInput::new("", format!("theta* is not known: {why}"), "a problem whose root is known");
        let theta = &field.solution().map_err(unknown)?.theta;
        let model = |c: usize| {
            let (jacobian, source) = root::jacobian(field, c, theta)?;
            let mut b = vec![0.0; theta.len()];
            field.mean(c, theta, &mut b);
            b.iter_mut().zip(linalg::mat_vec(&jacobian, theta)).for_each(|(b, jx)| *b -= jx);
            Some((System { a: -jacobian, b }, source))
        };
        let models: Option<Vec<(System, Source)>> = (0..field.agents()).into_par_iter().map(model).collect();
        let (kinds, sources): (Vec<System>, Vec<Source>) =
            models.ok_or_else(|| unknown("neither Jacobians nor mean operators are known"))?.into_iter().unzip();
        let kind_of = (0..field.agents() as u32).collect();
        Ok(Self { systems: Systems { kinds, kind_of, weights: field.weights().to_vec() }, jacobians: sources[0] })
    }

    /// The spectral radii of noiseless rounds near their fixed points. Those of FedHSA and SCAFFLSA are exact: local
    /// iterates of a round at the fixed point do not leave theta*. That of FedLSA is exact where H = 1 or agents
    /// are alike; elsewhere its fixed point is off theta* by its bias, and the radius is that of the models.
    ///
    /// # Errors
    /// When the mean of the models is singular or an eigenvalue iteration does not converge.
    pub fn radii(&self, setting: &RoundSetting) -> Result<Radii> {
        Radii::new(&self.systems, None, setting)
    }
}
