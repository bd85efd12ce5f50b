//! Stable steps: intervals of step sizes, maps over step size and local steps, and the failure beyond the edge.

use std::collections::BTreeMap;

use super::noise::NoiseSource;
use super::round::packed;
use super::{Forecast, MeanSquareRadius, StableStep, takes_too_long};
use crate::map::{DENSE, EIGENVALUES, LinearMap as _};
use crate::stability::{self, ControlVariates, RadiusStability};
use crate::work;
use fedsa::error::{Result, require};
use fedsa::linalg::{self, Mat};
use fedsa::method::Drift;
use fedsa::parallel;

/// The most multiplications for all radii of a scan, and of a map, about one per nanosecond. The radius of the method's own step gives
/// the estimate of an affordable grid. A scan or a map that takes much more is cut short.
const SCAN_WORK: f64 = 4e9;
const MAP_WORK: f64 = 1e10;
const CUT: f64 = 2.0;
/// The number of steps that a scan computes in parallel before it counts their work.
const SIDE_BY_SIDE: usize = 16;

/// Scans with a smaller ratio of neighbouring steps are fine: about 16 steps per factor of 2.
const FINE: f64 = 1.0460;

/// Approximate multiplications for the radius of a chain's second moments.
const CHAIN_WORK: f64 = 2e8;

/// The judgement on a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepVerdict {
    /// The mean converges, and the mean square too if its map is computed.
    Stable,
    /// The mean converges, but the mean square diverges.
    MeanSquareDiverges,
    /// The mean diverges.
    MeanDiverges,
    /// The radius cannot be computed, or is too close to 1.
    Unknown,
}

/// The judgements on one step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spot {
    /// The judgement.
    pub verdict: StepVerdict,
    /// The radius of a noiseless round.
    pub radius: f64,
    /// The radius of the map of second moments, if it was computed.
    pub mean_square: Option<f64>,
}

impl Spot {
    /// The factor by which a squared error shrinks in a round: the larger one of the square of the radius and the radius of the
    /// mean square.
    pub fn shrinks_by(&self) -> f64 {
        self.mean_square.unwrap_or(0.0).max(self.radius * self.radius)
    }

    /// The radius that decides the verdict: below 1 for stable steps.
    fn decides(&self) -> f64 {
        self.mean_square.unwrap_or(self.radius)
    }
}

/// The stable steps for one number of local steps.
#[derive(Debug, Clone, PartialEq)]
pub struct StableSet {
    /// H.
    pub local_steps: u64,
    /// Intervals of stable steps in increasing order. The first begins at 0 if the smallest step of the scan is stable. The last ends
    /// at infinity if the largest one is.
    pub intervals: Vec<(f64, f64)>,
    /// The largest step of the scan.
    pub looked_to: f64,
    /// The ratio of neighbouring steps of the scan; it can miss narrower windows.
    pub ratio: f64,
    /// Whether the scan ended early, at `looked_to`, because it took too long.
    pub is_cut: bool,
    /// Whether the scan includes the mean square, if there is noise.
    pub in_mean_square: bool,
}

/// The judgements on a grid.
#[derive(Debug, Clone, PartialEq)]
pub struct Region {
    /// The range of step sizes; the columns divide it evenly on a logarithmic scale.
    pub steps: (f64, f64),
    /// The range of local steps; the rows divide it in the same way. A row belongs to the whole number nearest to its centre.
    pub local_steps: (f64, f64),
    /// Rows from the fewest local steps, each from the smallest step size.
    pub spots: Vec<Vec<Spot>>,
    /// Whether the grid includes the mean square, if there is noise.
    pub in_mean_square: bool,
    /// Whether there is noise.
    pub is_noisy: bool,
    /// Whether rows with many local steps are left unknown because the map took too long.
    pub is_cut: bool,
}

/// Computes verdicts for any step size and number of local steps of a method.
struct Judge {
    of: Forecast,
    square: Option<MeanSquareRadius>,
    /// Multiplications for a radius of the mean square.
    square_work: f64,
}

impl Judge {
    /// The judgements, and their multiplications.
    fn at(&self, eta: f64, h: u64) -> (Spot, f64) {
        let of = self.of.clone().with_step(eta).with_local_steps(h);
        // A single radius may take as long as a scan.
        let Ok((radius, work)) = of.radius_within(SCAN_WORK) else { return (UNKNOWN, 0.1 * SCAN_WORK) };
        let mean = RadiusStability::of(radius);
        // A radius of 1 to rounding, as for very small steps, counts as stable.
        if mean == RadiusStability::Unstable {
            return (Spot { verdict: StepVerdict::MeanDiverges, radius, mean_square: None }, work);
        }
        let Some(square) = &self.square else { return (Spot { verdict: StepVerdict::Stable, radius, mean_square: None }, work) };
        let spot = match square.at(&of) {
            Ok(x) if RadiusStability::of(x) == RadiusStability::Unstable => {
                Spot { verdict: StepVerdict::MeanSquareDiverges, radius, mean_square: Some(x) }
            }
            Ok(x) => Spot { verdict: StepVerdict::Stable, radius, mean_square: Some(x) },
            Err(_) => UNKNOWN,
        };
        (spot, work + self.square_work)
    }
}

impl Judge {
    /// The stable steps among these, with H local steps; the work is taken from `left`. `known` is the largest stable step below the
    /// first instability, if it is already known.
    fn stable_set(&self, steps: &[f64], h: u64, known: Option<StableStep>, left: &mut f64) -> StableSet {
        let is_stable = |spot: &Spot| spot.verdict == StepVerdict::Stable;
        let mut spots: Vec<Spot> = Vec::new();
        for few in steps.chunks(SIDE_BY_SIDE) {
            if *left <= 0.0 {
                break;
            }
            let seen: Vec<(Spot, f64)> = parallel::map(few.len(), |i| self.at(few[i], h));
            *left -= seen.iter().map(|(_, work)| work).sum::<f64>();
            spots.extend(seen.into_iter().map(|(spot, _)| spot));
        }
        let stable: Vec<bool> = spots.iter().map(is_stable).collect();
        let mut edge = |inside: usize, outside: usize| {
            let (low, high) = (steps[inside.min(outside)], steps[inside.max(outside)]);
            if let Some(known) = known.filter(|known| outside > inside && (low..high).contains(&known.step)) {
                return known.step;
            }
            let mut at = |eta: f64| {
                let (spot, work) = self.at(eta, h);
                *left -= work;
                spot
            };
            if steps[1] / steps[0] < FINE {
                let end = |i: usize| (steps[i], spots[i].decides());
                return stability::edge_between(|eta| Ok(at(eta).decides()), end(inside), end(outside)).unwrap_or(steps[inside]);
            }
            // Three digits are enough where radii are costly.
            let (mut inside, mut outside) = (steps[inside], steps[outside]);
            while (outside / inside).ln().abs() > 1e-3 {
                let middle = (inside * outside).sqrt();
                if is_stable(&at(middle)) { inside = middle } else { outside = middle }
            }
            inside
        };
        let mut intervals: Vec<(f64, f64)> = Vec::new();
        for (i, now) in stable.iter().enumerate() {
            let before = i.checked_sub(1).is_some_and(|j| stable[j]);
            match (before, now) {
                (false, true) => intervals.push((if i == 0 { 0.0 } else { edge(i, i - 1) }, f64::INFINITY)),
                (true, false) => intervals.last_mut().expect("it has begun").1 = edge(i - 1, i),
                _ => {}
            }
        }
        // The search for the largest stable step may have included the mean square, or found the edge more accurately.
        if let Some(known) = known
            && let Some(i) = intervals.iter().position(|(low, high)| (*low..*high).contains(&known.step))
        {
            intervals[i].1 = known.step;
        }
        StableSet {
            local_steps: h,
            intervals,
            looked_to: stable.len().checked_sub(1).map_or(0.0, |last| steps[last]),
            ratio: steps[1] / steps[0],
            is_cut: stable.len() < steps.len(),
            in_mean_square: self.square.is_some() || known.is_some_and(|known| known.in_mean_square),
        }
    }
}

/// For a step with an unknown radius.
const UNKNOWN: Spot = Spot { verdict: StepVerdict::Unknown, radius: f64::NAN, mean_square: None };

/// `count` steps from `low` to `high` with a constant ratio.
fn geometric((low, high): (f64, f64), count: usize) -> Vec<f64> {
    let ratio = (high / low).ln() / (count - 1) as f64;
    (0..count).map(|i| if i + 1 == count { high } else { low * (ratio * i as f64).exp() }).collect()
}

impl Forecast {
    /// Multiplications for the radius of a noiseless round with H local steps, from the number with the method's own settings.
    fn radius_work(&self, h: f64, own: f64) -> Result<f64> {
        let more = self.clone().with_local_steps(h.round() as u64);
        Ok(own + (more.phases_work(&more.linear()?) - self.phases_work(&self.linear()?)).max(0.0))
    }

    /// Multiplications for the radius of the map of second moments with H local steps; `own` is the number for the radius of the mean
    /// with the method's own settings.
    pub(super) fn mean_square_work(&self, h: f64, own: f64) -> Result<f64> {
        let round = self.linear()?;
        match self.noise_source(&round)? {
            // The square of the radius of the mean.
            NoiseSource::Additive(..) => return self.radius_work(h, own),
            NoiseSource::Chains(_) => return Ok(CHAIN_WORK),
            NoiseSource::Independent | NoiseSource::Nothing => {}
        }
        let (kinds, d) = (round.systems.kinds.len() as f64, round.systems.dim() as f64);
        let doublings = 2.0 * (h.log2() + 2.0);
        // A dense matrix, or about 300 products and the eigenvalues of small matrices.
        let leading = |moments: f64, product: f64| (EIGENVALUES * moments.powi(3)).min(300.0 * product + 1e9);
        Ok(match self.drift_of_theta(&round) {
            Drift::Zero => {
                let state = d * (1.0 + round.delay().map_or(0.0, |(delay, _)| delay as f64));
                kinds * doublings * packed(d + 1.0).powi(3) + leading(packed(state), 4.0 * state.powi(2) * d)
            }
            Drift::GlobalMemory { .. } => 0.5 * kinds * packed(2.0 * d + 1.0).powi(3) + EIGENVALUES * packed(d).powi(3),
            _ => {
                let state = d * (kinds + 1.0) + 1.0;
                0.5 * kinds * packed(2.0 * d + 1.0).powi(3) + leading(packed(state), 8.0 * state.powi(2) * d)
            }
        })
    }

    /// The judge of up to `count` steps with up to H local steps, with the mean square if that is affordable too. `own` is the number
    /// of multiplications for the radius with the method's own settings.
    fn judge(&self, count: f64, h: f64, own: f64, most: f64) -> Result<Judge> {
        let work = count * self.radius_work(h, own)?;
        if work > most {
            return Err(takes_too_long("a scan of the radii of many steps", "fewer distinct agents or features, or shorter delays"));
        }
        let is_noisy = self.is_noisy(&self.linear()?) && MeanSquareRadius::is_small(self);
        let square_work = if is_noisy { self.mean_square_work(h, own)? } else { 0.0 };
        let square = if is_noisy && work + count * square_work <= most { MeanSquareRadius::new(self).ok() } else { None };
        Ok(Judge { of: self.clone(), square, square_work })
    }

    /// The range of step sizes for up to `most` local steps. It reaches from well below the smallest edge to above the step
    /// `2 / max_c ||Abar_c||` with which the fastest agent overshoots, and includes the method's own step.
    fn steps_of_interest(&self, most: f64) -> Result<(f64, f64)> {
        let round = self.linear()?;
        let own = round.setting.step_size;
        let size = round.systems.kinds.iter().map(|kind| linalg::norm2(&kind.a)).fold(0.0, f64::max);
        let reach = 2.0 / (size * round.setting.server_step.min(1.0) * round.link.gain.min(1.0));
        require(reach.is_finite() && reach > 0.0, "step_size", "no scale", "agents' matrices that are not all 0")?;
        let late = round.link.delay.as_ref().map_or(1.0, |delay| delay.probabilities.len() as f64);
        // Six decades at most.
        let high = 1.5 * reach.max(own);
        let low = (0.3 * own.min(reach / most / late)).max(1e-6 * high);
        Ok((low, high))
    }

    /// The stable step sizes for each of these numbers of local steps, with all other settings unchanged.
    ///
    /// A scan has about 16 steps per factor of 2, and edges have a relative error of 1e-6. If this takes too long, the scan has fewer
    /// steps and edges have a relative error of 1e-3. The scan can miss windows narrower than the ratio of its steps. If even few steps
    /// take too long, only the method's own number of local steps remains. `known` is [`Forecast::largest_stable_step`] if known, and
    /// gives this edge for the method's own number.
    ///
    /// # Errors
    /// When a round is not a known linear map, or the scan takes too long.
    pub fn stable_sets(&self, local_steps: &[u64], known: Option<StableStep>) -> Result<Vec<StableSet>> {
        self.stoppable(|| self.scanned_sets(local_steps, known))
    }

    fn scanned_sets(&self, local_steps: &[u64], known: Option<StableStep>) -> Result<Vec<StableSet>> {
        let (_, own_work) = self.radius_within(SCAN_WORK)?;
        let own = self.local_steps().round() as u64;
        // The method's own number first, so that a scan that is cut short includes it.
        let mut all = local_steps.to_vec();
        all.sort_by_key(|h| (*h != own, *h));
        let alone: Vec<u64> = all.iter().copied().filter(|h| *h == own).collect();
        let grids = [(&all, 16.0), (&all, 8.0), (&all, 4.0), (&alone, 8.0), (&alone, 4.0)];
        let mut chosen = None;
        for (hs, of_each) in grids.into_iter().filter(|(hs, _)| !hs.is_empty()) {
            let most = hs.iter().copied().max().unwrap_or(1) as f64;
            let range = self.steps_of_interest(most)?;
            let count = (of_each * (range.1 / range.0).log2()).ceil() as usize + 1;
            // Edges take some more radii.
            match self.judge(1.3 * (count * hs.len()) as f64, most, own_work, SCAN_WORK) {
                Ok(judge) => {
                    chosen = Some(Ok((judge, hs, geometric(range, count))));
                    break;
                }
                Err(e) => chosen = Some(Err(e)),
            }
        }
        let Some(chosen) = chosen else { return Ok(Vec::new()) };
        let (judge, hs, steps) = chosen?;
        let mut left = CUT * SCAN_WORK;
        let mut sets: Vec<StableSet> = Vec::new();
        for h in hs {
            if left > 0.0 {
                let known = known.filter(|known| *h == own && known.step.is_finite());
                sets.push(judge.stable_set(&steps, *h, known, &mut left));
            }
        }
        // Counts the work done in parallel.
        let _ = work::record(CUT * SCAN_WORK - left);
        sets.sort_by_key(|set| local_steps.iter().position(|h| *h == set.local_steps));
        Ok(sets)
    }

    /// The judgements on a grid over step size and local steps, around the method's own.
    ///
    /// # Errors
    /// When a round is not a known linear map, or a coarse grid takes too long.
    pub fn region(&self) -> Result<Region> {
        self.stoppable(|| self.scanned_region())
    }

    fn scanned_region(&self) -> Result<Region> {
        let own = self.local_steps().max(1.0);
        let most = (4.0 * own).max(64.0);
        let steps = self.steps_of_interest(most)?;
        let (_, own_work) = self.radius_within(MAP_WORK)?;
        let grids = [(160, 48), (100, 30), (60, 18), (36, 10)];
        let judge_of = |(columns, rows): (usize, usize)| {
            self.judge((columns * rows) as f64, most, own_work, MAP_WORK).map(|judge| (judge, columns, rows))
        };
        // The finest grid on which the mean square is affordable, otherwise the finest one for the mean.
        let all: Vec<Result<(Judge, usize, usize)>> = grids.into_iter().map(judge_of).collect();
        let is_noisy = self.is_noisy(&self.linear()?);
        let squared = all.iter().position(|judge| judge.as_ref().is_ok_and(|(judge, ..)| judge.square.is_some()));
        let chosen = squared.or_else(|| all.iter().position(Result::is_ok)).unwrap_or(grids.len() - 1);
        let (judge, columns, rows) = all.into_iter().nth(chosen).expect("a grid")?;
        let centre = |range: (f64, f64), i: usize, count: usize| range.0 * (range.1 / range.0).powf((i as f64 + 0.5) / count as f64);
        // Half a step around whole numbers, so that H = 1 has its own row.
        let local_steps = (0.7, most);
        let etas: Vec<f64> = (0..columns).map(|j| centre(steps, j, columns)).collect();
        let hs: Vec<u64> = (0..rows).map(|i| (centre(local_steps, i, rows).round() as u64).max(1)).collect();
        // Neighbouring rows of the same number are computed once.
        let mut by_h: BTreeMap<u64, Vec<Spot>> = BTreeMap::new();
        let (mut left, mut is_cut) = (CUT * MAP_WORK, false);
        for h in &hs {
            by_h.entry(*h).or_insert_with(|| {
                if left <= 0.0 {
                    is_cut = true;
                    return vec![UNKNOWN; columns];
                }
                let seen: Vec<(Spot, f64)> = parallel::map(etas.len(), |i| judge.at(etas[i], *h));
                left -= seen.iter().map(|(_, work)| work).sum::<f64>();
                seen.into_iter().map(|(spot, _)| spot).collect()
            });
        }
        let spots = hs.iter().map(|h| by_h[h].clone()).collect();
        Ok(Region { steps, local_steps, spots, in_mean_square: judge.square.is_some(), is_noisy, is_cut })
    }

    /// The radii with another step size. They show the failure beyond the largest stable step.
    ///
    /// # Errors
    /// When a round is not a known linear map.
    pub fn at_step(&self, eta: f64) -> Result<Spot> {
        let h = self.local_steps().round().max(1.0);
        let judge = self.judge(1.0, h, 0.0, MAP_WORK)?;
        Ok(judge.at(eta, h as u64).0)
    }

    /// The eigenvalue of largest modulus of a noiseless round, `(re, im)` with `im >= 0`; `None` if the map is not formed as a matrix.
    ///
    /// # Errors
    /// As [`Forecast::radius`].
    pub fn leading_eigenvalue(&self) -> Result<Option<(f64, f64)>> {
        self.stoppable(|| self.computed_eigenvalue())
    }

    fn computed_eigenvalue(&self) -> Result<Option<(f64, f64)>> {
        let round = self.radius_known()?;
        let is_clear = (round.link.gain - 1.0).abs() <= 1e-12 && round.few.is_none();
        let map: Mat<f64> = match self.shape.drift {
            Drift::Zero if round.link.delay.is_none() => round.plain()?.round_map(),
            Drift::GlobalMemory { .. } if is_clear => stability::global_memory_map(round.systems, &round.setting),
            Drift::ControlVariate { talk: None } if is_clear => {
                let map = ControlVariates::fixed_period(round.systems, &round.setting);
                if map.dim() > DENSE {
                    return Ok(None);
                }
                map.to_matrix()
            }
            _ => return Ok(None),
        };
        if !map.is_all_finite() {
            return Ok(None);
        }
        let largest = linalg::eigenvalues(&map)?.into_iter().max_by(|x, y| x.0.hypot(x.1).total_cmp(&y.0.hypot(y.1)));
        // Deviations within a kind of agents have their own maps.
        let radius = self.radius()?;
        Ok(largest.filter(|(re, im)| (re.hypot(*im) - radius).abs() <= 1e-6 * radius).map(|(re, im)| (re, im.abs())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fedsa::kernel::Isa;
    use fedsa::method::MethodSettings as _;
    use fedsa::sampling::{Law, Sampling};
    use fedsa_methods::fedlsa::FedLsa;
    use fedsa_methods::scafflsa::Scafflsa;
    use fedsa_problems::linear::affine::LinearSystems;
    use fedsa_problems::td::garnet::{Garnet, Heterogeneity};
    use fedsa_problems::{NoFiles, ProblemSettings as _};

    fn sampled(kind: Law) -> Sampling {
        Sampling::default().with_kind(kind)
    }

    /// Two agents with scalar operators: the edges are known by hand.
    #[test]
    fn intervals_are_those_of_scalar_operators() {
        let linear = LinearSystems::default().with_agents(1).with_dim(1).with_scale(1.0).with_spread(0.0);
        let field = linear.field(&NoFiles, sampled(Law::Mean), Isa::best()).unwrap();
        let a = field.systems().unwrap().mean().a[(0, 0)];
        let of = Forecast::new(&field, FedLsa::new(0.1, 1).shape());
        // |1 - eta a|^H < 1 for every H.
        for set in of.stable_sets(&[1, 2, 9], None).unwrap() {
            let [(low, high)] = set.intervals[..] else { panic!("{set:?}") };
            assert!(low == 0.0 && (high * a / 2.0 - 1.0).abs() < 2e-6 && high * a <= 2.0, "{set:?}");
        }
        let spot = of.at_step(2.02 / a).unwrap();
        assert_eq!(spot.verdict, StepVerdict::MeanDiverges);
        let (re, im) = of.with_step(2.02 / a).leading_eigenvalue().unwrap().unwrap();
        assert!((re + 1.02).abs() < 1e-9 && im == 0.0, "{re} {im}");
    }

    /// SCAFFLSA has unstable windows. Every edge and window matches the radius on a finer scan.
    #[test]
    fn windows_are_those_of_a_finer_scan() {
        let turning = |re: f64, im: f64| vec![vec![re, im], vec![-im, re]];
        let a = vec![turning(0.3, 1.0), turning(1.5, 0.0), turning(0.2, -2.0)];
        let linear = LinearSystems::default().with_a(a).with_b(vec![vec![1.0, 0.0]; 3]);
        let field = linear.field(&NoFiles, sampled(Law::Mean), Isa::best()).unwrap();
        let of = Forecast::new(&field, Scafflsa::new(0.05, 10).shape());
        for set in of.stable_sets(&[5, 10, 40], None).unwrap() {
            assert!(!set.intervals.is_empty());
            let h = set.local_steps;
            let is_stable = |eta: f64| of.clone().with_step(eta).with_local_steps(h).radius().unwrap() < 1.0;
            let near = |eta: f64| set.intervals.iter().any(|(a, b)| [*a, *b].iter().any(|x| (eta / x).ln().abs() < 0.02));
            for i in 1..=2000 {
                let eta = 0.001 * f64::from(i);
                let inside = set.intervals.iter().any(|(a, b)| (*a..*b).contains(&eta));
                assert!(inside == is_stable(eta) || near(eta) || is_narrow(&is_stable, eta), "H = {h}, eta = {eta}: {:?}", set.intervals);
            }
        }
    }

    /// Whether the verdict changes within 4% of a step: the scan may miss windows this narrow.
    fn is_narrow(is_stable: &dyn Fn(f64) -> bool, eta: f64) -> bool {
        let own = is_stable(eta);
        (1..=10).any(|i| [1.0, -1.0].iter().any(|sign| is_stable(eta * (1.0 + sign * 0.0045 * f64::from(i))) != own))
    }

    #[test]
    fn a_region_has_the_verdict_of_each_step() {
        let garnet = Garnet::default().with_agents(3).with_states(6).with_features(2).with_min_class(2).with_seed(5);
        for kind in [Law::Iid, Law::Mean] {
            let field = garnet.field(&NoFiles, sampled(kind), Isa::best()).unwrap();
            let of = Forecast::new(&field, FedLsa::new(0.5, 8).shape());
            let region = of.region().unwrap();
            assert_eq!((region.is_noisy, region.in_mean_square), (kind == Law::Iid, kind == Law::Iid));
            let (rows, columns) = (region.spots.len(), region.spots[0].len());
            let all = |verdict: StepVerdict| region.spots.iter().flatten().filter(|spot| spot.verdict == verdict).count();
            assert!(all(StepVerdict::Stable) > 0 && all(StepVerdict::MeanDiverges) > 0 && all(StepVerdict::Unknown) == 0);
            assert_eq!(all(StepVerdict::MeanSquareDiverges) > 0, kind == Law::Iid);
            // The row of H = 8.
            let at = |range: (f64, f64), x: f64, n: usize| ((x / range.0).ln() / (range.1 / range.0).ln() * n as f64) as usize;
            let row = &region.spots[at(region.local_steps, 8.0, rows)];
            let step = of.largest_stable_step().unwrap().step;
            let j = at(region.steps, step, columns);
            assert!(row[..j - 1].iter().all(|spot| spot.verdict == StepVerdict::Stable), "below {step}");
            assert!(row[j + 2].verdict != StepVerdict::Stable, "above {step}");
            let sets = of.stable_sets(&[8], None).unwrap();
            assert!((sets[0].intervals[0].1 / step - 1.0).abs() < 2e-6, "{sets:?} {step}");
        }
    }

    /// The largest stable step matches an independent bisection of the radius of the map of second moments. The map is formed here from
    /// samples: `(1/N^2) sum_{c != e} B_c (x) B_e + (1/N^2) sum_c E[B_c (x) B_c]` with the powers of H steps.
    #[test]
    fn the_largest_stable_step_is_that_of_a_bisection_everywhere() {
        let (agents, steps) = (5, 3_u64);
        let garnet = Garnet::default()
            .with_agents(agents)
            .with_states(18)
            .with_features(4)
            .with_gamma(0.7)
            .with_heterogeneity(Heterogeneity::Independent)
            .with_seed(20_261_123);
        let field = garnet.field(&NoFiles, sampled(Law::Iid), Isa::best()).unwrap();
        let of = Forecast::new(&field, FedLsa::new(0.1, steps as usize).shape());
        let found = of.largest_stable_step().unwrap();
        let (mut low, mut high) = (1.0, 100.0);
        while high - low > 1e-9 * low {
            let middle = 0.5 * (low + high);
            if slow_radius(&*field, middle, steps) < 1.0 { low = middle } else { high = middle }
        }
        assert!((low - 17.537).abs() < 5e-4, "{low}");
        assert!(found.in_mean_square && found.step <= low && found.step > low * (1.0 - 2e-6), "{found:?} {low}");
        for known in [Some(found), None] {
            let sets = of.stable_sets(&[1, steps, 30], known).unwrap();
            let own = sets.iter().find(|set| set.local_steps == steps).unwrap();
            assert!((own.intervals[0].1 / low - 1.0).abs() < 2e-6 && own.in_mean_square, "{own:?}");
            assert!(known.is_none() || own.intervals[0].1 == found.step, "{own:?}");
        }
    }

    /// The radius of the map of second moments of FedLSA with agents of equal weight and independent samples, from the laws of their
    /// samples.
    fn slow_radius(field: &dyn fedsa::problem::Field, eta: f64, steps: u64) -> f64 {
        let (n, d) = (field.agents(), field.dim());
        let systems = field.systems().unwrap();
        let product = |a: &Mat<f64>, b: &Mat<f64>| Mat::from_fn(d * d, d * d, |r, c| a[(r / d, c / d)] * b[(r % d, c % d)]);
        let mut all = Mat::<f64>::zeros(d * d, d * d);
        let mut means = Vec::new();
        for c in 0..n {
            let a = &systems.of(c).a;
            let (mut mean, mut one) = (Mat::<f64>::identity(d, d), Mat::<f64>::identity(d, d));
            (0..d).for_each(|j| (0..d).for_each(|i| one[(i, j)] -= eta * a[(i, j)]));
            let aa = field.second_moments(systems.kind_of[c] as usize).unwrap().aa.clone();
            let identity = Mat::<f64>::identity(d, d);
            // E[(I - eta A) (x) (I - eta A)].
            let (left, right) = (product(a, &identity), product(&identity, a));
            let step = Mat::from_fn(d * d, d * d, |i, j| {
                f64::from(u8::from(i == j)) - eta * (left[(i, j)] + right[(i, j)]) + eta * eta * aa[(i, j)]
            });
            let mut own = Mat::<f64>::identity(d * d, d * d);
            for _ in 0..steps {
                (mean, own) = (&one * &mean, &step * &own);
            }
            means.push(mean);
            all += own;
        }
        for (c, x) in means.iter().enumerate() {
            means.iter().enumerate().filter(|(e, _)| *e != c).for_each(|(_, y)| all += product(x, y));
        }
        let scaled = Mat::from_fn(d * d, d * d, |i, j| all[(i, j)] / (n * n) as f64);
        linalg::spectral_radius(&scaled).unwrap()
    }
}
