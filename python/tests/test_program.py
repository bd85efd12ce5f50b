"""The numbers of the package are those of the program, bit for bit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from needs import lacking

import fedsa

# Four of them by default: messages that are lost, no noise, and second order on data.
USUAL = ["channels/fig4-4", "fedhsa/fig2-noiseless", "shed/fig2-2", "shed/superlinear"]


def program(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "fedsa", *arguments], cwd=cwd, capture_output=True, text=True)


def said(results: fedsa.Results) -> dict[str, object]:
    """All numbers, without times."""
    numbers = {k: v for k, v in results.summary_dict().items() if k not in ("seconds", "provenance")}
    numbers["results"] = [{k: v for k, v in entry.items() if k != "seconds"} for entry in numbers["results"]]
    return numbers


@pytest.mark.parametrize("id", [pytest.param(id, marks=() if id in USUAL else pytest.mark.slow) for id in fedsa.bundled()])
def test_bundled_experiments_have_the_same_numbers(id: str, tmp_path: Path) -> None:
    try:
        results = fedsa.Experiment.bundled(id).run(quick=True)
    except fedsa.InputError as e:
        # Data that are not in the repository.
        assert e.code == "data.no-file" and "FEDSA_DATA" not in os.environ, e
        lacking(str(e))
    ran = program("reproduce", id, "--quick", "--out", "out", "--quiet", cwd=tmp_path)
    assert ran.returncode in (0, 1) and "Traceback" not in ran.stderr, ran.stderr
    (folder,) = [path.parent for path in tmp_path.rglob("summary.json")]
    written = fedsa.open(folder)
    for name, array in written.arrays().items():
        np.testing.assert_array_equal(results.arrays()[name], array)
    ours, theirs = results.trace(), written.trace()
    assert ours.columns == theirs.columns
    for name in ours.columns:
        np.testing.assert_array_equal(ours[name], theirs[name])
    assert written.plot().svg == results.plot().svg
    assert said(written) == said(results)


def test_the_program_is_there(tmp_path: Path) -> None:
    assert program("--version", cwd=tmp_path).stdout.startswith("fedsa ")
    refused = program("run", "nothing.toml", cwd=tmp_path)
    assert refused.returncode == 2 and "nothing.toml" in refused.stderr
    assert program("run", cwd=tmp_path).returncode == 2


def test_a_folder_of_the_package_is_one_of_the_program(tmp_path: Path) -> None:
    problem = fedsa.problems.Garnet(agents=5, states=10, features=3, seed=1)
    both = [fedsa.methods.FedLSA(0.1, 10, label="FedLSA"), fedsa.methods.SCAFFLSA(0.1, 10, label="SCAFFLSA")]
    experiment = fedsa.Experiment(problem, both, rounds=50, seeds=2)
    results = experiment.run(out=tmp_path / "run")
    again = program("plot", "run", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert said(fedsa.open(tmp_path / "run")) == said(results)
    with pytest.raises(fedsa.InputError):
        experiment.run(out=tmp_path / "run")
    resumed = experiment.run(out=tmp_path / "run", resume=True)
    np.testing.assert_array_equal(resumed.theta("SCAFFLSA"), results.theta("SCAFFLSA"))
    results.save(tmp_path / "saved")
    assert said(fedsa.open(tmp_path / "saved")) == said(results)
    comparison = fedsa.compare(tmp_path / "run", results)
    assert comparison.settings == [] and len(comparison.results) == 2
    config = (tmp_path / "run/config.toml").read_text()
    rerun = fedsa.Experiment.from_text(config).run()
    np.testing.assert_array_equal(rerun.theta("SCAFFLSA"), results.theta("SCAFFLSA"))
