"""Experiments as objects: made, run, shown, compared, pickled."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import fedsa
from fedsa import links, methods, problems


def small(**more: object) -> fedsa.Experiment:
    problem = problems.Garnet(agents=5, states=10, features=3, heterogeneity="independent", seed=1)
    both = [methods.FedLSA(0.1, 10), methods.SCAFFLSA(0.1, 10)]
    return fedsa.Experiment(problem, both, **{"rounds": 100, "seeds": 2, **more})


def test_results_are_found_by_labels() -> None:
    results = small().run()
    assert results.labels == ["fedlsa", "scafflsa"]
    assert results.outcomes["fedlsa"].name == "completed"
    assert results.theta("fedlsa").shape == (2, 3)
    assert results.theta("fedlsa", seed=1).shape == (3,)
    assert results.floor("scafflsa").mean < results.floor("fedlsa").mean
    assert len(results.trace()) == 2 * 2 * 101


def test_an_experiment_is_shown_as_it_can_be_typed() -> None:
    experiment = small(sampling="markov", start=np.zeros(3), stop={"mse": 1e-6})
    names = {"Experiment": fedsa.Experiment, **vars(problems), **vars(methods), **vars(links)}
    again = eval(repr(experiment), names)
    assert again == experiment
    assert repr(again) == repr(experiment)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_what_is_copied_is_equal(copied: object) -> None:
    assert callable(copied)
    experiment = small()
    assert copied(experiment) == experiment
    link = links.Link(up=links.Quantised(4), media=[links.Erasure(0.9)])
    method = methods.named("fib-shed", label="x", link=link)
    assert copied(method) == method
    assert repr(copied(method)) == repr(method)
    results = experiment.run()
    again = copied(results)
    assert again.summary_dict() == results.summary_dict()
    np.testing.assert_array_equal(again.theta("fedlsa"), results.theta("fedlsa"))
    assert again.plot().svg == results.plot().svg
