//! Limits of memory.

use super::*;

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
