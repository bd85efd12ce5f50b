"""Servers that are older than their agents, which then begin anew; and that nothing else takes their state from them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_deployed import CASES, ROWS, SCAFFLSA, Here, engine, serve, settings
from test_membership import METHODS, Changing, control_sums, lead, told

import fedsa
from fedsa import federation
from fedsa.federation import Agent, Reply

__all__ = ["control_sums"]


class Backup(Here):
    """Keeps a copy of the server's state after one exchange, stops the server after a later one, and has every message and answer."""

    copied, stops = 5, 8

    def __init__(self, folder: Path, text: str) -> None:
        super().__init__(folder, text)
        self.messages: list[dict[str, bytes]] = []
        self.answers: list[dict[str, bytes | None]] = []

    def exchange(self, messages: Mapping[str, bytes], deadline: float) -> Mapping[str, Reply]:
        replies = super().exchange(messages, deadline)
        self.messages.append(dict(messages))
        self.answers.append({who: reply.body for who, reply in replies.items()})
        if self.exchanges == self.copied:
            shutil.copytree(self.folder / "out.state", self.folder / "copy")
        if self.exchanges == self.stops:
            raise KeyboardInterrupt
        return replies

    def back(self, with_lines: bool) -> None:
        """The server has its older state, and its lines of then or the newer ones."""
        shutil.copy(self.folder / "copy/server.state", self.folder / "out.state/server.state")
        if with_lines:
            shutil.copy(self.folder / "copy/server.lines", self.folder / "out.state/server.lines")


# The gradients of agents that begin anew are missing in one round.
ROUNDS = {"fib-shed": 20}
ALL = {**METHODS, "fib-shed": CASES[5].replace("rounds = 6", "rounds = 20"), "some": SCAFFLSA.replace("step_size", "participants = 2\nstep_size")}
ALL["some"] = ALL["some"].replace("rounds = 5", "rounds = 14")


@pytest.mark.parametrize("with_lines", [False, True])
@pytest.mark.parametrize("repeats", [0, 1])
@pytest.mark.parametrize("method", ALL)
def test_agents_that_are_newer_than_the_server_begin_anew(
    tmp_path: Path, method: str, repeats: int, with_lines: bool, control_sums: list[float]
) -> None:
    here, lines = Backup(tmp_path, ALL[method]), []  # type: ignore[var-annotated]
    with pytest.raises(KeyboardInterrupt):
        serve(here, repeats=repeats)
    here.back(with_lines)
    results = serve(here, repeats=repeats, report=lines.append)
    begun = [line.split()[0] for line in lines if "begins anew" in line]
    assert set(begun) <= set(here.names) and len(begun) == len(set(begun)) and begun, lines
    rounds = told(tmp_path)["exchanges"]
    last = [one for one in rounds if one["round"] == ROUNDS.get(method, 14)]
    assert last and all(one["answered"] == one["asked"] for one in last), lines
    assert len(results.trace()) == ROUNDS.get(method, 14) + 1 and max(control_sums) < 1e-12
    expected = engine(ALL[method], here.files).theta("m")
    if method in ("newton", "fib-shed"):
        assert np.abs(results.theta("m") - expected).max() < 1e-9
    if method == "newton":
        # Nobody's answer of any round is missing.
        assert np.array_equal(results.theta("m"), expected)


@pytest.mark.parametrize("method", METHODS)
def test_agents_of_a_later_epoch_than_the_server_begin_anew(tmp_path: Path, method: str, control_sums: list[float]) -> None:
    here = Changing(tmp_path, METHODS[method])
    plain, exchanges = here.exchange, {"n": 0}

    def exchange(messages: Mapping[str, bytes], deadline: float) -> Mapping[str, Reply]:
        replies = plain(messages, deadline)
        exchanges["n"] += 1
        if here.round == 3 and not (tmp_path / "copy").exists():
            shutil.copytree(tmp_path / "out.state", tmp_path / "copy")
        if here.round == 8 and not (tmp_path / "stopped").exists():
            (tmp_path / "stopped").touch()
            raise KeyboardInterrupt
        return replies

    here.exchange = exchange  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        lead(here)
    shutil.rmtree(tmp_path / "out.state")
    shutil.copytree(tmp_path / "copy", tmp_path / "out.state")
    results = lead(here)
    assert results.outcomes["m"].name == "completed" and max(control_sums) < 1e-12
    assert [one["epoch"] for one in told(tmp_path)["epochs"]] == [*range(len(told(tmp_path)["epochs"]))]
    last = told(tmp_path)["exchanges"][-1]
    assert last["round"] == 14 and last["answered"] == last["asked"] == 4
    if method == "newton":
        assert np.abs(results.theta("m") - engine(METHODS[method], here.files).theta("m")).max() < 1e-9


def test_old_messages_take_no_state_from_an_agent(tmp_path: Path) -> None:
    """Whoever repeats what was sent before, in any order and also the messages by which an agent once began anew, changes nothing of it."""
    here = Backup(tmp_path, ALL["scafflsa"])
    with pytest.raises(KeyboardInterrupt):
        serve(here)
    here.back(True)
    serve(here)
    sent = [messages["carol"] for messages in here.messages if "carol" in messages]
    questions = [(messages["carol"], answers.get("carol")) for messages, answers in zip(here.messages, here.answers) if "carol" in messages]
    question, answer = [one for one in questions if one[1] is not None][-1]
    enrolment = [message for message in dict.fromkeys(sent) if message.startswith(b"fsaE")]
    assert len(enrolment) == 3, "an invitation, an admission, and one with the mark of a state"
    agent = here.agent("carol")
    assert agent.handle(question) == answer
    accepted = 0
    for first in enrolment:
        for second in [*enrolment, *sent]:
            for message in (first, second):
                try:
                    agent.handle(message)
                    accepted += 1
                except fedsa.InputError:
                    pass
            assert agent.handle(question) == answer
    assert accepted > 0


def test_a_begin_that_is_cut_off_is_begun_again(tmp_path: Path) -> None:
    """The server is killed after each message by which agents begin anew."""
    here = Backup(tmp_path, ALL["scafflsa"])
    with pytest.raises(KeyboardInterrupt):
        serve(here)
    here.back(True)
    carried: set[Any] = set()
    plain = here.exchange

    def exchange(messages: Mapping[str, bytes], deadline: float) -> Mapping[str, Reply]:
        replies = plain(messages, deadline)
        if all(message.startswith(b"fsaE") for message in messages.values()) and (key := tuple(messages.values())) not in carried:
            carried.add(key)
            raise KeyboardInterrupt
        return replies

    here.exchange = exchange  # type: ignore[method-assign]
    kills = 0
    while True:
        try:
            results = serve(here)
            break
        except KeyboardInterrupt:
            kills += 1
    assert kills >= 3 and results.outcomes["m"].name == "completed"
    last = json.loads((tmp_path / "out/summary.json").read_text())["federation"]["exchanges"][-1]
    assert (last["round"], last["answered"]) == (14, 3)


def test_one_that_refuses_everything_is_invited_once(tmp_path: Path) -> None:
    class Stubborn(Here):
        def one(self, name: str, message: bytes) -> Reply | None:
            if name == "bob" and self.exchanges > 2 and not message.startswith(b"fsaE"):
                return Reply(refused="no")
            return super().one(name, message)

    here, lines = Stubborn(tmp_path, SCAFFLSA), []  # type: ignore[var-annotated]
    results = serve(here, repeats=1, report=lines.append)
    assert sum("bob begins anew" in line for line in lines) == 1 and results.outcomes["m"].name == "completed"
    # Nobody is asked more than once because of it.
    assert [one["exchange"] for one in told(tmp_path)["exchanges"]] == [1] * 5


class Again(Here):
    """A second federation with the same settings, which carol joins late with her state of the first one, or without it."""

    def __init__(self, folder: Path, text: str) -> None:
        super().__init__(folder, text)
        self.round, self.joins, self.ends = 0, 0, 0

    def agent(self, name: str) -> Agent:
        number = self.names.index(name)
        return Agent(self.settings, () if "garnet" in self.settings.read_text() else self.files[number], state=self.folder / name, number=number)

    def reachable(self) -> list[str]:  # type: ignore[override]
        return [name for name in self.names if name != "carol" or self.round >= self.joins]

    def exchange(self, messages: Mapping[str, bytes], deadline: float) -> Mapping[str, Reply]:
        replies = super().exchange(messages, deadline)
        if self.exchanges == self.ends:
            raise KeyboardInterrupt
        return replies

    def told(self, line: str) -> None:
        if line.startswith("round "):
            self.round = int(line.split()[1].rstrip(","))

    def lead(self) -> fedsa.Results:
        return federation.serve(
            self.settings, self, agents=2, most=3, connect=0.2, deadline=20.0, out=self.folder / "out", overwrite=True, report=self.told
        )


CLASSES = settings(ROWS + "classes = [0, 1]\n", 'kind = "fedlsa"\nstep_size = 0.1\nlocal_steps = 3', "iid", 12)
GARNET = '[problem]\nkind = "garnet"\nagents = 3\nstates = 12\nfeatures = 4\n'
GARNETS = [settings(GARNET, f'kind = "{kind}"\nstep_size = 0.1\nlocal_steps = 3', "markov", 12) for kind in ("fedlsa", "scafflsa")]


@pytest.mark.parametrize("text", [CLASSES, *GARNETS])
def test_who_joins_late_brings_nothing_of_an_earlier_federation(tmp_path: Path, text: str) -> None:
    thetas = []
    for has_state in (False, True):
        (tmp_path / str(has_state)).mkdir()
        here = Again(tmp_path / str(has_state), text)
        if has_state:
            here.ends = 6
            with pytest.raises(KeyboardInterrupt):
                here.lead()
            for name in ("out.state", "alice", "bob"):
                shutil.rmtree(here.folder / name)
            assert (here.folder / "carol/agent.state").exists()
        here.round, here.joins, here.ends = 0, 3, 0
        thetas.append(here.lead().theta("m"))
        assert [one["joined"] for one in told(here.folder)["epochs"]][1:] == [["carol"]]
    assert np.array_equal(*thetas) and np.abs(thetas[0]).max() > 0.0
