//! The states of runs in checkpoints, and of an earlier run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fedsa::error::{Error, ErrorCode, Result};
use fedsa::record::OutputRule;
use serde::{Deserialize, Serialize};

use super::framed::{CHECKPOINT, INTACT, read_framed};
use crate::folder;
use crate::plan::{Plan, PlannedCell};
use crate::results::Recorded;

/// The state of one seed of a cell in a checkpoint.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Saved {
    /// Identifies the run, independently of its number of rounds.
    pub identity: String,
    pub seed: u64,
    /// The requested number of rounds.
    pub rounds: u64,
    /// The number of completed rounds.
    pub round: u64,
    pub rows: Vec<Recorded>,
    /// The outputs at these rows, d numbers each, if the caller has metrics of its own.
    pub iterates: Vec<f64>,
    /// The run's state after these rounds; `None` if the run ended and its state is too large to store.
    #[serde(with = "serde_bytes")]
    pub state: Option<Vec<u8>>,
    /// The wall time of these rounds, in seconds.
    pub seconds: f64,
    /// How the run ended, if it has.
    pub(super) end: Option<End>,
}

/// [`Saved`] by reference: a state may fill much of the memory.
#[derive(Serialize)]
pub(super) struct Saving<'a> {
    pub identity: &'a str,
    pub seed: u64,
    pub rounds: u64,
    pub round: u64,
    pub rows: &'a [Recorded],
    pub iterates: &'a [f64],
    pub state: Option<&'a serde_bytes::Bytes>,
    pub seconds: f64,
    pub end: Option<&'a End>,
}

/// How one seed of a cell ended.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct End {
    pub theta: Vec<f64>,
    /// The number of rounds after which divergence was found, if it was.
    pub diverged: Option<u64>,
    pub stopped: bool,
}

/// The checkpoints of an earlier run of an experiment.
#[derive(Debug, Default)]
pub struct Earlier {
    folder: Option<PathBuf>,
    /// The states of ended runs, by cell and seed, shared because they are large.
    pub(super) ended: BTreeMap<(usize, u64), Arc<Saved>>,
}

/// The file with the states of ended runs.
pub const ENDED: &str = "ended.ckpt";

/// The name of a full file with such states; one file for all could be too large.
pub(super) fn full_name(index: usize) -> String {
    format!("{}{index}{}", folder::ENDED_CHECKPOINT, folder::CHECKPOINT)
}

/// The largest size of a file of states, and of the stored states of a finished run, in bytes.
pub(super) const MAX_STATES: usize = 64 << 20;

pub(super) fn checkpoint_name(cell: usize, seed: u64) -> String {
    format!("{}{cell}-{seed}{}", folder::RUN_CHECKPOINT, folder::CHECKPOINT)
}

impl Earlier {
    /// The checkpoints in a folder.
    ///
    /// # Errors
    /// When the states of a finished run are damaged.
    pub fn of(path: &Path) -> Result<Self> {
        let mut ended: BTreeMap<(usize, u64), Arc<Saved>> = BTreeMap::new();
        let full = (0..).map(|index| folder::own_path(path, &full_name(index))).take_while(|file| file.exists());
        for file in full.chain(Some(folder::own_path(path, ENDED)).filter(|file| file.exists())) {
            for (cell, saved) in read_framed::<Vec<(usize, Saved)>>(&file)? {
                let key = (cell, saved.seed);
                if ended.get(&key).is_none_or(|before| before.round <= saved.round) {
                    ended.insert(key, Arc::new(saved));
                }
            }
        }
        Ok(Self { folder: Some(path.to_path_buf()), ended })
    }

    /// The states of runs that ended elsewhere, by cell and seed.
    pub(crate) fn of_ended(ended: BTreeMap<(usize, u64), Arc<Saved>>) -> Self {
        Self { folder: None, ended }
    }

    /// Whether all runs of a plan have ended.
    pub(crate) fn has_all(&self, plan: &Plan) -> bool {
        let has = |cell: usize, seed: &u64| self.ended.get(&(cell, *seed)).is_some_and(|saved| saved.is_over(&plan.cells[cell]));
        (0..plan.cells.len()).all(|cell| plan.cells[cell].seeds().iter().all(|seed| has(cell, seed)))
    }

    /// The states of ended runs, without those that are too large to store.
    pub(crate) fn into_ended(self) -> Vec<Saved> {
        let is_large = self.ended.values().map(|saved| saved.size()).sum::<usize>() > MAX_STATES;
        let all = self.ended.into_values().map(Arc::unwrap_or_clone);
        all.map(|saved| if is_large { Saved { state: None, ..saved } } else { saved }).collect()
    }

    /// Checks that the runs of a plan can continue from these checkpoints.
    ///
    /// # Errors
    /// When a checkpoint is damaged or belongs to another run, or when more rounds are requested although the results of the first rounds
    /// depend on the number of rounds.
    pub fn check(&self, plan: &Plan) -> Result<()> {
        for (cell, planned) in plan.cells.iter().enumerate() {
            for seed in planned.seeds() {
                if let Some(saved) = self.checkpoint(cell, planned, seed, plan.field(cell).dim())? {
                    saved.may_go_on(planned)?;
                }
            }
        }
        Ok(())
    }

    /// The checkpoint of a seed of a run with vectors of `d` numbers, if there is one.
    pub(super) fn checkpoint(&self, cell: usize, planned: &PlannedCell, seed: u64, d: usize) -> Result<Option<Arc<Saved>>> {
        let path = folder::own_path(self.folder.as_deref().unwrap_or(Path::new("")), &checkpoint_name(cell, seed));
        let own: Option<Saved> = (self.folder.is_some() && path.exists()).then(|| read_framed(&path)).transpose()?;
        // An ended run may have continued with more rounds; its own file is then newer.
        let saved = match (own, self.ended.get(&(cell, seed))) {
            (Some(own), Some(ended)) if own.round <= ended.round => Arc::clone(ended),
            (Some(own), _) => Arc::new(own),
            (None, Some(ended)) => Arc::clone(ended),
            (None, None) => return Ok(None),
        };
        if saved.identity != planned.identity || saved.seed != seed {
            let from = if path.exists() { path } else { path.with_file_name(ENDED) };
            let what = format!("{}: the checkpoint belongs to another run, not to {}, seed {seed}", from.display(), planned.method.label);
            let help = "the same experiment as before, with unchanged input files";
            return Err(Error::format(CHECKPOINT, what, help).coded(ErrorCode::OtherRun));
        }
        if !saved.is_sound(planned.run.rounds, d) {
            return Err(Error::format(CHECKPOINT, format!("{}: its parts contradict each other", path.display()), INTACT));
        }
        Ok(Some(saved))
    }
}

impl Saved {
    /// Checks that a new run of `planned.run.rounds` rounds would pass through this state.
    fn may_go_on(&self, planned: &PlannedCell) -> Result<()> {
        let (had, wanted) = (self.rounds, planned.run.rounds);
        if had == wanted {
            return Ok(());
        }
        let label = &planned.method.label;
        let refused =
            |what: String, help: &str| Err(Error::format(CHECKPOINT, format!("{label}: {what}"), help).coded(ErrorCode::OtherRun));
        if let OutputRule::TailAfter(_) = planned.output {
            let what = format!("its output averages the last share of the rounds, which are other rounds of {wanted} than of {had}");
            return refused(what, "output = \"last\" or \"average\", or a run from the start in another folder");
        }
        let recorded = |round: &u64| self.rows.binary_search_by_key(round, |row| row.round).is_ok();
        let until = self.rows.last().map_or(0, |row| row.round);
        match planned.grid.iter().filter(|round| **round <= until).find(|round| !recorded(round)) {
            None => Ok(()),
            Some(missing) => {
                let what = format!("a run of {wanted} rounds records round {missing}, but the run of {had} rounds did not");
                refused(what, "recorded rounds that do not depend on their number: record = { every = K } or a list, from the start")
            }
        }
    }

    /// Whether the parts of the state are consistent with each other, with `rounds` rounds and with vectors of `d` numbers. The checksum
    /// detects accidental damage only.
    fn is_sound(&self, rounds: u64, d: usize) -> bool {
        let last = self.rows.last().map(|row| row.round);
        self.round <= self.rounds.min(rounds)
            && self.seconds.is_finite()
            && self.seconds >= 0.0
            && self.rows.first().is_some_and(|row| row.round == 0)
            && self.rows.is_sorted_by(|a, b| a.round < b.round)
            && [0, self.rows.len() * d].contains(&self.iterates.len())
            && self.end.as_ref().map_or(last <= Some(self.round), |end| last == Some(self.round) && end.theta.len() == d)
    }

    /// The approximate size in bytes.
    pub fn size(&self) -> usize {
        let theta = self.end.as_ref().map_or(0, |end| end.theta.len() * size_of::<f64>());
        self.state.as_ref().map_or(0, Vec::len) + self.rows.len() * size_of::<Recorded>() + self.iterates.len() * size_of::<f64>() + theta
    }

    /// Whether the run is over. It continues if it completed its rounds and more are requested now. A shorter run also checks its target
    /// after its last round, which a longer run may not record.
    pub fn is_over(&self, planned: &PlannedCell) -> bool {
        let is_recorded = planned.grid.binary_search(&self.round).is_ok();
        let is_at_end = self.round >= planned.run.rounds;
        self.end.as_ref().is_some_and(|end| (end.stopped && is_recorded) || end.diverged.is_some() || is_at_end)
    }
}
