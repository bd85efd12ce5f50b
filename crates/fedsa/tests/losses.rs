//! Losses of the mean beside those of the agents.

use fedsa::kernel::Isa;
use fedsa::sampling::Sampling;
use fedsa_problems::nonlinear::random_logistic::RandomLogistic;
use fedsa_problems::{NoFiles, ProblemSettings as _};

#[test]
fn the_loss_and_the_mean_operator_of_one_pass_have_the_bits_of_two() {
    // More agents than a block of the sums has.
    let settings = RandomLogistic::default().with_agents(37).with_dim(4).with_points(9);
    let field = settings.field(&NoFiles, Sampling::default(), Isa::best()).unwrap();
    let theta = [0.3, -1.0, 2.0, 0.7];
    let (loss, mean) = field.mean_loss_and_operator(&theta).unwrap();
    assert_eq!(loss.to_bits(), field.mean_loss(&theta).unwrap().to_bits());
    assert_eq!(mean, field.mean_operator(&theta).unwrap());
}
