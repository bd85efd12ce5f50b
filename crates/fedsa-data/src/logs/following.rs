//! Logs without columns of next states: the next state of a row is the state of the following row of its episode.

use fedsa::note::NoteCode;
use fedsa_problems::logs::log::{Break, Log};
use fedsa_problems::logs::log_form::{LeftOutRows, RowPlace};

/// The reason for omitting rows.
const REASON: &str = "its next state is not logged: the last row of an episode that did not end (without `next_*` the next \
                                 state is that of the following row)";

/// The report on these omitted rows of a file or table; `None` without rows.
pub(super) fn left_out(file: String, rows: &[usize]) -> Option<LeftOutRows> {
    let first = RowPlace::Row(*rows.iter().min()? as u64);
    Some(LeftOutRows { file, reason: REASON.into(), rows: rows.len(), first, code: NoteCode::RowsLeftOut })
}

/// Sets the next state of each row of an ordered log to the state of the following row of its episode. Terminal rows have no following
/// row. Returns the other rows without a next state, ascending, which are to be omitted; the rows before them become the last ones of
/// truncated episodes.
pub(super) fn paired(log: &mut Log) -> Vec<usize> {
    let (n, k) = (log.len(), log.columns.len());
    log.next.clone_from(&log.states);
    let goes_on = |log: &Log, i: usize| {
        let is_same = log.episode.as_ref().is_none_or(|episodes| episodes[i] == episodes[i + 1]);
        let ends = log.done[i] || log.truncated.as_ref().is_some_and(|truncated| truncated[i]);
        is_same && !ends && log.break_before(i + 1) == Break::None
    };
    let mut lost = Vec::new();
    // Whether the row before continues with this one.
    let mut continues = false;
    for i in 0..n {
        let follows = i + 1 < n && goes_on(log, i);
        if follows {
            log.next.copy_within((i + 1) * k..(i + 2) * k, i * k);
        } else if !log.done[i] {
            lost.push(i);
            if let Some(truncated) = log.truncated.as_mut().filter(|_| continues) {
                truncated[i - 1] = true;
            }
        }
        continues = follows;
    }
    lost
}

#[cfg(test)]
mod tests {
    use fedsa_problems::logs::log::EpisodeEnd;

    use super::*;

    /// States 0, 1, .., with ends and truncations at these rows.
    fn line(n: usize, done: &[usize], truncated: Option<&[usize]>, episode: Option<Vec<i64>>) -> Log {
        let marked = |rows: &[usize]| (0..n).map(|i| rows.contains(&i)).collect::<Vec<bool>>();
        Log {
            name: String::new(),
            columns: vec!["s_0".into(), "s_1".into()],
            states: (0..n).flat_map(|i| [i as f64, -(i as f64)]).collect(),
            next: Vec::new(),
            rewards: vec![1.0; n],
            done: marked(done),
            truncated: truncated.map(marked),
            breaks: None,
            episode,
            ratio: None,
            actions: None,
        }
    }

    /// The next states' first columns of the kept rows, and their ends, if the episode does not continue.
    fn kept(log: &mut Log) -> (Vec<usize>, Vec<f64>, Vec<Option<EpisodeEnd>>) {
        let lost = paired(log);
        let rest = log.filtered(|row| lost.binary_search(&row).is_err());
        let next = (0..rest.len()).map(|i| rest.next_state(i)[0]).collect();
        let ends = (1..rest.len()).map(|i| rest.end_before(i)).collect();
        rest.check().unwrap();
        (lost, next, ends)
    }

    #[test]
    fn rows_are_followed_within_their_episode() {
        use EpisodeEnd::{Terminated, Truncated};
        // Ended after row 2, truncated after row 5, a single truncated row 6, and 7 to 8 without an end.
        let (lost, next, ends) = kept(&mut line(9, &[2], Some(&[5, 6]), None));
        assert_eq!((&lost[..], &next[..]), (&[5, 6, 8][..], &[1.0, 2.0, 2.0, 4.0, 5.0, 8.0][..]));
        assert_eq!(ends, [None, None, Some(Terminated), None, Some(Truncated)]);
        // The same by the numbers of episodes.
        let numbers = Some(vec![4, 4, 4, 5, 5, 5, 6, 7, 7]);
        let (lost, next, ends) = kept(&mut line(9, &[2], None, numbers));
        assert_eq!((&lost[..], &next[..]), (&[5, 6, 8][..], &[1.0, 2.0, 2.0, 4.0, 5.0, 8.0][..]));
        assert_eq!(ends, [None, None, Some(Terminated), None, Some(Truncated)]);
    }

    #[test]
    fn rows_that_were_left_out_are_not_bridged() {
        let mut log = line(5, &[4], Some(&[]), None);
        log.breaks = Some((0..5).map(|i| if i == 2 { Break::LeftOut } else { Break::None }).collect());
        let (lost, next, ends) = kept(&mut log);
        assert_eq!((&lost[..], &next[..]), (&[1][..], &[1.0, 3.0, 4.0, 4.0][..]));
        assert!(ends[0].is_some() && ends[1].is_none());
    }
}
