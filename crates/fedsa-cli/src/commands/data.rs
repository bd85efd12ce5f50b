//! `fedsa data`: lists, fetches and verifies public data sets.

use std::io::IsTerminal;
use std::time::Duration;

use fedsa::error::{Error, quoted};
use fedsa_data::find::{Places, natural_order};
use fedsa_data::machine::bytes_text;
use fedsa_data::public::fetch::{Fetcher, FileSource, Watch};
use fedsa_data::public::registry::{PublicFile, PublicSet, SETS};
use fedsa_data::public::verify::{FileState, state};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Value as Json, json};

use super::{count, say, say_json, warn};
use crate::args::{DataCommand, FetchArgs, ProgressMode, VerifyArgs};
use crate::error::{DONE, NOT_AS_EXPECTED};

/// The environment variable that names a mirror.
const MIRROR: &str = "FEDSA_DATA_URL";
/// The pause before the second try of a download.
const PAUSE: Duration = Duration::from_millis(500);

/// Runs the command.
///
/// # Errors
/// When a name is unknown, or a file cannot be fetched.
pub fn data(command: &DataCommand) -> Result<u8, Error> {
    match command {
        DataCommand::List { json } => Ok(list(*json)),
        DataCommand::Fetch(args) => fetch(args),
        DataCommand::Verify(args) => verify(args),
    }
}

/// The sets with these names; a first part of names selects all sets that begin with it.
fn named(names: &[String]) -> Result<Vec<&'static PublicSet>, Error> {
    let mut sets: Vec<&PublicSet> = Vec::new();
    for name in names {
        let family = format!("{}/", name.trim_end_matches('/'));
        let found: Vec<&PublicSet> = match PublicSet::named(name) {
            Some(set) => vec![set],
            None => SETS.iter().filter(|set| set.name.starts_with(&family)).collect(),
        };
        if found.is_empty() {
            let mut all: Vec<&str> = SETS.iter().map(|set| set.name).collect();
            all.sort_by(|a, b| natural_order(a, b));
            return Err(Error::new("", format!("there is no public data set `{}`", quoted(name)), format!("one of {}", all.join(", "))));
        }
        found.into_iter().for_each(|set| {
            if !sets.contains(&set) {
                sets.push(set);
            }
        });
    }
    Ok(sets)
}

fn list(json: bool) -> u8 {
    if json {
        let files = |set: &PublicSet| -> Vec<Json> {
            let file = |file: &PublicFile| json!({ "path": file.path, "url": file.url, "bytes": file.size, "sha256": file.sha256 });
            set.files.iter().map(file).collect()
        };
        let entry = |set: &PublicSet| {
            let (source, files) = (set.has_source(), files(set));
            json!({
                "name": set.name, "what": set.what, "origin": set.origin, "checksums": set.checksums,
                "bytes": set.size(), "has_source": source, "files": files,
            })
        };
        say_json(&SETS.iter().map(entry).collect::<Vec<_>>());
        return DONE;
    }
    let width = SETS.iter().map(|set| set.name.len()).max().unwrap_or(0);
    for set in SETS {
        let source = if set.has_source() { "" } else { " · no canonical source: --from DIR" };
        say(format!("{:<width$}  {:>7}  {}{source}", set.name, bytes_text(set.size() as f64), set.what));
        say(format!("{:<width$}  {:>7}  from {}; checksums {}", "", "", set.origin, set.checksums));
    }
    DONE
}

fn fetch(args: &FetchArgs) -> Result<u8, Error> {
    let sets = named(&args.names)?;
    let mirror = args.url_base.clone().or_else(|| std::env::var(MIRROR).ok().filter(|url| !url.is_empty()));
    let source = match (&args.from, mirror) {
        (Some(folder), _) => FileSource::Folder(folder.clone()),
        (None, Some(url)) => FileSource::Mirror(url),
        (None, None) => FileSource::Canonical,
    };
    let without = sets.iter().find(|set| source == FileSource::Canonical && !set.has_source());
    if let Some(set) = without {
        let help = "a folder that has a copy of its files: --from DIR; or a mirror: --url-base URL";
        return Err(Error::new(set.name, "it has no canonical public source", help));
    }
    let no_cache = || Error::new("HOME", "it is not set, and neither is XDG_CACHE_HOME", "a folder for the cache");
    let cache = Places::cache().ok_or_else(no_cache)?;
    let fetcher = Fetcher::new(source, Duration::from_secs_f64(args.timeout), PAUSE, args.overwrite);
    let (places, cached) = (Places::from_env(""), Places { base: Default::default(), data: vec![cache.clone()] });
    let mut done: Vec<Json> = Vec::new();
    for set in sets {
        for file in set.files {
            // A copy that commands already find is not fetched.
            let there = [&places, &cached].into_iter().find_map(|places| match state(set, file, places) {
                FileState::Good(path) => Some(path),
                _ => None,
            });
            let got = there.is_none();
            let path = match there {
                Some(path) => path,
                None => {
                    let mut shown = Shown::new(file, args.progress, args.quiet);
                    let fetched = fetcher.fetch(set, file, &cache, &mut shown);
                    shown.finish();
                    fetched?
                }
            };
            done.push(json!({ "name": set.name, "file": file.path, "path": path.display().to_string(), "fetched": got }));
            if !args.json {
                let what = if got { "fetched, checksum as expected" } else { "there already, checksum as expected" };
                say(format!("{}: {what}: {}", file.path, path.display()));
            }
            if got && let FileState::Differs(path, _) = state(set, file, &places) {
                warn(format!("warning: {} is found before it, and is another file", path.display()));
            }
        }
    }
    if args.json {
        say_json(&done);
    }
    Ok(DONE)
}

fn verify(args: &VerifyArgs) -> Result<u8, Error> {
    let places = Places::from_env("");
    let wanted = named(&args.names)?;
    let sets: Vec<&PublicSet> = if wanted.is_empty() { SETS.iter().collect() } else { wanted.clone() };
    let (mut entries, mut bad, mut absent): (Vec<Json>, usize, Vec<&str>) = (Vec::new(), 0, Vec::new());
    for set in sets {
        let states: Vec<(&PublicFile, FileState)> = set.files.iter().map(|file| (file, state(set, file, &places))).collect();
        // Files of another set may be at the expected places; this set is then not there.
        let is_there = |state: &FileState| *state != FileState::Missing && state.other_set().is_none();
        if wanted.is_empty() && !states.iter().any(|(_, state)| is_there(state)) {
            absent.push(set.name);
            continue;
        }
        for (file, state) in states {
            bad += usize::from(!matches!(state, FileState::Good(_)));
            entries.push(entry(set, file, &state));
            if !args.json {
                say(format!("{}: {}", file.path, sentence(&state)));
            }
        }
    }
    let folders: Vec<String> = places.data.iter().map(|folder| folder.display().to_string()).collect();
    if args.json {
        say_json(&json!({ "files": entries, "not_there": absent, "searched": folders }));
    } else {
        if !absent.is_empty() {
            say(format!("not there: {}", absent.join(", ")));
        }
        if entries.is_empty() {
            say(nothing(&folders));
        }
        say(format!("{}, {bad} not as expected", count(entries.len(), "file")));
    }
    Ok(if bad == 0 && !entries.is_empty() { DONE } else { NOT_AS_EXPECTED })
}

/// The lines for an empty cache: the searched folders, and how to fetch a set.
fn nothing(folders: &[String]) -> String {
    let searched = match folders {
        [] => "no folder was searched: FEDSA_DATA, XDG_CACHE_HOME and HOME are not set".to_string(),
        _ => format!("no public data set is in {}", folders.join(" or in ")),
    };
    format!("{searched}; `fedsa data fetch NAME` gets one into the cache, and FEDSA_DATA names a folder that has some")
}

fn entry(set: &PublicSet, file: &PublicFile, state: &FileState) -> Json {
    let mut out = json!({ "name": set.name, "file": file.path, "state": state.name(), "expected": file.sha256 });
    if let FileState::Good(path) | FileState::Differs(path, _) | FileState::Unreadable(path, _) = state {
        out["path"] = json!(path.display().to_string());
    }
    if let FileState::Differs(_, found) = state {
        out["found"] = json!(found);
        out["is_of"] = json!(state.other_set().map(|set| set.name));
    }
    out
}

/// The state of a file in words.
fn sentence(state: &FileState) -> String {
    match state {
        FileState::Good(path) => format!("ok: {}", path.display()),
        FileState::Missing => "missing".into(),
        FileState::Differs(path, found) => {
            let other = state.other_set().map_or(String::new(), |set| format!("; it is the file of {}", set.name));
            format!("differs: {} has the SHA-256 {found}{other}", path.display())
        }
        FileState::Unreadable(path, why) => format!("cannot be read: {}: {why}", path.display()),
    }
}

/// Shows the progress of a file: a bar on a terminal.
struct Shown {
    bar: Option<ProgressBar>,
    quiet: bool,
}

impl Shown {
    fn new(file: &PublicFile, progress: ProgressMode, quiet: bool) -> Self {
        let on_terminal = std::io::stderr().is_terminal();
        let wanted = matches!(progress, ProgressMode::Bar) || progress == ProgressMode::Auto && on_terminal;
        let bar = (wanted && !quiet).then(|| {
            let bar = ProgressBar::with_draw_target(Some(file.size), ProgressDrawTarget::stderr());
            let template = "{msg} [{bar:30}] {bytes} of {total_bytes} · {bytes_per_sec} · {eta} left";
            bar.set_style(ProgressStyle::with_template(template).expect("a valid template").progress_chars("=> "));
            bar.set_message(file.path);
            bar
        });
        Self { bar, quiet }
    }

    fn finish(&self) {
        self.bar.iter().for_each(ProgressBar::finish_and_clear);
    }
}

impl Watch for Shown {
    fn bytes(&mut self, there: u64) {
        self.bar.iter().for_each(|bar| bar.set_position(there));
    }

    fn note(&mut self, what: String) {
        log::warn!("{what}");
        match &self.bar {
            Some(bar) => bar.suspend(|| warn(&what)),
            None if self.quiet => (),
            None => warn(&what),
        }
    }
}
