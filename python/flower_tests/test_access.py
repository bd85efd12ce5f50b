"""Who can start runs: users of the server, and nobody who reaches it from elsewhere, whatever certificate he has."""

from __future__ import annotations

import http.client
import os
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import rows
from processes import NGINX, Federation
from runs import ROWS, agent, finish, settings


@pytest.fixture
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    # Sockets have short names.
    folder = tmp_path_factory.mktemp("n")
    with Federation(folder, 1, lambda node: f"socket='{folder}/at{node}/socket'").running(0) as made:
        yield made


def status(federation: Federation, port: int, path: str) -> int:
    """The status of an empty request, with the certificate of the server."""
    trusted = ssl.create_default_context(cafile=str(federation.folder / "ca.crt"))
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=30.0, context=trusted)
    connection.request("POST", f"/v1/{path}")
    got = connection.getresponse().status
    connection.close()
    return got


def test_only_users_of_the_server_start_runs(federation: Federation) -> None:
    if shutil.which(NGINX) is None:
        what = "nginx is not installed here"
        pytest.fail(what) if os.environ.get("CI") == "true" else pytest.skip(what)
    app = federation.app("access", settings(ROWS, 'kind = "gd"\nstep_size = 0.5', "mean", 1))
    federation.nginx(app)
    federation.node(0)
    place = federation.folder / "at0"
    place.mkdir()
    rows(federation.folder, 0).rename(place / "data.csv")
    agent(federation, "access")

    # Of the SuperLink's interfaces, nginx has that of nodes only, however its paths are written.
    paths = ["control/start-run", "control/list-runs", "runtime/acquire-task", "fleet/../control/start-run", "fleet/%2e%2e/control/start-run"]
    assert {status(federation, federation.nodes_port, path) for path in [*paths, "fleet/..%2fcontrol/start-run", "fleet"]} == {403}
    assert all(status(federation, federation.port, path) != 403 for path in paths[:3])
    assert status(federation, federation.nodes_port, "fleet/pull-messages") != 403
    # The SuperLink is not reached at another address of the machine.
    with socket.socket() as one:
        assert one.connect_ex(("127.0.0.2", federation.port)) != 0

    # Somebody elsewhere who has the address and the certificate.
    config = federation.folder / "flwr/config.toml"
    elsewhere = f'[superlink.elsewhere]\naddress = "127.0.0.1:{federation.nodes_port}"\nroot-certificates = "{federation.folder / "ca.crt"}"\n'
    config.write_text(config.read_text() + elsewhere)
    foreign = subprocess.run(["flwr", "run", str(app), "elsewhere"], env=federation.env, cwd=federation.folder, capture_output=True, text=True, timeout=60.0)
    assert foreign.returncode != 0 and "Successfully started run" not in foreign.stdout + foreign.stderr, foreign

    # A user of the server, whose run reaches the node by way of nginx.
    federation.run("access", app)
    finish(federation, app)
