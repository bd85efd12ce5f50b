//! The method whose client rule or server rule is a Python class. Experiment files only contain the names of the classes; running it again
//! needs the same experiment, made in Python.

use std::sync::Arc;

use fedsa::error::{Error, Result, require};
use fedsa::local;
use fedsa::method::{Drift, MethodSettings, MethodShape, Setting};
use fedsa::protocol::{Gather, Protocol};
use fedsa::registry::Kind;
use fedsa::schedule::StepSize;
use fedsa::server::{Participation, Server};
use fedsa_experiment::config::alone::{self, KindTable};
use fedsa_experiment::{Extensions, Kinds};
use fedsa_methods::local::Plain;
use fedsa_methods::{averaging, check_common, fixed};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde::{Deserialize, Serialize};

use crate::convert;
use crate::engine;
use crate::rules::{Checks, Client, ClientForm};
use crate::server_rules::{ServerForm, ServerHalf};

/// The rules of a method that are Python classes, with their texts in files.
#[pyclass(frozen, module = "fedsa._fedsa")]
#[derive(Clone)]
pub struct HeldRules {
    client: Option<(String, Arc<ClientForm>)>,
    server: Option<(String, Arc<ServerForm>)>,
}

#[pymethods]
impl HeldRules {
    /// The rules of a method with these keys. For a client rule: its text, the name of its class, the names of the agents' memory, its
    /// functions by name. For a server rule: its text, the name of its class, its functions, whether it wants each answer. Three functions
    /// check arrays: of a shape, of rows, of a state.
    #[new]
    fn new(
        py: Python<'_>,
        table: &Bound<'_, PyDict>,
        client: Option<(String, String, Vec<String>, Bound<'_, PyDict>)>,
        server: Option<(String, String, Bound<'_, PyDict>, bool)>,
        checks: (Py<PyAny>, Py<PyAny>, Py<PyAny>),
    ) -> PyResult<Self> {
        let checks = Arc::new(Checks { array: checks.0, rows: checks.1, state: checks.2 });
        let needed = |functions: &Bound<'_, PyDict>, name: &str| {
            let function = functions.get_item(name)?.map(Bound::unbind);
            function.ok_or_else(|| pyo3::exceptions::PyTypeError::new_err(format!("a function {name}")))
        };
        let optional = |functions: &Bound<'_, PyDict>, name: &str| Ok::<_, PyErr>(functions.get_item(name)?.map(Bound::unbind));
        let client = client.map(|(text, name, memory, functions)| {
            let (answer, report, sent) = (needed(&functions, "answer")?, optional(&functions, "report")?, optional(&functions, "sent")?);
            Ok::<_, PyErr>((text, Arc::new(ClientForm { name, memory, answer, report, sent, checks: Arc::clone(&checks) })))
        });
        let server = server.map(|(text, name, functions, wants_each)| {
            let (step, reply, start) = (needed(&functions, "step")?, optional(&functions, "reply")?, optional(&functions, "start")?);
            Ok::<_, PyErr>((text, Arc::new(ServerForm { name, step, reply, start, wants_each, checks: Arc::clone(&checks) })))
        });
        let this = Self { client: client.transpose()?, server: server.transpose()? };
        let table = convert::table(table)?;
        engine::brief(py, || {
            let kind = kind(vec![this.clone()]);
            alone::check(&Kinds::with(Extensions { methods: &[kind], ..Extensions::default() })?, KindTable::Method, &table)?;
            Ok(this)
        })
    }
}

/// The kind of methods with these Python rules.
pub fn kind(rules: Vec<HeldRules>) -> Kind<dyn MethodSettings> {
    let make = move |keys: CustomKeys| {
        let client = keys.client.as_ref().and_then(|text| held(&rules, text, |rules| rules.client.as_ref()));
        let server = keys.server.as_ref().and_then(|text| held(&rules, text, |rules| rules.server.as_ref()));
        Ok(Box::new(Custom { keys, client, server }) as Box<dyn MethodSettings>)
    };
    Kind::<dyn MethodSettings>::new("custom", "rules of Python", make)
}

fn held<T>(all: &[HeldRules], text: &str, of: impl Fn(&HeldRules) -> Option<&(String, Arc<T>)>) -> Option<Arc<T>> {
    all.iter().filter_map(of).find(|(name, _)| name == text).map(|(_, form)| Arc::clone(form))
}

/// The keys of the method.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct CustomKeys {
    /// `eta`.
    step_size: StepSize,
    /// H.
    local_steps: usize,
    /// `alpha_g`, of the average without a server rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    global_step_size: Option<f64>,
    /// m of the N agents take part in a round; all when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    participants: Option<usize>,
    /// The class of the client rule with its values; plain local steps when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    client: Option<String>,
    /// The class of the server rule with its values; the average when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    server: Option<String>,
}

/// The keys with the rules.
#[derive(Clone, Serialize)]
#[serde(transparent)]
struct Custom {
    keys: CustomKeys,
    #[serde(skip)]
    client: Option<Arc<ClientForm>>,
    #[serde(skip)]
    server: Option<Arc<ServerForm>>,
}

impl std::fmt::Debug for Custom {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.keys.fmt(f)
    }
}

impl Custom {
    fn has_two_exchanges(&self) -> bool {
        self.client.as_ref().is_some_and(|client| client.report.is_some())
    }
}

impl MethodSettings for Custom {
    fn check(&self, agents: usize) -> Result<()> {
        let Self { keys, client, server } = self;
        for (key, is_named, is_held) in
            [("client", keys.client.is_some(), client.is_some()), ("server", keys.server.is_some(), server.is_some())]
        {
            if is_named && !is_held {
                let help = "the same experiment, made in Python";
                return Err(Error::new(key, "this rule was in the memory of a process of Python, and is not here", help));
            }
        }
        require(client.is_some() || server.is_some(), "client", "neither client nor server", "a rule of one's own: one of them, or both")?;
        if let (Some(_), Some(alpha)) = (server, keys.global_step_size.filter(|alpha| *alpha != 1.0)) {
            let what = format!("{alpha} has no effect: the server rule says how theta moves");
            return Err(Error::new("global_step_size", what, "none, with a server rule"));
        }
        if server.as_ref().is_some_and(|server| server.reply.is_some()) && !self.has_two_exchanges() {
            let help = "a client rule with a method report(theta, agents), or no reply";
            return Err(Error::new("server", "a method `reply`, and rounds have one exchange, which it cannot be of", help));
        }
        check_common(&keys.step_size, keys.local_steps, keys.global_step_size.unwrap_or(1.0), keys.participants, agents)
    }

    fn protocol(&self, setting: &Setting<'_>) -> Protocol {
        let wants_each = self.server.as_ref().is_some_and(|server| server.wants_each);
        let (d, gather) = (setting.start.len(), if wants_each { Gather::Each } else { Gather::Sum });
        if !self.has_two_exchanges() {
            return Protocol::directions(d, gather);
        }
        let mut protocol = Protocol::operators_then_directions(d, gather);
        protocol.exchanges.iter_mut().flat_map(|exchange| &mut exchange.replies).for_each(|want| want.gather = gather);
        protocol
    }

    fn client(&self, _: &Setting<'_>) -> Box<dyn local::Client> {
        let steps = fixed(self.keys.step_size, self.keys.local_steps);
        match &self.client {
            None => Box::new(Plain { steps }),
            Some(form) => Box::new(Client { form: Arc::clone(form), steps }),
        }
    }

    fn server(&self, setting: &Setting<'_>) -> Box<dyn Server> {
        let CustomKeys { step_size, local_steps, global_step_size, participants, .. } = self.keys;
        let steps = fixed(step_size, local_steps);
        match &self.server {
            None => {
                let mut average = averaging(setting, steps, global_step_size.unwrap_or(1.0), participants);
                average.operators_first = self.has_two_exchanges();
                Box::new(average)
            }
            Some(form) => {
                let participation = Participation { m: participants, agents: setting.agents(), seed: setting.seed };
                Box::new(ServerHalf::new(Arc::clone(form), setting.start.clone(), steps, participation, self.has_two_exchanges()))
            }
        }
    }

    /// Theory makes no statement, because the rules are unknown to it.
    fn shape(&self) -> MethodShape {
        let CustomKeys { step_size, local_steps, global_step_size, participants, .. } = self.keys;
        MethodShape {
            drift: Drift::Zero,
            step_size,
            local_steps: local_steps as f64,
            alpha_g: global_step_size.unwrap_or(1.0),
            participants,
            is_linear: false,
        }
    }
}
