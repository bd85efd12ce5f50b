"""Sums after the last round: standard errors and quality of a federation, and what is told if an agent is away."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pytest

import fedsa
from fedsa import federation
from fedsa.federation import Agent, Reply

SETTINGS = """
problem = { kind = "logistic", target = "y", classes = [0, 1], intercept = true, weighting = "rows" }
sampling = { kind = "mean" }
method = [{ kind = "newton", label = "m" }]
run = { rounds = 6, seeds = [0] }
federation = { inference = "sandwich", deadline = 2.0 }
"""


class Sites:
    """Agents of this process; those in `away` do not answer questions about sums."""

    def __init__(self, folder: Path, away: Collection[str] = ()) -> None:
        self.away, self.agents, self.asked = set(away), {}, 0
        settings = folder / "settings.toml"
        settings.write_text(SETTINGS)
        for c, name in enumerate("abc"):
            rows = [(0.1 * i * (1 + c) % 1.7 - 0.8, 0.3 * i % 1.1 - 0.5, i * (c + 3) % 7) for i in range(40 + 10 * c)]
            lines = [f"{x},{z},{int(x - z + 0.4 * (u - 3) > 0)}" for x, z, u in rows]
            (folder / f"{name}.csv").write_text("x,z,y\n" + "\n".join(lines) + "\n")
            self.agents[name] = Agent(settings, folder / f"{name}.csv", number=c)

    def reachable(self) -> Collection[str]:
        return list(self.agents)

    def exchange(self, messages: Mapping[str, bytes], deadline: float) -> Mapping[str, Reply]:
        replies = {}
        for who, message in messages.items():
            is_question = message[:4] == b"fsaE" and message[6] == 6
            self.asked += is_question
            replies[who] = Reply(lost="away") if is_question and who in self.away else Reply(self.agents[who].handle(message))
        return replies


def summary(out: Path) -> dict[str, Any]:
    return json.loads((out / "summary.json").read_text())


def test_a_federation_tells_standard_errors_and_quality(tmp_path: Path) -> None:
    sites, lines = Sites(tmp_path), []
    federation.serve(tmp_path / "settings.toml", sites, agents=3, out=tmp_path / "out", report=lines.append)
    told, weights = summary(tmp_path / "out"), json.loads((tmp_path / "out" / "weights.json").read_text())
    assert told["inference"]["n"] == 150 and told["fit"]["n"] == 150
    names = [one["name"] for one in told["inference"]["coefficients"]]
    assert names == ["intercept", "x", "z"] and all(one["se"] > 0 for one in told["inference"]["coefficients"])
    assert weights["train"]["rows"] == 150 and weights["train"]["accuracy"] > 0.5 and weights["objective"] > 0
    assert told["federation"]["sums"]["exchanges"] >= 1 and any("sums after the last round: 3 of 3" in line for line in lines)


def test_missing_sums_are_told(tmp_path: Path) -> None:
    sites = Sites(tmp_path, away="b")
    federation.serve(tmp_path / "settings.toml", sites, agents=3, out=tmp_path / "out")
    told, weights = summary(tmp_path / "out"), json.loads((tmp_path / "out" / "weights.json").read_text())
    notes = [note["text"] for note in told["notes"] if note["code"] == "federation.sums-missing"]
    assert len(notes) == 1 and "b: away" in notes[0] and "inference" not in told
    # Only the silent agent is asked again.
    assert sites.asked == 4 and weights["train"] is None and len(weights["theta"]) == 3


@pytest.mark.parametrize("level", [0.0, 1.0])
def test_a_level_is_between_0_and_1(tmp_path: Path, level: float) -> None:
    (tmp_path / "s.toml").write_text(SETTINGS.replace('"sandwich"', f'"sandwich", level = {level}'))
    with pytest.raises(fedsa.InputError, match="level"):
        Agent(tmp_path / "s.toml", tmp_path / "none.csv")
