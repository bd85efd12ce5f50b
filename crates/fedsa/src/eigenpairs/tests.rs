use super::restarted::Search;
use super::*;
use crate::random::{Purpose, Stream, stream};

/// `Q diag(values) Q^T` with a random orthogonal Q.
fn with_spectrum(values: &[f64], draws: &mut Stream) -> Mat<f64> {
    let n = values.len();
    let g = Mat::from_fn(n, n, |_, _| draws.normal());
    let q = g.qr().compute_thin_Q();
    let scaled = Mat::from_fn(n, n, |i, j| q[(i, j)] * values[j]);
    let h = scaled * q.transpose();
    (&h + h.transpose()) * faer::Scale(0.5)
}

/// Checks pairs against the matrix and its known eigenvalues, both to a share `tolerance` of the largest.
fn check(h: &Mat<f64>, pairs: &Eigenpairs, values: &[f64], tolerance: f64) {
    let (n, m) = (h.nrows(), pairs.values.len());
    let scale = values[0].abs();
    for (got, expected) in pairs.values.iter().zip(values) {
        assert!((got - expected).abs() < tolerance * scale, "{got} {expected}");
    }
    let residual = h * &pairs.vectors - Mat::from_fn(n, m, |i, j| pairs.values[j] * pairs.vectors[(i, j)]);
    assert!(residual.norm_l2() < tolerance * scale * (m as f64).sqrt(), "{:e}", residual.norm_l2());
    let gram = pairs.vectors.transpose() * &pairs.vectors - Mat::<f64>::identity(m, m);
    assert!(gram.norm_l2() < 1e-11, "{:e}", gram.norm_l2());
    for j in 0..m {
        let largest = pairs.vector(j).iter().copied().fold(0.0f64, |most, x| if x.abs() > most.abs() { x } else { most });
        assert!(largest > 0.0);
    }
}

#[test]
fn leading_pairs_are_those_of_the_matrix() {
    let mut draws = stream(3, Purpose::Pairs, 1, 0);
    let n = 120;
    let decaying: Vec<f64> = (0..n).map(|j| 0.8f64.powi(j as i32).max(1e-6)).collect();
    let flat: Vec<f64> = (0..n).map(|j| 2.0 - j as f64 / n as f64).collect();
    // Twenty vectors of the largest eigenvalue: more than a block finds.
    let many: Vec<f64> = (0..n).map(|j| if j < 20 { 3.0 } else { 1.0 / j as f64 }).collect();
    // The tenth and eleventh are one eigenvalue.
    let cut: Vec<f64> = (0..n).map(|j| if (9..13).contains(&j) { 0.3 } else { 0.9f64.powi(j as i32) }).collect();
    let mut cut = cut;
    cut.sort_by(|a, b| b.total_cmp(a));
    let indefinite: Vec<f64> = (0..n).map(|j| 1.0 - 2.0 * j as f64 / n as f64).collect();
    for values in [decaying, flat, many, cut, indefinite] {
        let h = with_spectrum(&values, &mut draws);
        for m in [1, 10, 15, 60, n] {
            let leading = || by_iteration(&h, m).unwrap_or_else(|| all(&h).first(m));
            let pairs = leading();
            assert_eq!(pairs.values.len(), m);
            assert!(Eigenpairs::leading(&h, m).values.len() >= m);
            check(&h, &pairs, &values, 1e-11);
            let first = pairs.clone();
            assert_eq!(leading(), first);
            let completed = pairs.completed(&h);
            check(&h, &completed, &values, 1e-11);
            assert!(completed.values.is_sorted_by(|a, b| a >= b));
            assert_eq!(completed.values[..m], first.values[..]);
            assert_eq!(completed.vectors.subcols(0, m), first.vectors);
            // Bit for bit the same when computed again.
            assert_eq!(first.completed(&h), completed);
        }
        let least = smallest(&h);
        assert!((least - values[n - 1]).abs() < 1e-11, "{least} {}", values[n - 1]);
    }
}

/// The values decrease even if rounding errors make the second half of a multiple eigenvalue larger.
#[test]
fn completed_values_decrease_across_a_multiple_eigenvalue() {
    let mut draws = stream(6, Purpose::Pairs, 1, 0);
    for _ in 0..20 {
        let distinct = |j: i32| 0.95f64.powi(j) * if j < 4 { 1.0 } else { 0.5 };
        let values: Vec<f64> = (0..40).map(|j| if (4..12).contains(&j) { 0.7 } else { distinct(j) }).collect();
        let h = with_spectrum(&values, &mut draws);
        for m in 4..12 {
            let completed = all(&h).first(m).completed(&h);
            assert!(completed.values.is_sorted_by(|a, b| a >= b), "{:?}", completed.values);
            check(&h, &completed, &values, 1e-11);
        }
    }
    // A value that is too large by more than rounding shows that the order is enforced.
    let h = Mat::<f64>::identity(3, 3);
    let low = Eigenpairs { values: vec![1.0 - 1e-12], vectors: Mat::from_fn(3, 1, |i, _| if i == 0 { 1.0 } else { 0.0 }) };
    assert_eq!(low.completed(&h).values, vec![1.0 - 1e-12; 3]);
}

#[test]
fn the_iteration_finds_what_it_is_used_for() {
    let mut draws = stream(4, Purpose::Pairs, 1, 0);
    let n = 300;
    let decaying: Vec<f64> = (0..n).map(|j| 1.0 / (1.0 + j as f64).powi(2)).collect();
    let h = with_spectrum(&decaying, &mut draws);
    assert!(by_iteration(&h, 5).is_some());
    // A largest eigenvalue with more vectors than the block has columns is noticed.
    let many: Vec<f64> = (0..n).map(|j| if j < 30 { 3.0 } else { 1.0 / j as f64 }).collect();
    let h = with_spectrum(&many, &mut draws);
    if let Some(pairs) = by_iteration(&h, 10) {
        assert!(pairs.values.iter().all(|l| (l - 3.0).abs() < 1e-11));
    }
}

#[test]
fn special_matrices_are_decomposed() {
    for n in [1, 2, 7, 260] {
        let zero = Mat::<f64>::zeros(n, n);
        assert_eq!(Eigenpairs::leading(&zero, n).values, vec![0.0; n]);
        assert_eq!(smallest(&zero), 0.0);
        let identity = Mat::<f64>::identity(n, n);
        check(&identity, &Eigenpairs::leading(&identity, 3), &vec![1.0; n], 1e-12);
        assert!((smallest(&identity) - 1.0).abs() < 1e-12);
        let mut bad = identity.clone();
        bad[(0, 0)] = f64::NAN;
        assert!(Eigenpairs::leading(&bad, 1).values.iter().all(|x| x.is_nan()) && smallest(&bad).is_nan());
        assert!(Eigenpairs::leading(&bad, 1).completed(&bad).values.iter().all(|x| x.is_nan()));
    }
}

/// The products of a matrix with vectors stored one after the other.
fn multiply(h: &Mat<f64>, x: &[f64], out: &mut [f64]) {
    for (x, out) in x.chunks(h.nrows()).zip(out.chunks_mut(h.nrows())) {
        let image = h * Mat::from_fn(x.len(), 1, |i, _| x[i]);
        out.copy_from_slice(image.col_as_slice(0));
    }
}

/// A search that counts its products.
fn by_products(h: &Mat<f64>, known: Eigenpairs, more: usize, near: &Mat<f64>, tolerance: f64, seed: u64) -> (Eigenpairs, usize) {
    let mut count = 0;
    let mut product = |x: &[f64], out: &mut [f64]| {
        count += x.len() / h.nrows();
        multiply(h, x, out);
    };
    let search = Search::new(h.nrows(), &mut product, tolerance, stream(seed, Purpose::Lanczos, 0, 0));
    let found = search.extend(known, more, near);
    (found, count)
}

fn nowhere(n: usize) -> Mat<f64> {
    Mat::zeros(n, 0)
}

/// Gaps, clusters, one eigenvalue with more vectors than a block has columns, a rank below the number of pairs, and indefinite matrices.
#[test]
fn pairs_from_products_are_those_of_the_matrix() {
    let mut draws = stream(7, Purpose::Pairs, 1, 0);
    let n = 150;
    let decaying: Vec<f64> = (0..n).map(|j| 0.8f64.powi(j as i32).max(1e-6)).collect();
    let many: Vec<f64> = (0..n).map(|j| if j < 15 { 3.0 } else { 1.0 / j as f64 }).collect();
    let clusters: Vec<f64> = (0..n).map(|j| 0.7f64.powi(j as i32 / 5) * (1.0 - 1e-6 * (j % 5) as f64)).collect();
    let low_rank: Vec<f64> = (0..n).map(|j| if j < 7 { 2.0 - 0.2 * j as f64 } else { 0.1 }).collect();
    let indefinite: Vec<f64> = (0..n).map(|j| 1.0 - 2.0 * (j as f64 / n as f64).sqrt()).collect();
    for (kind, values) in [decaying, many, clusters, low_rank, indefinite].into_iter().enumerate() {
        let h = with_spectrum(&values, &mut draws);
        let whole = all(&h);
        for (m, tolerance) in [(1, 1e-10), (10, 1e-10), (18, 1e-6), (60, 1e-10), (n, 1e-10)] {
            let (pairs, count) = by_products(&h, Eigenpairs::none(n), m, &nowhere(n), tolerance, 1);
            assert_eq!(pairs.values.len(), m);
            check(&h, &pairs, &values, 2.0 * tolerance);
            assert!(pairs.values.is_sorted_by(|a, b| a >= b));
            assert!(count <= 50 * (m + 4) + 8, "{kind}, m = {m}: {count} products");
            // If a gap follows, the vectors have the span of the full decomposition's vectors.
            if m < n && values[m - 1] - values[m] > 1e-3 {
                let basis = whole.vectors.subcols(0, m);
                let off = (&pairs.vectors - basis * (basis.transpose() * &pairs.vectors)).norm_l2();
                assert!(
                    off < 10.0 * tolerance * values[0] / (values[m - 1] - values[m]) * (m as f64).sqrt() + 1e-12,
                    "{kind} {m}: {off:e}"
                );
            }
            assert_eq!(by_products(&h, Eigenpairs::none(n), m, &nowhere(n), tolerance, 1).0, pairs, "the same bits again");
        }
        let mut product = |x: &[f64], out: &mut [f64]| multiply(&h, x, out);
        let search = Search::new(n, &mut product, 1e-8, stream(2, Purpose::Lanczos, 0, 0));
        let least = search.smallest();
        // The smallest of decaying values (kinds 0 and 2) is badly separated: the found value lies above it.
        let off = if kind == 0 || kind == 2 { 1e-4 } else { 1e-8 };
        assert!(least > values[n - 1] - 1e-8 && least < values[n - 1] + off * values[0], "{kind}: {least:e} {:e}", values[n - 1]);
    }
}

/// Up to as many pairs as a block has columns, even of one eigenvalue; the last one has no vector.
#[test]
fn few_pairs_of_products_are_those_of_the_matrix() {
    let mut draws = stream(9, Purpose::Pairs, 1, 0);
    let n = 300;
    let decaying: Vec<f64> = (0..n).map(|j| 1.0 / (1.0 + j as f64).powi(2)).collect();
    let many: Vec<f64> = (0..n).map(|j| if j < 4 { 2.0 } else { 1.0 / j as f64 }).collect();
    let pairs_of_two: Vec<f64> = (0..n).map(|j| 0.6f64.powi(j as i32 / 2)).collect();
    let low_rank: Vec<f64> = (0..n).map(|j| if j < 3 { 1.0 - 0.1 * j as f64 } else { 0.0 }).collect();
    for values in [decaying, many, pairs_of_two, low_rank] {
        let h = with_spectrum(&values, &mut draws);
        for m in 1..=4 {
            let mut product = |x: &[f64], out: &mut [f64]| multiply(&h, x, out);
            let found = Eigenpairs::of_products(n, m, &mut product).unwrap();
            assert_eq!((found.values.len(), found.vectors.ncols()), (m, m - 1));
            assert!((found.values[m - 1] - values[m - 1]).abs() < 1e-13 * values[0], "{} {}", found.values[m - 1], values[m - 1]);
            assert!(found.values.is_sorted_by(|a, b| a >= b));
            let known = found.clone().first(m - 1);
            if m > 1 {
                check(&h, &known, &values, 1e-12);
            }
            // The matrix gives the other pairs.
            check(&h, &known.completed(&h), &values, 1e-11);
            assert_eq!(Eigenpairs::of_products(n, m, &mut product), Some(found), "the same bits again");
        }
        let mut product = |x: &[f64], out: &mut [f64]| multiply(&h, x, out);
        assert_eq!((Eigenpairs::of_products(n, 5, &mut product), Eigenpairs::of_products(n, 0, &mut product)), (None, None));
    }
    let mut none = |_: &[f64], out: &mut [f64]| out.fill(f64::NAN);
    assert_eq!(Eigenpairs::of_products(n, 2, &mut none), None);
}

/// Known pairs keep their bits, and the next ones follow, also if a multiple eigenvalue is on both sides.
#[test]
fn known_pairs_stay_as_they_are() {
    let mut draws = stream(8, Purpose::Pairs, 1, 0);
    let n = 90;
    let values: Vec<f64> =
        (0..n).map(|j| if (6..14).contains(&j) { 0.5 } else { 0.9f64.powi(j as i32) * if j < 6 { 1.0 } else { 0.5 } }).collect();
    let h = with_spectrum(&values, &mut draws);
    for first in [1, 6, 9, 14, 40] {
        let (known, _) = by_products(&h, Eigenpairs::none(n), first, &nowhere(n), 1e-9, 3);
        let (pairs, _) = by_products(&h, known.clone(), 12, &nowhere(n), 1e-9, 4);
        assert_eq!((&pairs.values[..first], pairs.vectors.subcols(0, first)), (&known.values[..], known.vectors.as_ref()));
        check(&h, &pairs, &values, 1e-8);
        assert!(pairs.values.is_sorted_by(|a, b| a >= b));
        let (whole, _) = by_products(&h, known, n, &nowhere(n), 1e-9, 5);
        assert_eq!(whole.values.len(), n);
        check(&h, &whole, &values, 1e-8);
    }
}

/// A start near the vectors takes fewer products, and does not hide an eigenvector that is orthogonal to it.
#[test]
fn a_warm_start_saves_products_and_misses_nothing() {
    let mut draws = stream(9, Purpose::Pairs, 1, 0);
    let n = 400;
    let values: Vec<f64> = (0..n).map(|j| 1.0 / (1.0 + j as f64).powf(1.2)).collect();
    let h = with_spectrum(&values, &mut draws);
    let (old, cold) = by_products(&h, Eigenpairs::none(n), 12, &nowhere(n), 1e-8, 1);
    let noise = Mat::from_fn(n, n, |_, _| 1e-9 * draws.normal());
    let next = &h + &noise + noise.transpose();
    let (pairs, warm) = by_products(&next, Eigenpairs::none(n), 12, &old.vectors, 1e-8, 2);
    check(&next, &pairs, &all(&next).values, 2e-8);
    assert!(2 * warm < cold, "{warm} of {cold} products");
    // The same operator again: only the start, and the blocks that search for missed pairs.
    let (again, few) = by_products(&h, Eigenpairs::none(n), 12, &old.vectors, 1e-8, 3);
    check(&h, &again, &values, 2e-8);
    assert_eq!(few, 12 + 3 * 4);
    // A new largest eigenvalue in the complement of all old vectors.
    let tail = all(&h).vectors.subcols(60, 1).to_owned();
    let changed = &h + &tail * tail.transpose() * faer::Scale(2.0);
    let (pairs, _) = by_products(&changed, Eigenpairs::none(n), 12, &old.vectors, 1e-8, 4);
    assert!((pairs.values[0] - (2.0 + values[60])).abs() < 1e-8, "{}", pairs.values[0]);
}

#[test]
fn small_and_special_operators_have_pairs() {
    for n in [1, 2, 3, 7, 30] {
        let identity = Mat::<f64>::identity(n, n);
        let (pairs, _) = by_products(&identity, Eigenpairs::none(n), 3, &nowhere(n), 1e-8, 1);
        check(&identity, &pairs, &vec![1.0; n], 1e-12);
        assert_eq!(pairs.values.len(), n.min(3));
        let (none, count) = by_products(&identity, pairs.clone(), 0, &nowhere(n), 1e-8, 1);
        assert_eq!((none, count), (pairs, 0));
        let (zero, _) = by_products(&Mat::zeros(n, n), Eigenpairs::none(n), n, &nowhere(n), 1e-8, 1);
        assert_eq!(zero.values, vec![0.0; n]);
        let mut bad = identity.clone();
        bad[(0, 0)] = f64::NAN;
        let (bad, _) = by_products(&bad, Eigenpairs::none(n), 2, &nowhere(n), 1e-8, 1);
        assert!(bad.values.iter().all(|l| l.is_nan()) && bad.values.len() == n.min(2));
    }
}
