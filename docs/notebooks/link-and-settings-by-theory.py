# %% [markdown]
# # Choosing a link and settings by theory
#
# Before a single round is run: what limits the accuracy, how large may the step be, and what would an accuracy cost over this link? For
# linear problems fedsa knows the answer exactly, and says where it does not.

# %%
import fedsa
from fedsa import links, methods, problems

problem = problems.Garnet(agents=20, states=30, features=5, heterogeneity="independent", seed=3)
budget = 0.05

def candidate(label, link=None):
    return methods.SCAFFLSA(0.05, 20, label=label, uplink=link)

candidates = [
    candidate("exact"),
    candidate("8 bits", links.Uplink(codec=links.Quantised(8))),
    candidate("4 bits", links.Uplink(codec=links.Quantised(4))),
    candidate("70 % arrive", links.Uplink(media=[links.Erasure(0.7)])),
]
experiment = fedsa.Experiment(problem, candidates, rounds=2000, seeds=3)
theory = experiment.theory(target_mse=budget)
theory.summary()

# %%
theory.plot()

# %% [markdown]
# `floor` says where each candidate stops, and how the number is known (`exact`, `closure` or `leading order`).

# %%
for label in ("exact", "4 bits", "70 % arrive"):
    limits = theory.limits(label)
    print(f"{label:12}", f"floor {limits.floor:.3g} ({limits.accuracy})" if limits else limits)

# %% [markdown]
# The largest stable step, and what would reach the target.

# %%
for label in theory.labels:
    print(f"{label:12} step {theory.stable_step(label)}")
    if target := theory.target(label):
        print(f"{'':12} target in {target.rounds:.0f} rounds, {target.detail['bits_up']:.3g} bits up")

# %% [markdown]
# Let fedsa choose: `tune` looks for the method, step size, local steps and codec that reach the target with the fewest bits. Theory ranks,
# short runs confirm, and the last word is a confirmed run.

# %%
tuned = fedsa.Experiment(problem, methods.SCAFFLSA(0.05, 20), rounds=2000).tune(
    target_mse=budget, objective="bits", methods=["scafflsa"], local_steps=[5, 20], budget="10s"
)
tuned

# %% [markdown]
# The answer is an experiment, which runs.

# %%
if tuned:
    print(tuned.experiment.run().summary())
