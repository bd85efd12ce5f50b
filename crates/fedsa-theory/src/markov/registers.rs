//! The second moment of a round's variables, split by the joint state of the agents' chains.
//!
//! A round is a list of linear instructions on registers of d numbers and the constant 1. One vector Y contains them all, and the
//! recursion follows `E[Y Y^T 1{s}]` for every joint state s. An instruction that uses a sample moves the chain of its agent:
//!
//! ```text
//! X'(s') = sum over moves of agent c from s to s':  p T X(s) T^T,    T changes one register by A and w of the move
//! ```
//!
//! Agents can take their steps one after another, because their chains are independent and each has its own registers. The result is
//! exact for every method whose round is such a list.

use std::sync::Mutex;

use super::MarkovAgent;
use super::stationary::CellMap;
use crate::symmetric::{packed_index, packed_len};
use fedsa::error::{Result, require};
use fedsa::linalg;
use fedsa::parallel;
use fedsa::sampling::ChainStart;

/// The number of a register.
pub(super) type Register = usize;

/// One instruction of a round.
#[derive(Debug, Clone)]
pub(super) enum Instruction {
    /// `into <- sum factor * register`.
    Combine { into: Register, terms: Vec<(f64, Register)> },
    /// Agent `agent` uses its next sample: `into <- into + scale g(at)`, `g(u) = -(A u + w)`; its chain moves.
    Sample { agent: usize, into: Register, at: Register, scale: f64 },
}

/// A sample for an instruction: `A` in row-major order and `w`, and the moves that carry it, (to, p).
#[derive(Debug, Clone)]
struct Sample {
    a: Vec<f64>,
    w: Vec<f64>,
    moves: Vec<(usize, f64)>,
}

/// One agent's moves, grouped by the state before the move and by sample.
#[derive(Debug, Clone)]
struct Chain {
    states: usize,
    stride: usize,
    /// The samples of each state.
    samples: Vec<Vec<Sample>>,
    /// The moves into each state if every sample has one move: the state before the move, its sample there, and p.
    arrivals: Option<Vec<Vec<(usize, usize, f64)>>>,
    stationary: Vec<f64>,
    labels: Vec<u32>,
}

impl Chain {
    /// The chain whose states are `stride` apart in the numbers of joint states.
    fn new(agent: &MarkovAgent, stride: usize, centred: bool) -> Self {
        let mean = if centred { agent.mean_w() } else { vec![0.0; agent.dim] };
        let mut samples: Vec<Vec<Sample>> = vec![Vec::new(); agent.states];
        for m in &agent.moves {
            let w: Vec<f64> = m.w.iter().zip(&mean).map(|(w, mean)| w - mean).collect();
            let (a, to) = (linalg::to_rows(&m.a), (m.to as usize, m.p));
            let of_state = &mut samples[m.from as usize];
            // Samples of states do not depend on the state after the move.
            match of_state.last_mut().filter(|last| last.a == a && last.w == w) {
                Some(last) => last.moves.push(to),
                None => of_state.push(Sample { a, w, moves: vec![to] }),
            }
        }
        let arrivals = samples.iter().flatten().all(|sample| sample.moves.len() == 1).then(|| {
            let mut into = vec![Vec::new(); agent.states];
            for (from, of_state) in samples.iter().enumerate() {
                for (i, sample) in of_state.iter().enumerate() {
                    sample.moves.iter().for_each(|(to, p)| into[*to].push((from, i, *p)));
                }
            }
            into
        });
        Self { states: agent.states, stride, samples, arrivals, stationary: agent.stationary.clone(), labels: agent.labels.clone() }
    }

    /// The law of the state at the start of a run.
    fn start(&self, start: ChainStart) -> Result<Vec<f64>> {
        let ChainStart::State(label) = start else { return Ok(self.stationary.clone()) };
        let at = self.labels.iter().position(|l| *l == label);
        require(at.is_some(), "start", label, "a state of the closed class of every chain")?;
        Ok((0..self.states).map(|s| f64::from(u8::from(Some(s) == at))).collect())
    }
}

/// The mean and second-moment map of one round.
#[derive(Debug, Clone)]
pub(super) struct RoundMap {
    dim: usize,
    /// The first registers, which last from round to round; theta is register 0.
    main: usize,
    /// The number of coordinates of Y, `registers d + 1`.
    side: usize,
    /// The number of joint states.
    cells: usize,
    chains: Vec<Chain>,
    round: Vec<Instruction>,
    /// The joint stationary law (cells).
    law: Vec<f64>,
}

impl RoundMap {
    /// The map of a round on `registers` registers. The first `main` last from round to round; `centred` replaces `w` by `w - wbar_c`.
    pub(super) fn new(agents: &[&MarkovAgent], main: usize, registers: usize, round: Vec<Instruction>, centred: bool) -> Self {
        let mut stride = 1;
        let mut chains = Vec::with_capacity(agents.len());
        for agent in agents {
            chains.push(Chain::new(agent, stride, centred));
            stride *= agent.states;
        }
        let (dim, cells) = (agents[0].dim, stride);
        let law = joint_law(&chains, cells, |c| c.stationary.clone());
        Self { dim, main, side: registers * dim + 1, cells, chains, round, law }
    }

    /// The joint law of the chains' states at the start of a run.
    ///
    /// # Errors
    /// When an agent's chain does not have the state, or leaves it permanently.
    pub(super) fn start_law(&self, start: ChainStart) -> Result<Vec<f64>> {
        let laws: Vec<Vec<f64>> = self.chains.iter().map(|c| c.start(start)).collect::<Result<_>>()?;
        let mut laws = laws.into_iter();
        Ok(joint_law(&self.chains, self.cells, |_| laws.next().unwrap_or_default()))
    }

    /// The position of coordinate i of `(y, 1)` in Y.
    fn place(&self, i: usize) -> usize {
        if i == self.lasting() { self.side - 1 } else { i }
    }

    /// `X <- T X T^T` in one cell, where T sets register `into` to a combination.
    fn combine(&self, cell: &mut [f64], rows: &mut [f64], into: Register, terms: &[(f64, Register)]) {
        let (d, n) = (self.dim, self.side);
        rows.fill(0.0);
        for (i, row) in rows.chunks_exact_mut(n).enumerate() {
            for (factor, from) in terms {
                let source = &cell[(from * d + i) * n..][..n];
                row.iter_mut().zip(source).for_each(|(r, x)| *r += factor * x);
            }
        }
        // The block (into, into) needs the second factor too; the rest of the register's columns are its rows.
        for row in rows.chunks_exact_mut(n) {
            let own: Vec<f64> = (0..d).map(|j| terms.iter().map(|(factor, from)| factor * row[from * d + j]).sum()).collect();
            row[into * d..][..d].copy_from_slice(&own);
        }
        self.put(cell, rows, into);
    }

    /// Writes the rows of a register and, transposed, its columns.
    fn put(&self, cell: &mut [f64], rows: &[f64], into: Register) {
        let (d, n) = (self.dim, self.side);
        for (i, row) in rows.chunks_exact(n).enumerate() {
            let at = into * d + i;
            cell[at * n..][..n].copy_from_slice(row);
            row.iter().enumerate().for_each(|(b, x)| cell[b * n + at] = *x);
        }
    }

    /// `T X T^T` in one cell, where T adds `scale g(at)` of a sample to register `into`.
    fn moved(&self, sample: &Sample, cell: &[f64], scratch: &mut Scratch, (into, at, scale): (Register, Register, f64)) {
        let (d, n) = (self.dim, self.side);
        let Scratch { rows, image } = scratch;
        for (i, row) in rows.chunks_exact_mut(n).enumerate() {
            row.copy_from_slice(&cell[(into * d + i) * n..][..n]);
            for (k, a) in sample.a[i * d..][..d].iter().enumerate() {
                let source = &cell[(at * d + k) * n..][..n];
                row.iter_mut().zip(source).for_each(|(r, x)| *r -= scale * a * x);
            }
            let last = &cell[(n - 1) * n..][..n];
            row.iter_mut().zip(last).for_each(|(r, x)| *r -= scale * sample.w[i] * x);
        }
        for row in rows.chunks_exact_mut(n) {
            let step = |j: usize| -> f64 {
                let g: f64 = (0..d).map(|k| sample.a[j * d + k] * row[at * d + k]).sum();
                row[into * d + j] - scale * (g + sample.w[j] * row[n - 1])
            };
            let own: Vec<f64> = (0..d).map(step).collect();
            row[into * d..][..d].copy_from_slice(&own);
        }
        image.copy_from_slice(cell);
        self.put(image, rows, into);
    }

    fn scratch(&self) -> Scratch {
        Scratch { rows: vec![0.0; self.dim * self.side], image: vec![0.0; self.side * self.side] }
    }

    /// One sample of a chain in all cells. Both ways add up a cell in the same order.
    fn sample(&self, chain: &Chain, now: &[f64], next: &mut [f64], what: (Register, Register, f64)) {
        let size = self.side * self.side;
        let state = |cell: usize| cell / chain.stride % chain.states;
        if let Some(arrivals) = &chain.arrivals {
            // Cells are computed in parallel. Each thread takes scratch that no other thread uses.
            let free = Mutex::new(Vec::new());
            parallel::each_chunk(next, size, &|to, target| {
                let mut scratch = free.lock().expect("no panics under the lock").pop().unwrap_or_else(|| self.scratch());
                let base = to - state(to) * chain.stride;
                for (from, i, p) in &arrivals[state(to)] {
                    let cell = &now[(base + from * chain.stride) * size..][..size];
                    self.moved(&chain.samples[*from][*i], cell, &mut scratch, what);
                    target.iter_mut().zip(&scratch.image).for_each(|(t, x)| *t += p * x);
                }
                free.lock().expect("no panics under the lock").push(scratch);
            });
            return;
        }
        let mut scratch = self.scratch();
        for (s, cell) in now.chunks_exact(size).enumerate() {
            let base = s - state(s) * chain.stride;
            for sample in &chain.samples[state(s)] {
                self.moved(sample, cell, &mut scratch, what);
                for (to, p) in &sample.moves {
                    let target = &mut next[(base + to * chain.stride) * size..][..size];
                    target.iter_mut().zip(&scratch.image).for_each(|(t, x)| *t += p * x);
                }
            }
        }
    }
}

/// The changed rows of a cell, and the changed cell.
struct Scratch {
    rows: Vec<f64>,
    image: Vec<f64>,
}

impl CellMap for RoundMap {
    fn dim(&self) -> usize {
        self.dim
    }

    fn lasting(&self) -> usize {
        self.main * self.dim
    }

    fn law(&self) -> &[f64] {
        &self.law
    }
    fn second_work(&self) -> f64 {
        let moves = |c: usize| self.chains[c].samples.iter().flatten().map(|sample| (1.0, sample.moves.len() as f64));
        let each = |c: usize| moves(c).fold((0.0, 0.0), |(a, b), (x, y)| (a + x, b + y));
        let (d, n, cells) = (self.dim as f64, self.side as f64, self.cells as f64);
        let of = |instruction: &Instruction| match instruction {
            Instruction::Combine { terms, .. } => cells * d * n * (terms.len() as f64 + 3.0),
            Instruction::Sample { agent, .. } => {
                let (samples, targets) = each(*agent);
                let share = cells / self.chains[*agent].states as f64;
                // The changed rows and columns and a copy of the cell for each sample, and its sum with each cell to which it moves.
                share * (samples * (d * n * (d + 4.0) + d * d * (d + 2.0) + n * n + 40.0 * d) + targets * n * n)
            }
        };
        // Rows are added at about two numbers a nanosecond. Cells are unpacked and packed.
        0.6 * self.round.iter().map(of).sum::<f64>() + 2.0 * cells * n * n
    }

    fn second(&self, x: &[f64], out: &mut [f64]) {
        let (n, size, m) = (self.side, self.side * self.side, self.lasting() + 1);
        let packed = packed_len(m);
        let mut now = vec![0.0; self.cells * size];
        for (cell, x) in now.chunks_exact_mut(size).zip(x.chunks_exact(packed)) {
            for j in 0..m {
                for i in 0..=j {
                    let (a, b, value) = (self.place(i), self.place(j), x[packed_index(i, j)]);
                    cell[a * n + b] = value;
                    cell[b * n + a] = value;
                }
            }
        }
        let mut next = vec![0.0; now.len()];
        for instruction in &self.round {
            match instruction {
                Instruction::Combine { into, terms } => {
                    let mut rows = vec![0.0; self.dim * n];
                    now.chunks_exact_mut(size).for_each(|cell| self.combine(cell, &mut rows, *into, terms));
                }
                Instruction::Sample { agent, into, at, scale } => {
                    next.fill(0.0);
                    self.sample(&self.chains[*agent], &now, &mut next, (*into, *at, *scale));
                    std::mem::swap(&mut now, &mut next);
                }
            }
        }
        for (cell, out) in now.chunks_exact(size).zip(out.chunks_exact_mut(packed)) {
            for j in 0..m {
                for i in 0..=j {
                    out[packed_index(i, j)] = cell[self.place(i) * n + self.place(j)];
                }
            }
        }
    }

    fn mean(&self, x: &[f64], out: &mut [f64]) {
        let (d, n, m) = (self.dim, self.side, self.lasting() + 1);
        let mut now = vec![0.0; self.cells * n];
        for (cell, x) in now.chunks_exact_mut(n).zip(x.chunks_exact(m)) {
            (0..m).for_each(|i| cell[self.place(i)] = x[i]);
        }
        let mut next = vec![0.0; now.len()];
        for instruction in &self.round {
            match instruction {
                Instruction::Combine { into, terms } => now.chunks_exact_mut(n).for_each(|cell| {
                    let value = |i: usize| terms.iter().map(|(factor, from)| factor * cell[from * d + i]).sum();
                    let values: Vec<f64> = (0..d).map(value).collect();
                    cell[into * d..][..d].copy_from_slice(&values);
                }),
                Instruction::Sample { agent, into, at, scale } => {
                    next.fill(0.0);
                    let chain = &self.chains[*agent];
                    for (s, cell) in now.chunks_exact(n).enumerate() {
                        let state = s / chain.stride % chain.states;
                        let base = s - state * chain.stride;
                        for sample in &chain.samples[state] {
                            let mut image = cell.to_vec();
                            for i in 0..d {
                                let g: f64 = (0..d).map(|k| sample.a[i * d + k] * cell[at * d + k]).sum();
                                image[into * d + i] -= scale * (g + sample.w[i] * cell[n - 1]);
                            }
                            for (to, p) in &sample.moves {
                                let target = &mut next[(base + to * chain.stride) * n..][..n];
                                target.iter_mut().zip(&image).for_each(|(t, x)| *t += p * x);
                            }
                        }
                    }
                    std::mem::swap(&mut now, &mut next);
                }
            }
        }
        for (cell, out) in now.chunks_exact(n).zip(out.chunks_exact_mut(m)) {
            (0..m).for_each(|i| out[i] = cell[self.place(i)]);
        }
    }
}

/// The product of one law for each chain.
fn joint_law(chains: &[Chain], cells: usize, mut law: impl FnMut(&Chain) -> Vec<f64>) -> Vec<f64> {
    let mut joint = vec![1.0; cells];
    for chain in chains {
        let q = law(chain);
        joint.iter_mut().enumerate().for_each(|(s, p)| *p *= q[s / chain.stride % chain.states]);
    }
    joint
}
