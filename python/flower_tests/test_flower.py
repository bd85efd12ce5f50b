"""On Flower, with TLS and authenticated nodes, federations have the bits of the engine."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from conftest import NODES, Federation, logs, rows

import fedsa

LOGS = '[problem]\nkind = "logs"\nfeatures = { kind = "fourier", order = 2 }\ngamma = 0.9\n'
ROWS = '[problem]\nkind = "logistic"\ntarget = "y"\nridge = 1e-3\nintercept = true\nweights = "rows"\n'


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


SCAFFLSA = settings(LOGS, 'kind = "scafflsa"\nstep_size = 0.1\nlocal_steps = 5', "iid", 3)
NEWTON = settings(ROWS, 'kind = "newton"', "mean", 2)


def put(federation: Federation, data: list[Path]) -> None:
    """Give each agent its data."""
    for node, file in enumerate(data):
        at = federation.folder / f"at{node}"
        at.mkdir(exist_ok=True)
        (at / "data.csv").write_bytes(file.read_bytes())


def agent(federation: Federation, name: str, *more: str) -> None:
    """Start the resident agent of the first node."""
    at = federation.folder / "at0"
    args = [f"{name}.toml", str(at / "data.csv"), "--agent", "0", "--state", f"{at}/{name}", "--socket", f"{at}/socket", *more]
    federation.start("agent", "fedsa", "agent", *args)
    federation.wait("the agent", lambda: (at / "socket").exists() and "ready" in federation.log("agent"))


def ended(federation: Federation, app: Path) -> bool:
    """The server has written its results, and holds the folder no longer."""
    try:
        fedsa.open(app / "out")
    except fedsa.errors.FedsaError:
        return False
    return True


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("scafflsa", SCAFFLSA),
        ("newton", NEWTON),
        pytest.param("fedlsa", settings(LOGS, 'kind = "fedlsa"\nstep_size = 0.1\nlocal_steps = 5\nparticipants = 2', "markov", 4), marks=pytest.mark.slow),
        pytest.param("fedhsa", settings(LOGS, 'kind = "fedhsa"\nstep_size = 0.5\nlocal_steps = 5', "mean", 3), marks=pytest.mark.slow),
        pytest.param("lstd", settings(LOGS, 'kind = "lstd"', "mean", 1), marks=pytest.mark.slow),
        pytest.param("fib-shed", settings(ROWS, 'kind = "fib-shed"', "mean", 4), marks=pytest.mark.slow),
    ],
)
def test_a_federation_has_the_bits_of_the_engine(federation: Federation, name: str, text: str) -> None:
    make = logs if 'kind = "logs"' in text else rows
    data = [make(federation.folder, node) for node in range(NODES)]
    app = federation.app(name, text)
    put(federation, data)
    agent(federation, name)
    federation.run(name, app)
    federation.wait("the end of the run", lambda: ended(federation, app), 170.0)
    federation.kill("agent")
    same(app / "out", engine(text, data))
    # What the server prints comes by way of the SuperLink.
    federation.wait("its lines", lambda: any(f"{n} of {n} answered" in federation.log(name) for n in (2, 3)), 30.0)


@pytest.mark.slow
def test_the_same_app_simulates(federation: Federation) -> None:
    pytest.importorskip("ray", reason="needs flwr[simulation]")
    data = [logs(federation.folder, node) for node in range(NODES)]
    app = federation.app("simulated", SCAFFLSA)
    federation.simulation()
    files = f"data='{federation.folder}/logs_{{agent}}.csv' state='{federation.folder}/simulated.state/{{node}}'"
    of_nodes = ["--federation-config", f"num-supernodes={NODES}"]
    federation.start("run", "flwr", "run", str(app), "simulation", "--stream", "--run-config", files, *of_nodes)
    federation.wait("the end of the simulation", lambda: ended(federation, app), 170.0)
    federation.kill("simulation")
    same(app / "out", engine(SCAFFLSA, data))


@pytest.mark.slow
def test_ends_that_are_killed_go_on(federation: Federation) -> None:
    text = settings(LOGS, 'kind = "scafflsa"\nstep_size = 0.1\nlocal_steps = 5', "iid", 6)
    data = [logs(federation.folder, node) for node in range(NODES)]
    app = federation.app("killed", text)
    put(federation, data)
    agent(federation, "killed")
    federation.run("killed", app)
    federation.wait("round 2", lambda: "round 2, exchange 1" in federation.log("killed"))
    # The agent, in whatever it does; it goes on with its state.
    federation.kill("agent")
    agent(federation, "killed")
    federation.wait("round 4", lambda: "round 4, exchange 1" in federation.log("killed"), 170.0)
    # The server, by its run.
    run = federation.log("killed").split("Successfully started run ")[1].split()[0]
    federation.call("flwr", "stop", run, "here")
    federation.kill("killed")
    assert not ended(federation, app)
    federation.run("again", app)
    federation.wait("the end of the run", lambda: ended(federation, app), 170.0)
    federation.kill("agent")
    assert "goes on after round" in federation.log("again")
    got, expected = fedsa.open(app / "out"), engine(text, data)
    assert np.array_equal(got.theta("m"), expected.theta("m"))


@pytest.mark.slow
def test_a_node_joins_late_and_an_agent_leaves(federation: Federation) -> None:
    text = settings(ROWS, 'kind = "newton"', "mean", 9)
    data = [rows(federation.folder, node) for node in range(NODES)]
    app = federation.app("epochs", text)
    put(federation, data)
    agent(federation, "epochs")
    federation.stop("node2")
    federation.run("epochs", app, "agents=2 connect=45.0")
    federation.wait("round 2", lambda: "round 2, exchange 1" in federation.log("epochs"), 170.0)
    federation.node(2)
    federation.wait("the late node", lambda: "epoch 1: 3 agents" in federation.log("epochs"), 170.0)
    federation.kill("agent")
    agent(federation, "epochs", "--leave")
    federation.wait("the end of the run", lambda: ended(federation, app), 500.0)
    federation.kill("agent")
    told = json.loads((app / "out/summary.json").read_text())["federation"]
    assert [(len(one["joined"]), len(one["left"])) for one in told["epochs"]] == [(2, 0), (1, 0), (0, 1)]
    assert sorted(one["rows"] for one in told["agents"]) == [60, 70]
    # The optimum of those who are there at the end.
    got, expected = fedsa.open(app / "out"), engine(text, data[1:])
    assert np.abs(got.theta("m") - expected.theta("m")).max() < 1e-9 and (app / "out/weights.json").exists()


@pytest.mark.slow
def test_a_superlink_that_is_killed_loses_no_round(federation: Federation) -> None:
    text = settings(LOGS, 'kind = "scafflsa"\nstep_size = 0.1\nlocal_steps = 5', "iid", 6)
    data = [logs(federation.folder, node) for node in range(NODES)]
    app = federation.app("lost", text)
    put(federation, data)
    agent(federation, "lost")
    federation.run("lost", app)
    federation.wait("round 2", lambda: "round 2, exchange 1" in federation.log("lost"), 170.0)
    # With the server, which is its process.
    federation.kill("superlink")
    federation.kill("lost")
    assert not ended(federation, app)
    federation.superlink()
    federation.run("found", app)
    federation.wait("the end of the run", lambda: ended(federation, app), 300.0)
    federation.kill("agent")
    assert "goes on after round" in federation.log("found")
    got, expected = fedsa.open(app / "out"), engine(text, data)
    assert np.array_equal(got.theta("m"), expected.theta("m"))


@pytest.mark.slow
def test_strangers_take_no_part(federation: Federation) -> None:
    """A node whose key nobody has registered, and one that trusts another authority than that of the server."""
    text = settings(ROWS, 'kind = "newton"', "mean", 2)
    data = [rows(federation.folder, node) for node in range(NODES)]
    app = federation.app("strangers", text)
    put(federation, [*data, data[0]])
    federation.node(NODES)
    federation.wait("the stranger's end", lambda: federation.processes[f"node{NODES}"].poll() is not None, 90.0)
    federation.processes.pop(f"node{NODES}")
    federation.stop("node2")
    federation.node(2, "other.crt")
    agent(federation, "strangers")
    federation.run("strangers", app, "agents=2 most-agents=4 connect=20.0")
    federation.wait("the end of the run", lambda: ended(federation, app), 170.0)
    federation.kill("agent")
    told = json.loads((app / "out/summary.json").read_text())["federation"]
    assert len(told["agents"]) == 2
    got, expected = fedsa.open(app / "out"), engine(text, data[:2])
    assert np.array_equal(got.theta("m"), expected.theta("m"))
    federation.kill("node2")
    federation.node(2)
