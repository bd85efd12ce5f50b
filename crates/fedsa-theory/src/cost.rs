//! Costs of methods on a linear problem without noise over a clear link: rounds and bits until a target. They follow from the size of
//! the problem or from the radius of a round.

use std::sync::Arc;

use crate::predict::Forecast;
use fedsa::cancel::Cancel;
use fedsa::error::{Error, Result, require};
use fedsa::linalg;
use fedsa::message::{Body, HEADER_BYTES, PART_HEADER_BYTES, Part};
use fedsa::method::{Drift, MethodSettings};
use fedsa::problem::Field;
use fedsa::problem::root::{Root, RootSource};
use fedsa::protocol::Len;
use fedsa::uplink::Uplink;
use fedsa_methods::gmres::Gmres;
use fedsa_methods::lstd::Lstd;

/// The quantity to minimise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Goal {
    /// Rounds.
    Rounds,
    /// Bits of all messages, up and down.
    #[default]
    Bits,
    /// Samples of all agents.
    Samples,
    /// Seconds of messages where [`Network`] gives them, otherwise of computation.
    Seconds,
}

impl Goal {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Goal::Rounds => "rounds",
            Goal::Bits => "bits",
            Goal::Samples => "samples",
            Goal::Seconds => "seconds",
        }
    }
}

/// The time that messages take on a network.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Network {
    /// Seconds for each exchange, whatever its size; at least 0.
    pub latency: f64,
    /// Bits per second of all messages, up and down. Without it, bits take no time.
    pub bandwidth: Option<f64>,
}

impl Network {
    /// The network with this latency and bandwidth; `None` where neither is given.
    ///
    /// # Errors
    /// When the seconds are negative or not finite, or the rate is not positive; names the setting.
    pub fn of(latency: Option<f64>, bandwidth: Option<f64>) -> Result<Option<Self>> {
        let seconds = latency.unwrap_or(0.0);
        require(seconds >= 0.0 && seconds.is_finite(), "latency", seconds, "a number of seconds, at least 0")?;
        if let Some(bandwidth) = bandwidth {
            require(bandwidth > 0.0 && bandwidth.is_finite(), "bandwidth", bandwidth, "a positive number of bits a second")?;
        }
        let is_given = latency.is_some() || bandwidth.is_some();
        Ok(is_given.then_some(Self { latency: seconds, bandwidth }))
    }

    /// The seconds of these exchanges, and of the bits of all their messages.
    pub fn seconds(&self, exchanges: f64, bits: f64) -> f64 {
        exchanges * self.latency + self.bandwidth.map_or(0.0, |bandwidth| bits / bandwidth)
    }
}

/// A method and its cost until a target.
pub struct Candidate {
    /// The kind of the method, one of [`fedsa_methods::KINDS`].
    pub kind: &'static str,
    /// Its settings.
    pub settings: Box<dyn MethodSettings>,
    /// Rounds and bits, up and down, or why the method does not reach the target or is not known to.
    pub cost: Result<Cost>,
}

/// Rounds and bits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cost {
    /// Rounds, at most or about.
    pub rounds: f64,
    /// Whether the number of rounds is a bound; otherwise it follows from the radius of a round.
    pub is_bound: bool,
    /// Bits of all messages, up and down.
    pub bits: f64,
}

/// The cost of a round of a first-order method, of all participants together, as the ledger counts it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RoundCost {
    /// Exchanges.
    pub exchanges: f64,
    /// Samples; their mean with random talk, 0 under mean sampling.
    pub samples: f64,
    /// Bits from the agents to the server, lost messages included.
    pub bits_up: f64,
    /// Bits from the server to the agents.
    pub bits_down: f64,
}

impl RoundCost {
    /// The cost of a round in the middle of a run over a link.
    ///
    /// # Errors
    /// When the cost differs from round to round; gives the reason.
    pub fn new(field: &dyn Field, settings: &dyn MethodSettings, link: &Uplink) -> Result<Self> {
        let d = field.dim();
        let setting =
            fedsa::method::Setting { seed: 0, weights: field.weights(), start: vec![0.0; d], link: link.facts(), is_accelerated: false };
        let varies = |why: &str| Error::not_known("", format!("not known beforehand: {why}"), "a method with local steps");
        let (client, protocol, shape) = (settings.client(&setting), settings.protocol(&setting), settings.shape());
        if client.facts().agents.is_some() {
            return Err(varies("messages of the method differ from round to round"));
        }
        let agents = shape.participants.unwrap_or(field.agents()) as f64;
        let budget = match link.budget() {
            Some(budget) if budget.fading_snr.is_some() => return Err(varies("the link's bits change with its fading")),
            budget => budget.map(|budget| budget.bits.floor() as u32),
        };
        let down = |parts: &[(Part, Len)]| {
            let part = |(part, len): &(Part, Len)| {
                let n = len.largest();
                let coded = part.may_be_encoded().then(|| link.downlink.encoded_len(n, None)).flatten();
                PART_HEADER_BYTES + coded.unwrap_or(8 * n)
            };
            8.0 * agents * (HEADER_BYTES + parts.iter().map(part).sum::<usize>()) as f64
        };
        let mut cost = Self { exchanges: 0.0, samples: 0.0, bits_up: 0.0, bits_down: 0.0 };
        for exchange in &protocol.exchanges {
            cost.exchanges += 1.0;
            cost.bits_down += down(&exchange.down);
            let bytes: Option<usize> = exchange.replies.iter().map(|want| link.codec.encoded_len(want.len.largest(), budget)).sum();
            let bytes = bytes.ok_or_else(|| varies("the link's bits carry no message"))?;
            cost.bits_up += 8.0 * agents * (HEADER_BYTES + PART_HEADER_BYTES * exchange.replies.len() + bytes) as f64;
        }
        if !protocol.tell.is_empty() {
            // It travels with the next question, so it needs only the header of a part.
            cost.bits_down += down(&protocol.tell) - 8.0 * agents * (HEADER_BYTES - PART_HEADER_BYTES) as f64;
        }
        let fresh = if let Drift::GlobalMemory { fresh } = shape.drift { fresh as f64 } else { 0.0 };
        cost.samples = agents * (shape.local_steps + fresh) * field.sampling().samples_per_step() as f64;
        Ok(cost)
    }
}

/// Limits for the choice of a method.
#[derive(Debug, Clone)]
pub struct CostLimits {
    /// The norm of the mean operator to reach, as a multiple of its norm at zero.
    pub target: f64,
    /// Whether agents may send their matrices `A_c`.
    pub may_send_matrices: bool,
    /// The bytes that the server may use.
    pub memory: f64,
    /// Cancels the computation of radii; costs are then unknown.
    pub cancel: Cancel,
}

/// The largest dimension for which a whole Krylov space is built, and the number of products that a larger one keeps.
const LARGEST_SPACE: usize = 4096;
const RESTART: usize = 100;
/// The largest dimension for which radii are computed: their cost is `d^3` for each agent.
const LARGEST_RADIUS: usize = 300;

fn bits(agents: usize, numbers: &[f64]) -> f64 {
    let parts: f64 = numbers.iter().map(|n| PART_HEADER_BYTES as f64 + 8.0 * n).sum();
    8.0 * agents as f64 * (HEADER_BYTES as f64 + parts)
}

fn too_large(what: &str, bytes: f64, limits: &CostLimits) -> Error {
    Error::not_known(
        "",
        format!("{what} takes {:.1} GB of the {:.1} GB that are available", bytes / 1e9, limits.memory / 1e9),
        "fewer features",
    )
}

/// One message of `A_c` and `b_c` from each agent.
fn lstd(field: &dyn Field, limits: &CostLimits) -> Result<Cost> {
    if !limits.may_send_matrices {
        return Err(Error::not_known("", "A_c stays with the agents", "agents that send their matrices"));
    }
    let linear = field.facts().linear_operators().ok_or_else(not_linear)?;
    let (n, d) = (field.agents(), field.dim());
    let settings = Lstd::default();
    let needed = settings.memory(n, d);
    if d > settings.largest_dimension() {
        let what = format!("systems of {d} features are too large for a message");
        return Err(Error::not_known("", what, format!("at most {} features", settings.largest_dimension())));
    }
    if needed > limits.memory {
        return Err(too_large("the sum of all systems", needed, limits));
    }
    let sent = |c: usize| {
        let mut count = 0usize;
        linear.entries(c, &mut |_, _, _| count += 1);
        let mut b = vec![0.0; d];
        linear.offset(c, &mut b);
        count += b.iter().filter(|x| **x != 0.0).count();
        Body::shorter_len(d * (d + 1), count) as f64
    };
    let up: f64 = (0..n).map(|c| 8.0 * (HEADER_BYTES + PART_HEADER_BYTES) as f64 + 8.0 * sent(c)).sum();
    Ok(Cost { rounds: 1.0, is_bound: true, bits: up + bits(n, &[]) })
}

/// A residual, then at most d products.
fn gmres(field: &dyn Field, settings: &Gmres, limits: &CostLimits) -> Result<Cost> {
    let (n, d) = (field.agents(), field.dim());
    let needed = settings.memory(n, d);
    if needed > limits.memory {
        return Err(too_large("the basis of the Krylov space", needed, limits));
    }
    if let Some(k) = settings.restart.filter(|k| *k < d) {
        let what = format!("its space starts anew every {k} rounds, and how often is not known beforehand");
        return Err(Error::not_known("", what, "fewer features"));
    }
    let rounds = d as f64 + 1.0;
    Ok(Cost { rounds, is_bound: true, bits: rounds * 2.0 * bits(n, &[d as f64]) })
}

/// By the radius of a round.
fn iterated(field: &Arc<dyn Field>, settings: &dyn MethodSettings, limits: &CostLimits) -> Result<Cost> {
    let (n, d) = (field.agents(), field.dim());
    if d > LARGEST_RADIUS {
        let what = format!("the radius of its rounds is not computed for more than {LARGEST_RADIUS} features");
        return Err(Error::not_known("", what, "fewer features"));
    }
    if let Ok(Root { source: RootSource::LeastNorm { rank }, .. }) = field.solution() {
        let what = format!("no rate is known: {rank} of {d} directions of its features are independent");
        return Err(Error::not_known("", what, "independent features, or a ridge"));
    }
    let forecast = Forecast::over(field, settings, &Uplink::default()).with_cancel(&limits.cancel);
    let radius = forecast.radius()?;
    if radius >= 1.0 {
        return Err(Error::not_known(
            "",
            format!("it diverges: the radius of a round is {radius:.4}"),
            "a smaller step size or fewer local steps",
        ));
    }
    // Methods with a drift have the root as their limit.
    if settings.shape().drift == Drift::Zero
        && let Ok(limit) = forecast.limit()
    {
        let norm = |theta: &[f64]| field.mean_operator(theta).map_or(f64::NAN, |g| linalg::norm_sq(&g).sqrt());
        let left = norm(&limit) / norm(&vec![0.0; d]);
        if left > limits.target {
            let what = format!("it stops at a residual of {left:.1e} of that at zero, because the agents differ");
            return Err(Error::not_known("", what, "fewer local steps, scafflsa or fedhsa"));
        }
    }
    let rounds = (limits.target.ln() / radius.max(f64::MIN_POSITIVE).ln()).ceil().max(1.0);
    let setting = fedsa::method::Setting {
        seed: 0,
        weights: field.weights(),
        start: vec![0.0; d],
        link: Uplink::default().facts(),
        is_accelerated: false,
    };
    let protocol = settings.protocol(&setting);
    let len =
        |parts: &[(fedsa::message::Part, fedsa::protocol::Len)]| parts.iter().map(|(_, len)| len.largest() as f64).collect::<Vec<_>>();
    let exchange = |e: &fedsa::protocol::Exchange| {
        bits(n, &len(&e.down)) + bits(n, &e.replies.iter().map(|want| want.len.largest() as f64).collect::<Vec<_>>())
    };
    let each: f64 = protocol.exchanges.iter().map(exchange).sum();
    Ok(Cost { rounds, is_bound: false, bits: rounds * each })
}

fn not_linear() -> Error {
    Error::not_known("", "the problem's operators are not known to be linear", "a linear problem")
}

/// All candidates: `lstd`, `gmres`, and these first-order methods; the cheapest first, candidates without a cost last.
pub fn candidates(
    field: &Arc<dyn Field>,
    limits: &CostLimits,
    first_order: Vec<(&'static str, Box<dyn MethodSettings>)>,
) -> Vec<Candidate> {
    let d = field.dim();
    // Independent of the machine: GMRES restarts where a Krylov space would have many large vectors.
    let restart = (d > LARGEST_SPACE).then_some(RESTART);
    let krylov = Gmres::default().with_restart(restart);
    let mut all = vec![
        Candidate { kind: "lstd", cost: lstd(&**field, limits), settings: Box::new(Lstd::default()) },
        Candidate { kind: "gmres", cost: gmres(&**field, &krylov, limits), settings: Box::new(krylov) },
    ];
    for (kind, settings) in first_order {
        all.push(Candidate { kind, cost: iterated(field, &*settings, limits), settings });
    }
    let price = |candidate: &Candidate| candidate.cost.as_ref().map_or(f64::INFINITY, |cost| cost.bits);
    all.sort_by(|x, y| price(x).total_cmp(&price(y)));
    all
}
