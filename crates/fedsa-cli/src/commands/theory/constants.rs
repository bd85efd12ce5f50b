//! The constants of a problem, each with its meaning.

use std::collections::{BTreeMap, BTreeSet};

use fedsa_experiment::numbers;
use fedsa_experiment::theory::ProblemTheory;

use super::text::{Page, row, sentence};

/// The name and the meaning of a constant, with its table and key in the JSON.
struct Explained {
    table: &'static str,
    key: &'static str,
    symbol: &'static str,
    meaning: &'static str,
}

const fn of(table: &'static str, key: &'static str, symbol: &'static str, meaning: &'static str) -> Explained {
    Explained { table, key, symbol, meaning }
}

/// All constants of the JSON.
const ALL: &[Explained] = &[
    of(
        "monotone",
        "modulus",
        "modulus",
        "how strongly the mean operator pulls towards theta*: the least rate of contraction. The mean operator has one root where it is positive",
    ),
    of("monotone", "lipschitz", "Lipschitz", "how fast the mean operator changes with theta, at most"),
    of(
        "constants",
        "c_a",
        "C_A",
        "the largest norm of an agent's mean matrix. A local step above 2/C_A can overshoot for the fastest agent",
    ),
    of(
        "constants",
        "a",
        "a",
        "the slowest agent's rate: the least eigenvalue of the symmetric part of an agent's mean matrix. The bounds of SCAFFLSA's source need a > 0",
    ),
    of("constants", "l", "L", "the least L with E A'A <= L sym(A) for every agent: samples with a large L need small steps"),
    of(
        "constants",
        "eta_inf",
        "eta_inf",
        "the largest step for which the bounds of SCAFFLSA's source hold, 1/L; steps that are stable are often far larger",
    ),
    of(
        "constants",
        "sigma_a",
        "Sigma_A",
        "the largest norm of the covariance of an agent's random matrix: noise that grows with the distance from theta*",
    ),
    of(
        "constants",
        "square_norm",
        "|A|^2+Sigma_A",
        "the largest mean square of an agent's random matrix, which limits the step of random talk",
    ),
    of(
        "constants",
        "sigma_eps",
        "sigma_eps",
        "the variance of a sample of the operator at the agent's own root, mean over agents: noise that does not vanish",
    ),
    of(
        "constants",
        "sigma_omega",
        "sigma_omega",
        "the variance of a sample of the operator at theta*, mean over agents: what the noise of the floor is made of",
    ),
    of("constants", "v_heter", "v_heter", "the noise at theta* that comes from agents' roots being elsewhere"),
    of(
        "constants",
        "delta_heter",
        "Delta_heter",
        "the mean of the squared operators of the agents at theta*: 0 where all agents agree, and otherwise the source of FedLSA's bias",
    ),
    of("fedhsa", "mu", "mu", "FedHSA, assumption 2: the rate of the mean operator; not positive where it is not strongly monotone"),
    of("fedhsa", "l", "L (FedHSA)", "FedHSA, assumption 1: every sampled operator is L-Lipschitz"),
    of("fedhsa", "sigma", "sigma (FedHSA)", "FedHSA, assumption 1: a sampled operator at theta is at most L (||theta|| + sigma)"),
    of("td", "gamma", "gamma", "the largest discount factor"),
    of(
        "td",
        "nu",
        "nu",
        "the least eigenvalue of an agent's feature covariance: features that are nearly dependent make it small, and TD slow",
    ),
    of("td", "c_a", "C_A (TD)", "the bound 1 + gamma of C_A for features of norm at most 1"),
    of("td", "sigma_a", "Sigma_A (TD)", "the bound 2 (1 + gamma)^2 of Sigma_A"),
    of("td", "a", "a (TD)", "the bound (1 - gamma) nu / 2 of a, from below"),
    of("td", "eta_inf", "eta_inf (TD)", "the step (1 - gamma) / 4 for which the lemma on TD holds"),
    of("td", "l", "L (TD)", "the bound of L as the source prints it"),
    of("td", "l_sharp", "L sharp (TD)", "the bound (1 + gamma)^2 / (1 - gamma) of L, which already holds"),
    of("td", "least_reward", "least r", "the smallest reward; bounds of SCAFFLSA's source on TD ask for rewards in [0, 1]"),
    of("td", "largest_reward", "largest r", "the largest reward"),
    of("td", "feature_norm", "|phi|", "the largest norm of a state's features; bounds on TD ask for at most 1"),
    of(
        "",
        "virtual_mdp_distance",
        "virtual MDP",
        "the distance of theta* from the values of the averaged reward process: what averaging operators instead of processes changes",
    ),
];

/// The constants of a problem. Constants in `explained` have had their meaning before; the others are added to it.
pub fn constants(page: &mut Page, problem: &ProblemTheory, explained: &mut BTreeSet<&'static str>) {
    let (mut rows, mut unknown) = (Vec::new(), BTreeMap::<String, Vec<&str>>::new());
    for Explained { table, key, symbol, meaning } in ALL {
        let numbers = &problem.numbers;
        let value = if table.is_empty() { numbers.get(*key) } else { numbers.get(*table).and_then(|table| table.get(*key)) };
        let Some(value) = value else { continue };
        let text = match (value.as_f64(), problem.reason(&format!("{table}.{key}"))) {
            (Some(x), _) => numbers::number(x),
            (None, Some(why)) if !problem.is_infinite(&format!("{table}.{key}")) => {
                unknown.entry(format!("not known: {why}")).or_default().push(symbol);
                String::new()
            }
            (None, _) => "not finite".into(),
        };
        let meaning = if explained.insert(symbol) { meaning } else { "" };
        // An unknown constant is listed for its meaning.
        if !text.is_empty() || !meaning.is_empty() {
            rows.push(row(&[symbol, &text, meaning]));
        }
    }
    // Tables that are unknown as a whole have a reason.
    let reasons: Vec<&str> = ["monotone", "constants"].into_iter().filter_map(|table| problem.reason(table)).collect();
    if rows.is_empty() && reasons.is_empty() {
        return;
    }
    page.heading("Constants");
    page.table(&rows);
    for (why, symbols) in unknown {
        page.paragraph(&sentence(&format!("{}: {why}", symbols.join(", "))));
    }
    reasons.into_iter().for_each(|why| page.paragraph(&sentence(why)));
}

#[cfg(test)]
mod tests {
    use fedsa_theory::constants::{Constants, TdConstants};
    use fedsa_theory::fedhsa_bounds::FedHsaConstants;

    use super::*;

    /// The fields of a structure.
    fn keys(value: impl serde::Serialize) -> BTreeSet<String> {
        serde_json::to_value(value).unwrap().as_object().unwrap().keys().cloned().collect()
    }

    #[test]
    fn every_constant_is_explained() {
        let constants = Constants {
            c_a: 1.0,
            a: 1.0,
            l: None,
            sigma_a: None,
            square_norm: None,
            sigma_eps: None,
            sigma_omega: None,
            v_heter: None,
            delta_heter: 0.0,
        };
        let mut own = keys(constants);
        own.insert("eta_inf".into());
        let mut td = keys(TdConstants::new(0.5, 0.1).unwrap());
        td.extend(["least_reward", "largest_reward", "feature_norm"].map(String::from));
        let tables = [("constants", own), ("td", td), ("fedhsa", keys(FedHsaConstants { mu: 1.0, l: 1.0, sigma: 1.0 }))];
        for (table, keys) in tables {
            let explained: BTreeSet<String> = ALL.iter().filter(|one| one.table == table).map(|one| one.key.to_string()).collect();
            assert_eq!(explained, keys, "{table}");
        }
    }
}
