//! The work around the steps of a block: streams, directions, control variates and the weighted sum.
//!
//! With one step per round this is most of the work. Each function is compiled once per instruction set. Every operation rounds once,
//! element by element, without contraction, so all agree to the bit with the written loops.

use super::{Chunk, Isa, LANES};
use crate::random::{Key, Streams};

/// A function that is compiled for every instruction set and runs on the best one.
macro_rules! on_best {
    ($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) $body:block) => {
        $(#[$doc])*
        #[inline]
        pub(crate) fn $name($($arg: $type),*) {
            on::$name(Isa::best(), $($arg),*)
        }

        impl on {
            per_isa! {
                #[inline]
                #[allow(clippy::too_many_arguments, reason = "plain numbers of one loop")]
                fn $name($($arg: $type),*) $body
            }
        }
    };
}

/// The functions of this module on a chosen instruction set.
#[allow(non_camel_case_types, reason = "a namespace")]
struct on;

/// `f` of two chunks, element by element.
#[inline(always)]
fn both(x: &Chunk, y: &Chunk, f: impl Fn(f64, f64) -> f64) -> Chunk {
    Chunk(std::array::from_fn(|i| f(x.0[i], y.0[i])))
}

on_best! {
    /// Opens the streams of eight agents.
    fn open(streams: &mut Streams<LANES>, key: &Key, agents: &[usize; LANES]) {
        *streams = Streams::open(key, agents);
    }
}

on_best! {
    /// Writes `theta` to `start`, whose padding is zero, and to every lane of `iterates`.
    fn place(theta: &[f64], start: &mut [Chunk], iterates: &mut [Chunk]) {
        let (whole, rest) = theta.as_chunks();
        start.iter_mut().zip(whole).for_each(|(to, from)| to.0 = *from);
        if !rest.is_empty() {
            start[whole.len()].0[..rest.len()].copy_from_slice(rest);
        }
        // Chunk by chunk: copying whole lanes would be a library call each, expensive for one or two chunks.
        for (k, from) in start.iter().enumerate() {
            iterates[k..].iter_mut().step_by(start.len()).for_each(|to| *to = *from);
        }
    }
}

on_best! {
    /// `v_l = (theta_l - start) / sum` for every lane of `out`; `start` is one vector. With `corrects` ([`corrects`]) quotients are
    /// products with the inverse, corrected twice; if finite, they equal the rounded division (Markstein 1990).
    fn directions(theta: &[Chunk], start: &[Chunk], sum: f64, corrects: bool, out: &mut [Chunk]) {
        let (width, inverse) = (start.len(), 1.0 / sum);
        if corrects {
            let mut zero = Chunk::default();
            for (theta, out) in theta.chunks_exact(width).zip(out.chunks_exact_mut(width)) {
                for k in 0..width {
                    out[k] = both(&theta[k], &start[k], |to, from| corrected(to - from, sum, inverse));
                    zero = both(&zero, &out[k], |zero, v| zero + 0.0 * v);
                }
            }
            if zero.0 == [0.0; 8] {
                return;
            }
        }
        for (theta, out) in theta.chunks_exact(width).zip(out.chunks_exact_mut(width)) {
            for k in 0..width {
                out[k] = both(&theta[k], &start[k], |to, from| (to - from) / sum);
            }
        }
    }
}

/// `a / by`, if [`corrects`]; not finite if the quotient is not.
#[inline(always)]
fn corrected(a: f64, by: f64, inverse: f64) -> f64 {
    let q = a * inverse;
    let q = (-q.mul_add(by, -a)).mul_add(inverse, q);
    (-q.mul_add(by, -a)).mul_add(inverse, q)
}

/// Whether [`corrected`] is exact for the division by `by` of differences from the numbers `from`, if finite. Then nothing underflows:
/// differences from numbers that are not tiny are 0 or not tiny. Models with a component of 0 are divided, and all models without hardware
/// FMA.
pub(crate) fn corrects(isa: Isa, by: f64, from: &[f64]) -> bool {
    /// `2^-600` and `2^-64`.
    const TINY: f64 = f64::from_bits((1023 - 600) << 52);
    const TINY_SUM: f64 = f64::from_bits((1023 - 64) << 52);
    isa != Isa::Portable && (TINY_SUM..=1.0 / TINY_SUM).contains(&by) && from.iter().all(|x| x.abs() >= TINY)
}

/// The change of a lane's control variate.
#[derive(Debug, Clone, Copy, Default)]
pub struct ControlMove {
    /// `v = (theta - base) / scale`.
    pub scale: f64,
    /// `xi += gain (v - own)`.
    pub gain: f64,
}

on_best! {
    /// `xi += gain (v - own)`, or `xi += gain (v - own - xi)` if `afresh`, with `v = (theta - base) / scale`;
    /// then `drift = xi`. An agent's vectors xi, own and base begin at chunk `at_l` of `memory`.
    fn settle(memory: &mut [Chunk], at: &[usize], theta: &[Chunk], moves: &[ControlMove; LANES], afresh: bool, drift: &mut [Chunk]) {
        let width = theta.len();
        let is_other = |x: &Chunk, y: &Chunk| x.0.iter().zip(&y.0).fold(0, |other, (x, y)| other | (x.to_bits() ^ y.to_bits())) != 0;
        for k in 0..width {
            // Mostly all agents have the same base, and v is computed once.
            let (mut base, mut scale, mut v) = (Chunk([f64::NAN; 8]), f64::NAN, Chunk::default());
            for ((at, moved), drift) in at.iter().zip(moves).zip(drift.chunks_exact_mut(width)) {
                let kept = &mut memory[*at..][..3 * width];
                let (xi, own, last) = (kept[k], kept[width + k], kept[2 * width + k]);
                if moved.scale != scale || is_other(&last, &base) {
                    (base, scale) = (last, moved.scale);
                    v = both(&theta[k], &base, |theta, base| (theta - base) / scale);
                }
                let mut difference = both(&v, &own, |v, own| v - own);
                if afresh {
                    difference = both(&difference, &xi, |difference, xi| difference - xi);
                }
                let xi = both(&xi, &difference, |xi, difference| xi + moved.gain * difference);
                (kept[k], drift[k]) = (xi, xi);
            }
        }
    }
}

on_best! {
    /// Stores the answer, `own = v_l`, or `own = v_l -= xi` if `afresh`; and `base = theta` if `has_base`, in vectors as in [`settle`].
    fn keep(memory: &mut [Chunk], at: &[usize], theta: &[Chunk], has_base: bool, afresh: bool, v: &mut [Chunk]) {
        let width = theta.len();
        for (at, v) in at.iter().zip(v.chunks_exact_mut(width)) {
            let (xi, rest) = memory[*at..][..if has_base { 3 } else { 2 } * width].split_at_mut(width);
            let (own, base) = rest.split_at_mut(width);
            for k in 0..width {
                if afresh {
                    v[k] = both(&v[k], &xi[k], |v, xi| v - xi);
                }
                own[k] = v[k];
                if has_base {
                    base[k] = theta[k];
                }
            }
        }
    }
}

on_best! {
    /// `sum = 0 + weight_0 x_0 + weight_1 x_1 + ...`, the rows x in their order.
    fn weighted_sum(weights: &[f64], rows: &[Chunk], sum: &mut [f64]) {
        let width = super::chunks(sum.len());
        let total = |k: usize| {
            let mut total = Chunk::default();
            for (weight, row) in weights.iter().zip(rows.chunks_exact(width)) {
                total = both(&total, &row[k], |sum, x| sum + weight * x);
            }
            total.0
        };
        let (whole, rest) = sum.as_chunks_mut();
        whole.iter_mut().enumerate().for_each(|(k, sum)| *sum = total(k));
        if !rest.is_empty() {
            rest.copy_from_slice(&total(whole.len())[..rest.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{chunks, flat};
    use crate::random::{Purpose, stream};

    /// All output of the functions on an instruction set, for `len` agents of `d` components.
    fn written(isa: Isa, d: usize, len: usize, afresh: bool) -> Vec<u64> {
        let width = chunks(d);
        let mut draw = stream(5, Purpose::Fresh, 0, d);
        let mut chunk = |k: usize| Chunk(std::array::from_fn(|i| if 8 * (k % width) + i < d { draw.normal() } else { 0.0 }));
        let mut vectors = |n: usize| -> Vec<Chunk> { (0..n * width).map(&mut chunk).collect() };
        let (mut memory, theta, mut drift, mut v) = (vectors(3 * len), vectors(len), vectors(len), vectors(len));
        let (mut start, mut iterates) = (vec![Chunk::default(); width], vectors(len));
        // Some agents share their base with the one before.
        for l in (1..len).step_by(2) {
            memory.copy_within((3 * l - 1) * width..3 * l * width, (3 * l + 2) * width);
        }
        let at: Vec<usize> = (0..len).map(|l| 3 * l * width).collect();
        let moves = std::array::from_fn(|l| ControlMove { scale: 0.3 + (l / 4) as f64, gain: 0.7 });
        let model: Vec<f64> = flat(&theta)[..d].to_vec();
        on::place(isa, &model, &mut start, &mut iterates);
        on::settle(isa, &mut memory, &at, &start, &moves, afresh, &mut drift);
        on::directions(isa, &theta, &start, 0.3, corrects(isa, 0.3, &model), &mut v);
        on::keep(isa, &mut memory, &at, &start, true, afresh, &mut v);
        let weights: Vec<f64> = (0..len).map(|l| 1.0 / (3.0 + l as f64)).collect();
        let mut sum = vec![f64::NAN; d];
        on::weighted_sum(isa, &weights, &v, &mut sum);
        let all = [&memory, &drift, &v, &start, &iterates];
        all.into_iter().flat_map(|x| flat(x)).chain(&sum).map(|x| x.to_bits()).collect()
    }

    #[test]
    fn instruction_sets_agree_to_the_bit() {
        for isa in Isa::available() {
            for (d, len) in [(8, 8), (8, 3), (5, 8), (21, 8), (16, 1), (1, 2)] {
                for afresh in [false, true] {
                    assert_eq!(written(isa, d, len, afresh), written(Isa::Portable, d, len, afresh), "{isa:?}, d = {d}, {len} agents");
                }
            }
            let key = Key::new(1, Purpose::Sample, 2);
            let agents = std::array::from_fn(|l| 1000 * l + 3);
            let mut streams = Streams::open(&key, &[0; LANES]);
            on::open(isa, &mut streams, &key, &agents);
            assert_eq!(streams, Streams::open(&key, &agents));
        }
    }

    #[test]
    fn corrected_products_are_quotients_to_the_bit() {
        let mut draw = stream(3, Purpose::Fresh, 0, 0);
        // Any significand, with exponents of this range.
        let mut number = |range: u64| {
            let exponent = 1023 - range / 2 + draw.bits() % range;
            f64::from_bits((draw.bits() >> 12) | (exponent << 52) | (draw.bits() & 1 << 63))
        };
        for _ in 0..20_000 {
            let (by, q) = (number(100).abs(), number(600));
            assert!(corrects(Isa::Avx2, by, &[1.0, q]) && !corrects(Isa::Portable, by, &[1.0, q]));
            // Near products, quotients are closest to the boundaries of rounding.
            let near = (q * by).to_bits();
            for a in [number(600), f64::from_bits(near), f64::from_bits(near + 1), f64::from_bits(near - 1), 0.0, -0.0, by, -q] {
                assert_eq!(corrected(a, by, 1.0 / by).to_bits(), (a / by).to_bits(), "{a:?} by {by:e}");
            }
        }
        assert!([f64::INFINITY, f64::NEG_INFINITY, f64::MAX, -f64::MAX, f64::NAN].iter().all(|a| !corrected(*a, 0.25, 4.0).is_finite()));
        for (by, from) in [(1e-300, 1.0), (1e300, 1.0), (0.5, 0.0), (0.5, 1e-300), (f64::NAN, 1.0), (0.5, f64::NAN)] {
            assert!(!corrects(Isa::Avx2, by, &[from]));
        }
    }

    #[test]
    fn quotients_that_overflow_are_divided_out() {
        let of = |x: f64| [Chunk([x; 8])];
        for isa in Isa::available() {
            for (theta, start, sum) in [(f64::MAX, -1e300, 0.5), (f64::NAN, 1.0, 0.5), (1.7e308, 1.0, 0.9999), (3.0, 1.0, 0.3)] {
                let mut v = of(0.0);
                on::directions(isa, &of(theta), &of(start), sum, corrects(isa, sum, &[start]), &mut v);
                assert_eq!(v[0].0[0].to_bits(), ((theta - start) / sum).to_bits(), "{isa:?}, {theta:e}");
            }
        }
    }

    #[test]
    fn controls_move_by_their_share_of_the_mean() {
        let of = |x: f64| Chunk([x; 8]);
        let mut memory = vec![of(1.0), of(0.5), of(2.0), of(3.0), of(0.25), of(4.0)];
        let mut drift = vec![Chunk::default(); 2];
        // v = (5 - 2) / 2 and (5 - 4) / 2.
        let moves = [ControlMove { scale: 2.0, gain: 0.5 }; LANES];
        settle(&mut memory, &[0, 3], &[of(5.0)], &moves, false, &mut drift);
        assert_eq!(drift, [of(1.0 + 0.5 * (1.5 - 0.5)), of(3.0 + 0.5 * (0.5 - 0.25))]);
        assert_eq!([memory[0], memory[3]], [drift[0], drift[1]]);
        let mut v = vec![of(7.0), of(8.0)];
        keep(&mut memory, &[0, 3], &[of(5.0)], true, true, &mut v);
        assert_eq!(v, [of(7.0 - drift[0].0[0]), of(8.0 - drift[1].0[0])]);
        assert_eq!([memory[1], memory[2], memory[4], memory[5]], [v[0], of(5.0), v[1], of(5.0)]);
        let mut sum = [9.0; 3];
        weighted_sum(&[0.5, 0.25], &[of(2.0), of(8.0)], &mut sum);
        assert_eq!(sum, [3.0; 3]);
    }
}
