//! The report about logs: episodes, returns and each agent's share.

use fedsa::error::quoted;
use fedsa_experiment::evaluate::LogsRead;
use fedsa_experiment::numbers;

use super::count;

/// The report, below the line with the number of transitions.
pub fn lines(read: &LogsRead, gamma: f64) -> Vec<String> {
    let all = &read.all;
    let number = |n: usize| numbers::thousands(n as f64);
    // Values do not depend on the order of rows; episodes and returns do.
    if read.is_shuffled() {
        return shares(read).into_iter().collect();
    }
    let mut lines = vec![format!(
        "  {}: {} ended, {} truncated, {} with no end in the log",
        count(all.episodes(), "episode"),
        number(all.ended),
        number(all.truncated),
        number(all.cut)
    )];
    if let Some((episodes, mean, deviation)) = all.returns() {
        let (mean, deviation) = (numbers::digits(mean, 4), numbers::digits(deviation, 3));
        let of =
            if episodes == all.episodes() { String::new() } else { format!(" of the {} that ended or were truncated", number(episodes)) };
        let cut = if all.truncated > 0 { "; truncated ones as far as they go" } else { "" };
        lines.push(format!("  discounted returns{of} (gamma {}): {mean} on average, spread {deviation}{cut}", numbers::typed(gamma)));
    }
    lines.extend(shares(read));
    lines
}

/// The transitions and the share of each agent.
fn shares(read: &LogsRead) -> Option<String> {
    /// The largest number of agents that are listed.
    const NAMED: usize = 8;
    if read.agents.len() < 2 {
        return None;
    }
    let mut order: Vec<usize> = (0..read.agents.len()).collect();
    if order.len() > NAMED {
        // The largest and the smallest ones.
        order.sort_by_key(|c| std::cmp::Reverse(read.agents[*c].1.transitions));
    }
    let one = |c: &usize| {
        let (name, agent) = &read.agents[*c];
        format!("{} {}", quoted(name), numbers::percent(read.share(agent)))
    };
    let text = |agents: &[usize]| agents.iter().map(one).collect::<Vec<_>>().join(", ");
    let half = NAMED / 2;
    let shares = match order.len() {
        0..=NAMED => text(&order),
        n => format!("{}, .., {}", text(&order[..half]), text(&order[n - half..])),
    };
    Some(format!("  shares of the transitions: {shares}"))
}
