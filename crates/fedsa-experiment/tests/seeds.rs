//! The memory of an experiment does not grow with the number of seeds: seeds are counted, not listed.

use fedsa_experiment::config::{Document, Experiment};
use fedsa_testing::memory::{self, Used};

#[test]
fn seeds_are_counted_without_a_list_of_them() {
    let text = "[problem]\nkind = \"garnet\"\n[[method]]\nkind = \"fedtd\"\nstep_size = 0.1\n[run]\nrounds = 1\nseeds = 10000000\n";
    let read = || Document::parse("seeds.toml", text).and_then(Experiment::read).and_then(|experiment| experiment.settings());
    let (read, Used { peak, .. }) = memory::of(read);
    assert!(read.is_ok());
    assert!(peak < 4 << 20, "{peak} bytes of memory");
}
