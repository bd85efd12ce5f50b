//! Products of vectors outside local steps.
//!
//! Multiplications and additions round one by one except in `mul_add`, so results have exactly the bits of the written loops.

use super::tree;

/// [`dot`], for inlining.
#[inline(always)]
fn sum_of_products(a: &[f64], b: &[f64]) -> f64 {
    let mut sums = [0.0f64; 8];
    let ((a, rest_a), (b, rest_b)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    for (a, b) in a.iter().zip(b) {
        (0..8).for_each(|i| sums[i] += a[i] * b[i]);
    }
    let rest: f64 = rest_a.iter().zip(rest_b).map(|(a, b)| a * b).sum();
    tree(sums) + rest
}

/// [`add_scaled`], for inlining.
#[inline(always)]
fn add(y: &mut [f64], a: f64, x: &[f64]) {
    y.iter_mut().zip(x).for_each(|(y, x)| *y += a * x);
}

/// [`lengthen`], for inlining.
#[inline(always)]
pub fn lengthened(trace: &mut [f64], decay: f64, ratio: f64, phi: &[f64]) {
    trace.iter_mut().zip(phi).for_each(|(trace, phi)| *trace = ratio * decay.mul_add(*trace, *phi));
}

per_isa! {
    /// The trace at the next transition: `trace = ratio (decay trace + phi)`.
    fn lengthen(trace: &mut [f64], decay: f64, ratio: f64, phi: &[f64]) {
        lengthened(trace, decay, ratio, phi);
    }
}

per_isa! {
    /// `out = x + a y`, each component rounded once.
    fn along(out: &mut [f64], x: &[f64], a: f64, y: &[f64]) {
        out.iter_mut().zip(x).zip(y).for_each(|((out, x), y)| *out = a.mul_add(*y, *x));
    }
}

per_isa! {
    /// The inner product of vectors of equal length: eight partial sums, then the rest.
    fn dot(a: &[f64], b: &[f64]) -> f64 {
        sum_of_products(a, b)
    }
}

per_isa! {
    /// [`dot`] of four vectors with y, side by side, because each alone would wait for its own sums.
    fn dots(four: [&[f64]; 4], y: &[f64]) -> [f64; 4] {
        assert!(four.iter().all(|x| x.len() == y.len()));
        let mut sums = [[0.0f64; 8]; 4];
        let (x, (y, last)) = (four.map(<[f64]>::as_chunks::<8>), y.as_chunks::<8>());
        for (i, y) in y.iter().enumerate() {
            for (sums, (x, _)) in sums.iter_mut().zip(x) {
                (0..8).for_each(|l| sums[l] += x[i][l] * y[l]);
            }
        }
        std::array::from_fn(|k| {
            let rest: f64 = x[k].1.iter().zip(last).map(|(x, y)| x * y).sum();
            tree(sums[k]) + rest
        })
    }
}

per_isa! {
    /// [`add_scaled`], and the square of the sum by [`dot`].
    fn add_scaled_and_square(y: &mut [f64], a: f64, x: &[f64]) -> f64 {
        assert_eq!(x.len(), y.len());
        let mut sums = [0.0f64; 8];
        let ((y, rest_y), (x, rest_x)) = (y.as_chunks_mut::<8>(), x.as_chunks::<8>());
        for (y, x) in y.iter_mut().zip(x) {
            for l in 0..8 {
                y[l] += a * x[l];
                sums[l] += y[l] * y[l];
            }
        }
        add(rest_y, a, rest_x);
        let rest: f64 = rest_y.iter().map(|y| y * y).sum();
        tree(sums) + rest
    }
}

per_isa! {
    /// Adds `a x` to y, in the components that both have.
    fn add_scaled(y: &mut [f64], a: f64, x: &[f64]) {
        add(y, a, x);
    }
}

per_isa! {
    /// Marks the nonzero rows and columns of a symmetric matrix (lower triangle row by row) with a nonzero mark; other marks do not change.
    fn mark_nonzero(lower: &[f64], marks: &mut [u64]) {
        let mut rest = lower;
        for i in 0..marks.len() {
            let (row, below) = rest.split_at(i + 1);
            rest = below;
            let mut any = 0;
            for (mark, x) in marks.iter_mut().zip(row) {
                // Without the sign.
                let bits = x.to_bits() << 1;
                *mark |= bits;
                any |= bits;
            }
            marks[i] |= any;
        }
    }
}

per_isa! {
    /// Adds `scale v v^T` to a lower triangle row by row. Rows with `scale v_i = 0` do not change. Returns whether the other rows are
    /// finite.
    fn add_outer(lower: &mut [f64], scale: f64, v: &[f64]) -> bool {
        let (mut rest, mut zeros) = (lower, [0.0; 8]);
        for (i, x) in v.iter().enumerate() {
            let (row, below) = rest.split_at_mut(i + 1);
            rest = below;
            let a = scale * x;
            if a == 0.0 {
                continue;
            }
            let ((row, end), (v, last)) = (row.as_chunks_mut::<8>(), v[..=i].as_chunks::<8>());
            for (y, x) in row.iter_mut().zip(v) {
                for ((y, x), zero) in y.iter_mut().zip(x).zip(&mut zeros) {
                    *y += a * x;
                    // Not zero if a factor is not finite.
                    *zero += 0.0 * *y;
                }
            }
            for (y, x) in end.iter_mut().zip(last) {
                *y += a * x;
                zeros[0] += 0.0 * *y;
            }
        }
        zeros == [0.0; 8]
    }
}

/// [`add_pair`] and [`set_pair`]; `from` maps the stored number to the one that is added to.
#[inline(always)]
fn pair(s: &mut [f64], p: &mut [f64], l: f64, v: &[f64], from: impl Fn(f64) -> f64) {
    let mut at = 0;
    for (i, x) in v.iter().enumerate() {
        let below = &v[i..];
        let (s, p) = (&mut s[at..at + below.len()], &mut p[at..at + below.len()]);
        for ((s, p), y) in s.iter_mut().zip(p).zip(below) {
            *p = from(*p) + x * y;
            *s = from(*s) + l * x * y;
        }
        at += below.len();
    }
}

per_isa! {
    /// Adds `l v v^T` and `v v^T` to s and p, lower triangles column by column.
    fn add_pair(s: &mut [f64], p: &mut [f64], l: f64, v: &[f64]) {
        pair(s, p, l, v, |sum| sum);
    }
}

per_isa! {
    /// [`add_pair`] to zeros instead of s and p. A sum that begins with 0 is never -0.
    fn set_pair(s: &mut [f64], p: &mut [f64], l: f64, v: &[f64]) {
        pair(s, p, l, v, |_| 0.0);
    }
}

per_isa! {
    /// [`add_pair`] for four pairs in their order, with the same bits: s and p are read and written once.
    fn add_four_pairs(s: &mut [f64], p: &mut [f64], l: [f64; 4], v: [&[f64]; 4]) {
        let (mut at, d) = (0, v[0].len());
        for i in 0..d {
            let (x, below) = (v.map(|v| v[i]), v.map(|v| &v[i..d]));
            let lx: [f64; 4] = std::array::from_fn(|k| l[k] * x[k]);
            let (s, p) = (&mut s[at..at + d - i], &mut p[at..at + d - i]);
            let ys = below[0].iter().zip(below[1]).zip(below[2].iter().zip(below[3]));
            for ((s, p), ((a, b), (c, e))) in s.iter_mut().zip(p).zip(ys) {
                *p = *p + x[0] * a + x[1] * b + x[2] * c + x[3] * e;
                *s = *s + lx[0] * a + lx[1] * b + lx[2] * c + lx[3] * e;
            }
            at += d - i;
        }
    }
}

per_isa! {
    /// Adds `a x + b y` to sum.
    fn add_both(sum: &mut [f64], a: f64, x: &[f64], b: f64, y: &[f64]) {
        sum.iter_mut().zip(x).zip(y).for_each(|((sum, x), y)| *sum += a * x + b * y);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Isa;

    const SIZES: [usize; 7] = [0, 1, 7, 8, 9, 31, 64];

    fn numbers(n: usize, f: f64) -> Vec<f64> {
        (0..n).map(|i| (i as f64 * f).sin()).collect()
    }

    fn bits(x: impl IntoIterator<Item = f64>) -> Vec<u64> {
        x.into_iter().map(f64::to_bits).collect()
    }

    /// The places of a lower triangle, row by row.
    fn places(d: usize) -> impl Iterator<Item = (usize, (usize, usize))> {
        (0..d).flat_map(|i| (0..=i).map(move |k| (i, k))).enumerate()
    }

    fn same_on_all(of: impl Fn(Isa) -> Vec<u64>) -> bool {
        let plain = of(Isa::Portable);
        Isa::available().into_iter().all(|isa| of(isa) == plain)
    }

    #[test]
    fn products_of_vectors_have_the_same_bits_on_every_instruction_set() {
        for d in SIZES {
            let (a, b) = (numbers(d, 0.7), numbers(d, 1.3));
            let on = |isa: Isa| {
                let mut sum = b.clone();
                let (mut trace, mut point) = (b.clone(), vec![f64::NAN; d]);
                add_scaled(isa, &mut sum, 0.3, &a);
                lengthen(isa, &mut trace, 0.9, 0.7, &a);
                along(isa, &mut point, &b, -0.99, &a);
                for i in 0..d {
                    assert_eq!(trace[i], 0.7 * 0.9f64.mul_add(b[i], a[i]));
                    assert_eq!(point[i], (-0.99f64).mul_add(a[i], b[i]));
                }
                let four = [&a[..], &b[..], &trace[..], &sum[..]];
                assert_eq!(bits(dots(isa, four, &b)), bits(four.map(|x| dot(isa, x, &b))));
                let mut difference = b.clone();
                let square = add_scaled_and_square(isa, &mut difference, 0.3, &a);
                assert_eq!((bits(difference), square.to_bits()), (bits(sum.clone()), dot(isa, &sum, &sum).to_bits()));
                let mut both = b.clone();
                add_both(isa, &mut both, 0.3, &a, -0.7, &b);
                bits([dot(isa, &a, &b)].into_iter().chain(sum).chain(both))
            };
            assert!(same_on_all(on), "d = {d}");
        }
    }

    #[test]
    fn pairs_are_added_with_the_same_bits_on_every_instruction_set() {
        for d in SIZES {
            let (a, b, c) = (numbers(d, 0.7), numbers(d, 1.3), numbers(d, 2.1));
            let on = |isa: Isa| {
                let triangle = |x: f64| vec![x; d * (d + 1) / 2];
                let (mut s, mut p) = (triangle(0.25), triangle(0.5));
                add_pair(isa, &mut s, &mut p, 1.7, &a);
                for (at, (i, k)) in (0..d).flat_map(|i| (i..d).map(move |k| (i, k))).enumerate() {
                    assert_eq!((s[at], p[at]), (0.25 + 1.7 * a[i] * a[k], 0.5 + a[i] * a[k]));
                }
                let ([mut s_zeros, mut p_zeros], [mut s_set, mut p_set]) = ([triangle(0.0), triangle(0.0)], [triangle(9.0), triangle(9.0)]);
                add_pair(isa, &mut s_zeros, &mut p_zeros, -1.7, &a);
                set_pair(isa, &mut s_set, &mut p_set, -1.7, &a);
                assert_eq!([bits(s_set), bits(p_set)], [bits(s_zeros), bits(p_zeros)]);
                let (mut s_four, mut p_four) = (s.clone(), p.clone());
                let (l, v) = ([1.7, -0.3, 2.5, 0.1], [&a[..], &b[..], &c[..], &a[..]]);
                l.iter().zip(v).for_each(|(l, v)| add_pair(isa, &mut s, &mut p, *l, v));
                add_four_pairs(isa, &mut s_four, &mut p_four, l, v);
                assert_eq!([bits(s_four), bits(p_four)], [bits(s.clone()), bits(p.clone())]);
                bits(s.into_iter().chain(p))
            };
            assert!(same_on_all(on), "d = {d}");
        }
    }

    #[test]
    fn outer_products_are_added_row_by_row() {
        for d in SIZES {
            let (a, s) = (numbers(d, 0.7), numbers(d * (d + 1) / 2, 1.1));
            let on = |isa: Isa| {
                let mut outer = s.clone();
                assert!(add_outer(isa, &mut outer, -0.7, &a));
                for (at, (i, k)) in places(d) {
                    assert_eq!(outer[at], s[at] + -0.7 * a[i] * a[k]);
                    for x in [f64::NAN, f64::NEG_INFINITY] {
                        let mut with = vec![0.25; s.len()];
                        with[at] = x;
                        // Row 0 does not change, because a begins with 0.
                        assert_eq!(add_outer(isa, &mut with, -0.7, &a), a[i] == 0.0);
                    }
                }
                bits(outer)
            };
            assert!(same_on_all(on), "d = {d}");
        }
    }

    #[test]
    fn rows_and_columns_with_numbers_are_marked() {
        for (d, isa) in SIZES.into_iter().flat_map(|d| Isa::available().into_iter().map(move |isa| (d, isa))) {
            let (mut marks, mut some) = (vec![0; d], vec![0.0; d * (d + 1) / 2]);
            for (at, (i, k)) in places(d) {
                // Rows and columns 5 j and 7 j have numbers where they meet.
                some[at] = if i % 5 == 0 && k % 7 == 0 { -0.5 } else { -0.0 };
            }
            mark_nonzero(isa, &some, &mut marks);
            for (i, mark) in marks.iter().enumerate() {
                let meets = i % 5 == 0 || (i % 7 == 0 && (i..d).any(|row| row % 5 == 0));
                assert_eq!(*mark != 0, meets, "{i} of {d}");
            }
        }
    }
}
