//! The eigenpairs of a Hessian at an agent of SHED, and the source of further ones.

use faer::Mat;
use fedsa::eigenpairs::restarted::Search;
use fedsa::eigenpairs::{Eigenpairs, smallest};
use fedsa::linalg::with_square;
use fedsa::local::LocalContext;
use fedsa::message::Body;
use fedsa::problem::objective::ActiveComponents;
use fedsa::random::{Key, Purpose};
use serde::{Deserialize, Serialize};

use crate::local::renewal::FLOOR;

/// rho, the value that replaces eigenvalues not yet sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Rho {
    /// `l_{q+1}`, the largest of these (\[T\] eq. 2.21).
    Next,
    /// `(l_{q+1} + l_d) / 2` (\[T\] eq. 2.8).
    Midpoint,
}

/// The most pairs computed from products at a time: the iteration keeps half as many vectors again.
pub const AT_ONCE: usize = 32;
/// The fewest pairs computed at a time after the first ones.
const AT_LEAST: usize = 8;

/// The saved eigenpairs of an agent.
#[derive(Serialize, Deserialize)]
pub(super) struct SavedPairs {
    values: Vec<f64>,
    /// One eigenvector after the other.
    vectors: Vec<f64>,
    least: f64,
}

impl SavedPairs {
    pub(super) fn is_finite(&self) -> bool {
        self.values.iter().chain(&self.vectors).all(|x| x.is_finite()) && !self.least.is_infinite()
    }
}

/// The saved pairs of a formed Hessian: the eigenvectors from index `first` on that are sent before the next renewal.
#[derive(Serialize, Deserialize)]
pub(super) struct SavedRest {
    first: usize,
    few: usize,
    pairs: SavedPairs,
}

/// Eigenpairs of one Hessian.
pub(super) struct HessianPairs {
    /// In the components of the support, if known.
    pub(super) pairs: Eigenpairs,
    pub(super) source: Source,
    /// `l_d`, if rho needs it.
    pub(super) least: f64,
    /// The number of pairs of a formed Hessian that are wanted until the next renewal.
    pub(super) few: usize,
}

/// The source of further pairs.
pub(super) enum Source {
    /// The Hessian; `None` once all pairs are computed.
    Formed(Option<Mat<f64>>),
    /// The Hessian, which is counted but was not formed for the few wanted pairs.
    NotFormed,
    /// Products with the Hessian, which differs from a multiple of the identity only in the components of the support.
    Products { support: Option<ActiveComponents>, tolerance: f64 },
    /// Saved pairs from products.
    Restored,
    /// Saved pairs of a formed Hessian: the first known eigenvector belongs to pair `first`.
    Rest { first: usize },
}

impl HessianPairs {
    /// The first `few` pairs of the Hessian at theta, which has been counted. `memory` is an old matrix for reuse, or has no rows.
    pub(super) fn of_hessian(at: &LocalContext<'_>, theta: &[f64], few: usize, rho: Rho, mut memory: Mat<f64>) -> Self {
        let d = theta.len();
        let pairs = if rho == Rho::Next { at.leading_pairs(theta, few) } else { None };
        if let Some(pairs) = pairs {
            return Self { pairs, source: Source::NotFormed, least: f64::NAN, few };
        }
        memory.resize_with(d, d, |_, _| 0.0);
        at.hessian_again(theta, &mut memory);
        Self::formed(memory, few, rho)
    }

    /// The first `few` pairs of a Hessian.
    pub(super) fn formed(hessian: Mat<f64>, few: usize, rho: Rho) -> Self {
        let pairs = Eigenpairs::leading(&hessian, few);
        let is_whole = pairs.values.len() == hessian.nrows();
        let least = match rho {
            Rho::Next => f64::NAN,
            Rho::Midpoint if is_whole => pairs.values[pairs.values.len() - 1],
            Rho::Midpoint => smallest(&hessian),
        };
        Self { pairs, source: Source::Formed((!is_whole).then_some(hessian)), least, few }
    }

    /// The first pairs of the Hessian at theta, from products with it. The iteration starts from the previous renewal's pairs.
    pub(super) fn of_products(
        at: &LocalContext<'_>,
        renewed: &(u64, Vec<f64>),
        before: Option<HessianPairs>,
        goal: usize,
        rho: Rho,
        tolerance: f64,
    ) -> Self {
        let support = at.active();
        let n = support.as_ref().map_or(renewed.1.len(), |support| support.components.len());
        let near = before.map(|kept| kept.pairs.vectors).filter(|near| near.nrows() == n).unwrap_or_else(|| Mat::zeros(n, 0));
        let support = support.as_ref();
        let least = match rho {
            Rho::Next => f64::NAN,
            Rho::Midpoint => {
                let outside = support.map_or(f64::INFINITY, |support| support.outside);
                let inside = if n > 0 { search(at, renewed, LEAST, support, tolerance, |search| search.smallest()) } else { outside };
                if inside < outside || inside.is_nan() { inside } else { outside }
            }
        };
        let pairs = search(at, renewed, 0, support, tolerance, |search| search.extend(Eigenpairs::none(n), goal, &near));
        Self { pairs, source: Source::Products { support: support.cloned(), tolerance }, least, few: goal }
    }

    /// Computes further pairs if fewer than `n` are known and there are more: all pairs of a formed Hessian; from products at least up to n
    /// and at most about `few`.
    pub(super) fn ensure(&mut self, at: &LocalContext<'_>, renewed: &(u64, Vec<f64>), n: usize, few: usize) {
        let known = self.pairs.values.len();
        if known >= n.min(self.pairs.vectors.nrows()) {
            return;
        }
        let pairs = std::mem::replace(&mut self.pairs, Eigenpairs::none(0));
        self.pairs = match &mut self.source {
            Source::Formed(hessian) => match hessian.take() {
                Some(hessian) => pairs.completed(&hessian),
                None => pairs,
            },
            Source::NotFormed => {
                self.source = Source::Formed(None);
                with_square(renewed.1.len(), |hessian| {
                    at.hessian_again(&renewed.1, hessian);
                    let known = pairs.vectors.ncols();
                    pairs.first(known).completed(hessian)
                })
            }
            Source::Products { support, tolerance } => {
                let goal = n.max(few.max(known + AT_LEAST).min(known + AT_ONCE));
                let near = Mat::zeros(pairs.vectors.nrows(), 0);
                search(at, renewed, known, support.as_ref(), *tolerance, |search| search.extend(pairs, goal - known, &near))
            }
            Source::Restored | Source::Rest { .. } => pairs,
        };
    }

    /// The eigenvalue of all components outside of the support, if known.
    pub(super) fn outside(&self) -> Option<f64> {
        match &self.source {
            Source::Products { support: Some(support), .. } => Some(support.outside),
            _ => None,
        }
    }

    /// Eigenvalue j, from 0, if the first j + 1 are known.
    pub(super) fn value(&self, j: usize) -> f64 {
        match (self.pairs.values.get(j), self.outside()) {
            (Some(inside), Some(outside)) if *inside < outside => outside,
            (Some(inside), _) => *inside,
            (None, outside) => outside.unwrap_or(f64::NAN),
        }
    }

    /// The smallest value used for an eigenvalue.
    pub(super) fn floor(&self) -> f64 {
        (FLOOR * self.value(0)).max(f64::MIN_POSITIVE)
    }

    /// The number of pairs worth sending after the first q, when at least `end` + 1 are known. It is up to `end`, counting pairs above the
    /// floor that exceed the eigenvalue outside of the support by more than their errors.
    pub(super) fn worth(&self, q: usize, end: usize) -> usize {
        let floor = match (&self.source, self.outside()) {
            (Source::Products { tolerance, .. }, Some(outside)) => self.floor().max(outside + tolerance * self.value(0)),
            _ => self.floor(),
        };
        let above = self.pairs.values.iter().take_while(|l| **l > floor).count();
        // NaN compares false and must be sent, because the run has diverged.
        let end = if self.value(0).is_nan() { end.min(self.pairs.values.len()) } else { end.min(above) };
        end.saturating_sub(q)
    }

    /// rho after q pairs, when one more is known.
    pub(super) fn rho(&self, q: usize, rule: Rho) -> f64 {
        let next = self.value(q);
        let rho = match rule {
            Rho::Next => next,
            Rho::Midpoint => 0.5 * (next + self.least.min(next)),
        };
        if rho.is_nan() { rho } else { rho.max(self.floor()) }
    }

    /// The index of the first pair with a known vector.
    pub(super) fn first(&self) -> usize {
        if let Source::Rest { first } = self.source { first } else { 0 }
    }

    /// Whether saved pairs do not suffice to send those from index `from` on, when n must be known.
    pub(super) fn lacks(&self, from: usize, n: usize) -> bool {
        matches!(self.source, Source::Rest { first } if from < first || self.pairs.values.len() < n.min(self.pairs.vectors.nrows()))
    }

    /// The eigenvectors `from..to` in d components, one after the other.
    pub(super) fn body(&self, from: usize, to: usize, d: usize) -> Body {
        let vectors = (from..to).map(|j| self.pairs.vector(j - self.first()));
        let Source::Products { support: Some(ActiveComponents { components, .. }), .. } = &self.source else {
            return Body::Numbers(vectors.flatten().copied().collect());
        };
        let place = |j: usize| move |(i, x): (&u32, &f64)| ((j * d) as u32 + i, *x);
        let some = vectors.enumerate().flat_map(|(j, v)| components.iter().zip(v).filter(|(_, x)| **x != 0.0).map(place(j)));
        let (index, value) = some.unzip();
        Body::shorter((to - from) * d, index, value)
    }

    /// The pairs of a formed Hessian to save if the server holds `held`; `None` if they are not finite.
    pub(super) fn rest(&self, held: usize) -> Option<SavedRest> {
        let known = self.few.min(self.pairs.values.len());
        let first = held.max(self.first()).min(known);
        // The last wanted pair gives rho only, by its value.
        let vectors = (first..known.saturating_sub(1)).flat_map(|j| self.pairs.vector(j - self.first())).copied().collect();
        let pairs = SavedPairs { values: self.pairs.values[..known].to_vec(), vectors, least: self.least };
        let is_finite = pairs.values.iter().chain(&pairs.vectors).all(|x| x.is_finite());
        is_finite.then_some(SavedRest { first, few: self.few, pairs })
    }

    /// The pairs of [`HessianPairs::rest`], for a Hessian with d rows; `None` if they are invalid.
    pub(super) fn of_rest(saved: SavedRest, d: usize) -> Option<Self> {
        let SavedRest { first, few, pairs: SavedPairs { values, vectors, least } } = saved;
        let (known, columns) = (values.len(), values.len().saturating_sub(first + 1));
        let is_finite = values.iter().chain(&vectors).all(|x| x.is_finite()) && !least.is_infinite();
        let fits = first <= known && known <= d && known <= few && vectors.len() == columns * d && values.is_sorted_by(|a, b| a >= b);
        let pairs = Eigenpairs { vectors: Mat::from_fn(d, columns, |i, j| vectors.get(j * d + i).copied().unwrap_or(f64::NAN)), values };
        (fits && is_finite).then_some(Self { pairs, source: Source::Rest { first }, least, few })
    }

    /// The pairs from products to save.
    pub(super) fn saved(&self) -> Option<SavedPairs> {
        let (Source::Products { .. } | Source::Restored) = self.source else { return None };
        let vectors = (0..self.pairs.values.len()).flat_map(|j| self.pairs.vector(j)).copied().collect();
        Some(SavedPairs { values: self.pairs.values.clone(), vectors, least: self.least })
    }

    /// The pairs of [`HessianPairs::saved`]; `None` if they are invalid.
    pub(super) fn restored(saved: SavedPairs) -> Option<Self> {
        let is_finite = saved.is_finite();
        let SavedPairs { values, vectors, least } = saved;
        let (q, n) = (values.len(), vectors.len().checked_div(values.len()).unwrap_or(0));
        let fits = n * q == vectors.len() && q <= n && values.is_sorted_by(|a, b| a >= b);
        let pairs = Eigenpairs { values, vectors: Mat::from_fn(n, q, |i, j| vectors[j * n + i]) };
        (fits && is_finite).then_some(Self { pairs, source: Source::Restored, least, few: q })
    }
}

/// Replaces the number of pairs in the key of a stream, in a search for the least eigenvalue.
const LEAST: usize = (1 << 20) - 1;

/// Calls `see` with a search for eigenpairs of the agent's Hessian at its last renewal, in the components of its support. The renewal's
/// round and the number of known pairs determine the streams.
fn search<R>(
    at: &LocalContext<'_>,
    renewed: &(u64, Vec<f64>),
    known: usize,
    support: Option<&ActiveComponents>,
    tolerance: f64,
    see: impl FnOnce(Search<'_>) -> R,
) -> R {
    let (round, theta) = renewed;
    let draws = Key::new(at.seed(), Purpose::Lanczos, (round << 20) + known as u64).stream(at.agent);
    match support {
        None => see(Search::new(theta.len(), &mut at.hessian_products(theta), tolerance, draws)),
        Some(ActiveComponents { components, .. }) => {
            see(Search::new(components.len(), &mut at.products_within(theta, components), tolerance, draws))
        }
    }
}

#[cfg(test)]
mod tests {
    use fedsa::local::AgentFacts;
    use fedsa::problem::systems::{System, Systems};
    use fedsa::problem::{Facts, Objective};
    use fedsa::random::stream;

    use super::*;

    struct Quadratic(Systems);

    impl Facts for Quadratic {
        fn objective(&self) -> Option<&dyn Objective> {
            Some(&self.0)
        }
    }

    /// Few pairs come without a matrix, and further ones follow them; the Hessian is not counted here.
    #[test]
    fn a_hessian_is_formed_only_where_more_pairs_are_wanted() {
        let (d, mut draws) = (280, stream(5, Purpose::System, 0, 0));
        let g = Mat::from_fn(d, d, |i, j| (if i == j { 6.0 / (1.0 + i as f64) } else { 0.0 }) + 0.002 * draws.normal());
        let a = &g * g.transpose();
        let whole = Eigenpairs::leading(&a, d);
        let known = Quadratic(Systems::new(vec![System { a, b: vec![0.0; d] }], vec![0], vec![1.0]));
        let at = LocalContext::new(AgentFacts::of(&known), 0, 0, 1, 7, 0, None);
        let renewed = (7, vec![0.3; d]);
        let near = |x: f64, y: f64| (x - y).abs() < 1e-11 * whole.values[0];
        let mut kept = HessianPairs::of_hessian(&at, &renewed.1, 2, Rho::Next, Mat::new());
        assert!(matches!(kept.source, Source::NotFormed) && near(kept.value(0), whole.values[0]) && near(kept.value(1), whole.values[1]));
        assert_eq!((kept.worth(0, 1), kept.rho(1, Rho::Next)), (1, kept.value(1)));
        let first = kept.body(0, 1, d);
        assert!(first.numbers().unwrap().iter().zip(whole.vector(0)).all(|(x, y)| (x - y).abs() < 1e-11));
        // Saved pairs serve as well.
        let again = HessianPairs::of_rest(kept.rest(0).unwrap(), d).unwrap();
        assert_eq!((again.body(0, 1, d), again.rho(1, Rho::Next)), (first.clone(), kept.value(1)));
        kept.ensure(&at, &renewed, 6, 6);
        assert!(matches!(kept.source, Source::Formed(None)) && kept.body(0, 1, d) == first);
        assert!((0..d).all(|j| near(kept.value(j), whole.values[j])));
        // For a rho other than the next eigenvalue, and for more pairs, the Hessian is formed at once.
        let formed = |few, rho| matches!(HessianPairs::of_hessian(&at, &renewed.1, few, rho, Mat::new()).source, Source::Formed(_));
        assert!(formed(2, Rho::Midpoint) && formed(5, Rho::Next));
        assert_eq!(at.calls(), Default::default());
    }

    /// All pairs that the schedule can ask for, up to d - 1, are worth sending, except those below the floor.
    #[test]
    fn pairs_below_the_floor_are_not_worth_sending() {
        let kept = HessianPairs::formed(Mat::<f64>::identity(4, 4), 1, Rho::Next);
        assert_eq!((kept.worth(0, 3), kept.worth(1, 3), kept.worth(2, 3), kept.worth(3, 3)), (3, 2, 1, 0));
        let flat = HessianPairs::formed(Mat::<f64>::identity(4, 4) * faer::Scale(-1.0), 1, Rho::Next);
        assert_eq!((flat.worth(0, 3), flat.rho(0, Rho::Next)), (0, f64::MIN_POSITIVE));
    }

    fn with_support(values: &[f64], outside: f64) -> HessianPairs {
        let n = values.len();
        let support = Some(ActiveComponents { components: (0..n as u32).map(|i| 2 * i + 1).collect(), outside });
        let pairs = Eigenpairs { values: values.to_vec(), vectors: Mat::identity(n, n) };
        HessianPairs { pairs, source: Source::Products { support, tolerance: 1e-8 }, least: outside, few: n }
    }

    /// Outside of the support all eigenvalues are equal. They come before smaller ones inside, and none of them is sent.
    #[test]
    fn eigenvalues_outside_of_the_support_count() {
        let kept = with_support(&[3.0, 2.0, 0.5, 0.1], 0.4);
        assert_eq!((0..6).map(|j| kept.value(j)).collect::<Vec<_>>(), [3.0, 2.0, 0.5, 0.4, 0.4, 0.4]);
        assert_eq!((kept.worth(0, 2), kept.worth(1, 9), kept.worth(3, 9)), (2, 2, 0));
        assert_eq!((kept.rho(2, Rho::Next), kept.rho(3, Rho::Next), kept.rho(2, Rho::Midpoint)), (0.5, 0.4, 0.45));
        let expected = Body::Sparse { len: 20, index: vec![3, 15], value: vec![1.0, 1.0] };
        assert_eq!(kept.body(1, 3, 10), expected);
        assert_eq!(kept.body(0, 1, 2), Body::Numbers(vec![0.0, 1.0]));
        let none = with_support(&[], 0.2);
        assert_eq!((none.worth(0, 3), none.rho(0, Rho::Next)), (0, 0.2));
    }

    #[test]
    fn saved_pairs_are_restored_and_others_refused() {
        let kept = with_support(&[3.0, 2.0, 0.5], 0.4);
        let again = HessianPairs::restored(kept.saved().unwrap()).unwrap();
        assert!(again.pairs == kept.pairs && again.least == kept.least && matches!(again.source, Source::Restored));
        for change in [0, 1, 2, 3] {
            let mut saved = kept.saved().unwrap();
            match change {
                0 => saved.values[0] = 1.0,
                1 => saved.vectors.truncate(8),
                2 => saved.vectors[2] = f64::NAN,
                _ => saved.vectors.truncate(6),
            }
            assert!(HessianPairs::restored(saved).is_none(), "{change}");
        }
        assert!(HessianPairs::formed(Mat::identity(2, 2), 2, Rho::Next).saved().is_none());
    }

    /// For a formed Hessian, the pairs are saved that the server may lack and that are sent before the next renewal.
    #[test]
    fn the_rest_of_the_pairs_is_saved() {
        let hessian = Mat::from_fn(5, 5, |i, j| if i == j { 5.0 - i as f64 } else { 0.1 });
        let kept = HessianPairs::formed(hessian, 4, Rho::Midpoint);
        let again = |held: usize| HessianPairs::of_rest(kept.rest(held).unwrap(), 5).unwrap();
        let rest = again(1);
        assert_eq!((rest.first(), rest.pairs.values.len(), rest.pairs.vectors.ncols()), (1, 4, 2));
        assert_eq!((rest.body(1, 3, 5), rest.rho(3, Rho::Midpoint), rest.worth(1, 3)), (kept.body(1, 3, 5), kept.rho(3, Rho::Midpoint), 2));
        assert!(!rest.lacks(1, 4) && rest.lacks(0, 2) && rest.lacks(1, 5) && !kept.lacks(0, 5));
        // Saving again gives the same, and so does saving a later state.
        let bytes = |kept: &HessianPairs, held: usize| postcard::to_stdvec(&kept.rest(held).unwrap()).unwrap();
        assert_eq!((bytes(&rest, 1), bytes(&rest, 2), bytes(&again(4), 4)), (bytes(&kept, 1), bytes(&kept, 2), bytes(&kept, 4)));
        for change in 0..4 {
            let mut saved = kept.rest(1).unwrap();
            match change {
                0 => saved.first = 0,
                1 => saved.few = 3,
                2 => saved.pairs.values[3] = 9.0,
                _ => saved.pairs.vectors[0] = f64::INFINITY,
            }
            assert!(HessianPairs::of_rest(saved, 5).is_none(), "{change}");
        }
        assert!(HessianPairs::formed(Mat::full(2, 2, f64::NAN), 2, Rho::Next).rest(0).is_none());
    }
}
