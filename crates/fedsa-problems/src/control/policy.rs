//! Policies that follow action values.

use super::greedy::greedy;
use crate::kernel::elementary::exp_below;

/// The least probability of an action, relative to the most probable one: every action of a softmax policy stays possible.
const LEAST: f64 = 1e-100;

/// `pi(a|s) = (1 - eps) p(a) + eps / A`, with `p = softmax(q / T)`; for T = 0, p is the [`greedy`] action.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SoftPolicy {
    /// T, at least 0.
    pub temperature: f64,
    /// eps, in [0, 1].
    pub exploration: f64,
}

impl SoftPolicy {
    /// Replaces the action values of a state by the probabilities p.
    #[inline(always)]
    pub fn soften(self, q: &mut [f64]) {
        if self.temperature == 0.0 {
            let best = greedy(q);
            q.iter_mut().enumerate().for_each(|(a, q)| *q = if a == best { 1.0 } else { 0.0 });
            return;
        }
        let most = q.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let mut sum = 0.0;
        for q in &mut *q {
            *q = exp_below((*q - most) / self.temperature).max(LEAST);
            sum += *q;
        }
        q.iter_mut().for_each(|q| *q /= sum);
    }

    /// The derivative of pi(a) by q(a), per `p(a) (1 - p(a))`; 0 for a greedy policy.
    pub fn slope(self) -> f64 {
        if self.temperature == 0.0 { 0.0 } else { (1.0 - self.exploration) / self.temperature }
    }

    /// Replaces the probabilities p by the policy's.
    #[inline(always)]
    pub fn explore(self, p: &mut [f64]) {
        let (own, any) = (1.0 - self.exploration, self.exploration / p.len() as f64);
        p.iter_mut().for_each(|p| *p = own * *p + any);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_those_of_the_formula() {
        let policy = SoftPolicy { temperature: 0.5, exploration: 0.1 };
        let q = [1.0, 2.0, -0.5];
        let e = q.map(|q: f64| (q / 0.5).exp());
        let mut pi = q;
        policy.soften(&mut pi);
        policy.explore(&mut pi);
        for (pi, e_a) in pi.iter().zip(e) {
            assert!((pi - (0.9 * e_a / e.iter().sum::<f64>() + 0.1 / 3.0)).abs() < 1e-15);
        }
        let mut best = [2.0, 5.0 - 1e-9, 5.0];
        SoftPolicy { temperature: 0.0, exploration: 0.3 }.soften(&mut best);
        assert_eq!(best, [0.0, 1.0, 0.0]);
        // Far values underflow and do no harm.
        let mut far = [1e4, -1e4];
        SoftPolicy { temperature: 1e-3, exploration: 0.0 }.soften(&mut far);
        assert_eq!(far, [1.0, LEAST]);
    }
}
