//! Scaffold with some of the agents, one of which misses a message or comes back from an older state: its control and the server's are in step
//! again after its next question.

use super::*;
use crate::common::{engine, field, linear};
use fedsa::record::OutputRule;
use fedsa::server::Participation;
use fedsa::uplink::MessageKey;
use fedsa::uplink::stage::{Act, Channel, GainLaw, LinkStage};

/// The round of the fault, and the honest rounds after it.
const FAULT: u64 = 30;
const HONEST: u64 = 300;
const QUIET: Habits = Habits { lost: 0.0, other: 0.0, agent_dies: 0.0, server_dies: 0.0 };

/// Six systems `b_c - A_c theta` that differ.
fn systems() -> Arc<dyn Field> {
    let one = |c: usize| {
        let c = c as f64;
        ([[0.6 + 0.2 * c, 0.1, 0.0], [0.0, 1.7 - 0.15 * c, 0.1 * c], [0.2, 0.0, 1.0 + 0.1 * c]], [1.0 - c, 0.5 * c, 2.0])
    };
    field(&linear(&[0, 1, 2, 3, 4, 5].map(one)), Law::Mean)
}

/// What befalls one participant.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    Nothing,
    /// Its answer, or the question to it, is lost in a round, or in each of two.
    LostAnswer(usize),
    LostQuestion(usize),
    /// It comes back from what it saved some rounds before, or without a state.
    OlderState(u64),
    NoState,
    /// It comes back from what it saved before the question to which its answer has just counted.
    ForgetsAnswer,
    /// It cannot be reached when the round is opened.
    Unreachable,
    /// The round is given up after all have answered.
    GivenUp,
}

/// The first participant of the round of the fault.
fn victim() -> usize {
    Participation { m: Some(4), agents: 6, seed: SEED }.of(FAULT).unwrap()[0]
}

/// `||theta - theta*||` after the honest rounds, and how far the server's control is from the mean of the agents'.
fn after(field: &Arc<dyn Field>, fault: Fault) -> (f64, f64) {
    let mut world = World::new(field, &*scaffold(), &EXACT, QUIET);
    let (mut saved, mut lost) = (Vec::new(), 0);
    for t in 0..FAULT + HONEST {
        let ago = if let Fault::OlderState(rounds) = fault { rounds } else { 0 };
        if t + ago == FAULT {
            saved = world.nodes.iter().map(ClientNode::save).collect();
        }
        let others: Vec<usize> = (0..6).filter(|c| *c != victim()).collect();
        let is_absent = t == FAULT && fault == Fault::Unreachable;
        let Todo::Ask { to, bytes } = world.server.open_for(is_absent.then_some(&others)) else { panic!("a question") };
        if t == FAULT {
            restore(&mut world, victim(), fault, &saved);
        }
        for (c, bytes) in to.iter().zip(&bytes) {
            let is_hit = t >= FAULT && *c == victim();
            if is_hit && matches!(fault, Fault::LostQuestion(n) if lost < n) {
                lost += 1;
                continue;
            }
            let answer = world.hand(*c, bytes).expect("an answer");
            if is_hit && matches!(fault, Fault::LostAnswer(n) if lost < n) {
                lost += 1;
                continue;
            }
            let is_taken = world.server.take(*c, &answer).is_ok();
            assert!(is_taken || is_hit, "{fault:?}: agent {c} in round {t}");
            if t == FAULT && is_hit && fault == Fault::ForgetsAnswer {
                restore(&mut world, *c, fault, &saved);
            }
        }
        let is_given_up = t == FAULT && fault == Fault::GivenUp;
        assert_eq!(if is_given_up { world.server.give_up() } else { world.server.close() }, Todo::RoundOver);
    }
    (world.error().sqrt(), world.control_sum())
}

fn restore(world: &mut World<'_>, c: usize, fault: Fault, saved: &[Vec<u8>]) {
    if !matches!(fault, Fault::OlderState(_) | Fault::NoState | Fault::ForgetsAnswer) {
        return;
    }
    world.nodes[c] = ClientNode::new(&world.federation, world.field, c, c).unwrap();
    if fault != Fault::NoState {
        world.nodes[c].restore(&saved[c]).unwrap();
    }
}

#[test]
fn scaffold_recovers_from_a_message_that_is_lost_and_a_state_that_is_older() {
    let field = systems();
    let (honest, _) = after(&field, Fault::Nothing);
    assert!(honest < 1e-10, "{honest:e}");
    let faults = [
        Fault::LostAnswer(1),
        Fault::LostAnswer(2),
        Fault::LostQuestion(1),
        Fault::LostQuestion(2),
        Fault::OlderState(1),
        Fault::OlderState(2),
        Fault::OlderState(12),
        Fault::NoState,
        Fault::ForgetsAnswer,
        Fault::Unreachable,
        Fault::GivenUp,
    ];
    let ends = faults.map(|fault| (fault, after(&field, fault)));
    let is_off = |(_, (error, apart)): &&(Fault, (f64, f64))| !(*error < 1e-10 && *apart < 1e-12);
    let off: Vec<_> = ends.iter().filter(is_off).collect();
    assert!(off.is_empty(), "the error and the mean of the agents' controls minus the server's: {off:?}");
}

/// A channel that loses the answer of one agent in one round.
#[derive(Debug, serde::Serialize)]
struct LosesOne(u64);

impl LinkStage for LosesOne {
    fn act(&self) -> Act<'_> {
        Act::Weakens(self)
    }
}

impl Channel for LosesOne {
    fn gain(&self, _: &mut [u64], stream: &mut Stream) -> f64 {
        f64::from(stream.bits() != self.0)
    }
    fn gain_law(&self) -> GainLaw {
        GainLaw { moments: None, share_arriving: 1.0 }
    }
}

/// An answer that the link loses, in the engine and between nodes.
#[test]
fn scaffold_recovers_from_an_answer_that_the_link_loses() {
    let field = systems();
    let key = MessageKey { seed: SEED, round: FAULT, exchange: 0, agent: victim() }.stream(Purpose::Medium).bits();
    let link = Uplink::default().with_media(vec![Arc::new(LosesOne(key))]);
    let mut run = engine(&field, &*scaffold(), &link, OutputRule::Last, SEED, vec![0.0; 3]).unwrap();
    let mut world = World::new(&field, &*scaffold(), &link, QUIET);
    for t in 0..FAULT + HONEST {
        run.step();
        world.round();
        assert_eq!(bits(run.theta()), bits(world.server.theta()), "round {t}");
    }
    let error = world.error().sqrt();
    assert!(error < 1e-10, "{error:e}");
}
