//! Runs the real program as a user does, in a folder of its own.

#![allow(dead_code, reason = "every test uses some of it")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use fedsa::problem::arrays::{Array, Arrays};
use fedsa_data::npz;

/// A small experiment that takes milliseconds.
pub const SMALL: &str = r#"id = "small"

[problem]
kind = "garnet"
agents = 4
states = 10
features = 3
min_class = 2

[sampling]
kind = "iid"

[[method]]
kind = "fedlsa"
label = "FedLSA"
step_size = 0.1
local_steps = 10

[[method]]
kind = "scafflsa"
label = "SCAFFLSA"
step_size = 0.1
local_steps = 10

[run]
rounds = 20
seeds = 2
"#;

/// What the program left behind.
pub struct Output {
    /// Its exit status.
    pub status: i32,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

impl Output {
    /// Standard error as one line, without the frame around excerpts of files.
    pub fn message(&self) -> String {
        let plain = self.stderr.replace(|c: char| ('\u{2500}'..='\u{257f}').contains(&c) || c == '·', " ");
        plain.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// Checks the exit status; shows all output if it is another.
    #[track_caller]
    pub fn exits(self, status: i32) -> Self {
        assert_eq!(self.status, status, "\nstdout: {}\nstderr: {}", self.stdout, self.stderr);
        self
    }

    /// Checks that standard output holds a text.
    #[track_caller]
    pub fn says(self, text: &str) -> Self {
        assert!(self.stdout.contains(text), "`{text}` is not in\n{}\nstderr: {}", self.stdout, self.stderr);
        self
    }
}

/// A folder with files, and the program run in it.
pub struct Folder {
    dir: tempfile::TempDir,
}

impl Folder {
    /// An empty folder.
    pub fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    /// A folder that holds `small.toml`.
    pub fn with(text: &str) -> Self {
        let folder = Self::new();
        folder.write("small.toml", text);
        folder
    }

    /// A path in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes a file, and the folders it is in.
    pub fn write(&self, name: &str, contents: impl AsRef<[u8]>) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, contents).unwrap();
    }

    /// Reads a file.
    #[track_caller]
    pub fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    /// Reads a file as text.
    #[track_caller]
    pub fn text(&self, name: &str) -> String {
        String::from_utf8(self.read(name)).unwrap()
    }

    /// Reads a JSON file.
    #[track_caller]
    pub fn json(&self, name: &str) -> serde_json::Value {
        serde_json::from_slice(&self.read(name)).unwrap()
    }

    /// All files with their contents and times of change.
    pub fn everything(&self) -> Vec<(PathBuf, Vec<u8>, std::time::SystemTime)> {
        fn collect(dir: &Path, out: &mut Vec<(PathBuf, Vec<u8>, std::time::SystemTime)>) {
            for entry in std::fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                match path.is_dir() {
                    true => collect(&path, out),
                    false => {
                        let (bytes, time) = (std::fs::read(&path).unwrap(), path.metadata().unwrap().modified().unwrap());
                        out.push((path, bytes, time));
                    }
                }
            }
        }
        let mut out = Vec::new();
        collect(self.dir.path(), &mut out);
        out.sort();
        out
    }

    /// The program with arguments, to be run here, without data sets.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fedsa"));
        command.args(args).current_dir(self.dir.path()).stdin(Stdio::null());
        command.env_remove("FEDSA_DATA").env("XDG_CACHE_HOME", self.path("cache")).env("NO_COLOR", "1");
        command
    }

    /// Runs the program here to its end.
    pub fn run(&self, args: &[&str]) -> Output {
        finish(self.command(args))
    }
}

/// Runs a command to its end.
pub fn finish(mut command: Command) -> Output {
    let output = command.output().unwrap();
    Output {
        status: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Runs a command that must end by itself: it is killed, and the test fails, after a minute.
#[track_caller]
pub fn finish_soon(mut command: Command) -> Output {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let began = std::time::Instant::now();
    while child.try_wait().unwrap().is_none() {
        if began.elapsed().as_secs() > 60 {
            child.kill().unwrap();
            panic!("it hangs: {command:?}");
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Output { status: output.status.code().unwrap_or(-1), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// [`SMALL`] with a text replaced, which must be there.
#[track_caller]
pub fn small(from: &str, to: &str) -> String {
    edited(SMALL, from, to)
}

/// A text with a part replaced, which must be there.
#[track_caller]
pub fn edited(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "`{from}` is not in the file");
    text.replacen(from, to, 1)
}

/// [`SMALL`] with another problem.
pub fn with_problem(problem: &str) -> String {
    let (start, end) = (SMALL.find("[problem]").unwrap(), SMALL.find("[sampling]").unwrap());
    format!("{}[problem]\n{problem}\n\n{}", &SMALL[..start], &SMALL[end..])
}

/// Named arrays: names, shapes and entries.
pub fn arrays(list: &[(&str, &[usize], &[f64])]) -> Arrays {
    let mut arrays = Arrays::new();
    for (name, shape, data) in list {
        arrays.insert(*name, Array::new(shape.to_vec(), data.to_vec()).unwrap());
    }
    arrays
}

/// A Markov reward process of two agents, three states and two features as arrays.
pub fn mrp() -> Arrays {
    let p = [0.5, 0.25, 0.25, 0.1, 0.6, 0.3, 0.2, 0.2, 0.6, 0.3, 0.3, 0.4, 0.7, 0.2, 0.1, 0.1, 0.1, 0.8];
    arrays(&[
        ("P", &[2, 3, 3], &p),
        ("R", &[2, 3], &[1.0, 0.0, -1.0, 0.5, 0.5, 0.0]),
        ("Phi", &[3, 2], &[1.0, 0.0, 0.5, 0.5, 0.0, 1.0]),
        ("gamma", &[], &[0.9]),
    ])
}

/// [`mrp`] with an array replaced.
pub fn mrp_with(name: &str, shape: &[usize], data: &[f64]) -> Arrays {
    let mut arrays = mrp();
    arrays.insert(name, Array::new(shape.to_vec(), data.to_vec()).unwrap());
    arrays
}

/// The bytes of an `.npz`.
pub fn npz_bytes(arrays: &Arrays) -> Vec<u8> {
    npz::to_bytes(arrays).unwrap()
}
