"""Faults that people without knowledge of the package have found."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fedsa
import fedsa.federation
from fedsa import FederatedClassifier, FederatedRegressor, links, methods, problems
from fedsa.errors import FedsaWarning, InputError


def experiment(step: float = 0.1) -> fedsa.Experiment:
    return fedsa.Experiment(problems.Garnet(agents=3, states=6, features=2, seed=1), methods.FedLSA(step, 10), rounds=20)


def rows(n: int = 60) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(n, 2)) * [1.0, 30.0] + [3.0, -20.0]
    return x, x @ [0.5, 0.02] + 0.1 * rng.normal(size=n)


def test_results_that_were_read_can_be_saved_over_a_run(tmp_path: Path) -> None:
    a, b, c = (str(tmp_path / name) for name in "abc")
    experiment(0.1).run(out=a)
    ran = experiment(0.2).run(out=b)
    read = fedsa.open(b)
    with pytest.raises(InputError) as refused:
        read.save(a)
    assert "holds" in str(refused.value) and "another folder" in refused.value.help, refused.value
    read.save(a, overwrite=True)
    assert np.array_equal(fedsa.open(a).theta("fedlsa"), ran.theta("fedlsa"))
    assert (tmp_path / "a/figure.svg").read_bytes() == (tmp_path / "b/figure.svg").read_bytes()
    read.save(c)
    assert (tmp_path / "c/trace.parquet").read_bytes() == (tmp_path / "b/trace.parquet").read_bytes()


def test_files_of_others_are_kept(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("mine")
    experiment().run(out=str(tmp_path / "run"))
    with pytest.raises(InputError, match="not written by fedsa"):
        fedsa.open(tmp_path / "run").save(tmp_path, overwrite=True)
    assert (tmp_path / "config.toml").read_text() == "mine" and not (tmp_path / "summary.json").exists()


def test_weights_repeat_rows_in_standardisation_too() -> None:
    x, y = rows()
    k = np.arange(len(y)) % 4
    of = {"ridge": 0.1, "standardise": True}
    weighted = FederatedRegressor(**of).fit(x, y, sample_weight=k)
    repeated = FederatedRegressor(**of).fit(np.repeat(x, k, axis=0), np.repeat(y, k))
    assert np.abs(weighted.coef_ - repeated.coef_).max() < 1e-12 and abs(weighted.intercept_ - repeated.intercept_) < 1e-11


def test_scores_check_weights_as_fits_do() -> None:
    x, y = rows()
    classes = y > y.mean()
    for model, targets in [(FederatedRegressor().fit(x, y), y), (FederatedClassifier().fit(x, classes), classes)]:
        assert model.score(x, targets, sample_weight=2.0) == pytest.approx(model.score(x, targets))
        for weights in (np.full(60, np.nan), -np.ones(60), np.zeros(60), np.ones(59)):
            with pytest.raises(ValueError):
                model.score(x, targets, sample_weight=weights)


def test_small_targets_are_told() -> None:
    x, y = rows()
    with pytest.warns(FedsaWarning, match="the weights stay 0"):
        FederatedRegressor(ridge=0.0, tol=1e-9).fit(x, 1e-13 * y)


def test_dates_are_refused() -> None:
    polars, pandas, pyarrow = (pytest.importorskip(name) for name in ("polars", "pandas", "pyarrow"))
    x, y = rows()
    days = np.datetime64("2026-01-01") + np.arange(60)
    frames = [
        pandas.DataFrame({"a": x[:, 0], "when": pandas.to_datetime(days)}),
        pandas.DataFrame({"a": x[:, 0], "when": pandas.to_datetime(days).tz_localize("UTC")}),
        polars.DataFrame({"a": x[:, 0], "when": days}),
        pyarrow.table({"a": x[:, 0], "when": days}),
    ]
    for frame in frames:
        with pytest.raises(InputError, match="column `when`: it holds dates"):
            FederatedRegressor().fit(frame, y)


def test_a_list_of_one_agent_is_one_agent() -> None:
    x, y = rows()
    of = {"ridge": 0.1}
    for data in ([(x, y)], {"site": (x, y)}):
        ran = fedsa.Experiment(problems.LeastSquares(data, **of), methods.Newton(), sampling="mean", rounds=2).run()
        assert np.isfinite(ran.theta("newton")).all()


def test_experiments_of_texts_can_be_typed_back() -> None:
    text = experiment().to_toml()
    made = fedsa.Experiment.from_text(text, name="t.toml", base="/tmp", set={"run.rounds": 7})
    again = eval(repr(made), {"Experiment": fedsa.Experiment})
    assert again == made and repr(again) == repr(made)


def test_seeds_may_be_a_range() -> None:
    ran = fedsa.Experiment(problems.Garnet(agents=3, states=6, features=2), methods.FedLSA(0.1, 10), rounds=5, seeds=range(2, 5)).run()
    assert ran.theta("fedlsa").shape[0] == 3


def test_a_target_that_nothing_is_known_of_is_a_refusal() -> None:
    tuning = experiment().tune(target_mse=1e-30, methods=["fedlsa"], max_local_steps=2)
    assert not tuning and tuning.refusal is not None


def test_links_are_checked_where_they_are_made() -> None:
    for given, key in [({"codec": 3}, "codec"), ({"media": 3}, "media"), ({"media": [3]}, "media[0]"), ({"error_feedback": 3}, "error_feedback")]:
        with pytest.raises(InputError) as e:
            links.Uplink(**given)
        assert (e.value.code, e.value.key) == ("setting.wrong-type", key)
    with pytest.raises(InputError, match="did you mean 'exact'"):
        links.Downlink(codec="exat")
    for name in ("quantised", "top-k"):
        with pytest.raises(InputError, match="needs settings"):
            links.Uplink(codec=name)
    media = links.Uplink(media=[links.Erasure(0.5)]).media
    assert isinstance(media, tuple), "settings do not change"
    for base in (links.Codec, links.Medium, problems.Problem, methods.Method):
        with pytest.raises(TypeError, match="none itself"):
            base()
    assert links.Uplink(codec="float32", media=links.Erasure(0.5)) == links.Uplink(codec=links.Float32(), media=[links.Erasure(0.5)])
    with pytest.raises(InputError, match="uplink"):
        methods.FedLSA(0.1, 10, uplink=3)  # type: ignore[arg-type]


def test_problems_are_checked_where_they_are_made() -> None:
    for made, key in [
        (lambda: problems.Garnet(gamma=2.0), "gamma"),
        (lambda: problems.Garnet(agents=0), "agents"),
        (lambda: problems.Baird(agents=2, solid=2.0), "solid"),
        (lambda: problems.RandomLogistic(agents=2, dim=2, points=3, ridge=-1.0), "ridge"),
        (lambda: problems.Switching(agents=2, dim=2, values=[]), "values"),
        (lambda: problems.Switching(agents=2, dim=2, mixing_time=-1.0), "mixing_time"),
        (lambda: problems.Garnet(agents=2, noise={"std": -1.0}), "noise.std"),
        (lambda: problems.Linear([[[2.0]]], [[1.0]], noise=-1.0), "noise.std"),
        (lambda: problems.LeastSquares([rows(), rows()], ridge=-1.0), "ridge"),
        (lambda: problems.LeastSquares(rows(), holdout=2.0), "holdout"),
        (lambda: problems.Logs("x.csv", {"kind": "identity"}, gamma=0.9, lam=2.0), "lam"),
        (lambda: problems.Logs("x.csv", {"kind": "identity"}, gamma=0.9, holdout=2.0), "holdout"),
        (lambda: problems.Logs("x.csv", {"kind": "identity"}, gamma=0.9, max_importance_ratio=-1.0), "max_importance_ratio"),
    ]:
        with pytest.raises(InputError) as e:
            made()
        assert (e.value.code, e.value.key) == ("setting.out-of-range", key)


def test_what_is_no_name_of_a_file_is_said_so() -> None:
    for call, key in [
        (lambda: fedsa.report(3), "runs[0]"),  # type: ignore[arg-type]
        (lambda: fedsa.open(3), "folder"),  # type: ignore[arg-type]
        (lambda: fedsa.compare(3, 4), "a"),  # type: ignore[arg-type]
        (lambda: fedsa.Experiment.from_toml(3), "path"),  # type: ignore[arg-type]
        (lambda: experiment().run(out=3), "out"),  # type: ignore[arg-type]
        (lambda: fedsa.gym.read_minari(3), "path"),  # type: ignore[arg-type]
        (lambda: fedsa.open("a\0b"), "folder"),
        (lambda: fedsa.open("\ud800"), "folder"),
    ]:
        with pytest.raises(InputError) as e:
            call()
        assert (e.value.code, e.value.key) == ("setting.wrong-type", key)


def test_unknown_keywords_are_named() -> None:
    for call, name in [
        (lambda: fedsa.federation.Federation(agent=3), "agent"),  # type: ignore[call-arg]
        (lambda: fedsa.report(experiment(), tittle="x"), "tittle"),  # type: ignore[call-arg, arg-type]
        (lambda: fedsa.ValueFunction(gama=0.9), "gama"),  # type: ignore[call-arg]
    ]:
        with pytest.raises(TypeError, match=f"keyword argument '{name}'"):
            call()


def test_the_choice_of_a_tuning_is_the_first_of_its_table() -> None:
    # Many choices need one round, and differ in their samples.
    made = fedsa.Experiment(problems.Linear(np.eye(2)[None].repeat(2, 0), np.ones((2, 2))), methods.FedLSA(0.1, 10), rounds=50)
    tuning = made.tune(target_mse=1e-3)
    assert tuning.best is not None
    rows = tuning.summary().rows
    assert {"mse", "rounds", "bits", "samples"} <= set(tuning.summary().columns)
    first = rows[0]
    assert (first["family"], first["step size"], first["local steps"]) == tuple(tuning.best[k] for k in ("family", "step_size", "local_steps"))
    costs = [(row["bits"], row["samples"]) for row in rows]
    assert costs == sorted(costs)


def test_the_value_of_the_policy_is_a_stage() -> None:
    rng = np.random.default_rng(0)
    states = rng.random((40, 2))
    log = {"states": states, "rewards": rng.random(40), "next_states": np.vstack([states[1:], states[:1]]), "terminated": np.arange(40) % 10 == 9}
    stages: list[str] = []
    fedsa.ValueFunction(features="polynomial:1", gamma=0.9).fit([log], progress=lambda now: stages.append(now.stage))
    assert "estimating the policy's value" in stages
