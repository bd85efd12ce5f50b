//! A method across machines: each agent runs in a thread of its own, and exchanges
//! only bytes with the server.
//!
//! `ServerNode` says which bytes to send to which agent, `ClientNode` turns received bytes
//! into an answer, and the caller carries the bytes (here through channels). The
//! iterates are those of the in-process engine, bit for bit. Run it with
//! `cargo run --release -p fedsa --example by_bytes`.

use std::sync::{Arc, mpsc};
use std::thread;

use fedsa::error::Result;
use fedsa::kernel::Isa;
use fedsa::methods::{MethodSettings, scafflsa::Scafflsa};
use fedsa::node::{ClientNode, Federation, ServerNode, Todo};
use fedsa::problem::garnet::Garnet;
use fedsa::problem::{NoFiles, ProblemSettings as _};
use fedsa::round::Run;
use fedsa::sampling::Sampling;
use fedsa::uplink::Uplink;

const ROUNDS: u64 = 50;
const SEED: u64 = 7;

fn main() -> Result<()> {
    // Six of ten agents take part in a round, drawn anew each time.
    let method: &dyn MethodSettings = &Scafflsa { participants: Some(6), ..Scafflsa::new(0.1, 100) };
    let field = Garnet { agents: 10, ..Garnet::default() }.field(&NoFiles, Sampling::default(), Isa::best())?;
    let uplink = Uplink::default();
    let start = vec![0.0; field.dim()];

    // What all ends are built with; messages of ends that were built with anything else are refused.
    let federation = &Federation::new(method, &uplink, field.weights().to_vec(), SEED, start.clone())?;
    let mut server = ServerNode::new(federation)?;
    let (mut sent, mut received) = (0, 0);
    thread::scope(|scope| -> Result<()> {
        // One thread an agent; it ends when the server drops the sender to it.
        let (answers, inbox) = mpsc::channel();
        let mut agents = Vec::new();
        for agent in 0..field.agents() {
            let (to_agent, from_server) = mpsc::channel::<Arc<[u8]>>();
            let (field, answers) = (&field, answers.clone());
            agents.push(to_agent);
            scope.spawn(move || {
                let mut node = ClientNode::new(federation, field, agent, agent).expect("the settings of the server");
                for bytes in from_server {
                    if let Some(answer) = node.handle(&bytes).expect("a message of this federation") {
                        answers.send((agent, answer)).expect("the server listens");
                    }
                }
            });
        }
        for _ in 0..ROUNDS {
            let mut todo = server.open();
            loop {
                match todo {
                    // Another exchange: everybody asked answers, in any order.
                    Todo::Ask { to, bytes } => {
                        to.iter().zip(&bytes).for_each(|(c, bytes)| agents[*c].send(Arc::clone(bytes)).expect("the agent listens"));
                        let got: Vec<(usize, Vec<u8>)> = inbox.iter().take(to.len()).collect();
                        sent += bytes.iter().map(|bytes| bytes.len()).sum::<usize>();
                        received += got.iter().map(|(_, bytes)| bytes.len()).sum::<usize>();
                        todo = server.receive(&got).todo;
                    }
                    // SCAFFLSA tells the participants the mean direction when not all take part.
                    Todo::Tell { to, bytes } => {
                        for (c, bytes) in to.iter().zip(bytes) {
                            sent += bytes.len();
                            agents[*c].send(bytes).expect("the agent listens");
                        }
                        break;
                    }
                    Todo::RoundOver => break,
                }
            }
        }
        Ok(())
    })?;

    let mut engine = Federation::builder(method)
        .uplink(&uplink)
        .seed(SEED)
        .start(start)
        .on(&*field)
        .and_then(|federation| Run::new(&field, &federation))?;
    (0..ROUNDS).for_each(|_| engine.step());
    let bits = |x: &[f64]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(server.theta()), bits(engine.theta()), "the same numbers, whoever carries the messages");
    let ledger = engine.ledger();
    assert_eq!((8 * received as u64, 8 * sent as u64), (ledger.bits_up, ledger.bits_down), "the ledger counts encoded bytes");
    println!("{ROUNDS} rounds: {received} bytes up, {sent} bytes down, theta bit-identical to the engine's");
    Ok(())
}
