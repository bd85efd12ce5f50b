//! Files for single kinds, which are complete.

/// A file of a problem, a sampling, a method and keys of `[run]`.
fn file(problem: &str, sampling: &str, method: &str, run: &str) -> String {
    format!("[problem]\n{problem}\n[sampling]\n{sampling}\n[[method]]\nlabel = \"m\"\n{method}\n[run]\nrounds = 3\n{run}\n")
}

const GARNET: &str = "kind = \"garnet\"\nagents = 3\nstates = 6\nfeatures = 2\nmin_class = 2";

const FEDLSA: &str = "kind = \"fedlsa\"\nstep_size = 0.1\nlocal_steps = 2";

/// A file with a problem of this kind.
fn complete_problem(kind: &str) -> String {
    let own = match kind {
        "file" => "path = \"p.npz\"",
        "logs" => "path = \"a.csv\"\ngamma = 0.9\nfeatures = { kind = \"identity\" }",
        "logistic" | "glm" => "data = \"rows.csv\"\nagents = 3\nridge = 0.1",
        "least-squares" => "data = \"rows.csv\"\nagents = 3\nridge = 0.1",
        "elsewhere" => "dim = 2\nweights = [0.5, 0.5]\nof = { kind = \"garnet\" }",
        "improvement" => {
            let logs =
                "kind = \"improvement\"\npath = \"a.csv\"\nactions = [\"stay\", \"go\"]\ngamma = 0.9\nfeatures = { kind = \"identity\" }";
            return file(logs, "kind = \"mean\"", FEDLSA, "");
        }
        "policy-gradient" => "agents = 3\nlength = 5",
        "garnet" => return file(GARNET, "", FEDLSA, ""),
        _ => "agents = 3",
    };
    file(&format!("kind = \"{kind}\"\n{own}"), "", FEDLSA, "")
}

/// A file with a method of this kind.
fn complete_method(kind: &str) -> String {
    let own = match kind {
        "scafflsa-random" => "talk_probability = 0.5",
        "projected-td" => "local_steps = 2\nradius = 3.0",
        "importance-averaging" => "local_steps = 2",
        "fedprox" => "local_steps = 2\nproximal_mu = 0.1",
        "fedlsa" | "fedavg" | "scafflsa" | "fedhsa" | "scaffold" | "fedlin" | "one-shot" => "local_steps = 2",
        _ => "",
    };
    if kind == "done" {
        let done = "kind = \"done\"\nrichardson_step = 0.1";
        return file("kind = \"linear\"", "kind = \"mean\"", done, "");
    }
    let is_shed = fedsa_methods::presets::find(kind).is_some_and(|preset| ["shed", "q-shed"].contains(&preset.method));
    let without_steps = [
        "newton",
        "lstd",
        "lspi",
        "fitted-q",
        "gmres",
        "shed",
        "q-shed",
        "gd",
        "agd",
        "bfgs",
        "lbfgs",
        "giant",
        "adaptive-newton",
        "fednl",
    ];
    if is_shed || without_steps.contains(&kind) {
        return file("kind = \"linear\"", "kind = \"mean\"", &format!("kind = \"{kind}\""), "");
    }
    if kind == "anderson" {
        let base = "base = { kind = \"fedlsa\", step_size = 0.1, local_steps = 2 }";
        return file(GARNET, "", &format!("kind = \"{kind}\"\n{base}"), "");
    }
    let problem = if kind == "importance-averaging" { "kind = \"q-learning\"\nagents = 3" } else { GARNET };
    file(problem, "", &format!("kind = \"{kind}\"\nstep_size = 0.1\n{own}"), "")
}

/// The keys that complete a medium.
fn keys_of_medium(kind: &str, law: &str) -> &'static str {
    match (kind, law) {
        ("erasure", _) => ", success = 0.5",
        ("gilbert-elliott", _) => ", to_bad = 0.1, to_good = 0.5",
        ("bit-budget", _) => ", bits = 64",
        ("over-the-air", _) => "",
        ("secure-sum", _) => ", bound = 1.0",
        ("clip", _) => ", norm = 1.0",
        ("noise", _) => ", std = 0.1",
        (_, "constant") => ", law = \"constant\", rounds = 1",
        (_, "uniform") => ", law = \"uniform\", max = 3",
        (_, "geometric") => ", law = \"geometric\", mean = 1.0",
        (_, "trace") => ", law = \"trace\", delays = [0, 1, 0]",
        (_, "stall") => ", law = \"stall\", period = 3, length = 1",
        (_, "spikes") => ", law = \"spikes\", probability = 0.5, rounds = 2",
        other => panic!("{other:?}"),
    }
}

/// A file for a kind, with keys that make it complete, and where its keys are.
pub(super) fn complete(table: &str) -> Option<(String, String)> {
    let (what, rest) = table.split_once(' ').unwrap_or((table, ""));
    let (kind, law) = rest.split_once(' ').unwrap_or((rest, ""));
    Some(match what {
        "problem" => (complete_problem(kind), "problem".into()),
        "Sampling" => (file(GARNET, "kind = \"markov\"", FEDLSA, ""), "sampling".into()),
        "run" => (file(GARNET, "", FEDLSA, ""), "run".into()),
        "Stop" => (file(GARNET, "", FEDLSA, ""), "run.stop".into()),
        "Noise" => (file("kind = \"linear\"\nnoise = { std = 0.1 }", "", FEDLSA, ""), "problem.noise".into()),
        "Decay" => (file(GARNET, "", "kind = \"fedlsa\"\nlocal_steps = 2\nstep_size = { c = 0.1 }", ""), "method.m.step_size".into()),
        "method" => (complete_method(kind), "method.m".into()),
        "codec" => {
            let own = match kind {
                "quantised" => ", bits = 4",
                "top-k" | "rand-k" => ", fraction = 0.5",
                _ => "",
            };
            (
                file(GARNET, "", &format!("{FEDLSA}\nuplink = {{ codec = {{ kind = \"{kind}\"{own} }} }}"), ""),
                "method.m.uplink.codec".into(),
            )
        }
        "medium" => {
            let own = keys_of_medium(kind, law);
            (
                file(GARNET, "", &format!("{FEDLSA}\nuplink = {{ media = [{{ kind = \"{kind}\"{own} }}] }}"), ""),
                "method.m.uplink.media.0".into(),
            )
        }
        "Gain" => {
            let own = match kind {
                "rician" => ", line_of_sight = 0.9, scale = 0.3",
                "constant" => ", value = 0.5",
                _ => "",
            };
            let air = format!("{FEDLSA}\nuplink = {{ media = [{{ kind = \"over-the-air\", gain = {{ law = \"{kind}\"{own} }} }}] }}");
            (file(GARNET, "", &air, ""), "method.m.uplink.media.0.gain".into())
        }
        "FeatureSpec" => {
            let own = match kind {
                "polynomial" | "fourier" => ", order = 1",
                "tiles" => ", tilings = 1, bins = 2",
                "radial" => ", centres = 2",
                "product" => ", factors = [{ features = { kind = \"identity\" }, columns = [\"s_0\"] }]",
                _ => "",
            };
            let logs = format!("kind = \"logs\"\npath = \"a.csv\"\ngamma = 0.9\nfeatures = {{ kind = \"{kind}\"{own} }}");
            (file(&logs, "kind = \"mean\"", FEDLSA, ""), "problem.features".into())
        }
        _ => return None,
    })
}
