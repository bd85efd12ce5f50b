"""Secure sums on Flower: an agent is killed with signal 9 in each phase of an exchange."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from processes import Federation
from runs import Between, ended

import fedsa
from fedsa import federation as ends

NODES, STEP = 4, 0.5

SETTINGS = f"""
id = "t"
title = "t"
[problem]
kind = "least-squares"
target = "y"
intercept = true
weighting = "rows"
[sampling]
kind = "mean"
[[method]]
label = "m"
kind = "gd"
step_size = {STEP}
uplink = {{ media = [{{ kind = "secure-sum", bound = 1e3, bits = 50, least_agents = 3 }}] }}
[run]
rounds = 3
seeds = [0]
[federation]
deadline = 60.0
"""

# Exchanges of a round, as messages number them: answers with masks, and the seeds of the masks that do not cancel.
MASKED, SEEDS = 0, 64


class Killed:
    """An agent in a process of its own, which is killed in three rounds:

    - in round 1 before its answer
    - in round 2 after its answer, and it is not back for its seeds
    - in round 3 after its answer, and it is back for its seeds
    """

    def __init__(self, federation: Federation, name: str, number: int) -> None:
        self.federation, self.process, self.at = federation, f"agent{number}", federation.folder / f"at{number}"
        data, state = str(self.at / "data.csv"), str(self.at / "state")
        self.command = ("fedsa", "agent", f"{name}.toml", data, "--agent", str(number), "--state", state, "--socket", str(self.at / "agent"))
        self.resident = ends.Resident(self.at / "agent")
        self.kills: list[tuple[int, int]] = []
        self.start()

    def start(self) -> None:
        starts = self.federation.log(self.process).count("ready: ")
        self.federation.start(self.process, *self.command)
        self.federation.wait(f"the start of {self.process}", lambda: self.federation.log(self.process).count("ready: ") > starts)

    def kill(self, round: int, exchange: int) -> None:
        self.federation.kill(self.process)
        self.kills.append((round, exchange))

    def ask(self, message: bytes) -> bytes | None:
        """Pass a message to the process, which is started if it is to be there."""
        # Messages of enrolment and of sums after the last round have another form.
        round, exchange = (0, 0) if message.startswith(b"fsaE") else (1 + int.from_bytes(message[3:7], "little"), message[1])
        if self.process not in self.federation.processes and (round, exchange) != (2, SEEDS):
            self.start()
        if (round, exchange) == (1, MASKED):
            self.kill(round, exchange)
        answer = self.resident.handle(message)
        if round in (2, 3) and exchange == MASKED:
            self.kill(round, exchange)
        return answer


@pytest.fixture
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    # Sockets have short names.
    folder = tmp_path_factory.mktemp("s")
    with Federation(folder, NODES, lambda node: f"socket='{folder}/at{node}/socket'").running(NODES) as made:
        yield made


def rows(folder: Path, node: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows of a node, with a constant column in front; writes their file."""
    draw, n = np.random.default_rng(node), 40 + 10 * node
    x = draw.normal(0.2 * node, 1.0, (n, 2))
    y = 1.0 + x @ [0.5, -1.5] + draw.normal(0.0, 0.1, n)
    (folder / f"at{node}").mkdir()
    lines = [f"{float(a)!r},{float(b)!r},{float(t)!r}\n" for (a, b), t in zip(x, y)]
    (folder / f"at{node}" / "data.csv").write_text("a,b,y\n" + "".join(lines))
    return np.column_stack([np.ones(n), x]), y


def descended(sites: list[tuple[np.ndarray, np.ndarray]], sums: list[list[int]]) -> np.ndarray:
    """Gradient descent whose rounds have the sum over these sites. A site that is missing counts as zero."""
    all_rows, theta = sum(len(y) for _, y in sites), np.zeros(3)
    for members in sums:
        theta = theta - STEP * sum(sites[c][0].T @ (sites[c][0] @ theta - sites[c][1]) for c in members) / all_rows
    return theta


def test_an_agent_that_is_killed_in_any_phase_of_a_secure_sum(federation: Federation) -> None:
    sites = [rows(federation.folder, node) for node in range(NODES)]
    app = federation.app("secure", SETTINGS)
    agents = [Killed(federation, "secure", node) for node in range(NODES)]
    for agent in agents[1:]:
        agent.ask = agent.resident.handle  # type: ignore[method-assign]
    links = [Between(agent.at / "socket", agent.ask) for agent in agents]
    for link in links:
        link.start()
    federation.run("secure", app)
    federation.wait("the end of the run", lambda: ended(federation, app), 300.0)
    for link in links:
        link.listener.close()

    assert agents[0].kills == [(1, MASKED), (2, MASKED), (3, MASKED)]
    # Round 1 has the sum over the other three. Round 2 is given up. In round 3 seeds come from the restarted process, which has them on the disk.
    expected = descended(sites, [[1, 2, 3], [0, 1, 2, 3]])
    weights = json.loads((app / "out/weights.json").read_text())
    assert [weights["intercept"], *weights["coefficients"]] == pytest.approx(expected, abs=1e-10)
    told = json.loads((app / "out/summary.json").read_text())["federation"]
    (away,) = [one["name"] for one in told["agents"] if one["rows"] == len(sites[0][1])]
    answered = [(one["round"], one["answered"], one["asked"], one["silent"]) for one in told["exchanges"]]
    assert answered[:5] == [(1, 3, 4, [away]), (1, 3, 3, [away]), (2, 4, 4, []), (2, 3, 4, [away]), (2, 0, 1, [away])]
    assert answered[5:] == [(3, 4, 4, []), (3, 4, 4, [])]
    share = len(sites[0][1]) / sum(len(y) for _, y in sites)
    assert told["missing_weight"] == pytest.approx([share, 1.0, 0.0])
    assert fedsa.open(app / "out").outcomes["m"].name == "incomplete"
    assert "round 2 is given up" in federation.log("secure") and weights["train"]["rows"] == sum(len(y) for _, y in sites)
