//! The client half of methods that move along a direction: gradients, the agents' own directions, and losses along a step.

use faer::Mat;
use fedsa::error::Result;
use fedsa::linalg::{along, dot, dots, norm_sq, solve_definite, solve_definite_within, with_square};
use fedsa::local::agent::MAX_ROWS;
use fedsa::local::{Agent, LocalContext};
use fedsa::message::{Body, Message, Part};
use fedsa::problem::objective::ActiveComponents;
use fedsa::protocol::refused;
use fedsa::random::{Purpose, stream};

use super::line_search::Trials;
use super::point::Point;
use super::renewal::index;

/// The algorithm for an agent's Newton direction `-H_c^-1 g`, with its Hessian `H_c` at `theta_t`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LocalSolve {
    /// Cholesky's factorisation of `H_c`, which is formed once: d^2 numbers while the agent answers. If `H_c` is not positive definite, or
    /// so near to singular that the solution has `||H_c p + g|| > tolerance ||g||`, conjugate gradients follow with the formed matrix.
    Direct {
        /// The relative residual.
        tolerance: f64,
        /// The most products of conjugate gradients.
        steps: usize,
    },
    /// Conjugate gradients from 0, until `||H_c p + g|| <= tolerance ||g||`, at most `steps` products, or negative curvature of `H_c`. In
    /// the last case the result is the current iterate, or `-g` at the first step.
    Cg {
        /// The relative residual.
        tolerance: f64,
        /// The most products.
        steps: usize,
    },
    /// Richardson's iteration `p <- p - size (H_c p + g)` from 0: `steps` times; the first one needs no product.
    Richardson {
        /// The step size; by default `1 / lambda`, with the agent's estimate of the largest eigenvalue of `H_c` by power iteration.
        size: Option<f64>,
        /// The number of steps R.
        steps: usize,
    },
}

impl LocalSolve {
    /// `p` with `H_c p ~ -g` at theta, for the agent `at`. All vectors have d components.
    ///
    /// Calls of the objective: one Hessian (`Direct`), or products with the Hessian. Conjugate gradients take one product per step,
    /// Richardson's iteration one per step but the first, and more for an estimate of its step.
    pub fn direction(self, at: &LocalContext<'_>, theta: &[f64], g: &[f64]) -> Vec<f64> {
        match self {
            LocalSolve::Direct { tolerance, steps } => with_square(g.len(), |h| {
                at.hessian(theta, h);
                direct(h, g, at.active().as_ref(), tolerance, steps)
            }),
            LocalSolve::Cg { tolerance, steps } => conjugate_gradients(g, tolerance, steps, returning(at.hessian_products(theta))),
            LocalSolve::Richardson { size, steps } => {
                let mut product = returning(at.many_products(theta, richardson_products(size, steps)));
                // Without curvature the agent has no Newton direction.
                let own = |largest: f64| if largest == 0.0 { 0.0 } else { 1.0 / largest };
                let size = size.unwrap_or_else(|| own(largest_eigenvalue(at.agent, g.len(), &mut product)));
                richardson(g, size, steps, product)
            }
        }
    }

    /// The bytes of an agent with d components while it answers.
    pub fn memory(self, d: usize) -> f64 {
        match self {
            // The matrix and its factor.
            LocalSolve::Direct { .. } => 16.0 * (d as f64).powi(2),
            // Solution, residual, direction and product.
            LocalSolve::Cg { .. } => 32.0 * d as f64,
            // An upper bound: if some products make it worth forming the Hessian, the matrix, its triangle and its blocks.
            LocalSolve::Richardson { size, steps } => {
                let may_form = d <= MAX_ROWS && richardson_products(size, steps) > 5;
                32.0 * d as f64 + if may_form { 16.0 * (d as f64).powi(2) } else { 0.0 }
            }
        }
    }

    /// The multiply-adds for d components: d^2 for a product with a dense matrix, as much as two products for a Hessian, d^3 / 6 for its
    /// factorisation. Without rounding, conjugate gradients take d products.
    pub fn work(self, d: usize) -> f64 {
        let square = (d as f64).powi(2);
        match self {
            LocalSolve::Direct { .. } => (2.0 + d as f64 / 6.0) * square,
            LocalSolve::Cg { steps, .. } => steps.min(d) as f64 * square,
            LocalSolve::Richardson { size, steps } => (richardson_products(size, steps) + 1) as f64 * square,
        }
    }
}

/// The products of Richardson's iteration with a Hessian.
fn richardson_products(size: Option<f64>, steps: usize) -> usize {
    steps.saturating_sub(1) + if size.is_some() { 0 } else { POWERS }
}

/// Wraps products so that they return their image.
fn returning(mut product: impl FnMut(&[f64], &mut [f64])) -> impl FnMut(&[f64]) -> Vec<f64> {
    move |v: &[f64]| {
        let mut out = vec![0.0; v.len()];
        product(v, &mut out);
        out
    }
}

/// The solution of `H p = -g` for a dense symmetric H, d x d, if it exists and its residual is small enough; otherwise by conjugate
/// gradients. If H is known to be diagonal outside of the active components, only these are factorised.
fn direct(h: &Mat<f64>, g: &[f64], active: Option<&ActiveComponents>, tolerance: f64, steps: usize) -> Vec<f64> {
    // The columns of a symmetric matrix are its rows.
    let product = |v: &[f64]| dots(v.len(), |j| h.col_as_slice(j), v);
    let minus: Vec<f64> = g.iter().map(|g| -g).collect();
    let solved = match active {
        Some(active) => solve_definite_within(h, &minus, &active.components),
        None => solve_definite(h, &minus),
    };
    let solved = solved.filter(|p| {
        let residual: Vec<f64> = product(p).iter().zip(g).map(|(hp, g)| hp + g).collect();
        norm_sq(&residual) <= tolerance * tolerance * norm_sq(g)
    });
    solved.unwrap_or_else(|| conjugate_gradients(g, tolerance, steps, product))
}

/// Hestenes and Stiefel (1952) for `H p = -g`.
fn conjugate_gradients(g: &[f64], tolerance: f64, steps: usize, mut product: impl FnMut(&[f64]) -> Vec<f64>) -> Vec<f64> {
    let mut p = vec![0.0; g.len()];
    // r = -g - H p, the residual; v the search direction.
    let mut r: Vec<f64> = g.iter().map(|g| -g).collect();
    let mut v = r.clone();
    let mut rr = dot(&r, &r);
    let enough = tolerance * tolerance * rr;
    for k in 0..steps {
        if rr <= enough {
            break;
        }
        let hv = product(&v);
        let curvature = dot(&v, &hv);
        if !(curvature > 0.0) {
            return if k == 0 { v } else { p };
        }
        let a = rr / curvature;
        p.iter_mut().zip(&v).for_each(|(p, v)| *p = a.mul_add(*v, *p));
        r.iter_mut().zip(&hv).for_each(|(r, hv)| *r = (-a).mul_add(*hv, *r));
        let before = std::mem::replace(&mut rr, dot(&r, &r));
        v.iter_mut().zip(&r).for_each(|(v, r)| *v = (rr / before).mul_add(*v, *r));
    }
    p
}

/// The products for an estimate of the largest eigenvalue. Each one multiplies the squared share of an eigenvalue l in a random start
/// vector by l^2: after 15, eigenvalues below half of the largest one have lost a factor of 1e9.
const POWERS: usize = 15;

/// An estimate from below of the largest absolute eigenvalue of H with d rows, by power iteration from a random vector of the agent, the
/// same in every round. The gradient is no start: after some rounds it has no part in directions of large eigenvalues.
fn largest_eigenvalue(agent: usize, d: usize, product: &mut impl FnMut(&[f64]) -> Vec<f64>) -> f64 {
    let mut draws = stream(0, Purpose::Compressor, 1, agent);
    let mut v: Vec<f64> = (0..d).map(|_| draws.normal()).collect();
    let mut norm = norm_sq(&v).sqrt();
    for _ in 0..POWERS {
        v.iter_mut().for_each(|x| *x /= norm);
        v = product(&v);
        norm = norm_sq(&v).sqrt();
        if !(norm > 0.0) {
            break;
        }
    }
    norm
}

fn richardson(g: &[f64], size: f64, steps: usize, mut product: impl FnMut(&[f64]) -> Vec<f64>) -> Vec<f64> {
    let mut p: Vec<f64> = g.iter().map(|g| -size * g).collect();
    for _ in 1..steps {
        let hp = product(&p);
        p.iter_mut().zip(hp.iter().zip(g)).for_each(|(p, (hp, g))| *p -= size * (hp + g));
    }
    p
}

/// Answers a model with the gradient `grad f_c(theta_t)`; the mean gradient with the agent's own Newton direction; and a step with the
/// losses along it. A method uses a subset of these, in this order.
#[derive(Debug, Clone)]
pub struct DescentAgent {
    trials: Option<Trials>,
    solve: Option<LocalSolve>,
    /// The last model of a question.
    point: Point,
}

impl DescentAgent {
    /// The agent before its first round, with the trial steps of a line search and the algorithm for its own direction, if the method has
    /// them.
    pub fn new(trials: Option<Trials>, solve: Option<LocalSolve>) -> Self {
        Self { trials, solve, point: Point::default() }
    }
}

impl Agent for DescentAgent {
    fn answer(&mut self, at: &LocalContext<'_>, down: &Message) -> Result<Vec<(Part, Body)>> {
        if let Some(model) = down.find(Part::Model) {
            // An agent that sends gradients ahead is already there, unless it was restored or has missed a question.
            let is_there = down.exchange > 0 && model.numbers() == Some(&self.point.theta);
            if !is_there {
                self.point = Point::asked(at, down);
            }
            if let (Some(g), Some(solve)) = (down.find(Part::ExactGradient).and_then(Body::numbers), self.solve) {
                return Ok(vec![(Part::Direction, Body::Numbers(solve.direction(at, &self.point.theta, g)))]);
            }
            return Ok(vec![(Part::Gradient, Body::Numbers(self.point.gradient.clone()))]);
        }
        let x = down.parts.first().and_then(|(_, body)| body.numbers()).unwrap_or(&[]);
        if x.len() != self.point.theta.len() {
            return Err(refused("a direction before the first model", "the exchanges of a round in their order"));
        }
        if let (Some(_), Some(solve)) = (down.find(Part::Gradient), self.solve) {
            return Ok(vec![(Part::Direction, Body::Numbers(solve.direction(at, &self.point.theta, x)))]);
        }
        let trials = self.trials.as_ref().ok_or_else(|| refused("a step", "the exchanges of this method"))?;
        // Refusals come before any computation.
        let step = match down.find(Part::Trial).and_then(Body::numbers) {
            None => None,
            Some(trial) => {
                let step = index(trial[0]).and_then(|number| trials.step(number as usize));
                Some(step.ok_or_else(|| refused("a trial step that there is not", "a trial step of this method"))?)
            }
        };
        let losses = trials.answer(at, &self.point.theta, &self.point.gradient, x);
        let Some(step) = step else { return Ok(vec![(Part::Losses, Body::Numbers(losses))]) };
        self.point = Point::at(at, along(&self.point.theta, step, x));
        Ok(vec![(Part::Losses, Body::Numbers(losses)), (Part::Gradient, Body::Numbers(self.point.gradient.clone()))])
    }

    fn save(&self) -> Vec<u8> {
        self.point.save()
    }

    fn restore(&mut self, bytes: &[u8]) -> Result<()> {
        self.point = Point::restored(bytes, "an agent of a descent method")?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const H: [[f64; 3]; 3] = [[4.0, 1.0, 0.0], [1.0, 3.0, -1.0], [0.0, -1.0, 2.0]];
    const G: [f64; 3] = [1.0, -2.0, 0.5];

    fn product(v: &[f64]) -> Vec<f64> {
        H.iter().map(|row| dot(row, v)).collect()
    }

    fn residual(p: &[f64]) -> f64 {
        product(p).iter().zip(&G).map(|(hp, g)| (hp + g).powi(2)).sum::<f64>().sqrt()
    }

    #[test]
    fn conjugate_gradients_are_exact_after_d_products_and_stop_at_their_tolerance() {
        let mut products = 0;
        let mut counted = |v: &[f64]| {
            products += 1;
            product(v)
        };
        let exact = conjugate_gradients(&G, 0.0, 3, &mut counted);
        assert!(residual(&exact) < 1e-14 && products == 3);
        let loose = conjugate_gradients(&G, 0.3, 3, product);
        let r = residual(&loose) / dot(&G, &G).sqrt();
        assert!(r <= 0.3 && r > 1e-3, "{r}");
        // Negative curvature at the first step: the gradient's direction.
        let down = conjugate_gradients(&G, 0.0, 3, |v| v.iter().map(|v| -v).collect());
        assert_eq!(down, G.map(|g| -g));
    }

    /// If a factorisation works, the direction is Newton's up to rounding. For indefinite or nearly singular matrices it is the direction
    /// of conjugate gradients with the same matrix.
    #[test]
    fn direct_solutions_are_newtons_or_those_of_conjugate_gradients() {
        let dense = |h: [[f64; 3]; 3]| Mat::from_fn(3, 3, |i, j| h[i][j]);
        // No product is allowed, only the factorisation.
        assert!(residual(&direct(&dense(H), &G, None, 1e-6, 0)) < 1e-14);
        let indefinite = [[4.0, 1.0, 0.0], [1.0, -3.0, -1.0], [0.0, -1.0, 2.0]];
        let singular = [[1.0, 1.0, 1.0], [1.0, 1.0 + 1e-15, 1.0], [1.0, 1.0, 1.0 + 1e-15]];
        // Solutions of the singular system are some 1e15, and products at best multiples of 1/16, so no such residual is small.
        for (h, g) in [(indefinite, G), (singular, [1.03, -2.07, 0.51])] {
            let by_rows = |v: &[f64]| -> Vec<f64> { h.iter().map(|row| dot(row, v)).collect() };
            let p = direct(&dense(h), &g, None, 1e-6, 1);
            assert_eq!(p, conjugate_gradients(&g, 1e-6, 1, by_rows), "{h:?}");
            assert!(p.iter().all(|x| x.abs() < 100.0) && dot(&p, &g) < 0.0, "{p:?}");
        }
        // The direction of a diverged run is not finite.
        let p = direct(&dense([[f64::NAN; 3]; 3]), &[f64::NAN; 3], None, 1e-6, 3);
        assert!(p.iter().any(|x| x.is_nan()));
    }

    /// Outside of the active components the Hessian is diagonal. The direction is the same without their part of the factorisation; if that
    /// fails, it is the direction of conjugate gradients.
    #[test]
    fn directions_are_newtons_with_few_active_components() {
        let (place, d) = ([1, 2, 4], 6);
        let active = ActiveComponents { components: place.map(|i: usize| i as u32).to_vec(), outside: 0.5 };
        let with = |outside: f64| {
            let inside = |i: usize| place.iter().position(|at| *at == i);
            let h = Mat::from_fn(d, d, |i, j| match (inside(i), inside(j)) {
                (Some(i), Some(j)) => H[i][j],
                _ if i == j => outside,
                _ => 0.0,
            });
            let g: Vec<f64> = (0..d).map(|i| 1.0 - i as f64).collect();
            (direct(&h, &g, Some(&active), 1e-6, 9), direct(&h, &g, None, 1e-6, 9))
        };
        let (few, all) = with(0.5);
        assert!(few.iter().zip(&all).all(|(few, all)| (few - all).abs() < 1e-14) && few[3] == 4.0, "{few:?} {all:?}");
        for outside in [-0.5, 0.0] {
            let (few, all) = with(outside);
            assert_eq!(few, all);
        }
    }

    /// Also if one eigenvalue is far above many others, or close to the next one, for any agent.
    #[test]
    fn more_than_half_of_the_largest_eigenvalue_is_found() {
        for agent in 0..50 {
            for (largest, next) in [(5.0, 1.0), (1e6, 1.0), (2.1, 1.0), (1.0, 0.999), (0.0, 0.0)] {
                let diagonal = |i: usize| if i == 7 { largest } else { next * (1.0 - i as f64 * 1e-3) };
                let found = largest_eigenvalue(agent, 500, &mut |v: &[f64]| v.iter().enumerate().map(|(i, x)| diagonal(i) * x).collect());
                assert!(found <= largest * (1.0 + 1e-12) && found >= 0.55 * largest, "{found} of {largest}");
            }
        }
    }

    /// The error of Richardson's iteration is `(I - size H)^R H^-1 g`.
    #[test]
    fn richardson_contracts_as_its_matrix() {
        let newton = conjugate_gradients(&G, 0.0, 3, product);
        let (size, steps) = (0.2, 7);
        let p = richardson(&G, size, steps, product);
        let mut error = newton.clone();
        for _ in 0..steps {
            let he = product(&error);
            error.iter_mut().zip(he).for_each(|(e, he)| *e -= size * he);
        }
        let apart = p.iter().zip(&newton).zip(&error).map(|((p, n), e)| (n - p - e).abs()).fold(0.0, f64::max);
        assert!(apart < 1e-14, "{apart:e}");
    }
}
