//! The smallest error under a privacy budget: step, local steps and rounds, by theory.

use fedsa::cancel::Cancel;
use fedsa::error::{Error, Result};
use fedsa_theory::Accuracy;
use fedsa_theory::privacy::{AgentPlan, PlanChoice, PlanRange, USEFUL};
use fedsa_theory::tune::{self, Course, Family, Hit, Price, SearchChoice, SearchResult, Tried};
use fedsa_theory::work::{self, WorkSpent};
use toml::{Table, Value};

use super::families::Candidates;
use super::pilots::Pilots;
use super::{Evidence, Tuned, Tuning};
use crate::numbers::{number, thousands};

/// The most rounds of a plan: each further round needs more noise in all rounds.
const MAX_ROUNDS: u64 = 60;
/// The numbers of local steps of the coarse search.
const LOCAL_STEPS: [u64; 6] = [1, 3, 10, 30, 100, 300];
/// The number of step sizes of the coarse search.
const STEPS: usize = 8;

/// Puts epsilon and the number of rounds into the `privacy` of a method's secure sums. Without any, the error says what to write.
pub(super) fn put(method: &mut Table, epsilon: f64, rounds: Option<u64>) -> Result<()> {
    let media = method.get_mut("uplink").and_then(|link| link.get_mut("media")).and_then(Value::as_array_mut);
    let privacy = media.into_iter().flatten().find_map(|medium| medium.get_mut("privacy")?.as_table_mut());
    let Some(privacy) = privacy else {
        let help = "`privacy = { epsilon = .., delta = .., rounds = .. }` in the secure-sum of the link, or `target_mse`";
        return Err(Error::new("epsilon", "the link of the file has no privacy", help));
    };
    if privacy.get("unit").and_then(Value::as_str).is_some_and(|unit| unit != "agent") {
        return Err(Error::new(
            "epsilon",
            "the privacy of the link is not that of agents",
            "`unit = \"agent\"`; lstd has no step size to choose",
        ));
    }
    privacy.insert("epsilon".into(), Value::Float(epsilon));
    rounds.map(|rounds| privacy.insert("rounds".into(), Value::Integer(rounds as i64)));
    Ok(())
}

/// The answer of a family.
struct Planned {
    choice: PlanChoice,
    price: Price,
    /// The number of agents with which the error is [`USEFUL`], if it is not.
    agents: Option<u64>,
    /// The multiplications, and whether the budget ended the search early.
    spent: WorkSpent,
}

impl Tuning {
    /// The choice with the smallest error of all families.
    ///
    /// # Errors
    /// When theory knows no family's error; names the reasons. When it is cancelled.
    pub(super) fn search_private(&self, cancel: &Cancel) -> Result<Tuned> {
        let families: Vec<Family> = self.candidates.iter().map(Candidates::family).collect();
        let most = self.options.budget * super::A_SECOND / families.len() as f64;
        let planned: Vec<Result<Planned>> = families.iter().map(|family| self.planned(family, most, cancel)).collect();
        if cancel.is_cancelled() {
            return Err(Error::cancelled("interrupted", "the same command again"));
        }
        let best = (0..planned.len()).filter_map(|i| Some((i, planned[i].as_ref().ok()?.choice.mse))).min_by(|a, b| a.1.total_cmp(&b.1));
        let Some((best, _)) = best else {
            let reason = |(family, planned): (&Family, &Result<Planned>)| Some(format!("{}: {}", family.name, planned.as_ref().err()?));
            let reasons: Vec<String> = families.iter().zip(&planned).filter_map(reason).collect();
            return Err(Error::new("epsilon", reasons.join("; "), "fedlsa, scafflsa or fedhsa on a linear problem, from a fixed start"));
        };
        let tried = |(family, one): (usize, &Planned)| {
            let PlanChoice { step_size, local_steps, rounds, mse, .. } = one.choice;
            let hit = Hit { rounds, mse, passes: rounds as f64 };
            let course = Course { outcome: Ok(hit), path: vec![(rounds, mse)], accuracy: Accuracy::Exact };
            let choice = SearchChoice { family, step_size, local_steps, server_step: 1.0 };
            Tried { choice, course, cost: Some(one.price.cost(rounds, local_steps)) }
        };
        let found: Vec<Tried> = planned.iter().enumerate().filter_map(|(i, one)| Some(tried((i, one.as_ref().ok()?)))).collect();
        let at = found.iter().position(|tried| tried.choice.family == best).expect("the best is known");
        let (answer, hit) = (found[at].clone(), *found[at].reached().expect("a plan ends"));
        let of_best = planned[best].as_ref().expect("the best is known");
        let privacy = Some(super::PrivateAnswer { by_privacy: of_best.choice.by_privacy, agents: of_best.agents });
        let known = || planned.iter().flatten();
        let (work, is_cut) = (known().map(|one| one.spent.work).sum(), known().any(|one| one.spent.was_cut));
        let unknown = planned.iter().map(|one| one.as_ref().err().cloned()).collect();
        let prices = planned.into_iter().map(|one| one.map(|one| one.price)).collect();
        let found = SearchResult { tried: found, best: Some(at), unknown, prices, work, is_cut, is_late: false };
        let (cost, evidence) = (answer.cost.expect("a plan has a cost"), Evidence::Theory(Accuracy::Exact));
        let (choice, pilots) = (answer.choice, Pilots::default());
        Ok(Tuned { choice, hit, cost, evidence, found, pilots, theory_seconds: work / super::A_SECOND, is_late: false, privacy })
    }

    fn planned(&self, family: &Family, most: f64, cancel: &Cancel) -> Result<Planned> {
        let field = self.problem.shared_field();
        let random = || Error::not_known("start", "a random start", "a fixed one");
        let theta = self.start.theta.as_deref().ok_or_else(random)?;
        let step_sizes: Vec<f64> = tune::coarse_steps(&**field).take(STEPS).collect();
        let any = SearchChoice { family: 0, step_size: step_sizes[0], local_steps: 1, server_step: 1.0 };
        let forecast = family.forecast(field, &any, &self.start)?.with_cancel(cancel);
        let rounds = family.link.privacy().map_or(1, |privacy| privacy.rounds);
        let plan = AgentPlan::over(&forecast, rounds, theta)?;
        let local_steps = match &self.target.local_steps {
            _ if !family.has_local_steps => vec![1],
            Some(given) => given.clone(),
            None => LOCAL_STEPS.into_iter().filter(|h| *h <= self.target.max_local_steps).collect(),
        };
        let max_rounds = self.target.max_rounds.min(MAX_ROUNDS);
        let range = PlanRange { step_sizes, local_steps, max_rounds, refine: self.target.local_steps.is_none() };
        let (found, spent) = work::until(cancel, || Ok(work::within(most, || plan.best(&range))))?;
        let found = found?;
        // The file holds the step size with few digits.
        let choice = plan.choice(tune::rounded(found.step_size), found.local_steps, found.rounds)?;
        let wanted = USEFUL * self.error_of_zero();
        // Smaller steps have less bias.
        let step_sizes = [1.0, 0.5, 0.25].map(|by| by * choice.step_size).to_vec();
        let near = PlanRange { step_sizes, local_steps: vec![choice.local_steps], refine: false, ..range };
        let agents = (choice.mse > wanted).then(|| plan.agents_needed(wanted, &near).ok().map(|needed| needed.agents)).flatten();
        Ok(Planned { choice, price: Price::of(field, family, &self.start)?, agents, spent })
    }

    /// `||theta*||^2`.
    fn error_of_zero(&self) -> f64 {
        self.problem.shared_field().solution().map_or(f64::INFINITY, |root| fedsa::linalg::norm_sq(&root.theta))
    }

    /// The report of an answer under a privacy budget.
    pub(super) fn report_private(&self, tuned: &Tuned, answer: &super::PrivateAnswer) -> Vec<String> {
        let zero = self.error_of_zero();
        let link = &self.candidates[tuned.choice.family].link;
        let privacy = link.privacy().expect("a link with privacy");
        let mut lines = vec![
            format!(
                "the smallest mean-square error with epsilon = {} and delta = {} for {}:",
                number(privacy.epsilon),
                number(privacy.delta),
                privacy.protected()
            ),
            format!("  {}", self.text_of(tuned)),
            format!(
                "  mean-square error {} then, by theory, {} of it by the noise, if nothing is clipped",
                number(tuned.hit.mse),
                number(answer.by_privacy)
            ),
        ];
        if tuned.hit.mse > USEFUL * zero {
            let agents = answer.agents.map_or("more agents, or no privacy of agents".into(), |n| {
                format!("about {} agents of these kinds would have {}", thousands(n as f64), number(USEFUL * zero))
            });
            lines.push(format!("  weights of zero have the error {}: {agents}", number(zero)));
        }
        for (family, of) in self.candidates.iter().enumerate().filter(|(family, _)| *family != tuned.choice.family) {
            let tried = tuned.found.tried.iter().find(|tried| tried.choice.family == family);
            lines.push(match (tried.and_then(Tried::reached), tried, &tuned.found.unknown[family]) {
                (Some(hit), Some(tried), _) => {
                    format!("  {}: {} after {}", self.choice_text(&tried.choice), number(hit.mse), crate::numbers::rounds(hit.rounds))
                }
                (.., Some(why)) => format!("  {}: {}", of.name(), why.what),
                _ => continue,
            });
        }
        if tuned.is_cut() {
            lines.push(format!("{} ended the search early: a larger `budget` may find better", self.limit(false).text));
        }
        lines
    }
}
