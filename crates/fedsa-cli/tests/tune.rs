//! `fedsa tune`: its answers hold when they are run, and what it refuses leaves nothing behind.

use crate::common::{Folder, SMALL, edited, small};
use serde_json::Value as Json;

/// A problem of two agents that theory knows over its clear link.
pub const TINY: &str = r#"id = "tiny"

[problem]
kind = "garnet"
agents = 2
states = 6
features = 2
gamma = 0.8

[sampling]
kind = "iid"

[[method]]
kind = "fedlsa"
step_size = 0.1
local_steps = 10

[run]
rounds = 20
"#;

/// The same over a link that theory does not know.
pub fn quantised() -> String {
    edited(TINY, "local_steps = 10\n", "local_steps = 10\nuplink = { codec = { kind = \"quantised\", bits = 6 } }\n")
}

fn tune(folder: &Folder, more: &[&str]) -> crate::common::Output {
    folder.run(&[&["tune", "small.toml", "--max-local-steps", "30"], more].concat())
}

#[test]
fn the_file_of_an_answer_runs_and_its_check_passes() {
    let folder = Folder::with(TINY);
    tune(&folder, &["--target-mse", "0.02"]).exits(0).says("with the fewest bits").says("by theory (exact)");
    let summary = folder.json("out/tiny-tune/summary.json");
    assert_eq!(summary["answer"]["evidence"]["by"], "theory");
    assert!(summary["answer"]["mse"].as_f64().unwrap() <= 0.02);
    assert!(summary["tried"].as_array().unwrap().len() > 20);
    assert!(summary["families"].as_array().unwrap().iter().all(|family| !family["frontier"].as_array().unwrap().is_empty()));
    for picture in ["frontier.svg", "frontier.png"] {
        assert!(folder.read(&format!("out/tiny-tune/{picture}")).len() > 1000, "{picture}");
    }
    folder.run(&["run", "out/tiny-tune/tuned.toml", "--out", "ran"]).exits(0).says("Error at the end, as predicted");
    let ran = folder.json("ran/summary.json");
    assert_eq!(ran["passed"], true);
    assert_eq!(ran["checks"].as_array().unwrap().len(), 1);
    // What was counted is what was predicted.
    let (ledger, cost) = (&ran["results"][0]["ledger"], &summary["answer"]["cost"]);
    let counted = ledger["bits_up"].as_f64().unwrap() + ledger["bits_down"].as_f64().unwrap();
    assert_eq!(counted, cost["bits"].as_f64().unwrap());
    assert_eq!(ledger["samples"].as_f64(), cost["samples"].as_f64());
    assert_eq!(ran["results"][0]["rounds"], cost["rounds"]);
    // In less time: one round fewer misses the target.
    assert!(cost["rounds"].as_u64().unwrap() >= 1);
}

#[test]
fn the_same_question_has_the_same_answer() {
    let folder = Folder::with(TINY);
    let json = |threads: &str| {
        let out = tune(&folder, &["--target-mse", "0.05", "--objective", "rounds", "--json", "--overwrite", "--threads", threads]).exits(0);
        serde_json::from_str::<Json>(&out.stdout).unwrap()
    };
    let (one, two) = (json("1"), json("2"));
    assert_eq!(one, two);
    assert_eq!(one, folder.json("out/tiny-tune/summary.json"));
    assert_eq!(one["options"]["objective"], "rounds");
}

#[test]
fn each_cost_has_its_own_answer() {
    let folder = Folder::with(TINY);
    let cost = |goal: &str| -> Json {
        let out = tune(&folder, &["--target-mse", "0.02", "--objective", goal, "--json", "--overwrite"]).exits(0);
        serde_json::from_str::<Json>(&out.stdout).unwrap()["answer"]["cost"].clone()
    };
    let all = ["rounds", "bits", "samples"].map(cost);
    for (i, goal) in ["rounds", "bits", "samples"].into_iter().enumerate() {
        for other in &all {
            assert!(all[i][goal].as_f64().unwrap() <= other[goal].as_f64().unwrap(), "{goal}: {all:?}");
        }
    }
    assert!(all[2]["samples"].as_f64().unwrap() < all[0]["samples"].as_f64().unwrap());
}

#[test]
fn pilots_answer_where_theory_does_not_know() {
    let folder = Folder::with(&quantised());
    let asked = ["--target-mse", "0.05", "--methods", "fedlsa", "--max-rounds", "2000", "--budget", "10m"];
    tune(&folder, &asked).exits(0).says("of a pilot run");
    let summary = folder.json("out/tiny-tune/summary.json");
    let evidence = &summary["answer"]["evidence"];
    assert_eq!(evidence["by"], "pilots");
    assert_eq!(summary["pilots"]["budget_exhausted"], false);
    assert!(evidence["seeds"].as_u64().unwrap() >= 256, "{evidence}");
    // The interval's upper end is at most the target.
    let (mse, se) = (summary["answer"]["mse"].as_f64().unwrap(), evidence["standard_error"].as_f64().unwrap());
    assert!(se > 0.0 && mse + 1.6 * se <= 0.05, "{mse} {se}");
    folder.run(&["run", "out/tiny-tune/tuned.toml", "--out", "ran"]).exits(0);
    assert_eq!(folder.json("ran/summary.json")["passed"], true);
}

#[test]
fn an_interrupted_tuning_goes_on_to_the_same_answer() {
    let asked = ["--target-mse", "0.05", "--methods", "fedlsa", "--max-rounds", "2000", "--budget", "10m"];
    let (whole, parts) = (Folder::with(&quantised()), Folder::with(&quantised()));
    tune(&whole, &asked).exits(0);
    let mut command = parts.command(&[&["tune", "small.toml", "--max-local-steps", "30"], &asked[..]].concat());
    let mut child = command.stderr(std::process::Stdio::null()).stdout(std::process::Stdio::null()).spawn().unwrap();
    let state = parts.path("out/tiny-tune/.fedsa/tune.ckpt");
    let began = std::time::Instant::now();
    while !state.exists() && child.try_wait().unwrap().is_none() {
        assert!(began.elapsed().as_secs() < 300);
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    child.kill().unwrap();
    let killed = !child.wait().unwrap().success();
    assert!(killed && !parts.path("out/tiny-tune/tuned.toml").exists(), "it was killed before its end");
    // Another question does not go on with it.
    let other = [&asked[2..], &["--target-mse", "0.06", "--resume"]].concat();
    assert!(tune(&parts, &other).exits(2).message().contains("other options"));
    tune(&parts, &[&asked[..], &["--resume"]].concat()).exits(0);
    for name in ["summary.json", "tuned.toml", "frontier.svg"] {
        assert_eq!(whole.text(&format!("out/tiny-tune/{name}")), parts.text(&format!("out/tiny-tune/{name}")), "{name}");
    }
}

/// The search by theory is interrupted at once, keeps nothing, and says so.
#[test]
#[cfg(unix)]
fn a_search_by_theory_is_interrupted() {
    let folder = Folder::with(&edited(TINY, "agents = 2\nstates = 6\nfeatures = 2", "agents = 12\nstates = 20\nfeatures = 6"));
    let before: Vec<_> = folder.everything().into_iter().map(|(path, ..)| path).collect();
    let mut command = folder.command(&["tune", "small.toml", "--target-mse", "1e-5", "--budget", "2h"]);
    let child = command.stderr(std::process::Stdio::piped()).stdout(std::process::Stdio::piped()).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(1500));
    let pid = child.id().to_string();
    assert!(std::process::Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(said.contains("interrupted before the first pilot run: nothing is kept") && !said.contains("--resume"), "{said}");
    assert_eq!(before, folder.everything().into_iter().map(|(path, ..)| path).collect::<Vec<_>>());
}

/// A limit by the clock ends the search with the best so far, by theory and by pilots.
#[test]
fn a_time_limit_ends_the_search_with_what_was_found() {
    let large = edited(TINY, "agents = 2\nstates = 6\nfeatures = 2", "agents = 12\nstates = 20\nfeatures = 6");
    let lossy = quantised().replace("agents = 2", "agents = 3");
    for (file, target, limit) in [(large, "1e-4", 3.0), (lossy, "0.0005", 4.0)] {
        let folder = Folder::with(&file);
        let began = std::time::Instant::now();
        let limited = format!("{limit}s");
        let out = tune(&folder, &["--target-mse", target, "--budget", "2h", "--time-limit", &limited]);
        let took = began.elapsed().as_secs_f64();
        assert!(took < limit + 10.0, "{took}");
        if out.status == 2 {
            // A slow machine has found nothing yet, and says why.
            assert!(
                ["the time limit of", "a larger --time-limit, which ended"].iter().any(|text| out.message().contains(text)),
                "{}",
                out.stderr
            );
            continue;
        }
        out.exits(0).says(&format!("the time limit of {limit} s ended the search early")).says("a larger --time-limit may find better");
        let summary = folder.json("out/tiny-tune/summary.json");
        assert_eq!((&summary["time_limit"], &summary["time_limit_reached"]), (&Json::from(limit), &Json::from(true)));
        assert_eq!((&summary["theory"]["budget_exhausted"], &summary["pilots"]["budget_exhausted"]), (&false.into(), &false.into()));
        assert!(summary["answer"]["mse"].as_f64().unwrap() <= target.parse().unwrap());
    }
    // A search that ends by itself says nothing of a limit.
    let folder = Folder::with(TINY);
    let args = ["--target-mse", "0.1", "--time-limit", "1h", "--json"];
    let whole: Json = serde_json::from_str(&tune(&folder, &args).exits(0).stdout).unwrap();
    assert_eq!(whole["time_limit_reached"], false);
}

/// A budget bounds theory as well, and the answer does not depend on the number of threads.
#[test]
fn a_budget_ends_the_search_by_theory() {
    let folder = Folder::with(TINY);
    let answer = |budget: &str, threads: &str| {
        let args = ["--target-mse", "0.002", "--budget", budget, "--json", "--overwrite", "--threads", threads];
        serde_json::from_str::<Json>(&tune(&folder, &args).exits(0).stdout).unwrap()
    };
    let whole = answer("60s", "2");
    let spent = whole["theory"]["estimated_seconds"].as_f64().unwrap();
    assert_eq!(whole["theory"]["budget_exhausted"], false);
    let budget = format!("{}", 0.7 * spent);
    let (one, two) = (answer(&budget, "1"), answer(&budget, "2"));
    assert_eq!(one, two);
    assert_eq!(one["theory"]["budget_exhausted"], true);
    assert!(one["tried"].as_array().unwrap().len() < whole["tried"].as_array().unwrap().len());
    assert!(one["theory"]["estimated_seconds"].as_f64().unwrap() <= 0.7 * spent);
}

/// The steps that theory proposes over a clear link have floors above the target over this codec, whose noise lasts: with eight seeds some
/// of them look as if they reached it.
#[test]
fn pilots_go_on_to_smaller_steps_where_floors_are_above_the_target() {
    let folder = Folder::with(TINY);
    let lossy = "local_steps = 10\nuplink = { codec = { kind = \"rand-k\", fraction = 0.5 } }\n";
    let text = edited(TINY, "local_steps = 10\n", lossy);
    let text = edited(&text, "agents = 2\nstates = 6\nfeatures = 2\ngamma = 0.8", "agents = 3\nstates = 6\nfeatures = 3\ngamma = 0.8");
    let text = edited(&text, "rounds = 20", "rounds = 20\nstart = \"root+1\"");
    folder.write("small.toml", edited(&text, "kind = \"garnet\"", "kind = \"garnet\"\nheterogeneity = \"two-kernels\"\nseed = 3"));
    for asked in [&[][..], &["--methods", "scafflsa"]] {
        folder.run(&[&["tune", "small.toml", "--target-mse", "0.1", "--max-local-steps", "32", "--overwrite"], asked].concat()).exits(0);
        folder.run(&["run", "out/tiny-tune/tuned.toml", "--overwrite"]).exits(0).says("ok: Error at the end");
    }
}

/// A prediction of 0 holds to rounding.
#[test]
fn an_error_of_nothing_is_checked_against_the_target() {
    let folder = Folder::with(TINY);
    let linear = edited(
        TINY,
        "kind = \"garnet\"\nagents = 2\nstates = 6\nfeatures = 2\ngamma = 0.8",
        "kind = \"linear\"\na = [[[1.0, 8.0], [0.0, 1.0]]]\nb = [[0.0, 0.0]]",
    );
    let away = edited(&linear, "rounds = 20", "rounds = 20\nstart = [1.0, 0.3]");
    folder.write("small.toml", edited(&away, "\"iid\"", "\"mean\""));
    tune(&folder, &["--target-mse", "0.1"]).exits(0);
    folder.run(&["run", "out/tiny-tune/tuned.toml"]).exits(0).says("ok: Error at the end at most the target");
}

#[test]
fn a_target_out_of_reach_names_the_floor_and_what_would_lower_it() {
    let folder = Folder::with(TINY);
    let before = folder.everything();
    let out = tune(&folder, &["--target-mse", "1e-9", "--max-rounds", "50"]).exits(2);
    let message = out.message();
    for text in ["no choice that was tried reaches 1e-9 within 50 rounds", "with the error", "its floor is", "--max-rounds"] {
        assert!(message.contains(text), "{text}: {message}");
    }
    // FedLSA's bias is in the way.
    let noiseless = edited(TINY, "kind = \"iid\"", "kind = \"mean\"");
    folder.write("small.toml", noiseless);
    let asked = ["--target-mse", "1e-9", "--methods", "fedlsa", "--local-steps", "30", "--max-rounds", "100"];
    let out = folder.run(&[&["tune", "small.toml"], &asked[..]].concat()).exits(2);
    assert!(out.message().contains("fewer local steps, or scafflsa or fedhsa"), "{}", out.stderr);
    folder.write("small.toml", TINY);
    let names =
        |all: &[(std::path::PathBuf, Vec<u8>, std::time::SystemTime)]| all.iter().map(|(path, ..)| path.clone()).collect::<Vec<_>>();
    assert_eq!(names(&before), names(&folder.everything()), "nothing is written");
}

/// Arguments that are refused, and what is said.
const REFUSED: &[(&[&str], &str)] = &[
    (&["small.toml", "--target-mse", "0"], "--target-mse: 0"),
    (&["small.toml", "--target-mse", "-1"], "--target-mse: -1"),
    (&["small.toml", "--target-mse", "nan"], "NaN"),
    (&["small.toml", "--target-mse", "1e-40"], "below what rounding leaves"),
    (&["small.toml", "--target-mse", "1e9"], "the start has the error"),
    (&["small.toml", "--target-mse", "0.1", "--budget", "soon"], "not a time: seconds"),
    (&["small.toml", "--target-mse", "0.1", "--rounds", "7"], "--rounds: 7 has no effect"),
    (&["small.toml", "--target-mse", "0.1", "--seeds", "7"], "--seeds: 7 has no effect"),
    (&["small.toml", "--target-mse", "0.1", "--time-limit", "soon"], "not a time: seconds"),
    (&["small.toml", "--target-mse", "0.1", "--time-limit", "0"], "--time-limit: the time limit of 0 s is too short"),
    (&["small.toml", "--target-mse", "0.1", "--budget", "0"], "too short for a single choice by theory"),
    (&["small.toml", "--target-mse", "0.1", "--set", "run.start=root"], "a start away from the root"),
    (&["small.toml", "--target-mse", "0.1", "--methods", "fedlas"], "did you mean `fedlsa`"),
    (&["small.toml", "--target-mse", "0.1", "--methods", "gmres"], "no step size of local steps"),
    (&["none.toml", "--target-mse", "0.1"], "cannot be read"),
    (&["small.toml", "--target-mse", "inf"], "--target-mse: inf"),
    (&["wild.toml", "--target-mse", "0.1"], "no step size is stable"),
    (&["wild-lossy.toml", "--target-mse", "0.1", "--methods", "fedlsa", "--local-steps", "1,2"], "no step size is stable"),
    (&["small.toml", "--target-mse", "0.1", "--codecs", "quantized:8"], "did you mean `quantised`"),
    (&["small.toml", "--target-mse", "0.1", "--codecs", "auto,exact"], "`auto` beside other codecs"),
    (&["small.toml", "--target-mse", "0.1", "--out", "small.toml"], "this is a file, not a folder"),
    (&["small.toml", "--target-mse", "0.1", "--out", "mine"], "holds files that fedsa did not write"),
    (&["small.toml", "--target-mse", "0.1", "--codecs", "quantised:0"], "bits"),
    (&["small.toml", "--target-mse", "0.1", "--codecs", "exact:3"], "does not take"),
    (&["small.toml", "--target-mse", "0.1", "--codecs", "exact,rand-k:99"], "--codecs: `rand-k:99`: k: 99 is not accepted"),
    (&["small.toml", "--target-mse", "0.1", "--methods", "projected-td"], "--methods: `projected-td`: the key `radius` is missing"),
    (&["small.toml", "--target-mse", "0.1", "--local-steps", "5,7", "--max-local-steps", "3"], "--max-local-steps"),
    (&["small.toml", "--target-mse", "0.1", "--local-steps", "0"], "--local-steps: 0"),
    (&["small.toml", "--target-mse", "0.1", "--resume"], "holds no interrupted tuning"),
    (&["swept.toml", "--target-mse", "0.1"], "2 points of a sweep"),
    (&["two.toml", "--target-mse", "0.1"], "--like LABEL"),
    (&["two.toml", "--target-mse", "0.1", "--like", "x"], "no method `x`"),
    (&["lossy.toml", "--target-mse", "0.05", "--budget", "0"], "too short for a single pilot"),
    (&["small.toml", "--set", "sampling.kind=mean", "--target-mse", "0.1", "--objective", "samples"], "no samples are drawn"),
];

#[test]
fn bad_input_is_refused_and_nothing_is_written() {
    let folder = Folder::with(TINY);
    let swept = format!("{TINY}\n[[sweep]]\nkey = \"problem.agents\"\nvalues = [2, 3]\n");
    folder.write("swept.toml", swept);
    folder.write("lossy.toml", quantised());
    let two = edited(
        &small("kind = \"scafflsa\"", "kind = \"scafflsa\"\nuplink = { media = [{ kind = \"erasure\", success = 0.5 }] }"),
        "id = \"small\"",
        "id = \"two\"",
    );
    folder.write("two.toml", two);
    // Every step diverges, by theory and in pilots.
    let linear = edited(
        TINY,
        "kind = \"garnet\"\nagents = 2\nstates = 6\nfeatures = 2\ngamma = 0.8",
        "kind = \"linear\"\na = [[[-1.0]], [[-1.0]]]\nb = [[1.0], [1.0]]",
    );
    let wild = edited(&linear, "\"iid\"", "\"mean\"");
    folder.write("wild.toml", &wild);
    folder.write(
        "wild-lossy.toml",
        edited(&wild, "local_steps = 10\n", "local_steps = 10\nuplink = { codec = { kind = \"quantised\", bits = 6 } }\n"),
    );
    folder.write("mine/note.txt", "mine");
    let before: Vec<_> = folder.everything().into_iter().map(|(path, ..)| path).collect();
    for (args, says) in REFUSED {
        let out = folder.run(&[&["tune"], *args].concat()).exits(2);
        let message = format!("{} {}", out.message(), out.stderr);
        assert!(message.contains(says), "{args:?}: {message}");
    }
    let after: Vec<_> = folder.everything().into_iter().map(|(path, ..)| path).collect();
    assert_eq!(before, after);
    assert!(SMALL.contains("scafflsa"));
}

#[test]
fn a_folder_with_something_else_is_not_replaced() {
    let folder = Folder::with(TINY);
    tune(&folder, &["--target-mse", "0.05"]).exits(0);
    assert!(tune(&folder, &["--target-mse", "0.05"]).exits(2).message().contains("holds a finished tuning"));
    assert!(tune(&folder, &["--target-mse", "0.05", "--resume"]).exits(2).message().contains("nothing is left to do"));
    folder.run(&["run", "small.toml", "--out", "ran", "-q"]).exits(0);
    let ran = folder.text("ran/summary.json");
    assert!(tune(&folder, &["--target-mse", "0.05", "--out", "ran"]).exits(2).message().contains("ran holds a finished run"));
    assert!(
        tune(&folder, &["--target-mse", "0.05", "--out", "ran", "--resume"])
            .exits(2)
            .message()
            .contains("holds a finished run, not a tuning")
    );
    assert_eq!(folder.text("ran/summary.json"), ran);
    folder.write("mine/tuned.toml", "mine");
    let out = tune(&folder, &["--target-mse", "0.05", "--out", "mine", "--overwrite"]).exits(2);
    assert!(out.message().contains("was not written by fedsa"), "{}", out.stderr);
    assert_eq!(folder.text("mine/tuned.toml"), "mine");
    folder.run(&["list", "out"]).exits(0);
}
