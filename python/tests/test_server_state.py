"""What a server keeps on the disk: a state that does not grow, lines that only become more, and no difference to who is killed in between."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from needs import NO_RULES
from test_deployed import LOGS, SCAFFLSA, Here, Stopping, Threads, engine, serve, settings
from test_membership import METHODS, MOST_LIVES, Changing, Stopped, lead, told

import fedsa
from fedsa import _deployed, _files, _server, _server_state, federation
from fedsa._server_state import EpochRecord, History
from fedsa.federation import Agent, Reply


def test_states_are_as_large_after_2000_rounds_as_after_10(tmp_path: Path) -> None:
    here, sizes = Here(tmp_path, settings(LOGS, 'kind = "scafflsa"\nstep_size = 0.1\nlocal_steps = 3', "mean", 2000)), {}
    agents = {who: Agent(here.settings, file, number=i, rules=NO_RULES) for i, (who, file) in enumerate(zip(here.names, here.files))}
    files = [tmp_path / "out.state" / name for name in ("server.state", "server.lines")]

    def report(line: str) -> None:
        if line.startswith(("round 11,", "round 1999,")):
            round = int(line.split()[1].rstrip(","))
            sizes[round] = [*(file.stat().st_size for file in files), *(len(agent.saved()) for agent in agents.values())]

    results = federation.serve(here.settings, Threads(agents), agents=3, out=here.folder / "out", report=report)
    early, late = sizes[11], sizes[1999]
    # Counts have more digits; nothing else is larger.
    assert late[0] - early[0] < 100 and all(abs(a - b) < 20 for a, b in zip(early[2:], late[2:])), sizes
    # The trace has the rounds that the settings record, 500 by default, as that of a run in one process.
    assert late[1] > 100 * early[1] and len(results.trace()) == 501


class Lasting(Changing):
    """Who is there follows from the rounds that are done, so that it is the same for a server that is killed and asks again."""

    server: _server.Server | None = None

    @property
    def round(self) -> int:  # type: ignore[override]
        return 0 if self.server is None or self.server.node is None else self.server.node.rounds()

    @round.setter
    def round(self, value: int) -> None:
        pass


@pytest.fixture
def known_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    def init(self: _server.Server, deployment: Any, carrier: Any, *args: Any, plain: Any = _server.Server.__init__) -> None:
        carrier.server = self
        plain(self, deployment, carrier, *args)

    monkeypatch.setattr(_server.Server, "__init__", init)


@pytest.fixture
def on_disk(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Kills the server at the second time in each of its lives that it comes to this place of its writing."""
    at = {"place": "", "times": 0}

    def reached(place: str) -> bool:
        at["times"] += place == at["place"]  # type: ignore[operator]
        return place == at["place"] and at["times"] == 2

    def append(path: Any, kept: int, lines: bytes, plain: Callable[..., None] = _files.append) -> None:
        for place, part in (("before lines", b""), ("within lines", lines[: len(lines) // 2]), ("after lines", lines)):
            plain(path, kept, part)
            if reached(place):
                raise Stopped

    def write(path: Any, contents: bytes, is_private: bool = False, plain: Callable[..., None] = _files.write) -> None:
        is_server = os.fspath(path).endswith("server.state")
        plain(path, contents, is_private)
        if is_server and reached("after the state"):
            raise Stopped

    monkeypatch.setattr(_files, "append", append)
    monkeypatch.setattr(_files, "write", write)

    def begin(place: str) -> None:
        at.update(place=place, times=0)

    return begin


@pytest.mark.parametrize("place", ["before lines", "within lines", "after lines", "after the state"])
@pytest.mark.parametrize("method", ["scafflsa", "newton"])
def test_a_server_that_is_killed_at_every_write_has_the_same_records(
    tmp_path: Path, method: str, place: str, on_disk: Callable[[str], None], known_servers: None
) -> None:
    def begun(name: str) -> Lasting:
        (tmp_path / name).mkdir()
        return Lasting(tmp_path / name, METHODS[method])

    whole, killed = begun("whole"), begun("killed")
    expected = lead(whole)
    for kills in range(MOST_LIVES):
        on_disk(place)
        try:
            results = lead(killed)
            break
        except Stopped:
            pass
    else:
        raise AssertionError(f"the server has not ended in {MOST_LIVES} lives: after round {killed.round}")
    assert kills >= 14
    records = [told(here.folder) for here in (whole, killed)]
    # Invitations are sent again, and count as often as they were sent.
    unlike = {"seconds", "messages", "bytes_down", "bytes_up"}
    assert len(records[0]["epochs"]) > 4
    records = [{key: [{k: v for k, v in one.items() if k not in (unlike if key == "epochs" else {"seconds"})} for one in record[key]] for key in ("exchanges", "epochs")} for record in records]
    for key in ("exchanges", "epochs"):
        for one, other in zip(records[0][key], records[1][key]):
            assert one == other, {k: (one[k], other[k]) for k in one if one[k] != other[k]}
        assert len(records[0][key]) == len(records[1][key])
    traces = [one.trace() for one in (results, expected)]
    assert traces[0].columns == traces[1].columns and len(traces[0]) == 15
    for name in set(traces[0].columns) - {"seconds"}:
        one, other = (np.asarray(trace[name]) for trace in traces)
        assert np.array_equal(one, other, equal_nan=one.dtype.kind == "f"), name
    assert np.array_equal(results.theta("m"), expected.theta("m"))
    assert not any((tmp_path / "killed/out.state" / name).exists() for name in ("server.state", "server.lines"))


def stopped(folder: Path) -> Stopping:
    here = Stopping(folder, SCAFFLSA, 5, True)
    with pytest.raises(KeyboardInterrupt):
        serve(here)
    return here


@pytest.mark.parametrize("damage", ["missing", "short", "flipped"])
def test_lines_that_are_damaged_are_refused(tmp_path: Path, damage: str) -> None:
    here, lines = stopped(tmp_path), tmp_path / "out.state/server.lines"
    before = lines.read_bytes()
    if damage == "missing":
        lines.unlink()
    else:
        lines.write_bytes(before[:-1] if damage == "short" else before.replace(b"exchange", b"excahnge", 1))
    with pytest.raises(fedsa.InputError, match="damaged" if damage == "flipped" else "bytes of lines, and the state was saved with") as e:
        serve(here)
    assert "server.lines" in str(e.value)
    lines.write_bytes(before)
    assert np.array_equal(serve(here).theta("m"), engine(SCAFFLSA, here.files).theta("m"))


def test_lines_that_nobody_remembers_are_cut_off(tmp_path: Path) -> None:
    here, lines = stopped(tmp_path), tmp_path / "out.state/server.lines"
    lines.write_bytes(lines.read_bytes() + b'{"residual": 7.0}\n{"resid')
    results = serve(here)
    assert np.array_equal(results.theta("m"), engine(SCAFFLSA, here.files).theta("m")) and len(results.trace()) == 6
    # Those of a federation that has ended, or whose state was removed, count for no other one.
    lines.write_bytes(b"lines\n")
    for name in ("out", *here.names):
        shutil.rmtree(tmp_path / name)
    assert len(serve(here).trace()) == 6


def test_a_history_is_restored_as_it_was(tmp_path: Path) -> None:
    history = History(str(tmp_path / "lines"))
    for epoch in range(3):
        history.add_epoch(EpochRecord(epoch, 2 * epoch, [], [], []))
        for round in range(2):
            history.add_residual(None if round else 0.5)
            history.add_round(bytes([epoch, round]), 1.0, 0.25 * round if epoch else None)
        history.epochs[-1].messages = epoch
        state = json.loads(json.dumps(history.save()))
    again = History(history.file)
    again.restore(state)
    for key in ("rounds", "residuals", "ends", "missing", "epochs", "exchanges"):
        assert getattr(again, key) == getattr(history, key), key
    assert again.save() == state and _server_state.LAYOUT == 6


def test_a_second_server_on_the_same_state_is_refused(tmp_path: Path) -> None:
    class Nested(Here):
        """Begins a second server while the first one waits for answers."""

        refusals = 0

        def exchange(self, messages: Any, deadline: float) -> Any:
            with pytest.raises(fedsa.InputError, match="another server runs with its state in .*out.state") as e:
                federation.serve(self.settings, self, agents=3, out=self.folder / "other", state=self.folder / "out.state", deadline=0.1)
            assert e.value.code == "setting.output-busy" and e.value.key == "state"
            self.refusals += 1
            return super().exchange(messages, deadline)

    here = Nested(tmp_path, SCAFFLSA)
    results = serve(here)
    assert here.refusals >= 7 and not (tmp_path / "other").exists()
    assert np.array_equal(results.theta("m"), engine(SCAFFLSA, here.files).theta("m"))


def test_the_lock_of_a_killed_server_does_not_stay(tmp_path: Path) -> None:
    here = Here(tmp_path, SCAFFLSA)
    (tmp_path / "out.state").mkdir()
    program = "import sys, time; from fedsa import _files\nwith _files.held(sys.argv[1]) as is_free: print(is_free, flush=True); time.sleep(600)"
    holder = subprocess.Popen([sys.executable, "-c", program, str(tmp_path / "out.state/server.lock")], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None and holder.stdout.readline() == "True\n"
    with pytest.raises(fedsa.InputError, match="another server runs"):
        serve(here)
    holder.kill()
    holder.communicate()
    assert len(serve(here).trace()) == 6


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
def test_the_lock_of_a_killed_server_does_not_stay_with_those_that_it_forked(tmp_path: Path) -> None:
    file = tmp_path / "server.lock"
    program = "import os, sys, time; from fedsa import _files\nwith _files.held(sys.argv[1]) as is_free:\n    if os.fork() == 0: print(is_free, flush=True); time.sleep(20); os._exit(0)\n    time.sleep(600)"
    # In a group of its own, to end what it forks too.
    holder = subprocess.Popen([sys.executable, "-c", program, str(file)], stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert holder.stdout is not None and holder.stdout.readline() == "True\n"
        with _files.held(file) as is_free:
            assert not is_free
        holder.kill()
        holder.wait()
        with _files.held(file) as is_free:
            assert is_free
    finally:
        os.killpg(holder.pid, signal.SIGKILL)


def test_an_altered_state_of_a_server_is_named(tmp_path: Path) -> None:
    """Whatever is changed together with its checksum is said of the file, and not found out rounds later."""
    here = stopped(tmp_path)
    file = tmp_path / "out.state/server.state"
    whole = file.read_bytes()
    state = json.loads(whole.splitlines()[1])
    lines = state["history"]
    altered: list[tuple[str, Any]] = [
        ("membership", {"base64": ""}),
        ("membership", {"base64": state["server"]["base64"]}),
        ("server", {"base64": "AAAA"}),
        ("server", {"base64": 7}),
        ("server", 7),
        ("names", []),
        ("history", 7),
        ("history", {**lines, "bytes": 0, "sha256": hashlib.sha256().hexdigest()}),
        ("history", {**lines, "bytes": "all"}),
        ("history", {**lines, "epoch": None}),
    ]
    for key, value in altered:
        inside = json.dumps({**state, key: value}).encode()
        file.write_bytes(_server_state._head(inside) + inside)
        with pytest.raises(fedsa.InputError, match="the state in .*server.(state|lines) is damaged or not ours: ") as e:
            serve(here)
        assert e.value.code == "format" and "another one" in e.value.help, (key, value)
    # So is a line of which the state has the checksum.
    kept = (tmp_path / "out.state/server.lines").read_bytes()
    for line in (b'{"round": "AAAA", "end": 0.0, "missing": null}\n', b'{"exchange": {}}\n', b"7\n", b"[]\n"):
        (tmp_path / "out.state/server.lines").write_bytes(kept[: lines["bytes"]] + line)
        told = {**lines, "bytes": lines["bytes"] + len(line), "sha256": hashlib.sha256(kept[: lines["bytes"]] + line).hexdigest()}
        inside = json.dumps({**state, "history": told}).encode()
        file.write_bytes(_server_state._head(inside) + inside)
        with pytest.raises(fedsa.InputError, match="is damaged or not ours: "):
            serve(here)
    (tmp_path / "out.state/server.lines").write_bytes(kept)
    file.write_bytes(whole)
    assert np.array_equal(serve(here).theta("m"), engine(SCAFFLSA, here.files).theta("m"))


@pytest.mark.parametrize("text", ["\x1b[2J\x1b]0;owned\x07" + "x" * 2_000_000, "a\nround 7, exchange 1: 3 of 3 answered"])
def test_what_a_hostile_agent_says_is_cut_and_shown(tmp_path: Path, text: str) -> None:
    class Hostile(Here):
        sizes: list[int] = []

        def one(self, name: str, message: bytes) -> Reply | None:
            self.sizes.append((self.folder / "out.state/server.state").stat().st_size)
            return Reply(refused=text) if name == "bob" else super().one(name, message)

    here, lines = Hostile(tmp_path, SCAFFLSA), []  # type: ignore[var-annotated]
    federation.serve(here.settings, here, agents=2, most=3, deadline=0.3, out=tmp_path / "out", report=lines.append)
    why = told(tmp_path)["excluded"]["bob"]
    assert 30 < len(why) < 600 and (why.startswith("\N{REPLACEMENT CHARACTER}[2J") or why.startswith("a round 7"))
    assert all(line.isprintable() and len(line) < 700 for line in lines) and any("bob cannot take part" in line for line in lines)
    assert max(here.sizes) < 50_000, here.sizes


def test_a_federation_that_is_founded_keeps_no_applications(tmp_path: Path) -> None:
    here = stopped(tmp_path)
    assert json.loads((tmp_path / "out.state/server.state").read_bytes().splitlines()[1])["enrolment"] == {"base64": ""}
    assert np.array_equal(serve(here).theta("m"), engine(SCAFFLSA, here.files).theta("m"))


class Cut(Exception):
    """The server is killed."""


@pytest.mark.parametrize("place", ["before", "within", "after"])
def test_results_that_were_cut_off_are_written_by_the_next_call(tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    here = Here(tmp_path, SCAFFLSA)
    expected = engine(SCAFFLSA, here.files).theta("m")

    class Deployment:
        def __init__(self, plain: Any) -> None:
            self.plain = plain

        def __getattr__(self, name: str) -> Any:
            return getattr(self.plain, name)

        def write(self, *args: Any) -> None:
            if place != "before":
                self.plain.write(*args)
            if place == "within":
                # What is written last.
                (tmp_path / "out/summary.json").unlink()
            raise Cut

    with monkeypatch.context() as patch:
        plain = _deployed.read_settings
        patch.setattr(_deployed, "read_settings", lambda *args: Deployment(plain(*args)))
        with pytest.raises(Cut):
            serve(here)
    assert (tmp_path / "out.state/server.state").exists()
    assert np.array_equal(serve(here).theta("m"), expected)
    assert np.array_equal(fedsa.open(tmp_path / "out").theta("m"), expected) and not (tmp_path / "out.state/server.state").exists()
    with pytest.raises(fedsa.InputError, match="holds results"):
        serve(here)


def test_what_somebody_else_has_in_the_folder_is_refused_by_every_call(tmp_path: Path) -> None:
    here = Here(tmp_path, SCAFFLSA)
    (tmp_path / "out").mkdir()
    (tmp_path / "out/notes.txt").write_text("mine")
    for _ in range(2):
        with pytest.raises(fedsa.InputError, match="is not empty"):
            serve(here)
    assert os.listdir(tmp_path / "out") == ["notes.txt"]


def test_results_of_another_federation_are_not_those_of_a_server_that_was_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = Here(tmp_path, SCAFFLSA)
    with monkeypatch.context() as patch:
        patch.setattr(os, "remove", lambda _: (_ for _ in ()).throw(Cut()))
        with pytest.raises(Cut):
            serve(here)
    summary = tmp_path / "out/summary.json"
    table = json.loads(summary.read_text())
    table["federation"]["exchanges"][-1]["seconds"] += 1.0
    summary.write_text(json.dumps(table))
    with pytest.raises(fedsa.InputError, match="holds results"):
        serve(here)


@pytest.mark.parametrize("key, value", [("decided", 10**30), ("admitted", 5), ("cost", [1]), ("again", {"bob": [1]}), ("seconds", "x"), ("server", None)])
def test_states_that_were_altered_are_refused(tmp_path: Path, key: str, value: Any) -> None:
    here, file = stopped(tmp_path), tmp_path / "out.state/server.state"
    before = file.read_bytes()
    head, state = before.split(b"\n")
    altered = json.dumps({**json.loads(state), key: value}).encode()
    for contents in (head + b"\n" + altered, head + b"\n" + b"[" * 200_000, before[:-5], before + b" "):
        file.write_bytes(contents)
        with pytest.raises(fedsa.InputError, match="damaged: its checksum does not match"):
            serve(here)
    file.write_bytes(b"[" * 200_000)
    with pytest.raises(fedsa.InputError, match="not the state of a server"):
        serve(here)
    file.write_bytes(before)
    assert np.array_equal(serve(here).theta("m"), engine(SCAFFLSA, here.files).theta("m"))
