//! `fedsa federation`: an app for Flower.

use std::path::Path;

use fedsa::error::{Error, quoted};
use fedsa::note::Note;
use fedsa_data::atomic::{self, Existing};
use fedsa_experiment::Kinds;
use fedsa_experiment::deployment::{Deployment, TaskSettings, limits, with_federation};

use super::{count, load, say};
use crate::args::{FederationCommand, NewFederationArgs, Overrides};
use crate::error::DONE;
use crate::hints;

/// The files of an app, by name.
const FILES: [(&str, &str); 9] = [
    ("pyproject.toml", include_str!("../../templates/federation/pyproject.toml")),
    ("README.md", include_str!("../../templates/federation/README.md")),
    ("nginx.conf", include_str!("../../templates/federation/nginx.conf")),
    (".gitignore", include_str!("../../templates/federation/gitignore")),
    ("LICENSE", include_str!("../../templates/federation/LICENSE")),
    ("settings.toml", include_str!("../../templates/federation/settings.toml")),
    ("app/__init__.py", include_str!("../../templates/federation/init.py")),
    ("app/client.py", include_str!("../../templates/federation/client.py")),
    ("app/server.py", include_str!("../../templates/federation/server.py")),
];

/// Runs the command.
///
/// # Errors
/// On bad input, and when the folder cannot be written to.
pub fn federation(command: &FederationCommand, kinds: &Kinds) -> Result<u8, Error> {
    match command {
        FederationCommand::New(args) => new(args, kinds),
        FederationCommand::Limits => {
            say(limits::markdown().trim_end());
            Ok(DONE)
        }
    }
}

fn new(args: &NewFederationArgs, kinds: &Kinds) -> Result<u8, Error> {
    let Some(path) = &args.settings else { return write(&args.dir, args.agents, None, &[]) };
    let (experiment, _) = load(path, &Overrides::default(), false, kinds)?;
    let text = experiment.document.text.clone();
    let deployment = Deployment::new(experiment.document)?;
    write(&args.dir, args.agents, Some(&text), deployment.notes())
}

/// Writes the app of a federation that performs a task of `fedsa fit` or `fedsa evaluate`.
///
/// # Errors
/// As [`federation`].
pub fn write_task(dir: &Path, task: &TaskSettings) -> Result<u8, Error> {
    let written = write(dir, task.agents as u64, Some(&task.text), &task.notes);
    written.map_err(|e| if e.key == "DIR" { e.about("--federation") } else { e })
}

/// Writes an app with these settings, or with an example's.
fn write(dir: &Path, agents: u64, settings: Option<&str>, notes: &[Note]) -> Result<u8, Error> {
    let name = name_of(dir)?;
    refuse_taken(dir)?;
    let out = std::path::absolute(dir).unwrap_or_else(|_| dir.to_path_buf()).join("out");
    for (file, template) in FILES {
        let text = match settings.filter(|_| file == "settings.toml") {
            Some(settings) => with_federation(settings, agents, &out.display().to_string())?,
            None => filled(template, &name, &out, agents),
        };
        let path = dir.join(file);
        let folder = atomic::folder_of(&path);
        std::fs::create_dir_all(folder).map_err(|e| atomic::unwritable(folder, &e))?;
        atomic::write(&path, text.as_bytes(), folder, Existing::Keep).map_err(|e| atomic::unwritable(&path, &e))?;
    }
    for note in notes {
        say(format!("note: {}", hints::text(&note.text)));
    }
    say(format!("{}: a Flower app for {}; its README.md has the commands that run it", dir.display(), count(agents as usize, "agent")));
    Ok(DONE)
}

/// The name of the app, in a form that Flower and Python accept.
fn name_of(dir: &Path) -> Result<String, Error> {
    let name = dir.file_name().map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default();
    let is_name = name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.len() <= 60
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    if is_name {
        return Ok(name);
    }
    let what = format!("`{}` is no name of an app", quoted(&name));
    Err(Error::new("DIR", what, "a folder whose name begins with a letter, and has letters, digits and hyphens"))
}

/// Refuses a folder that is not empty.
fn refuse_taken(dir: &Path) -> Result<(), Error> {
    let is_free = match atomic::at(dir) {
        Ok(None) => true,
        Ok(Some(found)) => found.is_dir() && std::fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_none()),
        Err(_) => false,
    };
    if is_free {
        return Ok(());
    }
    Err(Error::new("DIR", format!("{} is there already", dir.display()), "a folder that does not exist, or is empty"))
}

/// A file of the app `name` for this number of agents.
fn filled(template: &str, name: &str, out: &Path, agents: u64) -> String {
    let out = toml_text(&out.display().to_string());
    template.replace("@NAME@", name).replace("@OUT@", &out).replace("@AGENTS@", &agents.to_string())
}

/// A text as it may stand between the quotes of TOML.
fn toml_text(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    #[test]
    fn the_rules_have_the_list_of_limits() {
        let rules = include_str!("../../../../docs/src/reference/federation-rules.md");
        assert!(rules.contains(&limits::markdown()), "{}", limits::markdown());
    }

    #[test]
    fn the_settings_of_the_template_can_be_deployed() {
        let of = |file: &str| {
            let (_, template) = FILES.iter().find(|(name, _)| *name == file).unwrap();
            filled(template, "trial", Path::new("/tmp/out"), 5)
        };
        let experiment = parse("settings.toml", &of("settings.toml"), &Overrides::default(), false, &Kinds::default()).unwrap();
        assert_eq!(Deployment::new(experiment.document).unwrap().until().rounds, 20);
        assert!(of("settings.toml").contains("[federation]\nagents = 5\n") && of("settings.toml").contains("out = \"/tmp/out\""));
        assert!(!of("pyproject.toml").contains("agents") && !of("pyproject.toml").contains("deadline"));
        let readme = of("README.md");
        assert!(readme.contains("num-supernodes=5") && readme.contains("each of the 5 nodes") && readme.contains("--port 9099"));
        assert!(readme.contains("~/.config/fedsa/trial"));
        let given = with_federation("[run]\nrounds = 3 # few\n", 5, "/tmp/out").unwrap();
        assert_eq!(given, "[run]\nrounds = 3 # few\n\n[federation]\nagents = 5\nout = \"/tmp/out\"\n");
        let kept = "[federation]\nagents = 2\nout = \"here\"\n";
        assert_eq!(with_federation(kept, 5, "/tmp/out").unwrap(), kept);
        assert!(FILES.iter().all(|(file, _)| !of(file).contains('@') || *file == "README.md"));
    }
}
