"""Regression and classification: the same solution as scikit-learn's, the same bits as the program's, and scikit-learn's manners."""

from __future__ import annotations

import copy
import datetime
import json
import pickle
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from needs import needs

import fedsa
from fedsa import FederatedClassifier, FederatedRegressor

sklearn = needs("sklearn")


def rows(n: int = 240, d: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, linear predictors with noise, and weights."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d)) * [1.0, 2.0, 0.5, 1.0][:d]
    return x, x @ np.array([1.0, -0.5, 2.0, 0.0])[:d] + 0.7 + rng.normal(size=n), rng.integers(0, 4, n).astype(float)


def program(*args: str) -> None:
    done = subprocess.run([sys.executable, "-m", "fedsa", *args], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def write_csv(path: Path, names: list[str], *columns: np.ndarray) -> None:
    lines = [",".join(names), *(",".join(repr(float(x)) for x in line) for line in zip(*columns))]
    path.write_text("\n".join(lines) + "\n")


# Rows that count twice are compared with rows that are there twice to seven digits, more than the default `tol` leaves to classes.
@pytest.mark.parametrize("estimator", [FederatedClassifier(tol=1e-12), FederatedRegressor()], ids=lambda e: type(e).__name__)
def test_checks_of_scikit_learn_pass(estimator: Any) -> None:
    from sklearn.utils.estimator_checks import check_estimator

    results = check_estimator(estimator, on_fail=None, on_skip=None)
    failed = [f"{one['check_name']}: {one['exception']!r}" for one in results if one["status"] == "failed"]
    assert not failed, "\n".join(failed)
    assert len(results) > 50


def test_two_classes_are_those_of_scikit_learn() -> None:
    from sklearn.linear_model import LogisticRegression

    x, score, weights = rows()
    y, ridge = score > 0, 1e-3
    for w in (None, weights):
        total = len(y) if w is None else w.sum()
        theirs = LogisticRegression(C=1 / (ridge * total), tol=1e-12, max_iter=10_000, solver="newton-cholesky").fit(x, y, sample_weight=w)
        ours = FederatedClassifier(ridge=ridge, tol=1e-12).fit(x, y, sample_weight=w)
        np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=0, atol=1e-8)
        np.testing.assert_allclose(ours.intercept_, theirs.intercept_, rtol=0, atol=1e-8)
        np.testing.assert_allclose(ours.predict_proba(x), theirs.predict_proba(x), rtol=0, atol=1e-8)
        assert ours.score(x, y) == theirs.score(x, y)


def test_several_classes_are_those_of_scikit_learn_without_a_penalty() -> None:
    from sklearn.linear_model import LogisticRegression

    x, score, _ = rows()
    y = np.digitize(score, [-1.0, 1.5])
    theirs = LogisticRegression(C=np.inf, tol=1e-12, max_iter=10_000, solver="newton-cholesky").fit(x, y)
    ours = FederatedClassifier(ridge=0.0, tol=1e-12).fit(x, y)
    # Theirs sum to 0 over classes, ours are differences from the first one.
    np.testing.assert_allclose(ours.coef_, theirs.coef_ - theirs.coef_[0], rtol=0, atol=1e-7)
    np.testing.assert_allclose(ours.predict_proba(x), theirs.predict_proba(x), rtol=0, atol=1e-8)
    assert ours.decision_function(x).shape == (len(y), 3)


def test_regressions_are_those_of_scikit_learn() -> None:
    from sklearn.linear_model import GammaRegressor, PoissonRegressor, Ridge

    x, score, weights = rows()
    n, ridge = len(x), 1e-3
    counts = np.random.default_rng(1).poisson(np.exp(0.3 * score)).astype(float)
    for w in (None, weights):
        total = n if w is None else w.sum()
        ours = FederatedRegressor(ridge=ridge, tol=1e-12).fit(x, score, sample_weight=w)
        theirs = Ridge(alpha=ridge * total, solver="cholesky").fit(x, score, sample_weight=w)
        np.testing.assert_allclose(np.r_[ours.coef_, ours.intercept_], np.r_[theirs.coef_, theirs.intercept_], rtol=0, atol=1e-8)
        assert abs(ours.score(x, score, w) - theirs.score(x, score, w)) < 1e-8
    for model, other, y in (("poisson", PoissonRegressor, counts), ("gamma", GammaRegressor, np.exp(score))):
        ours = FederatedRegressor(model=model, ridge=ridge, tol=1e-11).fit(x, y)
        theirs = other(alpha=ridge, tol=1e-12, solver="newton-cholesky", max_iter=1000).fit(x, y)
        np.testing.assert_allclose(np.r_[ours.coef_, ours.intercept_], np.r_[theirs.coef_, theirs.intercept_], rtol=0, atol=1e-8)
        np.testing.assert_allclose(ours.predict(x), theirs.predict(x), rtol=1e-7)


@pytest.mark.parametrize("model", ["logistic", "multinomial", "least-squares", "poisson"])
def test_the_bits_are_those_of_the_program(tmp_path: Path, model: str) -> None:
    x, score, weights = rows()
    y = {"logistic": score > 0, "multinomial": np.digitize(score, [-1.0, 1.5]), "least-squares": score, "poisson": np.floor(np.exp(0.2 * score))}[model]
    y = y.astype(float)
    names = ["a", "b", "c", "d"]
    write_csv(tmp_path / "rows.csv", [*names, "w", "target"], *x.T, weights + 1.0, y)
    program("fit", str(tmp_path / "rows.csv"), "--model", model, "--row-weights", "w", "--out", str(tmp_path / "out"))
    theirs = json.loads((tmp_path / "out" / "weights.json").read_text())
    kind = FederatedClassifier if model in ("logistic", "multinomial") else FederatedRegressor
    ours = kind(model=model).fit(x, y, sample_weight=weights + 1.0)
    ours.save(tmp_path / "ours")
    saved = json.loads((tmp_path / "ours" / "weights.json").read_text())
    for key in ("coefficients", "intercept", "further", "theta", "rounds", "bits", "method", "classes"):
        assert saved[key] == theirs[key], key
    # What the program predicts of files is what we predict, bit for bit.
    program("predict", str(tmp_path / "out"), str(tmp_path / "rows.csv"), "--out", str(tmp_path / "predicted.csv"))
    table = np.genfromtxt(tmp_path / "predicted.csv", delimiter=",", names=True)
    np.testing.assert_array_equal(table["prediction"], ours.predict(x))


def test_weights_of_the_program_are_read_and_ours_are_read_by_it(tmp_path: Path) -> None:
    import pandas

    x, score, _ = rows()
    frame = pandas.DataFrame(x, columns=list("abcd"))
    model = FederatedClassifier().fit(frame, np.where(score > 0, "yes", "no"))
    model.save(tmp_path)
    again = FederatedClassifier.load(tmp_path)
    np.testing.assert_array_equal(again.predict(frame), model.predict(frame))
    np.testing.assert_array_equal(again.predict_proba(frame), model.predict_proba(frame))
    frame.to_csv(tmp_path / "rows.csv", index=False, float_format="%.17g")
    program("predict", str(tmp_path), str(tmp_path / "rows.csv"), "--out", str(tmp_path / "out.csv"))
    assert pandas.read_csv(tmp_path / "out.csv")["prediction"].tolist() == model.predict(frame).tolist()
    with pytest.raises(fedsa.InputError, match="a model of the kind logistic"):
        FederatedRegressor.load(tmp_path)


def test_agents_are_a_number_or_a_label_for_each_row() -> None:
    x, score, _ = rows()
    labels = np.array(["b", "a", "c"])[np.arange(len(x)) % 3]
    by_label = FederatedRegressor(tol=1e-12).fit(x, score, agents=labels)
    assert by_label.agents_ == ["b", "a", "c"]
    by_number = FederatedRegressor(tol=1e-12).fit(x, score, agents=3)
    assert by_number.agents_ == [0, 1, 2]
    np.testing.assert_allclose(by_label.coef_, by_number.coef_, rtol=0, atol=1e-9)
    # Agents that count equally are another problem, where their sizes differ.
    uneven = np.where(np.arange(len(x)) < 20, 0, 1)
    equal = FederatedRegressor(weighting="equal").fit(x, score, agents=uneven)
    assert abs(equal.coef_ - by_number.coef_).max() > 1e-3


def test_sparse_and_dense_rows_and_frames_have_one_solution() -> None:
    import pandas
    import polars
    import pyarrow
    from scipy import sparse

    x, score, _ = rows()
    x[np.abs(x) < 0.7] = 0.0
    dense = FederatedRegressor().fit(x, score)
    names = list("abcd")
    for other in (sparse.csr_matrix(x), sparse.csc_array(x), sparse.coo_matrix(x)):
        np.testing.assert_allclose(FederatedRegressor().fit(other, score).coef_, dense.coef_, rtol=0, atol=1e-7)
        np.testing.assert_array_equal(dense.predict(other), dense.predict(x))
    frames = [pandas.DataFrame(x, columns=names), polars.DataFrame(dict(zip(names, x.T))), pyarrow.table(dict(zip(names, x.T)))]
    for frame in frames:
        model = FederatedRegressor().fit(frame, score)
        assert model.feature_names_in_.tolist() == names
        np.testing.assert_array_equal(model.coef_, dense.coef_)
        np.testing.assert_array_equal(model.predict(frame), dense.predict(x))
        assert model.summary().rows[1]["coefficient"] == "a"

    class Capsule:
        """Has the Arrow interface alone."""

        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            return frames[2].__arrow_c_stream__(requested_schema)

    model = FederatedRegressor().fit(Capsule(), score)
    assert model.feature_names_in_.tolist() == names
    np.testing.assert_array_equal(model.predict(Capsule()), dense.predict(x))
    with pytest.raises(ValueError, match="Feature names must be in the same order"):
        FederatedRegressor().fit(frames[0], score).predict(frames[0][list("dcba")])


def test_it_works_in_pipelines_searches_and_cross_validation() -> None:
    from sklearn.base import clone, is_classifier
    from sklearn.model_selection import GridSearchCV, cross_val_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    x, score, _ = rows()
    y = np.where(score > 0, "yes", "no")
    pipe = make_pipeline(StandardScaler(), FederatedClassifier())
    assert cross_val_score(pipe, x, y, cv=3).min() > 0.7
    search = GridSearchCV(pipe, {"federatedclassifier__ridge": [1e-4, 10.0]}, cv=3).fit(x, y, federatedclassifier__agents=4)
    assert search.best_params_ == {"federatedclassifier__ridge": 1e-4}
    assert search.best_estimator_[-1].agents_ == [0, 1, 2, 3]
    assert is_classifier(pipe)
    copied = clone(FederatedRegressor(model="huber", huber_delta=1.5))
    assert copied.get_params()["huber_delta"] == 1.5 and repr(copied) == "FederatedRegressor(model='huber', huber_delta=1.5)"


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_a_fit_is_copied_with_all_that_it_found(copied: Any) -> None:
    x, score, _ = rows()
    model = FederatedClassifier(inference="sandwich").fit(x, score > 0)
    again = copied(model)
    np.testing.assert_array_equal(again.predict_proba(x), model.predict_proba(x))
    assert str(again.summary()) == str(model.summary()) and again.costs_ == model.costs_
    assert again.results_.summary_dict() == model.results_.summary_dict()


def test_standard_errors_are_those_of_statsmodels() -> None:
    # statsmodels 0.14.5: OLS(score, add_constant(x)).fit(cov_type=..) has HC1 errors as sqrt(diag((X'X)^-1 X' diag(e^2) X (X'X)^-1 n/(n-p))).
    x, score, _ = rows()
    model = FederatedRegressor(inference="hc1", tol=1e-12).fit(x, score)
    full = np.column_stack([np.ones(len(x)), x])
    bread = np.linalg.inv(full.T @ full)
    residual = score - full @ np.linalg.lstsq(full, score, rcond=None)[0]
    n, p = full.shape
    covariance = bread @ (full.T * residual**2) @ full @ bread * n / (n - p)
    found = model.inference_
    assert found.names == ["intercept", "1", "2", "3", "4"] and found.kind == "hc1"
    np.testing.assert_allclose(found.covariance, covariance, rtol=1e-9)
    np.testing.assert_allclose(found.se, np.sqrt(np.diag(covariance)), rtol=1e-9)
    assert model.summary().columns == ["coefficient", "estimate", "se", "z", "p", "low", "high"]


def test_costs_tell_what_methods_spent() -> None:
    x, score, _ = rows()
    model = FederatedClassifier(method="auto", compare=["newton", "fednl"]).fit(x, score > 0)
    assert list(model.costs_) == ["auto", "newton", "fednl"]
    assert model.n_iter_ == model.costs_["auto"].rounds > 0 and model.costs_["newton"].bits > 0
    assert model.choice_["considered"][0]["method"] == model.choice_["method"]
    assert model.outcome_.name == "converged"
    named = FederatedClassifier(method="newton").fit(x, score > 0)
    assert list(named.costs_) == ["newton"] and not hasattr(named, "choice_")


def test_a_run_out_of_rounds_warns_and_is_an_outcome() -> None:
    x, score, _ = rows()
    with pytest.warns(fedsa.FedsaWarning, match="did not converge"):
        model = FederatedClassifier(max_rounds=1).fit(x, score > 0)
    assert model.outcome_.name == "max-rounds" and model.n_iter_ == 1
    assert np.isfinite(model.predict_proba(x)).all()


def test_seconds_of_messages_are_estimated() -> None:
    x, score, _ = rows()
    free = FederatedClassifier(objective="seconds").fit(x, score > 0).choice_
    slow = FederatedClassifier(objective="seconds", latency=3.0, bandwidth=1e6).fit(x, score > 0).choice_
    assert "free" in free["why"] and "messages and computation" in slow["why"]
    before = {one["method"]: one["seconds"] for one in free["considered"]}
    for one in slow["considered"]:
        messages = 3.0 * one["exchanges"] + one["bits"] / 1e6
        assert one["seconds"] == pytest.approx(before[one["method"]] + messages)


def bad(**change: Any) -> Any:
    """A call with one thing changed."""
    x, score, _ = rows()
    given = {"X": x, "y": score > 0, "kind": FederatedClassifier, "settings": {}, "fit": {}, **change}
    return given["kind"](**given["settings"]).fit(given["X"], given["y"], **given["fit"])


def nan_at(x: np.ndarray) -> np.ndarray:
    x = x.copy()
    x[3, 1] = np.nan
    return x


X, Y, _ = rows()
BAD: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "one dimension": ({"X": X[:, 0]}, fedsa.InputError, "Reshape your data"),
    "three dimensions": ({"X": X[None]}, fedsa.InputError, "Expected 2D array"),
    "NaN": ({"X": nan_at(X)}, fedsa.InputError, "Input X contains NaN, first at row 3, column 1"),
    "infinity": ({"X": np.where(X > 2, np.inf, X)}, fedsa.InputError, "Input X contains infinity"),
    "no rows": ({"X": X[:0], "y": []}, fedsa.InputError, "0 sample"),
    "no columns": ({"X": X[:, :0]}, fedsa.InputError, "0 feature"),
    "complex": ({"X": X + 1j}, fedsa.InputError, "Complex data not supported"),
    "texts": ({"X": X.astype(str).astype(object) + "x"}, fedsa.InputError, "could not convert string"),
    "objects": ({"X": np.full((240, 2), None)}, (fedsa.InputError, TypeError), ""),
    "dates": ({"X": np.zeros((240, 2), dtype="datetime64[s]")}, fedsa.InputError, "dates and times"),
    "too few targets": ({"y": [0, 1]}, fedsa.InputError, "inconsistent numbers of samples"),
    "no targets": ({"y": None}, fedsa.InputError, "requires y to be passed"),
    "continuous classes": ({"y": Y}, fedsa.InputError, "Unknown label type"),
    "one class": ({"y": np.ones(240)}, fedsa.InputError, "all of one class"),
    "targets with NaN": ({"y": nan_at(X)[:, 1], "kind": FederatedRegressor}, fedsa.InputError, "Input y contains NaN"),
    "mixed classes": ({"y": np.array(["a", 1] * 120, dtype=object)}, fedsa.InputError, "cannot be compared"),
    "no agents": ({"fit": {"agents": 0}}, fedsa.InputError, "0 agents for 240 rows"),
    "too many agents": ({"fit": {"agents": 241}}, fedsa.InputError, "241 agents"),
    "agents of another type": ({"fit": {"agents": "north"}}, fedsa.InputError, "'north' is not accepted"),
    "too few labels": ({"fit": {"agents": [1, 2]}}, fedsa.InputError, "inconsistent"),
    "negative weights": ({"fit": {"sample_weight": -np.ones(240)}}, fedsa.InputError, "negative weight"),
    "weights of 0": ({"fit": {"sample_weight": np.zeros(240)}}, fedsa.InputError, "at least one non-zero"),
    "weights of two dimensions": ({"fit": {"sample_weight": np.ones((240, 2))}}, fedsa.InputError, "1D array"),
    "negative ridge": ({"settings": {"ridge": -1.0}}, fedsa.InputError, "ridge"),
    "ridge as text": ({"settings": {"ridge": "1"}}, fedsa.InputError, '"1" is not accepted'),
    "unknown method": ({"settings": {"method": "newtom"}}, fedsa.InputError, "newton"),
    "a method without its step": ({"settings": {"method": "fedlsa"}}, fedsa.InputError, "the method needs `step_size`"),
    "unknown model": ({"settings": {"model": "poisson"}}, fedsa.InputError, "'poisson' is not accepted"),
    "unknown inference": ({"settings": {"inference": "hc7"}}, fedsa.InputError, "hc1"),
    "inference with a ridge": ({"settings": {"inference": "model", "ridge": 0.1}}, fedsa.InputError, "ridge"),
    "negative seconds": ({"settings": {"latency": -1.0}}, fedsa.InputError, "latency"),
    "no bandwidth": ({"settings": {"bandwidth": 0.0}}, fedsa.InputError, "bandwidth"),
    "fractional rounds": ({"settings": {"max_rounds": 1.5}}, fedsa.InputError, "max_rounds"),
    "negative rounds": ({"settings": {"max_rounds": -1}}, fedsa.InputError, "max_rounds"),
    "overdispersion without its model": ({"kind": FederatedRegressor, "y": Y, "settings": {"dispersion": 1.0}}, fedsa.InputError, "dispersion"),
    "threshold missing": ({"kind": FederatedRegressor, "y": Y, "settings": {"model": "huber"}}, fedsa.InputError, "huber_delta"),
    "negative counts": ({"kind": FederatedRegressor, "y": Y, "settings": {"model": "poisson"}}, fedsa.InputError, ""),
    "separated classes": ({"y": X[:, 0] > 0, "settings": {"inference": "model"}}, (fedsa.InputError, fedsa.NotAvailable), ""),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_with_a_helpful_text(case: str) -> None:
    change, error, words = BAD[case]
    with pytest.raises(error) as raised:
        bad(**change)
    assert words in str(raised.value)
    if isinstance(raised.value, fedsa.FedsaError):
        assert raised.value.help


def test_a_wrong_keyword_is_a_type_error_that_names_it() -> None:
    with pytest.raises(TypeError, match="keyword argument 'rigde'"):
        FederatedClassifier(rigde=1.0)
    with pytest.raises(fedsa.InputError, match="Invalid parameter 'rigde'.*did you mean 'ridge'"):
        FederatedClassifier().set_params(rigde=1.0)
    with pytest.raises(ValueError, match="not fitted"):
        FederatedClassifier().predict(X)


@pytest.mark.parametrize("other", ["fortran", "strided", "big-endian", "read-only", "float32", "list", "memory map"])
def test_arrays_of_any_layout_have_one_result(other: str, tmp_path: Path) -> None:
    x, score, _ = rows()
    x = x.astype(np.float32).astype(np.float64)
    wide = np.zeros((len(x), 9))
    wide[:, 1::2] = x
    read_only = x.copy()
    read_only.flags.writeable = False
    np.save(tmp_path / "x.npy", x)
    layouts = {
        "fortran": np.asfortranarray(x),
        "strided": wide[:, 1::2],
        "big-endian": x.astype(">f8"),
        "read-only": read_only,
        "float32": x.astype(np.float32),
        "list": x.tolist(),
        "memory map": np.load(tmp_path / "x.npy", mmap_mode="r"),
    }
    found = FederatedRegressor().fit(layouts[other], score)
    expected = FederatedRegressor().fit(x, score)
    np.testing.assert_array_equal(found.coef_, expected.coef_)
    np.testing.assert_array_equal(found.predict(layouts[other]), expected.predict(x))


def test_arrays_in_c_order_are_not_copied_before_the_engine() -> None:
    from fedsa import _arrays

    x, *_ = rows()
    assert np.shares_memory(_arrays.matrix(x), x)
    x.flags.writeable = False
    assert np.shares_memory(_arrays.matrix(x), x)


def test_without_scikit_learn_the_classes_work(tmp_path: Path) -> None:
    script = """
import sys
sys.modules["sklearn"] = None
import numpy as np, pickle, fedsa
x = np.random.default_rng(0).normal(size=(100, 2))
model = fedsa.FederatedClassifier().set_params(ridge=1e-3).fit(x, x[:, 0] > 0.1)
assert model.score(x, x[:, 0] > 0.1) > 0.9 and pickle.loads(pickle.dumps(model)).get_params() == model.get_params()
try:
    fedsa.FederatedRegressor().predict(x)
except fedsa.InputError as e:
    assert "not fitted" in str(e)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_importing_fedsa_imports_neither_scikit_learn_nor_pandas() -> None:
    script = "import sys, fedsa; print([m for m in ('sklearn', 'pandas', 'polars', 'pyarrow', 'scipy', 'gymnasium', 'h5py') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


@pytest.mark.slow
def test_repeated_fits_and_refusals_leave_no_memory_behind() -> None:
    import gc
    import resource

    x, score, _ = rows(60, 2)
    value = FederatedRegressor(method="newton")

    def all_at_once() -> None:
        value.fit(x, score, agents=2)
        value.predict(x)
        for broken in (x[:, 0], nan_at(x), x[:0]):
            with pytest.raises(ValueError):
                value.fit(broken, score)

    def used() -> int:
        gc.collect()
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    for _ in range(300):
        all_at_once()
    before = used()
    for _ in range(2500):
        all_at_once()
    assert used() - before < 30_000, "kilobytes"


DATES = np.array(["2020-02-01", "2021-01-01"], "M8[D]")


@pytest.mark.parametrize(
    "classes",
    [
        ["3", "7", "8"],
        ["0", "1"],
        ["01", "1"],
        ["1.5", "2.5"],
        ["nan", "inf"],
        ["10", "9", "8"],
        [True, False],
        [b"no", b"yes"],
        [1, 2, 3],
        np.array([1, 2], np.int8),
        np.array([2**60 + 1, 9]),
        np.array(["3", "12"], object),
        np.array([3, 12], object),
        DATES,
    ],
)
def test_classes_of_a_saved_classifier_are_those_of_the_fit(classes: Any, tmp_path: Path) -> None:
    classes = np.asarray(classes)
    X = np.random.default_rng(0).normal(size=(300, 2))
    y = classes[(X[:, 0] > 0) * 1 + (X[:, 0] > 1) * (len(classes) == 3)]
    model = fedsa.FederatedClassifier().fit(X, y)
    model.save(tmp_path)
    again = fedsa.FederatedClassifier.load(tmp_path)
    again.save(tmp_path / "again")
    for loaded in (again, fedsa.FederatedClassifier.load(tmp_path / "again")):
        assert loaded.classes_.dtype == model.classes_.dtype
        assert loaded.classes_.tolist() == np.unique(y).tolist()
        assert [type(one) for one in loaded.classes_] == [type(one) for one in model.classes_]
        assert loaded.score(X, y) == model.score(X, y) > 0.9
    kept = json.loads((tmp_path / "weights.json").read_text())["classes"]
    # What `fedsa predict` writes: texts stay texts.
    assert all(isinstance(one, str) for one in kept) == (classes.dtype.kind in "USM" or kept[0] in ("12", "3", "9"))


def test_weights_of_earlier_versions_are_read(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(100, 2))
    fedsa.FederatedClassifier().fit(X, (X[:, 0] > 0) * 1).save(tmp_path)
    weights = json.loads((tmp_path / "weights.json").read_text())
    del weights["classes_dtype"]
    (tmp_path / "weights.json").write_text(json.dumps(weights))
    assert fedsa.FederatedClassifier.load(tmp_path).classes_.tolist() == [0.0, 1.0]


def test_classes_that_a_file_cannot_hold_are_refused() -> None:
    X = np.random.default_rng(0).normal(size=(100, 2))
    classes = np.array([datetime.date(2020, 1, 1), datetime.date(2019, 1, 1)], object)
    model = fedsa.FederatedClassifier().fit(X, classes[(X[:, 0] > 0) * 1])
    assert model.score(X, classes[(X[:, 0] > 0) * 1]) > 0.9
    with pytest.raises(fedsa.InputError, match="objects of the type date"):
        model.save("never")
    with pytest.raises(fedsa.InputError, match="half a surrogate pair"):
        fedsa.FederatedClassifier().fit(X, np.array(["\ud800", "a"])[(X[:, 0] > 0) * 1])


def halves(n: int = 300) -> tuple[np.ndarray, np.ndarray]:
    return np.random.default_rng(0).normal(size=(n, 2)), np.arange(n) % 2


def test_each_call_has_its_own_warning() -> None:
    X, y = halves()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        FederatedClassifier(max_rounds=1).fit(X, y)
        FederatedClassifier(max_rounds=1).fit(X, y)
    assert [one.filename for one in caught] == [__file__] * 2 and caught[0].lineno + 1 == caught[1].lineno


def test_arrays_of_arrow_are_targets_labels_and_weights() -> None:
    arrow = needs("pyarrow")
    X, y = halves()
    plain = FederatedClassifier().fit(X, np.array(["a", "b"])[y], agents=y, sample_weight=1.0 + y)
    texts = arrow.array(np.array(["a", "b"])[y])
    for targets in (texts, texts.dictionary_encode(), arrow.chunked_array([texts])):
        fit = FederatedClassifier().fit(X, targets, agents=arrow.array(y.tolist()), sample_weight=arrow.array((1.0 + y).tolist()))
        assert np.array_equal(fit.coef_, plain.coef_) and fit.classes_.tolist() == ["a", "b"]
    assert FederatedClassifier().fit(X, arrow.array(y.astype(bool))).classes_.tolist() == [False, True]
    with pytest.raises(fedsa.InputError, match="NaN"):
        FederatedClassifier().fit(X, y, sample_weight=arrow.array([None] + [1.0] * 299))


def test_frames_that_are_not_rows_of_numbers_are_refused() -> None:
    pandas, polars = needs("pandas"), needs("polars")
    X, y = halves()
    mixed = pandas.DataFrame({"a": pandas.array([None] + [1] * 299, dtype="Int64"), "b": X[:, 0]})
    cases: list[tuple[Any, str]] = [
        (mixed, "column `a`: row 1 is null"),
        (polars.DataFrame(X).lazy(), r"\.collect\(\)"),
        ([[1, 2], [3]], "rows of different lengths"),
        ({"a": X[:, 0]}, "an object of the type dict"),
        (np.ma.masked_array(X, mask=X > 1), "masked entries"),
    ]
    for bad, words in cases:
        with pytest.raises(fedsa.InputError, match=words):
            FederatedClassifier().fit(bad, y[: len(bad)] if isinstance(bad, list) else y)
    with pytest.raises(fedsa.InputError, match="masked entries"):
        FederatedClassifier().fit(X, np.ma.masked_array(y, mask=y == 1))


@pytest.mark.parametrize("format", ["csr", "csc"])
def test_sparse_matrices_that_point_outside_are_refused(format: str) -> None:
    scipy = needs("scipy.sparse")
    X, y = halves()
    for place, value in ((3, 10**6), (3, -5), (-1, 700), (0, 1)):
        bad = scipy.csr_matrix(X).asformat(format)
        bad.indptr[place if format == "csr" or place < 1 else 1] = value
        with pytest.raises(fedsa.InputError, match="its indptr"):
            FederatedClassifier().fit(bad, y)
    for value in (10**6, -1):
        bad = scipy.csr_matrix(X).asformat(format)
        bad.indices[5] = value
        with pytest.raises(fedsa.InputError, match="an entry of (column|row)"):
            FederatedClassifier().fit(bad, y)


def test_rows_without_an_agent_and_tolerances_below_zero_are_refused() -> None:
    X, y = halves()
    for labels in (np.where(y == 1, np.nan, 1.0), np.array([None, "a"] * 150, object)):
        with pytest.raises(fedsa.InputError, match="a row without a label"):
            FederatedClassifier().fit(X, y, agents=labels)
    for tol in (-1.0, float("nan")):
        with pytest.raises(fedsa.InputError) as caught:
            FederatedClassifier(tol=tol).fit(X, y)
        assert caught.value.key == "tol"
    with pytest.raises(fedsa.InputError, match=r"all of one class, 0\.0"):
        FederatedClassifier().fit(X, np.zeros(300))
    with pytest.raises(fedsa.InputError, match=r"^X: could not convert"):
        FederatedClassifier().fit([["x", "y"]] * 2, [0, 1])


@pytest.mark.parametrize("kind", ["model", "sandwich"])
def test_weights_of_rows_are_no_counts_in_standard_errors(kind: Any) -> None:
    """As the documentation says of `sample_weight`."""
    x, t, w = rows()
    weighted = FederatedRegressor(inference=kind).fit(x, t, sample_weight=w)
    repeated = FederatedRegressor(inference=kind).fit(np.repeat(x, w.astype(int), 0), np.repeat(t, w.astype(int)))
    assert np.allclose(weighted.inference_.estimate, repeated.inference_.estimate)
    assert (weighted.inference_.se > 1.1 * repeated.inference_.se).all() and weighted.inference_.n < repeated.inference_.n


def test_what_is_odd_about_the_data_is_warned_of() -> None:
    x, scores, _ = rows()
    tiny = np.column_stack([x, 1e-6 * x[:, 0]])
    with pytest.warns(fedsa.errors.FedsaWarning, match="the ridge 1e-5 all but removes the column \"5\"") as caught:
        FederatedRegressor().fit(tiny, scores, agents=3)
    assert caught[0].filename == __file__ and "`standardise` brings" in str(caught[0].message)
    assert isinstance(caught[0].message, fedsa.FedsaWarning) and caught[0].message.code == "columns.removed-by-ridge"
    model = FederatedRegressor(tol=1e-30).fit(x, scores, agents=3)
    (note,) = (note for note in model.results_.notes if note.code == "tol.below-rounding")
    assert note.text.startswith("`tol=1e-30` is below the rounding error of gradients") and str(note) in str(model.summary())
    assert 1e-30 < model.tol_ < 1e-9 and model.outcome_.name == "converged"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert FederatedRegressor(tol=1e-8).fit(x, scores, agents=3).tol_ == 1e-8
