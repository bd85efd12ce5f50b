//! Targets from labels: classes as -1 and 1, class indices, or numbers.

use fedsa::columns::MAX_CLASSES;
use serde::Serialize;

use super::columns::{help_with, rows};
use super::texts::{alike, disguise, folded};
use crate::rows::dataset::{Dataset, Labels, row_in};
use crate::rows::glm::family::ModelFamily;
use fedsa::error::{Error, Result, quoted, require};
use fedsa::note::{Note, NoteCode};
use fedsa::settings::choice;

/// A class: a number or a name.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "Class"))]
#[serde(untagged)]
pub enum ClassLabel {
    /// A number.
    Number(f64),
    /// A name.
    Name(String),
}

choice!(ClassLabel, "a number, or a name in quotes",
    number f64 => |x| Ok(ClassLabel::Number(x)),
    text String => |name| Ok(ClassLabel::Name(name)),
);

impl std::fmt::Display for ClassLabel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ClassLabel::Number(x) => write!(f, "{x}"),
            ClassLabel::Name(name) => write!(f, "{}", quoted(name)),
        }
    }
}

/// The rule for targets.
#[derive(Debug, Clone, PartialEq)]
pub enum TargetRule {
    /// 1 for the rows of a class, -1 for all others. Without a class, labels must be binary.
    Classes {
        /// The class whose target is 1.
        positive: Option<ClassLabel>,
        /// All classes, some of which may lack rows here; by default the rows' classes.
        classes: Option<Vec<ClassLabel>>,
    },
    /// The index of a row's class; the reference has 0.
    Many {
        /// The reference class; the first one by default.
        reference: Option<ClassLabel>,
        /// All classes, some of which may lack rows here; by default the rows' classes.
        classes: Option<Vec<ClassLabel>>,
    },
    /// Numeric labels.
    Numbers {
        /// The smallest and the largest target of an affine map of labels; without it, labels are unchanged.
        range: Option<[f64; 2]>,
    },
}

impl TargetRule {
    pub(super) fn check(&self) -> Result<()> {
        let Self::Numbers { range: Some([low, high]) } = self else { return Ok(()) };
        let is_range = low.is_finite() && high.is_finite() && low < high;
        require(is_range, "target_range", format!("[{low}, {high}]"), "two finite numbers, the smaller one first")
    }
}

/// The labels that were found, for the rows of all files in their order.
#[derive(Debug)]
pub(super) struct Found {
    rule: TargetRule,
    /// The label of each row; for classes, its rank.
    of: Vec<f64>,
    /// The distinct labels in increasing order; empty for numbers.
    classes: Vec<ClassLabel>,
    /// The rank of the positive class.
    positive: usize,
}

/// The most classes of a multinomial model.
const MAX_OUTPUTS: usize = 100;

/// The labels of each file's rows.
fn labels_of(sets: &[Dataset]) -> Result<Vec<&Labels>> {
    let labels = sets.iter().map(|set| {
        let missing = || Error::data("target", format!("{} has no labels", quoted(&set.name)), "the name of a column: target = \"..\"");
        set.targets.as_ref().ok_or_else(missing)
    });
    labels.collect()
}

/// The distinct labels of rows in increasing order, and the number of rows of each.
///
/// # Errors
/// When a file has no labels, or there are too many.
pub(super) fn classes_of(sets: &[Dataset]) -> Result<(Vec<ClassLabel>, Vec<u64>)> {
    let (classes, of) = ranks(sets, &labels_of(sets)?)?;
    let mut rows = vec![0; classes.len()];
    of.iter().for_each(|rank| rows[*rank as usize] += 1);
    Ok((classes, rows))
}

impl Found {
    pub fn of(sets: &[Dataset], rule: &TargetRule) -> Result<Self> {
        let labels = labels_of(sets)?;
        let found = Self { rule: rule.clone(), of: Vec::new(), classes: Vec::new(), positive: 0 };
        match rule {
            TargetRule::Numbers { .. } => Ok(Self { of: numbers(sets, &labels)?, ..found }),
            TargetRule::Many { reference, classes } => {
                let (classes, of) = among(classes.as_deref(), ranks(sets, &labels)?)?;
                let positive = reference_rank(&classes, reference.as_ref())?;
                Ok(Self { of, classes, positive, ..found })
            }
            TargetRule::Classes { positive, classes } => {
                let (classes, of) = among(classes.as_deref(), ranks(sets, &labels)?)?;
                let positive = positive_rank(&classes, positive.as_ref())?;
                Ok(Self { of, classes, positive, ..found })
            }
        }
    }

    /// Refuses numbers that are no valid targets of a family.
    ///
    /// # Errors
    /// When there is one; the error names its file and row.
    pub fn check(&self, sets: &[Dataset], family: ModelFamily) -> Result<()> {
        let Some((is_one, wanted)) = family.domain().filter(|_| self.classes.is_empty()) else { return Ok(()) };
        let Some(row) = self.of.iter().position(|y| !is_one(*y)) else { return Ok(()) };
        let what = format!("{} has the target {}, and the family is {}", row_in(sets, row), self.of[row], family.name());
        Err(Error::data("target", what, wanted))
    }

    /// The label of a row: a number, or the rank of its class.
    pub fn get(&self, row: usize) -> f64 {
        self.of[row]
    }

    /// The number of classes, and the rank of the positive one; `None` for numeric labels.
    pub fn classes(&self) -> Option<(usize, usize)> {
        (!self.classes.is_empty()).then_some((self.classes.len(), self.positive))
    }

    /// A class by its rank, for messages.
    pub fn name(&self, rank: usize) -> String {
        self.classes[rank].to_string()
    }

    /// The targets; `agents` are the rows for the fit.
    pub fn targets(&self, agents: &[Vec<usize>]) -> Result<Targets> {
        let mut all = agents.iter().flatten().map(|i| self.of[*i]);
        match &self.rule {
            TargetRule::Classes { classes, .. } => {
                let positives = all.clone().filter(|label| *label == self.positive as f64).count();
                let class = &self.classes[self.positive];
                let are_found = classes.is_none();
                if are_found && (positives == 0 || all.all(|label| label == self.positive as f64)) {
                    let which = if positives == 0 { format!("of class {class}") } else { format!("of another class than {class}") };
                    let help = "rows of the class and of others: another positive, partition, samples or holdout";
                    return Err(Error::new("positive", format!("no agent has a row {which}"), help));
                }
                Ok(Targets::of_binary(&self.classes, self.positive))
            }
            TargetRule::Many { classes, .. } => self.many(all, classes.is_none()),
            TargetRule::Numbers { range: None } => Ok(Targets::Numbers { offset: 0.0, scale: 1.0 }),
            TargetRule::Numbers { range: Some([low, high]) } => {
                let (least, most) = all.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), y| (a.min(y), b.max(y)));
                if least >= most {
                    return Err(Error::new("target_range", format!("all targets are {least}"), "targets that differ, or no target_range"));
                }
                let scale = (high - low) / (most - least);
                Ok(Targets::Numbers { offset: least - low / scale, scale })
            }
        }
    }
}

impl Found {
    /// A note about the positive class, if it is one against several, or the larger one of two numbers.
    pub fn note(&self, agents: &[Vec<usize>]) -> Option<Note> {
        let TargetRule::Classes { positive, .. } = &self.rule else { return None };
        let mut counts = vec![0u64; self.classes.len()];
        agents.iter().flatten().for_each(|row| counts[self.of[*row] as usize] += 1);
        let said = |rank: usize| format!("{} ({})", self.classes[rank], rows(counts[rank]));
        let (own, others) = (self.positive, (0..self.classes.len()).filter(|rank| *rank != self.positive));
        let text = match (&self.classes[..], positive) {
            ([ClassLabel::Number(low), ClassLabel::Number(high)], None) if !are_signs(*low, *high) => {
                let other = said(1 - own);
                format!(
                    "{} is the positive class and {other} the negative one, because it is the smaller number: `positive` chooses",
                    said(own)
                )
            }
            ([_, _], _) => return None,
            _ => format!(
                "{} is the positive class, against all others as one: {}",
                said(own),
                listed(others.map(said).collect::<Vec<_>>().into_iter())
            ),
        };
        Some(Note::new(NoteCode::PositiveClass, text))
    }

    /// Targets of several classes, the reference first. Classes that were found have rows for the fit; given ones may have none.
    fn many(&self, labels: impl Iterator<Item = f64>, are_found: bool) -> Result<Targets> {
        let mut counts = vec![0usize; self.classes.len()];
        labels.for_each(|label| counts[label as usize] += 1);
        let missing: Vec<String> = (0..counts.len()).filter(|rank| counts[*rank] == 0).map(|rank| self.name(rank)).collect();
        if are_found && !missing.is_empty() {
            let what = format!("no agent has a row to fit of the classes {}", missing.join(", "));
            return Err(Error::data("target", what, "rows of all classes: another partition, samples or holdout"));
        }
        if counts.len() < 2 {
            let what = format!("all rows are of the class {}", self.name(0));
            return Err(Error::data("target", what, "rows of at least two classes"));
        }
        Ok(Targets::of_many(&self.classes, self.positive))
    }
}

/// Numeric labels.
fn numbers(sets: &[Dataset], labels: &[&Labels]) -> Result<Vec<f64>> {
    let mut of = Vec::new();
    for (set, labels) in sets.iter().zip(labels) {
        match labels {
            Labels::Numbers(x) => of.extend_from_slice(x),
            Labels::Names { names, of } => return Err(no_numbers(set, names, of)),
        }
    }
    Ok(of)
}

/// The error about labels that are names. If most are numbers, it points at the others.
fn no_numbers(set: &Dataset, names: &[String], of: &[u32]) -> Error {
    let is_number: Vec<bool> = names.iter().map(|name| name.parse::<f64>().is_ok()).collect();
    let mut others = of.iter().enumerate().filter(|(_, name)| !is_number[**name as usize]);
    let count = others.clone().count();
    match others.next() {
        Some((row, name)) if 2 * count <= of.len() => {
            let more = if count > 1 { format!(", and neither are those of {} further rows", count - 1) } else { String::new() };
            let text = &names[*name as usize];
            let is = disguise(text).unwrap_or("not a number");
            let what = format!("{}: row {}: `{}` is {is}{more}", quoted(&set.name), row + 1, quoted(text));
            Error::data("target", what, "a number in every row: leave such rows out")
        }
        Some((row, name)) if let Some(is) = disguise(&names[*name as usize]) => {
            let what = format!("{}: row {}: the target `{}` is {is}", quoted(&set.name), row + 1, quoted(&names[*name as usize]));
            Error::data("target", what, help_with(is))
        }
        _ => {
            let what = format!("{}: labels that are names: {}", quoted(&set.name), listed(names.iter().map(quoted)));
            Error::data(
                "target",
                what,
                "a column of numbers; or `kind = \"logistic\"` for two classes, `kind = \"multinomial\"` for several",
            )
        }
    }
}

/// The distinct labels in increasing order, and the rank of each row's label.
///
/// # Errors
/// When labels are numbers in one file and names in another, differ only by case and spaces, or are too many.
fn ranks(sets: &[Dataset], labels: &[&Labels]) -> Result<(Vec<ClassLabel>, Vec<f64>)> {
    let too_many = |n: usize| {
        let help = format!("at most {MAX_CLASSES} classes, or `kind = \"least-squares\"` for numbers");
        Error::data("target", format!("{n} distinct labels"), help)
    };
    if labels.iter().all(|labels| matches!(labels, Labels::Numbers(_))) {
        let all = labels.iter().flat_map(|labels| match labels {
            Labels::Numbers(x) => x.as_slice(),
            Labels::Names { .. } => &[],
        });
        // Turns -0 into 0.
        let all: Vec<f64> = all.map(|x| x + 0.0).collect();
        let mut distinct = all.clone();
        distinct.sort_by(f64::total_cmp);
        distinct.dedup();
        if distinct.len() > MAX_CLASSES {
            return Err(too_many(distinct.len()));
        }
        let rank = |x: &f64| distinct.partition_point(|y| y < x) as f64;
        let of = all.iter().map(rank).collect();
        return Ok((distinct.into_iter().map(ClassLabel::Number).collect(), of));
    }
    let mut distinct: Vec<&String> = Vec::new();
    for one in labels {
        match one {
            Labels::Names { names, .. } => distinct.extend(names),
            Labels::Numbers(_) => return Err(two_codings(sets, labels)),
        }
    }
    distinct.sort();
    distinct.dedup();
    check_alike(sets, labels, &distinct)?;
    if distinct.len() > MAX_CLASSES {
        return Err(too_many(distinct.len()));
    }
    let mut ranks = Vec::new();
    for labels in labels {
        let Labels::Names { names, of } = labels else { continue };
        let rank: Vec<f64> = names.iter().map(|name| distinct.partition_point(|other| *other < name) as f64).collect();
        ranks.extend(of.iter().map(|name| rank[*name as usize]));
    }
    // Names without a row are no classes.
    Ok((distinct.into_iter().cloned().map(ClassLabel::Name).collect(), ranks))
}

/// The error about labels that are numbers in one file and names in another.
fn two_codings(sets: &[Dataset], labels: &[&Labels]) -> Error {
    let example = |labels: &Labels| match labels {
        Labels::Numbers(x) => x.first().map(|x| x.to_string()),
        Labels::Names { names, .. } => names.first().cloned(),
    };
    let of = |are_numbers: bool| {
        let at = labels.iter().position(|labels| matches!(labels, Labels::Numbers(_)) == are_numbers)?;
        Some(format!("{}, such as `{}`", quoted(&sets[at].name), quoted(example(labels[at]).unwrap_or_default())))
    };
    let what = format!("labels that are numbers in {}, and names in {}", of(true).unwrap_or_default(), of(false).unwrap_or_default());
    Error::data("target", what, "the same labels in all files")
}

/// Refuses labels that differ only by case and spaces: a model would make two classes of one.
fn check_alike(sets: &[Dataset], labels: &[&Labels], distinct: &[&String]) -> Result<()> {
    let Some((a, _)) = alike(distinct.iter().map(|name| name.as_str())) else { return Ok(()) };
    let same = folded(distinct[a]);
    let said = |name: &String| {
        let (mut files, mut count) = (Vec::new(), 0);
        for (set, labels) in sets.iter().zip(labels) {
            let Labels::Names { names, of } = labels else { continue };
            let n = of.iter().filter(|i| names[**i as usize] == *name).count();
            count += n as u64;
            files.extend((n > 0).then(|| quoted(&set.name)));
        }
        format!("`{}` ({} in {})", quoted(name), rows(count), listed(files.into_iter()))
    };
    let all: Vec<String> = distinct.iter().filter(|name| folded(name) == same).map(|name| said(name)).collect();
    let what = format!("labels that differ by case or spaces alone: {}", all.join(", "));
    Err(Error::data("target", what, "one way to write each class in all files"))
}

/// Refuses classes whose names differ only by case and spaces.
fn check_same_names(classes: &[ClassLabel]) -> Result<()> {
    let names = classes.iter().map(|class| if let ClassLabel::Name(name) = class { name } else { "" });
    let are_names = classes.iter().all(|class| matches!(class, ClassLabel::Name(_)));
    let Some((a, b)) = alike(names).filter(|_| are_names) else { return Ok(()) };
    let what = format!("labels that differ by case or spaces alone: {}, {}", classes[a], classes[b]);
    Err(Error::data("target", what, "one way to write each class at all agents"))
}

/// The given classes in increasing order, or without given ones the found classes, and the rank of each row's class among them.
fn among(given: Option<&[ClassLabel]>, (found, of): (Vec<ClassLabel>, Vec<f64>)) -> Result<(Vec<ClassLabel>, Vec<f64>)> {
    let Some(given) = given else { return Ok((found, of)) };
    let classes = in_order(given)?;
    let rank = |class: &ClassLabel| match classes.iter().position(|other| other == class) {
        Some(rank) => Ok(rank as f64),
        None => Err(Error::new("classes", format!("a row has the label {class}, which is none of them"), "the labels of all agents")),
    };
    let ranks = found.iter().map(rank).collect::<Result<Vec<f64>>>()?;
    Ok((classes, of.iter().map(|before| ranks[*before as usize]).collect()))
}

/// The given classes in increasing order.
fn in_order(given: &[ClassLabel]) -> Result<Vec<ClassLabel>> {
    let help = "the labels of all agents: two numbers or more, or two names or more, such as [0, 1]";
    let refused = |what: String| Err(Error::new("classes", what, help));
    let mut classes = given.to_vec();
    let numbers = classes.iter().filter(|class| matches!(class, ClassLabel::Number(_))).count();
    if numbers != 0 && numbers != classes.len() {
        return refused("numbers and names".into());
    }
    classes.sort_by(|a, b| match (a, b) {
        (ClassLabel::Number(a), ClassLabel::Number(b)) => (a + 0.0).total_cmp(&(b + 0.0)),
        (ClassLabel::Name(a), ClassLabel::Name(b)) => a.cmp(b),
        _ => std::cmp::Ordering::Equal,
    });
    classes.dedup();
    if classes.len() != given.len() || !(2..=MAX_CLASSES).contains(&classes.len()) {
        return refused(format!("{} classes, {} of them different", given.len(), classes.len()));
    }
    Ok(classes)
}

/// The rank of the positive class.
fn positive_rank(classes: &[ClassLabel], positive: Option<&ClassLabel>) -> Result<usize> {
    let found = || listed(classes.iter().map(ClassLabel::to_string));
    if let Some(class) = positive {
        let at = classes.iter().position(|other| other == class);
        return at
            .ok_or_else(|| Error::new("positive", format!("no row has the label {class}"), format!("one of the labels: {}", found())));
    }
    match classes {
        // The larger number, or the second name.
        [_, _] => Ok(1),
        [only] => Err(Error::data("target", format!("all rows have the target {only}"), "rows of two classes")),
        _ => {
            let help = "`kind = \"multinomial\"` for several classes, `kind = \"least-squares\"` for numbers; or `positive`, the label of a class against \
                        all others";
            Err(Error::data("target", format!("{} labels, and the model is one of two classes: {}", classes.len(), found()), help))
        }
    }
}

/// Whether two labels are 0 and 1, or -1 and 1.
fn are_signs(low: f64, high: f64) -> bool {
    high == 1.0 && (low == 0.0 || low == -1.0)
}

/// The rank of the reference class.
fn reference_rank(classes: &[ClassLabel], reference: Option<&ClassLabel>) -> Result<usize> {
    if classes.len() > MAX_OUTPUTS {
        let what = format!("{} classes: {}", classes.len(), listed(classes.iter().map(ClassLabel::to_string)));
        return Err(Error::data("target", what, format!("at most {MAX_OUTPUTS} classes; numbers are for other models")));
    }
    let Some(class) = reference else { return Ok(0) };
    let found = || listed(classes.iter().map(ClassLabel::to_string));
    classes.iter().position(|other| other == class).ok_or_else(|| {
        Error::new("reference", format!("no row has the label {class}"), format!("one of the labels that were found: {}", found()))
    })
}

/// The first few items of a list, and their total number.
fn listed(items: impl ExactSizeIterator<Item = String>) -> String {
    const MOST: usize = 12;
    let n = items.len();
    let mut text = items.take(MOST).collect::<Vec<_>>().join(", ");
    if n > MOST {
        text.push_str(&format!(", .. ({n} in all)"));
    }
    text
}

/// The map from labels to targets.
#[derive(Debug, Clone, PartialEq)]
pub enum Targets {
    /// 1 for a class, -1 for all others.
    Classes {
        /// The rank of the class among the found labels.
        rank: usize,
        /// The class whose target is 1.
        positive: ClassLabel,
        /// The other class, if there are two. The second of two names in alphabetical order is positive.
        negative: Option<ClassLabel>,
    },
    /// The index of the class; 0 for the reference.
    Many {
        /// The classes, the reference first.
        classes: Vec<ClassLabel>,
        /// Their ranks among the found labels.
        ranks: Vec<usize>,
    },
    /// `y = scale (label - offset)`.
    Numbers {
        /// The label whose target is 0.
        offset: f64,
        /// The factor.
        scale: f64,
    },
}

impl TargetRule {
    /// The number of outputs of a model of these rows; 1 for rows without classes, which other checks refuse.
    pub(crate) fn outputs(&self, sets: &[Dataset]) -> usize {
        let classes = match self {
            Self::Many { classes: Some(classes), .. } => classes.len(),
            Self::Many { classes: None, .. } => classes_of(sets).map_or(0, |(classes, _)| classes.len()),
            _ => 2,
        };
        classes.saturating_sub(1).max(1)
    }

    /// The targets for the classes of the rule, or for `found` classes in increasing order; `None` for numeric targets.
    ///
    /// # Errors
    /// When the rule does not fit these classes.
    pub fn of_classes(&self, found: Option<&[ClassLabel]>) -> Result<Option<Targets>> {
        let (Self::Classes { classes: given, .. } | Self::Many { classes: given, .. }) = self else { return Ok(None) };
        let classes = match given {
            Some(given) => in_order(given)?,
            None => found.unwrap_or_default().to_vec(),
        };
        check_same_names(&classes)?;
        if let [] | [_] = classes[..] {
            let all = classes.first().map_or_else(|| "no target".into(), |only| format!("the target {only}"));
            return Err(Error::data("target", format!("all rows have {all}"), "rows of two classes"));
        }
        Ok(match self {
            Self::Classes { positive, .. } => Some(Targets::of_binary(&classes, positive_rank(&classes, positive.as_ref())?)),
            Self::Many { reference, .. } => Some(Targets::of_many(&classes, reference_rank(&classes, reference.as_ref())?)),
            Self::Numbers { .. } => None,
        })
    }
}

impl Targets {
    /// 1 for the class of this rank, -1 for others.
    fn of_binary(classes: &[ClassLabel], positive: usize) -> Self {
        let negative = (classes.len() == 2).then(|| classes[1 - positive].clone());
        Self::Classes { rank: positive, positive: classes[positive].clone(), negative }
    }

    /// The index of the class; the reference, the class of this rank, has 0.
    fn of_many(classes: &[ClassLabel], reference: usize) -> Self {
        let others = (0..classes.len()).filter(|rank| *rank != reference);
        let ranks: Vec<usize> = std::iter::once(reference).chain(others).collect();
        Self::Many { classes: ranks.iter().map(|rank| classes[*rank].clone()).collect(), ranks }
    }

    /// The number of outputs of a model with these targets.
    pub fn outputs(&self) -> usize {
        if let Self::Many { classes, .. } = self { classes.len() - 1 } else { 1 }
    }

    /// The target of a label: a number, or the rank of its class.
    pub(super) fn of(&self, label: f64) -> f64 {
        match self {
            Targets::Classes { rank, .. } => {
                if label == *rank as f64 {
                    1.0
                } else {
                    -1.0
                }
            }
            Targets::Many { ranks, .. } => ranks.iter().position(|rank| *rank == label as usize).unwrap_or(0) as f64,
            Targets::Numbers { offset, scale } => scale * (label - offset),
        }
    }

    /// The class of output k, if there are several outputs.
    pub fn class_of_output(&self, k: usize) -> Option<String> {
        match self {
            Targets::Many { classes, .. } => classes.get(k + 1).map(ClassLabel::to_string),
            _ => None,
        }
    }

    /// The reference class, if there are several outputs.
    pub fn reference(&self) -> Option<&ClassLabel> {
        match self {
            Targets::Many { classes, .. } => classes.first(),
            _ => None,
        }
    }

    /// The label of a predicted target; numbers only.
    pub fn label(&self, target: f64) -> f64 {
        match self {
            Targets::Classes { .. } | Targets::Many { .. } => target,
            Targets::Numbers { offset, scale } => target / scale + offset,
        }
    }
}
