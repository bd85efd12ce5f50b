//! `evaluate` with products of feature maps, against a solution by hand.

use crate::common::Folder;

const GAMMA: f64 = 0.8;

/// Rows `(s_0, s_mode, s_other, next_0, next_mode, reward, done)` of an agent; modes are 0, 1 and 2.
fn rows(seed: u64) -> Vec<[f64; 7]> {
    let mut state = seed;
    let mut uniform = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    let (mut x, mut mode) = (0.5, 0.0);
    let step = |i: usize| {
        let next = if uniform() < 0.3 { (3.0 * uniform()).floor() } else { mode };
        let y = (x + (next - 1.0) * 0.2 + 0.3 * (uniform() - 0.5)).clamp(0.0, 1.0);
        let row = [x, mode, uniform(), y, next, x * (1.0 + mode), f64::from(u8::from(i % 17 == 16))];
        (x, mode) = if i % 17 == 16 { (uniform(), 1.0) } else { (y, next) };
        row
    };
    (0..300).map(step).collect()
}

fn write(folder: &Folder) -> Vec<[f64; 7]> {
    let mut all = Vec::new();
    for (name, seed) in [("a", 1), ("b", 2)] {
        let own = rows(seed);
        let line = |r: &[f64; 7]| format!("{},{},{},{},{},0.5,{},{}\n", r[0], r[1], r[2], r[3], r[4], r[5], r[6]);
        let lines: String = own.iter().map(line).collect();
        folder.write(&format!("logs/{name}.csv"), format!("s_0,s_mode,s_other,next_0,next_mode,next_other,reward,done\n{lines}"));
        all.extend(own);
    }
    all
}

/// `phi_i(x) psi_j(mode)` for x in [0, 1], the mode fastest: 1, cos(pi x) and cos(2 pi x) over the root of 3, for each of three modes.
fn product(x: f64, mode: f64) -> [f64; 9] {
    let mut phi = [0.0; 9];
    for i in 0..3 {
        phi[3 * i + mode as usize] = (std::f64::consts::PI * i as f64 * x).cos() / 3f64.sqrt();
    }
    phi
}

/// The solution of `A theta = b` by elimination with pivots.
fn solved(mut a: [[f64; 9]; 9], mut b: [f64; 9]) -> [f64; 9] {
    for k in 0..9 {
        let pivot = (k..9).max_by(|i, j| a[*i][k].abs().total_cmp(&a[*j][k].abs())).unwrap();
        a.swap(k, pivot);
        b.swap(k, pivot);
        let row = a[k];
        for i in k + 1..9 {
            let factor = a[i][k] / row[k];
            a[i].iter_mut().zip(row).for_each(|(x, y)| *x -= factor * y);
            b[i] -= factor * b[k];
        }
    }
    for k in (0..9).rev() {
        let known: f64 = (k + 1..9).map(|j| a[k][j] * b[j]).sum();
        b[k] = (b[k] - known) / a[k][k];
    }
    b
}

#[test]
fn weights_of_products_are_those_of_lstd_by_hand() {
    let folder = Folder::new();
    let all = write(&folder);
    let (mut a, mut b) = ([[0.0; 9]; 9], [0.0; 9]);
    for row in &all {
        let (phi, next) = (product(row[0], row[1]), product(row[3], row[4]));
        let gamma = GAMMA * (1.0 - row[6]);
        for i in 0..9 {
            (0..9).for_each(|j| a[i][j] += phi[i] * (phi[j] - gamma * next[j]));
            b[i] += phi[i] * row[5];
        }
    }
    let theta = solved(a, b);
    let near = |x: f64, y: f64| assert!((x - y).abs() < 1e-8 * (1.0 + y.abs()), "{x} and {y}");
    let features = "fourier:2(s_0) * one-hot(s_mode)";
    let options = ["--gamma", "0.8", "--ridge", "0", "--ranges", "s_0=0:1,s_mode=0:2"];
    for (out, more) in [("o", &["--method", "lstd"][..]), ("h", &["--method", "gmres", "--tol", "1e-12"]), ("c", &[])] {
        let ran = folder.run(&[&["evaluate", "logs", "--features", features, "--out", out], &options[..], more].concat()).exits(0);
        assert!(ran.stdout.contains(&format!("9 features of {features}\n")), "{}", ran.stdout);
        assert!(ran.stdout.contains("  s_other is in none of the features\n"), "{}", ran.stdout);
        let weights = folder.json(&format!("{out}/weights.json"));
        for (x, y) in weights["theta"].as_array().unwrap().iter().zip(theta) {
            near(x.as_f64().unwrap(), y);
        }
        assert_eq!(weights["features"][3], "(cos(pi (s_0))) * (s_mode = 0)");
        assert_eq!(weights["feature_map"]["factors"][1], serde_json::json!({ "features": { "kind": "one-hot" }, "columns": ["s_mode"] }));
    }
    // The settings are in the file, which gives the same run.
    folder.run(&["run", "o/config.toml", "--out", "again", "-q"]).exits(0);
    assert!(folder.read("o/trace.parquet") == folder.read("again/trace.parquet"));
    // States outside of the ranges count as their ends, and columns that no factor takes as nothing.
    folder.write("states.csv", "s_0,s_mode,s_other\n0.25,2,1\n-3,0,7\n0.5,9,0\n");
    folder.run(&["predict", "o/weights.json", "states.csv", "--out", "values.csv"]).exits(0);
    let values = folder.read("values.csv");
    let values = String::from_utf8_lossy(values.as_ref()).to_string();
    for (line, (x, mode)) in values.lines().skip(1).zip([(0.25, 2.0), (0.0, 0.0), (0.5, 2.0)]) {
        let value: f64 = product(x, mode).iter().zip(theta).map(|(phi, theta)| phi * theta).sum();
        near(line.rsplit(',').next().unwrap().parse().unwrap(), value);
    }
    // Sparse: tiles of 40, in each mode 40 of their own.
    let sparse = "tiles:4x100(s_0) * one-hot(s_mode)";
    let ran = folder.run(&[&["evaluate", "logs", "--features", sparse, "--out", "s", "--method", "lstd"], &options[..]].concat()).exits(0);
    assert!(ran.stdout.contains("1200 features of tiles:4x100(s_0) * one-hot(s_mode)"), "{}", ran.stdout);
    folder.run(&["predict", "s/weights.json", "states.csv", "--out", "sparse.csv"]).exits(0);
}

#[test]
fn products_that_do_not_go_with_logs_are_refused() {
    let folder = Folder::new();
    write(&folder);
    for (features, more, says) in [
        ("one-hot(mode) * fourier:3", &[][..], &["there is no state column `mode`", "s_0, s_mode, s_other"][..]),
        ("one-hot(s_0) * fourier:3", &[], &["one-hot, and `s_0` of a", "columns of whole numbers"]),
        ("fourier:3(s_0, s_0)", &[], &["--features", "`s_0` twice in fourier:3"]),
        ("one-hot(s_mode) fourier:3", &[], &["`fourier:3` at character 17 where `*` or the end should be"]),
        ("one-hot(s_mode) * fourier:3 * tiles:2x2", &[], &["neither fourier:3 nor tiles:2x2 names its columns"]),
        ("one-hot(s_mode) * fourier:99(s_0, s_other) * fourier:9(s_0)", &[], &["300000 features", "at most 65536 features"]),
        ("one-hot(s_mode) * fourier:3(s_0)", &["--ranges", "s_other=0:1"], &["a range of `s_other`", "does not take"]),
    ] {
        let args = [&["evaluate", "logs", "--features", features, "--gamma", "0.8", "--out", "o"], more].concat();
        let message = folder.run(&args).exits(2).message();
        says.iter().for_each(|text| assert!(message.contains(text), "`{text}` is not in: {message}"));
        assert!(!folder.path("o").exists());
    }
}
