//! A step of SARSA: how it is drawn, its operator, and its law.

use serde::{Deserialize, Serialize};

use super::learners::{Behaviour, Learners};
use crate::td::td0::draw_state;
use fedsa::problem::law::{Chain, FiniteLaw};
use fedsa::random::Stream;

/// The most values of a step whose law is written out.
const MAX_VALUES: usize = 2_000_000;

/// The action in the target of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum NextAction {
    /// Drawn, and the next action of the trajectory.
    #[default]
    Carry,
    /// Drawn for the target only.
    Redraw,
    /// Its mean: the target has v(s').
    Expected,
}

/// A step of an agent, with the working memory of its draws.
#[derive(Default)]
pub(super) struct Step {
    pub pair: usize,
    pub next: usize,
    /// The pair in the target; none with its mean.
    pub next_pair: Option<usize>,
    /// The probabilities of the actions in the next state.
    pub actions: Vec<f64>,
    pub under: Behaviour,
}

/// A value of a step: a pair, the next state, and the pair in the target unless it has the mean over the next actions.
type Value = (usize, usize, Option<usize>);

impl Learners {
    /// Draws a step of agent c under the policy of `of`, d components. `chain` is the agent's trajectory, or empty for a step of the
    /// stationary law.
    #[inline(always)]
    pub fn draw(&self, next_action: NextAction, c: usize, of: &[f64], chain: &mut [u64], stream: &mut Stream, z: &mut Step) {
        let environment = self.environment(c);
        let pair_in =
            |state: usize, actions: &[f64], stream: &mut Stream| state * environment.actions + draw_state(actions, stream) as usize;
        let carries = next_action == NextAction::Carry;
        z.pair = match chain.first() {
            None => {
                self.behave(environment, of, &mut z.under);
                let state = draw_state(&z.under.law, stream) as usize;
                pair_in(state, &z.under.policy[environment.pairs_of(state)], stream)
            }
            Some(pair) if carries => *pair as usize,
            Some(state) => {
                self.actions_in(environment.pairs_of(*state as usize), of, &mut z.actions);
                pair_in(*state as usize, &z.actions, stream)
            }
        };
        z.next = environment.draw(z.pair, stream);
        self.actions_in(environment.pairs_of(z.next), of, &mut z.actions);
        z.next_pair = (next_action != NextAction::Expected).then(|| pair_in(z.next, &z.actions, stream));
        if let Some(at) = chain.first_mut() {
            *at = z.next_pair.filter(|_| carries).unwrap_or(z.next) as u64;
        }
    }

    /// `out = g_c(theta, z)`.
    #[inline(always)]
    pub fn operator(&self, c: usize, theta: &[f64], z: &Step, out: &mut [f64]) {
        let environment = self.environment(c);
        let mean = || environment.pairs_of(z.next).zip(&z.actions).map(|(pair, pi)| pi * self.rows.dot(pair, theta)).sum();
        let target = z.next_pair.map_or_else(mean, |pair| self.rows.dot(pair, theta));
        let error = self.gamma.mul_add(target, environment.rewards[z.pair]) - self.rows.dot(z.pair, theta);
        out.fill(0.0);
        self.rows.add(z.pair, error, out);
    }

    /// The law of a step of agent c at theta (d components), with the chain of trajectories if `is_chain`; `None` if a step has too many
    /// values.
    pub fn law_of_step(&self, next_action: NextAction, c: usize, theta: &[f64], is_chain: bool) -> Option<FiniteLaw<'_>> {
        let (environment, mut under) = (self.environment(c), Behaviour::default());
        let is_mean = next_action == NextAction::Expected;
        let next_actions = if is_mean { 1 } else { environment.actions };
        if environment.moves_in_all() * next_actions > MAX_VALUES {
            return None;
        }
        self.behave(environment, theta, &mut under);
        let Behaviour { policy, law, .. } = under;
        let state = |pair: usize| pair / environment.actions;
        let (mut values, mut mass) = (Vec::<Value>::new(), Vec::new());
        let mut chain = Chain { from: Vec::new(), to: Vec::new(), p: Vec::new(), law: law.clone() };
        if next_action == NextAction::Carry {
            chain.law = policy.iter().enumerate().map(|(pair, pi)| law[state(pair)] * pi).collect();
        }
        let mut add = |value: Value, p: f64| {
            let (pair, next, next_pair) = value;
            let pi = policy[pair];
            values.push(value);
            mass.push(law[state(pair)] * pi * p);
            match next_pair.filter(|_| next_action == NextAction::Carry) {
                Some(next_pair) => {
                    chain.from.push(pair as u32);
                    chain.to.push(next_pair as u32);
                    chain.p.push(p);
                }
                None => {
                    chain.from.push(state(pair) as u32);
                    chain.to.push(next as u32);
                    chain.p.push(pi * p);
                }
            }
        };
        for pair in 0..environment.pairs() {
            for (next, p) in environment.moves(pair) {
                if is_mean {
                    add((pair, next, None), p);
                } else {
                    environment.pairs_of(next).for_each(|next_pair| add((pair, next, Some(next_pair)), p * policy[next_pair]));
                }
            }
        }
        let operator = move |z: usize, theta: &[f64], out: &mut [f64]| {
            let (pair, next, next_pair) = values[z];
            let actions = if next_pair.is_none() { policy[environment.pairs_of(next)].to_vec() } else { Vec::new() };
            self.operator(c, theta, &Step { pair, next, next_pair, actions, ..Step::default() }, out);
        };
        let law = FiniteLaw::new(self.rows.dim(), mass, operator);
        Some(if is_chain { law.with_chain(chain) } else { law })
    }
}
