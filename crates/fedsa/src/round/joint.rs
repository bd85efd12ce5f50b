//! Rounds of several runs on the same data, agent after agent: what an agent reads of its data for one run is near for the next one.
//!
//! That holds for agents in lanes, whose steps read little else. Agents that compute alone keep matrices of their own for each run, which
//! drive the data out: they answer as in single rounds. Runs know nothing of each other, and each has the bits that it would have alone.

use std::ops::Range;
use std::sync::Arc;

use super::reached::Reached;
use super::sweep::{Agents, Counted, Job, Rows, Shares, Worker};
use super::{Advanced, Run, Task, Working};
use crate::cancel::Cancel;
use crate::coordinator::Step;
use crate::parallel;

/// Agents of all runs that a thread takes at a time.
const GRAIN: usize = 4;
/// Every agent alone.
const ONE_BY_ONE: Shares = Shares { grain: 1, lanes: 1 };

/// A run in the middle of a round.
struct Open<'a, 'b> {
    run: &'a mut Run,
    cancel: &'b Cancel,
    step: Result<Step, Advanced>,
}

/// Runs one round of each of these runs, and abandons those whose token is set. Those on one field that ask the same agents go on agent after agent.
pub fn advance_jointly(runs: &mut [(&mut Run, &Cancel)]) -> Vec<Advanced> {
    let mut all = Vec::with_capacity(runs.len());
    for (run, cancel) in runs {
        let step = run.open();
        all.push(Open { run, cancel, step });
    }
    while all.iter().any(|open| open.step == Ok(Step::Ask)) {
        let asking = all.iter_mut().filter(|open| open.step == Ok(Step::Ask));
        let (mut lanes, mut alone): (Vec<_>, Vec<_>) = asking.partition(|open| matches!(open.run.client, Working::Lanes(_)));
        lanes.iter_mut().for_each(|open| open.run.catch_up());
        exchange_in_lanes(&mut lanes);
        alone.iter_mut().for_each(|open| open.run.exchange_with_each(open.cancel));
        let mut asked: Vec<_> = lanes.into_iter().chain(alone).collect();
        parallel::each_mut(&mut asked, |_, open| open.step = open.run.close(open.cancel));
    }
    all.into_iter().map(|open| open.run.end(open.step)).collect()
}

/// An exchange of runs whose agents work in lanes: jointly of those that have the field and the participants of the first one, if these are several.
fn exchange_in_lanes(runs: &mut [&mut Open<'_, '_>]) {
    let reached: Vec<Option<Reached>> = runs.iter_mut().map(|open| open.run.reached()).collect();
    let participants = |i: usize| reached[i].as_ref().map_or(runs[i].run.coordinator.asked(), |reached| reached.parts().0);
    let is_alike = |i: usize| participants(i) == participants(0) && Arc::ptr_eq(&runs[i].run.field, &runs[0].run.field);
    let alike: Vec<bool> = (0..runs.len()).map(is_alike).collect();
    let are_several = alike.iter().filter(|alike| **alike).count() > 1;
    let mut tasks: Vec<Task<'_>> = Vec::with_capacity(runs.len());
    for ((open, reached), is_alike) in runs.iter_mut().zip(&reached).zip(&alike) {
        let one_by_one = (*is_alike && are_several).then_some(ONE_BY_ONE);
        tasks.push(open.run.task(reached.as_ref(), open.cancel, one_by_one));
    }
    let (mut jobs, mut parts, mut places) = (Vec::new(), Vec::new(), Vec::new());
    let mut done = Vec::with_capacity(tasks.len());
    for (i, Task { job, agents, rows, worker, spare, wants_each }) in tasks.into_iter().enumerate() {
        // Fields that compute all steps in one call have their own shares.
        let is_joint = are_several && alike[i] && job.shares == ONE_BY_ONE;
        if is_joint {
            jobs.push(job);
            parts.push((agents, rows));
            places.push(i);
            done.push((Counted::default(), wants_each));
        } else {
            done.push((job.carry_out(agents, rows, worker, spare), wants_each));
        }
    }
    let n = jobs.first().map_or(0, |job: &Job<'_>| job.participants.len());
    if n > 0 {
        let counted = sweep(&jobs, 0..n, parts);
        places.into_iter().zip(counted).for_each(|(i, counted)| done[i].0 = counted);
    }
    drop(jobs);
    for (open, (counted, wants_each)) in runs.iter_mut().zip(done) {
        open.run.hand_in(counted, wants_each);
    }
}

/// What one run has of some participants.
type Part<'a> = (Agents<'a>, Rows<'a>);

/// Processes the participants in `range`, at least one, of all jobs, on several threads where they are many.
fn sweep(jobs: &[Job<'_>], range: Range<usize>, parts: Vec<Part<'_>>) -> Vec<Counted> {
    if range.len() <= GRAIN {
        return one_after_the_other(jobs, range, parts, &mut Worker::new(jobs[0].field));
    }
    let (middle, low, high) = halves(jobs, &range, parts);
    let (low, high) = rayon::join(|| sweep(jobs, range.start..middle, low), || sweep(jobs, middle..range.end, high));
    sums(low, high)
}

/// Processes one participant of all jobs after the other.
fn one_after_the_other(jobs: &[Job<'_>], range: Range<usize>, parts: Vec<Part<'_>>, worker: &mut Worker) -> Vec<Counted> {
    if range.len() == 1 {
        let each = jobs.iter().zip(parts);
        return each.map(|(job, (agents, rows))| job.blocks(range.clone(), agents, rows, worker)).collect();
    }
    let (middle, low, high) = halves(jobs, &range, parts);
    let low = one_after_the_other(jobs, range.start..middle, low, worker);
    sums(low, one_after_the_other(jobs, middle..range.end, high, worker))
}

/// Where the second half of the participants begins, and what all jobs have of both.
fn halves<'a>(jobs: &[Job<'_>], range: &Range<usize>, parts: Vec<Part<'a>>) -> (usize, Vec<Part<'a>>, Vec<Part<'a>>) {
    let middle = range.start + range.len() / 2;
    let split = |(job, (agents, rows)): (&Job<'_>, Part<'a>)| {
        let (low, high) = agents.split(job.participants[middle], job.strides);
        let (low_rows, high_rows) = rows.split(middle - range.start, job.field.dim());
        ((low, low_rows), (high, high_rows))
    };
    let (low, high) = jobs.iter().zip(parts).map(split).unzip();
    (middle, low, high)
}

fn sums(low: Vec<Counted>, high: Vec<Counted>) -> Vec<Counted> {
    low.into_iter().zip(high).map(|(low, high)| (low.0.and(high.0), low.1.and(high.1))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::federation::Federation;
    use crate::kernel::Isa;
    use crate::methods::{MethodSettings, fedhsa::FedHsa, fedlsa::FedLsa, fednl::FedNl, newton::Newton};
    use crate::problem::finite_sum::FiniteSum;
    use crate::problem::{NoFiles, ProblemSettings as _};
    use crate::sampling::{Law, Sampling};

    /// Runs of rules in lanes and of agents that compute alone, some with fewer participants, and one that has ended before.
    #[test]
    fn joint_rounds_have_the_bits_of_single_ones() {
        let problem = FiniteSum { agents: 11, terms: 3, dim: 20, ..FiniteSum::default() };
        let field = problem.field(&NoFiles, Sampling { kind: Law::Markov, ..Sampling::default() }, Isa::best()).unwrap();
        let methods: [Box<dyn MethodSettings>; 5] = [
            Box::new(FedLsa::new(0.01, 5)),
            Box::new(FedHsa::new(0.01, 5)),
            Box::new(FedLsa::new(0.01, 3).with_participants(4)),
            Box::new(Newton::default()),
            Box::new(FedNl::default()),
        ];
        let runs = || -> Vec<Run> {
            let run = |(seed, method): (u64, &dyn MethodSettings)| {
                let federation = Federation::builder(method).seed(seed).start(vec![1.0; 20]).on(&*field).unwrap();
                Run::new(&field, &federation).unwrap()
            };
            (0..10).map(|i| run((i, &*methods[i as usize % methods.len()]))).collect()
        };
        let (mut single, mut joint) = (runs(), runs());
        for all in [&mut single, &mut joint] {
            all[3].advance(&Cancel::never());
        }
        let never = Cancel::never();
        for round in 0..4 {
            single.iter_mut().for_each(|run| run.step());
            let mut all: Vec<_> = joint.iter_mut().map(|run| (run, &never)).collect();
            assert!(advance_jointly(&mut all).into_iter().all(|advanced| advanced == Advanced::Round));
            for (i, (single, joint)) in single.iter().zip(&joint).enumerate() {
                assert!(single.save().unwrap() == joint.save().unwrap(), "run {i}, round {round}");
                assert_eq!(single.ledger(), joint.ledger());
            }
        }
    }

    /// A run that is cancelled is torn, and the others end their round.
    #[test]
    fn a_cancelled_run_does_not_stop_the_others() {
        let field =
            FiniteSum { agents: 3, terms: 2, dim: 4, ..FiniteSum::default() }.field(&NoFiles, Sampling::default(), Isa::best()).unwrap();
        let federation = Federation::builder(&FedLsa::new(0.1, 2)).start(vec![1.0; 4]).on(&*field).unwrap();
        let [mut one, mut other] = [(); 2].map(|()| Run::new(&field, &federation).unwrap());
        let (never, now) = (Cancel::never(), Cancel::default());
        now.cancel();
        assert_eq!(advance_jointly(&mut [(&mut one, &now), (&mut other, &never)]), [Advanced::Cancelled, Advanced::Round]);
        assert_eq!((one.is_torn(), other.is_torn(), other.round()), (true, false, 1));
        assert_eq!(advance_jointly(&mut [(&mut one, &never), (&mut other, &never)]), [Advanced::Cancelled, Advanced::Round]);
    }
}
