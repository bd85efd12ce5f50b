//! The metrics of a run: one table of distances.
//!
//! An entry defines a metric completely: its name, meaning, needs and computation. [`Observation`] has a field for each metric. Columns of
//! traces, checks, axes and schemas derive from [`METRICS`].

use std::cell::OnceCell;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::coordinator::Coordinator;
use crate::error::Result;
use crate::linalg;
use crate::parallel;
use crate::problem::systems::System;
use crate::problem::{Field, value_error};

/// The source of metrics: a coordinator with its agents.
pub trait Observable {
    /// The coordinator.
    fn coordinator(&self) -> &Coordinator;
    /// Calls `see` with each agent's number and its control variate `xi_c` of the next round, d components; false if the method has none,
    /// or they are unknown here.
    fn each_control(&self, see: &mut dyn FnMut(usize, &[f64])) -> bool;
    /// The control variates `xi_c` that the next round will use, N vectors of d components, as for [`Observable::each_control`].
    fn controls(&self) -> Option<Vec<Vec<f64>>> {
        let mut all = Vec::new();
        self.each_control(&mut |_, xi| all.push(xi.to_vec())).then_some(all)
    }
}

/// A distance recorded along a run.
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// Its meaning, in a line.
    pub about: &'static str,
    /// Its title on axes.
    pub axis: &'static str,
    /// Its degree in `theta - theta*`: 1 for a distance, 2 for a squared one.
    pub degree: u8,
    /// The knowledge that it needs.
    pub needs: &'static [Need],
    /// Whether theory has a closed form of its mean (`Forecast::curve` of `fedsa_theory`).
    pub is_predicted: bool,
    /// Its recorded value.
    pub recorded: fn(&Observation) -> Option<f64>,
    /// The value that replaces it if it was not recorded.
    pub instead: fn(&Observation) -> Option<f64>,
}

/// Knowledge that a metric needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// theta*.
    Root,
    /// theta*, or the caller's centre.
    RootOrCentre,
    /// The Gram matrix of the features.
    Gram,
    /// The method's control variates.
    Controls,
    /// The agents' mean operators.
    Means,
    /// The agents' losses.
    Objective,
    /// The answers of agents on other machines.
    Answers,
}

/// The knowledge of a run: which [`Need`]s are met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Knowledge {
    /// Whether theta* is known.
    pub root: bool,
    /// Whether the caller gives a centre.
    pub centre: bool,
    /// Whether the Gram matrix of the features is known.
    pub gram: bool,
    /// Whether the method has control variates.
    pub controls: bool,
    /// Whether the agents' mean operators are known.
    pub means: bool,
    /// Whether the agents' losses are known.
    pub objective: bool,
    /// Whether agents answer from other machines.
    pub answers: bool,
}

impl Knowledge {
    /// The knowledge of a field, for a method with or without control variates, and with or without a centre.
    pub fn of(field: &dyn Field, controls: bool, centre: bool) -> Self {
        Self {
            root: field.root().is_some(),
            centre,
            gram: field.facts().gram().is_some(),
            controls,
            means: field.has_mean(),
            objective: field.facts().objective().is_some(),
            answers: field.facts().is_elsewhere(),
        }
    }

    fn has(&self, need: Need) -> bool {
        match need {
            Need::Root => self.root,
            Need::RootOrCentre => self.root || self.centre,
            Need::Gram => self.gram,
            Need::Controls => self.controls,
            Need::Means => self.means,
            Need::Objective => self.objective,
            Need::Answers => self.answers,
        }
    }
}

impl Metric {
    /// Its value in an observation.
    pub fn value(&self, seen: &Observation) -> Option<f64> {
        (self.recorded)(seen).or_else(|| (self.instead)(seen))
    }

    /// A missing need; `None` if the metric can be computed.
    pub fn missing(&self, known: &Knowledge) -> Option<Need> {
        self.needs.iter().copied().find(|need| !known.has(*need))
    }
}

/// The metric of this name.
pub fn metric(name: &str) -> Option<&'static Metric> {
    METRICS.iter().find(|metric| metric.name == name)
}

/// The input of the table's entries: the present state of a federation.
struct View<'s> {
    of: &'s Metrics,
    run: &'s dyn Observable,
    /// The method's output.
    theta: &'s [f64],
    centre: Option<&'s [f64]>,
    /// The w of the Lyapunov function.
    control_weight: f64,
    /// The mean loss and the mean operator at theta, if both come from one pass over the data.
    at_theta: OnceCell<Option<(f64, Vec<f64>)>>,
}

impl View<'_> {
    fn at_theta(&self) -> Option<&(f64, Vec<f64>)> {
        self.at_theta.get_or_init(|| self.of.field.mean_loss_and_operator(self.theta)).as_ref()
    }

    fn residual(&self) -> Option<f64> {
        self.at_theta().map_or_else(|| self.of.residual(self.theta), |(_, mean)| Some(linalg::norm_sq(mean).sqrt()))
    }

    fn loss(&self) -> Option<f64> {
        self.at_theta().map_or_else(|| self.of.mean_loss(self.theta), |(loss, _)| Some(*loss))
    }
}

/// Computes an entry from a run and the entries before it.
fn taken(view: &View<'_>, seen: &Observation, take: fn(&View<'_>, &Observation) -> Option<f64>) -> Option<f64> {
    take(view, seen)
}

/// Makes [`Observation`] and [`METRICS`] from one table. An entry's `take` sees the run and the
/// metrics of the entries before it.
macro_rules! metrics {
    ($($(#[doc = $doc:literal])+ $name:ident {
        axis: $axis:literal,
        degree: $degree:literal,
        needs: [$($need:ident),*],
        is_predicted: $is_predicted:literal,
        instead: $instead:expr,
        take: $take:expr,
    })+) => {
        /// The metrics of one round; absent if unknown.
        #[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
        pub struct Observation {
            $($(#[doc = $doc])+ pub $name: Option<f64>,)+
        }

        /// The metrics, an entry each.
        pub const METRICS: &[Metric] = &[$(Metric {
            name: stringify!($name),
            about: concat!($($doc),+),
            axis: $axis,
            degree: $degree,
            needs: &[$(Need::$need),*],
            is_predicted: $is_predicted,
            recorded: |seen| seen.$name,
            instead: $instead,
        }),+];

        impl Observation {
            /// The observation with these metrics, by name.
            pub fn from_names(mut value: impl FnMut(&'static str) -> Option<f64>) -> Self {
                Self { $($name: value(stringify!($name)),)+ }
            }

            fn take(view: &View<'_>) -> Self {
                let mut seen = Self::default();
                $(seen.$name = taken(view, &seen, $take);)+
                seen
            }
        }
    };
}

metrics! {
    /// `||theta - theta*||^2`.
    mse {
        axis: "‖θ − θ*‖²",
        degree: 2,
        needs: [Root],
        is_predicted: true,
        instead: |_| None,
        take: |view, _| Some(linalg::distance_sq(view.theta, view.of.field.root()?)),
    }
    /// `||theta - limit||^2`, with the user's point `limit`.
    error {
        axis: "‖θ − centre‖²",
        degree: 2,
        needs: [RootOrCentre],
        is_predicted: true,
        // Without such a point: from theta*.
        instead: |seen| seen.mse,
        take: |view, _| Some(linalg::distance_sq(view.theta, view.centre?)),
    }
    /// `||sum_c p_c gbar_c(theta)||`; unknown if operators can only be sampled.
    residual {
        axis: "‖mean ḡ(θ)‖",
        degree: 1,
        needs: [Means],
        is_predicted: false,
        instead: |_| None,
        take: |view, _| view.residual(),
    }
    /// `(theta - theta*)^T sum_c p_c Phi_c^T D_c Phi_c (theta - theta*)`.
    value_error {
        axis: "value error²",
        degree: 2,
        needs: [Gram, Root],
        is_predicted: false,
        instead: |_| None,
        take: |view, _| {
            let root = view.of.field.root()?;
            Some(value_error(view.of.field.facts().gram()?, view.theta, root))
        },
    }
    /// `sum_c p_c ||xi_c - xi*_c||^2`, `xi*_c = -gbar_c(theta*)`.
    control_error {
        axis: "mean ‖ξ − ξ*‖²",
        degree: 2,
        needs: [Controls, Means, Root],
        is_predicted: false,
        instead: |_| None,
        take: |view, _| {
            let (weights, mut sum) = (view.of.field.weights(), Some(0.0));
            let are_known = view.run.each_control(&mut |c, xi| {
                let distance = view.of.ideal_control(c).map(|ideal| weights[c] * linalg::distance_sq(xi, ideal));
                sum = sum.zip(distance).map(|(sum, distance)| sum + distance);
            });
            sum.filter(|_| are_known)
        },
    }
    /// `||theta - theta*||^2 + w sum_c p_c ||xi_c - xi*_c||^2`, Lyapunov function of \[S\] HTML eq. 45 and 51: `w = (eta / p)^2`, or `(eta
    /// H)^2` with a fixed period.
    lyapunov {
        axis: "ψ",
        degree: 2,
        needs: [Controls, Means, Root],
        is_predicted: false,
        instead: |_| None,
        take: |view, seen| Some(seen.mse? + view.control_weight * seen.control_error?),
    }
    /// `f(theta) = sum_c p_c f_c(theta)`, for problems whose operators are minus gradients.
    loss {
        axis: "loss f(θ)",
        degree: 2,
        needs: [Objective],
        is_predicted: false,
        instead: |_| None,
        take: |view, _| view.loss(),
    }
    /// `f(theta) - f(theta*)`.
    gap {
        axis: "f(θ) − f(θ*)",
        degree: 2,
        needs: [Objective, Root],
        is_predicted: false,
        instead: |_| None,
        take: |view, seen| Some(seen.loss? - view.of.least_loss?),
    }
    /// Line searches so far that found no step with enough decrease; for methods that count them.
    failed_searches {
        axis: "failed line searches",
        degree: 1,
        needs: [Objective],
        is_predicted: false,
        instead: |_| None,
        take: |view, _| view.run.coordinator().failed_searches().map(|failed| failed as f64),
    }
    /// `||Hhat - H||_F^2 / ||H||_F^2`: squared relative error of the server's approximation of a constant mean Hessian; for methods that
    /// keep one.
    hessian_error {
        axis: "‖Ĥ − H‖² / ‖H‖²",
        degree: 2,
        needs: [Objective],
        is_predicted: false,
        instead: |_| None,
        take: |view, _| {
            let System { a, .. } = view.of.mean.as_ref()?;
            Some(linalg::symmetric_distance_sq(&view.run.coordinator().hessian()?, a) / view.of.hessian_norm_sq?)
        },
    }
    /// Mean share of the weight without an answer in the rounds since the recorded one before.
    missing_weight {
        axis: "missing weight",
        degree: 1,
        needs: [Answers],
        is_predicted: false,
        instead: |_| None,
        take: |_, _| None,
    }
}

/// The data of metrics, computed once per field.
pub struct Metrics {
    field: Arc<dyn Field>,
    mean: Option<System>,
    /// `||H||_F^2` of the mean Hessian H, if it is the constant matrix of `mean`.
    hessian_norm_sq: Option<f64>,
    /// `xi*_c` of every kind if operators are linear, otherwise of every agent; empty if unknown.
    ideal: Vec<Vec<f64>>,
    /// `f(theta*)`, if known.
    least_loss: Option<f64>,
}

/// Whether the losses are those of linear systems.
fn is_of_systems(field: &dyn Field) -> bool {
    field.facts().objective().is_some_and(|objective| objective.is_of_systems())
}

impl Metrics {
    /// For runs on `field`.
    pub fn new(field: &Arc<dyn Field>) -> Self {
        let field = Arc::clone(field);
        let minus = |g: Vec<f64>| g.iter().map(|g| -g).collect();
        let ideal = match (field.systems(), field.root()) {
            (Some(systems), Some(root)) => systems.kinds.iter().map(|s| minus(s.mean(root))).collect(),
            (None, Some(root)) if field.has_mean() => {
                let of = |c: usize| {
                    let mut g = vec![0.0; field.dim()];
                    field.mean(c, root, &mut g);
                    minus(g)
                };
                parallel::map(field.agents(), of)
            }
            _ => Vec::new(),
        };
        let mean = field.systems().map(|s| s.mean());
        let hessian_norm_sq = mean.as_ref().map(|System { a, .. }| linalg::symmetric_norm_sq(a));
        let mut known = Self { field, mean, hessian_norm_sq, ideal, least_loss: None };
        known.least_loss = known.field.root().and_then(|root| known.mean_loss(root));
        known
    }

    /// `sum_c p_c f_c(theta)`, if known.
    fn mean_loss(&self, theta: &[f64]) -> Option<f64> {
        match &self.mean {
            Some(mean) if is_of_systems(&*self.field) => Some(mean.loss(theta)),
            _ => self.field.mean_loss(theta),
        }
    }

    /// `xi*_c = -gbar_c(theta*)`, d numbers, if `theta*` and the mean operators are known.
    pub fn ideal_control(&self, c: usize) -> Option<&[f64]> {
        let at = self.field.systems().map_or(c, |systems| systems.kind_of[c] as usize);
        self.ideal.get(at).map(Vec::as_slice)
    }

    /// A need of a metric that this problem lacks; `None` if the metric can be computed.
    pub(crate) fn missing(&self, name: &str) -> Option<Need> {
        metric(name)?.missing(&Knowledge::of(&*self.field, true, true))
    }

    /// `||sum_c p_c gbar_c(theta)||`, if known.
    pub(crate) fn residual(&self, theta: &[f64]) -> Option<f64> {
        Some(linalg::norm_sq(&self.mean_operator(theta)?).sqrt())
    }

    /// `sum_c p_c gbar_c(theta)`, if known.
    fn mean_operator(&self, theta: &[f64]) -> Option<Vec<f64>> {
        self.mean.as_ref().map_or_else(|| self.field.mean_operator(theta), |mean| Some(mean.mean(theta)))
    }

    /// The present metrics of a federation. `error` is measured from `centre`; `control_weight` is the w of the Lyapunov function.
    pub fn observe(&self, run: &dyn Observable, centre: Option<&[f64]>, control_weight: f64) -> Observation {
        let theta = run.coordinator().output();
        Observation::take(&View { of: self, run, theta, centre, control_weight, at_theta: OnceCell::new() })
    }

    /// [`Metrics::observe`] for operators that may fail.
    ///
    /// # Errors
    /// When one has failed ([`Field::failure`]). The field is then ready for the next call.
    pub fn try_observe(&self, run: &dyn Observable, centre: Option<&[f64]>, control_weight: f64) -> Result<Observation> {
        let seen = self.observe(run, centre, control_weight);
        let Some(failure) = self.field.failure() else { return Ok(seen) };
        self.field.recover();
        Err(failure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Isa;
    use crate::problem::systems::Systems;
    use crate::problem::{Facts, Problem, Sampled};
    use crate::random::Stream;
    use crate::sampling::Sampling;

    #[test]
    fn an_observation_is_told_by_its_names() {
        let number = |name: &str| METRICS.iter().position(|metric| metric.name == name).map(|i| i as f64);
        let seen = Observation::from_names(number);
        for (i, metric) in METRICS.iter().enumerate() {
            assert_eq!((metric.recorded)(&seen), Some(i as f64), "{}", metric.name);
        }
        assert_eq!((seen.mse, seen.lyapunov), (Some(0.0), Some(5.0)));
        let only_mse = Observation { mse: Some(2.0), ..Observation::default() };
        assert_eq!(metric("error").unwrap().value(&only_mse), Some(2.0));
        assert_eq!(metric("residual").unwrap().value(&only_mse), None);
        assert!(metric("bits").is_none());
    }

    #[test]
    fn what_is_missing_is_named() {
        let known = Knowledge { root: true, means: true, ..Knowledge::default() };
        let missing = |name: &str, known: &Knowledge| metric(name).unwrap().missing(known);
        assert_eq!(missing("mse", &known), None);
        assert_eq!(missing("value_error", &known), Some(Need::Gram));
        assert_eq!(missing("lyapunov", &known), Some(Need::Controls));
        assert_eq!(missing("mse", &Knowledge::default()), Some(Need::Root));
        assert_eq!(missing("error", &Knowledge { centre: true, ..Knowledge::default() }), None);
        assert_eq!(missing("residual", &Knowledge::default()), Some(Need::Means));
        assert_eq!(missing("residual", &known), None);
    }

    /// Quadratic losses of agents.
    struct Quadratics(Systems);

    impl Facts for Quadratics {
        fn systems(&self) -> Option<&Systems> {
            Some(&self.0)
        }
    }

    impl Problem for Quadratics {
        type Obs = ();
        fn dim(&self) -> usize {
            2
        }
        fn weights(&self) -> &[f64] {
            &self.0.weights
        }
        fn sample(&self, _: usize, _: &[f64], _: &mut [u64], _: &mut Stream, (): &mut ()) {}
        fn apply(&self, c: usize, theta: &[f64], (): &(), out: &mut [f64]) {
            self.mean(c, theta, out);
        }
        fn mean(&self, c: usize, theta: &[f64], out: &mut [f64]) -> bool {
            out.copy_from_slice(&self.0.of(c).mean(theta));
            true
        }
        fn facts(&self) -> &dyn Facts {
            self
        }
    }

    /// The mean system's loss is the mean of the agents' losses, to rounding.
    #[test]
    fn the_loss_of_linear_systems_is_that_of_their_mean() {
        let system = |c: f64| System { a: faer::mat![[2.0 + c, 0.5], [0.5, 1.0 + 0.3 * c]], b: vec![1.0 - c, 0.2 * c] };
        let systems = Systems::new((0..7).map(|c| system(f64::from(c))).collect(), (0..7).collect(), vec![1.0 / 7.0; 7]);
        let field: Arc<dyn Field> = Arc::new(Sampled::new(Quadratics(systems), Sampling::default(), Isa::best()).unwrap());
        let (metrics, theta) = (Metrics::new(&field), [0.3, -1.0]);
        let of_agents = field.mean_loss(&theta).unwrap();
        assert!(is_of_systems(&*field) && of_agents.abs() > 0.1);
        assert!((metrics.mean_loss(&theta).unwrap() - of_agents).abs() < 1e-13 * of_agents.abs());
        assert_eq!(metrics.least_loss, metrics.mean_loss(field.root().unwrap()));
    }
}
