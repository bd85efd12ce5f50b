"""Agents keep their states whatever a server says: only their operators discard them."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from needs import NO_RULES
from test_deployed import SCAFFLSA, Here, engine, serve
from test_membership import METHODS, told

import fedsa
from fedsa.federation import Agent, Reply


class Backup(Here):
    """Keeps a copy of the server's state after one exchange, stops the server after a later one, and has every message and answer."""

    copied, stops = 4, 12

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


@pytest.mark.parametrize("method", METHODS)
def test_agents_that_are_newer_than_the_server_keep_their_states(tmp_path: Path, method: str) -> None:
    here, lines = Backup(tmp_path, METHODS[method]), []  # type: ignore[var-annotated]
    with pytest.raises(KeyboardInterrupt):
        serve(here)
    for name in ("server.state", "server.lines"):
        shutil.copy(tmp_path / "copy" / name, tmp_path / "out.state" / name)
    states = {name: (tmp_path / name / "agent.state").read_bytes() for name in here.names}
    with pytest.raises(fedsa.MachineError, match="no agent has answered in 3 rounds"):
        serve(here, report=lines.append)
    for name in here.names:
        assert any(line.startswith(name) and "state is newer than the server's" in line for line in lines), lines
        assert (tmp_path / name / "agent.state").read_bytes() == states[name]
    # Their operators delete the folders that the agents' own errors name.
    with pytest.raises(fedsa.InputError, match="newer than the server's") as e:
        here.agent("bob").handle(next(m["bob"] for m in here.messages if not m["bob"].startswith(b"fsaE")))
    assert e.value.code == "refused-message.other-state" and f"delete {tmp_path / 'bob'}" in e.value.help
    for name in here.names:
        shutil.rmtree(tmp_path / name)
    results = serve(here)
    assert results.outcomes["m"].name == "incomplete" and told(tmp_path)["missing_weight"][-1] == 0.0
    if method == "newton":
        assert np.abs(results.theta("m") - engine(METHODS[method], here.files).theta("m")).max() < 1e-9


def test_old_messages_take_no_state_from_an_agent(tmp_path: Path) -> None:
    """Whoever repeats what was sent before, in any order, changes nothing."""
    here = Backup(tmp_path, METHODS["scafflsa"])
    here.stops = 10**6
    serve(here)
    sent = [messages["carol"] for messages in here.messages if "carol" in messages]
    questions = [(messages["carol"], answers.get("carol")) for messages, answers in zip(here.messages, here.answers) if "carol" in messages]
    question, answer = [one for one in questions if one[1] is not None][-1]
    enrolment = [message for message in dict.fromkeys(sent) if message.startswith(b"fsaE")]
    assert len(enrolment) >= 2, "an invitation, an admission and questions about sums"
    agent, accepted = here.agent("carol"), 0
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


def test_an_agent_with_the_state_of_another_federation_takes_no_part_until_it_is_deleted(tmp_path: Path) -> None:
    here, lines = Here(tmp_path, SCAFFLSA), []  # type: ignore[var-annotated]
    serve(here)
    shutil.rmtree(tmp_path / "out")
    with pytest.raises(fedsa.MachineError, match="0 agents have come .*an invitation to another federation"):
        serve(here, deadline=0.5)
    for name in ("carol", "alice"):
        shutil.rmtree(tmp_path / name)
    results = serve(here, agents=2, most=3, deadline=0.5, report=lines.append)
    assert any("bob cannot take part" in line and "another federation" in line for line in lines)
    assert len(told(tmp_path)["agents"]) == 2 and np.abs(results.theta("m")).max() > 0.0


def test_an_agent_does_not_go_on_with_other_data_of_as_many_rows(tmp_path: Path) -> None:
    here = Here(tmp_path, SCAFFLSA)
    serve(here)
    file = Path(here.files[2])
    rows = file.read_text().splitlines()
    file.write_text("\n".join([rows[0], *reversed(rows[1:])]) + "\n")
    with pytest.raises(fedsa.InputError, match="data that are not those with which this agent's state was saved"):
        Agent(here.settings, file, state=tmp_path / "bob", number=2, rules=NO_RULES)
