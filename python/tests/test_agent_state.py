"""What an agent keeps on the disk: one process at a time has it, and states that were altered are refused as such."""

from __future__ import annotations

import subprocess
import sys
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from test_deployed import ROWS, SCAFFLSA, Here, engine, serve, settings
from test_membership import told

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
            Agent(here.settings, here.files[0], state=here.folder / "carol", wait=0.2)
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


class Restarted(Here):
    """Bob is started again on other rows after he has applied for the last time, before he is admitted."""

    def exchange(self, messages: Mapping[str, bytes], deadline: float) -> Mapping[str, Reply]:
        replies = super().exchange(messages, deadline)
        if self.exchanges == 1:
            lines = Path(self.files[2]).read_text().splitlines()
            Path(self.files[2]).write_text("\n".join(lines[:20]) + "\n")
        return replies


def test_an_agent_that_was_started_again_on_other_data_joins_with_these(tmp_path: Path) -> None:
    text = settings(ROWS + "classes = [0, 1]\n", 'kind = "fedlsa"\nstep_size = 0.1\nlocal_steps = 3', "mean", 6)
    here, lines = Restarted(tmp_path, text), []  # type: ignore[var-annotated]
    fedsa.federation.serve(here.settings, here, agents=2, most=3, connect=5.0, deadline=20.0, invite=1.0, out=tmp_path / "out", report=lines.append)
    epochs = told(tmp_path)["epochs"]
    assert any("bob cannot begin anew: an agent that has 19 rows now" in line for line in lines), lines
    assert any("bob" in line and "other rows, columns or settings" in line for line in lines), lines
    assert {one["name"]: one["rows"] for one in epochs[0]["agents"]}["bob"] == 50 and epochs[1]["left"] == ["bob"]
    assert {one["name"]: one["rows"] for one in epochs[-1]["agents"]}["bob"] == 19
