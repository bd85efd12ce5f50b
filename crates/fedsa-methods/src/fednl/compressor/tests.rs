use fedsa::linalg::triangle_norm;
use fedsa::random::{Purpose, stream};

use super::entries::top_k;
use super::*;

const D: usize = 9;
const N: usize = D * (D + 1) / 2;

fn draws(round: u64) -> Stream {
    stream(3, Purpose::Compressor, round, 0)
}

fn matrix(seed: u64) -> Vec<f64> {
    let mut draw = stream(seed, Purpose::System, 0, 0);
    (0..N).map(|_| draw.normal()).collect()
}

/// The body sent for a matrix.
fn sent(compressor: &dyn Compressor, m: &[f64], round: u64) -> Body {
    compressor.compress(&Support::all(D), &mut m.to_vec(), 1.0, draws(round)).sent
}

/// The matrix that the other end decodes.
fn decoded(compressor: &dyn Compressor, m: &[f64], round: u64) -> Vec<f64> {
    let body = sent(compressor, m, round);
    let (part, len) = compressor.part(D);
    assert!(compressor.accepts(D, &body) && body.len() <= len.largest(), "{part:?}");
    let mut out = vec![0.0; N];
    assert_eq!(compressor.change(D, &body, draws(round)).add(1.0, &Support::all(D), &mut out), Some(true));
    out
}

/// Against a sort: the k largest, ties by index; for every k.
#[test]
fn top_k_is_what_a_sort_gives() {
    let mut with_ties = matrix(1);
    // Ties, of both signs.
    (with_ties[3], with_ties[17], with_ties[30], with_ties[44]) = (0.7, -0.7, 0.7, -0.7);
    // Zeros, numbers with the same leading bits, and the least and the largest ones.
    let alike: Vec<f64> = matrix(2).iter().map(|x| if *x < -0.5 { -0.0 } else { 1.0 + x * f64::EPSILON }).collect();
    let mut extreme = matrix(3);
    (extreme[1], extreme[2], extreme[5], extreme[9]) = (f64::MAX, -5e-324, 1e-310, f64::NEG_INFINITY);
    for m in [with_ties, alike, extreme, vec![0.0; N], vec![-2.0; N]] {
        for k in 0..=N + 1 {
            let mut order: Vec<usize> = (0..N).collect();
            order.sort_by(|i, j| m[*j].abs().total_cmp(&m[*i].abs()).then(i.cmp(j)));
            order.truncate(k);
            order.retain(|i| m[*i] != 0.0);
            order.sort_unstable();
            let (position, value) = top_k(&m, k);
            assert_eq!(position, order.iter().map(|i| *i as u32).collect::<Vec<_>>(), "k = {k}");
            assert_eq!(value, order.iter().map(|i| m[*i]).collect::<Vec<_>>(), "k = {k}");
        }
    }
    // NaN comes first and is sent: the run has diverged.
    let (position, value) = top_k(&[1.0, f64::INFINITY, f64::NAN, -3.0], 2);
    assert!(position == [1, 2] && value[0] == f64::INFINITY && value[1].is_nan());
}

/// On a support every compressor sends the same as for the matrix with all entries, possibly in another form. Agent and server then add the
/// same, also if the server's support must grow, and the remainder is the matrix without it.
#[test]
fn matrices_on_a_support_are_compressed_as_whole_ones() {
    let all = Support::all(D);
    for (seed, share) in [(1, 0.2), (2, 0.6), (3, 1.0)] {
        let mut draw = stream(seed, Purpose::Fresh, 0, 0);
        let place: Vec<u32> = (0..N as u32).filter(|_| draw.uniform() < share).collect();
        let support = Support::of(D, place).unwrap();
        let m: Vec<f64> = (0..support.len()).map(|_| draw.normal()).collect();
        let learned: Vec<f64> = (0..support.len()).map(|_| draw.normal()).collect();
        let full = support.widened(&m, &all);
        let keep_zeros: [&dyn Compressor; 6] = [&TopEntries(7), &TopLek(7), &RandEntries(12), &RandSequence(12), &Natural, &Full];
        for compressor in keep_zeros {
            let (mut left, rate) = (m.clone(), 0.75);
            let Compressed { sent, kept } = compressor.compress(&support, &mut left, rate, draws(seed));
            assert!(compressor.accepts(D, &sent) && compressor.is_sound(D, &sent), "{compressor:?}");
            let change = compressor.change(D, &sent, draws(seed));
            let expected = decoded(compressor, &full, seed);
            let mut own = learned.clone();
            compressor.make(&support, &kept, rate, draws(seed), &mut own).unwrap();
            let mut sum = support.widened(&learned, &all);
            sum.iter_mut().zip(&expected).for_each(|(sum, c)| *sum += rate * c);
            assert_eq!(support.widened(&own, &all), sum, "{compressor:?}");
            let rest: Vec<f64> = full.iter().zip(&expected).map(|(m, c)| m - rate * c).collect();
            assert_eq!(support.widened(&left, &all), rest, "{compressor:?}");
            // The server, with the same support, another one, and all entries by rows.
            let mut copy = learned.clone();
            assert_eq!(change.add(rate, &support, &mut copy), Some(true));
            assert_eq!(copy, own, "{compressor:?}");
            let narrow = Support::diagonal(D);
            let mut wide = narrow.multiple_of_identity(1.0);
            let grown = match change.add(rate, &narrow, &mut wide) {
                Some(_) => narrow,
                None => {
                    assert_eq!(wide, narrow.multiple_of_identity(1.0));
                    let grown = change.widen(&narrow);
                    wide = narrow.widened(&wide, &grown);
                    assert_eq!(change.add(rate, &grown, &mut wide), Some(true));
                    grown
                }
            };
            let mut sum = all.multiple_of_identity(1.0);
            sum.iter_mut().zip(&expected).for_each(|(sum, c)| *sum += rate * c);
            assert_eq!(grown.widened(&wide, &all), sum, "{compressor:?}");
            let mut rows = all.multiple_of_identity(1.0);
            let (first, second) = rows.split_at_mut(entries(4));
            change.add_rows(rate, &(0..4), first);
            change.add_rows(rate, &(4..D), second);
            assert_eq!(rows, sum, "{compressor:?}");
        }
    }
}

/// A pair changes all entries: the support becomes that of all.
#[test]
fn pairs_are_added_to_all_entries() {
    let of_pairs: [&dyn Compressor; 2] = [&RankOne, &PackedPair(7)];
    for compressor in of_pairs {
        let body = sent(compressor, &matrix(5), 0);
        let change = compressor.change(D, &body, draws(0));
        let diagonal = Support::diagonal(D);
        assert_eq!(change.add(1.0, &diagonal, &mut diagonal.multiple_of_identity(0.0)), None);
        assert_eq!(change.widen(&diagonal), Support::all(D));
        let (mut whole, mut rows) = (vec![0.5; N], vec![0.5; N]);
        assert_eq!(change.add(2.0, &Support::all(D), &mut whole), Some(true));
        let (first, second) = rows.split_at_mut(entries(5));
        change.add_rows(2.0, &(0..5), first);
        change.add_rows(2.0, &(5..D), second);
        assert_eq!(whole, rows);
        assert_eq!(change.add(f64::MAX, &Support::all(D), &mut whole), Some(false));
    }
}

/// The agent's own change equals the server's decoded one, bit for bit, and the remainder is the matrix without it.
#[test]
fn both_ends_make_the_same_change_of_a_packed_pair() {
    let all = Support::all(D);
    for bits in [1, 4, 16, 32] {
        let (compressor, m) = (&PackedPair(bits), matrix(8));
        let (mut left, mut own, mut copy) = (m.clone(), matrix(9), matrix(9));
        let Compressed { sent, kept } = compressor.compress(&all, &mut left, 0.5, draws(2));
        compressor.make(&all, &kept, 0.5, draws(2), &mut own).unwrap();
        assert_eq!(compressor.change(D, &sent, draws(2)).add(0.5, &all, &mut copy), Some(true));
        assert_eq!(own, copy, "{bits} bits");
        let pair: Vec<f64> = decoded(compressor, &m, 2);
        assert!(left.iter().zip(m.iter().zip(&pair)).all(|(left, (m, c))| (left - (m - 0.5 * c)).abs() < 1e-14), "{bits} bits");
    }
}

/// Records on the support of other data.
#[test]
fn a_change_that_the_support_lacks_is_not_made() {
    let some: [&dyn Compressor; 3] = [&Natural, &Full, &RankOne];
    for compressor in some {
        let kept = compressor.compress(&Support::all(D), &mut matrix(8), 1.0, draws(2)).kept;
        let (few, mut own) = (Support::diagonal(D), vec![1.0; D]);
        assert_eq!(compressor.make(&few, &kept, 1.0, draws(2), &mut own), None, "{compressor:?}");
        assert_eq!(own, vec![1.0; D]);
    }
}

/// `||C(M) - M||_F^2 <= (1 - delta) ||M||_F^2`: delta is 1 / d for one pair. For the k largest entries of the triangle, the worst case
/// takes diagonal entries first: delta is at least k / (2 n).
#[test]
fn contractive_compressors_contract() {
    for seed in 0..20 {
        let m = matrix(seed);
        let norm = triangle_norm(&m, D).powi(2);
        let cases: [(&dyn Compressor, f64); 5] = [
            (&RankOne, 1.0 / D as f64),
            (&PackedPair(16), 0.99 / D as f64),
            (&PackedPair(1), 0.0),
            (&TopEntries(8), 8.0 / (2 * N) as f64),
            (&Full, 1.0),
        ];
        for (compressor, delta) in cases {
            let left: Vec<f64> = decoded(compressor, &m, seed).iter().zip(&m).map(|(c, m)| m - c).collect();
            let share = triangle_norm(&left, D).powi(2) / norm;
            assert!(share <= 1.0 - delta + 1e-12, "{compressor:?}: {share}");
        }
    }
}

/// TopLEK leaves the share 1 - k / n of the squared norm on average, with at most k entries. Ranked by magnitude alone, k entries of nearly
/// equal numbers would be those of the diagonal, which leave more.
#[test]
fn top_lek_leaves_what_its_bound_allows() {
    let mut alike = vec![1.0; N];
    (0..D).for_each(|i| alike[entries(i + 1) - 1] = 1.001);
    for m in [matrix(3), alike] {
        let norm = triangle_norm(&m, D).powi(2);
        for k in [1, 5, D, N] {
            let (times, mut shares) = (4000, Vec::new());
            for t in 0..times {
                let Body::Sparse { index, .. } = sent(&TopLek(k), &m, t) else { panic!("entries with their indices") };
                assert!(index.len() <= k);
                let left: Vec<f64> = decoded(&TopLek(k), &m, t).iter().zip(&m).map(|(c, m)| m - c).collect();
                shares.push(triangle_norm(&left, D).powi(2) / norm);
            }
            let n = times as f64;
            let mean = shares.iter().sum::<f64>() / n;
            let se = (shares.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n / n).sqrt();
            let delta = k as f64 / N as f64;
            assert!((mean - (1.0 - delta)).abs() <= 4.5 * se + 1e-12, "k = {k}: {mean}, {}", 1.0 - delta);
        }
    }
    assert_eq!(sent(&TopLek(4), &[0.0; N], 0), TopLek(4).nothing(D));
}

/// Means over many draws equal the matrix within their standard errors, and variances are as stated.
#[test]
fn random_compressors_are_unbiased_with_their_variance() {
    let m = matrix(2);
    let times = 4000;
    let of_nine = N as f64 / 9.0 - 1.0;
    let cases: [(&dyn Compressor, f64); 3] = [(&Natural, 0.125), (&RandEntries(9), of_nine), (&RandSequence(9), of_nine)];
    for (compressor, omega) in cases {
        let (mut sum, mut squares, mut error) = (vec![0.0; N], vec![0.0; N], 0.0);
        for t in 0..times {
            let c = decoded(compressor, &m, t);
            c.iter().enumerate().for_each(|(i, c)| {
                sum[i] += c;
                squares[i] += c * c;
                error += (c - m[i]).powi(2);
            });
        }
        let n = times as f64;
        for i in 0..N {
            let mean = sum[i] / n;
            let deviation = ((squares[i] / n - mean * mean).max(0.0) / n).sqrt();
            assert!((mean - m[i]).abs() <= 4.5 * deviation + 1e-12, "{compressor:?}, entry {i}: {mean}, {}", m[i]);
        }
        let share = error / n / m.iter().map(|x| x * x).sum::<f64>();
        assert!(share <= 1.05 * omega, "{compressor:?}: {share} of {omega}");
        assert!((compressor.learning_rate(D) - 1.0 / (1.0 + omega)).abs() < 1e-15);
    }
}

/// Each entry becomes a neighbouring power of two with its sign, zero stays zero, and twelve bits per entry are sent.
#[test]
fn natural_compression_gives_powers_of_two() {
    let mut m = matrix(4);
    (m[0], m[1], m[2], m[3], m[4]) = (0.0, -0.0, f64::MAX, 1e-310, -4.0);
    let body = sent(&Natural, &m, 0);
    assert_eq!(body.len(), (12 * N).div_ceil(8));
    for (i, (c, m)) in decoded(&Natural, &m, 0).iter().zip(&m).enumerate() {
        match i {
            0 | 1 | 3 => assert_eq!(*c, 0.0),
            2 => assert_eq!(*c, 2f64.powi(1023)),
            4 => assert_eq!(*c, -4.0),
            _ => {
                let low = 2f64.powi(m.abs().log2().floor() as i32);
                assert!((c.abs() == low || c.abs() == 2.0 * low) && c.signum() == m.signum(), "{m}: {c}");
            }
        }
    }
}

/// Compressed matrices are sound, except with a huge entry, or with a vector whose norm is not 1.
#[test]
fn unsound_numbers_are_recognised() {
    let all: [&dyn Compressor; 6] = [&RankOne, &PackedPair(8), &TopEntries(3), &RandEntries(N), &Natural, &Full];
    for c in all {
        let mut m = matrix(6);
        assert!(c.is_sound(D, &sent(c, &m, 0)) && c.is_sound(D, &c.nothing(D)), "{c:?}");
        m[2] = -1e151;
        assert!(!c.is_sound(D, &sent(c, &m, 0)), "{c:?}");
    }
    let mut pair = vec![0.0; D + 1];
    (pair[0], pair[4]) = (5.0, 1.0 + 1e-7);
    assert!(!RankOne.is_sound(D, &Body::Numbers(pair.clone())));
    pair[4] = 1.0;
    assert!(RankOne.is_sound(D, &Body::Numbers(pair.clone())));
    pair[1] = f64::NAN;
    assert!(!RankOne.is_sound(D, &Body::Numbers(pair)));
}

#[test]
fn what_is_no_compressed_matrix_is_refused() {
    let numbers = |n: usize| Body::Numbers(vec![1.0; n]);
    let entries_at = |len: usize, at: &[u32]| Body::Sparse { len: len as u32, index: at.to_vec(), value: vec![1.0; at.len()] };
    let sparse = |count: u32| entries_at(N, &(0..count).collect::<Vec<_>>());
    let cases: [(&dyn Compressor, Body); 18] = [
        (&RankOne, numbers(D)),
        (&TopEntries(3), sparse(4)),
        (&TopEntries(3), entries_at(N, &[2, 2])),
        (&TopEntries(3), entries_at(N, &[2, 1])),
        (&TopEntries(3), entries_at(N, &[0, N as u32])),
        (&TopEntries(3), entries_at(N + 1, &[0])),
        (&TopEntries(3), Body::Sparse { len: N as u32, index: vec![1], value: vec![1.0; 2] }),
        (&TopEntries(N), numbers(N)),
        (&RandEntries(3), sparse(3)),
        (&Full, entries_at(N, &[3, 1])),
        (&RankOne, sparse(3)),
        (&PackedPair(8), numbers(D + 1)),
        (&PackedPair(8), Body::Packed(vec![0; 5])),
        (&PackedPair(8), Body::Packed(vec![0xff; (64 + 3 + 8 * D).div_ceil(8)])),
        (&RandEntries(3), numbers(2)),
        (&Full, numbers(N - 1)),
        (&Natural, Body::Packed(vec![0; 5])),
        (&Natural, Body::Packed(vec![0xff; (12 * N).div_ceil(8)])),
    ];
    for (compressor, bad) in cases {
        assert!(!compressor.accepts(D, &bad), "{compressor:?}");
        // An empty body is accepted, and adds nothing.
        let mut to = vec![1.0; N];
        let nothing = compressor.nothing(D);
        assert_eq!(compressor.change(D, &nothing, draws(0)).add(1.0, &Support::all(D), &mut to), Some(true));
        assert!(compressor.accepts(D, &nothing) && to == [1.0; N]);
    }
}
