"""On Flower, with TLS and authenticated nodes, federations have the bits of the engine."""

from __future__ import annotations

import json
import zipfile

import numpy as np
import pytest
from conftest import NODES, logs, rows
from processes import Federation
from runs import LOGS, ROWS, agent, begin, ended, engine, finish, put, same, saw, settings

import fedsa

SCAFFLSA = settings(LOGS, 'kind = "scafflsa"\nstep_size = 0.1\nlocal_steps = 5', "iid", 3)
NEWTON = settings(ROWS, 'kind = "newton"', "mean", 2)


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
    app, data = begin(federation, name, text)
    finish(federation, app)
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
    app, data = begin(federation, "killed", text)
    saw(federation, "killed", "round 2, exchange 1")
    # The agent, in whatever it does; it goes on with its state.
    federation.kill("agent")
    agent(federation, "killed")
    saw(federation, "killed", "round 4, exchange 1")
    # The server, by its run.
    run = federation.log("killed").split("Successfully started run ")[1].split()[0]
    federation.call("flwr", "stop", run, "here")
    federation.kill("killed")
    assert not ended(federation, app)
    federation.run("again", app)
    finish(federation, app)
    assert "goes on after round" in federation.log("again")
    got, expected = fedsa.open(app / "out"), engine(text, data)
    assert np.array_equal(got.theta("m"), expected.theta("m"))


@pytest.mark.slow
def test_a_node_joins_late_and_an_agent_leaves(federation: Federation) -> None:
    text = settings(ROWS, 'kind = "newton"', "mean", 9)
    data = [rows(federation.folder, node) for node in range(NODES)]
    app = federation.app("epochs", f"{text}[federation]\nagents = 2\nmost = {NODES}\ndeadline = 45.0\n")
    put(federation, data)
    agent(federation, "epochs")
    federation.stop("node2")
    federation.run("epochs", app)
    saw(federation, "epochs", "round 2, exchange 1")
    federation.node(2)
    saw(federation, "epochs", "epoch 1: 3 agents")
    federation.kill("agent")
    agent(federation, "epochs", "--leave")
    finish(federation, app, 500.0)
    told = json.loads((app / "out/summary.json").read_text())["federation"]
    assert [(len(one["joined"]), len(one["left"])) for one in told["epochs"]] == [(2, 0), (1, 0), (0, 1)]
    assert sorted(one["rows"] for one in told["agents"]) == [60, 70]
    # The optimum of those who are there at the end.
    got, expected = fedsa.open(app / "out"), engine(text, data[1:])
    assert np.abs(got.theta("m") - expected.theta("m")).max() < 1e-9 and (app / "out/weights.json").exists()


@pytest.mark.slow
def test_a_superlink_that_is_killed_loses_no_round(federation: Federation) -> None:
    text = settings(LOGS, 'kind = "scafflsa"\nstep_size = 0.1\nlocal_steps = 5', "iid", 6)
    app, data = begin(federation, "lost", text)
    saw(federation, "lost", "round 2, exchange 1")
    # With the server, which is its process.
    federation.kill("superlink")
    federation.kill("lost")
    assert not ended(federation, app)
    federation.superlink()
    federation.run("found", app)
    finish(federation, app, 300.0)
    assert "goes on after round" in federation.log("found")
    got, expected = fedsa.open(app / "out"), engine(text, data)
    assert np.array_equal(got.theta("m"), expected.theta("m"))


@pytest.mark.slow
def test_strangers_take_no_part(federation: Federation) -> None:
    """A node whose key nobody has registered, and one that trusts another authority than that of the server."""
    text = settings(ROWS, 'kind = "newton"', "mean", 2)
    data = [rows(federation.folder, node) for node in range(NODES)]
    app = federation.app("strangers", f"{text}[federation]\nagents = 2\nmost = 4\ndeadline = 20.0\n")
    put(federation, [*data, data[0]])
    federation.node(NODES)
    federation.wait("the stranger's end", lambda: federation.processes[f"node{NODES}"].poll() is not None, 90.0)
    federation.processes.pop(f"node{NODES}")
    federation.stop("node2")
    federation.node(2, "other.crt")
    agent(federation, "strangers")
    federation.run("strangers", app)
    finish(federation, app)
    told = json.loads((app / "out/summary.json").read_text())["federation"]
    assert len(told["agents"]) == 2
    got, expected = fedsa.open(app / "out"), engine(text, data[:2])
    assert np.array_equal(got.theta("m"), expected.theta("m"))
    federation.kill("node2")
    federation.node(2)


def test_results_and_states_do_not_reach_the_nodes(federation: Federation) -> None:
    app = federation.app("packed", SCAFFLSA)
    for name in ("out/summary.json", "out.state/lines.json", "server.key", "node.pub"):
        (app / name).parent.mkdir(exist_ok=True)
        (app / name).write_text("{}")
    federation.call("flwr", "build", "--app", str(app))
    (fab,) = federation.folder.glob("*packed*.fab")
    with zipfile.ZipFile(fab) as packed:
        names = packed.namelist()
    assert "app/server.py" in names and not [name for name in names if name.startswith(("out", "server.key", "node"))], names
