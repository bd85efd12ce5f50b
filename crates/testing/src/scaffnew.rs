//! Theorem B.4 of \[S\]: SCAFFLSA with random talk if all agents share `Abar_c = a I` and only `b` is noisy.
//!
//! The last line of the theorem is wrong in the source; the recursion here is exact.

/// The problem of Theorem B.4: `A_c(z) = a I`, `b_c(z) = bbar_c + noise`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scaffnew {
    /// The number of agents N, of equal weight.
    pub agents: u64,
    /// The step size eta.
    pub eta: f64,
    /// The common eigenvalue a.
    pub a: f64,
    /// The probability p of talking after a step.
    pub p: f64,
    /// `sigma = E ||noise||^2` of one sample, summed over the components.
    pub sigma: f64,
}

/// The second moments after a step, with `u_c = theta_c - theta*` and `x_c = xi_c - xi*_c`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScaffnewState {
    /// `U = E mean_c ||u_c||^2`.
    pub u: f64,
    /// `V = E ||mean_c u_c||^2`.
    pub v: f64,
    /// `C = E mean_c <x_c, u_c>`.
    pub c: f64,
    /// `X = E mean_c ||x_c||^2`.
    pub x: f64,
}

impl Scaffnew {
    /// A local step without its coin toss: `(U^, V^, C^, X)`.
    fn moved(&self, s: &ScaffnewState) -> ScaffnewState {
        let Self { eta, sigma, .. } = *self;
        let q = 1.0 - eta * self.a;
        ScaffnewState {
            u: q * q * s.u + eta * eta * s.x + 2.0 * eta * q * s.c + eta * eta * sigma,
            v: q * q * s.v + eta * eta * sigma / self.agents as f64,
            c: q * s.c + eta * s.x,
            x: s.x,
        }
    }

    /// The moments after a talk, from those after a local step. All agents are at the mean and `sum_c x_c = 0`, so that
    /// `U = V`, `C = 0`, `X += (p/eta)^2 (U^ - V^) - 2 (p/eta) C^`.
    fn talked(&self, s: &ScaffnewState) -> ScaffnewState {
        let gain = self.p / self.eta;
        ScaffnewState { u: s.v, v: s.v, c: 0.0, x: s.x + gain * gain * (s.u - s.v) - 2.0 * gain * s.c }
    }

    /// The expected moments directly after the next talk, from those directly after a talk or at the start. A run that is
    /// observed at talks only follows this recursion in the mean over samples and coins.
    ///
    /// Between two talks are H steps, H geometric: k steps without a talk with probability `p (1-p)^k`, then one with a talk.
    /// A step M without a talk is affine, so that the expected state before the last step is `s' = p sum_k (1-p)^k M^k s`,
    /// that is `s' = p s + (1-p) M s'`. M is triangular in the order X, V, C, U, and therefore
    ///
    /// ```text
    /// X' = X
    /// V' = (p V + (1-p) eta^2 sigma / N) / (1 - (1-p) q^2),           q = 1 - eta a
    /// C' = (p C + (1-p) eta X') / (1 - (1-p) q)
    /// U' = (p U + (1-p) (eta^2 X' + 2 eta q C' + eta^2 sigma)) / (1 - (1-p) q^2)
    /// ```
    ///
    /// In the limit `U = V`, `C = 0`, and V and X are those of single steps, because V does not depend on the coins, and X
    /// changes only at talks, whose coins are independent of X.
    pub fn next_talk(&self, s: &ScaffnewState) -> ScaffnewState {
        let Self { eta, p, sigma, .. } = *self;
        let q = 1.0 - eta * self.a;
        let silent = 1.0 - p;
        let x = s.x;
        let v = (p * s.v + silent * eta * eta * sigma / self.agents as f64) / (1.0 - silent * q * q);
        let c = (p * s.c + silent * eta * x) / (1.0 - silent * q);
        let u = (p * s.u + silent * (eta * eta * x + 2.0 * eta * q * c + eta * eta * sigma)) / (1.0 - silent * q * q);
        self.talked(&self.moved(&ScaffnewState { u, v, c, x }))
    }

    /// The states directly after 0, 1, .., `talks` talks; the first is `start`.
    pub fn talks(&self, start: ScaffnewState, talks: usize) -> Vec<ScaffnewState> {
        std::iter::successors(Some(start), |s| Some(self.next_talk(s))).take(talks + 1).collect()
    }

    /// The Lyapunov function `psi = U + (eta / p)^2 X`. Its limit does not decrease with N, whereas that of V decreases as 1/N.
    pub fn psi(&self, s: &ScaffnewState) -> f64 {
        let scale = self.eta / self.p;
        s.u + scale * scale * s.x
    }

    /// The moments after one local step and one coin toss:
    ///
    /// ```text
    /// U^ = (1 - eta a)^2 U + eta^2 X + 2 eta (1 - eta a) C + eta^2 sigma
    /// V^ = (1 - eta a)^2 V + eta^2 sigma / N
    /// C^ = (1 - eta a) C + eta X
    /// U <- p V^ + (1-p) U^      V <- V^      C <- (1-p) C^
    /// X <- X + p ((p/eta)^2 (U^ - V^) - 2 (p/eta) C^)
    /// ```
    pub fn step(&self, s: &ScaffnewState) -> ScaffnewState {
        let p = self.p;
        let moved = self.moved(s);
        let talked = self.talked(&moved);
        let mix = |talk: f64, silence: f64| p * talk + (1.0 - p) * silence;
        ScaffnewState { u: mix(talked.u, moved.u), v: moved.v, c: mix(talked.c, moved.c), x: mix(talked.x, moved.x) }
    }

    /// The states after 0, 1, .., `steps` steps.
    pub fn curve(&self, start: ScaffnewState, steps: usize) -> Vec<ScaffnewState> {
        std::iter::successors(Some(start), |s| Some(self.step(s))).take(steps + 1).collect()
    }

    /// The fixed point of [`step`](Self::step). With `q = 1 - eta a` and
    /// `W = U^ - V`, the equation of X gives `C^ = p W / (2 eta)`, and the rest
    ///
    /// ```text
    /// V = eta^2 (sigma / N) / (1 - q^2)
    /// W = eta^2 sigma (1 - 1/N) / (1 - p/2 - (1-p) q (q + p/2))
    /// U = V + (1-p) W,   C = (1-p) C^,   X = (1 - (1-p) q) C^ / eta
    /// ```
    pub fn limit(&self) -> ScaffnewState {
        let Self { eta, p, sigma, .. } = *self;
        let q = 1.0 - eta * self.a;
        let n = self.agents as f64;
        let v = eta * eta * sigma / n / (1.0 - q * q);
        let w = eta * eta * sigma * (1.0 - 1.0 / n) / (1.0 - p / 2.0 - (1.0 - p) * q * (q + p / 2.0));
        let c = p * w / (2.0 * eta);
        ScaffnewState { u: v + (1.0 - p) * w, v, c: (1.0 - p) * c, x: (1.0 - (1.0 - p) * q) * c / eta }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers uniform on [-1, 1), by SplitMix64.
    fn draws(mut state: u64) -> impl FnMut() -> f64 {
        move || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 52) as f64 - 1.0
        }
    }

    fn problem(agents: u64) -> Scaffnew {
        Scaffnew { agents, eta: 0.1, a: 1.0, p: 0.2, sigma: 1.0 }
    }

    #[test]
    fn limits_are_the_published_ones() {
        for (n, psi, v) in [(1, 0.0526, 0.0526), (10, 0.0803, 0.00526), (100, 0.0830, 0.000526)] {
            let limit = problem(n).limit();
            assert!((problem(n).psi(&limit) - psi).abs() < 5e-5, "psi at N = {n}");
            assert!((limit.v / v - 1.0).abs() < 1e-3, "V at N = {n}");
        }
    }

    #[test]
    fn the_limit_is_where_the_recursion_goes() {
        let p = Scaffnew { agents: 7, eta: 0.3, a: 1.4, p: 0.45, sigma: 2.0 };
        let end = *p.curve(ScaffnewState { u: 1.0, v: 1.0, c: 0.3, x: 2.0 }, 3000).last().unwrap();
        let limit = p.limit();
        for (x, y) in [(end.u, limit.u), (end.v, limit.v), (end.c, limit.c), (end.x, limit.x)] {
            assert!((x - y).abs() < 1e-12, "{end:?} {limit:?}");
        }
    }

    #[test]
    fn a_talk_is_the_series_over_the_steps_before_it() {
        let p = Scaffnew { agents: 5, eta: 0.3, a: 1.4, p: 0.35, sigma: 2.0 };
        let start = ScaffnewState { u: 1.5, v: 0.5, c: 0.3, x: 2.0 };
        let (mut silent, mut weight, mut want) = (start, p.p, [0.0; 4]);
        for _ in 0..120 {
            let talked = p.talked(&p.moved(&silent));
            want.iter_mut().zip([talked.u, talked.v, talked.c, talked.x]).for_each(|(sum, x)| *sum += weight * x);
            silent = p.moved(&silent);
            weight *= 1.0 - p.p;
        }
        let got = p.next_talk(&start);
        for (got, want) in [got.u, got.v, got.c, got.x].into_iter().zip(want) {
            assert!((got - want).abs() < 1e-13, "{got} {want}");
        }
        // At p = 1 every step talks.
        let always = Scaffnew { p: 1.0, ..p };
        assert_eq!(always.next_talk(&start), always.step(&start));
    }

    #[test]
    fn talks_settle_where_steps_do() {
        for n in [1, 10, 100] {
            let p = problem(n);
            let start = ScaffnewState { u: 1.0, v: 1.0, c: 0.0, x: 3.0 };
            let (end, limit) = (*p.talks(start, 400).last().unwrap(), p.limit());
            for (got, want) in [(end.v, limit.v), (end.u, limit.v), (end.x, limit.x), (end.c, 0.0)] {
                assert!((got - want).abs() < 1e-13, "{end:?} {limit:?}");
            }
            assert!((end.v - 0.0526 / n as f64).abs() < 4e-5 / n as f64, "V at N = {n}");
        }
    }

    #[test]
    fn simulation_agrees() {
        // Scalar agents, noise uniform on [-1, 1): sigma = 1/3; xi*_c spread out, started at theta* with xi = 0.
        let (n, runs, steps) = (4, 20_000, 30);
        let p = Scaffnew { agents: n as u64, sigma: 1.0 / 3.0, ..problem(1) };
        let x0 = [1.0, -0.5, 0.3, -0.8];
        let mut draw = draws(14);
        let (mut psi, mut psi_sq) = (0.0, 0.0);
        for _ in 0..runs {
            let (mut u, mut x) = ([0.0f64; 4], x0);
            for _ in 0..steps {
                for c in 0..n {
                    u[c] += p.eta * (-p.a * u[c] + x[c] + draw());
                }
                if draw() < 2.0 * p.p - 1.0 {
                    let mean = u.iter().sum::<f64>() / n as f64;
                    for c in 0..n {
                        x[c] += p.p / p.eta * (mean - u[c]);
                        u[c] = mean;
                    }
                }
            }
            let mean_sq = |y: &[f64; 4]| y.iter().map(|y| y * y).sum::<f64>() / n as f64;
            let value = mean_sq(&u) + (p.eta / p.p).powi(2) * mean_sq(&x);
            psi += value;
            psi_sq += value * value;
        }
        let runs = f64::from(runs);
        let (mean, var) = (psi / runs, psi_sq / runs - (psi / runs).powi(2));
        let start = ScaffnewState { u: 0.0, v: 0.0, c: 0.0, x: x0.iter().map(|x| x * x).sum::<f64>() / n as f64 };
        let want = p.psi(p.curve(start, steps).last().unwrap());
        assert!((mean - want).abs() < 4.0 * (var / runs).sqrt(), "{mean} {want}");
    }
}
