//! What is checked when federations and nodes are built, and what nodes own.

use super::*;
use crate::common::{EXACT, method};
use fedsa::node::{ClientNode, Federation};
use fedsa::problem::Field;
use fedsa::uplink::Uplink;
use std::collections::HashSet;
use std::sync::Arc;

#[test]
fn the_settings_of_a_federation_are_checked() {
    let federation = |weights: &[f64], start: &[f64]| {
        let method = method("fedlsa", r#"{"step_size": 0.1, "local_steps": 1}"#);
        Federation::new(&*method, &EXACT, weights.to_vec(), SEED, start.to_vec()).err()
    };
    assert!(federation(&[0.5, 0.5], &[0.0]).is_none());
    for (weights, start, key) in [
        (&[][..], &[0.0][..], "weights"),
        (&[0.5, 0.6], &[0.0], "weights"),
        (&[1.5, -0.5], &[0.0], "weights"),
        (&[1.0], &[], "start"),
        (&[1.0], &[f64::NAN], "start"),
    ] {
        assert_eq!(federation(weights, start).unwrap().key, key, "{weights:?} {start:?}");
    }
}

#[test]
fn nodes_are_built_with_the_checks_of_a_run() {
    let field = six();
    let start = || vec![0.0; field.dim()];
    let weights = || field.weights().to_vec();
    let stale = crate::common::link(r#"{"kind": "exact"}"#, false, &[r#"{"kind": "delay", "law": "uniform", "max": 5}"#]).unwrap();
    let air = crate::common::link(r#"{"kind": "exact"}"#, false, &[r#"{"kind": "over-the-air", "receiver_noise": 0.1}"#]).unwrap();
    let many = crate::common::link(r#"{"kind": "top-k", "k": 99}"#, false, &[]).unwrap();
    let fedlsa = method("fedlsa", r#"{"step_size": 0.1, "local_steps": 5}"#);
    let dasa = method("dasa", r#"{"step_size": 0.1}"#);
    let newton = method("newton", "{}");
    let some = method("fedlsa", r#"{"step_size": 0.1, "local_steps": 5, "participants": 7}"#);
    for (method, link, expected) in [
        (&fedlsa, &stale, "only the in-process engine can compute at old models"),
        (&dasa, &air, "over this link only their sum arrives"),
        (&fedlsa, &many, "k"),
        (&some, &EXACT, "participants"),
        (&newton, &EXACT, "not known to be gradients"),
    ] {
        let e = match Federation::new(&**method, link, weights(), SEED, start()) {
            Err(e) => e,
            Ok(federation) => ClientNode::new(&federation, &field, 0, 0).err().unwrap(),
        };
        assert!(e.to_string().contains(expected), "{e}");
    }
    let federation = |weights, start| Federation::new(&*fedlsa, &EXACT, weights, SEED, start);
    let good = federation(weights(), start()).unwrap();
    assert!(ClientNode::new(&good, &field, 0, 6).is_err(), "there is no seventh agent");
    assert!(ClientNode::new(&good, &field, 6, 0).is_err(), "there are no data of a seventh agent");
    let short = federation(weights(), vec![0.0]).unwrap();
    assert!(ClientNode::new(&short, &field, 0, 0).is_err(), "a start of another length");
    assert!(federation(Vec::new(), start()).is_err(), "no agents");
    assert!(federation(vec![f64::NAN; 6], start()).is_err());
    assert!(federation(vec![1.0; 6], start()).is_err(), "weights that do not sum to 1");
    assert!(federation(weights(), vec![f64::INFINITY]).is_err());
    // What differs in anything is another federation.
    let digests = [
        good.digest(),
        short.digest(),
        federation(vec![0.2; 5], start()).unwrap().digest(),
        Federation::new(&*fedlsa, &EXACT, weights(), 6, start()).unwrap().digest(),
        Federation::new(&*fedlsa, &air, weights(), SEED, start()).unwrap().digest(),
        Federation::new(&*dasa, &EXACT, weights(), SEED, start()).unwrap().digest(),
    ];
    assert_eq!(HashSet::from(digests).len(), digests.len());
}

/// Nodes can own all that they need, and outlive who made them.
#[test]
fn nodes_own_what_they_are_given_a_share_of() {
    let field: Arc<dyn Field> = six();
    let node: ClientNode = {
        let federation = Federation::new(&*scafflsa(""), &Uplink::default(), field.weights(), SEED, vec![0.0; 3]).unwrap();
        ClientNode::new(&federation, &field, 2, 2).unwrap()
    };
    drop(field);
    std::thread::spawn(move || assert!(!node.save().is_empty())).join().unwrap();
}
