//! Chapter 2 of \[T\]: the convergence speed of steps with a few eigenpairs of Hessians.
//!
//! One agent's Hessian has the eigenvalues `l_1 >= .. >= l_d > 0`. q eigenpairs are known, and rho replaces the other eigenvalues:
//! `Hhat = V diag(l_1, .., l_q, rho, .., rho) V^T`.

/// `rho = l_{q+1}` (2.21), of d eigenvalues in decreasing order; q is at most d - 1.
pub fn next(values: &[f64], q: usize) -> f64 {
    values[q]
}

/// `rho* = (l_{q+1} + l_d) / 2` (2.8).
pub fn midpoint(values: &[f64], q: usize) -> f64 {
    0.5 * (values[q] + values[values.len() - 1])
}

/// `c_t = 1 - lbar_d / rhobar` (2.11), from the means over agents of the least eigenvalue and of rho. It is the factor of a step of
/// length 1 on least squares, if each rho is at least [`midpoint`].
pub fn federated_factor(least: f64, rho: f64) -> f64 {
    1.0 - least / rho
}

/// `abar_T = prod_{k <= T} (1 - lbar_d / rhobar_k)^(1/T)` (2.17), (2.28): a bound of the linear rate of `||theta_t - theta*||` with
/// renewals every T rounds and one pair a round. `agents` gives each agent's weight and eigenvalues (at the optimum, if losses are not
/// quadratic), and `rho` is [`next`] or [`midpoint`].
///
/// Deviation: \[T\] prints 1, T, 2 T for the iterations of renewals, whose first period is one shorter; all periods have T rounds here,
/// as in its proof. The rate of the loss is the square.
pub fn periodic_rate(agents: &[(f64, Vec<f64>)], period: usize, rho: impl Fn(&[f64], usize) -> f64) -> f64 {
    let mean = |f: &dyn Fn(&[f64]) -> f64| agents.iter().map(|(p, values)| p * f(values)).sum::<f64>();
    let least = mean(&|values| values[values.len() - 1]);
    let logs = (1..=period).map(|k| federated_factor(least, mean(&|values| rho(values, k.min(values.len() - 1)))).max(0.0).ln());
    (logs.sum::<f64>() / period as f64).exp()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fedsa::random::{Purpose, stream};

    /// The convergence factor `r(rho, eta, q) = ||I - eta Hhat^-1 H||` of one step of length eta on least squares (2.6).
    fn factor(values: &[f64], q: usize, rho: f64, eta: f64) -> f64 {
        let one = |(j, l): (usize, &f64)| (1.0 - eta * if j < q { 1.0 } else { l / rho }).abs();
        values.iter().enumerate().map(one).fold(0.0, f64::max)
    }

    /// The least convergence factor over all rho and eta, `r* = 1 - l_d / rho*` (Theorem 2.1).
    fn best_factor(values: &[f64], q: usize) -> f64 {
        1.0 - values[values.len() - 1] / midpoint(values, q)
    }

    /// The step length with which rho has the least convergence factor: `2 rho / (l_{q+1} + l_d)` for rho in `[l_d, l_{q+1}]`, else
    /// `None` (the set S* of Theorem 2.1).
    ///
    /// Deviation: \[T\] states the set for q = 0 too, where no pair is known and every positive rho has such a step.
    fn best_step(values: &[f64], q: usize, rho: f64) -> Option<f64> {
        let is_within = rho >= values[values.len() - 1] && rho <= values[q];
        (is_within || q == 0 && rho > 0.0).then(|| rho / midpoint(values, q))
    }

    /// A step length that satisfies the condition of Armijo on least squares for any share below 1/2 (Lemma 2.1): `min_c
    /// rho_c / l_{q_c + 1}`, from each agent's rho and next eigenvalue.
    ///
    /// Deviation: at most 1. As printed, (2.14) gives steps above 1 where every rho is above its eigenvalue. The proof asks
    /// `Hhat_c - eta H_c >= 0`, which the pairs that are known allow up to 1 only.
    fn sufficient_step(agents: impl IntoIterator<Item = (f64, f64)>) -> f64 {
        agents.into_iter().map(|(rho, next)| rho / next).fold(1.0, f64::min)
    }

    /// Random eigenvalues in decreasing order.
    fn spectra() -> Vec<Vec<f64>> {
        let mut draws = stream(2, Purpose::Pairs, 0, 0);
        let mut spectrum = |d: usize| {
            let mut values: Vec<f64> = (0..d).map(|_| (3.0 * draws.normal()).exp()).collect();
            values.sort_by(|a, b| b.total_cmp(a));
            values
        };
        [1, 2, 3, 5, 9].into_iter().flat_map(|d| (0..20).map(move |_| d)).map(&mut spectrum).collect()
    }

    /// Theorem 2.1: no rho and eta have a smaller factor, and those with the smallest one are in S*.
    #[test]
    fn the_best_factor_is_that_of_a_direct_search() {
        for values in spectra() {
            let d = values.len();
            for q in 0..d {
                let best = best_factor(&values, q);
                assert!((factor(&values, q, midpoint(&values, q), 1.0) - best).abs() < 1e-12);
                for a in -40..=40 {
                    let rho = midpoint(&values, q) * 1.2f64.powi(a);
                    match best_step(&values, q, rho) {
                        Some(eta) => assert!((factor(&values, q, rho, eta) - best).abs() < 1e-11, "{values:?} {q} {rho}"),
                        // Outside the interval even the best step is worse. On it the factor is convex in eta: a golden section finds it.
                        None => assert!(searched(&values, q, rho) > best + 1e-9 * (1.0 - best), "{values:?} {q} {rho}"),
                    }
                    assert!(searched(&values, q, rho) > best - 1e-9);
                }
            }
            assert_eq!(best_factor(&values, d - 1), 0.0);
        }
    }

    /// The least factor over eta.
    fn searched(values: &[f64], q: usize, rho: f64) -> f64 {
        let (mut low, mut high) = (0.0, 2.0 * (1.0 + rho / values[values.len() - 1]));
        for _ in 0..200 {
            let (a, b) = (low + 0.382 * (high - low), low + 0.618 * (high - low));
            if factor(values, q, rho, a) < factor(values, q, rho, b) { high = b } else { low = a }
        }
        factor(values, q, rho, low)
    }

    /// Corollary 2.1: of all choices in S*, rho* with a step of 1 leaves the least error, whatever the error before.
    #[test]
    fn the_middle_with_a_full_step_leaves_the_least_error() {
        let mut draws = stream(3, Purpose::Pairs, 0, 0);
        for values in spectra() {
            let z: Vec<f64> = values.iter().map(|_| draws.normal()).collect();
            for q in 0..values.len() {
                let error = |rho: f64, eta: f64| -> f64 {
                    let after = |(j, z): (usize, &f64)| (z * (1.0 - eta * if j < q { 1.0 } else { values[j] / rho })).powi(2);
                    z.iter().enumerate().map(after).sum()
                };
                let best = error(midpoint(&values, q), 1.0);
                for share in [0.0, 0.1, 0.5, 0.9, 1.0] {
                    // Keeps rounding from moving rho out of the interval.
                    let rho = (values[values.len() - 1] + share * (values[q] - values[values.len() - 1])).min(values[q]);
                    assert!(best <= error(rho, best_step(&values, q, rho).unwrap()) * (1.0 + 1e-12) + 1e-30);
                }
            }
        }
    }

    /// Lemma 2.1 for one agent: with the step every direction satisfies the condition for shares up to 1/2. As printed it fails
    /// for a rho above the next eigenvalue.
    #[test]
    fn the_sufficient_step_satisfies_armijo() {
        for values in spectra() {
            for q in 0..values.len() {
                for rho in [midpoint(&values, q), next(&values, q), 0.3 * values[q], 5.0 * values[q]] {
                    let eta = sufficient_step([(rho, values[q])]);
                    // f falls by eta p^T (Hhat - eta H / 2) p, at least by half of eta p^T Hhat p: per eigendirection.
                    let falls = |eta: f64| {
                        values.iter().enumerate().all(|(j, l)| {
                            let hat = if j < q { *l } else { rho };
                            hat - eta * l / 2.0 >= hat / 2.0 * (1.0 - 1e-12)
                        })
                    };
                    assert!(falls(eta));
                    assert!(rho <= values[q] || q == 0 || !falls(rho / values[q]), "as printed");
                }
            }
            // Corollary 2.2.
            assert!(sufficient_step([(midpoint(&values, 0), values[0])]) >= 0.5);
            assert_eq!(sufficient_step([(next(&values, 0), values[0])]), 1.0);
        }
    }

    /// Lemma 2.2: the rate falls with T, and is 0 once all pairs are sent in a period.
    #[test]
    fn the_periodic_rate_falls_to_zero() {
        let all = spectra();
        let agents: Vec<(f64, Vec<f64>)> = all.into_iter().filter(|values| values.len() == 9).map(|values| (0.05, values)).collect();
        assert_eq!(agents.len(), 20);
        for rho in [next, midpoint] {
            let rates: Vec<f64> = (1..=9).map(|period| periodic_rate(&agents, period, rho)).collect();
            assert!(rates.is_sorted_by(|a, b| a >= b) && rates[0] < 1.0 && rates[7] < 1e-3 && rates[8] < 1e-3, "{rates:?}");
        }
        assert!((1..=9).all(|period| periodic_rate(&agents, period, midpoint) <= periodic_rate(&agents, period, next)));
    }
}
