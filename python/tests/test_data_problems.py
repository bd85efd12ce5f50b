"""Problems on tables and arrays in memory: those of the same data in files."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedsa
from fedsa import methods, problems
from fedsa.federation import AgentData

FEATURES = {"kind": "fourier", "order": 2}


def logs() -> dict[str, dict[str, np.ndarray]]:
    """Transitions of three agents with walks of their own."""
    all = {}
    for c in range(3):
        rng = np.random.default_rng(c)
        states = rng.random((200 + 50 * c, 2))
        all[f"robot {c}"] = {
            "states": states,
            "next_states": np.clip(states + rng.normal(0.0, 0.1, states.shape), 0.0, 1.0),
            "rewards": states[:, 0] + c * states[:, 1],
            "terminated": rng.random(len(states)) < 0.1,
        }
    return all


def write_logs(folder: Path) -> list[str]:
    names = []
    for name, log in logs().items():
        columns = {"s_0": log["states"][:, 0], "s_1": log["states"][:, 1], "reward": log["rewards"], "done": log["terminated"]}
        columns |= {"next_0": log["next_states"][:, 0], "next_1": log["next_states"][:, 1]}
        lines = [",".join(columns), *(",".join(repr(float(x)) for x in row) for row in zip(*columns.values()))]
        names.append(str(folder / f"{name}.csv"))
        Path(names[-1]).write_text("\n".join(lines) + "\n")
    return names


def rows() -> list[tuple[np.ndarray, np.ndarray]]:
    """Rows of four agents, with two classes."""
    all = []
    for c in range(4):
        rng = np.random.default_rng(100 + c)
        x = rng.normal(size=(60 + c, 3))
        all.append((x, (x @ [1.0, -1.0, 0.5] + rng.normal(size=len(x)) > 0).astype(int)))
    return all


def write_rows(folder: Path) -> list[str]:
    names = []
    for c, (x, y) in enumerate(rows()):
        lines = ["a,b,c,target", *(",".join([*(repr(float(v)) for v in row), str(label)]) for row, label in zip(x, y))]
        names.append(str(folder / f"agent_{c}.csv"))
        Path(names[-1]).write_text("\n".join(lines) + "\n")
    return names


@pytest.mark.parametrize("sampling", ["mean", "iid", "markov"])
def test_transitions_in_memory_give_the_bits_of_files(tmp_path: Path, sampling: Any) -> None:
    files = problems.Logs(write_logs(tmp_path), FEATURES, gamma=0.9, lam=0.3 if sampling == "mean" else 0.0)
    memory = problems.Logs(logs(), FEATURES, gamma=0.9, lam=0.3 if sampling == "mean" else 0.0)
    method = methods.SCAFFLSA(0.1, 5)
    thetas = [fedsa.Experiment(problem, method, rounds=30, sampling=sampling).run().theta("scafflsa", seed=0) for problem in (files, memory)]
    assert np.array_equal(*thetas) and np.abs(thetas[0]).max() > 0.01


def test_rows_in_memory_give_the_bits_of_files(tmp_path: Path) -> None:
    for cls, more in [(problems.Logistic, {"ridge": 1e-3}), (problems.LeastSquares, {"intercept": True}), (problems.GLM, {"family": "poisson"})]:
        files = cls(write_rows(tmp_path), partition="files", **more)
        memory = cls(rows(), **more)
        newton = methods.named("newton")
        thetas = [fedsa.Experiment(problem, newton, rounds=20, sampling="mean").run().theta("newton", seed=0) for problem in (files, memory)]
        assert np.array_equal(*thetas) and np.abs(thetas[0]).max() > 0.01


def test_one_table_is_divided_among_agents() -> None:
    x = np.concatenate([x for x, _ in rows()])
    y = np.concatenate([y for _, y in rows()])
    problem = problems.Logistic((x, np.where(y > 0, "yes", "no")), agents=5, partition="shuffled")
    assert AgentData(problem, sampling="mean").agents == 5
    by_agent = problems.Logistic({"left": rows()[0], "right": rows()[1]}, weighting="rows")
    np.testing.assert_allclose(AgentData(by_agent, sampling="mean").weights, np.array([60, 61]) / 121)


def test_data_frames_and_sparse_rows_are_taken() -> None:
    polars, scipy = pytest.importorskip("polars"), pytest.importorskip("scipy.sparse")
    newton = methods.named("newton")

    def theta(parts: Any, **more: Any) -> np.ndarray:
        return fedsa.Experiment(problems.Logistic(parts, ridge=1e-3, **more), newton, rounds=20, sampling="mean").run().theta("newton", seed=0)

    dense = theta(rows())
    assert np.array_equal(dense, theta([(polars.DataFrame(x, schema=["a", "b", "c"]), y) for x, y in rows()]))
    np.testing.assert_allclose(theta([(scipy.csr_matrix(x), y) for x, y in rows()]), dense, rtol=1e-10)


def test_they_are_copied_compared_pickled_and_shown() -> None:
    data = logs()
    problem = problems.Logs(data, FEATURES, gamma=0.9)
    assert repr(problem) == "Logs(<data of 3 agents>, features={'kind': 'fourier', 'order': 2}, gamma=0.9)"
    again = pickle.loads(pickle.dumps(problem))
    other = problems.Logs({**data, "robot 0": data["robot 1"]}, FEATURES, gamma=0.9)
    assert again == problem == copy.deepcopy(problem) and problem != other and problem != problem.replace(gamma=0.8)
    experiment = fedsa.Experiment(problem, methods.FedLSA(0.1, 5), rounds=10)
    before = experiment.run().theta("fedlsa")
    # The engine has a copy.
    data["robot 0"]["rewards"][:] = 1e6
    assert np.array_equal(before, experiment.run().theta("fedlsa"))
    assert np.array_equal(before, pickle.loads(pickle.dumps(experiment)).run().theta("fedlsa"))
    assert 'kind = "logs-in-memory"' in experiment.to_toml() and "in memory: " in experiment.to_toml()


def test_runs_in_folders_are_read_and_go_on(tmp_path: Path) -> None:
    experiment = fedsa.Experiment(problems.Logistic(rows(), ridge=1e-3), methods.named("newton"), rounds=10, sampling="mean")
    ran = experiment.run(out=tmp_path / "run")
    assert np.array_equal(fedsa.open(tmp_path / "run").theta("newton"), ran.theta("newton"))
    assert np.array_equal(experiment.run(out=tmp_path / "run", resume=True).theta("newton"), ran.theta("newton"))
    swept = experiment.sweep({"problem.ridge": [1e-3, 1e-1]}).run()
    assert len(swept.labels) == 2
    with pytest.raises(fedsa.InputError, match="the data of a problem .logistic-in-memory. are in the memory of Python"):
        fedsa.Experiment.from_toml(tmp_path / "run" / "config.toml").run()


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: problems.Logistic([]), fedsa.InputError, "no agents|needs"),
        (lambda: problems.Logistic([rows()[0], 3]), fedsa.InputError, r"data\[1\]: an object of the type int"),
        (lambda: problems.Logistic((np.ones((3, 2)), [0, 1])), fedsa.InputError, "3 rows of X, and 2"),
        (lambda: problems.Logistic([(np.array([[1.0], [np.nan]]), [0, 1])]), fedsa.InputError, "NaN"),
        (lambda: problems.Logistic(rows(), target="y"), fedsa.InputError, "setting of files"),
        (lambda: AgentData(problems.Logistic(rows(), ridge=-1.0)), fedsa.InputError, "ridge"),
        (lambda: problems.LeastSquares(3.0), fedsa.InputError, "an object of the type float"),
        (lambda: problems.Logs({}, FEATURES, gamma=0.9), fedsa.InputError, "no agents"),
        (lambda: problems.Logs([object()], FEATURES, gamma=0.9), fedsa.InputError, "type object"),
        (lambda: AgentData(problems.Logs(logs(), FEATURES, gamma=1.5)), fedsa.InputError, "gamma"),
        (lambda: problems.Logs(logs(), {"kind": "fourrier"}, gamma=0.9), fedsa.InputError, "fourier"),
    ],
)
def test_what_is_no_data_is_refused(make: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        make()


def test_what_the_engine_refuses_names_the_agent() -> None:
    data = logs()
    del data["robot 1"]["rewards"]
    experiment = fedsa.Experiment(problems.Logs(data, FEATURES, gamma=0.9), methods.FedLSA(0.1, 5), rounds=10)
    with pytest.raises(fedsa.InputError, match="robot 1.*reward"):
        experiment.run()
