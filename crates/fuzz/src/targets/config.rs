//! Texts that people write: experiment files, options of the command line.

use std::path::PathBuf;

use clap::Parser;
use fedsa::error::Error;
use fedsa_cli::args::{Cli, Command, Overrides};
use fedsa_cli::commands;
use fedsa_cli::error::ShownError;
use fedsa_data::find::Places;
use fedsa_experiment::bundled;
use fedsa_experiment::config::{Document, Experiment, validate};
use fedsa_experiment::resolve;
use fedsa_problems::features::{ColumnStatistics, FeatureMap, FeatureSpec, Ranges};
use miette::{GraphicalReportHandler, GraphicalTheme};
use toml::{Table, Value};

use crate::{Corpus, Target, Verdict, check_message, refused};

/// Trees of a file and its points, each a copy.
const fn trees(len: usize) -> usize {
    (64 << 20) + 20_000 * len
}

/// Sweeps over more points than this are not tried: they take long for a good reason.
const MAX_POINTS: usize = 150;

/// The points that the sweeps of a tree come to, or more.
fn points(table: &Table) -> usize {
    fn of(sweeps: Option<&Value>) -> usize {
        let values = |sweep: &Value| sweep.get("values").and_then(Value::as_array).map_or(1, Vec::len).max(1);
        sweeps.and_then(Value::as_array).into_iter().flatten().map(values).fold(1, usize::saturating_mul)
    }
    let variants = table.get("variant").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let own = variants.iter().map(|variant| of(variant.get("sweep"))).fold(0, usize::saturating_add).max(1);
    of(table.get("sweep")).saturating_mul(own)
}

/// Checks how a failure is told.
#[track_caller]
fn refused_with(failure: &Error) -> Verdict {
    check_message(&failure.to_string(), &failure.help);
    let mut shown = String::new();
    let handler = GraphicalReportHandler::new_themed(GraphicalTheme::unicode_nocolor()).with_width(80);
    handler.render_report(&mut shown, &ShownError::from(failure.clone())).expect("a report can be shown");
    Verdict::Refused
}

/// What an experiment that was read comes to, and whether `config.toml` says the same.
fn check_experiment(experiment: &Experiment) -> Result<(), Error> {
    let located = |e| experiment.document.failure(e);
    let places = Places { base: PathBuf::from("target/fuzz/no/such/folder"), data: Vec::new() };
    let tables = |experiment: &Experiment| {
        experiment.read_all(
            || (),
            |(), reader| {
                for method in &reader.methods {
                    // What needs the number of agents only.
                    if let Err(e) = method.settings.check(5) {
                        refused(&e);
                    }
                    method.output.rule(reader.run().rounds)?;
                }
                resolve::point(reader, &places)
            },
        )
    };
    let before = tables(experiment)?;
    let labels = experiment.labels().map_err(located)?;
    validate::experiment(experiment, &labels).map_err(located)?;
    // What ran is what config.toml says.
    let written = resolve::file(experiment, &places).map_err(located)?;
    let again = Document::parse("config.toml", &written).and_then(Experiment::read).and_then(|again| Ok((tables(&again)?, again)));
    let (after, again) = again.unwrap_or_else(|e| panic!("what is written is not read: {}\n{written}", e.what));
    let names = |experiment: &Experiment| experiment.points.iter().map(|point| point.label.clone()).collect::<Vec<_>>();
    assert_eq!(names(experiment), names(&again), "{written}");
    for (before, after) in before.into_iter().zip(after) {
        assert!(is_same(&Value::Table(before), &Value::Table(after)), "{written}");
    }
    Ok(())
}

/// Whether two trees are the same whatever the order of keys; NaN is NaN.
fn is_same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Table(a), Value::Table(b)) => a.len() == b.len() && a.iter().all(|(key, x)| b.get(key).is_some_and(|y| is_same(x, y))),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(x, y)| is_same(x, y)),
        (Value::Float(a), Value::Float(b)) => a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan(),
        _ => a == b,
    }
}

// ---------------------------------------------------------------------------------------------

/// Experiment files.
pub const EXPERIMENT: Target =
    Target { name: "experiment", about: "experiment files", corpora: experiments, run: read_experiment, memory: trees };

/// Files that hold every table and most keys, none of them large.
const EVERYTHING: &str = include_str!("../../../fedsa-cli/tests/common/everything.toml");

const LINKS: &str = r#"[problem]
kind = "linear"
a = [[[1.0, 0.0], [0.5, 2.0]], [[1.5, 0.25], [0.0, 1.0]]]
b = [[1.0, -1.0], [0.5, 0.0]]
noise = { std = 0.5, radius = 0.25, seed = 3 }

[[method]]
kind = "qfedtd"
step_size = 0.1

[[method]]
kind = "asyncfedtd"
step_size = 0.1
uplink.media = [{ kind = "delay", law = "stall", period = 10, length = 3, short = 1, before = "nothing" }]

[[method]]
kind = "fedlsa"
step_size = 0.1
local_steps = 2
uplink = { codec = { kind = "top-k", fraction = 0.5 }, error_feedback = true, media = [
  { kind = "gilbert-elliott", to_bad = 0.2, to_good = 0.3 },
  { kind = "late", law = "trace", delays = [0, [1, 2], 3] },
  { kind = "bit-budget", bits = 40, fading_snr = 2.0 },
] }
downlink = { codec = { kind = "quantised", bits = 12, rounding = "dither" } }
output = { weighted = 0.9 }

[[method]]
kind = "dasa"
step_size = 0.1
threshold = 0.2
uplink.media = [{ kind = "late", law = "geometric", mean = 2.0 }, { kind = "erasure", success = 0.5 }]

[[method]]
kind = "fedhsa"
label = "over the air"
step_size = 0.1
local_steps = 4
uplink = { codec = { kind = "rand-k", k = 2, unbiased = false }, media = [{ kind = "clip", norm = 2.0 }, { kind = "noise", std = 0.1 }, { kind = "over-the-air", gain = { law = "rayleigh" }, receiver_noise = 0.2 }] }

[run]
rounds = 3
refused = "skip"
"#;

const WORDS: &[&str] = &[
    "id",
    "problem",
    "sampling",
    "method",
    "run",
    "sweep",
    "variant",
    "figure",
    "check",
    "quick",
    "kind",
    "label",
    "set",
    "values",
    "--unset ",
    "18446744073709551615",
    "0xFFFFFFFFFFFFFFFF",
    "1e400",
    "key",
    "keys",
    "garnet",
    "mrp",
    "file",
    "logs",
    "linear",
    "switching",
    "quadratic",
    "finite-sum",
    "path",
    "features",
    "ranges",
    "fedlsa",
    "fedavg",
    "scafflsa",
    "fedtd",
    "uplink",
    "downlink",
    "codec",
    "media",
    "law",
    "constant",
    "uniform",
    "spikes",
    "trace",
    "delays",
    "[[method]]",
    "[[sweep]]",
    "[[variant]]",
    "[quick]",
    "[method]",
    "[a.b.c]",
    "\"a.b\"",
    "{}",
    "[]",
    "true",
    "inf",
    "nan",
    "zero",
    "root",
    "theta_star",
    "format",
    "start.json",
    "p.npz",
    "method.*.step_size",
    "sweep.0.values",
    "--sweep",
    "=",
    "\"\"\"",
    "'''",
];

fn experiments() -> Vec<Corpus> {
    let page = include_str!("../../../../docs/src/start/first-experiment.md");
    let first = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).expect("the first experiment of the book");
    let mut small: Vec<&str> = vec![EVERYTHING, LINKS, first];
    let (short, long): (Vec<&str>, Vec<&str>) = bundled::ALL.iter().map(|bundled| bundled.text).partition(|text| text.len() < 2500);
    small.extend(short);
    // Small ones are drawn more often: they are read faster.
    vec![Corpus::text(small.clone(), WORDS), Corpus::text(small, WORDS), Corpus::text(long, WORDS)]
}

fn read_experiment(data: &[u8]) -> Verdict {
    let Ok(text) = std::str::from_utf8(data) else { return Verdict::Refused };
    let document = match Document::parse("fuzz.toml", text) {
        Ok(document) => document,
        Err(e) => return refused_with(&e),
    };
    if points(&document.table) > MAX_POINTS {
        return Verdict::PassedOver;
    }
    let read = commands::parse("fuzz.toml", text, &Overrides::default(), false, &fedsa_experiment::Kinds::default());
    match read.and_then(|experiment| check_experiment(&experiment)) {
        Ok(()) => Verdict::Accepted,
        Err(e) => refused_with(&e),
    }
}

// ---------------------------------------------------------------------------------------------

/// Assignments of `--set`.
pub const SET: Target = Target {
    name: "set",
    about: "dotted keys and values of --set, --unset and --sweep",
    corpora: assignments,
    run: read_set,
    memory: trees,
};

fn assignments() -> Vec<Corpus> {
    let seeds = [
        "run.stop.mse=1e-3",
        "method.\"a.b\".step_size=0.5\nmethod.scafflsa-random.participants = 1",
        "method.*.global_step_size=0.25",
        "--sweep method.2.radius=1,2e3\n--sweep sampling.batch=2,3\nrun.start=normal",
        "sweep.0.values=[[2, 4], [3, 6]]",
        "problem = { kind = \"switching\", values = [1, 2] }\nmethod.2.radius = 1e3\nvariant.one.label=1st\nsampling.start=stationary",
        "method.1.uplink.media=[{ kind = \"erasure\", success = 0.5 }]\nrun.start=normal\ntitle=a = b",
        "--unset method.*.uplink\n--unset run.stop\n--unset method.0.output\nmethod.0.local_steps=4",
        "method.0.label = \"plain\"\nfigure.y=residual\ncheck.0.method=plain\nvariant.two.set={}",
    ];
    vec![Corpus::text(seeds, WORDS)]
}

fn read_set(data: &[u8]) -> Verdict {
    let Ok(text) = std::str::from_utf8(data) else { return Verdict::Refused };
    let mut document = Document::parse("base.toml", EVERYTHING).expect("a valid file");
    for line in text.split('\n').take(20) {
        let set = match (line.strip_prefix("--sweep "), line.strip_prefix("--unset ")) {
            (Some(sweep), _) => commands::sweep(&mut document, sweep),
            (None, Some(key)) => commands::unset(&mut document, key),
            (None, None) => commands::set(&mut document, line),
        };
        if let Err(e) = set {
            return refused_with(&e);
        }
    }
    if points(&document.table) > MAX_POINTS {
        return Verdict::PassedOver;
    }
    let read = Experiment::read(document).and_then(|experiment| check_experiment(&experiment));
    match read {
        Ok(()) => Verdict::Accepted,
        Err(e) => refused_with(&e),
    }
}

// ---------------------------------------------------------------------------------------------

/// The command line of `fedsa evaluate`.
pub const EVALUATE: Target = Target {
    name: "evaluate",
    about: "options of fedsa evaluate: --features, --ranges, --set",
    corpora: command_lines,
    run: read_command_line,
    memory: trees,
};

fn command_lines() -> Vec<Corpus> {
    let seeds = [
        "logs/agent_*.parquet\n--features\nfourier:3\n--ranges\ns_0=-1.2:0.6,s_1=-0.07:0.07\n--gamma\n0.99\n--method\nfedhsa\n--out\nDIR",
        "a.csv\nb.csv\n--features=tiles:8x4\n--ranges=s_x=0:1e3\n--method\nscafflsa-random\n--local-steps\n20\n--tol\n0\n--seed\n7",
        "a.csv\n--features\nradial:5:0.3\n--method\nprojected-td\n--set\nmethod.projected-td.radius=2\n--sampling\nmarkov\n--max-rounds\n10",
        "a.csv\n--features\nidentity:bias\n--method\nfedtd\n--step-size\n0.5\n--set\nmethod.0.participants=1",
    ];
    let words = [
        "--features",
        "--ranges",
        "--gamma",
        "--method",
        "--sampling",
        "--step-size",
        "--local-steps",
        "--max-rounds",
        "--tol",
        "--seed",
        "--set",
        "--out",
        "identity",
        "polynomial:2",
        "fourier:3",
        "tiles:1x1",
        "radial:2",
        "fedlsa",
        "scafflsa",
        "qfedtd",
        "mean",
        "iid",
        "s_0=0:1",
    ];
    vec![Corpus::text(seeds, &words)]
}

fn read_command_line(data: &[u8]) -> Verdict {
    let Ok(text) = std::str::from_utf8(data) else { return Verdict::Refused };
    let words = ["fedsa", "evaluate"].into_iter().chain(text.split('\n').take(60));
    let Ok(Cli { command: Command::Evaluate(args), .. }) = Cli::try_parse_from(words) else { return Verdict::Refused };
    let read = commands::evaluate::read(&args, &fedsa_experiment::Kinds::default()).and_then(|experiment| {
        match points(&experiment.document.table) > MAX_POINTS {
            true => Ok(Verdict::PassedOver),
            false => check_experiment(&experiment).map(|()| Verdict::Accepted),
        }
    });
    read.unwrap_or_else(|e| refused_with(&e))
}

// ---------------------------------------------------------------------------------------------

/// Features.
pub const FEATURES: Target = Target {
    name: "features",
    about: "--features, and the maps that they come to",
    corpora: features,
    run: read_features,
    // At most 65536 features, and the monomials that they are made of.
    memory: |len| (16 << 20) + 1000 * len,
};

fn features() -> Vec<Corpus> {
    let seeds = [
        "identity\nx",
        "identity:bias\nx\ny",
        "polynomial:2\nx\ny\nz",
        "fourier:3\nx\ny",
        "tiles:8x4\nx\ny",
        "radial:5\nx",
        "radial:2:0.3\nx\ny",
        "tiles:8x8@1024\nx\ny\nz",
        "fourier:2:scaled\nx",
        "radial:3:quantiles\nx",
        "standardised\nx",
        "one-hot(x0) * tiles:4x3\nx\ny\nz",
        "fourier:2(x0, y1)*identity:bias(\"z\"\"2\")\nx\ny\nz\"",
        "radial:2:quantiles(x0) * standardised(x0)\nx",
    ];
    vec![Corpus::text(
        seeds,
        &[
            "identity",
            "bias",
            "polynomial",
            "fourier",
            "tiles",
            "radial",
            ":",
            "@",
            "scaled",
            "quantiles",
            "standardised",
            "one-hot",
            " * ",
            "(x0)",
            "(x0, y1)",
            "\"",
            "x",
            "65535",
            "65536",
        ],
    )]
}

/// Whether the norm of the features is at most 1.
fn has_bound(spec: &FeatureSpec) -> bool {
    match spec {
        FeatureSpec::Columns {} | FeatureSpec::Identity { .. } | FeatureSpec::Standardised {} => false,
        FeatureSpec::Product { factors } => factors.iter().all(|factor| has_bound(&factor.features)),
        _ => true,
    }
}

fn read_features(data: &[u8]) -> Verdict {
    let Ok(text) = std::str::from_utf8(data) else { return Verdict::Refused };
    let (first, columns) = text.split_once('\n').unwrap_or((text, "x"));
    let spec: FeatureSpec = match first.parse() {
        Ok(spec) => spec,
        Err(e) => return refused(&e),
    };
    assert_eq!(spec.to_string().parse(), Ok(spec.clone()));
    let columns: Vec<String> = columns.split('\n').take(40).enumerate().map(|(i, name)| format!("{name}{i}")).collect();
    let taken = spec.needs(&columns).unwrap_or_default().into_iter().map(|needs| needs.is_taken);
    let ranges: Ranges = columns.iter().zip(taken).filter(|(_, is)| *is).map(|(name, _)| (name.clone(), (-1.0, 2.0))).collect();
    // What data would say: bumps at these quantiles, and these means and deviations.
    let mut statistics = ColumnStatistics::default();
    for (name, needs) in columns.iter().zip(spec.needs(&columns).unwrap_or_default()) {
        if let Some(count) = needs.quantiles.filter(|count| *count <= 1 << 16) {
            statistics.centres.insert(name.clone(), (0..count).map(|c| f64::from(c) * 0.1 - 0.5).collect());
        }
        if needs.moments {
            statistics.moments.insert(name.clone(), (0.5, 2.0));
        }
    }
    let map = match FeatureMap::with_statistics(&spec, &columns, &ranges, statistics) {
        Ok(map) => map,
        Err(e) => return refused(&e),
    };
    assert!(spec.count(columns.len()).is_none_or(|d| d == map.len()));
    if map.len() <= 1024 {
        assert_eq!(map.names().len(), map.len());
        for state in [0.0, 5.0, -f64::MAX] {
            let mut phi = vec![f64::NAN; map.len()];
            map.eval(&vec![state; columns.len()], &mut phi);
            let bound = if has_bound(&spec) { 1.0 + 1e-12 } else { f64::INFINITY };
            let norm = phi.iter().map(|x| x * x).sum::<f64>().sqrt();
            assert!(phi.iter().all(|x| x.is_finite()) && norm <= bound, "{spec} at {state}: {phi:?}");
        }
    }
    Verdict::Accepted
}
