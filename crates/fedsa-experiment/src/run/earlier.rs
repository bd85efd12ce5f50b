//! An earlier run in the same folder: whether it can continue, and its results.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use fedsa::error::{Error, ErrorCode};
use fedsa_data::atomic;
use toml::{Table, Value};

use super::CONFIG;
use crate::config::{self, RunSpec};
use crate::execute::{read_framed, write_framed};
use crate::finished;
use crate::folder::{self, FolderPurpose, Found, Holds, RunFolder};
use crate::plan::{self, Plan, canonical};

/// The key of errors about a run that cannot continue.
pub const RESUME: &str = "resume";

/// The file with `theta*` of the problems.
const ROOTS: &str = "roots.ckpt";

/// Checks that a folder contains a run.
pub(super) fn is_run(found: &Found, out: &Path) -> Result<(), Error> {
    if matches!(found.holds, Holds::Unfinished | Holds::Finished) {
        return Ok(());
    }
    let what = format!("{} holds no interrupted run", out.display());
    Err(Error::new(RESUME, what, "the folder of an interrupted run, or no `resume` to begin one"))
}

/// Checks that a folder contains a run of this experiment, possibly with fewer rounds or seeds.
pub(super) fn may_resume(found: &Found, out: &Path, purpose: &FolderPurpose, now: &Table, config: &str) -> Result<(), Error> {
    is_run(found, out)?;
    let holds = found.text();
    if let Some(other) = found.work().filter(|other| *other != purpose.work) {
        let work = purpose.work;
        let help = format!("the folder of a {work}, or the same call as for that {other}");
        return Err(Error::new(RESUME, format!("{} holds {holds}, not a {work}", out.display()), help).coded(ErrorCode::OtherRun));
    }
    refuse_others(found, out, purpose)?;
    let help = "the same file and options as for that run, which its config.toml shows; only more rounds and more seeds are allowed";
    if atomic::at(&out.join(CONFIG)).is_ok_and(|there| there.is_none()) {
        match found.purpose() {
            Some(before) if before.identity == purpose.identity => return Ok(()),
            Some(_) => return Err(Error::new(RESUME, format!("{} holds {holds} of other settings", out.display()), help)),
            None => {}
        }
    }
    let Some(ran) = found.own(CONFIG).and_then(|bytes| String::from_utf8(bytes).ok()) else {
        let what = format!("{} holds {holds} whose config.toml is gone", out.display());
        return Err(Error::new(RESUME, what, "the folder as fedsa left it, or `overwrite` to run everything again"));
    };
    let before = ran.parse::<Table>().ok();
    if ran == config || before.as_ref().is_some_and(|before| goes_on(before, now)) {
        return Ok(());
    }
    let differs = before.and_then(|before| finished::differences(&before, now).into_iter().next());
    let shown = |value: Option<String>| value.unwrap_or_else(|| "not set".into());
    let differs = differs.map_or(String::new(), |d| format!(": {} was {} then, and is {} now", d.key, shown(d.a), shown(d.b)));
    Err(Error::new(RESUME, format!("{} holds {holds} of other settings{differs}", out.display()), help))
}

/// Refuses a run on other data, or with other requests outside of the experiment.
fn refuse_others(found: &Found, out: &Path, purpose: &FolderPurpose) -> Result<(), Error> {
    let Some(before) = found.purpose() else { return Ok(()) };
    let refused = |what: String, help: &str| {
        let what = format!("{} holds {} {what}", out.display(), found.text());
        Err(Error::new(RESUME, what, help).coded(ErrorCode::OtherRun))
    };
    match [(&before.data, &purpose.data), (&before.further, &purpose.further)] {
        [(Some(a), Some(b)), _] if a != b => refused(
            "of other data, whose contents have changed since".into(),
            "the data as they were; or `overwrite` to run everything again, or another folder",
        ),
        [_, (Some(a), Some(b))] if a != b => refused(
            format!("with {a}, and now it is to be with {b}"),
            "the same settings as for that run; or `overwrite` to run everything again, or another folder",
        ),
        _ => Ok(()),
    }
}

/// A configuration without the parts that may change when a run continues: rounds, seeds, and the treatment of unmeasured checks.
fn lasting(config: &Table) -> Table {
    let mut config = config.clone();
    if let Some(run) = config.get_mut("run").and_then(Value::as_table_mut) {
        run.remove("rounds");
        run.remove("seeds");
    }
    let checks = config.get_mut("check").and_then(Value::as_array_mut);
    checks.into_iter().flatten().filter_map(Value::as_table_mut).for_each(|check| drop(check.remove("unmeasured")));
    config
}

/// Identifies a configuration without the parts that may change when a run continues.
pub(super) fn identity(config: &Table) -> String {
    plan::identity(&[&canonical(&Value::Table(lasting(config)))])
}

/// Whether the second configuration differs from the first only by more rounds or seeds.
fn goes_on(before: &Table, now: &Table) -> bool {
    let run = |table: &Table| {
        let spec: RunSpec = config::read(table.get("run")?.clone()).ok()?;
        Some((spec.rounds, spec.seeds.list()))
    };
    let (Some((rounds, seeds)), Some((more_rounds, more_seeds))) = (run(before), run(now)) else { return false };
    let (before, now) = (lasting(before), lasting(now));
    let more_seeds: HashSet<u64> = more_seeds.into_iter().collect();
    before == now && rounds <= more_rounds && seeds.iter().all(|seed| more_seeds.contains(seed))
}

/// Saves `theta*` of every problem; another machine may compute other last bits.
pub(crate) fn write_roots(folder: &RunFolder, plan: &Plan) -> Result<(), Error> {
    let roots: HashMap<&str, &[f64]> = plan.fields.iter().filter_map(|f| Some((f.fingerprint.as_str(), f.field.root()?))).collect();
    write_framed(folder, ROOTS, &roots)
}

/// `theta*` of the problems of the run in a folder by fingerprint, d components each; none if it was killed before it saved them.
///
/// # Errors
/// When the file is damaged, or of another version.
pub fn roots(out: &Path) -> Result<HashMap<String, Vec<f64>>, Error> {
    let path = folder::own_path(out, ROOTS);
    if path.exists() { read_framed(&path) } else { Ok(HashMap::new()) }
}

#[cfg(test)]
mod tests {
    use super::goes_on;

    #[test]
    fn a_run_goes_on_with_more_rounds_and_seeds_however_many() {
        let run = |seeds: &str, rounds: u64| -> toml::Table {
            format!("id = \"a\"\n[run]\nrounds = {rounds}\nseeds = {seeds}\n").parse().unwrap()
        };
        let mut other = run("2", 5);
        other.insert("id".into(), "b".into());
        assert!(goes_on(&run("300000", 5), &run("600000", 9)));
        assert!(goes_on(&run("[7, 3]", 5), &run("8", 5)));
        assert!(!goes_on(&run("[7, 3]", 5), &run("7", 5)));
        assert!(!goes_on(&run("2", 5), &run("2", 4)));
        assert!(!goes_on(&run("2", 5), &other));
    }
}
