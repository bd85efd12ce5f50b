//! Keys of experiment files, and settings without effect.

use super::*;

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
    refused_edit("label = \"FedLSA\"", "output = { extrapolate = 4 }", &["method[0].output.extrapolate: 4 is not accepted", "2 or 3"]);
    refused_edit("label = \"FedLSA\"", "output = { linear_twin = true }", &["method[0].output.linear_twin: ", "a nonlinear problem"]);
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
fn methods_that_need_an_objective_say_so() {
    let newton = small("kind = \"fedlsa\"", "kind = \"newton\"").replacen("step_size = 0.1\nlocal_steps = 10\n", "", 1);
    refused_file(&newton, "kind = \"newton\"", &["method[0].kind: the method needs losses, gradients and Hessians", "symmetric A_c"]);
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

/// Systems that are written out.
const LINEAR: &str = "kind = \"linear\"\na = [[[1.0]], [[2.0]]]\nb = [[1.0], [2.0]]";

#[test]
fn settings_without_effect_are_refused() {
    refused_edit("seeds = 2", "record = [0, 10, 30]", &["run.record[2]: the round 30 of a run of 20", "at most rounds = 20"]);
    refused_edit("seeds = 2", "record = [0, 10, 10]", &["run.record[2]: the round 10 is given twice"]);
    refused_edit("seeds = 2", "record = { every = 5, spacing = \"log\" }", &["run.record.spacing: a spacing of every so many rounds"]);
    refused_edit(
        "label = \"FedLSA\"",
        "output = { tail = 0.5, weighted = 0.9 }",
        &["method[0].output: { tail = 0.5, weighted = 0.9 } is not accepted", "one of tail, weighted, extrapolate"],
    );
    refused_edit("label = \"FedLSA\"", "output = {}", &["method[0].output: {} is not accepted", "one of tail, weighted, extrapolate"]);
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
    for (line, message) in [
        ("agents = 3", "problem.agents: 3 agents, and a and b have 2"),
        ("dim = 2", "problem.dim: 2 dimensions, and b has 1"),
        ("scale = 1.5", "problem.scale: a scale of 1.5 beside systems that are written out"),
        ("spread = 2.0", "problem.spread: a spread of 2"),
        ("seed = 3", "problem.seed: the seed 3 of systems that are written out"),
    ] {
        refused_file(&with_problem(&format!("{LINEAR}\n{line}")), line, &[message, "beside a and b"]);
    }
    Folder::with(&with_problem(&format!("{LINEAR}\nagents = 2\ndim = 1"))).run(&["check", "small.toml"]).exits(0);
    let switching = "kind = \"switching\"\nvalues = [1.0, 2.0]\nmixing_time = 10";
    refused_file(&with_problem(switching), "mixing_time = 10", &["problem.mixing_time: a mixing time, and no chain"]);
}

#[test]
fn noise_without_effect_is_refused() {
    // Its start without trajectories, whatever the problem, and all of it without samples.
    let start = "noise = { std = 1.0, start = \"random\" }";
    for kind in ["random-logistic", "fixed-point", "q-learning", "quadratic"] {
        let text = with_problem(&format!("kind = \"{kind}\"\nagents = 2\n{start}"));
        refused_file(&text, start, &["problem.noise.start: a start of trajectories, and samples are not those of a trajectory"]);
    }
    let noise = "noise = { std = 1.0 }";
    let noisy = with_problem(&format!("{LINEAR}\n{noise}"));
    let mean = noisy.replace("kind = \"iid\"", "kind = \"mean\"");
    refused_file(&mean, noise, &["problem.noise: additive noise, and no samples: the mean operator is used", "another kind in [sampling]"]);
    let both = format!("{noisy}\n[[sweep]]\nkey = \"sampling.kind\"\nvalues = [\"iid\", \"mean\"]\n");
    Folder::with(&both).run(&["check", "small.toml"]).exits(0);
}

#[test]
fn expectations_without_effect_are_refused() {
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
}

#[test]
fn assignments_without_effect_are_refused() {
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
