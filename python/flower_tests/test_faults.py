"""Faults of agents on Flower: who waits how long, what is lost, and whether the result is the engine's."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from conftest import NODES, rows
from processes import Federation
from runs import LOGS, ROWS, Between, agent, begin, engine, finish, put, saw, settings

import fedsa
from fedsa import federation as ends


@pytest.mark.slow
def test_answers_after_the_deadline_are_missing(federation: Federation) -> None:
    text = settings(LOGS, 'kind = "fedtd"\nstep_size = 0.2', "iid", 5) + "[federation]\ndeadline = 40.0\n"
    app, _ = begin(federation, "late", text)
    saw(federation, "late", "round 1, exchange 1")
    # The agent is as slow as a machine that sleeps: its answer misses a deadline.
    slow = federation.processes["agent"].pid
    os.killpg(slow, signal.SIGSTOP)
    saw(federation, "late", "round 2, exchange 1: 2 of 3 answered, without ")
    os.killpg(slow, signal.SIGCONT)
    finish(federation, app, 300.0)
    told = json.loads((app / "out/summary.json").read_text())["federation"]
    assert [one["answered"] for one in told["exchanges"]][:2] == [3, 2] and max(one["seconds"] for one in told["exchanges"]) < 60.0
    assert told["missing_weight"][0] == 0.0 < told["missing_weight"][1]


@pytest.mark.slow
def test_an_agent_with_an_old_state_misses_a_round_and_goes_on(federation: Federation) -> None:
    """The disk of a node comes back from a copy that was made rounds ago, as of a machine that is restored."""
    text = settings(LOGS, 'kind = "scafflsa"\nstep_size = 0.1\nlocal_steps = 5', "iid", 8)
    app, data = begin(federation, "old", text)
    state = federation.folder / "at0/old"
    saw(federation, "old", "round 1, exchange 1")
    shutil.copytree(state, federation.folder / "copy")
    saw(federation, "old", "round 4, exchange 1")
    federation.kill("agent")
    shutil.rmtree(state)
    shutil.copytree(federation.folder / "copy", state)
    agent(federation, "old")
    finish(federation, app, 300.0)
    assert "agent 0 does not know which of its answers counted" in federation.log("old")
    told = json.loads((app / "out/summary.json").read_text())["federation"]
    assert len(told["agents"]) == NODES and not told["excluded"] and len(told["epochs"]) == 1
    # Its next question has its control variate. What is lost is its answer of one round, for which nobody waits.
    answered = [one["answered"] for one in told["exchanges"]]
    assert sorted(answered) == [NODES - 1] + [NODES] * 7 and answered[-1] == NODES
    assert np.abs(fedsa.open(app / "out").theta("m")[0]).max() > 0.0


@pytest.mark.slow
def test_agents_of_a_server_with_an_old_state_keep_theirs(federation: Federation) -> None:
    """The disk of the server comes back from a copy that was made rounds ago: its agents are newer than it."""
    text = settings(ROWS, 'kind = "newton"', "mean", 9)
    app, data = begin(federation, "back", text)
    state, copy = app / "out.state", federation.folder / "copy-of-server"
    saw(federation, "back", "round 2, exchange 1")
    copy.mkdir()
    # Lines that are newer than the state are cut off, and older ones would be refused.
    for name in ("server.state", "server.lines"):
        shutil.copy(state / name, copy / name)
    saw(federation, "back", "round 6, exchange 1")
    run = federation.log("back").split("Successfully started run ")[1].split()[0]
    federation.call("flwr", "stop", run, "here")
    federation.kill("back")
    shutil.rmtree(state)
    shutil.copytree(copy, state)
    federation.run("backed", app)
    federation.wait("the end", lambda: "no agent has answered in 3 rounds" in federation.log("backed"), 300.0)
    log = federation.log("backed")
    assert "goes on after round" in log and log.count("state is newer than the server's") >= NODES
    federation.kill("agent")


def foreign(message: bytes) -> bytes:
    """The same message of enrolment in a version of the protocol that there is not yet, with the right checksum."""
    if not message.startswith(b"fsaE"):
        return message
    version = int.from_bytes(message[4:6], "little") + 1
    changed = message[:4] + version.to_bytes(2, "little") + message[6:-4]
    return changed + hashlib.sha256(changed).digest()[:4]


def of_another_version(agent: Path, fault: str) -> Callable[[bytes], bytes | None]:
    """What passes questions to an agent, and changes them, or the answers, into those of another version."""
    resident = ends.Resident(agent)

    def ask(asked: bytes) -> bytes | None:
        if fault == "newer server":
            return resident.handle(foreign(asked))
        answer = resident.handle(asked)
        return None if answer is None else foreign(answer)

    return ask


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["newer agent", "newer server", "other settings"])
def test_an_agent_of_another_version_or_with_other_settings_is_left_out(federation: Federation, fault: str) -> None:
    text, name = settings(ROWS, 'kind = "newton"', "mean", 2), fault.replace(" ", "-")
    data = [rows(federation.folder, node) for node in range(NODES)]
    app = federation.app(name, f"{text}[federation]\nagents = 2\nmost = 3\ndeadline = 40.0\n")
    put(federation, data)
    at = federation.folder / "at0"
    between = None
    if fault == "other settings":
        (federation.folder / "changed.toml").write_text(text.replace("ridge = 1e-3", "ridge = 1e-2"))
        agent(federation, "changed")
    else:
        agent(federation, name, socket="behind")
        (at / "socket").unlink(missing_ok=True)
        between = Between(at / "socket", of_another_version(at / "behind", fault))
        between.start()
    began = time.monotonic()
    federation.run(name, app)
    finish(federation, app, 300.0)
    if between is not None:
        between.listener.close()
        (at / "socket").unlink()
    told = json.loads((app / "out/summary.json").read_text())["federation"]
    # The others wait for it as long as for an agent that does not come.
    assert 40.0 < time.monotonic() - began and len(told["agents"]) == 2
    (why,) = told["excluded"].values()
    assert ("problem" if fault == "other settings" else "version") in why
    assert all(one["answered"] == one["asked"] == 2 for one in told["exchanges"])
    # Agent 2 has the place of agent 0.
    assert np.array_equal(fedsa.open(app / "out").theta("m"), engine(text, [data[2], data[1]]).theta("m"))
