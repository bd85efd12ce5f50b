//! Settings and results may be kept anywhere and shared between threads.

use fedsa_experiment::apply::{Applied, PredictSettings};
use fedsa_experiment::check::Checked;
use fedsa_experiment::checks::Verdict;
use fedsa_experiment::choose::{Choice, Considered, Demand};
use fedsa_experiment::compare::Comparison;
use fedsa_experiment::config::{Document, Experiment};
use fedsa_experiment::evaluate::{EvaluateSettings, Evaluated, Evaluation};
use fedsa_experiment::execute::{Earlier, Executed, Interrupted};
use fedsa_experiment::finished::FinishedRun;
use fedsa_experiment::fit::{Fit, FitSettings, Fitted};
use fedsa_experiment::folder::RunFolder;
use fedsa_experiment::plan::{BuiltProblem, PlannedCell, PlannedField};
use fedsa_experiment::redraw::Redrawn;
use fedsa_experiment::results::{Results, SeedResult};
use fedsa_experiment::run::{Ran, RunOutcome, RunSettings};
use fedsa_experiment::summary::Summary;
use fedsa_experiment::tables::SummaryTable;
use fedsa_experiment::theory::{self, Theory, TheoryReport};
use fedsa_experiment::tune::{Answer, TuneOutcome, TuneSettings, Tuned};
use fedsa_experiment::{Extensions, Kinds, Plan, Predictor, Unobserved};

fn is_owned<T: Send + Sync + 'static>() {}

#[test]
fn settings_are_owned_and_shared() {
    is_owned::<Document>();
    is_owned::<Experiment>();
    is_owned::<Kinds>();
    is_owned::<Extensions>();
    is_owned::<RunSettings>();
    is_owned::<FitSettings>();
    is_owned::<EvaluateSettings>();
    is_owned::<PredictSettings>();
    is_owned::<theory::TheorySettings>();
    is_owned::<TuneSettings>();
    is_owned::<Demand>();
    is_owned::<Unobserved>();
}

#[test]
fn work_and_results_are_owned_and_shared() {
    is_owned::<Plan>();
    is_owned::<PlannedCell>();
    is_owned::<PlannedField>();
    is_owned::<BuiltProblem>();
    is_owned::<Predictor>();
    is_owned::<Fit>();
    is_owned::<Evaluation>();
    is_owned::<Executed>();
    is_owned::<Interrupted>();
    is_owned::<Earlier>();
    is_owned::<Results>();
    is_owned::<SeedResult>();
    is_owned::<RunOutcome>();
    is_owned::<Ran>();
    is_owned::<Fitted>();
    is_owned::<Evaluated>();
    is_owned::<Checked>();
    is_owned::<Verdict>();
    is_owned::<Applied>();
    is_owned::<Redrawn>();
    is_owned::<Comparison>();
    is_owned::<Choice>();
    is_owned::<Considered>();
    is_owned::<Theory>();
    is_owned::<TheoryReport>();
    is_owned::<TuneOutcome>();
    is_owned::<Answer>();
    is_owned::<Tuned>();
    is_owned::<Summary>();
    is_owned::<SummaryTable>();
    is_owned::<RunFolder>();
    is_owned::<FinishedRun>();
}
