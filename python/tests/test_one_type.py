"""One type for each task: settings have the same names, defaults and texts in the program, in Python and in files."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedsa
from fedsa import FederatedClassifier, FederatedRegressor, ValueFunction, _fedsa, links, methods, problems
from test_program import program

TASKS = [(FederatedClassifier, "fit"), (FederatedRegressor, "fit"), (ValueFunction, "evaluate")]

# Settings that Python calls otherwise, and a choice that classes of Python make.
KEYS, OF_PYTHON = {"lam": "lambda"}, {"model"}


def test_the_federation_module_is_imported_when_it_is_used() -> None:
    assert fedsa.federation.Federation.__name__ == "Federation"
    assert "federation" in dir(fedsa) and "federation" in fedsa.__all__


@pytest.mark.parametrize(("kind", "task"), TASKS)
def test_every_default_in_python_is_that_of_the_task(kind: Any, task: str) -> None:
    settings = json.loads(_fedsa.task_schema(task))["properties"]
    for name, parameter in inspect.signature(kind).parameters.items():
        if name not in OF_PYTHON:
            default, empty = settings[KEYS.get(name, name)].get("default"), ([], {})
            assert (parameter.default or None if default in empty else parameter.default) == (None if default in empty else default), name


@pytest.mark.parametrize(("kind", "task"), TASKS)
def test_every_text_in_python_is_that_of_the_task(kind: Any, task: str) -> None:
    settings = json.loads(_fedsa.task_schema(task))["properties"]
    document = " ".join(inspect.getdoc(kind).split())
    for name in inspect.signature(kind).parameters:
        if name not in OF_PYTHON:
            assert " ".join(settings[KEYS.get(name, name)]["description"].split()) in document, name


def test_the_intercept_has_no_ridge_in_the_program_and_in_python(tmp_path: Path) -> None:
    data = pytest.importorskip("sklearn.datasets").load_diabetes()
    x, y, ridge = data.data, data.target, 0.1
    header = ",".join([*(f"x{j}" for j in range(x.shape[1])), "target"])
    np.savetxt(tmp_path / "rows.csv", np.column_stack([x, y]), delimiter=",", header=header, comments="", fmt="%.17g")
    done = program("fit", "rows.csv", "--model", "least-squares", "--ridge", str(ridge), "--out", "out", cwd=tmp_path)
    assert done.returncode == 0 and "ridge 0.1" in done.stdout, done.stderr
    theirs = json.loads((tmp_path / "out" / "weights.json").read_text())
    ours = FederatedRegressor(ridge=ridge).fit(x, y)
    # The normal equations, with a ridge on all coefficients but the last.
    with_ones = np.column_stack([x, np.ones(len(y))])
    penalty = ridge * np.diag([1.0] * x.shape[1] + [0.0])
    exact = np.linalg.solve(with_ones.T @ with_ones / len(y) + penalty, with_ones.T @ y / len(y))
    assert theirs["intercept"] == ours.intercept_ == pytest.approx(exact[-1], rel=1e-9)
    np.testing.assert_allclose(ours.coef_, exact[:-1], rtol=1e-6)
    np.testing.assert_array_equal(ours.coef_, theirs["coefficients"])


def test_links_stand_in_set_and_in_sweeps() -> None:
    problem = problems.Garnet(agents=3, states=6, features=2)
    text = fedsa.Experiment(problem, methods.FedLSA(0.1, 2), rounds=5).to_toml()
    for uplink in (links.Quantised(4), links.Uplink(codec=links.Quantised(4)), {"codec": {"kind": "quantised", "bits": 4}}):
        changed = fedsa.Experiment.from_text(text, set={"method.fedlsa.uplink": uplink})
        assert changed.to_dict()["method"][0]["uplink"]["codec"]["kind"] == "quantised"
    with pytest.raises(fedsa.InputError, match="fedsa.links.Downlink or a codec"):
        fedsa.Experiment.from_text(text, set={"method.fedlsa.downlink": links.Erasure(0.5)})


def test_links_have_the_names_of_files() -> None:
    """What a method is given by keyword is what files have under the same key."""
    uplink = links.Uplink(codec=links.Quantised(4), media=[links.Erasure(0.9)], error_feedback=True, aggregation="median")
    method = methods.FedLSA(0.1, 2, uplink=uplink, downlink=links.Downlink(codec=links.Float32()))
    problem = problems.Garnet(agents=3, states=6, features=2)
    table = fedsa.Experiment(problem, method, rounds=5).to_dict()["method"][0]
    for key, settings in (("uplink", uplink), ("downlink", links.Downlink(codec="float32"))):
        assert {name: table[key][name] for name in settings._table()} == settings._table()
    schema = json.loads(_fedsa.schema_json())["$defs"]
    for spec, kind in (("UplinkSpec", links.Uplink), ("DownlinkSpec", links.Downlink)):
        assert set(schema[spec]["properties"]) == set(inspect.signature(kind).parameters)
