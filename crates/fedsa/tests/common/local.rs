//! Linear models of nonlinear operators near their root, with which theory of linear problems is compared with the engine.
//!
//! The linear model of `gbar_c` at theta* is `gbar_c(theta*) + J_c (theta - theta*)`, that is `A_c = -J_c` and
//! `b_c = gbar_c(theta*) - J_c theta*`: systems with the same root. Results from them are *local*: they describe small
//! deviations from the fixed point, and do not say from which starts it is reached. The radii of FedHSA and SCAFFLSA are exact, because local
//! iterates of a round that starts at the fixed point stay at theta*. That of FedLSA is exact if H = 1 or all agents are equal.

use fedsa::error::{Error, Result};
use fedsa::linalg;
use fedsa::problem::Field;
use fedsa::problem::newton;
use fedsa::problem::root::RootSource;
use fedsa::problem::systems::{System, Systems};

/// The linear models of the agents' operators at the root.
#[derive(Debug, Clone)]
pub struct Local {
    /// One system for each agent; for linear problems their own systems.
    pub systems: Systems,
    /// Whether the problem gives its Jacobians, or they are differences of its mean operators, with relative errors of about
    /// 1e-10.
    pub jacobians: RootSource,
}

impl Local {
    /// The linear models of a problem. For operators that are not linear they take N matrices of d x d numbers.
    ///
    /// # Errors
    /// When the root or the mean operators are not known; gives the reason.
    pub fn new(field: &dyn Field) -> Result<Self> {
        if let Some(systems) = field.systems() {
            return Ok(Self { systems: systems.clone(), jacobians: RootSource::Linear });
        }
        let unknown = |why: &str| Error::not_known("", format!("theta* is not known: {why}"), "a problem whose root is known");
        let theta = &field.solution().map_err(unknown)?.theta;
        let model = |c: usize| {
            let known = newton::jacobian(field, c, theta);
            let (jacobian, source) = known.ok_or_else(|| unknown("neither Jacobians nor mean operators are known"))?;
            let mut b = vec![0.0; theta.len()];
            field.mean(c, theta, &mut b);
            b.iter_mut().zip(linalg::mat_vec(&jacobian, theta)).for_each(|(b, jx)| *b -= jx);
            Ok((System { a: -jacobian, b }, source))
        };
        let models = (0..field.agents()).map(model).collect::<Result<Vec<_>>>()?;
        let (kinds, sources): (Vec<System>, Vec<RootSource>) = models.into_iter().unzip();
        let kind_of = (0..field.agents() as u32).collect();
        Ok(Self { systems: Systems::new(kinds, kind_of, field.weights().to_vec()), jacobians: sources[0] })
    }
}
