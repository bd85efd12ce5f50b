use std::f64::consts::PI;

use proptest::prelude::*;

use super::*;

fn columns(k: usize) -> Vec<String> {
    (0..k).map(|j| format!("s_{j}")).collect()
}

/// The map on k columns from 0 to 2. Columns that it does not take have no range.
fn map(text: &str, k: usize) -> Result<FeatureMap> {
    let spec: FeatureSpec = text.parse()?;
    let needs = spec.needs(&columns(k))?;
    let taken = columns(k).into_iter().zip(needs).filter(|(_, needs)| needs.is_taken);
    FeatureMap::new(&spec, &columns(k), &taken.map(|(column, _)| (column, (0.0, 2.0))).collect())
}

fn eval(map: &FeatureMap, state: &[f64]) -> Vec<f64> {
    let mut out = vec![f64::NAN; map.len()];
    map.eval(state, &mut out);
    out
}

fn close(x: &[f64], y: &[f64]) {
    assert_eq!(x.len(), y.len());
    x.iter().zip(y).for_each(|(x, y)| assert!((x - y).abs() < 1e-15, "{x} and {y}"));
}

/// Against the definitions of the maps, on states whose second column has the values 0, 1 and 2.
#[test]
fn products_are_those_of_their_definition_with_the_last_factor_fastest() {
    let map = map("one-hot(s_1) * fourier:1(s_2, s_0)", 3).unwrap();
    assert_eq!(map.len(), 12);
    for (s, mode) in [([0.4f64, 0.0, 1.8], 0), ([1.3, 1.0, 0.2], 1), ([2.0, 2.0, 0.0], 2), ([-5.0, 9.0, 0.7], 2)] {
        let (x, y) = (s[2].clamp(0.0, 2.0) / 2.0, s[0].clamp(0.0, 2.0) / 2.0);
        let cosines = [1.0, (PI * y).cos(), (PI * x).cos(), (PI * (x + y)).cos()].map(|phi| phi / 2.0);
        let expected: Vec<f64> = (0..12).map(|i| if i / 4 == mode { cosines[i % 4] } else { 0.0 }).collect();
        close(&eval(&map, &s), &expected);
    }
    // Three factors that share a column: monomials 1, x, x^2 over the root of 3, x again, and one of two tiles.
    let map = super::product_tests::map("polynomial:2(s_0) * identity:bias(s_0) * tiles:1x2", 2).unwrap();
    let (s, u, root) = (1.2, 0.6, 3f64.sqrt());
    let (powers, line, tile) = ([1.0, u, u * u].map(|x| x / root), [1.0, s], [0.0, 1.0]);
    let expected: Vec<f64> = (0..12).map(|i| powers[i / 4] * line[i / 2 % 2] * tile[i % 2]).collect();
    close(&eval(&map, &[s, 1.5]), &expected);
    assert_eq!((map.takes(0), map.takes(1)), (true, true));
}

#[test]
fn names_say_the_factors_in_order() {
    let names = map("one-hot(s_1) * fourier:1(s_0)", 2).unwrap().names();
    assert_eq!(names[..3], ["(s_1 = 0) * (1)", "(s_1 = 0) * (cos(pi (s_0)))", "(s_1 = 1) * (1)"]);
    let names = map("tiles:1x2(s_0, s_2) * radial:2(s_1)", 3).unwrap().names();
    assert_eq!(names[3], "(tiling 0, tile (0, 1) of s_0, s_2) * (bump at (1) of s_1)");
    let one = map("tiles:1x2(s_1)", 3).unwrap();
    assert_eq!((one.names()[1].as_str(), one.takes(0), one.takes(1)), ("tiling 0, tile (1)", false, true));
}

/// A map of some columns equals the map on states that have these columns only.
#[test]
fn one_factor_is_a_map_of_its_columns() {
    let (some, own) = (map("fourier:2(s_2, s_0)", 4).unwrap(), map("fourier:2", 2).unwrap());
    assert_eq!(eval(&some, &[0.3, f64::NAN, 1.1, 7.0]), eval(&own, &[1.1, 0.3]));
    assert_eq!(some.names()[1], "cos(pi (s_0))");
    assert_eq!(some.ranges().into_keys().collect::<Vec<_>>(), ["s_0", "s_2"]);
}

#[test]
fn products_of_sparse_factors_are_sparse() {
    let map = map("tiles:4x8(s_0, s_1) * one-hot(s_2) * tiles:3x7@21(s_3)", 4).unwrap();
    assert_eq!(map.len(), 256 * 3 * 21);
    let (count, value) = map.sparse().unwrap();
    assert_eq!(count, 12);
    assert!((value - (1.0f64 / 12.0).sqrt()).abs() < 1e-15);
    for i in 0..50 {
        let state = [f64::from(i) / 25.0, f64::from(i % 7) / 3.5, f64::from(i % 3), f64::from(i % 11) / 5.5];
        let phi = eval(&map, &state);
        let expected: Vec<u32> = (0..map.len() as u32).filter(|j| phi[*j as usize] != 0.0).collect();
        assert!(expected.iter().all(|j| (phi[*j as usize] - value).abs() < 1e-15));
        let mut active = [u32::MAX; 12];
        map.active(&state, &mut active);
        assert_eq!(active[..], expected[..]);
    }
    let scaled = map.clone().with_scale(vec![2.0; map.len()]).unwrap();
    assert!(scaled.sparse().is_none(), "features of different sizes");
    let dense = super::product_tests::map("tiles:4x8(s_0, s_1) * fourier:4(s_2)", 3).unwrap();
    assert!(dense.len() > SPARSE_ABOVE && dense.sparse().is_none());
    let full = super::product_tests::map("tiles:4x4(s_0) * fourier:300(s_1)", 2).unwrap();
    assert!(full.len() > MIXED_ABOVE && full.sparse().is_none(), "a quarter of the features is active");
    let few = super::product_tests::map("tiles:2x2(s_0) * one-hot(s_1)", 2).unwrap();
    assert!(few.len() < SPARSE_ABOVE && few.sparse().is_none());
}

/// Inactive features are 0, and active ones have equal bits in both forms.
#[test]
fn products_with_dense_maps_are_sparse() {
    let text = "fourier:3(s_3) * tiles:4x8(s_0, s_1) * polynomial:1(s_2) * one-hot(s_2)";
    let spec: FeatureSpec = text.parse().unwrap();
    let ranges = columns(4).into_iter().zip([(0.0, 2.0), (0.0, 2.0), (0.0, 9.0), (0.0, 2.0)]).collect();
    let map = FeatureMap::new(&spec, &columns(4), &ranges).unwrap();
    assert_eq!((map.len(), map.sparse(), map.is_mixed()), (4 * 256 * 2 * 10, Some((32, 1.0)), true));
    for i in 0..50 {
        let state = [f64::from(i) / 25.0, f64::from(i % 7) / 3.5, f64::from(i % 10), f64::from(i % 11) / 5.5];
        let phi = eval(&map, &state);
        let (mut numbers, mut values) = ([u32::MAX; 32], [f64::NAN; 32]);
        map.active(&state, &mut numbers);
        map.active_values(&state, &mut values);
        assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]));
        let mut expected = vec![0.0; map.len()];
        numbers.iter().zip(&values).for_each(|(j, x)| expected[*j as usize] = *x);
        assert!(phi.iter().zip(&expected).all(|(a, b)| a.to_bits() == b.to_bits() || (*a == 0.0 && *b == 0.0)), "{state:?}");
        assert!(values.iter().any(|x| *x != 0.0));
    }
    assert!(map.clone().with_scale(vec![1.0; map.len()]).unwrap().sparse().is_none());
    // The limit is the limit of tiles.
    assert_eq!(super::product_tests::map("tiles:8x64(s_0, s_1) * fourier:9(s_2)", 3).unwrap().len(), 327_680);
}

/// Large d with few active features is allowed.
#[test]
fn numbers_of_features_are_bounded_by_what_is_sparse() {
    let most = |text: &str| map(text, 4).unwrap_err();
    let e = most("fourier:20(s_0, s_1) * polynomial:20(s_2, s_3)");
    assert_eq!(e.what, "fourier:20(s_0, s_1) * polynomial:20(s_2, s_3) on 4 state columns: 101871 features");
    assert_eq!(e.help, "at most 65536 features, of which the factors have 441, 231: take a lower order or fewer state columns");
    assert_eq!(map("tiles:8x64(s_0, s_1) * tiles:4x128(s_2)", 4).unwrap().len(), 32_768 * 512);
    let e = most("tiles:8x64(s_0, s_1) * tiles:8x64(s_2, s_3)");
    assert_eq!(e.help, "at most 134217728 features, of which the factors have 32768, 32768: take a lower order or fewer state columns");
    let e = most("tiles:1x4294967295(s_0, s_1) * one-hot(s_2) * tiles:9x9(s_3)");
    assert_eq!(e.what, "tiles:1x4294967295(s_0, s_1) * one-hot(s_2) * tiles:9x9(s_3) on 4 state columns: too many to count features");
    // The error's proposal counts features on the same states.
    let map = map("one-hot(s_0) * tiles:8x64", 3).unwrap();
    let count = |text: &str| map.count_of(&text.parse().unwrap());
    assert_eq!((count("one-hot(s_0) * tiles:2x3"), count("fourier:1"), count("fourier:1(s_9)")), (Some(54), Some(8), None));
    let spec: FeatureSpec = "fourier:1(s_0) * polynomial:1".parse().unwrap();
    assert_eq!((spec.count(3), "one-hot(a) * fourier:1".parse::<FeatureSpec>().unwrap().count(3)), (Some(6), None));
}

#[test]
fn texts_are_read_however_blanks_are_set() {
    let spec: FeatureSpec = "one-hot(s_2) * tiles:8x4(s_0, s_1)".parse().unwrap();
    for text in
        ["one-hot(s_2)*tiles:8x4(s_0,s_1)", "  one-hot ( s_2 )*  tiles:8x4( s_0 ,s_1 ) ", "one-hot(\"s_2\") * tiles:8x4(\"s_0\", s_1)"]
    {
        assert_eq!(text.parse::<FeatureSpec>().unwrap(), spec, "{text}");
    }
    assert_eq!(spec.to_string(), "one-hot(s_2) * tiles:8x4(s_0, s_1)");
    let json = r#"{"kind": "product", "factors": [{"features": {"kind": "one-hot"}, "columns": ["s_2"]},
        {"features": {"kind": "tiles", "tilings": 8, "bins": 4}, "columns": ["s_0", "s_1"]}]}"#;
    assert_eq!(serde_json::from_str::<FeatureSpec>(json).unwrap(), spec);
    assert_eq!(" fourier:3 ".parse::<FeatureSpec>().unwrap(), FeatureSpec::Fourier { order: 3, scaled: false });
}

#[test]
fn hostile_texts_are_refused_with_the_place() {
    for (text, what) in [
        ("*", "`*`: `*` at character 1 where a feature map should be"),
        ("fourier:3 *", "`fourier:3 *`: the end where a feature map should be"),
        ("fourier:3(s_0) * rbf:3", "`fourier:3(s_0) * rbf:3`: `rbf:3` at character 18 where a feature map should be"),
        ("fourier:3()", "`fourier:3()`: `)` at character 11 where a column should be"),
        ("fourier:3(s_0", "`fourier:3(s_0`: the end where `,` or `)` should be"),
        ("fourier:3(s_0,)", "`fourier:3(s_0,)`: `)` at character 15 where a column should be"),
        ("fourier:3(s_0))", "`fourier:3(s_0))`: `)` at character 15 where `*` or the end should be"),
        ("fourier:3(s_0) one-hot", "`fourier:3(s_0) one-hot`: `one-hot` at character 16 where `*` or the end should be"),
        ("fourier:3(\"s_0)", "`fourier:3(\"s_0)`: the end where a closing quote of a column should be"),
        ("fourier:3(a(b))", "`fourier:3(a(b))`: `(b))` at character 12 where `,` or `)` should be"),
        ("(s_0)", "`(s_0)`: `(s_0)` at character 1 where a feature map should be"),
        ("ü(\u{7})", "`ü(\\u{7})`: `ü(\\u{7})` at character 1 where a feature map should be"),
    ] {
        let e = text.parse::<FeatureSpec>().unwrap_err();
        assert_eq!((e.key.as_str(), e.what.as_str()), ("features", what));
        assert_eq!(e.help, format!("accepted: {}", FeatureSpec::FORMS));
    }
    let many = vec!["identity(s_0)"; 17].join(" * ");
    for (text, key, what) in [
        ("fourier:3(s_0, s_0)", "features.factors[0].columns", "`s_0` twice in fourier:3"),
        ("one-hot(\"\")", "features.factors[0].columns", "a column without a name in one-hot"),
        ("one-hot(s_0) * columns", "features.factors[1].features", "columns as a factor"),
        ("one-hot(s_0) * tiles:8x8@1023", "features.factors[1].features.hashed", "1023 is not accepted in tiles:8x8@1023"),
        ("one-hot * fourier:3", "features.factors", "neither one-hot nor fourier:3 names its columns"),
        (&many, "features.factors", "17 factors"),
    ] {
        let e = text.parse::<FeatureSpec>().unwrap_err();
        assert_eq!((e.key.as_str(), e.what.as_str()), (key, what));
        assert!(!e.help.is_empty());
    }
}

#[test]
fn factors_that_do_not_go_with_the_states_are_refused() {
    for (text, key, what) in [
        ("one-hot(mode) * fourier:1", "features.factors[0].columns", "there is no state column `mode`, which one-hot takes"),
        ("one-hot(s_0, s_1) * fourier:1", "features.factors[1].columns", "no column is left for fourier:1, which names none"),
        ("radial:2:quantiles(s_0) * radial:3:quantiles(s_0)", "features", "2 and 3 quantiles of `s_0`"),
    ] {
        let e = map(text, 2).unwrap_err();
        assert_eq!((e.key.as_str(), e.what.as_str()), (key, what));
        assert!(!e.help.is_empty());
    }
    let json = |factors: &str| serde_json::from_str::<FeatureSpec>(&format!(r#"{{"kind": "product", "factors": {factors}}}"#)).unwrap();
    for (factors, key) in [
        ("[]", "features.factors"),
        (r#"[{"features": {"kind": "fourier", "order": 1}}]"#, "features.factors"),
        (r#"[{"features": {"kind": "one-hot"}, "columns": []}]"#, "features.factors[0].columns"),
        (r#"[{"features": {"kind": "radial", "centres": 0}, "columns": ["s_0"]}]"#, "features.factors[0].features.centres"),
        (r#"[{"features": {"kind": "product", "factors": []}, "columns": ["s_0"]}]"#, "features.factors[0].features"),
    ] {
        let e = FeatureMap::new(&json(factors), &columns(2), &Ranges::new()).unwrap_err();
        assert!(e.key == key && !e.help.is_empty(), "{factors}: {e:?}");
    }
    // Only columns that need a range have one.
    let spec: FeatureSpec = "one-hot(s_1) * identity(s_0)".parse().unwrap();
    let range = |column: &str, range| Ranges::from([(column.to_string(), range)]);
    let with = |ranges: &Ranges| FeatureMap::new(&spec, &columns(3), ranges);
    assert_eq!(with(&range("s_1", (0.0, 1.0))).unwrap().len(), 2);
    assert_eq!(with(&range("s_0", (0.0, 1.0))).unwrap_err().to_string(), "ranges: `s_1` has no range");
    assert_eq!(with(&range("s_1", (0.0, 0.5))).unwrap_err().what, "one-hot of `s_1`, whose values are from 0 to 0.5");
    let both = ["s_1", "s_2"].map(|column| (column.to_string(), (0.0, 1.0)));
    let e = with(&Ranges::from(both)).unwrap_err();
    assert_eq!(e.to_string(), "ranges: a range of `s_2`, which one-hot(s_1) * identity(s_0) does not take");
    let seen = [(3.0, 3.0), (0.0, 4.0), (5.0, 5.0)];
    assert_eq!(spec.ranges(&columns(3), &seen, &Ranges::new()).unwrap(), range("s_1", (0.0, 4.0)), "constant columns need no range here");
    assert!(spec.needs_ranges() && !spec.needs_statistics());
}

/// Factors get their own statistics of a shared column.
#[test]
fn quantiles_and_moments_are_of_the_factors_that_take_them() {
    let spec: FeatureSpec = "radial:2:quantiles(s_0) * radial:3(s_0) * standardised(s_1)".parse().unwrap();
    let statistics =
        ColumnStatistics { centres: [("s_0".to_string(), vec![0.5, 1.5])].into(), moments: [("s_1".to_string(), (1.0, 2.0))].into() };
    let ranges = Ranges::from([("s_0".to_string(), (0.0, 2.0))]);
    let map = FeatureMap::with_statistics(&spec, &columns(2), &ranges, statistics.clone()).unwrap();
    // x = s_0 / 2: centres at 1/4 and 3/4, half of 1 apart, and at 0, 1/2 and 1.
    let x: f64 = 0.3;
    let bumps = |centres: &[f64]| {
        let all: Vec<f64> = centres.iter().map(|m| (-0.5 * ((x - m) / 0.5).powi(2)).exp()).collect();
        let sum: f64 = all.iter().sum();
        all.into_iter().map(|bump| bump / sum).collect::<Vec<f64>>()
    };
    let (at_quantiles, even, line) = (bumps(&[0.25, 0.75]), bumps(&[0.0, 0.5, 1.0]), [1.0, -0.5]);
    let expected: Vec<f64> = (0..12).map(|i| at_quantiles[i / 6] * even[i / 2 % 3] * line[i % 2]).collect();
    close(&eval(&map, &[0.6, 0.0]), &expected);
    let without = ColumnStatistics { moments: [].into(), ..statistics };
    let e = FeatureMap::with_statistics(&spec, &columns(2), &ranges, without).unwrap_err();
    assert_eq!(e.what, "no mean and standard deviation of `s_1`");
    assert!(spec.needs_statistics());
}

/// Maps with few features that may be factors.
fn plain() -> impl Strategy<Value = FeatureSpec> {
    prop_oneof![
        prop::bool::ANY.prop_map(|bias| FeatureSpec::Identity { bias }),
        (0u32..3).prop_map(|order| FeatureSpec::Polynomial { order }),
        (0u32..3, prop::bool::ANY).prop_map(|(order, scaled)| FeatureSpec::Fourier { order, scaled }),
        (1u32..4, 1u32..4).prop_map(|(tilings, bins)| FeatureSpec::Tiles { tilings, bins, hashed: None }),
        (1u32..4, 1u32..9, 2u32..5).prop_map(|(tilings, bins, slots)| FeatureSpec::Tiles { tilings, bins, hashed: Some(tilings * slots) }),
        (1u32..4, prop::option::of(1e-3..2.0)).prop_map(|(centres, width)| FeatureSpec::Radial { centres, width, quantiles: false }),
        Just(FeatureSpec::OneHot {}),
    ]
}

proptest! {
    /// Written settings read back, as text and as JSON, whatever the columns' names.
    #[test]
    fn what_is_written_is_read(
        factors in prop::collection::vec((plain(), prop::collection::btree_set("[ -~]{1,6}|\\PC{1,4}|.{1,3}", 1..4)), 1..5),
        rest in prop::option::of(plain()),
    ) {
        let named = factors.into_iter().map(|(features, columns)| FeatureFactor::new(features, Some(columns.into_iter().collect())));
        let spec = FeatureSpec::Product { factors: named.chain(rest.map(|features| FeatureFactor::new(features, None))).collect() };
        prop_assert_eq!(spec.to_string().parse::<FeatureSpec>().unwrap(), spec.clone(), "{}", spec);
        prop_assert_eq!(serde_json::from_str::<FeatureSpec>(&serde_json::to_string(&spec).unwrap()).unwrap(), spec);
    }

    /// Any text of the format's words is read, or refused with a place and help.
    #[test]
    fn any_text_is_read_or_refused(
        words in prop::collection::vec(prop_oneof!["one-hot|fourier:1|identity|columns|s_0|[()*,\" ]", ".{0,3}"], 0..12),
    ) {
        let text = words.concat();
        match text.parse::<FeatureSpec>() {
            Ok(spec) => prop_assert_eq!(spec.to_string().parse::<FeatureSpec>().unwrap(), spec),
            Err(e) => prop_assert!(!e.what.is_empty() && !e.help.is_empty() && !e.to_string().chars().any(char::is_control), "{:?}", e),
        }
    }

    /// Factors of any sizes, 1 included, against products of maps of the single factors.
    #[test]
    fn products_are_products_of_their_factors(
        factors in prop::collection::vec((plain(), prop::sample::subsequence(vec![0usize, 1, 2], 1..3)), 1..5),
        state in prop::collection::vec(-0.5..2.5, 3),
    ) {
        let named = |(features, own): &(FeatureSpec, Vec<usize>)| {
            FeatureFactor::new(features.clone(), Some(own.iter().map(|j| format!("s_{j}")).collect()))
        };
        let map = super::product_tests::map(&FeatureSpec::Product { factors: factors.iter().map(named).collect() }.to_string(), 3);
        prop_assume!(map.is_ok());
        let map = map.unwrap();
        let mut expected = vec![1.0];
        for (features, own) in &factors {
            let state: Vec<f64> = own.iter().map(|j| state[*j]).collect();
            let phi = eval(&super::product_tests::map(&features.to_string(), own.len()).unwrap(), &state);
            expected = expected.iter().flat_map(|before| phi.iter().map(move |own| before * own)).collect();
        }
        let phi = eval(&map, &state);
        prop_assert_eq!((phi.len(), map.names().len()), (expected.len(), expected.len()));
        for (phi, expected) in phi.iter().zip(&expected) {
            prop_assert!((phi - expected).abs() <= 1e-14 * (1.0 + expected.abs()));
        }
    }
}
