"""Local TD(0) steps in JAX: all agents at once, a compiled scan over the steps, double precision."""

from functools import partial

import jax
import jax.numpy as jnp
from problem import AGENTS, D, ETA, garnets, report

jax.config.update("jax_enable_x64", True)
phi, psi, r, law = map(jnp.asarray, garnets())
below = law.cumsum(axis=1).at[:, -1].set(1.0)
agents = jnp.arange(AGENTS)
xi = jnp.zeros((AGENTS, D))


@partial(jax.jit, static_argnums=1)
def leg(key, steps):
    """`theta_c += eta (delta phi(s) + xi_c)` for all agents c, step after step."""
    drawn = jax.vmap(lambda b, u: jnp.searchsorted(b, u))(below, jax.random.uniform(key, (AGENTS, steps)))

    def step(theta, z):
        delta = r[agents, z] - jnp.sum(psi[agents, z] * theta, axis=1)
        return theta + ETA * (delta[:, None] * phi[agents, z] + xi), None

    return jax.lax.scan(step, jnp.zeros((AGENTS, D)), drawn.T)[0]


report("jax, all agents at once", 10_000, 7, lambda: leg(jax.random.key(1), 10_000).block_until_ready())
