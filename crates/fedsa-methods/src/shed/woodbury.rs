//! Steps by a mean of Hessians that is a multiple of the identity plus a low-rank matrix: from vectors, without a d x d matrix.
//!
//! With the K eigenvectors of all agents in the columns of V,
//!
//! ```text
//! Hhat = rho I + V D V^T,  rho = sum_c p_c rho_c / P,  D = diag(p_c (l_cj - rho_c) / P),  P = sum_c p_c
//! Hhat^-1 g = (g - V D^1/2 (rho I + D^1/2 G D^1/2)^-1 D^1/2 V^T g) / rho,  G = V^T V
//! ```
//!
//! (Woodbury 1950). A new vector costs one product with each of the K vectors; a step costs some passes over all of them and K^3
//! operations.

use std::sync::Arc;

use faer::linalg::solvers::Solve;
use faer::{Mat, Side};
use fedsa::kernel::tree;
use fedsa::linalg;
use fedsa::message::Body;
use fedsa::parallel;

/// Steps of iterative refinement. If rho is far below D, the two terms of the formula cancel.
const REFINEMENTS: usize = 3;
/// Residuals below this share of the right-hand side count as rounding errors.
const ROUNDING: f64 = 1e-15;
/// Components per summation task.
const CHUNK: usize = 1 << 14;

/// A vector of d components.
#[derive(Debug, Clone, PartialEq)]
enum Vector {
    Dense(Vec<f64>),
    /// The non-zero numbers with their increasing indices, which vectors of one agent share.
    Sparse(Arc<[u32]>, Vec<f64>),
}

impl Vector {
    /// Numbers at increasing indices, in the smaller form.
    fn new(mut index: Vec<u32>, mut value: Vec<f64>, d: usize) -> Self {
        if value.contains(&0.0) {
            let some = index.iter().zip(&value).filter(|(_, x)| **x != 0.0).map(|(i, x)| (*i, *x));
            (index, value) = some.unzip();
        }
        if 12 * value.len() < 8 * d {
            return Vector::Sparse(index.into(), value);
        }
        let mut dense = vec![0.0; d];
        index.iter().zip(value).for_each(|(i, x)| dense[*i as usize] = x);
        Vector::Dense(dense)
    }

    /// The inner product with d numbers, with the bits of [`linalg::dot`] in both forms.
    fn dot(&self, x: &[f64]) -> f64 {
        match self {
            Vector::Dense(v) => linalg::dot(x, v),
            Vector::Sparse(index, value) => {
                let whole = index.partition_point(|i| (*i as usize) < x.len() / 8 * 8);
                let mut sums = [0.0f64; 8];
                for (i, v) in index[..whole].iter().zip(value) {
                    sums[(i % 8) as usize] += x[*i as usize] * v;
                }
                let rest: f64 = index[whole..].iter().zip(&value[whole..]).map(|(i, v)| x[*i as usize] * v).sum();
                tree(sums) + rest
            }
        }
    }

    /// Adds `a v` to `out`, which holds the components from `first` on.
    fn add_to(&self, a: f64, first: usize, out: &mut [f64]) {
        match self {
            Vector::Dense(v) => linalg::add_scaled(out, a, &v[first..first + out.len()]),
            Vector::Sparse(index, value) => {
                let at = |i: usize| index.partition_point(|own| (*own as usize) < i);
                let (from, to) = (at(first), at(first + out.len()));
                index[from..to].iter().zip(&value[from..to]).for_each(|(i, v)| out[*i as usize - first] += a * v);
            }
        }
    }

    /// All d numbers.
    fn write_out(&self, out: &mut [f64]) {
        match self {
            Vector::Dense(v) => out.copy_from_slice(v),
            Vector::Sparse(index, value) => {
                out.fill(0.0);
                index.iter().zip(value).for_each(|(i, x)| out[*i as usize] = *x);
            }
        }
    }
}

/// The eigenvectors of a part, d components each, as indices and numbers.
fn split(body: &Body, d: usize) -> Vec<(Vec<u32>, Vec<f64>)> {
    match body {
        Body::Numbers(x) => x.chunks_exact(d).map(|v| ((0..d as u32).collect(), v.to_vec())).collect(),
        Body::Sparse { len, index, value } => {
            let mut all = Vec::new();
            let mut at = 0;
            for j in 0..*len as usize / d {
                let end = at + index[at..].partition_point(|i| (*i as usize) < (j + 1) * d);
                all.push((index[at..end].iter().map(|i| i - (j * d) as u32).collect(), value[at..end].to_vec()));
                at = end;
            }
            all
        }
        Body::Packed(_) => Vec::new(),
    }
}

/// The squared norms of the vectors of a part.
pub(super) fn lengths(body: &Body, d: usize) -> Vec<f64> {
    match body {
        Body::Numbers(x) => x.chunks_exact(d).map(linalg::norm_sq).collect(),
        other => split(other, d).iter().map(|(_, value)| linalg::norm_sq(value)).collect(),
    }
}

/// One agent's part of Hhat.
#[derive(Debug, Clone, Copy)]
pub struct LowRankShare<'a> {
    /// `p_c`.
    pub weight: f64,
    /// `rho_c`.
    pub rho: f64,
    /// The eigenvalues of the agent's vectors.
    pub values: &'a [f64],
}

/// The eigenvectors of all agents, and their inner products.
#[derive(Debug, Clone)]
pub struct Woodbury {
    d: usize,
    /// The slots of each agent's vectors, in their order.
    of_agents: Vec<Vec<usize>>,
    /// Slots for vectors; `None` is free.
    vectors: Vec<Option<Vector>>,
    /// The inner products of the vectors in two slots.
    products: Vec<Vec<f64>>,
}

impl Woodbury {
    /// No vectors of d components yet.
    pub fn new(agents: usize, d: usize) -> Self {
        Self { d, of_agents: vec![Vec::new(); agents], vectors: Vec::new(), products: Vec::new() }
    }

    /// Replaces the vectors of agent c after the first `keep` ones by those of a part. Returns whether all its vectors are then orthogonal
    /// up to `tolerance`; otherwise nothing changes. NaN is accepted.
    pub fn replace(&mut self, c: usize, keep: usize, body: &Body, tolerance: f64) -> bool {
        let new: Vec<Vector> = split(body, self.d).into_iter().map(|(index, value)| Vector::new(index, value, self.d)).collect();
        let (kept, dropped) = self.of_agents[c].split_at(keep);
        // For the vector in a slot: whether it stays, and whether it belongs to the agent.
        let mut stays: Vec<bool> = self.vectors.iter().map(Option::is_some).collect();
        dropped.iter().for_each(|i| stays[*i] = false);
        let mut is_own = vec![false; self.vectors.len()];
        kept.iter().for_each(|i| is_own[*i] = true);
        let with: Vec<usize> = (0..self.vectors.len()).filter(|i| stays[*i]).collect();
        let mut written = vec![0.0; self.d];
        let mut rows = Vec::with_capacity(new.len());
        for (j, v) in new.iter().enumerate() {
            v.write_out(&mut written);
            let held = parallel::map(with.len(), |k| self.vectors[with[k]].as_ref().map_or(0.0, |other| other.dot(&written)));
            let own: Vec<f64> = new[..=j].iter().map(|other| other.dot(&written)).collect();
            let is_bad = |x: &f64| x.abs() > tolerance;
            if own[..j].iter().any(is_bad) || with.iter().zip(&held).any(|(i, x)| is_own[*i] && is_bad(x)) {
                return false;
            }
            rows.push((held, own));
        }
        for i in self.of_agents[c].split_off(keep) {
            self.vectors[i] = None;
        }
        let mut places = Vec::with_capacity(new.len());
        for (v, (held, own)) in new.into_iter().zip(rows) {
            let at = self.place();
            places.push(at);
            for (i, x) in with.iter().zip(held).chain(places.iter().zip(own)) {
                (self.products[at][*i], self.products[*i][at]) = (x, x);
            }
            self.vectors[at] = Some(self.sharing(c, v));
            self.of_agents[c].push(at);
        }
        true
    }

    /// A free slot.
    fn place(&mut self) -> usize {
        if let Some(free) = self.vectors.iter().position(Option::is_none) {
            return free;
        }
        let n = self.vectors.len() + 1;
        self.vectors.push(None);
        self.products.iter_mut().for_each(|row| row.push(0.0));
        self.products.push(vec![0.0; n]);
        n - 1
    }

    /// The vector, sharing the indices of the agent's last one if they are equal.
    fn sharing(&self, c: usize, v: Vector) -> Vector {
        let last = self.of_agents[c].last().and_then(|i| self.vectors[*i].as_ref());
        match (v, last) {
            (Vector::Sparse(index, value), Some(Vector::Sparse(own, _))) if index == *own => Vector::Sparse(Arc::clone(own), value),
            (v, _) => v,
        }
    }

    /// The vectors of agent c, for [`Woodbury::replace`] one by one.
    pub fn state(&self, c: usize) -> Vec<Body> {
        let body = |v: &Vector| match v {
            Vector::Dense(v) => Body::Numbers(v.clone()),
            Vector::Sparse(index, value) => Body::Sparse { len: self.d as u32, index: index.to_vec(), value: value.clone() },
        };
        self.of_agents[c].iter().filter_map(|i| self.vectors[*i].as_ref()).map(body).collect()
    }

    /// `-Hhat^-1 g` with the agents' shares; agents without one are not in Hhat. `-g` if rho is below `least` or not finite, or the
    /// factorisation fails. `None` if there is no share, or g is 0.
    pub fn direction(&self, shares: &[Option<LowRankShare<'_>>], g: &[f64], least: f64) -> Option<Vec<f64>> {
        let all = || shares.iter().enumerate().filter_map(|(c, share)| Some((c, (*share)?)));
        let (weight, rho) = all().fold((0.0, 0.0), |(weight, rho), (_, share)| (weight + share.weight, rho + share.weight * share.rho));
        if weight == 0.0 || g.iter().all(|g| *g == 0.0) {
            return None;
        }
        let minus: Vec<f64> = g.iter().map(|g| -g).collect();
        let rho = rho / weight;
        // The pairs of D > 0, in the agents' order.
        let pairs: Vec<(usize, f64)> = all()
            .flat_map(|(c, share)| {
                let of = move |l: &f64| share.weight * (l - share.rho) / weight;
                self.of_agents[c].iter().copied().zip(share.values.iter().map(of)).filter(|(_, x)| *x != 0.0 && !(*x < 0.0))
            })
            .collect();
        if !(least..f64::INFINITY).contains(&rho) {
            return Some(minus);
        }
        let k = pairs.len();
        let mut inner = Mat::from_fn(k, k, |i, j| (pairs[i].1 * pairs[j].1).sqrt() * self.products[pairs[i].0][pairs[j].0]);
        (0..k).for_each(|i| inner[(i, i)] += rho);
        let Ok(factor) = inner.llt(Side::Lower) else { return Some(minus) };
        let solve = |b: &[f64]| {
            let scaled = self.times(&pairs, b, f64::sqrt);
            let small = factor.solve(Mat::from_fn(k, 1, |i, _| scaled[i]));
            let back: Vec<f64> = (0..k).map(|i| -pairs[i].1.sqrt() * small[(i, 0)]).collect();
            let mut x = b.to_vec();
            self.add_combination(&pairs, &back, &mut x);
            x.iter_mut().for_each(|x| *x /= rho);
            x
        };
        let mut x = solve(&minus);
        let enough = ROUNDING * linalg::norm_sq(g).sqrt();
        let mut last = f64::INFINITY;
        for _ in 0..REFINEMENTS {
            // -g - Hhat x
            let along: Vec<f64> = self.times(&pairs, &x, |d| d).iter().map(|x| -x).collect();
            let mut residual: Vec<f64> = minus.iter().zip(&x).map(|(b, x)| b - rho * x).collect();
            self.add_combination(&pairs, &along, &mut residual);
            let size = linalg::norm_sq(&residual).sqrt();
            if !(size > enough && size < 0.5 * last) {
                break;
            }
            last = size;
            x.iter_mut().zip(solve(&residual)).for_each(|(x, more)| *x += more);
        }
        Some(if x.iter().all(|x| x.is_finite()) { x } else { minus })
    }

    /// `of(D) V^T x`.
    fn times(&self, pairs: &[(usize, f64)], x: &[f64], of: impl Fn(f64) -> f64 + Sync) -> Vec<f64> {
        parallel::map(pairs.len(), |k| {
            let (at, d) = pairs[k];
            of(d) * self.vectors[at].as_ref().map_or(0.0, |v| v.dot(x))
        })
    }

    /// Adds `V y` to `out`: each component is a sum in the order of the pairs, on any thread.
    fn add_combination(&self, pairs: &[(usize, f64)], y: &[f64], out: &mut [f64]) {
        parallel::each_chunk(out, CHUNK, &|k, out| {
            for ((at, _), y) in pairs.iter().zip(y) {
                if let Some(v) = &self.vectors[*at] {
                    v.add_to(*y, k * CHUNK, out);
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use fedsa::random::{Purpose, Stream, stream};

    use super::*;

    /// q orthonormal vectors of d components that are 0 outside of `support`.
    fn orthonormal(d: usize, support: &[usize], q: usize, draws: &mut Stream) -> Vec<Vec<f64>> {
        let m = Mat::from_fn(support.len(), q, |_, _| draws.normal()).qr().compute_thin_Q();
        let one = |j: usize| {
            let mut v = vec![0.0; d];
            support.iter().enumerate().for_each(|(i, at)| v[*at] = m[(i, j)]);
            v
        };
        (0..q).map(one).collect()
    }

    fn body(vectors: &[Vec<f64>]) -> Body {
        Body::of_numbers(vectors.concat())
    }

    /// The weight, rho, values and vectors of an agent.
    type AgentPairs = (f64, f64, Vec<f64>, Vec<Vec<f64>>);

    /// Hhat as a dense matrix.
    fn dense(d: usize, agents: &[AgentPairs]) -> Mat<f64> {
        let weight: f64 = agents.iter().map(|agent| agent.0).sum();
        let mut h = Mat::<f64>::zeros(d, d);
        for (p, rho, values, vectors) in agents {
            for i in 0..d {
                h[(i, i)] += p * rho / weight;
                for k in 0..d {
                    h[(i, k)] += values.iter().zip(vectors).map(|(l, v)| p * (l - rho) * v[i] * v[k]).sum::<f64>() / weight;
                }
            }
        }
        h
    }

    fn shares(agents: &[AgentPairs]) -> Vec<Option<LowRankShare<'_>>> {
        agents.iter().map(|(weight, rho, values, _)| Some(LowRankShare { weight: *weight, rho: *rho, values })).collect()
    }

    /// Dense vectors, sparse ones, and both; rho from the size of the eigenvalues down to 1e-9 of it.
    #[test]
    fn steps_are_those_of_the_matrix_written_out() {
        let (d, mut draws) = (43, stream(1, Purpose::Pairs, 0, 0));
        for (rho, tolerance) in [(0.5, 1e-13), (1e-4, 1e-11), (1e-9, 1e-6)] {
            let some: Vec<usize> = (0..d).filter(|i| i % 4 == 1).collect();
            let every: Vec<usize> = (0..d).collect();
            let mut agent = |c: usize, support: &[usize], q: usize| {
                let values: Vec<f64> = (0..q).map(|j| rho * 5.0 + 3.0 / (1.0 + j as f64).powi(2)).collect();
                (0.2 + 0.1 * c as f64, rho * (1.0 + c as f64), values, orthonormal(d, support, q, &mut draws))
            };
            let agents = vec![agent(0, &every, 5), agent(1, &some, 7), agent(2, &some, 3), agent(3, &every, 0)];
            let mut woodbury = Woodbury::new(4, d);
            for (c, (_, _, _, vectors)) in agents.iter().enumerate() {
                // Other vectors first, which are replaced.
                assert!(woodbury.replace(c, 0, &body(&orthonormal(d, &every, 4, &mut draws)), 1e-6));
                assert!(woodbury.replace(c, 0, &body(&vectors[..vectors.len().min(2)]), 1e-6));
                assert!(woodbury.replace(c, vectors.len().min(1), &body(&vectors[vectors.len().min(1)..]), 1e-6));
            }
            let g: Vec<f64> = (0..d).map(|_| draws.normal()).collect();
            let got = woodbury.direction(&shares(&agents), &g, 1e-290).unwrap();
            let minus: Vec<f64> = g.iter().map(|g| -g).collect();
            let expected = linalg::solve_definite(&dense(d, &agents), &minus).unwrap();
            let off = (linalg::distance_sq(&got, &expected) / linalg::norm_sq(&expected)).sqrt();
            assert!(off < tolerance, "{rho}: {off:e}");
            // Restored vectors give the same bits, whatever came before.
            let mut again = Woodbury::new(4, d);
            for c in 0..4 {
                let vectors = woodbury.state(c);
                assert!(vectors.iter().enumerate().all(|(j, body)| again.replace(c, j, body, f64::INFINITY)));
            }
            assert_eq!(again.direction(&shares(&agents), &g, 1e-290).unwrap(), got);
            let of = |threads: usize| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                pool.install(|| woodbury.direction(&shares(&agents), &g, 1e-290).unwrap())
            };
            assert_eq!(of(1), of(3));
            // Without the second agent.
            let mut without = shares(&agents);
            without[1] = None;
            let others = [agents[0].clone(), agents[2].clone(), agents[3].clone()];
            let expected = linalg::solve_definite(&dense(d, &others), &minus).unwrap();
            let got = woodbury.direction(&without, &g, 1e-290).unwrap();
            assert!((linalg::distance_sq(&got, &expected) / linalg::norm_sq(&expected)).sqrt() < tolerance);
        }
    }

    #[test]
    fn the_form_of_a_vector_does_not_change_its_products() {
        let mut draws = stream(2, Purpose::Pairs, 0, 0);
        for d in [5, 8, 21, 64] {
            let index: Vec<u32> = (0..d as u32).filter(|i| i % 3 != 1).collect();
            let value: Vec<f64> = index.iter().map(|_| draws.normal()).collect();
            let sparse = Vector::Sparse(index.into(), value);
            let mut numbers = vec![0.0; d];
            sparse.write_out(&mut numbers);
            let dense = Vector::Dense(numbers);
            let x: Vec<f64> = (0..d).map(|_| draws.normal()).collect();
            assert_eq!(sparse.dot(&x).to_bits(), dense.dot(&x).to_bits());
            let (mut a, mut b) = (x[2..].to_vec(), x[2..].to_vec());
            sparse.add_to(0.3, 2, &mut a);
            dense.add_to(0.3, 2, &mut b);
            assert_eq!(a, b);
        }
        assert!(matches!(Vector::new(vec![0, 2], vec![1.0, 0.0], 3), Vector::Sparse(index, _) if *index == [0]));
        assert_eq!(Vector::new(vec![0, 2], vec![1.0, 2.0], 3), Vector::Dense(vec![1.0, 0.0, 2.0]));
    }

    #[test]
    fn vectors_that_are_not_orthogonal_change_nothing() {
        let unit = |i: usize| (0..4).map(|k| f64::from(u8::from(i == k))).collect::<Vec<f64>>();
        let mut woodbury = Woodbury::new(2, 4);
        assert!(woodbury.replace(0, 0, &body(&[unit(0), unit(1)]), 1e-6));
        let before = woodbury.state(0);
        assert!(!woodbury.replace(0, 1, &body(&[unit(0)]), 1e-6) && !woodbury.replace(0, 2, &body(&[unit(2), unit(2)]), 1e-6));
        assert_eq!(woodbury.state(0), before);
        // The second one may come again where it replaces itself, and at another agent.
        assert!(woodbury.replace(0, 1, &body(&[unit(1), unit(3)]), 1e-6) && woodbury.replace(1, 0, &body(&[unit(1)]), 1e-6));
    }

    #[test]
    fn without_curvature_the_step_is_the_gradient() {
        let woodbury = Woodbury::new(1, 2);
        let share = |rho: f64| [Some(LowRankShare { weight: 1.0, rho, values: &[] })];
        assert_eq!(woodbury.direction(&share(f64::MIN_POSITIVE), &[1.0, -2.0], 1e-290), Some(vec![-1.0, 2.0]));
        assert_eq!(woodbury.direction(&share(f64::INFINITY), &[1.0, -2.0], 1e-290), Some(vec![-1.0, 2.0]));
        assert_eq!(woodbury.direction(&share(4.0), &[1.0, -2.0], 1e-290), Some(vec![-0.25, 0.5]));
        assert_eq!(woodbury.direction(&share(4.0), &[0.0, 0.0], 1e-290), None);
        assert_eq!(woodbury.direction(&[None], &[1.0, 0.0], 1e-290), None);
    }
}
