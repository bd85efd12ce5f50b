//! Returns of softmax policies in finite Markov decision processes, with gradients and Hessians.
//!
//! A step under the policy pi has the reward `u(s, a) = r(s, a) - lam log pi(a|s)`, which contains the policy's entropy. Let d(s) be the
//! occupancy, `sum_t gamma^t P(s_t = s)`, and q and v the values of pairs and states:
//!
//! ```text
//! J(theta)           = sum_s rho(s) v(s)
//! dJ / dtheta(s, a)  = d(s) pi(a|s) (q(s, a) - v(s))
//! ```
//!
//! In episodes of n steps the values depend on the number k of steps ahead, and each k is a stage: state s has the weight
//! `gamma^(n - k) P(s_(n-k) = s)`, and the gradient is the sum over the stages. Without a length there is one stage, whose weights are
//! the occupancy.
//!
//! **Constants.** A constant added to all theta(s, .) of a state does not change the policy. The operator therefore contains
//! `- w mean_a theta(s, a)` with w = 1/S, so that its root is centred in every state and isolated. J's gradient is orthogonal to these
//! constants: iterates that start centred, as 0 is, stay centred.

use faer::Mat;

use super::environment::Environment;
use super::policy::SoftPolicy;
use crate::kernel::elementary::log;
use fedsa::linalg;

/// What the agents' returns are made of.
#[derive(Debug, Clone)]
pub(super) struct Returns {
    /// The environments of agents that differ.
    pub kinds: Vec<Environment>,
    /// The law rho of the first state.
    pub start: Vec<f64>,
    pub gamma: f64,
    /// lam.
    pub entropy: f64,
    /// Steps n of an episode; `None` if it never ends.
    pub length: Option<usize>,
}

/// A return with its gradient, which is `pi(i) gains(i)` in pair i.
pub(super) struct Gains {
    pub value: f64,
    pub policy: Vec<f64>,
    /// The sum over stages of weight times `q - v`, for each pair.
    pub gains: Vec<f64>,
    /// The occupancy of each state.
    pub visits: Vec<f64>,
    /// The largest `|q| + |v|`.
    pub scale: f64,
}

/// One stage: the weights of states, the values q of pairs and v of states.
type Stage<'a> = (&'a [f64], &'a [f64], &'a [f64]);

impl Returns {
    fn states(&self) -> usize {
        self.start.len()
    }

    /// The number of pairs d.
    pub fn pairs(&self) -> usize {
        self.kinds[0].pairs()
    }

    fn actions(&self) -> usize {
        self.kinds[0].actions
    }

    /// Writes the softmax policy of theta, one probability a pair.
    #[inline(always)]
    pub fn policy(&self, theta: &[f64], out: &mut Vec<f64>) {
        const SOFTMAX: SoftPolicy = SoftPolicy { temperature: 1.0, exploration: 0.0 };
        out.clear();
        out.extend_from_slice(theta);
        out.chunks_mut(self.actions()).for_each(|actions| SOFTMAX.soften(actions));
    }

    /// `u` of a pair that is taken with probability pi.
    #[inline(always)]
    pub fn reward(&self, environment: &Environment, pair: usize, pi: f64) -> f64 {
        let r = environment.rewards[pair];
        if self.entropy == 0.0 { r } else { r - self.entropy * log(pi) }
    }

    /// Shows all stages, the last steps of an episode first. Returns J.
    fn stages(&self, environment: &Environment, policy: &[f64], mut see: impl FnMut(Stage<'_>)) -> f64 {
        let (states, actions) = (self.states(), self.actions());
        let rewards: Vec<f64> = policy.iter().enumerate().map(|(pair, pi)| self.reward(environment, pair, *pi)).collect();
        let values = |v: &[f64]| -> Vec<f64> {
            let ahead = |pair: usize| environment.moves(pair).map(|(next, p)| p * v[next]).sum::<f64>();
            rewards.iter().enumerate().map(|(pair, u)| self.gamma.mul_add(ahead(pair), *u)).collect()
        };
        let of_states =
            |q: &[f64]| -> Vec<f64> { q.chunks(actions).zip(policy.chunks(actions)).map(|(q, pi)| linalg::dot(q, pi)).collect() };
        let v = match self.length {
            None => {
                let leaves = self.resolvent(environment, policy);
                let unknown = |_| vec![f64::NAN; states];
                let v = linalg::solve(&leaves, &of_states(&rewards)).unwrap_or_else(unknown);
                let visits = linalg::solve(&leaves.transpose().to_owned(), &self.start).unwrap_or_else(unknown);
                see((&visits, &values(&v), &v));
                v
            }
            Some(n) => {
                let mut arrivals = self.start.clone();
                for t in 1..n {
                    let mut next = vec![0.0; states];
                    for (pair, pi) in policy.iter().enumerate() {
                        let share = self.gamma * pi * arrivals[(t - 1) * states + pair / actions];
                        environment.moves(pair).for_each(|(to, p)| next[to] += share * p);
                    }
                    arrivals.extend(next);
                }
                let mut v = vec![0.0; states];
                for weights in arrivals.chunks(states).rev() {
                    let q = values(&v);
                    v = of_states(&q);
                    see((weights, &q, &v));
                }
                v
            }
        };
        linalg::dot(&self.start, &v)
    }

    /// `I - gamma P_pi`.
    fn resolvent(&self, environment: &Environment, policy: &[f64]) -> Mat<f64> {
        let kernel = environment.kernel(policy);
        Mat::from_fn(self.states(), self.states(), |s, t| f64::from(u8::from(s == t)) - self.gamma * kernel[(s, t)])
    }

    /// The return of a kind of agents, and what its gradient is made of.
    pub fn gains(&self, kind: usize, theta: &[f64]) -> Gains {
        let environment = &self.kinds[kind];
        let mut policy = Vec::new();
        self.policy(theta, &mut policy);
        let (mut gains, mut visits, mut scale) = (vec![0.0; theta.len()], vec![0.0; self.states()], 0.0f64);
        let value = self.stages(environment, &policy, |(weights, q, v)| {
            for (pair, (gain, q)) in gains.iter_mut().zip(q).enumerate() {
                let state = pair / environment.actions;
                *gain = weights[state].mul_add(q - v[state], *gain);
                scale = scale.max(q.abs() + v[state].abs());
            }
            linalg::add_scaled(&mut visits, 1.0, weights);
        });
        Gains { value, policy, gains, visits, scale }
    }

    /// w of the term that centres theta.
    fn pull(&self) -> f64 {
        1.0 / self.states() as f64
    }

    /// Subtracts `w mean_a theta(s, a)` from every pair of `out`.
    #[inline(always)]
    pub fn centre(&self, theta: &[f64], out: &mut [f64]) {
        let actions = self.actions();
        let share = self.pull() / actions as f64;
        for (out, theta) in out.chunks_mut(actions).zip(theta.chunks(actions)) {
            let back = share * theta.iter().sum::<f64>();
            out.iter_mut().for_each(|out| *out -= back);
        }
    }

    /// `out = gbar(theta)` of a kind of agents. Returns J.
    pub fn operator(&self, kind: usize, theta: &[f64], out: &mut [f64]) -> f64 {
        let Gains { value, policy, gains, .. } = self.gains(kind, theta);
        out.iter_mut().zip(&policy).zip(&gains).for_each(|((out, pi), gain)| *out = pi * gain);
        self.centre(theta, out);
        value
    }

    /// `w / (2 A) sum_s (sum_a theta(s, a))^2`: minus its gradient centres theta.
    pub fn off_centre(&self, theta: &[f64]) -> f64 {
        let squares: f64 = theta.chunks(self.actions()).map(|theta| theta.iter().sum::<f64>().powi(2)).sum();
        0.5 * self.pull() / self.actions() as f64 * squares
    }

    /// The Jacobian of [`Returns::operator`], d x d and symmetric.
    ///
    /// A stage contributes, with the derivatives `dv'` of the next states' values and `ahead(i) = gamma sum_s' P(s'|i) dv'(s')`,
    ///
    /// ```text
    /// weight(s) sum_a { q d^2 pi + dpi ahead^T + ahead dpi^T - lam (2 dpi (d log pi)^T + pi d^2 log pi) }
    /// ```
    pub fn jacobian(&self, kind: usize, theta: &[f64]) -> Mat<f64> {
        let (environment, d) = (&self.kinds[kind], theta.len());
        let (actions, states) = (self.actions(), self.states());
        let mut policy = Vec::new();
        self.policy(theta, &mut policy);
        let (mut cross, mut out) = (Mat::<f64>::zeros(d, d), Mat::<f64>::zeros(d, d));
        // Columns are the derivatives of v in each state, and of q beyond the first reward in each pair.
        let (mut slopes, mut ahead) = (Mat::<f64>::zeros(d, states), Mat::<f64>::zeros(d, d));
        let (mut mean, mut x) = (vec![0.0; d], vec![0.0; d]);
        self.stages(environment, &policy, |(weights, q, v)| {
            let own = |pair: usize| policy[pair] * (q[pair] - v[pair / actions]);
            if self.length.is_none() {
                let right = Mat::from_fn(states, d, |s, pair| if pair / actions == s { own(pair) } else { 0.0 });
                let solved = linalg::solve_columns(&self.resolvent(environment, &policy), &right);
                slopes = solved.map_or_else(|_| Mat::full(d, states, f64::NAN), |x| x.transpose().to_owned());
            }
            for pair in 0..d {
                let column = ahead.col_as_slice_mut(pair);
                column.fill(0.0);
                environment.moves(pair).for_each(|(next, p)| linalg::add_scaled(column, self.gamma * p, slopes.col_as_slice(next)));
            }
            for (state, weight) in weights.iter().enumerate() {
                mean.fill(0.0);
                environment.pairs_of(state).for_each(|pair| linalg::add_scaled(&mut mean, policy[pair], ahead.col_as_slice(pair)));
                for i in environment.pairs_of(state) {
                    x.copy_from_slice(ahead.col_as_slice(i));
                    linalg::add_scaled(&mut x, -1.0, &mean);
                    linalg::add_scaled(cross.col_as_slice_mut(i), weight * policy[i], &x);
                    for j in environment.pairs_of(state) {
                        let both = own(i) * policy[j] + own(j) * policy[i] - self.entropy * policy[i] * policy[j];
                        let one = if i == j { own(i) - self.entropy * policy[i] } else { 0.0 };
                        out[(i, j)] += weight * (one - both);
                    }
                }
                let slope = slopes.col_as_slice_mut(state);
                slope.copy_from_slice(&mean);
                environment.pairs_of(state).for_each(|pair| slope[pair] += own(pair));
            }
        });
        let share = self.pull() / actions as f64;
        Mat::from_fn(d, d, |i, j| out[(i, j)] + cross[(i, j)] + cross[(j, i)] - if i / actions == j / actions { share } else { 0.0 })
    }
}
