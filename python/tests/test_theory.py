"""Theory, tuning and checks: the numbers of the program, and each with how it is known."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from test_program import program

import fedsa
from fedsa import methods, problems

PROBLEM = problems.Garnet(agents=3, states=6, features=2, heterogeneity="independent", seed=1)


def experiment(**more: object) -> fedsa.Experiment:
    both = [methods.FedLSA(0.1, 10), methods.SCAFFLSA(0.1, 10)]
    return fedsa.Experiment(**{"problem": PROBLEM, "methods": both, "rounds": 100, "seeds": 2, "id": "both", **more})


def written(folder: Path, of: fedsa.Experiment) -> str:
    (folder / "both.toml").write_text(of.to_toml())
    return "both.toml"


def test_theory_has_the_numbers_of_the_program(tmp_path: Path) -> None:
    ours = experiment().theory(target_mse=0.2, full=True)
    ran = program("theory", written(tmp_path, experiment()), "--json", "--target-mse", "0.2", cwd=tmp_path)
    theirs = json.loads(ran.stdout)
    assert [ours.quantities(label) for label in ours.labels] == theirs["methods"]
    assert ours.problems == theirs["problems"]
    page = program("theory", "both.toml", "--target-mse", "0.2", cwd=tmp_path).stdout.strip()
    brief = str(experiment().theory(target_mse=0.2))
    assert brief.replace("full=True", "--full") == page


def test_numbers_say_how_they_are_known() -> None:
    theory = experiment(stop=None).theory(target_mse=0.2)
    limits = theory.limits("fedlsa")
    assert isinstance(limits, fedsa.Limits) and limits.accuracy.status == "exact" and limits.mixing is None
    assert limits.samples is not None and math.isclose(limits.floor, limits.bias + limits.samples, rel_tol=1e-9)
    stable = theory.stable_step("fedlsa")
    assert isinstance(stable, fedsa.StableStep) and stable.step > 0.1
    target = theory.target("scafflsa")
    assert isinstance(target, fedsa.Target) and target.reached and target.rounds
    assert any("half the step" in change.change for change in theory.changes("fedlsa"))
    markov = experiment(sampling="markov").theory().limits("fedlsa")
    assert isinstance(markov, fedsa.Limits) and markov.mixing is not None and markov.floor > limits.floor
    second = fedsa.Experiment(problems.Quadratic(agents=3, dim=2), methods.Newton(), rounds=5, sampling="mean").theory()
    unknown = second.limits("newton")
    assert isinstance(unknown, fedsa.Unknown) and not unknown and unknown.text
    with pytest.raises(KeyError, match="did you mean"):
        theory.limits("fedls")
    with pytest.raises(fedsa.FedsaError):
        experiment().theory().target("fedlsa")


def test_curves_are_what_runs_measure() -> None:
    long = experiment(methods=methods.FedLSA(0.1, 10), seeds=400, rounds=60, record={"every": 20})
    curve = long.theory().curve("fedlsa")
    trace = long.run().trace()
    np.testing.assert_array_equal(curve.rounds, [0, 20, 40, 60])
    np.testing.assert_allclose(curve.mse, curve.bias + curve.noise, rtol=1e-12)
    for t, mse in zip(curve.rounds[1:], curve.mse[1:]):
        seen = trace["mse"][trace["round"] == t]
        assert abs(seen.mean() - mse) < 4.0 * seen.std(ddof=1) / math.sqrt(len(seen))


def test_figures_of_theory() -> None:
    theory = experiment().theory()
    assert "<svg" in theory.plot().svg
    assert "floor" in theory.summary().to_csv()
    with pytest.raises(fedsa.InputError):
        theory.plot("nothing")


@pytest.mark.slow
def test_the_map_of_stable_steps() -> None:
    assert experiment().theory().plot("stability").render("png").startswith(b"\x89PNG")


def test_tuning_has_the_answer_of_the_program(tmp_path: Path) -> None:
    ours = experiment().tune(target_mse=0.2, max_local_steps=20)
    arguments = ("--target-mse", "0.2", "--max-local-steps", "20", "--json", "--out", "tuned")
    theirs = json.loads(program("tune", written(tmp_path, experiment()), *arguments, cwd=tmp_path).stdout)
    assert ours.to_dict() == theirs
    assert ours and ours.best is not None and ours.best["mse"] <= 0.2 and ours.evidence is not None
    assert ours.experiment is not None and ours.experiment.check()
    ours.save(tmp_path / "saved")
    assert (tmp_path / "saved/tuned.toml").read_text() == (tmp_path / "tuned/tuned.toml").read_text()
    assert ours.plot().svg == (tmp_path / "tuned/frontier.svg").read_text()


def test_a_target_that_nothing_reaches_is_an_answer() -> None:
    tuning = experiment().tune(target_mse=1e-13, budget="2s", time_limit="1m", max_rounds=50)
    assert not tuning and tuning.best is None and tuning.experiment is None
    assert tuning.refusal is not None and tuning.refusal.code == "setting.target-not-reached" and tuning.refusal.help
    with pytest.raises(fedsa.FedsaError):
        tuning.plot()


def test_a_check_says_what_a_run_comes_to(tmp_path: Path) -> None:
    check = experiment().check()
    assert check.accepted and check.runs == 4 and check.stable == {"fedlsa": True, "scafflsa": True}
    theirs = json.loads(program("check", written(tmp_path, experiment()), "--json", cwd=tmp_path).stdout)
    left = ("seconds", "points", "bytes")
    assert {k: v for k, v in check.to_dict().items() if k not in left} == {k: v for k, v in theirs.items() if k not in left}
    unstable = experiment(methods=methods.FedLSA(1e4, 10)).check()
    assert not unstable and isinstance(unstable.refusal, fedsa.InputError)


def test_a_curve_that_is_not_computed_is_not_known() -> None:
    theory = experiment(sampling="markov", rounds=100_000_000).theory()
    with pytest.raises(fedsa.NotAvailable, match="takes too long"):
        theory.curve("fedlsa")
