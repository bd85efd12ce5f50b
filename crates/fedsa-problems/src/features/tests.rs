use std::f64::consts::PI;

use fedsa::columns::RunningMoments;
use proptest::prelude::*;

use super::*;

fn columns(k: usize) -> Vec<String> {
    (0..k).map(|j| format!("s_{j}")).collect()
}

fn unit(k: usize) -> Ranges {
    columns(k).into_iter().map(|c| (c, (0.0, 1.0))).collect()
}

fn map(spec: &str, k: usize) -> FeatureMap {
    FeatureMap::new(&spec.parse().unwrap(), &columns(k), &unit(k)).unwrap()
}

fn eval(map: &FeatureMap, state: &[f64]) -> Vec<f64> {
    let mut out = vec![f64::NAN; map.len()];
    map.eval(state, &mut out);
    out
}

#[test]
fn fourier_features_go_over_all_frequencies_the_last_column_fastest() {
    let map = map("fourier:2", 2);
    let (x, y) = (0.3, 0.8);
    let expected: Vec<f64> = (0..9).map(|i| (PI * ((i / 3) as f64 * x + (i % 3) as f64 * y)).cos() / 3.0).collect();
    for (a, b) in eval(&map, &[x, y]).iter().zip(&expected) {
        assert!((a - b).abs() < 1e-15, "{a} {b}");
    }
    assert_eq!(map.names()[..4], ["1", "cos(pi (s_1))", "cos(pi (2 s_1))", "cos(pi (s_0))"]);
    assert_eq!(map.names()[7], "cos(pi (2 s_0 + s_1))");
}

#[test]
fn polynomials_have_all_monomials_by_degree() {
    let map = map("polynomial:3", 3);
    let names = map.names();
    assert_eq!(map.len(), 20);
    assert_eq!(names[..10].join(", "), "1, s_0, s_1, s_2, s_0^2, s_0 s_1, s_0 s_2, s_1^2, s_1 s_2, s_2^2");
    assert_eq!((names[10].as_str(), names[19].as_str()), ("s_0^3", "s_2^3"));
    let x = [0.5, 0.25, 0.75];
    let scale = 1.0 / 20f64.sqrt();
    let at = |name: &str| eval(&map, &x)[names.iter().position(|n| n == name).unwrap()] / scale;
    assert!((at("s_0 s_1 s_2") - 0.5 * 0.25 * 0.75).abs() < 1e-15);
    assert!((at("s_1 s_2^2") - 0.25 * 0.75 * 0.75).abs() < 1e-15);
    assert_eq!(names.iter().collect::<std::collections::BTreeSet<_>>().len(), 20, "all different");
}

#[test]
fn one_hot_features_have_a_weight_for_each_tuple_of_whole_numbers() {
    let ranges = Ranges::from([("s_0".to_string(), (-1.0, 1.0)), ("s_1".to_string(), (3.0, 6.0))]);
    let map = FeatureMap::new(&FeatureSpec::OneHot {}, &columns(2), &ranges).unwrap();
    assert_eq!((map.len(), map.sparse()), (12, None));
    let mut seen = std::collections::BTreeSet::new();
    for (i, (x, y)) in (-1..=1).flat_map(|x| (3..=6).map(move |y| (x, y))).enumerate() {
        let phi = eval(&map, &[f64::from(x), f64::from(y)]);
        assert!(phi.iter().enumerate().all(|(j, value)| *value == if i == j { 1.0 } else { 0.0 }), "{x} {y}: {phi:?}");
        let mut active = [u32::MAX];
        map.active(&[f64::from(x), f64::from(y)], &mut active);
        assert_eq!((active[0] as usize, map.names()[i].clone()), (i, format!("s_0 = {x}, s_1 = {y}")));
        seen.insert(i);
    }
    assert_eq!(seen.len(), map.len());
    // States outside count as the nearest tuple, and are counted.
    assert_eq!(eval(&map, &[9.0, 0.0]), eval(&map, &[1.0, 3.0]));
    let mut counts = [0, 0];
    map.count_clipped(&[9.0, 0.0, -1.0, 6.0, -2.0, 4.0], &mut counts);
    assert_eq!(counts, [2, 1]);
    // Many values are sparse.
    let wide = Ranges::from([("s_0".to_string(), (0.0, 4095.0))]);
    let wide = FeatureMap::new(&FeatureSpec::OneHot {}, &columns(1), &wide).unwrap();
    assert_eq!((wide.len(), wide.sparse()), (4096, Some((1, 1.0))));
    let halves = Ranges::from([("s_0".to_string(), (0.0, 1.5))]);
    let e = FeatureMap::new(&FeatureSpec::OneHot {}, &columns(1), &halves).unwrap_err();
    assert_eq!((e.key.as_str(), e.what.as_str()), ("features", "one-hot of `s_0`, whose values are from 0 to 1.5"));
}

#[test]
fn identities_clip_but_do_not_scale() {
    let spec = FeatureSpec::Identity { bias: true };
    let ranges = Ranges::from([("s_1".to_string(), (-2.0, 2.0))]);
    let map = FeatureMap::new(&spec, &columns(2), &ranges).unwrap();
    assert_eq!(eval(&map, &[100.0, -7.0]), [1.0, 100.0, -2.0]);
    assert_eq!(map.names(), ["1", "s_0", "s_1"]);
    assert_eq!(map.ranges(), ranges);
}

#[test]
fn tiles_are_one_per_tiling_and_all_are_reachable() {
    let map = map("tiles:4x3", 2);
    assert_eq!((map.len(), map.names().len()), (36, 36));
    let mut reached = [false; 36];
    for i in 0..200 {
        for j in 0..200 {
            let phi = eval(&map, &[i as f64 / 199.0, j as f64 / 199.0]);
            let active: Vec<usize> = (0..36).filter(|&f| phi[f] != 0.0).collect();
            assert_eq!(active.iter().map(|f| f / 9).collect::<Vec<_>>(), [0, 1, 2, 3]);
            active.iter().for_each(|&f| reached[f] = true);
        }
    }
    assert_eq!(reached, [true; 36]);
}

#[test]
fn bumps_peak_at_their_centres() {
    let map = map("radial:3:0.1", 2);
    assert_eq!(map.names()[5], "bump at (0.5, 1)");
    let phi = eval(&map, &[0.5, 1.0]);
    assert!((phi[5] - 1.0).abs() < 1e-4);
    // Of centres (0, 0), (0, 0.5), .. in units of the width.
    let at = |i: usize| (i / 3) as f64 / 2.0 - 0.3;
    let beside = |i: usize| (i % 3) as f64 / 2.0 - 0.45;
    let heights: Vec<f64> = (0..9).map(|i| (-0.5 * (at(i) * at(i) + beside(i) * beside(i)) / 0.01).exp()).collect();
    for (value, height) in eval(&map, &[0.3, 0.45]).iter().zip(&heights) {
        assert!((value - height / heights.iter().sum::<f64>()).abs() < 1e-15, "{value} {height}");
    }
    // So narrow that far bumps underflow: the nearest still counts.
    let narrow = super::tests::map("radial:3:0.001", 2);
    assert_eq!(eval(&narrow, &[0.3, 0.3]).iter().sum::<f64>(), 1.0);
}

#[test]
fn too_many_features_are_refused_before_any_is_made() {
    for (spec, k) in [("fourier:3", 20), ("polynomial:20", 20), ("tiles:8x16", 9), ("radial:5", 70), ("fourier:4294967295", 1)] {
        let spec: FeatureSpec = spec.parse().unwrap();
        let e = FeatureMap::new(&spec, &columns(k), &unit(k)).unwrap_err();
        assert!(e.what.starts_with(&format!("{spec} on {k} state columns: ")), "{e}");
    }
    let spec = FeatureSpec::Fourier { order: 3, scaled: false };
    let e = FeatureMap::new(&spec, &columns(20), &unit(20)).unwrap_err();
    assert_eq!(e.what, "fourier:3 on 20 state columns: 1099511627776 features");
}

#[test]
fn ranges_come_from_the_logs_unless_given() {
    let given = Ranges::from([("s_1".to_string(), (0.0, 10.0))]);
    let seen = [(-1.0, 1.0), (5.0, 6.0)];
    let spec = FeatureSpec::Fourier { order: 1, scaled: false };
    let ranges = spec.ranges(&columns(2), &seen, &given).unwrap();
    assert_eq!(ranges, Ranges::from([("s_0".to_string(), (-1.0, 1.0)), ("s_1".to_string(), (0.0, 10.0))]));
    let constant = [(2.0, 2.0); 2];
    assert_eq!(spec.ranges(&columns(2), &constant, &given).unwrap()["s_0"], (2.0, 3.0));
    let unknown = Ranges::from([("x".to_string(), (0.0, 1.0))]);
    assert_eq!(spec.ranges(&columns(2), &seen, &unknown).unwrap_err().help, "the state columns are s_0, s_1");
}

#[test]
fn bad_settings_are_refused() {
    for text in [
        "",
        "fourier",
        "fourier:-1",
        "fourier:x",
        "tiles:8",
        "tiles:0x8",
        "tiles:8x0",
        "radial:0",
        "radial:3:0",
        "identity:2",
        "rbf:3",
        "tiles:8x8@1023",
        "tiles:8x8@8",
        "tiles:8x8@",
        "fourier:scaled",
        "fourier:3:scaled:scaled",
        "radial:quantiles",
        "standardised:1",
    ] {
        let e = text.parse::<FeatureSpec>().unwrap_err();
        assert!(e.key.starts_with("features"), "{text}: {e}");
    }
    let spec = FeatureSpec::Fourier { order: 1, scaled: false };
    let missing = FeatureMap::new(&spec, &columns(2), &unit(1)).unwrap_err();
    assert_eq!(missing.to_string(), "ranges: `s_1` has no range");
    for range in [(1.0, 1.0), (2.0, 1.0), (f64::NAN, 1.0), (0.0, f64::INFINITY), (-f64::MAX, f64::MAX)] {
        assert!(FeatureMap::new(&spec, &columns(1), &Ranges::from([("s_0".into(), range)])).is_err(), "{range:?}");
    }
    assert!(FeatureMap::new(&spec, &[], &Ranges::new()).is_err());
}

#[test]
fn settings_read_as_written() {
    for text in [
        "columns",
        "identity",
        "identity:bias",
        "polynomial:2",
        "fourier:3",
        "tiles:8x4",
        "radial:5",
        "radial:5:0.3",
        "fourier:3:scaled",
        "tiles:8x8@1024",
        "radial:5:quantiles",
        "radial:5:0.3:quantiles",
        "standardised",
    ] {
        let spec: FeatureSpec = text.parse().unwrap();
        assert_eq!(spec.to_string(), text);
        let json = serde_json::to_string(&spec).unwrap();
        assert_eq!(serde_json::from_str::<FeatureSpec>(&json).unwrap(), spec);
    }
    let spec: FeatureSpec = serde_json::from_str(r#"{"kind": "identity"}"#).unwrap();
    assert_eq!(spec, FeatureSpec::Identity { bias: false });
    assert!(serde_json::from_str::<FeatureSpec>(r#"{"kind": "fourier", "order": 3, "bias": true}"#).is_err());
}

#[test]
fn scaled_frequencies_are_divided_by_the_root_of_their_norm() {
    let (plain, scaled) = (map("fourier:3", 2), map("fourier:3:scaled", 2));
    let (x, y) = (eval(&plain, &[0.3, 0.8]), eval(&scaled, &[0.3, 0.8]));
    assert_eq!(plain.names(), scaled.names());
    for (i, (x, y)) in x.iter().zip(&y).enumerate() {
        let (a, b) = ((i / 4) as f64, (i % 4) as f64);
        let divisor = if i == 0 { 1.0 } else { a.hypot(b).sqrt() };
        assert!((x / divisor - y).abs() < 1e-15, "{i}");
    }
}

/// A second implementation of the hash, on 128-bit numbers.
fn hash(tiling: u64, tiles: &[usize]) -> u64 {
    let wrap = |x: u128| (x & u128::from(u64::MAX)) as u64;
    let mix = |x: u64| {
        let x = wrap(u128::from(x) + 0x9e37_79b9_7f4a_7c15);
        let x = wrap(u128::from(x ^ (x >> 30)) * 0xbf58_476d_1ce4_e5b9);
        let x = wrap(u128::from(x ^ (x >> 27)) * 0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    };
    tiles.iter().fold(mix(tiling + 1), |hash, tile| mix(hash ^ *tile as u64))
}

#[test]
fn hashed_tiles_are_tiles_of_which_some_share_a_feature() {
    let (plain, hashed) = (map("tiles:4x3", 2), map("tiles:4x3@28", 2));
    assert_eq!((plain.len(), hashed.len(), hashed.names()[8].as_str()), (36, 28, "tiling 1, hashed 1"));
    let mut together = std::collections::BTreeMap::new();
    for i in 0..40 {
        for j in 0..40 {
            let state = [f64::from(i) / 39.0, f64::from(j) / 39.0];
            let (x, y) = (eval(&plain, &state), eval(&hashed, &state));
            let active = |phi: &[f64]| (0..phi.len()).filter(|f| phi[*f] != 0.0).collect::<Vec<_>>();
            let (x, y) = (active(&x), active(&y));
            assert_eq!((x.len(), y.len()), (4, 4), "one of each tiling");
            for (t, (x, y)) in x.iter().zip(&y).enumerate() {
                let (row, column) = (x % 9 / 3, x % 3);
                assert_eq!(*y, 7 * t + (hash(t as u64, &[row, column]) % 7) as usize);
                together.entry(*y).or_insert_with(std::collections::BTreeSet::new).insert(*x);
            }
            let mut numbers = [0; 4];
            hashed.active(&state, &mut numbers);
            assert_eq!(numbers.map(|n| n as usize)[..], y[..]);
        }
    }
    assert!(together.values().any(|tiles| tiles.len() > 1), "9 tiles in 7 places");
    // More tiles than a `usize` counts: 20 columns have 8^20.
    let many = map("tiles:8x8@4096", 20);
    assert_eq!((many.len(), many.sparse().map(|(m, _)| m)), (4096, Some(8)));
    assert!(eval(&many, &[0.7; 20]) != eval(&many, &[0.2; 20]));
}

/// All tiles of four columns of 12 in 128 places: counts vary as those of random places, by a chi-squared law with 127 degrees of freedom
/// and standard deviation 16.
#[test]
fn hashes_spread_evenly() {
    let map = map("tiles:1x12@128", 4);
    let (n, mut counts) = (12i32.pow(4), [0.0; 128]);
    for i in 0..n {
        let state = [0, 1, 2, 3].map(|j| f64::from(i / 12i32.pow(j) % 12) / 12.0 + 0.01);
        let phi = eval(&map, &state);
        counts[phi.iter().position(|x| *x != 0.0).unwrap()] += 1.0;
    }
    let expected = f64::from(n) / 128.0;
    let chi: f64 = counts.iter().map(|count: &f64| (count - expected).powi(2) / expected).sum();
    assert!((chi - 127.0).abs() < 4.0 * 16.0, "{chi}");
}

#[test]
fn bumps_at_quantiles_are_where_the_data_say() {
    let statistics = ColumnStatistics { centres: [("s_0".to_string(), vec![0.0, 1.0, 4.0])].into(), ..ColumnStatistics::default() };
    let spec: FeatureSpec = "radial:3:quantiles".parse().unwrap();
    let ranges = Ranges::from([("s_0".to_string(), (-4.0, 4.0))]);
    let with = |statistics: &ColumnStatistics| FeatureMap::with_statistics(&spec, &columns(1), &ranges, statistics.clone());
    let map = with(&statistics).unwrap();
    // x = (s + 4) / 8: centres at 0.5, 0.625 and 1, with a mean distance of a quarter.
    let x = (2.5 + 4.0) / 8.0;
    let bump = |centre: f64| (-0.5 * ((x - centre) / 0.25f64).powi(2)).exp();
    let (all, phi) = ([bump(0.5), bump(0.625), bump(1.0)], eval(&map, &[2.5]));
    for (phi, bump) in phi.iter().zip(all) {
        assert!((phi - bump / all.iter().sum::<f64>()).abs() < 1e-15);
    }
    assert_eq!(map.names()[1], "bump at (0.625)");
    let without = FeatureMap::new(&spec, &columns(1), &ranges).unwrap_err();
    assert_eq!(without.what, "no quantiles of `s_0`");
    let wrong = |centres: Vec<f64>| with(&ColumnStatistics { centres: [("s_0".into(), centres)].into(), ..ColumnStatistics::default() });
    assert!(wrong(vec![0.0, 1.0]).is_err() && wrong(vec![0.0, 2.0, 1.0]).is_err() && wrong(vec![0.0, 1.0, f64::NAN]).is_err());
}

/// As `numpy.quantile`: linear interpolation.
#[test]
fn quantiles_interpolate() {
    assert_eq!(quantiles(&[1.0, 2.0, 4.0, 8.0, 16.0], 2), [2.0, 8.0]);
    assert_eq!(quantiles(&[0.0, 1.0], 4), [0.125, 0.375, 0.625, 0.875]);
    assert_eq!(quantiles(&[3.0], 2), [3.0, 3.0]);
}

#[test]
fn standardised_columns_have_mean_zero_and_deviation_one() {
    let moments = [("s_10".to_string(), (1e9, 2.0)), ("s_9".to_string(), (-3.0, 0.5))].into();
    let columns = ["s_9", "s_10"].map(String::from);
    let spec = FeatureSpec::Standardised {};
    let statistics = ColumnStatistics { moments, ..ColumnStatistics::default() };
    let map = FeatureMap::with_statistics(&spec, &columns, &Ranges::new(), statistics.clone()).unwrap();
    assert_eq!((eval(&map, &[-2.0, 1e9 - 1.0]), map.names()[2].as_str()), (vec![1.0, 2.0, -0.5], "standardised s_10"));
    let ranges = Ranges::from([("s_9".to_string(), (-3.5, -2.5))]);
    let clipped = FeatureMap::with_statistics(&spec, &columns, &ranges, statistics).unwrap();
    assert_eq!(eval(&clipped, &[-2.0, 1e9]), [1.0, 1.0, 0.0]);
    assert!(FeatureMap::new(&spec, &columns, &Ranges::new()).unwrap_err().what.starts_with("no mean and standard deviation"));
    // Joined from parts, far from 0.
    let numbers: Vec<f64> = (0..1000).map(|i| 1e9 + f64::from(i % 7)).collect();
    let parts = numbers.chunks(333).map(|part| RunningMoments::of(part.iter().copied()));
    let (mean, std) = parts.fold(RunningMoments::default(), RunningMoments::join).mean_and_deviation();
    let (low, n) = (numbers.iter().map(|x| x - 1e9).collect::<Vec<f64>>(), 1000.0);
    let exact = low.iter().sum::<f64>() / n;
    let spread = (low.iter().map(|x| (x - exact).powi(2)).sum::<f64>() / n).sqrt();
    assert!((mean - 1e9 - exact).abs() < 1e-6 && (std - spread).abs() < 1e-9, "{mean} {std}");
}

proptest! {
    /// The assumption of the theory, for every map that sees the scaled state.
    #[test]
    fn features_have_norm_at_most_one(
        spec in prop_oneof![
            (0u32..4).prop_map(|order| FeatureSpec::Polynomial { order }),
            (0u32..4, prop::bool::ANY).prop_map(|(order, scaled)| FeatureSpec::Fourier { order, scaled }),
            (1u32..9, 1u32..6).prop_map(|(tilings, bins)| FeatureSpec::Tiles { tilings, bins, hashed: None }),
            (1u32..9, 1u32..20, 2u32..9).prop_map(|(tilings, bins, slots)| FeatureSpec::Tiles { tilings, bins, hashed: Some(tilings * slots) }),
            (1u32..5, prop::option::of(1e-3..2.0)).prop_map(|(centres, width)| FeatureSpec::Radial { centres, width, quantiles: false }),
        ],
        state in prop::collection::vec(-3.0..3.0, 1..4),
    ) {
        let k = state.len();
        let ranges: Ranges = columns(k).into_iter().enumerate().map(|(j, c)| (c, (-1.0, 1.0 + j as f64))).collect();
        let map = FeatureMap::new(&spec, &columns(k), &ranges).unwrap();
        let phi = eval(&map, &state);
        prop_assert_eq!(map.names().len(), map.len());
        prop_assert!(phi.iter().all(|v| v.is_finite()));
        prop_assert!(phi.iter().map(|v| v * v).sum::<f64>() <= 1.0 + 1e-12);
        // States outside the ranges are clipped to them.
        let clipped: Vec<f64> = state.iter().enumerate().map(|(j, s)| s.clamp(-1.0, 1.0 + j as f64)).collect();
        prop_assert_eq!(eval(&map, &clipped), phi);
    }
}
