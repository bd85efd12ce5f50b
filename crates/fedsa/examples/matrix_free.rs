//! Logistic regression with a million features on 8 agents by SHED, without a d x d matrix anywhere.
//!
//! Rows are sparse, and made here: each has some 25 numbers, half of them in columns that all agents share and half in columns of the
//! agent's own, column j of either with a probability proportional to 1 / j and numbers of size `j^-1/2`, so that eigenvalues fall
//! about as `j^-2`. `cargo run --release -p fedsa --example matrix_free` stops where the gradient is 1e-6 of the first one, and
//! prints the rounds, seconds, products with Hessians, pairs at the server, and the largest resident memory of the process.
//! Arguments are relative residuals of pairs (`pair_tolerance`), one run each: `-- 1e-8 1e-4 1e-2`.

use std::sync::Arc;
use std::time::Instant;

use fedsa::error::Result;
use fedsa::federation::Federation;
use fedsa::kernel::Isa;
use fedsa::problem::{Field, equal_weights};
use fedsa::random::{ALL, Purpose, stream};
use fedsa::round::Run;
use fedsa::sampling::{Law, Sampling};
use fedsa::uplink::Uplink;
use fedsa_methods::shed::Shed;
use fedsa_problems::logs::replay::Sources;
use fedsa_problems::rows::dataset::Rows;
use fedsa_problems::rows::glm::family::ModelFamily;
use fedsa_problems::rows::preparation::quality::LabelledRows;
use fedsa_problems::rows::regression::Logistic;

const FEATURES: usize = 1_000_000;
const AGENTS: usize = 8;
const ROWS: usize = 12_000;
const STORED: usize = 25;
const RIDGE: f64 = 1e-3;
const MAX_PAIRS: usize = 12;
const TARGET: f64 = 1e-6;
const MAX_ROUNDS: u64 = 400;

fn main() -> Result<()> {
    let given: Vec<f64> = std::env::args().skip(1).filter_map(|x| x.parse().ok()).collect();
    let tolerances = if given.is_empty() { vec![1e-8] } else { given };
    let begin = Instant::now();
    let sampling = Sampling::default().with_kind(Law::Mean);
    let settings = Logistic { ridge: RIDGE, ..Logistic::new(Sources::One(String::new())) };
    let field = settings.field_of(data(), equal_weights(AGENTS), sampling, Isa::best())?;
    println!("{AGENTS} agents, {ROWS} rows each, d = {FEATURES}, made in {:.1} s", begin.elapsed().as_secs_f64());
    for tolerance in tolerances {
        fit(&field, tolerance)?;
    }
    Ok(())
}

/// The agents' rows with their labels.
fn data() -> LabelledRows {
    // The weight of a column behind the labels.
    let mut draws = stream(0, Purpose::System, 0, ALL);
    let behind: Vec<f64> = (0..FEATURES).map(|_| draws.normal()).collect();
    let (mut starts, mut index, mut value, mut targets) = (vec![0], Vec::new(), Vec::new(), Vec::new());
    for c in 0..AGENTS {
        let mut s = stream(0, Purpose::System, 1, c);
        for _ in 0..ROWS {
            let mut row: Vec<(u32, f64)> = (0..STORED)
                .map(|k| {
                    let j = ((FEATURES as f64).powf(s.uniform()) as usize).clamp(1, FEATURES);
                    // Odd primes scatter the agents' own columns among all.
                    let column = if k % 2 == 0 { j - 1 } else { (j * 7919 + (c + 1) * 104_729) % FEATURES };
                    (column as u32, s.normal() / (j as f64).sqrt())
                })
                .collect();
            row.sort_by_key(|(column, _)| *column);
            row.dedup_by_key(|(column, _)| *column);
            let score: f64 = row.iter().map(|(column, x)| x * behind[*column as usize]).sum();
            targets.push(if s.uniform() * (1.0 + (-3.0 * score).exp()) < 1.0 { 1.0 } else { -1.0 });
            index.extend(row.iter().map(|(column, _)| *column));
            value.extend(row.iter().map(|(_, x)| *x));
            starts.push(index.len());
        }
    }
    LabelledRows {
        rows: Rows::Sparse { d: FEATURES, starts, index, value },
        first: (0..=AGENTS).map(|c| c * ROWS).collect(),
        targets,
        offsets: Vec::new(),
        row_weights: Vec::new(),
        family: ModelFamily::Binomial,
    }
}

/// `||sum_c p_c grad f_c(theta)||`.
fn gradient_norm(field: &Arc<dyn Field>, theta: &[f64]) -> f64 {
    let (mut sum, mut own) = (vec![0.0; theta.len()], vec![0.0; theta.len()]);
    for (c, weight) in field.weights().iter().enumerate() {
        field.mean(c, theta, &mut own);
        sum.iter_mut().zip(&own).for_each(|(sum, g)| *sum += weight * g);
    }
    fedsa::linalg::norm_sq(&sum).sqrt()
}

/// The largest resident memory of this process so far, in megabytes, where the system tells it.
fn peak_megabytes() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let kilobytes: f64 = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?.trim().trim_end_matches(" kB").parse().ok()?;
    Some(kilobytes / 1024.0)
}

fn fit(field: &Arc<dyn Field>, pair_tolerance: f64) -> Result<()> {
    let method = Shed::default().with_most_pairs(MAX_PAIRS).with_pair_tolerance(pair_tolerance);
    let uplink = Uplink::default();
    let mut run = Federation::builder(&method).uplink(&uplink).seed(0).on(&**field).and_then(|federation| Run::new(field, &federation))?;
    let (first, begin) = (gradient_norm(field, run.theta()), Instant::now());
    let mut norm = first;
    while norm > TARGET * first && run.round() < MAX_ROUNDS {
        run.step();
        norm = gradient_norm(field, run.theta());
        if run.round() % 10 == 0 {
            println!("  round {}: {:.1e}, {:.0} s", run.round(), norm / first, begin.elapsed().as_secs_f64());
        }
    }
    let ledger = run.ledger();
    println!(
        "pair_tolerance {pair_tolerance:e}: {} rounds, relative gradient {:.2e}, {:.1} s, {} products, {} vectors up, at most {} pairs at \
         the server, {:.0} MB up, peak memory {:.0} MB",
        run.round(),
        norm / first,
        begin.elapsed().as_secs_f64(),
        ledger.calls.hessian_vectors,
        ledger.vectors_up,
        AGENTS * MAX_PAIRS,
        ledger.bits_up as f64 / 8e6,
        peak_megabytes().unwrap_or(f64::NAN),
    );
    Ok(())
}
