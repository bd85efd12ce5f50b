# %% [markdown]
# # Your own operator
#
# Twelve weather stations want one smooth curve through the temperatures of the day. Some of their sensors jump. Your operator says
# what an agent estimates. fedsa predicts where methods end, runs them, and takes a server rule of your own.
#
#     pip install 'fedsa[notebook]'

# %%
import numpy as np

import fedsa
from fedsa import methods, problems

made = np.random.default_rng(0)
stations, readings = 12, 200
hours = np.sort(made.uniform(0, 24, size=(stations, readings)))
shift = made.normal(scale=1.0, size=(stations, 1))
temperature = 12 + shift - 6 * np.cos(2 * np.pi * (hours - 3) / 24) + made.standard_t(2, size=hours.shape)

# %% [markdown]
# ## The operator
#
# The curve is a sum of sines and cosines. A reading pulls it by the hyperbolic tangent of its residual, so that a sensor that jumps counts no
# more than one that is off by a few degrees. `sample` draws one reading of each agent, and returns where `theta` should move; `theta` has a row
# for each agent of the call.


# %%
def features(hours):
    angle = 2 * np.pi * hours / 24
    return np.stack([np.ones_like(angle), np.cos(angle), np.sin(angle), np.cos(2 * angle), np.sin(2 * angle)], axis=-1)


class Curve:
    agents, dim = stations, 5

    def __init__(self):
        self.x, self.y = features(hours), temperature

    def sample(self, theta, state, rng):
        row = (readings * rng.random()).astype(int)
        x, y = self.x[rng.agents, row], self.y[rng.agents, row]
        return np.tanh(y - (x * theta).sum(1))[:, None] * x

    def mean(self, theta, agents):
        left = self.y[agents] - (self.x[agents] * theta[:, None, :]).sum(2)
        return (np.tanh(left)[:, :, None] * self.x[agents]).mean(1)


curve = problems.Custom(Curve())

# %% [markdown]
# ## What is known of it
#
# With `mean` fedsa finds the root: the curve at which the pulls of all stations cancel. Errors are measured from there. On the mean operators,
# without noise, local steps alone end beside the root, because stations differ; control variates end at it.

# %%
local = methods.FedLSA(0.5, 20, start=[12.0, 0, 0, 0, 0])
controlled = methods.SCAFFLSA(0.5, 20, start=[12.0, 0, 0, 0, 0])
quiet = fedsa.Experiment(curve, [local, controlled], rounds=200, sampling="mean").run()
bias = {label: float(np.linalg.norm(quiet.theta(label, seed=0) - quiet.theta("scafflsa", seed=0))) for label in quiet.labels}
assert bias["fedlsa"] > 1e-3
assert quiet.floor("scafflsa").mean < 1e-12
print(bias)
quiet.plot()

# %% [markdown]
# An attribute `root` says what is known already, and saves the search. Here it is the curve that was found; the squared error of a run then is the
# distance from it.


# %%
class KnownCurve(Curve):
    root = quiet.theta("scafflsa", seed=0)


known = problems.Custom(KnownCurve())
noisy = fedsa.Experiment(known, [methods.FedLSA(0.1, 20), methods.SCAFFLSA(0.1, 20)], rounds=400, seeds=4).run()
floors = {label: noisy.floor(label) for label in noisy.labels}
assert all(0 < floor.mean < 1 for floor in floors.values())
noisy.summary()

# %% [markdown]
# ## A server rule
#
# The average moves `theta` by the mean of the stations' directions. Your own rule may do something else with it: here a running mean of
# past directions, and a step that shrinks. It keeps its memory in `at.state`, so that checkpoints have it, and runs do not mix.


# %%
class Momentum:
    def __init__(self, beta, decay):
        self.beta, self.decay = beta, decay

    def start(self, theta):
        return {"velocity": np.zeros_like(theta)}

    def step(self, theta, mean, at):
        velocity = at.state["velocity"]
        velocity *= self.beta
        velocity += (1 - self.beta) * mean
        return theta + at.step_sum * velocity / (1 + self.decay * at.round)


own = methods.Custom(0.1, 20, server=Momentum(0.9, 0.02), label="momentum")
compared = fedsa.Experiment(known, [methods.FedLSA(0.1, 20), own], rounds=400, seeds=4).run()
assert compared.floor("momentum").mean < compared.floor("fedlsa").mean
compared.plot()

# %% [markdown]
# Both halves may be one's own, over all links, and at nodes of a federation: `docs/src/guides/python-rules.md`.
