//! Problems whose data Python holds: arrays, and operators that are Python classes. Experiment files cannot name them.
//!
//! Each such problem is a kind ([`Kind::new`]) known only to its experiments.

use std::sync::Arc;

use fedsa::error::{Error, Result, require};
use fedsa::kernel::Isa;
use fedsa::problem::arrays::{Array, Arrays};
use fedsa::problem::{Batched, Field};
use fedsa::registry::Kind;
use fedsa::sampling::Sampling;
use fedsa_experiment::config::alone::{self, KindTable};
use fedsa_experiment::{Extensions, Kinds};
use fedsa_problems::linear::file::ArrayFile;
use fedsa_problems::memory::MemoryEstimate;
use fedsa_problems::noise::Noise;
use fedsa_problems::{Files, ProblemSettings};
use numpy::{PyArrayDyn, PyArrayMethods, PyReadonlyArrayDyn, PyUntypedArrayMethods};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde::{Deserialize, Serialize};

use crate::convert;
use crate::custom::{self, HeldRules};
use crate::engine;
use crate::errors::OrRaise;
use crate::held_data::{self, HeldData, lost};
use crate::operators::{Form, Operator};
use crate::rows::{GivenSet, dataset};
use crate::tables::{self, GivenTable};

/// A problem whose data Python holds.
#[pyclass(frozen, module = "fedsa._fedsa")]
pub struct HeldProblem {
    kind: Kind<dyn ProblemSettings>,
    /// Whether operators are a Python class.
    pub calls_back: bool,
}

impl HeldProblem {
    fn of(kind: Kind<dyn ProblemSettings>, calls_back: bool) -> Result<Self> {
        let this = Self { kind, calls_back };
        known(Some(&this), Vec::new())?;
        Ok(this)
    }
}

/// fedsa's kinds, with a problem and rules held by Python.
///
/// # Errors
/// As [`Kinds::with`].
pub fn known(problem: Option<&HeldProblem>, rules: Vec<HeldRules>) -> Result<Kinds> {
    let problems = problem.map(|held| held.kind.clone());
    let methods = (!rules.is_empty()).then(|| custom::kind(rules));
    Kinds::with(Extensions { problems: problems.as_slice(), methods: methods.as_slice(), ..Extensions::default() })
}

/// The kinds with placeholders for problems and rules that Python held: files of their runs can be read but not run.
pub fn readable_kinds() -> Kinds {
    let arrays = |keys: ArrayKeys| Ok(Box::new(HeldArrays { keys, arrays: None }) as Box<dyn ProblemSettings>);
    let operator = |keys: OperatorKeys| Ok(Box::new(HeldOperator { keys, form: None }) as Box<dyn ProblemSettings>);
    let arrays = Kind::<dyn ProblemSettings>::new("arrays", "arrays of Python", arrays);
    let operator = Kind::<dyn ProblemSettings>::new("operator", "operators of Python", operator);
    let [logs, logistic, least_squares, glm] = held_data::kinds(None);
    let (problems, methods) = ([arrays, operator, logs, logistic, least_squares, glm], [custom::kind(Vec::new())]);
    Kinds::with(Extensions { problems: &problems, methods: &methods, ..Extensions::default() }).unwrap_or_default()
}

#[pymethods]
impl HeldProblem {
    /// Systems or processes as arrays, with the keys of `[problem]`, including the hash of the arrays.
    #[staticmethod]
    fn arrays(py: Python<'_>, arrays: &Bound<'_, PyDict>, table: &Bound<'_, PyDict>) -> PyResult<Self> {
        let mut held = Arrays::new();
        for (name, array) in arrays {
            let name: String = name.extract()?;
            let array: PyReadonlyArrayDyn<'_, f64> = array.cast::<PyArrayDyn<f64>>()?.readonly();
            let numbers = array.as_slice().map_err(|_| pyo3::exceptions::PyTypeError::new_err("an array in C order"))?;
            held.insert(name, Array::new(array.shape().to_vec(), numbers.to_vec()).or_raise(py)?);
        }
        let (held, table) = (Arc::new(held), convert::table(table)?);
        let make = move |keys: ArrayKeys| Ok(Box::new(HeldArrays { keys, arrays: Some(Arc::clone(&held)) }) as Box<dyn ProblemSettings>);
        engine::brief(py, || {
            let this = Self::of(Kind::new("arrays", "arrays of Python", make), false)?;
            alone::check(&known(Some(&this), Vec::new())?, KindTable::Problem, &table)?;
            Ok(this)
        })
    }

    /// Tables of transitions, with the keys of `[problem]`, including the hash of the tables in place of files.
    #[staticmethod]
    fn logs(py: Python<'_>, given: Vec<GivenTable<'_>>, table: &Bound<'_, PyDict>) -> PyResult<Self> {
        let copies = given.iter().map(tables::copied).collect::<Result<Vec<_>>>().or_raise(py)?;
        Self::of_data(py, HeldData { tables: copies, ..HeldData::default() }, table)
    }

    /// Rows with targets of each agent or set of agents: names, X, y and names of columns; with the keys of `[problem]`.
    #[staticmethod]
    fn rows(py: Python<'_>, sets: Vec<GivenSet<'_>>, table: &Bound<'_, PyDict>) -> PyResult<Self> {
        let categorical = table.get_item("categorical")?.map_or(Ok(Vec::new()), |names| names.extract::<Vec<String>>())?;
        let rows = sets.into_iter().map(|set| dataset(py, set, categorical.clone())).collect::<PyResult<Vec<_>>>()?;
        Self::of_data(py, HeldData { rows, ..HeldData::default() }, table)
    }

    /// Operators that are methods of an object; `functions` has the existing ones by name.
    #[staticmethod]
    fn operator(
        py: Python<'_>,
        name: String,
        dim: usize,
        weights: Vec<f64>,
        functions: &Bound<'_, PyDict>,
        root: Option<Vec<f64>>,
        check: Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let function = |name: &str| Ok::<_, PyErr>(functions.get_item(name)?.map(Bound::unbind));
        let form = Form {
            name,
            dim,
            weights,
            sample: function("sample")?.ok_or_else(|| pyo3::exceptions::PyTypeError::new_err("a function sample"))?,
            start: function("start")?,
            mean: function("mean")?,
            jacobian: function("jacobian")?,
            root,
            check: check.unbind(),
        };
        let form = Arc::new(form);
        let make = move |keys: OperatorKeys| {
            let (n, d) = (form.weights.len(), form.dim);
            require(keys.agents == n, "agents", keys.agents, &format!("{n}, as the operator has"))?;
            require(keys.dim == d, "dim", keys.dim, &format!("{d}, as the operator has"))?;
            Ok(Box::new(HeldOperator { keys, form: Some(Arc::clone(&form)) }) as Box<dyn ProblemSettings>)
        };
        Self::of(Kind::new("operator", "operators of Python", make), true).or_raise(py)
    }
}

impl HeldProblem {
    fn of_data(py: Python<'_>, data: HeldData, table: &Bound<'_, PyDict>) -> PyResult<Self> {
        let table = convert::table(table)?;
        engine::brief(py, || {
            let name = table.get("kind").and_then(toml::Value::as_str).unwrap_or_default();
            let kinds = held_data::kinds(Some(&Arc::new(data)));
            let kind = kinds.into_iter().find(|kind| kind.is_called(name)).ok_or_else(lost)?;
            let this = Self::of(kind, false)?;
            alone::check(&known(Some(&this), Vec::new())?, KindTable::Problem, &table)?;
            Ok(this)
        })
    }
}

/// The keys of arrays.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct ArrayKeys {
    /// A hash of the arrays.
    content: String,
    /// Additive noise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    noise: Option<Noise>,
    /// Accept agents with a singular system, as long as the mean is not singular.
    #[serde(default)]
    allow_singular_agents: bool,
}

/// Arrays with their keys.
#[derive(Clone, Serialize)]
#[serde(transparent)]
struct HeldArrays {
    keys: ArrayKeys,
    #[serde(skip)]
    arrays: Option<Arc<Arrays>>,
}

impl HeldArrays {
    fn file(&self) -> ArrayFile {
        let ArrayKeys { content, noise, allow_singular_agents } = self.keys.clone();
        ArrayFile::new(content).with_noise(noise).with_allow_singular_agents(allow_singular_agents)
    }
}

impl ProblemSettings for HeldArrays {
    fn check(&self) -> Result<()> {
        self.file().check()
    }
    fn field(&self, files: &dyn Files, sampling: Sampling, isa: Isa) -> Result<Arc<dyn Field>> {
        self.file().field_of_arrays(self.arrays.as_deref().ok_or_else(lost)?, sampling, isa, files.cancel())
    }
    fn memory(&self, _: &dyn Files, sampling: Sampling, threads: usize) -> Result<MemoryEstimate> {
        Ok(self.file().memory_of_arrays(self.arrays.as_deref().ok_or_else(lost)?, sampling, threads))
    }
    /// Each agent has only its own arrays.
    fn own_to_each_end(&self) -> &'static [&'static str] {
        &["content"]
    }
    fn without_effect(&self, sampling: &Sampling) -> Option<Error> {
        self.file().without_effect(sampling)
    }
}

/// The keys of operators.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct OperatorKeys {
    /// The name of the class.
    class: String,
    /// The number of agents.
    agents: usize,
    /// The number of components of the model.
    dim: usize,
}

/// Operators with their keys.
#[derive(Clone, Serialize)]
#[serde(transparent)]
struct HeldOperator {
    keys: OperatorKeys,
    #[serde(skip)]
    form: Option<Arc<Form>>,
}

impl ProblemSettings for HeldOperator {
    fn field(&self, _: &dyn Files, sampling: Sampling, isa: Isa) -> Result<Arc<dyn Field>> {
        let operator = Operator::new(Arc::clone(self.form.as_ref().ok_or_else(lost)?))?;
        Ok(Arc::new(Batched::new(operator, sampling, isa)?))
    }
    fn memory(&self, _: &dyn Files, _: Sampling, _: usize) -> Result<MemoryEstimate> {
        let (n, d) = (self.keys.agents as f64, self.keys.dim as f64);
        Ok(MemoryEstimate { peak: 64.0 * n * d, kept: 64.0 * n * d, sizes: format!("{n} agents, d = {d}, and what the operator holds") })
    }
    fn own_to_each_end(&self) -> &'static [&'static str] {
        &["agents", "class"]
    }
}
