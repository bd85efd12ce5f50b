"""Local steps of SARSA in NumPy, all agents at once: three states, two actions, along a chain."""

import numpy as np
from problem import AGENTS, ETA, report

STATES, GAMMA, TEMPERATURE, EXPLORATION = 3, 0.8, 0.5, 0.1
rng = np.random.default_rng(1)
below = rng.random((AGENTS, 2 * STATES, STATES))
below = (below / below.sum(axis=2, keepdims=True)).cumsum(axis=2)
reward = rng.random(2 * STATES)


def all_agents(steps):
    """`theta_c(s, a) += eta (r + gamma theta_c(s', a') - theta_c(s, a))`, with a' of the softmax policy of theta_c."""
    theta, pair, agents = np.zeros((AGENTS, 2 * STATES)), np.zeros(AGENTS, dtype=int), np.arange(AGENTS)
    for u, v in zip(rng.random((steps, AGENTS)), rng.random((steps, AGENTS))):
        state = np.minimum((below[agents, pair] <= u[:, None]).sum(axis=1), STATES - 1)
        difference = theta[agents, 2 * state] - theta[agents, 2 * state + 1]
        second = (1 - EXPLORATION) / (1 + np.exp(difference / TEMPERATURE)) + EXPLORATION / 2
        after = 2 * state + (v < second)
        theta[agents, pair] += ETA * (reward[pair] + GAMMA * theta[agents, after] - theta[agents, pair])
        pair = after
    return theta


report("numpy, all agents at once", 2000, 5, lambda: all_agents(2000))
