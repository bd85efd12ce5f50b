//! Markov chains on the indices 0..n with a uniform stationary law.

use faer::Mat;
use serde::{Deserialize, Serialize};

use fedsa::error::{Error, Result, require};
use fedsa::linalg;
use fedsa::problem::law::Chain;
use fedsa::problem::law::ROW_SUM_TOLERANCE;
use fedsa::random::Stream;

/// The most states of a chain, whose matrix and law of moves take memory quadratic in it.
pub(crate) const MAX_STATES: usize = 2000;

/// The least spectral gap, `1 - |lambda_2|`. A chain with a smaller gap counts as reducible or periodic.
const MIN_GAP: f64 = 1e-9;

/// Whether a spectral gap, or a lower bound of it, is large enough, with an allowance for the rounding of settings.
pub(super) fn is_gap(gap: f64) -> bool {
    gap >= 0.999 * MIN_GAP
}

/// Checks the mixing time of a chain whose second eigenvalue is at least `1 - 1 / mixing_time`.
///
/// # Errors
/// Below 1, and where the second eigenvalue is within 1e-9 of 1.
pub(super) fn check_mixing_time(mixing_time: f64) -> Result<()> {
    require(mixing_time >= 1.0 && mixing_time.is_finite(), "mixing_time", mixing_time, "at least 1")?;
    let gap = 1.0 / mixing_time;
    if is_gap(gap) {
        return Ok(());
    }
    let what = format!("{mixing_time:e} is not accepted: the chain is reducible to rounding, its second eigenvalue is 1 - {gap:.1e}");
    Err(Error::new("mixing_time", what, "at least 1 and at most 1e9"))
}

/// The chain of sampled indices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ChainLaw {
    /// A random symmetric doubly stochastic matrix.
    #[default]
    Random,
    /// The next index is drawn uniformly.
    Uniform,
    /// The next index follows the current one.
    Cyclic,
}

/// A chain in the form from which moves are drawn.
#[derive(Debug, Clone)]
pub(super) struct IndexChain {
    n: usize,
    /// The transition probabilities, row by row.
    p: Vec<f64>,
    /// Their partial sums along each row, infinite from the last index with a positive probability on.
    sums: Vec<f64>,
}

impl IndexChain {
    fn new(n: usize, p: Vec<f64>) -> Self {
        let mut sums = p.clone();
        for (sums, p) in sums.chunks_mut(n).zip(p.chunks(n)) {
            let last = p.iter().rposition(|p| *p > 0.0).unwrap_or(n - 1);
            (1..n).for_each(|t| sums[t] += sums[t - 1]);
            sums[last..].fill(f64::INFINITY);
        }
        Self { n, p, sums }
    }

    /// A chain of `n` states by its law. With `leaves = 1 / mixing_time`, a random or uniform chain P becomes `(1 - leaves) I + leaves P`,
    /// the cyclic chain C becomes `(1 - leaves) C + leaves / n`.
    ///
    /// # Errors
    /// When the chain is periodic or reducible. A cycle with almost no uniform draws counts as periodic.
    pub fn drawn(law: ChainLaw, n: usize, mixing_time: f64, draws: Stream) -> Result<Self> {
        let leaves = 1.0 / mixing_time;
        let uniform = 1.0 / n as f64;
        let stays = |s: usize, t: usize| if s == t { 1.0 - leaves } else { 0.0 };
        let p = match law {
            ChainLaw::Random => sinkhorn(n, draws).into_iter().enumerate().map(|(i, p)| leaves * p + stays(i / n, i % n)).collect(),
            ChainLaw::Uniform => (0..n * n).map(|i| leaves * uniform + stays(i / n, i % n)).collect(),
            ChainLaw::Cyclic => (0..n * n).map(|i| leaves * uniform + stays((i / n + 1) % n, i % n)).collect(),
        };
        let chain = Self::new(n, p);
        chain.check_mixing("mixing_time")?;
        Ok(chain)
    }

    /// A chain of `n` states with given transition probabilities.
    ///
    /// # Errors
    /// When they are not doubly stochastic, or the chain is reducible or periodic.
    pub fn given(n: usize, rows: &[Vec<f64>]) -> Result<Self> {
        let wrong = |what: String, help: &str| Err(Error::new("transitions", what, help));
        if let Some(row) = rows.iter().find(|row| row.len() != rows.len()) {
            return wrong(format!("a matrix of {} rows, one of which has {} entries", rows.len(), row.len()), "a square matrix");
        }
        if rows.len() != n {
            return wrong(format!("a matrix of {} states", rows.len()), &format!("one state for each of the {n} terms"));
        }
        let entry = |i: usize| (i / n, i % n, rows[i / n][i % n]);
        if let Some((s, t, p)) = (0..n * n).map(entry).find(|(_, _, p)| !(0.0..=1.0).contains(p)) {
            return wrong(format!("the probability {p} at [{s}][{t}]"), "probabilities, from 0 to 1");
        }
        for s in 0..n {
            for (what, sum) in [("row", rows[s].iter().sum::<f64>()), ("column", rows.iter().map(|row| row[s]).sum::<f64>())] {
                if (sum - 1.0).abs() > ROW_SUM_TOLERANCE {
                    let help = "rows and columns that sum to 1, so that the stationary law is uniform";
                    return wrong(format!("{what} {s} sums to {sum}"), help);
                }
            }
        }
        let chain = Self::new(n, rows.concat());
        chain.check_mixing("transitions")?;
        Ok(chain)
    }

    /// Refuses chains that are reducible or periodic, or nearly so; the error states the eigenvalue.
    ///
    /// Doeblin's bound comes first, because all eigenvalues of a large chain take many seconds. If all `p >= m`, a doubly stochastic matrix
    /// is `n m (1 1^T / n) + (1 - n m) Q` with Q doubly stochastic. Its second eigenvalue has a modulus of at most `1 - n m`.
    fn check_mixing(&self, key: &str) -> Result<()> {
        const ROUNDING: f64 = 1e-12;
        if self.p.iter().all(|p| is_gap(*p * self.n as f64)) {
            return Ok(());
        }
        let mut all = linalg::eigenvalues(&linalg::from_rows(self.n, self.n, &self.p))?;
        all.sort_by(|x, y| (x.0 - 1.0).hypot(x.1).total_cmp(&(y.0 - 1.0).hypot(y.1)));
        // The first is 1 itself.
        let Some((re, im)) = all.iter().skip(1).find(|(re, im)| !is_gap(1.0 - re.hypot(*im))) else { return Ok(()) };
        let is_nearly = re.hypot(*im) < 1.0 - ROUNDING;
        let (digits, parts): (usize, usize) = if is_nearly { (12, 12) } else { (9, 6) };
        let text = if im.abs() < MIN_GAP {
            format!("{re:.digits$}")
        } else {
            format!("{re:.parts$} {} {:.parts$} i", if *im < 0.0 { '-' } else { '+' }, im.abs())
        };
        let is_reducible = (re - 1.0).hypot(*im) < MIN_GAP;
        let (what, why) = match (is_reducible, is_nearly) {
            (true, false) => ("reducible", "the eigenvalue 1 is a double one"),
            (true, true) => ("nearly reducible", "another eigenvalue is within 1e-9 of 1"),
            (false, false) => ("periodic", "another eigenvalue than 1 has modulus 1"),
            (false, true) => ("nearly periodic", "another eigenvalue than 1 has a modulus within 1e-9 of 1"),
        };
        let help = "a chain whose other eigenvalues have a modulus below 1: every state must reach every other, without a period";
        Err(Error::new(key, format!("the chain is {what}: {why}, {text}"), help))
    }

    /// The state after `s`, for a uniform number u in [0, 1).
    #[inline(always)]
    pub fn next(&self, s: u32, u: f64) -> u32 {
        let row = &self.sums[s as usize * self.n..][..self.n];
        row.partition_point(|sum| *sum <= u) as u32
    }

    /// Moves of positive probability.
    pub fn moves(&self) -> Chain {
        let n = self.n;
        let moves = || (0..n * n).filter(|i| self.p[*i] > 0.0);
        Chain {
            from: moves().map(|i| (i / n) as u32).collect(),
            to: moves().map(|i| (i % n) as u32).collect(),
            p: moves().map(|i| self.p[i]).collect(),
            law: vec![1.0 / n as f64; n],
        }
    }
}

/// A symmetric doubly stochastic matrix: U(0, 1) entries, mirrored, after 100 sweeps `p_st / sqrt(r_s r_t)` with the row sums r.
fn sinkhorn(n: usize, mut draws: Stream) -> Vec<f64> {
    const SWEEPS: usize = 100;
    let mut p = Mat::<f64>::zeros(n, n);
    for s in 0..n {
        for t in 0..=s {
            // Not 0, so that no row is empty.
            let u = 1.0 - draws.uniform();
            (p[(s, t)], p[(t, s)]) = (u, u);
        }
    }
    for _ in 0..SWEEPS {
        let roots: Vec<f64> = (0..n).map(|s| (0..n).map(|t| p[(t, s)]).sum::<f64>().sqrt()).collect();
        for s in 0..n {
            for t in 0..n {
                p[(t, s)] /= roots[s] * roots[t];
            }
        }
    }
    linalg::to_rows(&p)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fedsa::random::{Purpose, stream};

    fn draws() -> Stream {
        stream(1, Purpose::System, 0, 0)
    }

    #[test]
    fn chains_are_doubly_stochastic() {
        for law in [ChainLaw::Random, ChainLaw::Uniform, ChainLaw::Cyclic] {
            for n in [1, 2, 10] {
                let chain = IndexChain::drawn(law, n, 3.0, draws()).unwrap();
                for s in 0..n {
                    let (row, column): (f64, f64) = ((0..n).map(|t| chain.p[s * n + t]).sum(), (0..n).map(|t| chain.p[t * n + s]).sum());
                    assert!((row - 1.0).abs() < 1e-14 && (column - 1.0).abs() < 1e-14, "{law:?}, n = {n}: {row} {column}");
                }
                let is_symmetric = (0..n * n).all(|i| chain.p[i] == chain.p[i % n * n + i / n]);
                assert!(is_symmetric || law == ChainLaw::Cyclic);
            }
        }
    }

    #[test]
    fn mixing_times_end_where_chains_count_as_reducible() {
        assert!(check_mixing_time(1.0).is_ok() && check_mixing_time(1e9).is_ok());
        for law in [ChainLaw::Uniform, ChainLaw::Cyclic] {
            assert!(IndexChain::drawn(law, 7, 1e9, draws()).is_ok(), "{law:?}");
        }
        let e = check_mixing_time(1e12).unwrap_err();
        assert!(e.to_string().contains("mixing_time: 1e12 is not accepted") && e.what.contains("1 - 1.0e-12"), "{e}");
        assert!(e.help.contains("at most 1e9"), "{}", e.help);
        assert!(check_mixing_time(0.5).is_err() && check_mixing_time(f64::NAN).is_err());
    }

    #[test]
    fn states_follow_with_their_probabilities() {
        let chain = IndexChain::new(3, vec![0.5, 0.5, 0.0, 0.25, 0.0, 0.75, 0.25, 0.5, 0.25]);
        let next = |s, u| chain.next(s, u);
        assert_eq!([next(0, 0.0), next(0, 0.49), next(0, 0.5), next(0, 1.0 - f64::EPSILON)], [0, 0, 1, 1]);
        assert_eq!([next(1, 0.2), next(1, 0.25), next(1, 0.99)], [0, 2, 2]);
        assert_eq!([next(2, 0.25), next(2, 0.75)], [1, 2]);
        assert_eq!(chain.moves().p.len(), 7);
    }

    #[test]
    fn chains_that_do_not_mix_are_refused_with_their_eigenvalue() {
        let of = |rows: &[&[f64]]| IndexChain::given(rows.len(), &rows.iter().map(|row| row.to_vec()).collect::<Vec<_>>());
        let refused = |rows: &[&[f64]], text: &str| {
            let e = of(rows).unwrap_err();
            assert!(e.to_string().contains(text), "{e}");
        };
        refused(&[&[1.0, 0.0], &[0.0, 1.0]], "transitions: the chain is reducible: the eigenvalue 1 is a double one, 1.000000000");
        refused(&[&[0.0, 1.0], &[1.0, 0.0]], "the chain is periodic: another eigenvalue than 1 has modulus 1, -1.000000000");
        refused(&[&[0.0, 1.0, 0.0], &[0.0, 0.0, 1.0], &[1.0, 0.0, 0.0]], "modulus 1, -0.500000 ");
        refused(&[&[0.5, 0.5], &[0.4, 0.6]], "column 0 sums to 0.9");
        refused(&[&[0.5, 0.4], &[0.5, 0.6]], "row 0 sums to 0.9");
        refused(&[&[1.5, -0.5], &[-0.5, 1.5]], "the probability 1.5 at [0][0]");
        refused(&[&[0.5, 0.5], &[0.5]], "a matrix of 2 rows, one of which has 1 entries");
        assert!(of(&[&[0.9, 0.1], &[0.1, 0.9]]).is_ok());
        let slow = 1.0 - 1e-10;
        refused(&[&[slow, 1e-10], &[1e-10, slow]], "the chain is nearly reducible: another eigenvalue is within 1e-9 of 1, 0.9999999998");
        refused(&[&[1e-10, slow], &[slow, 1e-10]], "the chain is nearly periodic: another eigenvalue than 1 has a modulus within");
    }
}
