//! Finds the files that a user names by a path, a glob, a directory, or the name
//! of a data set.

use std::cmp::Ordering;
use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

use fedsa::error::{Error, ErrorCode, Result};

use super::{name_of, shown};

/// Checks that no file is listed twice, even through another path or link; the message calls a file `noun`.
///
/// # Errors
/// When a file is listed twice; names both paths.
pub(super) fn each_once(paths: &[PathBuf], noun: &str, accepted: &str) -> Result<()> {
    let mut seen: HashMap<PathBuf, &PathBuf> = HashMap::new();
    for path in paths {
        let target = std::fs::canonicalize(path).unwrap_or_else(|_| path.clone());
        if let Some(first) = seen.insert(target, path) {
            let also = if first == path { String::new() } else { format!(", as {} too", shown(name_of(first))) };
            return Err(Error::data(shown(name_of(path)), format!("this {noun} is given twice{also}"), accepted));
        }
    }
    Ok(())
}

/// The folders of the search for files.
#[derive(Debug, Clone)]
pub struct Places {
    /// The base of relative paths: the directory of the experiment
    /// file, or empty for the working directory.
    pub base: PathBuf,
    /// The folders of data sets, in the order of the search.
    pub data: Vec<PathBuf>,
}

impl Places {
    /// Relative paths start at `base`. Data sets are in the folder named by `FEDSA_DATA`, then in the user's cache
    /// (`$XDG_CACHE_HOME/fedsa` or `~/.cache/fedsa`).
    pub fn from_env(base: impl Into<PathBuf>) -> Self {
        let var = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        Self { base: base.into(), data: data_folders(var) }
    }

    /// The user's cache, the destination of public data sets and the last of the folders of data sets; `None` if there is neither
    /// `XDG_CACHE_HOME` nor `HOME`.
    pub fn cache() -> Option<PathBuf> {
        cache_folder(&|name: &str| std::env::var_os(name).filter(|value| !value.is_empty()))
    }

    /// The file or directory that `source` names: a path if it exists, otherwise the name of a data set such as `libsvm/w8a`.
    ///
    /// # Errors
    /// When neither exists; the message lists the searched folders and how to get the data.
    pub fn locate(&self, source: &str) -> Result<PathBuf> {
        let found = self.roots(source).map(|root| root.join(source)).find(|path| is_there(path));
        found.ok_or_else(|| self.missing(source))
    }

    /// The source as an absolute path, so that it does not depend on the working directory; unchanged if there is no such file.
    pub fn absolute(&self, source: &str) -> String {
        let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
        if let Ok(path) = self.locate(source) {
            return name_of(&absolute(&path));
        }
        let has_matches = |root: &&Path| self.matching(root, source).is_ok_and(|files| !files.is_empty());
        match self.roots(source).find(has_matches) {
            Some(root) if Path::new(source).is_relative() => {
                name_of(&Path::new(&glob::Pattern::escape(&name_of(&absolute(root)))).join(source))
            }
            _ => source.to_string(),
        }
    }

    /// The files named by all sources ([`Places::files`]), each once under its own path. Missing sources have none.
    pub fn distinct(&self, sources: &[String], extensions: &[&str]) -> BTreeSet<PathBuf> {
        let files = sources.iter().flat_map(|source| self.files(source, extensions).unwrap_or_default());
        files.map(|file| file.canonicalize().unwrap_or(file)).collect()
    }

    /// The files named by `source`, in natural order: one file, the files that a glob (`logs/agent_*.parquet`) matches, or the files of
    /// a directory that have one of these extensions. Hidden files and subdirectories are skipped. Pipes, devices and broken links are
    /// included, so that reading them fails: an agent without a readable file must not be skipped silently.
    ///
    /// # Errors
    /// As [`Places::locate`]; also when a directory or glob has no such file, or a directory has files with several of these
    /// extensions.
    pub fn files(&self, source: &str, extensions: &[&str]) -> Result<Vec<PathBuf>> {
        let mut files = match self.locate(source) {
            Ok(dir) if dir.is_dir() => files_of(&dir, extensions)?,
            Ok(file) => vec![file],
            Err(_) if source.contains(['*', '?', '[']) => self.matches(source)?,
            Err(e) => return Err(e),
        };
        files.sort_by(|a, b| natural_order(&name_of(a), &name_of(b)));
        Ok(files)
    }

    /// The files below `root` that a glob matches.
    fn matching(&self, root: &Path, pattern: &str) -> Result<Vec<PathBuf>> {
        // Hidden files do not match, as in a shell.
        let options = glob::MatchOptions { require_literal_leading_dot: true, ..Default::default() };
        let full = Path::new(&glob::Pattern::escape(&name_of(root))).join(pattern);
        let paths = glob::glob_with(&name_of(&full), options)
            .map_err(|e| Error::data(shown(pattern), format!("not a valid pattern: {e}"), "`*`, `?` and `[..]` as in a shell"))?;
        let files: Vec<PathBuf> = paths.filter_map(|path| path.ok()).filter(|path| !path.is_dir()).collect();
        Ok(if pattern.contains("**") { without_loops(files) } else { files })
    }

    /// The files that a glob matches.
    pub(super) fn matches(&self, pattern: &str) -> Result<Vec<PathBuf>> {
        for root in self.roots(pattern) {
            let files = self.matching(root, pattern)?;
            if !files.is_empty() {
                return Ok(files);
            }
        }
        Err(self.missing(pattern).saying("no file matches"))
    }

    /// The base folders for `source`, in the order of the search; the first match counts.
    fn roots(&self, source: &str) -> impl Iterator<Item = &Path> {
        let data = if is_data_name(source) { &self.data[..] } else { &[] };
        std::iter::once(&self.base).chain(data).map(PathBuf::as_path)
    }

    fn missing(&self, source: &str) -> Error {
        if !is_data_name(source) {
            return Error::data(shown(source), "there is no such file or directory", "a path, a glob or the name of a data set")
                .coded(ErrorCode::NoFile);
        }
        let folders = self.data.iter().map(|folder| name_of(folder)).collect::<Vec<_>>().join(" and ");
        let folders = if folders.is_empty() { String::new() } else { format!(", nor is it in {folders}") };
        Error::data(
            shown(source),
            format!("there is no such file or directory{folders}"),
            "a path; or the name of a data set (FOLDER/NAME) in the folder that the environment variable FEDSA_DATA \
             names: point it at the folder that has them, or make one. For logs that is a folder such as \
             $FEDSA_DATA/transitions/mountaincar with one Parquet, CSV or TSV file per agent (agent_0.parquet, ..; columns s_*, \
             reward, next_*, done)",
        )
        .coded(ErrorCode::NoFile)
    }
}

/// The folders of data sets for this environment.
fn data_folders(var: impl Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    var("FEDSA_DATA").map(PathBuf::from).into_iter().chain(cache_folder(&var)).collect()
}

/// The user's cache for this environment.
fn cache_folder(var: &impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let cache = var("XDG_CACHE_HOME").map(PathBuf::from).or_else(|| Some(PathBuf::from(var("HOME")?).join(".cache")));
    cache.map(|cache| cache.join("fedsa"))
}

/// Whether this can be the name of a data set: `family/name`, without `.` and `..`.
fn is_data_name(source: &str) -> bool {
    !source.is_empty() && Path::new(source).components().all(|part| matches!(part, Component::Normal(_)))
}

fn files_of(dir: &Path, extensions: &[&str]) -> Result<Vec<PathBuf>> {
    let unreadable = |e: std::io::Error| Error::data(shown(name_of(dir)), format!("cannot be read: {e}"), "a directory that you may read");
    let mut files = Vec::new();
    let mut kinds = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let hidden = path.file_name().is_none_or(|name| name.to_string_lossy().starts_with('.'));
        let Some(extension) = inner_extension(&path) else { continue };
        if !hidden && extensions.contains(&extension.as_str()) && !path.is_dir() {
            kinds.push(extension);
            files.push(path);
        }
    }
    kinds.sort();
    kinds.dedup();
    let wanted = extensions.iter().map(|e| format!(".{e}")).collect::<Vec<_>>().join(" or ");
    match kinds.as_slice() {
        [] => Err(Error::data(shown(name_of(dir)), "the directory holds no data", format!("files with the extension {wanted}"))),
        [_] => Ok(files),
        [a, b, ..] => {
            let what = format!("the directory holds both .{a} and .{b} files");
            Err(Error::data(shown(name_of(dir)), what, format!("say which with a glob: {}", shown(name_of(&dir.join(format!("*.{a}")))))))
        }
    }
}

/// Each file once, by its shortest path: `**` follows links to folders, so a link to a parent folder lists the same files repeatedly.
fn without_loops(mut files: Vec<PathBuf>) -> Vec<PathBuf> {
    files.sort_by_key(|path| path.components().count());
    let mut seen = std::collections::HashSet::new();
    let place = |path: &Path| Some((path.parent()?.canonicalize().ok()?, path.file_name()?.to_owned()));
    files.retain(|path| place(path).is_none_or(|place| seen.insert(place)));
    files
}

/// Whether an entry with this path exists, including unreadable files and broken
/// links; reading it then gives the error.
fn is_there(path: &Path) -> bool {
    path.symlink_metadata().map_or_else(|e| e.kind() == std::io::ErrorKind::PermissionDenied, |_| true)
}

/// The extension in lower case.
pub(super) fn extension_of(path: &Path) -> Option<String> {
    Some(path.extension()?.to_str()?.to_ascii_lowercase())
}

/// The extension in lower case, without `.gz` and `.zst`: `csv` of `log.csv.gz`.
pub(super) fn inner_extension(path: &Path) -> Option<String> {
    extension_of(&unpacked_name(path))
}

/// The name of a file without `.gz` or `.zst`.
pub(super) fn unpacked_name(path: &Path) -> PathBuf {
    match extension_of(path).as_deref() {
        Some("gz" | "zst") => path.with_extension(""),
        _ => path.to_path_buf(),
    }
}

/// The natural order of names: `agent_2` before `agent_10`.
pub fn natural_order(a: &str, b: &str) -> Ordering {
    let (mut x, mut y) = (a, b);
    loop {
        let (Some(c), Some(d)) = (x.chars().next(), y.chars().next()) else {
            // `a2` and `a02` are equal so far: plain order decides.
            return x.len().cmp(&y.len()).then_with(|| a.cmp(b));
        };
        if c.is_ascii_digit() && d.is_ascii_digit() {
            let (m, n) = (leading_number(&mut x), leading_number(&mut y));
            let order = m.len().cmp(&n.len()).then_with(|| m.cmp(n));
            if order.is_ne() {
                return order;
            }
        } else if c != d {
            return c.cmp(&d);
        } else {
            x = &x[c.len_utf8()..];
            y = &y[d.len_utf8()..];
        }
    }
}

/// Removes the leading digits of `text` and returns them without leading zeros, so that a
/// longer result is a larger number.
fn leading_number<'a>(text: &mut &'a str) -> &'a str {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, rest) = text.split_at(end);
    *text = rest;
    number.trim_start_matches('0')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn touch(path: PathBuf) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, b"").unwrap();
    }

    fn names(files: &[PathBuf]) -> Vec<String> {
        files.iter().map(|f| f.file_name().unwrap().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn agents_are_in_natural_order_however_they_are_given() {
        let dir = tempfile::tempdir().unwrap();
        for i in [10, 2, 1, 0] {
            touch(dir.path().join(format!("logs/agent_{i}.csv")));
        }
        touch(dir.path().join("logs/about.json"));
        touch(dir.path().join("logs/.hidden.csv"));
        let places = Places { base: dir.path().into(), data: vec![] };
        let expected = ["agent_0.csv", "agent_1.csv", "agent_2.csv", "agent_10.csv"];
        for source in ["logs", "logs/agent_*.csv", "./logs", "logs/../logs"] {
            assert_eq!(names(&places.files(source, &["csv", "parquet"]).unwrap()), expected, "{source}");
        }
        assert_eq!(names(&places.files("logs/agent_[12].csv", &["csv"]).unwrap()), ["agent_1.csv", "agent_2.csv"]);
        let absolute = name_of(&dir.path().join("logs/agent_2.csv"));
        assert_eq!(names(&places.files(&absolute, &["csv"]).unwrap()), ["agent_2.csv"]);

        assert_eq!(places.files("logs/a*.npz", &["csv"]).unwrap_err().what, "no file matches");
        assert_eq!(places.files("logs", &["npz"]).unwrap_err().help, "files with the extension .npz");
        assert!(places.files("logs/[", &["csv"]).unwrap_err().what.starts_with("not a valid pattern"));
        touch(dir.path().join("logs/agent_0.parquet"));
        assert_eq!(places.files("logs", &["csv", "parquet"]).unwrap_err().what, "the directory holds both .csv and .parquet files");
    }

    #[cfg(unix)]
    #[test]
    fn links_to_folders_above_do_not_multiply_files() {
        let dir = tempfile::tempdir().unwrap();
        touch(dir.path().join("logs/deep/a.csv"));
        touch(dir.path().join("logs/a.csv"));
        std::os::unix::fs::symlink("..", dir.path().join("logs/deep/up")).unwrap();
        let places = Places { base: dir.path().into(), data: vec![] };
        let found = places.files("logs/**/*.csv", &["csv"]).unwrap();
        assert_eq!(found, [dir.path().join("logs/a.csv"), dir.path().join("logs/deep/a.csv")]);
    }

    #[test]
    fn data_sets_are_found_by_name_but_paths_come_first() {
        let (here, data, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let places = Places { base: here.path().into(), data: vec![data.path().into(), cache.path().into()] };
        let missing = places.locate("libsvm/w8a").unwrap_err();
        assert!(missing.what.contains(&name_of(cache.path())) && missing.help.contains("FEDSA_DATA"), "{missing:?}");
        for folder in [&cache, &data, &here] {
            touch(folder.path().join("libsvm/w8a"));
            assert_eq!(places.locate("libsvm/w8a").unwrap(), folder.path().join("libsvm/w8a"));
        }
        touch(data.path().join("x"));
        for path in ["./x", "../x", "/x", ""] {
            assert!(!is_data_name(path), "{path}");
        }
        assert!(places.locate("./x").is_err());
    }

    #[test]
    fn folders_of_data_sets_come_from_the_environment() {
        let folders = |vars: &[(&str, &str)]| data_folders(|name| vars.iter().find(|(n, _)| *n == name).map(|(_, v)| v.into()));
        assert_eq!(folders(&[("HOME", "/h")]), [Path::new("/h/.cache/fedsa")]);
        assert_eq!(folders(&[("HOME", "/h"), ("XDG_CACHE_HOME", "/c")]), [Path::new("/c/fedsa")]);
        assert_eq!(folders(&[("FEDSA_DATA", "/d"), ("XDG_CACHE_HOME", "/c")]), [Path::new("/d"), Path::new("/c/fedsa")]);
        assert!(folders(&[]).is_empty());
    }

    #[test]
    fn numbers_in_names_count_as_numbers() {
        let sorted = ["a", "a0", "a01", "a1", "a2", "a10", "a10b", "a99999999999999999999998", "a99999999999999999999999", "b1"];
        for (i, a) in sorted.iter().enumerate() {
            for (j, b) in sorted.iter().enumerate() {
                assert_eq!(natural_order(a, b), i.cmp(&j), "{a} {b}");
            }
        }
    }

    proptest! {
        #[test]
        fn natural_order_is_an_order(a in "[a0-9_é]{0,6}", b in "[a0-9_é]{0,6}", c in "[a0-9_é]{0,6}") {
            prop_assert_eq!(natural_order(&a, &b), natural_order(&b, &a).reverse());
            prop_assert_eq!(natural_order(&a, &b).is_eq(), a == b);
            if natural_order(&a, &b).is_le() && natural_order(&b, &c).is_le() {
                prop_assert!(natural_order(&a, &c).is_le());
            }
        }
    }
}
