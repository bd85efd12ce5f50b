//! What the program adds to errors of the libraries: the options that stand for their settings, and what to do about them.

use std::sync::RwLock;

use clap::Command;
use fedsa::error::{Error, ErrorCode};
use fedsa_experiment::execute::CHECKPOINT;
use fedsa_experiment::folder::OUT;
use fedsa_experiment::parts::{POINTS, SEED_RANGE};
use fedsa_experiment::run::RESUME;

/// Settings by other names than those of the options that stand for them.
const OTHER_NAMES: [(&str, &str); 3] = [("kind", "--model"), ("covariance", "--inference"), ("target", "--target-mse")];

/// Keys of what `--partition` names together with its parameter.
const PARTITIONS: [&str; 2] = ["partition.dirichlet", "partition.similarity"];

/// The options of the command that runs, by the settings that they stand for.
static OPTIONS: RwLock<Vec<(String, String)>> = RwLock::new(Vec::new());

/// Makes messages name the options of a command in place of settings.
pub fn speak_of(command: &Command) {
    *OPTIONS.write().expect("no panics under the lock") = options_of(command);
}

/// The options of a command, by the settings that they stand for.
pub fn options_of(command: &Command) -> Vec<(String, String)> {
    let given = command.get_arguments().filter(|arg| !arg.is_global_set());
    let mut all: Vec<(String, String)> = given
        .filter_map(|arg| {
            let value_name = || Some(arg.get_value_names()?.first()?.to_string());
            let option = arg.get_long().map(|long| format!("--{long}")).or_else(value_name)?;
            Some((arg.get_id().to_string(), option))
        })
        .collect();
    for (setting, option) in OTHER_NAMES {
        if all.iter().any(|(_, known)| known == option) && all.iter().all(|(known, _)| known != setting) {
            all.push((setting.into(), option.into()));
        }
    }
    if all.iter().any(|(_, option)| option == "--partition") {
        all.extend(PARTITIONS.map(|key| (key.to_string(), "--partition".to_string())));
    }
    // What is missing for a merge is for `fedsa run`.
    all.push((POINTS.into(), "--points".into()));
    all
}

/// A text of the library with options of the command that runs in place of the settings that it names in backticks.
pub fn text(text: &str) -> String {
    text_with(text, &OPTIONS.read().expect("no panics under the lock"))
}

/// The error with options in place of settings of the library, and with what the program can do about it.
pub fn in_options(e: Error) -> Error {
    let e = about_options(e);
    // What is wrong may name columns of users in backticks.
    let help = text(&e.help);
    let e = e.helped(help);
    match (e.code(), e.key.as_str()) {
        (ErrorCode::OutputExists, "--out") => and(e, ", --resume, or --overwrite to replace what is there now"),
        (ErrorCode::OutputExists, _) => and(e, "; --overwrite replaces a file"),
        (ErrorCode::Format, "--resume") => and(e, ", or use --overwrite to run everything again"),
        (ErrorCode::Unfinished, _) => {
            let what = format!("{}; --resume continues it", e.what);
            e.saying(what)
        }
        (ErrorCode::NoMemory, _) => {
            let help = text_with(&e.help, &[("threads".into(), "--threads".into())]);
            e.helped(help)
        }
        (ErrorCode::NoSource | ErrorCode::Network, _) => and(e, "; for another source: --from DIR, or --url-base URL"),
        (ErrorCode::ColumnExists, _) => and(e, ": --column NAME"),
        (ErrorCode::Sweep, _) => and(e, ": --unset sweep --unset variant"),
        _ => e,
    }
}

/// The error under the option that stands for its key.
fn about_options(e: Error) -> Error {
    match e.key.as_str() {
        OUT => e.about("--out"),
        CHECKPOINT | RESUME => e.about("--resume"),
        POINTS => e.about("--points"),
        SEED_RANGE => e.about("--seed-range"),
        "source" => e.about("--from"),
        // Keys of a file have a place there, and keys that there are not stand for no option.
        _ if e.place().is_some() || e.code() == ErrorCode::UnknownKey => e,
        key => {
            let options = OPTIONS.read().expect("no panics under the lock");
            // The key of a problem, where its setting was not given.
            let key = key.strip_prefix("problem.").unwrap_or(key);
            let option = options.iter().find(|(setting, _)| setting == key).map(|(_, option)| option.clone());
            match option {
                Some(option) => e.about(option),
                None => e,
            }
        }
    }
}

/// The error with more help.
fn and(e: Error, more: &str) -> Error {
    let help = format!("{}{more}", e.help);
    e.helped(help)
}

/// The error about an option that sets, removes or sweeps keys; keys become part of the message.
pub fn of_option(option: &str, e: Error) -> Error {
    let what = e.to_string();
    let help = if e.code() == ErrorCode::NotAnAssignment { format!("{option} {}", e.help) } else { e.help.clone() };
    let code = if e.code() == ErrorCode::MissingKey { ErrorCode::Setting } else { e.code() };
    e.coded(code).about(option).saying(what).helped(help)
}

/// A text of the library with options in place of the settings that it names in backticks: `` `max_rounds` ``, or
/// `` `max_rounds = 10` `` with a value. Names of columns and other words of users are not in backticks.
pub fn text_with(text: &str, options: &[(String, String)]) -> String {
    let mut parts: Vec<String> = text.split('`').map(str::to_string).collect();
    // Every other part is in backticks, up to the last backtick.
    let last = (parts.len() - 1) / 2 * 2;
    let mut out = std::mem::take(&mut parts[0]);
    for pair in parts[1..=last].chunks(2) {
        let (name, value) = pair[0].split_once(" = ").map_or((&pair[0][..], None), |(name, value)| (name, Some(value)));
        let option = |wanted: &str| options.iter().find(|(setting, _)| setting == wanted).map(|(_, option)| option);
        out += &match (option(&pair[0]), option(name), value) {
            (Some(option), ..) => option.to_string(),
            (None, Some(option), Some(value)) => format!("{option} {}", for_shell(value.trim_matches('"'))),
            // A key of an experiment, which is no setting of its own.
            (None, None, Some(value)) if name.contains('.') && option("set").is_some() => {
                format!("--set {name}={}", value.trim_matches('"'))
            }
            _ => format!("`{}`", pair[0]),
        };
        out += &pair[1];
    }
    parts[last + 1..].iter().for_each(|rest| out += &format!("`{rest}"));
    out
}

/// A value in quotes, where a shell would take it apart.
fn for_shell(value: &str) -> String {
    if value.contains([' ', '(', ')']) { format!("'{value}'") } else { value.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_in_backticks_become_options() {
        let options = [("max_rounds", "--max-rounds"), ("budget", "--budget"), ("kind", "--model"), ("set", "--set")]
            .map(|(a, b)| (a.into(), b.into()));
        for (text, expected) in [
            ("a larger `budget`, or `max_rounds = 10`, which is enough", "a larger --budget, or --max-rounds 10, which is enough"),
            ("`kind = a(b) * c`", "--model 'a(b) * c'"),
            ("`kind = \"x\"` or `kinds = \"y\"`", "--model x or `kinds = \"y\"`"),
            ("`problem.ratios = false` leaves out `problem.x`", "--set problem.ratios=false leaves out `problem.x`"),
            ("no `such` setting, and `one", "no `such` setting, and `one"),
            ("budget", "budget"),
            ("", ""),
        ] {
            assert_eq!(text_with(text, &options), expected);
        }
    }

    #[test]
    fn errors_name_options_of_the_program() {
        let e = in_options(Error::new(OUT, "it is there", "another folder").coded(ErrorCode::OutputExists));
        assert_eq!((e.key.as_str(), e.help.as_str()), ("--out", "another folder, --resume, or --overwrite to replace what is there now"));
        let e = of_option("--set", Error::new("", "no `=`", "KEY=VALUE").coded(ErrorCode::NotAnAssignment));
        assert_eq!((e.key.as_str(), e.what.as_str(), e.help.as_str()), ("--set", "no `=`", "--set KEY=VALUE"));
    }
}
