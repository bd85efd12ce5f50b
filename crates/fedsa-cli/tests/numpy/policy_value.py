"""The value of the start states of logs in NumPy, against `policy_value` of summary.json.

Usage: policy_value.py SUMMARY GAMMA LAMBDA FOLD LOGS..
FOLD is the number of the purpose of the draws of folds, whose seed is 0.
Features are a constant and the columns s_*. Episodes are numbered, and have more than 20 rows of each agent.
"""

import csv
import json
import sys

import numpy as np


def episodes(path):
    """Arrays phi, next (zeros after an end), reward, ratio of each episode, and whether it has ended."""
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    states = sorted(name for name in rows[0] if name.startswith("s_"))
    found = {}
    for row in rows:
        found.setdefault(row["episode"], []).append(row)
    for of_one in found.values():
        phi = np.array([[1.0] + [float(row[s]) for s in states] for row in of_one])
        following = np.array([[1.0] + [float(row["next_" + s[2:]]) for s in states] for row in of_one])
        done = np.array([float(row["done"]) for row in of_one])
        ratio = np.array([float(row.get("ratio") or 1.0) for row in of_one])
        yield phi, following * (1 - done)[:, None], np.array([float(row["reward"]) for row in of_one]), ratio, done[-1] == 1


MASK = (1 << 64) - 1
WEYL = 0x9E3779B97F4A7C15


def mix(z):
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def uniform(seed, purpose, number, agent):
    """The keyed stream of uniform numbers: xoshiro256++ from hashes of the key."""
    a = mix(mix(seed ^ 0x6A09E667F3BCC908) ^ mix((purpose * WEYL) & MASK))
    b, t, c = mix(a ^ 0xBB67AE8584CAA73B), ((number + 1) * WEYL) & MASK, (agent * WEYL) & MASK
    s0, s1 = mix((mix(a ^ mix(t)) + c) & MASK), mix(mix((b + mix(~t & MASK)) & MASK) ^ c)
    s = [s0, s1, mix(s0 ^ 0x3C6EF372FE94F82B), mix(s1 ^ 0xA54FF53A5F1D36F1) | 1]
    turned = lambda x, k: ((x << k) | (x >> (64 - k))) & MASK
    while True:
        out = (turned((s[0] + s[3]) & MASK, 23) + s[0]) & MASK
        t = (s[1] << 17) & MASK
        s[2] ^= s[0]
        s[3] ^= s[1]
        s[1] ^= s[2]
        s[0] ^= s[3]
        s[2] ^= t
        s[3] = turned(s[3], 45)
        yield (out >> 11) * 2.0**-53


def folds(count, agent, purpose):
    """The folds of an agent's episodes: of every five each is in another one."""
    found = []
    for block in range(-(-count // 5)):
        draws, order = uniform(0, purpose, block, agent), list(range(5))
        for i in range(5):
            j = i + int(next(draws) * (5 - i))
            order[i], order[j] = order[j], order[i]
        found += order
    return found[:count]


def weighted(gamma, fold, units, views, is_weighted, decay):
    """V_i of all episodes, and what each adds to their mean by way of the weights that are fitted to all, where episodes are cut; views are
    (features of what was done, of states, of next states) of each episode."""
    z = [traces(q, u[3] if is_weighted else np.ones(len(q)), decay) for u, (q, _, _) in zip(units, views)]
    a = np.array([z.T @ (q - gamma * n) for z, (q, _, n) in zip(z, views)])
    b = np.array([z.T @ u[2] for z, u in zip(z, units)])
    values = []
    for f, u, (q, v, n) in zip(fold, units, views):
        theta = np.linalg.solve(a[fold != f].sum(axis=0), b[fold != f].sum(axis=0))
        weights = gamma ** np.arange(len(q)) * np.cumprod(u[3])
        values.append(v[0] @ theta + weights @ (u[2] + gamma * n @ theta - q @ theta))
    theta = np.linalg.solve(a.sum(axis=0), b.sum(axis=0))
    cut = [(not u[4]) * gamma ** len(n) * u[3].prod() * n[-1] for u, (_, _, n) in zip(units, views)]
    toward = np.linalg.solve(a.sum(axis=0).T, np.mean(cut, axis=0))
    return np.array(values), (b - a @ theta) @ toward


def with_actions(path, units):
    """Views of actions: features of the state in the block of the action, and their means under the policy."""
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    if "action" not in rows[0]:
        return None
    numbers = lambda name: np.array([float(row[name]) for row in rows])
    taken, views, first = numbers("action"), [], 0
    law = np.array([numbers("target_0"), numbers("target_1")])
    after = np.array([numbers("target_next_0"), numbers("target_next_1")])
    for phi, following, *_ in units:
        at = slice(first, first + len(phi))
        block = lambda x, factors: np.hstack([factor[at][:, None] * x for factor in factors])
        views.append((block(phi, [taken == 0, taken == 1]), block(phi, law), block(following, after)))
        first += len(phi)
    return views


def traces(phi, ratio, decay):
    z, all_of_them = np.zeros(phi.shape[1]), []
    for x, rho in zip(phi, ratio):
        z = rho * (decay * z + x)
        all_of_them.append(z)
    return np.array(all_of_them)


def main(summary, gamma, decay, purpose, paths):
    value = json.load(open(summary))["policy_value"]
    gamma, decay = float(gamma), float(gamma) * float(decay)
    agent, units, fold, actions = [], [], [], []
    for c, path in enumerate(paths):
        own = list(episodes(path))
        agent += [c] * len(own)
        fold += folds(len(own), c, int(purpose))
        actions += with_actions(path, own) or []
        units += own
    fold = np.array(fold)
    agent, n = np.array(agent), len(units)
    z = [traces(u[0], u[3], decay) for u in units]
    a = np.array([z.T @ (u[0] - gamma * u[1]) for z, u in zip(z, units)])
    b = np.array([z.T @ u[2] for z, u in zip(z, units)])
    starts = np.array([u[0][0] for u in units])

    def value_of(keep, of):
        theta = np.linalg.solve(a[keep].sum(axis=0), b[keep].sum(axis=0))
        return starts[keep & of].mean(axis=0) @ theta

    def check(name, found, expected):
        assert np.isclose(found, expected, rtol=1e-9, atol=1e-11), (name, found, expected)

    everything = np.ones(n, bool)
    without = lambda of: np.array([value_of(np.arange(n) != i, of) for i in range(n)])
    fitted = value["fitted"]
    assert fitted["interval"] == "jackknife", fitted
    estimate = value_of(everything, everything)
    check("value", fitted["all"]["estimate"], estimate)
    check("jackknife", fitted["all"]["se"], np.sqrt((n - 1) / n * ((estimate - without(everything)) ** 2).sum()))
    for c, name in enumerate(sorted(fitted["under_shared_weights"])):
        of = agent == c
        own, estimate = of.sum(), value_of(everything, of)
        squares = (estimate - without(of)) ** 2
        check(name, fitted["under_shared_weights"][name]["estimate"], estimate)
        check(name, fitted["under_shared_weights"][name]["se"], np.sqrt((own - 1) / own * squares[of].sum() + n / (n - 1) * squares[~of].sum()))
        theta = np.linalg.solve(a[of].sum(axis=0), b[of].sum(axis=0))
        check(name, fitted["agents"][name]["estimate"], starts[of].mean(axis=0) @ theta)
    views = {"importance": [(u[0], u[0], u[1]) for u in units], "doubly_robust": actions}
    for name, view in views.items():
        if len(view) == 0:
            assert name not in value
            continue
        is_states = name == "importance"
        v, by_weights = weighted(gamma, fold, units, view, is_states, decay if is_states else 0.0)
        check(name, value[name]["all"]["estimate"], v.mean())
        h = (v - v.mean()) / n + by_weights
        check(name, value[name]["all"]["se"], np.sqrt(n / (n - 1) * (h**2).sum()))
    plain = [(gamma ** np.arange(len(u[2])) * np.cumprod(u[3]) * u[2]).sum() for u in units]
    check("plain", value["importance"]["plain"], np.mean(plain))
    assert value["importance"]["cut_episodes"] == sum(not u[4] for u in units)
    print(f"{n} episodes agree")


main(*sys.argv[1:5], sys.argv[5:])
