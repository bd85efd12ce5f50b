//! An agent's rules for what may leave it, and the record of what left.

use std::fs;
use std::path::Path;

use fedsa::cancel::Cancel;
use fedsa::error::{Error, ErrorCode, ErrorKind, Result};
use fedsa_data::find::Places;
use fedsa_experiment::deployment::audit::{Audit, Left, verify};
use fedsa_experiment::deployment::{Deployment, DisclosureRules, LocalAgent};
use toml::Value;

use crate::deployment::{deployed, each, file, in_one_place, list, made, settings};

const SQUARES: &str = "kind = \"least-squares\", target = \"y\"";
const LOGISTIC: &str = "kind = \"logistic\", target = \"y\", ridge = 1e-2";
const LOGS: &str = "kind = \"logs\", gamma = 0.9, features = { kind = \"fourier\", order = 1 }";

fn deployment(problem: &str) -> Deployment {
    made(&settings(&format!("{{ {problem} }}"), "{ kind = \"mean\" }", "{ kind = \"gd\", step_size = 0.1 }", 3))
}

fn logs_deployment(problem: &str) -> Deployment {
    made(&settings(&format!("{{ {problem} }}"), "{ kind = \"iid\" }", "{ kind = \"fedlsa\", step_size = 0.1, local_steps = 2 }", 3))
}

fn start(deployment: &Deployment, path: &str, rules: &str) -> LocalAgent {
    let rules = DisclosureRules::parse(rules).unwrap();
    LocalAgent::with_rules(deployment, &[path.to_string()], &Places::from_env(""), None, rules, &Cancel::never()).unwrap()
}

/// The application of an agent with this table.
fn apply(deployment: &Deployment, text: &str, rules: &str) -> Result<Vec<u8>> {
    let folder = tempfile::tempdir().unwrap();
    let mut agent = start(deployment, &file(folder.path(), "site.csv", text), rules);
    let invitation = deployment.enrolment(1..=9).unwrap().invite(1);
    let answer = agent.handle(&invitation).map(Option::unwrap);
    assert_eq!(answer.as_ref().err(), agent.refusal(), "what the operator reads at the start is what the server gets");
    answer
}

fn code(deployment: &Deployment, text: &str, rules: &str) -> Option<ErrorCode> {
    apply(deployment, text, rules).err().map(|e| e.code())
}

/// A table with these columns, whose cells are functions of the row.
fn table(columns: &[(&str, &dyn Fn(usize) -> String)], rows: usize) -> String {
    let line = |cells: Vec<String>| cells.join(",") + "\n";
    let head = line(columns.iter().map(|(name, _)| (*name).to_string()).collect());
    head + &(0..rows).map(|i| line(columns.iter().map(|(_, cell)| cell(i)).collect())).collect::<String>()
}

/// A number that no other row has.
fn own(i: usize) -> String {
    (i as f64 * 0.7 + 0.1).sin().to_string()
}

fn other(i: usize) -> String {
    (i as f64 * 1.3).cos().to_string()
}

/// `rows` rows of which the first `few` have `rare`, and the others `common`.
fn mixed<'a>(few: usize, rare: &'a str, common: &'a str) -> impl Fn(usize) -> String + 'a {
    move |i| if i < few { rare.to_string() } else { common.to_string() }
}

const NONE: &str = "profile = \"none\"";

#[test]
fn few_rows_and_episodes_are_refused() {
    let squares = deployment(SQUARES);
    let rows = |n| table(&[("x", &own), ("y", &other)], n);
    assert_eq!(code(&squares, &rows(2), ""), Some(ErrorCode::DisclosureRows));
    assert_eq!(code(&squares, &rows(4), ""), None);
    assert_eq!(code(&squares, &rows(4), "least_rows = 5"), Some(ErrorCode::DisclosureRows));
    assert_eq!(code(&squares, &rows(2), NONE), None);
    assert_eq!(code(&squares, &rows(2), "profile = \"none\"\nleast_rows = 3"), Some(ErrorCode::DisclosureRows));

    let logs = logs_deployment(&format!("{LOGS}, ranges = {{ s_0 = [-1.0, 1.0] }}"));
    let episodes = |n: usize| {
        let (state, next) = (|i: usize| own(i), |i: usize| own(i + 1));
        let done = |i: usize| (i % 4 == 3).to_string();
        table(&[("s_0", &state), ("reward", &other), ("next_0", &next), ("done", &done)], 4 * n)
    };
    assert_eq!(code(&logs, &episodes(9), ""), Some(ErrorCode::DisclosureRows));
    assert_eq!(code(&logs, &episodes(10), ""), None);
    assert_eq!(code(&logs, &episodes(1), NONE), None);
}

/// The weights of a column count as many rows as equal weights with the same variance.
#[test]
fn weights_by_which_few_rows_count_are_refused() {
    let weighted = deployment("kind = \"glm\", family = \"gaussian\", target = \"y\", row_weights = \"cost\"");
    let rows = |heavy: usize, weight: &str| {
        let cost = |i: usize| if i < heavy { weight.to_string() } else { (1.5 + 0.4 * (i as f64).sin()).to_string() };
        table(&[("x", &own), ("cost", &cost), ("y", &other)], 60)
    };
    // Three rows of equal weight, and others of a little, count like slightly more than three.
    for (heavy, weight, is_refused) in [(0, "1", false), (1, "9e7", true), (2, "9e7", true), (3, "9e7", false), (1, "20", false)] {
        let refused = is_refused.then_some(ErrorCode::DisclosureRows);
        assert_eq!(code(&weighted, &rows(heavy, weight), ""), refused, "{heavy} rows of weight {weight}");
    }
    assert_eq!(code(&weighted, &rows(1, "9e7"), NONE), None);
}

#[test]
fn values_of_few_rows_are_refused() {
    let squares = deployment(&format!("{SQUARES}, levels = {{ site = [\"A\", \"B\", \"C\"] }}"));
    let plain = deployment(SQUARES);
    for few in 0..=4 {
        let refused = (1..3).contains(&few).then_some(ErrorCode::DisclosureCount);
        let site = table(&[("site", &mixed(few, "B", "A")), ("y", &own)], 30);
        assert_eq!(code(&squares, &site, ""), refused, "{few} rows of a level");
        assert_eq!(code(&squares, &site, NONE), None);
        for (rare, common) in [("1", "0"), ("0", "1"), ("7.5", "3")] {
            let x = table(&[("x", &mixed(few, rare, common)), ("z", &other), ("y", &own)], 30);
            assert_eq!(code(&plain, &x, ""), refused, "{few} rows of a column of {rare} and {common}");
        }
        let y = table(&[("x", &own), ("y", &mixed(few, "2", "5"))], 30);
        assert_eq!(code(&plain, &y, ""), refused, "{few} rows of a target");
        let reward = |i: usize| u8::from(i < few).to_string();
        let done = |i: usize| (i % 4 == 3).to_string();
        let log = table(&[("s_0", &own), ("reward", &reward), ("next_0", &|i| own(i + 1)), ("done", &done)], 60);
        let logs = logs_deployment(&format!("{LOGS}, ranges = {{ s_0 = [-1.0, 1.0] }}"));
        assert_eq!(code(&logs, &log, ""), refused, "{few} rows with a reward");
        if few > 0 {
            let logistic = deployment(&format!("{LOGISTIC}, classes = [\"ill\", \"well\"]"));
            let class = table(&[("x", &own), ("y", &mixed(few, "ill", "well"))], 30);
            assert_eq!(code(&logistic, &class, ""), refused, "{few} rows of a class");
        }
    }
    // The rows that are fitted count: here the first 20, of which as many have the level B.
    for few in 0..=4 {
        let some = deployment(&format!("{SQUARES}, samples = 20, levels = {{ site = [\"A\", \"B\"] }}"));
        let site = |i: usize| if i < few || i >= 20 { "B".to_string() } else { "A".to_string() };
        let refused = (1..3).contains(&few).then_some(ErrorCode::DisclosureCount);
        assert_eq!(code(&some, &table(&[("site", &site), ("x", &own), ("y", &other)], 40), ""), refused, "{few}");
    }
    // Of 12 rows 2 are held out, of 20 rows 4.
    let held = deployment(&format!("{SQUARES}, holdout = 0.2"));
    assert_eq!(code(&held, &table(&[("x", &own), ("y", &other)], 12), ""), Some(ErrorCode::DisclosureRows));
    assert_eq!(code(&held, &table(&[("x", &own), ("y", &other)], 20), ""), None);
}

#[test]
fn large_models_are_refused() {
    let squares = deployment(SQUARES);
    let wide = |d: usize, n: usize| {
        let names: Vec<String> = (0..d).map(|j| format!("x_{j}")).collect();
        let cells: Vec<Box<dyn Fn(usize) -> String>> =
            (0..d).map(|j| Box::new(move |i| own(31_usize * i + j)) as Box<dyn Fn(usize) -> String>).collect();
        let mut columns: Vec<(&str, &dyn Fn(usize) -> String)> =
            names.iter().map(String::as_str).zip(cells.iter().map(|cell| &**cell)).collect();
        columns.push(("y", &other));
        table(&columns, n)
    };
    for (d, n, refused) in [(3, 10, false), (4, 10, true), (33, 100, false), (34, 100, true)] {
        assert_eq!(code(&squares, &wide(d, n), ""), refused.then_some(ErrorCode::DisclosureParameters), "{d} weights, {n} rows");
        assert_eq!(code(&squares, &wide(d, n), "parameters = 1.0"), None);
    }
    // The rows of all agents are known with the weights.
    let folder = tempfile::tempdir().unwrap();
    let files = [file(folder.path(), "a.csv", &wide(4, 10)), file(folder.path(), "b.csv", &wide(4, 10))];
    for (scope, is_admitted) in [("scope = \"sum\"", true), ("scope = \"sum\"\nparameters = 0.19", false)] {
        let mut agents: Vec<LocalAgent> = files.iter().map(|path| start(&squares, path, scope)).collect();
        let mut enrolment = squares.enrolment(2..=2).unwrap();
        let invitation = enrolment.invite(2);
        for (c, agent) in agents.iter_mut().enumerate() {
            enrolment.take(&c.to_string(), &agent.handle(&invitation).unwrap().unwrap()).unwrap();
        }
        let enrolled = squares.found(&enrolment).unwrap();
        let told = agents[0].handle(&enrolled.admissions[0].bytes);
        assert_eq!(told.as_ref().err().map(Error::code), (!is_admitted).then_some(ErrorCode::DisclosureParameters), "{told:?}");
        assert_eq!(agents[0].number().is_some(), is_admitted);
        if is_admitted {
            // Stricter rules count for a saved state too.
            let state = agents[0].save();
            let e = start(&squares, &files[0], "scope = \"sum\"\nparameters = 0.19").restore(&state).unwrap_err();
            assert_eq!(e.code(), ErrorCode::DisclosureParameters);
            start(&squares, &files[0], scope).restore(&state).unwrap();
        }
    }
}

#[test]
fn many_levels_are_refused() {
    for (levels, rows, limit, refused) in
        [(40, 160, "", false), (41, 164, "", true), (41, 164, "levels = 41", false), (3, 10, "", false), (3, 9, "", true)]
    {
        let names: Vec<String> = (0..levels).map(|i| format!("\"L{i}\"")).collect();
        let squares = deployment(&format!("{SQUARES}, levels = {{ site = [{}] }}", names.join(", ")));
        let site = |i: usize| format!("L{}", i % levels);
        let found = code(&squares, &table(&[("site", &site), ("y", &own)], rows), &format!("parameters = 9.0\n{limit}"));
        assert_eq!(found, refused.then_some(ErrorCode::DisclosureLevels), "{levels} levels, {rows} rows, {limit}");
    }
}

#[test]
fn what_would_come_from_the_data_is_declared() {
    let sites = table(&[("site", &|i| ["A", "B"][i % 2].into()), ("x", &own), ("y", &|i| (i / 2 % 2).to_string())], 40);
    let log = table(&[("s_0", &own), ("reward", &other), ("next_0", &|i| own(i + 1)), ("done", &|i| (i % 3 == 2).to_string())], 60);
    let cases = [
        (deployment(SQUARES), &sites, "`levels` of this column in [problem], or `drop`", Some("`site`")),
        (deployment(&format!("{LOGISTIC}, drop = [\"site\"]")), &sites, "`classes` in [problem]", None),
        (deployment(&format!("{SQUARES}, drop = [\"site\"], target_range = [0.0, 1.0]")), &sites, "no `target_range`", None),
        (logs_deployment(LOGS), &log, "`ranges` of this column in [problem]", Some("`s_0`")),
    ];
    for (deployment, text, help, column) in &cases {
        let e = apply(deployment, text, "").unwrap_err();
        assert_eq!(e.code(), ErrorCode::DisclosureUndeclared, "{e}");
        assert!(e.help.starts_with(help) && column.is_none_or(|column| e.what.contains(column)), "{e} {}", e.help);
        assert!(apply(deployment, text, "undeclared = \"allow\"").is_ok());
    }
    for deployment in [
        deployment(&format!("{SQUARES}, levels = {{ site = [\"B\", \"A\", \"never\"] }}")),
        deployment(&format!("{LOGISTIC}, drop = [\"site\"], classes = [0, 1]")),
    ] {
        assert!(apply(&deployment, &sites, "").is_ok());
    }
    assert!(apply(&logs_deployment(&format!("{LOGS}, ranges = {{ s_0 = [-2.0, 2.0] }}")), &log, "").is_ok());
}

#[test]
fn an_application_with_declared_values_is_the_same_for_all_data_of_a_size() {
    let rows = deployment(&format!("{LOGISTIC}, levels = {{ site = [\"A\", \"B\", \"C\"] }}, classes = [0, 1]"));
    let sites = |shift: usize| {
        let site = move |i: usize| ["A", "B", "C"][(i / (1 + shift)) % (2 + shift)].to_string();
        table(&[("site", &site), ("x", &move |i| own(i + 100 * shift)), ("y", &move |i| ((i / (1 + shift)) % 2).to_string())], 40)
    };
    let logs = logs_deployment(&format!("{LOGS}, ranges = {{ s_0 = [-2.0, 2.0] }}"));
    let log = |shift: usize| {
        let state = move |i: usize| own(i + 50 * shift);
        table(
            &[("s_0", &state), ("reward", &other), ("next_0", &move |i| own(i + 1 + 50 * shift)), ("done", &|i| (i % 3 == 2).to_string())],
            60,
        )
    };
    for (a, b) in [(apply(&rows, &sites(0), ""), apply(&rows, &sites(1), "")), (apply(&logs, &log(0), ""), apply(&logs, &log(1), ""))] {
        assert_eq!(a.unwrap(), b.unwrap());
    }
    // Without them it has the data.
    let open = logs_deployment(LOGS);
    let allow = "undeclared = \"allow\"";
    assert_ne!(apply(&open, &log(0), allow).unwrap(), apply(&open, &log(1), allow).unwrap());
}

/// Agents that lack levels, and levels that no agent has.
#[test]
fn declared_levels_give_the_numbers_of_one_process() {
    let folder = tempfile::tempdir().unwrap();
    let files: Vec<String> = (0..3)
        .map(|c: usize| {
            let (site, grade) =
                (move |i: usize| ["A", "B", "C"][(i + i / 3) % (c + 1)].to_string(), move |i: usize| (1 + (i + c) % 3).to_string());
            let text =
                table(&[("site", &site), ("grade", &grade), ("x", &move |i| own(i + 9 * c)), ("y", &|i| (i * i / 3 % 2).to_string())], 40);
            file(folder.path(), &format!("s_{c}.csv"), &text)
        })
        .collect();
    let declared = "levels = { site = [\"C\", \"A\", \"B\", \"never\"], grade = [2, 1, 3] }, classes = [0, 1], weighting = \"rows\"";
    // The levels of one column are declared, those of the other come from the agents.
    let mixed = "categorical = [\"grade\"], levels = { site = [\"C\", \"A\", \"B\", \"never\"] }, classes = [0, 1], weighting = \"rows\"";
    for (keys, d) in [(declared, 7), (mixed, 7)] {
        let text = settings(&format!("{{ {LOGISTIC}, intercept = true, {keys} }}"), "{ kind = \"mean\" }", "{ kind = \"newton\" }", 4);
        let all = in_one_place(&text, &[("data", list(&files)), ("partition", Value::String("files".into()))]);
        assert_eq!(all.len(), d);
        assert_eq!(deployed(&text, &each(&files)), all, "{keys}");
    }
    let lacks = deployment(&format!("{LOGISTIC}, levels = {{ site = [\"A\"], grade = [1, 2, 3] }}, classes = [0, 1]"));
    let path = std::slice::from_ref(&files[1]);
    let e = LocalAgent::new(&lacks, path, &Places::from_env(""), None, &Cancel::never()).err().unwrap();
    assert_eq!((e.key.as_str(), e.kind()), ("problem.levels", ErrorKind::Data));
    assert!(!e.for_others().contains('B'), "{}", e.for_others());
}

/// Cells of any text are in no refusal, neither for others nor in the record.
#[test]
fn refusals_contain_no_cell() {
    let mut state = 1u64;
    let mut next = |n: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % n
    };
    let odd: Vec<char> = "aZ09 .,;:'`\"\\/\u{1b}\u{202e}é漢🙂{}[]<>=-_%$#@!\n\t".chars().collect();
    let folder = tempfile::tempdir().unwrap();
    let secret = |next: &mut dyn FnMut(u64) -> u64| {
        let text: String = (0..1 + next(40)).map(|_| odd[next(odd.len() as u64) as usize]).collect();
        format!("patient{}{text}", 4711 + next(99))
    };
    let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
    for case in 0..100 {
        let (a, b) = (secret(&mut next), secret(&mut next));
        let few = 1 + next(2) as usize;
        let (cell_a, cell_b) = (quoted(&a), quoted(&b));
        let text = table(&[("site", &mixed(few, &cell_a, &cell_b)), ("x", &own), ("y", &mixed(few, &cell_a, &cell_b))], 30);
        let path = file(folder.path(), &format!("s{case}.csv"), &text);
        let record = folder.path().join(format!("a{case}"));
        for (problem, rules) in [
            (format!("{SQUARES}, target = \"x\""), ""),
            (LOGISTIC.to_string(), "undeclared = \"allow\""),
            (format!("{LOGISTIC}, drop = [\"site\"]"), ""),
            (format!("{LOGISTIC}, drop = [\"site\"]"), "undeclared = \"allow\""),
            (LOGISTIC.to_string(), "undeclared = \"allow\"\nlevels = 1"),
            (LOGISTIC.to_string(), "least_rows = 1000"),
        ] {
            let problem = problem.replace(", target = \"y\", target = \"x\"", ", target = \"x\"");
            let mut agent = start(&deployment(&problem), &path, rules);
            agent.set_audit(Audit::open(&record).unwrap());
            let invitation = deployment(&problem).enrolment(1..=9).unwrap().invite(1);
            let e = agent.handle(&invitation).unwrap_err();
            let told = format!("{e} {} {}", e.help, e.for_others());
            assert!(e.code().is_disclosure() && e.for_others().starts_with("disclosure."), "{e}");
            assert!(!told.contains("patient") && !told.contains("s.csv"), "{told}");
        }
        let left = fs::read_to_string(&record).unwrap();
        assert!(!left.contains("patient") && left.lines().count() == 6, "{left}");
    }
}

#[test]
fn rules_come_from_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let read = |text: &str| DisclosureRules::read(Some(Path::new(&file(folder.path(), "rules.toml", text))));
    assert_eq!(read("").unwrap(), DisclosureRules::default());
    assert_eq!(read("profile = \"none\"").unwrap(), DisclosureRules::none());
    let one = read("profile = \"datashield\"\nleast_agents = 5").unwrap();
    assert_eq!((one.least_agents, one.least_rows), (5, 3));
    for (text, key, code) in [
        ("least_row = 2", "rules.least_row", ErrorCode::UnknownKey),
        ("least_rows = -1", "rules.least_rows", ErrorCode::WrongType),
        ("parameters = 0.0", "rules.parameters", ErrorCode::OutOfRange),
        ("level_density = -0.5", "rules.level_density", ErrorCode::OutOfRange),
        ("profile = \"open\"", "rules.profile", ErrorCode::UnknownName),
        ("least_rows 3", "rules", ErrorCode::NotToml),
    ] {
        let e = read(text).unwrap_err();
        assert_eq!((e.key.as_str(), e.code()), (key, code), "{text}: {e}");
    }
    assert_eq!(DisclosureRules::read(Some(&folder.path().join("none"))).unwrap_err().code(), ErrorCode::Unreadable);
}

/// A record of five lines.
fn record(path: &Path) -> Vec<String> {
    let mut audit = Audit::open(path).unwrap();
    for i in 0..5u8 {
        audit.append(&Left::message(&[i; 40]).of(7, 0).in_round(u64::from(i), 0, &[])).unwrap();
    }
    fs::read_to_string(path).unwrap().lines().map(String::from).collect()
}

fn written(path: &Path, lines: &[String]) {
    fs::write(path, lines.join("\n") + "\n").unwrap();
}

#[test]
fn a_record_shows_lines_that_were_changed_removed_added_or_swapped() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    let lines = record(&path);
    let whole = verify(&path).unwrap();
    assert_eq!((whole.left.len(), whole.torn.len()), (5, 0));
    let broken = |lines: &[String], at: usize| {
        written(&path, lines);
        let e = verify(&path).unwrap_err();
        assert!(e.kind() == ErrorKind::Format && e.what.contains(&format!("line {at}:")), "{e}");
    };
    for i in 0..4 {
        let mut changed = lines.clone();
        changed[i] = changed[i].replace("\"bytes\":40", "\"bytes\":41");
        broken(&changed, i + 2);
        let mut garbage = lines.clone();
        garbage[i] = "x".into();
        broken(&garbage, i + 2);
        let mut removed = lines.clone();
        removed.remove(i);
        broken(&removed, i + 1);
        let mut twice = lines.clone();
        twice.insert(i, lines[i].clone());
        broken(&twice, i + 2);
        for j in i + 1..5 {
            let mut swapped = lines.clone();
            swapped.swap(i, j);
            broken(&swapped, i + 1);
        }
    }
    // The end of a record needs the last hash.
    written(&path, &lines[..4]);
    assert_ne!(verify(&path).unwrap().last, whole.last);
    assert_eq!(verify(&folder.path().join("no")).unwrap_err().code(), ErrorCode::NoFile);
}

#[test]
fn a_record_goes_on_after_a_line_that_was_cut_off() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    record(&path);
    let whole = fs::read(&path).unwrap();
    let fourth = whole[..whole.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap();
    for end in fourth + 2..whole.len() {
        fs::write(&path, &whole[..end]).unwrap();
        let is_complete = end == whole.len() - 1;
        let torn: Vec<usize> = if is_complete { Vec::new() } else { vec![5] };
        assert_eq!(verify(&path).unwrap().torn, torn, "{end}");
        let mut audit = Audit::open(&path).unwrap();
        audit.append(&Left::refusal(&Error::refused_message("no", ""))).unwrap();
        let found = verify(&path).unwrap();
        assert_eq!((found.torn, found.left.len()), (torn, 5 + usize::from(is_complete)), "{end}");
        assert_eq!((found.left.last().unwrap().code.as_str(), found.left.last().unwrap().what.as_str()), ("refused-message", "refusal"));
    }
    // Two processes write in turn.
    let (mut a, mut b) = (Audit::open(&path).unwrap(), Audit::open(&path).unwrap());
    for _ in 0..3 {
        a.append(&Left::message(b"a")).unwrap();
        b.append(&Left::message(b"b")).unwrap();
    }
    verify(&path).unwrap();
}

#[test]
fn every_message_of_an_agent_is_in_its_record() {
    let folder = tempfile::tempdir().unwrap();
    let files: Vec<String> =
        (0..3).map(|c| file(folder.path(), &format!("s{c}.csv"), &table(&[("x", &move |i| own(i + c)), ("y", &other)], 20))).collect();
    let squares = deployment(SQUARES);
    let path = folder.path().join("audit.jsonl");
    let mut agents: Vec<LocalAgent> = files.iter().map(|path| start(&squares, path, "")).collect();
    agents[0].set_audit(Audit::open(&path).unwrap());
    let mut enrolment = squares.enrolment(3..=3).unwrap();
    let invitation = enrolment.invite(3);
    for (c, agent) in agents.iter_mut().enumerate() {
        enrolment.take(&c.to_string(), &agent.handle(&invitation).unwrap().unwrap()).unwrap();
    }
    let enrolled = squares.found(&enrolment).unwrap();
    for told in &enrolled.admissions {
        assert!(agents[told.agent].handle(&told.bytes).unwrap().is_none());
    }
    let mut server = fedsa::node::ServerNode::new(&enrolled.federation).unwrap();
    let fedsa::node::Todo::Ask { bytes, .. } = server.open() else { panic!("a question") };
    let answer = agents[0].handle(&bytes[0]).unwrap().unwrap();
    assert!(agents[0].handle(b"nothing").is_err());
    agents[0].leave();
    agents[0].handle(&bytes[0]).unwrap();
    let left = verify(&path).unwrap().left;
    let what: Vec<&str> = left.iter().map(|left| left.what.as_str()).collect();
    assert_eq!(what, ["application", "answer", "refusal", "farewell"]);
    assert_eq!((left[1].round, left[1].exchange, left[1].bytes, left[1].epoch), (Some(0), Some(0), answer.len(), Some(0)));
    assert_eq!(left[1].parts, [("Gradient".to_string(), 1)]);
    assert_eq!(left[1].settings, format!("{:016x}", enrolled.federation.digest()));
}
