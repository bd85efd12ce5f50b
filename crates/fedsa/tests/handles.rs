//! What callers hold may be kept anywhere and shared between threads.

use std::sync::Arc;

use fedsa::cancel::Cancel;
use fedsa::coordinator::Coordinator;
use fedsa::error::Error;
use fedsa::federation::{Builder, Description, Federation};
use fedsa::local::{Agent, Client};
use fedsa::method::MethodSettings;
use fedsa::metrics::Metrics;
use fedsa::node::{ClientNode, Progress, ServerNode, Todo};
use fedsa::problem::{Facts, Field};
use fedsa::record::Outcome;
use fedsa::round::Run;
use fedsa::server::Server;
use fedsa::session::{Carrier, Nodes, Record, Recorded, Session, State, StoppingCriteria, Transport};
use fedsa::uplink::Uplink;
use fedsa::uplink::codec::Codec;
use fedsa::uplink::stage::LinkStage;
use fedsa_problems::ProblemSettings;
use fedsa_problems::nonlinear::random_logistic::RandomLogistic;

fn is_owned<T: Send + Sync + ?Sized + 'static>() {}

#[test]
fn handles_are_owned_and_shared() {
    is_owned::<Run>();
    is_owned::<Session<Run>>();
    is_owned::<Session<Box<dyn Carrier + Sync>>>();
    is_owned::<Nodes<Box<dyn Shareable>>>();
    is_owned::<ClientNode>();
    is_owned::<ServerNode>();
    is_owned::<Coordinator>();
    is_owned::<Federation>();
    is_owned::<Builder>();
    is_owned::<Description>();
    is_owned::<Metrics>();
    is_owned::<Uplink>();
    is_owned::<Cancel>();
}

/// A transport that may be shared; others need only be sent.
trait Shareable: Transport + Sync {}

#[test]
fn values_are_owned_and_shared() {
    is_owned::<Error>();
    is_owned::<StoppingCriteria>();
    is_owned::<Record>();
    is_owned::<Recorded>();
    is_owned::<State>();
    is_owned::<Outcome>();
    is_owned::<Todo>();
    is_owned::<Progress>();
    is_owned::<RandomLogistic>();
}

#[test]
fn parts_of_any_kind_are_owned_and_shared() {
    is_owned::<Arc<dyn Field>>();
    is_owned::<dyn Facts>();
    is_owned::<dyn ProblemSettings>();
    is_owned::<dyn MethodSettings>();
    is_owned::<dyn Client>();
    is_owned::<dyn Agent>();
    is_owned::<dyn Server>();
    is_owned::<dyn Codec>();
    is_owned::<dyn LinkStage>();
}
