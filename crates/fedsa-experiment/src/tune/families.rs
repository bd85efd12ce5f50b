//! The candidate methods and codecs, as families of settings and as tables of a file.

use std::sync::Arc;

use fedsa::error::{Error, ErrorCode, Result, quoted};
use fedsa::method::{Drift, MethodSettings};
use fedsa::problem::Field;
use fedsa::registry::Kind;
use fedsa::schedule::StepSize;
use fedsa::uplink::Uplink;
use fedsa_data::DiskFiles;
use fedsa_theory::tune::{Family, SearchChoice};
use toml::{Table, Value};

use super::settings::TuneSettings;
use crate::config::link::{self, DownlinkSpec, UplinkSpec};
use crate::config::{self, find_kind, read_kind};
use crate::kinds::Kinds;

/// The candidate methods if none are named, in addition to the file's methods with a step size.
const METHODS: [&str; 3] = ["fedlsa", "scafflsa", "fedhsa"];
/// The codecs of `auto`.
const CODECS: [&str; 6] = ["exact", "float32", "quantised:4", "quantised:6", "quantised:8", "quantised:12"];
/// The keys that candidates take from the reference method.
const OF_LINK: [&str; 4] = ["uplink", "downlink", "start", "output"];
/// The keys that a candidate does not take over from the file's method of its kind.
const OWN: [&str; 9] =
    ["label", "kind", "measure_from", "expect", "step_size", "local_steps", "talk_probability", "global_step_size", "uplink"];

/// A method with a codec.
#[derive(Clone)]
pub(super) struct Candidates {
    /// The kind of the method.
    pub kind: Kind<dyn MethodSettings>,
    /// The codec as named by the option, if it is not the file's.
    pub codec: Option<String>,
    /// The table of the method without its step size, local steps and server step.
    table: Table,
    /// The key of H, if there is one.
    steps: Option<&'static str>,
    /// Whether it has a server step.
    has_server_step: bool,
    /// Its link.
    pub link: Arc<Uplink>,
}

impl Candidates {
    /// The name of the family.
    pub fn name(&self) -> String {
        self.codec.as_ref().map_or_else(|| self.kind.name.to_string(), |codec| format!("{}, {codec}", self.kind.name))
    }

    /// The `[[method]]` of a choice.
    pub fn method(&self, choice: &SearchChoice) -> Table {
        let mut table = self.table.clone();
        table.insert("step_size".into(), Value::Float(choice.step_size));
        match self.steps {
            Some("talk_probability") => drop(table.insert("talk_probability".into(), Value::Float(1.0 / choice.local_steps as f64))),
            Some(key) => drop(table.insert(key.into(), Value::Integer(choice.local_steps as i64))),
            None => {}
        }
        if self.has_server_step {
            table.insert("global_step_size".into(), Value::Float(choice.server_step));
        }
        table.insert("kind".into(), Value::String(self.kind.name.into()));
        table.insert("label".into(), Value::String(self.kind.name.into()));
        table
    }

    /// As a family of the library.
    pub fn family(&self) -> Family {
        let of = self.clone();
        let make = move |step_size: f64, local_steps: usize, server_step: f64| -> Result<Arc<dyn MethodSettings>> {
            let choice = SearchChoice { family: 0, step_size, local_steps: local_steps as u64, server_step };
            let mut own = of.method(&choice);
            for key in ["kind", "label", "controls"].iter().chain(&OF_LINK) {
                own.remove(*key);
            }
            read_kind(&of.kind, &own).map(Arc::from)
        };
        Family {
            name: self.name(),
            make: Arc::new(make),
            link: Arc::clone(&self.link),
            has_local_steps: self.steps.is_some(),
            has_server_step: self.has_server_step,
        }
    }
}

/// The codec of an option's name: `quantised:4`, `rand-k:0.5`.
fn codec(kinds: &Kinds, text: &str) -> Result<Table> {
    let (name, number) = text.split_once(':').map_or((text, None), |(name, number)| (name, Some(number)));
    let bad = |e: Error| of_option("codecs", &quoted(text), e);
    let mut table = Table::from_iter([("kind".to_string(), Value::String(name.into()))]);
    let kind = find_kind(kinds.codecs(), &mut table, "codec").map_err(bad)?;
    if let Some(number) = number {
        let whole = number.parse::<i64>().ok();
        let (key, value) = match (name, whole, number.parse::<f64>().ok()) {
            (_, Some(n), _) if config::takes(kind, "bits") => ("bits", Value::Integer(n)),
            (_, Some(n), _) if config::takes(kind, "k") => ("k", Value::Integer(n)),
            (_, None, Some(x)) if config::takes(kind, "fraction") => ("fraction", Value::Float(x)),
            _ => {
                let what = format!("`{}` has a number that this codec does not take", quoted(text));
                return Err(Error::new("codecs", what, "exact, float32, quantised:BITS, top-k:K, rand-k:K, or a fraction in place of K"));
            }
        };
        table.insert(key.into(), value);
    }
    read_kind(kind, &table).and_then(|settings| settings.check()).map_err(bad)?;
    table.insert("kind".into(), Value::String(kind.name.into()));
    Ok(table)
}

fn kind_name(table: &Table) -> String {
    table.get("kind").and_then(Value::as_str).unwrap_or_default().to_string()
}

/// The names of the candidate methods: the options', or the default ones and the file's methods with a step size.
fn method_names(kinds: &Kinds, options: &TuneSettings, tables: &[Table]) -> Vec<String> {
    let mut names: Vec<String> = options.methods.clone();
    if names.is_empty() {
        names = METHODS.iter().map(|name| (*name).to_string()).collect();
        for name in tables.iter().map(kind_name) {
            if find(kinds, &name).is_ok_and(|kind| has_step(&kind).is_ok()) && !names.contains(&name) {
                names.push(name);
            }
        }
    }
    names
}

/// The names of the candidate codecs; `None` is the link's own.
fn codec_names(options: &TuneSettings) -> Result<Vec<Option<&str>>> {
    let of_options: Vec<&str> = options.codecs.iter().map(String::as_str).collect();
    Ok(match &of_options[..] {
        [] => vec![None],
        ["auto"] => CODECS.iter().map(|name| Some(*name)).collect(),
        named if named.contains(&"auto") => {
            return Err(Error::new(
                "codecs",
                "`auto` beside other codecs",
                format!("auto, which is {}, or a list of codecs", CODECS.join(",")),
            ));
        }
        named => named.iter().map(|name| Some(*name)).collect(),
    })
}

/// The table of a method of this kind: the file's, if any, with the link, the start and the output of the reference.
fn method_table(kind: &Kind<dyn MethodSettings>, tables: &[Table], reference: &Table) -> Table {
    let mut table = tables.iter().find(|table| kind.is_called(&kind_name(table))).cloned().unwrap_or_default();
    OWN.iter().for_each(|key| drop(table.remove(*key)));
    for key in OF_LINK {
        table.remove(key);
        if let Some(value) = reference.get(key) {
            table.insert(key.into(), value.clone());
        }
    }
    // The number of participants is the reference's.
    if let Some(m) = reference.get("participants").filter(|_| config::takes(kind, "participants")) {
        table.entry("participants").or_insert(m.clone());
    }
    table
}

/// The families named by options and file. `tables` are the file's methods, `reference` is the method whose link, start and output all
/// candidates have, and `field` is the problem.
pub(super) fn families(
    kinds: &Kinds,
    options: &TuneSettings,
    tables: &[Table],
    reference: usize,
    files: &DiskFiles,
    field: &dyn Field,
) -> Result<Vec<Candidates>> {
    let reference = &tables[reference];
    let names = method_names(kinds, options, tables);
    let up: UplinkSpec = spec(reference, "uplink")?;
    let down: DownlinkSpec = spec(reference, "downlink")?;
    let codecs = codec_names(options)?;
    let mut all: Vec<Candidates> = Vec::new();
    for name in &names {
        let kind = find(kinds, name)?;
        has_step(&kind)?;
        let table = method_table(&kind, tables, reference);
        let steps = ["local_steps", "talk_probability"].into_iter().find(|key| config::takes(&kind, key));
        let has_server_step = config::takes(&kind, "global_step_size");
        for named in &codecs {
            let mut up = up.clone();
            let mut table = table.clone();
            if let Some(named) = named {
                let codec = codec(kinds, named)?;
                // An exact codec has no error to feed back.
                up.error_feedback &= codec.get("kind").and_then(Value::as_str) != Some("exact");
                up.codec = Some(codec);
                let up = Value::try_from(&up).map_err(|e| Error::new("uplink", e.to_string(), "a link that a file can hold"))?;
                table.insert("uplink".into(), up);
            }
            let link = Arc::new(link::build(kinds, &up, &down, Some(files))?);
            if let Some(named) = named
                && let Err(e) = link.check(field.agents(), field.dim(), true)
                && e.key.starts_with("uplink.codec")
            {
                let own = e.key.replace("uplink.codec.", "");
                return Err(of_option("codecs", &quoted(named), e.about(own)));
            }
            let codec = named.map(str::to_string).filter(|_| codecs.len() > 1);
            if all.iter().all(|other| other.kind.name != kind.name || other.codec != codec) {
                let candidates = Candidates { kind: kind.clone(), codec, table, steps, has_server_step, link };
                (candidates.family().make)(0.1, 1, 1.0).map_err(|e| {
                    let help = "a [[method]] of this kind in the file, whose other keys are kept, or other methods";
                    of_option("methods", kind.name, e).helped(help)
                })?;
                all.push(candidates);
            }
        }
    }
    Ok(all)
}

/// The error about the entry `name` of the option `key`, which is unusable for the reason `e`.
fn of_option(key: &str, name: &str, e: Error) -> Error {
    let what = format!("`{name}`: {e}");
    Error::new(key, what, e.help).coded(ErrorCode::NoCandidate)
}

fn spec<T: serde::de::DeserializeOwned + Default>(table: &Table, key: &str) -> Result<T> {
    table.get(key).map_or_else(|| Ok(T::default()), |value| config::read(value).map_err(|e| e.inside(key)))
}

fn find(kinds: &Kinds, name: &str) -> Result<Kind<dyn MethodSettings>> {
    let mut table = Table::from_iter([("kind".to_string(), Value::String(name.into()))]);
    find_kind(kinds.methods(), &mut table, "method").cloned().map_err(|e| e.about("methods"))
}

/// Checks that a method has local steps with a free step size.
fn has_step(kind: &Kind<dyn MethodSettings>) -> Result<()> {
    let refused = || {
        let what = format!("`{}` has no step size of local steps that could be chosen", kind.name);
        Error::new("methods", what, "fedlsa, scafflsa, fedhsa, or another method with a step size")
    };
    if !config::takes(kind, "step_size") {
        return Err(refused());
    }
    let mut table = Table::from_iter([("step_size".to_string(), Value::Float(0.1))]);
    if config::takes(kind, "local_steps") {
        table.insert("local_steps".into(), Value::Integer(1));
    } else if config::takes(kind, "talk_probability") {
        table.insert("talk_probability".into(), Value::Float(1.0));
    }
    // Other keys that the kind needs, such as a radius, may come from the file.
    match read_kind(kind, &table) {
        Ok(settings) if settings.shape().drift == Drift::NoSteps || settings.shape().step_size != StepSize::Constant(0.1) => Err(refused()),
        _ => Ok(()),
    }
}
