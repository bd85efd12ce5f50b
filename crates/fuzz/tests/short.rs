//! A short run over all targets, and that nothing which fails is passed over.

use std::path::Path;
use std::process::{Command, Output};

fn fuzz(out: &Path, options: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fedsa-fuzz"));
    command.arg("--out").arg(out).args(options).output().expect("the fuzzer runs")
}

#[test]
fn mutated_input_is_read_or_refused_by_every_target() {
    let out = tempfile::tempdir().unwrap();
    // No input takes a minute, however busy the machine is.
    let output = fuzz(out.path(), &["--inputs", "2000", "--seed", "1", "--hang", "60"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    for target in fedsa_fuzz::targets::TARGETS {
        let row = text.lines().find(|line| line.split_whitespace().next() == Some(target.name));
        let row: Vec<&str> = row.unwrap_or_else(|| panic!("no row for {}:\n{text}", target.name)).split_whitespace().collect();
        assert_eq!(row[1], "2000", "{row:?}");
        // Mutations reach behind the first check, and in front of it.
        let accepted: f64 = row[2].trim_end_matches('%').parse().unwrap();
        assert!((1.0..=100.0).contains(&accepted), "{row:?}");
    }
}

#[test]
fn every_way_to_fail_is_found_and_saved() {
    let out = tempfile::tempdir().unwrap();
    for (target, kind) in [
        ("planted-panic", "panic at"),
        ("planted-memory", "memory"),
        ("planted-flood", "abort"),
        ("planted-stack", "abort"),
        ("planted-hang", "hang"),
    ] {
        let output = fuzz(out.path(), &["--target", target, "--inputs", "30", "--hang", "1"]);
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(1), "{target}: {text}");
        let saved = text.lines().find_map(|line| line.trim().strip_prefix("saved in ")).unwrap_or_else(|| panic!("{target}: {text}"));
        let message = std::fs::read_to_string(Path::new(saved).with_extension("txt")).unwrap();
        assert!(message.starts_with(kind), "{target}: {message}");
        // It is the input that fails.
        let bad = std::fs::read(saved).unwrap();
        assert!(bad != b"a valid input" && bad.len() % 4 == 3, "{target}: {bad:?}");
    }
    // An input that does not fail does not when it is run again, alone.
    let good = out.path().join("good");
    std::fs::write(&good, "a valid input").unwrap();
    let output = fuzz(out.path(), &["--target", "planted-panic", "--replay", good.to_str().unwrap()]);
    assert!(output.status.success() && output.stdout == b"Accepted\n");
}

#[test]
fn what_is_no_target_is_refused() {
    let out = tempfile::tempdir().unwrap();
    let output = fuzz(out.path(), &["--target", "nothing"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("there is no target `nothing`"));
}
