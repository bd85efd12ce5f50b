//! Agents that compute alone: each has its own typed state, and an objective instead of samples.

use std::cell::Cell;
use std::sync::Arc;

use faer::Mat;

use crate::eigenpairs::Eigenpairs;
use crate::error::Result;
use crate::kernel::blocks::Blocks;
use crate::kernel::{Chunk, Isa, chunks, flat, flat_mut};
use crate::linalg::with_square;
use crate::message::{Body, Message, Part};
use crate::problem::calls::Calls;
use crate::problem::objective::{ActiveComponents, HessianProducts};
use crate::problem::systems::System;
use crate::problem::{Facts, LinearOperators, Objective, PolicySystems};
use crate::random::{Key, Purpose, Stream};
use crate::triangle::Support;

/// The largest number of rows of a Hessian that is formed for products: 8 MB.
pub const MAX_ROWS: usize = 1000;

/// The client half of a method whose agents compute alone: one agent.
pub trait Agent: Send + Sync {
    /// Answers a question with the parts of the method's protocol, in order. Without parts, the agent's state is out of step, and the
    /// server must let it start again ([`crate::node`]).
    ///
    /// # Errors
    /// With the reason, when the question cannot be answered. The agent is then unchanged.
    fn answer(&mut self, at: &LocalContext<'_>, down: &Message) -> Result<Vec<(Part, Body)>>;
    /// Called after the answer was encoded, if the link alters messages: `parts` are the parts that the server can decode, or `None` if the
    /// link's budget carried no message.
    fn sent(&mut self, _parts: Option<&[(Part, Body)]>) {}
    /// Receives the message that participants get at the end of a round and do not answer.
    fn told(&mut self, _at: &LocalContext<'_>, _down: &Message) {}
    /// The state that influences the agent's later answers, as bytes.
    fn save(&self) -> Vec<u8>;
    /// Restores a state that [`Agent::save`] returned.
    ///
    /// # Errors
    /// When these are not the state of such an agent. The agent is then unchanged.
    fn restore(&mut self, bytes: &[u8]) -> Result<()>;
}

/// Makes an agent from its number in the federation.
pub type MakeAgent = Box<dyn Fn(usize) -> Box<dyn Agent> + Send + Sync>;

/// The facts of a problem for agents that compute alone.
#[derive(Clone, Copy)]
pub struct AgentFacts<'a> {
    objective: Option<&'a dyn Objective>,
    linear_operators: Option<&'a dyn LinearOperators>,
    policy_systems: Option<&'a dyn PolicySystems>,
}

impl<'a> AgentFacts<'a> {
    /// From a problem's facts.
    pub fn of(facts: &'a dyn Facts) -> Self {
        Self { objective: facts.objective(), linear_operators: facts.linear_operators(), policy_systems: facts.policy_systems() }
    }
}

/// The context of an agent in one exchange: its number in the federation, its objective, and its link's bits. Calls of the objective are
/// counted.
pub struct LocalContext<'a> {
    /// The agent's number in the federation, which keys its random draws.
    pub agent: usize,
    /// The round.
    pub round: u64,
    /// The exchange within the round.
    pub exchange: u8,
    /// The number of bits that the agent's link carries in this exchange; `None` without a limit.
    pub bits: Option<u64>,
    seed: u64,
    known: AgentFacts<'a>,
    /// The place of the agent's data in the problem.
    place: usize,
    calls: Cell<Calls>,
}

impl<'a> LocalContext<'a> {
    /// Agent `agent` of the federation in an exchange of round `round`. Its data are at place `place` in `objective`, and its link carries
    /// `bits` bits.
    pub fn new(known: AgentFacts<'a>, place: usize, agent: usize, seed: u64, round: u64, exchange: u8, bits: Option<u64>) -> Self {
        Self { agent, round, exchange, bits, seed, known, place, calls: Cell::default() }
    }

    /// The objective.
    ///
    /// # Panics
    /// When the problem has none: the method must declare the need ([`crate::method::MethodSettings::needs`]).
    fn objective(&self) -> &'a dyn Objective {
        self.known.objective.expect("a problem with an objective")
    }

    /// The linear operators.
    ///
    /// # Panics
    /// As for the objective.
    fn linear_operators(&self) -> &'a dyn LinearOperators {
        self.known.linear_operators.expect("a problem with linear operators")
    }

    /// `A_c q`, d numbers.
    pub fn product(&self, q: &[f64]) -> Vec<f64> {
        self.count(|calls| calls.operators += 1);
        let mut out = vec![0.0; q.len()];
        self.linear_operators().product(self.place, q, &mut out);
        out
    }

    /// `gbar_c(theta) = b_c - A_c theta`, d numbers.
    pub fn operator(&self, theta: &[f64]) -> Vec<f64> {
        let product = self.product(theta);
        let mut b = vec![0.0; theta.len()];
        self.linear_operators().offset(self.place, &mut b);
        b.iter().zip(&product).map(|(b, ax)| b - ax).collect()
    }

    /// `A_c` row by row, then `b_c`: d (d + 1) numbers, sparse if that is shorter.
    pub fn system(&self, d: usize) -> Body {
        self.count(|calls| calls.hessians += 1);
        let (mut index, mut value) = (Vec::new(), Vec::new());
        self.linear_operators().entries(self.place, &mut |i, j, a| {
            index.push((i * d + j) as u32);
            value.push(a);
        });
        let mut b = vec![0.0; d];
        self.linear_operators().offset(self.place, &mut b);
        for (i, b) in b.into_iter().enumerate().filter(|(_, b)| *b != 0.0) {
            index.push((d * d + i) as u32);
            value.push(b);
        }
        Body::shorter(d * (d + 1), index, value)
    }

    /// The systems under the policy of theta.
    ///
    /// # Panics
    /// As for the objective.
    fn policy_systems(&self) -> &'a dyn PolicySystems {
        self.known.policy_systems.expect("a problem with the systems of a policy")
    }

    /// `A_c(theta)` row by row, then `b_c(theta)`, under the policy of theta: d (d + 1) numbers, sparse if that is shorter.
    pub fn policy_system(&self, theta: &[f64]) -> Body {
        self.count(|calls| calls.hessians += 1);
        of_system(&self.policy_systems().system(self.place, theta))
    }

    /// The same under the policy that logged the agent's data, or under that of theta if there is none.
    pub fn behaviour_system(&self, theta: &[f64]) -> Body {
        self.count(|calls| calls.hessians += 1);
        let known = self.policy_systems();
        of_system(&known.behaviour(self.place).unwrap_or_else(|| known.system(self.place, theta)))
    }

    /// `gbar_c(theta)` of systems under the policy of theta, d numbers.
    pub fn policy_operator(&self, theta: &[f64]) -> Vec<f64> {
        self.count(|calls| calls.operators += 1);
        let mut out = vec![0.0; theta.len()];
        self.policy_systems().operator(self.place, theta, &mut out);
        out
    }

    /// The lower triangle of the agent's Gram matrix under the law of theta, row by row: d (d + 1) / 2 numbers, sparse if that is shorter.
    pub fn policy_gram(&self, theta: &[f64]) -> Body {
        self.count(|calls| calls.hessians += 1);
        let gram = self.policy_systems().gram(self.place, theta);
        // Columns of the upper triangle are rows of the lower triangle.
        let lower = (0..theta.len()).flat_map(|i| &gram.col_as_slice(i)[..=i]).copied();
        other_than_zero(theta.len() * (theta.len() + 1) / 2, lower)
    }

    /// The loss `f_c(theta)`; theta has d components.
    pub fn loss(&self, theta: &[f64]) -> f64 {
        self.count(|calls| calls.losses += 1);
        self.objective().loss(self.place, theta)
    }

    /// The losses `f_c(theta + s p)` for each of `steps`; theta and p have d components.
    pub fn losses_along(&self, theta: &[f64], p: &[f64], steps: &[f64]) -> Vec<f64> {
        self.count(|calls| calls.losses += steps.len() as u64);
        let mut out = vec![0.0; steps.len()];
        self.objective().losses_along(self.place, theta, p, steps, &mut out);
        out
    }

    /// Writes `grad f_c(theta)`, d components, into `out`.
    pub fn gradient(&self, theta: &[f64], out: &mut [f64]) {
        self.count(|calls| calls.gradients += 1);
        self.objective().gradient(self.place, theta, out);
    }

    /// Writes `Hess f_c(theta)`, d x d, into `out`.
    pub fn hessian(&self, theta: &[f64], out: &mut Mat<f64>) {
        self.count_hessian();
        self.hessian_again(theta, out);
    }

    /// The lower triangle of [`LocalContext::hessian`] row by row, `d (d + 1) / 2` numbers.
    pub fn hessian_triangle(&self, theta: &[f64]) -> Vec<f64> {
        self.count_hessian();
        self.triangle_again(theta)
    }

    /// [`LocalContext::hessian_triangle`] without counting.
    fn triangle_again(&self, theta: &[f64]) -> Vec<f64> {
        with_square(theta.len(), |hessian| {
            self.hessian_again(theta, hessian);
            // Columns of the upper triangle are rows of the lower triangle.
            (0..theta.len()).flat_map(|i| &hessian.col_as_slice(i)[..=i]).copied().collect()
        })
    }

    /// The entries of the agent's Hessian that may differ from 0; `None` if all may.
    pub fn hessian_support(&self) -> Option<Arc<Support>> {
        self.objective().hessian_support(self.place)
    }

    /// Writes `grad f_c(theta)`, d components, and the entries of `Hess f_c(theta)` on its support, or its lower triangle row by row.
    pub fn gradient_and_hessian(&self, theta: &[f64], gradient: &mut [f64], hessian: &mut [f64]) {
        self.count(|calls| {
            calls.gradients += 1;
            calls.hessians += 1;
        });
        self.objective().gradient_and_hessian(self.place, theta, gradient, hessian);
    }

    /// Counts a Hessian that the agent evaluates with functions that do not count.
    pub fn count_hessian(&self) {
        self.count(|calls| calls.hessians += 1);
    }

    /// The first m - 1 eigenpairs of `Hess f_c(theta)` and eigenvalue m, if they take less time than forming it
    /// ([`Eigenpairs::of_products`]). Does not count.
    pub fn leading_pairs(&self, theta: &[f64], m: usize) -> Option<Eigenpairs> {
        Eigenpairs::of_products(theta.len(), m, &mut self.objective().hessian_products(self.place, theta))
    }

    /// [`LocalContext::hessian`] without counting, at a point where it was counted before, such as after a restart.
    pub fn hessian_again(&self, theta: &[f64], out: &mut Mat<f64>) {
        self.objective().hessian(self.place, theta, out);
    }

    /// Writes `Hess f_c(theta) v`, d components, into `out`.
    pub fn hessian_vector(&self, theta: &[f64], v: &[f64], out: &mut [f64]) {
        self.count(|calls| calls.hessian_vectors += 1);
        self.objective().hessian_vector(self.place, theta, v, out);
    }

    /// [`LocalContext::hessian_vector`] for several products at one theta, with the same bits; each is counted.
    pub fn hessian_products(&self, theta: &[f64]) -> impl FnMut(&[f64], &mut [f64]) {
        self.counted(self.objective().hessian_products(self.place, theta), theta.len())
    }

    /// [`LocalContext::hessian_products`] for about `products` products with one vector each. It forms the Hessian, of at most `MAX_ROWS`
    /// rows, if that takes less time, which changes last digits. Products count, but not the Hessian.
    pub fn many_products<'b>(&'b self, theta: &'b [f64], products: usize) -> HessianProducts<'b> {
        let d = theta.len();
        if d > MAX_ROWS || !self.objective().is_better_formed(self.place, products) {
            return Box::new(self.hessian_products(theta));
        }
        let mut blocks = Blocks::empty();
        blocks.pack(&self.triangle_again(theta), d);
        let (mut whole, mut image) = (vec![Chunk::default(); chunks(d)], vec![Chunk::default(); chunks(d)]);
        let product = move |v: &[f64], out: &mut [f64]| {
            flat_mut(&mut whole)[..d].copy_from_slice(v);
            blocks.product(Isa::best(), &whole, &mut image);
            out.copy_from_slice(&flat(&image)[..d]);
        };
        Box::new(self.counted(Box::new(product), d))
    }

    /// Counted products with vectors of n numbers.
    fn counted<'b>(&'b self, mut product: HessianProducts<'a>, n: usize) -> impl FnMut(&[f64], &mut [f64]) + use<'a, 'b> {
        move |v: &[f64], out: &mut [f64]| {
            self.count(|calls| calls.hessian_vectors += (v.len() / n.max(1)) as u64);
            product(v, out);
        }
    }

    /// The components in which the agent's Hessians differ from a multiple of the identity, if known.
    pub fn active(&self) -> Option<ActiveComponents> {
        self.objective().active(self.place)
    }

    /// [`LocalContext::hessian_products`] within the components of [`LocalContext::active`].
    pub fn products_within<'b>(&'b self, theta: &[f64], components: &'b [u32]) -> impl FnMut(&[f64], &mut [f64]) + use<'a, 'b> {
        self.counted(self.objective().products_within(self.place, theta, components), components.len())
    }

    /// The run's seed, for streams that the server also opens.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The agent's random stream of this exchange for a purpose.
    pub fn stream(&self, purpose: Purpose) -> Stream {
        Key::of_exchange(self.seed, purpose, self.round, self.exchange).stream(self.agent)
    }

    /// The calls of the objective so far.
    pub fn calls(&self) -> Calls {
        self.calls.get()
    }

    fn count(&self, add: impl Fn(&mut Calls)) {
        let mut calls = self.calls.get();
        add(&mut calls);
        self.calls.set(calls);
    }
}

/// A system row by row: A, then b; sparse if that is shorter.
fn of_system(System { a, b }: &System) -> Body {
    let d = b.len();
    let rows = (0..d).flat_map(|i| (0..d).map(move |j| a[(i, j)]));
    other_than_zero(d * (d + 1), rows.chain(b.iter().copied()))
}

/// These `len` numbers, or those other than zero with their indices if that is shorter.
fn other_than_zero(len: usize, numbers: impl Iterator<Item = f64>) -> Body {
    let (index, value) = numbers.enumerate().filter(|(_, x)| *x != 0.0).map(|(i, x)| (i as u32, x)).unzip();
    Body::shorter(len, index, value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::systems::{System, Systems};
    use crate::random::stream;

    /// Quadratics whose Hessians are formed for more than five products.
    struct Quadratic(Systems);

    impl Facts for Quadratic {
        fn objective(&self) -> Option<&dyn Objective> {
            Some(self)
        }
    }

    impl Objective for Quadratic {
        fn loss(&self, c: usize, theta: &[f64]) -> f64 {
            self.0.loss(c, theta)
        }
        fn gradient(&self, c: usize, theta: &[f64], out: &mut [f64]) {
            self.0.gradient(c, theta, out);
        }
        fn hessian(&self, c: usize, theta: &[f64], out: &mut Mat<f64>) {
            self.0.hessian(c, theta, out);
        }
        fn hessian_vector(&self, c: usize, theta: &[f64], v: &[f64], out: &mut [f64]) {
            self.0.hessian_vector(c, theta, v, out);
        }
        fn is_better_formed(&self, _: usize, products: usize) -> bool {
            products > 5
        }
    }

    /// Many products equal single ones, to rounding if the Hessian is formed. Products count, but not the Hessian.
    #[test]
    fn many_products_are_those_one_by_one() {
        for d in [1, 7, 8, 30] {
            let mut draws = stream(5, Purpose::System, 0, d);
            let g = Mat::from_fn(d, d, |_, _| draws.normal());
            let known = Quadratic(Systems::new(vec![System { a: &g + g.transpose(), b: vec![0.0; d] }], vec![0], vec![1.0]));
            let at = LocalContext::new(AgentFacts::of(&known), 0, 0, 1, 7, 0, None);
            let theta = vec![0.3; d];
            let (mut few, mut many) = (at.many_products(&theta, 5), at.many_products(&theta, 6));
            let mut differ = false;
            for _ in 0..4 {
                let v: Vec<f64> = (0..d).map(|_| draws.normal()).collect();
                let [mut expected, mut one, mut other] = [(); 3].map(|()| vec![f64::NAN; d]);
                known.hessian_vector(0, &theta, &v, &mut expected);
                few(&v, &mut one);
                many(&v, &mut other);
                assert_eq!(one, expected);
                assert!(other.iter().zip(&expected).all(|(x, y)| (x - y).abs() < 1e-12), "{other:?} {expected:?}");
                differ |= other != expected;
            }
            assert!(differ || d < 8, "sums have another order");
            drop((few, many));
            assert_eq!((at.calls().hessian_vectors, at.calls().hessians), (8, 0));
        }
    }
}
