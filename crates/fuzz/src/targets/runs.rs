//! What an interrupted run goes on from.

use fedsa::metrics::Observation;
use fedsa::record::Ledger;
use fedsa_experiment::execute::{framed, unframed};
use fedsa_experiment::results::Recorded;

use super::proportional;
use crate::mutate::Rng;
use crate::{Corpus, Target, Verdict, check_message};

/// Checkpoints.
pub const CHECKPOINT: Target =
    Target { name: "checkpoint", about: "checkpoints of runs and roots", corpora: checkpoints, run: read_checkpoint, memory: proportional };

/// The fields of a checkpoint of a run, in their order: the format says no names.
pub(super) type Saved = (String, u64, u64, u64, Vec<Recorded>, Vec<f64>, Option<Vec<u8>>, f64, Option<End>);

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
    let under_way: Saved = ("problem a sampling b".into(), 3, 9, 3, rows.clone(), vec![0.5; 8], Some(vec![1; 40]), 0.5, None);
    let ended: Saved = (String::new(), 7, 3, 3, rows, Vec::new(), None, 2.0, Some((vec![1.0, -0.5], Some(3), false)));
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
