//! The kinds of this crate on fedsa's engine and across nodes that exchange bytes.

use std::sync::Arc;

use fedsa::error::Result;
use fedsa::kernel::Isa;
use fedsa::method::MethodSettings;
use fedsa::node::{ClientNode, Federation, ServerNode, Todo};
use fedsa::problem::Field;
use fedsa::round::Run;
use fedsa::sampling::{Law, Sampling};
use fedsa::schedule::StepSize;
use fedsa::settings::Value;
use fedsa::uplink::Uplink;
use fedsa::uplink::stage::delay::{Delay, Late};
use fedsa::uplink::stage::erasure::Erasure;
use fedsa_methods::fedhsa::FedHsa;
use fedsa_methods::fedlsa::FedLsa;
use fedsa_problems::{NoFiles, ProblemSettings};
use fedsa_theory::predict::Forecast;
use outside::momentum::Momentum;
use outside::projected_fedhsa::ProjectedFedHsa;
use outside::pulled::Pulled;
use outside::recorded;
use outside::rows::Rows;

const ROWS: Rows = Rows { agents: 11, dim: 3, spread: 0.2, seed: 1 };

fn field(kind: Law) -> Arc<dyn Field> {
    ROWS.field(&NoFiles, Sampling::default().with_kind(kind), Isa::best()).unwrap()
}

fn pulled(proximal: f64) -> Pulled {
    Pulled { step_size: 0.02, local_steps: 20, proximal }
}

fn projected(radius: f64) -> ProjectedFedHsa {
    ProjectedFedHsa { step_size: StepSize::Constant(0.02), local_steps: 20, radius, participants: None }
}

fn momentum(beta: f64) -> Momentum {
    Momentum { step_size: StepSize::Constant(0.02), local_steps: 20, beta }
}

/// Theta on the engine after some rounds.
fn engine(field: &Arc<dyn Field>, method: &dyn MethodSettings, rounds: u64) -> Vec<f64> {
    let link = Uplink::default();
    let federation = Federation::builder(method).uplink(&link).seed(5).on(&**field).unwrap();
    let mut run = Run::new(field, &federation).unwrap();
    (0..rounds).for_each(|_| run.step());
    run.theta().to_vec()
}

/// The same, from halves that exchange bytes.
fn by_bytes(field: &Arc<dyn Field>, method: &dyn MethodSettings, rounds: u64) -> Result<Vec<f64>> {
    let link = Uplink::default();
    let federation = Federation::new(method, &link, field.weights().to_vec(), 5, vec![0.0; field.dim()])?;
    let mut agents: Vec<ClientNode> = (0..field.agents()).map(|c| ClientNode::new(&federation, field, c, c)).collect::<Result<_>>()?;
    let mut server = ServerNode::new(&federation)?;
    for _ in 0..rounds {
        let mut todo = server.open();
        while let Todo::Ask { to, bytes } = todo {
            for (c, bytes) in to.into_iter().zip(&bytes) {
                let answer = agents[c].handle(bytes)?.expect("an answer");
                server.take(c, &answer)?;
            }
            todo = server.close();
        }
    }
    Ok(server.theta().to_vec())
}

#[test]
fn nodes_that_exchange_bytes_give_the_engines_numbers() {
    for law in [Law::Mean, Law::Iid] {
        let field = field(law);
        for method in [&pulled(2.0) as &dyn MethodSettings, &projected(1.0), &momentum(0.5)] {
            method.check(field.agents()).unwrap();
            assert_eq!(by_bytes(&field, method, 20).unwrap(), engine(&field, method, 20), "{method:?}, {law:?}");
        }
    }
}

#[test]
fn special_cases_are_methods_of_fedsa() {
    let field = field(Law::Iid);
    assert_eq!(engine(&field, &pulled(0.0), 30), engine(&field, &FedLsa::new(0.02, 20), 30));
    assert_eq!(engine(&field, &projected(1e6), 30), engine(&field, &FedHsa::new(0.02, 20), 30));
    assert_eq!(engine(&field, &momentum(0.0), 30), engine(&field, &FedLsa::new(0.02, 20), 30));
    let bounded = engine(&field, &projected(0.5), 30);
    assert!((fedsa::linalg::norm_sq(&bounded).sqrt() - 0.5).abs() < 1e-12, "{bounded:?}");
}

#[test]
fn momentum_does_not_move_theta_in_a_round_without_any_answer() {
    let (field, method) = (field(Law::Iid), momentum(0.9));
    let link = Uplink::default().with_media(vec![Arc::new(Erasure::new(0.1))]);
    let federation = Federation::builder(&method).uplink(&link).seed(5).on(&*field).unwrap();
    let mut run = Run::new(&field, &federation).unwrap();
    // A round loses all eleven answers with the probability 0.9^11 = 0.31.
    let mut unmoved = 0;
    for _ in 0..100 {
        let before = run.theta().to_vec();
        run.step();
        unmoved += usize::from(run.theta() == before);
    }
    assert!((15..48).contains(&unmoved), "{unmoved}");
    let late = Uplink::default().with_media(vec![Arc::new(Late(Delay::Constant { rounds: 1 }))]);
    assert!(Federation::builder(&method).uplink(&late).seed(5).on(&*field).is_err());
}

#[test]
fn theory_follows_from_the_facts_of_the_problem() {
    let noiseless = field(Law::Mean);
    let method = FedLsa::new(0.02, 20);
    let limit = Forecast::over(&noiseless, &method, &Uplink::default()).limit().unwrap();
    assert!(fedsa::linalg::distance_sq(&engine(&noiseless, &method, 2000), &limit) < 1e-24);
    let noisy = field(Law::Iid);
    let forecast = Forecast::over(&noisy, &method, &Uplink::default());
    assert!(forecast.floor().unwrap().noise > 0.0);
    // Theory has no formula for these methods, and does not take that of FedLSA.
    for method in [&pulled(2.0) as &dyn MethodSettings, &momentum(0.5)] {
        assert!(Forecast::over(&noisy, method, &Uplink::default()).floor().is_err());
    }
}

#[test]
fn a_registered_closure_holds_the_data_of_its_problem() {
    let on = |walks: Vec<Vec<recorded::Move>>, sampling: Law| {
        let kind = recorded::kind(walks);
        let settings = (kind.read)(&Value::table([("gamma", Value::Float(0.5))])).unwrap();
        settings.field(&NoFiles, Sampling::default().with_kind(sampling), Isa::best()).unwrap()
    };
    let method = FedLsa::new(0.1, 5);
    for law in [Law::Mean, Law::Iid] {
        let field = on(outside::walks(3, 50), law);
        assert_eq!(by_bytes(&field, &method, 20).unwrap(), engine(&field, &method, 20), "{law:?}");
    }
    // Two states in turn, with a reward in the first: v_0 = 1 + v_1 / 2, v_1 = v_0 / 2.
    let field = on(vec![vec![(0, 1.0, 1), (1, 0.0, 0)]], Law::Mean);
    let values = engine(&field, &method, 400);
    assert!(fedsa::linalg::distance_sq(&values, &[4.0 / 3.0, 2.0 / 3.0]) < 1e-24, "{values:?}");
}
