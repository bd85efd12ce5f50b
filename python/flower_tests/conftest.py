"""A SuperLink with TLS and authenticated nodes on this machine, and three nodes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import Federation

NODES = 3


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="run the slow tests too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    slow = [item for item in items if item.get_closest_marker("slow")]
    if slow and not config.getoption("--all"):
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in slow]


def logs(folder: Path, agent: int) -> Path:
    """Transitions of an agent; agents have different numbers of them, in different parts of the state space."""
    import math

    lines = ["s_0,s_1,reward,next_0,next_1,done"]
    state = lambda i: (math.sin(0.37 * i) + 0.3 * agent, math.cos(0.11 * i) * (1 + 0.2 * agent))  # noqa: E731
    for i in range(60 + 20 * agent):
        (x, y), (u, v) = state(i), state(i + 1)
        lines.append(f"{x},{y},{x * y},{u},{v},{int(i % 5 == 4)}")
    path = folder / f"logs_{agent}.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def rows(folder: Path, agent: int) -> Path:
    """Rows of an agent with two classes."""
    import math

    lines = ["a,b,y"]
    for i in range(50 + 10 * agent):
        a, b = math.sin(0.7 * i + agent), math.cos(1.3 * i)
        lines.append(f"{a},{b},{int(a + 0.5 * b + 0.3 * math.sin(2.9 * i) > 0)}")
    path = folder / f"rows_{agent}.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="session")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    # Sockets have short names.
    folder = tmp_path_factory.mktemp("f")

    def configured(node: int) -> str:
        """The first has a resident agent, the others load theirs for each message."""
        at = folder / f"at{node}"
        return f"socket='{at}/socket'" if node == 0 else f"data='{at}/data.csv' agent={node} state='{at}/{{settings}}'"

    with Federation(folder, NODES, configured).running(NODES) as made:
        yield made
