//! Rounds written out in plain arithmetic, and the guide that quotes them.
//!
//! Two agents, d = 1, no noise: `g_0(theta) = 3 - 2 theta` and `g_1(theta) = -1 - theta`, equal weights. The root of
//! their mean is `theta* = 2/3`; the agents' own roots are 3/2 and -1.

#![allow(clippy::needless_range_loop, reason = "indices as in the formulas")]

use crate::common::{field, linear, run_from};
use fedsa::sampling::Law;
use fedsa_methods::fedlsa::FedLsa;
use fedsa_methods::scafflsa::Scafflsa;

#[test]
fn one_round_of_fedlsa() {
    let (a, b, eta, theta) = ([2.0, 1.0], [3.0, -1.0], 0.1, 0.5); // g_c(theta) = b_c - a_c theta
    let mut v = [0.0; 2];
    for c in 0..2 {
        let first = theta + eta * (b[c] - a[c] * theta); // H = 2 local steps from theta_t
        let second = first + eta * (b[c] - a[c] * first);
        v[c] = (second - theta) / (2.0 * eta); // what agent c sends
    }
    let next = theta + 2.0 * eta * (v[0] + v[1]) / 2.0; // what the server does
    let field = field(&linear(&[([[a[0]]], [b[0]]), ([[a[1]]], [b[1]])]), Law::Mean);
    let mut run = run_from(&field, &FedLsa::new(eta, 2), 0, &[theta]);
    run.step();
    assert!((run.theta()[0] - next).abs() < 1e-15);
}

#[test]
fn three_rounds_of_scafflsa() {
    let (a, b, eta, mut theta, mut xi) = ([2.0, 1.0], [3.0, -1.0], 0.1, 0.5, [0.0; 2]);
    let field = field(&linear(&[([[a[0]]], [b[0]]), ([[a[1]]], [b[1]])]), Law::Mean);
    let mut run = run_from(&field, &Scafflsa::new(eta, 2), 0, &[theta]);
    for _ in 0..3 {
        let mut v = [0.0; 2];
        for c in 0..2 {
            let first = theta + eta * (b[c] - a[c] * theta + xi[c]); // the drift is the control variate xi_c
            let second = first + eta * (b[c] - a[c] * first + xi[c]);
            v[c] = (second - theta) / (2.0 * eta);
        }
        let mean = (v[0] + v[1]) / 2.0;
        theta += 2.0 * eta * mean;
        for c in 0..2 {
            xi[c] += mean - v[c]; // agents learn the mean from the next model
        }
        run.step();
        assert!((run.theta()[0] - theta).abs() < 1e-15);
        let controls = run.controls().expect("SCAFFLSA has control variates");
        assert!((0..2).all(|c| (controls[c][0] - xi[c]).abs() < 1e-14));
    }
}

/// The text without indentation, line by line.
fn flat(text: &str) -> String {
    text.lines().map(str::trim).collect::<Vec<_>>().join("\n")
}

/// Every block of Rust in the guide for authors is a piece of the file that the comment above it names.
#[test]
fn the_guide_for_authors_quotes_what_is_compiled() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap_or_else(|e| panic!("{path}: {e}"));
    let guide = read("docs/src/extend/parts.md");
    let blocks: Vec<&str> = guide.split("```rust\n").collect();
    assert!(blocks.len() > 5, "{} blocks", blocks.len() - 1);
    for pair in blocks.windows(2) {
        let named = pair[0].trim_end().lines().last().unwrap_or("");
        let path = named.strip_prefix("<!-- ").and_then(|rest| rest.strip_suffix(" -->"));
        let path = path.unwrap_or_else(|| panic!("no file is named above a block, but {named:?}"));
        let quoted = flat(pair[1].split("```").next().unwrap_or(""));
        assert!(flat(&read(path)).contains(quoted.trim_end()), "{path} does not contain\n{quoted}");
    }
}
