"""What a node tells others of its agent: no cells, no paths, and no refusal that the agent has not spoken."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict

from fedsa import flower

SETTINGS = """
problem = { kind = "logistic", target = "y" }
sampling = { kind = "mean" }
method = [{ kind = "newton" }]
run = { rounds = 2 }
"""


def reply(folder: Path, config: dict[str, Any]) -> flower.Reply:
    """The reply of a node with this configuration to some message, as the server reads it."""
    (folder / "settings.toml").write_text(SETTINGS)
    asked = RecordDict({flower.RECORD: ConfigRecord({flower.BODY: b"a message"})})
    context = Context(run_id=1, node_id=1, node_config=config, state=RecordDict(), run_config={})
    got = RecordDict({flower.RECORD: flower.answered(folder / "settings.toml", asked, context)})
    return flower.reply_of(cast("Message", SimpleNamespace(content=got, has_error=lambda: False)))


def test_a_refusal_has_the_column_and_the_line_and_no_cell(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "site.csv"
    data.write_text("age,y\n50,1\n60,0\n70.5x patient 4711,1\n")
    got = reply(tmp_path, {"data": str(data), "agent": 0, "state": str(tmp_path / "state")})
    assert got.refused is not None and "line 4, column `age`" in got.refused
    assert "4711" not in got.refused and str(tmp_path) not in got.refused
    # The node's own log has all of it.
    assert "4711" in capfd.readouterr().err


def test_an_agent_that_does_not_listen_has_refused_nothing(tmp_path: Path) -> None:
    got = reply(tmp_path, {"socket": str(tmp_path / "socket")})
    assert got.refused is None and got.lost is not None and str(tmp_path) not in got.lost
