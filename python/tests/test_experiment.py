"""Experiments as objects: made, run, shown, compared, pickled."""

from __future__ import annotations

import copy
import pickle
import time
from pathlib import Path

import numpy as np
import pytest

import fedsa
from fedsa import federation, links, methods, problems


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
    link = links.Uplink(codec=links.Quantised(4), media=[links.Erasure(0.9)])
    method = methods.named("fib-shed", label="x", uplink=link)
    assert copied(method) == method
    assert repr(copied(method)) == repr(method)
    results = experiment.run()
    # A copy says when the run ended, not when it was copied.
    ended = time.time() // 1
    while time.time() // 1 == ended:
        time.sleep(0.01)
    again = copied(results)
    assert again.summary_dict() == results.summary_dict()
    np.testing.assert_array_equal(again.theta("fedlsa"), results.theta("fedlsa"))
    assert again.plot().svg == results.plot().svg


def test_a_text_of_an_experiment_is_the_same_experiment() -> None:
    one = small()
    assert fedsa.Experiment.from_text(one.to_toml()) == one
    other = fedsa.Experiment.from_text(one.to_toml(), name="other.toml")
    assert other.id == one.id and fedsa.Experiment.from_text(other.to_toml()).id == one.id


def test_an_error_that_still_falls_has_no_floor_in_the_summary() -> None:
    garnet = problems.Garnet(agents=3, states=10, features=3, seed=1)
    falling = fedsa.Experiment(garnet, methods.FedLSA(0.01, 10), rounds=200, seeds=3).run(progress=False)
    settled = fedsa.Experiment(garnet, methods.FedLSA(0.3, 10), rounds=3000, seeds=3).run(progress=False)
    (row,) = falling.summary().rows
    assert row["no floor yet"].startswith("falls by ") and "no floor yet" in str(falling.summary())
    assert "no floor yet" not in settled.summary().columns and settled.floor("fedlsa").mean > 0.0


def test_a_damaged_file_of_a_run_is_named(tmp_path: Path) -> None:
    small().run(out=tmp_path / "run")
    for name, read in (("trace.parquet", lambda: fedsa.open(tmp_path / "run").trace()), ("theta.npz", lambda: fedsa.open(tmp_path / "run").theta("fedlsa"))):
        whole = (tmp_path / "run" / name).read_bytes()
        (tmp_path / "run" / name).write_bytes(whole[: len(whole) // 2])
        with pytest.raises(fedsa.InputError, match=name) as refused:
            read()
        assert refused.value.file == str(tmp_path / "run" / name)


def test_what_is_not_pickled_says_what_to_do() -> None:
    data = federation.AgentData(problems.Garnet(agents=2, states=5, features=2))
    shared = federation.Federation(methods.FedLSA(0.1, 2), weights=data.weights, dim=data.dim)
    for one, words in ((small().theory(), "pickle the experiment"), (federation.ServerNode(shared), r"save\(\)"), (federation.ClientNode(shared, data, 0), r"save\(\)")):
        with pytest.raises(TypeError, match=words):
            pickle.dumps(one)


def test_a_text_of_a_problem_in_memory_says_that_its_data_are_not_there() -> None:
    linear = fedsa.Experiment(problems.Linear(np.eye(2)[None], np.ones((1, 2))), methods.FedLSA(0.1, 2), rounds=2)
    with pytest.raises(fedsa.InputError, match="in the memory of Python, and not in this text") as refused:
        fedsa.Experiment.from_text(linear.to_toml())
    assert refused.value.key == "problem.kind" and refused.value.line is not None


def test_a_curve_that_has_hardly_begun_to_fall_has_no_floor() -> None:
    garnet = problems.Garnet(agents=3, states=10, features=3, seed=1)
    results = fedsa.Experiment(garnet, methods.FedLSA(0.001, 1), rounds=200, seeds=3).run(progress=False)
    (row,) = results.summary().rows
    assert row["no floor yet"].startswith("falls by ") and row.get("floor") is None
    with pytest.warns(fedsa.FedsaWarning, match="still falls") as warned:
        results.floor("fedlsa")
    assert warned[0].message.code == "floor.falls"


def test_a_seed_is_named_by_its_number() -> None:
    results = small(seeds=[7, 3]).run(progress=False)
    both = results.theta("fedlsa")
    np.testing.assert_array_equal(results.theta("fedlsa", seed=7), both[0])
    np.testing.assert_array_equal(results.theta("fedlsa", seed=3), both[1])
    with pytest.raises(KeyError, match="fedlsa has no seed 0; its seeds are 7, 3"):
        results.theta("fedlsa", seed=0)
