//! Links.

use super::*;

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

/// The key of the first medium.
const FIRST: &str = "method[0].uplink.media[0]";

/// Refuses a first medium, for a key in it.
fn refused_first(medium: &str, key: &str, expected: &[&str]) {
    let key = format!("{FIRST}{key}");
    refused_medium(medium, &[&[key.as_str()], expected].concat());
}

#[test]
fn media_are_checked() {
    for success in ["1.5", "-0.1", "nan", "inf"] {
        let shown = success.replace("nan", "NaN");
        let message = format!("{FIRST}.success: {shown} is not accepted");
        refused_medium(&format!("kind = \"erasure\", success = {success}"), &[&message, "a probability, in [0, 1]"]);
    }
    refused_first("kind = \"gilbert-elliott\", to_bad = 2, to_good = 0.1", ".to_bad: 2 is not accepted", &["a probability"]);
    refused_first("kind = \"gilbert-elliott\", to_bad = 0, to_good = 0", ".to_good: 0 is not accepted", &["able to change"]);
    refused_first(
        "kind = \"over-the-air\", receiver_noise = -1",
        ".receiver_noise: -1 is not accepted",
        &["a standard deviation, at least 0"],
    );
    refused_first("kind = \"clip\", norm = 0", ".norm: 0 is not accepted", &["positive"]);
    refused_first("kind = \"noise\", std = -0.1", ".std: -0.1 is not accepted", &["a standard deviation, at least 0"]);
    refused_first("kind = \"noise\", st = 0.1", ".st: unknown key `st`", &[]);
    let gain =
        |gain: &str, key: &str, expected: &[&str]| refused_first(&format!("kind = \"over-the-air\", gain = {{ {gain} }}"), key, expected);
    gain("law = \"rayleigh\", scale = -1", ".gain.scale: -1 is not accepted", &["positive"]);
    gain("law = \"rician\", line_of_sight = -1, scale = 1", ".gain.line_of_sight: -1 is not accepted", &["at least 0"]);
    gain("law = \"constant\", value = 0", ".gain.value: 0 is not accepted", &["positive"]);
    gain("law = \"raylegh\"", ".gain.law: unknown value `raylegh`; did you mean `rayleigh`?", &["one of rayleigh, rician, constant"]);
    gain("law = \"rayleigh\", scal = 1", ".gain.scal: unknown key `scal`; did you mean `scale`?", &[]);
    refused_first(
        "kind = \"erasur\", success = 1",
        ".kind: there is no medium `erasur`; did you mean `erasure`?",
        &["one of erasure, gilbert-elliott"],
    );
    refused_first("kind = \"erasure\", sucess = 1", ".sucess: unknown key `sucess`; did you mean `success`?", &[]);
    refused_first("kind = \"erasure\"", ": the key `success` is missing", &["success = .."]);
    refused_first("success = 1", ".kind: the medium has no kind", &["one of erasure"]);
}

#[test]
fn budgets_that_carry_nothing_are_refused() {
    // None at all, less than a bit, or less than the codec's smallest message.
    refused_first("kind = \"bit-budget\", bits = 0", ".bits: 0 is not accepted", &["a positive number of bits a component"]);
    refused_first("kind = \"bit-budget\", bits = -1", ".bits: -1 is not accepted", &["a positive number"]);
    refused_first(
        "kind = \"bit-budget\", bits = 8",
        ".bits: a budget of 8 bits a component never carries a message of this codec",
        &["quantised"],
    );
    refused_first("kind = \"bit-budget\", bits = 64, fading_snr = -1", ".fading_snr: -1 is not accepted", &["positive"]);
    refused_first("kind = \"delay\", law = \"geometric\", mean = 1e308", ".mean: 1e308 is not accepted", &["at most 100000, or max"]);
    refused_first("kind = \"late\", law = \"geometric\", mean = 200000", ".mean: 200000 is not accepted", &["at most 100000, or max"]);
    let with =
        |codec: &str, bits: &str| format!("uplink = {{ codec = {{ {codec} }}, media = [{{ kind = \"bit-budget\", bits = {bits} }}] }}");
    refused_link(&with("kind = \"quantised\", bits = 4", "0.5"), &[FIRST, "a budget of 0.5 bits a component never carries a message"]);
    // One component of three and its index take 66 bits; three components of 22 bits have as many.
    refused_link(&with("kind = \"top-k\", k = 1", "21"), &[FIRST, "a budget of 21 bits a component never carries a message"]);
    Folder::with(&small("label = \"FedLSA\"", &with("kind = \"top-k\", k = 1", "22"))).run(&["run", "small.toml"]).exits(0);
}

#[test]
fn media_that_lose_everything_are_refused() {
    // Though not by their settings' ranges.
    let none = "no message arrives";
    refused_first("kind = \"erasure\", success = 0", &format!(": {none}"), &["a medium that lets some messages through"]);
    refused_first("kind = \"gilbert-elliott\", to_bad = 0.5, to_good = 0", &format!(": {none}"), &["a medium that lets"]);
    refused_first(
        "kind = \"gilbert-elliott\", to_bad = 0.5, to_good = 0.5, success_good = 0",
        &format!(": {none}"),
        &["a medium that lets"],
    );
    let fading = ".fading_snr: no message arrives: a budget of 64 bits a component with fading_snr = 1e-300 never carries a message";
    refused_first("kind = \"bit-budget\", bits = 64, fading_snr = 1e-300", fading, &["a larger fading_snr"]);
    refused_first("kind = \"bit-budget\", bits = 1, fading_snr = 1.0", ".fading_snr: no message arrives", &["more bits"]);
    let rare = "uplink = { media = [{ kind = \"erasure\", success = 1e-12 }] }";
    let rare = Folder::with(&small("label = \"FedLSA\"", &format!("label = \"FedLSA\"\n{rare}")));
    rare.run(&["check", "small.toml"]).exits(0).says("warning: no message may arrive: of the 80 messages of a run, 8.0e-11 on average");
}

#[test]
fn links_that_cannot_work_are_refused_with_the_reason() {
    refused_link(
        "uplink = { media = [{ kind = \"over-the-air\" }, { kind = \"erasure\", success = 1 }] }",
        &["method[0].uplink.media[1]: a medium after one that leaves only a sum", "over-the-air or secure-sum as the last medium"],
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
        &["method[0].uplink: the method needs each agent's message, and over this link only their sum arrives", "one message per agent"],
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
fn robust_means_are_checked() {
    let trimmed = "uplink = { aggregation = { trimmed_mean = 0.5 } }";
    refused_link(trimmed, &["method[0].uplink.aggregation.trimmed_mean: 0.5 is not accepted", "in [0, 0.5)"]);
    refused_link("uplink = { aggregation = \"medin\" }", &["method[0].uplink.aggregation: unknown value `medin`; did you mean `median`?"]);
    let air = "uplink = { aggregation = \"median\", media = [{ kind = \"over-the-air\" }] }";
    refused_link(air, &["method[0].uplink", "over this link only the sum of the answers arrives"]);
    let robust = "uplink = { aggregation = \"median\" }";
    refused_edit("label = \"SCAFFLSA\"", robust, &["method[1].uplink: ", "control variates sum to zero only if v is the mean"]);
    let folder = Folder::with(&small("label = \"FedLSA\"", robust));
    let unknown = "the server takes a robust mean of the answers";
    assert!(folder.run(&["theory", "small.toml"]).exits(0).stdout.contains(unknown));
    folder.run(&["run", "small.toml", "-q", "--out", "o"]).exits(0);
    let theta = |out: &str| folder.read(&format!("{out}/theta.npz"));
    Folder::with(&small("label = \"FedLSA\"", "uplink = { aggregation = { trimmed_mean = 0.3 } }")).run(&["check", "small.toml"]).exits(0);
    folder.write("small.toml", small("label = \"FedLSA\"", "uplink = { aggregation = \"mean\" }"));
    folder.run(&["run", "small.toml", "-q", "--out", "p"]).exits(0);
    assert_ne!(theta("o"), theta("p"));
}
