//! A problem of your own: federated robust regression.
//!
//! Agent c holds n points (x, y), x in R^d. Wanted is the theta at which the bounded
//! residuals of all points balance, a nonlinear root:
//!
//! ```text
//! g_c(theta, z) = tanh(y_z - x_z^T theta) x_z,    z uniform on the agent's points
//! ```
//!
//! Only `sample` and `apply` are required; every first-order method then runs on the problem. With `mean` the residual
//! is known, noiseless sampling works, and theta* is found by Newton's method. [`Facts`] are optional: here the loss
//! behind the operator, whose Hessians Newton's method uses, and the law of a sample. Run it with
//! `cargo run --release -p fedsa --example own_problem`.

use std::sync::Arc;

use fedsa::error::Result;
use fedsa::federation::Federation;
use fedsa::kernel::Isa;
use fedsa::linalg::Mat;
use fedsa::method::MethodSettings;
use fedsa::metrics::Metrics;
use fedsa::problem::facts::Facts;
use fedsa::problem::law::FiniteLaw;
use fedsa::problem::objective::Objective;
use fedsa::problem::{Field, Problem, Sampled, equal_weights};
use fedsa::random::{Purpose, Stream, stream};
use fedsa::record::OutputRule;
use fedsa::round::Run;
use fedsa::sampling::{Law, Sampling};
use fedsa::schedule::StepSize;
use fedsa_methods::fedhsa::FedHsa;
use fedsa_methods::fedlsa::FedLsa;
use fedsa_methods::scafflsa::Scafflsa;

/// The points of all agents: x is N x n x d in row-major order, y is N x n.
pub struct Regression {
    n: usize,
    d: usize,
    x: Vec<f64>,
    y: Vec<f64>,
    weights: Vec<f64>,
}

impl Regression {
    /// Agents whose points follow lines of their own, with a few outliers.
    pub fn new(agents: usize, n: usize, d: usize) -> Self {
        let (mut x, mut y) = (Vec::with_capacity(agents * n * d), Vec::with_capacity(agents * n));
        for c in 0..agents {
            let mut s = stream(0, Purpose::System, 0, c);
            let line: Vec<f64> = (0..d).map(|_| 1.0 + 0.5 * s.normal()).collect();
            for _ in 0..n {
                let point: Vec<f64> = (0..d).map(|_| s.normal()).collect();
                let outlier = if s.uniform() < 0.1 { 5.0 * s.normal() } else { 0.0 };
                y.push(point.iter().zip(&line).map(|(x, w)| x * w).sum::<f64>() + 0.3 * s.normal() + outlier);
                x.extend(point);
            }
        }
        Self { n, d, x, y, weights: equal_weights(agents) }
    }

    /// `x_z` of agent `c`, d numbers, and `y_z - x_z^T theta`.
    fn point(&self, c: usize, z: usize, theta: &[f64]) -> (&[f64], f64) {
        let x = &self.x[(c * self.n + z) * self.d..][..self.d];
        (x, self.y[c * self.n + z] - x.iter().zip(theta).map(|(x, w)| x * w).sum::<f64>())
    }
}

impl Problem for Regression {
    /// The index of a point.
    type Obs = usize;

    fn dim(&self) -> usize {
        self.d
    }
    fn weights(&self) -> &[f64] {
        &self.weights
    }
    // Inlined, these two are compiled into the kernel of each instruction set.
    #[inline(always)]
    fn sample(&self, _: usize, _: &[f64], _: &mut [u64], stream: &mut Stream, z: &mut usize) {
        *z = (stream.uniform() * self.n as f64) as usize;
    }
    #[inline(always)]
    fn apply(&self, c: usize, theta: &[f64], z: &usize, out: &mut [f64]) {
        let (x, residual) = self.point(c, *z, theta);
        let pull = residual.tanh();
        out.iter_mut().zip(x).for_each(|(out, x)| *out = pull * x);
    }
    fn mean(&self, c: usize, theta: &[f64], out: &mut [f64]) -> bool {
        out.fill(0.0);
        for z in 0..self.n {
            let (x, residual) = self.point(c, z, theta);
            let pull = residual.tanh() / self.n as f64;
            out.iter_mut().zip(x).for_each(|(out, x)| *out += pull * x);
        }
        true
    }
    fn facts(&self) -> &dyn Facts {
        self
    }
}

impl Facts for Regression {
    fn objective(&self) -> Option<&dyn Objective> {
        Some(self)
    }
    fn law(&self, c: usize) -> Option<FiniteLaw<'_>> {
        let mass = vec![1.0 / self.n as f64; self.n];
        Some(FiniteLaw::new(self.d, mass, move |z, theta, out| self.apply(c, theta, &z, out)))
    }
}

/// `f_c(theta) = (1/n) sum_z log cosh(y_z - x_z^T theta)`.
impl Objective for Regression {
    fn loss(&self, c: usize, theta: &[f64]) -> f64 {
        let log_cosh = |r: f64| r.abs() + (-2.0 * r.abs()).exp().ln_1p() - std::f64::consts::LN_2;
        (0..self.n).map(|z| log_cosh(self.point(c, z, theta).1)).sum::<f64>() / self.n as f64
    }
    fn gradient(&self, c: usize, theta: &[f64], out: &mut [f64]) {
        self.mean(c, theta, out);
        out.iter_mut().for_each(|out| *out = -*out);
    }
    fn hessian(&self, c: usize, theta: &[f64], out: &mut Mat<f64>) {
        out.fill(0.0);
        for z in 0..self.n {
            let (x, residual) = self.point(c, z, theta);
            let bend = residual.cosh().powi(-2) / self.n as f64;
            for i in 0..self.d {
                (0..self.d).for_each(|j| out[(i, j)] += bend * (x[i] * x[j]));
            }
        }
    }
    fn hessian_vector(&self, c: usize, theta: &[f64], v: &[f64], out: &mut [f64]) {
        out.fill(0.0);
        for z in 0..self.n {
            let (x, residual) = self.point(c, z, theta);
            let bend = residual.cosh().powi(-2) / self.n as f64 * x.iter().zip(v).map(|(x, v)| x * v).sum::<f64>();
            out.iter_mut().zip(x).for_each(|(out, x)| *out += bend * x);
        }
    }
}

/// `||theta - theta*||^2` of the mean iterate of the last 200 of 400 rounds.
fn error(field: &Arc<dyn Field>, method: &dyn MethodSettings) -> Result<f64> {
    let federation = Federation::builder(method).output(OutputRule::TailAfter(200)).on(&**field)?;
    let mut run = Run::new(field, &federation)?;
    (0..400).for_each(|_| run.step());
    Ok(Metrics::new(field).observe(&run, None, 0.0).mse.expect("Newton's method finds the root"))
}

fn main() -> Result<()> {
    let (step_size, local_steps) = (StepSize::Constant(0.05), 50);
    let fedlsa = FedLsa::new(step_size, local_steps);
    let fedhsa = FedHsa::new(step_size, local_steps);
    let scafflsa = Scafflsa::new(0.05, local_steps);
    for law in [Law::Mean, Law::Iid] {
        let sampling = Sampling::default().with_kind(law).with_batch(10);
        let field: Arc<dyn Field> = Arc::new(Sampled::new(Regression::new(20, 50, 3), sampling, Isa::best())?);
        let [plain, memory, control] = [error(&field, &fedlsa)?, error(&field, &fedhsa)?, error(&field, &scafflsa)?];
        println!("{law:?} samples: squared error of FedLSA {plain:.1e}, of FedHSA {memory:.1e}, of SCAFFLSA {control:.1e}");
        assert!(law != Law::Mean || (plain > 1e-5 && memory < 1e-20 && control < 1e-20));
    }
    Ok(())
}
