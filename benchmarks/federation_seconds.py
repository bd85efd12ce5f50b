"""Seconds of federations on Flower to the same accuracy, and what fedsa adds to an exchange.

    python benchmarks/federation_seconds.py DATA [--simulation] [--most 24] [--only TASK/METHOD ..] [--json FILE]

DATA has `libsvm/w8a` and `transitions/mountaincar`. The environment has fedsa, Flower (with `--simulation`, `flwr[simulation]`), NumPy and
PyArrow. A SuperLink with TLS and authenticated nodes and eight SuperNodes run on this machine, whose nodes load their data for each message, for
FedAvg as for fedsa; or with `--simulation` Flower's simulated nodes. Exchanges to the accuracy are those of the engine, whose bits a federation has,
and of FedAvg's own arithmetic in this process. With more than `--most` rounds the first ones are carried, and the seconds of all exchanges are
their number times the mean of these.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "federation"), str(HERE.parent / "python/flower_tests")]

from processes import Federation  # noqa: E402
from tasks import AGENTS, Task, classification, rounds_of_fedavg, theta_of_fedavg, tuned, values  # noqa: E402

import fedsa  # noqa: E402

# The most rounds in which the accuracy is looked for.
MOST_ROUNDS = 5000


@dataclass
class Row:
    """A row of the table: what the accuracy takes, and the seconds of the exchanges that were carried."""

    task: str
    method: str
    exchanges: int
    bytes_up: float
    bytes_down: float
    carried: int
    carried_seconds: float
    enrolment: float
    error: float

    def __str__(self) -> str:
        one = self.carried_seconds / self.carried
        seconds, of = one * self.exchanges, "" if self.carried == self.exchanges else f" (of {self.carried})"
        cells = [self.task, self.method, self.exchanges, f"{self.bytes_up / 1e6:.3g}", f"{self.bytes_down / 1e6:.3g}"]
        cells += [f"{one:.2f}{of}", f"{seconds:.4g}", f"{seconds + self.enrolment:.4g}", f"{self.error:.1e}"]
        return "| " + " | ".join(map(str, cells)) + " |"


HEAD = """| task | method | exchanges | MB up | MB down | seconds an exchange | seconds | with enrolment | error |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |"""


class Place:
    """Where federations run: SuperNodes on this machine, with resident agents or without, or Flower's simulation."""

    def __init__(self, folder: Path, simulated: bool = False, resident: bool = False, nodes: int = AGENTS) -> None:
        self.folder, self.simulated, self.nodes = folder, simulated, nodes
        folder.mkdir(exist_ok=True)
        self.federation = Federation(folder, nodes, lambda node: f"socket='{self.socket(node)}'" if resident else f"agent={node}")
        if simulated:
            self.federation.simulation()
            return
        self.federation.superlink()
        self.federation.register()
        for node in range(nodes):
            self.federation.node(node)

    def socket(self, node: int) -> Path:
        return self.folder / f"{node}.socket"

    def agents(self, settings: Path, files: str) -> None:
        """Start a resident agent for each node."""
        for node in range(self.nodes):
            args = [str(settings), files.format(agent=node), "--agent", str(node), "--state", str(self.folder / f"agent{node}")]
            self.federation.start(f"agent{node}", "fedsa", "agent", *args, "--socket", str(self.socket(node)))
        for node in range(self.nodes):
            self.federation.wait(f"agent {node}", lambda: "ready" in self.federation.log(f"agent{node}"))

    def app(self, name: str, settings: str, kind: str | None = None) -> Path:
        """An app of fedsa, or one of `benchmarks/federation` in its place."""
        app = self.federation.app(name, settings)
        if kind is not None:
            for file in (HERE / "federation" / kind).glob("*.py"):
                (app / "app" / file.name).write_text(file.read_text())
        return app

    def run(self, name: str, app: Path, data: str, ended: str, seconds: float) -> Path:
        """Run an app until it has written a file."""
        config = f"data='{data}' state='{self.folder}/states/{name}/{{node}}'"
        where = "simulation" if self.simulated else "here"
        more = ["--federation-config", f"num-supernodes={self.nodes}"] if self.simulated else []
        self.federation.start(name, "flwr", "run", str(app), where, "--stream", "--run-config", config, *more)
        self.federation.wait(f"the end of {name}", (app / "out" / ended).exists, seconds)
        self.federation.kill(name)
        return app / "out"


def of_method(place: Place, task: Task, method: str, most: int) -> Row:
    """A federation of fedsa."""
    rounds = rounds_of_engine(task, method)
    carried = min(rounds, most)
    name = f"{task.name}-{method}"
    app = place.app(name, task.settings(method, carried))
    out = place.run(name, app, task.files, "summary.json", 120.0 + 120.0 * carried)
    told = json.loads((out / "summary.json").read_text())["federation"]
    seconds = [one["seconds"] for one in told["exchanges"]]
    expected = engine(task, method, rounds)
    cost, theta = expected.cost("m"), expected.theta("m")[0]
    if carried == rounds:
        assert np.array_equal(fedsa.open(out).theta("m")[0], theta), "the federation has other weights than the engine"
    up, down = cost["bits_up"] / 8, cost["bits_down"] / 8
    epoch = told["epochs"][0]
    return Row(task.name, method, int(cost["exchanges"]), up, down, len(seconds), sum(seconds), epoch["seconds"], task.error(theta))


def engine(task: Task, method: str, rounds: int) -> fedsa.Results:
    """The run of the same settings in one process."""
    files = [task.files.format(agent=agent) for agent in range(AGENTS)]
    data = {"problem.path": files} if task.name == "values" else {"problem.data": files, "problem.partition": "files"}
    return fedsa.Experiment.from_text(task.settings(method, rounds), set=data).run()


def rounds_of_engine(task: Task, method: str) -> int:
    """The first round after which the error is at most the accuracy."""
    rounds = 8
    while rounds <= MOST_ROUNDS:
        trace = engine(task, method, rounds).trace()
        # Relative as `Task.error` is.
        error = np.array(trace["gap"]) / trace["gap"][0] if task.name == "classification" else np.sqrt(np.array(trace["mse"]) / trace["mse"][0])
        if (error <= task.accuracy).any():
            return int(trace["round"][int(np.argmax(error <= task.accuracy))])
        rounds *= 2
    raise SystemExit(f"{method} does not reach {task.accuracy} in {MOST_ROUNDS} rounds")


def of_fedavg(place: Place, task: Task, most: int) -> Row:
    """Flower's own FedAvg."""
    told = task.fedavg
    rounds = rounds_of_fedavg(task, told, MOST_ROUNDS)
    if rounds is None:
        raise SystemExit(f"FedAvg does not reach {task.accuracy} in {MOST_ROUNDS} rounds with {told}")
    carried = min(rounds, most)
    app = place.app(f"{task.name}-fedavg", task.settings(next(iter(task.methods)), 1), "fedavg")
    dim = len(task.optimum)
    (app / "settings.toml").write_text("".join(f"{key} = {value}\n" for key, value in (told | {"dim": dim, "rounds": carried}).items()))
    out = place.run(f"{task.name}-fedavg", app, task.arrays, "fedavg.json", 120.0 + 120.0 * carried)
    got = json.loads((out / "fedavg.json").read_text())
    theta, expected = np.array(got["theta"]), theta_of_fedavg(task, told, carried)
    # The rounds that were counted in this process are those of the nodes.
    assert np.abs(theta - expected).max() <= 1e-9 * np.abs(expected).max(), "FedAvg on the nodes is not that of this process"
    numbers = 8.0 * dim * AGENTS * rounds
    return Row(task.name, "FedAvg", rounds, numbers, numbers, carried, sum(got["seconds"]), 0.0, task.error(theta_of_fedavg(task, told, rounds)))


def overhead(folder: Path, task: Task, exchanges: int, simulated: bool) -> dict[str, float]:
    """The seconds that fedsa adds to an exchange with one node, whose agent is resident, or in a simulation in Flower's process: the machines of a
    federation answer at the same time, and here several would wait for each other."""
    place = Place(folder, simulated, resident=not simulated, nodes=1)
    try:
        app = place.app("overhead", task.settings("scafflsa", exchanges), "overhead")
        if not simulated:
            place.agents(app / "settings.toml", task.files)
        out = place.run("overhead", app, task.files, "overhead.json", 120.0 + 120.0 * exchanges)
    finally:
        place.federation.end()
    # The first exchanges tell agents what the federation is, and processes of a simulation load their data in the next ones.
    rows = json.loads((out / "overhead.json").read_text())[2:]
    rows = rows[len(rows) // 3 :]
    nodes = [float(line) for line in Path(f"{out}.nodes").read_text().split()]
    summary: dict[str, float] = {"exchanges": len(rows), "bytes up": rows[-1]["up"], "bytes down": rows[-1]["down"]}
    for key in ("server", "fedsa", "echo"):
        seconds = [row[key] for row in rows]
        summary |= {f"{key}, median": statistics.median(seconds), f"{key}, mean": statistics.fmean(seconds)}
    differences = [row["server"] + row["fedsa"] - row["echo"] for row in rows]
    error = statistics.stdev(differences) / len(differences) ** 0.5
    return summary | {"difference": statistics.fmean(differences), "its standard error": error, "in a node, median": statistics.median(nodes)}


def main() -> None:
    args = arguments()
    out: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="f") as name:
        folder = Path(name)
        tasks: dict[str, Callable[[Path, Path], Task]] = {"values": values, "classification": classification}
        made = {key: make(args.data, folder / "data" / key) for key, make in tasks.items()}
        if args.tune:
            print({key: tuned(task, MOST_ROUNDS) for key, task in made.items()})
            return
        wanted = [(task, method) for key, task in made.items() for method in [*task.methods, "FedAvg"] if is_wanted(args, f"{key}/{method}")]
        if is_wanted(args, "overhead"):
            out["overhead"] = overhead(folder / "o", made["values"], args.most, args.simulation)
            print(*(f"{key}: {value:.4g}" for key, value in out["overhead"].items()), sep="\n", flush=True)
        if wanted:
            out["rows"] = table(folder / "t", args, wanted)
    if args.json is not None:
        args.json.write_text(json.dumps(out, indent=1))


def is_wanted(args: argparse.Namespace, name: str) -> bool:
    return not args.only or name in args.only


def table(folder: Path, args: argparse.Namespace, wanted: list[tuple[Task, str]]) -> list[dict[str, Any]]:
    """The rows of the table."""
    rows = []
    place = Place(folder, args.simulation)
    try:
        print(HEAD, flush=True)
        for task, method in wanted:
            row = of_fedavg(place, task, args.most) if method == "FedAvg" else of_method(place, task, method, args.most)
            rows.append(row.__dict__)
            print(row, flush=True)
    finally:
        place.federation.end()
    return rows


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--simulation", action="store_true", help="on Flower's simulated nodes")
    parser.add_argument("--most", type=int, default=24, help="the most rounds that are carried")
    parser.add_argument("--only", nargs="*", help="rows such as values/lstd, classification/FedAvg, overhead")
    parser.add_argument("--tune", action="store_true", help="look for the best settings of FedAvg, and do nothing else")
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    return parser.parse_args()


if __name__ == "__main__":
    main()
