//! Federated GMRES: the server builds a Krylov space of the mean operator, one product a round.
//!
//! ```text
//! first round:   r = sum_c p_c (b_c - A_c theta_0),  beta = ||r||,  q_1 = r / beta
//! round k:       w = sum_c p_c A_c q_k
//!                w -= Q_k (Q_k^T w), twice;   the column h_k of H;   q_{k+1} = w / ||w||
//!                theta = theta_0 + Q_k y,   y = argmin || beta e_1 - H y ||
//! ```
//! One exchange of one vector in each direction a round. The residual never grows, and is 0 after d products in exact
//! arithmetic. After `restart` products, or when the space is exhausted, the next round computes the residual of theta and
//! starts anew there. Agents answer `A_c q` itself: from the operators `b_c - A_c q` the product would be a difference of
//! larger numbers. Source: Saad and Schultz (1986).
//!
//! A product is used only if it came from all agents: over links that lose messages a round in which one is lost is
//! repeated. Links that alter messages are refused: the space would be that of another matrix in every round.

use serde::{Deserialize, Serialize};

use super::{Half, MethodSettings, MethodShape, Needs, Setting};
use crate::error::{Error, Result, require};
use crate::local::linear::ProductAgent;
use crate::message::Part;
use crate::protocol::{Exchange, Give, Len, Protocol, Want};
use crate::server::{Server, gmres};
use crate::uplink::LinkFacts;

/// The settings of federated GMRES.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Gmres {
    /// How many products are kept before the space is built anew at the present weights, which bounds the server's memory to
    /// that many vectors; d when absent.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub restart: Option<usize>,
}

crate::settings::setters! { Gmres {
    with_restart(restart: impl Into<Option<usize>>) = restart.into();
} }

impl MethodSettings for Gmres {
    fn check(&self, _: usize) -> Result<()> {
        let k = self.restart.unwrap_or(1);
        require(k >= 1, "restart", k, "1 or more")
    }

    fn needs(&self) -> Needs {
        Needs::LinearOperators
    }

    fn check_link(&self, link: &LinkFacts) -> Result<()> {
        if link.is_altered || link.is_downlink_lossy || link.is_sum_only {
            let what = "the method builds a Krylov space of one matrix, and this link alters products in every round";
            return Err(Error::new("uplink", what, "a link that delivers messages unaltered, or lstd or a first-order method"));
        }
        Ok(())
    }

    /// The basis, and the triangular matrix.
    fn memory(&self, _: usize, d: usize) -> f64 {
        let k = self.restart.unwrap_or(d).min(d) as f64;
        8.0 * k * (d as f64 + k)
    }

    /// A product; orthogonalisation in the shares of the agents.
    fn work(&self, _: usize, d: usize) -> f64 {
        (d as f64).powi(2) + 4.0 * self.restart.unwrap_or(d).min(d) as f64 * d as f64
    }

    fn protocol(&self, setting: &Setting<'_>) -> Protocol {
        let d = Len::Exactly(setting.start.len());
        let exchange = |down, part| Exchange {
            down: vec![(down, d)],
            own: Vec::new(),
            wants: vec![Want { part, len: d, give: Give::Sum }],
            may_open: true,
        };
        let exchanges = vec![exchange(Part::Model, Part::Operator), exchange(Part::Direction, Part::Product)];
        Protocol { exchanges, ..Protocol::default() }
    }

    fn client(&self, _: &Setting<'_>) -> Half {
        Half::Each(Box::new(|_| Box::new(ProductAgent)))
    }

    fn server(&self, setting: &Setting<'_>) -> Box<dyn Server> {
        let d = setting.start.len();
        Box::new(gmres::GmresServer::new(setting.start.clone(), self.restart.unwrap_or(d).min(d)))
    }

    fn shape(&self) -> MethodShape {
        MethodShape::without_local_steps()
    }
}
