"""The same rows give the same answer in every form: files, arrays, data frames and recordings, in the program and in Python."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from needs import needs
from test_program import program

import fedsa
from fedsa import ValueFunction

GAMMA = 0.95
STATES, LENGTH, EPISODES = 5, 10, 400
UP = 0.7


def chain(next_of_following: bool) -> dict[str, np.ndarray]:
    """A walk on a line along which rewards fall, cut after ten steps; the next state of a cut is its own, or that of the following row."""
    rng = np.random.default_rng(7)
    s, following = np.empty(EPISODES * LENGTH), np.empty(EPISODES * LENGTH)
    for row in range(len(s)):
        s[row] = 0.0 if row % LENGTH == 0 else following[row - 1]
        following[row] = min(max(s[row] + (1.0 if rng.uniform() < UP else -1.0), 0.0), STATES - 1.0)
    end = np.arange(len(s)) % LENGTH == LENGTH - 1
    if next_of_following:
        following[end] = np.r_[s[1:], 0.0][end]
    episode = np.arange(len(s)) // LENGTH
    return {"s_0": s, "next_0": following, "reward": -s / STATES, "done": np.zeros(len(s)), "truncated": end * 1.0, "episode": episode}


def exact() -> float:
    """The value of the first state."""
    p = (1 - UP) * np.eye(STATES, k=-1) + UP * np.eye(STATES, k=1)
    p[0, 0], p[-1, -1] = 1 - UP, UP
    return float(np.linalg.solve(np.eye(STATES) - GAMMA * p, -np.arange(STATES) / STATES)[0])


def side_by_side(columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Two environments whose rows alternate, each with half of the episodes."""
    half = len(columns["s_0"]) // 2
    order = np.arange(2 * half).reshape(2, half).T.ravel()
    return {name: column[order] for name, column in columns.items()} | {"env": np.tile([0, 1], half)}


def written(path: Path, columns: dict[str, np.ndarray]) -> str:
    pyarrow = needs("pyarrow")
    table = pyarrow.table(columns)
    if path.suffix == ".csv":
        needs("pyarrow.csv").write_csv(table, path)
    else:
        needs("pyarrow.parquet").write_table(table, path)
    return str(path)


def recorded(columns: dict[str, np.ndarray]) -> Any:
    needs("gymnasium")
    from fedsa.gym import Recording

    s, following = columns["s_0"][:, None], columns["next_0"][:, None]
    done, truncated = columns["done"] > 0, columns["truncated"] > 0
    return Recording("chain", s, following, columns["reward"], done, truncated, columns["episode"])


FORMS: dict[str, Any] = {
    "csv": lambda columns, folder: written(folder / "log.csv", columns),
    "parquet": lambda columns, folder: written(folder / "log.parquet", columns),
    "arrays": lambda columns, folder: [columns],
    "structured": lambda columns, folder: [np.rec.fromarrays(list(columns.values()), names=list(columns))],
    "pandas": lambda columns, folder: [needs("pandas").DataFrame(columns)],
    "polars": lambda columns, folder: [needs("polars").DataFrame(columns)],
    "pyarrow": lambda columns, folder: [needs("pyarrow").table(columns)],
    "recording": lambda columns, folder: [recorded(columns)],
}


@pytest.mark.parametrize("has_env", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_next_states_of_the_next_episode_are_recognised_in_every_form(form: str, has_env: bool, tmp_path: Path) -> None:
    if form == "recording" and has_env:
        pytest.skip("a recording has no column of environments")
    arranged = side_by_side if has_env else dict

    def fit(is_faulty: bool, keep: bool = False) -> ValueFunction:
        given = FORMS[form](arranged(chain(is_faulty)), tmp_path)
        return ValueFunction(gamma=GAMMA, features="one-hot", keep_autoreset_rows=keep).fit(given)

    honest = fit(False)
    assert honest.value().all.mean == pytest.approx(exact(), abs=0.3)
    assert not [note for note in honest.results_.notes if note.code.startswith("next-state.")]
    with pytest.warns(fedsa.FedsaWarning, match=f"left out {EPISODES} "):
        recognised = fit(True)
    notes = [note for note in recognised.results_.notes if note.code == "next-state.of-next-episode"]
    assert len(notes) == 1 and str(EPISODES) in notes[0].text, recognised.results_.notes
    assert recognised.value().all.mean == pytest.approx(exact(), abs=0.3)
    kept = fit(True, keep=True)
    assert abs(kept.value().all.mean - exact()) > 1.0
    assert not [note for note in kept.results_.notes if note.code.startswith("next-state.")]
    # Whatever the form, the answer is that of the arrays.
    arrays = ValueFunction(gamma=GAMMA, features="one-hot").fit([arranged(chain(True))])
    np.testing.assert_array_equal(recognised.weights_, arrays.weights_)
    assert recognised.value().all.mean == arrays.value().all.mean


@pytest.mark.parametrize("has_env", [False, True])
def test_the_program_recognises_them_too(has_env: bool, tmp_path: Path) -> None:
    columns = side_by_side(chain(True)) if has_env else chain(True)
    written(tmp_path / "log.csv", columns)
    done = program("evaluate", "log.csv", "--gamma", str(GAMMA), "--features", "one-hot", "--out", "out", cwd=tmp_path)
    assert done.returncode == 0 and f"left out {EPISODES} " in done.stdout + done.stderr, done.stderr
    arrays = ValueFunction(gamma=GAMMA, features="one-hot").fit([columns])
    np.testing.assert_array_equal(ValueFunction.load(tmp_path / "out").weights_, arrays.weights_)


N = 300


def rows() -> dict[str, Any]:
    """Numbers, a column of text, a code, and counts by a log link with exposures."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=N)
    site = rng.choice(["north", "south", "west"], size=N, p=[0.2, 0.5, 0.3])
    code = rng.choice([3, 5, 11], size=N)
    exposure = rng.uniform(1.0, 4.0, size=N)
    mean = exposure * np.exp(0.3 * x + 0.4 * (site == "west") - 0.2 * (code == 5))
    return {"x": x, "site": site, "code": code, "exposure": np.log(exposure), "target": rng.poisson(mean)}


def frame_of(kind: str, columns: dict[str, Any]) -> Any:
    module = needs(kind)
    return module.table(columns) if kind == "pyarrow" else module.DataFrame(columns)


def program_fit(folder: Path, *options: str) -> dict[str, Any]:
    written(folder / "rows.csv", rows())
    done = program("fit", "rows.csv", "--agents", "8", "--out", "out", "--overwrite", *options, cwd=folder)
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "out" / "weights.json").read_text())


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow"])
def test_columns_of_text_categories_and_offsets_are_those_of_a_file(kind: str, tmp_path: Path) -> None:
    theirs = program_fit(tmp_path, "--model", "poisson", "--offset", "exposure", "--categorical", "code")
    columns = rows()
    y = columns.pop("target")
    frame = frame_of(kind, columns)
    model = fedsa.FederatedRegressor(model="poisson", categorical=["code"])
    ours = model.fit(frame, y, offset="exposure")
    assert ours.coef_names_ == theirs["columns"]
    np.testing.assert_array_equal(ours.coef_, theirs["coefficients"])
    # The most frequent level is the reference.
    assert not any("south" in name for name in ours.coef_names_) and sum("site" in name for name in ours.coef_names_) == 2
    loaded = fedsa.FederatedRegressor.load(tmp_path / "out")
    np.testing.assert_array_equal(loaded.predict(frame), ours.predict(frame))
    # As an array beside the columns.
    offset = columns.pop("exposure")
    beside = model.fit(frame_of(kind, columns), y, offset=offset)
    np.testing.assert_array_equal(np.sort(beside.coef_), np.sort(ours.coef_))
    np.testing.assert_allclose(beside.predict(frame_of(kind, columns), offset), loaded.predict(frame), rtol=1e-12)
    with pytest.raises(fedsa.InputError, match="the fit had an offset"):
        beside.predict(frame_of(kind, columns))
    saved = tmp_path / "saved"
    beside.save(saved)
    np.testing.assert_array_equal(fedsa.FederatedRegressor.load(saved).predict(frame_of(kind, columns), offset), beside.predict(frame_of(kind, columns), offset))


def test_a_level_that_the_fit_has_not_seen_is_refused() -> None:
    pandas = needs("pandas")
    columns = rows()
    y = columns.pop("target")
    model = fedsa.FederatedRegressor(model="poisson").fit(pandas.DataFrame(columns), y)
    columns["site"] = np.full(N, "moon")
    with pytest.raises(fedsa.InputError, match="moon"):
        model.predict(pandas.DataFrame(columns))
    with pytest.raises(fedsa.InputError, match="a data frame|features"):
        model.predict(np.zeros((3, 4)))


def test_texts_that_are_missing_and_dates_are_refused_by_column() -> None:
    pandas = needs("pandas")
    site = pandas.Series(["a", "b", None] * 20)
    x, y = np.arange(60.0), np.arange(60.0)
    with pytest.raises(fedsa.InputError, match="`site`"):
        fedsa.FederatedRegressor().fit(pandas.DataFrame({"x": x, "site": site}), y)
    when = pandas.date_range("2024-01-01", periods=60)
    with pytest.raises(fedsa.InputError, match="`when`.*date"):
        fedsa.FederatedRegressor().fit(pandas.DataFrame({"x": x, "when": when}), y)
    # Categories of pandas, and ids that no double represents.
    ids = np.array([1582218195625938945, 1582218195625938946] * 30)
    frame = pandas.DataFrame({"x": x, "site": pandas.Categorical(["a", "b", "b"] * 20), "id": ids})
    model = fedsa.FederatedRegressor(categorical="id", ridge=1e-3).fit(frame, y)
    assert sum("site" in name for name in model.coef_names_) == 1 and sum("id" in name for name in model.coef_names_) == 1


@pytest.mark.parametrize("labels", [["a", "b", "c"], [2, 5, 7]])
def test_the_reference_class_is_the_one_that_is_asked_for(labels: list[Any], tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(N, 2))
    y = np.array(labels)[np.argmax(x @ rng.normal(size=(2, 3)) + rng.gumbel(size=(N, 3)), axis=1)]
    plain = fedsa.FederatedClassifier(ridge=0.0, inference="model").fit(x, y)
    other = fedsa.FederatedClassifier(ridge=0.0, inference="model", reference=labels[1]).fit(x, y)
    assert plain.inference_.reference == str(labels[0]) and other.inference_.reference == str(labels[1])
    assert other.classes_.tolist() == labels and (other.coef_[1] == 0.0).all() and (plain.coef_[0] == 0.0).all()
    np.testing.assert_allclose(other.predict_proba(x), plain.predict_proba(x), atol=1e-7)
    np.testing.assert_allclose(other.coef_ - other.coef_[0], plain.coef_, atol=1e-6)
    other.save(tmp_path)
    again = fedsa.FederatedClassifier.load(tmp_path)
    assert again.classes_.tolist() == labels
    np.testing.assert_array_equal(again.predict_proba(x), other.predict_proba(x))
    with pytest.raises(fedsa.InputError, match="reference"):
        fedsa.FederatedClassifier(reference="z").fit(x, y)


def test_problems_of_frames_have_the_categories_of_files(tmp_path: Path) -> None:
    pandas = needs("pandas")
    columns = rows()
    written(tmp_path / "rows.csv", columns)
    y = columns.pop("target")
    settings: Any = dict(ridge=0.1, agents=4, categorical=["code"])
    of_file = fedsa.problems.LeastSquares(str(tmp_path / "rows.csv"), **settings)
    of_frame = fedsa.problems.LeastSquares((pandas.DataFrame(columns), y), **settings)
    found = [fedsa.Experiment(problem, fedsa.methods.named("newton"), rounds=2).run().theta("newton") for problem in (of_file, of_frame)]
    np.testing.assert_array_equal(found[0], found[1])


def test_each_agent_has_its_own_weights() -> None:
    logs = {f"chain_{i}": chain(False) for i in range(3)}
    logs["chain_2"]["reward"] = logs["chain_2"]["reward"] * 2.0
    own = ValueFunction(gamma=GAMMA, features="one-hot").fit(logs).value("fitted").weights
    assert set(own) == set(logs)
    assert own["chain_2"] @ np.eye(len(own["chain_2"]))[0] == pytest.approx(2.0 * own["chain_0"][0], rel=1e-6)


def quarters(n: int = 64) -> dict[str, np.ndarray]:
    """Numbers that every type holds exactly, half floats and decimals of two digits too."""
    rng = np.random.default_rng(5)
    return {"x": rng.integers(-40, 40, n) / 4.0, "z": rng.integers(0, 9, n) / 2.0, "target": rng.integers(-20, 20, n) / 4.0}


def parquet_kinds() -> dict[str, Any]:
    """Ways to write the same table, by name."""
    pyarrow = needs("pyarrow")

    def decimals(table: Any) -> Any:
        return table.set_column(0, "x", table["x"].cast(pyarrow.decimal128(12, 2)))

    def halves(table: Any) -> Any:
        return table.set_column(1, "z", pyarrow.array(table["z"].to_numpy().astype(np.float16)))

    codecs = {codec: (lambda table: table, {"compression": codec}) for codec in ("gzip", "lz4", "brotli", "zstd", "snappy", "none")}
    delta = (lambda table: table, {"use_dictionary": False, "column_encoding": {"site": "DELTA_BYTE_ARRAY"}})
    lengths = (lambda table: table, {"use_dictionary": False, "column_encoding": {"site": "DELTA_LENGTH_BYTE_ARRAY"}})
    return codecs | {"decimals": (decimals, {}), "float16": (halves, {}), "delta": delta, "delta lengths": lengths}


@pytest.mark.parametrize("kind", ["gzip", "lz4", "brotli", "zstd", "snappy", "none", "decimals", "float16", "delta", "delta lengths"])
def test_parquet_files_of_every_kind_are_fitted_as_their_numbers(kind: str, tmp_path: Path) -> None:
    pyarrow = needs("pyarrow")
    columns = quarters() | {"site": np.array(["north", "northern", "south", "north"] * 16)}
    change, options = parquet_kinds()[kind]
    needs("pyarrow.parquet").write_table(change(pyarrow.table(columns)), tmp_path / "rows.parquet", **options)
    y = columns.pop("target")
    expected = fedsa.FederatedRegressor().fit(needs("pandas").DataFrame(columns), y)
    done = program("fit", "rows.parquet", "--model", "least-squares", "--agents", "8", "--out", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    weights = json.loads((tmp_path / "out" / "weights.json").read_text())
    assert weights["columns"] == expected.coef_names_
    np.testing.assert_array_equal(weights["coefficients"], expected.coef_)


TEXTS = {
    "sep=": ("rows.csv", lambda rows: "sep=;\r\n" + "".join(";".join(row) + "\r\n" for row in rows)),
    "trailing": ("rows.csv", lambda rows: "".join(",".join(row) + ",\n" for row in rows)),
    "decimal commas": ("rows.csv", lambda rows: "".join(";".join(row) + "\n" for row in rows).replace(".", ",")),
    "tabs": ("rows.tsv", lambda rows: "".join("\t".join(row) + "\n" for row in rows)),
    "from 0": ("rows.svm", lambda rows: "".join(f"{row[2]} 0:{row[0]} 1:{row[1]}\n" for row in rows[1:])),
    "from 1": ("rows.svm", lambda rows: "".join(f"{row[2]} 1:{row[0]} 2:{row[1]}\n" for row in rows[1:])),
}


@pytest.mark.parametrize("kind", TEXTS)
def test_text_files_as_people_have_them_are_fitted_as_their_numbers(kind: str, tmp_path: Path) -> None:
    columns = quarters()
    name, written_as = TEXTS[kind]
    rows = [list(columns), *([str(x) for x in row] for row in zip(*columns.values()))]
    (tmp_path / name).write_bytes(written_as(rows).encode())
    y = columns.pop("target")
    expected = fedsa.FederatedRegressor().fit(np.column_stack(list(columns.values())), y)
    done = program("fit", name, "--model", "least-squares", "--agents", "8", "--intercept=true", "--out", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    weights = json.loads((tmp_path / "out" / "weights.json").read_text())
    np.testing.assert_allclose(weights["coefficients"], expected.coef_, rtol=1e-9)
    assert weights["intercept"] == pytest.approx(expected.intercept_, rel=1e-9)


@pytest.mark.parametrize("form", ["parquet", "pyarrow", "polars"])
def test_logs_of_robots_have_lists_of_numbers(form: str, tmp_path: Path) -> None:
    """A data set as LeRobot writes it: an observation in one column, and no next states."""
    pyarrow = needs("pyarrow")
    rng = np.random.default_rng(2)
    n, length = 400, 20
    states = rng.normal(size=(n, 3)).cumsum(axis=0) / 10.0
    end = np.arange(n) % length == length - 1
    episode = np.arange(n) // length
    lists = pyarrow.array(list(states), type=pyarrow.list_(pyarrow.float64()))
    columns = {"observation.state": lists, "episode_index": episode, "next.done": end, "next.reward": states[:, 0], "timestamp": np.arange(n) / 30.0}
    table = pyarrow.table(columns)
    given: Any = [needs("polars").from_arrow(table) if form == "polars" else table]
    if form == "parquet":
        needs("pyarrow.parquet").write_table(table, tmp_path / "robot.parquet")
        given = str(tmp_path / "robot.parquet")
    plain = {f"s_{j}": states[:, j] for j in range(3)} | {"episode": episode, "done": end * 1.0, "reward": states[:, 0]}
    expected = ValueFunction(gamma=0.9, features="identity:bias").fit([plain])
    found = ValueFunction(gamma=0.9, features="identity:bias").fit(given)
    np.testing.assert_array_equal(found.weights_, expected.weights_)
    assert found.columns_ == ["s_0", "s_1", "s_2"]


def test_columns_of_a_frame_that_a_log_does_not_need_may_be_anything() -> None:
    pandas = needs("pandas")
    columns = chain(False)
    frame = pandas.DataFrame(columns).assign(when=pandas.date_range("2024-01-01", periods=len(columns["s_0"])), info=[{"a": 1}] * len(columns["s_0"]))
    found = ValueFunction(gamma=GAMMA, features="one-hot").fit([frame])
    np.testing.assert_array_equal(found.weights_, ValueFunction(gamma=GAMMA, features="one-hot").fit([columns]).weights_)


def test_what_is_no_array_is_named_by_its_type() -> None:
    class Tensor:
        """As one of PyTorch that needs its gradient."""

        shape = (3,)

        def __len__(self) -> int:
            return 3

        def __array__(self, *more: Any, **options: Any) -> Any:
            raise RuntimeError("Can't call numpy() on Tensor that requires grad.")

    for key in ("states", "rewards"):
        with pytest.raises(fedsa.InputError, match="an object of the type Tensor"):
            ValueFunction(gamma=0.9).fit([{**chain(False), key: Tensor()}])
    with pytest.raises(fedsa.InputError, match="an object of the type Tensor"):
        fedsa.FederatedRegressor().fit(Tensor(), np.zeros(3))
