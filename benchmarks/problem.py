"""The problem of the benchmark, for Python peers: N agents' TD(0) on Garnets, and a clock.

Sizes are those of `crates/fedsa/examples/bench.rs`. Agents draw transitions
(s, s') independently from their stationary law.
"""

import json
import time

import numpy as np

AGENTS, STATES, BRANCHING, D, GAMMA, ETA = 100, 30, 2, 8, 0.95, 0.01


def garnets(seed=0):
    """Feature rows phi and phi - gamma phi' (N, Z, d), rewards (N, Z) and probabilities (N, Z) of all transitions."""
    rng = np.random.default_rng(seed)
    features = rng.random((STATES, D))
    features /= features.sum(axis=1, keepdims=True)
    reward = rng.random(STATES)
    phi, psi, r, law = [], [], [], []
    for _ in range(AGENTS):
        nexts = np.array([rng.choice(STATES, BRANCHING, replace=False) for _ in range(STATES)])
        transition = np.full((STATES, STATES), 1e-9)
        np.add.at(transition, (np.repeat(np.arange(STATES), BRANCHING), nexts.ravel()), 1 / BRANCHING)
        transition /= transition.sum(axis=1, keepdims=True)
        stationary = np.linalg.matrix_power(transition, 1 << 20)[0]
        s = np.repeat(np.arange(STATES), BRANCHING)
        phi.append(features[s])
        psi.append(features[s] - GAMMA * features[nexts.ravel()])
        r.append(reward[s])
        law.append(stationary[s] / BRANCHING / stationary.sum())
    return np.array(phi), np.array(psi), np.array(r), np.array(law)


def report(name, steps, repetitions, work):
    """Times `work` after a first run and prints ns per step and agent."""
    work()
    ns = []
    for _ in range(repetitions):
        start = time.perf_counter()
        work()
        ns.append((time.perf_counter() - start) * 1e9 / (steps * AGENTS))
    ns.sort()
    print(json.dumps({"name": name, "result": {"least": ns[0], "median": ns[len(ns) // 2], "largest": ns[-1]}}), flush=True)
