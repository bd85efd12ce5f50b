"""Local training of Flower's FedAvg in NumPy: what a node does for a message, and what the same rounds give in one process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


def train(data: Mapping[str, Any], theta: np.ndarray, told: Mapping[str, Any], round: int, agent: int) -> np.ndarray:
    """The weights after `epochs` passes over the rows of an agent with steps of `step`."""
    if "a" in data:
        return of_means(data, theta, told)
    return of_rows(data, theta, told, np.random.default_rng([round, agent]))


def of_rows(data: Mapping[str, Any], theta: np.ndarray, told: Mapping[str, Any], rng: np.random.Generator) -> np.ndarray:
    """Stochastic gradient steps on the logistic loss of batches, which are drawn without replacement."""
    x, y, w = data["x"], data["y"], theta.copy()
    batch = int(told["batch"])
    for _ in range(int(told["epochs"])):
        order = rng.permutation(len(y))
        for start in range(0, len(y) - batch + 1, batch):
            rows = order[start : start + batch]
            a, b = x[rows], y[rows]
            slope = -b / (1.0 + np.exp(b * (a @ w)))
            w -= told["step"] * (slope @ a / batch + told["ridge"] * w)
    return w


def of_means(data: Mapping[str, Any], theta: np.ndarray, told: Mapping[str, Any]) -> np.ndarray:
    """Steps of TD(0) on the mean of all transitions: `A` and `b` of the agent are in its file, so that no step reads a row."""
    a, b, w = data["a"], data["b"], theta.copy()
    for _ in range(int(told["epochs"])):
        w += told["step"] * (b - a @ w)
    return w


def averaged(trained: Sequence[np.ndarray], rows: Sequence[int]) -> np.ndarray:
    """The mean of the agents' weights by their rows, as FedAvg forms it."""
    return sum(n / sum(rows) * w for n, w in zip(rows, trained))
