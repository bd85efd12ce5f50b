//! A problem of one's own: federated robust location.
//!
//! Agent c holds n points x in R^d. Wanted is the theta at which the clipped
//! residuals of all points balance, a nonlinear root:
//!
//! ```text
//! g_c(theta, z)_i = clip(x_{z,i} - theta_i, -1, 1),    z uniform on the agent's points
//! ```
//!
//! `sample`, `apply` and `mean` are all there is to write. The generic kernel,
//! every method, the ledger and the metrics come with them. Run it with
//! `cargo run --release -p fedsa --example own_problem`.

use fedsa::error::Result;
use fedsa::kernel::Isa;
use fedsa::methods::{Settings, fedhsa::FedHsa, fedlsa::FedLsa};
use fedsa::problem::{Field, Problem, Sampled, equal_weights};
use fedsa::random::{Purpose, Stream, stream};
use fedsa::record::{Metrics, OutputRule};
use fedsa::round::Run;
use fedsa::sampling::{Law, Sampling};
use fedsa::schedule::StepSize;
use fedsa::uplink::Uplink;

/// The points of all agents, N x n x d in row-major order.
struct Location {
    n: usize,
    d: usize,
    points: Vec<f64>,
    weights: Vec<f64>,
}

impl Location {
    /// Agents whose points lie around centres of their own, the more skewed the higher their number.
    fn new(agents: usize, n: usize, d: usize) -> Self {
        let mut points = Vec::with_capacity(agents * n * d);
        for c in 0..agents {
            let mut s = stream(0, Purpose::System, 0, c);
            let centre: Vec<f64> = (0..d).map(|_| 2.0 * s.normal()).collect();
            let skew = c as f64 / agents as f64;
            points.extend((0..n * d).map(|i| {
                let w = s.normal();
                centre[i % d] + w + skew * w * w
            }));
        }
        Self { n, d, points, weights: equal_weights(agents) }
    }

    /// Point `z` of agent `c`, d numbers.
    fn point(&self, c: usize, z: usize) -> &[f64] {
        &self.points[(c * self.n + z) * self.d..][..self.d]
    }
}

impl Problem for Location {
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
    fn sample(&self, _: usize, _: &mut [u64], stream: &mut Stream, z: &mut usize) {
        *z = (stream.uniform() * self.n as f64) as usize;
    }
    #[inline(always)]
    fn apply(&self, c: usize, theta: &[f64], z: &usize, out: &mut [f64]) {
        for ((out, x), theta) in out.iter_mut().zip(self.point(c, *z)).zip(theta) {
            *out = (x - theta).clamp(-1.0, 1.0);
        }
    }
    fn mean(&self, c: usize, theta: &[f64], out: &mut [f64]) {
        out.fill(0.0);
        for z in 0..self.n {
            for ((out, x), theta) in out.iter_mut().zip(self.point(c, z)).zip(theta) {
                *out += (x - theta).clamp(-1.0, 1.0) / self.n as f64;
            }
        }
    }
}

/// `||sum_c p_c gbar_c(theta)||` at the mean iterate of the last 200 of 400 rounds; it is 0 at the root.
fn residual(field: &dyn Field, method: &dyn Settings) -> Result<f64> {
    method.check(field.agents())?;
    let uplink = Uplink::default();
    let mut run = Run::new(field, method, &uplink, OutputRule::TailAfter(200), 0, vec![0.0; field.dim()])?;
    (0..400).for_each(|_| run.step());
    Ok(Metrics::new(field).observe(&run, None, 0.0).residual.expect("always known"))
}

fn main() -> Result<()> {
    let (step_size, local_steps) = (StepSize::Constant(0.02), 100);
    let fedlsa = FedLsa { step_size, local_steps, global_step_size: 1.0, participants: None };
    let fedhsa = FedHsa { step_size, local_steps, global_step_size: 0.2, participants: None, missing: Default::default() };
    for law in [Law::Mean, Law::Iid] {
        let sampling = Sampling { kind: law, batch: 10, ..Sampling::default() };
        let field = Sampled::new(Location::new(20, 50, 3), sampling, Isa::best())?;
        let (local, global) = (residual(&field, &fedlsa)?, residual(&field, &fedhsa)?);
        println!("{law:?} samples: residual of FedLSA {local:.1e}, of FedHSA {global:.1e}");
        assert!(law != Law::Mean || (local > 1e-2 && global < 1e-9));
    }
    Ok(())
}
