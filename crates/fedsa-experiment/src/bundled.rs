//! The experiments bundled with the library, and the data sets that experiments need.

use fedsa::error::{Error, quoted};
use fedsa_data::datasets;
use fedsa_data::find::Places;

use crate::config::{Document, Experiment, nearest};

/// The extensions of files with logs and arrays.
const DATA: &[&str] = &["parquet", "csv", "npz"];

/// One bundled experiment.
pub struct Bundled {
    /// Its id: source and figure.
    pub id: &'static str,
    /// The text of its file.
    pub text: &'static str,
    /// Measured run time on two cores of an AMD EPYC with AVX-512, in seconds.
    pub seconds: f64,
}

impl Bundled {
    /// The name of its file in messages.
    pub fn file_name(&self) -> String {
        format!("experiments/{}.toml", self.id)
    }

    /// The experiment, in full settings.
    ///
    /// # Errors
    /// Never for the experiments of [`ALL`], which a test reads.
    pub fn experiment(&self) -> Result<Experiment, Error> {
        Experiment::read(Document::parse(&self.file_name(), self.text)?)
    }
}

/// The bundled experiments that `id` names: one, those of a source such as `scafflsa`, or `all`.
///
/// # Errors
/// When it names none; the nearest id is proposed.
pub fn choose(id: &str) -> Result<Vec<&'static Bundled>, Error> {
    let chosen: Vec<&Bundled> = ALL.iter().filter(|b| id == "all" || b.id == id || b.id.starts_with(&format!("{id}/"))).collect();
    if !chosen.is_empty() {
        return Ok(chosen);
    }
    let near = nearest(id, ALL.iter().map(|b| b.id)).map_or(String::new(), |n| format!("; did you mean `{n}`?"));
    let help = format!("all, or one of {}", ALL.iter().map(|b| b.id).collect::<Vec<_>>().join(", "));
    Err(Error::new("", format!("there is no bundled experiment `{}`{near}", quoted(id)), help))
}

/// Data that a problem of an experiment reads.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct NeededData {
    /// The name in the experiment.
    pub name: String,
    /// Whether the data are rows of a regression; otherwise they are logs or arrays.
    pub has_rows: bool,
}

impl NeededData {
    /// Searches its files.
    ///
    /// # Errors
    /// When none of the places has them.
    pub fn find(&self, places: &Places) -> Result<(), Error> {
        let files = if self.has_rows { datasets::files(std::slice::from_ref(&self.name), places) } else { places.files(&self.name, DATA) };
        files.map(|_| ())
    }
}

/// The data that an experiment's problems name, each once.
pub fn needed_data(experiment: &Experiment) -> Vec<NeededData> {
    let mut all: Vec<NeededData> = Vec::new();
    for problem in experiment.points.iter().filter_map(|point| point.sections().problem) {
        for (key, has_rows) in [("path", false), ("data", true)] {
            let names = problem.get(key).map_or(&[][..], |names| names.as_array().map_or(std::slice::from_ref(names), Vec::as_slice));
            for name in names.iter().filter_map(|name| name.as_str()) {
                let needed = NeededData { name: name.to_string(), has_rows };
                if !all.contains(&needed) {
                    all.push(needed);
                }
            }
        }
    }
    all
}

/// The first data of an experiment that none of the places has.
pub fn missing_data(experiment: &Experiment, places: &Places) -> Option<Error> {
    needed_data(experiment).iter().find_map(|needed| needed.find(places).err())
}

macro_rules! bundled {
    ($($id:literal takes $seconds:literal),* $(,)?) => {
        /// All bundled experiments, in the order in which `reproduce all` runs them.
        pub const ALL: &[Bundled] = &[$(Bundled {
            id: $id,
            text: include_str!(concat!("../bundled/", $id, ".toml")),
            seconds: $seconds,
        }),*];
    };
}

bundled!(
    "scafflsa/fig1-low" takes 6.0,
    "scafflsa/fig1-high" takes 11.0,
    "scafflsa/grid" takes 160.0,
    "scafflsa/speedup" takes 60.0,
    "scafflsa/slides" takes 8.0,
    "scafflsa/random-talk" takes 17.0,
    "scafflsa/no-speedup" takes 17.0,
    "channels/fig4-3" takes 4.0,
    "channels/fig4-4" takes 3.0,
    "channels/fig4-5" takes 13.0,
    "delays/constant" takes 50.0,
    "delays/varying" takes 6.0,
    "fedhsa/fig2-noiseless" takes 1.0,
    "fedhsa/fig2-noisy" takes 3.0,
    "fedhsa/fig3" takes 7.0,
    "fedhsa/fig4" takes 3.0,
    "fedhsa/fig5" takes 15.0,
    "fedhsa/fig6" takes 8.0,
    "fedhsa/fig7" takes 10.0,
    "fedhsa/fig8" takes 80.0,
    "fedhsa/fig9" takes 6.0,
    "fedhsa/disagreement" takes 4.0,
    "fedhsa/compare" takes 14.0,
    "shed/fig2-2" takes 1.0,
    "shed/fig2-4" takes 370.0,
    "shed/fig2-5" takes 100.0,
    "shed/fig2-6" takes 40.0,
    "shed/fig2-7" takes 3.0,
    "shed/fig2-8" takes 20.0,
    "shed/figA" takes 260.0,
    "shed/superlinear" takes 2.0,
    "qshed/allocation" takes 3.0,
    "qshed/fig3-1" takes 4.0,
    "qshed/fig3-2" takes 9.0,
    "cross/second-order" takes 150.0,
    "cross/exact-mse" takes 5.0,
    "cross/logs" takes 60.0,
    "cross/evaluation" takes 10.0,
    "cross/matrix" takes 19.0,
    "cross/bits" takes 14.0,
    "cross/markov" takes 60.0,
    "cross/nonlinear" takes 30.0,
    "cross/off-policy" takes 2.0,
    "cross/inference" takes 8.0,
    "fednl/compressors" takes 20.0,
    "sequels/scaffold-bias" takes 110.0,
    "sequels/extrapolation" takes 40.0,
    "sarsa/drift" takes 115.0,
    "sarsa/speedup" takes 140.0,
    "sarsa/evaluation" takes 45.0,
    "sarsa/policy-gradient" takes 1.0,
    "privacy/epsilon" takes 40.0,
    "privacy/bits" takes 4.0,
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_bundled() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("bundled");
        let files = |of: std::path::PathBuf| std::fs::read_dir(of).unwrap().map(|entry| entry.unwrap().path());
        let all = files(folder.clone())
            .filter(|path| path.is_dir())
            .flat_map(files)
            .filter(|path| path.extension().is_some_and(|end| end == "toml"));
        let id = |path: std::path::PathBuf| path.strip_prefix(&folder).unwrap().with_extension("").to_str().unwrap().to_string();
        let mut ids: Vec<String> = all.map(id).collect();
        let mut bundled: Vec<&str> = ALL.iter().map(|one| one.id).collect();
        ids.sort_unstable();
        bundled.sort_unstable();
        assert_eq!(ids, bundled);
    }

    #[test]
    fn experiments_are_chosen_by_id_and_by_source() {
        assert_eq!(choose("all").unwrap().len(), ALL.len());
        assert_eq!(choose("shed/fig2-4").unwrap()[0].id, "shed/fig2-4");
        let of_shed = choose("shed").unwrap();
        assert!(of_shed.len() > 3 && of_shed.iter().all(|b| b.id.starts_with("shed/")));
        let e = choose("shed/fig2-9").err().unwrap();
        assert!(e.what.contains("did you mean `shed/fig2-"), "{}", e.what);
    }

    #[test]
    fn needed_data_are_named_once_and_looked_for() {
        let nowhere = Places::from_env("a folder that is not there");
        let mut with_data = 0;
        for bundled in ALL {
            let needed = needed_data(&bundled.experiment().unwrap());
            assert!(needed.iter().enumerate().all(|(i, one)| !needed[..i].contains(one)), "{}", bundled.id);
            with_data += usize::from(!needed.is_empty());
        }
        assert!(with_data > 3 && with_data < ALL.len());
        let missing = NeededData { name: "no-such-folder/no-such-data".into(), has_rows: true };
        assert!(missing.find(&nowhere).is_err());
    }
}
