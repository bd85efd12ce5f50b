//! A task gives the same numbers, outcome and notes in one process and in a federation, whose settings the task writes.

use std::path::Path;

use fedsa::cancel::Cancel;
use fedsa::enrolment::Enrolled;
use fedsa::metrics::Observation;
use fedsa::node::{ServerNode, Todo};
use fedsa::note::{Note, NoteCode};
use fedsa::problem::calls::Calls;
use fedsa::record::Ledger;
use fedsa_data::find::Places;
use fedsa_experiment::config::Document;
use fedsa_experiment::deployment::limits::LIMITS;
use fedsa_experiment::deployment::{DeployedRun, Deployment, LocalAgent, is_without_data, of_evaluation, of_fit};
use fedsa_experiment::evaluate::{EvaluateSettings, Evaluation};
use fedsa_experiment::fit::{Fit, FitSettings, Fitted, Model};
use fedsa_experiment::resolve;
use fedsa_experiment::results::Recorded;
use fedsa_experiment::run::{Ran, RunOutcome};
use fedsa_experiment::{RunSettings, Unobserved};
use fedsa_problems::logs::replay::Scaling;
use fedsa_problems::rows::preparation::AgentWeights;
use fedsa_problems::rows::preparation::partition::Partition;

use crate::deployment::{agent_of, file, made};

/// Tables of five sites of very different sizes, one with a single row far from the others.
fn sites(folder: &Path) -> Vec<String> {
    let table = |site: usize, rows: usize| {
        let row = |i: usize| {
            let (a, b) = ((i as f64 * 0.7 + site as f64).sin(), (i as f64 * 1.3).cos());
            format!("{a},{b},{}\n", 3.0 + a - 2.0 * b + 0.1 * (i as f64 * 2.9).sin() - if rows == 1 { 20.0 } else { 0.0 })
        };
        format!("a,b,y\n{}", (0..rows).map(row).collect::<String>())
    };
    [40, 60, 25, 80, 1].iter().enumerate().map(|(site, rows)| file(folder, &format!("site_{site}.csv"), &table(site, *rows))).collect()
}

pub fn fit_of(files: &[String]) -> FitSettings {
    let (model, partition) = (Model::LeastSquares, Some(Partition::Files));
    FitSettings { model, target: Some("y".into()), partition, ..FitSettings::new(files) }
}

/// The same with this method.
pub fn by(method: &str, settings: FitSettings) -> FitSettings {
    FitSettings { method: Some(method.into()), ..settings }
}

pub fn fitted(settings: &FitSettings) -> Fitted {
    let fit = Fit::new(settings, &Cancel::never()).unwrap();
    let RunOutcome::Done(fitted) = fit.run(RunSettings::default(), &Unobserved, &Cancel::never()).unwrap() else { unreachable!() };
    *fitted
}

/// A federation after its last round.
pub struct Led {
    pub deployment: Deployment,
    pub agents: Vec<LocalAgent>,
    pub enrolled: Enrolled,
    server: ServerNode,
    rows: Vec<Recorded>,
}

impl Led {
    /// Its output.
    pub fn theta(&self) -> &[f64] {
        self.server.coordinator().output()
    }

    /// The results without sums after the last round.
    pub fn results(&self) -> Ran {
        let coordinator = self.server.coordinator();
        let ended = DeployedRun::new(self.rows.clone(), coordinator.output().to_vec(), self.server.diverged(), 1.0);
        self.deployment.results(&self.enrolled.federation, ended.with_members(&self.enrolled.membership)).unwrap()
    }
}

/// The results of a federation of agents with a file each.
fn federation(text: &str, files: &[String]) -> Ran {
    led(text, files).results()
}

/// A federation of agents with a file each. The first answers of a round show what the residual was at the end of the one before: there is
/// a further question after the last round.
pub fn led(text: &str, files: &[String]) -> Led {
    let deployment = made(text);
    let start = |file: &String| agent_of(&deployment, std::slice::from_ref(file));
    let mut agents: Vec<LocalAgent> = files.iter().map(|file| start(file).unwrap()).collect();
    let mut enrolment = deployment.enrolment(files.len()..=files.len()).unwrap();
    let invitation = enrolment.invite(files.len());
    for (c, agent) in agents.iter_mut().enumerate() {
        let application = agent.handle(&invitation).unwrap().unwrap();
        deployment.take(&mut enrolment, &format!("site_{c}"), &application).unwrap();
    }
    let enrolled = deployment.found(&enrolment).unwrap();
    for told in &enrolled.admissions {
        agents[told.agent].handle(&told.bytes).unwrap();
    }
    let mut server = ServerNode::new(&enrolled.federation).unwrap();
    let row = |server: &ServerNode| {
        let (round, ledger) = (server.coordinator().rounds(), server.coordinator().ledger());
        Recorded { round, ledger, seen: Observation::default(), seconds: None }
    };
    let mut rows = vec![row(&server)];
    let is_last = |server: &ServerNode| server.coordinator().rounds() == deployment.until().rounds;
    let has_reached = |rows: &[Recorded]| deployment.has_reached(&rows.iter().map(|row| row.seen.residual).collect::<Vec<_>>());
    'rounds: while deployment.has_target() || !is_last(&server) {
        let mut todo = server.open();
        let mut is_unknown = true;
        while let Todo::Ask { to, bytes } = &todo {
            for (c, bytes) in to.iter().zip(bytes) {
                let answer = agents[*c].handle(bytes).unwrap().unwrap();
                server.take(*c, &answer).unwrap();
            }
            if is_unknown && server.shows_residual() {
                is_unknown = false;
                let last = &mut rows.last_mut().unwrap().seen.residual;
                *last = last.or(server.residual());
                if has_reached(&rows) || is_last(&server) {
                    break 'rounds;
                }
            }
            todo = server.close();
        }
        if let Todo::Tell { to, bytes } = &todo {
            to.iter().zip(bytes).for_each(|(c, bytes)| assert!(agents[*c].handle(bytes).unwrap().is_none()));
        }
        rows.push(row(&server));
        // Known where the method has asked about a trial point and accepted it.
        rows.last_mut().unwrap().seen.residual = server.residual();
        if has_reached(&rows) {
            break;
        }
    }
    Led { deployment, agents, enrolled, server, rows }
}

/// That both have the same weights to the last bit, the same outcome, and the same rounds with the same counts.
pub fn assert_same(federation: &Ran, local: &Ran) {
    let (one, other) = (&federation.results.cells[0][0], &local.results.cells[0][0]);
    assert_eq!(one.theta, other.theta);
    let outcome = |ran: &Ran| ran.results.cells[0][0].outcome(&ran.plan.cells[0].run.stop);
    assert_eq!(outcome(federation).name(), outcome(local).name());
    // What agents compute, a server does not see.
    let sent = |row: &Recorded| (row.round, Ledger { calls: Calls::default(), ..row.ledger });
    let counts = |ran: &Ran| ran.results.cells[0][0].rows.iter().map(sent).collect::<Vec<_>>();
    assert_eq!(counts(federation), counts(local));
    let residuals = |ran: &Ran| ran.results.cells[0][0].rows.iter().map(|row| row.seen.residual.unwrap()).collect::<Vec<_>>();
    for (a, b) in residuals(federation).into_iter().zip(residuals(local)) {
        assert!((a - b).abs() <= 1e-12 * residuals(local)[0], "{a:e} {b:e}");
    }
}

fn weight_notes(notes: &[Note]) -> Vec<&Note> {
    notes.iter().filter(|note| note.code == NoteCode::WeightFarFromRows).collect()
}

/// A site with one row counted as much as one with eighty, and the intercept was another one.
#[test]
fn a_federation_of_five_sites_fits_the_model_of_one_process() {
    let folder = tempfile::tempdir().unwrap();
    let files = sites(folder.path());
    for method in [None, Some("newton"), Some("lbfgs"), Some("fib-shed"), Some("giant")] {
        let mut settings = fit_of(&files);
        settings.method = method.map(String::from);
        let local = fitted(&settings);
        let task = of_fit(&Fit::new(&settings, &Cancel::never()).unwrap()).unwrap();
        assert_eq!((task.agents, &task.notes[..]), (5, &[][..]));
        assert!(!task.text.contains("site_"), "{}", task.text);
        let ran = federation(&task.text, &files);
        assert_same(&ran, &local.ran);
        assert_eq!(local.outcome().name(), "converged");
        // The rows of all sites in one file give the same model.
        let pooled = fitted(&FitSettings { partition: Some(Partition::Shuffled), agents: Some(4), ..settings.clone() });
        let (one, other) = (local.model.intercept, pooled.model.intercept);
        assert!((one - other).abs() < 1e-6 && (one - 2.9).abs() < 0.2, "{one} {other}");
        assert!(weight_notes(ran.notes()).is_empty() && weight_notes(local.ran.notes()).is_empty());
    }
}

/// Methods that ask about trial points know the residual of the iterate only where they have accepted a point.
#[test]
fn a_federation_stops_in_the_round_in_which_one_process_stops() {
    let folder = tempfile::tempdir().unwrap();
    let table = |site: usize| {
        let row = |i: usize| {
            let (a, b) = ((i as f64 * 0.7 + site as f64).sin() * 3.0, (i as f64 * 1.3).cos());
            let y = if 0.5 + a - 2.0 * b + 2.0 * (i as f64 * 2.9).sin() > 0.0 { "yes" } else { "no" };
            format!("{a},{b},{y}\n")
        };
        format!("a,b,y\n{}", (0..60 + 20 * site).map(row).collect::<String>())
    };
    let files: Vec<String> = (0..4).map(|site| file(folder.path(), &format!("site_{site}.csv"), &table(site))).collect();
    for method in ["auto", "adaptive-newton", "newton", "lbfgs", "fednl"] {
        for tol in [1e-4, 1e-6, 1e-8, 1e-10] {
            let settings = FitSettings { model: Model::Logistic, tol, ..by(method, fit_of(&files)) };
            let local = fitted(&settings);
            let ran = federation(&of_fit(&Fit::new(&settings, &Cancel::never()).unwrap()).unwrap().text, &files);
            assert_eq!(local.outcome().name(), "converged", "{method}, tol {tol}");
            assert_same(&ran, &local.ran);
        }
    }
}

#[test]
fn an_agent_that_counts_by_more_than_ten_times_its_rows_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let files = sites(folder.path());
    let settings = FitSettings { weighting: AgentWeights::Equal, ..by("newton", fit_of(&files)) };
    let local = fitted(&settings);
    let ran = federation(&of_fit(&Fit::new(&settings, &Cancel::never()).unwrap()).unwrap().text, &files);
    assert_same(&ran, &local.ran);
    for notes in [ran.notes(), local.ran.notes()] {
        let [note] = weight_notes(notes)[..] else { panic!("{notes:?}") };
        let text = &note.text;
        assert!(text.contains("site_4") && text.contains("1 of 206 rows") && text.contains("41 times"), "{text}");
    }
}

#[test]
fn a_federation_evaluates_a_policy_as_one_process_does() {
    let folder = tempfile::tempdir().unwrap();
    let files = crate::deployment::logs(folder.path());
    for method in ["auto", "lstd", "fedhsa"] {
        let mut settings = EvaluateSettings { gamma: 0.9, method: method.into(), ..EvaluateSettings::new(&files) };
        if method == "fedhsa" {
            (settings.step_size, settings.local_steps, settings.tol) = (Some(0.3), Some(10), Some(1e-4));
        }
        let evaluation = Evaluation::new(&settings, &Cancel::never()).unwrap();
        let task = of_evaluation(&evaluation).unwrap();
        assert_eq!((task.agents, &task.notes[..]), (3, &[][..]));
        let RunOutcome::Done(local) = evaluation.run(RunSettings::default(), &Unobserved, &Cancel::never()).unwrap() else {
            unreachable!()
        };
        assert_same(&federation(&task.text, &files), &local.ran);
    }
}

/// What ran in one process is what a federation runs, on the data of its agents.
#[test]
fn the_config_of_a_fit_is_the_settings_of_a_federation() {
    let folder = tempfile::tempdir().unwrap();
    let files = sites(folder.path());
    let settings = by("newton", fit_of(&files));
    let fit = Fit::new(&settings, &Cancel::never()).unwrap();
    let config = resolve::file(fit.experiment(), &Places::from_env("")).unwrap();
    let deployment = Deployment::new(Document::parse("config.toml", &config).unwrap()).unwrap();
    assert_eq!(deployment.notes().iter().map(|note| note.code).collect::<Vec<_>>(), [NoteCode::FederationDataElsewhere]);
    assert_same(&federation(&config, &files), &fitted(&settings).ran);
    let is_alone = |text: &str| is_without_data(&Document::parse("t.toml", text).unwrap());
    assert!(!is_alone(&config) && is_alone(&of_fit(&fit).unwrap().text));
}

#[test]
fn what_a_federation_cannot_do_is_refused_by_name_with_the_text_of_the_list() {
    let folder = tempfile::tempdir().unwrap();
    let files = sites(folder.path());
    let more: Vec<String> = files[..4].to_vec();
    let fit = |settings: FitSettings| of_fit(&Fit::new(&settings, &Cancel::never()).unwrap()).err().unwrap();
    let base = || by("newton", fit_of(&more));
    let evaluate = |change: &dyn Fn(&mut EvaluateSettings)| {
        let logs = crate::deployment::logs(folder.path());
        let mut settings = EvaluateSettings { gamma: 0.9, method: "lstd".into(), ..EvaluateSettings::new(logs) };
        change(&mut settings);
        of_evaluation(&Evaluation::new(&settings, &Cancel::never()).unwrap()).err().unwrap()
    };
    for (setting, e) in [
        ("pca", fit(FitSettings { pca: Some(1), ..base() })),
        ("compare", fit(FitSettings { compare: vec!["giant".into()], ..base() })),
        ("scaling", evaluate(&|settings| settings.scaling = Scaling::EqualSquares)),
    ] {
        let limit = LIMITS.iter().find(|limit| limit.setting == setting).unwrap();
        assert!(e.key.ends_with(setting) && e.what.contains(limit.why) && e.help.contains(limit.instead), "{setting}: {e:?}");
    }
}
