//! The folder of a finished run, whose files were changed since: what is read of it, and what goes
//! on from it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fedsa::cancel::Cancel;
use fedsa::kernel::Isa;
use fedsa_experiment::RunObserver;
use fedsa_experiment::config::{Document, Experiment};
use fedsa_experiment::execute::{ENDED, Earlier, framed, unframed};
use fedsa_experiment::finished::FinishedRun;
use fedsa_experiment::folder::{self, RunFolder};
use fedsa_experiment::{Executed, Plan, Predictor, RunControl, checks, execute, output, picture};
use tempfile::TempDir;

use super::runs::{Saved, with_checksum};
use crate::{Corpus, Target, Verdict, refused};

/// Folders of runs.
pub const RUN_FOLDER: Target = Target {
    name: "run-folder",
    about: "the files of a finished run, and going on from them",
    corpora,
    run,
    // A trace may unpack to what any Parquet file may.
    memory: |len| (130 << 20) + 2200 * len,
};

const EXPERIMENT: &str = r#"id = "small"

[problem]
kind = "switching"
agents = 3
dim = 2
mixing_time = 2.0
spread = 1.0

[sampling]
kind = "markov"

[[method]]
kind = "scafflsa"
step_size = 0.05
local_steps = 2
output = "average"
uplink = { codec = { kind = "quantised", bits = 4 }, error_feedback = true, media = [{ kind = "erasure", success = 0.6 }] }

[[method]]
kind = "dasa"
step_size = 0.05
uplink.media = [{ kind = "late", law = "uniform", min = 0, max = 2 }]

[[method]]
kind = "delayed-sa"
step_size = 0.05
uplink.media = [{ kind = "delay", law = "constant", rounds = 2 }]

[run]
rounds = 6
seeds = 2
record = { every = 1 }
stop = { relative_residual = 1e-9 }

[[check]]
kind = "reaches"
method = "dasa"
max = 1e9
"#;

/// Nobody looks.
struct Silent;

impl RunObserver for Silent {}

/// A finished run, and the same with more rounds. Their one check can be measured.
struct Setup {
    /// Where it lies; gone with the thread.
    _dir: TempDir,
    folder: PathBuf,
    /// Where checkpoints of those that go on from it would go.
    scratch: RunFolder,
    longer: Arc<Plan>,
    same: Arc<Plan>,
    /// The files that are changed, and what they hold.
    files: Vec<(PathBuf, Vec<u8>)>,
}

fn plan(rounds: u64) -> Arc<Plan> {
    let mut document = Document::parse("small.toml", EXPERIMENT).expect("a valid file");
    fedsa_cli::commands::set(&mut document, &format!("run.rounds={rounds}")).expect("a valid key");
    let experiment = Experiment::read(document).expect("a valid experiment");
    Arc::new(Plan::new(experiment, Path::new(""), Isa::best(), &HashMap::new()).expect("a valid experiment"))
}

fn runs(plan: &Plan, folder: &RunFolder, earlier: &Earlier) -> fedsa::error::Result<Executed> {
    let cancel = Cancel::new();
    // No input takes so long that a checkpoint would be written.
    let every = Duration::from_secs(1_000_000);
    execute(plan, &RunControl { cancel: &cancel, folder: Some(folder), every, earlier, observer: &Silent, in_turn: false })
}

impl Setup {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a folder for temporary files");
        let (folder, same) = (dir.path().join("run"), plan(6));
        let claim = |path: &Path| folder::look(path).expect("a new folder").claim(false).expect("a new folder");
        let written = claim(&folder);
        let outcome = runs(&same, &written, &Earlier::default()).expect("nothing to go on from");
        let Executed::Done(results) = outcome else { panic!("nobody interrupts") };
        let predictor = Predictor::new(&same);
        let verdicts = checks::measure(&same, &results, &predictor, &[None]);
        let picture = picture::draw(&same, &results, &predictor, &verdicts, false);
        let summary = output::summary(&same, &results, &predictor, &verdicts, 1.0);
        let mut files = output::files(&same, &results, &summary, &picture, EXPERIMENT).expect("results that can be written");
        files.push(("config.toml".into(), format!("{}\n{EXPERIMENT}", folder::CONFIG_HEAD).into_bytes()));
        written.write(&files).expect("a folder that can be written to");
        written.tidy();
        written.release();
        let names = ["summary.json", "config.toml", "trace.parquet"].map(|name| folder.join(name));
        let own = ["marker.json", ENDED].map(|name| folder::own_path(&folder, name));
        let read = |path: PathBuf| (path.clone(), fs::read(path).expect("a file that was just written"));
        let files = names.into_iter().chain(own).map(read).collect();
        let scratch = claim(&dir.path().join("scratch"));
        Self { _dir: dir, folder, scratch, longer: plan(9), same, files }
    }

    /// Goes on from what there is, with as many rounds or more.
    fn go_on(&self) -> fedsa::error::Result<()> {
        let earlier = Earlier::of(&self.folder)?;
        for plan in [&self.same, &self.longer] {
            earlier.check(plan)?;
            let Executed::Done(results) = runs(plan, &self.scratch, &earlier)? else { panic!("nobody interrupts") };
            self.look_at(plan, &results);
        }
        Ok(())
    }

    /// Measures what came of it.
    fn look_at(&self, plan: &Arc<Plan>, results: &fedsa_experiment::Results) {
        let predictor = Predictor::new(plan);
        let verdicts = checks::measure(plan, results, &predictor, &[None]);
        output::summary(plan, results, &predictor, &verdicts, 1.0);
    }
}

thread_local! {
    static SETUP: RefCell<Option<Setup>> = const { RefCell::new(None) };
}

fn with_setup<T>(work: impl FnOnce(&Setup) -> T) -> T {
    SETUP.with_borrow_mut(|setup| work(setup.get_or_insert_with(Setup::new)))
}

/// The number of the file with the states of the runs.
const STATES: usize = 4;

fn corpora() -> Vec<Corpus> {
    let files: Vec<Vec<u8>> = with_setup(|setup| setup.files.iter().map(|(_, data)| data.clone()).collect());
    let of = |file: usize, data: &[u8]| [&[file as u8], data].concat();
    let words = ["format", "results", "checks", "outcome", "status", "ledger", "null", "[]", "{}", "true", "1e999", "run", "outputs"];
    let texts: Vec<Vec<u8>> = [0, 1, 3].map(|file| of(file, &files[file])).into();
    // The runs as they ended, and as if they had been interrupted.
    let ended: Vec<(usize, Saved)> = unframed(&files[STATES]).expect("states that were just written");
    let interrupted: Vec<(usize, Saved)> = ended
        .iter()
        .map(|(cell, (name, seed, _, round, rows, iterates, state, seconds, _))| {
            (*cell, (name.clone(), *seed, 6, *round, rows.clone(), iterates.clone(), state.clone(), *seconds, None))
        })
        .collect();
    let states = [framed(&ended), framed(&interrupted)].map(|data| of(STATES, &data)).into();
    let sealed = Corpus::bytes(states).sealed(|rng, mut data| {
        let file = data.split_off(data.len().min(1));
        data.extend(with_checksum(rng, file));
        data
    });
    vec![Corpus::text(texts, &words), Corpus::bytes(vec![of(2, &files[2])]), sealed]
}

/// Puts a file back, whatever happens in between.
struct Restored<'a> {
    path: &'a Path,
    original: &'a [u8],
}

impl Drop for Restored<'_> {
    fn drop(&mut self) {
        // Where it cannot be put back, the next valid input is not accepted.
        let _ = fs::write(self.path, self.original);
    }
}

fn run(data: &[u8]) -> Verdict {
    let Some((file, data)) = data.split_first() else { return Verdict::PassedOver };
    with_setup(|setup| {
        let file = usize::from(*file) % setup.files.len();
        let (path, original) = &setup.files[file];
        let _restored = Restored { path, original };
        fs::write(path, data).expect("a folder that can be written to");
        let read = match file {
            STATES => setup.go_on(),
            _ => FinishedRun::read(&setup.folder).and_then(|finished| {
                finished.settings()?;
                finished.results(&setup.same).map(|results| setup.look_at(&setup.same, &results))
            }),
        };
        match read {
            Ok(()) => Verdict::Accepted,
            Err(e) => refused(&e),
        }
    })
}
