//! What was read of logs, for people: rows, episodes, returns, each agent's share, and rows that were left out.

use fedsa::error::quoted;
use fedsa_experiment::evaluate::LogsRead;
use fedsa_experiment::numbers;

use super::count;

/// The report, under the line with the number of transitions.
pub fn lines(read: &LogsRead, gamma: f64) -> Vec<String> {
    let all = &read.all;
    let number = |n: usize| numbers::thousands(n as f64);
    // Values do not depend on the order of rows; episodes and returns do.
    let is_shuffled = read.is_shuffled();
    let mut lines = vec![match is_shuffled {
        true => {
            "  warning: rows are not in the order of time, and episodes are not known: most begin in another state than the row before \
                 led to. There is no value of start states (a column `env` or `episode` puts rows of environments that are side by side in \
                 order)"
                .into()
        }
        false => format!(
            "  {}: {} ended, {} truncated, {} with no end in the log",
            count(all.episodes(), "episode"),
            number(all.ended),
            number(all.truncated),
            number(all.cut)
        ),
    }];
    if let Some((episodes, mean, deviation)) = all.returns().filter(|_| !is_shuffled) {
        let (mean, deviation) = (numbers::digits(mean, 4), numbers::digits(deviation, 3));
        let of =
            if episodes == all.episodes() { String::new() } else { format!(" of the {} that ended or were truncated", number(episodes)) };
        let cut = if all.truncated > 0 { "; truncated ones as far as they go" } else { "" };
        lines.push(format!("  discounted returns{of} (gamma {}): {mean} on average, spread {deviation}{cut}", numbers::typed(gamma)));
    }
    lines.extend(shares(read));
    if read.next_follows {
        lines.push("  no columns of next states: each next state is that of the following row of the episode".into());
    }
    lines.extend(left_out(read));
    if all.both > 0 {
        let rows = count(all.both, "transition");
        let both = format!("  warning: {rows} are marked as terminal and as truncated, and count as terminal");
        lines.push(format!("{both}: where `done` means either, give the column that means terminal as done (--columns done=FIELD)"));
    }
    if all.jumps > 0 && !is_shuffled {
        let rows = count(all.jumps, "transition");
        let what = format!("  warning: {rows} in the midst of an episode begin in another state than the row before led to");
        lines.push(format!("{what}: rows of an episode belong in the order of time, or its returns, traces and value are wrong"));
    }
    if all.resumed > 0 {
        let what = format!("  warning: {} on after their end under the same number", count_of(all.resumed, "episode goes", "episodes go"));
        lines.push(format!("{what}, and what follows counts as an episode of its own"));
    }
    if all.looks_reset() {
        let rows = number(all.resets);
        let what =
            format!("  warning: all {rows} rows after an end begin in its last state with reward 0, as resets of vector environments do");
        lines.push(format!("{what}: a column `env` (--columns env=FIELD) leaves them out"));
    }
    lines
}

fn count_of(n: usize, one: &str, several: &str) -> String {
    format!("{} {}", numbers::thousands(n as f64), if n == 1 { one } else { several })
}

/// The transitions and the share of each agent.
fn shares(read: &LogsRead) -> Option<String> {
    /// The largest number of agents that are named.
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

/// Rows that were left out, by file and reason.
fn left_out(read: &LogsRead) -> Vec<String> {
    /// The largest number of files and reasons that are named.
    const NAMED: usize = 12;
    let each = read.left_out.iter().take(NAMED);
    let line = |rows: &fedsa::problem::log_form::LeftOutRows| {
        format!("  left out {} of {}: {} (first {})", count(rows.rows, "row"), rows.file, rows.reason, rows.first)
    };
    let mut lines: Vec<String> = each.map(line).collect();
    if read.left_out.len() > NAMED {
        let rows: usize = read.left_out[NAMED..].iter().map(|rows| rows.rows).sum();
        lines.push(format!(
            "  left out {} for {} further reasons; summary.json lists all",
            count(rows, "row"),
            read.left_out.len() - NAMED
        ));
    }
    lines
}
