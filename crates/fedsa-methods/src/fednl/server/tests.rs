use super::super::compressor::Full;
use super::*;

/// A server of agents with one component and equal weights, which starts at 1 and first gets whole matrices.
fn server(agents: usize, trials: Option<Trials>, m: Option<usize>) -> FedNlServer {
    let rule = FedNlRule {
        compressor: Arc::new(Full),
        learning_rate: 1.0,
        definite: Definite::Shift,
        first: None,
        step: 1.0,
        trials,
        is_fresh: false,
        participation: Participation { m, agents, seed: 7 },
    };
    FedNlServer::new(vec![1.0], vec![1.0 / agents as f64; agents], 7, rule)
}

fn number(part: Part, x: f64) -> (Part, Body) {
    (part, Body::Numbers(vec![x]))
}

fn whole(gradient: f64, hessian: f64) -> Vec<(Part, Body)> {
    vec![number(Part::Gradient, gradient), number(Part::Hessian, hessian)]
}

fn correction(gradient: f64, deviation: [f64; 2], change: f64) -> Vec<(Part, Body)> {
    let deviation = (Part::Deviation, Body::Numbers(deviation.to_vec()));
    vec![number(Part::Gradient, gradient), deviation, number(Part::Entries, change)]
}

/// The learned Hessian of an agent.
fn learned(server: &FedNlServer, c: usize) -> &Vec<f64> {
    &server.agents[c].learned.as_ref().unwrap().entries
}

/// The agents that a question asks.
fn asked(server: &FedNlServer, ask: &Broadcast) -> Vec<usize> {
    ask.to.clone().unwrap_or_else(|| (0..server.weights.len()).collect())
}

/// Gives these agents' answers to a question; others are lost.
fn give(server: &mut FedNlServer, ask: &Broadcast, answers: Vec<(usize, Vec<(Part, Body)>)>) -> Next {
    let to = asked(server, ask);
    let (round, exchange) = (ask.down.round, ask.down.exchange);
    let arrived: Vec<bool> = to.iter().map(|c| answers.iter().any(|(agent, _)| agent == c)).collect();
    let update = |(agent, parts): (usize, Vec<(Part, Body)>)| ClientUpdate { agent, answers: round, weight: server.weights[agent], parts };
    let updates: Vec<ClientUpdate> = answers.into_iter().map(update).collect();
    let (down, arrived) = (&ask.down, &arrived[..]);
    server.receive(&Received { round, exchange, down, sums: &[], asked: 1.0, arrived, rounding: 0.0, updates: &updates })
}

/// In the round of an answer the distance before its correction counts, later the distance after it.
#[test]
fn the_distance_is_that_of_the_matrix_that_is_used() {
    let mut server = server(2, None, Some(1));
    let ask = server.open(0);
    give(&mut server, &ask, vec![(0, whole(1.0, 1.0)), (1, whole(1.0, 1.0))]);
    assert_eq!(server.theta, [0.0]);
    let ask = server.open(1);
    let c = asked(&server, &ask)[0];
    give(&mut server, &ask, vec![(c, correction(0.5, [3.0, 0.0], 3.0))]);
    // M = 1 + 3/2; the other agent's model has its minimum at 0.
    assert!((server.theta[0] + 0.1).abs() < 1e-15, "{:?}", server.theta);
    assert_eq!((server.agents[c].deviation, &learned(&server, c)[..], server.sum[0]), (0.0, &[4.0][..], 2.5));
}

/// With fresh corrections the step of the round uses the matrix and the distance after them.
#[test]
fn fresh_corrections_count_in_their_round() {
    let mut server = server(2, None, None);
    server.is_fresh = true;
    let ask = server.open(0);
    give(&mut server, &ask, vec![(0, whole(1.0, 1.0)), (1, whole(1.0, 1.0))]);
    let ask = server.open(1);
    give(&mut server, &ask, vec![(0, correction(0.5, [3.0, 1.0], 3.0)), (1, correction(0.5, [0.0, 0.0], 0.0))]);
    // M = (4 + 1) / 2 + 1 / 2 = 3, and the gradient is 1 / 2.
    assert!((server.theta[0] + 1.0 / 6.0).abs() < 1e-15, "{:?}", server.theta);
    assert_eq!((learned(&server, 0)[0], server.sum[0]), (4.0, 2.5));
}

/// All agents are asked until all have answered, not only in the first round.
#[test]
fn all_agents_are_asked_until_all_have_been_heard() {
    let mut server = server(3, None, Some(1));
    let ask = server.open(0);
    assert_eq!(ask.to, None);
    give(&mut server, &ask, vec![(0, whole(1.0, 1.0)), (1, whole(1.0, 1.0))]);
    let ask = server.open(1);
    assert_eq!((&ask.to, &server.asked), (&Some(vec![2]), &[vec![2], vec![0, 1]]));
    assert!(matches!(give(&mut server, &ask, vec![(2, whole(1.0, 1.0))]), Next::Ask(_)));
    let ask = server.open(2);
    assert_eq!(asked(&server, &ask).len(), 1);
}

/// A huge matrix leaves no rounding errors, and other errors are removed periodically.
#[test]
fn the_sum_forgets_what_was_learned_before() {
    let mut server = server(2, None, None);
    let ask = server.open(0);
    give(&mut server, &ask, vec![(0, whole(1.0, 1e20)), (1, whole(1.0, 1.0))]);
    server.forget(0);
    let ask = server.open(1);
    give(&mut server, &ask, vec![(0, whole(0.0, 1.0))]);
    assert_eq!((server.sum[0], server.heard), (1.0, 1.0));
    server.sum[0] = 1.5;
    for (round, sum) in [(ROUNDS_OF_A_SUM - 2, 1.5), (ROUNDS_OF_A_SUM - 1, 1.0)] {
        let ask = server.open(round);
        let answers = (0..2usize).map(|c| (c, correction(1.0, [0.0; 2], 0.0))).collect();
        give(&mut server, &ask, answers);
        assert_eq!(server.sum[0], sum, "round {round}");
    }
}

/// A learned matrix that is not finite is dropped, and its agent is asked for its whole Hessian.
#[test]
fn a_matrix_that_is_not_finite_is_dropped() {
    let mut server = server(2, None, None);
    let ask = server.open(0);
    give(&mut server, &ask, vec![(0, whole(1.0, 1.0)), (1, whole(1.0, 3.0))]);
    server.agents[0].learned.as_mut().unwrap().entries[0] = f64::MAX;
    let ask = server.open(1);
    let change = |c: usize| if c == 0 { f64::MAX } else { 0.0 };
    let answers = (0..2).map(|c| (c, correction(1.0, [0.0; 2], change(c)))).collect();
    give(&mut server, &ask, answers);
    assert!(server.agents[0].needs_whole && !server.agents[0].is_heard());
    assert_eq!((server.sum[0], server.heard), (1.5, 0.5));
    server.open(2);
    assert_eq!(server.asked, [vec![0], vec![1]]);
}

/// If M is not positive definite, a line search goes against the gradient; without one theta stays, and the round is counted.
#[test]
fn without_a_minimum_the_direction_is_the_gradients() {
    for trials in [Some(Trials::new(0.5, 3, 1e-4)), None] {
        let has_search = trials.is_some();
        let mut server = server(2, trials, None);
        let ask = server.open(0);
        let next = give(&mut server, &ask, vec![(0, whole(2.0, -1.0)), (1, whole(4.0, 0.5))]);
        match next {
            Next::Ask(ask) => assert_eq!((has_search, ask.down.part(Part::Step)), (true, &[-3.0][..])),
            Next::Done { .. } => assert!(!has_search),
        }
        assert_eq!((&server.theta[..], server.facts().failed_searches), (&[1.0][..], Some(u64::from(!has_search))));
    }
}

#[test]
fn numbers_that_cannot_be_learned_are_refused() {
    let server = server(2, None, None);
    let is_accepted = |exchange, parts: &[(Part, Body)]| server.accepts(exchange, parts).is_ok();
    assert!(is_accepted(WHOLE, &whole(1.0, -1e150)) && !is_accepted(WHOLE, &whole(1.0, -1e151)));
    assert!(is_accepted(CORRECT, &correction(1.0, [0.5, 0.0], 1.0)));
    assert!(!is_accepted(CORRECT, &correction(1.0, [0.5, 0.0], 1e151)));
    assert!(!is_accepted(CORRECT, &correction(1.0, [-0.5, 0.0], 1.0)));
    assert!(!is_accepted(CORRECT, &correction(1.0, [0.5, -1e-9], 1.0)));
    // The run has diverged and ends.
    assert!(is_accepted(CORRECT, &correction(f64::NAN, [f64::NAN; 2], f64::NAN)));
}
