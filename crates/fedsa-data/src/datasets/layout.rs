//! The columns of a table that are features, target and group.

use std::collections::HashSet;

use fedsa::error::{Error, Result, quoted};
use fedsa_problems::rows::dataset::Wanted;

use super::no_column;

/// The columns that are the target of a table by default.
const TARGETS: [&str; 2] = ["target", "label"];

/// The positions of columns in a table.
#[derive(Debug)]
pub(super) struct Layout {
    /// The names of the features.
    pub(super) columns: Vec<String>,
    /// The position of each feature.
    pub(super) features: Vec<usize>,
    pub(super) target: Option<usize>,
    pub(super) group: Option<usize>,
    /// Columns to drop that do not exist, as errors.
    pub(super) lacking: Vec<(String, Error)>,
}

impl Layout {
    /// The positions of columns in a table with these names. The features follow an earlier file in its order, if there is one.
    ///
    /// # Errors
    /// When a name is missing or duplicate, or the features differ from the earlier file's.
    pub(super) fn new(names: &[String], wanted: &Wanted, expected: Option<&[String]>) -> Result<Self> {
        let mut seen = HashSet::new();
        if let Some(twice) = names.iter().find(|name| !seen.insert(*name)) {
            return Err(Error::data("", format!("two columns are called `{}`", quoted(twice)), "columns with different names"));
        }
        let find = |name: &str| names.iter().position(|other| other == name);
        let group = wanted.group.as_deref().map(|name| find(name).ok_or_else(|| no_column(name, names))).transpose()?;
        let target = target(names, wanted)?;
        // Another file may have them.
        let lacking = wanted.drop.iter().filter(|name| find(name).is_none()).map(|name| (name.clone(), no_column(name, names))).collect();
        if let Some(name) = wanted.drop.iter().find(|name| [target, group].contains(&find(name)) && find(name).is_some()) {
            let what = format!("the column `{}` is dropped, but it is the target or the group", quoted(name));
            return Err(Error::data("", what, "columns that are nothing else"));
        }
        let is_feature = |i: &usize| Some(*i) != target && Some(*i) != group && !wanted.drop.contains(&names[*i]);
        let mut features: Vec<usize> = (0..names.len()).filter(is_feature).collect();
        if let Some(i) = features.iter().find(|i| names[**i].is_empty()) {
            let help = "a name for every column: pandas writes tables without its index with index=False";
            return Err(Error::data("", format!("column {} has no name", i + 1), help));
        }
        if let Some(i) = features.iter().find(|i| is_pandas_index(&names[**i])) {
            let help = "`drop` leaves it out; pandas writes tables without its index with index=False";
            return Err(Error::data("", format!("the column `{}` is the index that pandas wrote", names[*i]), help));
        }
        if let Some(expected) = expected {
            if let Some(i) = features.iter().find(|i| !expected.contains(&names[**i])) {
                let what = format!("there is a column `{}`, which the first file does not have", quoted(&names[*i]));
                return Err(Error::data("", what, "files with the same columns; `drop` lists columns that are not features"));
            }
            let at = |name: &String| features.iter().copied().find(|i| names[*i] == *name).ok_or_else(|| no_column(name, names));
            features = expected.iter().map(at).collect::<Result<_>>()?;
        }
        Ok(Self { columns: features.iter().map(|i| names[*i].clone()).collect(), features, target, group, lacking })
    }
}

/// Whether pandas made this column from an index without a name.
fn is_pandas_index(name: &str) -> bool {
    let level = name.strip_prefix("__index_level_").and_then(|rest| rest.strip_suffix("__"));
    level.is_some_and(|level| level.parse::<u32>().is_ok())
}

/// The position of the target.
fn target(names: &[String], wanted: &Wanted) -> Result<Option<usize>> {
    let find = |name: &str| names.iter().position(|other| other == name);
    let found = match &wanted.target {
        Some(name) => find(name).ok_or_else(|| no_column(name, names)),
        None => match TARGETS.map(find) {
            [Some(_), Some(_)] => {
                let what = "there is a column `target` and a column `label`";
                return Err(Error::data("", what, "say which is the target: `target`"));
            }
            [Some(i), None] | [None, Some(i)] => Ok(i),
            [None, None] => {
                let help = "a column called target or label; or name the column of targets: `target`";
                Err(no_column("target", names).helped(help))
            }
        },
    };
    if wanted.may_lack_target { Ok(found.ok()) } else { found.map(Some) }
}
