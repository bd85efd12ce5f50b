"""Local TD(0) steps in NumPy: agent by agent as one writes the algorithm down, and all agents at once."""

import numpy as np
from problem import AGENTS, D, ETA, garnets, report

phi, psi, r, law = garnets()
below = law.cumsum(axis=1)
below[:, -1] = 1.0
rng = np.random.default_rng(1)
xi = np.zeros((AGENTS, D))


def agent_by_agent(steps):
    """`theta_c += eta (delta phi(s) + xi_c)`: two loops, over agents and over steps."""
    theta = np.zeros((AGENTS, D))
    for c in range(AGENTS):
        theta_c, phi_c, psi_c, r_c, xi_c = theta[c], phi[c], psi[c], r[c], xi[c]
        for z in np.searchsorted(below[c], rng.random(steps)).tolist():
            theta_c += ETA * ((r_c[z] - psi_c[z].dot(theta_c)) * phi_c[z] + xi_c)
    return theta


def all_agents(steps):
    """The same with one loop, over steps."""
    theta = np.zeros((AGENTS, D))
    agents = np.arange(AGENTS)
    drawn = np.array([np.searchsorted(below[c], rng.random(steps)) for c in agents])
    for z in drawn.T:
        delta = r[agents, z] - np.einsum("cd,cd->c", psi[agents, z], theta)
        theta += ETA * (delta[:, None] * phi[agents, z] + xi)
    return theta


report("numpy, agent by agent", 200, 5, lambda: agent_by_agent(200))
report("numpy, all agents at once", 2000, 5, lambda: all_agents(2000))
