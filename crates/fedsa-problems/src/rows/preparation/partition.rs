//! The division of data sets' rows among agents.

use rand_distr::{Distribution, Gamma, Open01};
use serde::{Deserialize, Serialize};

use super::targets::Found;
use crate::rows::dataset::{Dataset, Labels, Rows};
use fedsa::error::{Error, Result, quoted, require};
use fedsa::random::{ALL, Purpose, Stream, stream};

/// The division of rows among agents.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Partition {
    /// Consecutive rows, in numbers that differ by at most one.
    #[default]
    Even,
    /// Random rows in equal numbers.
    Shuffled,
    /// Consecutive rows in equal numbers, sorted by label.
    Sorted,
    /// Deals out this share at random; the rest is sorted by label.
    Similarity(f64),
    /// Half of an agent's rows are positive, half of one other class. Other classes take turns.
    ByLabel,
    /// An agent per value of `group`.
    ByColumn,
    /// Divides each class by Dirichlet shares with this parameter; agents differ more for small values.
    Dirichlet(f64),
    /// An agent per file.
    Files,
}

/// Purposes of a partition's draws, as rounds of [`Purpose::System`].
const DEAL: u64 = 0;
const RESHUFFLE: u64 = 1;
const SHARES: u64 = 2;
/// The most draws of Dirichlet shares until every agent has a row.
const MAX_DRAWS: u64 = 1000;

/// The rows of all files, numbered in their order, with their classes, groups and files.
pub(super) struct Pool<'a> {
    /// The first row of each file, then the number of rows.
    first: Vec<usize>,
    labels: &'a Found,
    /// The group of each row, by rank in the order of first rows, and the names of groups.
    groups: Option<(Vec<u32>, Vec<String>)>,
    /// The names of the files.
    files: Vec<String>,
}

impl<'a> Pool<'a> {
    pub fn new(sets: &[Dataset], labels: &'a Found) -> Result<Self> {
        let mut first = vec![0];
        first.extend(sets.iter().scan(0, |n, set| {
            *n += set.rows.len();
            Some(*n)
        }));
        Ok(Self { first, labels, groups: groups(sets)?, files: file_names(sets) })
    }

    /// The names of agents that are files or column values; empty if rows are dealt out.
    pub fn names(&self, partition: Partition) -> Vec<String> {
        match (partition, &self.groups) {
            (Partition::Files, _) => self.files.clone(),
            (Partition::ByColumn, Some((_, names))) => names.clone(),
            _ => Vec::new(),
        }
    }

    fn len(&self) -> usize {
        self.first[self.first.len() - 1]
    }

    /// The file of a row, and its index there.
    fn place(&self, row: usize) -> (usize, usize) {
        let file = self.first.partition_point(|first| *first <= row) - 1;
        (file, row - self.first[file])
    }

    /// The rows of all agents as in the files, one agent after the other: dense unless all files are sparse.
    pub fn gather(&self, sets: &[Dataset], agents: &[Vec<usize>]) -> Rows {
        let d = sets.iter().map(|set| set.rows.columns()).max().unwrap_or(0);
        let rows = agents.iter().flatten().map(|row| self.place(*row));
        if sets.iter().all(|set| matches!(set.rows, Rows::Sparse { .. })) {
            let (mut starts, mut index, mut value) = (vec![0], Vec::new(), Vec::new());
            for (file, row) in rows {
                for (i, x) in sets[file].rows.row(row) {
                    index.push(i as u32);
                    value.push(x);
                }
                starts.push(index.len());
            }
            return Rows::Sparse { d, starts, index, value };
        }
        let mut values = vec![0.0; d * agents.iter().map(Vec::len).sum::<usize>()];
        for ((file, row), out) in rows.zip(values.chunks_mut(d.max(1))) {
            sets[file].rows.row(row).for_each(|(i, x)| out[i] = x);
        }
        Rows::Dense { d, values }
    }
}

/// The group of each row, if all files have groups.
fn groups(sets: &[Dataset]) -> Result<Option<(Vec<u32>, Vec<String>)>> {
    let mut ranks: std::collections::HashMap<String, u32> = std::collections::HashMap::new();
    let mut all = Vec::new();
    let mut of = Vec::new();
    for set in sets {
        let Some(groups) = &set.groups else { return Ok(None) };
        let mut rank = |name: String| {
            let next = ranks.len() as u32;
            *ranks.entry(name).or_insert_with_key(|name| {
                all.push(name.clone());
                next
            })
        };
        match groups {
            Labels::Numbers(x) => of.extend(x.iter().map(|x| rank((x + 0.0).to_string()))),
            Labels::Names { names, of: each } => of.extend(each.iter().map(|name| rank(names[*name as usize].clone()))),
        }
    }
    Ok(Some((of, all)))
}

/// An agent in messages: its name, if any.
pub(crate) fn called(names: &[String], agent: usize) -> String {
    names.get(agent).map_or_else(|| format!("agent {agent}"), |name| format!("agent `{}`", quoted(name)))
}

/// The names of data sets without their format suffix, if distinct.
fn file_names(sets: &[Dataset]) -> Vec<String> {
    const FORMATS: [&str; 8] = [".gz", ".zst", ".csv", ".tsv", ".parquet", ".libsvm", ".svm", ".txt"];
    let stem = |name: &str| {
        let mut stem = name;
        while let Some(shorter) = FORMATS.iter().find_map(|format| stem.strip_suffix(format)).filter(|shorter| !shorter.is_empty()) {
            stem = shorter;
        }
        stem.to_string()
    };
    let stems: Vec<String> = sets.iter().map(|set| stem(&set.name)).collect();
    let distinct: std::collections::HashSet<&String> = stems.iter().collect();
    if distinct.len() == stems.len() { stems } else { sets.iter().map(|set| set.name.clone()).collect() }
}

/// The number of values of the group column, if all files have it.
pub(crate) fn number_of_groups(sets: &[Dataset]) -> Result<Option<usize>> {
    Ok(groups(sets)?.map(|(_, names)| names.len()))
}

/// The first row of each agent, then the number of rows.
pub(super) fn starts(agents: &[Vec<usize>]) -> Vec<usize> {
    let ends = agents.iter().scan(0, |n, rows| {
        *n += rows.len();
        Some(*n)
    });
    std::iter::once(0).chain(ends).collect()
}

/// Shuffles in random order (Fisher and Yates).
pub(super) fn shuffle(items: &mut [usize], stream: &mut Stream) {
    for k in (1..items.len()).rev() {
        items.swap(k, (stream.uniform() * (k + 1) as f64) as usize);
    }
}

/// The sizes of `parts` parts of n items, which differ by at most one, the larger ones first.
fn even(n: usize, parts: usize) -> impl Iterator<Item = usize> {
    (0..parts).map(move |c| n / parts + usize::from(c < n % parts))
}

/// Cuts a list into consecutive pieces.
fn cut(rows: &[usize], sizes: impl Iterator<Item = usize>) -> Vec<Vec<usize>> {
    let mut rest = rows;
    sizes
        .map(|n| {
            let (piece, after) = rest.split_at(n);
            rest = after;
            piece.to_vec()
        })
        .collect()
}

impl Partition {
    pub(super) fn check(self) -> Result<()> {
        match self {
            Partition::Similarity(s) => require((0.0..=1.0).contains(&s), "partition.similarity", s, "a share from 0 to 1"),
            Partition::Dirichlet(alpha) => {
                require((1e-3..=1e6).contains(&alpha), "partition.dirichlet", alpha, "a parameter between 0.001 and 1e6")
            }
            _ => Ok(()),
        }
    }

    /// The rows of each agent.
    pub(super) fn divide(
        self,
        pool: &Pool<'_>,
        agents: Option<usize>,
        samples: Option<usize>,
        reshuffle: bool,
        seed: u64,
    ) -> Result<Vec<Vec<usize>>> {
        let draws = |what: u64, who: usize| stream(seed, Purpose::System, what, who);
        let mut divided = match self {
            Partition::Files => {
                let files: Vec<Vec<usize>> = pool.first.windows(2).map(|at| (at[0]..at[1]).collect()).collect();
                check_own_agents(agents, files.len(), "files")?;
                own_sizes(files, samples, &pool.names(self))?
            }
            Partition::ByColumn => {
                let Some((of, names)) = &pool.groups else {
                    return Err(Error::new(
                        "group",
                        "no column",
                        "the column whose values are the agents, as partition = \"by-column\" needs it",
                    ));
                };
                check_own_agents(agents, names.len(), "values in the column")?;
                let mut groups = vec![Vec::new(); names.len()];
                of.iter().enumerate().for_each(|(row, group)| groups[*group as usize].push(row));
                own_sizes(groups, samples, names)?
            }
            _ => {
                let help = "a number of agents; only partition = \"files\" and \"by-column\" follow from the data";
                let agents = agents.ok_or_else(|| Error::new("agents", "no number", help))?;
                let rows = pool.len();
                if agents > rows {
                    return Err(Error::new("agents", format!("{agents} agents for {rows} rows"), format!("at most {rows}")));
                }
                check_samples(agents, samples, rows)?;
                self.among(pool, agents, samples, &draws)?
            }
        };
        if reshuffle {
            let mut all: Vec<usize> = divided.concat();
            shuffle(&mut all, &mut draws(RESHUFFLE, ALL));
            let sizes: Vec<usize> = divided.iter().map(Vec::len).collect();
            divided = cut(&all, sizes.into_iter());
        }
        Ok(divided)
    }

    /// The rows of a given number of agents.
    fn among(
        self,
        pool: &Pool<'_>,
        agents: usize,
        samples: Option<usize>,
        draws: &dyn Fn(u64, usize) -> Stream,
    ) -> Result<Vec<Vec<usize>>> {
        let total = samples.map_or(pool.len(), |samples| samples * agents);
        let mut rows: Vec<usize> = (0..pool.len()).collect();
        let sizes = even(total, agents);
        if self == Partition::Even {
            return Ok(cut(&rows, sizes));
        }
        shuffle(&mut rows, &mut draws(DEAL, ALL));
        match self {
            Partition::Sorted | Partition::Similarity(_) => {
                let share = if let Partition::Similarity(share) = self { share } else { 0.0 };
                rows.truncate(total);
                let (mixed, sorted) = rows.split_at_mut((share * total as f64).round() as usize);
                sorted.sort_by(|a, b| pool.labels.get(*a).total_cmp(&pool.labels.get(*b)));
                // Each agent gets an equal number of the sorted ones, and then others.
                let own = cut(sorted, even(sorted.len(), agents));
                let fill = cut(mixed, sizes.zip(&own).map(|(size, own)| size - own.len()));
                Ok(own.into_iter().zip(fill).map(|(own, fill)| [own, fill].concat()).collect())
            }
            Partition::ByLabel => by_label(pool, &rows, agents, samples),
            Partition::Dirichlet(alpha) => own_sizes(dirichlet(pool, &rows, agents, alpha, draws)?, samples, &[]),
            _ => Ok(cut(&rows, sizes)),
        }
    }
}

/// Refuses more rows per agent than there are.
pub(super) fn check_samples(agents: usize, samples: Option<usize>, rows: usize) -> Result<()> {
    let Some(samples) = samples.filter(|samples| agents as f64 * *samples as f64 > rows as f64) else { return Ok(()) };
    let what = format!("{agents} agents with {samples} rows each, and there are {rows} rows");
    Err(Error::new("samples", what, format!("at most {}", rows / agents)))
}

/// Refuses a number of agents other than the data's.
fn check_own_agents(agents: Option<usize>, own: usize, what: &str) -> Result<()> {
    match agents {
        Some(agents) if agents != own => Err(Error::new(
            "agents",
            format!("{agents}, and there are {own} {what}"),
            format!("{own}, or no `agents`: it follows from the data"),
        )),
        _ => Ok(()),
    }
}

/// The first `samples` rows of each agent, or all.
fn own_sizes(mut agents: Vec<Vec<usize>>, samples: Option<usize>, names: &[String]) -> Result<Vec<Vec<usize>>> {
    for (c, rows) in agents.iter_mut().enumerate() {
        require(!rows.is_empty(), "partition", format!("{} without rows", called(names, c)), "a row for each agent")?;
        if let Some(samples) = samples {
            if rows.len() < samples {
                return Err(Error::new(
                    "samples",
                    format!("{samples}, and {} has {} rows", called(names, c), rows.len()),
                    "as many as every agent has",
                ));
            }
            rows.truncate(samples);
        }
    }
    Ok(agents)
}

/// Rows of each class in the order of `rows`, by rank.
fn of_classes(pool: &Pool<'_>, rows: &[usize], key: &str) -> Result<(Vec<Vec<usize>>, usize)> {
    let Some((classes, positive)) = pool.labels.classes() else {
        return Err(Error::new(
            "partition",
            format!("{}, and targets are numbers, not classes", quoted(key)),
            "another partition: \"sorted\"",
        ));
    };
    let mut of = vec![Vec::new(); classes];
    rows.iter().for_each(|row| of[pool.labels.get(*row) as usize].push(*row));
    Ok((of, positive))
}

fn by_label(pool: &Pool<'_>, rows: &[usize], agents: usize, samples: Option<usize>) -> Result<Vec<Vec<usize>>> {
    let help = "at least 2 where partition = \"by-label\": half of an agent's rows are of the positive class, and half of another one";
    require(samples != Some(1), "samples", 1, help)?;
    let (mut of, positive) = of_classes(pool, rows, "by-label")?;
    let own = of.remove(positive);
    let names: Vec<String> = (0..=of.len()).filter(|rank| *rank != positive).map(|rank| pool.labels.name(rank)).collect();
    if of.is_empty() {
        return Err(Error::new("partition", "\"by-label\", and all rows are of one class", "rows of at least two classes"));
    }
    let others = of.len();
    let holders = |k: usize| (0..agents).filter(move |c| c % others == k).count();
    let refused = |needed: usize, class: &str, there: usize| {
        let what = format!("{needed} rows of class {class} for {agents} agents, and there are {there}");
        Error::new(if samples.is_some() { "samples" } else { "agents" }, what, "fewer of them")
    };
    // Half of the rows, or equal parts of all.
    let half = samples.map_or(own.len() / agents, |samples| samples / 2);
    if half == 0 || half * agents > own.len() {
        return Err(refused(half.max(1) * agents, &pool.labels.name(positive), own.len()));
    }
    let own_sizes: Vec<usize> = if samples.is_some() { vec![half; agents] } else { even(own.len(), agents).collect() };
    let own = cut(&own, own_sizes.into_iter());
    let mut pieces = Vec::with_capacity(others);
    for (k, class) in of.iter().enumerate().take(agents) {
        let n = holders(k);
        let each = samples.map_or(class.len() / n, |samples| samples - half);
        if each == 0 || each * n > class.len() {
            return Err(refused(each.max(1) * n, &names[k], class.len()));
        }
        let sizes: Vec<usize> = if samples.is_some() { vec![each; n] } else { even(class.len(), n).collect() };
        pieces.push(cut(class, sizes.into_iter()));
    }
    Ok(own.into_iter().enumerate().map(|(c, own)| [own, pieces[c % others][c / others].clone()].concat()).collect())
}

/// Shares from the Dirichlet law: Gamma numbers divided by their sum. With a small parameter a Gamma number may underflow, but its
/// logarithm does not: `G(alpha) = G(alpha + 1) U^(1/alpha)` in law, with a uniform U.
pub(super) fn dirichlet_shares(alpha: f64, agents: usize, s: &mut Stream) -> Vec<f64> {
    let is_small = alpha < 1.0;
    let law = Gamma::new(if is_small { alpha + 1.0 } else { alpha }, 1.0).expect("a positive parameter");
    let mut logarithm = || {
        let power = if is_small { Distribution::<f64>::sample(&Open01, s).ln() / alpha } else { 0.0 };
        law.sample(s).ln() + power
    };
    let logarithms: Vec<f64> = (0..agents).map(|_| logarithm()).collect();
    let most = logarithms.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let gammas: Vec<f64> = logarithms.iter().map(|x| (x - most).exp()).collect();
    let total: f64 = gammas.iter().sum();
    gammas.iter().map(|x| x / total).collect()
}

/// Dirichlet shares for each class, drawn again until every agent has a row.
fn dirichlet(pool: &Pool<'_>, rows: &[usize], agents: usize, alpha: f64, draws: &dyn Fn(u64, usize) -> Stream) -> Result<Vec<Vec<usize>>> {
    let (of, _) = of_classes(pool, rows, "dirichlet")?;
    for attempt in 0..MAX_DRAWS {
        let mut divided = vec![Vec::new(); agents];
        for (k, class) in of.iter().enumerate() {
            let mut s = draws(SHARES + attempt, k);
            let (mut sum, mut start) = (0.0, 0);
            for (c, share) in dirichlet_shares(alpha, agents, &mut s).iter().enumerate() {
                sum += share;
                let is_last = c + 1 == agents;
                let end = if is_last { class.len() } else { ((sum * class.len() as f64).round() as usize).clamp(start, class.len()) };
                divided[c].extend_from_slice(&class[start..end]);
                start = end;
            }
        }
        if divided.iter().all(|rows| !rows.is_empty()) {
            return Ok(divided);
        }
    }
    let what = format!("{alpha}: of {MAX_DRAWS} draws each left an agent of {agents} without rows");
    Err(Error::new("partition.dirichlet", what, "a larger parameter, or fewer agents"))
}
