"""What an agent keeps on the disk: one process at a time has it, and states that were altered are refused as such."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from needs import NO_RULES
from test_deployed import SCAFFLSA, Here, engine, serve

import fedsa
from fedsa.federation import Agent, Reply

HOLDER = "import sys, time; from fedsa.federation import Agent\nagent = Agent(sys.argv[1], sys.argv[2], state=sys.argv[3]); print('ready', flush=True); time.sleep(600)"


def holder(here: Here) -> subprocess.Popen[str]:
    """A process that is carol."""
    args = [str(here.settings), here.files[0], str(here.folder / "carol")]
    process = subprocess.Popen([sys.executable, "-c", HOLDER, *args], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


def test_two_processes_are_not_one_agent(tmp_path: Path) -> None:
    here = Here(tmp_path, SCAFFLSA)
    other = holder(here)
    try:
        with pytest.raises(fedsa.InputError, match="carol is that of an agent that runs in another process") as e:
            here.agent("carol")
        assert (e.value.code, e.value.key) == ("setting.output-busy", "state")
        with pytest.raises(fedsa.InputError, match="another process"):
            Agent(here.settings, here.files[0], state=here.folder / "carol", rules=NO_RULES, wait=0.2)
        here.agent("alice")
    finally:
        # As with signal 9: the lock is gone with the process.
        other.kill()
        other.communicate()
    mine = here.agent("carol")
    # In this process the same folder can be used again, as by a cell of a notebook that is run twice.
    again = here.agent("carol")
    del mine
    with pytest.raises(AssertionError):
        holder(here)
    again.release()
    other = holder(here)
    with pytest.raises(fedsa.InputError, match="another process"):
        again.catch_up()
    with pytest.raises(fedsa.InputError, match="another process"):
        again.handle(b"")
    other.kill()
    other.communicate()
    again.catch_up()
    assert np.array_equal(serve(here).theta("m"), engine(SCAFFLSA, here.files).theta("m"))


OTHER = """
import pickle, sys
from fedsa.federation import Agent
agent = Agent(sys.argv[1], sys.argv[2], state=sys.argv[3], number=0, rules=sys.argv[5])
for message in pickle.loads(bytes.fromhex(sys.argv[4])):
    agent.handle(message)
"""


class Recorded(Here):
    """Keeps what carol was sent."""

    sent: list[bytes]

    def exchange(self, messages: Mapping[str, bytes], deadline: float) -> Mapping[str, Reply]:
        self.sent = [*getattr(self, "sent", []), *(message for name, message in messages.items() if name == "carol")]
        return super().exchange(messages, deadline)


def test_an_agent_that_has_its_folder_again_goes_on_from_what_others_did_there(tmp_path: Path) -> None:
    here = Recorded(tmp_path, SCAFFLSA)
    serve(here)
    folder = tmp_path / "again"
    mine = Agent(here.settings, here.files[0], state=folder, number=0, rules=NO_RULES)
    mine.handle(here.sent[0])
    mine.release()
    args = [str(here.settings), here.files[0], str(folder), pickle.dumps(here.sent[:4]).hex(), NO_RULES]
    subprocess.run([sys.executable, "-c", OTHER, *args], check=True)
    assert mine.number is None
    # A copy of a question that the other process has answered.
    answer, there = mine.handle(here.sent[3]), (folder / "agent.state").read_bytes()
    assert mine.number == 0 and there == mine.saved() and answer is not None
    # What cannot be read is not written over, however often it is tried.
    mine.release()
    (folder / "agent.state").write_bytes(b"nothing")
    for _ in range(2):
        with pytest.raises(fedsa.InputError, match="damaged or not ours"):
            mine.handle(here.sent[3])
    assert (folder / "agent.state").read_bytes() == b"nothing"


def forked(work: Callable[[], object]) -> str:
    """What a forked process says of this: what was raised, or nothing."""
    reads, writes = os.pipe()
    if (child := os.fork()) == 0:
        try:
            work()
        except BaseException as e:
            os.write(writes, f"{type(e).__name__}: {e}".encode())
        os._exit(0)
    os.close(writes)
    os.waitpid(child, 0)
    with os.fdopen(reads) as said:
        return said.read()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
def test_a_forked_process_is_another_one(tmp_path: Path) -> None:
    here = Recorded(tmp_path, SCAFFLSA)
    serve(here)
    mine = here.agent("carol")
    for work in (lambda: mine.handle(here.sent[0]), lambda: here.agent("carol")):
        said = forked(work)
        assert said.startswith("InputError") and "another process" in said, said
    # It may have the folder after us, with its copy of the object too, and then goes on from what is there.
    reads, writes = os.pipe()
    if (child := os.fork()) == 0:
        os.read(reads, 1)
        code = 1
        try:
            mine.handle(here.sent[0])
            code = 0
        finally:
            os._exit(code)
    assert here.agent("carol").number == 0
    mine.release()
    # One that does nothing keeps nobody out.
    other = holder(here)
    other.kill()
    other.communicate()
    os.write(writes, b"x")
    assert os.waitpid(child, 0)[1] == 0


FORKING = "import os, sys, time; from fedsa.federation import Agent\nagent = Agent(sys.argv[1], sys.argv[2], state=sys.argv[3])\nif os.fork() == 0: print('ready', flush=True); time.sleep(20); os._exit(0)\ntime.sleep(600)"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
def test_the_lock_of_a_killed_process_does_not_stay_with_those_that_it_forked(tmp_path: Path) -> None:
    here = Here(tmp_path, SCAFFLSA)
    args = [str(here.settings), here.files[0], str(here.folder / "carol")]
    # In a group of its own, to end what it forks too.
    other = subprocess.Popen([sys.executable, "-c", FORKING, *args], stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert other.stdout is not None and other.stdout.readline() == "ready\n"
        with pytest.raises(fedsa.InputError, match="another process"):
            here.agent("carol")
        other.kill()
        other.wait()
        here.agent("carol")
    finally:
        os.killpg(other.pid, signal.SIGKILL)


def test_an_agent_that_could_not_be_made_does_not_have_its_folder(tmp_path: Path) -> None:
    here = Here(tmp_path, SCAFFLSA)
    (tmp_path / "carol").mkdir()
    (tmp_path / "carol/agent.state").write_bytes(b"nothing")
    with pytest.raises(fedsa.InputError, match="damaged or not ours") as kept:
        here.agent("carol")
    (tmp_path / "carol/agent.state").unlink()
    other = holder(here)
    other.kill()
    other.communicate()
    assert kept.value.code == "format"


def test_folders_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    here = Here(tmp_path, SCAFFLSA)
    (tmp_path / "carol/agent.lock").mkdir(parents=True)
    (tmp_path / "alice").write_text("a file")
    (tmp_path / "bob/agent.state").mkdir(parents=True)
    cases = {"carol": "carol/agent.lock cannot be locked", "alice": "alice is no folder", "bob": "bob/agent.state cannot be read"}
    for name, what in cases.items():
        with pytest.raises(fedsa.InputError, match=what) as e:
            here.agent(name)
        assert e.value.key == "state" and "folder" in e.value.help
    (tmp_path / "state/server.lock").mkdir(parents=True)
    for state, what in ((tmp_path / "alice", "alice is no folder"), (tmp_path / "state", "server.lock cannot be locked")):
        with pytest.raises(fedsa.InputError, match=what) as e:
            serve(here, state=state)
        assert (e.value.code, e.value.key) == ("setting.output-unusable", "state")


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="there are no permissions of this kind here")
def test_a_folder_that_may_only_be_read_is_named(tmp_path: Path) -> None:
    here = Here(tmp_path, SCAFFLSA)
    here.agent("carol")
    (tmp_path / "carol/agent.lock").chmod(0o444)
    (tmp_path / "carol").chmod(0o555)
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents:
        if parent.stat().st_uid == os.geteuid() and parent.name.startswith("pytest"):
            parent.chmod(0o755)

    def work() -> None:
        # Whoever may do anything may write it nevertheless.
        if os.geteuid() == 0:
            os.setuid(65534)
        here.agent("carol")

    try:
        said = forked(work)
    finally:
        (tmp_path / "carol").chmod(0o755)
    assert said.startswith("InputError: state: ") and "carol/agent.lock cannot be locked" in said, said


def test_an_altered_state_of_an_agent_is_named(tmp_path: Path) -> None:
    here = Here(tmp_path, SCAFFLSA)
    serve(here)
    file = tmp_path / "carol/agent.state"
    state = file.read_bytes()
    for altered in (b"", b"nothing", state[:-9], state[:50] + state[51:]):
        sealed = altered[:-4] + zlib.crc32(altered[:-4]).to_bytes(4, "little")
        for contents in (altered, sealed):
            file.write_bytes(contents)
            with pytest.raises(fedsa.InputError, match="the state in .*carol/agent.state is damaged or not ours: ") as e:
                here.agent("carol")
            assert e.value.code == "format" and "another folder" in e.value.help
    file.write_bytes(state)
    here.agent("carol")

