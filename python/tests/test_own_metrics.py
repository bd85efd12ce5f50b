"""Metrics of one's own, and recorded iterates."""

from __future__ import annotations

import pickle
import re
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedsa
from fedsa import methods, operators, problems


def small(**more: Any) -> fedsa.Experiment:
    problem = problems.Garnet(agents=5, states=10, features=3, seed=1)
    both = [methods.FedLSA(0.1, 10), methods.SCAFFLSA(0.1, 10)]
    return fedsa.Experiment(problem, both, **{"rounds": 40, "seeds": [4, 2], "record": {"every": 10}, **more})


class Points:
    """An operator of Python: points whose mean is looked for."""

    agents, dim = 3, 2

    def sample(self, theta: Any, state: None, rng: operators.Draws) -> Any:
        return rng.agents[:, None] - theta + rng.normal(2)


def own(rounds: int = 20, **more: Any) -> fedsa.Experiment:
    return fedsa.Experiment(problems.Custom(Points()), methods.FedLSA(0.1, 10), rounds=rounds, **more)


def norm(theta: Any) -> float:
    return float(theta @ theta)


def columns(results: fedsa.Results, *but: str) -> dict[str, list[Any]]:
    trace = results.trace()
    return {name: [x if x == x else None for x in trace[name].tolist()] for name in trace.columns if name not in but}


def test_metrics_are_columns_beside_those_of_fedsa_whose_bits_stay() -> None:
    plain, measured = small().run(), small().run(metrics={"norm": norm, "first": lambda theta: theta[0]}, iterates=True)
    assert columns(measured, "norm", "first") == columns(plain)
    assert measured.trace().columns[-2:] == ["norm", "first"]
    assert len(measured.trace()["norm"]) == 2 * 2 * 5
    for label in measured.labels:
        theta = measured.iterates(label)
        assert theta.shape == (2, 5, 3) and measured.rounds(label).tolist() == [0, 10, 20, 30, 40]
        assert (theta[:, -1] == measured.theta(label)).all() and (theta[:, 0] == 0.0).all()
        assert (measured.iterates(label, seed=2) == theta[1]).all()
        trace = measured.trace()
        assert trace["norm"][trace["method"] == label].tolist() == [norm(one) for one in theta.reshape(-1, 3)]


def test_a_metric_gets_theta_of_its_own_as_an_array() -> None:
    seen: list[Any] = []

    def changes(theta: Any) -> int:
        seen.append((theta.dtype, theta.shape))
        theta[:] = np.nan
        return 1

    results = own().run(metrics={"changes": changes, "norm": norm})
    assert set(seen) == {(np.dtype(np.float64), (2,))} and len(seen) == 21
    assert np.isfinite(results.trace()["norm"]).all() and set(results.trace()["changes"]) == {1.0}


@pytest.mark.parametrize("value", [1.5, 2, np.float32(1.5), np.int64(2), np.array(1.5), np.nan, -np.inf])
def test_numbers_are_values(value: Any) -> None:
    trace = own(2).run(metrics={"m": lambda theta: value}).trace()
    expected = float(value) if np.isfinite(value) else np.nan
    np.testing.assert_array_equal(trace["m"], [expected] * 3)


@pytest.mark.parametrize("value", ["1", None, True, np.ones(1), [1.0], 1j])
def test_other_values_are_refused_with_their_place(value: Any) -> None:
    with pytest.raises(fedsa.InputError, match="a function of theta that returns a float") as refused:
        own(2).run(metrics={"m": lambda theta: value})
    assert refused.value.key == "metrics['m']" and refused.value.code == "setting.wrong-type"
    assert notes(refused.value) == ["in the metric 'm' of fedlsa, seed 0, round 0"]


@pytest.mark.parametrize("name", ["mse", "round", "bits_up", "method", "seed", "seconds", "step_size", "", 3])
def test_names_that_cannot_be_columns_are_refused(name: Any) -> None:
    experiment = small().sweep({"method.fedlsa.step_size": [0.05, 0.1]})
    with pytest.raises(fedsa.InputError) as refused:
        experiment.run(metrics={name: norm})
    assert refused.value.key.startswith("metrics") and refused.value.code == "setting.bad-value"


@pytest.mark.parametrize("metrics", [norm, {"norm": 3.0}, ["norm"]])
def test_what_is_no_dictionary_of_functions_is_refused(metrics: Any) -> None:
    with pytest.raises(fedsa.InputError) as refused:
        own().run(metrics=metrics)
    assert refused.value.code == "setting.wrong-type"


@pytest.mark.parametrize("experiment", [small(), own(40, seeds=2, record={"every": 10})])
def test_the_exception_of_a_metric_comes_through_with_its_place(experiment: fedsa.Experiment) -> None:
    calls = []

    def breaks(theta: Any) -> float:
        calls.append(theta)
        if len(calls) == 4:
            raise ZeroDivisionError("here")
        return 0.0

    with pytest.raises(ZeroDivisionError, match="here") as raised:
        experiment.run(metrics={"breaks": breaks})
    (note,) = notes(raised.value)
    assert note.startswith("in the metric 'breaks' of ") and ", seed " in note and ", round " in note
    # Nothing is called after the exception.
    assert len(calls) == 4
    assert "breaks" not in experiment.run().trace().columns


def notes(e: BaseException) -> list[str]:
    return list(getattr(e, "__notes__", []))


@pytest.mark.parametrize("outer", [small, own])
def test_a_metric_may_use_the_package(outer: Any) -> None:
    inner, threads = small(), set()

    def floor(theta: Any) -> float:
        threads.add(threading.get_ident())
        # Calls with and without metrics, theory, and figures.
        results = inner.run(metrics={"norm": norm})
        assert results.plot(y="norm").svg and inner.theory().limits("fedlsa")
        return results.floor("fedlsa").mean + norm(theta)

    with pytest.warns(fedsa.FedsaWarning):
        results = outer(rounds=4, record={"every": 2}).run(metrics={"floor": floor}, progress=lambda now: None)
    assert np.isfinite(results.trace()["floor"]).all() and threads == {threading.get_ident()}


def test_runs_with_metrics_go_on_in_several_threads_at_once() -> None:
    expected = small().run(metrics={"norm": norm}).trace()["norm"].tolist()
    found: list[Any] = []

    def run() -> None:
        found.append(small().run(metrics={"norm": lambda theta: norm(small(rounds=2).run().theta("fedlsa", seed=2)) * 0 + norm(theta)}).trace()["norm"].tolist())

    workers = [threading.Thread(target=run) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert found == [expected] * 4


def test_points_and_shared_cells_have_their_metrics() -> None:
    results = small(seeds=1).sweep({"method.fedlsa.step_size": [0.05, 0.1]}).run(metrics={"norm": norm}, iterates=True)
    assert results.labels[0] == "fedlsa [step_size=0.05]"
    trace = results.trace()
    for label in results.labels:
        method, _, point = label.removesuffix("]").partition(" [")
        is_of = (trace["method"] == method) & (trace["point"] == point)
        assert trace["norm"][is_of].tolist() == [norm(theta) for theta in results.iterates(label)[0]]


def test_seeds_that_end_early_have_no_iterates_afterwards() -> None:
    experiment = small(rounds=400, stop={"mse": 30.0}, record={"every": 1})
    results = experiment.run(iterates=True)
    trace = results.trace()
    ends = [int(trace["round"][(trace["method"] == "fedlsa") & (trace["seed"] == seed)].max()) for seed in (4, 2)]
    assert ends[0] != ends[1] and max(ends) < 400
    theta = results.iterates("fedlsa")
    assert theta.shape[1] == max(ends) + 1 == len(results.rounds("fedlsa"))
    for one, end, final in zip(theta, ends, results.theta("fedlsa")):
        assert (one[end] == final).all() and np.isnan(one[end + 1 :]).all() and np.isfinite(one[: end + 1]).all()


def test_iterates_that_were_not_kept_say_how_they_are() -> None:
    results = small().run(metrics={"norm": norm})
    with pytest.raises(fedsa.NotAvailable, match=r"iterates=True"):
        results.iterates("fedlsa")
    with pytest.raises(KeyError, match="fedlsa"):
        small().run(iterates=True).iterates("fedls")


def test_figures_show_them() -> None:
    results = small().run(metrics={"minus norm": lambda theta: -norm(theta)})
    svg = results.plot(y="minus norm", x="bits_up").svg
    assert "minus norm" in svg
    assert svg != results.plot(y="minus norm", x="bits_up", methods=["fedlsa"]).svg
    assert results.plot(y=["mse", "minus norm"], y_log=False).svg != svg
    assert results.plot(kind="table", y="minus norm").svg
    with pytest.raises(fedsa.InputError, match="minus norm"):
        results.plot(y="plus norm")
    with pytest.raises(fedsa.InputError):
        small().run().plot(y="minus norm")


@pytest.mark.parametrize("kept", [lambda results, folder: pickle.loads(pickle.dumps(results)), lambda results, folder: (results.save(folder), fedsa.open(folder))[1]])
def test_saved_results_have_them(kept: Any, tmp_path: Path) -> None:
    results = small().run(metrics={"norm": norm}, iterates=True)
    again = kept(results, tmp_path / "run")
    assert columns(again) == columns(results)
    np.testing.assert_array_equal(again.iterates("scafflsa"), results.iterates("scafflsa"))
    # Metadata of a figure that is drawn again has the changed keys.
    svgs = [re.sub(r"<f:config.*?</f:config>", "", one.plot(y="norm").svg, flags=re.DOTALL) for one in (again, results)]
    assert svgs[0] == svgs[1] and "norm" in svgs[0]
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    again.save(tmp_path / "again")
    assert pandas.read_parquet(tmp_path / "again/trace.parquet")["norm"].tolist() == results.trace()["norm"].tolist()


@pytest.mark.parametrize("experiment", [small(rounds=400), own(400, seeds=2, record={"every": 10})])
def test_an_interrupted_run_goes_on_with_its_metrics(experiment: fedsa.Experiment, tmp_path: Path) -> None:
    whole = experiment.run(metrics={"norm": norm}, iterates=True)
    token, calls = fedsa.CancelToken(), []

    def counted(theta: Any) -> float:
        calls.append(0)
        if len(calls) == 60:
            token.cancel()
        return norm(theta)

    with pytest.raises(fedsa.Cancelled):
        experiment.run(out=tmp_path / "run", metrics={"norm": counted}, cancel=token)
    results = experiment.run(out=tmp_path / "run", resume=True, metrics={"norm": norm}, iterates=True)
    assert columns(results) == columns(whole) == columns(fedsa.open(tmp_path / "run"))
    for label in whole.labels:
        np.testing.assert_array_equal(results.iterates(label), whole.iterates(label))


def test_a_run_without_iterates_is_repeated_for_metrics(tmp_path: Path) -> None:
    small().run(out=tmp_path / "run")
    results = small().run(out=tmp_path / "run", resume=True, metrics={"norm": norm})
    assert columns(results) == columns(small().run(metrics={"norm": norm}))
    # And the other way round.
    small().run(out=tmp_path / "measured", metrics={"norm": norm})
    assert columns(small().run(out=tmp_path / "measured", resume=True)) == columns(small().run())
