//! Federated GMRES: the server builds a Krylov space of the mean operator, one product per round.
//!
//! ```text
//! first round:   r = sum_c p_c (b_c - A_c theta_0),  beta = ||r||,  q_1 = r / beta
//! round k:       w = sum_c p_c A_c q_k
//!                w -= Q_k (Q_k^T w), twice;   the column h_k of H;   q_{k+1} = w / ||w||
//!                theta = theta_0 + Q_k y,   y = argmin || beta e_1 - H y ||
//! ```
//! One exchange per round, with one vector in each direction. The residual never grows, and is 0 after d products in exact arithmetic.
//! After `restart` products, or when the space is exhausted, the next round computes the residual of theta and restarts there. Agents
//! answer with `A_c q` itself: computed from the operators `b_c - A_c q`, the product would be a difference of larger numbers. Source: Saad
//! and Schultz (1986).
//!
//! A product is used only if it includes all agents: over links that lose messages, a round with a loss is repeated. Links that alter
//! messages are refused, because every round would then multiply by another matrix. The rounding of secure sums is small enough: each restart
//! computes the residual anew. Their `least_agents` should then be the number of agents: agents refuse to unmask a sum of all after one
//! without some of them.

use fedsa::error::{Error, Result, require};
use fedsa::kernel::dot;
use fedsa::linalg::norm_sq;
use fedsa::local::{Agent, ByAgent, Client, LocalContext};
use fedsa::message::{Body, Message, Part};
use fedsa::method::{MethodSettings, MethodShape, Needs, Setting};
use fedsa::protocol::{Exchange, Gather, Len, Protocol, ReplySpec};
use fedsa::saved::{packed, unpacked};
use fedsa::server::{Broadcast, Next, Received, Server};
use fedsa::uplink::LinkFacts;
use serde::{Deserialize, Serialize};

use crate::local::without_state;

/// The settings of federated GMRES.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Gmres {
    /// Products before a restart; d by default.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub restart: Option<usize>,
}

fedsa::settings::setters! { Gmres {
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
        if (link.is_altered || link.is_sum_only) && !link.is_fine_sum || link.is_downlink_lossy {
            let what = "the method builds a Krylov space of one matrix, and this link alters products in every round";
            return Err(Error::new(
                "uplink",
                what,
                "a link that delivers messages unaltered, secure-sum with 40 bits or more, or lstd or a first-order method",
            ));
        }
        Ok(())
    }

    /// The basis, and the triangular matrix.
    fn memory(&self, _: usize, d: usize) -> f64 {
        let k = self.restart.unwrap_or(d).min(d) as f64;
        8.0 * k * (d as f64 + k)
    }

    /// A product, and the orthogonalisation divided among the agents.
    fn work(&self, _: usize, d: usize) -> f64 {
        (d as f64).powi(2) + 4.0 * self.restart.unwrap_or(d).min(d) as f64 * d as f64
    }

    fn protocol(&self, setting: &Setting<'_>) -> Protocol {
        let d = Len::Exactly(setting.start.len());
        let exchange = |down, part| Exchange {
            down: vec![(down, d)],
            own: Vec::new(),
            replies: vec![ReplySpec { part, len: d, gather: Gather::Sum }],
            may_open: true,
        };
        let exchanges = vec![exchange(Part::Model, Part::Operator), exchange(Part::Direction, Part::Product)];
        Protocol { exchanges, ..Protocol::default() }
    }

    fn client(&self, _: &Setting<'_>) -> Box<dyn Client> {
        ByAgent::boxed(|_| Box::new(ProductAgent))
    }

    fn server(&self, setting: &Setting<'_>) -> Box<dyn Server> {
        let d = setting.start.len();
        Box::new(GmresServer::new(setting.start.clone(), self.restart.unwrap_or(d).min(d)))
    }

    fn shape(&self) -> MethodShape {
        MethodShape::without_local_steps()
    }
}

/// Answers a model theta with `b_c - A_c theta`, and a direction q with `A_c q`; d numbers each, or the non-zero ones with their indices if
/// that is shorter.
#[derive(Debug, Clone, Copy, Default)]
pub struct ProductAgent;

impl Agent for ProductAgent {
    fn answer(&mut self, at: &LocalContext<'_>, down: &Message) -> Result<Vec<(Part, Body)>> {
        if down.exchange == 0 {
            return Ok(vec![(Part::Operator, Body::of_numbers(at.operator(down.part(Part::Model))))]);
        }
        Ok(vec![(Part::Product, Body::of_numbers(at.product(down.part(Part::Direction))))])
    }
    fn save(&self) -> Vec<u8> {
        Vec::new()
    }
    fn restore(&mut self, bytes: &[u8]) -> Result<()> {
        without_state(bytes)
    }
}

/// Arnoldi's process with double orthogonalisation, and Givens rotations that keep H triangular.
#[derive(Debug, Clone)]
pub struct GmresServer {
    /// theta, d components: the iterate of least residual over the space so far.
    theta: Vec<f64>,
    /// `theta_0` of this space, d components.
    start: Vec<f64>,
    /// `q_1, q_2, ..`, d components each; one more than there are products. Empty while the residual of `theta` is requested.
    basis: Vec<Vec<f64>>,
    /// The columns of the triangular matrix: k numbers in column k.
    columns: Vec<Vec<f64>>,
    /// The rotations (c, s), one per column.
    rotations: Vec<[f64; 2]>,
    /// The rotated right-hand side `beta e_1`, one number more than there are products. The last one is the residual's norm.
    rotated: Vec<f64>,
    /// The most products in one space.
    restart: usize,
    /// The norm of the first residual, and the largest norm of the products so far: lower bounds of `||b - A theta_0||` and `||A||`.
    sizes: [f64; 2],
}

/// A residual counts as rounding error if it is at most this multiple of its terms; the same holds for the new part of a product.
const ROUNDING: f64 = 64.0 * f64::EPSILON;
/// The mean operator is singular along a direction if the new part of its product is at most this multiple of the largest product.
const SINGULAR: f64 = 1e-13;

impl GmresServer {
    /// The rule at `theta_0`; it keeps `restart` products.
    pub fn new(theta: Vec<f64>, restart: usize) -> Self {
        let start = theta.clone();
        Self { theta, start, basis: Vec::new(), columns: Vec::new(), rotations: Vec::new(), rotated: Vec::new(), restart, sizes: [0.0; 2] }
    }

    /// Begins a space at theta, whose residual is r.
    fn begin(&mut self, r: &[f64]) {
        self.forget();
        let beta = norm_sq(r).sqrt();
        if self.sizes[0] == 0.0 {
            self.sizes[0] = beta;
        }
        // A space of rounding errors would leave the solution if features are linearly dependent.
        let is_rounding = self.sizes[1] > 0.0 && beta <= ROUNDING * self.terms();
        if beta > 0.0 && beta.is_finite() && !is_rounding {
            self.start.clone_from(&self.theta);
            self.basis = vec![r.iter().map(|r| r / beta).collect()];
            self.rotated = vec![beta];
        }
    }

    /// The approximate size of the terms of a residual, `||A|| ||theta|| + ||b||`.
    fn terms(&self) -> f64 {
        let [first, product] = self.sizes;
        product * norm_sq(&self.theta).sqrt() + first
    }

    /// Ends the space: the next round asks for the residual of theta.
    fn forget(&mut self) {
        self.basis.clear();
        self.columns.clear();
        self.rotations.clear();
        self.rotated.clear();
    }

    /// Handles `w = A q_k`.
    fn extend(&mut self, mut w: Vec<f64>) {
        let k = self.basis.len();
        let size = norm_sq(&w).sqrt();
        self.sizes[1] = self.sizes[1].max(size);
        let mut column = vec![0.0; k];
        // One pass leaves errors of the size of the condition number; two are enough (Kahan, Parlett).
        for _ in 0..2 {
            let parts: Vec<f64> = self.basis.iter().map(|q| dot(q, &w)).collect();
            for ((part, q), h) in parts.iter().zip(&self.basis).zip(&mut column) {
                *h += part;
                w.iter_mut().zip(q).for_each(|(w, q)| *w -= part * q);
            }
        }
        let mut next = norm_sq(&w).sqrt();
        let largest = self.sizes[1];
        let is_exhausted = next <= ROUNDING * size || next <= f64::EPSILON * largest;
        if is_exhausted {
            next = 0.0;
        }
        for (j, [c, s]) in self.rotations.iter().enumerate().take(k - 1) {
            (column[j], column[j + 1]) = (c * column[j] + s * column[j + 1], c * column[j + 1] - s * column[j]);
        }
        let length = column[k - 1].hypot(next);
        if length <= SINGULAR * largest {
            // A q_k is in the span of the earlier products, or q_k itself is a rounding error because the space is exhausted.
            return self.forget();
        }
        let [c, s] = [column[k - 1] / length, next / length];
        column[k - 1] = length;
        let last = self.rotated[k - 1];
        self.rotated[k - 1] = c * last;
        self.rotated.push(-s * last);
        self.columns.push(column);
        self.rotations.push([c, s]);
        self.improve();
        // The last rotated number is the residual. Below the rounding error of its terms it cannot decrease, and later directions would
        // consist of errors.
        let is_rounding = self.rotated[k].abs() <= f64::EPSILON * self.terms();
        if is_exhausted || is_rounding || k == self.restart {
            self.forget();
        } else {
            self.basis.push(w.iter().map(|w| w / next).collect());
        }
    }

    /// `theta = theta_0 + Q y` with the least residual.
    fn improve(&mut self) {
        let k = self.columns.len();
        let mut y = self.rotated[..k].to_vec();
        for j in (0..k).rev() {
            y[j] /= self.columns[j][j];
            let x = y[j];
            y[..j].iter_mut().zip(&self.columns[j]).for_each(|(y, r)| *y -= r * x);
        }
        self.theta.clone_from(&self.start);
        for (y, q) in y.iter().zip(&self.basis) {
            self.theta.iter_mut().zip(q).for_each(|(x, q)| *x += y * q);
        }
    }
}

impl Server for GmresServer {
    fn open(&mut self, t: u64) -> Broadcast {
        let down = match self.basis.last() {
            None => Message::one(t, 0, Part::Model, self.theta.clone()),
            Some(q) => Message::one(t, 1, Part::Direction, q.clone()),
        };
        Broadcast { to: None, down, own: None }
    }

    fn receive(&mut self, got: &Received<'_>) -> Next {
        // Without some agent, the product would belong to another matrix, so the next round asks again.
        if got.arrived.is_empty() {
            match got.exchange {
                0 => self.begin(got.sum(Part::Operator)),
                _ => self.extend(got.sum(Part::Product).to_vec()),
            }
        }
        Next::Done { tell: None }
    }

    fn theta(&self) -> &[f64] {
        &self.theta
    }

    fn state(&self) -> Vec<u8> {
        packed(&(&self.theta, &self.start, &self.basis, &self.columns, &self.rotations, &self.rotated, self.sizes))
    }

    fn restore(&mut self, state: &[u8]) -> Result<()> {
        (self.theta, self.start, self.basis, self.columns, self.rotations, self.rotated, self.sizes) = unpacked(state)?;
        Ok(())
    }
}
