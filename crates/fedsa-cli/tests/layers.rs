//! The modules of a crate lie in layers; a module imports modules of its own layer or of lower ones only.
//!
//! `crates/fedsa/tests/import_rules.rs` has the rules of crate `fedsa`, module by module.

use crate::imports::{Arrows, imports_of};

/// The modules of a crate, from the lowest layer to the highest.
type Layers = &'static [&'static [&'static str]];

const LAYERS: &[(&str, Layers)] = &[
    (
        "fedsa-methods",
        &[
            &["bit_allocation", "nested_grid"],
            // Rules that several methods share.
            &["local"],
            &["server"],
            &["control_rule", "descent", "first_policy", "local_sa"],
            // Methods.
            &[
                "adaptive_newton",
                "agd",
                "anderson",
                "bfgs",
                "delayed_sa",
                "done",
                "fedhsa",
                "fedlin",
                "fedlsa",
                "fednl",
                "fedprox",
                "fedtd",
                "fitted_q",
                "gd",
                "giant",
                "gmres",
                "importance_averaging",
                "lbfgs",
                "lspi",
                "lstd",
                "newton",
                "one_shot",
                "projected_td",
                "q_shed",
                "scafflsa",
                "scafflsa_random",
                "scaffold",
                "shed",
            ],
            &["presets"],
            &["prelude"],
        ],
    ),
    (
        "fedsa-problems",
        &[
            &["index_chain", "kernel", "scope"],
            &["lazy_index", "memory"],
            // Problems, and what their settings name and read.
            &["control", "elsewhere", "features", "files", "linear", "logs", "noise", "nonlinear", "rows", "settings", "td"],
            &["kinds"],
            &["prelude"],
        ],
    ),
    ("fedsa-evaluate", &[&["default_ridge", "held_out", "inference", "policy_value", "uncertainty"]]),
    (
        "fedsa-theory",
        &[
            &["accuracy", "phase", "shed", "symmetric", "unknown", "work"],
            // What a round does to iterates.
            &["fedhsa_bounds", "fedlsa", "fixed_point", "link", "map", "stability"],
            // Errors after many rounds.
            &["bounds", "constants", "exact_mse", "gauss_markov", "markov"],
            &["nonlinear"],
            &["cost", "predict"],
            &["tune"],
            &["privacy"],
        ],
    ),
    (
        "fedsa-data",
        &[
            &["cells", "decimals", "field", "machine", "memory_log", "store"],
            &["given", "nested"],
            // Files of one format.
            &["appended", "atomic", "batch", "delays", "find", "input", "npz", "parquet", "regular", "separated"],
            &["lines", "memory"],
            // Data of any format.
            &["datasets", "logs", "public", "trace"],
            &["table"],
            &["linear_model", "weights"],
        ],
    ),
    (
        "fedsa-figure",
        &[
            &["about", "axis", "point", "scene", "text"],
            &["pdf", "range", "raster", "style", "svg", "trace"],
            &["sheet"],
            // Parts of pictures.
            &["legend", "overlap", "panel"],
            &["chart", "heat", "table"],
        ],
    ),
    (
        "fedsa-experiment",
        &[
            &["axis", "choose", "error", "excerpt", "folder", "kinds", "memory", "names", "numbers", "options", "tables"],
            &["config", "file_schema", "made", "resolve"],
            &["bundled", "plan"],
            &["estimate", "finished", "observer", "predict", "results", "run_memory", "stability", "trace_lines"],
            &["checks", "execute", "outcome", "output", "picture", "summary", "theory"],
            // Calls that return data.
            &["apply", "check", "compare", "deployment", "evaluate", "fit", "foretold", "improve", "parts", "redraw", "run", "tune"],
        ],
    ),
    (
        "fedsa-report",
        &[
            &["cited", "html", "rounds"],
            &["any_json", "run", "thin"],
            &["ends", "found"],
            &["sections", "sweep", "theory"],
            &["curves"],
            &["page"],
        ],
    ),
    ("fedsa-cli", &[&["error", "hints"], &["args"], &["commands"], &["program"]]),
];

/// The module of a file; `None` of the root, which hands on names of all modules, and of what tests share.
fn module(file: &str) -> Option<&str> {
    let name = file.split(['/', '.']).next().expect("a first piece");
    (!["lib", "main", "testing"].contains(&name)).then_some(name)
}

/// What is wrong with the imports of a crate.
fn violations(layers: &[&[&str]], arrows: &Arrows) -> Vec<String> {
    let layer = |module: &str| layers.iter().position(|modules| modules.contains(&module));
    let mut wrong = Vec::new();
    for (file, imported) in arrows {
        let Some(from) = module(file) else { continue };
        let Some(own) = layer(from) else {
            wrong.push(format!("{file}: a module without a layer"));
            continue;
        };
        let higher = imported.iter().filter(|to| module(to).and_then(layer).is_some_and(|other| other > own));
        wrong.extend(higher.map(|to| format!("{file} imports {to}")));
    }
    let is_there = |name: &str| arrows.keys().any(|file| module(file) == Some(name));
    let absent = layers.iter().copied().flatten().filter(|name| !is_there(name));
    wrong.extend(absent.map(|name| format!("{name} is in the table, and no module")));
    wrong
}

#[test]
fn modules_import_no_higher_layer() {
    let wrong = |(name, layers): &(&str, Layers)| {
        let found = violations(layers, &imports_of(name));
        found.into_iter().map(|what| format!("{name}: {what}")).collect::<Vec<_>>()
    };
    let wrong: Vec<String> = LAYERS.iter().flat_map(wrong).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_is_forbidden_is_found() {
    let arrow = |from: &str, to: &[&str]| (from.to_string(), to.iter().map(|file| (*file).to_string()).collect());
    let arrows = Arrows::from([arrow("lib.rs", &["b.rs"]), arrow("a/x.rs", &["b.rs", "a/mod.rs"]), arrow("b.rs", &["a/x.rs", "c.rs"])]);
    assert!(violations(&[&["a", "b"]], &arrows).is_empty());
    assert_eq!(violations(&[&["a"], &["b"]], &arrows), ["a/x.rs imports b.rs"]);
    assert_eq!(violations(&[&["a"]], &arrows), ["b.rs: a module without a layer"]);
    assert_eq!(violations(&[&["b", "a", "d"]], &arrows), ["d is in the table, and no module"]);
}
