//! Plans of large sweeps.

use std::collections::HashMap;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use fedsa::kernel::Isa;
use fedsa_experiment::Plan;
use fedsa_experiment::config::{Document, Experiment};

/// All cells of a sweep start at the root of one problem, which is computed on all threads. A test that hangs fails.
#[test]
fn the_cells_of_a_sweep_share_the_root_of_their_problem() {
    let (done, ended) = mpsc::channel();
    std::thread::spawn(move || {
        let steps: Vec<String> = (1..=6000).map(|i| format!("{}", f64::from(i) * 1e-5)).collect();
        let text = format!(
            "[problem]\nkind = \"random-logistic\"\nagents = 512\n[[method]]\nkind = \"fedlsa\"\nlocal_steps = 2\n\
             [run]\nrounds = 10\nstart = \"root+1\"\nstop = {{ mse = 1e-3 }}\n[[sweep]]\nkey = \"method.*.step_size\"\nvalues = [{}]\n",
            steps.join(", ")
        );
        let experiment = Document::parse("sweep.toml", &text).and_then(Experiment::read).unwrap();
        let pool = rayon::ThreadPoolBuilder::new().num_threads(16).build().unwrap();
        let plan = pool.install(|| Plan::new(experiment, Path::new("."), Isa::best(), &HashMap::new())).unwrap();
        assert_eq!((plan.fields.len(), plan.cells.len()), (1, 6000));
        assert!(plan.cells.iter().all(|cell| cell.start == plan.cells[0].start));
        done.send(()).unwrap();
    });
    ended.recv_timeout(Duration::from_secs(100)).expect("the plan is built");
}
