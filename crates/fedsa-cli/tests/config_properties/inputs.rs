//! Files, keys and values to be mutated, set and removed.

use super::*;

/// The places of all tables of a tree.
pub(super) fn tables(value: &Value, place: &mut Vec<String>, out: &mut Vec<Vec<String>>) {
    let children: Vec<(String, &Value)> = match value {
        Value::Table(table) => table.iter().map(|(key, value)| (key.clone(), value)).collect(),
        Value::Array(items) => items.iter().enumerate().map(|(i, value)| (i.to_string(), value)).collect(),
        _ => return,
    };
    if value.is_table() {
        out.push(place.clone());
    }
    for (key, child) in children {
        place.push(key);
        tables(child, place, out);
        place.pop();
    }
}

/// The value at a place of a tree.
pub(super) fn value_at<'v>(value: &'v mut Value, place: &[String]) -> &'v mut Value {
    place.iter().fold(value, |value, part| match value {
        Value::Array(items) => &mut items[part.parse::<usize>().unwrap()],
        other => other.get_mut(part.as_str()).unwrap(),
    })
}

/// Every table that a file may hold, beside those of the other texts.
pub(super) const TABLES: &str = r#"
[problem]
kind = "linear"
agents = 3
dim = 2
noise = { std = 0.5, radius = 0.3, seed = 1 }

[sampling]
kind = "markov"
start = { state = 0 }

[[method]]
kind = "fedlsa"
step_size = { c = 0.1, t0 = 10 }
local_steps = 3
downlink = { codec = { kind = "float32" } }
uplink = { error_feedback = true, codec = { kind = "quantised", bits = 8 }, media = [{ kind = "erasure", success = 0.9 }, { kind = "gilbert-elliott", to_bad = 0.1, to_good = 0.5 }, { kind = "over-the-air", gain = { law = "constant", value = 0.5 } }, { kind = "bit-budget", bits = 8.0 }] }

[[method]]
kind = "delay-adaptive-sa"
step_size = 0.1
output = { weighted = 0.9 }
uplink = { codec = { kind = "top-k", fraction = 0.5 }, media = [{ kind = "delay", law = "uniform", max = 3 }] }

[[method]]
kind = "dasa"
step_size = 0.1
uplink = { codec = { kind = "rand-k", k = 1 }, media = [{ kind = "late", law = "spikes", probability = 0.5, rounds = 2 }] }

[run]
rounds = 5
record = { points = 3, spacing = "log" }
stop = { residual = 1e-9 }

[figure]
levels = { fedlsa = ["floor"] }
"#;

/// A change of a text.
#[derive(Debug, Clone)]
pub(super) enum Change {
    Delete(prop::sample::Index, usize),
    Insert(prop::sample::Index, String),
    Replace(prop::sample::Index, char),
    Line(prop::sample::Index, prop::sample::Index),
}

pub(super) fn change() -> impl Strategy<Value = Change> {
    let at = any::<prop::sample::Index>();
    let pieces = prop_oneof![
        "[\\[\\]{}=\"'.,#\n\\-0-9a-z_é]{1,3}",
        Just("[[method]]\n".to_string()),
        Just("[problem]\n".to_string()),
        Just("nan".to_string()),
        Just("= 1e400".to_string()),
        Just("\"\"\"".to_string()),
        Just("{ kind = \"exact\" }".to_string()),
    ];
    prop_oneof![
        (at.clone(), 1usize..30).prop_map(|(at, n)| Change::Delete(at, n)),
        (at.clone(), pieces).prop_map(|(at, text)| Change::Insert(at, text)),
        (at.clone(), prop_oneof![any::<char>(), prop::char::range(' ', '~')]).prop_map(|(at, c)| Change::Replace(at, c)),
        (at, any::<prop::sample::Index>()).prop_map(|(from, to)| Change::Line(from, to)),
    ]
}

pub(super) fn changed(text: &str, change: &Change) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    if chars.is_empty() {
        return String::new();
    }
    match change {
        Change::Delete(at, n) => {
            let at = at.index(chars.len());
            chars.drain(at..chars.len().min(at + n));
        }
        Change::Insert(at, piece) => {
            let at = at.index(chars.len());
            chars.splice(at..at, piece.chars());
        }
        Change::Replace(at, c) => {
            let at = at.index(chars.len());
            chars[at] = *c;
        }
        // A line moves somewhere else.
        Change::Line(from, to) => {
            let mut lines: Vec<&str> = text.lines().collect();
            let line = lines.remove(from.index(lines.len()));
            lines.insert(to.index(lines.len() + 1), line);
            return lines.join("\n");
        }
    }
    chars.into_iter().collect()
}

pub(super) const KEYS: &[&str] = &[
    "id",
    "title",
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
    "agents",
    "states",
    "features",
    "gamma",
    "path",
    "a",
    "b",
    "noise",
    "std",
    "batch",
    "start",
    "state",
    "*",
    "FedLSA",
    "SCAFFLSA",
    "a.b",
    "0",
    "1",
    "label",
    "step_size",
    "c",
    "t0",
    "local_steps",
    "participants",
    "talk_probability",
    "uplink",
    "codec",
    "expect",
    "at",
    "status",
    "output",
    "tail",
    "rounds",
    "seeds",
    "record",
    "every",
    "points",
    "stop",
    "mse",
    "values",
    "key",
    "keys",
    "set",
    "x",
    "y",
    "levels",
    "columns",
    "max",
    "metric",
    "expected",
    "tolerance",
    "heterogeneity",
    "kernels",
    "controls",
    "measure_from",
    "",
];

pub(super) const VALUES: &[&str] = &[
    "0",
    "1",
    "2",
    "-1",
    "3.5",
    "nan",
    "inf",
    "-0.0",
    "1e308",
    "9223372036854775807",
    "true",
    "\"\"",
    "\"zero\"",
    "\"limit\"",
    "\"normal\"",
    "\"garnet\"",
    "\"mrp\"",
    "\"linear\"",
    "\"logs\"",
    "\"file\"",
    "\"iid\"",
    "\"mean\"",
    "\"fedhsa\"",
    "\"projected-td\"",
    "\"ideal\"",
    "\"average\"",
    "\"diverges\"",
    "\"data/p.npz\"",
    "\"x.npz\"",
    "\"../start.json\"",
    "\"a*[\"",
    "[]",
    "[1]",
    "[1, 2]",
    "[[1, 2], [3]]",
    "[\"run.rounds\"]",
    "[{}]",
    "{}",
    "{ kind = \"linear\", a = [[[1.0]]], b = [[2.0]] }",
    "{ std = 1.0, radius = 0.5 }",
    "{ every = 2 }",
    "{ \"run.rounds\" = 3 }",
    "1979-05-27",
    "text",
    "",
];

pub(super) fn dotted() -> impl Strategy<Value = String> {
    let part = prop_oneof![4 => prop::sample::select(KEYS).prop_map(str::to_string), 1 => "[ -~é]{0,5}"];
    prop::collection::vec(part, 1..5)
        .prop_map(|parts| parts.iter().map(|p| if *p == "a.b" { "\"a.b\"" } else { p }).collect::<Vec<_>>().join("."))
}

pub(super) fn value() -> impl Strategy<Value = String> {
    prop_oneof![4 => prop::sample::select(VALUES).prop_map(str::to_string), 1 => "[ -~é]{0,8}"]
}

/// A small experiment out of parts that all go together.
pub(super) fn valid() -> impl Strategy<Value = String> {
    let problem = prop::sample::select(vec![
        "kind = \"garnet\"\nagents = 3\nstates = 6\nfeatures = 2\nmin_class = 2\nheterogeneity = \"two-kernels\"",
        "kind = \"mrp\"\nagents = 3\nstates = 4\nfeatures = 2",
        "kind = \"linear\"\nagents = 3\ndim = 2\nnoise = { std = 0.5, radius = 0.3 }",
        "kind = \"random-logistic\"\nagents = 3\ndim = 2\npoints = 4",
        "kind = \"baird\"\nagents = 3\noperator = \"gtd2\"\nkappa = 2",
        "kind = \"fixed-point\"\nagents = 3\ndim = 2\noutcomes = 3",
        "kind = \"q-learning\"\nagents = 3\nstates = 4",
        "kind = \"sarsa\"\nagents = 3\nstates = 4",
        "kind = \"file\"\npath = \"data/p.npz\"",
        "kind = \"file\"\npath = \"./data/../data/p.npz\"",
        "kind = \"logs\"\npath = [\"data/a1.csv\", \"data/a2.csv\"]\ngamma = 0.9\nfeatures = { kind = \"polynomial\", order = 1 }",
        "kind = \"logs\"\npath = \"data\"\ngamma = 0.9\noperator = \"tdc\"\nfeatures = { kind = \"polynomial\", order = 1 }",
        "kind = \"logs\"\npath = \"data\"\ngamma = 0.9\nfeatures = { kind = \"polynomial\", order = 1 }",
    ]);
    let sampling = prop::sample::select(vec![
        "",
        "[sampling]\nkind = \"mean\"\n",
        "[sampling]\nkind = \"iid\"\nbatch = 2\n",
        "[sampling]\nkind = \"markov\"\n",
    ]);
    let method = prop::sample::select(vec![
        "kind = \"fedavg\"\nstep_size = 0.1\nlocal_steps = 3",
        "kind = \"fedlsa\"\nlabel = \"decay\"\nstep_size = { c = 1 }\nlocal_steps = 3\noutput = \"average\"",
        "kind = \"scafflsa\"\nstep_size = 0.1\nlocal_steps = 3\nparticipants = 2",
        "kind = \"scafflsa-random\"\nstep_size = 0.1\ntalk_probability = 0.5\nstart = \"../start.json\"",
        "kind = \"fedhsa\"\nstep_size = 0.1\nlocal_steps = 3\nglobal_step_size = 1",
        "kind = \"projected-td\"\nstep_size = 0.1\nlocal_steps = 3\nradius = 5",
    ]);
    let run = prop::sample::select(vec![
        "seeds = 2",
        "seeds = [5]\nstart = \"root\"",
        "start = [1, 2]\nrecord = [0, 2]",
        "start = \"../start.json\"\nrecord = { every = 2 }",
    ]);
    let varied = prop::sample::select(vec![
        "",
        "[[sweep]]\nkey = \"run.rounds\"\nvalues = [3, 5]\n",
        "[[sweep]]\nkey = \"method.*.step_size\"\nvalues = [0.1, 0.2]\n",
        "[[sweep]]\nkey = \"sampling.kind\"\nvalues = [\"iid\", \"mean\"]\nlabels = [\"i.i.d.\", \"mean\"]\n",
        "[[sweep]]\nkey = \"run.start\"\nvalues = [\"zero\", \"../start.json\"]\n",
        "[[sweep]]\nkey = \"problem\"\nname = \"problem\"\nvalues = [{ kind = \"file\", path = \"data/p.npz\" }, { kind = \"mrp\", agents = 4, states = 4, features = 2 }]\nlabels = [\"file\", \"mrp\"]\n",
        "[[variant]]\nlabel = \"file\"\nset = { problem = { kind = \"file\", path = \"data/p.npz\" } }\n[[variant]]\nlabel = \"logs\"\nset = { problem = { kind = \"logs\", path = \"data/a?.csv\", gamma = 0.5, features = { kind = \"identity\", bias = true } } }\n",
        "[[variant]]\nlabel = \"a\"\n[variant.set]\nrun.rounds = 3\n[[variant]]\nlabel = \"b\"\nsweep = [{ keys = [\"run.rounds\", \"run.seeds\"], values = [[2, 3]] }]\n",
    ]);
    (problem, sampling, prop::collection::vec(method, 1..4), run, varied).prop_map(|(problem, sampling, mut methods, run, varied)| {
        methods.sort_unstable();
        methods.dedup();
        let methods: String = methods.iter().map(|m| format!("[[method]]\n{m}\n")).collect();
        format!("id = \"valid\"\n[problem]\n{problem}\n{sampling}{methods}[run]\nrounds = 4\n{run}\n{varied}")
    })
}
