//! Bad input: a clear message that names file, line and value and says what would
//! be accepted; exit status 2; nothing written. All tests run the real program.

use crate::common::{Folder, SMALL, arrays, edited, mrp, mrp_with, npz_bytes, small, with_problem};
use fedsa::problem::arrays::Arrays;

/// Words that only the program's author would understand.
const INTERNAL: &[&str] =
    &["panicked", "struct ", "enum ", "usize", "u64", "f64", "untagged", "BadInput", "Some(", "Err(", "unwrap", "backtrace"];

/// Runs the program, which must refuse: status 2, all of `expected` in the message, nothing changed.
#[track_caller]
fn refused(folder: &Folder, args: &[&str], expected: &[&str]) -> String {
    let before = folder.everything();
    let output = folder.run(args).exits(2);
    let message = output.message();
    for text in expected {
        assert!(message.contains(text), "{args:?}: `{text}` is not in\n{}", output.stderr);
    }
    for word in INTERNAL {
        assert!(!message.contains(word), "{args:?}: `{word}` is in\n{}", output.stderr);
    }
    assert!(folder.everything() == before, "{args:?}: something was written\n{}", output.stderr);
    message
}

/// A file that `run` and `check` must refuse alike, at a line.
#[track_caller]
fn refused_file(text: &str, line: &str, expected: &[&str]) {
    let folder = Folder::with(text);
    let at = 1 + text.lines().position(|l| l.trim() == line).unwrap_or_else(|| panic!("no line `{line}`"));
    let place = format!("[small.toml:{at}:");
    let expected: Vec<&str> = expected.iter().copied().chain([place.as_str(), "help: "]).collect();
    let run = refused(&folder, &["run", "small.toml"], &expected);
    let check = refused(&folder, &["check", "small.toml"], &expected);
    assert_eq!(run, check);
}

/// [`SMALL`] with a line replaced by `to`; the message must show the last line of `to`.
#[track_caller]
fn refused_edit(from: &str, to: &str, expected: &[&str]) {
    refused_file(&small(from, to), to.lines().last().unwrap(), expected);
}

/// [`SMALL`] with text appended.
#[track_caller]
fn refused_end(more: &str, line: &str, expected: &[&str]) {
    refused_file(&format!("{SMALL}\n{more}\n"), line, expected);
}

#[test]
fn unknown_keys_are_answered_with_the_nearest() {
    refused_edit("id = \"small\"", "problm = 1", &["unknown key `problm`; did you mean `problem`?", "help: one of id, title"]);
    refused_edit("agents = 4", "agent = 4", &["problem.agent: unknown key `agent`; did you mean `agents`?", "one of agents, states"]);
    refused_edit("kind = \"iid\"", "kind = \"iid\"\nbach = 2", &["sampling.bach: unknown key `bach`; did you mean `batch`?"]);
    refused_edit("step_size = 0.1", "stepsize = 0.1", &["method[0].stepsize: unknown key `stepsize`; did you mean `step_size`?", "label"]);
    refused_edit("rounds = 20", "round = 20", &["run.round: unknown key `round`; did you mean `rounds`?"]);
    refused_edit("rounds = 20", "rounds = 20\nstop = { msee = 1 }", &["run.stop.msee: unknown key", "`mse`"]);
    refused_edit("label = \"FedLSA\"", "uplink = { codc = 1 }", &["method[0].uplink.codc: unknown key `codc`; did you mean `codec`?"]);
    refused_end("[[sweep]]\nkey = \"run.rounds\"\nvalus = [1]", "valus = [1]", &["sweep[0].valus: unknown key", "`values`"]);
    refused_end("[[variant]]\nlabel = \"a\"\nst = {}", "st = {}", &["variant[0].st: unknown key `st`; did you mean `set`?"]);
    refused_end("[figure]\ncolums = 2", "colums = 2", &["figure.colums: unknown key `colums`; did you mean `columns`?"]);
    refused_end("[[check]]\nkind = \"curve\"\nmetod = \"FedLSA\"", "metod = \"FedLSA\"", &["check[0].metod: unknown key", "`method`"]);
    // A second [[method]] is shown at its own line, and a key inside a value at that value.
    let second = edited(SMALL, "label = \"SCAFFLSA\"\nstep_size", "label = \"SCAFFLSA\"\nstepsize");
    refused_file(&second, "stepsize = 0.1", &["method[1].stepsize"]);
    // Quick settings are read with and without --quick.
    refused_end("[quick]\n\"run.round\" = 1", "\"run.round\" = 1", &["run.round: unknown key `round`", "`rounds`"]);
    refused_end("[quick]\nrun.round = 1", "run.round = 1", &["run.round: unknown key `round`", "`rounds`"]);
    refused_end(
        "[quick]\n\"method.Nobody.step_size\" = 1",
        "\"method.Nobody.step_size\" = 1",
        &["there is no method `Nobody`", "one of FedLSA, SCAFFLSA"],
    );
}

#[test]
fn wrong_types_are_told_with_the_value() {
    refused_edit("id = \"small\"", "id = 3", &["id: 3 is not accepted", "a text in quotes"]);
    refused_edit("id = \"small\"", "id = \"../x\"", &["id: \"../x\" is not accepted", "a relative path"]);
    refused_edit("agents = 4", "agents = \"four\"", &["problem.agents: \"four\" is not accepted", "a whole number, at least 0"]);
    refused_edit("agents = 4", "agents = 4.5", &["problem.agents: 4.5 is not accepted", "a whole number"]);
    refused_edit("agents = 4", "agents = -4", &["problem.agents: -4 is not accepted", "at least 0"]);
    refused_edit(
        "kind = \"iid\"",
        "kind = \"idd\"",
        &["sampling.kind: unknown value `idd`; did you mean `iid`?", "one of mean, iid, markov"],
    );
    refused_edit("kind = \"iid\"", "kind = 1", &["sampling.kind: 1 is not accepted", "a name in quotes"]);
    refused_edit("step_size = 0.1", "step_size = \"x\"", &["method[0].step_size: \"x\" is not accepted", "a positive number, or { c = .."]);
    refused_edit("step_size = 0.1", "step_size = { c = 1, t = 3 }", &["method[0].step_size.t: unknown key `t`", "one of c, t0"]);
    refused_edit("rounds = 20", "rounds = \"many\"", &["run.rounds: \"many\" is not accepted"]);
    refused_edit("seeds = 2", "seeds = \"two\"", &["run.seeds: \"two\" is not accepted", "a count of seeds, or a list"]);
    refused_edit("seeds = 2", "record = { evry = 1 }", &["run.record.evry: unknown key `evry`; did you mean `every`?"]);
    refused_edit("label = \"FedLSA\"", "label = 1", &["method[0].label: 1 is not accepted", "a text in quotes"]);
    refused_edit("label = \"FedLSA\"", "expect = \"divergs\"", &["method[0].expect: unknown value `divergs`; did you mean `diverges`?"]);
    refused_edit("label = \"FedLSA\"", "output = \"mean\"", &["method[0].output: unknown value `mean`", "one of last, average"]);
    refused_edit("label = \"FedLSA\"", "output = { tail = 1.5 }", &["method[0].output.tail: 1.5 is not accepted", "a share in (0, 1]"]);
    refused_end("[figure]\ny_range = 3", "y_range = 3", &["figure.y_range: 3 is not accepted", "a list of two"]);
    refused_end("[figure]\ny = 3", "y = 3", &["figure.y: 3 is not accepted", "the name of a metric"]);
    refused_end("[[sweep]]\nkey = \"run.rounds\"\nvalues = 3", "values = 3", &["sweep[0].values: 3 is not accepted", "a list"]);
    refused_end("[[check]]\nkind = \"curve\"\nmethod = 3", "method = 3", &["check[0].method: 3 is not accepted"]);
    refused_file(
        &small("[run]\nrounds = 20\nseeds = 2", "").replace("id = ", "run = 3\nid = "),
        "run = 3",
        &["run: 3 is not accepted", "a table"],
    );
    let (problem, end) = (SMALL.find("[problem]").unwrap(), SMALL.find("[sampling]").unwrap());
    let text = SMALL.replace(&SMALL[problem..end], "").replace("id = ", "problem = 3\nid = ");
    refused_file(&text, "problem = 3", &["problem: 3 is not a table", "[problem] with kind = .."]);
    let one = format!("{}[run]\nrounds = 1\n", SMALL[..SMALL.rfind("[[method]]").unwrap()].replace("[[method]]", "[method]"));
    refused_file(&one, "[method]", &["method: this is one table", "[[method]], in double brackets"]);
}

#[test]
fn missing_keys_are_named() {
    refused_file(&small("step_size = 0.1\n", ""), "[[method]]", &["method[0]: the key `step_size` is missing", "step_size = .."]);
    refused_file(&small("rounds = 20\n", ""), "[run]", &["run: the key `rounds` is missing"]);
    refused_file(&small("kind = \"garnet\"\n", ""), "[problem]", &["the problem has no kind", "one of garnet, mrp, file"]);
    refused_file(&small("kind = \"fedlsa\"\n", ""), "[[method]]", &["method[0].kind: the method has no kind", "one of fedlsa, scafflsa"]);
    refused_edit("kind = \"garnet\"", "kind = \"garnt\"", &["there is no problem `garnt`; did you mean `garnet`?"]);
    refused_edit("kind = \"fedlsa\"", "kind = \"fedlas\"", &["there is no method `fedlas`; did you mean `fedlsa`?"]);
    refused_file(&with_problem("kind = \"file\""), "[problem]", &["problem: the key `path` is missing"]);
    let logs = "kind = \"logs\"\npath = \"x\"\ngamma = 0.9\nfeatures = { kind = \"fourier\" }";
    refused_file(&with_problem(logs), "features = { kind = \"fourier\" }", &["problem.features: the key `order` is missing"]);
    for (table, what) in [("[problem]", "no [problem] table"), ("[run]", "no [run] table")] {
        let (start, rest) = SMALL.split_once(table).unwrap();
        let end = rest.find("\n[").map_or(rest.len(), |i| i + 1);
        refused(&Folder::with(&format!("{start}{}", &rest[end..])), &["run", "small.toml"], &["small.toml: there is", what, table]);
    }
    refused(&Folder::with(""), &["run", "small.toml"], &["small.toml: there is no [problem] table"]);
    refused(&Folder::with(&SMALL[..SMALL.find("[[method]]").unwrap()]), &["run", "small.toml"], &["there is no [run] table"]);
    let none = small("[[method]]", "[run]\nrounds = 1\n#");
    refused(&Folder::with(&none[..none.find('#').unwrap()]), &["run", "small.toml"], &["there is no [[method]]", "at least one"]);
}

#[test]
fn numbers_out_of_range_are_refused() {
    for step in ["-0.1", "0.0", "nan", "inf", "-inf"] {
        let shown = step.replace("nan", "NaN").replace("0.0", "0");
        let shown = if step == "-0.1" { step } else { &shown };
        refused_edit(
            "step_size = 0.1",
            &format!("step_size = {step}"),
            &[&format!("method[0].step_size: {shown} is not accepted"), "a positive number"],
        );
    }
    refused_edit("step_size = 0.1", "step_size = { c = -1.0 }", &["method[0].step_size.c: -1 is not accepted"]);
    refused_edit("local_steps = 10", "local_steps = 0", &["method[0].local_steps: 0 is not accepted", "between 1 and 100000000"]);
    refused_edit("local_steps = 10", "local_steps = 10000000000", &["local_steps: 10000000000 is not accepted", "between 1 and"]);
    refused_edit("local_steps = 10", "local_steps = -1", &["local_steps: -1 is not accepted"]);
    let with = |line: &str| format!("{line}\nlocal_steps = 10");
    let line = |text: &str, line: &str, expected: &[&str]| refused_file(&small("local_steps = 10", &with(text)), line, expected);
    line("participants = 0", "participants = 0", &["method[0].participants: 0 is not accepted", "between 1 and the number of agents, 4"]);
    line("participants = 5", "participants = 5", &["participants: 5 is not accepted", "the number of agents, 4"]);
    line("global_step_size = 0", "global_step_size = 0", &["global_step_size: 0 is not accepted", "a positive number"]);
    refused_edit("rounds = 20", "rounds = 0", &["run.rounds: 0 is not accepted", "between 1 and 4294967294"]);
    // Messages name rounds below the largest one.
    let largest = format!("between 1 and {}", fedsa::message::MAX_ROUNDS);
    refused_edit("rounds = 20", "rounds = 4294967295", &["run.rounds: 4294967295 is not accepted", &largest]);
    refused_edit("rounds = 20", "rounds = 9999999999", &["run.rounds: 9999999999 is not accepted"]);
    refused_edit("seeds = 2", "seeds = 0", &["run.seeds: 0 seeds", "a count from 1"]);
    refused_edit("seeds = 2", "seeds = []", &["run.seeds: 0 seeds"]);
    refused_edit("seeds = 2", "seeds = [3, 1, 3]", &["run.seeds: the seed 3 is given twice", "different seeds"]);
    refused_edit("seeds = 2", "seeds = [1, -3]", &["run.seeds[1]: -3 is not accepted"]);
    refused_edit("seeds = 2", "seeds = 1000000000000", &["run.seeds: 1000000000000 seeds"]);
    refused_edit("seeds = 2", "record = { every = 0 }", &["run.record.every: 0 is not accepted", "at least 1"]);
    refused_edit("seeds = 2", "record = { every = 2, points = 3 }", &["both every and points"]);
    refused_file(
        &small("rounds = 20", "rounds = 4000000000\nrecord = { every = 1 }"),
        "record = { every = 1 }",
        &["4000000000 recorded rounds", "every = 401"],
    );
    refused_edit("seeds = 2", "stop = { mse = -1.0 }", &["run.stop.mse: -1 is not accepted", "a positive number"]);
    refused_edit("kind = \"iid\"", "kind = \"iid\"\nbatch = 0", &["sampling.batch: 0 is not accepted"]);
    refused_edit("kind = \"iid\"", "kind = \"iid\"\nbatch = 1000000000000", &["sampling.batch: 1000000000000 is not accepted"]);
    refused_edit("agents = 4", "agents = 0", &["agents: 0 is not accepted"]);
    refused_edit("features = 3", "features = 11", &["features: 11 is not accepted", "between 1 and states = 10"]);
    refused_edit("min_class = 2", "gamma = 1.0", &["gamma: 1 is not accepted", "in [0, 1)"]);
    refused_edit("min_class = 2", "gamma = nan", &["gamma: NaN is not accepted"]);
    // A size that no memory can hold is bad input, not a crash.
    for key in ["agents = 4", "states = 10", "features = 3", "min_class = 2"] {
        let name = key.split(' ').next().unwrap();
        refused_edit(key, &format!("{name} = 1000000000000000"), &[&format!("problem.{name}: 1000000000000000 is not accepted")]);
    }
    refused_edit("min_class = 2", "actions = 9000000000000000000", &["problem.actions:"]);
    for (problem, key) in
        [("kind = \"mrp\"\nstates = 9000000000000000000", "states"), ("kind = \"linear\"\nagents = 9000000000000000000", "agents")]
    {
        let line = problem.lines().last().unwrap();
        refused_file(&with_problem(problem), line, &[&format!("problem.{key}: 9000000000000000000 is not accepted")]);
    }
    refused_file(&with_problem("kind = \"linear\"\ndim = 1000000000"), "dim = 1000000000", &["problem.dim: a problem of", "numbers"]);
}

#[test]
fn starts_are_checked() {
    refused_edit("seeds = 2", "start = [0.0, nan, 0.0]", &["run.start: component 1 is NaN", "3 finite numbers"]);
    refused_edit("seeds = 2", "start = [0.0, 0.0]", &["run.start: 2 numbers for d = 3", "3 finite numbers"]);
    refused_edit("seeds = 2", "start = \"zeroo\"", &["run.start: there is no start `zeroo`; did you mean `zero`?"]);
    refused_edit("seeds = 2", "start = true", &["run.start: true is not accepted", "a list of numbers"]);
    refused_edit("seeds = 2", "start = \"none.npz\"", &["run.start: none.npz: there is no such file"]);
    refused_edit("label = \"FedLSA\"", "start = [1.0]", &["method[0].start: 1 numbers for d = 3"]);
    let none = "method[0].controls: unknown key `controls` of fedlsa, which has no control variates";
    refused_edit("label = \"FedLSA\"", "controls = \"ideal\"", &[none, "it is for scafflsa, scafflsa-random, scaffold"]);
    let none = "method[1].measure_from: unknown key `measure_from` of scafflsa, whose limit theory does not know";
    refused_edit("label = \"SCAFFLSA\"", "measure_from = \"limit\"", &[none, "it is for fedlsa, fedtd, delayed-sa"]);
    for (file, contents, message) in [
        ("s.json", "[1, 2", "not JSON"),
        ("s.json", "{\"a\": 1}", "no list of numbers"),
        ("s.json", "[1, \"x\", 3]", "\"x\" is not a number"),
        ("s.npz", "PK", "not a readable .npz"),
    ] {
        let folder = Folder::with(&small("seeds = 2", &format!("start = \"{file}\"")));
        folder.write(file, contents);
        refused(&folder, &["run", "small.toml"], &["run.start: s.", message, "[small.toml:27:"]);
    }
    let folder = Folder::with(&small("seeds = 2", "start = \"s.npz\""));
    folder.write("s.npz", npz_bytes(&arrays(&[("x", &[3], &[0.0; 3])])));
    refused(&folder, &["run", "small.toml"], &["run.start: s.npz: theta: there is no such array", "the arrays are `x`"]);
}

#[test]
fn labels_are_unique_and_usable() {
    let twice = ["method[1].label: two methods are called `FedLSA`", "a label of its own"];
    refused_edit("label = \"SCAFFLSA\"", "label = \"FedLSA\" # twice", &twice);
    refused_edit("label = \"FedLSA\"", "label = \"\"", &["method[0].label: \"\" is not accepted", "a text that is not empty"]);
    for label in ["format", "theta_star"] {
        let line = format!("label = \"{label}\"");
        refused_edit("label = \"FedLSA\"", &line, &[&format!("method[0].label: \"{label}\" is not accepted"), "theta.npz"]);
    }
}

#[test]
fn sweeps_and_variants_are_checked() {
    let sweep = |rest: &str| format!("[[sweep]]\n{rest}");
    let bad = |rest: &str, expected: &[&str]| refused_end(&sweep(rest), rest.lines().last().unwrap(), expected);
    bad("key = \"run.rounds\"\nvalues = []", &["sweep[0].values: [] is not accepted", "at least one value"]);
    bad("values = [1]\nkey = \"method.Nobody.step_size\"", &["there is no method `Nobody`", "one of FedLSA, SCAFFLSA, or *"]);
    bad("values = [1]\nkey = \"probem.agents\"", &["`probem.agents` is in none of the tables", "did you mean `problem`?"]);
    bad("values = [1]\nkey = \"id\"", &["`id` is in none of the tables that can differ by point", "problem, sampling, method, run"]);
    bad("values = [1]\nkey = \"run..rounds\"", &["an empty part in a dotted key"]);
    bad("key = \"problem.agents\"\nvalues = [2, \"x\"]", &["problem.agents: \"x\" is not accepted (at agents=x)", "a whole number"]);
    bad("key = \"problem.agents\"\nvalues = [2, 0]", &["problem.agents: 0 is not accepted (at agents=0)"]);
    bad("key = \"method.*.step_size\"\nvalues = [0.1, -0.1]", &["method[0].step_size: -0.1 is not accepted (at step_size=-0.1)"]);
    bad("key = \"run.rounds\"\nvalues = [1, 2]\nlabels = [\"a\"]", &["labels: a list of 1 is not accepted", "one label per value, 2"]);
    bad("keys = [\"run.rounds\", \"run.seeds\"]\nvalues = [[1, 2], [3]]", &["[3] is not a list of 2 values", "lists of 2 values"]);
    refused_end("[[sweep]]\nvalues = [1]", "[[sweep]]", &["a sweep needs key or keys"]);
    refused_end("[[sweep]]\nkey = \"run.rounds\"", "[[sweep]]", &["the key `values` is missing"]);
    refused_end("[[sweep]]\nkey = \"run.rounds\"\nvalues = [5, 5]", "values = [5, 5]", &["two points are both at `rounds=5`"]);
    let same_labels = "[[sweep]]\nkey = \"run.rounds\"\nvalues = [5, 6]\nlabels = [\"a\", \"a\"]";
    refused_end(same_labels, "labels = [\"a\", \"a\"]", &["two points are both at `rounds=a`"]);
    let labels = "[[sweep]]\nkey = \"method.FedLSA.label\"\nvalues = [\"a\", \"b\"]";
    refused_end(labels, "key = \"method.FedLSA.label\"", &["sweep[0].key: a sweep cannot change labels"]);
    refused_end("[[variant]]\nset = {}", "[[variant]]", &["the key `label` is missing"]);
    refused_end(
        "[[variant]]\nlabel = \"a\"\nset = { \"run.rouns\" = 1 }",
        "set = { \"run.rouns\" = 1 }",
        &["run.rouns: unknown key", "(at a)"],
    );
    let nested = "[[variant]]\nlabel = \"a\"\nsweep = [{ key = \"run.rounds\", values = [0] }]";
    refused_end(nested, "sweep = [{ key = \"run.rounds\", values = [0] }]", &["run.rounds: 0 is not accepted (at a, rounds=0)"]);
    let expect = "expect = [{ at = { stepsize = 1 }, status = \"diverges\" }]";
    let text = format!("{}\n[[sweep]]\nkey = \"method.*.step_size\"\nvalues = [0.1]\n", small("label = \"FedLSA\"", expect));
    refused_file(&text, expect, &["there is no swept coordinate `stepsize`; did you mean `step_size`?"]);
    // A hundred values of four keys: refused before the points are made.
    let values = format!("values = [{}]", (1..100).map(|i| i.to_string()).collect::<Vec<_>>().join(", "));
    let huge: String =
        ["agents", "states", "features", "seed"].map(|key| format!("[[sweep]]\nkey = \"problem.{key}\"\n{values}\n")).concat();
    refused(
        &Folder::with(&format!("{SMALL}\n{huge}")),
        &["check", "small.toml"],
        &["sweep[2]: 970299 points or more", "at most 100000 points"],
    );
}

#[test]
fn checks_and_figures_are_checked() {
    let bad = |check: &str, expected: &[&str]| refused_end(&format!("[[check]]\n{check}"), check.lines().last().unwrap(), expected);
    bad("kind = \"ration\"", &["there is no check of the kind `ration`; did you mean `ratio`?", "one of floor, ratio"]);
    bad("kind = \"curve\"\nmethod = \"FedLS\"", &["check[0].method: there is no method `FedLS`; did you mean `FedLSA`?"]);
    bad("kind = \"ratio\"\nmethod = \"FedLSA\"\nmin = 1\nover = \"x\"", &["check[0].over: there is no method `x`"]);
    bad("kind = \"reaches\"\nmethod = \"FedLSA\"\nmax = 1\nmetric = \"mss\"", &["there is no metric `mss`; did you mean `mse`?"]);
    bad("kind = \"floor\"\nmethod = \"FedLSA\"\nexpected = \"flor\"", &["no predicted quantity `flor`; did you mean `floor`?"]);
    bad("kind = \"floor\"\nmethod = \"FedLSA\"\nexpected = nan", &["check[0].expected: nan is not accepted", "a number"]);
    bad("kind = \"final\"\nmethod = \"FedLSA\"\nexpected = \"floor\"", &["check[0].expected: \"floor\" is not accepted"]);
    bad("kind = \"curve\"\nmethod = \"FedLSA\"\nby = 3", &["check[0].by: this is not a key of a check of kind curve", "tolerance"]);
    bad("kind = \"curve\"\nmethod = \"FedLSA\"\nat = { agents = 4 }", &["no coordinate `agents`", "a sweep first"]);
    bad(
        "kind = \"slope\"\nmethod = \"FedLSA\"\nexpected = 1\ntolerance = 1\nalong = \"H\"",
        &["check[0].along: there is no coordinate `H`"],
    );
    let missing = |check: &str, expected: &[&str]| refused_end(&format!("[[check]]\n{check}"), "[[check]]", expected);
    missing("kind = \"curve\"", &["the key `method` is missing", "a check of kind curve needs"]);
    missing("kind = \"ratio\"\nmethod = \"FedLSA\"", &["the key `over` is missing"]);
    missing("kind = \"ratio\"\nmethod = \"FedLSA\"\nover = \"SCAFFLSA\"", &["a check of kind ratio needs one of min, max, tolerance"]);
    missing("method = \"FedLSA\"", &["the key `kind` is missing"]);
    let swept =
        "[[sweep]]\nkey = \"problem.agents\"\nvalues = [2, 4]\n[[check]]\nkind = \"curve\"\nmethod = \"FedLSA\"\nat = { agents = 3 }";
    refused_end(swept, "at = { agents = 3 }", &["no point is at agents = 3", "values that are swept"]);
    let figure = |line: &str, expected: &[&str]| refused_end(&format!("[figure]\n{line}"), line, expected);
    figure("x = \"rounds\"", &["figure.x: \"rounds\" is not accepted", "round, exchanges"]);
    figure("x = []", &["figure.x: [] is not accepted", "at least one axis"]);
    figure("x = [\"round\", \"round\"]", &["each axis once"]);
    figure("x = [\"round\", \"rounds\"]", &["figure.x: \"rounds\" is not accepted", "round, exchanges"]);
    figure("y = \"mss\"", &["figure.y: \"mss\" is not accepted", "mse"]);
    figure("panels = [\"H\"]", &["figure.panels: \"H\" is not accepted"]);
    figure("levels = { Nobody = [\"floor\"] }", &["\"Nobody\" is not accepted", "a method's label: FedLSA, SCAFFLSA"]);
    figure("levels = { FedLSA = [\"flor\"] }", &["\"flor\" is not accepted", "bias2"]);
    figure("exact = [\"Nobody\"]", &["\"Nobody\" is not accepted"]);
    figure("columns = -1", &["figure.columns: -1 is not accepted"]);
}

#[test]
fn figures_that_cannot_be_drawn_are_refused() {
    let figure = |lines: &str, expected: &[&str]| refused_end(&format!("[figure]\n{lines}"), lines.lines().last().unwrap(), expected);
    for range in ["[1.0, 0.0]", "[0.0, 1.0]", "[-1.0, 1.0]", "[1.0, 1.0]", "[nan, 1.0]", "[1.0, nan]", "[1.0, inf]", "[-inf, 1.0]"] {
        figure(
            &format!("y_range = {range}"),
            &["figure.y_range: [", "is not accepted", "0 < low < high: the vertical axis is logarithmic"],
        );
    }
    figure("columns = 0", &["figure.columns: 0 is not accepted", "at least 1 panel in a row"]);
    figure("y = []", &["figure.y: [] is not accepted", "at least one of mse"]);
    for width in ["0", "-900", "299.9", "1e9", "nan", "inf"] {
        figure(&format!("width = {width}"), &["figure.width: ", "is not accepted", "300 to 4000 pixels"]);
        figure(&format!("dpi = {}", width.replace("299.9", "1e-3")), &["figure.dpi: ", "is not accepted", "24 to 1200 dots to an inch"]);
    }
    figure("theme = \"blue\"", &["figure.theme: ", "blue", "light", "dark"]);
    figure("formats = []", &["figure.formats: [] is not accepted", "\"svg\", \"png\", \"pdf\""]);
    figure("formats = [\"jpeg\"]", &["figure.formats", "jpeg", "svg"]);
    figure("x_log = true\nslope = nan", &["figure.slope: NaN is not accepted", "a finite number"]);
    figure("slope = -1", &["figure.slope: a slope on a linear axis is not accepted", "x_log = true"]);
    figure("ratios = true", &["figure.ratios: true without `exact` is not accepted", "labels of methods"]);
    figure("centre = \"median\"\nband = \"error\"", &["figure.band: one around a mean is not accepted", "quantiles"]);
}

#[test]
fn keys_that_mean_nothing_to_a_kind_of_figure_are_refused() {
    let swept = "[[sweep]]\nkey = \"method.*.local_steps\"\nvalues = [1, 2]\n";
    let figure = |kind: &str, line: &str, expected: &[&str]| {
        refused_end(&format!("{swept}[figure]\nkind = \"{kind}\"\nx = \"local_steps\"\n{line}"), line, expected);
    };
    let table = ["centre = \"mean\"", "band = \"none\"", "levels = { FedLSA = [\"floor\"] }", "exact = [\"FedLSA\"]", "ratios = true"];
    let more = ["slope = -1", "x_log = true", "y_range = [1.0, 2.0]", "share_y = true", "columns = 2", "level = 1.0"];
    for line in table.iter().chain(&more) {
        let key = line.split(' ').next().unwrap();
        figure("table", line, &[&format!("figure.{key}: this is not a key of a figure of kind table"), "it is for the kinds"]);
    }
    figure(
        "scaling",
        "centre = \"median\"",
        &["figure.centre: this is not a key of a figure of kind scaling", "it is for the kinds curves"],
    );
    figure("scaling", "exact = [\"FedLSA\"]", &["figure.exact: this is not a key of a figure of kind scaling"]);
    figure(
        "table",
        "y = [\"mse\", \"residual\"]",
        &["figure.y: [\"mse\", \"residual\"] is not accepted", "one metric for kind = \"table\""],
    );
    let named =
        "[[sweep]]\nkey = \"sampling.kind\"\nname = \"how\"\nvalues = [\"iid\", \"mean\"]\n[figure]\nkind = \"scaling\"\nx = \"how\"";
    refused_end(named, "x = \"how\"", &["figure.x: \"how\" with the value \"iid\" is not accepted", "values are numbers"]);
}

#[test]
fn what_is_not_a_file_of_toml_is_told() {
    let folder = Folder::with(SMALL);
    refused(&folder, &["run", "none.toml"], &["none.toml: cannot be read: No such file", "the path of an experiment file"]);
    refused(&folder, &["run", "."], &[".: cannot be read: it is a directory, not a regular file"]);
    folder.write("latin.toml", b"id = \"a\"\n# \xe9t\xe9\n");
    refused(&folder, &["check", "latin.toml"], &["latin.toml: line 2 is not UTF-8", "text in UTF-8"]);
    folder.write("broken.toml", "[problem\nkind = 1\n");
    refused(&folder, &["run", "broken.toml"], &["this is not TOML: unclosed table", "[broken.toml:1:", "[problem], [[method]] and [run]"]);
    folder.write("twice.toml", small("agents = 4", "agents = 4\nagents = 5"));
    refused(&folder, &["run", "twice.toml"], &["duplicate key", "[twice.toml:6:"]);
    folder.write("deep.toml", format!("x = {}{}", "[".repeat(5000), "]".repeat(5000)));
    refused(&folder, &["run", "deep.toml"], &["lists and tables are more than 64 deep", "[deep.toml:1:"]);
    folder.write("image.png", [0x89, b'P', b'N', b'G', 0, 0xff]);
    refused(&folder, &["run", "image.png"], &["image.png: line 1 is not UTF-8"]);
    // A byte order mark, which some editors write, is accepted.
    folder.write("mark.toml", format!("\u{feff}{SMALL}"));
    folder.run(&["check", "mark.toml"]).exits(0);
}

#[test]
fn options_that_set_keys_are_checked() {
    let folder = Folder::with(SMALL);
    let set = |value: &str, expected: &[&str]| refused(&folder, &["run", "small.toml", "--set", value], expected);
    set("run.rounds", &["--set: `run.rounds` has no `=`", "--set KEY=VALUE"]);
    set("=3", &["an empty part in a dotted key"]);
    set("run.round=3", &["run.round: unknown key `round`; did you mean `rounds`? (set by --set run.round=3)"]);
    set("run.rounds=abc", &["run.rounds: \"abc\" is not accepted (set by --set run.rounds=abc)", "a whole number"]);
    set("run.rounds=3\nseeds=4", &["run.rounds: \"3\\nseeds=4\" is not accepted"]);
    set("problem.agents=-1", &["problem.agents: -1 is not accepted (set by --set problem.agents=-1)"]);
    set("method.Nobody.step_size=1", &["there is no method `Nobody`", "one of FedLSA, SCAFFLSA, or *"]);
    set("method.SCAFFLSA.step_size=-1", &["method[1].step_size: -1 is not accepted (set by --set method.SCAFFLSA.step_size=-1)"]);
    set("method.*.local_steps=0", &["method[0].local_steps: 0 is not accepted (set by --set"]);
    set("method.FedLSA=3", &["`FedLSA` is a whole table", "a key within it"]);
    set("id.x=3", &["--set: id: \"small\" is not a table"]);
    set("problem=3", &["problem: 3 is not a table", "(set by --set problem=3)"]);
    let bad = |args: &[&str], expected: &[&str]| {
        let all: Vec<&str> = ["run", "small.toml"].iter().chain(args).copied().collect();
        refused(&folder, &all, expected)
    };
    bad(&["--rounds", "0"], &["run.rounds: 0 is not accepted (set by --rounds 0)", "between 1 and"]);
    bad(&["--seeds", "0"], &["run.seeds: 0 seeds (set by --seeds 0)"]);
    bad(&["--seeds", "-1"], &["invalid value '-1' for '--seeds <N>'"]);
    bad(&["--threads", "0"], &["invalid value '0' for '--threads <N>'"]);
    bad(&["--checkpoint-every", "-1"], &["not a number of seconds"]);
    bad(&["--resume", "--overwrite"], &["cannot be used with"]);
    bad(&["--frobnicate"], &["unexpected argument '--frobnicate'"]);
    // An option without effect is refused.
    let swept = Folder::with(&format!("{SMALL}\n[[sweep]]\nkey = \"run.rounds\"\nvalues = [5, 6]\n"));
    let expected = ["run.rounds: a sweep or variant sets this key at every point", "(set by --rounds 3)", "--set sweep.0.values"];
    refused(&swept, &["run", "small.toml", "--rounds", "3"], &expected);
    swept.run(&["run", "small.toml", "--set", "sweep.0.values=[3]", "-q"]).exits(0);
}

#[test]
fn integers_beyond_the_largest_are_reported_as_too_large() {
    let folder = Folder::with(SMALL);
    let large = "18446744073709551615";
    for set in [
        "method.FedLSA.uplink.media=[{kind=\"delay\",law=\"constant\",rounds=18446744073709551615}]",
        "sampling={kind=\"markov\",batch=18446744073709551615}",
        "run.seeds=[1, 18446744073709551615]",
        "run.rounds=18446744073709551615",
    ] {
        let expected = format!("--set: the number {large} is too large");
        refused(&folder, &["check", "small.toml", "--set", set], &[&expected, "9223372036854775807"]);
    }
    for number in ["18446744073709551616", "0xFFFF_FFFF_FFFF_FFFF", "1e400", "99999999999999999999999999999999999999999999"] {
        let expected = format!("--set: the number {number} is too large");
        refused(&folder, &["check", "small.toml", "--set", &format!("run.start=[{number}, 1e500]")], &[&expected]);
    }
    refused_edit("rounds = 20", "rounds = 18446744073709551615", &["the number 18446744073709551615 is too large"]);
    let small = "--set: the number -9223372036854775809 is too small";
    refused(&folder, &["check", "small.toml", "--set", "run.seeds=[-9223372036854775809]"], &[small]);
    let sweep = format!("sampling.batch=1,{large}");
    refused(&folder, &["check", "small.toml", "--sweep", &sweep], &[&format!("--sweep: the number {large} is too large")]);
    // Digits inside a text are not a number.
    folder.run(&["check", "small.toml", "--set", "title=run 18446744073709551615"]).exits(0);
}

#[test]
fn options_that_another_option_replaces_are_checked_first() {
    let folder = Folder::with(SMALL);
    let bad = |set: &str, option: &str, expected: &str| {
        let text = format!("{expected} (set by --set {set})");
        refused(&folder, &["run", "small.toml", "--set", set, option, "1"], &[&text]);
    };
    bad("run.seeds=[1,1]", "--seeds", "run.seeds: the seed 1 is given twice");
    bad("run.seeds=0", "--seeds", "run.seeds: 0 seeds");
    bad("run.rounds=0", "--rounds", "run.rounds: 0 is not accepted");
    bad("run.rounds=many", "--rounds", "run.rounds: \"many\" is not accepted");
    folder.run(&["check", "small.toml", "--set", "run.seeds=[1, 3]", "--seeds", "1"]).exits(0).says("2 different runs");
}

#[test]
fn a_kind_that_an_option_sets_is_named_where_keys_do_not_fit_it() {
    let linear = Folder::with(&with_problem("kind = \"linear\"\nagents = 4\ndim = 3"));
    let set = ["check", "small.toml", "--set", "method.*.kind=\"newton\""];
    let because = "(kind set by --set method.*.kind=\"newton\")";
    let expected = ["method[0].step_size: unknown key `step_size`", because, "small.toml:14:", "--unset method.*.step_size"];
    refused(&linear, &set, &expected);
    let expected = ["method[0].local_steps: unknown key `local_steps`", "(kind set by --set method.FedLSA.kind=qfedtd)", "--unset"];
    refused(&linear, &["check", "small.toml", "--set", "method.FedLSA.kind=qfedtd"], &expected);
    let expected = ["method[0]: the key `radius` is missing (kind set by --set method.FedLSA.kind=projected-td)"];
    refused(&linear, &["check", "small.toml", "--set", "method.FedLSA.kind=projected-td"], &expected);
    let expected = ["problem.min_class: unknown key `min_class`", "(kind set by --set problem.kind=mrp)"];
    refused(&Folder::with(SMALL), &["check", "small.toml", "--set", "problem.kind=mrp"], &expected);
    // A key that is wrong with any kind is not blamed on the option.
    let message = refused(&linear, &["check", "small.toml", "--set", "method.FedLSA.kind=scafflsa", "--rounds", "0"], &["--rounds 0"]);
    assert!(!message.contains("kind set by"), "{message}");
}

#[test]
fn keys_are_removed_on_the_command_line() {
    let linear = Folder::with(&with_problem("kind = \"linear\"\nagents = 4\ndim = 3").replace("\"iid\"", "\"mean\""));
    let newton = ["--set", "method.*.kind=newton", "--unset", "method.*.step_size", "--unset", "method.*.local_steps"];
    let with = |args: &[&'static str]| [args, &newton[..]].concat();
    linear.run(&with(&["check", "small.toml"])).exits(0).says("FedLSA: newton, ");
    linear.run(&with(&["run", "small.toml", "-q"])).exits(0);
    // What ran is written as it is with --set, and runs again.
    let config = linear.text("out/small/config.toml");
    assert!(config.contains("kind = \"newton\"") && !config.contains("step_size"), "{config}");
    linear.run(&["run", "out/small/config.toml", "--out", "again", "-q"]).exits(0);
    assert!(linear.read("again/config.toml") == linear.read("out/small/config.toml"));
    assert!(linear.read("again/trace.parquet") == linear.read("out/small/trace.parquet"));
    // Presets: what a file says no longer replaces what the preset says. Defaults return.
    let folder = Folder::with(&small("label = \"FedLSA\"", "label = \"FedLSA\"\nglobal_step_size = 0.5"));
    let output = folder.run(&["check", "small.toml", "--unset", "method.0.global_step_size"]).exits(0);
    assert!(output.stdout.contains("global_step_size = 1.0") && !output.stdout.contains("global_step_size = 0.5"), "{}", output.stdout);
    // Of several methods those that have the key; quick settings too; --unset before --set.
    folder.run(&["check", "small.toml", "--unset", "method.*.global_step_size"]).exits(0);
    folder.run(&["check", "small.toml", "--unset", "run.rounds", "--set", "run.rounds=5"]).exits(0).says("rounds = 5,");
    folder.run(&["theory", "small.toml", "--unset", "run.seeds"]).exits(0);
    let swept =
        Folder::with(&format!("{SMALL}\n[[sweep]]\nkey = \"run.rounds\"\nvalues = [5, 6]\n[quick]\n\"run.stop\" = {{ mse = 1.0 }}\n"));
    swept.run(&["check", "small.toml", "--unset", "sweep"]).exits(0).says("1 point x 2 methods");
    swept.run(&["check", "small.toml", "--quick", "--unset", "run.stop"]).exits(0);
    let bad = |key: &str, expected: &[&str]| refused(&swept, &["run", "small.toml", "--unset", key], expected);
    bad("run.round", &["--unset: run.round is not set; did you mean `rounds`?", "one of rounds, seeds"]);
    bad("method.FedLSA.uplink.media", &["--unset: method[0].uplink is not set"]);
    bad("method.*.radius", &["--unset: method[0].radius is not set"]);
    bad("method.Nobody.step_size", &["--unset: there is no method `Nobody`", "one of FedLSA, SCAFFLSA, or *"]);
    bad("method.FedLSA", &["--unset: method: `FedLSA` is a whole table", "a key within it"]);
    bad("id.x", &["--unset: id: \"small\" is not a table"]);
    bad("", &["an empty part in a dotted key"]);
    bad("run.rounds=5", &["--unset: `run.rounds=5` has a value", "--unset KEY"]);
    bad("quick.run.rounds", &["--unset: `quick.run.rounds` is a quick setting"]);
    bad("method.FedLSA.step_size", &["the key `step_size` is missing (at rounds=5) (removed by --unset method.FedLSA.step_size)"]);
    // What a sweep sets at every point cannot be removed.
    bad("run.rounds", &["run.rounds: a sweep or variant sets this key at every point", "(removed by --unset run.rounds)"]);
    swept.run(&["run", "small.toml", "--help"]).exits(0).says("--unset <KEY>");
}

/// A problem file that must be refused, named by its path at the line of `path`.
#[track_caller]
fn refused_arrays(arrays: &Arrays, expected: &[&str]) {
    refused_bytes("p.npz", &npz_bytes(arrays), expected);
}

#[track_caller]
fn refused_bytes(name: &str, bytes: &[u8], expected: &[&str]) {
    let folder = Folder::with(&with_problem(&format!("kind = \"file\"\npath = \"{name}\"")));
    folder.write(name, bytes);
    let place = format!("problem.path: {name}: ");
    let expected: Vec<&str> = expected.iter().copied().chain([place.as_str(), "[small.toml:5:", "help: "]).collect();
    refused(&folder, &["run", "small.toml"], &expected);
}

#[test]
fn problem_files_are_checked() {
    Folder::with(&with_problem("kind = \"file\"\npath = \"p.npz\"")).write("p.npz", npz_bytes(&mrp()));
    let mut p = mrp().get("P").unwrap().data().to_vec();
    p[4] += 0.1;
    refused_arrays(&mrp_with("P", &[2, 3, 3], &p), &["P: row [0, 1] sums to 1.09", "sum to 1 within 1e-8"]);
    p[4] = 1.0;
    p[3] = -0.3;
    refused_arrays(&mrp_with("P", &[2, 3, 3], &p), &["P: the probability -0.3 at [0, 1, 0]", "at least 0"]);
    for (value, shown) in [(f64::NAN, "NaN"), (f64::INFINITY, "inf")] {
        let mut r = [0.0; 6];
        r[4] = value;
        refused_arrays(&mrp_with("R", &[2, 3], &r), &[&format!("R: {shown} at [1, 1]"), "finite numbers"]);
    }
    refused_arrays(&mrp_with("P", &[3, 2, 3], &[1.0 / 3.0; 18]), &["P: shape (3, 2, 3)", "(N, S, S), or (N, S, A, S) with a policy"]);
    refused_arrays(&mrp_with("R", &[3], &[0.0; 3]), &["R: shape (3,)", "(2, 3)"]);
    refused_arrays(&mrp_with("Phi", &[2, 2], &[0.0; 4]), &["Phi: shape (2, 2)", "(3, d) or (2, 3, d)"]);
    refused_arrays(&mrp_with("gamma", &[3], &[0.5; 3]), &["gamma: shape (3,)", "() or (2,)"]);
    refused_arrays(&mrp_with("gamma", &[2], &[0.5, 1.0]), &["gamma: 1 (agent 1) is not accepted", "in [0, 1)"]);
    refused_arrays(&mrp_with("policy", &[3, 2], &[0.5; 6]), &["P: shape (2, 3, 3)", "(N, S, A, S), since there is a policy"]);
    for name in ["R", "Phi", "gamma"] {
        let mut some = Arrays::new();
        mrp().iter().filter(|(n, _)| *n != name).for_each(|(n, array)| some.insert(n, array.clone()));
        refused_arrays(&some, &[&format!("{name}: there is no such array"), "the arrays are"]);
    }
    refused_arrays(&arrays(&[("x", &[], &[1.0])]), &["neither `P` nor `A` among its arrays (x)", "an MRP or MDP as P, R, Phi, gamma"]);
    let identity = [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0].repeat(2);
    refused_arrays(&mrp_with("P", &[2, 3, 3], &identity), &["agent 0: the chain has several closed classes", "one closed class"]);
    // Linear systems: an agent's own, then the mean.
    let systems = |a: &[f64]| arrays(&[("A", &[2, 2, 2], a), ("b", &[2, 2], &[1.0; 4])]);
    refused_arrays(&systems(&[1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0]), &["agent 1: singular or badly conditioned", "condition number"]);
    // A mean without a root is a legal problem, whose residual is recorded and whose error is not.
    let folder = Folder::with(&with_problem("kind = \"file\"\npath = \"p.npz\""));
    folder.write("p.npz", npz_bytes(&systems(&[1.0, 0.0, 0.0, 1.0, -1.0, 0.0, 0.0, -1.0])));
    folder.run(&["run", "small.toml"]).exits(0);
    let summary = folder.json("out/small/summary.json");
    assert!(summary["problem"]["theta_star"].is_null() && summary["results"][0]["residual_mean"].is_number(), "{summary}");
    refused_arrays(&arrays(&[("A", &[1, 1, 1], &[1e-300]), ("b", &[1, 1], &[1e300])]), &["the solution's component 0 is inf"]);
    refused_arrays(&arrays(&[("A", &[1, 2, 3], &[1.0; 6]), ("b", &[1, 2], &[1.0; 2])]), &["A: shape (1, 2, 3)", "(N, d, d)"]);
    refused_arrays(&arrays(&[("A", &[1, 1, 1], &[1.0]), ("b", &[2], &[1.0; 2])]), &["b: shape (2,)", "(1, 1), as A has"]);
    // Files of another format.
    refused_bytes("p.npz", b"", &["not a readable .npz: the file is empty", "np.savez"]);
    let bytes = npz_bytes(&mrp());
    refused_bytes("p.npz", &bytes[..bytes.len() / 2], &["not a readable .npz"]);
    let mut flipped = bytes.clone();
    let at = flipped.windows(8).position(|w| w == 0.25f64.to_le_bytes()).unwrap();
    flipped[at] ^= 1;
    refused_bytes("p.npz", &flipped, &["P: the array is damaged"]);
    let folder = Folder::with(&with_problem("kind = \"file\"\npath = \"none.npz\""));
    refused(&folder, &["run", "small.toml"], &["problem.path: none.npz: there is no such file", "[small.toml:5:"]);
    let folder = Folder::with(&with_problem("kind = \"file\"\npath = \".\""));
    refused(&folder, &["run", "small.toml"], &["problem.path: .: cannot be read: it is a directory"]);
}

const LOGS: &str = "kind = \"logs\"\npath = \"log.csv\"\ngamma = 0.9\nfeatures = { kind = \"fourier\", order = 1 }";

#[test]
fn logs_are_checked() {
    let head = "s_0,next_0,reward,done\n";
    let bad = |name: &str, contents: &[u8], expected: &[&str]| {
        let folder = Folder::with(&with_problem(&LOGS.replace("log.csv", name)));
        folder.write(name, contents);
        refused(&folder, &["run", "small.toml"], &[&["problem.path: ", name, "[small.toml:5:"], expected].concat());
        // The same with `evaluate`, which has no file to show.
        let shown = format!("(set by LOGS {name})");
        refused(&folder, &["evaluate", name, "--features", "fourier:1"], &[&[name, shown.as_str()], expected].concat());
    };
    bad(
        "log.csv",
        b"s_0,next_0,done\n0,1,0\n",
        &["there is no column `reward`: the columns are `s_0`, `next_0`, `done`", "`s_*` and `next_*` in pairs"],
    );
    bad("log.csv", b"", &["there is no column `s_*`: an empty file"]);
    bad("log.csv", head.as_bytes(), &["a log without transitions"]);
    bad("log.csv", format!("{head}0,1,2,0\n1,x,2,0\n").as_bytes(), &["line 3, column `next_0`: `x` is not a finite number"]);
    bad("log.csv", format!("{head}0,1,nan,0\n").as_bytes(), &["line 2, column `reward`: `nan` is not a finite number"]);
    bad("log.csv", format!("{head}0,1,2\n").as_bytes(), &["line 2: 3 fields, but the header has 4"]);
    bad("log.csv", b"s_0,next_0,reward,done\n0,1,\xff,0\n", &["line 2: not UTF-8"]);
    bad("log.parquet", b"PAR1", &["not a readable Parquet file"]);
    bad("log.parquet", b"", &["not a readable Parquet file"]);
    bad("log.txt", b"x", &["not a known format of logs", ".parquet or .csv"]);
    let with = |problem: &str, line: &str, expected: &[&str]| {
        let folder = Folder::with(&with_problem(problem));
        folder.write("log.csv", format!("{head}0,1,2,0\n1,0,1,0\n0.5,1,0,1\n"));
        refused(&folder, &["check", "small.toml"], expected);
        refused_line(&folder, line, expected);
    };
    with(
        &format!("{LOGS}\nranges = {{ s_1 = [0, 1] }}"),
        "ranges = { s_1 = [0, 1] }",
        &["there is no state column `s_1`", "the state columns are s_0"],
    );
    with(&format!("{LOGS}\nranges = {{ s_0 = [1, 0] }}"), "ranges = { s_0 = [1, 0] }", &["`s_0`: [1, 0] is not a range"]);
    with(&LOGS.replace("0.9", "1.5"), "gamma = 1.5", &["problem.gamma: 1.5 is not accepted"]);
    with(
        &LOGS.replace("fourier", "forier"),
        "features = { kind = \"forier\", order = 1 }",
        &["unknown value `forier`; did you mean `fourier`?"],
    );
    with(&LOGS.replace("order = 1", "order = 4000000000"), "features = { kind = \"fourier\", order = 4000000000 }", &["problem.features"]);
    with(&LOGS.replace("\"log.csv\"", "[]"), "path = []", &["problem.path: no logs"]);
}

/// Runs the program with a given amount of memory, which must be too little.
#[track_caller]
fn refused_for_memory(folder: &Folder, args: &[&str], memory: &str, expected: &[&str]) {
    let mut command = folder.command(args);
    command.env("FEDSA_MEMORY", memory);
    let output = crate::common::finish(command).exits(2);
    let message = output.message();
    for text in expected.iter().chain(&["needs about ", "help: ", "FEDSA_MEMORY=SIZE"]) {
        assert!(message.contains(text), "{args:?}: `{text}` is not in\n{}", output.stderr);
    }
    assert!(!folder.path("out").exists());
}

#[test]
fn what_does_not_fit_into_memory_is_refused_with_the_number() {
    let problem = |problem: &str, memory: &str, expected: &[&str]| {
        let folder = Folder::with(&with_problem(problem));
        for command in ["check", "run", "theory"] {
            refused_for_memory(&folder, &[command, "small.toml"], memory, &[&["problem: ", "[small.toml:3:"], expected].concat());
        }
    };
    let garnet = "kind = \"garnet\"\nstates = 50000";
    problem(garnet, "16G", &["100 agents (100 distinct), 50000 states, d = 8: needs about ", "16 GB are available (FEDSA_MEMORY)"]);
    problem("kind = \"mrp\"\nstates = 20000", "16G", &["20000 states with as many successors", "16 GB are available"]);
    problem("kind = \"linear\"\nagents = 100000000", "16G", &["100000000 agents, d = 1"]);
    problem("kind = \"switching\"\ndim = 100000", "16G", &["1 agent, d = 100000"]);
    // Of several problems the largest is named.
    let sweep = format!("{SMALL}\n[[sweep]]\nkey = \"problem.states\"\nvalues = [10, 20000, 30]\n");
    refused_for_memory(
        &Folder::with(&sweep),
        &["run", "small.toml"],
        "4G",
        &["20000 states", "3 problems, the largest of them", "(at states=20000)"],
    );
    // Logs are read for their size.
    let columns: Vec<String> = (0..8).map(|j| format!("s_{j},next_{j}")).collect();
    let row = |i: usize| (0..16).map(|j| ((i * (j + 3)) % 7).to_string()).collect::<Vec<_>>().join(",");
    let rows: String = (0..30).map(|i| format!("{},1,0\n", row(i))).collect();
    let logs = Folder::new();
    logs.write("log.csv", format!("{},reward,done\n{rows}", columns.join(",")));
    let expected = ["1 agent, 30 transitions, d = 65536 features of 8 state columns: needs about ", "16 GB are available"];
    refused_for_memory(&logs, &["evaluate", "log.csv", "--features", "fourier:3"], "16G", &expected);
    // Agents' memory, and recorded rounds.
    let runs = |edit: &str, memory: &str, expected: &[&str]| {
        let text = edited(SMALL, "rounds = 20\nseeds = 2", edit);
        let folder = Folder::with(&text);
        refused_for_memory(&folder, &["run", "small.toml"], memory, &[&["run: "], expected].concat());
        refused_for_memory(&folder, &["check", "small.toml"], memory, expected);
    };
    runs("rounds = 10000000\nrecord = { every = 1 }", "2G", &["recorded rounds", "2.0 GB are available"]);
    let delayed = edited(SMALL, "rounds = 20", "rounds = 1000000").replace("kind = \"iid\"", "kind = \"markov\"");
    let delayed =
        edited(&delayed, "label = \"FedLSA\"", "uplink = { media = [{ kind = \"delay\", law = \"constant\", rounds = 1000000 }] }");
    refused_for_memory(&Folder::with(&delayed), &["run", "small.toml"], "100M", &["what the link remembers"]);
    // A value that is not an amount of memory.
    let folder = Folder::with(SMALL);
    let mut command = folder.command(&["run", "small.toml"]);
    command.env("FEDSA_MEMORY", "plenty");
    let message = crate::common::finish(command).exits(2).message();
    assert!(message.contains("FEDSA_MEMORY: `plenty` is not an amount of memory") && message.contains("4G"), "{message}");
}

/// The limit of the address space, as a shell or a scheduler of jobs sets it.
#[cfg(target_os = "linux")]
#[test]
fn the_limit_of_the_address_space_counts() {
    let limited = |text: &str| {
        let folder = Folder::with(text);
        let mut shell = std::process::Command::new("sh");
        let fedsa = folder.command(&["check", "small.toml", "--threads", "2"]);
        shell.args(["-c", "ulimit -v 3000000; exec \"$0\" \"$@\""]).arg(fedsa.get_program()).args(fedsa.get_args());
        shell.current_dir(folder.path("")).env_remove("FEDSA_MEMORY").env("NO_COLOR", "1");
        crate::common::finish(shell)
    };
    limited(SMALL).exits(0).says("  memory: about ").says(" available");
    let message = limited(&with_problem("kind = \"mrp\"\nstates = 20000")).exits(2).message();
    assert!(message.contains("(the limit of the address space, ulimit -v)"), "{message}");
}

/// Pipes and devices are not opened, because reading them may block or never end.
#[cfg(unix)]
#[test]
fn what_is_no_regular_file_is_refused_without_waiting() {
    let pipe = |folder: &Folder, name: &str| {
        let path = folder.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    };
    let says = |folder: &Folder, args: &[&str], expected: &[&str]| {
        let output = crate::common::finish_soon(folder.command(args)).exits(2);
        let message = output.message();
        for text in expected {
            assert!(message.contains(text), "{args:?}: `{text}` is not in\n{}", output.stderr);
        }
    };
    let folder = Folder::new();
    pipe(&folder, "pipe");
    says(&folder, &["run", "pipe"], &["pipe: cannot be read: it is a pipe, not a regular file"]);
    says(&folder, &["check", "."], &["cannot be read: it is a directory, not a regular file"]);
    for name in ["p.npz", "log.csv", "log.parquet"] {
        let kind = if name == "p.npz" { "kind = \"file\"\npath = \"p.npz\"".to_string() } else { LOGS.replace("log.csv", name) };
        let folder = Folder::with(&with_problem(&kind));
        pipe(&folder, name);
        says(
            &folder,
            &["run", "small.toml"],
            &["problem.path: ", name, "it is a pipe, not a regular file", "save the output of a pipe to a file"],
        );
    }
    // Among the agents' files: such a file is not skipped.
    let head = "s_0,next_0,reward,done\n0,1,2,0\n1,0,1,0\n0.5,1,0,1\n";
    for logs in ["logs", "logs/*.csv", "logs/b.csv"] {
        let folder = Folder::new();
        folder.write("logs/a.csv", head);
        pipe(&folder, "logs/b.csv");
        says(&folder, &["evaluate", logs], &["logs/b.csv: cannot be read: it is a pipe"]);
    }
    let folder = Folder::new();
    folder.write("logs/a.csv", head);
    std::os::unix::fs::symlink("b.csv", folder.path("logs/b.csv")).unwrap();
    says(&folder, &["evaluate", "logs"], &["logs/b.csv: cannot be read: ", "symbolic links"]);
    std::fs::remove_file(folder.path("logs/b.csv")).unwrap();
    std::os::unix::fs::symlink("gone.csv", folder.path("logs/b.csv")).unwrap();
    says(&folder, &["evaluate", "logs"], &["logs/b.csv: cannot be read: "]);
    // Starts and traces of delays.
    for (edit, file) in [
        ("start = \"start.json\"", "start.json"),
        ("start = \"start.npz\"", "start.npz"),
        ("uplink = { media = [{ kind = \"late\", law = \"trace\", path = \"delays.txt\" }] }", "delays.txt"),
    ] {
        let folder = Folder::with(&small("label = \"FedLSA\"", edit));
        pipe(&folder, file);
        says(&folder, &["run", "small.toml"], &[file, "it is a pipe"]);
    }
    // The files of an earlier run.
    let folder = Folder::with(SMALL);
    folder.run(&["run", "small.toml"]).exits(0);
    std::fs::remove_file(folder.path("out/small/config.toml")).unwrap();
    pipe(&folder, "out/small/config.toml");
    for args in [&["run", "small.toml", "--resume"][..], &["plot", "out/small"], &["diff", "out/small", "out/small"]] {
        says(&folder, args, &["out/small"]);
    }
}

#[track_caller]
fn refused_line(folder: &Folder, line: &str, expected: &[&str]) {
    let text = folder.text("small.toml");
    let at = 1 + text.lines().position(|l| l == line).unwrap();
    refused(folder, &["run", "small.toml"], &[expected, &[&format!("[small.toml:{at}:")]].concat());
}

#[test]
fn missing_data_sets_are_told_with_how_to_get_them() {
    let folder = Folder::with(&with_problem(&LOGS.replace("log.csv", "transitions/mountaincar")));
    let expected = ["problem.path: transitions/mountaincar: there is no such file or directory", "FEDSA_DATA", "[small.toml:5:"];
    refused(&folder, &["run", "small.toml"], &expected);
    refused(&folder, &["evaluate", "transitions/mountaincar"], &["transitions/mountaincar: there is no such file", "FEDSA_DATA"]);
    refused(&folder, &["reproduce", "cross/logs"], &["transitions/mountaincar", "FEDSA_DATA", "experiments/cross/logs.toml:"]);
    let mut command = folder.command(&["run", "small.toml"]);
    command.env("FEDSA_DATA", folder.path("nowhere"));
    let output = crate::common::finish(command).exits(2);
    assert!(output.message().contains("nor is it in"), "{}", output.stderr);
    assert!(output.stderr.contains("nowhere"));
}

#[test]
fn flags_of_evaluate_are_named_in_its_messages() {
    let folder = Folder::new();
    folder.write("a.csv", "s_0,next_0,reward,done\n0,1,2,0\n1,0,1,0\n0.5,1,0,1\n");
    let bad = |args: &[&str], expected: &[&str]| {
        let all: Vec<&str> = ["evaluate", "a.csv", "--features", "fourier:1", "--out", "out"].iter().chain(args).copied().collect();
        refused(&folder, &all, expected)
    };
    bad(&["--step-size", "-1"], &["-1 is not accepted (set by --step-size -1)", "a positive number"]);
    bad(&["--gamma", "1.5"], &["1.5 is not accepted (set by --gamma 1.5)"]);
    bad(&["--local-steps", "0"], &["0 is not accepted (set by --local-steps 0)"]);
    bad(&["--rounds", "0"], &["0 is not accepted (set by --rounds 0)"]);
    bad(&["--ridge", "-1"], &["-1 is not accepted (set by --ridge -1)"]);
    bad(&["--scaling", "unit"], &["unknown value `unit`", "(set by --scaling unit)"]);
    bad(&["--tol", "-1"], &["-1 is not accepted (set by --tol -1)"]);
    bad(&["--method", "fedhs"], &["there is no method `fedhs`; did you mean `fedhsa`? (set by --method fedhs)"]);
    bad(&["--sampling", "idd"], &["unknown value `idd`; did you mean `iid`? (set by --sampling idd)"]);
    bad(&["--range", "s_0"], &["--range: `s_0`", "COLUMN=LOW,HIGH"]);
    bad(&["--range", "s_9=0,1"], &["there is no state column `s_9` (set by --range s_9=0,1)"]);
    bad(&["--set", "run.round=1"], &["unknown key `round`", "(set by --set run.round=1)"]);
    let message =
        bad(&["--method", "fedhsa", "--step-size", "1000"], &["fedhsa is unstable with these settings", "(set by --step-size 1000)"]);
    let step = message.split("stable up to step_size = ").nth(1).unwrap().split(';').next().unwrap();
    folder
        .run(&["evaluate", "a.csv", "--features", "fourier:1", "--method", "fedhsa", "--rounds", "3", "--tol", "0", "--step-size", step])
        .exits(0);
    refused(&folder, &["evaluate", "a.csv", "--features", "forier:3"], &["--features: `forier:3` names no features", "fourier:ORDER"]);
}

#[test]
fn unstable_steps_are_refused_with_one_that_is_stable() {
    let kinds = [
        ("fedlsa", "local_steps = 10"),
        ("scafflsa", "local_steps = 10"),
        ("scafflsa-random", "talk_probability = 0.1"),
        ("fedhsa", "local_steps = 10"),
    ];
    for (kind, steps) in kinds {
        let text = small("kind = \"fedlsa\"", &format!("kind = \"{kind}\"")).replacen("local_steps = 10", steps, 1);
        let unstable = edited(&text, "step_size = 0.1", "step_size = 1000.0");
        let folder = Folder::with(&unstable);
        let expected =
            ["method[0].step_size: FedLSA is unstable with these settings", "the radius of a noiseless round is", "[small.toml:16:"];
        let message = refused(&folder, &["run", "small.toml"], &expected);
        refused(&folder, &["check", "small.toml"], &[&message]);
        let step: String =
            message.split("stable up to step_size = ").nth(1).unwrap().chars().take_while(|c| "0123456789.e-".contains(*c)).collect();
        let set = format!("method.FedLSA.step_size={step}");
        folder.run(&["check", "small.toml", "--set", &set]).exits(0).says("ok\n");
        // The named step is the largest one: a slightly larger one is refused.
        let more = format!("method.FedLSA.step_size={}", 1.01 * step.parse::<f64>().unwrap());
        refused(&folder, &["check", "small.toml", "--set", &more], &["unstable"]);
    }
}

#[test]
fn an_unstable_step_may_be_run_when_that_is_meant() {
    let folder = Folder::with(&small("step_size = 0.1", "step_size = 1000.0"));
    // With --force: the run ends with a status, not a NaN, and not as expected.
    let output = folder.run(&["run", "small.toml", "--force", "--out", "forced"]).exits(1);
    assert!(
        output.stdout.contains("FedLSA: diverged in round ") && output.stdout.contains("stable up to step_size = "),
        "{}",
        output.stdout
    );
    let result = &folder.json("forced/summary.json")["results"][0];
    assert_eq!((&result["status"], &result["as_expected"]), (&"diverged".into(), &false.into()));
    assert!(result["diverged_at_round"].as_u64().unwrap() >= 1 && result["largest_stable_step"].as_f64().unwrap() < 1000.0);
    folder.run(&["check", "small.toml", "--force"]).exits(0);
    // With expect = "diverges": the run ends as expected.
    folder.write("expected.toml", edited(&folder.text("small.toml"), "label = \"FedLSA\"", "label = \"FedLSA\"\nexpect = \"diverges\""));
    folder.run(&["check", "expected.toml"]).exits(0);
    folder.run(&["run", "expected.toml", "--out", "expected"]).exits(0).says("FedLSA: diverged in round");
    assert_eq!(folder.json("expected/summary.json")["passed"], true);
    // A sweep point: allowed, but not as expected.
    let swept = format!("{}\n[[sweep]]\nkey = \"method.FedLSA.step_size\"\nvalues = [0.1, 1000.0]\n", SMALL);
    folder.write("swept.toml", swept);
    folder.run(&["check", "swept.toml"]).exits(0).says("UNSTABLE");
    folder.run(&["run", "swept.toml", "--out", "swept"]).exits(1).says("FedLSA at step_size=1000.0: diverged");
    // With quick settings too, an unexpected divergence counts.
    let quick = format!("{}\n[quick]\n\"method.FedLSA.step_size\" = 1000.0\n", SMALL);
    folder.write("quick.toml", quick);
    refused(&folder, &["run", "quick.toml", "--quick", "--out", "quick"], &["FedLSA is unstable", "[quick.toml:"]);
}

#[test]
fn folders_that_cannot_be_written_are_named() {
    let folder = Folder::with(SMALL);
    folder.write("file", "kept");
    refused(&folder, &["run", "small.toml", "--out", "file/out"], &["file/out cannot be written", "a folder that you may write to"]);
    refused(&folder, &["run", "small.toml", "--out", "/proc/nowhere"], &["/proc/nowhere", "cannot be written"]);
    refused(&folder, &["export", "small.toml", "--npz", "file/x.npz"], &["there is no folder file"]);
    folder.write("a.csv", "s_0,next_0,reward,done\n0,1,2,0\n1,0,1,0\n0.5,1,0,1\n");
    refused(&folder, &["evaluate", "a.csv", "--features", "fourier:1", "--out", "file/x"], &["file/x cannot be written"]);
    assert_eq!(folder.text("file"), "kept");
}

#[test]
fn a_folder_that_holds_another_run_is_not_touched() {
    let folder = Folder::with(SMALL);
    refused(&folder, &["run", "small.toml", "--resume"], &["out/small holds no interrupted run"]);
    folder.run(&["run", "small.toml"]).exits(0);
    refused(&folder, &["run", "small.toml"], &["out/small holds a finished run", "--resume", "--overwrite"]);
    let other = ["run", "small.toml", "--resume", "--rounds", "10"];
    refused(&folder, &other, &["holds a finished run of other settings", "run.rounds was 20 then, and is 10 now", "config.toml"]);
    // The same run is already done, and nothing runs again.
    let before = folder.everything();
    folder.run(&["run", "small.toml", "--resume"]).exits(0).says("already done");
    assert!(folder.everything() == before);
    folder.run(&["run", "small.toml", "--overwrite", "--rounds", "30"]).exits(0);
    assert!(folder.text("out/small/config.toml").contains("rounds = 30"));
    // Bad input with --overwrite keeps the existing files.
    refused(&folder, &["run", "small.toml", "--overwrite", "--rounds", "0"], &["run.rounds"]);
}

#[test]
fn bundled_experiments_are_found_by_name() {
    let folder = Folder::new();
    let expected = ["no bundled experiment `scafflsa/fig1-hihg`; did you mean `scafflsa/fig1-high`?", "all, or one of"];
    refused(&folder, &["reproduce", "scafflsa/fig1-hihg"], &expected);
    refused(&folder, &["reproduce", "nonsense"], &["no bundled experiment `nonsense`"]);
    refused(&folder, &["reproduce"], &["required arguments", "<ID>"]);
    refused(&folder, &["reproduce", "scafflsa/fig1-high", "--set", "run.round=1"], &["unknown key `round`", "(set by --set run.round=1)"]);
    refused(&folder, &["completions", "tcsh"], &["invalid value 'tcsh'"]);
    refused(&folder, &["frobnicate"], &["unrecognized subcommand"]);
}

#[test]
fn a_budget_beside_that_of_the_link_is_refused() {
    let link = "uplink = { media = [{ kind = \"bit-budget\", bits = 8 }] }";
    let method = |more: &str| format!("[[method]]\nkind = \"q-shed\"\nlabel = \"Q\"\n{more}\n\n[[method]]");
    let text = |more: &str| edited(&with_problem("kind = \"quadratic\"\nagents = 3\ndim = 4"), "[[method]]", &method(more));
    refused_file(&text(&format!("budget = 4\n{link}")), link, &["budget = 4 has no effect over a link with a bit-budget", "not both"]);
    for fine in ["budget = 4", link] {
        Folder::with(&text(fine)).run(&["check", "small.toml"]).exits(0);
    }
}

/// [`SMALL`] with FedLSA over a link; `run` and `check` must refuse it at the link's line.
#[track_caller]
fn refused_link(link: &str, expected: &[&str]) {
    refused_edit("label = \"FedLSA\"", link, expected);
}

#[track_caller]
fn refused_codec(codec: &str, expected: &[&str]) {
    refused_link(&format!("uplink = {{ codec = {{ {codec} }} }}"), expected);
    // The downlink takes the same codecs.
    let expected: Vec<String> = expected.iter().map(|text| text.replace("uplink", "downlink")).collect();
    refused_link(&format!("downlink = {{ codec = {{ {codec} }} }}"), &expected.iter().map(String::as_str).collect::<Vec<_>>());
}

#[track_caller]
fn refused_medium(medium: &str, expected: &[&str]) {
    refused_link(&format!("uplink = {{ media = [{{ {medium} }}] }}"), expected);
}

#[test]
fn codecs_are_checked() {
    for (bits, shown, accepted) in
        [("0", "0", "between 1 and 64"), ("65", "65", "between 1 and 64"), ("-1", "-1", "a whole number"), ("2.5", "2.5", "a whole number")]
    {
        let message = format!("method[0].uplink.codec.bits: {shown} is not accepted");
        refused_codec(&format!("kind = \"quantised\", bits = {bits}"), &[&message, accepted]);
    }
    for kind in ["top-k", "rand-k"] {
        let of = |setting: &str, expected: &[&str]| refused_codec(&format!("kind = \"{kind}\"{setting}"), expected);
        of(", k = 0", &["method[0].uplink.codec.k: 0 is not accepted", "at least 1"]);
        of(", k = 4", &["method[0].uplink.codec.k: 4 is not accepted", "at most the number of components, d = 3"]);
        of(", fraction = 1.5", &["method[0].uplink.codec.fraction: 1.5 is not accepted", "in (0, 1]"]);
        of(", k = 1, fraction = 0.5", &["both k = 1 and fraction = 0.5 are given", "either `k`"]);
        of("", &["neither k nor fraction is given", "either `k`"]);
    }
    let nearest = ["there is no codec `quantized`; did you mean `quantised`?", "one of exact, float32, quantised, top-k, rand-k"];
    refused_codec("kind = \"quantized\", bits = 4", &nearest);
    refused_codec("bits = 4", &["method[0].uplink.codec.kind: the codec has no kind", "one of exact, float32"]);
    refused_codec(
        "kind = \"quantised\", bits = 4, roundin = 1",
        &["method[0].uplink.codec.roundin: unknown key `roundin`; did you mean `rounding`?"],
    );
    refused_codec("kind = \"quantised\", bits = 4, rounding = \"nearst\"", &["unknown value `nearst`; did you mean `nearest`?"]);
    refused_link("uplink = { codec = \"exact\" }", &["method[0].uplink.codec: \"exact\" is not accepted", "a table"]);
}

#[test]
fn methods_that_need_an_objective_say_so() {
    let newton = small("kind = \"fedlsa\"", "kind = \"newton\"").replacen("step_size = 0.1\nlocal_steps = 10\n", "", 1);
    refused_file(&newton, "kind = \"newton\"", &["method[0].kind: the method needs losses, gradients and Hessians", "symmetric A_c"]);
}

#[test]
fn media_are_checked() {
    let at = "method[0].uplink.media[0]";
    for success in ["1.5", "-0.1", "nan", "inf"] {
        let shown = success.replace("nan", "NaN");
        let message = format!("{at}.success: {shown} is not accepted");
        refused_medium(&format!("kind = \"erasure\", success = {success}"), &[&message, "a probability, in [0, 1]"]);
    }
    let bad = |medium: &str, key: &str, expected: &[&str]| {
        let key = format!("{at}{key}");
        refused_medium(medium, &[&[key.as_str()], expected].concat());
    };
    bad("kind = \"gilbert-elliott\", to_bad = 2, to_good = 0.1", ".to_bad: 2 is not accepted", &["a probability"]);
    bad("kind = \"gilbert-elliott\", to_bad = 0, to_good = 0", ".to_good: 0 is not accepted", &["able to change"]);
    bad("kind = \"over-the-air\", receiver_noise = -1", ".receiver_noise: -1 is not accepted", &["a standard deviation, at least 0"]);
    let gain = |gain: &str, key: &str, expected: &[&str]| bad(&format!("kind = \"over-the-air\", gain = {{ {gain} }}"), key, expected);
    gain("law = \"rayleigh\", scale = -1", ".gain.scale: -1 is not accepted", &["positive"]);
    gain("law = \"rician\", line_of_sight = -1, scale = 1", ".gain.line_of_sight: -1 is not accepted", &["at least 0"]);
    gain("law = \"constant\", value = 0", ".gain.value: 0 is not accepted", &["positive"]);
    gain("law = \"raylegh\"", ".gain.law: unknown value `raylegh`; did you mean `rayleigh`?", &["one of rayleigh, rician, constant"]);
    gain("law = \"rayleigh\", scal = 1", ".gain.scal: unknown key `scal`; did you mean `scale`?", &[]);
    bad(
        "kind = \"erasur\", success = 1",
        ".kind: there is no medium `erasur`; did you mean `erasure`?",
        &["one of erasure, gilbert-elliott"],
    );
    bad("kind = \"erasure\", sucess = 1", ".sucess: unknown key `sucess`; did you mean `success`?", &[]);
    bad("kind = \"erasure\"", ": the key `success` is missing", &["success = .."]);
    bad("success = 1", ".kind: the medium has no kind", &["one of erasure"]);
    // Budgets that carry nothing: none at all, less than a bit, or less than the codec's smallest message.
    bad("kind = \"bit-budget\", bits = 0", ".bits: 0 is not accepted", &["a positive number of bits a component"]);
    bad("kind = \"bit-budget\", bits = -1", ".bits: -1 is not accepted", &["a positive number"]);
    bad("kind = \"bit-budget\", bits = 8", ".bits: a budget of 8 bits a component never carries a message of this codec", &["quantised"]);
    bad("kind = \"bit-budget\", bits = 64, fading_snr = -1", ".fading_snr: -1 is not accepted", &["positive"]);
    bad("kind = \"delay\", law = \"geometric\", mean = 1e308", ".mean: 1e308 is not accepted", &["at most 100000, or max"]);
    bad("kind = \"late\", law = \"geometric\", mean = 200000", ".mean: 200000 is not accepted", &["at most 100000, or max"]);
    let with =
        |codec: &str, bits: &str| format!("uplink = {{ codec = {{ {codec} }}, media = [{{ kind = \"bit-budget\", bits = {bits} }}] }}");
    refused_link(&with("kind = \"quantised\", bits = 4", "0.5"), &[at, "a budget of 0.5 bits a component never carries a message"]);
    // One component of three and its index take 66 bits; three components of 22 bits have as many.
    refused_link(&with("kind = \"top-k\", k = 1", "21"), &[at, "a budget of 21 bits a component never carries a message"]);
    Folder::with(&small("label = \"FedLSA\"", &with("kind = \"top-k\", k = 1", "22"))).run(&["run", "small.toml"]).exits(0);
    // Media that lose everything, though not by their settings' ranges.
    let none = "no message arrives";
    bad("kind = \"erasure\", success = 0", &format!(": {none}"), &["a medium that lets some messages through"]);
    bad("kind = \"gilbert-elliott\", to_bad = 0.5, to_good = 0", &format!(": {none}"), &["a medium that lets"]);
    bad("kind = \"gilbert-elliott\", to_bad = 0.5, to_good = 0.5, success_good = 0", &format!(": {none}"), &["a medium that lets"]);
    let fading = ".fading_snr: no message arrives: a budget of 64 bits a component with fading_snr = 1e-300 never carries a message";
    bad("kind = \"bit-budget\", bits = 64, fading_snr = 1e-300", fading, &["a larger fading_snr"]);
    bad("kind = \"bit-budget\", bits = 1, fading_snr = 1.0", ".fading_snr: no message arrives", &["more bits"]);
    let rare = "uplink = { media = [{ kind = \"erasure\", success = 1e-12 }] }";
    let rare = Folder::with(&small("label = \"FedLSA\"", &format!("label = \"FedLSA\"\n{rare}")));
    rare.run(&["check", "small.toml"]).exits(0).says("warning: no message may arrive: of the 80 messages of a run, 8.0e-11 on average");
    // Combinations that cannot work, with the reason.
    refused_link(
        "uplink = { media = [{ kind = \"over-the-air\" }, { kind = \"erasure\", success = 1 }] }",
        &["method[0].uplink.media[1]: erasure after over-the-air, which leaves only a sum", "over-the-air as the last medium"],
    );
    refused_link(
        "uplink = { media = { kind = \"erasure\" } }",
        &["method[0].uplink.media: { kind = \"erasure\" } is not accepted", "a list"],
    );
    let dasa = "kind = \"dasa\"\nstep_size = 0.1\nuplink = { media = [{ kind = \"over-the-air\" }] }";
    let text = edited(SMALL, "kind = \"fedlsa\"\nlabel = \"FedLSA\"\nstep_size = 0.1\nlocal_steps = 10", dasa);
    refused_file(
        &text,
        dasa.lines().last().unwrap(),
        &["method[0].uplink: the method needs each agent's message, and over the air only their sum arrives", "one message per agent"],
    );
    let scafflsa = "label = \"SCAFFLSA\"\nuplink = { media = [{ kind = \"delay\", law = \"constant\", rounds = 1 }] }";
    refused_file(
        &small("label = \"SCAFFLSA\"", scafflsa),
        scafflsa.lines().last().unwrap(),
        &["method[1].uplink: a delay (pull) uses a direction twice or never", "late (push), or a method without agent state"],
    );
    for (medium, why) in [
        ("kind = \"over-the-air\"", "needs to know which messages are in a round's mean"),
        ("kind = \"late\", law = \"constant\", rounds = 1", "keeps one message of an agent"),
    ] {
        let scafflsa = format!("label = \"SCAFFLSA\"\nrule = \"acknowledged\"\nuplink = {{ media = [{{ {medium} }}] }}");
        refused_file(
            &small("label = \"SCAFFLSA\"", &scafflsa),
            scafflsa.lines().last().unwrap(),
            &[&format!("method[1].uplink: rule = \"acknowledged\" {why}"), "afresh"],
        );
    }
    refused_file(
        &small("label = \"SCAFFLSA\"", "label = \"SCAFFLSA\"\ncontrol_step = 1.5"),
        "control_step = 1.5",
        &["method[1].control_step: 1.5 is not accepted", "in (0, 1]"],
    );
}

#[test]
fn delays_are_checked() {
    for kind in ["delay", "late"] {
        let bad = |medium: &str, key: &str, expected: &[&str]| {
            let key = format!("method[0].uplink.media[0]{key}");
            refused_medium(&format!("kind = \"{kind}\", {medium}"), &[&[key.as_str()], expected].concat());
        };
        bad("law = \"constant\", rounds = -1", ".rounds: -1 is not accepted", &["a whole number, at least 0"]);
        bad("law = \"constant\", rounds = 10000000", ".rounds: 10000000 is not accepted", &["at most 1000000 rounds"]);
        bad("law = \"unifrm\", max = 3", ".law: unknown value `unifrm`; did you mean `uniform`?", &["one of constant, uniform"]);
        bad("law = \"uniform\", max = 3, mx = 2", ".mx: unknown key `mx`; did you mean `max`?", &["one of min, max, law"]);
        bad("law = \"uniform\", min = 4, max = 3", ".min: 4 is not accepted", &["at most max = 3"]);
        bad("law = \"geometric\", mean = -1", ".mean: -1 is not accepted", &["at least 0"]);
        bad("law = \"stall\", period = 3, length = 3", ".length: 3 is not accepted", &["below period = 3"]);
        bad("law = \"spikes\", probability = 2, rounds = 1", ".probability: 2 is not accepted", &["in [0, 1]"]);
        bad("max = 3", ": the key `law` is missing", &["law = .."]);
        bad("law = \"trace\"", ": a trace has neither delays nor path", &["either delays, a list, or path"]);
        bad("law = \"trace\", delays = []", ".delays: [] is not accepted", &["one delay per round"]);
        bad("law = \"trace\", delays = [1, 2]", ".delays: a trace of 2 rounds for a run of 20", &["as long as the run"]);
        bad("law = \"trace\", delays = [1, -2]", ".delays[1]: -2 is not accepted", &["whole numbers of rounds, at least 0"]);
        bad("law = \"trace\", delays = [[1, 2, 3, 4], [1, 2.5, 3, 4]]", ".delays[1][1]: 2.5 is not accepted", &["one per agent"]);
        bad("law = \"trace\", delays = [1, [1, 2]]", ".delays: 2 delays for 4 agents in round 1 of the trace", &["or 4, one per agent"]);
        bad("law = \"trace\", path = 3", ".path: 3 is not a text", &["the path of a file"]);
        bad("law = \"trace\", path = \"none.csv\"", ".path: none.csv: there is no such file", &[]);
        bad("law = \"trace\", path = \"a.csv\", delays = [1]", ".path: both delays and path are given", &["either delays"]);
        bad("law = \"constant\", rounds = 1, path = \"a.csv\"", ".path: unknown key `path`", &["rounds"]);
        // Files of delays: the file, its line and the value.
        for (contents, message, accepted) in [
            ("1\n2\n", "a trace of 2 rounds for a run of 20", "at least as long as the run"),
            ("1\n\nx\n", "trace.csv: line 3: `x` is not a whole number of rounds", "a line per round"),
            ("1,2,3,4\n1,2,3\n", "trace.csv: line 2: 3 delays, but earlier lines have 4", "one per agent"),
            ("1,-2,3,4\n", "trace.csv: line 1: `-2` is not a whole number", "a line per round"),
            ("1,2,3\n1,2,3\n", "3 delays for 4 agents in round 0 of the trace", "or 4, one per agent"),
            ("", "trace.csv: there is no delay in it", "a line per round"),
        ] {
            let text = format!("uplink = {{ media = [{{ kind = \"{kind}\", law = \"trace\", path = \"trace.csv\" }}] }}");
            let folder = Folder::with(&small("label = \"FedLSA\"", &text));
            folder.write("trace.csv", contents);
            refused(&folder, &["run", "small.toml"], &["method[0].uplink.media[0].path: ", message, accepted, "[small.toml:15:"]);
        }
    }
    refused_medium(
        "kind = \"delay\", law = \"constant\", rounds = 3, befor = \"first\"",
        &["media[0].befor: unknown key `befor`", "one of rounds, law, before"],
    );
    refused_link(
        "uplink = { media = [{ kind = \"delay\", law = \"constant\", rounds = 1 }, { kind = \"late\", law = \"constant\", rounds = 1 }] }",
        &["method[0].uplink.media[1]: two delays on one link", "one delay or late"],
    );
    refused_link(
        "uplink = { error_feedback = true, media = [{ kind = \"delay\", law = \"constant\", rounds = 1 }] }",
        &["method[0].uplink.media[0]: a delay (pull) on a link with error feedback", "late (push)"],
    );
}

#[test]
fn lists_are_not_read_as_tables() {
    let several = "[[sweep]] with key = .. and values = [..]";
    let method = |line: &str, key: &str| {
        let message = format!("method[0].{key} is not accepted");
        refused_edit("label = \"FedLSA\"", line, &[&message, several]);
    };
    refused_edit(
        "step_size = 0.1",
        "step_size = [0.1, 0.2]",
        &["method[0].step_size: [0.1, 0.2] is not accepted", "a positive number", several],
    );
    refused_edit("local_steps = 10", "local_steps = [1, 10]", &["method[0].local_steps: [1, 10] is not accepted", several]);
    method("output = [0.5]", "output: [0.5]");
    method("uplink = [{ kind = \"float32\" }, true]", "uplink: [{ kind = \"float32\" }, true]");
    method("downlink = [{ kind = \"float32\" }]", "downlink: [{ kind = \"float32\" }]");
    method("uplink = { codec = [\"float32\"] }", "uplink.codec: [\"float32\"]");
    let air = "uplink = { media = [{ kind = \"over-the-air\", gain = [\"constant\", 0.5] }] }";
    refused_edit("label = \"FedLSA\"", air, &["method[0].uplink.media[0].gain: [\"constant\", 0.5] is not accepted", "a table", several]);
    let late = "uplink = { media = [[\"late\", \"constant\", 3]] }";
    refused_edit("label = \"FedLSA\"", late, &["method[0].uplink.media[0]: [\"late\", \"constant\", 3] is not accepted"]);
    let expect = "expect = [[{ step_size = 0.1 }, \"ok\"]]";
    refused_edit("label = \"FedLSA\"", expect, &["method[0].expect[0]: [{ step_size = 0.1 }, \"ok\"] is not accepted", "a table"]);
    refused_edit("seeds = 2", "stop = [1e-3]", &["run.stop: [0.001] is not accepted", several]);
    refused_edit("seeds = 2", "record = [10, 20, \"log\"]", &["run.record[2]: \"log\" is not accepted", "a whole number"]);
    refused_edit("kind = \"iid\"", "kind = \"markov\"\nstart = [3]", &["sampling.start: [3] is not accepted", several]);
    refused_edit("kind = \"iid\"", "kind = [\"iid\", \"mean\"]", &["sampling.kind: [\"iid\", \"mean\"] is not accepted", several]);
    let sampling = SMALL.replace("[sampling]\nkind = \"iid\"\n", "").replace("id = \"small\"", "sampling = [\"iid\", 3]");
    refused_file(&sampling, "sampling = [\"iid\", 3]", &["sampling: [\"iid\", 3] is not accepted", "a table"]);
    let run = SMALL.replace("[run]\nrounds = 20\nseeds = 2\n", "").replace("id = \"small\"", "run = [20, 2]");
    refused_file(&run, "run = [20, 2]", &["run: [20, 2] is not accepted", "a table"]);
    for (problem, key) in [
        ("kind = \"linear\"\nnoise = [1.0, 0.5]", "noise: [1.0, 0.5]"),
        ("kind = \"logs\"\npath = \"x\"\ngamma = 0.9\nfeatures = [\"fourier\", 3]", "features: [\"fourier\", 3]"),
        ("kind = \"garnet\"\nagents = [2, 4]", "agents: [2, 4]"),
    ] {
        let line = problem.lines().last().unwrap();
        refused_file(&with_problem(problem), line, &[&format!("problem.{key} is not accepted"), several]);
    }
    refused_file(&format!("figure = [\"table\"]\n{SMALL}"), "figure = [\"table\"]", &["figure: [\"table\"] is not accepted", "a table"]);
    refused_file(
        &format!("check = [[\"curve\"]]\n{SMALL}"),
        "check = [[\"curve\"]]",
        &["check[0]: [\"curve\"] is not accepted", "a table"],
    );
    refused_file(
        &format!("sweep = [[\"run.rounds\", [1, 2]]]\n{SMALL}"),
        "sweep = [[\"run.rounds\", [1, 2]]]",
        &["sweep[0]: [\"run.rounds\", [1, 2]]"],
    );
    refused_file(&format!("variant = [[\"a\", {{}}]]\n{SMALL}"), "variant = [[\"a\", {}]]", &["variant[0]: [\"a\", {}] is not accepted"]);
}

#[test]
fn what_is_swept_has_names_of_its_own() {
    let end = |more: &str, line: &str, expected: &[&str]| refused_end(more, line, expected);
    let step = |key: &str, more: &str| format!("[[sweep]]\nkey = \"{key}\"\nvalues = [0.1, 0.2]\n{more}\n");
    let two = format!("{}{}", step("method.FedLSA.step_size", ""), step("method.SCAFFLSA.step_size", ""));
    let folder = Folder::with(&format!("{SMALL}\n{two}"));
    folder.run(&["check", "small.toml"]).exits(0).says("  at FedLSA.step_size=0.1, SCAFFLSA.step_size=0.2 (problem 0)");
    // A key twice, whatever it is called.
    let twice = step("method.FedLSA.step_size", "") + &step("method.FedLSA.step_size", "").replace("\nvalues", " # twice\nvalues");
    end(&twice, "key = \"method.FedLSA.step_size\" # twice", &["`method.FedLSA.step_size` is swept twice, by sweep[0] too"]);
    let named = format!("{}{}", step("method.FedLSA.step_size", "name = \"a\""), step("method.0.step_size", "name = \"b\""));
    end(
        &named,
        "key = \"method.FedLSA.step_size\"",
        &["`method.FedLSA.step_size` is swept twice: sweep[1].key sets it at every point too"],
    );
    let covered = format!("{}{}", step("method.FedLSA.step_size", "name = \"a\""), step("method.*.step_size", "name = \"b\""));
    end(&covered, "key = \"method.FedLSA.step_size\"", &["`method.FedLSA.step_size` is swept twice"]);
    let joint = "[[sweep]]\nkeys = [\"run.rounds\", \"run.rounds\"]\nvalues = [[1, 2]]";
    end(joint, "keys = [\"run.rounds\", \"run.rounds\"]", &["`run.rounds` is swept twice"]);
    let own = format!(
        "{}[[variant]]\nlabel = \"v\"\nsweep = [{{ key = \"run.rounds\", values = [5] }}]",
        step("run.rounds", "").replace("0.1, 0.2", "3, 4")
    );
    end(&own, "sweep = [{ key = \"run.rounds\", values = [5] }]", &["`run.rounds` is swept twice, by sweep[0] too"]);
    // Names.
    let same = format!("{}{}", step("method.FedLSA.step_size", "name = \"a\"\n"), step("method.SCAFFLSA.step_size", "name = \"a\" # too"));
    end(&same, "name = \"a\" # too", &["sweep[1].name: the sweeps sweep[0] and sweep[1] are both called `a`"]);
    for name in ["", "variant", "a\\u001bb"] {
        let line = format!("name = \"{name}\"");
        end(&step("run.rounds", &line), &line, &["sweep[0].name: \"", "is not accepted"]);
    }
    let variants = "[[variant]]\nlabel = \"a\"\n[[variant]]\nlabel = \"a\" # too";
    end(variants, "label = \"a\" # too", &["variant[1].label: two variants are called `a`"]);
}

#[test]
fn settings_without_effect_are_refused() {
    refused_edit("seeds = 2", "record = [0, 10, 30]", &["run.record[2]: the round 30 of a run of 20", "at most rounds = 20"]);
    refused_edit("seeds = 2", "record = [0, 10, 10]", &["run.record[2]: the round 10 is given twice"]);
    refused_edit("seeds = 2", "record = { every = 5, spacing = \"log\" }", &["run.record.spacing: a spacing of every so many rounds"]);
    refused_edit(
        "label = \"FedLSA\"",
        "output = { tail = 0.5, weighted = 0.9 }",
        &["method[0].output: { tail = 0.5, weighted = 0.9 } is not accepted", "one of tail and weighted"],
    );
    refused_edit("label = \"FedLSA\"", "output = {}", &["method[0].output: {} is not accepted", "one of tail and weighted"]);
    refused_edit(
        "kind = \"iid\"",
        "kind = \"iid\"\nstart = { state = 1 }",
        &["sampling.start: only kind = \"markov\" has a start of trajectories"],
    );
    refused_edit(
        "kind = \"iid\"",
        "kind = \"mean\"\nbatch = 2",
        &["sampling.batch: kind = \"mean\" draws no samples, so that a batch has no effect"],
    );
    let start = "start = \"root\"\nseeds = 2";
    let text =
        small("seeds = 2", start).replace("label = \"FedLSA\"", "start = \"zero\"").replace("label = \"SCAFFLSA\"", "start = \"zero\"");
    refused_file(&text, "start = \"root\"", &["run.start: every method has its own start, so that this one has no effect"]);
    refused_edit(
        "label = \"FedLSA\"",
        "uplink = { error_feedback = true }",
        &["error_feedback: an exact codec has no error that could be fed back"],
    );
    refused_edit("label = \"FedLSA\"", "expect = []", &["method[0].expect: [] says nothing"]);
    let linear = "kind = \"linear\"\na = [[[1.0]], [[2.0]]]\nb = [[1.0], [2.0]]";
    for (line, message) in [
        ("agents = 3", "problem.agents: 3 agents, and a and b have 2"),
        ("dim = 2", "problem.dim: 2 dimensions, and b has 1"),
        ("scale = 1.5", "problem.scale: a scale of 1.5 beside systems that are written out"),
        ("spread = 2.0", "problem.spread: a spread of 2"),
        ("seed = 3", "problem.seed: the seed 3 of systems that are written out"),
    ] {
        refused_file(&with_problem(&format!("{linear}\n{line}")), line, &[message, "beside a and b"]);
    }
    Folder::with(&with_problem(&format!("{linear}\nagents = 2\ndim = 1"))).run(&["check", "small.toml"]).exits(0);
    let switching = "kind = \"switching\"\nvalues = [1.0, 2.0]\nmixing_time = 10";
    refused_file(&with_problem(switching), "mixing_time = 10", &["problem.mixing_time: a mixing time, and no chain"]);
    // Noise: its start without trajectories, whatever the problem, and all of it without samples.
    let start = "noise = { std = 1.0, start = \"random\" }";
    for kind in ["random-logistic", "fixed-point", "q-learning", "quadratic"] {
        let text = with_problem(&format!("kind = \"{kind}\"\nagents = 2\n{start}"));
        refused_file(&text, start, &["problem.noise.start: a start of trajectories, and samples are not those of a trajectory"]);
    }
    let noise = "noise = { std = 1.0 }";
    let noisy = with_problem(&format!("{linear}\n{noise}"));
    let mean = noisy.replace("kind = \"iid\"", "kind = \"mean\"");
    refused_file(&mean, noise, &["problem.noise: additive noise, and no samples: the mean operator is used", "another kind in [sampling]"]);
    let both = format!("{noisy}\n[[sweep]]\nkey = \"sampling.kind\"\nvalues = [\"iid\", \"mean\"]\n");
    Folder::with(&both).run(&["check", "small.toml"]).exits(0);
    // In a sweep, a setting may have its effect at another point.
    let swept = format!(
        "{}\n[[sweep]]\nkey = \"sampling.kind\"\nvalues = [\"iid\", \"markov\"]\n",
        small("kind = \"iid\"", "start = { state = 1 }")
    );
    Folder::with(&swept).run(&["check", "small.toml"]).exits(0);
    // Entries that match no point before others do.
    let expect = |entries: &str| {
        let line = format!("expect = [{entries}]");
        let text = format!("{}\n[[sweep]]\nkey = \"problem.agents\"\nvalues = [2, 4]\n", small("label = \"FedLSA\"", &line));
        (text, line)
    };
    let (text, line) = expect("{ at = { agents = 3 }, status = \"diverges\" }");
    refused_file(&text, &line, &["method[0].expect[0]: no point is at agents = 3"]);
    let (text, line) = expect("{ at = {}, status = \"ok\" }, { at = { agents = 2 }, status = \"diverges\" }");
    refused_file(&text, &line, &["method[0].expect[1]: no point is at agents = 2, or earlier entries match all such points"]);
    // Assignments.
    refused_end("[quick]\nrun = {}", "run = {}", &["quick.run: an empty table sets nothing"]);
    refused_file(&format!("quick = {{}}\n{SMALL}"), "quick = {}", &["quick: an empty table sets nothing"]);
    let quick = "[[sweep]]\nkey = \"run.rounds\"\nvalues = [1, 2]\n[quick]\nrun.rounds = 1";
    refused_end(
        quick,
        "run.rounds = 1",
        &["run.rounds: a sweep or variant sets this key at every point, so that the setting has no effect"],
    );
    let variant = "[[variant]]\nlabel = \"a\"\nset = { \"run.rounds\" = 3 }\nsweep = [{ key = \"run.rounds\", values = [1] }]";
    refused_end(variant, "set = { \"run.rounds\" = 3 }", &["variant[0].sweep[0].key sets this key at every point of the variant"]);
    let twice = "[[variant]]\nlabel = \"a\"\nset = { run.rounds = 3, \"run.rounds\" = 4 }";
    refused_end(twice, "set = { run.rounds = 3, \"run.rounds\" = 4 }", &["sets this key at every point of the variant"]);
}

#[test]
fn quoted_values_are_cut_and_harmless() {
    let huge = "\u{1b}[31m".repeat(300_000);
    let toml = huge.replace('\u{1b}', "\\u001b");
    let tame = |folder: &Folder, args: &[&str]| {
        let output = folder.run(args).exits(2);
        assert!(output.stderr.len() < 20_000, "{args:?}: {} bytes", output.stderr.len());
        assert!(!output.stderr.contains('\u{1b}') && !output.stdout.contains('\u{1b}'), "{args:?}: {:.2000}", output.stderr);
    };
    for (from, to) in [
        ("id = \"small\"", format!("id = \"{toml}\"")),
        ("id = \"small\"", format!("title = \"{toml}\"")),
        ("id = \"small\"", format!("\"{toml}\" = 1")),
        ("agents = 4", format!("agents = \"{toml}\"")),
        ("agents = 4", format!("\"{toml}\" = 1")),
        ("agents = 4", format!("agents = [{}]", vec![format!("\"{toml}\""); 3].join(", "))),
        ("kind = \"garnet\"", format!("kind = \"{toml}\"")),
        ("kind = \"iid\"", format!("kind = \"{toml}\"")),
        ("kind = \"fedlsa\"", format!("kind = \"{toml}\"")),
        ("label = \"FedLSA\"", format!("label = \"{toml}\"")),
        ("label = \"FedLSA\"", format!("expect = \"{toml}\"")),
        ("label = \"FedLSA\"", format!("expect = [{{ at = {{ \"{toml}\" = 1 }}, status = \"ok\" }}]")),
        ("label = \"FedLSA\"", format!("uplink = {{ codec = {{ kind = \"{toml}\" }} }}")),
        ("seeds = 2", format!("start = \"{toml}\"")),
        ("seeds = 2", format!("start = \"{toml}.json\"")),
        ("seeds = 2", format!("[[sweep]]\nkey = \"{toml}\"\nvalues = [1]")),
        ("seeds = 2", format!("[[sweep]]\nkey = \"run.start\"\nvalues = [\"{toml}\"]")),
        ("seeds = 2", format!("[[sweep]]\nkey = \"run.rounds\"\nvalues = [1]\nlabels = [\"{toml}\"]")),
        ("seeds = 2", format!("[[variant]]\nlabel = \"{toml}\"")),
        ("seeds = 2", format!("[[check]]\nkind = \"{toml}\"\nmethod = \"FedLSA\"")),
        ("seeds = 2", format!("[[check]]\nkind = \"curve\"\nmethod = \"{toml}\"")),
        ("seeds = 2", format!("[figure]\nx = \"{toml}\"")),
        ("seeds = 2", format!("[quick]\n\"{toml}\" = 1")),
        // A line that no parser likes.
        ("seeds = 2", format!("seeds = {huge}")),
        ("seeds = 2", format!("seeds = {}", "9".repeat(3_000_000))),
    ] {
        let folder = Folder::with(&small(from, &to));
        tame(&folder, &["check", "small.toml"]);
    }
    let folder = Folder::with(SMALL);
    let short = "\u{1b}[31m".repeat(2000);
    for set in [format!("{short}=1"), format!("run.rounds={short}"), format!("method.{short}.x=1"), short.clone()] {
        tame(&folder, &["check", "small.toml", "--set", &set]);
        tame(&folder, &["check", "small.toml", "--sweep", &set]);
    }
    tame(&folder, &["check", &"\u{1b}x".repeat(50)]);
    tame(&folder, &["reproduce", &short]);
    // Cells of readers.
    folder.write("log.csv", format!("s_0,next_0,reward,done\n0,1,\u{1b}{huge},0\n"));
    tame(&folder, &["evaluate", "log.csv"]);
    folder.write("log.csv", format!("s_0,next_0,{huge},done\n0,1,1,0\n"));
    tame(&folder, &["evaluate", "log.csv"]);
    folder.write("s.json", format!("[1, \"{}\", 3]", "x".repeat(3_000_000)));
    tame(&folder, &["check", "small.toml", "--set", "run.start=s.json"]);
}

#[test]
fn excerpts_of_long_lines_show_a_window() {
    let values = (0..200_000).map(|i| i.to_string()).collect::<Vec<_>>().join(", ");
    let text = format!("{SMALL}\n[[sweep]]\nvalues = [{values}, \"x\"]\nkey = \"problem.agents\"\n");
    let output = Folder::with(&text.replace("199999, ", "")).run(&["check", "small.toml"]).exits(2);
    assert!(output.stderr.len() < 3000, "{}", output.stderr);
    let few = format!("{SMALL}\n[[sweep]]\nvalues = [{}, \"x\"]\nkey = \"problem.agents\"\n", "4".to_string() + &" ".repeat(500_000));
    let output = Folder::with(&few).run(&["check", "small.toml"]).exits(2);
    assert!(output.stderr.len() < 3000 && output.stderr.contains("[small.toml:30:500"), "{}", output.stderr);
    assert!(output.stderr.contains("\"x\"]"), "{}", output.stderr);
}

#[test]
fn deep_keys_and_values_are_refused() {
    let folder = Folder::with(SMALL);
    let deep = vec!["a"; 20_000].join(".");
    refused(&folder, &["check", "small.toml", "--set", &format!("{deep}=1")], &["is a key of 20000 parts", "at most 32 parts"]);
    refused(&folder, &["check", "small.toml", "--sweep", &format!("{deep}=1")], &["is a key of 20000 parts"]);
    refused(
        &folder,
        &["check", "small.toml", "--set", &format!("problem.agents={}", "[".repeat(20_000))],
        &["--set: lists and tables are more than 64 deep"],
    );
    for text in [
        format!("{SMALL}\n[quick]\n\"{deep}\" = 1\n"),
        format!("{SMALL}\n[[variant]]\nlabel = \"a\"\nset = {{ \"{deep}\" = 1 }}\n"),
        format!("{SMALL}\n[[sweep]]\nkey = \"{deep}\"\nvalues = [1]\n"),
    ] {
        refused(&Folder::with(&text), &["check", "small.toml"], &["is a key of 20000 parts"]);
    }
    // The parser counts brackets, each of which may hold a key of many parts.
    let part = format!("{{ {} = ", vec!["a"; 70].join("."));
    let nested = format!("{}1{}", part.repeat(60), " }".repeat(60));
    for text in [
        format!("deep = {nested}\n{SMALL}"),
        format!("{SMALL}\n[quick]\n\"run.seeds\" = {nested}\n"),
        format!("deep = {}1{}\n{SMALL}", "[".repeat(20_000), "]".repeat(20_000)),
        format!("{deep} = 1\n{SMALL}"),
        format!("[{deep}]\n{SMALL}"),
    ] {
        let folder = Folder::with(&text);
        for threads in [&[][..], &["--threads", "1"]] {
            let output = folder.run(&[&["check", "small.toml"], threads].concat()).exits(2);
            assert!(output.stderr.len() < 5000, "{}", output.stderr.len());
        }
    }
    let output = folder.run(&["check", "small.toml", "--threads", "1", "--set", &format!("run.seeds={nested}")]).exits(2);
    assert!(output.message().contains("lists and tables are more than 64 deep"), "{}", output.stderr);
}

#[test]
fn sweeps_are_given_on_the_command_line() {
    let folder = Folder::with(SMALL);
    let says = |args: &[&str], text: &str| {
        folder.run(&[&["check", "small.toml"], args].concat()).exits(0).says(text);
    };
    says(&["--sweep", "method.*.step_size=0.01,0.1"], "at step_size=0.01 (problem 0)");
    says(&["--sweep", "run.rounds=5,10", "--sweep", "problem.agents=2,3"], "at rounds=10, agents=3");
    says(&["--sweep", "run.start=zero,root"], "at start=root");
    says(&["--sweep", "method.0.step_size={ c = 1.0, t0 = 20 }, 0.1", "--set", "method.0.expect=ok"], "2 points x 2 methods");
    says(&["--sweep", "run.seeds=[1, 2],[3]"], "2 points");
    let bad = |sweep: &str, expected: &[&str]| refused(&folder, &["run", "small.toml", "--sweep", sweep], expected);
    bad("run.rounds", &["--sweep: `run.rounds` has no `=`", "--sweep KEY=V1,V2"]);
    bad("run.rounds=1,,2", &["`run.rounds=1,,2` lacks a value"]);
    bad("run.rounds=", &["lacks a value"]);
    bad("=1", &["lacks a key"]);
    bad("run.rounds=5,5", &["two points are both at `rounds=5` (set by --sweep run.rounds=5,5)"]);
    // The option is named, and not a sweep of the file that is about another key.
    let twice = ["check", "small.toml", "--sweep", "method.FedLSA.step_size=0.1,0.1"];
    let swept = Folder::with(&format!("{SMALL}\n[[sweep]]\nkey = \"problem.agents\"\nvalues = [2, 4]\n"));
    let expected = ["are both at `agents=2, step_size=0.1` (set by --sweep method.FedLSA.step_size=0.1,0.1)"];
    assert!(!refused(&swept, &twice, &expected).contains("small.toml:"));
    bad("run.rounds=5,0", &["run.rounds: 0 is not accepted (at rounds=0) (set by --sweep run.rounds=5,0)"]);
    bad("run.rouns=5", &["unknown key `rouns`; did you mean `rounds`?", "(set by --sweep run.rouns=5)"]);
    bad("figure.x=round", &["`figure.x` is in none of the tables", "(set by --sweep figure.x=round)"]);
    refused(
        &folder,
        &["run", "small.toml", "--sweep", "run.rounds=5,6", "--rounds", "7"],
        &["the option has no effect", "(set by --rounds 7)"],
    );
    refused(
        &folder,
        &["run", "small.toml", "--sweep", "run.rounds=5", "--sweep", "run.rounds=6"],
        &["`run.rounds` is swept twice", "(set by --sweep run.rounds=6)"],
    );
    folder.run(&["run", "small.toml", "--sweep", "run.rounds=5,10", "-q", "--out", "out"]).exits(0);
    assert!(folder.text("out/config.toml").contains("key = \"run.rounds\"\nvalues = [5, 10]"), "{}", folder.text("out/config.toml"));
    assert_eq!(folder.json("out/summary.json")["results"].as_array().unwrap().len(), 4);
}

#[test]
fn experiments_are_read_from_standard_input() {
    use std::io::Write;
    let folder = Folder::new();
    folder.write("s.json", "[0.1, 0.2, 0.3]");
    let run = |args: &[&str], text: &str| {
        let mut child = folder.command(args);
        child.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        let mut child = child.spawn().unwrap();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let text = small("id = \"small\"\n", "").replace("seeds = 2", "seeds = 2\nstart = \"s.json\"");
    for command in [&["check", "-"][..], &["theory", "-"], &["export", "-", "--npz", "p.npz"], &["run", "-"]] {
        let (status, _, stderr) = run(command, &text);
        assert_eq!(status, 0, "{command:?}: {stderr}");
    }
    assert_eq!(folder.json("out/stdin/summary.json")["id"], "stdin");
    assert!(folder.path("p.npz").exists());
    let (status, _, stderr) = run(&["run", "-"], &small("rounds = 20", "rounds = 0"));
    assert!(status == 2 && stderr.contains("[stdin:26:"), "{stderr}");
    let (status, _, stderr) = run(&["check", "-"], "");
    assert!(status == 2 && stderr.contains("stdin: there is no [problem] table"), "{stderr}");
}

#[test]
fn files_of_unusual_size_are_read_or_refused_soon() {
    // Many points take little memory: a table a point would be four hundred million values here.
    if cfg!(target_os = "linux") {
        let values = (0..20_000).map(|i| format!("{}", 1e-3 + 1e-6 * f64::from(i))).collect::<Vec<_>>().join(", ");
        let folder = Folder::with(&format!("{SMALL}\n[[sweep]]\nkey = \"method.*.step_size\"\nvalues = [{values}]\n"));
        let mut command = std::process::Command::new("sh");
        let program = env!("CARGO_BIN_EXE_fedsa");
        command.args(["-c", "ulimit -v 3000000; exec \"$0\" check small.toml --threads 2", program]).current_dir(folder.path(""));
        crate::common::finish(command).exits(0).says("20000 points x 2 methods = 80000 different runs");
    }
    // Many keys, and long ones.
    let keys: String = (0..100_000).map(|i| format!("k{i} = {i}\n")).collect();
    refused(&Folder::with(&small("agents = 4", &keys)), &["check", "small.toml"], &["unknown key `k0`"]);
    let folder = Folder::with(&small("agents = 4", &format!("{} = 4", "k".repeat(1_000_000))));
    refused(&folder, &["check", "small.toml"], &["unknown key `kkk", "kkk..`"]);
    let methods: String = (0..1000).map(|i| format!("[[method]]\nkind = \"fedtd\"\nstep_size = 0.1\nlabel = \"{i}\"\n")).collect();
    Folder::with(&format!("{SMALL}\n{methods}\n[quick]\nmethod.7.step_size = 0.2\n")).run(&["check", "small.toml"]).exits(0);
    let folder = Folder::with(SMALL);
    std::fs::File::create(folder.path("large.toml")).unwrap().set_len(70 << 20).unwrap();
    refused(&folder, &["check", "large.toml"], &["large.toml: cannot be read: it has 73 MB, and at most"]);
}

/// Matrices and chains that break a promise are named, with the entry or the eigenvalue at fault.
#[test]
fn matrices_and_chains_at_fault_are_named() {
    let refused_problem = |problem: &str, line: &str, texts: &[&str]| refused_file(&with_problem(problem), line, texts);
    let quadratic = |a: &str| format!("kind = \"quadratic\"\na = {a}\nb = [[1.0, 2.0]]");
    for (a, texts) in [
        ("[[[1.0, 2.0]]]", &["problem.a: the matrix of agent 0 is not square: it has 1 rows, and row 0 has 2 entries"][..]),
        (
            "[[[2.0, 0.5], [0.25, 1.0]]]",
            &["problem.a: the matrix of agent 0 is not symmetric: entry [0][1] is 0.5 and entry [1][0] is 0.25, 0.25 apart"],
        ),
        ("[[[1.0, 2.0], [2.0, 1.0]]]", &["problem.a: the average of the agents' matrices is not positive definite", "-1.000000e0"]),
        ("[[[1.0, 0.0], [0.0, 0.0]]]", &["the average of the agents' matrices is not positive definite: its least eigenvalue is 0"]),
        ("[[[1.0]]]", &["problem.b: agent 0 has a matrix of 1 rows and an offset of 2 components"]),
    ] {
        let line = if a == "[[[1.0]]]" { "b = [[1.0, 2.0]]".to_string() } else { format!("a = {a}") };
        refused_problem(&quadratic(a), &line, texts);
    }
    let written = quadratic("[[[1.0, 0.0], [0.0, 1.0]]]");
    refused_problem(&format!("{written}\nspread = 1.0"), "spread = 1.0", &["problem.spread: a setting of matrices that are drawn"]);
    let drawn = "kind = \"quadratic\"\nmatrices = \"indefinite\"\ngreatest_eigenvalue = 3.0";
    refused_problem(drawn, "greatest_eigenvalue = 3.0", &["a greatest eigenvalue of 3 of indefinite matrices"]);

    let chain = |rows: &str| {
        let sum = format!("kind = \"finite-sum\"\nagents = 2\nterms = 2\ntransitions = {rows}");
        with_problem(&sum).replace("kind = \"iid\"", "kind = \"markov\"")
    };
    for (rows, texts) in [
        ("[[1.0, 0.0], [0.0, 1.0]]", "the chain is reducible: the eigenvalue 1 is a double one, 1.000000000"),
        ("[[0.0, 1.0], [1.0, 0.0]]", "the chain is periodic: another eigenvalue than 1 has modulus 1, -1.000000000"),
        ("[[0.5, 0.5], [0.25, 0.75]]", "column 0 sums to 0.75"),
        ("[[0.5, 0.5]]", "a matrix of 1 rows, one of which has 2 entries"),
    ] {
        refused_file(&chain(rows), &format!("transitions = {rows}"), &[&format!("problem.transitions: {texts}")]);
    }
    let idle = "kind = \"finite-sum\"\nmixing_time = 5.0";
    refused_problem(idle, "mixing_time = 5.0", &["problem.mixing_time: a setting of the chain of indices"]);

    for (keys, text) in [
        ("matrix = [[0.5, 0.0], [1.0, -1.5]]", "problem.noise.matrix: a matrix of spectral radius 1.5 is not accepted"),
        ("radius = 0.5, start = \"zero\"", "problem.noise.start: a start of trajectories"),
    ] {
        let line = format!("noise = {{ std = 1.0, {keys} }}");
        refused_problem(&format!("kind = \"quadratic\"\nagents = 2\ndim = 2\n{line}"), &line, &[text]);
    }
    let loud = "noise = { std = 1e200 }";
    let texts = ["problem.noise.std: 1e200 is not accepted", "from 0 to 1e100"];
    refused_problem(&format!("kind = \"quadratic\"\nagents = 2\ndim = 2\n{loud}"), loud, &texts);

    // Chains that count as reducible.
    for problem in ["random-logistic", "fixed-point", "switching", "finite-sum"] {
        let line = "mixing_time = 1e300";
        let text = with_problem(&format!("kind = \"{problem}\"\nagents = 2\n{line}")).replace("kind = \"iid\"", "kind = \"markov\"");
        refused_file(&text, line, &["problem.mixing_time: 1e300 is not accepted", "its second eigenvalue is 1 - 1.0e-300", "at most 1e9"]);
    }
    let stay = "stay = 0.9999999999999999";
    let texts = ["problem.stay: 0.9999999999999999 is not accepted", "reducible to rounding", "at most 1 - 1e-9"];
    refused_problem(&format!("kind = \"mrp\"\nagents = 2\nstates = 5\nfeatures = 2\n{stay}"), stay, &texts);
}

#[test]
fn random_and_nonlinear_problems_name_what_they_refuse() {
    let refused = |problem: &str, line: &str, expected: &[&str]| refused_file(&with_problem(problem), line, expected);
    let mrp =
        |line: &str, expected: &[&str]| refused(&format!("kind = \"mrp\"\nagents = 6\nstates = 5\nfeatures = 2\n{line}"), line, expected);
    mrp("base_agents = 4", &["problem.base_agents: 4 is not accepted", "a divisor of agents = 6"]);
    mrp("base_agents = 0", &["problem.base_agents: 0 is not accepted"]);
    mrp("kernel_rank = 6", &["problem.kernel_rank: 6 is not accepted", "between 1 and states = 5"]);
    mrp("kernel_law = \"normal\"", &["kernel_law", "uniform", "triangular"]);
    let logistic = |line: &str, expected: &[&str]| refused(&format!("kind = \"random-logistic\"\n{line}"), line, expected);
    logistic("ridge = 0.0", &["problem.ridge: 0 is not accepted", "a positive number", "strongly convex"]);
    logistic("points = 2001", &["problem.points: 2001 is not accepted", "between 1 and 2000"]);
    logistic("shift = -1.0", &["problem.shift: -1.0 is not accepted"]);
    logistic("mixing_time = 3.0", &["problem.mixing_time: a mixing time, and no chain", "kind = \"markov\""]);
    logistic("noise = { std = 1.0, radius = 1.0 }", &["problem.noise.radius: 1 is not accepted", "in [0, 1)"]);
    let map = |line: &str, expected: &[&str]| refused(&format!("kind = \"fixed-point\"\n{line}"), line, expected);
    map("contraction = 1.0", &["problem.contraction: 1 is not accepted", "in [0, 1), so that the mean map is a contraction"]);
    map("outcomes = 0", &["problem.outcomes: 0 is not accepted"]);
    map("multiplicative = nan", &["problem.multiplicative: NaN is not accepted"]);
    let control = |line: &str, expected: &[&str]| refused(&format!("kind = \"q-learning\"\nstates = 5\n{line}"), line, expected);
    control("exploration = 0.0", &["problem.exploration: 0 is not accepted", "in (0, 1], so that every action is taken"]);
    control("features = 4", &["problem.features: 4 is not accepted", "states times actions = 10 tabular features", "another feature_law"]);
    control("branching = 6", &["problem.branching: 6 is not accepted", "between 1 and states = 5"]);
    let missing = &["problem.features: the number of features is missing", "features = .., or feature_law"];
    refused("kind = \"q-learning\"\nfeature_law = \"simplex\"", "[problem]", missing);
    control("min_class = 6", &["problem.min_class: 6 is not accepted", "at most states = 5"]);
}
