# %% [markdown]
# # A first experiment
#
# Ten agents learn the value function of one policy. Their environments are of two kinds, so that each agent alone would learn another
# function; together they look for the root of the *mean* of their operators. Federated averaging (`FedLSA`) lets every agent make many local
# steps and averages; `SCAFFLSA` adds control variates, which remove the error that the agents' differences make.

# %%
import fedsa
from fedsa import methods, problems

problem = problems.Garnet(agents=10, states=20, features=4, heterogeneity="two-kernels", seed=1)
experiment = fedsa.Experiment(
    problem,
    [methods.FedLSA(0.1, 1000, label="FedLSA"), methods.SCAFFLSA(0.1, 1000, label="SCAFFLSA")],
    rounds=100,
    seeds=5,
    start="root+1",
)
experiment

# %% [markdown]
# `check` says whether it would run, how long that takes, and whether the step sizes are stable. Nothing is run.

# %%
check = experiment.check()
assert check.accepted and all(check.stable.values())
check

# %% [markdown]
# Run it. Results are found by the labels of the methods; estimates come with their standard errors.

# %%
results = experiment.run()
results.summary()

# %%
results.plot()

# %% [markdown]
# Both curves fall at first. FedLSA stops at its bias. SCAFFLSA goes on until the noise of the samples
# stops it.

# %%
floors = {label: results.floor(label) for label in results.labels}
theory = experiment.theory()
for label, floor in floors.items():
    print(f"{label:10} {floor}   predicted {theory.limits(label).floor:.4g} ({theory.limits(label).accuracy})")
assert floors["SCAFFLSA"].mean < floors["FedLSA"].mean / 10

# %% [markdown]
# The rows that were recorded are an Arrow table: polars, pyarrow and pandas take it without a conversion; single columns are NumPy arrays.

# %%
trace = results.trace()
print(trace.columns[:8], len(trace))
trace["mse"][-3:]

# %% [markdown]
# What did it cost? One row for each count.

# %%
{label: results.cost(label)["bits_up"] for label in results.labels}
