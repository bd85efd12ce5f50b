//! Logs as people have them, through the program: other names, several agents in a file, packed text, vector environments, rows that
//! cannot be read, and tasks without a discount.

use std::io::Write;

use crate::common::Folder;

/// A walk along 0, 1, 2 that ends after 2, with reward 1 a step, and episodes that begin at 0 and at 1.
const WALK: [(u32, u32, u32, bool); 5] = [(0, 0, 1, false), (0, 1, 2, false), (0, 2, 3, true), (1, 1, 2, false), (1, 2, 3, true)];

fn csv(header: &str, row: impl Fn(&(u32, u32, u32, bool)) -> String) -> String {
    let rows: String = WALK.iter().map(|step| format!("{}\n", row(step))).collect();
    format!("{header}\n{rows}")
}

fn theta(folder: &Folder, out: &str) -> Vec<f64> {
    let weights = folder.json(&format!("{out}/weights.json"));
    weights["theta"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
}

#[track_caller]
fn close(a: &[f64], b: &[f64]) {
    assert!(a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-9), "{a:?} {b:?}");
}

#[test]
fn tasks_that_end_have_values_without_a_discount() {
    let folder = Folder::new();
    folder.write("a.csv", csv("s_0,next_0,reward,done", |(_, s, next, done)| format!("{s},{next},1,{}", u8::from(*done))));
    let output = folder.run(&["evaluate", "a.csv", "--features", "one-hot", "--gamma", "1", "--ridge", "0", "--out", "o"]).exits(0);
    assert!(output.stdout.contains("2 episodes: 2 ended, 0 truncated, 0 with no end in the log"), "{}", output.stdout);
    assert!(output.stdout.contains("discounted returns (gamma 1): 2.5 on average, spread 0.5"), "{}", output.stdout);
    // The steps that are left from 0, 1, 2; the state 3 has no rows, and the least norm is meant.
    close(&theta(&folder, "o")[..3], &[3.0, 2.0, 1.0]);
    let logs = &folder.json("o/summary.json")["logs"];
    assert_eq!((logs["ended"].as_u64(), logs["discounted_returns"]["mean"].as_f64()), (Some(2), Some(2.5)), "{logs}");
    assert_eq!((logs["agents"][0]["name"].as_str(), logs["agents"][0]["share"].as_f64()), (Some("a"), Some(1.0)), "{logs}");
}

#[test]
fn one_file_with_a_column_of_agents_is_what_files_of_agents_are() {
    let folder = Folder::new();
    let header = "s_0,next_0,reward,done";
    let of = |agent: u32| move |(_, s, next, done): &(u32, u32, u32, bool)| format!("{s},{next},{},{done}", agent + s);
    folder.write("x.csv", csv(header, of(1)));
    folder.write("y.csv", csv(header, of(5)));
    let (x, y) = (csv(header, of(1)), csv(header, of(5)));
    let mut all = String::from("obs\tafter\tr\tend\tsite\n");
    for (a, b) in x.lines().zip(y.lines()).skip(1) {
        all += &format!("{}\tx\n{}\ty\n", a.replace(',', "\t"), b.replace(',', "\t"));
    }
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    packer.write_all(all.as_bytes()).unwrap();
    folder.write("all.tsv.gz", packer.finish().unwrap());
    let features = ["--features", "one-hot", "--gamma", "0.9"];
    folder.run(&[&["evaluate", "x.csv", "y.csv", "--out", "files"], &features[..]].concat()).exits(0);
    let columns = "s_0=obs,next_0=after,reward=r,done=end";
    let args = ["evaluate", "all.tsv.gz", "--agent-column", "site", "--columns", columns, "--out", "one"];
    let output = folder.run(&[&args, &features[..]].concat()).exits(0);
    assert!(output.stdout.contains("shares of the transitions: x 50%, y 50%"), "{}", output.stdout);
    close(&theta(&folder, "one"), &theta(&folder, "files"));
    // The experiment of the run gives it again.
    folder.run(&["run", "one/config.toml", "--out", "again"]).exits(0);
    // Files with these names, and those with the names of logs.
    folder.write("more.tsv", "obs\tnote\n0\ta\n2\tb\n");
    let predicted = folder.run(&["predict", "one", "more.tsv"]).exits(0);
    let other = folder.run(&["predict", "files", "more.tsv", "--columns", "s_0=obs"]).exits(0);
    assert_eq!(predicted.stdout.lines().next(), Some("agent,obs,note,value"));
    let values = |text: &str| text.lines().skip(1).map(|line| line.rsplit(',').next().unwrap().parse().unwrap()).collect::<Vec<f64>>();
    close(&values(&predicted.stdout), &values(&other.stdout));
    folder.run(&["predict", "one", "x.csv"]).exits(0);
}

#[test]
fn a_vector_environment_is_what_its_environments_are() {
    let folder = Folder::new();
    // Each environment, with the step in which it is reset, and both side by side.
    let steps = [(0, 1, 1, 0), (1, 2, 1, 0), (2, 3, 1, 1), (3, 0, 0, 0), (0, 1, 1, 0), (1, 2, 1, 0), (2, 3, 1, 1), (3, 0, 0, 0)];
    let row = |(s, next, reward, done): &(i32, i32, i32, i32)| format!("{s},{next},{reward},{done}");
    let clean: Vec<String> = steps.iter().filter(|step| step.0 != 3).map(row).collect();
    folder.write("clean.csv", format!("s_0,next_0,reward,terminated\n{}\n{}\n", clean.join("\n"), clean.join("\n")));
    let both: Vec<String> = steps.iter().flat_map(|step| [format!("{},0", row(step)), format!("{},1", row(step))]).collect();
    folder.write("both.csv", format!("s_0,next_0,reward,terminated,env\n{}\n", both.join("\n")));
    let one: Vec<String> = steps.iter().map(row).collect();
    folder.write("resets.csv", format!("s_0,next_0,reward,terminated\n{}\n{}\n", one.join("\n"), one.join("\n")));
    let run = |name: &str, out: &str| {
        folder.run(&["evaluate", name, "--features", "one-hot", "--gamma", "0.9", "--lambda", "0.5", "--out", out]).exits(0).stdout
    };
    run("clean.csv", "clean");
    let said = run("both.csv", "both");
    assert!(said.contains("left out 4 rows of both: it only resets the environment"), "{said}");
    close(&theta(&folder, "both"), &theta(&folder, "clean"));
    // Without a column of environments, too.
    let said = run("resets.csv", "resets");
    assert!(said.contains("left out 4 rows of resets: it only resets the environment") && said.contains("--keep-autoreset-rows"), "{said}");
    close(&theta(&folder, "resets"), &theta(&folder, "clean"));
    let kept = folder.run(&["evaluate", "resets.csv", "--features", "one-hot", "--keep-autoreset-rows", "--out", "kept"]).exits(0).stdout;
    assert!(!kept.contains("left out"), "{kept}");
}

#[test]
fn rows_that_cannot_be_read_are_counted() {
    let folder = Folder::new();
    folder.write("a.csv", "s_0,next_0,reward,done\n0,1,1,0\n1,2,nan,0\n2,3,1,1\n0,1\n0,1,1,0\n1,2,oops,0\n1,2,1,1\n");
    let output = folder.run(&["evaluate", "a.csv", "--features", "one-hot", "--bad-rows", "skip", "--out", "o"]).exits(0);
    for line in [
        "left out 2 rows of a.csv: column `reward`: not a finite number (first line 3)",
        "left out 1 row of a.csv: too few fields (first line 5)",
    ] {
        assert!(output.stdout.contains(line), "{}", output.stdout);
    }
    let left_out = &folder.json("o/summary.json")["logs"]["left_out"];
    assert_eq!((left_out[0]["rows"].as_u64(), left_out[0]["first"].as_str()), (Some(2), Some("line 3")), "{left_out}");
    folder.run(&["evaluate", "a.csv", "--features", "one-hot", "--out", "p"]).exits(2);
}

#[test]
fn next_states_of_following_rows_are_those_of_their_columns() {
    let folder = Folder::new();
    let flags = |done: &bool| (u8::from(*done), 0);
    let with = csv("episode,s_0,next_0,reward,done,truncated", |(episode, s, next, done)| {
        let (done, truncated) = flags(done);
        format!("{episode},{s},{next},1,{done},{truncated}")
    });
    // The same, and an episode that was cut short after its second row: of its rows one has a next state.
    folder.write("with.csv", format!("{with}2,0,1,1,0,1\n"));
    let without = csv("episode,s_0,reward,done,truncated", |(episode, s, _, done)| {
        let (done, truncated) = flags(done);
        format!("{episode},{s},1,{done},{truncated}")
    });
    folder.write("without.csv", format!("{without}2,0,1,0,0\n2,1,1,0,1\n"));
    let run =
        |log: &str| folder.run(&["evaluate", log, "--features", "one-hot", "--gamma", "0.9", "--out", &log[..log.len() - 4]]).exits(0);
    run("with.csv");
    run("without.csv")
        .says("no columns of next states: each next state is that of the following row of the episode")
        .says("left out 1 row of without.csv: its next state is not logged: the last row of an episode that did not end");
    close(&theta(&folder, "with")[..3], &theta(&folder, "without")[..3]);
    assert_eq!(folder.json("without/summary.json")["logs"]["next_from_following_rows"], true);
    assert_eq!(folder.json("with/summary.json")["logs"]["next_from_following_rows"], false);
    // Nothing says where episodes were cut.
    folder.write("none.csv", csv("s_0,reward,done", |(_, s, _, done)| format!("{s},1,{done}")));
    let message = folder.run(&["evaluate", "none.csv", "--out", "none"]).exits(2).message();
    assert!(message.contains("there is no column `next_0`") && message.contains("the log needs `episode` or `truncated`"), "{message}");
}

#[test]
fn features_that_take_less_are_proposed_before_the_start() {
    let folder = Folder::new();
    let mut text = String::from("s_0,s_1,s_2,s_3,next_0,next_1,next_2,next_3,reward,done\n");
    for i in 0..400u32 {
        let x = |k: u32| f64::from((i * (7 + k) + 3 * k) % 97) / 97.0;
        text += &format!("{},{},{},{},{},{},{},{},1,0\n", x(0), x(1), x(2), x(3), x(1), x(2), x(3), x(0));
    }
    folder.write("a.csv", text);
    let refused = |features: &str, method: &str| {
        let mut command =
            folder.command(&["evaluate", "a.csv", "--gamma", "0.9", "--features", features, "--method", method, "--out", "o"]);
        command.env("FEDSA_MEMORY", "100M");
        crate::common::finish(command).exits(2).message()
    };
    let message = refused("tiles:8x8", "gmres");
    assert!(message.contains("--features tiles:8x3 has 648 features, which one exchange solves"), "{message}");
    assert!(message.contains("--features tiles:8x8@1000 has 1000 features"), "{message}");
    let message = refused("fourier:7", "lstd");
    assert!(message.contains("--features fourier:4 has 625 features, which one exchange solves"), "{message}");
    let message = refused("fourier:5(s_0, s_1, s_2) * polynomial:11", "lstd");
    let proposed = "--features 'fourier:5(s_0, s_1, s_2) * polynomial:3' has 864 features, which one exchange solves";
    assert!(message.contains(proposed), "{message}");
    assert!(!folder.path("o").exists());
}
