//! A method of one's own with all that the protocol carries: parts of any length, sparse and packed bodies, sums and
//! answers of each, parts of each agent's own in questions and in what is told, agents that know what their link carries
//! before they answer. In the engine and over bytes the same bits, checkpointed and restored.

use std::sync::Arc;

use crate::common::{EXACT, Halves, bits, engine, link, on_the_wire};
use fedsa::cancel::Cancel;
use fedsa::error::{Error, Result};
use fedsa::local::{Agent, ByAgent, Client, LocalContext};
use fedsa::message::{Body, Message, Part, TELL};
use fedsa::method::{Drift, MethodSettings, MethodShape, Needs, Setting};
use fedsa::node::{ClientNode, Federation, ServerNode, Todo};
use fedsa::problem::Field;
use fedsa::protocol::{Exchange, Gather, Len, Protocol, ReplySpec};
use fedsa::record::OutputRule;
use fedsa::round::{Advanced, Run};
use fedsa::sampling::Law;
use fedsa::saved::{packed, unpacked};
use fedsa::schedule::StepSize;
use fedsa::server::{Broadcast, Next, PerRecipient, Received, Server};
use fedsa::uplink::Uplink;
use serde::Serialize;

/// Gradient steps. Each agent sends its gradient, of which a sum is enough; the largest components of what it last sent
/// less, as many as its link's bits pay for; and a byte for each of these. The server answers every other agent with a
/// number of its own, and tells all at the end how many components it got of each.
#[derive(Debug, Clone, Serialize)]
struct Toy {
    eta: f64,
}

const BITS_A_COMPONENT: u64 = 96;

impl MethodSettings for Toy {
    fn check(&self, _: usize) -> Result<()> {
        Ok(())
    }
    fn needs(&self) -> Needs {
        Needs::Objective
    }
    fn protocol(&self, setting: &Setting<'_>) -> Protocol {
        let d = setting.start.len();
        let want = |part, len, gather| ReplySpec { part, len, gather };
        Protocol {
            exchanges: vec![Exchange {
                down: vec![(Part::Model, Len::Exactly(d))],
                own: vec![(Part::Losses, Len::Exactly(1))],
                replies: vec![
                    want(Part::Gradient, Len::Exactly(d), Gather::Sum),
                    want(Part::Correction, Len::Exactly(d), Gather::Each),
                    want(Part::Packed, Len::AtMost(d), Gather::Each),
                ],
                may_open: false,
            }],
            tell: vec![(Part::Step, Len::Exactly(d))],
            tell_own: vec![(Part::Losses, Len::Exactly(1))],
            ..Protocol::default()
        }
    }
    fn client(&self, _: &Setting<'_>) -> Box<dyn Client> {
        ByAgent::boxed(|c| Box::new(ToyAgent { numbers: vec![c as f64, 0.0, 0.0] }))
    }
    fn server(&self, setting: &Setting<'_>) -> Box<dyn Server> {
        let (theta, agents) = (setting.start.clone(), setting.agents());
        Box::new(ToyServer { eta: self.eta, got: vec![0.0; agents], theta, weights: setting.weights.to_vec() })
    }
    fn shape(&self) -> MethodShape {
        let step_size = StepSize::Constant(self.eta);
        MethodShape { drift: Drift::NoSteps, step_size, local_steps: 0.0, alpha_g: 1.0, participants: None, is_linear: false }
    }
}

/// Who it is, what it was told of its own, and how often it was told anything.
struct ToyAgent {
    numbers: Vec<f64>,
}

impl Agent for ToyAgent {
    fn answer(&mut self, at: &LocalContext<'_>, down: &Message) -> Result<Vec<(Part, Body)>> {
        assert_eq!(at.agent as f64, self.numbers[0]);
        let theta = down.part(Part::Model);
        let d = theta.len();
        let mut g = vec![0.0; d];
        at.gradient(theta, &mut g);
        // Its number of its own, which only every other agent is sent, moves the gradient a little.
        let own = down.find(Part::Losses).and_then(Body::numbers).map_or(0.0, |x| x[0]);
        g[0] += 1e-3 * own + 1e-4 * self.numbers[1];
        let pays_for = at.bits.map_or(d, |bits| (bits / BITS_A_COMPONENT) as usize).min(d);
        let mut order: Vec<usize> = (0..d).collect();
        order.sort_by(|i, j| g[*j].abs().total_cmp(&g[*i].abs()).then(i.cmp(j)));
        order.truncate(pays_for);
        order.sort_unstable();
        let index: Vec<u32> = order.iter().map(|i| *i as u32).collect();
        let value = order.iter().map(|i| 0.1 * g[*i]).collect();
        let packed = order.iter().map(|i| (*i + at.agent) as u8).collect();
        let sparse = Body::Sparse { len: d as u32, index, value };
        Ok(vec![(Part::Gradient, Body::Numbers(g)), (Part::Correction, sparse), (Part::Packed, Body::Packed(packed))])
    }

    fn told(&mut self, _: &LocalContext<'_>, down: &Message) {
        assert_eq!(down.exchange, TELL);
        self.numbers[1] = down.part(Part::Losses)[0];
        self.numbers[2] += 1.0 + down.part(Part::Step)[0].abs().min(1.0);
    }

    fn save(&self) -> Vec<u8> {
        self.numbers.iter().flat_map(|x| x.to_le_bytes()).collect()
    }

    fn restore(&mut self, bytes: &[u8]) -> Result<()> {
        let (numbers, rest) = bytes.as_chunks::<8>();
        if numbers.len() != 3 || !rest.is_empty() {
            return Err(Error::new("agent", "not such an agent", "three numbers"));
        }
        self.numbers = numbers.iter().map(|b| f64::from_le_bytes(*b)).collect();
        Ok(())
    }
}

struct ToyServer {
    eta: f64,
    theta: Vec<f64>,
    weights: Vec<f64>,
    /// How many components came from each agent last.
    got: Vec<f64>,
}

impl Server for ToyServer {
    fn open(&mut self, t: u64) -> Broadcast {
        let each = self.got.iter().enumerate().map(|(c, got)| (c % 2 == 1).then(|| vec![*got])).collect();
        let down = Message::one(t, 0, Part::Model, self.theta.clone());
        Broadcast { to: None, down, own: Some(PerRecipient { part: Part::Losses, each }) }
    }

    fn receive(&mut self, got: &Received<'_>) -> Next {
        let mut step: Vec<f64> = got.mean(Part::Gradient).iter().map(|g| -self.eta * g).collect();
        self.got.fill(0.0);
        for update in got.updates {
            let Some((_, Body::Sparse { index, value, .. })) = update.parts.iter().find(|(part, _)| *part == Part::Correction) else {
                panic!("a correction is sparse")
            };
            let Some((_, Body::Packed(packed))) = update.parts.iter().find(|(part, _)| *part == Part::Packed) else {
                panic!("packed bytes")
            };
            self.got[update.agent] = packed.len() as f64;
            let share = self.weights[update.agent];
            index.iter().zip(value).for_each(|(i, x)| step[*i as usize] -= self.eta * share * x);
        }
        self.theta.iter_mut().zip(&step).for_each(|(x, s)| *x += s);
        let each = self.got.iter().map(|n| Some(vec![*n])).collect();
        let down = Message::one(got.round, TELL, Part::Step, step);
        Next::Done { tell: Some(Broadcast { to: None, down, own: Some(PerRecipient { part: Part::Losses, each }) }) }
    }

    fn accepts(&self, _: u8, parts: &[(Part, Body)]) -> Result<()> {
        match (&parts[1].1, &parts[2].1) {
            (Body::Sparse { index, .. }, Body::Packed(bytes)) if index.len() == bytes.len() => Ok(()),
            _ => Err(Error::new("message", "not a byte for each component", "as many bytes as components")),
        }
    }

    fn theta(&self) -> &[f64] {
        &self.theta
    }

    fn state(&self) -> Vec<u8> {
        packed(&(&self.theta, &self.got))
    }

    fn restore(&mut self, state: &[u8]) -> Result<()> {
        (self.theta, self.got) = unpacked(state)?;
        Ok(())
    }
}

const ROUNDS: u64 = 12;
const SEED: u64 = 5;

fn links() -> Vec<(&'static str, Uplink)> {
    let (exact, coarse) = (r#"{"kind": "exact"}"#, r#"{"kind": "quantised", "bits": 4}"#);
    let (lossy, fading) = (r#"{"kind": "erasure", "success": 0.6}"#, r#"{"kind": "bit-budget", "bits": 60, "fading_snr": 3.0}"#);
    vec![
        ("clear", Uplink::default()),
        ("quantised with feedback", link(coarse, true, &[]).unwrap()),
        ("erasure", link(exact, false, &[lossy]).unwrap()),
        ("a budget that fades", link(coarse, false, &[fading]).unwrap()),
        ("a coarse downlink", Uplink::default().with_downlink(link(coarse, false, &[]).unwrap().codec)),
    ]
}

fn field() -> Arc<dyn Field> {
    crate::common::field(&*crate::common::objectives(11)[0].1, Law::Mean)
}

fn run(field: &Arc<dyn Field>, uplink: &Uplink) -> Run {
    engine(field, &Toy { eta: 0.2 }, uplink, OutputRule::Last, SEED, vec![0.0; field.dim()]).unwrap()
}

#[test]
fn engine_and_nodes_agree_in_every_bit_they_send_and_compute() {
    let (field, toy) = (field(), Toy { eta: 0.2 });
    for (name, uplink) in links() {
        let mut engine = run(&field, &uplink);
        let mut halves = Halves::new(&field, &toy, &uplink, SEED).unwrap();
        for t in 0..ROUNDS {
            engine.step();
            halves.round();
            assert_eq!(bits(halves.server.theta()), bits(engine.theta()), "{name}, round {t}");
        }
        halves.finish();
        assert_eq!(halves.ledger, on_the_wire(engine.ledger()), "{name}");
        let ledger = engine.ledger();
        assert_eq!((ledger.calls.gradients, ledger.exchanges, ledger.samples), (ROUNDS * 11, ROUNDS, 0), "{name}");
        assert!(engine.theta().iter().all(|x| x.is_finite() && *x != 0.0));
    }
}

#[test]
fn agents_know_what_their_link_carries_before_they_answer() {
    let field = field();
    let sent = |bits: u32| {
        let uplink = link(r#"{"kind": "float32"}"#, false, &[&format!(r#"{{"kind": "bit-budget", "bits": {bits}}}"#)]).unwrap();
        let mut engine = run(&field, &uplink);
        engine.step();
        engine.ledger().bits_up
    };
    // d = 4 components, 96 bits each and a byte, of 4 x 50 = 200, 4 x 72 = 288 and 4 x 96 bits: 2, 3 and 4 of them.
    assert_eq!([sent(72) - sent(50), sent(96) - sent(72)], [11 * (96 + 8); 2]);
}

#[test]
fn agents_do_not_answer_once_a_round_is_to_be_abandoned() {
    let (field, uplink) = (field(), Uplink::default());
    let mut run = engine(&field, &Toy { eta: 0.2 }, &uplink, OutputRule::Last, SEED, vec![0.0; 4]).unwrap();
    let before = run.save().unwrap();
    let cancelled = Cancel::new();
    cancelled.cancel();
    assert_eq!(run.advance(&cancelled), Advanced::Cancelled);
    assert_eq!(run.ledger().calls, fedsa::problem::calls::Calls::default());
    run.restore(&before).unwrap();
    assert_eq!(run.advance(&Cancel::new()), Advanced::Round);
    assert_eq!(run.ledger().calls.gradients, 11);
}

#[test]
fn runs_are_the_same_on_any_threads_and_after_a_restart() {
    let field = field();
    for (name, uplink) in links() {
        let on = |threads: usize| {
            rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(|| {
                let mut whole = run(&field, &uplink);
                (0..ROUNDS).for_each(|_| whole.step());
                whole.save()
            })
        };
        let expected = on(1);
        assert_eq!(on(3), expected, "{name}");
        let mut first = run(&field, &uplink);
        (0..5).for_each(|_| first.step());
        let mut second = run(&field, &uplink);
        second.restore(&first.save().unwrap()).unwrap();
        (5..ROUNDS).for_each(|_| second.step());
        assert_eq!(second.save(), expected, "{name}");
        assert!(second.restore(&first.save().unwrap()[..200]).is_err());
    }
}

#[test]
fn what_a_method_packs_itself_it_checks_itself() {
    let (field, toy) = (field(), Toy { eta: 0.2 });
    let federation = Federation::new(&toy as &dyn MethodSettings, &EXACT, field.weights().to_vec(), SEED, vec![0.0; field.dim()]).unwrap();
    let mut server = ServerNode::new(&federation).unwrap();
    let mut node = ClientNode::new(&federation, &field, 0, 0).unwrap();
    let Todo::Ask { bytes, .. } = server.open() else { panic!("a question") };
    let answer = node.handle(&bytes[0]).unwrap().unwrap();
    let (envelope, mut message) = Message::decode(&answer, &*EXACT.codec, 100, |_, _| fedsa::random::Stream::default()).unwrap();
    let Body::Packed(packed) = &mut message.parts[2].1 else { panic!("packed bytes") };
    packed.pop();
    let bad = message.encode(&envelope, &*EXACT.codec, &mut fedsa::random::Stream::default());
    assert!(server.take(0, &bad).unwrap_err().to_string().contains("a byte for each component"));
    server.take(0, &answer).unwrap();
}

#[test]
fn what_cannot_be_summed_is_refused_over_the_air_and_late() {
    let field = field();
    for (medium, why) in [
        (r#"{"kind": "over-the-air", "receiver_noise": 0.1}"#, "only their sum arrives"),
        (r#"{"kind": "late", "law": "uniform", "max": 3}"#, "at one iterate"),
        (r#"{"kind": "delay", "law": "uniform", "max": 3}"#, "at one iterate"),
    ] {
        let uplink = link(r#"{"kind": "exact"}"#, false, &[medium]).unwrap();
        let e = engine(&field, &Toy { eta: 0.2 }, &uplink, OutputRule::Last, SEED, vec![0.0; 4]).err().unwrap();
        assert!(e.to_string().contains(why), "{e}");
    }
}
