//! Q-SHED: its quantiser in the model of its loss, what it sends, budgets, losses, and SHED as its limit.

use std::sync::Arc;

use crate::common::{EXACT, Halves, bits, distance, engine, field, linear, link, method, on_the_wire, run_from};
use fedsa::linalg::Mat;
use fedsa::message::{Body, Message, Part};
use fedsa::method::MethodSettings;
use fedsa::node::{ClientNode, Federation, ServerNode, Todo};
use fedsa::problem::Field;
use fedsa::random::{Purpose, Stream, stream};
use fedsa::record::OutputRule;
use fedsa::sampling::Law;
use fedsa::schedule::renewal::Pairs;
use fedsa::uplink::{MessageKey, Uplink};
use fedsa_methods::bit_allocation::{Allocation, CountRule, allocate};
use fedsa_methods::nested_grid;
use fedsa_methods::q_shed::QShed;
use fedsa_methods::shed::Shed;
use fedsa_problems::linear::affine::LinearSystems;
use fedsa_problems::nonlinear::random_logistic::RandomLogistic;

const SEED: u64 = 5;
const ONCE: &str = r#""renewal": {"schedule": "once"}"#;

fn logistic(agents: usize, dim: usize) -> Arc<dyn Field> {
    field(&RandomLogistic::default().with_agents(agents).with_dim(dim).with_points(4 * dim).with_ridge(0.01), Law::Mean)
}

/// Agents whose eigenvectors differ, with eigenvalues that fall about as the powers of `decay^2`.
fn least_squares<const D: usize>(agents: usize, seed: u64, decay: f64) -> LinearSystems {
    let mut draws = stream(seed, Purpose::Pairs, 7, 0);
    let mut agent = || {
        let rows: Vec<[f64; D]> = (0..2 * D).map(|_| std::array::from_fn(|j| draws.normal() * decay.powi(j as i32))).collect();
        let entry = |i: usize, j: usize| rows.iter().map(|x| x[i] * x[j]).sum::<f64>() / (2 * D) as f64;
        let a: [[f64; D]; D] = std::array::from_fn(|i| std::array::from_fn(|j| entry(i.max(j), i.min(j))));
        (a, std::array::from_fn(|_| draws.normal()))
    };
    linear(&(0..agents).map(|_| agent()).collect::<Vec<_>>())
}

fn errors(field: &Arc<dyn Field>, method: &dyn MethodSettings, link: &Uplink, rounds: u64) -> Vec<f64> {
    let root = field.root().unwrap();
    let mut run = crate::common::run(field, method, link, SEED);
    let mut errors = vec![distance(run.theta(), root)];
    (0..rounds).for_each(|_| {
        run.step();
        errors.push(distance(run.theta(), root));
    });
    errors
}

/// [T] eq. 3.14 with `a1 = 1/6 + n/6` is the mean squared error of Hessians whose eigenvectors pass the quantiser itself. The coefficient
/// that is printed, 1/12 + n/6, is not.
#[test]
fn the_quantiser_has_the_loss_that_is_minimised() {
    let values = [2.0, 1.2, 0.7, 0.3, 0.1, 0.05];
    let n = values.len();
    let mut draws = stream(1, Purpose::Fresh, 0, 0);
    let basis = Mat::from_fn(n, n, |_, _| draws.normal()).qr().compute_thin_Q();
    for bits in [vec![3u32, 2, 2], vec![1, 1], vec![5, 1, 3, 1]] {
        let q = bits.len();
        let expected = Allocation::new(&values, &vec![0; q], 16).loss(&bits);
        let rho = values[q];
        let vector = |i: usize| basis.col_as_slice(i);
        let (mut sum, mut squares, count) = (0.0, 0.0, 100_000);
        for seed in 0..count {
            let mut off = vec![0.0; n * n];
            for (i, value) in values.iter().enumerate() {
                let mut add = |weight: f64, v: &[f64]| {
                    (0..n).for_each(|a| (0..n).for_each(|b| off[a * n + b] += weight * v[a] * v[b]));
                };
                add(value - rho, vector(i));
                if let Some(bits) = bits.get(i) {
                    let grid = || nested_grid::offsets(seed, 0, 0, i);
                    let codes = nested_grid::codes(vector(i), grid());
                    let across = nested_grid::across(vector(i), &codes, *bits, grid());
                    let sent: Vec<u32> = codes.iter().map(|code| nested_grid::leading(*code, *bits)).collect();
                    add(rho - value, &nested_grid::decode(&sent, *bits, &across, grid()));
                }
            }
            let loss: f64 = off.iter().map(|x| x * x).sum();
            sum += loss;
            squares += loss * loss;
        }
        let count = count as f64;
        let mean = sum / count;
        let error = ((squares / count - mean * mean) / count).sqrt();
        assert!((mean - expected).abs() < 4.0 * error, "{bits:?}: {mean} +- {error}, expected {expected}");
        let extra: f64 = bits.iter().zip(values).map(|(b, l)| (l - rho).powi(2) * 4f64.powi(1 - *b as i32)).sum();
        let printed = expected - extra / 12.0;
        assert!((mean - printed).abs() > 5.0 * error, "{bits:?}: {mean} +- {error}, with the printed coefficient {printed}");
    }
}

/// With a budget for all vectors, ideal-SHED is SHED that sends all pairs at once, bit for bit, and Q-SHED is close, the closer the more
/// bits.
#[test]
fn large_budgets_give_shed() {
    let (d, rounds) = (8, 25);
    let field = logistic(5, d);
    let trace = |method: &dyn MethodSettings| {
        let mut run = run_from(&field, method, SEED, &vec![0.0; d]);
        let step = |_| {
            run.step();
            run.theta().to_vec()
        };
        (0..rounds).map(step).collect::<Vec<_>>()
    };
    let shed = trace(&Shed::default().with_pairs(Pairs::Same(d - 1)));
    let with = |rest: &str| trace(&*method("q-shed", &format!(r#"{{"budget": 1000{rest}}}"#)));
    for (shed, ideal) in shed.iter().zip(with(r#", "allocation": "ideal""#)) {
        assert_eq!(bits(shed), bits(&ideal));
    }
    let size = distance(&shed[rounds - 1], &[0.0; 8]);
    let mut before = f64::INFINITY;
    for (most, close) in [(8, 1e-1), (16, 1e-3), (32, 1e-8)] {
        for rule in ["optimal", "exact", "first-vectors"] {
            let quantised = with(&format!(r#", "max_bits": {most}, "allocation": "{rule}""#));
            let off = shed.iter().zip(&quantised).map(|(a, b)| distance(a, b)).fold(0.0, f64::max) / size;
            assert!(off < close && off < before, "{most} bits, {rule}: {off}");
            // The steps that SHED takes, and the same optimum.
            assert!(distance(&shed[rounds - 1], &quantised[rounds - 1]) < 1e-9 * size, "{most} bits, {rule}");
            before = if rule == "first-vectors" { 2.0 * off } else { before };
        }
    }
}

/// What an agent sends, to the bit: NQ-SHED with 16 bits and a budget of 17 sends a vector a round until all are sent.
#[test]
fn the_ledger_counts_the_bits_that_are_sent() {
    let field = field(&least_squares::<8>(5, 1, 0.5), Law::Mean);
    let (n, d, rounds) = (5u64, 8u64, 10u64);
    let nq = method("q-shed", &format!(r#"{{"allocation": "first-vectors", "budget": 17, {ONCE}}}"#));
    let mut run = run_from(&field, &*nq, SEED, &[0.0; 8]);
    (0..rounds).for_each(|_| run.step());
    let ledger = run.ledger();
    // A header, four parts, the gradient, round, index and rho, and the head of the refinement.
    let always = 27 + 4 * 6 + 8 * d + 3 * 8 + 8;
    // An eigenvalue, 6 + 3 bits of the refinement in whole bytes, and 16 bits a component.
    let pair = 8 + 2 + 2 * d;
    let losses = 27 + 6 + 8 * 23;
    assert_eq!(ledger.bits_up, 8 * n * (rounds * (always + losses) + (d - 1) * pair));
    assert_eq!((ledger.vectors_up, ledger.calls.hessians, ledger.exchanges), (n * rounds, n, 2 * rounds));
    // The same as machines send.
    for settings in ["{}", r#"{"budget": 3}"#, r#"{"allocation": "ideal"}"#, r#"{"allocation": "first-vectors"}"#] {
        let method = method("q-shed", settings);
        let mut engine = run_from(&field, &*method, SEED, &[0.0; 8]);
        let mut halves = Halves::new(&field, &*method, &EXACT, SEED).unwrap();
        for _ in 0..rounds {
            engine.step();
            halves.round();
            assert_eq!((bits(halves.server.theta()), halves.ledger), (bits(engine.theta()), on_the_wire(engine.ledger())), "{settings}");
        }
    }
}

/// Digits never exceed what the link carries in a round, and use it while there is anything left to say.
#[test]
fn digits_stay_within_the_budget_of_their_link() {
    let d = 12;
    let field = logistic(3, d);
    for (rule, least) in [("optimal", 0.99), ("exact", 0.99), ("first-vectors", 0.2)] {
        let method = method("q-shed", &format!(r#"{{"allocation": "{rule}", {ONCE}}}"#));
        let uplink = link(r#"{"kind": "exact"}"#, false, &[r#"{"kind": "bit-budget", "bits": 10, "fading_snr": 1.0}"#]).unwrap();
        let federation = Federation::new(&*method, &uplink, field.weights().to_vec(), SEED, vec![0.0; d]).unwrap();
        let mut server = ServerNode::new(&federation).unwrap();
        let mut nodes: Vec<_> = (0..3).map(|c| ClientNode::new(&federation, &field, c, c).unwrap()).collect();
        let (mut used, mut carried, mut sent) = (0, 0, [0; 3]);
        for round in 0..40 {
            let mut todo = server.open();
            while let Todo::Ask { to, bytes } = todo {
                let answers: Vec<_> = to.iter().zip(&bytes).map(|(c, bytes)| (*c, nodes[*c].handle(bytes).unwrap().unwrap())).collect();
                for (agent, answer) in &answers {
                    let (_, message) = Message::decode(answer, &*EXACT.codec, 1 << 20, |_, _| Stream::default()).unwrap();
                    let Some(Body::Packed(digits)) = message.find(Part::Digits) else { continue };
                    let budget = uplink.allowance(MessageKey { seed: SEED, round, exchange: 0, agent: *agent }, d).unwrap();
                    assert!(digits.len() as u64 <= budget.div_ceil(8), "{rule}: {} bytes of {budget} bits", digits.len());
                    sent[*agent] += 8 * digits.len();
                    if sent[*agent] < 16 * d * (d - 2) {
                        (used, carried) = (used + 8 * digits.len() as u64, carried + budget);
                    }
                }
                todo = server.receive(&answers).todo;
            }
        }
        assert!(used as f64 >= least * carried as f64, "{rule}: {used} of {carried}");
    }
}

/// A budget that never carries a bit leaves gradient steps; one bit a component is enough to work with; what is encoded needs more.
#[test]
fn small_budgets_work_or_are_refused() {
    let field = logistic(4, 6);
    let exact = r#"{"kind": "exact"}"#;
    let none = link(exact, false, &[r#"{"kind": "bit-budget", "bits": 0.5}"#]).unwrap();
    let never = link(exact, false, &[r#"{"kind": "bit-budget", "bits": 32, "fading_snr": 1e-300}"#]).unwrap();
    let one = link(exact, false, &[r#"{"kind": "bit-budget", "bits": 1}"#]).unwrap();
    let at = |link: &Uplink, settings: &str, rounds| errors(&field, &*method("q-shed", settings), link, rounds)[rounds as usize];
    let start = distance(field.root().unwrap(), &[0.0; 6]);
    for rule in ["optimal", "exact", "first-vectors", "ideal"] {
        let settings = format!(r#"{{"allocation": "{rule}"}}"#);
        // Without a bit all rules are the same method.
        let expected = at(&none, "{}", 200);
        assert!(expected < 0.5 * start, "{expected} of {start}");
        assert_eq!((at(&none, &settings, 200), at(&never, &settings, 200)), (expected, expected), "{rule}");
    }
    for most in [1, 2, 32] {
        let error = at(&one, &format!(r#"{{"max_bits": {most}}}"#), 150);
        assert!(error < 1e-6 * start, "{most}: {error:e}");
        let wide = at(&EXACT, &format!(r#"{{"max_bits": {most}}}"#), 150);
        assert!(wide < 1e-9 * start, "{most}: {wide:e}");
    }
    let refusal = |kind: &str, settings: &str, link: &Uplink| {
        let start = vec![0.0; field.dim()];
        engine(&field, &*method(kind, settings), link, OutputRule::Last, SEED, start).err().expect("refused").to_string()
    };
    assert!(refusal("shed", "{}", &none).contains("never carries a message"));
    assert!(refusal("gd", r#"{"step_size": 0.1}"#, &never).contains("never carries a message"));
    for (codec, feedback) in [(r#"{"kind": "quantised", "bits": 4}"#, false), (exact, true)] {
        let link = link(codec, feedback, &[]).unwrap();
        assert!(refusal("q-shed", "{}", &link).contains("may be altered by a codec"));
    }
    for (medium, why) in [
        (r#"{"kind": "over-the-air", "receiver_noise": 0.1}"#, "only their sum arrives"),
        (r#"{"kind": "late", "law": "uniform", "max": 3}"#, "at one iterate"),
        (r#"{"kind": "delay", "law": "uniform", "max": 3}"#, "at one iterate"),
    ] {
        assert!(refusal("q-shed", "{}", &link(exact, false, &[medium]).unwrap()).contains(why));
    }
    // A budget of the method's own would have no effect.
    let budget = link(exact, false, &[r#"{"kind": "bit-budget", "bits": 4}"#]).unwrap();
    let why = refusal("q-shed", r#"{"budget": 5}"#, &budget);
    assert!(why.contains("budget = 5 has no effect") && why.contains("bit-budget"), "{why}");
    for (settings, link) in [("{}", &budget), (r#"{"budget": 5}"#, &EXACT)] {
        assert!(engine(&field, &*method("q-shed", settings), link, OutputRule::Last, SEED, vec![0.0; 6]).is_ok(), "{settings}");
    }
    let bad = |settings: &str| method("q-shed", settings).check(3).unwrap_err().key;
    for (settings, key) in [
        (r#"{"max_bits": 0}"#, "max_bits"),
        (r#"{"max_bits": 33}"#, "max_bits"),
        (r#"{"budget": 0}"#, "budget"),
        (r#"{"decrease": 0.5}"#, "decrease"),
        (r#"{"shrink": 1.0}"#, "shrink"),
        (r#"{"shrinks": 61}"#, "shrinks"),
    ] {
        assert_eq!(bad(settings), key);
    }
    assert!(QShed::default().check(3).is_ok());
}

/// Over links that lose answers, agents whose gradients at the root are zero bring the error to zero: what the server holds is never
/// anything but bits of their eigenvectors.
#[test]
fn losses_leave_the_bits_intact() {
    let different = least_squares::<6>(5, 2, 0.5);
    let mut alike = different.clone();
    // b_c = A_c 1: every agent's root is the vector of ones.
    alike.b = alike.a.iter().map(|a| a.iter().map(|row| row.iter().sum()).collect()).collect();
    let field = field(&alike, Law::Mean);
    let losses = r#"{"kind": "erasure", "success": 0.6}"#;
    let fading = r#"{"kind": "bit-budget", "bits": 16, "fading_snr": 1.0}"#;
    let of_one_hessian = |rest: &str| format!("{{{ONCE}{rest}}}");
    // With renewals every d - 1 rounds the budget must carry some vectors in these: otherwise convergence is that of gradient steps.
    for (media, settings) in [
        (&[losses][..], "{}".into()),
        (&[losses], r#"{"allocation": "ideal", "budget": 4}"#.into()),
        (&[losses], r#"{"allocation": "first-vectors"}"#.into()),
        (&[losses], of_one_hessian(r#", "budget": 4"#)),
        (&[fading, losses], "{}".into()),
        (&[fading, losses], of_one_hessian(r#", "allocation": "exact""#)),
        (&[fading, losses], of_one_hessian(r#", "allocation": "ideal""#)),
        (&[fading, losses], of_one_hessian(r#", "allocation": "first-vectors""#)),
    ] {
        let lossy = link(r#"{"kind": "exact"}"#, false, media).unwrap();
        let errors = errors(&field, &*method("q-shed", &settings), &lossy, 3000);
        assert!(errors[3000] < 1e-10, "{settings} over {media:?}: {:e}", errors[3000]);
    }
}

/// An agent that comes back from an older state thinks that the server holds less than it does. Its next answer does not count; then it is
/// told what is held, and goes on.
#[test]
fn agents_restored_from_older_states_go_on() {
    let d = 8;
    let field = logistic(3, d);
    for settings in [format!(r#"{{{ONCE}, "budget": 5}}"#), "{}".into(), format!(r#"{{{ONCE}, "budget": 5, "allocation": "ideal"}}"#)] {
        let method = method("q-shed", &settings);
        let error = |is_restored: bool| {
            let mut halves = Halves::new(&field, &*method, &EXACT, SEED).unwrap();
            (0..2).for_each(|_| halves.round());
            let old = halves.nodes[1].save();
            (0..3).for_each(|_| halves.round());
            if is_restored {
                halves.nodes[1].restore(&old).unwrap();
            }
            assert_eq!(halves.refusing_round().len(), usize::from(is_restored));
            (0..60).for_each(|_| halves.round());
            distance(halves.server.theta(), field.root().unwrap())
        };
        let (whole, restored) = (error(false), error(true));
        assert!(whole < 1e-9 && restored < 1e-9, "{settings}: {whole:e} {restored:e}");
    }
}

/// Q-SHED gets to the optimum in fewer rounds than NQ-SHED, and in at least those of ideal-SHED; the exact search is about as good as the
/// heuristic.
#[test]
fn bits_where_they_help_save_rounds() {
    let field = field(&least_squares::<24>(6, 3, 0.8), Law::Mean);
    let rounds = |rest: &str| {
        let settings = format!(r#"{{"budget": 16, "max_bits": 16, {ONCE}{rest}}}"#);
        let errors = errors(&field, &*method("q-shed", &settings), &EXACT, 200);
        errors.iter().position(|e| *e < 1e-8 * errors[0]).unwrap_or(usize::MAX)
    };
    let [optimal, exact, naive, ideal] =
        ["optimal", "exact", "first-vectors", "ideal"].map(|rule| rounds(&format!(r#", "allocation": "{rule}""#)));
    println!("optimal {optimal}, exact {exact}, first vectors {naive}, ideal {ideal} rounds");
    assert!(ideal <= optimal && optimal < naive && naive < 200);
    assert!(exact.abs_diff(optimal) <= 1 + optimal / 3);
}

/// The thesis' example spectrum: vectors of larger eigenvalues get at least as many bits, for any budget, and more bits help.
#[test]
fn bits_decrease_with_the_eigenvalue_on_the_example_of_the_thesis() {
    let values = [0.21, 0.11, 0.06, 0.03, 0.03, 0.02, 0.02, 0.01, 0.01, 0.01, 0.01];
    let mut before = f64::INFINITY;
    for budget in 0..=160 {
        let bits = allocate(&values, &[], 16, budget, CountRule::Exact);
        assert!(bits.is_sorted_by(|a, b| a >= b) && u64::from(bits.iter().sum::<u32>()) <= budget, "{bits:?}");
        let loss = Allocation::new(&values, &vec![0; bits.len()], 16).loss(&bits);
        assert!(loss <= before * (1.0 + 1e-9), "{budget} bits: {loss} {before}");
        before = loss;
    }
}
