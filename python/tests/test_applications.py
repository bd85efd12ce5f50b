"""Agents that are others when the federation begins than when they applied."""

from __future__ import annotations

import time
from collections.abc import Collection
from pathlib import Path

import numpy as np
import pytest
from needs import NO_RULES
from test_deployed import SCAFFLSA, Here, engine, serve
from test_membership import METHODS, told

import fedsa
from fedsa import federation
from fedsa.federation import Agent, Reply


class Restarting(Here):
    """Before there is a federation, the world changes: at the first question who is there, and after `later` looks who is there then."""

    def __init__(self, folder: Path, text: str, first: list[str], then: list[str], later: int = 3) -> None:
        super().__init__(folder, text)
        self.first, self.then, self.later, self.looks = first, then, later, 0

    def change(self) -> None:
        """What is different then."""

    def reachable(self) -> Collection[str]:
        self.looks += 1
        if self.looks == self.later:
            self.change()
        return self.first if self.looks < self.later else self.then


def more_rows(file: str, extra: int = 25) -> None:
    lines = Path(file).read_text().splitlines()
    Path(file).write_text("\n".join([*lines, *lines[1 : 1 + extra]]) + "\n")


@pytest.mark.parametrize("text", [METHODS["newton"], METHODS["scafflsa"]])
def test_an_application_of_an_earlier_run_of_the_server_is_made_again(tmp_path: Path, text: str) -> None:
    here = Here(tmp_path, text)
    names, here.names = here.names, here.names[:2]
    with pytest.raises(fedsa.MachineError, match="2 agents have come"):
        serve(here, deadline=0.3)
    more_rows(here.files[0])
    here.names = names
    results = serve(here)
    assert np.array_equal(results.theta("m"), engine(text, here.files).theta("m"))


@pytest.mark.parametrize("text", [METHODS["newton"], METHODS["scafflsa"]])
def test_an_application_that_has_changed_when_the_last_agent_comes_is_made_again(tmp_path: Path, text: str) -> None:
    here = Restarting(tmp_path, text, ["carol", "alice"], ["carol", "alice", "bob"])
    here.change = lambda: more_rows(here.files[0])  # type: ignore[method-assign]
    lines: list[str] = []
    results = serve(here, report=lines.append)
    assert np.array_equal(results.theta("m"), engine(text, here.files).theta("m"))


def test_numbers_may_be_exchanged_before_there_is_a_federation(tmp_path: Path) -> None:
    here = Restarting(tmp_path, SCAFFLSA, ["carol", "alice"], ["carol", "alice", "bob"])
    numbers = {"carol": 0, "alice": 1, "bob": 2}

    def change() -> None:
        numbers.update(carol=1, alice=0)

    def agent(name: str) -> Agent:
        return Agent(here.settings, here.files[numbers[name]], state=tmp_path / name, number=numbers[name], rules=NO_RULES)

    here.change, here.agent = change, agent  # type: ignore[method-assign]
    results = serve(here)
    assert [one["name"] for one in told(tmp_path)["agents"]] == ["alice", "carol", "bob"]
    assert np.array_equal(results.theta("m"), engine(SCAFFLSA, here.files).theta("m"))


@pytest.mark.parametrize("restarts", [False, True])
def test_a_node_that_comes_back_under_another_name_leaves_nobody_behind(tmp_path: Path, restarts: bool) -> None:
    """Nodes without keys have a new identity each time."""
    here = Restarting(tmp_path, SCAFFLSA, ["carol", "alice"], ["carol again", "alice", "bob"])
    files = dict(zip(("carol", "carol again", "alice", "bob"), (0, 0, 1, 2)))

    def agent(name: str) -> Agent:
        return Agent(here.settings, here.files[files[name]], number=files[name], rules=NO_RULES)

    agents: dict[str, Agent] = {}
    here.agent = lambda name: agents.setdefault(name, agent(name))  # type: ignore[method-assign]
    if restarts:
        here.later = 10**6
        with pytest.raises(fedsa.MachineError, match="2 agents have come"):
            serve(here, deadline=0.3)
        here.looks = here.later
    lines: list[str] = []
    results = serve(here, report=lines.append)
    assert np.array_equal(results.theta("m"), engine(SCAFFLSA, here.files).theta("m"))
    assert [one["name"] for one in told(tmp_path)["agents"]] == ["carol again", "alice", "bob"] and not told(tmp_path)["excluded"]


def test_a_number_is_free_once_the_node_that_had_it_is_gone(tmp_path: Path) -> None:
    """A carrier may take a while to see that a node is gone: whoever came in its place was refused, and is asked again."""
    here = Restarting(tmp_path, SCAFFLSA, ["carol", "alice"], ["carol", "alice", "carol again"])
    files = dict(zip(("carol", "carol again", "alice", "bob"), (0, 0, 1, 2)))
    agents: dict[str, Agent] = {}
    here.agent = lambda name: agents.setdefault(name, Agent(here.settings, here.files[files[name]], number=files[name], rules=NO_RULES))  # type: ignore[method-assign]
    plain = here.reachable
    here.reachable = lambda: [who for who in [*plain(), "bob"] if who != "carol"] if here.looks > 5 else plain()  # type: ignore[method-assign]
    lines: list[str] = []
    results = serve(here, report=lines.append)
    assert any("carol again cannot take part: agent number 0" in line for line in lines)
    assert [one["name"] for one in told(tmp_path)["agents"]] == ["carol again", "alice", "bob"] and not told(tmp_path)["excluded"]
    assert np.array_equal(results.theta("m"), engine(SCAFFLSA, here.files).theta("m"))


def test_who_changes_to_other_settings_before_there_is_a_federation_is_left_out(tmp_path: Path) -> None:
    here = Restarting(tmp_path, SCAFFLSA, ["carol", "alice"], ["carol", "alice", "bob"])
    (tmp_path / "other.toml").write_text(SCAFFLSA.replace("gamma = 0.9", "gamma = 0.8"))
    plain = here.agent
    changed = lambda name: Agent(tmp_path / "other.toml", here.files[0], rules=NO_RULES) if name == "carol" and here.looks >= 3 else plain(name)  # noqa: E731
    here.agent = changed  # type: ignore[method-assign]
    results = federation.serve(here.settings, here, agents=2, most=3, deadline=1.0, out=tmp_path / "out")
    assert [one["name"] for one in told(tmp_path)["agents"]] == ["bob", "alice"] and "the problem" in told(tmp_path)["excluded"]["carol"]
    assert np.abs(results.theta("m")).max() > 0.0


def test_who_refuses_what_admits_it_is_told_seldom_and_the_error_says_why(tmp_path: Path) -> None:
    class Refusing(Here):
        admissions = 0

        def one(self, name: str, message: bytes) -> Reply | None:
            # Invitations are the first kind of message.
            if message.startswith(b"fsaE") and message[6] != 1:
                self.admissions += 1
                return Reply(refused="a model of d = 99 needs 9 GB")
            return super().one(name, message)

    here = Refusing(tmp_path, SCAFFLSA)
    with pytest.raises(fedsa.MachineError, match="carol: a model of d = 99 needs 9 GB; alice: a model") as e:
        serve(here, deadline=4.0)
    assert "can be reached" not in e.value.what
    # Once, and then every second.
    assert 6 <= here.admissions <= 3 * 6
    # Who accepts it later takes part in the next call.
    here.one = lambda name, message: Here.one(here, name, message)  # type: ignore[method-assign]
    assert np.array_equal(serve(here).theta("m"), engine(SCAFFLSA, here.files).theta("m"))


@pytest.mark.parametrize("deadline", [1.5, 8.0])
def test_who_repairs_its_data_in_time_takes_part(tmp_path: Path, deadline: float) -> None:
    """It is asked again after two seconds, or at the end if that is sooner."""
    here, lines = Here(tmp_path, SCAFFLSA), []  # type: ignore[var-annotated]
    plain, good, repaired = here.agent, Path(here.files[2]).read_text(), time.monotonic() + 1.0

    def agent(name: str) -> Agent:
        Path(here.files[2]).write_text(good if time.monotonic() > repaired else good + "not,numbers,at,all,1,0\n")
        return plain(name)

    here.agent = agent  # type: ignore[method-assign]
    results = serve(here, deadline=deadline, report=lines.append)
    assert time.monotonic() < repaired + 5.0
    assert np.array_equal(results.theta("m"), engine(SCAFFLSA, here.files).theta("m"))
    assert sum("bob cannot take part" in line for line in lines) == 1 and not told(tmp_path)["excluded"], lines
