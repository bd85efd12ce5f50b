# %% [markdown]
# # Regression in few rounds
#
# Five hospitals want one logistic regression of all their patients, and may not show them to each other. How many rounds and bits does that take?
#
#     pip install 'fedsa[sklearn,notebook]'

# %%
import numpy as np

import fedsa

rng = np.random.default_rng(0)
n, d = 4000, 12
hospital = rng.choice(["north", "south", "east", "west", "centre"], size=n, p=[0.4, 0.3, 0.15, 0.1, 0.05])
X = rng.normal(size=(n, d)) @ np.diag(np.linspace(0.3, 3.0, d))
X[hospital == "north"] += 0.5
y = np.where(X @ rng.normal(size=d) / 3 + rng.logistic(size=n) > 0, "ill", "well")

# %% [markdown]
# ## The fit
#
# `method="auto"` estimates what methods need by rule of thumb, and takes the one with the fewest bits.

# %%
model = fedsa.FederatedClassifier(ridge=1e-4).fit(X, y, agents=hospital)
assert model.outcome_.name == "converged" and model.n_iter_ < 40
model.choice_["why"]

# %% [markdown]
# The coefficients are the same as from all rows in one place:

# %%
from sklearn.linear_model import LogisticRegression

pooled = LogisticRegression(C=1 / (1e-4 * n), tol=1e-12, solver="newton-cholesky", max_iter=1000).fit(X, y)
difference = abs(model.coef_ - pooled.coef_).max()
assert difference < 1e-8
difference

# %% [markdown]
# ## What other methods need

# %%
compared = fedsa.FederatedClassifier(ridge=1e-4, compare=["newton", "fednl", "giant"], max_rounds=200).fit(X, y, agents=hospital)
for name, spent in compared.costs_.items():
    print(f"{name:8} {spent.rounds:4} rounds  {spent.bits_up / 8e6:8.4f} MB up  {spent.outcome}")

# %% [markdown]
# The norm of the gradient over the rounds, exchanges, vectors, bits and Hessians that it took:

# %%
compared.results_.plot()

# %% [markdown]
# ## Standard errors
#
# They come from sums that hospitals send. Without a ridge it is the estimate of greatest likelihood.

# %%
inferred = fedsa.FederatedClassifier(inference="model").fit(X, y, agents=hospital)
assert inferred.inference_.se.min() > 0
inferred.summary()

# %% [markdown]
# ## In scikit-learn's tools

# %%
from sklearn.model_selection import cross_val_score

scores = cross_val_score(fedsa.FederatedClassifier(ridge=1e-4), X, y, cv=5, params={"agents": hospital})
assert scores.mean() > 0.6
scores
