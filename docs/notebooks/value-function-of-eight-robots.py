# %% [markdown]
# # From Gymnasium to a value function of eight robots
#
# Eight robots balance a pole, each with a pole of another length. They follow the same policy, keep their transitions, and send sums only. We fit
# one value function to all of them, and look at whether that helps each of them.
#
#     pip install 'fedsa[gym,notebook]'

# %%
import gymnasium
import numpy as np

import fedsa
import fedsa.gym

# %% [markdown]
# ## Recordings
#
# The policy pushes to the side to which the pole falls, and is wrong in two of five steps. `record` keeps ends, after which nothing follows, and
# limits of time, after which the value goes on, apart.


# %%
def policy_of(seed):
    rng = np.random.default_rng(seed)
    return lambda state: int((state[2] + 0.3 * state[3] > 0) != (rng.random() < 0.4))


robots = {}
for i, length in enumerate(np.linspace(0.3, 0.8, 8)):
    env = gymnasium.make("CartPole-v1", max_episode_steps=200)
    env.unwrapped.length = length
    robots[f"robot_{i}"] = fedsa.gym.record(env, policy_of(i), episodes=8, seed=i)
    env.close()
robots["robot_0"]

# %% [markdown]
# ## The fit
#
# A quarter of each robot's episodes is held out: six are left to learn from. The method is chosen by the bits that it needs.

# %%
value = fedsa.ValueFunction(gamma=0.95, features="polynomial:2", holdout=0.25).fit(robots)
assert value.outcome_.name == "converged"
value.costs_

# %% [markdown]
# The value function over the two state columns along which it varies most, between its standard errors:

# %%
value.plot("value")

# %% [markdown]
# ## Does the federation help?
#
# Errors against the returns of held-out episodes: of the federated weights, of weights of the robot's own data, and of all data pooled. LSTD comes
# to the solution of the pooled data, with sums in place of transitions.

# %%
table = value.summary()
assert table.rows[-1]["agent"] == "all agents"
table

# %% [markdown]
# ## How good is the policy?
#
# The value of the states in which episodes start, with an interval of 95%. Every episode begins near the upright pole, and a step is worth 1.

# %%
print(value.value().all)
print(value.value("importance").all)

# %% [markdown]
# ## Values of new states

# %%
states = np.array([[0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.15, 0.5]])
values, errors = value.predict(states, return_std=True)
assert values[0] > values[1], "a pole that falls is worth less"
list(zip(values.round(2), errors.round(2)))
