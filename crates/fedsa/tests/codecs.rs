//! What every codec must do. A new kind joins [`cases`] and [`Stated`].

use std::collections::BTreeMap;
use std::sync::Arc;

use fedsa::error::Result;
use fedsa::random::{ALL, Purpose, Stream, stream};
use fedsa::uplink::codec::{Codec, CodecSettings, KINDS};
use fedsa_testing::memory::{self, Used};
use proptest::prelude::*;
use serde_json::{Value, json};

/// A codec of the suite.
struct Case {
    name: &'static str,
    settings: Value,
    codec: Arc<dyn Codec>,
}

impl std::fmt::Debug for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.name, self.settings)
    }
}

fn read(kind: &str, settings: &Value) -> Result<Box<dyn CodecSettings>, String> {
    let kind = KINDS.iter().find(|k| k.is_called(kind)).unwrap();
    let table: fedsa::settings::Value = serde_json::from_value(settings.clone()).expect("a tree");
    (kind.read)(&table).map_err(|e| e.to_string())
}

/// Every kind with several settings.
fn cases() -> Vec<Case> {
    let mut all = vec![("exact", json!({})), ("float32", json!({}))];
    for bits in [1, 2, 3, 4, 5, 7, 8, 13, 16, 19, 20, 21, 31, 32, 33, 50, 51, 52, 53, 54, 63, 64] {
        all.extend(["stochastic", "dither", "nearest"].map(|r| ("quantised", json!({"bits": bits, "rounding": r}))));
    }
    for share in
        [json!({"k": 1}), json!({"k": 5}), json!({"k": 1000}), json!({"fraction": 0.1}), json!({"fraction": 0.6}), json!({"fraction": 1.0})]
    {
        for unbiased in [true, false] {
            let mut settings = share.clone();
            settings["unbiased"] = unbiased.into();
            all.push(("rand-k", settings));
        }
        all.push(("top-k", share));
    }
    let build = |(name, settings)| {
        let read = read(name, &settings).unwrap();
        read.check().unwrap();
        Case { name, codec: read.build(), settings }
    };
    all.into_iter().map(build).collect()
}

fn open(round: u64) -> Stream {
    stream(11, Purpose::Codec, round, ALL)
}

fn normals(n: usize, round: u64) -> Vec<f64> {
    let mut draws = stream(12, Purpose::Start, round, ALL);
    (0..n).map(|_| draws.normal()).collect()
}

/// Vectors that have been trouble somewhere.
fn vectors() -> Vec<Vec<f64>> {
    let tiny = f64::from_bits(1);
    let mut all: Vec<Vec<f64>> = [0, 1, 2, 7, 8, 9, 13, 64, 65, 127, 128, 129, 300].map(|n| normals(n, n as u64)).into();
    all.extend([
        vec![0.0; 1],
        vec![0.0; 13],
        vec![-0.0; 9],
        vec![0.0, -0.0, 1.0],
        vec![-3.5],
        vec![1.0; 17],
        vec![f64::MAX, -f64::MAX, 1.0, 0.0, f64::MAX / 2.0],
        vec![1e300, -1e-300, 1e-308, 1.0, -1e300],
        vec![f64::MIN_POSITIVE, -f64::MIN_POSITIVE / 4.0, tiny, -tiny, 0.0],
        vec![tiny],
        vec![-tiny, tiny, 0.0],
        vec![1e39, -1e39, f64::from(f32::MAX), 1e-46, 3e-45, 1e-40],
    ]);
    all
}

fn encode(codec: &dyn Codec, x: &[f64], budget: Option<u32>, round: u64) -> Vec<u8> {
    let mut bytes = vec![0xaa; 3];
    codec.encode(x, budget, &mut open(round), &mut bytes);
    assert_eq!(bytes[..3], [0xaa; 3], "appends");
    bytes.split_off(3)
}

fn decode(codec: &dyn Codec, bytes: &[u8], n: usize, round: u64) -> Result<(Vec<f64>, usize)> {
    let mut out = vec![f64::NAN; n];
    let used = codec.decode(bytes, &mut open(round), &mut out)?;
    Ok((out, used))
}

fn there_and_back(codec: &dyn Codec, x: &[f64], budget: Option<u32>, round: u64) -> Vec<f64> {
    decode(codec, &encode(codec, x, budget, round), x.len(), round).unwrap().0
}

fn largest(x: &[f64]) -> f64 {
    x.iter().fold(0.0, |s, x| x.abs().max(s))
}

/// What a codec's documentation says about its error, without a budget.
enum Stated {
    /// At most so much, for each component; deterministic.
    AtMost(Vec<f64>),
    /// Uniform grid: the step, the fraction of each `y_j`, and how it is rounded.
    Grid { step: f64, fractions: Vec<f64>, rounding: String },
    /// k of the n components arrive, times `scale`; the largest, or random ones.
    Some { k: usize, scale: f64, largest: bool },
}

/// Above this many bits a quantiser's step is of the size of rounding errors.
const FINE: u64 = 52;

impl Stated {
    fn of(case: &Case, x: &[f64]) -> Stated {
        let n = x.len();
        let number = |key: &str| case.settings[key].as_f64();
        let k = || (number("k").unwrap_or_else(|| (number("fraction").unwrap() * n as f64).round().max(1.0)) as usize).min(n);
        match case.name {
            "exact" => Stated::AtMost(vec![0.0; n]),
            "float32" => {
                let beyond = |x: f64| (x.abs() - f64::from(f32::MAX)).max(0.0);
                Stated::AtMost(x.iter().map(|x| (x.abs() * 2f64.powi(-24)).max(2f64.powi(-150)).max(beyond(*x))).collect())
            }
            "quantised" if case.settings["bits"].as_u64().unwrap() >= FINE => {
                Stated::AtMost(vec![2f64.powi(-49) * largest(x) + f64::from_bits(1); n])
            }
            "quantised" => {
                let top = 2f64.powf(number("bits").unwrap()) - 1.0;
                let s = largest(x);
                Stated::Grid {
                    step: s / top * 2.0,
                    fractions: x.iter().map(|x| if s > 0.0 { ((x / s + 1.0) / 2.0 * top).fract() } else { 0.0 }).collect(),
                    rounding: case.settings["rounding"].as_str().unwrap().into(),
                }
            }
            "top-k" => Stated::Some { k: k(), scale: 1.0, largest: true },
            "rand-k" => {
                let scale = if case.settings["unbiased"] == true { n as f64 / k() as f64 } else { 1.0 };
                Stated::Some { k: k(), scale, largest: false }
            }
            name => panic!("{name} has no stated error in this suite"),
        }
    }
}

#[test]
fn every_kind_is_in_the_suite_and_has_a_number_of_its_own() {
    let mut tags = BTreeMap::new();
    for case in cases() {
        assert_eq!(*tags.entry(case.codec.tag()).or_insert(case.name), case.name, "the same tag");
    }
    for kind in KINDS {
        assert!(tags.values().any(|name| *name == kind.name), "`{}` has no case in the conformance suite", kind.name);
    }
    assert_eq!(tags.len(), KINDS.len(), "{tags:?}");
}

#[test]
fn encoded_lengths_are_those_of_the_bytes() {
    for case in cases() {
        for x in vectors() {
            for budget in
                [None, Some(0), Some(1), Some(2), Some(7), Some(20), Some(31), Some(32), Some(63), Some(64), Some(80), Some(u32::MAX)]
            {
                let Some(len) = case.codec.encoded_len(x.len(), budget) else {
                    assert!(budget.is_some(), "{case:?}: any number goes without a budget");
                    continue;
                };
                let bytes = encode(&*case.codec, &x, budget, 1);
                assert_eq!(bytes.len(), len, "{case:?}, {budget:?}, n = {}", x.len());
                let (_, used) = decode(&*case.codec, &bytes, x.len(), 1).unwrap();
                assert_eq!(used, len, "{case:?}");
                // A decoder takes its own bytes and leaves what follows.
                let followed = [&bytes[..], &[1, 2, 3]].concat();
                assert_eq!(decode(&*case.codec, &followed, x.len(), 1).unwrap().1, len);
            }
        }
    }
}

#[test]
fn the_least_length_is_that_of_the_smallest_budget() {
    for case in cases() {
        for n in [0, 1, 2, 8, 13, 63, 64, 65, 100, 1000, 100_000] {
            let all = (1..=200).map(Some).chain([None]);
            let least = all.filter_map(|budget| case.codec.encoded_len(n, budget)).min().unwrap();
            assert_eq!(case.codec.min_len(n), least, "{case:?}, n = {n}");
        }
        case.codec.min_len(usize::MAX); // does not overflow
    }
}

#[test]
fn messages_keep_within_the_budget() {
    for case in cases() {
        assert_eq!(case.codec.encoded_len(13, Some(0)), None, "{case:?}");
        // What a message has before the components, which no budget counts.
        let head = match case.name {
            "quantised" => 9,
            "top-k" | "rand-k" => 4,
            _ => 0,
        };
        for n in [1, 13, 100] {
            let (mut before, free) = (0, case.codec.encoded_len(n, None).unwrap());
            for budget in 1..=200 {
                let Some(len) = case.codec.encoded_len(n, Some(budget)) else {
                    assert_eq!(before, 0, "{case:?}: what fits once fits in more");
                    continue;
                };
                // Two parts, indices and values, are padded apart.
                let padded = (n * budget as usize).div_ceil(8);
                assert!(len - head <= padded, "{case:?}: {len} bytes for {n} of {budget} bits");
                assert!(len >= before && len <= free);
                before = len;
            }
            assert_eq!(before, free, "{case:?}: a large budget does not hold back");
        }
    }
}

#[test]
fn errors_are_within_what_is_stated() {
    for case in cases() {
        for x in vectors() {
            let back = there_and_back(&*case.codec, &x, None, 2);
            let e: Vec<f64> = back.iter().zip(&x).map(|(b, x)| b - x).collect();
            let context = || format!("{case:?}: {x:?} became {back:?}");
            let rounding = 2f64.powi(-50) * largest(&x) + f64::from_bits(1);
            match Stated::of(&case, &x) {
                Stated::AtMost(bounds) => assert!(e.iter().zip(bounds).all(|(e, bound)| e.abs() <= bound), "{}", context()),
                Stated::Grid { step, rounding: how, .. } => {
                    let bound = if how == "stochastic" { step } else { step / 2.0 };
                    assert!(e.iter().all(|e| e.abs() <= bound * (1.0 + 2f64.powi(-31)) + rounding), "{}", context());
                    assert!(back.iter().all(|b| b.is_finite()));
                }
                Stated::Some { k, scale, largest } => {
                    let arrived = |j: usize| back[j] == scale * x[j];
                    assert!((0..x.len()).all(|j| arrived(j) || back[j].to_bits() == 0), "{}", context());
                    assert!((0..x.len()).filter(|j| arrived(*j)).count() >= k, "{}", context());
                    let norm = |v: &[f64]| v.iter().map(|v| v * v).sum::<f64>();
                    if largest && x.len() > 1 && norm(&x).is_finite() {
                        assert!(norm(&e) <= (1.0 - k as f64 / x.len() as f64) * norm(&x) * (1.0 + 1e-12), "{}", context());
                    }
                }
            }
        }
    }
}

#[test]
fn zero_is_sent_exactly() {
    for case in cases() {
        for n in [1, 13] {
            for zero in [0.0, -0.0] {
                for budget in [None, Some(80)] {
                    assert_eq!(there_and_back(&*case.codec, &vec![zero; n], budget, 3), vec![0.0; n], "{case:?}");
                }
            }
        }
    }
}

#[test]
fn exact_means_every_bit() {
    let odd = vec![f64::NAN, -0.0, f64::INFINITY, 5e-324, f64::from_bits(0x7ff4_dead_beef_0001), 0.1, 1e300];
    let bits = |x: &[f64]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    for case in cases() {
        if case.codec.is_exact() {
            for x in vectors().into_iter().chain([odd.clone()]) {
                assert_eq!(bits(&there_and_back(&*case.codec, &x, None, 4)), bits(&x), "{case:?}");
            }
            assert!(case.codec.is_unbiased());
        }
    }
    assert!(cases().iter().any(|case| case.codec.is_exact()));
}

#[test]
fn what_is_not_finite_is_not_hidden() {
    for case in cases() {
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let x = [1.0, bad, -2.0];
            let back = there_and_back(&*case.codec, &x, None, 5);
            match case.name {
                // A random choice of components may leave it out.
                "rand-k" => assert!(back[1] == 0.0 || !back[1].is_finite()),
                "quantised" => assert!(back.iter().all(|b| b.is_nan()), "{case:?}: {back:?}"),
                _ => assert!(back[1].to_bits() == bad.to_bits() || back[1].is_nan() && bad.is_nan(), "{case:?}: {back:?}"),
            }
        }
    }
}

#[test]
fn the_stream_alone_decides_the_draws() {
    let x = normals(200, 0);
    for case in cases() {
        assert_eq!(encode(&*case.codec, &x, None, 6), encode(&*case.codec, &x, None, 6), "{case:?}");
        let draws = there_and_back(&*case.codec, &x, None, 6) != there_and_back(&*case.codec, &x, None, 7);
        let chance = match case.name {
            "quantised" => case.settings["bits"].as_u64().unwrap() < FINE && case.settings["rounding"] != "nearest",
            "rand-k" => !matches!(Stated::of(&case, &x), Stated::Some { k: 200, .. }),
            _ => false,
        };
        assert_eq!(draws, chance, "{case:?}");
    }
}

/// Of a component's error: mean, variance, and a bound on its square's standard deviation.
type Law<'a> = Box<dyn Fn(usize) -> (f64, f64, f64) + 'a>;

/// The law of the errors of x that is stated; `None` where errors are only bounded, or where rounding decides them.
fn law_of_errors<'a>(stated: &'a Stated, x: &'a [f64]) -> Option<Law<'a>> {
    Some(match stated {
        Stated::AtMost(_) => return None,
        Stated::Grid { step, fractions: f, rounding } => match rounding.as_str() {
            "stochastic" => Box::new(move |j| (0.0, step * step * f[j] * (1.0 - f[j]), step * step / 2.0)),
            "dither" => Box::new(move |_| (0.0, step * step / 12.0, step * step * (1.0f64 / 180.0).sqrt())),
            // Which way a number of 50 bits goes is a matter of rounding errors.
            _ if *step < 1e-13 * largest(x) => return None,
            _ => Box::new(move |j| {
                let e = step * (if f[j] >= 0.5 { 1.0 } else { 0.0 } - f[j]);
                (e, 0.0, 0.0)
            }),
        },
        Stated::Some { k, scale, largest: false } => {
            let p = *k as f64 / x.len() as f64;
            Box::new(move |j| {
                let (sent, lost) = ((scale - 1.0) * x[j], -x[j]);
                (p * sent + (1.0 - p) * lost, p * (1.0 - p) * (sent - lost).powi(2), (sent.powi(2) - lost.powi(2)).abs())
            })
        }
        Stated::Some { k, .. } => {
            let mut order: Vec<usize> = (0..x.len()).collect();
            order.sort_by(|i, j| x[*j].abs().total_cmp(&x[*i].abs()));
            order.truncate(*k);
            Box::new(move |j| (if order.contains(&j) { 0.0 } else { -x[j] }, 0.0, 0.0))
        }
    })
}

/// The mean and the mean square of each component's error over many draws.
fn mean_errors(case: &Case, x: &[f64], draws: u64) -> (Vec<f64>, Vec<f64>) {
    let (mut mean, mut square) = (vec![0.0; x.len()], vec![0.0; x.len()]);
    for round in 0..draws {
        let back = there_and_back(&*case.codec, x, None, round);
        for j in 0..x.len() {
            let e = back[j] - x[j];
            mean[j] += e / draws as f64;
            square[j] += e * e / draws as f64;
        }
    }
    (mean, square)
}

/// What is stated besides the law of each component: the bounds of errors, and of the variance of stochastic rounding.
fn check_bounds(case: &Case, stated: &Stated, x: &[f64], mean: &[f64], square: &[f64]) {
    match stated {
        Stated::AtMost(bounds) => {
            let bias = mean.iter().zip(bounds).any(|(e, bound)| e.abs() > bound / 100.0);
            assert!(mean.iter().zip(bounds).all(|(e, bound)| e.abs() <= *bound), "{case:?}");
            // Where errors are of the size of rounding, so is any bias.
            assert!(case.codec.is_unbiased() || bias || largest(bounds) < 1e-14, "{case:?} claims a bias and has none");
        }
        Stated::Grid { step, rounding, .. } if rounding == "stochastic" => {
            let total: f64 = square.iter().sum();
            let zeta = x.len() as f64 * (step / 2.0 / largest(x)).powi(2);
            assert!(total <= zeta * x.iter().map(|x| x * x).sum::<f64>(), "{case:?}");
        }
        _ => {}
    }
}

/// Means over many draws against what is stated: bias and variance, with thresholds of five
/// standard errors.
#[test]
fn biases_and_variances_are_those_stated() {
    const DRAWS: u64 = 10_000;
    let root = (DRAWS as f64).sqrt();
    let mut x = normals(13, 1);
    (x[3], x[5]) = (0.0, 1e-9);
    let s = largest(&x);
    for case in cases() {
        let (mean, square) = mean_errors(&case, &x, DRAWS);
        let stated = Stated::of(&case, &x);
        check_bounds(&case, &stated, &x, &mean, &square);
        let Some(law) = law_of_errors(&stated, &x) else { continue };
        let step = if let Stated::Grid { step, .. } = stated { step } else { 0.0 };
        for j in 0..x.len() {
            let (bias, variance, deviation) = law(j);
            // The bias of 32 random bits, and rounding, also of the sums above.
            let small = 2f64.powi(-33) * step + 2f64.powi(-50) * s + DRAWS as f64 * f64::EPSILON * square[j].sqrt();
            let context = format!("{case:?}, component {j}, step {step:e}: mean {:e}, mean square {:e}", mean[j], square[j]);
            assert!((mean[j] - bias).abs() <= 5.0 * variance.sqrt() / root + small, "{context}, stated {bias:e}");
            let raw = variance + bias * bias;
            assert!((square[j] - raw).abs() <= 5.0 * deviation / root + small * (raw.sqrt() * 4.0 + small), "{context}, stated {raw:e}");
            assert!(!case.codec.is_unbiased() || bias.abs() <= 1e-15, "{context}: claims to be unbiased");
        }
        let all_sent = matches!(stated, Stated::Some { k, .. } if k == x.len());
        let bias = (0..x.len()).any(|j| law(j).0.abs() > 1e-14);
        assert!(case.codec.is_unbiased() || bias || all_sent, "{case:?} claims a bias and has none");
    }
}

/// A budget changes how much is sent, not what is true of it.
#[test]
fn unbiased_codecs_stay_so_under_a_budget() {
    const DRAWS: u64 = 10_000;
    let x = normals(13, 2);
    for case in cases() {
        for budget in [3, 20] {
            if case.codec.encoded_len(x.len(), Some(budget)).is_none() {
                continue;
            }
            let (mut mean, mut square) = (vec![0.0; x.len()], vec![0.0; x.len()]);
            for round in 0..DRAWS {
                for (j, b) in there_and_back(&*case.codec, &x, Some(budget), round).iter().enumerate() {
                    mean[j] += (b - x[j]) / DRAWS as f64;
                    square[j] += (b - x[j]).powi(2) / DRAWS as f64;
                }
            }
            let unbiased = (0..x.len()).all(|j| mean[j].abs() <= 5.0 * (square[j] / DRAWS as f64).sqrt() + 1e-9);
            if case.codec.is_unbiased() {
                assert!(unbiased, "{case:?}, {budget} bits: {mean:?}");
            } else if budget == 3 {
                assert!(!unbiased, "{case:?}, {budget} bits: {mean:?}");
            }
        }
    }
}

/// The bytes are a format that other processes read: they do not change unnoticed.
#[test]
fn the_bytes_are_frozen() {
    let x = [1.5, -0.25, 0.0, 1.0, -2.0];
    let hex = |name: &str, settings: Value| -> String {
        let bytes = encode(&*read(name, &settings).unwrap().build(), &x, None, 0);
        bytes.iter().map(|b| format!("{b:02x}")).collect()
    };
    assert_eq!(hex("float32", json!({})), "0000c03f000080be000000000000803f000000c0");
    assert_eq!(hex("quantised", json!({"bits": 4})), FROZEN_STOCHASTIC);
    assert_eq!(hex("quantised", json!({"bits": 4, "rounding": "dither"})), FROZEN_STOCHASTIC, "the same draws");
    assert_eq!(hex("quantised", json!({"bits": 3, "rounding": "nearest"})), "0300000000000000401e0b");
    assert_eq!(hex("top-k", json!({"k": 2})), "0200000020000000000000f83f00000000000000c0");
    assert_eq!(hex("rand-k", json!({"k": 2})), FROZEN_RANDOM);
}
const FROZEN_STOCHASTIC: &str = "0400000000000000407dc700";
const FROZEN_RANDOM: &str = "02000000000000000000000000000000000000c0";

#[test]
fn settings_read_as_written() {
    for case in cases() {
        let written = serde_json::to_value(&*read(case.name, &case.settings).unwrap()).unwrap();
        assert_eq!(written, case.settings, "{case:?}");
    }
    let written = |name, settings| serde_json::to_value(&*read(name, &settings).unwrap()).unwrap();
    assert_eq!(written("quantised", json!({"bits": 4})), json!({"bits": 4, "rounding": "stochastic"}));
    assert_eq!(written("rand-k", json!({"k": 4})), json!({"k": 4, "unbiased": true}));
}

#[test]
fn bad_settings_are_refused() {
    for (name, settings) in [
        ("exact", json!({"bits": 4})),
        ("float32", json!({"k": 4})),
        ("quantised", json!({})),
        ("quantised", json!({"bits": -1})),
        ("quantised", json!({"bits": 4.5})),
        ("quantised", json!({"bits": 4, "rounding": "up"})),
        ("quantised", json!({"bits": 4, "k": 1})),
        ("top-k", json!({"k": 4, "unbiased": true})),
        ("top-k", json!({"k": -4})),
        ("rand-k", json!({"k": 4, "share": 1})),
    ] {
        assert!(read(name, &settings).is_err(), "{name} {settings}");
    }
    for (name, settings, what, help) in [
        ("quantised", json!({"bits": 0}), "bits: 0 is not accepted", "between 1 and 64"),
        ("quantised", json!({"bits": 65}), "bits: 65 is not accepted", "between 1 and 64"),
        ("top-k", json!({"k": 0}), "k: 0 is not accepted", "at least 1"),
        ("rand-k", json!({"fraction": 0.0}), "fraction: 0 is not accepted", "in (0, 1]"),
        ("rand-k", json!({"fraction": 1.5}), "fraction: 1.5 is not accepted", "in (0, 1]"),
        ("top-k", json!({"fraction": -0.5}), "fraction: -0.5 is not accepted", "in (0, 1]"),
        ("top-k", json!({}), "k: neither k nor fraction is given", "either `k`"),
        ("rand-k", json!({"k": 2, "fraction": 0.5}), "k: both k = 2 and fraction = 0.5 are given", "either `k`"),
    ] {
        let e = read(name, &settings).unwrap().check().unwrap_err();
        assert_eq!(e.to_string(), what);
        assert!(e.help.starts_with(help), "{}", e.help);
    }
}

#[test]
fn cut_off_messages_are_refused() {
    for case in cases() {
        for x in [normals(13, 3), vec![0.0; 9]] {
            let bytes = encode(&*case.codec, &x, None, 8);
            for len in 0..bytes.len() {
                let refused = decode(&*case.codec, &bytes[..len], x.len(), 8);
                assert!(refused.is_err(), "{case:?}: {len} of {} bytes", bytes.len());
            }
            // More numbers than were sent; sparse messages may hold any number of zeros.
            if !matches!(case.name, "top-k" | "rand-k") {
                assert!(decode(&*case.codec, &bytes, x.len() + 16, 8).is_err(), "{case:?}");
            }
        }
    }
}

/// Decodes what may be anything: the decoder says no or fills `n` numbers, and asks for
/// no more memory than the bytes and the numbers already take, beside an error's text.
fn decode_anything(case: &Case, bytes: &[u8], n: usize) -> Result<(), TestCaseError> {
    let mut out = vec![0.0; n];
    let mut stream = open(0);
    let (result, Used { asked, .. }) = memory::of(|| case.codec.decode(bytes, &mut stream, &mut out));
    prop_assert!(asked <= bytes.len() + n / 8 + 4096, "{:?}: asked for {} bytes", case, asked);
    match result {
        Ok(used) => prop_assert!(used <= bytes.len() && used >= case.codec.min_len(n), "{:?}", case),
        Err(e) => prop_assert_eq!(e.key, "message"),
    }
    Ok(())
}

proptest! {
    #[test]
    fn arbitrary_bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..600), start in any::<bool>(), k in 0u8..8, n in 0usize..2000) {
        for case in cases() {
            let mut bytes = bytes.clone();
            // Half of them begin as a sparse message does, or they would all fail at once.
            if start && bytes.len() >= 4 {
                bytes[..4].copy_from_slice(&[k, 0, 0, 0]);
            }
            decode_anything(&case, &bytes, n)?;
            decode_anything(&case, &bytes, n % 20)?;
        }
    }

    #[test]
    fn damaged_messages_do_no_harm(n in 0usize..300, round in any::<u64>(), bit in any::<prop::sample::Index>(), cut in any::<prop::sample::Index>()) {
        let x = normals(n, round);
        for case in cases() {
            let mut bytes = encode(&*case.codec, &x, None, round);
            if bytes.is_empty() {
                continue;
            }
            decode_anything(&case, &bytes[..cut.index(bytes.len())], n)?;
            let bit = bit.index(8 * bytes.len());
            bytes[bit / 8] ^= 1 << (bit % 8);
            decode_anything(&case, &bytes, n)?;
        }
    }

    /// Any numbers whatever: what comes out is as the codec states, at any scale.
    #[test]
    fn any_vector_survives(x in prop::collection::vec(any::<f64>(), 0..150), round in any::<u64>(), budget in prop::option::of(0u32..90)) {
        for case in cases() {
            let Some(len) = case.codec.encoded_len(x.len(), budget) else { continue };
            let bytes = encode(&*case.codec, &x, budget, round);
            prop_assert_eq!(bytes.len(), len);
            let (back, used) = decode(&*case.codec, &bytes, x.len(), round).unwrap();
            prop_assert_eq!(used, len);
            let finite = x.iter().all(|x| x.is_finite());
            if case.name != "rand-k" && finite {
                prop_assert!(back.iter().all(|b| b.is_finite()), "{:?}: {:?} became {:?}", case, x, back);
            }
            if case.name == "quantised" && !finite {
                prop_assert!(back.iter().all(|b| b.is_nan()));
            }
        }
    }
}
