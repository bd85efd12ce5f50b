//! Scales, and the positions of their ticks.

use super::text::{decimal, power_of_ten, scientific};

/// An interval of values, or of their decimal logarithms.
#[derive(Clone, Copy, Debug)]
pub(super) struct Axis {
    log: bool,
    low: f64,
    high: f64,
    /// Whether ticks of a logarithmic axis are at powers of two.
    binary: bool,
    /// Whether ticks are at whole numbers only.
    whole: bool,
}

/// Positions of ticks as fractions of the axis's length.
#[derive(Clone, Debug, Default)]
pub(super) struct Ticks {
    pub major: Vec<(f64, String)>,
    pub minor: Vec<f64>,
}

/// The smallest distance of labels within a decade, in pixels.
const ROOM_FOR_LABEL: f64 = 18.0;

/// Larger values are clamped to this value, so that differences stay finite.
const HUGE: f64 = 1e300;

/// The value on the axis's scale; `None` if the axis cannot show it.
pub(super) fn scaled(value: f64, log: bool) -> Option<f64> {
    match log {
        _ if !value.is_finite() => None,
        true => (value > 0.0).then(|| value.log10()),
        false => Some(value.clamp(-HUGE, HUGE)),
    }
}

impl Axis {
    /// An axis for `range`, given on the axis's own scale, with a margin. Without a range, a default axis.
    pub fn around(range: Option<(f64, f64)>, log: bool, margin: f64) -> Axis {
        let Some((low, high)) = range else {
            return Axis { log, low: 0.0, high: 1.0, binary: false, whole: false };
        };
        let middle = 0.5 * low + 0.5 * high;
        let half = 0.5 * high - 0.5 * low;
        let least = match log {
            true => 0.05,
            false => 1e-9 * middle.abs(),
        };
        let half = match half > least {
            true => half * (1.0 + 2.0 * margin),
            false if log => 0.2,
            false => (0.1 * middle.abs()).max(if middle == 0.0 { 1.0 } else { f64::MIN_POSITIVE }),
        };
        Axis { log, low: middle - half, high: middle + half, binary: false, whole: false }
    }

    /// An axis for exactly this range of values, if the range is valid.
    pub fn exactly((low, high): (f64, f64), log: bool) -> Option<Axis> {
        let (low, high) = (scaled(low, log)?, scaled(high, log)?);
        (high - low > 1e-9 * low.abs().max(high.abs())).then_some(Axis { log, low, high, binary: false, whole: false })
    }

    /// The same range with ticks at powers of two, if it is logarithmic.
    pub fn with_binary_ticks(self, binary: bool) -> Axis {
        Axis { binary: self.log && binary, ..self }
    }

    /// The same range with ticks at whole numbers only, if `whole`.
    pub fn with_whole_ticks(self, whole: bool) -> Axis {
        Axis { whole, ..self }
    }

    /// Whether another axis shows the same range.
    pub fn is_like(&self, other: &Axis) -> bool {
        (self.log, self.low, self.high) == (other.log, other.low, other.high)
    }

    /// The position of a value on the axis: 0 at its low end, 1 at its high end.
    pub fn fraction(&self, value: f64) -> Option<f64> {
        scaled(value, self.log).map(|v| self.locate(v))
    }

    fn locate(&self, scaled: f64) -> f64 {
        (scaled - self.low) / (self.high - self.low)
    }

    /// About `count` ticks, at most, on an axis of `length` pixels.
    pub fn ticks(&self, count: usize, length: f64) -> Ticks {
        if !self.log {
            return self.linear_ticks(self.low, self.high, count, |v| self.locate(v));
        }
        if let Some(ticks) = self.binary_ticks(count) {
            return ticks;
        }
        let (first, last) = (self.low.ceil() as i32, self.high.floor() as i32);
        // Labels at only two decades leave values between them hard to read.
        if last - first >= 2 {
            return self.decade_ticks(first, last, count, length);
        }
        let (floor, ceiling) = (self.low.floor() as i32, self.high.ceil() as i32);
        let plain = self.low >= -3.0 && self.high <= 4.0;
        let label = |digit: i64, decade: i32| match plain {
            true => decimal(digit as f64 * 10f64.powi(decade), (-decade).max(0) as usize),
            false => scientific(digit, decade),
        };
        let at_digits = |digits: &[i64]| -> Vec<(f64, String)> {
            let least = if self.whole { floor.max(0) } else { floor };
            let all = (least..=ceiling).flat_map(|decade| digits.iter().map(move |digit| (*digit, decade)));
            let places = all.map(|(digit, decade)| (self.locate((digit as f64).log10() + f64::from(decade)), digit, decade));
            places.filter(|(at, _, _)| (0.0..=1.0).contains(at)).map(|(at, digit, decade)| (at, label(digit, decade))).collect()
        };
        let has_room = |major: &[(f64, String)]| major.windows(2).all(|pair| (pair[1].0 - pair[0].0) * length >= ROOM_FOR_LABEL);
        let fits = |major: &Vec<(f64, String)>| (2..=count.max(2)).contains(&major.len()) && has_room(major);
        let sets: [&[i64]; 4] = [&[1, 2, 3, 4, 5, 6, 7, 8, 9], &[1, 2, 3, 5, 7], &[1, 2, 5], &[1, 3]];
        if let Some(major) = sets.into_iter().map(at_digits).find(fits) {
            let minor = (floor..=ceiling).flat_map(|decade| self.within_decade(decade)).collect();
            return Ticks { major, minor };
        }
        if last > first {
            return self.decade_ticks(first, last, count, length);
        }
        self.linear_ticks(10f64.powf(self.low), 10f64.powf(self.high).min(f64::MAX), count, |v| self.locate(v.log10()))
    }

    /// Ticks at 1, 2, 4, 8 and so on; every second or third if there are many.
    fn binary_ticks(&self, count: usize) -> Option<Ticks> {
        const LARGEST: f64 = 1e15;
        let exponent = |end: f64| end * std::f64::consts::LOG2_10;
        let (first, last) = (exponent(self.low).ceil(), exponent(self.high).floor());
        if !self.binary || first < 0.0 || last <= first || self.high > LARGEST.log10() {
            return None;
        }
        let (first, last) = (first as i32, last as i32);
        let step = ((last - first) as usize / count.max(1) + 1) as i32;
        let value = |exponent: i32| 2f64.powi(exponent);
        let major = (first..=last).filter(|e| e % step == 0).map(|e| (self.locate(value(e).log10()), decimal(value(e), 0))).collect();
        Some(Ticks { major, minor: (first..=last).map(|e| self.locate(value(e).log10())).collect() })
    }

    fn decade_ticks(&self, first: i32, last: i32, count: usize, length: f64) -> Ticks {
        const ROOM_FOR_DIGITS: f64 = 36.0;
        const ROOM_FOR_DECADE: f64 = 5.0;
        let decades = (last - first) as usize + 1;
        let step = [1, 2, 3, 5, 10, 20, 50, 100, 200].into_iter().find(|step| decades.div_ceil(*step) <= count.max(1)).unwrap_or(500);
        let major = (first..=last)
            .filter(|decade| decade.rem_euclid(step as i32) == 0)
            .map(|decade| (self.locate(f64::from(decade)), power_of_ten(decade)))
            .collect();
        let pixels_per_decade = length / (self.high - self.low);
        let minor = if pixels_per_decade >= ROOM_FOR_DIGITS {
            (first - 1..=last).flat_map(|decade| self.within_decade(decade)).collect()
        } else if step > 1 && pixels_per_decade >= ROOM_FOR_DECADE {
            (first..=last).map(|decade| self.locate(f64::from(decade))).collect()
        } else {
            Vec::new()
        };
        Ticks { major, minor }
    }

    fn within_decade(&self, decade: i32) -> impl Iterator<Item = f64> {
        (2..10).map(move |digit| self.locate(f64::from(digit).log10() + f64::from(decade))).filter(|at| (0.0..=1.0).contains(at))
    }

    /// Ticks at multiples of 1, 2 or 5 times a power of ten.
    fn linear_ticks(&self, low: f64, high: f64, count: usize, locate: impl Fn(f64) -> f64) -> Ticks {
        const COUNTABLE: f64 = 1e12;
        let rough = (high - low) / count.max(1) as f64;
        let power = rough.log10().floor();
        let unit = 10f64.powf(power);
        let (digit, power) = match [1_i64, 2, 5].into_iter().find(|digit| *digit as f64 * unit >= rough) {
            Some(digit) => (digit, power as i32),
            None => (1, power as i32 + 1),
        };
        let (digit, power) = if self.whole && power < 0 { (1, 0) } else { (digit, power) };
        let step = digit as f64 * 10f64.powi(power);
        let (first, last) = ((low / step).ceil(), (high / step).floor());
        // No ticks if the axis is too short compared with its distance from zero.
        let countable = first.abs() < COUNTABLE && last.abs() < COUNTABLE;
        if !countable {
            return Ticks::default();
        }
        let plain = (1e-3..1e5).contains(&low.abs().max(high.abs()));
        let label = |multiple: i64| match plain {
            true => decimal(multiple as f64 * step, (-power).max(0) as usize),
            false => scientific(multiple * digit, power),
        };
        let tick = |multiple: i64| (locate(multiple as f64 * step), if multiple == 0 { "0".to_string() } else { label(multiple) });
        Ticks { major: (first as i64..=last as i64).map(tick).collect(), minor: Vec::new() }
    }
}
