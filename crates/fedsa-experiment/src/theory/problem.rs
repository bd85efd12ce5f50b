//! Numbers of a problem: its root, the distances of the agents' own roots from it, the mixing of samples, and the constants of the
//! theorems.

use fedsa::error::Error;
use fedsa::linalg;
use fedsa::problem::Field;
use fedsa::problem::arrays::Arrays;
use fedsa::problem::law::FiniteLaw;
use fedsa::sampling::Law;
use fedsa_problems::linear::file::virtual_root;
use fedsa_theory::constants::{Constants, TdConstants};
use fedsa_theory::fedhsa_bounds::FedHsaConstants;
use fedsa_theory::predict::EXACT_DIM;
use serde_json::{Map, Value as Json, json};

use super::reason::{Reason, ReasonCode};
use crate::memory;

/// The constants of a problem.
#[derive(Debug, Clone, Default)]
pub struct ProblemTheory {
    /// The numbers by name, as `fedsa theory --json` prints them. Unknown ones are null, with a [`Reason`] of the same name in the table
    /// `unknown`; a constant has the name of its table in front, `constants.sigma_eps`.
    pub numbers: Json,
}

impl ProblemTheory {
    /// The constants of a problem.
    pub(super) fn of(field: &dyn Field) -> Self {
        let mut out = Table::default();
        out.put("agents", json!(field.agents()));
        out.put("dim", json!(field.dim()));
        if field.sampling().kind == Law::Markov {
            match mixing(field) {
                Ok(Table { known, unknown }) => {
                    let mut table = Json::Object(known);
                    if !unknown.is_empty() {
                        table["unknown"] = Json::Object(unknown);
                    }
                    out.put("mixing", table);
                }
                Err(reason) => out.miss("mixing", &reason),
            }
        }
        match field.facts().monotone() {
            Some(known) => out.put("monotone", json!({ "modulus": known.modulus, "lipschitz": known.lipschitz })),
            None => out.miss("monotone", &Reason::text(ReasonCode::NotKnown, "no certificate that the mean operator has one root")),
        }
        match field.solution() {
            Err(why) => out.miss("theta_star", &Reason::text(ReasonCode::NotKnown, format!("not known: {why}"))),
            Ok(root) => of_root(field, &root.theta, &mut out),
        }
        let Table { mut known, unknown } = out;
        if !unknown.is_empty() {
            known.insert("unknown".into(), unknown.into());
        }
        Self { numbers: known.into() }
    }

    /// Why a number is unknown, by its name in the table `unknown`.
    pub fn reason(&self, name: &str) -> Option<&str> {
        self.numbers.get("unknown")?.get(name)?["text"].as_str()
    }

    /// Whether a number is unknown because it is infinite.
    pub fn is_infinite(&self, name: &str) -> bool {
        self.numbers
            .get("unknown")
            .and_then(|unknown| unknown.get(name))
            .is_some_and(|reason| reason["code"] == json!(ReasonCode::Infinite))
    }

    /// The mixing time of the slowest chain in total variation at 1/4; 1 for independent samples, `None` if unknown.
    pub fn mixing_time(&self) -> Option<f64> {
        match self.numbers.get("mixing") {
            None => Some(1.0),
            Some(mixing) => Some(mixing["mixing_times"][0]["total_variation"].as_f64()?.max(1.0)),
        }
    }
}

/// Numbers, and reasons for null ones.
#[derive(Default)]
struct Table {
    known: Map<String, Json>,
    unknown: Map<String, Json>,
}

impl Table {
    fn put(&mut self, name: &str, value: Json) {
        self.known.insert(name.into(), value);
    }

    fn miss(&mut self, name: &str, reason: &Reason) {
        self.known.insert(name.into(), Json::Null);
        self.unknown.insert(name.into(), json!(reason));
    }
}

/// Numbers that need the root.
fn of_root(field: &dyn Field, root: &[f64], out: &mut Table) {
    out.put("theta_star", json!(root));
    out.put("theta_star_norm", json!(linalg::norm_sq(root).sqrt()));
    let Some(systems) = field.systems() else { return };
    let locals: Vec<Option<f64>> =
        (0..systems.kinds.len()).map(|k| systems.local_root(k).ok().map(|x| linalg::distance_sq(&x, root).sqrt())).collect();
    let known: Vec<f64> = locals.iter().flatten().copied().collect();
    let singular = locals.len() - known.len();
    if !known.is_empty() {
        let (min, max) = known.iter().fold((f64::INFINITY, 0.0), |(a, b): (f64, f64), x| (a.min(*x), b.max(*x)));
        out.put("local_root_distance", json!({ "min": min, "max": max, "singular_agents": singular }));
    }
    let moments: Option<Vec<_>> = match without_moments(field) {
        None => (0..systems.kinds.len()).map(|k| field.moments(k)).collect(),
        Some(_) => None,
    };
    match Constants::new(systems, moments.as_deref()) {
        Ok(constants) => {
            let mut value = serde_json::to_value(&constants).unwrap_or(Json::Null);
            if let Some(step) = constants.largest_step() {
                value["eta_inf"] = if step.is_finite() { json!(step) } else { Json::Null };
            }
            explain(&value, field, singular > 0 || known.is_empty(), out);
            out.put("constants", value);
        }
        Err(e) => out.miss("constants", &Reason::from(&e)),
    }
    if let Ok(constants) = FedHsaConstants::new(systems, field.facts()) {
        out.put("fedhsa", json!(constants));
    }
    if let Some(facts) = field.facts().td() {
        if let Ok(td) = TdConstants::new(facts.gamma, facts.nu) {
            let mut value = json!(td);
            value["least_reward"] = json!(facts.least_reward);
            value["largest_reward"] = json!(facts.largest_reward);
            value["feature_norm"] = json!(facts.feature_norm);
            out.put("td", value);
        }
        if let Some(Ok(virtual_root)) = small_export(field).map(|arrays| virtual_root(&arrays, field.weights())) {
            out.put("virtual_mdp_distance", json!(linalg::distance_sq(&virtual_root, root).sqrt()));
        }
    }
}

/// The mixing of samples: for finite chains the second eigenvalue and the mixing times of the slowest agent, for additive Gauss-Markov
/// noise the spectral radius of its memory.
fn mixing(field: &dyn Field) -> Result<Table, Reason> {
    /// The levels of mixing times.
    const LEVELS: [f64; 2] = [0.25, 0.01];
    /// The largest number of multiplications, of dense matrices of all distinct agents' states.
    const MAX_WORK: f64 = 5e9;
    let mut out = Table::default();
    if let Some(laws) = field.facts().additive_noise() {
        let radii: fedsa::error::Result<Vec<f64>> = laws.iter().map(|law| linalg::spectral_radius(&law.memory)).collect();
        let radius = radii.map_err(|e| Reason::from(&e))?.into_iter().fold(0.0, f64::max);
        out.put("memory_radius", json!(radius));
        out.put("relaxation_time", json!(1.0 / (1.0 - radius)));
        return Ok(out);
    }
    let kinds = field.systems().map_or(field.agents(), |systems| systems.kinds.len());
    let facts = field.facts();
    let sizes = facts.law(0).and_then(|law| law.chain().map(|chain| (chain.law.len(), chain.from.len())));
    let Some((states, moves)) = sizes else {
        return Err(Reason::text(ReasonCode::NotKnown, "not known: samples follow no known finite chain alone"));
    };
    // Eigenvalues, and about ten products of the transition matrix with itself and with the operators, d^2 numbers for each state.
    let (n, d) = (states as f64, field.dim() as f64);
    if kinds as f64 * (50.0 * n.powi(3) + 20.0 * d * d * (n * n + moves as f64)) > MAX_WORK {
        let why = format!("not computed: {kinds} distinct chains of {states} states take too long");
        return Err(Reason::text(ReasonCode::TakesTooLong, why));
    }
    let over = |of: &dyn Fn(&FiniteLaw<'_>) -> Result<f64, Error>| -> Result<f64, Reason> {
        let mut most = 0.0f64;
        for kind in 0..kinds {
            match facts.law(kind).map(|law| of(&law)) {
                Some(found) => most = most.max(found.map_err(|e| Reason::from(&e))?),
                None => return Err(Reason::text(ReasonCode::NotKnown, "not known")),
            }
        }
        if most.is_finite() { Ok(most) } else { Err(Reason::text(ReasonCode::Infinite, "infinite: a chain is periodic")) }
    };
    let chain = |law: &FiniteLaw<'_>| law.chain().cloned().ok_or_else(|| Error::new("", "samples follow no chain", "a finite chain"));
    let time = |time: Option<u64>| time.map_or(f64::INFINITY, |t| t as f64);
    let put = |name: &str, found: Result<f64, Reason>, out: &mut Table| match found {
        Ok(x) => out.put(name, json!(x)),
        Err(reason) => out.miss(name, &reason),
    };
    put("second_eigenvalue", over(&|law| chain(law)?.second_eigenvalue()), &mut out);
    let levels = LEVELS.iter().map(|eps| {
        let mut level = Table::default();
        level.put("eps", json!(eps));
        put("total_variation", over(&|law| Ok(time(chain(law)?.mixing_time(*eps)?))), &mut level);
        put("operator", over(&|law| Ok(time(law.operator_mixing_time(*eps)?))), &mut level);
        if !level.unknown.is_empty() {
            level.known.insert("unknown".into(), level.unknown.into());
        }
        Json::Object(level.known)
    });
    let levels: Vec<Json> = levels.collect();
    out.put("mixing_times", levels.into());
    Ok(out)
}

/// Why second moments are not computed for the constants of i.i.d. samples; they are d^4 numbers per agent.
fn without_moments(field: &dyn Field) -> Option<Reason> {
    const MAX_KINDS: usize = 2000;
    let kinds = field.systems().map_or(0, |systems| systems.kinds.len());
    let (code, text) = if field.sampling().kind != Law::Iid {
        (ReasonCode::NotKnown, "samples are not i.i.d.".to_string())
    } else if field.dim() > EXACT_DIM {
        (ReasonCode::TakesTooLong, format!("more than {EXACT_DIM} features"))
    } else if kinds > MAX_KINDS {
        (ReasonCode::TakesTooLong, format!("more than {MAX_KINDS} distinct agents"))
    } else if !memory::moments_fit(kinds, field.dim()) {
        (ReasonCode::TakesTooLong, "second moments do not fit into memory".into())
    } else {
        return None;
    };
    Some(Reason::text(code, text))
}

/// The reason for each unknown constant.
fn explain(constants: &Json, field: &dyn Field, is_singular: bool, out: &mut Table) {
    let Some(constants) = constants.as_object() else { return };
    let moments = || field.moments(0).is_none().then(|| Reason::text(ReasonCode::NotKnown, "second moments of the samples are not known"));
    let mut without = None;
    let holds = constants.get("a").and_then(Json::as_f64).is_some_and(|a| a > 0.0);
    for (key, _) in constants.iter().filter(|(_, value)| value.is_null()) {
        let without = without.get_or_insert_with(|| without_moments(field).or_else(moments));
        let why = match (without, key.as_str()) {
            (Some(why), _) => why.clone(),
            (None, "l" | "eta_inf") if !holds => Reason::text(ReasonCode::NotKnown, "a is not positive"),
            (None, "sigma_eps" | "v_heter") if is_singular => Reason::text(ReasonCode::NotKnown, "the mean system of an agent is singular"),
            _ => Reason::text(ReasonCode::Infinite, "not finite"),
        };
        out.unknown.insert(format!("constants.{key}"), json!(why));
    }
}

/// A problem's own arrays, unless they are too large: they have a copy of the kernel for each agent, although many agents may share one.
fn small_export(field: &dyn Field) -> Option<Arrays> {
    const MAX_NUMBERS: f64 = 1e8;
    let states = field.facts().stationary(0)?.len() as f64;
    let numbers = field.agents() as f64 * states * states;
    // Kernels and rewards.
    (numbers <= MAX_NUMBERS && memory::fits(2.0 * 8.0 * numbers)).then(|| field.facts().export()).flatten()
}
