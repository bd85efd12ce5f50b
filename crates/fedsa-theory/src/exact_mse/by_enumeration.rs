//! Tests of random weights and delays by enumeration of all runs: every sequence of samples, participants, factors and
//! receivers' noise is run step by step and weighted by its probability.

use super::*;
use crate::RoundSetting;
use crate::testing::{Draw, Finite, federation};
use fedsa::linalg::Mat;
use fedsa::problem::systems::{Moments, Systems};
use fedsa::uplink::stage::delay::Before;

/// The setting of a run, and the laws of its random events.
struct World {
    kinds: Vec<Finite>,
    systems: Systems,
    moments: Vec<Moments>,
    setting: RoundSetting,
    /// Factors of messages with their probabilities.
    factors: Vec<(f64, f64)>,
    /// The receivers' noise is plus or minus this in each component of v.
    noise: f64,
    participants: usize,
    delay: usize,
    before: Before,
    noiseless: bool,
}

/// Sums over all runs, for one round.
#[derive(Clone)]
struct Seen {
    mean: Vec<f64>,
    square: f64,
}

/// All words of this length over `0..letters`.
fn words(letters: usize, length: usize) -> Vec<Vec<usize>> {
    (0..letters.pow(length as u32)).map(|n| (0..length).map(|i| n / letters.pow(i as u32) % letters).collect()).collect()
}

impl World {
    /// Two kinds of agents with two samples each, d = 2.
    fn new(seed: u64, copies: &[usize], setting: RoundSetting) -> Self {
        let kinds = Draw::new(seed).finite(copies.len(), 2, 2);
        let (systems, moments) = federation(&kinds, copies);
        let participants = systems.weights.len();
        let (factors, before) = (vec![(1.0, 1.0)], Before::First);
        Self { kinds, systems, moments, setting, factors, noise: 0.0, participants, delay: 0, before, noiseless: false }
    }

    fn agents(&self) -> usize {
        self.systems.weights.len()
    }

    fn arrivals(&self) -> ArrivalLaw {
        let moment = |power: i32| self.factors.iter().map(|(p, h)| p * h.powi(power)).sum::<f64>();
        let gains = ArrivalLaw::by_factors(moment(1), moment(2), self.noise * self.participants as f64, self.participants);
        gains.of_few(self.participants, self.agents())
    }

    /// The possible weights and noises of a round with their probabilities.
    fn rounds(&self) -> Vec<(f64, Vec<f64>, [f64; 2])> {
        let n = self.agents();
        let subsets: Vec<Vec<usize>> = words(2, n).into_iter().filter(|w| w.iter().sum::<usize>() == self.participants).collect();
        let signs = if self.noise > 0.0 { words(2, 2) } else { vec![vec![0, 0]] };
        let mut all = Vec::new();
        for subset in &subsets {
            let asked: f64 = subset.iter().zip(&self.systems.weights).map(|(takes, p)| *takes as f64 * p).sum();
            for word in words(self.factors.len(), self.participants) {
                let mut next = word.iter();
                let (mut probability, mut weights) = (1.0 / (subsets.len() * signs.len()) as f64, vec![0.0; n]);
                for c in (0..n).filter(|c| subset[*c] == 1) {
                    let (p, h) = self.factors[*next.next().unwrap()];
                    probability *= p;
                    weights[c] = h * self.systems.weights[c] / asked;
                }
                for sign in &signs {
                    let w = [0, 1].map(|i| self.noise * (2.0 * sign[i] as f64 - 1.0));
                    all.push((probability, weights.clone(), w));
                }
            }
        }
        all
    }

    /// `theta_{c,H} - theta` with these samples.
    fn displacement(&self, c: usize, theta: &[f64], samples: &[usize]) -> Vec<f64> {
        let eta = self.setting.step_size;
        let mut local = theta.to_vec();
        for z in samples {
            local = if self.noiseless {
                let g = self.systems.of(c).mean(&local);
                local.iter().zip(g).map(|(x, g)| x + eta * g).collect()
            } else {
                self.kinds[self.systems.kind_of[c] as usize].step(*z, &local, eta, &[0.0, 0.0])
            };
        }
        local.iter().zip(theta).map(|(x, y)| x - y).collect()
    }

    /// Continues a run whose models are `thetas` and whose samples of round t and agent c are `samples[t][c]`.
    fn run(&self, probability: f64, thetas: &mut Vec<Vec<f64>>, samples: &mut Vec<Vec<Vec<usize>>>, seen: &mut [Seen]) {
        let t = thetas.len() - 1;
        let theta = thetas[t].clone();
        let root = self.systems.root().unwrap();
        seen[t].mean.iter_mut().zip(theta.iter().zip(&root)).for_each(|(m, (x, r))| *m += probability * (x - r));
        seen[t].square += probability * linalg::distance_sq(&theta, &root);
        if t + 1 == seen.len() {
            return;
        }
        let (h, n) = (self.setting.local_steps as usize, self.agents());
        let drawn = if self.noiseless { vec![vec![0; n * h]] } else { words(2, n * h) };
        for word in &drawn {
            samples.push(word.chunks(h).map(<[usize]>::to_vec).collect());
            let answered = match t.checked_sub(self.delay) {
                Some(round) => Some(round),
                None => (self.before == Before::First).then_some(0),
            };
            let moved: Option<Vec<Vec<f64>>> = answered.map(|a| (0..n).map(|c| self.displacement(c, &thetas[a], &samples[a][c])).collect());
            for (p, weights, noise) in self.rounds() {
                let mut next = theta.clone();
                for i in 0..2 {
                    let v = moved.as_ref().map_or(0.0, |moved| weights.iter().zip(moved).map(|(w, m)| w * m[i]).sum::<f64>());
                    next[i] += self.setting.server_step * (v + self.setting.span() * noise[i]);
                }
                thetas.push(next);
                self.run(probability * p / drawn.len() as f64, thetas, samples, seen);
                thetas.pop();
            }
            samples.pop();
        }
    }

    /// Compares the exact curve of as many rounds with all runs.
    fn holds(&self, rounds: usize, what: &str) {
        let theta_0 = vec![1.0, -0.5];
        let mut seen = vec![Seen { mean: vec![0.0; 2], square: 0.0 }; rounds + 1];
        self.run(1.0, &mut vec![theta_0.clone()], &mut Vec::new(), &mut seen);
        let moments = (!self.noiseless).then_some(&self.moments[..]);
        let wanted: Vec<u64> = (0..=rounds as u64).collect();
        let delayed = DelayedMse::new(&self.systems, moments, &self.setting, 1, &self.arrivals(), (self.delay, self.before)).unwrap();
        let mut curves = vec![delayed.curve(&theta_0, &wanted).unwrap()];
        let plain = FedLsaMse::arriving(&self.systems, moments, &self.setting, 1, &self.arrivals()).unwrap();
        if self.delay == 0 {
            curves.push(plain.curve(&theta_0, &wanted).unwrap());
        }
        for curve in &curves {
            for (t, (point, seen)) in curve.iter().zip(&seen).enumerate() {
                let off = linalg::distance_sq(&point.bias, &seen.mean).sqrt();
                assert!(off < 1e-12, "{what}: mean at {t}: {off:e}");
                let (got, want) = (point.mse(), seen.square);
                assert!((got - want).abs() < 1e-12 * want, "{what}: round {t}: {got} {want}");
            }
        }
        // After many rounds the recursion is at the floor, which is computed from other equations.
        let floor = delayed.floor().unwrap();
        let end = &delayed.curve(&theta_0, &[4000]).unwrap()[0];
        assert!((end.mse() / floor.mse() - 1.0).abs() < 1e-10, "{what}: floor {} {}", end.mse(), floor.mse());
        assert!(floor.noise > 1e-6, "{what}: {floor:?}");
        assert!(delayed.radius().unwrap() < 1.0);
        if self.delay == 0 {
            let (a, b) = (plain.floor().unwrap(), plain.radius().unwrap());
            assert!((a.mse() / floor.mse() - 1.0).abs() < 1e-10 && (b - delayed.radius().unwrap()).abs() < 1e-10, "{what}");
        }
    }
}

fn setting(eta: f64, h: u64, alpha: f64) -> RoundSetting {
    RoundSetting::new(eta, h).unwrap().with_server_step(alpha).unwrap()
}

const LOSSES: [(f64, f64); 2] = [(0.6, 1.0), (0.4, 0.0)];
const FADING: [(f64, f64); 2] = [(0.3, 1.7), (0.7, 0.5)];

#[test]
fn random_weights_are_all_their_values() {
    for (h, rounds) in [(1, 4), (2, 3)] {
        let one = |factors: &[(f64, f64)], alpha| {
            let mut world = World::new(50 + h, &[1, 1], setting(0.2, h, alpha));
            world.systems.weights = vec![0.3, 0.7];
            world.factors = factors.to_vec();
            world
        };
        one(&LOSSES, 1.0).holds(rounds, "losses");
        one(&FADING, 0.8).holds(rounds, "fading");
        let noisy = World { noise: 0.1, ..one(&[(1.0, 0.9)], 1.1) };
        noisy.holds(rounds.min(3), "receivers");
        let mean = World { noiseless: true, ..one(&LOSSES, 1.0) };
        mean.holds(6, "losses without noise of samples");
    }
}

#[test]
fn participants_are_all_their_choices() {
    for m in [1, 2] {
        let world = World { participants: m, ..World::new(60, &[2, 1], setting(0.25, 1, 0.9)) };
        world.holds(3, "few");
        let lossy = World { factors: LOSSES.to_vec(), noiseless: true, participants: m, ..World::new(61, &[1, 2], setting(0.2, 3, 1.0)) };
        lossy.holds(4, "few, with losses");
    }
}

#[test]
fn delayed_rounds_use_the_first_samples_as_often_as_they_do() {
    for before in [Before::First, Before::Nothing] {
        for (delay, rounds) in [(1, 5), (2, 6), (3, 6)] {
            World { delay, before, ..World::new(70, &[1, 1], setting(0.15, 1, 1.0)) }.holds(rounds, "a delay");
        }
        World { delay: 1, before, ..World::new(71, &[1, 1], setting(0.1, 2, 0.9)) }.holds(4, "a delay and local steps");
        World { delay: 2, before, factors: LOSSES.to_vec(), ..World::new(72, &[1], setting(0.15, 1, 1.0)) }.holds(6, "a delay and losses");
        World { delay: 1, before, factors: FADING.to_vec(), ..World::new(73, &[1, 1], setting(0.2, 1, 1.0)) }
            .holds(4, "a delay and fading");
        World { delay: 1, before, participants: 2, ..World::new(74, &[2, 1], setting(0.2, 1, 1.0)) }.holds(3, "a delay and few");
        let air = World { delay: 2, before, noise: 0.2, ..World::new(75, &[1], setting(0.15, 1, 0.8)) };
        air.holds(5, "a delay and a receiver");
    }
}

#[test]
fn the_radius_of_delayed_second_moments_is_that_of_the_companion_form() {
    // One agent, one local step: theta_{t+1} = theta_t + eta (b(z) - A(z) theta_{t-2}).
    for (eta, h) in [(0.1, 1), (0.3, 1)] {
        let world = World { delay: 2, ..World::new(80, &[1], setting(eta, h, 1.0)) };
        let square = (world.kinds[0].samples.iter())
            .map(|(a, _)| {
                let mut m = Mat::<f64>::zeros(6, 6);
                for i in 0..2 {
                    m[(i, i)] = 1.0;
                    (0..2).for_each(|j| m[(i, 4 + j)] -= eta * a[(i, j)]);
                }
                (0..4).for_each(|i| m[(i + 2, i)] = 1.0);
                linalg::kron(&m, &m)
            })
            .fold(Mat::<f64>::zeros(36, 36), |sum, m| sum + faer::Scale(0.5) * m);
        let theory =
            DelayedMse::new(&world.systems, Some(&world.moments), &world.setting, 1, &world.arrivals(), (2, Before::First)).unwrap();
        let (got, want) = (theory.radius().unwrap(), linalg::spectral_radius(&square).unwrap());
        assert!((got - want).abs() < 1e-10, "{got} {want}");
        assert_eq!(theory.floor().is_ok(), want < 1.0, "{want}");
    }
}

#[test]
fn delayed_floors_of_white_noise_are_sums_of_squared_responses() {
    // theta_{t+1} = theta_t - alpha theta_{t-tau} + alpha w_{t-tau}: alpha^2 sum psi_k^2.
    let agent = Finite { samples: vec![(Mat::full(1, 1, 1.0), vec![1.0]), (Mat::full(1, 1, 1.0), vec![-1.0])] };
    let (systems, moments) = federation(&[agent], &[1]);
    for (alpha, tau) in [(0.02, 5usize), (0.02, 20), (0.05, 1)] {
        let mut psi = vec![1.0];
        while psi.len() < (60.0 / alpha) as usize {
            let k = psi.len();
            psi.push(psi[k - 1] - if k > tau { alpha * psi[k - 1 - tau] } else { 0.0 });
        }
        let wanted = alpha * alpha * psi.iter().map(|x| x * x).sum::<f64>();
        let setting = RoundSetting::new(alpha, 1).unwrap();
        let theory = DelayedMse::new(&systems, Some(&moments), &setting, 1, &ArrivalLaw::clear(), (tau, Before::First)).unwrap();
        let floor = theory.floor().unwrap().mse();
        assert!((floor / wanted - 1.0).abs() < 1e-11, "{alpha} {tau}: {floor} {wanted}");
    }
}

#[test]
fn a_delayed_floor_exists_exactly_below_radius_one() {
    let spread = |s: f64| Finite { samples: vec![(Mat::full(1, 1, 1.0 + s), vec![1.0]), (Mat::full(1, 1, 1.0 - s), vec![0.0])] };
    let (systems, moments) = federation(&[spread(2.0), spread(4.0)], &[2, 1]);
    let arrivals = ArrivalLaw::by_factors(0.7, 0.7, 0.0, 3);
    let mut seen = [0; 2];
    for step in 1..40 {
        let setting = RoundSetting::new(0.01 * f64::from(step), 2).unwrap();
        let theory = DelayedMse::new(&systems, Some(&moments), &setting, 1, &arrivals, (3, Before::First)).unwrap();
        let stable = theory.radius().unwrap() < 1.0;
        assert_eq!(theory.floor().is_ok(), stable, "eta = {}", setting.step_size);
        seen[usize::from(stable)] += 1;
    }
    assert!(seen.iter().all(|n| *n > 3), "{seen:?}");
}
