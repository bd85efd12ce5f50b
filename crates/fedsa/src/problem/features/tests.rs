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
    // So narrow that far bumps underflow: the nearest still stands.
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
    let spec = FeatureSpec::Fourier { order: 3 };
    let e = FeatureMap::new(&spec, &columns(20), &unit(20)).unwrap_err();
    assert_eq!(e.what, "fourier:3 on 20 state columns: 1099511627776 features");
}

#[test]
fn ranges_come_from_the_logs_unless_given() {
    let given = Ranges::from([("s_1".to_string(), (0.0, 10.0))]);
    let seen = [(-1.0, 1.0), (5.0, 6.0)];
    let ranges = ranges_of(&columns(2), &seen, &given).unwrap();
    assert_eq!(ranges, Ranges::from([("s_0".to_string(), (-1.0, 1.0)), ("s_1".to_string(), (0.0, 10.0))]));
    let constant = [(2.0, 2.0); 2];
    assert!(ranges_of(&columns(2), &constant, &given).unwrap_err().what.starts_with("`s_0` is 2 in every transition"));
    let unknown = Ranges::from([("x".to_string(), (0.0, 1.0))]);
    assert_eq!(ranges_of(&columns(2), &seen, &unknown).unwrap_err().help, "the state columns are s_0, s_1");
}

#[test]
fn bad_settings_are_refused() {
    for text in
        ["", "fourier", "fourier:-1", "fourier:x", "tiles:8", "tiles:0x8", "tiles:8x0", "radial:0", "radial:3:0", "identity:2", "rbf:3"]
    {
        let e = text.parse::<FeatureSpec>().unwrap_err();
        assert!(e.key.starts_with("features"), "{text}: {e}");
    }
    let spec = FeatureSpec::Fourier { order: 1 };
    let missing = FeatureMap::new(&spec, &columns(2), &unit(1)).unwrap_err();
    assert_eq!(missing.to_string(), "ranges: `s_1` has no range");
    for range in [(1.0, 1.0), (2.0, 1.0), (f64::NAN, 1.0), (0.0, f64::INFINITY), (-f64::MAX, f64::MAX)] {
        assert!(FeatureMap::new(&spec, &columns(1), &Ranges::from([("s_0".into(), range)])).is_err(), "{range:?}");
    }
    assert!(FeatureMap::new(&spec, &[], &Ranges::new()).is_err());
}

#[test]
fn settings_read_as_written() {
    for text in ["columns", "identity", "identity:bias", "polynomial:2", "fourier:3", "tiles:8x4", "radial:5", "radial:5:0.3"] {
        let spec: FeatureSpec = text.parse().unwrap();
        assert_eq!(spec.to_string(), text);
        let json = serde_json::to_string(&spec).unwrap();
        assert_eq!(serde_json::from_str::<FeatureSpec>(&json).unwrap(), spec);
    }
    let spec: FeatureSpec = serde_json::from_str(r#"{"kind": "identity"}"#).unwrap();
    assert_eq!(spec, FeatureSpec::Identity { bias: false });
    assert!(serde_json::from_str::<FeatureSpec>(r#"{"kind": "fourier", "order": 3, "bias": true}"#).is_err());
}

proptest! {
    /// The theory's assumption, for every map that sees the scaled state.
    #[test]
    fn features_have_norm_at_most_one(
        spec in prop_oneof![
            (0u32..4).prop_map(|order| FeatureSpec::Polynomial { order }),
            (0u32..4).prop_map(|order| FeatureSpec::Fourier { order }),
            (1u32..9, 1u32..6).prop_map(|(tilings, bins)| FeatureSpec::Tiles { tilings, bins }),
            (1u32..5, prop::option::of(1e-3..2.0)).prop_map(|(centres, width)| FeatureSpec::Radial { centres, width }),
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
