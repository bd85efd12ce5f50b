"""The two tasks of the table: what agents have, which methods of fedsa are compared, and Flower's FedAvg with tuned steps."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent / "fedavg"))

from training import averaged, train  # noqa: E402

AGENTS = 8
RIDGE = 1e-5
GAMMA = 0.99
RANGES = {"s_0": (-1.2, 0.6), "s_1": (-0.07, 0.07)}
ORDER = 3

CLASSIFICATION = f"""
[problem]
kind = "logistic"
ridge = {RIDGE}
weighting = "rows"
classes = [-1, 1]
"""
VALUES = f"""
[problem]
kind = "logs"
gamma = {GAMMA}
features = {{ kind = "fourier", order = {ORDER} }}
ranges = {{ s_0 = {list(RANGES["s_0"])}, s_1 = {list(RANGES["s_1"])} }}
"""


@dataclass
class Task:
    """Data of agents in files, and the error of weights."""

    name: str
    problem: str
    # The files of an agent for fedsa and for FedAvg, with {agent} in place of its number.
    files: str
    arrays: str
    optimum: np.ndarray
    accuracy: float
    # The methods by name: their settings, and their sampling.
    methods: dict[str, tuple[str, str]]
    # What FedAvg may choose of.
    grid: dict[str, list[Any]]
    # What `--tune` chose.
    fedavg: dict[str, Any]
    agents: list[dict[str, Any]] = field(default_factory=list)

    def error(self, theta: np.ndarray) -> float:
        """The relative gap of the loss to the least one for rows, the relative distance of the weights from the pooled root for logs."""
        if self.name == "values":
            return float(np.linalg.norm(theta - self.optimum) / np.linalg.norm(self.optimum))
        least = self.loss(self.optimum)
        return (self.loss(theta) - least) / (self.loss(np.zeros_like(theta)) - least)

    def loss(self, theta: np.ndarray) -> float:
        rows = [np.logaddexp(0.0, -one["y"] * (one["x"] @ theta)) for one in self.agents]
        return float(np.concatenate(rows).mean() + RIDGE / 2 * theta @ theta)

    def settings(self, method: str, rounds: int) -> str:
        """An experiment file of a method."""
        text, sampling = self.methods[method]
        run = f"[run]\nrounds = {rounds}\nseeds = [0]\n"
        return f'id = "t"\ntitle = "t"\n{self.problem}\n[sampling]\nkind = "{sampling}"\n[[method]]\nlabel = "m"\n{text}\n{run}'

    def choices(self) -> Iterator[dict[str, Any]]:
        for values in itertools.product(*self.grid.values()):
            yield dict(zip(self.grid, values)) | {"ridge": RIDGE}


def classification(data: Path, folder: Path) -> Task:
    """Rows of LIBSVM's w8a, dealt out in turn."""
    lines = (data / "libsvm/w8a").read_text().splitlines()
    folder.mkdir(parents=True, exist_ok=True)
    agents = []
    for agent in range(AGENTS):
        own = lines[agent::AGENTS]
        # Every agent has the same number of columns.
        (folder / f"{agent}.svm").write_text("\n".join([f"{own[0].strip()} 300:0" if "300:" not in own[0] else own[0], *own[1:]]) + "\n")
        x = np.zeros((len(own), 300))
        for row, line in enumerate(own):
            for entry in line.split()[1:]:
                column, value = entry.split(":")
                x[row, int(column) - 1] = float(value)
        y = np.array([float(line.split()[0]) for line in own])
        agents.append({"x": x, "y": y, "rows": len(own)})
        np.savez(folder / f"{agent}.npz", **agents[-1])
    methods = {
        "newton": ('kind = "newton"', "mean"),
        "giant": ('kind = "giant"\ngradients_ahead = true', "mean"),
        "fib-shed": ('kind = "fib-shed"', "mean"),
        "scafflsa": ('kind = "scafflsa"\nstep_size = 1.0\nlocal_steps = 100', "mean"),
    }
    best = {"batch": 128, "step": 3.0, "epochs": 2, "ridge": RIDGE}
    grid = {"batch": [32, 128, 512], "step": [1.0, 3.0, 10.0], "epochs": [1, 2, 5, 20]}
    task = Task("classification", CLASSIFICATION, f"{folder}/{{agent}}.svm", f"{folder}/{{agent}}.npz", np.zeros(300), 3e-5, methods, grid, best, agents)
    task.optimum = minimiser(np.concatenate([one["x"] for one in agents]), np.concatenate([one["y"] for one in agents]))
    return task


def minimiser(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The weights with the least loss, by Newton steps from zero, which converge on these rows without a search."""
    theta = np.zeros(x.shape[1])
    for _ in range(14):
        p = 1.0 / (1.0 + np.exp(y * (x @ theta)))
        hessian = (x.T * (p * (1.0 - p))) @ x / len(y) + RIDGE * np.eye(len(theta))
        theta -= np.linalg.solve(hessian, -x.T @ (p * y) / len(y) + RIDGE * theta)
    return theta


def values(data: Path, folder: Path) -> Task:
    """Transitions of Gymnasium's MountainCar, whose physics differ by agent."""
    import pyarrow.parquet as parquet

    folder.mkdir(parents=True, exist_ok=True)
    agents = []
    for agent in range(AGENTS):
        table = parquet.read_table(data / f"transitions/mountaincar/agent_{agent}.parquet")
        (folder / f"{agent}.parquet").write_bytes((data / f"transitions/mountaincar/agent_{agent}.parquet").read_bytes())
        columns = {name: np.asarray(table[name], dtype=float) for name in ("s_0", "s_1", "next_0", "next_1", "reward", "done")}
        phi, next = fourier(columns["s_0"], columns["s_1"]), fourier(columns["next_0"], columns["next_1"])
        next *= GAMMA * (1.0 - columns["done"])[:, None]
        rows = len(phi)
        agents.append({"a": phi.T @ (phi - next) / rows, "b": phi.T @ columns["reward"] / rows, "rows": rows})
        np.savez(folder / f"{agent}.npz", **agents[-1])
    methods = {
        "lstd": ('kind = "lstd"', "mean"),
        "gmres": ('kind = "gmres"', "mean"),
        "scafflsa": ('kind = "scafflsa"\nstep_size = 1.0\nlocal_steps = 300', "mean"),
    }
    best = {"step": 1.5, "epochs": 100}
    grid = {"step": [0.3, 1.0, 1.5], "epochs": [10, 30, 100, 300, 1000, 3000]}
    a, b = (sum(one["rows"] * one[name] for one in agents) for name in "ab")
    root = np.linalg.solve(a, b)
    return Task("values", VALUES, f"{folder}/{{agent}}.parquet", f"{folder}/{{agent}}.npz", root, 1e-2, methods, grid, best, agents)


def fourier(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The features of fedsa: cosines of all frequencies to an order, with norm at most 1."""
    scaled = [np.clip((z - low) / (high - low), 0.0, 1.0) for z, (low, high) in zip((x, y), RANGES.values())]
    grid = list(itertools.product(range(ORDER + 1), repeat=2))
    return np.stack([np.cos(math.pi * (i * scaled[0] + j * scaled[1])) for i, j in grid], axis=1) / math.sqrt(len(grid))


def rounds_of_fedavg(task: Task, told: dict[str, Any], most: int) -> int | None:
    """The rounds in which FedAvg with these settings reaches the accuracy: the arithmetic of its nodes and server, in this process."""
    theta, rows = np.zeros_like(task.optimum), [one["rows"] for one in task.agents]
    for round in range(1, most + 1):
        theta = averaged([train(one, theta, told, round, agent) for agent, one in enumerate(task.agents)], rows)
        error = task.error(theta)
        if not error < 1e3:
            return None
        if error <= task.accuracy:
            return round
    return None


def tuned(task: Task, most: int) -> tuple[dict[str, Any], int]:
    """The settings of FedAvg that need the fewest rounds, and how many."""
    best: tuple[dict[str, Any], int] | None = None
    for told in task.choices():
        rounds = rounds_of_fedavg(task, told, most if best is None else best[1] - 1)
        print(f"FedAvg, {task.name}: {told}: {rounds} rounds", file=sys.stderr, flush=True)
        if rounds is not None:
            best = told, rounds
    if best is None:
        raise SystemExit(f"FedAvg does not reach {task.accuracy} in {most} rounds")
    return best


def theta_of_fedavg(task: Task, told: dict[str, Any], rounds: int) -> np.ndarray:
    """The weights of FedAvg after so many rounds."""
    theta, rows = np.zeros_like(task.optimum), [one["rows"] for one in task.agents]
    for round in range(1, rounds + 1):
        theta = averaged([train(one, theta, told, round, agent) for agent, one in enumerate(task.agents)], rows)
    return theta
