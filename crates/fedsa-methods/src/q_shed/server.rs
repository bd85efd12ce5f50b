//! The server half of Q-SHED: eigenvectors from the bits that have arrived, a Newton-type step from them, and its length.

use faer::Mat;
use fedsa::error::{Error, Result};
use fedsa::linalg;
use fedsa::message::{Body, Part};
use fedsa::protocol::refused;
use fedsa::random::Stream;
use fedsa::saved::{packed, unpacked};
use fedsa::server::{Broadcast, ClientUpdate, Next, Received, Server};
use serde::{Deserialize, Serialize};

use crate::local::refinement::{BitReader, More, Refinement, checksum};
use crate::nested_grid;
use crate::server::approximation::{HeldPairs, NewtonSteps, ORTHOGONAL, ROUNDING, Spectrum, StoredPairs, UNIT, direction};

/// The parameters of Q-SHED at the server.
#[derive(Debug, Clone)]
pub struct QShedRule {
    /// The run's seed, which determines the offsets of grids.
    pub seed: u64,
    /// The most bits per component.
    pub max_bits: u32,
    /// Whether vectors are unquantised (ideal-SHED).
    pub are_whole: bool,
}

/// Keeps the bits of each agent's eigenvectors, and steps by the mean of the Hessians that they approximate.
///
/// The invariant over losses: the server holds of an agent the leading bits of eigenvectors of one of its Hessians, with the rho of the
/// last accepted answer. A checksum in an answer says to which bits it adds. If these are neither the held bits nor none, the server
/// rejects the answer's bits. The next question tells an agent about a lost answer, and it continues from the bits before it.
#[derive(Debug, Clone)]
pub struct QShedServer {
    /// `theta_t` and the step lengths.
    pub steps: NewtonSteps,
    rule: QShedRule,
    held: HeldPairs<Vec<Pair>>,
}

/// An eigenvalue, and the received part of its vector.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Pair {
    value: f64,
    /// Bits per component; a vector without bits counts as 0.
    bits: u32,
    /// The code of each component, and the components that are across (`crate::nested_grid`); empty without bits, and for unquantised
    /// vectors.
    codes: Vec<u32>,
    across: Vec<u16>,
    /// The unquantised vector.
    whole: Vec<f64>,
}

/// A parsed answer.
struct Answer<'a> {
    /// The new eigenvalues, and rho.
    spectrum: Spectrum<'a>,
    refinement: Refinement,
    /// The digits, or whole vectors.
    content: &'a Body,
}

impl<'a> Answer<'a> {
    /// Parses an answer with vectors of d components of at most `most` bits.
    fn read(parts: &'a [(Part, Body)], d: usize, most: u32) -> Result<Self> {
        let body = |part| parts.iter().find(|(p, _)| *p == part).map(|(_, body)| body);
        let spectrum = Spectrum::read(body(Part::Eigenvalues).and_then(Body::numbers).unwrap_or_default(), d)?;
        let Some(Body::Packed(bytes)) = body(Part::Refinement) else { return Err(no_refinement()) };
        let refinement = Refinement::unpack(bytes, d).ok_or_else(no_refinement)?;
        let (q, end) = (spectrum.first + spectrum.values.len(), refinement.end());
        // The last new vector must have bits, so that q is the number of vectors that count.
        let ends_with_bits = spectrum.values.is_empty() || end == q && refinement.more.last().is_some_and(|more| more.bits > 0);
        if end > q || !ends_with_bits || refinement.more.iter().any(|more| more.bits > most) {
            return Err(no_refinement());
        }
        let content = body(Part::Digits).or_else(|| body(Part::Eigenvectors)).ok_or_else(no_refinement)?;
        Ok(Self { spectrum, refinement, content })
    }

    /// Checks that the number of digits matches the refinement; unquantised vectors must have norm 1 and be no more than the vectors with
    /// new bits.
    fn check_content(&self, d: usize) -> Result<()> {
        match self.content {
            Body::Packed(digits) => {
                let padding = (8 - (self.refinement.total() as usize % 8) * (d % 8) % 8) % 8;
                let is_padded = digits.last().is_none_or(|last| u32::from(*last) >> (8 - padding) == 0);
                if digits.len() != self.refinement.digits_len(d) || !is_padded {
                    let what = format!("{} bytes of digits for {} bits a component", digits.len(), self.refinement.total());
                    return Err(refused(what, "the digits of the refinement"));
                }
            }
            Body::Numbers(vectors) => {
                let most = self.refinement.more.iter().filter(|more| more.bits > 0).count();
                let is_unit = |v: &[f64]| (linalg::norm_sq(v) - 1.0).abs() <= UNIT;
                if !vectors.len().is_multiple_of(d) || vectors.len() / d > most || !vectors.chunks_exact(d).all(is_unit) {
                    return Err(refused(format!("{} numbers of eigenvectors", vectors.len()), "eigenvectors of length 1"));
                }
            }
            Body::Sparse { .. } => return Err(no_refinement()),
        }
        Ok(())
    }
}

fn no_refinement() -> Error {
    refused("no refinement of eigenvectors", "bits of eigenvectors in their order")
}

impl Pair {
    /// Adds the digits of the next bits; the vector may have at most `most`.
    fn refine(&mut self, more: &More, d: usize, most: u32, digits: &mut BitReader<'_>) -> Option<()> {
        if more.bits == 0 {
            return Some(());
        }
        if self.bits + more.bits > most {
            return None;
        }
        self.codes.resize(d, 0);
        for code in &mut self.codes {
            *code = nested_grid::refined(*code, self.bits, digits.take(more.bits)?, more.bits);
        }
        self.bits += more.bits;
        self.across.clone_from(&more.across);
        Some(())
    }

    /// The vector by its received bits; `grid` creates the stream of its offsets.
    fn vector(&self, grid: impl Fn() -> Stream) -> Option<Vec<f64>> {
        match self.bits {
            0 => None,
            _ if self.codes.is_empty() => Some(self.whole.clone()),
            bits => Some(nested_grid::decode(&self.codes, bits, &self.across, grid())),
        }
    }
}

impl StoredPairs<Vec<Pair>> {
    /// Accepts an answer of agent c in round t if it adds to the held bits of the same Hessian, or has the first bits of any Hessian.
    fn take(&mut self, c: usize, t: u64, answer: &Answer<'_>, d: usize, rule: &QShedRule) -> Option<()> {
        let Answer { spectrum: Spectrum { round, first, rho, values }, refinement, content } = answer;
        let keep = *first;
        let goes_on = self.round == Some(*round) && keep == self.pairs.len();
        if *round > t || !(goes_on || keep == 0) {
            return None;
        }
        // A copy, because a round that adds to held vectors changes them, and the answer may still be rejected.
        let mut pairs = self.pairs[..keep].to_vec();
        if checksum(&pairs.iter().map(|pair| pair.bits).collect::<Vec<u32>>()) != refinement.base {
            return None;
        }
        let (most, last) = (pairs.first().map_or(0.0, |pair| pair.value), pairs.last().map_or(f64::INFINITY, |pair| pair.value));
        if values.first().copied().unwrap_or(*rho) > last + ROUNDING * most {
            return None;
        }
        pairs.extend(values.iter().map(|value| Pair { value: *value, ..Pair::default() }));
        let is_new: Vec<bool> = pairs.iter().map(|pair| pair.bits == 0).collect();
        let refined = pairs[refinement.start.min(keep + values.len())..].iter_mut().zip(&refinement.more);
        match content {
            Body::Packed(digits) if !rule.are_whole => {
                let mut digits = BitReader::new(digits);
                for (pair, more) in refined {
                    pair.refine(more, d, rule.max_bits, &mut digits)?;
                }
            }
            Body::Numbers(vectors) if rule.are_whole => {
                let mut vectors = vectors.chunks_exact(d);
                for (pair, more) in refined {
                    if pair.bits == 0 && more.bits > 0 {
                        pair.whole = vectors.next()?.to_vec();
                    }
                    pair.bits += more.bits;
                }
                if vectors.next().is_some() || !are_orthogonal(&pairs, &is_new) {
                    return None;
                }
            }
            _ => return None,
        }
        if pairs.iter().any(|pair| pair.bits > rule.max_bits) {
            return None;
        }
        let is_only_longer = goes_on && refinement.start >= keep && !self.sums.is_empty();
        (self.round, self.rho, self.pairs) = (Some(*round), *rho, pairs);
        self.sum_from(c, if is_only_longer { keep } else { 0 }, d, rule.seed);
        Some(())
    }

    /// Adds the pairs from index `from` on to the sums of the earlier ones; from index 0 on, starts new sums.
    fn sum_from(&mut self, c: usize, from: usize, d: usize, seed: u64) {
        let round = self.round.unwrap_or(0);
        let vector = |j: usize| Some((self.pairs[j].value, self.pairs[j].vector(|| nested_grid::offsets(seed, round, c, j))?));
        let known: Vec<_> = (from..self.pairs.len()).filter_map(vector).collect();
        let pairs: Vec<_> = known.iter().map(|(value, v)| (*value, &v[..])).collect();
        if from == 0 { self.sums.replace(d, &pairs) } else { self.sums.add_all(&pairs) }
    }
}

/// Whether unquantised vectors, some of them new, can belong to one Hessian.
fn are_orthogonal(pairs: &[Pair], is_new: &[bool]) -> bool {
    let known: Vec<usize> = (0..pairs.len()).filter(|j| pairs[*j].bits > 0).collect();
    let fits = |i: usize, j: usize| !(is_new[i] || is_new[j]) || linalg::dot(&pairs[i].whole, &pairs[j].whole).abs() <= ORTHOGONAL;
    known.iter().enumerate().all(|(k, i)| known[..k].iter().all(|j| fits(*i, *j)))
}

impl QShedServer {
    /// At `theta_0`, without pairs.
    pub fn new(steps: NewtonSteps, weights: Vec<f64>, rule: QShedRule) -> Self {
        Self { steps, rule, held: HeldPairs::new(weights) }
    }

    /// Handles the answers that arrived.
    fn take(&mut self, t: u64, updates: &[ClientUpdate]) {
        let (d, rule) = (self.steps.theta.len(), &self.rule);
        self.held.take(updates, |c, held, update| {
            if let Ok(answer) = Answer::read(&update.parts, d, rule.max_bits) {
                held.take(c, t, &answer, d, rule);
            }
        });
    }
}

impl Server for QShedServer {
    fn open(&mut self, t: u64) -> Broadcast {
        Broadcast { to: None, down: self.steps.question(t), own: None }
    }

    fn receive(&mut self, got: &Received<'_>) -> Next {
        if got.exchange == 0 {
            self.take(got.round, got.updates);
            let d = self.steps.theta.len();
            let g = self.steps.see(got, Part::ExactGradient, d);
            let p = direction(self.hessian(), &g);
            return self.steps.along(got.round, p);
        }
        self.steps.after_losses(got)
    }

    /// Accepts a refinement with matching digits, and eigenvalues with a positive rho. Whether an answer continues the held bits is checked
    /// on receipt; otherwise only its gradient counts.
    fn accepts(&self, exchange: u8, parts: &[(Part, Body)]) -> Result<()> {
        // Numbers that are not finite end the run.
        if exchange != 0 || parts.iter().any(|(_, body)| body.not_finite().is_some()) {
            return Ok(());
        }
        let d = self.steps.theta.len();
        Answer::read(parts, d, self.rule.max_bits)?.check_content(d)
    }

    fn theta(&self) -> &[f64] {
        &self.steps.theta
    }

    /// `Hhat = sum_c p_c (sum_j (l_j - rho_c) v^_j v^_j^T + rho_c I)` (\[T\] eq. 3.22) with the decoded vectors, over the agents with held
    /// pairs, divided by their weight. `None` if there are none.
    fn hessian(&self) -> Option<Mat<f64>> {
        self.held.hessian(self.steps.theta.len())
    }

    /// An agent's index determines the grids of its codes, so the bits of an agent with a new index are dropped, and it restarts.
    fn regrouped(&self, from: &[Option<usize>], _: &[f64]) -> Option<Vec<u8>> {
        Some(Self { held: self.held.regrouped(from, |new, old| new == old), ..self.clone() }.state())
    }

    fn state(&self) -> Vec<u8> {
        packed(&(&self.steps, &self.held.of))
    }

    fn restore(&mut self, state: &[u8]) -> Result<()> {
        (self.steps, self.held.of) = unpacked(state)?;
        let (d, seed) = (self.steps.theta.len(), self.rule.seed);
        let held = self.held.of.iter_mut().enumerate().filter(|(_, held)| held.round.is_some());
        held.for_each(|(c, held)| held.sum_from(c, 0, d, seed));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use fedsa::random::{Purpose, stream};

    use super::*;
    use crate::local::refinement::BitWriter;

    const D: usize = 5;

    fn server(are_whole: bool) -> QShedServer {
        let steps = NewtonSteps { theta: vec![0.0; D], search: None, trigger: None };
        QShedServer::new(steps, vec![1.0], QShedRule { seed: 3, max_bits: 16, are_whole })
    }

    fn more(bits: u32) -> More {
        More { bits, across: Vec::new() }
    }

    /// An answer with these eigenvalues after round, index and rho, that adds bits to vectors from `start` on.
    fn answer(values: &[f64], base: &[u32], start: usize, bits: &[u32]) -> Vec<(Part, Body)> {
        let refinement = Refinement { base: checksum(base), start, more: bits.iter().map(|b| more(*b)).collect() };
        let mut digits = BitWriter::default();
        bits.iter().for_each(|b| (0..D).for_each(|i| digits.push((i as u32 * 7) & ((1 << b) - 1), *b)));
        vec![
            (Part::ExactGradient, Body::Numbers(vec![1.0; D])),
            (Part::Eigenvalues, Body::Numbers(values.to_vec())),
            (Part::Refinement, Body::Packed(refinement.pack())),
            (Part::Digits, Body::Packed(digits.finish())),
        ]
    }

    impl QShedServer {
        /// The bits per component held for the eigenvectors of agent c.
        fn bits(&self, c: usize) -> Vec<u32> {
            self.held.of[c].pairs.iter().map(|pair| pair.bits).collect()
        }

        /// Whether the bits of an answer of agent 0 are accepted.
        fn takes(&mut self, t: u64, parts: Vec<(Part, Body)>) -> bool {
            let (d, held) = (self.steps.theta.len(), &mut self.held.of[0]);
            Answer::read(&parts, d, self.rule.max_bits).is_ok_and(|answer| held.take(0, t, &answer, d, &self.rule).is_some())
        }
    }

    #[test]
    fn answers_that_do_not_add_to_what_is_held_are_not_taken() {
        let mut server = server(false);
        assert!(!server.takes(0, answer(&[1.0, 0.0, 1.0, 9.0], &[], 0, &[3])), "a later round");
        assert!(!server.takes(0, answer(&[0.0, 0.0, 1.0, 9.0], &[4], 0, &[3])), "bits that are not held");
        assert!(server.takes(0, answer(&[0.0, 0.0, 1.0, 9.0, 8.0], &[], 0, &[3, 2])));
        assert_eq!(server.bits(0), [3, 2]);
        let held = |server: &QShedServer| format!("{:?}", server.held.of);
        let before = held(&server);
        for (parts, why) in [
            (answer(&[0.0, 2.0, 1.0, 7.0], &[3, 1], 0, &[1, 0, 1]), "other bits"),
            (answer(&[0.0, 1.0, 1.0, 8.0], &[3], 0, &[1, 1]), "fewer vectors"),
            (answer(&[0.0, 2.0, 1.0, 8.5], &[3, 2], 2, &[1]), "a larger value"),
            (answer(&[0.0, 2.0, 8.5], &[3, 2], 0, &[1]), "a larger rho"),
            (answer(&[0.0, 2.0, 1.0], &[3, 2], 0, &[14]), "more bits than there are"),
            (answer(&[2.0, 2.0, 1.0], &[3, 2], 0, &[1]), "a later Hessian that goes on"),
        ] {
            assert!(!server.takes(2, parts), "{why}");
            assert_eq!(held(&server), before, "{why}");
        }
        assert!(server.takes(3, answer(&[0.0, 2.0, 0.5, 7.0], &[3, 2], 0, &[2, 0, 1])));
        assert_eq!(server.bits(0), [5, 2, 1]);
        // The same bits in another server, restored from the state.
        let mut other = super::tests::server(false);
        other.restore(&server.state()).unwrap();
        assert_eq!((other.state(), other.hessian()), (server.state(), server.hessian()));
        assert!(server.takes(5, answer(&[5.0, 0.0, 0.5], &[], 0, &[])), "a later Hessian without any vector");
        assert_eq!(server.bits(0), Vec::<u32>::new());
        assert!(server.takes(6, answer(&[0.0, 0.0, 1.0, 9.0], &[], 0, &[3])), "an agent that begins anew");
        assert_eq!(server.bits(0), [3]);
    }

    #[test]
    fn answers_of_other_forms_are_refused() {
        let server = server(false);
        let good = answer(&[0.0, 0.0, 1.0, 9.0, 8.0], &[], 0, &[3, 2]);
        assert!(server.accepts(0, &good).is_ok());
        for (part, bytes) in [
            (Part::Digits, vec![0; 3]),
            (Part::Digits, vec![0xff; 4]),
            (Part::Refinement, vec![]),
            (Part::Refinement, vec![0; 8]),
            (Part::Refinement, Refinement { base: 0, start: 1, more: vec![more(5)] }.pack().into_iter().chain([0]).collect()),
            (Part::Refinement, Refinement { base: 0, start: 2, more: vec![more(5)] }.pack()),
            (Part::Refinement, Refinement { base: 0, start: 0, more: vec![more(17), more(1)] }.pack()),
            (Part::Refinement, Refinement { base: 0, start: 0, more: vec![more(5), more(0)] }.pack()),
            (Part::Refinement, Refinement { base: 0, start: 0, more: vec![more(3), More { bits: 2, across: vec![5] }] }.pack()),
        ] {
            let mut bad = good.clone();
            bad.iter_mut().filter(|(p, _)| *p == part).for_each(|(_, body)| *body = Body::Packed(bytes.clone()));
            assert!(server.accepts(0, &bad).is_err(), "{part:?} {bytes:?}");
        }
        for values in [&[0.0, 0.0, 1.0][..], &[0.0, 0.0, 1.0, 8.0, 9.0], &[0.0, 0.0, 8.5, 9.0, 8.0], &[0.0, 0.0, 0.0, 9.0, 8.0]] {
            assert!(server.accepts(0, &answer(values, &[], 0, &[3, 2])).is_err(), "{values:?}");
        }
        assert!(server.accepts(0, &answer(&[0.0, 3.0, 1.0, 9.0, 8.0], &[], 3, &[3, 2])).is_err(), "five vectors");
        assert!(server.accepts(0, &answer(&[0.0, 0.0, 1.0, 1e151], &[], 0, &[3])).is_err());
    }

    /// Any bytes are rejected, or accepted with finite numbers as the result.
    #[test]
    fn any_bytes_are_refused_or_taken() {
        let mut draws = stream(1, Purpose::Fresh, 0, 0);
        let (mut server, mut taken) = (server(false), 0);
        for t in 0..20_000 {
            let base = server.bits(0);
            let first = base.len();
            let bits: Vec<u32> = (0..(draws.uniform() * 5.0) as usize).map(|_| (draws.uniform() * 5.0) as u32).collect();
            let values = vec![0.1; (draws.uniform() * 3.0) as usize];
            let mut parts = answer(&[&[0.0, first as f64, 0.1][..], &values].concat(), &base, first.min(2), &bits);
            for (_, body) in &mut parts[2..] {
                if let Body::Packed(bytes) = body
                    && draws.bits().is_multiple_of(4)
                    && bytes.len() > 4
                {
                    // Not in the checksum, or few would be accepted.
                    let at = 4 + (draws.uniform() * (bytes.len() - 4) as f64) as usize;
                    bytes[at] = draws.bits() as u8;
                }
            }
            if server.accepts(0, &parts).is_ok() && server.takes(t, parts.clone()) {
                taken += 1;
                let h = server.hessian().unwrap();
                assert!((0..D).all(|j| h.col_as_slice(j).iter().all(|x| x.is_finite() && x.abs() < 100.0)));
            }
            if t % 50 == 49 {
                server = super::tests::server(false);
            }
        }
        assert!(taken > 500, "{taken}");
    }

    #[test]
    fn whole_vectors_are_of_length_one_and_orthogonal() {
        let with = |bits: &[u32], base: &[u32], values: &[f64], vectors: &[f64]| {
            let mut parts = answer(values, base, 0, bits);
            parts[3] = (Part::Eigenvectors, Body::Numbers(vectors.to_vec()));
            parts
        };
        let mut server = server(true);
        let unit = |i: usize| (0..D).map(|j| f64::from(u8::from(i == j))).collect::<Vec<f64>>();
        let values = [0.0, 0.0, 1.0, 9.0, 8.0];
        let good = with(&[3, 2], &[], &values, &[unit(0), unit(1)].concat());
        assert!(server.accepts(0, &good).is_ok());
        assert!(server.accepts(0, &with(&[3, 2], &[], &values, &[unit(0), vec![0.5; D]].concat())).is_err());
        let twice = with(&[3, 2], &[], &values, &[unit(0), unit(0)].concat());
        assert!(server.accepts(0, &twice).is_ok() && !server.takes(0, twice));
        assert!(!server.takes(0, with(&[3, 2], &[], &values, &unit(0))), "a vector is missing");
        assert!(server.takes(0, good));
        assert!(!server.takes(1, with(&[0, 0, 1], &[3, 2], &[0.0, 2.0, 1.0, 7.0], &unit(1))), "a vector that is held");
        assert!(server.takes(1, with(&[1, 0, 1], &[3, 2], &[0.0, 2.0, 1.0, 7.0], &unit(2))));
        let h = server.hessian().unwrap();
        assert_eq!([h[(0, 0)], h[(1, 1)], h[(2, 2)], h[(3, 3)]], [9.0, 8.0, 7.0, 1.0]);
        let mut other = super::tests::server(true);
        other.restore(&server.state()).unwrap();
        assert_eq!((other.state(), other.hessian()), (server.state(), server.hessian()));
    }
}
