"""Metadata of scikit-learn: agents and weights of rows through cross-validation, searches and pipelines."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from needs import needs

from fedsa import FederatedClassifier, FederatedRegressor

sklearn = needs("sklearn")

N, D = 240, 3
RNG = np.random.default_rng(3)
X = RNG.normal(size=(N, D))
SITE = np.array(["north", "south", "east", "west"])[np.arange(N) % 4]
LABELS = np.where(X @ [1.0, -1.0, 0.5] + RNG.normal(size=N) > 0, "yes", "no")
TARGETS = X @ [1.0, -1.0, 0.5] + RNG.normal(size=N)
WEIGHTS = RNG.integers(1, 4, N).astype(float)


@pytest.fixture(autouse=True)
def routing() -> Iterator[None]:
    with sklearn.config_context(enable_metadata_routing=True):
        yield


CASES: list[Any] = [(FederatedClassifier, LABELS), (FederatedRegressor, TARGETS)]


@pytest.mark.parametrize("estimator, y", CASES, ids=["classifier", "regressor"])
def test_labels_of_agents_reach_each_fit_of_a_cross_validation(estimator: Any, y: Any) -> None:
    from sklearn.model_selection import GroupKFold, LeaveOneGroupOut, cross_validate

    model = estimator().set_fit_request(agents=True, sample_weight=True).set_score_request(sample_weight=False)
    params = {"agents": SITE, "sample_weight": WEIGHTS}
    found = cross_validate(model, X, y, cv=3, params=params, return_estimator=True)
    assert [sorted(one.agents_) for one in found["estimator"]] == 3 * [["east", "north", "south", "west"]]
    # Each fold is without the agents that it is scored on.
    for split in (GroupKFold(n_splits=2), LeaveOneGroupOut()):
        found = cross_validate(model, X, y, cv=split, params={**params, "groups": SITE}, return_estimator=True)
        assert [len(one.agents_) for one in found["estimator"]] == (2 * [2] if isinstance(split, GroupKFold) else 4 * [3])
    train = np.isin(SITE, found["estimator"][0].agents_)
    alone = estimator().fit(X[train], y[train], agents=SITE[train], sample_weight=WEIGHTS[train])
    np.testing.assert_array_equal(alone.coef_, found["estimator"][0].coef_)


@pytest.mark.parametrize("estimator, y", CASES, ids=["classifier", "regressor"])
def test_searches_and_pipelines_hand_agents_over(estimator: Any, y: Any) -> None:
    from sklearn.model_selection import GridSearchCV, cross_val_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model = estimator().set_fit_request(agents=True)
    search = GridSearchCV(model, {"ridge": [1e-4, 1.0]}, cv=2).fit(X, y, agents=SITE)
    assert sorted(search.best_estimator_.agents_) == ["east", "north", "south", "west"]
    pipeline = make_pipeline(StandardScaler(), model)
    assert len(pipeline.fit(X, y, agents=SITE)[-1].agents_) == 4
    assert len(cross_val_score(pipeline, X, y, cv=2, params={"agents": SITE})) == 2
    assert len(cross_val_score(estimator().set_fit_request(agents=True), X, y, cv=2, params={"agents": 5})) == 2


def test_requests_are_copied_pickled_and_named() -> None:
    from sklearn.base import clone
    from sklearn.model_selection import cross_val_score

    model = FederatedRegressor().set_fit_request(agents="site").set_score_request(sample_weight=True)
    for again in (clone(model), pickle.loads(pickle.dumps(model))):
        assert again.get_metadata_routing().fit.requests["agents"] == "site"
        assert again.get_metadata_routing().score.requests == {"sample_weight": True, "offset": None}
        assert len(cross_val_score(again, X, TARGETS, cv=2, params={"site": SITE})) == 2
    assert model.set_fit_request(agents=None).get_metadata_routing().fit.requests["agents"] is None
    assert FederatedRegressor().get_metadata_routing().fit.requests == {"agents": None, "sample_weight": None, "offset": None}


def test_what_was_not_asked_for_is_refused() -> None:
    from sklearn.exceptions import UnsetMetadataPassedError
    from sklearn.model_selection import cross_val_score

    with pytest.raises(UnsetMetadataPassedError, match="agents"):
        cross_val_score(FederatedRegressor(), X, TARGETS, cv=2, params={"agents": SITE}, error_score="raise")
    model = FederatedRegressor()
    with pytest.raises(ValueError, match="alias"):
        model.set_fit_request(agents="no name")
    assert model.get_metadata_routing().fit.requests["agents"] is None
    with sklearn.config_context(enable_metadata_routing=False), pytest.raises(RuntimeError, match="enable_metadata_routing"):
        model.set_fit_request(agents=True)
