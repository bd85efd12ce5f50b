"""Value functions from transitions, in memory and in files."""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from needs import needs

import fedsa
from fedsa import ValueFunction


def walks(episodes: int, slip: float, seed: int, offset: int = 0) -> dict[str, np.ndarray]:
    """Walks on a line from 0 to 1 with slips back; one in three is cut short after 12 steps."""
    rng = np.random.default_rng(seed)
    rows = []
    for episode in range(episodes):
        x, count, limit = rng.uniform(0, 0.3), 0, 12 if episode % 3 == 2 else 10_000
        ended = False
        while not ended:
            back = rng.uniform() < slip
            y = max(x + (-0.1 if back else 0.15), 0.0)
            count += 1
            done = y >= 1.0
            truncated = not done and count == limit
            rows.append((x, y, -1.0, done, truncated, episode + offset))
            x, ended = y, done or truncated
    s, following, reward, done, truncated, episode = map(np.array, zip(*rows))
    side = np.sin(np.arange(len(s)))
    return {
        "states": np.column_stack([s, side]),
        "next_states": np.column_stack([following, np.r_[side[1:], 0.0]]),
        "rewards": reward,
        "terminated": done,
        "truncated": truncated,
        "episode": episode,
    }


def agents() -> dict[str, dict[str, np.ndarray]]:
    return {f"agent_{i}": walks(30, 0.1 + 0.1 * i, i) for i in range(3)}


def columns(log: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The columns of a file."""
    named = {f"s_{j}": log["states"][:, j] for j in range(2)} | {f"next_{j}": log["next_states"][:, j] for j in range(2)}
    return named | {"reward": log["rewards"], "done": log["terminated"], "truncated": log["truncated"], "episode": log["episode"]}


def write_csv(path: Path, table: dict[str, np.ndarray]) -> None:
    text = lambda x: repr(float(x)) if isinstance(x, (float, np.floating)) else str(int(x))  # noqa: E731
    path.write_text("\n".join([",".join(table), *(",".join(map(text, row)) for row in zip(*table.values()))]) + "\n")


def program(*args: str) -> None:
    done = subprocess.run([sys.executable, "-m", "fedsa", *args], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("logs")
    for name, log in agents().items():
        write_csv(folder / f"{name}.csv", columns(log))
    return sorted(folder.iterdir())


def test_the_weights_are_those_of_lstd() -> None:
    value = ValueFunction(gamma=0.95, features="polynomial:2", ridge=0.0).fit(agents())
    a, b = np.zeros((6, 6)), np.zeros(6)
    for log in agents().values():
        phi = value.transform(log["states"])
        following = value.transform(log["next_states"]) * ~log["terminated"][:, None]
        a += phi.T @ (phi - 0.95 * following)
        b += phi.T @ log["rewards"]
    np.testing.assert_allclose(value.weights_, np.linalg.solve(a, b), rtol=1e-8)
    states = agents()["agent_1"]["states"]
    np.testing.assert_allclose(value.predict(states), value.transform(states) @ value.weights_, rtol=1e-12)
    assert value.outcome_.name == "converged" and value.columns_ == ["s_0", "s_1"] and value.agents_ == ["agent_0", "agent_1", "agent_2"]


def test_products_of_features_are_those_of_numpy(tmp_path: Path) -> None:
    """A mode of three values, each with a line in the position."""
    logs = {name: {**log} for name, log in agents().items()}
    for log in logs.values():
        mode = np.arange(len(log["rewards"])) % 3
        log["states"] = np.column_stack([log["states"][:, 0], mode])
        log["next_states"] = np.column_stack([log["next_states"][:, 0], (mode + 1) % 3])
    value = ValueFunction(gamma=0.95, features="one-hot(s_1) * identity:bias(s_0)", ridge=0.0).fit(logs)
    phi = lambda s: (np.eye(3)[s[:, 1].astype(int)][:, :, None] * np.column_stack([np.ones(len(s)), s[:, 0]])[:, None]).reshape(len(s), 6)  # noqa: E731
    a, b = np.zeros((6, 6)), np.zeros(6)
    for log in logs.values():
        here = phi(log["states"])
        a += here.T @ (here - 0.95 * phi(log["next_states"]) * ~log["terminated"][:, None])
        b += here.T @ log["rewards"]
        np.testing.assert_allclose(value.transform(log["states"]), here, rtol=1e-15)
    np.testing.assert_allclose(value.weights_, np.linalg.solve(a, b), rtol=1e-8)
    assert value.feature_names_[3] == "(s_1 = 1) * (s_0)"
    value.save(tmp_path / "out")
    states = logs["agent_1"]["states"]
    np.testing.assert_array_equal(ValueFunction.load(tmp_path / "out").predict(states), value.predict(states))


@pytest.mark.parametrize("settings", [{}, {"method": "fedhsa", "features": "fourier:2"}, {"holdout": 0.3, "lam": 0.5}], ids=str)
def test_the_bits_are_those_of_the_program(files: list[Path], tmp_path: Path, settings: dict[str, Any]) -> None:
    options = [part for name, x in settings.items() for part in (f"--{'lambda' if name == 'lam' else name}", str(x))]
    program("evaluate", *map(str, files), "--gamma", "0.95", "--out", str(tmp_path / "out"), *options)
    theirs = json.loads((tmp_path / "out" / "weights.json").read_text())
    for given in (agents(), files):
        ours = ValueFunction(gamma=0.95, **settings).fit(given)
        ours.save(tmp_path / "ours")
        saved = json.loads((tmp_path / "ours" / "weights.json").read_text())
        assert saved == theirs
        assert (tmp_path / "ours" / "weights.npz").read_bytes() == (tmp_path / "out" / "weights.npz").read_bytes()
    program("predict", str(tmp_path / "out"), str(files[0]), "--se", "--out", str(tmp_path / "predicted.csv"))
    table = np.genfromtxt(tmp_path / "predicted.csv", delimiter=",", names=True)
    for value in (ours, ValueFunction.load(tmp_path / "out"), ValueFunction.load(tmp_path / "ours" / "weights.json")):
        values, se = value.predict(agents()["agent_0"]["states"], return_std=True)
        np.testing.assert_array_equal(values, table["value"])
        np.testing.assert_array_equal(se, table["value_se"])
    loaded = ValueFunction.load(tmp_path / "out")
    assert loaded.value() == ours.value() and loaded.value().all.se > 0


def test_all_kinds_of_agents_give_one_result() -> None:
    import pandas
    import polars
    import pyarrow

    log = agents()
    expected = ValueFunction(gamma=0.95).fit(log).weights_
    tables = [columns(one) for one in log.values()]
    structured = []
    for table in tables:
        array = np.empty(len(table["reward"]), dtype=[(name, column.dtype) for name, column in table.items()])
        for name, column in table.items():
            array[name] = column
        structured.append(array)

    class Capsule:
        """Has the Arrow interface alone."""

        def __init__(self, table: dict[str, np.ndarray]) -> None:
            self.table = pyarrow.table(table)

        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            return self.table.__arrow_c_stream__(requested_schema)

    named = [dict(zip(one, [np.array(x) for x in one.values()])) for one in log.values()]
    kinds: dict[str, Any] = {
        "dictionaries": named,
        "columns": tables,
        "pandas": [pandas.DataFrame(table) for table in tables],
        "polars": [polars.DataFrame(table) for table in tables],
        "pyarrow": [pyarrow.table(table) for table in tables],
        "capsules": [Capsule(table) for table in tables],
        "structured": structured,
    }
    for kind, given in kinds.items():
        np.testing.assert_array_equal(ValueFunction(gamma=0.95).fit(given).weights_, expected, err_msg=kind)
    # Episodes are found without their numbers.
    tuples = [tuple(one[key] for key in ("states", "rewards", "next_states", "terminated", "truncated")) for one in log.values()]
    np.testing.assert_allclose(ValueFunction(gamma=0.95).fit(tuples).weights_, expected, rtol=1e-12)
    # One table with a column of agents, by names and by numbers.
    for labels in (list(log), [0, 1, 2]):
        whole = pandas.concat([pandas.DataFrame(t).assign(robot=label) for t, label in zip(tables, labels)])
        value = ValueFunction(gamma=0.95, agent_column="robot").fit(whole)
        np.testing.assert_array_equal(value.weights_, expected)
        assert value.agents_ == [str(label) for label in labels]
    renamed = [pandas.DataFrame(t).rename(columns={"reward": "r", "s_0": "obs_0", "s_1": "obs_1"}) for t in tables]
    value = ValueFunction(gamma=0.95, columns={"reward": "r", "s_*": "obs_*"}).fit(renamed)
    np.testing.assert_array_equal(value.weights_, expected)


def test_the_value_of_a_policy_has_an_interval_for_each_agent() -> None:
    value = ValueFunction(gamma=0.95).fit(agents())
    for method in ("fitted", "importance"):
        found = value.value(method)
        assert found.level == 0.95 and list(found.agents) == value.agents_
        assert found.all.low < found.mean < found.all.high and found.all.episodes == 90
    # Those that slip more take longer.
    means = [one.mean for one in value.value("importance").agents.values()]
    assert means[0] > means[1] > means[2]
    with pytest.raises(fedsa.NotAvailable, match="probabilities of all actions"):
        value.value("doubly_robust")


def test_logs_of_another_policy_are_weighted() -> None:
    """Two actions from one state, which end the episode with the rewards 0 and 1; the behaviour is fair, the target takes 1 with 0.9."""
    rng = np.random.default_rng(0)
    n = 4000
    action = rng.integers(0, 2, n)
    target = np.where(action == 1, 0.9, 0.1)
    log = {
        "states": np.ones((n, 1)),
        "next_states": np.ones((n, 1)),
        "rewards": action.astype(float),
        "terminated": np.ones(n, dtype=bool),
        "target": target,
        "behaviour": np.full(n, 0.5),
    }
    value = ValueFunction(gamma=0.9, features="identity").fit([log])
    found = value.value("importance").all
    assert abs(found.mean - 0.9) < 4 * found.se < 0.1
    assert abs(value.weights_[0] - 0.9) < 0.05
    plain = ValueFunction(gamma=0.9, features="identity").fit([{k: v for k, v in log.items() if k not in ("target", "behaviour")}])
    assert abs(plain.weights_[0] - 0.5) < 0.05
    both = np.column_stack([np.full(n, 0.1), np.full(n, 0.9)])
    robust = {"states": log["states"], "next_states": log["next_states"], "rewards": log["rewards"], "terminated": log["terminated"]}
    robust |= {"action": action, "ratio": target / 0.5, "target": both, "target_next": both}
    assert abs(ValueFunction(gamma=0.9, features="identity").fit([robust]).value("doubly_robust").mean - 0.9) < 0.02


@pytest.fixture
def data_of_two(tmp_path: Path) -> tuple[Path, Path]:
    """Folders with the logs of two policies."""
    for k, name in enumerate(("here", "there")):
        (tmp_path / name).mkdir()
        for i in range(2):
            write_csv(tmp_path / name / f"agent_{i}.csv", columns(walks(30, 0.1 + 0.2 * k, 10 * k + i)))
    return tmp_path / "here", tmp_path / "there"


def test_the_summary_says_whether_the_federation_helps() -> None:
    value = ValueFunction(gamma=0.95, holdout=0.3).fit(agents())
    table = value.summary()
    assert [row["agent"] for row in table.rows] == [*value.agents_, "all agents"]
    assert {row["does it help?"] for row in table.rows} <= {"yes", "no", "not clear", "no difference", "not known"}
    assert table.rows[-1]["federated"].mean > 0
    assert "held-out" in str(table) and "<table>" in table.to_html()
    weights = ValueFunction(gamma=0.95).fit(agents()).summary()
    assert weights.columns == ["feature", "weight"] and weights.rows[0]["weight"].se > 0


def test_differences_within_rounding_are_none() -> None:
    # Both agents walk the same two states: their own weights are the federated ones but for rounding.
    walk = np.tile([[0.0], [1.0]], (50, 1))
    log = {"states": walk, "next_states": 1.0 - walk, "rewards": walk[:, 0], "terminated": np.zeros(100, bool)}
    log["episode"] = np.repeat(np.arange(10), 10)
    table = ValueFunction(gamma=0.9, features="identity:bias", ridge=0.0, holdout=0.5).fit([log, log]).summary()
    assert [row["does it help?"] for row in table.rows] == ["no difference"] * 3


def test_two_policies_are_compared(data_of_two: tuple[Path, Path]) -> None:
    here, there = (ValueFunction(gamma=0.95).fit(str(folder)) for folder in data_of_two)
    value = here.value()
    difference = value.against(there.value())
    # Welch's interval, computed here.
    a, b = value.all, there.value().all
    assert difference.mean == a.mean - b.mean and abs(difference.se - np.hypot(a.se, b.se)) < 1e-12
    stats = pytest.importorskip("scipy.stats")
    freedom = (a.se**2 + b.se**2) ** 2 / (a.se**4 / (a.episodes - 1) + b.se**4 / (b.episodes - 1))
    assert abs(difference.high - difference.mean - stats.t.ppf(0.975, freedom) * difference.se) < 1e-9
    with pytest.raises(fedsa.InputError, match="by fitted values"):
        here.value("importance").against(there.value())


def test_rows_that_cannot_be_read_are_left_out_on_request(data_of_two: tuple[Path, Path]) -> None:
    folder, _ = data_of_two
    whole = ValueFunction(gamma=0.95).fit(str(folder))
    assert whole.logs_["transitions"] == sum(agent["transitions"] for agent in whole.logs_["agents"]) and whole.logs_["left_out"] == []
    first = sorted(folder.iterdir())[0]
    lines = first.read_text().splitlines()
    first.write_text("\n".join([*lines[:3], "a,b", *lines[3:]]) + "\n")
    with pytest.raises(fedsa.InputError, match=f"{first.name}"):
        ValueFunction(gamma=0.95).fit(str(folder))
    with pytest.warns(fedsa.FedsaWarning, match=f"1 row of .*{first.name}"):
        some = ValueFunction(gamma=0.95, bad_rows="skip").fit(str(folder))
    assert some.logs_["transitions"] == whole.logs_["transitions"] and some.logs_["left_out"][0]["rows"] == 1
    with pytest.raises(fedsa.InputError, match="one of refuse, skip"):
        ValueFunction(bad_rows="keep").fit(agents())


def test_episodes_of_arrays_are_found_by_their_ends() -> None:
    numbered = ValueFunction(gamma=0.95, holdout=0.3).fit(agents())
    found = ValueFunction(gamma=0.95, holdout=0.3).fit([{k: v for k, v in log.items() if k != "episode"} for log in agents().values()])
    np.testing.assert_array_equal(found.weights_, numbered.weights_)
    assert found.summary().rows == numbered.summary().rows


def test_next_states_may_be_those_of_the_following_rows(tmp_path: Path) -> None:
    without = [{k: v for k, v in log.items() if k != "next_states"} for log in agents().values()]
    files = []
    for i, log in enumerate(agents().values()):
        files.append(tmp_path / f"agent_{i}.csv")
        write_csv(files[-1], {k: v for k, v in columns(log).items() if not k.startswith("next_")})
    in_files = ValueFunction(gamma=0.95).fit(files)
    np.testing.assert_array_equal(ValueFunction(gamma=0.95).fit(without).weights_, in_files.weights_)


def test_the_score_is_the_error_against_returns() -> None:
    value = ValueFunction(gamma=0.95).fit(agents())
    new = walks(20, 0.2, 99)
    returns, misses = np.zeros(len(new["rewards"])), []
    for i in reversed(range(len(returns))):
        ended = new["terminated"][i]
        known = ended or (i + 1 < len(returns) and not new["truncated"][i] and not np.isnan(returns[i + 1]))
        returns[i] = new["rewards"][i] + (0.0 if ended else 0.95 * returns[i + 1]) if known else np.nan
    misses = (value.predict(new["states"]) - returns)[~np.isnan(returns)]
    assert abs(value.score([new]) + np.sqrt(np.mean(misses**2))) < 1e-12
    errors = value.errors({"a": new, "b": walks(20, 0.3, 98)})
    assert list(errors) == ["a", "b", "all agents"] and errors["a"].se > 0


def test_pictures_and_costs(tmp_path: Path) -> None:
    value = ValueFunction(gamma=0.95, holdout=0.2).fit(agents())
    for what in ("value", "returns", "methods"):
        assert value.plot(what).svg.startswith("<svg"), what
    value.plot().save(tmp_path / "value.png")
    named = ValueFunction(gamma=0.95, value_columns=["s_1"]).fit(agents())
    assert named.plot().svg != value.plot().svg
    spent = value.costs_["lstd"]
    assert spent.rounds == value.n_iter_ > 0 and spent.bits > spent.bits_up > 0
    assert value.choice_["method"] == "lstd" and len(value.choice_["considered"]) > 1
    assert value.results_.labels


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_a_fit_is_copied_with_all_that_it_found(copied: Any) -> None:
    value = ValueFunction(gamma=0.95, holdout=0.2).fit(agents())
    again = copied(value)
    states = agents()["agent_0"]["states"]
    for a, b in zip(again.predict(states, return_std=True), value.predict(states, return_std=True)):
        np.testing.assert_array_equal(a, b)
    assert str(again.summary()) == str(value.summary()) and again.value() == value.value()
    assert repr(again) == repr(value) == "ValueFunction(holdout=0.2, gamma=0.95)"


def test_states_go_by_the_names_of_their_columns() -> None:
    import pandas

    value = ValueFunction(gamma=0.95).fit(agents())
    states = agents()["agent_0"]["states"]
    frame = pandas.DataFrame({"s_1": states[:, 1], "other": 0.0, "s_0": states[:, 0]})
    np.testing.assert_array_equal(value.predict(frame), value.predict(states))
    np.testing.assert_array_equal(value.predict({"s_0": states[:, 0], "s_1": states[:, 1]}), value.predict(states))


def one(**change: Any) -> Any:
    """An agent with one array changed."""
    return [{**walks(5, 0.1, 0), **change}]


LOG = walks(5, 0.1, 0)
N = len(LOG["rewards"])


def nan_at(x: np.ndarray) -> np.ndarray:
    x = x.copy()
    x.flat[3] = np.nan
    return x


BAD: dict[str, tuple[Any, str]] = {
    "no agents": ([], "no agents"),
    "no transitions": ([{key: x[:0] for key, x in LOG.items()}], "without transitions"),
    "a number": (3, "an object of the type int"),
    "numbers": ([3.0], "an object of the type float"),
    "a missing file": (["no/such/file.parquet"], "no/such/file"),
    "files and arrays": (["a.csv", LOG], "agent 0 is the name of a file"),
    "too short a tuple": ([(LOG["states"], LOG["rewards"])], "a tuple of 2 parts"),
    "lengths that differ": (one(rewards=LOG["rewards"][:-1]), "different numbers of transitions"),
    "NaN in states": (one(states=nan_at(LOG["states"])), "NaN is not a finite number"),
    "NaN in rewards": (one(rewards=nan_at(LOG["rewards"])), "NaN is not a finite number"),
    "flags that are none": (one(terminated=np.full(N, 2)), "row 0 is 2"),
    "three dimensions": (one(states=np.zeros((N, 2, 2))), "an array of shape"),
    "rewards of two dimensions": (one(rewards=np.zeros((N, 2))), "an array of shape"),
    "objects": (one(rewards=np.full(N, None)), "rewards"),
    "complex": (one(rewards=np.zeros(N, dtype=complex)), "Complex data not supported"),
    "texts": (one(states=np.full((N, 2), "x", dtype=object)), "could not convert string"),
    "state columns that differ": ([LOG, {**LOG, "states": LOG["states"][:, :1], "next_states": LOG["next_states"][:, :1]}], "column"),
    "no next states": ([{k: LOG[k] for k in ("states", "rewards", "terminated")}], "next_0"),
    "no rewards": ([{k: v for k, v in LOG.items() if k != "rewards"}], "reward"),
    "ratios below 0": (one(ratio=-np.ones(N)), "not an importance ratio"),
    "behaviour of 0": (one(target=np.ones(N), behaviour=np.zeros(N)), "row 0 is 0"),
    "an episode that comes back": (one(episode=np.arange(N) % 2), "goes on after"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_agents_are_refused_with_a_helpful_text(case: str) -> None:
    agents, words = BAD[case]
    with pytest.raises((fedsa.InputError, TypeError)) as raised:
        ValueFunction(gamma=0.9).fit(agents)
    assert words in str(raised.value)
    assert not isinstance(raised.value, fedsa.FedsaError) or raised.value.help


SETTINGS: dict[str, tuple[dict[str, Any], str]] = {
    "gamma": ({"gamma": 1.5}, "gamma"),
    "gamma as text": ({"gamma": "0.9"}, "a number"),
    "features": ({"features": "fuorier:3"}, "fourier"),
    "a factor": ({"features": "one-hot(s_0) * fuorier:3"}, "`fuorier:3` at character 16"),
    "a column of a factor": ({"features": "identity(x) * fourier:3"}, "no state column `x`"),
    "method": ({"method": "lsdt"}, "lstd"),
    "holdout": ({"holdout": 1.5}, "holdout"),
    "level": ({"level": 0.0}, "level"),
    "ranges": ({"ranges": {"s_0": 3}}, "a list of two"),
    "columns": ({"columns": {"rewards": "r"}}, "a log has no column"),
    "agent_column": ({"agent_column": "robot"}, "robot"),
    "max_rounds": ({"max_rounds": 1.5}, "a whole number"),
    "seed": ({"seed": -1}, "seed"),
    "a step of a method": ({"method": "scafflsa", "local_steps": 0}, "local_steps"),
    "value_columns": ({"value_columns": ["s_7"]}, "s_7"),
    "flag": ({"keep_matrices": 1}, "true or false"),
}


@pytest.mark.parametrize("case", SETTINGS)
def test_bad_settings_are_refused_with_their_name(case: str) -> None:
    settings, words = SETTINGS[case]
    with pytest.raises(fedsa.InputError) as raised:
        ValueFunction(**settings).fit(agents())
    assert words in str(raised.value) and raised.value.help


def test_bad_states_are_refused() -> None:
    value = ValueFunction(gamma=0.95).fit(agents())
    for states, words in (
        (np.zeros((3, 3)), r"shape \(3, 3\)"),
        (np.zeros(2), r"states.reshape\(1, -1\)"),
        ([["a", "b"]], "could not convert"),
        ([[np.nan, 0.0]], "contains NaN"),
        ({"s_0": [1.0]}, "no column `s_1`"),
    ):
        with pytest.raises(fedsa.InputError, match=words):
            value.predict(states)
    with pytest.raises(fedsa.InputError, match="not fitted"):
        ValueFunction().predict([[0.0]])
    with pytest.raises(TypeError, match="keyword argument 'gama'"):
        ValueFunction(gama=0.9)  # type: ignore[call-arg]


@pytest.mark.parametrize("other", ["fortran", "strided", "big-endian", "read-only", "float32", "list"])
def test_arrays_of_any_layout_have_one_result(other: str) -> None:
    states = LOG["states"].astype(np.float32).astype(np.float64)
    wide = np.zeros((N, 4))
    wide[:, ::2] = states
    read_only = states.copy()
    read_only.flags.writeable = False
    layouts = {
        "fortran": np.asfortranarray(states),
        "strided": wide[:, ::2],
        "big-endian": states.astype(">f8"),
        "read-only": read_only,
        "float32": states.astype(np.float32),
        "list": states.tolist(),
    }
    found = ValueFunction(gamma=0.9).fit(one(states=layouts[other]))
    np.testing.assert_array_equal(found.weights_, ValueFunction(gamma=0.9).fit(one(states=states)).weights_)


def two_rewards(**more: Any) -> dict[str, Any]:
    """Episodes of three steps in which the second of two actions is rewarded; the one that acts takes both alike."""
    rng = np.random.default_rng(1)
    n = 500
    state, action = np.tile([0, 1, 2], n), rng.integers(0, 2, 3 * n)
    log = dict(states=state[:, None], rewards=action * 1.0, next_states=state[:, None] + 1, terminated=state == 2, episode=np.repeat(np.arange(n), 3))
    return {**log, **more}


def test_one_probability_without_the_other_is_refused() -> None:
    taken = two_rewards()["rewards"]
    target, behaviour = np.where(taken == 1.0, 0.9, 0.1), np.full(len(taken), 0.5)
    value = fedsa.ValueFunction(gamma=0.9, features="one-hot")
    value.fit([two_rewards(target=target, behaviour=behaviour)])
    for bad, words in (
        (dict(target=target), "a column `target`, and no column `behaviour`"),
        (dict(behaviour=behaviour), "a column `behaviour`, and no column `target`"),
        (dict(target=target, behaviours=behaviour), "did you mean `behaviour`"),
        (dict(ratios=target), "`ratios` is no column; did you mean `ratio`"),
        (dict(episodes_=target), "did you mean `episodes`"),
    ):
        with pytest.raises(fedsa.InputError, match=words):
            value.fit([two_rewards(**bad)])
    # Columns that are called otherwise, matrices of all actions, and names that are like none.
    value.fit([two_rewards(target=target, behavior=behaviour)])
    mapped = fedsa.ValueFunction(gamma=0.9, features="one-hot", columns={"behaviour": "acted"})
    assert abs(mapped.fit([two_rewards(target=target, acted=behaviour)]).value().all.mean - value.value().all.mean) < 1e-12
    value.fit([two_rewards(weather=target, remark=target, target=target, behaviour=behaviour)])


def test_a_table_with_a_target_of_its_own_is_refused_as_a_file_is(tmp_path: Path) -> None:
    pandas = needs("pandas")
    log = two_rewards()
    frame = pandas.DataFrame({"s_0": log["states"][:, 0], "next_0": log["next_states"][:, 0], "reward": log["rewards"], "done": log["terminated"]})
    frame = frame.assign(target=1.0)
    frame.to_csv(tmp_path / "log.csv", index=False)
    for given in ([frame], [str(tmp_path / "log.csv")]):
        with pytest.raises(fedsa.InputError, match="a column `target`, and no column `behaviour`"):
            fedsa.ValueFunction(gamma=0.9, features="one-hot").fit(given)


def turning(agents: int = 3) -> list[dict[str, Any]]:
    """States on a circle: of degree two, cos^2 + sin^2 = 1 and the constant are collinear."""
    logs = []
    for seed in range(agents):
        rng = np.random.default_rng(seed)
        angle = rng.uniform(-np.pi, np.pi, 400)
        following = angle + 0.3 + 0.1 * rng.normal(size=400)
        states, then = (np.column_stack([np.cos(x), np.sin(x)]) for x in (angle, following))
        logs.append(dict(states=states, rewards=np.cos(angle), next_states=then, terminated=rng.random(400) < 0.05))
    return logs


def test_a_fit_that_misses_its_tolerance_warns_and_names_the_cause() -> None:
    rounds = {}
    for settings in (dict(), dict(method="lstd"), dict(method="gmres", max_rounds=200)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            fit = fedsa.ValueFunction(gamma=0.9, features="polynomial:2", ridge=0.0, **settings).fit(turning())
        rounds[str(settings.get("method"))] = fit.n_iter_
        caught = [warning for warning in caught if "order of time" not in str(warning.message)]
        if fit.outcome_.name in ("converged", "completed"):
            assert not caught
            continue
        (warning,) = caught
        assert "its features are collinear: 5 of 6 directions are independent" in str(warning.message)
        assert "ridge=" in str(warning.message) and warning.filename == __file__
    # The first round solves the system.
    assert rounds["lstd"] <= 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*order of time")
        assert fedsa.ValueFunction(gamma=0.9, features="polynomial:2", ridge=1e-8).fit(turning()).outcome_.name == "converged"


def test_a_slow_fit_that_stalls_warns() -> None:
    with pytest.warns(fedsa.FedsaWarning, match="stalled|max-rounds"):
        fedsa.ValueFunction(gamma=0.9, features="polynomial:1", method="gmres", tol=1e-300, max_rounds=100).fit(turning())


def test_a_score_without_returns_warns() -> None:
    log = {**turning(1)[0], "terminated": np.zeros(400, bool)}
    fit = fedsa.ValueFunction(gamma=0.9, features="polynomial:1").fit([log])
    with pytest.warns(fedsa.FedsaWarning, match="no episode of these logs terminates"):
        assert np.isnan(fit.score([log]))


def test_settings_are_called_as_they_are_given(tmp_path: Path) -> None:
    with pytest.raises(fedsa.InputError) as refused:
        fedsa.ValueFunction(gamma=0.9, lam=2.0).fit(turning())
    assert refused.value.key == "lam" and str(refused.value).startswith("lam")
    fedsa.ValueFunction(gamma=0.9, features="polynomial:1").fit(turning()).save(tmp_path)
    with pytest.raises(fedsa.NotAvailable, match="this value function is of a file"):
        fedsa.ValueFunction.load(tmp_path).value()
    with pytest.raises(fedsa.InputError, match="half a surrogate pair"):
        fedsa.ValueFunction(gamma=0.9).fit({"\udc80": turning(1)[0]})


def test_a_search_of_scikit_learn_runs_over_value_functions() -> None:
    selection = needs("sklearn.model_selection")
    logs = [two_rewards() for _ in range(4)]
    search = selection.GridSearchCV(fedsa.ValueFunction(gamma=0.9, features="one-hot"), {"ridge": [0.0, 1e-3]}, cv=2)
    assert search.fit(logs).best_params_["ridge"] in (0.0, 1e-3)


def test_a_fit_can_be_cancelled_while_it_is_built() -> None:
    rng = np.random.default_rng(0)
    states = rng.normal(size=(60_000, 10))
    ends = np.arange(len(states)) % 100 == 99
    log = dict(states=states, rewards=states[:, 0], next_states=np.roll(states, 1, 0), terminated=ends)
    token, stages = fedsa.CancelToken(), []

    def seen(progress: fedsa.Progress) -> None:
        stages.append(progress.stage)
        token.cancel()

    began = time.monotonic()
    with pytest.raises(fedsa.Cancelled):
        fedsa.ValueFunction(gamma=0.9, features="polynomial:4").fit([log], progress=seen, cancel=token)
    # The whole takes a minute.
    assert stages[0] == "building" and time.monotonic() - began < 10.0


def test_ratios_that_cannot_be_right_have_no_value_and_say_why() -> None:
    log = walks(40, 0.1, 0)
    wrong = {**log, "ratio": np.full(len(log["rewards"]), 1e7)}
    with pytest.warns(fedsa.FedsaWarning, match="no value of the policy is estimated: the mean importance ratio of"):
        function = fedsa.ValueFunction(gamma=0.9, features="polynomial:1").fit([wrong])
    for method in ("fitted", "importance"):
        with pytest.raises(fedsa.NotAvailable, match="and should be 1"):
            function.value(method)  # type: ignore[arg-type]
    assert "value of the start states" not in str(function.summary())
    right = {**log, "ratio": np.where(np.arange(len(log["rewards"])) % 2, 0.8, 1.2)}
    assert np.isfinite(fedsa.ValueFunction(gamma=0.9, features="polynomial:1").fit([right]).value("importance").all.mean)


def test_ratios_that_are_all_zero_are_refused() -> None:
    log = two_rewards()
    zeros = np.zeros(len(log["rewards"]))
    with pytest.raises(fedsa.InputError, match="all importance ratios are 0"):
        fedsa.ValueFunction(gamma=0.9, features="one-hot").fit([{**log, "ratio": zeros}])
