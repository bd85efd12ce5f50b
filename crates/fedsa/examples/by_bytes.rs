//! A method across machines: each agent runs in a thread of its own, and exchanges
//! only bytes with the server.
//!
//! `ServerNode` says which bytes to send to which agent, `ClientNode` turns received bytes
//! into an answer, and a `Transport` of the caller carries the bytes (here through channels). A
//! session goes on until a target is reached, as it does with agents in this process: the
//! iterates are those of the in-process engine, bit for bit. Run it with
//! `cargo run --release -p fedsa --example by_bytes`.

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Instant;

use fedsa_methods::prelude::*;
use fedsa_problems::prelude::*;

const SEED: u64 = 7;

/// Channels to agents in threads, and the one on which all answer.
struct Channels {
    agents: Vec<mpsc::Sender<Arc<[u8]>>>,
    inbox: mpsc::Receiver<(usize, Vec<u8>)>,
}

impl Transport for Channels {
    fn exchange(
        &mut self,
        server: &ServerNode,
        to: &[usize],
        bytes: &[Arc<[u8]>],
        _: Option<Instant>,
        _: &Cancel,
    ) -> Result<Vec<(usize, Vec<u8>)>> {
        self.tell(server, to, bytes)?;
        // Everybody asked answers, in any order.
        Ok(self.inbox.iter().take(to.len()).collect())
    }

    fn tell(&mut self, _: &ServerNode, to: &[usize], bytes: &[Arc<[u8]>]) -> Result<()> {
        to.iter().zip(bytes).for_each(|(c, bytes)| self.agents[*c].send(Arc::clone(bytes)).expect("the agent listens"));
        Ok(())
    }
}

/// A thread for each agent; it ends when the sender to it is dropped.
fn start(federation: &Federation, field: &Arc<dyn Field>) -> Channels {
    let (answers, inbox) = mpsc::channel();
    let start_agent = |agent: usize| {
        let (to_agent, from_server) = mpsc::channel::<Arc<[u8]>>();
        let (federation, field, answers) = (federation.clone(), Arc::clone(field), answers.clone());
        thread::spawn(move || {
            let mut node = ClientNode::new(&federation, &field, agent, agent).expect("the settings of the server");
            for bytes in from_server {
                if let Some(answer) = node.handle(&bytes).expect("a message of this federation") {
                    answers.send((agent, answer)).expect("the server listens");
                }
            }
        });
        to_agent
    };
    Channels { agents: (0..field.agents()).map(start_agent).collect(), inbox }
}

fn main() -> Result<()> {
    // Six of ten agents take part in a round, drawn anew each time.
    let method = Scafflsa::new(0.1, 100).with_participants(6);
    let garnet = Garnet::default().with_agents(10);
    let field = garnet.field(&NoFiles, Sampling::default(), Isa::best())?;

    // What all ends are built with; messages of ends that were built with anything else are refused. The server is given the
    // description of the problem, not the data.
    let description = Description::new("garnet", Sampling::default(), field.dim()).with(&garnet);
    let federation = Federation::builder(&method).seed(SEED).problem(description).on(&*field)?;
    let nodes = Nodes::new(ServerNode::new(&federation)?, start(&federation, &field));
    let until = StoppingCriteria::rounds(50);
    let mut deployed = Session::new(nodes);
    let outcome = deployed.advance(&until, &Cancel::new(), &mut ())?;

    let mut simulated = Session::new(Run::new(&field, &federation)?);
    simulated.advance(&until, &Cancel::new(), &mut ())?;
    let bits = |x: &[f64]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(deployed.output()), bits(simulated.output()), "the same numbers, whoever carries the messages");
    let (here, there) = (deployed.carrier().counts(), simulated.carrier().counts());
    assert_eq!((here.bits_up, here.bits_down, here.messages), (there.bits_up, there.bits_down, there.messages));
    println!(
        "{} after {} rounds: {} bytes up, {} bytes down, theta bit-identical to the engine's",
        outcome.name(),
        deployed.round(),
        here.bits_up / 8,
        here.bits_down / 8
    );
    Ok(())
}
