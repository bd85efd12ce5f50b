# %% [markdown]
# # A paper's figure, and how to change it
#
# The experiments behind the figures of the sources come with fedsa. `fedsa.bundled()` lists them, `Experiment.bundled` is one of them, and
# `set` changes any key of its file. Here it is made smaller, so that the notebook takes seconds.

# %%
import fedsa

[name for name in fedsa.bundled() if name.startswith("scafflsa/")]

# %%
figure = fedsa.Experiment.bundled("scafflsa/fig1-high", set={"run.rounds": 60, "run.seeds": 2, "method.0.local_steps": 1000, "method.1.local_steps": 1000})
results = figure.run()
results.plot()

# %% [markdown]
# The file itself, for a colleague who uses the command line:

# %%
print(figure.to_toml()[:900])

# %% [markdown]
# **Change it.** What if every second message were lost? A link is a part of a method; the same key as in the file does it here. Control
# variates survive lost messages, at the price of more noise.

# %%
lossy = fedsa.Experiment.bundled(
    "scafflsa/fig1-high",
    set={
        "run.rounds": 60,
        "run.seeds": 2,
        "method.0.local_steps": 1000,
        "method.1.local_steps": 1000,
        "method.0.uplink.media": [{"kind": "erasure", "success": 0.5}],
        "method.1.uplink.media": [{"kind": "erasure", "success": 0.5}],
    },
)
with_losses = lossy.run()
with_losses.plot(title="Every second message is lost")

# %%
for label in results.labels:
    print(f"{label:12} clear {results.floor(label)}    lossy {with_losses.floor(label)}")

# %% [markdown]
# Another axis is a key of the figure. Saved as SVG, PNG or PDF, equal results give equal bytes.

# %%
results.plot(x="bits_up")
