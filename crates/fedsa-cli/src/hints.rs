//! Additions of the program to the libraries' errors: options in place of settings, and help.

use std::sync::RwLock;

use clap::Command;
use fedsa::error::{Error, ErrorCode};
use fedsa_experiment::execute::CHECKPOINT;
use fedsa_experiment::folder::OUT;
use fedsa_experiment::parts::{POINTS, SEED_RANGE};
use fedsa_experiment::run::RESUME;

/// Settings whose option has another name.
const OTHER_NAMES: [(&str, &str); 3] = [("kind", "--model"), ("covariance", "--inference"), ("target", "--target-mse")];

/// Keys that `--partition` sets together with its parameter.
const PARTITIONS: [&str; 2] = ["partition.dirichlet", "partition.similarity"];

/// The options of the current command, by setting.
static OPTIONS: RwLock<Vec<(String, String)>> = RwLock::new(Vec::new());

/// Makes messages name the options of a command in place of settings.
pub fn speak_of(command: &Command) {
    *OPTIONS.write().expect("no panics under the lock") = options_of(command);
}

/// The options of a command, by setting.
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
    // Parts that a merge lacks are run with `fedsa run`.
    all.push((POINTS.into(), "--points".into()));
    all
}

/// A text of the library, with options of the command in place of settings in backticks.
pub fn text(text: &str) -> String {
    text_with(text, &OPTIONS.read().expect("no panics under the lock"))
}

/// The error with options in place of settings, and with help of the program.
pub fn in_options(e: Error) -> Error {
    let e = about_options(e);
    // The message itself may have users' columns in backticks.
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

/// The error under the option of its key.
fn about_options(e: Error) -> Error {
    match e.key.as_str() {
        OUT => e.about("--out"),
        CHECKPOINT | RESUME => e.about("--resume"),
        POINTS => e.about("--points"),
        SEED_RANGE => e.about("--seed-range"),
        "source" => e.about("--from"),
        // Keys of a file have a place in it, and unknown keys have no option.
        _ if e.place().is_some() || e.code() == ErrorCode::UnknownKey => e,
        key => {
            let options = OPTIONS.read().expect("no panics under the lock");
            // The key of a problem is given if its setting is missing.
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

/// A text of the library with options in place of settings in backticks: `` `max_rounds` ``, or `` `max_rounds = 10` `` with a value.
/// Users' words, such as columns, are not in backticks.
pub fn text_with(text: &str, options: &[(String, String)]) -> String {
    let mut parts: Vec<String> = text.split('`').map(str::to_string).collect();
    // Odd parts, up to the last backtick, are in backticks.
    let last = (parts.len() - 1) / 2 * 2;
    let mut out = std::mem::take(&mut parts[0]);
    for pair in parts[1..=last].chunks(2) {
        let (name, value) = pair[0].split_once(" = ").map_or((&pair[0][..], None), |(name, value)| (name, Some(value)));
        let option = |wanted: &str| options.iter().find(|(setting, _)| setting == wanted).map(|(_, option)| option);
        out += &match (option(&pair[0]), option(name), value) {
            (Some(option), ..) => option.to_string(),
            (None, Some(option), Some(value)) => format!("{option} {}", for_shell(value.trim_matches('"'))),
            // A key of an experiment that is no setting.
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

/// A value, in quotes if a shell would split it.
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
