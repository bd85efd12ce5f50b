//! The names of a file's columns, and their names in a log.

use std::collections::{BTreeMap, HashMap, HashSet};

use fedsa::error::{Error, Result, quoted};
use fedsa_problems::logs::log_form::COLUMNS;

use super::ratios::{BEHAVIOURS, PROBABILITIES};
use crate::listed;

/// The prefix of names of state columns.
const STATE: &str = "s_";

/// The names of a file's columns.
pub(crate) struct Header {
    /// As in the file.
    pub names: Vec<String>,
    /// As in a log; empty for a column that another one replaces.
    pub roles: Vec<String>,
    /// The first position of each role, and whether there is a second one.
    places: HashMap<String, (usize, bool)>,
}

impl Header {
    /// The names of a file, renamed by the caller's names ([`LogForm::columns`](fedsa_problems::logs::log_form::LogForm::columns)).
    ///
    /// # Errors
    /// When the file has no such column.
    pub fn new(names: Vec<String>, columns: &BTreeMap<String, String>) -> Result<Self> {
        let mut given: Vec<Option<String>> = vec![None; names.len()];
        for (role, field) in columns {
            let mut is_there = false;
            for (given, name) in given.iter_mut().zip(&names) {
                if let Some(role) = role_of(role, field, name) {
                    is_there = true;
                    // A full name takes precedence over a pattern.
                    if given.is_none() || !field.contains('*') {
                        *given = Some(role);
                    }
                }
            }
            if !is_there {
                let found = listed(names.iter().map(String::as_str));
                let what = format!("there is no column `{}` for `{}`: the columns are {found}", quoted(field), quoted(role));
                return Err(Error::data("", what, "names of columns of every file in `columns`"));
            }
        }
        let replaced: HashSet<&str> = given.iter().flatten().map(String::as_str).collect();
        let is_given = |name: &str| replaced.contains(canonical(name));
        let has_states = names.iter().any(|name| name.starts_with(STATE)) || replaced.iter().any(|role| role.starts_with(STATE));
        let role = |(name, given): (&String, &Option<String>)| match given {
            Some(role) => role.clone(),
            None if is_given(name) => String::new(),
            None => name.strip_prefix(ROBOT_STATE).filter(|_| !has_states).map_or(name.clone(), |i| format!("{STATE}{i}")),
        };
        let roles: Vec<String> = names.iter().zip(&given).map(role).collect();
        let mut places: HashMap<String, (usize, bool)> = HashMap::new();
        for (i, role) in roles.iter().enumerate() {
            places.entry(role.clone()).and_modify(|place| place.1 = true).or_insert((i, false));
        }
        Ok(Self { roles, names, places })
    }

    /// The position of the column of this role.
    ///
    /// # Errors
    /// When two columns have it.
    pub fn find(&self, role: &str) -> Result<Option<usize>> {
        match self.places.get(role) {
            Some((_, true)) => Err(Error::data("", format!("two columns are called `{}`", quoted(role)), "columns with different names")),
            place => Ok(place.map(|(place, _)| *place)),
        }
    }

    /// The position of the first of these names that exists.
    ///
    /// # Errors
    /// When two columns have it.
    pub fn first(&self, names: &[&str]) -> Result<Option<usize>> {
        for name in names {
            if let Some(place) = self.find(name)? {
                return Ok(Some(place));
            }
        }
        Ok(None)
    }

    /// The file's columns, in words.
    pub fn found(&self) -> String {
        if self.names.is_empty() {
            return "an empty file".into();
        }
        format!("the columns are {}", listed(self.names.iter().map(String::as_str)))
    }

    /// Suggested names for a file without state columns: pairs such as `obs_0` with `next_obs_0`, or `obs` with `next_obs`.
    pub fn proposal(&self, state: &str, next: &str) -> Option<String> {
        const MOST: usize = 8;
        let after = |name: &String| -> Option<String> {
            let after = [format!("next_{name}"), format!("{name}_next"), format!("new_{name}")];
            after.into_iter().find(|after| self.names.contains(after))
        };
        let pairs: Vec<(&String, String)> = self.names.iter().filter_map(|name| Some((name, after(name)?))).collect();
        let stem = |name: &str| name.trim_end_matches(|c: char| c.is_ascii_digit()).to_string();
        let (first, follows) = pairs.first()?;
        let (stem_of, next_stem) = (stem(first), stem(follows));
        let is_numbered = first.len() > stem_of.len() && pairs.iter().all(|(a, b)| stem(a) == stem_of && stem(b) == next_stem);
        if is_numbered {
            return Some(format!("{state}*={stem_of}*,{next}*={next_stem}*"));
        }
        let named = pairs.iter().take(MOST).enumerate().map(|(i, (a, b))| format!("{state}{i}={a},{next}{i}={b}"));
        Some(named.collect::<Vec<_>>().join(","))
    }
}

/// The role of a column called `name` under `role=field`; both may have a `*`.
fn role_of(role: &str, field: &str, name: &str) -> Option<String> {
    match (role.split_once('*'), field.split_once('*')) {
        (Some((role_before, role_after)), Some((before, after))) => {
            let middle = name.strip_prefix(before)?.strip_suffix(after)?;
            Some(format!("{role_before}{middle}{role_after}"))
        }
        _ => (name == field).then(|| role.to_string()),
    }
}

/// The names of `done` in logs; the first existing one counts.
pub(super) const DONE: [&str; 7] = ["terminated", "terminations", "terminals", "terminal", COLUMNS[1], "dones", "next.done"];
/// The names of `truncated`.
pub(super) const TRUNCATED: [&str; 4] = [COLUMNS[2], "truncations", "timeouts", "timeout"];
/// The names of `reward`.
pub(super) const REWARD: [&str; 3] = [COLUMNS[0], "rewards", "next.reward"];
/// The names of `episode`.
pub(super) const EPISODE: [&str; 3] = [COLUMNS[3], "episodes", "episode_index"];
/// The names of `action`.
pub(super) const ACTION: [&str; 2] = ["action", "actions"];
/// The prefix of state columns in robot data sets (LeRobot), for files without columns `s_*`.
const ROBOT_STATE: &str = "observation.state_";

/// The name of a log for one of its other names.
fn canonical(name: &str) -> &str {
    let of = |names: &[&str], canonical| names.contains(&name).then_some(canonical);
    let marks = of(&DONE, "done").or(of(&TRUNCATED, "truncated")).or(of(&REWARD, "reward")).or(of(&EPISODE, "episode"));
    marks.or(of(&ACTION, ACTION[0])).or(of(&BEHAVIOURS, PROBABILITIES[1])).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roles(names: &[&str], columns: &[(&str, &str)]) -> Result<Vec<String>> {
        let columns = columns.iter().map(|(role, field)| ((*role).to_string(), (*field).to_string())).collect();
        Header::new(names.iter().map(|name| (*name).to_string()).collect(), &columns).map(|header| header.roles)
    }

    #[test]
    fn names_that_are_given_replace_those_of_the_file() {
        let names = ["x", "s_0", "terminated", "r", "obs_0", "next_obs_0"];
        assert_eq!(roles(&names, &[]).unwrap(), names);
        let given = roles(&names, &[("s_0", "x"), ("done", "r")]).unwrap();
        assert_eq!(given, ["s_0", "", "", "done", "obs_0", "next_obs_0"]);
        let given = roles(&names, &[("next_*", "next_obs_*"), ("s_*", "obs_*")]).unwrap();
        assert_eq!(given, ["x", "", "terminated", "r", "s_0", "next_0"]);
        let given = roles(&names, &[("s_*", "obs_*"), ("s_7", "obs_0")]).unwrap();
        assert_eq!(given[4], "s_7");
        let e = roles(&names, &[("s_0", "y")]).unwrap_err().to_string();
        assert!(e.starts_with("there is no column `y` for `s_0`: the columns are `x`, `s_0`"), "{e}");
    }

    #[test]
    fn names_are_proposed() {
        let proposal = |names: &[&str]| {
            Header::new(names.iter().map(|name| (*name).to_string()).collect(), &BTreeMap::new()).unwrap().proposal("s_", "next_")
        };
        assert_eq!(proposal(&["obs_0", "obs_1", "next_obs_0", "next_obs_1"]).unwrap(), "s_*=obs_*,next_*=next_obs_*");
        assert_eq!(proposal(&["obs", "reward", "next_obs"]).unwrap(), "s_0=obs,next_0=next_obs");
        assert_eq!(proposal(&["x", "v", "x_next", "v_next"]).unwrap(), "s_0=x,next_0=x_next,s_1=v,next_1=v_next");
        assert_eq!(proposal(&["a", "b"]), None);
    }
}
