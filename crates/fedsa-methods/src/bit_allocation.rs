//! Allocation of bits to the eigenvectors of a Hessian, so that the server's approximation is close (\[T\] section 3.3). The real numbers
//! of bits with the least expected error are computed, and rounded to whole ones.
//!
//! An agent sends the first q eigenvectors of its Hessian. It rounds each component of vector i with `b_i` bits to a grid of cell
//! `D_i = 2^-(b_i - 1)` on \[-1, 1\]. The server forms `Hhat = sum_{i <= q} lb_i v_i v_i^T + rho I` from the decoded vectors, with
//! `lb_i = l_i - rho`. If errors have the variance `D_i^2 / 12` in each component and are independent, with `x_i = D_i^2`:
//!
//! ```text
//! E ||H - Hhat||_F^2 = sum_{i > q} lb_i^2 + d_q sum_i lb_i x_i + sum_i lb_i^2 (a1 x_i + a2 x_i^2) + a3 sum_{i != j} lb_i lb_j x_i x_j
//! d_q = (1/6) sum_{i > q} (rho - l_i),   a1 = 1/6 + n/6,   a2 = n/80 + n (n - 1)/144,   a3 = n/144
//! ```
//!
//! (eq. 3.14, where \[T\] prints `a1 = 1/12 + n/6`: `E ||v e^T + e v^T||_F^2 = 2 n s^2 + 2 s^2` with `s^2 = D^2 / 12` gives 1/6. The matrix
//! of the quadratic part is `(a2 - a3) diag(lb^2) + a3 lb lb^T`; eq. 3.18 swaps the coefficients.)
//!
//! The loss is convex in `log x`, and the budget is one linear constraint with bounds: [`Allocation::relaxed`] solves it to rounding error.
//! [`Allocation::bits`] rounds to whole bits within the budget. Only the relaxed problem has a unique optimum. The loss of whole bits has
//! other minima, and a greedy choice, which adds the best single bit, may end at another one with a lower or a higher loss. A vector
//! without a bit is not sent and counts among the `i > q`.

/// The coefficients of one agent's problem, for the first q of its eigenvectors.
#[derive(Debug, Clone, PartialEq)]
pub struct Allocation {
    /// n, the number of components of a vector.
    n: usize,
    /// `lb_i = l_i - rho` of the q vectors, at least 0, not increasing.
    above: Vec<f64>,
    /// `d_q`, at least 0.
    drift: f64,
    /// `sum_{i > q} lb_i^2`.
    rest: f64,
    /// The bits of each vector that the server holds.
    sent: Vec<u32>,
    /// The most bits of a vector.
    most: u32,
}

/// `log 4`: one more bit divides `x = D^2` by 4.
const LOG_4: f64 = 2.0 * std::f64::consts::LN_2;
/// The relative error of a root that is accepted, and the most steps towards it.
const CLOSE: f64 = 1e-14;
const MAX_STEPS: usize = 200;
/// Losses with a smaller relative difference count as equal.
const EQUAL: f64 = 1e-12;

/// The coefficients `a1`, `a2` and `a3` for n components.
fn coefficients(n: usize) -> [f64; 3] {
    let n = n as f64;
    [1.0 / 6.0 + n / 6.0, n / 80.0 + n * (n - 1.0) / 144.0, n / 144.0]
}

/// A root of a non-decreasing function in a bracket: false position that halves the value at the older end (the Illinois rule).
fn root(mut low: f64, mut high: f64, mut of: impl FnMut(f64) -> f64) -> f64 {
    let (mut at_low, mut at_high) = (of(low), of(high));
    if at_low >= 0.0 || low >= high {
        return low;
    }
    if at_high <= 0.0 {
        return high;
    }
    let mut side = 0;
    for step in 0..MAX_STEPS {
        let width = high - low;
        if width <= CLOSE * low.abs().max(high.abs()) {
            break;
        }
        // Every fourth step halves the bracket, which bounds the number of steps.
        let secant = (low * at_high - high * at_low) / (at_high - at_low);
        let middle = if step % 4 == 3 || !(low < secant && secant < high) { low + 0.5 * width } else { secant };
        let value = of(middle);
        if value == 0.0 {
            return middle;
        }
        if value < 0.0 {
            (low, at_low) = (middle, value);
            if side == -1 {
                at_high *= 0.5;
            }
            side = -1;
        } else {
            (high, at_high) = (middle, value);
            if side == 1 {
                at_low *= 0.5;
            }
            side = 1;
        }
    }
    0.5 * (low + high)
}

impl Allocation {
    /// The problem of the first q vectors; the server holds `sent` bits of each, and each may have at most `most`. `values` are all n
    /// eigenvalues, non-increasing; rho is the eigenvalue after q.
    ///
    /// # Panics
    /// When there are as many vectors as eigenvalues, or a vector has more than `most` bits.
    pub fn new(values: &[f64], sent: &[u32], most: u32) -> Self {
        let (n, q) = (values.len(), sent.len());
        assert!(q < n && sent.iter().all(|bits| *bits <= most));
        let rho = values[q];
        Self {
            n,
            above: values[..q].iter().map(|l| (l - rho).max(0.0)).collect(),
            drift: values[q..].iter().map(|l| rho - l).sum::<f64>() / 6.0,
            rest: values[q..].iter().map(|l| (l - rho) * (l - rho)).sum(),
            sent: sent.to_vec(),
            most,
        }
    }

    /// The bits that can still be sent, up to `most` for each vector.
    pub fn room(&self) -> u64 {
        self.sent.iter().map(|sent| u64::from(self.most - sent)).sum()
    }

    /// The expected squared error, in the Frobenius norm, of a Hessian whose vectors have these bits in all, including earlier rounds.
    /// Vectors without a bit are not sent.
    pub fn loss(&self, bits: &[u32]) -> f64 {
        let mut this = self.clone();
        let mut kept = Vec::new();
        for (lb, bits) in self.above.iter().zip(bits) {
            if *bits == 0 {
                this.rest += lb * lb;
                this.drift -= lb / 6.0;
            } else {
                kept.push((*lb, 4.0f64.powi(1 - *bits as i32)));
            }
        }
        let (above, x): (Vec<f64>, Vec<f64>) = kept.into_iter().unzip();
        this.above = above;
        this.rest + this.quantisation(&x)
    }

    /// `d_q sum lb_i x_i + sum lb_i^2 (a1 x_i + a2 x_i^2) + a3 sum_{i != j} lb_i lb_j x_i x_j`.
    fn quantisation(&self, x: &[f64]) -> f64 {
        let [a1, a2, a3] = coefficients(self.n);
        let (mut own, mut sum) = (0.0, 0.0);
        for (lb, x) in self.above.iter().zip(x) {
            let lx = lb * x;
            own += lx * (self.drift + a1 * lb + (a2 - a3) * lx);
            sum += lx;
        }
        own + a3 * sum * sum
    }

    /// `x_i` of each vector at a price per bit, with `s = sum_i lb_i x_i`, so that the loss falls equally for each:
    ///
    /// `x_i (d_q lb_i + a1 lb_i^2 + 2 a3 lb_i s) + 2 (a2 - a3) lb_i^2 x_i^2 = price`, within the bounds.
    fn at_price(&self, price: f64, s: f64, x: &mut [f64]) {
        let [a1, a2, a3] = coefficients(self.n);
        for ((x, lb), sent) in x.iter_mut().zip(&self.above).zip(&self.sent) {
            let (least, largest) = self.bounds(*sent);
            let (square, linear) = (2.0 * (a2 - a3) * lb * lb, lb * (self.drift + a1 * lb + 2.0 * a3 * s));
            // The positive root, in a form without cancellation.
            let free = 2.0 * price / (linear + (linear * linear + 4.0 * square * price).sqrt());
            *x = if free.is_nan() { largest } else { free.clamp(least, largest) };
        }
    }

    /// The bounds of `x_i` for a vector with `sent` bits.
    fn bounds(&self, sent: u32) -> (f64, f64) {
        (4.0f64.powi(1 - self.most as i32), 4.0f64.powi(1 - sent as i32))
    }

    /// The total bits of each vector, as real numbers, that minimise the expected error if every vector counts as sent. Each vector has at
    /// least its sent bits and at most `most`; `budget` bits are new, or as many as there is room for.
    pub fn relaxed(&self, budget: u64) -> Vec<f64> {
        let sent = || self.sent.iter().map(|sent| f64::from(*sent));
        if budget >= self.room() {
            return vec![f64::from(self.most); self.sent.len()];
        }
        let total = self.sent.iter().map(|sent| u64::from(*sent)).sum::<u64>() + budget;
        let wanted = LOG_4 * (self.sent.len() as f64 - total as f64);
        let mut x: Vec<f64> = self.sent.iter().map(|sent| self.bounds(*sent).1).collect();
        let weighted = |x: &[f64]| self.above.iter().zip(x).map(|(lb, x)| lb * x).sum::<f64>();
        let largest = weighted(&x);
        if largest == 0.0 {
            // No bit helps, so the first vectors get them.
            let mut left = budget as f64;
            return sent()
                .map(|sent| {
                    let more = (f64::from(self.most) - sent).min(left);
                    left -= more;
                    sent + more
                })
                .collect();
        }
        let [a1, a2, a3] = coefficients(self.n);
        let price = |lb: f64, x: f64, s: f64| lb * x * (self.drift + a1 * lb + 2.0 * a3 * s + 2.0 * (a2 - a3) * lb * x);
        let solve = |s: f64, x: &mut [f64]| {
            let prices = || self.above.iter().zip(&self.sent).filter(|(lb, _)| **lb > 0.0);
            let low = prices().map(|(lb, sent)| price(*lb, self.bounds(*sent).0, s)).fold(f64::INFINITY, f64::min);
            let high = prices().map(|(lb, sent)| price(*lb, self.bounds(*sent).1, s)).fold(0.0, f64::max);
            let found = root(low.ln(), high.ln(), |log| {
                self.at_price(log.exp(), s, x);
                x.iter().map(|x| x.ln()).sum::<f64>() - wanted
            });
            self.at_price(found.exp(), s, x);
        };
        let least = self.above.iter().zip(&self.sent).map(|(lb, sent)| lb * self.bounds(*sent).0).sum::<f64>();
        let s = root(least, largest, |s| {
            solve(s, &mut x);
            s - weighted(&x)
        });
        solve(s, &mut x);
        x.iter().map(|x| 1.0 - x.ln() / LOG_4).collect()
    }

    /// The total bits of each vector, whole numbers within the bounds of [`Allocation::relaxed`], near the minimum. The relaxed solution is
    /// rounded down, each remaining bit goes where it lowers the loss most, and single bits then move between vectors as long as the loss
    /// falls.
    pub fn bits(&self, budget: u64) -> Vec<u32> {
        let budget = budget.min(self.room());
        // A number of bits that is whole up to rounding counts as whole.
        let floor = |(bits, sent): (f64, &u32)| ((bits + 1e-6).floor() as u32).clamp(*sent, self.most);
        let mut bits: Vec<u32> = self.relaxed(budget).into_iter().zip(&self.sent).map(floor).collect();
        let used = |bits: &[u32]| bits.iter().zip(&self.sent).map(|(bits, sent)| u64::from(bits - sent)).sum::<u64>();
        let mut state = Whole::new(self, &bits);
        // Rounding near whole numbers may exceed the budget.
        while used(&bits) > budget {
            let Some((i, _)) = state.cheapest(&bits, &self.sent) else { break };
            state.change(&mut bits, i, -1);
        }
        while used(&bits) < budget {
            let Some((i, _)) = state.dearest(&bits, self.most) else { break };
            state.change(&mut bits, i, 1);
        }
        for _ in 0..4 * bits.len() {
            let (Some((from, _)), Some((to, _))) = (state.cheapest(&bits, &self.sent), state.dearest(&bits, self.most)) else { break };
            if from == to || state.move_gain(from, to) <= 0.0 {
                break;
            }
            state.change(&mut bits, from, -1);
            state.change(&mut bits, to, 1);
        }
        bits
    }
}

/// The loss of whole bits, with sums for changes of single bits. Vectors without bits count as sent here.
struct Whole<'a> {
    of: &'a Allocation,
    /// `lb_i x_i`.
    weighted: Vec<f64>,
    /// Their sum.
    sum: f64,
}

impl<'a> Whole<'a> {
    fn new(of: &'a Allocation, bits: &[u32]) -> Self {
        let weighted: Vec<f64> = of.above.iter().zip(bits).map(|(lb, bits)| lb * 4.0f64.powi(1 - *bits as i32)).collect();
        Self { of, sum: weighted.iter().sum(), weighted }
    }

    /// The change of the loss if `lb_i x_i` becomes `to`, given the sum of all.
    fn change_of(&self, i: usize, to: f64, sum: f64) -> f64 {
        let [a1, a2, a3] = coefficients(self.of.n);
        let (lb, from) = (self.of.above[i], self.weighted[i]);
        let own = |lx: f64| lx * (self.of.drift + a1 * lb + (a2 - a3) * lx);
        own(to) - own(from) + a3 * ((sum - from + to).powi(2) - sum * sum)
    }

    /// The vector whose loss rises least with one bit less, and the rise; the last one among ties.
    fn cheapest(&self, bits: &[u32], sent: &[u32]) -> Option<(usize, f64)> {
        let can = (0..bits.len()).rev().filter(|i| bits[*i] > sent[*i]);
        can.map(|i| (i, self.change_of(i, 4.0 * self.weighted[i], self.sum))).min_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// The vector whose loss falls most with one bit more, and the fall; the first one among ties.
    fn dearest(&self, bits: &[u32], most: u32) -> Option<(usize, f64)> {
        let can = (0..bits.len()).filter(|i| bits[*i] < most);
        can.map(|i| (i, self.change_of(i, 0.25 * self.weighted[i], self.sum))).min_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// The decrease of the loss if a bit moves from one vector to another.
    fn move_gain(&self, from: usize, to: usize) -> f64 {
        let less = 4.0 * self.weighted[from];
        -(self.change_of(from, less, self.sum) + self.change_of(to, 0.25 * self.weighted[to], self.sum - self.weighted[from] + less))
    }

    fn change(&mut self, bits: &mut [u32], i: usize, by: i32) {
        bits[i] = bits[i].saturating_add_signed(by);
        self.weighted[i] = self.of.above[i] * 4.0f64.powi(1 - bits[i] as i32);
        self.sum = self.weighted.iter().sum();
    }
}

/// The number of vectors considered in a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CountRule {
    /// `min(q + B, n - 1)`, as in \[T\] eq. 3.23; the bits decide how many are sent.
    Heuristic,
    /// Every number from the current one to `min(q + B, n - 1)`: the number with the least loss, the largest one among ties.
    Exact,
}

/// The total bits of each vector after a round with a budget of this many bits per component. `values` are all n eigenvalues,
/// non-increasing, and `sent` the bits that the server holds. The result ends with the last vector that has a bit, so it has one entry per
/// sent vector.
pub fn allocate(values: &[f64], sent: &[u32], most: u32, budget: u64, rule: CountRule) -> Vec<u32> {
    let (n, q) = (values.len(), sent.len());
    let end = usize::try_from(budget).map_or(n - 1, |budget| q.saturating_add(budget).min(n - 1));
    let with = |q: usize| {
        let mut sent = sent.to_vec();
        sent.resize(q, 0);
        let problem = Allocation::new(values, &sent, most);
        let mut bits = problem.bits(budget);
        bits.truncate(bits.iter().rposition(|bits| *bits > 0).map_or(0, |last| last + 1));
        bits
    };
    match rule {
        CountRule::Heuristic => with(end),
        CountRule::Exact => {
            let of = |q: usize| {
                let bits = with(q);
                // rho is the eigenvalue after the last sent vector.
                let loss = Allocation::new(values, &vec![0; bits.len()], most).loss(&bits);
                (loss, bits)
            };
            let all: Vec<(f64, Vec<u32>)> = (q..=end).map(of).collect();
            // Among equal eigenvalues all numbers are equally good up to rounding; the largest one leads past them.
            let least = all.iter().map(|(loss, _)| *loss).fold(f64::INFINITY, f64::min) * (1.0 + EQUAL);
            all.into_iter().rev().find(|(loss, _)| *loss <= least).map_or_else(Vec::new, |(_, bits)| bits)
        }
    }
}

#[cfg(test)]
mod tests {
    use fedsa::random::{Purpose, Stream, stream};

    use super::*;

    /// The spectrum of an example in \[T\], section 3.3.3.
    const SPECTRUM: [f64; 11] = [0.21, 0.11, 0.06, 0.03, 0.03, 0.02, 0.02, 0.01, 0.01, 0.01, 0.01];

    fn decaying(n: usize, draws: &mut Stream) -> Vec<f64> {
        let mut values: Vec<f64> = (0..n).map(|_| (2.0 * draws.normal()).exp()).collect();
        values.sort_by(|a, b| b.total_cmp(a));
        values
    }

    /// The loss by simulated errors: coordinate vectors, of which other orthonormal bases are rotations (apart from the law of the errors),
    /// with independent uniform errors.
    #[test]
    fn the_expected_loss_is_the_mean_of_drawn_ones() {
        let (values, bits) = ([2.0, 1.2, 0.7, 0.3, 0.1, 0.05], [3u32, 2, 2]);
        let (n, q) = (values.len(), bits.len());
        let expected = Allocation::new(&values, &[0; 3], 16).loss(&bits);
        let mut draws = stream(1, Purpose::Fresh, 0, 0);
        let rho = values[q];
        let (mut sum, mut squares, count) = (0.0, 0.0, 200_000);
        for _ in 0..count {
            let mut difference = vec![0.0; n * n];
            (0..n).for_each(|i| difference[i * n + i] = values[i] - rho);
            for (i, bits) in bits.iter().enumerate() {
                let cell = 2.0f64.powi(1 - *bits as i32);
                let v: Vec<f64> = (0..n).map(|j| f64::from(i == j) + cell * (draws.uniform() - 0.5)).collect();
                for a in 0..n {
                    (0..n).for_each(|b| difference[a * n + b] -= (values[i] - rho) * v[a] * v[b]);
                }
            }
            let loss: f64 = difference.iter().map(|x| x * x).sum();
            sum += loss;
            squares += loss * loss;
        }
        let mean = sum / f64::from(count);
        let error = ((squares / f64::from(count) - mean * mean) / f64::from(count)).sqrt();
        assert!((mean - expected).abs() < 4.0 * error, "{mean} +- {error}, expected {expected}");
        // The coefficient printed in [T] is distinguishable.
        let printed =
            expected - (1.0 / 12.0) * bits.iter().zip(values).map(|(b, l)| (l - rho).powi(2) * 4.0f64.powi(1 - *b as i32)).sum::<f64>();
        assert!((mean - printed).abs() > 6.0 * error, "{mean} +- {error}, printed {printed}");
    }

    /// At the minimum, moving a little of one vector's bits to another does not help; checked at random feasible points by the loss alone.
    #[test]
    fn relaxed_solutions_are_minima_within_their_budget() {
        let mut draws = stream(2, Purpose::Fresh, 0, 0);
        for case in 0..60 {
            let n = 3 + (draws.uniform() * 40.0) as usize;
            let values = decaying(n, &mut draws);
            let q = 1 + (draws.uniform() * (n - 2) as f64) as usize;
            let most = 1 + (draws.uniform() * 15.0) as u32;
            let sent: Vec<u32> = (0..q).map(|_| (draws.uniform() * f64::from(most)) as u32 * u32::from(case % 2 == 0)).collect();
            let problem = Allocation::new(&values, &sent, most);
            let budget = (draws.uniform() * 1.1 * problem.room() as f64) as u64;
            let bits = problem.relaxed(budget);
            let used: f64 = bits.iter().zip(&sent).map(|(bits, sent)| bits - f64::from(*sent)).sum();
            assert!((used - budget.min(problem.room()) as f64).abs() < 1e-8 * (1.0 + used), "case {case}: {used} of {budget}");
            let within = |b: f64, sent: u32| b >= f64::from(sent) - 1e-9 && b <= f64::from(most) + 1e-9;
            assert!(bits.iter().zip(&sent).all(|(b, sent)| within(*b, *sent)), "case {case}");
            let loss = |bits: &[f64]| problem.quantisation(&bits.iter().map(|b| 4.0f64.powf(1.0 - b)).collect::<Vec<_>>());
            let least = loss(&bits);
            for _ in 0..200 {
                let (i, j) = ((draws.uniform() * q as f64) as usize, (draws.uniform() * q as f64) as usize);
                let by = 0.5 * draws.uniform();
                let mut other = bits.clone();
                let by = by.min(f64::from(most) - other[i]).min(other[j] - f64::from(sent[j])).max(0.0);
                other[i] += by;
                other[j] -= by;
                assert!(i == j || loss(&other) >= least * (1.0 - 1e-9), "case {case}: {} below {least}", loss(&other));
            }
        }
    }

    /// Against an interior-point solver of another library: Clarabel 0.11.1 with tolerances of 1e-12, in the variables `y_i = log x_i` and
    /// `t_i >= e^{y_i}` (exponential cones), with a loss that is quadratic in t.
    #[test]
    fn relaxed_solutions_are_those_of_clarabel() {
        let halves: Vec<f64> = (0..12).map(|j| 0.5f64.powi(j)).collect();
        let squares: Vec<f64> = (1..=30).map(|j| 1.0 / f64::from(j * j)).collect();
        let flat = [1.0, 0.9, 0.8, 0.7, 0.1];
        // Eigenvalues, sent bits, b_max, budget; then the total bits, and the loss of the sent vectors.
        type Case<'a> = (&'a [f64], &'a [u32], u32, u64, &'a [f64], f64);
        let cases: [Case<'_>; 8] = [
            (&SPECTRUM, &[0; 5], 16, 20, &[6.23668, 5.17507, 4.04582, 2.27121, 2.27121], 2.522629947e-4),
            (&SPECTRUM, &[0; 7], 4, 20, &[4.0, 4.0, 3.72428, 2.48657, 2.48657, 1.65129, 1.65129], 2.119564779e-3),
            (&SPECTRUM, &[3, 2, 1, 0, 0, 0, 0], 6, 8, &[4.27114, 3.30618, 2.39311, 1.34051, 1.34051, 0.67428, 0.67428], 5.124548635e-3),
            (&halves, &[0; 8], 8, 24, &[6.34544, 5.34498, 4.34627, 3.35681, 2.40022, 1.51467, 0.6916, 0.0], 8.78538854e-3),
            (&halves, &[4, 4, 3, 2, 0, 0, 0, 0], 5, 9, &[5.0, 5.0, 4.2709, 3.28476, 2.33554, 1.46105, 0.64775, 0.0], 1.733514727e-2),
            (
                &squares,
                &[0; 12],
                8,
                30,
                &[7.30122, 5.2917, 4.11566, 3.29304, 2.67377, 2.18252, 1.77002, 1.40087, 1.04657, 0.67753, 0.24709, 0.0],
                7.560875455e-3,
            ),
            (&flat, &[0; 4], 8, 13, &[3.52399, 3.35682, 3.168, 2.95118], 9.856930115e-2),
            (&flat, &[2, 2, 2, 0], 3, 2, &[2.22753, 2.07158, 2.0, 1.70089], 5.943977880e-1),
        ];
        for (case, (values, sent, most, budget, bits, loss)) in cases.into_iter().enumerate() {
            let problem = Allocation::new(values, sent, most);
            let own = problem.relaxed(budget);
            let its = problem.quantisation(&own.iter().map(|b| 4.0f64.powf(1.0 - b)).collect::<Vec<_>>());
            assert!((its / loss - 1.0).abs() < 1e-8, "case {case}: {its}, {loss} by Clarabel");
            assert!(own.iter().zip(bits).all(|(a, b)| (a - b).abs() < 5e-5), "case {case}: {own:?}, {bits:?} by Clarabel");
        }
    }

    /// All ways to give `budget` bits to q vectors, at most `most` each.
    fn every(q: usize, budget: u64, most: u32) -> Vec<Vec<u32>> {
        if q == 0 {
            return if budget == 0 { vec![Vec::new()] } else { Vec::new() };
        }
        let first = 0..=most.min(budget as u32);
        first.flat_map(|b| every(q - 1, budget - u64::from(b), most).into_iter().map(move |rest| [vec![b], rest].concat())).collect()
    }

    /// Against every allocation of small cases, and against the solution in real numbers, a lower bound.
    #[test]
    fn whole_bits_are_close_to_the_best_of_all() {
        let mut draws = stream(3, Purpose::Fresh, 0, 0);
        let mut exact = 0;
        for case in 0..40 {
            let values = decaying(7, &mut draws);
            let (q, most) = (4, 5);
            let problem = Allocation::new(&values, &[0; 4], most);
            let budget = 1 + (draws.uniform() * 18.0) as u64;
            let bits = problem.bits(budget);
            assert_eq!(u64::from(bits.iter().sum::<u32>()), budget.min(problem.room()), "case {case}");
            let with_x = |bits: &[u32]| problem.quantisation(&bits.iter().map(|b| 4.0f64.powi(1 - *b as i32)).collect::<Vec<_>>());
            let best = every(q, budget, most).iter().map(|bits| with_x(bits)).fold(f64::INFINITY, f64::min);
            let real = problem.quantisation(&problem.relaxed(budget).iter().map(|b| 4.0f64.powf(1.0 - b)).collect::<Vec<_>>());
            assert!(real <= best * (1.0 + 1e-9) && with_x(&bits) <= best * 1.02, "case {case}: {real} {best} {}", with_x(&bits));
            exact += usize::from(with_x(&bits) <= best * (1.0 + 1e-12));
        }
        assert!(exact >= 36, "the best allocation in {exact} of 40 cases");
    }

    #[test]
    fn larger_eigenvalues_have_more_bits_and_budgets_are_kept() {
        for budget in [1, 2, 5, 18, 32, 100, 1000] {
            for rule in [CountRule::Heuristic, CountRule::Exact] {
                let bits = allocate(&SPECTRUM, &[], 16, budget, rule);
                assert!(bits.is_sorted_by(|a, b| a >= b), "{bits:?}");
                assert!(u64::from(bits.iter().sum::<u32>()) <= budget && bits.len() < SPECTRUM.len(), "{bits:?}");
                assert!(bits.iter().all(|b| (1..=16).contains(b)));
            }
        }
        assert_eq!(allocate(&SPECTRUM, &[], 16, 0, CountRule::Heuristic), Vec::<u32>::new());
        assert_eq!(allocate(&SPECTRUM, &[16; 10], 16, 30, CountRule::Heuristic), [16; 10]);
        // Equal eigenvalues: nothing to gain, and all numbers are finite.
        assert!(allocate(&[1.0; 5], &[], 4, 6, CountRule::Exact).len() <= 4);
        // Refinement keeps the sent bits.
        let first = allocate(&SPECTRUM, &[], 16, 16, CountRule::Heuristic);
        let second = allocate(&SPECTRUM, &first, 16, 16, CountRule::Heuristic);
        assert!(first.iter().zip(&second).all(|(a, b)| a <= b) && second.len() >= first.len());
    }

    /// The exact search is never worse than the heuristic.
    #[test]
    fn the_exact_number_of_vectors_is_no_worse() {
        let mut draws = stream(4, Purpose::Fresh, 0, 0);
        for _ in 0..30 {
            let values = decaying(20, &mut draws);
            let loss = |rule| {
                let bits = allocate(&values, &[], 16, 12, rule);
                Allocation::new(&values, &vec![0; bits.len()], 16).loss(&bits)
            };
            assert!(loss(CountRule::Exact) <= loss(CountRule::Heuristic) * (1.0 + 1e-12));
        }
    }
}
