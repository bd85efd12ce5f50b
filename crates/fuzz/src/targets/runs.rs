//! What an interrupted run goes on from.

use std::sync::LazyLock;

use fedsa::metrics::Observation;
use fedsa::record::{Ledger, OutputRule};
use fedsa_experiment::execute::{framed, unframed};
use fedsa_experiment::results::Recorded;

use super::proportional;
use super::wire::{Setup, setups};
use crate::mutate::Rng;
use crate::{Corpus, Target, Verdict, check_message, refused};

/// Saved runs.
pub const RUN_STATE: Target =
    Target { name: "run-state", about: "the state of a run in a checkpoint", corpora: states, run: restore, memory: proportional };

static SETUPS: LazyLock<Vec<Setup>> = LazyLock::new(|| setups(true));

const OUTPUTS: [OutputRule; 4] = [OutputRule::Last, OutputRule::Average, OutputRule::TailAfter(2), OutputRule::Weighted(0.9)];

fn states() -> Vec<Corpus> {
    let seed = |(i, setup): (usize, &Setup)| {
        let mut run = setup.run(OUTPUTS[i % 4]).expect("a method that lives with its link");
        (0..3).for_each(|_| run.step());
        let mut data = (i as u16).to_le_bytes().to_vec();
        data.extend(run.save().expect("a run between rounds"));
        data
    };
    vec![Corpus::bytes(SETUPS.iter().enumerate().map(seed).collect())]
}

fn restore(data: &[u8]) -> Verdict {
    let Some((head, bytes)) = data.split_first_chunk::<2>() else { return Verdict::PassedOver };
    let i = usize::from(u16::from_le_bytes(*head)) % SETUPS.len();
    let new = || SETUPS[i].run(OUTPUTS[i % 4]).expect("a method that lives with its link");
    let mut run = new();
    let before = run.save();
    if let Err(e) = run.restore(bytes) {
        assert_eq!(run.save(), before, "a state that was refused has changed the run");
        return refused(&e);
    }
    let saved = run.save().expect("a run between rounds");
    let mut twin = new();
    twin.restore(&saved).expect("what was just saved");
    assert_eq!(twin.save().as_ref(), Ok(&saved));
    // It goes on, and is looked at.
    for _ in 0..3 {
        run.step();
        assert_eq!((run.theta().len(), run.output().len()), (SETUPS[i].field.dim(), SETUPS[i].field.dim()));
        run.controls();
    }
    Verdict::Accepted
}

// ---------------------------------------------------------------------------------------------

/// Checkpoints.
pub const CHECKPOINT: Target =
    Target { name: "checkpoint", about: "checkpoints of runs and roots", corpora: checkpoints, run: read_checkpoint, memory: proportional };

/// The fields of a checkpoint of a run, in their order: the format says no names.
pub(super) type Saved = (String, u64, u64, u64, Vec<Recorded>, Option<Vec<u8>>, f64, Option<End>);

/// The fields of how a run ended.
pub(super) type End = (Vec<f64>, Option<u64>, bool);

fn checkpoints() -> Vec<Corpus> {
    let row = |round| Recorded {
        round,
        ledger: Ledger { exchanges: round, samples: 1 << 40, ..Ledger::default() },
        seen: Observation { mse: Some(0.5), residual: Some(1e-3), ..Observation::default() },
        seconds: None,
    };
    let rows: Vec<Recorded> = (0..4).map(row).collect();
    let under_way: Saved = ("problem a sampling b".into(), 3, 9, 3, rows.clone(), Some(vec![1; 40]), 0.5, None);
    let ended: Saved = (String::new(), 7, 3, 3, rows, None, 2.0, Some((vec![1.0, -0.5], Some(3), false)));
    vec![Corpus::bytes([under_way, ended].iter().map(framed).collect()).sealed(with_checksum)]
}

/// The checksum, put right in half of the cases.
pub(super) fn with_checksum(rng: &mut Rng, mut file: Vec<u8>) -> Vec<u8> {
    if let (true, Some((head, body))) = (rng.one_in(2), file.split_at_mut_checked(12)) {
        head[8..].copy_from_slice(&crc32fast::hash(body).to_le_bytes());
    }
    file
}

fn read_checkpoint(data: &[u8]) -> Verdict {
    match unframed::<Saved>(data) {
        Ok(saved) => {
            assert!(unframed::<Saved>(&framed(&saved)).is_ok());
            Verdict::Accepted
        }
        Err(what) => {
            check_message(&what, "its caller knows what would be accepted");
            Verdict::Refused
        }
    }
}
