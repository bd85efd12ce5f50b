//! Nanoseconds of one local TD(0) step, for each instruction set.
use fedsa::kernel::{Isa, LANES, Lanes};
use fedsa::problem::garnet::Garnet;
use fedsa::problem::{NoFiles, Settings};
use fedsa::random::{Purpose, stream};
use fedsa::sampling::Sampling;

fn main() {
    for isa in Isa::available() {
        let field = Garnet::default().field(&NoFiles, Sampling::default(), isa).unwrap();
        let etas = vec![0.01; 10_000];
        let mut lanes = Lanes::new(8, 0);
        let mut best = f64::INFINITY;
        for _ in 0..5 {
            let start = std::time::Instant::now();
            for block in 0..13usize {
                lanes.len = LANES.min(100 - 8 * block);
                for l in 0..lanes.len {
                    lanes.agents[l] = 8 * block + l;
                    lanes.streams[l] = stream(0, Purpose::Sample, 0, 8 * block + l);
                }
                field.leg(&mut lanes, &etas);
            }
            best = best.min(start.elapsed().as_secs_f64() * 1e9 / (100.0 * 1e4));
        }
        println!("{isa:?}: {best:.2} ns a step");
    }
}
