//! Facts from passes over logs before their transitions are used, such as counts and ranges.

use crate::features::{ColumnNeeds, ColumnStatistics, FeatureMap, FeatureSpec, Ranges, quantiles};
use crate::logs::clipped::{Clipped, clip};
use crate::logs::held_out;
use crate::logs::left_out::LeftOutRows;
use crate::logs::log::{EffectiveSize, Log};
pub use crate::logs::log_facts::{LogFacts, RatioClipping, StateSample};
use crate::logs::log_summary::EpisodeSummary;
use crate::logs::source::{LogSource, read_checked};
use fedsa::columns::RunningMoments;
use fedsa::error::{Error, Result, quoted, require};
use fedsa::parallel;

impl LogFacts {
    fn of(source: &dyn LogSource) -> Result<Self> {
        let Some(known) = source.known() else { return Self::read(source) };
        if let Some(facts) = known.facts.get() {
            return Ok(facts.clone());
        }
        let facts = Self::read(source)?;
        Ok(known.facts.get_or_init(|| facts).clone())
    }

    fn read(source: &dyn LogSource) -> Result<Self> {
        let mut facts = Self {
            name: source.name().into(),
            transitions: 0,
            seen: vec![(f64::INFINITY, f64::NEG_INFINITY); source.columns().len()],
            whole: vec![true; source.columns().len()],
            has_rewards: false,
            effective_size: None,
            mean_ratio: None,
            clipping: None,
            actions: None,
            cut_off: 0,
            sample: StateSample::new(source.columns().len()),
        };
        let mut size: Option<EffectiveSize> = None;
        read_checked(source, &mut |batch| {
            let log = batch.log;
            for i in 0..log.len() {
                facts.sample.see(log.state(i));
                let next = if log.done[i] { log.state(i) } else { log.next_state(i) };
                for ((seen, x), y) in facts.seen.iter_mut().zip(log.state(i)).zip(next) {
                    *seen = (seen.0.min(*x).min(*y), seen.1.max(*x).max(*y));
                }
                for ((whole, x), y) in facts.whole.iter_mut().zip(log.state(i)).zip(next) {
                    *whole &= x.fract() == 0.0 && y.fract() == 0.0;
                }
            }
            facts.actions = log.actions.as_ref().filter(|actions| actions.has_policy()).map(|actions| actions.count);
            facts.transitions += log.len();
            facts.cut_off += batch.cut_off();
            facts.has_rewards |= log.rewards.iter().any(|r| *r != 0.0);
            if let Some(ratios) = &log.ratio {
                size.get_or_insert_default().see(ratios);
            }
            Ok(())
        })?;
        facts.effective_size = size.map(|size| size.value());
        facts.mean_ratio = size.map(|size| size.mean());
        Ok(facts)
    }
}

/// All agents' logs, with facts from a first pass.
pub struct Surveyed {
    /// The logs, without held-out episodes.
    pub sources: Vec<Box<dyn LogSource>>,
    /// Facts from a pass over each.
    pub facts: Vec<LogFacts>,
    /// The held-out episodes, a log for each agent; empty if there are none.
    pub held: Vec<Log>,
}

/// Checks the largest importance ratio.
pub(crate) fn check_clip(level: f64) -> Result<()> {
    require(level > 0.0 && level.is_finite(), "max_importance_ratio", level, "a finite number above 0")
}

impl Surveyed {
    /// Reads all logs once, or three times if a share of the episodes is held out.
    ///
    /// # Errors
    /// When there is no log, a log cannot be read or used, logs have different columns, or as [`held_out::split`].
    pub fn new(sources: Vec<Box<dyn LogSource>>, share: f64, seed: u64) -> Result<Self> {
        check_columns(&sources)?;
        let (sources, held) = if share == 0.0 { (sources, Vec::new()) } else { held_out::split(sources, share, seed)? };
        let facts = parallel::try_map(sources.len(), |c| LogFacts::of(&*sources[c]))?;
        Ok(Self { sources, facts, held })
    }

    /// The same logs, including held-out episodes, with importance ratios clipped at `level` ([`Clipped`]). Reads logs with ratios once
    /// more.
    ///
    /// # Errors
    /// When the level is not a finite number above 0 (key `max_importance_ratio`), no log has ratios, or a log cannot be read.
    pub fn with_clipped_ratios(mut self, level: f64) -> Result<Self> {
        check_clip(level)?;
        if self.facts.iter().all(|facts| facts.effective_size.is_none()) {
            let what = format!("{level}, and no log has importance ratios");
            return Err(Error::data("max_importance_ratio", what, "logs with ratios, or none of this"));
        }
        let found = parallel::try_map(self.sources.len(), |c| {
            let LogFacts { mean_ratio: Some(mean_before), effective_size: Some(effective_before), .. } = self.facts[c] else {
                return Ok::<_, Error>(None);
            };
            let (mut size, mut clipped) = (EffectiveSize::default(), 0);
            self.sources[c].read(&mut |log| {
                let ratios = log.ratio.as_deref().unwrap_or_default();
                clipped += ratios.iter().filter(|rho| **rho > level).count();
                size.see(&ratios.iter().map(|rho| rho.min(level)).collect::<Vec<f64>>());
                Ok(())
            })?;
            Ok(Some((size, RatioClipping { level, clipped, mean_before, effective_before })))
        })?;
        self.sources = self.sources.into_iter().map(|source| Box::new(Clipped::new(source, level)) as Box<dyn LogSource>).collect();
        for (facts, (size, clipping)) in self.facts.iter_mut().zip(found).filter_map(|(facts, found)| Some((facts, found?))) {
            facts.effective_size = Some(size.value());
            facts.mean_ratio = Some(size.mean());
            facts.clipping = Some(clipping);
        }
        self.held.iter_mut().for_each(|log| clip(log, level));
        Ok(self)
    }

    /// The rows left out by readers, by file and reason.
    pub fn left_out(&self) -> Vec<LeftOutRows> {
        self.sources.iter().flat_map(|source| source.left_out()).collect()
    }

    /// Whether a reader took next states from following rows.
    pub fn next_follows(&self) -> bool {
        self.sources.iter().any(|source| source.next_follows())
    }

    /// The episodes of each agent, without held-out ones. Reads all logs once more.
    ///
    /// # Errors
    /// When a log cannot be read.
    pub fn episodes(&self, gamma: f64) -> Result<Vec<EpisodeSummary>> {
        parallel::try_map(self.sources.len(), |c| EpisodeSummary::of(&*self.sources[c], gamma))
    }

    /// Refuses logs with episodes that do not terminate, including held-out ones.
    ///
    /// # Errors
    /// When there is such an episode (key `gamma`), or a log cannot be read.
    pub fn check_all_end(&self) -> Result<()> {
        let held = self.held.iter().map(|log| EpisodeSummary::of(log, 1.0)).collect::<Result<Vec<_>>>()?;
        let all = self.episodes(1.0)?.into_iter().chain(held).fold(EpisodeSummary::default(), EpisodeSummary::join);
        if all.ended == all.episodes() {
            return Ok(());
        }
        let (open, episodes) = (all.episodes() - all.ended, all.episodes());
        let what =
            format!("1, and {open} of {episodes} episodes do not end: {} are truncated, of {} the log has no more", all.truncated, all.cut);
        Err(Error::data("gamma", what, "below 1; 1 is for tasks of which every episode ends in a terminal state"))
    }

    /// The names of the state columns.
    pub fn columns(&self) -> &[String] {
        self.sources[0].columns()
    }

    /// The number of transitions of all agents.
    pub fn transitions(&self) -> usize {
        self.facts.iter().map(|facts| facts.transitions).sum()
    }

    /// The agents' weights `p_c`: their shares of the transitions.
    pub fn weights(&self) -> Vec<f64> {
        let total = self.transitions();
        self.facts.iter().map(|facts| facts.transitions as f64 / total as f64).collect()
    }

    /// The feature map on these logs, without a scale.
    ///
    /// # Errors
    /// When a range is invalid, or there are too many features.
    pub fn map(&self, spec: &FeatureSpec, given: &Ranges) -> Result<FeatureMap> {
        let columns = self.columns();
        let seen: Vec<(f64, f64)> = (0..columns.len())
            .map(|j| {
                let all = self.facts.iter().map(|facts| facts.seen[j]);
                all.fold((f64::INFINITY, f64::NEG_INFINITY), |a, b| (a.0.min(b.0), a.1.max(b.1)))
            })
            .collect();
        let needs = spec.needs(columns)?;
        if let Some((log, j)) = self.not_whole(|j| needs[j].whole) {
            let what = format!("one-hot, and `{}` of {} is no column of whole numbers", quoted(&columns[j]), quoted(&log.name));
            return Err(Error::data("features", what, "columns of whole numbers; tiles for others"));
        }
        let ranges = spec.ranges(columns, &seen, given)?;
        let statistics = self.statistics(&needs)?;
        FeatureMap::with_statistics(spec, columns, &ranges, statistics).map_err(|e| if e.key.is_empty() { e.inside("features") } else { e })
    }

    /// The statistics that a map takes from the data. Quantiles come from an even sample of the states ([`StateSample`]); means and
    /// standard deviations come from all states, in another pass over the logs.
    fn statistics(&self, needs: &[ColumnNeeds]) -> Result<ColumnStatistics> {
        let (columns, mut statistics) = (self.columns(), ColumnStatistics::default());
        if needs.iter().any(|needs| needs.quantiles.is_some()) {
            let samples: Vec<&StateSample> = self.facts.iter().map(|facts| &facts.sample).collect();
            let (states, _) = StateSample::even(&samples);
            for (j, count) in needs.iter().enumerate().filter_map(|(j, needs)| Some((j, needs.quantiles?))) {
                let mut values: Vec<f64> = states.iter().copied().skip(j).step_by(columns.len()).collect();
                values.sort_unstable_by(f64::total_cmp);
                statistics.centres.insert(columns[j].clone(), quantiles(&values, count as usize));
            }
        }
        if needs.iter().any(|needs| needs.moments) {
            let agents = self.moments()?;
            for (j, column) in columns.iter().enumerate().filter(|(j, _)| needs[*j].moments) {
                let all = agents.iter().map(|agent| agent[j]).fold(RunningMoments::default(), RunningMoments::join);
                statistics.moments.insert(column.clone(), all.mean_and_deviation());
            }
        }
        Ok(statistics)
    }

    /// The moments of each column of the states, agent by agent. Reads all logs once more.
    ///
    /// # Errors
    /// When a log cannot be read.
    pub fn moments(&self) -> Result<Vec<Vec<RunningMoments>>> {
        let k = self.columns().len();
        parallel::try_map(self.sources.len(), |c| {
            let mut moments = vec![RunningMoments::default(); k];
            self.sources[c].read(&mut |log| {
                log.states.iter().enumerate().for_each(|(i, x)| moments[i % k].see(*x));
                Ok(())
            })?;
            Ok::<_, Error>(moments)
        })
    }

    /// For each state column, the number of transitions with a value outside the map's range, which is clipped.
    ///
    /// # Errors
    /// When a log cannot be read; only logs with such states are read.
    pub fn clipped(&self, map: &FeatureMap) -> Result<Vec<usize>> {
        let k = self.columns().len();
        let counts = parallel::try_map(self.sources.len(), |c| {
            let mut counts = vec![0; k];
            let mut ends = vec![0; k];
            let (least, most): (Vec<f64>, Vec<f64>) = self.facts[c].seen.iter().copied().unzip();
            [least, most].iter().for_each(|state| map.count_clipped(state, &mut ends));
            if ends.iter().any(|n| *n > 0) {
                self.sources[c].read(&mut |log| {
                    map.count_clipped(&log.states, &mut counts);
                    Ok(())
                })?;
            }
            Ok::<_, Error>(counts)
        })?;
        Ok((0..k).map(|j| counts.iter().map(|counts| counts[j]).sum()).collect())
    }

    /// A log in which one of these columns has other than whole numbers, and the column's index.
    fn not_whole(&self, is_asked: impl Fn(usize) -> bool) -> Option<(&LogFacts, usize)> {
        self.facts.iter().find_map(|log| (0..log.whole.len()).find(|j| is_asked(*j) && !log.whole[*j]).map(|j| (log, j)))
    }

    /// The smallest and the largest value of each column, if all columns of all logs are whole numbers.
    pub fn whole_ranges(&self) -> Option<Vec<(f64, f64)>> {
        let of = |j: usize| self.facts.iter().map(|log| log.seen[j]).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        self.not_whole(|_| true).is_none().then(|| (0..self.columns().len()).map(of).collect()).flatten()
    }

    /// The factors that give features equal mean squares over all transitions, with a sum of 1; the factor is 1 for features that are 0 in
    /// every state.
    ///
    /// # Errors
    /// When a log cannot be read.
    pub fn equal_squares(&self, map: &FeatureMap) -> Result<Vec<f64>> {
        let d = map.len();
        let sums = parallel::try_map(self.sources.len(), |c| {
            let (mut sum, mut phi) = (vec![0.0; d], vec![0.0; d]);
            self.sources[c].read(&mut |log| {
                for i in 0..log.len() {
                    map.eval(log.state(i), &mut phi);
                    sum.iter_mut().zip(&phi).for_each(|(sum, x)| *sum += x * x);
                }
                Ok(())
            })?;
            Ok::<_, Error>(sum)
        })?;
        let mut all = vec![0.0; d];
        for sum in sums {
            all.iter_mut().zip(sum).for_each(|(all, x)| *all += x);
        }
        let n = self.transitions() as f64;
        let scale = |square: f64| if square > 0.0 { 1.0 / (square / n * d as f64).sqrt() } else { 1.0 };
        Ok(all.into_iter().map(scale).map(|x| if x.is_finite() && x > 0.0 { x } else { 1.0 }).collect())
    }
}

/// Refuses logs whose state columns differ.
fn check_columns(sources: &[Box<dyn LogSource>]) -> Result<()> {
    let Some(first) = sources.first() else {
        return Err(Error::data("path", "no logs", "one file per agent"));
    };
    match sources.iter().find(|source| source.columns() != first.columns()) {
        None => Ok(()),
        Some(other) => {
            let (own, others) = (quoted(other.columns().join(", ")), quoted(first.columns().join(", ")));
            let what = format!("its state columns are {own}, but those of {} are {others}", first.name());
            Err(Error::data(other.name(), what, "all agents must log the same state columns"))
        }
    }
}
