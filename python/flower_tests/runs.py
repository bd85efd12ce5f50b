"""Runs of federations on Flower, and what they are compared with."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
from conftest import NODES, logs, rows
from processes import Federation

import fedsa
from fedsa.errors import InputError, MachineError

# Agents refuse ranges and classes that would come from their data.
LOGS = """[problem]
kind = "logs"
features = { kind = "fourier", order = 2 }
gamma = 0.9
ranges = { s_0 = [-1.0, 1.6], s_1 = [-1.4, 1.4] }
"""
ROWS = """[problem]
kind = "logistic"
target = "y"
classes = [0, 1]
ridge = 1e-3
intercept = true
weighting = "rows"
"""


def settings(problem: str, method: str, sampling: str, rounds: int) -> str:
    return f'id = "t"\ntitle = "t"\n{problem}[sampling]\nkind = "{sampling}"\n[[method]]\nlabel = "m"\n{method}\n[run]\nrounds = {rounds}\nseeds = [5]\n'


def engine(text: str, files: list[Path]) -> fedsa.Results:
    """The run of the same settings on the data of all."""
    names = [str(file) for file in files]
    data = {"problem.path": names} if 'kind = "logs"' in text else {"problem.data": names, "problem.partition": "files"}
    return fedsa.Experiment.from_text(text, set=data).run()


def same(folder: Path, expected: fedsa.Results) -> None:
    """The bits of the output and the counts are those of the engine."""
    got = fedsa.open(folder)
    assert np.array_equal(got.theta("m"), expected.theta("m")) and np.abs(got.theta("m")).max() > 0.0
    counts = [{name: x for name, x in results.cost("m").items() if name.startswith(("bits", "exchanges", "vectors"))} for results in (got, expected)]
    assert counts[0] == counts[1] and counts[0]["bits_up"] > 0
    told = json.loads((folder / "summary.json").read_text())["federation"]
    assert len(told["agents"]) == NODES and not told["excluded"]
    assert all(one["answered"] == one["asked"] for one in told["exchanges"])


def put(federation: Federation, data: list[Path]) -> None:
    """Give each agent its data."""
    for node, file in enumerate(data):
        at = federation.folder / f"at{node}"
        at.mkdir(exist_ok=True)
        (at / "data.csv").write_bytes(file.read_bytes())


def agent(federation: Federation, name: str, *more: str, socket: str = "socket") -> None:
    """Start the resident agent of the first node."""
    at = federation.folder / "at0"
    args = [f"{name}.toml", str(at / "data.csv"), "--agent", "0", "--state", f"{at}/{name}", "--socket", f"{at}/{socket}", *more]
    federation.start("agent", "fedsa", "agent", *args)
    federation.wait("the agent", lambda: (at / socket).exists() and "ready" in federation.log("agent"))


def ended(federation: Federation, app: Path) -> bool:
    """The server has written its results, and holds the folder no longer."""
    try:
        fedsa.open(app / "out")
    except fedsa.errors.FedsaError:
        return False
    return True


def begin(federation: Federation, name: str, text: str) -> tuple[Path, list[Path]]:
    """Begin a run of these settings: its app, and the data of the agents."""
    make = logs if 'kind = "logs"' in text else rows
    data = [make(federation.folder, node) for node in range(NODES)]
    app = federation.app(name, text)
    put(federation, data)
    agent(federation, name)
    federation.run(name, app)
    return app, data


def finish(federation: Federation, app: Path, seconds: float = 170.0) -> None:
    """Wait for the end of a run, and stop the resident agent."""
    federation.wait("the end of the run", lambda: ended(federation, app), seconds)
    federation.kill("agent")


def saw(federation: Federation, name: str, text: str, seconds: float = 170.0) -> None:
    """Wait for a text in the log of a run."""
    federation.wait(text, lambda: text in federation.log(name), seconds)


class Between(threading.Thread):
    """Between a node and its resident agent: `ask` passes a question on, and returns the answer; an agent that it cannot reach does not answer."""

    def __init__(self, listen: Path, ask: Callable[[bytes], bytes | None]) -> None:
        super().__init__(daemon=True)
        self.ask = ask
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(str(listen))
        self.listener.listen()

    def run(self) -> None:
        while True:
            try:
                stream, _ = self.listener.accept()
            except OSError:
                return
            with stream:
                head = stream.recv(7, socket.MSG_WAITALL)
                asked = stream.recv(int.from_bytes(head[3:], "little"), socket.MSG_WAITALL)
                try:
                    body = self.ask(asked)
                    status, got = (0, b"") if body is None else (1, body)
                except InputError as e:
                    status, got = 2, str(e).encode()
                except MachineError:
                    continue
                stream.sendall(bytes([status]) + len(got).to_bytes(4, "little") + got)
