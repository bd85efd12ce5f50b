# %% [markdown]
# # A paper's figure, and how to change it
#
# The experiments behind the figures of the sources come with fedsa. `fedsa.bundled()` lists them, `Experiment.bundled` is one of them, and
# `set` changes any key of its file. Here it is made smaller, so that the notebook takes seconds.

# %%
import fedsa

[name for name in fedsa.bundled() if name.startswith("scafflsa/")]

# %%
smaller = {"run.rounds": 40, "run.seeds": 2}
figure = fedsa.Experiment.bundled("scafflsa/fig1-high", set=smaller)
results = figure.run()
results.plot()

# %% [markdown]
# The beginning of the file, for a colleague who uses the command line:

# %%
print(figure.to_toml().partition("[run]")[0])

# %% [markdown]
# **Change it.** What if there were only two kinds of agents, which differ much? Federated averaging stops earlier, at a larger error; control variates
# do not mind.

# %%
two_kinds = fedsa.Experiment.bundled("scafflsa/fig1-high", set={**smaller, "problem.heterogeneity": "two-kernels"})
changed = two_kinds.run()
changed.plot(title="Two kinds of agents")

# %%
for label in results.labels:
    print(f"{label:50} {str(results.floor(label)):24} two kinds: {changed.floor(label)}")

# %%
changed.summary()

# %% [markdown]
# Another axis is a key of the figure. Saved as SVG, PNG or PDF, equal results give equal bytes.

# %%
results.plot(x="bits_up")
