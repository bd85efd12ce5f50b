"""Agents that join, leave for good and come back between rounds; answers that are late, missing, or not to be believed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from needs import NO_RULES
from test_deployed import LOGS, ROWS, Here, Threads, data, engine, settings

import fedsa
from fedsa import _server, federation
from fedsa.federation import Agent, Reply

SCAFFLSA = settings(LOGS, 'kind = "scafflsa"\nstep_size = 0.1\nlocal_steps = 3', "mean", 14)
METHODS = {
    "fedlsa": settings(LOGS, 'kind = "fedlsa"\nstep_size = 0.1\nlocal_steps = 3', "markov", 14),
    "scafflsa": SCAFFLSA,
    "fedhsa": settings(LOGS, 'kind = "fedhsa"\nstep_size = 0.5\nlocal_steps = 3', "mean", 14),
    "newton": settings(ROWS, 'kind = "newton"', "mean", 14),
}
NAMES = ["carol", "alice", "bob", "dave"]

# More lives than a server needs that is killed in each of them and makes progress.
MOST_LIVES = 200


class Stopped(Exception):
    """The server is killed."""


class Changing(Here):
    """Who is there changes from round to round; the server is killed before or after every exchange, if it is to be."""

    def __init__(self, folder: Path, text: str) -> None:
        super().__init__(folder, text)
        self.files, self.names = data(folder, text, 4), NAMES
        self.round, self.dies = 0, ""
        self.carried: set[object] = set()

    def told(self, line: str) -> None:
        """A line of the server: the round that is under way."""
        if line.startswith("round "):
            self.round = int(line.split()[1].rstrip(","))

    def reachable(self) -> Collection[str]:
        there = {"carol", "alice"}
        if self.round >= 2:
            there.add("bob")
        if 5 <= self.round:
            there.add("dave")
        # Alice says nothing, and is back without her state.
        if 4 <= self.round < 9:
            there.discard("alice")
        if self.round >= 9 and not (self.folder / "forgot").exists():
            shutil.rmtree(self.folder / "alice")
            (self.folder / "forgot").touch()
        return [name for name in NAMES if name in there]

    def agent(self, name: str) -> Agent:
        agent = super().agent(name)
        # Carol leaves for good, and is back with her state.
        if name == "carol" and 6 <= self.round < 10:
            agent.leave()
        return agent

    def exchange(self, messages: Mapping[str, bytes], deadline: float) -> Mapping[str, Reply]:
        # Each exchange kills the server once.
        kills = self.dies and (key := tuple(sorted(messages.items()))) not in self.carried
        if kills:
            self.carried.add(key)
            if self.dies == "before":
                raise Stopped
        replies = super().exchange({who: message for who, message in messages.items() if who in self.reachable()}, deadline)
        if kills:
            raise Stopped
        return replies


def lead(here: Changing, **more: Any) -> fedsa.Results:
    rules = {"agents": 1, "most": 4, "deadline": 0.1, "leave_after": 2, "weight_cap": 1.0, **more}
    return federation.serve(here.settings, here, out=here.folder / "out", report=here.told, **rules)


def told(folder: Path) -> dict[str, Any]:
    got: dict[str, Any] = json.loads((folder / "out/summary.json").read_text())["federation"]
    return got


@pytest.fixture
def control_sums(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The norms of the sums of controls at the beginnings of epochs, and at the ends of rounds."""
    sums: list[float] = []

    def watched(name: str) -> None:
        plain = getattr(_server.Server, name)

        def call(self: _server.Server, *args: Any) -> Any:
            result = plain(self, *args)
            assert self.node is not None
            sums.append(self.node.control_sum() or 0.0)
            return result

        monkeypatch.setattr(_server.Server, name, call)

    watched("_begin")
    watched("_end_round")
    return sums


@pytest.mark.parametrize("method", METHODS)
def test_agents_join_leave_and_come_back(tmp_path: Path, method: str, control_sums: list[float]) -> None:
    here = Changing(tmp_path, METHODS[method])
    results = lead(here)
    epochs = told(tmp_path)["epochs"]
    changes = [(one["joined"], one["left"]) for one in epochs]
    assert changes[0] == (["carol", "alice"], []) and changes[1] == (["bob"], [])
    everybody = [change for pair in changes[1:] for change in pair[0]], [change for pair in changes for change in pair[1]]
    assert sorted(everybody[0]) == ["alice", "bob", "carol", "dave"] and sorted(everybody[1]) == ["alice", "carol"]
    assert [one["epoch"] for one in epochs] == list(range(len(epochs))) and {one["epoch"] for one in told(tmp_path)["exchanges"]} == {*range(len(epochs))}
    for one in epochs:
        rows = [agent["rows"] for agent in one["agents"]]
        assert [agent["weight"] for agent in one["agents"]] == [n / sum(rows) for n in rows]
        assert one["messages"] > 0 and one["bytes_down"] > 0
    assert sorted(agent["name"] for agent in epochs[-1]["agents"]) == sorted(NAMES)
    assert max(control_sums) < 1e-12 and (method == "scafflsa") == (max(control_sums) > 0.0)
    assert np.isfinite(results.theta("m")).all() and results.outcomes["m"].name == "incomplete"
    if method == "newton":
        # The optimum of those who are there at the end, whatever was before.
        alone = engine(METHODS[method], here.files)
        assert np.abs(results.theta("m") - alone.theta("m")).max() < 1e-10


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_a_server_that_is_killed_at_every_exchange_has_the_same_epochs_and_bits(tmp_path: Path, method: str, after: bool) -> None:
    def begun(name: str) -> Changing:
        (tmp_path / name).mkdir()
        return Changing(tmp_path / name, METHODS[method])

    whole, killed = begun("whole"), begun("killed")
    expected = lead(whole)
    killed.dies = "after" if after else "before"
    for kills in range(MOST_LIVES):
        try:
            results = lead(killed)
            break
        except Stopped:
            pass
    else:
        raise AssertionError(f"the server has not ended in {MOST_LIVES} lives: after round {killed.round}")
    epochs = [[(one["round"], one["joined"], one["left"]) for one in told(here.folder)["epochs"]] for here in (whole, killed)]
    assert kills > 20 and len(epochs[0]) >= 5 and epochs[0] == epochs[1]
    assert np.array_equal(results.theta("m"), expected.theta("m"))


def test_a_change_that_the_method_does_not_allow_is_none(tmp_path: Path) -> None:
    # Two of two would be all, and all agents get other messages than some.
    text = settings(LOGS, 'kind = "scafflsa"\nstep_size = 0.1\nlocal_steps = 3\nparticipants = 2', "mean", 6)
    here = Here(tmp_path, text)

    def agent(name: str) -> Agent:
        one = Here.agent(here, name)
        if name == "bob" and here.exchanges > 3:
            one.leave()
        return one

    here.agent = agent  # type: ignore[method-assign]
    lines: list[str] = []
    federation.serve(here.settings, here, agents=2, most=3, deadline=0.3, out=tmp_path / "out", report=lines.append)
    assert sum("nobody joins or leaves" in line for line in lines) == 1
    assert len(told(tmp_path)["epochs"]) == 1 and len(told(tmp_path)["agents"]) == 3


def test_too_few_stay_members(tmp_path: Path) -> None:
    here = Here(tmp_path, SCAFFLSA)
    here.reachable = lambda: NAMES[:3] if here.exchanges < 4 else NAMES[:1]  # type: ignore[method-assign]
    lines: list[str] = []
    federation.serve(
        here.settings, here, agents=2, most=3, deadline=0.3, leave_after=1, out=tmp_path / "out", report=lines.append
    )
    assert any("1 agents would be left" in line for line in lines) and len(told(tmp_path)["epochs"]) == 1


def test_threads_may_begin_and_end_between_rounds(tmp_path: Path) -> None:
    text = settings(LOGS, 'kind = "fedlsa"\nstep_size = 0.1\nlocal_steps = 3', "mean", 6)
    here = Here(tmp_path, text)
    agents = {name: Agent(here.settings, here.files[i], number=i if i < 2 else None, rules=NO_RULES) for i, name in enumerate(NAMES[:3])}
    threads = Threads({"carol": agents["carol"], "alice": agents["alice"]})

    def report(line: str) -> None:
        if line.startswith("round 2"):
            more = Threads({"bob": agents["bob"]})
            more.answers = threads.answers
            threads.inboxes |= more.inboxes
        if line.startswith("round 4"):
            agents["carol"].leave()

    federation.serve(here.settings, threads, agents=1, most=3, deadline=0.5, out=tmp_path / "out", report=report)
    assert [(one["joined"], one["left"]) for one in told(tmp_path)["epochs"]] == [(["carol", "alice"], []), (["bob"], []), ([], ["carol"])]
    assert [agent["name"] for agent in told(tmp_path)["agents"]] == ["bob", "alice"]


def test_agents_that_nobody_should_believe_are_excluded_and_leave(tmp_path: Path) -> None:
    here = Here(tmp_path, SCAFFLSA)
    here.files, here.names = data(tmp_path, SCAFFLSA, 4), NAMES
    # A thousand billion times the rewards of the others.
    lines = Path(here.files[2]).read_text().splitlines()
    rows = [line.split(",") for line in lines[1:]]
    Path(here.files[2]).write_text("\n".join([lines[0], *(",".join([*row[:2], str(1e12 * float(row[2])), *row[3:]]) for row in rows)]) + "\n")
    results = federation.serve(here.settings, here, agents=2, most=4, deadline=5.0, norm_limit=1e3, out=tmp_path / "out")
    assert "median" in told(tmp_path)["excluded"]["bob"] and np.abs(results.theta("m")).max() < 1e3
    assert [one["left"] for one in told(tmp_path)["epochs"]] == [[], ["bob"]]


class Deaf(Here):
    """Bob, who has most of the rows, answers no question of a round."""

    def one(self, name: str, message: bytes) -> Reply | None:
        return None if name == "bob" and self.exchanges > 2 else super().one(name, message)


def test_how_missing_answers_count_is_a_setting(tmp_path: Path) -> None:
    text = settings(LOGS, 'kind = "fedlsa"\nstep_size = 0.1\nlocal_steps = 3', "mean", 3)

    def led(name: str, text: str, **more: Any) -> tuple[fedsa.Results, list[str]]:
        (tmp_path / name).mkdir()
        here, lines = Deaf(tmp_path / name, text), []
        results = federation.serve(
            here.settings, here, agents=3, deadline=5.0, out=here.folder / "out", report=lines.append, **more
        )
        return results, lines

    zero, reweighted = led("zero", text)[0], led("reweighted", text + '[federation]\nmissing = "reweighted"\n')[0]
    ratio = np.linalg.norm(reweighted.theta("m")) / np.linalg.norm(zero.theta("m"))
    assert ratio > 1.2
    assert np.array_equal(led("call", text, missing="reweighted")[0].theta("m"), reweighted.theta("m"))
    with pytest.raises(fedsa.InputError, match="control variates"):
        led("controls", SCAFFLSA, missing="reweighted")


@pytest.mark.parametrize(
    ("key", "value"),
    [("deadline", 0.0), ("agents", 0), ("norm_limit", 1.0), ("leave_after", 0), ("weight_cap", 1.5), ("missing", "one"), ("connect", 1)],
)
def test_settings_that_cannot_be_are_refused_by_their_names(tmp_path: Path, key: str, value: object) -> None:
    here = Here(tmp_path, SCAFFLSA + f"[federation]\n{key} = {json.dumps(value)}\n")
    with pytest.raises(fedsa.InputError, match=f"federation.{key}"):
        federation.serve(here.settings, here, out=tmp_path / "out")


def test_weights_are_applied_as_those_of_a_run_in_one_place(tmp_path: Path) -> None:
    from fedsa import FederatedClassifier, ValueFunction

    for name, text in (("logs", settings(LOGS, 'kind = "lstd"', "mean", 1)), ("rows", METHODS["newton"])):
        (tmp_path / name).mkdir()
        here = Here(tmp_path / name, text)
        results = federation.serve(here.settings, here, agents=3, deadline=5.0, out=tmp_path / name / "out")
        weights = json.loads((tmp_path / name / "out/weights.json").read_text())
        assert weights["theta"] == results.theta("m")[0].tolist() and weights["outcome"] == "completed"
    values = ValueFunction.load(tmp_path / "logs/out")
    states = np.array([[0.1, 0.2], [-0.4, 0.9]])
    assert np.isfinite(values.predict(states)).all() and len(np.unique(values.predict(states))) == 2
    model = FederatedClassifier.load(tmp_path / "rows/out")
    a, b, intercept = weights["theta"]
    expected = 1 / (1 + np.exp(-(states @ [a, b] + intercept)))
    assert np.allclose(model.predict_proba(states)[:, 1], expected, rtol=1e-12)


def test_the_residual_is_recorded_and_drawn(tmp_path: Path) -> None:
    here, lines = Here(tmp_path, METHODS["newton"]), []  # type: ignore[var-annotated]
    results = federation.serve(here.settings, here, agents=3, deadline=5.0, out=tmp_path / "out", report=lines.append)
    alone = engine(METHODS["newton"], here.files)
    residuals, expected = results.trace()["residual"], alone.trace()["residual"]
    # That of the last round is not known: nobody was asked at its end.
    assert np.allclose(residuals[:-1], expected[:-1], rtol=1e-9, atol=1e-15) and np.isnan(residuals[-1]) and residuals[0] > 0.01
    assert any(f"residual {residuals[0]:.3g}" in line for line in lines)
    svg = results.plot(x="bits_up").svg
    assert "not known" not in svg and "polyline" in svg or "path" in svg
