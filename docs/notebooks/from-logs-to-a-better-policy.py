# %% [markdown]
# # From logs to a better policy
#
# Eight robots balance a pole; their carts, poles and motors differ. They begin with random pushes, keep their logs, and send sums only. One policy
# shall hold all poles up.
#
#     pip install 'fedsa[gym,notebook]'

# %%
import gymnasium
import numpy as np

import fedsa.gym

rng = np.random.default_rng(0)
robots = {}
for i in range(8):
    env = gymnasium.make("CartPole-v1", max_episode_steps=200)
    robot = env.unwrapped
    robot.length, robot.force_mag, robot.gravity = rng.uniform([0.3, 8.0, 8.0], [0.9, 13.0, 11.0])
    robot.masscart, robot.masspole = rng.uniform([0.7, 0.05], [1.5, 0.2])
    robot.total_mass, robot.polemass_length = robot.masscart + robot.masspole, robot.masspole * robot.length
    robots[f"robot {i}"] = env

# %% [markdown]
# ## Record, improve, record again
#
# In each iteration every robot records ten episodes, and `fedsa.PolicyImprovement` finds a policy from all logs so far. It records with an
# arbitrary action in three of ten steps; the last policy records as it is.

# %%
loop = fedsa.gym.improve(robots, actions=["left", "right"], iterations=3, episodes=10, gamma=0.95, features="fourier:1", progress=False)
loop.plot()

# %% [markdown]
# Returns that were measured in the environments. A pole that stays up for 200 steps earns 200.

# %%
assert all(returns.mean() < 60 for returns in loop.returns[0].values())
assert all(returns.mean() > 180 for returns in loop.returns[-1].values())
loop.summary()

# %% [markdown]
# ## Use the policy

# %%
policy = loop.policy.q_.policy()
returns = {name: fedsa.gym.record(env, policy, episodes=3, seed=1).returns(1.0) for name, env in robots.items()}
assert min(one.min() for one in returns.values()) > 150
for env in robots.values():
    env.close()
returns["robot 0"]
