"""Recordings of Gymnasium, alone and in vectors, and data sets of Minari."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from needs import needs

import fedsa
from fedsa.gym import Recording, read_minari, record

gymnasium = needs("gymnasium")


class Chain(gymnasium.Env[np.ndarray, int]):
    """Steps 0, 1, 2, .. to `end`, with reward 1 + state; cut short after `limit` steps where there is a limit."""

    def __init__(self, end: int = 4, limit: int | None = None, start: int = 0) -> None:
        self.observation_space = gymnasium.spaces.Box(0.0, 100.0, (2,), np.float64)
        self.action_space = gymnasium.spaces.Discrete(2)
        self.end, self.limit, self.start, self.resets, self.actions = end, limit, start, 0, []

    def observation(self) -> np.ndarray:
        return np.array([self.x, self.resets], dtype=np.float64)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.x, self.steps = self.start, 0
        self.resets += 1
        return self.observation(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.actions.append(int(action))
        reward = 1.0 + self.x
        self.x += 1
        self.steps += 1
        return self.observation(), reward, self.x == self.end, self.steps == self.limit, {}


def expected(recording: Recording, env: int, episodes: int, length: int) -> None:
    """Checks the episodes of one copy: whole, in order, with the true last observations."""
    for k in range(episodes):
        rows = np.flatnonzero((recording.states[:, 1] == k + 1) & (recording.episode >= 0))
        of_env = [row for row in rows if recording.episode[row] == recording.episode[rows[0]]]
        np.testing.assert_array_equal(recording.states[of_env, 0], np.arange(length), err_msg=f"env {env}")


def test_terminated_and_truncated_are_kept_apart() -> None:
    ended = record(Chain(4), lambda s: 0, 3)
    assert (ended.terminated.sum(), ended.truncated.sum(), len(ended), ended.episodes) == (3, 0, 12, 3)
    cut = record(Chain(9, limit=4), lambda s: 0, 3)
    assert (cut.terminated.sum(), cut.truncated.sum(), len(cut)) == (0, 3, 12)
    np.testing.assert_array_equal(cut.next_states[:4], [[1, 1], [2, 1], [3, 1], [4, 1]])
    np.testing.assert_array_equal(cut.rewards[:4], [1, 2, 3, 4])
    # Both at once is an end.
    both = record(Chain(4, limit=4), lambda s: 0, 1)
    assert both.terminated[-1] and not both.truncated[-1]
    # Without a limit of its own.
    limited = record(Chain(10**9), lambda s: 0, 2, max_steps=5)
    assert (limited.truncated.sum(), len(limited)) == (2, 10)
    assert "3 episodes (0 terminated, 3 truncated); states (12, 2), rewards (12,)" in repr(cut)
    np.testing.assert_allclose(cut.returns(0.5), [1 + 2 / 2 + 3 / 4 + 4 / 8] * 3)


@pytest.mark.parametrize("mode", ["NEXT_STEP", "SAME_STEP", "DISABLED"])
def test_vector_environments_record_the_same_as_single_ones(mode: str) -> None:
    autoreset = gymnasium.vector.AutoresetMode[mode]
    chains = [Chain(3), Chain(5), Chain(9, limit=4)]
    env = gymnasium.vector.SyncVectorEnv([lambda chain=chain: chain for chain in chains], autoreset_mode=autoreset)
    recording = record(env, lambda s: np.zeros(3, dtype=int), 7)
    alone = [record(Chain(3), lambda s: 0, 3), record(Chain(5), lambda s: 0, 2), record(Chain(9, limit=4), lambda s: 0, 2)]
    for name in ("states", "next_states", "rewards", "terminated", "truncated"):
        np.testing.assert_array_equal(getattr(recording, name), np.concatenate([getattr(one, name) for one in alone]), err_msg=name)
    np.testing.assert_array_equal(recording.episode, np.repeat(np.arange(7), [3, 3, 3, 5, 5, 4, 4]))


def test_actions_after_an_end_are_ignored_and_left_out() -> None:
    """The policy counts its calls; those at resets are not in the recording."""
    calls = iter(range(1000))
    env = gymnasium.vector.SyncVectorEnv([lambda: Chain(2)])
    recording = record(env, lambda s: np.array([next(calls) % 2]), 3)
    assert recording.actions is not None
    # Steps 0 and 1, reset in step 2, steps 3 and 4, reset in step 5, ..
    np.testing.assert_array_equal(recording.actions, [0, 1, 1, 0, 0, 1])
    assert (recording.rewards > 0).all()


def test_seeds_make_recordings_the_same() -> None:
    for options in ({}, {"num_envs": 3}):
        a, b = (record("CartPole-v1", None, 6, seed=3, **options) for _ in range(2))
        np.testing.assert_array_equal(a.states, b.states)
        c = record("CartPole-v1", None, 6, seed=4, **options)
        assert a.states.shape != c.states.shape or (a.states != c.states).any()
        assert a.name == "CartPole-v1" and a.states.shape[1] == 4 and a.episodes == 6


def test_a_recording_is_fitted_and_written(tmp_path: Path) -> None:
    robots = [record("CartPole-v1", None, 10, seed=seed) for seed in range(3)]
    value = fedsa.ValueFunction(gamma=0.95).fit(robots)
    assert value.value().all.episodes == 30
    for ending in ("csv", "parquet"):
        for i, robot in enumerate(robots):
            robot.save(tmp_path / f"agent_{i}.{ending}")
        files = [tmp_path / f"agent_{i}.{ending}" for i in range(3)]
        again = fedsa.ValueFunction(gamma=0.95).fit(files)
        np.testing.assert_array_equal(again.weights_, value.weights_)
        out = tmp_path / f"out-{ending}"
        command = [sys.executable, "-m", "fedsa", "evaluate", *map(str, files), "--gamma", "0.95", "--out", str(out)]
        assert subprocess.run(command, capture_output=True).returncode == 0
        np.testing.assert_array_equal(fedsa.ValueFunction.load(out).weights_, value.weights_)
    with pytest.raises(fedsa.InputError, match="csv"):
        robots[0].save(tmp_path / "x.json")


def test_probabilities_make_ratios() -> None:
    rng = np.random.default_rng(0)
    target = lambda s, a: (0.9 if a == 1 else 0.1, 0.5)  # noqa: E731
    recording = record(Chain(3), lambda s: int(rng.integers(2)), 20, probabilities=target)
    assert recording.target is not None and recording.actions is not None and recording.behaviour is not None
    np.testing.assert_array_equal(recording.target, np.where(recording.actions == 1, 0.9, 0.1))
    assert (recording.behaviour == 0.5).all()
    env = gymnasium.vector.SyncVectorEnv([lambda: Chain(3), lambda: Chain(3)])
    many = record(env, lambda s: rng.integers(0, 2, 2), 20, probabilities=lambda s, a: (np.where(a == 1, 0.9, 0.1), np.full(2, 0.5)))
    np.testing.assert_array_equal(many.target, np.where(many.actions == 1, 0.9, 0.1))
    assert fedsa.ValueFunction(gamma=0.9).fit([recording, many]).value("importance").all.effective_episodes < 40


def test_observations_of_dictionaries_are_flattened() -> None:
    class Named(Chain):
        def __init__(self) -> None:
            super().__init__(3)
            inner = {"b": gymnasium.spaces.Box(0, 9, (1,), np.float64), "a": gymnasium.spaces.Discrete(3)}
            self.observation_space = gymnasium.spaces.Dict(inner)

        def observation(self) -> Any:
            return {"b": np.array([self.x], dtype=np.float64), "a": 1}

    assert record(Named(), lambda s: 0, 1).states.tolist() == [[0, 1, 0, 0], [0, 1, 0, 1], [0, 1, 0, 2]]
    taxi = record("Taxi-v4", None, 1, seed=0, max_steps=5)
    assert taxi.states.shape == (5, 1)


BAD: dict[str, tuple[Any, type[Exception], str]] = {
    "episodes": (lambda: record(Chain(), lambda s: 0, 0), fedsa.InputError, "at least 1"),
    "policy": (lambda: record(Chain(), 3, 1), fedsa.InputError, "not callable"),  # type: ignore[arg-type]
    "environment": (lambda: record(3, lambda s: 0, 1), fedsa.InputError, "has no reset"),
    "keyword": (lambda: record(Chain(), lambda s: 0, 1, sead=3), TypeError, "keyword argument 'sead'"),  # type: ignore[call-arg]
    "copies of an environment": (lambda: record(Chain(), lambda s: 0, 1, num_envs=2), fedsa.InputError, "num_envs"),
    "an unknown id": (lambda: record("NoSuch-v0", None, 1), gymnasium.error.Error, "NoSuch"),
    "texts": (lambda: record(Texts(), lambda s: 0, 1), fedsa.InputError, "observations of numbers"),
}


class Texts(Chain):
    """Observations that are no numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = gymnasium.spaces.Text(5)

    def observation(self) -> Any:
        return "abc"


@pytest.mark.parametrize("case", BAD)
def test_bad_arguments_are_refused(case: str) -> None:
    call, error, words = BAD[case]
    with pytest.raises(error, match=words):
        call()


def test_a_closed_environment_is_refused() -> None:
    env = gymnasium.vector.SyncVectorEnv([Chain])
    env.close()
    with pytest.raises(fedsa.InputError, match="is closed"):
        record(env, lambda s: np.zeros(1, dtype=int), 1)


def test_what_a_policy_raises_is_passed_on() -> None:
    def broken(state: Any) -> int:
        raise RuntimeError("no idea")

    with pytest.raises(RuntimeError, match="no idea"):
        record(Chain(), broken, 1)


def episodes() -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    made = []
    for i, n in enumerate((4, 7, 12)):
        one = {"observations": rng.normal(size=(n + 1, 3)), "actions": rng.integers(0, 2, n), "rewards": rng.normal(size=n)}
        ends = np.arange(n) == n - 1
        made.append({**one, "terminations": ends & (i != 1), "truncations": ends & (i == 1)})
    return made


def check(recording: Recording) -> None:
    made = episodes()
    np.testing.assert_array_equal(recording.states, np.concatenate([one["observations"][:-1] for one in made]))
    np.testing.assert_array_equal(recording.next_states, np.concatenate([one["observations"][1:] for one in made]))
    np.testing.assert_array_equal(recording.rewards, np.concatenate([one["rewards"] for one in made]))
    np.testing.assert_array_equal(recording.actions, np.concatenate([one["actions"] for one in made]))
    assert recording.episode.tolist() == [0] * 4 + [1] * 7 + [2] * 12
    assert (recording.terminated.sum(), recording.truncated.sum()) == (2, 1)


def test_data_sets_of_minari_in_hdf5_are_read(tmp_path: Path) -> None:
    """As minari/dataset/_storages/hdf5_storage.py lays them out: episodes 0, 1, 10 in the order of their numbers."""
    h5py = needs("h5py")
    (tmp_path / "data").mkdir()
    with h5py.File(tmp_path / "data" / "main_data.hdf5", "w") as file:
        for number, one in zip((0, 2, 10), episodes()):
            group = file.create_group(f"episode_{number}")
            for name, value in one.items():
                group[name] = value
    for path in (tmp_path, tmp_path / "data", tmp_path / "data" / "main_data.hdf5"):
        check(read_minari(path))
    assert read_minari(tmp_path, episodes=2).episodes == 2
    with h5py.File(tmp_path / "data" / "main_data.hdf5", "r+") as file:
        names = file["episode_2"]["observations"][...]
        del file["episode_2"]["observations"]
        inside = file["episode_2"].create_group("observations")
        inside["goal"], inside["at"] = names[:, :1], names[:, 1:]
        del file["episode_0"], file["episode_10"]
    np.testing.assert_array_equal(read_minari(tmp_path).states, episodes()[1]["observations"][:-1][:, [1, 2, 0]])


def test_data_sets_of_minari_in_arrow_are_read(tmp_path: Path) -> None:
    """As minari/dataset/_storages/arrow_storage.py lays them out: steps are padded by a row that does not count."""
    pyarrow = needs("pyarrow")
    import pyarrow.ipc

    for number, one in zip((0, 2, 10), episodes()):
        folder = tmp_path / "data" / str(number)
        folder.mkdir(parents=True)
        pad = {name: np.pad(value, (0, 1)) for name, value in one.items() if name != "observations"}
        lists = pyarrow.FixedSizeListArray.from_arrays(one["observations"].reshape(-1), 3)
        table = pyarrow.table({"observations": lists, **pad})
        with pyarrow.ipc.new_file(folder / "part-0.arrow", table.schema) as file:
            file.write_table(table)
        (folder / "metadata.json").write_text("{}")
    check(read_minari(tmp_path))


def test_what_is_no_data_set_of_minari_is_refused(tmp_path: Path) -> None:
    with pytest.raises(fedsa.InputError, match="there is no"):
        read_minari(tmp_path / "none")
    with pytest.raises(fedsa.InputError, match="neither main_data.hdf5 nor episodes"):
        read_minari(tmp_path)
    (tmp_path / "main_data.hdf5").write_text("not HDF5")
    with pytest.raises(fedsa.InputError, match="cannot be read"):
        read_minari(tmp_path)


class Line:
    """An environment of two steps whose state is the time."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.time = 0.0
        return [self.time], {}

    def step(self, action: Any) -> Any:
        self.time += 1.0
        return [self.time], float(np.sum(action)), self.time >= 2.0, False, {}


def test_actions_are_copied() -> None:
    buffer, given = np.zeros(1), []

    def policy(_: Any) -> Any:
        buffer[0] = len(given)
        given.append(float(buffer[0]))
        return buffer

    recording = fedsa.gym.record(Line(), policy, 3)
    assert recording.actions is not None and recording.actions.ravel().tolist() == given == recording.rewards.tolist()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (lambda s, a: 0.5, "it returns a float"),
        (lambda s, a: (0.5,), r"shape \(1,\)"),
        (lambda s, a: (np.nan, 0.5), "nan"),
        (lambda s, a: (0.5, 0.0), r"\(0.5, 0.0\)"),
        (lambda s, a: (-0.5, 0.5), "-0.5"),
    ],
)
def test_probabilities_are_checked_where_they_are_made(given: Any, words: str) -> None:
    with pytest.raises(fedsa.InputError, match=words) as refused:
        fedsa.gym.record(Line(), lambda s: 0, 2, probabilities=given)
    assert refused.value.key == "probabilities"


def test_environments_of_the_older_interface_are_refused() -> None:
    class Older(Line):
        def step(self, action: Any) -> Any:
            return [0.0], 0.0, True, {}

    class Oldest(Line):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            return np.zeros(2)

    for env, words in ((Older(), "its step returns a tuple of 4 parts"), (Oldest(), "its reset returns a ndarray")):
        with pytest.raises(fedsa.InputError, match=words) as refused:
            fedsa.gym.record(env, lambda s: 0, 2)
        assert refused.value.key == "env"


def test_seeds_of_numpy_are_seeds() -> None:
    needs("gymnasium")
    one, other = (fedsa.gym.record("CartPole-v1", None, 2, seed=seed) for seed in (3, np.int64(3)))
    assert np.array_equal(one.states, other.states)
    with pytest.raises(fedsa.InputError, match="-1 is not accepted"):
        fedsa.gym.record("CartPole-v1", None, 2, seed=-1)


def test_states_of_a_finite_environment_have_a_weight_each() -> None:
    gymnasium = needs("gymnasium")
    env = gymnasium.make("CliffWalking-v1", max_episode_steps=200)
    fit = fedsa.ValueFunction(gamma=0.95).fit([fedsa.gym.record(env, None, 100, seed=0)])
    assert fit.weights_.shape == (37,), "the 36 states that are not the cliff, and the goal"
    states, actions = env.observation_space.n, env.action_space.n
    step, reward = np.zeros((states, states)), np.zeros(states)
    for state in range(states):
        for action in range(actions):
            for probability, following, value, ends in env.unwrapped.P[state][action]:
                reward[state] += probability * value / actions
                step[state, following] += 0.0 if ends else probability / actions
    value, start = fit.value().all, 36
    assert abs(value.mean - np.linalg.solve(np.eye(states) - 0.95 * step, reward)[start]) < 4 * value.se


def test_states_that_never_change_are_named() -> None:
    needs("gymnasium")
    fit = fedsa.ValueFunction(gamma=0.95).fit([fedsa.gym.record("Blackjack-v1", None, 300, seed=0)])
    assert "states.constant" in [note.code for note in fit.results_.notes]
    by_fit, by_returns = fit.value().all, fit.value("importance").all
    assert abs(by_fit.mean - by_returns.mean) < 4 * by_returns.se


def test_the_figure_of_returns_has_a_line_for_each_agent_and_intervals() -> None:
    def loop(agents: int, episodes: int) -> fedsa.gym.Improvement:
        made = np.random.default_rng(0)
        returns = [{f"robot {c}": made.normal(mean, size=episodes) for c in range(agents)} for mean in (20.0, 150.0)]
        return fedsa.gym.Improvement(None, returns, bits=8_000_000)  # type: ignore[arg-type]

    for agents, episodes, names, has_bands in ((2, 5, 3, True), (8, 5, 9, True), (1, 5, 1, True), (1, 1, 1, False)):
        figure = loop(agents, episodes).plot()
        assert isinstance(figure, fedsa.Figure)
        text = re.sub(r"<[^>]*>", "\n", figure.svg)
        assert [line for line in text.splitlines() if line.startswith("robot")] == [f"robot {c}" for c in range(names - 1)]
        assert "all agents" in text and "iteration" in text and "1 MB up and down" in text and ("intervals of 95%" in text) is has_bands
    assert figure.render("pdf")[:4] == b"%PDF"
